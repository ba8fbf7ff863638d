//! The table of the shell's commands: parsing, help, completion and the page in docs come from it.

use super::Shell;
use super::arguments::Arguments;
use super::commands;
use super::failure::Failure;
use super::output::Output;
use zoolet_profiles::nearest;

/// The tables of all files of commands, in the order of the help.
const TABLES: [&[Command]; 13] = [
    commands::znodes::TABLE,
    commands::changes::TABLE,
    commands::subtree::TABLE,
    commands::access::TABLE,
    commands::watching::TABLE,
    commands::quota::TABLE,
    commands::membership::TABLE,
    commands::searching::TABLE,
    commands::copying::TABLE,
    commands::comparing::TABLE,
    commands::archiving::TABLE,
    commands::following::TABLE,
    commands::itself::TABLE,
];

/// A command: a function from a session and arguments to structured output.
pub(super) type Run = fn(&mut Shell, &Arguments) -> Result<Output, Failure>;

/// One row of the table.
pub(super) struct Command {
    pub(super) name: &'static str,
    /// The words behind the name, as zkCli shows them.
    pub(super) usage: &'static str,
    pub(super) options: &'static [Choice],
    /// What it does, in one line.
    pub(super) says: &'static str,
    pub(super) origin: Origin,
    /// What completes its operands.
    pub(super) operands: Operands,
    /// Its advantage over zkCli's command; empty if there is none.
    pub(super) better: &'static str,
    pub(super) run: Run,
}

/// An option of a command.
pub(super) struct Choice {
    /// Its name without the dash: a letter, or a word.
    pub(super) name: &'static str,
    /// The placeholder of its value; empty for a flag.
    pub(super) value: &'static str,
    pub(super) says: &'static str,
}

/// Which program had a command first.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Origin {
    /// zkCli of ZooKeeper 3.9.
    ZooKeeper,
    /// zkCli of ZooKeeper 3.4; gone since. The text is the command that replaces it.
    OldZooKeeper(&'static str),
    /// This shell.
    Zoolet,
}

/// What completes the operands of a command.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Operands {
    Nothing,
    /// The first operand is the path of a znode.
    Path,
    /// Both operands are paths of znodes.
    Paths,
    /// Both operands are subtrees: the path of a znode, or `file:` with an exported file.
    Subtrees,
    /// The first operand is a file, the second the path of a znode.
    FileAndPath,
    /// The first operand is the name of a command.
    Command,
    Words(&'static [&'static str]),
}

/// What completes one operand.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Operand {
    Path,
    /// A path, or `file:` with a file.
    Subtree,
    File,
    Command,
    Words(&'static [&'static str]),
}

impl Operands {
    /// Returns what completes an operand; the first is 0.
    pub(super) fn at(self, place: usize) -> Option<Operand> {
        match (self, place) {
            (Self::Path, 0) | (Self::Paths, 0 | 1) | (Self::FileAndPath, 1) => Some(Operand::Path),
            (Self::Subtrees, 0 | 1) => Some(Operand::Subtree),
            (Self::FileAndPath, 0) => Some(Operand::File),
            (Self::Command, 0) => Some(Operand::Command),
            (Self::Words(known), 0) => Some(Operand::Words(known)),
            _ => None,
        }
    }
}

impl Command {
    /// Returns its line of usage, as zkCli prints it.
    pub(super) fn line(&self) -> String {
        format!("{} {}", self.name, self.usage)
    }

    /// Returns the number of operands that its usage names; `None` for zkCli's commands.
    ///
    /// Those ignore further words, as in zkCli. A command of this shell that ignored them would act on
    /// other znodes than the user means.
    pub(super) fn operands_max(&self) -> Option<usize> {
        let mut open_option = false;
        let is_operand = |word: &&str| {
            open_option |= word.starts_with("[-");
            let is_operand = !open_option;
            open_option &= !word.ends_with(']');
            is_operand
        };
        (self.origin == Origin::Zoolet).then(|| self.usage.split_whitespace().filter(is_operand).count())
    }

    /// Returns the option of this name.
    pub(super) fn option(&self, name: &str) -> Option<&'static Choice> {
        self.options.iter().find(|choice| choice.name == name)
    }
}

impl Choice {
    pub(super) const fn flag(name: &'static str, says: &'static str) -> Self {
        Self { name, value: "", says }
    }

    pub(super) const fn value(name: &'static str, value: &'static str, says: &'static str) -> Self {
        Self { name, value, says }
    }

    /// Returns the option as its user writes it, such as `-v VERSION`.
    pub(super) fn usage(&self) -> String {
        format!("{} {}", dashed(self.name), self.value).trim_end().to_owned()
    }
}

/// Returns the name of an option with its dashes.
pub(super) fn dashed(name: &str) -> String {
    format!("{}{name}", if name.len() == 1 { "-" } else { "--" })
}

/// Returns all commands, in the order of the help.
pub(super) fn all() -> impl Iterator<Item = &'static Command> {
    TABLES.into_iter().flatten()
}

/// Returns the command of this name.
pub(super) fn find(name: &str) -> Option<&'static Command> {
    all().find(|command| command.name == name)
}

/// Returns the command whose name resembles an unknown one.
pub(super) fn near(name: &str) -> Option<&'static str> {
    all()
        .map(|command| command.name)
        .find(|known| known.eq_ignore_ascii_case(name))
        .or_else(|| nearest(name, all().map(|command| command.name)))
}

/// Returns whether a word may be a mistyped `meant`.
pub(super) fn resembles(word: &str, meant: &str) -> bool {
    nearest(word, [meant]).is_some()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    #[test]
    fn each_row_has_a_unique_name_and_describes_itself() {
        let names: BTreeSet<_> = all().map(|command| command.name).collect();
        assert_eq!(names.len(), all().count());
        for command in all() {
            assert!(!command.says.is_empty() && !command.says.ends_with('.'), "{}", command.name);
            let options: BTreeSet<_> = command.options.iter().map(|choice| choice.name).collect();
            assert_eq!(options.len(), command.options.len(), "{}", command.name);
            assert!(command.options.iter().all(|choice| !choice.says.is_empty()), "{}", command.name);
        }
    }

    #[test]
    fn number_of_operands_is_that_of_the_usage() {
        let of_this_shell: Vec<_> =
            all().filter_map(|command| command.operands_max().map(|count| (command.name, count))).collect();
        let expected = [
            ("tree", 1),
            ("find", 1),
            ("cp", 2),
            ("mv", 2),
            ("diff", 2),
            ("export", 1),
            ("import", 2),
            ("watch", 1),
            ("help", 1),
        ];
        assert_eq!(of_this_shell, expected);
    }

    #[test]
    fn unknown_name_is_answered_by_a_similar_one() {
        assert_eq!((near("GET"), near("creat"), near("qqqqqqqq")), (Some("get"), Some("create"), None));
    }
}
