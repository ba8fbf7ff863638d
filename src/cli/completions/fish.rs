//! The completion script for fish.

use super::super::help::{self, Command};
use super::{Candidates, brief, families};
use std::fmt::Write;

/// Whether `--` precedes the completed word, and whether it is the word just before.
const AFTER_DASHES: &str = "contains -- -- (commandline -opc)";
const AT_COMMAND: &str = "test (commandline -opc)[-1] = --";

pub(super) fn text(commands: &[Command]) -> String {
    let mut text =
        String::from("# zoolet completions fish > ~/.config/fish/completions/zoolet.fish\ncomplete -c zoolet -f\n");
    for name in help::names() {
        let first = commands.iter().find(|command| command.words.split(' ').next() == Some(&name));
        let says = first.map_or("", |command| brief(command.says));
        _ = writeln!(text, "complete -c zoolet -n __fish_use_subcommand -a {name} -d {}", quoted(says));
    }
    text.push_str("complete -c zoolet -n __fish_use_subcommand -l version\ncomplete -c zoolet -l help\n");
    for (first, seconds) in families(commands) {
        let seconds = seconds.join(" ");
        let when = format!("__fish_seen_subcommand_from {first}; and not __fish_seen_subcommand_from {seconds}");
        _ = writeln!(text, "complete -c zoolet -n '{when}' -a '{seconds}'");
    }
    for command in commands {
        let seen: Vec<String> =
            command.words.split(' ').map(|word| format!("__fish_seen_subcommand_from {word}")).collect();
        let mut when = seen.join("; and ");
        if command.runs {
            _ = writeln!(
                text,
                "complete -c zoolet -n '{when}; and {AFTER_DASHES}' -F\n\
                 complete -c zoolet -n '{when}; and {AT_COMMAND}' -a '(__fish_complete_command)'"
            );
            _ = write!(when, "; and not {AFTER_DASHES}");
        }
        for option in &command.options {
            let value = if option.value.is_empty() { String::new() } else { format!(" -r{}", offers(option.value)) };
            let says = quoted(brief(option.says));
            _ = writeln!(text, "complete -c zoolet -n '{when}' -l {}{value} -d {says}", option.name);
        }
        if !command.argument.is_empty() {
            _ = writeln!(text, "complete -c zoolet -n '{when}'{}", offers(command.argument));
        }
    }
    text
}

/// Returns the flags that offer values: `-f` suppresses files, and `-F` allows them again.
fn offers(noun: &str) -> String {
    match Candidates::of(noun) {
        Some(Candidates::Files) => " -F".to_owned(),
        Some(Candidates::Directories) => " -f -a '(__fish_complete_directories)'".to_owned(),
        Some(Candidates::Words(words)) => format!(" -f -a '{}'", words.join(" ")),
        Some(Candidates::WordsOrFiles(words)) => format!(" -F -a '{}'", words.join(" ")),
        Some(Candidates::Unknown) | None => " -f".to_owned(),
    }
}

fn quoted(text: &str) -> String {
    format!("'{}'", text.replace('\\', "\\\\").replace('\'', "\\'"))
}
