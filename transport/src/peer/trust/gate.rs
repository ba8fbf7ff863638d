//! Who is let in: settings for the endpoint, and the judgement of those who came through TLS.
//!
//! ```text
//! dialler   client_config(id) -> connect -> meet -> prove -> first word ->            <- acceptor's first word -> judge
//! acceptor  server_config() -> accept -> meet ->            <- first word -> judge -> prove -> own first word ->
//! ```
//! The acceptor says nothing, not even which server it is, before [`Gate::judge`] let the dialler in.

use super::ca::Authority;
use super::identity::Identity;
use super::pins::Pins;
use super::proof::{self, Exporter, PROOF_BYTES};
use super::public_key::PublicKey;
use super::refusal::{Refused, Why};
use super::site_key::SiteKey;
use super::tls::{self, Admitted, RawKeys};
use quinn::crypto::rustls::{QuicClientConfig, QuicServerConfig};
use quinn::{Connection, EndpointConfig, Side, TimeSource};
use rustls::client::AlwaysResolvesClientRawPublicKeys;
use rustls::pki_types::CertificateDer;
use rustls::server::AlwaysResolvesServerRawPublicKeys;
use std::fmt;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::{Instant, SystemTime};
use zoolet_model::ServerId;

/// What lets a server in. Pinned keys ([`Pins`]) hold under each of them.
#[derive(Clone, Debug)]
pub enum Trust {
    /// Being on this machine. Whoever may open a socket here is let in.
    Loopback,
    /// Having the site key.
    Site(SiteKey),
    /// A key that is pinned to the server, and nothing else.
    Pinned,
    /// A certificate of the operator's authority that names the server.
    Ca(Authority),
}

/// TLS does not take these settings: not in a build that was tested. Its Display is one line.
#[derive(Debug)]
pub struct TlsError(String);

impl fmt::Display for TlsError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "TLS between servers cannot be set up: {}", self.0)
    }
}

impl std::error::Error for TlsError {}

/// This server's key, and whom it lets in.
#[derive(Clone, Debug)]
pub struct Gate {
    identity: Identity,
    trust: Trust,
    pins: Pins,
}

/// Somebody on the other end of a connection, before and after it said who it is.
#[derive(Clone)]
pub struct Guest {
    who: String,
    dialled: Option<ServerId>,
    /// Which side of the connection it is.
    side: Side,
    key: PublicKey,
    certificate: CertificateDer<'static>,
    exporter: Exporter,
}

impl Guest {
    /// Its key: TLS has verified that it has the private half.
    pub fn key(&self) -> PublicKey {
        self.key
    }

    /// The refusal of this guest, which has proved itself if it came to claim a server.
    pub fn refuse(&self, claimed: Option<ServerId>, why: Why) -> Refused {
        Refused { who: self.who.clone(), claimed, why, is_known: claimed.is_some() || self.dialled.is_some() }
    }

    /// The refusal of this guest, whose proof of being the server that it claims to be is lacking.
    fn refuse_claim(&self, claimed: ServerId, why: Why) -> Refused {
        Refused { is_known: self.dialled.is_some(), ..self.refuse(Some(claimed), why) }
    }
}

impl fmt::Debug for Guest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Guest({}, {})", self.who, self.key)
    }
}

impl Gate {
    /// See [`Trust`] and [`Pins`].
    pub fn new(identity: Identity, trust: Trust, pins: Pins) -> Self {
        Self { identity, trust, pins }
    }

    /// What others know this server by: what they pin.
    pub fn public_key(&self) -> PublicKey {
        match &self.trust {
            Trust::Ca(authority) => authority.public_key(),
            Trust::Loopback | Trust::Site(_) | Trust::Pinned => self.identity.public_key(),
        }
    }

    /// Whether a site key is asked for.
    pub(super) fn asks_for_proof(&self) -> bool {
        matches!(self.trust, Trust::Site(_))
    }

