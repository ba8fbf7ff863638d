//! Addresses learned from peers: those they advertise and those they connect from.
//!
//! They are dialled last. They help when the name server is down or a box no longer has its
//! configured address.

use super::lock;
use super::members::Member;
use super::warnings::Warnings;
use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};
use tokio::task::spawn_blocking;
use zoolet_model::ServerId;

/// Maximum addresses kept for one member, newest first.
const OF_MEMBER_MAX: usize = 4;
/// Maximum bytes read from the file.
const FILE_BYTES_MAX: usize = 64 << 10;
/// Maximum bytes of an address: name 253, colon, port 5.
const ADDRESS_BYTES_MAX: usize = 259;

/// The learned addresses and their file. If the file is lost or damaged, only the hints are lost.
#[derive(Debug)]
pub(super) struct Hints {
    file: Option<PathBuf>,
    known: Arc<Known>,
}

#[derive(Debug, Default)]
struct Known {
    addresses: Mutex<BTreeMap<ServerId, Vec<String>>>,
    /// Held while the file is written: the last writer stores the newest state.
    writing: Mutex<()>,
    warnings: Warnings,
}

impl Hints {
    /// Loads the hints from the file. A missing or unreadable file counts as empty.
    pub(super) fn read(file: Option<PathBuf>) -> Self {
        let text = file.as_deref().map(fs::read).and_then(Result::ok).unwrap_or_default();
        let text = String::from_utf8_lossy(&text[..text.len().min(FILE_BYTES_MAX)]);
        let addresses = Mutex::new(parse(&text));
        Self { file, known: Arc::new(Known { addresses, writing: Mutex::default(), warnings: Warnings::default() }) }
    }

    /// Returns a member's learned addresses, without the configured ones.
    pub(super) fn of(&self, member: &Member) -> Vec<String> {
        let addresses = lock(&self.known.addresses);
        let known = addresses.get(&member.id).into_iter().flatten();
        known.filter(|address| !member.addresses.contains(address)).cloned().collect()
    }

    /// Adds addresses of a proved member, the most reliable last.
    pub(super) fn learn<'a>(&self, member: &Member, said: impl Iterator<Item = &'a str>) {
        let mut addresses = lock(&self.known.addresses);
        let is_new = |address: &&str| !member.addresses.iter().any(|own| own == address);
        let has_changed = add(addresses.entry(member.id).or_default(), said.filter(is_new));
        drop(addresses);
        if has_changed {
            self.keep();
        }
    }

    /// Removes an address at which another server answers.
    pub(super) fn forget(&self, member: &Member, address: &str) {
        if let Some(known) = lock(&self.known.addresses).get_mut(&member.id) {
            known.retain(|other| other != address);
        }
        self.keep();
    }

    fn keep(&self) {
        let Some(file) = self.file.clone() else { return };
        let known = self.known.clone();
        spawn_blocking(move || {
            if let Err(error) = known.write(&file) {
                // A peer whose address keeps changing would otherwise repeat this line each time.
                known.warnings.warn(error.kind(), &format!("cannot write {}: {error}", file.display()));
            }
        });
    }
}

impl Known {
    fn write(&self, file: &Path) -> io::Result<()> {
        let _writing = lock(&self.writing);
        let mut text = String::new();
        for (member, addresses) in &*lock(&self.addresses) {
            for address in addresses {
                // Writing to a string cannot fail.
                let _ = writeln!(text, "{} {address}", member.as_u8());
            }
        }
        let new = file.with_extension("new");
        fs::write(&new, text)?;
        fs::rename(&new, file)
    }
}

/// Puts each address in front; returns whether the set of addresses changed.
///
/// A change of order alone is not worth a write.
fn add<'a>(known: &mut Vec<String>, said: impl Iterator<Item = &'a str>) -> bool {
    let before = known.clone();
    for address in said.filter(|address| is_address(address)) {
        known.retain(|other| other != address);
        known.insert(0, address.to_owned());
    }
    known.truncate(OF_MEMBER_MAX);
    known.len() != before.len() || known.iter().any(|address| !before.contains(address))
}

/// Parses lines of an id and an address; skips invalid lines.
fn parse(text: &str) -> BTreeMap<ServerId, Vec<String>> {
    let mut addresses: BTreeMap<ServerId, Vec<String>> = BTreeMap::new();
    for line in text.lines() {
        let Some((id, address)) = line.split_once(' ') else { continue };
        let Some(id) = id.parse().ok().and_then(ServerId::new) else { continue };
        let known = addresses.entry(id).or_default();
        if is_address(address) && known.len() < OF_MEMBER_MAX {
            known.push(address.to_owned());
        }
    }
    addresses
}

/// Returns whether the text is of the form "host:port". Dialling shows whether it is reachable.
fn is_address(text: &str) -> bool {
    let is_plain = text.len() <= ADDRESS_BYTES_MAX && text.bytes().all(|byte| byte.is_ascii_graphic());
    let port = text.rsplit_once(':').filter(|(host, _)| !host.is_empty()).map(|(_, port)| port);
    is_plain && port.is_some_and(|port| port.parse::<u16>().is_ok_and(|port| port > 0))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn member_alternating_between_known_addresses_costs_no_disk_write() {
        let mut known = Vec::new();
        assert!(add(&mut known, ["a:1", "b:1", "no address"].into_iter()));
        assert!(!add(&mut known, ["b:1", "a:1"].into_iter()));
        assert_eq!(known, ["a:1", "b:1"]);
        assert!(!add(&mut known, ["b:1"].into_iter()));
        assert_eq!(known, ["b:1", "a:1"]);
        assert!(add(&mut known, ["c:1", "d:1", "e:1"].into_iter()));
        assert_eq!(known, ["e:1", "d:1", "c:1", "b:1"]);
    }

    #[test]
    fn damaged_lines_of_the_hints_file_are_skipped() {
        let text =
            "2 10.0.3.11:2888\nx\n0 a:1\n300 a:1\n2 nowhere\n2 a:0\n2 :1\n3 gw-c:2888\n2 b\u{7}:1\n2 [fe80::1]:2888";
        let known = parse(text);
        let of = |id| known.get(&ServerId::new(id).unwrap()).cloned().unwrap_or_default();
        assert_eq!(of(2), ["10.0.3.11:2888", "[fe80::1]:2888"]);
        assert_eq!(of(3), ["gw-c:2888"]);
        assert_eq!(known.len(), 2);
    }
}
