//! Golden bytes between servers, as docs/reference/formats.md describes them.
//!
//! A release must read the messages of the previous one.
#![allow(clippy::unwrap_used, reason = "tests may unwrap")]

use bytes::{Bytes, BytesMut};
use zoolet_machine::seam::action::CheckpointMeta;
use zoolet_machine::seam::event::{ConnId, Shortage};
use zoolet_machine::seam::peer::{Attachment, Claim, Entries, Health, Lane, PeerEntry, PeerMessage, TransferId};
use zoolet_machine::status::{DiskTroubles, Refusal};
use zoolet_model::{ErrorCode, ServerId, SessionId, SessionSecret, Zxid};
use zoolet_transport::peer::codec::*;
use zoolet_zab::{
    Attempt, Config, Credentials, EnsembleId, Epoch, Incarnation, Member, Message, Notification, Role, Servers, Span,
    Spans, Stance,
};

const GOLDEN: &str = include_str!("../golden/between_servers.txt");

/// A value with an encoding.
#[derive(Clone, PartialEq, Debug)]
enum Sample {
    Message(PeerMessage),
    Opening(Opening),
    Reply(SnapshotReply),
}

impl Sample {
    fn encode(&self) -> BytesMut {
        let mut out = BytesMut::new();
        match self {
            Self::Message(message) => encode(message, &mut out),
            Self::Opening(opening) => opening.encode(&mut out),
            Self::Reply(reply) => reply.encode(&mut out),
        }
        out
    }

    /// Decodes the bytes as a value of this sample's type.
    fn decode(&self, mut bytes: BytesMut) -> Result<Option<Self>, CodecError> {
        match self {
            Self::Message(message) if message.lane() == Lane::Datagram => {
                decode_datagram(bytes.split_off(4).freeze()).map(|message| Some(Self::Message(message)))
            }
            Self::Message(message) => {
                let mut frames = Frames::new(message.lane(), 4096);
                frames.push(bytes.freeze());
                Ok(frames.next()?.map(Self::Message))
            }
            Self::Opening(_) => Ok(Opening::take(&mut bytes)?.map(Self::Opening)),
            Self::Reply(_) => Ok(SnapshotReply::take(&mut bytes)?.map(Self::Reply)),
        }
    }
}

/// Returns samples of a kind. The exhaustive match demands samples for a new kind.
fn samples(kind: Kind) -> Vec<Sample> {
    let (attempt, epoch, round) = (Attempt(0x0a), Epoch::new(0x0e).unwrap(), 0x77);
    let credentials = Credentials { current: Epoch::new(0x0c).unwrap(), last: zxid(0x0d, 0x1d) };
    let one = |message: Message| vec![Sample::Message(PeerMessage::Zab(Box::new(message)))];
    match kind {
        Kind::Notification => {
            let mut hears = Servers::NOBODY;
            [1, 9, 255].into_iter().for_each(|id| hears.insert(server(id)));
            let stances = [
                Stance::Looking { vote: None },
                Stance::Looking { vote: Some(server(3)) },
                Stance::Leading { established: false },
                Stance::Leading { established: true },
                Stance::Following { leader: server(2), suspects: false },
                Stance::Following { leader: server(2), suspects: true },
            ];
            let ensemble = EnsembleId(0x1122);
            let said = |stance| Notification { ensemble, stance, epoch, credentials, config: zxid(4, 5), hears };
            stances.into_iter().flat_map(|stance| one(Message::Notification(said(stance)))).collect()
        }
        Kind::FollowerInfo => one(Message::FollowerInfo { attempt, accepted: epoch, credentials }),
        Kind::LeaderInfo => one(Message::LeaderInfo { attempt, epoch }),
        Kind::AckEpoch => {
            let mut tail = Spans::EMPTY;
            [(5, 6), (7, 8)].into_iter().for_each(|(epoch, last)| {
                tail.push_span(Span { epoch: Epoch::new(epoch).unwrap(), last });
            });
            one(Message::AckEpoch { attempt, epoch, credentials, committed: zxid(5, 1), tail, is_damaged: true })
        }
        Kind::Diff => one(Message::Diff { attempt, epoch, from: zxid(1, 2) }),
        Kind::Trunc => one(Message::Trunc { attempt, epoch, to: zxid(1, 2) }),
        Kind::Snap => one(snap(attempt, epoch)),
        Kind::NewLeader => one(Message::NewLeader { attempt, epoch, serves_from: zxid(1, 2) }),
        Kind::Proposal => {
            one(Message::Proposal { attempt, epoch, from: zxid(1, 2), to: zxid(1, 4), committed: zxid(1, 3) })
        }
        Kind::Commit => one(Message::Commit { attempt, epoch, to: zxid(1, 2) }),
        Kind::Ack => one(Message::Ack { attempt, epoch, to: zxid(1, 2) }),
        Kind::Sync => one(Message::Sync { attempt, epoch, round }),
        Kind::Synced => one(Message::Synced { attempt, epoch, round, up_to: zxid(1, 2) }),
        Kind::HandOver => one(Message::HandOver { attempt, epoch, to: server(2), last: zxid(1, 2) }),
        Kind::Ping => one(Message::Ping { attempt, epoch, round, interval_ms: 0x50, quorum_age_ms: 0x60 }),
        Kind::Pong => [true, false]
            .map(|has_room| Message::Pong { attempt, epoch, round, disk_age_ms: 0x60, has_room })
            .map(|message| Sample::Message(PeerMessage::Zab(Box::new(message))))
            .to_vec(),
        Kind::Entries
        | Kind::Snapshot
        | Kind::Refused
        | Kind::Revalidated
        | Kind::Moved
        | Kind::Alive
        | Kind::Health
        | Kind::Forward
        | Kind::Revalidate
        | Kind::Touch
        | Kind::Digest => messages(kind),
        Kind::Hello | Kind::OpenLane | Kind::SnapshotRequest | Kind::SnapshotReply => of_streams(kind),
    }
}

