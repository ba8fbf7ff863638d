//! Times to live: no TTL znode goes early, and none stays much longer.
//!
//! The replay compares each deletion with ensemble time, as the entries carry it. Here true time
//! judges. So a server may neither stamp entries with a wall clock, nor forget what is due, nor count
//! the time in which no server leads.

use super::Promises;
use super::facts::Facts;
use super::history::Span;
use super::origin::{Origin, Origins};
use super::violation::Violation;
use crate::reference::RefTtl;

/// The end of a TTL znode's life without children and new data.
#[derive(Debug)]
pub(super) struct Life {
    pub(super) path: String,
    pub(super) ttl: RefTtl,
    /// The entry that reaped it; `None` if it exists at the end of the run.
    pub(super) reaped: Option<usize>,
}

/// Judges the lives of a run.
pub(super) fn check(
    facts: &Facts<'_>,
    origins: &Origins,
    promises: &Promises,
    lives: &[Life],
) -> Result<(), Violation> {
    lives.iter().try_for_each(|life| {
        let Some(since) = facts.entry_at(life.ttl.since_zxid) else { return Ok(()) };
        not_early(facts, origins, promises, life, since)?;
        not_late(facts, promises, life, since)
    })
}

fn not_early(
    facts: &Facts<'_>,
    origins: &Origins,
    promises: &Promises,
    life: &Life,
    since: usize,
) -> Result<(), Violation> {
    // The leader stamps an entry when it proposes it. Only a client's request says when that was at
    // the earliest.
    let (Some(reaped), Origin::Operation(operation)) = (life.reaped, origins.of_entry[since]) else { return Ok(()) };
    let asked = facts.operation(operation);
    let since_us = facts.history.clock_at(asked.invoked.us, promises.unnoticed_us);
    let reaped_us = facts.entries[reaped].at.us;
    let may_jump_us = still_us(facts, promises, since_us, reaped_us);
    let leaderless_us = leaderless_us(facts, promises, since_us, reaped_us);
    if reaped_us + may_jump_us >= since_us + promises.shortest_us(life.ttl.ttl_ms * 1000 + leaderless_us) {
        return Ok(());
    }
    Err(Violation::of("a TTL znode lives for its time without children and new data")
        .and(described(life, since_us, reaped_us))
        .and(format!("time in which no server led: {} ms", leaderless_us / 1000))
        .and("its time counts from:")
        .and_operation(facts.history, operation))
}

/// Returns for how long ensemble time stands still in this period because no server leads.
///
/// A follower counts the time until it hears the last words of its leader. A server that believes
/// to lead counts it as well.
fn leaderless_us(facts: &Facts<'_>, promises: &Promises, from_us: u64, to_us: u64) -> u64 {
    let mut leading: Vec<_> = facts.history.leading.values().flatten().copied().collect();
    leading.sort_unstable_by_key(|span| span.from_us);
    let (mut led_until_us, mut still_us) = (from_us, 0);
    for span in leading.into_iter().chain([Span { from_us: to_us, to_us }]) {
        let gap_us = span.from_us.min(to_us).saturating_sub(led_until_us);
        still_us += gap_us.saturating_sub(promises.last_words_us);
        led_until_us = led_until_us.max(span.to_us);
    }
    still_us
}

/// Returns by how much ensemble time may jump ahead in this period.
///
/// A clock that stands still unnoticed jumps to true time afterwards. A learner that took ensemble
/// time over meanwhile is then ahead by the jump, and so are its entries if it leads next.
fn still_us(facts: &Facts<'_>, promises: &Promises, from_us: u64, to_us: u64) -> u64 {
    let spans = facts.history.standing_still.values().flatten();
    let is_unnoticed = |span: &&Span| {
        span.from_us <= to_us && span.to_us >= from_us && span.to_us - span.from_us <= promises.unnoticed_us
    };
    spans.filter(is_unnoticed).map(|span| span.to_us - span.from_us).sum()
}

fn not_late(facts: &Facts<'_>, promises: &Promises, life: &Life, since: usize) -> Result<(), Violation> {
    let Some(reap_us) = promises.reap_us else { return Ok(()) };
    let (since_us, ended_us) = (facts.entries[since].at.us, facts.history.ended.us);
    let until_us = life.reaped.map_or(ended_us, |reaped| facts.entries[reaped].at.us);
    let life_us = promises.longest_us(life.ttl.ttl_ms * 1000) + reap_us;
    let is_late = facts.history.healthy.iter().any(|span| {
        let (from_us, to_us) = (span.from_us.max(since_us), span.to_us.min(until_us));
        from_us.saturating_add(life_us + refused_us(facts, from_us, to_us)) < to_us
    });
    if !is_late {
        return Ok(());
    }
    Err(Violation::of("a TTL znode is deleted soon after its time").and(described(life, since_us, until_us)))
}

/// Returns for how long ensemble time may stand still in this period because the leader refuses writes.
fn refused_us(facts: &Facts<'_>, from_us: u64, to_us: u64) -> u64 {
    let within = |span: &Span| span.to_us.min(to_us).saturating_sub(span.from_us.max(from_us));
    facts.history.leader_refusing.iter().map(within).sum()
}

fn described(life: &Life, since_us: u64, until_us: u64) -> String {
    format!(
        "{} with a time to live of {} ms, counted from {} at {}.{:06} s, existed until {}.{:06} s",
        life.path,
        life.ttl.ttl_ms,
        life.ttl.since_zxid,
        since_us / 1_000_000,
        since_us % 1_000_000,
        until_us / 1_000_000,
        until_us % 1_000_000
    )
}
