//! What the links need to know before they begin.

use super::trust::{Identity, PublicKey, Trust};
use std::net::SocketAddr;
use std::path::PathBuf;
use zoolet_engine::peer::Incarnation;
use zoolet_model::ServerId;

/// A server of the ensemble, as configured.
#[derive(Clone, Debug)]
pub struct PeerMember {
    /// Its id.
    pub id: ServerId,
    /// Where it is dialled, "host:port" each (an IPv6 address in brackets), tried in order. A name is resolved anew each time.
    pub addresses: Vec<String>,
    /// The key that it must have; `None` leaves that to [`PeerSettings::trust`].
    pub key: Option<PublicKey>,
}

/// How one server is linked to the others.
#[derive(Debug)]
pub struct PeerSettings {
    /// This server.
    pub id: ServerId,
    /// This life of its disk.
    pub disk: Incarnation,
    /// This process: a random number, another at each start.
    pub process: u64,
    /// The UDP address that others dial.
    pub listen: SocketAddr,
    /// All servers of the ensemble. The addresses of this one are what it tells the others of itself.
    pub members: Vec<PeerMember>,
    /// Who is let in.
    pub trust: Trust,
    /// This server's key.
    pub identity: Identity,
    /// The file that keeps addresses which were learned, for the day when the configured ones lead nowhere; `None` keeps none.
    pub hints: Option<PathBuf>,
    /// Bytes of one message at most, as [`super::codec::frame_bytes_max`] has them of the servers' limits: not what a client may send at most.
    pub frame_bytes_max: usize,
    /// What all snapshots that are being sent take together, bytes in a second.
    pub bulk_bytes_per_second: u64,
    /// The site: servers of another one are refused.
    pub site: String,
}
