//! Kinds of requests, as the rules tell them apart.

use super::history::Operation;
use crate::reference::Reference;
use zoolet_model::{ErrorCode, Request};

/// Returns whether the answer's header names the state it was computed from.
///
/// The header names no state for requests about identities, nor for unknown requests.
pub(super) fn has_place(request: &Request) -> bool {
    !matches!(request, Request::Auth { .. } | Request::Sasl | Request::Unknown)
}

/// Returns whether the request was refused before it could become an entry or read anything.
pub(super) fn is_refused(operation: &Operation) -> bool {
    let refusals = [Err(ErrorCode::SystemError), Err(ErrorCode::NotReadOnly)];
    operation.answer.as_ref().is_some_and(|answer| refusals.contains(&answer.result))
}

/// Returns whether the request is ordered among the writes.
pub(super) fn is_ordered(operation: &Operation) -> bool {
    Reference::is_ordered(&operation.request)
}
