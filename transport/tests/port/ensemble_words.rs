//! Four-letter words of a server in an ensemble.

#![allow(clippy::unwrap_used, reason = "a test stops at the first surprise")]

use crate::fake::{Server, alone};
use zoolet_machine::Status;
use zoolet_machine::seam::event::Shortage;
use zoolet_machine::seam::peer::Health;
use zoolet_machine::status::{
    Alarm, AlarmKind, DiskTrouble, FlashStatus, LearnerStatus, MemberStatus, PeerStatus, ProposalBytes, Refusal,
};
use zoolet_machine::status::{Cause, DeviceWear, SpareBlocks, Written};
use zoolet_machine::wear::Forecast;
use zoolet_model::{ServerId, Zxid};
use zoolet_transport::client_port::{About, PortSettings, ServerAddresses, Whitelist};
use zoolet_zab::{Kind, Role};

fn id(number: u8) -> ServerId {
    ServerId::new(number).unwrap()
}

/// Returns the status of a leader with three voters and an observer; voter 3 has a new disk.
pub(crate) fn leading() -> Status {
    let learner =
        |number, votes, is_synced, behind| LearnerStatus { id: id(number), votes, is_synced, behind, behind_ms: 0 };
    Status {
        role: "leader",
        leader: Some(id(1)),
        members: vec![(id(1), Kind::Voter), (id(2), Kind::Voter), (id(3), Kind::Voter), (id(4), Kind::Observer)],
        members_since: Zxid::from_bits(0x10a).unwrap(),
        id: Some(id(1)),
        is_counted: true,
        learners: vec![learner(2, true, true, 0), learner(3, false, true, 5), learner(4, false, true, 0)],
        led_ms: Some(1234),
        proposals: ProposalBytes(Some([64, 36, 240])),
        pending_syncs: 2,
        disk: vec![
            ("log_fdatasyncs", 7),
            ("fdatasync_us_p50", 200),
            ("fdatasync_us_p99", 900),
            ("fdatasync_us_max", 950),
        ],
        peers: vec![PeerStatus {
            id: id(2),
            address: "10.0.0.2:2888".to_owned(),
            is_linked: false,
            missing_ms: 11_000,
            heard_ms: None,
            round_trip_us: 0,
            refusal: Some("no UDP reply from \"gw-b\"".to_owned()),
        }],
        said: vec![MemberStatus {
            id: id(3),
            health: Health {
                role: Role::Following(id(1)),
                refusal: Some(Refusal::Shortage(Shortage::Disk)),
                disk: [DiskTrouble::Slow].into_iter().collect(),
                ..Health::default()
            },
            said_ms: 40,
        }],
        flash: Some(FlashStatus {
            written: Written::default().with(Cause::Log, 8192).with(Cause::Base, 4096).with(Cause::Prepared, 65_536),
            entry_bytes: 1024,
            forecast: Forecast { over_ms: 86_400_000, bytes: 12_288, bytes_per_day: Some(600_000_000) },
            is_over_budget: true,
            device: Some(DeviceWear {
                device: "mmcblk0".to_owned(),
                used_percent: Some(10),
                spare: Some(SpareBlocks::Normal),
            }),
            ..FlashStatus::default()
        }),
        alarms: vec![Alarm::of_this_server(AlarmKind::NotServing, "what", "remedy")],
        ..alone()
    }
}

fn at(id: u8, addresses: &[&str]) -> ServerAddresses {
    let client = (id != 5).then(|| format!("10.0.0.{id}:2181"));
    ServerAddresses { id, addresses: addresses.iter().map(|&text| text.to_owned()).collect(), client }
}

pub(crate) fn server(status: Status) -> Server {
    let about = About {
        version: "0.1.0".into(),
        server_id: 1,
        servers: vec![
            at(1, &["gw-a:2888:3888", "10.0.0.1:2889:3888"]),
            at(2, &["gw-b:2888:3888"]),
            at(4, &["gw-d:2888:3888"]),
            at(5, &["gw-e:2888:3888"]),
        ],
        conf: vec![("clientPort".into(), "2181".into())],
        ..About::default()
    };
    let four_letter_words = Whitelist::parse("mntr,srvr,conf,stat,dump,isro");
    let settings = PortSettings { four_letter_words, about, ..PortSettings::default() };
    let server = Server::with(settings, 30_000);
    server.machine.become_status(status);
    server
}

/// Surface 9.3.
#[test]
fn mntr_of_a_leader_counts_its_learners() {
    let server = server(leading());
    let mntr = server.word("mntr");
    for line in [
        "zk_server_state\tleader",
        "zk_peer_state\tleading - broadcast",
        "zk_quorum_size\t3",
        "zk_learners\t3",
        "zk_synced_followers\t2",
        "zk_synced_non_voting_followers\t1",
        "zk_synced_observers\t1",
        "zk_pending_syncs\t2",
        "zk_leader_uptime\t1234",
        "zk_last_proposal_size\t64",
        "zk_min_proposal_size\t36",
        "zk_max_proposal_size\t240",
    ] {
        assert!(mntr.lines().any(|found| found == line), "{line:?} in {mntr}");
    }
    for word in ["srvr", "stat"] {
        let text = server.word(word);
        assert!(text.contains("\nMode: leader\nNode count: 5\nProposal sizes last/min/max: 64/36/240\n"), "{text}");
    }
}