fn messages(kind: Kind) -> Vec<Sample> {
    let (attempt, epoch) = (Attempt(0x0a), Epoch::new(0x0e).unwrap());
    let (conn, session) = (ConnId(0xc0), SessionId(0x5e));
    let since = Attachment { epoch: Epoch::new(0x0b).unwrap(), round: 0x99 };
    let payload = Bytes::from_static(b"payload");
    let all = match kind {
        Kind::Entries => {
            let (from, to) = (zxid(1, 2), zxid(1, 3));
            let entries = vec![PeerEntry { zxid: from, payload }, PeerEntry { zxid: to, payload: Bytes::new() }];
            vec![PeerMessage::Entries(Entries {
                attempt,
                epoch,
                from,
                to,
                committed: zxid(1, 1),
                chain_before: 0xcc,
                entries,
            })]
        }
        Kind::Snapshot => vec![PeerMessage::Snapshot {
            message: Box::new(snap(attempt, epoch)),
            transfer: TransferId(0x7f),
            meta: CheckpointMeta { zxid: zxid(1, 2), digest: 0xd1, totals: Bytes::from_static(b"totals") },
            chain: 0xcc,
        }],
        Kind::Refused => vec![PeerMessage::Refused { number: 0x44, code: ErrorCode::NoNode }],
        Kind::Revalidated => {
            [None, Some(zxid(1, 2))].map(|up_to| PeerMessage::Revalidated { conn, session, up_to, since }).to_vec()
        }
        Kind::Moved => vec![PeerMessage::Moved { session, conn }],
        Kind::Alive => vec![PeerMessage::Alive { epoch, claim: Claim { session, conn, since } }],
        Kind::Forward => vec![PeerMessage::Forward { epoch, attempt, conn, since, payload }],
        Kind::Revalidate => [None, Some(SessionSecret(*b"sixteen bytes .."))]
            .map(|secret| PeerMessage::Revalidate { epoch, conn, session, secret, timeout_ms: 0x1000 })
            .to_vec(),
        Kind::Touch => {
            let claim = Claim { session, conn, since };
            vec![
                PeerMessage::Touch { epoch, sessions: vec![claim], of_this_process: None },
                PeerMessage::Touch { epoch, sessions: vec![], of_this_process: Some(vec![session, SessionId(-1)]) },
            ]
        }
        Kind::Digest => vec![PeerMessage::Digest { zxid: zxid(1, 2), digest: 0xd1 }],
        Kind::Health => vec![
            PeerMessage::Health(Health { applied: zxid(1, 2), ..Health::default() }),
            PeerMessage::Health(Health {
                role: Role::Leading,
                applied: zxid(1, 2),
                behind: 0x0b,
                refusal: Some(Refusal::Shortage(Shortage::Disk)),
                disk: DiskTroubles::from_bits(0x09),
                lags: true,
                silent: vec![server(3)],
                lagging: vec![server(4), server(5)],
            }),
            PeerMessage::Health(Health {
                role: Role::Following(server(2)),
                refusal: Some(Refusal::Other),
                ..Health::default()
            }),
        ],
        _ => vec![],
    };
    all.into_iter().map(Sample::Message).collect()
}

