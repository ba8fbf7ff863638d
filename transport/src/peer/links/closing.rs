//! Close codes of connections, and their explanation for the operator.

use super::Links;
use crate::peer::trust::{RefusalReason, Refused, close_code};
use quinn::{ApplicationClose, Connection, ConnectionError, VarInt};
use std::net::SocketAddr;
use zoolet_model::ServerId;

/// Close codes other than those of trust, see [`close_code`]. A number is never reused.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Closing {
    /// This server stops.
    Going,
    /// A link exists already, or another connection became the link.
    Duplicate,
    /// The peer has proved itself but is not a member.
    NoMember,
    /// The peer does not read.
    DoesNotRead,
    /// The peer violated the protocol.
    Protocol,
    /// The engine dropped the link.
    Dropped,
    /// A task of the closing server failed.
    ///
    /// A peer of a release without this code shows the text that comes with it.
    Failed,
    /// The peer no longer answers.
    Silent,
}

const ALL: [Closing; 8] = [
    Closing::Going,
    Closing::Duplicate,
    Closing::NoMember,
    Closing::DoesNotRead,
    Closing::Protocol,
    Closing::Dropped,
    Closing::Failed,
    Closing::Silent,
];

/// Maximum bytes of a close's text, both sent and read.
const TEXT_BYTES_MAX: usize = 128;

impl Closing {
    fn code(self) -> u32 {
        match self {
            Self::Going => 1,
            Self::Duplicate => 2,
            Self::NoMember => 3,
            Self::DoesNotRead => 4,
            Self::Protocol => 5,
            Self::Dropped => 6,
            Self::Failed => 7,
            Self::Silent => 8,
        }
    }

    /// Closes `connection` with this code. `text` is for the peer's operator.
    pub(super) fn close(self, connection: &Connection, text: &str) {
        close(connection, self.code(), text);
    }

    /// Returns the peer's close code, if it is one of these.
    pub(super) fn of(error: &ConnectionError) -> Option<Self> {
        let (code, _) = said(error)?;
        ALL.into_iter().find(|closing| closing.code() == code)
    }
}

/// Closes a refused connection.
///
/// Only a proved peer gets a text with the code: the address of the live server with its id.
pub(super) fn refuse(connection: &Connection, refused: &Refused) {
    let text = match &refused.why {
        RefusalReason::LiveTwice { first } => first.as_str(),
        _ => "",
    };
    close(connection, refused.close_code(), text);
}

fn close(connection: &Connection, code: u32, text: &str) {
    let bytes = text.as_bytes();
    connection.close(VarInt::from_u32(code), &bytes[..bytes.len().min(TEXT_BYTES_MAX)]);
}

/// Returns the code and the escaped text of a peer's close.
fn said(error: &ConnectionError) -> Option<(u32, String)> {
    let ConnectionError::ApplicationClosed(ApplicationClose { error_code, reason }) = error else { return None };
    let text = String::from_utf8_lossy(&reason[..reason.len().min(TEXT_BYTES_MAX)]);
    Some((u32::try_from(error_code.into_inner()).ok()?, text.escape_debug().collect()))
}

/// Returns the line about an attempt's end, if an identity was the cause. `who` names the peer.
pub(super) fn refusal_line(links: &Links, who: &str, error: &ConnectionError) -> Option<String> {
    match said(error) {
        Some((close_code::LIVE_TWICE, first)) if !first.is_empty() => Some(format!(
            "{who} knows another live server with this server's id or key, at {first}: stop one of the two"
        )),
        _ if Closing::of(error) == Some(Closing::NoMember) => {
            Some(format!("{who} does not have this server in its configuration: use the same file on every server"))
        }
        _ => links.gate.line_for(who, error),
    }
}

/// Returns whether the peer rejected the link itself. It may reject the next one too.
pub(super) fn is_unwanted(error: &ConnectionError) -> bool {
    match Closing::of(error) {
        Some(Closing::NoMember | Closing::DoesNotRead | Closing::Protocol | Closing::Dropped | Closing::Failed) => true,
        Some(Closing::Going | Closing::Duplicate | Closing::Silent) | None => false,
    }
}

/// Returns the line about the end of a link.
pub(super) fn line_of_end(peer: ServerId, remote: SocketAddr, error: &ConnectionError) -> String {
    format!("the link to server {} at {remote} ended: {}", peer.as_u8(), end_of_link(error))
}

/// Records why a proved peer closed a connection before it became a link.
///
/// The peer already counted it as the link: the dialler's `GO` was still in flight.
pub(super) fn keep_why(links: &Links, peer: ServerId, remote: SocketAddr, error: &ConnectionError) {
    if is_unwanted(error) {
        links.table.given_up(peer, line_of_end(peer, remote, error));
    }
}

/// Returns why a link ended, for the operator.
pub(super) fn end_of_link(error: &ConnectionError) -> String {
    let text = || said(error).map(|(_, text)| text).unwrap_or_default();
    match (Closing::of(error), error) {
        (Some(Closing::Going), _) => "it is stopping".to_owned(),
        (Some(Closing::Duplicate), _) => "it has another link to this server".to_owned(),
        (Some(Closing::NoMember), _) => "it does not have this server in its configuration".to_owned(),
        (Some(Closing::DoesNotRead), _) => "it reports that this server stopped reading".to_owned(),
        (Some(Closing::Protocol), _) => format!("it reports a protocol error: {}", text()),
        (Some(Closing::Dropped), _) => format!("it dropped the link: {}", text()),
        (Some(Closing::Failed), _) => format!("it reports a failure of its own: {}", text()),
        (Some(Closing::Silent), _) => "it reports that it heard nothing from this server".to_owned(),
        (None, ConnectionError::TimedOut) => "it did not answer in time".to_owned(),
        (None, ConnectionError::Reset) => "it no longer knows this link".to_owned(),
        (None, error) => error.to_string().escape_debug().collect(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::peer::links::link_tasks::End;

    fn closed_with(code: u32, reason: String) -> ConnectionError {
        ConnectionError::ApplicationClosed(ApplicationClose { error_code: code.into(), reason: reason.into() })
    }

    #[test]
    fn each_reason_has_a_code_of_its_own() {
        assert_eq!(ALL.map(Closing::code), [1, 2, 3, 4, 5, 6, 7, 8]);
        for closing in ALL {
            assert_eq!(Closing::of(&closed_with(closing.code(), String::new())), Some(closing));
        }
        assert_eq!(Closing::of(&closed_with(9, String::new())), None, "a code of a later release");
    }

    /// Regression: a task that panicked closed the link as if the peer had violated the protocol.
    #[test]
    fn failed_task_blames_its_own_server_and_not_the_peer() {
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        let failed = runtime.block_on(async { tokio::spawn(async { panic!("a bug") }).await.unwrap_err() });
        let End::Failed(what) = End::of_failure(&failed) else { panic!("the peer is blamed") };
        assert!(what.starts_with("a task of this server failed: ") && what.contains("a bug"), "{what}");
        let line = end_of_link(&closed_with(Closing::Failed.code(), what));
        assert!(line.starts_with("it reports a failure of its own: a task of this server failed"), "{line}");
    }
}
