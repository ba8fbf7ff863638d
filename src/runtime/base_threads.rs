//! Reads the base, on two threads: one for the core's fetches, one for answers to assemble.

use super::figures::AtDisk;
#[cfg(feature = "port")]
use super::io_thread::Sockets;
#[cfg(feature = "ensemble")]
use super::links::LentReader;
use super::{Inbox, Input, Mailbox, clock};
use std::collections::BTreeMap;
use std::sync::Arc;
use tracing::error;
use zoolet_machine::Event;
use zoolet_machine::seam::action::{Completion, Fetch, Generation};
use zoolet_machine::seam::event::BaseFailure;
use zoolet_machine::seam::log_rate_limit::LogRateLimit;
use zoolet_model::{ErrorCode, Reply};
use zoolet_session::Link;
use zoolet_store::base::BaseReader;

/// Work of such a thread, in order. A generation is served before the first read from it.
pub(super) enum BaseWork {
    Fetch(Fetch),
    Complete(Box<Completion>, Destination),
    /// A state of the base, with the core's number for it.
    Serve(Generation, BaseReader),
    /// Lend a reader of this generation to another thread.
    #[cfg(feature = "ensemble")]
    Lend(Generation, Arc<LentReader>),
    /// Drop the readers of earlier generations.
    Release {
        below: Generation,
    },
}

/// Where an assembled answer goes.
pub(super) enum Destination {
    Link(Arc<Link>),
    #[cfg(feature = "port")]
    Socket {
        sockets: Arc<Sockets>,
        ticket: u64,
    },
}

/// Maximum number of answers per hand-over. Each hand-over may wake the core.
///
/// An answer waits for at most a millisecond and one fetch.
const ANSWERS: usize = 256;

/// Runs until its mailbox is closed.
///
/// `at_disk` times the core's fetches only: an answer to a client may take seconds because it is
/// long.
pub(super) fn run(mailbox: &Mailbox<BaseWork>, core: &Inbox, at_disk: &AtDisk) {
    let mut readers = BTreeMap::new();
    let (mut batch, mut answers) = (Vec::new(), Vec::new());
    let mut log_limit = LogRateLimit::default();
    let mut handed_over_ms = 0;
    while mailbox.take(&mut batch, None) {
        for work in batch.drain(..) {
            match work {
                BaseWork::Fetch(fetch) => {
                    let now_ms = at_disk.begin();
                    if now_ms != handed_over_ms {
                        // This fetch may take long, so the earlier answers go out first.
                        handed_over_ms = now_ms;
                        core.push_all(answers.drain(..));
                    }
                    let result = reader(&readers, fetch.generation).and_then(|reader| reader.fetch(&fetch.what));
                    at_disk.end();
                    answers.push(Input::Event(Event::Fetched { id: fetch.id, result }));
                    if answers.len() >= ANSWERS {
                        core.push_all(answers.drain(..));
                    }
                }
                BaseWork::Complete(completion, destination) => {
                    let failure = complete(&readers, &completion, destination);
                    if let Some(failure) = &failure
                        && let Some(left_out) = log_limit.admit("completion", clock::mono_ms())
                    {
                        error!(?failure, left_out, "cannot read the base: the client gets SYSTEMERROR");
                    }
                    // At once: the next completion of this batch may take a second, and other
                    // requests wait for this one's room.
                    core.push(Input::Event(Event::Completed { bytes: completion.bytes }));
                    if let Some(BaseFailure::Damaged(what)) = failure {
                        core.push(Input::Event(Event::BaseDamaged { what }));
                    }
                }
                BaseWork::Serve(generation, reader) => {
                    readers.insert(generation, reader);
                }
                #[cfg(feature = "ensemble")]
                BaseWork::Lend(generation, lent) => lent.set(reader(&readers, generation).cloned()),
                BaseWork::Release { below } => readers = readers.split_off(&below),
            }
        }
        core.push_all(answers.drain(..));
    }
}

type Readers = BTreeMap<Generation, BaseReader>;

fn reader(readers: &Readers, generation: Generation) -> Result<&BaseReader, BaseFailure> {
    readers.get(&generation).ok_or_else(|| BaseFailure::Io(format!("{generation:?} was released")))
}

/// Answers a completion. Returns the failure of the base, if that is the reason for an error.
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

#[cfg(test)]
mod tests {
    use super::*;
    use bytes::Bytes;
    use std::sync::Mutex;
    use std::sync::atomic::{AtomicU32, Ordering::Relaxed};
    use std::sync::mpsc::{Receiver, channel};
    use std::time::Duration;
    use zoolet_machine::record::key;
    use zoolet_machine::seam::action::{Checkpoint, CheckpointMeta, FetchId, FetchWhat};
    use zoolet_machine::state::Changes;
    use zoolet_model::Zxid;
    use zoolet_sim::disk::{OperationKind, SimDisk};
    use zoolet_store::base::{Base, Options};

    const PATIENCE: Duration = Duration::from_secs(20);

    fn question(id: u64, path: &str) -> BaseWork {
        let what = FetchWhat::Record(key::data(path).unwrap());
        BaseWork::Fetch(Fetch { id: FetchId(id), what, generation: Generation(0) })
    }

    /// The second fetch of a batch hangs until the answer to the first has been handed over.
    #[test]
    fn fetched_answer_is_handed_over_before_a_later_slow_fetch() {
        let disk = SimDisk::new(1);
        let base = Base::create(Arc::new(disk.clone()), 1, Options::default()).unwrap();
        // Values of several blocks, which no cache keeps.
        let record = |path: &str| (key::data(path).unwrap(), Some(Bytes::from(vec![1; 50_000])));
        let changes = Arc::new(Changes::from_iter([record("/a"), record("/b")]));
        let meta = CheckpointMeta { zxid: Zxid::from_bits(1).unwrap(), digest: 0, totals: Bytes::new() };
        base.checkpoint(&Checkpoint { changes, meta }).unwrap();
        let (mailbox, core, at_disk) = (Mailbox::new(), Inbox::new(), AtDisk::default());
        mailbox.push(BaseWork::Serve(Generation(0), base.reader()));
        mailbox.push(question(1, "/a"));
        mailbox.push(question(2, "/b"));
        mailbox.close();
        let (release, hangs) = channel::<()>();
        let (hangs, reads): (Mutex<Receiver<()>>, _) = (Mutex::new(hangs), AtomicU32::new(0));
        disk.fail_with(move |operation| {
            if operation.kind == OperationKind::Read && operation.name.starts_with("base-") {
                match reads.fetch_add(1, Relaxed) {
                    // The disk is slow once.
                    0 => std::thread::sleep(Duration::from_millis(5)),
                    // Until the other end is dropped.
                    _ => drop(hangs.lock().unwrap().recv()),
                }
            }
            None
        });
        std::thread::scope(|threads| {
            threads.spawn(|| run(&mailbox, &core, &at_disk));
            let mut answered = Vec::new();
            core.take(&mut answered, Some(PATIENCE));
            drop(release);
            assert!(
                matches!(&answered[..], [Input::Event(Event::Fetched { id: FetchId(1), result: Ok(_) })]),
                "{} answers before the second question is over",
                answered.len()
            );
        });
        let mut answered = Vec::new();
        core.take(&mut answered, Some(PATIENCE));
        assert!(matches!(&answered[..], [Input::Event(Event::Fetched { id: FetchId(2), result: Ok(_) })]));
    }
}
