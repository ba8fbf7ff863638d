//! The thread of the links to other servers: `zoolet-transport`'s, on a tokio runtime of its own, so that no flood of clients keeps a heartbeat waiting.

use super::Input;
use super::base::BaseWork;
use super::checkpoint::CheckpointWork;
use super::seat::{Driver, LITTLE};
use super::snapshots::{Incoming, LentReader, Outgoing};
use super::threads::Shared;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::Notify;
use zoolet_engine::status::PeerStatus;
use zoolet_engine::store::disk::Disk;
use zoolet_engine::{Action, Event, Limits, PeerMessage};
use zoolet_model::ServerId;
use zoolet_transport::peer::{Instruction, Outbox, PeerEvents, PeerFigures, PeerPort, PeerTable};

/// Threads that snapshots are read and written on, and names looked up: they last only while they are needed.
const BLOCKING_THREADS: usize = 8;

/// The way to the thread of the links, and what a snapshot that comes in is written with.
pub(crate) struct Links {
    table: Arc<PeerTable>,
    outbox: Arc<Outbox>,
    stop: Notify,
    disk: Arc<dyn Disk>,
    limits: Limits,
    /// Those that the file names.
    voters: Vec<ServerId>,
}

impl Links {
    pub(super) fn new(table: Arc<PeerTable>, disk: Arc<dyn Disk>, limits: Limits, voters: Vec<ServerId>) -> Arc<Self> {
        Arc::new(Self { table, outbox: Arc::default(), stop: Notify::new(), disk, limits, voters })
    }

    /// The voters that the file names.
    pub(super) fn file_voters(&self) -> Vec<ServerId> {
        self.voters.clone()
    }

    pub(super) fn push(&self, instructions: &mut Vec<Instruction>) {
        self.outbox.push(instructions);
    }

    /// How each link is.
    pub(super) fn statuses(&self) -> Vec<PeerStatus> {
        self.table.figures().into_iter().map(|(id, figures)| status(id, figures)).collect()
    }

    /// Say goodbye, and end.
    pub(super) fn stop(&self) {
        self.stop.notify_one();
    }
}

fn status(id: ServerId, figures: PeerFigures) -> PeerStatus {
    let missing = figures.missing_since.map_or(Duration::ZERO, |since| since.elapsed());
    PeerStatus {
        id,
        address: figures.address.map_or_else(String::new, |address| address.to_string()),
        is_linked: figures.is_linked,
        missing_ms: u64::try_from(missing.as_millis()).unwrap_or(u64::MAX),
        heard_ms: figures.heard_at.map(|at| u64::try_from(at.elapsed().as_millis()).unwrap_or(u64::MAX)),
        round_trip_us: figures.round_trip_us,
        refusal: figures.refusal.map(|refusal| refusal.line),
    }
}

/// What an action of the machine is for the links; `None` for actions that are not for peers, and where there are none. What the base has to do for it is added to
/// `base_work`, in its order among the machine's other actions.
pub(super) fn instruction(shared: &Arc<Shared>, action: Action, base_work: &mut Vec<BaseWork>) -> Option<Instruction> {
    let links = shared.links.as_ref()?;
    Some(match action {
        Action::PeerSend { peer, link, message } => Instruction::Send { peer, link, message },
        Action::PeerClose { peer, link, reason } => Instruction::Close { peer, link, reason },
        Action::SendSnapshot { peer, link, transfer, generation, chain, too_late } => {
            let lent = LentReader::new();
            base_work.push(BaseWork::Lend(generation, Arc::clone(&lent)));
            let source = Box::new(Outgoing::new(Arc::downgrade(shared), lent, chain));
            Instruction::SendSnapshot { peer, link, transfer, source, too_late }
        }
        Action::ReceiveSnapshot { peer, link, transfer, meta } => {
            shared.received.want((peer, transfer));
            let disk = Arc::clone(&links.disk);
            let taker = Incoming::new(Arc::downgrade(shared), disk, links.limits, (peer, transfer), meta);
            Instruction::ReceiveSnapshot { peer, link, transfer, taker: Box::new(taker) }
        }
        Action::DropSnapshot { peer, transfer } => {
            if let Some(unwanted) = shared.received.give_up((peer, transfer)) {
                // Its files are large, and this thread must not wait for a disk.
                shared.checkpoint.push(CheckpointWork::Remove(unwanted));
            }
            Instruction::DropSnapshot { peer, transfer }
        }
        _ => return None,
    })
}

/// How many things an event brings to the core.
fn weight(event: &Event) -> usize {
    match event {
        Event::PeerMessage { message: PeerMessage::Entries(entries), .. } => entries.entries.len(),
        _ => 1,
    }
}

/// Takes what peers say to the core.
struct ToCore(Arc<Shared>);

impl PeerEvents for ToCore {
    fn submit(&self, events: &mut Vec<Event>) {
        let is_little = events.iter().map(weight).sum::<usize>() <= LITTLE;
        self.0.bring(events.drain(..).map(Input::Event), is_little, Driver::Peers);
    }
}

/// Runs until [`Links::stop`]; the error is why it could not.
pub(super) fn run(port: PeerPort, links: &Links, shared: Arc<Shared>) -> Result<(), String> {
    let mut builder = tokio::runtime::Builder::new_current_thread();
    let runtime = builder.enable_io().enable_time().max_blocking_threads(BLOCKING_THREADS).build();
    let runtime = runtime.map_err(|error| format!("the thread of the links cannot start: {error}"))?;
    let outbox = Arc::clone(&links.outbox);
    let served = runtime.block_on(port.run(Arc::new(ToCore(shared)), outbox, links.stop.notified()));
    // Whoever writes a snapshot may hang with its disk.
    runtime.shutdown_background();
    served.map_err(|error| format!("the links to other servers failed: {error}"))
}
