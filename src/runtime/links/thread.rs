//! The thread of the links to other servers, on a separate tokio runtime.
//!
//! Therefore a flood of clients does not delay heartbeats.

use super::snapshots::{Incoming, LentReader, Outgoing};
use crate::config::Config;
use crate::runtime::base_threads::BaseWork;
use crate::runtime::checkpoint_thread::CheckpointWork;
use crate::runtime::threads::Shared;
use crate::runtime::turns::{Driver, LITTLE};
use crate::runtime::{Input, StartError, member};
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::Notify;
use zoolet_machine::status::PeerStatus;
use zoolet_machine::{Action, Event, Limits, PeerMessage};
use zoolet_model::ServerId;
use zoolet_store::disk::Disk;
use zoolet_transport::peer::{Instruction, InstructionQueue, PeerEvents, PeerFigures, PeerPort, PeerTable};

/// Maximum number of threads that transfer snapshots and resolve names. Idle ones end.
const BLOCKING_THREADS: usize = 8;

/// Access to the links' thread, with the disk and limits for incoming snapshots.
pub(crate) struct PeerLinks {
    table: Arc<PeerTable>,
    outbox: Arc<InstructionQueue>,
    stop: Notify,
    disk: Arc<dyn Disk>,
    limits: Limits,
    /// Voters in the configuration file.
    voters: Vec<ServerId>,
}

impl PeerLinks {
    pub(in crate::runtime) fn new(
        port: &PeerPort,
        disk: Arc<dyn Disk>,
        config: &Config,
    ) -> Result<Arc<Self>, StartError> {
        let voters = member::members(config)?.voters().map(|voter| voter.id).collect();
        let (table, limits) = (port.table(), config.limits);
        Ok(Arc::new(Self { table, outbox: Arc::default(), stop: Notify::new(), disk, limits, voters }))
    }

    /// Returns the voters in the configuration file.
    pub(in crate::runtime) fn file_voters(&self) -> Vec<ServerId> {
        self.voters.clone()
    }

    pub(in crate::runtime) fn push(&self, instructions: &mut Vec<Instruction>) {
        self.outbox.push(instructions);
    }

    /// Returns the status of each link.
    pub(in crate::runtime) fn statuses(&self) -> Vec<PeerStatus> {
        self.table.figures().into_iter().map(|(id, figures)| status(id, figures)).collect()
    }

    /// Says goodbye to all peers, and ends the thread.
    pub(in crate::runtime) fn stop(&self) {
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

/// Returns an action as instruction for the links.
///
/// `None` if it is not for peers, or if there are no links. Work for the base goes to `base_work`,
/// in order with the machine's other actions.
pub(in crate::runtime) fn instruction(
    shared: &Arc<Shared>,
    action: Action,
    base_work: &mut Vec<BaseWork>,
) -> Option<Instruction> {
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

/// Returns how many items an event brings to the core.
fn weight(event: &Event) -> usize {
    match event {
        Event::PeerMessage { message: PeerMessage::Entries(entries), .. } => entries.entries.len(),
        _ => 1,
    }
}

/// Passes peers' messages to the core.
struct PeersToCore(Arc<Shared>);

impl PeerEvents for PeersToCore {
    fn submit(&self, events: &mut Vec<Event>) {
        let is_little = events.iter().map(weight).sum::<usize>() <= LITTLE;
        self.0.bring(events.drain(..).map(Input::Event), is_little, Driver::Peers);
    }
}

/// Runs until [`PeerLinks::stop`]. The error says why it could not.
pub(in crate::runtime) fn run(port: PeerPort, links: &PeerLinks, shared: Arc<Shared>) -> Result<(), String> {
    let mut builder = tokio::runtime::Builder::new_current_thread();
    let runtime = builder.enable_io().enable_time().max_blocking_threads(BLOCKING_THREADS).build();
    let runtime = runtime.map_err(|error| format!("cannot start the thread of the links: {error}"))?;
    let outbox = Arc::clone(&links.outbox);
    let served = runtime.block_on(port.run(Arc::new(PeersToCore(shared)), outbox, links.stop.notified()));
    // A thread that writes a snapshot may hang with its disk.
    runtime.shutdown_background();
    served.map_err(|error| format!("the links to other servers failed: {error}"))
}
