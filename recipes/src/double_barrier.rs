//! A double barrier: so many begin together, and end together.
//!
//! # Guarantees
//! - Nobody who entered goes on before at least so many were there at once. Who dies before that does not count.
//! - [`Meeting::leave`] returns when all who entered have left, or their sessions have ended.
//! - It can be used again at once: each meeting has a znode of its own, and whoever comes when one has begun waits for the next.
//! - The beginning wakes everybody once; in leaving each departure wakes one, and the last wakes whoever is left.
//!
//! # Does not guarantee
//! - That not more than so many meet: several may come at the same moment.
//! - That those who met are still there: a session can end between.
//!
//! # Znodes
//! The path, whose data is the number of the meeting that takes parties now. Below it a container for each meeting, with an ephemeral of each party and `ready` once it has begun. The last one to
//! leave deletes them, and where nobody was left to do that, whoever begins a later meeting.
//!
//! # Failures
//! | what happens | what comes of it |
//! |---|---|
//! | a party dies while others wait for more | it does not count; they go on waiting |
//! | a party dies in the meeting | the others do not wait for it in leaving |
//! | all of a meeting die, or drop it | what says that it had begun stays until the next meeting begins |
//! | the reply to entering is lost | the party's znode has its GUID: it is recognised |
//! | a meeting is dropped and not left | its party has left, without waiting |
//!
//! # Example
//! ```
//! use zoolet_model::Path;
//! use zoolet_recipes::{Coordinator, DoubleBarrier, Error};
//!
//! async fn calibrate<C: Coordinator>(session: C) -> Result<(), Error> {
//!     let meeting = DoubleBarrier::new(session, &Path::from_static("/calibration"), 3).enter().await?;
//!     println!("all three are here");
//!     meeting.leave().await
//! }
//! ```

use crate::ask::{UNEXPECTED, ask, children, connected, create, data, is_disconnection, make_persistent};
use crate::barrier::wait_there;
use crate::line::wait_gone;
use crate::mutation::{Mutation, is_on};
use crate::{Coordinator, Errand, Error, Guid};
use bytes::Bytes;
use zoolet_model::{CreateKind, ErrorCode, Names, Path, Reply, Request, Text, WriteOp};

/// The child that says that enough have come. It counts for nobody.
const READY: &str = "ready";

/// A double barrier that can be used again and again: each meeting has a znode of its own, and whoever comes when the parties of one are complete
/// waits for those of the next.
#[derive(Debug)]
pub struct DoubleBarrier<C> {
    coordinator: C,
    path: Path,
    parties: usize,
}

/// A participant between [`DoubleBarrier::enter`] and [`Meeting::leave`]. Dropped, it leaves without waiting for the others.
#[derive(Debug)]
#[must_use = "whoever drops it has left"]
pub struct Meeting<C: Coordinator> {
    coordinator: C,
    /// The znode of this meeting.
    room: Text,
    /// The own znode below it, until it was deleted.
    own: Option<Text>,
}

impl<C: Coordinator> DoubleBarrier<C> {
    /// The barrier at `path` for so many parties. It begins when at least so many are there, and who dies before does not count.
    pub fn new(coordinator: C, path: &Path, parties: usize) -> Self {
        Self { coordinator, path: path.clone(), parties }
    }

    /// Waits until all parties have entered. Dropping the future leaves nothing behind.
    ///
    /// # Errors
    /// [`Error::Malformed`] when something else is at the path; the session's.
    pub async fn enter(&self) -> Result<Meeting<C>, Error> {
        let guid = Guid::from_random_bits(self.coordinator.random_bits());
        loop {
            let (number, version) = self.meeting().await?;
            let room = zoolet_model::path::child(self.path.as_str(), &format!("{number:010}"));
            let meeting = Meeting {
                coordinator: self.coordinator.clone(),
                own: Some(zoolet_model::path::child(&room, &guid.to_string())),
                room,
            };
            if self.join(&meeting, version).await? {
                self.begin(&meeting, number, version).await?;
                return Ok(meeting);
            }
            // Its parties are complete: the next one.
        }
    }

    /// The meeting that takes parties now, and the version of the znode that says so.
    async fn meeting(&self) -> Result<(u64, i32), Error> {
        loop {
            let Some((data, stat)) = data(&self.coordinator, self.path.text()).await? else {
                make_persistent(&self.coordinator, &self.path).await?;
                continue;
            };
            let text = data.as_deref().unwrap_or_default();
            if text.is_empty() {
                return Ok((0, stat.version));
            }
            let number: Option<u64> = std::str::from_utf8(text).ok().and_then(|text| text.parse().ok());
            // One after which there is none was not counted up to.
            let number = number.filter(|number| *number < u64::MAX).ok_or(Error::Malformed)?;
            return Ok((number, stat.version));
        }
    }

