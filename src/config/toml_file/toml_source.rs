//! A TOML document with its text: values with their offsets and original spelling.

use super::super::bound::{Bound, Numbers};
use super::super::keys::{self, home};
use super::super::{ConfigError, protection, zoo_cfg};
use std::fmt;
use toml::Spanned;
use toml::de::{DeTable, DeValue};
use zoolet_profiles::{Written, meant};

/// Offset of an error, and the error.
pub(super) type Wrong = (usize, ConfigError);
pub(super) type Value<'i> = Spanned<DeValue<'i>>;

/// The whole text.
#[derive(Clone, Copy)]
pub(super) struct Source<'i> {
    pub(super) text: &'i str,
}

impl<'i> Source<'i> {
    /// Stores a number of the table `table` in `target`.
    ///
    /// `others` are the table's keys that are not numbers, for the error about an unknown key.
    pub(super) fn number<T: Numbers>(
        self,
        target: &mut T,
        table: &str,
        bounds: &[Bound<T>],
        others: &[&'static str],
        name: &str,
        value: &Value<'i>,
    ) -> Result<(), Wrong> {
        let key = format!("{table}.{name}");
        let Some(bound) = bounds.iter().find(|bound| bound.key == name) else {
            return Err(unknown(&key, value, &keys::with(bounds, others)));
        };
        bound.set(target, &key, self.shown(value), written(value)).map_err(at(value))
    }

    pub(super) fn table<'v>(self, key: &str, value: &'v Value<'i>) -> Result<&'v DeTable<'i>, Wrong> {
        match value.get_ref() {
            DeValue::Table(table) => Ok(table),
            _ => Err(self.wrong(key, value, format_args!("a table written as [{key}]"))),
        }
    }

    pub(super) fn string<'v>(self, key: &str, value: &'v Value<'i>, allowed: &str) -> Result<&'v str, Wrong> {
        match value.get_ref() {
            DeValue::String(text) => Ok(text.as_ref()),
            _ => Err(self.wrong(key, value, allowed)),
        }
    }

    pub(super) fn non_empty<'v>(self, key: &str, value: &'v Value<'i>, allowed: &str) -> Result<&'v str, Wrong> {
        let text = self.string(key, value, allowed)?;
        if text.is_empty() { Err(self.wrong(key, value, allowed)) } else { Ok(text) }
    }

    pub(super) fn wrong(self, key: &str, value: &Value<'i>, allowed: impl fmt::Display) -> Wrong {
        (value.span().start, ConfigError::value(key, self.shown(value), allowed))
    }

    /// Returns the first line of the value as written.
    pub(super) fn shown(self, value: &Value<'i>) -> &'i str {
        let text = self.text.get(value.span()).unwrap_or_default();
        text.lines().next().unwrap_or_default()
    }
}

/// Returns the integer that a value is, if it is one.
pub(super) fn integer(value: &Value<'_>) -> Option<i128> {
    match value.get_ref() {
        DeValue::Integer(integer) => i128::from_str_radix(integer.as_str(), integer.radix()).ok(),
        _ => None,
    }
}

/// Returns the value as a quantity.
pub(super) fn written<'v>(value: &'v Value<'_>) -> Written<'v> {
    match value.get_ref() {
        DeValue::String(text) => Written::Text(text),
        _ => integer(value).map_or(Written::Other, Written::Number),
    }
}

/// Returns the line of an offset, from 1.
pub(super) fn line_of(text: &str, offset: usize) -> usize {
    1 + text.bytes().take(offset).filter(|&byte| byte == b'\n').count()
}

pub(super) fn at(value: &Value<'_>) -> impl FnOnce(ConfigError) -> Wrong {
    let start = value.span().start;
    move |error| (start, error)
}

/// Returns the error about an unknown key.
///
/// It omits the value: behind a mistyped `super_digest` it is a secret.
pub(super) fn unknown(key: &str, value: &Value<'_>, known: &[&str]) -> Wrong {
    let name = key.rsplit('.').next().unwrap_or(key);
    let said = match (home(name), of_zookeeper(name)) {
        (Some(home), _) => format!("no such key here; {name} belongs {home}"),
        (None, Some(here)) => format!("is a key of ZooKeeper's zoo.cfg; here it is {here}"),
        (None, None) if is_of_zookeeper(name) => {
            "is a key of ZooKeeper's zoo.cfg, without an equivalent here; `zoolet config example` shows all keys"
                .to_owned()
        }
        (None, None) => format!("no such key; {}", meant(name, known)),
    };
    (value.span().start, ConfigError::new(format!("{key}: {said}")))
}

/// Returns the `zoolet.toml` equivalent of ZooKeeper's key.
///
/// For a key with dots, `name` is the part before the first one.
fn of_zookeeper(name: &str) -> Option<&'static str> {
    Some(match name {
        "clientPort" | "clientPortAddress" => "clients = \"127.0.0.1:2181\"",
        "dataDir" | "dataLogDir" => "data = \"/var/lib/zoolet\"",
        "tickTime" => "tick_ms under [settings]",
        "initLimit" | "syncLimit" => "[timing], and seldom needed",
        "minSessionTimeout" => "session_timeout_min_ms under [settings]",
        "maxSessionTimeout" => "session_timeout_max_ms under [settings]",
        "maxClientCnxns" => "connections_per_address_max under [limits]",
        "maxCnxns" => "connections_max under [limits]",
        "globalOutstandingLimit" => "outstanding_max under [limits]",
        "connection_throttle_tokens" => "handshakes_burst_max under [limits]",
        "connection_throttle_fill_count" | "connection_throttle_fill_time" => {
            "handshakes_per_minute_max under [limits]"
        }
        "largeRequestMaxBytes" | "largeRequestThreshold" => "outstanding_bytes_max under [limits]",
        "jute" => "frame_bytes_max under [limits]",
        "4lw" => "four_letter_words = [\"srvr\"]",
        "skipACL" => "skip_acl under [settings]",
        "extendedTypesEnabled" => "ttl_znodes under [settings]",
        "enforceQuota" => "enforce_quotas under [settings]",
        "DigestAuthenticationProvider" => "super_digest under [settings]",
        "myid" => "id = 1",
        _ => return None,
    })
}

/// Returns whether a `zoo.cfg` may have this key.
///
/// For a key with dots, `name` is the part before the first one.
fn is_of_zookeeper(name: &str) -> bool {
    zoo_cfg::listed_keys().chain(protection::names()).any(|key| key.split('.').next() == Some(name))
}

pub(super) fn not_built(key: &str, value: &Value<'_>) -> Wrong {
    (value.span().start, ConfigError::new(format!("{key}: not built yet")))
}
