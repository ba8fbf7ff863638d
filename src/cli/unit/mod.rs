//! `zoolet unit`: prints what an init system needs to start the server.

use super::{Exit, say};
use zoolet::config;
use zoolet_profiles::Key;

/// A supported init system.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Init {
    Systemd,
    Procd,
}

/// The settings of the printed unit.
#[derive(Debug)]
pub(super) struct Options {
    pub(super) init: Init,
    /// The server's configuration file.
    pub(super) config: String,
    /// The binary; `None` for the running one.
    pub(super) binary: Option<String>,
    /// The data directory in that configuration.
    pub(super) data: String,
    /// The profile in that configuration.
    pub(super) profile: String,
}

/// Data directory that systemd creates for the server's user.
pub(super) const STATE: &str = "/var/lib/zoolet";

/// Directory for files that other users may read; they cannot enter the data directory.
const IMAGES: &str = "/var/lib/zoolet-images";

/// Maximum tasks of the unit: a server has about 20 threads, and none per client.
///
/// A process that needs more is out of control.
const TASKS_MAX: u32 = 128;

/// Lines that make systemd create [`STATE`].
const STATE_LINES: &str = "StateDirectory=zoolet\nStateDirectoryMode=0700\n";

const SYSTEMD: &str = include_str!("systemd.service");
const PROCD: &str = include_str!("procd.sh");

pub(super) fn unit(options: &Options) -> Result<(), Exit> {
    let binary = match &options.binary {
        Some(binary) => binary.clone(),
        None => std::env::current_exe().map_err(Exit::failed)?.display().to_string(),
    };
    let memory_bytes = memory_bytes_max(&options.profile)?;
    say(&text(
        options.init,
        plain("--binary", &binary)?,
        plain("--config", &options.config)?,
        plain("--data", &options.data)?,
        (plain_profile(&options.profile)?, memory_bytes),
    ))
}

/// Returns the memory limit of a server with this profile, in bytes.
///
/// Its control group also counts memory of the kernel and cached files. So the limit is the
/// profile's ceiling and half of it for the kernel, mostly for socket buffers. The kernel evicts
/// cached files first.
fn memory_bytes_max(profile: &str) -> Result<u64, Exit> {
    let ceiling = config::profile_defaults::find(profile, None).map_err(Exit::usage)?.get(Key::CeilingBytes);
    Ok(ceiling + ceiling / 2)
}

fn text(init: Init, binary: &str, config: &str, data: &str, (profile, memory_bytes): (&str, u64)) -> String {
    let template = match init {
        Init::Systemd => SYSTEMD,
        Init::Procd => PROCD,
    };
    let state = if data == STATE { STATE_LINES } else { "" };
    let (memory, tasks) = (memory_bytes.to_string(), TASKS_MAX.to_string());
    let of_profile = [("@PROFILE@", profile), ("@MEMORY@", memory.as_str()), ("@TASKS@", tasks.as_str())];
    [("@BINARY@", binary), ("@CONFIG@", config), ("@DATA@", data), ("@STATE@", state), ("@IMAGES@", IMAGES)]
        .into_iter()
        .chain(of_profile)
        .fold(template.to_owned(), |text, (name, value)| text.replace(name, value))
}

/// Returns a profile's name or file, if neither format needs to quote it.
fn plain_profile(name: &str) -> Result<&str, Exit> {
    let is_plain = name.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"/-_.+".contains(&byte));
    if is_plain {
        Ok(name)
    } else {
        Err(Exit::usage(format!("--profile = {name}: allowed are letters, digits and /-_.+")))
    }
}

/// Returns a path, if neither format needs to quote it.
fn plain<'p>(key: &str, path: &'p str) -> Result<&'p str, Exit> {
    let is_plain =
        path.starts_with('/') && path.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"/-_.+".contains(&byte));
    if is_plain {
        Ok(path)
    } else {
        Err(Exit::usage(format!("{key} = {path}: allowed is an absolute path of letters, digits and /-_.+")))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn systemd_and_procd_units_start_the_binary_with_the_config_file() {
        let expected = "/usr/bin/zoolet serve --keep-trying --config /etc/zoolet/zoolet.toml\n";
        for init in [Init::Systemd, Init::Procd] {
            let text = text(init, "/usr/bin/zoolet", "/etc/zoolet/zoolet.toml", STATE, ("emmc/512m", 1));
            // More than one @ in a word is an unreplaced placeholder: words of systemd begin with
            // one.
            let left = text.split_whitespace().any(|word| word.matches('@').count() > 1);
            assert!(text.contains(expected) && !left, "{text}");
        }
    }

    #[test]
    fn systemd_unit_grants_write_access_to_the_data_directory() {
        let printed =
            |data: &str| text(Init::Systemd, "/usr/bin/zoolet", "/etc/zoolet/zoolet.toml", data, ("emmc/512m", 1));
        let has = |data: &str, line: &str| printed(data).lines().any(|said| said == line);
        for data in [STATE, "/mnt/data/zoolet"] {
            assert!(has(data, &format!("ReadWritePaths=-{data}")) && has(data, &format!("RequiresMountsFor={data}")));
        }
        assert!(has(STATE, &format!("ReadWritePaths=-{IMAGES}")) && !IMAGES.starts_with(&format!("{STATE}/")));
        assert!(has(STATE, "StateDirectory=zoolet") && !has("/mnt/data/zoolet", "StateDirectory=zoolet"));
    }

    #[test]
    fn systemd_unit_bounds_memory_by_profile_and_disables_core_dumps() {
        for profile in ["emmc/512m", "sd-a1/128m"] {
            let Ok(memory) = memory_bytes_max(profile) else { panic!("no profile {profile}") };
            let ceiling = config::profile_defaults::find(profile, None).unwrap().get(Key::CeilingBytes);
            assert!(ceiling < memory && memory <= 2 * ceiling, "{profile}: {memory}");
            let printed = text(Init::Systemd, "/usr/bin/zoolet", "/etc/zoolet/zoolet.toml", STATE, (profile, memory));
            for line in [format!("MemoryMax={memory}").as_str(), "TasksMax=128", "LimitCORE=0"] {
                assert!(printed.lines().any(|said| said == line), "{line} is not in {printed}");
            }
        }
        assert!(memory_bytes_max("floppy/512m").is_err());
    }

    #[test]
    fn procd_unit_runs_as_user_zoolet_in_a_jail_with_the_data() {
        let printed =
            text(Init::Procd, "/usr/bin/zoolet", "/etc/zoolet/zoolet.toml", "/mnt/data/zoolet", ("emmc/512m", 1));
        for line in [
            "procd_set_param user zoolet",
            "procd_set_param group zoolet",
            "procd_set_param no_new_privs 1",
            "procd_set_param limits core=\"0 0\" nofile=\"16384 16384\"",
            "procd_add_jail zoolet log procfs sysfs",
            "procd_add_jail_mount_rw /mnt/data/zoolet /var/lib/zoolet-images",
        ] {
            assert!(printed.lines().any(|said| said.trim() == line), "{line} is not in {printed}");
        }
    }

    #[test]
    fn unit_path_that_would_need_quoting_is_refused() {
        assert!(plain("--config", "/etc/zoolet/zoolet.toml").is_ok());
        for path in ["zoolet.toml", "/etc/my zoolet.toml", "/etc/$HOME.toml", "/a;b", ""] {
            assert!(plain("--config", path).is_err(), "{path}");
        }
    }
}
