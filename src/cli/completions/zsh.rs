//! The completion script for zsh.

use super::super::help::{self, Command};
use super::{Candidates, brief, families};
use std::fmt::Write;

const BEGIN: &str = "\
#compdef zoolet
# zoolet completions zsh > _zoolet, in a directory of fpath
_zoolet() {
    local line=\"${(j: :)words[2,CURRENT-1]} \"
    case $line in
    ' ')
        local -a commands=(
";

const END: &str = "    esac
}
if [ \"$funcstack[1]\" = _zoolet ]; then _zoolet \"$@\"; else compdef _zoolet zoolet; fi
";

pub(super) fn text(commands: &[Command]) -> String {
    let mut text = String::from(BEGIN);
    for name in help::names() {
        let first = commands.iter().find(|command| command.words.split(' ').next() == Some(&name));
        let says = first.map_or("", |command| brief(command.says));
        _ = writeln!(text, "            {}", quoted(&format!("{name}:{}", says.replace(':', "\\:"))));
    }
    text.push_str("        )\n        _describe command commands\n        compadd -- --help --version ;;\n");
    for (first, seconds) in families(commands) {
        _ = writeln!(text, "    '{first} ') compadd -- {} ;;", seconds.join(" "));
    }
    for command in commands {
        // _arguments takes the first word for the command.
        let before = command.words.split(' ').count();
        _ = write!(
            text,
            "    '{} '*)\n        shift {before} words; (( CURRENT -= {before} ))\n        _arguments",
            command.words
        );
        // With -S, the words after "--" are no options.
        text.push_str(if command.runs { " -S" } else { "" });
        for option in &command.options {
            let says = brief(option.says).replace('[', "\\[").replace(']', "\\]").replace(':', "\\:");
            let spec = match option.value {
                "" => format!("--{}[{says}]", option.name),
                noun => format!("*--{}=[{says}]{}", option.name, action(noun)),
            };
            _ = write!(text, " \\\n            {}", quoted(&spec));
        }
        if !command.argument.is_empty() {
            _ = write!(text, " \\\n            {}", quoted(&format!("1{}", action(command.argument))));
        }
        text.push_str(if command.runs { " \\\n            '*::COMMAND:_normal'" } else { "" });
        text.push_str(" \\\n            '--help[print the help]' ;;\n");
    }
    text + END
}

/// Returns the placeholder and the action that offers its values.
fn action(noun: &str) -> String {
    let offers = match Candidates::of(noun) {
        Some(Candidates::Files) => "_files".to_owned(),
        Some(Candidates::Directories) => "_files -/".to_owned(),
        Some(Candidates::Words(words)) => format!("({})", words.join(" ")),
        Some(Candidates::WordsOrFiles(words)) => format!("{{compadd -- {}; _files}}", words.join(" ")),
        Some(Candidates::Unknown) | None => " ".to_owned(),
    };
    format!(":{}:{offers}", noun.replace(':', "\\:"))
}

fn quoted(text: &str) -> String {
    format!("'{}'", text.replace('\'', "'\\''"))
}
