//! Creates the znodes of a run in advance, and deletes them afterwards.
//!
//! Batches keep this fast even for a million znodes.

use super::course::Created;
use super::link::{Link, expect, unasked};
use super::options::{Op, Options};
use super::progress::Progress;
use super::requests::{KEY_DIGITS, NUMBER_DIGITS, create, delete, numbered, set};
use bytes::Bytes;
use std::cell::Cell;
use std::collections::VecDeque;
use std::io;
use zoolet_model::path::parent_and_name;
use zoolet_model::{CreateKind, ErrorCode, Reply, Request, WriteOp};
use zoolet_transport::wire::client_side::{Header, encode_request};

/// Bounds of a multi: number of operations, and bytes of their values.
///
/// Both are far below every server's frame bound.
const BATCH_OPS_MAX: usize = 250;
const BATCH_BYTES_MAX: usize = 100_000;
/// Multis in flight: enough for a server to share disk syncs among them.
const BATCHES_UNDER_WAY: usize = 16;

/// Data of our root znode, so that a root of another program is never deleted.
const OURS: &[u8] = b"zoolet bench";

/// Paths of all znodes of a run.
pub(super) struct Places {
    root: String,
}

impl Places {
    pub(super) fn of(options: &Options) -> Self {
        Self { root: options.path.clone() }
    }

    pub(super) fn keys(&self) -> String {
        format!("{}/keys", self.root)
    }

    /// Returns the path of a key up to its digits.
    pub(super) fn key_prefix(&self) -> String {
        format!("{}/keys/k", self.root)
    }

    fn created(&self) -> String {
        format!("{}/new", self.root)
    }

    /// Returns the path of a created znode up to its digits.
    pub(super) fn created_prefix(&self) -> String {
        format!("{}/new/c", self.root)
    }

    pub(super) fn watched(&self) -> String {
        format!("{}/watched", self.root)
    }

    fn locks(&self) -> String {
        format!("{}/locks", self.root)
    }

    /// Returns the path of a lock.
    pub(super) fn lock(&self, number: usize) -> String {
        format!("{}/locks/{number}", self.root)
    }
}

/// The znodes to delete after the run.
pub(super) struct Ground {
    places: Places,
    /// Ancestors of the root that this run created, in order of creation.
    above: Vec<String>,
    /// Number of keys that may exist.
    ///
    /// This run created or attempted them, or an earlier run kept them.
    keys: Cell<u64>,
}

impl Ground {
    pub(super) fn new(options: &Options) -> Self {
        Self { places: Places::of(options), above: Vec::new(), keys: Cell::new(0) }
    }

    /// Creates every znode that `options` need.
    ///
    /// # Errors
    /// Names the znode that could not be created, and the reason.
    pub(super) async fn prepare(
        &mut self,
        link: &mut Link,
        options: &Options,
        progress: &mut Progress,
    ) -> Result<(), String> {
        self.make_root(link).await?;
        match options.op {
            Op::Set | Op::Get | Op::Exists | Op::Children | Op::Mix => self.make_keys(link, options, progress).await,
            Op::Create | Op::CreateDelete => make(link, &self.places.created(), &[]).await.map(|_| ()),
            Op::Watch => make(link, &self.places.watched(), &vec![b'x'; options.size]).await.map(|_| ()),
            Op::Lock => {
                make(link, &self.places.locks(), &[]).await?;
                for number in 0..options.locks {
                    make(link, &self.places.lock(number), &[]).await?;
                }
                Ok(())
            }
        }
    }

    async fn make_root(&mut self, link: &mut Link) -> Result<(), String> {
        let mut above = Vec::new();
        let mut path = self.places.root.as_str();
        while let Some((parent, _)) = parent_and_name(path).filter(|(parent, _)| *parent != "/") {
            above.push(parent.to_owned());
            path = parent;
        }
        for path in above.into_iter().rev() {
            if make(link, &path, &[]).await? {
                self.above.push(path);
            }
        }
        make(link, &self.places.root, OURS).await.map(|_| ())
    }

