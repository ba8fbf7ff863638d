//! Mistakes in a command or a configuration file.

use super::Scenario;
use super::table::{Case, by, text};

pub(crate) const SCENARIOS: &[Scenario] = &[
    ("a command that there is not", |case| case.is_refused(&[], &["sevre"])),
    ("an option that there is not", |case| case.is_refused(&[], &["serve", "--dta", "/var/lib/zoolet"])),
    ("an option under another name", |case| case.is_refused(&[], &["serve", "--port", "2181"])),
    ("half the name of an option", |case| case.is_refused(&[], &["serve", "--conf", "zoolet.toml"])),
    ("an option that is there twice", |case| {
        case.is_refused(&[], &["status", "--server", "gw-a:2181", "--server", "gw-b:2181"]);
    }),
    ("a configuration file that is not there", |case| case.is_refused(&[], &["serve", "--config", "zoolet.tml"])),
    ("a typing mistake in a key", |case| toml(case, "clents = \"127.0.0.1:2181\"\n")),
    ("a key in the wrong table", |case| toml(case, "watches_max = 5000\n")),
    ("half the name of a key", |case| toml(case, "site_key = \"/etc/zoolet/site.key\"\n")),
    ("a key of a zoo.cfg in a `zoolet.toml`", |case| toml(case, "clientPort = 2181\n")),
    ("a port that there is not", |case| toml(case, "clients = \"127.0.0.1:99999\"\n")),
    ("a server without its host", |case| {
        keygen(case, "site.key");
        let servers = "[[server]]\nid = 1\n[[server]]\nid = 2\nhost = \"gw-b\"\n";
        case.write("zoolet.toml", &format!("site_key_file = \"site.key\"\n{servers}"));
        case.is_refused(&[], &["serve", "--config", "zoolet.toml", "--id", "1"]);
    }),
    ("a unit in other letters", |case| toml(case, "[limits]\nmemtable_bytes = \"16mib\"\n")),
    ("a time without its unit", |case| case.is_refused(&[], &["bench", "--duration", "10"])),
    ("text without quotes", |case| toml(case, "data = /var/lib/zoolet\n")),
    ("a profile that there is not", |case| case.is_refused(&[], &["serve", "--profile", "raspberry-pi4"])),
    ("a typing mistake in a profile of one's own", |case| {
        case.write(
            "box.toml",
            "title = \"t\"\nmedia = \"emmc\"\nmemory = \"512m\"\n[overrides.watch_max]\nvalue = \"9\"\n",
        );
        case.is_refused(&[], &["serve", "--profile", "box.toml"]);
    }),
    ("clients of other machines, without saying that it is unencrypted", |case| {
        toml(case, "clients = \"0.0.0.0:2181\"\n")
    }),
    ("a subtree in a file among the data", |case| {
        toml(case, "last_known_good = { subtree = \"/conf\", path = \"zoolet-data/conf.image\" }\n");
    }),
    ("no site key", |case| {
        site(case, &[1, 2, 3], &["a", "b", "c"]);
        case.is_refused(&[("DIR", text(case.scratch.path()))], &["serve", "--config", "zoolet.toml", "--id", "1"]);
    }),
    ("a machine that no `[[server]]` names", |case| {
        keygen(case, "site.key");
        site(case, &[1, 2, 3], &["a", "b", "c"]);
        let name = rustix::system::uname().nodename().to_string_lossy().into_owned();
        case.is_refused(&[("HOST", &name)], &["serve", "--config", "zoolet.toml"]);
    }),
    ("an id that no `[[server]]` has", |case| one_of(case, "4", &[1, 2, 3], &["a", "b", "c"])),
    ("two servers with one id in the file", |case| one_of(case, "1", &[1, 2, 2], &["a", "b", "c"])),
    ("two servers with one host in the file", |case| one_of(case, "1", &[1, 2, 3], &["a", "b", "b"])),
    ("an even number of voters", |case| {
        keygen(case, "site.key");
        site(case, &[1, 2, 3, 4], &["a", "b", "c", "d"]);
        case.is_warned_of(&[], case.zoolet(&["serve", "--config", "zoolet.toml", "--id", "1"]));
    }),
    ("where clients reach a server is said of one of three", |case| {
        warns_of_client_addresses(case, &[(2, "gw-b.invalid:2181")]);
    }),
    ("two servers with the same client address", |case| {
        warns_of_client_addresses(
            case,
            &[(1, "gw-a.invalid:2181"), (2, "gw-b.invalid:2181"), (3, "gw-b.invalid:2181")],
        );
    }),
    ("status of a file with several servers of this machine, and it does not say where each is asked", |case| {
        let server = |id| format!("[[server]]\nid = {id}\nhost = \"127.0.0.1:{id}\"\n");
        let servers: String = (1..=3).map(server).collect();
        case.write("zoolet.toml", &servers.replacen("id = 2\n", "id = 2\nclient = \"127.0.0.1:2182\"\n", 1));
        case.is_refused(&[], &["status", "--config", "zoolet.toml"]);
    }),
    ("limits that contradict each other", |case| {
        case.write("zoolet.toml", "[limits]\noutbound_bytes_max = 65536\n");
        case.is_warned_of(&[], case.zoolet(&["serve", "--config", "zoolet.toml"]));
    }),
    ("a typing mistake in a zoo.cfg", |case| zoo_cfg(case, &[], "clientPort=2181\nmaxClientConns=60\n")),
    ("a key of a zoo.cfg that is there twice", |case| {
        zoo_cfg(case, &[], "clientPort=2181\nclientPort=2182\n");
    }),
    ("TLS in a zoo.cfg", |case| zoo_cfg_is_refused(case, "secureClientPort=2281\n")),
    ("a private key in the place of a public one", |case| {
        toml(case, "[[server]]\nkey = \"zoolet-server-key-1:BwcHBwcHBwcHBwcHBwcHBwcHBwcHBwcHBwcHBwcHBwcHfHZs\"\n");
    }),
    ("a typing mistake in authentication in a zoo.cfg", |case| zoo_cfg_is_refused(case, "AuthProvider.1=sasl\n")),
    ("authentication in a zoo.cfg", |case| zoo_cfg_is_refused(case, "enforce.auth.enabled=true\n")),
    ("a zoo.cfg of an ensemble without `myid`", |case| {
        let servers: String = (1..=3).map(|id| format!("server.{id}=127.0.0.1:{id}:{id}\n")).collect();
        let data = case.mkdir("data");
        case.write("zoo.cfg", &format!("dataDir={}\nclientPort=2181\n{servers}", text(&data)));
        case.is_refused(&[("DIR", text(&data))], &["serve", "--config", "zoo.cfg"]);
    }),
    ("a profile for a larger machine", |case| {
        case.write("zoolet.toml", "limits.record_cache_bytes = 2147483648\n");
        // Limits the address space, because the test machine may have any amount of memory.
        let little = ["sh", "-c", "ulimit -v 1953125; exec \"$0\" \"$@\""];
        let command = || by(&little, case.zoolet(&["serve", "--config", "zoolet.toml"]));
        let log = case.check(command());
        // The warning about the profile's ceiling names the same sum of the bounds.
        let most = log.split_once("the limits allow ").unwrap().1.split(' ').next().unwrap();
        case.is_warned_of(&[("N", most)], command());
    }),
];

