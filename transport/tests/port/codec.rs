//! The codec against itself, against bytes written by hand, and against garbage.

#![allow(clippy::unwrap_used, clippy::print_stderr, reason = "a test stops at the first surprise")]

use crate::random::Random;
use bytes::{Bytes, BytesMut};
use zoolet_model::*;
use zoolet_transport::wire::client_side::*;
use zoolet_transport::wire::*;

const TTL_ON: DecodeOptions = DecodeOptions { extended_types: true };
const FRAME_MAX: usize = 1_048_575;

fn only_frame(mut out: BytesMut) -> Bytes {
    let frame = split_frame(&mut out, FRAME_MAX).unwrap().expect("a whole frame");
    assert!(out.is_empty(), "more than one frame");
    frame
}

fn written(write: impl FnOnce(&mut BytesMut)) -> Bytes {
    let mut out = BytesMut::new();
    write(&mut out);
    only_frame(out)
}

#[test]
fn requests_round_trip() {
    let mut random = Random::new(1);
    for _ in 0..20_000 {
        let (xid, request) = (random.next() as i32, random.request());
        let frame = written(|out| encode_request(xid, &request, out));
        assert_eq!(decode_request(frame, &TTL_ON), Ok((xid, request)));
    }
}

#[test]
fn replies_round_trip() {
    let mut random = Random::new(2);
    for _ in 0..20_000 {
        let request = random.request();
        let (xid, zxid) = (random.next() as i32, random.next() as i64);
        let result = if random.below(8) == 0 { Err(random.error_code()) } else { Ok(random.reply_to(&request)) };
        let frame = written(|out| encode_reply(xid, zxid, &result, out));
        let error = result.as_ref().map_or_else(|error| error.code(), |_| 0);
        assert_eq!(decode_reply(frame, Shape::of(&request)), Ok((Header { xid, zxid, error }, result)));
    }
}

#[test]
fn handshakes_and_events_round_trip() {
    let mut random = Random::new(3);
    for _ in 0..5_000 {
        let connect = random.connect();
        assert_eq!(decode_connect(written(|out| encode_connect(&connect, out))), Ok(connect.clone()));
        let reply = ConnectReply {
            timeout_ms: connect.timeout_ms,
            session: connect.session,
            secret: SessionSecret([random.next() as u8; 16]),
            read_only_byte: connect.read_only.is_some(),
            read_only_ms: connect.read_only.filter(|is_asked| *is_asked).map(|_| 0),
        };
        assert_eq!(decode_connect_reply(written(|out| encode_connect_reply(&reply, out))), Ok(reply));
        let event = random.event();
        assert_eq!(decode_event(written(|out| encode_event(&event, out))), Ok(event));
    }
}

/// Decodes hexadecimal digits; ignores spaces.
fn hex(text: &str) -> Bytes {
    let digits: Vec<u8> = text.bytes().filter(u8::is_ascii_hexdigit).collect();
    digits.chunks(2).map(|pair| u8::from_str_radix(std::str::from_utf8(pair).unwrap(), 16).unwrap()).collect()
}

fn decoded(body: &str) -> Request {
    let frame = hex(&format!("00000007 {body}"));
    let (xid, request) = decode_request(frame, &DecodeOptions::default()).unwrap();
    assert_eq!(xid, 7);
    request
}

const PATH_A: &str = "00000002 2f61";
const OPEN: &str = "00000001 0000001f 00000005 776f726c64 00000006 616e796f6e65";

fn create(mode: CreateMode, with_stat: bool) -> Create {
    Create {
        path: Text::from("/a"),
        data: Some(Bytes::from_static(b"x")),
        acl: Some(RequestedAcl::open()),
        mode,
        with_stat,
    }
}

fn valid(kind: CreateKind, sequential: bool) -> CreateMode {
    CreateMode::Valid { kind, sequential }
}

