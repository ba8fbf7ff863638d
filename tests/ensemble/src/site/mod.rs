//! The servers of one ensemble, each in a process, and faults for them.

mod cables;
mod config;
mod site_server;
mod subnet;

pub use config::Place;
use site_server::Launch;
pub use site_server::{Role, Server, Status, copy_all};
pub use subnet::Subnet;

use crate::product::Product;
use crate::relay::{self, Faults, Pair, Relay};
use crate::{Outcome, said};
use cables::Cables;
use std::collections::BTreeMap;
use std::ffi::OsString;
use std::net::{IpAddr, SocketAddr, UdpSocket};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

/// Bound on every wait, such as the start of a server.
pub const PATIENCE: Duration = Duration::from_secs(60);
/// Interval between two checks of a wait.
const PERIOD: Duration = Duration::from_millis(20);

/// Format of the configuration files.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Form {
    /// ZooKeeper's `zoo.cfg`.
    ZooCfg,
    /// zoolet's own format.
    Toml,
}

/// The network between the servers.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Between {
    /// Nothing: each server has a loopback address.
    Nothing,
    /// A relay with this seed.
    Relay(u64),
    /// A network namespace for each server. Root only.
    Cables,
}

/// Description of a site.
#[derive(Clone, Debug)]
pub struct Plan {
    /// Product that runs.
    pub product: Product,
    /// Number of servers. Their ids begin at 1.
    pub servers: u8,
    /// Ids of the servers that do not vote.
    pub observers: Vec<u8>,
    /// Format of the configuration files.
    pub form: Form,
    /// Lines for each configuration file, before the lines of the servers.
    pub settings: String,
    /// The network between the servers.
    pub between: Between,
    /// Data directories outside the site's directory, by server; created if missing.
    pub data: BTreeMap<u8, PathBuf>,
    /// Extra environment variables, by server.
    pub environment: BTreeMap<u8, Vec<(String, OsString)>>,
    /// A program with arguments that starts each server and becomes it; empty for none.
    pub starter: Vec<OsString>,
}

impl Plan {
    /// Describes `servers` servers of a product, with nothing between them.
    pub fn new(product: Product, servers: u8) -> Self {
        let form = if product.is_zoolet() { Form::Toml } else { Form::ZooCfg };
        Self {
            product,
            servers,
            observers: Vec::new(),
            form,
            settings: String::new(),
            between: Between::Nothing,
            data: BTreeMap::new(),
            environment: BTreeMap::new(),
            starter: Vec::new(),
        }
    }
}

/// A running ensemble.
///
/// Its files are kept if the test panics, and removed otherwise.
pub struct Site {
    /// The description.
    pub plan: Plan,
    servers: Vec<Server>,
    relay: Option<Relay>,
    cables: Option<Cables>,
    directory: PathBuf,
    _subnet: Option<Subnet>,
}

impl Site {
    /// Starts all servers and waits until they serve.
    ///
    /// # Errors
    /// A server does not start or does not serve.
    pub fn start(plan: Plan) -> Outcome<Self> {
        let mut site = Self::prepare(plan)?;
        for server in &mut site.servers {
            server.start()?;
        }
        site.wait_for_all()?;
        Ok(site)
    }

