//! Compares what two servers answered to one script.
//!
//! Names may differ: zxids by a constant, session ids, passwords, clocks. Everything else must be
//! equal, or stand in the table of [`intended`](crate::intended).

use crate::intended::{Case, RULES, row};
use crate::play::{Lane, Transcript, may_overtake};
use crate::reply::{Atom, Item, Reply, What};
use crate::script::{Action, Claim, Op, Script, Step};
use crate::value::unquoted;
use crate::watches::Watches;
use std::collections::HashMap;
use std::fmt;

/// Result of a comparison.
#[derive(Clone, Debug, Default)]
pub struct Verdict {
    /// Replies that were equal, or differed as intended.
    pub replies: u64,
    /// Events that were equal, or differed as intended.
    pub events: u64,
    /// Number of uses of each row of the table.
    pub used: [u64; RULES.len()],
    /// The first unexplained difference.
    pub difference: Option<Difference>,
}

/// A difference between the two servers.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Difference {
    /// The step of the script.
    pub step: usize,
    /// The session whose connection differs.
    pub session: usize,
    /// The difference.
    pub why: String,
    /// All that Apache ZooKeeper sent on that connection in that step.
    pub theirs: Vec<Item>,
    /// All that zoolet sent on that connection in that step.
    pub ours: Vec<Item>,
    /// Number of matching items at the start of `theirs` and `ours`.
    pub alike: (usize, usize),
}

impl fmt::Display for Difference {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "step {} of the script, connection of s{}: {}", self.step, self.session, self.why)?;
        let mut side = |name: &str, items: &[Item], alike: usize| {
            writeln!(f, "  {name}")?;
            for (number, item) in items.iter().enumerate() {
                let mark = if number < alike {
                    ' '
                } else if number == alike {
                    '>'
                } else {
                    '?'
                };
                writeln!(f, "  {mark} {item}")?;
            }
            if items.len() == alike { writeln!(f, "  > nothing more") } else { Ok(()) }
        };
        side("Apache ZooKeeper", &self.theirs, self.alike.0)?;
        side("zoolet", &self.ours, self.alike.1)
    }
}

/// Compares the answers to `script`, which was played under `root` to both servers.
pub fn compare(script: &Script, root: &str, theirs: &Transcript, ours: &Transcript) -> Verdict {
    let mut comparison = Comparison {
        names: Names::new(theirs, ours),
        watches: vec![Watches::default(); script.sessions()],
        spent: 0,
        roles_changed: false,
        verdict: Verdict::default(),
    };
    let played = theirs.steps.iter().zip(&ours.steps).zip(theirs.anchors.iter().zip(&ours.anchors));
    for ((number, step), ((theirs, ours), anchors)) in script.steps.iter().enumerate().zip(played) {
        comparison.step(number, step, root, [*anchors.0, *anchors.1], theirs, ours);
        if comparison.verdict.difference.is_some() {
            return comparison.verdict;
        }
    }
    let lengths = [theirs, ours].map(|side| (side.steps.len(), side.anchors.len()));
    if lengths != [(script.steps.len(), script.steps.len()); 2] {
        let step = lengths.iter().map(|(steps, _)| *steps).min().unwrap_or_default();
        let why = format!("of {} steps these were played, with anchors: {lengths:?}", script.steps.len());
        comparison.differs(step, 0, why);
    }
    comparison.verdict
}

struct Comparison {
    names: Names,
    watches: Vec<Watches>,
    /// Zxids that only Apache ZooKeeper has spent in this step.
    spent: i64,
    /// Whether servers have lost or found a leader.
    roles_changed: bool,
    verdict: Verdict,
}

