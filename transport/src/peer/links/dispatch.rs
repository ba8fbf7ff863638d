//! Routes instructions to their links.

use super::Links;
use super::closing::Closing;
use super::link::Link;
use super::{receiving, sending};
use crate::peer::instruction_queue::{Instruction, InstructionQueue};
use std::sync::Arc;
use std::time::Instant;
use tokio::task::yield_now;
use zoolet_machine::seam::peer::LinkId;
use zoolet_model::ServerId;

/// Carries out pushed instructions, for ever.
pub(super) async fn run(links: Arc<Links>, outbox: Arc<InstructionQueue>) {
    let mut batch = Vec::new();
    let mut touched = Vec::new();
    loop {
        outbox.take(&mut batch).await;
        links.carry_out(&mut batch, &mut touched);
        // An engine that pushes without a break would otherwise starve the tasks that write.
        yield_now().await;
    }
}

/// Carries out the instructions that were pushed before the stop.
pub(super) async fn take_rest(links: &Arc<Links>, outbox: &InstructionQueue) {
    let mut batch = Vec::new();
    if super::ready(outbox.take(&mut batch)).await.is_some() {
        links.carry_out(&mut batch, &mut Vec::new());
    }
}

impl Links {
    /// Queues all messages of a batch first, then wakes each link once.
    ///
    /// One peer's messages then share as few packets as possible.
    fn carry_out(self: &Arc<Self>, batch: &mut Vec<Instruction>, touched: &mut Vec<Arc<Link>>) {
        for instruction in batch.drain(..) {
            match instruction {
                Instruction::Send { peer, link, message } => {
                    let Some(link) = self.find(peer, link) else { continue };
                    link.say(&message, &self.warnings);
                    if touched.iter().all(|other| other.id != link.id) {
                        touched.push(link);
                    }
                }
                Instruction::Close { peer, link, reason } => self.close(peer, link, reason),
                Instruction::SendSnapshot { peer, link, transfer, source, too_late } => {
                    sending::offer(self, self.find(peer, link), transfer, source, too_late);
                }
                Instruction::ReceiveSnapshot { peer, link, transfer, taker } => {
                    receiving::begin(self, peer, self.find(peer, link), transfer, taker);
                }
                Instruction::DropSnapshot { peer, transfer } => self.incoming.drop_one(peer, transfer),
            }
        }
        let now = Instant::now();
        for link in touched.drain(..) {
            if !link.flush(now) {
                self.warn_of_link(&link, "it does not read", "the peer stopped reading");
                Closing::DoesNotRead.close(&link.connection, "");
            }
        }
    }

    /// Returns the link if it still exists. The engine may not know yet that it has ended.
    fn find(&self, peer: ServerId, link: LinkId) -> Option<Arc<Link>> {
        self.member(peer)?.link_with(link)
    }

    fn close(&self, peer: ServerId, link: LinkId, reason: &'static str) {
        let Some(link) = self.find(peer, link) else { return };
        self.warn_of_link(&link, reason, reason);
        Closing::Dropped.close(&link.connection, reason);
    }

    /// Warns that this server closes a link.
    ///
    /// The warning is rate-limited per peer and cause, because the peer's next link may fail the
    /// same way.
    pub(super) fn warn_of_link(&self, link: &Link, cause: &'static str, what: &str) {
        let line = format!("the link to server {} at {} is closed: {what}", link.peer.as_u8(), link.remote);
        self.warnings.warn((link.peer, cause), &line);
        self.table.closed(link.peer, line);
    }
}
