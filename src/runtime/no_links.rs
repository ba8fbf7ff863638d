//! Stand-in for `links` in builds without the feature `ensemble`, whose servers are all standalone.
//!
//! A configuration cannot name an ensemble in such a build. So the types of links have no values.

use super::StartError;
use super::base_threads::BaseWork;
use super::threads::Shared;
use crate::config::Config;
use std::path::Path;
use std::sync::Arc;
use zoolet_machine::status::PeerStatus;
use zoolet_machine::{Action, Budget};
use zoolet_model::ServerId;
use zoolet_store::base::Base;
use zoolet_store::disk::Disk;
use zoolet_zab::Incarnation;

/// A bound port for links.
pub(super) enum PeerPort {}

/// An instruction for the links.
pub(super) enum Instruction {}

/// Access to the links' thread.
pub(crate) enum PeerLinks {}

impl PeerLinks {
    pub(super) fn new(port: &PeerPort, _: Arc<dyn Disk>, _: &Config) -> Result<Arc<Self>, StartError> {
        match *port {}
    }

    pub(super) fn file_voters(&self) -> Vec<ServerId> {
        match *self {}
    }

    pub(super) fn push(&self, _: &mut Vec<Instruction>) {
        match *self {}
    }

    pub(super) fn statuses(&self) -> Vec<PeerStatus> {
        match *self {}
    }

    pub(super) fn stop(&self) {
        match *self {}
    }
}

pub(super) fn check(_: &Config) -> Result<(), StartError> {
    Ok(())
}

pub(super) fn bind(
    _: &Config,
    _: &Path,
    _: Incarnation,
    _: u64,
    _: Arc<Budget>,
) -> Result<Option<PeerPort>, StartError> {
    Ok(None)
}

pub(super) fn instruction(_: &Arc<Shared>, _: Action, _: &mut Vec<BaseWork>) -> Option<Instruction> {
    None
}

pub(super) fn run(port: PeerPort, _: &PeerLinks, _: Arc<Shared>) -> Result<(), String> {
    match port {}
}

/// Received snapshots: none.
#[derive(Default)]
pub(super) struct Received {}

impl Received {
    pub(super) fn take(&self, _: u64) -> Option<Base> {
        None
    }

    pub(super) fn forget_part(&self) {}
}
