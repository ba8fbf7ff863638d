//! Admission of peers: settings of the endpoint, and the checks that follow TLS.
//!
//! ```text
//! dialler   client_config(id) -> connect -> meet -> prove -> hello ->   <- hello -> judge
//! acceptor  server_config() -> accept -> meet ->   <- hello -> judge -> prove -> hello ->
//! ```
//! Until [`Gate::judge`] has admitted the dialler, the acceptor sends nothing, not even its id.

use super::ca::Authority;
use super::identity::Identity;
use super::pins::Pins;
use super::proof::{self, Exporter, PROOF_BYTES};
use super::public_key::PublicKey;
use super::refusal::{RefusalReason, Refused};
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

/// How a peer proves that it may link. Pinned keys ([`Pins`]) apply in every mode.
#[derive(Clone, Debug)]
pub enum Trust {
    /// The peer is on this machine. Every process that may open a socket here is admitted.
    Loopback,
    /// The peer knows the site key.
    Site(SiteKey),
    /// The peer's key is pinned to its id.
    Pinned,
    /// The peer has a certificate of the operator's authority that names it.
    Ca(Authority),
}

/// rustls rejected the settings, which no tested build does. Displayed as one line.
#[derive(Debug)]
pub struct TlsError(String);

impl fmt::Display for TlsError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "cannot set up TLS between servers: {}", self.0)
    }
}

impl std::error::Error for TlsError {}

/// This server's key, and its rules for admitting peers.
#[derive(Clone, Debug)]
pub struct Gate {
    identity: Identity,
    trust: Trust,
    pins: Pins,
}

/// The peer of a connection, before and after it has claimed an id.
#[derive(Clone)]
pub struct Guest {
    who: String,
    dialled: Option<ServerId>,
    /// The peer's side of the connection.
    side: Side,
    key: PublicKey,
    certificate: CertificateDer<'static>,
    exporter: Exporter,
}

impl Guest {
    /// Returns the peer's key. TLS has verified that the peer has the private half.
    pub fn key(&self) -> PublicKey {
        self.key
    }

    /// Returns a refusal of this peer. Pass `claimed` only after the peer has proved itself.
    pub fn refuse(&self, claimed: Option<ServerId>, why: RefusalReason) -> Refused {
        Refused { who: self.who.clone(), claimed, why, is_known: claimed.is_some() || self.dialled.is_some() }
    }

    /// Returns a refusal of a peer that did not prove its claim.
    fn refuse_claim(&self, claimed: ServerId, why: RefusalReason) -> Refused {
        Refused { is_known: self.dialled.is_some(), ..self.refuse(Some(claimed), why) }
    }
}

impl fmt::Debug for Guest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Guest({}, {})", self.who, self.key)
    }
}

impl Gate {
    /// Returns a gate with this key and these rules.
    pub fn new(identity: Identity, trust: Trust, pins: Pins) -> Self {
        Self { identity, trust, pins }
    }

    /// Returns the key by which other servers know and pin this one.
    pub fn public_key(&self) -> PublicKey {
        match &self.trust {
            Trust::Ca(authority) => authority.public_key(),
            Trust::Loopback | Trust::Site(_) | Trust::Pinned => self.identity.public_key(),
        }
    }

    /// Returns whether peers must prove that they know the site key.
    pub(super) fn asks_for_proof(&self) -> bool {
        matches!(self.trust, Trust::Site(_))
    }

    /// Returns whether this server shows a raw key instead of a certificate.
    pub(super) fn shows_raw_key(&self) -> bool {
        !matches!(self.trust, Trust::Ca(_))
    }

    /// Returns the endpoint's settings.
    ///
    /// With them, a restarted server resets the connections of its former process at once.
    pub fn endpoint_config(&self) -> EndpointConfig {
        self.identity.endpoint_config()
    }

    /// Returns the settings for accepting. The caller adds the transport settings.
    ///
    /// # Errors
    /// rustls rejected the settings, which no tested build does.
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

    /// Returns the settings for dialling `server`. The caller adds the transport settings.
    ///
    /// With raw keys, a peer that does not have the key pinned to `server` fails in the handshake,
    /// before this server shows its own key.
    ///
    /// # Errors
    /// rustls rejected the settings, which no tested build does.
    pub fn client_config(&self, server: ServerId) -> Result<quinn::ClientConfig, TlsError> {
        let tls = match &self.trust {
            Trust::Ca(authority) => authority.client_config(),
            Trust::Loopback | Trust::Site(_) => self.raw_client_config(server, true),
            Trust::Pinned => self.raw_client_config(server, false),
        };
        let tls = QuicClientConfig::try_from(tls.map_err(error)?).map_err(error)?;
        Ok(quinn::ClientConfig::new(Arc::new(tls)))
    }

    /// Returns the TLS name under which a server is dialled.
    ///
    /// It is never sent. A certificate must have it as a DNS name.
    pub fn server_name(server: ServerId) -> String {
        format!("server-{}.zoolet", server.as_u8())
    }

