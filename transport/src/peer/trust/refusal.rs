//! Reasons to refuse a link, as operator lines and close codes.

use super::public_key::PublicKey;
use std::fmt;
use zoolet_model::ServerId;

/// Why a peer is refused.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum RefusalReason {
    /// Trust is [`Trust::Loopback`](super::Trust::Loopback), and the peer is on another machine.
    NotLoopback,
    /// The peer shows no proof of the site key.
    NoProof,
    /// The peer's proof is for another site key or another connection.
    WrongProof,
    /// The peer claims to be a server to which another key is pinned.
    AnotherKeyPinned {
        /// The peer's key.
        shown: PublicKey,
    },
    /// The peer's key is pinned to another server.
    KeyOfAnother {
        /// That server.
        owner: ServerId,
    },
    /// Only pinned keys are accepted, and the claimed server has none.
    NoKeyPinned {
        /// The peer's key.
        shown: PublicKey,
    },
    /// The peer's certificate does not name the claimed server.
    NotCertified,
    /// The peer has this server's own key.
    OwnKey,
    /// The peer showed no usable key.
    NoKey,
    /// The peer proved its identity but belongs to another site.
    AnotherSite {
        /// The peer's site, or empty.
        site: String,
        /// This server's site, or empty.
        own: String,
    },
    /// The peer was dialled as another server.
    AnswersForAnother {
        /// The server that was dialled.
        dialled: ServerId,
    },
    /// The peer dialled another server and reached this one.
    AsksForAnother {
        /// The server that the peer wanted.
        wanted: ServerId,
    },
    /// The peer claims to be this server.
    OwnId,
    /// Two live servers have the same id or key.
    LiveTwice {
        /// Address of the server that was linked first.
        first: String,
    },
    /// The peer's first message is not a Hello that this release understands.
    NotUnderstood,
}

/// A refused link.
///
/// Displayed as one line for the operator: the peer, the reason and the remedy.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Refused {
    /// The peer: the address it connected from, or the name that was dialled.
    pub who: String,
    /// The server that the peer claims to be, if it got that far.
    pub claimed: Option<ServerId>,
    /// The reason.
    pub why: RefusalReason,
    /// Whether the peer proved itself, or was dialled at a known address.
    ///
    /// For any other peer, the line states only what the peer did. A remedy could be just what an
    /// attacker wants the operator to do.
    pub is_known: bool,
}

impl Refused {
    /// Returns the close code for the peer. It reveals no more than a stranger may know.
    pub fn close_code(&self) -> u32 {
        self.why.close_code()
    }
}

impl fmt::Display for Refused {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (self.claimed, self.why.unproved()) {
            (Some(claimed), Some(lacks)) if !self.is_known => {
                write!(f, "{} claims to be server {} and is refused: {lacks}", self.who, claimed.as_u8())
            }
            (Some(claimed), _) => write!(f, "{} (server {}) {}", self.who, claimed.as_u8(), self.why),
            (None, _) => write!(f, "{} {}", self.who, self.why),
        }
    }
}

impl std::error::Error for Refused {}

