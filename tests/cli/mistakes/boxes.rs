//! Mistakes of a machine: its ports, its disk, its files, its limits.

use super::Scenario;
use super::files::{keygen, site};
use super::table::{Case, Serve, by, connect, text, wait};
use std::fs::{self, Permissions};
use std::io::Write;
use std::net::{TcpListener, UdpSocket};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

pub(crate) const SCENARIOS: &[Scenario] = &[
    ("a full disk", a_full_disk),
    ("a disk that is mounted to be read only", |case| {
        if let Some(server) = on_a_disk(case, "ro") {
            case.is_shown(&[], server.client);
        }
    }),
    ("the client port is another's", |case| {
        let taken = TcpListener::bind((case.host, 0)).unwrap();
        let address = taken.local_addr().unwrap();
        let port = address.port().to_string();
        case.is_refused(&[("PORT", &port)], &["serve", "--listen", &address.to_string()]);
    }),
    ("the port of links is another's", |case| {
        let taken = UdpSocket::bind((case.host, 0)).unwrap();
        let port = taken.local_addr().unwrap().port();
        let server = |(id, port): (u8, u16)| format!("[[server]]\nid = {id}\nhost = \"{}\"\n", case.at(port));
        let servers: String = (1..).zip([port, case.free_port(), case.free_port()]).map(server).collect();
        case.write("zoolet.toml", &servers);
        let port = port.to_string();
        let arguments = ["serve", "--config", "zoolet.toml", "--id", "1", "--listen", "127.0.0.1:0"];
        case.is_refused(&[("PORT", &port)], &arguments);
    }),
    ("an address of another machine to listen on", |case| {
        case.is_refused(&[], &["serve", "--listen", "plain://203.0.113.7:2181"]);
    }),
    ("two servers on one data directory", |case| {
        let first = case.serve("first", &["--data", "data"]);
        let data = case.scratch.join("data");
        connect(first.client);
        let values = [("DIR", text(&data)), ("process N", &*format!("process {}", first.process()))];
        case.is_refused(&values, &["serve", "--listen", "127.0.0.1:0", "--data", "data"]);
    }),
    ("the disk is not mounted, and its directory is not there", |case| {
        let missing = case.scratch.join("mnt");
        starts_in(case, &missing.join("zoolet"), &[("DIR", text(&missing))]);
    }),
    ("the disk is not mounted, and its directory is empty", |case| {
        let empty = case.mkdir("mnt");
        case.write("zoolet.toml", "data = \"mnt\"\nclients = \"127.0.0.1:0\"\n");
        case.is_refused(&[("DIR", text(&empty))], &["serve", "--config", "zoolet.toml"]);
    }),
    ("the data directory of an Apache ZooKeeper", |case| {
        case.mkdir("zookeeper/version-2");
        let data = case.scratch.join("zookeeper");
        starts_in(case, &data, &[("DIR", text(&data))]);
    }),
    ("a directory of something else", |case| {
        let data = case.mkdir("photos");
        case.write("photos/a.jpg", "");
        starts_in(case, &data, &[("DIR", text(&data))]);
    }),
    ("a data directory of another user", |case| {
        let data = case.mkdir("data");
        if std::os::unix::fs::chown(&data, Some(65_534), None).is_err() {
            println!("only root gives a directory to another user");
            return;
        }
        forbid(&data, 0o700);
        let command = case.zoolet(&["serve", "--listen", "127.0.0.1:0", "--data", "data"]);
        case.ends(&[("DIR", text(&data))], as_nobody(command));
    }),
    ("a data directory where its owner may not write", |case| {
        let data = case.mkdir("data");
        forbid(&data, 0o500);
        let command = case.zoolet(&["serve", "--listen", "127.0.0.1:0", "--data", "data"]);
        case.ends(&[("DIR", text(&data))], as_nobody(command));
        forbid(&data, 0o700);
    }),
    ("a data directory that the server may not make", |case| {
        let parent = case.mkdir("mnt");
        forbid(&parent, 0o500);
        let data = parent.join("zoolet");
        let command = case.zoolet(&["serve", "--listen", "127.0.0.1:0", "--data", text(&data)]);
        case.ends(&[("DIR", text(&parent))], as_nobody(command));
        forbid(&parent, 0o700);
    }),
    ("a data directory that others may read", |case| {
        let data = case.mkdir("data");
        case.write("data/myid", "1");
        forbid(&data, 0o755);
        forbid(&data.join("myid"), 0o644);
        let server = case.serve("open", &["--data", "data"]);
        case.is_logged(&[("DIR", text(&data))], &server);
    }),
    ("files of the log that somebody deleted", |case| {
        let data = case.scratch.join("data");
        populate(case, &data);
        for file in fs::read_dir(&data).unwrap().map(|file| file.unwrap().path()) {
            if file.extension().is_some_and(|extension| extension == "log") {
                fs::remove_file(file).unwrap();
            }
        }
        starts_in(case, &data, &[("DIR", text(&data))]);
    }),
    ("data on a tmpfs", |case| {
        // On Linux, /dev/shm is a tmpfs wherever it exists.
        let data = PathBuf::from(format!("/dev/shm/zoolet-mistakes-{}", std::process::id()));
        let server = case.serve("tmpfs", &["--data", text(&data)]);
        case.is_logged(&[("DIR", text(&data))], &server);
        drop(server);
        fs::remove_dir_all(&data).unwrap();
    }),
    ("a site key that others may read", |case| {
        keygen(case, "site.key");
        forbid(&case.scratch.join("site.key"), 0o644);
        site_key(case, |command| command);
    }),
    ("a site key of another user", |case| {
        keygen(case, "site.key");
        forbid(&case.scratch.join("site.key"), 0);
        site_key(case, as_nobody);
    }),
    ("a site key that was copied in part", |case| {
        keygen(case, "site.key");
        let file = case.scratch.join("site.key");
        let whole = fs::read(&file).unwrap();
        fs::write(&file, &whole[..40]).unwrap();
        site_key(case, |command| command);
    }),
    ("too few open files", |case| {
        let few = ["sh", "-c", "ulimit -n 70; exec \"$0\" \"$@\""];
        case.ends(&[], by(&few, case.zoolet(&["serve", "--data", "data", "--listen", "127.0.0.1:0"])));
    }),
    ("a client that speaks TLS", |case| {
        let server = case.serve("plain", &["--data", "data"]);
        let mut client = connect(server.client);
        // The start of a TLS record: a handshake, version 1.0 as clients send first, 512 bytes.
        client.write_all(&[0x16, 3, 1, 2, 0, 1, 0, 1, 0xFC, 3, 3]).unwrap();
        case.is_logged(&[], &server);
    }),
    ("status of a server that does not run, or listens on 127.0.0.1 for its own machine alone", |case| {
        let port = case.free_port();
        case.is_shown(&[("PORT", &port.to_string())], (case.host, port).into());
    }),
];

