//! `zoolet probe`: what this box is like, what that means, and which profile is nearest.

mod advice;
mod disk;
mod machine;
mod peers;

use super::{Exit, complain, say};
use disk::DiskFound;
use machine::Machine;
use peers::Peer;
use serde_json::json;
use std::fmt::Write;
use std::io::{IsTerminal, Write as _};
use std::path::{Path, PathBuf};
use zoolet::config::Network;
use zoolet_engine::store::SpareBlocks;
use zoolet_profiles::{Key, Profile};

/// Raised when a field goes or changes its meaning, not when one is added.
const VERSION: u32 = 1;

/// What to look at.
#[derive(Debug)]
pub(super) struct Options {
    /// Where a server's data would be.
    pub(super) data: PathBuf,
    pub(super) peers: Vec<String>,
    pub(super) network: Network,
    /// Where to write a profile of this box.
    pub(super) out: Option<PathBuf>,
    pub(super) is_json: bool,
}

impl Default for Options {
    fn default() -> Self {
        Self { data: "zoolet-data".into(), peers: Vec::new(), network: Network::default(), out: None, is_json: false }
    }
}

/// All that was found.
struct Found {
    directory: PathBuf,
    disk: DiskFound,
    machine: Machine,
    peers: Vec<Peer>,
    nearest: String,
    profile: Profile,
    tuned: String,
}

pub(super) fn probe(options: &Options) -> Result<(), Exit> {
    if let Some(out) = options.out.as_ref().filter(|out| out.exists()) {
        return Err(Exit::usage(format!("--out = {}: is there already, and is not written over", out.display())));
    }
    let directory = directory(&options.data)?;
    complain(&format!(
        "up to {} MiB are written in {}, and nothing of it is left; it takes up to half a minute",
        disk::bytes_max() >> 20,
        directory.display()
    ));
    let found = look(options, directory)?;
    say(&if options.is_json { as_json(&found) } else { as_text(&found) })?;
    if let Some(out) = &options.out {
        write_new(out, &found.tuned).map_err(|error| Exit::failed(format!("{}: {error}", out.display())))?;
        complain(&format!("{0}: a profile of this box; profile = \"{0}\" takes it", out.display()));
    }
    Ok(())
}

/// The directory itself, or the one that it would be made in.
fn directory(data: &Path) -> Result<PathBuf, Exit> {
    let whole = std::path::absolute(data).map_err(Exit::failed)?;
    let found = whole.ancestors().find(|place| place.exists()).filter(|place| place.is_dir());
    found.map(Path::to_path_buf).ok_or_else(|| Exit::usage(format!("--data = {}: is no directory", data.display())))
}

fn look(options: &Options, directory: PathBuf) -> Result<Found, Exit> {
    let mut progress = Progress::new();
    let disk = disk::measure(&directory, |what| progress.say(what))
        .map_err(|error| Exit::failed(format!("{}: {error}", directory.display())))?;
    if !options.peers.is_empty() {
        progress.say("asking peers");
    }
    let peers = peers::ask(&options.peers);
    progress.end();
    let machine = machine::look(Path::new("/"));
    let nearest = advice::nearest(&disk, &machine).map_err(Exit::failed)?;
    let tuned = advice::tuned(&nearest, options.network.name(), &disk);
    let profile = Profile::read("probe", &tuned, None).map_err(Exit::failed)?;
    Ok(Found { directory, disk, machine, peers, nearest, profile, tuned })
}

/// What is being done, on one line of a terminal; elsewhere nothing.
struct Progress(bool);

impl Progress {
    fn new() -> Self {
        Self(std::io::stderr().is_terminal())
    }

    fn say(&mut self, what: &str) {
        if self.0 {
            let mut stderr = std::io::stderr();
            let _ = write!(stderr, "\r\x1b[K{what} ...").and_then(|()| stderr.flush());
        }
    }

    fn end(&mut self) {
        if self.0 {
            let _ = write!(std::io::stderr(), "\r\x1b[K");
        }
    }
}

