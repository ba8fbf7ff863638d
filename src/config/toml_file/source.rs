//! A TOML document as its author wrote it: values with the place and the text they came from.

use super::super::ConfigError;
use super::super::bound::{Bound, LIMITS, SETTINGS, TIMING};
use super::servers::MEMBER_KEYS;
use super::{OTHER_SETTINGS, TOP_KEYS};
use std::fmt;
use toml::Spanned;
use toml::de::{DeTable, DeValue};
use zoolet_profiles::meant;

/// The offset where it is wrong, and what is wrong.
pub(super) type Wrong = (usize, ConfigError);
pub(super) type Value<'i> = Spanned<DeValue<'i>>;

/// The whole text.
#[derive(Clone, Copy)]
pub(super) struct Source<'i> {
    pub(super) text: &'i str,
}

impl<'i> Source<'i> {
    /// Stores a number of the table `[table]` where its bound says; `others` are the table's keys that are no numbers.
    pub(super) fn number<T>(
        self,
        target: &mut T,
        table: &str,
        bounds: &[Bound<T>],
        others: &[&str],
        name: &str,
        value: &Value<'i>,
    ) -> Result<(), Wrong> {
        let key = format!("{table}.{name}");
        let Some(bound) = bounds.iter().find(|bound| bound.key == name) else {
            let known: Vec<&str> = bounds.iter().map(|bound| bound.key).chain(others.iter().copied()).collect();
            return Err(unknown(&key, value, self.shown(value), &known));
        };
        bound.set(target, &key, self.shown(value), integer(value)).map_err(at(value))
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

    /// The value as its author wrote it, on one line.
    pub(super) fn shown(self, value: &Value<'i>) -> &'i str {
        let text = self.text.get(value.span()).unwrap_or_default();
        text.lines().next().unwrap_or_default()
    }
}

/// The number that a value is.
pub(super) fn integer(value: &Value<'_>) -> Option<i128> {
    match value.get_ref() {
        DeValue::Integer(integer) => i128::from_str_radix(integer.as_str(), integer.radix()).ok(),
        _ => None,
    }
}

/// The line of an offset, from 1.
pub(super) fn line_of(text: &str, offset: usize) -> usize {
    1 + text.bytes().take(offset).filter(|&byte| byte == b'\n').count()
}

pub(super) fn at(value: &Value<'_>) -> impl FnOnce(ConfigError) -> Wrong {
    let start = value.span().start;
    move |error| (start, error)
}

pub(super) fn unknown(key: &str, value: &Value<'_>, shown: &str, known: &[&str]) -> Wrong {
    let written = match value.get_ref() {
        // What stands in the file is `[key]`.
        DeValue::Table(_) => key.to_owned(),
        _ => format!("{key} = {shown}"),
    };
    let name = key.rsplit('.').next().unwrap_or(key);
    let said = match home(name) {
        Some(home) => format!("no such key here; {name} belongs {home}"),
        None => format!("no such key; {}", meant(name, known)),
    };
    (value.span().start, ConfigError::new(format!("{written}: {said}")))
}

/// Where a key belongs that stands elsewhere: whatever follows a table's name is the table's.
fn home(name: &str) -> Option<&'static str> {
    let limits = || LIMITS.iter().any(|bound| bound.key == name);
    let settings = || OTHER_SETTINGS.contains(&name) || SETTINGS.iter().any(|bound| bound.key == name);
    match name {
        _ if TOP_KEYS.contains(&name) => Some("above the first [table]"),
        _ if limits() => Some("under [limits]"),
        _ if settings() => Some("under [settings]"),
        _ if TIMING.iter().any(|bound| bound.key == name) => Some("under [timing]"),
        _ if MEMBER_KEYS.contains(&name) => Some("under a [[server]]"),
        _ => None,
    }
}

pub(super) fn not_built(key: &str, value: &Value<'_>) -> Wrong {
    (value.span().start, ConfigError::new(format!("{key}: not built yet")))
}
