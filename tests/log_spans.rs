//! The log of a program that works under grants.
//!
//! It is a test binary of its own, so that no other thread is there. `tracing` remembers for each
//! place in the code whether anybody reads its lines. With one reader in the process, a thread that
//! comes to a place first asks only its own reader, and would silence the place for all.
#![allow(clippy::unwrap_used, reason = "a test stops at the first surprise")]

use std::fmt::Write as _;
use std::sync::{Arc, Mutex};
use std::time::Duration;
use zoolet::path;
use zoolet::recipes::Lock;
use zoolet::testing::MemoryEnsemble;

/// The spans that are open on this thread, and each line with the spans around it.
#[derive(Default)]
struct Log(Mutex<(Vec<String>, Vec<usize>, Vec<String>)>);

impl Log {
    fn fields(record: impl FnOnce(&mut dyn tracing::field::Visit)) -> String {
        #[derive(Default)]
        struct Fields(String);
        impl tracing::field::Visit for Fields {
            fn record_debug(&mut self, field: &tracing::field::Field, value: &dyn std::fmt::Debug) {
                // Times and znodes differ between runs.
                if ["message", "path", "token"].contains(&field.name()) {
                    let token = field.name() == "token";
                    let _ = write!(
                        self.0,
                        " {}={}",
                        field.name(),
                        if token { "T".to_owned() } else { format!("{value:?}") }
                    );
                }
            }
        }
        let mut fields = Fields::default();
        record(&mut fields);
        fields.0
    }
}

impl tracing::Subscriber for Log {
    fn enabled(&self, metadata: &tracing::Metadata<'_>) -> bool {
        metadata.target().starts_with("zoolet_recipes") || metadata.target().starts_with("log_spans")
    }

    fn new_span(&self, span: &tracing::span::Attributes<'_>) -> tracing::span::Id {
        let mut log = self.0.lock().unwrap();
        let fields = Self::fields(|visit| span.record(visit));
        log.0.push(format!("{}{fields}", span.metadata().name()));
        tracing::span::Id::from_u64(log.0.len() as u64)
    }

    fn record(&self, _: &tracing::span::Id, _: &tracing::span::Record<'_>) {}

    fn record_follows_from(&self, _: &tracing::span::Id, _: &tracing::span::Id) {}

    fn event(&self, event: &tracing::Event<'_>) {
        let mut log = self.0.lock().unwrap();
        let parent = event.parent().map(|id| id.into_u64() as usize - 1).or_else(|| log.1.last().copied());
        let span = parent.map_or_else(String::new, |id| log.0[id].clone());
        let fields = Self::fields(|visit| event.record(visit));
        log.2.push(format!("{} [{span}]{fields}", event.metadata().level()));
    }

    fn enter(&self, span: &tracing::span::Id) {
        self.0.lock().unwrap().1.push(span.into_u64() as usize - 1);
    }

    fn exit(&self, _: &tracing::span::Id) {
        self.0.lock().unwrap().1.pop();
    }
}

/// Lines of the program's own work carry the path and token of the grant under which it runs.
#[test]
fn log_has_spans_of_waits_and_grants_around_the_work() {
    let log = Arc::new(Log::default());
    let dispatch = tracing::Dispatch::new(Arc::clone(&log));
    tracing::dispatcher::with_default(&dispatch, || {
        let mut ensemble = MemoryEnsemble::in_memory(3);
        let session = ensemble.session();
        let lock = Lock::new(session.clone(), path!("/locks/told"));
        let grant = ensemble.run(lock.acquire()).unwrap();
        ensemble.run(grant.hold_for(async |_| tracing::info!("working"))).unwrap();
        let doubting = session.clone();
        ensemble.spawn(&session, async move {
            let _ = grant.hold_for(|_| std::future::pending::<()>()).await;
            assert!(doubting.state().is_over());
        });
        // No session has a connection meanwhile.
        ensemble.servers().into_iter().for_each(|server| ensemble.kill(server));
        ensemble.advance(Duration::from_secs(1));
        ensemble.servers().into_iter().for_each(|server| ensemble.restart(server));
        ensemble.advance(Duration::from_secs(3));
        ensemble.expire(&session);
        ensemble.advance(Duration::from_secs(1));
    });
    let lines = log.0.lock().unwrap().2.clone();
    let grant = "grant path=/locks/told token=T";
    let of_grant = "path=/locks/told token=T";
    assert_eq!(
        lines,
        [
            "DEBUG [wait path=/locks/told] message=stands in line path=/locks/told".to_owned(),
            format!("DEBUG [{grant}] message=granted {of_grant}"),
            format!("INFO [{grant}] message=working"),
            format!("INFO [doubt {of_grant}] message=the grant is in doubt {of_grant}"),
            format!("INFO [doubt {of_grant}] message=the grant is held again {of_grant}"),
            // The session loses its connection before it expires.
            format!("INFO [doubt {of_grant}] message=the grant is in doubt {of_grant}"),
            format!("WARN [{grant}] message=the grant is lost {of_grant}"),
        ]
    );
}
