//! Random messages between servers.

#![allow(dead_code, reason = "each test uses its part")]
#![allow(clippy::unwrap_used, reason = "tests may unwrap")]

use bytes::Bytes;
use zoolet_machine::seam::action::CheckpointMeta;
use zoolet_machine::seam::event::{ConnId, Shortage};
use zoolet_machine::seam::peer::{Attachment, Claim, Entries, Health, Lane, PeerEntry, PeerMessage, TransferId};
use zoolet_machine::status::{DiskTroubles, Refusal};
use zoolet_model::{ErrorCode, ServerId, SessionId, SessionSecret, Zxid};
use zoolet_sim::workload::Random;
use zoolet_transport::peer::codec::*;
use zoolet_zab::{
    Attempt, Config, Credentials, EnsembleId, Epoch, Incarnation, MEMBERS_MAX, Member, Message, Notification, Role,
    Servers, Span, Spans, Stance,
};

/// Returns a message's kind. The exhaustive match demands a kind for each new message.
pub(crate) fn kind_of(message: &PeerMessage) -> Kind {
    match message {
        PeerMessage::Zab(message) => match &**message {
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
        },
        PeerMessage::Entries(_) => Kind::Entries,
        PeerMessage::Snapshot { .. } => Kind::Snapshot,
        PeerMessage::Refused { .. } => Kind::Refused,
        PeerMessage::Revalidated { .. } => Kind::Revalidated,
        PeerMessage::Moved { .. } => Kind::Moved,
        PeerMessage::Alive { .. } => Kind::Alive,
        PeerMessage::Forward { .. } => Kind::Forward,
        PeerMessage::Revalidate { .. } => Kind::Revalidate,
        PeerMessage::Touch { .. } => Kind::Touch,
        PeerMessage::Digest { .. } => Kind::Digest,
        PeerMessage::Health(_) => Kind::Health,
    }
}

/// Returns a message of this kind; `None` for a kind that is not a message.
///
/// The exhaustive match demands an arm for each new kind.
pub(crate) fn message(random: &mut Random, kind: Kind) -> Option<PeerMessage> {
    Some(match kind {
        Kind::Notification
        | Kind::FollowerInfo
        | Kind::LeaderInfo
        | Kind::AckEpoch
        | Kind::Diff
        | Kind::Trunc
        | Kind::Snap
        | Kind::NewLeader
        | Kind::Proposal
        | Kind::Commit
        | Kind::Ack
        | Kind::Sync
        | Kind::Synced
        | Kind::HandOver
        | Kind::Ping
        | Kind::Pong => PeerMessage::Zab(Box::new(protocol(random, kind)?)),
        Kind::Entries => PeerMessage::Entries(entries(random)),
        Kind::Snapshot => PeerMessage::Snapshot {
            message: Box::new(protocol(random, Kind::Snap)?),
            transfer: TransferId(number(random)),
            meta: CheckpointMeta { zxid: zxid(random), digest: wide(random), totals: payload(random) },
            chain: wide(random),
        },
        Kind::Refused => PeerMessage::Refused { number: number(random), code: *random.pick(&ErrorCode::ALL) },
        Kind::Revalidated => PeerMessage::Revalidated {
            conn: conn(random),
            session: session(random),
            up_to: random.one_in(2).then(|| zxid(random)),
            since: since(random),
        },
        Kind::Moved => PeerMessage::Moved { session: session(random), conn: conn(random) },
        Kind::Alive => PeerMessage::Alive { epoch: epoch(random), claim: claim(random) },
        Kind::Forward => PeerMessage::Forward {
            epoch: epoch(random),
            attempt: Attempt(number(random) as u32),
            conn: conn(random),
            since: since(random),
            payload: payload(random),
        },
        Kind::Revalidate => PeerMessage::Revalidate {
            epoch: epoch(random),
            conn: conn(random),
            session: session(random),
            secret: random.one_in(2).then(|| SessionSecret(wide(random).to_le_bytes())),
            timeout_ms: number(random) as u32,
        },
        Kind::Touch => PeerMessage::Touch {
            epoch: epoch(random),
            sessions: several(random, claim),
            of_this_process: random.one_in(2).then(|| several(random, session)),
        },
        Kind::Digest => PeerMessage::Digest { zxid: zxid(random), digest: wide(random) },
        Kind::Health => PeerMessage::Health(Health {
            role: match number(random) % 4 {
                0 => Role::Looking,
                1 => Role::Leading,
                2 => Role::Following(server(random)),
                _ => Role::Observing(server(random)),
            },
            applied: zxid(random),
            behind: number(random),
            refusal: *random.pick(&[
                None,
                Some(Refusal::ReadOnly),
                Some(Refusal::LogFull),
                Some(Refusal::Shortage(Shortage::Bound)),
                Some(Refusal::Other),
            ]),
            disk: DiskTroubles::from_bits(number(random) as u8),
            lags: random.one_in(2),
            silent: (0..number(random) % 4).map(|_| server(random)).collect(),
            lagging: (0..number(random) % 4).map(|_| server(random)).collect(),
        }),
        Kind::Hello | Kind::OpenLane | Kind::SnapshotRequest | Kind::SnapshotReply => return None,
    })
}

