//! What the servers of an ensemble say of themselves, put together.

use crate::cli::status::Answer;
use serde_json::Value;

/// Who leads whom, as they say.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Standing {
    /// Each server that answers: its id, its role, and whom it follows.
    servers: Vec<(u8, String, Option<u8>)>,
    /// How many were asked.
    asked: usize,
}

impl Standing {
    pub(super) fn of(answers: &[Answer]) -> Self {
        let number = |value: &Value| value.as_u64().and_then(|number| u8::try_from(number).ok());
        let server = |answer: &Answer| {
            let status = answer.status.as_ref().ok()?;
            let role = status["role"].as_str().unwrap_or_default();
            Some((number(&status["server"])?, role.to_owned(), number(&status["leader"])))
        };
        Self { servers: answers.iter().filter_map(server).collect(), asked: answers.len() }
    }

    /// The one that leads and that a majority of those who answer follow.
    fn leader(&self) -> Option<u8> {
        let leads = |(id, role, _): &&(u8, String, Option<u8>)| {
            role == "leader"
                && self.servers.iter().filter(|(_, _, of)| *of == Some(*id)).count() * 2 > self.servers.len()
        };
        self.servers.iter().find(leads).map(|(id, _, _)| *id)
    }

    /// Whether all that were asked follow one leader, and serve.
    pub(super) fn is_whole(&self) -> bool {
        let leader = self.leader();
        let serves = |(_, role, of): &(u8, String, Option<u8>)| {
            matches!(role.as_str(), "leader" | "follower" | "observer") && *of == leader
        };
        leader.is_some() && self.servers.len() == self.asked && self.servers.iter().all(serves)
    }

    pub(super) fn role(&self, id: u8) -> &str {
        self.servers.iter().find(|(server, _, _)| *server == id).map_or("silent", |(_, role, _)| role)
    }

    /// A line when another one leads than before.
    pub(super) fn news_since(&self, before: &Self) -> Option<String> {
        let leader = self.leader()?;
        (before.leader() != Some(leader)).then(|| format!("server {leader} leads now\n"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn standing(servers: &[(u8, &str, Option<u8>)], silent: usize) -> Standing {
        let status =
            |&(id, role, leader): &(u8, &str, Option<u8>)| Ok(json!({"server": id, "role": role, "leader": leader}));
        let silence = std::iter::repeat_with(|| Err("refused".to_owned())).take(silent);
        let answers = servers.iter().map(status).chain(silence);
        Standing::of(&answers.map(|status| Answer { address: String::new(), status }).collect::<Vec<_>>())
    }

    #[test]
    fn an_ensemble_is_whole_when_all_follow_one_leader() {
        let two = [(1, "follower", Some(2)), (2, "leader", Some(2))];
        assert!(standing(&two, 0).is_whole());
        assert!(!standing(&two, 1).is_whole());
        assert!(!standing(&[two[0], two[1], (3, "looking", None)], 0).is_whole());
        assert!(!standing(&[two[0], two[1], (3, "leader", Some(3))], 0).is_whole());
        assert!(!standing(&[], 2).is_whole());
        assert_eq!(standing(&two, 1).role(2), "leader");
        assert_eq!(standing(&two, 1).role(3), "silent");
    }

    #[test]
    fn another_leader_is_news() {
        let before = standing(&[(1, "follower", Some(2)), (2, "leader", Some(2))], 0);
        let nobody = standing(&[(1, "looking", None)], 1);
        let after = standing(&[(1, "leader", Some(1)), (3, "follower", Some(1))], 1);
        assert_eq!(before.news_since(&before), None);
        assert_eq!(nobody.news_since(&before), None);
        assert_eq!(after.news_since(&before).as_deref(), Some("server 1 leads now\n"));
        // A leader that was cut off and does not know it yet is none.
        let cut_off = standing(&[(1, "leader", Some(1)), (2, "leader", Some(2)), (3, "follower", Some(1))], 0);
        assert_eq!(cut_off.leader(), Some(1));
    }
}
