//! Checks a restarted server against the writes that were sent and acknowledged.

use crate::client::Client;
use crate::load::{Sent, SessionFate, Writer};
use crate::tree::{SHARED, Share, Stamp, Tree, parent};
use bytes::Bytes;
use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::io;
use zoolet_model::{Reply, Request, Stat};
use zoolet_transport::wire::client_side::Shape;

/// Requests in flight while the tree is read.
const WINDOW: usize = 64;

/// A broken guarantee.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Violation {
    /// The tree shows a state before some acknowledged writes.
    Lost {
        /// Number of the writer.
        writer: u64,
        /// Writes that the server holds.
        there: usize,
        /// Writes that were acknowledged.
        acknowledged: usize,
        /// The first missing thing.
        what: String,
    },
    /// The tree shows a state that never existed: half a write, a write without an earlier one, or
    /// other data.
    NeverSo {
        /// Number of the writer.
        writer: u64,
        /// The first difference from the acknowledged state.
        what: String,
    },
    /// Two facts about the tree or its order contradict each other.
    Inconsistent(String),
    /// A value that a reader saw is gone.
    Shown(String),
    /// A live session is unknown, or a closed session is known.
    Session(String),
    /// The server does not start.
    NoStart(String),
    /// The server gives a wrong answer or none.
    Answer(String),
}

impl fmt::Display for Violation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Lost { writer, there, acknowledged, what } => {
                write!(
                    f,
                    "LOST: writer {writer} has its first {there} writes, and {acknowledged} were acknowledged: {what}"
                )
            }
            Self::NeverSo { writer, what } => write!(f, "NEVER SO: writer {writer}'s tree is of no moment: {what}"),
            Self::Inconsistent(what) => write!(f, "INCONSISTENT: {what}"),
            Self::Shown(what) => write!(f, "SHOWN AND LOST: {what}"),
            Self::Session(what) => write!(f, "SESSION: {what}"),
            Self::NoStart(what) => write!(f, "NO START: {what}"),
            Self::Answer(what) => write!(f, "ANSWER: {what}"),
        }
    }
}

/// All znodes with data and stat.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Observed {
    /// Data and stat by path.
    pub znodes: BTreeMap<String, (Bytes, Stat)>,
    /// Children by path, as the parent lists them.
    pub children: BTreeMap<String, BTreeSet<String>>,
    /// The newest zxid in any reply.
    pub zxid: i64,
}

impl Observed {
    /// Reads the whole tree; `None` if the server goes away meanwhile.
    ///
    /// # Errors
    /// Malformed replies, and a listed znode that cannot be read.
    pub fn read(client: &mut Client) -> io::Result<Option<Self>> {
        let mut observed = Self::default();
        let mut level = vec!["/".to_owned()];
        while !level.is_empty() {
            let mut next = Vec::new();
            for paths in level.chunks(WINDOW) {
                for path in paths {
                    client.queue(&Request::GetData { path: path.as_str().into(), watch: false });
                    client.queue(&Request::GetChildren { path: path.as_str().into(), watch: false, with_stat: false });
                }
                if !client.flush()? {
                    return Ok(None);
                }
                for path in paths {
                    let Some((header, data)) = client.receive(Shape::Data)? else { return Ok(None) };
                    let Some((_, names)) = client.receive(Shape::Names)? else { return Ok(None) };
                    let (Ok(Reply::Data(data, stat)), Ok(Reply::Names(names))) = (data, names) else {
                        return Err(io::Error::other(format!("{path} is listed and cannot be read")));
                    };
                    let names: BTreeSet<String> = names.iter().map(str::to_owned).collect();
                    next.extend(names.iter().map(|name| child(path, name)));
                    observed.children.insert(path.clone(), names);
                    observed.znodes.insert(path.clone(), (data.unwrap_or_default(), stat));
                    observed.zxid = observed.zxid.max(header.zxid);
                }
            }
            level = next;
        }
        Ok(Some(observed))
    }

    /// The subtree at `top`, including `top`.
    fn part<'a>(&'a self, top: &'a str) -> impl Iterator<Item = (&'a String, &'a (Bytes, Stat))> {
        self.znodes
            .range(top.to_owned()..)
            .take_while(move |(path, _)| path.starts_with(top))
            .filter(move |(path, _)| path.len() == top.len() || path.as_bytes().get(top.len()) == Some(&b'/'))
    }
}

