//! Links between servers over loopback: creation, traffic and end.
#![allow(clippy::unwrap_used, reason = "a test stops at the first surprise")]

use crate::servers::{Plan, Server, commit, entry, free_address, id, lines, ping, plans};
use std::time::Duration;
use zoolet_machine::Event;
use zoolet_machine::seam::peer::PeerMessage;
use zoolet_transport::peer::Instruction;

/// Starts two servers, of which only `dialler` knows the other's address.
fn pair(dialler: u8) -> (Server, Server) {
    let acceptor = 3 - dialler;
    let there = Plan::new(acceptor).knows(dialler, &[]).start();
    let here = Plan::new(dialler).knows(acceptor, &[&there.address.to_string()]).start();
    if dialler == 1 { (here, there) } else { (there, here) }
}

#[test]
fn either_side_may_dial() {
    for dialler in [1, 2] {
        let (one, two) = pair(dialler);
        let (to_two, to_one) = (one.linked(2), two.linked(1));
        one.send(2, to_two, commit(1));
        two.send(1, to_one, commit(2));
        assert_eq!(two.messages(1, to_one, 1), [commit(1)]);
        assert_eq!(one.messages(2, to_two, 1), [commit(2)]);
    }
}

#[test]
fn host_name_is_resolved_past_an_unresolvable_name() {
    let there = Plan::new(1).knows(2, &[]).start();
    let here =
        Plan::new(2).knows(1, &["no.such.name.invalid:1", &format!("localhost:{}", there.address.port())]).start();
    here.linked(1);
    there.linked(2);
}

#[test]
fn heartbeats_travel_as_datagrams() {
    let (one, two) = pair(1);
    let (to_two, to_one) = (one.linked(2), two.linked(1));
    // A datagram may be lost, but not all of them.
    for round in 1..=100 {
        one.send(2, to_two, ping(round));
    }
    let came = two.messages(1, to_one, 1);
    assert!(matches!(&came[0], PeerMessage::Zab(message) if message.is_datagram()), "{came:?}");
}

#[test]
fn small_messages_arrive_in_order() {
    let (one, two) = pair(2);
    let (to_two, to_one) = (one.linked(2), two.linked(1));
    for batch in 0..100 {
        let send = |number| Instruction::Send { peer: id(2), link: to_two, message: commit(number) };
        one.push((batch * 100..(batch + 1) * 100).map(send).collect());
    }
    let came = two.messages(1, to_one, 10_000);
    assert!(came.iter().eq(&(0..10_000).map(commit).collect::<Vec<_>>()));
}

#[test]
fn large_messages_arrive_whole_and_in_order() {
    let (one, two) = pair(1);
    let (to_two, to_one) = (one.linked(2), two.linked(1));
    for number in 1..=4 {
        one.send(2, to_two, entry(number, 4 << 20));
        one.send(2, to_two, commit(number));
    }
    let came = two.messages(1, to_one, 8);
    let sent: Vec<_> = (1..=4).flat_map(|number| [entry(number, 4 << 20), commit(number)]).collect();
    assert!(came == sent);
}

#[test]
fn servers_dialling_each_other_keep_a_single_link_each() {
    for _ in 0..20 {
        let plans = plans::<3>();
        let servers = plans.each_ref().map(Plan::start);
        for server in &servers {
            for peer in (1..=3).filter(|peer| *peer != server.id) {
                server.linked(peer);
            }
        }
        // Time for all other connection attempts to end.
        std::thread::sleep(Duration::from_millis(300));
        for server in &servers {
            let ups = server.told.count(|event| matches!(event, Event::PeerUp { .. }));
            let downs = server.told.count(|event| matches!(event, Event::PeerDown { .. }));
            assert_eq!((ups, downs), (2, 0), "server {}", server.id);
        }
        for (sender, receiver) in [(0, 1), (1, 2), (2, 0)] {
            let (from, to) = (&servers[sender], &servers[receiver]);
            from.send(to.id, from.linked(to.id), commit(7));
            assert_eq!(to.messages(from.id, to.linked(from.id), 1), [commit(7)]);
        }
    }
}

