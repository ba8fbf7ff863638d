//! ZooKeeper's `zoo.cfg`, unchanged.
//!
//! Keys with a meaning here take effect. Keys that cannot take effect yet give an error or a
//! warning. An unknown key gives a warning, as in ZooKeeper, or an error if it resembles a security
//! setting or a server line.

use super::bound::{self, TogetherNames};
use super::profile_defaults;
use super::properties::{self, Property};
use super::protection::{self, Protection};
use super::stray_key::refuse_in_line;
use super::toml_file::{is_word, super_digest};
use super::zoo_ensemble::Servers;
use super::zoo_throttles::{self, Throttles};
use super::{
    Config, ConfigError, DEFAULT_PROFILE, Ensemble, Loaded, Network, Overrides, Populate, Timing, completed,
    server_line,
};
use std::{
    collections::HashMap,
    net::{IpAddr, Ipv4Addr, SocketAddr, ToSocketAddrs},
    path::Path,
};
use zoolet_profiles::{Profile, nearest};

/// ZooKeeper's default of `tickTime`, milliseconds.
const TICK_MS: u32 = 3000;

/// Keys with a meaning here.
const OBEYED: &[&str] = &[
    "dataDir",
    "dataLogDir",
    "clientPort",
    "clientPortAddress",
    "tickTime",
    "minSessionTimeout",
    "maxSessionTimeout",
    "maxClientCnxns",
    "maxCnxns",
    "jute.maxbuffer",
    "globalOutstandingLimit",
    "largeRequestThreshold",
    "largeRequestMaxBytes",
    "connection_throttle_tokens",
    "connection_throttle_fill_time",
    "connection_throttle_fill_count",
    "4lw.commands.whitelist",
    "skipACL",
    "DigestAuthenticationProvider.superDigest",
    "nio.sessionlessCnxnTimeout",
    "znode.container.checkIntervalMs",
    "znode.container.maxPerMinute",
    "localSessionsEnabled",
    "localSessionsUpgradingEnabled",
    "readonlymode.enabled",
    "datadir.autocreate",
    "peerType",
    "zoolet.profile",
    "zoolet.network",
    "zoolet.siteKeyFile",
    "dynamicConfigFile",
    "forceSync",
    "extendedTypesEnabled",
    "enforceQuota",
    "reconfigEnabled",
];

/// Keys that tune parts which this server lacks, or which need no tuning here.
const NOTHING_TO_DO: &[&str] = &[
    // Timeouts between servers do not depend on ticks.
    "initLimit",
    "syncLimit",
    "connectToLearnerMasterLimit",
    "electionAlg",
    "quorumListenOnAllIPs",
    "syncEnabled",
    "snapCount",
    "snapSizeLimitInKb",
    "txnLogSizeLimitInKb",
    "commitLogCount",
    "preAllocSize",
    "maxBatchSize",
    "flushDelay",
    "maxWriteQueuePollTime",
    "fsync.warningthresholdms",
    "serverCnxnFactory",
    "snapshot.trust.empty",
    "snapshot.compression.method",
    "db.autocreate",
    "clientPortListenBacklog",
    "clientTcpKeepAlive",
    "tcpKeepAlive",
    "cnxTimeout",
    "electionPortBindRetry",
    "digest.enabled",
    "closeSessionTxn.enabled",
    "leaderServes",
    // It decodes data files of ZooKeeper 3.5.3, and this server reads no data files of ZooKeeper.
    "emulate353TTLNodes",
    "enableEagerACLCheck",
    "fips-mode",
    "jute.maxbuffer.extrasize",
    "maxResponseCacheSize",
    "maxGetChildrenResponseCacheSize",
    "autopurge.snapRetainCount",
    "autopurge.purgeInterval",
    "quorum.cnxn.threads.size",
    "standaloneEnabled",
    // Links between servers are always encrypted.
    "sslQuorum",
    "sslQuorumReloadCertFiles",
    // ZooKeeper reads these only together with a setting that is refused here (`protection.rs`).
    "enforce.auth.schemes",
    "secureClientPortAddress",
];

/// Prefixes of such keys.
const NOTHING_TO_DO_PREFIXES: &[&str] = &["jvm.pause.", "multiAddress.", "nio.", "netty.", "leader.", "learner."];

