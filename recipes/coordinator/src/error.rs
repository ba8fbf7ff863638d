//! The error of every call of a session or a recipe.

use std::fmt;
use std::sync::Arc;
use zoolet_model::{ErrorCode, InvalidPath, LostReason, OpResult, Path, Request, RequestError, Text, WriteOp};

/// Why a call of a session or a recipe failed.
///
/// [`Error::kind`] says why. [`Error::operation`] and [`Error::path`] say what failed, and the text
/// says it all once.
#[derive(Clone, PartialEq, Eq)]
pub struct Error {
    kind: ErrorKind,
    /// Boxed: an error is as small as a reply, and nothing is allocated on success.
    cause: Option<Box<Cause>>,
}

/// What an error is about.
#[derive(Clone)]
enum Cause {
    Call(Context),
    Program(Arc<dyn std::error::Error + Send + Sync>),
}

impl PartialEq for Cause {
    fn eq(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::Call(one), Self::Call(other)) => one == other,
            // Errors of programs cannot be compared, so only clones are equal.
            (Self::Program(one), Self::Program(other)) => Arc::ptr_eq(one, other),
            _ => false,
        }
    }
}

impl Eq for Cause {}

/// The call that an error is about.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Context {
    operation: &'static str,
    path: Option<Text>,
    /// The position of the operation that failed, in a multi.
    index: Option<usize>,
}

impl Context {
    /// Returns what the error of `request` would be about. It copies no text.
    pub(crate) fn of(request: &Request) -> Self {
        Self { operation: operation(request), path: request.path().cloned(), index: None }
    }

    pub(crate) fn error(self, kind: impl Into<ErrorKind>) -> Error {
        Error { kind: kind.into(), cause: Some(Box::new(Cause::Call(self))) }
    }
}

/// The reason of an [`Error`].
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
#[non_exhaustive]
pub enum ErrorKind {
    /// The server refused the request with this code. Nothing was done.
    Refused(ErrorCode),
    /// The request was sent, and the connection ended before its answer.
    ///
    /// A write may have been done or not. Recipes resolve that themselves where they can. It
    /// remains for a caller's write, such as a fenced one, and for a recipe whose server then
    /// refuses to resolve it.
    ConnectionLoss,
    /// The request was not sent: the session has no connection.
    Suspended,
    /// The request was not sent: too many requests are in flight.
    Busy,
    /// The request was not sent: it is larger than a frame may be.
    TooLarge,
    /// The session is over. A write that was in flight may have been done or not.
    SessionLost(LostReason),
    /// The session is over: an identity was refused.
    AuthFailed,
    /// The session is over: its owner closed it.
    Closed,
    /// The text is not the path of a znode.
    InvalidPath,
    /// The text is not the name of a znode.
    InvalidName,
    /// Another client deleted this participant's znode: an operator broke its place in the line.
    Broken,
    /// The grant is in doubt.
    ///
    /// A fenced write was not sent, because the session has no connection. Or a call that ends in
    /// doubt has dropped its work, which may have written before.
    Doubtful,
    /// A `try_*` call has no answer: the session has no connection, or lost it. The call holds
    /// nothing, and leaves nothing behind.
    Disconnected,
    /// The grant is over. A fenced write was not done.
    GrantLost(GrantEnd),
    /// The parent's numbers are nearly used up. Use another parent: equal numbers would mean two
    /// holders.
    Exhausted,
    /// The queue is full. The item was not put.
    Full,
    /// The sum does not fit 64 bits. The counter was not changed.
    Overflow,
    /// The path holds data that is not the recipe's.
    Malformed,
    /// Another participant uses another size, count or preference for the same path.
    Disagreement,
    /// The program failed, not a request: see [`Error::other`].
    Other,
}

/// Why a grant is over.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
#[non_exhaustive]
pub enum GrantEnd {
    /// Its session is over.
    Session,
    /// Its znode is gone: another client broke the grant, or the server ended the session.
    Broken,
}

impl Error {
    /// Returns an error of this kind, for something that no operation or path describes.
    pub const fn new(kind: ErrorKind) -> Self {
        Self { kind, cause: None }
    }

