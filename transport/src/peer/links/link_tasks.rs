//! The tasks of one link, from PeerUp to PeerDown.

use super::closing::{self, Closing};
use super::link::{ANSWERED, ASK, Link};
use super::members::Member;
use super::queue::SendQueue;
use super::silence::{Found, Silence, Traffic};
use super::{Links, lock, sending, silence};
use crate::peer::codec::{self, CodecError, Frames, Opening};
use bytes::{Bytes, BytesMut};
use quinn::{ConnectionError, ReadError, ReadExactError, RecvStream, SendStream, WriteError};
use std::mem;
use std::sync::Arc;
use std::time::{Duration, Instant};
use tokio::task::{JoinError, JoinSet};
use tokio::time::sleep;
use zoolet_machine::Event;
use zoolet_machine::seam::peer::{Lane, PeerMessage};

/// Stream priorities, as in quinn: higher values are sent first.
///
/// The log lane carries acks and everything that is ordered against commits. Only the probes of
/// whether a server is alive come before it.
const CONTROL_PRIORITY: i32 = 3;
const LOG_PRIORITY: i32 = 2;
const FORWARD_PRIORITY: i32 = 1;

/// How long a link must live to count as lasting.
///
/// A shorter link is logged no more than a failed attempt, because the next one may end the same
/// way.
pub(super) const LASTING: Duration = Duration::from_secs(1);

/// Interval of checking a link for received frames. Bounds the error of
/// [`PeerFigures::heard_at`](crate::peer::PeerFigures::heard_at).
pub(super) const LOOK: Duration = Duration::from_millis(500);

/// Maximum number of packets read at once.
const CHUNKS: usize = 32;
/// Maximum bytes of one read before a stream's opening is complete.
const OPENING_READ_BYTES: usize = 4 << 10;
/// Maximum number of datagrams in one batch for the engine.
const DATAGRAMS: usize = 32;

/// Why a task of a link ended.
pub(super) enum End {
    /// The connection ended.
    Over(ConnectionError),
    /// The peer no longer answers.
    Silent,
    /// The peer violated the protocol.
    Wrong(String),
    /// A task of this server failed.
    Failed(String),
}

impl End {
    /// Returns the end of a task that panicked.
    pub(super) fn of_failure(failed: &JoinError) -> Self {
        Self::Failed(format!("a task of this server failed: {failed}"))
    }
}

/// Guard that reports PeerDown to the engine on every way out.
struct Up {
    links: Arc<Links>,
    member: Arc<Member>,
    link: Arc<Link>,
    stands: bool,
}

impl Up {
    fn stand(&mut self, said: &[String]) {
        self.stands = true;
        let (peer, remote) = (self.link.peer, self.link.remote);
        self.links.table.stands(peer);
        self.links.learn(&self.member, remote, said);
        if self.member.on_link_stands() {
            tracing::info!("linked to server {} at {remote} again", peer.as_u8());
        }
    }
}

impl Drop for Up {
    fn drop(&mut self) {
        // Needed after a failed task, which leaves the connection open.
        self.link.connection.close(0u32.into(), b"");
        self.link.offers.end();
        if !self.stands {
            self.member.on_link_flaps();
        }
        self.links.table.unlinked(self.link.peer);
        self.links.submit(Event::PeerDown { peer: self.link.peer, link: self.link.id });
        self.member.on_link_gone(self.link.id);
    }
}

/// Runs a link to its end. PeerUp was reported before. `said` holds the addresses the peer
/// advertises.
pub(super) async fn run(
    links: Arc<Links>,
    member: Arc<Member>,
    link: Arc<Link>,
    (say, hear): (SendStream, RecvStream),
    said: Vec<String>,
) {
    let mut up = Up { links: links.clone(), member, link: link.clone(), stands: false };
    let mut tasks = JoinSet::new();
    tasks.spawn(answer(link.clone(), say, hear));
    tasks.spawn(write_lane(link.clone(), Lane::Log));
    tasks.spawn(write_lane(link.clone(), Lane::Forward));
    tasks.spawn(read_lane(links.clone(), link.clone()));
    tasks.spawn(read_lane(links.clone(), link.clone()));
    tasks.spawn(read_datagrams(links.clone(), link.clone()));
    tasks.spawn(sending::serve(links.clone(), link.clone()));
    tasks.spawn(look(links.clone(), link.clone()));
    let ended = tokio::select! {
        ended = tasks.join_next() => ended,
        () = sleep(LASTING) => {
            up.stand(&said);
            drop(said);
            tasks.join_next().await
        }
    };
    let end = match ended {
        Some(Ok(end)) => end,
        Some(Err(failed)) => End::of_failure(&failed),
        None => return,
    };
    report(&links, &up.member, &link, end);
    // No event of this link may follow its PeerDown.
    tasks.shutdown().await;
    drop(up);
}

