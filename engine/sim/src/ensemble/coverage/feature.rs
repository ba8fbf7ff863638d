//! What servers can do, as far as it can be seen from outside.

use zoolet_model::{CreateKind, CreateMode, ErrorCode, Request, WriteOp};

/// Makes the list of all from the list itself, so that none is forgotten.
macro_rules! features {
    ($($(#[$doc:meta])* $feature:ident = $name:literal,)*) => {
        /// Something that servers do.
        #[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
        pub enum Feature {
            $($(#[$doc])* $feature,)*
        }

        impl Feature {
            /// All of them.
            pub const ALL: [Self; [$(Self::$feature),*].len()] = [$(Self::$feature),*];

            /// For people.
            pub fn name(self) -> &'static str {
                match self {
                    $(Self::$feature => $name,)*
                }
            }
        }
    };
}

features! {
    /// A create that succeeded.
    Create = "create",
    /// One with a number.
    CreateSequential = "create sequential",
    /// One that dies with its session.
    CreateEphemeral = "create ephemeral",
    /// Both.
    CreateEphemeralSequential = "create ephemeral sequential",
    /// One that goes when its last child does.
    CreateContainer = "create container",
    /// One with a time to live; it is refused (UNIMPLEMENTED), as ZooKeeper does without its extended types.
    CreateTtl = "create ttl (refused)",
    /// A container whose last child went was deleted.
    Reap = "container reaped",
    /// setData.
    SetData = "setData",
    /// setACL.
    SetAcl = "setACL",
    /// delete.
    Delete = "delete",
    /// A multi that succeeded.
    Multi = "multi",
    /// exists.
    Exists = "exists",
    /// getData.
    GetData = "getData",
    /// getChildren and getChildren2.
    GetChildren = "getChildren",
    /// getACL.
    GetAcl = "getACL",
    /// getEphemerals.
    GetEphemerals = "getEphemerals",
    /// getAllChildrenNumber.
    GetAllChildrenNumber = "getAllChildrenNumber",
    /// multiRead.
    MultiRead = "multiRead",
    /// sync.
    Sync = "sync",
    /// ping.
    Ping = "ping",
    /// auth.
    Auth = "auth",
    /// A one-shot watch was left.
    Watch = "watch left",
    /// addWatch.
    AddWatch = "addWatch",
    /// setWatches.
    SetWatches = "setWatches",
    /// checkWatches and removeWatches.
    RemoveWatches = "removeWatches",
    /// A watch event reached a client.
    WatchFired = "watch event",
    /// A session began.
    SessionBegun = "session begun",
    /// A session was continued at another server.
    SessionMoved = "session moved",
    /// A session was continued with another timeout.
    SessionRenewed = "session renewed",
    /// A session was closed by its client.
    SessionClosed = "session closed",
    /// A session ended that no client had closed.
    SessionExpired = "session expired",
    /// A client was told that its session is over.
    ToldExpired = "told expired",
    /// Somebody in a server's own process was answered.
    InProcess = "in-process request",
    /// A session ended because its process did.
    FormerSession = "former in-process session ended",
    /// A server was elected and its epoch established.
    Election = "election",
    /// The ensemble came to be.
    Birth = "birth",
    /// A learner was brought up to date with entries alone.
    Diff = "Diff",
    /// A learner cut off what its leader has not.
    Trunc = "Trunc",
    /// A learner took a snapshot for its history.
    Snap = "Snap",
    /// A checkpoint is durable.
    Checkpoint = "checkpoint",
    /// A leader made room for another one.
    HandOver = "hand-over",
    /// A member counts again with another disk.
    Readmission = "re-admission",
    /// Who is a member, or votes, changed.
    Reconfiguration = "reconfiguration",
    /// A quorum confirmed to a learner that its leader leads.
    ConfirmedRead = "confirmed read",
    /// A learner had its leader propose.
    ForwardedWrite = "forwarded write",
    /// A learner had its leader say whether a session lives.
    Revalidation = "revalidation",
    /// An observer answered a read.
    ObserverRead = "observer read",
}

impl Feature {
    /// What a request used that was answered with this error, or with none.
    pub(super) fn of_request(request: &Request, error: Option<ErrorCode>) -> Option<Self> {
        match (request, error) {
            (Request::Write(WriteOp::Create(create)), error) => Self::of_create(create.mode, error),
            // That there is no such znode is an answer, and leaves a watch.
            (Request::Exists { watch, .. }, None | Some(ErrorCode::NoNode)) => {
                Some(if *watch { Self::Watch } else { Self::Exists })
            }
            (_, Some(_)) => None,
            (Request::GetData { watch: true, .. } | Request::GetChildren { watch: true, .. }, None) => {
                Some(Self::Watch)
            }
            (request, None) => Self::of_other(request),
        }
    }

    fn of_create(mode: CreateMode, error: Option<ErrorCode>) -> Option<Self> {
        let CreateMode::Valid { kind, sequential } = mode else { return None };
        let feature = match (kind, sequential) {
            (CreateKind::Persistent, false) => Self::Create,
            (CreateKind::Persistent, true) => Self::CreateSequential,
            (CreateKind::Ephemeral, false) => Self::CreateEphemeral,
            (CreateKind::Ephemeral, true) => Self::CreateEphemeralSequential,
            (CreateKind::Container, _) => Self::CreateContainer,
            (CreateKind::Ttl { .. }, _) => Self::CreateTtl,
        };
        let expected = if feature == Self::CreateTtl { Some(ErrorCode::Unimplemented) } else { None };
        (error == expected).then_some(feature)
    }

    fn of_other(request: &Request) -> Option<Self> {
        match request {
            Request::Write(WriteOp::SetData { .. }) => Some(Self::SetData),
            Request::Write(WriteOp::SetAcl { .. }) => Some(Self::SetAcl),
            Request::Write(WriteOp::Delete { .. }) => Some(Self::Delete),
            Request::Multi(_) => Some(Self::Multi),
            Request::GetData { .. } => Some(Self::GetData),
            Request::GetChildren { .. } => Some(Self::GetChildren),
            Request::GetAcl { .. } => Some(Self::GetAcl),
            Request::GetEphemerals { .. } => Some(Self::GetEphemerals),
            Request::GetAllChildrenNumber { .. } => Some(Self::GetAllChildrenNumber),
            Request::MultiRead(_) => Some(Self::MultiRead),
            Request::Sync { .. } => Some(Self::Sync),
            Request::Ping => Some(Self::Ping),
            Request::Auth { .. } => Some(Self::Auth),
            Request::AddWatch { .. } => Some(Self::AddWatch),
            Request::SetWatches(_) => Some(Self::SetWatches),
            Request::CheckWatches { .. } | Request::RemoveWatches { .. } => Some(Self::RemoveWatches),
            Request::Write(WriteOp::Create(_) | WriteOp::Check { .. })
            | Request::Exists { .. }
            | Request::CloseSession
            | Request::Sasl
            | Request::WhoAmI
            | Request::Reconfig
            | Request::Malformed { .. }
            | Request::Unknown => None,
        }
    }

    /// Whether it shows a client what the state is.
    pub(super) fn is_read(self) -> bool {
        matches!(
            self,
            Self::Exists
                | Self::GetData
                | Self::GetChildren
                | Self::GetAcl
                | Self::GetEphemerals
                | Self::GetAllChildrenNumber
                | Self::MultiRead
                | Self::Watch
        )
    }
}
