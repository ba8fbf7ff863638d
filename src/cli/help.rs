//! What `zoolet --help` prints, and what follows from it: which commands and options there are.
//!
//! The text is the only table of them. The command line takes what stands there and nothing else, and shells complete what stands there.

/// A line `zoolet COMMAND  what it does` of each command, and one `  --option VALUE  what it is` of each of its options; between the columns
/// are two spaces at least.
pub(super) const TEXT: &str = include_str!("help.txt");

/// A command.
pub(super) struct Command {
    /// `serve`, `profile show`.
    pub(super) words: String,
    /// The noun of what may stand behind it, or nothing: `NAME`.
    pub(super) argument: &'static str,
    pub(super) options: Vec<Choice>,
    pub(super) says: &'static str,
}

/// An option.
#[derive(Clone, Copy)]
pub(super) struct Choice {
    /// Without the dashes.
    pub(super) name: &'static str,
    /// The noun of its value, or nothing: `FILE`.
    pub(super) value: &'static str,
    pub(super) says: &'static str,
}

/// In the order of the text.
pub(super) fn commands() -> Vec<Command> {
    let mut all: Vec<Command> = Vec::new();
    // A line for two, `unit systemd|procd`, is two commands with the same options.
    let mut of_line = 0;
    for line in TEXT.lines() {
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

/// The first words of all commands, each once.
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

/// Whether there is this command, or one that begins with it.
pub(super) fn has(words: &str) -> bool {
    commands().iter().any(|command| is_of(command, words))
}

/// The options of this command, or of all that begin with it.
pub(super) fn options(words: &str) -> Vec<Choice> {
    commands().into_iter().filter(|command| is_of(command, words)).flat_map(|command| command.options).collect()
}

/// Whether this command, or one that begins with it, has this option.
pub(super) fn takes(words: &str, option: &str) -> bool {
    options(words).iter().any(|known| known.name == option)
}

fn is_of(command: &Command, words: &str) -> bool {
    command.words.strip_prefix(words).is_some_and(|rest| rest.is_empty() || rest.starts_with(' '))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_line_is_a_command_an_option_or_continues_one() {
        let lines: Vec<&str> = TEXT.lines().collect();
        let known = lines.iter().filter(|line| line.starts_with("zoolet ") || line.starts_with("  --")).count();
        // The title, two empty lines, exit codes.
        let continued = lines.iter().filter(|line| line.starts_with(&" ".repeat(27))).count();
        assert_eq!(known + continued + 4, lines.len());
        // `zoolet --version | --help`; `unit systemd|procd` is two.
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

    #[test]
    fn a_command_is_its_words_its_argument_and_its_options() {
        let commands = commands();
        let of = |words: &str| commands.iter().find(|command| command.words == words).unwrap();
        assert_eq!((of("profile show").argument, of("serve").argument), ("NAME", ""));
        for words in ["unit systemd", "unit procd"] {
            let options: Vec<_> = of(words).options.iter().map(|option| (option.name, option.value)).collect();
            assert_eq!(options, [("config", "FILE"), ("binary", "FILE")]);
        }
        assert!(has("profile") && has("profile list") && !has("prof") && !has("profile lis"));
        assert!(takes("profile show", "json") && takes("profile", "json") && !takes("profile list", "json"));
    }
}