fn child(path: &str, name: &str) -> String {
    if path == "/" { format!("/{name}") } else { format!("{path}/{name}") }
}

/// What was found for one writer.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Found {
    /// Number of its writes that the server holds.
    pub there: usize,
    /// Its tree, including the zxids found for unanswered writes.
    pub tree: Tree,
    /// The zxids of its writes that left a trace.
    pub zxids: Vec<i64>,
}

/// Finds the prefix of a writer's history that the server shows.
///
/// The prefix must contain all acknowledged writes, and may contain later ones.
///
/// # Errors
/// [`Violation::Lost`] or [`Violation::NeverSo`].
pub fn reconcile(writer: &Writer, observed: &Observed) -> Result<Found, Violation> {
    let number = writer.number;
    let top = writer.top();
    let acknowledged = writer.acknowledged();
    let (first, rest) = writer.sent.split_at(acknowledged);
    let mut tree = writer.tree.clone();
    first.iter().enumerate().for_each(|(number, sent)| apply(&mut tree, number, sent));

    let mut difference = None;
    let mut there = acknowledged;
    loop {
        let mut learned = BTreeMap::new();
        match differs(&tree, &top, observed, &mut learned) {
            None => return resolve_writes(writer, there, tree, &learned),
            Some(what) => difference = difference.or(Some(what)),
        }
        let Some(sent) = rest.get(there - acknowledged) else { break };
        apply(&mut tree, there, sent);
        there += 1;
    }
    let what = difference.unwrap_or_default();
    // The state is wrong. Whether it ever existed decides only the wording of the report.
    let mut tree = writer.tree.clone();
    for (there, sent) in first.iter().enumerate() {
        if differs(&tree, &top, observed, &mut BTreeMap::new()).is_none() {
            return Err(Violation::Lost { writer: number, there, acknowledged, what });
        }
        apply(&mut tree, there, sent);
    }
    if observed.part(&top).next().is_none() && acknowledged > 0 {
        return Err(Violation::Lost { writer: number, there: 0, acknowledged, what });
    }
    Err(Violation::NeverSo { writer: number, what })
}

fn apply(tree: &mut Tree, number: usize, sent: &Sent) {
    let stamp = sent.acknowledged.map_or(Stamp::By(number), Stamp::At);
    let _ = tree.apply(&sent.write, sent.session, stamp);
}

/// Returns the first difference between `tree` and the znodes found below `top`.
fn differs(tree: &Tree, top: &str, observed: &Observed, learned: &mut BTreeMap<usize, i64>) -> Option<String> {
    let mut conflict = None;
    let mut found = observed.part(top).peekable();
    for (path, znode) in &tree.znodes {
        match found.peek() {
            Some((is, _)) if *is < path => return Some(format!("{is} is there and must not be")),
            Some((is, (data, stat))) if *is == path => {
                let difference = znode.difference(data, stat, &mut |write, zxid| {
                    let known = *learned.entry(write).or_insert(zxid);
                    if known != zxid {
                        conflict = Some(format!("one write has the zxids {known:#x} and {zxid:#x}"));
                    }
                });
                if let Some(what) = difference.or_else(|| conflict.take()) {
                    return Some(format!("{path}: {what}"));
                }
                found.next();
            }
            Some(_) | None => return Some(format!("{path} is not there")),
        }
    }
    found.next().map(|(path, _)| format!("{path} is there and must not be"))
}

/// Checks the order of the unanswered writes, and puts their zxids into the tree.
fn resolve_writes(
    writer: &Writer,
    there: usize,
    mut tree: Tree,
    learned: &BTreeMap<usize, i64>,
) -> Result<Found, Violation> {
    let mut zxids: Vec<i64> = writer.sent.iter().filter_map(|sent| sent.acknowledged).collect();
    zxids.extend(learned.values());
    if let Some(pair) = zxids.windows(2).find(|pair| pair[0] >= pair[1]) {
        let what = format!("writer {} wrote at {:#x} and then at {:#x}", writer.number, pair[0], pair[1]);
        return Err(Violation::Inconsistent(what));
    }
    let zxid_of = |write: usize| learned.get(&write).copied().unwrap_or_default();
    tree.znodes.values_mut().for_each(|znode| znode.resolve_zxids(zxid_of));
    for share in tree.shares.values_mut() {
        if let Stamp::By(write) = share.last.1
            && let Some(zxid) = learned.get(&write)
        {
            share.last.1 = Stamp::At(*zxid);
        }
    }
    Ok(Found { there, tree, zxids })
}