    /// Creates the keys that do not exist yet.
    ///
    /// The parent's data records how many exist, so a run after `--keep` starts at once.
    async fn make_keys(&self, link: &mut Link, options: &Options, progress: &mut Progress) -> Result<(), String> {
        let parent = self.places.keys();
        let (kept, size) = if make(link, &parent, b"0 0").await? { (0, 0) } else { kept(link, &parent).await? };
        self.keys.set(kept);
        if kept >= options.keys && size == options.size as u64 {
            return Ok(());
        }
        let prefix = self.places.key_prefix();
        let data = Bytes::from(vec![b'x'; options.size]);
        let path = |number| numbered(&prefix, KEY_DIGITS, number);
        let make = |number| create(&path(number), &data, CreateKind::Persistent, false);
        progress.begin("created", options.keys);
        let numbers = (0..options.keys).inspect(|number| self.keys.set(kept.max(number + 1)));
        let mut failed = in_batches(link, numbers, options.size, make, progress).await?;
        // Keys of a killed run, or kept keys with values of another size.
        let existing: Vec<_> = failed.extract_if(.., |(_, error)| *error == ErrorCode::NodeExists.code()).collect();
        if failed.is_empty() {
            progress.begin("set", existing.len() as u64);
            let update = |number| set(&path(number), &data);
            let existing = existing.into_iter().map(|(number, _)| number);
            failed = in_batches(link, existing, options.size, update, progress).await?;
        }
        if let Some((number, error)) = failed.first() {
            return Err(format!("{}: the server answered {}", path(*number), named(*error)));
        }
        let note = Bytes::from(format!("{} {}", self.keys.get(), options.size));
        refused(ask(link, Request::Write(set(&parent, &note))).await?, &parent).map(|_| ())
    }

    /// Deletes the znodes of this run and those that an earlier run kept.
    ///
    /// A znode that does not exist is no error.
    ///
    /// # Errors
    /// Names the znode that could not be deleted, and the reason.
    pub(super) async fn clear(
        &self,
        link: &mut Link,
        created: &Created,
        progress: &mut Progress,
    ) -> Result<(), String> {
        let Self { places, above, keys } = self;
        let key = |number| delete(&numbered(&places.key_prefix(), KEY_DIGITS, number));
        progress.begin("deleted", keys.get());
        in_batches(link, 0..keys.get(), 0, key, progress).await?;
        let new = |number| delete(&numbered(&places.created_prefix(), NUMBER_DIGITS, number));
        for numbers in [0..created.count(), created.sequence()] {
            progress.begin("deleted", numbers.end - numbers.start);
            in_batches(link, numbers, 0, new, progress).await?;
        }
        for lock in self.locks(link).await? {
            unmake(link, &lock).await?;
        }
        for path in [places.keys(), places.created(), places.watched(), places.locks()] {
            unmake(link, &path).await?;
        }
        let root = Request::GetData { path: places.root.as_str().into(), watch: false };
        if matches!(ask(link, root).await?, Ok(Reply::Data(Some(data), _)) if data == OURS) {
            unmake(link, &places.root).await?;
        }
        for path in above.iter().rev() {
            unmake(link, path).await?;
        }
        Ok(())
    }

    async fn locks(&self, link: &mut Link) -> Result<Vec<String>, String> {
        let locks = self.places.locks();
        Ok(match ask(link, super::requests::children(&locks)).await? {
            Ok(Reply::Names(names)) => names.iter().map(|name| format!("{locks}/{name}")).collect(),
            _ => Vec::new(),
        })
    }
}

/// Returns the number of kept keys and the size of their values in bytes.
async fn kept(link: &mut Link, parent: &str) -> Result<(u64, u64), String> {
    let data = ask(link, Request::GetData { path: parent.into(), watch: false }).await?;
    let Reply::Data(Some(data), _) = refused(data, parent)? else { return Ok((0, 0)) };
    let mut numbers = std::str::from_utf8(&data).unwrap_or_default().split(' ').map_while(|word| word.parse().ok());
    Ok((numbers.next().unwrap_or(0), numbers.next().unwrap_or(0)))
}

/// Creates a znode, and returns whether it was absent before.
async fn make(link: &mut Link, path: &str, data: &[u8]) -> Result<bool, String> {
    let operation = create(path, &Bytes::copy_from_slice(data), CreateKind::Persistent, false);
    match ask(link, Request::Write(operation)).await? {
        Err(error) if error == ErrorCode::NodeExists.code() => Ok(false),
        outcome => refused(outcome, path).map(|_| true),
    }
}

