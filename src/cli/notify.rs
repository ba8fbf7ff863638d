//! What an init system is told that starts the server and watches it: systemd, and whatever else speaks its protocol.

use sd_notify::NotifyState;
use std::time::Duration;
use tracing::debug;
use zoolet::{Node, NodeStatus};

/// How often its line is renewed.
const LINE_EVERY: Duration = Duration::from_secs(5);

/// The ports are open: clients may come. A quorum is not waited for: it may never be there without this server, and the boxes start in any order.
pub(super) fn ready() {
    tell(&[NotifyState::Ready]);
}

/// It cannot serve yet, and need not be started again: that would change nothing.
pub(super) fn waiting(why: &str) {
    tell(&[NotifyState::Ready, NotifyState::Status(why), NotifyState::Watchdog]);
}

/// It is going to end.
pub(super) fn stopping() {
    tell(&[NotifyState::Stopping]);
}

/// For ever: how the server is, in one line; and, as long as the machine answers, that it need not be killed.
pub(super) async fn keep_told(node: &Node) {
    if std::env::var_os("NOTIFY_SOCKET").is_none() {
        return std::future::pending().await;
    }
    // The machine may take as long to answer as there is between two questions.
    let patience = sd_notify::watchdog_enabled().map(|patience| patience / 3);
    let every = patience.unwrap_or(LINE_EVERY).min(LINE_EVERY);
    loop {
        // A machine that does not answer is stuck. A disk that hangs does not make it so.
        if let Ok(Some(status)) = tokio::time::timeout(every, node.status()).await {
            tell(&[NotifyState::Status(&line(&status)), NotifyState::Watchdog]);
        }
        tokio::time::sleep(every).await;
    }
}

fn tell(news: &[NotifyState<'_>]) {
    if let Err(error) = sd_notify::notify(news) {
        debug!("the init system was not told: {error}");
    }
}

/// The role, and what is wrong.
fn line(status: &NodeStatus) -> String {
    let mut alarms = status.server.alarms.iter().map(|alarm| alarm.what.as_str());
    match status.server.role {
        // The first says why, and who is missing.
        "" => alarms.next().unwrap_or("it serves nobody yet").to_owned(),
        role if status.server.alarms.is_empty() => format!("{role}, {} sessions", status.server.sessions),
        role => format!("{role}: {}", alarms.collect::<Vec<_>>().join("; ")),
    }
}
