//! Mistakes between servers.

use super::Scenario;
use super::files::keygen;
use super::table::{Case, Serve, text};
use crate::support::{Client, eventually, hello};
use std::fs;
use std::net::UdpSocket;
use std::path::Path;
use zoolet_model::SessionId;

pub(crate) const SCENARIOS: &[Scenario] = &[
    ("a firewall between the servers", |case| {
        let site = Site::new(case);
        // No process reads from this socket, as behind a firewall that drops packets.
        let _dropped = UdpSocket::bind((case.host, site.ports[1])).unwrap();
        let first = site.start(1);
        case.is_shown(&[("PORT", &site.ports[1].to_string())], first.client);
    }),
    ("an old copy of a data directory put back into a member", an_old_copy),
    ("the data directory of another member", |case| {
        let site = Site::new(case);
        let servers = [1, 2, 3].map(|id| site.start(id));
        site.serves(&servers.each_ref());
        drop(servers);
        let arguments = ["serve", "--config", "2.toml", "--id", "2", "--data", "3"];
        case.is_refused(&[("DIR", text(&case.scratch.join("3")))], &arguments);
    }),
    ("two machines that run as one server (a cloned card)", |case| {
        let site = Site::new(case);
        let (first, _second) = (site.start(1), site.start(2));
        eventually("the two have met", || site.shows(&first, "server 2 ", " ms"));
        // The clone listens on another port, as its configuration file says.
        let moved = Site { ports: [site.ports[0], case.free_port(), site.ports[2]], ..site };
        let _clone = moved.start_as("clone", 2, "");
        let refused = logged_address(&first, " (server 2) is refused");
        case.is_logged(&[("PORT", &refused), ("FIRST", &site.ports[1].to_string())], &first);
    }),
    ("two boxes that were given one id", |case| {
        let site = Site::new(case);
        let _first = site.start(1);
        let [one, two, three] = site.ports;
        // The second box has the address of server 2.
        let second = Site { ports: [two, one, three], ..site }.start_as("second", 1, "");
        case.is_logged(&[("PORT", &one.to_string())], &second);
    }),
    ("a server that is not in the files of the others", |case| {
        let site = Site::new(case);
        let _others = [site.start_with(1, 2, ""), site.start_with(2, 2, "")];
        let third = site.start(3);
        let refuses = logged_address(&third, " does not have this server");
        assert!(site.ports[..2].iter().any(|port| port.to_string() == refuses), "{refuses}");
        case.is_logged(&[("PORT", &refuses)], &third);
    }),
    ("site keys that differ", |case| {
        let site = Site::new(case);
        let other = Site { key: "other.key", ..site };
        keygen(case, other.key);
        let (first, _second) = (site.start(1), other.start(2));
        differs(case, &first, " has another site key");
    }),
    ("names of the site that differ", |case| {
        let site = Site::new(case);
        let first = site.start_with(1, 3, "site = \"plant-7\"");
        let _second = site.start_with(2, 3, "site = \"plant-8\"");
        differs(case, &first, " (server 2) belongs to another ensemble");
    }),
    ("one of three is started", |case| {
        let first = Site::new(case).start(1);
        case.is_shown(&[], first.client);
    }),
];

/// Three servers on loopback that share a site key.
struct Site<'c> {
    case: &'c Case<'c>,
    ports: [u16; 3],
    key: &'static str,
}

impl<'c> Site<'c> {
    fn new(case: &'c Case<'_>) -> Self {
        let key = "site.key";
        keygen(case, key);
        Self { case, ports: [(); 3].map(|()| case.free_port()), key }
    }

    fn start(&self, id: u8) -> Serve {
        self.start_with(id, 3, "")
    }

    /// Starts a server with `count` servers in its file, after these `lines`.
    fn start_with(&self, id: u8, count: usize, lines: &str) -> Serve {
        self.write(&id.to_string(), count, lines);
        self.serve(&id.to_string(), id)
    }

