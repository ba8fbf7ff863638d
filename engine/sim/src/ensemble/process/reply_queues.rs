//! Messages to clients, in order: a completion keeps its place until it is ready.

use crate::ensemble::Sent;
use std::collections::{BTreeMap, VecDeque};
use zoolet_machine::ConnId;

/// A reserved place in a connection's queue.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(in crate::ensemble) struct Place {
    pub(super) conn: ConnId,
    number: u64,
}

#[derive(Debug)]
enum Slot {
    Ready(Box<Sent>),
    Kept(u64),
}

/// The queues of all open connections.
#[derive(Debug, Default)]
pub(super) struct ReplyQueues {
    queues: BTreeMap<ConnId, VecDeque<Slot>>,
    kept: u64,
}

impl ReplyQueues {
    pub(super) fn has(&self, conn: ConnId) -> bool {
        self.queues.contains_key(&conn)
    }

    pub(super) fn open(&mut self, conn: ConnId) {
        self.queues.insert(conn, VecDeque::new());
    }

    /// Closes a connection; returns whether it was open.
    pub(super) fn close(&mut self, conn: ConnId) -> bool {
        self.queues.remove(&conn).is_some()
    }

    pub(super) fn push(&mut self, conn: ConnId, sent: Sent) {
        if let Some(queue) = self.queues.get_mut(&conn) {
            queue.push_back(Slot::Ready(Box::new(sent)));
        }
    }

    pub(super) fn reserve(&mut self, conn: ConnId) -> Place {
        self.kept += 1;
        if let Some(queue) = self.queues.get_mut(&conn) {
            queue.push_back(Slot::Kept(self.kept));
        }
        Place { conn, number: self.kept }
    }

    pub(super) fn fill(&mut self, place: Place, sent: Sent) {
        let queue = self.queues.get_mut(&place.conn).into_iter().flatten();
        let kept = queue.into_iter().find(|slot| matches!(slot, Slot::Kept(number) if *number == place.number));
        if let Some(slot) = kept {
            *slot = Slot::Ready(Box::new(sent));
        }
    }

    /// Returns the messages that can be sent now.
    pub(super) fn take_ready(&mut self, conn: ConnId) -> Vec<Sent> {
        let mut taken = Vec::new();
        let Some(queue) = self.queues.get_mut(&conn) else { return taken };
        while matches!(queue.front(), Some(Slot::Ready(_))) {
            if let Some(Slot::Ready(sent)) = queue.pop_front() {
                taken.push(*sent);
            }
        }
        taken
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use zoolet_model::Reply;

    #[test]
    fn reserved_reply_slot_holds_back_later_replies() {
        let conn = ConnId(1);
        let reply = |xid| Sent::Reply { xid, zxid: 0, result: Ok(Reply::Empty) };
        let mut replies = ReplyQueues::default();
        replies.open(conn);
        replies.push(conn, reply(1));
        let place = replies.reserve(conn);
        replies.push(conn, reply(3));
        assert_eq!(replies.take_ready(conn), [reply(1)]);
        replies.fill(place, reply(2));
        assert_eq!(replies.take_ready(conn), [reply(2), reply(3)]);
        assert!(replies.close(conn) && !replies.has(conn));
        replies.fill(place, reply(2));
        assert!(replies.take_ready(conn).is_empty());
    }
}
