//! The tree as a map from path to znode, and the effects of each write (surface 2.2, 2.3, 4, 7).

use super::acl::Ids;
use super::quota::Quotas;
use std::collections::BTreeMap;
use std::ops::Bound;
use std::sync::Arc;
use zoolet_model::{
    AclEntry, Create, CreateKind, CreateMode, ErrorCode, EventKind, Perms, SessionId, Stat, WriteOp, open_acl,
};

/// The kind of a znode, as far as the rules differ.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum RefKind {
    /// It stays until deleted.
    Persistent,
    /// It is deleted at the end of this session.
    Ephemeral(i64),
    /// It is deleted after its last child.
    Container,
    /// It is deleted once it has had no children and no new data for this time.
    Ttl(RefTtl),
}

/// A time to live, and the entry from which it counts.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct RefTtl {
    /// The time to live, in milliseconds.
    pub ttl_ms: u64,
    /// Ensemble time of the entry.
    pub since_ms: u64,
    /// Zxid of the entry.
    pub since_zxid: i64,
}

/// One znode.
#[derive(Clone, PartialEq, Eq, Debug)]
#[allow(missing_docs, reason = "the names are those of surface 4")]
pub struct RefZnode {
    pub data: Option<Vec<u8>>,
    pub acl: Vec<AclEntry>,
    pub kind: RefKind,
    pub czxid: i64,
    pub mzxid: i64,
    pub pzxid: i64,
    pub ctime: i64,
    pub mtime: i64,
    pub version: i32,
    pub aversion: i32,
    /// ZooKeeper's internal cversion: the number of children ever created; it never decreases.
    pub creates: i32,
}

/// All znodes, by path.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Tree {
    /// Shared, so that copying the whole tree is cheap.
    pub(super) znodes: BTreeMap<Arc<str>, Arc<RefZnode>>,
    /// Ensemble time of the newest entry.
    pub(super) ensemble_ms: u64,
    pub(super) quotas: Quotas,
}

/// A change that watches may wait for, with the ACL that says which clients may hear of it.
pub(crate) struct Change {
    pub(crate) kind: EventKind,
    pub(crate) path: String,
    pub(crate) acl: Vec<AclEntry>,
}

/// The author and time of a write.
pub(crate) struct Writer {
    pub(crate) session: i64,
    pub(crate) ids: Ids,
    pub(crate) zxid: i64,
    pub(crate) wall_ms: i64,
    /// Whether hard limits of quotas are enforced.
    pub(crate) enforces_quotas: bool,
}

pub(super) enum Done {
    Created(String, Stat),
    Deleted,
    DataSet(Stat),
    AclSet(Stat),
    Checked,
}

const RESERVED: [&str; 4] = ["/", "/zookeeper", "/zookeeper/quota", "/zookeeper/config"];

impl Tree {
    pub(crate) fn new() -> Self {
        let built_in = RefZnode {
            data: Some(Vec::new()),
            acl: open_acl(),
            kind: RefKind::Persistent,
            czxid: 0,
            mzxid: 0,
            pzxid: 0,
            ctime: 0,
            mtime: 0,
            version: 0,
            aversion: 0,
            creates: 0,
        };
        let mut znodes: BTreeMap<Arc<str>, Arc<RefZnode>> =
            RESERVED.iter().map(|path| (Arc::from(*path), Arc::new(built_in.clone()))).collect();
        let mut readable = open_acl();
        readable[0].perms = Perms::READ;
        let config = RefZnode { acl: readable, aversion: -1, ..built_in };
        znodes.insert("/zookeeper/config".into(), Arc::new(config));
        Self { znodes, ensemble_ms: 0, quotas: Quotas::default() }
    }

    /// Advances ensemble time to that of the next entry. It never goes back.
    pub(crate) fn pass_time(&mut self, ensemble_ms: u64) {
        self.ensemble_ms = self.ensemble_ms.max(ensemble_ms);
    }

    /// Returns the znode of a path; the empty path is the root (surface 7.4).
    pub fn get(&self, path: &str) -> Option<&RefZnode> {
        self.znodes.get(if path.is_empty() { "/" } else { path }).map(|znode| &**znode)
    }

    /// Yields every path, sorted.
    pub fn paths(&self) -> impl Iterator<Item = &str> {
        self.znodes.keys().map(|path| &**path)
    }

