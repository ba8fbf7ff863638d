//! Scripted traces: `traces/*.txt` hold commands, and indented below them the machines' reactions.
//!
//! `ZAB_REGENERATE=1` rewrites the reactions, so a change of behaviour is a readable text diff.
//! `ZAB_TRACES=PREFIX` plays only the scripts whose names start with the prefix.
//!
//! Commands:
//! - `servers ID...`: the voters of the configuration file
//! - `spare ID`: a server that the file does not name
//! - `history ID EPOCH:LAST... [committed ZXID]`: a disk of an ensemble born long ago
//! - `start ID...`, `crash ID [KEEP]`, `wipe ID`, `rot ID ENTRIES`
//! - `connect [A B]`, `reset A B`; `cut A B` and `mend A B` (one way)
//! - `deliver A B [COUNT]`, `persist ID [COUNT]`
//! - `hang ID` and `unhang ID`: the server's disk
//! - `lose datagrams`, `keep datagrams`
//! - `settle`: deliver and persist everything now
//! - `run MS`: like `settle`, while time passes; `tick MS`: only time passes
//! - `propose ID [COUNT]`, `confirm ID`, `handover ID`
//! - `reconfigure ID MEMBER...`: `o4` is an observer
//! - `full ID` and `room ID`: the server's disk lacks or has room
//! - `floor ID ZXID`: the log drops entries up to there
//! - `disks lie`: no invariant is checked
//! - `status`, `show notifications`, `show disk`

use crate::net::invariant::Checks;
use crate::net::server_id;
use crate::net::short::Short;
use crate::net::stage::Stage;
use std::fs;
use std::path::PathBuf;
use zoolet_zab::{Epoch, Kind, Member, Zxid};

#[derive(Default)]
struct Player {
    stage: Option<Stage>,
    shows_notifications: bool,
    shows_disk: bool,
}

fn number<T: std::str::FromStr>(word: &str) -> T {
    word.parse().unwrap_or_else(|_| panic!("{word} is no number"))
}

fn zxid(word: &str) -> Zxid {
    let (epoch, counter) = word.split_once('.').expect("EPOCH.COUNTER");
    Zxid::new(Epoch::new(number(epoch)).expect("an epoch"), number(counter)).expect("a zxid")
}

impl Player {
    fn play(&mut self, line: &str) -> Vec<String> {
        let words: Vec<&str> = line.split_whitespace().collect();
        let (command, rest) = words.split_first().expect("a command");
        let ids = || rest.iter().map(|word| number::<u8>(word)).collect::<Vec<u8>>();
        if *command == "servers" {
            self.stage = Some(Stage::new(&ids()));
            return Vec::new();
        }
        if *command == "disks" {
            assert_eq!(rest, ["lie"]);
            self.stage.as_mut().expect("servers first").net.checks = Checks::none();
            return Vec::new();
        }
        if *command == "show" {
            match rest[0] {
                "notifications" => self.shows_notifications = true,
                "disk" => self.shows_disk = true,
                other => panic!("what is {other}?"),
            }
            return Vec::new();
        }
        let stage = self.stage.as_mut().expect("servers first");
        let count = |at: usize| rest.get(at).map(|word| number::<u64>(word));
        let id = || number::<u8>(rest[0]);
        let mut said = Vec::new();
        match *command {
            "spare" => stage.spare(id()),
            "history" => {
                let committed = rest.iter().position(|word| *word == "committed");
                let spans = &rest[1..committed.unwrap_or(rest.len())];
                let spans: Vec<_> = spans.iter().map(|word| word.split_once(':').expect("EPOCH:LAST")).collect();
                let spans: Vec<(u32, u64)> = spans.iter().map(|(epoch, last)| (number(epoch), number(last))).collect();
                stage.history(id(), &spans, committed.map_or(Zxid::ZERO, |at| zxid(rest[at + 1])));
            }
            "start" => stage.start(&ids()),
            "crash" => stage.net.crash(id(), count(1).unwrap_or(0) as usize, true),
            "wipe" => stage.net.wipe(id()),
            "rot" => stage.net.rot(id(), count(1).expect("how many") as usize),
            "connect" if rest.is_empty() => stage.connect_all(),
            "connect" => {
                stage.net.connect(id(), number(rest[1]));
            }
            "reset" => stage.reset(id(), number(rest[1])),
            "cut" => stage.cut(id(), number(rest[1]), true),
            "mend" => stage.cut(id(), number(rest[1]), false),
            "deliver" => stage.deliver(id(), number(rest[1]), count(2).unwrap_or(1) as usize),
            "persist" => match count(1) {
                Some(count) => stage.persist(id(), count),
                None => {
                    stage.persist_all(id());
                }
            },
            "hang" => {
                stage.hung.insert(id());
            }
            "unhang" => {
                stage.hung.remove(&id());
            }
            "lose" => stage.loses_datagrams = true,
            "keep" => stage.loses_datagrams = false,
            "settle" => stage.settle(),
            "run" => stage.run(count(0).expect("how long")),
            "tick" => stage.tick(count(0).expect("how long")),
            "propose" => {
                for _ in 0..count(1).unwrap_or(1) {
                    if let Err(refused) = stage.net.propose(id()) {
                        said.push(format!("refused: {refused}"));
                    }
                }
            }
            "confirm" => {
                if let Err(refused) = stage.net.confirm(id()) {
                    said.push(format!("refused: {refused}"));
                }
            }
            "reconfigure" => {
                let member = |word: &&str| {
                    let (kind, word) =
                        word.strip_prefix('o').map_or((Kind::Voter, *word), |word| (Kind::Observer, word));
                    let id: u8 = number(word);
                    Member { id: server_id(id), kind, disk: stage.net.world.server(id).log.disk }
                };
                let members: Vec<Member> = rest[1..].iter().map(member).collect();
                if let Err(refused) = stage.net.reconfigure(id(), &members) {
                    said.push(format!("refused: {refused}"));
                }
            }
            "handover" => stage.net.hand_over(id()),
            "full" => stage.net.set_has_room(id(), false),
            "room" => stage.net.set_has_room(id(), true),
            "floor" => stage.net.raise_floor(id(), zxid(rest[1])),
            "status" => {
                for server in stage.net.world.servers.values() {
                    let log = &server.log.durable;
                    let place = if server.runs() { Short(&server.role).to_string() } else { "is down".to_owned() };
                    let refused = server.zab.as_ref().and_then(|zab| zab.refused());
                    let refused = refused.map_or(String::new(), |id| format!("; refuses {}", id.as_u8()));
                    said.push(format!(
                        "{} {place}; promised {}, in epoch {}, durable up to {:?}, applied {:?}{refused}",
                        server.id,
                        log.accepted.as_u32(),
                        log.current.as_u32(),
                        log.last(),
                        server.applied
                    ));
                }
            }
            other => panic!("what is {other}?"),
        }
        let happened = std::mem::take(stage.net.trace.as_mut().expect("it is written down"));
        let happened = happened.iter().filter_map(|line| line.split_once(": ")).map(|(_, line)| line.to_owned());
        let mut shown: Vec<String> = happened.filter(|line| self.is_shown(line)).collect();
        shown.append(&mut said);
        shown
    }

