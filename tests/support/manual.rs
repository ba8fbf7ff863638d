//! The pages of docs/ that tell a reader what to type, and their code blocks.
//!
//! The line before each block names the executor and the block: `<!-- EXECUTOR: NAME -->`.

macro_rules! pages {
    ($($name:literal),+ $(,)?) => {
        /// Pages by their paths below docs/, and their texts.
        pub(crate) const PAGES: &[(&str, &str)] = &[$(($name, include_str!(concat!("../../docs/", $name)))),+];
    };
}

pages![
    "explanation/daemon.md",
    "how-to/alarms.md",
    "how-to/beside-zookeeper.md",
    "how-to/choose-recipe.md",
    "how-to/disk.md",
    "how-to/embed.md",
    "how-to/install.md",
    "how-to/lost-site.md",
    "how-to/profile.md",
    "how-to/replace-a-box.md",
    "how-to/runbook.md",
    "how-to/scripts.md",
    "how-to/site.md",
    "how-to/subtree-file.md",
    "how-to/test-your-daemon.md",
    "how-to/trust.md",
    "how-to/upgrade.md",
    "reference/bench.md",
    "reference/commands.md",
    "reference/configuration.md",
    "reference/disk.md",
    "reference/exit-codes.md",
    "reference/flash.md",
    "reference/formats.md",
    "reference/glossary.md",
    "reference/limits.md",
    "reference/metrics.md",
    "reference/mistakes.md",
    "reference/shell.md",
    "reference/start.md",
    "reference/status.md",
    "reference/zoo-cfg.md",
    "reference/zookeeper.md",
    "tutorial.md",
];

/// Returns the text of a page by its path below docs/.
pub(crate) fn page(name: &str) -> &'static str {
    PAGES.iter().find(|page| page.0 == name).unwrap_or_else(|| panic!("docs/{name} is not in PAGES")).1
}

/// A code block of a page.
pub(crate) struct Block<'a> {
    pub(crate) page: &'a str,
    pub(crate) line: usize,
    pub(crate) language: &'a str,
    /// Its executor and its name.
    pub(crate) mark: Option<(&'a str, &'a str)>,
    pub(crate) text: String,
}

pub(crate) fn blocks() -> Vec<Block<'static>> {
    PAGES.iter().flat_map(|&(name, text)| blocks_of(name, text)).collect()
}

/// Returns all code blocks of a page.
pub(crate) fn blocks_of<'a>(page: &'a str, text: &'a str) -> Vec<Block<'a>> {
    let (mut found, mut before, mut lines) = (Vec::new(), "", (1..).zip(text.lines()));
    while let Some((line, text)) = lines.next() {
        if let Some(language) = text.trim_start().strip_prefix("```") {
            let inside = lines.by_ref().map(|(_, text)| text).take_while(|text| text.trim() != "```");
            let text = inside.fold(String::new(), |all, line| all + line + "\n");
            found.push(Block { page, line, language, mark: mark(before), text });
        }
        before = text;
    }
    found
}

fn mark(line: &str) -> Option<(&str, &str)> {
    line.strip_prefix("<!-- ")?.strip_suffix(" -->")?.split_once(": ")
}

/// Returns the names and texts of the blocks that this executor has to execute.
pub(crate) fn executed_by(executor: &str) -> Vec<(&'static str, String)> {
    let own = |block: Block<'static>| block.mark.filter(|mark| mark.0 == executor).map(|mark| (mark.1, block.text));
    blocks().into_iter().filter_map(own).collect()
}
