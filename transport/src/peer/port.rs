//! The one UDP port of a server that all its links share.

use super::links::{Links, bind};
use super::seam::{Outbox, PeerEvents};
use super::settings::PeerSettings;
use super::table::PeerTable;
use super::trust::{Gate, Pins};
use std::future::Future;
use std::io;
use std::net::{SocketAddr, UdpSocket};
use std::sync::Arc;
use zoolet_engine::Budget;
use zoolet_engine::budget::Part;

/// A bound port, not yet served.
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
    /// Binds the socket; needs no runtime. What waits for peers is charged to [`Part::Links`], which is allowed what the settings allow; QUIC says of nothing
    /// how much it holds, so what its windows allow is in that limit and never charged.
    ///
    /// # Errors
    /// When the address cannot be had, or two members have one key.
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

    /// Where it listens.
    pub fn local_address(&self) -> SocketAddr {
        self.local_address
    }

    /// What is known of the peers, from now on to the end.
    pub fn table(&self) -> Arc<PeerTable> {
        self.table.clone()
    }

    /// Keeps links to all members until `stop`, on the tasks of the runtime that this is called on, which should serve nothing else.
    ///
    /// Every PeerUp is followed by one PeerDown, also when this ends because of `stop`: then the peers are told that this server goes, after everything
    /// that was pushed before. Each snapshot that was begun comes to its one event, unless it is dropped or a disk is still at it when this ends.
    ///
    /// # Errors
    /// For people: the port cannot be served. Nothing was begun then, or a task has failed.
    pub async fn run(
        self,
        events: Arc<dyn PeerEvents>,
        outbox: Arc<Outbox>,
        stop: impl Future<Output = ()>,
    ) -> Result<(), String> {
        let links = Links::begin(self.settings, self.gate, self.socket, events, self.table, self.budget)?;
        Arc::new(links).run(outbox, stop).await
    }
}