    /// Returns an error of the program, for work under a recipe or a client.
    ///
    /// Work that returns it is not begun again, also if its grant or session is over by then. Its
    /// text is that of `error`, and [`Error::program_error`] returns `error` again.
    ///
    /// An [`Error`], [`RequestError`] or [`InvalidPath`] given to this function stays what it is. Do
    /// not give one in a wrapper, such as that of a crate for errors: it would no longer be temporary.
    ///
    /// ```
    /// use zoolet::Error;
    ///
    /// let failed = "12a".parse::<u64>().map_err(Error::other).unwrap_err();
    /// assert_eq!(failed.to_string(), "invalid digit found in string");
    /// assert!(failed.program_error().is_some_and(|error| error.is::<std::num::ParseIntError>()));
    /// assert_eq!(Error::other("the valve does not answer").to_string(), "the valve does not answer");
    /// ```
    pub fn other(error: impl Into<Box<dyn std::error::Error + Send + Sync>>) -> Self {
        let error = match error.into().downcast::<Self>() {
            Ok(own) => return *own,
            Err(error) => error,
        };
        let error = match error.downcast::<RequestError>() {
            Ok(request) => return (*request).into(),
            Err(error) => error,
        };
        match error.downcast::<InvalidPath>() {
            Ok(path) => (*path).into(),
            Err(error) => Self { kind: ErrorKind::Other, cause: Some(Box::new(Cause::Program(error.into()))) },
        }
    }

    /// Returns the program's error that [`Error::other`] was given.
    pub fn program_error(&self) -> Option<&(dyn std::error::Error + Send + Sync + 'static)> {
        match self.cause.as_deref()? {
            Cause::Program(error) => Some(&**error),
            Cause::Call(_) => None,
        }
    }

    fn context(&self) -> Option<&Context> {
        match self.cause.as_deref()? {
            Cause::Call(context) => Some(context),
            Cause::Program(_) => None,
        }
    }

    /// Returns the error of an operation on a path.
    ///
    /// `operation` completes "cannot ...": `acquire`, for example.
    pub fn at(kind: impl Into<ErrorKind>, operation: &'static str, path: &Text) -> Self {
        Context { operation, path: Some(path.clone()), index: None }.error(kind)
    }

    /// Returns the error of a request that failed.
    #[doc(hidden)]
    pub fn of_request(request: &Request, error: RequestError) -> Self {
        Context::of(request).error(error)
    }

