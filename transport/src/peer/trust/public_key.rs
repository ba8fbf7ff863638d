//! Public keys and their text form, which operators copy.

use super::checked_text;
#[cfg(feature = "certificates")]
use ring::digest;
use std::fmt;
use std::str::FromStr;

const PREFIX: &str = "zk1";

/// DER of an Ed25519 SubjectPublicKeyInfo up to the key itself (RFC 8410).
///
/// It is a sequence of the algorithm's identifier and a bit string of 32 bytes.
const SPKI_PREFIX: [u8; 12] = [0x30, 0x2a, 0x30, 0x05, 0x06, 0x03, 0x2b, 0x65, 0x70, 0x03, 0x21, 0x00];

/// The key by which a server is known.
///
/// It is the server's Ed25519 public key, or under [`Trust::Ca`](super::Trust::Ca) the SHA-256 of
/// its certificate's public key. The text form is `zk1` and 48 characters of base64url, which hold
/// the 32 bytes and a checksum against typos.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct PublicKey(pub [u8; 32]);

impl PublicKey {
    /// Returns the key as TLS carries it (RFC 7250): 44 bytes of DER.
    pub(super) fn to_spki(self) -> [u8; 44] {
        let mut spki = [0; 44];
        spki[..12].copy_from_slice(&SPKI_PREFIX);
        spki[12..].copy_from_slice(&self.0);
        spki
    }

    /// Parses those 44 bytes; `None` for another kind of key or a certificate.
    pub(super) fn from_spki(spki: &[u8]) -> Option<Self> {
        spki.strip_prefix(&SPKI_PREFIX)?.try_into().ok().map(Self)
    }

    /// Hashes a certificate's public key, which may be of any kind.
    #[cfg(feature = "certificates")]
    pub(super) fn of_certified(spki: &[u8]) -> Self {
        let mut hash = [0; 32];
        hash.copy_from_slice(digest::digest(&digest::SHA256, spki).as_ref());
        Self(hash)
    }
}

impl fmt::Display for PublicKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{PREFIX}{}", checked_text::encode(PREFIX, &self.0))
    }
}

impl fmt::Debug for PublicKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// A text that is not a public key.
///
/// Displayed as a line for the operator; the caller adds where the text is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum PublicKeyError {
    /// The text does not start with `zk1`.
    Prefix,
    /// Wrong length: its number of characters, and the required number.
    Length(usize, usize),
    /// The checksum does not match: a character was changed, omitted or swapped.
    Typo,
}

impl fmt::Display for PublicKeyError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Prefix => write!(f, "a server's public key begins with {PREFIX}"),
            Self::Length(has, wanted) => {
                write!(f, "a server's public key has {wanted} characters, this text has {has}")
            }
            Self::Typo => f.write_str("this public key has a typo: its checksum does not match; copy it again"),
        }
    }
}

impl std::error::Error for PublicKeyError {}

impl FromStr for PublicKey {
    type Err = PublicKeyError;

    fn from_str(text: &str) -> Result<Self, PublicKeyError> {
        let body = text.strip_prefix(PREFIX).ok_or(PublicKeyError::Prefix)?;
        let (has, wanted) = (text.chars().count(), PREFIX.len() + checked_text::CHARACTERS);
        if has != wanted {
            return Err(PublicKeyError::Length(has, wanted));
        }
        checked_text::decode(PREFIX, body).map(Self).ok_or(PublicKeyError::Typo)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const KEY: PublicKey = PublicKey([7; 32]);

    #[test]
    fn public_key_round_trips_through_its_text() {
        let text = KEY.to_string();
        assert_eq!(text.len(), 51);
        assert_eq!(text.parse(), Ok(KEY));
        // Golden: later releases must read a configuration that pins this key.
        assert_eq!(text, "zk1BwcHBwcHBwcHBwcHBwcHBwcHBwcHBwcHBwcHBwcHBwfHZsTD");
    }

    #[test]
    fn public_key_with_a_wrong_character_is_refused() {
        let text = KEY.to_string();
        for at in PREFIX.len()..text.len() {
            for other in ['A', 'b', '0', '-', '_', '=', '+', ' ', 'é'] {
                let mut typo = text.clone();
                typo.replace_range(at..=at, &other.to_string());
                assert!(typo == text || typo.parse::<PublicKey>().is_err(), "{typo}");
            }
        }
    }

    #[test]
    fn public_key_with_swapped_or_missing_characters_is_refused() {
        let mut key = [0; 32];
        for (at, byte) in key.iter_mut().enumerate() {
            *byte = at as u8 * 7;
        }
        let text = PublicKey(key).to_string();
        for at in PREFIX.len()..text.len() - 1 {
            let mut typo: Vec<char> = text.chars().collect();
            typo.swap(at, at + 1);
            let typo: String = typo.into_iter().collect();
            assert!(typo == text || typo.parse::<PublicKey>().is_err(), "{typo}");
        }
        assert_eq!(text[..50].parse::<PublicKey>(), Err(PublicKeyError::Length(50, 51)));
        assert_eq!(text[1..].parse::<PublicKey>(), Err(PublicKeyError::Prefix));
        assert_eq!(format!("{}é", &text[..50]).parse::<PublicKey>(), Err(PublicKeyError::Typo));
        assert_eq!("".parse::<PublicKey>(), Err(PublicKeyError::Prefix));
    }

    #[test]
    fn only_ed25519_keys_are_accepted_from_tls() {
        let spki = KEY.to_spki();
        assert_eq!(PublicKey::from_spki(&spki), Some(KEY));
        assert_eq!(PublicKey::from_spki(&spki[..43]), None);
        assert_eq!(PublicKey::from_spki(&[spki.as_slice(), &[0]].concat()), None);
        for at in 0..12 {
            let mut other = spki;
            other[at] ^= 1;
            assert_eq!(PublicKey::from_spki(&other), None);
        }
    }
}
