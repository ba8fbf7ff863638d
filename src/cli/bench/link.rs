//! One connection to a server, with its session, its buffers and its recovery.

use bytes::{Buf, Bytes, BytesMut};
use std::collections::VecDeque;
use std::future::{Future, poll_fn};
use std::io::{self, ErrorKind};
use std::net::SocketAddr;
use std::pin::{Pin, pin};
use std::rc::Rc;
use std::task::{Context, Poll};
use std::time::Duration;
use tokio::io::{AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::select;
use tokio::time::{Interval, MissedTickBehavior, interval, timeout};
use zoolet_model::{ConnectReply, ConnectRequest, Reply, Request, SessionId, WatchEvent};
use zoolet_transport::wire::client_side::{
    Header, Shape, decode_connect_reply, decode_event, decode_reply, encode_connect, encode_request, first_frame,
};
use zoolet_transport::wire::{XID_EVENT, XID_PING};

/// Maximum frame of a server, in bytes; a list of a million children takes 20 MB.
const FRAME_BYTES_MAX: usize = 64 << 20;
/// Bounds of the read buffer, in bytes: the minimum suffices for a watcher.
///
/// The buffer doubles each time that a read fills it.
const READ_BYTES_MIN: usize = 4 << 10;
const READ_BYTES_MAX: usize = 256 << 10;
/// Maximum wait for a handshake; a server that accepts but never answers counts as gone.
const HANDSHAKE_MAX: Duration = Duration::from_secs(5);
/// Handshake timeout of the first round over several servers, because one may be frozen.
///
/// If the round fails because of it, the next round uses [`HANDSHAKE_MAX`].
const HANDSHAKE_MIN: Duration = Duration::from_secs(1);
/// Pause between two rounds over the list of servers.
const RETRY_AFTER: Duration = Duration::from_millis(20);

/// A connection that batches: one call writes all pending requests, one call reads all answers.
pub(super) struct Link {
    servers: Rc<[SocketAddr]>,
    /// Index of the current server, or of the last one.
    at: usize,
    stream: TcpStream,
    /// Bytes that the next exchange sends.
    pub(super) out: BytesMut,
    input: BytesMut,
    /// Bytes of `input` that hold the last reply, which its reader may still use.
    taken: usize,
    read_bytes: usize,
    session: ConnectReply,
    timeout_asked: Duration,
    last_zxid: i64,
    last_xid: i32,
    events: VecDeque<WatchEvent>,
    beat: Interval,
    /// Whether anything was sent since the last beat.
    spoke: bool,
    beats_unheard: u32,
}

/// How a broken connection recovered.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Back {
    SameSession,
    NewSession,
}

impl Link {
    /// Connects to the first server that answers, starting at index `first`.
    ///
    /// # Errors
    /// Names a server and the reason for its failure.
    pub(super) async fn open(
        servers: &Rc<[SocketAddr]>,
        first: usize,
        timeout_asked: Duration,
    ) -> Result<Self, String> {
        let mut refusal = String::new();
        let mut patience = first_patience(servers);
        loop {
            let mut was_short = false;
            for at in (0..servers.len()).map(|more| (first + more) % servers.len()) {
                let address = servers[at];
                match greet(address, None, 0, timeout_asked, patience).await {
                    Ok((stream, session)) => return Ok(Self::new(servers, at, stream, session, timeout_asked)),
                    Err(error) if error.raw_os_error().is_some() => {
                        refusal =
                            format!("no server at {address}: {error}; start one there, or name another with --server");
                    }
                    Err(error) => {
                        was_short |= error.kind() == ErrorKind::TimedOut;
                        refusal = format!("no session at {address}: {error}");
                    }
                }
            }
            if !was_short || patience == HANDSHAKE_MAX {
                return Err(refusal);
            }
            patience = HANDSHAKE_MAX;
        }
    }

