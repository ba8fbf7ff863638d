//! Two subtrees side by side: of the server, or of a file.

use super::client::{Interrupts, Session};
use super::depth_first::{DepthFirst, Found, Wants, below, is_within, order, under};
use super::exported::{Entry, Reader};
use super::failure::Failure;
use super::files;
use super::input::Input;
use std::cmp::Ordering;
use std::collections::BTreeSet;
use std::io::BufReader;
use std::sync::Arc;
use zoolet_model::{AclEntry, CreateKind};

/// A znode of a source.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Item {
    pub(super) entry: Entry,
    /// The version and that of the ACL; -1 in a file.
    pub(super) version: i32,
    pub(super) acl_version: i32,
    /// The zxid of the creation; -1 in a file.
    pub(super) czxid: i64,
}

/// A subtree, read in the order of a walk.
pub(super) enum Source<'a> {
    Nothing,
    Server(Box<Subtree<'a>>),
    File(Box<FileReader>),
}

type FileReader = Reader<BufReader<Input>>;

/// Znodes of a file that are looked up at once.
const LISTED: usize = 128;

/// A subtree of the server, or its znodes that a file lists. Ephemerals are skipped.
pub(super) struct Subtree<'a> {
    walk: DepthFirst<'a>,
    /// The rest of the file that lists the znodes; `None` for all of the subtree.
    list: Option<Box<FileReader>>,
    top: String,
    /// Whether the top is the server's root, not that of a session with a root of its own.
    is_whole_tree: bool,
    reads_acls: bool,
    /// Number of ephemerals that were left out.
    pub(super) ephemerals: u64,
    /// Paths that have ephemerals below them.
    pub(super) occupied: BTreeSet<String>,
}

impl<'a> Source<'a> {
    pub(super) fn server(session: &'a Session, top: &str, reads_acls: bool) -> Self {
        Self::Server(Box::new(Subtree::new(session, top, reads_acls)))
    }

    /// Looks up the znodes that an exported file lists.
    ///
    /// # Errors
    /// As [`Source::file`].
    pub(super) fn listed(
        session: &'a Session,
        top: &str,
        reads_acls: bool,
        file: &str,
        interrupts: &Arc<Interrupts>,
    ) -> Result<Self, Failure> {
        Ok(Self::Server(Box::new(Subtree::listed(session, top, wants(reads_acls), open(file, interrupts)?))))
    }

    /// Opens an exported file.
    ///
    /// # Errors
    /// The file cannot be read, or is no export.
    pub(super) fn file(name: &str, interrupts: &Arc<Interrupts>) -> Result<Self, Failure> {
        Ok(Self::File(Box::new(open(name, interrupts)?)))
    }

    fn next(&mut self) -> Result<Option<Item>, Failure> {
        match self {
            Self::Nothing => Ok(None),
            Self::Server(subtree) => subtree.next(),
            Self::File(reader) => {
                let entry = reader.next()?;
                Ok(entry.map(|entry| Item { entry, version: -1, acl_version: -1, czxid: -1 }))
            }
        }
    }

    /// Returns the number of ephemerals that were left out.
    pub(super) fn ephemerals(&self) -> u64 {
        if let Self::Server(subtree) = self { subtree.ephemerals } else { 0 }
    }

    /// Returns whether a znode has ephemerals below it.
    pub(super) fn is_occupied(&self, path: &str) -> bool {
        matches!(self, Self::Server(subtree) if subtree.occupied.contains(path))
    }
}

fn wants(reads_acls: bool) -> Wants {
    Wants { data: true, acl: reads_acls, depth: None }
}

/// Opens an exported file.
fn open(file: &str, interrupts: &Arc<Interrupts>) -> Result<FileReader, Failure> {
    Reader::new(file, BufReader::new(files::open(file, interrupts)?))
}

/// Returns the first ephemeral of the server among the znodes that an exported file lists. Reads the
/// whole file, so one with a mistake is an error.
///
/// # Errors
/// The file cannot be read, is no export or has a mistake; or a request fails.
pub(super) fn listed_ephemeral(
    session: &Session,
    top: &str,
    file: &str,
    interrupts: &Arc<Interrupts>,
) -> Result<Option<String>, Failure> {
    let mut subtree = Subtree::listed(session, top, Wants::default(), open(file, interrupts)?);
    let mut first = None;
    while let Some(found) = subtree.found()? {
        if found.stat.ephemeral_owner != 0 {
            first.get_or_insert(found.path);
        }
    }
    Ok(first)
}

impl<'a> Subtree<'a> {
    pub(super) fn new(session: &'a Session, top: &str, reads_acls: bool) -> Self {
        Self::of(DepthFirst::new(session, top, wants(reads_acls)), None, session, top, reads_acls)
    }

    fn listed(session: &'a Session, top: &str, wants: Wants, list: FileReader) -> Self {
        Self::of(DepthFirst::listed(session, wants), Some(list), session, top, wants.acl)
    }

    fn of(walk: DepthFirst<'a>, list: Option<FileReader>, session: &Session, top: &str, reads_acls: bool) -> Self {
        let (is_whole_tree, list) = (session.outer(top) == "/", list.map(Box::new));
        Self { walk, list, top: top.to_owned(), is_whole_tree, reads_acls, ephemerals: 0, occupied: BTreeSet::new() }
    }

