//! Dials, accepts, keeps one link per pair of servers, and carries messages.
//!
//! | file | what it does |
//! |---|---|
//! | `quic` | settings of QUIC and of the socket |
//! | `dial`, `resolver` | dials members without a link |
//! | `accept`, `handshake_limit` | accepts connections, and bounds the cost of unproved peers |
//! | `greeting` | the first messages of a connection, and their proofs |
//! | `admission` | which connection becomes the link |
//! | `link`, `link_tasks` | a link, and its tasks from PeerUp to PeerDown |
//! | `silence` | a peer that no longer answers, and a pause of this server |
//! | `queue` | bytes that wait to be written |
//! | `dispatch` | routes instructions to their links |
//! | `sending`, `receiving`, `rate` | snapshots |
//! | `closing`, `warnings` | close codes for peers, and lines for operators |
//! | `hints` | learned addresses |

mod accept;
mod admission;
mod blocking;
mod closing;
mod dial;
mod dispatch;
mod greeting;
mod handshake_limit;
mod hints;
mod link;
mod link_tasks;
mod members;
mod queue;
mod quic;
mod rate;
mod receiving;
mod resolver;
mod sending;
mod silence;
mod warnings;

pub(super) use link::LANES;
pub(super) use quic::bind;

use super::instruction_queue::{InstructionQueue, PeerEvents, lock};
use super::settings::PeerSettings;
use super::table::PeerTable;
use super::trust::Gate;
use closing::Closing;
use hints::Hints;
use members::Member;
use queue::Room;
use quinn::{Endpoint, TokioRuntime};
use rate::Rate;
use receiving::Incoming;
use resolver::Names;
use std::collections::BTreeMap;
use std::future::{Future, poll_fn};
use std::net::{SocketAddr, UdpSocket};
use std::pin::pin;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex};
use std::task::Poll;
use std::time::{Duration, Instant};
use tokio::task::JoinSet;
use tokio::time::timeout;
use warnings::Warnings;
use zoolet_machine::seam::peer::LinkId;
use zoolet_machine::{Budget, Event};
use zoolet_model::ServerId;

/// Time for peers to receive the queued messages when this server stops.
const LAST_WORDS: Duration = Duration::from_millis(200);
/// Time for the final close frames to be sent.
const FAREWELL: Duration = Duration::from_millis(100);

/// State shared by all tasks of a port.
pub(super) struct Links {
    settings: PeerSettings,
    gate: Gate,
    endpoint: Endpoint,
    events: Arc<dyn PeerEvents>,
    table: Arc<PeerTable>,
    budget: Arc<Budget>,
    names: Names,
    /// Lines about members.
    warnings: Warnings,
    /// Last time at which a link found that this server had been paused.
    pause_found: Mutex<Option<Instant>>,
    /// Lines about unproved peers. Separate, so that a flood of them cannot crowd out a member's
    /// line.
    of_strangers: Warnings,
    hints: Hints,
    members: BTreeMap<ServerId, Arc<Member>>,
    links_begun: AtomicU64,
    bulk: Rate,
    incoming: Incoming,
    started: Instant,
}

impl Links {
    /// Creates the endpoint. From then on peers may connect, and wait for [`accept::run`].
    ///
    /// # Errors
    /// A message for the operator: TLS or the endpoint cannot be set up.
    pub(super) fn begin(
        settings: PeerSettings,
        gate: Gate,
        socket: UdpSocket,
        events: Arc<dyn PeerEvents>,
        table: Arc<PeerTable>,
        budget: Arc<Budget>,
    ) -> Result<Self, String> {
        let transport = quic::transport(settings.window_bytes);
        let mut server = gate.server_config().map_err(|error| error.to_string())?;
        server.transport_config(transport.clone());
        accept::bound(&mut server);
        let endpoint = Endpoint::new(gate.endpoint_config(), Some(server), socket, Arc::new(TokioRuntime))
            .map_err(|error| format!("cannot serve links to other servers: {error}"))?;
        let mut members = BTreeMap::new();
        for member in settings.members.iter().filter(|member| member.id != settings.id) {
            let mut dialling = gate.client_config(member.id).map_err(|error| error.to_string())?;
            dialling.transport_config(transport.clone());
            members.insert(member.id, Arc::new(Member::new(member, dialling)));
        }
        members.keys().for_each(|&peer| table.expect(peer));
        Ok(Self {
            gate,
            endpoint,
            events,
            table,
            budget,
            names: Names::default(),
            warnings: Warnings::default(),
            pause_found: Mutex::default(),
            of_strangers: Warnings::default(),
            hints: Hints::read(settings.hints.clone()),
            members,
            links_begun: AtomicU64::new(0),
            bulk: Rate::new(settings.bulk_bytes_per_second, Instant::now()),
            incoming: Incoming::default(),
            started: Instant::now(),
            settings,
        })
    }