    fn new(
        servers: &Rc<[SocketAddr]>,
        at: usize,
        stream: TcpStream,
        session: ConnectReply,
        timeout_asked: Duration,
    ) -> Self {
        Self {
            servers: servers.clone(),
            at,
            stream,
            out: BytesMut::new(),
            input: BytesMut::new(),
            taken: 0,
            read_bytes: READ_BYTES_MIN,
            beat: beat(&session),
            session,
            timeout_asked,
            last_zxid: 0,
            last_xid: 0,
            events: VecDeque::new(),
            spoke: false,
            beats_unheard: 0,
        }
    }

    /// Reconnects after a break, to the next server that answers.
    ///
    /// It resumes the session if that still lives. It retries for one session timeout, since a
    /// session survives that long without a connection.
    ///
    /// # Errors
    /// Names a server and the reason for its failure.
    async fn reopen(&mut self) -> Result<Back, String> {
        self.out.clear();
        self.input.clear();
        self.taken = 0;
        self.events.clear();
        let began = tokio::time::Instant::now();
        let mut patience = first_patience(&self.servers);
        loop {
            let mut refusal = String::new();
            let mut all_are_slow = true;
            for _ in 0..self.servers.len() {
                self.at = (self.at + 1) % self.servers.len();
                match self.regreet(patience).await {
                    Ok(back) => return Ok(back),
                    Err(error) => {
                        all_are_slow &= error.kind() == ErrorKind::TimedOut;
                        refusal = format!("lost {}: {error}", self.servers[self.at]);
                    }
                }
            }
            if all_are_slow {
                patience = HANDSHAKE_MAX;
            }
            if began.elapsed() > self.timeout_asked {
                return Err(format!("{refusal}, for {} s", self.timeout_asked.as_secs_f64()));
            }
            tokio::time::sleep(RETRY_AFTER).await;
        }
    }

    async fn regreet(&mut self, patience: Duration) -> io::Result<Back> {
        let (address, asked) = (self.servers[self.at], self.timeout_asked);
        let (stream, session) = greet(address, Some(&self.session), self.last_zxid, asked, patience).await?;
        let back = if session.timeout_ms > 0 { Back::SameSession } else { Back::NewSession };
        (self.stream, self.session) = match back {
            Back::SameSession => (stream, session),
            Back::NewSession => greet(address, None, self.last_zxid, asked, patience).await?,
        };
        self.beat = beat(&self.session);
        self.beats_unheard = 0;
        Ok(back)
    }

    /// Returns the current server, or the last one.
    pub(super) fn address(&self) -> SocketAddr {
        self.servers[self.at]
    }

    /// Recovers as [`Link::reopen`] does, unless the server broke the protocol, which would only
    /// repeat.
    ///
    /// # Errors
    /// The server does not speak the protocol, or no server is reachable.
    pub(super) async fn recover(&mut self, broken: io::Error) -> Result<Back, String> {
        if broken.kind() == ErrorKind::InvalidData {
            return Err(format!("{} does not speak the protocol: {broken}", self.address()));
        }
        self.reopen().await
    }

    /// Waits for another future, and keeps the session alive meanwhile.
    ///
    /// # Errors
    /// The connection is broken.
    pub(super) async fn attend<T>(&mut self, elsewhere: impl Future<Output = T>) -> io::Result<T> {
        let mut elsewhere = pin!(elsewhere);
        loop {
            select! {
                biased;
                value = &mut elsewhere => return Ok(value),
                exchanged = self.exchange() => exchanged?,
            }
        }
    }

    /// Returns the number of the next request: positive, and 1 after the largest.
    pub(super) const fn next_xid(&mut self) -> i32 {
        self.last_xid = if self.last_xid == i32::MAX { 1 } else { self.last_xid + 1 };
        self.last_xid
    }

    /// Sends the bytes of `out`, and waits for input.
    ///
    /// The input may be less than a reply. Pings when there is nothing to send. Cancel-safe: the
    /// future may be dropped at any time.
    ///
    /// # Errors
    /// The connection is closed, or was silent for two thirds of the session timeout.
    pub(super) async fn exchange(&mut self) -> io::Result<()> {
        poll_fn(|context| self.poll_exchange(context)).await
    }

