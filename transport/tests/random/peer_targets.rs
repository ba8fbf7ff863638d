//! Fuzz targets of the codec between servers.

use super::peers;
use bytes::{Bytes, BytesMut};
use zoolet_machine::seam::peer::{Lane, PeerMessage};
use zoolet_sim::fuzz::Target;
use zoolet_sim::workload::Random;
use zoolet_transport::peer::codec::*;

/// Every target.
pub(crate) const TARGETS: &[Target] = &[FRAMES, OPENING];

/// Shorter than in a server, so that some frames are too long.
const FRAME_MAX: usize = 20_000;

/// The messages of one lane, in pieces of any size. The first byte selects the lane.
const FRAMES: Target = Target { name: "peer_frames", valid: any_frames, check: check_frames };

const LANES: [Lane; 3] = [Lane::Log, Lane::Forward, Lane::Datagram];

fn any_frames(random: &mut Random) -> Vec<u8> {
    let lane = random.below(3) as usize;
    let mut out = BytesMut::from(&[lane as u8][..]);
    if LANES[lane] == Lane::Datagram {
        encode_datagram(&peers::on_lane(random, LANES[lane]), &mut out);
    } else {
        (0..random.below(5)).for_each(|_| encode(&peers::on_lane(random, LANES[lane]), &mut out));
    }
    out.to_vec()
}

fn check_frames(bytes: &[u8]) {
    let Some((lane, bytes)) = bytes.split_first() else { return };
    let lane = LANES[usize::from(*lane) % LANES.len()];
    if lane == Lane::Datagram {
        let Ok(message) = decode_datagram(Bytes::copy_from_slice(bytes)) else { return };
        let mut again = BytesMut::new();
        encode_datagram(&message, &mut again);
        return assert_eq!(again, bytes, "a message has one form");
    }
    let (messages, error) = read(lane, bytes, bytes.len());
    for step in [1, 3, 1452] {
        assert_eq!(read(lane, bytes, step), (messages.clone(), error), "in pieces of {step}");
    }
    let mut again = BytesMut::new();
    messages.iter().for_each(|message| encode(message, &mut again));
    // A later release may extend Health, and unknown parts are skipped.
    if messages.iter().any(|message| matches!(message, PeerMessage::Health(_))) {
        return assert_eq!(read(lane, &again, again.len()), (messages, None), "what is read can be written");
    }
    assert!(bytes.starts_with(&again), "a message has one form");
}

/// Decodes a stream in pieces of `step` bytes; returns the messages and the error at the end.
pub(crate) fn read(lane: Lane, stream: &[u8], step: usize) -> (Vec<PeerMessage>, Option<CodecError>) {
    let (mut frames, mut messages) = (Frames::new(lane, FRAME_MAX), Vec::new());
    for piece in stream.chunks(step.max(1)) {
        frames.push(Bytes::copy_from_slice(piece));
        loop {
            match frames.next() {
                Ok(Some(message)) => messages.push(message),
                Ok(None) => break,
                Err(error) => return (messages, Some(error)),
            }
        }
    }
    (messages, None)
}

/// Openings of streams and answers to a SnapshotRequest. The first byte selects between them.
const OPENING: Target = Target { name: "peer_opening", valid: any_opening, check: check_opening };

fn any_opening(random: &mut Random) -> Vec<u8> {
    let is_opening = !random.one_in(3);
    let mut out = BytesMut::from(&[is_opening.into()][..]);
    match is_opening {
        true => peers::opening(random).encode(&mut out),
        false => peers::reply(random).encode(&mut out),
    }
    out.to_vec()
}

fn check_opening(bytes: &[u8]) {
    let Some((first, bytes)) = bytes.split_first() else { return };
    match first % 2 {
        0 => check_first(bytes, SnapshotReply::take, SnapshotReply::encode),
        _ => check_first(bytes, Opening::take, Opening::encode),
    }
}

type Take<T> = fn(&mut BytesMut) -> Result<Option<T>, CodecError>;

/// Checks the decoding of the first value in `bytes`.
///
/// It is decoded as soon as it is complete, the bytes behind it stay, and it has one encoding.
fn check_first<T: PartialEq + std::fmt::Debug>(bytes: &[u8], take: Take<T>, encode: fn(&T, &mut BytesMut)) {
    let mut received = BytesMut::from(bytes);
    let result = take(&mut received);
    let mut piecewise = BytesMut::new();
    let found = bytes.iter().find_map(|byte| {
        piecewise.extend_from_slice(&[*byte]);
        take(&mut piecewise).transpose()
    });
    assert_eq!(found.transpose(), result, "byte by byte");
    if let Ok(Some(first)) = result {
        assert!(bytes.ends_with(&received), "what follows is untouched");
        let mut again = BytesMut::new();
        encode(&first, &mut again);
        assert_eq!(again, bytes[..bytes.len() - received.len()], "a beginning has one form");
    }
}
