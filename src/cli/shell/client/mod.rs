//! A session at any ZooKeeper server.
//!
//! A task on a thread of its own holds the connection ([`actor`]). It reconnects over the list of
//! servers, keeps the session, and registers watches and identities again. From a server without a
//! leader it moves to one that accepts writes ([`probe`]). The callers block: a command is a plain
//! function, and Ctrl-C ends the request for which it waits.

mod actor;
#[cfg(test)]
mod fake;
mod image;
mod link;
mod probe;
mod pulse;
mod registered;
mod role;
mod rooted;
mod servers;

pub(super) use image::ImageFile;

use super::failure::{Failure, code};
use crate::cli::Address;
use actor::{Actor, Order};
use bytes::{BufMut, Bytes, BytesMut};
use rooted::Root;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;
use tokio::runtime::Handle;
use tokio::select;
use tokio::sync::{mpsc, oneshot, watch};
use tokio::task::AbortHandle;
use tokio::time::{Instant, timeout, timeout_at};
use zoolet_model::{AddWatchMode, Reply, Request, Stat, Text, TimeToLive, WatcherType};

/// Maximum wait for the server's answer to the end of the session.
const CLOSE_MAX: Duration = Duration::from_secs(2);

/// How a session connects.
#[derive(Clone, Debug)]
pub(super) struct Connect {
    pub(super) address: Address,
    pub(super) timeout: Duration,
    /// Accepts a server without a quorum.
    pub(super) read_only: bool,
    /// Asks each server for its role at once, for the prompt.
    pub(super) asks_role: bool,
}

/// The state of a session, with the names of ZooKeeper's client.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum State {
    Connecting,
    Connected,
    ConnectedReadOnly,
    Closed,
}

impl State {
    pub(super) fn is_connected(self) -> bool {
        matches!(self, Self::Connected | Self::ConnectedReadOnly)
    }

    /// Returns the name in the prompt.
    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Connecting => "CONNECTING",
            Self::Connected => "CONNECTED",
            Self::ConnectedReadOnly => "CONNECTEDREADONLY",
            Self::Closed => "CLOSED",
        }
    }
}

/// The answer of a server to a four-letter word, outside of any session.
#[derive(Clone, Default, PartialEq, Eq, Debug)]
pub(super) struct Introduction {
    /// The role; empty if the server gives itself none.
    pub(super) role: String,
    /// Whether it is zoolet, which knows more requests than ZooKeeper.
    pub(super) is_zoolet: bool,
}

/// The connection of a session.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Status {
    pub(super) state: State,
    /// Number of the connection; another one may lead to another server of the same name.
    pub(super) connection: u64,
    /// The server of the connection, or the last one; empty before the first.
    pub(super) server: String,
    /// Why the last attempt to connect failed; empty after a success.
    pub(super) why: String,
    /// `None` until the server was asked and has answered, or was silent for too long.
    pub(super) introduction: Option<Introduction>,
}

/// A report of the server or the connection without a request.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Event {
    /// `SyncConnected`, `Disconnected`, ...
    pub(super) state: &'static str,
    /// `None`, `NodeCreated`, ...
    pub(super) kind: &'static str,
    /// `None` for an event of the session itself.
    pub(super) path: Option<String>,
    /// -1 for events of the session, and of servers older than 3.9.
    pub(super) zxid: i64,
}

impl Event {
    /// Returns whether it reports that the server has ended the session.
    pub(super) fn is_expiry(&self) -> bool {
        self.path.is_none() && self.state == "Expired"
    }
}

/// Receives the events of a session, on the session's thread.
pub(super) type Sink = Arc<dyn Fn(Event) + Send + Sync>;

/// The lists of servers of a reconfiguration, and the version that it replaces.
#[derive(Clone, Default, Debug)]
pub(super) struct Reconfiguration {
    pub(super) joining: Option<String>,
    pub(super) leaving: Option<String>,
    pub(super) members: Option<String>,
    pub(super) version: i64,
}