    /// Whether it shows its key itself, and not a certificate.
    pub(super) fn shows_raw_key(&self) -> bool {
        !matches!(self.trust, Trust::Ca(_))
    }

    /// For the endpoint: whoever speaks to the process before this one is told at once that it is gone.
    pub fn endpoint_config(&self) -> EndpointConfig {
        self.identity.endpoint_config()
    }

    /// For the endpoint; the transport's settings are the caller's.
    ///
    /// # Errors
    /// Never in a build that was tested.
    pub fn server_config(&self) -> Result<quinn::ServerConfig, TlsError> {
        let tls = match &self.trust {
            Trust::Ca(authority) => authority.server_config(),
            Trust::Loopback | Trust::Site(_) => self.raw_server_config(Admitted::Any),
            Trust::Pinned => self.raw_server_config(Admitted::Pinned(self.pins.clone())),
        };
        let tls = QuicServerConfig::try_from(tls.map_err(error)?).map_err(error)?;
        let mut config = quinn::ServerConfig::new(Arc::new(tls), Arc::new(self.identity.token_key()));
        config.time_source(Arc::new(SinceStart(Instant::now())));
        Ok(config)
    }

    /// For dialling this server; the transport's settings are the caller's. A key that is pinned to another is refused inside the handshake, before this
    /// server shows its own.
    ///
    /// # Errors
    /// Never in a build that was tested.
    pub fn client_config(&self, server: ServerId) -> Result<quinn::ClientConfig, TlsError> {
        let tls = match &self.trust {
            Trust::Ca(authority) => authority.client_config(),
            Trust::Loopback | Trust::Site(_) => self.raw_client_config(server, true),
            Trust::Pinned => self.raw_client_config(server, false),
        };
        let tls = QuicClientConfig::try_from(tls.map_err(error)?).map_err(error)?;
        Ok(quinn::ClientConfig::new(Arc::new(tls)))
    }

    /// The name to dial a server by, which is never sent. A certificate must have it as a DNS name.
    pub fn server_name(server: ServerId) -> String {
        format!("server-{}.zoolet", server.as_u8())
    }

    /// Whether somebody at this address is heard at all: asked before any byte is answered.
    ///
    /// # Errors
    /// One line for the operator.
    pub fn check_address(&self, address: SocketAddr) -> Result<(), Refused> {
        if matches!(self.trust, Trust::Loopback) && !address.ip().to_canonical().is_loopback() {
            return Err(Refused { who: address.to_string(), claimed: None, why: Why::NotLoopback, is_known: false });
        }
        Ok(())
    }

    /// Whom this connection, whose handshake is complete, leads to. `who` is what people call it, `dialled` the server that was dialled.
    ///
    /// # Errors
    /// It is refused whatever it will say. Nothing was said to it yet.
    pub fn meet(&self, connection: &Connection, who: &str, dialled: Option<ServerId>) -> Result<Guest, Refused> {
        self.check_address(connection.remote_address())?;
        let refused = |why| Refused { who: who.to_owned(), claimed: None, why, is_known: dialled.is_some() };
        let certificate = shown(connection).ok_or_else(|| refused(Why::NoKey))?;
        let key = match &self.trust {
            Trust::Ca(_) => Authority::key_of(&certificate),
            Trust::Loopback | Trust::Site(_) | Trust::Pinned => PublicKey::from_spki(&certificate),
        };
        let key = key.ok_or_else(|| refused(Why::NoKey))?;
        if key == self.public_key() {
            return Err(refused(Why::OwnKey));
        }
        let exporter = Exporter::of(connection).ok_or_else(|| refused(Why::NoKey))?;
        let side = if connection.side().is_client() { Side::Server } else { Side::Client };
        Ok(Guest { who: who.to_owned(), dialled, side, key, certificate, exporter })
    }

