//! `zoolet.toml`. An unknown key is an error: a limit with a typing mistake in its name must not pass for set.

use super::bound::{self, Bound, LIMITS, SETTINGS, TogetherNames};
use super::{Config, ConfigError, DEFAULT_PORT, Loaded, Network, Populate, client_address, profile_warning};
use std::{net::Ipv4Addr, path::Path};
use toml::Spanned;
use toml::de::{DeTable, DeValue};
use zoolet_engine::store::Strategy;

/// The four-letter words that are built; a zoo.cfg may name any.
const WORDS: [&str; 15] = [
    "ruok", "srvr", "stat", "mntr", "isro", "envi", "conf", "cons", "dump", "wchs", "wchc", "wchp", "dirs", "crst",
    "srst",
];

const TOP_KEYS: &str =
    "site, profile, network, data, log_strategy, clients, four_letter_words, limits, settings, server";
/// Keys of later issues: a file that has them was written for a later zoolet.
const RESERVED: [&str; 2] = ["site_key_file", "last_known_good"];

pub(super) fn read(file: &Path, text: &str) -> Result<Loaded, ConfigError> {
    let document = DeTable::parse(text).map_err(|error| {
        let line = error.span().map(|span| line_of(text, span.start));
        ConfigError::new(error.message().replace('\n', ", ")).at(file, line)
    })?;
    let mut reader = Reader { text, config: defaults(), warnings: Vec::new() };
    for (key, value) in document.get_ref() {
        reader.top(key.get_ref(), value).map_err(|(at, error)| error.at(file, Some(line_of(text, at))))?;
    }
    let names = TogetherNames {
        timeout_min: "settings.session_timeout_min_ms",
        timeout_max: "settings.session_timeout_max_ms",
        frame: "limits.frame_bytes_max",
    };
    bound::check_together(&reader.config, names).map_err(|error| error.at(file, None))?;
    Ok(Loaded { config: reader.config, warnings: reader.warnings })
}

fn defaults() -> Config {
    Config { clients: Some((Ipv4Addr::LOCALHOST, DEFAULT_PORT).into()), ..Config::new("zoolet-data") }
}

fn line_of(text: &str, offset: usize) -> usize {
    1 + text.bytes().take(offset).filter(|&byte| byte == b'\n').count()
}

/// The offset where it is wrong, and what is wrong.
type Wrong = (usize, ConfigError);
type Value<'i> = Spanned<DeValue<'i>>;

struct Reader<'i> {
    text: &'i str,
    config: Config,
    warnings: Vec<String>,
}

impl<'i> Reader<'i> {
    fn top(&mut self, key: &str, value: &Value<'i>) -> Result<(), Wrong> {
        match key {
            "site" => self.config.site = Some(self.string(key, value, "a name in quotes")?.to_owned()),
            "profile" => self.profile(key, value)?,
            "network" => self.config.network = self.network(key, value)?,
            "data" => {
                self.config.data = self.non_empty(key, value, "a directory in quotes")?.into();
                // Written for a box that has a disk to mount: an empty directory is not told from a missing one.
                self.config.populate = Populate::Never;
            }
            "log_strategy" => self.config.log_strategy = self.log_strategy(key, value)?,
            "clients" => {
                let address = self.string(key, value, "an address in quotes")?;
                self.config.clients = Some(client_address(key, address).map_err(at(value))?);
            }
            "four_letter_words" => self.config.four_letter_words = self.words(key, value)?,
            "limits" => {
                for (name, value) in self.table(key, value)? {
                    self.number(key, LIMITS, &[], name.get_ref(), value)?;
                }
            }
            "settings" => {
                for (name, value) in self.table(key, value)? {
                    self.setting(name.get_ref(), value)?;
                }
            }
            "server" => self.server(key, value)?,
            reserved if RESERVED.contains(&reserved) => {
                return Err((value.span().start, ConfigError::new(format!("{reserved}: not built yet"))));
            }
            _ => return Err(unknown(key, value, self.shown(value), TOP_KEYS)),
        }
        Ok(())
    }

