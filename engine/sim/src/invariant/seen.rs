//! What the simulator tells.

use zoolet_engine::action::{Append, LogRecord};
use zoolet_engine::budget::Part;
use zoolet_engine::server::{Counts, Derived};
use zoolet_engine::store::log::Facts;
use zoolet_model::SessionId;
use zoolet_zab::{AppendSeq, Epoch, LinkId, Message, Role, ServerId, Zxid};

/// What a server says of itself; the simulator asks for it after every event.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct State {
    /// What it does.
    pub role: Role,
    /// In which epoch it does that.
    pub epoch: Epoch,
    /// Its commit watermark.
    pub committed: Zxid,
    /// The last entry it applied.
    pub applied: Zxid,
    /// The digest of its state after that; `None` when it is not known yet, as before its first entry.
    pub digest: Option<u128>,
}

impl Default for State {
    fn default() -> Self {
        Self { role: Role::Looking, epoch: Epoch::ZERO, committed: Zxid::ZERO, applied: Zxid::ZERO, digest: None }
    }
}

/// Something that has a bound.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Queue {
    /// A part of the server's budget.
    Part(Part),
    /// Anything else.
    Named(&'static str),
}

/// One thing that happened at one server, told at once and in order.
#[derive(Clone, Copy, Debug)]
pub enum Seen<'a> {
    /// A process begins with what its log says, [`zoolet_engine::store::log::Log::facts`] directly after opening, before the server is told of
    /// anything.
    Started {
        /// Its number, never used before at this server.
        process: u64,
        /// What its log says.
        facts: &'a Facts,
        /// The harness has damaged what was durable: less may be there than was.
        is_damaged: bool,
    },
    /// The process is gone: it crashed, its machine lost power, or it chose to. What is left is told by the next [`Seen::Started`]; a new disk
    /// has another incarnation.
    Stopped,
    /// The server handed this to its log (Action::Append), before it is written.
    Appended(&'a Append),
    /// One record of that, with its number: [`super::Checks`] takes an append apart.
    Record(AppendSeq, &'a LogRecord),
    /// The disk has made everything durable up to here, whether or not the server was told.
    Durable(AppendSeq),
    /// The server is now told so (Event::Persisted), directly before it handles that.
    Told(AppendSeq),
    /// A checkpoint of everything up to here is durable in the base.
    Checkpointed(Zxid),
    /// A snapshot that holds everything up to here is the base. The machine has yet to hear of it; then follows [`Seen::Checkpointed`].
    Installed(Zxid),
    /// The log may have forgotten everything up to here.
    Recycled(Zxid),
    /// The server said this (Action::PeerSend), whether or not it ever arrives. After [`Seen::Appended`] of what it appended before.
    Sent {
        /// To whom.
        peer: ServerId,
        /// On which link, as the sender numbers it.
        link: LinkId,
        /// What.
        message: &'a Message,
    },
    /// The server is now told this (Event::PeerMessage), directly before it handles it.
    Received {
        /// By whom.
        peer: ServerId,
        /// In which process of that server it was said.
        process: u64,
        /// What.
        message: &'a Message,
    },
    /// The server is about to be told that its link to this peer is gone or replaced, or has closed it itself.
    Parted {
        /// To whom.
        peer: ServerId,
    },
    /// The server closed a link because of what came on it, or because of what the peer asks for (Action::PeerClose).
    Refused {
        /// Whose.
        peer: ServerId,
        /// Why, as it says.
        reason: &'a str,
    },
    /// After every event, when everything the server wanted was carried out.
    State(State),
    /// After the state, when another entry was applied: the numbers that the server keeps.
    Kept {
        /// The last entry it applied.
        applied: Zxid,
        /// Those that follow from the applied entries.
        counts: &'a Counts,
        /// The others.
        derived: &'a [Derived],
    },
    /// A leader closed the connection of a client that was coming back to it with this session, and had heard of no other connection that the session
    /// went to. After the state.
    SentAway(SessionId),
    /// How much a bounded thing holds.
    Holds {
        /// Which.
        queue: Queue,
        /// How much.
        held: u64,
        /// How much it may.
        limit: u64,
    },
}