    /// Sets the child counter, so that a test need not make billions of creates.
    pub fn set_creates(&mut self, path: &str, creates: i32) {
        if let Some(znode) = self.znodes.get_mut(path) {
            Arc::make_mut(znode).creates = creates;
        }
    }

    pub(super) fn children(&self, path: &str) -> Vec<&str> {
        let prefix = if path == "/" || path.is_empty() { "/".to_owned() } else { format!("{path}/") };
        let below = self.znodes.range::<str, _>((Bound::Excluded(&*prefix), Bound::Unbounded));
        let names = below.map_while(|(other, _)| other.strip_prefix(&prefix));
        names.filter(|name| !name.is_empty() && !name.contains('/')).collect()
    }

    pub(super) fn descendants(&self, path: &str) -> usize {
        // For the empty path, the root counts too (surface 2.3).
        let below = |other: &&Arc<str>| path.is_empty() || is_below(other, path);
        self.znodes.keys().filter(below).count()
    }

    pub(crate) fn ephemerals_of(&self, session: i64) -> Vec<String> {
        let own = self.znodes.iter().filter(|(_, znode)| znode.kind == RefKind::Ephemeral(session));
        own.map(|(path, _)| path.to_string()).collect()
    }

    pub(super) fn stat(&self, path: &str, znode: &RefZnode) -> Stat {
        let num_children = self.children(path).len() as i32;
        Stat {
            czxid: znode.czxid,
            mzxid: znode.mzxid,
            ctime: znode.ctime,
            mtime: znode.mtime,
            version: znode.version,
            cversion: znode.creates.wrapping_mul(2).wrapping_sub(num_children),
            aversion: znode.aversion,
            ephemeral_owner: match znode.kind {
                RefKind::Ephemeral(session) => session,
                RefKind::Persistent | RefKind::Container | RefKind::Ttl(_) => 0,
            },
            data_length: znode.data.as_ref().map_or(0, |data| data.len() as i32),
            num_children,
            pzxid: znode.pzxid,
        }
    }

    pub(super) fn write(&mut self, by: &Writer, op: &WriteOp, changes: &mut Vec<Change>) -> Result<Done, ErrorCode> {
        let done = self.try_write(by, op, changes);
        self.recount_usages();
        done
    }

    fn try_write(&mut self, by: &Writer, op: &WriteOp, changes: &mut Vec<Change>) -> Result<Done, ErrorCode> {
        match op {
            WriteOp::Create(create) => self.create(by, create, changes),
            WriteOp::Delete { path, version } => self.delete(by, path, *version, changes),
            WriteOp::SetData { path, data, version } => {
                self.checked(by, path, Perms::WRITE, |znode| znode.version, -1)?;
                self.check_quota(by, path, 0, data.as_deref())?;
                let is_usage = self.shows_usage(path);
                let znode = self.checked(by, path, Perms::WRITE, |znode| znode.version, *version)?;
                znode.version = znode.version.wrapping_add(1);
                if !is_usage {
                    znode.data = data.as_ref().map(|data| data.to_vec());
                }
                (znode.mzxid, znode.mtime) = (by.zxid, by.wall_ms);
                self.count_anew(path, by.zxid);
                let znode = self.znodes[path.as_str()].clone();
                let stat = self.stat(path, &znode);
                let acl = znode.acl.clone();
                changes.push(Change { kind: EventKind::NodeDataChanged, path: path.to_string(), acl });
                Ok(Done::DataSet(stat))
            }
            WriteOp::SetAcl { path, acl, version } => {
                if !is_valid(path) {
                    return Err(ErrorCode::BadArguments);
                }
                let acl = by.ids.resolve(acl.as_deref())?;
                let znode = self.checked(by, path, Perms::ADMIN, |znode| znode.aversion, *version)?;
                znode.aversion = znode.aversion.wrapping_add(1);
                znode.acl = acl;
                Ok(Done::AclSet(self.stat(path, &self.znodes[path.as_str()])))
            }
            WriteOp::Check { path, version } => {
                self.checked(by, path, Perms::READ, |znode| znode.version, *version)?;
                Ok(Done::Checked)
            }
        }
    }

