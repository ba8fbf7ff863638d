//! Locks for readers and writers where one kind goes first.
//!
//! In a fair line the numbers of the znodes decide, and the participants need to agree on nothing
//! else. Where one kind overtakes the other, two participants could both take the lock at the same
//! moment, each judging by its own view. So taking the lock is a write here: the lock's znode lists
//! the holders. A participant that changes the list names the version it has read. The entry of a
//! former holder counts only while that holder's znode exists.

use crate::ask::{BROKEN, ask, ask_watching, children, data, fired};
use crate::board::Board;
use crate::contention::downgraded;
use crate::line::Place;
use crate::mutation::{Mutation, is_on};
use crate::naming::{self, Mode};
use crate::{Coordinator, Error, ErrorKind};
use bytes::Bytes;
use zoolet_model::{ErrorCode, Names, OpResult, Reply, Request, Text, WriteOp, first_failure};

/// Which kind goes first when readers and writers wait.
///
/// All participants of a lock must use the same preference. A participant that finds another
/// preference before it in the line gets [`ErrorKind::Disagreement`].
///
/// The preference is set by [`ReadWriteLock::prefer`](crate::ReadWriteLock::prefer). The preferred
/// kind may overtake without end, so the other kind can starve. With a preference each holder has a
/// line in the data of the lock's znode. A holder's token is the zxid of the write that added its
/// line.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Preference {
    /// Neither goes first: participants are served in order of arrival. Other libraries support
    /// only this.
    #[default]
    Fair,
    /// Readers go first: a writer waits until no reader holds the lock or waits for it.
    Readers,
    /// Writers go first: a reader waits until no writer holds the lock or waits for it.
    Writers,
}

/// The participants that hold a lock, and those that wait for it.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
struct Census {
    holders: Vec<(u32, Mode)>,
    waiting: Vec<(u32, Mode)>,
}

/// The next step of a participant.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Move {
    Take,
    /// Wait until the znode with this number is deleted or its writer becomes a reader.
    WaitFor(u32),
}

impl Census {
    /// Reads the holders from the data of the lock's znode, and the waiters from its children.
    fn of(board: &Board, names: &Names) -> Self {
        let standing: Vec<_> =
            names.iter().filter_map(|name| Some((naming::number(name)?, naming::mode(name)))).collect();
        let is_there = |number: u32| standing.iter().any(|(other, _)| *other == number);
        let holders: Vec<_> = board.holders.iter().copied().filter(|(number, _)| is_there(*number)).collect();
        let holds = |number: u32| holders.iter().any(|(holder, _)| *holder == number);
        let waiting = standing.iter().copied().filter(|(number, _)| !holds(*number)).collect();
        Self { holders, waiting }
    }

    /// Returns the board with the holders whose znodes exist, and one more.
    fn with_holder(self, mut board: Board, own: u32, mode: Mode) -> Board {
        board.holders = self.holders;
        board.holders.retain(|(number, _)| *number != own);
        board.holders.push((own, mode));
        board
    }

    fn next_move(&self, own: u32, mode: Mode, preference: Preference) -> Move {
        // This participant is listed already: the reply to an earlier write of the list was lost.
        // The waiters wait for this participant, so it must not wait for them.
        if self.holders.contains(&(own, mode)) {
            return Move::Take;
        }
        let largest = |of: &[(u32, Mode)], is_it: &dyn Fn(Mode) -> bool| {
            of.iter().filter(|(number, mode)| *number != own && is_it(*mode)).map(|(number, _)| *number).max()
        };
        let minds = |other: Mode| mode == Mode::Exclusive || other == Mode::Exclusive;
        // Any conflicting holder will do: when it goes, the remaining holders are checked.
        if let Some(holder) = largest(&self.holders, &minds) {
            return Move::WaitFor(holder);
        }
        let overtakes = match (mode, preference) {
            (Mode::Shared, Preference::Writers) => largest(&self.waiting, &|other| other == Mode::Exclusive),
            (Mode::Exclusive, Preference::Readers) => largest(&self.waiting, &|other| other == Mode::Shared),
            (Mode::Shared, Preference::Readers | Preference::Fair) | (Mode::Exclusive, _) => None,
        };
        // Writers keep their order among themselves.
        let before = || {
            let same = self.waiting.iter().filter(|(number, kind)| *number < own && *kind == Mode::Exclusive);
            same.map(|(number, _)| *number).max().filter(|_| mode == Mode::Exclusive)
        };
        overtakes.or_else(before).map_or(Move::Take, Move::WaitFor)
    }
}

