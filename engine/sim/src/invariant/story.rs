//! Short stories for the invariants' own tests.

use super::history::Link;
use zoolet_engine::store::log::chain_after;
use zoolet_zab::{Epoch, Zxid};

/// An entry's place.
pub(crate) fn zxid(epoch: u32, counter: u64) -> Zxid {
    Zxid::new(Epoch::new(epoch).unwrap(), counter).unwrap()
}

/// The link of an entry that nothing precedes.
pub(crate) fn link(epoch: u32, counter: u64) -> Link {
    links(Link::default(), &[(epoch, counter)])[0]
}

/// The links of entries that follow `after`; each entry's bytes are its zxid's.
pub(crate) fn links(after: Link, of: &[(u32, u64)]) -> Vec<Link> {
    let next = |last: &mut Link, &(epoch, counter): &(u32, u64)| {
        let zxid = zxid(epoch, counter);
        *last = Link { zxid, chain: chain_after(last.chain, zxid, &zxid.to_bits().to_be_bytes()) };
        Some(*last)
    };
    of.iter().scan(after, next).collect()
}
