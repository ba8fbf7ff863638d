//! The servers of an ensemble with their ports and directories.
//!
//! All of it stands in one `zoolet.toml`, which the first start writes.

use crate::cli::Exit;
use std::fmt::Write;
use std::fs;
use std::io;
use std::net::{TcpListener, UdpSocket};
use std::path::{Path, PathBuf};
use zoolet::config::{self, DEFAULT_PEER_PORT, DEFAULT_PORT, Overrides};

/// Offset from client ports to link ports, so ZooKeeper's 2181 leads to ZooKeeper's 2888.
const LINK_OFFSET: u16 = DEFAULT_PEER_PORT - DEFAULT_PORT;
const SERVERS_MAX: u16 = 16;

/// Largest base port with which every link port is valid.
pub(in crate::cli) const BASE_PORT_MAX: u16 = u16::MAX - LINK_OFFSET - SERVERS_MAX;

const VOTERS: u16 = 3;

/// The options of the command line; `None` where the existing ensemble or the default decides.
pub(in crate::cli) struct Options {
    pub(in crate::cli) voters: Option<u16>,
    pub(in crate::cli) observers: Option<u16>,
    pub(in crate::cli) base_port: Option<u16>,
    pub(in crate::cli) data: PathBuf,
}

impl Default for Options {
    fn default() -> Self {
        Self { voters: None, observers: None, base_port: None, data: "zoolet-ensemble".into() }
    }
}

/// The servers of an ensemble on this machine.
#[derive(Debug)]
pub(super) struct Plan {
    /// The `zoolet.toml` that all servers share.
    pub(super) file: PathBuf,
    pub(super) servers: Vec<Planned>,
}

/// One of the servers.
#[derive(Debug)]
pub(super) struct Planned {
    pub(super) id: u8,
    pub(super) is_observer: bool,
    /// Address for clients, `host:port` (TCP).
    pub(super) client: String,
    /// Address for links from other servers, `host:port` (UDP).
    pub(super) link: String,
    pub(super) data: PathBuf,
    pub(super) log: PathBuf,
}

impl Plan {
    /// Returns the ensemble that the directory holds, or creates its file from the options.
    ///
    /// # Errors
    /// The directory holds a different ensemble, or cannot be used.
    pub(super) fn make(options: &Options) -> Result<Self, Exit> {
        let file = options.data.join("zoolet.toml");
        let cannot = |error: io::Error| Exit::failed(format!("{}: {error}", file.display()));
        if !file.try_exists().map_err(cannot)? {
            let text = text(options)?;
            fs::create_dir_all(&options.data).and_then(|()| fs::write(&file, text)).map_err(cannot)?;
        }
        let plan = Self::read(&file, &options.data)?;
        plan.agree(options)?;
        Ok(plan)
    }

    fn read(file: &Path, data: &Path) -> Result<Self, Exit> {
        // Load the file as any server: only the list of members is used.
        let over = Overrides { server_id: Some(1), ..Overrides::default() };
        let ensemble = config::load(file, &over).map_err(Exit::usage)?.config.ensemble;
        let no_plan = |what: &str| Exit::usage(format!("{}: {what}", file.display()));
        let ensemble = ensemble.ok_or_else(|| no_plan("names no ensemble; give another --data"))?;
        let planned = |member: config::Server| {
            let (client, link) = (member.client, member.addresses.first().cloned());
            let (Some(client), Some(link)) = (client, link) else {
                return Err(no_plan(&format!("server {} has no client = \"host:port\"", member.id)));
            };
            let id = member.id;
            let (data, log) = (data.join(id.to_string()), data.join(format!("{id}.log")));
            Ok(Planned { id, is_observer: member.is_observer, client, link, data, log })
        };
        let servers = ensemble.members.into_iter().map(planned).collect::<Result<Vec<_>, _>>()?;
        Ok(Self { file: file.to_owned(), servers })
    }

