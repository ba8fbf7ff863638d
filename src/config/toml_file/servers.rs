//! Keys of an ensemble: its servers, this server's id, and how servers authenticate each other.

use super::super::keys::{OfEnsemble, OfServer, TIMING};
use super::super::{
    Config, ConfigError, Ensemble, Overrides, Server, Timing, TrustSource, address, own_entry, site_key,
};
use super::toml_source::{Source, Value, Wrong, integer, not_built, unknown};
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use toml::de::DeValue;
use zoolet_transport::peer::trust::PublicKey;

/// Path of the site key that messages suggest if the file names none.
const USUAL_SITE_KEY: &str = "/etc/zoolet/site.key";

/// The values of these keys.
pub(super) struct Servers {
    members: Vec<Server>,
    id: Option<u8>,
    peers: Option<SocketAddr>,
    timing: Timing,
    timing_given: bool,
    site_key_file: Option<PathBuf>,
    ca_file: Option<PathBuf>,
    certificate_file: Option<PathBuf>,
    key_file: Option<PathBuf>,
}

impl Servers {
    /// Returns no servers yet, with the timing that holds unless the file overrides it.
    pub(super) fn new(timing: Timing) -> Self {
        Self {
            members: Vec::new(),
            id: None,
            peers: None,
            timing,
            timing_given: false,
            site_key_file: None,
            ca_file: None,
            certificate_file: None,
            key_file: None,
        }
    }

    /// Returns the heartbeat intervals and timeouts.
    pub(super) fn timing(&self) -> Timing {
        self.timing
    }

    /// Reads the value of one of these keys.
    pub(super) fn key<'i>(
        &mut self,
        source: Source<'i>,
        name: OfEnsemble,
        key: &str,
        value: &Value<'i>,
    ) -> Result<(), Wrong> {
        let file = || source.non_empty(key, value, name.allowed()).map(|text| Some(PathBuf::from(text)));
        match name {
            OfEnsemble::Id => self.id = Some(id(source, key, value)?),
            OfEnsemble::Peers => self.peers = Some(socket(source, key, value)?),
            OfEnsemble::Readmit => readmit(source, key, value)?,
            OfEnsemble::SiteKeyFile => self.site_key_file = file()?,
            OfEnsemble::CaFile => self.ca_file = file()?,
            OfEnsemble::CertificateFile => self.certificate_file = file()?,
            OfEnsemble::KeyFile => self.key_file = file()?,
            OfEnsemble::Timing => {
                for (name, value) in source.table(key, value)? {
                    self.timing_given = true;
                    source.number(&mut self.timing, key, TIMING, &[], name.get_ref(), value)?;
                }
            }
            OfEnsemble::Server => {
                let DeValue::Array(servers) = value.get_ref() else {
                    return Err(source.wrong(key, value, name.allowed()));
                };
                for server in servers.iter() {
                    self.members.push(member(source, server)?);
                }
            }
        }
        Ok(())
    }

    /// Completes `config` with values that depend on each other. Returns warnings.
    pub(super) fn complete(mut self, config: &mut Config, over: &Overrides) -> Result<Vec<String>, ConfigError> {
        let given = over.server_id.or(self.id);
        if self.members.len() < 2 {
            return self.alone(config, given);
        }
        if let Some(nameless) = self.members.iter().find(|member| member.id == 0) {
            let at = nameless.addresses.first().map_or("", String::as_str);
            return Err(ConfigError::new(format!(
                "server.id: is missing (host {at}); allowed is a number from 1 to 255"
            )));
        }
        let members = std::mem::take(&mut self.members);
        config.server_id = given.map_or_else(|| own_entry::find(&members, &config.data), Ok)?;
        let trust = self.trust(config.server_id, &members)?;
        let ensemble = Ensemble { listen: self.peers, timing: self.timing, ..Ensemble::new(members, trust) };
        ensemble.check(config.server_id)?;
        let warnings = ensemble.warnings();
        config.ensemble = Some(ensemble);
        Ok(warnings)
    }

    fn alone(&self, config: &mut Config, given: Option<u8>) -> Result<Vec<String>, ConfigError> {
        let own = self.members.first();
        if own.is_some_and(|own| own.is_observer) {
            return Err(ConfigError::value("server.role", "\"observer\"", "\"voter\" for a standalone server"));
        }
        let of_file = own.map(|own| own.id).filter(|&id| id != 0);
        config.server_id = given.or(of_file).unwrap_or(config.server_id);
        let unused = [
            ("peers", self.peers.is_some()),
            ("site_key_file", self.site_key_file.is_some()),
            ("ca_file, certificate_file, key_file", self.has_ca()),
            ("[timing]", self.timing_given),
        ];
        let unused = unused.into_iter().filter(|(_, given)| *given);
        Ok(unused.map(|(key, _)| format!("{key}: has no effect on a standalone server")).collect())
    }

    fn has_ca(&self) -> bool {
        self.ca_file.is_some() || self.certificate_file.is_some() || self.key_file.is_some()
    }

    fn trust(&mut self, own: u8, members: &[Server]) -> Result<TrustSource, ConfigError> {
        match (self.site_key_file.take(), self.has_ca()) {
            (Some(_), true) => Err(ConfigError::new("site_key_file and ca_file: give only one of the two")),
            (Some(file), false) => site_key::at(&file, own, members),
            (None, true) => self.ca(),
            (None, false) if members.iter().all(|member| member.key.is_some()) => Ok(TrustSource::Pinned),
            (None, false) if Ensemble::new(members, TrustSource::Loopback).is_on_loopback() => {
                Ok(TrustSource::Loopback)
            }
            (None, false) => Err(no_trust(own, members)),
        }
    }

    fn ca(&mut self) -> Result<TrustSource, ConfigError> {
        match (self.ca_file.take(), self.certificate_file.take(), self.key_file.take()) {
            (Some(ca_file), Some(certificate_file), Some(key_file)) => {
                Ok(TrustSource::Ca { ca_file, certificate_file, key_file })
            }
            _ => Err(ConfigError::new("ca_file, certificate_file, key_file: give all three or none")),
        }
    }
}

