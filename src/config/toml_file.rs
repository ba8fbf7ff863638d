//! `zoolet.toml`.
//!
//! An unknown key is an error: a limit with a misspelt name must not seem to be set.

mod kept_key;
mod servers;
mod toml_source;

use self::servers::Servers;
use self::toml_source::{Source, Value, Wrong, at, line_of, unknown};
use super::bound::{self, OF_TOML};
use super::keys::{self, General, LIMITS, OfEnsemble, OfSettings, SETTINGS, home};
use super::stray_key::{refuse_in_line, refuse_stray_key};
use super::{
    Config, ConfigError, DEFAULT_PORT, DEFAULT_PROFILE, Loaded, Network, Overrides, Populate, client_address,
    completed, profile_defaults,
};
use std::{net::Ipv4Addr, path::Path};
use toml::de::{DeTable, DeValue};
use zoolet_profiles::Profile;
use zoolet_store::Strategy;
use zoolet_transport::client_port::Word;

pub(super) fn read(file: &Path, text: &str, over: &Overrides) -> Result<Loaded, ConfigError> {
    let document = DeTable::parse(text).map_err(|error| {
        let line = error.span().map(|span| line_of(text, span.start));
        let message = error.message().replace('\n', ", ");
        let line_text = line.and_then(|line| text.lines().nth(line - 1)).unwrap_or_default();
        let key = known_key(line_text);
        if let Err(error) = refuse_stray_key(key.unwrap_or("this line"), line_text) {
            return error.at(file, line);
        }
        ConfigError::new(key.map_or(message.clone(), |key| format!("{key}: {message}"))).at(file, line)
    })?;
    let source = Source { text };
    let wrong = |(at, error): Wrong| error.at(file, Some(line_of(text, at)));
    // Before all other checks, because most messages show the wrong value.
    refuse_stray_keys("", document.get_ref()).map_err(wrong)?;
    // The profile comes first, wherever it stands in the file: the other keys override its numbers.
    let profile = profile_of(file, source, document.get_ref(), over).map_err(wrong)?;
    let (config, timing) = profile_defaults::numbers(&profile).map_err(|error| error.at(file, None))?;
    let clients = Some((Ipv4Addr::LOCALHOST, DEFAULT_PORT).into());
    let config = Config { data: "zoolet-data".into(), clients, ..config };
    let mut reader = Reader { source, config, servers: Servers::new(timing) };
    for (key, value) in document.get_ref() {
        reader.top(key.get_ref(), value).map_err(wrong)?;
    }
    if let Some(data) = &over.data {
        reader.config.data.clone_from(data);
    }
    let words_given =
        document.get_ref().keys().any(|key| General::named(key.get_ref()) == Some(General::FourLetterWords));
    if reader.config.settings.read_only && !words_given {
        // Read-only clients probe other servers with `isro` for one that has a leader.
        reader.config.four_letter_words.push("isro".to_owned());
    }
    let timing = reader.servers.timing();
    let mut warnings = reader.servers.complete(&mut reader.config, over).map_err(|error| error.at(file, None))?;
    let of_orders = bound::check_together(&reader.config, &OF_TOML)
        .and_then(|()| profile_defaults::check_orders(&profile, &mut reader.config, timing))
        .map_err(|error| error.at(file, None))?;
    warnings.extend(of_orders);
    Ok(completed(&profile, reader.config, warnings))
}

/// Refuses a private key among the keys and values of `table`, the value of `key`.
fn refuse_stray_keys(key: &str, table: &DeTable<'_>) -> Result<(), Wrong> {
    table.iter().try_for_each(|(name, value)| {
        let is_top = key.is_empty();
        let key = if is_top { name.get_ref().to_string() } else { format!("{key}.{}", name.get_ref()) };
        refuse_in_line(&key, "").map_err(at(value))?;
        refuse_in_value(&key, value)
    })
}

