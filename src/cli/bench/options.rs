//! The options of a run.

use crate::cli::DEFAULT_SERVER;
use std::time::Duration;

/// The options of `bench`, with their defaults.
#[derive(Clone, Debug)]
pub(in crate::cli) struct Options {
    /// HOST:PORT, in the given order; connections are spread over them.
    pub(in crate::cli) servers: Vec<String>,
    pub(in crate::cli) op: Op,
    pub(in crate::cli) connections: usize,
    /// Requests in flight on each connection.
    pub(in crate::cli) outstanding: usize,
    /// Size of a value in bytes.
    pub(in crate::cli) size: usize,
    pub(in crate::cli) keys: u64,
    /// Percentage of reads in a mix.
    pub(in crate::cli) read_percent: u64,
    pub(in crate::cli) distribution: Distribution,
    pub(in crate::cli) until: Until,
    pub(in crate::cli) warmup: Duration,
    /// Requests per second over all connections, sent on a schedule (open loop).
    ///
    /// `None`: each connection sends when answers arrive (closed loop).
    pub(in crate::cli) rate: Option<u64>,
    /// Whether created znodes are ephemeral.
    pub(in crate::cli) ephemeral: bool,
    /// Whether created znodes are sequential.
    pub(in crate::cli) sequential: bool,
    /// Locks that the connections of a lock run use; with a lock for each connection, none contends.
    pub(in crate::cli) locks: usize,
    pub(in crate::cli) session_timeout: Duration,
    /// The root znode of all znodes of a run.
    pub(in crate::cli) path: String,
    /// Leaves the znodes for the next run.
    pub(in crate::cli) keep: bool,
    pub(in crate::cli) json: bool,
    /// Prints a line per second on stderr even if that is no terminal.
    pub(in crate::cli) progress: bool,
    pub(in crate::cli) seed: u64,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            servers: vec![DEFAULT_SERVER.to_owned()],
            op: Op::Set,
            connections: 8,
            outstanding: 64,
            size: 100,
            keys: 1000,
            read_percent: 90,
            distribution: Distribution::Uniform,
            until: Until::Elapsed(Duration::from_secs(10)),
            warmup: Duration::from_secs(1),
            rate: None,
            ephemeral: false,
            sequential: false,
            locks: 1,
            session_timeout: Duration::from_secs(10),
            path: "/bench".to_owned(),
            keep: false,
            json: false,
            progress: false,
            seed: 1,
        }
    }
}

/// The operation that each connection repeats.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(in crate::cli) enum Op {
    Set,
    Get,
    Exists,
    Children,
    Mix,
    Create,
    CreateDelete,
    Watch,
    Lock,
}

impl Op {
    pub(in crate::cli) const ALL: [Self; 9] = [
        Self::Set,
        Self::Get,
        Self::Exists,
        Self::Children,
        Self::Mix,
        Self::Create,
        Self::CreateDelete,
        Self::Watch,
        Self::Lock,
    ];

    pub(in crate::cli) const fn name(self) -> &'static str {
        match self {
            Self::Set => "set",
            Self::Get => "get",
            Self::Exists => "exists",
            Self::Children => "children",
            Self::Mix => "mix",
            Self::Create => "create",
            Self::CreateDelete => "create-delete",
            Self::Watch => "watch",
            Self::Lock => "lock",
        }
    }

    /// Returns whether the operation uses keys that are created beforehand.
    pub(super) const fn uses_keys(self) -> bool {
        match self {
            Self::Set | Self::Get | Self::Exists | Self::Children | Self::Mix => true,
            Self::Create | Self::CreateDelete | Self::Watch | Self::Lock => false,
        }
    }

    /// Returns whether an option, named without its dashes, affects the operation.
    pub(in crate::cli) fn takes(self, option: &str) -> bool {
        match option {
            "outstanding" | "rate" => !matches!(self, Self::Watch | Self::Lock),
            "keys" => self.uses_keys(),
            "distribution" => self.uses_keys() && self != Self::Children,
            "size" => self != Self::Lock,
            "read-percent" => self == Self::Mix,
            "ephemeral" | "sequential" => self == Self::Create,
            "locks" => self == Self::Lock,
            _ => true,
        }
    }
}

/// The order in which keys are chosen.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(in crate::cli) enum Distribution {
    Uniform,
    Sequential,
    Zipf,
}

impl Distribution {
    pub(in crate::cli) const ALL: [Self; 3] = [Self::Uniform, Self::Sequential, Self::Zipf];

    pub(in crate::cli) const fn name(self) -> &'static str {
        match self {
            Self::Uniform => "uniform",
            Self::Sequential => "sequential",
            Self::Zipf => "zipf",
        }
    }
}

/// The end of a run, not counting the warm-up.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(in crate::cli) enum Until {
    Elapsed(Duration),
    Requests(u64),
}
