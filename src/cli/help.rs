//! The text of `zoolet --help`, and the commands and options derived from it.
//!
//! The text is their only table: the command line accepts, and shells complete, exactly the
//! commands and options in it.

/// One line `zoolet COMMAND  DESCRIPTION` per command, then `  --option VALUE  DESCRIPTION` per
/// option.
///
/// At least two spaces separate the columns.
const TEXT: &str = include_str!("help.txt");

/// First words of the commands that need the feature `tools`.
const TOOLS: [&str; 6] = ["ensemble", "probe", "profile", "bench", "config", "completions"];

/// Returns whether this build lacks the command.
pub(super) fn is_left_out(name: &str) -> bool {
    cfg!(not(feature = "tools")) && TOOLS.contains(&name)
}

/// Returns the help text, without the commands that this build lacks.
pub(super) fn text() -> String {
    lines().flat_map(|line| [line, "\n"]).collect()
}

/// Returns the lines of the commands that this build has.
fn lines() -> impl Iterator<Item = &'static str> {
    let mut is_left_out = false;
    TEXT.lines().filter(move |line| {
        if !line.starts_with(' ') {
            let name = line.strip_prefix("zoolet ").and_then(|rest| rest.split(' ').next());
            is_left_out = name.is_some_and(self::is_left_out);
        }
        !is_left_out
    })
}

/// A command of the help text.
#[cfg_attr(not(feature = "tools"), expect(dead_code, reason = "only `completions` tells what they are for"))]
pub(super) struct Command {
    /// Its words, such as `serve` or `profile show`.
    pub(super) words: String,
    /// The placeholder of its argument, such as `NAME`; empty without an argument.
    pub(super) argument: &'static str,
    pub(super) options: Vec<Choice>,
    pub(super) says: &'static str,
}

/// An option of a command.
#[cfg_attr(not(feature = "tools"), expect(dead_code, reason = "only `completions` tells what `says` is for"))]
#[derive(Clone, Copy)]
pub(super) struct Choice {
    /// Its name without the dashes.
    pub(super) name: &'static str,
    /// The placeholder of its value, such as `FILE`; empty for a flag.
    pub(super) value: &'static str,
    pub(super) says: &'static str,
}

/// Returns all commands, in the order of the text.
pub(super) fn commands() -> Vec<Command> {
    let mut all: Vec<Command> = Vec::new();
    // A line with alternatives, such as `unit systemd|procd`, defines several commands with the
    // same options.
    let mut of_line = 0;
    for line in lines() {
        if let Some(command) = line.strip_prefix("zoolet ").filter(|rest| !rest.starts_with('-')) {
            of_line = all.len();
            let (left, says) = columns(command);
            let left = left.trim_end_matches(" [OPTIONS]");
            let noun = left.find(|letter: char| letter.is_ascii_uppercase()).unwrap_or(left.len());
            let (words, argument) = left.split_at(noun);
            all.extend(alternatives(words.trim_end()).map(|words| Command {
                words,
                argument,
                options: Vec::new(),
                says,
            }));
        } else if let Some(option) = line.strip_prefix("  --") {
            let (left, says) = columns(option);
            let (name, value) = left.split_once(' ').unwrap_or((left, ""));
            all[of_line..].iter_mut().for_each(|command| command.options.push(Choice { name, value, says }));
        }
    }
    all
}

fn columns(line: &'static str) -> (&'static str, &'static str) {
    line.split_once("  ").map_or((line, ""), |(left, says)| (left, says.trim_start()))
}

fn alternatives(words: &'static str) -> impl Iterator<Item = String> {
    let (before, last) = words.rsplit_once(' ').unwrap_or(("", words));
    last.split('|').map(move |last| format!("{before} {last}").trim_start().to_owned())
}

/// Returns the distinct first words of all commands.
pub(super) fn names() -> Vec<String> {
    let mut names: Vec<String> = Vec::new();
    for command in commands() {
        let name = command.words.split(' ').next().unwrap_or_default();
        if !names.iter().any(|known| known == name) {
            names.push(name.to_owned());
        }
    }
    names
}

