//! Reads a trace of `strace -f -xx`, and checks that every reply waited for the disk.
//!
//! strace stops a thread at the entry and at the exit of each system call, and writes one line per
//! stop. If the exit of a sync stands before the entry of a send, the sync had returned before the
//! send began. A server that waits for its sync cannot produce another order.
//!
//! A reply is judged by its zxid alone. The entry with that zxid must stand in a batch of the log
//! (docs/reference/formats.md). A sync of that file must have begun after the write of the batch
//! returned. The sync must have returned before the kernel received the first byte of the reply.
//! The same holds for replies to reads: the state they show must be durable.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::fmt;

/// The arguments for strace, before the output file and the program.
pub const ARGUMENTS: [&str; 8] = [
    "-D",
    "-f",
    "-xx",
    "-s",
    "1048576",
    "-e",
    "trace=openat,close,accept4,pwrite64,pwritev,pwritev2,write,writev,sendto,sendmsg,fdatasync,fsync",
    "-o",
];

/// The result of a valid trace.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Judged {
    /// Replies in the right order.
    pub replies: u64,
    /// Zxids in these replies.
    pub zxids: BTreeSet<i64>,
    /// Entries written.
    pub entries: u64,
    /// Syncs of a segment.
    pub syncs: u64,
}

/// Why a trace proves nothing, or proves a violation.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Fault {
    /// A reply left before its entry was durable.
    Early {
        /// The zxid of the reply.
        zxid: i64,
        /// The line of the trace where the reply left.
        line: usize,
        /// The line where the entry became durable; `None` if it never did.
        durable: Option<usize>,
    },
    /// A malformed line: its number and its text or error.
    Line(usize, String),
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Early { zxid, line, durable: Some(durable) } => {
                write!(f, "line {line}: the reply of {zxid:#x} leaves, and its entry is durable in line {durable}")
            }
            Self::Early { zxid, line, durable: None } => {
                write!(f, "line {line}: the reply of {zxid:#x} leaves, and its entry is never durable")
            }
            Self::Line(line, what) => write!(f, "line {line}: {what}"),
        }
    }
}

/// One call, or the part of it on one line.
#[derive(Clone, PartialEq, Eq, Debug)]
struct Call {
    name: String,
    arguments: String,
    start: usize,
}

/// Judges a whole trace.
///
/// # Errors
/// The first fault.
pub fn judge(trace: &str) -> Result<Judged, Fault> {
    let mut process = Process::default();
    let mut unfinished: HashMap<String, Call> = HashMap::new();
    for (line, text) in trace.lines().enumerate().map(|(line, text)| (line + 1, text)) {
        let Some((thread, rest)) = text.split_once(' ') else { continue };
        let rest = rest.trim_start();
        if rest.starts_with("+++") || rest.starts_with("---") {
            continue;
        }
        let wrong = || Fault::Line(line, text.chars().take(80).collect());
        if let Some(resumed) = rest.strip_prefix("<... ") {
            let mut call = unfinished.remove(thread).ok_or_else(wrong)?;
            let (_, tail) = resumed.split_once(" resumed>").ok_or_else(wrong)?;
            let (arguments, result) = split_result(tail).ok_or_else(wrong)?;
            call.arguments.push_str(arguments);
            process.exit(&call, line, result)?;
            continue;
        }
        let (name, tail) = rest.split_once('(').ok_or_else(wrong)?;
        let (arguments, result) = match tail.strip_suffix("<unfinished ...>") {
            Some(arguments) => (arguments, None),
            None => split_result(tail).map(|(arguments, result)| (arguments, Some(result))).ok_or_else(wrong)?,
        };
        let call = Call { name: name.to_owned(), arguments: arguments.to_owned(), start: line };
        process.enter(&call, line)?;
        match result {
            Some(result) => process.exit(&call, line, result)?,
            None => drop(unfinished.insert(thread.to_owned(), call)),
        }
    }
    process.finish()
}

/// Splits a call into arguments and result; strace pads the space between them.
fn split_result(tail: &str) -> Option<(&str, &str)> {
    let at = tail.rfind(" = ")?;
    let arguments = tail[..at].trim_end().strip_suffix(')')?;
    Some((arguments, tail[at + 3..].trim()))
}

/// State that the calls so far have produced.
#[derive(Default)]
struct Process {
    /// Open segments of the log, by file descriptor.
    segments: HashMap<i32, Segment>,
    /// Client connections, by file descriptor.
    clients: HashMap<i32, Stream>,
    /// The line at which each entry became durable.
    durable: BTreeMap<i64, usize>,
    /// Replies: the line where the first byte left, and the zxid.
    replies: Vec<(usize, i64)>,
    judged: Judged,
}

