//! The tables of `docs/reference/metrics.md` agree with the registries.

use super::words::FOREIGN;
use super::{Access, Word};

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
            Access::Here => "answered on this host, whatever the list says",
        };
        format!("| `{}` | {access} | {} |\n", word.text(), word.answer())
    };
    let mut table = String::from("| word | without a list | answer |\n|---|---|---|\n");
    table.extend(Word::ALL.map(row));
    let foreign = FOREIGN.map(|word| format!("`{word}`")).join(" ");
    table + &format!("| {foreign} | - | as if not in the list, also under `*` |\n")
}

#[test]
fn the_reference_has_a_row_for_each_word() {
    let page = std::fs::read_to_string(PAGE).unwrap();
    let expected = written(&page, &[("words", words())]);
    if std::env::var_os("ZOOLET_WRITE").is_some() {
        std::fs::write(PAGE, &expected).unwrap();
    }
    assert!(
        std::fs::read_to_string(PAGE).unwrap() == expected,
        "docs/reference/metrics.md differs from the registry; write its tables anew: \
         ZOOLET_WRITE=1 cargo test -p zoolet-transport --lib reference::"
    );
}
