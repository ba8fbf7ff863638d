//! Operations that are carried out together, or not at all.
//!
//! # ACLs of parents
//! A server checks the ACL of a parent also while the same multi creates its children. So a znode
//! whose ACL does not let the session create children can get them only with another ACL. No multi
//! can set an ACL. Such a parent is created with one entry more, for this session, and
//! [`LastAcl::set`] takes the entry away at the end, and [`narrow`] does so after a failure.
//! [`Multi::run`] tries the plain ACLs first.
//!
//! # Znodes that another client changes meanwhile
//! The multi checks the version of the data, which neither a new ACL nor a new znode at the same path
//! need to move. So [`Multi::expect`] names znodes whose czxid and version of the ACL are read again
//! right before the multi is sent. A change between the two stays unnoticed.

use super::acl;
use super::client::{Session, unexpected};
use super::failure::{Failure, code};
use super::walk::WINDOW;
use bytes::Bytes;
use std::time::Duration;
use tokio::time::Instant;
use zoolet_model::{
    AclEntry, AskedAcl, Create, CreateKind, CreateMode, Perms, Reply, Request, RequestedAcl, WriteOp, first_failure,
};

/// Bytes of one request that a server takes by default: `jute.maxbuffer`, `frame_bytes_max`.
pub(super) const FRAME_BYTES: usize = 1_048_575;
/// Bounds of one multi of a command that sends several, unless one operation is larger.
const BYTES_MAX: usize = 64 << 10;
pub(super) const COUNT_MAX: usize = 1000;
/// Bytes of an operation beside its path, data and ACL, at most.
const OVERHEAD: usize = 48;
/// Bytes of the entry that lets the session work below a znode, at most.
const OWN_ENTRY_BYTES: usize = 64;
/// Maximum time in which a failed command sets the ACLs of parents: an election, or a restart.
const NARROW_MAX: Duration = Duration::from_secs(5);

/// Operations of one multi.
#[derive(Clone, Default)]
pub(super) struct Multi {
    operations: Vec<WriteOp>,
    bytes: usize,
    /// Indexes of creations that get children and do not let every client create these.
    narrow: Vec<usize>,
    known: Vec<Known>,
}

/// A znode as the command has read it.
#[derive(Clone)]
struct Known {
    path: String,
    czxid: i64,
    acl_version: i32,
}

/// The ACL that a znode gets at the end of a command.
pub(super) struct LastAcl {
    pub(super) path: String,
    pub(super) acl: AskedAcl,
    /// The version of the ACL that it replaces.
    pub(super) version: i32,
}

impl LastAcl {
    /// Sets the ACL.
    ///
    /// # Errors
    /// The request is refused, or the connection is lost.
    pub(super) fn set(&self, session: &Session) -> Result<(), Failure> {
        session.ask(self.request()).map(|_| ())
    }

    fn request(&self) -> Request {
        let (path, acl) = (self.path.as_str().into(), Some(self.acl.clone()));
        Request::Write(WriteOp::SetAcl { path, acl, version: self.version })
    }
}

/// Sets the ACLs of parents after a failure, also after Ctrl-C; returns those that are not set.
///
/// The parents stand before their children. A parent that does not exist counts as done: a multi
/// without an answer may not have happened. So does an ACL of another version: a request without an
/// answer has set it, or another client.
pub(super) fn narrow(session: &Session, wide: Vec<LastAcl>) -> Vec<LastAcl> {
    if wide.is_empty() { wide } else { session.tidy(|| narrow_until(session, wide, Instant::now() + NARROW_MAX)) }
}

fn narrow_until(session: &Session, mut wide: Vec<LastAcl>, until: Instant) -> Vec<LastAcl> {
    let mut refused = Vec::new();
    while !wide.is_empty() && Instant::now() < until {
        let mut some = wide.split_off(wide.len().saturating_sub(WINDOW));
        some.reverse();
        let answers = session.ask_all_until(some.iter().map(LastAcl::request).collect(), until);
        let mut lost = Vec::new();
        for (acl, answer) in some.into_iter().zip(answers) {
            match answer {
                Ok(_) => {}
                Err(failure) if failure.is(code::NO_NODE) || failure.is(code::BAD_VERSION) => {}
                // The next connection may come in time.
                Err(failure) if failure.is(code::CONNECTION_LOSS) => lost.push(acl),
                Err(_) => refused.push(acl),
            }
        }
        wide.extend(lost.into_iter().rev());
    }
    refused.reverse();
    wide.append(&mut refused);
    wide
}

/// Returns a line about ACLs that are still wider than in `place`; `None` if there are none.
pub(super) fn still_wide(wide: &[LastAcl], place: &str) -> Option<String> {
    let first = &wide.first()?.path;
    let count = wide.len();
    let are = if count == 1 { "ACL is" } else { "ACLs are" };
    Some(format!("{count} {are} still wider than in {place}, first {first}; set each with setAcl"))
}

