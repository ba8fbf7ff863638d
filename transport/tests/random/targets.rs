//! Fuzz targets of the client codec, both sides.

use super::Random;
use bytes::{Bytes, BytesMut};
use std::hint::black_box;
use zoolet_model::*;
use zoolet_sim::fuzz::Target;
use zoolet_transport::client_port::{Whitelist, Word};
use zoolet_transport::wire::client_side::*;
use zoolet_transport::wire::*;

/// Every target.
pub(crate) const TARGETS: &[Target] = &[REQUEST, REPLY, CONNECT, EVENT, STREAM, WORDS];

const SWITCHES: [DecodeOptions; 2] = [DecodeOptions { extended_types: true }, DecodeOptions { extended_types: false }];
const FRAME_MAX: usize = 1_048_575;

type Numbers = zoolet_sim::workload::Random;

fn messages(numbers: &mut Numbers) -> Random {
    Random::new(numbers.bits())
}

fn frame(write: impl FnOnce(&mut BytesMut)) -> Bytes {
    let mut out = BytesMut::new();
    write(&mut out);
    out.freeze().slice(4..)
}

/// One request, decoded by the server.
const REQUEST: Target = Target { name: "wire_request", valid: any_request, check: check_request };

fn any_request(numbers: &mut Numbers) -> Vec<u8> {
    let request = messages(numbers).request();
    frame(|out| encode_request(7, &request, out)).to_vec()
}

fn check_request(bytes: &[u8]) {
    let bytes = Bytes::copy_from_slice(bytes);
    for options in SWITCHES {
        let Ok((xid, request)) = decode_request(bytes.clone(), &options) else {
            assert!(bytes.len() < 8, "whatever has a header is a request");
            continue;
        };
        assert!(elements_bytes(&request) <= bytes.len(), "{request:?} was not in {} bytes", bytes.len());
        let written = frame(|out| encode_request(xid, &request, out));
        let again = decode_request(written, &options);
        if can_be_said_again(&request, &options) {
            assert_eq!(again, Ok((xid, request)));
        } else {
            assert!(again.is_ok());
        }
    }
}

/// Returns the minimum bytes on the wire of the request's elements.
fn elements_bytes(request: &Request) -> usize {
    match request {
        Request::Multi(operations) => operations.len() * 17,
        Request::MultiRead(reads) => reads.len() * 14,
        Request::SetWatches(watches) => {
            let paths = [&watches.data, &watches.exist, &watches.child];
            let more = [&watches.persistent, &watches.persistent_recursive];
            paths.into_iter().chain(more).map(|paths| paths.capacity() * 4).sum()
        }
        Request::Write(WriteOp::Create(Create { acl: Some(acl), .. }) | WriteOp::SetAcl { acl: Some(acl), .. }) => {
            match acl {
                AskedAcl::Owned(acl) => acl.capacity() * 12,
                AskedAcl::Borrowed(_) => 0,
            }
        }
        _ => 0,
    }
}

/// Whether our client's encoding of `request` decodes to the same request.
///
/// The client uses one opcode per kind of create, and cannot express every mode that a server
/// decodes.
fn can_be_said_again(request: &Request, options: &DecodeOptions) -> bool {
    let sayable = |create: &Create, in_multi: bool| match create.mode {
        CreateMode::Valid { kind: CreateKind::Persistent | CreateKind::Ephemeral, .. } | CreateMode::BadArguments => {
            true
        }
        CreateMode::Valid { kind: CreateKind::Container, sequential } => create.with_stat && !(in_multi && sequential),
        CreateMode::Valid { kind: CreateKind::Ttl { .. }, .. } => create.with_stat && options.extended_types,
        CreateMode::Unimplemented => create.with_stat && !options.extended_types,
        CreateMode::Mismatched => in_multi,
    };
    match request {
        Request::Write(WriteOp::Create(create)) => sayable(create, false),
        Request::Multi(operations) => operations
            .iter()
            .all(|operation| if let WriteOp::Create(create) = operation { sayable(create, true) } else { true }),
        _ => true,
    }
}

/// One reply, decoded by a client. The first byte selects the shape.
const REPLY: Target = Target { name: "wire_reply", valid: any_reply, check: check_reply };

/// Every shape of a reply.
pub(crate) const SHAPES: [Shape; 15] = [
    Shape::Empty,
    Shape::Path,
    Shape::PathStat,
    Shape::Stat,
    Shape::Data,
    Shape::Names,
    Shape::NamesStat,
    Shape::Acl,
    Shape::Count,
    Shape::Synced,
    Shape::NullToken,
    Shape::Ids,
    Shape::WatchAdded,
    Shape::Multi,
    Shape::MultiRead,
];