    /// Writes all files, and starts nothing but the relay.
    ///
    /// # Errors
    /// A file, an address or a cable cannot be created.
    pub fn prepare(plan: Plan) -> Outcome<Self> {
        let directory = fresh_directory()?;
        let cables = if plan.between == Between::Cables { Some(Cables::lay(plan.servers)?) } else { None };
        let subnet = if cables.is_none() { Some(Subnet::claim()?) } else { None };
        let address = |last: u8| -> Outcome<IpAddr> {
            match (&cables, &subnet) {
                (Some(cables), _) => Ok(cables.address(last).into()),
                (None, Some(subnet)) => Ok(subnet.address(last).into()),
                (None, None) => Err("no network".to_owned()),
            }
        };
        let mut places = Vec::new();
        for id in 1..=plan.servers {
            let data = plan.data.get(&id).cloned().unwrap_or_else(|| directory.join(format!("data-{id}")));
            let mut seen_by = BTreeMap::new();
            if let Between::Relay(_) = plan.between {
                for viewer in (1..=plan.servers).filter(|&viewer| viewer != id) {
                    // With nine servers the last bytes are 112 to 198.
                    seen_by.insert(viewer, SocketAddr::from((address(100 + 10 * viewer + id)?, 2888)));
                }
            }
            places.push(Place { id, address: address(id)?, data, seen_by });
        }
        let relay = match plan.between {
            Between::Relay(seed) => Some(Relay::start(&relayed(&places), seed)?),
            Between::Nothing | Between::Cables => None,
        };
        if cables.is_some() {
            make_site_key(&plan.product, &directory)?;
        }
        let namespace = |id| cables.as_ref().map(|cables| cables.namespace(id));
        let mut servers = Vec::new();
        for place in &places {
            let config = write_files(&plan, place, &places, &directory)?;
            let environment = plan.environment.get(&place.id).cloned().unwrap_or_default();
            let starter = plan.starter.clone();
            let launch = Launch { namespace: namespace(place.id), environment, starter };
            servers.push(Server::new(plan.product.clone(), place.clone(), config, launch));
        }
        Ok(Self { plan, servers, relay, cables, directory, _subnet: subnet })
    }

    /// Returns the ids of the servers.
    pub fn ids(&self) -> Vec<u8> {
        self.servers.iter().map(|server| server.place.id).collect()
    }

    /// Returns a server.
    ///
    /// # Panics
    /// There is no server with this id.
    pub fn server(&self, id: u8) -> &Server {
        &self.servers[usize::from(id) - 1]
    }

    /// Returns a server.
    ///
    /// # Panics
    /// As [`Site::server`].
    pub fn server_mut(&mut self, id: u8) -> &mut Server {
        &mut self.servers[usize::from(id) - 1]
    }

    /// Returns all servers.
    pub fn servers(&self) -> &[Server] {
        &self.servers
    }

    /// Returns the addresses for clients, in the order of the servers.
    pub fn clients(&self) -> Vec<SocketAddr> {
        self.servers.iter().map(Server::client).collect()
    }

    /// Returns the relay between the servers.
    ///
    /// # Errors
    /// The plan has no relay.
    pub fn relay(&self) -> Outcome<&Relay> {
        self.relay.as_ref().ok_or_else(|| "there is no relay between these servers".to_owned())
    }

    /// Returns the directory of all files.
    pub fn directory(&self) -> &Path {
        &self.directory
    }

    /// Cuts a server off until [`Site::plug_in`]. A relay cuts only links between servers.
    ///
    /// # Errors
    /// The plan has neither relay nor cables, or the cable cannot be pulled.
    pub fn pull_cable(&self, id: u8) -> Outcome<()> {
        match (&self.cables, &self.relay) {
            (Some(cables), _) => cables.pull(id),
            (None, Some(relay)) => {
                relay.cut_off(id);
                Ok(())
            }
            (None, None) => Err("there are no cables between these servers".to_owned()),
        }
    }

    /// Ends [`Site::pull_cable`]. A relay loses all its faults, also those of other servers.
    ///
    /// # Errors
    /// As [`Site::pull_cable`].
    pub fn plug_in(&self, id: u8) -> Outcome<()> {
        match (&self.cables, &self.relay) {
            (Some(cables), _) => cables.plug(id),
            (None, Some(relay)) => {
                relay.mend(id);
                Ok(())
            }
            (None, None) => Err("there are no cables between these servers".to_owned()),
        }
    }

