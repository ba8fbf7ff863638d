//! The numbers that a server needs to know about its box.
//!
//! A profile combines one part of each [axis](Axis): storage medium, memory and network. A board is
//! a file that names its parts and overrides some of their numbers. Every [number](Key) has a unit,
//! a reason and its [evidence](Evidence).
//!
//! ```
//! use zoolet_profiles::{Key, Profile};
//!
//! let profile = Profile::named("emmc/512m", Some("wifi"))?;
//! assert_eq!(profile.get(Key::MemtableBytes), 8 << 20);
//! for (key, number) in profile.numbers() {
//!     println!("{} = {}: {} ({})", key.name(), key.unit().show(number.value), number.reason, number.evidence.name());
//! }
//! # Ok::<(), zoolet_profiles::ProfileError>(())
//! ```

mod builtin;
mod check;
mod error;
mod grammar;
mod key;
mod nearest;
mod profile;
mod read;
mod unit;

pub use check::{AtMost, ORDERS};
pub use error::ProfileError;
pub use grammar::{Allowed, Place, Refusal, Written};
pub use key::{Axis, Key};
pub use nearest::{changes, changes_of_beginning, meant, nearest};
pub use profile::{DEFAULT_NETWORK, Listed, Profile, boards, parts};
pub use read::{Evidence, Number};
pub use unit::{Quantity, Unit};