    /// Returns the next znode, ephemerals included. Below the server's root it skips `/zookeeper`.
    fn found(&mut self) -> Result<Option<Found>, Failure> {
        loop {
            match self.walk.next()? {
                Some(found) if self.is_whole_tree && is_within(&found.path, "/zookeeper") => self.walk.skip_children(),
                Some(found) => return Ok(Some(found)),
                None => match self.next_listed()? {
                    paths if paths.is_empty() => return Ok(None),
                    paths => self.walk.add(paths),
                },
            }
        }
    }

    /// Returns the next paths of the file; empty at its end.
    fn next_listed(&mut self) -> Result<Vec<String>, Failure> {
        let mut paths = Vec::new();
        while let Some(list) = &mut self.list
            && paths.len() < LISTED
            && let Some(entry) = list.next()?
        {
            paths.push(under(&self.top, &entry.path));
        }
        Ok(paths)
    }

    /// Returns the next znode.
    ///
    /// # Errors
    /// The session may not read a znode, or a request fails.
    pub(super) fn next(&mut self) -> Result<Option<Item>, Failure> {
        while let Some(found) = self.found()? {
            if let Some(refusal) = found.refusal {
                return Err(refusal);
            }
            if found.stat.ephemeral_owner != 0 {
                self.note_ephemeral(&found.path);
                continue;
            }
            if self.reads_acls {
                check_acl(&found)?;
            }
            let Found { path, data, acl, stat, .. } = found;
            let path = below(&self.top, &path).to_owned();
            let entry = Entry { path, data, acl, kind: CreateKind::Persistent };
            let (version, acl_version, czxid) = (stat.version, stat.aversion, stat.czxid);
            return Ok(Some(Item { entry, version, acl_version, czxid }));
        }
        Ok(None)
    }

    fn note_ephemeral(&mut self, path: &str) {
        self.ephemerals += 1;
        let mut path = below(&self.top, path);
        while let Some((parent, _)) = path.rsplit_once('/')
            && path != "/"
        {
            path = if parent.is_empty() { "/" } else { parent };
            if !self.occupied.insert(path.to_owned()) {
                return;
            }
        }
    }
}

/// Refuses an ACL of which the server has hidden a part.
///
/// ZooKeeper replaces the hash of a digest by `x` for a session that may not change the ACL. Such an
/// entry admits no client.
///
/// # Errors
/// A part is hidden.
pub(super) fn check_acl(found: &Found) -> Result<(), Failure> {
    let is_hidden = |entry: &AclEntry| entry.scheme == "digest" && entry.id.ends_with(":x");
    if found.acl.iter().any(is_hidden) {
        return Err(Failure::Text(format!(
            "the server hides the hashes in the ACL of {} from this session; addauth with an identity that may change \
             the ACL",
            found.path
        )));
    }
    Ok(())
}

/// A path that one or both sources have.
pub(super) enum Pair {
    Left(Item),
    Right(Item),
    Both(Item, Item),
}

/// Two sources, path by path.
pub(super) struct Pairs<'a> {
    pub(super) left: Source<'a>,
    pub(super) right: Source<'a>,
    ahead: Option<(Option<Item>, Option<Item>)>,
}

impl<'a> Pairs<'a> {
    pub(super) fn new(left: Source<'a>, right: Source<'a>) -> Self {
        Self { left, right, ahead: None }
    }

    /// Returns whether the right source has children of the path that [`Pairs::next`] returned last.
    pub(super) fn right_has_children(&self, path: &str) -> bool {
        let Some((_, Some(ahead))) = &self.ahead else { return false };
        is_within(&ahead.entry.path, path)
    }

    /// Returns the next path with its znodes; `None` after the last one.
    ///
    /// # Errors
    /// A source fails.
    pub(super) fn next(&mut self) -> Result<Option<Pair>, Failure> {
        let (left, right) = match self.ahead.take() {
            Some(ahead) => ahead,
            None => (self.left.next()?, self.right.next()?),
        };
        let (pair, ahead) = match (left, right) {
            (None, None) => return Ok(None),
            (Some(left), None) => (Pair::Left(left), (self.left.next()?, None)),
            (None, Some(right)) => (Pair::Right(right), (None, self.right.next()?)),
            (Some(left), Some(right)) => match order(&left.entry.path, &right.entry.path) {
                Ordering::Less => (Pair::Left(left), (self.left.next()?, Some(right))),
                Ordering::Greater => (Pair::Right(right), (Some(left), self.right.next()?)),
                Ordering::Equal => (Pair::Both(left, right), (self.left.next()?, self.right.next()?)),
            },
        };
        self.ahead = Some(ahead);
        Ok(Some(pair))
    }
}

/// Refuses a subtree that is part of another.
///
/// # Errors
/// `inner` is `outer`, or below it.
pub(super) fn refuse_inside(outer: &str, inner: &str) -> Result<(), Failure> {
    if is_within(inner, outer) {
        return Err(Failure::Text(format!("{inner} is in the subtree of {outer}; name another place")));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use zoolet_model::{Perms, Stat};

    #[test]
    fn hidden_hash_of_an_acl_is_refused() {
        let found = |id: &str| Found {
            path: "/a".to_owned(),
            depth: 0,
            is_last: true,
            stat: Stat::default(),
            data: None,
            acl: vec![AclEntry { perms: Perms::ALL, scheme: "digest".into(), id: id.into() }],
            refusal: None,
        };
        assert!(check_acl(&found("name:1GAqWzb8sqVx0AQdmpGqEG7zCIQ=")).is_ok());
        assert!(check_acl(&found("name:x")).unwrap_err().message().starts_with("the server hides the hashes"));
        assert!(refuse_inside("/a", "/a/b").is_err() && refuse_inside("/a", "/b").is_ok());
    }
}
