//! The times at which features were seen.

use super::Feature;
use crate::oracle::{Connection, History, Received};
use std::collections::{BTreeMap, BTreeSet};
use zoolet_machine::seam::action::{Append, LogRecord};
use zoolet_machine::seam::peer::PeerMessage;
use zoolet_machine::txn::{self, Txn};
use zoolet_model::{Request, SessionId};
use zoolet_zab::{Config, Message, Role, ServerId};

/// Times of all sightings, in microseconds since the run began.
#[derive(Debug, Default)]
pub(in crate::ensemble) struct Sightings {
    at_us: BTreeMap<Feature, BTreeSet<u64>>,
    /// When each server began or ceased to observe.
    observing: BTreeMap<ServerId, BTreeMap<u64, bool>>,
}

impl Sightings {
    pub(in crate::ensemble) fn see(&mut self, at_us: u64, feature: Feature) {
        self.at_us.entry(feature).or_default().insert(at_us);
    }

    /// Returns the features seen in an interval, both ends included.
    pub(in crate::ensemble) fn between(&self, from_us: u64, to_us: u64) -> impl Iterator<Item = Feature> + '_ {
        let seen = self.at_us.iter().filter(move |(_, at_us)| at_us.range(from_us..=to_us).next().is_some());
        seen.map(|(feature, _)| *feature)
    }
}

/// Sightings in and between servers, recorded as they happen.
impl Sightings {
    /// Records a change of a server's role, or its end.
    pub(in crate::ensemble) fn role(&mut self, at_us: u64, server: ServerId, role: Role) {
        self.observing.entry(server).or_default().insert(at_us, matches!(role, Role::Observing(_)));
        if role == Role::Leading {
            self.see(at_us, Feature::Election);
        }
    }

    /// Records an append to a server's log.
    pub(in crate::ensemble) fn appended(&mut self, at_us: u64, append: &Append) {
        for record in &append.records {
            match record {
                LogRecord::Truncate { .. } => self.see(at_us, Feature::Trunc),
                LogRecord::SnapEnd { .. } => self.see(at_us, Feature::Snap),
                LogRecord::Entry { .. }
                | LogRecord::Promise(_)
                | LogRecord::Epoch(_)
                | LogRecord::Config { .. }
                | LogRecord::SnapBegin { .. }
                | LogRecord::Birth { .. }
                | LogRecord::Damaged => {}
            }
        }
    }

    /// Records a message of a peer.
    pub(in crate::ensemble) fn received(&mut self, at_us: u64, at: ServerId, message: &PeerMessage) {
        let feature = match message {
            PeerMessage::Forward { .. } => Feature::ForwardedWrite,
            PeerMessage::Revalidated { up_to: Some(_), .. } => Feature::Revalidation,
            PeerMessage::Zab(message) => match **message {
                Message::Diff { .. } => Feature::Diff,
                Message::Synced { .. } => Feature::ConfirmedRead,
                Message::HandOver { to, .. } if to == at => Feature::HandOver,
                _ => return,
            },
            PeerMessage::Revalidated { up_to: None, .. }
            | PeerMessage::Entries(_)
            | PeerMessage::Snapshot { .. }
            | PeerMessage::Refused { .. }
            | PeerMessage::Revalidate { .. }
            | PeerMessage::Moved { .. }
            | PeerMessage::Touch { .. }
            | PeerMessage::Alive { .. }
            | PeerMessage::Digest { .. }
            | PeerMessage::Health(_) => return,
        };
        self.see(at_us, feature);
    }

    pub(in crate::ensemble) fn checkpointed(&mut self, at_us: u64) {
        self.see(at_us, Feature::Checkpoint);
    }
}

/// Sightings in the clients' history and the committed entries, known after the run.
impl Sightings {
    pub(in crate::ensemble) fn judge(&mut self, history: &History) {
        self.judge_operations(history);
        self.judge_connections(history);
        self.judge_entries(history);
    }

    fn judge_operations(&mut self, history: &History) {
        for operation in &history.operations {
            let Some(answer) = &operation.answer else { continue };
            let error = answer.result.as_ref().map_or_else(|error| Some(*error), |_| None);
            let Some(feature) = Feature::of_request(&operation.request, error) else { continue };
            self.see(answer.at.us, feature);
            if history.connection_of(operation).embedded {
                self.see(answer.at.us, Feature::InProcess);
            }
            if feature.is_read() && self.observes(answer.at.us, history.connection_of(operation).server) {
                self.see(answer.at.us, Feature::ObserverRead);
            }
        }
    }

    fn observes(&self, at_us: u64, server: ServerId) -> bool {
        let known = self.observing.get(&server).and_then(|known| known.range(..=at_us).next_back());
        known.is_some_and(|(_, observes)| *observes)
    }

    fn judge_connections(&mut self, history: &History) {
        let mut servers: BTreeMap<SessionId, ServerId> = BTreeMap::new();
        for connection in &history.connections {
            for received in &connection.received {
                if let Received::Event(at, _) = received {
                    self.see(at.us, Feature::WatchFired);
                }
            }
            if let Some(told) = connection.refused().filter(|_| !connection.wants_new_session()) {
                self.see(told.us, Feature::ToldExpired);
            }
            let Connection { reply: Some((told, _)), server, .. } = connection else { continue };
            let Some(session) = connection.session() else { continue };
            if session.began_local() && connection.wants_new_session() {
                self.see(told.us, Feature::LocalSessionBegun);
            }
            if servers.insert(session, *server).is_some_and(|before| before != *server) {
                self.see(told.us, Feature::SessionMoved);
            }
        }
    }

    fn judge_entries(&mut self, history: &History) {
        let asks = |operation: &&_| {
            let operation: &crate::oracle::Operation = operation;
            operation.request == Request::CloseSession
        };
        let closing = history.operations.iter().filter(asks);
        let closing: BTreeSet<_> = closing.filter_map(|operation| history.connection_of(operation).session()).collect();
        let orphaned = history.connections.iter().filter(|connection| connection.orphaned.is_some());
        let orphaned: BTreeSet<_> = orphaned.filter_map(Connection::session).collect();
        let mut config: Option<Config> = None;
        for entry in &history.committed {
            let Ok((_, txn)) = txn::decode(&entry.payload) else { continue };
            let feature = match txn {
                Txn::CreateSession { .. } => Feature::SessionBegun,
                Txn::UpgradeSession { .. } => Feature::SessionUpgraded,
                Txn::CloseSession { session } if closing.contains(&session) => Feature::SessionClosed,
                Txn::CloseSession { session } if orphaned.contains(&session) => Feature::FormerSession,
                Txn::CloseSession { .. } => Feature::SessionExpired,
                Txn::RenewSession { .. } => Feature::SessionRenewed,
                Txn::Reap { .. } => Feature::Reap,
                Txn::CountUsage { .. } => Feature::CountStep,
                Txn::Membership(bytes) => {
                    let Some(next) = Config::decode(bytes) else { continue };
                    let feature = membership(config.as_ref(), &next);
                    config = Some(next);
                    feature
                }
                Txn::NoOp | Txn::Write { .. } | Txn::Multi { .. } => continue,
            };
            self.see(entry.at.us, feature);
        }
    }
}

fn membership(before: Option<&Config>, now: &Config) -> Feature {
    let Some(before) = before else { return Feature::Birth };
    let who = |config: &Config| config.members().iter().map(|member| (member.id, member.kind)).collect::<Vec<_>>();
    if who(before) == who(now) { Feature::Readmission } else { Feature::Reconfiguration }
}
