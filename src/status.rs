//! State of a server in short, and its alarms, as [`Node::watch_status`](crate::Node::watch_status)
//! streams them.

pub use zoolet_machine::seam::event::Shortage;
pub use zoolet_machine::status::{
    Alarm, AlarmKind, Cause, DeviceWear, DiskSummary, DiskTrouble, DiskTroubles, FlashStatus, Lack, Lag, Quorum,
    Refusal, ServerRole, SpareBlocks, Summary, Written,
};
pub use zoolet_machine::wear::Forecast;
pub use zoolet_model::ServerId;