#[test]
fn handshake_bytes_equal_zookeepers() {
    let old = "00000000 0000000000000005 00007530 0000000000000000 00000010 00000000000000000000000000000000";
    let request = ConnectRequest {
        last_zxid_seen: 5,
        timeout_ms: 30_000,
        session: SessionId(0),
        password: Some(Bytes::from_static(&[0; 16])),
        read_only: None,
    };
    assert_eq!(hex(old).len(), 44);
    assert_eq!(decode_connect(hex(old)), Ok(request.clone()));
    let new = format!("{old} 01");
    assert_eq!(decode_connect(hex(&new)), Ok(ConnectRequest { read_only: Some(true), ..request.clone() }));
    let null_password = "00000000 0000000000000005 00007530 0000000000000000 ffffffff 00";
    let null = ConnectRequest { password: None, read_only: Some(false), ..request };
    assert_eq!(decode_connect(hex(null_password)), Ok(null));
    assert_eq!(decode_connect(Bytes::new()), Err(Malformed));
    assert_eq!(decode_connect(hex(old).slice(..43)), Err(Malformed));

    // The C client reads 4 + 37 bytes as one block.
    let reply = ConnectReply {
        timeout_ms: 30_000,
        session: SessionId(0x0102),
        secret: SessionSecret([9; 16]),
        read_only_byte: true,
        read_only_ms: None,
    };
    let mut out = BytesMut::new();
    encode_connect_reply(&reply, &mut out);
    let expected = "00000025 00000000 00007530 0000000000000102 00000010 09090909090909090909090909090909 00";
    assert_eq!(out, hex(expected));
    out.clear();
    encode_connect_reply(&ConnectReply { read_only_ms: Some(5230), ..reply }, &mut out);
    assert_eq!(out.last(), Some(&1), "the server is read-only");
    out.clear();
    encode_connect_reply(&ConnectReply { read_only_byte: false, ..reply }, &mut out);
    assert_eq!(out.len(), 4 + 36);
}

#[test]
fn request_bytes_are_decoded_as_in_zookeeper() {
    let a = || Text::from("/a");
    assert_eq!(
        decoded(&format!("00000001 {PATH_A} 00000001 78 {OPEN} 00000003")),
        Request::Write(WriteOp::Create(create(valid(CreateKind::Ephemeral, true), false)))
    );
    assert_eq!(
        decoded(&format!("00000005 {PATH_A} ffffffff ffffffff")),
        Request::Write(WriteOp::SetData { path: a(), data: None, version: -1 })
    );
    assert_eq!(
        decoded(&format!("00000005 {PATH_A} 00000000 00000002")),
        Request::Write(WriteOp::SetData { path: a(), data: Some(Bytes::new()), version: 2 })
    );
    // Any byte but zero is true, and bytes after the body are ignored.
    assert_eq!(decoded(&format!("00000004 {PATH_A} 07 ffff")), Request::GetData { path: a(), watch: true });
    assert_eq!(
        decoded(&format!("0000000c {PATH_A} 00")),
        Request::GetChildren { path: a(), watch: false, with_stat: true }
    );
    assert_eq!(decoded("00000009 ffffffff"), Request::Sync { path: None });
    assert_eq!(decoded("0000000b"), Request::Ping);
    assert_eq!(decoded("fffffff5"), Request::CloseSession);
    assert_eq!(
        decoded("00000064 00000000 00000006 646967657374 00000003 613a62"),
        Request::Auth { scheme: Some(Text::from("digest")), auth: Some(Bytes::from_static(b"a:b")) }
    );
    // A count below -1 is an empty vector.
    assert_eq!(
        decoded(&format!("00000065 0000000000000001 00000001 {PATH_A} 00000000 fffffffe")),
        Request::SetWatches(SetWatches { relative_zxid: 1, data: vec![a()], ..SetWatches::default() })
    );
    // kazoo sends an empty id as null.
    let kazoo = "00000001 0000001f 00000004 61757468 ffffffff";
    let Request::Write(WriteOp::SetAcl { acl: Some(acl), .. }) =
        decoded(&format!("00000007 {PATH_A} {kazoo} 00000000"))
    else {
        panic!("setACL")
    };
    assert_eq!(*acl, [RequestedAcl { perms: Perms::ALL, scheme: Some(Text::from("auth")), id: None }]);
}