/// Returns the error about a file that names no way to authenticate servers.
fn no_trust(own: u8, members: &[Server]) -> ConfigError {
    let file = Path::new(USUAL_SITE_KEY);
    if file.exists() {
        return ConfigError::new(format!("site_key_file: is missing; name the existing {USUAL_SITE_KEY} in this file"));
    }
    let lines = site_key::missing(file, own, members);
    ConfigError::new(format!("site_key_file: is missing: name \"{USUAL_SITE_KEY}\" in this file; {lines}"))
}

fn id<'i>(source: Source<'i>, key: &str, value: &Value<'i>) -> Result<u8, Wrong> {
    let id = integer(value).and_then(|id| u8::try_from(id).ok()).filter(|&id| id > 0);
    id.ok_or_else(|| source.wrong(key, value, OfEnsemble::Id.allowed()))
}

fn socket<'i>(source: Source<'i>, key: &str, value: &Value<'i>) -> Result<SocketAddr, Wrong> {
    let allowed = OfEnsemble::Peers.allowed();
    source.string(key, value, allowed)?.parse().map_err(|_| source.wrong(key, value, allowed))
}

fn readmit<'i>(source: Source<'i>, key: &str, value: &Value<'i>) -> Result<(), Wrong> {
    let allowed = OfEnsemble::Readmit.allowed();
    match source.string(key, value, allowed)? {
        "auto" => Ok(()),
        "ask" => Err(not_built("readmit = \"ask\"", value)),
        _ => Err(source.wrong(key, value, allowed)),
    }
}

fn member<'i>(source: Source<'i>, server: &Value<'i>) -> Result<Server, Wrong> {
    let mut member = Server { addresses: Vec::new(), ..Server::new(0, "") };
    for (name, value) in source.table("[server]", server)? {
        let name = name.get_ref().as_ref();
        let key = format!("server.{name}");
        let Some(name) = OfServer::named(name) else { return Err(unknown(&key, value, OfServer::NAMES)) };
        match name {
            OfServer::Id => member.id = id(source, &key, value)?,
            OfServer::Host => member.addresses = hosts(source, &key, value)?,
            OfServer::Role => member.is_observer = is_observer(source, &key, value)?,
            OfServer::Key => member.key = Some(public_key(source, &key, value)?),
            OfServer::Client => member.client = Some(client(source, &key, value)?),
        }
    }
    Ok(member)
}

fn hosts<'i>(source: Source<'i>, key: &str, value: &Value<'i>) -> Result<Vec<String>, Wrong> {
    let allowed = OfServer::Host.allowed();
    let one = |value: &Value<'i>| {
        let text = source.string(key, value, allowed)?;
        address::with_port(text).ok_or_else(|| source.wrong(key, value, allowed))
    };
    match value.get_ref() {
        DeValue::Array(several) if several.is_empty() => Err(source.wrong(key, value, allowed)),
        DeValue::Array(several) => several.iter().map(one).collect(),
        _ => Ok(vec![one(value)?]),
    }
}

