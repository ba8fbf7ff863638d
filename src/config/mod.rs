//! A node's configuration, built in code or read from `zoolet.toml` or ZooKeeper's `zoo.cfg`.

#[cfg(feature = "ensemble")]
mod address;
#[cfg(feature = "server")]
mod bound;
mod box_memory;
#[cfg(feature = "ensemble")]
mod ensemble;
mod kept_image;
#[cfg(feature = "server")]
mod keys;
#[cfg(feature = "server")]
mod own_entry;
#[cfg(feature = "server")]
pub mod profile_defaults;
#[cfg(feature = "server")]
mod properties;
#[cfg(feature = "server")]
mod protection;
#[cfg(feature = "server")]
mod server_line;
#[cfg(feature = "server")]
mod site_key;
mod stray_key;
#[cfg(feature = "server")]
mod toml_file;
#[cfg(feature = "server")]
mod zoo_cfg;
#[cfg(feature = "server")]
mod zoo_ensemble;
#[cfg(feature = "server")]
mod zoo_throttles;

pub use box_memory::BoxMemory;
#[cfg(feature = "ensemble")]
pub use ensemble::{DEFAULT_PEER_PORT, Ensemble, Server, TrustSource};
pub use kept_image::{DEFAULT_MIN_INTERVAL, KeptImage};
#[cfg(feature = "server")]
pub use stray_key::refuse_stray_key;
pub use stray_key::without_secrets;
#[cfg(feature = "ensemble")]
pub use zoolet_transport::peer::trust::{SecretFileError as SiteKeyError, SiteKey};
#[cfg(feature = "ensemble")]
pub use zoolet_zab::Timing;

#[cfg(feature = "server")]
use crate::obstacle;
#[cfg(feature = "port")]
use std::net::SocketAddr;
use std::{fmt, path::PathBuf};
use zoolet_machine::wear::Medium;
use zoolet_machine::{Limits, Settings};
use zoolet_store::Strategy;

/// All settings of a node.
///
/// Fields may be set freely between [`Config::new`] and [`Node::start`](crate::Node::start).
#[derive(Clone, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub struct Config {
    /// Data directory with the log and the base. Only one node at a time may use it.
    pub data: PathBuf,
    /// Whether a directory without zoolet data may become a data directory.
    pub populate: Populate,
    /// How the log uses its segments; `None`: chosen by the type of file system.
    pub log_strategy: Option<Strategy>,
    /// Unencrypted address for ZooKeeper clients; `None`: no port.
    #[cfg(feature = "port")]
    pub clients: Option<SocketAddr>,
    /// This server's id, shown by four-letter words. In an ensemble, the id of its member.
    pub server_id: u8,
    /// Ensemble that this server belongs to; `None`: standalone.
    #[cfg(feature = "ensemble")]
    pub ensemble: Option<Ensemble>,
    /// Four-letter words that the client port answers; `*` stands for all.
    pub four_letter_words: Vec<String>,
    /// Bounds of memory, disk, connections and requests.
    pub limits: Limits,
    /// Operator settings other than bounds.
    pub settings: Settings,
    /// Endurance of the data's medium and its daily write budget.
    ///
    /// A server over budget raises an alarm, but does not slow down.
    pub medium: Medium,
    /// Name of the site, for people; `None`: unnamed.
    pub site: Option<String>,
    /// Name of the profile that supplied the default numbers, for people.
    ///
    /// Setting another name changes no number: see [`Config::for_box`].
    pub profile: String,
    /// Subtree to keep in a file, which processes can read before there is an ensemble.
    pub last_known_good: Option<KeptImage>,
    /// Network between the servers of the site, for people.
    ///
    /// Heartbeats and timeouts between servers are in `Ensemble::timing`.
    pub network: Network,
    /// Lines that the word `conf` shows after ZooKeeper's, as key and value.
    pub conf: Vec<(String, String)>,
}

/// Whether a directory without zoolet data may become a data directory.
///
/// A directory with foreign files never does.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum Populate {
    /// Yes, if it is absent or empty.
    IfEmpty,
    /// No. An empty directory may be the mount point of a missing file system, and a server that
    /// starts there has lost its data.
    Never,
}

/// Kind of network between the servers of a site.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
#[non_exhaustive]
pub enum Network {
    /// Wired.
    #[default]
    Lan,
    /// Wireless: losses and jitter.
    Wifi,
    /// Billed per byte.
    Metered,
}

