//! The words of one command, read by its row of the table.

use super::failure::Failure;
use super::table::{Command, dashed};
use super::znode_path;
use std::str::FromStr;
use zoolet_model::Text;

/// The options and the operands of one command.
///
/// Options may stand anywhere. Single letters may be joined (`-sR`), a value may follow its letter
/// (`-v3`), and `--` ends the options.
pub(super) struct Arguments {
    pub(super) command: &'static Command,
    options: Vec<(&'static str, String)>,
    operands: Vec<String>,
}

impl Arguments {
    /// Reads the words behind a command's name.
    ///
    /// A word such as -5 that is no option is an operand, since data may be a negative number.
    ///
    /// # Errors
    /// A word begins with a dash and is no option, the value of an option is missing, a flag has one, or
    /// an option with a value is given twice.
    /// A command of this shell has more operands than its usage.
    pub(super) fn read(command: &'static Command, words: &[String]) -> Result<Self, Failure> {
        let mut arguments = Self { command, options: Vec::new(), operands: Vec::new() };
        let mut words = words.iter();
        while let Some(word) = words.next() {
            match word.strip_prefix('-') {
                Some("-") => arguments.operands.extend(words.by_ref().cloned()),
                None | Some("") => arguments.operands.push(word.clone()),
                Some(name) => arguments.option(word, name, &mut words)?,
            }
        }
        if let Some(name) = arguments.repeated() {
            return Err(Failure::Text(format!("{} is given twice; give it once", dashed(name))));
        }
        match command.operands_max().and_then(|count| arguments.get(count)) {
            Some(surplus) => Err(Failure::Text(format!(
                "unexpected word {surplus}; quotes group words with spaces\n{}",
                command.line()
            ))),
            None => Ok(arguments),
        }
    }

    /// Returns an option with a value that is given twice.
    fn repeated(&self) -> Option<&'static str> {
        let with_value = |name: &str| self.command.option(name).is_some_and(|choice| !choice.value.is_empty());
        let mut names = self.options().filter(|name| with_value(name));
        names.find(|name| self.options().filter(|other| other == name).count() > 1)
    }

    fn option<'a>(
        &mut self,
        word: &str,
        name: &str,
        words: &mut impl Iterator<Item = &'a String>,
    ) -> Result<(), Failure> {
        let letters = name.trim_start_matches('-');
        let (name, given) = letters.split_once('=').map_or((letters, None), |(name, value)| (name, Some(value)));
        if let Some(choice) = self.command.option(name) {
            let value = if choice.value.is_empty() {
                if given.is_some() {
                    return Err(unrecognized(word));
                }
                String::new()
            } else {
                let next = given.map(str::to_owned).or_else(|| words.next().cloned());
                next.ok_or_else(|| missing(choice.name))?
            };
            self.options.push((choice.name, value));
            return Ok(());
        }
        if let Some(joined) = self.joined(letters, words)? {
            self.options.extend(joined);
            return Ok(());
        }
        if name.starts_with(|first: char| first.is_ascii_digit()) {
            self.operands.push(word.to_owned());
            return Ok(());
        }
        Err(unrecognized(word))
    }

    /// Reads joined letters; `None` if one of them is no option.
    fn joined<'a>(
        &self,
        letters: &str,
        words: &mut impl Iterator<Item = &'a String>,
    ) -> Result<Option<Vec<(&'static str, String)>>, Failure> {
        let mut options = Vec::new();
        for (at, letter) in letters.char_indices() {
            let Some(choice) = self.command.option(letter.encode_utf8(&mut [0; 4])) else { return Ok(None) };
            if choice.value.is_empty() {
                options.push((choice.name, String::new()));
                continue;
            }
            let rest = &letters[at + letter.len_utf8()..];
            let value = if rest.is_empty() { words.next().cloned() } else { Some(rest.to_owned()) };
            options.push((choice.name, value.ok_or_else(|| missing(choice.name))?));
            break;
        }
        Ok(Some(options))
    }

    /// Returns whether an option is given.
    pub(super) fn has(&self, name: &str) -> bool {
        self.value(name).is_some()
    }

    /// Returns the value of an option; empty for a flag.
    pub(super) fn value(&self, name: &str) -> Option<&str> {
        debug_assert!(self.command.option(name).is_some(), "{}: no option -{name} in the table", self.command.name);
        self.options.iter().rev().find(|(known, _)| *known == name).map(|(_, value)| value.as_str())
    }

    /// Returns the options in the order in which they were given.
    pub(super) fn options(&self) -> impl Iterator<Item = &'static str> + '_ {
        self.options.iter().map(|(name, _)| *name)
    }

    /// Parses the value of an option.
    ///
    /// # Errors
    /// `complaint`, if the value does not parse.
    pub(super) fn parsed<T: FromStr>(&self, name: &str, complaint: &str) -> Result<Option<T>, Failure> {
        let parse = |text: &str| text.parse().map_err(|_| Failure::text(complaint));
        self.value(name).map(parse).transpose()
    }

    /// Returns the version of option -v; -1, which matches any, without the option.
    ///
    /// # Errors
    /// The value is no whole number.
    pub(super) fn version(&self) -> Result<i32, Failure> {
        Ok(self.parsed("v", "-v must be followed by an int (version)")?.unwrap_or(-1))
    }

    /// Returns the number of operands.
    pub(super) fn count(&self) -> usize {
        self.operands.len()
    }

    /// Returns an operand; the first is 0.
    pub(super) fn get(&self, at: usize) -> Option<&str> {
        self.operands.get(at).map(String::as_str)
    }

    /// Returns an operand that must be there.
    ///
    /// # Errors
    /// The operand is missing: the command's usage.
    pub(super) fn word(&self, at: usize) -> Result<&str, Failure> {
        self.get(at).ok_or_else(|| self.usage())
    }

    /// Returns the failure of a command with a missing or wrong word.
    pub(super) fn usage(&self) -> Failure {
        Failure::Usage(self.command.line())
    }

    /// Returns an operand that is the path of a znode.
    ///
    /// # Errors
    /// The operand is missing, or no path.
    pub(super) fn path(&self, at: usize) -> Result<Text, Failure> {
        let path = self.word(at)?;
        znode_path::check(path).map_err(Failure::Text)?;
        Ok(path.into())
    }
}

