//! The lines of this shell: zkCli's `history` and `redo`.

/// Number of lines that `history` lists besides itself.
const LISTED: usize = 10;

/// The lines that were typed, numbered from 0.
#[derive(Default, Debug)]
pub(super) struct Lines(Vec<String>);

impl Lines {
    pub(super) fn add(&mut self, line: &str) {
        self.0.push(line.to_owned());
    }

    /// Returns the number of the next line.
    pub(super) fn count(&self) -> usize {
        self.0.len()
    }

    pub(super) fn get(&self, number: usize) -> Option<&str> {
        self.0.get(number).map(String::as_str)
    }

    /// Replaces `redo N` by the line that it repeats.
    pub(super) fn replace_last(&mut self, line: &str) {
        if let Some(last) = self.0.last_mut() {
            line.clone_into(last);
        }
    }

    /// Returns the last lines with their numbers, up to the present one.
    pub(super) fn recent(&self) -> Vec<(usize, String)> {
        let first = self.0.len().saturating_sub(LISTED + 1);
        self.0.iter().enumerate().skip(first).map(|(number, line)| (number, line.clone())).collect()
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
}
