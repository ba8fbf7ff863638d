//! Derived numbers: after each entry, a server's running counts equal a fresh count.
//!
//! A count that is once wrong stays wrong while the process runs. For example, a session with one
//! ephemeral is refused a second one, or a bound no longer limits anything.

use super::{Ghost, Invariant, Seen};
use zoolet_zab::ServerId;

/// See the module.
#[derive(Debug, Default)]
pub(super) struct Derived {
    is_contradicted: bool,
}

impl Invariant for Derived {
    fn name(&self) -> &'static str {
        "derived numbers"
    }

    fn after(&mut self, ghost: &Ghost, server: ServerId, seen: &Seen<'_>) -> Result<(), String> {
        if let Some(what) = &ghost.contradiction
            && !std::mem::replace(&mut self.is_contradicted, true)
        {
            return Err(what.clone());
        }
        let Seen::Kept { applied, counts, derived } = seen else { return Ok(()) };
        let story = |what: String| format!("at server {} after {applied:?}, {what}", server.as_u8());
        if let Some(counted) = ghost.counts.get(applied) {
            counts.agree(counted).map_err(story)?;
        }
        match derived.iter().find(|number| !number.is_true()) {
            None => Ok(()),
            Some(number) => Err(story(format!(
                "{}: the server keeps {}, a recount finds {}",
                number.name, number.kept, number.counted
            ))),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::story::{Story, commit, payload, zxid};
    use super::*;
    use zoolet_machine::derived;
    use zoolet_machine::record::acl::Identity;
    use zoolet_machine::seam::action::LogRecord;
    use zoolet_machine::server;
    use zoolet_machine::txn::{Op, Txn};
    use zoolet_model::{CreateKind, SessionId, SessionSecret};

    const TRUE: derived::Derived = derived::Derived { name: "fetch_bytes", kept: 3, counted: 3 };

    /// A session with one ephemeral, and the numbers after that.
    fn story() -> (Story, server::Counts) {
        let mut story = Story::of(Derived::default());
        story.reign(1, &[2]);
        let session = SessionId(zxid(1, 1).as_i64());
        let begin = Txn::CreateSession { timeout_ms: 4000, secret: SessionSecret([1; 16]), home: None };
        let kind = CreateKind::Ephemeral;
        let op = Op::Create { path: "/e", data: None, acl: &[], kind, sequential: false, with_stat: false };
        let create = Txn::Write { session, identity: Identity::default(), op };
        for (counter, txn) in (1..).zip([begin, create]) {
            let record = LogRecord::Entry { zxid: zxid(1, counter), payload: payload(&txn) };
            story.write(1, std::slice::from_ref(&record));
            story.say(1, 2, &commit(1, zxid(1, counter)));
        }
        let counts = story.checks.ghost.counts[&zxid(1, 2)].clone();
        assert_eq!((counts.ephemerals, counts.sessions, counts.owned.get(&session)), (1, 1, Some(&1)));
        (story, counts)
    }

    #[test]
    fn counts_equal_to_a_recount_are_fine_and_uncounted_sessions_too() {
        let (mut story, mut counts) = story();
        story.see(1, Seen::Kept { applied: zxid(1, 2), counts: &counts, derived: &[TRUE] });
        counts.owned.clear();
        story.see(2, Seen::Kept { applied: zxid(1, 2), counts: &counts, derived: &[] });
        story.is_fine();
    }

    #[test]
    fn ephemeral_count_that_differs_from_a_recount_is_reported() {
        let (mut story, counts) = story();
        let mut drifted = counts.clone();
        drifted.owned.values_mut().for_each(|count| *count += 1);
        story.see(1, Seen::Kept { applied: zxid(1, 2), counts: &drifted, derived: &[TRUE] });
        story.is_wrong(&[
            "at server 1 after 1.2, ephemerals of session 0x10000000001: the server keeps 2, a recount finds 1",
        ]);
    }

    #[test]
    fn derived_number_that_differs_from_a_recount_is_reported() {
        let (mut story, counts) = story();
        let derived = [TRUE, derived::Derived { kept: 4, ..TRUE }];
        story.see(2, Seen::Kept { applied: zxid(1, 2), counts: &counts, derived: &derived });
        story.is_wrong(&["at server 2 after 1.2, fetch_bytes: the server keeps 4, a recount finds 3"]);
    }

    #[test]
    fn record_with_a_wrong_child_count_is_reported() {
        let (mut story, _) = story();
        let model = story.checks.ghost.model.as_mut().unwrap();
        assert!(model.counts().is_ok());
        model.records.remove(&zoolet_machine::record::key::znode("/e").unwrap());
        let what = model.counts().unwrap_err();
        assert!(what.starts_with("/ has 1 children, and its record says 2"), "{what}");
        story.write(1, &[super::super::story::entry(1, 3)]);
        story.say(1, 2, &commit(1, zxid(1, 3)));
        story.is_wrong(&["after 1.3: / has 1 children, and its record says 2"]);
    }
}
