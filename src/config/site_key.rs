//! Where a file's servers get their trust from, and what is said when there is none.

use super::{ConfigError, Member, TrustSource, address};
use std::path::Path;

/// What every site key begins with, whatever its version.
const KEY: &str = "zoolet-site-key-";

/// The site key in `file`, which must be there.
///
/// # Errors
/// It is not; says how to make it. Or a key stands where the name of its file belongs: nothing shows that.
pub(super) fn at(file: &Path, own: u8, members: &[Member]) -> Result<TrustSource, ConfigError> {
    if is_a_key(&file.to_string_lossy()) {
        return Err(ConfigError::new(
            "a site key stands where the name of its file belongs. Write the key to a file of its own that only the server's user may read, \
             and name that file. If others could read the key here, make a new one (zoolet keygen) for all servers",
        ));
    }
    let file = std::path::absolute(file).unwrap_or_else(|_| file.to_owned());
    // One that may not be looked at is there, as far as anybody knows; why, says whoever reads it.
    if file.try_exists().unwrap_or(true) {
        Ok(TrustSource::SiteKeyFile(file))
    } else {
        Err(missing(&file, own, members))
    }
}

/// Whether a path has a key in it: its first word, a version and a colon.
fn is_a_key(path: &str) -> bool {
    let version = path.split_once(KEY).and_then(|(_, behind)| behind.split_once(':'));
    version.is_some_and(|(version, _)| !version.is_empty() && version.bytes().all(|byte| byte.is_ascii_digit()))
}

/// What an operator reads whose servers have no secret in common: the two commands that give them one.
pub(super) fn missing(file: &Path, own: u8, members: &[Member]) -> ConfigError {
    let file = file.display();
    let mut lines = format!(
        "there is no site key in {file}: servers that are not all on one machine's loopback address know each other by it. Make it once, \
         and copy it to the others:\n  zoolet keygen --out {file}"
    );
    let others = members.iter().filter(|member| member.id != own);
    let hosts: Vec<&str> = others.filter_map(|member| address::split(member.addresses.first()?)).map(|h| h.0).collect();
    match hosts.as_slice() {
        [] => {}
        [host] => lines += &format!("\n  scp -p {file} {host}:{file}"),
        several => lines += &format!("\n  for host in {}; do scp -p {file} $host:{file}; done", several.join(" ")),
    }
    ConfigError::new(lines)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_in_the_place_of_its_file_is_refused_and_not_shown() {
        for place in ["zoolet-site-key-1:SECRET", "/etc/zoolet/zoolet-site-key-1:SEC/RET"] {
            let error = at(Path::new(place), 1, &[]).unwrap_err().to_string();
            assert!(error.starts_with("a site key stands where") && !error.contains("SEC"), "{error}");
        }
        assert!(!is_a_key("/etc/zoolet/zoolet-site-key-plant:7"), "a file may be named so");
    }
}
