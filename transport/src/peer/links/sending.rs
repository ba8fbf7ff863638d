//! Snapshots that peers fetch from this server.
//!
//! The receiver opens a stream both ways and says from where on it wants the bytes, because only it knows what it has of an earlier transfer. For every
//! [`CHUNK`] that its disk has taken it says [`TAKEN`], and the sender is never more than [`AHEAD`] of them ahead: otherwise megabytes would wait
//! in memory for a slow disk, and take the window of the link from the log.

use super::disk::OnDisk;
use super::life::{End, opening};
use super::link::Link;
use super::{Links, lock};
use crate::peer::codec::{Opening, SnapshotReply, SnapshotRequest};
use crate::peer::seam::{PeerEvents, SnapshotBytes};
use bytes::BytesMut;
use quinn::{RecvStream, SendStream, WriteError};
use std::collections::HashMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;
use tokio::sync::Notify;
use tokio::task::JoinSet;
use tokio::time::timeout;
use zoolet_engine::Event;
use zoolet_engine::peer::TransferId;

/// Bytes that are read from a disk, sent and written to another disk at once.
pub(super) const CHUNK: usize = 128 << 10;
/// Chunks on the way, or waiting for the receiver's disk.
const AHEAD: u64 = 8;
/// What a receiver says for each chunk.
pub(super) const TAKEN: u8 = 1;

/// Below everything else of the link.
const PRIORITY: i32 = -1;
/// A snapshot that nobody asks for in this time is not wanted. A request whose snapshot does not come in this time was for one that is gone.
const ASKED: Duration = Duration::from_secs(60);

/// Snapshots that the peer of one link may fetch.
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

/// One of them.
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
    /// The link is over: nobody will ask.
    pub(super) fn end(&self) {
        let mut state = lock(&self.state);
        state.is_over = true;
        let waiting = std::mem::take(&mut state.waiting);
        drop(state);
        drop(waiting);
    }

    /// `false` gives it back to be dropped.
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

    /// The offer, as soon as it is there: it and the word of it travel on different ways.
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

/// Tells the machine how a transfer ended, once, whatever happens.
struct Sent {
    events: Arc<dyn PeerEvents>,
    transfer: TransferId,
    result: Result<(), String>,
}

impl Drop for Sent {
    fn drop(&mut self) {
        let result = std::mem::replace(&mut self.result, Ok(()));
        self.events.submit(&mut vec![Event::SnapshotSent { transfer: self.transfer, result }]);
    }
}

/// Has a snapshot ready for the peer of a link.
pub(super) fn offer(
    links: &Arc<Links>,
    link: Option<Arc<Link>>,
    transfer: TransferId,
    source: Box<dyn SnapshotBytes>,
    too_late: u32,
) {
    let result = Err("the link is gone".to_owned());
    let sent = Sent { events: links.events.clone(), transfer, result };
    let offer = Offer { source: OnDisk::new(source), too_late, sent };
    let Some(link) = link else { return };
    link.offers.put(offer);
    tokio::spawn(async move {
        tokio::select! {
            () = tokio::time::sleep(ASKED) => if let Some(mut offer) = link.offers.take_now(transfer) {
                offer.sent.result = Err("the peer did not ask for it".to_owned());
            },
            _ = link.connection.closed() => {}
        }
    });
}

/// Answers the requests of one link's peer.
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
                Err(failed) => return End::Wrong(format!("a task of this server's has failed: {failed}")),
            },
        }
    }
}