impl Comparison {
    fn step(
        &mut self,
        number: usize,
        step: &Step,
        root: &str,
        anchors: [Option<i64>; 2],
        theirs: &[Lane],
        ours: &[Lane],
    ) {
        let places = |lanes: &[Lane]| lanes.iter().map(|lane| (lane.session, lane.left)).collect::<Vec<_>>();
        if places(theirs) != places(ours) {
            let why = format!("different connections live: {:?} and {:?}", places(theirs), places(ours));
            let items = |lanes: &[Lane]| lanes.iter().flat_map(|lane| lane.items.clone()).collect();
            let (theirs, ours) = (items(theirs), items(ours));
            let session = step.session;
            self.verdict.difference = Some(Difference { step: number, session, why, theirs, ours, alike: (0, 0) });
            return;
        }
        self.roles_changed |= matches!(step.action, Action::Alone | Action::Together);
        if let Action::Connect(_) = step.action {
            self.watches[step.session] = Watches::default();
        }
        let change_zxids = written(&step.action, step.session, ours);
        let mut lanes = theirs.iter().zip(ours).peekable();
        while let Some((theirs, ours)) = lanes.next_if(|(theirs, _)| theirs.session == step.session) {
            self.lane(number, step, root, &change_zxids, theirs, ours);
        }
        self.anchored(number, step, anchors);
        for (theirs, ours) in lanes {
            self.lane(number, step, root, &change_zxids, theirs, ours);
        }
        if matches!(step.action, Action::Cut(_) | Action::Vanish(_) | Action::Fatal(_)) {
            self.watches[step.session] = Watches::default();
        }
    }

    /// Records a difference of the play as a whole, or of something that is not sent.
    fn differs(&mut self, step: usize, session: usize, why: String) {
        let (theirs, ours) = (Vec::new(), Vec::new());
        self.verdict.difference = Some(Difference { step, session, why, theirs, ours, alike: (0, 0) });
    }

    /// Realigns the zxids of both sides after a step that may have moved them apart.
    fn anchored(&mut self, number: usize, step: &Step, anchors: [Option<i64>; 2]) {
        let by_rows = std::mem::take(&mut self.spent);
        let [Some(theirs), Some(ours)] = anchors else { return };
        if self.verdict.difference.is_some() {
            return;
        }
        if matches!(step.action, Action::Together) {
            self.names.begin_epoch(theirs, ours);
            return;
        }
        // Surface 13.20: a request behind closeSession may get a zxid there without a reply.
        let behind = step.action.ops().iter().rev().take_while(|op| op.code != -11).count() as i64;
        let behind = if step.action.ops().iter().any(|op| op.code == -11) { behind } else { 0 };
        // Surface 13.5: zoolet spends an entry on a changed timeout.
        let renews = matches!(&step.action, Action::Connect(connect) if connect.claim == Claim::Right);
        match self.names.anchor(theirs, ours, -by_rows.max(behind)..=i64::from(renews)) {
            Ok(more) if more > 0 => self.verdict.used[row("13.5")] += 1,
            Ok(more) if more < -by_rows => self.verdict.used[row("13.20")] += 1,
            Ok(_) => {}
            Err(why) => self.differs(number, step.session, why),
        }
    }

