//! A file that redb cannot make sense of, although every checksum is right: it panics over some of those.
//!
//! Where panics unwind, this one is caught, and is damage like any other. Where they do not, it ends the process, and would end each one after it. So whoever
//! runs such a process has its panic hook call [`note_panic`]: that leaves a note beside the file, and whoever opens the base next finds the same damage.

use super::BaseError;
use crate::store::disk::Disk;
use std::{
    cell::RefCell,
    panic::{AssertUnwindSafe, catch_unwind},
    sync::Arc,
};

const SENSELESS: &str = "redb cannot make sense of its file";

thread_local! {
    /// Where a note belongs while redb opens a file on this thread. A panic hook is called on the thread that panics, and told nothing else.
    static OPENING: RefCell<Option<(Arc<dyn Disk>, String)>> = const { RefCell::new(None) };
}

/// Opens redb's file of a base with `opening`, unless a former process has ended over it.
pub(super) fn guarded<T>(
    disk: &Arc<dyn Disk>,
    id: u64,
    opening: impl FnOnce() -> Result<T, BaseError>,
) -> Result<T, BaseError> {
    let note = note_name(id);
    if disk.list()?.contains(&note) {
        let what = format!("{SENSELESS}: a server ended over it, says {note}, and without that file it is tried again");
        return Err(BaseError::Damaged(what));
    }
    OPENING.set(Some((Arc::clone(disk), note)));
    let opened = catch_unwind(AssertUnwindSafe(opening));
    OPENING.set(None);
    opened.unwrap_or_else(|_| Err(BaseError::Damaged(SENSELESS.into())))
}

/// For the panic hook of a process in which panics do not unwind. Where redb panics over its file, the next process takes that for damage; anywhere else it does
/// nothing. A disk that takes no note takes none: then the next process ends in the same way.
pub fn note_panic() {
    if let Some((disk, note)) = OPENING.take() {
        let _ = disk.create(&note).and_then(|file| {
            file.write_at(0, b"redb panicked over the file of this base, which says nothing to it.\n")?;
            file.sync()?;
            disk.sync_directory()
        });
    }
}

pub(super) fn note_name(id: u64) -> String {
    format!("base-{id}.panic")
}