#[test]
fn invalid_utf8_in_a_path_is_replaced_and_the_frame_accepted() {
    assert_eq!(decoded("00000006 00000003 2fff61"), Request::GetAcl { path: Text::from("/\u{fffd}a") });
}

#[test]
fn null_path_is_empty_where_zookeeper_accepts_it() {
    let none = Text::EMPTY;
    let set_data = WriteOp::SetData { path: none.clone(), data: None, version: -1 };
    assert_eq!(decoded("00000005 ffffffff ffffffff ffffffff"), Request::Write(set_data));
    let set_acl = WriteOp::SetAcl { path: none.clone(), acl: None, version: 0 };
    assert_eq!(decoded("00000007 ffffffff ffffffff 00000000"), Request::Write(set_acl));
    let watch = Request::AddWatch { path: none.clone(), mode: AddWatchMode::Persistent };
    assert_eq!(decoded("0000006a ffffffff 00000000"), watch);
    let remove = Request::RemoveWatches { path: none, kind: WatcherType::Children };
    assert_eq!(decoded("00000012 ffffffff 00000001"), remove);
    let Request::Write(WriteOp::Create(create)) = decoded("00000001 ffffffff ffffffff ffffffff 00000009") else {
        panic!("create")
    };
    assert_eq!(create.mode, CreateMode::BadArguments);
}

#[test]
fn malformed_bodies_decode_as_malformed_read_or_write_requests() {
    let ordered = Request::Malformed { write: true };
    for body in [
        "00000001 ffffffff 00000000 00000000 00000000", // create: null path
        "00000002 ffffffff 00000000",                   // delete: null path
        "00000005 00000002 2f61 fffffffe 00000000",     // data length below -1
        "00000007 00000002 2f61 00000000",              // setACL: no version
        "0000000e 00000002 00ffffffff ffffffff 00000000 ffffffff01ffffffff", // delete in a multi: null path
        "0000000e 00000001 00ffffffff ffffffff ffffffff ffffffff 00000064 ffffffff01ffffffff", // create in a multi: null path, no flags
    ] {
        assert_eq!(decoded(body), ordered, "{body}");
    }
    let refused = Request::Malformed { write: false };
    for body in [
        "00000004 ffffffff 00",                                                          // null path
        "00000011 ffffffff 00000001",                                                    // checkWatches: null path
        "00000010 ffffffff ffffffff ffffffff",                                           // reconfig: too short
        "00000004 00000002 2f61",                                                        // no watch flag
        "00000004 7fffffff 2f61 00",                                                     // longer than the frame
        "00000004 fffffffe 2f61 00",                                                     // length below -1
        "00000065 0000000000000000 ffffffff 00000000 00000000",                          // null vector
        "00000065 0000000000000000 00000001 ffffffff 00000000 00000000",                 // null in a vector
        "00000065 0000000000000000 7fffffff 00000000",                                   // more elements than bytes
        "0000006a 00000002 2f61 00000007",                                               // addWatch mode
        "00000011 00000002 2f61 00000009",                                               // WatcherType
        "00000012 00000002 2f61 00000000",                                               // WatcherType
        "00000016 0000000500ffffffff 000000022f61 ffffffff ffffffff", // a multiRead of a write, without end
        "00000016 0000000700ffffffff 000000022f61 ffffffff ffffffff ffffffff01ffffffff", // setACL in a multiRead
        "00000016 0000000200ffffffff 000000022f61 ffffffff 0000000400ffffffff 000000022f61 00 ffffffff01ffffffff", // mixed
    ] {
        assert_eq!(decoded(body), refused, "{body}");
    }
    // A malformed multi consumes a zxid, a malformed multiRead does not.
    for body in [
        "0000000e",
        "0000000e 00000004 00 ffffffff 000000022f61 00 ffffffff 01 ffffffff", // a read
        "0000000e 00000007 00 ffffffff",                                      // setACL
        "0000000e 00000002 00 ffffffff 000000022f61 ffffffff",                // no end
    ] {
        assert_eq!(decoded(body), Request::Malformed { write: true }, "{body}");
    }
}

