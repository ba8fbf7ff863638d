//! One link: a connection on which both sides have proved themselves.

use super::greeting::Proven;
use super::lock;
use super::notices::Notices;
use super::queue::{Room, SendQueue};
use super::sending::Offers;
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
use zoolet_engine::peer::{Lane, LinkId, PeerMessage};
use zoolet_model::ServerId;

/// What a live server takes at most to answer that it lives.
const ANSWER: Duration = Duration::from_millis(500);

/// What two clocks may make of the same few seconds, well rounded.
const CLOCKS_DIFFER: Duration = Duration::from_millis(100);

/// On the stream of the Hellos, after them: are you there?
pub(super) const ASK: u8 = 1;
/// On the same: I am.
pub(super) const ANSWERED: u8 = 2;

/// Lanes that are streams.
pub(in crate::peer) const LANES: usize = 2;

/// A link. Its tasks live in `life`; everybody else has it by reference, and finds that it is over when it is.
#[derive(Debug)]
pub(super) struct Link {
    pub(super) id: LinkId,
    pub(super) peer: ServerId,
    /// The number of its process.
    pub(super) process: u64,
    pub(super) key: PublicKey,
    pub(super) remote: SocketAddr,
    pub(super) connection: Connection,
    pub(super) control: SendQueue,
    pub(super) log: SendQueue,
    pub(super) forward: SendQueue,
    pub(super) offers: Offers,
    /// When the other process lived for sure: when it said Hello, or the last question was asked that it answered.
    lived: Mutex<Instant>,
    answers: Notify,
    /// Lanes that the peer has opened.
    opened: Mutex<Vec<StreamLane>>,
    /// Lanes of which the peer has taken the last byte.
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

    /// Says something, or puts it where [`Link::flush`] has it said. What cannot be said is told in `notices`.
    pub(super) fn say(&self, message: &PeerMessage, notices: &Notices) {
        match message.lane() {
            Lane::Datagram => self.say_at_once(message, notices),
            Lane::Log => self.log.put(message.bytes(), |bytes| codec::encode(message, bytes)),
            Lane::Forward => self.forward.put(message.bytes(), |bytes| codec::encode(message, bytes)),
        }
    }

    fn say_at_once(&self, message: &PeerMessage, notices: &Notices) {
        let mut bytes = BytesMut::new();
        codec::encode_datagram(message, &mut bytes);
        match self.connection.send_datagram(bytes.freeze()) {
            // Of a link that is over nothing is said any more; its end is told elsewhere.
            Ok(()) | Err(SendDatagramError::ConnectionLost(_)) => {}
            // The peer may have said that it takes none, or short ones.
            Err(error) => {
                let line = format!("a heartbeat cannot be sent to server {}: {error}", self.peer.as_u8());
                notices.warn((self.peer, "heartbeat"), &line);
            }
        }
    }

    /// What was said is written. False if the peer does not read, and too much waits for it.
    #[must_use]
    pub(super) fn flush(&self, now: Instant) -> bool {
        self.log.wake();
        self.forward.wake();
        !self.log.is_stuck(now) && !self.forward.is_stuck(now)
    }

    /// Nothing more will be said.
    pub(super) fn end(&self) {
        self.log.end();
        self.forward.end();
    }

    /// Whether the other process lives: it answers soon.
    pub(super) async fn answers(&self) -> bool {
        let mut answer = pin!(self.answers.notified());
        // From here on an answer is heard.
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

    /// Whether a process that began then, or earlier, lived while the one of this link did: it is no later life of it.
    pub(super) fn lived_beside(&self, began: Option<Instant>) -> bool {
        // Who began longer ago than can be said did so before every link.
        began.and_then(|began| began.checked_add(CLOCKS_DIFFER)).is_none_or(|began| began < *lock(&self.lived))
    }

    /// The peer has answered.
    pub(super) fn on_answered(&self) {
        self.answers.notify_waiters();
    }

    /// The peer has opened a lane; false if it had before.
    #[must_use]
    pub(super) fn on_opened(&self, lane: StreamLane) -> bool {
        let mut opened = lock(&self.opened);
        let is_new = !opened.contains(&lane);
        if is_new {
            opened.push(lane);
        }
        is_new
    }

    /// The peer has the last byte of a lane.
    pub(super) fn on_lane_taken(&self) {
        self.taken.send_modify(|lanes| *lanes += 1);
    }

    /// After [`Link::end`]: waits until the peer has everything, or the link is over.
    pub(super) async fn taken(&self) {
        let mut taken = self.taken.subscribe();
        tokio::select! {
            _ = taken.wait_for(|lanes| *lanes == LANES) => {}
            _ = self.connection.closed() => {}
        }
    }
}

/// A lane begins with its name.
fn lane(lane: StreamLane, room: &Room) -> SendQueue {
    let mut opening = BytesMut::new();
    Opening::Lane(lane).encode(&mut opening);
    SendQueue::new(opening, room)
}
