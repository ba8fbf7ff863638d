//! A link between two servers: a stream in each direction that keeps its order until it breaks.

use super::log::Entry;
use std::collections::VecDeque;
use std::rc::Rc;
use zoolet_zab::{Attempt, Incarnation, LinkId, Message};

/// What travels on a stream: a message, and of a Proposal its entries.
#[derive(Clone, Debug)]
pub(crate) struct Letter {
    pub(crate) message: Message,
    /// Of a Proposal.
    pub(crate) entries: Vec<Entry>,
}

/// What the end of a stream gives, in order.
#[allow(clippy::large_enum_variant, reason = "there are few of them")]
#[derive(Clone, Debug)]
pub(crate) enum Item {
    Up,
    Letter(Letter),
    Down,
}

/// A snapshot under way, on a stream of its own.
#[derive(Clone, Debug)]
pub(crate) struct Parcel {
    pub(crate) attempt: Attempt,
    pub(crate) entries: Rc<Vec<Entry>>,
}

/// What one end knows.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum End {
    /// It was not told yet.
    Coming,
    Up,
    /// It closed it, was told that it broke, has a newer one, or is another process by now.
    Gone,
}

/// A link, with an index of 0 or 1 for each of its two ends.
#[derive(Clone, Debug)]
pub(crate) struct Link {
    pub(crate) id: LinkId,
    pub(crate) ids: [u8; 2],
    /// The disks they had when it came up.
    pub(crate) disks: [Incarnation; 2],
    pub(crate) ends: [End; 2],
    /// What is on its way to each end.
    pub(crate) streams: [VecDeque<Item>; 2],
    pub(crate) parcels: [VecDeque<Parcel>; 2],
    /// Nothing arrives at this end.
    pub(crate) cut: [bool; 2],
    /// It ends, or one of the two processes has: nothing new gets through.
    pub(crate) broken: bool,
}

impl Link {
    pub(crate) fn new(id: LinkId, ids: [u8; 2], disks: [Incarnation; 2]) -> Self {
        let stream = || VecDeque::from([Item::Up]);
        Self {
            id,
            ids,
            disks,
            ends: [End::Coming; 2],
            streams: [stream(), stream()],
            parcels: [VecDeque::new(), VecDeque::new()],
            cut: [false; 2],
            broken: false,
        }
    }

    /// Which end `id` is.
    pub(crate) fn end_of(&self, id: u8) -> Option<usize> {
        self.ids.iter().position(|end| *end == id)
    }

    /// Whether it still carries something both ways.
    pub(crate) fn is_whole(&self) -> bool {
        !self.broken && self.ends.iter().all(|end| *end != End::Gone)
    }
}
