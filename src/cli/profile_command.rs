//! `zoolet profile`: lists, shows and checks profiles.

use super::{Exit, say};
use serde_json::json;
use std::fmt::Write;
use zoolet::config::{Network, profile_defaults};
use zoolet_profiles::{Axis, Key, Profile};

/// The action of the command.
#[derive(Debug)]
pub(super) enum What {
    /// List the built-in parts and boards.
    List,
    /// Show every number of a profile.
    Show(Chosen),
    /// Check that a file is a valid profile.
    Check(Chosen),
}

/// The selected profile.
#[derive(Debug)]
pub(super) struct Chosen {
    /// `media/memory`, a board, or a file that ends in `.toml`.
    pub(super) name: String,
    pub(super) network: Option<Network>,
    pub(super) is_json: bool,
}

pub(super) fn profile(what: &What) -> Result<(), Exit> {
    match what {
        What::List => say(&list().map_err(Exit::failed)?),
        What::Show(chosen) => {
            let profile = profile_defaults::find(&chosen.name, chosen.network).map_err(Exit::usage)?;
            say(&if chosen.is_json { shown_as_json(&profile) } else { shown(&profile) })
        }
        What::Check(chosen) => {
            let profile = profile_defaults::find(&chosen.name, chosen.network).map_err(Exit::usage)?;
            say(&checked(&profile))
        }
    }
}

fn list() -> Result<String, zoolet_profiles::ProfileError> {
    let mut sections = Vec::new();
    for axis in Axis::ALL {
        sections.push((axis.name(), zoolet_profiles::parts(axis)?));
    }
    sections.push(("boards", zoolet_profiles::boards()?));
    let mut all =
        String::from("A profile is media/memory, such as emmc/512m, or a board; the network is set separately.\n");
    for (name, listed) in sections {
        _ = writeln!(all, "{name}");
        for entry in listed {
            let parts = entry.parts.map(|(parts, network)| format!(" ({parts}, {network})")).unwrap_or_default();
            _ = writeln!(all, "  {:<22} {}{parts}", entry.name, entry.title);
        }
    }
    Ok(all)
}

/// Formats each number with unit, source and reason, then the memory of each part.
fn shown(profile: &Profile) -> String {
    let mut text = heading(profile);
    let mut axis = None;
    for (key, number) in profile.numbers() {
        if axis != Some(key.axis()) {
            axis = Some(key.axis());
            _ = writeln!(text, "\n{} = {}", key.axis().name(), profile.part(key.axis()));
        }
        let value = key.unit().show(number.value).to_string();
        _ = writeln!(text, "  {:<30} {value:<14} {:<9}  {}", key.name(), number.evidence.name(), number.reason);
        let source = if number.source.is_empty() { "unknown" } else { &number.source };
        _ = writeln!(text, "  {:57} {source}", "");
    }
    text.push_str("\nmemory, with every part at its bound\n");
    for (part, bytes) in split(profile) {
        _ = writeln!(text, "  {part:<30} {}", mebibytes(bytes));
    }
    _ = writeln!(text, "  {:<30} {}", "all", mebibytes(split(profile).iter().map(|(_, bytes)| bytes).sum()));
    _ = writeln!(text, "  {:<30} {}", "ceiling_bytes", mebibytes(profile.get(Key::CeilingBytes)));
    text
}

fn heading(profile: &Profile) -> String {
    let [media, memory, network] = Axis::ALL.map(|axis| profile.part(axis));
    format!("{}: {}\n{media}/{memory}, network {network}\n", profile.name(), profile.title())
}

fn mebibytes(bytes: u64) -> String {
    let tenths = (bytes * 10).div_ceil(1 << 20);
    format!("{:>5}.{} MiB", tenths / 10, tenths % 10)
}

/// Returns the maximum memory of each part, in bytes, for the profile's number of servers.
fn split(profile: &Profile) -> Vec<(&'static str, u64)> {
    let mut all = vec![("fixed_bytes", profile.get(Key::FixedBytes))];
    let peers = usize::try_from(profile.get(Key::ServersMax)).unwrap_or(1).saturating_sub(1);
    let parts =
        profile_defaults::limits(profile).map(|limits| profile_defaults::parts(&limits, peers)).unwrap_or_default();
    all.extend(parts.into_iter().map(|(part, bytes)| (part.name(), bytes)));
    all
}

fn shown_as_json(profile: &Profile) -> String {
    let numbers: serde_json::Map<String, serde_json::Value> = profile
        .numbers()
        .map(|(key, number)| {
            let number = json!({
                "value": number.value,
                "shown": key.unit().show(number.value).to_string(),
                "evidence": number.evidence.name(),
                "source": number.source,
                "reason": number.reason,
                "file": number.file,
            });
            (key.name().to_owned(), number)
        })
        .collect();
    let memory: serde_json::Map<String, serde_json::Value> =
        split(profile).into_iter().map(|(part, bytes)| (part.to_owned(), bytes.into())).collect();
    let [media, of_memory, network] = Axis::ALL.map(|axis| profile.part(axis));
    let whole = json!({
        "profile": profile.name(),
        "title": profile.title(),
        "media": media,
        "memory": of_memory,
        "network": network,
        "numbers": numbers,
        "memory_bytes_max": memory,
    });
    format!("{whole:#}\n")
}

fn checked(profile: &Profile) -> String {
    let sum: u64 = split(profile).iter().map(|(_, bytes)| bytes).sum();
    let guesses: Vec<&str> = profile.guesses().map(Key::name).collect();
    let guesses = if guesses.is_empty() { String::new() } else { format!("; guesses: {}", guesses.join(", ")) };
    format!(
        "{}: valid: at most {} of memory, of {}{guesses}\n",
        profile.name(),
        mebibytes(sum).trim_start(),
        mebibytes(profile.get(Key::CeilingBytes)).trim_start()
    )
}
