//! The table of commands: `help.txt`, read as text and as data.
//!
//! `zoolet --help`, `zoolet COMMAND --help`, the command line, the completions of shells and the
//! page docs/reference/commands.md all come from it.

#[cfg(test)]
mod page;

/// The title, then each command with its options and examples.
///
/// A command is a line `zoolet COMMAND  DESCRIPTION`. Below it follow its options, each a line
/// `  --option VALUE  DESCRIPTION`, and its examples, each a line `  $ zoolet COMMAND ...`. At least
/// two spaces separate the columns.
const TABLE: &str = include_str!("help.txt");

/// First words of the commands that need the feature `tools`.
const TOOLS: [&str; 7] = ["shell", "ensemble", "probe", "profile", "bench", "config", "completions"];

/// First words of the commands that coordinate programs; they need the feature `tools` too.
const RECIPES: [&str; 5] = ["lock", "elect", "semaphore", "barrier", "queue"];

/// Columns of the printed help.
const WIDTH: usize = 100;

/// Column at which descriptions begin.
const DESCRIPTIONS: usize = 27;

const EXIT_CODES: &str = "Exit codes: 0 done, 1 failed, 2 bad usage or configuration.";

const RECIPE_EXIT_CODES: &str = "\
Exit codes: those of COMMAND, 128 + N if signal N ended it; 0 done, 2 bad usage, 124 not granted in
time, 125 failed or lost, 126 COMMAND cannot be run, 127 COMMAND not found.";

/// Placeholders that stand for a notation, with its explanation.
const NOTATIONS: [(&str, &str); 4] = [
    ("TIME", "TIME is a number with a unit: 500ms, 10s, 2m, 1h."),
    ("SIZE", "SIZE is a number of bytes, or a number with a unit: 100, 64KiB."),
    ("HOST:PORT,..", "HOST:PORT,.. is one address, or several separated by commas. A missing port is 2181."),
    ("HOST:PORT,..", "A path behind the last HOST:PORT, as in gw-a:2181/app, is the root of all paths."),
];

/// A command of the table.
pub(super) struct Command {
    /// Its words, such as `serve` or `profile show`.
    pub(super) words: String,
    /// Its line of usage without the program's name, such as `serve [OPTIONS]`.
    pub(super) usage: &'static str,
    /// The placeholder of its argument, such as `NAME`; empty without an argument.
    pub(super) argument: &'static str,
    /// The placeholder of a second argument that may be omitted; empty without one.
    pub(super) second: &'static str,
    /// Whether all arguments after `--` are a command that it runs.
    pub(super) runs: bool,
    pub(super) options: Vec<Choice>,
    /// Complete command lines.
    pub(super) examples: Vec<&'static str>,
    pub(super) says: &'static str,
}

/// An option of a command.
#[derive(Clone, Copy)]
pub(super) struct Choice {
    /// Its name without the dashes.
    pub(super) name: &'static str,
    /// The placeholder of its value, such as `FILE`; empty for a flag.
    pub(super) value: &'static str,
    pub(super) says: &'static str,
}

impl Choice {
    /// Returns the option as its user writes it, such as `--config FILE`.
    pub(super) fn usage(&self) -> String {
        format!("--{} {}", self.name, self.value).trim_end().to_owned()
    }
}

/// Returns all commands of this build, in the order of the table.
pub(super) fn commands() -> Vec<Command> {
    let mut all = table();
    all.retain(|command| !is_left_out(first_word(&command.words)));
    all
}

/// Returns whether this build lacks the command.
pub(super) fn is_left_out(name: &str) -> bool {
    cfg!(not(feature = "tools")) && (TOOLS.contains(&name) || RECIPES.contains(&name))
}

