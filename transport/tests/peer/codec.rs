//! The codec between servers: every message round-trips, and nothing else decodes.
#![allow(clippy::unwrap_used, reason = "tests may unwrap")]

use crate::peer_targets::read;
use bytes::{Bytes, BytesMut};
use zoolet_machine::Limits;
use zoolet_machine::seam::event::ConnId;
use zoolet_machine::seam::peer::{
    Attachment, CLAIMS_MAX, Claim, ENTRIES_BYTES_MAX, Entries, Lane, PeerEntry, PeerMessage,
};
use zoolet_model::{SessionId, Zxid};
use zoolet_sim::workload::Random;
use zoolet_transport::peer::codec::*;
use zoolet_zab::{Attempt, Epoch, Message};

const FRAME_MAX: usize = 4096;

/// Returns the message's frame, with the length first.
fn frame(message: &PeerMessage) -> Vec<u8> {
    let mut out = BytesMut::new();
    encode(message, &mut out);
    out.to_vec()
}

fn datagram(message: &PeerMessage) -> Bytes {
    let mut out = BytesMut::new();
    encode_datagram(message, &mut out);
    out.freeze()
}

/// Returns 50 random messages of each kind that has a lane.
fn messages() -> impl Iterator<Item = (Kind, PeerMessage)> {
    (0..50).flat_map(|seed| {
        let mut random = Random::new(seed);
        let one = move |&kind: &Kind| Some((kind, crate::peers::message(&mut random, kind)?));
        Kind::ALL.iter().filter_map(one)
    })
}

#[test]
fn every_peer_message_round_trips() {
    let mut seen = std::collections::BTreeSet::new();
    for (kind, message) in messages() {
        assert_eq!(crate::peers::kind_of(&message), kind);
        let bytes = frame(&message);
        assert_eq!(bytes[4], kind.byte());
        if message.lane() == Lane::Datagram {
            assert_eq!(datagram(&message), bytes[4..]);
            assert!(datagram(&message).len() <= 32, "a heartbeat is small");
            assert_eq!(decode_datagram(datagram(&message)), Ok(message));
        } else {
            assert_eq!(read(message.lane(), &bytes, usize::MAX), (vec![message], None));
        }
        seen.insert(kind);
    }
    assert_eq!(seen.len(), 27);
}

#[test]
fn message_on_the_wrong_lane_is_refused_with_its_kind() {
    for (kind, message) in messages() {
        for lane in [Lane::Datagram, Lane::Log, Lane::Forward].into_iter().filter(|lane| *lane != message.lane()) {
            let error = match lane {
                Lane::Datagram => decode_datagram(Bytes::from(frame(&message)).slice(4..)).unwrap_err(),
                Lane::Log | Lane::Forward => read(lane, &frame(&message), usize::MAX).1.unwrap(),
            };
            assert!(matches!(error, CodecError::Misplaced { kind: misplaced, .. } if misplaced == kind), "{error}");
        }
    }
}

#[test]
fn messages_decode_equally_from_pieces_of_any_size() {
    for lane in [Lane::Log, Lane::Forward] {
        let mut random = Random::new(3);
        let messages: Vec<_> = (0..200).map(|_| crate::peers::on_lane(&mut random, lane)).collect();
        let stream = messages.iter().flat_map(frame).collect::<Vec<_>>();
        for step in [1, 2, 3, 5, 64, 1000, 1452, 40_000, stream.len()] {
            assert_eq!(read(lane, &stream, step), (messages.clone(), None), "in pieces of {step}");
        }
    }
}

#[test]
fn messages_decode_equally_after_all_pieces_arrived_unread() {
    let messages: Vec<_> = {
        let mut random = Random::new(5);
        (0..20).map(|_| crate::peers::on_lane(&mut random, Lane::Log)).collect()
    };
    let mut frames = Frames::new(Lane::Log, FRAME_MAX);
    let stream = messages.iter().flat_map(frame).collect::<Vec<_>>();
    stream.chunks(7).for_each(|piece| frames.push(Bytes::copy_from_slice(piece)));
    for message in messages {
        assert_eq!(frames.next(), Ok(Some(message)));
    }
    assert_eq!(frames.next(), Ok(None));
}

#[test]
fn partial_frame_waits_and_a_short_or_trailing_body_is_refused() {
    for (kind, message) in messages() {
        let lane = message.lane();
        let bytes = frame(&message);
        for end in 0..bytes.len() {
            if lane == Lane::Datagram {
                let expected = if end < 5 { CodecError::Empty } else { CodecError::TooShort(kind) };
                assert_eq!(decode_datagram(Bytes::copy_from_slice(&bytes[4..end.max(4)])), Err(expected));
                continue;
            }
            assert_eq!(read(lane, &bytes[..end], usize::MAX), (vec![], None));
            // The same cut, with a length field that matches it.
            if end >= 5 {
                let short = [&(end as u32 - 4).to_le_bytes(), &bytes[4..end]].concat();
                let (none, error) = read(lane, &short, usize::MAX);
                if kind == Kind::Health && end + 1 == bytes.len() {
                    // An earlier build sends Health without the disk's troubles.
                    assert_eq!((none.len(), error), (1, None));
                    continue;
                }
                assert_eq!((none, error), (vec![], Some(CodecError::TooShort(kind))), "{end} of {message:?}");
            }
        }
        if kind == Kind::Health {
            // Health is only displayed, so bytes added by a later release are skipped.
            continue;
        }
        let long = [&(bytes.len() as u32 - 3).to_le_bytes(), &bytes[4..], &[0]].concat();
        let error = match lane {
            Lane::Datagram => decode_datagram(Bytes::copy_from_slice(&long[4..])).unwrap_err(),
            Lane::Log | Lane::Forward => read(lane, &long, usize::MAX).1.unwrap(),
        };
        assert_eq!(error, CodecError::Trailing { kind, bytes: 1 });
    }
}

