//! One connection under load: keeps its window of requests full as answers arrive, in order.

use super::course::Course;
use super::ground::Places;
use super::keys::Keys;
use super::link::{Back, Link, expect, unasked};
use super::measured::{Measured, Sort};
use super::options::{Op, Options};
use super::pace::Pace;
use super::requests::{KEY_DIGITS, NUMBER_DIGITS, Template, children, create, delete, set};
use bytes::{Bytes, BytesMut};
use std::collections::VecDeque;
use std::io;
use std::rc::Rc;
use tokio::select;
use zoolet_model::{CreateKind, Request};

/// Maximum sleep before a waiting connection checks again whether the run has ended, in
/// nanoseconds.
const LOOK_AGAIN_NS: u64 = 100_000_000;

/// Runs connection `number` to the end of the course.
///
/// # Errors
/// No server is reachable any more, or a server does not speak the protocol.
pub(super) async fn load(course: Rc<Course>, link: Link, number: usize) -> Result<(), String> {
    let options = &course.options;
    let pace = options.rate.map(|rate| Pace::new(rate, number, options.connections)).transpose();
    let mut load = Load {
        link,
        under_way: VecDeque::with_capacity(options.outstanding),
        requests: Requests::new(options, number),
        pace: pace.map_err(|error| format!("no timer: {error}"))?,
        course: course.clone(),
    };
    loop {
        load.fill();
        if load.under_way.is_empty() && course.is_over(course.now()) {
            break;
        }
        let outcome = match load.turn().await {
            Ok(()) => load.take(),
            Err(error) => Err(error),
        };
        if let Err(broken) = outcome {
            load.come_back(broken).await?;
        }
    }
    load.link.close().await;
    Ok(())
}

struct Load {
    course: Rc<Course>,
    link: Link,
    /// Requests in flight, in the order sent, which is also the order of the answers.
    under_way: VecDeque<Sent>,
    requests: Requests,
    pace: Option<Pace>,
}

struct Sent {
    /// When it was sent, or was due.
    at: u64,
    xid: i32,
    sort: Sort,
}

impl Load {
    /// Encodes the requests that may be sent now.
    fn fill(&mut self) {
        let now = self.course.now();
        while self.under_way.len() < self.course.options.outstanding {
            let at = match &mut self.pace {
                None => now,
                Some(pace) if pace.due() <= now => pace.due(),
                Some(_) => return,
            };
            if !self.course.admit(at) {
                return;
            }
            if let Some(pace) = &mut self.pace {
                pace.advance();
            }
            let xid = self.link.next_xid();
            let sort = self.requests.append(&self.course, xid, &mut self.link.out);
            self.under_way.push_back(Sent { at, xid, sort });
        }
    }

    /// Sends, and waits for an answer or until the next request is due.
    async fn turn(&mut self) -> io::Result<()> {
        let now = self.course.now();
        // After the end of the run, do not wait for due requests. That wait would end at once,
        // again and again, and starve the reading of answers.
        let more = self.under_way.len() < self.course.options.outstanding && !self.course.is_over(now);
        match &mut self.pace {
            Some(pace) if more => {
                let wait = pace.due().saturating_sub(now).min(LOOK_AGAIN_NS);
                select! {
                    biased;
                    exchanged = self.link.exchange() => exchanged,
                    waited = pace.wait(wait) => waited,
                }
            }
            Some(_) | None => self.link.exchange().await,
        }
    }

    /// Counts every answer that has arrived.
    fn take(&mut self) -> io::Result<()> {
        let now = self.course.now();
        let note_sequence = self.course.options.sequential;
        let mut measured = self.course.measured.borrow_mut();
        while let Some((header, frame)) = self.link.next_reply()? {
            let sent = self.under_way.pop_front().ok_or_else(|| unasked(header))?;
            expect(sent.xid, header)?;
            if self.course.counts(sent.at) {
                measured.answered(sent.sort, header.error, sent.at, now);
            }
            if note_sequence {
                self.course.created.saw_sequence(header, frame);
            }
        }
        Ok(())
    }