/// Keys and prefixes of features that are not implemented. The server starts without them, with a
/// warning.
///
/// None of them protects: without it, no client may do or read more than with it.
const NOT_BUILT: &[&str] = &[
    "admin.",
    "allowSaslFailedClients",
    "audit.impl.class",
    "ensembleAuthName",
    "jaasLoginRenew",
    "kerberos.",
    "letAnySaslUserDoX",
    "metricsProvider.",
    "observerMasterPort",
    "oraclePath",
    "portUnification",
    "quorum.auth.kerberos.",
    "quorum.auth.learner.",
    "quorum.auth.server.",
    "sasl.",
    "SASLAuthenticationProvider.",
    "security.auth_to_local",
    "superUser",
    "X509AuthenticationProvider.",
];

pub(super) fn read(file: &Path, text: &str, over: &Overrides) -> Result<Loaded, ConfigError> {
    let properties = properties::parse(text).map_err(|(line, error)| error.at(file, Some(line)))?;
    for Property { key, value, line } in &properties {
        refuse_in_line(key, value).map_err(|error| error.at(file, Some(*line)))?;
    }
    let profile = profile_of(file, &properties, over).map_err(|(line, error)| error.at(file, line))?;
    let (config, timing) = profile_defaults::numbers(&profile).map_err(|error| error.at(file, None))?;
    let mut reader = Reader::new(config, timing);
    for line in repeated(&properties) {
        reader.warn(line);
    }
    for property in &properties {
        reader.property(property).map_err(|error| error.at(file, Some(property.line)))?;
    }
    if let Some(line) = reader.port_zero(&properties) {
        let error = ConfigError::new("clientPort = 0: allowed is a port, 1 to 65535");
        return Err(error.at(file, Some(line)));
    }
    let (config, warnings) = reader.finish(over).map_err(|error| error.at(file, None))?;
    Ok(completed(&profile, config, warnings))
}

/// Returns a warning for each repeated key except server lines.
///
/// The later line counts, as in ZooKeeper, which gives no warning. A repeated server is an error.
fn repeated(properties: &[Property]) -> impl Iterator<Item = String> {
    let mut lines = HashMap::new();
    properties.iter().filter(|property| !property.key.starts_with("server.")).filter_map(move |property| {
        let Property { key, line, .. } = property;
        let earlier = lines.insert(key, line)?;
        Some(format!("{key}: set in line {earlier} and again in line {line}, which counts"))
    })
}

/// Returns the profile for the default numbers, from the file or the command line.
fn profile_of(file: &Path, properties: &[Property], over: &Overrides) -> Result<Profile, (Option<usize>, ConfigError)> {
    let last = |key: &str| {
        let is_it = |property: &&Property| property.key.strip_prefix("zookeeper.").unwrap_or(&property.key) == key;
        properties.iter().rev().find(is_it)
    };
    let network = last("zoolet.network").map(|Property { key, value, line }| {
        let known = Network::ALL.into_iter().find(|network| network.name() == value);
        known.ok_or_else(|| (Some(*line), ConfigError::value(key, value, "lan, wifi or metered")))
    });
    let (name, line) = match (&over.profile, last("zoolet.profile")) {
        (Some(name), _) => (name.clone(), None),
        (None, Some(property)) => (profile_defaults::beside(file, &property.value), Some(property.line)),
        (None, None) => (DEFAULT_PROFILE.to_owned(), None),
    };
    profile_defaults::find(&name, network.transpose()?).map_err(|error| (line, error))
}

/// The values read so far. [`Reader::finish`] combines those that depend on each other.
struct Reader {
    config: Config,
    timing: Timing,
    data_given: bool,
    client_port: Option<u16>,
    client_address: Option<IpAddr>,
    session_timeout_min_ms: Option<u32>,
    session_timeout_max_ms: Option<u32>,
    servers: Servers,
    ensemble_of_one: bool,
    words_given: bool,
    throttles: Throttles,
    nothing_to_do: Vec<String>,
    warnings: Vec<String>,
}

