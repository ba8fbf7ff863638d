//! A double barrier: parties begin together and end together.
//!
//! # Guarantees
//! - [`DoubleBarrier::enter`] returns only after the required number of parties was present at the
//!   same time. A party that died before that does not count.
//! - [`Meeting::leave`] returns when every party has left or its session has ended.
//! - The barrier is reusable at once, because each meeting has a separate znode. A party that comes
//!   after a meeting has begun waits for the next one.
//! - The beginning wakes every waiting party once. Each departure wakes one party, and the last
//!   departure wakes all parties that remain.
//!
//! # Does not guarantee
//! - An upper bound: more parties than required may enter at the same moment.
//! - That the parties are still present: a session can end during the meeting.
//!
//! # Znodes
//! The path, whose data is the number of the meeting that accepts parties now. Below it each
//! meeting has a container, whose data is the number of parties that it requires. The container has
//! an ephemeral for each party, and `ready` once the meeting has begun. The first party creates the
//! container and its ephemeral in one transaction. The last party to leave deletes the container.
//! If every party died or was dropped, a party that begins a later meeting deletes it. Before the
//! meeting has begun, the ensemble deletes the empty container.
//!
//! # Failures
//! - **A party dies while others wait to begin**: it does not count; the others go on waiting.
//! - **A party dies in the meeting**: the others do not wait for it when they leave.
//! - **All parties die, or drop the meeting**: `ready` stays until a later meeting begins.
//! - **The reply to entering is lost**: the party recognises its znode by its GUID.
//! - **A party's session is lost, and it enters with another one**: the znode of the former session
//!   may stay for a while. Two znodes with the same party GUID ([`DoubleBarrier::of_party`]) count as
//!   one party. If another party has begun the meeting with the former znode, the party comes back to
//!   that meeting.
//! - **A meeting is dropped and not left**: its party leaves without waiting for the others.
//! - **Parties require different numbers**: the number of the parties that are present holds. A
//!   party with another number gets [`ErrorKind::Disagreement`] and does not count. If no party is
//!   present, it replaces the meeting by the next one, in which its own number holds.
//!
//! # Example
//! ```
//! use zoolet::recipes::DoubleBarrier;
//! use zoolet::{Coordinator, Error, Path};
//!
//! async fn calibrate<C: Coordinator>(session: C) -> Result<(), Error> {
//!     let meeting = DoubleBarrier::new(session, &Path::from_static("/calibration"), 3).enter().await?;
//!     println!("all three are here");
//!     meeting.leave().await
//! }
//! ```

use crate::ask::{ask, children, connected, create, data, is_disconnection, make_persistent, stat};
use crate::barrier::wait_there;
use crate::line::wait_gone;
use crate::mutation::{Mutation, is_on};
use crate::{Coordinator, Errand, Error, ErrorKind, Guid};
use bytes::Bytes;
use std::collections::BTreeSet;
use zoolet_model::{CreateKind, ErrorCode, Names, Path, Reply, Request, RequestError, Text, WriteOp};

/// The child that marks a meeting as begun. It does not count as a party.
const READY: &str = "ready";

/// A reusable double barrier at a path.
///
/// Each meeting has a separate znode. A party that finds a meeting already begun waits for the next
/// one.
#[derive(Debug)]
pub struct DoubleBarrier<C> {
    coordinator: C,
    path: Path,
    parties: usize,
    /// Prefix of the names of this party's znodes.
    party: Guid,
    /// Whether a former session of this party may have entered.
    may_come_back: bool,
}

/// A party's presence between [`DoubleBarrier::enter`] and [`Meeting::leave`].
///
/// Dropping it leaves without waiting for the others.
#[derive(Debug)]
#[must_use = "dropping it leaves the barrier"]
pub struct Meeting<C: Coordinator> {
    coordinator: C,
    /// The znode of this meeting.
    room: Text,
    /// The party's znode below it, until it is deleted.
    own: Option<Text>,
}

/// The znode of a meeting, as a party finds it.
#[derive(Clone, Copy)]
enum Room {
    Missing,
    /// It requires the party's number of parties, or does not say a number.
    Fits,
    /// It requires another number; with the version of its data.
    Differs(i32),
}

impl<C: Coordinator> DoubleBarrier<C> {
    /// Returns the barrier at `path` for `parties` parties.
    ///
    /// A meeting begins when at least that number is present; a party that died before does not
    /// count.
    pub fn new(coordinator: C, path: &Path, parties: usize) -> Self {
        let party = Guid::from_random_bits(coordinator.random_bits());
        Self { coordinator, path: path.clone(), parties, party, may_come_back: false }
    }

    /// Sets the party that this barrier enters as.
    ///
    /// A process that lost its session and enters with another one stays the same party. The servers
    /// may keep the former session after the process has given it up. If the meeting has begun with
    /// it, [`enter`](Self::enter) returns that meeting.
    #[must_use]
    pub fn of_party(self, party: Guid) -> Self {
        Self { party, may_come_back: true, ..self }
    }

