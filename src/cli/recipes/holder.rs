//! `zoolet lock` and `zoolet semaphore`: COMMAND runs while this process holds a grant.

use super::environment::Environment;
use super::session::{Patience, Refusal, give_up, within};
use super::tenure::{Hold, run};
use super::{Exit, Options, Signals, Wait, Work, conflict};
use std::future::Future;
use zoolet_recipes::{Coordinator, Error, ErrorKind, Grant, Lock, Remote, Semaphore};

pub(super) async fn lock(options: &Options, work: &Work, signals: &mut Signals) -> Result<u8, Exit> {
    let mut patience = Patience::new(options, false);
    loop {
        let session = patience.open(options, signals).await?;
        let lock = Lock::new(session.clone(), &options.path).naming(options.naming).described(description());
        let attempt = async {
            match options.wait {
                Wait::NotAtAll => lock.try_acquire().await,
                Wait::AtMost(_) | Wait::Forever => lock.acquire().await.map(Some),
            }
        };
        match granted(options, &patience, attempt, "the lock was not free", signals).await {
            Ok(grant) => return hold(options, &session, grant, work, signals).await,
            Err(refusal) if refusal.is_passing(options, &session) => {
                refusal.let_pass(options, session, &mut patience, signals).await?;
            }
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
        let semaphore = Semaphore::new(session.clone(), &options.path);
        let semaphore = semaphore.naming(options.naming).described(description());
        let attempt = async {
            match permits {
                Some(permits) if resize => semaphore.resize(permits).await?,
                Some(permits) => semaphore.set_size(permits).await?,
                None => {}
            }
            match options.wait {
                Wait::NotAtAll => semaphore.try_acquire().await,
                Wait::AtMost(_) | Wait::Forever => semaphore.acquire().await.map(Some),
            }
        };
        match granted(options, &patience, attempt, "no permit was free", signals).await {
            Ok(grant) => return hold(options, &session, grant, work, signals).await,
            Err(refusal) if refusal.is_passing(options, &session) => {
                refusal.let_pass(options, session, &mut patience, signals).await?;
            }
            Err(refusal) => return Err(unusable(options, permits, refusal)),
        }
    }
}

/// Waits for the grant of `attempt`, which is `None` if it is not free.
async fn granted(
    options: &Options,
    patience: &Patience,
    attempt: impl Future<Output = Result<Option<Grant<Remote>>, Error>>,
    missing: &str,
    signals: &mut Signals,
) -> Result<Grant<Remote>, Refusal> {
    let grant = within(options, patience, attempt, missing, signals).await?;
    grant.ok_or_else(|| Refusal::Final(conflict(options, missing)))
}

async fn hold(
    options: &Options,
    session: &Remote,
    grant: Grant<Remote>,
    work: &Work,
    signals: &mut Signals,
) -> Result<u8, Exit> {
    let mut environment = Environment::of_grant(options, session, grant.token().0);
    environment.znode = Some(options.below_root(grant.path().text()));
    let ending = run(options, session, Hold::Grant(&grant), work, &environment, None, signals).await;
    give_up(options, session.session_timeout(), grant.release(), signals).await;
    Ok(ending?.code)
}

/// Describes this participant in its znodes: its host and its process.
pub(super) fn description() -> String {
    let name = rustix::system::uname();
    format!("{}:{}", name.nodename().to_string_lossy(), std::process::id())
}

fn unusable(options: &Options, permits: Option<u32>, refusal: Refusal) -> Exit {
    let path = &options.path;
    match (refusal, permits) {
        (Refusal::Recipe(error), Some(permits)) if error.kind() == ErrorKind::Disagreement => super::failed(format!(
            "{path}: the semaphore has another number of permits than {permits}; omit --permits, or change the \
             number with --resize"
        )),
        (Refusal::Recipe(error), None) if error.is_no_node() || error.kind() == ErrorKind::Malformed => {
            super::failed(format!("{path}: no number of permits is set; set it with --permits N"))
        }
        (refusal, _) => refusal.exit(options),
    }
}
