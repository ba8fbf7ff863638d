//! Wear of the flash device below a directory, as the kernel reports it.
//!
//! Reads only world-readable files under `/sys`; no tool is run and no device is queried. Wear is
//! therefore known only for eMMC and UFS, whose registers the kernel read when it found the device,
//! mostly at boot. The kernel exposes no wear file for SD cards, NVMe (`percentage_used`) or SATA
//! drives (SMART).

use std::fs;
use std::path::{Path, PathBuf};
use zoolet_machine::status::{DeviceWear, SpareBlocks};

/// Levels of stacked devices to follow; LUKS on LVM on a partition is three.
const DEPTH_MAX: usize = 8;

/// Returns the most worn device below the directory's file system.
///
/// `None` if the kernel reports no wear. That includes file systems without a single block
/// device: btrfs, overlayfs, UBIFS, tmpfs, nfs.
pub fn device_wear(directory: &Path) -> Option<DeviceWear> {
    use std::os::unix::fs::MetadataExt;
    let device = fs::metadata(directory).ok()?.dev();
    look(Path::new("/sys"), rustix::fs::major(device), rustix::fs::minor(device))
}

/// Looks up a device number; tests pass another `sys` than the kernel's `/sys`.
fn look(sys: &Path, major: u32, minor: u32) -> Option<DeviceWear> {
    let place = fs::canonicalize(sys.join(format!("dev/block/{major}:{minor}"))).ok()?;
    let mut disks = Vec::new();
    add_disks(&place, DEPTH_MAX, &mut disks);
    DeviceWear::worst(disks.iter().filter_map(|disk| of_disk(disk)))
}

fn of_disk(disk: &Path) -> Option<DeviceWear> {
    let device = disk.file_name()?.to_str()?.to_owned();
    let found = |used_percent: Option<u8>, spare| DeviceWear { device: device.clone(), used_percent, spare };
    // One line holds two registers: wear of the single-bit (SLC) cells, and of the others.
    if let Ok(life) = fs::read_to_string(disk.join("device/life_time")) {
        let used = life.split_whitespace().filter_map(used_percent).max();
        return Some(found(used, spare(&disk.join("device/pre_eol_info"))));
    }
    // UFS reports at the host controller, an ancestor of the disk.
    let health = disk.ancestors().map(|place| place.join("health_descriptor")).find(|place| place.is_dir())?;
    let register = |name: &str| fs::read_to_string(health.join(name)).ok().and_then(|text| used_percent(text.trim()));
    let used = register("life_time_estimation_a").max(register("life_time_estimation_b"));
    Some(found(used, spare(&health.join("eol_info"))))
}

/// Collects the whole disks below a partition or a stacked device.
fn add_disks(place: &Path, depth: usize, disks: &mut Vec<PathBuf>) {
    let below: Vec<PathBuf> = fs::read_dir(place.join("slaves"))
        .map(|slaves| slaves.filter_map(|slave| fs::canonicalize(slave.ok()?.path()).ok()).collect())
        .unwrap_or_default();
    if depth > 0 && !below.is_empty() {
        below.iter().for_each(|place| add_disks(place, depth - 1, disks));
    } else if place.join("partition").exists() {
        disks.extend(place.parent().map(Path::to_path_buf));
    } else {
        disks.push(place.to_path_buf());
    }
}

/// Decodes DEVICE_LIFE_TIME_EST_TYP (JESD84-B51).
///
/// 1 is up to a tenth of the life, 11 is beyond all of it, 0 is undefined.
fn used_percent(register: &str) -> Option<u8> {
    match hex(register)? {
        tenth @ 1..=10 => Some((tenth - 1) * 10),
        11 => Some(100),
        _ => None,
    }
}

/// Decodes PRE_EOL_INFO (JESD84-B51).
fn spare(file: &Path) -> Option<SpareBlocks> {
    match hex(fs::read_to_string(file).ok()?.trim())? {
        1 => Some(SpareBlocks::Normal),
        2 => Some(SpareBlocks::Warning),
        3 => Some(SpareBlocks::Urgent),
        _ => None,
    }
}

