//! Shared by the tests: a server, and a connection that can be cut.
#![allow(clippy::unwrap_used, reason = "for tests")]

mod proxy;
#[path = "../../scratch/mod.rs"]
mod scratch;

pub use proxy::Proxy;

use scratch::Scratch;
use std::future::Future;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicU32, Ordering::Relaxed};
use std::time::Duration;
use zookeeper_client::Client;
use zoolet::{Config, Node, Wait};
use zoolet_model::{Path, Reply, Request};
use zoolet_recipes::{Coordinator, Remote};

/// Bound on every wait.
pub const PATIENCE: Duration = Duration::from_secs(30);

/// Session timeout for tests that do not wait for expiry.
///
/// It exceeds [`PATIENCE`], so a znode that goes within a wait was not deleted by expiry.
pub const LONG: Duration = Duration::from_secs(40);

/// A server of this process, or the one that `ZOOLET_RECIPES_SERVER` names.
#[allow(missing_debug_implementations, reason = "for tests")]
pub struct Server {
    address: SocketAddr,
    own: Option<(Node, Scratch)>,
}

impl Server {
    /// Starts the server and waits until it serves.
    pub fn start() -> Self {
        if let Ok(address) = std::env::var("ZOOLET_RECIPES_SERVER") {
            return Self { address: address.parse().unwrap(), own: None };
        }
        let scratch = Scratch::new();
        let mut config = Config::new(scratch.join("data"));
        config.clients = Some(([127, 0, 0, 1], 0).into());
        config.limits.log_segment_bytes = 256 << 10;
        config.limits.log_segments = 8;
        config.limits.frame_bytes_max = 100_000;
        let node = Node::start(config).unwrap();
        node.ready().wait_timeout(PATIENCE).unwrap().unwrap();
        Self { address: node.client_address().unwrap(), own: Some((node, scratch)) }
    }

    /// Returns its address.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Returns the node, if it runs in this process.
    pub fn node(&self) -> Option<&Node> {
        self.own.as_ref().map(|(node, _)| node)
    }

    /// Opens a session at the server.
    pub async fn session(&self) -> Remote {
        connect(self.address, LONG).await
    }
}

/// Opens a session at this address.
pub async fn connect(address: SocketAddr, timeout: Duration) -> Remote {
    let connector = Client::connector().with_session_timeout(timeout);
    within(Remote::connect(connector, &address.to_string())).await.unwrap()
}

/// Returns a path that no other test uses, on any server.
pub async fn site(session: &Remote) -> Path {
    static NUMBER: AtomicU32 = AtomicU32::new(0);
    let number = NUMBER.fetch_add(1, Relaxed);
    let path = format!("/remote-{:032x}-{number}", session.random_bits());
    Path::new(path).unwrap()
}

/// Returns a path below another one.
pub fn below(path: &Path, name: &str) -> Path {
    path.join(name).unwrap()
}

/// Returns the names of the children; empty if the znode does not exist.
pub async fn children(session: &Remote, path: &Path) -> Vec<String> {
    let list = Request::GetChildren { path: path.text().clone(), watch: false, with_stat: false };
    match within(session.submit(list)).await {
        Ok(Reply::Names(names)) => names.iter().map(str::to_owned).collect(),
        Ok(other) => panic!("{other:?}"),
        Err(_) => Vec::new(),
    }
}

/// Waits for a future, at most [`PATIENCE`].
pub async fn within<F: Future>(future: F) -> F::Output {
    tokio::time::timeout(PATIENCE, future).await.expect("it never comes")
}

/// Waits until `is_so` returns true.
pub async fn until<F: Future<Output = bool>>(mut is_so: impl FnMut() -> F) {
    within(async {
        while !is_so().await {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    })
    .await;
}

/// Runs a test.
pub fn run<F: Future>(test: F) -> F::Output {
    tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap().block_on(test)
}
