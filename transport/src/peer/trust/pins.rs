//! Keys pinned to servers.

use super::public_key::PublicKey;
use std::collections::BTreeMap;
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use zoolet_model::ServerId;

/// Keys pinned to servers. Clones share their content.
///
/// A server may have two keys, the old one and the new one, while its disk is replaced.
#[derive(Clone, Debug, Default)]
pub struct Pins(Arc<Mutex<BTreeMap<ServerId, Vec<PublicKey>>>>);

/// One key for two servers.
///
/// One of the servers is a copy, or the text was pasted in the wrong place.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct PinnedTwice {
    /// The key.
    pub key: PublicKey,
    /// The server to which the key is pinned.
    pub one: ServerId,
    /// The server to which it cannot be pinned as well.
    pub other: ServerId,
}

impl fmt::Display for PinnedTwice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (key, one, other) = (self.key, self.one.as_u8(), self.other.as_u8());
        write!(f, "key {key} is pinned to server {one} and to server {other}: each server needs a different key")
    }
}

impl std::error::Error for PinnedTwice {}

impl Pins {
    /// Returns an empty set.
    pub fn new() -> Self {
        Self::default()
    }

    /// Pins another key to a server. Pinning the same key again changes nothing.
    ///
    /// # Errors
    /// [`PinnedTwice`]: the key is pinned to another server.
    pub fn pin(&self, server: ServerId, key: PublicKey) -> Result<(), PinnedTwice> {
        let mut pins = self.lock();
        match owner(&pins, key) {
            Some(owner) if owner == server => Ok(()),
            Some(owner) => Err(PinnedTwice { key, one: owner, other: server }),
            None => {
                pins.entry(server).or_default().push(key);
                Ok(())
            }
        }
    }

    /// Returns the server to which the key is pinned.
    pub fn owner(&self, key: PublicKey) -> Option<ServerId> {
        owner(&self.lock(), key)
    }

    /// Returns whether the key is pinned to the server.
    ///
    /// `None`: no key is pinned to the server.
    pub fn admits(&self, server: ServerId, key: PublicKey) -> Option<bool> {
        self.lock().get(&server).map(|keys| keys.contains(&key))
    }

    /// The data is consistent after every statement, so a poisoned lock is still usable.
    fn lock(&self) -> MutexGuard<'_, BTreeMap<ServerId, Vec<PublicKey>>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn owner(pins: &BTreeMap<ServerId, Vec<PublicKey>>, key: PublicKey) -> Option<ServerId> {
    pins.iter().find(|(_, keys)| keys.contains(&key)).map(|(server, _)| *server)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pinned_key_has_one_owner_and_a_server_may_have_two_keys() {
        let (one, two) = (ServerId::new(1).unwrap(), ServerId::new(2).unwrap());
        let (old, new) = (PublicKey([1; 32]), PublicKey([2; 32]));
        let pins = Pins::new();
        assert_eq!(pins.admits(one, old), None);
        pins.pin(one, old).unwrap();
        pins.pin(one, old).unwrap();
        pins.pin(one, new).unwrap();
        assert_eq!(pins.pin(two, new), Err(PinnedTwice { key: new, one, other: two }));
        assert_eq!((pins.admits(one, old), pins.admits(one, new)), (Some(true), Some(true)));
        assert_eq!(pins.admits(one, PublicKey([3; 32])), Some(false));
        assert_eq!((pins.admits(two, new), pins.owner(new)), (None, Some(one)));
    }
}