impl Reader {
    fn new(mut config: Config, timing: Timing) -> Self {
        config.settings.tick_ms = TICK_MS;
        // As in ZooKeeper, they are off unless the file says otherwise.
        config.settings.ttl_znodes = false;
        Self {
            config,
            timing,
            data_given: false,
            client_port: None,
            client_address: None,
            session_timeout_min_ms: None,
            session_timeout_max_ms: None,
            servers: Servers::default(),
            ensemble_of_one: false,
            words_given: false,
            throttles: Throttles::default(),
            nothing_to_do: Vec::new(),
            warnings: Vec::new(),
        }
    }

    fn property(&mut self, Property { key: written, value, .. }: &Property) -> Result<(), ConfigError> {
        // ZooKeeper turns an unknown key into the system property `zookeeper.<key>`, so files use
        // either form.
        let key = written.strip_prefix("zookeeper.").unwrap_or(written);
        if let Some(protection) = Protection::asked_for(key, value) {
            return Err(protection.refusal(written));
        }
        match key {
            "dataDir" => {
                if value.is_empty() {
                    return Err(ConfigError::value(written, "", "a directory"));
                }
                self.config.data = value.into();
                self.data_given = true;
            }
            "dataLogDir" => self.warn(format!("{written} = {value}: ignored: log and base share dataDir")),
            "clientPort" => self.client_port = port(written, value)?,
            "clientPortAddress" => self.client_address = Some(address(written, value)?),
            "tickTime" => self.number("tick_ms", written, value)?,
            "minSessionTimeout" => self.session_timeout_min_ms = self.timeout(written, value)?,
            "maxSessionTimeout" => self.session_timeout_max_ms = self.timeout(written, value)?,
            "maxClientCnxns" => self.number("connections_per_address_max", written, value)?,
            // In ZooKeeper 0 means no bound. Here everything has a bound, so the default stays.
            "maxCnxns" if value == "0" => {}
            "maxCnxns" => self.number("connections_max", written, value)?,
            "jute.maxbuffer" => self.number("frame_bytes_max", written, value)?,
            "globalOutstandingLimit" => self.number("outstanding_max", written, value)?,
            "connection_throttle_tokens" => self.number("handshakes_burst_max", written, value)?,
            "4lw.commands.whitelist" => {
                self.config.four_letter_words = words(value);
                let is_none = |word: &&String| *word != "*" && !is_word(word);
                let none: Vec<&str> =
                    self.config.four_letter_words.iter().filter(is_none).map(String::as_str).collect();
                if !none.is_empty() {
                    self.warnings.push(format!("{written}: {}: no such word, ignored", none.join(", ")));
                }
                self.words_given = true;
            }
            "skipACL" => self.config.settings.skip_acl = yes_or_no(written, value)?,
            "enforceQuota" => self.config.settings.enforce_quotas = boolean(written, value)?,
            "DigestAuthenticationProvider.superDigest" => {
                self.config.settings.super_digest = Some(super_digest(written, value)?);
            }
            "nio.sessionlessCnxnTimeout" => self.number("handshake_timeout_ms", written, value)?,
            "znode.container.checkIntervalMs" => self.number("container_check_interval_ms", written, value)?,
            "znode.container.maxPerMinute" => self.number("containers_per_minute_max", written, value)?,
            "extendedTypesEnabled" => self.config.settings.ttl_znodes = boolean(written, value)?,
            "localSessionsEnabled" => self.config.settings.local_sessions = boolean(written, value)?,
            "localSessionsUpgradingEnabled" => {
                self.config.settings.local_sessions_upgrade = boolean(written, value)?;
            }
            "readonlymode.enabled" => self.config.settings.read_only = boolean(written, value)?,
            "datadir.autocreate" => {
                let create = boolean(written, value)?;
                self.config.populate = if create { Populate::IfEmpty } else { Populate::Never };
            }
            "peerType" => self.servers.is_observer = Some(peer_type(written, value)?),
            // Already read.
            "zoolet.profile" | "zoolet.network" => {}
            "zoolet.siteKeyFile" if !value.is_empty() => self.servers.site_key_file = Some(value.into()),
            "dynamicConfigFile" => self.servers.read_dynamic(written, Path::new(value))?,
            _ if self.throttles.set(key, written, value)? => {}
            _ => self.rest(key, written, value)?,
        }
        Ok(())
    }

