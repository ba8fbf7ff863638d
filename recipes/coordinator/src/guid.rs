//! GUIDs: unique parts of znode names.

use heapless::String;
use std::fmt::{self, Write as _};

/// Identifies the znodes of one participant, even if the reply to a create was lost.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Guid(u128);

impl Guid {
    /// Makes a GUID from 128 random bits.
    ///
    /// Six of the bits are replaced to mark a UUID of version 4, because Curator looks for one.
    pub const fn from_random_bits(bits: u128) -> Self {
        let version = 0xf << 76;
        let variant = 0x3 << 62;
        Self(bits & !version & !variant | 0x4 << 76 | 0x2 << 62)
    }

    /// Whether `name` contains this GUID, with or without hyphens.
    pub fn is_in(self, name: &str) -> bool {
        let (mut hyphened, mut plain) = (String::<36>::new(), String::<32>::new());
        write!(hyphened, "{self}").is_ok() && name.contains(hyphened.as_str())
            || write!(plain, "{}", self.hex()).is_ok() && name.contains(plain.as_str())
    }

    /// Returns the GUID at the start of `name`, with or without hyphens.
    ///
    /// Curator's prefix `_c_` is skipped. `None` if the name does not begin with a GUID.
    pub fn of_name(name: &str) -> Option<Self> {
        let name = name.strip_prefix("_c_").unwrap_or(name);
        let mut digits = String::<32>::new();
        for (at, character) in name.chars().enumerate() {
            match character {
                // Hyphens are accepted only where Curator writes them.
                '-' if matches!(at, 8 | 13 | 18 | 23) && digits.len() < 32 => {}
                '0'..='9' | 'a'..='f' => digits.push(character).ok()?,
                _ => return None,
            }
            if digits.len() == 32 {
                break;
            }
        }
        if digits.len() < 32 { None } else { u128::from_str_radix(&digits, 16).ok().map(Self) }
    }

    /// Formats the GUID as kazoo does: 32 lower-case hexadecimal digits.
    pub const fn hex(self) -> impl fmt::Display {
        Hex(self.0)
    }
}

struct Hex(u128);

impl fmt::Display for Hex {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:032x}", self.0)
    }
}

/// Formats the GUID as Curator does: 36 characters with hyphens.
impl fmt::Display for Guid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let part = |from: u32, digits: u32| self.0 >> (128 - 4 * (from + digits)) & ((1 << (4 * digits)) - 1);
        write!(f, "{:08x}-{:04x}-{:04x}-{:04x}-{:012x}", part(0, 8), part(8, 4), part(12, 4), part(16, 4), part(20, 12))
    }
}

impl fmt::Debug for Guid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn guid_is_found_in_names_with_and_without_hyphens() {
        let (guid, other) = (Guid::from_random_bits(u128::MAX / 3), Guid::from_random_bits(u128::MAX / 5));
        for name in [format!("_c_{guid}-lock-0000000001"), format!("{}__lock__0000000001", guid.hex())] {
            assert!(guid.is_in(&name) && !other.is_in(&name), "{name}");
            assert_eq!(Guid::of_name(&name), Some(guid), "{name}");
        }
        assert_eq!(Guid::of_name(&guid.to_string()), Some(guid));
        assert!(!guid.is_in(""));
        for none in ["", "_c_", "lock-0000000001", "0123456789abcdef-lock-0000000001", "é", &format!("-{guid}")] {
            assert_eq!(Guid::of_name(none), None, "{none}");
        }
    }

    #[test]
    fn guid_has_the_format_of_a_version_4_uuid() {
        let guid = Guid::from_random_bits(0x0123_4567_89ab_cdef_0123_4567_89ab_cdef);
        assert_eq!(format!("{guid}"), "01234567-89ab-4def-8123-456789abcdef");
        assert_eq!(format!("{}", guid.hex()), "0123456789ab4def8123456789abcdef");
    }
}
