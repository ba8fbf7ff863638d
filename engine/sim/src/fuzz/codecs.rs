//! Decoders of single values: paths, ACLs, entries, records, proofs.

use super::Target;
use crate::{entries::Entries, workload::Random};
use bytes::{Bytes, BytesMut};
use std::net::IpAddr;
use zoolet_machine::record::acl::{self, Identity};
use zoolet_machine::record::key;
use zoolet_machine::record::znode::{Data, Kind, Session, Totals, Usage, Znode};
use zoolet_machine::sessions::{digest_id, prove};
use zoolet_machine::txn;
use zoolet_model::{AclEntry, AuthId, Path, Perms, RequestedAcl, ServerId, SessionId, SessionSecret, Text, path};

/// A client's text, as a znode's path and as the keys derived from it.
pub(super) const PATH: Target = Target { name: "path", valid: any_path, check: check_path };

fn any_path(random: &mut Random) -> Vec<u8> {
    let names = ["a", "b.c", ".", "..", "", "\u{e9}", "\u{f8ff}", "\u{1f600}", "\u{7f}", "zookeeper", "x y", "\0"];
    let mut path = String::new();
    for _ in 0..random.below(6) {
        path.push('/');
        path.push_str(random.pick::<&str>(&names));
        if random.one_in(50) {
            path.push_str(&"n".repeat(random.below(400) as usize));
        }
    }
    path.into_bytes()
}

fn check_path(bytes: &[u8]) {
    let text = Text::from_utf8_lossy(Bytes::copy_from_slice(bytes));
    if let Ok(exact) = std::str::from_utf8(bytes) {
        assert_eq!(text.as_str(), exact);
    }
    let path = text.as_str();
    let valid = path::is_valid(path);
    assert_eq!(Path::new(text.clone()).is_ok(), valid);
    let key = key::znode(path);
    assert_eq!(key::with_znode(path, |key| key::Key::from(key)), key, "on the stack as on the heap");
    assert!(!valid || key.is_some(), "a valid path has a key");
    for prefix in [key::children_prefix(path), key::descendants_prefix(path), key::Key::from(bytes)] {
        if let Some(end) = key::end_of_prefix(&prefix) {
            assert!(*prefix < *end && !end.starts_with(&prefix), "the end of a prefix is after all of it");
            assert!([&*prefix, &[0xff; 3]].concat() < end.to_vec());
        }
    }
    if valid && let Some((parent, name)) = path::parent_and_name(path) {
        assert!(path::is_valid(parent) && !name.is_empty() && !name.contains('/'));
        // No two paths share a key: parent and name can be read back from it.
        let expected = [&[key::ZNODE], parent.as_bytes(), &[0], name.as_bytes()].concat();
        assert_eq!(key.as_deref(), Some(&expected[..]));
        assert!(expected.starts_with(&key::children_prefix(parent)));
    }
}

/// Stored ACLs, and ACLs as clients request them.
pub(super) const ACL: Target = Target { name: "acl", valid: any_acl, check: check_acl };

fn any_acl(random: &mut Random) -> Vec<u8> {
    let ids = ["anyone", "u:h", "10.0.0.1", "10.0.0.0/8", "::1/64", "1.2.3.4/99999999999", "a:b:c", "", "\u{e9}"];
    let entries: Vec<AclEntry> = (0..random.below(5))
        .map(|_| AclEntry {
            perms: Perms(*random.pick(&[31, 1, 0, -1, i32::MAX, i32::MIN])),
            scheme: (*random.pick(&["world", "ip", "digest", "auth", "x509", ""])).into(),
            id: (*random.pick(&ids)).into(),
        })
        .collect();
    acl::encode(&entries).to_vec()
}

fn check_acl(bytes: &[u8]) {
    let identities = [
        Identity::default(),
        Identity {
            is_super: false,
            ip: Some(IpAddr::from([10, 0, 0, 1])),
            ids: vec![AuthId { scheme: "digest".into(), id: "u:h".into() }],
        },
        Identity { is_super: true, ip: Some(IpAddr::from([0u16, 0, 0, 0, 0, 0, 0, 1])), ids: Vec::new() },
    ];
    for identity in &identities {
        let _ = identity.may(Perms::ALL, bytes);
    }
    let Ok(mut entries) = acl::decode(bytes) else { return };
    let encoded = acl::encode(&entries);
    if bytes.is_empty() || !encoded.is_empty() {
        assert_eq!(encoded, bytes, "an ACL has one form");
    }
    assert_eq!(acl::decode(&encoded).as_ref(), Ok(&entries));
    let asked: Vec<RequestedAcl> = entries
        .iter()
        .map(|AclEntry { perms, scheme, id }| RequestedAcl {
            perms: *perms,
            scheme: Some(scheme.clone()).filter(|text| !text.is_empty()),
            id: Some(id.clone()).filter(|text| !text.is_empty()),
        })
        .collect();
    for identity in &identities {
        if let Ok(resolved) = identity.resolve(Some(&asked)) {
            assert!(acl::decode(&resolved).is_ok(), "what is stored can be read back");
        }
    }
    acl::redact(&mut entries);
}

