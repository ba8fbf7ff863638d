//! Rows of the table of quantities, for tests of the library and of the binary.
#![allow(clippy::unwrap_used, reason = "tests may unwrap, what they share too")]

/// A time or a size as a user may write it.
pub(crate) struct Row {
    pub(crate) is_time: bool,
    pub(crate) text: String,
    /// Milliseconds or bytes; `None` if the text is refused.
    pub(crate) number: Option<u64>,
    /// End of the refusal's line; empty without a hint.
    pub(crate) hint: String,
}

/// Reads the table at run time, because a package of this crate does not hold the file.
pub(crate) fn rows() -> Vec<Row> {
    let table = concat!(env!("CARGO_MANIFEST_DIR"), "/firmware-profiles/src/quantities.tsv");
    let table = std::fs::read_to_string(table).unwrap();
    let rows: Vec<_> = table.lines().filter(|line| !line.starts_with('#')).map(row).collect();
    assert!(rows.len() > 70, "{}", rows.len());
    rows
}

fn row(line: &str) -> Row {
    let columns: Vec<_> = line.splitn(4, '\t').collect();
    let [kind, text, number, hint] = columns[..] else { panic!("{line:?} has not four columns") };
    Row { is_time: kind == "time", text: text.to_owned(), number: number.parse().ok(), hint: hint.to_owned() }
}
