//! The checkpoint thread: makes frozen memtables durable in the base while everything else goes on.

use super::base::BaseWork;
use super::log::LogWork;
use super::{Inbox, Input, Mailbox};
use std::time::Duration;
use tracing::{debug, warn};
use zoolet_engine::Event;
use zoolet_engine::action::{Checkpoint, Generation};
use zoolet_engine::store::base::Base;

/// Runs until its mailbox is closed.
///
/// # Errors
/// After a failed sync nobody knows what the device holds: the node must stop.
pub(super) fn run(
    mailbox: &Mailbox<Checkpoint>,
    store: &Base,
    readers: [&Mailbox<BaseWork>; 2],
    log: &Mailbox<LogWork>,
    core: &Inbox,
) -> Result<(), String> {
    let (mut batch, mut merging) = (Vec::new(), true);
    while mailbox.take(&mut batch, merging.then_some(Duration::ZERO)) {
        if batch.is_empty() {
            merging = merge(store)?;
            if merging {
                // The same generation from other files: those that were merged go when nobody reads them.
                serve(store, readers);
            }
        }
        for checkpoint in batch.drain(..) {
            let (zxid, changes) = (checkpoint.meta.zxid, checkpoint.changes.len());
            match store.checkpoint(&checkpoint) {
                Ok(()) => {
                    merging = true;
                    debug!(%zxid, changes, "checkpoint");
                    let generation = serve(store, readers);
                    log.push(LogWork::Recycle { checkpoint: zxid });
                    core.push(Input::Event(Event::Checkpointed { generation }));
                }
                Err(error) if store.sync_failed() => return Err(error.to_string()),
                Err(error) => {
                    // The core takes the changes back, and need not copy them if it is the only one that has them.
                    drop(checkpoint);
                    warn!(%zxid, changes, %error, "a checkpoint failed and will be tried again");
                    core.push(Input::Event(Event::CheckpointFailed { reason: error.to_string() }));
                }
            }
        }
    }
    Ok(())
}

fn serve(store: &Base, readers: [&Mailbox<BaseWork>; 2]) -> Generation {
    let reader = store.reader();
    let generation = reader.generation();
    for mailbox in readers {
        mailbox.push(BaseWork::Serve(reader.clone()));
    }
    generation
}

/// One step of what there is to merge, between two checkpoints; whether there may be more.
fn merge(store: &Base) -> Result<bool, String> {
    match store.merge(false) {
        Ok(more) => Ok(more),
        Err(error) if store.sync_failed() => Err(error.to_string()),
        Err(error) => {
            warn!(%error, "a merge failed and will be tried again after the next checkpoint");
            Ok(false)
        }
    }
}
