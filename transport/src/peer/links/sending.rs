//! Snapshots that peers fetch from this server.
//!
//! The receiver opens a two-way stream and requests the bytes from an offset on. Only the receiver
//! knows how much it kept of an earlier transfer. For each [`CHUNK`] written to its disk it sends
//! [`TAKEN`]. The sender never has more than [`AHEAD`] chunks outstanding. Otherwise megabytes
//! would wait in memory for a slow disk and use up the link's window, which the log needs.

use super::blocking::OnDisk;
use super::link::Link;
use super::link_tasks::{End, opening};
use super::{Links, lock};
use crate::peer::codec::{Opening, SnapshotReply, SnapshotRequest};
use crate::peer::instruction_queue::{PeerEvents, SnapshotBytes};
use bytes::BytesMut;
use quinn::{RecvStream, SendStream, WriteError};
use std::collections::HashMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;
use tokio::sync::Notify;
use tokio::task::JoinSet;
use tokio::time::timeout;
use zoolet_machine::Event;
use zoolet_machine::seam::peer::{NotSent, TransferId};

/// Unit in which a snapshot is read, sent and written, in bytes.
pub(super) const CHUNK: usize = 128 << 10;
/// Maximum number of chunks in flight or waiting for the receiver's disk.
const AHEAD: u64 = 8;
/// Acknowledges one chunk.
pub(super) const TAKEN: u8 = 1;

/// Below all other streams of the link.
const PRIORITY: i32 = -1;
/// Time that an offer waits for its request, and the reverse.
///
/// After that time the peer does not want the snapshot, or the requested snapshot is gone.
const ASKED: Duration = Duration::from_secs(60);

/// Snapshots that one link's peer may fetch.
#[derive(Debug, Default)]
pub(super) struct Offers {
    state: Mutex<State>,
    arrived: Notify,
}

#[derive(Debug, Default)]
struct State {
    waiting: HashMap<TransferId, Offer>,
    is_over: bool,
}

/// A snapshot that is ready to be fetched.
struct Offer {
    source: OnDisk<Box<dyn SnapshotBytes>>,
    too_late: u32,
    sent: Sent,
}

impl std::fmt::Debug for Offer {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Offer({:?})", self.sent.transfer)
    }
}

impl Offers {
    /// Drops all offers: the link has ended, so no request can come.
    pub(super) fn end(&self) {
        let mut state = lock(&self.state);
        state.is_over = true;
        let waiting = std::mem::take(&mut state.waiting);
        drop(state);
        drop(waiting);
    }

    /// Adds an offer. Drops it if the link has ended.
    fn put(&self, offer: Offer) {
        let mut state = lock(&self.state);
        if !state.is_over {
            state.waiting.insert(offer.sent.transfer, offer);
            self.arrived.notify_waiters();
        }
    }

    fn take_now(&self, transfer: TransferId) -> Option<Offer> {
        lock(&self.state).waiting.remove(&transfer)
    }

    /// Waits for the offer. The request may arrive first: request and offer take different paths.
    async fn take(&self, transfer: TransferId) -> Offer {
        loop {
            let arrived = self.arrived.notified();
            if let Some(offer) = self.take_now(transfer) {
                return offer;
            }
            arrived.await;
        }
    }
}

/// Guard that reports the end of a transfer to the engine, exactly once.
struct Sent {
    events: Arc<dyn PeerEvents>,
    transfer: TransferId,
    result: Result<(), NotSent>,
}

impl Drop for Sent {
    fn drop(&mut self) {
        let result = std::mem::replace(&mut self.result, Ok(()));
        self.events.submit(&mut vec![Event::SnapshotSent { transfer: self.transfer, result }]);
    }
}

/// Offers a snapshot to the peer of a link.
pub(super) fn offer(
    links: &Arc<Links>,
    link: Option<Arc<Link>>,
    transfer: TransferId,
    source: Box<dyn SnapshotBytes>,
    too_late: u32,
) {
    let result = Err(failed("the link ended"));
    let sent = Sent { events: links.events.clone(), transfer, result };
    let offer = Offer { source: OnDisk::new(source), too_late, sent };
    let Some(link) = link else { return };
    link.offers.put(offer);
    tokio::spawn(async move {
        tokio::select! {
            () = tokio::time::sleep(ASKED) => if let Some(mut offer) = link.offers.take_now(transfer) {
                offer.sent.result = Err(failed("the peer did not request it"));
            },
            _ = link.connection.closed() => {}
        }
    });
}

/// Serves the snapshot requests of one link's peer.
pub(super) async fn serve(links: Arc<Links>, link: Arc<Link>) -> End {
    let mut tasks = JoinSet::new();
    loop {
        tokio::select! {
            call = link.connection.accept_bi() => match call {
                Ok((say, hear)) => drop(tasks.spawn(answer(links.clone(), link.clone(), say, hear))),
                Err(error) => return End::Over(error),
            },
            Some(ended) = tasks.join_next() => match ended {
                Ok(Ok(())) => {}
                Ok(Err(end)) => return end,
                Err(failed) => return End::of_failure(&failed),
            },
        }
    }
}

