//! The two servers: started with the same settings on fresh data, and stopped.

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
                           -Dznode.container.checkIntervalMs=3600000 -Dzookeeper.extendedTypesEnabled=true";

/// The password of the user `super` is `secret`. Sessions outlive any play, and no container or
/// TTL znode is reaped.
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

/// A server that runs until it is dropped, which also deletes its data.
#[derive(Debug)]
pub struct Server {
    child: Child,
    directory: PathBuf,
    /// Address for clients.
    pub address: SocketAddr,
}

impl Server {
    /// Starts it on a local `port`, with these lines of `zoo.cfg`.
    ///
    /// `directory` is recreated and holds its data.
    ///
    /// # Errors
    /// It cannot be started or does not serve; the error includes its output.
    pub fn start(command: &ServerCommand, directory: &Path, port: u16, settings: &[String]) -> io::Result<Self> {
        let _ = std::fs::remove_dir_all(directory);
        std::fs::create_dir_all(directory.join("data"))?;
        let config = directory.join("zoo.cfg");
        let data = directory.join("data");
        let settings = settings.join("\n");
        std::fs::write(&config, format!("{CONFIG}clientPort={port}\ndataDir={}\n{settings}\n", data.display()))?;
        let output = std::fs::File::create(directory.join("output"))?;
        let [program, arguments @ ..] = &command.0[..] else { return Err(io::Error::other("an empty server command")) };
        let child = Command::new(program)
            .args(arguments)
            .arg(&config)
            .env("JVM_OPTIONS", JVM_OPTIONS)
            .stdin(Stdio::null())
            .stdout(output.try_clone()?)
            .stderr(output)
            .spawn()
            .map_err(|error| io::Error::other(format!("{program}: {error}")))?;
        let address = SocketAddr::from(([127, 0, 0, 1], port));
        let mut server = Self { child, directory: directory.to_owned(), address };
        server.wait_until_it_serves()?;
        Ok(server)
    }

    fn wait_until_it_serves(&mut self) -> io::Result<()> {
        let deadline = Instant::now() + START_PATIENCE;
        while Instant::now() < deadline && self.child.try_wait()?.is_none() {
            // `ruok` is answered before requests are. `srvr` names the mode only once the server
            // serves.
            if four_letters(self.address, "srvr").contains("Mode: standalone") {
                return Ok(());
            }
            std::thread::sleep(Duration::from_millis(20));
        }
        Err(io::Error::other(format!("a server does not serve; its output:\n{}", self.output())))
    }

    /// Returns whether the process runs.
    pub fn lives(&mut self) -> bool {
        matches!(self.child.try_wait(), Ok(None))
    }

    /// Returns the last 30 lines of its output.
    pub fn output(&self) -> String {
        let text = std::fs::read(self.directory.join("output")).unwrap_or_default();
        let text = String::from_utf8_lossy(&text);
        let lines: Vec<&str> = text.lines().collect();
        lines[lines.len().saturating_sub(30)..].join("\n")
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
        let _ = std::fs::remove_dir_all(&self.directory);
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
