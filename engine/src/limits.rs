//! Every bound of a server, with its unit and its one default.

use std::fmt;

/// What a server may hold. The defaults are those of the profile `emmc/512m`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Limits {
    /// Largest request frame, bytes (ZooKeeper's jute.maxbuffer).
    pub frame_bytes_max: u32,
    /// Open client connections, all addresses together.
    pub connections_max: u32,
    /// Open client connections of one IPv4 address or IPv6 /64 network; 0 is no bound (ZooKeeper's
    /// maxClientCnxns). It also decides the [share of sessions](Limits::sessions_per_address_max).
    pub connections_per_address_max: u32,
    /// Sessions, connected or not.
    pub sessions_max: u32,
    /// Ephemerals of one session: they all die in one entry.
    pub ephemerals_per_session_max: u32,
    /// Watches, all connections together.
    pub watches_max: u32,
    /// Requests of one connection that are read but not yet answered; beyond it the connection is not read.
    pub outstanding_max: u32,
    /// Bytes of requests read but not yet answered, all connections together; beyond it no connection is read.
    pub outstanding_bytes_max: u32,
    /// Bytes waiting to be sent to one client; beyond a quarter its requests are not read, beyond it it is dropped.
    pub outbound_bytes_max: u32,
    /// Bytes waiting to be sent, all clients together.
    pub outbound_bytes_total_max: u32,
    /// Bytes of applied state newer than the base; beyond it a checkpoint starts, beyond twice admission waits.
    pub memtable_bytes: u32,
    /// Bytes of recently used records.
    pub record_cache_bytes: u32,
    /// Bytes of the base's blocks kept in memory.
    pub base_cache_bytes: u32,
    /// Bytes of disk space that only deletions use; 0 keeps none.
    pub disk_reserve_bytes: u32,
    /// Bytes of the disk that all files of the data directory may take together; 0 is no bound but the disk. Beyond it the disk is as good as full.
    pub disk_bytes_max: u64,
    /// Bytes of one log segment.
    pub log_segment_bytes: u32,
    /// Segments in the log's ring.
    pub log_segments: u32,
}

/// Sessions that one address may have for each connection that it may have: a session outlives its connection by its timeout.
const SESSIONS_PER_CONNECTION: u32 = 16;
/// At most this part of all sessions is for one address at one server, so that the share is one on a small server too.
const SHARES: u32 = 4;
/// At most this part is for one address at all servers together: sessions count for all of them, and each server counts addresses for itself.
const SHARES_OF_ALL: u32 = 2;

impl Limits {
    /// Sessions that clients of one IPv4 address or IPv6 /64 network may have begun at this server;
    /// `None` is no bound.
    ///
    /// It follows from `connections_per_address_max`: a client that connects, begins a session and leaves again uses a session up for its timeout,
    /// and the bound of connections does not see it. 16 sessions for each connection, at most a quarter of `sessions_max`, at most half of it at
    /// all `servers` together, and never fewer than connections.
    pub fn sessions_per_address_max(&self, servers: u32) -> Option<u32> {
        let connections = self.connections_per_address_max;
        let part = SHARES.max(SHARES_OF_ALL.saturating_mul(servers));
        let share = connections.saturating_mul(SESSIONS_PER_CONNECTION).min(self.sessions_max / part);
        (connections > 0).then_some(share.max(connections))
    }

    /// The largest entry, bytes: a log segment without what it restates.
    pub const fn payload_bytes_max(&self) -> usize {
        crate::store::log::payload_bytes_max(self.log_segment_bytes) as usize
    }
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            frame_bytes_max: 1_048_575,
            connections_max: 4096,
            connections_per_address_max: 60,
            sessions_max: 10_000,
            ephemerals_per_session_max: 10_000,
            watches_max: 200_000,
            outstanding_max: 1000,
            outstanding_bytes_max: 4 << 20,
            outbound_bytes_max: 4 << 20,
            outbound_bytes_total_max: 32 << 20,
            memtable_bytes: 8 << 20,
            record_cache_bytes: 4 << 20,
            base_cache_bytes: 4 << 20,
            disk_reserve_bytes: 32 << 20,
            disk_bytes_max: 2 << 30,
            log_segment_bytes: 4 << 20,
            log_segments: 16,
        }
    }
}

/// What an operator decides beside the bounds, under ZooKeeper's names where it has one.
#[derive(Clone, PartialEq, Eq)]
pub struct Settings {
    /// ZooKeeper's tickTime, milliseconds: what the bounds of session timeouts are counted in when they are not given.
    pub tick_ms: u32,
    /// Shortest session timeout granted, milliseconds.
    pub session_timeout_min_ms: u32,
    /// Longest session timeout granted, milliseconds.
    pub session_timeout_max_ms: u32,
    /// How long a connection may live without a session (nio.sessionlessCnxnTimeout), milliseconds.
    pub handshake_timeout_ms: u32,
    /// `user:base64(sha1(user:password))` of the digest identity that passes every check.
    pub super_digest: Option<String>,
    /// ZooKeeper's skipACL: no permission is checked.
    pub skip_acl: bool,
    /// How often containers are looked at, milliseconds of ensemble time (znode.container.checkIntervalMs).
    pub container_check_interval_ms: u32,
    /// Containers reaped in one minute at most (znode.container.maxPerMinute).
    pub containers_per_minute_max: u32,
    /// A learner that has not heard its leader for so long serves no clients, milliseconds: what it would show could be older than that.
    pub staleness_max_ms: u32,
}

/// Shows every field but the super digest, of which it shows only whether there is one: logs must not have it.
impl fmt::Debug for Settings {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            tick_ms,
            session_timeout_min_ms,
            session_timeout_max_ms,
            handshake_timeout_ms,
            super_digest,
            skip_acl,
            container_check_interval_ms,
            containers_per_minute_max,
            staleness_max_ms,
        } = self;
        f.debug_struct("Settings")
            .field("tick_ms", tick_ms)
            .field("session_timeout_min_ms", session_timeout_min_ms)
            .field("session_timeout_max_ms", session_timeout_max_ms)
            .field("handshake_timeout_ms", handshake_timeout_ms)
            .field("super_digest", &super_digest.as_ref().map(|_| format_args!("..")))
            .field("skip_acl", skip_acl)
            .field("container_check_interval_ms", container_check_interval_ms)
            .field("containers_per_minute_max", containers_per_minute_max)
            .field("staleness_max_ms", staleness_max_ms)
            .finish()
    }
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            tick_ms: 2000,
            session_timeout_min_ms: 4000,
            session_timeout_max_ms: 40_000,
            handshake_timeout_ms: 10_000,
            super_digest: None,
            skip_acl: false,
            container_check_interval_ms: 60_000,
            containers_per_minute_max: 10_000,
            staleness_max_ms: 3000,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_address_has_a_share_of_the_sessions_and_never_fewer_than_connections() {
        let share = |connections_per_address_max, sessions_max, servers| {
            let limits = Limits { connections_per_address_max, sessions_max, ..Limits::default() };
            limits.sessions_per_address_max(servers)
        };
        assert_eq!(Limits::default().sessions_per_address_max(1), Some(960));
        assert_eq!(share(60, 1000, 1), Some(250));
        assert_eq!(
            (share(60, 1000, 3), share(60, 1000, 5)),
            (Some(166), Some(100)),
            "half of them at all servers together"
        );
        assert_eq!(share(60, 100, 3), Some(60));
        assert_eq!(share(u32::MAX, 1000, 1), Some(u32::MAX));
        assert_eq!(share(0, 1000, 3), None);
    }
}
