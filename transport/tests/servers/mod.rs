//! Servers that consist of their links alone.
//!
//! As in a real server, the links have their own thread. The events they submit are kept.

#![allow(dead_code, reason = "each test needs a part of it")]

pub(crate) mod lines;
pub(crate) mod stranger;

use std::net::{Ipv4Addr, SocketAddr, UdpSocket};
use std::path::PathBuf;
use std::sync::atomic::{AtomicU8, Ordering};
use std::sync::{Arc, Condvar, Mutex};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};
use tokio::sync::oneshot;
use zoolet_machine::seam::peer::{Entries, Incarnation, LinkId, PeerEntry, PeerMessage};
use zoolet_machine::{Budget, Event, Limits};
use zoolet_model::{ServerId, Zxid};
use zoolet_transport::peer::trust::{Identity, PublicKey, SiteKey, Trust};
use zoolet_transport::peer::{
    Instruction, InstructionQueue, PeerEvents, PeerMember, PeerPort, PeerSettings, PeerTable,
};
use zoolet_zab::{Attempt, Message};

/// Returns a free address.
///
/// Each call uses another loopback address, so the port stays free until it is bound.
pub(crate) fn free_address() -> SocketAddr {
    static CALLS: AtomicU8 = AtomicU8::new(1);
    let call = CALLS.fetch_add(1, Ordering::Relaxed);
    let [.., high, low] = std::process::id().to_be_bytes();
    let address = Ipv4Addr::new(127, high.max(1), low, call);
    UdpSocket::bind((address, 0)).unwrap().local_addr().unwrap()
}

/// Returns plans of servers that know each other's addresses.
pub(crate) fn plans<const N: usize>() -> [Plan; N] {
    let addresses = [(); N].map(|()| free_address());
    std::array::from_fn(|index| {
        let mut plan = Plan::new(index as u8 + 1);
        plan.listen = addresses[index];
        for (other, address) in addresses.iter().enumerate() {
            plan = plan.knows(other as u8 + 1, &[&address.to_string()]);
        }
        plan
    })
}

/// Longer than any step takes on a working host.
pub(crate) const PATIENCE: Duration = Duration::from_secs(60);

pub(crate) fn id(id: u8) -> ServerId {
    ServerId::new(id).unwrap()
}

/// The events submitted to the engine.
#[derive(Debug, Default)]
pub(crate) struct Told {
    events: Mutex<Vec<Event>>,
    came: Condvar,
}

impl PeerEvents for Told {
    fn submit(&self, events: &mut Vec<Event>) {
        self.events.lock().unwrap().append(events);
        self.came.notify_all();
    }
}

impl Told {
    /// Waits until `find` finds a value in the events so far.
    #[track_caller]
    pub(crate) fn wait<T>(&self, what: &str, mut find: impl FnMut(&[Event]) -> Option<T>) -> T {
        let until = Instant::now() + PATIENCE;
        let mut events = self.events.lock().unwrap();
        loop {
            if let Some(found) = find(&events) {
                return found;
            }
            let left = until.saturating_duration_since(Instant::now());
            assert!(!left.is_zero(), "waited for {what}; told: {:?}", summary(&events));
            events = self.came.wait_timeout(events, left).unwrap().0;
        }
    }

    pub(crate) fn count(&self, mut of: impl FnMut(&Event) -> bool) -> usize {
        self.events.lock().unwrap().iter().filter(|event| of(event)).count()
    }

    /// Takes the events so far.
    pub(crate) fn take(&self) -> Vec<Event> {
        std::mem::take(&mut self.events.lock().unwrap())
    }
}

fn summary(events: &[Event]) -> Vec<String> {
    let short = |event: &Event| match event {
        Event::PeerMessage { peer, link, .. } => format!("message of {peer:?} on {link:?}"),
        other => format!("{other:?}"),
    };
    events.iter().rev().take(20).rev().map(short).collect()
}

/// The settings with which a server starts.
#[derive(Clone)]
pub(crate) struct Plan {
    pub id: u8,
    pub process: u64,
    pub listen: SocketAddr,
    pub identity: Identity,
    pub trust: Trust,
    pub site: String,
    pub members: Vec<(u8, Vec<String>, Option<PublicKey>)>,
    pub hints: Option<PathBuf>,
    pub bulk_bytes_per_second: u64,
    pub lane_bytes_max: usize,
    pub window_bytes: u32,
    /// Shared by all servers started from this plan.
    pub budget: Arc<Budget>,
}

