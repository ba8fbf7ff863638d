//! Why a link is not taken: one line for the operator of the side that can act, and a number for the other side.

use super::public_key::PublicKey;
use std::fmt;
use zoolet_model::ServerId;

/// Why somebody is not let in.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Why {
    /// Trust is [`Trust::Loopback`](super::Trust::Loopback), and it is on another machine.
    NotLoopback,
    /// It shows no proof of the site key.
    NoProof,
    /// Its proof is of another site key, or of another connection.
    WrongProof,
    /// It says that it is a server to which another key is pinned.
    AnotherKeyPinned {
        /// What it showed.
        shown: PublicKey,
    },
    /// Its key is pinned to another server.
    KeyOfAnother {
        /// To which.
        owner: ServerId,
    },
    /// Only pinned keys are let in, and the server that it says it is has none.
    NoKeyPinned {
        /// What it showed.
        shown: PublicKey,
    },
    /// Its certificate is not that of the server that it says it is.
    NotCertified,
    /// It has this server's own key.
    OwnKey,
    /// It showed no key that could be judged.
    NoKey,
    /// It proved who it is, and is of another site.
    AnotherSite {
        /// Its site, empty without one.
        site: String,
        /// This server's, likewise.
        own: String,
    },
    /// It was dialled as another server.
    AnswersForAnother {
        /// As which.
        dialled: ServerId,
    },
    /// It dialled another server and came here.
    AsksForAnother {
        /// Which.
        wanted: ServerId,
    },
    /// It says that it is this server.
    OwnId,
    /// Two live servers have one id.
    LiveTwice {
        /// Where the one is that came first.
        first: String,
    },
    /// What it said first is no Hello of a release that this one can speak to.
    NotUnderstood,
}

/// A link that is not taken. Its Display is one line for the operator: who, why, and what helps.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Refused {
    /// Who it is: the address that it came from, or the name that was dialled.
    pub who: String,
    /// Which server it says it is, when it came to say so.
    pub claimed: Option<ServerId>,
    /// Why.
    pub why: Why,
    /// Whether it has proved itself, or this server dialled it where its operator said. For other
    /// peers the line states only what they did: a remedy could be what an attacker wants the
    /// operator to do.
    pub is_known: bool,
}

impl Refused {
    /// For the other side, as the code of the connection's close. It says no more than a stranger may know.
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

/// What follows the name of who is refused.
impl fmt::Display for Why {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NotLoopback => f.write_str(
                "is on another machine, and without a site key only servers on loopback are let in: make one with `zoolet keygen` and copy it to all servers",
            ),
            Self::NoProof => f.write_str("shows no proof of the site key: copy this server's site key to it"),
            Self::WrongProof => f.write_str("has another site key: copy the site key of one server to all others"),
            Self::AnotherKeyPinned { shown } => write!(
                f,
                "has key {shown}, and another key is pinned to that server here: if it has a new disk, pin the new key; if not, somebody else took its place"
            ),
            Self::KeyOfAnother { owner } => {
                write!(f, "has the key that is pinned to server {} here: one of the two ids is wrong", owner.as_u8())
            }
            Self::NoKeyPinned { shown } => {
                write!(f, "has key {shown}, and no key is pinned to that server here: if it is yours, pin this one")
            }
            Self::NotCertified => f.write_str("has a certificate that does not name that server"),
            Self::OwnKey => f.write_str(
                "has this server's own key: the address leads back here, or a copy of this server's data directory runs there",
            ),
            Self::NoKey => f.write_str("shows no key of a zoolet server"),
            Self::AnotherSite { site, own } => write!(
                f,
                "is of another ensemble, its site being {} and this server's {}: its address is wrong here, or `site` is in one of the two files",
                site_name(site),
                site_name(own)
            ),
            Self::AnswersForAnother { dialled } => {
                write!(f, "answers at the address of server {}: one of the two addresses is wrong", dialled.as_u8())
            }
            Self::AsksForAnother { wanted } => {
                write!(f, "takes this server for server {}: one of the two addresses is wrong there", wanted.as_u8())
            }
            Self::OwnId => f.write_str(
                "says that it is this server: if its id is wrong, change it there; if it is a copy of this server, stop it",
            ),
            Self::LiveTwice { first } => {
                write!(f, "is refused, because a server with this id or key is live at {first}: stop one of the two")
            }
            Self::NotUnderstood => f.write_str("says nothing that this release understands"),
        }
    }
}

fn site_name(site: &str) -> String {
    if site.is_empty() { "without a name".to_owned() } else { format!("{site:?}") }
}

/// Codes of closes. They are spoken between releases: a number keeps its meaning for ever.
pub mod close_code {
    /// Prove that you have the site key.
    pub const PROOF: u32 = 0x20;
    /// Your key is not the one I know of that server.
    pub const KEY: u32 = 0x21;
    /// I take no links from where you are.
    pub const ADDRESS: u32 = 0x22;
    /// We are of different sites.
    pub const SITE: u32 = 0x23;
    /// One of us is not the server that the other one takes it for.
    pub const SERVER: u32 = 0x24;
    /// There is a live server with your id or key.
    pub const LIVE_TWICE: u32 = 0x25;
    /// You have my own key.
    pub const OWN_KEY: u32 = 0x26;
    /// I do not understand you.
    pub const NOT_UNDERSTOOD: u32 = 0x27;
}

impl Why {
    /// The proof that is lacking, of reasons that mean that there is none.
    fn unproved(&self) -> Option<&'static str> {
        match self {
            Self::NoProof => Some("it shows no proof of the site key"),
            Self::WrongProof => Some("its proof is not of this site's key"),
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
            // One for both: whether a proof was nearly right is nobody's business.
            Self::NoProof | Self::WrongProof => close_code::PROOF,
            Self::AnotherKeyPinned { .. }
            | Self::KeyOfAnother { .. }
            | Self::NoKeyPinned { .. }
            | Self::NotCertified
            | Self::NoKey => close_code::KEY,
            Self::OwnKey => close_code::OWN_KEY,
            Self::AnotherSite { .. } => close_code::SITE,
            Self::AnswersForAnother { .. } | Self::AsksForAnother { .. } => close_code::SERVER,
            // For the other side it is the same: somebody has its id.
            Self::OwnId | Self::LiveTwice { .. } => close_code::LIVE_TWICE,
            Self::NotUnderstood => close_code::NOT_UNDERSTOOD,
        }
    }
}