    /// Returns what errors call an operation, such as `create`.
    #[doc(hidden)]
    pub fn operation_of(op: &WriteOp) -> &'static str {
        operation_of_write(op)
    }

    /// Returns the error of the operation at `index` of a multi.
    #[doc(hidden)]
    pub fn of_multi(ops: &[WriteOp], index: usize, code: ErrorCode) -> Self {
        let context = match ops.get(index) {
            Some(op) => {
                Context { operation: operation_of_write(op), path: Some(op.path().clone()), index: Some(index) }
            }
            None => Context { operation: "carry out a multi", path: None, index: Some(index) },
        };
        context.error(code)
    }

    /// Returns the results of a multi, or the error of its operation that failed.
    ///
    /// # Errors
    /// As [`Error::of_multi`].
    #[doc(hidden)]
    pub fn check_multi(ops: &[WriteOp], results: Vec<OpResult>) -> Result<Vec<OpResult>, Self> {
        match zoolet_model::first_failure(&results) {
            None => Ok(results),
            Some((index, code)) => Err(Self::of_multi(ops, index, code)),
        }
    }

    /// Returns the error for an answer that does not fit its request.
    #[doc(hidden)]
    pub const fn unexpected() -> Self {
        Self::new(ErrorKind::Refused(ErrorCode::RuntimeInconsistency))
    }

    /// Returns the same error, with the positions in a multi counted from its operation `first`.
    #[must_use]
    #[doc(hidden)]
    pub fn counted_from(mut self, first: usize) -> Self {
        if let Some(Cause::Call(context)) = self.cause.as_deref_mut() {
            context.index = context.index.and_then(|index| index.checked_sub(first));
        }
        self
    }

    /// Returns why the call failed.
    pub const fn kind(&self) -> ErrorKind {
        self.kind
    }

    /// Returns the server's code; `None` if no server refused the call.
    pub const fn code(&self) -> Option<ErrorCode> {
        match self.kind {
            ErrorKind::Refused(code) => Some(code),
            _ => None,
        }
    }

    /// Returns what could not be done, such as `create`; `None` if the error is of no operation.
    pub fn operation(&self) -> Option<&'static str> {
        self.context().map(|context| context.operation)
    }

    /// Returns the path that the operation was for.
    pub fn path(&self) -> Option<Path> {
        Path::new(self.context()?.path.clone()?).ok()
    }

    /// Returns the position of the operation that failed, counted from 0; `None` outside a multi.
    pub fn index(&self) -> Option<usize> {
        self.context()?.index
    }

    /// Whether the server has no such znode.
    pub const fn is_no_node(&self) -> bool {
        matches!(self.code(), Some(ErrorCode::NoNode))
    }

    /// Whether the znode exists already.
    pub const fn is_node_exists(&self) -> bool {
        matches!(self.code(), Some(ErrorCode::NodeExists))
    }

    /// Whether the znode has another version.
    pub const fn is_bad_version(&self) -> bool {
        matches!(self.code(), Some(ErrorCode::BadVersion))
    }

    /// Whether the znode has children.
    pub const fn is_not_empty(&self) -> bool {
        matches!(self.code(), Some(ErrorCode::NotEmpty))
    }

    /// Whether the session may not do that.
    pub const fn is_no_auth(&self) -> bool {
        matches!(self.code(), Some(ErrorCode::NoAuth))
    }

    /// Whether the session had no connection, lost it before the answer, or had no room in flight.
    ///
    /// The same session may answer later. After [`ErrorKind::ConnectionLoss`] a write may have been
    /// done or not.
    pub const fn is_disconnection(&self) -> bool {
        matches!(
            self.kind,
            ErrorKind::ConnectionLoss | ErrorKind::Suspended | ErrorKind::Busy | ErrorKind::Disconnected
        )
    }

    /// Whether the same call may succeed later, over the same session.
    ///
    /// - Without a connection, or without room in flight: see [`Error::is_disconnection`].
    /// - [`ErrorKind::Doubtful`]: a fenced write was not sent, because there was no connection.
    /// - SystemError: the server has no room on its disk, for a watch, or for the request.
    /// - NotReadOnly: the server has no leader.
    /// - [`ErrorKind::Full`]: the queue has its maximum of items.
    pub const fn is_temporary(&self) -> bool {
        self.awaits_connection() || matches!(self.kind, ErrorKind::Full | ErrorKind::Refused(ErrorCode::SystemError))
    }

    /// Whether the same call may succeed once the session is connected.
    #[doc(hidden)]
    pub const fn awaits_connection(&self) -> bool {
        self.is_disconnection() || matches!(self.kind, ErrorKind::Doubtful | ErrorKind::Refused(ErrorCode::NotReadOnly))
    }

    /// Whether the session is over. Another one may succeed.
    pub const fn is_session_over(&self) -> bool {
        matches!(self.kind, ErrorKind::SessionLost(_) | ErrorKind::AuthFailed | ErrorKind::Closed)
    }

    /// Whether a grant is over.
    pub const fn is_grant_lost(&self) -> bool {
        matches!(self.kind, ErrorKind::GrantLost(_))
    }
}

fn operation(request: &Request) -> &'static str {
    match request {
        Request::Write(op) => operation_of_write(op),
        Request::Multi(_) => "carry out a multi",
        Request::MultiRead(_) => "carry out a multi-read",
        Request::Exists { .. } => "look up",
        Request::GetData { .. } => "get",
        Request::GetChildren { .. } => "list the children of",
        Request::GetAcl { .. } => "get the ACL of",
        Request::GetTtl { .. } => "get the time to live of",
        Request::Sync { .. } => "sync",
        Request::AddWatch { .. } => "watch",
        Request::Auth { .. } => "add an identity",
        _ => "carry out a request",
    }
}