fn table() -> Vec<Command> {
    let mut all: Vec<Command> = Vec::new();
    // A line with alternatives, such as `unit systemd|procd`, defines several commands with the
    // same options.
    let mut of_line = 0;
    for line in TABLE.lines() {
        if let Some(command) = line.strip_prefix("zoolet ") {
            of_line = all.len();
            let (usage, says) = columns(command);
            let end = [" [", " --"].iter().filter_map(|mark| usage.find(mark)).min();
            let (left, right) = usage.split_at(end.unwrap_or(usage.len()));
            let noun = left.find(|letter: char| letter.is_ascii_uppercase()).unwrap_or(left.len());
            let (words, argument) = left.split_at(noun);
            let mut optional = right.split(' ').filter_map(|word| word.strip_prefix('[')?.strip_suffix(']'));
            let second = optional.find(|word| *word != "OPTIONS").unwrap_or_default();
            let runs = right.contains("-- COMMAND");
            let command = |words| Command {
                words,
                usage,
                argument,
                second,
                runs,
                options: Vec::new(),
                examples: Vec::new(),
                says,
            };
            all.extend(alternatives(words.trim_end()).map(command));
        } else if let Some(option) = line.strip_prefix("  --") {
            let (left, says) = columns(option);
            let (name, value) = left.split_once(' ').unwrap_or((left, ""));
            all[of_line..].iter_mut().for_each(|command| command.options.push(Choice { name, value, says }));
        } else if let Some(example) = line.strip_prefix("  $ ") {
            all[of_line..].iter_mut().for_each(|command| command.examples.push(example));
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

fn first_word(words: &str) -> &str {
    words.split(' ').next().unwrap_or_default()
}

/// Returns the distinct first words of all commands.
pub(super) fn names() -> Vec<String> {
    let mut names: Vec<String> = commands().iter().map(|command| first_word(&command.words).to_owned()).collect();
    names.dedup();
    names
}

/// Returns the commands that equal or begin with these words.
pub(super) fn commands_of(words: &str) -> Vec<Command> {
    let mut all = commands();
    all.retain(|command| {
        command.words.strip_prefix(words).is_some_and(|rest| rest.is_empty() || rest.starts_with(' '))
    });
    all
}

/// Returns the text of `zoolet --help`: the title and a line for each command.
pub(super) fn overview() -> String {
    let title = TABLE.lines().next().unwrap_or_default();
    let lines: String =
        distinct_lines(&commands()).map(|command| row("zoolet ", command.usage, command.says)).collect();
    format!(
        "{title}\n\n{lines}zoolet --version\n\n\
         Options and examples of a command: zoolet COMMAND --help.\n\
         The variables ZOOLET_SERVER and ZOOLET_CONFIG replace a missing --server and --config.\n{EXIT_CODES}\n"
    )
}

/// Returns the text of `zoolet COMMAND --help`, for each command that begins with these words.
pub(super) fn text(words: &str) -> String {
    let commands = commands_of(words);
    let texts: Vec<String> = distinct_lines(&commands).map(text_of).collect();
    let is_recipe = commands.first().is_some_and(|command| RECIPES.contains(&first_word(&command.words)));
    let codes = if is_recipe { RECIPE_EXIT_CODES } else { EXIT_CODES };
    format!("{}\n{codes}\n", texts.join("\n"))
}

fn text_of(command: &Command) -> String {
    let mut text = format!("zoolet {}\n", command.usage);
    wrap(&mut text, &capitalised(command.says), 0, 0);
    if !command.options.is_empty() {
        text.push_str("\nOptions:\n");
        text.extend(command.options.iter().map(|option| row("  ", &option.usage(), option.says)));
        let is_used = |noun: &str| command.options.iter().any(|option| option.value == noun);
        let used: Vec<_> = NOTATIONS.iter().filter(|(noun, _)| is_used(noun)).collect();
        text.push_str(if used.is_empty() { "" } else { "\n" });
        text.extend(used.iter().flat_map(|(_, says)| [says, "\n"]));
    }
    text.push_str("\nExamples:\n");
    text.extend(command.examples.iter().flat_map(|example| ["  ", example, "\n"]));
    text
}

/// Drops each command that its line of the table shares with the command before.
fn distinct_lines(commands: &[Command]) -> impl Iterator<Item = &Command> {
    let is_first = |at: usize| at == 0 || commands[at - 1].usage != commands[at].usage;
    commands.iter().enumerate().filter(move |(at, _)| is_first(*at)).map(|(_, command)| command)
}

fn capitalised(text: &str) -> String {
    let mut letters = text.chars();
    letters.next().map_or(String::new(), |first| first.to_uppercase().chain(letters).collect())
}

/// Returns a line of two columns, continued below its second column.
fn row(indent: &str, left: &str, says: &str) -> String {
    let mut text = format!("{indent}{left}");
    // A left column that is too wide has its line to itself.
    if text.len() + 2 > DESCRIPTIONS {
        text.push('\n');
        wrap(&mut text, says, DESCRIPTIONS, 0);
    } else {
        let begun = text.len();
        wrap(&mut text, says, DESCRIPTIONS, begun);
    }
    text
}

/// Appends `says`, wrapped between the columns `indent` and [`WIDTH`], to a line with `begun` columns.
fn wrap(text: &mut String, says: &str, indent: usize, begun: usize) {
    let mut column = begun;
    for word in says.split(' ') {
        if column > indent && column + 1 + word.len() > WIDTH {
            text.push('\n');
            column = 0;
        }
        let gap = if column > indent { 1 } else { indent - column };
        text.extend(std::iter::repeat_n(' ', gap));
        text.push_str(word);
        column += gap + word.len();
    }
    text.push('\n');
}

#[cfg(test)]
mod tests {
    use super::*;

    #[cfg(not(feature = "tools"))]
    #[test]
    fn minimal_build_hides_its_missing_commands_and_names_them_if_used() {
        let parse = |word: &str| super::super::args::parse(lexopt::Parser::from_args([word]));
        for name in TOOLS {
            let is_in_table = table().iter().any(|command| first_word(&command.words) == name);
            assert!(is_in_table && !overview().contains(&format!("zoolet {name} ")), "{name}");
            let refused = parse(name).err().unwrap();
            let line = format!("this minimal build has no {name}: use the full build");
            assert_eq!((refused.code, refused.line), (2, line));
        }
        assert_eq!(names(), ["serve", "status", "keygen", "unit", "licences"]);
        let refused = parse("tool").err().unwrap().line;
        assert_eq!(refused, "command = tool: allowed is serve, status, keygen, unit, licences, help, version");
    }

    #[cfg(feature = "tools")]
    #[test]
    fn every_command_a_minimal_build_omits_exists_in_the_full_build() {
        for name in TOOLS.into_iter().chain(RECIPES) {
            assert!(names().iter().any(|known| known == name) && !is_left_out(name), "{name}");
        }
    }

    #[test]
    fn every_help_table_line_is_a_command_option_or_example() {
        let begins = |line: &str| ["zoolet ", "  --", "  $ zoolet "].iter().any(|start| line.starts_with(start));
        let mut lines = TABLE.lines();
        assert!(lines.next().is_some_and(|title| title.starts_with("zoolet: ")) && lines.next() == Some(""));
        for line in lines {
            assert!(begins(line), "{line}");
        }
        for command in table() {
            assert!(!command.says.is_empty() && !command.examples.is_empty(), "{}", command.words);
            for option in &command.options {
                assert!(!option.says.is_empty(), "{} --{}", command.words, option.name);
                assert!(option.name.bytes().all(|byte| byte.is_ascii_lowercase() || byte == b'-'), "{}", option.name);
            }
        }
    }

    #[cfg(feature = "tools")]
    #[test]
    fn help_table_is_parsed_into_command_words_argument_and_options() {
        let commands = commands();
        let of = |words: &str| commands.iter().find(|command| command.words == words).unwrap();
        assert_eq!((of("profile show").argument, of("serve").argument), ("NAME", ""));
        for words in ["unit systemd", "unit procd"] {
            let options: Vec<_> = of(words).options.iter().map(|option| (option.name, option.value)).collect();
            assert_eq!(options, [("config", "FILE"), ("binary", "FILE"), ("data", "DIR"), ("profile", "NAME")]);
        }
        let words = |words: &str| -> Vec<_> { commands_of(words).into_iter().map(|command| command.words).collect() };
        assert_eq!(words("profile"), ["profile list", "profile show", "profile check"]);
        assert_eq!((words("profile list"), words("prof").len()), (vec!["profile list".to_owned()], 0));
    }

    #[test]
    fn help_text_fits_a_terminal_and_keeps_every_word() {
        let wide = |text: &str| text.lines().find(|line| line.chars().count() > WIDTH).map(str::to_owned);
        assert_eq!(wide(&overview()), None);
        let squeezed = |text: &str| text.split_whitespace().collect::<Vec<_>>().join(" ");
        for command in commands() {
            let text = text(&command.words);
            // An example is shown as its user types it, in one line.
            let without_examples = text.split("\nExamples:").next().unwrap();
            assert_eq!(wide(without_examples), None, "{}", command.words);
            for option in &command.options {
                let whole = format!("{} {}", option.usage(), option.says);
                assert!(squeezed(&text).contains(&squeezed(&whole)), "{whole} is not in {text}");
            }
            assert!(command.examples.iter().all(|example| text.contains(&format!("\n  {example}\n"))), "{text}");
        }
    }

    /// A dead example misleads more than none.
    #[test]
    fn every_help_example_is_accepted_by_the_parser() {
        for command in commands() {
            for example in &command.examples {
                let line = example.split(" > ").next().unwrap();
                let words: Vec<&str> = line.split(' ').skip(1).collect();
                let refused = super::super::args::parse(lexopt::Parser::from_args(&words)).err();
                assert!(refused.is_none(), "{example}: {}", refused.unwrap().line);
            }
        }
    }
}