fn is_observer<'i>(source: Source<'i>, key: &str, value: &Value<'i>) -> Result<bool, Wrong> {
    let allowed = OfServer::Role.allowed();
    match source.string(key, value, allowed)? {
        "voter" => Ok(false),
        "observer" => Ok(true),
        _ => Err(source.wrong(key, value, allowed)),
    }
}

fn public_key<'i>(source: Source<'i>, key: &str, value: &Value<'i>) -> Result<String, Wrong> {
    let text = source.string(key, value, OfServer::Key.allowed())?;
    match text.parse::<PublicKey>() {
        Ok(_) => Ok(text.to_owned()),
        Err(error) => Err((value.span().start, ConfigError::new(format!("{key} = {}: {error}", source.shown(value))))),
    }
}

fn client<'i>(source: Source<'i>, key: &str, value: &Value<'i>) -> Result<String, Wrong> {
    let allowed = OfServer::Client.allowed();
    let text = source.string(key, value, allowed)?;
    address::split(text).map(|_| text.to_owned()).ok_or_else(|| source.wrong(key, value, allowed))
}

#[cfg(test)]
mod tests {
    use super::super::read;
    use super::*;

    const THREE: &str = "[[server]]\nid = 1\nhost = [\"gw-a.invalid\", \"203.0.113.1:2889\"]\n\
                         [[server]]\nid = 2\nhost = \"gw-b.invalid\"\nclient = \"gw-b.invalid:2181\"\n\
                         [[server]]\nid = 7\nhost = \"gw-c.invalid\"\nrole = \"observer\"\n";
    const LOCAL: &str = "[[server]]\nid = 1\nhost = \"127.0.0.1:1\"\n[[server]]\nid = 2\nhost = \"localhost:2\"\n\
                         [[server]]\nid = 3\nhost = \"[::1]:3\"\n";

    fn parse(text: &str, own: Option<u8>) -> Result<Config, String> {
        let over = Overrides { server_id: own, ..Overrides::default() };
        let loaded = read(Path::new("zoolet.toml"), text, &over);
        loaded.map(|loaded| loaded.config).map_err(|error| error.to_string())
    }

    #[test]
    fn one_config_file_serves_every_server_given_its_id() {
        let file = std::env::temp_dir().join(format!("zoolet-site-key-{}", std::process::id()));
        std::fs::write(&file, "").unwrap();
        let text = format!(
            "site_key_file = {file:?}\npeers = \"0.0.0.0:7\"\nreadmit = \"auto\"\n[timing]\nheartbeat_idle_ms = 200\n{THREE}"
        );
        let config = parse(&text, Some(2)).unwrap();
        let ensemble = config.ensemble.unwrap();
        assert_eq!(config.server_id, 2);
        assert_eq!(ensemble.members[0].addresses, ["gw-a.invalid:2888", "203.0.113.1:2889"]);
        assert_eq!(ensemble.members[1].client.as_deref(), Some("gw-b.invalid:2181"));
        assert_eq!((ensemble.members[2].id, ensemble.members[2].is_observer), (7, true));
        assert_eq!(ensemble.trust, TrustSource::SiteKeyFile(file.clone()));
        assert_eq!(ensemble.listen_address(2).to_string(), "0.0.0.0:7");
        assert_eq!(ensemble.timing.heartbeat_idle_ms, 200);
        // The command line overrides the file.
        assert_eq!(parse(&format!("id = 1\n{text}"), None).unwrap().server_id, 1);
        assert_eq!(parse(&format!("id = 1\n{text}"), Some(7)).unwrap().server_id, 7);
        assert!(
            parse(&text, Some(3)).unwrap_err().contains("no server has the id 3 of this server; the ids are 1, 2, 7")
        );
        assert!(parse(&text, None).unwrap_err().contains("give --id N, one of 1, 2, 7"));
        std::fs::remove_file(file).unwrap();
    }

