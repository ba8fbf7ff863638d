//! Completion of commands, options, paths and files, without a terminal.

use super::super::table::{self, Choice, Command, Operand};
use super::super::words;
use std::fs;

/// Maximum entries of a directory that are looked at.
const ENTRIES_MAX: usize = 10_000;
/// Stands before an exported file in place of a path.
const FILE_MARK: &str = "file:";

/// The texts that may replace the word at the cursor.
#[derive(PartialEq, Eq, Debug)]
pub(super) struct Candidates {
    /// The byte of the line at which the word begins, with its quote.
    pub(super) begin: usize,
    pub(super) texts: Vec<Candidate>,
}

#[derive(PartialEq, Eq, Debug)]
pub(super) struct Candidate {
    /// The text in the list.
    pub(super) shown: String,
    /// The text in the line, with the quotes that it needs.
    pub(super) inserted: String,
}

/// A word, and whether it is complete: a path or a directory may go on.
struct Word {
    text: String,
    is_complete: bool,
}

/// Returns the candidates for the last word of `line`; `children` lists those of a znode.
pub(super) fn candidates(line: &str, children: impl FnOnce(&str) -> Vec<String>) -> Candidates {
    let last = words::last(line);
    let before = words::split(&line[..last.begin]);
    let word = last.text.as_ref();
    let found = match before.split_first() {
        None => complete(commands(word)),
        Some((name, rest)) => {
            table::find(name).map_or_else(Vec::new, |command| of_command(command, rest, word, children))
        }
    };
    Candidates { begin: last.begin, texts: candidates_of(found, last.quote) }
}

/// Returns the words that may follow a command and the words `before`.
fn of_command(
    command: &Command,
    before: &[String],
    word: &str,
    children: impl FnOnce(&str) -> Vec<String>,
) -> Vec<Word> {
    if word.starts_with('-') {
        return complete(options(command, word));
    }
    match operand(command, before) {
        None => Vec::new(),
        Some(Operand::Command) => complete(commands(word)),
        Some(Operand::Words(known)) => complete(beginning(known.iter().copied(), word)),
        Some(Operand::Path) => open(paths(word, children)),
        Some(Operand::File) => files(word),
        Some(Operand::Subtree) => subtrees(word, children),
    }
}

fn complete(texts: Vec<String>) -> Vec<Word> {
    texts.into_iter().map(|text| Word { text, is_complete: true }).collect()
}

fn open(texts: Vec<String>) -> Vec<Word> {
    texts.into_iter().map(|text| Word { text, is_complete: false }).collect()
}

/// Returns words as they are shown and inserted; without those that no line can hold.
fn candidates_of(found: Vec<Word>, quote: Option<char>) -> Vec<Candidate> {
    let texts: Vec<&str> = found.iter().map(|word| word.text.as_str()).collect();
    let written = words::written(&texts, quote);
    let candidate = |(word, written): (&Word, Option<String>)| {
        let end = if word.is_complete { " " } else { "" };
        Some(Candidate { shown: shown(&word.text).to_owned(), inserted: written? + end })
    };
    found.iter().zip(written).filter_map(candidate).collect()
}

/// Returns the last name of a path; a directory has its slash.
fn shown(text: &str) -> &str {
    let name = text.trim_end_matches('/');
    if name.is_empty() { text } else { name.rfind('/').map_or(text, |slash| &text[slash + 1..]) }
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
    let options = command.options.iter().map(|choice| table::dashed(choice.name));
    options.filter(|option| option.starts_with(word)).collect()
}

/// Returns the kind of the next word, which is an operand or the value of an option.
fn operand(command: &Command, before: &[String]) -> Option<Operand> {
    let with_value = |word: &String| -> Option<&'static Choice> {
        let choice = command.option(word.strip_prefix('-')?.trim_start_matches('-'))?;
        (!choice.value.is_empty()).then_some(choice)
    };
    if let Some(choice) = before.last().and_then(with_value) {
        return (choice.value == "FILE").then_some(Operand::File);
    }
    let (mut words, mut operands) = (before.iter(), 0);
    while let Some(word) = words.next() {
        if with_value(word).is_some() {
            // A value may begin with a dash: `-v -1`.
            words.next();
        } else if !word.starts_with('-') {
            operands += 1;
        }
    }
    command.operands.at(operands)
}

