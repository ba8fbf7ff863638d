//! Walks a subtree depth first, in the order of its paths, without holding all of it.

use super::client::{Session, unexpected};
use super::failure::{Failure, code};
use super::znode_path::child;
use bytes::Bytes;
use std::cmp::Ordering;
use std::collections::VecDeque;
use zoolet_model::{AclEntry, Reply, Request, Stat};

/// Znodes of one level that are fetched at once; few at first, so that a short answer comes soon.
const WINDOW_FIRST: usize = 16;
const WINDOW_MAX: usize = 128;
/// Bytes of data of one level that are fetched at once, unless one znode has more.
const DATA_AHEAD: u64 = 1 << 20;
/// Names of children fetched ahead at most, unless one znode has more.
const NAMES_AHEAD: u64 = 20_000;

/// The facts that a walk fetches beside the stat.
#[derive(Clone, Copy, Default, Debug)]
pub(super) struct Wants {
    pub(super) data: bool,
    pub(super) acl: bool,
    /// Levels below the top; `None` for all.
    pub(super) depth: Option<usize>,
}

/// One znode of a walk.
#[derive(Clone, Debug)]
pub(super) struct Found {
    pub(super) path: String,
    /// Levels below the top of the walk.
    pub(super) depth: usize,
    /// Whether no sibling follows.
    pub(super) is_last: bool,
    /// Zero if the session may read nothing of the znode.
    pub(super) stat: Stat,
    /// `None` for null data, and for data that the walk does not fetch.
    pub(super) data: Option<Bytes>,
    pub(super) acl: Vec<AclEntry>,
    /// Why a part of the znode, or the list of its children, is missing.
    pub(super) refusal: Option<Failure>,
}

/// A fetched znode; its data, ACL and children follow.
struct Fetched {
    found: Found,
    /// Whether data and ACL are fetched, as far as they are wanted.
    has_content: bool,
    names: Option<Vec<String>>,
}

impl Fetched {
    fn new(path: String, depth: usize, stat: Stat) -> Self {
        let found = Found { path, depth, is_last: false, stat, data: None, acl: Vec::new(), refusal: None };
        Self { found, has_content: false, names: None }
    }

    /// Adds the answers of getData and getAcl.
    fn add(&mut self, answers: [Option<Result<Reply, Failure>>; 2]) -> Result<(), Failure> {
        self.has_content = true;
        for answer in answers.into_iter().flatten() {
            match answer {
                Ok(Reply::Data(data, stat)) => (self.found.data, self.found.stat) = (data, stat),
                Ok(Reply::Acl(acl, _)) => self.found.acl = acl,
                Ok(_) => return Err(unexpected()),
                Err(failure) if failure.is(code::NO_AUTH) => self.found.refusal = Some(failure),
                Err(failure) => return Err(failure),
            }
        }
        Ok(())
    }

    fn needs_names(&self, wants: Wants) -> bool {
        let is_open = wants.depth.is_none_or(|depth| self.found.depth < depth);
        is_open && self.names.is_none() && self.found.stat.num_children > 0 && self.found.refusal.is_none()
    }
}

/// The children of one znode.
struct Level {
    /// The path of that znode; `None` above the top.
    parent: Option<String>,
    /// Children that are not fetched yet; above the top, the path of the top.
    names: std::vec::IntoIter<String>,
    ahead: VecDeque<Fetched>,
}

impl Level {
    /// Returns the next paths to fetch.
    fn paths(&mut self, count: usize) -> Vec<String> {
        let path = |name: String| match &self.parent {
            None => name,
            Some(parent) => child(parent, &name),
        };
        self.names.by_ref().take(count).map(path).collect()
    }
}

/// A walk over a subtree: each znode before its children, siblings sorted by name.
///
/// Znodes that vanish meanwhile are skipped.
pub(super) struct DepthFirst<'a> {
    session: &'a Session,
    wants: Wants,
    levels: Vec<Level>,
    window: usize,
    /// Whether the top was found.
    has_begun: bool,
}

impl<'a> DepthFirst<'a> {
    pub(super) fn new(session: &'a Session, top: &str, wants: Wants) -> Self {
        let level = Level { parent: None, names: vec![top.to_owned()].into_iter(), ahead: VecDeque::new() };
        Self { session, wants, levels: vec![level], window: WINDOW_FIRST, has_begun: false }
    }