    /// See [`super::PeerPort::run`].
    pub(super) async fn run(
        self: Arc<Self>,
        outbox: Arc<InstructionQueue>,
        stop: impl Future<Output = ()>,
    ) -> Result<(), String> {
        // Closes all links when this future is dropped.
        let _endpoint = CloseOnDrop(self.endpoint.clone());
        let mut tasks = JoinSet::new();
        for member in self.members() {
            tasks.spawn(dial::keep_linked(self.clone(), member.clone()));
        }
        tasks.spawn(accept::run(self.clone()));
        tasks.spawn(dispatch::run(self.clone(), outbox.clone()));
        let result = tokio::select! {
            () = stop => Ok(()),
            // None of them ends by itself.
            ended = tasks.join_next() => Err(format!("a task of the links ended: {ended:?}")),
        };
        tasks.shutdown().await;
        dispatch::take_rest(&self, &outbox).await;
        self.end().await;
        result
    }

    fn members(&self) -> impl Iterator<Item = &Arc<Member>> {
        self.members.values()
    }

    fn member(&self, id: ServerId) -> Option<&Arc<Member>> {
        self.members.get(&id)
    }

    fn next_link(&self) -> LinkId {
        LinkId(self.links_begun.fetch_add(1, Relaxed) + 1)
    }

    /// Returns the bounds for a new link's queues.
    fn room(&self) -> Room {
        Room { bytes_max: self.settings.lane_bytes_max, budget: self.budget.clone() }
    }

    fn submit(&self, event: Event) {
        self.events.submit(&mut vec![event]);
    }

    fn submit_all(&self, events: &mut Vec<Event>) {
        if !events.is_empty() {
            self.events.submit(events);
        }
    }

    /// Records the addresses of a peer that is linked at `remote`.
    fn learn(&self, member: &Member, remote: SocketAddr, said: &[String]) {
        let came_from = remote.to_string();
        let said = said.iter().map(String::as_str);
        self.hints.learn(member, said.chain([came_from.as_str()]));
    }

    /// Flushes the queued messages, then tells the peers that this server stops.
    ///
    /// The tasks that dial and accept have ended before.
    async fn end(&self) {
        let links: Vec<_> = self.members().filter_map(|member| member.link()).collect();
        links.iter().for_each(|link| link.end());
        let taken = async {
            for link in &links {
                link.taken().await;
            }
        };
        // A peer that does not read is told as well.
        let _ = timeout(LAST_WORDS, taken).await;
        for link in &links {
            Closing::Going.close(&link.connection, "");
        }
        for member in self.members() {
            member.unlinked().await;
        }
        self.endpoint.close(0u32.into(), b"");
        let _ = timeout(FAREWELL, self.endpoint.wait_idle()).await;
    }
}

/// Closes the endpoint's connections when dropped.
struct CloseOnDrop(Endpoint);

impl Drop for CloseOnDrop {
    fn drop(&mut self) {
        self.0.close(0u32.into(), b"");
    }
}

/// Polls a future once; `None` if it is not ready.
async fn ready<T>(future: impl Future<Output = T>) -> Option<T> {
    let mut future = pin!(future);
    poll_fn(|cx| match future.as_mut().poll(cx) {
        Poll::Ready(value) => Poll::Ready(Some(value)),
        Poll::Pending => Poll::Ready(None),
    })
    .await
}
