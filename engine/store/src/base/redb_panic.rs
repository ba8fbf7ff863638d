//! Panics of redb over a file with correct checksums.
//!
//! If panics unwind, such a panic is caught and counts as damage. It ends the process if panics
//! abort, or if a destructor of redb panics during the unwinding. Then it would end every later
//! process too. So the process's panic hook asks [`PanicNote::due`] and leaves that note beside the
//! file. The next opening of the base finds the note and reports the same damage.

use super::{BaseError, names::note_name};
use crate::disk::Disk;
use std::{
    cell::RefCell,
    fmt, io,
    panic::{AssertUnwindSafe, catch_unwind, resume_unwind},
    sync::Arc,
};

const REDB_PANICKED: &str = "redb cannot make sense of its file";

thread_local! {
    /// While redb runs on this thread: the note to leave if it panics.
    ///
    /// A panic hook runs on the panicking thread, but has no other way to tell that redb was at
    /// work.
    static AT_WORK: RefCell<Option<AtWork>> = const { RefCell::new(None) };
}

struct AtWork {
    note: PanicNote,
    /// A first panic is unwinding. A second one cannot be caught.
    is_panicking: bool,
}

/// A note that redb panicked over the file of a base.
#[derive(Clone)]
pub struct PanicNote {
    disk: Arc<dyn Disk>,
    base: u64,
}

impl fmt::Debug for PanicNote {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PanicNote").field("base", &self.base).finish_non_exhaustive()
    }
}

impl PanicNote {
    /// Returns the note that a panic hook must leave, if any.
    ///
    /// A note is due if redb panics on this thread and the panic ends the process.
    pub fn due() -> Option<Self> {
        let due = |at_work: &RefCell<Option<AtWork>>| {
            let mut at_work = at_work.try_borrow_mut().ok()?;
            let AtWork { note, is_panicking } = at_work.as_mut()?;
            let is_the_end = cfg!(panic = "abort") || std::mem::replace(is_panicking, true);
            is_the_end.then(|| note.clone())
        };
        AT_WORK.try_with(due).ok()?
    }

    /// Writes the note durably.
    ///
    /// # Errors
    /// The error of the disk. Without the note the next process ends in the same way.
    pub fn leave(&self) -> io::Result<()> {
        let file = self.disk.create(&note_name(self.base))?;
        file.write_at(0, b"redb panicked over the file of this base, and the server ended.\n")?;
        file.sync()?;
        self.disk.sync_directory()
    }
}

/// Runs `work`, which calls redb; `None` if redb panics.
pub(super) fn guarded<T>(disk: &Arc<dyn Disk>, base: u64, work: impl FnOnce() -> T) -> Option<T> {
    let note = PanicNote { disk: Arc::clone(disk), base };
    let around = AT_WORK.replace(Some(AtWork { note, is_panicking: false }));
    let done = catch_unwind(AssertUnwindSafe(work));
    let is_redbs = AT_WORK.replace(around).is_some();
    match done {
        Ok(done) => Some(done),
        Err(_) if is_redbs => None,
        // A bug outside redb, which does not mean that the file is damaged.
        Err(panic) => resume_unwind(panic),
    }
}

/// Runs code that redb calls back. A panic in it is not redb's.
pub(super) fn ours<T>(work: impl FnOnce() -> T) -> T {
    let around = AT_WORK.take();
    let done = work();
    AT_WORK.set(around);
    done
}

/// Returns the error for such a panic.
pub(super) fn damage() -> BaseError {
    BaseError::Damaged(REDB_PANICKED.into())
}

/// Refuses a file over which an earlier process ended.
pub(super) fn look_for_note(disk: &dyn Disk, base: u64) -> Result<(), BaseError> {
    let note = note_name(base);
    if !disk.list()?.contains(&note) {
        return Ok(());
    }
    let what = format!(
        "{REDB_PANICKED}: a server crashed over it, as {note} records; keep a copy of that file for a bug report"
    );
    Err(BaseError::Damaged(what))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::FsDisk;

    fn guarded<T>(base: u64, work: impl FnOnce() -> T) -> Option<T> {
        let directory = std::env::temp_dir().join(format!("zoolet-redb-panic-{}-{base}", std::process::id()));
        std::fs::create_dir_all(&directory).unwrap();
        let disk: Arc<dyn Disk> = Arc::new(FsDisk::open(&directory).unwrap());
        std::fs::remove_dir_all(&directory).unwrap();
        super::guarded(&disk, base, work)
    }

    #[test]
    fn redb_panic_is_caught_and_keeps_the_outer_guard() {
        let due = guarded(1, || {
            assert_eq!(guarded(2, || std::panic::panic_any("redb's")), None::<()>);
            [PanicNote::due(), PanicNote::due()].map(|due| due.map(|note| note.base))
        });
        // The first panic could still be caught.
        assert_eq!(due, Some([None, Some(1)]));
        assert!(PanicNote::due().is_none());
    }

    #[test]
    fn panic_in_a_callback_from_redb_is_a_bug_not_damage() {
        let bug = catch_unwind(|| guarded(3, || ours(|| std::panic::panic_any("ours"))).is_none());
        assert_eq!(bug.unwrap_err().downcast_ref(), Some(&"ours"));
        assert!(PanicNote::due().is_none());
    }
}