fn refuse_in_value(key: &str, value: &Value<'_>) -> Result<(), Wrong> {
    match value.get_ref() {
        DeValue::String(text) => refuse_in_line(key, text).map_err(at(value)),
        DeValue::Array(several) => several.iter().try_for_each(|value| refuse_in_value(key, value)),
        DeValue::Table(table) => refuse_stray_keys(key, table),
        _ => Ok(()),
    }
}

/// Returns the key that a line sets, if it is known.
///
/// A line may be part of a secret with a line break, so only a known key may be shown.
fn known_key(line: &str) -> Option<&str> {
    let key = line.split('=').next()?.trim();
    home(key).map(|_| key)
}

/// Returns the profile for the default numbers, from the file or the command line.
fn profile_of(file: &Path, source: Source<'_>, document: &DeTable<'_>, over: &Overrides) -> Result<Profile, Wrong> {
    let said = |name: &str| document.iter().find(|(key, _)| key.get_ref() == name).map(|(_, value)| value);
    let network = said("network").map(|value| network(source, value)).transpose()?;
    let (name, place) = match (&over.profile, said("profile")) {
        (Some(name), _) => (name.clone(), 0),
        (None, Some(value)) => (
            profile_defaults::beside(file, source.non_empty("profile", value, General::Profile.allowed())?),
            value.span().start,
        ),
        (None, None) => (DEFAULT_PROFILE.to_owned(), 0),
    };
    profile_defaults::find(&name, network).map_err(|error| (place, error))
}

fn network<'i>(source: Source<'i>, value: &Value<'i>) -> Result<Network, Wrong> {
    let allowed = General::Network.allowed();
    let name = source.string("network", value, allowed)?;
    let known = Network::ALL.into_iter().find(|network| network.name() == name);
    known.ok_or_else(|| source.wrong("network", value, allowed))
}

struct Reader<'i> {
    source: Source<'i>,
    config: Config,
    servers: Servers,
}

impl<'i> Reader<'i> {
    fn top(&mut self, key: &str, value: &Value<'i>) -> Result<(), Wrong> {
        if let Some(name) = OfEnsemble::named(key) {
            return self.servers.key(self.source, name, key, value);
        }
        let Some(name) = General::named(key) else { return Err(unknown(key, value, &keys::top())) };
        let allowed = name.allowed();
        match name {
            General::Site => self.config.site = Some(self.source.string(key, value, allowed)?.to_owned()),
            // Already read.
            General::Profile | General::Network => {}
            General::Data => {
                self.config.data = self.source.non_empty(key, value, allowed)?.into();
                // A box with this key may have a disk to mount, and an empty directory looks like a
                // missing disk.
                self.config.populate = Populate::Never;
            }
            General::LogStrategy => self.config.log_strategy = self.log_strategy(key, value)?,
            General::Clients => {
                let address = self.source.string(key, value, allowed)?;
                self.config.clients = Some(client_address(key, address).map_err(at(value))?);
            }
            General::FourLetterWords => self.config.four_letter_words = self.words(key, value)?,
            General::ReadOnly => {
                let DeValue::Boolean(is_on) = value.get_ref() else {
                    return Err(self.source.wrong(key, value, General::ReadOnly.allowed()));
                };
                self.config.settings.read_only = *is_on;
            }
            General::LastKnownGood => self.config.last_known_good = Some(kept_key::read(self.source, key, value)?),
            General::Limits => {
                for (name, value) in self.source.table(key, value)? {
                    self.source.number(&mut self.config, key, LIMITS, &[], name.get_ref(), value)?;
                }
            }
            General::Settings => {
                for (name, value) in self.source.table(key, value)? {
                    self.setting(name.get_ref(), value)?;
                }
            }
        }
        Ok(())
    }

    fn log_strategy(&self, key: &str, value: &Value<'i>) -> Result<Option<Strategy>, Wrong> {
        let allowed = General::LogStrategy.allowed();
        match self.source.string(key, value, allowed)? {
            "auto" => Ok(None),
            "recycle" => Ok(Some(Strategy::Recycle)),
            "append" => Ok(Some(Strategy::Append)),
            _ => Err(self.source.wrong(key, value, allowed)),
        }
    }