#[test]
fn mntr_of_other_roles_shows_the_role_and_counts_no_learners() {
    for (role, state) in [("follower", "following - broadcast"), ("observer", "observing - broadcast")] {
        let server = server(Status { role, learners: Vec::new(), led_ms: None, ..leading() });
        let mntr = server.word("mntr");
        assert!(
            mntr.contains(&format!("\nzk_server_state\t{role}\nzk_peer_state\t{state}\nzk_quorum_size\t3\n")),
            "{mntr}"
        );
        assert!(!mntr.contains("zk_learners") && !mntr.contains("zk_leader_uptime"), "{mntr}");
        let srvr = server.word("srvr");
        assert!(srvr.ends_with(&format!("\nMode: {role}\nNode count: 5\n")), "{srvr}");
    }
    let mntr = server(alone()).word("mntr");
    assert!(!mntr.contains("zk_peer_state") && !mntr.contains("zk_quorum_size"), "{mntr}");
}

/// The ensemble decides its members; the configuration file only knows addresses. In this file,
/// server 3 is missing and server 5 is not a member.
#[test]
fn conf_ends_with_the_decided_membership_and_its_version() {
    let first = "server.1=gw-a:2888:3888:participant|10.0.0.1:2889:3888:participant";
    let lines = format!(
        "{first}\nserver.2=gw-b:2888:3888:participant\nserver.3=:participant\nserver.4=gw-d:2888:3888:observer"
    );
    let expected = format!("clientPort=2181\npeerType=0\nmembership: \n{lines}\nversion=10a");
    assert_eq!(server(leading()).word("conf"), expected);
    // Client addresses are shown for all members or for none.
    let members = vec![(id(1), Kind::Voter), (id(4), Kind::Observer)];
    let conf = server(Status { members, id: Some(id(4)), ..leading() }).word("conf");
    let lines = format!("{first};10.0.0.1:2181\nserver.4=gw-d:2888:3888:observer;10.0.0.4:2181");
    assert_eq!(conf, format!("clientPort=2181\npeerType=1\nmembership: \n{lines}\nversion=10a"));
}

/// docs/reference/status.md lists these fields.
#[test]
fn zool_is_answered_as_json_although_not_whitelisted() {
    let server = server(leading());
    let zool = server.word("zool");
    assert_eq!(zool.lines().count(), 1, "{zool}");
    assert!(zool.starts_with(r#"{"version":1,"zoolet":"0.1.0","server":1,"role":"leader","uptime_ms":"#), "{zool}");
    for part in [
        r#","leader":1,"epoch":0,"zxid":"0x2a","behind":0,"behind_ms":0,"digest":"00000000000000000000000000000000","znodes":4,"#,
        r#""disk":{"fdatasyncs":7,"fdatasync_p50_us":200,"fdatasync_p99_us":900,"fdatasync_p999_us":0,"fdatasync_max_us":950,"#,
        concat!(
            r#""flash":{"written_bytes":{"log":8192,"prepared":65536,"base":4096,"snapshot":0,"image":0,"other":0},"entry_bytes":1024,"#,
            r#""amplification_percent":1200,"window_ms":86400000,"window_bytes":12288,"bytes_per_day":600000000,"#,
            r#""budget_bytes_per_day":1600000000,"over_budget":true,"life_days":10000,"#,
            r#""device":{"name":"mmcblk0","used_percent":10,"spare":"normal"}}"#
        ),
        r#""members":[{"id":1,"role":"voter"},{"id":2,"role":"voter"},{"id":3,"role":"voter"},{"id":4,"role":"observer"}]"#,
        r#""learners":[{"id":2,"votes":true,"synced":true,"behind":0,"behind_ms":0},{"id":3,"votes":false,"synced":true,"behind":5,"behind_ms":0},"#,
        r#""peers":[{"id":2,"address":"10.0.0.2:2888","linked":false,"missing_ms":11000,"heard_ms":null,"round_trip_us":0,"#,
        r#""refusal":"no UDP reply from \"gw-b\""}]"#,
        r#""site":[{"id":3,"role":"follower","leader":1,"zxid":"0x0","behind":0,"refusal":"the disk is full","disk":["its disk is slow"],"said_ms":40}]"#,
        r#""alarms":[{"what":"what","remedy":"remedy","holds_up":true}]}"#,
    ] {
        assert!(zool.contains(part), "{part} in {zool}");
    }
}

#[test]
fn zool_is_answered_while_the_server_does_not_serve() {
    let server = server(Status { role: "", leader: None, ..leading() });
    let zool = server.word("zool");
    assert!(zool.contains(r#""role":"looking","#) && zool.contains(r#""leader":null"#), "{zool}");
}
