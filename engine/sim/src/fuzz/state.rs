//! Entries applied to states: apply never fails, is deterministic, and leaves no contradiction.

use super::{Target, script};
use crate::{entries::Entries, replica::Replica, workload::Random};
use zoolet_machine::record::key;
use zoolet_machine::txn;
use zoolet_model::Zxid;

/// Applies arbitrary entries, including valid ones, to two replicas.
///
/// One replica has everything in memory; the other must fetch every record.
pub(super) const APPLY: Target = Target { name: "apply", valid: script, check };

/// Maximum number of entries in a run.
const ENTRIES_MAX: u64 = 400;

fn check(bytes: &[u8]) {
    let mut entries = Entries::of(Random::scripted(bytes));
    let (mut full, mut forgetful) = (Replica::new(false), Replica::new(true));
    for counter in 1..ENTRIES_MAX {
        if entries.is_over() {
            break;
        }
        let zxid = Zxid::from_bits(counter).expect("a small zxid");
        let payload = entries.payload();
        let applied = full.apply(zxid, &payload).unwrap_or_else(|what| panic!("{what}: {:?}", txn::decode(&payload)));
        assert_eq!(forgetful.apply(zxid, &payload).as_ref(), Ok(&applied), "{:?}", txn::decode(&payload));
        for key in applied.changes.keys().filter(|key| key[0] == key::SESSION) {
            let id = i64::from_be_bytes(key[1..].try_into().expect("a session's key"));
            entries.session(id, full.records.contains_key(key));
        }
    }
    full.check();
    assert!(full.records == forgetful.records && full.totals == forgetful.totals && full.digest == forgetful.digest);
}