    fn words(&self, key: &str, value: &Value<'i>) -> Result<Vec<String>, Wrong> {
        let allowed = format!("a list of {}, or [\"*\"]", Word::ALL.map(Word::text).join(", "));
        let DeValue::Array(words) = value.get_ref() else { return Err(self.source.wrong(key, value, &allowed)) };
        let words = words.iter().map(|word| {
            let text = self.source.string(key, word, &allowed)?;
            if text == "*" || is_word(text) { Ok(text.to_owned()) } else { Err(self.source.wrong(key, word, &allowed)) }
        });
        words.collect()
    }

    fn setting(&mut self, name: &str, value: &Value<'i>) -> Result<(), Wrong> {
        let key = format!("settings.{name}");
        match OfSettings::named(name) {
            Some(OfSettings::SuperDigest) => {
                // Not through `Source::string`, whose error shows the value.
                let digest = if let DeValue::String(digest) = value.get_ref() { digest.as_ref() } else { "" };
                self.config.settings.super_digest = Some(super_digest(&key, digest).map_err(at(value))?);
            }
            Some(
                switch @ (OfSettings::SkipAcl
                | OfSettings::TtlZnodes
                | OfSettings::EnforceQuotas
                | OfSettings::LocalSessions
                | OfSettings::LocalSessionsUpgrade),
            ) => {
                let DeValue::Boolean(on) = *value.get_ref() else {
                    return Err(self.source.wrong(&key, value, switch.allowed()));
                };
                let settings = &mut self.config.settings;
                match switch {
                    OfSettings::TtlZnodes => settings.ttl_znodes = on,
                    OfSettings::EnforceQuotas => settings.enforce_quotas = on,
                    OfSettings::LocalSessions => settings.local_sessions = on,
                    OfSettings::LocalSessionsUpgrade => settings.local_sessions_upgrade = on,
                    OfSettings::SkipAcl | OfSettings::SuperDigest => settings.skip_acl = on,
                }
            }
            None => self.source.number(&mut self.config, "settings", SETTINGS, OfSettings::NAMES, name, value)?,
        }
        Ok(())
    }
}

/// Returns whether a four-letter word is implemented.
///
/// A `zoo.cfg` may name others, with a warning.
pub(super) fn is_word(text: &str) -> bool {
    Word::ALL.iter().any(|word| word.text() == text)
}

