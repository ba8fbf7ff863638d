//! Every key of a `zoolet.toml`, once.
//!
//! To add a key, add a row here. Then the compiler asks for its use: a number names a field, and
//! the parser matches every other key. Tests compare this registry with `zoolet config example` and
//! with docs/reference/configuration.md. The hints of errors follow it by themselves.

#[cfg(test)]
mod reference;

use super::bound::Bound;
use super::{Config, Timing};
use zoolet_profiles::Unit;

pub(super) const KIB: u64 = 1 << 10;
const MIB: u64 = 1 << 20;
const GIB: u64 = 1 << 30;
const DAY_MS: u64 = 86_400_000;

/// The documentation of a key.
#[cfg(test)]
#[derive(Clone, Copy)]
pub(super) struct About {
    /// Default of a key that is not a number, as in a file; empty: none.
    pub(super) default: &'static str,
    /// The part of the server that reads the value.
    pub(super) reader: &'static str,
    pub(super) help: &'static str,
}

/// A key that is not a number.
#[cfg(test)]
struct Text {
    key: &'static str,
    allowed: &'static str,
    about: About,
}

/// Defines an enum of keys that are not numbers.
///
/// A row is a variant, the key, its allowed values as errors name them, its default as in a file,
/// its reader, and its meaning.
macro_rules! keys {
    ($(#[doc = $doc:literal])+ $table:ident;
     $($variant:ident = $name:literal, $allowed:literal, $default:literal, $reader:literal, $help:literal;)+) => {
        $(#[doc = $doc])+
        #[derive(Clone, Copy, PartialEq, Eq, Debug)]
        pub(super) enum $table {
            $($variant,)+
        }

        impl $table {
            pub(super) const NAMES: &[&str] = &[$($name),+];

            /// Returns the key with this name; `None` if this table has none.
            pub(super) fn named(name: &str) -> Option<Self> {
                match name {
                    $($name => Some(Self::$variant),)+
                    _ => None,
                }
            }

            /// Describes the allowed values, for errors.
            pub(super) const fn allowed(self) -> &'static str {
                match self {
                    $(Self::$variant => $allowed,)+
                }
            }

            #[cfg(test)]
            const ABOUT: &[Text] = &[$(Text {
                key: $name,
                allowed: $allowed,
                about: About { default: $default, reader: $reader, help: $help },
            }),+];
        }
    };
}

/// Defines a table of numbers.
///
/// A row is the key, which is the name of its field, its unit, its range, its reader, and its
/// meaning.
macro_rules! numbers {
    ($(#[doc = $doc:literal])+ $table:ident: $target:ty, |$it:ident| $fields:expr;
     $($key:ident: $unit:ident, $allowed:expr, $reader:literal, $help:literal;)+) => {
        $(#[doc = $doc])+
        pub(super) const $table: &[Bound<$target>] = &[$(Bound {
            key: stringify!($key),
            unit: Unit::$unit,
            allowed: $allowed,
            place: |$it| (&mut $fields.$key).into(),
            #[cfg(test)]
            about: About { default: "", reader: $reader, help: $help },
        }),+];
    };
}

keys! {
    /// Keys above the first table that every server has.
    General;
    Site = "site", "a name in quotes", "", "links, status",
        "name of the site, for people; servers of a site with another name are refused";
    Profile = "profile", "media/memory in quotes, such as \"emmc/512m\", a board, or a file that ends in .toml",
        "\"emmc/512m\"", "configuration",
        "source of all numbers that are not set here: media/memory, a board, or a file; see zoolet profile list";
    Network = "network", "\"lan\", \"wifi\" or \"metered\"", "\"lan\"", "configuration",
        "lan, wifi or metered: the network between the servers of the site";
    Data = "data", "a directory in quotes", "\"zoolet-data\"", "storage",
        "directory of log and base; the first start needs --create";
    LogStrategy = "log_strategy", "\"auto\", \"recycle\" or \"append\"", "\"auto\"", "log",
        "recycle: overwrite segments in place (ext4, xfs, tmpfs); append: grow new ones (other file systems)";
    Clients = "clients",
        "a loopback address such as \"127.0.0.1:2181\", or any address, unencrypted, such as \"plain://0.0.0.0:2181\"",
        "\"127.0.0.1:2181\"", "client port",
        "address for clients; off loopback only unencrypted, with the prefix: \"plain://0.0.0.0:2181\"";
    FourLetterWords = "four_letter_words", "a list of four-letter words in quotes", "[\"srvr\"]", "client port",
        "words that the client port answers, of ruok srvr stat mntr isro envi conf cons dump wchs wchc wchp \
         dirs crst srst zool; [\"*\"] for all; default with read_only = true: srvr and isro";
    ReadOnly = "read_only", "true or false", "false", "client port",
        "true: without a leader, or on a read-only disk, serve clients that ask to read only (readonlymode.enabled)";
    LastKnownGood = "last_known_good", "a table", "", "subtree file",
        "copy of a subtree in a file, readable without a server";
    Limits = "limits", "a table", "", "", "";
    Settings = "settings", "a table", "", "", "";
}

keys! {
    /// Keys above the first table, and tables, that only members of an ensemble need.
    OfEnsemble;
    Server = "server", "tables written as [[server]]", "", "", "";
    Id = "id", "a whole number from 1 to 255", "", "configuration",
        "id of this server, if neither key nor host identifies it (or serve --id 1)";
    Peers = "peers", "an address of this machine and a UDP port, such as \"0.0.0.0:2888\"", "", "links",
        "UDP address for links from other servers; default: all addresses, with the port of this server's host";
    Readmit = "readmit", "\"auto\"", "\"auto\"", "configuration",
        "admit a server again that returns with an empty disk";
    SiteKeyFile = "site_key_file", "a file in quotes", "", "links",
        "the secret of all servers: create it with \"zoolet keygen --out FILE\", copy it to all; not needed \
         on loopback alone";
    CaFile = "ca_file", "a file in quotes", "", "links",
        "certificates of your authority, instead of a site key; needs certificate_file and key_file";
    CertificateFile = "certificate_file", "a file in quotes", "", "links",
        "this server's certificate, issued by that authority";
    KeyFile = "key_file", "a file in quotes", "", "links",
        "the private key of that certificate";
    Timing = "timing", "a table", "", "", "";
}

keys! {
    /// The table `last_known_good`.
    OfKept;
    Subtree = "subtree", "the path of a znode in quotes", "", "subtree file",
        "root of the subtree; every client must be allowed to read all of it";
    Path = "path", "a file in quotes", "", "subtree file",
        "the file, in an existing directory outside the data directory";
    MinInterval = "min_interval", "a time from 1 s to 7 days, such as \"10 min\"", "\"10m\"", "subtree file",
        "minimum time between two writes of the file";
}

keys! {
    /// Keys of a `[[server]]`.
    OfServer;
    Id = "id", "a whole number from 1 to 255", "", "links",
        "number of the server, as four-letter words show it";
    Host = "host", "a host in quotes, \"host:port\", or a list of them", "", "links",
        "addresses for the other servers, tried in order; default port 2888 (UDP)";
    Role = "role", "\"voter\" or \"observer\"", "\"voter\"", "elections",
        "an observer follows the leader, and never votes";
    Key = "key", "a public key in quotes, \"zk1...\"", "", "links",
        "optional: this server's public key (\"zoolet keygen --data DIR\"); if all servers have one, no \
         site key is needed";
    Client = "client", "an address for clients of this server, such as \"gw-a:2181\"", "", "`conf`, status",
        "address for clients, shown by `conf`; optional, but for all servers or none";
}

keys! {
    /// Keys of `[settings]` that are not numbers.
    OfSettings;
    SuperDigest = "super_digest", "user:base64(sha1(user:password))", "", "permissions",
        "identity that passes every permission check";
    SkipAcl = "skip_acl", "true or false", "false", "permissions",
        "true: check no permissions";
    TtlZnodes = "ttl_znodes", "true or false", "true", "sessions",
        "false: refuse to create znodes with a time to live (extendedTypesEnabled); existing ones stay as they are";
    EnforceQuotas = "enforce_quotas", "true or false", "false", "leader",
        "true: refuse writes beyond a hard limit of a quota (enforceQuota); the leader's setting counts";
    LocalSessions = "local_sessions", "true or false", "false", "sessions",
        "true: a client's session exists at its own server only, and costs no entry (localSessionsEnabled)";
    LocalSessionsUpgrade = "local_sessions_upgrade", "true or false", "false", "sessions",
        "true: a local session that creates an ephemeral becomes global; false: the create fails \
         (localSessionsUpgradingEnabled)";
}

numbers! {
    /// The table `[limits]`.
    LIMITS: Config, |config| config.limits;
    frame_bytes_max: Bytes, 4 * KIB..=64 * MIB, "client port, links",
        "largest request; ZooKeeper's jute.maxbuffer; the same on all servers";
    connections_max: Count, 1..=1_000_000, "client port",
        "client connections";
    connections_per_address_max: Count, 0..=1_000_000, "client port, sessions",
        "client connections of one address; also bounds its sessions (16 for each); 0: no bound (maxClientCnxns)";
    handshakes_burst_max: Count, 0..=1_000_000, "client port",
        "handshakes of all clients that may come at once; 0: no limit on handshakes (connection_throttle_tokens)";
    handshakes_per_minute_max: Count, 1..=60_000_000, "client port",
        "handshakes of all clients per minute after such a burst; the server closes further ones; no effect while \
         handshakes_burst_max is 0";
    sessions_max: Count, 1..=10_000_000, "sessions",
        "sessions, connected or not";
    ephemerals_per_session_max: Count, 0..=1_000_000, "sessions",
        "ephemerals of one session; one entry deletes them all";
    watches_max: Count, 0..=100_000_000, "watches",
        "watches of all connections";
    outstanding_max: Count, 1..=1_000_000, "client port",
        "unanswered requests of one connection; at the limit the server stops reading from it";
    outstanding_bytes_max: Bytes, 64 * KIB..=GIB, "client port, links",
        "bytes of all unanswered requests, plus about 300 for each request; also bounds the bytes in flight to each server";
    outbound_bytes_max: Bytes, 64 * KIB..=GIB, "client port",
        "bytes that wait for one client; above it the client is dropped";
    outbound_bytes_total_max: Bytes, 64 * KIB..=2 * GIB, "client port",
        "bytes that wait for all clients; above it the client with the most is dropped";
    memtable_bytes: Bytes, 64 * KIB..=GIB, "checkpoints",
        "changes newer than the base; at the limit a checkpoint starts";
    record_cache_bytes: Bytes, 64 * KIB..=2 * GIB, "tree",
        "recently used records, in memory";
    spare_cache_bytes: Bytes, 0..=2 * GIB, "tree",
        "second record cache, in memory that is reserved for clients and links and not in use: this less the bytes of \
         identities, sessions and watches, and less the bounds of connections and links; off if less than 512 KiB is \
         left";
    base_cache_bytes: Bytes, 64 * KIB..=2 * GIB, "base",
        "recently used blocks of the base, in memory";
    disk_reserve_bytes: Bytes, 0..=4095 * MIB, "disk",
        "disk space reserved for deletions on a full disk; 0: no reserve";
    // 0, or at least the minimum that `check_together` computes.
    disk_bytes_max: Bytes, 0..=1 << 50, "disk",
        "maximum size of the data directory: ring, reserve and two bases; 0: no bound";
    log_segment_bytes: Bytes, 64 * KIB..=GIB, "log",
        "size of a segment of the log; the same on all servers";
    // Three segments are kept free, and a checkpoint starts when half of the ring is used. With
    // fewer than six segments, writes would wait forever.
    log_segments: Count, 6..=1024, "log",
        "segments of the ring";
}

numbers! {
    /// The numbers of the table `[settings]`.
    SETTINGS: Config, |config| config.settings;
    tick_ms: Millis, 10..=60_000, "`conf`",
        "tickTime: unit of the session timeout bounds in a zoo.cfg; above 2 s also the shortest wait before read-only \
         service";
    session_timeout_min_ms: Millis, 10..=DAY_MS, "sessions",
        "shortest session timeout granted";
    session_timeout_max_ms: Millis, 10..=DAY_MS, "sessions",
        "longest session timeout granted";
    handshake_timeout_ms: Millis, 100..=DAY_MS, "client port",
        "a connection without a session is closed after this time (nio.sessionlessCnxnTimeout)";
    container_check_interval_ms: Millis, 10..=DAY_MS, "leader",
        "interval between deletions of empty containers (znode.container.checkIntervalMs)";
    containers_per_minute_max: Count, 1..=1_000_000, "leader",
        "empty containers deleted per minute, at most (znode.container.maxPerMinute)";
    staleness_max_ms: Millis, 200..=DAY_MS, "sessions",
        "a server stops serving once its leader has not heard a quorum for this time";
}

numbers! {
    /// The table `[timing]`.
    TIMING: Timing, |timing| timing;
    heartbeat_busy_ms: Millis, 10..=60_000, "leader",
        "interval between heartbeats until 1 s after a write, and while a session's timeout is below 4 s";
    heartbeat_idle_ms: Millis, 10..=60_000, "leader",
        "interval between heartbeats otherwise";
    fresh_ms: Millis, 100..=600_000, "elections",
        "how long a server's last vote counts in an election";
    join_ms: Millis, 100..=600_000, "learners",
        "a server that its leader has not admitted yet leaves it after this silence";
    quorum_ms: Millis, 200..=600_000, "leader",
        "a leader steps down after this time without a majority, or after five pings that no majority answers";
    // Below one second, a card that erases a block would count as hanging.
    disk_stall_ms: Millis, 1000..=600_000, "leader",
        "a leader hands over after its disk stalls this long, if another server's disk is faster";
}

/// Returns the keys that stand above the first table.
pub(super) fn top() -> Vec<&'static str> {
    [General::NAMES, OfEnsemble::NAMES].concat()
}

/// Returns the keys of `[settings]` or `[limits]`: numbers first.
pub(super) fn with<T>(numbers: &[Bound<T>], others: &[&'static str]) -> Vec<&'static str> {
    numbers.iter().map(|bound| bound.key).chain(others.iter().copied()).collect()
}

/// Returns where a known key belongs; `None` for any other name.
///
/// In TOML, all keys after a table's header belong to that table.
pub(super) fn home(name: &str) -> Option<&'static str> {
    Some(match name {
        _ if top().contains(&name) => "above the first [table]",
        _ if with(LIMITS, &[]).contains(&name) => "under [limits]",
        _ if with(SETTINGS, OfSettings::NAMES).contains(&name) => "under [settings]",
        _ if with(TIMING, &[]).contains(&name) => "under [timing]",
        _ if OfServer::NAMES.contains(&name) => "under a [[server]]",
        _ if OfKept::NAMES.contains(&name) => "in last_known_good",
        _ => return None,
    })
}