/// Explains a lost connection by the size of its request, if a server by default takes no such request.
pub(super) fn explain_size(failure: Failure, operation: &WriteOp) -> Failure {
    let bytes = bytes(operation);
    if failure.is(code::CONNECTION_LOSS) && bytes > FRAME_BYTES { failure.because(&size(bytes)) } else { failure }
}

fn size(bytes: usize) -> String {
    format!(
        "the request had {bytes} bytes; a server closes the connection if its frame_bytes_max or jute.maxbuffer is \
         smaller"
    )
}

impl Multi {
    pub(super) fn is_empty(&self) -> bool {
        self.operations.is_empty()
    }

    /// Returns the number of operations.
    pub(super) fn count(&self) -> usize {
        self.operations.len()
    }

    /// Returns whether an operation still fits, for a command that sends several multis.
    ///
    /// The first one always does: a large znode is sent alone.
    pub(super) fn has_room(&self, operation: &WriteOp, count_max: usize) -> bool {
        let fits = self.bytes + bytes(operation) + OWN_ENTRY_BYTES <= BYTES_MAX;
        self.is_empty() || fits && self.count() < count_max
    }

    /// Returns an upper bound of the bytes of the request.
    pub(super) fn bytes(&self) -> usize {
        self.bytes
    }

    pub(super) fn add(&mut self, operation: WriteOp) {
        self.bytes += bytes(&operation);
        self.operations.push(operation);
    }

    /// Adds a creation; `has_children` if creations of its children follow, in this multi or later.
    pub(super) fn add_creation(&mut self, creation: WriteOp, has_children: bool) {
        if has_children && matches!(&creation, WriteOp::Create(create) if !is_open_to_children(create)) {
            self.narrow.push(self.operations.len());
            self.bytes += OWN_ENTRY_BYTES;
        }
        self.add(creation);
    }

    /// Refuses to send the operations if a znode by then is another one, or has another ACL.
    pub(super) fn expect(&mut self, path: &str, czxid: i64, acl_version: i32) {
        self.known.push(Known { path: path.to_owned(), czxid, acl_version });
    }

    /// Sends the operations; once more, as [`Multi::run_wide`] does, if an ACL of its own refuses one.
    ///
    /// # Errors
    /// As [`Multi::run_wide`].
    pub(super) fn run(self, session: &Session, wide: &mut Vec<LastAcl>) -> Result<(), Failure> {
        if self.narrow.is_empty() {
            return self.send(session);
        }
        match self.clone().send(session) {
            Err(failure) if failure.is(code::NO_AUTH) => self.run_wide(session, wide),
            outcome => outcome,
        }
    }

    /// Sends the operations with an entry for this session in each ACL that may hinder later ones.
    ///
    /// Adds the ACLs without that entry to `wide`, parents before children, also if the operations
    /// may have been carried out.
    ///
    /// # Errors
    /// An operation is refused, with its path: nothing was changed. Or the connection is lost.
    pub(super) fn run_wide(mut self, session: &Session, wide: &mut Vec<LastAcl>) -> Result<(), Failure> {
        let before = wide.len();
        if !self.narrow.is_empty() {
            let own = acl::own_entry(session)?;
            for at in std::mem::take(&mut self.narrow) {
                let WriteOp::Create(Create { path, acl: Some(acl), .. }) = &mut self.operations[at] else { continue };
                wide.push(LastAcl { path: path.to_string(), acl: acl.clone(), version: 0 });
                acl.to_mut().push(own.clone());
            }
        }
        let outcome = self.send(session);
        if outcome.as_ref().is_err_and(|failure| !failure.may_have_changed()) {
            wide.truncate(before);
        }
        outcome
    }

    fn send(self, session: &Session) -> Result<(), Failure> {
        if self.operations.is_empty() {
            return Ok(());
        }
        self.check_known(session)?;
        self.outcome(session.ask(self.request()))
    }

    /// Returns the request, for a caller that sends several at once.
    pub(super) fn request(&self) -> Request {
        Request::Multi(self.operations.clone())
    }

    /// Returns the outcome that the answer to [`Multi::request`] tells.
    ///
    /// # Errors
    /// As [`Multi::run_wide`].
    pub(super) fn outcome(&self, answer: Result<Reply, Failure>) -> Result<(), Failure> {
        match answer {
            Ok(Reply::Multi(results)) => match first_failure(&results) {
                None => Ok(()),
                Some((at, code)) => {
                    let path = self.paths().nth(at).map(str::to_owned);
                    Err(Failure::Refused { code: code.code(), path, why: String::new() })
                }
            },
            Ok(_) => Err(unexpected()),
            Err(failure) if failure.is(code::CONNECTION_LOSS) => Err(failure.because(&size(self.bytes))),
            Err(failure) => Err(failure),
        }
    }

