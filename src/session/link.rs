//! Where a session's owner and the machine meet.
//!
//! The owner's side takes slots and sends; the core's side fills them, in the order of the machine. Both hold the lock for
//! moves only, never while user code runs.

use super::size;
use super::slots::{SlotId, Slots, Ticket};
use super::state::{Error, LostReason, SessionState};
use super::watch::Watches;
use crate::runtime::{Inbox, Input, lock};
use bytes::Bytes;
use std::collections::{BTreeMap, VecDeque};
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll, Waker};
use zoolet_engine::{Budget, ConnId, Event, Limits};
use zoolet_model::{
    ConnectReply, ConnectRequest, ErrorCode, Reply, Request, SessionId, SessionSecret, Text, WatchEvent,
};

/// The xid of requests that nobody waits for: it names no slot.
const XID_UNHEARD: i32 = -9;

/// Things that wait behind one answer that is put together off the core; beyond this, watch events become a gap.
const BEHIND_MAX: usize = 4096;

/// An answer with the zxid of its header.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Answer {
    pub(super) zxid: i64,
    pub(super) reply: Reply,
}

/// What became of a request.
pub(super) enum Submit {
    Sent(Ticket),
    /// All slots are in use; here it is back.
    Full(Request),
    Refused(Error),
}

/// One in-process session.
#[derive(Debug)]
pub(crate) struct Link {
    inbox: Arc<Inbox>,
    request_bytes_max: u64,
    numbers: AtomicU64,
    state: Mutex<State>,
}

#[derive(Debug)]
struct State {
    session_state: SessionState,
    /// The connection requests go to, while connected.
    conn: Option<ConnId>,
    opened: bool,
    closing: bool,
    timeout_ms: u32,
    session: SessionId,
    secret: Option<SessionSecret>,
    last_zxid: i64,
    auths: Vec<(Text, Bytes)>,
    slots: Slots,
    watches: Watches,
    behind: VecDeque<Behind>,
    behind_overflowed: bool,
    room: BTreeMap<u64, Waker>,
    readers: BTreeMap<u64, Waker>,
}

/// What waits behind an answer that is put together elsewhere.
#[derive(Debug)]
enum Behind {
    /// The answer itself; its place is kept.
    Pending {
        xid: i32,
    },
    Reply {
        xid: i32,
        zxid: i64,
        result: Result<Reply, ErrorCode>,
    },
    Notify(WatchEvent),
}

/// Whom to wake once the lock is released.
#[must_use = "somebody waits"]
#[derive(Debug, Default)]
pub(super) struct Wakers(Vec<Waker>, Option<Waker>);

impl Wakers {
    pub(super) fn wake(self) {
        self.0.into_iter().chain(self.1).for_each(Waker::wake);
    }
}

impl Link {
    pub(crate) fn new(inbox: Arc<Inbox>, timeout_ms: u32, limits: &Limits, budget: Arc<Budget>) -> Arc<Self> {
        Arc::new(Self {
            inbox,
            request_bytes_max: limits.frame_bytes_max.into(),
            numbers: AtomicU64::new(0),
            state: Mutex::new(State {
                session_state: SessionState::Suspended,
                conn: None,
                opened: false,
                closing: false,
                timeout_ms,
                session: SessionId(0),
                secret: None,
                last_zxid: 0,
                auths: Vec::new(),
                slots: Slots::new(limits.outstanding_max, budget),
                watches: Watches::default(),
                behind: VecDeque::new(),
                behind_overflowed: false,
                room: BTreeMap::new(),
                readers: BTreeMap::new(),
            }),
        })
    }

    // The owner's side.

    pub(super) fn id(&self) -> SessionId {
        lock(&self.state).session
    }

    pub(super) fn timeout_ms(&self) -> u32 {
        lock(&self.state).timeout_ms
    }

    pub(super) fn is_connected(&self) -> bool {
        lock(&self.state).conn.is_some()
    }

    pub(super) fn session_state(&self) -> SessionState {
        lock(&self.state).session_state
    }

    /// A number for a watch or a waiter, never given twice.
    pub(crate) fn new_number(&self) -> u64 {
        self.numbers.fetch_add(1, Relaxed)
    }

