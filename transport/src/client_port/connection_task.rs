//! The task of a connection, from the first byte to the last.

use super::close_reason::CloseReason;
use super::connection::Connection;
use super::inbound::Inbound;
use super::listener::{Port, Slot};
use super::words::{self, Asked};
use crate::wire::{decode_connect, split_frame};
use bytes::BytesMut;
use std::io::ErrorKind;
use std::mem;
use std::net::SocketAddr;
use std::pin::pin;
use std::sync::Arc;
use std::time::{Duration, Instant};
use tokio::net::TcpStream;
use tokio::net::tcp::{OwnedReadHalf, OwnedWriteHalf};
use tokio::time::{sleep_until, timeout, timeout_at};
use zoolet_machine::Event;
use zoolet_model::ConnectRequest;

/// Maximum bytes of a handshake. A usual one is 45 bytes; this leaves room for any password.
const HANDSHAKE_BYTES_MAX: usize = 4096;
/// Maximum time to read on after a close.
///
/// Otherwise the peer could see a reset instead of our last bytes.
const DRAIN: Duration = Duration::from_secs(1);
const DRAIN_BYTES_MAX: usize = 256 << 10;
/// Maximum wait for the word of a words-only connection. A silent client must not keep one of the
/// few places.
const WORD: Duration = Duration::from_secs(1);
/// Timer delay from which the process counts as having stood still.
///
/// A running process notices its timers within milliseconds.
const LATE: Duration = Duration::from_millis(200);

/// Serves an accepted socket to its end.
pub(super) async fn run(port: Arc<Port>, stream: TcpStream, peer: SocketAddr, slot: Slot) {
    // With Nagle's algorithm, a reply could wait 40 ms for the acknowledgement of the previous one.
    let _ = stream.set_nodelay(true);
    let (mut read, write) = stream.into_split();
    let words_only = slot.words_only();
    let allowed = words_only.map_or(port.handshake_timeout(), |_| WORD.min(port.handshake_timeout()));
    let first = in_time(allowed, first_message(&port, &mut read, words_only.is_some())).await;
    if let Some(limit) = words_only
        && !matches!(first, Some(Ok(First::Word(_))))
    {
        return port.reject(peer, limit);
    }
    let why = match first {
        Some(Ok(First::Word(asked))) => {
            words::answer(&port, asked, peer, &write).await;
            drop(write);
            return drain(&mut read).await;
        }
        Some(Ok(First::Connect(..))) if !port.handshakes.take(Instant::now()) => {
            return port.reject(peer, "too many handshakes (handshakes_burst_max, handshakes_per_minute_max)");
        }
        Some(Ok(First::Connect(request, rest))) => {
            let registered = Registered::new(port.clone(), write, peer, request);
            let why = talk(&port, &registered.connection, &mut read, Inbound::new(&port, rest)).await;
            // Drops the write half, so the client sees the end of the stream.
            drop(registered);
            why
        }
        Some(Err(why)) => why,
        None => CloseReason::Sessionless,
    };
    port.on_closed(peer, why);
    if why == CloseReason::Asked {
        drain(&mut read).await;
    }
}

/// Returns the bytes of a connection's task.
pub(super) fn task_bytes() -> usize {
    fn output<T, F: Future>(_: impl FnOnce(T) -> F) -> usize {
        size_of::<F>()
    }
    output(|(port, stream, peer, slot)| run(port, stream, peer, slot))
}

impl Port {
    fn on_closed(&self, peer: SocketAddr, why: CloseReason) {
        if why == CloseReason::Sessionless {
            self.traffic.on_sessionless_expired();
        }
        if why.is_refusal() {
            self.traffic.on_dropped();
            self.refusals.log(peer.ip(), mem::discriminant(&why), why);
        } else {
            tracing::debug!(client = %peer, "closed: {why}");
        }
    }
}

enum First {
    Word(Asked),
    Connect(ConnectRequest, BytesMut),
}

/// Runs `work`; returns `None` after `allowed`.
///
/// If the deadline is noticed late, this process stood still, and `work` gets the whole time again.
async fn in_time<T>(allowed: Duration, work: impl Future<Output = T>) -> Option<T> {
    let mut work = pin!(work);
    let deadline = Instant::now() + allowed;
    match timeout_at(deadline.into(), &mut work).await {
        Ok(done) => Some(done),
        Err(_) if is_late(deadline, Instant::now()) => timeout(allowed, work).await.ok(),
        Err(_) => None,
    }
}

/// Whether a deadline was noticed so late that this process stood still.
///
/// Causes are a suspended host, SIGSTOP or a debugger. Bytes that peers sent meanwhile may still be
/// unread.
pub(super) fn is_late(deadline: Instant, now: Instant) -> bool {
    now > deadline + LATE
}

