//! Messages between a process and its peers, log reads for them, and snapshot transfers.

use super::thread::Thread;
use super::{Job, Process, Stopped, check_alive};
use crate::ensemble::host::Context;
use crate::ensemble::link;
use crate::ensemble::world::Happening;
use crate::ensemble::{Carrier, Landed, Rank, Said};
use std::collections::BTreeMap;
use std::sync::Arc;
use zoolet_machine::seam::action::{Generation, ReadLog};
use zoolet_machine::seam::event::BaseFailure;
use zoolet_machine::seam::peer::{
    Incarnation, Lane, LinkId, LogRange, LogReadFailure, NotReceived, NotSent, PeerMessage, ReceivedSnapshot,
    TransferId,
};
use zoolet_machine::{Event, Limits};
use zoolet_store::base::{Base, BaseReader};
use zoolet_store::image::ImageError;
use zoolet_store::log::ReadError;
use zoolet_store::{MeteredDisk, SnapshotSink, SnapshotSource};
use zoolet_zab::ServerId;

/// Streams of a link: one for each of the two reliable lanes, and one for snapshots.
const LOG_STREAM: usize = 0;
const FORWARD_STREAM: usize = 1;
const BULK_STREAM: usize = 2;
/// Bytes of a snapshot in one message.
const CHUNK_BYTES: usize = 16 << 10;

/// Work for peers that takes time.
#[derive(Debug)]
pub(in crate::ensemble) enum PeerJob {
    Read(ReadLog),
    Chunk { peer: ServerId, link: LinkId, transfer: TransferId, source: Arc<SnapshotSource>, offset: u64 },
    Open { peer: ServerId, link: LinkId, transfer: TransferId, reader: Result<BaseReader, BaseFailure> },
    Write { peer: ServerId, transfer: TransferId },
    Install { base: u64 },
}

/// A snapshot that is being received.
#[derive(Debug, Default)]
struct Incoming {
    /// Parts that arrived and are not written yet.
    chunks: std::collections::VecDeque<Vec<u8>>,
    /// `None` while more may arrive, `Ok` once everything did, an error if the rest is lost.
    end: Option<Result<(), String>>,
    /// The id of the base being built, and its writer.
    sink: Option<(u64, SnapshotSink)>,
    is_wanted: bool,
    is_writing: bool,
}

/// The links of this process, and its snapshot transfers.
#[derive(Debug, Default)]
pub(super) struct PeerThreads {
    links: BTreeMap<ServerId, LinkId>,
    /// The number of the process at the other end of each link.
    processes: BTreeMap<LinkId, u64>,
    incoming: BTreeMap<(ServerId, TransferId), Incoming>,
    /// A complete and durable snapshot that may become the base, with its transfer.
    received: Option<((ServerId, TransferId), Base)>,
    reading: Thread<ReadLog>,
}

impl PeerThreads {
    /// Returns the number of links.
    pub(super) fn links(&self) -> usize {
        self.links.len()
    }
}

impl Process {
    /// Handles a link that went up or down, or a message from a peer.
    ///
    /// The caller calls [`Process::settle`] afterwards.
    pub(in crate::ensemble) fn landed(&mut self, cx: &mut Context<'_>, landed: Landed<Said>) {
        match landed {
            Landed::Up { peer, link, process, .. } => {
                let link = LinkId(link.0);
                self.peers.links.insert(peer, link);
                self.peers.processes.insert(link, process);
                let disk = Incarnation(cx.around.incarnation_of(peer, process));
                self.tell(Event::PeerUp { peer, link, disk });
            }
            Landed::Down { peer, link, .. } => self.link_down(cx, peer, LinkId(link.0)),
            Landed::Message { peer, link, message: Said::Message(message), .. } => {
                self.tell(Event::PeerMessage { peer, link: LinkId(link.0), message });
            }
            Landed::Message { peer, message: Said::Chunk { transfer, bytes }, .. } => {
                let incoming = self.peers.incoming.entry((peer, transfer)).or_default();
                match bytes {
                    Some(bytes) => incoming.chunks.push_back(bytes),
                    None => incoming.end = Some(Ok(())),
                }
                self.write_snapshot(cx, peer, transfer);
            }
        }
    }

