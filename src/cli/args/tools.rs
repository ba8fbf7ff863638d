//! The commands that no server needs: measurements, trials, and texts to print.

use super::{Command, Exit, alone, bench, ensemble, next, probe, profile, unknown};
use crate::cli::completions::Shell;
use lexopt::prelude::{Long, Short, Value};
use std::ops::RangeInclusive;
use std::path::PathBuf;

/// A parsed command of the feature `tools`.
pub(in crate::cli) enum Tool {
    Bench(crate::cli::bench::Options),
    Ensemble(crate::cli::ensemble::Options),
    Profile(crate::cli::profile::What),
    Probe(crate::cli::probe::Options),
    /// The part of `probe` that writes, in a separate process.
    Measure(PathBuf),
    ConfigExample,
    Completions(Shell),
}

pub(super) fn named(name: &str, parser: &mut lexopt::Parser) -> Result<Command, Exit> {
    let tool = match name {
        "bench" => return bench::bench(parser),
        "ensemble" => return ensemble::ensemble(parser),
        "profile" => return profile::profile(parser),
        "probe" => return probe::probe(parser),
        "config" => match next(parser, name)? {
            Some(Value(what)) if what == "example" => Tool::ConfigExample,
            Some(Long("help") | Short('h')) => return Ok(Command::Help),
            _ => return Err(Exit::usage("config: allowed is config example")),
        },
        "completions" => match next(parser, name)? {
            Some(Value(shell)) => Tool::Completions(self::shell(&shell.to_string_lossy())?),
            Some(Long("help") | Short('h')) => return Ok(Command::Help),
            _ => {
                return Err(Exit::usage("completions: allowed is completions bash, completions zsh, completions fish"));
            }
        },
        _ => return Err(unknown(name)),
    };
    alone(name, Command::Tool(tool), parser)
}

pub(super) fn number<T: TryFrom<u64>>(option: &str, text: &str, allowed: RangeInclusive<u64>) -> Result<T, Exit> {
    let number = text.parse().ok().filter(|number| allowed.contains(number));
    number.and_then(|number| T::try_from(number).ok()).ok_or_else(|| {
        Exit::usage(format!(
            "--{option} = {text}: allowed is a whole number from {} to {}",
            allowed.start(),
            allowed.end()
        ))
    })
}

fn shell(text: &str) -> Result<Shell, Exit> {
    let shell = Shell::ALL.into_iter().find(|shell| shell.name() == text);
    shell.ok_or_else(|| Exit::usage(format!("completions = {text}: allowed is bash, zsh or fish")))
}

#[cfg(test)]
mod tests {
    use super::super::parse;

    #[test]
    fn a_command_of_two_words_names_the_second() {
        let refused = parse(lexopt::Parser::from_args(["config"])).err().unwrap();
        assert_eq!((refused.code, refused.line.as_str()), (2, "config: allowed is config example"));
    }
}
