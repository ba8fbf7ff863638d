//! The completion script for bash.

use super::super::help::{self, Command};
use super::{Candidates, families};
use std::fmt::Write;

const BEGIN: &str = "\
# zoolet completions bash > /etc/bash_completion.d/zoolet
_zoolet() {
    local IFS=$' \\t\\n'
    local word=${COMP_WORDS[COMP_CWORD]} ask=()
    # The words before it, a space after each.
    local line=\"${COMP_WORDS[*]:1:COMP_CWORD-1} \"
    # bash treats \"=\" as a separate word.
    if [ \"$word\" = = ]; then word=''; else line=${line% = }; line=${line% }' '; fi
    case $line in
    ' ') ask=(-W '";

const END: &str = "    esac
    COMPREPLY=()
    [ ${#ask[@]} -gt 0 ] || return 0
    mapfile -t COMPREPLY < <(compgen \"${ask[@]}\" -- \"$word\")
    # A path continues after the slash of a directory.
    case ${ask[0]} in -f | -d) compopt -o filenames 2>/dev/null ;; esac
    return 0
}
complete -F _zoolet zoolet
";

/// Generates the script: the words before the completed word select the first matching pattern.
pub(super) fn text(commands: &[Command]) -> String {
    let mut text = format!("{BEGIN}{} --help --version') ;;\n", help::names().join(" "));
    for (first, seconds) in families(commands) {
        _ = writeln!(text, "    '{first} ') ask=(-W '{}') ;;", seconds.join(" "));
    }
    for command in commands {
        let words = &command.words;
        if command.runs {
            _ = writeln!(text, "    '{words} '*' -- ') ask=(-c) ;;\n    '{words} '*' -- '*) ask=(-f) ;;");
        }
        for option in command.options.iter().filter(|option| !option.value.is_empty()) {
            let ask = ask(option.value, "");
            _ = writeln!(text, "    '{words} '*'--{} ') {ask};;", option.name);
        }
        let flags: Vec<String> = command.options.iter().map(|option| format!("--{}", option.name)).collect();
        _ = writeln!(text, "    '{words} '*) {};;", ask(command.argument, &format!("{} --help", flags.join(" "))));
    }
    text + END
}

/// Returns the arguments of compgen for a placeholder, plus the words of `more`.
fn ask(noun: &str, more: &str) -> String {
    let (kind, words) = match Candidates::of(noun) {
        Some(Candidates::Files) => ("-f ", Vec::new()),
        Some(Candidates::Directories) => ("-d ", Vec::new()),
        Some(Candidates::Words(words)) => ("", words),
        Some(Candidates::WordsOrFiles(words)) => ("-f ", words),
        Some(Candidates::Unknown) | None => ("", Vec::new()),
    };
    let words = format!("{} {}", words.join(" "), more.trim_start());
    match (kind, words.trim()) {
        ("", "") => String::new(),
        (kind, "") => format!("ask=({}) ", kind.trim_end()),
        (kind, words) => format!("ask=({kind}-W '{words}') "),
    }
}