/// Returns the paths that begin with `word`.
fn paths(word: &str, children: impl FnOnce(&str) -> Vec<String>) -> Vec<String> {
    let Some(slash) = word.rfind('/') else { return if word.is_empty() { vec!["/".to_owned()] } else { Vec::new() } };
    let (parent, begun) = (&word[..slash], &word[slash + 1..]);
    let names = children(if parent.is_empty() { "/" } else { parent });
    names.into_iter().filter(|name| name.starts_with(begun)).map(|name| format!("{parent}/{name}")).collect()
}

/// Returns the paths and the marked files that begin with `word`.
fn subtrees(word: &str, children: impl FnOnce(&str) -> Vec<String>) -> Vec<Word> {
    if let Some(file) = word.strip_prefix(FILE_MARK) {
        let marked = |word: Word| Word { text: format!("{FILE_MARK}{}", word.text), ..word };
        return files(file).into_iter().map(marked).collect();
    }
    let mut found = paths(word, children);
    found.extend(FILE_MARK.starts_with(word).then(|| FILE_MARK.to_owned()));
    open(found)
}

/// Returns the files and directories that begin with `word`; hidden ones only if it begins with their dot.
///
/// Names that are no text, or that would control the terminal, are left out.
fn files(word: &str) -> Vec<Word> {
    let (directory, begun) = word.rfind('/').map_or(("", word), |slash| word.split_at(slash + 1));
    let Ok(entries) = fs::read_dir(if directory.is_empty() { "." } else { directory }) else { return Vec::new() };
    let found = entries.take(ENTRIES_MAX).flatten().filter_map(|entry| {
        let name = entry.file_name().into_string().ok()?;
        let is_hidden = name.starts_with('.') && !begun.starts_with('.');
        let fits = name.starts_with(begun) && !is_hidden && !name.contains(char::is_control);
        let slash = if fits && entry.path().is_dir() { "/" } else { "" };
        fits.then(|| Word { text: format!("{directory}{name}{slash}"), is_complete: slash.is_empty() })
    });
    let mut found: Vec<Word> = found.collect();
    found.sort_unstable_by(|one, other| one.text.cmp(&other.text));
    found
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::path::PathBuf;

    const NAMES: [&str; 8] = [
        "app",
        "apple",
        "zookeeper",
        "my app",
        "it's",
        "say \"it\"",
        "back\\slash now",
        "gr\u{fc}\u{df} dich\u{3000}gut",
    ];

    fn children(path: &str) -> Vec<String> {
        match path {
            "/" => NAMES.map(str::to_owned).to_vec(),
            "/app" | "/my app" => vec!["x".to_owned()],
            _ => Vec::new(),
        }
    }

    fn texts(line: &str) -> Vec<String> {
        let found = candidates(line, children).texts;
        found.into_iter().map(|candidate| candidate.inserted.trim_end().to_owned()).collect()
    }

    /// Returns the line after its only completion.
    fn completed(line: &str) -> String {
        let Candidates { begin, texts } = candidates(line, children);
        assert_eq!(texts.len(), 1, "{line}: {texts:?}");
        format!("{}{}", &line[..begin], texts[0].inserted)
    }

    /// A directory that is deleted with the value.
    struct Directory(PathBuf);

    impl Directory {
        fn with(names: &[&str]) -> Self {
            let path = std::env::temp_dir().join(format!("zoolet-shell-complete-{}", std::process::id()));
            fs::create_dir_all(&path).unwrap();
            for name in names {
                match name.strip_suffix('/') {
                    Some(name) => fs::create_dir_all(path.join(name)).unwrap(),
                    None => fs::write(path.join(name), "").unwrap(),
                }
            }
            Self(path)
        }
    }

    impl Drop for Directory {
        fn drop(&mut self) {
            let _ = fs::remove_dir_all(&self.0);
        }
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
        assert_eq!(texts("ls -"), ["-s", "-w", "-R", "-?"]);
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
        let shown: Vec<_> = candidates("ls /ap", children).texts.into_iter().map(|found| found.shown).collect();
        assert_eq!(shown, ["app", "apple"]);
    }

    #[test]
    fn completed_line_splits_into_the_path_again() {
        for name in NAMES {
            let path = format!("/{name}");
            let begun: String = path.chars().take(4).collect();
            let open: &[&str] = if begun.contains(' ') { &["\"", "'"] } else { &["", "\"", "'"] };
            for open in open {
                let line = format!("get {open}{begun}");
                let found = candidates(&line, children);
                let lines = found.texts.iter().map(|text| format!("{}{} -s", &line[..found.begin], text.inserted));
                let split: Vec<_> = lines.map(|line| words::split(&line)).collect();
                let expected = ["get", &path, "-s"].map(str::to_owned).to_vec();
                assert!(split.contains(&expected), "{line}: {split:?}");
                assert!(split.iter().all(|words| words.len() == 3), "{line}: {split:?}");
            }
        }
    }

    #[test]
    fn path_goes_on_behind_its_closing_quote() {
        assert_eq!(completed("get /my"), "get \"/my app\"");
        assert_eq!(completed("get '/my"), "get '/my app'");
        assert_eq!(completed("get \"/my app\""), "get \"/my app\"");
        assert_eq!(completed("get \"/my app\"/"), "get \"/my app/x\"");
        assert_eq!(completed("get \"/my app/"), "get \"/my app/x\"");
        // All begin alike, so that the editor inserts what they have in common.
        let all = candidates("get /", children).texts;
        assert_eq!(all.iter().filter(|text| text.inserted.starts_with("\"/")).count(), NAMES.len() - 1);
        assert_eq!(all[5].inserted, "'/say \"it\"'");
        let none = candidates("get /", |_| vec!["both \" and '".to_owned()]);
        assert_eq!(none.texts, []);
    }

    #[test]
    fn each_operand_has_a_kind_of_its_own() {
        assert_eq!(texts("cp /x /ap"), ["/app", "/apple"]);
        assert_eq!(texts("cp -r /x /ap"), ["/app", "/apple"]);
        assert_eq!(texts("set -v -1 /ap"), ["/app", "/apple"]);
        assert_eq!(texts("mv '/my app' /ap"), ["/app", "/apple"]);
        assert_eq!(texts("mv /x /y /ap"), Vec::<String>::new());
        assert_eq!(texts("diff /x /ap"), ["/app", "/apple"]);
        assert_eq!(texts("diff "), ["/", "file:"]);
        assert_eq!(texts("import some-file /ap"), ["/app", "/apple"]);
    }

    #[test]
    fn files_are_completed_where_a_command_reads_or_writes_one() {
        let directory = Directory::with(&["tree.json", "two words", "sub/", ".hidden", "tab\there"]);
        let place = directory.0.display();
        let names = |line: &str| {
            let found = candidates(&format!("{line}{place}/"), children).texts;
            found.into_iter().map(|file| file.shown).collect::<Vec<_>>()
        };
        for line in ["get -o ", "set -i ", "export --force -o ", "import --merge ", "diff /x file:", "diff file:"] {
            assert_eq!(names(line), ["sub/", "tree.json", "two words"], "{line}");
        }
        assert_eq!(completed(&format!("import {place}/tr")), format!("import {place}/tree.json "));
        assert_eq!(completed(&format!("import {place}/su")), format!("import {place}/sub/"));
        assert_eq!(completed(&format!("import {place}/.h")), format!("import {place}/.hidden "));
        assert_eq!(completed(&format!("diff /a file:{place}/tw")), format!("diff /a \"file:{place}/two words\" "));
    }
}
