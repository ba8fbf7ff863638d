//! The schedule of an open loop.
//!
//! A request is sent when it is due, regardless of outstanding answers, and its latency counts from
//! then. A closed loop sends less while the server stalls, which hides how many requests would have
//! waited.

use rustix::time::{
    Itimerspec, TimerfdClockId, TimerfdFlags, TimerfdTimerFlags, Timespec, timerfd_create, timerfd_settime,
};
use std::io;
use std::os::fd::AsFd;
use tokio::net::unix::pipe;

/// The due times of one connection's requests.
pub(super) struct Pace {
    rate: u64,
    /// Index of its next request among the requests of all connections.
    turn: u64,
    connections: u64,
    /// A timerfd, because tokio's clock has a resolution of one millisecond.
    ///
    /// A request sent half a millisecond late would appear that much slower. The descriptor is read
    /// like a pipe, since tokio has no other safe owner for it.
    timer: pipe::Receiver,
}

impl Pace {
    /// Creates the schedule of connection `number` of `connections`, which share `rate` requests
    /// per second.
    ///
    /// # Errors
    /// The system refuses a timer.
    pub(super) fn new(rate: u64, number: usize, connections: usize) -> io::Result<Self> {
        let timer = timerfd_create(TimerfdClockId::Monotonic, TimerfdFlags::NONBLOCK | TimerfdFlags::CLOEXEC)?;
        Ok(Self {
            rate,
            turn: number as u64,
            connections: connections as u64,
            timer: pipe::Receiver::from_owned_fd_unchecked(timer)?,
        })
    }

    /// Returns when the next request is due, in nanoseconds since the start.
    pub(super) fn due(&self) -> u64 {
        due(self.turn, self.rate)
    }

    pub(super) const fn advance(&mut self) {
        self.turn += self.connections;
    }

    /// Waits the given nanoseconds. Cancel-safe.
    pub(super) async fn wait(&mut self, nanoseconds: u64) -> io::Result<()> {
        let value = Timespec {
            tv_sec: (nanoseconds / 1_000_000_000) as i64,
            // A zero time would disarm the timer.
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

/// Returns how many requests of all connections are due in `begin..end`, at `rate` per second.
pub(super) fn due_between(begin: u64, end: u64, rate: u64) -> u64 {
    turns_before(end, rate).saturating_sub(turns_before(begin, rate))
}

/// Returns how many requests of all connections are due before `end`.
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
    fn computed_number_of_due_requests_equals_the_counted_number() {
        for rate in [1, 3, 7, 1000, 999_999_937] {
            for end in [0, 1, 333_333_333, 333_333_334, 1_000_000_000, 1_000_000_001] {
                let from = turns_before(end, rate).saturating_sub(2);
                let counted = (from..from + 4).take_while(|turn| due(*turn, rate) < end).count() as u64;
                assert_eq!(turns_before(end, rate), from + counted, "{rate} {end}");
            }
        }
    }
}
