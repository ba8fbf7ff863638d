//! The memory ceiling of a profile, with every bound reached at once.
//!
//! The resident memory stays below the ceiling, the kernel kills no process, and every znode is
//! there afterwards.
#![allow(clippy::unwrap_used, clippy::print_stdout, reason = "tests may unwrap, and tell what they saw")]

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::time::{Duration, Instant};
use zoolet_ensemble_tests::agreement::same_digest;
use zoolet_ensemble_tests::cgroup::Cgroup;
use zoolet_ensemble_tests::population::{VALUE, client, populate, populate_small, verify, write};
use zoolet_ensemble_tests::process::Usage;
use zoolet_ensemble_tests::product::Product;
use zoolet_ensemble_tests::siege::{self, Bounds, Siege};
use zoolet_ensemble_tests::site::{Plan, Server, Site};
use zoolet_powercut::not_checked;
use zoolet_profiles::{Key, Profile};

const SERVERS: u8 = 3;
/// Interval between two looks at the memory.
const PERIOD: Duration = Duration::from_millis(100);
/// Time for which clients hold everything after all bounds are reached.
const HOLD: Duration = Duration::from_secs(10);
/// Bytes of the ceiling for each znode without data. No table in memory may grow with their number.
const BYTES_PER_SMALL: u64 = 128;
/// Time for clients to reach every bound once the znodes are there.
const PATIENCE: Duration = Duration::from_secs(120);
/// Open files of this process apart from connections.
const FILES: u64 = 1000;
/// Budgets that the clients can fill.
const BOUNDS: [&str; 6] =
    ["connections", "sessions", "watches", "outbound_bytes", "outstanding_bytes", "record_cache_bytes"];
/// Log lines about refused clients: for unread answers, abandoned sessions and unfinished requests.
const REFUSALS: [&str; 3] = [
    "closed: too many bytes are queued for all clients",
    "cannot open more sessions: sessions_max",
    "closed: an unfinished request of",
];