    fn lane(&mut self, number: usize, step: &Step, root: &str, change_zxids: &[i64], theirs: &Lane, ours: &Lane) {
        if self.verdict.difference.is_some() {
            return;
        }
        let (mut their_items, our_items) = (theirs.items.clone(), ours.items.clone());
        if put_back(&mut their_items) {
            self.verdict.used[row("13.24")] += 1;
        }
        let (mut at_theirs, mut at_ours) = (0, 0);
        let mut ended = 0;
        let lane_session = theirs.session;
        while at_theirs < their_items.len() || at_ours < our_items.len() {
            let end = end_of_session(step, change_zxids, &our_items[at_ours..]);
            if end > 0 && at_ours >= ended {
                ended = at_ours + end;
                if let Some(why) = aligned(&mut their_items[at_theirs..], &our_items[at_ours..ended]) {
                    let (session, alike) = (theirs.session, (at_theirs, at_ours));
                    let (theirs, ours) = (their_items, our_items);
                    self.verdict.difference = Some(Difference { step: number, session, why, theirs, ours, alike });
                    return;
                }
            }
            let (rest_theirs, rest_ours) = (&their_items[at_theirs..], &our_items[at_ours..]);
            let why = match (rest_theirs.first(), rest_ours.first()) {
                (Some(theirs), Some(ours)) => match self.names.differ(theirs, ours).or_else(|| anonymous(step, ours)) {
                    None => {
                        self.count(ours);
                        self.remember(step, root, lane_session, (theirs, ours), &our_items[..at_ours]);
                        (at_theirs, at_ours) = (at_theirs + 1, at_ours + 1);
                        continue;
                    }
                    Some(why) => why,
                },
                (Some(_), None) => "only Apache ZooKeeper sent it".to_owned(),
                (None, Some(_)) => "only zoolet sent it".to_owned(),
                (None, None) => break,
            };
            let case = Case {
                action: &step.action,
                op: asked(&step.action, rest_theirs, rest_ours),
                acts: step.session == theirs.session,
                left: theirs.left,
                roles_changed: self.roles_changed,
                root,
                theirs: rest_theirs,
                ours: rest_ours,
                before_ours: &our_items[..at_ours],
                change_zxids,
                watches: &self.watches[theirs.session],
                all_watches: &self.watches,
                names: &self.names,
            };
            let found = RULES.iter().enumerate().find_map(|(row, rule)| Some((row, (rule.applies)(&case)?)));
            let Some((row, taken)) = found else {
                let alike = (at_theirs, at_ours);
                let session = theirs.session;
                self.verdict.difference =
                    Some(Difference { step: number, session, why, theirs: their_items, ours: our_items, alike });
                return;
            };
            self.verdict.used[row] += 1;
            match (taken.theirs, taken.ours, rest_theirs, rest_ours) {
                (1, 1, [theirs, ..], [ours, ..]) => {
                    self.count(ours);
                    self.remember(step, root, lane_session, (theirs, ours), &our_items[..at_ours]);
                }
                (1, 0, [theirs, ..], _) => self.watches[lane_session].fired(Some(theirs), None),
                (0, 1, _, [ours, ..]) => self.watches[lane_session].fired(None, Some(ours)),
                _ => {}
            }
            self.spent += i64::from(taken.spends);
            if let (true, Some(pair)) = (taken.hides, zxids_of(rest_theirs, rest_ours)) {
                self.names.hidden = Some(pair);
            }
            (at_theirs, at_ours) = (at_theirs + taken.theirs, at_ours + taken.ours);
        }
    }

    fn count(&mut self, item: &Item) {
        match item.what {
            What::Event { .. } => self.verdict.events += 1,
            What::Connected(_) | What::Reply(_) => self.verdict.replies += 1,
            What::Closed | What::Silence | What::NotConnected | What::TookEffect(_) | What::Unknown(_) => {}
        }
    }

    /// Notes which watches are new and which are used up; some intended differences depend on them.
    fn remember(&mut self, step: &Step, root: &str, session: usize, pair: (&Item, &Item), before: &[Item]) {
        let (theirs, ours) = pair;
        let watches = &mut self.watches[session];
        match (&theirs.what, &ours.what) {
            (What::Reply(theirs), What::Reply(answer)) => {
                let Some(op) = ours.op.and_then(|op| step.action.ops().get(op)) else { return };
                let made_up = before.iter().rev().take_while(|item| is_made_up(item)).count();
                watches.answered(op, root, theirs, answer, &before[before.len() - made_up..]);
            }
            (What::Event { .. }, What::Event { .. }) if !is_made_up(ours) => watches.fired(Some(theirs), Some(ours)),
            // The end of a stranger's connection does not end the session's connection.
            (_, What::Closed) if !matches!(step.action, Action::Stranger(_)) => *watches = Watches::default(),
            _ => {}
        }
    }
}

/// Returns the zxids of the acting session's writes in this step, as far as replies show them.
fn written(action: &Action, session: usize, ours: &[Lane]) -> Vec<i64> {
    let own = ours.iter().filter(|lane| lane.session == session && !lane.left).flat_map(|lane| &lane.items);
    own.filter_map(|item| match &item.what {
        What::Reply(reply) if item.op.and_then(|op| action.ops().get(op)).is_some_and(Op::is_write) => Some(reply.zxid),
        _ => None,
    })
    .collect()
}

/// Returns the request that the next reply of either side answers.
fn asked<'a>(action: &'a Action, theirs: &[Item], ours: &[Item]) -> Option<&'a Op> {
    let op = |items: &[Item]| items.first().and_then(|item| item.op);
    op(theirs).or(op(ours)).and_then(|op| action.ops().get(op))
}

/// Returns the zxids of the next two replies.
fn zxids_of(theirs: &[Item], ours: &[Item]) -> Option<(i64, i64)> {
    match (&theirs.first()?.what, &ours.first()?.what) {
        (What::Reply(theirs), What::Reply(ours)) => Some((theirs.zxid, ours.zxid)),
        _ => None,
    }
}

