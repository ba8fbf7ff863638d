//! The environment variables that stand in for options.

use super::{Address, Exit, address, arguments, refuse_stray_key};
use std::ffi::{OsStr, OsString};
use std::path::PathBuf;

/// Names the servers that commands ask by default.
const SERVER: &str = "ZOOLET_SERVER";
/// Names the configuration file that `serve` and `status` read by default.
const CONFIG: &str = "ZOOLET_CONFIG";

/// The variables; an empty one counts as unset.
///
/// A command reads only those that it uses, so a wrong value does not hinder the others.
#[derive(Default)]
pub(super) struct Variables {
    pub(super) server: OsString,
    pub(super) config: OsString,
}

impl Variables {
    pub(super) fn of_this_process() -> Self {
        let variable = |name| std::env::var_os(name).unwrap_or_default();
        Self { server: variable(SERVER), config: variable(CONFIG) }
    }

    /// Returns the servers to ask.
    ///
    /// # Errors
    /// The value is not a list of addresses; the line names the variable.
    pub(super) fn address(&self) -> Result<Option<Address>, Exit> {
        text(SERVER, &self.server)?.map(|list| address(SERVER, &list)).transpose()
    }

    /// Returns the configuration file to read.
    ///
    /// # Errors
    /// The value is a private key, or not UTF-8; the line names the variable.
    pub(super) fn config(&self) -> Result<Option<PathBuf>, Exit> {
        Ok(text(CONFIG, &self.config)?.map(PathBuf::from))
    }
}

fn text(name: &str, value: &OsStr) -> Result<Option<String>, Exit> {
    refuse_stray_key(name, &value.to_string_lossy()).map_err(Exit::usage)?;
    let value = arguments::text(value.to_owned()).map_err(|exit| Exit::usage(format!("{name} = {}", exit.line)))?;
    Ok(Some(value).filter(|value| !value.is_empty()))
}
