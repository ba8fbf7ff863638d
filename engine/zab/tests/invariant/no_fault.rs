//! No correct server ever finds fault with another correct one.
//!
//! A snapshot that failed in transfer is no fault.

use super::{Fact, Invariant};
use crate::net::World;

pub(super) struct NoFault;

impl Invariant for NoFault {
    fn see(&mut self, _: &World, fact: &Fact<'_>) {
        if let Fact::Closed { by, peer, fault } = fact {
            if **fault == zoolet_zab::Fault::Protocol("its snapshot could not be received") {
                return;
            }
            panic!("server {by} drops its link to {peer}: {fault:?}");
        }
    }
}