impl Network {
    /// All kinds.
    pub const ALL: [Self; 3] = [Self::Lan, Self::Wifi, Self::Metered];

    /// Returns the name used in configuration files.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Lan => "lan",
            Self::Wifi => "wifi",
            Self::Metered => "metered",
        }
    }
}

/// Profile of a configuration file that names none.
pub const DEFAULT_PROFILE: &str = "emmc/512m";

/// ZooKeeper's client port.
pub const DEFAULT_PORT: u16 = 2181;

impl Config {
    /// Returns a standalone server without a client port, with data in `data`.
    ///
    /// The first start creates `data`, whose parent must exist. Bounds are the smallest, those for a
    /// box of 128 MiB: [`Config::for_box`] has larger ones.
    #[must_use]
    pub fn new(data: impl Into<PathBuf>) -> Self {
        Self::for_box(data, BoxMemory::default())
    }

    /// Returns a configuration as [`Config::new`], with the bounds for a box with this memory.
    ///
    /// Servers of one ensemble need the same `frame_bytes_max` and `log_segment_bytes`, so give all
    /// of them the same `memory`. A server whose configuration file names no profile has the bounds
    /// of [`BoxMemory::Mib512`].
    pub fn for_box(data: impl Into<PathBuf>, memory: BoxMemory) -> Self {
        Self {
            data: data.into(),
            populate: Populate::IfEmpty,
            log_strategy: None,
            #[cfg(feature = "port")]
            clients: None,
            server_id: 1,
            #[cfg(feature = "ensemble")]
            ensemble: None,
            four_letter_words: vec!["srvr".to_owned()],
            limits: memory.limits(),
            settings: Settings::default(),
            medium: Medium::default(),
            site: None,
            profile: memory.profile().to_owned(),
            last_known_good: None,
            network: Network::default(),
            conf: Vec::new(),
        }
    }

    /// Returns whether this server belongs to an ensemble.
    pub(crate) fn is_member(&self) -> bool {
        #[cfg(feature = "ensemble")]
        return self.ensemble.is_some();
        #[cfg(not(feature = "ensemble"))]
        return false;
    }

    /// Returns whether ZooKeeper clients can connect.
    pub(crate) fn has_port(&self) -> bool {
        #[cfg(feature = "port")]
        return self.clients.is_some();
        #[cfg(not(feature = "port"))]
        return false;
    }
}

/// What is wrong with a configuration, as text for people.
///
/// The first line names the place, the key, the value and the allowed values. Commands that help,
/// if any, follow on indented lines.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ConfigError {
    words: String,
    servers_here: Vec<u8>,
}

impl ConfigError {
    /// An error with these words. Secrets of private keys in them are hidden.
    pub(crate) fn new(words: impl Into<String>) -> Self {
        Self { words: stray_key::without_secrets(&words.into()), servers_here: Vec::new() }
    }

    /// An error about a value that is not allowed.
    #[cfg(feature = "server")]
    pub(crate) fn value(key: &str, value: impl fmt::Display, allowed: impl fmt::Display) -> Self {
        Self::new(format!("{key} = {value}: allowed is {allowed}"))
    }

    /// Returns the ids of the file's servers that run on this machine.
    ///
    /// Non-empty only if several do and the configuration does not say which of them is meant.
    #[cfg(feature = "server")]
    #[must_use]
    pub fn servers_here(&self) -> &[u8] {
        &self.servers_here
    }

    /// The same error, with `hint` at the end of its first line if that `helps`.
    #[cfg(feature = "server")]
    fn with_hint(self, helps: bool, hint: &str) -> Self {
        if !helps {
            return self;
        }
        let (line, commands) = self.words.split_at(self.words.find('\n').unwrap_or(self.words.len()));
        Self { words: format!("{line}; {hint}{commands}"), ..self }
    }

    /// The same error, prefixed with its file and line.
    #[cfg(feature = "server")]
    fn at(self, file: &std::path::Path, line: Option<usize>) -> Self {
        let (file, words) = (file.display(), self.words);
        let words = match line {
            Some(line) => format!("{file}:{line}: {words}"),
            None => format!("{file}: {words}"),
        };
        Self { words, ..self }
    }
}

impl fmt::Display for ConfigError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.words)
    }
}

impl std::error::Error for ConfigError {}

