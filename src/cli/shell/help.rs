//! The help of the shell, from the table of commands.

use super::table::{self, Command, Origin};
use std::fmt::Write;

/// Returns a line for each command.
pub(super) fn overview() -> String {
    let width = table::all().map(|command| command.name.len()).max().unwrap_or(0);
    let mut text = String::new();
    for command in table::all() {
        _ = writeln!(text, "{:width$}  {}", command.name, command.says);
    }
    text + "\nhelp COMMAND explains its options. Tab completes commands, options and paths.\n"
}

/// Returns the usage of a command and its options.
pub(super) fn of(command: &Command) -> String {
    let mut says = command.says.to_owned();
    if let Some(first) = says.get_mut(..1) {
        first.make_ascii_uppercase();
    }
    let usage = command.line();
    let mut text = format!("{}\n{says}.\n", usage.trim_end());
    let width = command.options.iter().map(|choice| choice.usage().len()).max().unwrap_or(0);
    for choice in command.options {
        _ = writeln!(text, "  {:width$}  {}", choice.usage(), choice.says);
    }
    if !command.better.is_empty() {
        _ = writeln!(text, "Unlike zkCli: {}.", command.better.replace('`', ""));
    }
    match command.origin {
        Origin::ZooKeeper | Origin::Zoolet => {}
        Origin::OldZooKeeper(newer) => _ = writeln!(text, "An old form of ZooKeeper 3.4; newer scripts use {newer}."),
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn help_lists_every_command_and_explains_its_options() {
        let all = overview();
        for command in table::all() {
            assert!(all.lines().any(|line| line.starts_with(&format!("{} ", command.name))), "{}", command.name);
            let one = of(command);
            assert!(one.starts_with(command.line().trim_end()), "{one}");
            assert!(command.options.iter().all(|choice| one.contains(&choice.usage())), "{one}");
        }
    }

    #[test]
    fn help_of_an_old_form_names_the_command_that_replaces_it() {
        for (old, newer) in [("rmr", "deleteall"), ("ls2", "ls -s")] {
            let text = of(table::find(old).unwrap());
            assert!(text.ends_with(&format!("newer scripts use {newer}.\n")), "{text}");
        }
    }
}