/// Counts the interrupts of this process; a command ends with the next one.
#[derive(Debug)]
pub(super) struct Interrupts {
    count: watch::Sender<u64>,
    /// The count when the user's text with the running command was taken; 0 in a script.
    begun: AtomicU64,
    /// Whether a command that failed repairs what it leaves.
    is_tidying: AtomicBool,
}

impl Interrupts {
    pub(super) fn new() -> Arc<Self> {
        Arc::new(Self { count: watch::Sender::new(0), begun: AtomicU64::new(0), is_tidying: AtomicBool::new(false) })
    }

    /// Notes an interrupt.
    pub(super) fn strike(&self) {
        self.count.send_modify(|count| *count += 1);
    }

    /// Begins the commands of a text, which earlier interrupts do not end.
    pub(super) fn begin(&self) {
        self.begun.store(*self.count.borrow(), Ordering::Relaxed);
    }

    /// Returns whether the running command should end.
    pub(super) fn is_struck(&self) -> bool {
        *self.count.borrow() > self.begun.load(Ordering::Relaxed)
    }

    /// Returns whether a command repairs what its failure leaves; that takes a bounded time.
    pub(super) fn is_tidying(&self) -> bool {
        self.is_tidying.load(Ordering::Relaxed)
    }

    async fn struck(&self) {
        let begun = self.begun.load(Ordering::Relaxed);
        // An error would mean that the sender is gone, but it is this object's own.
        let _ = self.count.subscribe().wait_for(|count| *count > begun).await;
    }
}

/// Asks a session; clones ask the same one.
#[derive(Clone)]
pub(super) struct Asker {
    orders: mpsc::UnboundedSender<Order>,
    root: Root,
    handle: Handle,
}

impl Asker {
    fn send(&self, request: Request) -> oneshot::Receiver<Result<Reply, Failure>> {
        let (answer, receiver) = oneshot::channel();
        let path = request.path().map(ToString::to_string);
        let request = self.root.request(request);
        let _ = self.orders.send(Order::Ask { request, path, answer });
        receiver
    }

    /// Sends a request that a time limit ends, not Ctrl-C; for completion.
    pub(super) fn ask_within(&self, request: Request, time: Duration) -> Option<Reply> {
        self.answer_within(request, time)?.ok()
    }

    fn answer_within(&self, request: Request, time: Duration) -> Option<Result<Reply, Failure>> {
        let answer = self.send(request);
        self.handle.block_on(async { timeout(time, answer).await }).ok()?.ok()
    }

    /// Removes watches, also after Ctrl-C; returns whether the server has done so within `time`.
    ///
    /// Without an answer the session forgets them, so that no later connection registers them.
    pub(super) fn remove_watches(&self, path: &Text, kind: WatcherType, time: Duration) -> bool {
        let request = || Request::RemoveWatches { path: path.clone(), kind };
        match self.answer_within(request(), time) {
            Some(Ok(_)) => return true,
            Some(Err(failure)) if !failure.is(code::CONNECTION_LOSS) => return false,
            Some(Err(_)) | None => {}
        }
        // A connection that comes first has registered them again. So it gets the request too, and
        // a task waits for the answer: a request for which no caller waits is not sent.
        self.handle.spawn(self.send(request()));
        let (answer, _) = oneshot::channel();
        let _ = self.orders.send(Order::Forget { path: self.root.outer(path), kind, answer });
        false
    }
}

/// An open session; clones are the same one.
#[derive(Clone)]
pub(super) struct Session {
    asker: Asker,
    status: watch::Receiver<Status>,
    interrupts: Arc<Interrupts>,
    task: AbortHandle,
}