/// A configuration file as read.
#[cfg(feature = "server")]
#[derive(Debug)]
#[non_exhaustive]
pub struct Loaded {
    /// The configuration.
    pub config: Config,
    /// Problems that do not prevent a start, one line each.
    pub warnings: Vec<String>,
    /// Maximum memory of the server, with everything at its bound at once, bytes.
    pub memory_bytes_max: u64,
}

/// Command line options that override a file.
///
/// They also help decide which of the file's servers this one is.
#[cfg(feature = "server")]
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Overrides {
    /// Data directory.
    pub data: Option<PathBuf>,
    /// Id of this server.
    pub server_id: Option<u8>,
    /// Name of the profile.
    pub profile: Option<String>,
}

/// Reads a `zoolet.toml`, or a `zoo.cfg` if the name does not end in `.toml`.
///
/// # Errors
/// The first problem found: an unreadable file, wrong syntax, or a wrong key or value.
#[cfg(feature = "server")]
pub fn load(file: &std::path::Path, over: &Overrides) -> Result<Loaded, ConfigError> {
    let bytes = std::fs::read(file)
        .map_err(|error| ConfigError::new(format!("cannot read {}: {}", file.display(), obstacle::reading(&error))))?;
    if file.extension().is_some_and(|extension| extension == "toml") {
        let text = std::str::from_utf8(&bytes).map_err(|error| {
            let line = 1 + bytes[..error.valid_up_to()].iter().filter(|byte| **byte == b'\n').count();
            ConfigError::new("is not UTF-8 text: save the file as UTF-8").at(file, Some(line))
        })?;
        toml_file::read(file, text, over).map_err(|error| error.with_hint(looks_like_zoo_cfg(text), NAME_OF_ZOO_CFG))
    } else {
        // ZooKeeper reads Latin-1, so a comment may contain any byte. Elsewhere the parser refuses
        // the replacement character.
        let text = String::from_utf8_lossy(&bytes);
        zoo_cfg::read(file, &text, over).map_err(|error| error.with_hint(looks_like_toml(&text), NAME_OF_TOML))
    }
}

#[cfg(feature = "server")]
const NAME_OF_TOML: &str = "this looks like a zoolet.toml, whose name must end in .toml";
#[cfg(feature = "server")]
const NAME_OF_ZOO_CFG: &str = "this looks like a zoo.cfg, whose name must not end in .toml";

/// Returns whether `text` has a table header, or at least two values in double quotes.
#[cfg(feature = "server")]
fn looks_like_toml(text: &str) -> bool {
    let in_quotes = |line: &&str| line.split_once('=').is_some_and(|(_, value)| value.trim_start().starts_with('"'));
    text.lines().any(|line| line.trim_start().starts_with('[')) || text.lines().filter(in_quotes).count() > 1
}

/// Returns whether `text` has at least two usual `zoo.cfg` keys and does not look like TOML.
#[cfg(feature = "server")]
fn looks_like_zoo_cfg(text: &str) -> bool {
    const USUAL: [&str; 6] = ["dataDir", "clientPort", "tickTime", "initLimit", "syncLimit", "server.1"];
    let is_usual = |line: &&str| line.split_once('=').is_some_and(|(key, _)| USUAL.contains(&key.trim()));
    !looks_like_toml(text) && text.lines().filter(is_usual).count() > 1
}

/// Returns a standalone server on loopback, with the numbers of a profile.
///
/// # Errors
/// The profile is unknown, unreadable or wrong.
#[cfg(feature = "server")]
pub fn alone(profile_name: &str) -> Result<Loaded, ConfigError> {
    let profile = profile_defaults::find(profile_name, None)?;
    let (mut config, _) = profile_defaults::numbers(&profile)?;
    config.data = "zoolet-data".into();
    config.clients = Some((std::net::Ipv4Addr::LOCALHOST, DEFAULT_PORT).into());
    Ok(completed(&profile, config, Vec::new()))
}

/// Adds the lines of `conf` and the memory bound, and a warning above the profile's ceiling.
#[cfg(feature = "server")]
fn completed(profile: &zoolet_profiles::Profile, mut config: Config, mut warnings: Vec<String>) -> Loaded {
    config.conf = profile_defaults::conf(profile, &config);
    let (memory_bytes_max, over_ceiling) = profile_defaults::most(profile, &config);
    warnings.extend(over_ceiling);
    Loaded { config, warnings, memory_bytes_max }
}

