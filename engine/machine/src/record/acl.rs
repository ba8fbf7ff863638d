//! Permissions: identities of a connection, and the meaning and encoding of ACLs (surface 6).

use bytes::{BufMut, Bytes, BytesMut};
use std::net::IpAddr;
use zoolet_model::{AclEntry, AuthId, ErrorCode, Perms, RequestedAcl, Text, open_acl};

/// The identity of a connection, as permission checks see it.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Identity {
    /// Passes every check: the configured super digest, or skipACL.
    pub is_super: bool,
    /// Address of the client; `None` for an embedded session.
    pub ip: Option<IpAddr>,
    /// Proven identities in order, without the address.
    pub ids: Vec<AuthId>,
}

/// The stored bytes are not an ACL.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct NotAnAcl;

const WORLD: &str = "world";
const ANYONE: &str = "anyone";
const IP: &str = "ip";
const DIGEST: &str = "digest";
const AUTH: &str = "auth";

/// Encodes an ACL for storage.
///
/// The open ACL, which nearly every znode has, is empty. Otherwise each entry is its permissions (4
/// bytes), then scheme and id, each preceded by a 4-byte length. All integers are little-endian.
pub fn encode(acl: &[AclEntry]) -> Bytes {
    let mut bytes = BytesMut::new();
    if !is_open(acl) {
        for AclEntry { perms, scheme, id } in acl {
            bytes.put_i32_le(perms.0);
            for text in [scheme, id] {
                bytes.put_u32_le(u32::try_from(text.len()).unwrap_or(u32::MAX));
                bytes.put_slice(text.as_bytes());
            }
        }
    }
    bytes.freeze()
}

/// Returns whether this equals [`open_acl`]. It compares in place, because nearly every create
/// calls it.
fn is_open(acl: &[AclEntry]) -> bool {
    matches!(acl, [AclEntry { perms: Perms::ALL, scheme, id }] if scheme == WORLD && id == ANYONE)
}

/// Checks that the bytes can be decoded, without building the entries.
///
/// # Errors
/// [`NotAnAcl`] if the bytes were not written by [`encode`].
pub fn check(bytes: &[u8]) -> Result<(), NotAnAcl> {
    entries(bytes).try_for_each(|entry| entry.map(drop))
}

/// Decodes a stored ACL.
///
/// # Errors
/// [`NotAnAcl`] if the bytes were not written by [`encode`].
pub fn decode(bytes: &[u8]) -> Result<Vec<AclEntry>, NotAnAcl> {
    if bytes.is_empty() {
        return Ok(open_acl());
    }
    entries(bytes)
        .map(|entry| entry.map(|(perms, scheme, id)| AclEntry { perms, scheme: scheme.into(), id: id.into() }))
        .collect()
}

type Borrowed<'a> = (Perms, &'a str, &'a str);

/// Iterates over the entries without copying them.
fn entries(mut rest: &[u8]) -> impl Iterator<Item = Result<Borrowed<'_>, NotAnAcl>> {
    std::iter::from_fn(move || {
        if rest.is_empty() {
            return None;
        }
        let entry = take_entry(rest);
        match &entry {
            Ok((_, after)) => rest = after,
            Err(_) => rest = &[],
        }
        Some(entry.map(|(entry, _)| entry))
    })
}

fn take_entry(bytes: &[u8]) -> Result<(Borrowed<'_>, &[u8]), NotAnAcl> {
    let (perms, rest) = bytes.split_first_chunk().ok_or(NotAnAcl)?;
    let (scheme, rest) = take_text(rest)?;
    let (id, rest) = take_text(rest)?;
    Ok(((Perms(i32::from_le_bytes(*perms)), scheme, id), rest))
}

fn take_text(bytes: &[u8]) -> Result<(&str, &[u8]), NotAnAcl> {
    let (length, rest) = bytes.split_first_chunk().ok_or(NotAnAcl)?;
    let (text, rest) = rest.split_at_checked(u32::from_le_bytes(*length) as usize).ok_or(NotAnAcl)?;
    Ok((std::str::from_utf8(text).map_err(|_| NotAnAcl)?, rest))
}