impl Session {
    /// Opens a session on the runtime of `handle`, which another thread drives.
    ///
    /// This returns at once; the session connects in the background.
    pub(super) fn open(connect: Connect, sink: Sink, handle: &Handle, interrupts: &Arc<Interrupts>) -> Self {
        let (orders, inbox) = mpsc::unbounded_channel();
        let root = Root(connect.address.root.clone());
        let (actor, status) = Actor::new(connect, sink, root.clone(), inbox);
        let task = handle.spawn(actor.run()).abort_handle();
        let asker = Asker { orders, root, handle: handle.clone() };
        Self { asker, status, interrupts: interrupts.clone(), task }
    }

    /// Opens an image in place of a server.
    pub(super) fn open_image(image: ImageFile, handle: &Handle, interrupts: &Arc<Interrupts>) -> Self {
        let (orders, inbox) = mpsc::unbounded_channel();
        let (sender, status) = watch::channel(image.status());
        let task = handle.spawn(image.run(inbox, sender)).abort_handle();
        let asker = Asker { orders, root: Root::default(), handle: handle.clone() };
        Self { asker, status, interrupts: interrupts.clone(), task }
    }

    /// Returns a handle that outlives a borrow of the session.
    pub(super) fn asker(&self) -> Asker {
        self.asker.clone()
    }

    /// Sends a request and waits for its answer.
    ///
    /// # Errors
    /// The server refused, the connection is lost, or Ctrl-C ended the wait.
    pub(super) fn ask(&self, request: Request) -> Result<Reply, Failure> {
        self.ask_all(vec![request]).pop().unwrap_or_else(|| Err(Failure::interrupted()))
    }

    /// Sends a request whose path is the server's, outside of the session's root.
    ///
    /// # Errors
    /// As [`Session::ask`].
    pub(super) fn ask_outside(&self, request: Request) -> Result<Reply, Failure> {
        self.refuse_struck()?;
        let is_write = is_write(&request);
        let (answer, receiver) = oneshot::channel();
        let path = request.path().map(ToString::to_string);
        let _ = self.asker.orders.send(Order::Ask { request, path, answer });
        self.answer(is_write, receiver)
    }

    /// Returns the same session without its root: its paths are the server's.
    pub(super) fn outside(&self) -> Self {
        let mut outside = self.clone();
        outside.asker.root = Root::default();
        outside
    }

    /// Returns the server's path of a znode.
    pub(super) fn outer(&self, path: &str) -> String {
        self.asker.root.outer(&path.into()).to_string()
    }

    /// Returns the session's path of a znode; the server's own path outside of the root.
    pub(super) fn inner(&self, path: &str) -> String {
        self.asker.root.inner(path)
    }

    /// Sends requests at once, in their order, and waits for all answers.
    ///
    /// After Ctrl-C it sends nothing.
    pub(super) fn ask_all(&self, requests: Vec<Request>) -> Vec<Result<Reply, Failure>> {
        if let Err(interrupted) = self.refuse_struck() {
            return requests.iter().map(|_| Err(interrupted.clone())).collect();
        }
        let send = |request| (is_write(&request), self.asker.send(request));
        let sent: Vec<_> = requests.into_iter().map(send).collect();
        sent.into_iter().map(|(is_write, answer)| self.answer(is_write, answer)).collect()
    }

    /// Sends requests as [`Session::ask_all`] does, also after Ctrl-C; waits for answers until a time.
    pub(super) fn ask_all_until(&self, requests: Vec<Request>, until: Instant) -> Vec<Result<Reply, Failure>> {
        let sent: Vec<_> = requests.into_iter().map(|request| self.asker.send(request)).collect();
        let outcome = |receiver| match self.asker.handle.block_on(async { timeout_at(until, receiver).await }) {
            Ok(Ok(answer)) => answer,
            Ok(Err(_)) => Err(Failure::text("Not connected")),
            Err(_) => {
                let why = "the server does not answer in time".to_owned();
                Err(Failure::Refused { code: code::CONNECTION_LOSS, path: None, why })
            }
        };
        sent.into_iter().map(outcome).collect()
    }

