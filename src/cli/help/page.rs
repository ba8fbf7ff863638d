//! The page docs/reference/commands.md, made from the table of commands.

use super::{Command, EXIT_CODES, NOTATIONS, capitalised, distinct_lines, table, wrap};
use std::fmt::Write;

/// Sets this variable to write the page instead of comparing it.
const WRITE: &str = "ZOOLET_WRITE";

const BEGIN: &str = "\
# Commands

`zoolet --help` lists the commands, and `zoolet COMMAND --help` shows one of them. This page is made from the same
table.

";

const ENVIRONMENT: &str = "
Two environment variables replace missing options. An empty variable counts as unset:

- `ZOOLET_SERVER` replaces `--server`;
- `ZOOLET_CONFIG` replaces `--config` of `serve` and `status`. `status` reads it only without `ZOOLET_SERVER`.
";

#[test]
fn page_of_the_commands_is_generated_from_the_help_table() {
    let file = concat!(env!("CARGO_MANIFEST_DIR"), "/docs/reference/commands.md");
    let page = page();
    if std::env::var_os(WRITE).is_some() {
        std::fs::write(file, &page).unwrap();
    }
    let written = std::fs::read_to_string(file).unwrap_or_default();
    assert!(
        written == page,
        "docs/reference/commands.md differs from src/cli/help.txt: {WRITE}=1 cargo test -p zoolet --bins page_of_the_commands"
    );
}

fn page() -> String {
    let mut page = BEGIN.to_owned();
    for (_, says) in NOTATIONS {
        _ = writeln!(page, "- {says}");
    }
    page.push_str(ENVIRONMENT);
    _ = write!(
        page,
        "\n{EXIT_CODES} Commands that coordinate programs\nhave others: [exit codes](exit-codes.md) has all cases.\n"
    );
    distinct_lines(&table()).for_each(|command| section(&mut page, command));
    page
}

fn section(page: &mut String, command: &Command) {
    _ = write!(page, "\n## zoolet {}\n\n", command.usage.replace(" [OPTIONS]", ""));
    wrap(page, &format!("{}.", capitalised(command.says)), 0, 0);
    if !command.options.is_empty() {
        page.push_str("\n| option | meaning |\n|---|---|\n");
        for option in &command.options {
            _ = writeln!(page, "| `{}` | {} |", option.usage(), option.says.replace('|', "\\|"));
        }
    }
    let examples: Vec<String> = command.examples.iter().map(|example| format!("`{example}`")).collect();
    _ = write!(
        page,
        "\nFor example:\n\n{}\n",
        examples.iter().map(|line| format!("- {line}\n")).collect::<String>().trim_end()
    );
}