/// Waits for its turn, and takes the lock.
///
/// The token becomes the zxid of that write: znode numbers do not tell the order of the grants.
pub(crate) async fn take<C: Coordinator>(
    place: &mut Place<C>,
    mode: Mode,
    preference: Preference,
) -> Result<(), Error> {
    while let Some(awaited) = attempt(place, mode, preference).await? {
        wait_changed(&place.line().coordinator().clone(), awaited).await?;
    }
    Ok(())
}

/// Takes the lock if nothing blocks it; returns whether it did.
pub(crate) async fn try_take<C: Coordinator>(
    place: &mut Place<C>,
    mode: Mode,
    preference: Preference,
) -> Result<bool, Error> {
    Ok(attempt(place, mode, preference).await?.is_none())
}

/// Takes the lock, or returns the path of the znode to wait for.
async fn attempt<C: Coordinator>(
    place: &mut Place<C>,
    mode: Mode,
    preference: Preference,
) -> Result<Option<Text>, Error> {
    let (c, lock) = (place.line().coordinator().clone(), place.line().parent().text().clone());
    loop {
        let Some((written, stat)) = data(&c, &lock).await? else { return Err(ErrorKind::Broken.into()) };
        let board = Board::of(written.as_deref().unwrap_or_default());
        let names = children(&c, &lock).await?;
        if !place.is_among(&names) {
            return Err(ErrorKind::Broken.into());
        }
        place.line().refuse_another_preference(&names, place.number())?;
        let census = Census::of(&board, &names);
        if let Move::WaitFor(number) = census.next_move(place.number(), mode, preference) {
            let name = names.iter().find(|name| naming::number(name) == Some(number)).unwrap_or_default();
            return Ok(Some(zoolet_model::path::child(&lock, name)));
        }
        let board = census.with_holder(board, place.number(), mode);
        let own = WriteOp::Check { path: place.path().clone(), version: -1 };
        if let Some(zxid) = write(&c, own, &lock, &board, stat.version).await? {
            place.set_token(zxid);
            return Ok(None);
        }
    }
}

/// Turns a writer that holds the lock into a reader that holds it.
pub(crate) async fn downgrade<C: Coordinator>(place: &mut Place<C>) -> Result<(), Error> {
    let (c, lock) = (place.line().coordinator().clone(), place.line().parent().text().clone());
    loop {
        let lost = || Error::at(BROKEN, "hold", place.path());
        let (written, stat) = data(&c, &lock).await?.ok_or_else(lost)?;
        let (content, own) = data(&c, place.path()).await?.ok_or_else(lost)?;
        let board = Board::of(written.as_deref().unwrap_or_default());
        let board = Census::of(&board, &children(&c, &lock).await?).with_holder(board, place.number(), Mode::Shared);
        // This write wakes participants that wait for the writer to go, and shows that it now
        // reads.
        let content = Bytes::from_static(downgraded(content.as_ref(), &own));
        let change = WriteOp::SetData { path: place.path().clone(), data: Some(content), version: own.version };
        match write(&c, change, &lock, &board, stat.version).await {
            Ok(Some(zxid)) => {
                place.set_token(zxid);
                return Ok(());
            }
            Ok(None) => {}
            Err(error) if error.kind() == ErrorKind::Broken => return Err(lost()),
            Err(error) => return Err(error),
        }
    }
}

