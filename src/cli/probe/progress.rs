//! Shows progress on stderr: a changing line on a terminal, few lines elsewhere.

use std::io::{IsTerminal, Write};
use std::time::{Duration, Instant};

/// Minimum time between two changes on a terminal.
const CHANGE_EVERY: Duration = Duration::from_millis(100);
/// Minimum time before each line elsewhere; a shorter run prints none.
const LINE_EVERY: Duration = Duration::from_secs(5);

pub(super) struct Progress {
    to: Box<dyn Write>,
    is_terminal: bool,
    every: Duration,
    next: Instant,
    /// Whether the progress line is on the terminal.
    is_shown: bool,
}

impl Progress {
    pub(super) fn new() -> Self {
        let (stderr, now) = (std::io::stderr(), Instant::now());
        let is_terminal = stderr.is_terminal();
        let (every, next) = if is_terminal { (CHANGE_EVERY, now) } else { (LINE_EVERY, now + LINE_EVERY) };
        Self { to: Box::new(stderr), is_terminal, every, next, is_shown: false }
    }

    #[cfg(test)]
    pub(super) fn into(to: impl Write + 'static, is_terminal: bool) -> Self {
        let every = Duration::from_secs(3600);
        Self { to: Box::new(to), is_terminal, every, next: Instant::now(), is_shown: false }
    }

    /// Shows the progress in hundredths, and the current activity, unless the last display is
    /// recent.
    pub(super) fn show(&mut self, percent: u64, what: impl FnOnce() -> String) {
        let now = Instant::now();
        if now < self.next {
            return;
        }
        self.next = now + self.every;
        let what = what();
        if self.is_terminal {
            let _ = write!(self.to, "\r\x1b[K{percent:3} % {what}").and_then(|()| self.to.flush());
            self.is_shown = true;
        } else {
            self.say(&format!("{percent} % {what}"));
        }
    }

    /// Prints a line that stays.
    pub(super) fn say(&mut self, line: &str) {
        self.end();
        let _ = writeln!(self.to, "zoolet: {line}");
    }

    /// Clears the progress line of a terminal.
    pub(super) fn end(&mut self) {
        if std::mem::take(&mut self.is_shown) {
            let _ = write!(self.to, "\r\x1b[K").and_then(|()| self.to.flush());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::{Arc, Mutex};

    #[derive(Clone, Default)]
    struct Written(Arc<Mutex<Vec<u8>>>);

    impl Write for Written {
        fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
            self.0.lock().unwrap().extend_from_slice(bytes);
            Ok(bytes.len())
        }

        fn flush(&mut self) -> std::io::Result<()> {
            Ok(())
        }
    }

    #[test]
    fn progress_is_one_rewritten_line_or_a_few_lines_in_a_file() {
        for (is_terminal, expected) in
            [(true, "\r\x1b[K 42 % writing\r\x1b[Kzoolet: done\n"), (false, "zoolet: 42 % writing\nzoolet: done\n")]
        {
            let written = Written::default();
            let mut progress = Progress::into(written.clone(), is_terminal);
            progress.show(42, || "writing".to_owned());
            progress.show(43, || unreachable!("it is too soon"));
            progress.say("done");
            progress.end();
            assert_eq!(String::from_utf8(written.0.lock().unwrap().clone()).unwrap(), expected);
        }
    }
}
