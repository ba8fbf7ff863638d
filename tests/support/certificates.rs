//! Certificates of an operator's authority.

use super::Scratch;
use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

/// Copies certificates from zoolet-transport's tests.
///
/// They are `authority.pem`, and `server-N.pem` with `server-N.key` for servers 1 and 3.
pub(crate) fn certificates(scratch: &Scratch) {
    let from = Path::new(env!("CARGO_MANIFEST_DIR")).join("transport/src/peer/trust/tests/pki");
    for (name, to) in [
        ("authority.pem", "authority.pem"),
        ("server_1.pem", "server-1.pem"),
        ("server_1.key", "server-1.key"),
        ("server_3_chain.pem", "server-3.pem"),
        ("server_3.key", "server-3.key"),
    ] {
        let to = scratch.join(to);
        fs::copy(from.join(name), &to).unwrap();
        // A checkout does not keep file modes.
        fs::set_permissions(&to, Permissions::from_mode(0o600)).unwrap();
    }
}
