//! Makes each mistake of docs/reference/mistakes.md, and compares the answer with its line.

#![allow(
    clippy::unwrap_used,
    clippy::print_stdout,
    reason = "a test stops at the first surprise, and tells what it could not do"
)]

mod boxes;
mod ensembles;
mod files;
mod table;

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Mutex;
use table::{Case, Row};

/// A mistake, and the function that makes it and compares the answer.
type Scenario = (&'static str, fn(&Case<'_>));

/// Scenarios that run in parallel; most of them wait.
const AT_ONCE: usize = 8;

fn scenarios() -> Vec<Scenario> {
    // The slowest come first.
    [ensembles::SCENARIOS, boxes::SCENARIOS, files::SCENARIOS].concat()
}

#[test]
fn documented_mistakes_and_scenarios_match_one_to_one() {
    let rows = table::rows();
    assert!(rows.len() >= 25, "{} rows", rows.len());
    let of_scenarios: Vec<&str> = scenarios().into_iter().map(|(mistake, _)| mistake).collect();
    let of_rows: Vec<&str> = rows.iter().map(|row| row.mistake.as_str()).collect();
    let not_in = |some: &[&str], others: &[&str]| -> Vec<String> {
        some.iter().filter(|one| !others.contains(one)).map(|one| (*one).to_owned()).collect()
    };
    assert_eq!(not_in(&of_rows, &of_scenarios), [""; 0], "nobody makes these");
    assert_eq!(not_in(&of_scenarios, &of_rows), [""; 0], "the document does not have these");
    assert_eq!(of_rows.len(), of_scenarios.len(), "one is there twice");
}

#[test]
fn every_documented_mistake_gives_its_documented_line() {
    let rows = table::rows();
    let left = Mutex::new(scenarios().into_iter());
    let failed = Mutex::new(Vec::new());
    std::thread::scope(|threads| {
        for _ in 0..AT_ONCE {
            threads.spawn(|| {
                loop {
                    let Some((mistake, make)) = left.lock().unwrap().next() else { return };
                    // The other test reports a missing row.
                    let Some(row) = rows.iter().find(|row| row.mistake == mistake) else { continue };
                    let case = Case::new(row);
                    if catch_unwind(AssertUnwindSafe(|| make(&case))).is_err() {
                        println!("{mistake}: the servers said\n{}", case.logs());
                        failed.lock().unwrap().push(mistake);
                    }
                }
            });
        }
    });
    let failed = failed.into_inner().unwrap();
    assert!(failed.is_empty(), "answered otherwise, see above: {failed:#?}");
}

#[test]
fn row_of_the_mistakes_table_is_parsed() {
    let row = Row::read("| what | start, 2 | `a: \"b\"`<br>`` run `c` `` |").unwrap();
    assert_eq!((row.mistake.as_str(), row.said.as_str()), ("what", "start, 2"));
    assert_eq!(row.lines, ["a: \"b\"", "run `c`"]);
}