/// Every value has one encoding.
///
/// A changed byte is refused, or yields another message with exactly these bytes.
#[test]
fn changed_byte_is_refused_or_decodes_to_a_different_message() {
    // Except Health: unknown parts are skipped, so several encodings decode to one value.
    for (_, message) in messages().filter(|(kind, _)| *kind != Kind::Health) {
        let bytes = frame(&message);
        for at in 0..bytes.len() {
            for flip in [1, 0x10, 0x80, 0xff] {
                let mut changed = bytes.clone();
                changed[at] ^= flip;
                let decoded = match message.lane() {
                    Lane::Datagram => decode_datagram(Bytes::copy_from_slice(&changed[4..])).into_iter().collect(),
                    lane @ (Lane::Log | Lane::Forward) => read(lane, &changed, usize::MAX).0,
                };
                let again: Vec<u8> = decoded.iter().flat_map(frame).collect();
                let skipped = if message.lane() == Lane::Datagram { 4 } else { 0 };
                assert!(
                    again.is_empty() || changed[skipped..].starts_with(&again[skipped..]),
                    "byte {at}: {decoded:?}"
                );
            }
        }
    }
}

#[test]
fn unknown_kind_is_named_and_later_frames_are_refused() {
    let mut stream = frame(&PeerMessage::Zab(Box::new(commit())));
    stream.extend([1, 0, 0, 0, 200]);
    stream.extend(frame(&PeerMessage::Zab(Box::new(commit()))));
    let mut frames = Frames::new(Lane::Log, FRAME_MAX);
    frames.push(stream.into());
    assert_eq!(frames.next(), Ok(Some(PeerMessage::Zab(Box::new(commit())))));
    for _ in 0..3 {
        assert_eq!(frames.next(), Err(CodecError::UnknownKind(200)));
        frames.push(Bytes::from(frame(&PeerMessage::Zab(Box::new(commit())))));
    }
    assert_eq!(CodecError::UnknownKind(200).to_string(), "frame of unknown kind 200");
    for byte in 0..=u8::MAX {
        let known = Kind::ALL.iter().any(|kind| kind.byte() == byte);
        let result = decode_datagram(Bytes::copy_from_slice(&[byte]));
        assert_eq!(result == Err(CodecError::UnknownKind(byte)), !known, "{byte}");
    }
}

fn commit() -> Message {
    Message::Commit { attempt: Attempt(1), epoch: Epoch::new(2).unwrap(), to: Zxid::from_bits(3).unwrap() }
}

#[test]
fn longest_frame_is_accepted_and_a_byte_more_is_refused() {
    let longest = frame(&PeerMessage::Zab(Box::new(commit())));
    let max = longest.len() - 4;
    for (max, is_accepted) in [(max, true), (max - 1, false)] {
        let mut frames = Frames::new(Lane::Log, max);
        // The length field alone is enough to refuse the frame.
        frames.push(Bytes::copy_from_slice(&longest[..4]));
        assert_eq!(frames.next().is_ok(), is_accepted);
    }
    let error = CodecError::TooLong { length: max, max: max - 1 };
    assert!(error.to_string().contains("17 bytes exceeds this server's limit of 16"), "{error}");
}

#[test]
fn largest_message_of_the_machine_fits_the_longest_frame() {
    let limits = Limits { log_segment_bytes: 256 << 10, ..Limits::default() };
    for limits in [Limits::default(), limits, Limits { sessions_max: 100_000, ..limits }] {
        let max = frame_bytes_max(&limits);
        let of_one = entries(vec![Bytes::from(vec![7; limits.payload_bytes_max()])]);
        let smallest = 17;
        let of_many =
            entries(vec![Bytes::from(vec![7; smallest]); ENTRIES_BYTES_MAX / (smallest + size_of::<PeerEntry>())]);
        let forward = PeerMessage::Forward {
            epoch: Epoch::ZERO,
            attempt: Attempt(1),
            conn: ConnId(1),
            since: Attachment::default(),
            payload: vec![7; limits.payload_bytes_max()].into(),
        };
        let claim = Claim { session: SessionId(1), conn: ConnId(1), since: Attachment::default() };
        let touch = PeerMessage::Touch {
            epoch: Epoch::ZERO,
            sessions: vec![claim; CLAIMS_MAX],
            of_this_process: Some(vec![SessionId(1); limits.sessions_max as usize]),
        };
        for message in [of_one, of_many, forward, touch] {
            let bytes = frame(&message);
            assert!(bytes.len() - 4 <= max, "{} of {max}", bytes.len() - 4);
            let mut frames = Frames::new(message.lane(), max);
            for piece in bytes.chunks(1452) {
                assert_eq!(frames.next(), Ok(None));
                frames.push(Bytes::copy_from_slice(piece));
            }
            assert_eq!(frames.next(), Ok(Some(message)));
        }
    }
}

fn entries(payloads: Vec<Bytes>) -> PeerMessage {
    let from = Zxid::first_of(Epoch::new(3).unwrap());
    let mut next = Some(from);
    let entries: Vec<_> = payloads
        .into_iter()
        .map(|payload| {
            let zxid = next.unwrap();
            next = zxid.next();
            PeerEntry { zxid, payload }
        })
        .collect();
    let to = entries.last().unwrap().zxid;
    let (attempt, epoch) = (Attempt(1), Epoch::new(4).unwrap());
    PeerMessage::Entries(Entries { attempt, epoch, from, to, committed: from, chain_before: 5, entries })
}
