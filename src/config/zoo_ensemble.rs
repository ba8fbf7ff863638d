//! The ensemble of a `zoo.cfg`: its server lines, `myid`, and the site key's file.

use super::server_line::ServerLine;
use super::stray_key::refuse_in_line;
use super::{ConfigError, Ensemble, Server, TrustSource, properties, server_line, site_key};
use crate::obstacle;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

/// The values of an ensemble's keys.
#[derive(Default)]
pub(super) struct Servers {
    /// In file order.
    pub(super) lines: Vec<ServerLine>,
    /// `peerType`, this server's role.
    pub(super) is_observer: Option<bool>,
    /// Key of a `group.N` or `weight.N` line, as written.
    pub(super) weighted: Option<String>,
    /// `zoolet.siteKeyFile`.
    pub(super) site_key_file: Option<PathBuf>,
    /// The file that the server lines are from, if not from the `zoo.cfg` itself.
    pub(super) dynamic_file: Option<PathBuf>,
}

impl Servers {
    /// Reads a `dynamicConfigFile`: server lines, groups, weights and a version, but no other keys.
    pub(super) fn read_dynamic(&mut self, key: &str, file: &Path) -> Result<(), ConfigError> {
        if !self.lines.is_empty() {
            return Err(ConfigError::new(format!(
                "{key} = {}: this zoo.cfg lists servers already; use only one of the two",
                file.display()
            )));
        }
        let text = fs::read(file)
            .map(|bytes| String::from_utf8_lossy(&bytes).into_owned())
            .map_err(|error| ConfigError::new(format!("{key} = {}: {}", file.display(), obstacle::reading(&error))))?;
        let properties = properties::parse(&text).map_err(|(line, error)| error.at(file, Some(line)))?;
        for property in &properties {
            let at = |error: ConfigError| error.at(file, Some(property.line));
            refuse_in_line(&property.key, &property.value).map_err(at)?;
            match property.key.split_once('.') {
                Some(("server", id)) => {
                    self.lines.push(server_line::parse(&property.key, id, &property.value).map_err(at)?);
                }
                Some(("group" | "weight", _)) => self.weighted = Some(property.key.clone()),
                _ if property.key == "version" => {}
                _ => return Err(at(ConfigError::new(format!("{}: allowed are server.N lines", property.key)))),
            }
        }
        self.dynamic_file = Some(file.to_owned());
        Ok(())
    }

    /// Returns whether there are several. A single server is standalone, as in ZooKeeper.
    pub(super) fn are_several(&self) -> bool {
        self.lines.len() > 1
    }

    /// Returns the line of server `own`.
    pub(super) fn own(&self, own: u8) -> Option<&ServerLine> {
        self.lines.iter().find(|line| line.id == own)
    }

    /// Returns this server's id, from `dataDir/myid` or from the command line.
    ///
    /// If both give an id, they must agree. `None`: neither does, and there are no server lines.
    pub(super) fn number(&self, data: &Path, given: Option<u8>) -> Result<Option<u8>, ConfigError> {
        let file = data.join("myid");
        let text = match fs::read_to_string(&file) {
            Ok(text) => text,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return self.number_without_myid(&file, given),
            Err(error) => return Err(ConfigError::new(format!("{}: {}", file.display(), obstacle::reading(&error)))),
        };
        let ids = self.ids();
        let allowed = match (given, ids.is_empty()) {
            (Some(given), _) => format!("{given}, as --id says"),
            (None, false) => format!("one of {ids}, as in the server lines"),
            (None, true) => "a whole number from 0 to 255".to_owned(),
        };
        let id = text.strip_prefix('\u{feff}').unwrap_or(&text).trim();
        id.parse()
            .ok()
            .filter(|id| self.lines.is_empty() || self.own(*id).is_some())
            .filter(|id| given.is_none_or(|given| given == *id))
            .map(Some)
            .ok_or_else(|| ConfigError::value(&file.display().to_string(), id, allowed))
    }

    fn number_without_myid(&self, file: &Path, given: Option<u8>) -> Result<Option<u8>, ConfigError> {
        match (given, self.lines.as_slice()) {
            (Some(given), _) => Ok(Some(given)),
            (None, []) => Ok(None),
            (None, [alone]) => Ok(Some(alone.id)),
            (None, _) => Err(ConfigError::new(format!(
                "{} is missing: it holds the id of this server, one of {}; for example: echo {} > {0}",
                file.display(),
                self.ids(),
                self.lines[0].id
            ))),
        }
    }

