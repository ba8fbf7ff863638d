//! Explains errors of the operating system with advice. Other errors keep the system's text.

use std::fmt;
use std::io::{Error, ErrorKind};

/// Explains an error of reading a file.
#[cfg(feature = "server")]
pub(crate) fn reading(error: &Error) -> impl fmt::Display {
    match error.kind() {
        ErrorKind::NotFound => "there is no such file".to_owned(),
        ErrorKind::IsADirectory => "is a directory, not a file".to_owned(),
        ErrorKind::PermissionDenied => {
            "permission denied: check the owner and mode of the file and of its directories".to_owned()
        }
        _ => error.to_string(),
    }
}

/// Explains an error of the data directory or of a file in it.
pub(crate) fn storing(error: &Error) -> impl fmt::Display {
    match error.kind() {
        ErrorKind::PermissionDenied => {
            "permission denied: give the directory and its files to the user of this process (chown -R)".to_owned()
        }
        ErrorKind::StorageFull => "the disk is full, and a start needs space: free space on it".to_owned(),
        ErrorKind::ReadOnlyFilesystem => "the disk is read-only".to_owned(),
        _ => error.to_string(),
    }
}

/// Explains an error of opening a port. `sockets` is the option of `ss` for its kind.
#[cfg(any(feature = "ensemble", feature = "port"))]
pub(crate) fn listening(error: &Error, sockets: &str) -> impl fmt::Display {
    match error.kind() {
        ErrorKind::AddrInUse => {
            format!("another process has this port: stop it (ss -{sockets}lnp names it), or use another port")
        }
        ErrorKind::AddrNotAvailable => "this machine has no such address (ip address lists its addresses)".to_owned(),
        ErrorKind::PermissionDenied => {
            "ports below 1024 need root or CAP_NET_BIND_SERVICE: use another port".to_owned()
        }
        _ => error.to_string(),
    }
}