    /// Checks whether a peer at this address may be answered at all. Call it before any answer.
    ///
    /// # Errors
    /// [`RefusalReason::NotLoopback`]: only this machine is trusted, and the address is on another
    /// one.
    pub fn check_address(&self, address: SocketAddr) -> Result<(), Refused> {
        if matches!(self.trust, Trust::Loopback) && !address.ip().to_canonical().is_loopback() {
            return Err(Refused {
                who: address.to_string(),
                claimed: None,
                why: RefusalReason::NotLoopback,
                is_known: false,
            });
        }
        Ok(())
    }

    /// Identifies the peer of a connection whose handshake is complete.
    ///
    /// `who` names the peer for the operator. `dialled` is the server that was dialled, if any.
    ///
    /// # Errors
    /// The peer is refused before anything is sent to it:
    ///
    /// - [`RefusalReason::NotLoopback`]: see [`Gate::check_address`].
    /// - [`RefusalReason::NoKey`]: it shows no usable key.
    /// - [`RefusalReason::OwnKey`]: it shows this server's own key.
    pub fn meet(&self, connection: &Connection, who: &str, dialled: Option<ServerId>) -> Result<Guest, Refused> {
        self.check_address(connection.remote_address())?;
        let refused = |why| Refused { who: who.to_owned(), claimed: None, why, is_known: dialled.is_some() };
        let certificate = shown(connection).ok_or_else(|| refused(RefusalReason::NoKey))?;
        let key = match &self.trust {
            Trust::Ca(_) => Authority::key_of(&certificate),
            Trust::Loopback | Trust::Site(_) | Trust::Pinned => PublicKey::from_spki(&certificate),
        };
        let key = key.ok_or_else(|| refused(RefusalReason::NoKey))?;
        if key == self.public_key() {
            return Err(refused(RefusalReason::OwnKey));
        }
        let exporter = Exporter::of(connection).ok_or_else(|| refused(RefusalReason::NoKey))?;
        let side = if connection.side().is_client() { Side::Server } else { Side::Client };
        Ok(Guest { who: who.to_owned(), dialled, side, key, certificate, exporter })
    }

    /// Returns this server's proof for `guest`; `None` if no site key is used.
    ///
    /// `hello` is this server's first message without the proof.
    pub fn prove(&self, guest: &Guest, hello: &[u8]) -> Option<[u8; PROOF_BYTES]> {
        match &self.trust {
            Trust::Site(site_key) => Some(proof::prove(site_key, !guest.side, &guest.exporter, hello)),
            Trust::Loopback | Trust::Pinned | Trust::Ca(_) => None,
        }
    }

    /// Checks that the peer is the server `claimed`, and that it is admitted.
    ///
    /// `hello` is the peer's first message without the proof.
    ///
    /// # Errors
    /// The peer lacks the proof that [`Trust`] requires, its key contradicts a pin, or another
    /// server was dialled.
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
                Some(dialled) if dialled != claimed => Err(RefusalReason::AnswersForAnother { dialled }),
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
    ) -> Result<(), RefusalReason> {
        match &self.trust {
            // The address was checked when the connection was met.
            Trust::Loopback => Ok(()),
            Trust::Site(site_key) => match proof {
                None => Err(RefusalReason::NoProof),
                Some(proof) if proof::verify(site_key, guest.side, &guest.exporter, hello, proof) => Ok(()),
                Some(_) => Err(RefusalReason::WrongProof),
            },
            Trust::Pinned => match self.pins.admits(claimed, guest.key) {
                None => Err(RefusalReason::NoKeyPinned { shown: guest.key }),
                Some(_) => Ok(()),
            },
            Trust::Ca(_) if Authority::names(&guest.certificate, claimed) => Ok(()),
            Trust::Ca(_) => Err(RefusalReason::NotCertified),
        }
    }

    fn judge_pins(&self, guest: &Guest, claimed: ServerId) -> Result<(), RefusalReason> {
        match (self.pins.owner(guest.key), self.pins.admits(claimed, guest.key)) {
            (Some(owner), _) if owner != claimed => Err(RefusalReason::KeyOfAnother { owner }),
            (_, Some(false)) => Err(RefusalReason::AnotherKeyPinned { shown: guest.key }),
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

/// Returns the key or leaf certificate that the peer showed in the handshake.
fn shown(connection: &Connection) -> Option<CertificateDer<'static>> {
    let chain = connection.peer_identity()?.downcast::<Vec<CertificateDer<'static>>>().ok()?;
    chain.into_iter().next()
}

/// Monotonic clock for address tokens, which live 15 seconds.
///
/// It does not jump with the wall clock. It may misjudge the age of a former process's token. That
/// is harmless, because a token proves only that an address belongs to its sender.
struct SinceStart(Instant);

impl TimeSource for SinceStart {
    fn now(&self) -> SystemTime {
        SystemTime::UNIX_EPOCH + self.0.elapsed()
    }
}
