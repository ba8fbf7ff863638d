//! Each connection is an open file, and most systems let a process have 1024 of them unless it asks for more.

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use zoolet::config::Config;

/// Open files that are not clients': the base's runs, of which there are 128 when a full disk keeps them from being merged, what redb and readers of
/// former generations have open, sockets that listen, pipes.
const OTHERS: u64 = 256;

/// Lets this process have as many open files as it may. Where that is too few for every connection that the configuration allows, fewer are
/// allowed: a log that cannot open its next segment because clients took every file would stop the server. Says so to the operator.
///
/// # Errors
/// What to tell when there is not one file for a client.
pub(super) fn raise(config: &mut Config) -> Result<Option<String>, String> {
    raise_to_maximum();
    if config.clients.is_none() {
        return Ok(None);
    }
    let (files, limits) = (getrlimit(Resource::Nofile).current, &mut config.limits);
    let Some((enough, line)) = too_few(files, limits.connections_max, limits.log_segments) else { return Ok(None) };
    limits.connections_max = enough;
    if enough == 0 { Err(line) } else { Ok(Some(line)) }
}

/// As many as the system lets this process have without asking anybody. A system that refuses leaves the old limit.
pub(super) fn raise_to_maximum() {
    let before = getrlimit(Resource::Nofile);
    let raised = Rlimit { current: before.maximum, maximum: before.maximum };
    let _ = setrlimit(Resource::Nofile, raised);
}

/// For how many connections there are files, and the line that says so, when that is fewer than `connections`.
fn too_few(files: Option<u64>, connections: u32, segments: u32) -> Option<(u32, String)> {
    let files = files?;
    let enough = u32::try_from(files.saturating_sub(OTHERS + u64::from(segments))).unwrap_or(u32::MAX);
    (connections > enough).then(|| {
        let line = format!(
            "{connections} connections are allowed (connections_max), but this process may have {files} open files, \
             enough for {enough}, and takes no more: raise its limit (ulimit -n, LimitNOFILE=) or lower connections_max"
        );
        (enough, line)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_too_few_files_are_worth_a_warning() {
        assert_eq!(too_few(None, 1_000_000, 16), None);
        assert_eq!(too_few(Some(4096), 3824, 16), None);
        let (enough, warning) = too_few(Some(1024), 4096, 16).unwrap();
        assert_eq!(enough, 752);
        assert!(warning.contains("4096 connections") && warning.contains("enough for 752"), "{warning}");
        assert_eq!(too_few(Some(20), 10, 16).unwrap().0, 0);
    }
}