/// Returns a starter that joins the group named in its environment and becomes a server.
fn starter() -> Vec<OsString> {
    ["sh", "-c", r#"echo $$ > "$ZOOLET_TEST_GROUP" && exec "$@""#, "sh"].map(OsString::from).to_vec()
}

/// Returns the peak memory of each server's processes until `over` is set.
fn watch(pids: &[AtomicU64], over: &AtomicBool) -> Vec<u64> {
    let mut most = vec![0; pids.len()];
    while !over.load(Relaxed) {
        for (most, pid) in most.iter_mut().zip(pids) {
            // The kernel keeps the peak. So only a process's last moment can be missed between two
            // looks.
            if let Ok(usage) = Usage::of(pid.load(Relaxed) as u32) {
                *most = usage.resident_peak.max(*most);
            }
        }
        std::thread::sleep(PERIOD);
    }
    most
}

/// Returns the server's figures. A besieged server may be too busy to answer at once.
fn figures(server: &Server) -> BTreeMap<String, String> {
    let until = Instant::now() + PATIENCE;
    loop {
        match server.figures() {
            Ok(figures) => return figures,
            Err(why) => assert!(Instant::now() < until, "{why}"),
        }
        std::thread::sleep(PERIOD);
    }
}

fn figure(figures: &BTreeMap<String, String>, key: &str) -> u64 {
    figures.get(key).unwrap_or_else(|| panic!("no {key}")).parse().unwrap()
}

/// Returns the number of connections to each server.
///
/// It is the profile's bound, or less if this process, which runs all clients, may open too few
/// files.
fn connections(profile: &Profile) -> u64 {
    let (files, of_profile) = (open_files_max(), profile.get(Key::ConnectionsMax));
    let possible = files.saturating_sub(FILES) / u64::from(SERVERS);
    if possible < of_profile {
        not_checked(format!(
            "{of_profile} connections to each server, because {files} files may be open here: {possible}"
        ));
    }
    of_profile.min(possible)
}

fn open_files_max() -> u64 {
    let limits = std::fs::read_to_string("/proc/self/limits").unwrap();
    let line = limits.lines().find_map(|line| line.strip_prefix("Max open files")).unwrap();
    line.split_whitespace().next().and_then(|soft| soft.parse().ok()).unwrap_or(u64::MAX)
}

/// Reaches every bound of this profile at once.
fn hold(name: &str) {
    let profile = Profile::named(name, None).unwrap();
    let ceiling = profile.get(Key::CeilingBytes);
    let group = |id| Cgroup::new(&format!("zoolet-ceiling-{}-{id}", std::process::id()), ceiling).unwrap();
    let groups: Vec<Cgroup> = (1..=SERVERS).filter_map(group).collect();
    if groups.len() < SERVERS.into() {
        not_checked("that nobody is killed, because no group with a bound of memory can be made here");
    }
    let mut plan = Plan::new(Product::zoolet().unwrap(), SERVERS);
    // The disk is unbounded. Two bases with this much data exceed the disk bound of the larger
    // profiles, which has a separate test.
    let connections = connections(&profile);
    plan.settings = format!("profile = \"{name}\"\n[limits]\ndisk_bytes_max = 0\nconnections_max = {connections}");
    if !groups.is_empty() {
        plan.starter = starter();
        let of = |group: &Cgroup| vec![("ZOOLET_TEST_GROUP".to_owned(), group.processes().into_os_string())];
        plan.environment = (1..).zip(groups.iter().map(of)).collect();
    }
    let mut site = Site::start(plan).unwrap();
    let pids: Vec<AtomicU64> =
        site.servers().iter().map(|server| AtomicU64::new(server.pid().unwrap().into())).collect();
    let directories = ceiling * 5 / 4 / VALUE as u64 / 1000;
    let over = AtomicBool::new(false);
    let most = std::thread::scope(|scope| {
        let watching = scope.spawn(|| watch(&pids, &over));
        let besieged = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
            besiege(&profile, connections, &mut site, &pids, directories);
        }));
        over.store(true, Relaxed);
        let most = watching.join().unwrap();
        for (server, most) in site.servers().iter().zip(&most) {
            println!(
                "{name}: server {}: {} KiB resident at most, of {} KiB",
                server.place.id,
                most >> 10,
                ceiling >> 10
            );
        }
        for group in &groups {
            assert_eq!(group.kills().unwrap(), 0, "a process was killed for its memory");
        }
        besieged.unwrap_or_else(|panic| std::panic::resume_unwind(panic));
        most
    });
    for id in site.ids() {
        assert!(!site.server(id).has_ended(), "server {id} ended");
    }
    site.servers().iter().for_each(|server| verify(server, 0..directories * 1000).unwrap());
    same_digest(&site).unwrap();
    assert!(most.iter().all(|most| *most <= ceiling), "{most:?} are resident, and {ceiling} is the ceiling");
}

/// Returns a bound of which this server has reached less than 90%.
fn unmet(server: &Server) -> Option<String> {
    let figures = figures(server);
    BOUNDS.iter().find_map(|key| {
        let (peak, limit) =
            (figure(&figures, &format!("budget_{key}_peak")), figure(&figures, &format!("budget_{key}_limit")));
        (peak * 10 < limit * 9).then(|| format!("server {} held {peak} {key} of {limit}", server.place.id))
    })
}

/// Checks that the log names each bound at which clients were refused.
///
/// Each line appears at most once a minute in each life of the server.
fn tells_whom_it_refuses(server: &Server, since: Duration) {
    let (id, said) = (server.place.id, server.said());
    let most = 2 * (1 + since.as_secs() as usize / 60);
    for reason in REFUSALS {
        let lines = said.lines().filter(|line| line.contains(reason)).count();
        println!("server {id}: {lines} lines say {reason:?}");
        assert!((1..=most).contains(&lines), "server {id} says {reason:?} in {lines} lines, of {most}:\n{said}");
    }
}

