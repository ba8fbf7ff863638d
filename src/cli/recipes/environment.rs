//! The variables that COMMAND finds in its environment.

use super::Options;
use std::process::Command;
use zoolet_recipes::{Coordinator, Remote};

/// The variables of one grant.
///
/// COMMAND of a nested command also inherits the environment of the outer grant. A token of the one
/// beside a path of the other would pass a store's check, so [`Environment::give`] removes every
/// variable that this grant does not have.
pub(super) struct Environment {
    path: String,
    /// COMMAND's own commands of zoolet use the same servers and the same root.
    server: String,
    token: Option<i64>,
    session: Option<String>,
    pub(super) znode: Option<String>,
    pub(super) attempt: Option<u32>,
}

impl Environment {
    /// Returns the variables of a command that has no grant.
    pub(super) fn new(options: &Options) -> Self {
        Self {
            path: options.below_root(options.path.as_str()),
            server: format!("{}{}", options.servers.join(","), options.root),
            token: None,
            session: None,
            znode: None,
            attempt: None,
        }
    }

    pub(super) fn of_grant(options: &Options, session: &Remote, token: i64) -> Self {
        let session = format!("{:#x}", session.session().0);
        Self { token: Some(token), session: Some(session), ..Self::new(options) }
    }

    /// Sets the variables for `command`, and removes those of an outer grant.
    pub(super) fn give(&self, command: &mut Command) {
        let Self { path, server, token, session, znode, attempt } = self;
        for (name, value) in [
            ("ZOOLET_PATH", Some(path.clone())),
            ("ZOOLET_SERVER", Some(server.clone())),
            ("ZOOLET_TOKEN", token.map(|token| token.to_string())),
            ("ZOOLET_SESSION", session.clone()),
            ("ZOOLET_ZNODE", znode.clone()),
            ("ZOOLET_ATTEMPT", attempt.map(|attempt| attempt.to_string())),
        ] {
            match value {
                Some(value) => command.env(name, value),
                None => command.env_remove(name),
            };
        }
    }
}