/// Deletes a znode; the server refuses it if other programs left children there.
async fn unmake(link: &mut Link, path: &str) -> Result<(), String> {
    match ask(link, Request::Write(delete(path))).await? {
        Err(error) if error == ErrorCode::NoNode.code() => Ok(()),
        outcome => refused(outcome, path).map(|_| ()),
    }
}

async fn ask(link: &mut Link, request: Request) -> Result<Result<Reply, i32>, String> {
    link.ask(&request).await.map_err(|error| lost(link, &error))
}

fn refused(outcome: Result<Reply, i32>, path: &str) -> Result<Reply, String> {
    outcome.map_err(|error| format!("{path}: the server answered {}", named(error)))
}

/// Returns the name of an error code.
pub(super) fn named(error: i32) -> String {
    ErrorCode::from_code(error).map_or_else(|| format!("error {error}"), |code| format!("{code:?}"))
}

fn lost(link: &Link, error: &io::Error) -> String {
    format!("lost {}: {error}", link.address())
}

/// Runs one operation for each number, in multis.
///
/// The operations of a failed multi are repeated singly. Returns each number that failed singly as
/// well, with its error code.
async fn in_batches(
    link: &mut Link,
    numbers: impl Iterator<Item = u64>,
    value_bytes: usize,
    operation: impl Fn(u64) -> WriteOp,
    progress: &mut Progress,
) -> Result<Vec<(u64, i32)>, String> {
    let batch = (BATCH_BYTES_MAX / value_bytes.max(1)).clamp(1, BATCH_OPS_MAX);
    let mut numbers = numbers.peekable();
    let batches = std::iter::from_fn(|| {
        numbers.peek()?;
        Some(numbers.by_ref().take(batch).collect::<Vec<_>>())
    });
    let multi = |batch: &Vec<u64>| Request::Multi(batch.iter().map(|number| operation(*number)).collect());
    let mut again = Vec::new();
    let sent = pipeline(link, batches, BATCHES_UNDER_WAY, multi, |batch, error| match error {
        0 => progress.done(batch.len()),
        _ => again.extend(batch),
    });
    sent.await.map_err(|error| lost(link, &error))?;
    let single = |number: &u64| Request::Write(operation(*number));
    let mut failed = Vec::new();
    let sent = pipeline(link, again.into_iter(), BATCH_OPS_MAX, single, |number, error| {
        progress.done(1);
        if error != 0 {
            failed.push((number, error));
        }
    });
    sent.await.map_err(|error| lost(link, &error))?;
    Ok(failed)
}

/// Sends a request per item of `work`, and passes each answer's error code to `answered`.
///
/// At most `under_way_max` requests are in flight.
async fn pipeline<T>(
    link: &mut Link,
    mut work: impl Iterator<Item = T>,
    under_way_max: usize,
    request: impl Fn(&T) -> Request,
    mut answered: impl FnMut(T, i32),
) -> io::Result<()> {
    let mut under_way = VecDeque::with_capacity(under_way_max);
    loop {
        while under_way.len() < under_way_max {
            let Some(item) = work.next() else { break };
            let xid = link.next_xid();
            encode_request(xid, &request(&item), &mut link.out);
            under_way.push_back((xid, item));
        }
        if under_way.is_empty() {
            return Ok(());
        }
        link.exchange().await?;
        while let Some((header, frame)) = link.next_reply()? {
            let (xid, item) = under_way.pop_front().ok_or_else(|| unasked(header))?;
            expect(xid, header)?;
            answered(item, outcome(header, frame));
        }
    }
}

/// Returns the error code of a reply, also for a failed multi.
///
/// The header of a failed multi shows no error. Each of its results is an error, so its first four
/// bytes are -1. No other reply to these requests begins with -1.
fn outcome(header: Header, frame: &[u8]) -> i32 {
    let body = &frame[Header::BYTES.min(frame.len())..];
    let is_failed_multi = header.error == 0 && body.first_chunk() == Some(&(-1_i32).to_be_bytes());
    if is_failed_multi { ErrorCode::RuntimeInconsistency.code() } else { header.error }
}
