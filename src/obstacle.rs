//! Explains errors of the operating system with advice. Other errors keep the system's text.

use std::fmt;
use std::io::{Error, ErrorKind};

/// Explains an error of reading a file.
#[cfg(feature = "server")]
pub(crate) fn reading(error: &Error) -> impl fmt::Display {
    match error.kind() {
        ErrorKind::NotFound => "there is no such file".to_owned(),
        ErrorKind::IsADirectory => "is a directory, and allowed is a file".to_owned(),
        ErrorKind::PermissionDenied => {
            "the user that this process runs as may not read it: see its owner and mode, and those of its directories"
                .to_owned()
        }
        _ => error.to_string(),
    }
}

/// Explains an error of the data directory or of a file in it.
pub(crate) fn storing(error: &Error) -> impl fmt::Display {
    match error.kind() {
        ErrorKind::PermissionDenied => {
            "the user that this process runs as may not read and write there: give the directory and what is in it to that user (chown -R)"
                .to_owned()
        }
        ErrorKind::StorageFull => "the disk is full, and to start takes some of it: make room".to_owned(),
        ErrorKind::ReadOnlyFilesystem => "the disk is read-only".to_owned(),
        _ => error.to_string(),
    }
}

/// Explains an error of opening a port. `sockets` is the option of `ss` for its kind.
pub(crate) fn listening(error: &Error, sockets: &str) -> impl fmt::Display {
    match error.kind() {
        ErrorKind::AddrInUse => {
            format!("another process has this port: stop it (ss -{sockets}lnp names it), or say another port")
        }
        ErrorKind::AddrNotAvailable => "this machine has no such address (ip address shows those it has)".to_owned(),
        ErrorKind::PermissionDenied => {
            "ports below 1024 are for root, or a process with CAP_NET_BIND_SERVICE: say another port".to_owned()
        }
        _ => error.to_string(),
    }
}
