//! The names of participants' znodes, including names that other libraries give.

use crate::{Guid, Preference};
use heapless::String;
use std::fmt::Write as _;
use zoolet_model::Text;

/// The library whose znode names a lock or an election uses.
///
/// With matching names, programs in other languages stand in the same line. zoolet counts every
/// child whose name ends in ten digits. Other libraries count fewer names, so safety depends on
/// them:
///
/// | on one path | is safe |
/// |---|---|
/// | zoolet alone | with any naming, also mixed |
/// | zoolet and Curator | with `Curator` |
/// | zoolet and kazoo | with `Kazoo` |
/// | zoolet, Curator and kazoo | with `Curator`, and in kazoo the subclasses of `Lock` below |
/// | unmodified Curator and kazoo | **never**: kazoo ignores Curator's names, so both may hold |
///
/// | in kazoo | `_NODE_NAME` | `_EXCLUDE_NAMES` | stands in line with |
/// |---|---|---|---|
/// | a lock | `"-lock-"` | `["-lock-"]` | `Lock`, `InterProcessMutex` |
/// | a reader | `"-__READ__"` | `["-__WRIT__"]` | `ReadWriteLock`, `InterProcessReadWriteLock` |
/// | a writer | `"-__WRIT__"` | `["-__READ__", "-__WRIT__"]` | the same |
/// | the `lock` of an `Election` | `"-latch-"` | `["-latch-"]` | `Election`, `LeaderLatch` |
///
/// Curator's `LeaderSelector` is a mutex: it excludes a `Lock` and no `Election`. An unmodified
/// kazoo `Election` is a `Lock` of kazoo. `tests/foreign/mixed` runs all of this except the
/// selector, with members and clients killed.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Naming {
    /// As in ZooKeeper's documentation: `GUID-lock-0000000001`.
    #[default]
    Documented,
    /// As in Apache Curator 5: `_c_GUID-lock-0000000001`.
    Curator,
    /// As in kazoo 2: `HEX__lock__0000000001`.
    Kazoo,
}

/// The purpose for which a participant stands in a line.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Stands {
    Lock,
    Read,
    Write,
    Election,
    Lease,
}

impl Naming {
    /// Returns the name without the number.
    ///
    /// A rank other than 0 and a preference other than fair precede the marker.
    pub(crate) fn prefix(self, guid: Guid, stands: Stands, rank: u8, preference: Preference) -> String<64> {
        let (before, marker) = match (self, stands) {
            (Self::Documented, Stands::Lock) => ("", "-lock-"),
            (Self::Documented, Stands::Read) => ("", "-read-"),
            (Self::Documented, Stands::Write) => ("", "-write-"),
            (Self::Documented, Stands::Election) => ("", "-n_"),
            (Self::Documented, Stands::Lease) => ("", "-lease-"),
            (Self::Curator, Stands::Lock) => ("_c_", "-lock-"),
            (Self::Curator, Stands::Read) => ("_c_", "-__READ__"),
            (Self::Curator, Stands::Write) => ("_c_", "-__WRIT__"),
            (Self::Curator, Stands::Election) => ("_c_", "-latch-"),
            (Self::Curator, Stands::Lease) => ("_c_", "-lease-"),
            (Self::Kazoo, Stands::Read) => ("", "__rlock__"),
            (Self::Kazoo, Stands::Lease) => ("", "__lease__"),
            (Self::Kazoo, Stands::Lock | Stands::Write | Stands::Election) => ("", "__lock__"),
        };
        let mut name = String::new();
        // At most 3, 36, 5, 3 and 9 characters: 56 of 64.
        let mut fits = match self {
            Self::Documented | Self::Curator => write!(name, "{before}{guid}"),
            Self::Kazoo => write!(name, "{before}{}", guid.hex()),
        };
        if rank > 0 {
            fits = fits.and_then(|()| write!(name, "-r{rank}"));
        }
        fits = fits.and_then(|()| name.write_str(preference_marker(preference)));
        fits = fits.and_then(|()| name.write_str(marker));
        debug_assert!(fits.is_ok(), "{name}");
        name
    }
}

/// Which other participants may hold at the same time.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Mode {
    /// No other participant.
    Exclusive,
    /// Other shared participants.
    Shared,
}

/// Returns the number at the end of a sequential znode's name; `None` without one.
///
/// The server writes ten digits. Only the number tells the order of arrival: the text before it
/// differs.
pub(crate) fn number(name: &str) -> Option<u32> {
    let digits = name.get(name.len().checked_sub(10)?..)?;
    if digits.bytes().all(|digit| digit.is_ascii_digit()) { digits.parse().ok() } else { None }
}

/// Returns the name of the znode at `path`.
pub(crate) fn name_of(path: &str) -> &str {
    path.rsplit('/').next().unwrap_or_default()
}

/// Returns the mode that a participant's name tells; exclusive unless it is known to be shared.
pub(crate) fn mode(name: &str) -> Mode {
    let marked = name.get(..name.len().saturating_sub(10)).unwrap_or_default();
    let is_shared = ["-read-", "__READ__", "__rlock__"].iter().any(|marker| marked.ends_with(marker));
    if is_shared { Mode::Shared } else { Mode::Exclusive }
}

