//! The tables of docs/reference/shell.md, made from the table of commands.

use super::table::{self, Command, Origin};

const PAGE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/docs/reference/shell.md");

/// After a change of the table: `ZOOLET_WRITE=1 cargo test -p zoolet --bins page_of_the_shell`.
#[test]
fn page_of_the_shell_has_the_tables_of_its_commands() {
    let page = std::fs::read_to_string(PAGE).unwrap();
    let expected = written(&written(&page, "commands", &commands()), "improvements", &improvements());
    if std::env::var_os("ZOOLET_WRITE").is_some() {
        std::fs::write(PAGE, &expected).unwrap();
    }
    let page = std::fs::read_to_string(PAGE).unwrap();
    assert!(page == expected, "run ZOOLET_WRITE=1 cargo test -p zoolet --bins page_of_the_shell");
}

/// Returns the page with a table written anew between its marks.
fn written(page: &str, name: &str, table: &str) -> String {
    let begin = format!("<!-- table of {name} -->\n");
    let (before, rest) = page.split_once(&begin).unwrap_or_else(|| panic!("{PAGE} has no line {begin}"));
    let (_, after) = rest.split_once("<!-- end of the table -->").unwrap();
    format!("{before}{begin}{table}<!-- end of the table -->{after}")
}

fn commands() -> String {
    let mut text = "| command | what it does | options | of |\n|---|---|---|---|\n".to_owned();
    for command in table::all() {
        let options: Vec<String> =
            command.options.iter().map(|choice| format!("`{}` {}", choice.usage(), choice.says)).collect();
        let origin = match command.origin {
            Origin::ZooKeeper => "ZooKeeper",
            Origin::OldZooKeeper(_) => "3.4",
            Origin::Zoolet => "zoolet",
        };
        text += &format!("| `{}` | {} | {} | {origin} |\n", usage(command), command.says, options.join("<br>"));
    }
    text
}

/// A bar would end the column.
fn usage(command: &Command) -> String {
    let usage = command.usage.split(" #").next().unwrap_or_default();
    format!("{} {usage}", command.name).trim_end().replace('|', "\\|")
}

fn improvements() -> String {
    let mut text = "| command | the difference |\n|---|---|\n".to_owned();
    for command in table::all().filter(|command| !command.better.is_empty()) {
        text += &format!("| `{}` | {} |\n", command.name, command.better);
    }
    text
}
