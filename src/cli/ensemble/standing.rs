//! What the servers of an ensemble say of themselves, put together.

use crate::cli::status::Answer;

/// Who leads whom, as they say.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Standing {
    /// All of them, whether they answer or not.
    servers: Vec<Seat>,
    /// The last one that was seen to lead.
    led_by: Option<u8>,
}

#[derive(Clone, PartialEq, Eq, Debug)]
struct Seat {
    id: u8,
    votes: bool,
    /// Its role, and whom it follows; `None` when it does not answer.
    says: Option<(String, Option<u8>)>,
}

impl Standing {
    /// Of servers with these numbers, which vote or do not; each has one answer.
    pub(super) fn of(seats: &[(u8, bool)], answers: &[Answer]) -> Self {
        let seat = |(&(id, votes), answer): (&(u8, bool), &Answer)| Seat { id, votes, says: says(answer) };
        let mut standing = Self { servers: seats.iter().zip(answers).map(seat).collect(), led_by: None };
        standing.led_by = standing.leader();
        standing
    }

    /// The same, where nobody leads now: another one is news only when it is another.
    pub(super) fn after(self, before: &Self) -> Self {
        Self { led_by: self.led_by.or(before.led_by), ..self }
    }

    /// The one that leads and that a majority of the voters who answer follow.
    fn leader(&self) -> Option<u8> {
        let voters = || self.servers.iter().filter(|seat| seat.votes);
        let here = voters().filter(|seat| seat.says.is_some()).count();
        let follows = |seat: &&Seat, id: u8| seat.says.as_ref().is_some_and(|(_, of)| *of == Some(id));
        let leads = |seat: &&Seat| {
            seat.says.as_ref().is_some_and(|(role, _)| role == "leader")
                && voters().filter(|other| follows(other, seat.id)).count() * 2 > here
        };
        self.servers.iter().find(leads).map(|seat| seat.id)
    }

    /// Whether all follow one leader, and serve.
    pub(super) fn is_whole(&self) -> bool {
        let leader = self.leader();
        let serves = |seat: &Seat| {
            seat.says
                .as_ref()
                .is_some_and(|(role, of)| matches!(role.as_str(), "leader" | "follower" | "observer") && *of == leader)
        };
        leader.is_some() && self.servers.iter().all(serves)
    }

    pub(super) fn role(&self, id: u8) -> &str {
        let says = self.servers.iter().find(|seat| seat.id == id).and_then(|seat| seat.says.as_ref());
        says.map_or("silent", |(role, _)| role)
    }

    /// A line for each that does not answer any more, or does again, with what is left; and one when another leads.
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

    /// How many of the voters answer, and whether that is enough.
    fn left(&self) -> String {
        let voters = || self.servers.iter().filter(|seat| seat.votes);
        let (count, here) = (voters().count(), voters().filter(|seat| seat.says.is_some()).count());
        let verdict = match (here * 2 > count, self.leader()) {
            (true, Some(_)) => "a majority, which serves",
            (true, None) => "a majority, which elects a leader",
            (false, _) => "no majority: nothing is served",
        };
        format!("{here} of {count} voters are here, {verdict}")
    }
}

/// One that cannot answer its own question is none that is here.
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

    /// Servers 1, 2, .. that vote, and what they say: role and leader.
    fn standing(says: &[Option<(&str, Option<u8>)>]) -> Standing {
        let answer = |says: &Option<(&str, Option<u8>)>| Answer {
            address: String::new(),
            status: says
                .map(|(role, leader)| json!({"version": 1, "role": role, "leader": leader}))
                .ok_or_else(|| Unheard::Silent("refused".to_owned())),
        };
        let seats: Vec<(u8, bool)> = (1..).zip(says).map(|(id, _)| (id, true)).collect();
        Standing::of(&seats, &says.iter().map(answer).collect::<Vec<_>>())
    }

    const LEADS: Option<(&str, Option<u8>)> = Some(("leader", Some(2)));
    const FOLLOWS: Option<(&str, Option<u8>)> = Some(("follower", Some(2)));
    const LOOKS: Option<(&str, Option<u8>)> = Some(("looking", None));

    #[test]
    fn an_ensemble_is_whole_when_all_follow_one_leader() {
        assert!(standing(&[FOLLOWS, LEADS]).is_whole());
        assert!(!standing(&[FOLLOWS, LEADS, None]).is_whole());
        assert!(!standing(&[FOLLOWS, LEADS, LOOKS]).is_whole());
        assert!(!standing(&[FOLLOWS, LEADS, Some(("leader", Some(3)))]).is_whole());
        assert!(!standing(&[None, None]).is_whole());
        let two = standing(&[FOLLOWS, LEADS, None]);
        assert_eq!((two.role(2), two.role(3)), ("leader", "silent"));
    }

    #[test]
    fn who_goes_and_who_comes_is_news_with_what_is_left() {
        let whole = standing(&[FOLLOWS, LEADS, FOLLOWS]);
        assert_eq!(whole.news_since(&whole), [""; 0]);
        let two = standing(&[FOLLOWS, LEADS, None]);
        assert_eq!(
            two.news_since(&whole),
            ["server 3 does not answer: 2 of 3 voters are here, a majority, which serves"]
        );
        let one = standing(&[LOOKS, None, None]).after(&two);
        assert_eq!(
            one.news_since(&two),
            ["server 2 does not answer: 1 of 3 voters are here, no majority: nothing is served"]
        );
        // Its threads hang: it accepts, and that is all.
        let stuck = standing(&[FOLLOWS, LEADS, Some(("stuck", None))]);
        assert_eq!(stuck.news_since(&two), [""; 0]);
        assert_eq!(
            whole.news_since(&one),
            [
                "server 2 answers again: 3 of 3 voters are here, a majority, which serves",
                "server 3 answers again: 3 of 3 voters are here, a majority, which serves",
            ]
        );
    }

    #[test]
    fn another_leader_is_news() {
        let before = standing(&[FOLLOWS, LEADS, FOLLOWS]);
        let nobody = standing(&[LOOKS, None, LOOKS]).after(&before);
        assert_eq!(
            nobody.news_since(&before),
            ["server 2 does not answer: 2 of 3 voters are here, a majority, which elects a leader"]
        );
        let other = Some(("follower", Some(1)));
        let after = standing(&[Some(("leader", Some(1))), None, other]).after(&nobody);
        assert_eq!(after.news_since(&nobody), ["server 1 leads now"]);
        // A leader that was cut off and does not know it yet is none.
        assert_eq!(standing(&[Some(("leader", Some(1))), LEADS, other]).leader(), Some(1));
    }
}
