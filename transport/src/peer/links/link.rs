//! One link: a connection on which both sides have proved themselves.

use super::greeting::Proven;
use super::lock;
use super::queue::{Room, SendQueue};
use super::sending::Offers;
use super::warnings::Warnings;
use crate::peer::codec::{self, Opening, StreamLane};
use crate::peer::trust::PublicKey;
use bytes::BytesMut;
use quinn::{Connection, SendDatagramError};
use std::net::SocketAddr;
use std::pin::pin;
use std::sync::Mutex;
use std::time::{Duration, Instant};
use tokio::sync::{Notify, watch};
use tokio::time::timeout;
use zoolet_machine::seam::peer::{Lane, LinkId, PeerMessage};
use zoolet_model::ServerId;

/// Maximum time for a live server to answer a probe.
const ANSWER: Duration = Duration::from_millis(500);

/// Tolerance for the different rates of two clocks over a few seconds.
const CLOCKS_DIFFER: Duration = Duration::from_millis(100);

/// Probe, sent after the Hellos on their stream: are you alive?
pub(super) const ASK: u8 = 1;
/// Answer to [`ASK`], on the same stream.
pub(super) const ANSWERED: u8 = 2;

/// Number of lanes that are streams.
pub(in crate::peer) const LANES: usize = 2;

/// A link, shared by reference.
///
/// Its tasks are in `life`. Other holders find out that the link has ended when they use it.
#[derive(Debug)]
pub(super) struct Link {
    pub(super) id: LinkId,
    pub(super) peer: ServerId,
    /// Random number of the peer's process.
    pub(super) process: u64,
    pub(super) key: PublicKey,
    pub(super) remote: SocketAddr,
    pub(super) connection: Connection,
    pub(super) control: SendQueue,
    pub(super) log: SendQueue,
    pub(super) forward: SendQueue,
    pub(super) offers: Offers,
    /// Last time at which the peer's process was known to be alive.
    ///
    /// That is the arrival of its Hello, or the time of the last probe that it answered.
    lived: Mutex<Instant>,
    answers: Notify,
    /// Lanes that the peer has opened.
    opened: Mutex<Vec<StreamLane>>,
    /// Number of lanes whose last byte the peer has acknowledged.
    taken: watch::Sender<usize>,
}

impl Link {
    pub(super) fn new(id: LinkId, proven: &Proven, room: &Room) -> Self {
        Self {
            id,
            peer: proven.hello.from,
            process: proven.hello.process,
            key: proven.key(),
            remote: proven.remote,
            connection: proven.connection.clone(),
            control: SendQueue::new(BytesMut::new(), room),
            log: lane(StreamLane::Log, room),
            forward: lane(StreamLane::Forward, room),
            offers: Offers::default(),
            lived: Mutex::new(proven.heard),
            answers: Notify::new(),
            opened: Mutex::default(),
            taken: watch::Sender::new(0),
        }
    }

    /// Sends a datagram at once, or queues a message until [`Link::flush`]. Failures go to
    /// `warnings`.
    pub(super) fn say(&self, message: &PeerMessage, warnings: &Warnings) {
        match message.lane() {
            Lane::Datagram => self.say_at_once(message, warnings),
            Lane::Log => self.log.put(message.bytes(), |bytes| codec::encode(message, bytes)),
            Lane::Forward => self.forward.put(message.bytes(), |bytes| codec::encode(message, bytes)),
        }
    }

    fn say_at_once(&self, message: &PeerMessage, warnings: &Warnings) {
        let mut bytes = BytesMut::new();
        codec::encode_datagram(message, &mut bytes);
        match self.connection.send_datagram(bytes.freeze()) {
            // The end of a link is reported elsewhere.
            Ok(()) | Err(SendDatagramError::ConnectionLost(_)) => {}
            // The peer may accept no datagrams, or only shorter ones.
            Err(error) => {
                let line = format!("cannot send a heartbeat to server {}: {error}", self.peer.as_u8());
                warnings.warn((self.peer, "heartbeat"), &line);
            }
        }
    }

    /// Starts writing the queued messages. Returns `false` if the peer does not read.
    #[must_use]
    pub(super) fn flush(&self, now: Instant) -> bool {
        self.log.wake();
        self.forward.wake();
        !self.log.is_stuck(now) && !self.forward.is_stuck(now)
    }

    /// Ends both lanes after the messages that are queued.
    pub(super) fn end(&self) {
        self.log.end();
        self.forward.end();
    }

    /// Probes the peer; returns whether its process answers within [`ANSWER`].
    pub(super) async fn answers(&self) -> bool {
        let mut answer = pin!(self.answers.notified());
        // From here on an answer is noticed.
        answer.as_mut().enable();
        let asked = Instant::now();
        self.control.put(1, |bytes| bytes.extend_from_slice(&[ASK]));
        self.control.wake();
        let answered = timeout(ANSWER, async {
            tokio::select! {
                () = answer => true,
                _ = self.connection.closed() => false,
            }
        });
        let lives = answered.await.unwrap_or(false);
        if lives {
            *lock(&self.lived) = asked;
        }
        lives
    }

    /// Returns whether the link's process was alive after another process began.
    ///
    /// `began` is the latest time at which the other one can have started. If `true`, the other one
    /// is not a restart of the link's process.
    pub(super) fn lived_beside(&self, began: Option<Instant>) -> bool {
        // `None` is too long ago for `Instant`, so before every link.
        began.and_then(|began| began.checked_add(CLOCKS_DIFFER)).is_none_or(|began| began < *lock(&self.lived))
    }

    /// Handles the peer's answer to a probe.
    pub(super) fn on_answered(&self) {
        self.answers.notify_waiters();
    }

    /// Records a lane that the peer opens. Returns `false` if it is open already.
    #[must_use]
    pub(super) fn on_opened(&self, lane: StreamLane) -> bool {
        let mut opened = lock(&self.opened);
        let is_new = !opened.contains(&lane);
        if is_new {
            opened.push(lane);
        }
        is_new
    }

    /// Records that the peer has acknowledged all of a lane.
    pub(super) fn on_lane_taken(&self) {
        self.taken.send_modify(|lanes| *lanes += 1);
    }

    /// After [`Link::end`]: waits until the peer has everything, or the link ends.
    pub(super) async fn taken(&self) {
        let mut taken = self.taken.subscribe();
        tokio::select! {
            _ = taken.wait_for(|lanes| *lanes == LANES) => {}
            _ = self.connection.closed() => {}
        }
    }
}

/// Returns the queue of a lane, which starts with the lane's opening.
fn lane(lane: StreamLane, room: &Room) -> SendQueue {
    let mut opening = BytesMut::new();
    Opening::Lane(lane).encode(&mut opening);
    SendQueue::new(opening, room)
}
