//! `last_known_good = { subtree = "/conf", path = "...", min_interval = "10m" }`.

use super::source::{Source, Value, Wrong, unknown};
use crate::config::{ConfigError, DEFAULT_MIN_INTERVAL, KeptImage};
use std::time::Duration;

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
                const ALLOWED: &str = "\"30s\", \"10m\" or \"2h\", from 1s to 168h";
                let parsed = interval(source.string(&key, value, ALLOWED)?);
                min_interval = parsed.ok_or_else(|| source.wrong(&key, value, ALLOWED))?;
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

/// Parses a number with the unit `s`, `m` or `h`, from 1 second to 168 hours.
fn interval(text: &str) -> Option<Duration> {
    let unit = text.chars().last()?;
    let seconds = match unit {
        's' => 1,
        'm' => 60,
        'h' => 3600,
        _ => return None,
    };
    let count: u64 = text[..text.len() - 1].parse().ok()?;
    Some(count.checked_mul(seconds)?).filter(|total| (1..=168 * 3600).contains(total)).map(Duration::from_secs)
}
