//! Clients of learners while the leader holds Commits back.
#![allow(clippy::unwrap_used, reason = "a test stops at the first surprise")]

use crate::member_support::{Client, Members, Told, born, write};
use zoolet_machine::PeerMessage;
use zoolet_model::{Request, Text};
use zoolet_zab::{Message, Timing};

const TIMEOUT_MS: i32 = 9000;

/// Three servers after so many close writes at the leader that its Commits wait.
struct Paced {
    members: Members,
    /// What the first client of a learner asked for last.
    forward: PeerMessage,
    leader: u8,
    /// A client of the leader, and one of each learner.
    clients: [Client; 3],
}

impl Paced {
    fn new() -> Self {
        let mut members = Members::born(3);
        let (leader, learners) = (members.leader(), members.learners());
        let clients = [leader, learners[0], learners[1]].map(|server| members.client(server, TIMEOUT_MS));
        members.ask(&clients[0], born("/a")).unwrap();
        members.ask(&clients[1], write("/a")).unwrap();
        let forward = members.said.iter().rev().find(|said| matches!(said.2, PeerMessage::Forward { .. }));
        let forward = forward.unwrap().2.clone();
        let mut paced = Self { members, forward, leader, clients };
        for _ in 0..=Timing::default().commit_hold_entries {
            paced.write_at_the_leader();
        }
        assert!(paced.is_behind(1) && paced.is_behind(2));
        paced
    }

    fn write_at_the_leader(&mut self) {
        self.members.ask(&self.clients[0], write("/a")).unwrap();
    }

    /// Returns a write of a session at the wrong connection, which the leader refuses.
    fn forward_of_another_connection(&self) -> PeerMessage {
        let PeerMessage::Forward { epoch, attempt, since, payload, .. } = self.forward.clone() else { unreachable!() };
        PeerMessage::Forward { epoch, attempt, conn: self.clients[2].conn, since, payload }
    }

    /// Returns whether the server of this client has not applied what the leader has.
    fn is_behind(&self, client: usize) -> bool {
        self.members.server(self.clients[client].server).applied() < self.members.server(self.leader).applied()
    }
}

#[test]
fn answers_at_a_learner_do_not_wait_for_the_next_entry() {
    let Paced { members, clients, .. } = &mut Paced::new();
    members.ask(&clients[1], write("/a")).unwrap();
    members.ask(&clients[2], write("/a")).unwrap();
}

#[test]
fn sync_at_a_learner_does_not_wait_for_the_next_entry() {
    let mut paced = Paced::new();
    paced.members.ask(&paced.clients[1], Request::Sync { path: Some(Text::from("/")) }).unwrap();
    assert!(!paced.is_behind(1));
}

/// The server answers once it has applied the writes of the client's session, and the entry with
/// its new timeout. It would refuse a client that has seen newer entries, as ever.
#[test]
fn returning_client_does_not_wait_for_the_next_entry() {
    for timeout_ms in [TIMEOUT_MS, TIMEOUT_MS + 1000] {
        let mut paced = Paced::new();
        let server = paced.clients[2].server;
        let mut client = paced.clients[0];
        client.timeout_ms = timeout_ms;
        paced.members.come_back(&mut client, server, 0);
        paced.members.settle();
        let told = paced.members.told(&client);
        assert!(matches!(&told[..], [Told::Connected(reply)] if reply.session == client.session), "{told:?}");
        assert!(!paced.is_behind(2));
    }
}

#[test]
fn watch_at_a_learner_fires_within_2_ms_of_the_last_entry() {
    let mut paced = Paced::new();
    let watcher = paced.clients[1];
    paced.members.ask(&watcher, Request::Exists { path: Text::from("/b"), watch: true }).unwrap_err();
    paced.members.ask(&paced.clients[0], born("/b")).unwrap();
    assert!(paced.members.told(&watcher).is_empty());
    paced.members.advance(2);
    assert!(matches!(paced.members.told(&watcher)[..], [Told::Notified(_)]));
}

/// The learner answers its client in the order of commits and refusals.
#[test]
fn refusal_follows_the_commits_before_it() {
    for is_behind_a_proposal in [false, true] {
        let mut paced = Paced::new();
        let learner = paced.clients[1].server;
        let refused = paced.forward_of_another_connection();
        paced.members.said.clear();
        paced.members.hold(learner, paced.leader);
        if is_behind_a_proposal {
            paced.members.send(&paced.clients[1], 1, write("/a"));
        }
        paced.members.inject(learner, paced.leader, refused);
        paced.members.deliver_in_one_turn(learner, paced.leader);
        paced.members.settle();
        let said = paced.members.said.iter().filter(|said| (said.0, said.1) == (paced.leader, learner));
        let said: Vec<_> = said.map(|said| &said.2).collect();
        let commit = said
            .iter()
            .position(|said| matches!(said, PeerMessage::Zab(message) if matches!(**message, Message::Commit { .. })));
        let refused = said.iter().position(|said| matches!(said, PeerMessage::Refused { .. }));
        assert!(commit.is_some() && commit < refused, "{said:?}");
    }
}
