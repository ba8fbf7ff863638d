//! Profiles: numbers for the engine and the links that a configuration file leaves out.

use super::bound::{self, Bound, Numbers};
use super::keys::{LIMITS, SETTINGS, TIMING};
use super::{Config, ConfigError, Network, Timing};
use crate::obstacle;
use std::path::Path;
use zoolet_machine::Limits;
use zoolet_machine::budget::{Budget, Part};
use zoolet_machine::wear::Medium;
use zoolet_profiles::{AtMost, Axis, Key, Number, ORDERS, Profile, Written};
use zoolet_store::disk_bytes_min;

/// Returns the name to look up for a profile named in the configuration file `file`.
///
/// A name that ends in `.toml` is a path relative to that file's directory.
pub(super) fn beside(file: &Path, name: &str) -> String {
    let is_file = name.ends_with(".toml");
    let beside = file.parent().filter(|_| is_file).map(|directory| directory.join(name));
    beside.as_deref().and_then(Path::to_str).unwrap_or(name).to_owned()
}

/// Returns the profile of that name, or reads it if the name ends in `.toml`.
///
/// # Errors
/// One line that names the profile, if:
/// - it is unknown or cannot be read,
/// - one of its numbers is not allowed or contradicts another,
/// - its parts exceed its memory ceiling.
pub fn find(name: &str, network: Option<Network>) -> Result<Profile, ConfigError> {
    let network = network.map(Network::name);
    let found = if name.ends_with(".toml") {
        let text = std::fs::read_to_string(name)
            .map_err(|error| ConfigError::new(format!("cannot read {name}: {}", obstacle::reading(&error))))?;
        Profile::read(name, &text, network)
    } else {
        Profile::named(name, network)
    };
    let profile = found.map_err(|error| ConfigError::new(error.to_string()))?;
    let (config, _) = numbers(&profile)?;
    check_disk(&profile, &config.limits)?;
    bound::check_together(&config, &bound::OF_TOML).map_err(|error| ConfigError::new(format!("{name}: {error}")))?;
    let (servers, ceiling) = (profile.get(Key::ServersMax), profile.get(Key::CeilingBytes));
    let most = memory_bytes_max(&profile, &config.limits, servers);
    if most > ceiling {
        let shown = |bytes| Key::CeilingBytes.unit().show(bytes);
        return Err(ConfigError::new(format!(
            "{name}: ceiling_bytes = {}: allowed is at least {}, all parts with {servers} servers",
            shown(ceiling),
            shown(most.next_multiple_of(1 << 20))
        )));
    }
    Ok(profile)
}

/// Checks that the disk bound is large enough for the engine.
///
/// Only the engine knows the minimum, so no part of a profile can check it.
fn check_disk(profile: &Profile, limits: &Limits) -> Result<(), ConfigError> {
    let (least, most) = (disk_bytes_min(limits), limits.disk_bytes_max);
    if !(1..least).contains(&most) {
        return Ok(());
    }
    let shown = |number| Key::DiskBytesMax.unit().show(number);
    let sum = format!("log_bytes, {}", bound::DISK_PARTS);
    let larger = format!("0 B for no bound, or at least {} ({sum})", shown(least));
    let less =
        format!("less, or a larger disk_bytes_max: it is {}, but {} are needed ({sum})", shown(most), shown(least));
    let parts = [Key::LogBytes, Key::DiskReserveBytes, Key::MemtableBytes].map(|key| (key, less.clone()));
    let ways = [&[(Key::DiskBytesMax, larger)], &parts[..]].concat();
    Err(ConfigError::new(profile.contradiction(&ways).to_string()))
}

/// Checks a file's numbers against the orders that profiles keep. Returns warnings.
///
/// An order bounds one number by a percentage of another.
///
/// A standalone server has no elections, so its settings may break the orders. With limits out of
/// order a server still works, but less well: that is a warning.
///
/// # Errors
/// The first setting or time that is out of order.
pub(super) fn check_orders(
    profile: &Profile,
    config: &mut Config,
    mut timing: Timing,
) -> Result<Vec<String>, ConfigError> {
    let (mut config_of_profile, mut timing_of_profile) = numbers(profile)?;
    let has_servers = config.ensemble.is_some();
    let mut said = |key: Key| {
        let is_it = |name: &str| name == key.name();
        if let Some(bound) = TIMING.iter().find(|bound| is_it(bound.key)) {
            return Some(Said::new("timing", key, bound.get(&mut timing), bound.get(&mut timing_of_profile)));
        }
        let of_limits = LIMITS.iter().map(|bound| ("limits", bound));
        let of_settings = SETTINGS.iter().filter(|_| has_servers).map(|bound| ("settings", bound));
        let (table, bound) = of_limits.chain(of_settings).find(|(_, bound)| is_it(bound.key))?;
        Some(Said::new(table, key, bound.get(config), bound.get(&mut config_of_profile)))
    };
    let mut warnings = Vec::new();
    for order in ORDERS {
        let (Some(less), Some(more)) = (said(order.less), said(order.more)) else { continue };
        let Some((of_file, allowed)) = out_of_order(order, &less, &more) else { continue };
        if less.table != "limits" {
            return Err(ConfigError::value(&of_file.key, of_file.value, allowed));
        }
        warnings.push(format!("{} = {}: should be {allowed}", of_file.key, of_file.value));
    }
    Ok(warnings)
}

