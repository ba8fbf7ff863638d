//! A confirmed point covers every entry committed anywhere when it was asked for.
//!
//! So a read that has applied it is linearizable.

use super::{Fact, Invariant};
use crate::net::World;

pub(super) struct ConfirmedIsNewest;

impl Invariant for ConfirmedIsNewest {
    fn see(&mut self, _: &World, fact: &Fact<'_>) {
        if let Fact::Confirmed { by, round, least: Some(least), up_to: Some(up_to) } = fact {
            assert!(
                up_to >= least,
                "server {by}: {round:?} confirms {up_to:?}, and {least:?} was committed before it was asked"
            );
        }
    }
}
