//! The messages of the Zab protocol.

use super::Kind;
use super::frame_reader::{Read, Reader};
use super::frame_writer;
use bytes::{BufMut, BytesMut};
use zoolet_model::{ServerId, Zxid};
use zoolet_zab::{Attempt, Config, Epoch, Message, Notification, SPANS_MAX, Servers, Span};
use zoolet_zab::{Spans, Stance};

/// Flag in a Pong's append age: no room for writes on disk.
///
/// The age is capped below this bit, at 24.8 days in milliseconds. Releases without the flag always
/// sent 0 here. They read the flag as a huge age, so they treat the sender's disk as slow.
const NO_ROOM: u32 = 1 << 31;

/// Encodes the stance of a Notification's sender in one byte.
///
/// The next byte is the server voted for or followed, or 0.
mod stance {
    pub(super) const LOOKING: u8 = 0;
    pub(super) const LEADING: u8 = 1;
    pub(super) const ESTABLISHED: u8 = 2;
    pub(super) const FOLLOWING: u8 = 3;
    pub(super) const SUSPECTING: u8 = 4;
}

pub(super) fn kind_of(message: &Message) -> Kind {
    match message {
        Message::Notification(_) => Kind::Notification,
        Message::FollowerInfo { .. } => Kind::FollowerInfo,
        Message::LeaderInfo { .. } => Kind::LeaderInfo,
        Message::AckEpoch { .. } => Kind::AckEpoch,
        Message::Diff { .. } => Kind::Diff,
        Message::Trunc { .. } => Kind::Trunc,
        Message::Snap { .. } => Kind::Snap,
        Message::NewLeader { .. } => Kind::NewLeader,
        Message::Proposal { .. } => Kind::Proposal,
        Message::Commit { .. } => Kind::Commit,
        Message::Ack { .. } => Kind::Ack,
        Message::Sync { .. } => Kind::Sync,
        Message::Synced { .. } => Kind::Synced,
        Message::HandOver { .. } => Kind::HandOver,
        Message::Ping { .. } => Kind::Ping,
        Message::Pong { .. } => Kind::Pong,
    }
}

/// Appends the body, which follows the kind.
pub(super) fn encode(message: &Message, out: &mut BytesMut) {
    match message {
        Message::Notification(notification) => put_notification(out, notification),
        Message::FollowerInfo { attempt, accepted, credentials } => {
            begin(out, *attempt, *accepted);
            frame_writer::credentials(out, *credentials);
        }
        Message::LeaderInfo { attempt, epoch } => begin(out, *attempt, *epoch),
        Message::AckEpoch { attempt, epoch, credentials, committed, tail, is_damaged } => {
            begin(out, *attempt, *epoch);
            frame_writer::credentials(out, *credentials);
            frame_writer::zxid(out, *committed);
            put_spans(out, tail);
            frame_writer::bool(out, *is_damaged);
        }
        Message::Diff { attempt, epoch, from: at }
        | Message::Trunc { attempt, epoch, to: at }
        | Message::NewLeader { attempt, epoch, serves_from: at }
        | Message::Commit { attempt, epoch, to: at }
        | Message::Ack { attempt, epoch, to: at } => {
            begin(out, *attempt, *epoch);
            frame_writer::zxid(out, *at);
        }
        Message::Snap { attempt, epoch, at_least, config } => {
            begin(out, *attempt, *epoch);
            frame_writer::zxid(out, *at_least);
            frame_writer::bytes(out, &config.encode());
        }
        Message::Proposal { attempt, epoch, from, to, committed } => {
            begin(out, *attempt, *epoch);
            [from, to, committed].into_iter().for_each(|zxid| frame_writer::zxid(out, *zxid));
        }
        Message::Sync { attempt, epoch, round } => {
            begin(out, *attempt, *epoch);
            out.put_u64_le(*round);
        }
        Message::Synced { attempt, epoch, round, up_to } => {
            begin(out, *attempt, *epoch);
            out.put_u64_le(*round);
            frame_writer::zxid(out, *up_to);
        }
        Message::HandOver { attempt, epoch, to, last } => {
            begin(out, *attempt, *epoch);
            out.put_u8(to.as_u8());
            frame_writer::zxid(out, *last);
        }
        Message::Ping { attempt, epoch, round, interval_ms, quorum_age_ms } => {
            begin(out, *attempt, *epoch);
            out.put_u64_le(*round);
            out.put_u32_le(*interval_ms);
            out.put_u32_le(*quorum_age_ms);
        }
        Message::Pong { attempt, epoch, round, disk_age_ms, has_room } => {
            begin(out, *attempt, *epoch);
            out.put_u64_le(*round);
            out.put_u32_le((*disk_age_ms).min(NO_ROOM - 1) | if *has_room { 0 } else { NO_ROOM });
        }
    }
}

