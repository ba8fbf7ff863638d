//! Wear of a flash device, as the kernel reports it.

/// Used life from which a device should be replaced, in percent.
const WORN_PERCENT: u8 = 80;

/// Wear that a device reports.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct DeviceWear {
    /// Kernel name, such as `mmcblk0`.
    pub device: String,
    /// Used life in percent, rounded down to tens.
    ///
    /// 100 if all of it is used. Refers to the most worn part of the device. `None` if the device
    /// does not report it.
    pub used_percent: Option<u8>,
    /// State of the spare blocks; `None` if the device does not report it.
    pub spare: Option<SpareBlocks>,
}

/// Remaining blocks that can replace worn ones.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum SpareBlocks {
    /// Enough are left.
    Normal,
    /// Four fifths are used.
    Warning,
    /// Nine tenths are used.
    Urgent,
}

impl SpareBlocks {
    /// Returns the name in the status.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Normal => "normal",
            Self::Warning => "warning",
            Self::Urgent => "urgent",
        }
    }
}

impl DeviceWear {
    /// Returns the most worn of these devices.
    pub fn worst(devices: impl Iterator<Item = Self>) -> Option<Self> {
        devices.max_by_key(|wear| (wear.severity(), wear.used_percent))
    }

    fn severity(&self) -> Severity {
        match (self.spare, self.used_percent) {
            (Some(SpareBlocks::Urgent), _) => Severity::SparesGone,
            (_, Some(100..)) => Severity::PastLife,
            (Some(SpareBlocks::Warning), _) => Severity::SparesGo,
            (_, Some(WORN_PERCENT..)) => Severity::Worn,
            (None | Some(SpareBlocks::Normal), _) => Severity::None,
        }
    }

    /// Returns a message for the operator if the device needs attention.
    pub fn trouble(&self) -> Option<String> {
        let (device, used) = (&self.device, self.used_percent.unwrap_or_default());
        match self.severity() {
            Severity::SparesGone => Some(format!("{device} has used nine tenths of its spare blocks, or more")),
            Severity::PastLife => Some(format!("{device} has exceeded its rated life")),
            Severity::SparesGo => Some(format!("{device} has used four fifths of its spare blocks")),
            Severity::Worn => Some(format!("{device} has used {used} to {} % of its life", used + 10)),
            Severity::None => None,
        }
    }
}

/// How urgent a device's condition is, worst last. With several devices, the worst one is reported.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Severity {
    None,
    Worn,
    SparesGo,
    PastLife,
    SparesGone,
}
