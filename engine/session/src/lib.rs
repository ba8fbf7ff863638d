//! Sessions inside the process, without sockets or wire bytes.
//!
//! In-process sessions have the same requests, limits and ordering as sessions over a socket.
//!
//! zoolet publishes this crate as part of itself. Embedders see `Session` and the types it returns,
//! re-exported by the crate `zoolet`. [`Link`], [`EmbeddedSessions`], [`RequestSink`] and
//! [`Environment`] are for drivers of the machine, which run it on threads or on virtual time.
//! These four types change whenever a driver needs it.
//!
//! [`Link`] connects a session's owner with the machine. It holds the reply slots, the watch queues
//! and the session state. [`Session`], its futures and its streams are thin handles to it. Wakers
//! run on the node's own threads, including the log thread. A waker that blocks delays the writes
//! of all clients.

mod asking;
mod coordinator;
mod embedded_sessions;
mod environment;
mod errands;
mod link;
mod liveness;
mod options;
mod reads;
mod request_sink;
mod size;
mod slots;
mod state;
#[cfg(test)]
mod tests;
mod wait;
mod wakers;
mod watch;
mod watchdog;
mod watching;

pub use asking::Asked;
pub use embedded_sessions::EmbeddedSessions;
pub use environment::{Environment, Timer, Timers};
pub use link::Link;
pub use options::{CreateOptions, Created, SessionOptions, Version};
pub use reads::{Consistency, Reads};
pub use request_sink::RequestSink;
pub use state::States;
pub use wait::Wait;
pub use watching::{OneShotWatch, WatchStream};
pub use zoolet_model::{Error, LostReason, SessionState, WatchItem, Watched};

use asking::Asking;
use bytes::Bytes;
use link::Ticket;
use slots::Answer;
use std::future::Future;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::Poll;
use std::time::Duration;
use watch::Arm;
use zoolet_model::{
    AclEntry, AddWatchMode, ErrorCode, Names, OpResult, Path, Reply, Request, SessionId, Stat, Text, TimeToLive,
    WriteOp,
};

/// A znode borrowed by a read, without copying.
#[derive(Clone, Copy, Debug)]
pub struct Znode<'a> {
    /// The znode's data. `None` (null) and empty data are different.
    pub data: Option<&'a [u8]>,
    /// The znode's stat.
    pub stat: &'a Stat,
}

/// A session inside this process.
///
/// Clones share the session. Dropping the last clone closes the session and deletes its ephemerals.
///
/// Futures need a waker but no particular runtime. A request is sent when its future is first
/// polled. Dropping the future after that cancels only the waiting.
#[derive(Clone, Debug)]
pub struct Session {
    owner: Arc<Owner>,
}

/// Closes the session when the last handle is dropped.
#[derive(Debug)]
struct Owner {
    link: Arc<Link>,
}

impl Drop for Owner {
    fn drop(&mut self) {
        self.link.close_unheard();
    }
}

impl Session {
    /// Creates the owner's handle to `link`.
    pub fn new(link: Arc<Link>) -> Self {
        Self { owner: Arc::new(Owner { link }) }
    }

    fn link(&self) -> &Arc<Link> {
        &self.owner.link
    }

    /// Returns the session's id, which owns its ephemerals.
    ///
    /// It is 0 while a session that was opened [to read only](SessionOptions::read_only) has not
    /// begun.
    pub fn id(&self) -> SessionId {
        self.link().id()
    }

    /// Returns the negotiated timeout in milliseconds.
    pub fn timeout_ms(&self) -> u32 {
        self.link().timeout_ms()
    }

    /// Returns the current state of the session.
    pub fn state(&self) -> SessionState {
        self.link().session_state()
    }

    /// Returns how old the state that reads show may be; `None` while it is current.
    ///
    /// It counts from the moment when the server last heard its leader, or when its disk first
    /// refused a commit. Only a session in the state [`SessionState::ReadOnly`] reads an outdated
    /// state.
    pub fn outdated_for(&self) -> Option<Duration> {
        self.link().outdated_for()
    }

    /// Returns a stream of the current state and every later one.
    ///
    /// A slow reader may miss intermediate states, but never the last one.
    pub fn states(&self) -> States {
        States::new(Arc::clone(self.link()))
    }

