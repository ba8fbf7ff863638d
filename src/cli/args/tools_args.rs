//! The commands that no server needs: measurements, trials, and texts to print.

use super::{
    Arguments, Exit, Variables, bench_args, ensemble_args, probe_args, profile_args, quantity, recipes_args, unknown,
};
use crate::cli::completions::Shell;
use std::ffi::OsString;
use std::ops::RangeInclusive;
use std::path::PathBuf;
use zoolet_profiles::Unit;

/// A parsed command of the feature `tools`.
pub(in crate::cli) enum Tool {
    Bench(crate::cli::bench::Options),
    Ensemble(crate::cli::ensemble::Options),
    Profile(crate::cli::profile_command::What),
    Probe(crate::cli::probe::Options),
    /// The part of `probe` that writes, in a separate process.
    Measure(PathBuf),
    Shell(crate::cli::shell::Options),
    ConfigExample,
    Completions(Shell),
    Recipe(crate::cli::recipes::Options),
    /// Becomes the command of a recipe.
    StartCommand(Vec<OsString>),
    /// Ends the command of a recipe whose process cannot.
    WatchCommand(Vec<OsString>),
}

pub(super) fn named(arguments: &Arguments, variables: &Variables) -> Result<Tool, Exit> {
    use crate::cli::profile_command::What;
    Ok(match arguments.words() {
        "bench" => Tool::Bench(bench_args::bench(arguments, variables)?),
        "ensemble" => Tool::Ensemble(ensemble_args::ensemble(arguments)?),
        "profile list" => Tool::Profile(What::List),
        "profile show" => Tool::Profile(What::Show(profile_args::chosen(arguments, arguments.has("json"))?)),
        "profile check" => Tool::Profile(What::Check(profile_args::chosen(arguments, false)?)),
        "probe" => Tool::Probe(probe_args::probe(arguments)?),
        "config example" => Tool::ConfigExample,
        "lock" | "elect" | "semaphore" | "barrier close" | "barrier open" | "barrier wait" | "barrier meet"
        | "queue put" | "queue take" => Tool::Recipe(recipes_args::named(arguments, variables)?),
        "completions" => Tool::Completions(shell(arguments.argument())?),
        words => return Err(unknown(words)),
    })
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

/// Parses a size, in bytes.
pub(super) fn size(option: &str, text: &str, allowed: RangeInclusive<u64>, example: u64) -> Result<usize, Exit> {
    let bytes = quantity(option, text, Unit::Bytes, allowed, example)?;
    Ok(usize::try_from(bytes).unwrap_or(usize::MAX))
}

fn shell(text: &str) -> Result<Shell, Exit> {
    let shell = Shell::ALL.into_iter().find(|shell| shell.name() == text);
    shell.ok_or_else(|| Exit::usage(format!("completions = {text}: allowed is bash, zsh or fish")))
}

#[cfg(test)]
mod tests {
    use super::super::parse;

    #[test]
    fn incomplete_two_word_command_lists_its_second_words() {
        for (words, line) in [
            (&["config"][..], "config: allowed is config example"),
            (&["config", "exmaple"], "config exmaple: no such command; did you mean config example?"),
            (&["profile"], "profile: allowed is profile list, profile show NAME, profile check FILE"),
            (&["profile", "--json"], "profile: allowed is profile list, profile show NAME, profile check FILE"),
            (&["unit", "openrc"], "unit openrc: no such command; allowed is unit systemd, unit procd"),
            (&["completions"], "completions: SHELL is missing; write zoolet completions SHELL: print the completion"),
            (&["completions", "ksh"], "completions = ksh: allowed is bash, zsh or fish"),
            (&["profile", "show", "a", "b"], "profile show: unexpected argument 'b'; see zoolet profile show --help"),
        ] {
            let refused = parse(lexopt::Parser::from_args(words)).err().unwrap();
            assert!(refused.code == 2 && refused.line.starts_with(line), "{words:?} gave {}", refused.line);
        }
    }
}