    /// Enters, and waits until enough parties have entered.
    ///
    /// Dropping the future deletes the party's znode. The meeting's empty container may stay until
    /// the ensemble deletes it.
    ///
    /// # Errors
    /// - [`ErrorKind::Malformed`] if the path or the meeting's znode holds other data.
    /// - [`ErrorKind::Disagreement`] if the parties that are present require another number.
    /// - Fails if the session ends or a request is refused.
    pub async fn enter(&self) -> Result<Meeting<C>, Error> {
        loop {
            // A new GUID for each place: the errand of a former place would delete the next one.
            let guid = Guid::from_random_bits(self.coordinator.random_bits());
            let (number, version) = self.meeting().await?;
            let place = |number: u64| {
                let room = zoolet_model::path::child(self.path.as_str(), &format!("{number:010}"));
                let own = Some(zoolet_model::path::child(&room, &format!("{}.{guid}", self.party)));
                Meeting { coordinator: self.coordinator.clone(), own, room }
            };
            if self.may_come_back
                && let Some(begun) = number.checked_sub(1).map(place)
                && self.come_back(&begun).await?
            {
                return Ok(begun);
            }
            let meeting = place(number);
            if self.join(&meeting, number, version).await? && self.begin(&meeting, number, version).await? {
                return Ok(meeting);
            }
            // This meeting has begun or was replaced, or the place is gone: try the next one.
        }
    }

    /// Enters a meeting that has begun with a former session of this party; returns false if there is
    /// none.
    async fn come_back(&self, meeting: &Meeting<C>) -> Result<bool, Error> {
        let (c, Some(own)) = (&self.coordinator, &meeting.own) else { return Err(Error::unexpected()) };
        let (names, of_party) = (children(c, &meeting.room).await?, format!("{}.", self.party));
        let Some(former) = names.iter().find(|name| name.starts_with(&of_party)) else { return Ok(false) };
        let former = zoolet_model::path::child(&meeting.room, former);
        let is_of_another_session = stat(c, &former).await?.is_some_and(|stat| stat.ephemeral_owner != c.session().0);
        if !is_of_another_session || !names.iter().any(|name| name == READY) {
            return Ok(false);
        }
        let join = Request::Multi(vec![
            WriteOp::Check { path: former, version: -1 },
            create(own.clone(), None, CreateKind::Ephemeral, false),
        ]);
        let Reply::Multi(results) = ask(c, &join).await? else { return Err(Error::unexpected()) };
        match zoolet_model::first_failure(&results) {
            // The latter after an earlier attempt, whose reply was lost.
            None | Some((1, ErrorCode::NodeExists)) => Ok(true),
            // The former session has ended since; an earlier attempt may have been in time.
            Some((0, ErrorCode::NoNode)) => Ok(stat(c, own).await?.is_some()),
            Some((_, code)) => Err(Error::at(code, "meet at", self.path.text())),
        }
    }