    /// Ready once the session is served or over; the error is why it never was.
    pub(crate) fn poll_open(&self, reader: u64, context: &Context<'_>) -> Poll<Result<(), Error>> {
        let mut state = lock(&self.state);
        if state.opened && !state.session_state.is_over() {
            return Poll::Ready(Ok(()));
        }
        if state.session_state.is_over() {
            return Poll::Ready(Err(Error::of(state.session_state)));
        }
        state.readers.insert(reader, context.waker().clone());
        Poll::Pending
    }

    pub(super) fn poll_state(
        &self,
        reader: u64,
        last: Option<SessionState>,
        context: &Context<'_>,
    ) -> Poll<SessionState> {
        let mut state = lock(&self.state);
        if last == Some(state.session_state) {
            state.readers.insert(reader, context.waker().clone());
            return Poll::Pending;
        }
        Poll::Ready(state.session_state)
    }

    pub(crate) fn forget_reader(&self, reader: u64) {
        lock(&self.state).readers.remove(&reader);
    }

    pub(super) fn submit(self: &Arc<Self>, request: Request, watch: Option<u64>) -> Result<Ticket, Error> {
        match self.try_submit(request, watch) {
            Submit::Sent(ticket) => Ok(ticket),
            Submit::Full(_) => Err(Error::Busy),
            Submit::Refused(error) => Err(error),
        }
    }

    /// Sends in the order of calls: the inbox is entered under the lock.
    pub(super) fn try_submit(self: &Arc<Self>, request: Request, watch: Option<u64>) -> Submit {
        let bytes = size::request_bytes(&request);
        if bytes > self.request_bytes_max {
            return Submit::Refused(Error::TooLarge);
        }
        let mut state = lock(&self.state);
        if state.closing {
            return Submit::Refused(Error::Closed);
        }
        let Some(conn) = state.conn else { return Submit::Refused(Error::of(state.session_state)) };
        let Some(slot) = state.slots.open(watch, bytes) else { return Submit::Full(request) };
        state.closing = request == Request::CloseSession;
        self.inbox.push(Input::Event(Event::Request { conn, xid: slot.xid(), request }));
        drop(state);
        Submit::Sent(Ticket::new(Arc::clone(self), slot))
    }

    /// Sends without a slot: nobody waits for the answer.
    pub(super) fn send_unheard(&self, request: Request) {
        let state = lock(&self.state);
        if let Some(conn) = state.conn
            && !state.closing
        {
            self.inbox.push(Input::Event(Event::Request { conn, xid: XID_UNHEARD, request }));
        }
    }

    pub(super) fn close(self: &Arc<Self>) -> Result<Ticket, Error> {
        self.submit(Request::CloseSession, None)
    }

    /// The owner is gone.
    pub(crate) fn close_unheard(&self) {
        let mut state = lock(&self.state);
        if let Some(conn) = state.conn
            && !state.closing
        {
            self.inbox.push(Input::Event(Event::Request { conn, xid: XID_UNHEARD, request: Request::CloseSession }));
        }
        state.closing = true;
    }

    pub(super) fn remember_auth(&self, scheme: Text, auth: Bytes) {
        lock(&self.state).auths.push((scheme, auth));
    }

    pub(super) fn with_watches<R>(&self, work: impl FnOnce(&mut Watches) -> R) -> R {
        work(&mut lock(&self.state).watches)
    }

    /// `work` says whether a slot came free.
    pub(super) fn with_slots<R>(&self, work: impl FnOnce(&mut Slots) -> (R, bool)) -> (R, Wakers) {
        let mut state = lock(&self.state);
        let (result, came_free) = work(&mut state.slots);
        (result, state.room_wakers(came_free))
    }

    // The core's side.

    /// The first message of a new connection; `None` when the session is over or unwanted.
    pub(super) fn dial(&self) -> Option<ConnectRequest> {
        let mut state = lock(&self.state);
        if state.session_state.is_over() || (state.closing && state.secret.is_none()) {
            return None;
        }
        // Requests go out only once it is connected.
        state.conn = None;
        Some(ConnectRequest {
            last_zxid_seen: state.last_zxid,
            timeout_ms: i32::try_from(state.timeout_ms).unwrap_or(i32::MAX),
            session: state.session,
            password: state.secret.map(|secret| Bytes::copy_from_slice(&secret.0)),
            read_only: Some(false),
        })
    }

