//! Refused connections, and how they are reported to operators.
#![allow(clippy::unwrap_used, reason = "a test stops at the first surprise")]

use crate::servers::stranger::{Stranger, answer, say_go};
use crate::servers::{PATIENCE, Plan, commit, free_address, id, lines, plans};
use quinn::ConnectionError;
use std::net::UdpSocket;
use std::thread::sleep;
use std::time::{Duration, Instant};
use tokio::time::timeout;
use zoolet_machine::Event;
use zoolet_transport::peer::Instruction;
use zoolet_transport::peer::codec::Hello;
use zoolet_transport::peer::trust::close_code::{LIVE_TWICE, PROOF, SERVER};
use zoolet_transport::peer::trust::{Identity, SiteKey};

fn on_a_runtime<T>(future: impl Future<Output = T>) -> T {
    tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap().block_on(future)
}

#[track_caller]
fn is_closed_with(code: u32, end: ConnectionError) {
    match end {
        ConnectionError::ApplicationClosed(close) => assert_eq!(close.error_code, code.into()),
        end => panic!("{end}"),
    }
}

#[test]
fn second_server_with_a_live_id_is_refused_naming_the_first() {
    lines::keep();
    let [one, two] = plans::<2>();
    let first = two.start();
    let server = one.start();
    let link = server.linked(2);
    first.linked(1);

    let mut twin = two.clone();
    (twin.listen, twin.process, twin.identity) = (free_address(), 5, Identity::generate().unwrap());
    let twin = twin.start();
    let (old, new) = (first.address.to_string(), twin.address.to_string());
    // The line appears whichever side dialled.
    lines::wait(&[&new, "(server 2)", "is live at", &old]);
    let told = twin.refusal(1, "another live server");
    assert!(told.contains(&old), "{told}");

    sleep(Duration::from_millis(500));
    assert_eq!(twin.told.count(|_| true), 0);
    server.send(2, link, commit(1));
    assert_eq!(first.messages(1, first.linked(1), 1), [commit(1)]);
}

#[test]
fn twin_with_a_delayed_go_does_not_displace_a_newer_link() {
    let server = Plan::new(2).knows(1, &[]).start();
    let address = server.address;
    on_a_runtime(async {
        let twin = Stranger::new();
        let connection = twin.connect(address).await.unwrap();
        let (mut say, _hear) = Stranger::be_answered(&connection, Stranger::hello(1, 2)).await.unwrap();
        let first = Plan::new(1).knows(2, &[&address.to_string()]);
        let (server, first, link) = tokio::task::spawn_blocking(move || {
            let first = first.start();
            first.linked(2);
            let link = server.linked(1);
            (server, first, link)
        })
        .await
        .unwrap();
        say_go(&mut say).await;
        is_closed_with(LIVE_TWICE, timeout(PATIENCE, connection.closed()).await.unwrap());
        let live = tokio::task::spawn_blocking(move || {
            server.send(1, link, commit(1));
            assert_eq!(first.messages(2, first.linked(2), 1), [commit(1)]);
            assert_eq!(server.told.count(|event| matches!(event, Event::PeerDown { .. })), 0);
        });
        live.await.unwrap();
    });
}