fn operation_of_write(op: &WriteOp) -> &'static str {
    match op {
        WriteOp::Create(_) => "create",
        WriteOp::Delete { .. } => "delete",
        WriteOp::SetData { .. } => "set",
        WriteOp::SetAcl { .. } => "set the ACL of",
        WriteOp::Check { .. } => "check",
    }
}

impl From<RequestError> for ErrorKind {
    fn from(error: RequestError) -> Self {
        match error {
            RequestError::Refused(code) => Self::Refused(code),
            RequestError::ConnectionLoss => Self::ConnectionLoss,
            RequestError::Suspended => Self::Suspended,
            RequestError::Busy => Self::Busy,
            RequestError::TooLarge => Self::TooLarge,
            RequestError::Lost(reason) => Self::SessionLost(reason),
            RequestError::AuthFailed => Self::AuthFailed,
            RequestError::Closed => Self::Closed,
        }
    }
}

impl From<ErrorCode> for ErrorKind {
    fn from(code: ErrorCode) -> Self {
        Self::Refused(code)
    }
}

impl From<ErrorKind> for Error {
    fn from(kind: ErrorKind) -> Self {
        Self::new(kind)
    }
}

impl From<RequestError> for Error {
    fn from(error: RequestError) -> Self {
        Self::new(error.into())
    }
}

impl From<InvalidPath> for Error {
    fn from(invalid: InvalidPath) -> Self {
        // The rule that the text breaks is worth more than the text of the kind.
        Self::at(ErrorKind::InvalidPath, "use", &Text::from(invalid.text()))
    }
}

impl fmt::Display for ErrorKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let text = match self {
            Self::Refused(code) => return fmt::Display::fmt(code, f),
            Self::ConnectionLoss => return fmt::Display::fmt(&RequestError::ConnectionLoss, f),
            Self::Suspended => return fmt::Display::fmt(&RequestError::Suspended, f),
            Self::Busy => return fmt::Display::fmt(&RequestError::Busy, f),
            Self::TooLarge => return fmt::Display::fmt(&RequestError::TooLarge, f),
            Self::SessionLost(reason) => return fmt::Display::fmt(&RequestError::Lost(*reason), f),
            Self::AuthFailed => return fmt::Display::fmt(&RequestError::AuthFailed, f),
            Self::Closed => return fmt::Display::fmt(&RequestError::Closed, f),
            Self::InvalidPath => "it is not the path of a znode",
            Self::InvalidName => "no znode can have it",
            Self::Broken => "another client deleted the znode of this participant",
            Self::Doubtful => "in doubt: the session is not connected, or the grant may be over",
            Self::Disconnected => "no answer: the session has no connection; try again once it is connected",
            Self::GrantLost(GrantEnd::Session) => "the grant is over: its session has ended",
            Self::GrantLost(GrantEnd::Broken) => "the grant is over: its znode is gone",
            Self::Exhausted => "the sequence numbers below this znode are used up; use another znode",
            Self::Full => "the queue is full; take or delete items, or use another path",
            Self::Overflow => "the sum does not fit 64 bits; the counter is unchanged",
            Self::Malformed => "the recipe's znode holds data that the recipe did not write; use another path",
            Self::Disagreement => "another participant uses other settings for this path; all must use the same",
            Self::Other => "the program reported an error",
        };
        f.write_str(text)
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let context = match self.cause.as_deref() {
            None => return fmt::Display::fmt(&self.kind, f),
            Some(Cause::Program(error)) => return fmt::Display::fmt(error, f),
            Some(Cause::Call(context)) => context,
        };
        if let Some(index) = context.index {
            write!(f, "operation {index}: ")?;
        }
        if self.kind == ErrorKind::InvalidPath
            && let Some(Err(invalid)) = context.path.clone().map(Path::new)
        {
            return fmt::Display::fmt(&invalid, f);
        }
        match &context.path {
            Some(path) => write!(f, "cannot {} {path}: {}", context.operation, self.kind),
            None => write!(f, "cannot {}: {}", context.operation, self.kind),
        }
    }
}