    fn profile(&mut self, key: &str, value: &Value<'i>) -> Result<(), Wrong> {
        self.config.profile = self.non_empty(key, value, "media/memory in quotes, such as \"emmc/512m\"")?.to_owned();
        self.warnings.extend(profile_warning(&self.config.profile));
        Ok(())
    }

    fn network(&self, key: &str, value: &Value<'i>) -> Result<Network, Wrong> {
        const ALLOWED: &str = "\"lan\", \"wifi\" or \"metered\"";
        match self.string(key, value, ALLOWED)? {
            "lan" => Ok(Network::Lan),
            "wifi" => Ok(Network::Wifi),
            "metered" => Ok(Network::Metered),
            _ => Err(self.wrong(key, value, ALLOWED)),
        }
    }

    fn log_strategy(&self, key: &str, value: &Value<'i>) -> Result<Option<Strategy>, Wrong> {
        const ALLOWED: &str = "\"auto\", \"recycle\" or \"append\"";
        match self.string(key, value, ALLOWED)? {
            "auto" => Ok(None),
            "recycle" => Ok(Some(Strategy::Recycle)),
            "append" => Ok(Some(Strategy::Append)),
            _ => Err(self.wrong(key, value, ALLOWED)),
        }
    }

    fn words(&self, key: &str, value: &Value<'i>) -> Result<Vec<String>, Wrong> {
        let allowed = format!("a list of {}, or [\"*\"]", WORDS.join(", "));
        let DeValue::Array(words) = value.get_ref() else { return Err(self.wrong(key, value, &allowed)) };
        let words = words.iter().map(|word| {
            let text = self.string(key, word, &allowed)?;
            if text == "*" || WORDS.contains(&text) {
                Ok(text.to_owned())
            } else {
                Err(self.wrong(key, word, &allowed))
            }
        });
        words.collect()
    }

    fn setting(&mut self, name: &str, value: &Value<'i>) -> Result<(), Wrong> {
        match name {
            "super_digest" => {
                let key = "settings.super_digest";
                let digest = self.string(key, value, "text in quotes")?;
                self.config.settings.super_digest = Some(super_digest(key, digest).map_err(at(value))?);
            }
            "skip_acl" => {
                let DeValue::Boolean(skip) = value.get_ref() else {
                    return Err(self.wrong("settings.skip_acl", value, "true or false"));
                };
                self.config.settings.skip_acl = *skip;
            }
            _ => self.number("settings", SETTINGS, &["super_digest", "skip_acl"], name, value)?,
        }
        Ok(())
    }

    fn number(
        &mut self,
        table: &str,
        bounds: &[Bound],
        others: &[&str],
        name: &str,
        value: &Value<'i>,
    ) -> Result<(), Wrong> {
        let key = format!("{table}.{name}");
        let Some(bound) = bounds.iter().find(|bound| bound.key == name) else {
            let known: Vec<&str> = bounds.iter().map(|bound| bound.key).chain(others.iter().copied()).collect();
            return Err(unknown(&key, value, self.shown(value), &known.join(", ")));
        };
        let number = match value.get_ref() {
            DeValue::Integer(integer) => i128::from_str_radix(integer.as_str(), integer.radix()).ok(),
            _ => None,
        };
        let shown = self.shown(value);
        bound.set(&mut self.config, &key, shown, number).map_err(at(value))
    }

    /// One `[[server]]` describes this server; more are an ensemble.
    fn server(&mut self, key: &str, value: &Value<'i>) -> Result<(), Wrong> {
        let DeValue::Array(servers) = value.get_ref() else {
            return Err(self.wrong(key, value, "tables written as [[server]]"));
        };
        if let Some(second) = servers.get(1) {
            return Err((
                second.span().start,
                ConfigError::new(format!(
                    "[[server]] = {} of them: ensembles are not built yet; allowed is one at most",
                    servers.len()
                )),
            ));
        }
        for server in servers.iter() {
            for (name, value) in self.table(key, server)? {
                self.server_key(name.get_ref(), value)?;
            }
        }
        Ok(())
    }

