//! Polls the woken futures of clients.

use crate::oracle::ClientId;
use crate::workload::Random;
use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::rc::Rc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Wake, Waker};

type Work = Pin<Box<dyn Future<Output = ()>>>;

/// The woken tasks, by number in the order of their start.
#[derive(Clone, Debug, Default)]
struct Woken(Arc<Mutex<BTreeSet<u64>>>);

impl Woken {
    fn tasks(&self) -> MutexGuard<'_, BTreeSet<u64>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

struct Alarm {
    task: u64,
    woken: Woken,
}

impl Wake for Alarm {
    fn wake(self: Arc<Self>) {
        self.wake_by_ref();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        self.woken.tasks().insert(self.task);
    }
}

/// Whether a future outside all tasks was woken; initially true.
pub(super) struct Bell(AtomicBool);

impl Bell {
    pub(super) fn take(&self) -> bool {
        self.0.swap(false, Relaxed)
    }
}

impl Wake for Bell {
    fn wake(self: Arc<Self>) {
        self.0.store(true, Relaxed);
    }
}

/// Returns the waker of a future that is not a task, and its flag.
pub(super) fn alarm() -> (Arc<Bell>, Waker) {
    let bell = Arc::new(Bell(AtomicBool::new(true)));
    (Arc::clone(&bell), Waker::from(bell))
}

struct Task {
    client: ClientId,
    work: Work,
    waker: Waker,
}

/// Starts futures of a client from within its futures.
#[derive(Clone, Default)]
pub(super) struct Spawner(Rc<RefCell<Vec<(ClientId, Work)>>>);

impl Spawner {
    pub(super) fn spawn(&self, client: ClientId, future: impl Future<Output = ()> + 'static) {
        self.0.borrow_mut().push((client, Box::pin(future)));
    }
}

impl fmt::Debug for Spawner {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Spawner")
    }
}

/// Polls tasks one at a time; the seed picks one of the woken tasks.
pub(super) struct Executor {
    random: Random,
    tasks: BTreeMap<u64, Task>,
    made: u64,
    woken: Woken,
    spawner: Spawner,
    polls: BTreeMap<ClientId, u64>,
}

impl Executor {
    pub(super) fn new(random: Random) -> Self {
        Self {
            random,
            tasks: BTreeMap::new(),
            made: 0,
            woken: Woken::default(),
            spawner: Spawner::default(),
            polls: BTreeMap::new(),
        }
    }

    pub(super) fn spawner(&self) -> Spawner {
        self.spawner.clone()
    }

    /// Returns how often tasks of this client were polled.
    pub(super) fn polls_of(&self, client: ClientId) -> u64 {
        self.polls.get(&client).copied().unwrap_or_default()
    }

    pub(super) fn has_tasks_of(&self, client: ClientId) -> bool {
        self.tasks.values().any(|task| task.client == client)
    }

    /// Polls one woken task whose client may run; returns whether one was found.
    pub(super) fn poll_one(&mut self, may_go_on: impl Fn(ClientId) -> bool) -> bool {
        self.take_spawned();
        let is_ready = |number: &u64| self.tasks.get(number).is_none_or(|task| may_go_on(task.client));
        let ready: Vec<u64> = self.woken.tasks().iter().copied().filter(is_ready).collect();
        if ready.is_empty() {
            return false;
        }
        let number = if ready.len() == 1 { ready[0] } else { *self.random.pick(&ready) };
        self.woken.tasks().remove(&number);
        // The task is out of the table during its poll, because its destructors may wake or start
        // others.
        let Some(mut task) = self.tasks.remove(&number) else { return true };
        *self.polls.entry(task.client).or_default() += 1;
        let is_over = task.work.as_mut().poll(&mut Context::from_waker(&task.waker)).is_ready();
        if !is_over {
            self.tasks.insert(number, task);
        }
        true
    }

    /// Drops all tasks of a client.
    pub(super) fn drop_tasks_of(&mut self, client: ClientId) {
        self.take_spawned();
        let (theirs, others) = std::mem::take(&mut self.tasks).into_iter().partition(|(_, task)| task.client == client);
        self.tasks = others;
        drop(theirs);
        // Tasks that destructors start end here too.
        self.spawner.0.borrow_mut().retain(|(of, _)| *of != client);
    }

    fn take_spawned(&mut self) {
        let spawned = std::mem::take(&mut *self.spawner.0.borrow_mut());
        for (client, work) in spawned {
            self.made += 1;
            let alarm = Arc::new(Alarm { task: self.made, woken: self.woken.clone() });
            self.tasks.insert(self.made, Task { client, work, waker: Waker::from(alarm) });
            self.woken.tasks().insert(self.made);
        }
    }
}
