//! Short readable forms of messages, roles and records, for traces.

use super::log::Record;
use std::fmt;
use zoolet_zab::{Config, Credentials, Kind, Message, Notification, Role, ServerId, Servers, Stance};

pub(crate) struct Short<'a, T>(pub(crate) &'a T);

impl fmt::Display for Short<'_, Message> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            Message::Notification(notification) => Short(notification).fmt(f),
            Message::FollowerInfo { attempt, accepted, credentials } => {
                write!(f, "FollowerInfo accepted {} {} (attempt {})", accepted.as_u32(), Short(credentials), attempt.0)
            }
            Message::LeaderInfo { attempt, epoch } => {
                write!(f, "LeaderInfo {} (attempt {})", epoch.as_u32(), attempt.0)
            }
            Message::AckEpoch { epoch, credentials, committed, tail, .. } => {
                write!(f, "AckEpoch {} {} committed {committed:?} tail", epoch.as_u32(), Short(credentials))?;
                tail.iter().try_for_each(|span| write!(f, " {}.{}", span.epoch.as_u32(), span.last))
            }
            Message::Diff { epoch, from, .. } => write!(f, "Diff {} from {from:?}", epoch.as_u32()),
            Message::Trunc { epoch, to, .. } => write!(f, "Trunc {} to {to:?}", epoch.as_u32()),
            Message::Snap { epoch, at_least, config, .. } => {
                write!(f, "Snap {} at least {at_least:?}, {}", epoch.as_u32(), Short(config))
            }
            Message::NewLeader { epoch, .. } => write!(f, "NewLeader {}", epoch.as_u32()),
            Message::Proposal { from, to, committed, .. } => {
                if from == to {
                    write!(f, "Proposal {from:?} committed {committed:?}")
                } else {
                    write!(f, "Proposal {from:?} to {to:?} committed {committed:?}")
                }
            }
            Message::Commit { to, .. } => write!(f, "Commit {to:?}"),
            Message::Ack { to, .. } => write!(f, "Ack {to:?}"),
            Message::Sync { round, .. } => write!(f, "Sync {round}"),
            Message::Synced { round, up_to, .. } => write!(f, "Synced {round} up to {up_to:?}"),
            Message::HandOver { to, last, .. } => write!(f, "HandOver to {} at {last:?}", to.as_u8()),
            Message::Ping { round, interval_ms, quorum_age_ms, .. } => {
                write!(f, "Ping round {round} every {interval_ms} ms, quorum {quorum_age_ms} ms ago")
            }
            Message::Pong { round, disk_age_ms, has_room, .. } => {
                let room = if *has_room { "" } else { ", no room" };
                write!(f, "Pong round {round}, disk {disk_age_ms} ms{room}")
            }
        }
    }
}

impl fmt::Display for Short<'_, Notification> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Notification { ensemble: _, stance, epoch, credentials, config: _, hears } = self.0;
        match stance {
            Stance::Looking { vote: Some(vote) } => write!(f, "looking, votes {}", vote.as_u8())?,
            Stance::Looking { vote: None } => write!(f, "looking, no vote")?,
            Stance::Leading { established: true } => write!(f, "leading")?,
            Stance::Leading { established: false } => write!(f, "elected")?,
            Stance::Following { leader, suspects: false } => write!(f, "following {}", leader.as_u8())?,
            Stance::Following { leader, suspects: true } => write!(f, "following {}, suspects", leader.as_u8())?,
        }
        write!(f, "; accepted {} {}; hears{}", epoch.as_u32(), Short(credentials), Short(hears))
    }
}

impl fmt::Display for Short<'_, Credentials> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "holds {}/{:?}", self.0.current.as_u32(), self.0.last)
    }
}

impl fmt::Display for Short<'_, Servers> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut ids = (1..=255).filter(|id| ServerId::new(*id).is_some_and(|id| self.0.contains(id))).peekable();
        if ids.peek().is_none() {
            return f.write_str(" nobody");
        }
        ids.try_for_each(|id| write!(f, " {id}"))
    }
}

impl fmt::Display for Short<'_, Config> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "members {:?}:", self.0.version)?;
        self.0.members().iter().try_for_each(|member| match member.kind {
            Kind::Voter => write!(f, " {}", member.id.as_u8()),
            Kind::Observer => write!(f, " o{}", member.id.as_u8()),
        })
    }
}

impl fmt::Display for Short<'_, Role> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            Role::Looking => f.write_str("looks"),
            Role::Leading => f.write_str("leads"),
            Role::Following(leader) => write!(f, "follows {}", leader.as_u8()),
            Role::Observing(leader) => write!(f, "observes {}", leader.as_u8()),
        }
    }
}

impl fmt::Display for Short<'_, Record> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            Record::Promise(epoch) => write!(f, "promise {}", epoch.as_u32()),
            Record::Epoch(epoch) => write!(f, "epoch {}", epoch.as_u32()),
            Record::Damaged => write!(f, "damaged"),
            Record::Birth(_) => f.write_str("birth"),
            Record::Configs { committed, pending: None } => write!(f, "{}", Short(&**committed)),
            Record::Configs { committed, pending: Some(pending) } => {
                write!(f, "{}; proposed {}", Short(&**committed), Short(&**pending))
            }
            Record::Truncate(to) => write!(f, "truncate to {to:?}"),
            Record::SnapEnd(entries) => write!(f, "snapshot of {} entries", entries.len()),
            Record::Entry(entry) => match &entry.config {
                None => write!(f, "entry {:?}", entry.zxid),
                Some(config) => write!(f, "entry {:?}, {}", entry.zxid, Short(&**config)),
            },
        }
    }
}