/// One side of an order, with its effective value.
struct Said {
    table: &'static str,
    key: String,
    value: u64,
    /// The file overrides the profile's value.
    is_of_file: bool,
}

impl Said {
    fn new(table: &'static str, key: Key, value: u64, of_profile: u64) -> Self {
        Self { table, key: format!("{table}.{}", key.name()), value, is_of_file: value != of_profile }
    }
}

/// Returns which of two contradicting numbers to change, and its allowed range.
///
/// The number to change is one that the file sets, `less` if it sets both.
fn out_of_order<'a>(order: &AtMost, less: &'a Said, more: &'a Said) -> Option<(&'a Said, String)> {
    let AtMost { percent, why, .. } = order;
    let most = more.value.saturating_mul(*percent) / 100;
    // A `more` of 0 is a choice, such as to have no reserve.
    if less.value <= most || more.value == 0 {
        return None;
    }
    if less.is_of_file {
        let part = if *percent == 100 { String::new() } else { format!("{percent} % of ") };
        return Some((less, format!("at most {most} ({part}{}: {why})", more.key)));
    }
    let least = less.value.saturating_mul(100).div_ceil(*percent);
    Some((more, format!("at least {least} ({} is {}: {why})", less.key, less.value)))
}

/// Returns a configuration and the timing of its servers, with a profile's numbers.
///
/// # Errors
/// A number that is not allowed.
pub(super) fn numbers(profile: &Profile) -> Result<(Config, Timing), ConfigError> {
    let of_profile = (profile.name().to_owned(), network(profile), medium(profile));
    let mut config = Config::new("");
    (config.profile, config.network, config.medium) = of_profile;
    let mut timing = Timing::default();
    for (key, number) in profile.numbers() {
        let of_profile = |error: ConfigError| ConfigError::new(format!("{}: {error}", number.file));
        if let Some(bound) = bound::named(key.name()) {
            place(bound, &mut config, key, number).map_err(of_profile)?;
        } else if let Some(bound) = TIMING.iter().find(|bound| bound.key == key.name()) {
            place(bound, &mut timing, key, number).map_err(of_profile)?;
        }
    }
    let segments = profile.get(Key::LogBytes).checked_div(profile.get(Key::LogSegmentBytes)).unwrap_or(0);
    if let Some(bound) = bound::named("log_segments") {
        bound.set(
            &mut config,
            "log_bytes / log_segment_bytes",
            &segments.to_string(),
            Written::Number(segments.into()),
        )?;
    }
    Ok((config, timing))
}

fn place<T: Numbers>(bound: &Bound<T>, target: &mut T, key: Key, number: &Number) -> Result<(), ConfigError> {
    bound.set(target, key.name(), &key.unit().show(number.value).to_string(), Written::Number(number.value.into()))
}

fn network(profile: &Profile) -> Network {
    let name = profile.part(Axis::Network);
    Network::ALL.into_iter().find(|network| network.name() == name).unwrap_or_default()
}

fn medium(profile: &Profile) -> Medium {
    Medium {
        endurance_bytes: profile.get(Key::Endurance),
        amplification_percent: profile.get(Key::DeviceAmplification),
        budget_bytes_per_day: profile.get(Key::FlashBudget),
    }
}

/// Returns the maximum memory of a server in an ensemble of `servers`, in bytes.
///
/// It is the profile's fixed part plus all other parts, each at its bound.
pub fn memory_bytes_max(profile: &Profile, limits: &Limits, servers: u64) -> u64 {
    let peers = usize::try_from(servers.saturating_sub(1)).unwrap_or(usize::MAX);
    let parts: u64 = parts(limits, peers).iter().map(|(_, bytes)| bytes).sum();
    profile.get(Key::FixedBytes) + parts
}

/// Returns the limits of a server with this profile.
///
/// # Errors
/// A number that is not allowed.
pub fn limits(profile: &Profile) -> Result<Limits, ConfigError> {
    numbers(profile).map(|(config, _)| config.limits)
}