/// Parses the address for clients: `127.0.0.1:2181`, or with the prefix `plain://`.
///
/// Outside loopback the prefix is required, so that no operator opens an unencrypted port by
/// accident.
///
/// # Errors
/// Names `key`, the value and what is allowed.
#[cfg(feature = "server")]
pub fn client_address(key: &str, value: &str) -> Result<SocketAddr, ConfigError> {
    let allowed = keys::General::Clients.allowed();
    if value.starts_with("tls://") {
        return Err(ConfigError::new(format!(
            "{key} = \"{value}\": TLS for clients is not built yet; allowed is {allowed}"
        )));
    }
    let (plain, address) = match value.strip_prefix("plain://") {
        Some(rest) => (true, rest),
        None => (false, value),
    };
    if let Some((_, port)) = address.rsplit_once(':')
        && port.parse::<u16>().is_err()
    {
        return Err(ConfigError::new(format!("{key} = \"{value}\": {port:?} is not a port; allowed is 1 to 65535")));
    }
    let address = resolve(address).ok_or_else(|| ConfigError::value(key, format_args!("\"{value}\""), allowed))?;
    if !plain && !address.ip().is_loopback() {
        return Err(ConfigError::new(format!(
            "{key} = \"{value}\": any machine that reaches this address could connect, unencrypted; to allow \
             that, write \"plain://{value}\""
        )));
    }
    Ok(address)
}

/// Parses another server's address: `gw-a:2889`, or `gw-a` for port [`DEFAULT_PEER_PORT`].
///
/// The name is not resolved.
///
/// # Errors
/// Names `key`, the value and what is allowed.
#[cfg(feature = "server")]
pub fn peer_address(key: &str, value: &str) -> Result<String, ConfigError> {
    let allowed = format_args!("HOST:PORT, or HOST alone for port {DEFAULT_PEER_PORT}");
    address::with_port(value).ok_or_else(|| ConfigError::value(key, value, allowed))
}

#[cfg(feature = "server")]
fn resolve(address: &str) -> Option<SocketAddr> {
    use std::net::ToSocketAddrs;
    address.to_socket_addrs().ok()?.next()
}

#[cfg(all(test, feature = "server"))]
#[allow(clippy::unwrap_used, reason = "a test stops at the first surprise")]
mod tests {
    use super::*;

    #[test]
    fn client_address_off_loopback_must_be_marked_plain() {
        assert_eq!(client_address("clients", "127.0.0.1:2181").unwrap().port(), 2181);
        assert_eq!(client_address("clients", "[::1]:2181").unwrap().port(), 2181);
        assert!(client_address("clients", "plain://0.0.0.0:2181").is_ok());
        let refused = client_address("clients", "0.0.0.0:2181").unwrap_err().to_string();
        assert!(refused.contains("plain://0.0.0.0:2181"), "{refused}");
        let refused = client_address("clients", "tls://0.0.0.0:2281").unwrap_err().to_string();
        assert!(refused.contains("not built yet"), "{refused}");
        let refused = client_address("--listen", "2181").unwrap_err().to_string();
        assert!(refused.starts_with("--listen = \"2181\": allowed is"), "{refused}");
        for (address, port) in [("127.0.0.1:99999", "99999"), ("plain://0.0.0.0:", ""), ("localhost:http", "http")] {
            let refused = client_address("clients", address).unwrap_err().to_string();
            assert_eq!(refused, format!("clients = \"{address}\": \"{port}\" is not a port; allowed is 1 to 65535"));
        }
    }

    /// Secrets that no message may show: a super user's digest as ZooKeeper writes it, and the
    /// password behind it.
    const SECRET: &str = "UdxDQl4f9v5oITwcAsO9bmWgHSI=";
    const PASSWORD: &str = "correct-horse";

    /// Loads `text` as a file of this name, and returns every line that an operator would see.
    fn printed(name: &str, text: &str) -> String {
        let file = std::env::temp_dir().join(format!("zoolet-secrets-{}-{name}", std::process::id()));
        std::fs::write(&file, text).unwrap();
        let loaded = load(&file, &Overrides::default());
        std::fs::remove_file(&file).unwrap();
        match loaded {
            Ok(Loaded { config, warnings, .. }) => {
                let conf: Vec<String> = config.conf.iter().map(|(key, value)| format!("{key}={value}")).collect();
                format!("{}\n{}\n{config:?}", warnings.join("\n"), conf.join("\n"))
            }
            Err(error) => format!("{error}\n{error:?}"),
        }
    }