/// Refreshes the time at which the peer was last heard, until the peer no longer answers.
async fn look(links: Arc<Links>, link: Arc<Link>) -> End {
    let mut silence = Silence::new(Instant::now(), Traffic::of(&link.connection));
    loop {
        sleep(LOOK).await;
        links.table.look(link.peer);
        let now = Instant::now();
        match silence.check(now, Traffic::of(&link.connection)) {
            Found::Nothing => {}
            Found::Pause(least) => warn_of_pause(&links, now, least),
            Found::Silence => return End::Silent,
        }
    }
}

/// Warns that this server did not run for `least` or longer.
fn warn_of_pause(links: &Links, now: Instant, least: Duration) {
    if !silence::is_news(&mut lock(&links.pause_found), now) {
        return;
    }
    let seconds = least.as_secs_f64();
    let line = format!("this server did not run for {seconds:.1} s or longer: its peers may have ended their links");
    // The rate limit of a short pause does not hold back a much longer one.
    links.warnings.warn(("paused", least.as_secs().max(1).ilog2()), &line);
}

fn report(links: &Links, member: &Member, link: &Link, end: End) {
    match end {
        // The code that closed the connection is responsible for logging the reason.
        End::Over(ConnectionError::LocallyClosed) => {}
        End::Over(error) => report_over(links, member, link, &error),
        End::Silent => {
            report_over(links, member, link, &ConnectionError::TimedOut);
            Closing::Silent.close(&link.connection, "it heard nothing from this server");
        }
        End::Wrong(what) => {
            links.warn_of_link(link, "wrong", &what);
            Closing::Protocol.close(&link.connection, &what);
        }
        End::Failed(what) => {
            links.warn_of_link(link, "failed", &what);
            Closing::Failed.close(&link.connection, &what);
        }
    }
}

fn report_over(links: &Links, member: &Member, link: &Link, error: &ConnectionError) {
    let (peer, remote) = (link.peer, link.remote);
    let why = closing::end_of_link(error);
    let line = closing::line_of_end(peer, remote, error);
    match closing::refusal_line(links, &remote.to_string(), error) {
        Some(refusal) => links.table.closed(peer, refusal),
        None if closing::is_unwanted(error) => links.table.closed(peer, line.clone()),
        None => {}
    }
    if member.is_flapping() {
        links.warnings.warn((peer, "gone", why), &line);
    } else {
        tracing::info!("{line}");
    }
}

/// Answers the peer's probes and receives the answers to this server's probes.
async fn answer(link: Arc<Link>, mut say: SendStream, mut hear: RecvStream) -> End {
    if let Err(error) = say.set_priority(CONTROL_PRIORITY) {
        return End::Wrong(error.to_string());
    }
    let heard = async {
        loop {
            let mut word = [0; 1];
            match hear.read_exact(&mut word).await {
                Ok(()) => match word[0] {
                    ASK => {
                        link.control.put(1, |bytes| bytes.extend_from_slice(&[ANSWERED]));
                        link.control.wake();
                    }
                    ANSWERED => link.on_answered(),
                    other => return End::Wrong(format!("unknown byte {other} on the probe stream")),
                },
                Err(error) => return unread_exactly(&link, error).await,
            }
        }
    };
    tokio::select! {
        end = heard => end,
        result = link.control.write_to(&mut say) => unwritten(&link, result.err()).await,
    }
}

/// Opens a lane and writes its queue.
async fn write_lane(link: Arc<Link>, lane: Lane) -> End {
    let (queue, priority): (&SendQueue, _) = match lane {
        Lane::Log => (&link.log, LOG_PRIORITY),
        Lane::Forward | Lane::Datagram => (&link.forward, FORWARD_PRIORITY),
    };
    let mut stream = match link.connection.open_uni().await {
        Ok(stream) => stream,
        Err(error) => return End::Over(error),
    };
    if let Err(error) = stream.set_priority(priority) {
        return End::Wrong(error.to_string());
    }
    if let Err(error) = queue.write_to(&mut stream).await {
        return unwritten(&link, Some(error)).await;
    }
    // The queue has ended. `stopped` returns when the peer has acknowledged the whole stream; then
    // this server may close.
    let _ = stream.finish();
    let _ = stream.stopped().await;
    link.on_lane_taken();
    End::Over(link.connection.closed().await)
}