/// Counts our next events that the end of a session caused: one change, so one zxid.
fn end_of_session(step: &Step, change_zxids: &[i64], ours: &[Item]) -> usize {
    let zxid = |item: &Item| match item.what {
        What::Event { zxid, .. } if zxid > 0 => Some(zxid),
        _ => None,
    };
    let Some(first) = ours.first().and_then(zxid) else { return 0 };
    let ends = match step.action {
        // No reply shows the zxid of an expiry.
        Action::Wait(_) => true,
        _ => step.action.ops().iter().any(|op| op.code == -11) && change_zxids.last() == Some(&first),
    };
    if ends { ours.iter().take_while(|item| zxid(item) == Some(first)).count() } else { 0 }
}

/// Puts their next events into our order where both sides have the same events.
///
/// When a session ends, ZooKeeper deletes its ephemerals in the order of a hash set, which has no
/// meaning. zoolet deletes them in the order of their paths, and this function checks that. On both
/// sides the event of a parent must come right behind the event of its child.
fn aligned(theirs: &mut [Item], ours: &[Item]) -> Option<String> {
    let run = theirs.iter().take_while(|item| is_event(item)).count();
    let (before, after) = (behind_their_child(&theirs[..run]), behind_their_child(ours));
    for (at, ours) in ours.iter().enumerate() {
        let same = |theirs: &Item| {
            matches!((&theirs.what, &ours.what),
            (What::Event { kind, path, .. }, What::Event { kind: our_kind, path: our_path, .. }) if (kind, path) == (our_kind, our_path))
        };
        if let Some(found) = theirs.get(at..run).and_then(|rest| rest.iter().position(same)) {
            theirs[at..=at + found].rotate_right(1);
        }
    }
    // Compared as bytes: an escape sorts before the letters, but the byte it stands for sorts after
    // them.
    let deleted: Vec<_> = ours.iter().filter_map(|item| event_of(item, 2)).map(unquoted).collect();
    if !deleted.is_sorted() {
        return Some("the ephemerals of a session did not go in the order of their paths".to_owned());
    }
    // The first deleted child uses up a one-shot watch of its parent, and the sides may differ
    // there.
    let often = |path: &str| ours.iter().filter(|item| event_of(item, 4) == Some(path)).count() > 1;
    let lost = before.iter().find(|path| often(path) && count(&before, path) != count(&after, path));
    lost.map(|path| format!("events of children of {path} are not behind those of the same znodes"))
}

fn count(paths: &[String], path: &str) -> usize {
    paths.iter().filter(|other| *other == path).count()
}

/// Returns the parents whose event stands right behind the deletion of a child.
fn behind_their_child(items: &[Item]) -> Vec<String> {
    let pairs = items.windows(2).filter_map(|pair| Some((event_of(&pair[0], 2)?, event_of(&pair[1], 4)?)));
    let parent = |path: &str| path.rfind('/').map(|at| path[..at.max(2)].to_owned());
    pairs
        .filter(|(child, path)| parent(child).as_deref() == Some(path.trim_end_matches('"')))
        .map(|(_, path)| path.to_owned())
        .collect()
}

/// Returns the path of an event of this type.
fn event_of(item: &Item, wanted: i32) -> Option<&str> {
    match &item.what {
        What::Event { kind, path, .. } if *kind == wanted => Some(path),
        _ => None,
    }
}

/// Rejects an event without the zxid of its change, unless setWatches made it up.
fn anonymous(step: &Step, ours: &Item) -> Option<String> {
    let made_up = step.action.ops().iter().any(|op| matches!(op.code, 101 | 105));
    let without = matches!(ours.what, What::Event { zxid: -1, .. }) && !made_up;
    without.then(|| "an event without the zxid of its change".to_owned())
}

/// Returns whether setWatches made this event up: nothing has changed at this moment.
fn is_made_up(item: &Item) -> bool {
    matches!(item.what, What::Event { zxid: -1, .. })
}

fn is_event(item: &Item) -> bool {
    matches!(item.what, What::Event { .. })
}

/// A read-only server refuses a write.
const NOT_READ_ONLY: i32 = -119;