fn toml(case: &Case<'_>, text: &str) {
    case.write("zoolet.toml", text);
    case.is_refused(&[], &["serve", "--config", "zoolet.toml"]);
}

fn zoo_cfg(case: &Case<'_>, values: &[(&str, &str)], lines: &str) {
    case.write("zoo.cfg", &format!("dataDir=data\n{lines}"));
    case.is_warned_of(values, case.zoolet(&["serve", "--config", "zoo.cfg"]));
}

fn zoo_cfg_is_refused(case: &Case<'_>, line: &str) {
    case.write("zoo.cfg", &format!("dataDir=data\nclientPort=2181\n{line}"));
    case.is_refused(&[], &["serve", "--config", "zoo.cfg"]);
}

fn one_of(case: &Case<'_>, own: &str, ids: &[u8], hosts: &[&str]) {
    keygen(case, "site.key");
    site(case, ids, hosts);
    case.is_refused(&[], &["serve", "--config", "zoolet.toml", "--id", own]);
}

/// Starts server 1 from a file with these client addresses.
fn warns_of_client_addresses(case: &Case<'_>, clients: &[(u8, &str)]) {
    keygen(case, "site.key");
    site(case, &[1, 2, 3], &["a", "b", "c"]);
    let mut text = std::fs::read_to_string(case.scratch.join("zoolet.toml")).unwrap();
    for (id, client) in clients {
        text = text.replace(&format!("id = {id}\n"), &format!("id = {id}\nclient = \"{client}\"\n"));
    }
    case.write("zoolet.toml", &text);
    case.is_warned_of(&[], case.zoolet(&["serve", "--config", "zoolet.toml", "--id", "1"]));
}

pub(crate) fn keygen(case: &Case<'_>, name: &str) {
    let made = case.zoolet(&["keygen", "--out", name]).output().unwrap();
    assert!(made.status.success(), "{made:?}");
}

/// Writes a configuration with these servers, whose hosts do not exist.
pub(crate) fn site(case: &Case<'_>, ids: &[u8], hosts: &[&str]) {
    let server = |(id, host): (&u8, &&str)| format!("[[server]]\nid = {id}\nhost = \"gw-{host}.invalid\"\n");
    let servers: String = ids.iter().zip(hosts).map(server).collect();
    let key = case.scratch.join("site.key");
    case.write("zoolet.toml", &format!("site_key_file = {key:?}\n{servers}"));
}
