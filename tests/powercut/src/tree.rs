//! The oracle: a writer's part of the tree after each of its writes.

use crate::random::Random;
use bytes::Bytes;
use std::collections::BTreeMap;
use zoolet_model::{ErrorCode, Stat};

/// Data that identifies the write that made it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Value {
    /// The writer, and the number of this value among its values.
    pub tag: u64,
    /// Length.
    pub bytes: u32,
}

impl Value {
    /// Returns the data: a readable name if it fits, then pseudo-random bytes.
    pub fn expand(self) -> Bytes {
        let mut bytes = vec![0; self.bytes as usize];
        Random::new(self.tag).fill(&mut bytes);
        let name = format!("value {:#x} of {} bytes ", self.tag, self.bytes);
        if let Some(readable) = bytes.get_mut(..name.len()) {
            readable.copy_from_slice(name.as_bytes());
        }
        bytes.into()
    }
}

/// Order of a change, as far as the client knows it.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Stamp {
    /// At this zxid, which the reply named.
    At(i64),
    /// By this write of the round, which has no reply.
    By(usize),
}

/// One znode.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Znode {
    /// Its data.
    pub value: Value,
    /// Number of sets.
    pub version: i32,
    /// Number of children ever created.
    pub creates: i32,
    /// Number of children.
    pub children: i32,
    /// The session that owns it, or 0.
    pub owner: i64,
    /// Its creation.
    pub created: Stamp,
    /// Its last set.
    pub modified: Stamp,
    /// The last creation or deletion of a child.
    pub child_changed: Stamp,
}

/// One operation on one znode.
#[derive(Clone, PartialEq, Eq, Debug)]
#[allow(missing_docs, reason = "the names are the operations'")]
pub enum Step {
    Create { path: String, value: Value, ephemeral: bool, sequential: bool },
    Set { path: String, value: Value, version: i32 },
    Delete { path: String, version: i32 },
    Check { path: String, version: i32 },
}

/// One request.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Write {
    /// A single write.
    One(Step),
    /// A multi.
    All(Vec<Step>),
    /// Closes the session.
    Close,
}

/// Result of a step.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum StepResult {
    /// The created path.
    Path(String),
    /// The new version; `None` for a znode that several writers set.
    Version(Option<i32>),
    /// No value.
    Nothing,
}

/// The expected answer: the result of each step, or the failing step and its error.
pub type Outcome = Result<Vec<StepResult>, (usize, ErrorCode)>;

/// One writer's sets of a znode that all writers set.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Share {
    /// Number of its sets.
    pub sets: i64,
    /// Its last set: value and order.
    pub last: (Value, Stamp),
}

/// Parent of the znodes that all writers set; the harness creates them.
pub const SHARED: &str = "/shared";

/// One writer's subtree, and its share of the znodes below [`SHARED`].
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Tree {
    /// Znodes by path.
    pub znodes: BTreeMap<String, Znode>,
    /// Shares by path.
    pub shares: BTreeMap<String, Share>,
}

/// Reverts a step.
enum Undo {
    Znode(String, Option<Znode>),
    Share(String, Option<Share>),
}

impl Tree {
    /// Carries out a write of `session` in full or not at all.
    pub fn apply(&mut self, write: &Write, session: i64, stamp: Stamp) -> Outcome {
        let steps = match write {
            Write::One(step) => std::slice::from_ref(step),
            Write::All(steps) => steps,
            Write::Close => {
                self.end(session, stamp);
                return Ok(Vec::new());
            }
        };
        let (mut undo, mut results) = (Vec::new(), Vec::new());
        for (place, step) in steps.iter().enumerate() {
            match self.step(step, session, stamp, &mut undo) {
                Ok(gives) => results.push(gives),
                Err(error) => {
                    undo.into_iter().rev().for_each(|undo| self.undo(undo));
                    return Err((place, error));
                }
            }
        }
        Ok(results)
    }