fn as_text(found: &Found) -> String {
    let Found { disk, machine, .. } = found;
    let us = Key::SyncP50.unit();
    let bytes = Key::BoxBytes.unit();
    let unknown = || "the kernel does not say".to_owned();
    let mut text = String::new();
    let mut row = |name: &str, value: &str| _ = writeln!(text, "{name:<12} {value}");
    row(
        "data",
        &format!(
            "{}, {}: the log {}",
            found.directory.display(),
            disk.file_system.name(),
            disk.file_system.use_of_log()
        ),
    );
    row(
        "sync",
        &format!(
            "{} of 4 KiB: p50 {}, p99 {}, longest {}",
            disk.syncs,
            us.show(disk.p50_us),
            us.show(disk.p99_us),
            us.show(disk.max_us)
        ),
    );
    row("throughput", &format!("{} MB a second", disk.bytes_per_second / 1_000_000));
    let used = disk.wear.as_ref().map_or_else(unknown, |wear| {
        let used = wear.used_percent.map_or_else(unknown, |used| format!("{used} % or more used"));
        format!("{}: {used}, spare blocks: {}", wear.device, wear.spare.map_or("not said", SpareBlocks::name))
    });
    row("life", &used);
    row("memory", &machine.memory_bytes.map_or_else(unknown, |has| bytes.show(has >> 20 << 20).to_string()));
    let aes = match machine.has_aes {
        Some(true) => ", with AES",
        Some(false) => ", without AES",
        None => "",
    };
    row("processors", &format!("{}, {}{aes}", machine.processors, std::env::consts::ARCH));
    let rtc = if machine.has_rtc { "goes on without power" } else { "does not go on without power" };
    row("clock", &format!("{}; {rtc}", machine.clock.clone().unwrap_or_else(unknown)));
    for peer in &found.peers {
        let shown = match &peer.round_trip_us {
            Ok((median, longest)) => format!("{} there and back, {} at worst", us.show(*median), us.show(*longest)),
            Err(error) => error.clone(),
        };
        row("peer", &format!("{} {shown}", peer.address));
    }
    row("written", &format!("{} MiB", disk.written_bytes >> 20));
    text.push('\n');
    text.push_str(&advice::meaning(disk, &found.profile));
    for line in advice::warnings(disk, machine) {
        _ = writeln!(text, "warning: {line}");
    }
    _ = writeln!(
        text,
        "\nThe nearest profile is {0}: zoolet serve --profile {0}; zoolet profile show {0}",
        found.nearest
    );
    text
}

fn as_json(found: &Found) -> String {
    let Found { disk, machine, .. } = found;
    let peers: Vec<_> = found
        .peers
        .iter()
        .map(|peer| {
            json!({
                "address": peer.address,
                "round_trip_p50_us": peer.round_trip_us.as_ref().ok().map(|(median, _)| median),
                "round_trip_max_us": peer.round_trip_us.as_ref().ok().map(|(_, longest)| longest),
                "error": peer.round_trip_us.as_ref().err(),
            })
        })
        .collect();
    let whole = json!({
        "version": VERSION,
        "directory": found.directory,
        "file_system": disk.file_system.name(),
        "log": disk.file_system.use_of_log(),
        "syncs": disk.syncs,
        "sync_p50_us": disk.p50_us,
        "sync_p99_us": disk.p99_us,
        "sync_max_us": disk.max_us,
        "write_bytes_per_second": disk.bytes_per_second,
        "written_bytes": disk.written_bytes,
        "device": disk.wear.as_ref().map(|wear| json!({
            "name": wear.device,
            "used_percent": wear.used_percent,
            "spare": wear.spare.map(SpareBlocks::name),
        })),
        "memory_bytes": machine.memory_bytes,
        "processors": machine.processors,
        "architecture": std::env::consts::ARCH,
        "has_aes": machine.has_aes,
        "clock": machine.clock,
        "has_rtc": machine.has_rtc,
        "peers": peers,
        "warnings": advice::warnings(disk, machine),
        "profile": found.nearest,
    });
    format!("{whole:#}\n")
}

fn write_new(out: &Path, text: &str) -> std::io::Result<()> {
    let mut file = std::fs::OpenOptions::new().write(true).create_new(true).open(out)?;
    file.write_all(text.as_bytes())?;
    file.sync_all()
}
