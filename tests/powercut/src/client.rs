//! A blocking client that keeps many requests in flight.

use bytes::{Bytes, BytesMut};
use std::io::{self, ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::{Duration, Instant};
use zoolet_model::{ConnectReply, ConnectRequest, ErrorCode, Reply, Request, SessionId};
use zoolet_transport::wire::client_side::{
    Header, Shape, decode_connect_reply, decode_reply, encode_connect, encode_request,
};
use zoolet_transport::wire::split_frame;

/// Longer than any run, so that no session expires because the harness is slow.
pub const SESSION_TIMEOUT_MS: i32 = 3_600_000;

const FRAME_BYTES_MAX: usize = 64 << 20;

/// The xid of pings and of their answers.
const PING_XID: i32 = -2;

/// Outcome of a connect request.
pub enum Joined {
    /// The session exists.
    Client(Client),
    /// The session to resume has ended.
    Refused,
    /// The connection closed before the server answered.
    Gone,
}

/// One connection.
pub struct Client {
    stream: TcpStream,
    incoming: BytesMut,
    outgoing: BytesMut,
    next_xid: i32,
    /// The session that the server granted.
    pub session: ConnectReply,
}

impl Client {
    /// Opens or resumes a session; `None` if refused or the server is gone.
    ///
    /// # Errors
    /// The connection cannot be made, or the reply is malformed.
    pub fn connect(
        address: SocketAddr,
        session: Option<&ConnectReply>,
        patience: Duration,
    ) -> io::Result<Option<Self>> {
        match Self::join(address, session, SESSION_TIMEOUT_MS, patience)? {
            Joined::Client(client) => Ok(Some(client)),
            Joined::Refused | Joined::Gone => Ok(None),
        }
    }

    /// Opens a session that asks to read only; `None` if refused or the server is gone.
    ///
    /// # Errors
    /// As [`Client::connect`].
    pub fn read_only(address: SocketAddr, patience: Duration) -> io::Result<Option<Self>> {
        match Self::shake_hands(address, None, SESSION_TIMEOUT_MS, true, patience)? {
            Joined::Client(client) => Ok(Some(client)),
            Joined::Refused | Joined::Gone => Ok(None),
        }
    }

    /// As [`Client::connect`], with a session timeout and a distinct result for a refusal.
    ///
    /// `patience` bounds every later wait too.
    ///
    /// # Errors
    /// As [`Client::connect`].
    pub fn join(
        address: SocketAddr,
        session: Option<&ConnectReply>,
        timeout_ms: i32,
        patience: Duration,
    ) -> io::Result<Joined> {
        Self::shake_hands(address, session, timeout_ms, false, patience)
    }

    fn shake_hands(
        address: SocketAddr,
        session: Option<&ConnectReply>,
        timeout_ms: i32,
        read_only: bool,
        patience: Duration,
    ) -> io::Result<Joined> {
        let mut stream = TcpStream::connect_timeout(&address, patience)?;
        stream.set_read_timeout(Some(patience))?;
        stream.set_write_timeout(Some(patience))?;
        stream.set_nodelay(true)?;
        let request = ConnectRequest {
            last_zxid_seen: 0,
            timeout_ms,
            session: session.map_or(SessionId(0), |session| session.session),
            password: session.map(|session| Bytes::copy_from_slice(&session.secret.0)),
            read_only: Some(read_only),
        };
        let mut outgoing = BytesMut::new();
        encode_connect(&request, &mut outgoing);
        let mut incoming = BytesMut::new();
        if !went(stream.write_all(&outgoing))? {
            return Ok(Joined::Gone);
        }
        let Some(frame) = read_frame(&mut stream, &mut incoming)? else { return Ok(Joined::Gone) };
        let session = decode_connect_reply(frame).map_err(|_| invalid("no connect reply"))?;
        if session.session == SessionId(0) {
            return Ok(Joined::Refused);
        }
        outgoing.clear();
        Ok(Joined::Client(Self { stream, incoming, outgoing, next_xid: 1, session }))
    }

    /// Encodes a request for the next [`Client::flush`]; returns its xid.
    pub fn queue(&mut self, request: &Request) -> i32 {
        let xid = self.next_xid;
        self.next_xid += 1;
        encode_request(xid, request, &mut self.outgoing);
        xid
    }

    /// Sends the queued requests; false when the server is gone.
    ///
    /// # Errors
    /// Any error except a connection that ended.
    pub fn flush(&mut self) -> io::Result<bool> {
        let sent = went(self.stream.write_all(&self.outgoing));
        self.outgoing.clear();
        sent
    }

    /// Receives the next reply, to a request of this shape; `None` at the end.
    ///
    /// # Errors
    /// A malformed reply, or a timeout.
    pub fn receive(&mut self, shape: Shape) -> io::Result<Option<(Header, Result<Reply, ErrorCode>)>> {
        loop {
            let Some(frame) = read_frame(&mut self.stream, &mut self.incoming)? else { return Ok(None) };
            if !frame.starts_with(&PING_XID.to_be_bytes()) {
                return decode_reply(frame, shape).map(Some).map_err(|_| invalid("a reply that is none"));
            }
        }
    }

    /// Sends one request and receives its reply; `None` when the server is gone.
    ///
    /// # Errors
    /// As [`Client::receive`].
    pub fn ask(&mut self, request: &Request) -> io::Result<Option<(Header, Result<Reply, ErrorCode>)>> {
        self.queue(request);
        if self.flush()? { self.receive(Shape::of(request)) } else { Ok(None) }
    }

    /// As [`Client::ask`], but keeps the session alive for up to `patience`.
    ///
    /// It pings three times per session timeout, as ZooKeeper's clients do.
    ///
    /// # Errors
    /// As [`Client::receive`].
    pub fn ask_and_ping(
        &mut self,
        request: &Request,
        patience: Duration,
    ) -> io::Result<Option<(Header, Result<Reply, ErrorCode>)>> {
        let (until, usual) = (Instant::now() + patience, self.stream.read_timeout()?);
        let interval_ms = u64::try_from(self.session.timeout_ms).map_or(1, |timeout_ms| (timeout_ms / 3).max(1));
        self.stream.set_read_timeout(Some(Duration::from_millis(interval_ms)))?;
        let mut answer = self.ask(request);
        while let Err(error) = &answer
            && matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut)
            && Instant::now() < until
        {
            encode_request(PING_XID, &Request::Ping, &mut self.outgoing);
            answer = if self.flush()? { self.receive(Shape::of(request)) } else { Ok(None) };
        }
        self.stream.set_read_timeout(usual)?;
        answer
    }
}

