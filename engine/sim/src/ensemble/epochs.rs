//! Epochs of a run, and whether each leader was elected or named by the previous one.

use std::collections::BTreeMap;
use std::fmt;
use zoolet_zab::{Epoch, ServerId};

/// The epochs of a run.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Epochs {
    /// The established leader of each epoch.
    led: BTreeMap<Epoch, ServerId>,
    /// The successor that the leader of an epoch named.
    named: BTreeMap<Epoch, ServerId>,
}

impl Epochs {
    /// Records that a server reports itself as the established leader.
    pub(super) fn leads(&mut self, epoch: Epoch, server: ServerId) {
        self.led.entry(epoch).or_insert(server);
    }

    /// Records that the leader of `epoch` stops and names a successor.
    pub(super) fn hands_over(&mut self, epoch: Epoch, to: ServerId) {
        self.named.insert(epoch, to);
    }

    /// Returns the number of epochs with an established leader.
    pub fn established(&self) -> usize {
        self.led.len()
    }

    /// Returns the number of epochs whose leader was named by the leader of the previous epoch.
    ///
    /// A named server that leads only a later epoch does not count.
    pub fn handed_over(&self) -> usize {
        let is_next = |&(named, _): &(&Epoch, &ServerId), epoch: Epoch| named.next() == Some(epoch);
        let by = |epoch: Epoch| self.named.range(..epoch).next_back().filter(|named| is_next(named, epoch));
        self.led.iter().filter(|&(&epoch, server)| by(epoch).is_some_and(|(_, to)| to == server)).count()
    }

    /// Returns the number of other established epochs: each needed an election, and so did the
    /// first.
    pub fn elected(&self) -> usize {
        self.established() - self.handed_over()
    }

    /// Returns the number of the last established epoch, which counts epochs without a leader too.
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
    fn only_a_named_successor_in_the_next_epoch_counts_as_hand_over() {
        let epoch = |number| Epoch::new(number).unwrap();
        let server = |id| ServerId::new(id).unwrap();
        let mut epochs = Epochs::default();
        epochs.leads(epoch(1), server(1));
        epochs.hands_over(epoch(1), server(2));
        epochs.leads(epoch(2), server(2));
        epochs.leads(epoch(2), server(2));
        epochs.hands_over(epoch(2), server(3));
        // Server 3 was named and missed epoch 3.
        epochs.leads(epoch(4), server(3));
        epochs.hands_over(epoch(4), server(1));
        epochs.leads(epoch(5), server(2));
        assert_eq!((epochs.established(), epochs.handed_over(), epochs.elected(), epochs.begun()), (4, 1, 3, 5));
    }
}
