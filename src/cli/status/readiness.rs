//! The condition of `zoolet status --wait`.
//!
//! It holds when the next server may be restarted or upgraded without clients noticing.

use super::Answer;
use super::show::{items, word};
use serde_json::Value;
use std::time::Duration;

/// Roles in which a server serves clients.
const SERVING: [&str; 4] = ["leader", "follower", "observer", "standalone"];

/// Returns the first unmet condition, in a line that begins with the server's address.
///
/// `None`: all servers are ready. A peer counts if it was heard within `waited`, the time since the
/// wait began.
pub(super) fn missing(answers: &[Answer], waited: Duration) -> Option<String> {
    answers.iter().find_map(|answer| {
        let why = match &answer.status {
            Ok(status) => of(status, waited)?,
            Err(why) => why.to_string(),
        };
        Some(format!("{}: {why}", answer.address))
    })
}

/// Returns the first condition that a server does not meet; `None` if it is ready.
///
/// A ready server serves clients, reaches all voters, and has no alarm that holds up a restart. If
/// it leads, the voters also follow it. A permanent problem, such as a worn disk or an even number
/// of voters, holds up nothing.
fn of(status: &Value, waited: Duration) -> Option<String> {
    // An older release does not mark its alarms; each of them holds up.
    let holds_up = |alarm: &&Value| alarm["holds_up"] != false;
    if let Some(alarm) = items(&status["alarms"]).iter().find(holds_up) {
        return Some(word(&alarm["what"]).to_owned());
    }
    let role = word(&status["role"]);
    if !SERVING.contains(&role) {
        return Some("it does not serve yet".to_owned());
    }
    let voters =
        || items(&status["members"]).iter().filter(|member| member["role"] == "voter").map(|member| &member["id"]);
    let is_in = |list: &str, id: &Value, what: &str| {
        items(&status[list]).iter().any(|one| one["id"] == *id && one[what] == true)
    };
    // An older release does not say when it heard a peer; the peer then counts as heard.
    let is_heard = |id: &Value| {
        let peer = items(&status["peers"]).iter().find(|peer| peer["id"] == *id);
        let heard_ms = peer.and_then(|peer| peer["heard_ms"].as_u64());
        heard_ms.is_none_or(|heard_ms| u128::from(heard_ms) <= waited.as_millis())
    };
    voters().filter(|&id| *id != status["server"]).find_map(|id| match role {
        _ if !is_in("peers", id, "linked") => Some(format!("it has no link to server {id}")),
        _ if !is_heard(id) => Some(format!("server {id} has not been heard since the wait began")),
        "leader" if !is_in("learners", id, "synced") => Some(format!("server {id} does not follow it yet")),
        "leader" if !is_in("learners", id, "votes") => {
            Some(format!("server {id} does not count toward a majority yet"))
        }
        _ => None,
    })
}

#[cfg(test)]
mod tests {
    use super::super::tests::{answer, leader};
    use super::*;
    use serde_json::json;

    const LONG: Duration = Duration::from_secs(60);

    #[test]
    fn a_server_is_ready_when_it_serves_and_reaches_all_voters() {
        assert_eq!(of(&leader(), LONG), None);
        let after = |change: &dyn Fn(&mut Value)| {
            let mut status = leader();
            change(&mut status);
            of(&status, LONG)
        };
        let add = |status: &mut Value, role| {
            status["members"].as_array_mut().unwrap().push(json!({"id": 3, "role": role}));
        };
        let of_alarm = |alarm: Value| after(&|status| status["alarms"] = json!([alarm]));
        assert_eq!(of_alarm(json!({"what": "slow", "remedy": "r", "holds_up": false})), None);
        assert_eq!(of_alarm(json!({"what": "full", "remedy": "r", "holds_up": true})).as_deref(), Some("full"));
        assert_eq!(
            of_alarm(json!({"what": "of an older release", "remedy": "r"})).as_deref(),
            Some("of an older release")
        );
        for (change, expected) in [
            (&(|s: &mut Value| s["role"] = json!("looking")) as &dyn Fn(&mut Value), "it does not serve yet"),
            (&|s| s["peers"][0]["linked"] = json!(false), "it has no link to server 1"),
            (&|s| add(s, "voter"), "it has no link to server 3"),
            (&|s| s["learners"] = json!([]), "server 1 does not follow it yet"),
            (&|s| s["learners"][0]["synced"] = json!(false), "server 1 does not follow it yet"),
            (&|s| s["learners"][0]["votes"] = json!(false), "server 1 does not count toward a majority yet"),
        ] {
            assert_eq!(after(change).as_deref(), Some(expected));
        }
        // A follower knows only its links to the others. Nothing waits for an observer.
        assert_eq!(after(&|s| (s["role"], s["learners"]) = (json!("follower"), json!([]))), None);
        assert_eq!(after(&|s| add(s, "observer")), None);
    }

    #[test]
    fn readiness_waits_for_each_peer_to_send_after_the_wait_began() {
        let mut status = leader();
        status["peers"][0]["heard_ms"] = json!(1_400);
        let at = |ms| of(&status, Duration::from_millis(ms));
        assert_eq!(at(1_300).as_deref(), Some("server 1 has not been heard since the wait began"));
        assert_eq!(at(1_400), None);
    }

    #[test]
    fn readiness_waits_for_all_queried_servers() {
        assert_eq!(missing(&[answer(Ok(leader())), answer(Ok(leader()))], LONG), None);
        let missing = missing(&[answer(Ok(leader())), answer(Err("connection refused"))], LONG);
        assert_eq!(missing.as_deref(), Some("127.0.0.1:2181: connection refused"));
    }
}