/// Checks all writers together: shared znodes, order of all writes, children and lengths.
///
/// # Errors
/// [`Violation::Inconsistent`].
pub fn together(found: &mut [Found], writers: &[Writer], observed: &Observed) -> Result<(), Violation> {
    let wrong = |what: String| Err(Violation::Inconsistent(what));
    let mut zxids: Vec<i64> = found.iter().flat_map(|found| found.zxids.iter().copied()).collect();
    zxids.sort_unstable();
    if let Some(pair) = zxids.windows(2).find(|pair| pair[0] == pair[1]) {
        return wrong(format!("two writes have the zxid {:#x}", pair[0]));
    }
    if let Some(last) = zxids.last()
        && *last > observed.zxid
    {
        return wrong(format!("a write has the zxid {last:#x}, and the server is at {:#x}", observed.zxid));
    }
    for (path, (data, stat)) in observed.part(SHARED).filter(|(path, _)| *path != SHARED) {
        let shares = found.iter_mut().filter_map(|found| found.tree.shares.get_mut(path));
        shared(shares.collect(), data, stat).or_else(|what| wrong(format!("{path} {what}")))?;
    }
    let tops: BTreeSet<String> = writers.iter().map(Writer::top).chain([SHARED.to_owned()]).collect();
    for (path, (data, stat)) in &observed.znodes {
        let names = observed.children.get(path).map_or(0, BTreeSet::len);
        if stat.num_children as usize != names {
            return wrong(format!("{path} counts {} children and lists {names}", stat.num_children));
        }
        if stat.data_length as usize != data.len() {
            return wrong(format!("{path} counts {} bytes and has {}", stat.data_length, data.len()));
        }
        let top = path.split('/').nth(1).unwrap_or_default();
        if !matches!(top, "" | "zookeeper") && !tops.contains(&format!("/{top}")) {
            return wrong(format!("nobody made {path}"));
        }
        if path != "/" && !observed.znodes.contains_key(if parent(path).is_empty() { "/" } else { parent(path) }) {
            return wrong(format!("{path} has no parent"));
        }
    }
    Ok(())
}

/// Checks a znode that all writers set: each set counts, and the last one is visible.
fn shared(mut shares: Vec<&mut Share>, data: &[u8], stat: &Stat) -> Result<(), String> {
    let sets: i64 = shares.iter().map(|share| share.sets).sum();
    if i64::from(stat.version) != sets {
        return Err(format!("has version {} and was set {sets} times", stat.version));
    }
    if sets == 0 {
        return Ok(());
    }
    let later = shares
        .iter()
        .map(|share| share.last)
        .find(|(_, stamp)| *stamp > Stamp::At(stat.mzxid) && matches!(stamp, Stamp::At(_)));
    if let Some((value, stamp)) = later {
        return Err(format!("was set by {value:?} at {stamp:?}, and its mzxid is {:#x}", stat.mzxid));
    }
    // The zxid of an unanswered write may be visible nowhere else.
    let is_last = |share: &Share| match share.last {
        (value, Stamp::At(zxid)) => zxid == stat.mzxid && value.expand() == data,
        (value, Stamp::By(_)) => value.expand() == data,
    };
    if shares.iter().filter(|share| is_last(share)).count() != 1 {
        return Err(format!("has data of mzxid {:#x} that nobody set last: {:?}", stat.mzxid, shares));
    }
    for share in &mut shares {
        if matches!(share.last.1, Stamp::By(_)) {
            // A share that is not the last is only known to be earlier.
            let zxid = if share.last.0.expand() == data { stat.mzxid } else { 0 };
            share.last.1 = Stamp::At(zxid);
        }
    }
    Ok(())
}