    fn server_key(&mut self, name: &str, value: &Value<'i>) -> Result<(), Wrong> {
        match name {
            "id" => {
                let id = match value.get_ref() {
                    DeValue::Integer(integer) => u8::from_str_radix(integer.as_str(), integer.radix()).ok(),
                    _ => None,
                };
                let id = id.filter(|&id| id > 0);
                self.config.server_id =
                    id.ok_or_else(|| self.wrong("server.id", value, "a whole number from 1 to 255"))?;
            }
            "role" => {
                if self.string("server.role", value, "\"voter\"")? != "voter" {
                    return Err(self.wrong("server.role", value, "\"voter\" for a server that is alone"));
                }
            }
            // How peers would reach and recognise it; alone it has none.
            "host" | "key" => {}
            _ => return Err(unknown(&format!("server.{name}"), value, self.shown(value), "id, host, role, key")),
        }
        Ok(())
    }

    fn table<'v>(&self, key: &str, value: &'v Value<'i>) -> Result<&'v DeTable<'i>, Wrong> {
        match value.get_ref() {
            DeValue::Table(table) => Ok(table),
            _ => Err(self.wrong(key, value, format_args!("a table written as [{key}]"))),
        }
    }

    fn string<'v>(&self, key: &str, value: &'v Value<'i>, allowed: &str) -> Result<&'v str, Wrong> {
        match value.get_ref() {
            DeValue::String(text) => Ok(text.as_ref()),
            _ => Err(self.wrong(key, value, allowed)),
        }
    }

    fn non_empty<'v>(&self, key: &str, value: &'v Value<'i>, allowed: &str) -> Result<&'v str, Wrong> {
        let text = self.string(key, value, allowed)?;
        if text.is_empty() { Err(self.wrong(key, value, allowed)) } else { Ok(text) }
    }

    fn wrong(&self, key: &str, value: &Value<'i>, allowed: impl std::fmt::Display) -> Wrong {
        (value.span().start, ConfigError::value(key, self.shown(value), allowed))
    }

    /// The value as its author wrote it, on one line.
    fn shown(&self, value: &Value<'i>) -> &'i str {
        let text = self.text.get(value.span()).unwrap_or_default();
        text.lines().next().unwrap_or_default()
    }
}

fn at(value: &Value<'_>) -> impl FnOnce(ConfigError) -> Wrong {
    let start = value.span().start;
    move |error| (start, error)
}

fn unknown(key: &str, value: &Value<'_>, shown: &str, known: &str) -> Wrong {
    (value.span().start, ConfigError::new(format!("{key} = {shown}: no such key; allowed are {known}")))
}