    /// Refuses options that contradict the file: an ensemble's members are decided at its birth.
    fn agree(&self, options: &Options) -> Result<(), Exit> {
        let count = |is_observer: bool| {
            let counted = self.servers.iter().filter(|server| server.is_observer == is_observer).count();
            u16::try_from(counted).unwrap_or(u16::MAX)
        };
        let port = self.servers.first().and_then(|server| server.client.rsplit_once(':')?.1.parse::<u16>().ok());
        for (flag, given, has) in [
            ("--servers", options.voters, Some(count(false))),
            ("--observers", options.observers, Some(count(true))),
            ("--base-port", options.base_port, port),
        ] {
            if given.is_some() && given != has {
                let has = has.map_or("another".to_owned(), |has| has.to_string());
                return Err(Exit::usage(format!(
                    "{flag} = {}: {} holds an ensemble with {has}; omit the option, or give another --data",
                    given.unwrap_or_default(),
                    options.data.display()
                )));
            }
        }
        Ok(())
    }

    /// Checks that no port is in use.
    ///
    /// Otherwise only a server's log would show it.
    ///
    /// # Errors
    /// Names a port that is in use.
    pub(super) fn check_ports(&self) -> Result<(), Exit> {
        for server in &self.servers {
            let client = TcpListener::bind(&server.client).map(drop).map_err(|error| (&server.client, "TCP", error));
            let link = UdpSocket::bind(&server.link).map(drop).map_err(|error| (&server.link, "UDP", error));
            client.and(link).map_err(|(address, protocol, error)| {
                Exit::failed(format!(
                    "{address} ({protocol}) of server {}: {error}; stop the process that uses it, or give another --base-port and another --data",
                    server.id
                ))
            })?;
        }
        Ok(())
    }

    /// Deletes the file if no server ever started with it.
    ///
    /// A retry may then name other ports. If the file cannot be deleted, the next attempt reports
    /// the conflict.
    pub(super) fn forget_unused(&self) {
        if !self.servers.iter().any(|server| server.data.exists()) {
            let _ = fs::remove_file(&self.file);
        }
    }

    /// Returns id and voting right of each server, in the order of [`Plan::clients`].
    pub(super) fn voting(&self) -> Vec<(u8, bool)> {
        self.servers.iter().map(|server| (server.id, !server.is_observer)).collect()
    }

    /// Returns the client address of each server.
    pub(super) fn clients(&self) -> Vec<String> {
        self.servers.iter().map(|server| server.client.clone()).collect()
    }

    /// Returns the paths of the logs, for people.
    pub(super) fn logs(&self) -> String {
        self.servers.iter().map(|server| server.log.display().to_string()).collect::<Vec<_>>().join(", ")
    }
}

/// Returns the text of the file for a new ensemble.
fn text(options: &Options) -> Result<String, Exit> {
    let (voters, observers) = (options.voters.unwrap_or(VOTERS), options.observers.unwrap_or(0));
    let count = voters + observers;
    if !(2..=SERVERS_MAX).contains(&count) {
        return Err(Exit::usage(format!(
            "--servers and --observers = {count}: allowed are 2 to {SERVERS_MAX} in all; for a standalone server use zoolet serve"
        )));
    }
    let base = options.base_port.unwrap_or(DEFAULT_PORT);
    let mut text = "# Created by `zoolet ensemble`. To start one of its servers by hand, run here:\n\
                    # zoolet serve --config zoolet.toml --id 1 --data 1 --listen ITS_CLIENT_ADDRESS\n\
                    four_letter_words = [\"*\"]\n"
        .to_owned();
    for place in 0..count {
        let (client, link) = (base + place, base + LINK_OFFSET + place);
        // Writing to a String cannot fail.
        let _ = writeln!(
            text,
            "\n[[server]]\nid = {}\nhost = \"127.0.0.1:{link}\"\nclient = \"127.0.0.1:{client}\"",
            place + 1
        );
        if place >= voters {
            text += "role = \"observer\"\n";
        }
    }
    Ok(text)
}

#[cfg(test)]
mod tests {
    use super::*;

    struct Dir(PathBuf);

