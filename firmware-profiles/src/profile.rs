//! A profile: one part of each axis, and the box's overrides.

use crate::error::ProfileError;
use crate::key::{Axis, Key};
use crate::nearest::nearest;
use crate::read::{self, Document, Evidence, Number};
use crate::{builtin, check};
use std::collections::BTreeMap;

/// Network of a profile that names none.
pub const DEFAULT_NETWORK: &str = "lan";

/// Every number of a box, with its reason and its evidence.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Profile {
    name: String,
    title: String,
    parts: [String; Axis::ALL.len()],
    numbers: BTreeMap<Key, Number>,
}

/// A part or a board that is built into the program.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Listed {
    /// Its name.
    pub name: &'static str,
    /// A short description.
    pub title: String,
    /// For a board: its parts, such as `sd-a1/2g`, and its network. `None` for a part.
    pub parts: Option<(String, String)>,
}

impl Profile {
    /// Returns the profile with this name: `media/memory`, such as `emmc/512m`, or a board.
    ///
    /// `network` is the network between the servers. `None` takes the board's network, else
    /// [`DEFAULT_NETWORK`].
    ///
    /// # Errors
    /// The name or the network is unknown; the error suggests known names.
    pub fn named(name: &str, network: Option<&str>) -> Result<Self, ProfileError> {
        if let Some(text) = builtin::named(builtin::boards(), name) {
            return Self::of(name, read::of_box(&format!("boards/{name}.toml"), text)?, network);
        }
        let Some((media, memory)) = name.split_once('/') else { return Err(unknown(name)) };
        let parts = [Some(media.to_owned()), Some(memory.to_owned()), None];
        Self::of(name, Document { title: String::new(), parts, numbers: BTreeMap::new() }, network)
    }

    /// Returns the profile described by a box file, in the format of the boards' files.
    ///
    /// `file` is the file's name in errors.
    ///
    /// # Errors
    /// The first mistake in the text.
    pub fn read(file: &str, text: &str, network: Option<&str>) -> Result<Self, ProfileError> {
        Self::of(file, read::of_box(file, text)?, network)
    }

    fn of(name: &str, document: Document, network: Option<&str>) -> Result<Self, ProfileError> {
        let Document { mut title, parts: [media, memory, own_network], numbers: overrides } = document;
        let network = network.map(str::to_owned).or(own_network).unwrap_or_else(|| DEFAULT_NETWORK.to_owned());
        let mut numbers = BTreeMap::new();
        let (mut parts, mut titles) = ([const { String::new() }; Axis::ALL.len()], Vec::new());
        for (place, (axis, part)) in Axis::ALL.into_iter().zip([media, memory, Some(network)]).enumerate() {
            let known = builtin::parts(axis);
            let part = part.ok_or_else(|| {
                let line = format!("{name}: {} is missing: allowed is {}", axis.name(), builtin::names(known));
                ProfileError::new(line)
            })?;
            let text = builtin::named(known, &part).ok_or_else(|| {
                let line = format!("{name}: {} = {part}: allowed is {}", axis.name(), builtin::names(known));
                ProfileError::new(line)
            })?;
            let document = read::part(axis, &axis.file(&part), text)?;
            numbers.extend(document.numbers);
            titles.push(document.title);
            parts[place] = part;
        }
        if title.is_empty() {
            title = titles.join("; ");
        }
        let is_own_timeout = overrides.contains_key(&Key::SessionTimeoutMin);
        numbers.extend(overrides);
        let mut profile = Self { name: name.to_owned(), title, parts, numbers };
        if !is_own_timeout {
            profile.outlive_hangs();
        }
        check::check(&profile)?;
        Ok(profile)
    }

