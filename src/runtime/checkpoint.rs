//! The checkpoint thread: makes frozen memtables durable in the base, and merges its files between them, while everything else goes on.

use super::base::BaseWork;
use super::log::LogWork;
use super::{Inbox, Input, Mailbox};
use std::time::Duration;
use tracing::{debug, info, warn};
use zoolet_engine::Event;
use zoolet_engine::action::{Checkpoint, Generation};
use zoolet_engine::store::Reserve;
use zoolet_engine::store::base::Base;

/// How often a disk that is short of space is looked at.
const SPACE_PAUSE: Duration = Duration::from_secs(1);

/// What the thread works with.
pub(super) struct CheckpointThread<'a> {
    pub(super) base: &'a Base,
    pub(super) reserve: &'a Reserve,
    pub(super) readers: [&'a Mailbox<BaseWork>; 2],
    pub(super) log: &'a Mailbox<LogWork>,
    pub(super) core: &'a Inbox,
}

impl CheckpointThread<'_> {
    /// Runs until the mailbox is closed.
    ///
    /// # Errors
    /// After a failed sync nobody knows what the device holds: the node must stop.
    pub(super) fn run(&self, mailbox: &Mailbox<Checkpoint>) -> Result<(), String> {
        let (mut batch, mut merging) = (Vec::new(), true);
        while mailbox.take(&mut batch, self.patience(merging)) {
            if batch.is_empty() {
                merging = self.merge()?;
            }
            for checkpoint in batch.drain(..) {
                self.write(checkpoint)?;
                merging = true;
            }
            if self.reserve.settle(self.base) {
                self.tell_space();
            }
        }
        Ok(())
    }

    fn patience(&self, merging: bool) -> Option<Duration> {
        if merging { Some(Duration::ZERO) } else { self.reserve.is_short().then_some(SPACE_PAUSE) }
    }

    fn write(&self, checkpoint: Checkpoint) -> Result<(), String> {
        let (zxid, changes) = (checkpoint.meta.zxid, checkpoint.changes.len());
        match self.reserve.checkpoint(self.base, &checkpoint) {
            Ok(()) => {
                debug!(%zxid, changes, "checkpoint");
                let generation = self.serve();
                self.log.push(LogWork::Recycle { checkpoint: zxid });
                self.core.push(Input::Event(Event::Checkpointed { generation }));
            }
            Err(error) if self.base.sync_failed() => return Err(error.to_string()),
            Err(error) => {
                // The core takes the changes back, and need not copy them if it is the only one that has them.
                drop(checkpoint);
                warn!(%zxid, changes, %error, "a checkpoint failed and will be tried again");
                self.core.push(Input::Event(Event::CheckpointFailed { reason: error.to_string() }));
            }
        }
        Ok(())
    }

    /// One step of what there is to merge, between two checkpoints; whether there may be more.
    fn merge(&self) -> Result<bool, String> {
        match self.reserve.merge(self.base) {
            Ok(true) => {
                // The same generation from other files: those that were merged go when nobody reads them.
                self.serve();
                Ok(true)
            }
            Ok(false) => Ok(false),
            Err(error) if self.base.sync_failed() => Err(error.to_string()),
            Err(error) => {
                warn!(%error, "a merge failed and will be tried again");
                Ok(false)
            }
        }
    }

    fn serve(&self) -> Generation {
        let reader = self.base.reader();
        let generation = reader.generation();
        for mailbox in self.readers {
            mailbox.push(BaseWork::Serve(reader.clone()));
        }
        generation
    }

    fn tell_space(&self) {
        let is_short = self.reserve.is_short();
        if is_short {
            warn!("the disk is full: writes are refused, deletes go on");
        } else {
            info!("the disk has room again");
        }
        self.core.push(Input::Event(Event::Space { is_short }));
    }
}
