//! A leader that stops while its clients wait: three whole nodes, with real sockets.

use super::*;
use crate::Wait;
use crate::config::{Ensemble, Server, TrustSource};
use bytes::{Bytes, BytesMut};
use std::io::{Read, Write};
use std::net::{TcpStream, UdpSocket};
use std::sync::{Mutex, mpsc};
use zoolet_model::{ConnectRequest, Create, CreateKind, CreateMode, ErrorCode, Reply, Request, RequestedAcl, WriteOp};
use zoolet_sim::disk::{OperationKind, SimDisk};
use zoolet_transport::wire::client_side::{Shape, decode_connect_reply, decode_reply, encode_connect, encode_request};

const PATIENCE: Duration = Duration::from_secs(20);
/// Writes that a client pipelines.
const WRITES: i32 = 50;

/// A node of the test, and the disk whose syncs the test holds up.
struct Member {
    node: Node,
    disk: SimDisk,
}

/// Starts three nodes, and waits until all serve.
fn members(scratch: &Path) -> Vec<Member> {
    // All at once, so that the ports differ.
    let ports: Vec<_> = (0..3).map(|_| UdpSocket::bind("127.0.0.1:0").unwrap()).collect();
    let addresses = ports.iter().map(|port| port.local_addr().unwrap().to_string());
    let servers: Vec<_> = (1..).zip(addresses).map(|(id, address)| Server::new(id, &address)).collect();
    drop(ports);
    let start = |id: u8| {
        let (path, disk) = (scratch.join(id.to_string()), SimDisk::new(id.into()));
        std::fs::create_dir_all(&path).unwrap();
        let mut config = Config::new(&path);
        config.server_id = id;
        config.clients = Some("127.0.0.1:0".parse().unwrap());
        config.ensemble = Some(Ensemble::new(servers.clone(), TrustSource::Loopback));
        let limits = &mut config.limits;
        (limits.frame_bytes_max, limits.log_segment_bytes, limits.log_segments) = (8 << 10, 64 << 10, 16);
        limits.disk_reserve_bytes = 64 << 10;
        Member { node: Node::start_on(disk.clone(), None, path, config).unwrap(), disk }
    };
    let members: Vec<_> = (1..=3).map(start).collect();
    members.iter().for_each(|member| member.node.ready().wait_timeout(PATIENCE).expect("it serves").unwrap());
    members
}

#[track_caller]
fn status(node: &Node) -> zoolet_machine::Status {
    node.status().wait_timeout(PATIENCE).unwrap().expect("it has not ended").server
}

fn wait_until(holds: impl Fn() -> bool) {
    let until = Instant::now() + PATIENCE;
    while !holds() {
        assert!(Instant::now() < until, "it does not come");
        std::thread::yield_now();
    }
}

/// Makes each sync of the log hang until the returned end is dropped.
fn hang(disk: &SimDisk) -> mpsc::Sender<()> {
    let (release, hangs) = mpsc::channel::<()>();
    let hangs = Mutex::new(hangs);
    disk.fail_with(move |operation| {
        if operation.kind == OperationKind::Sync && operation.name.starts_with("seg-") {
            let _ = hangs.lock().unwrap().recv();
        }
        None
    });
    release
}

/// A client over TCP that pipelines.
struct Client(TcpStream, BytesMut);

impl Client {
    fn connect(node: &Node) -> Self {
        let stream = TcpStream::connect(node.client_address().unwrap()).unwrap();
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        let mut client = Self(stream, BytesMut::new());
        let mut out = BytesMut::new();
        encode_connect(&ConnectRequest::for_new_session(30_000), &mut out);
        client.0.write_all(&out).unwrap();
        assert!(decode_connect_reply(client.frame().unwrap()).unwrap().timeout_ms > 0);
        client
    }

    fn create(&mut self, number: i32) {
        let mode = CreateMode::Valid { kind: CreateKind::Persistent, sequential: false };
        let (path, acl) = (format!("/{number}").into(), Some(RequestedAcl::open()));
        let create = Create { path, data: None, acl, mode, with_stat: false };
        let mut out = BytesMut::new();
        encode_request(number, &Request::Write(WriteOp::Create(create)), &mut out);
        self.0.write_all(&out).unwrap();
    }

    /// Returns the next frame; `None` once the server has closed the connection.
    fn frame(&mut self) -> Option<Bytes> {
        loop {
            if let Some(length) = self.1.first_chunk().map(|length| u32::from_be_bytes(*length) as usize)
                && self.1.len() >= 4 + length
            {
                return Some(self.1.split_to(4 + length).freeze().slice(4..));
            }
            let mut some = [0; 4096];
            match self.0.read(&mut some) {
                Ok(0) => return None,
                Ok(read) => self.1.extend_from_slice(&some[..read]),
                Err(error) if error.kind() == std::io::ErrorKind::ConnectionReset => return None,
                Err(error) => panic!("{error}"),
            }
        }
    }

    fn answer(&mut self) -> Option<(i32, Result<Reply, ErrorCode>)> {
        let (header, result) = decode_reply(self.frame()?, Shape::Path).unwrap();
        Some((header.xid, result))
    }
}

/// Regression: the leader forwarded its clients' writes to its successor and closed its port in the same
/// turn. The clients lost their connections, and did not know that the writes were done.
#[test]
fn stopping_leader_answers_the_clients_that_waited_for_its_successor() {
    let scratch = std::env::temp_dir().join(format!("zoolet-stopping-leader-{}", std::process::id()));
    let _ = std::fs::remove_dir_all(&scratch);
    let mut members = members(&scratch);
    let leads = members.iter().position(|member| status(&member.node).role == "leader").unwrap();
    let leader = members.remove(leads).node;
    let [mut first, mut client] = [(); 2].map(|()| Client::connect(&leader));
    // The write that the successor needs before it can lead.
    let hanging: Vec<_> = members.iter().map(|member| hang(&member.disk)).collect();
    first.create(0);
    wait_until(|| status(&leader).outstanding == 1);
    // As the shutdown does. The core handles this before the writes.
    let shared = leader.0.shared().unwrap();
    shared.inbox.push(Input::HandOver);
    (1..=WRITES).for_each(|number| client.create(number));
    wait_until(|| status(&leader).outstanding == 1 + WRITES as u64);
    let stopping = {
        let leader = leader.clone();
        std::thread::spawn(move || leader.shutdown(PATIENCE))
    };
    wait_until(|| shared.sessions_closed.value().is_some());
    drop((hanging, shared));
    let answers: Vec<_> = std::iter::from_fn(|| client.answer()).collect();
    let done = |number: i32| (number, Ok(Reply::Path(format!("/{number}").into())));
    assert_eq!(answers, (1..=WRITES).map(done).collect::<Vec<_>>());
    assert_eq!(stopping.join().unwrap(), Ok(()));
    drop(members);
    std::fs::remove_dir_all(scratch).unwrap();
}