    /// Handles keys that change nothing, or only with some values.
    fn rest(&mut self, key: &str, written: &str, value: &str) -> Result<(), ConfigError> {
        if let Some(id) = key.strip_prefix("server.") {
            self.servers.lines.push(server_line::parse(written, id, value)?);
            if let Some(file) = &self.servers.dynamic_file {
                return Err(ConfigError::new(format!(
                    "{written}: the servers are in {} already; use only one of the two",
                    file.display()
                )));
            }
            return Ok(());
        }
        match key {
            "standaloneEnabled" => self.ensemble_of_one = !boolean(written, value)?,
            "forceSync" if !yes_or_no(written, value)? => {
                self.warn(format!("{written} = {value}: ignored: a write is durable before it is acknowledged"));
            }
            "reconfigEnabled" if boolean(written, value)? => {
                self.warn(format!("{written} = {value}: not built yet, ignored"));
            }
            // These values match what the server does anyway.
            "forceSync" | "reconfigEnabled" => {}
            _ if protection::is_known(key) => {}
            _ if key.starts_with("group.") || key.starts_with("weight.") => {
                self.servers.weighted = Some(written.to_owned());
            }
            _ if zoo_throttles::is_off(key, value) => self.nothing_to_do.push(written.to_owned()),
            _ if zoo_throttles::ignored(key).is_some() && !protection::is_respelt(key) => {
                let why = zoo_throttles::ignored(key).unwrap_or_default();
                self.warn(format!("{written}: ignored: {why}"));
            }
            _ if NOTHING_TO_DO.contains(&key) || has_prefix(key, NOTHING_TO_DO_PREFIXES) => {
                self.nothing_to_do.push(written.to_owned());
            }
            _ if has_prefix(key, NOT_BUILT) && !protection::is_respelt(key) => {
                self.warn(format!("{written}: not built yet, ignored"));
            }
            _ => self.unknown(key, written, value)?,
        }
        Ok(())
    }

    /// Warns of an unknown key, and refuses one that resembles a protection's key.
    ///
    /// The author of such a key expects protection. The message omits the value: behind a mistyped
    /// key it may be a password.
    fn unknown(&mut self, key: &str, written: &str, value: &str) -> Result<(), ConfigError> {
        let harmless = OBEYED.iter().chain(NOTHING_TO_DO).chain(NOT_BUILT).copied();
        if let Some(near) = protection::meant(key, value, harmless) {
            return Err(ConfigError::new(format!("{written}: no such key; did you mean {near}?")));
        }
        let known = OBEYED.iter().chain(NOTHING_TO_DO).copied().chain(protection::keys());
        match nearest(key, known) {
            // The key is the beginning of a protection's key, so its author relies on the
            // protection.
            Some(near) if Protection::asked_for(near, value).is_some() => {
                return Err(ConfigError::new(format!("{written}: no such key; did you mean {near}?")));
            }
            Some(near) => self.warn(format!("{written}: no such key, ignored; did you mean {near}?")),
            None => self.warn(format!("{written}: no such key, ignored")),
        }
        Ok(())
    }

    /// Returns the line with client port 0, "not set" in ZooKeeper, if no other line names a port.
    fn port_zero(&self, properties: &[Property]) -> Option<usize> {
        let is_named = self.client_port.is_some() || self.servers.lines.iter().any(|line| line.clients.is_some());
        let bare =
            |property: &Property| property.key.strip_prefix("zookeeper.").unwrap_or(&property.key) == "clientPort";
        let found = properties.iter().rev().find(|property| bare(property)).filter(|_| !is_named);
        found.map(|property| property.line)
    }

