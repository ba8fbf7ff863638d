use super::*;
use crate::ensemble::{Agenda, MS, Rank, SECOND};

const IDLE: u64 = 3 * SECOND;
const NONE: [u32; 0] = [];

struct Net {
    links: SimLinks<u32>,
    agenda: Agenda<Flight<u32>>,
    heard: Vec<Landed<u32>>,
}

fn id(number: u8) -> ServerId {
    ServerId::new(number).unwrap()
}

impl Net {
    fn new(seed: u64, path: impl FnMut(ServerId, ServerId, &mut Random) -> Path) -> Self {
        let network =
            Network { idle_timeout_us: IDLE, dial_us: 20 * MS, dial_us_max: SECOND, has_stateless_resets: false };
        let mut net = Self {
            links: SimLinks::new(&[id(1), id(2)], network, Random::new(seed), path),
            agenda: Agenda::default(),
            heard: Vec::new(),
        };
        net.links.start(0, id(1), 11);
        net.links.start(0, id(2), 21);
        net
    }

    fn lan(seed: u64) -> Self {
        Self::new(seed, |_, _, _| Path::lan())
    }

    /// Returns two linked servers, with all earlier events discarded.
    fn linked(seed: u64) -> Self {
        let mut net = Self::lan(seed);
        net.run(SECOND);
        net.heard.clear();
        net
    }

    fn run(&mut self, until_us: u64) {
        loop {
            while let Some((at_us, flight)) = self.links.poll_flight() {
                self.agenda.at(at_us, Rank::News, flight);
            }
            while let Some(landed) = self.links.poll_landed() {
                self.heard.push(landed);
            }
            let Some(flight) = self.agenda.next(until_us) else { return };
            self.links.land(self.agenda.now_us(), flight);
        }
    }

    fn link(&self, at: u8) -> LinkId {
        self.links.link(id(at), id(3 - at)).unwrap()
    }

    fn say(&mut self, from: u8, carrier: Carrier, messages: std::ops::Range<u32>) {
        let link = self.link(from);
        for message in messages {
            self.links.send(self.agenda.now_us(), id(from), link, carrier, message);
        }
    }

    fn messages(&self, at: u8) -> Vec<u32> {
        let heard = self.heard.iter().filter(|landed| landed.at() == id(at));
        heard
            .filter_map(|landed| match landed {
                Landed::Message { message, .. } => Some(*message),
                Landed::Up { .. } | Landed::Down { .. } => None,
            })
            .collect()
    }

    fn downs(&self, at: u8) -> usize {
        self.heard.iter().filter(|landed| matches!(landed, Landed::Down { at: who, .. } if *who == id(at))).count()
    }
}

#[test]
fn two_processes_that_both_dial_keep_one_link() {
    for seed in 0..200 {
        let mut net = Net::lan(seed);
        net.run(SECOND);
        assert_eq!(net.link(1), net.link(2), "seed {seed}: {:?}", net.heard);
        assert_eq!(net.links.links.len(), 1, "seed {seed}");
        let process = |at: u8| {
            net.heard.iter().rev().find_map(|landed| match landed {
                Landed::Up { at: who, process, .. } if *who == id(at) => Some(*process),
                Landed::Up { .. } | Landed::Message { .. } | Landed::Down { .. } => None,
            })
        };
        assert_eq!((process(1), process(2)), (Some(21), Some(11)));
    }
}

#[test]
fn server_without_the_peer_address_is_linked_when_the_peer_dials() {
    let mut net = Net::new(1, |from, _, _| Path { is_dialled: from == id(2), ..Path::lan() });
    net.run(SECOND);
    assert_eq!(net.link(1), net.link(2));
}

#[test]
fn stream_keeps_order_under_loss_and_never_waits_for_other_streams() {
    let lossy = |_: ServerId, _: ServerId, _: &mut Random| Path { loss_ppm: 200_000, jitter_us: 5000, ..Path::lan() };
    let mut overtaken = 0;
    for seed in 0..20 {
        let mut net = Net::new(seed, lossy);
        net.run(20 * SECOND);
        for round in 0..50 {
            net.say(1, Carrier::Stream(0), 2 * round..2 * round + 1);
            net.say(1, Carrier::Stream(1), 2 * round + 1..2 * round + 2);
        }
        net.run(40 * SECOND);
        let all = net.messages(2);
        let stream = |odd: u32| all.iter().copied().filter(|message| message % 2 == odd).collect::<Vec<_>>();
        assert_eq!((stream(0), stream(1)), ((0..100).step_by(2).collect(), (1..100).step_by(2).collect()));
        overtaken += usize::from(!all.is_sorted());
    }
    assert!(overtaken > 15, "streams overtake each other");
}

#[test]
fn datagrams_are_lost_duplicated_and_reordered() {
    let path = Path { loss_ppm: 100_000, twice_ppm: 100_000, jitter_us: 1000, ..Path::lan() };
    let mut net = Net::new(1, |_, _, _| path.clone());
    net.run(20 * SECOND);
    net.say(1, Carrier::Datagram, 0..1000);
    net.run(21 * SECOND);
    let mut came = net.messages(2);
    assert!(!came.is_sorted(), "they overtake");
    let all = came.len();
    came.sort_unstable();
    came.dedup();
    assert!((850..950).contains(&came.len()) && (50..150).contains(&(all - came.len())));
}

