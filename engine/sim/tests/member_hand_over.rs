//! A leader names the next one: nobody has to be elected.
#![allow(clippy::unwrap_used, reason = "a test stops at the first surprise")]

mod member_support;

use member_support::Members;
use zoolet_engine::PeerMessage;
use zoolet_model::{CreateKind, Reply, Request};
use zoolet_sim::client::create;
use zoolet_zab::Message;

fn born(path: &str) -> Request {
    Request::Write(create(path.to_owned(), 5, CreateKind::Persistent))
}

/// Whom a server named, once for each server that was told.
fn named_by(members: &Members, leader: u8) -> Vec<u8> {
    let named = |(from, _, message): &(u8, u8, PeerMessage)| match message {
        PeerMessage::Zab(message) if *from == leader => match **message {
            Message::HandOver { to, .. } => Some(to.as_u8()),
            _ => None,
        },
        _ => None,
    };
    members.said.iter().filter_map(named).collect()
}

/// It was never said: the leader stopped leading in the same turn, and what waited to be sent was dropped.
#[test]
fn a_leader_whose_disk_hangs_says_who_leads_next() {
    let mut members = Members::born(3);
    let (leader, learners) = (members.leader(), members.learners());
    let client = members.client(learners[0], 30_000);
    members.hanging.insert(leader);
    assert_eq!(members.ask(&client, born("/a")), Ok(Reply::Path("/a".into())), "two disks are a quorum");
    let epoch = members.server(leader).zab().epoch();
    members.advance(1500);
    members.until_serves(learners[0]);
    let named = named_by(&members, leader);
    assert_eq!(named.len(), 2, "both others are told: {named:?}");
    assert_eq!((members.leader(), Some(members.server(learners[0]).zab().epoch())), (named[0], epoch.next()));
    assert_eq!(members.ask(&client, born("/b")), Ok(Reply::Path("/b".into())), "its connection outlived that");
}
