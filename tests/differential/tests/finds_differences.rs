//! The comparison can fail, and shrinks what it finds.
//!
//! Both sides are zoolet servers in this process. The answers of one side are altered before the
//! comparison.
#![allow(clippy::unwrap_used, reason = "tests may unwrap, what they share too")]

use std::io;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;
use zoolet_differential::compare::{Difference, Verdict, compare};
use zoolet_differential::generate::{Shape, generate};
use zoolet_differential::play::{Servers, Transcript, play};
use zoolet_differential::reply::{Atom, Item, What};
use zoolet_differential::script::Script;
use zoolet_differential::shrink::{Effort, shrink};

/// The tests draw even seeds, whose scripts are for a standalone server.
const SHAPE: Shape = Shape { operations: 300, sessions: 3 };
const EFFORT: Effort = Effort { attempts: 400, time: Duration::from_secs(60) };

struct Served {
    node: zoolet::Node,
    data: PathBuf,
}

impl Served {
    fn new(name: &str) -> Self {
        let data = std::env::temp_dir().join(format!("zoolet-differential-test-{}-{name}", std::process::id()));
        let _ = std::fs::remove_dir_all(&data);
        let mut config = zoolet::Config::new(&data);
        config.clients = Some(([127, 0, 0, 1], 0).into());
        config.limits.log_segment_bytes = 4 << 20;
        config.limits.log_segments = 8;
        config.settings.session_timeout_min_ms = 200_000;
        config.settings.session_timeout_max_ms = 400_000;
        config.limits.connections_per_address_max = 0;
        Self { node: zoolet::Node::start(config).unwrap(), data }
    }

    fn play(&self, script: &Script, root: &str) -> Transcript {
        play(script, &mut One(self.node.client_address().unwrap()), root).unwrap()
    }
}

/// A standalone server.
struct One(SocketAddr);

impl Servers for One {
    fn addresses(&self) -> Vec<SocketAddr> {
        vec![self.0]
    }

    fn alone(&mut self, _: usize) -> io::Result<()> {
        Err(io::Error::other("no ensemble"))
    }

    fn together(&mut self) -> io::Result<()> {
        Err(io::Error::other("no ensemble"))
    }
}

impl Drop for Served {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.data);
    }
}

/// Two servers, and an alteration of the second one's answers.
struct Rig<'a> {
    servers: [Served; 2],
    alter: &'a dyn Fn(&mut Vec<Item>),
    plays: u32,
}

impl<'a> Rig<'a> {
    fn new(name: &str, alter: &'a dyn Fn(&mut Vec<Item>)) -> Self {
        let servers = ["theirs", "ours"].map(|side| Served::new(&format!("{name}-{side}")));
        Self { servers, alter, plays: 0 }
    }

    fn verdict(&mut self, script: &Script) -> Verdict {
        self.plays += 1;
        let root = format!("/d{}", self.plays);
        let [theirs, mut ours] = self.servers.each_ref().map(|server| server.play(script, &root));
        ours.steps.iter_mut().flatten().for_each(|lane| (self.alter)(&mut lane.items));
        compare(script, &root, &theirs, &ours)
    }
}

/// Finds the alteration with some seed, and shrinks the script to at most `operations_max`.
fn is_found(name: &str, operations_max: usize, alter: &dyn Fn(&mut Vec<Item>)) -> (Script, Difference) {
    let mut rig = Rig::new(name, alter);
    for seed in (2..20).step_by(2) {
        let script = generate(seed, SHAPE);
        let Some(difference) = rig.verdict(&script).difference else { continue };
        let (script, difference) = shrink(script, difference, EFFORT, &mut |script| rig.verdict(script).difference);
        assert!(script.operations() <= operations_max, "{name}: not small:\n{script}\n{difference}");
        assert!(rig.verdict(&script).difference.is_some(), "{name}: the small script shows it again");
        return (script, difference);
    }
    panic!("{name} was not found")
}

#[test]
fn two_equal_servers_show_no_difference() {
    let mut rig = Rig::new("alike", &|_| {});
    for seed in (2..8).step_by(2) {
        let script = generate(seed, Shape { operations: 1000, sessions: 4 });
        let verdict = rig.verdict(&script);
        assert_eq!(verdict.difference, None, "seed {seed}");
        assert!(verdict.replies > 1000 && verdict.events > 20, "{} {}", verdict.replies, verdict.events);
        assert_eq!(verdict.used.iter().sum::<u64>(), 0, "seed {seed}: {:?}", verdict.used);
    }
}

/// An escape sorts before the letters, but the byte it stands for sorts after them.
#[test]
fn ephemerals_are_deleted_in_byte_order_of_their_paths() {
    let script = r#"
s0 connect new 0L 300000 0b
s0 send
  create "~" null [(31 "world" "anyone")] 0
s0 send
  create "~/\xc3\xa9" "" [(31 "world" "anyone")] 1
  create "~/b" "" [(31 "world" "anyone")] 1
s0 send
  setWatches2 9223372036854775807L [("~/\xc3\xa9") ("~/b")] [] [] [] []
s0 fatal
  closeSession
"#;
    let script = Script::parse(script).unwrap();
    let verdict = Rig::new("bytes", &|_| {}).verdict(&script);
    assert_eq!(verdict.difference, None);
    assert!(verdict.events >= 2, "{}", verdict.events);
}

#[test]
fn changed_error_code_is_detected() {
    let (script, difference) = is_found("code", 3, &|items| {
        for item in items {
            if let What::Reply(reply) = &mut item.what
                && (reply.code, reply.error) == (2, -101)
            {
                reply.error = -103;
            }
        }
    });
    assert!(script.to_string().contains("delete"), "{script}");
    assert_eq!(difference.why, "error -101 and -103");
}

#[test]
fn changed_stat_field_is_detected() {
    is_found("stat", 6, &|items| {
        for item in items {
            let What::Reply(reply) = &mut item.what else { continue };
            for atom in reply.parts.iter_mut().flatten() {
                if let Atom::Text(text) = atom
                    && text.starts_with("version 1 ")
                {
                    *text = text.replace("version 1", "version 2");
                }
            }
        }
    });
}

#[test]
fn lost_watch_event_is_detected() {
    let (script, _) = is_found("lost", 12, &|items| {
        items.retain(|item| !matches!(item.what, What::Event { kind: 4, .. }));
    });
    assert!(script.to_string().contains("create") || script.to_string().contains("delete"), "{script}");
}

#[test]
fn event_swapped_with_the_next_reply_is_detected() {
    is_found("late", 8, &|items| {
        for at in 1..items.len() {
            if matches!(items[at - 1].what, What::Event { .. }) && matches!(items[at].what, What::Reply(_)) {
                items.swap(at - 1, at);
                return;
            }
        }
    });
}

#[test]
fn skipped_zxid_is_detected() {
    is_found("zxid", 4, &|items| {
        for item in items {
            if let What::Reply(reply) = &mut item.what
                && reply.code == 5
                && reply.zxid > 0
            {
                reply.zxid += 1;
            }
        }
    });
}

#[test]
fn connection_left_open_is_detected() {
    is_found("open", 4, &|items| items.retain(|item| item.what != What::Closed));
}
