//! Handles of a node, and its start and end on any executor.
#![allow(clippy::unwrap_used, reason = "tests may unwrap, what they share too")]

use crate::scratch::Scratch;
use std::future::Future;
use std::path::Path;
use std::pin::pin;
use std::task::{Context, Poll, Waker};
use std::time::{Duration, Instant};
use zoolet::{
    Config, CreateOptions, ErrorKind, LostReason, Node, Session, SessionState, ShutdownError, StartError, Wait, path,
};

const PATIENCE: Duration = Duration::from_secs(20);

/// A small log, so that tests write little.
fn small(data: &Path) -> Config {
    let mut config = Config::new(data);
    config.limits.log_segment_bytes = 256 << 10;
    config.limits.log_segments = 8;
    config.limits.frame_bytes_max = 100_000;
    config
}

fn session(node: &Node) -> Session {
    node.session().wait_timeout(PATIENCE).unwrap().unwrap()
}

/// Starts a node once no other node holds the directory.
fn start_when_free(config: &Config) -> Node {
    let until = Instant::now() + PATIENCE;
    loop {
        match Node::start(config.clone()) {
            Ok(node) => return node,
            Err(error @ StartError::InUse(_)) => assert!(Instant::now() < until, "{error}"),
            Err(error) => panic!("{error}"),
        }
    }
}

fn poll<F: Future>(future: std::pin::Pin<&mut F>) -> Poll<F::Output> {
    future.poll(&mut Context::from_waker(Waker::noop()))
}

#[test]
fn node_ends_with_its_last_handle() {
    let scratch = Scratch::new();
    let node = Node::start(small(&scratch.join("data"))).unwrap();
    let other = node.clone();
    drop(node);
    let session = session(&other);
    assert!(session.exists(path!("/")).wait().unwrap().is_some());
    drop(other);
    assert_eq!(session.exists(path!("/")).wait().unwrap_err().kind(), ErrorKind::SessionLost(LostReason::Stopped));
    assert_eq!(session.state(), SessionState::Lost(LostReason::Stopped));
}

#[test]
fn shutdown_ends_the_node_for_all_handles_and_frees_its_directory() {
    let scratch = Scratch::new();
    let config = small(&scratch.join("data"));
    let node = Node::start(config.clone()).unwrap();
    let other = node.clone();
    let session = session(&other);
    node.shutdown(PATIENCE).unwrap();
    assert_eq!(other.shutdown(PATIENCE), Err(ShutdownError::AlreadyShutDown));
    assert_eq!(node.shutdown_async(PATIENCE).wait(), Err(ShutdownError::AlreadyShutDown));
    assert!(matches!(session.state(), SessionState::Closed | SessionState::Lost(_)), "{:?}", session.state());
    let stopped = ErrorKind::SessionLost(LostReason::Stopped);
    assert_eq!(other.session().wait().unwrap_err().kind(), stopped);
    assert_eq!(other.ready().wait().unwrap_err().kind(), stopped);
    assert_eq!((other.status().wait(), other.failed()), (None, None));
    assert!(other.figures().log.appends > 0, "they stay");
    // Its handles still exist.
    let next = Node::start(config).unwrap();
    next.shutdown(PATIENCE).unwrap();
    drop((node, other));
}

#[test]
fn async_start_waits_on_a_thread_of_its_own() {
    let scratch = Scratch::new();
    let config = small(&scratch.join("data"));
    let first = Node::start(config.clone()).unwrap();
    // A start waits for the lock of another node of this process. Here it lets this thread go on,
    // or the other node would never be dropped.
    let mut starting = pin!(Node::start_async(config.clone()));
    assert!(poll(starting.as_mut()).is_pending());
    drop(first);
    let second = starting.as_mut().wait().unwrap();
    session(&second);
    second.shutdown_async(PATIENCE).wait().unwrap();
    let refused = Node::start_async(Config::new(scratch.join("none/data"))).wait().unwrap_err();
    assert!(refused.is_for_the_operator(), "{refused}");
}

#[test]
fn dropped_start_leaves_no_node_running() {
    let scratch = Scratch::new();
    for waits_for_the_directory in [false, true] {
        let config = small(&scratch.join(&waits_for_the_directory.to_string()));
        let starting = Node::start_async(config.clone());
        let until = Instant::now() + PATIENCE;
        while waits_for_the_directory && !config.data.join("seg-00.log").exists() {
            assert!(Instant::now() < until, "it did not start");
        }
        drop(starting);
        drop(start_when_free(&config));
    }
}

#[test]
fn dropped_shutdown_goes_on() {
    let scratch = Scratch::new();
    let config = small(&scratch.join("data"));
    let node = Node::start(config.clone()).unwrap();
    session(&node).create_with(path!("/alive"), None, &CreateOptions::ephemeral()).wait().unwrap();
    let stopped = node.stopped();
    drop(node.shutdown_async(PATIENCE));
    assert_eq!(stopped.wait_timeout(PATIENCE), Some(None), "it did not fail");
    drop(node);
    let again = start_when_free(&config);
    assert_eq!(session(&again).exists(path!("/alive")).wait().unwrap(), None, "its session was closed");
}

/// Regression: the client opened another session while the node closed its sessions, so the shutdown
/// was late.
#[test]
fn shutdown_is_clean_while_a_client_goes_on() {
    let scratch = Scratch::new();
    let node = Node::start(small(&scratch.join("data"))).unwrap();
    let client = node.client();
    let mut member = client.member(path!("/members"), "gw-a", "up");
    member.set("here").wait().unwrap();
    let keeping = std::thread::spawn(move || member.keep().wait().unwrap_err());
    node.shutdown(PATIENCE).unwrap();
    assert!(keeping.join().unwrap().is_session_over());
    assert!(client.session().wait().unwrap_err().is_session_over());
}
