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
}

const SYSTEMD: &str = include_str!("systemd.service");
const PROCD: &str = include_str!("procd.sh");

pub(super) fn unit(options: &Options) -> Result<(), Exit> {
    let binary = match &options.binary {
        Some(binary) => binary.clone(),
        None => std::env::current_exe().map_err(Exit::failed)?.display().to_string(),
    };
    say(&text(options.init, &plain("--binary", &binary)?, &plain("--config", &options.config)?))
}

fn text(init: Init, binary: &str, config: &str) -> String {
    let template = match init {
        Init::Systemd => SYSTEMD,
        Init::Procd => PROCD,
    };
    template.replace("@BINARY@", binary).replace("@CONFIG@", config)
}

/// What both formats take as it is.
fn plain(key: &str, path: &str) -> Result<String, Exit> {
    let is_plain =
        path.starts_with('/') && path.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"/-_.+".contains(&byte));
    if is_plain {
        Ok(path.to_owned())
    } else {
        Err(Exit::usage(format!("{key} = {path}: allowed is a whole path of letters, digits and /-_.+")))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_start_the_binary_with_the_file() {
        let expected = "/usr/bin/zoolet serve --config /etc/zoolet/zoolet.toml";
        for init in [Init::Systemd, Init::Procd] {
            let text = text(init, "/usr/bin/zoolet", "/etc/zoolet/zoolet.toml");
            assert!(text.contains(expected) && !text.contains("@BINARY@") && !text.contains("@CONFIG@"), "{text}");
        }
    }

    #[test]
    fn what_would_have_to_be_quoted_is_refused() {
        assert!(plain("--config", "/etc/zoolet/zoolet.toml").is_ok());
        for path in ["zoolet.toml", "/etc/my zoolet.toml", "/etc/$HOME.toml", "/a;b", ""] {
            assert!(plain("--config", path).is_err(), "{path}");
        }
    }
}
