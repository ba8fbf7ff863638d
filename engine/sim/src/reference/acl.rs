//! Identities and permissions (surface 6).

use base64ct::{Base64, Encoding};
use sha1::{Digest, Sha1};
use std::net::IpAddr;
use zoolet_model::{AclEntry, AuthId, ErrorCode, Perms, RequestedAcl, Text};

/// The identities of one connection.
#[derive(Clone, Default, PartialEq, Eq, Debug)]
pub struct Ids {
    ids: Vec<AuthId>,
}

impl Ids {
    /// Returns the initial identities of a connection: its address.
    pub fn of_peer(peer: Option<IpAddr>) -> Self {
        Self { ids: peer.map(|ip| id_of("ip", &ip.to_string())).into_iter().collect() }
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = &AuthId> {
        self.ids.iter()
    }

    /// Surface 6.2.
    pub(crate) fn may(&self, acl: &[AclEntry], wanted: Perms) -> bool {
        acl.is_empty()
            || self.ids.iter().any(|id| id.scheme == "super")
            || acl.iter().any(|entry| {
                entry.perms.0 & wanted.0 != 0
                    && (entry.scheme == "world" && entry.id == "anyone" || self.ids.iter().any(|id| matches(entry, id)))
            })
    }

    /// Surface 6.3: handles an auth packet; returns whether it is accepted.
    pub(crate) fn authenticate(
        &mut self,
        scheme: Option<&str>,
        auth: Option<&[u8]>,
        super_digest: Option<&str>,
    ) -> bool {
        match (scheme, auth) {
            (Some("digest"), Some(auth)) => {
                let text = String::from_utf8_lossy(auth);
                let digest = digest_of(&text);
                if super_digest == Some(digest.as_str()) {
                    self.add(id_of("super", ""));
                }
                self.add(id_of("digest", &digest));
                true
            }
            (Some("ip"), _) => true,
            _ => false,
        }
    }

    fn add(&mut self, id: AuthId) {
        if !self.ids.contains(&id) {
            self.ids.push(id);
        }
    }

    /// Surface 6.4: returns the ACL to store for a list that a client sent.
    pub(crate) fn resolve(&self, requested: Option<&[RequestedAcl]>) -> Result<Vec<AclEntry>, ErrorCode> {
        let mut unique: Vec<&RequestedAcl> = Vec::new();
        for entry in requested.into_iter().flatten() {
            if !unique.contains(&entry) {
                unique.push(entry);
            }
        }
        if unique.is_empty() {
            return Err(ErrorCode::InvalidAcl);
        }
        let mut stored = Vec::new();
        for entry in unique {
            match (entry.scheme.as_deref(), entry.id.as_deref()) {
                (Some("world"), Some("anyone")) => stored.push(entry_of(entry.perms, "world", "anyone")),
                (Some("auth"), _) => {
                    let proven: Vec<_> = self.ids.iter().filter(|id| id.scheme == "digest").collect();
                    if proven.is_empty() {
                        return Err(ErrorCode::InvalidAcl);
                    }
                    stored.extend(proven.into_iter().map(|id| entry_of(entry.perms, "digest", &id.id)));
                }
                (Some("digest"), Some(id)) if id.matches(':').count() == 1 => {
                    stored.push(entry_of(entry.perms, "digest", id));
                }
                (Some("digest" | "world" | "ip"), None) => return Err(ErrorCode::MarshallingError),
                (Some("ip"), Some(id)) if network(id).is_some() => stored.push(entry_of(entry.perms, "ip", id)),
                _ => return Err(ErrorCode::InvalidAcl),
            }
        }
        Ok(stored)
    }
}

/// Returns `user:base64(sha1(user:password))`; the user is the text before the first colon.
pub fn digest_of(user_and_password: &str) -> String {
    let user = user_and_password.split(':').next().unwrap_or("");
    let mut text = [0; 28];
    let hash = Base64::encode(&Sha1::digest(user_and_password.as_bytes()), &mut text).unwrap_or_default();
    format!("{user}:{hash}")
}

fn id_of(scheme: &str, id: &str) -> AuthId {
    AuthId { scheme: scheme.into(), id: id.into() }
}

fn entry_of(perms: Perms, scheme: &str, id: &str) -> AclEntry {
    AclEntry { perms, scheme: scheme.into(), id: id.into() }
}

fn matches(entry: &AclEntry, id: &AuthId) -> bool {
    if entry.scheme != id.scheme {
        return false;
    }
    if entry.scheme == "ip" {
        let (Some((network, bits)), Ok(address)) = (network(&entry.id), id.id.parse::<IpAddr>()) else { return false };
        return prefix(network, bits) == prefix(address, bits) && network.is_ipv4() == address.is_ipv4();
    }
    entry.id == id.id
}

/// Parses an address with the number of significant bits.
fn network(id: &str) -> Option<(IpAddr, u32)> {
    let (address, bits) = match id.split_once('/') {
        Some((address, bits)) => (address, Some(bits.parse::<u32>().ok()?)),
        None => (id, None),
    };
    let address: IpAddr = address.parse().ok()?;
    let all = if address.is_ipv4() { 32 } else { 128 };
    let bits = bits.unwrap_or(all);
    (bits <= all).then_some((address, bits))
}

fn prefix(address: IpAddr, bits: u32) -> Vec<bool> {
    let octets = match address {
        IpAddr::V4(v4) => v4.octets().to_vec(),
        IpAddr::V6(v6) => v6.octets().to_vec(),
    };
    octets.iter().flat_map(|octet| (0..8).map(move |bit| octet >> (7 - bit) & 1 == 1)).take(bits as usize).collect()
}

/// Returns an ACL as shown to a client without ADMIN (surface 6.5).
pub(super) fn redacted(acl: &[AclEntry]) -> Vec<AclEntry> {
    let cut = |entry: &AclEntry| match entry.id.split_once(':') {
        Some((user, _)) if entry.scheme == "digest" => entry_of(entry.perms, "digest", &format!("{user}:x")),
        _ => entry.clone(),
    };
    acl.iter().map(cut).collect()
}

/// Returns an identity as whoAmI shows it.
pub(crate) fn shown(id: &AuthId) -> AuthId {
    let user = if id.scheme == "digest" { id.id.split(':').next().map(Text::from) } else { None };
    AuthId { scheme: id.scheme.clone(), id: user.unwrap_or_else(|| id.id.clone()) }
}
