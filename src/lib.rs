//! zoolet: ZooKeeper's model in one small server that is also a library.
//!
//! A [`Node`] is a server in this process, on separate threads. A [`Session`] is a client of it
//! without a socket. Nothing is global: no signal handler, no logger, no exit. Several nodes can
//! live in one process.
//!
//! Futures need no particular runtime: await them on any, or block with [`Wait`]. The library logs
//! to `tracing`.
//!
//! Features:
//! - `embed`: standalone nodes and their sessions, always present. It needs no sockets, no tokio and
//!   no cryptography.
//! - `ensemble`: nodes of several processes form an ensemble (`Config::ensemble`).
//! - `port`: ZooKeeper clients can connect too (`Config::clients`).
//! - `certificates`: an operator's authority can vouch for servers. Includes `ensemble`.
//! - `remote`: recipes over TCP, with any server of ZooKeeper's protocol (`recipes::Remote`).
//! - `server` and `tools`: the binary, with its configuration files and its other commands.
//! - `testing`, for `[dev-dependencies]`: the module `testing`, with ensembles in memory on virtual
//!   time.
//!
//! All except `testing` are enabled by default, so embedders set `default-features = false`. The
//! items of a feature exist only with that feature.
//!
//! ```
//! use zoolet::{Config, CreateOptions, Node, Wait, path};
//!
//! # let data = std::env::temp_dir().join(format!("zoolet-doc-{}", std::process::id()));
//! let node = Node::start(Config::new(&data))?;
//! let session = node.session().wait()?;
//! session.create(path!("/config"), "v1").wait()?;
//! session.create_with(path!("/alive"), None, &CreateOptions::ephemeral()).wait()?;
//! let znode = session.get(path!("/config")).wait()?;
//! assert_eq!(znode.text(), Some("v1"));
//! session.set(path!("/config"), "v2", &znode.stat).wait()?;
//! node.shutdown(std::time::Duration::from_secs(5))?;
//! # std::fs::remove_dir_all(data)?;
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

#![forbid(unsafe_code)]
#![cfg_attr(docsrs, feature(doc_cfg))]

#[cfg(doctest)]
#[doc = include_str!("../docs/how-to/embed.md")]
struct Embed;

pub mod config;
mod last_known_good;
mod obstacle;
#[cfg(all(test, feature = "server"))]
mod quantity_table;
mod runtime;
pub mod status;
#[cfg(feature = "testing")]
pub mod testing;

pub use bytes::Bytes;
pub use config::{Config, Populate};
pub use last_known_good::{LastKnownGood, LastKnownGoodError, last_known_good};
#[cfg(feature = "port")]
#[doc(hidden)]
pub use runtime::ReadOnly;
pub use runtime::{
    Failure, Figures, Node, NodeStatus, Opening, Percentiles, Ready, Sessions, ShutdownError, ShuttingDown, StartError,
    Starting, StatusAnswer, StatusStream, Stopped, check_data_directory,
};
/// The client below [`recipes::Remote`], a crate of its own: its connector has the options.
///
/// ```no_run
/// # async fn example() -> Result<(), Box<dyn std::error::Error>> {
/// use zoolet::recipes::{Lock, Remote};
/// use zoolet::{path, zookeeper_client::Client};
///
/// let session = Remote::connect(Client::connector(), "gw-a:2181,gw-b:2181,gw-c:2181").await?;
/// let grant = Lock::new(session, path!("/locks/valve-7")).acquire().await?;
/// grant.release().await?;
/// # Ok(())
/// # }
/// ```
#[cfg(feature = "remote")]
pub use zookeeper_client;
pub use zoolet_machine::wear::Medium;
pub use zoolet_machine::{Limits, Settings, Status};
pub use zoolet_model::{
    AclEntry, AddWatchMode, AskedAcl, AuthId, Create, CreateKind, CreateMode, ErrorCode, EventKind, IntoData,
    InvalidPath, Names, OpResult, Path, Perms, ReadOp, ReadResult, Reply, Request, RequestedAcl, SessionId, SetWatches,
    Stat, Text, TimeToLive, WatcherType, WriteOp, Zxid, open_acl,
};
/// Locks, elections, barriers, queues and the other recipes of ZooKeeper, over any [`Session`].
pub use zoolet_recipes as recipes;
pub use zoolet_recipes::{Client, Coordinator, CoordinatorExt, GrantEnd, Instant};
pub use zoolet_session::{
    Consistency, CreateOptions, Created, Done, Error, ErrorKind, LostReason, OneShotWatch, Op, Pending, Reads,
    RequestError, Session, SessionOptions, SessionState, States, Version, Wait, WatchItem, WatchStream, WatchedEvent,
    Znode,
};
pub use zoolet_store::Strategy;
/// For the panic hook of a daemon: a note to the next process not to open the same base file.
///
/// A panic of redb over a damaged file may end the process. Then [`PanicNote::due`] returns the
/// note to leave.
pub use zoolet_store::base::PanicNote;

/// Returns a znode's path as a `&'static Path`, checked at compile time.
///
/// ```
/// let path = zoolet::path!("/locks/door");
/// assert_eq!(path.as_str(), "/locks/door");
/// ```
///
/// ```compile_fail
/// let path = zoolet::path!("locks//door");
/// ```
#[macro_export]
macro_rules! path {
    ($text:expr) => {{
        static PATH: $crate::Path = $crate::Path::from_static($text);
        &PATH
    }};
}
