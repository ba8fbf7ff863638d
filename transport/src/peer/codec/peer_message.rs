//! The messages between servers.

use super::frame_reader::{Read, Reader};
use super::{CodecError, Kind, frame_writer, zab_message};
use bytes::{BufMut, BytesMut};
use zoolet_machine::seam::action::CheckpointMeta;
use zoolet_machine::seam::event::{ConnId, Shortage};
use zoolet_machine::seam::peer::{Claim, Entries, Health, PeerEntry, PeerMessage, TransferId};
use zoolet_machine::status::{DiskTroubles, Refusal};
use zoolet_model::{ErrorCode, ServerId, SessionSecret};
use zoolet_zab::{Attempt, MEMBERS_MAX, Role};

/// Sizes of the headers of an Entries message and of each entry, in bytes.
///
/// The message's header includes the kind.
pub(super) const ENTRIES_BYTES: usize = 1 + 4 + 4 + 8 + 8 + 16 + 4;
pub(super) const ENTRY_BYTES: usize = 4;
/// Bytes of a Touch message without its lists, including the kind.
pub(super) const TOUCH_BYTES: usize = 1 + 4 + 4 + 1 + 4;
/// Bytes of one claim in a Touch message.
pub(super) const CLAIM_BYTES: usize = 8 + 8 + 4 + 8;
/// Bytes of one session in a Touch message.
pub(super) const SESSION_BYTES: usize = 8;

pub(super) fn kind_of(message: &PeerMessage) -> Kind {
    match message {
        PeerMessage::Zab(message) => zab_message::kind_of(message),
        PeerMessage::Entries(_) => Kind::Entries,
        PeerMessage::Snapshot { .. } => Kind::Snapshot,
        PeerMessage::Forward { .. } => Kind::Forward,
        PeerMessage::Refused { .. } => Kind::Refused,
        PeerMessage::Revalidate { .. } => Kind::Revalidate,
        PeerMessage::Revalidated { .. } => Kind::Revalidated,
        PeerMessage::Moved { .. } => Kind::Moved,
        PeerMessage::Alive { .. } => Kind::Alive,
        PeerMessage::Health(_) => Kind::Health,
        PeerMessage::Touch { .. } => Kind::Touch,
        PeerMessage::Digest { .. } => Kind::Digest,
    }
}

/// Appends the body, which follows the kind.
pub(super) fn encode(message: &PeerMessage, out: &mut BytesMut) {
    match message {
        PeerMessage::Zab(message) => zab_message::encode(message, out),
        PeerMessage::Entries(entries) => put_entries(out, entries),
        PeerMessage::Snapshot { message, transfer, meta, chain } => {
            out.put_u64_le(transfer.0);
            frame_writer::zxid(out, meta.zxid);
            out.put_u128_le(meta.digest);
            frame_writer::bytes(out, &meta.totals);
            out.put_u128_le(*chain);
            out.put_u8(zab_message::kind_of(message).byte());
            zab_message::encode(message, out);
        }
        PeerMessage::Forward { epoch, attempt, conn, since, payload } => {
            out.put_u32_le(attempt.0);
            frame_writer::epoch(out, *epoch);
            out.put_u64_le(conn.0);
            frame_writer::attachment(out, *since);
            frame_writer::bytes(out, payload);
        }
        PeerMessage::Refused { number, code } => {
            out.put_u64_le(*number);
            out.put_i32_le(code.code());
        }
        PeerMessage::Revalidate { epoch, conn, session, secret, timeout_ms } => {
            frame_writer::epoch(out, *epoch);
            out.put_u64_le(conn.0);
            frame_writer::session(out, *session);
            frame_writer::option(out, secret.as_ref(), |out, secret| out.put_slice(&secret.0));
            out.put_u32_le(*timeout_ms);
        }
        PeerMessage::Revalidated { conn, session, up_to, since } => {
            out.put_u64_le(conn.0);
            frame_writer::session(out, *session);
            frame_writer::option(out, *up_to, frame_writer::zxid);
            frame_writer::attachment(out, *since);
        }
        PeerMessage::Moved { session, conn } => {
            frame_writer::session(out, *session);
            out.put_u64_le(conn.0);
        }
        PeerMessage::Alive { epoch, claim } => {
            frame_writer::epoch(out, *epoch);
            put_claim(out, claim);
        }
        PeerMessage::Touch { epoch, sessions, of_this_process } => {
            frame_writer::epoch(out, *epoch);
            frame_writer::count(out, sessions.len());
            sessions.iter().for_each(|claim| put_claim(out, claim));
            frame_writer::option(out, of_this_process.as_ref(), |out, living| {
                frame_writer::count(out, living.len());
                living.iter().for_each(|session| frame_writer::session(out, *session));
            });
        }
        PeerMessage::Digest { zxid, digest } => {
            frame_writer::zxid(out, *zxid);
            out.put_u128_le(*digest);
        }
        PeerMessage::Health(health) => put_health(out, health),
    }
}