    fn is_shown(&self, line: &str) -> bool {
        let is_sent = line.contains(" -> ");
        let is_heartbeat = line.contains("Ping ") || line.contains("Pong ");
        let is_notification = line.contains("; accepted ");
        let is_disk = line.contains(" has #");
        !is_sent && !is_heartbeat && (self.shows_notifications || !is_notification) && (self.shows_disk || !is_disk)
    }
}

/// Plays a script and returns its text with the reactions it should contain.
fn played(script: &str) -> String {
    let mut player = Player::default();
    let mut text = String::new();
    for line in script.lines().filter(|line| !line.starts_with("    ")) {
        text.push_str(line);
        text.push('\n');
        if !line.is_empty() && !line.starts_with('#') {
            for said in player.play(line) {
                text.push_str("    ");
                text.push_str(&said);
                text.push('\n');
            }
        }
    }
    text
}

#[test]
fn every_trace_script_replays_exactly() {
    let place = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/traces");
    let mut scripts: Vec<PathBuf> = fs::read_dir(&place).unwrap().map(|entry| entry.unwrap().path()).collect();
    scripts.retain(|path| path.extension().is_some_and(|extension| extension == "txt"));
    scripts.sort();
    assert!(!scripts.is_empty());
    let only = std::env::var("ZAB_TRACES").ok();
    let mut differ = Vec::new();
    for path in scripts {
        let name = path.file_name().unwrap().to_string_lossy().into_owned();
        if only.as_ref().is_some_and(|only| !name.starts_with(only.as_str())) {
            continue;
        }
        let written = fs::read_to_string(&path).unwrap();
        let played = std::panic::catch_unwind(|| played(&written)).unwrap_or_else(|_| panic!("{name} breaks a rule"));
        if played != written {
            if std::env::var("ZAB_REGENERATE").is_ok() {
                fs::write(&path, played).unwrap();
            } else {
                let at = played.lines().zip(written.lines()).position(|(played, written)| played != written);
                let at = at.unwrap_or_else(|| played.lines().count().min(written.lines().count()));
                differ.push(format!(
                    "{name}, line {}: it says {:?}, and {:?} happened",
                    at + 1,
                    written.lines().nth(at).unwrap_or("nothing"),
                    played.lines().nth(at).unwrap_or("nothing")
                ));
            }
        }
    }
    assert!(differ.is_empty(), "{}\nZAB_REGENERATE=1 writes them anew", differ.join("\n"));
}