    fn poll_exchange(&mut self, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        loop {
            // A blocked write must not prevent reads: the server may be waiting for us to read.
            while !self.out.is_empty() {
                match Pin::new(&mut self.stream).poll_write(context, &self.out)? {
                    Poll::Ready(0) => return Poll::Ready(Err(ErrorKind::WriteZero.into())),
                    Poll::Ready(written) => self.out.advance(written),
                    Poll::Pending => break,
                }
                self.spoke = true;
            }
            if let Poll::Ready(read) = self.poll_read(context) {
                return Poll::Ready(read);
            }
            if self.beat.poll_tick(context).is_pending() {
                return Poll::Pending;
            }
            self.on_beat()?;
        }
    }

    fn poll_read(&mut self, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        if self.input.capacity() - self.input.len() < self.read_bytes / 2 {
            self.input.reserve(self.read_bytes);
        }
        let read = pin!(self.stream.read_buf(&mut self.input)).poll(context)?;
        read.map(|bytes| {
            if bytes == 0 {
                return Err(io::Error::new(ErrorKind::UnexpectedEof, "the server closed the connection"));
            }
            self.beats_unheard = 0;
            if self.input.len() == self.input.capacity() {
                self.read_bytes = READ_BYTES_MAX.min(self.read_bytes * 2);
            }
            Ok(())
        })
    }

    /// Checks for silence, and pings; called every third of the session timeout.
    fn on_beat(&mut self) -> io::Result<()> {
        self.beats_unheard += 1;
        if self.beats_unheard > 2 {
            return Err(io::Error::new(ErrorKind::TimedOut, "silent for two thirds of the session timeout"));
        }
        if !std::mem::take(&mut self.spoke) {
            encode_request(XID_PING, &Request::Ping, &mut self.out);
        }
        Ok(())
    }

    /// Returns the next complete reply, as its header and its bytes with the header.
    ///
    /// Watch events are queued, and answers to pings are dropped.
    ///
    /// # Errors
    /// The bytes violate the protocol.
    pub(super) fn next_reply(&mut self) -> io::Result<Option<(Header, &[u8])>> {
        loop {
            self.input.advance(std::mem::take(&mut self.taken));
            let Some(frame) = first_frame(&self.input, FRAME_BYTES_MAX).map_err(malformed)? else { return Ok(None) };
            let header = Header::of(frame).map_err(malformed)?;
            self.taken = 4 + frame.len();
            match header.xid {
                XID_EVENT => {
                    let event = decode_event(Bytes::copy_from_slice(frame)).map_err(malformed)?;
                    self.events.push_back(event);
                }
                XID_PING => {}
                _ => {
                    self.last_zxid = self.last_zxid.max(header.zxid);
                    return Ok(Some((header, &self.input[4..self.taken])));
                }
            }
        }
    }

    /// Sends a request, and returns its reply or the error code of its refusal.
    ///
    /// # Errors
    /// The connection is broken.
    pub(super) async fn ask(&mut self, request: &Request) -> io::Result<Result<Reply, i32>> {
        let xid = self.next_xid();
        encode_request(xid, request, &mut self.out);
        loop {
            if let Some((header, frame)) = self.next_reply()? {
                expect(xid, header)?;
                let frame = Bytes::copy_from_slice(frame);
                let (_, reply) = decode_reply(frame, Shape::of(request)).map_err(malformed)?;
                return Ok(reply.map_err(|_| header.error));
            }
            self.exchange().await?;
        }
    }

    /// Waits for the next watch event.
    ///
    /// # Errors
    /// The connection is broken.
    pub(super) async fn event(&mut self) -> io::Result<WatchEvent> {
        loop {
            if let Some((header, _)) = self.next_reply()? {
                return Err(unasked(header));
            }
            if let Some(event) = self.events.pop_front() {
                return Ok(event);
            }
            self.exchange().await?;
        }
    }

    /// Waits for the next watch event; `None` if the other future is ready first.
    ///
    /// # Errors
    /// The connection is broken.
    pub(super) async fn event_or<T>(&mut self, elsewhere: impl Future<Output = T>) -> io::Result<Option<WatchEvent>> {
        select! {
            biased;
            event = self.event() => event.map(Some),
            _ = elsewhere => Ok(None),
        }
    }