    fn finish(mut self, over: &Overrides) -> Result<(Config, Vec<String>), ConfigError> {
        if let Some(data) = &over.data {
            self.config.data.clone_from(data);
        } else if !self.data_given {
            return Err(ConfigError::new("dataDir: is missing; allowed is a directory"));
        }
        if let Some(id) = self.servers.number(&self.config.data, over.server_id)? {
            self.config.server_id = id;
        }
        self.config.clients = Some(self.client_socket()?);
        if self.servers.are_several() {
            let (ensemble, warnings) = self.servers.ensemble(self.config.server_id, &self.config.data)?;
            self.config.ensemble = Some(Ensemble { timing: self.timing, ..ensemble });
            self.warnings.extend(warnings);
        } else {
            self.alone()?;
        }
        self.session_timeouts();
        self.throttles.bound(&mut self.config.limits);
        if self.config.settings.read_only && !self.words_given {
            // Read-only clients probe other servers with `isro` for one that has a leader.
            // ZooKeeper allows it then, too.
            self.config.four_letter_words.push("isro".to_owned());
        }
        if !self.nothing_to_do.is_empty() {
            let keys = self.nothing_to_do.join(", ");
            self.warn(format!("{keys}: accepted, without effect"));
        }
        let names = TogetherNames {
            timeout_min: "minSessionTimeout",
            timeout_max: "maxSessionTimeout",
            frame: "jute.maxbuffer",
            disk: "disk_bytes_max of the profile",
        };
        bound::check_together(&self.config, &names)?;
        Ok((self.config, self.warnings))
    }

    /// Refuses or ignores settings that need several servers.
    fn alone(&mut self) -> Result<(), ConfigError> {
        if self.servers.is_observer == Some(true) || self.servers.lines.iter().any(|line| line.is_observer) {
            return Err(ConfigError::new("observer: a standalone server cannot be one"));
        }
        self.nothing_to_do.extend(self.servers.weighted.take());
        // As in ZooKeeper: only a server of an ensemble has local sessions.
        if !self.ensemble_of_one && std::mem::take(&mut self.config.settings.local_sessions) {
            self.nothing_to_do.push("localSessionsEnabled".to_owned());
        }
        if self.ensemble_of_one {
            self.warn(
                "standaloneEnabled = false: ignored: this server is standalone, and servers cannot be added yet"
                    .to_owned(),
            );
        }
        Ok(())
    }

    fn client_socket(&self) -> Result<SocketAddr, ConfigError> {
        if let Some(port) = self.client_port {
            return Ok((self.client_address.unwrap_or(Ipv4Addr::UNSPECIFIED.into()), port).into());
        }
        let of_line = self.servers.own(self.config.server_id).and_then(|line| line.clients.as_ref());
        let Some(part) = of_line else {
            return Err(ConfigError::new("clientPort: is missing; allowed is a port, 1 to 65535"));
        };
        let key = format!("server.{}", self.config.server_id);
        let ip = part.host.as_deref().map_or(Ok(Ipv4Addr::UNSPECIFIED.into()), |host| address(&key, host))?;
        Ok((ip, part.port).into())
    }

    fn session_timeouts(&mut self) {
        let settings = &mut self.config.settings;
        settings.session_timeout_min_ms = self.session_timeout_min_ms.unwrap_or(settings.tick_ms.saturating_mul(2));
        settings.session_timeout_max_ms = self.session_timeout_max_ms.unwrap_or(settings.tick_ms.saturating_mul(20));
    }

    fn number(&mut self, bound: &str, written: &str, value: &str) -> Result<(), ConfigError> {
        match bound::named(bound) {
            Some(bound) => bound.set_plain(&mut self.config, written, value),
            None => Err(ConfigError::new(format!("{written}: has no place"))),
        }
    }

    /// Reads a session timeout; `None` for -1, ZooKeeper's "default number of ticks".
    fn timeout(&mut self, written: &str, value: &str) -> Result<Option<u32>, ConfigError> {
        if value == "-1" {
            return Ok(None);
        }
        self.number("session_timeout_max_ms", written, value)?;
        Ok(Some(self.config.settings.session_timeout_max_ms))
    }

    fn warn(&mut self, line: String) {
        self.warnings.push(line);
    }
}

fn has_prefix(key: &str, prefixes: &[&str]) -> bool {
    prefixes.iter().any(|prefix| key.starts_with(prefix))
}

/// Reads a port; `None` for 0, ZooKeeper's "not set".
fn port(key: &str, value: &str) -> Result<Option<u16>, ConfigError> {
    let port: u16 = value.parse().map_err(|_| ConfigError::value(key, value, "a port, 1 to 65535"))?;
    Ok((port != 0).then_some(port))
}

