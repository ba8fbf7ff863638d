//! ZooKeeper's `zoo.cfg` as it is: what means something to a server that is alone is obeyed, what cannot be obeyed yet
//! is an error or a warning, and an unknown key is a warning, as in ZooKeeper.

use super::bound::{self, TogetherNames};
use super::properties::{self, Property};
use super::toml_file::super_digest;
use super::{Config, ConfigError, Loaded, Populate};
use std::{
    fs,
    net::{IpAddr, Ipv4Addr, SocketAddr, ToSocketAddrs},
    path::Path,
};

/// ZooKeeper's tickTime when the file names none.
const TICK_MS: u32 = 3000;

/// Keys that tune what this server does not have, or does without being told.
const NOTHING_TO_DO: &[&str] = &[
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
    "enableEagerACLCheck",
    "fips-mode",
    "jute.maxbuffer.extrasize",
    "maxResponseCacheSize",
    "maxGetChildrenResponseCacheSize",
    "autopurge.snapRetainCount",
    "autopurge.purgeInterval",
    "quorum.cnxn.threads.size",
    "standaloneEnabled",
];

/// The same, by the beginning of the key.
const NOTHING_TO_DO_PREFIXES: &[&str] = &["jvm.pause.", "multiAddress.", "nio.", "netty.", "leader.", "learner."];

/// Keys whose features do not exist yet, by the beginning of the key; the server runs without them and says so.
const NOT_BUILT: &[&str] = &[
    "admin.",
    "audit.",
    "authProvider.",
    "connection_throttle",
    "ensembleAuthName",
    "largeRequest",
    "localSessions",
    "metricsProvider.",
    "observerMasterPort",
    "oraclePath",
    "portUnification",
    "quorum.auth.",
    "request_",
    "requestThrottle",
    "ssl",
    "throttled_op_wait_time",
];

pub(super) fn read(file: &Path, text: &str) -> Result<Loaded, ConfigError> {
    let properties = properties::parse(text).map_err(|(line, error)| error.at(file, Some(line)))?;
    let mut reader = Reader::default();
    for property in &properties {
        reader.property(property).map_err(|error| error.at(file, Some(property.line)))?;
    }
    reader.finish().map_err(|error| error.at(file, None))
}

/// What was read; what depends on other keys is put together in [`Reader::finish`].
struct Reader {
    config: Config,
    data_given: bool,
    client_port: Option<u16>,
    client_address: Option<IpAddr>,
    session_timeout_min_ms: Option<u32>,
    session_timeout_max_ms: Option<u32>,
    /// The number and the client address of each server line.
    servers: Vec<(u8, Option<SocketAddr>)>,
    ensemble_of_one: bool,
    read_only_mode: bool,
    words_given: bool,
    nothing_to_do: Vec<String>,
    warnings: Vec<String>,
}

impl Default for Reader {
    fn default() -> Self {
        let mut config = Config::new("");
        config.settings.tick_ms = TICK_MS;
        Self {
            config,
            data_given: false,
            client_port: None,
            client_address: None,
            session_timeout_min_ms: None,
            session_timeout_max_ms: None,
            servers: Vec::new(),
            ensemble_of_one: false,
            read_only_mode: false,
            words_given: false,
            nothing_to_do: Vec::new(),
            warnings: Vec::new(),
        }
    }
}