    /// Does the bounded work by which a failed command repairs what it leaves.
    ///
    /// A signal that ends the shell waits for it.
    pub(super) fn tidy<T>(&self, work: impl FnOnce() -> T) -> T {
        self.interrupts.is_tidying.store(true, Ordering::Relaxed);
        let done = work();
        self.interrupts.is_tidying.store(false, Ordering::Relaxed);
        done
    }

    /// Fails if Ctrl-C was struck while the command did not wait for the session.
    fn refuse_struck(&self) -> Result<(), Failure> {
        if self.interrupts.is_struck() { Err(Failure::interrupted()) } else { Ok(()) }
    }

    /// Waits for an answer. After Ctrl-C it says that a write that was sent may have happened.
    fn answer(&self, is_write: bool, receiver: oneshot::Receiver<Result<Reply, Failure>>) -> Result<Reply, Failure> {
        self.wait(receiver).unwrap_or_else(|failure| {
            Err(if is_write { failure.because("the change may have happened") } else { failure })
        })
    }

    /// Waits for an answer of the session's task, at most until Ctrl-C.
    ///
    /// # Errors
    /// Ctrl-C ended the wait, or the session is closed.
    fn wait<T>(&self, answer: oneshot::Receiver<T>) -> Result<T, Failure> {
        self.asker.handle.block_on(async {
            select! {
                biased;
                answer = answer => answer.map_err(|_| Failure::text("Not connected")),
                () = self.interrupts.struck() => Err(Failure::interrupted()),
            }
        })
    }

    /// Waits for a future, at most until Ctrl-C.
    ///
    /// # Errors
    /// Ctrl-C ended the wait.
    pub(super) fn until_struck<T>(&self, future: impl Future<Output = T>) -> Result<T, Failure> {
        self.asker.handle.block_on(async {
            select! {
                biased;
                () = self.interrupts.struck() => Err(Failure::interrupted()),
                done = future => Ok(done),
            }
        })
    }

    /// Waits until the session is connected.
    ///
    /// # Errors
    /// `time` has passed, or Ctrl-C ended the wait.
    pub(super) fn wait_connected(&self, time: Duration) -> Result<(), Failure> {
        let mut status = self.status.clone();
        let is_there = |status: &Status| status.state.is_connected();
        let connected = self.asker.handle.block_on(async {
            select! {
                connected = timeout(time, status.wait_for(is_there)) => Ok(connected.is_ok()),
                () = self.interrupts.struck() => Err(Failure::interrupted()),
            }
        })?;
        if connected {
            return Ok(());
        }
        Err(Failure::Refused { code: code::CONNECTION_LOSS, path: None, why: self.status().why })
    }

    /// Waits until the session is connected and its server's role is known; at most for `time`.
    pub(super) fn wait_introduced(&self, time: Duration) {
        let mut status = self.status.clone();
        let introduced = status.wait_for(|status| status.introduction.is_some());
        let _ = self.asker.handle.block_on(async { timeout(time, introduced).await });
    }

    /// Returns the time to live of a znode; none at a server that cannot tell.
    ///
    /// # Errors
    /// Ctrl-C ended the wait.
    pub(super) fn time_to_live(&self, path: Text) -> Result<TimeToLive, Failure> {
        if !self.introduction()?.is_zoolet {
            return Ok(TimeToLive::default());
        }
        match self.ask(Request::GetTtl { path }) {
            Ok(Reply::Ttl(ttl)) => Ok(ttl),
            Err(failure) if failure.is_interruption() => Err(failure),
            _ => Ok(TimeToLive::default()),
        }
    }

    /// Returns the introduction of the present server, which is asked once per connection.
    fn introduction(&self) -> Result<Introduction, Failure> {
        let _ = self.asker.orders.send(Order::Introduce);
        let mut status = self.status.clone();
        let is_over = |status: &Status| status.introduction.is_some() || !status.state.is_connected();
        self.until_struck(async move {
            let known = status.wait_for(is_over).await.map(|status| status.introduction.clone());
            known.ok().flatten().unwrap_or_default()
        })
    }