impl Plan {
    pub(crate) fn new(id: u8) -> Self {
        Self {
            id,
            process: 1000 + u64::from(id),
            listen: "127.0.0.1:0".parse().unwrap(),
            identity: Identity::generate().unwrap(),
            trust: Trust::Loopback,
            site: "plant".to_owned(),
            members: Vec::new(),
            hints: None,
            bulk_bytes_per_second: 1 << 30,
            lane_bytes_max: 64 << 20,
            window_bytes: 12 << 20,
            budget: Arc::new(Budget::new(&Limits::default())),
        }
    }

    /// Adds a member with these addresses.
    pub(crate) fn knows(mut self, id: u8, addresses: &[&str]) -> Self {
        self.members.push((id, addresses.iter().map(|address| (*address).to_owned()).collect(), None));
        self
    }

    /// Plans another process of the same server, at `at`.
    pub(crate) fn again(mut self, at: SocketAddr) -> Self {
        self.process += 1_000_000;
        self.listen = at;
        self
    }

    pub(crate) fn of_site(mut self, key: &SiteKey) -> Self {
        self.trust = Trust::Site(key.clone());
        self
    }

    fn settings(&self) -> PeerSettings {
        let mut members: Vec<_> = self
            .members
            .iter()
            .map(|(id, addresses, key)| PeerMember { id: self::id(*id), addresses: addresses.clone(), key: *key })
            .collect();
        if members.iter().all(|member| member.id != self::id(self.id)) {
            members.push(PeerMember { id: self::id(self.id), addresses: Vec::new(), key: None });
        }
        PeerSettings {
            id: self::id(self.id),
            disk: Incarnation(u128::from(self.id)),
            process: self.process,
            listen: self.listen,
            members,
            trust: self.trust.clone(),
            identity: self.identity.clone(),
            hints: self.hints.clone(),
            frame_bytes_max: 8 << 20,
            lane_bytes_max: self.lane_bytes_max,
            window_bytes: self.window_bytes,
            bulk_bytes_per_second: self.bulk_bytes_per_second,
            site: self.site.clone(),
        }
    }

    pub(crate) fn bind(&self) -> Bound {
        Bound { plan: self.clone(), port: PeerPort::bind(self.settings(), self.budget.clone()).unwrap() }
    }

    pub(crate) fn start(&self) -> Server {
        self.bind().start()
    }
}

/// A server whose port is bound but not served.
pub(crate) struct Bound {
    plan: Plan,
    port: PeerPort,
}

impl Bound {
    pub(crate) fn address(&self) -> SocketAddr {
        self.port.local_address()
    }

    pub(crate) fn start(self) -> Server {
        let (address, table) = (self.port.local_address(), self.port.table());
        let (told, outbox) = (Arc::new(Told::default()), Arc::new(InstructionQueue::new()));
        let (end, ended) = oneshot::channel();
        let thread = thread::spawn({
            let (told, outbox) = (told.clone(), outbox.clone());
            move || {
                let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
                let (stop, stopped) = oneshot::channel();
                let served = self.port.run(told, outbox, async { stopped.await.unwrap_or(()) });
                let mut served = Box::pin(served);
                runtime.block_on(async {
                    let end = tokio::select! {
                        result = &mut served => return result,
                        end = ended => end.unwrap_or(End::Killed),
                    };
                    match end {
                        End::Stopped => {
                            stop.send(()).unwrap();
                            served.await
                        }
                        // As after kill -9, no peer is told. The runtime and all its tasks are
                        // dropped before anything more is sent.
                        End::Killed => Ok(()),
                    }
                })
            }
        });
        let Plan { id, budget, .. } = self.plan;
        Server { id, address, table, told, outbox, budget, end: Some(end), thread: Some(thread) }
    }
}

enum End {
    Stopped,
    Killed,
}

/// A running server.
pub(crate) struct Server {
    pub id: u8,
    pub address: SocketAddr,
    pub table: Arc<PeerTable>,
    pub told: Arc<Told>,
    pub outbox: Arc<InstructionQueue>,
    pub budget: Arc<Budget>,
    end: Option<oneshot::Sender<End>>,
    thread: Option<JoinHandle<Result<(), String>>>,
}

impl Drop for Server {
    fn drop(&mut self) {
        if let Some(end) = self.end.take() {
            let _ = end.send(End::Stopped);
        }
        if let Some(thread) = self.thread.take() {
            let result = thread.join().unwrap();
            if !thread::panicking() {
                result.unwrap();
            }
        }
    }
}

impl Server {
    /// Ends the server as kill -9 does.
    pub(crate) fn kill(mut self) {
        let _ = self.end.take().unwrap().send(End::Killed);
    }

    /// Waits for a live link to the peer; returns the newest.
    #[track_caller]
    pub(crate) fn linked(&self, peer: u8) -> LinkId {
        let id = id(peer);
        self.told.wait(&format!("a link of {} to {peer}", self.id), |events| link_of(events, id))
    }