    /// Raises the shortest session timeout to outlast a hang of the disk.
    ///
    /// The network part sets that timeout, but a session must also survive until its own server's
    /// disk answers again.
    fn outlive_hangs(&mut self) {
        let least_ms = check::session_timeout_min_ms(self);
        let file = self.file_of(Key::Hang).to_owned();
        if let Some(number) = self.numbers.get_mut(&Key::SessionTimeoutMin).filter(|number| number.value < least_ms) {
            *number = Number {
                value: least_ms,
                reason: "the sessions of a leader whose disk hangs must last until its process serves them again".to_owned(),
                evidence: Evidence::Modelled,
                source: "hang_ms plus quorum_ms: with less, a simulated day on such disks ended a session of the leader's own process"
                    .to_owned(),
                file,
            };
        }
    }

    /// Returns the name by which the profile was requested.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Returns a short description.
    pub fn title(&self) -> &str {
        &self.title
    }

    /// Returns the name of the profile's part on this axis.
    pub fn part(&self, axis: Axis) -> &str {
        &self.parts[axis as usize]
    }

    /// Returns a number, in the unit of its key.
    pub fn get(&self, key: Key) -> u64 {
        self.numbers.get(&key).map_or(0, |number| number.value)
    }

    /// Returns every number, grouped by axis.
    pub fn numbers(&self) -> impl Iterator<Item = (Key, &Number)> {
        self.numbers.iter().map(|(key, number)| (*key, number))
    }

    /// Returns the keys whose numbers are guesses.
    pub fn guesses(&self) -> impl Iterator<Item = Key> {
        self.numbers().filter(|(_, number)| number.evidence == Evidence::Guess).map(|(key, _)| key)
    }

    /// Returns the error for numbers that contradict each other.
    ///
    /// `ways` lists each key with its allowed values. The error names the first key that the box's
    /// own file sets, or else the first of `ways`.
    pub fn contradiction(&self, ways: &[(Key, String)]) -> ProfileError {
        check::wrong(self, ways)
    }

    /// Returns the file that sets a number, such as `memory/512m.toml`, or the box's file.
    pub(crate) fn file_of(&self, key: Key) -> &str {
        self.numbers.get(&key).map_or("", |number| &number.file)
    }

    /// Returns whether the box's own file sets this number, instead of a part.
    pub(crate) fn is_own(&self, key: Key) -> bool {
        Axis::ALL.into_iter().all(|axis| axis.file(self.part(axis)) != self.file_of(key))
    }
}

/// Returns the built-in parts of an axis.
///
/// # Errors
/// None with the built-in files: the tests read all of them.
pub fn parts(axis: Axis) -> Result<Vec<Listed>, ProfileError> {
    let listed = |(name, text): &(&'static str, &str)| {
        let document = read::part(axis, &axis.file(name), text)?;
        Ok(Listed { name, title: document.title, parts: None })
    };
    builtin::parts(axis).iter().map(listed).collect()
}

/// Returns the built-in boards.
///
/// # Errors
/// None with the built-in files: the tests read all of them.
pub fn boards() -> Result<Vec<Listed>, ProfileError> {
    let listed = |(name, _): &(&'static str, &str)| {
        let profile = Profile::named(name, None)?;
        let [media, memory, network] = Axis::ALL.map(|axis| profile.part(axis).to_owned());
        Ok(Listed { name, title: profile.title, parts: Some((format!("{media}/{memory}"), network)) })
    };
    builtin::boards().iter().map(listed).collect()
}

