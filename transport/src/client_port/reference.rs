//! The reference pages agree with the registries, and with the fields of `zool`.

use super::metrics::METRICS;
use super::words::FOREIGN;
use super::{Access, Word, zool};

use std::collections::BTreeSet;
use std::path::Path;

const PAGE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../docs/reference/metrics.md");

/// Returns the page with the text between the marks of each section replaced.
fn written(page: &str, sections: &[(&str, String)]) -> String {
    sections.iter().fold(page.to_owned(), |page, (name, text)| {
        let marks = [format!("<!-- {name}, from the registry -->\n"), format!("<!-- end of {name} -->\n")];
        let (before, rest) = page.split_once(&marks[0]).unwrap_or_else(|| panic!("{PAGE} has no {}", marks[0]));
        let (_, after) = rest.split_once(&marks[1]).unwrap_or_else(|| panic!("{PAGE} has no {}", marks[1]));
        format!("{before}{}\n{text}\n{}{after}", marks[0], marks[1])
    })
}

fn words() -> String {
    let row = |word: Word| {
        let access = match word.access() {
            Access::Default => "answered",
            Access::Listed => "-",
            Access::Readers => "answered with `read_only = true`",
            Access::Here => "answered on this host, whatever the list says",
        };
        format!("| `{}` | {access} | {} |\n", word.text(), word.answer())
    };
    let mut table = String::from("| word | without a list | answer |\n|---|---|---|\n");
    table.extend(Word::ALL.map(row));
    let foreign = FOREIGN.map(|word| format!("`{word}`")).join(" ");
    let says = "words of ZooKeeper alone; the server says that they are not in the list, even if the list is `*`";
    table + &format!("| {foreign} | - | {says} |\n")
}

fn metrics() -> String {
    let mut table = String::from("| metric | kind | unit | meaning |\n|---|---|---|---|\n");
    table.extend(METRICS.iter().map(|metric| {
        let (kind, unit) = (metric.kind.name(), metric.unit.symbol());
        format!("| `{}` | {kind} | {unit} | {} |\n", metric.name, metric.help)
    }));
    table
}

#[test]
fn the_reference_has_a_row_for_each_word_and_each_metric() {
    let page = std::fs::read_to_string(PAGE).unwrap();
    let expected = written(&page, &[("words", words()), ("metrics", metrics())]);
    if std::env::var_os("ZOOLET_WRITE").is_some() {
        std::fs::write(PAGE, &expected).unwrap();
    }
    assert!(
        std::fs::read_to_string(PAGE).unwrap() == expected,
        "docs/reference/metrics.md differs from the registry; write its tables anew: \
         ZOOLET_WRITE=1 cargo test -p zoolet-transport --lib reference::"
    );
}

/// Returns the texts that stand in `code`.
fn in_code(text: &str) -> BTreeSet<&str> {
    text.split('`').skip(1).step_by(2).collect()
}

/// Returns the keys of all objects in a JSON text.
fn keys(json: &str) -> BTreeSet<&str> {
    let parts: Vec<&str> = json.split('"').collect();
    parts.windows(2).filter(|pair| pair[1].starts_with(':')).map(|pair| pair[0]).collect()
}

#[test]
fn the_reference_describes_each_field_of_zool() {
    // Read by the test, because a package of this crate holds neither file.
    let read = |file| std::fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join(file)).unwrap();
    let (page, golden) = (read("../docs/reference/status.md"), read("tests/golden/words/zool-leader.txt"));
    let (page, zool) = (page.as_str(), keys(&golden));
    let missing: Vec<_> = zool.difference(&in_code(page)).copied().collect();
    assert!(missing.is_empty(), "docs/reference/status.md does not describe {missing:?}");
    let table = page.split_once("| field of `status` |").unwrap().1;
    let fields = table.lines().skip(2).filter_map(|row| row.split('|').nth(1)).flat_map(in_code);
    let gone: Vec<_> = fields.filter(|field| !zool.contains(field)).collect();
    assert!(gone.is_empty(), "docs/reference/status.md describes {gone:?}, which zool does not have");
}

#[test]
fn zool_shows_figures_of_the_disk_that_the_driver_measures() {
    for (_, name) in zool::DISK {
        assert!(METRICS.iter().any(|metric| metric.is_of_driver() && metric.name == name), "{name}");
    }
}