/// Compares the counts in `mntr` with the tree that was read.
///
/// # Errors
/// [`Violation::Inconsistent`].
pub fn counted(mntr: &str, observed: &Observed) -> Result<(), Violation> {
    let figure = |key: &str| {
        let line = mntr.lines().find_map(|line| line.strip_prefix(key)?.strip_prefix('\t'));
        line.and_then(|number| number.parse::<u64>().ok())
    };
    let ephemerals = observed.znodes.values().filter(|(_, stat)| stat.ephemeral_owner != 0).count();
    let bytes: usize = observed.znodes.iter().map(|(path, (data, _))| path.len() + data.len()).sum();
    let facts = [
        // ZooKeeper's tree has a znode above the root.
        ("zk_znode_count", observed.znodes.len() + 1),
        ("zk_ephemerals_count", ephemerals),
        ("zk_approximate_data_size", bytes),
    ];
    for (key, expected) in facts {
        if figure(key) != Some(expected as u64) {
            return Err(Violation::Inconsistent(format!("{key} is {:?} and {expected} were read", figure(key))));
        }
    }
    Ok(())
}

/// Checks that a session is known or unknown as it must be; returns its new fate.
///
/// # Errors
/// [`Violation::Session`].
pub fn fate_after(writer: &Writer, is_known: bool) -> Result<SessionFate, Violation> {
    let wrong = |what: &str| Err(Violation::Session(format!("the session of writer {} {what}", writer.number)));
    match (writer.fate, is_known) {
        (SessionFate::Open, false) => wrong("was never closed and is not known"),
        (SessionFate::Closed, true) => wrong("was closed and is known"),
        (SessionFate::None, _) => Ok(SessionFate::None),
        (SessionFate::Open | SessionFate::Closing, true) => Ok(SessionFate::Open),
        (SessionFate::Closed | SessionFate::Closing, false) => Ok(SessionFate::Closed),
    }
}

/// Each rule fails once here, on an altered tree.
#[cfg(test)]
mod tests {
    use super::*;
    use crate::random::Random;
    use crate::tree::{Step, Value, Write};

    const SESSION: i64 = 77;

    /// Among others, two multis that set the writer's znode and a shared one, in either order.
    fn writes() -> Vec<Write> {
        let value = |tag| Value { tag, bytes: 100 };
        let create = |path: &str, tag, ephemeral| {
            Write::One(Step::Create { path: path.into(), value: value(tag), ephemeral, sequential: false })
        };
        let set = |path: &str, tag| Step::Set { path: path.into(), value: value(tag), version: -1 };
        vec![
            create("/w0", 1, false),
            create("/w0/a", 2, false),
            create("/w0/e", 3, true),
            Write::All(vec![set("/w0/a", 4), set("/shared/s0", 5)]),
            Write::All(vec![set("/shared/s0", 6), set("/w0/a", 7)]),
            create("/w0/a/b", 8, false),
        ]
    }

    /// A writer with its first `acknowledged` writes acknowledged, at zxids 10, 20 and so on.
    fn writer(acknowledged: usize) -> Writer {
        let mut writer = Writer::new(0, Random::new(1));
        for (number, write) in writes().into_iter().enumerate() {
            let zxid = (number < acknowledged).then_some(10 * (number as i64 + 1));
            writer.sent.push(Sent { write, session: SESSION, expected: Ok(Vec::new()), acknowledged: zxid });
        }
        writer.fate = SessionFate::Open;
        writer
    }

