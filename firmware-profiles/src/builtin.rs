//! The profile files that are built into the program.

use crate::key::Axis;

type File = (&'static str, &'static str);

macro_rules! files {
    ($directory:literal: $($name:literal),+) => {
        &[$(($name, include_str!(concat!("../", $directory, "/", $name, ".toml")))),+]
    };
}

const MEDIA: &[File] = files!("media": "sd-a1", "emmc", "nand-ubi", "usb-ssd", "nvme", "tmpfs");
const MEMORY: &[File] = files!("memory": "128m", "256m", "512m", "2g");
const NETWORK: &[File] = files!("network": "lan", "wifi", "metered");
const BOARDS: &[File] = files!("boards": "raspberry-pi-zero-2-w", "raspberry-pi-4", "raspberry-pi-5", "beaglebone-black", "imx8m", "am62x",
    "openwrt-router", "intel-n100", "x86-gateway");

/// Returns name and text of each built-in part of this axis.
pub(crate) const fn parts(axis: Axis) -> &'static [File] {
    match axis {
        Axis::Media => MEDIA,
        Axis::Memory => MEMORY,
        Axis::Network => NETWORK,
    }
}

/// Returns name and text of each built-in board.
pub(crate) const fn boards() -> &'static [File] {
    BOARDS
}

/// Returns the text of the file with this name.
pub(crate) fn named(files: &'static [File], name: &str) -> Option<&'static str> {
    files.iter().find(|(known, _)| *known == name).map(|(_, text)| *text)
}

/// Returns the names as a list for error messages.
pub(crate) fn names(files: &[File]) -> String {
    files.iter().map(|(name, _)| *name).collect::<Vec<_>>().join(", ")
}