    /// The common checks of setData, setACL and check, in their order.
    fn checked(
        &mut self,
        by: &Writer,
        path: &str,
        perms: Perms,
        current: fn(&RefZnode) -> i32,
        wanted: i32,
    ) -> Result<&mut RefZnode, ErrorCode> {
        if !is_valid(path) {
            return Err(ErrorCode::BadArguments);
        }
        let znode = Arc::make_mut(self.znodes.get_mut(path).ok_or(ErrorCode::NoNode)?);
        if !by.ids.may(&znode.acl, perms) {
            return Err(ErrorCode::NoAuth);
        }
        if wanted != -1 && wanted != current(znode) {
            return Err(ErrorCode::BadVersion);
        }
        Ok(znode)
    }

    fn create(&mut self, by: &Writer, create: &Create, changes: &mut Vec<Change>) -> Result<Done, ErrorCode> {
        let (kind, sequential) = match create.mode {
            CreateMode::Valid { kind: CreateKind::Persistent, sequential } => (RefKind::Persistent, sequential),
            // The entry of a local session says so by the session's name.
            CreateMode::Valid { kind: CreateKind::Ephemeral, .. } if SessionId(by.session).is_named_local() => {
                return Err(ErrorCode::EphemeralOnLocalSession);
            }
            CreateMode::Valid { kind: CreateKind::Ephemeral, sequential } => {
                (RefKind::Ephemeral(by.session), sequential)
            }
            CreateMode::Valid { kind: CreateKind::Container, sequential } => (RefKind::Container, sequential),
            CreateMode::Valid { kind: CreateKind::Ttl { ttl_ms }, sequential } => {
                (RefKind::Ttl(RefTtl { ttl_ms, since_ms: self.ensemble_ms, since_zxid: by.zxid }), sequential)
            }
            CreateMode::Unimplemented => return Err(ErrorCode::Unimplemented),
            CreateMode::BadArguments => return Err(ErrorCode::BadArguments),
            CreateMode::Mismatched => return Err(ErrorCode::MarshallingError),
        };
        let mut path = create.path.to_string();
        let Some(slash) = path.rfind('/').filter(|_| !path.contains('\0')) else { return Err(ErrorCode::BadArguments) };
        let acl = by.ids.resolve(create.acl.as_deref())?;
        let parent_path = if slash == 0 { "/".to_owned() } else { path[..slash].to_owned() };
        let parent = self.znodes.get(&*parent_path).ok_or(ErrorCode::NoNode)?;
        if !by.ids.may(&parent.acl, Perms::CREATE) {
            return Err(ErrorCode::NoAuth);
        }
        if sequential {
            path.push_str(&format!("{:010}", parent.creates));
        }
        if !is_valid(&path) {
            return Err(ErrorCode::BadArguments);
        }
        if self.znodes.contains_key(&*path) {
            return Err(ErrorCode::NodeExists);
        }
        if matches!(parent.kind, RefKind::Ephemeral(_)) {
            return Err(ErrorCode::NoChildrenForEphemerals);
        }
        self.check_quota(by, &path, 1, create.data.as_deref())?;
        let parent_acl = parent.acl.clone();
        let znode = RefZnode {
            data: create.data.as_ref().map(|data| data.to_vec()),
            acl: acl.clone(),
            kind,
            czxid: by.zxid,
            mzxid: by.zxid,
            pzxid: by.zxid,
            ctime: by.wall_ms,
            mtime: by.wall_ms,
            version: 0,
            aversion: 0,
            creates: 0,
        };
        self.znodes.insert(path.as_str().into(), Arc::new(znode));
        if let Some(parent) = self.znodes.get_mut(&*parent_path).map(Arc::make_mut) {
            // ZooKeeper stores only a larger count. So the count sticks at its maximum, and pzxid
            // with it.
            if let Some(more) = parent.creates.checked_add(1) {
                parent.creates = more;
                parent.pzxid = by.zxid;
            }
        }
        changes.push(Change { kind: EventKind::NodeCreated, path: path.clone(), acl });
        changes.push(Change { kind: EventKind::NodeChildrenChanged, path: parent_path, acl: parent_acl });
        self.begin_usage(&path, by.zxid);
        let stat = self.stat(&path, &self.znodes[&*path]);
        Ok(Done::Created(path, stat))
    }