#[test]
fn multi_read_is_decoded_up_to_its_first_non_read() {
    let end = "ffffffff01ffffffff";
    let write = "0000000d00ffffffff ffffffff ffffffff 0000000100ffffffff ffffffff ffffffff ffffffff 00000000";
    assert_eq!(decoded(&format!("00000016 {write} {end}")), Request::MultiRead(vec![ReadOp::Unreadable]));
    let read = "0000000400ffffffff 000000022f61 00";
    let null = "0000000800ffffffff ffffffff 00";
    let reads = vec![ReadOp::GetData { path: Text::from("/a") }, ReadOp::Unreadable];
    assert_eq!(decoded(&format!("00000016 {read} {null} {read} {null} {end}")), Request::MultiRead(reads.clone()));
    assert_eq!(decoded(&format!("00000016 {read} {null} {read} {null}")), Request::Malformed { write: false });
    let written = written(|out| encode_request(7, &Request::MultiRead(reads), out));
    assert_eq!(written, hex(&format!("00000007 00000016 {read} {} {end}", null.replacen('8', "4", 1))));
}

#[test]
fn opcodes_forbidden_to_clients_decode_as_unknown() {
    for code in ["fffffff6", "ffffffff", "00000000", "0000000a", "0000000d", "00000014", "00000017", "7fffffff"] {
        assert_eq!(decoded(&format!("{code} 000000022f61 00000000")), Request::Unknown, "{code}");
    }
    assert_eq!(decode_request(hex("00000007 000000"), &TTL_ON), Err(TooShort));
    assert_eq!(decode_request(Bytes::new(), &TTL_ON), Err(TooShort));
}

/// docs/reference/zookeeper.md, 2.2.
#[test]
fn get_ttl_has_golden_bytes() {
    let request = Request::GetTtl { path: "/a".into() };
    assert_eq!(written(|out| encode_request(7, &request, out)), hex("00000007 7a6f0001 000000022f61"));
    let golden = |left_ms, left: &str| {
        let reply = Ok(Reply::Ttl(TimeToLive { ttl_ms: Some(1000), left_ms }));
        let expected = format!("00000007 0000000000000009 00000000 00000000000003e8 {left}");
        assert_eq!(written(|out| encode_reply(7, 9, &reply, out)), hex(&expected));
    };
    golden(Some(5), "0000000000000005");
    golden(None, "ffffffffffffffff");
}

