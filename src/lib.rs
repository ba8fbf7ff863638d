//! zoolet: ZooKeeper's model in one small server that is also a library.
//!
//! A [`Node`] is a server in this process, on separate threads. A [`Session`] is a client of it
//! without a socket. Nothing is global: no signal handler, no logger, no exit. Several nodes can
//! live in one process.
//!
//! Futures need no particular runtime: await them on any, or block with [`Wait`]. The library logs
//! to `tracing`.
//!
//! # A node and a session
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
//!
//! # A lock
//!
//! The ensemble refuses a [fenced](recipes::Grant::fenced) write once the grant is over, however late
//! the write arrives:
//!
//! ```
//! use zoolet::recipes::Lock;
//! use zoolet::{Config, Node, Wait, path};
//!
//! # let data = std::env::temp_dir().join(format!("zoolet-doc-lock-{}", std::process::id()));
//! # let node = Node::start(Config::new(&data))?;
//! let session = node.session().wait()?;
//! let grant = Lock::new(session, path!("/locks/valve-7")).acquire().wait()?;
//! grant.fenced().put(path!("/valves/7"), "open").wait()?;
//! grant.release().wait()?;
//! # drop(node);
//! # std::fs::remove_dir_all(data)?;
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! # An election
//!
//! A [`Client`] opens the next session when one ends. The work pauses while it is in doubt who leads,
//! and begins again in each term:
//!
//! ```
//! use zoolet::recipes::Election;
//! use zoolet::{Config, Node, Wait, path};
//!
//! # let data = std::env::temp_dir().join(format!("zoolet-doc-election-{}", std::process::id()));
//! # let node = Node::start(Config::new(&data))?;
//! let client = node.client();
//! let election = |session| Election::new(session, path!("/leader")).described("gw-a");
//! let leading = client.lead(election, |term| async move { term.fenced().put(path!("/plan"), "go").await });
//! assert_eq!(leading.wait()?.version, 0);
//! # drop(node);
//! # std::fs::remove_dir_all(data)?;
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! # A test
//!
//! With the feature `testing`, a test runs whole ensembles in memory, on virtual time. It chooses
//! each fault and its moment.
#![cfg_attr(
    feature = "testing",
    doc = r#"
Here a session expires, and the client's member comes back with the next one. See [`testing`].

```
use zoolet::path;
use zoolet::testing::MemoryEnsemble;

let mut ensemble = MemoryEnsemble::in_memory(3);
let client = ensemble.client();
let mut member = client.member(path!("/members"), "gw-a", "up");
let before = ensemble.run(member.set("up"))?;
let session = ensemble.run(client.session())?;
ensemble.expire(&session);
let after = ensemble.run(member.set("up"))?;
assert_ne!(before.ephemeral_owner, after.ephemeral_owner);
# Ok::<(), zoolet::Error>(())
```
"#
)]
//!
//! # Features
//!
//! - `embed`: standalone nodes and their sessions, always present. It needs no sockets, no tokio and
//!   no cryptography.
//! - `ensemble`: nodes of several processes form an ensemble (`Config::ensemble`).
//! - `port`: ZooKeeper clients can connect too (`Config::clients`).
//! - `certificates`: an operator's authority can vouch for servers. Includes `ensemble`.
//! - `remote`: recipes over TCP, with any server of ZooKeeper's protocol (`recipes::Remote`).
//! - `serde`: configuration that is JSON (`Client::configuration_json`).
//! - `server` and `tools`: the binary, with its configuration files and its other commands.
//! - `testing`, for `[dev-dependencies]`: the module `testing`, with ensembles in memory on virtual
//!   time.
//!
//! All except `serde` and `testing` are enabled by default, so embedders set
//! `default-features = false`. The items of a feature exist only with that feature.
//!
//! # Where to read on
//!
//! The pages are in the repository.
//!
//! | you need | type or module | page |
//! |---|---|---|
//! | a server in your process | [`Node`], [`config`] | `docs/how-to/embed.md` |
//! | a lock, leader, queue, member or setting | [`recipes`], [`Client`] | `docs/how-to/choose-recipe.md` |
//! | what each type says in each fault | [`SessionState`], [`recipes::Holding`] | `docs/explanation/daemon.md` |
//! | the state of the server, and its alarms | [`status`], [`Node::watch_status`] | `docs/how-to/alarms.md` |
//! | a full, read-only or damaged disk | [`status::DiskSummary`] | `docs/how-to/disk.md` |
//! | a last good value in a file | [`KeptFile`] | `examples/daemon.rs` |
//! | configuration without a quorum | [`last_known_good()`] | `docs/how-to/subtree-file.md` |
//! | reads without a leader | [`SessionOptions::read_only`] | `docs/how-to/lost-site.md` |
//! | a test of your program under faults | module `testing` | `docs/how-to/test-your-daemon.md` |
//! | bounds and what happens at them | [`Limits`] | `docs/reference/limits.md` |

#![forbid(unsafe_code)]
#![cfg_attr(docsrs, feature(doc_cfg))]

#[cfg(doctest)]
#[doc = include_str!("../docs/how-to/embed.md")]
struct Embed;

#[cfg(all(doctest, feature = "testing"))]
#[doc = include_str!("../docs/how-to/test-your-daemon.md")]
mod page_of_testing {}

pub mod config;
mod kept_file;
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
pub use kept_file::KeptFile;
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
#[doc(inline)]
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