#[test]
fn every_link_has_a_unique_number_and_ends_once() {
    let (one, two) = pair(1);
    let (first, of_two) = (one.linked(2), two.linked(1));
    one.push(vec![Instruction::Close { peer: id(2), link: first, reason: "a test" }]);
    one.unlinked(2, first);
    two.unlinked(1, of_two);
    let second = one.linked(2);
    assert!(second > first);
    // A message sent on the closed link is dropped.
    let of_two = two.linked(1);
    one.send(2, first, commit(1));
    one.send(2, second, commit(2));
    assert_eq!(two.messages(1, of_two, 1), [commit(2)]);
    let ends = one.told.count(|event| matches!(event, Event::PeerDown { .. }));
    assert_eq!(ends, 1);
}

#[test]
fn messages_sent_before_a_shutdown_arrive() {
    let (one, two) = pair(1);
    let (to_two, to_one) = (one.linked(2), two.linked(1));
    for number in 1..=200 {
        one.send(2, to_two, entry(number, 10_000));
    }
    drop(one);
    assert_eq!(two.messages(1, to_one, 200).len(), 200);
    two.unlinked(1, to_one);
}

#[test]
fn killed_server_is_linked_again_after_its_restart() {
    let plans = plans::<2>();
    let one = plans[0].start();
    let mut two = plans[1].start();
    for round in 0..3 {
        let (to_two, to_one) = (one.linked(2), two.linked(1));
        assert_eq!(one.told.count(|event| matches!(event, Event::PeerUp { .. })), round + 1);
        one.send(2, to_two, commit(1));
        assert_eq!(two.messages(1, to_one, 1), [commit(1)]);
        two.kill();
        let mut plan = plans[1].clone();
        plan.process += 1 + round as u64;
        two = plan.start();
        one.unlinked(2, to_two);
    }
    one.linked(2);
}

#[test]
fn members_address_leading_to_this_server_is_logged_and_not_linked() {
    lines::keep();
    let address = free_address();
    let mut plan = Plan::new(1).knows(2, &[&address.to_string()]);
    plan.listen = address;
    let one = plan.start();
    let line = one.refusal(2, "is this server's own address");
    assert!(line.contains(&address.to_string()) && line.contains("server 2"), "{line}");
    std::thread::sleep(Duration::from_secs(1));
    assert_eq!(one.told.count(|_| true), 0);
    assert_eq!(lines::with(&[&address.to_string()]), [line + " "]);
}

#[test]
fn learned_address_links_when_the_configured_address_is_wrong() {
    let directory = std::env::temp_dir().join(format!("zoolet-hints-{}", std::process::id()));
    std::fs::create_dir_all(&directory).unwrap();
    let file = directory.join("hints");
    let [one, two] = plans::<2>();
    let nowhere = free_address().to_string();
    let mut one = one;
    one.members = vec![(2, vec![nowhere], None)];
    one.hints = Some(file.clone());
    // The other server dials, and its address is remembered.
    {
        let (one, two) = (one.start(), two.start());
        one.linked(2);
        two.linked(1);
        let until = std::time::Instant::now() + crate::servers::PATIENCE;
        while !std::fs::read_to_string(&file).is_ok_and(|text| text == format!("2 {}\n", two.address)) {
            assert!(std::time::Instant::now() < until, "{:?}", std::fs::read_to_string(&file));
            std::thread::sleep(Duration::from_millis(10));
        }
    }
    let at = two.listen;
    let mut forgetful = two.again(at);
    forgetful.members = vec![(1, vec![], None)];
    let (one, two) = (
        {
            let at = one.listen;
            one.again(at).start()
        },
        forgetful.start(),
    );
    one.linked(2);
    two.linked(1);
    drop((one, two));
    std::fs::remove_dir_all(&directory).unwrap();
}

#[test]
fn silent_links_stay_up() {
    let (one, two) = pair(1);
    let (to_two, to_one) = (one.linked(2), two.linked(1));
    // Longer than the idle timeout of a connection.
    std::thread::sleep(Duration::from_secs(8));
    assert_eq!((one.linked(2), two.linked(1)), (to_two, to_one));
    let figures = &one.table.figures()[&id(2)];
    assert!(figures.is_linked && figures.round_trip_us > 0 && figures.links == 1, "{figures:?}");
    assert!(figures.bytes_sent > 0 && figures.bytes_received > 0, "{figures:?}");
}