    fn delete(&mut self, by: &Writer, path: &str, version: i32, changes: &mut Vec<Change>) -> Result<Done, ErrorCode> {
        let Some(slash) = path.rfind('/').filter(|_| !path.contains('\0')) else { return Err(ErrorCode::BadArguments) };
        if RESERVED.contains(&path) {
            return Err(ErrorCode::BadArguments);
        }
        let parent = self.znodes.get(if slash == 0 { "/" } else { &path[..slash] }).ok_or(ErrorCode::NoNode)?;
        if !by.ids.may(&parent.acl, Perms::DELETE) {
            return Err(ErrorCode::NoAuth);
        }
        let znode = self.znodes.get(path).ok_or(ErrorCode::NoNode)?;
        if version != -1 && version != znode.version {
            return Err(ErrorCode::BadVersion);
        }
        if !self.children(path).is_empty() {
            return Err(ErrorCode::NotEmpty);
        }
        self.remove(path, by.zxid, changes);
        Ok(Done::Deleted)
    }

    /// Removes an existing znode without children.
    pub(crate) fn remove(&mut self, path: &str, zxid: i64, changes: &mut Vec<Change>) {
        let Some(znode) = self.znodes.remove(path) else { return };
        self.end_usage(path);
        let slash = path.rfind('/').unwrap_or(0);
        let parent_path = if slash == 0 { "/" } else { &path[..slash] };
        let Some(parent) = self.znodes.get_mut(parent_path).map(Arc::make_mut) else { return };
        parent.pzxid = zxid;
        let parent_acl = parent.acl.clone();
        if self.children(parent_path).is_empty() {
            self.count_anew(parent_path, zxid);
        }
        changes.push(Change { kind: EventKind::NodeDeleted, path: path.to_owned(), acl: znode.acl.clone() });
        changes.push(Change { kind: EventKind::NodeChildrenChanged, path: parent_path.to_owned(), acl: parent_acl });
    }

    /// Returns the time to live of a TTL znode.
    pub(crate) fn ttl(&self, path: &str) -> Option<RefTtl> {
        if let RefKind::Ttl(ttl) = self.get(path)?.kind { Some(ttl) } else { None }
    }

    /// Yields the TTL znodes without children.
    pub(crate) fn childless_ttls(&self) -> impl Iterator<Item = (&str, RefTtl)> {
        self.paths().filter(|path| self.children(path).is_empty()).filter_map(|path| Some((path, self.ttl(path)?)))
    }

    /// Lets the time to live of a TTL znode count from this entry.
    fn count_anew(&mut self, path: &str, zxid: i64) {
        let since_ms = self.ensemble_ms;
        if let Some(znode) = self.znodes.get_mut(path).map(Arc::make_mut)
            && let RefKind::Ttl(ttl) = &mut znode.kind
        {
            *ttl = RefTtl { since_ms, since_zxid: zxid, ..*ttl };
        }
    }

    /// Removes a container that has had children, or a TTL znode whose time is over.
    ///
    /// Any other znode stays, and so does one with children.
    pub(crate) fn reap(&mut self, path: &str, zxid: i64, changes: &mut Vec<Change>) {
        let due = self.znodes.get(path).is_some_and(|znode| match znode.kind {
            RefKind::Container => znode.creates > 0,
            RefKind::Ttl(RefTtl { ttl_ms, since_ms, .. }) => self.ensemble_ms - since_ms >= ttl_ms,
            RefKind::Persistent | RefKind::Ephemeral(_) => false,
        });
        if due && self.children(path).is_empty() {
            self.remove(path, zxid, changes);
        }
        self.recount_usages();
    }
}

/// Returns whether `path` is a descendant of `above`.
pub(crate) fn is_below(path: &str, above: &str) -> bool {
    if above == "/" {
        return path.len() > 1 && path.starts_with('/');
    }
    !above.is_empty() && path.strip_prefix(above).is_some_and(|rest| rest.starts_with('/'))
}

/// Surface 7.4, on UTF-16 units as in Java.
fn is_valid(path: &str) -> bool {
    let illegal = |unit: u16| {
        unit <= 0x1f || (0x7f..=0x9f).contains(&unit) || (0xd800..=0xf8ff).contains(&unit) || unit >= 0xfff0
    };
    path == "/"
        || path.starts_with('/')
            && !path.encode_utf16().any(illegal)
            && path[1..].split('/').all(|name| !name.is_empty() && name != "." && name != "..")
}
