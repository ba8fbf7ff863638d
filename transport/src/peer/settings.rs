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

/// 34 MB/s over 10 ms, of one stream.
const WINDOW_BYTES_MIN: u32 = 1 << 20;
/// 100 MB/s over 40 ms, of one stream.
const WINDOW_BYTES_MAX: u32 = 12 << 20;

/// Bytes that may wait for one lane of one peer, of a server with these limits. All that a leader has under way to its learners at a time is half of
/// `outstanding_bytes_max` and one message for each; when a learner begins anew, what was said before may still wait. What a learner forwards has a bound of its
/// own, 2 MiB and an entry, which is less than this with the limits of every profile, and more only where `outstanding_bytes_max` and a segment together are about
/// 2 MiB or less.
pub fn lane_bytes_max(limits: &Limits) -> usize {
    (limits.outstanding_bytes_max as usize / 2).saturating_add(codec::frame_bytes_max(limits)).saturating_mul(2)
}

/// Bytes that QUIC may hold of one link, each way, of a server with these limits: what is under way has been asked for or is asked of others, so it need not be
/// more than that.
pub fn window_bytes(limits: &Limits) -> u32 {
    limits.outstanding_bytes_max.clamp(WINDOW_BYTES_MIN, WINDOW_BYTES_MAX)
}

/// Bytes that links to so many peers may take, of a server with these limits.
pub fn link_bytes_max(limits: &Limits, peers: usize) -> u64 {
    peers as u64 * of_one_link(lane_bytes_max(limits), window_bytes(limits))
}

/// What waits in its lanes, what was sent and is not acknowledged, and what came and is not read.
fn of_one_link(lane_bytes_max: usize, window_bytes: u32) -> u64 {
    LANES as u64 * lane_bytes_max as u64 + 2 * u64::from(window_bytes)
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
    /// Bytes of one link that are sent and not acknowledged, and as many that came and are not read, as [`super::window_bytes`] has them of the servers' limits.
    pub window_bytes: u32,
    /// What all snapshots that are being sent take together, bytes in a second.
    pub bulk_bytes_per_second: u64,
    /// The site: servers of another one are refused.
    pub site: String,
}

impl PeerSettings {
    /// Bytes that the link to one peer may take.
    pub fn link_bytes_max(&self) -> u64 {
        of_one_link(self.lane_bytes_max, self.window_bytes)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What QUIC holds is in the sum that a profile's ceiling is held against.
    #[test]
    fn the_windows_of_quic_are_in_the_bound_of_the_links() {
        let mib = 1 << 20;
        for (outstanding, window) in [(mib / 2, mib), (mib, mib), (8 * mib, 8 * mib), (64 * mib, 12 * mib)] {
            let limits = Limits { outstanding_bytes_max: outstanding, ..Limits::default() };
            assert_eq!(window_bytes(&limits), window);
            let lanes = 2 * lane_bytes_max(&limits) as u64;
            assert_eq!(link_bytes_max(&limits, 2), 2 * (lanes + 2 * u64::from(window)));
        }
    }
}