    /// Ends a session and deletes its ephemerals.
    fn end(&mut self, session: i64, stamp: Stamp) {
        let owned: Vec<String> =
            self.znodes.iter().filter(|(_, znode)| znode.owner == session).map(|(path, _)| path.clone()).collect();
        for path in owned {
            self.znodes.remove(&path);
            self.change_parent(&path, -1, stamp, &mut Vec::new());
        }
    }

    fn step(&mut self, step: &Step, session: i64, stamp: Stamp, undo: &mut Vec<Undo>) -> Result<StepResult, ErrorCode> {
        match step {
            Step::Create { path, value, ephemeral, sequential } => {
                let parent = parent(path);
                let creates = match (self.znodes.get(parent), parent) {
                    (Some(znode), _) => znode.creates,
                    (None, "") => 0,
                    (None, _) => return Err(ErrorCode::NoNode),
                };
                let path = if *sequential { format!("{path}{creates:010}") } else { path.clone() };
                if self.znodes.contains_key(&path) {
                    return Err(ErrorCode::NodeExists);
                }
                let znode = Znode {
                    value: *value,
                    version: 0,
                    creates: 0,
                    children: 0,
                    owner: if *ephemeral { session } else { 0 },
                    created: stamp,
                    modified: stamp,
                    child_changed: stamp,
                };
                undo.push(Undo::Znode(path.clone(), self.znodes.insert(path.clone(), znode)));
                self.change_parent(&path, 1, stamp, undo);
                Ok(StepResult::Path(path))
            }
            Step::Set { path, value, .. } if path.starts_with(SHARED) => {
                let before = self.shares.get(path).copied();
                undo.push(Undo::Share(path.clone(), before));
                let sets = before.map_or(0, |share| share.sets) + 1;
                self.shares.insert(path.clone(), Share { sets, last: (*value, stamp) });
                Ok(StepResult::Version(None))
            }
            Step::Set { path, value, version } => {
                let znode = Self::checked(self.znodes.get_mut(path), *version)?;
                undo.push(Undo::Znode(path.clone(), Some(znode.clone())));
                znode.value = *value;
                znode.version += 1;
                znode.modified = stamp;
                Ok(StepResult::Version(Some(znode.version)))
            }
            Step::Delete { path, version } => {
                if Self::checked(self.znodes.get_mut(path), *version)?.children > 0 {
                    return Err(ErrorCode::NotEmpty);
                }
                undo.push(Undo::Znode(path.clone(), self.znodes.remove(path)));
                self.change_parent(path, -1, stamp, undo);
                Ok(StepResult::Nothing)
            }
            Step::Check { path, version } => {
                Self::checked(self.znodes.get_mut(path), *version)?;
                Ok(StepResult::Nothing)
            }
        }
    }

    fn checked(znode: Option<&mut Znode>, version: i32) -> Result<&mut Znode, ErrorCode> {
        let znode = znode.ok_or(ErrorCode::NoNode)?;
        if version == -1 || version == znode.version { Ok(znode) } else { Err(ErrorCode::BadVersion) }
    }

    fn change_parent(&mut self, path: &str, children: i32, stamp: Stamp, undo: &mut Vec<Undo>) {
        if let Some(znode) = self.znodes.get_mut(parent(path)) {
            undo.push(Undo::Znode(parent(path).to_owned(), Some(znode.clone())));
            znode.children += children;
            znode.creates += children.max(0);
            znode.child_changed = stamp;
        }
    }

    fn undo(&mut self, undo: Undo) {
        match undo {
            Undo::Znode(path, Some(znode)) => drop(self.znodes.insert(path, znode)),
            Undo::Znode(path, None) => drop(self.znodes.remove(&path)),
            Undo::Share(path, Some(share)) => drop(self.shares.insert(path, share)),
            Undo::Share(path, None) => drop(self.shares.remove(&path)),
        }
    }
}