/// Displays the text that follows the refused peer's name.
impl fmt::Display for RefusalReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NotLoopback => f.write_str(
                "is on another machine, but without a site key this server accepts loopback only: make a key with `zoolet keygen` and copy it to all servers",
            ),
            Self::NoProof => f.write_str("shows no proof of the site key: copy this server's site key to it"),
            Self::WrongProof => f.write_str("has another site key: copy the site key of one server to all others"),
            Self::AnotherKeyPinned { shown } => write!(
                f,
                "has key {shown}, but another key is pinned to that server here: if that server has a new disk or a new server.key, pin the new key; otherwise it is an impostor"
            ),
            Self::KeyOfAnother { owner } => {
                write!(f, "has the key that is pinned to server {} here: one of the two ids is wrong", owner.as_u8())
            }
            Self::NoKeyPinned { shown } => {
                write!(f, "has key {shown}, but no key is pinned to that server here: if the server is yours, pin this key")
            }
            Self::NotCertified => f.write_str("has a certificate that does not name that server"),
            Self::OwnKey => f.write_str(
                "has this server's own key: the address leads back here, or a copy of this server's data directory runs there",
            ),
            Self::NoKey => f.write_str("shows no key of a zoolet server"),
            Self::AnotherSite { site, own } => write!(
                f,
                "belongs to another ensemble (its site is {}, this server's is {}): correct its address here, or `site` in one of the two files",
                site_name(site),
                site_name(own)
            ),
            Self::AnswersForAnother { dialled } => {
                write!(f, "answers at the address of server {}: one of the two addresses is wrong", dialled.as_u8())
            }
            Self::AsksForAnother { wanted } => {
                write!(f, "dialled this server as server {}: one of the two addresses is wrong there", wanted.as_u8())
            }
            Self::OwnId => f.write_str(
                "claims this server's id: if its id is wrong, change it there; if it is a copy of this server, stop it",
            ),
            Self::LiveTwice { first } => {
                write!(f, "is refused, because a server with this id or key is live at {first}: stop one of the two")
            }
            Self::NotUnderstood => f.write_str("sent no Hello that this release understands"),
        }
    }
}

fn site_name(site: &str) -> String {
    if site.is_empty() { "unnamed".to_owned() } else { format!("{site:?}") }
}

/// Codes with which a server refuses a peer.
///
/// Releases exchange them, so a number never changes its meaning.
pub mod close_code {
    /// The peer must prove that it knows the site key.
    pub const PROOF: u32 = 0x20;
    /// The peer's key is not the one known for its server.
    pub const KEY: u32 = 0x21;
    /// Links from the peer's address are not accepted.
    pub const ADDRESS: u32 = 0x22;
    /// The two servers belong to different sites.
    pub const SITE: u32 = 0x23;
    /// One of the two is not the server that the other expects.
    pub const SERVER: u32 = 0x24;
    /// Another live server has the peer's id or key.
    pub const LIVE_TWICE: u32 = 0x25;
    /// The peer has the sender's own key.
    pub const OWN_KEY: u32 = 0x26;
    /// The peer's first message was not understood.
    pub const NOT_UNDERSTOOD: u32 = 0x27;
}

impl RefusalReason {
    /// Returns the missing proof, for the reasons that mean a claim is unproved.
    fn unproved(&self) -> Option<&'static str> {
        match self {
            Self::NoProof => Some("it shows no proof of the site key"),
            Self::WrongProof => Some("its proof is for another site key"),
            Self::NoKeyPinned { .. } => Some("its key is not pinned to that server here"),
            Self::NotCertified => Some("its certificate does not name that server"),
            Self::NotLoopback
            | Self::AnotherKeyPinned { .. }
            | Self::KeyOfAnother { .. }
            | Self::OwnKey
            | Self::OwnId
            | Self::NoKey
            | Self::AnotherSite { .. }
            | Self::AnswersForAnother { .. }
            | Self::AsksForAnother { .. }
            | Self::LiveTwice { .. }
            | Self::NotUnderstood => None,
        }
    }

    fn close_code(&self) -> u32 {
        match self {
            Self::NotLoopback => close_code::ADDRESS,
            // One code for both: a stranger must not learn how close its proof was.
            Self::NoProof | Self::WrongProof => close_code::PROOF,
            Self::AnotherKeyPinned { .. }
            | Self::KeyOfAnother { .. }
            | Self::NoKeyPinned { .. }
            | Self::NotCertified
            | Self::NoKey => close_code::KEY,
            Self::OwnKey => close_code::OWN_KEY,
            Self::AnotherSite { .. } => close_code::SITE,
            Self::AnswersForAnother { .. } | Self::AsksForAnother { .. } => close_code::SERVER,
            // For the peer it is the same: another server has its id.
            Self::OwnId | Self::LiveTwice { .. } => close_code::LIVE_TWICE,
            Self::NotUnderstood => close_code::NOT_UNDERSTOOD,
        }
    }
}
