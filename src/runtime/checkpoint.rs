//! The checkpoint thread: makes frozen memtables durable in the base while everything else goes on.

use super::base::BaseWork;
use super::log::LogWork;
use super::{Inbox, Input, Mailbox};
use tracing::{debug, warn};
use zoolet_engine::Event;
use zoolet_engine::action::Checkpoint;
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
    let mut batch = Vec::new();
    while mailbox.take(&mut batch, None) {
        for checkpoint in batch.drain(..) {
            let (zxid, changes) = (checkpoint.meta.zxid, checkpoint.changes.len());
            match store.checkpoint(&checkpoint) {
                Ok(()) => {
                    debug!(%zxid, changes, "checkpoint");
                    let reader = store.reader();
                    let generation = reader.generation();
                    for mailbox in readers {
                        mailbox.push(BaseWork::Serve(reader.clone()));
                    }
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
