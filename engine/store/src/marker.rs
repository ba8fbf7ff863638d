//! The marker file: claims a directory and records the log's creation.
//!
//! The first start makes four things durable, each before the next begins:
//! 1. the marker without a log
//! 2. the base
//! 3. the log
//! 4. the marker with the log
//!
//! A crash therefore leaves a marker that records too little, never too much. If the marker names
//! no log, an existing log is trusted and then recorded. If the marker names a log, a missing log
//! was lost.

use super::disk::Disk;
use std::io;

/// Name of the marker file.
pub const MARKER: &str = "ZOOLET";
/// Name of a marker that is still being written; a crash can leave it.
pub const MARKER_UNFINISHED: &str = "ZOOLET.new";

/// The first line. The number rises with each layout that older releases cannot read.
const FIRST_LINE: &str = "zoolet data directory, format 1";
/// Bytes read at most; no valid marker is longer.
const BYTES_MAX: u64 = 4096;

/// Contents of the marker.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Marker {
    /// The file does not exist.
    Absent,
    /// The directory belongs to zoolet, but no log is recorded.
    ///
    /// The first start did not finish, or a development version from before the first release made
    /// it.
    Unborn,
    /// A log was created here.
    Born {
        /// The disk incarnation in the log's facts.
        disk_incarnation: u128,
    },
    /// A later release made this directory.
    Later,
    /// No release writes this.
    Damaged,
}

impl Marker {
    /// Reads the marker.
    ///
    /// # Errors
    /// The disk's error; a missing file is [`Marker::Absent`].
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

    /// Decodes the bytes of a marker file.
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

    /// Returns one line: why this directory is refused, and a remedy if any.
    pub fn refusal(self) -> Option<&'static str> {
        match self {
            Self::Absent | Self::Unborn | Self::Born { .. } => None,
            Self::Later => {
                Some("was made by a later release of zoolet, which this release cannot read: run that release")
            }
            Self::Damaged => Some(
                "the file ZOOLET is damaged; if this directory is zoolet's and holds its log (seg-00.log and more), rewrite the first line of ZOOLET: zoolet data directory, format 1",
            ),
        }
    }

    /// Writes a marker without a log, unless a marker exists.
    ///
    /// # Errors
    /// The disk's error.
    pub fn claim(disk: &dyn Disk) -> io::Result<()> {
        if Self::read(disk)? == Self::Absent { write(disk, &format!("{FIRST_LINE}\n")) } else { Ok(()) }
    }

    /// Records durably that a log was created here.
    ///
    /// # Errors
    /// The disk's error.
    pub fn record_birth(disk: &dyn Disk, disk_incarnation: u128) -> io::Result<()> {
        write(disk, &format!("{FIRST_LINE}\nlog {disk_incarnation:032x}\n"))
    }
}

/// Replaces the marker atomically and durably.
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
    fn golden_bytes_of_the_marker_and_its_prefixes() {
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
