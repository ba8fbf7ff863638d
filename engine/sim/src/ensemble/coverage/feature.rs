//! Features of servers, as far as they are visible from outside.

use zoolet_model::{CreateKind, CreateMode, ErrorCode, Request, WriteOp};

/// Derives the list of all features from the definitions, so that none is missing.
macro_rules! features {
    ($($(#[$doc:meta])* $feature:ident = $name:literal,)*) => {
        /// Something that servers can do.
        #[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
        pub enum Feature {
            $($(#[$doc])* $feature,)*
        }

        impl Feature {
            /// All features.
            pub const ALL: [Self; [$(Self::$feature),*].len()] = [$(Self::$feature),*];

            /// Returns a readable name.
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
    /// A sequential create.
    CreateSequential = "create sequential",
    /// An ephemeral create.
    CreateEphemeral = "create ephemeral",
    /// An ephemeral and sequential create.
    CreateEphemeralSequential = "create ephemeral sequential",
    /// A create of a container, which goes when its last child does.
    CreateContainer = "create container",
    /// A create with a time to live.
    CreateTtl = "create ttl",
    /// A container was deleted after its last child, or a TTL znode after its time.
    Reap = "znode reaped",
    /// A quota's usage was counted one step further.
    CountStep = "step of a quota's count",
    /// A write failed because it would pass a hard limit.
    QuotaExceeded = "write beyond a quota",
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
    /// A read left a one-shot watch.
    Watch = "watch left",
    /// addWatch.
    AddWatch = "addWatch",
    /// setWatches.
    SetWatches = "setWatches",
    /// checkWatches and removeWatches.
    RemoveWatches = "removeWatches",
    /// A watch event reached a client.
    WatchFired = "watch event",
    /// A global session began.
    SessionBegun = "session begun",
    /// A local session began.
    LocalSessionBegun = "local session begun",
    /// A local session became global.
    SessionUpgraded = "session upgraded",
    /// A session was continued at another server.
    SessionMoved = "session moved",
    /// A session was continued with another timeout.
    SessionRenewed = "session renewed",
    /// A session was closed by its client.
    SessionClosed = "session closed",
    /// A session ended without a close by its client.
    SessionExpired = "session expired",
    /// A client was told that its session is over.
    ToldExpired = "told expired",
    /// A client in a server's process was answered.
    InProcess = "in-process request",
    /// A session ended because its process did.
    FormerSession = "former in-process session ended",
    /// A server was elected, and its epoch was established.
    Election = "election",
    /// The ensemble was founded.
    Birth = "birth",
    /// A learner began to catch up with entries alone.
    Diff = "Diff",
    /// A learner cut off entries that its leader does not have.
    Trunc = "Trunc",
    /// A learner replaced its history by a snapshot.
    Snap = "Snap",
    /// A checkpoint is durable.
    Checkpoint = "checkpoint",
    /// A server was named as successor by a leader that hands over.
    HandOver = "hand-over",
    /// A member counts again, with another disk.
    Readmission = "re-admission",
    /// The members or their kinds changed.
    Reconfiguration = "reconfiguration",
    /// A quorum confirmed to a learner that its leader leads.
    ConfirmedRead = "confirmed read",
    /// A learner forwarded a write to its leader.
    ForwardedWrite = "forwarded write",
    /// A write that a lost leader had not taken was asked of the next one.
    AskedAgain = "write asked again",
    /// A leader confirmed to a learner that a session lives.
    Revalidation = "revalidation",
    /// An observer answered a read.
    ObserverRead = "observer read",
}

impl Feature {
    /// Returns the feature that a request used, given the error of its answer, if any.
    ///
    /// Returns `None` if the answer shows no feature at work.
    pub(super) fn of_request(request: &Request, error: Option<ErrorCode>) -> Option<Self> {
        match (request, error) {
            (Request::Write(_), Some(ErrorCode::QuotaExceeded)) => Some(Self::QuotaExceeded),
            (Request::Write(WriteOp::Create(create)), error) => Self::of_create(create.mode, error),
            // NoNode is a valid answer of exists, and leaves the watch.
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
        error.is_none().then_some(feature)
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
            | Request::GetTtl { .. }
            | Request::Reconfig
            | Request::Malformed { .. }
            | Request::Unknown => None,
        }
    }

    /// Returns whether the feature shows the state to a client.
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
