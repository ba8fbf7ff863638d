//! Starts the writing process and waits for its events until a deadline.

use super::event::{Event, Phase};
use super::writer::{LAYING_OUT_MAX, Plan, SYNCING_MAX};
use super::{DiskFound, Stuck, Syncs};
use crate::cli::Exit;
use crate::cli::args::MEASURE;
use crate::cli::probe::progress::Progress;
use std::io::{BufRead, BufReader};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::mpsc::{self, Receiver, RecvTimeoutError, Sender};
use std::thread;
use std::time::{Duration, Instant};
use zoolet_store::FileSystem;

/// Interval between looks at the deadline and the progress.
const TELL_EVERY: Duration = Duration::from_millis(200);
/// Silence after which the progress line mentions an operation that does not return.
const LONG: Duration = Duration::from_secs(3);

/// Measures the disk of a directory, until the deadline.
///
/// If the directory does not exist, its parent is measured.
///
/// # Errors
/// There is no directory or no room, or the disk refuses an operation.
pub(in crate::cli::probe) fn measure(data: &Path, until: Instant, progress: &mut Progress) -> Result<DiskFound, Exit> {
    let events = start(data).map_err(|error| Exit::failed(format!("cannot measure the disk: {error}")))?;
    let mut found = watch(&events, until, data, progress)?;
    if found.stuck.is_none() {
        found.wear = zoolet_store::device_wear(&found.directory);
    }
    Ok(found)
}

/// Starts the writing process and returns the receiver of its events.
///
/// The process is not in the terminal's process group, so an interrupt from the terminal does not
/// end it. Its next write to the pipe fails instead: it removes its file and ends. It inherits no
/// other open file, so a reader of this process's output does not wait for it.
fn start(data: &Path) -> std::io::Result<Receiver<Event>> {
    let mut command = Command::new(std::env::current_exe()?);
    command.arg(MEASURE).arg(data).process_group(0);
    let mut child = command.stdin(Stdio::null()).stderr(Stdio::null()).stdout(Stdio::piped()).spawn()?;
    let (sender, events) = mpsc::channel();
    if let Some(lines) = child.stdout.take() {
        thread::spawn(move || forward(BufReader::new(lines), &sender));
    }
    Ok(events)
}

fn forward(mut lines: impl BufRead, events: &Sender<Event>) {
    let mut line = Vec::new();
    while lines.read_until(b'\n', &mut line).is_ok_and(|length| length > 0) {
        if let Some(event) = line.strip_suffix(b"\n").and_then(Event::parse)
            && events.send(event).is_err()
        {
            return;
        }
        line.clear();
    }
}

fn watch(events: &Receiver<Event>, until: Instant, data: &Path, progress: &mut Progress) -> Result<DiskFound, Exit> {
    let mut seen = Seen::new(data);
    loop {
        let wait = until.saturating_duration_since(Instant::now());
        match events.recv_timeout(wait.min(TELL_EVERY)) {
            Ok(Event::Done) => return Ok(seen.found(None)),
            Ok(Event::Failed { code, line }) => return Err(Exit { code, line }),
            Ok(event) => {
                if let Event::Place { plan, directory, .. } = &event {
                    progress.say(&announcement(*plan, directory));
                }
                seen.note(event);
            }
            Err(RecvTimeoutError::Disconnected) => {
                return Err(Exit::failed("the process that measures the disk was killed; run the probe again"));
            }
            Err(RecvTimeoutError::Timeout) => {}
        }
        if Instant::now() >= until {
            let stuck = Stuck { phase: seen.phase, waited: seen.heard.elapsed() };
            return Ok(seen.found(Some(stuck)));
        }
        progress.show(seen.percent(), || seen.in_words());
    }
}

fn announcement(plan: Plan, directory: &Path) -> String {
    format!(
        "writes up to {} bytes ({} MiB) in {} and removes them; takes up to half a minute",
        plan.bytes(),
        plan.bytes().div_ceil(1 << 20),
        directory.display()
    )
}

