//! The state before the first entry: ZooKeeper's four built-in znodes.

use crate::record::acl;
use crate::record::digest::record_hash;
use crate::record::key;
use crate::record::znode::{Data, Kind, Totals, Znode};
use crate::state::Changes;
use zoolet_model::{AclEntry, Perms, Text};

/// Returns the records, totals and digest of a new tree.
///
/// No create is counted for these znodes, so the displayed cversion is negative, as in ZooKeeper
/// (surface 4): `/` -1, `/zookeeper` -2. Every client may read the configuration znode; only super
/// may write it.
pub fn birth() -> (Changes, Totals, u128) {
    let read_only = acl::encode(&[AclEntry {
        perms: Perms::READ,
        scheme: Text::from_static("world"),
        id: Text::from_static("anyone"),
    }]);
    let znode = Znode {
        czxid: 0,
        mzxid: 0,
        pzxid: 0,
        ctime: 0,
        mtime: 0,
        version: 0,
        creates: 0,
        aversion: 0,
        num_children: 0,
        kind: Kind::Persistent,
        data: Data::Inline(b""),
        acl: &[],
    };
    let znodes = [
        ("/", Znode { num_children: 1, ..znode }),
        ("/zookeeper", Znode { num_children: 2, ..znode }),
        ("/zookeeper/config", Znode { aversion: -1, acl: &read_only, ..znode }),
        ("/zookeeper/quota", znode),
    ];
    let mut changes = Changes::default();
    let mut totals = Totals { semantics: 1, ..Totals::default() };
    let mut digest = 0u128;
    for (path, znode) in znodes {
        let Some(key) = key::znode(path) else { continue };
        let record = znode.encode();
        digest = digest.wrapping_add(record_hash(&key, &record));
        totals.znodes += 1;
        totals.data_bytes += path.len() as u64;
        changes.insert(key, Some(record));
    }
    (changes, totals, digest)
}
