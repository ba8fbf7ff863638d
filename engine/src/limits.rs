//! Every bound of a server, with its unit and its one default.

/// What a server may hold. The defaults are those of the profile `emmc/512m`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Limits {
    /// Largest request frame, bytes (ZooKeeper's jute.maxbuffer).
    pub frame_bytes_max: u32,
    /// Open client connections, all addresses together.
    pub connections_max: u32,
    /// Open client connections of one address; 0 is no bound (ZooKeeper's maxClientCnxns).
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

impl Limits {
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
#[derive(Clone, PartialEq, Eq, Debug)]
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
