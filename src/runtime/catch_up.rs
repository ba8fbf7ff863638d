//! Reads log entries back for peers that lack them, while the log thread goes on appending.

use super::{Inbox, Input, Mailbox};
use zoolet_machine::Event;
use zoolet_machine::seam::action::ReadLog;
use zoolet_machine::seam::peer::{LogRange, LogReadFailure};
use zoolet_store::log::{LogReader, ReadError};

/// A request to read the log, and the log as it was when the request arrived.
pub(super) struct CatchUp {
    pub(super) reader: LogReader,
    pub(super) read: ReadLog,
}

/// Runs until its mailbox is closed.
pub(super) fn run(mailbox: &Mailbox<CatchUp>, core: &Inbox) {
    let mut batch = Vec::new();
    while mailbox.take(&mut batch, None) {
        for CatchUp { reader, read } in batch.drain(..) {
            let result = entries(&reader, &read);
            core.push(Input::Event(Event::LogRead { id: read.id, result }));
        }
    }
}

fn entries(reader: &LogReader, read: &ReadLog) -> Result<LogRange, LogReadFailure> {
    match reader.read_entries(read.after, read.to, read.bytes_max) {
        Ok(found) => Ok(LogRange { chain_before: found.chain, entries: found.entries }),
        Err(ReadError::Gone) => Err(LogReadFailure::Gone),
        Err(ReadError::Log(error)) => Err(LogReadFailure::Unreadable(error.to_string())),
    }
}
