//! The two servers: started with the same settings on fresh data, and stopped.

use crate::play::Servers;
use crate::script::Script;
use std::io::{self, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

/// The command of a server; the path of a `zoo.cfg` is appended.
#[derive(Clone, Debug)]
pub struct ServerCommand(pub Vec<String>);

impl ServerCommand {
    /// Splits a line at spaces.
    pub fn new(line: &str) -> Self {
        Self(line.split_whitespace().map(str::to_owned).collect())
    }
}

/// JVM options for speed and memory, and three settings that ZooKeeper reads only as properties.
///
/// Test data need not survive a crash. The process is too short-lived for the best compiler.
const JVM_OPTIONS: &str = "-Xmx400m -XX:+UseSerialGC -XX:TieredStopAtLevel=1 -Xshare:auto -Dzookeeper.forceSync=no \
                           -Dznode.container.checkIntervalMs=3600000 -Dreadonlymode.enabled=true";

/// The password of the user `super` is `secret`. Sessions outlive any play, and no container or
/// TTL znode is reaped. A script may set any of these keys otherwise.
const CONFIG: &str = "tickTime=2000
initLimit=10
syncLimit=5
maxClientCnxns=0
minSessionTimeout=200000
maxSessionTimeout=400000
admin.enableServer=false
4lw.commands.whitelist=*
extendedTypesEnabled=true
reconfigEnabled=false
enforceQuota=true
snapCount=100000
preAllocSize=1024
znode.container.checkIntervalMs=3600000
DigestAuthenticationProvider.superDigest=super:lK75jTNcA+U9vtVEw5vB51mj/w4=
clientPortAddress=127.0.0.1
";

/// Time limit until a server serves.
const START_PATIENCE: Duration = Duration::from_secs(40);

/// Ports that one side uses, at most: three for each of three servers.
pub const PORTS: u16 = 9;

/// The servers of one side: a standalone server, or an ensemble.
#[derive(Debug)]
pub struct Side {
    command: ServerCommand,
    configs: Vec<PathBuf>,
    servers: Vec<Option<Server>>,
    addresses: Vec<SocketAddr>,
}

impl Side {
    /// Starts the servers that `script` asks for on local ports from `port` on.
    ///
    /// `directory` is recreated and holds their data.
    ///
    /// # Errors
    /// One cannot be started or does not serve; the error includes its output.
    pub fn start(command: &ServerCommand, directory: &Path, port: u16, script: &Script) -> io::Result<Self> {
        let _ = std::fs::remove_dir_all(directory);
        let (count, members) = script.servers().map_or((1, 0), |servers| (servers, servers));
        let port_of = |server: u16, place: u16| port + 3 * server + place;
        let members = (0..members as u16).map(|server| {
            let id = server + 1;
            format!("server.{id}=127.0.0.1:{}:{}\n", port_of(server, 1), port_of(server, 2))
        });
        let members: String = members.collect();
        // Else ZooKeeper would run the only member of an ensemble as a standalone server.
        let alone = if script.servers() == Some(1) { "standaloneEnabled=false\n" } else { "" };
        let (mut configs, mut addresses) = (Vec::new(), Vec::new());
        for server in 0..count as u16 {
            let port = port_of(server, 0);
            let home = directory.join(format!("{}", server + 1));
            let data = home.join("data");
            std::fs::create_dir_all(&data)?;
            std::fs::write(data.join("myid"), format!("{}\n", server + 1))?;
            let settings = script.zoo_cfg().join("\n");
            let lines = format!("clientPort={port}\ndataDir={}\n{members}{alone}{settings}\n", data.display());
            std::fs::write(home.join("zoo.cfg"), format!("{CONFIG}{lines}"))?;
            configs.push(home.join("zoo.cfg"));
            addresses.push(SocketAddr::from(([127, 0, 0, 1], port)));
        }
        let servers = configs.iter().map(|_| None).collect();
        let mut side = Self { command: command.clone(), configs, servers, addresses };
        side.together()?;
        Ok(side)
    }

    /// Returns whether all processes run.
    pub fn lives(&mut self) -> bool {
        self.servers.iter_mut().flatten().all(Server::lives)
    }

    /// Returns the last lines of each server's output.
    pub fn output(&self) -> String {
        self.servers.iter().flatten().map(Server::output).collect::<Vec<_>>().join("\n")
    }
}

impl Servers for Side {
    fn addresses(&self) -> Vec<SocketAddr> {
        self.addresses.clone()
    }

    fn alone(&mut self, server: usize) -> io::Result<()> {
        for (number, other) in self.servers.iter_mut().enumerate() {
            if number != server {
                *other = None;
            }
        }
        match &mut self.servers[server] {
            Some(server) => server.wait_until(|server| four_letters(server.address, "isro") == "ro"),
            None => Err(io::Error::other("this server does not run")),
        }
    }

    fn together(&mut self) -> io::Result<()> {
        for (server, (config, address)) in self.servers.iter_mut().zip(self.configs.iter().zip(&self.addresses)) {
            if server.is_none() {
                *server = Some(Server::start(&self.command, config, *address)?);
            }
        }
        // `ruok` is answered before requests are. `srvr` names the mode only once the server serves.
        let serves = |server: &Server| {
            let text = four_letters(server.address, "srvr");
            text.contains("Mode: ") && !text.contains("Mode: read-only")
        };
        self.servers.iter_mut().flatten().try_for_each(|server| server.wait_until(serves))
    }
}

impl Drop for Side {
    fn drop(&mut self) {
        self.servers.clear();
        for home in self.configs.iter().filter_map(|config| config.parent()) {
            let _ = std::fs::remove_dir_all(home);
        }
    }
}

/// A process that runs until it is dropped.
#[derive(Debug)]
struct Server {
    child: Child,
    output: PathBuf,
    address: SocketAddr,
}

impl Server {
    fn start(command: &ServerCommand, config: &Path, address: SocketAddr) -> io::Result<Self> {
        let path = config.with_file_name("output");
        let output = std::fs::File::options().create(true).append(true).open(&path)?;
        let [program, arguments @ ..] = &command.0[..] else { return Err(io::Error::other("an empty server command")) };
        let child = Command::new(program)
            .args(arguments)
            .arg(config)
            .env("JVM_OPTIONS", JVM_OPTIONS)
            .stdin(Stdio::null())
            .stdout(output.try_clone()?)
            .stderr(output)
            .spawn()
            .map_err(|error| io::Error::other(format!("{program}: {error}")))?;
        Ok(Self { child, output: path, address })
    }

    fn wait_until(&mut self, condition: impl Fn(&Self) -> bool) -> io::Result<()> {
        let deadline = Instant::now() + START_PATIENCE;
        while Instant::now() < deadline && self.child.try_wait()?.is_none() {
            if condition(self) {
                return Ok(());
            }
            std::thread::sleep(Duration::from_millis(20));
        }
        Err(io::Error::other(format!("a server does not serve; its output:\n{}", self.output())))
    }

    fn lives(&mut self) -> bool {
        matches!(self.child.try_wait(), Ok(None))
    }

    /// Returns the last 30 lines of its output.
    fn output(&self) -> String {
        let text = std::fs::read(&self.output).unwrap_or_default();
        let text = String::from_utf8_lossy(&text);
        let lines: Vec<&str> = text.lines().collect();
        lines[lines.len().saturating_sub(30)..].join("\n")
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn four_letters(address: SocketAddr, word: &str) -> String {
    let ask = || -> io::Result<String> {
        let mut stream = TcpStream::connect(address)?;
        stream.set_read_timeout(Some(Duration::from_millis(500)))?;
        stream.write_all(word.as_bytes())?;
        let mut text = String::new();
        stream.read_to_string(&mut text)?;
        Ok(text)
    };
    ask().unwrap_or_default()
}
