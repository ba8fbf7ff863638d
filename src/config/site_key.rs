//! Where a file's servers get their trust from, and what is said when there is none.

use super::{ConfigError, Member, TrustSource, address};
use std::path::Path;

/// The site key in `file`, which must be there.
///
/// # Errors
/// It is not; says how to make it.
pub(super) fn at(file: &Path, own: u8, members: &[Member]) -> Result<TrustSource, ConfigError> {
    let file = std::path::absolute(file).unwrap_or_else(|_| file.to_owned());
    // One that may not be looked at is there, as far as anybody knows; why, says whoever reads it.
    if file.try_exists().unwrap_or(true) {
        Ok(TrustSource::SiteKeyFile(file))
    } else {
        Err(missing(&file, own, members))
    }
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