/// Returns the rank in a participant's name; 0 if the name has none.
pub(crate) fn rank(name: &str) -> u8 {
    let before = ["-n_", "-latch-", "__lock__"].iter().find_map(|marker| {
        let marked = name.get(..name.len().saturating_sub(10))?;
        marked.strip_suffix(marker)
    });
    let digits = before.and_then(|before| before.rsplit_once("-r")).map(|(_, digits)| digits);
    digits.and_then(|digits| digits.parse().ok()).unwrap_or(0)
}

/// Returns the part of a name that tells the preference. It precedes the marker.
const fn preference_marker(preference: Preference) -> &'static str {
    match preference {
        Preference::Fair => "",
        Preference::Readers => "-pr",
        Preference::Writers => "-pw",
    }
}

/// Returns the preference that a participant's name tells.
///
/// Names of other libraries tell none, so those participants are fair.
pub(crate) fn preference(name: &str) -> Preference {
    let marked = name.get(..name.len().saturating_sub(10)).unwrap_or_default();
    let markers = ["-read-", "-write-", "-__READ__", "-__WRIT__", "__rlock__", "__lock__"];
    let before = markers.iter().find_map(|marker| marked.strip_suffix(marker)).unwrap_or_default();
    [Preference::Readers, Preference::Writers]
        .into_iter()
        .find(|&preference| before.ends_with(preference_marker(preference)))
        .unwrap_or_default()
}

/// Returns the path without the number.
pub(crate) fn path_prefix(
    parent: &str,
    naming: Naming,
    guid: Guid,
    stands: Stands,
    rank: u8,
    preference: Preference,
) -> Text {
    zoolet_model::path::child(parent, &naming.prefix(guid, stands, rank, preference))
}

#[cfg(test)]
mod tests {
    use super::*;

    const GUID: Guid = Guid::from_random_bits(1);

    #[test]
    fn sequence_number_is_the_last_10_digits_of_any_librarys_name() {
        for name in [
            "_c_0f6a5e3c-9d1b-4c1a-8a52-5d0f5f2f1a11-lock-0000000012",
            "0f6a5e3c9d1b4c1a8a525d0f5f2f1a11__lock__0000000012",
            "x-72057594037927936-0000000012",
            "0000000012",
        ] {
            assert_eq!(number(name), Some(12), "{name}");
        }
        for name in ["", "leases", "lock-12", "lock-000000001x", "é000000001"] {
            assert_eq!(number(name), None, "{name}");
        }
        assert_eq!(number("lock-2147483647"), Some(i32::MAX as u32));
    }

    #[test]
    fn only_known_reader_names_are_shared() {
        for naming in [Naming::Documented, Naming::Curator, Naming::Kazoo] {
            for stands in [Stands::Lock, Stands::Read, Stands::Write, Stands::Election, Stands::Lease] {
                let name = format!("{}0000000007", naming.prefix(GUID, stands, 0, Preference::Fair));
                let expected = if stands == Stands::Read { Mode::Shared } else { Mode::Exclusive };
                assert_eq!((mode(&name), number(&name)), (expected, Some(7)), "{name}");
                assert!(GUID.is_in(&name), "{name}");
            }
        }
        assert_eq!(mode("x-72057594037927936-0000000012"), Mode::Exclusive);
    }

    #[test]
    fn rank_round_trips_through_names_and_defaults_to_0() {
        for naming in [Naming::Documented, Naming::Curator, Naming::Kazoo] {
            for rank in [0, 7, 255] {
                let name = format!("{}0000000007", naming.prefix(GUID, Stands::Election, rank, Preference::Fair));
                assert_eq!(
                    (super::rank(&name), number(&name), mode(&name)),
                    (rank, Some(7), Mode::Exclusive),
                    "{name}"
                );
            }
        }
        assert_eq!((super::rank("x-1-0000000012"), super::rank("")), (0, 0));
    }

    #[test]
    fn preference_round_trips_and_foreign_names_are_fair() {
        for naming in [Naming::Documented, Naming::Curator, Naming::Kazoo] {
            for stands in [Stands::Read, Stands::Write] {
                for preference in [Preference::Fair, Preference::Readers, Preference::Writers] {
                    let name = format!("{}0000000007", naming.prefix(GUID, stands, 0, preference));
                    let mode = if stands == Stands::Read { Mode::Shared } else { Mode::Exclusive };
                    assert_eq!((super::preference(&name), super::mode(&name)), (preference, mode), "{name}");
                    assert_eq!((number(&name), rank(&name), GUID.is_in(&name)), (Some(7), 0, true), "{name}");
                }
            }
        }
        for name in ["x-pr-0000000012", "-pw0000000001", "a-lock-0000000001", ""] {
            assert_eq!(super::preference(name), Preference::Fair, "{name}");
        }
    }

    #[test]
    fn names_follow_the_conventions_of_curator_and_kazoo() {
        let guid = Guid::from_random_bits(0x0f6a_5e3c_9d1b_4c1a_8a52_5d0f_5f2f_1a11);
        let names = [
            (Naming::Documented, Stands::Election, "0f6a5e3c-9d1b-4c1a-8a52-5d0f5f2f1a11-n_"),
            (Naming::Curator, Stands::Write, "_c_0f6a5e3c-9d1b-4c1a-8a52-5d0f5f2f1a11-__WRIT__"),
            (Naming::Kazoo, Stands::Read, "0f6a5e3c9d1b4c1a8a525d0f5f2f1a11__rlock__"),
        ];
        for (naming, stands, expected) in names {
            assert_eq!(naming.prefix(guid, stands, 0, Preference::Fair), expected);
        }
    }
}
