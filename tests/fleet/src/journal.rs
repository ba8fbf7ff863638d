//! The journal of a mixed fleet: one file, to which every program of the fleet appends.
//!
//! So the order of the lines is the order of the events that they report.

use std::fmt::Display;
use std::fs::{File, OpenOptions};
use std::io::{self, Write};
use std::path::Path;

/// One process's end of the journal. Lines are `WHAT PROCESS ...`; `judge.py` explains them.
#[derive(Debug)]
pub(crate) struct Journal {
    file: File,
    process: String,
}

impl Journal {
    pub(crate) fn open(path: &Path, process: &str) -> io::Result<Self> {
        let file = OpenOptions::new().append(true).create(true).open(path)?;
        Ok(Self { file, process: process.to_owned() })
    }

    /// Appends one line in one call, so lines of several processes never mix.
    #[allow(clippy::expect_used, reason = "a program whose journal cannot be written proves nothing")]
    pub(crate) fn tell(&self, what: &str, words: impl Display) {
        let line = format!("{what} {} {words}\n", self.process);
        (&self.file).write_all(line.as_bytes()).expect("the journal is written");
    }
}
