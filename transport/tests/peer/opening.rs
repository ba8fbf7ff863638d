//! The openings of streams between servers. Strangers can send them too.
#![allow(clippy::unwrap_used, reason = "tests may unwrap")]

use bytes::BytesMut;
use zoolet_sim::workload::Random;
use zoolet_transport::peer::codec::*;

type Take<T> = fn(&mut BytesMut) -> Result<Option<T>, CodecError>;

fn encoded<T>(of: &T, encode: fn(&T, &mut BytesMut)) -> BytesMut {
    let mut out = BytesMut::new();
    encode(of, &mut out);
    out
}

fn hello(change: impl FnOnce(&mut Hello)) -> Hello {
    let mut random = Random::new(1);
    loop {
        if let Opening::Hello(mut hello) = crate::peers::opening(&mut random) {
            hello.addresses = vec!["gw-a:2888".to_owned()];
            change(&mut hello);
            return hello;
        }
    }
}

/// Encodes and decodes a Hello, as the other side does.
fn said(hello: Hello) -> Result<Hello, CodecError> {
    match Opening::take(&mut encoded(&Opening::Hello(hello), Opening::encode)) {
        Ok(Some(Opening::Hello(hello))) => Ok(hello),
        Ok(other) => panic!("{other:?}"),
        Err(error) => Err(error),
    }
}

fn comes_back_in_any_pieces<T: PartialEq + std::fmt::Debug>(of: T, encode: fn(&T, &mut BytesMut), take: Take<T>) {
    let bytes = encoded(&of, encode);
    let mut received = BytesMut::new();
    for byte in &bytes {
        assert_eq!(take(&mut received), Ok(None));
        received.extend_from_slice(&[*byte]);
    }
    received.extend_from_slice(b"what follows");
    assert_eq!(take(&mut received), Ok(Some(of)));
    assert_eq!(received, b"what follows"[..]);
    // With a changed byte it is refused, incomplete, or another value. A panic would fail this
    // test.
    for at in 0..bytes.len() {
        for flip in [1, 0x80, 0xff] {
            let mut changed = bytes.clone();
            changed[at] ^= flip;
            let _ = take(&mut changed);
        }
    }
}

#[test]
fn opening_frames_round_trip_and_leave_the_bytes_behind_them() {
    let mut random = Random::new(9);
    for _ in 0..200 {
        comes_back_in_any_pieces(crate::peers::opening(&mut random), Opening::encode, Opening::take);
        comes_back_in_any_pieces(crate::peers::reply(&mut random), SnapshotReply::encode, SnapshotReply::take);
    }
}

#[test]
fn opening_frame_above_its_maximum_length_is_refused_at_once() {
    let mut received = BytesMut::from(&(OPENING_BYTES_MAX as u32 + 1).to_le_bytes()[..]);
    let refused = CodecError::TooLong { length: OPENING_BYTES_MAX + 1, max: OPENING_BYTES_MAX };
    assert_eq!(Opening::take(&mut received), Err(refused));
    let mut received = BytesMut::from(&(OPENING_BYTES_MAX as u32).to_le_bytes()[..]);
    assert_eq!(Opening::take(&mut received), Ok(None));
    // A web browser connects.
    let mut received = BytesMut::from(&b"GET / HTTP/1.1\r\n\r\n"[..]);
    assert!(matches!(Opening::take(&mut received), Err(CodecError::TooLong { .. })));
}

#[test]
fn longest_hello_fits_an_opening_frame() {
    let longest = hello(|hello| {
        hello.site = "s".repeat(SITE_BYTES_MAX);
        hello.addresses = vec!["a".repeat(ADDRESS_BYTES_MAX); ADDRESSES_MAX];
        hello.proof = Some([7; 32]);
        hello.extension = vec![7; EXTENSION_BYTES_MAX].into();
    });
    let bytes = encoded(&Opening::Hello(longest.clone()), Opening::encode);
    assert!(bytes.len() - 4 <= OPENING_BYTES_MAX, "{}", bytes.len());
    assert_eq!(said(longest.clone()), Ok(longest));
}

#[test]
fn oversized_hello_fields_are_cut_or_omitted_when_encoding() {
    let sayable = |address: &String| address.len() <= ADDRESS_BYTES_MAX;
    let long = hello(|hello| {
        hello.site = "\u{fc}".repeat(SITE_BYTES_MAX);
        hello.addresses = (0..20).map(|i| if i % 2 == 0 { "a".repeat(1000) } else { format!("gw-{i}:1") }).collect();
    });
    let read = said(long.clone()).unwrap();
    assert_eq!(read.site, "\u{fc}".repeat(SITE_BYTES_MAX / 2));
    assert_eq!(read.addresses, long.addresses.into_iter().filter(sayable).take(ADDRESSES_MAX).collect::<Vec<_>>());
    // Text that may reach a log must contain no control characters.
    assert_eq!(said(hello(|hello| hello.site = "a\r\nb\x1b[31m".to_owned())).unwrap().site, "ab[31m");
}

#[test]
fn texts_with_control_characters_or_bad_utf8_are_refused() {
    let honest = encoded(&SnapshotReply::Refused { reason: "gone".to_owned() }, SnapshotReply::encode);
    let at = honest.len() - 1;
    for (byte, what) in [(b'\n', "control characters in a text"), (0xff, "a text that is not UTF-8")] {
        let mut changed = honest.clone();
        changed[at] = byte;
        assert_eq!(SnapshotReply::take(&mut changed), Err(CodecError::Invalid { kind: Kind::SnapshotReply, what }));
    }
}

#[test]
fn peer_message_in_place_of_an_opening_frame_is_refused() {
    let mut random = Random::new(4);
    for &kind in Kind::ALL {
        let Some(message) = crate::peers::message(&mut random, kind) else { continue };
        let frame = encoded(&message, encode);
        if frame.len() > OPENING_BYTES_MAX {
            continue;
        }
        let refused = |error| matches!(error, CodecError::Misplaced { kind: misplaced, .. } if misplaced == kind);
        assert!(Opening::take(&mut frame.clone()).is_err_and(refused));
        assert!(SnapshotReply::take(&mut frame.clone()).is_err_and(refused));
    }
}