/// Surface 2.2 and 2.3. The checks come in this order: flags, enabled features, range of the time
/// to live.
#[test]
fn create_modes_follow_opcode_and_flags() {
    let off = DecodeOptions::default();
    let mode = |opcode: i32, flags: i32, ttl: Option<i64>, options: &DecodeOptions| {
        let ttl = ttl.map_or(String::new(), |ttl| format!("{ttl:016x}"));
        let body = format!("00000007 {opcode:08x} {PATH_A} 00000001 78 {OPEN} {flags:08x} {ttl}");
        match decode_request(hex(&body), options).unwrap().1 {
            Request::Write(WriteOp::Create(create)) => (create.mode, create.with_stat),
            other => panic!("{other:?}"),
        }
    };
    for opcode in [1, 15] {
        let with_stat = opcode == 15;
        assert_eq!(mode(opcode, 0, None, &off), (valid(CreateKind::Persistent, false), with_stat));
        assert_eq!(mode(opcode, 1, None, &off), (valid(CreateKind::Ephemeral, false), with_stat));
        assert_eq!(mode(opcode, 2, None, &off), (valid(CreateKind::Persistent, true), with_stat));
        assert_eq!(mode(opcode, 3, None, &off), (valid(CreateKind::Ephemeral, true), with_stat));
        assert_eq!(mode(opcode, 4, None, &off), (valid(CreateKind::Persistent, false), with_stat));
        for flags in [5, 6] {
            assert_eq!(mode(opcode, flags, None, &off).0, CreateMode::Unimplemented);
            assert_eq!(mode(opcode, flags, None, &TTL_ON).0, CreateMode::BadArguments);
        }
        for flags in [-1, 7, i32::MIN] {
            assert_eq!(mode(opcode, flags, None, &off).0, CreateMode::BadArguments);
        }
    }
    for (flags, sequential) in [(0, false), (1, false), (2, true), (3, true), (4, false)] {
        assert_eq!(mode(19, flags, None, &off), (valid(CreateKind::Container, sequential), true));
    }
    assert_eq!(mode(21, 9, Some(5), &off).0, CreateMode::BadArguments);
    assert_eq!(mode(21, 5, Some(0), &off).0, CreateMode::Unimplemented);
    assert_eq!(mode(21, 5, Some(5), &TTL_ON), (valid(CreateKind::Ttl { ttl_ms: 5 }, false), true));
    assert_eq!(mode(21, 6, Some(1 << 39), &TTL_ON).0, valid(CreateKind::Ttl { ttl_ms: 1 << 39 }, true));
    for ttl in [0, -1, 1 << 40, i64::MIN] {
        assert_eq!(mode(21, 5, Some(ttl), &TTL_ON).0, CreateMode::BadArguments);
    }
    // ZooKeeper's server stops at the second request, then and at every restart (surface 13.6).
    assert_eq!(mode(21, 0, Some(7), &off).0, CreateMode::BadArguments);
    assert_eq!(mode(21, 0, Some(-1), &off).0, CreateMode::BadArguments);
}

#[test]
fn create_modes_inside_a_multi_follow_the_flags() {
    let multi = |opcode: i32, flags: i32| {
        let ttl = if opcode == 21 { "0000000000000005" } else { "" };
        decoded(&format!(
            "0000000e {opcode:08x} 00 ffffffff {PATH_A} 00000001 78 {OPEN} {flags:08x} {ttl} ffffffff 01 ffffffff"
        ))
    };
    let one = |mode, with_stat| Request::Multi(vec![WriteOp::Create(create(mode, with_stat))]);
    assert_eq!(multi(1, 0), one(valid(CreateKind::Persistent, false), false));
    assert_eq!(multi(15, 3), one(valid(CreateKind::Ephemeral, true), true));
    for opcode in [1, 15, 19] {
        assert_eq!(multi(opcode, 4), one(valid(CreateKind::Container, false), true));
        assert_eq!(multi(opcode, 5), one(CreateMode::Mismatched, opcode == 15));
        assert_eq!(multi(opcode, 6), one(CreateMode::Mismatched, opcode == 15));
    }
    // The flags decide the mode, and only a create2 keeps its Stat.
    assert_eq!(multi(19, 0), one(valid(CreateKind::Persistent, false), false));
    assert_eq!(multi(19, 2), one(valid(CreateKind::Persistent, true), false));
    assert_eq!(multi(21, 0), one(valid(CreateKind::Persistent, false), false));
    assert_eq!(multi(21, 5), one(CreateMode::Unimplemented, true));
    assert_eq!(multi(1, 7), one(CreateMode::BadArguments, false));
    assert_eq!(decoded("0000000e ffffffff 01 ffffffff"), Request::Multi(Vec::new()));
}

