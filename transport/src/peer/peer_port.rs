//! The UDP port that all links of a server share.

use super::instruction_queue::{InstructionQueue, PeerEvents};
use super::links::{Links, bind};
use super::settings::PeerSettings;
use super::table::PeerTable;
use super::trust::{Gate, Pins};
use std::future::Future;
use std::io;
use std::net::{SocketAddr, UdpSocket};
use std::sync::Arc;
use zoolet_machine::Budget;
use zoolet_machine::budget::Part;

/// A bound port that does not serve yet.
#[derive(Debug)]
pub struct PeerPort {
    settings: PeerSettings,
    gate: Gate,
    socket: UdpSocket,
    local_address: SocketAddr,
    table: Arc<PeerTable>,
    budget: Arc<Budget>,
}

impl PeerPort {
    /// Binds the socket. Needs no runtime.
    ///
    /// Sets the limit of [`Part::Links`] to the bytes that the settings allow for all peers. Queued
    /// bytes are charged to it. QUIC's windows are inside the limit but never charged, because
    /// quinn does not report how much memory it holds.
    ///
    /// # Errors
    /// The address cannot be bound, or two members have the same key (`InvalidInput`).
    pub fn bind(settings: PeerSettings, budget: Arc<Budget>) -> io::Result<Self> {
        let pins = Pins::new();
        for member in &settings.members {
            if let Some(key) = member.key {
                pins.pin(member.id, key).map_err(|error| io::Error::new(io::ErrorKind::InvalidInput, error))?;
            }
        }
        let gate = Gate::new(settings.identity.clone(), settings.trust.clone(), pins);
        let socket = bind(settings.listen)?;
        let local_address = socket.local_addr()?;
        let peers = settings.members.iter().filter(|member| member.id != settings.id).count();
        budget.allow(Part::Links, peers as u64 * settings.link_bytes_max());
        Ok(Self { settings, gate, socket, local_address, table: Arc::default(), budget })
    }

    /// Returns the address the socket is bound to.
    pub fn local_address(&self) -> SocketAddr {
        self.local_address
    }

    /// Returns the table of peers, which the running port keeps current.
    pub fn table(&self) -> Arc<PeerTable> {
        self.table.clone()
    }

    /// Keeps links to all members until `stop`. The current runtime should serve nothing else.
    ///
    /// Every PeerUp is followed by exactly one PeerDown, also when `stop` ends the run. On `stop`
    /// the links first send everything that was pushed before, then tell the peers that this server
    /// stops. Each snapshot transfer reports its one event, unless it is dropped or a disk call is
    /// still running when this returns.
    ///
    /// # Errors
    /// A message for the operator: the port cannot be served and nothing was started, or a task
    /// failed.
    pub async fn run(
        self,
        events: Arc<dyn PeerEvents>,
        outbox: Arc<InstructionQueue>,
        stop: impl Future<Output = ()>,
    ) -> Result<(), String> {
        let links = Links::begin(self.settings, self.gate, self.socket, events, self.table, self.budget)?;
        Arc::new(links).run(outbox, stop).await
    }
}
