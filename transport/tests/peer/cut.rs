//! A link whose path is cut.

use crate::servers::{Plan, Server, commit, entry, free_address, lines};
use std::net::{Ipv4Addr, SocketAddr, UdpSocket};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU16, Ordering::Relaxed};
use std::thread;
use std::time::{Duration, Instant};

/// QUIC's idle timeout, after which it closes a link by itself.
const QUIC_IDLE: Duration = Duration::from_secs(5);

/// A path to one server, for one dialler that knows the server by the path's address.
///
/// Its threads end with the process.
struct Path {
    address: SocketAddr,
    is_cut: Arc<AtomicBool>,
}

impl Path {
    fn to(server: SocketAddr) -> Self {
        let bind = || UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        let (front, back) = (bind(), bind());
        back.connect(server).unwrap();
        let address = front.local_addr().unwrap();
        let is_cut = Arc::new(AtomicBool::new(false));
        let dialler = Arc::new(AtomicU16::new(0));
        let (to_dialler, to_server) = (front.try_clone().unwrap(), back.try_clone().unwrap());
        carry(front, is_cut.clone(), {
            let dialler = dialler.clone();
            move |datagram, from| {
                dialler.store(from.port(), Relaxed);
                let _ = to_server.send(datagram);
            }
        });
        carry(back, is_cut.clone(), move |datagram, _| {
            let _ = to_dialler.send_to(datagram, (Ipv4Addr::LOCALHOST, dialler.load(Relaxed)));
        });
        Self { address, is_cut }
    }

    fn set_cut(&self, is_cut: bool) {
        self.is_cut.store(is_cut, Relaxed);
    }
}

/// Starts two servers, of which the second one knows the first one by a path.
fn pair() -> (Server, Path, Server) {
    let one = Plan::new(1).knows(2, &[]).start();
    let path = Path::to(one.address);
    let two = Plan::new(2).knows(1, &[&path.address.to_string()]).start();
    (one, path, two)
}

/// Hands each datagram of a socket to `deliver`, unless the path is cut.
fn carry(socket: UdpSocket, is_cut: Arc<AtomicBool>, deliver: impl Fn(&[u8], SocketAddr) + Send + 'static) {
    thread::spawn(move || {
        let mut datagram = vec![0; usize::from(u16::MAX)];
        loop {
            // An error reports that the other port is closed.
            let Ok((bytes, from)) = socket.recv_from(&mut datagram) else { continue };
            if !is_cut.load(Relaxed) {
                deliver(&datagram[..bytes], from);
            }
        }
    });
}

/// Regression: after a cut of 3 s, one end of a link sent nothing until the link ended by QUIC's idle
/// timeout. The leader was lost meanwhile, and neither follower knew that the other missed it too.
#[test]
fn cut_link_with_unacknowledged_messages_ends_before_quics_idle_timeout() {
    let (one, path, two) = pair();
    for round in 1..=3 {
        let (to_two, to_one) = (one.linked(2), two.linked(1));
        two.send(1, to_one, commit(round));
        assert_eq!(one.messages(2, to_two, 1), [commit(round)]);

        path.set_cut(true);
        let cut = Instant::now();
        // More than a congestion window, so that QUIC may send nothing else.
        for number in 0..100 {
            one.send(2, to_two, entry(number, 10_000));
        }
        one.unlinked(2, to_two);
        let took = cut.elapsed();
        assert!(took >= Duration::from_secs(1), "a live peer may need a second to answer: {took:?}");
        assert!(took < QUIC_IDLE, "{took:?}");
        path.set_cut(false);

        // The other end sent nothing, so it has not noticed. The new link replaces its old one.
        two.unlinked(1, to_one);
    }
    let (to_two, to_one) = (one.linked(2), two.linked(1));
    one.send(2, to_two, commit(4));
    two.send(1, to_one, commit(4));
    assert_eq!(one.messages(2, to_two, 1), [commit(4)]);
    assert_eq!(two.messages(1, to_one, 1), [commit(4)]);
}

/// A message that follows a received one closely counts as a question once QUIC repeats it.
#[test]
fn cut_link_with_one_unacknowledged_message_ends_before_quics_idle_timeout() {
    let (one, path, two) = pair();
    for round in 1..=3 {
        let (to_two, to_one) = (one.linked(2), two.linked(1));
        two.send(1, to_one, commit(round));
        one.messages(2, to_two, 1);
        path.set_cut(true);
        let cut = Instant::now();
        one.send(2, to_two, commit(round));
        one.unlinked(2, to_two);
        let took = cut.elapsed();
        assert!(took < QUIC_IDLE, "{took:?}");
        path.set_cut(false);
        two.unlinked(1, to_one);
    }
}

/// Regression: the reason told the operator to open UDP, although there had been a link.
#[test]
fn loss_of_a_linked_peer_is_not_blamed_on_a_firewall() {
    lines::keep();
    let (_one, path, two) = pair();
    let to_one = two.linked(1);
    path.set_cut(true);
    two.unlinked(1, to_one);
    let line = two.refusal(1, "no UDP reply");
    let address = path.address;
    // The log is told 10 s later, because a peer that restarts is no fault.
    let logged = format!("no UDP reply from {address} ");
    assert_eq!(lines::with(&[&logged]), [""; 0]);
    assert_eq!(line, format!("no UDP reply from {address} since the link ended: server 1 is down or unreachable"));
    lines::wait(&[&logged]);
}

/// The peer dialled this server, so the configured address may never have been right.
#[test]
fn address_that_never_answered_is_suspected_after_a_link_from_elsewhere() {
    let nobody = free_address();
    let one = Plan::new(1).knows(2, &[&nobody.to_string()]).start();
    let two = Plan::new(2).knows(1, &[&one.address.to_string()]).start();
    one.linked(2);
    drop(two);
    let line = one.refusal(2, "no UDP reply");
    assert!(line.contains(&format!("open UDP {}", nobody.port())), "{line}");
}
