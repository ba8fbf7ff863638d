//! `zoolet lock` and `zoolet semaphore`: COMMAND runs while this process holds a grant.

use super::environment::Environment;
use super::session::{Patience, Refusal, ended, give_up, refused};
use super::tenure::{Hold, run};
use super::{Exit, Options, Signals, Wait, Work, conflict};
use std::future::Future;
use tokio::time::timeout;
use zoolet_recipes::{Coordinator, Error, Grant, Lock, Remote, Semaphore};

pub(super) async fn lock(options: &Options, work: &Work, signals: &mut Signals) -> Result<u8, Exit> {
    let mut patience = Patience::new(options, false);
    loop {
        let session = patience.open(options, signals).await?;
        let lock = Lock::new(session.clone(), &options.path).naming(options.naming).described(description());
        let attempt = async {
            match patience.left(options) {
                Wait::NotAtAll => lock.try_acquire().await,
                Wait::AtMost(patience) => lock.acquire_within(patience).await,
                Wait::Forever => lock.acquire().await.map(Some),
            }
        };
        match granted(options, attempt, "the lock was not free", signals).await {
            Ok(grant) => return hold(options, &session, grant, work, signals).await,
            Err(refusal) if refusal.is_passing(options, &session) => {}
            Err(refusal) => return Err(refusal.exit(options)),
        }
    }
}

pub(super) async fn semaphore(
    options: &Options,
    work: &Work,
    permits: Option<u32>,
    resize: bool,
    signals: &mut Signals,
) -> Result<u8, Exit> {
    let mut patience = Patience::new(options, false);
    loop {
        let session = patience.open(options, signals).await?;
        let semaphore = Semaphore::new(session.clone(), &options.path).map_err(|error| refused(options, error))?;
        let semaphore = semaphore.naming(options.naming).described(description());
        let set = async {
            match permits {
                Some(permits) if resize => semaphore.resize(permits).await,
                Some(permits) => semaphore.set_size(permits).await,
                None => Ok(()),
            }
        };
        let attempt = async {
            match (timeout(patience.first_step(options), set).await, options.wait) {
                (Ok(set), _) => set?,
                // As `try_acquire`, which has its own bound.
                (Err(_), Wait::NotAtAll) => return Err(Error::Disconnected),
                (Err(_), _) => return Ok(None),
            }
            match patience.left(options) {
                Wait::NotAtAll => semaphore.try_acquire().await,
                Wait::AtMost(patience) => semaphore.acquire_within(patience).await,
                Wait::Forever => semaphore.acquire().await.map(Some),
            }
        };
        match granted(options, attempt, "no permit was free", signals).await {
            Ok(grant) => return hold(options, &session, grant, work, signals).await,
            Err(refusal) if refusal.is_passing(options, &session) => {}
            Err(Refusal::Recipe(error)) => return Err(unusable(options, permits, error)),
            Err(refusal) => return Err(refusal.exit(options)),
        }
    }
}

/// Waits for the grant of `attempt`, or for a signal.
async fn granted(
    options: &Options,
    attempt: impl Future<Output = Result<Option<Grant<Remote>>, Error>>,
    missing: &str,
    signals: &mut Signals,
) -> Result<Grant<Remote>, Refusal> {
    tokio::select! {
        grant = attempt => match grant {
            Ok(Some(grant)) => Ok(grant),
            Ok(None) => Err(Refusal::Final(conflict(options, missing))),
            Err(error) => Err(Refusal::Recipe(error)),
        },
        exit = ended(signals) => Err(Refusal::Final(exit)),
    }
}

async fn hold(
    options: &Options,
    session: &Remote,
    grant: Grant<Remote>,
    work: &Work,
    signals: &mut Signals,
) -> Result<u8, Exit> {
    let mut environment = Environment::of_grant(options, session, grant.token().0);
    environment.znode = Some(options.below_root(grant.path()));
    let ending = run(options, session, Hold::Grant(&grant), work, &environment, None, signals).await;
    give_up(session.timeout(), grant.release(), signals).await;
    Ok(ending?.code)
}

/// Describes this participant in its znodes: its host and its process.
pub(super) fn description() -> String {
    let name = rustix::system::uname();
    format!("{}:{}", name.nodename().to_string_lossy(), std::process::id())
}

fn unusable(options: &Options, permits: Option<u32>, error: Error) -> Exit {
    let path = &options.path;
    match (error, permits) {
        (Error::Disagreement, Some(permits)) => super::failed(format!(
            "{path}: the semaphore has another number of permits than {permits}; omit --permits, or change the \
             number with --resize"
        )),
        (Error::Session(zoolet_model::Error::Refused(zoolet_model::ErrorCode::NoNode)) | Error::Malformed, None) => {
            super::failed(format!("{path}: no number of permits is set; set it with --permits N"))
        }
        (error, _) => refused(options, error),
    }
}
