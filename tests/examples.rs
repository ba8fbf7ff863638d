//! The examples run as shown.
#![allow(clippy::unwrap_used, reason = "a test stops at the first surprise")]

mod scratch;

#[path = "../examples/blocking_daemon.rs"]
#[allow(dead_code, unreachable_pub, reason = "an example is a program of its own")]
mod blocking_daemon;
#[path = "../examples/config_last_known_good.rs"]
#[allow(dead_code, unreachable_pub, reason = "an example is a program of its own")]
mod config_last_known_good;
#[path = "../examples/embedded_min.rs"]
#[allow(dead_code, unreachable_pub, reason = "an example is a program of its own")]
mod embedded_min;
#[path = "../examples/gateway_leader.rs"]
#[allow(dead_code, unreachable_pub, reason = "an example is a program of its own")]
mod gateway_leader;
#[path = "../examples/hot_standby_modem.rs"]
#[allow(dead_code, unreachable_pub, reason = "an example is a program of its own")]
mod hot_standby_modem;
#[path = "../examples/one_of_three.rs"]
#[allow(dead_code, unreachable_pub, reason = "an example is a program of its own")]
mod one_of_three;
#[path = "../examples/rolling_restart.rs"]
#[allow(dead_code, unreachable_pub, reason = "an example is a program of its own")]
mod rolling_restart;
#[path = "../examples/sensor_group.rs"]
#[allow(dead_code, unreachable_pub, reason = "an example is a program of its own")]
mod sensor_group;
#[path = "../examples/two_phase_firmware.rs"]
#[allow(dead_code, unreachable_pub, reason = "an example is a program of its own")]
mod two_phase_firmware;
#[path = "../examples/work_queue.rs"]
#[allow(dead_code, unreachable_pub, reason = "an example is a program of its own")]
mod work_queue;

use scratch::Scratch;
use std::sync::mpsc::channel;
use std::time::Duration;
use zoolet::recipes::{Change, ChildrenCache, Contention, Election, Outcome, Permit};
use zoolet::{Config, Node, Version, Wait, path};

#[test]
fn smallest_embedding_example_counts_its_starts() {
    let scratch = Scratch::new();
    for starts in 1..=3 {
        assert_eq!(embedded_min::run(scratch.join("data")).unwrap(), format!("started {starts} times"));
    }
}

#[test]
fn three_example_boxes_serve_one_tree_and_survive_one_loss() {
    let scratch = Scratch::new();
    let key = scratch.join("site.key");
    let keygen =
        std::process::Command::new(env!("CARGO_BIN_EXE_zoolet")).args(["keygen", "--out"]).arg(&key).output().unwrap();
    assert!(keygen.status.success(), "{keygen:?}");
    // All at once, so that the ports differ.
    let ports: Vec<_> = (0..3).map(|_| std::net::UdpSocket::bind("127.0.0.1:0").unwrap()).collect();
    let hosts: Vec<_> = ports.iter().map(|port| port.local_addr().unwrap().to_string()).collect();
    drop(ports);
    let directory = |number: u8| scratch.join(&number.to_string()).display().to_string();
    let start = |number: u8| one_of_three::member(number, &directory(number), key.to_str().unwrap(), &hosts).unwrap();
    let mut boxes: Vec<_> = (1..=3).map(start).collect();
    for (starts, node) in (1..).zip(&boxes) {
        node.ready().wait().unwrap();
        assert_eq!(one_of_three::count_start(&node.session().wait().unwrap()).unwrap(), starts);
    }
    boxes.remove(0).shutdown(Duration::from_secs(5)).unwrap();
    let session = boxes[0].session().wait().unwrap();
    assert_eq!(one_of_three::count_start(&session).unwrap(), 4, "two of them serve");
}

#[test]
fn example_daemon_follows_its_configuration_until_the_stop_znode() {
    let scratch = Scratch::new();
    let node = Node::start(Config::new(scratch.join("data"))).unwrap();
    let (daemon, operator) = (node.session().wait().unwrap(), node.session().wait().unwrap());
    let (tell, told) = std::sync::mpsc::channel();
    let running = std::thread::spawn(move || blocking_daemon::follow(&daemon, |line| tell.send(line).unwrap()));
    assert_eq!(told.recv().unwrap(), "alive");
    assert!(operator.exists(path!("/alive")).wait().unwrap().is_some());
    operator.create(path!("/config/interval"), None).wait().unwrap();
    assert_eq!(told.recv().unwrap(), "NodeCreated /config/interval");
    operator.create(path!("/config/stop"), None).wait().unwrap();
    running.join().unwrap().unwrap();
}

