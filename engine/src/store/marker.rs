//! The file that says whose directory this is, and whether a log was born in it.
//!
//! At birth: the marker without a log, then the base, then the log, then the marker with the log, each durable before the next begins. So a
//! crash leaves a marker that promises too little, never too much: where it names no log, one that is there is believed and named; where it
//! names one, a log that is not there was lost.

use super::disk::Disk;
use std::io;

/// Its name.
pub const MARKER: &str = "ZOOLET";
/// A marker that a crash left unfinished.
pub const MARKER_UNFINISHED: &str = "ZOOLET.new";

/// The first line; the number rises with a layout that older releases cannot read.
const FIRST_LINE: &str = "zoolet data directory, format 1";
/// Longer ones are not ours.
const BYTES_MAX: u64 = 4096;

/// What the marker says.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Marker {
    /// There is none.
    Absent,
    /// The directory is zoolet's; its first start has not come to the end, or was one of a commit before the first release.
    Unborn,
    /// A log was born here.
    Born {
        /// Of which disk its facts say that they are.
        disk_incarnation: u128,
    },
    /// A later release made this directory.
    Later,
    /// Nothing that a release wrote.
    Damaged,
}

impl Marker {
    /// Reads it.
    ///
    /// # Errors
    /// Whatever the disk says.
    pub fn read(disk: &dyn Disk) -> io::Result<Self> {
        let file = match disk.open(MARKER) {
            Ok(file) => file,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Self::Absent),
            Err(error) => return Err(error),
        };
        let mut bytes = vec![0; file.len()?.min(BYTES_MAX) as usize];
        file.read_at(0, &mut bytes)?;
        Ok(Self::parse(&bytes))
    }

    /// What bytes of such a file say.
    pub fn parse(bytes: &[u8]) -> Self {
        let Ok(text) = std::str::from_utf8(bytes) else { return Self::Damaged };
        let mut lines = text.lines();
        match (text.ends_with('\n'), lines.next(), lines.next(), lines.next()) {
            (true, Some(FIRST_LINE), None, None) => Self::Unborn,
            (true, Some(FIRST_LINE), Some(log), None) => match log.strip_prefix("log ").map(parse_hex) {
                Some(Some(disk_incarnation)) => Self::Born { disk_incarnation },
                Some(None) | None => Self::Damaged,
            },
            (true, Some(line), _, _) if line.starts_with("zoolet data directory, format ") => Self::Later,
            _ => Self::Damaged,
        }
    }

    /// Why a directory with this marker is not opened, and what helps; one line.
    pub fn refusal(self) -> Option<&'static str> {
        match self {
            Self::Absent | Self::Unborn | Self::Born { .. } => None,
            Self::Later => Some("was made by a later release of zoolet, and this one would not understand it"),
            Self::Damaged => Some(
                "the file ZOOLET is damaged; if this directory is zoolet's and its log is there (seg-00.log and more), write its first line anew: \
                 zoolet data directory, format 1",
            ),
        }
    }

    /// Says whose directory this is, unless that is said.
    ///
    /// # Errors
    /// Whatever the disk says.
    pub fn claim(disk: &dyn Disk) -> io::Result<()> {
        if Self::read(disk)? == Self::Absent { write(disk, &format!("{FIRST_LINE}\n")) } else { Ok(()) }
    }

    /// Says that a log was born here; durable afterwards.
    ///
    /// # Errors
    /// Whatever the disk says.
    pub fn record_birth(disk: &dyn Disk, disk_incarnation: u128) -> io::Result<()> {
        write(disk, &format!("{FIRST_LINE}\nlog {disk_incarnation:032x}\n"))
    }
}

/// Whole or not at all.
fn write(disk: &dyn Disk, text: &str) -> io::Result<()> {
    match disk.remove(MARKER_UNFINISHED) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
        Ok(()) | Err(_) => {}
    }
    let file = disk.create(MARKER_UNFINISHED)?;
    file.write_at(0, text.as_bytes())?;
    file.sync()?;
    disk.rename(MARKER_UNFINISHED, MARKER)?;
    disk.sync_directory()
}

fn parse_hex(digits: &str) -> Option<u128> {
    let is_plain = digits.len() == 32 && digits.bytes().all(|byte| byte.is_ascii_hexdigit());
    if is_plain { u128::from_str_radix(digits, 16).ok() } else { None }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_marker_has_these_bytes() {
        let born = b"zoolet data directory, format 1\nlog 000000000000000000000000000000ff\n";
        assert_eq!(Marker::parse(born), Marker::Born { disk_incarnation: 255 });
        assert_eq!(Marker::parse(b"zoolet data directory, format 1\n"), Marker::Unborn);
        assert_eq!(Marker::parse(b"zoolet data directory, format 2\nwhatever\n"), Marker::Later);
        for end in 0..born.len() {
            let expected = if end == 32 { Marker::Unborn } else { Marker::Damaged };
            assert_eq!(Marker::parse(&born[..end]), expected, "cut at {end}");
        }
        assert_eq!(Marker::parse(&[0; 68]), Marker::Damaged);
    }
}
