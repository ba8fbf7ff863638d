//! Compares the digest of the whole state, recomputed from the disk, with the one in `mntr`.
//!
//! The recomputation is naive: it loads all records of the base into a map, applies the log's
//! entries in order, and sums the hashes of all records. The digest also covers state that clients
//! cannot read: sessions, owners of ephemerals, times, ACLs.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use zoolet_machine::record::key::Key;
use zoolet_machine::record::znode::Totals;
use zoolet_machine::seam::action::BaseRead;
use zoolet_machine::{Event, Limits};
use zoolet_sim::disk::SimDisk;
use zoolet_sim::replica::Replica;
use zoolet_store::base::Base;
use zoolet_store::disk::Disk;
use zoolet_store::{Store, Strategy};

/// Returns the digest of a server that starts on `files`; `None` if it must refuse them.
///
/// # Errors
/// A contradiction in the files.
pub fn recompute<'a>(files: impl Iterator<Item = (&'a str, &'a [u8])>) -> Result<Option<u128>, String> {
    let disk = SimDisk::new(0);
    for (name, content) in files.filter(|(name, _)| !matches!(*name, "reserve" | "LOCK")) {
        let file = disk.create(name).map_err(|error| error.to_string())?;
        file.write_at(0, content).and_then(|()| file.sync()).map_err(|error| error.to_string())?;
    }
    let limits = Limits { disk_reserve_bytes: 0, ..Limits::default() };
    let Ok(store) = Store::open(Arc::new(disk), Strategy::Append, &limits, 1) else { return Ok(None) };
    let mut replica = Replica::new(false);
    if store.state.is_some() {
        let meta = store.base.meta();
        replica.totals = Totals::decode(&meta.totals).map_err(|_| "the base's totals are none".to_owned())?;
        replica.digest = meta.digest;
        replica.records.clear();
        read_all(&store.base, &mut replica)?;
    }
    let checked = catch_unwind(AssertUnwindSafe(|| {
        replica.check();
        let replayed = store.replay(|event| match event {
            Event::Recovered { zxid, payload } => replica.apply(zxid, &payload).map(drop),
            other => panic!("{other:?} is no entry"),
        });
        replica.check();
        replayed.map(|()| replica.digest).map_err(|error| error.to_string())
    }));
    match checked {
        Ok(Ok(digest)) => Ok(Some(digest)),
        Ok(Err(_)) => Ok(None),
        Err(_) => Err("base and log contradict themselves; the panic above says how".to_owned()),
    }
}

fn read_all(base: &Base, replica: &mut Replica) -> Result<(), String> {
    let reader = base.reader();
    let mut keys: Vec<Key> = Vec::new();
    let listed = reader.keys(b"", None, &mut |key| {
        keys.push(key.into());
        true
    });
    listed.map_err(|failure| format!("{failure:?}"))?;
    for key in keys {
        match reader.record(&key) {
            Ok(Some(record)) => drop(replica.records.insert(key, record)),
            other => return Err(format!("{} is listed, and is {other:?}", key.escape_ascii())),
        }
    }
    Ok(())
}

/// Returns the digest in the output of `mntr`.
pub fn shown(mntr: &str) -> Option<u128> {
    let line = mntr.lines().find_map(|line| line.strip_prefix("zk_digest\t"))?;
    u128::from_str_radix(line.split_once(": ")?.1, 16).ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use zoolet_model::{CreateKind, ErrorCode};
    use zoolet_sim::client::create;
    use zoolet_sim::machine::{Machine, tiny_limits};

    fn written(count: usize) -> (SimDisk, u128) {
        let disk = SimDisk::new(1);
        let mut machine = Machine::connected(&disk, tiny_limits());
        for number in 0..count {
            let kind = if number % 2 == 0 { CreateKind::Persistent } else { CreateKind::Ephemeral };
            let answer: Result<_, ErrorCode> = machine.write(create(format!("/z{number}"), number * 70, kind));
            assert!(answer.is_ok(), "{answer:?}");
        }
        (disk, machine.server.digest())
    }

    fn of(disk: &SimDisk) -> Result<Option<u128>, String> {
        let names = disk.list().unwrap_or_default();
        let files: Vec<_> = names.into_iter().map(|name| (disk.contents(&name).unwrap_or_default(), name)).collect();
        recompute(files.iter().map(|(content, name)| (name.as_str(), content.as_slice())))
    }

    #[test]
    fn digest_of_the_files_equals_the_digest_of_the_server() {
        for count in [0, 3, 40] {
            let (disk, digest) = written(count);
            assert_eq!(of(&disk), Ok(Some(digest)), "{count} writes");
        }
        assert_ne!(written(3).1, written(2).1);
    }

    #[test]
    fn base_files_without_a_log_have_no_digest() {
        let (disk, _) = written(40);
        for name in disk.list().unwrap_or_default().iter().filter(|name| name.starts_with("seg-")) {
            let _ = disk.remove(name);
        }
        assert_eq!(of(&disk), Ok(None));
    }

    #[test]
    fn digest_is_parsed_from_mntr() {
        assert_eq!(shown("zk_version\tx\nzk_digest\t1f: 000000000000000000000000000000ff\n"), Some(255));
        assert_eq!(shown("zk_version\tx\n"), None);
    }
}