    /// Ends the session, so that its ephemerals are deleted at once.
    pub(super) async fn close(mut self) {
        encode_request(1, &Request::CloseSession, &mut self.out);
        let all_said = async {
            self.stream.write_all(&self.out).await?;
            // The server closes the connection after its answer.
            while self.stream.read_buf(&mut self.input).await? > 0 {
                self.input.clear();
            }
            io::Result::Ok(())
        };
        // If this fails, the session still expires.
        let _ = timeout(self.timeout_asked, all_said).await;
    }
}

/// Checks that a reply answers the expected request: ZooKeeper guarantees the order.
///
/// # Errors
/// The reply has another number.
pub(super) fn expect(xid: i32, header: Header) -> io::Result<()> {
    if header.xid == xid { Ok(()) } else { Err(unasked(header)) }
}

/// Returns the error for a reply without a matching request.
pub(super) fn unasked(header: Header) -> io::Error {
    io::Error::new(ErrorKind::InvalidData, format!("the reply {} is out of order", header.xid))
}

fn malformed(error: impl std::error::Error + Send + Sync + 'static) -> io::Error {
    io::Error::new(ErrorKind::InvalidData, error)
}

fn beat(session: &ConnectReply) -> Interval {
    let timeout_ms = u64::try_from(session.timeout_ms).unwrap_or(0);
    let mut beat = interval(Duration::from_millis((timeout_ms / 3).max(10)));
    beat.set_missed_tick_behavior(MissedTickBehavior::Delay);
    // The interval's first tick is immediate; skip it.
    beat.reset();
    beat
}

/// Returns the handshake timeout of the first round over the servers.
fn first_patience(servers: &[SocketAddr]) -> Duration {
    if servers.len() == 1 { HANDSHAKE_MAX } else { HANDSHAKE_MIN }
}

/// Connects and shakes hands; a refused session is returned with a timeout of 0.
async fn greet(
    address: SocketAddr,
    session: Option<&ConnectReply>,
    last_zxid_seen: i64,
    timeout_asked: Duration,
    patience: Duration,
) -> io::Result<(TcpStream, ConnectReply)> {
    let request = ConnectRequest {
        last_zxid_seen,
        timeout_ms: i32::try_from(timeout_asked.as_millis()).unwrap_or(i32::MAX),
        session: session.map_or(SessionId(0), |session| session.session),
        password: Some(
            session.map_or_else(|| Bytes::from_static(&[0; 16]), |session| Bytes::copy_from_slice(&session.secret.0)),
        ),
        read_only: Some(false),
    };
    let shake_hands = async {
        let mut stream = TcpStream::connect(address).await?;
        stream.set_nodelay(true)?;
        let mut out = BytesMut::new();
        encode_connect(&request, &mut out);
        stream.write_all(&out).await.map_err(turned_away)?;
        // Reads exactly the reply, because later bytes belong to the connection.
        let length = stream.read_u32().await.map_err(turned_away)?;
        let mut frame = vec![0; (length as usize).min(1024)];
        stream.read_exact(&mut frame).await.map_err(turned_away)?;
        io::Result::Ok((stream, decode_connect_reply(frame.into()).map_err(malformed)?))
    };
    let greeting = timeout(patience.min(timeout_asked), shake_hands).await;
    let (stream, reply) = greeting.map_err(|_| io::Error::from(ErrorKind::TimedOut))??;
    if reply.timeout_ms <= 0 && session.is_none() {
        return Err(io::Error::new(ErrorKind::ConnectionRefused, "the server refuses a new session"));
    }
    Ok((stream, reply))
}

/// Explains a close during the handshake, which is how a server enforces its bounds.
///
/// The error kind depends only on when this side notices the close.
fn turned_away(error: io::Error) -> io::Error {
    match error.kind() {
        ErrorKind::UnexpectedEof | ErrorKind::ConnectionReset | ErrorKind::BrokenPipe => io::Error::new(
            error.kind(),
            "it closed the new connection; has it reached its limit (maxClientCnxns, connections_per_address_max)?",
        ),
        _ => error,
    }
}
