//! The configuration files of a site's servers.

use super::{Form, Plan};
use crate::product::Product;
use std::collections::BTreeMap;
use std::fmt::Write;
use std::net::{IpAddr, SocketAddr};
use std::path::{Path, PathBuf};

/// Addresses and data directory of a server.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Place {
    /// Id of the server.
    pub id: u8,
    /// Its address.
    pub address: IpAddr,
    /// Its data directory.
    pub data: PathBuf,
    /// Address at which each other server, by its id, reaches this one, unless it is its own.
    pub seen_by: BTreeMap<u8, SocketAddr>,
}

/// Client port of ZooKeeper and zoolet.
const CLIENT_PORT: u16 = 2181;
/// Port for other servers: TCP for ZooKeeper, UDP for zoolet.
const PEER_PORT: u16 = 2888;
const ELECTION_PORT: u16 = 3888;
const ETCD_CLIENT_PORT: u16 = 2379;
const ETCD_PEER_PORT: u16 = 2380;

impl Place {
    /// Returns the address for clients.
    pub fn client(&self, product: &Product) -> SocketAddr {
        let port = if product.speaks_zookeeper() { CLIENT_PORT } else { ETCD_CLIENT_PORT };
        (self.address, port).into()
    }

    /// Returns the address at which zoolet listens for other servers.
    pub fn peer(&self) -> SocketAddr {
        (self.address, PEER_PORT).into()
    }

    /// Returns the address at which server `viewer` looks for this one.
    fn peer_seen_by(&self, viewer: u8) -> SocketAddr {
        self.seen_by.get(&viewer).copied().unwrap_or_else(|| self.peer())
    }
}

/// Returns the name and content of the configuration file.
pub(super) fn write(plan: &Plan, own: &Place, all: &[Place], directory: &Path) -> (&'static str, String) {
    match (&plan.product, plan.form) {
        (Product::Etcd, _) => ("etcd.flags", etcd(own, all)),
        (Product::Zoolet(_), Form::Toml) => ("zoolet.toml", toml(plan, own, all, directory)),
        (Product::Zoolet(_) | Product::ZooKeeper(_), _) => ("zoo.cfg", zoo_cfg(plan, own, all)),
    }
}

fn zoo_cfg(plan: &Plan, own: &Place, all: &[Place]) -> String {
    let (data, address) = (own.data.display(), own.address);
    let mut text = format!(
        "tickTime=2000\ninitLimit=10\nsyncLimit=5\ndataDir={data}\nclientPort={CLIENT_PORT}\nclientPortAddress={address}\n\
         maxClientCnxns=0\n4lw.commands.whitelist=*\nadmin.enableServer=false\n{}\n",
        plan.settings
    );
    for place in all {
        let peer = if place.id == own.id { place.peer() } else { place.peer_seen_by(own.id) };
        let role = if plan.observers.contains(&place.id) { ":observer" } else { "" };
        let _ = writeln!(text, "server.{}={}:{}:{ELECTION_PORT}{role}", place.id, peer.ip(), peer.port());
    }
    text
}

fn toml(plan: &Plan, own: &Place, all: &[Place], directory: &Path) -> String {
    let data = own.data.display();
    let client = own.client(&plan.product);
    let in_clear = if own.address.is_loopback() { "" } else { "plain://" };
    let mut text = format!(
        "site = \"tests\"\nid = {}\ndata = \"{data}\"\nclients = \"{in_clear}{client}\"\npeers = \"{}\"\nfour_letter_words = [\"*\"]\n",
        own.id,
        own.peer()
    );
    if !own.address.is_loopback() {
        let _ = writeln!(text, "site_key_file = \"{}\"", directory.join("site.key").display());
    }
    let _ = writeln!(text, "{}", plan.settings);
    for place in all {
        // A server tells its peers the address in its own entry. Peers that knew its real address
        // would go around the relay, so with a relay the entry is an address on which no process
        // listens.
        let dead = SocketAddr::from((own.address, 9));
        let host = match (place.id == own.id, own.seen_by.is_empty()) {
            (true, false) => dead,
            (true, true) => place.peer(),
            (false, _) => place.peer_seen_by(own.id),
        };
        let role = if plan.observers.contains(&place.id) { "observer" } else { "voter" };
        let _ = write!(text, "[[server]]\nid = {}\nhost = \"{host}\"\nrole = \"{role}\"\n", place.id);
    }
    text
}

fn etcd(own: &Place, all: &[Place]) -> String {
    let url = |address: IpAddr, port: u16| format!("http://{}", SocketAddr::from((address, port)));
    let cluster: Vec<String> =
        all.iter().map(|place| format!("s{}={}", place.id, url(place.address, ETCD_PEER_PORT))).collect();
    let (client, peer) = (url(own.address, ETCD_CLIENT_PORT), url(own.address, ETCD_PEER_PORT));
    [
        format!("--name=s{}", own.id),
        format!("--data-dir={}", own.data.display()),
        format!("--listen-client-urls={client}"),
        format!("--advertise-client-urls={client}"),
        format!("--listen-peer-urls={peer}"),
        format!("--initial-advertise-peer-urls={peer}"),
        format!("--initial-cluster={}", cluster.join(",")),
        "--initial-cluster-state=new".to_owned(),
        "--logger=zap".to_owned(),
        "--log-level=warn".to_owned(),
    ]
    .join("\n")
}
