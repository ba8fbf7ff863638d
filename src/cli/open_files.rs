//! Each connection is an open file, and most systems let a process have 1024 of them unless it asks for more.

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use zoolet::config::Config;

/// Open files that are not clients': the log's segments, the base, sockets that listen, pipes.
const OTHERS: u64 = 64;

/// Lets this process have as many open files as it may. What to tell the operator when that is too few for every connection that the
/// configuration allows.
pub(super) fn raise(config: &Config) -> Option<String> {
    raise_to_maximum();
    let connections = config.clients.map_or(0, |_| config.limits.connections_max);
    too_few(getrlimit(Resource::Nofile).current, connections.into(), config.limits.log_segments.into())
}

/// As many as the system lets this process have without asking anybody. A system that refuses leaves the old limit.
pub(super) fn raise_to_maximum() {
    let before = getrlimit(Resource::Nofile);
    let raised = Rlimit { current: before.maximum, maximum: before.maximum };
    let _ = setrlimit(Resource::Nofile, raised);
}

fn too_few(files: Option<u64>, connections: u64, segments: u64) -> Option<String> {
    let files = files?;
    let others = OTHERS + segments;
    (connections + others > files).then(|| {
        format!(
            "{connections} connections are allowed (connections_max), but this process may have {files} open files, \
             enough for {}: raise its limit (ulimit -n, LimitNOFILE=) or lower connections_max",
            files.saturating_sub(others)
        )
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_too_few_files_are_worth_a_warning() {
        assert_eq!(too_few(None, 1_000_000, 16), None);
        assert_eq!(too_few(Some(4096), 4000, 16), None);
        let warning = too_few(Some(1024), 4096, 16).unwrap();
        assert!(warning.contains("4096 connections") && warning.contains("enough for 944"), "{warning}");
    }
}