    fn ids(&self) -> String {
        self.lines.iter().map(|line| line.id.to_string()).collect::<Vec<_>>().join(", ")
    }

    /// Returns the ensemble that server `own` belongs to, and warnings.
    pub(super) fn ensemble(&self, own: u8, data: &Path) -> Result<(Ensemble, Vec<String>), ConfigError> {
        if let Some(key) = &self.weighted {
            return Err(ConfigError::new(format!(
                "{key}: groups and weights are not built; every voter counts the same"
            )));
        }
        let members: Result<Vec<Server>, _> = self.lines.iter().map(|line| line.to_member(own)).collect();
        let members = members?;
        let trust = self.trust(own, data, &members)?;
        let ensemble = Ensemble::new(members, trust);
        ensemble.check(own)?;
        let mut warnings = ensemble.warnings();
        let voter_or_observer = |is_observer: bool| if is_observer { "observer" } else { "participant" };
        let of_line = self.own(own).is_some_and(|line| line.is_observer);
        if let Some(said) = self.is_observer.filter(|said| *said != of_line) {
            warnings.push(format!(
                "peerType = {}: ignored, because server.{own} says {}",
                voter_or_observer(said),
                voter_or_observer(of_line)
            ));
        }
        Ok((ensemble, warnings))
    }

    fn trust(&self, own: u8, data: &Path, members: &[Server]) -> Result<TrustSource, ConfigError> {
        let usual = data.join("site.key");
        let file = self.site_key_file.as_ref().unwrap_or(&usual);
        let is_local = Ensemble::new(members, TrustSource::Loopback).is_on_loopback();
        if is_local && self.site_key_file.is_none() && !usual.exists() {
            return Ok(TrustSource::Loopback);
        }
        site_key::at(file, own, members)
    }
}

#[cfg(test)]
mod tests {
    use super::super::{Config, Loaded, Overrides, zoo_cfg};
    use super::*;

    /// A data directory with the files that an operator prepares.
    struct Data(PathBuf);

    impl Data {
        fn new(name: &str, files: &[(&str, &str)]) -> Self {
            let data = std::env::temp_dir().join(format!("zoolet-zoo-{name}-{}", std::process::id()));
            fs::create_dir_all(&data).unwrap();
            files.iter().for_each(|(name, text)| fs::write(data.join(name), text).unwrap());
            Self(data)
        }

        fn load(&self, lines: &str, over: &Overrides) -> Result<Loaded, String> {
            let text = format!("dataDir={}\nclientPort=2181\ninitLimit=10\nsyncLimit=5\n{lines}", self.0.display());
            zoo_cfg::read(Path::new("zoo.cfg"), &text, over).map_err(|error| error.to_string())
        }

        fn config(&self, lines: &str) -> Result<Config, String> {
            self.load(lines, &Overrides::default()).map(|loaded| loaded.config)
        }
    }

    impl Drop for Data {
        fn drop(&mut self) {
            let _ = fs::remove_dir_all(&self.0);
        }
    }

    const THREE: &str =
        "server.1=gw-a:2888:3888;2181\nserver.2=gw-b:2888:3888;2181\nserver.3=gw-c:2888:3888:observer;2181\n";
    const LOCAL: &str = "server.1=127.0.0.1:2888:3888\nserver.2=127.0.0.1:2889:3889\nserver.3=127.0.0.1:2890:3890\n";

    #[test]
    fn zookeepers_ensemble_file_works_unchanged() {
        let data = Data::new("ensemble", &[("myid", "2\n"), ("site.key", "")]);
        let config = data.config(THREE).unwrap();
        let ensemble = config.ensemble.unwrap();
        assert_eq!((config.server_id, ensemble.voters(), ensemble.members.len()), (2, 2, 3));
        assert_eq!(ensemble.members[2].addresses, ["gw-c:2888"]);
        assert_eq!(ensemble.members[0].client.as_deref(), Some("gw-a:2181"));
        assert_eq!(ensemble.trust, TrustSource::SiteKeyFile(data.0.join("site.key")));
        assert_eq!(ensemble.listen_address(2).to_string(), "0.0.0.0:2888");
        let local = data.config(&format!("zoolet.siteKeyFile={}\n{LOCAL}", data.0.join("site.key").display())).unwrap();
        assert!(matches!(local.ensemble.unwrap().trust, TrustSource::SiteKeyFile(_)));
    }