fn claim(random: &mut Random) -> Claim {
    Claim { session: session(random), conn: conn(random), since: since(random) }
}

/// Returns any message of a lane.
pub(crate) fn on_lane(random: &mut Random, lane: Lane) -> PeerMessage {
    loop {
        let kind = *random.pick(Kind::ALL);
        if let Some(message) = message(random, kind).filter(|message| message.lane() == lane) {
            return message;
        }
    }
}

fn protocol(random: &mut Random, kind: Kind) -> Option<Message> {
    let (attempt, epoch) = (Attempt(number(random) as u32), epoch(random));
    Some(match kind {
        Kind::Notification => Message::Notification(notification(random)),
        Kind::FollowerInfo => Message::FollowerInfo { attempt, accepted: epoch, credentials: credentials(random) },
        Kind::LeaderInfo => Message::LeaderInfo { attempt, epoch },
        Kind::AckEpoch => Message::AckEpoch {
            attempt,
            epoch,
            credentials: credentials(random),
            committed: zxid(random),
            tail: spans(random),
            is_damaged: random.one_in(2),
        },
        Kind::Diff => Message::Diff { attempt, epoch, from: zxid(random) },
        Kind::Trunc => Message::Trunc { attempt, epoch, to: zxid(random) },
        Kind::Snap => Message::Snap { attempt, epoch, at_least: zxid(random), config: config(random) },
        Kind::NewLeader => Message::NewLeader { attempt, epoch, serves_from: zxid(random) },
        Kind::Proposal => {
            let (from, to, committed) = (zxid(random), zxid(random), zxid(random));
            Message::Proposal { attempt, epoch, from, to, committed }
        }
        Kind::Commit => Message::Commit { attempt, epoch, to: zxid(random) },
        Kind::Ack => Message::Ack { attempt, epoch, to: zxid(random) },
        Kind::Sync => Message::Sync { attempt, epoch, round: number(random) },
        Kind::Synced => Message::Synced { attempt, epoch, round: number(random), up_to: zxid(random) },
        Kind::HandOver => Message::HandOver { attempt, epoch, to: server(random), last: zxid(random) },
        Kind::Ping => {
            let (interval_ms, quorum_age_ms) = (number(random) as u32, number(random) as u32);
            Message::Ping { attempt, epoch, round: number(random), interval_ms, quorum_age_ms }
        }
        Kind::Pong => {
            let (disk_age_ms, has_room) = (number(random) as u32 >> 1, random.one_in(2));
            Message::Pong { attempt, epoch, round: number(random), disk_age_ms, has_room }
        }
        _ => return None,
    })
}

fn notification(random: &mut Random) -> Notification {
    let mut hears = Servers::NOBODY;
    for _ in 0..random.below(20) {
        hears.insert(server(random));
    }
    let stance = match random.below(4) {
        0 => Stance::Looking { vote: None },
        1 => Stance::Looking { vote: Some(server(random)) },
        2 => Stance::Leading { established: random.one_in(2) },
        _ => Stance::Following { leader: server(random), suspects: random.one_in(2) },
    };
    Notification {
        ensemble: EnsembleId(wide(random)),
        stance,
        epoch: epoch(random),
        credentials: credentials(random),
        config: zxid(random),
        hears,
    }
}

fn spans(random: &mut Random) -> Spans {
    let (mut spans, mut epoch) = (Spans::EMPTY, 0);
    for _ in 0..*random.pick(&[0, 1, 3, 64]) {
        epoch += 1 + random.below(1000) as u32;
        let last = random.bits() % (Zxid::COUNTER_MAX + 1);
        spans.push_span(Span { epoch: Epoch::new(epoch).unwrap(), last });
    }
    spans
}

