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
use zoolet::{Bytes, Config, ErrorCode, Node, Wait, path};

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

/// Examples are there to be read and copied, so they stay short.
#[test]
fn examples_are_at_most_80_lines_long() {
    let directory = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("examples");
    let lengths: Vec<_> = [directory.clone(), directory.join("testing")]
        .iter()
        .flat_map(|directory| std::fs::read_dir(directory).unwrap())
        .map(|entry| entry.unwrap().path())
        .filter(|path| path.extension().is_some_and(|extension| extension == "rs"))
        .map(|path| (std::fs::read_to_string(&path).unwrap().lines().count(), path))
        .collect();
    assert!(lengths.len() > 10, "{lengths:?}");
    let long: Vec<_> = lengths.iter().filter(|(lines, _)| *lines > 80).collect();
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
        let (session, (stop, stopped)) = (node.session().wait().unwrap(), tokio::sync::oneshot::channel::<()>());
        let running = std::thread::spawn(move || {
            runtime().block_on(gateway_leader::gateway(session, name, async { drop(stopped.await) }))
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
    while watching.get(path!("/field/reading")).wait() == Err(zoolet::Error::Refused(ErrorCode::NoNode)) {
        std::thread::sleep(Duration::from_millis(5));
    }
    stop_a.send(()).unwrap();
    let written = a.join().unwrap().unwrap();
    leads("gw-b");
    stop_b.send(()).unwrap();
    b.join().unwrap().unwrap();
    let (_, stat) = watching.get(path!("/field/reading")).wait().unwrap();
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
    let [sensor, panel, operator] = [(); 3].map(|()| node.session().wait().unwrap());
    let (tell, told) = channel();
    let watching = std::thread::spawn(move || sensor_group::watch(panel, |line| tell.send(line).unwrap()).wait());
    assert_eq!(told.recv().unwrap(), "0 there");
    let (give, given) = channel();
    let (measure, measured) = channel::<&str>();
    let staying = std::thread::spawn(move || {
        sensor_group::stay(|| Ok(given.recv().unwrap()), || measured.recv().ok().map(str::to_owned))
    });
    give.send(sensor.clone()).unwrap();
    measure.send("21.5").unwrap();
    assert!(told.recv().unwrap().starts_with("thermometer-4: 21.5 "));
    measure.send("22").unwrap();
    assert!(told.recv().unwrap().starts_with("thermometer-4: 22 "));
    // The znode comes back after another client deletes it. It also comes back with a new session
    // after the first one ends.
    operator.delete(path!("/sensors/thermometer-4"), zoolet::Version::Any).wait().unwrap();
    measure.send("23").unwrap();
    while !told.recv().unwrap().starts_with("thermometer-4: 23 ") {}
    sensor.close().wait().unwrap();
    measure.send("24").unwrap();
    give.send(operator.clone()).unwrap();
    measure.send("25").unwrap();
    while !told.recv().unwrap().starts_with("thermometer-4: 25 ") {}
    drop(measure);
    staying.join().unwrap().unwrap();
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
    let queue = zoolet::recipes::Queue::new(session.clone(), path!("/jobs")).unwrap();
    for job in ["a", "poison", "b"] {
        queue.put(job).wait().unwrap();
    }
    let work = |job: &[u8]| (job != b"poison").then(|| Bytes::copy_from_slice(job));
    let working = [(); 2].map(|()| {
        let worker = node.session().wait().unwrap();
        std::thread::spawn(move || work_queue::worker(worker, work).wait())
    });
    let mut buried = ChildrenCache::new(session.clone(), path!("/jobs-dead")).wait().unwrap();
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
    use config_last_known_good::{config, follow, kept_interval};
    let scratch = Scratch::new();
    let (directory, interval) = (scratch.path(), path!("/conf/interval"));
    assert_eq!(kept_interval(directory), 60);
    let node = Node::start(config(directory)).unwrap();
    let operator = node.session().wait().unwrap();
    let write = |text: &'static str| zoolet::Bytes::from_static(text.as_bytes());
    // In one entry: the daemon writes the image when it first sees the subtree, and not again for
    // ten minutes.
    let options = zoolet::CreateOptions::default();
    let both = vec![options.request(path!("/conf"), None), options.request(interval, Some(write("5")))];
    operator.submit(zoolet::Request::Multi(both)).unwrap().wait().unwrap();
    while kept_interval(directory) != 5 {
        assert!(node.failed().is_none());
        std::thread::sleep(std::time::Duration::from_millis(5));
    }
    node.shutdown(std::time::Duration::from_secs(5)).unwrap();

    // Read without a node and without a quorum.
    let began_with = kept_interval(directory);
    let node = Node::start(config(directory)).unwrap();
    let [daemon, again, operator] = [(); 3].map(|()| node.session().wait().unwrap());
    let (tell, told) = std::sync::mpsc::channel();
    let first = daemon.clone();
    let running = std::thread::spawn(move || {
        let (mut value, is_last) = (began_with, |line: &str| line.contains("8 s"));
        let mut follow =
            |session| follow(session, &mut value, |line| tell.send(line.clone()).is_ok() && !is_last(&line));
        (follow(first), follow(again), value)
    });
    assert_eq!(told.recv().unwrap(), "measuring every 5 s");
    operator.set(interval, write("soon"), zoolet::Version::Any).wait().unwrap();
    assert_eq!(told.recv().unwrap(), "\"soon\" is no number of seconds; still every 5 s");
    operator.set(interval, write("7"), zoolet::Version::Any).wait().unwrap();
    assert_eq!(told.recv().unwrap(), "measuring every 7 s");
    // When its session ends, the daemon keeps its value. From a new session it hears the current
    // value again, and then the new one.
    operator.set(interval, write("soon"), zoolet::Version::Any).wait().unwrap();
    assert_eq!(told.recv().unwrap(), "\"soon\" is no number of seconds; still every 7 s");
    daemon.close().wait().unwrap();
    assert_eq!(told.recv().unwrap(), "\"soon\" is no number of seconds; still every 7 s");
    operator.set(interval, write("8"), zoolet::Version::Any).wait().unwrap();
    assert_eq!(told.recv().unwrap(), "measuring every 8 s");
    let (ended, done, value) = running.join().unwrap();
    assert!(ended.is_err() && done.is_ok() && value == 8, "{ended:?}, {done:?}, {value}");
}