    /// The answer to [`Link::dial`]; gives what to send before anything else.
    pub(crate) fn connected(&self, conn: ConnId, reply: &ConnectReply) -> Vec<(i32, Request)> {
        let mut state = lock(&self.state);
        if reply.timeout_ms <= 0 {
            let wakers = state.end(SessionState::Lost(LostReason::Expired));
            drop(state);
            wakers.wake();
            return Vec::new();
        }
        state.conn = Some(conn);
        state.timeout_ms = reply.timeout_ms.unsigned_abs();
        state.session = reply.session;
        state.secret = Some(reply.secret);
        let auths: Vec<_> = state.auths.clone();
        let auths = auths.into_iter().map(|(scheme, auth)| Request::Auth { scheme: Some(scheme), auth: Some(auth) });
        let mut first: Vec<_> = auths.map(|auth| (XID_UNHEARD, auth)).collect();
        let watches = state.watches.registered(state.last_zxid).map(Request::SetWatches);
        first.extend(watches.map(|set| (XID_UNHEARD, set)));
        if state.closing {
            first.push((XID_UNHEARD, Request::CloseSession));
        }
        let mut wakers = Wakers::default();
        if state.opened {
            wakers.0.append(&mut state.watches.gap());
        }
        state.opened = true;
        wakers.0.append(&mut state.become_state(SessionState::Connected).0);
        drop(state);
        wakers.wake();
        first
    }

    /// An answer, in its turn.
    pub(crate) fn reply(&self, xid: i32, zxid: i64, result: Result<Reply, ErrorCode>) {
        let mut state = lock(&self.state);
        let wakers = if state.behind.is_empty() {
            state.deliver_reply(xid, zxid, result)
        } else {
            state.behind.push_back(Behind::Reply { xid, zxid, result });
            Wakers::default()
        };
        drop(state);
        wakers.wake();
    }

    /// The turn of an answer that is put together elsewhere: what comes later waits behind it.
    pub(crate) fn pending(&self, xid: i32) {
        lock(&self.state).behind.push_back(Behind::Pending { xid });
    }

    /// That answer.
    pub(crate) fn filled(&self, xid: i32, zxid: i64, result: Result<Reply, ErrorCode>) {
        let mut state = lock(&self.state);
        let place =
            state.behind.iter_mut().find(|waiting| matches!(waiting, Behind::Pending { xid: other } if *other == xid));
        let Some(place) = place else { return };
        *place = Behind::Reply { xid, zxid, result };
        let wakers = state.deliver_behind();
        drop(state);
        wakers.wake();
    }

    /// A watch fired, in its turn.
    pub(crate) fn notify(&self, event: WatchEvent) {
        let mut state = lock(&self.state);
        let wakers = if state.behind.is_empty() {
            state.deliver_event(&event)
        } else {
            if state.behind.len() < BEHIND_MAX {
                state.behind.push_back(Behind::Notify(event));
            } else {
                state.behind_overflowed = true;
            }
            Wakers::default()
        };
        drop(state);
        wakers.wake();
    }

    /// The machine closed the connection; says whether to dial again.
    pub(super) fn closed(&self) -> bool {
        let mut state = lock(&self.state);
        let again = !state.session_state.is_over() && !state.closing;
        let wakers = if again {
            state.suspend()
        } else if state.closing && !state.session_state.is_over() {
            state.end(SessionState::Closed)
        } else {
            Wakers::default()
        };
        drop(state);
        wakers.wake();
        again
    }

    /// The node is gone.
    pub(crate) fn lost(&self, reason: LostReason) {
        let mut state = lock(&self.state);
        let wakers =
            if state.session_state.is_over() { Wakers::default() } else { state.end(SessionState::Lost(reason)) };
        drop(state);
        wakers.wake();
    }
}

impl State {
    fn deliver_reply(&mut self, xid: i32, zxid: i64, result: Result<Reply, ErrorCode>) -> Wakers {
        self.last_zxid = self.last_zxid.max(zxid);
        let auth_failed = result == Err(ErrorCode::AuthFailed);
        let mut wakers = Wakers::default();
        if let Some(slot) = SlotId::of_xid(xid) {
            if let Some(watch) = self.slots.watch_of(slot) {
                match &result {
                    Ok(_) => self.watches.activate(watch, true),
                    // Only exists watches what is not there.
                    Err(ErrorCode::NoNode) => self.watches.activate(watch, false),
                    Err(_) => {}
                }
            }
            let answer = result.map(|reply| Answer { zxid, reply }).map_err(Error::Refused);
            let filled = self.slots.fill(slot, answer);
            wakers = self.room_wakers(filled.came_free);
            wakers.1 = filled.waker;
        }
        if auth_failed {
            wakers.0.append(&mut self.end(SessionState::AuthFailed).0);
        }
        wakers
    }

