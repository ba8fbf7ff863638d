//! The four-letter word `zool`, which only zoolet has: the server's status as a JSON object.
//!
//! docs/reference/status.md describes the fields.

use super::listener::Port;
use crate::json::{self, Object};
use std::time::Instant;
use zoolet_machine::Status;
use zoolet_machine::budget::Part;
use zoolet_machine::status::{Alarm, AlarmKind, FlashStatus, LearnerStatus, MemberStatus, PeerStatus};
use zoolet_machine::status::{Cause, DeviceWear};
use zoolet_model::ServerId;
use zoolet_zab::{Kind, Role};

/// Format version. Raised when a field goes or changes its meaning, not when one is added.
const VERSION: u32 = 1;

/// Disk figures in the report: their name here, and their name as a metric.
pub(super) const DISK: [(&str, &str); 6] = [
    ("fdatasyncs", "log_fdatasyncs"),
    ("fdatasync_p50_us", "fdatasync_us_p50"),
    ("fdatasync_p99_us", "fdatasync_us_p99"),
    ("fdatasync_p999_us", "fdatasync_us_p999"),
    ("fdatasync_max_us", "fdatasync_us_max"),
    ("entries_per_batch", "writes_acknowledged_per_batch"),
];

/// Returns the JSON object and a line feed.
///
/// It also reports an engine that does not answer.
pub(super) async fn report(port: &Port) -> String {
    match port.ask().await {
        Some(status) => object(port, &status) + "\n",
        None => stuck(port) + "\n",
    }
}

fn head(port: &Port, role: &str) -> Object {
    let about = &port.settings.about;
    Object::new()
        .raw("version", VERSION)
        .text("zoolet", &about.version)
        .raw("server", about.server_id)
        .text("role", role)
        .raw("uptime_ms", port.us_since_start(Instant::now()) / 1000)
}

/// Reports an engine that does not answer: its threads are stuck or have failed.
fn stuck(port: &Port) -> String {
    let alarm = Alarm::of_this_server(
        AlarmKind::Stuck,
        "the server's engine does not answer",
        "see its log; the disk may hang, or the processor may be overloaded",
    );
    head(port, "stuck").raw("alarms", json::list([alarm_object(&alarm)])).end()
}

fn object(port: &Port, status: &Status) -> String {
    let role = if status.role.is_empty() { "looking" } else { status.role };
    let traffic = port.traffic.read();
    head(port, role)
        .optional("leader", status.leader.map(|leader| leader.as_u8()))
        .raw("epoch", status.epoch.as_u32())
        .text("zxid", &status.zxid.to_string())
        .raw("behind", status.behind)
        .raw("behind_ms", status.behind_ms)
        .text("digest", &format!("{:032x}", status.digest))
        .raw("znodes", status.znodes)
        .raw("data_bytes", status.data_bytes)
        .raw("ephemerals", status.ephemerals)
        .raw("watches", status.watches)
        .raw("sessions", status.sessions)
        .raw("sessions_max", status.sessions_max)
        .raw("refused", refused(status))
        .raw("connections", port.budget.current(Part::Connections))
        .raw("outstanding", traffic.outstanding)
        .raw("writes_acknowledged", status.writes_acknowledged)
        .raw("disk", disk(status))
        .optional("flash", status.flash.as_ref().map(flash))
        .raw("members", json::list(status.members.iter().map(|&(id, kind)| member(id.as_u8(), kind))))
        .raw("learners", json::list(status.learners.iter().map(learner)))
        .raw("peers", json::list(status.peers.iter().map(peer)))
        .raw("site", json::list(status.said.iter().map(said)))
        .raw("alarms", json::list(status.alarms.iter().map(alarm_object)))
        .end()
}

fn refused(status: &Status) -> String {
    Object::new()
        .raw("sessions", status.sessions_refused)
        .raw("sessions_of_address", status.sessions_refused_of_address)
        .raw("super_guesses", status.super_guesses)
        .end()
}

/// Formats what another server reported about itself.
fn said(member: &MemberStatus) -> String {
    let MemberStatus { id, health, said_ms } = member;
    let (role, leader) = match health.role {
        Role::Looking => ("looking", None),
        Role::Leading => ("leader", Some(*id)),
        Role::Following(leader) => ("follower", Some(leader)),
        Role::Observing(leader) => ("observer", Some(leader)),
    };
    Object::new()
        .raw("id", id.as_u8())
        .text("role", role)
        .optional("leader", leader.map(ServerId::as_u8))
        .text("zxid", &health.applied.to_string())
        .raw("behind", health.behind)
        .optional("refusal", health.refusal.map(|refusal| json::string(refusal.why())))
        .raw("disk", json::list(health.disk.iter().map(|trouble| json::string(trouble.what()))))
        .raw("said_ms", said_ms)
        .end()
}

fn disk(status: &Status) -> String {
    let counted = |name: &str| status.disk.iter().find(|(key, _)| *key == name).map_or(0, |(_, value)| *value);
    DISK.iter().fold(Object::new(), |object, (name, key)| object.raw(name, counted(key))).end()
}

fn flash(flash: &FlashStatus) -> String {
    let written =
        Cause::ALL.into_iter().fold(Object::new(), |all, cause| all.raw(cause.name(), flash.written.of(cause)));
    Object::new()
        .raw("written_bytes", written.end())
        .raw("entry_bytes", flash.entry_bytes)
        .optional("amplification_percent", flash.amplification_percent())
        .raw("window_ms", flash.forecast.over_ms)
        .raw("window_bytes", flash.forecast.bytes)
        .optional("bytes_per_day", flash.forecast.bytes_per_day)
        .raw("budget_bytes_per_day", flash.medium.budget_bytes_per_day)
        .raw("over_budget", flash.is_over_budget)
        .optional("life_days", flash.life_days())
        .optional("device", flash.device.as_ref().map(device))
        .end()
}

fn device(wear: &DeviceWear) -> String {
    Object::new()
        .text("name", &wear.device)
        .optional("used_percent", wear.used_percent)
        .optional("spare", wear.spare.map(|spare| json::string(spare.name())))
        .end()
}

fn member(id: u8, kind: Kind) -> String {
    let role = match kind {
        Kind::Voter => "voter",
        Kind::Observer => "observer",
    };
    Object::new().raw("id", id).text("role", role).end()
}

fn learner(learner: &LearnerStatus) -> String {
    let LearnerStatus { id, votes, is_synced, behind, behind_ms } = *learner;
    Object::new()
        .raw("id", id.as_u8())
        .raw("votes", votes)
        .raw("synced", is_synced)
        .raw("behind", behind)
        .raw("behind_ms", behind_ms)
        .end()
}

fn peer(peer: &PeerStatus) -> String {
    let PeerStatus { id, address, is_linked, missing_ms, heard_ms, round_trip_us, refusal } = peer;
    Object::new()
        .raw("id", id.as_u8())
        .text("address", address)
        .raw("linked", is_linked)
        .raw("missing_ms", missing_ms)
        .optional("heard_ms", *heard_ms)
        .raw("round_trip_us", round_trip_us)
        .optional("refusal", refusal.as_deref().map(json::string))
        .end()
}

fn alarm_object(alarm: &Alarm) -> String {
    Object::new().text("what", &alarm.what).text("remedy", &alarm.remedy).raw("holds_up", alarm.holds_up).end()
}