fn besiege(profile: &Profile, connections: u64, site: &mut Site, pids: &[AtomicU64], directories: u64) {
    let began = Instant::now();
    let servers: Vec<&Server> = site.servers().iter().collect();
    // At the leader, which is neither frozen nor killed. A client that loses its connection under
    // siege waits long for another one.
    let leader = site.server(site.wait_for_leader().unwrap());
    let mut own = client(&[leader], None).unwrap();
    siege::prepare().iter().for_each(|operations| write(&servers, &mut own, operations).unwrap());
    let bounds = Bounds {
        connections,
        connections_per_address: profile.get(Key::ConnectionsPerAddressMax),
        watches: profile.get(Key::WatchesMax),
        znodes: directories * 1000,
    };
    let sieges: Vec<Siege> = servers.iter().map(|server| Siege::begin(server.client(), bounds)).collect();
    populate(&servers, &mut own, 0..directories / 2).unwrap();
    populate_small(&servers, &mut own, profile.get(Key::CeilingBytes) / BYTES_PER_SMALL).unwrap();

    // Entries for the frozen follower wait at the leader, up to their bound.
    let followers = site.followers().unwrap();
    site.server_mut(followers[1]).freeze();
    let servers: Vec<&Server> = site.servers().iter().filter(|server| server.is_up()).collect();
    populate(&servers, &mut own, directories / 2..directories * 3 / 4).unwrap();
    site.server_mut(followers[1]).thaw();
    site.wait_for_all().unwrap();

    // A follower without data gets all of it from the leader, while the rest of the znodes is
    // created.
    let wiped = followers[0];
    site.server_mut(wiped).kill();
    site.server(wiped).wipe().unwrap();
    site.server_mut(wiped).start().unwrap();
    pids[usize::from(wiped) - 1].store(site.server(wiped).pid().unwrap().into(), Relaxed);
    let servers: Vec<&Server> = site.servers().iter().collect();
    populate(&servers, &mut own, directories * 3 / 4..directories).unwrap();
    site.wait_for_all().unwrap();
    let until = Instant::now() + PATIENCE;
    // The follower that lost its data was besieged for a shorter time.
    while let Some(why) = servers.iter().filter(|server| server.place.id != wiped).find_map(|server| unmet(server)) {
        assert!(Instant::now() < until, "{why}: that is no siege");
        std::thread::sleep(PERIOD);
    }
    std::thread::sleep(HOLD);

    for server in site.servers() {
        let id = server.place.id;
        let figures = figures(server);
        let of = |key: &str, suffix: &str| figure(&figures, &format!("budget_{key}{suffix}"));
        for key in figures.keys().filter_map(|key| key.strip_prefix("budget_")?.strip_suffix("_limit")) {
            println!("server {id}: {key}: {} now, {} at most, of {}", of(key, ""), of(key, "_peak"), of(key, "_limit"));
        }
        let (peak, limit) = (of("base_memory_bytes", "_peak"), of("base_memory_bytes", "_limit"));
        assert!(peak <= limit, "server {id}: {peak} bytes of the base in memory, of {limit}");
    }
    site.servers().iter().for_each(|server| tells_whom_it_refuses(server, began.elapsed()));
    for (siege, id) in sieges.into_iter().zip(site.ids()) {
        println!("server {id}: {:?}", siege.taken);
        siege.end().unwrap();
    }
}

#[test]
#[ignore = "a stage of its own: .ci/run ceiling"]
fn box_of_128_mib_with_sd_card_stays_below_its_memory_ceiling() {
    hold("sd-a1/128m");
}

#[test]
#[ignore = "a stage of its own: .ci/run ceiling"]
fn box_of_256_mib_with_emmc_stays_below_its_memory_ceiling() {
    hold("emmc/256m");
}

#[test]
#[ignore = "a stage of its own: .ci/run ceiling"]
fn box_of_512_mib_with_emmc_stays_below_its_memory_ceiling() {
    hold("emmc/512m");
}

#[test]
#[ignore = "a stage of its own: .ci/run ceiling"]
fn box_of_2_gib_with_nvme_stays_below_its_memory_ceiling() {
    hold("nvme/2g");
}