    /// Handles the end of a link, which breaks off the snapshots that arrive on it.
    ///
    /// The caller calls [`Process::settle`] afterwards.
    pub(in crate::ensemble) fn link_down(&mut self, cx: &mut Context<'_>, peer: ServerId, link: LinkId) {
        if self.peers.links.get(&peer) == Some(&link) {
            self.peers.links.remove(&peer);
            let lost: Vec<_> = self.peers.incoming.keys().copied().filter(|(from, _)| *from == peer).collect();
            for (peer, transfer) in lost {
                if let Some(incoming) = self.peers.incoming.get_mut(&(peer, transfer)) {
                    incoming.end.get_or_insert(Err("the link is gone".into()));
                }
                self.write_snapshot(cx, peer, transfer);
            }
        }
        self.tell(Event::PeerDown { peer, link });
    }

    /// Tells the witness about an event that the core hears now.
    pub(super) fn note_heard(&self, cx: &mut Context<'_>, event: &Event) {
        let witness = &mut cx.around.witness;
        match event {
            Event::PeerUp { peer, .. } | Event::PeerDown { peer, .. } => witness.parted(cx.now_us, cx.id, *peer),
            Event::PeerMessage { peer, link, message } => {
                let process = self.peers.processes.get(link).copied().unwrap_or_default();
                witness.received(cx.now_us, cx.id, *peer, process, message);
            }
            _ => {}
        }
    }

    pub(super) fn say(&mut self, cx: &mut Context<'_>, peer: ServerId, link: LinkId, message: PeerMessage) {
        if self.peers.links.get(&peer) != Some(&link) {
            // The link went down in this turn.
            return;
        }
        cx.around.witness.sent(cx.now_us, cx.id, peer, link, &message);
        let carrier = match message.lane() {
            Lane::Datagram => Carrier::Datagram,
            Lane::Log => Carrier::Stream(LOG_STREAM),
            Lane::Forward => Carrier::Stream(FORWARD_STREAM),
        };
        cx.around.links.send(cx.now_us, cx.id, link::LinkId(link.0), carrier, Said::Message(message));
    }

    pub(super) fn close_link(&mut self, cx: &mut Context<'_>, peer: ServerId, link: LinkId, reason: &str) {
        cx.around.witness.refused(cx.now_us, cx.id, peer, reason);
        cx.around.links.close(cx.now_us, cx.id, link::LinkId(link.0));
        let happening = Happening::LinkClosed { server: cx.id, process: self.number, peer, link };
        cx.around.agenda.after(1, happening);
    }

    pub(super) fn read_log(&mut self, cx: &mut Context<'_>, read: ReadLog) {
        self.peers.reading.ask(read);
        self.read_next(cx);
    }

    fn read_next(&mut self, cx: &mut Context<'_>) {
        if let Some(read) = self.peers.reading.begin() {
            let spent_us = cx.speed.read_us();
            at(cx, cx.now_us + spent_us, PeerJob::Read(read));
        }
    }

    pub(super) fn send_snapshot(
        &mut self,
        cx: &mut Context<'_>,
        peer: ServerId,
        link: LinkId,
        transfer: TransferId,
        generation: Generation,
    ) {
        let spent_us = cx.speed.read_us() * 4;
        let reader = self.base.reader_of(generation).cloned();
        at(cx, cx.now_us + spent_us, PeerJob::Open { peer, link, transfer, reader });
    }

    pub(super) fn receive_snapshot(
        &mut self,
        cx: &mut Context<'_>,
        peer: ServerId,
        link: LinkId,
        transfer: TransferId,
    ) {
        let is_there = self.peers.links.get(&peer) == Some(&link);
        let incoming = self.peers.incoming.entry((peer, transfer)).or_default();
        incoming.is_wanted = true;
        if !is_there {
            incoming.end.get_or_insert(Err("the link is gone".into()));
        }
        self.write_snapshot(cx, peer, transfer);
    }