impl Reader {
    fn property(&mut self, Property { key: written, value, .. }: &Property) -> Result<(), ConfigError> {
        // In ZooKeeper an unknown key becomes the system property `zookeeper.<key>`; people write it either way.
        let key = written.strip_prefix("zookeeper.").unwrap_or(written);
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
            // 0 is ZooKeeper's "no bound"; here everything has one, so the default stays.
            "maxCnxns" if value == "0" => {}
            "maxCnxns" => self.number("connections_max", written, value)?,
            "jute.maxbuffer" => self.number("frame_bytes_max", written, value)?,
            "globalOutstandingLimit" => self.number("outstanding_max", written, value)?,
            "4lw.commands.whitelist" => {
                self.config.four_letter_words = words(value);
                self.words_given = true;
            }
            "skipACL" => self.config.settings.skip_acl = yes_or_no(written, value)?,
            "DigestAuthenticationProvider.superDigest" => {
                self.config.settings.super_digest = Some(super_digest(written, value)?);
            }
            "nio.sessionlessCnxnTimeout" => self.number("handshake_timeout_ms", written, value)?,
            "znode.container.checkIntervalMs" => self.number("container_check_interval_ms", written, value)?,
            "znode.container.maxPerMinute" => self.number("containers_per_minute_max", written, value)?,
            "readonlymode.enabled" => self.read_only_mode = boolean(written, value)?,
            "datadir.autocreate" => {
                let create = boolean(written, value)?;
                self.config.populate = if create { Populate::IfEmpty } else { Populate::Never };
            }
            "peerType" if value != "participant" => {
                return Err(ConfigError::value(written, value, "participant: ensembles are not built yet"));
            }
            // Refused only by the lack of a clientPort: a file for both ports still serves those who use the plain one.
            "secureClientPort" | "secureClientPortAddress" => {
                self.warn(format!("{written} = {value}: ignored: TLS is not built yet, only clientPort listens"));
            }
            "dynamicConfigFile" => {
                return Err(ConfigError::new(format!("{written} = {value}: ensembles are not built yet")));
            }
            _ => self.rest(key, written, value)?,
        }
        Ok(())
    }

    /// Keys that change nothing, or only under some values.
    fn rest(&mut self, key: &str, written: &str, value: &str) -> Result<(), ConfigError> {
        if let Some(id) = key.strip_prefix("server.") {
            self.servers.push(server_line(written, id, value)?);
            return Ok(());
        }
        match key {
            "standaloneEnabled" => self.ensemble_of_one = !boolean(written, value)?,
            "forceSync" if !yes_or_no(written, value)? => {
                self.warn(format!("{written} = {value}: ignored: a write is durable before it is acknowledged"));
            }
            "extendedTypesEnabled" | "enforceQuota" | "reconfigEnabled" | "sslQuorum" if boolean(written, value)? => {
                self.warn(format!("{written} = {value}: not built yet, ignored"));
            }
            // As it is without them.
            "forceSync" | "extendedTypesEnabled" | "enforceQuota" | "reconfigEnabled" | "sslQuorum" | "peerType" => {}
            _ if key.starts_with("group.") || key.starts_with("weight.") => self.nothing_to_do.push(written.to_owned()),
            _ if NOTHING_TO_DO.contains(&key) || has_prefix(key, NOTHING_TO_DO_PREFIXES) => {
                self.nothing_to_do.push(written.to_owned());
            }
            _ if has_prefix(key, NOT_BUILT) => self.warn(format!("{written} = {value}: not built yet, ignored")),
            _ => self.warn(format!("{written} = {value}: no such key, ignored")),
        }
        Ok(())
    }

    fn finish(mut self) -> Result<Loaded, ConfigError> {
        if !self.data_given {
            return Err(ConfigError::new("dataDir: is missing; allowed is a directory"));
        }
        if self.servers.len() > 1 || self.ensemble_of_one {
            return Err(ConfigError::new(format!(
                "server.N = {} lines{}: ensembles are not built yet; allowed is one at most, with standaloneEnabled=true",
                self.servers.len(),
                if self.ensemble_of_one { " with standaloneEnabled=false" } else { "" },
            )));
        }
        self.config.server_id = self.server_number()?;
        self.config.clients = Some(self.client_socket()?);
        self.session_timeouts();
        if self.read_only_mode && !self.words_given {
            // Alone it is never read-only, but clients of such a site ask.
            self.config.four_letter_words.push("isro".to_owned());
        }
        if !self.nothing_to_do.is_empty() {
            let keys = self.nothing_to_do.join(", ");
            self.warn(format!("{keys}: accepted, nothing here depends on it"));
        }
        let names = TogetherNames {
            timeout_min: "minSessionTimeout",
            timeout_max: "maxSessionTimeout",
            frame: "jute.maxbuffer",
        };
        bound::check_together(&self.config, names)?;
        Ok(Loaded { config: self.config, warnings: self.warnings })
    }

    /// `dataDir/myid`, which must agree with the one server line when there is one.
    fn server_number(&self) -> Result<u8, ConfigError> {
        let line = self.servers.first().map(|&(id, _)| id);
        let file = self.config.data.join("myid");
        let Ok(text) = fs::read_to_string(&file) else { return Ok(line.unwrap_or(self.config.server_id)) };
        let id = text.trim();
        let allowed = || match line {
            Some(line) => format!("{line}, as in server.{line}"),
            None => "a whole number from 0 to 255".to_owned(),
        };
        id.parse()
            .ok()
            .filter(|id| line.is_none_or(|line| line == *id))
            .ok_or_else(|| ConfigError::value(&file.display().to_string(), id, allowed()))
    }

    fn client_socket(&self) -> Result<SocketAddr, ConfigError> {
        let of_server_line = self.servers.first().and_then(|&(_, clients)| clients);
        match (self.client_port, of_server_line) {
            (Some(port), _) => Ok((self.client_address.unwrap_or(Ipv4Addr::UNSPECIFIED.into()), port).into()),
            (None, Some(address)) => Ok(address),
            (None, None) => Err(ConfigError::new("clientPort: is missing; allowed is a port, 1 to 65535")),
        }
    }

    fn session_timeouts(&mut self) {
        let settings = &mut self.config.settings;
        settings.session_timeout_min_ms = self.session_timeout_min_ms.unwrap_or(settings.tick_ms.saturating_mul(2));
        settings.session_timeout_max_ms = self.session_timeout_max_ms.unwrap_or(settings.tick_ms.saturating_mul(20));
    }

    fn number(&mut self, bound: &str, written: &str, value: &str) -> Result<(), ConfigError> {
        match bound::named(bound) {
            Some(bound) => bound.set(&mut self.config, written, value, value.parse().ok()),
            None => Err(ConfigError::new(format!("{written}: has no place"))),
        }
    }

    /// `None` for -1, ZooKeeper's "as many ticks as usual".
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

