//! Znodes of a range of keys with the length of their data, merged from base and memory.

use crate::record::key::{self, Key};
use crate::record::znode::Znode;
use crate::seam::action::FetchWhat;
use crate::state::{Changes, Stuck};
use std::collections::BTreeMap;

/// The base's znodes from a key on, and whether the range has no more.
pub(super) type Weights = BTreeMap<Key, (Vec<(Key, u32)>, bool)>;

/// Returns up to `max` znodes with keys in `from..to`, in order, with the length of their data.
///
/// `layers` are the memtables, newest first. Fewer than `max` are returned only at the end of the
/// range.
pub(super) fn merge(
    base: &Weights,
    layers: [Option<&Changes>; 2],
    from: &[u8],
    to: &[u8],
    max: usize,
) -> Result<Vec<(Key, u32)>, Stuck> {
    let layers = || layers.iter().flatten().copied();
    let (mut found, mut from) = (Vec::new(), Key::from(from));
    while found.len() < max {
        let Some((portion, is_end)) = base.get(&from) else {
            return Err(Stuck::Missing(vec![FetchWhat::Weights { from, to: to.into() }]));
        };
        let (is_end, end) = match portion.last() {
            Some((last, _)) if !is_end => (false, key::after(last)),
            _ => (true, to.into()),
        };
        let mut portion = portion.iter().peekable();
        let mut names = layers().map(|layer| layer.names_in(&from, &end).peekable()).collect::<Vec<_>>();
        while found.len() < max {
            let first = names.iter_mut().filter_map(|names| names.peek().copied()).min();
            let Some(key) = first.into_iter().chain(portion.peek().map(|(key, _)| key)).min() else { break };
            let key = key.clone();
            for names in &mut names {
                names.next_if(|name| **name == key);
            }
            let in_base = portion.next_if(|(known, _)| *known == key);
            let length = match layers().find_map(|layer| layer.get(&key)) {
                Some(Some(record)) => {
                    let znode = Znode::decode(record);
                    Some(znode.map_err(|_| Stuck::Damaged("a znode's record does not decode"))?.data.length())
                }
                Some(None) => None,
                None => in_base.map(|(_, length)| *length),
            };
            found.extend(length.map(|length| (key, length)));
        }
        if is_end {
            break;
        }
        from = end;
    }
    Ok(found)
}
