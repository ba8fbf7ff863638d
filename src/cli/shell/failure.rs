//! Why a command failed, with zkCli's texts and exit codes.

/// Codes that the shell treats apart.
pub(super) mod code {
    pub(in crate::cli::shell) const CONNECTION_LOSS: i32 = -4;
    pub(in crate::cli::shell) const UNIMPLEMENTED: i32 = -6;
    pub(in crate::cli::shell) const NO_NODE: i32 = -101;
    pub(in crate::cli::shell) const NO_AUTH: i32 = -102;
    pub(in crate::cli::shell) const BAD_VERSION: i32 = -103;
    pub(in crate::cli::shell) const NODE_EXISTS: i32 = -110;
    pub(in crate::cli::shell) const NOT_EMPTY: i32 = -111;
    pub(in crate::cli::shell) const SESSION_EXPIRED: i32 = -112;
    pub(in crate::cli::shell) const INVALID_ACL: i32 = -114;
    pub(in crate::cli::shell) const AUTH_FAILED: i32 = -115;
    pub(in crate::cli::shell) const NOT_READ_ONLY: i32 = -119;
    pub(in crate::cli::shell) const EPHEMERAL_ON_LOCAL_SESSION: i32 = -120;
    pub(in crate::cli::shell) const NO_WATCHER: i32 = -121;
    pub(in crate::cli::shell) const QUOTA_EXCEEDED: i32 = -125;
}

/// Why a command failed.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) enum Failure {
    /// A request was refused, or its answer is lost.
    Refused {
        /// ZooKeeper's error code.
        code: i32,
        /// The path of the request; `None` for a request without one.
        path: Option<String>,
        /// The reason beside the code; may be empty.
        why: String,
    },
    /// The command cannot be carried out.
    Text(String),
    /// A word is missing: the line of the command's usage is the text.
    Usage(String),
    /// There is no such command.
    UnknownCommand(String),
    /// Ctrl-C ended the command.
    Interrupted {
        /// The changes that happened before, or may have; may be empty.
        why: String,
    },
    /// Nothing reads the output any more.
    ReaderGone,
}

impl Failure {
    /// Returns the failure of a command that Ctrl-C ended before it changed anything.
    pub(super) fn interrupted() -> Self {
        Self::Interrupted { why: String::new() }
    }

    /// Returns whether Ctrl-C ended the command.
    pub(super) fn is_interruption(&self) -> bool {
        matches!(self, Self::Interrupted { .. })
    }

    /// Returns whether a write of the command may have happened, although its answer is missing.
    pub(super) fn may_have_changed(&self) -> bool {
        let is_open = matches!(self, Self::Interrupted { why } if !why.is_empty());
        is_open || self.is(code::CONNECTION_LOSS)
    }

    /// Adds a line to a refusal or an interruption.
    pub(super) fn because(self, line: &str) -> Self {
        let longer = |why: String| if why.is_empty() { line.to_owned() } else { format!("{why}\n{line}") };
        match self {
            Self::Refused { code, path, why } => Self::Refused { code, path, why: longer(why) },
            Self::Interrupted { why } => Self::Interrupted { why: longer(why) },
            other => other,
        }
    }

    pub(super) fn text(text: impl Into<String>) -> Self {
        Self::Text(text.into())
    }

    /// Returns whether the server answered with this code.
    pub(super) fn is(&self, wanted: i32) -> bool {
        matches!(self, Self::Refused { code, .. } if *code == wanted)
    }

    /// Returns the exit code of a shell whose last command failed so.
    pub(super) fn exit_code(&self) -> u8 {
        match self {
            Self::Refused { .. } | Self::Text(_) | Self::Usage(_) => 1,
            Self::UnknownCommand(_) => 127,
            Self::Interrupted { .. } => 130,
            Self::ReaderGone => 0,
        }
    }

    /// Returns zkCli's text.
    pub(super) fn message(&self) -> String {
        match self {
            Self::Refused { code, path, why } => {
                let text = refusal(*code, path.as_deref());
                if why.is_empty() { text } else { format!("{text}\n{why}") }
            }
            Self::Text(text) | Self::Usage(text) => text.clone(),
            Self::UnknownCommand(name) => format!("Command not found: Command not found {name}"),
            Self::Interrupted { why } if why.is_empty() => "Interrupted".to_owned(),
            Self::Interrupted { why } => format!("Interrupted\n{why}"),
            Self::ReaderGone => String::new(),
        }
    }