fn of_streams(kind: Kind) -> Vec<Sample> {
    match kind {
        Kind::Hello => {
            let hello = Hello {
                minor_version: 0x0102,
                site: "plant-7".to_owned(),
                from: server(2),
                to: server(3),
                process: 0x0123_4567_89ab_cdef,
                process_age_ms: 0x0fed,
                disk: Incarnation(0xd15c),
                addresses: vec!["gw-a:2888".to_owned(), "[::1]:1".to_owned()],
                proof: Some(*b"thirty-two bytes that prove it ."),
                extension: Bytes::new(),
            };
            let plain = Hello { site: String::new(), addresses: vec![], proof: None, ..hello.clone() };
            [hello, plain].map(|hello| Sample::Opening(Opening::Hello(hello))).to_vec()
        }
        Kind::OpenLane => {
            [StreamLane::Log, StreamLane::Forward].map(|lane| Sample::Opening(Opening::Lane(lane))).to_vec()
        }
        Kind::SnapshotRequest => {
            let request = SnapshotRequest { transfer: TransferId(0x7f), offset: 0x1000 };
            vec![Sample::Opening(Opening::SnapshotRequest(request))]
        }
        Kind::SnapshotReply => {
            let refused = SnapshotReply::Refused { reason: "gone".to_owned() };
            [SnapshotReply::Bytes { bytes: 0x1234 }, refused].map(Sample::Reply).to_vec()
        }
        _ => vec![],
    }
}

fn snap(attempt: Attempt, epoch: Epoch) -> Message {
    let member = |id, kind| Member { id: server(id), kind, disk: Incarnation(0xd0 + u128::from(id)) };
    let members = [member(1, zoolet_zab::Kind::Voter), member(9, zoolet_zab::Kind::Observer)];
    let config = Config::new(EnsembleId(0x1122), zxid(1, 0), &members).unwrap();
    Message::Snap { attempt, epoch, at_least: zxid(1, 2), config }
}

fn zxid(epoch: u32, counter: u64) -> Zxid {
    Zxid::new(Epoch::new(epoch).unwrap(), counter).unwrap()
}

fn server(id: u8) -> ServerId {
    ServerId::new(id).unwrap()
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

fn bytes(hex: &str) -> BytesMut {
    (0..hex.len()).step_by(2).map(|at| u8::from_str_radix(&hex[at..at + 2], 16).unwrap()).collect()
}

#[test]
fn golden_bytes_of_every_message_kind() {
    let mut found = String::new();
    for &kind in Kind::ALL {
        assert!(!samples(kind).is_empty(), "no sample of {kind:?}");
        for sample in samples(kind) {
            found += &format!("{kind:?} {}\n", hex(&sample.encode()));
        }
    }
    assert!(found == GOLDEN, "what is said now:\n{found}");
}

#[test]
fn golden_bytes_decode_to_their_messages() {
    let mut lines = GOLDEN.lines();
    for sample in Kind::ALL.iter().flat_map(|&kind| samples(kind)) {
        let (_, golden) = lines.next().unwrap().split_once(' ').unwrap();
        assert_eq!(sample.decode(bytes(golden)), Ok(Some(sample)));
    }
    assert_eq!(lines.next(), None);
}

#[test]
fn trailing_bytes_of_a_health_from_a_later_release_are_skipped() {
    for sample in messages(Kind::Health) {
        let mut longer = sample.encode();
        longer.extend_from_slice(b"later");
        let length = longer.len() as u32 - 4;
        longer[..4].copy_from_slice(&length.to_le_bytes());
        assert_eq!(sample.decode(longer), Ok(Some(sample)));
    }
}

/// A later release may extend the Hello. This release must still read the rest, and keep the
/// extension unchanged, because the proof covers it.
#[test]
fn unknown_hello_extension_is_kept_unchanged() {
    for sample in of_streams(Kind::Hello) {
        let mut longer = sample.encode();
        let end = longer.len() - 4;
        assert_eq!(longer[end..], [0; 4], "a Hello of this release ends with an extension that is empty");
        longer.truncate(end);
        longer.extend_from_slice(b"\x05\0\0\0later");
        let length = longer.len() as u32 - 4;
        longer[..4].copy_from_slice(&length.to_le_bytes());
        let Ok(Some(Sample::Opening(Opening::Hello(read)))) = sample.decode(longer.clone()) else { panic!("a Hello") };
        assert_eq!(read.extension, b"later"[..]);
        assert_eq!(Sample::Opening(Opening::Hello(read.clone())).encode(), longer);
        assert_eq!(Sample::Opening(Opening::Hello(Hello { extension: Bytes::new(), ..read })), sample);
        // Bytes after the extension are refused.
        longer.extend_from_slice(&[0]);
        longer[..4].copy_from_slice(&(length + 1).to_le_bytes());
        assert_eq!(sample.decode(longer), Err(CodecError::Trailing { kind: Kind::Hello, bytes: 1 }));
    }
}
