//! Znodes that are created whatever happens meanwhile, and verified afterwards.

use crate::siege::{create, directory, znode};
use crate::site::Server;
use crate::{Outcome, said};
use bytes::Bytes;
use std::collections::BTreeMap;
use std::ops::Range;
use std::time::{Duration, Instant};
use zoolet_model::{ConnectReply, ErrorCode, Reply, Request, WriteOp, first_failure};
use zoolet_powercut::client::{Client, Joined};
use zoolet_transport::wire::client_side::Shape;

/// Bytes of data of each znode.
pub const VALUE: usize = 1000;
/// Znodes created in one transaction.
const BATCH: u64 = 50;
/// For znodes without data: creates in one transaction, and children of one parent.
const SMALL_BATCH: u64 = 500;
const SMALL_SIBLINGS: u64 = 10_000;
/// Reads in flight at once.
const WINDOW: usize = 500;
/// Bound on each operation, also under siege.
const PATIENCE: Duration = Duration::from_secs(240);
/// Bound on the wait for one answer, with pings. A client that leaves a besieged server does not
/// get in again.
const ANSWER: Duration = Duration::from_secs(120);
/// Delay before a client that was refused tries again.
const RETRY: Duration = Duration::from_millis(50);
const SESSION_TIMEOUT_MS: i32 = 60_000;

/// Returns the data of a znode.
fn data(number: u64) -> Bytes {
    let mut data = number.to_be_bytes().repeat(VALUE / 8);
    data.truncate(VALUE);
    data.into()
}

/// Connects to the first of these servers that accepts the client.
///
/// It continues `session` if it is given, because a besieged server accepts no new sessions.
///
/// # Errors
/// No server accepts the client.
pub fn client(servers: &[&Server], session: Option<&ConnectReply>) -> Outcome<Client> {
    let until = Instant::now() + PATIENCE;
    let mut outcomes = BTreeMap::new();
    for server in servers.iter().cycle() {
        let outcome = match Client::join(server.client(), session, SESSION_TIMEOUT_MS, ANSWER) {
            Ok(Joined::Client(client)) => return Ok(client),
            Ok(Joined::Refused) => "refused the session".to_owned(),
            Ok(Joined::Gone) => "closed the connection".to_owned(),
            Err(error) => error.to_string(),
        };
        *outcomes.entry(format!("server {} {outcome}", server.place.id)).or_insert(0) += 1;
        if Instant::now() >= until {
            break;
        }
        std::thread::sleep(RETRY);
    }
    let states: Vec<_> = servers.iter().map(|server| server.status()).collect();
    Err(format!("nobody takes a client: {outcomes:?}: {states:?}"))
}

/// Writes all operations or none, over as many connections as needed.
///
/// Returns `None` if the write was acknowledged, and the error if it was refused.
///
/// # Errors
/// No server answers.
pub fn try_write(servers: &[&Server], client: &mut Client, operations: &[WriteOp]) -> Outcome<Option<ErrorCode>> {
    let request = Request::Multi(operations.to_vec());
    let until = Instant::now() + PATIENCE;
    while Instant::now() < until {
        return match client.ask_and_ping(&request, ANSWER) {
            Ok(Some((_, Ok(Reply::Multi(results))))) => Ok(first_failure(&results).map(|(_, error)| error)),
            Ok(Some((_, Err(error)))) => Ok(Some(error)),
            Ok(Some((_, Ok(other)))) => Err(format!("{other:?}")),
            Ok(None) | Err(_) => {
                *client = self::client(servers, Some(&client.session))?;
                continue;
            }
        };
    }
    Err(format!("not answered: {:?}", operations.first()))
}

/// Repeats a transaction of creates until it is acknowledged.
///
/// # Errors
/// It is never acknowledged.
pub fn write(servers: &[&Server], client: &mut Client, operations: &[WriteOp]) -> Outcome<()> {
    let until = Instant::now() + PATIENCE;
    while Instant::now() < until {
        match try_write(servers, client, operations)? {
            // The answer to an earlier attempt was lost.
            None | Some(ErrorCode::NodeExists) => return Ok(()),
            Some(ErrorCode::SystemError) => std::thread::sleep(RETRY),
            Some(other) => return Err(format!("{other:?}")),
        }
    }
    let states: Vec<_> = servers.iter().map(|server| server.status()).collect();
    Err(format!("refused all the time: {:?}: {states:?}", operations.first()))
}

/// Returns the transactions that create a directory with a thousand znodes.
pub fn transactions(directory: u64) -> impl Iterator<Item = Vec<WriteOp>> {
    let first = directory * 1000;
    let top = vec![create(&self::directory(first), Bytes::new())];
    let batch = |from| (from..from + BATCH).map(|number| create(&znode(number), data(number))).collect();
    std::iter::once(top).chain((first..first + 1000).step_by(BATCH as usize).map(batch))
}

/// Creates whole directories with a thousand znodes each.
///
/// # Errors
/// As for [`write()`].
pub fn populate(servers: &[&Server], client: &mut Client, directories: Range<u64>) -> Outcome<()> {
    for transaction in directories.flat_map(transactions) {
        write(servers, client, &transaction)?;
    }
    Ok(())
}

/// Creates `znodes` znodes without data.
///
/// They show the memory that a server needs for each znode, apart from its data.
///
/// # Errors
/// As for [`write()`].
pub fn populate_small(servers: &[&Server], client: &mut Client, znodes: u64) -> Outcome<()> {
    let parent = |number| format!("/small-{}", number / SMALL_SIBLINGS);
    for from in (0..znodes).step_by(SMALL_BATCH as usize) {
        if from % SMALL_SIBLINGS == 0 {
            write(servers, client, &[create(&parent(from), Bytes::new())])?;
        }
        let some = from..from + SMALL_BATCH;
        let some: Vec<_> =
            some.map(|number| create(&format!("{}/box-{number:08}", parent(from)), Bytes::new())).collect();
        write(servers, client, &some)?;
    }
    Ok(())
}

/// Reads these znodes at one server, after a sync.
///
/// # Errors
/// The first znode that does not hold what was written.
pub fn verify(server: &Server, znodes: Range<u64>) -> Outcome<()> {
    let mut client = client(&[server], None)?;
    let what = |number| format!("server {}: {}", server.place.id, znode(number));
    let sync = client.ask(&Request::Sync { path: Some("/".into()) }).map_err(said("sync"))?;
    sync.ok_or("sync: the connection was closed")?.1.map_err(|error| format!("sync: {error:?}"))?;
    let get = |number| Request::GetData { path: znode(number).into(), watch: false };
    for from in znodes.clone().step_by(WINDOW) {
        let some = from..znodes.end.min(from + WINDOW as u64);
        some.clone().for_each(|number| {
            client.queue(&get(number));
        });
        client.flush().map_err(said("sending"))?;
        for number in some {
            let answer = client.receive(Shape::of(&get(0))).map_err(said(what(number)))?;
            match answer.ok_or_else(|| what(number))?.1 {
                Ok(Reply::Data(Some(found), _)) if found == data(number) => {}
                other => return Err(format!("{}: {other:?}", what(number))),
            }
        }
    }
    Ok(())
}
