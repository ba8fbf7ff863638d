//! Records on their way to the log.

use crate::limits::Limits;
use crate::seam::action::{Append, LogRecord, LogRecords};
use bytes::Bytes;
use std::collections::VecDeque;
use zoolet_model::Zxid;
use zoolet_zab::AppendSeq;

/// Records that the protocol has requested, and appends that the log has not persisted yet.
#[derive(Debug)]
pub(in crate::server) struct LogQueue {
    /// Records to hand to the log.
    unsent: Vec<LogRecord>,
    /// Chain hash before the first of `unsent`, if that is an entry.
    expect: Option<u128>,
    /// Append number of the last of `unsent`.
    unsent_seq: Option<AppendSeq>,
    /// Appends in flight to the log, with their payload bytes.
    unpersisted: VecDeque<(AppendSeq, u64)>,
    /// Payload bytes of all entries proposed and not yet persisted.
    unpersisted_bytes: u64,
    /// Size of a log segment, and its largest unused tail, in bytes. A tail stays unused because
    /// the next entry does not fit.
    segment_bytes: (u64, u64),
    bytes_used: u64,
    /// Checkpoint up to which the log had recycled segments at its last report.
    checkpoint: Zxid,
}

impl LogQueue {
    pub(in crate::server) fn new(limits: &Limits, bytes_used: u64, checkpoint: Zxid) -> Self {
        let segment_bytes = u64::from(limits.log_segment_bytes);
        Self {
            unsent: Vec::new(),
            expect: None,
            unsent_seq: None,
            unpersisted: VecDeque::new(),
            unpersisted_bytes: 0,
            segment_bytes: (segment_bytes, u64::from(limits.frame_bytes_max).min(segment_bytes / 2)),
            bytes_used,
            checkpoint,
        }
    }

    /// Returns log bytes in use. They include appends in flight and the segment tails that those
    /// may waste.
    pub(in crate::server) fn bytes(&self) -> u64 {
        let (segment, lost) = self.segment_bytes;
        self.bytes_used + self.unpersisted_bytes * segment / (segment - lost).max(1)
    }

    pub(in crate::server) fn bytes_used(&self) -> u64 {
        self.bytes_used
    }

    pub(in crate::server) fn checkpoint(&self) -> Zxid {
        self.checkpoint
    }

    /// Counts a proposed entry, whose append the protocol has not requested yet.
    pub(in crate::server) fn expect_entry(&mut self, payload: &Bytes) {
        self.unpersisted_bytes += payload.len() as u64;
    }

    /// Queues an entry. `chain` is the chain hash before it, and `is_counted` says that it was
    /// counted when it was proposed.
    pub(in crate::server) fn entry(&mut self, chain: u128, zxid: Zxid, payload: Bytes, is_counted: bool) {
        if self.unsent.is_empty() {
            self.expect = Some(chain);
        }
        if !is_counted {
            self.unpersisted_bytes += payload.len() as u64;
        }
        self.unsent.push(LogRecord::Entry { zxid, payload });
    }

    /// Queues a fact, a record other than an entry.
    pub(in crate::server) fn fact(&mut self, seq: AppendSeq, fact: LogRecord) {
        self.unsent.push(fact);
        self.unsent_seq = Some(seq);
    }

    /// Sets the append number of the entries that follow.
    pub(in crate::server) fn begin(&mut self, seq: AppendSeq) {
        self.unsent_seq = Some(seq);
    }

    /// Takes everything queued, as one append.
    pub(in crate::server) fn hand_over(&mut self, watermark: Zxid) -> Option<Append> {
        let seq = self.unsent_seq.take()?;
        let records = LogRecords::drain(&mut self.unsent);
        self.unpersisted.push_back((seq, records.iter().map(payload_bytes).sum()));
        Some(Append { seq, records, watermark, expect: self.expect.take() })
    }

    /// Notes the log's report: every append up to `seq` is durable.
    pub(in crate::server) fn persisted(&mut self, seq: AppendSeq, bytes_used: u64, checkpoint: Zxid) {
        (self.bytes_used, self.checkpoint) = (bytes_used, checkpoint);
        while let Some(&(appended, bytes)) = self.unpersisted.front()
            && appended <= seq
        {
            self.unpersisted.pop_front();
            self.unpersisted_bytes -= bytes;
        }
    }

    /// Returns the maintained number of unpersisted bytes, and a recount without the proposed entries.
    pub(in crate::server) fn derived(&self) -> (usize, usize) {
        let unsent = self.unsent.iter().map(payload_bytes).sum::<u64>();
        let appended = self.unpersisted.iter().map(|&(_, bytes)| bytes).sum::<u64>();
        (self.unpersisted_bytes as usize, (unsent + appended) as usize)
    }
}

fn payload_bytes(record: &LogRecord) -> u64 {
    if let LogRecord::Entry { payload, .. } = record { payload.len() as u64 } else { 0 }
}