    fn deliver_event(&mut self, event: &WatchEvent) -> Wakers {
        let state = self.session_state;
        Wakers(self.watches.fire(event, state), None)
    }

    /// Up to the next answer that is not there yet.
    fn deliver_behind(&mut self) -> Wakers {
        let mut all = Wakers::default();
        while let Some(next) = self.behind.pop_front() {
            let mut wakers = match next {
                Behind::Pending { xid } => {
                    self.behind.push_front(Behind::Pending { xid });
                    return all;
                }
                Behind::Reply { xid, zxid, result } => self.deliver_reply(xid, zxid, result),
                Behind::Notify(event) => self.deliver_event(&event),
            };
            all.0.append(&mut wakers.0);
            all.0.extend(wakers.1);
        }
        if std::mem::take(&mut self.behind_overflowed) {
            all.0.append(&mut self.watches.gap());
        }
        all
    }

    fn suspend(&mut self) -> Wakers {
        self.conn = None;
        self.behind.clear();
        let mut wakers = self.become_state(SessionState::Suspended);
        wakers.0.append(&mut self.slots.fail_all(Error::ConnectionLoss));
        wakers.0.append(&mut self.room_wakers(true).0);
        wakers
    }

    fn end(&mut self, over: SessionState) -> Wakers {
        self.conn = None;
        self.behind.clear();
        let mut wakers = self.become_state(over);
        wakers.0.append(&mut self.slots.fail_all(Error::of(over)));
        wakers.0.append(&mut self.watches.end());
        wakers.0.append(&mut self.room_wakers(true).0);
        wakers
    }

    fn become_state(&mut self, next: SessionState) -> Wakers {
        self.session_state = next;
        Wakers(std::mem::take(&mut self.readers).into_values().collect(), None)
    }

    /// Everybody who waits for a slot tries again: there are few, and one of them may have gone.
    fn room_wakers(&mut self, came_free: bool) -> Wakers {
        if !came_free || self.room.is_empty() {
            return Wakers::default();
        }
        Wakers(std::mem::take(&mut self.room).into_values().collect(), None)
    }
}

/// Waits for a free slot.
pub(super) struct Room<'a> {
    link: &'a Link,
    number: Option<u64>,
}

impl<'a> Room<'a> {
    pub(super) fn new(link: &'a Link) -> Self {
        Self { link, number: None }
    }

    /// To be called when a request came back; the caller tries again when woken.
    pub(super) fn wait(&mut self, context: &Context<'_>) {
        let number = *self.number.get_or_insert_with(|| self.link.new_number());
        lock(&self.link.state).room.insert(number, context.waker().clone());
    }
}

