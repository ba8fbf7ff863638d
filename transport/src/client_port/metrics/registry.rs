//! The list of all metrics, in the order of `mntr`.

use super::Kind::{self, Counter, Gauge, Text};
use super::Source::{self, Always, Driver, EachNamespace, EachPart, Sometimes};
use super::Unit::{self, Bytes, BytesPerDay, Days, Flag, Ms, OfPart, One, Percent, Us};
use super::{Average, Metric, Value, Voter, server_state, znode_count};
use zoolet_machine::budget::Part;

const fn row(kind: Kind, name: &'static str, unit: Unit, source: Source, help: &'static str) -> Metric {
    Metric { name, kind, unit, help, source }
}

/// Every metric. ZooKeeper's have ZooKeeper's names.
pub const METRICS: &[Metric] = &[
    row(Text, "version", One, Sometimes(|now| Some(Value::Text(now.version.clone()))), "the release, as in `srvr`"),
    row(
        Text,
        "server_state",
        One,
        Sometimes(|now| Some(Value::Word(server_state(now.status)))),
        "`standalone`, `leader`, `follower`, `observer`, or `read-only` while it serves clients that ask to read only: \
         without a leader, or on a read-only disk",
    ),
    row(
        Gauge,
        "read_only_age",
        Ms,
        Sometimes(|now| now.status.read_only_ms.map(Value::Number)),
        "while it serves clients that ask to read only: time since its leader last heard a quorum, as far as it knows, or \
         its disk first refused a commit, whichever is earlier; after a start without a leader, time since the start",
    ),
    row(
        Text,
        "peer_state",
        One,
        Sometimes(|now| {
            let has_role = now.is_in_ensemble() && now.status.read_only_ms.is_none();
            has_role.then(|| Value::Word(peer_state(now.status.role)))
        }),
        "in an ensemble: the role and the phase, such as `leading - broadcast`",
    ),
    // ZooKeeper has this metric in every role of an ensemble.
    row(
        Gauge,
        "quorum_size",
        One,
        Sometimes(|now| {
            let voters = || now.status.members.iter().filter(|(_, kind)| *kind == Voter).count();
            now.is_in_ensemble().then(|| Value::Number(voters() as u64))
        }),
        "in an ensemble: its voters",
    ),
    row(Gauge, "learners", One, Sometimes(|now| now.learners(|_| true)), "of a leader: followers and observers"),
    row(
        Gauge,
        "synced_followers",
        One,
        Sometimes(|now| now.learners(|one| one.is_synced && (one.votes || now.is_voter(one)))),
        "of a leader: followers that have caught up",
    ),
    // Voters whose disk does not count yet; ZooKeeper calls them non-voting followers.
    row(
        Gauge,
        "synced_non_voting_followers",
        One,
        Sometimes(|now| now.learners(|one| one.is_synced && !one.votes && now.is_voter(one))),
        "of a leader: followers that have caught up and whose disks do not count yet",
    ),
    row(
        Gauge,
        "synced_observers",
        One,
        Sometimes(|now| now.learners(|one| one.is_synced && !one.votes && !now.is_voter(one))),
        "of a leader: observers that have caught up",
    ),
    row(
        Gauge,
        "pending_syncs",
        One,
        Sometimes(|now| now.leads().then_some(Value::Number(now.status.pending_syncs))),
        "of a leader: linearizable reads that wait for a quorum",
    ),
    row(
        Gauge,
        "leader_uptime",
        Ms,
        Sometimes(|now| now.leads().then(|| Value::Number(now.status.led_ms.unwrap_or(0)))),
        "of a leader: time since it began to lead",
    ),
    row(
        Gauge,
        "last_proposal_size",
        Bytes,
        Sometimes(|now| now.proposal_size(|[last, _, _]| last)),
        "of a leader: the last entry that it proposed; -1 before the first",
    ),
    row(
        Gauge,
        "min_proposal_size",
        Bytes,
        Sometimes(|now| now.proposal_size(|[_, min, _]| min)),
        "of a leader: the smallest entry that it proposed; -1 before the first",
    ),
    row(
        Gauge,
        "max_proposal_size",
        Bytes,
        Sometimes(|now| now.proposal_size(|[_, _, max]| max)),
        "of a leader: the largest entry that it proposed; -1 before the first",
    ),
    row(
        Gauge,
        "avg_latency",
        Ms,
        Sometimes(|now| Some(Value::Mean(Average::of_us(now.traffic.latency_us_sum, now.traffic.answered)))),
        "mean time from reading a request until its answer is queued; `srst` resets it",
    ),
    row(
        Gauge,
        "min_latency",
        Ms,
        Always(|now| now.traffic.latency_us_min / 1000),
        "shortest time from reading a request until its answer is queued; `srst` resets it",
    ),
    row(
        Gauge,
        "max_latency",
        Ms,
        Always(|now| now.traffic.latency_us_max / 1000),
        "longest time from reading a request until its answer is queued; `srst` resets it",
    ),
    row(
        Counter,
        "packets_received",
        One,
        Always(|now| now.traffic.received),
        "messages received, handshakes and pings included; `srst` resets it",
    ),
    row(
        Counter,
        "packets_sent",
        One,
        Always(|now| now.traffic.sent),
        "messages sent, watch events included; `srst` resets it",
    ),
    row(Gauge, "num_alive_connections", One, Always(|now| now.current(Part::Connections)), "client connections"),
    row(Gauge, "outstanding_requests", One, Always(|now| now.traffic.outstanding), "requests read and not answered"),
    row(Gauge, "uptime", Ms, Always(|now| now.uptime_ms), "time since the client port opened"),
    row(Gauge, "znode_count", One, Always(|now| znode_count(now.status)), "znodes; the root counts twice"),
    row(Gauge, "watch_count", One, Always(|now| now.status.watches), "registered watches"),
    row(Gauge, "ephemerals_count", One, Always(|now| now.status.ephemerals), "ephemerals"),
    row(Gauge, "approximate_data_size", Bytes, Always(|now| now.status.data_bytes), "bytes of paths and data"),
    row(
        Gauge,
        "global_sessions",
        One,
        Always(|now| now.status.sessions - now.status.local_sessions),
        "sessions that every server knows, connected or not",
    ),
    row(
        Gauge,
        "local_sessions",
        One,
        Always(|now| now.status.local_sessions),
        "sessions that this server alone knows, connected or not",
    ),
    row(Gauge, "connection_drop_probability", One, Always(|_| 0), "always 0: zoolet drops no connection at random"),
    row(Gauge, "outstanding_tls_handshake", One, Always(|_| 0), "always 0: the client port has no TLS"),
    row(
        Counter,
        "connection_request_count",
        One,
        Always(|now| now.traffic.accepted),
        "connections accepted, those closed because of a limit included",
    ),
    row(
        Counter,
        "connection_rejected",
        One,
        Always(|now| now.traffic.rejected),
        "connections closed because of a limit",
    ),
    row(
        Counter,
        "connection_drop_count",
        One,
        Always(|now| now.traffic.dropped),
        "connections closed for a client's fault, such as invalid bytes or unread answers",
    ),
    row(
        Gauge,
        "last_client_response_size",
        Bytes,
        Always(|now| now.traffic.response_bytes_last),
        "size of the last answer; 0 before the first",
    ),
    row(
        Gauge,
        "max_client_response_size",
        Bytes,
        Always(|now| now.traffic.response_bytes_max),
        "size of the largest answer",
    ),
    row(
        Gauge,
        "min_client_response_size",
        Bytes,
        Always(|now| now.traffic.response_bytes_min),
        "size of the smallest answer; 0 before the first",
    ),
    row(Counter, "auth_failed_count", One, Always(|now| now.traffic.auth_failed), "refused authentications"),
    row(
        Counter,
        "sessionless_connections_expired",
        One,
        Always(|now| now.traffic.sessionless_expired),
        "connections closed because they began no session in time",
    ),
    row(Counter, "stale_sessions_expired", One, Always(|now| now.status.sessions_expired), "sessions that expired"),
    row(
        Counter,
        "bytes_received_count",
        Bytes,
        Always(|now| now.traffic.bytes_received),
        "bytes received from clients",
    ),
    row(Counter, "response_bytes", Bytes, Always(|now| now.traffic.bytes_sent), "bytes sent to clients"),
    row(
        Counter,
        "sessions_refused",
        One,
        Always(|now| now.status.sessions_refused),
        "sessions refused because of `sessions_max`",
    ),
    row(
        Counter,
        "sessions_refused_of_address",
        One,
        Always(|now| now.status.sessions_refused_of_address),
        "sessions refused because their address had used up its share",
    ),
    row(
        Counter,
        "local_sessions_displaced",
        One,
        Always(|now| now.status.local_sessions_displaced),
        "local sessions that ended because global ones took their places under `sessions_max`",
    ),
    row(
        Counter,
        "super_guesses",
        One,
        Always(|now| now.status.super_guesses),
        "wrong passwords of the super user, and attempts beyond the rate limit",
    ),
    row(Counter, "commit_count", One, Always(|now| now.status.writes_acknowledged), "acknowledged writes"),
    // Metrics that only zoolet has.
    row(Gauge, "unapplied_entries", One, Always(|now| now.status.unapplied), "entries appended and not yet applied"),
    row(Counter, "checkpoints", One, Always(|now| now.status.checkpoints), "durable checkpoints"),
    row(Counter, "checkpoints_failed", One, Always(|now| now.status.checkpoints_failed), "failed checkpoints"),
    row(Counter, "base_fetches", One, Always(|now| now.status.fetches), "fetches sent to the base"),
    row(
        Gauge,
        "refusing_writes",
        Flag,
        Always(|now| now.status.refusing_writes.is_some().into()),
        "whether the server refuses writes",
    ),
    row(
        Gauge,
        "quotas",
        One,
        Always(|now| now.status.quotas),
        "quotas with a usage (`zookeeper_stats`), counted or being counted",
    ),
    row(
        Gauge,
        "quotas_counting",
        One,
        Always(|now| now.status.quotas_counting),
        "subtrees whose usage is still being counted, and whose limits do not count yet",
    ),
    row(
        Counter,
        "<namespace>_quota_exceeded_error_per_namespace",
        One,
        EachNamespace(|status| &status.quota_refusals),
        "writes of this server's clients refused because of a hard limit, for each first name of a path",
    ),
    // As in ZooKeeper's `hash`.
    row(
        Text,
        "digest",
        One,
        Sometimes(|now| {
            let (zxid, digest) = (now.status.zxid.to_bits(), now.status.digest);
            Some(Value::Text(format!("{zxid:x}: {digest:032x}")))
        }),
        "the zxid of the last applied entry, and the digest of the state after it",
    ),
    // The driver measures these: `lines` in src/runtime/figures.rs and src/runtime/flash.rs.
    row(Counter, "log_appends", One, Driver, "appends to the log"),
    row(Counter, "log_batches", One, Driver, "batches that the log wrote"),
    row(Counter, "log_fdatasyncs", One, Driver, "syncs of the log, those that prepare segments included"),
    row(Counter, "log_entries", One, Driver, "entries made durable"),
    row(Counter, "log_entry_bytes", Bytes, Driver, "bytes of entries, with their record headers"),
    row(Counter, "log_fact_bytes", Bytes, Driver, "bytes of other records of the log, such as promises and epochs"),
    row(Counter, "log_padding_bytes", Bytes, Driver, "bytes of batch headers and padding"),
    row(Counter, "log_prepared_bytes", Bytes, Driver, "zeroes written once into new segments"),
    row(Gauge, "writes_acknowledged_per_batch", One, Driver, "acknowledged writes per batch, since the start"),
    row(Gauge, "fdatasync_us_p50", Us, Driver, "half of the batches were written and synced within this time"),
    row(Gauge, "fdatasync_us_p99", Us, Driver, "99 in 100 batches were written and synced within this time"),
    row(Gauge, "fdatasync_us_p999", Us, Driver, "999 in 1,000 batches were written and synced within this time"),
    row(Gauge, "fdatasync_us_max", Us, Driver, "the slowest batch was written and synced within this time"),
    row(
        Gauge,
        "disk_awaited_ms",
        Ms,
        Driver,
        "time for which the log, or a fetch, has waited for the disk; 0 if neither waits",
    ),
    row(Counter, "base_bytes_written", Bytes, Driver, "bytes written to the base"),
    row(Counter, "base_merge_bytes_written", Bytes, Driver, "bytes that merges wrote to the base"),
    row(Counter, "base_syncs", One, Driver, "syncs of the base's files and of its directory"),
    row(Counter, "base_bytes_read", Bytes, Driver, "bytes read from the base"),
    row(Gauge, "base_runs", One, Driver, "runs that wait to be merged"),
    row(Counter, "base_reopenings", One, Driver, "times that redb was reopened after an error"),
    row(Counter, "base_scrubs_sound", One, Driver, "scrubs of the whole base that found no damage"),
    row(Counter, "base_scrubs_failed", One, Driver, "scrubs that found damage, or could not read"),
    row(Gauge, "data_directory_gone", Flag, Driver, "whether the data directory was removed, moved or replaced"),
    row(Counter, "flash_log_bytes", Bytes, Driver, "bytes written to flash by batches of the log"),
    row(Counter, "flash_prepared_bytes", Bytes, Driver, "bytes written to flash to prepare space"),
    row(Counter, "flash_base_bytes", Bytes, Driver, "bytes written to flash by checkpoints and merges"),
    row(Counter, "flash_snapshot_bytes", Bytes, Driver, "bytes written to flash by bases received from peers"),
    row(Counter, "flash_image_bytes", Bytes, Driver, "bytes written to flash by images outside the store"),
    row(Counter, "flash_other_bytes", Bytes, Driver, "bytes written to flash by anything else"),
    row(Gauge, "flash_amplification_percent", Percent, Driver, "bytes written to flash per byte of entries"),
    row(Gauge, "flash_window_ms", Ms, Driver, "length of the window: since the start, at most a day"),
    row(Gauge, "flash_window_bytes", Bytes, Driver, "bytes written to flash in the window, without prepared space"),
    row(
        Gauge,
        "flash_bytes_per_day",
        BytesPerDay,
        Driver,
        "rate of writes to flash in the window; missing in the first 10 minutes",
    ),
    row(
        Gauge,
        "flash_budget_bytes_per_day",
        BytesPerDay,
        Driver,
        "the profile's budget of writes to flash; 0 is no budget",
    ),
    row(Gauge, "flash_over_budget", Flag, Driver, "whether the writes to flash in the window exceed the budget"),
    row(Gauge, "flash_life_days", Days, Driver, "life of a new medium at the rate of the window; missing if unknown"),
    row(
        Gauge,
        "flash_device_used_percent",
        Percent,
        Driver,
        "wear by the device's own report; missing without a report",
    ),
    row(
        Gauge,
        "open_file_descriptor_count",
        One,
        Sometimes(|now| now.files.map(|(open, _)| Value::Number(open))),
        "open file descriptors; missing if the system does not tell",
    ),
    row(
        Gauge,
        "max_file_descriptor_count",
        One,
        Sometimes(|now| now.files.map(|(_, max)| Value::Number(max))),
        "file descriptors that the process may open",
    ),
    row(Gauge, "budget_<part>", OfPart, EachPart(|part| part.current), "amount that the part holds"),
    row(Gauge, "budget_<part>_peak", OfPart, EachPart(|part| part.peak), "highest amount that the part has held"),
    row(Gauge, "budget_<part>_limit", OfPart, EachPart(|part| part.limit), "most that the part may hold"),
];

/// Returns ZooKeeper's `peer_state`. A serving server is always in the broadcast phase.
fn peer_state(role: &str) -> &'static str {
    match role {
        "leader" => "leading - broadcast",
        "follower" => "following - broadcast",
        _ => "observing - broadcast",
    }
}
