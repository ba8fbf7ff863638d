//! The text of a quota: `count=5,bytes=-1=;byteHardLimit=-1;countHardLimit=-1`.

use serde_json::{Map, Value};
use std::collections::BTreeMap;
use std::fmt;

/// The limits of a quota, or the usage of its subtree; -1 is no limit.
#[derive(Clone, Default, PartialEq, Eq, Debug)]
pub(super) struct Quota(BTreeMap<String, i64>);

impl Quota {
    /// Returns the limits that zkCli stores for a new quota.
    pub(super) fn unlimited() -> Self {
        Self(["count", "bytes", "countHardLimit", "byteHardLimit"].map(|key| (key.to_owned(), -1)).into())
    }

    /// Parses a text; parts that are no pair of a key and a number are left out.
    pub(super) fn parse(text: &str) -> Self {
        let pairs = text.split([',', ';']).filter_map(|part| {
            let mut parts = part.split('=').filter(|part| !part.is_empty());
            let (key, value) = (parts.next()?, parts.next().map_or(Ok(-1), str::parse).ok()?);
            Some((key.to_owned(), value))
        });
        Self(pairs.collect())
    }

    pub(super) fn get(&self, key: &str) -> i64 {
        self.0.get(key).copied().unwrap_or(-1)
    }

    pub(super) fn set(&mut self, key: &str, value: i64) {
        self.0.insert(key.to_owned(), value);
    }

    /// Returns zkCli's warnings for the limits that a usage exceeds already.
    pub(super) fn exceeded(&self, usage: &Self) -> Vec<String> {
        let kinds = [("count", "countHardLimit"), ("bytes", "byteHardLimit")];
        let over = |unit: &str, key: &str| (0..usage.get(unit)).contains(&self.get(key));
        kinds
            .into_iter()
            .filter(|(unit, hard)| over(unit, unit) || over(unit, hard))
            .map(|(unit, _)| {
                let used = usage.get(unit);
                format!("[Warning]: the {unit} quota you create is less than the existing {unit}:{used}")
            })
            .collect()
    }

    pub(super) fn json(&self) -> Value {
        let pairs = self.0.iter().map(|(key, value)| (key.clone(), Value::from(*value)));
        Value::Object(pairs.collect::<Map<_, _>>())
    }
}

impl fmt::Display for Quota {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "count={},bytes={}", self.get("count"), self.get("bytes"))?;
        let mut others = self.0.iter().filter(|(key, _)| !matches!(key.as_str(), "count" | "bytes")).peekable();
        if others.peek().is_some() {
            f.write_str("=")?;
        }
        others.try_for_each(|(key, value)| write!(f, ";{key}={value}"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_of_a_quota_is_that_of_zookeeper() {
        let mut quota = Quota::unlimited();
        quota.set("count", 5);
        let text = "count=5,bytes=-1=;byteHardLimit=-1;countHardLimit=-1";
        assert_eq!(quota.to_string(), text);
        assert_eq!(Quota::parse(text), quota);
        assert_eq!(Quota::parse("count=1,bytes=2").to_string(), "count=1,bytes=2");
        assert_eq!(Quota::parse("bytes=x;;count=3=").to_string(), "count=3,bytes=-1");
        quota.set("byteHardLimit", 7);
        let usage = Quota::parse("count=6,bytes=8");
        let warning =
            |unit, used| format!("[Warning]: the {unit} quota you create is less than the existing {unit}:{used}");
        assert_eq!(quota.exceeded(&usage), [warning("count", 6), warning("bytes", 8)]);
        assert_eq!(quota.exceeded(&Quota::parse("count=5,bytes=7")), Vec::<String>::new());
        assert_eq!(Quota::parse("").to_string(), "count=-1,bytes=-1");
    }
}
