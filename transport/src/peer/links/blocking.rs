//! Runs blocking disk calls on blocking threads.

use tokio::task::spawn_blocking;

/// A value that is used and dropped only on blocking threads.
#[derive(Debug)]
pub(super) struct OnDisk<T: Send + 'static>(Option<T>);

impl<T: Send + 'static> OnDisk<T> {
    pub(super) fn new(thing: T) -> Self {
        Self(Some(thing))
    }

    /// Runs `call` on the value. If the future is dropped, the call completes and then the value is
    /// dropped.
    ///
    /// # Errors
    /// The error of `call`. If `call` panics, this and every later call fail.
    pub(super) async fn call<R: Send + 'static>(
        &mut self,
        call: impl FnOnce(&mut T) -> Result<R, String> + Send + 'static,
    ) -> Result<R, String> {
        let mut thing = self.0.take().ok_or_else(failed)?;
        let called = spawn_blocking(move || {
            let result = call(&mut thing);
            (thing, result)
        });
        let (thing, result) = called.await.map_err(|_| failed())?;
        self.0 = Some(thing);
        result
    }

    /// Runs `call` and consumes the value.
    ///
    /// # Errors
    /// The error of `call`; or `call` panicked, or an earlier one did.
    pub(super) async fn last_call<R: Send + 'static>(
        mut self,
        call: impl FnOnce(T) -> Result<R, String> + Send + 'static,
    ) -> Result<R, String> {
        let thing = self.0.take().ok_or_else(failed)?;
        spawn_blocking(move || call(thing)).await.map_err(|_| failed())?
    }
}

impl<T: Send + 'static> Drop for OnDisk<T> {
    fn drop(&mut self) {
        if let Some(thing) = self.0.take() {
            spawn_blocking(move || drop(thing));
        }
    }
}

fn failed() -> String {
    "a task of this server failed".to_owned()
}
