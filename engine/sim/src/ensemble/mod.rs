//! Whole ensembles on virtual time.
//!
//! The servers run the real engine code with the real log and the real base. Links lose, delay and
//! cut messages. Disks tear writes, stall and fail. Clocks drift and jump. Clients send requests to
//! all servers.
//!
//! A run is a function of one seed. Time is the number of microseconds since the run began
//! ([`Agenda`]). Nothing here reads a clock, spawns a thread or iterates in an order that the seed
//! does not decide. So a failing seed repeats exactly, with every event recorded ([`Trace`]).
//!
//! Some files import each other in a circle: the agenda holds jobs of processes, and a process in a
//! box adds jobs to the agenda. Opening the circle would cost a type parameter in each of them.

mod agenda;
mod by_hand;
mod client;
mod clock;
mod coverage;
mod disks;
mod epochs;
mod faults;
mod host;
mod lane;
mod latency;
mod link;
mod operator;
mod owners;
mod process;
mod random;
mod run;
mod steady;
mod strike;
mod trace;
mod wire;
mod witness;
mod world;

pub use crate::one_server::Sent;
pub use agenda::{Agenda, Rank};
pub use client::{Asks, Client, Habits, ToClient};
pub use clock::{Clock, DRIFT_PPM_MAX, WALL_STEP_MS};
pub use coverage::{Coverage, Feature};
pub use epochs::Epochs;
pub use faults::{Fault, Kind, Mix};
pub use host::{Death, Host};
pub use latency::{DiskModel, Latencies, Speed};
pub use link::{Carrier, Flight, Landed, LinkId, Network, Path, STREAMS, SimLinks};
pub use owners::{
    ClientContext, Fact, Fate, Next, Opener, Opening, OwnClock, Ran, Scenario, Timer, run_judged, run_seeds_of,
    run_with,
};
pub use process::{Configuration, Process, Stopped};
pub use run::{Failure, Plan, Sessions, Site, Statistics, conclude, run, run_guarded, run_seeds};
pub use steady::{DATA_BYTES, Load};
pub use trace::Trace;
pub use wire::{WirePath, Wires};
pub use witness::{State, Witness};
pub use world::World;

/// A message from one process to another.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Said {
    /// A message of the sender's state machine.
    Message(zoolet_machine::seam::peer::PeerMessage),
    /// A part of a snapshot; `None` after the last part.
    Chunk {
        /// The sender's number of the transfer.
        transfer: zoolet_machine::seam::peer::TransferId,
        /// The next bytes.
        bytes: Option<Vec<u8>>,
    },
}

/// Microseconds in a millisecond.
pub const MS: u64 = 1000;
/// Microseconds in a second.
pub const SECOND: u64 = 1000 * MS;
