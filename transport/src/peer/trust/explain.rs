//! Explains to the operator why a connection ended, if trust was the cause.

use super::gate::Gate;
use super::refusal::close_code;
use quinn::{ConnectionError, TransportErrorCode};
use rustls::AlertDescription;

/// QUIC error code of TLS alert 0; other alerts follow (RFC 9001 section 4.8).
const CRYPTO: u64 = 0x100;

impl Gate {
    /// Returns a line about a connection or attempt that trust ended.
    ///
    /// Either side may have ended it. `None` for all other causes. `who` names the peer.
    pub fn line_for(&self, who: &str, end: &ConnectionError) -> Option<String> {
        let what = match end {
            ConnectionError::TransportError(error) => refused_here(error.code, &error.reason),
            ConnectionError::ConnectionClosed(close) => self.refused_there(close.error_code),
            ConnectionError::ApplicationClosed(close) => {
                u32::try_from(close.error_code.into_inner()).ok().and_then(|code| self.line_for_close(code))
            }
            ConnectionError::VersionMismatch => Some("speaks another version of QUIC".to_owned()),
            ConnectionError::Reset
            | ConnectionError::TimedOut
            | ConnectionError::LocallyClosed
            | ConnectionError::CidsExhausted => None,
        };
        what.map(|what| format!("{who} {what}"))
    }

    /// Explains a close code of [`Refused`](super::Refused). The text follows the peer's name.
    fn line_for_close(&self, code: u32) -> Option<String> {
        let own_key = self.public_key();
        Some(match code {
            close_code::PROOF if self.asks_for_proof() => {
                "has another site key: copy the site key of one server to all others".to_owned()
            }
            close_code::PROOF => "requires its site key, which this server lacks: copy it here".to_owned(),
            close_code::KEY => {
                format!("has not pinned this server's key to this server's id: if this server has a new disk, pin {own_key} there")
            }
            close_code::ADDRESS => {
                "accepts no links from other machines: it needs the same site key as this server".to_owned()
            }
            close_code::SITE => {
                "belongs to another ensemble, because its site differs: correct its address here, or `site` in one of the two files".to_owned()
            }
            close_code::SERVER => {
                "reports that an address leads to the wrong server: correct the address on the side that dialled"
                    .to_owned()
            }
            close_code::LIVE_TWICE => {
                "knows another live server with this server's id or key: stop one of the two".to_owned()
            }
            close_code::OWN_KEY => {
                "has this server's own key: the address leads back here, or one of the two data directories is a copy"
                    .to_owned()
            }
            close_code::NOT_UNDERSTOOD => "does not understand this release".to_owned(),
            _ => return None,
        })
    }

    /// Explains a close by the peer's TLS.
    ///
    /// The reason that the peer gives is not shown, because anyone may answer at an address.
    fn refused_there(&self, code: TransportErrorCode) -> Option<String> {
        if code == TransportErrorCode::CONNECTION_REFUSED {
            return Some("refuses connections now: it is stopping, has too many, or accepts loopback only".to_owned());
        }
        let own_key = self.public_key();
        Some(match alert(code)? {
            AlertDescription::NoApplicationProtocol => "is not a zoolet server of this protocol version".to_owned(),
            // This project's verifiers fail like this for a key that is not pinned.
            AlertDescription::HandshakeFailure if self.shows_raw_key() => {
                format!(
                    "does not know this server's key: pin {own_key} there, or, if it does not use pinned keys, give both servers the same kind of trust"
                )
            }
            _ => "refuses this server's key: both servers need the same kind of trust (site key, pinned keys, or CA)"
                .to_owned(),
        })
    }
}

/// Explains a close by this server's TLS.
fn refused_here(code: TransportErrorCode, reason: &str) -> Option<String> {
    let alert = alert(code)?;
    // rustls adds this prefix to an error of this project's verifiers, whose text is for the
    // operator.
    if let Some(ours) = reason.strip_prefix("other error: ") {
        return Some(ours.to_owned());
    }
    Some(match alert {
        AlertDescription::NoApplicationProtocol => "is not a zoolet server of this protocol version".to_owned(),
        AlertDescription::DecryptError => {
            "cannot prove that it holds the private key: it is not that server".to_owned()
        }
        _ => format!(
            "shows no key or certificate that this server accepts ({}): both servers need the same kind of trust (site key, pinned keys, or CA)",
            reason.escape_debug()
        ),
    })
}

fn alert(code: TransportErrorCode) -> Option<AlertDescription> {
    u8::try_from(u64::from(code).checked_sub(CRYPTO)?).ok().map(AlertDescription::from)
}
