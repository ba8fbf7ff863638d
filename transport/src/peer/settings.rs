//! What the links need to know before they begin.

use super::codec;
use super::links::LANES;
use super::trust::{Identity, PublicKey, Trust};
use std::net::SocketAddr;
use std::path::PathBuf;
use zoolet_engine::Limits;
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

/// Bytes that may wait for one lane of one peer, of a server with these limits. All that the machine has under way to its peers at a time is half of
/// `outstanding_bytes_max` and one message for each; when a learner begins anew, what was said before may still wait.
pub fn lane_bytes_max(limits: &Limits) -> usize {
    (limits.outstanding_bytes_max as usize).saturating_add(codec::frame_bytes_max(limits)).saturating_mul(2)
}

/// Bytes that may wait for so many peers, of a server with these limits.
pub fn link_bytes_max(limits: &Limits, peers: usize) -> u64 {
    (peers * LANES) as u64 * lane_bytes_max(limits) as u64
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
    /// Bytes that may wait for one lane of one peer, as [`super::lane_bytes_max`] has them of the servers' limits. With more its link is closed.
    pub lane_bytes_max: usize,
    /// What all snapshots that are being sent take together, bytes in a second.
    pub bulk_bytes_per_second: u64,
    /// The site: servers of another one are refused.
    pub site: String,
}
