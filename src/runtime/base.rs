//! What reads the base, on two threads: questions of the core, and answers to clients that are still to be put together.

use super::figures::AtDisk;
#[cfg(feature = "port")]
use super::port::Sockets;
use super::snapshots::LentReader;
use super::{Inbox, Input, Mailbox, clock};
use std::collections::BTreeMap;
use std::sync::Arc;
use tracing::error;
use zoolet_engine::Event;
use zoolet_engine::action::{BaseRead, Changes, Completion, Fetch, FetchWhat, Generation};
use zoolet_engine::event::{BaseFailure, Fetched};
use zoolet_engine::notices::Notices;
use zoolet_engine::store::base::BaseReader;
use zoolet_engine::store::key::end_of_prefix;
use zoolet_model::{ErrorCode, Reply};
use zoolet_session::Link;

/// What such a thread is told, in order: a generation is served before anybody can ask for it.
pub(super) enum BaseWork {
    Fetch(Fetch),
    Complete(Box<Completion>, Destination),
    /// A state of the base, under the number that the core knows it by.
    Serve(Generation, BaseReader),
    /// Somebody reads a generation on a thread of its own.
    Lend(Generation, Arc<LentReader>),
    /// Dropping what a checkpoint made superfluous takes milliseconds, which the core does not have.
    Release {
        below: Generation,
        garbage: Option<Arc<Changes>>,
    },
}

/// Where a completed answer goes.
pub(super) enum Destination {
    Link(Arc<Link>),
    #[cfg(feature = "port")]
    Socket {
        sockets: Arc<Sockets>,
        ticket: u64,
    },
}

/// Answers that are handed over together.
const ANSWERS: usize = 256;

/// Runs until its mailbox is closed. `at_disk` tells of the core's questions alone: an answer to a client may take seconds because it is long.
pub(super) fn run(mailbox: &Mailbox<BaseWork>, core: &Inbox, at_disk: &AtDisk) {
    let mut readers = BTreeMap::new();
    let (mut batch, mut answers) = (Vec::new(), Vec::new());
    let mut notices = Notices::default();
    while mailbox.take(&mut batch, None) {
        for work in batch.drain(..) {
            match work {
                BaseWork::Fetch(fetch) => {
                    at_disk.begin();
                    let result = reader(&readers, fetch.generation).and_then(|reader| read(reader, &fetch.what));
                    at_disk.end();
                    answers.push(Input::Event(Event::Fetched { id: fetch.id, result }));
                    if answers.len() >= ANSWERS {
                        core.push_all(answers.drain(..));
                    }
                }
                BaseWork::Complete(completion, destination) => {
                    let failure = complete(&readers, &completion, destination);
                    if let Some(failure) = &failure
                        && let Some(left_out) = notices.admit("completion", clock::mono_ms())
                    {
                        error!(?failure, left_out, "a read was answered with SYSTEMERROR");
                    }
                    // At once: the next in this batch may take a second, and others wait for the room that this one had.
                    core.push(Input::Event(Event::Completed { bytes: completion.bytes }));
                    if let Some(BaseFailure::Damaged(what)) = failure {
                        core.push(Input::Event(Event::BaseDamaged { what }));
                    }
                }
                BaseWork::Serve(generation, reader) => {
                    readers.insert(generation, reader);
                }
                BaseWork::Lend(generation, lent) => lent.set(reader(&readers, generation).cloned()),
                BaseWork::Release { below, garbage } => {
                    readers = readers.split_off(&below);
                    drop(garbage);
                }
            }
        }
        core.push_all(answers.drain(..));
    }
}

type Readers = BTreeMap<Generation, BaseReader>;

fn reader(readers: &Readers, generation: Generation) -> Result<&BaseReader, BaseFailure> {
    readers.get(&generation).ok_or_else(|| BaseFailure::Io(format!("{generation:?} is not held any more")))
}

fn read(reader: &BaseReader, what: &FetchWhat) -> Result<Fetched, BaseFailure> {
    match what {
        FetchWhat::Record(key) => Ok(Fetched::Record(reader.record(key)?)),
        FetchWhat::KeysUnder(prefix) => {
            let mut keys = Vec::new();
            reader.keys(prefix, end_of_prefix(prefix).as_deref(), &mut |key| {
                keys.push(key.into());
                true
            })?;
            Ok(Fetched::Keys(keys))
        }
    }
}

/// Says why the answer is an error, if the base is at fault.
fn complete(readers: &Readers, completion: &Completion, destination: Destination) -> Option<BaseFailure> {
    let (result, failure) = match reader(readers, completion.generation) {
        Ok(reader) => completion.run(reader),
        Err(failure) => (Err(ErrorCode::SystemError), Some(failure)),
    };
    deliver(completion, destination, result);
    failure
}

fn deliver(completion: &Completion, destination: Destination, result: Result<Reply, ErrorCode>) {
    let Completion { xid, zxid, .. } = *completion;
    match destination {
        Destination::Link(link) => link.filled(completion.conn, xid, zxid, result),
        #[cfg(feature = "port")]
        Destination::Socket { sockets, ticket } => sockets.fill(completion.conn, ticket, xid, zxid, result),
    }
}
