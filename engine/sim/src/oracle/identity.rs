//! The identities of a connection, for each request and for each change that it may hear of.

use super::history::{Answer, History};
use super::request::has_place;
use super::violation::Violation;
use crate::reference::{Ids, shown};
use std::collections::BTreeSet;
use zoolet_model::{AclEntry, AuthId, ErrorCode, Perms, Reply, Request};

/// The effect of one auth packet on a connection.
struct Step {
    /// Events up to this zxid came before it.
    after: i64,
    /// Events beyond this zxid came after it.
    before: i64,
    ids: usize,
}

#[derive(Default)]
struct OfConnection {
    first: usize,
    steps: Vec<Step>,
}

pub(super) struct Identities {
    all: Vec<Ids>,
    of_operation: Vec<usize>,
    of_connection: Vec<OfConnection>,
}

impl Identities {
    pub(super) fn of(history: &History) -> Result<Self, Violation> {
        let mut all: Vec<Ids> = Vec::new();
        let mut of_operation = vec![0; history.operations.len()];
        let mut of_connection = Vec::new();
        for connection in &history.connections {
            let mut ids = Ids::of_peer(connection.peer);
            let first = all.iter().position(|known| *known == ids).unwrap_or_else(|| {
                all.push(ids.clone());
                all.len() - 1
            });
            let mut identities = OfConnection { first, steps: Vec::new() };
            let mut current = first;
            let mut place = i64::MIN;
            for &at in &connection.operations {
                of_operation[at] = current;
                let asked = &history.operations[at];
                if let Some(answer) = asked.answer.as_ref().filter(|_| has_place(&asked.request)) {
                    place = place.max(answer.zxid);
                    for step in identities.steps.iter_mut().rev().take_while(|step| step.before == i64::MAX) {
                        step.before = place;
                    }
                }
                let Request::Auth { scheme, auth } = &asked.request else { continue };
                let accepted = ids.authenticate(scheme.as_deref(), auth.as_deref(), history.super_digest.as_deref());
                let expected = if accepted { Ok(Reply::Empty) } else { Err(ErrorCode::AuthFailed) };
                // An auth packet without an answer counts for later requests, if they had an
                // effect.
                if asked.answer.as_ref().is_some_and(|answer| answer.result != expected) {
                    return Err(Violation::of("an identity is accepted if it is one")
                        .and_operation(history, at)
                        .and(format!("expected: {expected:?}")));
                }
                all.push(ids.clone());
                current = all.len() - 1;
                identities.steps.push(Step { after: place, before: i64::MAX, ids: current });
            }
            of_connection.push(identities);
        }
        Ok(Self { all, of_operation, of_connection })
    }

    /// Returns the identities with which a request was made.
    pub(super) fn of_operation(&self, operation: usize) -> &Ids {
        &self.all[self.of_operation[operation]]
    }

    /// Returns the identities that whoAmI must show. Their order is taken from the answer, because
    /// the rules leave it open.
    pub(super) fn shown(&self, operation: usize, answer: &Answer) -> Vec<AuthId> {
        let text = |id: &AuthId| (id.scheme.to_string(), id.id.to_string());
        let expected: Vec<AuthId> = self.of_operation(operation).iter().map(shown).collect();
        let Ok(Reply::Ids(got)) = &answer.result else { return expected };
        let same = expected.iter().map(text).collect::<BTreeSet<_>>() == got.iter().map(text).collect();
        if same && expected.len() == got.len() { got.clone() } else { expected }
    }

    /// Returns whether a connection may, and whether it must, hear of a change to a znode with this
    /// ACL.
    ///
    /// The two can differ: the answer to an auth packet names no state, so its place among the
    /// events is not always known.
    pub(super) fn may_read(&self, connection: usize, zxid: i64, acl: &[AclEntry]) -> (bool, bool) {
        let OfConnection { first, steps } = &self.of_connection[connection];
        let may = |ids: usize| self.all[ids].may(acl, Perms::READ);
        let certain = steps.iter().take_while(|step| step.before < zxid).last().map_or(*first, |step| step.ids);
        let perhaps = steps.iter().filter(|step| step.after < zxid && zxid <= step.before);
        perhaps.fold((may(certain), may(certain)), |(one, all), step| (one || may(step.ids), all && may(step.ids)))
    }
}