    fn shows_no_secret(name: &str, text: &str) {
        let printed = printed(name, text);
        // Also check halves: an escape or a line break may split a secret.
        for secret in [SECRET, PASSWORD, &SECRET[..14], &SECRET[14..], &PASSWORD[..7], &PASSWORD[7..]] {
            assert!(!printed.contains(secret), "{name}: {text:?} is answered with {printed}");
        }
    }

    #[test]
    fn no_error_or_warning_about_a_zoolet_toml_shows_a_secret() {
        for secret in [format!("super:{SECRET}"), format!("super:{PASSWORD}"), PASSWORD.to_owned(), SECRET.to_owned()] {
            let (half, rest) = secret.split_at(secret.len() / 2);
            for text in [
                format!("[settings]\nsuper_digest = \"{secret}\""),
                format!("settings.super_digest = \"{secret}\""),
                format!("settings.super_digest = [\"{secret}\"]"),
                format!("settings.super_digest = {{ digest = \"{secret}\" }}"),
                format!("settings.super_digest.digest = \"{secret}\""),
                format!("settings.super_digst = \"{secret}\""),
                format!("[settings]\nsuperDigest = \"{secret}\""),
                format!("super_digest = \"{secret}\""),
                format!("[settings]\nsuper = {{ password = \"{secret}\" }}"),
                format!("[limits]\nsuper_digest = \"{secret}\""),
                format!("[[server]]\nsuper_digest = \"{secret}\""),
                format!("[last_known_good]\nsuper_digest = \"{secret}\""),
                format!("[timing]\nsuper_digest = \"{secret}\""),
                // Invalid TOML.
                format!("[settings]\nsuper_digest = {secret}"),
                format!("[settings]\nsuper_digest = \"{secret}"),
                format!("[settings]\nsuper_digest = '{secret}"),
                format!("[settings]\nsuper_digest = \"{secret}\\q\""),
                format!("[settings]\nsuper_digest = \"{half}\n{rest}\""),
                format!("[settings]\nsuper_digest = \"\"\"{half}\n{rest}"),
                format!("[settings]\nsuper_digest = \"{half}\" {rest}"),
                format!("[settings]\nsuper_digest \"{secret}\""),
                format!("[settings]\nsuper_digest = \"super:x\"\nsuper_digest = \"{secret}\""),
                format!("[settings\nsuper_digest = \"{secret}\""),
                format!("settings = {{ super_digest = \"{secret}\", }} {secret}"),
                format!("[settings]\nsuper_digest = \u{feff}\"{secret}\""),
                format!("settings.super_digest = \"{secret}\"\nsite = 7"),
                format!(
                    "settings.super_digest = \"{secret}\"\nlimits.watches_max = 1_000_000\nprofile = \"emmc/128m\""
                ),
            ] {
                shows_no_secret("zoolet.toml", &text);
            }
        }
    }

    #[test]
    fn no_error_or_warning_about_a_zoo_cfg_shows_a_secret() {
        let keys = [
            "DigestAuthenticationProvider.superDigest",
            "DigestAuthenticationProvider.superdigest",
            "zookeeper.DigestAuthenticationProvider.superDigest",
            "superDigest",
            "super_digest",
            "ssl.keyStore.password",
            "ssl.keystore.pasword",
            "ssl.trustStore.password",
            "ssl.quorum.keyStore.password",
            "zookeeper.ssl.quorum.trustStore.password",
            "sslQuorumPassword",
            "SASLAuthenticationProvider.superPassword",
            "admin.ssl.password",
            "metricsProvider.password",
            "quorum.auth.password",
            "audit.password",
            "authProvider.password",
            "secret",
            "group.1",
            "weight.1",
            "nio.password",
        ];
        let before = "dataDir=/d\nclientPort=2181\n";
        for secret in [format!("super:{SECRET}"), PASSWORD.to_owned(), SECRET.to_owned()] {
            let (half, rest) = secret.split_at(secret.len() / 2);
            for key in keys {
                for line in [
                    format!("{key}={secret}"),
                    format!("{key} = {secret}\n{key} = {secret}"),
                    format!("{key}:{half}\\\n   {rest}"),
                    format!("{key} {secret}"),
                    format!("{key}={half}\\u{rest}"),
                    format!("{key}={secret}\nclientPort=x"),
                    // With a dynamic file that does not exist.
                    format!("{key}={secret}\ndynamicConfigFile={}", "/nowhere"),
                ] {
                    shows_no_secret("zoo.cfg", &format!("{before}{line}\n"));
                }
                let dynamic = std::env::temp_dir().join(format!("zoolet-secrets-{}.dynamic", std::process::id()));
                std::fs::write(&dynamic, format!("{key}={secret}\n")).unwrap();
                shows_no_secret("zoo.cfg", &format!("{before}dynamicConfigFile={}\n", dynamic.display()));
                std::fs::remove_file(&dynamic).unwrap();
            }
        }
    }