/// A digest identity that is super, as ZooKeeper writes it: `user:base64(sha1(user:password))`.
pub(super) fn super_digest(key: &str, value: &str) -> Result<String, ConfigError> {
    let is_digest = |hash: &str| {
        hash.len() == 28
            && hash.ends_with('=')
            && hash[..27].bytes().all(|b| b.is_ascii_alphanumeric() || b"+/".contains(&b))
    };
    match value.split_once(':') {
        Some((user, hash)) if !user.is_empty() && is_digest(hash) => Ok(value.to_owned()),
        _ => Err(ConfigError::value(key, format_args!("\"{value}\""), "user:base64(sha1(user:password))")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(text: &str) -> Result<Loaded, String> {
        read(Path::new("zoolet.toml"), text).map_err(|error| error.to_string())
    }

    #[test]
    fn an_empty_file_is_a_server_on_loopback() {
        let config = parse("").unwrap().config;
        assert_eq!(config.clients.unwrap().to_string(), "127.0.0.1:2181");
        assert_eq!(config.limits, zoolet_engine::Limits::default());
    }

    #[test]
    fn every_key_arrives() {
        let config = parse(
            r#"
            site = "plant-7"
            profile = "emmc/512m"
            network = "wifi"
            data = "/var/lib/zoolet"
            log_strategy = "recycle"
            clients = "plain://0.0.0.0:2182"
            four_letter_words = ["*"]
            [limits]
            frame_bytes_max = 100_000
            log_segments = 0x8
            [settings]
            tick_ms = 500
            session_timeout_min_ms = 1000
            session_timeout_max_ms = 20000
            super_digest = "super:UdxDQl4f9v5oITwcAsO9bmWgHSI="
            skip_acl = true
            [[server]]
            id = 7
            host = ["gw-a", "10.0.3.11:2888"]
            "#,
        )
        .unwrap();
        assert_eq!(config.warnings, [""; 0]);
        let config = config.config;
        assert_eq!(config.site.as_deref(), Some("plant-7"));
        assert_eq!(config.network, Network::Wifi);
        assert_eq!(config.log_strategy, Some(Strategy::Recycle));
        assert_eq!(config.clients.unwrap().to_string(), "0.0.0.0:2182");
        assert_eq!((config.limits.frame_bytes_max, config.limits.log_segments), (100_000, 8));
        assert_eq!((config.settings.tick_ms, config.settings.skip_acl, config.server_id), (500, true, 7));
    }

    #[test]
    fn each_mistake_is_one_line_with_place_key_value_and_what_is_allowed() {
        for (text, expected) in [
            ("site = 7", "zoolet.toml:1: site = 7: allowed is a name in quotes"),
            ("\nsyte = \"x\"", "zoolet.toml:2: syte = \"x\": no such key; allowed are site, profile, network"),
            ("network = \"lora\"", "network = \"lora\": allowed is \"lan\", \"wifi\" or \"metered\""),
            ("log_strategy = \"copy\"", "log_strategy = \"copy\": allowed is \"auto\", \"recycle\" or \"append\""),
            ("clients = \"0.0.0.0:1\"", "plain://0.0.0.0:1"),
            ("clients = \"tls://0.0.0.0:1\"", "not built yet"),
            (
                "[limits]\nframe_bytes_max = 12",
                "zoolet.toml:2: limits.frame_bytes_max = 12: allowed is a whole number from 4096 to 67108864",
            ),
            ("[limits]\nframe_bytes_max = \"12\"", "limits.frame_bytes_max = \"12\": allowed is a whole number"),
            (
                "[limits]\nframe_byte_max = 5",
                "limits.frame_byte_max = 5: no such key; allowed are frame_bytes_max, connections_max",
            ),
            ("[settings]\nskip_acl = 1", "settings.skip_acl = 1: allowed is true or false"),
            ("[settings]\nsuper_digest = \"me\"", "user:base64(sha1(user:password))"),
            ("[settings]\nsession_timeout_min_ms = 90000", "at most settings.session_timeout_max_ms = 40000"),
            ("[limits]\nlog_segment_bytes = 1048576", "limits.frame_bytes_max = 1048575: allowed is at most half"),
            ("four_letter_words = [\"toolong\"]", "four_letter_words = \"toolong\": allowed is a list"),
            (
                "four_letter_words = [\"kill\"]",
                "four_letter_words = \"kill\": allowed is a list of ruok, srvr, stat, mntr, isro, envi, conf, cons, dump, wchs, wchc, \
                 wchp, dirs, crst, srst, \
                 or [\"*\"]",
            ),
            (
                "[[server]]\nid = 1\n[[server]]\nid = 2",
                "zoolet.toml:3: [[server]] = 2 of them: ensembles are not built",
            ),
            ("[[server]]\nid = 0", "server.id = 0: allowed is a whole number from 1 to 255"),
            ("[[server]]\nrole = \"observer\"", "server.role = \"observer\": allowed is \"voter\""),
            ("site_key_file = \"x\"", "site_key_file: not built yet"),
            ("site = ", "zoolet.toml:1: "),
        ] {
            let error = parse(text).unwrap_err();
            assert!(error.contains(expected), "{text:?} gave {error:?}");
            assert_eq!(error.lines().count(), 1, "{error:?}");
        }
    }
}