    /// Says whether it was early enough.
    async fn join(&self, meeting: &Meeting<C>, version: i32) -> Result<bool, Error> {
        let (c, Some(own)) = (&self.coordinator, &meeting.own) else { return Err(UNEXPECTED) };
        let room = Request::Write(create(meeting.room.clone(), None, CreateKind::Container, false));
        let join = Request::Multi(vec![
            WriteOp::Check { path: self.path.text().clone(), version },
            create(own.clone(), None, CreateKind::Ephemeral, false),
        ]);
        let mut is_doubtful = false;
        loop {
            let results = match c.submit(join.clone()).await {
                Ok(Reply::Multi(results)) => results,
                Ok(_) => return Err(UNEXPECTED),
                Err(error) if is_disconnection(error) => {
                    connected(c).await?;
                    is_doubtful |= error == zoolet_model::Error::ConnectionLoss;
                    continue;
                }
                Err(error) => return Err(error.into()),
            };
            match zoolet_model::first_failure(&results) {
                None => return Ok(true),
                Some((1, ErrorCode::NodeExists)) => return Ok(true),
                // An attempt before the last may have been early enough.
                Some((0, ErrorCode::BadVersion)) if is_doubtful => {
                    return Ok(crate::ask::stat(c, own).await?.is_some());
                }
                Some((0, ErrorCode::BadVersion)) => return Ok(false),
                Some((1, ErrorCode::NoNode)) => match ask(c, &room).await {
                    Ok(_) | Err(Error::Session(zoolet_model::Error::Refused(ErrorCode::NodeExists))) => {}
                    Err(error) => return Err(error),
                },
                Some((_, code)) => return Err(zoolet_model::Error::Refused(code).into()),
            }
        }
    }

    /// Waits for the others, or tells them that this was the last one to come.
    async fn begin(&self, meeting: &Meeting<C>, number: u64, version: i32) -> Result<(), Error> {
        let ready = zoolet_model::path::child(&meeting.room, READY);
        if parties(&children(&self.coordinator, &meeting.room).await?).count() < self.parties {
            return wait_there(&self.coordinator, &ready).await;
        }
        let data = Some(Bytes::from((number + 1).to_string()));
        let begin = Request::Multi(vec![
            create(ready.clone(), None, CreateKind::Persistent, false),
            WriteOp::SetData { path: self.path.text().clone(), data, version },
        ]);
        match ask(&self.coordinator, &begin).await? {
            Reply::Multi(results) => {
                if zoolet_model::first_failure(&results).is_none() && !is_on(Mutation::FormerRoomsStay) {
                    self.tidy_before(number).await?;
                }
                // Or somebody else came as late, and told them.
                wait_there(&self.coordinator, &ready).await
            }
            _ => Err(UNEXPECTED),
        }
    }
}

impl<C: Coordinator> DoubleBarrier<C> {
    /// Rooms of former meetings whose parties are all gone without having left: nobody comes into them any more.
    async fn tidy_before(&self, number: u64) -> Result<(), Error> {
        let c = &self.coordinator;
        for name in children(c, self.path.text()).await?.iter() {
            if name.parse::<u64>().is_ok_and(|room| room < number) {
                let room = zoolet_model::path::child(self.path.as_str(), name);
                if parties(&children(c, &room).await?).next().is_none() {
                    tidy(c, &room);
                }
            }
        }
        Ok(())
    }
}

impl<C: Coordinator> Meeting<C> {
    /// Waits until all have left. The last one tidies up.
    ///
    /// Each departure wakes one: whoever has the smallest name waits for the largest to go, everybody else goes and waits for the smallest.
    ///
    /// # Errors
    /// The session's.
    pub async fn leave(mut self) -> Result<(), Error> {
        let coordinator = self.coordinator.clone();
        loop {
            let names = children(&coordinator, &self.room).await?;
            let (Some(smallest), Some(largest)) = (parties(&names).min(), parties(&names).max()) else { break };
            let path = |name: &str| zoolet_model::path::child(&self.room, name);
            let own = self.own.as_ref().and_then(|own| own.rsplit('/').next());
            let awaited = if own == Some(smallest) && own != Some(largest) {
                Some(path(largest))
            } else {
                (own != Some(smallest)).then(|| path(smallest))
            };
            if awaited.is_none() || own != Some(smallest) {
                self.depart().await?;
            }
            if let Some(awaited) = awaited {
                wait_gone(&coordinator, &awaited).await?;
            }
        }
        self.depart().await?;
        tidy(&self.coordinator, &self.room);
        Ok(())
    }

    async fn depart(&mut self) -> Result<(), Error> {
        let Some(own) = self.own.clone() else { return Ok(()) };
        match ask(&self.coordinator, &Request::Write(WriteOp::Delete { path: own, version: -1 })).await {
            Ok(_) | Err(Error::Session(zoolet_model::Error::Refused(ErrorCode::NoNode))) => {
                self.own = None;
                Ok(())
            }
            Err(error) => Err(error),
        }
    }
}

/// Nobody is in the room, and nobody will be. All who left try it, and one succeeds.
fn tidy<C: Coordinator>(coordinator: &C, room: &Text) {
    coordinator.run_errand(Errand::delete(zoolet_model::path::child(room, READY)));
    coordinator.run_errand(Errand::delete(room.clone()));
}

impl<C: Coordinator> Drop for Meeting<C> {
    fn drop(&mut self) {
        if let Some(own) = self.own.take() {
            self.coordinator.run_errand(Errand::delete(own));
        }
    }
}

fn parties(names: &Names) -> impl Iterator<Item = &str> {
    names.iter().filter(|name| *name != READY || is_on(Mutation::ReadyCountsAsParty))
}
