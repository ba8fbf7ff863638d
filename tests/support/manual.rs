//! docs/OPERATIONS.md: its blocks of commands and configuration, each marked with who executes it and a name, `<!-- WHO: NAME -->`.

const MANUAL: &str = include_str!("../../docs/OPERATIONS.md");

/// A block as it stands in the document.
pub(crate) struct Block<'a> {
    pub(crate) line: usize,
    pub(crate) language: &'a str,
    /// Who executes it, and what it is called.
    pub(crate) mark: Option<(&'a str, &'a str)>,
    pub(crate) text: String,
}

pub(crate) fn blocks() -> Vec<Block<'static>> {
    blocks_of(MANUAL)
}

/// All blocks of a document.
pub(crate) fn blocks_of(document: &str) -> Vec<Block<'_>> {
    let (mut found, mut before, mut lines) = (Vec::new(), "", (1..).zip(document.lines()));
    while let Some((line, text)) = lines.next() {
        if let Some(language) = text.trim_start().strip_prefix("```") {
            let inside = lines.by_ref().map(|(_, text)| text).take_while(|text| text.trim() != "```");
            let text = inside.fold(String::new(), |all, line| all + line + "\n");
            found.push(Block { line, language, mark: mark(before), text });
        }
        before = text;
    }
    found
}

fn mark(line: &str) -> Option<(&str, &str)> {
    line.strip_prefix("<!-- ")?.strip_suffix(" -->")?.split_once(": ")
}

/// Those that `who` has to execute, by their names.
pub(crate) fn executed_by(who: &str) -> Vec<(&'static str, String)> {
    let own = |block: Block<'static>| block.mark.filter(|mark| mark.0 == who).map(|mark| (mark.1, block.text));
    blocks().into_iter().filter_map(own).collect()
}
