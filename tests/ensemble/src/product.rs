//! The products under comparison, and the commands that start their servers.

use crate::{Outcome, said};
use std::path::{Path, PathBuf};
use std::process::Command;

/// A product.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Product {
    /// This project's binary.
    Zoolet(PathBuf),
    /// Apache ZooKeeper from Debian's packages, with these JVM options.
    ZooKeeper(String),
    /// etcd from Debian's package.
    Etcd,
}

impl Product {
    /// Returns the zoolet binary of this build, or the one that `ZOOLET` names.
    ///
    /// # Errors
    /// There is no such binary.
    pub fn zoolet() -> Outcome<Self> {
        if let Some(named) = std::env::var_os("ZOOLET") {
            return Ok(Self::Zoolet(named.into()));
        }
        let here = std::env::current_exe().map_err(said("this program"))?;
        // target/debug/deps/test-1234, or target/debug/program.
        let found =
            here.ancestors().skip(1).take(2).map(|directory| directory.join("zoolet")).find(|path| path.is_file());
        found.map(Self::Zoolet).ok_or_else(|| format!("no zoolet beside {}: cargo build -p zoolet", here.display()))
    }

    /// Returns the usual name of the product.
    pub fn name(&self) -> &'static str {
        match self {
            Self::Zoolet(_) => "zoolet",
            Self::ZooKeeper(_) => "zookeeper",
            Self::Etcd => "etcd",
        }
    }

    /// Returns the product of this name; `zoolet` is [`Product::zoolet`].
    ///
    /// # Errors
    /// There is no such product.
    pub fn named(name: &str) -> Outcome<Self> {
        match name {
            "zoolet" => Self::zoolet(),
            // The heap size that ZooKeeper's own start script sets.
            "zookeeper" => Ok(Self::ZooKeeper("-Xmx1000m".to_owned())),
            "etcd" => Ok(Self::Etcd),
            _ => Err(format!("{name}: allowed are zoolet, zookeeper, etcd")),
        }
    }

    /// Whether it is zoolet.
    pub fn is_zoolet(&self) -> bool {
        matches!(self, Self::Zoolet(_))
    }

    /// Whether its clients speak ZooKeeper's protocol.
    pub fn speaks_zookeeper(&self) -> bool {
        !matches!(self, Self::Etcd)
    }

    /// Returns the command that starts a server with this configuration file.
    ///
    /// For etcd the file holds flags, one per line.
    ///
    /// # Errors
    /// The file cannot be read.
    pub(crate) fn command(&self, config: &Path) -> Outcome<Command> {
        match self {
            Self::Zoolet(binary) => {
                let mut command = Command::new(binary);
                command.args(["serve", "--log", "info", "--config"]).arg(config);
                // zoolet accepts an empty directory named by a zoolet.toml only with `--create`.
                command.args(config.extension().filter(|form| *form == "toml").map(|_| "--create"));
                Ok(command)
            }
            Self::ZooKeeper(options) => {
                let mut command = Command::new(Path::new(env!("CARGO_MANIFEST_DIR")).join("../foreign/zookeeper-java"));
                command
                    .arg("org.apache.zookeeper.server.quorum.QuorumPeerMain")
                    .arg(config)
                    .env("JVM_OPTIONS", options);
                Ok(command)
            }
            Self::Etcd => {
                let flags = std::fs::read_to_string(config).map_err(said(config.display()))?;
                let mut command = Command::new("etcd");
                command.args(flags.lines());
                Ok(command)
            }
        }
    }

    /// Returns the version that the product reports.
    pub fn version(&self) -> String {
        let said = match self {
            Self::Zoolet(binary) => Command::new(binary).arg("--version").output(),
            Self::ZooKeeper(_) => {
                Command::new("dpkg-query").args(["-W", "-f", "zookeeper ${Version}", "zookeeper"]).output()
            }
            Self::Etcd => Command::new("etcd").arg("--version").output(),
        };
        let text = said.map(|output| String::from_utf8_lossy(&output.stdout).into_owned()).unwrap_or_default();
        text.lines().next().unwrap_or("unknown").to_owned()
    }
}
