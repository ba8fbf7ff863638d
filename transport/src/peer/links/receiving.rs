//! Snapshots fetched from peers. The exchange is described in [`super::sending`].

use super::blocking::OnDisk;
use super::link::Link;
use super::sending::{CHUNK, TAKEN};
use super::{Links, lock};
use crate::peer::codec::{Opening, SnapshotReply, SnapshotRequest};
use crate::peer::instruction_queue::SnapshotTaker;
use bytes::BytesMut;
use quinn::{ReadError, RecvStream};
use std::collections::HashMap;
use std::sync::{Arc, Mutex};
use tokio::task::AbortHandle;
use zoolet_machine::Event;
use zoolet_machine::seam::peer::{NotReceived, ReceivedSnapshot, TransferId};
use zoolet_model::ServerId;

/// Below all other streams of the link.
const PRIORITY: i32 = -1;

type Taker = OnDisk<Box<dyn SnapshotTaker>>;

/// Transfers in progress.
#[derive(Debug, Default)]
pub(super) struct Incoming(Mutex<HashMap<(ServerId, TransferId), AbortHandle>>);

impl Incoming {
    /// Cancels a transfer without an event.
    pub(super) fn drop_one(&self, peer: ServerId, transfer: TransferId) {
        if let Some(task) = lock(&self.0).remove(&(peer, transfer)) {
            task.abort();
        }
    }
}

/// Starts a transfer. Its end is reported once, unless it is cancelled before.
pub(super) fn begin(
    links: &Arc<Links>,
    peer: ServerId,
    link: Option<Arc<Link>>,
    transfer: TransferId,
    taker: Box<dyn SnapshotTaker>,
) {
    let taker = OnDisk::new(taker);
    let Some(link) = link else {
        let result = Err(NotReceived::BrokeOff(gone()));
        return links.submit(Event::SnapshotReceived { peer, transfer, result });
    };
    // The task removes its handle under this lock, so it cannot finish before the handle is stored.
    let mut incoming = lock(&links.incoming.0);
    let task = tokio::spawn({
        let links = links.clone();
        async move {
            let result = receive(&link, transfer, taker).await;
            if lock(&links.incoming.0).remove(&(peer, transfer)).is_some() {
                links.submit(Event::SnapshotReceived { peer, transfer, result });
            }
        }
    });
    if let Some(before) = incoming.insert((peer, transfer), task.abort_handle()) {
        before.abort();
    }
}

async fn receive(link: &Link, transfer: TransferId, mut taker: Taker) -> Result<ReceivedSnapshot, NotReceived> {
    let offset = taker.call(|taker| taker.open()).await.map_err(NotReceived::NotTaken)?;
    let (mut say, mut hear) = link.connection.open_bi().await.map_err(|_| NotReceived::BrokeOff(gone()))?;
    let _ = say.set_priority(PRIORITY);
    let mut request = BytesMut::new();
    Opening::SnapshotRequest(SnapshotRequest { transfer, offset }).encode(&mut request);
    say.write_all(&request).await.map_err(|_| NotReceived::BrokeOff(gone()))?;
    let (bytes, mut chunk) = size(&mut hear).await.map_err(NotReceived::BrokeOff)?;
    let mut left = bytes.checked_sub(offset).ok_or_else(|| {
        NotReceived::BrokeOff("the peer's snapshot is shorter than the part already received".to_owned())
    })?;
    while left > 0 {
        let wanted = CHUNK.min(usize::try_from(left).unwrap_or(CHUNK));
        fill(&mut hear, &mut chunk, wanted).await.map_err(NotReceived::BrokeOff)?;
        let piece = chunk.split_to(wanted).freeze();
        taker.call(move |taker| taker.write(&piece)).await.map_err(NotReceived::NotTaken)?;
        left -= wanted as u64;
        // Fails when the sender has sent everything and left, which is harmless.
        let _ = say.write_all(&[TAKEN]).await;
    }
    match hear.read_chunk(1, true).await {
        Ok(None) if chunk.is_empty() => taker.last_call(|taker| taker.finish()).await.map_err(NotReceived::NotTaken),
        Ok(_) => Err(NotReceived::BrokeOff("the peer sent more bytes than announced".to_owned())),
        Err(error) => Err(NotReceived::BrokeOff(unread(&error))),
    }
}

/// Reads the reply. Returns the snapshot's total bytes, and the bytes received after the reply.
async fn size(hear: &mut RecvStream) -> Result<(u64, BytesMut), String> {
    let mut received = BytesMut::new();
    loop {
        match SnapshotReply::take(&mut received) {
            Ok(Some(SnapshotReply::Bytes { bytes })) => return Ok((bytes, received)),
            Ok(Some(SnapshotReply::Refused { reason })) => {
                return Err(format!("the peer refused the request: {}", reason.escape_debug()));
            }
            Ok(None) => more(hear, &mut received, CHUNK).await?,
            Err(error) => return Err(error.to_string()),
        }
    }
}

/// Reads until `chunk` holds `bytes`.
async fn fill(hear: &mut RecvStream, chunk: &mut BytesMut, bytes: usize) -> Result<(), String> {
    chunk.reserve(bytes.saturating_sub(chunk.len()));
    while chunk.len() < bytes {
        let wanted = bytes - chunk.len();
        more(hear, chunk, wanted).await?;
    }
    Ok(())
}

async fn more(hear: &mut RecvStream, into: &mut BytesMut, bytes_max: usize) -> Result<(), String> {
    match hear.read_chunk(bytes_max, true).await {
        Ok(Some(chunk)) => {
            into.extend_from_slice(&chunk.bytes);
            Ok(())
        }
        Ok(None) => Err("the peer ended the stream before the snapshot was complete".to_owned()),
        Err(error) => Err(unread(&error)),
    }
}

fn unread(error: &ReadError) -> String {
    match error {
        ReadError::Reset(_) => "the peer cancelled the transfer".to_owned(),
        ReadError::ConnectionLost(_) => gone(),
        error => error.to_string(),
    }
}

fn gone() -> String {
    "the link ended".to_owned()
}
