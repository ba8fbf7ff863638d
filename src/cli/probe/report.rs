//! Formats the findings as text for people and as JSON for programs.

use super::advice;
use super::box_facts::Machine;
use super::disk::DiskFound;
use super::peers::Peer;
use super::{Found, Nearest};
use serde_json::{Value, json};
use std::fmt::Write;
use zoolet_machine::status::SpareBlocks;

/// Version of the JSON object, raised when a field is removed or changes its meaning.
///
/// A new field does not raise it.
const VERSION: u32 = 2;

fn unknown() -> String {
    "the kernel does not report it".to_owned()
}

pub(super) fn text(found: &Found) -> String {
    let Found { disk, machine, peers, nearest } = found;
    let mut text = String::new();
    let mut row = |name: &str, value: &str| _ = writeln!(text, "{name:<12} {value}");
    of_disk(disk, &mut row);
    of_machine(machine, &mut row);
    peers.iter().for_each(|peer| row("peer", &of_peer(peer)));
    text.push('\n');
    if let (Some(Nearest { profile, .. }), Some(syncs)) = (nearest, &disk.syncs) {
        text.push_str(&advice::meaning(syncs, profile));
    }
    for line in advice::warnings(disk, machine, nearest.as_ref().map(|nearest| &nearest.profile)) {
        _ = writeln!(text, "warning: {line}");
    }
    _ = match nearest {
        Some(Nearest { name, .. }) => {
            writeln!(text, "\nThe nearest profile is {name}: zoolet serve --profile {name}; zoolet profile show {name}")
        }
        None => writeln!(text, "\nNo nearest profile: no sync returned."),
    };
    text
}

fn of_disk(disk: &DiskFound, row: &mut impl FnMut(&str, &str)) {
    let (kind, directory) = (disk.file_system, disk.directory.display());
    match disk.free_bytes {
        None => row("data", &directory.to_string()),
        Some(free) => {
            let use_of_log = kind.use_of_log();
            row("data", &format!("{directory}, {}, {} free: the log {use_of_log}", kind.name(), binary(free)));
        }
    }
    let sync = disk.syncs.map_or_else(
        || "none returned".to_owned(),
        |syncs| {
            let [p50, p99, max] = [syncs.p50_us, syncs.p99_us, syncs.max_us].map(duration);
            format!("{} of 4 KiB: p50 {p50}, p99 {p99}, longest {max}", syncs.count)
        },
    );
    row("sync", &sync);
    let rate = disk.bytes_per_second.map_or_else(|| "not measured".to_owned(), megabytes);
    row("throughput", &rate);
    let used = disk.wear.as_ref().map_or_else(unknown, |wear| {
        let used = wear.used_percent.map_or_else(unknown, |used| format!("{used} % or more used"));
        format!("{}: {used}, spare blocks: {}", wear.device, wear.spare.map_or("not reported", SpareBlocks::name))
    });
    row("life", &used);
    row("written", &format!("{} bytes ({} MiB)", disk.written_bytes, disk.written_bytes.div_ceil(1 << 20)));
}

/// Divides, with one decimal if the result is below ten and not whole.
fn with_tenths(value: u64, of: u64) -> String {
    match (value / of, value % of * 10 / of) {
        (whole @ 0..10, tenth @ 1..) => format!("{whole}.{tenth}"),
        (whole, _) => whole.to_string(),
    }
}

fn megabytes(bytes_per_second: u64) -> String {
    format!("{} MB a second", with_tenths(bytes_per_second, 1_000_000))
}

fn binary(bytes: u64) -> String {
    if bytes < 1 << 30 { format!("{} MiB", bytes >> 20) } else { format!("{} GiB", with_tenths(bytes, 1 << 30)) }
}

/// Formats microseconds, with one decimal below ten units.
pub(super) fn duration(us: u64) -> String {
    match us {
        0..1000 => format!("{us} us"),
        1000..1_000_000 => format!("{} ms", with_tenths(us, 1000)),
        _ => format!("{} s", with_tenths(us, 1_000_000)),
    }
}

fn of_machine(machine: &Machine, row: &mut impl FnMut(&str, &str)) {
    let mut has = machine.memory_bytes.map_or_else(unknown, binary);
    if let Some((allowed, of)) = machine.memory_allowed {
        _ = write!(has, ", of which {of} {}", binary(allowed));
    }
    row("memory", &has);
    let mut processors = format!("{}, {}", machine.processors, std::env::consts::ARCH);
    if let Some(percent) = machine.processor_percent {
        _ = write!(processors, ", of which its cgroup allows {percent} % of one");
    }
    processors.push_str(match machine.has_aes {
        Some(true) => ", with instructions for AES",
        Some(false) => ", without instructions for AES",
        None => "",
    });
    row("processors", &processors);
    let ciphers = machine.ciphers;
    row(
        "encryption",
        &format!(
            "AES-128-GCM {}, ChaCha20-Poly1305 {}; links use {}",
            megabytes(ciphers.aes),
            megabytes(ciphers.chacha),
            ciphers.used().0
        ),
    );
    row("clock", &machine.clock.clone().unwrap_or_else(unknown));
    if machine.rtcs.is_empty() {
        row("rtc", "the kernel reports none");
    }
    machine.rtcs.iter().for_each(|rtc| row("rtc", &rtc.in_words()));
}

