//! Sessions inside the process: the same requests, limits and order as over a socket, without the bytes.
//!
//! A part of zoolet, published with it: `Session` and what it gives is what embedders see, as the crate `zoolet` names it; [`Link`], [`Links`],
//! [`Outbox`] and [`Surroundings`] are for whoever drives the machine, with threads or on virtual time, and change as that needs.
//!
//! [`Link`] is where a session's owner and the machine meet: slots for replies, queues for watches, the
//! state. Everything public is a thin handle to it. Wakers are called on the node's own threads, the one that syncs the log among them: a waker
//! that blocks holds up everybody's writes.

mod asking;
mod coordinator;
mod errands;
mod life;
mod link;
mod links;
mod options;
mod outbox;
mod reads;
mod size;
mod slots;
mod state;
mod surroundings;
mod wait;
mod watch;
mod watchdog;

pub use asking::Asked;
pub use link::Link;
pub use links::Links;
pub use options::{CreateOptions, Created, SessionOptions, Version};
pub use outbox::Outbox;
pub use reads::{Consistency, Reads};
pub use state::States;
pub use surroundings::{Surroundings, Timer, Timers};
pub use wait::Wait;
pub use watch::{OneShotWatch, WatchStream};
pub use zoolet_model::{Error, LostReason, SessionState, WatchItem, Watched};

use asking::Asking;
use bytes::Bytes;
use link::Answer;
use slots::Ticket;
use std::future::Future;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::Poll;
use watch::Arm;
use zoolet_model::{
    AclEntry, AddWatchMode, ErrorCode, Names, OpResult, Path, Reply, Request, SessionId, Stat, Text, WriteOp,
};

/// A znode as a read lends it, without copying.
#[derive(Clone, Copy, Debug)]
pub struct Znode<'a> {
    /// Its data; null and empty are different.
    pub data: Option<&'a [u8]>,
    /// Its stat.
    pub stat: &'a Stat,
}

/// A session of this process. Clones are the same session; when the last one is dropped the session closes and its
/// ephemerals are deleted.
///
/// Futures need a waker and no particular runtime. A request is sent when its future is first polled, and dropping the
/// future later cancels only the waiting.
#[derive(Clone, Debug)]
pub struct Session {
    owner: Arc<Owner>,
}