    /// Secret part of a private key.
    const OF_KEY: &str = "OgVibmV2ZXItc2hvd24tdG8tYW55Ym9keS0wMTIzNDU2Nzg5";

    /// Asserts that each message names the kind of key and the remedy, and hides the key.
    fn names_the_key_and_shows_none(name: &str, kind: &str, text: &str) {
        let printed = printed(name, text);
        for part in [OF_KEY, &OF_KEY[..12], &OF_KEY[12..]] {
            assert!(!printed.contains(part), "{name}: {text:?} is answered with {printed}");
        }
        let named = if kind == "site" { "found a site key where" } else { "found a server's private key (the content" };
        assert!(
            printed.contains(named) && printed.contains("If others could read the key here"),
            "{text:?}: {printed}"
        );
    }

    #[test]
    fn private_key_in_a_zoolet_toml_is_refused_and_not_shown() {
        let tables = [
            ("", keys::top()),
            ("[limits]\n", keys::with(keys::LIMITS, &[])),
            ("[settings]\n", keys::with(keys::SETTINGS, keys::OfSettings::NAMES)),
            ("[timing]\n", keys::with(keys::TIMING, &[])),
            ("[[server]]\nid = 1\n[[server]]\n", [keys::OfServer::NAMES, &["clef"]].concat()),
            ("[last_known_good]\n", keys::OfKept::NAMES.to_vec()),
            ("", vec!["syte", "limits.watches_max", "server.key", "colour.of"]),
        ];
        for kind in ["site", "server"] {
            let key = format!("zoolet-{kind}-key-1:{OF_KEY}");
            for (table, names) in &tables {
                for name in names {
                    for value in [
                        format!("\"{key}\""),
                        format!("'/etc/{key}'"),
                        format!("\"zoolet\\u002d{kind}-key-1:{OF_KEY}\""),
                        format!("[\"{key}\"]"),
                        format!("{{ key = \"{key}\" }}"),
                        format!("\"\"\"\n{key}\n\"\"\""),
                        // Invalid TOML.
                        key.clone(),
                        format!("\"{key}"),
                    ] {
                        names_the_key_and_shows_none("key.toml", kind, &format!("{table}{name} = {value}\n"));
                    }
                }
            }
            for text in
                [format!("\"{key}\" = 1"), format!("[\"{key}\"]\nx = 1"), format!("zoolet-{kind}-key-1 = \"{OF_KEY}\"")]
            {
                names_the_key_and_shows_none("key.toml", kind, &text);
            }
        }
        let said = printed("key.toml", &format!("[[server]]\nkey = \"zoolet-server-key-1:{OF_KEY}\"\n"));
        assert!(
            said.contains(
                ":2: server.key: found a server's private key (the content of its server.key) where a server's public key \
                 belongs, which begins with zk1. "
            ),
            "{said}"
        );
        let said = printed("key.toml", &format!("site_key_file = \"zoolet-site-key-1:{OF_KEY}\"\n"));
        assert!(said.contains(":1: site_key_file: found a site key where the name of its file belongs. "), "{said}");
        // The parser skips comments, and a file may have such a name.
        let said = printed("key.toml", &format!("# zoolet-site-key-1:{OF_KEY}\nsite = \"zoolet-site-key-plant:7\"\n"));
        assert!(!said.contains(": found ") && said.contains("plant:7"), "{said}");
    }

