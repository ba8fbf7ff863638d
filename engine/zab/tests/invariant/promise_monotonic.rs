//! INV-PROMISE-MONOTONIC: accepted and current epochs of a disk never go back.
//!
//! A crash must not take them below the values that the server told others. The current epoch never
//! exceeds the accepted one.

use super::{Fact, Invariant};
use crate::net::World;
use std::collections::BTreeMap;
use zoolet_zab::{Epoch, Message};

#[derive(Default)]
pub(super) struct PromiseMonotonic {
    /// By disk: newest accepted and current epochs told to any peer.
    told: BTreeMap<u128, (Epoch, Epoch)>,
    /// By process: newest accepted and current epochs known to it.
    known: BTreeMap<u64, (Epoch, Epoch)>,
}

impl Invariant for PromiseMonotonic {
    fn see(&mut self, world: &World, fact: &Fact<'_>) {
        match fact {
            Fact::Sent { by, message, .. } => {
                let told = self.told.entry(world.server(*by).log.disk.0).or_default();
                match message {
                    // A server may mention an accepted epoch that is not durable yet. The leader
                    // then picks a greater epoch, and nothing is built on the promise.
                    Message::FollowerInfo { credentials, .. } => told.1 = told.1.max(credentials.current),
                    Message::LeaderInfo { epoch, .. } => told.0 = told.0.max(*epoch),
                    Message::AckEpoch { epoch, credentials, .. } => {
                        *told = (told.0.max(*epoch), told.1.max(credentials.current));
                    }
                    _ => {}
                }
                let durable = &world.server(*by).log.durable;
                assert!(durable.accepted >= told.0, "server {by} tells of a promise {:?} that is not durable", told.0);
                assert!(durable.current >= told.1, "server {by} tells of an epoch {:?} that is not durable", told.1);
            }
            Fact::Started { by } => {
                let server = world.server(*by);
                if server.log.damaged {
                    return;
                }
                if let Some(told) = self.told.get(&server.log.disk.0) {
                    let now = (server.zab().accepted(), server.zab().epoch());
                    assert!(now.0 >= told.0, "server {by} forgot its promise {:?}, it knows {:?}", told.0, now.0);
                    assert!(now.1 >= told.1, "server {by} forgot its epoch {:?}, it knows {:?}", told.1, now.1);
                }
            }
            Fact::Turn { by } => {
                let server = world.server(*by);
                let now = (server.zab().accepted(), server.zab().epoch());
                assert!(now.1 <= now.0, "server {by} is in an epoch it did not promise: {now:?}");
                let known = self.known.entry(server.process).or_default();
                assert!(now.0 >= known.0, "the promise of server {by} goes back from {:?} to {:?}", known.0, now.0);
                assert!(now.1 >= known.1, "the epoch of server {by} goes back from {:?} to {:?}", known.1, now.1);
                *known = now;
            }
            _ => {}
        }
    }
}