/// Reads one of the lanes that the peer opens, in either order.
async fn read_lane(links: Arc<Links>, link: Arc<Link>) -> End {
    let mut stream = match link.connection.accept_uni().await {
        Ok(stream) => stream,
        Err(error) => return End::Over(error),
    };
    let (lane, first) = match opening(&mut stream).await {
        Ok((Opening::Lane(lane), rest)) if link.on_opened(lane) => (lane.lane(), rest),
        Ok((opening, _)) => {
            return End::Wrong(format!("stream opening {opening:?} is misplaced or repeated"));
        }
        Err(end) => return end,
    };
    let mut frames = Frames::new(lane, links.settings.frame_bytes_max);
    let mut chunks: [Bytes; CHUNKS] = Default::default();
    chunks[0] = first.freeze();
    let mut count = 1;
    let mut events = Vec::new();
    loop {
        for chunk in &mut chunks[..count] {
            frames.push(mem::take(chunk));
            if let Err(error) = decode(&link, &mut frames, &mut events) {
                return End::Wrong(error.to_string());
            }
        }
        links.submit_all(&mut events);
        match stream.read_chunks(&mut chunks).await {
            Ok(Some(more)) => count = more,
            // The peer stops, so the connection ends soon.
            Ok(None) => return End::Over(link.connection.closed().await),
            Err(error) => return unread(error),
        }
    }
}

/// Reads a stream's opening; also returns the bytes received after it.
pub(super) async fn opening(stream: &mut RecvStream) -> Result<(Opening, BytesMut), End> {
    let mut received = BytesMut::new();
    loop {
        match Opening::take(&mut received) {
            Ok(Some(opening)) => return Ok((opening, received)),
            Ok(None) => {}
            Err(error) => return Err(End::Wrong(error.to_string())),
        }
        match stream.read_chunk(OPENING_READ_BYTES, true).await {
            Ok(Some(chunk)) => received.extend_from_slice(&chunk.bytes),
            Ok(None) => return Err(End::Wrong("a stream ended before its opening was complete".to_owned())),
            Err(error) => return Err(unread(error)),
        }
    }
}

/// Decodes all complete messages.
fn decode(link: &Link, frames: &mut Frames, events: &mut Vec<Event>) -> Result<(), CodecError> {
    while let Some(message) = frames.next()? {
        events.push(said(link, message));
    }
    Ok(())
}

/// Reads datagrams and decodes them.
async fn read_datagrams(links: Arc<Links>, link: Arc<Link>) -> End {
    let mut events = Vec::new();
    loop {
        let mut datagram = match link.connection.read_datagram().await {
            Ok(datagram) => datagram,
            Err(error) => return End::Over(error),
        };
        loop {
            match codec::decode_datagram(datagram) {
                Ok(message) => events.push(said(&link, message)),
                Err(error) => return End::Wrong(error.to_string()),
            }
            match super::ready(link.connection.read_datagram()).await {
                Some(Ok(next)) if events.len() < DATAGRAMS => datagram = next,
                Some(Ok(next)) => {
                    links.submit_all(&mut events);
                    datagram = next;
                }
                Some(Err(_)) | None => break,
            }
        }
        links.submit_all(&mut events);
    }
}

fn said(link: &Link, message: PeerMessage) -> Event {
    Event::PeerMessage { peer: link.peer, link: link.id, message }
}

fn unread(error: ReadError) -> End {
    match error {
        ReadError::ConnectionLost(error) => End::Over(error),
        error => End::Wrong(error.to_string()),
    }
}

async fn unread_exactly(link: &Link, error: ReadExactError) -> End {
    match error {
        // The stream was finished: the peer stops.
        ReadExactError::FinishedEarly(0) => End::Over(link.connection.closed().await),
        ReadExactError::FinishedEarly(_) => End::Wrong("the probe stream ended inside a probe".to_owned()),
        ReadExactError::ReadError(error) => unread(error),
    }
}

async fn unwritten(link: &Link, error: Option<WriteError>) -> End {
    match error {
        Some(WriteError::ConnectionLost(error)) => End::Over(error),
        Some(error) => End::Wrong(error.to_string()),
        None => End::Over(link.connection.closed().await),
    }
}