    /// Returns the modes of this session's persistent watches on a znode.
    ///
    /// # Errors
    /// As [`Session::wait`].
    pub(super) fn persistent_watches(&self, path: &Text) -> Result<Vec<AddWatchMode>, Failure> {
        let (answer, receiver) = oneshot::channel();
        let path = self.asker.root.outer(path);
        let _ = self.asker.orders.send(Order::Watches { path, answer });
        self.wait(receiver)
    }

    /// Forgets watches without the server, so that no later connection registers them.
    ///
    /// Returns whether there were any.
    ///
    /// # Errors
    /// As [`Session::wait`].
    pub(super) fn forget_watches(&self, path: &Text, kind: WatcherType) -> Result<bool, Failure> {
        let (answer, receiver) = oneshot::channel();
        let path = self.asker.root.outer(path);
        let _ = self.asker.orders.send(Order::Forget { path, kind, answer });
        self.wait(receiver)
    }

    /// Adds an identity to the session, now and on each later connection.
    ///
    /// # Errors
    /// The server refused it, or the connection is lost.
    pub(super) fn add_auth(&self, scheme: &str, auth: Bytes) -> Result<(), Failure> {
        let (answer, receiver) = oneshot::channel();
        let _ = self.asker.orders.send(Order::Auth { scheme: scheme.into(), auth, answer });
        self.wait(receiver)?
    }

    /// Returns whether this session has identities beside its address.
    ///
    /// # Errors
    /// As [`Session::wait`].
    pub(super) fn has_identity(&self) -> Result<bool, Failure> {
        let (answer, receiver) = oneshot::channel();
        let _ = self.asker.orders.send(Order::HasIdentity { answer });
        self.wait(receiver)
    }

    /// Changes the membership; returns the new configuration.
    ///
    /// # Errors
    /// As [`Session::ask`].
    pub(super) fn reconfigure(&self, change: &Reconfiguration) -> Result<(Option<Bytes>, Stat), Failure> {
        let mut body = BytesMut::new();
        for list in [&change.joining, &change.leaving, &change.members] {
            let bytes = list.as_ref().map(String::as_bytes);
            body.put_i32(bytes.map_or(-1, |bytes| i32::try_from(bytes.len()).unwrap_or(i32::MAX)));
            body.put_slice(bytes.unwrap_or_default());
        }
        body.put_i64(change.version);
        self.refuse_struck()?;
        let (answer, receiver) = oneshot::channel();
        let _ = self.asker.orders.send(Order::Reconfigure { body: body.freeze(), answer });
        match self.answer(true, receiver)? {
            Reply::Data(text, stat) => Ok((text, stat)),
            _ => Err(unexpected()),
        }
    }

    /// Returns the state of the connection.
    pub(super) fn status(&self) -> Status {
        self.status.borrow().clone()
    }

    /// Ends the session; its ephemerals are deleted at once.
    pub(super) fn close(self) {
        let handle = self.asker.handle.clone();
        handle.block_on(self.close_within(CLOSE_MAX));
    }

    /// Ends the session, for a caller that may not block; waits at most `time` for the server.
    pub(super) async fn close_within(self, time: Duration) {
        if self.status().state.is_connected() {
            let (answer, closed) = oneshot::channel();
            let _ = self.asker.orders.send(Order::Close { answer });
            let _ = timeout(time, closed).await;
        }
        self.task.abort();
    }
}

/// Returns whether a request may change the tree.
fn is_write(request: &Request) -> bool {
    matches!(request, Request::Write(_) | Request::Multi(_))
}

/// Returns the failure for an answer of another form than its request has.
pub(super) fn unexpected() -> Failure {
    Failure::text("the server's answer does not fit the request: it does not speak ZooKeeper's protocol")
}
