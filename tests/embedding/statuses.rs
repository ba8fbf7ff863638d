//! What a node tells its owner of its state, without being asked.
#![allow(clippy::unwrap_used, reason = "tests may unwrap, what they share too")]

use crate::scratch::Scratch;
use std::future::Future;
use std::pin::pin;
use std::task::{Context, Waker};
use std::time::{Duration, Instant};
use zoolet::status::{AlarmKind, ServerRole, Summary};
use zoolet::{Config, Node, StatusStream, Wait, path};

const PATIENCE: Duration = Duration::from_secs(30);

/// A small log, so that tests write little.
fn start(scratch: &Scratch) -> Node {
    let mut config = Config::new(scratch.join("data"));
    config.limits.log_segment_bytes = 256 << 10;
    config.limits.log_segments = 8;
    config.limits.frame_bytes_max = 100_000;
    let node = Node::start(config).unwrap();
    node.ready().wait_timeout(PATIENCE).unwrap().unwrap();
    node
}

fn next(stream: &mut StatusStream) -> Summary {
    stream.next().wait_timeout(PATIENCE).expect("a change").expect("the node has not ended")
}

/// Takes items until one fits.
pub(crate) fn until(stream: &mut StatusStream, fits: impl Fn(&Summary) -> bool) -> Summary {
    let patience = Instant::now() + PATIENCE;
    loop {
        let item = next(stream);
        if fits(&item) {
            return item;
        }
        assert!(Instant::now() < patience, "{item:?}");
    }
}

#[test]
fn stream_shows_the_present_state_and_progress_yields_nothing() {
    let scratch = Scratch::new();
    let node = start(&scratch);
    let mut stream = node.watch_status();
    let first = next(&mut stream);
    assert_eq!((first.role, first.alarms.len()), (ServerRole::Standalone, 0));
    assert_eq!((first.quorum.voters.len(), first.quorum.is_heard()), (1, true));
    assert!(!first.disk.is_full() && !first.disk.is_failing() && !first.lag.is_long());
    assert!(first.flash.is_some_and(|flash| !flash.is_over_budget));
    let session = node.session().wait_timeout(PATIENCE).unwrap().unwrap();
    for round in 0..10_u8 {
        let bytes = zoolet::Bytes::from(vec![round; 1000]);
        session.create_with(path!("/n-"), bytes, &zoolet::CreateOptions::default().sequential()).wait().unwrap();
        // Another stream makes the node look at its state anew.
        assert_eq!(next(&mut node.watch_status()).role, ServerRole::Standalone);
        let waiting = pin!(stream.next());
        assert!(waiting.poll(&mut Context::from_waker(Waker::noop())).is_pending(), "round {round}");
    }
}

#[test]
fn stream_ends_with_its_node_and_does_not_keep_it_alive() {
    let scratch = Scratch::new();
    let node = start(&scratch);
    let mut stream = node.watch_status();
    next(&mut stream);
    drop(node);
    assert_eq!(stream.next().wait_timeout(PATIENCE), Some(None));
    let node = start(&scratch);
    node.shutdown(PATIENCE).unwrap();
    assert_eq!(node.watch_status().next().wait_timeout(PATIENCE), Some(None));
}

/// Nothing but the node itself notices it, and nothing else wakes the node.
#[test]
fn idle_node_reports_that_its_data_directory_was_moved() {
    let scratch = Scratch::new();
    let node = start(&scratch);
    let mut stream = node.watch_status();
    std::fs::rename(node.data(), scratch.join("elsewhere")).unwrap();
    let gone = until(&mut stream, |status| !status.alarms.is_empty());
    assert!(gone.disk.is_failing());
    assert_eq!(gone.alarms.iter().map(|alarm| alarm.kind).collect::<Vec<_>>(), [AlarmKind::DataDirectoryGone]);
    assert!(gone.alarms[0].remedy.starts_with("move the original back"), "{:?}", gone.alarms);
    std::fs::rename(scratch.join("elsewhere"), node.data()).unwrap();
    assert!(!until(&mut stream, |status| status.alarms.is_empty()).disk.is_failing());
}
