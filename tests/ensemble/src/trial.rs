//! An ensemble under load, with which every fault test begins and ends.

use crate::agreement;
use crate::load::{Load, Seen, Shape, make_keys};
use crate::product::Product;
use crate::site::{PATIENCE, Plan, Site};
use crate::{Outcome, said};
use std::ops::{Deref, DerefMut};
use std::time::Duration;

/// Writes acknowledged before and after each fault: enough for several at every server.
const PROGRESS: u64 = 200;

/// An ensemble and its load.
pub struct Trial {
    site: Site,
    shape: Shape,
    load: Load,
}

impl Trial {
    /// Starts both, and waits until writes are acknowledged.
    ///
    /// # Errors
    /// The servers do not serve, or writes are not acknowledged.
    pub fn start(plan: Plan, shape: Shape, seed: u64) -> Outcome<Self> {
        let site = Site::start(plan)?;
        let first = site.clients().into_iter().next().ok_or("no servers")?;
        make_keys(first, &shape)?;
        let load = Load::start(&site.clients(), &shape, seed);
        let trial = Self { site, shape, load };
        trial.progress()?;
        Ok(trial)
    }

    /// Returns the product under test: zoolet, or the one that `PRODUCT` names.
    ///
    /// Another product shows whether a test asks too much.
    ///
    /// # Errors
    /// There is no such product.
    pub fn product() -> Outcome<Product> {
        Product::named(&std::env::var("PRODUCT").unwrap_or_else(|_| "zoolet".to_owned()))
    }

    /// Waits until the load makes progress.
    ///
    /// # Errors
    /// It makes none in time.
    pub fn progress(&self) -> Outcome<()> {
        self.load.wait_for(PROGRESS, PATIENCE).map_err(|what| format!("{what}\n{}", self.site.last_words()))
    }

    /// Waits until `writes` more writes are acknowledged.
    ///
    /// # Errors
    /// They are not acknowledged in time.
    pub fn progress_by(&self, writes: u64) -> Outcome<()> {
        self.load.wait_for(writes, PATIENCE).map_err(|what| format!("{what}\n{}", self.site.last_words()))
    }

    /// Returns the time on the clock of the clients' operations.
    pub fn now(&self) -> Duration {
        self.load.now()
    }

    /// Whether no write is acknowledged during `long`, after 500 ms for writes in flight.
    pub fn stands_still(&self, long: Duration) -> bool {
        std::thread::sleep(Duration::from_millis(500));
        let before = self.load.acknowledged();
        std::thread::sleep(long);
        self.load.acknowledged() == before
    }

    /// Starts a server that was killed, and waits until it serves.
    ///
    /// # Errors
    /// It does not serve in time.
    pub fn restart(&mut self, id: u8) -> Outcome<()> {
        self.site.server_mut(id).start()?;
        self.site.wait_for_all()
    }

    /// Waits for progress and for all servers, ends the load and checks everything.
    ///
    /// Returns what the clients saw.
    ///
    /// # Errors
    /// The first check that fails.
    pub fn finish(self) -> Outcome<Seen> {
        self.finish_and_keep().map(|(_, seen)| seen)
    }

    /// Does the same, and keeps the servers running.
    ///
    /// # Errors
    /// As [`Trial::finish`].
    pub fn finish_and_keep(self) -> Outcome<(Site, Seen)> {
        let Self { site, shape, load } = self;
        let ended = site.wait_for_all().and_then(|()| load.wait_for(PROGRESS, PATIENCE));
        let seen = load.finish()?;
        ended.map_err(|what| format!("{what}\n{}", site.last_words()))?;
        agreement::check(&site, shape.keys, &seen).map_err(said(format!("{}\n", site.last_words())))?;
        Ok((site, seen))
    }
}

impl Deref for Trial {
    type Target = Site;

    fn deref(&self) -> &Site {
        &self.site
    }
}

impl DerefMut for Trial {
    fn deref_mut(&mut self) -> &mut Site {
        &mut self.site
    }
}
