//! `last_known_good = { subtree = "/conf", path = "...", min_interval = "10m" }`.

use super::toml_source::{Source, Value, Wrong, at, unknown, written};
use crate::config::kept_image::{MIN_INTERVAL_MAX, MIN_INTERVAL_MIN};
use crate::config::keys::OfKept;
use crate::config::{ConfigError, DEFAULT_MIN_INTERVAL, KeptImage};
use std::time::Duration;
use zoolet_profiles::{Allowed, Place, Unit};

pub(super) fn read<'i>(source: Source<'i>, key: &str, value: &Value<'i>) -> Result<KeptImage, Wrong> {
    let (mut subtree, mut path, mut min_interval) = (None, None, DEFAULT_MIN_INTERVAL);
    for (name, value) in source.table(key, value)? {
        let key = format!("{key}.{}", name.get_ref());
        let Some(name) = OfKept::named(name.get_ref()) else { return Err(unknown(&key, value, OfKept::NAMES)) };
        let allowed = name.allowed();
        match name {
            OfKept::Subtree => {
                let text = source.string(&key, value, allowed)?;
                let parsed = zoolet_model::Path::new(text);
                subtree = Some(parsed.map_err(|_| source.wrong(&key, value, allowed))?);
            }
            OfKept::Path => path = Some(source.non_empty(&key, value, allowed)?.into()),
            OfKept::MinInterval => {
                let read = interval_ms().read(&key, source.shown(value), written(value));
                let read = read.map_err(|refusal| ConfigError::new(refusal.to_string())).map_err(at(value))?;
                min_interval = Duration::from_millis(read);
            }
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_registry_names_the_allowed_intervals() {
        assert_eq!(interval_ms().to_string(), OfKept::MinInterval.allowed());
    }
}
