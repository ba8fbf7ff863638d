//! The four-letter word `dump` (surface 9.1): sessions, connections and ephemerals.
//!
//! Sessions and connections are grouped by the second at which they expire. A server that does not
//! lead prints the timeouts of global sessions instead, because it does not know when they expire.
//!
//! The answer is sent in pieces. A session's ephemerals may be in the base alone, so the port asks
//! for one session at a time. It asks twice, because ZooKeeper prints first how many sessions own
//! ephemerals.

use super::listener::Port;
use super::words::{NOT_SERVING, send, serving};
use std::collections::BTreeMap;
use std::time::{SystemTime, UNIX_EPOCH};
use tokio::net::tcp::OwnedWriteHalf;
use zoolet_machine::Status;
use zoolet_machine::seam::event::List;
use zoolet_model::SessionId;

/// Approximate bytes of one piece of the answer.
const PIECE: usize = 64 << 10;

/// The client left, or the engine did not answer.
struct Broken;

/// Answers `dump`; the caller closes the socket.
pub(super) async fn answer(port: &Port, write: &OwnedWriteHalf) {
    if serving(port).await.is_none() {
        send(port, write, NOT_SERVING).await;
        return;
    }
    let mut out = Out { port, write, text: String::new() };
    // A client that left, or an engine that is silent, ends the answer.
    let _ = dump(port, &mut out).await;
}

struct Out<'a> {
    port: &'a Port,
    write: &'a OwnedWriteHalf,
    text: String,
}

impl Out<'_> {
    async fn line(&mut self, line: &str) -> Result<(), Broken> {
        self.text.push_str(line);
        self.text.push('\n');
        if self.text.len() < PIECE { Ok(()) } else { self.send().await }
    }

    async fn send(&mut self) -> Result<(), Broken> {
        let sent = send(self.port, self.write, &self.text).await;
        self.text.clear();
        if sent { Ok(()) } else { Err(Broken) }
    }

    /// Writes sessions by the `second` of their expiry.
    async fn expiries(
        &mut self,
        what: &str,
        deadlines: &[(u64, SessionId)],
        second: impl Fn(u64) -> u64,
    ) -> Result<(), Broken> {
        let mut sessions = BTreeMap::<u64, Vec<SessionId>>::new();
        deadlines.iter().for_each(|&(left_ms, session)| sessions.entry(second(left_ms)).or_default().push(session));
        self.sets(what, &sessions, |session| format!("0x{:x}", session.0)).await
    }

    /// Writes global sessions as a server does that does not lead.
    async fn timeouts(&mut self, timeouts: &[(SessionId, u32)]) -> Result<(), Broken> {
        self.line(&format!("Global Sessions({}):", timeouts.len())).await?;
        for (session, timeout_ms) in timeouts {
            self.line(&format!("0x{:x}\t{timeout_ms}ms", session.0)).await?;
        }
        Ok(())
    }

    /// Writes `sets` by second of expiry, after the number of seconds and of items.
    async fn sets<T>(
        &mut self,
        what: &str,
        sets: &BTreeMap<u64, Vec<T>>,
        show: fn(&T) -> String,
    ) -> Result<(), Broken> {
        let things: usize = sets.values().map(Vec::len).sum();
        self.line(&format!("{what} Sets ({})/({things}):", sets.len())).await?;
        for (second, set) in sets {
            self.line(&format!("{} expire at {}:", set.len(), date(*second))).await?;
            for thing in set {
                self.line(&format!("\t{}", show(thing))).await?;
            }
        }
        Ok(())
    }
}

