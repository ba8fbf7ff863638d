//! `zoolet completions`: completion scripts for shells, generated from the help.

mod bash;
mod fish;
mod zsh;

use super::bench::{Distribution, Op};
use super::recipes::{NAMINGS, Signal};
use super::{Exit, help, say};
use zoolet::config::Network;
use zoolet_profiles::Axis;

/// A shell for which there are completions.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Shell {
    Bash,
    Zsh,
    Fish,
}

impl Shell {
    pub(super) const ALL: [Self; 3] = [Self::Bash, Self::Zsh, Self::Fish];

    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Bash => "bash",
            Self::Zsh => "zsh",
            Self::Fish => "fish",
        }
    }
}

pub(super) fn completions(shell: Shell) -> Result<(), Exit> {
    let commands = help::commands();
    say(&match shell {
        Shell::Bash => bash::text(&commands),
        Shell::Zsh => zsh::text(&commands),
        Shell::Fish => fish::text(&commands),
    })
}

/// Completions for a placeholder of the help.
#[derive(PartialEq, Eq, Debug)]
enum Candidates {
    /// Any text; nothing can be offered.
    Unknown,
    Files,
    Directories,
    Words(Vec<String>),
    WordsOrFiles(Vec<String>),
}

impl Candidates {
    /// Returns the completions of a placeholder; `None` if it is unknown.
    fn of(noun: &str) -> Option<Self> {
        let words = |words: &[&str]| Self::Words(words.iter().map(|&word| word.to_owned()).collect());
        Some(match noun {
            "ADDR" | "HOST:PORT" | "HOST:PORT,.." | "N" | "PATH" | "PORT" | "SIZE" | "TIME" => Self::Unknown,
            "FILE" => Self::Files,
            "DIR" => Self::Directories,
            "NAME" => Self::WordsOrFiles(profiles()),
            "FORMAT" => words(&["text", "json"]),
            "HOW" => words(&Distribution::ALL.map(Distribution::name)),
            "LEVEL" => words(&["error", "warn", "info", "debug", "trace"]),
            "NAMING" => words(&NAMINGS.map(|(name, _)| name)),
            "NETWORK" => words(&Network::ALL.map(Network::name)),
            "OP" => words(&Op::ALL.map(Op::name)),
            "SIGNAL" => words(&Signal::ALL.map(Signal::name)),
            "SHELL" => words(&Shell::ALL.map(Shell::name)),
            _ => return None,
        })
    }
}

/// Returns every `media/memory`, and the boards.
fn profiles() -> Vec<String> {
    let parts = |axis| zoolet_profiles::parts(axis).unwrap_or_default();
    let memories = parts(Axis::Memory);
    let mut all: Vec<String> = Vec::new();
    for media in parts(Axis::Media) {
        all.extend(memories.iter().map(|memory| format!("{}/{}", media.name, memory.name)));
    }
    all.extend(zoolet_profiles::boards().unwrap_or_default().into_iter().map(|board| board.name.to_owned()));
    all
}

/// Returns each first word of two-word commands, with the second words.
fn families(commands: &[help::Command]) -> Vec<(String, Vec<String>)> {
    let seconds = |first: &str| -> Vec<String> {
        let pairs = commands.iter().filter_map(|command| command.words.split_once(' '));
        pairs.filter(|pair| pair.0 == first).map(|pair| pair.1.to_owned()).collect()
    };
    let families = help::names().into_iter().map(|first| (seconds(&first), first));
    families.filter(|(seconds, _)| !seconds.is_empty()).map(|(seconds, first)| (first, seconds)).collect()
}

/// Returns the beginning of a description, to fit one line of a menu.
fn brief(says: &str) -> &str {
    let end = ["; ", ": "].iter().filter_map(|mark| says.find(mark)).min();
    &says[..end.unwrap_or(says.len())]
}

#[cfg(test)]
mod tests {
    use super::super::args;
    use super::*;

    fn refusal(words: &[&str]) -> Option<String> {
        args::parse(lexopt::Parser::from_args(words)).err().map(|exit| exit.line)
    }

    /// The converse, that the command line accepts nothing else, holds because [`args`] asks the
    /// help.
    #[test]
    fn command_line_accepts_every_command_and_option_of_the_help() {
        for command in help::commands() {
            let words: Vec<&str> = command.words.split(' ').collect();
            let first = refusal(&words).unwrap_or_default();
            assert!(!first.starts_with("command = "), "{first}");
            for option in &command.options {
                let flag = format!("--{}", option.name);
                let alone = refusal(&[&words[..], &[flag.as_str()]].concat()).unwrap_or_default();
                assert!(!alone.contains("invalid option"), "{}: {alone}", command.words);
                assert_eq!(
                    alone.contains(": its value is missing; "),
                    !option.value.is_empty(),
                    "{}: {alone}",
                    command.words
                );
            }
        }
    }

    #[test]
    fn command_line_accepts_exactly_the_completed_values() {
        for command in help::commands() {
            let words: Vec<&str> = command.words.split(' ').collect();
            if !command.argument.is_empty() {
                assert!(Candidates::of(command.argument).is_some(), "{}: {}", command.words, command.argument);
            }
            for option in command.options.iter().filter(|option| !option.value.is_empty()) {
                let candidates = Candidates::of(option.value);
                let flag = format!("--{}", option.name);
                let refused = |value: &str| {
                    let argument: &[&str] = if command.argument.is_empty() { &[] } else { &["x"] };
                    let line = refusal(&[&words[..], argument, &[flag.as_str(), value]].concat());
                    line.is_some_and(|line| line.starts_with(&flag))
                };
                match candidates {
                    Some(Candidates::Words(words)) => {
                        for word in &words {
                            assert!(!refused(word), "{} {flag} {word}", command.words);
                        }
                        assert!(refused("none-of-them"), "{} {flag}", command.words);
                    }
                    Some(_) => {}
                    None => panic!("{} {flag} {}: what completes that?", command.words, option.value),
                }
            }
        }
    }

    #[test]
    fn every_completed_profile_exists() {
        let profiles = profiles();
        assert!(
            profiles.iter().any(|name| name == "emmc/512m") && profiles.iter().any(|name| name == "raspberry-pi-4")
        );
        for name in profiles {
            assert!(zoolet::config::profile_defaults::find(&name, None).is_ok(), "{name}");
        }
    }
}
