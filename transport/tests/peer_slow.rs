//! A peer that does not read, and the others.
#![cfg(feature = "peer")]
#![allow(clippy::unwrap_used, reason = "a test stops at the first surprise")]

mod servers;

use servers::stranger::Stranger;
use servers::{Plan, commit, entry, id, link_of};
use std::time::{Duration, Instant};
use zoolet_engine::Event;
use zoolet_engine::budget::Part;
use zoolet_transport::peer::Instruction;

#[test]
fn a_peer_that_does_not_read_is_dropped_and_the_others_are_not_hurt() {
    let one = Plan::new(1).knows(2, &[]).knows(3, &[]).start();
    let three = Plan::new(3).knows(1, &[&one.address.to_string()]).start();
    let (to_three, of_three) = (one.linked(3), three.linked(1));
    let address = one.address;
    std::thread::spawn(move || {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(async {
            let _link = Stranger::new().link(2, 1, address).await;
            // Its QUIC is well and acknowledges, to the end of the test.
            std::future::pending::<()>().await;
        });
    });
    let to_two = one.linked(2);

    let until = Instant::now() + servers::PATIENCE;
    let is_linked = || one.told.wait("", |events| Some(link_of(events, id(2)).is_some()));
    let waiting = || one.budget.current(Part::Links);
    let mut number = 0;
    while is_linked() {
        assert!(Instant::now() < until, "it is never dropped");
        number += 1;
        // More than all windows together take, and then a little all the time, as heartbeats are.
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
    // What waited is given back with the link.
    while waiting() > 0 {
        assert!(Instant::now() < until, "{} bytes wait for nobody", waiting());
        std::thread::sleep(Duration::from_millis(20));
    }
}

#[test]
fn more_than_may_wait_for_one_lane_closes_the_link_at_once() {
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
