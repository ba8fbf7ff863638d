//! `zoolet probe`: measures this box, explains the figures, and names the nearest profile.

mod advice;
mod box_facts;
mod ciphers;
mod clock;
mod disk;
mod peers;
mod progress;
mod report;

pub(super) use disk::run_writer as measure;

use super::{Exit, complain, say};
use box_facts::Machine;
use ciphers::Ciphers;
use disk::DiskFound;
use peers::Peer;
use progress::Progress;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::sync::mpsc;
use std::thread;
use std::time::{Duration, Instant};
use zoolet::config::Network;
use zoolet_profiles::Profile;

/// Name of the temporary file that the disk measurement writes.
const NAME: &str = "zoolet-probe.tmp";
/// Deadline of the disk measurement, counted from the start of the probe.
///
/// The whole probe must end within 30 s.
const DISK_UNTIL: Duration = Duration::from_secs(26);
/// Maximum wait for the profile to be written.
const WRITING_MAX: Duration = Duration::from_secs(2);

/// The settings of a probe.
#[derive(Debug)]
pub(super) struct Options {
    /// The data directory of the planned server.
    pub(super) data: PathBuf,
    pub(super) peers: Vec<String>,
    pub(super) network: Network,
    /// Output file for a profile of this box.
    pub(super) out: Option<PathBuf>,
    pub(super) is_json: bool,
}

impl Default for Options {
    fn default() -> Self {
        Self { data: "zoolet-data".into(), peers: Vec::new(), network: Network::default(), out: None, is_json: false }
    }
}

/// The results of a probe.
struct Found {
    disk: DiskFound,
    machine: Machine,
    peers: Vec<Peer>,
    nearest: Option<Nearest>,
}

/// The nearest profile, with this box's measured figures.
struct Nearest {
    name: String,
    profile: Profile,
    /// The text from which `profile` was read.
    tuned: String,
}

pub(super) fn probe(options: &Options) -> Result<(), Exit> {
    if let Some(out) = &options.out {
        can_be_made(out)?;
    }
    let found = look(options)?;
    say(&if options.is_json { report::json(&found) } else { report::text(&found) })?;
    if let Some(stuck) = found.disk.stuck {
        return Err(Exit::failed(unfinished(stuck, &found.disk.directory, options.out.as_deref())));
    }
    match (&options.out, &found.nearest) {
        (Some(out), Some(nearest)) => {
            write_new(out, &nearest.tuned).map_err(|error| Exit::failed(format!("{}: {error}", out.display())))?;
            complain(&format!("{0}: a profile of this box; use it with profile = \"{0}\"", out.display()));
            Ok(())
        }
        _ => Ok(()),
    }
}

/// Checks the output file first, before half a minute is spent on its content.
fn can_be_made(out: &Path) -> Result<(), Exit> {
    let cannot = |why| Err(Exit::usage(format!("--out = {}: {why}", out.display())));
    if out.exists() {
        return cannot("exists and is not overwritten");
    }
    match out.parent() {
        Some(parent) if parent != Path::new("") && !parent.is_dir() => cannot("its directory does not exist"),
        _ => Ok(()),
    }
}

fn look(options: &Options) -> Result<Found, Exit> {
    let began = Instant::now();
    let mut progress = Progress::new();
    progress.show(0, || "measuring processors and peers".to_owned());
    let ciphers = Ciphers::measure();
    let peers = peers::ask(&options.peers, peers::PATIENCE);
    let disk = disk::measure(&options.data, began + DISK_UNTIL, &mut progress);
    progress.end();
    let disk = disk?;
    let machine = Machine { ciphers, ..box_facts::look(Path::new("/")) };
    let nearest = nearest(&disk, &machine, options.network).map_err(Exit::failed)?;
    Ok(Found { disk, machine, peers, nearest })
}

fn nearest(
    disk: &DiskFound,
    machine: &Machine,
    network: Network,
) -> Result<Option<Nearest>, zoolet_profiles::ProfileError> {
    let (Some(name), Some(syncs)) = (advice::nearest(disk, machine)?, &disk.syncs) else { return Ok(None) };
    let tuned = advice::tuned(&name, network.name(), disk, syncs);
    let profile = Profile::read("probe", &tuned, None)?;
    Ok(Some(Nearest { name, profile, tuned }))
}

fn unfinished(stuck: disk::Stuck, directory: &Path, out: Option<&Path>) -> String {
    let written = out.map_or_else(String::new, |out| {
        format!("; {} is not written, because the measurement is incomplete", out.display())
    });
    format!(
        "{}: {} for {} s, and the probe gave up; {NAME} stays until the disk answers, or until the next probe{written}",
        directory.display(),
        stuck.what(),
        stuck.waited.as_secs()
    )
}

/// Writes a new file with a time limit: its disk may be the one that hangs.
fn write_new(out: &Path, text: &str) -> std::io::Result<()> {
    let (sender, written) = mpsc::channel();
    let (place, text) = (out.to_path_buf(), text.to_owned());
    thread::spawn(move || _ = sender.send(create(&place, &text)));
    written.recv_timeout(WRITING_MAX).unwrap_or_else(|_| Err(std::io::Error::other("the disk does not answer")))
}

fn create(out: &Path, text: &str) -> std::io::Result<()> {
    let mut file = std::fs::OpenOptions::new().write(true).create_new(true).open(out)?;
    // A partial profile is useless, and would block the next attempt.
    file.write_all(text.as_bytes()).and_then(|()| file.sync_all()).inspect_err(|_| drop(std::fs::remove_file(out)))
}
