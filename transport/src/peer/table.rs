//! What is known of the peers, for operators.

use super::seam::lock;
use quinn::Connection;
use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::Mutex;
use std::time::Instant;
use zoolet_model::ServerId;

/// Why there is no link to a peer, in one line for people.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Refusal {
    /// What is the matter, and what helps.
    pub line: String,
    /// Since when.
    pub since: Instant,
}

/// What is known of one peer, for operators.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct PeerFigures {
    /// The address of the link, or the one that was dialled last.
    pub address: Option<SocketAddr>,
    /// Whether there is a link.
    pub is_linked: bool,
    /// When something came on the link last, at the latest look; `None` without one.
    pub heard_at: Option<Instant>,
    /// Round trip as the link measures it, microseconds; 0 without one.
    pub round_trip_us: u64,
    /// Bytes sent to it on links since the start, datagrams of UDP counted whole without headers.
    pub bytes_sent: u64,
    /// Bytes got from it, likewise.
    pub bytes_received: u64,
    /// Packets that links took for lost since the start.
    pub packets_lost: u64,
    /// Links since the start.
    pub links: u64,
    /// Why there is none, or why the one before this one ended at once.
    pub refusal: Option<Refusal>,
    /// Since when there is none, or none that stood; `None` while there is one.
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

/// [`PeerFigures`] of every peer, kept by the links and read by anybody. What a link counts is asked of it when somebody reads: keeping it costs nothing.
#[derive(Debug, Default)]
pub struct PeerTable(Mutex<BTreeMap<ServerId, Row>>);

#[derive(Debug, Default)]
struct Row {
    /// Without what the present link adds.
    figures: PeerFigures,
    link: Option<Connection>,
    /// Frames that had come on the link at the last look.
    frames: u64,
}

impl Row {
    /// Looks whether anything came on the link since the last look. Frames count, which only the peer can send; packets anybody can.
    fn look(&mut self) {
        let Some(connection) = &self.link else { return };
        let came = connection.stats().frame_rx;
        let frames = came.acks + came.ping + came.datagram + came.stream;
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

impl PeerTable {
    /// All of them.
    pub fn figures(&self) -> BTreeMap<ServerId, PeerFigures> {
        let mut rows = lock(&self.0);
        rows.values_mut().for_each(Row::look);
        rows.iter().map(|(&peer, row)| (peer, row.now())).collect()
    }

    /// Looks whether anything came from this peer: called so often that operators learn when it was heard.
    pub(super) fn look(&self, peer: ServerId) {
        if let Some(row) = lock(&self.0).get_mut(&peer) {
            row.look();
        }
    }

    /// A peer of whom nothing is known yet.
    pub(super) fn expect(&self, peer: ServerId) {
        lock(&self.0).entry(peer).or_default().figures.missing_since = Some(Instant::now());
    }

    /// There is a link, at `address`. Whether it lasts is not known, so what was the matter is still said.
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

    /// Its link lasts.
    pub(super) fn stands(&self, peer: ServerId) {
        let mut rows = lock(&self.0);
        let figures = &mut rows.entry(peer).or_default().figures;
        figures.refusal = None;
        figures.missing_since = None;
    }

    /// It is gone.
    pub(super) fn unlinked(&self, peer: ServerId) {
        let mut rows = lock(&self.0);
        let row = rows.entry(peer).or_default();
        row.figures.is_linked = false;
        row.figures.heard_at = None;
        row.figures.missing_since.get_or_insert_with(Instant::now);
        if let Some(connection) = row.link.take() {
            row.figures.add(&connection);
        }
    }

    /// It is being dialled there.
    pub(super) fn dialled(&self, peer: ServerId, address: SocketAddr) {
        let mut rows = lock(&self.0);
        let figures = &mut rows.entry(peer).or_default().figures;
        if !figures.is_linked {
            figures.address = Some(address);
        }
    }

    /// Why there is none, unless there is one. The same line again leaves it as old as it is.
    pub(super) fn refused(&self, peer: ServerId, line: String) {
        let mut rows = lock(&self.0);
        let figures = &mut rows.entry(peer).or_default().figures;
        if !figures.is_linked {
            figures.refuse(line);
        }
    }

    /// Why it gave a connection up that was no link here yet; unless another one stands by now, whose end this would be taken for.
    pub(super) fn given_up(&self, peer: ServerId, line: String) {
        let mut rows = lock(&self.0);
        let figures = &mut rows.entry(peer).or_default().figures;
        if figures.missing_since.is_some() {
            figures.refuse(line);
        }
    }

    /// Why its link ends, which there still is.
    pub(super) fn closed(&self, peer: ServerId, line: String) {
        lock(&self.0).entry(peer).or_default().figures.refuse(line);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_given_up_is_told_until_a_link_stands_and_never_of_one_that_does() {
        let (table, peer) = (PeerTable::default(), ServerId::new(2).unwrap());
        let told = || table.figures()[&peer].refusal.as_ref().map(|refusal| refusal.line.clone());
        table.expect(peer);
        table.given_up(peer, "it wants no link".to_owned());
        assert_eq!(told().as_deref(), Some("it wants no link"));
        table.stands(peer);
        table.given_up(peer, "it wants no link".to_owned());
        assert_eq!(told(), None);
        table.unlinked(peer);
        table.given_up(peer, "it wants no link".to_owned());
        assert!(told().is_some());
    }
}