fn address(key: &str, value: &str) -> Result<IpAddr, ConfigError> {
    let bare = value.trim_start_matches('[').trim_end_matches(']');
    let found = (bare, 0).to_socket_addrs().ok().and_then(|mut addresses| addresses.next());
    found.map(|address| address.ip()).ok_or_else(|| ConfigError::value(key, value, "an address of this machine"))
}

fn words(value: &str) -> Vec<String> {
    value.split(',').map(str::trim).filter(|word| !word.is_empty()).map(str::to_owned).collect()
}

fn boolean(key: &str, value: &str) -> Result<bool, ConfigError> {
    if value.eq_ignore_ascii_case("true") {
        Ok(true)
    } else if value.eq_ignore_ascii_case("false") {
        Ok(false)
    } else {
        Err(ConfigError::value(key, value, "true or false"))
    }
}

fn yes_or_no(key: &str, value: &str) -> Result<bool, ConfigError> {
    match value {
        "yes" => Ok(true),
        "no" => Ok(false),
        _ => Err(ConfigError::value(key, value, "yes or no")),
    }
}

fn peer_type(key: &str, value: &str) -> Result<bool, ConfigError> {
    match value.to_ascii_lowercase().as_str() {
        "participant" => Ok(false),
        "observer" => Ok(true),
        _ => Err(ConfigError::value(key, value, "participant or observer")),
    }
}

