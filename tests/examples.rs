//! The examples run as they are shown.

mod scratch;

#[path = "../examples/blocking_daemon.rs"]
#[allow(dead_code, unreachable_pub, reason = "an example is a program of its own")]
mod blocking_daemon;
#[path = "../examples/embedded_min.rs"]
#[allow(dead_code, unreachable_pub, reason = "an example is a program of its own")]
mod embedded_min;

use scratch::Scratch;
use zoolet::{Config, Node, Wait, path};

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