/// Examples are there to be read and copied, so they stay short. The daemon is complete.
#[test]
fn examples_are_at_most_80_lines_long_and_the_whole_daemon_below_150() {
    let directory = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("examples");
    let lengths: Vec<_> = [directory.clone(), directory.join("testing")]
        .iter()
        .flat_map(|directory| std::fs::read_dir(directory).unwrap())
        .map(|entry| entry.unwrap().path())
        .filter(|path| path.extension().is_some_and(|extension| extension == "rs"))
        .map(|path| (std::fs::read_to_string(&path).unwrap().lines().count(), path))
        .collect();
    assert!(lengths.len() > 10, "{lengths:?}");
    let bound = |path: &std::path::Path| if path.ends_with("daemon.rs") { 149 } else { 80 };
    let long: Vec<_> = lengths.iter().filter(|(lines, path)| *lines > bound(path)).collect();
    assert!(long.is_empty(), "{long:?}");
}

fn node(scratch: &Scratch) -> Node {
    Node::start(Config::new(scratch.join("data"))).unwrap()
}

#[test]
fn stopping_example_gateway_hands_leadership_to_the_second_gateway() {
    let scratch = Scratch::new();
    let node = node(&scratch);
    let runtime = || tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let gateway = |name: &'static str| {
        let (client, (stop, stopped)) = (node.client(), tokio::sync::oneshot::channel::<()>());
        let running = std::thread::spawn(move || {
            runtime().block_on(gateway_leader::gateway(client, name, async { drop(stopped.await) }))
        });
        (stop, running)
    };
    let watching = node.session().wait().unwrap();
    let mut office = Election::new(watching.clone(), path!("/field/leader")).observe();
    let mut leads = |name: &str| {
        loop {
            let leader = office.next().wait().unwrap().and_then(|office| office.content);
            if leader.as_deref() == Some(name.as_bytes()) {
                break;
            }
        }
    };
    let (stop_a, a) = gateway("gw-a");
    leads("gw-a");
    let (stop_b, b) = gateway("gw-b");
    while watching.exists(path!("/field/reading")).wait().unwrap().is_none() {
        std::thread::sleep(Duration::from_millis(5));
    }
    stop_a.send(()).unwrap();
    let written = a.join().unwrap().unwrap();
    leads("gw-b");
    stop_b.send(()).unwrap();
    b.join().unwrap().unwrap();
    let stat = watching.get(path!("/field/reading")).wait().unwrap().stat;
    assert!(written <= 1 + u64::from(stat.version.unsigned_abs()));
}

/// Runs the example program, which `cargo test` builds; for this test alone, run
/// `cargo build --examples`.
#[test]
fn example_gateway_exits_successfully_on_sigterm() {
    use std::io::{BufRead, BufReader};
    let program = std::env::current_exe().unwrap();
    let program = program.ancestors().nth(2).unwrap().join("examples/gateway_leader");
    let scratch = Scratch::new();
    let mut gateway = std::process::Command::new(&program)
        .arg(scratch.join("data"))
        .stdout(std::process::Stdio::piped())
        .spawn()
        .unwrap_or_else(|error| panic!("{}: {error}", program.display()));
    let mut said = BufReader::new(gateway.stdout.take().unwrap()).lines();
    assert_eq!(said.next().unwrap().unwrap(), "gw-a stands");
    rustix::process::kill_process(rustix::process::Pid::from_child(&gateway), rustix::process::Signal::TERM).unwrap();
    assert!(said.next().unwrap().unwrap().ends_with(" readings written"));
    assert!(gateway.wait().unwrap().success());
}

