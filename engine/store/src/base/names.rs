//! Names of a base's files.

use super::run::NUMBERS_END;

pub(super) fn manifest_name(id: u64) -> String {
    format!("base-{id}.manifest")
}

pub(super) fn unfinished_name(id: u64) -> String {
    format!("base-{id}.manifest.tmp")
}

pub(super) fn run_name(id: u64, number: u64) -> String {
    format!("base-{id}-{number}.run")
}

pub(super) fn home_name(id: u64) -> String {
    format!("base-{id}.redb")
}

pub(super) fn side_name(id: u64) -> String {
    format!("base-{id}.crc")
}

pub(super) fn note_name(base: u64) -> String {
    format!("base-{base}.panic")
}

pub(crate) fn id_of(name: &str) -> Option<u64> {
    let name = name.strip_prefix("base-")?;
    let end = name.find(['-', '.'])?;
    let known = [".run", ".manifest", ".manifest.tmp", ".redb", ".crc", ".panic"].iter().any(|end| name.ends_with(end));
    name[..end].parse().ok().filter(|_| known)
}

pub(super) fn number_of(name: &str) -> Option<u64> {
    name.strip_suffix(".run")?.rsplit_once('-')?.1.parse().ok().filter(|number| *number < NUMBERS_END)
}
