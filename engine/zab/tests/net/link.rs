//! A link between two servers, with an ordered stream in each direction until it breaks.

use super::log::Entry;
use std::collections::VecDeque;
use std::rc::Rc;
use zoolet_zab::{Attempt, Incarnation, LinkId, Message};

/// A message on a stream, with the entries of a Proposal.
#[derive(Clone, Debug)]
pub(crate) struct Letter {
    pub(crate) message: Message,
    /// Empty unless the message is a Proposal.
    pub(crate) entries: Vec<Entry>,
}

/// Item that an end of a stream receives.
#[allow(clippy::large_enum_variant, reason = "there are few of them")]
#[derive(Clone, Debug)]
pub(crate) enum Item {
    Up,
    Letter(Letter),
    Down,
}

/// A snapshot in flight, on a separate stream.
#[derive(Clone, Debug)]
pub(crate) struct Parcel {
    pub(crate) attempt: Attempt,
    pub(crate) entries: Rc<Vec<Entry>>,
}

/// One end's knowledge of the link.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum End {
    /// The end was not told of the link yet.
    Coming,
    Up,
    /// The end closed the link, learned that it broke, has a newer one, or was another process.
    Gone,
}

/// A link; its two ends have the indices 0 and 1.
#[derive(Clone, Debug)]
pub(crate) struct Link {
    pub(crate) id: LinkId,
    pub(crate) ids: [u8; 2],
    /// Disks of both servers when the link came up.
    pub(crate) disks: [Incarnation; 2],
    pub(crate) ends: [End; 2],
    /// Items in flight to each end.
    pub(crate) streams: [VecDeque<Item>; 2],
    pub(crate) parcels: [VecDeque<Parcel>; 2],
    /// Whether this end receives nothing.
    pub(crate) cut: [bool; 2],
    /// The link or one of its processes has ended: nothing new gets through.
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

    /// Returns the index of the end that belongs to `id`.
    pub(crate) fn end_of(&self, id: u8) -> Option<usize> {
        self.ids.iter().position(|end| *end == id)
    }

    /// Returns whether the link can still carry items both ways.
    pub(crate) fn is_whole(&self) -> bool {
        !self.broken && self.ends.iter().all(|end| *end != End::Gone)
    }
}