#[test]
fn reply_bytes_equal_zookeepers() {
    let reply = |result: Result<Reply, ErrorCode>| {
        let mut out = BytesMut::new();
        encode_reply(7, 9, &result, &mut out);
        out.freeze()
    };
    let header = "00000007 0000000000000009 00000000";
    let stat = Stat { czxid: 1, mzxid: 2, ctime: 3, mtime: 4, version: 5, cversion: 6, aversion: 7, ..Stat::default() };
    let stat = Stat { ephemeral_owner: 8, data_length: 9, num_children: 10, pzxid: 11, ..stat };
    let stat_bytes = "0000000000000001 0000000000000002 0000000000000003 0000000000000004 00000005 00000006 00000007 \
                      0000000000000008 00000009 0000000a 000000000000000b";
    assert_eq!(hex(stat_bytes).len(), 68);
    assert_eq!(reply(Ok(Reply::Empty)), hex(&format!("00000010 {header}")));
    assert_eq!(reply(Err(ErrorCode::NoNode)), hex("00000010 00000007 0000000000000009 ffffff9b"));
    assert_eq!(reply(Ok(Reply::Stat(stat))), hex(&format!("00000054 {header} {stat_bytes}")));
    assert_eq!(reply(Ok(Reply::Data(None, stat))), hex(&format!("00000058 {header} ffffffff {stat_bytes}")));
    assert_eq!(
        reply(Ok(Reply::Data(Some(Bytes::new()), stat))),
        hex(&format!("00000058 {header} 00000000 {stat_bytes}"))
    );
    assert_eq!(reply(Ok(Reply::Synced(None))), hex(&format!("00000014 {header} ffffffff")));
    assert_eq!(reply(Ok(Reply::NullToken)), hex(&format!("00000014 {header} ffffffff")));
    assert_eq!(reply(Ok(Reply::WatchAdded)), hex(&format!("00000014 {header} 00000000")));
    assert_eq!(
        reply(Ok(Reply::Names(vec![Text::from("b"), Text::from("c")].into()))),
        hex(&format!("0000001e {header} 00000002 00000001 62 00000001 63"))
    );
    assert_eq!(
        reply(Ok(Reply::Multi(vec![
            OpResult::Create(Text::from("/a")),
            OpResult::CreateStat(Text::from("/a"), stat),
            OpResult::Delete,
            OpResult::SetData(stat),
            OpResult::Check,
        ])))
        .slice(4..),
        hex(&format!(
            "{header} 00000001 00 00000000 {PATH_A} 0000000f 00 00000000 {PATH_A} {stat_bytes} 00000002 00 00000000 \
             00000005 00 00000000 {stat_bytes} 0000000d 00 00000000 ffffffff 01 ffffffff"
        ))
    );
    // A failed multi has no error in its header (surface 13.4).
    assert_eq!(
        reply(Ok(Reply::Multi(vec![
            OpResult::Failed(None),
            OpResult::Failed(Some(ErrorCode::NodeExists)),
            OpResult::Failed(Some(ErrorCode::RuntimeInconsistency)),
        ])))
        .slice(4..),
        hex(&format!(
            "{header} ffffffff 00 00000000 00000000 ffffffff 00 ffffff92 ffffff92 ffffffff 00 fffffffe fffffffe \
             ffffffff 01 ffffffff"
        ))
    );
    assert_eq!(
        reply(Ok(Reply::MultiRead(vec![
            ReadResult::Data(None, stat),
            ReadResult::Children(vec![Text::from("b")].into()),
            ReadResult::Failed(ErrorCode::NoNode),
        ])))
        .slice(4..),
        hex(&format!(
            "{header} 00000004 00 00000000 ffffffff {stat_bytes} 00000008 00 00000000 00000001 00000001 62 \
             ffffffff 00 ffffff9b ffffff9b ffffffff 01 ffffffff"
        ))
    );
    // A multiRead that reached an unreadable sub-request is an error with a body.
    assert_eq!(
        reply(Ok(Reply::MultiReadBroken(vec![]))),
        hex("00000019 00000007 0000000000000009 fffffffb ffffffff 01 ffffffff")
    );
    assert_eq!(
        reply(Ok(Reply::MultiReadBroken(vec![ReadResult::Failed(ErrorCode::NoNode)]))).slice(4..),
        hex("00000007 0000000000000009 fffffffb ffffffff 00 ffffff9b ffffff9b ffffffff 01 ffffffff")
    );
    let mut out = BytesMut::new();
    encode_event(&WatchEvent { kind: EventKind::NodeDataChanged, path: Text::from("/a"), zxid: 5 }, &mut out);
    assert_eq!(out, hex(&format!("0000001e ffffffff 0000000000000005 00000000 00000003 00000003 {PATH_A}")));
}