    #[test]
    fn missing_site_key_off_loopback_is_refused_with_the_commands() {
        let data = Data::new("trust", &[("myid", "1")]);
        assert_eq!(data.config(LOCAL).unwrap().ensemble.unwrap().trust, TrustSource::Loopback);
        let error = data.config(THREE).unwrap_err();
        let key = data.0.join("site.key").display().to_string();
        let commands: Vec<_> = error.lines().skip(1).map(str::to_owned).collect();
        let copy = format!("  for host in gw-b gw-c; do scp -p {key} $host:{key}; done");
        assert_eq!(commands, [format!("  zoolet keygen --out {key}"), copy], "{error}");
    }

    #[test]
    fn own_server_id_comes_from_myid_or_the_command_line() {
        let data = Data::new("myid", &[]);
        let missing = data.config(LOCAL).unwrap_err();
        assert!(missing.contains("myid is missing: it holds the id of this server, one of 1, 2, 3"), "{missing}");
        let of_flag = Overrides { server_id: Some(3), ..Overrides::default() };
        assert_eq!(data.load(LOCAL, &of_flag).unwrap().config.server_id, 3);
        for (myid, expected) in [("4", "allowed is one of 1, 2, 3"), ("one", "myid = one: allowed is one of 1, 2, 3")] {
            fs::write(data.0.join("myid"), myid).unwrap();
            let error = data.config(LOCAL).unwrap_err();
            assert!(error.contains(expected), "{error}");
        }
        for text in [" 2 \n", "\u{feff}2\r\n"] {
            fs::write(data.0.join("myid"), text).unwrap();
            assert_eq!(data.config(LOCAL).unwrap().server_id, 2);
        }
        // UTF-16, which some machines write as text. The error must not say that the file is
        // missing.
        fs::write(data.0.join("myid"), [0xff, 0xfe, b'2', 0]).unwrap();
        let unreadable = data.config(LOCAL).unwrap_err();
        assert!(unreadable.contains("myid: ") && unreadable.contains("UTF-8"), "{unreadable}");
        fs::write(data.0.join("myid"), "2").unwrap();
        assert!(data.load(LOCAL, &of_flag).unwrap_err().contains("myid = 2: allowed is 3, as --id says"));
        // The data directory of the command line wins.
        let elsewhere = Data::new("myid-elsewhere", &[("myid", "1")]);
        let over = Overrides { data: Some(elsewhere.0.clone()), ..Overrides::default() };
        let config = data.load(LOCAL, &over).unwrap().config;
        assert_eq!((config.server_id, config.data), (1, elsewhere.0.clone()));
    }

    #[test]
    fn dynamic_config_file_replaces_the_server_lines() {
        let data = Data::new("dynamic", &[("myid", "1"), ("dynamic", LOCAL), ("wrong", "clientPort=1\n")]);
        let line = |name: &str| format!("dynamicConfigFile={}\n", data.0.join(name).display());
        assert_eq!(data.config(&line("dynamic")).unwrap().ensemble.unwrap().members.len(), 3);
        let error = data.config(&line("wrong")).unwrap_err();
        assert!(error.contains("wrong:1: clientPort: allowed are server.N lines"), "{error}");
        for both in [line("dynamic") + "server.4=d:1:2\n", "server.4=d:1:2\n".to_owned() + &line("dynamic")] {
            assert!(data.config(&both).is_err(), "{both}");
        }
        assert!(data.config(&line("absent")).unwrap_err().contains("there is no such file"));
    }

    #[test]
    fn differences_from_zookeeper_are_warned_of_or_refused() {
        let data = Data::new("said", &[("myid", "1"), ("site.key", "")]);
        let warnings = |lines: &str| data.load(lines, &Overrides::default()).unwrap().warnings;
        assert!(warnings(THREE)[0].starts_with("2 voters survive no failure"));
        let observer = warnings(&format!("peerType=observer\n{LOCAL}"));
        assert_eq!(observer[0], "peerType = observer: ignored, because server.1 says participant");
        let weighted = data.config(&format!("weight.1=3\n{LOCAL}")).unwrap_err();
        assert!(weighted.contains("weight.1: groups and weights are not built"), "{weighted}");
        let zero = data.config("server.1=a:1:2\nserver.0=b:1:2").unwrap_err();
        assert!(zero.contains("allowed ids in an ensemble are 1 to 255"), "{zero}");
    }
}
