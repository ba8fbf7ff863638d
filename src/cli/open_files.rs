//! Raises the open-file limit of the process: each connection is an open file.
//!
//! Most systems allow 1,024 open files unless the process asks for more.

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use zoolet::config::Config;

/// Open files that are not client connections and not log segments.
///
/// These are up to 128 runs of the base, when a full disk prevents merging; files of redb and of
/// readers of earlier generations; listening sockets; and pipes.
const OTHERS: u64 = 256;

/// Raises the limit to its maximum, and lowers `connections_max` if that is not enough.
///
/// If clients took every file, the log could not open its next segment, and the server would stop.
/// Returns a warning if it lowered the bound.
///
/// # Errors
/// The line for the operator, if no file is left for a client.
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

/// Raises the limit to the maximum that needs no privilege.
///
/// Keeps the old limit if the system refuses.
pub(super) fn raise_to_maximum() {
    let before = getrlimit(Resource::Nofile);
    let raised = Rlimit { current: before.maximum, maximum: before.maximum };
    let _ = setrlimit(Resource::Nofile, raised);
}

/// Returns the affordable number of connections and a warning, if it is below `connections`.
fn too_few(files: Option<u64>, connections: u32, segments: u32) -> Option<(u32, String)> {
    let files = files?;
    let enough = u32::try_from(files.saturating_sub(OTHERS + u64::from(segments))).unwrap_or(u32::MAX);
    (connections > enough).then(|| {
        let line = format!(
            "connections_max is {connections}, but this process may open only {files} files, enough for \
             {enough} connections: raise the limit (ulimit -n, LimitNOFILE=) or lower connections_max"
        );
        (enough, line)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn open_files_warning_appears_only_below_connections_max() {
        assert_eq!(too_few(None, 1_000_000, 16), None);
        assert_eq!(too_few(Some(4096), 3824, 16), None);
        let (enough, warning) = too_few(Some(1024), 4096, 16).unwrap();
        assert_eq!(enough, 752);
        assert!(warning.contains("connections_max is 4096") && warning.contains("enough for 752"), "{warning}");
        assert_eq!(too_few(Some(20), 10, 16).unwrap().0, 0);
    }
}