/// Moves replies to auth and sasl to their place, and returns whether any moved.
///
/// Surface 13.24: ZooKeeper answers these requests at once, zoolet in the order of requests. So
/// does its read-only server with the requests that it refuses.
fn put_back(items: &mut Vec<Item>) -> bool {
    let before = items.clone();
    let early = |item: &Item| match &item.what {
        What::Reply(reply) if reply.error == 0 && may_overtake(reply.code) => item.op,
        What::Reply(reply) if reply.error == NOT_READ_ONLY => item.op,
        _ => None,
    };
    let overtaking: Vec<Item> = items.iter().filter(|item| early(item).is_some()).cloned().collect();
    items.retain(|item| early(item).is_none());
    for item in overtaking {
        let earlier = |other: &Item| other.op.is_some_and(|op| Some(op) < item.op);
        let mut at = items.iter().rposition(earlier).map_or(0, |at| at + 1);
        // The player's read behind an `exists` belongs to that request.
        while at > 0 && items.get(at).is_some_and(|next| next.op.is_none() && is_read(next)) {
            at += 1;
        }
        items.insert(at, item);
    }
    *items != before
}

fn is_read(item: &Item) -> bool {
    matches!(&item.what, What::Reply(Reply { code: 4, .. }))
}

/// Translates the names of one server to those of the other.
#[derive(Clone, Debug)]
pub struct Names {
    sessions: [Vec<i64>; 2],
    clocks_ms: [(i64, i64); 2],
    /// Our zxids are theirs plus this: both servers count every change, failed ones too.
    offset: Option<i64>,
    /// Additional offsets, each from one of their zxids on: changes that only one server counts.
    skips: Vec<(i64, i64)>,
    /// The newest zxids of both sides after Apache ZooKeeper spent a zxid that no reply shows.
    hidden: Option<(i64, i64)>,
    /// The newest zxid of each side before the script began.
    began: [i64; 2],
    /// Our zxid for each of their zxids from before the script.
    before: HashMap<i64, i64>,
    /// The time of each zxid, per side.
    times: [HashMap<i64, i64>; 2],
}

/// Largest apparent difference between a server's clock and the player's, in ms.
const CLOCK_SLACK_MS: i64 = 2000;

impl Names {
    fn new(theirs: &Transcript, ours: &Transcript) -> Self {
        Self {
            sessions: [theirs.sessions.clone(), ours.sessions.clone()],
            clocks_ms: [theirs.clock_ms, ours.clock_ms],
            offset: Some(ours.began - theirs.began),
            skips: Vec::new(),
            hidden: None,
            began: [theirs.began, ours.began],
            before: HashMap::new(),
            times: [HashMap::new(), HashMap::new()],
        }
    }

    /// Returns the difference of two items; `None` if they are equal.
    pub fn differ(&mut self, theirs: &Item, ours: &Item) -> Option<String> {
        if theirs.op != ours.op {
            return Some("answers to different requests".to_owned());
        }
        match (&theirs.what, &ours.what) {
            (What::Reply(theirs), What::Reply(ours)) => self.replies_differ(theirs, ours),
            (What::Connected(theirs), What::Connected(ours)) => self.atoms_differ(theirs, ours),
            (theirs, ours) => (theirs != ours).then(|| "they differ".to_owned()),
        }
    }

    fn replies_differ(&mut self, theirs: &Reply, ours: &Reply) -> Option<String> {
        if (theirs.code, theirs.xid) != (ours.code, ours.xid) {
            return Some("answers to different requests".to_owned());
        }
        if theirs.error != ours.error {
            return Some(format!("error {} and {}", theirs.error, ours.error));
        }
        if theirs.parts.len() != ours.parts.len() {
            return Some(format!("{} parts and {}", theirs.parts.len(), ours.parts.len()));
        }
        self.zxids_differ(theirs.zxid, ours.zxid, "zxid of the header")
            .or_else(|| theirs.parts.iter().zip(&ours.parts).find_map(|(theirs, ours)| self.atoms_differ(theirs, ours)))
    }

    /// Returns the difference of two bodies; `None` if they are equal.
    pub fn atoms_differ(&mut self, theirs: &[Atom], ours: &[Atom]) -> Option<String> {
        if theirs.len() != ours.len() {
            return Some(format!("{} pieces and {}", theirs.len(), ours.len()));
        }
        theirs.iter().zip(ours).find_map(|(theirs, ours)| self.atom_differs(theirs, ours))
    }

