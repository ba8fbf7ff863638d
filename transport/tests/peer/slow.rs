//! A peer that does not read must not delay the others.
#![allow(
    clippy::print_stdout,
    clippy::unwrap_used,
    reason = "a test stops at the first surprise, and a measurement prints"
)]

use crate::servers::stranger::Stranger;
use crate::servers::{Plan, Server, commit, entry, id, link_of, ping};
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};
use zoolet_machine::Event;
use zoolet_machine::budget::Part;
use zoolet_machine::seam::peer::LinkId;
use zoolet_transport::peer::Instruction;

#[test]
fn peer_that_does_not_read_loses_only_its_own_link() {
    let one = Plan::new(1).knows(2, &[]).knows(3, &[]).start();
    let three = Plan::new(3).knows(1, &[&one.address.to_string()]).start();
    let (to_three, of_three) = (one.linked(3), three.linked(1));
    let address = one.address;
    std::thread::spawn(move || {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(async {
            let _link = Stranger::new().link(2, 1, address).await;
            // Its QUIC stack keeps acknowledging until the test ends.
            std::future::pending::<()>().await;
        });
    });
    let to_two = one.linked(2);

    let until = Instant::now() + crate::servers::PATIENCE;
    let is_linked = || one.told.wait("", |events| Some(link_of(events, id(2)).is_some()));
    let waiting = || one.budget.current(Part::Links);
    let mut number = 0;
    while is_linked() {
        assert!(Instant::now() < until, "it is never dropped");
        number += 1;
        // The first 11 entries exceed all windows together. Small ones follow at a steady pace,
        // like heartbeats.
        let bytes = if number < 12 { 4 << 20 } else { 100 };
        one.send(2, to_two, entry(number, bytes));
        one.send(3, to_three, commit(number));
        assert_eq!(three.messages(1, of_three, number as usize).len(), number as usize);
        std::thread::sleep(Duration::from_millis(20));
    }
    let peak = one.budget.snapshot()[Part::Links as usize].peak;
    assert!(peak > 16 << 20 && peak <= one.budget.limit(Part::Links), "{peak}");
    one.send(3, to_three, commit(number + 1));
    three.messages(1, of_three, number as usize + 1);
    assert_eq!(one.told.count(|event| matches!(event, Event::PeerDown { .. })), 1);
    // The queued bytes are released with the link.
    while waiting() > 0 {
        assert!(Instant::now() < until, "{} bytes wait for nobody", waiting());
        std::thread::sleep(Duration::from_millis(20));
    }
}

#[test]
fn link_closes_at_once_above_the_queue_limit_of_a_lane() {
    let mut plan = Plan::new(1).knows(2, &[]);
    plan.lane_bytes_max = 1 << 20;
    let one = plan.start();
    let _two = Plan::new(2).knows(1, &[&one.address.to_string()]).start();
    let link = one.linked(2);
    one.send(2, link, entry(1, 1 << 19));
    let too_much = [entry(2, 1 << 20), entry(3, 1 << 10)];
    one.push(too_much.map(|message| Instruction::Send { peer: id(2), link, message }).into());
    one.unlinked(2, link);
}

/// Measures the delay of heartbeats while a stranger begins 1,000 handshakes a second.
///
/// docs/explanation/measurements.md has the results.
///
/// `cargo test -p zoolet-transport --test peer slow:: -- --ignored --nocapture`
#[test]
#[ignore = "measures"]
fn heartbeat_delay_beside_a_stranger_looping_handshakes() {
    let one = Plan::new(1).knows(2, &[]).start();
    let two = Plan::new(2).knows(1, &[&one.address.to_string()]).start();
    let link = one.linked(2);
    two.linked(1);
    let lateness = |what: &str| {
        let mut late: Vec<Duration> = (0..500).map(|round| round_trip(&one, link, &two, round)).collect();
        late.sort_unstable();
        println!("{what}: p50 {:?}, p99 {:?}, most {:?}", late[250], late[495], late[499]);
    };
    lateness("alone");
    let (stop, over) = tokio::sync::oneshot::channel::<()>();
    let address = one.address;
    let stranger = std::thread::spawn(move || knock(address, over));
    lateness("beside the stranger");
    stop.send(()).unwrap();
    let (begun, heard, took) = stranger.join().unwrap();
    println!("{begun} handshakes were begun and {heard} completed in {took:?}");
}

/// Sends a heartbeat to server 2 after a pause; returns the time until it arrived.
fn round_trip(one: &Server, link: LinkId, two: &Server, round: u64) -> Duration {
    std::thread::sleep(Duration::from_millis(20));
    two.told.take();
    let sent = Instant::now();
    one.send(2, link, ping(round));
    two.told.wait("a heartbeat", |events| {
        events.iter().any(|event| matches!(event, Event::PeerMessage { .. })).then_some(())
    });
    sent.elapsed()
}

/// Begins a handshake each millisecond, and closes each one that completes.
///
/// Returns the number begun, the number completed, and the time.
fn knock(address: SocketAddr, over: tokio::sync::oneshot::Receiver<()>) -> (usize, usize, Duration) {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let began = Instant::now();
    let counted = runtime.block_on(async {
        let stranger = Arc::new(Stranger::new());
        let (mut knocks, mut begun, mut heard) = (tokio::task::JoinSet::new(), 0, 0);
        let mut pace = tokio::time::interval(Duration::from_millis(1));
        let mut over = std::pin::pin!(over);
        loop {
            tokio::select! {
                _ = &mut over => return (begun, heard),
                _ = pace.tick() => {
                    begun += 1;
                    let stranger = stranger.clone();
                    knocks.spawn(async move {
                        let connecting = tokio::time::timeout(Duration::from_millis(100), stranger.connect(address));
                        connecting.await.is_ok_and(|met| met.map(|met| met.close(0u32.into(), b"")).is_ok())
                    });
                }
                Some(ended) = knocks.join_next() => heard += usize::from(ended.unwrap()),
            }
        }
    });
    (counted.0, counted.1, began.elapsed())
}