    /// Starts server `id` in another directory.
    fn start_as(&self, name: &str, id: u8, lines: &str) -> Serve {
        self.write(name, 3, lines);
        self.serve(name, id)
    }

    fn write(&self, name: &str, count: usize, lines: &str) {
        let server = |(id, port): (u8, &u16)| format!("[[server]]\nid = {id}\nhost = \"{}\"\n", self.case.at(*port));
        let servers: String = (1..).zip(&self.ports[..count]).map(server).collect();
        let key = self.case.scratch.join(self.key);
        self.case.write(&format!("{name}.toml"), &format!("site_key_file = {key:?}\n{lines}\n{servers}"));
    }

    fn serve(&self, name: &str, id: u8) -> Serve {
        let arguments = ["--config", &format!("{name}.toml"), "--id", &id.to_string(), "--data", name];
        self.case.serve(name, &arguments)
    }

    fn serves(&self, servers: &[&Serve]) {
        eventually("a leader, and who follows it", || {
            servers.iter().all(|server| self.shows(server, "", ", leader; ") || self.shows(server, "", ", follower of"))
        });
    }

    /// Returns whether `zoolet status` prints a line that begins with `begins` and contains `has`.
    fn shows(&self, server: &Serve, begins: &str, has: &str) -> bool {
        let output = self.case.zoolet(&["status", "--server", &server.client.to_string()]).output().unwrap();
        let text = String::from_utf8_lossy(&output.stdout).into_owned();
        text.lines().map(str::trim).any(|line| line.starts_with(begins) && line.contains(has))
    }
}

/// Servers 1 and 3 commit entries that server 2 lacks. Then server 3 returns to an old copy, and
/// forms a majority with server 2.
fn an_old_copy(case: &Case<'_>) {
    let site = Site::new(case);
    let [own, copy] = [3.to_string(), "copy".to_owned()].map(|name| case.scratch.join(&name));
    let (first, second, third) = (site.start(1), site.start(2), site.start(3));
    site.serves(&[&first, &second, &third]);
    drop(third);
    copy_all(&own, &copy);
    let third = site.start(3);
    site.serves(&[&third]);
    drop(second);
    site.serves(&[&first, &third]);
    for number in 0..10 {
        create(&first, &format!("/n-{number}"));
    }
    drop((first, third));
    fs::remove_dir_all(&own).unwrap();
    fs::rename(&copy, &own).unwrap();
    let others = [site.start(2), site.start(3)];
    site.serves(&[&others[0], &others[1]]);
    let _first = site.start(1);
    let leader = others.iter().find(|server| site.shows(server, "", ", leader; ")).unwrap();
    case.is_shown(&[("N", "1")], leader.client);
}

fn copy_all(from: &Path, to: &Path) {
    fs::create_dir(to).unwrap();
    for file in fs::read_dir(from).unwrap().map(|file| file.unwrap()) {
        fs::copy(file.path(), to.join(file.file_name())).unwrap();
    }
}

/// Writes with retries, because the leader may change.
fn create(server: &Serve, path: &str) {
    let hello = hello(SessionId(0), None, 10_000);
    eventually("a client writes", || {
        Client::connect_with(server.client, &hello).is_some_and(|mut client| client.create(path, b"x").is_ok())
    });
}

/// Returns the port of the address before `what` in the log of a server.
fn logged_address(server: &Serve, what: &str) -> String {
    let mut port = None;
    eventually(what, || {
        port = server.log().lines().find_map(|line| {
            let (before, _) = line.split_once(what)?;
            Some(before.rsplit(':').next()?.to_owned())
        });
        port.is_some()
    });
    port.unwrap()
}

/// Checks a log line about a peer. The peer dials from its link port or from another one.
fn differs(case: &Case<'_>, server: &Serve, what: &str) {
    case.is_logged(&[("PORT", &logged_address(server, what))], server);
}