    /// Drops every packet that server `from` sends to server `to`, until [`Site::mend_way`].
    ///
    /// The opposite direction, other servers and clients are not affected. The sender sees no error.
    ///
    /// # Errors
    /// The plan has neither relay nor cables, or the way cannot be cut.
    pub fn cut_way(&self, from: u8, to: u8) -> Outcome<()> {
        match (&self.cables, &self.relay) {
            (Some(cables), _) => cables.cut_way(from, to),
            (None, Some(relay)) => {
                relay.set(Pair::new(from, to), Faults::CUT);
                Ok(())
            }
            (None, None) => Err("there are no cables between these servers".to_owned()),
        }
    }

    /// Ends [`Site::cut_way`]. With a relay, the way also loses its other faults.
    ///
    /// # Errors
    /// As [`Site::cut_way`], or the way is not cut.
    pub fn mend_way(&self, from: u8, to: u8) -> Outcome<()> {
        match (&self.cables, &self.relay) {
            (Some(cables), _) => cables.mend_way(from, to),
            (None, Some(relay)) => {
                relay.set(Pair::new(from, to), Faults::default());
                Ok(())
            }
            (None, None) => Err("there are no cables between these servers".to_owned()),
        }
    }

    /// Binds a UDP socket beside a server: at its address, and at its end of its cable.
    ///
    /// # Errors
    /// The plan has no cables, or the port is in use.
    pub fn bind_beside(&self, id: u8, port: u16) -> Outcome<UdpSocket> {
        self.cables.as_ref().ok_or_else(|| "there are no cables".to_owned())?.bind(id, port)
    }

    /// Returns the bytes and packets that a server has sent over its cable, with all headers.
    ///
    /// # Errors
    /// The plan has no cables.
    pub fn sent(&self, id: u8) -> Outcome<(u64, u64)> {
        self.cables.as_ref().ok_or_else(|| "there are no cables".to_owned())?.sent(id)
    }

    /// Returns the leader, or `None` if no server reports that it leads.
    ///
    /// If two servers report so, returns the one that has applied more. The other one has not
    /// noticed yet that it no longer leads.
    pub fn leader(&self) -> Option<u8> {
        let says = |server: &Server| {
            let status = server.status().filter(|status| status.role == Role::Leader)?;
            Some((status.zxid, server.place.id))
        };
        self.servers.iter().filter_map(says).max().map(|(_, id)| id)
    }

    /// Waits until a server other than `old` leads, and returns it.
    ///
    /// # Errors
    /// No other server leads in time.
    pub fn wait_for_other_leader(&self, old: u8) -> Outcome<u8> {
        let others = || self.servers.iter().filter(|server| server.place.id != old);
        let leads = |server: &&Server| server.status().is_some_and(|status| status.role == Role::Leader);
        let mut found = None;
        self.wait("another server leads", || {
            found = others().find(leads).map(|server| server.place.id);
            found.is_some()
        })?;
        found.ok_or_else(|| "nobody leads".to_owned())
    }

    /// Waits until a server leads, and returns it.
    ///
    /// # Errors
    /// No server leads in time.
    pub fn wait_for_leader(&self) -> Outcome<u8> {
        let mut leader = None;
        self.wait("a server leads", || {
            leader = self.leader();
            leader.is_some()
        })?;
        leader.ok_or_else(|| "nobody leads".to_owned())
    }

    /// Waits for a leader, and returns the other voters.
    ///
    /// # Errors
    /// No server leads in time.
    pub fn followers(&self) -> Outcome<Vec<u8>> {
        let leader = self.wait_for_leader()?;
        Ok(self.ids().into_iter().filter(|id| *id != leader && !self.plan.observers.contains(id)).collect())
    }

    /// Returns the epoch of the ensemble. Each election begins a new one.
    ///
    /// # Errors
    /// No server leads.
    pub fn epoch(&self) -> Outcome<u64> {
        let leader = self.wait_for_leader()?;
        let status = self.server(leader).status();
        status.map(|status| status.epoch).ok_or_else(|| format!("server {leader} does not lead any more"))
    }