/// Returns the maximum memory of each part of a server with `peers` others, in bytes.
pub fn parts(limits: &Limits, peers: usize) -> Vec<(Part, u64)> {
    let budget = Budget::new(limits);
    budget.allow(Part::Links, zoolet_transport::peer::link_bytes_max(limits, peers));
    // The other parts' unused memory is counted already. With every part at its limit, the spare
    // cache has only the bytes above the sum of those limits.
    budget.allow(Part::SpareCache, budget.spare_bytes_own(limits));
    Part::ALL.into_iter().filter(|part| part.is_memory()).map(|part| (part, budget.limit(part))).collect()
}

/// Numbers of the flash budget's alarm and of the forecast of the medium's life.
const OF_FLASH: [Key; 3] = [Key::FlashBudget, Key::Endurance, Key::DeviceAmplification];

/// Returns the lines for `conf`: the profile, and each number with its source.
pub(super) fn conf(profile: &Profile, config: &Config) -> Vec<(String, String)> {
    let mut lines = vec![
        ("zoolet.profile".to_owned(), profile.name().to_owned()),
        ("zoolet.network".to_owned(), profile.part(Axis::Network).to_owned()),
    ];
    for (key, number) in profile.numbers().filter(|(key, _)| OF_FLASH.contains(key)) {
        let (value, evidence) = (key.unit().show(number.value), number.evidence.name());
        lines.push((format!("zoolet.{}", key.name()), format!("{value} ({evidence}, {})", number.file)));
    }
    for Effective { key, value, from } in effective(profile, config) {
        lines.push((format!("zoolet.{key}"), format!("{value} ({from})")));
    }
    lines
}

/// Returns a server's maximum memory, in bytes, and a warning above the profile's ceiling.
///
/// The ceiling is exceeded if a file sets larger parts or the site has more servers.
pub(super) fn most(profile: &Profile, config: &Config) -> (u64, Option<String>) {
    let servers = config.ensemble.as_ref().map_or(1, |ensemble| ensemble.members.len() as u64);
    let (most, ceiling) = (memory_bytes_max(profile, &config.limits, servers), profile.get(Key::CeilingBytes));
    let shown = |bytes: u64| Key::CeilingBytes.unit().show(bytes.next_multiple_of(1 << 20));
    let over = (most > ceiling).then(|| {
        format!(
            "the limits allow {} of memory in a site of {servers}, above the ceiling of profile {}, {}: choose a profile for more memory (zoolet profile list), or lower [limits]",
            shown(most),
            profile.name(),
            shown(ceiling)
        )
    });
    (most, over)
}

/// Returns each number that a configuration file may set, with its source.
fn effective(profile: &Profile, config: &Config) -> Vec<Effective> {
    let Ok((mut of_profile, mut timing_of_profile)) = numbers(profile) else { return Vec::new() };
    let mut config = config.clone();
    let mut timing = config.ensemble.as_ref().map_or(timing_of_profile, |ensemble| ensemble.timing);
    let mut all = Vec::new();
    let mut add = |table: &str, key: &'static str, value: u64, same: bool| {
        let name = if key == "log_segments" { "log_bytes" } else { key };
        let number = Key::named(name).and_then(|key| profile.numbers().find(|(of, _)| *of == key));
        let from = match number {
            _ if !same => "configured".to_owned(),
            Some((_, number)) => format!("{}, {}", number.evidence.name(), number.file),
            None => "default".to_owned(),
        };
        all.push(Effective { key: format!("{table}.{key}"), value, from });
    };
    for (table, bounds) in [("limits", LIMITS), ("settings", SETTINGS)] {
        for bound in bounds {
            let value = bound.get(&mut config);
            add(table, bound.key, value, value == bound.get(&mut of_profile));
        }
    }
    for bound in TIMING {
        let value = bound.get(&mut timing);
        add("timing", bound.key, value, value == bound.get(&mut timing_of_profile));
    }
    all
}

/// An effective number and its source.
struct Effective {
    /// Table and key, as in `zoolet.toml`.
    key: String,
    value: u64,
    /// Evidence and file of the profile; `configured` if a file sets another value; `default` if no
    /// profile has the number.
    from: String,
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::DEFAULT_PROFILE;

    #[test]
    fn relative_profile_path_starts_at_the_naming_files_directory() {
        let directory = std::env::temp_dir().join(format!("zoolet-beside-{}", std::process::id()));
        std::fs::create_dir_all(&directory).unwrap();
        let profile = "title = \"a box\"\nmedia = \"emmc\"\nmemory = \"512m\"\nnetwork = \"lan\"\n";
        std::fs::write(directory.join("box.toml"), profile).unwrap();
        for (name, said) in [
            ("zoolet.toml", "profile = \"box.toml\"\n"),
            ("zoo.cfg", "dataDir=/d\nclientPort=2181\nzoolet.profile=box.toml\n"),
        ] {
            let file = directory.join(name);
            std::fs::write(&file, said).unwrap();
            let loaded = crate::config::load(&file, &crate::config::Overrides::default());
            assert!(loaded.is_ok(), "{name}: {:?}", loaded.err());
        }
        assert_eq!(beside(Path::new("/etc/zoolet/zoolet.toml"), "emmc/512m"), "emmc/512m");
        assert_eq!(beside(Path::new("/etc/zoolet/zoolet.toml"), "/mnt/box.toml"), "/mnt/box.toml");
        std::fs::remove_dir_all(directory).unwrap();
    }

