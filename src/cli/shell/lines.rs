//! The lines of this shell: zkCli's `history` and `redo`.

use std::collections::VecDeque;

/// Number of lines that `history` lists besides itself.
const LISTED: usize = 10;
/// Lines that `redo` reaches, and their bytes: a script may have a gigabyte of them.
const LINES_MAX: usize = 1000;
const BYTES_MAX: usize = 1 << 20;

/// The last lines that were typed, numbered from 0.
#[derive(Default, Debug)]
pub(super) struct Lines {
    kept: VecDeque<String>,
    bytes: usize,
    /// Number of lines before the kept ones.
    dropped: usize,
}

impl Lines {
    pub(super) fn add(&mut self, line: &str) {
        self.kept.push_back(line.to_owned());
        self.bytes += line.len();
        // The present line stays, however long it is.
        while self.kept.len() > LINES_MAX || self.bytes > BYTES_MAX && self.kept.len() > 1 {
            let first = self.kept.pop_front();
            self.bytes -= first.map_or(0, |first| first.len());
            self.dropped += 1;
        }
    }

    /// Returns the number of the next line.
    pub(super) fn count(&self) -> usize {
        self.dropped + self.kept.len()
    }

    /// Returns a line; `None` for one that does not exist or is kept no more.
    pub(super) fn get(&self, number: usize) -> Option<&str> {
        self.kept.get(number.checked_sub(self.dropped)?).map(String::as_str)
    }

    /// Replaces `redo N` by the line that it repeats.
    pub(super) fn replace_last(&mut self, line: &str) {
        if let Some(last) = self.kept.back_mut() {
            self.bytes = self.bytes - last.len() + line.len();
            line.clone_into(last);
        }
    }

    /// Returns the last lines with their numbers, up to the present one.
    pub(super) fn recent(&self) -> Vec<(usize, String)> {
        let first = self.kept.len().saturating_sub(LISTED + 1);
        let numbered = self.kept.iter().enumerate().skip(first);
        numbered.map(|(place, line)| (self.dropped + place, line.clone())).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn history_lists_ten_lines_and_itself() {
        let mut lines = Lines::default();
        (0..20).for_each(|number| lines.add(&format!("ls /{number}")));
        let recent = lines.recent();
        assert_eq!((recent.len(), &recent[0], &recent[10]), (11, &(9, "ls /9".to_owned()), &(19, "ls /19".to_owned())));
        lines.replace_last("get /x");
        assert_eq!((lines.get(19), lines.get(20), lines.count()), (Some("get /x"), None, 20));
    }

    #[test]
    fn lines_of_a_long_script_are_kept_up_to_a_bound() {
        let mut lines = Lines::default();
        (0..5000).for_each(|number| lines.add(&format!("ls /{number}")));
        assert_eq!((lines.count(), lines.kept.len()), (5000, LINES_MAX));
        assert_eq!((lines.get(3999), lines.get(4000), lines.get(4999)), (None, Some("ls /4000"), Some("ls /4999")));
        assert_eq!(lines.recent()[0], (4989, "ls /4989".to_owned()));
        let large = format!("set /a {}", "x".repeat(BYTES_MAX));
        (0..3).for_each(|_| lines.add(&large));
        assert_eq!((lines.count(), lines.kept.len(), lines.get(5002)), (5003, 1, Some(large.as_str())));
        lines.replace_last("ls /");
        (0..2).for_each(|_| lines.add("ls /"));
        assert_eq!((lines.kept.len(), lines.bytes), (3, 12));
    }
}