async fn answer(links: Arc<Links>, link: Arc<Link>, mut say: SendStream, mut hear: RecvStream) -> Result<(), End> {
    let request = match opening(&mut hear).await? {
        (Opening::SnapshotRequest(request), rest) if rest.is_empty() => request,
        (opening, _) => return Err(End::Wrong(format!("{opening:?} where a snapshot is asked for"))),
    };
    // A stream of a link that is over needs no priority.
    let _ = say.set_priority(PRIORITY);
    let Ok(mut offer) = timeout(ASKED, link.offers.take(request.transfer)).await else {
        let _ = reply(&mut say, SnapshotReply::Refused { reason: "there is no such snapshot".to_owned() }).await;
        return Ok(());
    };
    let result = match send(&links, &mut offer, request, &mut say, &mut hear).await {
        // The machine would close the link to a peer whose snapshot failed here; this one has other plans, and says so itself.
        Err(Unsent::Unwanted) => Ok(()),
        Err(Unsent::Failed(why)) => Err(why),
        Ok(()) => Ok(()),
    };
    if let Err(why) = &result {
        // Nothing that the receiver could take for the end.
        let _ = say.reset(0u32.into());
        tracing::info!("a snapshot for server {} was not sent: {why}", link.peer.as_u8());
    }
    offer.sent.result = result;
    Ok(())
}

/// Why a snapshot was not sent whole.
enum Unsent {
    /// The peer has given it up.
    Unwanted,
    Failed(String),
}

impl From<String> for Unsent {
    fn from(why: String) -> Self {
        Self::Failed(why)
    }
}

async fn send(
    links: &Links,
    Offer { source, too_late, .. }: &mut Offer,
    request: SnapshotRequest,
    say: &mut SendStream,
    hear: &mut RecvStream,
) -> Result<(), Unsent> {
    let bytes = source.call(|source| source.open()).await?.bytes;
    let SnapshotRequest { mut offset, .. } = request;
    if offset > bytes {
        let reason = format!("it has {bytes} bytes, {offset} of them are said to be there already");
        reply(say, SnapshotReply::Refused { reason: reason.clone() }).await.map_err(unwritten)?;
        return Err(Unsent::Failed(reason));
    }
    reply(say, SnapshotReply::Bytes { bytes }).await.map_err(unwritten)?;
    let mut ahead = Ahead::default();
    while offset < bytes {
        let wanted = CHUNK.min(usize::try_from(bytes - offset).unwrap_or(CHUNK));
        ahead.wait(hear).await?;
        links.bulk.take(counted(wanted, *too_late)).await;
        let chunk = source.call(move |source| read_whole(source.as_mut(), offset, wanted)).await?;
        offset += wanted as u64;
        ahead.sent += 1;
        say.write_chunk(chunk.into()).await.map_err(unwritten)?;
    }
    say.finish().map_err(|_| Unsent::Failed("the link is gone".to_owned()))
}

/// As how many bytes they count in the rate. A peer that each snapshot reaches too late would never be up to date, and the writes that the rate is there for would
/// soon have a peer less to count on.
fn counted(bytes: usize, too_late: u32) -> usize {
    bytes.checked_shr(too_late).unwrap_or(0)
}

/// `bytes` from `offset` on, however many a read gives.
fn read_whole(source: &mut dyn SnapshotBytes, offset: u64, bytes: usize) -> Result<Vec<u8>, String> {
    let mut chunk = source.read(offset, bytes)?;
    while chunk.len() < bytes {
        let more = source.read(offset + chunk.len() as u64, bytes - chunk.len())?;
        if more.is_empty() {
            break;
        }
        chunk.extend_from_slice(&more);
    }
    if chunk.len() == bytes { Ok(chunk) } else { Err("the snapshot is not as long as it said".to_owned()) }
}

/// How far the sender is.
#[derive(Default)]
struct Ahead {
    sent: u64,
    taken: u64,
}

impl Ahead {
    /// Waits until another chunk may be sent.
    async fn wait(&mut self, hear: &mut RecvStream) -> Result<(), Unsent> {
        while self.sent - self.taken >= AHEAD {
            let chunk = hear.read_chunk(AHEAD as usize, true).await.map_err(|error| error.to_string())?;
            let words = chunk.ok_or(Unsent::Unwanted)?;
            self.taken += words.bytes.len() as u64;
            if self.taken > self.sent {
                return Err(Unsent::Failed("the receiver has taken more than there was".to_owned()));
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

fn unwritten(error: WriteError) -> Unsent {
    match error {
        WriteError::Stopped(_) => Unsent::Unwanted,
        WriteError::ConnectionLost(_) => Unsent::Failed("the link is gone".to_owned()),
        error => Unsent::Failed(error.to_string()),
    }
}
