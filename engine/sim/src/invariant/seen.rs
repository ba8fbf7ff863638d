//! The events that the simulator reports.

use zoolet_machine::budget::Part;
use zoolet_machine::derived::Derived;
use zoolet_machine::seam::action::{Append, LogRecord};
use zoolet_machine::server::Counts;
use zoolet_model::SessionId;
use zoolet_store::log::Facts;
use zoolet_zab::{AppendSeq, Epoch, LinkId, Message, Role, ServerId, Zxid};

/// A server's own report, requested after every event.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct State {
    /// Its role.
    pub role: Role,
    /// The epoch in which it has this role.
    pub epoch: Epoch,
    /// Its commit watermark.
    pub committed: Zxid,
    /// The last entry it applied.
    pub applied: Zxid,
    /// The digest of its state after that entry; `None` if not known yet, as before the first
    /// entry.
    pub digest: Option<u128>,
}

impl Default for State {
    fn default() -> Self {
        Self { role: Role::Looking, epoch: Epoch::ZERO, committed: Zxid::ZERO, applied: Zxid::ZERO, digest: None }
    }
}

/// A bounded queue or buffer.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Queue {
    /// A part of the server's budget.
    Part(Part),
    /// Any other queue.
    Named(&'static str),
}

/// One event at one server, reported at once and in order.
#[derive(Clone, Copy, Debug)]
pub enum Seen<'a> {
    /// A process starts on a log.
    ///
    /// It is reported directly after the log was opened, before the server gets any event. See
    /// [`zoolet_store::log::Log::facts`].
    Started {
        /// The process's number, unique at this server.
        process: u64,
        /// The facts in its log.
        facts: &'a Facts,
        /// Whether the harness damaged durable contents, so that some may be missing.
        is_damaged: bool,
    },
    /// The process ended: by a crash, a power loss, or its own choice.
    ///
    /// The next [`Seen::Started`] shows what remains on the disk. A new disk has another
    /// incarnation.
    Stopped,
    /// The server handed this to its log (Action::Append). It is not written yet.
    Appended(&'a Append),
    /// One record of an append, with its number. [`super::Checks`] splits appends into records.
    Record(AppendSeq, &'a LogRecord),
    /// The disk has made all records up to here durable, whether or not the server knows.
    Durable(AppendSeq),
    /// The server is about to handle that completion (Event::Persisted).
    Told(AppendSeq),
    /// A checkpoint up to here is durable in the base.
    Checkpointed(Zxid),
    /// A snapshot up to here became the base, and the machine does not know yet.
    /// [`Seen::Checkpointed`] follows once it knows.
    Installed(Zxid),
    /// The log may have purged everything up to here.
    Recycled(Zxid),
    /// The server sent a message (Action::PeerSend), whether or not it ever arrives.
    ///
    /// It follows [`Seen::Appended`] for everything appended before it.
    Sent {
        /// The receiver.
        peer: ServerId,
        /// The link, as numbered by the sender.
        link: LinkId,
        /// The message.
        message: &'a Message,
    },
    /// The server is about to handle a message (Event::PeerMessage).
    Received {
        /// The sender.
        peer: ServerId,
        /// The sender's process at the time of sending.
        process: u64,
        /// The message.
        message: &'a Message,
    },
    /// The server is about to hear that a link ended or was replaced, or it closed the link itself.
    Parted {
        /// The peer.
        peer: ServerId,
    },
    /// The server closed a link because of the peer's messages or requests (Action::PeerClose).
    Refused {
        /// The peer.
        peer: ServerId,
        /// The reason that it gave.
        reason: &'a str,
    },
    /// The server's state, after every event and all resulting actions.
    State(State),
    /// The server's counts, after the state, if another entry was applied.
    Kept {
        /// The last entry it applied.
        applied: Zxid,
        /// Counts that follow from the applied entries.
        counts: &'a Counts,
        /// All other derived numbers.
        derived: &'a [Derived],
    },
    /// A leader closed the connection of a client that returned to it with this session.
    ///
    /// The leader knew of no other connection of the session. Reported after the state.
    SentAway(SessionId),
    /// The contents of a bounded queue.
    Holds {
        /// The queue.
        queue: Queue,
        /// Its size.
        held: u64,
        /// Its bound.
        limit: u64,
    },
}