    pub(super) fn drop_snapshot(&mut self, peer: ServerId, transfer: TransferId) {
        self.peers.incoming.remove(&(peer, transfer));
        // A snapshot that another transfer brought may be about to be installed.
        self.peers.received.take_if(|(of, _)| *of == (peer, transfer));
    }

    pub(super) fn install_snapshot(&mut self, cx: &mut Context<'_>, base: u64) {
        let spent_us = cx.speed.sync_us(cx.now_us);
        at(cx, cx.now_us + spent_us, PeerJob::Install { base });
    }

    fn write_snapshot(&mut self, cx: &mut Context<'_>, peer: ServerId, transfer: TransferId) {
        let Some(incoming) = self.peers.incoming.get_mut(&(peer, transfer)) else { return };
        let has_work = !incoming.chunks.is_empty() || incoming.end.is_some();
        if incoming.is_wanted && !incoming.is_writing && has_work {
            incoming.is_writing = true;
            let spent_us = cx.speed.sync_us(cx.now_us);
            at(cx, cx.now_us + spent_us, PeerJob::Write { peer, transfer });
        }
    }

    pub(super) fn on_peer_job(&mut self, cx: &mut Context<'_>, job: PeerJob) -> Result<(), Stopped> {
        match job {
            PeerJob::Read(ReadLog { id, after, to, bytes_max }) => {
                self.peers.reading.end();
                self.read_next(cx);
                let result = match self.log.log.read_entries(after, to, bytes_max) {
                    Ok(read) => Ok(LogRange { chain_before: read.chain, entries: read.entries }),
                    Err(ReadError::Gone) => Err(LogReadFailure::Gone),
                    Err(ReadError::Log(error)) => Err(LogReadFailure::Unreadable(error.to_string())),
                };
                self.tell(Event::LogRead { id, result });
                Ok(())
            }
            PeerJob::Open { peer, link, transfer, reader } => {
                self.on_open(cx, peer, link, transfer, reader);
                Ok(())
            }
            PeerJob::Chunk { peer, link, transfer, source, offset } => {
                self.on_chunk(cx, peer, link, transfer, source, offset);
                Ok(())
            }
            PeerJob::Write { peer, transfer } => self.on_write(cx, peer, transfer),
            PeerJob::Install { base } => self.on_install(cx, base),
        }
    }

    fn on_open(
        &mut self,
        cx: &mut Context<'_>,
        peer: ServerId,
        link: LinkId,
        transfer: TransferId,
        reader: Result<BaseReader, BaseFailure>,
    ) {
        let source = reader.map_err(ImageError::Source).and_then(|reader| {
            let chain = self.log.log.chain_at(reader.meta().zxid).map_err(|error| ImageError::Io(error.to_string()))?;
            SnapshotSource::open(reader, chain)
        });
        match source {
            Ok(source) => self.on_chunk(cx, peer, link, transfer, Arc::new(source), 0),
            Err(error) => self.not_sent(transfer, error),
        }
    }

    /// Reports that a transfer to a peer failed.
    fn not_sent(&mut self, transfer: TransferId, error: ImageError) {
        self.tell(Event::SnapshotSent { transfer, result: Err(NotSent::Failed(error.to_string())) });
        self.note_damage(&error.into());
    }

    fn on_chunk(
        &mut self,
        cx: &mut Context<'_>,
        peer: ServerId,
        link: LinkId,
        transfer: TransferId,
        source: Arc<SnapshotSource>,
        offset: u64,
    ) {
        let is_there = self.peers.links.get(&peer) == Some(&link);
        let bytes = match source.read(offset, CHUNK_BYTES) {
            Ok(bytes) if is_there => bytes,
            Ok(_) => return self.not_sent(transfer, ImageError::Io("the link is gone".to_owned())),
            Err(error) => return self.not_sent(transfer, error),
        };
        let next = offset + bytes.len() as u64;
        let mut send = |bytes| {
            let said = Said::Chunk { transfer, bytes };
            cx.around.links.send(cx.now_us, cx.id, link::LinkId(link.0), Carrier::Stream(BULK_STREAM), said);
        };
        send(Some(bytes));
        if next < source.bytes() {
            let spent_us = cx.speed.read_us() + 100;
            at(cx, cx.now_us + spent_us, PeerJob::Chunk { peer, link, transfer, source, offset: next });
            return;
        }
        send(None);
        self.tell(Event::SnapshotSent { transfer, result: Ok(()) });
    }

