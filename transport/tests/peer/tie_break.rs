//! Of two concurrent connections, one becomes the link.
//!
//! The test plays one peer by hand and keeps its connection open.
#![allow(clippy::unwrap_used, reason = "a test stops at the first surprise")]

use crate::servers::stranger::{Stranger, answer, say_hello};
use crate::servers::{Plan, Server, free_address};
use quinn::ConnectionError;
use std::net::SocketAddr;
use std::time::Duration;

/// The close code for a connection beside an existing link.
const DUPLICATE: u32 = 2;

/// Starts server `id`, which dials server `peer` at `there`.
fn server_that_dials(id: u8, peer: u8, there: SocketAddr) -> Server {
    Plan::new(id).knows(peer, &[&there.to_string()]).start()
}

fn on_a_runtime<T>(future: impl Future<Output = T>) -> T {
    tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap().block_on(future)
}

#[test]
fn server_with_the_larger_id_answers_while_dialling() {
    on_a_runtime(async {
        let there = free_address();
        let one = Stranger::at(there);
        let two = server_that_dials(2, 1, there);
        let (unanswered, _say, _hear) = one.dialled().await;
        let own = one.connect(two.address).await.unwrap();
        tokio::select! {
            // Server 2 may close the connection it dialled after it has received GO, not earlier.
            // `biased` checks the close first.
            biased;
            end = unanswered.closed() => panic!("it answers only when its own dialling is over: {end}"),
            greeted = Stranger::greet(&own, Stranger::hello(1, 2)) => drop(greeted.unwrap()),
        }
    });
}

#[test]
fn server_with_the_smaller_id_keeps_the_connection_it_dials() {
    on_a_runtime(async {
        let there = free_address();
        let two = Stranger::at(there);
        let one = server_that_dials(1, 2, there);
        let (_dialled, mut say, mut hear) = two.dialled().await;
        let own = two.connect(one.address).await.unwrap();
        let mut greeting = tokio::spawn(async move { Stranger::greet(&own, Stranger::hello(2, 1)).await });
        let early = tokio::time::timeout(Duration::from_millis(300), &mut greeting).await;
        assert!(early.is_err(), "it decided on another connection");
        say_hello(&mut say, Stranger::hello(2, 1)).await;
        let greeted = tokio::select! {
            greeted = greeting => greeted.unwrap(),
            () = answer(&mut say, &mut hear) => panic!("what it dialled has ended"),
        };
        let Err(ConnectionError::ApplicationClosed(close)) = greeted else { panic!("{greeted:?}") };
        assert_eq!(close.error_code, DUPLICATE.into());
    });
}
