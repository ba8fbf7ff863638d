//! INV-LASTZXID-DURABLE: a server reports its durable history when it votes or joins.
//!
//! It reports no more than its disk holds after a crash, and no less than it knows to be durable.
//! If it reported more, entries that it can lose would decide an election (A16, D3). If it reported
//! less, a server with committed entries could lose an election and be truncated (A19).

use super::{Ghost, Host, Invariant, Seen};
use zoolet_zab::{Credentials, Message, ServerId, Span, Zxid};

/// See the module.
#[derive(Debug, Default)]
pub(super) struct LastZxidDurable;

fn judge(host: &Host, credentials: Credentials) -> Result<(), String> {
    let (durable, told) = (&host.durable, &host.told);
    if credentials.current > durable.current || credentials.last > durable.last.zxid {
        return Err(format!("and {:?} with a history up to {:?} is durable", durable.current, durable.last.zxid));
    }
    // A truncation in flight may be reported before it is durable, because the server will not
    // claim the removed entries again.
    let mut least = host.cuts().fold(told.last.zxid, |least, to| least.min(to));
    if host.tail_floor() != host.history.floor() {
        // A snapshot replaces the history and holds all of it that can be committed. Until the log
        // has recorded the snapshot, a server may report less. Only AckEpoch counts, and it waits
        // for that record.
        least = Zxid::ZERO;
    }
    if credentials.current < told.current || credentials.last < least {
        return Err(format!("and knows {:?} with a history up to {:?} to be durable", told.current, told.last.zxid));
    }
    Ok(())
}

impl Invariant for LastZxidDurable {
    fn name(&self) -> &'static str {
        "INV-LASTZXID-DURABLE"
    }

    fn before(&mut self, ghost: &Ghost, server: ServerId, seen: &Seen<'_>) -> Result<(), String> {
        let Seen::Sent { peer, message, .. } = seen else { return Ok(()) };
        let (what, credentials) = match message {
            Message::Notification(notification) => ("Notification", notification.credentials),
            Message::FollowerInfo { credentials, .. } => ("FollowerInfo", *credentials),
            Message::AckEpoch { credentials, .. } => ("AckEpoch", *credentials),
            _ => return Ok(()),
        };
        let host = ghost.host(server);
        let says = format!(
            "server {} says {what} to server {} with {:?} and a history up to {:?}",
            server.as_u8(),
            peer.as_u8(),
            credentials.current,
            credentials.last
        );
        judge(host, credentials).map_err(|what| format!("{says}, {what}"))?;
        let Message::AckEpoch { committed, tail, .. } = message else { return Ok(()) };
        if tail.last() != credentials.last && credentials.last > *committed {
            return Err(format!("{says}, and a tail up to {:?}", tail.last()));
        }
        let mut held: Vec<Span> = Vec::new();
        for link in host.history.after(*committed).iter().filter(|link| link.zxid <= credentials.last) {
            let span = Span { epoch: link.zxid.epoch(), last: link.zxid.counter() };
            match held.last_mut() {
                Some(newest) if newest.epoch == span.epoch => *newest = span,
                Some(_) | None => held.push(span),
            }
        }
        // Compare as far back as both remember.
        let said: Vec<Span> = tail.iter().collect();
        let both = said.iter().rev().zip(held.iter().rev());
        match both.into_iter().find(|(said, held)| said != held) {
            Some((said, held)) => Err(format!("{says}, and {said:?} in its tail where its log has {held:?}")),
            None => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::story::{Story, ack_epoch_of, cut, entry, epoch, promise, zxid};
    use super::*;
    use zoolet_zab::{Attempt, Epoch};

    fn follower_info(current: u32, last: (u32, u64)) -> Message {
        let credentials = Credentials { current: epoch(current), last: zxid(last.0, last.1) };
        Message::FollowerInfo { attempt: Attempt(1), accepted: epoch(current), credentials }
    }

    #[test]
    fn reporting_exactly_the_durable_history_is_fine() {
        let mut story = Story::of(LastZxidDurable);
        story.reign(1, &[2]);
        story.write(2, &[entry(1, 1)]);
        story.append(2, &[entry(1, 2)]);
        story.say(2, 1, &follower_info(1, (1, 1)));
        story.is_fine();
    }

    #[test]
    fn claiming_more_history_than_is_durable_is_reported() {
        let mut story = Story::of(LastZxidDurable);
        story.reign(1, &[2]);
        story.append(2, &[entry(1, 1)]);
        story.say(2, 1, &follower_info(1, (1, 1)));
        story.is_wrong(&["server 2 says FollowerInfo to server 1", "up to 1.1, and Epoch(1) with a history up to 1.0"]);
    }

    #[test]
    fn claiming_less_history_than_is_durable_is_reported() {
        let mut story = Story::of(LastZxidDurable);
        story.reign(1, &[2]);
        story.write(2, &[entry(1, 1)]);
        story.say(2, 1, &follower_info(1, (1, 0)));
        story.is_wrong(&["server 2 says FollowerInfo", "up to 1.0, and knows Epoch(1) with a history up to 1.1"]);
    }

    #[test]
    fn claiming_the_history_after_a_truncation_not_yet_durable_is_fine() {
        let mut story = Story::of(LastZxidDurable);
        story.reign(1, &[2]);
        story.write(2, &[entry(1, 1)]);
        story.append(2, &[cut(1, 0)]);
        story.say(2, 1, &follower_info(1, (1, 0)));
        story.is_fine();
    }

    #[test]
    fn claiming_a_wrong_tail_of_the_log_is_reported() {
        let mut story = Story::of(LastZxidDurable);
        story.reign(1, &[2]);
        story.write(2, &[entry(1, 1), promise(2)]);
        let credentials = Credentials { current: Epoch::ZERO.next().unwrap(), last: zxid(1, 1) };
        story.say(2, 1, &ack_epoch_of(2, credentials));
        story.is_wrong(&["server 2 says AckEpoch", "a tail up to 0.0"]);
    }
}
