//! State of the peers, for operators.

use super::instruction_queue::lock;
use quinn::{Connection, ConnectionStats};
use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::Mutex;
use std::time::Instant;
use zoolet_model::ServerId;

/// Why there is no link to a peer, for the operator.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Refusal {
    /// The cause and the remedy, as one line.
    pub line: String,
    /// When this cause first appeared.
    pub since: Instant,
}

/// State of one peer, for operators.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct PeerFigures {
    /// Address of the link, or the address dialled last.
    pub address: Option<SocketAddr>,
    /// Whether a link exists.
    pub is_linked: bool,
    /// When the link was last seen to receive something; `None` without a link.
    pub heard_at: Option<Instant>,
    /// Round-trip time measured by the link, in microseconds; 0 without a link.
    pub round_trip_us: u64,
    /// Bytes of UDP payload sent to the peer on links since the start.
    pub bytes_sent: u64,
    /// Bytes of UDP payload received from the peer on links since the start.
    pub bytes_received: u64,
    /// Packets that the links declared lost since the start.
    pub packets_lost: u64,
    /// Number of links since the start.
    pub links: u64,
    /// Why there is no link, or why the previous link ended at once.
    pub refusal: Option<Refusal>,
    /// When the peer was last heard on a lasting link, or the start. `None` while a link exists.
    pub missing_since: Option<Instant>,
}

impl PeerFigures {
    fn refuse(&mut self, line: String) {
        if self.refusal.as_ref().is_none_or(|refusal| refusal.line != line) {
            self.refusal = Some(Refusal { line, since: Instant::now() });
        }
    }

    fn add(&mut self, connection: &Connection) {
        let stats = connection.stats();
        self.bytes_sent += stats.udp_tx.bytes;
        self.bytes_received += stats.udp_rx.bytes;
        self.packets_lost += stats.path.lost_packets;
    }
}

/// [`PeerFigures`] of every peer, written by the links.
///
/// The counters of a live link are read from quinn on demand, so keeping them costs nothing.
#[derive(Debug, Default)]
pub struct PeerTable(Mutex<BTreeMap<ServerId, Row>>);

#[derive(Debug, Default)]
struct Row {
    /// Excludes the counters of the current link.
    figures: PeerFigures,
    link: Option<Connection>,
    /// Frames that the link had received at the last look.
    frames: u64,
}

impl Row {
    /// Updates `heard_at` if the link received frames since the last look.
    fn look(&mut self) {
        let Some(connection) = &self.link else { return };
        let frames = heard_frames(&connection.stats());
        if std::mem::replace(&mut self.frames, frames) != frames {
            self.figures.heard_at = Some(Instant::now());
        }
    }

    fn now(&self) -> PeerFigures {
        let mut figures = self.figures.clone();
        if let Some(connection) = &self.link {
            figures.add(connection);
            figures.round_trip_us = u64::try_from(connection.rtt().as_micros()).unwrap_or(u64::MAX);
            figures.missing_since = None;
        }
        figures
    }
}

/// Returns the number of ACK, PING, DATAGRAM and STREAM frames that a connection has received.
///
/// Only the peer can produce frames. Anyone can send packets.
pub(super) fn heard_frames(stats: &ConnectionStats) -> u64 {
    let came = &stats.frame_rx;
    came.acks + came.ping + came.datagram + came.stream
}

impl PeerTable {
    /// Returns the figures of all peers.
    pub fn figures(&self) -> BTreeMap<ServerId, PeerFigures> {
        let mut rows = lock(&self.0);
        rows.values_mut().for_each(Row::look);
        rows.iter().map(|(&peer, row)| (peer, row.now())).collect()
    }

    /// Checks whether the peer was heard. The caller's interval bounds the error of `heard_at`.
    pub(super) fn look(&self, peer: ServerId) {
        if let Some(row) = lock(&self.0).get_mut(&peer) {
            row.look();
        }
    }