/// Numbers of roles and refusals. A number is never reused.
mod health {
    use super::{Refusal, Shortage};

    pub(super) const LOOKING: u8 = 0;
    pub(super) const LEADING: u8 = 1;
    pub(super) const FOLLOWING: u8 = 2;
    pub(super) const OBSERVING: u8 = 3;

    /// 0 stands for no refusal. An unknown number, from a later release, decodes as `Other`.
    pub(super) const REFUSALS: [(u8, Refusal); 9] = [
        (1, Refusal::Shortage(Shortage::Disk)),
        (2, Refusal::Shortage(Shortage::Bound)),
        (3, Refusal::Shortage(Shortage::Memory)),
        (4, Refusal::ReadOnly),
        (5, Refusal::Log),
        (6, Refusal::Checkpoint),
        (7, Refusal::LogFull),
        (8, Refusal::CheckpointHangs),
        (255, Refusal::Other),
    ];
}

fn put_health(out: &mut BytesMut, said: &Health) {
    let Health { role, applied, behind, refusal, disk, lags, silent, lagging } = said;
    let (role, whom) = match *role {
        Role::Looking => (health::LOOKING, 0),
        Role::Leading => (health::LEADING, 0),
        Role::Following(leader) => (health::FOLLOWING, leader.as_u8()),
        Role::Observing(leader) => (health::OBSERVING, leader.as_u8()),
    };
    let number =
        |refusal: Refusal| health::REFUSALS.iter().find(|(_, known)| *known == refusal).map_or(255, |(n, _)| *n);
    out.put_slice(&[role, whom, refusal.map_or(0, number)]);
    frame_writer::bool(out, *lags);
    frame_writer::zxid(out, *applied);
    out.put_u64_le(*behind);
    for servers in [silent, lagging] {
        let servers = &servers[..servers.len().min(MEMBERS_MAX)];
        out.put_u8(servers.len() as u8);
        servers.iter().for_each(|server| out.put_u8(server.as_u8()));
    }
    out.put_u8(disk.bits());
}

/// The entries are consecutive, so only the first zxid is encoded.
fn put_entries(out: &mut BytesMut, message: &Entries) {
    let Entries { attempt, epoch, from, to, committed, chain_before, entries } = message;
    debug_assert_eq!(entries.last().map(|last| last.zxid), Some(*to), "a message ends with its last entry");
    let payloads: usize = entries.iter().map(|entry| entry.payload.len()).sum();
    out.reserve(ENTRIES_BYTES + entries.len() * ENTRY_BYTES + payloads);
    out.put_u32_le(attempt.0);
    frame_writer::epoch(out, *epoch);
    frame_writer::zxid(out, *from);
    frame_writer::zxid(out, *committed);
    out.put_u128_le(*chain_before);
    frame_writer::count(out, entries.len());
    let mut expected = Some(*from);
    for PeerEntry { zxid, payload } in entries {
        debug_assert_eq!(expected, Some(*zxid), "entries without gaps");
        expected = zxid.next();
        frame_writer::bytes(out, payload);
    }
}

fn put_claim(out: &mut BytesMut, claim: &Claim) {
    frame_writer::session(out, claim.session);
    out.put_u64_le(claim.conn.0);
    frame_writer::attachment(out, claim.since);
}

/// Decodes the one message in a frame.
pub(super) fn decode(mut reader: Reader) -> Read<PeerMessage> {
    let message = body(&mut reader)?;
    // Health is only displayed, so a later release may append fields to it.
    if !matches!(message, PeerMessage::Health(_)) {
        reader.end()?;
    }
    Ok(message)
}

