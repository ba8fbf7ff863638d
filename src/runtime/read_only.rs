//! A server whose disk takes no writes when it starts.
//!
//! If the process ended, it would be restarted forever and no operator would know why. So it
//! reports the problem on its client port until it can start.

use super::data::{self, StartError};
use super::io_thread;
use crate::config::Config;
use std::sync::Arc;
use std::thread::JoinHandle;
use tokio::sync::Notify;
use zoolet_machine::status::{self, Status};
use zoolet_machine::{Budget, Event};
use zoolet_model::ServerId;
use zoolet_store::MARKER;
use zoolet_transport::client_port::{ClientPort, EventSink, Output, OutputQueue};

/// Client port of a server that waits for its disk.
///
/// It answers requests for the status and refuses all others. Dropping it closes the port.
#[derive(Debug)]
pub struct ReadOnly {
    stop: Arc<Notify>,
    thread: Option<JoinHandle<()>>,
    /// Whether the directory had data.
    had_data: bool,
}

impl ReadOnly {
    /// Opens the port that `config` names, if it names one.
    ///
    /// # Errors
    /// The port cannot be opened, or its thread cannot start.
    pub fn tell(config: &Config) -> Result<Self, StartError> {
        let stop = Arc::new(Notify::new());
        let budget = Arc::new(Budget::new(&config.limits));
        let port = io_thread::bind(config, &config.data, budget)?;
        let (stop_signal, id) = (Arc::clone(&stop), ServerId::new(config.server_id));
        let thread = match port {
            Some(port) => {
                let thread = std::thread::Builder::new().name("zoolet-io".to_owned());
                Some(thread.spawn(move || serve(port, id, &stop_signal)).map_err(StartError::Thread)?)
            }
            None => None,
        };
        Ok(Self { stop, thread, had_data: has_data(config) })
    }

    /// Returns whether another attempt to start makes sense.
    ///
    /// It does not while the file system is unmounted for a check: the directory at the mount point
    /// does not have the data.
    pub fn is_over(&self, config: &Config) -> bool {
        has_data(config) == self.had_data && !data::is_on_read_only_disk(&config.data)
    }
}

impl Drop for ReadOnly {
    fn drop(&mut self) {
        self.stop.notify_one();
        if let Some(thread) = self.thread.take() {
            // The next server opens the same port.
            let _ = thread.join();
        }
    }
}

fn has_data(config: &Config) -> bool {
    config.data.join(MARKER).exists()
}

fn serve(port: ClientPort, id: Option<ServerId>, stop: &Notify) {
    let runtime =
        tokio::runtime::Builder::new_current_thread().enable_io().enable_time().max_blocking_threads(1).build();
    let Ok(runtime) = runtime else { return };
    let outbox = Arc::new(OutputQueue::new());
    let answers = Arc::new(Answers { outbox: Arc::clone(&outbox), id });
    if let Err(error) = runtime.block_on(port.serve(answers, outbox, stop.notified())) {
        tracing::warn!("the client port failed: {error}");
    }
    runtime.shutdown_background();
}

/// Answers in place of the machine.
struct Answers {
    outbox: Arc<OutputQueue>,
    id: Option<ServerId>,
}

impl EventSink for Answers {
    fn submit(&self, events: &mut Vec<Event>) {
        let answer = |event| match event {
            Event::Connect { conn, .. } => Some(Output::Close { conn }),
            Event::Status { ticket } | Event::List { ticket, .. } => {
                Some(Output::Status { ticket, status: Box::new(self.status()) })
            }
            // From connections that were refused.
            _ => None,
        };
        self.outbox.push(&mut events.drain(..).filter_map(answer).collect());
    }
}

impl Answers {
    fn status(&self) -> Status {
        let mut status = Status {
            id: self.id,
            is_read_only: true,
            refusing_writes: Some("the disk is read-only"),
            ..Status::default()
        };
        status.alarms = status::alarms(&status);
        status
    }
}