impl Identity {
    /// Returns whether the stored ACL grants any of `perms` (any-bit, surface 6.2).
    pub fn may(&self, perms: Perms, acl: &[u8]) -> bool {
        acl.is_empty()
            || self.is_super
            || entries(acl).any(|entry| {
                entry.is_ok_and(|(granted, scheme, id)| granted.intersects(perms) && self.matches(scheme, id))
            })
    }

    fn matches(&self, scheme: &str, id: &str) -> bool {
        match scheme {
            WORLD => id == ANYONE,
            IP => self.ip.is_some_and(|ip| Network::parse(id).is_some_and(|network| network.contains(ip))),
            _ => self.ids.iter().any(|known| known.scheme == *scheme && known.id == *id),
        }
    }

    /// Resolves a requested ACL to the stored form (surface 6.4).
    ///
    /// `auth` entries are expanded, every entry is checked, and duplicates are removed.
    ///
    /// # Errors
    /// [`ErrorCode::InvalidAcl`]; [`ErrorCode::MarshallingError`] for an entry without the id that
    /// its scheme needs, as in ZooKeeper.
    pub fn resolve(&self, requested: Option<&[RequestedAcl]>) -> Result<Bytes, ErrorCode> {
        let requested = requested.filter(|acl| !acl.is_empty()).ok_or(ErrorCode::InvalidAcl)?;
        if *requested == *RequestedAcl::open() {
            return Ok(Bytes::new());
        }
        let mut acl: Vec<AclEntry> = Vec::new();
        let mut add = |entry: AclEntry| {
            if !acl.contains(&entry) {
                acl.push(entry);
            }
        };
        for RequestedAcl { perms, scheme, id } in requested {
            let scheme = scheme.as_ref().ok_or(ErrorCode::InvalidAcl)?;
            let entry = |id: &Text| AclEntry { perms: *perms, scheme: scheme.clone(), id: id.clone() };
            match (scheme.as_str(), id) {
                (WORLD, Some(id)) if id == ANYONE => add(entry(id)),
                (AUTH, _) if self.ids.is_empty() => return Err(ErrorCode::InvalidAcl),
                (AUTH, _) => self.ids.iter().for_each(|known| {
                    add(AclEntry { perms: *perms, scheme: known.scheme.clone(), id: known.id.clone() });
                }),
                (IP, Some(id)) if Network::parse(id).is_some() => add(entry(id)),
                (DIGEST, Some(id)) if id.split(':').count() == 2 => add(entry(id)),
                (WORLD | IP | DIGEST, None) => return Err(ErrorCode::MarshallingError),
                _ => return Err(ErrorCode::InvalidAcl),
            }
        }
        Ok(encode(&acl))
    }
}

/// Hides digest hashes from getACL callers without ADMIN, as `user:x` (surface 6.5).
pub fn redact(acl: &mut [AclEntry]) {
    for entry in acl.iter_mut().filter(|entry| entry.scheme == DIGEST) {
        if let Some((user, _)) = entry.id.split_once(':') {
            entry.id = Text::from(format!("{user}:x"));
        }
    }
}

/// An address and the length of its network prefix, in bits.
struct Network {
    address: IpAddr,
    bits: u32,
}

impl Network {
    fn parse(text: &str) -> Option<Self> {
        let (address, bits) = match text.split_once('/') {
            Some((address, bits)) => (address, Some(bits.parse().ok()?)),
            None => (text, None),
        };
        let address: IpAddr = address.parse().ok()?;
        let width = if address.is_ipv4() { 32 } else { 128 };
        let bits = bits.unwrap_or(width);
        (bits <= width).then_some(Self { address, bits })
    }

