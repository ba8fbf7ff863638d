//! Tests the harness itself with a single server, undisturbed and killed under load.
#![allow(clippy::unwrap_used, reason = "tests may unwrap")]

use std::time::Duration;
use zoolet_ensemble_tests::agreement;
use zoolet_ensemble_tests::load::{Load, Shape, make_keys};
use zoolet_ensemble_tests::product::Product;
use zoolet_ensemble_tests::site::{Form, PATIENCE, Plan, Site};

fn plan() -> Plan {
    Plan { form: Form::ZooCfg, ..Plan::new(Product::zoolet().unwrap(), 1) }
}

#[test]
fn a_load_that_nothing_disturbs_moves_no_client() {
    let site = Site::start(plan()).unwrap();
    let shape = Shape { pause: Duration::ZERO, ..Shape::default() };
    make_keys(site.server(1).client(), &shape).unwrap();
    let load = Load::start(&site.clients(), &shape, 1);
    load.wait_for(300, PATIENCE).unwrap();
    assert_eq!(load.finish().unwrap().moves, 0, "the end of the load is no move");
}

#[test]
fn killed_standalone_server_keeps_acked_writes() {
    let mut site = Site::start(plan()).unwrap();
    let shape = Shape { pause: Duration::ZERO, ..Shape::default() };
    make_keys(site.server(1).client(), &shape).unwrap();
    let load = Load::start(&site.clients(), &shape, 1);
    for _ in 0..2 {
        load.wait_for(300, PATIENCE).unwrap();
        site.server_mut(1).kill();
        site.server_mut(1).start().unwrap();
        site.wait_for_all().unwrap();
    }
    load.wait_for(300, PATIENCE).unwrap();
    let mut seen = load.finish().unwrap();
    assert!(seen.acknowledged() >= 900 && seen.moves > 0, "{} writes, {} moves", seen.acknowledged(), seen.moves);
    agreement::check(&site, shape.keys, &seen).unwrap();

    // The check must find an acknowledged version that does not exist.
    let last =
        seen.operations.iter_mut().filter_map(|operation| operation.answer.as_mut()).max_by_key(|answer| answer.at);
    last.unwrap().version += 1;
    agreement::check(&site, shape.keys, &seen).unwrap_err();
}