/// Reads the first message. A four-letter word takes precedence over a length (surface 13.46).
///
/// A words-only connection ends at its fourth byte if it sends anything else, so a client without a
/// place learns that at once.
async fn first_message(port: &Port, read: &mut OwnedReadHalf, words_only: bool) -> Result<First, CloseReason> {
    let mut buffer = BytesMut::new();
    loop {
        read.readable().await.map_err(|error| CloseReason::Broken(error.kind()))?;
        buffer.reserve(64);
        match read.try_read_buf(&mut buffer) {
            Ok(0) => return Err(CloseReason::Left),
            Ok(bytes) => port.traffic.on_read(bytes),
            Err(error) if error.kind() == ErrorKind::WouldBlock => continue,
            Err(error) => return Err(CloseReason::Broken(error.kind())),
        }
        let Some(first) = buffer.first_chunk() else { continue };
        if let Some(asked) = Asked::from_bytes(*first) {
            return Ok(First::Word(asked));
        }
        if words_only {
            return Err(CloseReason::BadHandshake);
        }
        // The record header of a TLS handshake. As a frame length it would be 350 MiB.
        if first.starts_with(&[0x16, 0x03]) {
            return Err(CloseReason::SpeaksTls);
        }
        if let Some(frame) = split_frame(&mut buffer, HANDSHAKE_BYTES_MAX).map_err(CloseReason::BadFrame)? {
            let request = decode_connect(frame).map_err(|_| CloseReason::BadHandshake)?;
            return Ok(First::Connect(request, BytesMut::from(&buffer[..])));
        }
    }
}

/// Reads on for a while after our last byte.
///
/// Closing a socket with unread bytes makes the kernel send a reset, which can destroy bytes that
/// the client has not read yet.
async fn drain(read: &mut OwnedReadHalf) {
    let _ = timeout(DRAIN, async {
        let mut left = DRAIN_BYTES_MAX;
        let mut nowhere = Vec::with_capacity(4096);
        while left > 0 && read.readable().await.is_ok() {
            nowhere.clear();
            match read.try_read_buf(&mut nowhere) {
                Ok(0) => return,
                Ok(bytes) => left = left.saturating_sub(bytes),
                Err(error) if error.kind() == ErrorKind::WouldBlock => {}
                Err(_) => return,
            }
        }
    })
    .await;
}

/// Registers a connection with the engine for exactly as long as this guard lives.
struct Registered {
    port: Arc<Port>,
    connection: Arc<Connection>,
}

impl Registered {
    fn new(port: Arc<Port>, write: OwnedWriteHalf, peer: SocketAddr, request: ConnectRequest) -> Self {
        let connection = Arc::new(Connection::new(port.ids.next_conn(), peer, write));
        let conn = connection.id;
        // Must precede the event: its answer must find the connection.
        port.register(connection.clone());
        port.traffic.on_received(1);
        port.submit(|events| {
            events.push(Event::Connect { conn, peer: Some(peer.ip()), request });
        });
        Self { port, connection }
    }
}

impl Drop for Registered {
    fn drop(&mut self) {
        let conn = self.connection.id;
        self.port.unregister(conn);
        self.connection.end(&self.port);
        self.port.submit(|events| events.push(Event::Disconnected { conn }));
        self.port.feed_starved();
    }
}

/// Reads, decodes and submits until the connection is over.
async fn talk(port: &Port, connection: &Connection, read: &mut OwnedReadHalf, mut inbound: Inbound) -> CloseReason {
    let mut timer = pin!(sleep_until((Instant::now() + port.handshake_timeout()).into()));
    loop {
        let seen = port.deliveries();
        let decoded = connection.decode(port, &mut inbound);
        inbound.charge_rest(port);
        let plan = match decoded.and_then(|decoded| connection.plan(port, &inbound, decoded, seen)) {
            Ok(plan) => plan,
            Err(why) => return why,
        };
        // Deadlines mostly move later. The timer is reset only when it has fired or is set too
        // late.
        if let Some(deadline) = plan.deadline.map(Into::into)
            && (timer.is_elapsed() || deadline < timer.deadline())
        {
            timer.as_mut().reset(deadline);
        }
        tokio::select! {
            biased;
            () = connection.wake.notified() => {}
            _ = connection.write.writable(), if plan.write => connection.unblock(port),
            result = inbound.fill(read, port, connection.id, plan.read_bytes), if plan.read_bytes > 0 => match result {
                Ok(Some(0)) => return CloseReason::Left,
                Ok(_) => {}
                Err(error) => return CloseReason::Broken(error.kind()),
            },
            () = timer.as_mut(), if plan.deadline.is_some() => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::future::{pending, poll_fn};
    use std::task::Poll;

    const ALLOWED: Duration = Duration::from_millis(10);

    fn block_on<T>(work: impl Future<Output = T>) -> T {
        tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap().block_on(work)
    }

    #[test]
    fn client_late_through_a_process_pause_gets_its_full_time_again() {
        let mut stood_still = false;
        let answered_after_a_pause = poll_fn(|_| {
            if stood_still {
                return Poll::Ready(());
            }
            stood_still = true;
            std::thread::sleep(ALLOWED + LATE + LATE);
            Poll::Pending
        });
        assert_eq!(block_on(async { in_time(ALLOWED, answered_after_a_pause).await }), Some(()));
    }

    #[test]
    fn client_that_never_answers_times_out() {
        assert_eq!(block_on(async { in_time(ALLOWED, pending::<()>()).await }), None);
    }
}