#[test]
fn example_modem_is_up_only_while_its_box_holds_the_channel() {
    use hot_standby_modem::{Link, standby};
    let scratch = Scratch::new();
    let node = node(&scratch);
    let (tell, told) = channel();
    let sessions = [node.session().wait().unwrap(), node.session().wait().unwrap()];
    let modems = [0, 1].map(|number| {
        let (session, tell) = (sessions[number].clone(), tell.clone());
        std::thread::spawn(move || standby(session, |link| tell.send((number, link)).unwrap()).wait())
    });
    let up = |number: usize| {
        let mut before = Vec::new();
        loop {
            match told.recv().unwrap() {
                (other, Link::Up(_)) if number == other => return before,
                link => before.push(link),
            }
        }
    };
    let (first, link) = told.recv().unwrap();
    assert!(matches!(link, Link::Up(_)), "{link:?}");
    let operator = node.session().wait().unwrap();
    let channel = Contention::new(operator.clone(), path!("/modem/channel"));
    let holder = channel.contenders().wait().unwrap().remove(0);
    channel.break_grant(&holder, "the other antenna").wait().unwrap();
    assert!(up(1 - first).contains(&(first, Link::Down)));
    // The daemon stands in line again. The end of its session must not count as its normal end.
    sessions[first].clone().close().wait().unwrap();
    operator.create(path!("/modem/off"), None).wait().unwrap();
    for (number, modem) in modems.into_iter().enumerate() {
        assert_eq!(modem.join().unwrap().is_ok(), number != first, "modem {number}");
    }
    let rest: Vec<_> = told.try_iter().collect();
    assert_eq!(rest.iter().rfind(|(number, _)| *number == 1 - first), Some(&(1 - first, Link::Down)));
}

#[test]
fn example_sensor_appears_reports_values_rejoins_and_leaves() {
    let scratch = Scratch::new();
    let node = node(&scratch);
    let (sensor, operator) = (node.client(), node.session().wait().unwrap());
    let (tell, told) = channel();
    let (panel, say) = (node.client(), move |line| tell.send(line).unwrap());
    let watching = std::thread::spawn(move || sensor_group::watch(panel, say).wait());
    assert_eq!(told.recv().unwrap(), "0 there");
    let (give, given) = channel::<&str>();
    let (client, (leave, left)) = (sensor.clone(), tokio::sync::oneshot::channel::<()>());
    let measuring = std::thread::spawn(move || {
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        runtime.block_on(async {
            tokio::select! {
                // No more readings: the sensor only waits to be told to leave.
                ended = sensor_group::measure(client, || given.recv().map_or("no reading".to_owned(), str::to_owned)) => ended,
                _ = left => Ok(()),
            }
        })
    });
    give.send("21.5").unwrap();
    while !told.recv().unwrap().starts_with("thermometer-4: 21.5 ") {}
    give.send("22").unwrap();
    while !told.recv().unwrap().starts_with("thermometer-4: 22 ") {}
    // The znode comes back after another client deletes it. It also comes back with the next
    // session after one ends.
    operator.delete(path!("/sensors/thermometer-4"), Version::Any).wait().unwrap();
    give.send("23").unwrap();
    while !told.recv().unwrap().starts_with("thermometer-4: 23 ") {}
    let first = sensor.session().wait().unwrap();
    first.clone().close().wait().unwrap();
    give.send("24").unwrap();
    while !told.recv().unwrap().starts_with("thermometer-4: 24 ") {}
    assert_ne!(sensor.session().wait().unwrap().id(), first.id());
    leave.send(()).unwrap();
    drop(give);
    measuring.join().unwrap().unwrap();
    while told.recv().unwrap() != "thermometer-4 has gone" {}
    let group = zoolet::recipes::Group::new(operator, path!("/sensors"));
    let mut stop = group.member("stop", "").unwrap();
    stop.put().wait().unwrap();
    watching.join().unwrap().unwrap();
}

#[test]
fn poison_job_is_buried_and_each_valid_job_is_done_once() {
    let scratch = Scratch::new();
    let node = node(&scratch);
    let session = node.session().wait().unwrap();
    let queue = zoolet::recipes::Queue::new(session.clone(), path!("/jobs"));
    for job in ["a", "poison", "b"] {
        queue.put(job).wait().unwrap();
    }
    let work = |job: &[u8]| (job != b"poison").then(|| job.to_vec());
    let working = [(); 2].map(|()| {
        let worker = node.session().wait().unwrap();
        std::thread::spawn(move || work_queue::worker(worker, work).wait())
    });
    let mut buried = ChildrenCache::new(session.clone(), path!("/jobs-dead"));
    while !matches!(buried.next().wait().unwrap(), Change::Put { .. }) {}
    // One stop for each worker.
    queue.put("stop").wait().unwrap();
    queue.put("stop").wait().unwrap();
    assert_eq!(working.map(|worker| worker.join().unwrap().unwrap()).into_iter().sum::<u32>(), 2);
    assert_eq!(buried.children().count(), 1);
    assert_eq!(session.children(path!("/results")).wait().unwrap().len(), 2);
}