    /// The state of a server that holds the first `there` writes.
    fn server(there: usize) -> Observed {
        let mut tree = Tree::default();
        for (number, write) in writes().iter().take(there).enumerate() {
            tree.apply(write, SESSION, Stamp::At(10 * (number as i64 + 1))).unwrap();
        }
        let zxid = |stamp| match stamp {
            Stamp::At(zxid) => zxid,
            Stamp::By(_) => unreachable!(),
        };
        let mut observed = Observed { zxid: 10 * there as i64, ..Observed::default() };
        let mut add = |path: &str, data: Bytes, stat: Stat| {
            observed.znodes.insert(path.to_owned(), (data, stat));
            observed.children.entry(path.to_owned()).or_default();
            if path != "/" {
                let above = if parent(path).is_empty() { "/" } else { parent(path) };
                let name = path.rsplit_once('/').unwrap().1.to_owned();
                observed.children.entry(above.to_owned()).or_default().insert(name);
            }
        };
        for (path, znode) in &tree.znodes {
            let stat = Stat {
                czxid: zxid(znode.created),
                mzxid: zxid(znode.modified),
                pzxid: zxid(znode.child_changed),
                version: znode.version,
                cversion: 2 * znode.creates - znode.children,
                num_children: znode.children,
                ephemeral_owner: znode.owner,
                data_length: znode.value.bytes as i32,
                ..Stat::default()
            };
            add(path, znode.value.expand(), stat);
        }
        add("/shared", Bytes::new(), Stat { num_children: 1, ..Stat::default() });
        let share = tree.shares.get("/shared/s0");
        let data = share.map_or(Bytes::new(), |share| share.last.0.expand());
        let stat = Stat {
            version: share.map_or(0, |share| share.sets as i32),
            mzxid: share.map_or(0, |share| zxid(share.last.1)),
            data_length: data.len() as i32,
            ..Stat::default()
        };
        add("/shared/s0", data, stat);
        let tops = 1 + i32::from(there > 0);
        add("/", Bytes::new(), Stat { num_children: tops, ..Stat::default() });
        observed
    }

    fn check(writer: &Writer, observed: &Observed) -> Result<usize, Violation> {
        let mut found = [reconcile(writer, observed)?];
        together(&mut found, std::slice::from_ref(writer), observed)?;
        Ok(found[0].there)
    }

    fn is_inconsistent(outcome: &Result<usize, Violation>) -> bool {
        matches!(outcome, Err(Violation::Inconsistent(_)))
    }

    fn is_never_so(outcome: &Result<usize, Violation>) -> bool {
        matches!(outcome, Err(Violation::NeverSo { .. }))
    }

