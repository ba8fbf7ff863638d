//! `zoolet unit`: what an init system needs to start the server.

use super::{Exit, say};

/// Which init system.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Init {
    Systemd,
    Procd,
}

/// What to print.
#[derive(Debug)]
pub(super) struct Options {
    pub(super) init: Init,
    /// The configuration file that the server is started with.
    pub(super) config: String,
    /// The binary; `None`: this one.
    pub(super) binary: Option<String>,
    /// What that file says of `data`.
    pub(super) data: String,
}

/// The one that systemd makes itself, and gives to the user.
pub(super) const STATE: &str = "/var/lib/zoolet";

/// Where files that others read may be: nobody else may enter the directory of the data.
const IMAGES: &str = "/var/lib/zoolet-images";

/// So that systemd does.
const STATE_LINES: &str = "StateDirectory=zoolet\nStateDirectoryMode=0700\n";

const SYSTEMD: &str = include_str!("systemd.service");
const PROCD: &str = include_str!("procd.sh");

pub(super) fn unit(options: &Options) -> Result<(), Exit> {
    let binary = match &options.binary {
        Some(binary) => binary.clone(),
        None => std::env::current_exe().map_err(Exit::failed)?.display().to_string(),
    };
    say(&text(
        options.init,
        plain("--binary", &binary)?,
        plain("--config", &options.config)?,
        plain("--data", &options.data)?,
    ))
}

fn text(init: Init, binary: &str, config: &str, data: &str) -> String {
    let template = match init {
        Init::Systemd => SYSTEMD,
        Init::Procd => PROCD,
    };
    let state = if data == STATE { STATE_LINES } else { "" };
    [("@BINARY@", binary), ("@CONFIG@", config), ("@DATA@", data), ("@STATE@", state), ("@IMAGES@", IMAGES)]
        .into_iter()
        .fold(template.to_owned(), |text, (name, value)| text.replace(name, value))
}

/// What both formats take as it is.
fn plain<'p>(key: &str, path: &'p str) -> Result<&'p str, Exit> {
    let is_plain =
        path.starts_with('/') && path.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"/-_.+".contains(&byte));
    if is_plain {
        Ok(path)
    } else {
        Err(Exit::usage(format!("{key} = {path}: allowed is a whole path of letters, digits and /-_.+")))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_start_the_binary_with_the_file() {
        let expected = "/usr/bin/zoolet serve --keep-trying --config /etc/zoolet/zoolet.toml\n";
        for init in [Init::Systemd, Init::Procd] {
            let text = text(init, "/usr/bin/zoolet", "/etc/zoolet/zoolet.toml", STATE);
            let left = ["@BINARY@", "@CONFIG@", "@DATA@", "@STATE@", "@IMAGES@"].iter().any(|name| text.contains(name));
            assert!(text.contains(expected) && !left, "{text}");
        }
    }

    #[test]
    fn systemd_lets_it_write_where_its_data_is() {
        let printed = |data: &str| text(Init::Systemd, "/usr/bin/zoolet", "/etc/zoolet/zoolet.toml", data);
        let has = |data: &str, line: &str| printed(data).lines().any(|said| said == line);
        for data in [STATE, "/mnt/data/zoolet"] {
            assert!(has(data, &format!("ReadWritePaths=-{data}")) && has(data, &format!("RequiresMountsFor={data}")));
        }
        assert!(has(STATE, &format!("ReadWritePaths=-{IMAGES}")) && !IMAGES.starts_with(&format!("{STATE}/")));
        assert!(has(STATE, "StateDirectory=zoolet") && !has("/mnt/data/zoolet", "StateDirectory=zoolet"));
    }

    #[test]
    fn what_would_have_to_be_quoted_is_refused() {
        assert!(plain("--config", "/etc/zoolet/zoolet.toml").is_ok());
        for path in ["zoolet.toml", "/etc/my zoolet.toml", "/etc/$HOME.toml", "/a;b", ""] {
            assert!(plain("--config", path).is_err(), "{path}");
        }
    }
}