#[test]
fn all_devices_switch_or_none_despite_killed_coordinator_and_devices() {
    let scratch = Scratch::new();
    let node = node(&scratch);
    let roll_out = |name, objector| two_phase_firmware::roll_out(&node, scratch.path(), name, objector).unwrap();
    assert_eq!(roll_out("4.2", None), [Outcome::Committed; 3]);
    assert_eq!(roll_out("4.3", Some("oven")), [Outcome::Aborted; 3]);
    let session = node.session().wait().unwrap();
    for path in [path!("/firmware/4.2"), path!("/firmware/4.3")] {
        assert_eq!(session.exists(path).wait().unwrap(), None);
    }
    let log = "/firmware/4.2 Voting(Commit)\n/firmware/4.2 CarriedOut(Committed)\n/firmware/4.3 Voting(Abort)\n\
               /firmware/4.3 CarriedOut(Aborted)\n";
    assert_eq!(std::fs::read_to_string(scratch.join("oven")).unwrap(), log, "it restarted between each two");
}

#[test]
fn unhealthy_box_after_a_restart_holds_up_the_rolling_restart() {
    use rolling_restart::{comes_up, goes_down};
    let scratch = Scratch::new();
    let node = node(&scratch);
    let (a, b) = (node.session().wait().unwrap(), node.session().wait().unwrap());
    assert_eq!(goes_down(&a, "gw-a").wait(), Ok(Permit::Given));
    drop(a);
    let a = node.session().wait().unwrap();
    assert_eq!(comes_up(&a, "gw-a", || false).wait(), Ok(false));
    assert_eq!(goes_down(&b, "gw-b").wait_timeout(Duration::from_millis(100)), None);
    assert_eq!(comes_up(&a, "gw-a", || true).wait(), Ok(true));
    assert_eq!(goes_down(&b, "gw-b").wait(), Ok(Permit::Given));
}

#[test]
fn daemon_starts_from_its_last_good_value_and_ignores_bad_values() {
    use config_last_known_good::{follow, kept_interval};
    let scratch = Scratch::new();
    let (directory, interval) = (scratch.path().to_owned(), path!("/conf/interval"));
    assert_eq!(kept_interval(&directory), 60);
    let node = node(&scratch);
    let operator = node.session().wait().unwrap();
    let start = |node: &Node| {
        let (client, directory, (tell, told)) = (node.client(), directory.clone(), channel());
        let daemon = client.clone();
        let running = std::thread::spawn(move || follow(daemon, &directory, |line| tell.send(line).unwrap()).wait());
        (client, running, told)
    };
    let (client, running, told) = start(&node);
    assert_eq!(told.recv().unwrap(), "nothing is configured; still every 60 s");
    operator.put(interval, "5").wait().unwrap();
    assert_eq!(told.recv().unwrap(), "measuring every 5 s");
    operator.set(interval, "soon", Version::Any).wait().unwrap();
    assert_eq!(told.recv().unwrap(), "\"soon\" is no number of seconds; still every 5 s");
    // When its session ends, the daemon keeps its value, and follows with the next session.
    client.session().wait().unwrap().close().wait().unwrap();
    operator.set(interval, "7", Version::Any).wait().unwrap();
    assert_eq!(told.recv().unwrap(), "measuring every 7 s");
    operator.set(interval, "later", Version::Any).wait().unwrap();
    assert_eq!(told.recv().unwrap(), "\"later\" is no number of seconds; still every 7 s");
    // First the client: it would open another session while the node closes its sessions.
    let last = client.session().wait().unwrap();
    client.close();
    last.close().wait().unwrap();
    assert!(running.join().unwrap().is_err(), "no session can be opened any more");
    node.shutdown(Duration::from_secs(5)).unwrap();

    // Read without a node and without a quorum: the last good value, not the last one.
    assert_eq!(kept_interval(&directory), 7);
    let node = Node::start(Config::new(scratch.join("data"))).unwrap();
    let (client, running, told) = start(&node);
    assert_eq!(told.recv().unwrap(), "\"later\" is no number of seconds; still every 7 s");
    client.close();
    drop(node);
    assert!(running.join().unwrap().is_err());
}