    /// Returns the number of the meeting that accepts parties, and the path's version.
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
            // `u64::MAX` has no successor, so no barrier has counted up to it.
            let number = number.filter(|number| *number < u64::MAX).ok_or(ErrorKind::Malformed)?;
            return Ok((number, stat.version));
        }
    }

    /// Enters the meeting; returns false if it had begun already or was replaced.
    ///
    /// A party that requires another number must not count for a moment. So it reads the room's
    /// number before it enters, or creates the room together with its place. A room of its own
    /// transaction would outlive a party that is dropped, and the ensemble never deletes a
    /// container that had no child.
    async fn join(&self, meeting: &Meeting<C>, number: u64, version: i32) -> Result<bool, Error> {
        let (c, Some(own)) = (&self.coordinator, &meeting.own) else { return Err(Error::unexpected()) };
        let required = Some(Bytes::from(self.parties.to_string()));
        let room = create(meeting.room.clone(), required, CreateKind::Container, false);
        let join = create(own.clone(), None, CreateKind::Ephemeral, false);
        // A lagging server shows a meeting that has begun already. Then the check fails.
        let check = WriteOp::Check { path: self.path.text().clone(), version };
        let mut is_doubtful = false;
        loop {
            let found = self.look_at(&meeting.room).await?;
            let ops = match found {
                Room::Missing => vec![check.clone(), room.clone(), join.clone()],
                Room::Fits => vec![check.clone(), join.clone()],
                Room::Differs(of_room) => self.replace(meeting, number, version, of_room),
            };
            let results = match c.submit(Request::Multi(ops)).await {
                Ok(Reply::Multi(results)) => results,
                Ok(_) => return Err(Error::unexpected()),
                Err(error) if is_disconnection(error) => {
                    connected(c).await?;
                    is_doubtful |= error == RequestError::ConnectionLoss;
                    continue;
                }
                Err(error) => return Err(Error::at(error, "meet at", self.path.text())),
            };
            match (found, zoolet_model::first_failure(&results)) {
                (Room::Missing, None) => return Ok(true),
                (Room::Fits, None | Some((1, ErrorCode::NodeExists))) => return Ok(true),
                // An earlier attempt of this party, or another party, has created the room.
                (Room::Missing, Some((1, ErrorCode::NodeExists))) => {}
                (Room::Differs(_), None) => return Ok(false),
                (Room::Differs(_), Some((1, ErrorCode::NotEmpty))) => return Err(ErrorKind::Disagreement.into()),
                // A foreign client has written to the room since.
                (Room::Differs(_), Some((1, ErrorCode::BadVersion))) => {}
                // An earlier attempt, whose reply was lost, may have been in time.
                (_, Some((0, ErrorCode::BadVersion))) if is_doubtful => {
                    return Ok(stat(c, own).await?.is_some());
                }
                (_, Some((0, ErrorCode::BadVersion))) => return Ok(false),
                // The ensemble has deleted the empty room since.
                (Room::Fits | Room::Differs(_), Some((1, ErrorCode::NoNode))) => {}
                (_, Some((_, code))) => return Err(Error::at(code, "meet at", self.path.text())),
            }
        }
    }

    /// Returns the transaction that replaces an empty meeting by the next one.
    ///
    /// The next meeting has a room of its own. If a new room took the old one's path, a party that
    /// had read the old number would enter the new room.
    fn replace(&self, meeting: &Meeting<C>, number: u64, version: i32, of_room: i32) -> Vec<WriteOp> {
        let data = Some(Bytes::from((number + 1).to_string()));
        vec![
            WriteOp::SetData { path: self.path.text().clone(), data, version },
            WriteOp::Delete { path: meeting.room.clone(), version: of_room },
        ]
    }

    /// Compares the number of parties that the room requires with this party's number.
    async fn look_at(&self, room: &Text) -> Result<Room, Error> {
        let Some((data, stat)) = data(&self.coordinator, room).await? else { return Ok(Room::Missing) };
        let text = data.as_deref().unwrap_or_default();
        // A room that a foreign client created need not have a number.
        if text.is_empty() {
            return Ok(Room::Fits);
        }
        let required: Option<usize> = std::str::from_utf8(text).ok().and_then(|text| text.parse().ok());
        Ok(if required.ok_or(ErrorKind::Malformed)? == self.parties { Room::Fits } else { Room::Differs(stat.version) })
    }

    /// Waits for the others, or begins the meeting if this party completes it.
    ///
    /// Returns false if the party has to enter again.
    async fn begin(&self, meeting: &Meeting<C>, number: u64, version: i32) -> Result<bool, Error> {
        let ready = zoolet_model::path::child(&meeting.room, READY);
        if present(&children(&self.coordinator, &meeting.room).await?) < self.parties {
            wait_there(&self.coordinator, &ready).await?;
            return Ok(true);
        }
        let data = Some(Bytes::from((number + 1).to_string()));
        let begin = Request::Multi(vec![
            create(ready.clone(), None, CreateKind::Persistent, false),
            WriteOp::SetData { path: self.path.text().clone(), data, version },
        ]);
        let Reply::Multi(results) = ask(&self.coordinator, &begin).await? else { return Err(Error::unexpected()) };
        match zoolet_model::first_failure(&results) {
            None if is_on(Mutation::FormerRoomsStay) => Ok(true),
            None => self.tidy_before(number).await.map(|()| true),
            // Another party has begun the meeting, or an earlier attempt of this one, whose reply
            // was lost.
            Some((0, ErrorCode::NodeExists)) => Ok(true),
            // A foreign client has deleted the party's place, or written to the path. No meeting
            // would begin in this room.
            Some((_, ErrorCode::NoNode) | (1, ErrorCode::BadVersion)) => Ok(false),
            Some((_, code)) => Err(Error::at(code, "meet at", self.path.text())),
        }
    }
}

impl<C: Coordinator> DoubleBarrier<C> {
    /// Deletes the rooms of former meetings whose parties all died. No party enters them any more.
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
    /// Leaves, and waits until all parties have left. The last party deletes the meeting's znode.
    ///
    /// Each departure wakes one party. The party with the smallest name waits for the largest to
    /// go. Every other party leaves and waits for the smallest.
    ///
    /// # Errors
    /// Fails if the session ends or a request is refused.
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
            Err(error) if !error.is_no_node() => Err(error),
            Ok(_) | Err(_) => {
                self.own = None;
                Ok(())
            }
        }
    }
}

/// Deletes a room that is empty for good. All parties that left try it; one succeeds.
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

/// Returns the number of parties with a znode: a party with several sessions counts once.
fn present(names: &Names) -> usize {
    parties(names).map(|name| name.split_once('.').map_or(name, |(party, _)| party)).collect::<BTreeSet<_>>().len()
}

fn parties(names: &Names) -> impl Iterator<Item = &str> {
    names.iter().filter(|name| *name != READY || is_on(Mutation::ReadyCountsAsParty))
}
