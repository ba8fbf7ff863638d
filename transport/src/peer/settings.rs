//! Configuration of the links.

use super::codec;
use super::links::LANES;
use super::trust::{Identity, PublicKey, Trust};
use std::net::SocketAddr;
use std::path::PathBuf;
use zoolet_machine::Limits;
use zoolet_machine::seam::peer::Incarnation;
use zoolet_model::ServerId;

/// A configured server of the ensemble.
#[derive(Clone, Debug)]
pub struct PeerMember {
    /// The server's id.
    pub id: ServerId,
    /// Addresses to dial, in order, each as "host:port". An IPv6 address is in brackets. Names are
    /// resolved again for each attempt.
    pub addresses: Vec<String>,
    /// The key that the server must have; `None` leaves the decision to [`PeerSettings::trust`].
    pub key: Option<PublicKey>,
}

/// Smallest window of a link: one stream moves 34 MB/s over 10 ms.
const WINDOW_BYTES_MIN: u32 = 1 << 20;
/// Largest window of a link: one stream moves 100 MB/s over 40 ms.
const WINDOW_BYTES_MAX: u32 = 12 << 20;

/// Returns the bytes that may wait for one lane of one peer.
///
/// A leader has at most half of `outstanding_bytes_max` and one message per learner in flight to
/// its learners. The factor of two covers a learner that starts again while earlier messages still
/// wait.
///
/// A learner's forwarded writes have a separate bound: 2 MiB and one entry. That is below this
/// limit in every profile. It exceeds this limit only if `outstanding_bytes_max` and a log segment
/// together are about 2 MiB or less.
pub fn lane_bytes_max(limits: &Limits) -> usize {
    (limits.outstanding_bytes_max as usize / 2).saturating_add(codec::frame_bytes_max(limits)).saturating_mul(2)
}

/// Returns the bytes that QUIC may hold for one link, in each direction.
///
/// In-flight bytes belong to outstanding requests. The window therefore follows
/// `outstanding_bytes_max`, between 1 and 12 MiB.
pub fn window_bytes(limits: &Limits) -> u32 {
    limits.outstanding_bytes_max.clamp(WINDOW_BYTES_MIN, WINDOW_BYTES_MAX)
}

/// Returns the bytes that the links to `peers` peers may use.
pub fn link_bytes_max(limits: &Limits, peers: usize) -> u64 {
    peers as u64 * of_one_link(lane_bytes_max(limits), window_bytes(limits))
}

/// Sums the bytes queued on all lanes and both of QUIC's windows.
fn of_one_link(lane_bytes_max: usize, window_bytes: u32) -> u64 {
    LANES as u64 * lane_bytes_max as u64 + 2 * u64::from(window_bytes)
}

/// Settings of one server's links to all others.
#[derive(Debug)]
pub struct PeerSettings {
    /// This server.
    pub id: ServerId,
    /// The incarnation of this server's disk.
    pub disk: Incarnation,
    /// Random number that identifies this process, drawn at each start.
    pub process: u64,
    /// The UDP address that other servers dial.
    pub listen: SocketAddr,
    /// All servers of the ensemble. This server advertises its own addresses from this list.
    pub members: Vec<PeerMember>,
    /// How a peer proves that it may link to this server.
    pub trust: Trust,
    /// This server's key pair.
    pub identity: Identity,
    /// File of learned addresses; `None` keeps none. They help when the configured ones are stale.
    pub hints: Option<PathBuf>,
    /// Largest message between servers, in bytes, from [`super::codec::frame_bytes_max`].
    ///
    /// Computed from the servers' limits. A client request has a separate limit.
    pub frame_bytes_max: usize,
    /// Bytes that may wait for one lane of one peer, from [`super::lane_bytes_max`]. The link is
    /// closed when a lane exceeds this.
    pub lane_bytes_max: usize,
    /// Window of one link per direction, in bytes, from [`super::window_bytes`].
    ///
    /// Bounds the sent bytes without acknowledgement, and separately the received bytes not yet
    /// read.
    pub window_bytes: u32,
    /// Rate limit of all outgoing snapshots together, in bytes per second.
    pub bulk_bytes_per_second: u64,
    /// Name of this server's site. Servers of other sites are refused.
    pub site: String,
}

impl PeerSettings {
    /// Returns the bytes that the link to one peer may use.
    pub fn link_bytes_max(&self) -> u64 {
        of_one_link(self.lane_bytes_max, self.window_bytes)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// This sum is checked against a profile's memory ceiling, so it must include QUIC's windows.
    #[test]
    fn link_memory_bound_includes_the_quic_windows() {
        let mib = 1 << 20;
        for (outstanding, window) in [(mib / 2, mib), (mib, mib), (8 * mib, 8 * mib), (64 * mib, 12 * mib)] {
            let limits = Limits { outstanding_bytes_max: outstanding, ..Limits::default() };
            assert_eq!(window_bytes(&limits), window);
            let lanes = 2 * lane_bytes_max(&limits) as u64;
            assert_eq!(link_bytes_max(&limits, 2), 2 * (lanes + 2 * u64::from(window)));
        }
    }
}
