//! `zoolet ensemble`: runs several servers on the loopback address, for trials and development.
//!
//! Each server is a separate `zoolet serve` process, and all share one configuration file. So you
//! can kill and restart each one by hand. The servers end with this process, even if it is killed.
//! Each reads its standard input, a pipe that nothing writes to, and ends when the pipe closes.

mod children;
mod plan;
mod standing;

pub(super) use plan::{BASE_PORT_MAX, Options};

use super::status::ask_all;
use super::{Exit, complain, say, signals::StopSignals};
use children::Children;
use plan::Plan;
use standing::Standing;
use std::time::{Duration, Instant};

/// Intervals between checks of the processes, and between questions for their status.
const LOOK_EVERY: Duration = Duration::from_millis(100);
const ASK_EVERY: Duration = Duration::from_millis(500);

/// Time without a leader after which the user is told where the logs are.
const LEADER_PATIENCE: Duration = Duration::from_secs(20);

/// Maximum wait for a clean end. A server needs less, unless it is frozen.
const STOP_PATIENCE: Duration = Duration::from_secs(10);

pub(super) fn ensemble(options: &Options) -> Result<(), Exit> {
    let plan = Plan::make(options)?;
    plan.check_ports().inspect_err(|_| plan.forget_unused())?;
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().map_err(Exit::failed)?;
    runtime.block_on(async {
        let mut signals = StopSignals::new()?;
        let mut children = Children::start(&plan)?;
        let outcome = tokio::select! {
            () = signals.next() => Ok(()),
            failure = watch(&plan, &mut children) => Err(failure),
        };
        let kill_at = Instant::now() + STOP_PATIENCE;
        tokio::select! {
            () = signals.next() => children.kill(),
            () = tokio::time::sleep_until(kill_at.into()) => children.kill(),
            () = children.stop(kill_at) => {}
        }
        outcome
    })
}

/// Reports events of the servers; ends when no server is left to watch.
async fn watch(plan: &Plan, children: &mut Children) -> Exit {
    let started = Instant::now();
    let mut reported: Option<Standing> = None;
    let mut is_late = false;
    let mut ask_at = started;
    loop {
        tokio::time::sleep(LOOK_EVERY).await;
        for ended in children.ended() {
            complain(&ended);
            if reported.is_none() {
                return Exit::failed("the ensemble did not start");
            }
        }
        if children.are_gone() {
            return Exit::failed("all servers that this command started have ended");
        }
        if Instant::now() < ask_at {
            continue;
        }
        let standing = Standing::of(&plan.voting(), &ask_all(&plan.clients()).await);
        ask_at = Instant::now() + ASK_EVERY;
        match &reported {
            None if standing.is_whole() => {
                let _ = say(&banner(plan, children, &standing));
                reported = Some(standing);
            }
            None if !is_late && started.elapsed() > LEADER_PATIENCE => {
                complain(&format!("no leader yet; see the logs: {}", plan.logs()));
                is_late = true;
            }
            None => {}
            Some(before) => {
                let standing = standing.after(before);
                standing.news_since(before).iter().for_each(|line| drop(say(&format!("{line}\n"))));
                reported = Some(standing);
            }
        }
    }
}

fn banner(plan: &Plan, children: &Children, standing: &Standing) -> String {
    let count = plan.servers.len();
    let mut text = format!("zoolet ensemble of {count} servers; clients connect to {}\n", plan.clients().join(","));
    for server in &plan.servers {
        let role = standing.role(server.id);
        let process = children.process(server.id).map_or("-".to_owned(), |process| process.to_string());
        text += &format!(
            "  server {}: {role}, clients {}, links {} (UDP), process {process}, log {}\n",
            server.id,
            server.client,
            server.link,
            server.log.display()
        );
    }
    text + "Ctrl-C stops it; its data stays for the next start\n"
}
