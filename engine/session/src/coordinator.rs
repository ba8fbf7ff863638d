//! Implements the recipes' view of a session, [`Coordinator`].

use crate::asking::{Asked, Asking};
use crate::watch::Arm;
use crate::{OneShotWatch, Session, States, Timer, WatchStream};
use std::sync::Arc;
use std::time::Duration;
use zoolet_coordinator::{Coordinator, Errand, Instant};
use zoolet_model::{AddWatchMode, OneShot, Path, Request, SessionId, SessionState};

impl Coordinator for Session {
    type Ticket = Asked;
    type Watch = OneShotWatch;
    type Events = WatchStream;
    type States = States;
    type Timer = Timer;

    fn submit(&self, request: Request) -> Asked {
        Asked(Asking::new(self.link(), request, None))
    }

    fn submit_watching(&self, request: Request) -> (Asked, OneShotWatch) {
        let watch = match request.one_shot_watch() {
            Some((path, OneShot::Data)) => OneShotWatch::new(self.link(), path.clone(), Arm::Data),
            Some((path, OneShot::Exist)) => OneShotWatch::new(self.link(), path.clone(), Arm::Exist),
            Some((path, OneShot::Child)) => OneShotWatch::new(self.link(), path.clone(), Arm::Child),
            None => {
                debug_assert!(false, "{request:?} watches nothing");
                OneShotWatch::of_nothing(self.link())
            }
        };
        (Asked(Asking::new(self.link(), request, Some(watch.id()))), watch)
    }

    fn add_watch(&self, path: &Path, mode: AddWatchMode) -> (Asked, WatchStream) {
        let stream = WatchStream::new(self.link(), path, mode);
        let request = Request::AddWatch { path: path.text().clone(), mode };
        (Asked(Asking::new(self.link(), request, Some(stream.id()))), stream)
    }

    fn run_errand(&self, errand: Errand) {
        self.link().run_errand(errand);
    }

    fn session(&self) -> SessionId {
        self.id()
    }

    fn session_timeout(&self) -> Duration {
        Duration::from_millis(self.link().timeout_ms().into())
    }

    fn state(&self) -> SessionState {
        self.link().session_state()
    }

    fn states(&self) -> States {
        States::new(Arc::clone(self.link()))
    }

    fn safe_until(&self) -> Instant {
        Instant::at(self.link().safe_until())
    }

    fn gaps(&self) -> u64 {
        self.link().gaps()
    }

    fn now(&self) -> Instant {
        Instant::at(self.link().environment().now())
    }

    fn timer(&self, at: Instant) -> Timer {
        Timer::new(Arc::clone(self.link().environment()), at.since_start())
    }

    fn random_bits(&self) -> u128 {
        self.link().environment().random_bits()
    }
}