/// Checks a super user's digest as ZooKeeper writes it: `user:base64(sha1(user:password))`.
pub(super) fn super_digest(key: &str, value: &str) -> Result<String, ConfigError> {
    let is_digest = |hash: &str| {
        hash.len() == 28
            && hash.ends_with('=')
            && hash[..27].bytes().all(|b| b.is_ascii_alphanumeric() || b"+/".contains(&b))
    };
    match value.split_once(':') {
        Some((user, hash)) if !user.is_empty() && is_digest(hash) => Ok(value.to_owned()),
        // Without the value: it may be the password itself.
        _ => Err(ConfigError::new(format!("{key}: allowed is {}", OfSettings::SuperDigest.allowed()))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(text: &str) -> Result<Loaded, String> {
        read(Path::new("zoolet.toml"), text, &Overrides::default()).map_err(|error| error.to_string())
    }

    #[test]
    fn empty_file_configures_a_server_on_loopback() {
        let config = parse("").unwrap().config;
        assert_eq!(config.clients.unwrap().to_string(), "127.0.0.1:2181");
        assert_eq!(config.limits, zoolet_machine::Limits::default());
    }

    #[test]
    fn every_key_reaches_the_config() {
        let config = parse(
            r#"
            site = "plant-7"
            profile = "emmc/512m"
            network = "wifi"
            data = "/var/lib/zoolet"
            log_strategy = "recycle"
            clients = "plain://0.0.0.0:2182"
            four_letter_words = ["*"]
            read_only = true
            last_known_good = { subtree = "/conf", path = "/var/lib/conf.image", min_interval = "2h" }
            [limits]
            frame_bytes_max = 100_000
            log_segments = 0x8
            memtable_bytes = "4 MiB"
            [settings]
            tick_ms = 500
            session_timeout_min_ms = "1s"
            session_timeout_max_ms = 20000
            super_digest = "super:UdxDQl4f9v5oITwcAsO9bmWgHSI="
            skip_acl = true
            enforce_quotas = true
            local_sessions = true
            local_sessions_upgrade = true
            [[server]]
            id = 7
            host = ["gw-a", "10.0.3.11:2888"]
            "#,
        )
        .unwrap();
        assert_eq!(config.warnings, [""; 0]);
        let config = config.config;
        assert_eq!(config.site.as_deref(), Some("plant-7"));
        let kept = config.last_known_good.unwrap();
        assert_eq!((kept.subtree.as_str(), kept.min_interval.as_secs()), ("/conf", 7200));
        assert_eq!(kept.path, Path::new("/var/lib/conf.image"));
        assert_eq!(config.network, Network::Wifi);
        assert_eq!(config.log_strategy, Some(Strategy::Recycle));
        assert_eq!(config.clients.unwrap().to_string(), "0.0.0.0:2182");
        assert_eq!((config.limits.frame_bytes_max, config.limits.log_segments), (100_000, 8));
        assert_eq!((config.limits.memtable_bytes, config.settings.session_timeout_min_ms), (4 << 20, 1000));
        assert_eq!((config.settings.tick_ms, config.settings.skip_acl, config.server_id), (500, true, 7));
        assert!(config.settings.enforce_quotas);
        assert!(config.settings.local_sessions && config.settings.local_sessions_upgrade);
        assert!(config.settings.read_only);
    }

    #[test]
    fn isro_is_allowed_by_default_where_readers_are_served() {
        let words = |text| parse(text).unwrap().config.four_letter_words;
        assert_eq!(words("read_only = true"), ["srvr", "isro"]);
        assert_eq!(words("read_only = false"), ["srvr"]);
        assert_eq!(words("read_only = true\nfour_letter_words = [\"srvr\"]"), ["srvr"]);
    }

    #[test]
    fn profile_of_file_or_command_line_supplies_missing_values() {
        let text = "network = \"metered\"\nsettings.session_timeout_max_ms = 50_000\n[limits]\nwatches_max = 7\n[timing]\nquorum_ms = 12_000\n";
        let servers = "[[server]]\nid = 1\nhost = \"127.0.0.1:1\"\n[[server]]\nid = 2\nhost = \"127.0.0.1:2\"\n";
        let text = format!("profile = \"nand-ubi/128m\"\n{text}{servers}");
        let over = Overrides { server_id: Some(1), ..Overrides::default() };
        let config = read(Path::new("zoolet.toml"), &text, &over).unwrap().config;
        assert_eq!((config.limits.sessions_max, config.limits.watches_max), (1000, 7));
        assert_eq!((config.limits.log_segment_bytes, config.limits.log_segments), (2 << 20, 12));
        assert_eq!((config.settings.session_timeout_min_ms, config.settings.session_timeout_max_ms), (15_000, 50_000));
        let timing = config.ensemble.unwrap().timing;
        assert_eq!((timing.heartbeat_idle_ms, timing.quorum_ms), (2000, 12_000));
        for shown in [
            ("zoolet.profile", "nand-ubi/128m"),
            ("zoolet.network", "metered"),
            ("zoolet.limits.sessions_max", "1000 (modelled, memory/128m.toml)"),
            ("zoolet.limits.watches_max", "7 (configured)"),
            ("zoolet.settings.tick_ms", "2000 (default)"),
            ("zoolet.limits.log_segments", "12 (modelled, media/nand-ubi.toml)"),
            ("zoolet.timing.quorum_ms", "12000 (configured)"),
            ("zoolet.settings.staleness_max_ms", "15000 (modelled, network/metered.toml)"),
        ] {
            assert!(config.conf.iter().any(|(key, value)| (key.as_str(), value.as_str()) == shown), "{shown:?}");
        }
        let over = Overrides { server_id: Some(1), profile: Some("raspberry-pi-4".to_owned()), ..Overrides::default() };
        let config = read(Path::new("zoolet.toml"), &text, &over).unwrap().config;
        assert_eq!((config.profile.as_str(), config.limits.sessions_max), ("raspberry-pi-4", 50_000));
    }

    #[test]
    fn limits_above_the_profile_ceiling_are_warned_of() {
        let loaded = parse("profile = \"emmc/128m\"\nlimits.watches_max = 1_000_000").unwrap();
        let expected = "the limits allow 190 MiB of memory in a site of 1, above the ceiling of profile emmc/128m, 64 MiB: \
                        choose a profile for more memory (zoolet profile list), or lower [limits]";
        assert_eq!(loaded.warnings, [expected]);
        assert_eq!(parse("").unwrap().warnings, [""; 0]);
    }

    #[test]
    fn warning_on_contradicting_limits_names_the_key_set_in_the_file() {
        for (said, expected) in [
            (
                "memtable_bytes = 1048576\ndisk_reserve_bytes = 4000000",
                "limits.memtable_bytes = 1048576: should be at most 1000000 (25 % of limits.disk_reserve_bytes: a checkpoint",
            ),
            (
                "disk_reserve_bytes = 4000000",
                "limits.disk_reserve_bytes = 4000000: should be at least 33554432 (limits.memtable_bytes is 8388608: a checkpoint",
            ),
            (
                "connections_max = 50",
                "limits.connections_max = 50: should be at least 60 (limits.connections_per_address_max is 60: the total",
            ),
            (
                "sessions_max = 1000",
                "limits.sessions_max = 1000: should be at least 4096 (limits.connections_max is 4096:",
            ),
            (
                "outbound_bytes_max = 65536",
                "limits.outbound_bytes_max = 65536: should be at least 1048575 (limits.frame_bytes_max is 1048575: a client",
            ),
        ] {
            let warnings = parse(&format!("[limits]\n{said}")).unwrap().warnings;
            assert!(warnings.len() == 1 && warnings[0].starts_with(expected), "{said} gave {warnings:?}");
        }
        assert_eq!(parse("[limits]\ndisk_reserve_bytes = 0").unwrap().warnings, [""; 0]);
    }

    #[test]
    fn each_error_is_one_line_with_place_key_value_and_allowed_values() {
        for (text, expected) in [
            ("site = 7", "zoolet.toml:1: site = 7: allowed is a name in quotes"),
            ("\nsyte = \"x\"", "zoolet.toml:2: syte: no such key; did you mean site?"),
            ("colour = 1", "colour: no such key; allowed are site, profile, network"),
            ("site_key = \"x\"", "zoolet.toml:1: site_key: no such key; did you mean site_key_file?"),
            (
                "clientPort = 2181",
                "clientPort: is a key of ZooKeeper's zoo.cfg; here it is clients = \"127.0.0.1:2181\"",
            ),
            ("dataDir = \"/d\"", "dataDir: is a key of ZooKeeper's zoo.cfg; here it is data = \"/var/lib/zoolet\""),
            (
                "secureClientPort = 2281",
                "secureClientPort: is a key of ZooKeeper's zoo.cfg, without an equivalent here;",
            ),
            ("ssl.keyStore.password = \"x\"", "ssl: is a key of ZooKeeper's zoo.cfg, without"),
            ("autopurge.purgeInterval = 1", "autopurge: is a key of ZooKeeper's zoo.cfg, without"),
            ("4lw.commands.whitelist = \"*\"", "4lw: is a key of ZooKeeper's zoo.cfg; here it is four_letter_words"),
            ("[limit]\nx = 1", "zoolet.toml:1: limit: no such key; did you mean limits?"),
            ("watches_max = 5", "watches_max: no such key here; watches_max belongs under [limits]"),
            ("tick_ms = 5", "tick_ms belongs under [settings]"),
            ("quorum_ms = 5", "quorum_ms belongs under [timing]"),
            ("role = \"voter\"", "role belongs under a [[server]]"),
            ("subtree = \"/conf\"", "subtree belongs in last_known_good"),
            (
                "[limits]\nclients = \"x\"",
                "zoolet.toml:2: limits.clients: no such key here; clients belongs above the first [table]",
            ),
            ("profile = \"\"", "zoolet.toml:1: profile = \"\": allowed is media/memory in quotes"),
            ("profile = \"floppy/512m\"", "zoolet.toml:1: floppy/512m: media = floppy: allowed is sd-a1, emmc"),
            ("profile = \"pi\"", "zoolet.toml:1: profile = pi: allowed is media/memory, such as emmc/512m, a board"),
            ("profile = \"/nowhere/box.toml\"", "zoolet.toml:1: cannot read /nowhere/box.toml: there is no such file"),
            (
                "[timing]\nheartbeat_idle_ms = 450",
                "timing.heartbeat_idle_ms = 450: allowed is at most 400 (80 % of timing.fresh_ms: an idle leader would look silent)",
            ),
            (
                "[timing]\nheartbeat_busy_ms = 360",
                "timing.heartbeat_busy_ms = 360: allowed is at most 350 (timing.heartbeat_idle_ms: an idle leader sends no more",
            ),
            (
                "[timing]\nquorum_ms = 1000",
                "timing.quorum_ms = 1000: allowed is at least 1400 (timing.heartbeat_idle_ms is 350: one lost heartbeat",
            ),
            ("network = \"lora\"", "network = \"lora\": allowed is \"lan\", \"wifi\" or \"metered\""),
            ("log_strategy = \"copy\"", "log_strategy = \"copy\": allowed is \"auto\", \"recycle\" or \"append\""),
            ("clients = \"0.0.0.0:1\"", "plain://0.0.0.0:1"),
            ("clients = \"tls://0.0.0.0:1\"", "not built yet"),
            (
                "[limits]\nframe_bytes_max = 12",
                "zoolet.toml:2: limits.frame_bytes_max = 12: allowed is a size from 4 KiB to 64 MiB, such as \"1 MiB\" or 1048576",
            ),
            (
                "[limits]\nframe_bytes_max = \"12\"",
                "limits.frame_bytes_max = \"12\": allowed is a size from 4 KiB to 64 MiB, such as",
            ),
            (
                "[limits]\nmemtable_bytes = \"16mb\"",
                "limits.memtable_bytes = \"16mb\": allowed is a size from 64 KiB to 1 GiB, such as \"8 MiB\" or 8388608; \
                 did you mean \"16MiB\" (powers of 1,024) or \"16MB\" (of 1,000)?",
            ),
            (
                "[limits]\nwatches_max = \"7 B\"",
                "limits.watches_max = \"7 B\": allowed is a whole number from 0 to 100000000; a count has no unit",
            ),
            (
                "[settings]\nstaleness_max_ms = \"3\"",
                "settings.staleness_max_ms = \"3\": allowed is a time from 200 ms to 24 h, such as \"3 s\" or 3000; the unit is",
            ),
            (
                "[timing]\nquorum_ms = \"2.0005 s\"",
                "timing.quorum_ms = \"2.0005 s\": allowed is a time from 200 ms to 10 min, such as \"2 s\" or 2000; not a \
                 whole number of milliseconds",
            ),
            (
                "[timing]\nquorum_ms = 2.0",
                "timing.quorum_ms = 2.0: allowed is a time from 200 ms to 10 min, such as \"2 s\" or 2000",
            ),
            ("[limits]\nframe_byte_max = 5", "limits.frame_byte_max: no such key; did you mean frame_bytes_max?"),
            ("[settings]\nskip_acl = 1", "settings.skip_acl = 1: allowed is true or false"),
            ("read_only = 1", "read_only = 1: allowed is true or false"),
            ("[settings]\nlocal_sessions = 1", "settings.local_sessions = 1: allowed is true or false"),
            ("[settings]\nsuper_digest = \"me\"", "user:base64(sha1(user:password))"),
            ("[settings]\nsession_timeout_min_ms = 90000", "at most settings.session_timeout_max_ms = 40000"),
            (
                "[limits]\nlog_segment_bytes = 1048576",
                "limits.frame_bytes_max = 1048575: allowed is at most 524288, half of",
            ),
            ("four_letter_words = [\"toolong\"]", "four_letter_words = \"toolong\": allowed is a list"),
            (
                "four_letter_words = [\"kill\"]",
                "four_letter_words = \"kill\": allowed is a list of ruok, srvr, stat, mntr, isro, envi, conf, cons, dump, wchs, wchc, \
                 wchp, dirs, crst, srst, zool, \
                 or [\"*\"]",
            ),
            ("[[server]]\nid = 0", "server.id = 0: allowed is a whole number from 1 to 255"),
            ("[[server]]\nrole = \"observer\"", "server.role = \"observer\": allowed is \"voter\""),
            ("last_known_good = 1", "last_known_good = 1: allowed is a table"),
            ("last_known_good = { path = \"x\" }", "zoolet.toml:1: last_known_good: subtree is missing"),
            ("last_known_good = { subtree = \"/conf\" }", "last_known_good: path is missing"),
            (
                "last_known_good = { subtree = \"conf\", path = \"x\" }",
                "last_known_good.subtree = \"conf\": allowed is the path of a znode",
            ),
            (
                "[last_known_good]\nsubtree = \"/conf\"\npath = \"x\"\nmin_interval = \"10\"",
                "zoolet.toml:4: last_known_good.min_interval = \"10\": allowed is a time from 1 s to 7 days, such as \"10 min\"; the unit is missing",
            ),
            (
                "[last_known_good]\nmin_interval = 600",
                "last_known_good.min_interval = 600: allowed is a time from 1 s to 7 days, such as \"10 min\"",
            ),
            ("last_known_good = { min_interval = \"0s\" }", "last_known_good.min_interval = \"0s\": allowed is"),
            ("last_known_good = { min_interval = \"169h\" }", "last_known_good.min_interval = \"169h\": allowed is"),
            (
                "last_known_good = { file = \"x\" }",
                "last_known_good.file: no such key; allowed are subtree, path, min_interval",
            ),
            ("readmit = \"ask\"", "readmit = \"ask\": not built yet"),
            ("readmit = \"never\"", "readmit = \"never\": allowed is \"auto\""),
            ("peers = \"gw-a:2888\"", "peers = \"gw-a:2888\": allowed is an address of this machine and a UDP port"),
            ("id = 0", "id = 0: allowed is a whole number from 1 to 255"),
            ("[timing]\nheartbeat_ms = 5", "timing.heartbeat_ms: no such key; allowed are heartbeat_busy_ms"),
            ("[timing]\ndisk_stall_ms = 5", "timing.disk_stall_ms = 5: allowed is a time from 1 s to 10 min, such as"),
            ("[[server]]\nname = \"x\"", "server.name: no such key; allowed are id, host, role, key, client"),
            ("[[server]]\nhost = []", "server.host = []: allowed is a host in quotes, \"host:port\", or a list"),
            ("[[server]]\nhost = \"gw-a:0\"", "server.host = \"gw-a:0\": allowed is a host"),
            ("[[server]]\nkey = \"zk1x\"", "server.key = \"zk1x\": a server's public key has 51 characters"),
            ("[[server]]\nclient = \"gw-a\"", "server.client = \"gw-a\": allowed is an address for clients"),
            ("site = ", "zoolet.toml:1: site: string values must be quoted"),
            ("\ndata = /var/lib", "zoolet.toml:2: data: string values must be quoted"),
        ] {
            let error = parse(text).unwrap_err();
            assert!(error.contains(expected), "{text:?} gave {error:?}");
            assert_eq!(error.lines().count(), 1, "{error:?}");
        }
    }
}