    fn contains(&self, ip: IpAddr) -> bool {
        match (self.address, ip) {
            (IpAddr::V4(a), IpAddr::V4(b)) => (u32::from(a) ^ u32::from(b)).leading_zeros() >= self.bits,
            (IpAddr::V6(a), IpAddr::V6(b)) => (u128::from(a) ^ u128::from(b)).leading_zeros() >= self.bits,
            (IpAddr::V4(_), IpAddr::V6(_)) | (IpAddr::V6(_), IpAddr::V4(_)) => false,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn acl(entries: &[(i32, &str, &str)]) -> Vec<AclEntry> {
        entries
            .iter()
            .map(|&(perms, scheme, id)| AclEntry { perms: Perms(perms), scheme: scheme.into(), id: id.into() })
            .collect()
    }

    fn asked(perms: i32, scheme: Option<&str>, id: Option<&str>) -> RequestedAcl {
        RequestedAcl { perms: Perms(perms), scheme: scheme.map(Text::from), id: id.map(Text::from) }
    }

    fn user(name: &str) -> Identity {
        let ids = vec![AuthId { scheme: "digest".into(), id: name.into() }];
        Identity { is_super: false, ip: Some([10, 1, 2, 3].into()), ids }
    }

    #[test]
    fn open_acl_encodes_to_nothing_and_other_acls_round_trip() {
        assert!(encode(&open_acl()).is_empty());
        assert_eq!(decode(b"").unwrap(), open_acl());
        let stored = acl(&[(1, "world", "anyone"), (31, "digest", "u:h"), (0, "ip", "10.0.0.0/8")]);
        assert_eq!(decode(&encode(&stored)).unwrap(), stored);
        assert_eq!(decode(b"xyz"), Err(NotAnAcl));
    }

    #[test]
    fn acl_grants_on_any_shared_permission_bit_of_a_matching_scheme() {
        let stored = encode(&acl(&[(16, "digest", "u:h"), (1, "ip", "10.1.0.0/16")]));
        assert!(user("u:h").may(Perms::READ.union(Perms::ADMIN), &stored));
        assert!(user("other").may(Perms::READ, &stored), "by address");
        assert!(!user("other").may(Perms::ADMIN, &stored));
        assert!(!Identity::default().may(Perms::READ, &stored));
        assert!(Identity { is_super: true, ..Identity::default() }.may(Perms::WRITE, &stored));
    }

    #[test]
    fn acls_are_resolved_as_zookeeper_does() {
        let me = user("u:h");
        let resolve = |entries: &[RequestedAcl]| me.resolve(Some(entries)).map(|bytes| decode(&bytes).unwrap());
        assert_eq!(me.resolve(None), Err(ErrorCode::InvalidAcl));
        assert_eq!(resolve(&[]), Err(ErrorCode::InvalidAcl));
        assert_eq!(resolve(&[asked(1, Some("world"), Some("me"))]), Err(ErrorCode::InvalidAcl));
        assert_eq!(resolve(&[asked(1, None, Some("anyone"))]), Err(ErrorCode::InvalidAcl));
        assert_eq!(resolve(&[asked(1, Some("sasl"), Some("x"))]), Err(ErrorCode::InvalidAcl));
        assert_eq!(resolve(&[asked(1, Some("digest"), Some("a:b:c"))]), Err(ErrorCode::InvalidAcl));
        for scheme in ["digest", "world", "ip"] {
            assert_eq!(resolve(&[asked(1, Some(scheme), None)]), Err(ErrorCode::MarshallingError), "{scheme}");
        }
        assert_eq!(resolve(&[asked(31, Some("auth"), None)]), Ok(acl(&[(31, "digest", "u:h")])));
        let twice = [asked(64, Some("world"), Some("anyone")), asked(64, Some("world"), Some("anyone"))];
        assert_eq!(resolve(&twice), Ok(acl(&[(64, "world", "anyone")])));
        assert_eq!(Identity::default().resolve(Some(&[asked(31, Some("auth"), None)])), Err(ErrorCode::InvalidAcl));
        for (id, good) in [("10.0.0.1", true), ("::1/64", true), ("10.0.0.1/33", false), ("10.0.0", false)] {
            assert_eq!(resolve(&[asked(1, Some("ip"), Some(id))]).is_ok(), good, "{id}");
        }
    }

    #[test]
    fn redacted_acl_hides_password_hashes() {
        let mut shown = acl(&[(31, "digest", "u:hash"), (1, "ip", "10.0.0.1")]);
        redact(&mut shown);
        assert_eq!(shown, acl(&[(31, "digest", "u:x"), (1, "ip", "10.0.0.1")]));
    }
}
