//! ZooKeeper's throttles, as the bounds that this server has for their tasks.

use super::ConfigError;
use zoolet_machine::Limits;

/// Prefixes of throttles that this server does not have, each with the reason.
///
/// A bound of this server that is always in force does the task of each.
pub(super) const IGNORED: &[(&str, &str)] = &[
    ("request_stale", "a request is not dropped for its age"),
    ("request_", "outstanding_bytes_max bounds the requests in process"),
    ("requestThrottle", "outstanding_bytes_max bounds the requests in process"),
    ("requestStale", "a request is not dropped for its age"),
    ("throttled_op_wait_time", "a request is not refused for its wait (THROTTLEDOP)"),
    ("connection_throttle", "the token bucket alone decides, and each handshake takes one token"),
];

/// Returns why a throttle is ignored; `None` for any other key.
pub(super) fn ignored(key: &str) -> Option<&'static str> {
    IGNORED.iter().find(|(prefix, _)| key.starts_with(prefix)).map(|(_, why)| *why)
}

/// Whether this key is an ignored throttle that its value turns off.
pub(super) fn is_off(key: &str, value: &str) -> bool {
    ignored(key).is_some() && matches!(value, "0" | "-1" | "false")
}

/// Largest rate and smallest bound that a `zoolet.toml` accepts.
const HANDSHAKES_PER_MINUTE_MAX: u32 = 60_000_000;
const OUTSTANDING_BYTES_MIN: u32 = 64 << 10;

/// The throttles of a file, with ZooKeeper's defaults.
pub(super) struct Throttles {
    /// Bytes from which a request is large; -1 or 0: no bound on large requests.
    large_from: i32,
    /// Bytes of large requests in process.
    large_bytes_max: i32,
    /// Tokens for handshakes that each interval adds.
    fill: i32,
    fill_ms: i32,
}

impl Default for Throttles {
    fn default() -> Self {
        Self { large_from: -1, large_bytes_max: 100 << 20, fill: 1, fill_ms: 1 }
    }
}

impl Throttles {
    /// Reads a key; returns false if it is none of these.
    ///
    /// # Errors
    /// The value is not allowed.
    pub(super) fn set(&mut self, key: &str, written: &str, value: &str) -> Result<bool, ConfigError> {
        let (place, least) = match key {
            "largeRequestThreshold" => (&mut self.large_from, -1),
            "largeRequestMaxBytes" => (&mut self.large_bytes_max, 1),
            "connection_throttle_fill_count" => (&mut self.fill, 1),
            "connection_throttle_fill_time" => (&mut self.fill_ms, 1),
            _ => return Ok(false),
        };
        let number = value.parse().ok().filter(|number| *number >= least);
        let allowed = format_args!("a whole number from {least} to {}", i32::MAX);
        *place = number.ok_or_else(|| ConfigError::value(written, value, allowed))?;
        Ok(true)
    }

    /// Sets the bounds that stand for the throttles.
    pub(super) fn bound(&self, limits: &mut Limits) {
        let a_minute = i64::from(self.fill) * 60_000 / i64::from(self.fill_ms);
        let a_minute = u32::try_from(a_minute).unwrap_or(u32::MAX);
        limits.handshakes_per_minute_max = a_minute.clamp(1, HANDSHAKES_PER_MINUTE_MAX);
        // The profile's bound counts the bytes of all requests. A file may only lower it.
        if self.large_from > 0 {
            let bytes_max = self.large_bytes_max.unsigned_abs().max(OUTSTANDING_BYTES_MIN);
            limits.outstanding_bytes_max = limits.outstanding_bytes_max.min(bytes_max);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::{Loaded, Overrides, zoo_cfg};
    use super::*;
    use std::path::Path;

    fn parse(text: &str) -> Result<Loaded, String> {
        zoo_cfg::read(Path::new("zoo.cfg"), text, &Overrides::default()).map_err(|error| error.to_string())
    }

    #[test]
    fn throttles_become_bounds_or_are_named_with_the_reason() {
        let with = |lines: &str| parse(&format!("dataDir=/d\nclientPort=1\n{lines}")).unwrap();
        let handshakes = |lines: &str| {
            let limits = with(lines).config.limits;
            (limits.handshakes_burst_max, limits.handshakes_per_minute_max)
        };
        assert_eq!(handshakes(""), (0, 60_000));
        assert_eq!(handshakes("zookeeper.connection_throttle_tokens=200"), (200, 60_000), "one token a millisecond");
        let slow = "connection_throttle_tokens=5\nconnection_throttle_fill_time=10000\n";
        assert_eq!(handshakes(slow), (5, 6));
        assert_eq!(handshakes(&format!("{slow}connection_throttle_fill_count=3\n")), (5, 18));
        assert_eq!(handshakes("connection_throttle_fill_time=2000000"), (0, 1));
        assert_eq!(handshakes("connection_throttle_fill_count=2000000"), (0, HANDSHAKES_PER_MINUTE_MAX));

        let bytes = |lines: &str| with(lines).config.limits.outstanding_bytes_max;
        let usual = bytes("");
        assert_eq!(bytes("largeRequestMaxBytes=1000000"), usual, "off without a threshold");
        assert_eq!(bytes("largeRequestThreshold=-1\nlargeRequestMaxBytes=1000000"), usual);
        assert_eq!(bytes("largeRequestThreshold=4096\nlargeRequestMaxBytes=1000000"), 1_000_000);
        assert_eq!(bytes("largeRequestThreshold=4096"), usual, "the profile's bound is lower");
        assert_eq!(bytes("largeRequestThreshold=10\nlargeRequestMaxBytes=20"), 64 << 10);

        assert_eq!(
            with(
                "request_throttle_max_requests=10\nrequest_stale_latency_check=true\nthrottled_op_wait_time=50\n\
                 connection_throttle_freeze_time=5\nrequestThrottleLimit=0\n"
            )
            .warnings,
            [
                "request_throttle_max_requests: ignored: outstanding_bytes_max bounds the requests in process",
                "request_stale_latency_check: ignored: a request is not dropped for its age",
                "throttled_op_wait_time: ignored: a request is not refused for its wait (THROTTLEDOP)",
                "connection_throttle_freeze_time: ignored: the token bucket alone decides, and each handshake takes \
                 one token",
                "requestThrottleLimit: accepted, without effect",
            ]
        );
        let error = parse("largeRequestMaxBytes=many").unwrap_err();
        assert_eq!(error, "zoo.cfg:1: largeRequestMaxBytes = many: allowed is a whole number from 1 to 2147483647");
    }
}
