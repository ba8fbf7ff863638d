//! A proxy between a client and a server, which loses connections as a test wants.

#![allow(clippy::unwrap_used, reason = "tests stop at the first surprise")]

use crate::support::*;
use std::io::{ErrorKind, Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::Duration;

/// The fate of a request.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Fate {
    Forwarded,
    /// The connection ends before the server gets the request; the next one is accepted.
    Lost,
    /// The server carries the request out, and the connection ends before its answer.
    Unanswered,
    /// As lost, and later connections are refused until [`Proxy::mend`].
    Cut,
    /// The proxy answers with this error code, in place of the server.
    Refused(i32),
}

/// Chooses the fate of a request by its opcode, on all connections.
type Choose = Box<dyn FnMut(i32) -> Fate + Send>;

struct Shared {
    server: SocketAddr,
    choose: Mutex<Choose>,
    is_open: AtomicBool,
    is_listening: AtomicBool,
    is_gone: AtomicBool,
    streams: Mutex<Vec<TcpStream>>,
}

pub(crate) struct Proxy {
    pub(crate) address: String,
    shared: Arc<Shared>,
}

impl Proxy {
    pub(crate) fn start(server: &Server, choose: impl FnMut(i32) -> Fate + Send + 'static) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap().to_string();
        let shared = Arc::new(Shared {
            server: server.address,
            choose: Mutex::new(Box::new(choose)),
            is_open: AtomicBool::new(true),
            is_listening: AtomicBool::new(true),
            is_gone: AtomicBool::new(false),
            streams: Mutex::default(),
        });
        let (listening, bound) = (shared.clone(), address.clone());
        thread::spawn(move || listen(&listening, &bound, listener));
        Self { address, shared }
    }

    /// Ends all connections, and refuses new ones.
    pub(crate) fn cut(&self) {
        self.shared.cut();
        eventually("a closed port", || !self.shared.is_listening.load(Ordering::SeqCst));
        // One may have been accepted meanwhile.
        self.shared.cut();
    }

    /// Accepts connections again.
    pub(crate) fn mend(&self) {
        self.shared.is_open.store(true, Ordering::SeqCst);
        eventually("an open port", || self.shared.is_listening.load(Ordering::SeqCst));
    }
}

impl Drop for Proxy {
    fn drop(&mut self) {
        self.shared.is_gone.store(true, Ordering::SeqCst);
        self.shared.cut();
    }
}

impl Shared {
    fn cut(&self) {
        self.is_open.store(false, Ordering::SeqCst);
        for stream in self.streams.lock().unwrap().drain(..) {
            let _ = stream.shutdown(Shutdown::Both);
        }
    }
}

/// Accepts connections while the proxy is open.
fn listen(shared: &Arc<Shared>, address: &str, first: TcpListener) {
    let mut listener = Some(first);
    while !shared.is_gone.load(Ordering::SeqCst) {
        match &listener {
            _ if !shared.is_open.load(Ordering::SeqCst) => listener = None,
            None => listener = Some(TcpListener::bind(address).unwrap()),
            Some(open) => {
                open.set_nonblocking(true).unwrap();
                match open.accept() {
                    Ok((client, _)) => forward(shared, client),
                    Err(error) => assert_eq!(error.kind(), ErrorKind::WouldBlock),
                }
            }
        }
        shared.is_listening.store(listener.is_some(), Ordering::SeqCst);
        thread::sleep(Duration::from_millis(5));
    }
}

fn forward(shared: &Arc<Shared>, client: TcpStream) {
    client.set_nonblocking(false).unwrap();
    let server = TcpStream::connect(shared.server).unwrap();
    let both = || (client.try_clone().unwrap(), server.try_clone().unwrap());
    let (one, other) = both();
    shared.streams.lock().unwrap().extend([one, other]);
    // The number of the request that gets no answer.
    let (last, back) = (Arc::new(AtomicUsize::new(usize::MAX)), Arc::new(Mutex::new(client.try_clone().unwrap())));
    let (from, to, limit) = (both(), back.clone(), last.clone());
    thread::spawn(move || {
        answers(&from.1, &to, &limit);
        let _ = (from.0.shutdown(Shutdown::Both), from.1.shutdown(Shutdown::Both));
    });
    let (from, shared) = (both(), shared.clone());
    thread::spawn(move || {
        requests(&shared, &from, &back, &last);
        // The answer to the last request may still have to come.
        if last.load(Ordering::SeqCst) == usize::MAX {
            let _ = (from.0.shutdown(Shutdown::Both), from.1.shutdown(Shutdown::Both));
        }
    });
}

fn requests(shared: &Shared, (client, server): &(TcpStream, TcpStream), back: &Mutex<TcpStream>, last: &AtomicUsize) {
    let mut server = server;
    // The first frame opens the session, and has no opcode.
    let mut number = 0;
    while let Some(frame) = frame(client) {
        let opcode = i32::from_be_bytes(frame[8..12].try_into().unwrap());
        let fate = if number == 0 { Fate::Forwarded } else { (shared.choose.lock().unwrap())(opcode) };
        match fate {
            Fate::Forwarded => {}
            Fate::Lost => return,
            Fate::Cut => return shared.cut(),
            Fate::Unanswered => last.store(number, Ordering::SeqCst),
            Fate::Refused(code) => {
                let answer: [&[u8]; 4] = [&16_u32.to_be_bytes(), &frame[4..8], &[0; 8], &code.to_be_bytes()];
                back.lock().unwrap().write_all(&answer.concat()).unwrap();
                continue;
            }
        }
        if server.write_all(&frame).is_err() || fate == Fate::Unanswered {
            return;
        }
        number += 1;
    }
}

/// Passes on the answers to the requests before the last one, and all watch events.
fn answers(server: &TcpStream, back: &Mutex<TcpStream>, last: &AtomicUsize) {
    let mut number = 0;
    while let Some(frame) = frame(server) {
        let is_event = number > 0 && frame[4..8] == (-1_i32).to_be_bytes();
        if !is_event && number == last.load(Ordering::SeqCst) {
            return;
        }
        number += usize::from(!is_event);
        if back.lock().unwrap().write_all(&frame).is_err() {
            return;
        }
    }
}

/// Reads the next frame with its length; `None` at the end.
fn frame(mut stream: &TcpStream) -> Option<Vec<u8>> {
    let mut frame = vec![0; 4];
    stream.read_exact(&mut frame).ok()?;
    let length = u32::from_be_bytes(frame[..4].try_into().unwrap()) as usize;
    // A four-letter word would be a long frame.
    if length > 64 << 20 {
        return None;
    }
    frame.resize(4 + length, 0);
    stream.read_exact(&mut frame[4..]).ok()?;
    Some(frame)
}