/// The events so far.
struct Seen {
    directory: PathBuf,
    file_system: FileSystem,
    free_bytes: Option<u64>,
    plan: Option<Plan>,
    phase: Phase,
    /// When the phase began.
    began: Instant,
    /// When the last event arrived.
    heard: Instant,
    /// Bytes laid out, and the time spent on them, in microseconds.
    laid_out: (u64, u64),
    took: Vec<u64>,
}

impl Seen {
    fn new(data: &Path) -> Self {
        let now = Instant::now();
        Self {
            directory: data.to_path_buf(),
            file_system: FileSystem::Other(0),
            free_bytes: None,
            plan: None,
            phase: Phase::Preparing,
            began: now,
            heard: now,
            laid_out: (0, 0),
            took: Vec::new(),
        }
    }

    fn note(&mut self, event: Event) {
        self.heard = Instant::now();
        match event {
            Event::Place { file_system, free_bytes, plan, directory } => {
                (self.directory, self.file_system) = (directory, file_system);
                (self.free_bytes, self.plan) = (Some(free_bytes), Some(plan));
            }
            Event::Began(phase) => (self.phase, self.began) = (phase, self.heard),
            Event::LaidOut { bytes, us } => self.laid_out = (bytes, us),
            Event::Synced { us } => self.took.push(us),
            Event::Done | Event::Failed { .. } => {}
        }
    }

    /// Estimates the progress in hundredths, from bytes and time.
    fn percent(&self) -> u64 {
        let Some(plan) = self.plan else { return 0 };
        let of = |done: u64, most: u64, time: Duration| {
            let by_time = self.began.elapsed().as_millis() * 100 / time.as_millis();
            (done * 100 / most.max(1)).max(u64::try_from(by_time).unwrap_or(100)).min(100)
        };
        match self.phase {
            Phase::Preparing => 0,
            Phase::LayingOut => of(self.laid_out.0, plan.laid_out_bytes, LAYING_OUT_MAX) * 2 / 5,
            Phase::Syncing => 40 + of(self.took.len() as u64, plan.syncs, SYNCING_MAX) * 3 / 5,
            Phase::Removing => 100,
        }
    }

    fn in_words(&self) -> String {
        let silent = self.heard.elapsed();
        if silent >= LONG {
            let stuck = Stuck { phase: self.phase, waited: silent };
            return format!("{} for {} s", stuck.what(), silent.as_secs());
        }
        let plan = self.plan.unwrap_or(Plan { laid_out_bytes: 0, syncs: 0 });
        match self.phase {
            Phase::Preparing => "inspecting the directory".to_owned(),
            Phase::LayingOut => {
                format!("writing sequentially, {} of {} MiB", self.laid_out.0 >> 20, plan.laid_out_bytes >> 20)
            }
            Phase::Syncing => {
                format!("writing and syncing block by block, {} of up to {}", self.took.len(), plan.syncs)
            }
            Phase::Removing => "removing the file".to_owned(),
        }
    }