fn of_peer(peer: &Peer) -> String {
    let shown = match &peer.round_trip_us {
        Ok((median, longest)) => format!("round trip {}, longest {}", duration(*median), duration(*longest)),
        Err(error) => error.clone(),
    };
    format!("{}: {shown}", peer.address)
}

pub(super) fn json(found: &Found) -> String {
    let Found { disk, machine, peers, nearest } = found;
    let syncs = disk.syncs.as_ref();
    let whole = json!({
        "version": VERSION,
        "directory": disk.directory.to_string_lossy(),
        "file_system": disk.file_system.name(),
        "log": disk.file_system.use_of_log(),
        "syncs": syncs.map_or(0, |syncs| syncs.count),
        "sync_p50_us": syncs.map(|syncs| syncs.p50_us),
        "sync_p99_us": syncs.map(|syncs| syncs.p99_us),
        "sync_max_us": syncs.map(|syncs| syncs.max_us),
        "write_bytes_per_second": disk.bytes_per_second,
        "free_bytes": disk.free_bytes,
        "written_bytes": disk.written_bytes,
        "stuck": disk.stuck.map(|stuck| json!({
            "phase": stuck.phase.name(),
            "waited_ms": u64::try_from(stuck.waited.as_millis()).unwrap_or(u64::MAX),
        })),
        "device": disk.wear.as_ref().map(|wear| json!({
            "name": wear.device,
            "used_percent": wear.used_percent,
            "spare": wear.spare.map(SpareBlocks::name),
        })),
        "memory_bytes": machine.memory_bytes,
        "memory_allowed_bytes": machine.memory_allowed.map(|(bytes, _)| bytes),
        "processors": machine.processors,
        "processor_percent": machine.processor_percent,
        "architecture": std::env::consts::ARCH,
        "has_aes": machine.has_aes,
        "aes_128_gcm_bytes_per_second": machine.ciphers.aes,
        "chacha20_poly1305_bytes_per_second": machine.ciphers.chacha,
        "cipher": machine.ciphers.used().0,
        "clock": machine.clock,
        "rtcs": machine.rtcs.iter().map(|rtc| json!({
            "device": rtc.device,
            "name": rtc.name,
            "says_s": rtc.says_s,
            "system_s": rtc.system_s,
            "is_set": rtc.is_set(),
            "set_the_system": rtc.set_the_system,
        })).collect::<Value>(),
        "peers": peers.iter().map(|peer| json!({
            "address": peer.address,
            "round_trip_p50_us": peer.round_trip_us.as_ref().ok().map(|(median, _)| median),
            "round_trip_max_us": peer.round_trip_us.as_ref().ok().map(|(_, longest)| longest),
            "error": peer.round_trip_us.as_ref().err(),
        })).collect::<Value>(),
        "warnings": advice::warnings(disk, machine, nearest.as_ref().map(|nearest| &nearest.profile)),
        "profile": nearest.as_ref().map(|nearest| &nearest.name),
    });
    format!("{whole:#}\n")
}

#[cfg(test)]
mod tests {
    use super::super::ciphers::Ciphers;
    use super::super::clock::Rtc;
    use super::super::disk::{Phase, Stuck, Syncs};
    use super::*;
    use std::time::Duration;
    use zoolet::config::Network;
    use zoolet_store::FileSystem;

    fn disk() -> DiskFound {
        DiskFound {
            directory: "/var/lib".into(),
            file_system: FileSystem::Ext,
            free_bytes: Some(5 << 30),
            bytes_per_second: Some(9_870_000),
            syncs: Some(Syncs { count: 812, p50_us: 1130, p99_us: 32_187, max_us: 1_232_881 }),
            written_bytes: 13_115_392,
            wear: None,
            stuck: None,
        }
    }

    fn found(disk: DiskFound) -> Found {
        let rtc = Rtc {
            device: "rtc0".to_owned(),
            name: "rtc-ds1307 1-0068".to_owned(),
            says_s: Some(86_400),
            system_s: 1_800_000_000,
            set_the_system: false,
        };
        let machine = Machine {
            memory_bytes: Some(3984 << 20),
            memory_allowed: Some((256 << 20, "its cgroup allows")),
            processors: 4,
            processor_percent: Some(50),
            has_aes: None,
            ciphers: Ciphers { aes: 31_400_000, chacha: 128_000_000 },
            clock: Some("arch_sys_counter".to_owned()),
            rtcs: vec![rtc],
        };
        let peers = [("gw-b:2888", Ok((412, 10_230))), ("gw-c", Err("no answer within 2 s".to_owned()))];
        let peers = peers.map(|(address, round_trip_us)| Peer { address: address.to_owned(), round_trip_us }).into();
        let nearest = super::super::nearest(&disk, &machine, Network::default()).unwrap();
        Found { disk, machine, peers, nearest }
    }