    /// Resets the watchdog: the session's owner is alive.
    ///
    /// Without [`SessionOptions::watchdog`] this does nothing. Call it where the owner does its
    /// work, for instance once per round of its main loop. Do not call it from a thread that does
    /// nothing else.
    pub fn touch(&self) {
        self.link().touch();
    }

    /// Sends `request` immediately, without waiting for a free slot.
    ///
    /// Requests are sent in the order of calls. Use this to pipeline requests, and for requests
    /// without a method here. A failed multi resolves to its results, any other failed request to
    /// an error.
    ///
    /// # Errors
    /// [`Error::Busy`] if there is no room for it:
    ///
    /// - `outstanding_max` requests of the session are in flight,
    /// - the server's byte budget for requests is used up, or
    /// - other requests of the session already wait for room.
    ///
    /// Any other variant says why the request could not be sent.
    pub fn submit(&self, request: Request) -> Result<Pending, Error> {
        Ok(Pending(self.link().submit(request, None)?))
    }

    /// Returns a reader with another consistency than [`Consistency::Session`].
    pub fn reading(&self, consistency: Consistency) -> Reads<'_> {
        Reads::new(self, consistency)
    }

    /// Creates a persistent znode that every client may use.
    ///
    /// # Errors
    /// [`Error::Refused`] with the server's code; another variant if no answer arrived.
    pub async fn create(&self, path: &Path, data: impl Into<Option<Bytes>>) -> Result<Created, Error> {
        self.create_with(path, data, &CreateOptions::default()).await
    }

    /// Creates a znode.
    ///
    /// # Errors
    /// [`Error::Refused`] with the server's code; another variant if no answer arrived.
    pub async fn create_with(
        &self,
        path: &Path,
        data: impl Into<Option<Bytes>>,
        options: &CreateOptions,
    ) -> Result<Created, Error> {
        match self.ask(Request::Write(options.request(path, data.into())), None).await?.reply {
            Reply::PathStat(path, stat) => Ok(Created { path, stat }),
            other => Err(unexpected(&other)),
        }
    }

    /// Deletes a znode.
    ///
    /// # Errors
    /// [`Error::Refused`] with the server's code; another variant if no answer arrived.
    pub async fn delete(&self, path: &Path, version: Version) -> Result<(), Error> {
        let op = WriteOp::Delete { path: path.text().clone(), version: version.on_wire() };
        self.ask(Request::Write(op), None).await.map(drop)
    }

    /// Sets the data of a znode.
    ///
    /// # Errors
    /// [`Error::Refused`] with the server's code; another variant if no answer arrived.
    pub async fn set(&self, path: &Path, data: impl Into<Option<Bytes>>, version: Version) -> Result<Stat, Error> {
        let op = WriteOp::SetData { path: path.text().clone(), data: data.into(), version: version.on_wire() };
        stat(self.ask(Request::Write(op), None).await?)
    }

    /// Sets the ACL of a znode; `version` is compared with its aversion.
    ///
    /// # Errors
    /// [`Error::Refused`] with the server's code; another variant if no answer arrived.
    pub async fn set_acl(&self, path: &Path, acl: &[AclEntry], version: Version) -> Result<Stat, Error> {
        let op =
            WriteOp::SetAcl { path: path.text().clone(), acl: options::requested(acl), version: version.on_wire() };
        stat(self.ask(Request::Write(op), None).await?)
    }

    /// Carries out all operations or none.
    ///
    /// # Errors
    /// [`Error::Refused`] with the code of the first operation that failed; another variant if no
    /// answer arrived.
    pub async fn multi(&self, ops: Vec<WriteOp>) -> Result<Vec<OpResult>, Error> {
        match self.ask(Request::Multi(ops), None).await?.reply {
            Reply::Multi(results) => match zoolet_model::first_failure(&results) {
                None => Ok(results),
                Some((_, code)) => Err(Error::Refused(code)),
            },
            other => Err(unexpected(&other)),
        }
    }

    /// Returns the data and stat of a znode.
    ///
    /// # Errors
    /// [`Error::Refused`] with the server's code; another variant if no answer arrived.
    pub async fn get(&self, path: &Path) -> Result<(Option<Bytes>, Stat), Error> {
        data(self.ask(get(path, false), None).await?)
    }

    /// Passes a znode to `read` without copying its data.
    ///
    /// # Errors
    /// [`Error::Refused`] with the server's code; another variant if no answer arrived.
    pub async fn get_with<R>(&self, path: &Path, read: impl FnOnce(Znode<'_>) -> R) -> Result<R, Error> {
        let (data, stat) = self.get(path).await?;
        Ok(read(Znode { data: data.as_deref(), stat: &stat }))
    }

    /// Returns the stat of a znode, or `None` if it does not exist.
    ///
    /// # Errors
    /// [`Error::Refused`] with the server's code; another variant if no answer arrived.
    pub async fn exists(&self, path: &Path) -> Result<Option<Stat>, Error> {
        existing(self.ask(exists(path, false), None).await)
    }

    /// Returns the names of the children, sorted.
    ///
    /// # Errors
    /// [`Error::Refused`] with the server's code; another variant if no answer arrived.
    pub async fn children(&self, path: &Path) -> Result<Names, Error> {
        names(self.ask(children(path, false), None).await?)
    }

    /// Returns the ACL and stat of a znode.
    ///
    /// # Errors
    /// [`Error::Refused`] with the server's code; another variant if no answer arrived.
    pub async fn acl(&self, path: &Path) -> Result<(Vec<AclEntry>, Stat), Error> {
        match self.ask(Request::GetAcl { path: path.text().clone() }, None).await?.reply {
            Reply::Acl(acl, stat) => Ok((acl, stat)),
            other => Err(unexpected(&other)),
        }
    }

    /// Returns how long a znode with a time to live still lives.
    ///
    /// # Errors
    /// [`Error::Refused`] with the server's code; another variant if no answer arrived.
    pub async fn time_to_live(&self, path: &Path) -> Result<TimeToLive, Error> {
        match self.ask(Request::GetTtl { path: path.text().clone() }, None).await?.reply {
            Reply::Ttl(left) => Ok(left),
            other => Err(unexpected(&other)),
        }
    }

    /// Waits until this server has applied every write acknowledged before the call.
    ///
    /// # Errors
    /// [`Error::Refused`] with the server's code; another variant if no answer arrived.
    pub async fn sync(&self) -> Result<(), Error> {
        self.ask(Request::Sync { path: None }, None).await.map(drop)
    }

    /// Adds an identity to the session, for example `digest` with `user:password`.
    ///
    /// The session gets the permissions that ACLs grant to this identity. In the ACL of a znode
    /// that the session creates, an entry of the scheme `auth` stands for this identity.
    ///
    /// # Errors
    /// [`Error::AuthFailed`], which ends the session; another variant if no answer arrived.
    pub async fn add_auth(&self, scheme: &str, auth: impl Into<Bytes>) -> Result<(), Error> {
        let auth = auth.into();
        let request = Request::Auth { scheme: Some(scheme.into()), auth: Some(auth.clone()) };
        match self.ask(request, None).await {
            Ok(_) => {
                self.link().remember_auth(scheme.into(), auth);
                Ok(())
            }
            Err(Error::Refused(ErrorCode::AuthFailed)) => Err(Error::AuthFailed),
            Err(error) => Err(error),
        }
    }

    /// Reads like [`Session::get`] and watches for the znode's first change after it.
    ///
    /// # Errors
    /// [`Error::Refused`] with the server's code; another variant if no answer arrived. After an
    /// error nothing is watched.
    pub async fn get_and_watch(&self, path: &Path) -> Result<((Option<Bytes>, Stat), OneShotWatch), Error> {
        let watch = OneShotWatch::new(self.link(), path.text().clone(), Arm::Data);
        let answer = self.ask(get(path, true), Some(watch.id())).await?;
        Ok((data(answer)?, watch))
    }

    /// Reads like [`Session::exists`] and watches for the first change after it.
    ///
    /// If the znode does not exist, the watch fires when it is created.
    ///
    /// # Errors
    /// [`Error::Refused`] with the server's code; another variant if no answer arrived. After an
    /// error nothing is watched.
    pub async fn exists_and_watch(&self, path: &Path) -> Result<(Option<Stat>, OneShotWatch), Error> {
        let watch = OneShotWatch::new(self.link(), path.text().clone(), Arm::Exist);
        let answer = self.ask(exists(path, true), Some(watch.id())).await;
        Ok((existing(answer)?, watch))
    }

    /// Reads like [`Session::children`] and watches for the list's first change after it.
    ///
    /// # Errors
    /// [`Error::Refused`] with the server's code; another variant if no answer arrived. After an
    /// error nothing is watched.
    pub async fn children_and_watch(&self, path: &Path) -> Result<(Names, OneShotWatch), Error> {
        let watch = OneShotWatch::new(self.link(), path.text().clone(), Arm::Child);
        let answer = self.ask(children(path, true), Some(watch.id())).await?;
        Ok((names(answer)?, watch))
    }

    /// Watches every change of a znode or subtree until the stream is dropped.
    ///
    /// The znode need not exist.
    ///
    /// # Errors
    /// [`Error::Refused`] with the server's code, which is SystemError if the server already has
    /// `watches_max` watches; another variant if no answer arrived. After an error nothing is
    /// watched.
    pub async fn watch(&self, path: &Path, mode: AddWatchMode) -> Result<WatchStream, Error> {
        let stream = WatchStream::new(self.link(), path, mode);
        self.ask(Request::AddWatch { path: path.text().clone(), mode }, Some(stream.id())).await?;
        Ok(stream)
    }

    /// Closes the session and deletes its ephemerals.
    ///
    /// The session is over for its owner at once. Another server may grant the owner's locks to
    /// another session before this server answers.
    ///
    /// # Errors
    /// The reason why no answer arrived: [`Error::Suspended`] without a connection, or while the
    /// session only reads. The session then ends on its server's next connection to a leader, or
    /// when its timeout expires.
    pub async fn close(self) -> Result<(), Error> {
        let asked = self.link().close()?;
        asked.await.map(drop)
    }

    /// Waits for a slot, sends the request, and waits for the answer.
    async fn ask(&self, request: Request, watch: Option<u64>) -> Result<Answer, Error> {
        Asking::new(self.link(), request, watch).await
    }
}

