//! The examples run as they are shown.
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
fn the_least_an_embedder_writes_counts_its_starts() {
    let scratch = Scratch::new();
    for starts in 1..=3 {
        assert_eq!(embedded_min::run(scratch.join("data")).unwrap(), format!("started {starts} times"));
    }
}

#[test]
fn the_daemon_follows_its_configuration_until_it_is_told_to_stop() {
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

fn node(scratch: &Scratch) -> Node {
    Node::start(Config::new(scratch.join("data"))).unwrap()
}

#[test]
fn one_gateway_leads_and_when_it_is_told_to_stop_the_other_one_does_at_once() {
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
    assert!(written <= u64::from(stat.version.unsigned_abs()));
}

#[test]
fn the_modem_is_up_only_while_its_box_has_the_channel() {
    use hot_standby_modem::{Link, standby};
    let scratch = Scratch::new();
    let node = node(&scratch);
    let (tell, told) = channel();
    let modems: Vec<_> = (0..2)
        .map(|number| {
            let (session, tell) = (node.session().wait().unwrap(), tell.clone());
            std::thread::spawn(move || standby(session, |link| tell.send((number, link)).unwrap()).wait())
        })
        .collect();
    let (first, link) = told.recv().unwrap();
    assert_eq!(link, Link::Up);
    let operator = node.session().wait().unwrap();
    operator.create(path!("/unrelated"), None).wait().unwrap();
    let channel = Contention::new(operator.clone(), path!("/modem/channel"));
    let holder = channel.contenders().wait().unwrap().remove(0);
    channel.break_grant(&holder, "the other antenna").wait().unwrap();
    let mut links = vec![(first, Link::Up)];
    while links.last() != Some(&(1 - first, Link::Up)) {
        links.push(told.recv().unwrap());
    }
    assert!(links.contains(&(first, Link::Down)), "{links:?}");
    operator.create(path!("/modem/off"), None).wait().unwrap();
    modems.into_iter().for_each(|modem| modem.join().unwrap().unwrap());
    let rest: Vec<_> = told.try_iter().collect();
    assert_eq!(rest.iter().rfind(|(number, _)| *number == 1 - first), Some(&(1 - first, Link::Down)));
}

#[test]
fn sensors_are_seen_coming_measuring_and_going() {
    let scratch = Scratch::new();
    let node = node(&scratch);
    let (sensor, panel) = (node.session().wait().unwrap(), node.session().wait().unwrap());
    let (tell, told) = channel();
    let watching = std::thread::spawn(move || sensor_group::watch(panel, |line| tell.send(line).unwrap()).wait());
    assert_eq!(told.recv().unwrap(), "0 there");
    let group = zoolet::recipes::Group::new(sensor, path!("/sensors"));
    let mut own = group.member("thermometer-4", "21.5").unwrap();
    own.put().wait().unwrap();
    assert!(told.recv().unwrap().starts_with("thermometer-4: 21.5 "));
    own.set("22").wait().unwrap();
    assert!(told.recv().unwrap().starts_with("thermometer-4: 22 "));
    drop(own);
    assert_eq!(told.recv().unwrap(), "thermometer-4 has gone");
    group.member("stop", "").unwrap().put().wait().unwrap();
    watching.join().unwrap().unwrap();
}

#[test]
fn a_job_that_no_worker_can_do_is_buried_and_the_others_are_done_once() {
    let scratch = Scratch::new();
    let node = node(&scratch);
    let session = node.session().wait().unwrap();
    let queue = zoolet::recipes::Queue::new(session.clone(), path!("/jobs")).unwrap();
    for job in ["a", "poison", "b"] {
        queue.put(job).wait().unwrap();
    }
    let (work, worker) = (|job: &[u8]| (job != b"poison").then(|| Bytes::copy_from_slice(job)), session.clone());
    let working = std::thread::spawn(move || work_queue::worker(worker, work).wait());
    let mut buried = ChildrenCache::new(session.clone(), path!("/jobs-dead")).wait().unwrap();
    while !matches!(buried.next().wait().unwrap(), Change::Put { .. }) {}
    queue.put("stop").wait().unwrap();
    assert_eq!(working.join().unwrap(), Ok(2));
    assert_eq!(buried.children().count(), 1);
    assert_eq!(session.children(path!("/results")).wait().unwrap().len(), 2);
}

#[test]
fn all_devices_switch_or_none_although_the_coordinator_was_killed() {
    let scratch = Scratch::new();
    let node = node(&scratch);
    assert_eq!(two_phase_firmware::roll_out(&node, "4.2", None).unwrap(), [Outcome::Committed; 3]);
    assert_eq!(two_phase_firmware::roll_out(&node, "4.3", Some("oven")).unwrap(), [Outcome::Aborted; 3]);
    let session = node.session().wait().unwrap();
    assert_eq!(session.exists(path!("/firmware")).wait().unwrap(), None);
}

#[test]
fn a_box_that_is_not_well_after_its_restart_stops_the_others() {
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
fn a_daemon_begins_with_what_was_good_and_keeps_it_when_nonsense_is_written() {
    use config_last_known_good::{config, follow, kept_interval};
    let scratch = Scratch::new();
    let (directory, interval) = (scratch.path(), path!("/conf/interval"));
    assert_eq!(kept_interval(directory), 60);
    let node = Node::start(config(directory)).unwrap();
    let operator = node.session().wait().unwrap();
    let write = |text: &'static str| zoolet::Bytes::from_static(text.as_bytes());
    // In one entry: the image is written when the subtree is seen first, and not again for ten minutes.
    let options = zoolet::CreateOptions::default();
    let both = vec![options.request(path!("/conf"), None), options.request(interval, Some(write("5")))];
    operator.submit(zoolet::Request::Multi(both)).unwrap().wait().unwrap();
    while kept_interval(directory) != 5 {
        assert!(node.failed().is_none());
        std::thread::sleep(std::time::Duration::from_millis(5));
    }
    node.shutdown(std::time::Duration::from_secs(5)).unwrap();

    // No node, no quorum.
    let began_with = kept_interval(directory);
    let node = Node::start(config(directory)).unwrap();
    let (daemon, operator) = (node.session().wait().unwrap(), node.session().wait().unwrap());
    let (tell, told) = std::sync::mpsc::channel();
    let running = std::thread::spawn(move || {
        follow(daemon, began_with, |line| {
            let is_last = line.contains("7 s");
            tell.send(line).unwrap();
            !is_last
        })
    });
    assert_eq!(told.recv().unwrap(), "measuring every 5 s");
    operator.set(interval, write("soon"), zoolet::Version::Any).wait().unwrap();
    assert_eq!(told.recv().unwrap(), "\"soon\" is no number of seconds; still every 5 s");
    operator.set(interval, write("7"), zoolet::Version::Any).wait().unwrap();
    assert_eq!(told.recv().unwrap(), "measuring every 7 s");
    running.join().unwrap().unwrap();
}
