//! A small protocol over a lock, tested under simulated faults. Gateways take turns at a valve, and
//! each turn is written with the next number.
//!
//! `cargo run --example testing_simulated --features testing`
#![allow(clippy::print_stdout, reason = "a program talks to whoever runs it")]

use std::time::Duration;
use zoolet::recipes::Lock;
use zoolet::testing::{ClientContext, Fact, World, simulate};
use zoolet::{Error, Path, path};

const VALVE: &Path = path!("/valve");

fn main() {
    println!("{} seeds went well", run());
}

/// Takes one turn: adds 1 to the number of turns, under the lock and only while it is held.
async fn turn(context: &ClientContext<u64>) -> Result<u64, Error> {
    let lock = Lock::new(context.session.clone(), path!("/locks/valve"));
    let grant = lock.acquire().await?;
    let turn = match context.session.get(VALVE).await {
        Ok(znode) => 1 + znode.text().and_then(|text| text.parse().ok()).unwrap_or(0),
        Err(error) if error.is_no_node() => 1,
        Err(error) => return Err(error),
    };
    // The valve is slow: a gateway may lose the lock meanwhile.
    context.sleep(Duration::from_millis(context.below(2000))).await;
    grant.fenced().put(VALVE, turn.to_string()).await?;
    Ok(turn)
}

/// A gateway, which takes turns until three of them are known to be written.
async fn gateway(context: ClientContext<u64>) {
    let mut turns = 0;
    while turns < 3 && !context.session.state().is_over() {
        match turn(&context).await {
            Ok(turn) => {
                context.record(turn);
                turns += 1;
            }
            Err(_) => context.sleep(Duration::from_millis(100)).await,
        }
    }
}

/// Checks that no two turns have the same number.
fn each_turn_is_one_gateways(facts: &[Fact<u64>]) {
    let mut turns: Vec<u64> = facts.iter().map(|fact| fact.what).collect();
    turns.sort_unstable();
    assert!(turns.windows(2).all(|two| two[0] < two[1]), "{turns:?}");
}

/// Runs twenty seeds; returns their number.
pub fn run() -> u64 {
    for seed in 0..20 {
        simulate(seed, |world: &mut World<u64>| {
            (0..3).for_each(|_| world.client(gateway));
            world.judge(each_turn_is_one_gateways);
        });
    }
    20
}