    /// Returns a walk over znodes that [`DepthFirst::add`] names, without their children.
    pub(super) fn listed(session: &'a Session, wants: Wants) -> Self {
        let wants = Wants { depth: Some(0), ..wants };
        Self { session, wants, levels: Vec::new(), window: WINDOW_FIRST, has_begun: true }
    }

    /// Adds paths to a [`listed`](Self::listed) walk that has ended. A missing znode is skipped.
    pub(super) fn add(&mut self, paths: Vec<String>) {
        self.levels.push(Level { parent: None, names: paths.into_iter(), ahead: VecDeque::new() });
    }

    /// Returns the next znode; `None` after the last one.
    ///
    /// # Errors
    /// The top does not exist, or a request fails otherwise than for missing permissions.
    pub(super) fn next(&mut self) -> Result<Option<Found>, Failure> {
        while let Some(at) = self.levels.len().checked_sub(1) {
            if self.levels[at].ahead.is_empty() {
                let paths = self.levels[at].paths(self.window);
                if paths.is_empty() {
                    self.levels.pop();
                } else {
                    self.levels[at].ahead = self.fetch(paths, at)?;
                }
                continue;
            }
            let wants_content = self.wants.data || self.wants.acl;
            if wants_content && self.levels[at].ahead.front().is_some_and(|first| !first.has_content) {
                // Znodes may have vanished, so look again.
                self.fetch_content(at)?;
                continue;
            }
            self.fetch_names(at)?;
            let level = &mut self.levels[at];
            let Some(Fetched { mut found, names, .. }) = level.ahead.pop_front() else { continue };
            found.is_last = level.ahead.is_empty() && level.names.len() == 0;
            let (parent, names) = (Some(found.path.clone()), names.unwrap_or_default().into_iter());
            self.levels.push(Level { parent, names, ahead: VecDeque::new() });
            self.has_begun = true;
            return Ok(Some(found));
        }
        Ok(None)
    }

    /// Leaves out the children of the znode that [`DepthFirst::next`] returned last.
    pub(super) fn skip_children(&mut self) {
        self.levels.pop();
    }

    fn fetch(&mut self, paths: Vec<String>, depth: usize) -> Result<VecDeque<Fetched>, Failure> {
        let request = |path: &String| Request::Exists { path: path.as_str().into(), watch: false };
        let answers = self.session.ask_all(paths.iter().map(request).collect());
        let mut ahead = VecDeque::with_capacity(paths.len());
        for (path, answer) in paths.into_iter().zip(answers) {
            match answer {
                Ok(Reply::Stat(stat)) => ahead.push_back(Fetched::new(path, depth, stat)),
                Ok(_) => return Err(unexpected()),
                Err(failure) if failure.is(code::NO_AUTH) => {
                    let mut fetched = Fetched::new(path, depth, Stat::default());
                    (fetched.found.refusal, fetched.has_content) = (Some(failure), true);
                    ahead.push_back(fetched);
                }
                Err(failure) if failure.is(code::NO_NODE) && self.has_begun => {}
                Err(failure) => return Err(failure),
            }
        }
        self.window = (self.window * 2).min(WINDOW_MAX);
        Ok(ahead)
    }

    /// Fetches data and ACL of the first znode of a level, and of those behind it.
    ///
    /// Their stats tell how many fit: a hundred znodes may have a megabyte each.
    fn fetch_content(&mut self, at: usize) -> Result<(), Failure> {
        let (wants, has_begun) = (self.wants, self.has_begun);
        let ahead = &mut self.levels[at].ahead;
        let lengths = ahead.iter().map(|fetched| u64::try_from(fetched.found.stat.data_length).unwrap_or(0));
        let count = if wants.data { fitting(lengths, DATA_AHEAD) } else { ahead.len() };
        let mut requests = Vec::with_capacity(count * 2);
        for fetched in ahead.iter().take(count) {
            let path = fetched.found.path.as_str();
            if wants.data {
                requests.push(Request::GetData { path: path.into(), watch: false });
            }
            // Behind the stat, so that the version of the stat is never newer than the ACL.
            if wants.acl {
                requests.push(Request::GetAcl { path: path.into() });
            }
        }
        let mut answers = self.session.ask_all(requests).into_iter();
        let mut rest = ahead.split_off(count);
        for mut fetched in std::mem::take(ahead) {
            let data = if wants.data { answers.next() } else { None };
            let acl = if wants.acl { answers.next() } else { None };
            match fetched.add([data, acl]) {
                Ok(()) => ahead.push_back(fetched),
                Err(failure) if failure.is(code::NO_NODE) && has_begun => {}
                Err(failure) => return Err(failure),
            }
        }
        ahead.append(&mut rest);
        Ok(())
    }