    #[test]
    fn default_profile_equals_the_default_config() {
        let profile = find(DEFAULT_PROFILE, None).unwrap();
        let (config, timing) = numbers(&profile).unwrap();
        assert_eq!((config.limits, config.settings), (Limits::default(), zoolet_machine::Settings::default()));
        assert_eq!(config.medium, Medium::default());
        assert_eq!((timing, config.network), (Timing::default(), Network::Lan));
        assert_eq!(config.profile, DEFAULT_PROFILE);
    }

    /// Combines every medium, memory and network, and takes every board: [`find`] refuses a profile
    /// above its ceiling.
    #[test]
    fn all_limits_together_stay_below_each_profiles_memory_ceiling() {
        for media in zoolet_profiles::parts(Axis::Media).unwrap() {
            for memory in zoolet_profiles::parts(Axis::Memory).unwrap() {
                for network in Network::ALL {
                    find(&format!("{}/{}", media.name, memory.name), Some(network)).unwrap();
                }
            }
        }
        for board in zoolet_profiles::boards().unwrap() {
            find(board.name, None).unwrap();
        }
    }

    #[test]
    fn profile_with_limits_above_its_ceiling_is_refused() {
        let file = std::env::temp_dir().join(format!("zoolet-profile-{}.toml", std::process::id()));
        let text = "title = \"too much\"\nmedia = \"emmc\"\nmemory = \"128m\"\n[overrides.watches_max]\nvalue = \"100000\"\n\
                    reason = \"many\"\nevidence = \"guess\"\n";
        std::fs::write(&file, text).unwrap();
        let refused = find(&file.display().to_string(), None).unwrap_err().to_string();
        std::fs::remove_file(&file).unwrap();
        assert!(refused.contains(": ceiling_bytes = 64 MiB: allowed is at least 7"), "{refused}");
        let missing = find("/nowhere/box.toml", None).unwrap_err().to_string();
        assert!(missing.starts_with("cannot read /nowhere/box.toml: "), "{missing}");
    }

    #[test]
    fn disk_bound_too_small_for_checkpoints_is_refused() {
        let read = |key: &str, value: &str| {
            let file = std::env::temp_dir().join(format!("zoolet-bound-{key}-{}.toml", std::process::id()));
            let text = format!(
                "title = \"a box\"\nmedia = \"emmc\"\nmemory = \"512m\"\n[overrides.{key}]\nvalue = \"{value}\"\n\
                 reason = \"to see\"\nevidence = \"guess\"\n"
            );
            std::fs::write(&file, text).unwrap();
            let found = find(&file.display().to_string(), None);
            std::fs::remove_file(&file).unwrap();
            found.map_err(|error| error.to_string())
        };
        for (key, value, expected) in [
            ("disk_bytes_max", "153 MiB", "allowed is 0 B for no bound, or at least 154 MiB (log_bytes, 9/8 of"),
            ("log_bytes", "2 GiB", ": allowed is less, or a larger disk_bytes_max: it is 2 GiB, but "),
        ] {
            let refused = read(key, value).unwrap_err();
            assert!(
                refused.contains(&format!(": {key} = {value}: allowed")) && refused.contains(expected),
                "{refused}"
            );
        }
        read("disk_bytes_max", "154 MiB").unwrap();
    }

    /// A number that nothing reads would have no effect in a profile.
    #[test]
    fn every_profile_number_sets_an_option_or_describes_the_machine() {
        /// Numbers that describe the machine, and numbers that others are checked against.
        const OF_THE_BOX: [Key; 17] = [
            Key::SyncP50,
            Key::SyncP99,
            Key::SyncMax,
            Key::Hang,
            Key::HangInterval,
            Key::WriteRate,
            Key::DeviceAmplification,
            Key::Endurance,
            Key::FlashBudget,
            Key::LogBytes,
            Key::BoxBytes,
            Key::CeilingBytes,
            Key::FixedBytes,
            Key::ServersMax,
            Key::RoundTrip,
            Key::RoundTripP99,
            Key::Loss,
        ];
        for key in Key::ALL {
            let is_told = bound::named(key.name()).is_some() || TIMING.iter().any(|bound| bound.key == key.name());
            assert_eq!(is_told, !OF_THE_BOX.contains(key), "{}", key.name());
        }
    }
}