impl Drop for Room<'_> {
    fn drop(&mut self) {
        if let Some(number) = self.number {
            lock(&self.link.state).room.remove(&number);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::{Links, Session, WatchItem};
    use super::*;
    use crate::{AddWatchMode, Wait, path};
    use std::future::Future;
    use std::pin::pin;
    use zoolet_model::EventKind;

    /// A session, and this test in the place of the machine.
    struct Machine {
        inbox: Arc<Inbox>,
        links: Links,
        link: Arc<Link>,
        conn: ConnId,
    }

    impl Machine {
        fn connected() -> (Self, Session) {
            let inbox = Arc::new(Inbox::new());
            let limits = Limits::default();
            let link = Link::new(Arc::clone(&inbox), 1000, &limits, Arc::new(Budget::new(&limits)));
            let mut machine = Self { inbox, links: Links::default(), link: Arc::clone(&link), conn: ConnId(0) };
            assert_eq!(machine.dial().session, SessionId(0));
            assert_eq!(machine.accept(7), []);
            (machine, Session::new(link))
        }

        fn dial(&mut self) -> ConnectRequest {
            match self.links.dial(Arc::clone(&self.link)) {
                Some(Event::Connect { conn, peer: None, request }) => {
                    self.conn = conn;
                    request
                }
                other => panic!("{other:?}"),
            }
        }

        /// Answers the handshake; gives what the session sends first.
        fn accept(&self, timeout_ms: i32) -> Vec<Request> {
            let secret = SessionSecret([9; 16]);
            let reply = ConnectReply { timeout_ms, session: SessionId(7), secret, read_only_byte: true };
            self.link.connected(self.conn, &reply).into_iter().map(|(_, request)| request).collect()
        }

        /// What was sent since.
        fn requests(&self) -> Vec<(i32, Request)> {
            let mut inputs = Vec::new();
            self.inbox.take(&mut inputs, Some(std::time::Duration::ZERO));
            let request = |input| match input {
                Input::Event(Event::Request { conn, xid, request }) if conn == self.conn => (xid, request),
                other => panic!("{other:?}"),
            };
            inputs.into_iter().map(request).collect()
        }
    }

    fn poll<F: Future>(future: std::pin::Pin<&mut F>) -> Poll<F::Output> {
        future.poll(&mut Context::from_waker(Waker::noop()))
    }

    #[test]
    fn a_session_that_loses_its_connection_goes_on_with_its_watches() {
        let (mut machine, session) = Machine::connected();
        let mut watching = pin!(session.watch(path!("/w"), AddWatchMode::Persistent));
        assert!(poll(watching.as_mut()).is_pending());
        let (xid, _) = machine.requests().remove(0);
        machine.link.reply(xid, 40, Ok(Reply::WatchAdded));
        let mut stream = watching.wait().unwrap();
        let mut under_way = pin!(session.sync());
        assert!(poll(under_way.as_mut()).is_pending());

        let again = machine.links.close(machine.conn).unwrap();
        assert_eq!(under_way.wait(), Err(Error::ConnectionLoss));
        assert_eq!(session.state(), SessionState::Suspended);
        assert_eq!(session.exists(path!("/w")).wait(), Err(Error::Suspended));
        assert!(Arc::ptr_eq(&again, &machine.link));

        machine.requests();
        let request = machine.dial();
        assert_eq!((request.session, request.last_zxid_seen), (SessionId(7), 40));
        assert_eq!(request.password.unwrap(), [9; 16][..]);
        let [Request::SetWatches(set)] = &machine.accept(7)[..] else { panic!("no watches") };
        assert_eq!((set.relative_zxid, &set.persistent[..]), (40, &[Text::from("/w")][..]));
        assert_eq!(session.state(), SessionState::Connected);
        assert_eq!(stream.next().wait(), Some(WatchItem::Gap));
    }

    #[test]
    fn a_session_that_is_refused_is_lost() {
        let (mut machine, session) = Machine::connected();
        machine.links.close(machine.conn).unwrap();
        machine.dial();
        assert_eq!(machine.accept(0), []);
        assert_eq!(session.state(), SessionState::Lost(LostReason::Expired));
        assert!(machine.links.close(machine.conn).is_none(), "there is nothing to connect again");
    }

    #[test]
    fn what_comes_behind_an_answer_that_is_still_put_together_waits_for_it() {
        let (machine, session) = Machine::connected();
        let mut reading = pin!(session.get_and_watch(path!("/w")));
        let mut behind = pin!(session.sync());
        assert!(poll(reading.as_mut()).is_pending() && poll(behind.as_mut()).is_pending());
        let xids: Vec<i32> = machine.requests().into_iter().map(|(xid, _)| xid).collect();
        machine.link.pending(xids[0]);
        machine.link.notify(WatchEvent { kind: EventKind::NodeDataChanged, path: "/w".into(), zxid: 5 });
        machine.link.reply(xids[1], 5, Ok(Reply::Synced(None)));
        assert!(poll(behind.as_mut()).is_pending());
        machine.link.filled(xids[0], 4, Ok(Reply::Data(None, zoolet_model::Stat::default())));
        let (_, watch) = reading.wait().unwrap();
        // The event came after the reply that armed the watch, so it is not lost.
        assert_eq!(watch.wait().unwrap().zxid, 5);
        behind.wait().unwrap();
    }

    #[test]
    fn a_session_given_up_before_it_was_connected_closes_once_it_is() {
        let (mut machine, session) = Machine::connected();
        machine.links.close(machine.conn).unwrap();
        drop(session);
        machine.dial();
        assert_eq!(machine.accept(7), [Request::CloseSession]);
    }
}
