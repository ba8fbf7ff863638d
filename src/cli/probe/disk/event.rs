//! Events from the writing process to the waiting one, a line each, through a pipe.

use super::writer::Plan;
use std::ffi::OsString;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::PathBuf;
use zoolet_store::FileSystem;

/// The current step of the writer, which is stuck if no more events arrive.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(in crate::cli::probe) enum Phase {
    /// Inspecting the directory and creating the file in it.
    Preparing,
    /// Writing sequentially, to lay out the file.
    LayingOut,
    /// Writing and syncing single blocks.
    Syncing,
    /// Removing the file.
    Removing,
}

impl Phase {
    const ALL: [Self; 4] = [Self::Preparing, Self::LayingOut, Self::Syncing, Self::Removing];

    /// Returns its name in the pipe and in JSON.
    pub(in crate::cli::probe) const fn name(self) -> &'static str {
        match self {
            Self::Preparing => "preparing",
            Self::LayingOut => "laying_out",
            Self::Syncing => "syncing",
            Self::Removing => "removing",
        }
    }
}

/// An event: one line in the pipe.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) enum Event {
    /// The empty file exists; `plan` bounds the bytes that will be written.
    Place {
        file_system: FileSystem,
        free_bytes: u64,
        plan: Plan,
        directory: PathBuf,
    },
    Began(Phase),
    /// Bytes written sequentially so far, and the time spent on them, in microseconds.
    LaidOut {
        bytes: u64,
        us: u64,
    },
    /// One block was written and synced; the time in microseconds.
    Synced {
        us: u64,
    },
    /// The measurement is complete, and the file is removed.
    Done,
    /// The measurement failed; the exit code and the line for stderr.
    Failed {
        code: u8,
        line: String,
    },
}

impl Event {
    /// Formats the event with a newline at its end.
    ///
    /// A path may contain any byte except a newline.
    pub(super) fn to_line(&self) -> Vec<u8> {
        let mut line = match self {
            Self::Place { file_system, free_bytes, plan, directory } => {
                let Plan { laid_out_bytes, syncs } = plan;
                let numbers = format!("place {} {free_bytes} {laid_out_bytes} {syncs} ", file_system.magic());
                [numbers.as_bytes(), directory.as_os_str().as_bytes()].concat()
            }
            Self::Began(phase) => format!("began {}", phase.name()).into(),
            Self::LaidOut { bytes, us } => format!("laid {bytes} {us}").into(),
            Self::Synced { us } => format!("synced {us}").into(),
            Self::Done => b"done".to_vec(),
            Self::Failed { code, line } => format!("failed {code} {}", line.replace('\n', " ")).into(),
        };
        line.push(b'\n');
        line
    }

    /// Parses a line without its newline; `None` if the writer was killed within the line.
    pub(super) fn parse(line: &[u8]) -> Option<Self> {
        let mut words = line.splitn(6, |byte| *byte == b' ');
        let kind = words.next()?;
        let mut number = || std::str::from_utf8(words.next()?).ok()?.parse::<u64>().ok();
        match kind {
            b"place" => {
                let file_system = FileSystem::of_magic(u32::try_from(number()?).ok()?);
                let free_bytes = number()?;
                let plan = Plan { laid_out_bytes: number()?, syncs: number()? };
                let directory = OsString::from_vec(words.next()?.to_vec()).into();
                Some(Self::Place { file_system, free_bytes, plan, directory })
            }
            b"began" => {
                let name = words.next()?;
                Phase::ALL.into_iter().find(|phase| phase.name().as_bytes() == name).map(Self::Began)
            }
            b"laid" => Some(Self::LaidOut { bytes: number()?, us: number()? }),
            b"synced" => Some(Self::Synced { us: number()? }),
            b"done" => Some(Self::Done),
            b"failed" => {
                let code = u8::try_from(number()?).ok()?;
                let rest = line.splitn(3, |byte| *byte == b' ').nth(2)?;
                Some(Self::Failed { code, line: String::from_utf8_lossy(rest).into_owned() })
            }
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn probe_events_round_trip_as_lines_and_cut_lines_are_refused() {
        let odd = OsString::from_vec(b"/a b/\xff c".to_vec()).into();
        let place = |file_system, directory| Event::Place {
            file_system,
            free_bytes: 5 << 30,
            plan: Plan { laid_out_bytes: 32 << 20, syncs: 2000 },
            directory,
        };
        let phases = Phase::ALL.map(Event::Began);
        let others = [
            place(FileSystem::F2fs, odd),
            place(FileSystem::Other(0xffff_fffe), "/data".into()),
            Event::LaidOut { bytes: 1 << 20, us: 17 },
            Event::Synced { us: u64::MAX },
            Event::Done,
            Event::Failed { code: 2, line: "--data = a b: is not a directory".to_owned() },
        ];
        for event in phases.into_iter().chain(others) {
            let line = event.to_line();
            let (end, line) = line.split_last().unwrap();
            assert_eq!((*end, Event::parse(line)), (b'\n', Some(event)));
        }
        for cut in ["", "pl", "place 1", "place 1 2 3 4", "synced", "began lay", "failed 1"] {
            assert_eq!(Event::parse(cut.as_bytes()), None, "{cut}");
        }
    }
}