    /// Returns a remedy, for a reader at a terminal.
    pub(super) fn hint(&self) -> Option<&'static str> {
        let Self::Refused { code, .. } = self else { return None };
        Some(match *code {
            code::UNIMPLEMENTED => {
                "the server is too old; or, for create -t, its setting ttl_znodes (extendedTypesEnabled) is off"
            }
            code::NO_AUTH => "getAcl shows who may; addauth SCHEME NAME:PASSWORD adds an identity to this session",
            code::NOT_EMPTY => "deleteall PATH deletes a znode with all its children",
            code::INVALID_ACL => "an ACL is SCHEME:ID:PERMS[,..], such as world:anyone:cdrwa or digest:NAME:HASH:r",
            code::NOT_READ_ONLY => "this server has no leader or a read-only disk; connect to another one to write",
            code::EPHEMERAL_ON_LOCAL_SESSION => {
                "the servers need local_sessions_upgrade (localSessionsUpgradingEnabled)"
            }
            code::QUOTA_EXCEEDED => {
                "listquota PATH shows limits and usage; delete znodes, or raise the limit with setquota"
            }
            code::SESSION_EXPIRED => "the session ended at the server; the next command uses a new session",
            _ => return None,
        })
    }
}

/// Returns zkCli's text of an error code.
fn refusal(code: i32, path: Option<&str>) -> String {
    let shown = path.unwrap_or("null");
    match code {
        code::NO_NODE => format!("Node does not exist: {shown}"),
        -108 => format!("Ephemerals cannot have children: {shown}"),
        code::NODE_EXISTS => format!("Node already exists: {shown}"),
        code::NOT_EMPTY => format!("Node not empty: {shown}"),
        -119 => format!("Not a read-only call: {shown}"),
        code::INVALID_ACL => format!("Acl is not valid : {shown}"),
        code::NO_AUTH => format!("Insufficient permission : {shown}"),
        -8 => format!("Arguments are not valid : {shown}"),
        code::BAD_VERSION => format!("version No is not valid : {shown}"),
        -14 => "Another reconfiguration is in progress -- concurrent reconfigs not supported (yet)".to_owned(),
        // The spelling is zkCli's.
        -13 => "No quorum of new config is connected and up-to-date with the leader of last commmitted config - try \
                invoking reconfiguration after new servers are connected and synced"
            .to_owned(),
        -125 => format!("Quota has exceeded : {shown}"),
        _ => match path {
            Some(path) => format!("KeeperErrorCode = {} for {path}", name(code)),
            None => format!("KeeperErrorCode = {}", name(code)),
        },
    }
}

/// Returns ZooKeeper's name of an error code.
fn name(code: i32) -> String {
    let name = match code {
        -1 => "SystemError",
        -2 => "RuntimeInconsistency",
        -3 => "DataInconsistency",
        code::CONNECTION_LOSS => "ConnectionLoss",
        -5 => "MarshallingError",
        code::UNIMPLEMENTED => "Unimplemented",
        -7 => "OperationTimeout",
        -100 => "APIError",
        code::SESSION_EXPIRED => "Session expired",
        code::AUTH_FAILED => "AuthFailed",
        -113 => "Invalid callback",
        -118 => "Session moved",
        -120 => "Ephemeral node on local session",
        code::NO_WATCHER => "No such watcher",
        -123 => "Reconfig is disabled",
        -124 => "Session closed because client failed to authenticate",
        -127 => "Op throttled due to high load",
        unknown => return format!("Unknown error {unknown}"),
    };
    name.to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lost_answer_leaves_open_whether_a_write_has_happened() {
        let written = Failure::interrupted().because("the change may have happened");
        assert_eq!(written.message(), "Interrupted\nthe change may have happened");
        let refused = |code| Failure::Refused { code, path: None, why: String::new() };
        let open = [written, Failure::interrupted(), refused(code::CONNECTION_LOSS), refused(code::NO_NODE)];
        assert_eq!(open.map(|failure| failure.may_have_changed()), [true, false, true, false]);
    }

    #[test]
    fn each_refusal_has_zkclis_text() {
        let text = |code, path: Option<&str>| {
            Failure::Refused { code, path: path.map(str::to_owned), why: String::new() }.message()
        };
        for (code, expected) in [
            (-101, "Node does not exist: /a"),
            (-102, "Insufficient permission : /a"),
            (-103, "version No is not valid : /a"),
            (-114, "Acl is not valid : /a"),
            (-125, "Quota has exceeded : /a"),
            (-4, "KeeperErrorCode = ConnectionLoss for /a"),
            (-121, "KeeperErrorCode = No such watcher for /a"),
            (-999, "KeeperErrorCode = Unknown error -999 for /a"),
        ] {
            assert_eq!(text(code, Some("/a")), expected);
        }
        assert_eq!(text(-123, None), "KeeperErrorCode = Reconfig is disabled");
        assert_eq!(text(-114, None), "Acl is not valid : null");
        let usage = Failure::Usage("ls path".to_owned());
        assert_eq!((usage.message().as_str(), usage.exit_code()), ("ls path", 1));
        let unknown = Failure::UnknownCommand("x".to_owned());
        assert_eq!((unknown.message().as_str(), unknown.exit_code()), ("Command not found: Command not found x", 127));
    }
}