async fn answer(links: Arc<Links>, link: Arc<Link>, mut say: SendStream, mut hear: RecvStream) -> Result<(), End> {
    let request = match opening(&mut hear).await? {
        (Opening::SnapshotRequest(request), rest) if rest.is_empty() => request,
        (opening, _) => return Err(End::Wrong(format!("stream opening {opening:?} instead of a snapshot request"))),
    };
    // Failure means that the link has ended.
    let _ = say.set_priority(PRIORITY);
    let Ok(mut offer) = timeout(ASKED, link.offers.take(request.transfer)).await else {
        let _ = reply(&mut say, SnapshotReply::Refused { reason: "no such snapshot".to_owned() }).await;
        return Ok(());
    };
    let result = send(&links, &mut offer, request, &mut say, &mut hear).await;
    if let Err(NotSent::Failed(why)) = &result {
        // A reset, because the receiver would take a finished stream for the end of the snapshot.
        let _ = say.reset(0u32.into());
        tracing::info!("cannot send a snapshot to server {}: {why}", link.peer.as_u8());
    }
    offer.sent.result = result;
    Ok(())
}

fn failed(why: &str) -> NotSent {
    NotSent::Failed(why.to_owned())
}

async fn send(
    links: &Links,
    Offer { source, too_late, .. }: &mut Offer,
    request: SnapshotRequest,
    say: &mut SendStream,
    hear: &mut RecvStream,
) -> Result<(), NotSent> {
    let bytes = source.call(|source| source.open()).await.map_err(NotSent::Failed)?.bytes;
    let SnapshotRequest { mut offset, .. } = request;
    if offset > bytes {
        let reason = format!("the snapshot has {bytes} bytes, but the request begins at {offset}");
        reply(say, SnapshotReply::Refused { reason: reason.clone() }).await.map_err(unwritten)?;
        return Err(NotSent::Failed(reason));
    }
    reply(say, SnapshotReply::Bytes { bytes }).await.map_err(unwritten)?;
    let mut ahead = Ahead::default();
    while offset < bytes {
        let wanted = CHUNK.min(usize::try_from(bytes - offset).unwrap_or(CHUNK));
        ahead.wait(hear).await?;
        links.bulk.take(counted(wanted, *too_late)).await;
        let chunk =
            source.call(move |source| read_whole(source.as_mut(), offset, wanted)).await.map_err(NotSent::Failed)?;
        offset += wanted as u64;
        ahead.sent += 1;
        say.write_chunk(chunk.into()).await.map_err(unwritten)?;
    }
    say.finish().map_err(|_| failed("the link ended"))
}

/// Returns the bytes to charge to the rate limit.
///
/// Each earlier snapshot that came too late halves the charge. A peer that every snapshot reaches
/// too late would never catch up. Then the writes that the limit protects would have one server
/// fewer to acknowledge them.
fn counted(bytes: usize, too_late: u32) -> usize {
    bytes.checked_shr(too_late).unwrap_or(0)
}

/// Reads exactly `bytes` from `offset` on, in as many reads as needed.
fn read_whole(source: &mut dyn SnapshotBytes, offset: u64, bytes: usize) -> Result<Vec<u8>, String> {
    let mut chunk = source.read(offset, bytes)?;
    while chunk.len() < bytes {
        let more = source.read(offset + chunk.len() as u64, bytes - chunk.len())?;
        if more.is_empty() {
            break;
        }
        chunk.extend_from_slice(&more);
    }
    if chunk.len() == bytes { Ok(chunk) } else { Err("the snapshot is shorter than announced".to_owned()) }
}

/// Flow control of the sender.
#[derive(Default)]
struct Ahead {
    sent: u64,
    taken: u64,
}

impl Ahead {
    /// Waits until another chunk may be sent.
    async fn wait(&mut self, hear: &mut RecvStream) -> Result<(), NotSent> {
        while self.sent - self.taken >= AHEAD {
            let chunk = hear.read_chunk(AHEAD as usize, true).await.map_err(|error| failed(&error.to_string()))?;
            let words = chunk.ok_or(NotSent::Cancelled)?;
            self.taken += words.bytes.len() as u64;
            if self.taken > self.sent {
                return Err(failed("the receiver acknowledged more chunks than were sent"));
            }
        }
        Ok(())
    }
}

async fn reply(say: &mut SendStream, reply: SnapshotReply) -> Result<(), WriteError> {
    let mut bytes = BytesMut::new();
    reply.encode(&mut bytes);
    say.write_all(&bytes).await
}

fn unwritten(error: WriteError) -> NotSent {
    match error {
        WriteError::Stopped(_) => NotSent::Cancelled,
        WriteError::ConnectionLost(_) => failed("the link ended"),
        error => NotSent::Failed(error.to_string()),
    }
}