    /// Adds a peer that has no link yet.
    pub(super) fn expect(&self, peer: ServerId) {
        lock(&self.0).entry(peer).or_default().figures.missing_since = Some(Instant::now());
    }

    /// Records a new link at `address`.
    ///
    /// The link may end at once, so an earlier refusal stays until [`PeerTable::stands`].
    pub(super) fn linked(&self, peer: ServerId, address: SocketAddr, connection: Connection) {
        let mut rows = lock(&self.0);
        let row = rows.entry(peer).or_default();
        row.figures.address = Some(address);
        row.figures.is_linked = true;
        row.figures.links += 1;
        row.figures.heard_at = Some(Instant::now());
        row.frames = 0;
        row.link = Some(connection);
    }

    /// Records that the link has lasted; clears the refusal.
    pub(super) fn stands(&self, peer: ServerId) {
        let mut rows = lock(&self.0);
        let figures = &mut rows.entry(peer).or_default().figures;
        figures.refusal = None;
        figures.missing_since = None;
    }

    /// Records the end of the link.
    pub(super) fn unlinked(&self, peer: ServerId) {
        let mut rows = lock(&self.0);
        let row = rows.entry(peer).or_default();
        row.figures.is_linked = false;
        // A silent link ends long after the peer was last heard. An alarm must not count anew then.
        let heard_at = row.figures.heard_at.take();
        row.figures.missing_since.get_or_insert_with(|| heard_at.unwrap_or_else(Instant::now));
        if let Some(connection) = row.link.take() {
            row.figures.add(&connection);
        }
    }

    /// Records the address being dialled, unless a link exists.
    pub(super) fn dialled(&self, peer: ServerId, address: SocketAddr) {
        let mut rows = lock(&self.0);
        let figures = &mut rows.entry(peer).or_default().figures;
        if !figures.is_linked {
            figures.address = Some(address);
        }
    }

    /// Records why there is no link, unless one exists. An unchanged line keeps its age.
    pub(super) fn refused(&self, peer: ServerId, line: String) {
        let mut rows = lock(&self.0);
        let figures = &mut rows.entry(peer).or_default().figures;
        if !figures.is_linked {
            figures.refuse(line);
        }
    }

    /// Records why the peer closed a connection before it became a link.
    ///
    /// Ignored while a lasting link exists, because the line would read as the end of that link.
    pub(super) fn given_up(&self, peer: ServerId, line: String) {
        let mut rows = lock(&self.0);
        let figures = &mut rows.entry(peer).or_default().figures;
        if figures.missing_since.is_some() {
            figures.refuse(line);
        }
    }

    /// Records why the current link is closed.
    pub(super) fn closed(&self, peer: ServerId, line: String) {
        lock(&self.0).entry(peer).or_default().figures.refuse(line);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    #[test]
    fn link_refusal_is_shown_only_until_a_link_is_up() {
        let (table, peer) = (PeerTable::default(), ServerId::new(2).unwrap());
        let told = || table.figures()[&peer].refusal.as_ref().map(|refusal| refusal.line.clone());
        table.expect(peer);
        table.given_up(peer, "it dropped the link".to_owned());
        assert_eq!(told().as_deref(), Some("it dropped the link"));
        table.stands(peer);
        table.given_up(peer, "it dropped the link".to_owned());
        assert_eq!(told(), None);
        table.unlinked(peer);
        table.given_up(peer, "it dropped the link".to_owned());
        assert!(told().is_some());
    }

    /// Regression: an alarm of a silent peer ended with the link, and came again 2 s later.
    #[test]
    fn peer_is_missing_since_it_was_last_heard() {
        let (table, peer) = (PeerTable::default(), ServerId::new(2).unwrap());
        table.expect(peer);
        table.stands(peer);
        let heard_at = Instant::now().checked_sub(Duration::from_secs(1));
        lock(&table.0).get_mut(&peer).unwrap().figures.heard_at = heard_at;
        table.unlinked(peer);
        assert_eq!(table.figures()[&peer].missing_since, heard_at);
    }
}
