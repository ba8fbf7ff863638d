//! The io thread: the client port of `zoolet-transport` on a separate tokio runtime.

use super::threads::Shared;
use super::turns::{Driver, LITTLE};
use super::{Input, StartError};
use crate::config::Config;
use crate::obstacle;
use std::sync::Arc;
use tokio::sync::Notify;
use zoolet_machine::{Action, Budget, ConnId, Event};
use zoolet_model::{ErrorCode, Reply};
use zoolet_transport::client_port::{
    About, ClientPort, ConnIds, EventSink, Output, OutputQueue, PortSettings, ServerAddresses, Whitelist,
};

/// Access to the io thread.
#[derive(Debug, Default)]
pub(crate) struct Sockets {
    outbox: Arc<OutputQueue>,
    stop: Notify,
}

impl Sockets {
    /// Passes outputs to the io thread, or leaves them for the driver of this turn.
    ///
    /// A driver with time to send delivers them in [`Sockets::after_turn`].
    pub(super) fn push(&self, outputs: &mut Vec<Output>, by: Driver) {
        match by {
            Driver::Core | Driver::Reader => self.outbox.push(outputs),
            Driver::Persister => self.outbox.leave(outputs),
            #[cfg(feature = "ensemble")]
            Driver::Peers => self.outbox.leave(outputs),
        }
    }

    /// Delivers a few outputs after a turn of the log thread or the links' thread.
    ///
    /// The machine is unlocked by then. So a thread that brings the clients' next requests, which
    /// come at once, can lock it.
    pub(super) fn after_turn(&self, by: Driver) {
        match by {
            Driver::Core | Driver::Reader => {}
            Driver::Persister => self.outbox.deliver_little(),
            #[cfg(feature = "ensemble")]
            Driver::Peers => self.outbox.deliver_little(),
        }
    }

    /// Sends an answer that the completion thread assembled.
    pub(super) fn fill(&self, conn: ConnId, ticket: u64, xid: i32, zxid: i64, result: Result<Reply, ErrorCode>) {
        self.outbox.push(&mut vec![Output::Filled { conn, ticket, xid, zxid, result }]);
    }

    /// Makes the port accept no more clients, send what is queued, and close.
    pub(super) fn stop(&self) {
        self.stop.notify_one();
    }
}

/// Returns an action as output for a socket; `None` if it is not for clients.
pub(super) fn output(action: Action) -> Option<Output> {
    Some(match action {
        Action::Connected { conn, reply } => Output::Connected { conn, reply },
        Action::Reply { conn, xid, zxid, result } => Output::Reply { conn, xid, zxid, result },
        Action::Notify { conn, event } => Output::Notify { conn, event },
        Action::Close { conn } => Output::Close { conn },
        Action::Status { ticket, status } => Output::Status { ticket, status },
        Action::Append(_)
        | Action::Fetch(_)
        | Action::Checkpoint(_)
        | Action::ReleaseGenerations { .. }
        | Action::Complete(_)
        | Action::Fail(_)
        | Action::PeerSend { .. }
        | Action::PeerClose { .. }
        | Action::ReadLog(_)
        | Action::HoldLog { .. }
        | Action::SendSnapshot { .. }
        | Action::ReceiveSnapshot { .. }
        | Action::DropSnapshot { .. }
        | Action::InstallSnapshot { .. } => return None,
    })
}

/// Passes the port's events to the core.
struct ClientsToCore(Arc<Shared>);

impl EventSink for ClientsToCore {
    fn submit(&self, events: &mut Vec<Event>) {
        let is_little = events.len() <= LITTLE;
        self.0.bring(events.drain(..).map(Input::Event), is_little, Driver::Reader);
    }
}

/// Binds the port that `config` names, if it names one.
pub(super) fn bind(
    config: &Config,
    data: &std::path::Path,
    budget: Arc<Budget>,
) -> Result<Option<ClientPort>, StartError> {
    let Some(address) = config.clients else { return Ok(None) };
    let settings = PortSettings {
        limits: config.limits,
        handshake_timeout_ms: config.settings.handshake_timeout_ms,
        ttl_znodes: config.settings.ttl_znodes,
        four_letter_words: Whitelist::parse(&config.four_letter_words.join(",")),
        about: about(config, data),
        ..PortSettings::default()
    };
    ClientPort::bind(&[address], settings, Arc::new(ConnIds::new()), budget)
        .map(Some)
        .map_err(|error| StartError::Port(format!("clients = {address}: {}", obstacle::listening(&error, "t"))))
}

/// Returns the data of the word `conf`, under ZooKeeper's names.
fn about(config: &Config, data: &std::path::Path) -> About {
    let settings = &config.settings;
    let conf = [
        ("clientPort", config.clients.map_or(0, |address| address.port()).to_string()),
        // ZooKeeper's numbers for a port and a length that are not set.
        ("secureClientPort", "-1".to_owned()),
        ("dataDir", data.display().to_string()),
        ("dataLogDir", data.display().to_string()),
        ("tickTime", settings.tick_ms.to_string()),
        ("maxClientCnxns", config.limits.connections_per_address_max.to_string()),
        ("minSessionTimeout", settings.session_timeout_min_ms.to_string()),
        ("maxSessionTimeout", settings.session_timeout_max_ms.to_string()),
        ("clientPortListenBacklog", "-1".to_owned()),
        ("serverId", config.server_id.to_string()),
    ];
    let (of_ensemble, servers) = about_ensemble(config);
    About {
        version: env!("CARGO_PKG_VERSION").to_owned(),
        built_on: String::new(),
        conf: conf
            .into_iter()
            .chain(of_ensemble)
            .map(|(key, value)| (key.to_owned(), value))
            .chain(config.conf.clone())
            .collect(),
        server_id: config.server_id,
        servers,
    }
}

/// Returns the lines of `conf` about links, and the addresses of all members.
#[cfg(feature = "ensemble")]
fn about_ensemble(config: &Config) -> (Vec<(&'static str, String)>, Vec<ServerAddresses>) {
    let Some(ensemble) = &config.ensemble else { return Default::default() };
    (ensemble.conf(config.server_id).into(), ensemble.server_addresses())
}

#[cfg(not(feature = "ensemble"))]
fn about_ensemble(_: &Config) -> (Vec<(&'static str, String)>, Vec<ServerAddresses>) {
    Default::default()
}

/// Runs until [`Sockets::stop`]. The error says why it could not.
pub(super) fn run(port: ClientPort, sockets: &Arc<Sockets>, shared: Arc<Shared>) -> Result<(), String> {
    // A second thread lives only while clients request file sizes. It stays one thread, however
    // many clients do and however long a disk hangs.
    let runtime =
        tokio::runtime::Builder::new_current_thread().enable_io().enable_time().max_blocking_threads(1).build();
    let runtime = runtime.map_err(|error| format!("cannot start the io thread: {error}"))?;
    let outbox = Arc::clone(&sockets.outbox);
    let served = runtime.block_on(port.serve(Arc::new(ClientsToCore(shared)), outbox, sockets.stop.notified()));
    // The thread that reads the directory for `dirs` may hang with its disk.
    runtime.shutdown_background();
    served.map_err(|error| format!("the client port failed: {error}"))
}