    fn stat<'a>(observed: &'a mut Observed, path: &str) -> &'a mut Stat {
        &mut observed.znodes.get_mut(path).unwrap().1
    }

    #[test]
    fn every_state_from_the_last_acked_write_on_is_accepted() {
        for acknowledged in 0..=6 {
            for there in 0..=6 {
                let outcome = check(&writer(acknowledged), &server(there));
                if there >= acknowledged {
                    assert_eq!(outcome, Ok(there));
                } else {
                    let Err(Violation::Lost { there: left, acknowledged: all, .. }) = outcome else {
                        panic!("{there} of {acknowledged}: {outcome:?}")
                    };
                    assert_eq!((left, all), (there, acknowledged));
                }
            }
        }
    }

    #[test]
    fn half_applied_multi_is_detected() {
        let mut observed = server(3);
        let whole = server(4);
        observed.znodes.insert("/w0/a".into(), whole.znodes["/w0/a"].clone());
        observed.zxid = 40;
        assert!(is_inconsistent(&check(&writer(3), &observed)));
        let mut observed = server(3);
        observed.znodes.insert("/shared/s0".into(), whole.znodes["/shared/s0"].clone());
        assert!(is_inconsistent(&check(&writer(3), &observed)));
    }

    #[test]
    fn write_without_its_predecessor_is_detected() {
        let mut observed = server(4);
        observed.znodes.insert("/w0/a/b".into(), server(6).znodes["/w0/a/b"].clone());
        assert!(is_never_so(&check(&writer(3), &observed)));
    }

    #[test]
    fn each_wrong_stat_field_is_detected() {
        let changes: [fn(&mut Stat); 8] = [
            |stat| stat.version += 1,
            |stat| stat.cversion += 1,
            |stat| stat.num_children += 1,
            |stat| stat.ephemeral_owner = 5,
            |stat| stat.data_length += 1,
            |stat| stat.czxid += 1,
            |stat| stat.mzxid += 1,
            |stat| stat.pzxid += 1,
        ];
        for (number, change) in changes.into_iter().enumerate() {
            let mut observed = server(6);
            change(stat(&mut observed, "/w0/a"));
            assert!(is_never_so(&check(&writer(6), &observed)), "change {number}");
        }
    }

    #[test]
    fn single_wrong_data_byte_is_detected() {
        let mut observed = server(6);
        let data = &mut observed.znodes.get_mut("/w0/a").unwrap().0;
        let mut bytes = data.to_vec();
        bytes[99] ^= 1;
        *data = bytes.into();
        assert!(is_never_so(&check(&writer(6), &observed)));
    }

    #[test]
    fn znode_never_written_is_detected() {
        let mut observed = server(6);
        let copy = observed.znodes["/w0/e"].clone();
        observed.znodes.insert("/w0/f".into(), copy.clone());
        assert!(is_never_so(&check(&writer(6), &observed)));
        let mut observed = server(6);
        observed.znodes.insert("/w1".into(), copy);
        assert!(is_inconsistent(&check(&writer(6), &observed)));
    }

    #[test]
    fn ephemeral_that_outlives_its_session_is_detected() {
        let mut writer = writer(6);
        writer.sent.push(Sent {
            write: Write::Close,
            session: SESSION,
            expected: Ok(Vec::new()),
            acknowledged: Some(70),
        });
        writer.fate = SessionFate::Closed;
        let outcome = check(&writer, &server(6));
        assert!(matches!(outcome, Err(Violation::Lost { there: 6, acknowledged: 7, .. })), "{outcome:?}");
        assert!(matches!(fate_after(&writer, true), Err(Violation::Session(_))));
        assert_eq!(fate_after(&writer, false), Ok(SessionFate::Closed));
        writer.fate = SessionFate::Open;
        assert!(matches!(fate_after(&writer, false), Err(Violation::Session(_))));
    }

    #[test]
    fn impossible_order_of_zxids_is_detected() {
        // An unanswered write is there, with a zxid below that of an earlier, acknowledged write.
        let mut observed = server(6);
        for path in ["/w0/a/b", "/w0/a"] {
            let stat = stat(&mut observed, path);
            stat.pzxid = 45;
            if path == "/w0/a/b" {
                (stat.czxid, stat.mzxid) = (45, 45);
            }
        }
        assert!(is_inconsistent(&check(&writer(5), &observed)));
        // One write at two places in the order.
        let mut observed = server(6);
        stat(&mut observed, "/w0/a").pzxid = 65;
        assert!(is_never_so(&check(&writer(5), &observed)));
        // The server's zxid is below a zxid that it shows.
        let mut observed = server(6);
        observed.zxid = 59;
        assert!(is_inconsistent(&check(&writer(6), &observed)));
        // Two writers at one place in the order.
        let observed = server(6);
        let found = reconcile(&writer(6), &observed).unwrap();
        let mut twice = [found.clone(), found];
        assert!(together(&mut twice, &[writer(6)], &observed).is_err());
    }

    #[test]
    fn shared_znode_with_a_missing_or_stale_set_is_detected() {
        let mut observed = server(6);
        stat(&mut observed, "/shared/s0").version -= 1;
        assert!(is_inconsistent(&check(&writer(6), &observed)));
        let mut observed = server(6);
        stat(&mut observed, "/shared/s0").mzxid = 40;
        assert!(is_inconsistent(&check(&writer(6), &observed)));
        let mut observed = server(6);
        let old = server(4).znodes["/shared/s0"].0.clone();
        observed.znodes.get_mut("/shared/s0").unwrap().0 = old;
        assert!(is_inconsistent(&check(&writer(6), &observed)));
    }

    #[test]
    fn child_list_or_root_stat_mismatch_is_detected() {
        let mut observed = server(6);
        observed.children.get_mut("/").unwrap().insert("ghost".into());
        assert!(is_inconsistent(&check(&writer(6), &observed)));
        let mut observed = server(6);
        stat(&mut observed, "/").data_length = 4;
        assert!(is_inconsistent(&check(&writer(6), &observed)));
    }

    #[test]
    fn mntr_counts_that_differ_from_the_read_tree_are_detected() {
        let observed = server(6);
        let bytes: usize = observed.znodes.iter().map(|(path, (data, _))| path.len() + data.len()).sum();
        let mntr = |znodes: usize, ephemerals: usize, bytes: usize| {
            format!("zk_znode_count\t{znodes}\nzk_ephemerals_count\t{ephemerals}\nzk_approximate_data_size\t{bytes}\n")
        };
        let count = observed.znodes.len() + 1;
        assert_eq!(counted(&mntr(count, 1, bytes), &observed), Ok(()));
        for wrong in [mntr(count + 1, 1, bytes), mntr(count, 2, bytes), mntr(count, 1, bytes + 1), String::new()] {
            assert!(counted(&wrong, &observed).is_err(), "{wrong}");
        }
    }
}