/// Closes the session when the last handle goes.
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
    /// The owner's handle to `link`.
    pub fn new(link: Arc<Link>) -> Self {
        Self { owner: Arc::new(Owner { link }) }
    }

    fn link(&self) -> &Arc<Link> {
        &self.owner.link
    }

    /// The session's number, the owner of its ephemerals.
    pub fn id(&self) -> SessionId {
        self.link().id()
    }

    /// The negotiated timeout, milliseconds.
    pub fn timeout_ms(&self) -> u32 {
        self.link().timeout_ms()
    }

    /// How the session is now.
    pub fn state(&self) -> SessionState {
        self.link().session_state()
    }

    /// The state now and then each later one; a slow reader misses intermediate ones, never the last.
    pub fn states(&self) -> States {
        States::new(Arc::clone(self.link()))
    }

    /// Its owner is alive. What [`SessionOptions::watchdog`] waits for; without one it does nothing. To be called where the owner does his work, for
    /// instance once in each round of his main loop, and not by a thread whose only work is this.
    pub fn touch(&self) {
        self.link().touch();
    }

    /// Sends `request` now, without waiting: the order of calls is the order of requests. For pipelining, and for requests
    /// that have no method here. The answer to a multi that failed is its results; to anything else that failed, an error.
    ///
    /// # Errors
    /// [`Error::Busy`] when the session has `outstanding_max` requests under way; else why it cannot be sent.
    pub fn submit(&self, request: Request) -> Result<Pending, Error> {
        Ok(Pending(self.link().submit(request, None)?))
    }

    /// Reads with another consistency than [`Consistency::Session`].
    pub fn reading(&self, consistency: Consistency) -> Reads<'_> {
        Reads::new(self, consistency)
    }

    /// Creates a persistent znode that everybody may use.
    ///
    /// # Errors
    /// The server's answer, or why there is none.
    pub async fn create(&self, path: &Path, data: impl Into<Option<Bytes>>) -> Result<Created, Error> {
        self.create_with(path, data, &CreateOptions::default()).await
    }

    /// Creates a znode.
    ///
    /// # Errors
    /// The server's answer, or why there is none.
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
    /// The server's answer, or why there is none.
    pub async fn delete(&self, path: &Path, version: Version) -> Result<(), Error> {
        let op = WriteOp::Delete { path: path.text().clone(), version: version.on_wire() };
        self.ask(Request::Write(op), None).await.map(drop)
    }

    /// Sets the data of a znode.
    ///
    /// # Errors
    /// The server's answer, or why there is none.
    pub async fn set(&self, path: &Path, data: impl Into<Option<Bytes>>, version: Version) -> Result<Stat, Error> {
        let op = WriteOp::SetData { path: path.text().clone(), data: data.into(), version: version.on_wire() };
        stat(self.ask(Request::Write(op), None).await?)
    }

    /// Sets the ACL of a znode; `version` is compared with aversion.
    ///
    /// # Errors
    /// The server's answer, or why there is none.
    pub async fn set_acl(&self, path: &Path, acl: &[AclEntry], version: Version) -> Result<Stat, Error> {
        let op =
            WriteOp::SetAcl { path: path.text().clone(), acl: options::requested(acl), version: version.on_wire() };
        stat(self.ask(Request::Write(op), None).await?)
    }

    /// All operations or none.
    ///
    /// # Errors
    /// [`Error::Refused`] with the first culprit's code when one of them failed; else why there is no answer.
    pub async fn multi(&self, ops: Vec<WriteOp>) -> Result<Vec<OpResult>, Error> {
        match self.ask(Request::Multi(ops), None).await?.reply {
            Reply::Multi(results) => match zoolet_model::first_failure(&results) {
                None => Ok(results),
                Some((_, code)) => Err(Error::Refused(code)),
            },
            other => Err(unexpected(&other)),
        }
    }

    /// The data and stat of a znode.
    ///
    /// # Errors
    /// The server's answer, or why there is none.
    pub async fn get(&self, path: &Path) -> Result<(Option<Bytes>, Stat), Error> {
        data(self.ask(get(path, false), None).await?)
    }

    /// Lends a znode to `read`, in place.
    ///
    /// # Errors
    /// The server's answer, or why there is none.
    pub async fn get_with<R>(&self, path: &Path, read: impl FnOnce(Znode<'_>) -> R) -> Result<R, Error> {
        let (data, stat) = self.get(path).await?;
        Ok(read(Znode { data: data.as_deref(), stat: &stat }))
    }

    /// The stat of a znode; `None` when there is none.
    ///
    /// # Errors
    /// The server's answer, or why there is none.
    pub async fn exists(&self, path: &Path) -> Result<Option<Stat>, Error> {
        existing(self.ask(exists(path, false), None).await)
    }

    /// The names of the children, sorted.
    ///
    /// # Errors
    /// The server's answer, or why there is none.
    pub async fn children(&self, path: &Path) -> Result<Names, Error> {
        names(self.ask(children(path, false), None).await?)
    }

    /// The ACL of a znode.
    ///
    /// # Errors
    /// The server's answer, or why there is none.
    pub async fn acl(&self, path: &Path) -> Result<(Vec<AclEntry>, Stat), Error> {
        match self.ask(Request::GetAcl { path: path.text().clone() }, None).await?.reply {
            Reply::Acl(acl, stat) => Ok((acl, stat)),
            other => Err(unexpected(&other)),
        }
    }

    /// Waits until this server has seen everything that was acknowledged before.
    ///
    /// # Errors
    /// Why there is no answer.
    pub async fn sync(&self) -> Result<(), Error> {
        self.ask(Request::Sync { path: None }, None).await.map(drop)
    }

    /// Adds an identity to the session, as `digest` with `user:password`: what it creates with an ACL of the scheme `auth` is for
    /// that identity, and it may do what ACLs allow to that identity.
    ///
    /// # Errors
    /// [`Error::AuthFailed`], which ends the session; or why there is no answer.
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

    /// [`Session::get`], and the first change of the znode after it.
    ///
    /// # Errors
    /// The server's answer, or why there is none; then nothing is watched.
    pub async fn get_and_watch(&self, path: &Path) -> Result<((Option<Bytes>, Stat), OneShotWatch), Error> {
        let watch = OneShotWatch::new(self.link(), path.text().clone(), Arm::Data);
        let answer = self.ask(get(path, true), Some(watch.id())).await?;
        Ok((data(answer)?, watch))
    }

    /// [`Session::exists`], and the first change after it: creation when there was none.
    ///
    /// # Errors
    /// The server's answer, or why there is none; then nothing is watched.
    pub async fn exists_and_watch(&self, path: &Path) -> Result<(Option<Stat>, OneShotWatch), Error> {
        let watch = OneShotWatch::new(self.link(), path.text().clone(), Arm::Exist);
        let answer = self.ask(exists(path, true), Some(watch.id())).await;
        Ok((existing(answer)?, watch))
    }

    /// [`Session::children`], and the first change of that list after it.
    ///
    /// # Errors
    /// The server's answer, or why there is none; then nothing is watched.
    pub async fn children_and_watch(&self, path: &Path) -> Result<(Names, OneShotWatch), Error> {
        let watch = OneShotWatch::new(self.link(), path.text().clone(), Arm::Child);
        let answer = self.ask(children(path, true), Some(watch.id())).await?;
        Ok((names(answer)?, watch))
    }

    /// Every change of a znode, or of a subtree, until the stream is dropped. The znode need not exist.
    ///
    /// # Errors
    /// The server's answer, as SystemError when it has `watches_max` of them, or why there is none; then nothing is watched.
    pub async fn watch(&self, path: &Path, mode: AddWatchMode) -> Result<WatchStream, Error> {
        let stream = WatchStream::new(self.link(), path, mode);
        self.ask(Request::AddWatch { path: path.text().clone(), mode }, Some(stream.id())).await?;
        Ok(stream)
    }

    /// Closes the session and deletes its ephemerals. For its owner it is over at once: another server may give what was his to somebody else before this one
    /// answers.
    ///
    /// # Errors
    /// Why there is no answer; the session then ends when its timeout passes.
    pub async fn close(self) -> Result<(), Error> {
        let asked = self.link().close()?;
        asked.await.map(drop)
    }

    /// Waits for a slot, sends, waits for the answer.
    async fn ask(&self, request: Request, watch: Option<u64>) -> Result<Answer, Error> {
        Asking::new(self.link(), request, watch).await
    }
}

/// A request under way. Dropping it cancels only the waiting.
#[derive(Debug)]
#[must_use = "the answer comes when this is awaited"]
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

/// The machine answered another question than was asked.
fn unexpected(reply: &Reply) -> Error {
    debug_assert!(false, "unexpected reply {reply:?}");
    Error::Refused(ErrorCode::SystemError)
}

/// Locks; a thread that panicked while it held the lock has been reported where it ran.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