/// A copied data directory has its original's key. Each id is decided separately, so the key must
/// be judged again when the connection becomes the link.
#[test]
fn simultaneous_servers_with_the_same_key_get_a_single_link() {
    let server = Plan::new(1).knows(2, &[]).knows(3, &[]).start();
    on_a_runtime(async {
        let twins = Stranger::new();
        let (one, other) = (twins.connect(server.address).await.unwrap(), twins.connect(server.address).await.unwrap());
        let (mut say, _hear) = Stranger::be_answered(&one, Stranger::hello(2, 1)).await.unwrap();
        let (mut say_other, _hear_other) = Stranger::be_answered(&other, Stranger::hello(3, 1)).await.unwrap();
        say_go(&mut say).await;
        while server.told.count(|event| matches!(event, Event::PeerUp { .. })) == 0 {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
        say_go(&mut say_other).await;
        is_closed_with(LIVE_TWICE, timeout(PATIENCE, other.closed()).await.unwrap());
        assert_eq!(server.told.count(|event| matches!(event, Event::PeerUp { peer, .. } if *peer == id(3))), 0);
    });
}

#[test]
fn copied_data_directory_under_another_id_is_refused() {
    lines::keep();
    let [one, two, mut three] = plans::<3>();
    three.identity = two.identity.clone();
    let server = one.start();
    let original = two.start();
    server.linked(2);
    let copy = three.start();
    let line = lines::wait(&[&copy.address.to_string(), "(server 3)", "is live at", &original.address.to_string()]);
    assert!(line.contains("server 2"), "{line}");
    assert_eq!(server.told.count(|event| matches!(event, Event::PeerUp { peer, .. } if *peer == id(3))), 0);
}

#[test]
fn frozen_server_does_not_block_its_successor() {
    let address = free_address();
    let mut plan = Plan::new(1).knows(2, &[]);
    plan.listen = address;
    let server = plan.start();
    on_a_runtime(async {
        let stranger = Stranger::new();
        // The stranger acknowledges packets, but does not answer probes.
        let (_connection, _say, _hear) = stranger.link(2, 1, address).await;
        let link = tokio::task::spawn_blocking(move || {
            let link = server.linked(2);
            let two = Plan::new(2).knows(1, &[&address.to_string()]).start();
            server.unlinked(2, link);
            server.linked(2);
            two.linked(1);
            server
        });
        link.await.unwrap();
    });
}

#[test]
fn successor_must_have_begun_after_the_last_sign_of_life() {
    let server = Plan::new(1).knows(2, &[]).start();
    let (begun, address) = (Instant::now(), server.address);
    on_a_runtime(async {
        let (first, second, third) = (Stranger::new(), Stranger::new(), Stranger::new());
        let (_first, mut say, mut hear) = first.link(2, 1, address).await;
        let later = |process, began: Instant| Hello {
            process,
            process_age_ms: began.elapsed().as_millis() as u64,
            ..Stranger::hello(2, 1)
        };
        // A process older than the link. The first server is silent.
        let before = begun.checked_sub(Duration::from_secs(10)).unwrap();
        let older = second.connect(address).await.unwrap();
        is_closed_with(LIVE_TWICE, Stranger::greet(&older, later(78, before)).await.unwrap_err());
        // A process younger than the link, but the first server still answers for a while.
        let born = Instant::now();
        sleep(Duration::from_millis(500));
        let younger = third.connect(address).await.unwrap();
        tokio::select! {
            greeted = Stranger::greet(&younger, later(79, born)) => is_closed_with(LIVE_TWICE, greeted.unwrap_err()),
            () = answer(&mut say, &mut hear) => {}
        }
        let again = third.connect(address).await.unwrap();
        is_closed_with(LIVE_TWICE, Stranger::greet(&again, later(79, born)).await.unwrap_err());
        // A process that began after the first server's last sign of life.
        let successor = second.connect(address).await.unwrap();
        Stranger::greet(&successor, later(80, Instant::now())).await.unwrap();
    });
}

#[test]
fn server_at_the_address_of_another_server_is_named_and_refused() {
    lines::keep();
    let three = Plan::new(3).knows(1, &[]).start();
    let one = Plan::new(1).knows(2, &[&three.address.to_string()]).knows(3, &[]).start();
    let line = one.refusal(2, "answers at the address of server 2");
    assert!(line.contains(&three.address.to_string()) && line.contains("server 3"), "{line}");
    let there = lines::wait(&[&one.address.to_string(), "(server 1)", "dialled this server as server 2"]);
    assert!(there.contains("wrong there"), "{there}");
    sleep(Duration::from_millis(500));
    assert_eq!(one.told.count(|_| true) + three.told.count(|_| true), 0);
    // A lasting condition is logged once, so it cannot fill a disk.
    assert_eq!(lines::with(&[&three.address.to_string(), "answers at the address"]).len(), 1);
}

#[test]
fn linked_peer_dialling_a_wrong_id_is_answered_with_the_real_id() {
    let one = Plan::new(1).knows(3, &[]).start();
    on_a_runtime(async {
        let three = Stranger::new();
        let (_link, mut say, mut hear) = three.link(3, 1, one.address).await;
        while one.told.count(|event| matches!(event, Event::PeerUp { .. })) == 0 {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
        let other = three.connect(one.address).await.unwrap();
        let heard = async {
            // The server answers, although a link exists already.
            let _streams = Stranger::greet(&other, Stranger::hello(3, 2)).await.unwrap();
            other.closed().await
        };
        tokio::select! {
            end = heard => is_closed_with(SERVER, end),
            () = answer(&mut say, &mut hear) => panic!("the link has ended"),
        }
    });
    assert_eq!(one.told.count(|event| matches!(event, Event::PeerUp { .. })), 1);
}

#[test]
fn different_site_key_is_refused_and_both_sides_show_the_reason() {
    lines::keep();
    let [one, two] = plans::<2>();
    let (key, other) = (SiteKey::generate().unwrap(), SiteKey::generate().unwrap());
    let (one, two) = (one.of_site(&key).start(), two.of_site(&other).start());
    one.refusal(2, "site key");
    two.refusal(1, "site key");
    assert_eq!(one.told.count(|_| true) + two.told.count(|_| true), 0);
}

/// Any host that reaches the port can claim to be server 2. Its words must not become the advice
/// that the status gives to an operator.
#[test]
fn unproven_peer_adds_no_advice_to_the_status() {
    lines::keep();
    let one = Plan::new(1).knows(2, &[]).of_site(&SiteKey::generate().unwrap()).start();
    on_a_runtime(async {
        let stranger = Stranger::new();
        for proof in [None, Some([7; 32])] {
            let connection = stranger.connect(one.address).await.unwrap();
            let hello = Hello { proof, ..Stranger::hello(2, 1) };
            is_closed_with(PROOF, Stranger::be_answered(&connection, hello).await.unwrap_err());
        }
        // The stranger's close reason must not be shown either.
        let connection = stranger.connect(one.address).await.unwrap();
        connection.close(LIVE_TWICE.into(), b"10.9.9.9:2888");
        stranger.endpoint.wait_idle().await;
    });
    for lacks in ["it shows no proof of the site key", "its proof is for another site key"] {
        let line = lines::wait(&["claims to be server 2 and is refused: ", lacks]);
        assert!(!line.contains("copy"), "{line}");
    }
    assert_eq!(lines::with(&["10.9.9.9"]), [""; 0]);
    let refusal = one.table.figures()[&id(2)].refusal.clone();
    assert_eq!(refusal, None);
}

/// Handshakes of strangers are rate-limited.
///
/// Each one costs a key exchange and two signatures, on the thread that answers heartbeats.
#[test]
fn stranger_looping_handshakes_is_limited_to_a_few_per_second() {
    const LOOPS: usize = 300;
    let server = Plan::new(1).start();
    let begun = Instant::now();
    let heard = on_a_runtime(async {
        let stranger = std::sync::Arc::new(Stranger::new());
        let mut heard = 0;
        for _ in 0..LOOPS {
            // Abandons a handshake without an answer, as a hasty attacker does.
            let connecting = timeout(Duration::from_millis(20), stranger.connect(server.address));
            if let Ok(Ok(connection)) = connecting.await {
                heard += 1;
                connection.close(0u32.into(), b"");
            }
        }
        heard
    });
    let at_most = 32 + 8 * (begun.elapsed().as_secs() as usize + 1);
    assert!((1..=at_most).contains(&heard), "{heard} of {LOOPS} in {:?}", begun.elapsed());
}

#[test]
fn servers_with_the_same_site_key_link() {
    let key = SiteKey::generate().unwrap();
    let [one, two] = plans::<2>().map(|plan| plan.of_site(&key).start());
    one.linked(2);
    two.linked(1);
}

#[test]
fn different_site_name_is_refused_and_both_names_are_logged() {
    lines::keep();
    let [one, mut two] = plans::<2>();
    two.site = "other".to_owned();
    let (one, two) = (one.start(), two.start());
    for (server, other) in [(&one, 2), (&two, 1)] {
        let line = server.refusal(other, "another ensemble");
        assert!(line.contains("site"), "{line}");
    }
    lines::wait(&[&two.address.to_string(), "its site is \"other\", this server's is \"plant\""]);
    lines::wait(&[&one.address.to_string(), "its site is \"plant\", this server's is \"other\""]);
    assert_eq!(one.told.count(|_| true) + two.told.count(|_| true), 0);
}

#[test]
fn server_that_is_no_member_is_refused() {
    let one = Plan::new(1).start();
    let two = Plan::new(2).knows(1, &[&one.address.to_string()]).start();
    two.refusal(1, "does not have this server in its configuration");
    assert_eq!(one.told.count(|_| true) + two.told.count(|_| true), 0);
}

#[test]
fn pinned_server_is_refused_with_any_other_key() {
    let [mut one, two] = plans::<2>();
    one.members[1].2 = Some(Identity::generate().unwrap().public_key());
    let (one, two) = (one.start(), two.start());
    one.refusal(2, "key");
    two.refusal(1, "key");
    assert_eq!(one.told.count(|_| true) + two.told.count(|_| true), 0);
}

#[test]
fn silent_address_is_reported_with_the_udp_port_to_open() {
    let nobody = free_address();
    let one = Plan::new(1).knows(2, &[&nobody.to_string()]).start();
    let line = one.refusal(2, "no UDP reply");
    assert!(
        line.contains(&format!("from {nobody}")) && line.contains(&format!("open UDP {}", nobody.port())),
        "{line}"
    );
}

#[test]
fn answering_address_does_not_hide_a_silent_address() {
    lines::keep();
    let (nobody, three) = (free_address(), Plan::new(3).knows(1, &[]).start());
    let _one = Plan::new(1).knows(2, &[&nobody.to_string(), &three.address.to_string()]).knows(3, &[]).start();
    lines::wait(&[&three.address.to_string(), "answers at the address of server 2"]);
    lines::wait(&[&format!("no UDP reply from {nobody} ")]);
}

#[test]
fn learned_address_now_used_by_another_server_is_forgotten() {
    lines::keep();
    let directory = std::env::temp_dir().join(format!("zoolet-lease-{}", std::process::id()));
    std::fs::create_dir_all(&directory).unwrap();
    let (nobody, three) = (free_address(), Plan::new(3).knows(1, &[]).start());
    let mut one = Plan::new(1).knows(2, &[&nobody.to_string()]).knows(3, &[]);
    let file = directory.join("hints");
    std::fs::write(&file, format!("2 {}\n2 {nobody}\n", three.address)).unwrap();
    one.hints = Some(file.clone());
    let one = one.start();
    let line = one.refusal(2, "no UDP reply");
    assert!(line.contains(&nobody.to_string()), "{line}");
    // No warning: the address was learned, not configured by the operator.
    assert_eq!(lines::with(&[&three.address.to_string(), "answers at the address"]), [""; 0]);
    assert_eq!(std::fs::read_to_string(&file).unwrap(), format!("2 {nobody}\n"));
    drop(one);
    std::fs::remove_dir_all(&directory).unwrap();
}

#[test]
fn flapping_link_is_logged_once_and_its_reason_kept_on_both_sides() {
    const FLAPS: usize = 4;
    const FLAPS_MAX: usize = 20;
    lines::keep();
    let [one, two] = plans::<2>().map(|plan| plan.start());
    // Counts the flaps after which each side was seen to know the reason. If the process stalls for
    // a second, a link lasts, and the reason is erased before the test looks.
    let (mut known, mut flaps) = ([0; 2], 0);
    while known.iter().any(|&known| known < FLAPS) {
        flaps += 1;
        assert!(flaps <= FLAPS_MAX, "after {flaps} flaps each side knew why after {known:?}");
        let link = one.linked(2);
        two.linked(1);
        let links = [one.links(2), two.links(1)];
        one.push(vec![Instruction::Close { peer: id(2), link, reason: "they do not fit" }]);
        one.unlinked(2, link);
        known[0] += usize::from(one.refusal_or_newer_link(2, "they do not fit", links[0]));
        known[1] += usize::from(two.refusal_or_newer_link(1, "they do not fit", links[1]));
    }
    let lasted = flaps - FLAPS;
    for (server, other) in [(&one, &two), (&two, &one)] {
        let linked = format!("linked to server {} at {}", other.id, other.address);
        let linked: Vec<_> = lines::with(&[&linked]).into_iter().filter(|line| !line.contains("again")).collect();
        assert_eq!(linked.len(), 1, "{linked:#?}");
        let gone = lines::with(&[&format!("the link to server {} at {}", other.id, other.address)]);
        assert!(gone.len() <= 2 + lasted, "{gone:#?}");
        // A link that lasts is logged.
        server.linked(other.id);
        lines::wait(&[&format!("linked to server {} at {} again", other.id, other.address)]);
        let figures = &server.table.figures()[&id(other.id)];
        assert!(figures.is_linked && figures.refusal.is_none() && figures.missing_since.is_none(), "{figures:?}");
    }
}

#[test]
fn link_closed_during_its_opening_keeps_the_close_reason() {
    const DROPPED: u32 = 6;
    let one = Plan::new(1).knows(2, &[]).start();
    on_a_runtime(async {
        let stranger = Stranger::new();
        let connection = stranger.connect(one.address).await.unwrap();
        let _streams = Stranger::be_answered(&connection, Stranger::hello(2, 1)).await.unwrap();
        connection.close(DROPPED.into(), b"they do not fit");
        stranger.endpoint.wait_idle().await;
    });
    let line = one.refusal(2, "they do not fit");
    assert!(line.starts_with("the link to server 2 at "), "{line}");
}

#[test]
fn address_of_the_wrong_ip_family_is_reported_with_a_remedy() {
    let one = Plan::new(1).knows(2, &["[::1]:2888"]).start();
    let line = one.refusal(2, "[::1]:2888");
    assert!(line.contains(&format!("peers = \"[::]:{}\"", one.address.port())), "{line}");
}

#[test]
fn repeated_link_failures_of_a_member_are_logged_once() {
    lines::keep();
    let one = Plan::new(1).knows(2, &[]).knows(3, &[]).start();
    on_a_runtime(async {
        let stranger = Stranger::new();
        for _ in 0..10 {
            let (connection, ..) = stranger.link(2, 1, one.address).await;
            connection.open_uni().await.unwrap().write_all(&[3, 0, 0, 0, 250, 1, 2]).await.unwrap();
            connection.closed().await;
        }
    });
    let remote = one.table.figures()[&id(2)].address.unwrap().to_string();
    assert_eq!(one.told.count(|event| matches!(event, Event::PeerDown { .. })), 10);
    assert_eq!(lines::with(&[&remote, "is closed"]).len(), 1);
    // The engine's reasons are rate-limited in the same way.
    let three = Plan::new(3).knows(1, &[&one.address.to_string()]).start();
    for _ in 0..3 {
        let link = one.linked(3);
        one.push(vec![Instruction::Close { peer: id(3), link, reason: "a test" }]);
        one.unlinked(3, link);
    }
    assert_eq!(lines::with(&[&three.address.to_string(), "is closed: a test"]).len(), 1);
}

#[test]
fn unproven_strangers_are_dropped_and_block_no_member() {
    let [one, two] = plans::<2>();
    let server = one.start();
    on_a_runtime(async {
        let stranger = Stranger::new();
        let mut open = tokio::task::JoinSet::new();
        let stranger = std::sync::Arc::new(stranger);
        for _ in 0..64 {
            let (stranger, address) = (stranger.clone(), server.address);
            open.spawn(async move {
                // The server may ignore some attempts.
                if let Ok(connection) = stranger.connect(address).await {
                    connection.closed().await;
                }
            });
        }
        // A member gets in while the strangers hold their places.
        let member = tokio::task::spawn_blocking(move || {
            let two = two.start();
            two.linked(1);
            server.linked(2);
            (server, two)
        });
        let _servers = member.await.unwrap();
        while let Some(ended) = open.join_next().await {
            ended.unwrap();
        }
    });
}

#[test]
fn garbage_packets_end_no_link() {
    let [one, two] = plans::<2>().map(|plan| plan.start());
    let (to_two, to_one) = (one.linked(2), two.linked(1));
    let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
    let mut random = 7u64;
    for length in 0..3000 {
        let mut bytes = vec![0; length % 1400];
        for byte in &mut bytes {
            random = random.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
            *byte = (random >> 33) as u8;
        }
        socket.send_to(&bytes, one.address).unwrap();
    }
    one.send(2, to_two, commit(1));
    assert_eq!(two.messages(1, to_one, 1), [commit(1)]);
    assert_eq!(one.told.count(|event| matches!(event, Event::PeerDown { .. })), 0);
}

#[test]
fn invalid_frame_ends_only_its_own_link() {
    let one = Plan::new(1).knows(2, &[]).knows(3, &[]).start();
    let three = Plan::new(3).knows(1, &[&one.address.to_string()]).start();
    let (to_three, of_three) = (one.linked(3), three.linked(1));
    let address = one.address;
    on_a_runtime(async {
        let stranger = Stranger::new();
        let (connection, _say, _hear) = stranger.link(2, 1, address).await;
        let mut lane = connection.open_uni().await.unwrap();
        lane.write_all(&[3, 0, 0, 0, 250, 1, 2]).await.unwrap();
        connection.closed().await;
    });
    one.told.wait("the end of the link to 2", |events| {
        events.iter().any(|event| matches!(event, Event::PeerDown { peer, .. } if *peer == id(2))).then_some(())
    });
    one.send(3, to_three, commit(1));
    assert_eq!(three.messages(1, of_three, 1), [commit(1)]);
}