/// Returns the answer to a four-letter word.
///
/// # Errors
/// Any error of the connection.
pub fn word(address: SocketAddr, word: &str, patience: Duration) -> io::Result<String> {
    let mut stream = TcpStream::connect_timeout(&address, patience)?;
    stream.set_read_timeout(Some(patience))?;
    stream.write_all(word.as_bytes())?;
    let mut text = String::new();
    stream.read_to_string(&mut text)?;
    Ok(text)
}

fn went(outcome: io::Result<()>) -> io::Result<bool> {
    match outcome {
        Ok(()) => Ok(true),
        Err(error) if is_end(&error) => Ok(false),
        Err(error) => Err(error),
    }
}

fn is_end(error: &io::Error) -> bool {
    matches!(error.kind(), ErrorKind::ConnectionReset | ErrorKind::BrokenPipe | ErrorKind::ConnectionAborted)
}

fn invalid(what: &str) -> io::Error {
    io::Error::new(ErrorKind::InvalidData, what)
}

/// Reads the next frame; `None` at the end of the stream.
fn read_frame(stream: &mut TcpStream, buffer: &mut BytesMut) -> io::Result<Option<Bytes>> {
    let mut bytes = [0; 64 << 10];
    loop {
        if let Some(frame) = split_frame(buffer, FRAME_BYTES_MAX).map_err(|_| invalid("a frame that is none"))? {
            return Ok(Some(frame));
        }
        match stream.read(&mut bytes) {
            Ok(0) => return Ok(None),
            Ok(count) => buffer.extend_from_slice(&bytes[..count]),
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            Err(error) if is_end(&error) => return Ok(None),
            Err(error) => return Err(error),
        }
    }
}