/// Writes the list of holders in one transaction with `own`; returns the zxid.
///
/// `own` must fail if the participant's znode is gone: then the result is [`ErrorKind::Broken`]. `None`
/// if another participant has changed the list since `version`.
async fn write<C: Coordinator>(
    coordinator: &C,
    own: WriteOp,
    lock: &Text,
    board: &Board,
    version: i32,
) -> Result<Option<i64>, Error> {
    let version = if is_on(Mutation::PreferenceListUnversioned) { -1 } else { version };
    let list = WriteOp::SetData { path: lock.clone(), data: Some(board.data()), version };
    // After a lost reply the retry meets a new version, if the write was carried out. The caller
    // then writes the list once more, with a newer token.
    let Reply::Multi(results) = ask(coordinator, &Request::Multi(vec![own, list])).await? else {
        return Err(Error::unexpected());
    };
    match first_failure(&results) {
        None => match results.last() {
            Some(OpResult::SetData(stat)) => Ok(Some(stat.mzxid)),
            _ => Err(Error::unexpected()),
        },
        Some((0, ErrorCode::NoNode)) => Err(ErrorKind::Broken.into()),
        Some((_, ErrorCode::BadVersion)) => Ok(None),
        Some((_, code)) => Err(Error::at(code, "acquire", lock)),
    }
}

/// Waits until the znode is deleted or its data changes.
async fn wait_changed<C: Coordinator>(coordinator: &C, path: Text) -> Result<(), Error> {
    let request = Request::GetData { path, watch: true };
    let (there, watch) = ask_watching(coordinator, &request).await?;
    if there.is_some() {
        fired(coordinator, watch).await?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    const READER: Mode = Mode::Shared;
    const WRITER: Mode = Mode::Exclusive;

    fn census(holders: &[(u32, Mode)], waiting: &[(u32, Mode)]) -> Census {
        Census { holders: holders.to_vec(), waiting: waiting.to_vec() }
    }

    #[test]
    fn preferred_readers_overtake_waiting_but_not_holding_writers() {
        let waits = census(&[(1, READER)], &[(2, WRITER), (3, READER)]);
        assert_eq!(waits.next_move(3, READER, Preference::Readers), Move::Take);
        assert_eq!(waits.next_move(2, WRITER, Preference::Readers), Move::WaitFor(1));
        let holds = census(&[(2, WRITER)], &[(3, READER)]);
        assert_eq!(holds.next_move(3, READER, Preference::Readers), Move::WaitFor(2));
        let free = census(&[], &[(2, WRITER), (3, READER)]);
        assert_eq!(free.next_move(2, WRITER, Preference::Readers), Move::WaitFor(3));
    }

    #[test]
    fn preferred_writers_overtake_waiting_readers_in_order() {
        let waits = census(&[(1, READER)], &[(2, READER), (3, WRITER), (4, WRITER)]);
        assert_eq!(waits.next_move(2, READER, Preference::Writers), Move::WaitFor(4));
        assert_eq!(waits.next_move(3, WRITER, Preference::Writers), Move::WaitFor(1));
        let free = census(&[], &[(2, READER), (3, WRITER), (4, WRITER)]);
        assert_eq!(free.next_move(3, WRITER, Preference::Writers), Move::Take);
        assert_eq!(free.next_move(4, WRITER, Preference::Writers), Move::WaitFor(3));
    }

    /// The reader and the writer waited for each other (seed 39 of the dropped calls).
    #[test]
    fn listed_reader_and_a_waiting_writer_do_not_deadlock() {
        let lost = census(&[(1, READER)], &[(2, WRITER)]);
        assert_eq!(lost.next_move(1, READER, Preference::Writers), Move::Take);
        assert_eq!(lost.next_move(2, WRITER, Preference::Writers), Move::WaitFor(1));
    }

    #[test]
    fn holder_with_a_deleted_znode_leaves_the_holders_list() {
        let board = Board::of(b"session 0x1 of a: stuck\nheld w 1\nheld r 2\n");
        let names: Names = ["a-read-0000000002", "b-write-0000000003"].iter().collect();
        let census = Census::of(&board, &names);
        assert_eq!(census, self::census(&[(2, READER)], &[(3, WRITER)]));
        let written = census.with_holder(board, 3, WRITER);
        assert_eq!(written.data(), "session 0x1 of a: stuck\nheld r 2\nheld w 3\n");
    }
}
