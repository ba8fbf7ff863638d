//! Notifications to the init system that starts and watches the server, in systemd's protocol.

use sd_notify::NotifyState;
use std::time::Duration;
use tracing::debug;
use zoolet::{Node, NodeStatus};

/// Interval between updates of the status line.
const LINE_EVERY: Duration = Duration::from_secs(5);

/// Reports that the ports are open and clients may connect.
///
/// It does not wait for a quorum. A quorum may need this server, and the boxes start in any order.
pub(super) fn ready() {
    tell(&[NotifyState::Ready]);
}

/// Reports that the server cannot serve yet, and that a restart would not help.
pub(super) fn waiting(why: &str) {
    tell(&[NotifyState::Ready, NotifyState::Status(why), NotifyState::Watchdog]);
}

/// Reports that the server is about to end.
pub(super) fn stopping() {
    tell(&[NotifyState::Stopping]);
}

/// Sends the status line and the watchdog's sign of life for ever.
///
/// The sign of life is sent only while the machine answers.
pub(super) async fn keep_notified(node: &Node) {
    if std::env::var_os("NOTIFY_SOCKET").is_none() {
        return std::future::pending().await;
    }
    // One cycle is a question and a pause, each at most a third of the watchdog's period.
    let patience = sd_notify::watchdog_enabled().map(|patience| patience / 3);
    let every = patience.unwrap_or(LINE_EVERY).min(LINE_EVERY);
    loop {
        // Without an answer the machine is stuck. A hanging disk does not keep it from answering.
        if let Ok(Some(status)) = tokio::time::timeout(every, node.status()).await {
            tell(&[NotifyState::Status(&line(&status)), NotifyState::Watchdog]);
        }
        tokio::time::sleep(every).await;
    }
}

fn tell(news: &[NotifyState<'_>]) {
    if let Err(error) = sd_notify::notify(news) {
        debug!("cannot notify the init system: {error}");
    }
}

/// Formats the role and the alarms as one line.
fn line(status: &NodeStatus) -> String {
    let mut alarms = status.server.alarms.iter().map(|alarm| alarm.what.as_str());
    match status.server.role {
        // The first alarm gives the reason and names the missing servers.
        "" => alarms.next().unwrap_or("it does not serve yet").to_owned(),
        role if status.server.alarms.is_empty() => format!("{role}, {} sessions", status.server.sessions),
        role => format!("{role}: {}", alarms.collect::<Vec<_>>().join("; ")),
    }
}
