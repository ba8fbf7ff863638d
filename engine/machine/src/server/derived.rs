//! Incrementally maintained numbers, exposed for tests that recount them.
//!
//! A wrong update leaves a number wrong for good, and nothing in the machine notices. So each
//! number is exposed here beside its source. [`Server::counts`] has the numbers that follow from
//! the applied state; a test can recount them from the records.
//!
//! [`Server::derived`] recounts the others itself. Add each new maintained number to one of the
//! two.

use super::Server;
use crate::derived::Derived;
use crate::sessions::identity_bytes;
use std::collections::BTreeMap;
use zoolet_model::SessionId;

/// Numbers that follow from applied entries alone and are equal on every server.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Counts {
    /// Znodes, including the built-in ones.
    pub znodes: u64,
    /// Bytes of paths and data.
    pub data_bytes: u64,
    /// Ephemerals of all sessions.
    pub ephemerals: u64,
    /// Containers that may be reaped.
    pub reapable: u64,
    /// TTL znodes without children.
    pub ttl: u64,
    /// Subtrees whose usage is known or being counted.
    pub quotas: u64,
    /// Those of them whose usage is still being counted.
    pub counting: u64,
    /// Ephemerals of each session. Sessions that the server has not counted since its start are
    /// left out.
    pub owned: BTreeMap<SessionId, u64>,
    /// Sessions, connected or not.
    pub sessions: u64,
}

impl Counts {
    /// Compares the server's numbers with a recount. Sessions that the server has not counted are
    /// skipped.
    ///
    /// # Errors
    /// The name of the first number that differs, with both values.
    pub fn agree(&self, counted: &Self) -> Result<(), String> {
        let Self { znodes, data_bytes, ephemerals, reapable, ttl, quotas, counting, owned, sessions } = self;
        let numbers = [
            ("znodes", *znodes, counted.znodes),
            ("data_bytes", *data_bytes, counted.data_bytes),
            ("ephemerals", *ephemerals, counted.ephemerals),
            ("reapable", *reapable, counted.reapable),
            ("ttl", *ttl, counted.ttl),
            ("quotas", *quotas, counted.quotas),
            ("counting", *counting, counted.counting),
            ("sessions", *sessions, counted.sessions),
        ];
        let of_session = owned.iter().map(|(session, kept)| (*session, *kept, counted.owned.get(session).copied()));
        for (name, kept, counted) in numbers {
            if kept != counted {
                return Err(format!("{name}: the server keeps {kept}, a recount finds {counted}"));
            }
        }
        for (session, kept, counted) in of_session {
            let counted = counted.unwrap_or(0);
            if kept != counted {
                return Err(format!(
                    "ephemerals of session {:#x}: the server keeps {kept}, a recount finds {counted}",
                    session.0
                ));
            }
        }
        Ok(())
    }
}

impl Server {
    /// Getter: returns the maintained numbers that follow from the applied state.
    pub fn counts(&self) -> Counts {
        let totals = self.state.totals();
        Counts {
            znodes: totals.znodes,
            data_bytes: totals.data_bytes,
            ephemerals: totals.ephemerals,
            reapable: totals.reapable,
            ttl: totals.ttl,
            quotas: totals.quotas,
            counting: totals.counting,
            owned: self.state.owned().map(|(session, count)| (session, u64::from(count))).collect(),
            sessions: self.sessions.len() as u64,
        }
    }

    /// Getter: returns every other maintained number with a recount.
    ///
    /// It scans everything the machine holds, so only tests call it.
    pub fn derived(&self) -> Vec<Derived> {
        let identities = self.connections.values().flat_map(|connection| &connection.identity.ids);
        let idle = self.connections.values().filter(|connection| connection.proposed.is_empty());
        let newcomers = self.connections.values().filter(|connection| connection.newcomer.is_some());
        let joining = self.history.joining() + self.forwards.joining_here();
        let mut derived = vec![
            Derived::new("identity_bytes", self.identity_bytes, identities.map(identity_bytes).sum()),
            Derived::new("births_of_idle", idle.map(|connection| connection.births as usize).sum(), 0),
            Derived::new("newcomers", self.newcomers.len(), newcomers.count()),
            Derived::new("sessions_joining", self.joining.len(), joining),
            Derived::new(
                "sessions_of_sources",
                self.sessions.counted(),
                self.sessions.sourced() + self.joining.sourced(),
            ),
            Derived::new("local_sessions_of_sources", self.locals.table().counted(), self.locals.table().sourced()),
            Derived::new("sessions_replicated", self.sessions.len(), self.state.sessions().len()),
        ];
        self.state.memory_ref().derived(&mut derived);
        self.history.derived(&mut derived);
        self.sessions.derived(&mut derived);
        self.locals.table().derived(&mut derived);
        self.watches.derived(&mut derived);
        self.fetches.derived(&mut derived);
        self.forwards.derived(&mut derived);
        self.peers.derived(&mut derived);
        derived
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn recount_names_the_first_difference_and_skips_uncounted_sessions() {
        let owned = |count| BTreeMap::from([(SessionId(7), count)]);
        let counted = Counts { znodes: 4, ephemerals: 2, owned: owned(2), sessions: 1, ..Counts::default() };
        assert_eq!(counted.agree(&counted), Ok(()));
        assert_eq!(Counts { owned: BTreeMap::new(), ..counted.clone() }.agree(&counted), Ok(()));
        let drifted = Counts { owned: owned(3), ..counted.clone() }.agree(&counted);
        assert_eq!(drifted, Err("ephemerals of session 0x7: the server keeps 3, a recount finds 2".into()));
        let more = Counts { znodes: 5, ..counted.clone() }.agree(&counted);
        assert_eq!(more, Err("znodes: the server keeps 5, a recount finds 4".into()));
        let ended = Counts { sessions: 0, owned: BTreeMap::new(), ..counted.clone() };
        assert!(counted.agree(&Counts { sessions: 1, owned: BTreeMap::new(), ..counted.clone() }).is_err());
        assert!(counted.agree(&ended).is_err());
    }
}
