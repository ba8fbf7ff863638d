//! The schedule of an open loop: requests leave when they are due, whatever the answers do, and their latency is counted from then.
//! A closed loop sends less while the server stalls and so hides how many requests would have waited.

use rustix::time::{
    Itimerspec, TimerfdClockId, TimerfdFlags, TimerfdTimerFlags, Timespec, timerfd_create, timerfd_settime,
};
use std::io;
use std::os::fd::AsFd;
use tokio::net::unix::pipe;

/// When the requests of one connection are due.
pub(super) struct Pace {
    rate: u64,
    /// Of all requests of all connections, which one is next here.
    turn: u64,
    connections: u64,
    /// A timerfd: tokio's clock counts milliseconds, and a request that leaves half a millisecond late would be told as that much slower.
    /// It is read as a pipe is, and tokio has no other safe owner for it.
    timer: pipe::Receiver,
}

impl Pace {
    /// For connection `number` of `connections` that share `rate` requests a second.
    pub(super) fn new(rate: u64, number: usize, connections: usize) -> io::Result<Self> {
        let timer = timerfd_create(TimerfdClockId::Monotonic, TimerfdFlags::NONBLOCK | TimerfdFlags::CLOEXEC)?;
        Ok(Self {
            rate,
            turn: number as u64,
            connections: connections as u64,
            timer: pipe::Receiver::from_owned_fd_unchecked(timer)?,
        })
    }

    /// When the next request is due, nanoseconds since the beginning.
    pub(super) fn due(&self) -> u64 {
        due(self.turn, self.rate)
    }

    pub(super) const fn advance(&mut self) {
        self.turn += self.connections;
    }

    /// Waits so many nanoseconds. May be dropped at any time.
    pub(super) async fn wait(&mut self, nanoseconds: u64) -> io::Result<()> {
        let value = Timespec {
            tv_sec: (nanoseconds / 1_000_000_000) as i64,
            // All zeroes would disarm it.
            tv_nsec: (nanoseconds % 1_000_000_000).max(1) as i64,
        };
        let once = Itimerspec { it_interval: Timespec::default(), it_value: value };
        timerfd_settime(self.timer.as_fd(), TimerfdTimerFlags::empty(), &once)?;
        loop {
            self.timer.readable().await?;
            match self.timer.try_read(&mut [0; 8]) {
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                read => return read.map(|_| ()),
            }
        }
    }
}

/// How many requests of all connections are due from `begin` until before `end`, at `rate` a second.
pub(super) fn due_between(begin: u64, end: u64, rate: u64) -> u64 {
    turns_before(end, rate).saturating_sub(turns_before(begin, rate))
}

/// How many requests of all connections are due before `end`.
fn turns_before(end: u64, rate: u64) -> u64 {
    u64::try_from((u128::from(end) * u128::from(rate)).div_ceil(1_000_000_000)).unwrap_or(u64::MAX)
}

fn due(turn: u64, rate: u64) -> u64 {
    u64::try_from(u128::from(turn) * 1_000_000_000 / u128::from(rate)).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn requests_due_are_those_counted_one_by_one() {
        for rate in [1, 3, 7, 1000, 999_999_937] {
            for end in [0, 1, 333_333_333, 333_333_334, 1_000_000_000, 1_000_000_001] {
                let from = turns_before(end, rate).saturating_sub(2);
                let counted = (from..from + 4).take_while(|turn| due(*turn, rate) < end).count() as u64;
                assert_eq!(turns_before(end, rate), from + counted, "{rate} {end}");
            }
        }
    }
}