    #[test]
    fn timing_that_breaks_the_order_of_timeouts_is_refused() {
        for (said, expected) in [
            (
                "[timing]\nquorum_ms = 3500",
                "timing.quorum_ms = 3500: allowed is at most 3000 (settings.staleness_max_ms: a server would refuse clients",
            ),
            (
                "[settings]\nstaleness_max_ms = 1000",
                "settings.staleness_max_ms = 1000: allowed is at least 1400 (timing.heartbeat_idle_ms is 350: one lost heartbeat",
            ),
            (
                "[settings]\nsession_timeout_min_ms = 1000",
                "settings.session_timeout_min_ms = 1000: allowed is at least 2000 (timing.quorum_ms is 2000: a session must outlive",
            ),
        ] {
            let error = parse(&format!("{said}\n{LOCAL}"), Some(1)).unwrap_err();
            assert!(error.starts_with("zoolet.toml: ") && error.contains(expected), "{said} gave {error}");
        }
        // A standalone server waits for no quorum.
        assert!(parse("[settings]\nsession_timeout_min_ms = 1000\nstaleness_max_ms = 1000", None).is_ok());
    }

    #[test]
    fn missing_site_key_is_refused_with_the_commands_to_make_it() {
        let error = parse(THREE, Some(1)).unwrap_err();
        assert!(error.starts_with("zoolet.toml: site_key_file: is missing"), "{error}");
        let commands: Vec<_> = error.lines().skip(1).collect();
        let copy =
            "  for host in gw-b.invalid gw-c.invalid; do scp -p /etc/zoolet/site.key $host:/etc/zoolet/site.key; done";
        assert_eq!(commands, ["  zoolet keygen --out /etc/zoolet/site.key", copy]);
        let error = parse(&format!("site_key_file = \"/nowhere/k\"\n{THREE}"), Some(1)).unwrap_err();
        assert!(
            error.contains("the site key /nowhere/k does not exist") && error.contains("keygen --out /nowhere/k"),
            "{error}"
        );
    }

    #[test]
    fn loopback_pins_and_authorities_need_no_site_key() {
        let trust = |text: &str| parse(text, Some(1)).unwrap().ensemble.unwrap().trust;
        assert_eq!(trust(LOCAL), TrustSource::Loopback);
        let pin = |text: String, id: u8| {
            let key = PublicKey([id; 32]);
            text.replace(&format!("id = {id}\n"), &format!("id = {id}\nkey = \"{key}\"\n"))
        };
        let pinned = [1, 2, 7].into_iter().fold(THREE.to_owned(), pin);
        assert_eq!(trust(&pinned), TrustSource::Pinned);
        let ca = format!("ca_file = \"c\"\ncertificate_file = \"d\"\nkey_file = \"e\"\n{THREE}");
        assert!(matches!(trust(&ca), TrustSource::Ca { .. }));
        let half = parse(&format!("ca_file = \"c\"\n{THREE}"), Some(1)).unwrap_err();
        assert!(half.contains("give all three or none"), "{half}");
        let both = parse(&format!("site_key_file = \"k\"\n{ca}"), Some(1)).unwrap_err();
        assert!(both.contains("site_key_file and ca_file: give only one of the two"), "{both}");
    }

    #[test]
    fn missing_or_duplicate_client_addresses_are_warned_of() {
        let warnings = |text: &str| {
            let over = Overrides { server_id: Some(1), ..Overrides::default() };
            read(Path::new("zoolet.toml"), text, &over).unwrap().warnings
        };
        let with = |text: &str, id: u8| {
            text.replace(&format!("id = {id}\n"), &format!("id = {id}\nclient = \"127.0.0.1:{id}\"\n"))
        };
        let one = with(LOCAL, 2);
        let expected =
            "the client address of servers 1, 3 is missing, so conf shows none; give it for all servers or for none";
        assert_eq!(warnings(&one), [expected]);
        let all = with(&with(&one, 1), 3);
        assert_eq!((warnings(LOCAL), warnings(&all)), (vec![], vec![]));
        let same = all.replace("127.0.0.1:3\"", "127.0.0.1:2\"");
        let expected =
            "servers 2 and 3 have the same client address, 127.0.0.1:2: clients reach only one of them there";
        assert_eq!(warnings(&same), [expected]);
    }

    #[test]
    fn ensemble_server_without_an_id_is_refused() {
        let error = parse("[[server]]\nhost = \"a\"\n[[server]]\nid = 2\nhost = \"b\"", Some(2)).unwrap_err();
        assert!(error.contains("server.id: is missing (host a:2888)"), "{error}");
    }

    #[test]
    fn single_server_table_configures_a_standalone_server() {
        let alone = read(
            Path::new("x.toml"),
            "site_key_file = \"k\"\n[[server]]\nid = 3\nhost = \"gw-a\"",
            &Overrides::default(),
        );
        let alone = alone.unwrap();
        assert_eq!((alone.config.server_id, alone.config.ensemble), (3, None));
        assert_eq!(alone.warnings, ["site_key_file: has no effect on a standalone server"]);
    }
}