    fn found(self, stuck: Option<Stuck>) -> DiskFound {
        let written_bytes = self.laid_out.0 + self.took.len() as u64 * super::writer::BLOCK;
        let mut took = self.took;
        // A stuck sync counts too: it took at least this long.
        if let Some(Stuck { phase: Phase::Syncing, waited }) = stuck {
            took.push(u64::try_from(waited.as_micros()).unwrap_or(u64::MAX));
        }
        let (bytes, us) = self.laid_out;
        DiskFound {
            directory: self.directory,
            file_system: self.file_system,
            free_bytes: self.free_bytes,
            bytes_per_second: (bytes > 0).then(|| bytes.saturating_mul(1_000_000) / us.max(1)),
            syncs: Syncs::of(took),
            written_bytes,
            wear: None,
            stuck,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn place() -> Event {
        let plan = Plan { laid_out_bytes: 1 << 20, syncs: 100 };
        Event::Place { file_system: FileSystem::Ext, free_bytes: 8 << 20, plan, directory: "/data".into() }
    }

    /// Returns the findings for a writer that sends these events and then hangs.
    fn after(events: impl IntoIterator<Item = Event>) -> DiskFound {
        let (sender, receiver) = mpsc::channel();
        events.into_iter().for_each(|event| sender.send(event).unwrap());
        let until = Instant::now() + Duration::from_millis(50);
        watch(&receiver, until, Path::new("data"), &mut Progress::into(std::io::sink(), false)).ok().unwrap()
    }

    #[test]
    fn probe_reports_partial_results_of_a_hanging_disk() {
        let mut told = vec![place(), Event::Began(Phase::LayingOut), Event::LaidOut { bytes: 1 << 20, us: 1 << 20 }];
        let found = after(told.clone());
        assert_eq!(found.stuck.unwrap().what(), "a sync has not returned");
        assert_eq!((found.bytes_per_second, found.syncs, found.written_bytes), (Some(1_000_000), None, 1 << 20));

        told.push(Event::Began(Phase::Syncing));
        told.extend([300, 100].map(|us| Event::Synced { us }));
        let found = after(told.clone());
        let syncs = found.syncs.unwrap();
        assert_eq!((syncs.count, syncs.p50_us), (3, 300), "the one that has not returned is the longest");
        assert_eq!(syncs.max_us, u64::try_from(found.stuck.unwrap().waited.as_micros()).unwrap());
        assert_eq!(found.written_bytes, (1 << 20) + 2 * 4096);

        // If only the removal hangs, the measurement is complete.
        told.push(Event::Began(Phase::Removing));
        let found = after(told);
        assert_eq!(found.syncs.unwrap().max_us, 300);
        assert_eq!(found.stuck.unwrap().phase, Phase::Removing);
    }

    #[test]
    fn probe_reports_a_data_directory_that_never_answers() {
        let found = after([]);
        assert_eq!(found.stuck.unwrap().what(), "the file system has not answered");
        assert_eq!((found.directory.as_path(), found.syncs), (Path::new("data"), None));
    }

    #[test]
    fn probe_stops_waiting_once_its_writer_is_done_or_failed() {
        let (sender, receiver) = mpsc::channel();
        let far = Instant::now() + Duration::from_secs(3600);
        let watch = || watch(&receiver, far, Path::new("data"), &mut Progress::into(std::io::sink(), false));
        for event in [place(), Event::Synced { us: 1 }, Event::Done] {
            sender.send(event).unwrap();
        }
        assert_eq!(watch().ok().unwrap().stuck, None);
        sender.send(Event::Failed { code: 2, line: "no".to_owned() }).unwrap();
        assert_eq!(watch().err().map(|exit| (exit.code, exit.line)), Some((2, "no".to_owned())));
        drop(sender);
        assert!(super::watch(&receiver, far, Path::new("data"), &mut Progress::into(std::io::sink(), false)).is_err());
    }

    #[test]
    fn probe_progress_never_decreases_and_ends_at_100_percent() {
        let mut seen = Seen::new(Path::new("data"));
        let (mut before, mut said) = (0, Vec::new());
        let laid = (1..=4).map(|quarter| Event::LaidOut { bytes: quarter << 18, us: 1 });
        let events = [place(), Event::Began(Phase::LayingOut)].into_iter().chain(laid);
        let synced = (0..100).map(|_| Event::Synced { us: 1 });
        let events = events.chain([Event::Began(Phase::Syncing)]).chain(synced).chain([Event::Began(Phase::Removing)]);
        for event in events {
            seen.note(event);
            let percent = seen.percent();
            assert!(before <= percent && percent <= 100, "{before} {percent}");
            before = percent;
            said.push(seen.in_words());
        }
        assert_eq!(before, 100);
        assert!(said.contains(&"writing and syncing block by block, 42 of up to 100".to_owned()), "{said:?}");
    }
}