/// Returns whether a command equals or begins with these words.
pub(super) fn has(words: &str) -> bool {
    commands().iter().any(|command| is_of(command, words))
}

/// Returns the options of all commands that equal or begin with these words.
pub(super) fn options(words: &str) -> Vec<Choice> {
    commands().into_iter().filter(|command| is_of(command, words)).flat_map(|command| command.options).collect()
}

/// Returns whether a command that equals or begins with these words has this option.
pub(super) fn takes(words: &str, option: &str) -> bool {
    options(words).iter().any(|known| known.name == option)
}

fn is_of(command: &Command, words: &str) -> bool {
    command.words.strip_prefix(words).is_some_and(|rest| rest.is_empty() || rest.starts_with(' '))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[cfg(not(feature = "tools"))]
    #[test]
    fn what_is_left_out_is_not_in_the_help_and_its_refusal_says_so() {
        let parse = |word: &str| super::super::args::parse(lexopt::Parser::from_args([word]));
        for name in TOOLS {
            assert!(
                TEXT.contains(&format!("\nzoolet {name} ")) && !text().contains(&format!("zoolet {name} ")),
                "{name}"
            );
            let refused = parse(name).err().unwrap();
            let line = format!("this minimal build has no {name}: use the full build");
            assert_eq!((refused.code, refused.line), (2, line));
        }
        assert_eq!(names(), ["serve", "status", "keygen", "unit", "licences"]);
        assert!(!takes("status", "peer") && takes("status", "json"));
        let refused = parse("tool").err().unwrap().line;
        assert_eq!(refused, "command = tool: allowed is serve, status, keygen, unit, licences, help, version");
    }

    #[cfg(feature = "tools")]
    #[test]
    fn what_may_be_left_out_is_a_command() {
        assert_eq!(text(), TEXT);
        for name in TOOLS {
            assert!(names().iter().any(|known| known == name) && !is_left_out(name), "{name}");
        }
    }

    #[cfg(feature = "tools")]
    #[test]
    fn every_line_is_a_command_an_option_or_continues_one() {
        let lines: Vec<&str> = TEXT.lines().collect();
        let known = lines.iter().filter(|line| line.starts_with("zoolet ") || line.starts_with("  --")).count();
        // The 4 other lines are the title, two empty lines and the exit codes.
        let continued = lines.iter().filter(|line| line.starts_with(&" ".repeat(27))).count();
        assert_eq!(known + continued + 4, lines.len());
        // One line less for `zoolet --version | --help`, and one command more for `unit
        // systemd|procd`.
        let commands = commands();
        assert_eq!(commands.len(), lines.iter().filter(|line| line.starts_with("zoolet ")).count() - 1 + 1);
        for command in &commands {
            assert!(!command.says.is_empty(), "{}", command.words);
            for option in &command.options {
                assert!(!option.says.is_empty(), "{} --{}", command.words, option.name);
                assert!(option.name.bytes().all(|byte| byte.is_ascii_lowercase() || byte == b'-'), "{}", option.name);
            }
        }
    }

    #[cfg(feature = "tools")]
    #[test]
    fn a_command_is_its_words_its_argument_and_its_options() {
        let commands = commands();
        let of = |words: &str| commands.iter().find(|command| command.words == words).unwrap();
        assert_eq!((of("profile show").argument, of("serve").argument), ("NAME", ""));
        for words in ["unit systemd", "unit procd"] {
            let options: Vec<_> = of(words).options.iter().map(|option| (option.name, option.value)).collect();
            assert_eq!(options, [("config", "FILE"), ("binary", "FILE"), ("data", "DIR"), ("profile", "NAME")]);
        }
        assert!(has("profile") && has("profile list") && !has("prof") && !has("profile lis"));
        assert!(takes("profile show", "json") && takes("profile", "json") && !takes("profile list", "json"));
    }
}