    async fn come_back(&mut self, broken: io::Error) -> Result<(), String> {
        let lost = self.under_way.drain(..).filter(|sent| self.course.counts(sent.at)).count();
        self.course.measured.borrow_mut().lost += lost as u64;
        come_back(&self.course, &mut self.link, broken).await
    }
}

/// Reconnects, and counts the break.
///
/// # Errors
/// No server is reachable any more, or a server does not speak the protocol.
pub(super) async fn come_back(course: &Course, link: &mut Link, broken: io::Error) -> Result<(), String> {
    let back = link.recover(broken).await?;
    let Measured { reconnects, sessions_lost, .. } = &mut *course.measured.borrow_mut();
    *reconnects += 1;
    *sessions_lost += u64::from(back == Back::NewSession);
    Ok(())
}

/// Generates the requests of a connection.
struct Requests {
    keys: Keys,
    kind: Kind,
}

enum Kind {
    Read(Template),
    Write(Template),
    Mix { read: Template, write: Template, read_percent: u64 },
    Create(Template),
    CreateDelete { create: Template, delete: Template, to_delete: Option<u64> },
}

impl Requests {
    fn new(options: &Options, number: usize) -> Self {
        let keys = Keys::new(options.distribution, options.keys, options.seed, number, options.connections);
        Self { keys, kind: Kind::new(options) }
    }

    fn append(&mut self, course: &Course, xid: i32, out: &mut BytesMut) -> Sort {
        match &mut self.kind {
            Kind::Mix { read, read_percent, .. } if self.keys.random().below(100) < *read_percent => {
                read.append(xid, self.keys.next(), out);
                Sort::Read
            }
            Kind::Read(read) => {
                read.append(xid, self.keys.next(), out);
                Sort::Read
            }
            Kind::Write(write) | Kind::Mix { write, .. } => {
                write.append(xid, self.keys.next(), out);
                Sort::Write
            }
            Kind::Create(create) => {
                create.append(xid, course.created.take_next(), out);
                Sort::Write
            }
            Kind::CreateDelete { create, delete, to_delete } => {
                match to_delete.take() {
                    Some(number) => delete.append(xid, number, out),
                    None => create.append(xid, *to_delete.insert(course.created.take_next()), out),
                }
                Sort::Write
            }
        }
    }
}

impl Kind {
    fn new(options: &Options) -> Self {
        let places = Places::of(options);
        let data = Bytes::from(vec![b'x'; options.size]);
        let keyed = |request: &dyn Fn(&str) -> Request| Template::new(&places.key_prefix(), KEY_DIGITS, request);
        let created =
            |digits, request: &dyn Fn(&str) -> Request| Template::new(&places.created_prefix(), digits, request);
        let get = |path: &str| Request::GetData { path: path.into(), watch: false };
        let exists = |path: &str| Request::Exists { path: path.into(), watch: false };
        let set = |path: &str| Request::Write(set(path, &data));
        let delete = |path: &str| Request::Write(delete(path));
        let kind = if options.ephemeral { CreateKind::Ephemeral } else { CreateKind::Persistent };
        let create = |path: &str| Request::Write(create(path, &data, kind, options.sequential));
        match options.op {
            Op::Set => Self::Write(keyed(&set)),
            Op::Exists => Self::Read(keyed(&exists)),
            Op::Children => Self::Read(Template::new(&places.keys(), 0, children)),
            Op::Mix => Self::Mix { read: keyed(&get), write: keyed(&set), read_percent: options.read_percent },
            Op::Create => Self::Create(created(if options.sequential { 0 } else { NUMBER_DIGITS }, &create)),
            Op::CreateDelete => Self::CreateDelete {
                create: created(NUMBER_DIGITS, &create),
                delete: created(NUMBER_DIGITS, &delete),
                to_delete: None,
            },
            // Watch and lock runs have separate modules, and never get here.
            Op::Get | Op::Watch | Op::Lock => Self::Read(keyed(&get)),
        }
    }
}