/// `None` for 0, ZooKeeper's "not set".
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

/// `server.N=host:quorumPort:electionPort[:participant|observer][|...][;[clientHost:]clientPort]`: alone, only the number
/// and the part after `;` mean anything.
fn server_line(key: &str, id: &str, value: &str) -> Result<(u8, Option<SocketAddr>), ConfigError> {
    const ALLOWED: &str = "host:port:port[:participant][;[address:]clientPort]";
    let wrong = || ConfigError::value(key, value, ALLOWED);
    let id = id.parse().map_err(|_| ConfigError::value(key, value, "server.0 to server.255 as its key"))?;
    let (peers, clients) = match value.split_once(';') {
        Some((peers, clients)) => (peers, Some(clients)),
        None => (value, None),
    };
    if peers.to_ascii_lowercase().ends_with(":observer") {
        return Err(ConfigError::value(key, value, "a participant: one server cannot be an observer"));
    }
    if !peers.contains(':') {
        return Err(wrong());
    }
    let clients = match clients.map(|clients| clients.rsplit_once(':').unwrap_or(("0.0.0.0", clients))) {
        Some((host, text)) => {
            let port = port(key, text).map_err(|_| wrong())?;
            port.map(|port| address(key, host).map(|ip| SocketAddr::from((ip, port)))).transpose()?
        }
        None => None,
    };
    Ok((id, clients))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(text: &str) -> Result<Loaded, String> {
        read(Path::new("zoo.cfg"), text).map_err(|error| error.to_string())
    }

    #[test]
    fn zookeepers_sample_file_works_as_it_is() {
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
        assert_eq!(
            loaded.warnings,
            ["initLimit, syncLimit, autopurge.purgeInterval: accepted, nothing here depends on it"]
        );
    }

    #[test]
    fn every_key_that_means_something_arrives() {
        let config = parse(
            "dataDir=/d\nclientPort=2182\nclientPortAddress=127.0.0.1\nminSessionTimeout=1000\nmaxSessionTimeout=-1\n\
             maxClientCnxns=0\nmaxCnxns=77\n4lw.commands.whitelist=ruok, stat\nzookeeper.skipACL=yes\n\
             jute.maxbuffer=2000000\nznode.container.checkIntervalMs=1000\nzookeeper.znode.container.maxPerMinute=9\n\
             globalOutstandingLimit=50\nzookeeper.DigestAuthenticationProvider.superDigest=super:UdxDQl4f9v5oITwcAsO9bmWgHSI=\n",
        )
        .unwrap()
        .config;
        assert_eq!(config.clients.unwrap().to_string(), "127.0.0.1:2182");
        assert_eq!((config.settings.session_timeout_min_ms, config.settings.session_timeout_max_ms), (1000, 60_000));
        assert_eq!((config.limits.connections_per_address_max, config.limits.connections_max), (0, 77));
        assert_eq!(config.four_letter_words, ["ruok", "stat"]);
        assert!(config.settings.skip_acl && config.settings.super_digest.is_some());
        assert_eq!((config.limits.frame_bytes_max, config.limits.outstanding_max), (2_000_000, 50));
        assert_eq!(config.settings.container_check_interval_ms, 1000);
        assert_eq!(config.settings.containers_per_minute_max, 9);
    }

    #[test]
    fn one_server_line_is_a_server_that_is_alone() {
        let config = parse("dataDir=/d\nserver.3=localhost:2888:3888:PARTICIPANT;127.0.0.1:2190\n").unwrap().config;
        assert_eq!((config.server_id, config.clients.unwrap().to_string()), (3, "127.0.0.1:2190".to_owned()));
        let config = parse("dataDir=/d\nserver.3=localhost:2888:3888;2190\n").unwrap().config;
        assert_eq!(config.clients.unwrap().to_string(), "0.0.0.0:2190");
    }

    #[test]
    fn unknown_and_unbuilt_keys_are_warnings() {
        let loaded = parse("dataDir=/d\nclientPort=1\nfoo=bar\nextendedTypesEnabled=true\nmetricsProvider.httpPort=7000\ndataLogDir=/l").unwrap();
        assert_eq!(
            loaded.warnings,
            [
                "foo = bar: no such key, ignored",
                "extendedTypesEnabled = true: not built yet, ignored",
                "metricsProvider.httpPort = 7000: not built yet, ignored",
                "dataLogDir = /l: ignored: log and base share dataDir",
            ]
        );
    }

    #[test]
    fn each_mistake_is_one_line_with_place_key_value_and_what_is_allowed() {
        for (text, expected) in [
            ("clientPort=1", "zoo.cfg: dataDir: is missing"),
            ("dataDir=/d", "zoo.cfg: clientPort: is missing"),
            ("dataDir=/d\nclientPort=70000", "zoo.cfg:2: clientPort = 70000: allowed is a port, 1 to 65535"),
            ("tickTime=fast", "zoo.cfg:1: tickTime = fast: allowed is a whole number from 10 to 60000"),
            ("skipACL=true", "zoo.cfg:1: skipACL = true: allowed is yes or no"),
            ("readonlymode.enabled=yes", "readonlymode.enabled = yes: allowed is true or false"),
            ("dataDir=/d\nsecureClientPort=2281", "zoo.cfg: clientPort: is missing"),
            (
                "dataDir=/d\nclientPort=1\nserver.1=a:1:2\nserver.2=b:1:2",
                "server.N = 2 lines: ensembles are not built yet",
            ),
            ("dataDir=/d\nclientPort=1\nserver.1=a:1:2\nstandaloneEnabled=false", "ensembles are not built yet"),
            ("server.1=a", "server.1 = a: allowed is host:port:port"),
            (
                "dataDir=/d\nclientPort=1\nminSessionTimeout=5\n",
                "zoo.cfg:3: minSessionTimeout = 5: allowed is a whole number",
            ),
            (
                "dataDir=/d\nclientPort=1\nminSessionTimeout=99999\nmaxSessionTimeout=50",
                "minSessionTimeout = 99999: allowed is at most maxSessionTimeout = 50",
            ),
            ("x=\\u00g1", "zoo.cfg:1: \\u00g1: allowed are four"),
        ] {
            let error = parse(text).unwrap_err();
            assert!(error.contains(expected), "{text:?} gave {error:?}");
            assert_eq!(error.lines().count(), 1, "{error:?}");
        }
    }
}
