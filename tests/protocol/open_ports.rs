//! The sockets that a running server opens to other machines.
//!
//! Without a secret it opens nothing but a plain client port that the configuration file names. A
//! port for other servers needs a means to authenticate them.

#![allow(clippy::unwrap_used, reason = "a test stops at the first surprise")]

use crate::support::certificates::certificates;
use crate::support::ensemble::Ensemble;
use crate::support::sockets::{self, Open};
use crate::support::*;
use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Child, Command, Stdio};

/// A process that ends with the test.
struct Process(Child);

impl Drop for Process {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Returns the sockets of a server that has printed its first line, and that line.
fn opened(command: &mut Command) -> (Vec<Open>, String) {
    let mut process = Process(command.stdout(Stdio::piped()).stderr(Stdio::null()).spawn().unwrap());
    let mut line = String::new();
    BufReader::new(process.0.stdout.take().unwrap()).read_line(&mut line).unwrap();
    (if line.is_empty() { Vec::new() } else { sockets::open(process.0.id()) }, line)
}

/// Returns protocol and port of the sockets that other machines can reach.
fn to_others(open: &[Open]) -> Vec<(&'static str, u16)> {
    open.iter().filter(|open| open.is_off_loopback()).map(|open| (open.protocol, open.address.port())).collect()
}

/// `serve` with a configuration of this name and text. Its data directory `data` may contain files.
fn serve(scratch: &Scratch, name: &str, text: &str) -> Command {
    std::fs::write(scratch.join(name), text).unwrap();
    let mut command = zoolet(&["serve", "--config", name]);
    command.current_dir(scratch.path());
    command
}

fn data_with(scratch: &Scratch, files: &[(&str, &str)]) {
    let data = scratch.join("data");
    std::fs::create_dir_all(&data).unwrap();
    files.iter().for_each(|(name, text)| std::fs::write(data.join(name), text).unwrap());
}

fn site_key(file: &Path) {
    assert!(zoolet(&["keygen", "--out"]).arg(file).output().unwrap().status.success());
}

/// `[[server]]`s at these hosts, each with further lines.
fn servers(hosts: &[String], more: &[String]) -> String {
    let one = |(place, host): (usize, &String)| {
        let more = more.get(place).map_or("", String::as_str);
        format!("[[server]]\nid = {}\nhost = \"{host}\"\n{more}\n", place + 1)
    };
    hosts.iter().enumerate().map(one).collect()
}

fn on_loopback(ports: [u16; 3]) -> Vec<String> {
    ports.map(|port| format!("127.0.0.1:{port}")).to_vec()
}

/// Server 1 is this machine under any address. It listens everywhere, because the others are
/// elsewhere.
fn spread(port: u16) -> Vec<String> {
    vec![format!("127.0.0.1:{port}"), "gw-b.invalid".to_owned(), "gw-c.invalid".to_owned()]
}

#[test]
fn server_without_a_configuration_listens_only_on_loopback() {
    let scratch = Scratch::new();
    let mut command = zoolet(&["serve"]);
    let (open, line) = opened(command.current_dir(scratch.path()));
    if line.is_empty() {
        // Another process has ZooKeeper's port, so the server reports the address it wanted.
        let (code, line) = refusal(&scratch, &["serve", "--log", "error"]);
        assert!(code == 1 && line.contains("clients = 127.0.0.1:2181: "), "{line}");
        return;
    }
    assert_eq!(open, [Open { protocol: "TCP", address: "127.0.0.1:2181".parse().unwrap() }]);
}

#[test]
fn standalone_server_opens_only_a_client_port_marked_plain() {
    let [client, peers] = free_ports();
    for (clients, expected) in [
        (format!("clients = \"127.0.0.1:{client}\"\n"), vec![]),
        // Settings for an ensemble open nothing for a server alone.
        (
            format!(
                "clients = \"127.0.0.1:{client}\"\npeers = \"0.0.0.0:{peers}\"\n[[server]]\nid = 1\nhost = \"gw-a\"\n"
            ),
            vec![],
        ),
        (format!("clients = \"plain://0.0.0.0:{client}\"\n"), vec![("TCP", client)]),
    ] {
        let scratch = Scratch::new();
        let (open, line) = opened(serve(&scratch, "zoolet.toml", &clients).args(["--data", "data"]));
        assert_eq!((open.len(), to_others(&open)), (1, expected), "{line}");
    }
}

#[test]
fn server_with_a_zoo_cfg_opens_only_its_client_port() {
    let [client, links @ ..]: [u16; 4] = free_ports();
    let base = format!("dataDir=data\nclientPort={client}\nadmin.serverPort=8080\nmetricsProvider.httpPort=7000\n");
    let lines = (1..).zip(links).map(|(id, port)| format!("server.{id}=127.0.0.1:{port}:{port}\n")).collect::<String>();
    for (text, count, expected) in [
        (base.clone(), 1, vec![("TCP", client)]),
        (format!("{base}server.1=gw-a:{}:{}\n", links[0], links[1]), 1, vec![("TCP", client)]),
        (format!("{base}clientPortAddress=127.0.0.1\n"), 1, vec![]),
        (format!("{base}{lines}"), 2, vec![("TCP", client)]),
        (format!("{base}{lines}clientPortAddress=127.0.0.1\n"), 2, vec![]),
    ] {
        let scratch = Scratch::new();
        data_with(&scratch, &[("myid", "1")]);
        let (open, line) = opened(&mut serve(&scratch, "zoo.cfg", &text));
        assert_eq!((open.len(), to_others(&open)), (count, expected), "{line}{text}");
    }
}

#[test]
fn servers_without_a_secret_listen_only_on_loopback() {
    let [client, links @ ..]: [u16; 4] = free_ports();
    let text = format!("clients = \"127.0.0.1:{client}\"\n{}", servers(&on_loopback(links), &[]));
    let scratch = Scratch::new();
    let (open, line) = opened(serve(&scratch, "zoolet.toml", &text).args(["--data", "data", "--id", "1"]));
    assert_eq!((open.len(), to_others(&open)), (2, vec![]), "{line}");

    let scratch = Scratch::new();
    let ensemble = Ensemble::start(&scratch);
    assert_eq!(sockets::open(ensemble.child.id()), [], "it has servers for that");
    for (process, _) in &ensemble.processes {
        let open = sockets::open(*process);
        assert_eq!((open.len(), to_others(&open)), (2, vec![]), "{open:?}");
    }
}

#[test]
fn servers_reachable_from_other_machines_need_a_secret_to_start() {
    let [client, links @ ..]: [u16; 4] = free_ports();
    let zoo = |hosts: &[String]| {
        let line = |(id, host): (usize, &String)| format!("server.{}={}:3888\n", id + 1, host);
        format!("dataDir=data\nclientPort={client}\n") + &hosts.iter().enumerate().map(line).collect::<String>()
    };
    let with_port = |hosts: Vec<String>| -> Vec<String> {
        hosts.into_iter().map(|host| if host.contains(':') { host } else { host + ":2888" }).collect()
    };
    let toml =
        |before: &str, hosts: &[String]| format!("clients = \"127.0.0.1:{client}\"\n{before}{}", servers(hosts, &[]));
    let any = format!("0.0.0.0:{}", links[0]);
    for (name, text) in [
        ("zoolet.toml", toml("", &spread(links[0]))),
        ("zoolet.toml", toml(&format!("peers = \"{any}\"\n"), &on_loopback(links))),
        ("zoo.cfg", zoo(&with_port(spread(links[0])))),
        ("zoo.cfg", zoo(&[std::slice::from_ref(&any), &on_loopback(links)[1..]].concat())),
    ] {
        let scratch = Scratch::new();
        data_with(&scratch, &[("myid", "1")]);
        let mut command = serve(&scratch, name, &text);
        // It ends without a line, so there are no sockets to read. A second run returns its error.
        let (_, line) = opened(command.args(["--data", "data", "--id", "1"]));
        assert_eq!(line, "", "{text}");
        let refused = command.stderr(Stdio::piped()).output().unwrap();
        assert_eq!(refused.status.code(), Some(2), "{refused:?}");
        assert!(String::from_utf8_lossy(&refused.stderr).contains("site key"), "{refused:?}");
    }
}

#[test]
fn servers_with_a_secret_open_a_single_link_port() {
    let [client, link] = free_ports();
    let key = "site_key_file = \"site.key\"\n";
    let pins: Vec<String> = (0..3).map(|_| pin()).collect();
    let toml = |before: &str, more: &[String]| {
        format!("clients = \"127.0.0.1:{client}\"\n{before}{}", servers(&spread(link), more))
    };
    let ca = "ca_file = \"authority.pem\"\ncertificate_file = \"server-1.pem\"\nkey_file = \"server-1.key\"\n";
    let zoo = format!(
        "dataDir=data\nclientPort={client}\nserver.1=127.0.0.1:{link}:3888\nserver.2=gw-b.invalid:2888:3888\nserver.3=gw-c.invalid:2888:3888\n"
    );
    for (name, text, expected) in [
        ("zoolet.toml", toml(key, &[]), vec![("UDP", link)]),
        ("zoolet.toml", toml("", &pins), vec![("UDP", link)]),
        ("zoolet.toml", toml(ca, &[]), vec![("UDP", link)]),
        ("zoo.cfg", zoo, vec![("TCP", client), ("UDP", link)]),
    ] {
        let scratch = Scratch::new();
        data_with(&scratch, &[("myid", "1")]);
        site_key(&scratch.join("site.key"));
        site_key(&scratch.join("data/site.key"));
        if text.contains(ca) {
            certificates(&scratch);
        }
        let (open, line) = opened(serve(&scratch, name, &text).args(["--data", "data", "--id", "1"]));
        assert_eq!((open.len(), to_others(&open)), (2, expected), "{line}{text}");
    }
}

/// Returns the configuration line that pins a server by its key alone.
fn pin() -> String {
    let scratch = Scratch::new();
    let output = run(&scratch, &["keygen", "--data", "."]);
    format!("key = \"{}\"", String::from_utf8(output.stdout).unwrap().trim())
}