fn starts_in(case: &Case<'_>, data: &Path, values: &[(&str, &str)]) {
    case.is_refused(values, &["serve", "--listen", "127.0.0.1:0", "--data", text(data)]);
}

/// Creates a data directory by a run of the server.
fn populate(case: &Case<'_>, data: &Path) {
    let mut command = case.zoolet(&["serve", "--listen", "127.0.0.1:0", "--until-eof", "--data", text(data)]);
    assert!(command.stdin(Stdio::null()).output().unwrap().status.success());
}

fn site_key(case: &Case<'_>, change: fn(Command) -> Command) {
    site(case, &[1, 2, 3], &["a", "b", "c"]);
    let arguments = ["serve", "--config", "zoolet.toml", "--id", "1", "--data", "data", "--listen", "127.0.0.1:0"];
    let values = [("DIR", text(case.scratch.path()))];
    case.ends(&values, change(case.zoolet(&arguments)));
}

fn forbid(path: &Path, mode: u32) {
    fs::set_permissions(path, Permissions::from_mode(mode)).unwrap();
}

fn is_root() -> bool {
    rustix::process::geteuid().is_root()
}

/// Runs the command without capabilities, because root may do what modes forbid.
fn as_nobody(command: Command) -> Command {
    let powerless = ["setpriv", "--bounding-set=-all", "--inh-caps=-all"];
    by(if is_root() { &powerless } else { &[] }, command)
}

/// A server whose directory is a mounted tmpfs that no other process sees.
fn a_full_disk(case: &Case<'_>) {
    let Some(server) = on_a_disk(case, "size=30m") else { return };
    let address = server.client.to_string();
    let mut said = None;
    wait(|| {
        let status = case.zoolet(&["status", "--server", &address]).output().unwrap();
        // Both figures change while the server creates files, so they are taken from the compared
        // answer.
        said = missing(&String::from_utf8_lossy(&status.stdout)).map(|found| (status, found));
        said.is_some()
    });
    let (status, (free, more)) = said.unwrap();
    case.has_shown(&[("FREE", &free), ("MISSING", &more)], &status);
}

/// Returns the numbers of free and of missing bytes in a status.
fn missing(status: &str) -> Option<(String, String)> {
    let (free, more) = status.split_once("the disk is full; ")?.1.split_once(" are free, ")?;
    Some((free.to_owned(), more.split_once(" more are needed")?.0.to_owned()))
}

/// Starts a server on a disk with these mount options; `None` where mounting is refused.
fn on_a_disk(case: &Case<'_>, options: &str) -> Option<Serve> {
    let own: &[&str] =
        if is_root() { &["unshare", "--mount"] } else { &["unshare", "--user", "--map-root-user", "--mount"] };
    let may_mount = by(own, Command::new("true")).status().is_ok_and(|status| status.success());
    if !may_mount {
        assert!(std::env::var_os("ZOOLET_MOUNTS").is_none(), "{own:?} is refused here");
        println!("NOT MADE: a disk with {options}, because {own:?} is refused here");
        return None;
    }
    let data = case.mkdir("data");
    let script = format!("mount -t tmpfs -o {options} none {} && exec \"$0\" \"$@\"", text(&data));
    Some(case.serve_by("disk", &[own, &["sh", "-c", &script]].concat(), &["--data", "data"]))
}