fn any_reply(numbers: &mut Numbers) -> Vec<u8> {
    let mut random = messages(numbers);
    let request = random.request();
    let result = if random.below(8) == 0 { Err(random.error_code()) } else { Ok(random.reply_to(&request)) };
    let shape = SHAPES.iter().position(|shape| *shape == Shape::of(&request)).unwrap_or(0);
    [&[shape as u8][..], &frame(|out| encode_reply(7, 9, &result, out))].concat()
}

fn check_reply(bytes: &[u8]) {
    let Some((shape, bytes)) = bytes.split_first() else { return };
    let shape = SHAPES[usize::from(*shape) % SHAPES.len()];
    let Ok((header, result)) = decode_reply(Bytes::copy_from_slice(bytes), shape) else { return };
    let written = frame(|out| encode_reply(header.xid, header.zxid, &result, out));
    let (again, same) = decode_reply(written, shape).expect("what was written is read");
    assert_eq!((again.xid, again.zxid, same), (header.xid, header.zxid, result));
}

/// Handshakes, both directions.
const CONNECT: Target = Target { name: "wire_connect", valid: any_connect, check: check_connect };

fn any_connect(numbers: &mut Numbers) -> Vec<u8> {
    let request = messages(numbers).connect();
    frame(|out| encode_connect(&request, out)).to_vec()
}

fn check_connect(bytes: &[u8]) {
    let bytes = Bytes::copy_from_slice(bytes);
    if let Ok(request) = decode_connect(bytes.clone()) {
        assert_eq!(decode_connect(frame(|out| encode_connect(&request, out))), Ok(request));
    }
    if let Ok(reply) = decode_connect_reply(bytes) {
        assert_eq!(decode_connect_reply(frame(|out| encode_connect_reply(&reply, out))), Ok(reply));
    }
}

/// Watch events, decoded by a client.
const EVENT: Target = Target { name: "wire_event", valid: any_event, check: check_event };

fn any_event(numbers: &mut Numbers) -> Vec<u8> {
    let event = messages(numbers).event();
    frame(|out| encode_event(&event, out)).to_vec()
}

fn check_event(bytes: &[u8]) {
    if let Ok(event) = decode_event(Bytes::copy_from_slice(bytes)) {
        assert_eq!(decode_event(frame(|out| encode_event(&event, out))), Ok(event));
    }
}

/// The bytes of one connection. Reads of any size must yield the same frames.
const STREAM: Target = Target { name: "wire_stream", valid: any_stream, check: check_stream };

fn any_stream(numbers: &mut Numbers) -> Vec<u8> {
    let mut random = messages(numbers);
    let mut out = BytesMut::new();
    encode_connect(&random.connect(), &mut out);
    for xid in 0..random.below(6) {
        let request = random.request();
        encode_request(xid as i32, &request, &mut out);
    }
    out.to_vec()
}

fn check_stream(bytes: &[u8]) {
    let frames = |step: usize| {
        let (mut buffer, mut frames) = (BytesMut::new(), Vec::new());
        for read in bytes.chunks(step.max(1)) {
            buffer.extend_from_slice(read);
            loop {
                match split_frame(&mut buffer, FRAME_MAX) {
                    Ok(Some(frame)) => frames.push(frame),
                    Ok(None) => break,
                    Err(error) => return (frames, Some(error)),
                }
            }
        }
        (frames, None)
    };
    let whole = frames(bytes.len());
    for step in [1, 3, 7] {
        assert_eq!(frames(step), whole, "in reads of {step}");
    }
    for frame in whole.0 {
        let _ = black_box(decode_request(frame, &SWITCHES[0]));
    }
}

/// Lists of four-letter words.
const WORDS: Target = Target { name: "words", valid: any_words, check: check_words };

fn any_words(numbers: &mut Numbers) -> Vec<u8> {
    let words: Vec<&str> = (0..numbers.below(5)).map(|_| numbers.pick(&Word::ALL).text()).collect();
    words.join(numbers.pick::<&str>(&[",", ", ", ",,", " ", "*"])).into_bytes()
}

fn check_words(bytes: &[u8]) {
    let text = String::from_utf8_lossy(bytes);
    let list = Whitelist::parse(&text);
    for word in Word::ALL {
        let named = text.trim() == "*" || text.split(',').any(|name| name.trim() == word.text());
        assert_eq!(list.allows(word), named, "{}", word.text());
    }
}