fn unknown(name: &str) -> ProfileError {
    let boards = builtin::boards().iter().map(|(board, _)| *board);
    ProfileError::new(match nearest(name, boards) {
        Some(board) => format!("profile = {name}: no such profile; did you mean {board}?"),
        None => format!(
            "profile = {name}: allowed is media/memory, such as emmc/512m, a board ({}), or a file that ends in .toml",
            builtin::names(builtin::boards())
        ),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_medium_combines_with_every_memory_and_network() {
        let names = |axis| parts(axis).unwrap().into_iter().map(|part| part.name);
        let mut count = 0;
        for media in names(Axis::Media) {
            for memory in names(Axis::Memory) {
                for network in names(Axis::Network) {
                    let profile = Profile::named(&format!("{media}/{memory}"), Some(network)).unwrap();
                    assert_eq!(profile.numbers().count(), Key::ALL.len());
                    assert_eq!((profile.part(Axis::Media), profile.part(Axis::Network)), (media, network));
                    count += 1;
                }
            }
        }
        assert_eq!(count, 6 * 4 * 3);
    }

    #[test]
    fn no_board_profile_contains_a_guess() {
        let boards = boards().unwrap();
        assert_eq!(boards.len(), builtin::boards().len());
        for board in boards {
            let profile = Profile::named(board.name, None).unwrap();
            assert_eq!(profile.guesses().count(), 0, "{}", board.name);
            assert!(!profile.title().is_empty());
        }
    }

    /// On a board with 1 GB, the ceiling of the part `2g` would exceed half of the memory.
    #[test]
    fn title_of_a_board_with_a_1_gb_variant_names_its_profile() {
        for board in boards().unwrap() {
            let profile = Profile::named(board.name, None).unwrap();
            let said = board.title.split_once("; with 1 GB: ").map(|(_, name)| name);
            let is_larger = profile.part(Axis::Memory) == "2g" && board.name != "intel-n100";
            let expected = is_larger.then(|| format!("{}/512m", profile.part(Axis::Media)));
            assert_eq!(said, expected.as_deref(), "{}", board.name);
            assert!(said.is_none_or(|name| Profile::named(name, None).is_ok()), "{}", board.title);
        }
    }

    #[test]
    fn own_numbers_of_a_box_override_its_parts() {
        let router = Profile::named("openwrt-router", None).unwrap();
        assert_eq!(
            (router.part(Axis::Media), router.part(Axis::Memory), router.part(Axis::Network)),
            ("nand-ubi", "128m", "lan")
        );
        assert_eq!(router.get(Key::SessionTimeoutMax), 60_000);
        assert_eq!(router.file_of(Key::SessionTimeoutMax), "boards/openwrt-router.toml");
        let on_radio = Profile::named("openwrt-router", Some("wifi")).unwrap();
        assert_eq!((on_radio.part(Axis::Network), on_radio.get(Key::HeartbeatBusy)), ("wifi", 100));
        assert_eq!(on_radio.file_of(Key::HeartbeatBusy), "network/wifi.toml");
    }

    #[test]
    fn session_timeout_minimum_covers_disk_hangs_and_the_network() {
        for (name, network, min_ms, file) in [
            ("sd-a1/512m", "lan", 7000, "media/sd-a1.toml"),
            ("sd-a1/512m", "metered", 15_000, "network/metered.toml"),
            ("emmc/512m", "lan", 4000, "network/lan.toml"),
        ] {
            let profile = Profile::named(name, Some(network)).unwrap();
            assert_eq!(profile.get(Key::SessionTimeoutMin), min_ms, "{name}, {network}");
            assert_eq!(profile.file_of(Key::SessionTimeoutMin), file, "{name}, {network}");
        }
    }

    #[test]
    fn unknown_names_are_refused_with_the_allowed_names() {
        for (name, network, expected) in [
            (
                "emmc",
                None,
                "profile = emmc: allowed is media/memory, such as emmc/512m, a board (raspberry-pi-zero-2-w, ",
            ),
            ("raspberry-pi4", None, "profile = raspberry-pi4: no such profile; did you mean raspberry-pi-4?"),
            ("mmc/512m", None, "mmc/512m: media = mmc: allowed is sd-a1, emmc, nand-ubi, usb-ssd, nvme, tmpfs"),
            ("emmc/64m", None, "emmc/64m: memory = 64m: allowed is 128m, 256m, 512m, 2g"),
            ("emmc/512m", Some("lora"), "emmc/512m: network = lora: allowed is lan, wifi, metered"),
        ] {
            let error = Profile::named(name, network).unwrap_err().to_string();
            assert!(error.starts_with(expected), "{error}");
        }
        let error = Profile::read("box.toml", "title = \"t\"\nmedia = \"emmc\"", None).unwrap_err().to_string();
        assert_eq!(error, "box.toml: memory is missing: allowed is 128m, 256m, 512m, 2g");
    }
}