    #[test]
    fn private_key_in_a_zoo_cfg_is_refused_and_not_shown() {
        let others = ["server.1", "group.1", "weight.1", "authProvider.1", "ssl.keyStore.location", "nokey", "admin.x"];
        let keys: Vec<&str> = zoo_cfg::listed_keys().chain(protection::keys()).chain(others).collect();
        for kind in ["site", "server"] {
            let key = format!("zoolet-{kind}-key-1:{OF_KEY}");
            let dynamic = std::env::temp_dir().join(format!("zoolet-keys-{}.dynamic", std::process::id()));
            for name in &keys {
                for line in [
                    format!("{name}={key}"),
                    format!("zookeeper.{name} = /etc/{key}"),
                    format!("{name} {key}:1:2;2181"),
                    format!("{name}=zoolet\\u002d{kind}-key-1\\\n  :{OF_KEY}"),
                    format!("{name}={key}\n{name}={key}"),
                ] {
                    names_the_key_and_shows_none("key.cfg", kind, &format!("dataDir=/d\nclientPort=2181\n{line}\n"));
                    std::fs::write(&dynamic, format!("{line}\n")).unwrap();
                    let text = format!("dataDir=/d\nclientPort=2181\ndynamicConfigFile={}\n", dynamic.display());
                    names_the_key_and_shows_none("key.cfg", kind, &text);
                }
            }
            for line in
                [key.clone(), format!("zoolet-{kind}-key-1\\:{OF_KEY}=1"), format!("zoolet-{kind}-key-1 {OF_KEY}")]
            {
                names_the_key_and_shows_none("key.cfg", kind, &format!("dataDir=/d\nclientPort=2181\n{line}\n"));
            }
            std::fs::remove_file(&dynamic).unwrap();
        }
    }

    #[test]
    fn invalid_utf8_is_accepted_only_in_comments_of_a_zoo_cfg() {
        let loaded = |name: &str, bytes: &[u8]| {
            let file = std::env::temp_dir().join(format!("zoolet-latin-{}-{name}", std::process::id()));
            std::fs::write(&file, bytes).unwrap();
            let loaded = load(&file, &Overrides::default());
            std::fs::remove_file(&file).unwrap();
            let shown = file.display().to_string();
            loaded.map(|loaded| loaded.config.data).map_err(|error| error.to_string().replace(&shown, name))
        };
        let comments = b"# Anlage S\xfcd\ndataDir=/d\n  ! \xe9\nclientPort=1\n";
        assert_eq!(loaded("zoo.cfg", comments), Ok("/d".into()));
        // In a continued line, a comment sign starts no comment.
        for (bytes, line) in [
            (&b"dataDir=/\xfc\nclientPort=1"[..], 1),
            (b"clientPort=1\r\n\r\ndataDir=/\\\r\n# \xfc", 4),
            (b"# \xfc\n\xfc=1", 2),
        ] {
            let expected = format!(
                "zoo.cfg:{line}: has a byte that is not UTF-8 text: save the file as UTF-8, or escape the letter, such as \\u00e9"
            );
            assert_eq!(loaded("zoo.cfg", bytes), Err(expected));
        }
        let toml = loaded("zoolet.toml", b"site = \"x\"\n# \xfc\n").unwrap_err();
        assert_eq!(toml, "zoolet.toml:2: is not UTF-8 text: save the file as UTF-8");
    }

    #[test]
    fn error_in_a_misnamed_config_file_names_the_required_extension() {
        const TOML: &str = "data = \"/d\"\nclients = \"127.0.0.1:2181\"\n[limits]\nwatches_max = 7\n";
        const ZOO: &str = "tickTime=2000\ndataDir=/d\nclientPort=2181\nserver.1=a:1:2\n";
        let zoolet_conf = printed("zoolet.conf", TOML);
        assert!(
            zoolet_conf.contains("; this looks like a zoolet.toml, whose name must end in .toml\n"),
            "{zoolet_conf}"
        );
        let zoo_toml = printed("zoo.toml", ZOO);
        assert!(zoo_toml.contains("; this looks like a zoo.cfg, whose name must not end in .toml\n"), "{zoo_toml}");
        for (name, text) in [
            ("zoo.cfg", "clientPort=2181\nmetricsProvider.className=\"x\"\n"),
            ("zoolet.toml", "clientPort = 2181\n"),
            ("zoolet.toml", "tickTime = 2000\nclientPort = 2181\n[limits]\n"),
        ] {
            assert!(!printed(name, text).contains("this looks like"), "{text}");
        }
    }
}
