//! No unbounded queue: every queue has a bound and keeps it at every step.
//!
//! Without bounds, a slow peer, a hung disk or a burst of reconnects makes the process run out of
//! memory (C4).

use super::{Ghost, Invariant, Seen};
use zoolet_zab::ServerId;

/// See the module.
#[derive(Debug, Default)]
pub(super) struct Bounded;

impl Invariant for Bounded {
    fn name(&self) -> &'static str {
        "bounds"
    }

    fn after(&mut self, _ghost: &Ghost, server: ServerId, seen: &Seen<'_>) -> Result<(), String> {
        match seen {
            Seen::Holds { queue, held, limit } if held > limit => {
                Err(format!("server {} holds {held} of {queue:?}, and may hold {limit}", server.as_u8()))
            }
            _ => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::Queue;
    use super::super::story::Story;
    use super::*;
    use zoolet_machine::budget::Part;

    #[test]
    fn queue_above_its_bound_is_reported() {
        let mut story = Story::of(Bounded);
        story.see(2, Seen::Holds { queue: Queue::Part(Part::Outbound), held: 7, limit: 7 });
        story.is_fine();
        story.see(2, Seen::Holds { queue: Queue::Named("forwards"), held: 8, limit: 7 });
        story.is_wrong(&["server 2 holds 8 of Named(\"forwards\"), and may hold 7"]);
    }
}
