//! Calls that may wait for a disk, on threads that may wait.

use tokio::task::spawn_blocking;

/// Something that is only used, and dropped, where waiting hurts nobody.
#[derive(Debug)]
pub(super) struct OnDisk<T: Send + 'static>(Option<T>);

impl<T: Send + 'static> OnDisk<T> {
    pub(super) fn new(thing: T) -> Self {
        Self(Some(thing))
    }

    /// Calls it. When this is not waited for to the end, the call goes on, and the thing is dropped after it.
    ///
    /// # Errors
    /// As the call's; and when it panicked, then and ever after.
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

    /// Uses it up.
    ///
    /// # Errors
    /// As the call's; and when it panics, or did before.
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
    "a task of this server's has failed".to_owned()
}
