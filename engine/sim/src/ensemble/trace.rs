//! The last events of a run, for people.

use std::collections::VecDeque;
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// Maximum characters of a line; longer lines hold clients' data and are cut.
const LINE_CHARS_MAX: usize = 240;

/// The last lines of a run.
///
/// Clones share the lines, so that they outlive a run that panics. A trace that is off records
/// nothing and formats no text. A seed repeats exactly, so a reader can run it again with the trace
/// on.
#[derive(Clone, Debug, Default)]
pub struct Trace(Option<Arc<Mutex<Ring>>>);

#[derive(Debug)]
struct Ring {
    lines: VecDeque<String>,
    lines_max: usize,
    forgotten: u64,
}

impl Trace {
    /// Returns a trace that records nothing.
    pub fn off() -> Self {
        Self(None)
    }

    /// Returns a trace that keeps the last `lines_max` lines.
    pub fn last(lines_max: usize) -> Self {
        Self(Some(Arc::new(Mutex::new(Ring { lines: VecDeque::new(), lines_max, forgotten: 0 }))))
    }

    /// Returns whether the trace records lines.
    pub fn is_on(&self) -> bool {
        self.0.is_some()
    }

    /// Records a line: time, actor and text. `text` is called only if the trace is on.
    pub fn note<T: fmt::Display>(&self, now_us: u64, who: impl fmt::Display, text: impl FnOnce() -> T) {
        let Some(mut ring) = self.ring() else { return };
        if ring.lines.len() == ring.lines_max {
            ring.lines.pop_front();
            ring.forgotten += 1;
        }
        let mut line = format!("{:>4}.{:06} {who:<4} {}", now_us / 1_000_000, now_us % 1_000_000, text());
        if let Some((end, _)) = line.char_indices().nth(LINE_CHARS_MAX) {
            line.truncate(end);
            line.push_str("...");
        }
        ring.lines.push_back(line);
    }

    fn ring(&self) -> Option<MutexGuard<'_, Ring>> {
        self.0.as_ref().map(|ring| ring.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

impl fmt::Display for Trace {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Some(ring) = self.ring() else { return Ok(()) };
        if ring.forgotten > 0 {
            writeln!(f, "... {} earlier lines", ring.forgotten)?;
        }
        ring.lines.iter().try_for_each(|line| writeln!(f, "{line}"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn trace_keeps_the_last_lines_and_formats_none_when_off() {
        let trace = Trace::last(2);
        for number in 0..4u64 {
            trace.note(number * 1_500_000, "s1", || format!("line {number}"));
        }
        assert_eq!(trace.to_string(), "... 2 earlier lines\n   3.000000 s1   line 2\n   4.500000 s1   line 3\n");
        let off = Trace::off();
        off.note(0, "s1", || -> String { unreachable!("nobody reads") });
        assert_eq!((off.to_string(), off.is_on()), (String::new(), false));
    }
}