fn config(random: &mut Random) -> Config {
    let voters = 1 + random.below(MEMBERS_MAX as u64);
    let members: Vec<Member> = (1..=voters as u8)
        .map(|id| Member {
            id: ServerId::new(id).unwrap(),
            kind: if id == 1 || random.one_in(2) { zoolet_zab::Kind::Voter } else { zoolet_zab::Kind::Observer },
            disk: Incarnation(wide(random)),
        })
        .collect();
    Config::new(EnsembleId(wide(random)), zxid(random), &members).unwrap()
}

/// Returns entries as the engine sends them: from one epoch and without gaps.
pub(crate) fn entries(random: &mut Random) -> Entries {
    let count = 1 + random.below(6);
    let from = Zxid::new(epoch(random), random.bits() % (Zxid::COUNTER_MAX - count)).unwrap();
    let mut next = from;
    let entries: Vec<PeerEntry> = (0..count)
        .map(|_| {
            let zxid = next;
            next = next.next().unwrap();
            PeerEntry { zxid, payload: payload(random) }
        })
        .collect();
    Entries {
        attempt: Attempt(number(random) as u32),
        epoch: epoch(random),
        from,
        to: entries.last().unwrap().zxid,
        committed: zxid(random),
        chain_before: wide(random),
        entries,
    }
}

/// Returns any opening of a stream.
pub(crate) fn opening(random: &mut Random) -> Opening {
    match random.below(3) {
        0 => Opening::Hello(hello(random)),
        1 => Opening::Lane(*random.pick(&[StreamLane::Log, StreamLane::Forward])),
        _ => Opening::SnapshotRequest(SnapshotRequest { transfer: TransferId(number(random)), offset: number(random) }),
    }
}

fn hello(random: &mut Random) -> Hello {
    let addresses = ["gw-a:2888", "10.0.3.11:2888", "[2001:db8::7]:2888", "f\u{fc}nf.example:1"];
    Hello {
        minor_version: random.bits() as u16,
        site: (*random.pick(&["", "plant-7", "Gr\u{fc}n\u{1f600}"])).to_owned(),
        from: server(random),
        to: server(random),
        process: number(random),
        process_age_ms: number(random),
        disk: Incarnation(wide(random)),
        addresses: several(random, |random| (*random.pick(&addresses)).to_owned()),
        proof: random.one_in(2).then(|| std::array::from_fn(|_| random.bits() as u8)),
        extension: payload(random),
    }
}

/// Returns any answer to a SnapshotRequest.
pub(crate) fn reply(random: &mut Random) -> SnapshotReply {
    match random.below(2) {
        0 => SnapshotReply::Bytes { bytes: number(random) },
        _ => SnapshotReply::Refused { reason: (*random.pick(&["", "it is not there any more"])).to_owned() },
    }
}

fn several<T>(random: &mut Random, mut make: impl FnMut(&mut Random) -> T) -> Vec<T> {
    (0..random.below(5)).map(|_| make(random)).collect()
}

fn payload(random: &mut Random) -> Bytes {
    let most = *random.pick(&[1, 40, 400]);
    (0..random.below(most)).map(|_| random.bits() as u8).collect::<Vec<_>>().into()
}

fn number(random: &mut Random) -> u64 {
    let any = random.bits();
    *random.pick(&[0, 1, u64::MAX, any])
}

fn wide(random: &mut Random) -> u128 {
    (u128::from(number(random)) << 64) | u128::from(number(random))
}

fn epoch(random: &mut Random) -> Epoch {
    Epoch::new(number(random) as u32 & Epoch::MAX.as_u32()).unwrap()
}

fn zxid(random: &mut Random) -> Zxid {
    Zxid::from_bits(number(random) >> 1).unwrap()
}

fn server(random: &mut Random) -> ServerId {
    ServerId::new(1 + random.below(255) as u8).unwrap()
}

fn credentials(random: &mut Random) -> Credentials {
    Credentials { current: epoch(random), last: zxid(random) }
}

fn session(random: &mut Random) -> SessionId {
    SessionId(number(random) as i64)
}

fn conn(random: &mut Random) -> ConnId {
    ConnId(number(random))
}

fn since(random: &mut Random) -> Attachment {
    Attachment { epoch: epoch(random), round: number(random) }
}