    /// Returns the path of each operation.
    pub(super) fn paths(&self) -> impl Iterator<Item = &str> {
        self.operations.iter().map(path)
    }

    /// Fails as a check of the version does if a known znode has changed.
    fn check_known(&self, session: &Session) -> Result<(), Failure> {
        for known in self.known.chunks(WINDOW) {
            let request = |known: &Known| Request::Exists { path: known.path.as_str().into(), watch: false };
            for (known, answer) in known.iter().zip(session.ask_all(known.iter().map(request).collect())) {
                let Reply::Stat(stat) = answer? else { return Err(unexpected()) };
                if (stat.czxid, stat.aversion) != (known.czxid, known.acl_version) {
                    let path = Some(known.path.clone());
                    return Err(Failure::Refused { code: code::BAD_VERSION, path, why: String::new() });
                }
            }
        }
        Ok(())
    }
}

/// Returns an operation that creates a znode.
pub(super) fn creation(path: &str, data: Option<Bytes>, acl: &[AclEntry], kind: CreateKind) -> WriteOp {
    let mode = CreateMode::Valid { kind, sequential: false };
    WriteOp::Create(Create { path: path.into(), data, acl: Some(requested(acl)), mode, with_stat: false })
}

/// Returns an ACL as a client requests it.
pub(super) fn requested(acl: &[AclEntry]) -> AskedAcl {
    let entry = |entry: &AclEntry| RequestedAcl {
        perms: entry.perms,
        scheme: Some(entry.scheme.clone()),
        id: Some(entry.id.clone()),
    };
    acl.iter().map(entry).collect::<Vec<_>>().into()
}

/// Returns whether every client may create children of a new znode.
fn is_open_to_children(create: &Create) -> bool {
    let is_open = |entry: &RequestedAcl| {
        let is_any = entry.scheme.as_deref() == Some("world") && entry.id.as_deref() == Some("anyone");
        is_any && entry.perms.intersects(Perms::CREATE)
    };
    create.acl.as_deref().unwrap_or_default().iter().any(is_open)
}

fn path(operation: &WriteOp) -> &str {
    match operation {
        WriteOp::Create(Create { path, .. })
        | WriteOp::Delete { path, .. }
        | WriteOp::SetData { path, .. }
        | WriteOp::SetAcl { path, .. }
        | WriteOp::Check { path, .. } => path,
    }
}

fn bytes(operation: &WriteOp) -> usize {
    let acl_bytes = |acl: &Option<AskedAcl>| -> usize {
        let text = |text: &Option<zoolet_model::Text>| text.as_ref().map_or(0, |text| text.len());
        let entries = acl.as_deref().unwrap_or_default();
        entries.iter().map(|entry| 12 + text(&entry.scheme) + text(&entry.id)).sum()
    };
    let data_bytes = |data: &Option<Bytes>| data.as_ref().map_or(0, Bytes::len);
    let more = match operation {
        WriteOp::Create(create) => data_bytes(&create.data) + acl_bytes(&create.acl),
        WriteOp::SetData { data, .. } => data_bytes(data),
        WriteOp::SetAcl { acl, .. } => acl_bytes(acl),
        WriteOp::Delete { .. } | WriteOp::Check { .. } => 0,
    };
    OVERHEAD + path(operation).len() + more
}

#[cfg(test)]
mod tests {
    use super::*;
    use bytes::BytesMut;
    use zoolet_model::open_acl;
    use zoolet_transport::wire::client_side::encode_request;

    #[test]
    fn bytes_of_a_multi_are_at_least_those_of_its_frame() {
        let mut multi = Multi::default();
        for number in 0..50 {
            let path = format!("/some/path/{number}");
            multi.add(creation(
                &path,
                Some(Bytes::from(vec![7; number * 10])),
                &open_acl(),
                CreateKind::Ttl { ttl_ms: 5 },
            ));
            multi.add(creation(&path, None, &open_acl(), CreateKind::Persistent));
            multi.add(WriteOp::SetData {
                path: path.as_str().into(),
                data: Some(Bytes::from(vec![7; number])),
                version: 1,
            });
            multi.add(WriteOp::Check { path: path.as_str().into(), version: 1 });
            multi.add(WriteOp::Delete { path: path.as_str().into(), version: 1 });
        }
        let mut frame = BytesMut::new();
        encode_request(1, &Request::Multi(multi.operations.clone()), &mut frame);
        assert!(multi.bytes() >= frame.len() && multi.bytes() < frame.len() * 2, "{} {}", multi.bytes(), frame.len());
    }
}