impl fmt::Debug for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut shown = f.debug_struct("Error");
        shown.field("kind", &self.kind);
        if let Some(error) = self.program_error() {
            shown.field("error", &error);
        }
        if let Some(Context { operation, path, index }) = self.context() {
            shown.field("operation", operation);
            if let Some(path) = path {
                shown.field("path", path);
            }
            if let Some(index) = index {
                shown.field("index", index);
            }
        }
        shown.finish()
    }
}

/// The text of an error says all of it, also that of a program's error. So a source is only what is
/// behind the program's error.
impl std::error::Error for Error {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        self.program_error()?.source()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn delete(path: &str) -> WriteOp {
        WriteOp::Delete { path: path.into(), version: -1 }
    }

    #[test]
    fn text_names_operation_path_and_reason_once() {
        let request = Request::GetData { path: "/door".into(), watch: false };
        let error = Error::of_request(&request, RequestError::Refused(ErrorCode::NoNode));
        assert_eq!(error.to_string(), "cannot get /door: NoNode (-101)");
        assert!(std::error::Error::source(&error).is_none(), "a chain would say the reason twice");
        assert_eq!((error.operation(), error.code()), (Some("get"), Some(ErrorCode::NoNode)));
        assert_eq!(error.path(), Path::new("/door").ok());
        assert!(error.is_no_node() && !error.is_disconnection());
    }

    #[test]
    fn failed_multi_names_the_operation_that_failed() {
        let ops = [delete("/a"), delete("/b")];
        let results = vec![OpResult::Failed(None), OpResult::Failed(Some(ErrorCode::NotEmpty))];
        let error = Error::check_multi(&ops, results).unwrap_err();
        assert_eq!(error.to_string(), "operation 1: cannot delete /b: NotEmpty (-111)");
        assert_eq!(error.index(), Some(1));
        assert_eq!(error.counted_from(1).index(), Some(0));
    }

    #[test]
    fn invalid_path_says_its_rule() {
        let error = Error::from(Path::new("door").unwrap_err());
        assert_eq!(error.to_string(), "\"door\" is not the path of a znode: it must begin with a slash");
        assert_eq!(error.kind(), ErrorKind::InvalidPath);
    }

    /// Regression: the text said "not sent", also of work that may have written before it was
    /// dropped.
    #[test]
    fn doubtful_error_does_not_say_that_nothing_was_sent() {
        let text = ErrorKind::Doubtful.to_string();
        assert!(text.contains("in doubt") && !text.contains("sent"), "{text}");
    }

    #[derive(Debug)]
    struct Jammed(std::num::ParseIntError);

    impl fmt::Display for Jammed {
        fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            f.write_str("the valve is jammed")
        }
    }

    impl std::error::Error for Jammed {
        fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
            Some(&self.0)
        }
    }

    #[test]
    fn programs_error_keeps_its_type_text_and_source() {
        let parsed = "x".parse::<u8>().unwrap_err();
        let error = Error::other(Jammed(parsed.clone()));
        assert_eq!((error.kind(), error.to_string().as_str()), (ErrorKind::Other, "the valve is jammed"));
        assert!(error.program_error().is_some_and(|error| error.is::<Jammed>()));
        let source = std::error::Error::source(&error).map(ToString::to_string);
        assert_eq!(source, Some(parsed.to_string()), "a chain says each text once");
        assert!(format!("{error:?}").contains("Jammed"));
        assert!(!error.is_temporary() && !error.is_session_over() && error.path().is_none());
        assert_eq!(error.clone(), error);
        assert_ne!(error, Error::other(Jammed(parsed)));
    }

    #[test]
    fn error_of_this_library_given_to_other_stays_what_it_is() {
        let error = Error::at(ErrorKind::Suspended, "get", &"/door".into());
        assert_eq!(Error::other(error.clone()), error);
        assert!(Error::other(RequestError::ConnectionLoss).is_temporary());
        assert_eq!(Error::other(Path::new("door").unwrap_err()).kind(), ErrorKind::InvalidPath);
        assert_eq!(Error::other(Box::<dyn std::error::Error + Send + Sync>::from(error.clone())), error);
    }

    #[test]
    fn error_is_as_small_as_two_words() {
        assert_eq!(size_of::<Error>(), 2 * size_of::<usize>());
    }
}
