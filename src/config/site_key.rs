//! The site key of a file's servers, and the message when it is missing.

use super::{ConfigError, Server, TrustSource, address};
use std::path::Path;

/// Returns the site key in `file` as trust source.
///
/// # Errors
/// The file does not exist. The message says how to make it.
pub(super) fn at(file: &Path, own: u8, members: &[Server]) -> Result<TrustSource, ConfigError> {
    let file = std::path::absolute(file).unwrap_or_else(|_| file.to_owned());
    // If the process may not look, the file counts as present. Reading it later gives the reason.
    if file.try_exists().unwrap_or(true) {
        Ok(TrustSource::SiteKeyFile(file))
    } else {
        Err(missing(&file, own, members))
    }
}

/// Returns the message about a missing site key, with the commands to create and copy it.
pub(super) fn missing(file: &Path, own: u8, members: &[Server]) -> ConfigError {
    let file = file.display();
    let mut lines = format!(
        "the site key {file} does not exist: servers authenticate each other with it, unless all are on \
         loopback. Create it once, and copy it to the others:\n  zoolet keygen --out {file}"
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