/// Returns all keys and prefixes of the lists.
pub(super) fn listed_keys() -> impl Iterator<Item = &'static str> {
    let throttles = zoo_throttles::IGNORED.iter().map(|(prefix, _)| *prefix);
    OBEYED.iter().chain(NOTHING_TO_DO).chain(NOTHING_TO_DO_PREFIXES).chain(NOT_BUILT).copied().chain(throttles)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(text: &str) -> Result<Loaded, String> {
        read(Path::new("zoo.cfg"), text, &Overrides::default()).map_err(|error| error.to_string())
    }

    #[test]
    fn zookeepers_sample_file_works_unchanged() {
        let loaded = parse(
            "tickTime=2000\ninitLimit=10\nsyncLimit=5\ndataDir=/tmp/zookeeper\nclientPort=2181\n\
             #maxClientCnxns=60\nautopurge.purgeInterval=1\n",
        )
        .unwrap();
        let config = loaded.config;
        assert_eq!(config.clients.unwrap().to_string(), "0.0.0.0:2181");
        assert_eq!(config.settings.tick_ms, 2000);
        assert_eq!(config.settings.session_timeout_min_ms, 4000);
        assert_eq!(config.settings.session_timeout_max_ms, 40_000);
        assert_eq!(config.populate, Populate::IfEmpty);
        assert_eq!(loaded.warnings, ["initLimit, syncLimit, autopurge.purgeInterval: accepted, without effect"]);
    }

    #[test]
    fn every_supported_zookeeper_key_reaches_the_config() {
        let config = parse(
            "dataDir=/d\nclientPort=2182\nclientPortAddress=127.0.0.1\nminSessionTimeout=1000\nmaxSessionTimeout=-1\n\
             maxClientCnxns=0\nmaxCnxns=77\n4lw.commands.whitelist=ruok, stat\nzookeeper.skipACL=yes\nenforceQuota=true\n\
             jute.maxbuffer=2000000\nznode.container.checkIntervalMs=1000\nzookeeper.znode.container.maxPerMinute=9\n\
             extendedTypesEnabled=true\nstandaloneEnabled=false\nlocalSessionsEnabled=true\nzookeeper.localSessionsUpgradingEnabled=TRUE\nglobalOutstandingLimit=50\nzookeeper.DigestAuthenticationProvider.superDigest=super:UdxDQl4f9v5oITwcAsO9bmWgHSI=\n",
        )
        .unwrap()
        .config;
        assert_eq!(config.clients.unwrap().to_string(), "127.0.0.1:2182");
        assert_eq!((config.settings.session_timeout_min_ms, config.settings.session_timeout_max_ms), (1000, 60_000));
        assert_eq!((config.limits.connections_per_address_max, config.limits.connections_max), (0, 77));
        assert_eq!(config.four_letter_words, ["ruok", "stat"]);
        assert!(config.settings.skip_acl && config.settings.super_digest.is_some());
        assert!(config.settings.ttl_znodes && !parse("dataDir=/d\nclientPort=1\n").unwrap().config.settings.ttl_znodes);
        assert!(config.settings.enforce_quotas && !zoolet_machine::Settings::default().enforce_quotas);
        assert!(config.settings.local_sessions && config.settings.local_sessions_upgrade);
        assert_eq!((config.limits.frame_bytes_max, config.limits.outstanding_max), (2_000_000, 50));
        assert_eq!(config.settings.container_check_interval_ms, 1000);
        assert_eq!(config.settings.containers_per_minute_max, 9);
    }

    #[test]
    fn profile_supplies_values_without_a_zookeeper_key() {
        let config = parse(
            "dataDir=/d\nclientPort=1\ntickTime=2000\nzoolet.profile=sd-a1/256m\nzookeeper.zoolet.network=wifi\n",
        )
        .unwrap()
        .config;
        assert_eq!((config.limits.sessions_max, config.settings.staleness_max_ms), (4000, 6000));
        assert_eq!((config.profile.as_str(), config.network), ("sd-a1/256m", Network::Wifi));
        assert_eq!(config.settings.session_timeout_min_ms, 4000, "two ticks, as in ZooKeeper");
    }

    #[test]
    fn single_server_line_configures_a_standalone_server() {
        let config = parse("dataDir=/d\nserver.3=localhost:2888:3888:PARTICIPANT;127.0.0.1:2190\n").unwrap().config;
        assert_eq!((config.server_id, config.clients.unwrap().to_string()), (3, "127.0.0.1:2190".to_owned()));
        let config = parse("dataDir=/d\nserver.3=localhost:2888:3888;2190\n").unwrap().config;
        assert_eq!(config.clients.unwrap().to_string(), "0.0.0.0:2190");
        let loaded = parse("dataDir=/d\nclientPort=1\nlocalSessionsEnabled=true\n").unwrap();
        assert_eq!(loaded.warnings, ["localSessionsEnabled: accepted, without effect"]);
        assert!(!loaded.config.settings.local_sessions);
    }

    #[test]
    fn unknown_and_unsupported_keys_are_warned_of() {
        let loaded = parse("dataDir=/d\nclientPort=1\nfoo=bar\nmetricsProvider.httpPort=7000\ndataLogDir=/l").unwrap();
        assert_eq!(
            loaded.warnings,
            [
                "foo: no such key, ignored",
                "metricsProvider.httpPort: not built yet, ignored",
                "dataLogDir = /l: ignored: log and base share dataDir",
            ]
        );
    }

    #[test]
    fn keys_of_missing_parts_are_accepted_without_effect() {
        let loaded = parse(
            "dataDir=/d\nclientPort=1\nzookeeper.emulate353TTLNodes=true\nleader.maxConcurrentSnapSyncs=10\n\
             leader.maxConcurrentDiffSyncs=100\nnetty.server.outstandingHandshake.limit=5\n",
        );
        let keys = "zookeeper.emulate353TTLNodes, leader.maxConcurrentSnapSyncs, leader.maxConcurrentDiffSyncs, \
                    netty.server.outstandingHandshake.limit";
        assert_eq!(loaded.unwrap().warnings, [format!("{keys}: accepted, without effect")]);
    }

    #[test]
    fn misspelt_and_repeated_keys_are_warned_of() {
        let loaded = parse("dataDir=/d\nclientPort=1\nmaxClientConns=60\nclientPort=2\n").unwrap();
        assert_eq!(
            loaded.warnings,
            [
                "clientPort: set in line 2 and again in line 4, which counts",
                "maxClientConns: no such key, ignored; did you mean maxClientCnxns?",
            ]
        );
        assert_eq!(loaded.config.clients.unwrap().port(), 2);
        let twice = parse("dataDir=/d\nclientPort=1\nserver.1=a:1:2\nserver.1=b:1:2\nserver.2=c:1:2\n").unwrap_err();
        assert!(!twice.contains("again"), "{twice}");
    }

    /// A suggested key must be accepted.
    #[test]
    fn every_key_suggested_for_a_typo_is_accepted() {
        for key in OBEYED {
            let said = match parse(&format!("dataDir=/d\nclientPort=1\n{key}=1\n")) {
                Ok(loaded) => loaded.warnings.join("\n"),
                Err(error) => error,
            };
            assert!(!said.contains("no such key"), "{said}");
        }
    }

    #[test]
    fn each_error_is_one_line_with_place_key_value_and_allowed_values() {
        for (text, expected) in [
            ("clientPort=1", "zoo.cfg: dataDir: is missing"),
            ("dataDir=/d", "zoo.cfg: clientPort: is missing"),
            ("dataDir=/d\nclientPort=70000", "zoo.cfg:2: clientPort = 70000: allowed is a port, 1 to 65535"),
            ("zoolet.profile=floppy", "zoo.cfg:1: profile = floppy: allowed is media/memory"),
            ("zoolet.network=lora", "zoo.cfg:1: zoolet.network = lora: allowed is lan, wifi or metered"),
            ("tickTime=fast", "zoo.cfg:1: tickTime = fast: allowed is a whole number from 10 to 60000"),
            ("skipACL=true", "zoo.cfg:1: skipACL = true: allowed is yes or no"),
            ("readonlymode.enabled=yes", "readonlymode.enabled = yes: allowed is true or false"),
            (
                "dataDir=/d\nsecureClientPort=2281",
                "zoo.cfg:2: secureClientPort: TLS for clients is not built yet; remove",
            ),
            ("dataDir=/d\nclientPort=1\nserver.1=a:1:2:observer", "observer: a standalone server cannot be one"),
            ("dataDir=/d\nclientPort=1\npeerType=observer", "observer: a standalone server cannot be one"),
            ("peerType=leader", "zoo.cfg:1: peerType = leader: allowed is participant or observer"),
            (
                "dataDir=/d\nclientPort=1\nserver.1=a:1:2\nserver.2=b:1:2",
                "zoo.cfg: /d/myid is missing: it holds the id of",
            ),
            ("server.1=a", "server.1 = a: allowed is host:port:port"),
            (
                "dataDir=/d\nclientPort=1\nminSessionTimeout=5\n",
                "zoo.cfg:3: minSessionTimeout = 5: allowed is a whole number",
            ),
            (
                "dataDir=/d\nclientPort=1\nminSessionTimeout=99999\nmaxSessionTimeout=50",
                "minSessionTimeout = 99999: allowed is at most maxSessionTimeout = 50",
            ),
            ("x=\\u00g1", "zoo.cfg:1: allowed are four"),
            ("dataDir=/d\nclientPort=0", "zoo.cfg:2: clientPort = 0: allowed is a port, 1 to 65535"),
        ] {
            let error = parse(text).unwrap_err();
            assert!(error.contains(expected), "{text:?} gave {error:?}");
            assert_eq!(error.lines().count(), 1, "{error:?}");
        }
    }

    /// A search of all earlier lines for each key would take minutes here.
    #[test]
    fn huge_file_of_unknown_keys_is_read_in_linear_time() {
        let lines: String = (0..20_000).map(|number| format!("an.unknown.key.of.somebody.{number}=1\n")).collect();
        let long = "x".repeat(1 << 20);
        let loaded = parse(&format!("dataDir=/d\nclientPort=1\n{lines}{long}=1\n")).unwrap();
        assert_eq!(loaded.warnings.len(), 20_001);
    }

    #[test]
    fn unknown_four_letter_word_in_the_whitelist_is_warned_of() {
        let warnings = |words: &str| {
            parse(&format!("dataDir=/d\nclientPort=1\n4lw.commands.whitelist={words}\n")).map(|loaded| loaded.warnings)
        };
        assert_eq!(
            warnings("stat, foo,bar"),
            Ok(vec!["4lw.commands.whitelist: foo, bar: no such word, ignored".to_owned()])
        );
        assert_eq!(warnings("*, ruok ,srvr,"), Ok(vec![]));
    }

    #[test]
    fn client_port_0_yields_to_the_port_of_a_server_line() {
        let loaded = parse("dataDir=/d\nclientPort=0\nserver.3=localhost:2888:3888;2190\n").unwrap();
        assert_eq!(loaded.config.clients.unwrap().port(), 2190);
    }
}