fn hex(register: &str) -> Option<u8> {
    u8::from_str_radix(register.strip_prefix("0x").unwrap_or(register), 16).ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::symlink;

    /// A fake `/sys` with the files that are read.
    struct Sys(PathBuf);

    impl Sys {
        fn new(name: &str) -> Self {
            let root = std::env::temp_dir().join(format!("zoolet-sys-{}-{name}", std::process::id()));
            fs::create_dir_all(root.join("dev/block")).unwrap();
            Self(root)
        }

        /// Creates a file and its parent directories.
        fn file(&self, path: &str, text: &str) -> &Self {
            let path = self.0.join(path);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
            self
        }

        /// Creates a link under `dev/block` or under a `slaves` directory.
        fn link(&self, from: &str, to: &str) -> &Self {
            let from = self.0.join(from);
            fs::create_dir_all(from.parent().unwrap()).unwrap();
            symlink(self.0.join(to), from).unwrap();
            self
        }

        /// Creates an eMMC: 179:0 is the whole disk, 179:2 its second partition.
        fn emmc(&self, life_time: &str, pre_eol_info: &str) -> &Self {
            let card = "devices/platform/fe340000.mmc/mmc_host/mmc0/mmc0:0001";
            self.file(&format!("{card}/life_time"), life_time)
                .file(&format!("{card}/pre_eol_info"), pre_eol_info)
                .file(&format!("{card}/block/mmcblk0/mmcblk0p2/partition"), "2\n")
                .link(&format!("{card}/block/mmcblk0/device"), card)
                .link("dev/block/179:0", &format!("{card}/block/mmcblk0"))
                .link("dev/block/179:2", &format!("{card}/block/mmcblk0/mmcblk0p2"))
        }

        fn look(&self, major: u32, minor: u32) -> Option<DeviceWear> {
            look(&self.0, major, minor)
        }
    }

    impl Drop for Sys {
        fn drop(&mut self) {
            let _ = fs::remove_dir_all(&self.0);
        }
    }

    fn emmc(used_percent: Option<u8>, spare: Option<SpareBlocks>) -> DeviceWear {
        DeviceWear { device: "mmcblk0".to_owned(), used_percent, spare }
    }

    #[test]
    fn emmc_reports_its_most_worn_area() {
        for (name, life_time, pre_eol, expected) in [
            ("new", "0x01 0x01\n", "0x01\n", emmc(Some(0), Some(SpareBlocks::Normal))),
            ("mixed", "0x02 0x05\n", "0x01\n", emmc(Some(40), Some(SpareBlocks::Normal))),
            ("old", "0x0a 0x00\n", "0x02\n", emmc(Some(90), Some(SpareBlocks::Warning))),
            ("over", "0x01 0x0b\n", "0x03\n", emmc(Some(100), Some(SpareBlocks::Urgent))),
            ("silent", "0x00 0x00\n", "0x00\n", emmc(None, None)),
            ("nonsense", "0xff life\n", "", emmc(None, None)),
        ] {
            let sys = Sys::new(name);
            sys.emmc(life_time, pre_eol);
            assert_eq!(sys.look(179, 0), Some(expected.clone()), "{name}, the whole disk");
            assert_eq!(sys.look(179, 2), Some(expected), "{name}, a partition");
        }
    }

    #[test]
    fn wear_of_a_dm_device_comes_from_the_disks_below_it() {
        let sys = Sys::new("slaves");
        // LUKS (254:1) on a logical volume (254:0) that spans the eMMC's partition and another
        // disk's partition.
        sys.emmc("0x04 0x01\n", "0x01\n")
            .link("devices/virtual/block/dm-1/slaves/dm-0", "devices/virtual/block/dm-0")
            .link("devices/virtual/block/dm-0/slaves/mmcblk0p2", "dev/block/179:2")
            .file("devices/pci/ata1/sda/sda1/partition", "1\n")
            .link("devices/virtual/block/dm-0/slaves/sda1", "devices/pci/ata1/sda/sda1")
            .link("dev/block/254:1", "devices/virtual/block/dm-1");
        assert_eq!(sys.look(254, 1), Some(emmc(Some(30), Some(SpareBlocks::Normal))));
        // A device listed as its own slave must not cause endless recursion.
        sys.link("devices/virtual/block/dm-2/slaves/dm-2", "devices/virtual/block/dm-2")
            .link("dev/block/254:2", "devices/virtual/block/dm-2");
        assert_eq!(sys.look(254, 2), None);
    }

    #[test]
    fn most_worn_of_several_devices_is_reported() {
        let sys = Sys::new("several");
        sys.emmc("0x02 0x01\n", "0x01\n");
        // A UFS device that does not report its spare blocks.
        let host = "devices/platform/1d84000.ufshc";
        sys.file(&format!("{host}/health_descriptor/life_time_estimation_a"), "0x0b\n")
            .file(&format!("{host}/host0/target0:0:0/0:0:0:0/block/sda/sda3/partition"), "3\n")
            .link("devices/virtual/block/dm-0/slaves/mmcblk0p2", "dev/block/179:2")
            .link("devices/virtual/block/dm-0/slaves/sda3", &format!("{host}/host0/target0:0:0/0:0:0:0/block/sda/sda3"))
            .link("dev/block/254:0", "devices/virtual/block/dm-0");
        let wear = sys.look(254, 0).unwrap();
        assert_eq!((wear.device.as_str(), wear.used_percent, wear.spare), ("sda", Some(100), None));
    }

    #[test]
    fn ufs_wear_is_read_from_the_host_controller() {
        let sys = Sys::new("ufs");
        let host = "devices/platform/1d84000.ufshc";
        sys.file(&format!("{host}/health_descriptor/eol_info"), "0x01\n")
            .file(&format!("{host}/health_descriptor/life_time_estimation_a"), "0x03\n")
            .file(&format!("{host}/health_descriptor/life_time_estimation_b"), "0x09\n")
            .file(&format!("{host}/host0/target0:0:0/0:0:0:0/block/sda/sda3/partition"), "3\n")
            .link("dev/block/8:3", &format!("{host}/host0/target0:0:0/0:0:0:0/block/sda/sda3"));
        let wear = sys.look(8, 3).unwrap();
        assert_eq!((wear.device.as_str(), wear.used_percent, wear.spare), ("sda", Some(80), Some(SpareBlocks::Normal)));
        assert_eq!(wear.trouble().unwrap(), "sda has used 80 to 90 % of its life");
    }

    #[test]
    fn wear_is_unknown_where_the_kernel_exposes_none() {
        let sys = Sys::new("none");
        sys.file("devices/pci/nvme0/nvme0n1/size", "1\n").link("dev/block/259:0", "devices/pci/nvme0/nvme0n1");
        assert_eq!(sys.look(259, 0), None);
        // A file system without a block device.
        assert_eq!(sys.look(0, 37), None);
        assert_eq!(device_wear(Path::new("/proc")), None);
        assert_eq!(device_wear(Path::new("/nowhere")), None);
    }

    #[test]
    fn flash_wear_is_trouble_from_80_percent_on() {
        use SpareBlocks::{Normal, Urgent, Warning};
        for (used, spare, trouble) in [
            (None, None, None),
            (Some(70), Some(Normal), None),
            (Some(80), Some(Normal), Some("mmcblk0 has used 80 to 90 % of its life")),
            (Some(90), None, Some("mmcblk0 has used 90 to 100 % of its life")),
            (Some(100), Some(Warning), Some("mmcblk0 has exceeded its rated life")),
            (Some(10), Some(Warning), Some("mmcblk0 has used four fifths of its spare blocks")),
            (Some(100), Some(Urgent), Some("mmcblk0 has used nine tenths of its spare blocks, or more")),
        ] {
            assert_eq!(emmc(used, spare).trouble().as_deref(), trouble);
        }
    }
}