/// Texts and data share the frame. Only vectors allocate, and only for elements that arrived.
#[test]
fn decoding_shares_the_frame_and_allocates_only_received_elements() {
    // The worst case: nothing but empty strings, 4 bytes each.
    let count = 10_000_i32;
    let mut frame = hex("00000007 00000065 0000000000000000").to_vec();
    frame.extend(count.to_be_bytes());
    frame.resize(frame.len() + 4 * count as usize + 8, 0);
    let (_, Request::SetWatches(watches)) = decode_request(frame.clone().into(), &TTL_ON).unwrap() else {
        panic!("setWatches")
    };
    assert_eq!((watches.data.len(), watches.data.capacity()), (10_000, 10_000));
    assert!(watches.data.capacity() * size_of::<Text>() <= 8 * frame.len());

    // The same count without the elements.
    frame.truncate(30);
    assert_eq!(decode_request(frame.into(), &TTL_ON).unwrap().1, Request::Malformed { write: false });

    let path = hex(&format!("00000007 00000004 {PATH_A} 00"));
    let (_, Request::GetData { path: text, .. }) = decode_request(path.clone(), &TTL_ON).unwrap() else {
        panic!("getData")
    };
    assert_eq!(text.as_bytes().as_ptr(), path[12..].as_ptr(), "the path was copied");
}

#[test]
fn random_frames_never_panic() {
    let mut random = Random::new(4);
    for _ in 0..50_000 {
        let mut frame = random.bytes().to_vec();
        if random.bool() && frame.len() >= 8 {
            // A known opcode, so that the decoder goes on to the body.
            let code = [-11, 1, 2, 5, 7, 14, 15, 16, 19, 21, 22, 100, 101, 105, 106][random.below(15)];
            frame[4..8].copy_from_slice(&i32::to_be_bytes(code));
        }
        swallow(frame.into(), &mut random);
    }
}

#[test]
fn mutated_frames_never_panic() {
    let mut random = Random::new(5);
    for _ in 0..50_000 {
        let request = random.request();
        let mut frame = written(|out| encode_request(1, &request, out)).to_vec();
        for _ in 0..1 + random.below(4) {
            let at = random.below(frame.len());
            match random.below(4) {
                0 => frame[at] ^= 1 << random.below(8),
                1 => frame[at] = [0, 0x7f, 0x80, 0xff][random.below(4)],
                2 => frame.truncate(at.max(1)),
                _ => frame.insert(at, random.next() as u8),
            }
        }
        swallow(frame.into(), &mut random);
    }
}

/// Runs every decoder on `frame`, and checks that the frame justifies the elements returned.
fn swallow(frame: Bytes, random: &mut Random) {
    let _ = decode_connect(frame.clone());
    let _ = decode_connect_reply(frame.clone());
    let _ = decode_event(frame.clone());
    let shape = Shape::of(&random.request());
    let _ = decode_reply(frame.clone(), shape);
    for options in [TTL_ON, DecodeOptions::default()] {
        if let Ok((_, request)) = decode_request(frame.clone(), &options) {
            let elements = match &request {
                Request::Multi(operations) => operations.len() * 17,
                Request::MultiRead(reads) => reads.len() * 14,
                Request::SetWatches(watches) => {
                    let paths = [&watches.data, &watches.exist, &watches.child];
                    paths.into_iter().map(|paths| paths.capacity() * 4).sum()
                }
                _ => 0,
            };
            assert!(elements <= frame.len(), "{elements} bytes of elements in {}: {request:?}", frame.len());
        }
    }
    let mut stream = BytesMut::from(frame.as_ref());
    while let Ok(Some(inner)) = split_frame(&mut stream, FRAME_MAX) {
        let _ = decode_request(inner, &TTL_ON);
    }
}