    #[track_caller]
    pub(crate) fn unlinked(&self, peer: u8, link: LinkId) {
        self.told.wait(&format!("the end of {link:?} of {} to {peer}", self.id), |events| {
            let is_end = |event: &Event| matches!(event, Event::PeerDown { peer: of, link: is } if *of == id(peer) && *is == link);
            events.iter().any(is_end).then_some(())
        });
    }

    pub(crate) fn push(&self, mut instructions: Vec<Instruction>) {
        self.outbox.push(&mut instructions);
    }

    pub(crate) fn send(&self, peer: u8, link: LinkId, message: PeerMessage) {
        self.push(vec![Instruction::Send { peer: id(peer), link, message }]);
    }

    /// Waits for `count` messages on the link, and returns them.
    #[track_caller]
    pub(crate) fn messages(&self, from: u8, link: LinkId, count: usize) -> Vec<PeerMessage> {
        self.told.wait(&format!("{count} messages of {from} at {}", self.id), |events| {
            let messages: Vec<_> = events
                .iter()
                .filter_map(|event| match event {
                    Event::PeerMessage { peer, link: on, message } if *peer == id(from) && *on == link => Some(message),
                    _ => None,
                })
                .collect();
            (messages.len() >= count).then(|| messages.into_iter().cloned().collect())
        })
    }

    /// Waits until the table shows a refusal that contains `part`.
    #[track_caller]
    pub(crate) fn refusal(&self, peer: u8, part: &str) -> String {
        let until = Instant::now() + PATIENCE;
        loop {
            let line = self.table.figures().get(&id(peer)).and_then(|figures| figures.refusal.clone());
            if let Some(refusal) = &line
                && refusal.line.contains(part)
            {
                return refusal.line.clone();
            }
            assert!(Instant::now() < until, "waited for {part:?}; the table says {line:?}");
            thread::sleep(Duration::from_millis(20));
        }
    }

    /// Waits for a refusal or for a lasting newer link.
    ///
    /// Returns true when the table shows a refusal with `part`. Returns false when a link after the
    /// first `links` lasts, which erases the refusal.
    #[track_caller]
    pub(crate) fn refusal_or_newer_link(&self, peer: u8, part: &str, links: u64) -> bool {
        let until = Instant::now() + PATIENCE;
        loop {
            let figures = self.table.figures()[&id(peer)].clone();
            match &figures.refusal {
                Some(refusal) if refusal.line.contains(part) => return true,
                None if figures.is_linked && figures.links > links => return false,
                _ => {}
            }
            assert!(Instant::now() < until, "waited for {part:?}; the table says {figures:?}");
            thread::sleep(Duration::from_millis(20));
        }
    }

    /// Returns the number of links to the peer so far.
    pub(crate) fn links(&self, peer: u8) -> u64 {
        self.table.figures()[&id(peer)].links
    }
}

/// Returns the newest link to the peer, if it is up.
pub(crate) fn link_of(events: &[Event], id: ServerId) -> Option<LinkId> {
    let up = events.iter().rev().find_map(|event| match event {
        Event::PeerUp { peer, link, .. } if *peer == id => Some(*link),
        _ => None,
    })?;
    let is_down = |event: &Event| matches!(event, Event::PeerDown { peer, link } if *peer == id && *link == up);
    (!events.iter().any(is_down)).then_some(up)
}

/// A small message on the log lane.
pub(crate) fn commit(number: u64) -> PeerMessage {
    let to = Zxid::from_bits(1 << 32 | number).unwrap();
    PeerMessage::Zab(Box::new(Message::Commit { attempt: Attempt(1), epoch: to.epoch(), to }))
}

/// A heartbeat.
pub(crate) fn ping(round: u64) -> PeerMessage {
    let (attempt, epoch) = (Attempt(1), Zxid::from_bits(1 << 32).unwrap().epoch());
    PeerMessage::Zab(Box::new(Message::Ping { attempt, epoch, round, interval_ms: 350, quorum_age_ms: 0 }))
}

/// A message on the log lane with a payload of `bytes` bytes.
pub(crate) fn entry(number: u64, bytes: usize) -> PeerMessage {
    let zxid = Zxid::from_bits(1 << 32 | number).unwrap();
    let payload = vec![number as u8; bytes].into();
    PeerMessage::Entries(Entries {
        attempt: Attempt(1),
        epoch: zxid.epoch(),
        from: zxid,
        to: zxid,
        committed: Zxid::ZERO,
        chain_before: 0,
        entries: vec![PeerEntry { zxid, payload }],
    })
}
