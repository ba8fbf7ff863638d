//! Sessions that a client's own futures open.

use super::super::world::World;
use crate::oracle::ClientId;
use futures_core::Stream as _;
use std::collections::VecDeque;
use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker};
use zoolet_coordinator::{Error, ErrorKind, OpenSession};
use zoolet_model::{RequestError, SessionState};
use zoolet_session::{Session, States};
use zoolet_zab::ServerId;

/// Opens the sessions of one client, one after the other.
///
/// The world opens the session once the former one is over. Clones open sessions of the same client.
#[derive(Clone)]
pub struct Opener {
    orders: Orders,
    timeout_ms: u32,
    home: Option<ServerId>,
    /// `None` until the first session: then the client is added.
    client: Arc<Mutex<Option<ClientId>>>,
}

impl fmt::Debug for Opener {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Opener").field("client", &*lock(&self.client)).finish_non_exhaustive()
    }
}

/// Sessions that futures have asked for.
pub(super) type Orders = Arc<Mutex<VecDeque<Order>>>;

/// One session that a future has asked for.
#[derive(Debug)]
pub(super) struct Order {
    opener: Opener,
    delivery: Arc<Mutex<Delivery>>,
}

#[derive(Debug, Default)]
struct Delivery {
    session: Option<Session>,
    waker: Option<Waker>,
    is_given_up: bool,
}

impl Opener {
    pub(super) fn new(orders: Orders, timeout_ms: u32, home: Option<ServerId>, client: Option<ClientId>) -> Self {
        Self { orders, timeout_ms, home, client: Arc::new(Mutex::new(client)) }
    }
}

impl OpenSession for Opener {
    type Session = Session;
    type Opening = Opening;

    fn open_session(&self) -> Opening {
        let delivery = Arc::default();
        lock(&self.orders).push_back(Order { opener: self.clone(), delivery: Arc::clone(&delivery) });
        Opening { delivery, served: None }
    }
}

/// Ready with a session that is served. Dropping it gives the session up.
#[derive(Debug)]
pub struct Opening {
    delivery: Arc<Mutex<Delivery>>,
    /// The session, which is not served yet.
    served: Option<(Session, States)>,
}

impl Future for Opening {
    type Output = Result<Session, Error>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        loop {
            let Some((session, states)) = &mut self.served else {
                let mut delivery = lock(&self.delivery);
                let Some(session) = delivery.session.take() else {
                    delivery.waker = Some(context.waker().clone());
                    return Poll::Pending;
                };
                drop(delivery);
                let states = session.states();
                self.served = Some((session, states));
                continue;
            };
            let state = std::task::ready!(Pin::new(states).poll_next(context));
            match state {
                Some(SessionState::Connected) => return Poll::Ready(Ok(session.clone())),
                Some(SessionState::Suspended | SessionState::ReadOnly) => {}
                // The session ended before it began, with its server's process for example.
                Some(state) => return Poll::Ready(Err(RequestError::of(state).into())),
                None => return Poll::Ready(Err(ErrorKind::Closed.into())),
            }
        }
    }
}

impl Drop for Opening {
    fn drop(&mut self) {
        lock(&self.delivery).is_given_up = true;
    }
}

impl World {
    /// Returns the sessions of another client, which is added with its first session.
    ///
    /// As [`World::open`].
    pub fn opener(&self, timeout_ms: u32, home: Option<ServerId>) -> Opener {
        Opener::new(Arc::clone(&self.owners.orders), timeout_ms, home, None)
    }

    /// Returns the later sessions of a client.
    pub(super) fn opener_of(&self, client: ClientId, timeout_ms: u32) -> Opener {
        Opener::new(Arc::clone(&self.owners.orders), timeout_ms, None, Some(client))
    }

    /// Opens the sessions that can be opened now; returns whether there were any.
    pub(super) fn carry_out_orders(&mut self) -> bool {
        let orders = std::mem::take(&mut *lock(&self.owners.orders));
        let mut has_opened = false;
        for order in orders {
            if lock(&order.delivery).is_given_up {
                continue;
            }
            let known = *lock(&order.opener.client);
            let session = match known {
                Some(client) if !self.is_gone(client) => {
                    lock(&self.owners.orders).push_back(order);
                    continue;
                }
                Some(client) if self.owners.is_dead(client) => continue,
                Some(client) => self.reopen(client, order.opener.timeout_ms),
                None => {
                    let (client, session) = self.open(order.opener.timeout_ms, order.opener.home);
                    *lock(&order.opener.client) = Some(client);
                    session
                }
            };
            has_opened = true;
            let mut delivery = lock(&order.delivery);
            delivery.session = Some(session);
            let waker = delivery.waker.take();
            drop(delivery);
            waker.into_iter().for_each(Waker::wake);
        }
        has_opened
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