/// Appends the attempt and the epoch, which start every message except Notification.
fn begin(out: &mut BytesMut, attempt: Attempt, epoch: Epoch) {
    out.put_u32_le(attempt.0);
    frame_writer::epoch(out, epoch);
}

fn put_notification(out: &mut BytesMut, notification: &Notification) {
    let Notification { ensemble, stance, epoch, credentials, config, hears } = notification;
    out.put_u128_le(ensemble.0);
    let (stance, whom) = match *stance {
        Stance::Looking { vote } => (stance::LOOKING, vote),
        Stance::Leading { established: false } => (stance::LEADING, None),
        Stance::Leading { established: true } => (stance::ESTABLISHED, None),
        Stance::Following { leader, suspects: false } => (stance::FOLLOWING, Some(leader)),
        Stance::Following { leader, suspects: true } => (stance::SUSPECTING, Some(leader)),
    };
    out.put_slice(&[stance, whom.map_or(0, ServerId::as_u8)]);
    frame_writer::epoch(out, *epoch);
    frame_writer::credentials(out, *credentials);
    frame_writer::zxid(out, *config);
    let mut bits = [0; 32];
    for id in (1..=u8::MAX).filter(|&id| ServerId::new(id).is_some_and(|id| hears.contains(id))) {
        bits[usize::from(id / 8)] |= 1 << (id % 8);
    }
    out.put_slice(&bits);
}

fn put_spans(out: &mut BytesMut, spans: &Spans) {
    out.put_u8(spans.iter().count() as u8);
    for Span { epoch, last } in spans.iter() {
        frame_writer::epoch(out, epoch);
        out.put_u64_le(last);
    }
}