async fn dump(port: &Port, out: &mut Out<'_>) -> Result<(), Broken> {
    let Status { mut deadlines, timeouts, local_deadlines, .. } = *port.ask_for(List::Deadlines).await.ok_or(Broken)?;
    let now_ms = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_millis() as u64);
    let second = |left_ms: u64| (now_ms + left_ms).div_ceil(1000);
    out.line("SessionTracker dump:").await?;
    if let Some(local) = &local_deadlines {
        out.expiries("Local Session", local, second).await?;
    }
    let sessions: Vec<SessionId> = match &timeouts {
        Some(timeouts) => {
            out.timeouts(timeouts).await?;
            timeouts.iter().map(|&(session, _)| session).collect()
        }
        None => {
            // As in ZooKeeper, a leader that has local sessions says which are which.
            let global = if local_deadlines.is_some() { "Global Session" } else { "Session" };
            out.expiries(global, &deadlines, second).await?;
            deadlines.iter().map(|&(_, session)| session).collect()
        }
    };
    ephemerals(port, out, &sessions).await?;
    deadlines.extend(local_deadlines.into_iter().flatten());
    let deadlines: BTreeMap<SessionId, u64> =
        deadlines.into_iter().map(|(left_ms, session)| (session, left_ms)).collect();
    let mut connections = BTreeMap::<u64, Vec<_>>::new();
    for connection in port.connections() {
        let session = connection.record().session;
        let left_ms = deadlines.get(&session).copied().unwrap_or_else(|| port.settings.handshake_timeout_ms.into());
        connections.entry(second(left_ms)).or_default().push((connection.peer, session));
    }
    out.line("Connections dump:").await?;
    out.sets("Connections", &connections, |(peer, session)| format!("ip: /{peer} sessionId: 0x{:x}", session.0))
        .await?;
    out.send().await
}

async fn ephemerals(port: &Port, out: &mut Out<'_>, sessions: &[SessionId]) -> Result<(), Broken> {
    let mut owners = Vec::new();
    for &session in sessions {
        if !port.ask_for(List::Ephemerals(session)).await.ok_or(Broken)?.listed.is_empty() {
            owners.push(session);
        }
    }
    out.line("ephemeral nodes dump:").await?;
    out.line(&format!("Sessions with Ephemerals ({}):", owners.len())).await?;
    for session in owners {
        let owned = port.ask_for(List::Ephemerals(session)).await.ok_or(Broken)?.listed;
        out.line(&format!("0x{:x}:", session.0)).await?;
        for (_, path) in owned {
            out.line(&format!("\t{path}")).await?;
        }
    }
    Ok(())
}

/// Formats Unix seconds as Java does, in UTC: `Sat Nov 21 08:23:51 UTC 2026`.
fn date(second: u64) -> String {
    const DAYS: [&str; 7] = ["Thu", "Fri", "Sat", "Sun", "Mon", "Tue", "Wed"];
    const MONTHS: [&str; 12] = ["Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec"];
    let (day, second) = (second / 86_400, second % 86_400);
    let (hour, minute, second) = (second / 3600, second / 60 % 60, second % 60);
    let is_leap = |year: u64| year.is_multiple_of(4) && (!year.is_multiple_of(100) || year.is_multiple_of(400));
    let (mut year, mut left) = (1970, day);
    while left >= 365 + u64::from(is_leap(year)) {
        left -= 365 + u64::from(is_leap(year));
        year += 1;
    }
    let february = 28 + u64::from(is_leap(year));
    let mut month = 0;
    for length in [31, february, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31] {
        if left < length {
            break;
        }
        left -= length;
        month += 1;
    }
    let (weekday, month) = (DAYS[(day % 7) as usize], MONTHS[month]);
    format!("{weekday} {month} {:02} {hour:02}:{minute:02}:{second:02} UTC {year}", left + 1)
}

#[cfg(test)]
mod tests {
    use super::date;

    #[test]
    fn dates_follow_the_gregorian_calendar() {
        assert_eq!(date(0), "Thu Jan 01 00:00:00 UTC 1970");
        assert_eq!(date(1_795_249_431), "Sat Nov 21 08:23:51 UTC 2026");
        assert_eq!(date(951_782_399), "Mon Feb 28 23:59:59 UTC 2000");
        assert_eq!(date(951_782_400), "Tue Feb 29 00:00:00 UTC 2000");
        assert_eq!(date(4_107_542_399), "Sun Feb 28 23:59:59 UTC 2100");
        assert_eq!(date(4_107_542_400), "Mon Mar 01 00:00:00 UTC 2100");
    }
}
