//! `last_known_good = { subtree = "/conf", path = "...", min_interval = "10m" }`.

use super::source::{Source, Value, Wrong, at, unknown, written};
use crate::config::kept::{MIN_INTERVAL_MAX, MIN_INTERVAL_MIN};
use crate::config::{ConfigError, DEFAULT_MIN_INTERVAL, KeptImage};
use std::time::Duration;
use zoolet_profiles::{Allowed, Place, Unit};

pub(super) fn read<'i>(source: Source<'i>, key: &str, value: &Value<'i>) -> Result<KeptImage, Wrong> {
    let (mut subtree, mut path, mut min_interval) = (None, None, DEFAULT_MIN_INTERVAL);
    for (name, value) in source.table(key, value)? {
        let key = format!("{key}.{}", name.get_ref());
        match name.get_ref().as_ref() {
            "subtree" => {
                const ALLOWED: &str = "the path of a znode in quotes";
                let text = source.string(&key, value, ALLOWED)?;
                let parsed = zoolet_model::Path::new(text.into());
                subtree = Some(parsed.map_err(|_| source.wrong(&key, value, ALLOWED))?);
            }
            "path" => path = Some(source.non_empty(&key, value, "a file in quotes")?.into()),
            "min_interval" => {
                let read = interval_ms().read(&key, source.shown(value), written(value));
                let read = read.map_err(|refusal| ConfigError::new(refusal.to_string())).map_err(at(value))?;
                min_interval = Duration::from_millis(read);
            }
            _ => return Err(unknown(&key, value, &["subtree", "path", "min_interval"])),
        }
    }
    let missing = |what: &str| (value.span().start, ConfigError::new(format!("{key}: {what} is missing")));
    Ok(KeptImage {
        subtree: subtree.ok_or_else(|| missing("subtree"))?,
        path: path.ok_or_else(|| missing("path"))?,
        min_interval,
    })
}

/// Returns the allowed intervals. The key's name carries no unit, so the value must.
fn interval_ms() -> Allowed {
    let [least, most, usual] = [MIN_INTERVAL_MIN, MIN_INTERVAL_MAX, DEFAULT_MIN_INTERVAL]
        .map(|interval| u64::try_from(interval.as_millis()).unwrap_or(u64::MAX));
    Allowed { unit: Unit::Millis, range: Some(least..=most), example: usual, place: Place::Quoted }
}