#[test]
fn a_short_cut_delays_streams_and_loses_datagrams() {
    let mut net = Net::linked(1);
    net.say(1, Carrier::Stream(0), 0..1);
    net.links.cut(SECOND, id(1), id(2));
    net.say(1, Carrier::Stream(0), 1..3);
    net.say(1, Carrier::Datagram, 100..110);
    net.say(2, Carrier::Stream(0), 7..8);
    net.run(3 * SECOND);
    assert_eq!((net.messages(2), net.messages(1)), (vec![], vec![7]), "one way only");
    net.links.heal(3 * SECOND, id(1), id(2));
    net.run(10 * SECOND);
    assert_eq!(net.messages(2), [0, 1, 2]);
    assert_eq!((net.downs(1), net.downs(2)), (0, 0));
}

#[test]
fn long_one_way_cut_ends_the_link_at_the_deaf_end_first() {
    let mut net = Net::linked(1);
    let old = net.link(1);
    net.links.cut(SECOND, id(1), id(2));
    net.say(1, Carrier::Stream(0), 0..5);
    net.run(SECOND + IDLE);
    assert_eq!((net.downs(1), net.downs(2)), (0, 1));
    net.run(SECOND + 2 * IDLE + MS);
    assert_eq!((net.downs(1), net.downs(2)), (1, 1));
    net.links.heal(10 * SECOND, id(1), id(2));
    net.run(14 * SECOND);
    assert!(net.link(1) == net.link(2) && net.link(1) != old);
    assert_eq!(net.messages(2), NONE, "what was sent on one link never arrives on another");
}

#[test]
fn restarted_process_replaces_the_silent_link_of_its_dead_predecessor() {
    let mut net = Net::linked(5);
    let old = net.link(2);
    net.say(1, Carrier::Stream(0), 0..5);
    net.links.stop(SECOND, id(1));
    net.run(2 * SECOND);
    assert_eq!((net.downs(2), net.messages(2)), (0, vec![0, 1, 2, 3, 4]), "what had left arrives, and nobody is told");
    net.links.start(2 * SECOND, id(1), 12);
    net.run(3 * SECOND);
    assert_eq!(net.downs(2), 1, "well before the idle timeout");
    assert!(net.link(1) == net.link(2) && net.link(1) != old);
    assert_eq!(net.downs(1), 0, "the new process never had it");
}

#[test]
fn paused_process_reads_buffered_messages_unless_its_link_idled_out() {
    let (mut heard_then_down, mut down_at_once) = (0, 0);
    for seed in 0..40 {
        let mut net = Net::linked(seed);
        net.links.sleep(SECOND, id(2));
        net.say(1, Carrier::Stream(0), 0..3);
        net.run(2 * SECOND);
        assert_eq!(net.messages(2), NONE);
        net.links.wake(2 * SECOND, id(2));
        net.run(2 * SECOND);
        assert_eq!((net.messages(2), net.downs(2)), (vec![0, 1, 2], 0), "a short sleep");
        net.links.sleep(2 * SECOND, id(2));
        net.say(1, Carrier::Stream(0), 3..5);
        net.run(20 * SECOND);
        assert_eq!(net.downs(1), 1, "a long one is noticed by the other end");
        net.links.wake(20 * SECOND, id(2));
        net.run(20 * SECOND);
        assert_eq!(net.downs(2), 1);
        match net.messages(2).len() {
            3 => down_at_once += 1,
            _ => heard_then_down += 1,
        }
    }
    assert!(down_at_once > 5 && heard_then_down > 5);
}

#[test]
fn both_ends_drop_a_reset_link_and_dial_a_new_one() {
    let mut net = Net::linked(9);
    let old = net.link(1);
    assert!(net.links.reset(SECOND, id(1), id(2)));
    net.say_nothing_on(old);
    net.run(2 * SECOND);
    assert_eq!((net.downs(1), net.downs(2)), (1, 1));
    assert!(net.link(1) == net.link(2) && net.link(1) != old);
}

impl Net {
    fn say_nothing_on(&mut self, link: LinkId) {
        self.links.send(self.agenda.now_us(), id(1), link, Carrier::Stream(0), 99);
        self.run(self.agenda.now_us() + SECOND);
        assert_eq!(self.messages(2), NONE);
    }
}

#[test]
fn stateless_reset_ends_a_link_the_new_process_does_not_know() {
    let mut net = Net::lan(2);
    net.links.network.has_stateless_resets = true;
    net.run(SECOND);
    net.links.cut(SECOND, id(2), id(1));
    net.links.stop(SECOND, id(2));
    net.links.start(SECOND + MS, id(2), 22);
    net.links.heal(SECOND + 2 * MS, id(2), id(1));
    net.say(1, Carrier::Datagram, 0..1);
    net.run(SECOND + 4 * MS);
    assert_eq!(net.downs(1), 1);
}