fn unrecognized(word: &str) -> Failure {
    Failure::Text(format!("Unrecognized option: {word}"))
}

fn missing(name: &str) -> Failure {
    Failure::Text(format!("Missing argument for option: {name}"))
}

#[cfg(test)]
mod tests {
    use super::super::table;
    use super::*;

    fn read(line: &str) -> Result<Arguments, Failure> {
        let words = super::super::words::split(line);
        Arguments::read(table::find(&words[0]).unwrap(), &words[1..])
    }

    #[test]
    fn options_may_stand_anywhere_and_letters_may_be_joined() {
        for line in ["set -s -v 3 /a x", "set /a x -sv3", "set /a -v3 x -s", "set -sv 3 /a x", "set -v=3 -s /a x"] {
            let arguments = read(line).unwrap();
            assert!(arguments.has("s"), "{line}");
            assert_eq!(arguments.value("v"), Some("3"), "{line}");
            assert_eq!((arguments.get(0), arguments.get(1), arguments.count()), (Some("/a"), Some("x"), 2), "{line}");
        }
    }

    #[test]
    fn negative_numbers_are_data_and_two_dashes_end_the_options() {
        assert_eq!(read("set /a -5").unwrap().get(1), Some("-5"));
        assert_eq!(read("set /a -- -s").unwrap().get(1), Some("-s"));
        assert_eq!(read("set /a -").unwrap().get(1), Some("-"));
        let wrong = |line| read(line).err().unwrap().message();
        assert_eq!(wrong("set /a -q"), "Unrecognized option: -q");
        assert_eq!(wrong("set /a -sq"), "Unrecognized option: -sq");
        assert_eq!(wrong("set /a x -v"), "Missing argument for option: v");
        assert_eq!(read("set /a x -v y").unwrap().version().unwrap_err().exit_code(), 1);
    }

    #[test]
    fn flag_takes_no_value() {
        let wrong = |line| read(line).err().unwrap().message();
        assert_eq!(wrong("import --replace=false f /a"), "Unrecognized option: --replace=false");
        assert_eq!(wrong("import --dry-run= f /a"), "Unrecognized option: --dry-run=");
        assert_eq!(wrong("ls -R=false /a"), "Unrecognized option: -R=false");
        assert_eq!(wrong("ls -sR=false /a"), "Unrecognized option: -sR=false");
    }

    #[test]
    fn option_with_a_value_is_given_once() {
        let wrong = |line| read(line).err().unwrap().message();
        assert_eq!(wrong("get -o one -o two /a"), "-o is given twice; give it once");
        assert_eq!(wrong("set -v 1 -v2 /a x"), "-v is given twice; give it once");
        assert_eq!(wrong("find --name a --name b /"), "--name is given twice; give it once");
        assert!(read("ls -s -s /a").is_ok());
    }

    #[test]
    fn surplus_words_are_refused_by_the_commands_of_this_shell() {
        for line in ["mv /a /b /c", "cp -r /a /b /c", "import f /a /b", "export -o f /a /b", "tree /a -- -d"] {
            let surplus = line.rsplit(' ').next().unwrap();
            let refused = read(line).err().unwrap();
            let expected = format!("unexpected word {surplus}; quotes group words with spaces\n");
            assert!(refused.exit_code() == 1 && refused.message().starts_with(&expected), "{line}");
        }
        assert!(read("find --name x /a").is_ok() && read("diff /a file:f").is_ok() && read("tree").is_ok());
        // zkCli ignores them.
        assert_eq!(read("deleteall /a /b").unwrap().count(), 2);
    }

    #[test]
    fn missing_operand_is_answered_by_the_usage() {
        let arguments = read("set /a").unwrap();
        assert_eq!(arguments.word(1), Err(Failure::Usage("set [-s] [-v version] [-b] path data".to_owned())));
        assert_eq!(read("ls a").unwrap().path(0), Err(Failure::text("Path must start with / character")));
    }
}