#[derive(Default)]
struct Segment {
    /// Entries whose write has returned, with no sync begun since.
    dirty: Vec<i64>,
    /// Entries under a sync in progress, by the line where the sync began.
    syncing: HashMap<usize, Vec<i64>>,
}

/// Bytes sent to one client.
#[derive(Default)]
struct Stream {
    bytes: Vec<u8>,
    /// The line where the first byte of `bytes` left.
    since: usize,
    greeted: bool,
}

impl Process {
    fn enter(&mut self, call: &Call, line: usize) -> Result<(), Fault> {
        let Some(fd) = fd_of(&call.arguments) else { return Ok(()) };
        match call.name.as_str() {
            "fdatasync" | "fsync" => {
                if let Some(segment) = self.segments.get_mut(&fd) {
                    // A sync covers only writes that returned before it began.
                    let dirty = std::mem::take(&mut segment.dirty);
                    segment.syncing.insert(line, dirty);
                }
            }
            "close" => {
                self.segments.remove(&fd);
                self.clients.remove(&fd);
            }
            _ => {}
        }
        Ok(())
    }

    fn exit(&mut self, call: &Call, line: usize, result: &str) -> Result<(), Fault> {
        let Some(result) = result.split_whitespace().next().and_then(|number| number.parse::<i64>().ok()) else {
            // The process was killed in the call.
            return Ok(());
        };
        let fd = fd_of(&call.arguments);
        match call.name.as_str() {
            "openat" if result >= 0 => {
                let path = strings(&call.arguments).map_err(|what| Fault::Line(call.start, what))?;
                let name = String::from_utf8_lossy(&path);
                if name.rsplit('/').next().is_some_and(|name| name.starts_with("seg-")) {
                    self.segments.insert(result as i32, Segment::default());
                }
            }
            "accept4" if result >= 0 => {
                self.clients.insert(result as i32, Stream::default());
            }
            "pwrite64" | "pwritev" | "pwritev2" if result > 0 => {
                if let Some(segment) = fd.and_then(|fd| self.segments.get_mut(&fd)) {
                    let bytes = strings(&call.arguments).map_err(|what| Fault::Line(call.start, what))?;
                    let written = bytes.get(..result as usize).unwrap_or(&bytes);
                    let zxids = entries(written);
                    self.judged.entries += zxids.len() as u64;
                    segment.dirty.extend(zxids);
                }
            }
            "fdatasync" | "fsync" => {
                if let Some(segment) = fd.and_then(|fd| self.segments.get_mut(&fd)) {
                    let synced = segment.syncing.remove(&call.start).unwrap_or_default();
                    if result == 0 {
                        self.judged.syncs += 1;
                        for zxid in synced {
                            self.durable.entry(zxid).or_insert(line);
                        }
                    }
                }
            }
            "write" | "writev" | "sendto" | "sendmsg" if result > 0 => {
                if let Some(stream) = fd.and_then(|fd| self.clients.get_mut(&fd)) {
                    let bytes = strings(&call.arguments).map_err(|what| Fault::Line(call.start, what))?;
                    stream.send(bytes.get(..result as usize).unwrap_or(&bytes), call.start, &mut self.replies);
                }
            }
            _ => {}
        }
        Ok(())
    }

    fn finish(mut self) -> Result<Judged, Fault> {
        for (line, zxid) in self.replies {
            let durable = self.durable.get(&zxid).copied();
            if durable.is_none_or(|durable| durable >= line) {
                return Err(Fault::Early { zxid, line, durable });
            }
            self.judged.replies += 1;
            self.judged.zxids.insert(zxid);
        }
        Ok(self.judged)
    }
}

impl Stream {
    /// Takes the bytes of a send that began at `line`.
    fn send(&mut self, bytes: &[u8], line: usize, replies: &mut Vec<(usize, i64)>) {
        if self.bytes.is_empty() {
            self.since = line;
        }
        self.bytes.extend_from_slice(bytes);
        loop {
            let Some(length) = self.bytes.first_chunk::<4>().map(|bytes| u32::from_be_bytes(*bytes) as usize) else {
                return;
            };
            let Some(frame) = self.bytes.get(4..4 + length) else { return };
            // The greeting names the session, whose id is the zxid of its creation. Later frames:
            // xid, zxid, error.
            let place = if self.greeted { 4 } else { 8 };
            if let Some(zxid) = frame.get(place..).and_then(|rest| rest.first_chunk::<8>()) {
                let zxid = i64::from_be_bytes(*zxid);
                if zxid > 0 {
                    replies.push((self.since, zxid));
                }
            }
            self.greeted = true;
            self.bytes.drain(..4 + length);
            self.since = line;
        }
    }
}