/// A request in flight. Dropping it cancels only the waiting.
#[derive(Debug)]
#[must_use = "await this to get the answer"]
pub struct Pending(Ticket);

impl Future for Pending {
    type Output = Result<Reply, Error>;

    fn poll(mut self: std::pin::Pin<&mut Self>, context: &mut std::task::Context<'_>) -> Poll<Self::Output> {
        std::pin::Pin::new(&mut self.0).poll(context).map_ok(|answer| answer.reply)
    }
}

fn get(path: &Path, watch: bool) -> Request {
    Request::GetData { path: path.text().clone(), watch }
}

fn exists(path: &Path, watch: bool) -> Request {
    Request::Exists { path: path.text().clone(), watch }
}

fn children(path: &Path, watch: bool) -> Request {
    Request::GetChildren { path: path.text().clone(), watch, with_stat: false }
}

fn data(answer: Answer) -> Result<(Option<Bytes>, Stat), Error> {
    match answer.reply {
        Reply::Data(data, stat) => Ok((data, stat)),
        other => Err(unexpected(&other)),
    }
}

fn stat(answer: Answer) -> Result<Stat, Error> {
    match answer.reply {
        Reply::Stat(stat) => Ok(stat),
        other => Err(unexpected(&other)),
    }
}

fn existing(answer: Result<Answer, Error>) -> Result<Option<Stat>, Error> {
    match answer {
        Ok(answer) => stat(answer).map(Some),
        Err(Error::Refused(ErrorCode::NoNode)) => Ok(None),
        Err(error) => Err(error),
    }
}

fn names(answer: Answer) -> Result<Names, Error> {
    match answer.reply {
        Reply::Names(names) => Ok(names.iter().map(Text::from).collect()),
        other => Err(unexpected(&other)),
    }
}

/// Returns the error for a reply of the wrong kind, which is a bug of the machine.
fn unexpected(reply: &Reply) -> Error {
    debug_assert!(false, "unexpected reply {reply:?}");
    Error::Refused(ErrorCode::SystemError)
}

/// Locks `mutex`, ignoring poison: a panic was already reported by its own thread.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