    /// This server's proof to that guest, for its own first word without the proof itself; `None` when none is asked for.
    pub fn prove(&self, guest: &Guest, hello: &[u8]) -> Option<[u8; PROOF_BYTES]> {
        match &self.trust {
            Trust::Site(site_key) => Some(proof::prove(site_key, !guest.side, &guest.exporter, hello)),
            Trust::Loopback | Trust::Pinned | Trust::Ca(_) => None,
        }
    }

    /// Whether the guest is the server that it says it is and is let in. `hello` is its first word without the proof.
    ///
    /// # Errors
    /// It is not.
    pub fn judge(
        &self,
        guest: &Guest,
        claimed: ServerId,
        hello: &[u8],
        proof: Option<&[u8; PROOF_BYTES]>,
    ) -> Result<(), Refused> {
        self.judge_trust(guest, claimed, hello, proof).map_err(|why| guest.refuse_claim(claimed, why))?;
        self.judge_pins(guest, claimed)
            .and_then(|()| match guest.dialled {
                Some(dialled) if dialled != claimed => Err(Why::AnswersForAnother { dialled }),
                _ => Ok(()),
            })
            .map_err(|why| guest.refuse(Some(claimed), why))
    }

    fn judge_trust(
        &self,
        guest: &Guest,
        claimed: ServerId,
        hello: &[u8],
        proof: Option<&[u8; PROOF_BYTES]>,
    ) -> Result<(), Why> {
        match &self.trust {
            // The address was judged when the guest was met.
            Trust::Loopback => Ok(()),
            Trust::Site(site_key) => match proof {
                None => Err(Why::NoProof),
                Some(proof) if proof::verify(site_key, guest.side, &guest.exporter, hello, proof) => Ok(()),
                Some(_) => Err(Why::WrongProof),
            },
            Trust::Pinned => match self.pins.admits(claimed, guest.key) {
                None => Err(Why::NoKeyPinned { shown: guest.key }),
                Some(_) => Ok(()),
            },
            Trust::Ca(_) if Authority::names(&guest.certificate, claimed) => Ok(()),
            Trust::Ca(_) => Err(Why::NotCertified),
        }
    }

    fn judge_pins(&self, guest: &Guest, claimed: ServerId) -> Result<(), Why> {
        match (self.pins.owner(guest.key), self.pins.admits(claimed, guest.key)) {
            (Some(owner), _) if owner != claimed => Err(Why::KeyOfAnother { owner }),
            (_, Some(false)) => Err(Why::AnotherKeyPinned { shown: guest.key }),
            (_, Some(true) | None) => Ok(()),
        }
    }

    fn raw_server_config(&self, admitted: Admitted) -> Result<rustls::ServerConfig, rustls::Error> {
        let shown = AlwaysResolvesServerRawPublicKeys::new(self.identity.certified());
        tls::server_config(Arc::new(RawKeys { provider: tls::provider(), admitted }), Arc::new(shown))
    }

    fn raw_client_config(&self, server: ServerId, or_any: bool) -> Result<rustls::ClientConfig, rustls::Error> {
        let admitted = Admitted::PinnedTo { server, pins: self.pins.clone(), or_any };
        let shown = AlwaysResolvesClientRawPublicKeys::new(self.identity.certified());
        tls::client_config(Arc::new(RawKeys { provider: tls::provider(), admitted }), Arc::new(shown))
    }
}

fn error(error: impl fmt::Display) -> TlsError {
    TlsError(error.to_string())
}

/// What the other side showed in the handshake: its key, or its certificate before those of its issuers.
fn shown(connection: &Connection) -> Option<CertificateDer<'static>> {
    let chain = connection.peer_identity()?.downcast::<Vec<CertificateDer<'static>>>().ok()?;
    chain.into_iter().next()
}

/// A clock for tokens that live 15 seconds: it does not jump with the machine's. What it makes of a token of the process before does not matter, for all that
/// a token says is that an address is its owner's.
struct SinceStart(Instant);

impl TimeSource for SinceStart {
    fn now(&self) -> SystemTime {
        SystemTime::UNIX_EPOCH + self.0.elapsed()
    }
}