    impl Dir {
        fn new(name: &str) -> Self {
            let dir = std::env::temp_dir().join(format!("zoolet-plan-{name}-{}", std::process::id()));
            let _ = fs::remove_dir_all(&dir);
            Self(dir)
        }

        fn make(&self, voters: Option<u16>, observers: Option<u16>, base_port: Option<u16>) -> Result<Plan, String> {
            Plan::make(&Options { voters, observers, base_port, data: self.0.clone() }).map_err(|exit| exit.line)
        }
    }

    impl Drop for Dir {
        fn drop(&mut self) {
            let _ = fs::remove_dir_all(&self.0);
        }
    }

    #[test]
    fn ensemble_ports_follow_zookeeper_and_are_kept_for_later_starts() {
        let dir = Dir::new("ports");
        let plan = dir.make(None, Some(1), None).unwrap();
        assert_eq!(plan.clients(), ["127.0.0.1:2181", "127.0.0.1:2182", "127.0.0.1:2183", "127.0.0.1:2184"]);
        let links: Vec<_> = plan.servers.iter().map(|server| server.link.as_str()).collect();
        assert_eq!(links, ["127.0.0.1:2888", "127.0.0.1:2889", "127.0.0.1:2890", "127.0.0.1:2891"]);
        assert_eq!(
            plan.servers.iter().filter(|server| server.is_observer).map(|server| server.id).collect::<Vec<_>>(),
            [4]
        );
        assert_eq!(plan.servers[2].data, dir.0.join("3"));
        // Another start without options finds the same ensemble.
        let again = dir.make(None, None, None).unwrap();
        assert_eq!(again.clients(), plan.clients());
    }

    #[test]
    fn unused_ensemble_plan_does_not_constrain_the_next_start() {
        let dir = Dir::new("unused");
        let plan = dir.make(Some(3), None, Some(4000)).unwrap();
        plan.forget_unused();
        let other = dir.make(Some(3), None, Some(5000)).unwrap();
        fs::create_dir_all(&other.servers[0].data).unwrap();
        other.forget_unused();
        assert!(dir.make(Some(3), None, Some(4000)).is_err());
    }

    #[test]
    fn different_size_or_port_for_an_existing_ensemble_is_refused() {
        let dir = Dir::new("number");
        dir.make(Some(3), None, Some(4000)).unwrap();
        assert!(dir.make(Some(3), Some(0), Some(4000)).is_ok());
        for (voters, observers, port, expected) in [
            (Some(5), None, None, "--servers = 5: "),
            (None, Some(1), None, "--observers = 1: "),
            (None, None, Some(4001), "--base-port = 4001: "),
        ] {
            let refused = dir.make(voters, observers, port).unwrap_err();
            assert!(refused.starts_with(expected) && refused.contains("give another --data"), "{refused}");
        }
    }

    #[test]
    fn one_server_is_refused_and_the_largest_base_port_is_valid() {
        let dir = Dir::new("edges");
        assert!(dir.make(Some(1), None, None).unwrap_err().contains("for a standalone server use zoolet serve"));
        assert!(dir.make(Some(16), Some(1), None).unwrap_err().contains("allowed are 2 to 16"));
        assert!(!dir.0.exists());
        dir.make(Some(16), None, Some(BASE_PORT_MAX)).unwrap();
    }

    #[test]
    fn port_in_use_is_refused_and_names_its_server() {
        let mut others = Vec::new();
        for number in 0..20 {
            let dir = Dir::new(&format!("in-use-{number}"));
            let taken = UdpSocket::bind("127.0.0.1:0").unwrap();
            let Some(base) = taken.local_addr().unwrap().port().checked_sub(LINK_OFFSET) else { continue };
            let plan = dir.make(Some(2), None, Some(base)).unwrap();
            let Err(refused) = plan.check_ports() else { panic!("nobody noticed") };
            if refused.line.contains("(UDP) of server 1") {
                return;
            }
            // Another process uses the matching client port.
            others.push(refused.line);
        }
        panic!("{others:#?}");
    }
}