    /// Fetches the names below the first znode of a level, and below those behind it.
    fn fetch_names(&mut self, at: usize) -> Result<(), Failure> {
        let wants = self.wants;
        let ahead = &mut self.levels[at].ahead;
        if !ahead.front().is_some_and(|first| first.needs_names(wants)) {
            return Ok(());
        }
        let mut names = 0;
        let wanting: Vec<&mut Fetched> = ahead
            .iter_mut()
            .filter(|fetched| fetched.needs_names(wants))
            .take_while(|fetched| {
                let is_first = names == 0;
                names += u64::try_from(fetched.found.stat.num_children).unwrap_or(0);
                is_first || names <= NAMES_AHEAD
            })
            .collect();
        let request = |fetched: &&mut Fetched| {
            let path = fetched.found.path.as_str().into();
            Request::GetChildren { path, watch: false, with_stat: false }
        };
        let answers = self.session.ask_all(wanting.iter().map(request).collect());
        for (fetched, answer) in wanting.into_iter().zip(answers) {
            match answer {
                Ok(Reply::Names(names)) => {
                    let mut names: Vec<String> = names.iter().map(str::to_owned).collect();
                    names.sort_unstable();
                    fetched.names = Some(names);
                }
                Ok(_) => return Err(unexpected()),
                // It was there when its stat was read; its children are gone with it.
                Err(failure) if failure.is(code::NO_NODE) => fetched.names = Some(Vec::new()),
                Err(failure) if failure.is(code::NO_AUTH) => fetched.found.refusal = Some(failure),
                Err(failure) => return Err(failure),
            }
        }
        Ok(())
    }
}

/// Returns how many of the first lengths fit into `bytes`, at least one.
fn fitting(lengths: impl Iterator<Item = u64>, bytes: u64) -> usize {
    let sums = lengths.scan(0, |sum: &mut u64, length| {
        *sum = sum.saturating_add(length);
        Some(*sum)
    });
    sums.take_while(|sum| *sum <= bytes).count().max(1)
}

/// Returns a path below `top` as seen from there; `/` is the top itself.
pub(super) fn below<'a>(top: &str, path: &'a str) -> &'a str {
    if top == "/" {
        return path;
    }
    match path.strip_prefix(top) {
        Some("") | None => "/",
        Some(rest) => rest,
    }
}

/// Returns the path that is `below` the top `top`.
pub(super) fn under(top: &str, below: &str) -> String {
    match (top, below) {
        (_, "/") => top.to_owned(),
        ("/", _) => below.to_owned(),
        _ => format!("{top}{below}"),
    }
}

/// Compares paths in the order of the walk.
pub(super) fn order(one: &str, other: &str) -> Ordering {
    // The root has an empty name, which is before all others.
    one.split('/').cmp(other.split('/'))
}

/// Returns whether `path` is `top`, or below it.
pub(super) fn is_within(path: &str, top: &str) -> bool {
    top == "/" || path.strip_prefix(top).is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_are_seen_from_the_top_and_back() {
        for (top, path, seen) in [("/", "/", "/"), ("/", "/a", "/a"), ("/a", "/a", "/"), ("/a", "/a/b/c", "/b/c")] {
            assert_eq!(below(top, path), seen);
            assert_eq!(under(top, seen), path);
        }
        assert!(is_within("/a/b", "/a") && is_within("/a", "/a") && is_within("/a", "/"));
        assert!(!is_within("/ab", "/a") && !is_within("/", "/a"));
    }

    #[test]
    fn large_data_is_fetched_ahead_for_few_znodes() {
        let fitting = |lengths: &[u64]| super::fitting(lengths.iter().copied(), DATA_AHEAD);
        assert_eq!(fitting(&[0; 128]), 128);
        assert_eq!(fitting(&[10, 10, DATA_AHEAD, 10]), 2);
        assert_eq!(fitting(&[DATA_AHEAD + 1, 10]), 1);
        assert_eq!((fitting(&[DATA_AHEAD, 0, 1]), fitting(&[])), (2, 1));
    }

    #[test]
    fn order_has_each_znode_before_its_children_and_these_before_its_next_sibling() {
        let walk = ["/", "/a", "/a/b", "/a/c", "/a/c/d", "/a!", "/b"];
        assert!(walk.is_sorted_by(|one, other| order(one, other) == Ordering::Less));
    }
}