fn body(reader: &mut Reader) -> Read<PeerMessage> {
    Ok(match reader.kind() {
        kind @ (Kind::Notification
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
        | Kind::Pong) => PeerMessage::Zab(Box::new(zab_message::decode(kind, reader)?)),
        Kind::Entries => PeerMessage::Entries(entries(reader)?),
        Kind::Snapshot => snapshot(reader)?,
        Kind::Refused => PeerMessage::Refused { number: reader.u64()?, code: code(reader)? },
        Kind::Revalidated => PeerMessage::Revalidated {
            conn: conn(reader)?,
            session: reader.session()?,
            up_to: reader.option(Reader::zxid)?,
            since: reader.attachment()?,
        },
        Kind::Moved => PeerMessage::Moved { session: reader.session()?, conn: conn(reader)? },
        Kind::Alive => PeerMessage::Alive { epoch: reader.epoch()?, claim: claim(reader)? },
        Kind::Forward => {
            let (attempt, epoch) = (Attempt(reader.u32()?), reader.epoch()?);
            let (conn, since) = (conn(reader)?, reader.attachment()?);
            PeerMessage::Forward { epoch, attempt, conn, since, payload: reader.counted_bytes()? }
        }
        Kind::Revalidate => PeerMessage::Revalidate {
            epoch: reader.epoch()?,
            conn: conn(reader)?,
            session: reader.session()?,
            secret: reader.option(Reader::array)?.map(SessionSecret),
            timeout_ms: reader.u32()?,
        },
        Kind::Touch => touch(reader)?,
        Kind::Health => PeerMessage::Health(read_health(reader)?),
        Kind::Digest => PeerMessage::Digest { zxid: reader.zxid()?, digest: reader.u128()? },
        Kind::Hello | Kind::OpenLane | Kind::SnapshotRequest | Kind::SnapshotReply => return Err(reader.misplaced()),
    })
}

fn entries(reader: &mut Reader) -> Read<Entries> {
    let (attempt, epoch) = (reader.attempt()?, reader.epoch()?);
    let (from, committed, chain_before) = (reader.zxid()?, reader.zxid()?, reader.u128()?);
    let count = reader.count(ENTRY_BYTES)?;
    let mut entries = Vec::with_capacity(count);
    let mut next = Some(from);
    for _ in 0..count {
        let zxid = next.ok_or_else(|| reader.invalid("entries beyond the end of an epoch"))?;
        next = zxid.next();
        entries.push(PeerEntry { zxid, payload: reader.counted_bytes()? });
    }
    let to = entries.last().ok_or_else(|| reader.invalid("no entry"))?.zxid;
    Ok(Entries { attempt, epoch, from, to, committed, chain_before, entries })
}

fn snapshot(reader: &mut Reader) -> Read<PeerMessage> {
    let transfer = TransferId(reader.u64()?);
    let meta = CheckpointMeta { zxid: reader.zxid()?, digest: reader.u128()?, totals: reader.counted_bytes()? };
    let chain = reader.u128()?;
    match reader.nested()? {
        kind @ Kind::Snap => {
            let message = Box::new(zab_message::decode(kind, reader)?);
            Ok(PeerMessage::Snapshot { message, transfer, meta, chain })
        }
        kind => Err(CodecError::Misplaced { kind, place: "in a Snapshot" }),
    }
}

fn touch(reader: &mut Reader) -> Read<PeerMessage> {
    let epoch = reader.epoch()?;
    let sessions = reader.vector(CLAIM_BYTES, claim)?;
    let of_this_process = reader.option(|reader| reader.vector(SESSION_BYTES, Reader::session))?;
    Ok(PeerMessage::Touch { epoch, sessions, of_this_process })
}

fn read_health(reader: &mut Reader) -> Read<Health> {
    let (role, whom, refusal) = (reader.u8()?, ServerId::new(reader.u8()?), reader.u8()?);
    let role = match (role, whom) {
        (health::LOOKING, None) => Role::Looking,
        (health::LEADING, None) => Role::Leading,
        (health::FOLLOWING, Some(leader)) => Role::Following(leader),
        (health::OBSERVING, Some(leader)) => Role::Observing(leader),
        _ => return Err(reader.invalid("an unknown role")),
    };
    let known = health::REFUSALS.iter().find(|(number, _)| *number == refusal).map(|(_, known)| *known);
    Ok(Health {
        role,
        refusal: (refusal != 0).then(|| known.unwrap_or(Refusal::Other)),
        lags: reader.bool()?,
        applied: reader.zxid()?,
        behind: reader.u64()?,
        silent: few_servers(reader)?,
        lagging: few_servers(reader)?,
        // Earlier builds end the message here.
        disk: DiskTroubles::from_bits(if reader.left() > 0 { reader.u8()? } else { 0 }),
    })
}

fn few_servers(reader: &mut Reader) -> Read<Vec<ServerId>> {
    let count = usize::from(reader.u8()?);
    if count > MEMBERS_MAX {
        return Err(reader.invalid("more servers than an ensemble has"));
    }
    (0..count).map(|_| reader.server()).collect()
}

fn claim(reader: &mut Reader) -> Read<Claim> {
    Ok(Claim { session: reader.session()?, conn: conn(reader)?, since: reader.attachment()? })
}

fn conn(reader: &mut Reader) -> Read<ConnId> {
    reader.u64().map(ConnId)
}

fn code(reader: &mut Reader) -> Read<ErrorCode> {
    let code = reader.i32()?;
    ErrorCode::from_code(code).ok_or_else(|| reader.invalid("an unknown error code"))
}