    /// Waits until every server that is started and not frozen serves.
    ///
    /// # Errors
    /// A server does not serve in time.
    pub fn wait_for_all(&self) -> Outcome<()> {
        for server in self.servers.iter().filter(|server| server.is_up()) {
            self.wait(&format!("server {} serves", server.place.id), || server.status().is_some())?;
        }
        Ok(())
    }

    /// Waits until `is_so` returns true.
    ///
    /// # Errors
    /// [`PATIENCE`] is over, or a server has ended by itself. The message holds the last log lines
    /// of the servers.
    pub fn wait(&self, what: &str, mut is_so: impl FnMut() -> bool) -> Outcome<()> {
        let until = Instant::now() + PATIENCE;
        while !is_so() {
            let ended = self.servers.iter().find(|server| server.has_ended()).map(|server| server.place.id);
            if ended.is_some() || Instant::now() > until {
                let why = ended.map_or(String::new(), |id| format!("; server {id} ended by itself"));
                return Err(format!("never: {what}{why}\n{}", self.last_words()));
            }
            std::thread::sleep(PERIOD);
        }
        Ok(())
    }

    /// Returns the last log lines of each server.
    pub fn last_words(&self) -> String {
        let of_one = |server: &Server| {
            let text = server.said();
            let lines: Vec<&str> = text.lines().collect();
            let last = lines[lines.len().saturating_sub(8)..].join("\n");
            format!("--- server {} ({:?}):\n{last}\n", server.place.id, server.status())
        };
        self.servers.iter().map(of_one).collect()
    }
}

impl Drop for Site {
    #[allow(clippy::print_stderr, reason = "whoever looks for why a test failed is told where to look")]
    fn drop(&mut self) {
        self.servers.clear();
        if std::thread::panicking() {
            eprintln!("the servers' files are kept in {}", self.directory.display());
        } else {
            let _ = std::fs::remove_dir_all(&self.directory);
        }
    }
}

fn fresh_directory() -> Outcome<PathBuf> {
    static NUMBER: AtomicU32 = AtomicU32::new(0);
    let number = NUMBER.fetch_add(1, Ordering::Relaxed);
    let directory = std::env::temp_dir().join(format!("zoolet-site-{}-{number}", std::process::id()));
    let _ = std::fs::remove_dir_all(&directory);
    std::fs::create_dir_all(&directory).map_err(said(directory.display()))?;
    Ok(directory)
}

fn relayed(places: &[Place]) -> Vec<relay::Place> {
    let relayed = |place: &Place| relay::Place { id: place.id, real: place.peer(), seen_by: place.seen_by.clone() };
    places.iter().map(relayed).collect()
}

/// Writes the configuration file, and the data directory; with `zoo.cfg` also `myid` in it.
fn write_files(plan: &Plan, own: &Place, all: &[Place], directory: &Path) -> Outcome<PathBuf> {
    let (name, text) = config::write(plan, own, all, directory);
    let home = directory.join(format!("server-{}", own.id));
    let config = home.join(name);
    std::fs::create_dir_all(&home).and_then(|()| std::fs::write(&config, text)).map_err(said(config.display()))?;
    std::fs::create_dir_all(&own.data).map_err(said(own.data.display()))?;
    if name == "zoo.cfg" {
        let myid = own.data.join("myid");
        std::fs::write(&myid, format!("{}\n", own.id)).map_err(said(myid.display()))?;
    }
    Ok(config)
}

/// Writes the site key that zoolet's servers require off loopback.
fn make_site_key(product: &Product, directory: &Path) -> Outcome<()> {
    let Product::Zoolet(binary) = product else { return Ok(()) };
    let path = directory.join("site.key");
    let output = Command::new(binary).arg("keygen").output().map_err(said(binary.display()))?;
    std::fs::write(&path, &output.stdout).map_err(said(path.display()))?;
    use std::os::unix::fs::PermissionsExt;
    std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o600)).map_err(said(path.display()))
}
