//! What a connection's end says about trust, for the operator of the side that can act.

use super::gate::Gate;
use super::refusal::close_code;
use quinn::{ConnectionError, TransportErrorCode};
use rustls::AlertDescription;

/// Codes that QUIC gives to TLS alerts: this, and the alert's number (RFC 9001 section 4.8).
const CRYPTO: u64 = 0x100;

impl Gate {
    /// The line about the end of a connection, or of an attempt at one, when trust ended it on either side; `None` for all other ends. `who` is what people
    /// call the other side.
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

    /// What follows the other side's name, when it closed the connection with one of the codes of [`Refused`](super::Refused).
    fn line_for_close(&self, code: u32) -> Option<String> {
        let own_key = self.public_key();
        Some(match code {
            close_code::PROOF if self.asks_for_proof() => {
                "has another site key: copy the site key of one server to all others".to_owned()
            }
            close_code::PROOF => "asks for its site key, and this server has none: copy it here".to_owned(),
            close_code::KEY => {
                format!("has not pinned this server's key to it: if it has a new disk, pin {own_key} there")
            }
            close_code::ADDRESS => {
                "takes no links from other machines: it needs a site key, the same as this one".to_owned()
            }
            close_code::SITE => {
                "is of another ensemble, for its site has another name: its address is wrong here, or `site` is in one of the two files".to_owned()
            }
            close_code::SERVER => {
                "says that one of the two is not the server that the other takes it for: an address is wrong on the side that dialled"
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

    /// TLS on the other side ended it. What it gives as a reason is not shown: anybody may answer at an address.
    fn refused_there(&self, code: TransportErrorCode) -> Option<String> {
        if code == TransportErrorCode::CONNECTION_REFUSED {
            return Some("takes no link from here now: it is ending, has too many, or is on loopback only".to_owned());
        }
        let own_key = self.public_key();
        Some(match alert(code)? {
            AlertDescription::NoApplicationProtocol => "is not a zoolet server of this protocol version".to_owned(),
            // What our verifiers say of a key that is not pinned.
            AlertDescription::HandshakeFailure if self.shows_raw_key() => {
                format!(
                    "does not know this server's key: pin {own_key} there, or, if it does not go by pinned keys, give both the same kind of trust"
                )
            }
            _ => {
                "refuses this server's key: both need the same kind of trust (site key, pinned keys, or CA)".to_owned()
            }
        })
    }
}

/// TLS on this side ended it.
fn refused_here(code: TransportErrorCode, reason: &str) -> Option<String> {
    let alert = alert(code)?;
    // How rustls shows an error that a verifier of ours returned, which is written for operators.
    if let Some(ours) = reason.strip_prefix("other error: ") {
        return Some(ours.to_owned());
    }
    Some(match alert {
        AlertDescription::NoApplicationProtocol => "is not a zoolet server of this protocol version".to_owned(),
        AlertDescription::DecryptError => {
            "shows a key whose other half it does not have: it is not that server".to_owned()
        }
        _ => format!(
            "shows no key or certificate that is good here ({}): both sides need the same kind of trust (site key, pinned keys, or CA)",
            reason.escape_debug()
        ),
    })
}

fn alert(code: TransportErrorCode) -> Option<AlertDescription> {
    u8::try_from(u64::from(code).checked_sub(CRYPTO)?).ok().map(AlertDescription::from)
}
