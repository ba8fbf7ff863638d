//! Which epochs began, and whether the leader before named the next one or the others had to elect it.

use std::collections::BTreeMap;
use std::fmt;
use zoolet_zab::{Epoch, ServerId};

/// The epochs of a run.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Epochs {
    /// Who was established in each.
    led: BTreeMap<Epoch, ServerId>,
    /// Whom the leader of an epoch named for the next one.
    named: BTreeMap<Epoch, ServerId>,
}

impl Epochs {
    /// A server says that it leads, and is established.
    pub(super) fn leads(&mut self, epoch: Epoch, server: ServerId) {
        self.led.entry(epoch).or_insert(server);
    }

    /// The leader of `epoch` stops, and wants another server to lead.
    pub(super) fn hands_over(&mut self, epoch: Epoch, to: ServerId) {
        self.named.insert(epoch, to);
    }

    /// Epochs in which a leader was established.
    pub fn established(&self) -> usize {
        self.led.len()
    }

    /// Those of them whose leader was named by the leader of the epoch before, and got no further epoch than the next one for it.
    pub fn handed_over(&self) -> usize {
        let is_next = |&(named, _): &(&Epoch, &ServerId), epoch: Epoch| named.next() == Some(epoch);
        let by = |epoch: Epoch| self.named.range(..epoch).next_back().filter(|named| is_next(named, epoch));
        self.led.iter().filter(|&(&epoch, server)| by(epoch).is_some_and(|(_, to)| to == server)).count()
    }

    /// The others: each needed an election, the first one too.
    pub fn elected(&self) -> usize {
        self.established() - self.handed_over()
    }

    /// Epochs up to the last one that was established, whether or not anybody was established in them.
    pub fn begun(&self) -> u32 {
        self.led.last_key_value().map_or(0, |(epoch, _)| epoch.as_u32())
    }
}

impl fmt::Display for Epochs {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (elected, handed_over) = (self.elected(), self.handed_over());
        write!(f, "{} epochs begun, {elected} by election, {handed_over} by hand-over", self.begun())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_who_was_named_and_leads_the_very_next_epoch_was_not_elected() {
        let epoch = |number| Epoch::new(number).unwrap();
        let server = |id| ServerId::new(id).unwrap();
        let mut epochs = Epochs::default();
        epochs.leads(epoch(1), server(1));
        epochs.hands_over(epoch(1), server(2));
        epochs.leads(epoch(2), server(2));
        epochs.leads(epoch(2), server(2));
        epochs.hands_over(epoch(2), server(3));
        // The one that was named did not get it in time.
        epochs.leads(epoch(4), server(3));
        epochs.hands_over(epoch(4), server(1));
        epochs.leads(epoch(5), server(2));
        assert_eq!((epochs.established(), epochs.handed_over(), epochs.elected(), epochs.begun()), (4, 1, 3, 5));
    }
}