    fn on_write(&mut self, cx: &mut Context<'_>, peer: ServerId, transfer: TransferId) -> Result<(), Stopped> {
        let Some(incoming) = self.peers.incoming.get_mut(&(peer, transfer)) else {
            // The machine dropped the snapshot during this write. It hears the outcome after it has
            // forgotten the transfer.
            let result = Err(NotReceived::BrokeOff("it is not wanted any more".to_owned()));
            self.tell(Event::SnapshotReceived { peer, transfer, result });
            return Ok(());
        };
        incoming.is_writing = false;
        let mut outcome = match &incoming.end {
            Some(Err(why)) => Err(NotReceived::BrokeOff(why.clone())),
            Some(Ok(())) | None => Ok(()),
        };
        while let (Ok(()), Some(chunk)) = (&outcome, incoming.chunks.pop_front()) {
            let begun = match incoming.sink.take() {
                Some(sink) => Ok(sink),
                None => begin_base(cx, &self.limits),
            };
            outcome = begun.map_err(NotReceived::NotTaken).and_then(|(id, mut sink)| {
                sink.write(&chunk).map_err(|error| NotReceived::NotTaken(error.to_string()))?;
                incoming.sink = Some((id, sink));
                Ok(())
            });
        }
        check_alive(cx)?;
        if outcome.is_ok() && incoming.end.is_none() {
            return Ok(());
        }
        let sink = self.peers.incoming.remove(&(peer, transfer)).and_then(|incoming| incoming.sink);
        let finished = outcome.and_then(|()| {
            let (id, sink) = sink.ok_or_else(|| NotReceived::BrokeOff("nothing came".to_owned()))?;
            let received = sink.finish().map_err(|error| NotReceived::NotTaken(error.to_string()))?;
            let state = received.state.ok_or_else(|| NotReceived::NotTaken("a snapshot of nothing".to_owned()))?;
            self.peers.received = Some(((peer, transfer), received.base));
            Ok(ReceivedSnapshot { base: id, state })
        });
        check_alive(cx)?;
        self.tell(Event::SnapshotReceived { peer, transfer, result: finished });
        Ok(())
    }

    fn on_install(&mut self, cx: &mut Context<'_>, base: u64) -> Result<(), Stopped> {
        let received = self.peers.received.take_if(|(_, received)| received.id() == base);
        let Some((_, received)) = received else { return Err(Stopped(format!("base {base} was not received"))) };
        let zxid = received.meta().zxid;
        cx.meter.serve_base(base);
        let generation = self.base.replace(received);
        check_alive(cx)?;
        cx.around.witness.installed(cx.now_us, cx.id, zxid);
        self.log.log.recycle(zxid);
        self.installed = Some(zxid);
        self.tell(Event::SnapshotInstalled { generation });
        self.recycled(cx, zxid);
        Ok(())
    }
}

/// Begins a base with an id that no other base on this disk has.
///
/// A lost base may still be on the disk, and so may the remains of another one after a crash.
fn begin_base(cx: &Context<'_>, limits: &Limits) -> Result<(u64, SnapshotSink), String> {
    let ids = Base::list(cx.disk).map_err(|error| error.to_string())?;
    let id = ids.last().map_or(0, |id| id + 1);
    let sink = SnapshotSink::begin(Arc::new(MeteredDisk::new(cx.disk.clone(), Arc::clone(cx.meter))), id, limits)
        .map_err(|error| error.to_string())?;
    Ok((id, sink))
}

fn at(cx: &mut Context<'_>, at_us: u64, job: PeerJob) {
    let happening = Happening::Job { server: cx.id, process: cx.process, job: Job::Peer(Box::new(job)) };
    cx.around.agenda.at(at_us, Rank::News, happening);
}
