//! The bounds of a server, each with its unit and its only default.

use std::fmt;

/// Bytes of each log segment that no entry may use: its header, the facts, and its end.
pub const SEGMENT_RESERVED_BYTES: u32 = 3 * 4096;

/// Returns the largest payload that always fits into a segment of `segment_bytes`, bytes.
pub const fn payload_bytes_max(segment_bytes: u32) -> u32 {
    segment_bytes.saturating_sub(SEGMENT_RESERVED_BYTES)
}

/// The bounds of a server. The defaults are those of the profile `emmc/512m`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Limits {
    /// Largest request frame, bytes (ZooKeeper's jute.maxbuffer).
    pub frame_bytes_max: u32,
    /// Open client connections of all addresses.
    pub connections_max: u32,
    /// Open client connections of one IPv4 address or IPv6 /64 network; 0: unbounded.
    ///
    /// ZooKeeper calls it maxClientCnxns. It also determines [`Limits::sessions_per_address_max`].
    pub connections_per_address_max: u32,
    /// Handshakes that may come at once; 0: no limit on their rate.
    ///
    /// ZooKeeper calls it connection_throttle_tokens.
    pub handshakes_burst_max: u32,
    /// Handshakes per minute, once the burst is used up.
    pub handshakes_per_minute_max: u32,
    /// Sessions, connected or not.
    pub sessions_max: u32,
    /// Ephemerals of one session, which all die in one entry.
    pub ephemerals_per_session_max: u32,
    /// Watches of all connections.
    pub watches_max: u32,
    /// Requests of one connection read but not yet answered.
    ///
    /// At the bound, the server stops reading that connection.
    pub outstanding_max: u32,
    /// Bytes of requests read but not yet answered, of all connections.
    ///
    /// At the bound, the server stops reading a connection with a request in flight or a large one
    /// to send.
    pub outstanding_bytes_max: u32,
    /// Bytes waiting to be sent to one client.
    ///
    /// Above a quarter of the bound, the server stops reading the client's requests. Above the
    /// bound, it drops a client that takes nothing.
    pub outbound_bytes_max: u32,
    /// Bytes waiting to be sent to all clients.
    pub outbound_bytes_total_max: u32,
    /// Bytes of applied state newer than the base.
    ///
    /// Above the bound a checkpoint starts; above twice the bound admission waits.
    pub memtable_bytes: u32,
    /// Bytes of recently used records.
    pub record_cache_bytes: u32,
    /// Bytes of a second record cache, less the bytes of identities, sessions and watches, and less
    /// the bounds of connections and links. Off if less than 512 KiB is left.
    ///
    /// So the cache is in memory that is reserved for clients and links and not in use.
    pub spare_cache_bytes: u32,
    /// Bytes of the base's blocks kept in memory.
    pub base_cache_bytes: u32,
    /// Bytes of disk space reserved for deletions; 0 reserves none.
    pub disk_reserve_bytes: u32,
    /// Bytes of disk that the data directory's files may take; 0: unbounded.
    ///
    /// Above the bound the disk counts as full.
    pub disk_bytes_max: u64,
    /// Bytes of one log segment.
    pub log_segment_bytes: u32,
    /// Segments in the log's ring.
    pub log_segments: u32,
}

/// Sessions per permitted connection of one address.
///
/// A session outlives its connection by its timeout, so one connection can leave several sessions.
const SESSIONS_PER_CONNECTION: u32 = 16;
/// One address gets at most 1/4 of all sessions at one server.
///
/// On a small server this cap bounds the share.
const SHARES: u32 = 4;
/// One address gets at most 1/2 of all sessions at all servers together.
///
/// Sessions count ensemble-wide, but each server counts addresses by itself.
const SHARES_OF_ALL: u32 = 2;

impl Limits {
    /// Returns the sessions that one address may begin here; `None`: unbounded.
    ///
    /// An address is one IPv4 address or one IPv6 /64 network. The share is 16 sessions for each
    /// connection that it may have, with three limits:
    /// - at most a quarter of `sessions_max`
    /// - at most half of `sessions_max` at all `servers` together
    /// - at least one session per connection.
    ///
    /// The connection bound alone would not stop a client that connects, begins a session and
    /// leaves: each such session lasts for its timeout.
    pub fn sessions_per_address_max(&self, servers: u32) -> Option<u32> {
        let connections = self.connections_per_address_max;
        let part = SHARES.max(SHARES_OF_ALL.saturating_mul(servers));
        let share = connections.saturating_mul(SESSIONS_PER_CONNECTION).min(self.sessions_max / part);
        (connections > 0).then_some(share.max(connections))
    }

