//! Memory of an idle connection. Alone in its process, so that nothing else changes the figures.

#![allow(clippy::unwrap_used, clippy::print_stderr, reason = "a test stops at the first surprise")]

mod fake;

use fake::{Client, Server};
use zoolet_machine::Limits;
use zoolet_model::Request;
use zoolet_transport::client_port::PortSettings;

const CONNECTIONS: usize = 1000;

fn resident_bytes() -> Option<usize> {
    let status = std::fs::read_to_string("/proc/self/status").ok()?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"))?;
    Some(line.split_whitespace().next()?.parse::<usize>().ok()? * 1024)
}

#[test]
fn idle_connection_takes_at_most_8_kib() {
    let limits = Limits { connections_per_address_max: 0, ..Limits::default() };
    let server = Server::with(PortSettings { limits, ..PortSettings::default() }, 30_000);
    // Allocates everything that exists once, before the first measurement.
    let mut first: Vec<Client> = (0..20).map(|_| server.client()).collect();
    first.iter_mut().for_each(busy_then_idle);
    let Some(before) = resident_bytes() else { return };
    let mut clients: Vec<Client> = (0..CONNECTIONS).map(|_| server.client()).collect();
    clients.iter_mut().for_each(busy_then_idle);
    let after = resident_bytes().unwrap();
    let each = after.saturating_sub(before) / CONNECTIONS;
    eprintln!("{each} bytes for each idle connection, both ends and the fake machine included");
    assert!(each <= 8192, "{each} bytes");
}

/// Leaves a connection idle after it carried requests and answers, some of them large.
fn busy_then_idle(client: &mut Client) {
    client.get(1, "/size/100000");
    client.send(2, &Request::WhoAmI);
    assert_eq!((client.xid(), client.xid()), (1, 2));
    // The client's buffer is no memory of the server.
    client.forget_buffer();
}