    /// Masks the parts of the text that depend on the machine that runs the test.
    fn same_everywhere(text: &str) -> String {
        let cipher = Ciphers::default().used().0;
        text.replace(std::env::consts::ARCH, "ARCH").replace(&format!("links use {cipher}"), "links use CIPHER")
    }

    #[test]
    fn probe_report_text_is_unchanged() {
        let expected = "\
data         /var/lib, ext4, 5 GiB free: the log overwrites its segments in place
sync         812 of 4 KiB: p50 1.1 ms, p99 32 ms, longest 1.2 s
throughput   9.8 MB a second
life         the kernel does not report it
written      13115392 bytes (13 MiB)
memory       3.8 GiB, of which its cgroup allows 256 MiB
processors   4, ARCH, of which its cgroup allows 50 % of one
encryption   AES-128-GCM 31 MB a second, ChaCha20-Poly1305 128 MB a second; links use CIPHER
clock        arch_sys_counter
rtc          rtc0 (rtc-ds1307 1-0068) shows 1970: it was never set, or lost the time without power
peer         gw-b:2888: round trip 412 us, longest 10 ms
peer         gw-c: no answer within 2 s

Writes: each waits for one sync, here p50 1.1 ms, p99 32 ms, longest 1.2 s. A client that waits for each write gets at most 884 a second;
concurrent writes share syncs. In an ensemble a write waits for the fastest majority of the disks.
Elections: heartbeats do not wait for the disk, so a slow disk causes no election. Servers miss a lost leader after about 150 ms of silence;
a leader whose disk stalls for 2.4 s hands over if another server's disk is faster.
Life: such a medium lasts ten years with 1.6 GB written a day: 390625 commits of one block each, 4.5 a second all day.
warning: one sync took 1.2 s: a leader whose disk stalls for a second hands over to another server
warning: its cgroup allows 50 % of one processor: a server that uses it up pauses until the next period and sends no heartbeats; allow more (CPUQuota= of systemd)
warning: no clock of the board is known to keep the time without power: displayed times may say 1970 after a start; nothing else depends on them

The nearest profile is emmc/512m: zoolet serve --profile emmc/512m; zoolet profile show emmc/512m
";
        assert_eq!(same_everywhere(&text(&found(disk()))), expected);
    }

    #[test]
    fn probe_report_covers_a_disk_that_never_answers() {
        let stuck = |phase| Some(Stuck { phase, waited: Duration::from_millis(25_900) });
        let silent = DiskFound {
            free_bytes: None,
            syncs: None,
            bytes_per_second: None,
            written_bytes: 0,
            stuck: stuck(Phase::Preparing),
            ..disk()
        };
        let text = text(&found(silent.clone()));
        for line in [
            "data         /var/lib\n",
            "sync         none returned\n",
            "throughput   not measured\n",
            "\nwarning: the file system has not answered for 25 s: ",
            "\nNo nearest profile: no sync returned.\n",
        ] {
            assert!(text.contains(line), "{line:?} is not in {text}");
        }
        let json: Value = serde_json::from_str(&json(&found(silent))).unwrap();
        assert_eq!(json["stuck"], json!({ "phase": "preparing", "waited_ms": 25_900 }));
        assert_eq!((&json["profile"], &json["sync_p50_us"], &json["syncs"]), (&Value::Null, &Value::Null, &json!(0)));
    }

    /// Programs read the object: removing a field or changing its meaning must raise the version.
    #[test]
    fn probe_report_json_fields_are_unchanged() {
        let json: Value = serde_json::from_str(&json(&found(disk()))).unwrap();
        let fields: Vec<&str> = json.as_object().unwrap().keys().map(String::as_str).collect();
        let expected = "aes_128_gcm_bytes_per_second architecture chacha20_poly1305_bytes_per_second cipher clock device directory file_system free_bytes has_aes log \
                        memory_allowed_bytes memory_bytes peers processor_percent processors profile rtcs stuck sync_max_us sync_p50_us sync_p99_us syncs \
                        version warnings write_bytes_per_second written_bytes";
        assert_eq!(fields.join(" "), expected);
        assert_eq!(json["version"], 2);
        assert_eq!(json["rtcs"][0]["is_set"], false);
        assert_eq!(json["peers"][1]["error"], "no answer within 2 s");
    }
}
