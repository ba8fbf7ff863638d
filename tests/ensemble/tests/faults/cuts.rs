//! Network namespaces between which ways are cut, one direction at a time. Root only.
#![allow(clippy::unwrap_used, clippy::print_stdout, reason = "tests may unwrap, and tell what they saw")]

use std::io::ErrorKind;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};
use zoolet_ensemble_tests::load::Shape;
use zoolet_ensemble_tests::relay::Pair;
use zoolet_ensemble_tests::site::{Between, PATIENCE, Plan, Site};
use zoolet_ensemble_tests::trial::Trial;
use zoolet_powercut::random::Random;

/// Minutes of random cuts, unless `ENSEMBLE_CUT_MINUTES` names another number.
const MINUTES: u64 = 1;
/// Bounds of each cut and of each pause after it, in milliseconds: from shorter than the time in
/// which a server suspects another one, to longer than any silence that servers tolerate.
const SHORTEST_MS: u64 = 100;
const LONGEST_MS: u64 = 4_000;

fn plan() -> Plan {
    Plan { between: Between::Cables, ..Plan::new(Trial::product().unwrap(), 3) }
}

fn setting(name: &str) -> Option<u64> {
    std::env::var(name).ok().map(|text| text.parse().unwrap())
}

fn drawn_time(random: &mut Random) -> Duration {
    Duration::from_millis(SHORTEST_MS + random.below(LONGEST_MS - SHORTEST_MS + 1))
}

/// Draws the ways of one cut: from one server to another, from one server to all others, or from all
/// others to one server.
///
/// In an ensemble of three, a leader keeps a quorum whichever way between two servers is cut. So
/// only the other two kinds make an election necessary.
fn drawn_cut(ids: &[u8], random: &mut Random) -> Vec<Pair> {
    let one = *random.pick(ids);
    let others: Vec<u8> = ids.iter().copied().filter(|&id| id != one).collect();
    match random.below(4) {
        0 => others.iter().map(|&other| Pair::new(one, other)).collect(),
        1 => others.iter().map(|&other| Pair::new(other, one)).collect(),
        _ => vec![Pair::new(one, *random.pick(&others))],
    }
}

/// The cut is silent: the sender gets no error, as with a broken cable.
#[test]
#[ignore = "a stage of its own: .ci/run faults"]
fn cut_way_loses_datagrams_of_that_direction_alone() {
    let site = Site::prepare(plan()).unwrap();
    let (a, b) = (site.bind_beside(1, 5000).unwrap(), site.bind_beside(2, 5000).unwrap());
    a.connect(b.local_addr().unwrap()).unwrap();
    b.connect(a.local_addr().unwrap()).unwrap();
    let mut buffer = [0; 16];
    let mut received = |socket: &std::net::UdpSocket| {
        socket.set_read_timeout(Some(PATIENCE)).unwrap();
        let length = socket.recv(&mut buffer).unwrap();
        String::from_utf8_lossy(&buffer[..length]).into_owned()
    };
    for round in 0..2 {
        a.send(b"before").unwrap();
        assert_eq!(received(&b), "before", "round {round}");

        site.cut_way(1, 2).unwrap();
        a.send(b"lost").unwrap();
        b.send(b"back").unwrap();
        assert_eq!(received(&a), "back", "round {round}");
        assert!(a.take_error().unwrap().is_none(), "the sender does not notice");

        site.mend_way(1, 2).unwrap();
        a.send(b"after").unwrap();
        assert_eq!(received(&b), "after", "round {round}");
    }
    b.set_nonblocking(true).unwrap();
    assert_eq!(b.recv(&mut [0; 16]).unwrap_err().kind(), ErrorKind::WouldBlock, "no datagram is only late");
}

#[test]
#[ignore = "a stage of its own: .ci/run faults"]
fn random_one_way_cuts_cause_no_more_elections_than_cuts() {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap();
    let seed = setting("ENSEMBLE_CUT_SEED").unwrap_or(now.as_secs());
    let minutes = setting("ENSEMBLE_CUT_MINUTES").unwrap_or(MINUTES);
    println!("ENSEMBLE_CUT_SEED={seed} ENSEMBLE_CUT_MINUTES={minutes}");
    // Few enough answers that ten minutes of them fit into memory.
    let shape = Shape { outstanding: 4, pause: Duration::from_millis(20), ..Shape::default() };
    let trial = Trial::start(plan(), shape, seed).unwrap();
    let before = trial.epoch().unwrap();
    let mut random = Random::new(seed);
    let until = Instant::now() + Duration::from_secs(60 * minutes);
    let mut cuts = 0;
    while Instant::now() < until {
        let ways = drawn_cut(&trial.ids(), &mut random);
        let (cut, pause) = (drawn_time(&mut random), drawn_time(&mut random));
        let leader = trial.leader();
        ways.iter().for_each(|way| trial.cut_way(way.from, way.to).unwrap());
        std::thread::sleep(cut);
        ways.iter().for_each(|way| trial.mend_way(way.from, way.to).unwrap());
        std::thread::sleep(pause);
        cuts += 1;
        let epochs = trial.servers().iter().map(|server| server.status().map(|status| status.epoch));
        let epochs: Vec<Option<u64>> = epochs.collect();
        println!("cut {cuts}: {ways:?} for {cut:?}, then {pause:?}; leader {leader:?}, epochs afterwards {epochs:?}");
    }
    let (site, seen) = trial.finish_and_keep().unwrap();
    let elections = site.epoch().unwrap() - before;
    println!("{cuts} cuts, {elections} elections, {} writes acknowledged", seen.acknowledged());
    assert!(elections <= cuts, "{elections} elections, but only {cuts} cuts");
}