/// Payloads of entries.
pub(super) const ENTRY: Target = Target { name: "entry", valid: any_entry, check: check_entry };

fn any_entry(random: &mut Random) -> Vec<u8> {
    Entries::new(random.bits()).payload().to_vec()
}

fn check_entry(bytes: &[u8]) {
    let Ok((header, txn)) = txn::decode(bytes) else { return };
    zoolet_machine::tree::needs(&txn, &mut |_| {});
    assert_eq!(txn::header(bytes), Some(header));
    let encoded = txn::encode(header, &txn, &mut BytesMut::new());
    assert_eq!(txn::decode(&encoded), Ok((header, txn)), "what decodes comes back as it went");
    assert_eq!(encoded.len(), bytes.len(), "but for flags that mean nothing an entry has one form");
}

/// Records of the state; the first byte chooses znode, session or totals.
pub(super) const RECORD: Target = Target { name: "record", valid: any_record, check: check_record };

fn any_record(random: &mut Random) -> Vec<u8> {
    let secret = SessionSecret(std::array::from_fn(|_| random.bits() as u8));
    match random.below(5) {
        0 => {
            [&[1][..], &Session { timeout_ms: random.bits() as u32, secret, home: ServerId::new(secret.0[0]) }.encode()]
                .concat()
        }
        1 => {
            let mut totals = Totals { znodes: random.bits(), data_bytes: random.bits(), ..Totals::default() };
            totals.semantics = random.bits() as u32;
            totals.quotas = random.below(2) * random.bits();
            [&[2][..], &totals.encode()].concat()
        }
        _ => {
            let data = vec![7; random.below(30) as usize];
            let acl = any_acl(random);
            let znode = Znode {
                czxid: random.bits() as i64,
                mzxid: random.bits() as i64,
                pzxid: random.bits() as i64,
                ctime: random.bits() as i64,
                mtime: random.bits() as i64,
                version: random.bits() as i32,
                creates: random.bits() as i32,
                aversion: random.bits() as i32,
                num_children: random.bits() as i32,
                kind: match random.below(4) {
                    0 => Kind::Persistent,
                    1 => Kind::Container,
                    2 => Kind::Ttl { ttl_ms: random.bits(), since_ms: random.bits() },
                    _ => Kind::Ephemeral(SessionId(random.bits() as i64)),
                },
                data: match random.below(4) {
                    0 => Data::Null,
                    3 => Data::Usage(Usage { count: random.bits() as i64, bytes: 7, next: &data }),
                    1 => Data::Large { length: random.bits() as u32, hash: u128::from(random.bits()) },
                    _ => Data::Inline(&data),
                },
                acl: &acl,
            };
            let encoded = znode.encode();
            assert_eq!(Znode::decode(&encoded), Ok(znode));
            [&[0][..], &encoded].concat()
        }
    }
}

fn check_record(bytes: &[u8]) {
    let Some((kind, record)) = bytes.split_first() else { return };
    match kind % 3 {
        0 => {
            let Ok(znode) = Znode::decode(record) else { return };
            let _ = (znode.stat(), znode.acl_entries(), znode.mark(), znode.time_to_live(0));
            assert_eq!(Znode::decode(&znode.encode()), Ok(znode));
        }
        1 => {
            let Ok(session) = Session::decode(record) else { return };
            assert_eq!(Session::decode(&session.encode()), Ok(session));
            // An archive is read from its end: bytes in front of it do not count.
            assert!(record.ends_with(&session.encode()));
        }
        _ => {
            let Ok(totals) = Totals::decode(record) else { return };
            assert!(record.ends_with(&totals.encode()));
        }
    }
}

/// Proofs of auth packets.
pub(super) const AUTH: Target = Target { name: "auth", valid: any_proof, check: check_proof };

fn any_proof(random: &mut Random) -> Vec<u8> {
    let user = *random.pick(&["u:p", "u", ":", "", "u:p:q", "\u{e9}:\u{1f600}"]);
    let mut proof = user.as_bytes().to_vec();
    proof.extend(vec![b'x'; *random.pick(&[0, 0, 1020, 1024, 1025])]);
    proof
}

fn check_proof(bytes: &[u8]) {
    let id = digest_id(bytes);
    let proved = prove(Some("digest"), Some(bytes), Some(&id));
    assert_eq!(proved.is_some(), bytes.len() <= 1024, "a proof is bounded");
    assert!(proved.is_none_or(|proved| proved.is_super && proved.id.is_some()));
    let stranger = prove(Some("digest"), Some(bytes), Some("root:x"));
    assert!(stranger.is_none_or(|stranger| !stranger.is_super));
    let scheme = String::from_utf8_lossy(bytes);
    let by_scheme = prove(Some(&scheme), Some(b"u:p"), None);
    assert_eq!(by_scheme.is_some(), matches!(&*scheme, "digest" | "ip"));
}