/// Returns the zxids in a batch of the log; empty for other bytes.
fn entries(batch: &[u8]) -> Vec<i64> {
    const HEADER: usize = 64;
    const ENTRY: u8 = 2;
    let u32_at =
        |at: usize| batch.get(at..).and_then(|rest| rest.first_chunk::<4>()).map(|word| u32::from_le_bytes(*word));
    let mut zxids = Vec::new();
    if !batch.starts_with(b"zlog") {
        return zxids;
    }
    let end = HEADER + u32_at(12).unwrap_or(0) as usize;
    let mut at = HEADER;
    while at + 5 <= end
        && let Some(length) = u32_at(at)
        && let Some(body) = batch.get(at + 5..at + 5 + length as usize)
    {
        if batch[at + 4] == ENTRY
            && let Some(zxid) = body.first_chunk::<8>()
        {
            zxids.push(i64::from_le_bytes(*zxid));
        }
        at += 5 + length as usize;
    }
    zxids
}

fn fd_of(arguments: &str) -> Option<i32> {
    arguments.split([',', ')', ' ']).next()?.parse().ok()
}

/// Concatenates all strings among the arguments.
fn strings(arguments: &str) -> Result<Vec<u8>, String> {
    let mut bytes = Vec::new();
    let mut rest = arguments;
    while let Some((_, string)) = rest.split_once('"') {
        let (string, after) = string.split_once('"').ok_or("a string without an end")?;
        if after.starts_with("...") {
            return Err("strace was told to cut strings".to_owned());
        }
        for code in string.split("\\x").skip(1) {
            bytes.push(u8::from_str_radix(code, 16).map_err(|_| format!("{code:?} is no byte"))?);
        }
        rest = after;
    }
    Ok(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn hex(bytes: &[u8]) -> String {
        bytes.iter().map(|byte| format!("\\x{byte:02x}")).collect()
    }

    fn batch(zxids: &[i64]) -> String {
        let records: Vec<u8> = zxids
            .iter()
            .flat_map(|zxid| [&13_u32.to_le_bytes()[..], &[2], &zxid.to_le_bytes(), b"entry"].concat())
            .collect();
        let mut bytes = [&b"zlog"[..], &[0; 8], &(records.len() as u32).to_le_bytes(), &[0; 48], &records].concat();
        bytes.resize(4096, 0);
        hex(&bytes)
    }

    fn reply(zxid: i64) -> Vec<u8> {
        [&16_u32.to_be_bytes()[..], &7_u32.to_be_bytes(), &zxid.to_be_bytes(), &[0; 4]].concat()
    }

    fn send(bytes: &[u8]) -> String {
        format!("3 sendto(21, \"{}\", {}, MSG_NOSIGNAL, NULL, 0) = {1}", hex(bytes), bytes.len())
    }

    /// The trace of a correct server up to the first request.
    fn start() -> Vec<String> {
        let greeting = [&37_u32.to_be_bytes()[..], &[0; 4], &[0; 4], &1_i64.to_be_bytes(), &[0; 21]].concat();
        vec![
            format!("1 openat(AT_FDCWD, \"{}\", O_RDWR|O_CLOEXEC) = 8", hex(b"/data/seg-00.log")),
            format!("1 openat(AT_FDCWD, \"{}\", O_RDWR|O_CLOEXEC) = 9", hex(b"/data/seg-01.log")),
            "3 accept4(5, 0x7ffe, [128], SOCK_CLOEXEC) = -1 EAGAIN (Resource temporarily unavailable)".to_owned(),
            "3 accept4(5, {sa_family=AF_INET, sin_port=htons(1)}, [128 => 16], SOCK_CLOEXEC) = 21".to_owned(),
            format!("2 pwrite64(8, \"{}\", 4096, 4096) = 4096", batch(&[1])),
            "2 fdatasync(8)                      = 0".to_owned(),
            send(&greeting),
        ]
    }

    fn judge_after_start(lines: &[String]) -> Result<Judged, Fault> {
        judge(&[&start(), lines].concat().join("\n"))
    }

    fn fault_after_start(lines: &[String]) -> Fault {
        judge_after_start(lines).unwrap_err()
    }

    fn pwrite() -> String {
        format!("2 pwrite64(8, \"{}\", 4096, 8192) = 4096", batch(&[2, 3]))
    }

    fn sync() -> String {
        "2 fdatasync(8) = 0".to_owned()
    }

    #[test]
    fn replies_after_their_sync_are_accepted() {
        let both = [reply(2), reply(3)].concat();
        let judged = judge_after_start(&[pwrite(), sync(), send(&both)]).unwrap();
        assert_eq!((judged.replies, judged.entries, judged.syncs), (3, 3, 2));
        assert_eq!(judged.zxids.into_iter().collect::<Vec<_>>(), [1, 2, 3]);
    }

    #[test]
    fn reply_before_its_sync_is_detected() {
        let fault = fault_after_start(&[pwrite(), send(&reply(2)), sync()]);
        assert_eq!(fault, Fault::Early { zxid: 2, line: 9, durable: Some(10) });
    }

    #[test]
    fn reply_during_its_sync_is_detected() {
        let begin = "2 fdatasync(8 <unfinished ...>".to_owned();
        let end = "2 <... fdatasync resumed>)          = 0".to_owned();
        let right = judge_after_start(&[pwrite(), begin.clone(), end.clone(), send(&reply(2))]);
        assert_eq!(right.unwrap().replies, 2);
        let fault = fault_after_start(&[pwrite(), begin, send(&reply(2)), end]);
        assert_eq!(fault, Fault::Early { zxid: 2, line: 10, durable: Some(11) });
    }

    #[test]
    fn sync_begun_before_the_write_returned_does_not_cover_the_write() {
        let begin = "4 fdatasync(8 <unfinished ...>".to_owned();
        let end = "4 <... fdatasync resumed>)          = 0".to_owned();
        let fault = fault_after_start(&[begin, pwrite(), end, send(&reply(2))]);
        assert_eq!(fault, Fault::Early { zxid: 2, line: 11, durable: None });
        let start = format!("2 pwrite64(8, \"{}\", 4096, 8192 <unfinished ...>", batch(&[2]));
        let done = "2 <... pwrite64 resumed>)           = 4096".to_owned();
        let fault = fault_after_start(&[start, "4 fdatasync(8) = 0".to_owned(), done, send(&reply(2))]);
        assert_eq!(fault, Fault::Early { zxid: 2, line: 11, durable: None });
    }

    #[test]
    fn failed_sync_or_sync_of_another_file_covers_no_write() {
        for useless in ["2 fdatasync(9) = 0", "2 fdatasync(8) = -1 EIO (Input/output error)"] {
            let fault = fault_after_start(&[pwrite(), useless.to_owned(), send(&reply(2))]);
            assert_eq!(fault, Fault::Early { zxid: 2, line: 10, durable: None });
        }
    }

    #[test]
    fn reply_for_an_unwritten_entry_is_detected() {
        let fault = fault_after_start(&[pwrite(), sync(), send(&reply(4))]);
        assert_eq!(fault, Fault::Early { zxid: 4, line: 10, durable: None });
    }

    #[test]
    fn partially_sent_reply_counts_from_its_first_byte() {
        let whole = reply(2);
        let (first, rest) = whole.split_at(3);
        let fault = fault_after_start(&[pwrite(), send(first), sync(), send(rest)]);
        assert_eq!(fault, Fault::Early { zxid: 2, line: 9, durable: Some(10) });
        let short = send(&reply(2)).replace("= 20", "= 3");
        let fault = fault_after_start(&[pwrite(), short, sync(), send(&reply(2)[3..])]);
        assert_eq!(fault, Fault::Early { zxid: 2, line: 9, durable: Some(10) });
    }

    #[test]
    fn replies_in_a_writev_of_many_buffers_are_parsed() {
        let (a, b) = (reply(2), reply(3));
        let line = format!(
            "3 writev(21, [{{iov_base=\"{}\", iov_len=20}}, {{iov_base=\"{}\", iov_len=20}}], 2) = 40",
            hex(&a),
            hex(&b)
        );
        assert_eq!(judge_after_start(&[pwrite(), sync(), line]).unwrap().replies, 3);
    }

    #[test]
    fn truncated_trace_is_refused_as_proof() {
        let line = "3 sendto(21, \"\\x00\\x00\"..., 20, MSG_NOSIGNAL, NULL, 0) = 20".to_owned();
        assert!(matches!(fault_after_start(&[line]), Fault::Line(8, _)));
    }
}