    fn atom_differs(&mut self, theirs: &Atom, ours: &Atom) -> Option<String> {
        match (theirs, ours) {
            (Atom::Zxid(theirs), Atom::Zxid(ours)) => self.zxids_differ(*theirs, *ours, "zxid"),
            (Atom::Time(theirs, their_zxid), Atom::Time(ours, our_zxid)) => {
                self.time_is_odd(0, *theirs, *their_zxid).or_else(|| self.time_is_odd(1, *ours, *our_zxid))
            }
            (Atom::Session(theirs), Atom::Session(ours)) => {
                let (theirs, ours) = (self.session(0, *theirs), self.session(1, *ours));
                (theirs != ours).then(|| format!("{theirs} and {ours}"))
            }
            (theirs, ours) => (theirs != ours).then(|| format!("{theirs} and {ours}")),
        }
    }

    fn zxids_differ(&mut self, theirs: i64, ours: i64, what: &str) -> Option<String> {
        if theirs <= 0 || ours <= 0 {
            return (theirs != ours).then(|| format!("{what} {theirs:#x} and {ours:#x}"));
        }
        if theirs <= self.began[0] && ours <= self.began[1] {
            let known = *self.before.entry(theirs).or_insert(ours);
            return (known != ours).then(|| format!("{what} {theirs:#x} is {known:#x} and {ours:#x}"));
        }

        if self.hidden == Some((theirs, ours)) {
            return None;
        }
        let more = ours - self.ours_of(theirs);
        (more != 0).then(|| format!("{what} {theirs:#x} and {ours:#x}, which is {more:+} against the one of theirs"))
    }

    /// Returns why a time is odd: a zxid has one time, which lies within the play.
    fn time_is_odd(&mut self, side: usize, time: i64, zxid: i64) -> Option<String> {
        if zxid <= self.began[side] && zxid != 0 {
            return None;
        }
        let who = ["Apache ZooKeeper", "zoolet"][side];
        if zxid == 0 {
            return (time != 0).then(|| format!("{who}: time {time} at zxid 0"));
        }
        let known = *self.times[side].entry(zxid).or_insert(time);
        if known != time {
            return Some(format!("{who}: times {known} and {time} of one zxid {zxid:#x}"));
        }
        let (from, to) = self.clocks_ms[side];
        let within = (from - CLOCK_SLACK_MS..=to + CLOCK_SLACK_MS).contains(&time);
        (!within).then(|| format!("{who}: time {time} is not of this play"))
    }

    fn session(&self, side: usize, id: i64) -> String {
        match self.sessions[side].iter().position(|known| *known == id) {
            _ if id == 0 => "no session".to_owned(),
            Some(number) => format!("session {number}"),
            None => format!("unknown session {id:#x}"),
        }
    }

    /// Returns whether two bodies differ, without learning names from them.
    pub fn would_differ(&self, theirs: &[Atom], ours: &[Atom]) -> bool {
        self.clone().atoms_differ(theirs, ours).is_some()
    }

    /// Returns our zxid for one of theirs.
    pub fn ours_of(&self, theirs: i64) -> i64 {
        let newest = self.skips.iter().rev().find(|(from, _)| theirs >= *from);
        theirs + self.offset.unwrap_or_default() + newest.map_or(0, |(_, skipped)| *skipped)
    }

    /// Aligns the first zxids of a new epoch, whose upper parts differ.
    fn begin_epoch(&mut self, theirs: i64, ours: i64) {
        self.skips.push((theirs >> 32 << 32, ours - theirs - self.offset.unwrap_or_default()));
    }

    /// Aligns two zxids of the same moment; returns how far ours have moved ahead since the last
    /// call.
    ///
    /// `allowed` bounds that number.
    fn anchor(&mut self, theirs: i64, ours: i64, allowed: std::ops::RangeInclusive<i64>) -> Result<i64, String> {
        let more = ours - self.ours_of(theirs);
        if !allowed.contains(&more) {
            return Err(format!("zoolet spent {more:+} zxids more than Apache ZooKeeper, allowed is {allowed:?}"));
        }
        if more != 0 {
            let skipped = self.skips.last().map_or(0, |(_, skipped)| *skipped);
            self.skips.push((theirs, skipped + more));
        }
        Ok(more)
    }
}
