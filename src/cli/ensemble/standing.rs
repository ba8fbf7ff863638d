//! Combines the status of all servers of an ensemble.

use crate::cli::status::Answer;

/// Roles and leaders as the servers report them.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Standing {
    /// Every server, answering or not.
    servers: Vec<Reported>,
    /// The last known leader.
    led_by: Option<u8>,
}

#[derive(Clone, PartialEq, Eq, Debug)]
struct Reported {
    id: u8,
    votes: bool,
    /// Its role and its leader; `None` if it does not answer.
    says: Option<(String, Option<u8>)>,
}

impl Standing {
    /// Combines the answers of servers with these ids and voting rights, one answer per server.
    pub(super) fn of(voting: &[(u8, bool)], answers: &[Answer]) -> Self {
        let server = |(&(id, votes), answer): (&(u8, bool), &Answer)| Reported { id, votes, says: says(answer) };
        let mut standing = Self { servers: voting.iter().zip(answers).map(server).collect(), led_by: None };
        standing.led_by = standing.leader();
        standing
    }

    /// Keeps the former leader while there is no leader now: its return is no news.
    pub(super) fn after(self, before: &Self) -> Self {
        Self { led_by: self.led_by.or(before.led_by), ..self }
    }

    /// Returns the leader that a majority of the answering voters follow.
    fn leader(&self) -> Option<u8> {
        let voters = || self.servers.iter().filter(|server| server.votes);
        let here = voters().filter(|server| server.says.is_some()).count();
        let follows = |server: &&Reported, id: u8| server.says.as_ref().is_some_and(|(_, of)| *of == Some(id));
        let leads = |server: &&Reported| {
            server.says.as_ref().is_some_and(|(role, _)| role == "leader")
                && voters().filter(|other| follows(other, server.id)).count() * 2 > here
        };
        self.servers.iter().find(leads).map(|server| server.id)
    }

    /// Returns whether all servers serve and follow one leader.
    pub(super) fn is_whole(&self) -> bool {
        let leader = self.leader();
        let serves = |server: &Reported| {
            server
                .says
                .as_ref()
                .is_some_and(|(role, of)| matches!(role.as_str(), "leader" | "follower" | "observer") && *of == leader)
        };
        leader.is_some() && self.servers.iter().all(serves)
    }

    pub(super) fn role(&self, id: u8) -> &str {
        let says = self.servers.iter().find(|server| server.id == id).and_then(|server| server.says.as_ref());
        says.map_or("silent", |(role, _)| role)
    }

    /// Returns a line per server that stopped or resumed answering, and one for a new leader.
    pub(super) fn news_since(&self, before: &Self) -> Vec<String> {
        let mut lines = Vec::new();
        for (now, then) in self.servers.iter().zip(&before.servers) {
            let happened = match (now.says.is_some(), then.says.is_some()) {
                (false, true) => "does not answer",
                (true, false) => "answers again",
                _ => continue,
            };
            lines.push(format!("server {} {happened}: {}", now.id, self.left()));
        }
        if let Some(leader) = self.leader().filter(|leader| before.led_by != Some(*leader)) {
            lines.push(format!("server {leader} leads now"));
        }
        lines
    }

    /// Describes how many voters answer, and whether they are a majority.
    fn left(&self) -> String {
        let voters = || self.servers.iter().filter(|server| server.votes);
        let (count, here) = (voters().count(), voters().filter(|server| server.says.is_some()).count());
        let verdict = match (here * 2 > count, self.leader()) {
            (true, Some(_)) => "a majority, which serves",
            (true, None) => "a majority, which elects a leader",
            (false, _) => "no majority: the ensemble does not serve",
        };
        format!("{here} of {count} voters answer, {verdict}")
    }
}

/// Parses an answer; a stuck server counts as silent.
fn says(answer: &Answer) -> Option<(String, Option<u8>)> {
    let status = answer.status.as_ref().ok()?;
    let role = status["role"].as_str().filter(|role| *role != "stuck")?;
    let leader = status["leader"].as_u64().and_then(|number| u8::try_from(number).ok());
    Some((role.to_owned(), leader))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cli::status::Unheard;
    use serde_json::json;

    /// Combines voters 1, 2, ... that report these roles and leaders.
    fn standing(says: &[Option<(&str, Option<u8>)>]) -> Standing {
        let answer = |says: &Option<(&str, Option<u8>)>| Answer {
            address: String::new(),
            status: says
                .map(|(role, leader)| json!({"version": 1, "role": role, "leader": leader}))
                .ok_or_else(|| Unheard::Silent("refused".to_owned())),
        };
        let voting: Vec<(u8, bool)> = (1..).zip(says).map(|(id, _)| (id, true)).collect();
        Standing::of(&voting, &says.iter().map(answer).collect::<Vec<_>>())
    }

    const LEADS: Option<(&str, Option<u8>)> = Some(("leader", Some(2)));
    const FOLLOWS: Option<(&str, Option<u8>)> = Some(("follower", Some(2)));
    const LOOKS: Option<(&str, Option<u8>)> = Some(("looking", None));

    #[test]
    fn ensemble_is_whole_when_all_other_servers_follow_one_leader() {
        assert!(standing(&[FOLLOWS, LEADS]).is_whole());
        assert!(!standing(&[FOLLOWS, LEADS, None]).is_whole());
        assert!(!standing(&[FOLLOWS, LEADS, LOOKS]).is_whole());
        assert!(!standing(&[FOLLOWS, LEADS, Some(("leader", Some(3)))]).is_whole());
        assert!(!standing(&[None, None]).is_whole());
        let two = standing(&[FOLLOWS, LEADS, None]);
        assert_eq!((two.role(2), two.role(3)), ("leader", "silent"));
    }

    #[test]
    fn silent_and_returning_servers_are_reported_with_the_quorum_left() {
        let whole = standing(&[FOLLOWS, LEADS, FOLLOWS]);
        assert_eq!(whole.news_since(&whole), [""; 0]);
        let two = standing(&[FOLLOWS, LEADS, None]);
        assert_eq!(
            two.news_since(&whole),
            ["server 3 does not answer: 2 of 3 voters answer, a majority, which serves"]
        );
        let one = standing(&[LOOKS, None, None]).after(&two);
        assert_eq!(
            one.news_since(&two),
            ["server 2 does not answer: 1 of 3 voters answer, no majority: the ensemble does not serve"]
        );
        // A stuck server accepts connections, but its threads hang.
        let stuck = standing(&[FOLLOWS, LEADS, Some(("stuck", None))]);
        assert_eq!(stuck.news_since(&two), [""; 0]);
        assert_eq!(
            whole.news_since(&one),
            [
                "server 2 answers again: 3 of 3 voters answer, a majority, which serves",
                "server 3 answers again: 3 of 3 voters answer, a majority, which serves",
            ]
        );
    }

    #[test]
    fn new_leader_is_reported() {
        let before = standing(&[FOLLOWS, LEADS, FOLLOWS]);
        let nobody = standing(&[LOOKS, None, LOOKS]).after(&before);
        assert_eq!(
            nobody.news_since(&before),
            ["server 2 does not answer: 2 of 3 voters answer, a majority, which elects a leader"]
        );
        let other = Some(("follower", Some(1)));
        let after = standing(&[Some(("leader", Some(1))), None, other]).after(&nobody);
        assert_eq!(after.news_since(&nobody), ["server 1 leads now"]);
        // A deposed leader may still claim to lead; it does not count.
        assert_eq!(standing(&[Some(("leader", Some(1))), LEADS, other]).leader(), Some(1));
    }
}
