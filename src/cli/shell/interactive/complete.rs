//! Completion of commands, options and paths, without a terminal.

use super::super::table::{self, Command, Operands};
use super::super::words;

/// The words that may replace the word at the cursor.
#[derive(PartialEq, Eq, Debug)]
pub(super) struct Candidates {
    /// The byte of the line at which the word begins.
    pub(super) begin: usize,
    pub(super) texts: Vec<String>,
    pub(super) kind: Kind,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Kind {
    Word,
    Path,
}

/// Returns the candidates for the last word of `line`; `children` lists those of a znode.
pub(super) fn candidates(line: &str, children: impl FnOnce(&str) -> Vec<String>) -> Candidates {
    let (begin, word) = words::last(line);
    let before = words::split(line[..begin].trim_end_matches(['"', '\'']));
    let of_words = |texts: Vec<String>| Candidates { begin, texts, kind: Kind::Word };
    let Some((name, rest)) = before.split_first() else { return of_words(commands(word)) };
    let Some(command) = table::find(name) else { return of_words(Vec::new()) };
    if word.starts_with('-') {
        return of_words(options(command, word));
    }
    match operands(command, rest) {
        None | Some(Operands::Nothing) => of_words(Vec::new()),
        Some(Operands::Command) => of_words(commands(word)),
        Some(Operands::Words(known)) => of_words(beginning(known.iter().copied(), word)),
        Some(Operands::Path) => Candidates { begin, texts: paths(word, children), kind: Kind::Path },
    }
}

fn beginning<'a>(known: impl Iterator<Item = &'a str>, word: &str) -> Vec<String> {
    known.filter(|known| known.starts_with(word)).map(str::to_owned).collect()
}

fn commands(word: &str) -> Vec<String> {
    let mut names = beginning(table::all().map(|command| command.name), word);
    names.sort_unstable();
    names
}

fn options(command: &Command, word: &str) -> Vec<String> {
    let dashes = |name: &str| if name.len() == 1 { "-" } else { "--" };
    let options = command.options.iter().map(|choice| format!("{}{}", dashes(choice.name), choice.name));
    options.filter(|option| option.starts_with(word)).collect()
}

/// Returns the kind of the next word; `None` for the value of an option, or if no operand is left.
fn operands(command: &Command, before: &[String]) -> Option<Operands> {
    let takes_value = |word: &String| {
        let name = word.trim_start_matches('-');
        word.starts_with('-') && command.option(name).is_some_and(|choice| !choice.value.is_empty())
    };
    if before.last().is_some_and(takes_value) {
        return None;
    }
    let values = before.iter().filter(|word| takes_value(word)).count();
    let flags = before.iter().filter(|word| word.starts_with('-')).count();
    let at = before.len() - values - flags;
    (at == 0).then_some(command.operands)
}

/// Returns the paths that begin with `word`.
fn paths(word: &str, children: impl FnOnce(&str) -> Vec<String>) -> Vec<String> {
    let Some(slash) = word.rfind('/') else { return if word.is_empty() { vec!["/".to_owned()] } else { Vec::new() } };
    let (parent, begun) = (&word[..slash], &word[slash + 1..]);
    let names = children(if parent.is_empty() { "/" } else { parent });
    names.into_iter().filter(|name| name.starts_with(begun)).map(|name| format!("{parent}/{name}")).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn texts(line: &str) -> Vec<String> {
        let children = |path: &str| match path {
            "/" => vec!["app".to_owned(), "apple".to_owned(), "zookeeper".to_owned()],
            "/app" => vec!["x".to_owned()],
            _ => Vec::new(),
        };
        candidates(line, children).texts
    }

    #[test]
    fn first_word_is_completed_to_commands() {
        assert_eq!(texts("dele"), ["delete", "deleteall"]);
        assert_eq!(texts("getAc"), ["getAcl"]);
        assert_eq!(texts("help dele"), ["delete", "deleteall"]);
        assert!(texts("").len() > 25 && texts("nosuch /").is_empty());
    }

    #[test]
    fn options_and_words_of_a_command_are_completed() {
        assert_eq!(texts("ls -"), ["-s", "-w", "-R"]);
        assert_eq!(texts("reconfig --m"), ["--members"]);
        assert_eq!(texts("printwatches o"), ["on", "off"]);
    }

    #[test]
    fn paths_are_completed_from_the_server() {
        assert_eq!(texts("ls "), ["/"]);
        assert_eq!(texts("ls -R /ap"), ["/app", "/apple"]);
        assert_eq!(texts("set -v 3 /app/"), ["/app/x"]);
        assert_eq!(texts("set -v "), Vec::<String>::new());
        assert_eq!(texts("set /app /"), Vec::<String>::new());
        let quoted = candidates("get '/ap", |_| vec!["app x".to_owned()]);
        assert_eq!((quoted.begin, quoted.texts, quoted.kind), (5, vec!["/app x".to_owned()], Kind::Path));
    }
}