/// Decodes the body of a Zab message of this kind.
pub(super) fn decode(kind: Kind, reader: &mut Reader) -> Read<Message> {
    if kind == Kind::Notification {
        return notification(reader).map(Message::Notification);
    }
    let (attempt, epoch) = (reader.attempt()?, reader.epoch()?);
    Ok(match kind {
        Kind::FollowerInfo => Message::FollowerInfo { attempt, accepted: epoch, credentials: reader.credentials()? },
        Kind::LeaderInfo => Message::LeaderInfo { attempt, epoch },
        Kind::AckEpoch => Message::AckEpoch {
            attempt,
            epoch,
            credentials: reader.credentials()?,
            committed: reader.zxid()?,
            tail: spans(reader)?,
            is_damaged: reader.bool()?,
        },
        Kind::Diff => Message::Diff { attempt, epoch, from: reader.zxid()? },
        Kind::Trunc => Message::Trunc { attempt, epoch, to: reader.zxid()? },
        Kind::Snap => Message::Snap { attempt, epoch, at_least: reader.zxid()?, config: config(reader)? },
        Kind::NewLeader => Message::NewLeader { attempt, epoch, serves_from: reader.zxid()? },
        Kind::Proposal => {
            let (from, to, committed) = (reader.zxid()?, reader.zxid()?, reader.zxid()?);
            Message::Proposal { attempt, epoch, from, to, committed }
        }
        Kind::Commit => Message::Commit { attempt, epoch, to: reader.zxid()? },
        Kind::Ack => Message::Ack { attempt, epoch, to: reader.zxid()? },
        Kind::Sync => Message::Sync { attempt, epoch, round: reader.u64()? },
        Kind::Synced => Message::Synced { attempt, epoch, round: reader.u64()?, up_to: reader.zxid()? },
        Kind::HandOver => Message::HandOver { attempt, epoch, to: reader.server()?, last: reader.zxid()? },
        Kind::Ping => {
            let (round, interval_ms, quorum_age_ms) = (reader.u64()?, reader.u32()?, reader.u32()?);
            Message::Ping { attempt, epoch, round, interval_ms, quorum_age_ms }
        }
        Kind::Pong => {
            let (round, age) = (reader.u64()?, reader.u32()?);
            Message::Pong { attempt, epoch, round, disk_age_ms: age & !NO_ROOM, has_room: age & NO_ROOM == 0 }
        }
        Kind::Notification
        | Kind::Entries
        | Kind::Snapshot
        | Kind::Refused
        | Kind::Revalidated
        | Kind::Moved
        | Kind::Alive
        | Kind::Health
        | Kind::Forward
        | Kind::Revalidate
        | Kind::Touch
        | Kind::Digest
        | Kind::Hello
        | Kind::OpenLane
        | Kind::SnapshotRequest
        | Kind::SnapshotReply => return Err(reader.misplaced()),
    })
}

fn notification(reader: &mut Reader) -> Read<Notification> {
    let ensemble = reader.ensemble()?;
    let (stance, whom) = (reader.u8()?, ServerId::new(reader.u8()?));
    let stance = match (stance, whom) {
        (stance::LOOKING, vote) => Stance::Looking { vote },
        (stance::LEADING, None) => Stance::Leading { established: false },
        (stance::ESTABLISHED, None) => Stance::Leading { established: true },
        (stance::FOLLOWING, Some(leader)) => Stance::Following { leader, suspects: false },
        (stance::SUSPECTING, Some(leader)) => Stance::Following { leader, suspects: true },
        _ => return Err(reader.invalid("an unknown stance")),
    };
    let (epoch, credentials, config) = (reader.epoch()?, reader.credentials()?, reader.zxid()?);
    Ok(Notification { ensemble, stance, epoch, credentials, config, hears: servers(reader)? })
}

fn servers(reader: &mut Reader) -> Read<Servers> {
    let bits: [u8; 32] = reader.array()?;
    let mut servers = Servers::NOBODY;
    for id in (0..=u8::MAX).filter(|id| bits[usize::from(id / 8)] & (1 << (id % 8)) != 0) {
        servers.insert(ServerId::new(id).ok_or_else(|| reader.invalid("server id 0"))?);
    }
    Ok(servers)
}

/// Validates the history here, because the engine panics on an invalid one.
fn spans(reader: &mut Reader) -> Read<Spans> {
    let count = usize::from(reader.u8()?);
    if count > SPANS_MAX {
        return Err(reader.invalid("a history of too many epochs"));
    }
    let (mut spans, mut newest) = (Spans::EMPTY, Epoch::ZERO);
    for _ in 0..count {
        let (epoch, last) = (reader.epoch()?, reader.u64()?);
        if epoch <= newest || Zxid::new(epoch, last).is_none() {
            return Err(reader.invalid("an invalid history"));
        }
        spans.push_span(Span { epoch, last });
        newest = epoch;
    }
    Ok(spans)
}

fn config(reader: &mut Reader) -> Read<Config> {
    let bytes = reader.counted_bytes()?;
    Config::decode(&bytes).ok_or_else(|| reader.invalid("an invalid configuration"))
}