    /// Returns the largest entry, in bytes: a log segment without its overhead.
    pub const fn payload_bytes_max(&self) -> usize {
        payload_bytes_max(self.log_segment_bytes) as usize
    }
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            frame_bytes_max: 1_048_575,
            connections_max: 4096,
            connections_per_address_max: 60,
            handshakes_burst_max: 0,
            handshakes_per_minute_max: 60_000,
            sessions_max: 10_000,
            ephemerals_per_session_max: 10_000,
            watches_max: 200_000,
            outstanding_max: 1000,
            outstanding_bytes_max: 4 << 20,
            outbound_bytes_max: 4 << 20,
            outbound_bytes_total_max: 32 << 20,
            memtable_bytes: 8 << 20,
            record_cache_bytes: 4 << 20,
            spare_cache_bytes: 0,
            base_cache_bytes: 4 << 20,
            disk_reserve_bytes: 32 << 20,
            disk_bytes_max: 2 << 30,
            log_segment_bytes: 4 << 20,
            log_segments: 16,
        }
    }
}

/// Operator settings other than the bounds, with ZooKeeper's names where it has one.
#[derive(Clone, PartialEq, Eq)]
pub struct Settings {
    /// ZooKeeper's tickTime, milliseconds: the unit of default session timeout bounds.
    pub tick_ms: u32,
    /// Shortest session timeout granted, milliseconds.
    pub session_timeout_min_ms: u32,
    /// Longest session timeout granted, milliseconds.
    pub session_timeout_max_ms: u32,
    /// Maximum time without a session per connection (nio.sessionlessCnxnTimeout), milliseconds.
    pub handshake_timeout_ms: u32,
    /// `user:base64(sha1(user:password))` of the digest identity that passes every check.
    pub super_digest: Option<String>,
    /// ZooKeeper's skipACL: disables permission checks.
    pub skip_acl: bool,
    /// Whether znodes with a time to live may be created (extendedTypesEnabled).
    ///
    /// Existing TTL znodes keep their rules in either case.
    pub ttl_znodes: bool,
    /// Interval between container checks (znode.container.checkIntervalMs), milliseconds.
    ///
    /// The leader measures it on its monotonic clock.
    pub container_check_interval_ms: u32,
    /// Containers reaped per minute at most (znode.container.maxPerMinute).
    pub containers_per_minute_max: u32,
    /// ZooKeeper's localSessionsEnabled: every client's session begins local.
    pub local_sessions: bool,
    /// ZooKeeper's localSessionsUpgradingEnabled: a local session that creates an ephemeral becomes
    /// global.
    pub local_sessions_upgrade: bool,
    /// ZooKeeper's readonlymode.enabled: without a leader, serves clients that ask to read only.
    pub read_only: bool,
    /// Staleness above which a learner serves no clients, milliseconds.
    ///
    /// Its state is that old when its leader has not heard a quorum, as far as it knows, or when it has
    /// not applied a known commit, for that time.
    pub staleness_max_ms: u32,
    /// ZooKeeper's enforceQuota: a write beyond a hard limit is refused. The leader's setting counts.
    pub enforce_quotas: bool,
    /// Room of one entry for counting. Tests lower it, equally on all servers.
    #[cfg(feature = "testing")]
    pub counted_at_once: crate::tree::Room,
}

impl Settings {
    /// Returns the room of one entry for counting.
    #[cfg(feature = "testing")]
    pub(crate) fn counted_at_once(&self) -> crate::tree::Room {
        self.counted_at_once
    }

    /// Returns the room of one entry for counting.
    #[cfg(not(feature = "testing"))]
    pub(crate) fn counted_at_once(&self) -> crate::tree::Room {
        crate::tree::COUNTED_AT_ONCE
    }
}

/// Shows every field except the super digest, because logs must not contain it.
///
/// Of the digest it shows only whether it is set.
impl fmt::Debug for Settings {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            tick_ms,
            session_timeout_min_ms,
            session_timeout_max_ms,
            handshake_timeout_ms,
            super_digest,
            skip_acl,
            ttl_znodes,
            container_check_interval_ms,
            containers_per_minute_max,
            local_sessions,
            local_sessions_upgrade,
            read_only,
            staleness_max_ms,
            enforce_quotas,
            #[cfg(feature = "testing")]
                counted_at_once: _,
        } = self;
        f.debug_struct("Settings")
            .field("tick_ms", tick_ms)
            .field("session_timeout_min_ms", session_timeout_min_ms)
            .field("session_timeout_max_ms", session_timeout_max_ms)
            .field("handshake_timeout_ms", handshake_timeout_ms)
            .field("super_digest", &super_digest.as_ref().map(|_| format_args!("..")))
            .field("skip_acl", skip_acl)
            .field("ttl_znodes", ttl_znodes)
            .field("container_check_interval_ms", container_check_interval_ms)
            .field("containers_per_minute_max", containers_per_minute_max)
            .field("local_sessions", local_sessions)
            .field("local_sessions_upgrade", local_sessions_upgrade)
            .field("read_only", read_only)
            .field("staleness_max_ms", staleness_max_ms)
            .field("enforce_quotas", enforce_quotas)
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
            ttl_znodes: true,
            container_check_interval_ms: 60_000,
            containers_per_minute_max: 10_000,
            local_sessions: false,
            local_sessions_upgrade: false,
            read_only: false,
            staleness_max_ms: 3000,
            enforce_quotas: false,
            #[cfg(feature = "testing")]
            counted_at_once: crate::tree::COUNTED_AT_ONCE,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn session_share_of_an_address_is_at_least_its_connection_limit() {
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
