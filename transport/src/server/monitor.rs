//! The four-letter word `mntr` (surface 9.3): ZooKeeper's gauges and zoolet's additions.

use super::port::Port;
use super::words::{Average, version, znode_count};
use std::fmt::{self, Write as _};
use std::time::Instant;
use zoolet_machine::Status;
use zoolet_machine::budget::Part;
use zoolet_machine::status::LearnerStatus;
use zoolet_zab::Kind;

/// Writes the answer to `mntr`.
pub(super) fn mntr(out: &mut String, port: &Port, status: &Status) -> fmt::Result {
    let traffic = port.traffic.read();
    let mut line = |key: &str, value: &dyn fmt::Display| writeln!(out, "zk_{key}\t{value}");
    line("version", &version(&port.settings.about))?;
    line("server_state", &status.role)?;
    if status.role != "standalone" {
        line("peer_state", &peer_state(status.role))?;
        // ZooKeeper has this metric in every role of an ensemble.
        line("quorum_size", &voters(status))?;
    }
    if status.role == "leader" {
        leader(&mut line, status)?;
    }
    line("avg_latency", &Average::of_us(traffic.latency_us_sum, traffic.answered))?;
    for (key, value) in [
        ("min_latency", traffic.latency_us_min / 1000),
        ("max_latency", traffic.latency_us_max / 1000),
        ("packets_received", traffic.received),
        ("packets_sent", traffic.sent),
        ("num_alive_connections", port.budget.current(Part::Connections)),
        ("outstanding_requests", traffic.outstanding),
        ("uptime", port.us_since_start(Instant::now()) / 1000),
        ("znode_count", znode_count(status)),
        ("watch_count", status.watches),
        ("ephemerals_count", status.ephemerals),
        ("approximate_data_size", status.data_bytes),
        ("global_sessions", status.sessions),
        ("local_sessions", 0),
        ("connection_drop_probability", 0),
        ("outstanding_tls_handshake", 0),
        // Counters, under ZooKeeper's names.
        ("connection_request_count", traffic.accepted),
        ("connection_rejected", traffic.rejected),
        ("connection_drop_count", traffic.dropped),
        ("last_client_response_size", traffic.response_bytes_last),
        ("max_client_response_size", traffic.response_bytes_max),
        ("min_client_response_size", traffic.response_bytes_min),
        ("auth_failed_count", traffic.auth_failed),
        ("sessionless_connections_expired", traffic.sessionless_expired),
        ("stale_sessions_expired", status.sessions_expired),
        ("bytes_received_count", traffic.bytes_received),
        ("response_bytes", traffic.bytes_sent),
        ("sessions_refused", status.sessions_refused),
        ("sessions_refused_of_address", status.sessions_refused_of_address),
        ("super_guesses", status.super_guesses),
        ("commit_count", status.writes_acknowledged),
        // Metrics that only zoolet has.
        ("unapplied_entries", status.unapplied),
        ("checkpoints", status.checkpoints),
        ("checkpoints_failed", status.checkpoints_failed),
        ("base_fetches", status.fetches),
        ("refusing_writes", status.refusing_writes.is_some().into()),
    ] {
        line(key, &value)?;
    }
    // As in ZooKeeper's `hash`: the zxid, then the digest of the state after it.
    line("digest", &format_args!("{:x}: {:032x}", status.zxid.to_bits(), status.digest))?;
    for (key, value) in &status.disk {
        line(key, value)?;
    }
    if let Some((open, max)) = file_descriptors() {
        line("open_file_descriptor_count", &open)?;
        line("max_file_descriptor_count", &max)?;
    }
    for reading in port.budget.snapshot() {
        let name = reading.part.name();
        // The engine counts these parts itself. Its answer is newer than its last update of the
        // budget.
        let held = status.held.iter().find(|(part, _)| *part == reading.part);
        line(&format!("budget_{name}"), &held.map_or(reading.current, |(_, amount)| *amount))?;
        line(&format!("budget_{name}_peak"), &reading.peak)?;
        line(&format!("budget_{name}_limit"), &reading.limit)?;
    }
    Ok(())
}

/// Returns the open file descriptors and their maximum; `None` where the system does not tell.
fn file_descriptors() -> Option<(usize, u64)> {
    let open = std::fs::read_dir("/proc/self/fd").ok()?.count();
    let limits = std::fs::read_to_string("/proc/self/limits").ok()?;
    let line = limits.lines().find_map(|line| line.strip_prefix("Max open files"))?;
    Some((open, line.split_whitespace().next()?.parse().unwrap_or(u64::MAX)))
}

/// Returns ZooKeeper's `peer_state`. A serving server is always in the broadcast phase.
fn peer_state(role: &str) -> &'static str {
    match role {
        "leader" => "leading - broadcast",
        "follower" => "following - broadcast",
        _ => "observing - broadcast",
    }
}

fn voters(status: &Status) -> usize {
    status.members.iter().filter(|(_, kind)| *kind == Kind::Voter).count()
}

/// Writes the lines that only a leader has.
fn leader(line: &mut impl FnMut(&str, &dyn fmt::Display) -> fmt::Result, status: &Status) -> fmt::Result {
    let synced = |votes: bool| {
        let counted = |learner: &&LearnerStatus| learner.is_synced && learner.votes == votes;
        status.learners.iter().filter(counted).count()
    };
    let is_voter = |learner: &LearnerStatus| {
        let kind = status.members.iter().find(|(id, _)| *id == learner.id).map(|(_, kind)| *kind);
        kind == Some(Kind::Voter)
    };
    // Voters whose disk does not count yet; ZooKeeper calls them non-voting followers.
    let waiting = status.learners.iter().filter(|learner| learner.is_synced && !learner.votes && is_voter(learner));
    let waiting = waiting.count();
    line("learners", &status.learners.len())?;
    line("synced_followers", &(synced(true) + waiting))?;
    line("synced_non_voting_followers", &waiting)?;
    line("synced_observers", &(synced(false) - waiting))?;
    line("pending_syncs", &status.pending_syncs)?;
    line("leader_uptime", &status.led_ms.unwrap_or(0))?;
    let proposals = status.proposals.0.map(|sizes| sizes.map(|size| size as i64)).unwrap_or([-1; 3]);
    for (name, size) in ["last", "min", "max"].into_iter().zip(proposals) {
        line(&format!("{name}_proposal_size"), &size)?;
    }
    Ok(())
}