impl Znode {
    /// Returns the first difference between this znode and the one found.
    ///
    /// `learned` receives the zxid found for each write that has no reply.
    pub fn difference(&self, data: &[u8], stat: &Stat, learned: &mut dyn FnMut(usize, i64)) -> Option<String> {
        let numbers = [
            ("version", i64::from(self.version), i64::from(stat.version)),
            ("numChildren", i64::from(self.children), i64::from(stat.num_children)),
            ("cversion", i64::from(2 * self.creates - self.children), i64::from(stat.cversion)),
            ("ephemeralOwner", self.owner, stat.ephemeral_owner),
            ("dataLength", i64::from(self.value.bytes), i64::from(stat.data_length)),
        ];
        let wrong = numbers.into_iter().find(|(_, expected, found)| expected != found);
        if let Some((name, expected, found)) = wrong {
            return Some(format!("{name} is {found} and must be {expected}"));
        }
        let stamps = [
            ("czxid", self.created, stat.czxid),
            ("mzxid", self.modified, stat.mzxid),
            ("pzxid", self.child_changed, stat.pzxid),
        ];
        for (name, stamp, found) in stamps {
            match stamp {
                Stamp::At(zxid) if zxid != found => return Some(format!("{name} is {found:#x} and must be {zxid:#x}")),
                Stamp::At(_) => {}
                Stamp::By(write) => learned(write, found),
            }
        }
        let expected = self.value.expand();
        (expected != data).then(|| {
            let at = expected.iter().zip(data).position(|(a, b)| a != b).unwrap_or(0);
            format!("its data differ from {:?} from byte {at} on", self.value)
        })
    }

    /// Replaces each write that has no reply by its zxid.
    pub fn resolve_zxids(&mut self, zxid_of: impl Fn(usize) -> i64) {
        for stamp in [&mut self.created, &mut self.modified, &mut self.child_changed] {
            if let Stamp::By(write) = *stamp {
                *stamp = Stamp::At(zxid_of(write));
            }
        }
    }
}

/// Returns the path of the parent; `""` for a child of the root.
pub fn parent(path: &str) -> &str {
    path.rsplit_once('/').map_or("", |(parent, _)| parent)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn create(path: &str) -> Step {
        Step::Create { path: path.into(), value: Value { tag: 1, bytes: 3 }, ephemeral: false, sequential: false }
    }

    #[test]
    fn failed_multi_changes_no_znode() {
        let mut tree = Tree::default();
        tree.apply(&Write::One(create("/w")), 7, Stamp::At(1)).unwrap();
        let before = tree.clone();
        let shared = Step::Set { path: "/shared/s0".into(), value: Value { tag: 2, bytes: 3 }, version: -1 };
        let steps = vec![create("/w/a"), create("/w/a/b"), shared, Step::Delete { path: "/w/a".into(), version: -1 }];
        assert_eq!(tree.apply(&Write::All(steps), 7, Stamp::At(2)), Err((3, ErrorCode::NotEmpty)));
        assert_eq!(tree, before);
    }

    #[test]
    fn a_sequential_name_counts_every_child_ever_created() {
        let mut tree = Tree::default();
        tree.apply(&Write::One(create("/w")), 7, Stamp::At(1)).unwrap();
        tree.apply(&Write::One(create("/w/a")), 7, Stamp::At(2)).unwrap();
        tree.apply(&Write::One(Step::Delete { path: "/w/a".into(), version: 0 }), 7, Stamp::At(3)).unwrap();
        let step =
            Step::Create { path: "/w/q".into(), value: Value { tag: 1, bytes: 0 }, ephemeral: true, sequential: true };
        let results = tree.apply(&Write::One(step), 7, Stamp::At(4)).unwrap();
        assert_eq!(results, [StepResult::Path("/w/q0000000001".into())]);
        assert_eq!((tree.znodes["/w"].creates, tree.znodes["/w"].children), (2, 1));
        tree.apply(&Write::Close, 7, Stamp::At(5)).unwrap();
        assert_eq!(tree.znodes["/w"].children, 0);
    }
}
