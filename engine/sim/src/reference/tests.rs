//! Facts observed on live ZooKeeper servers, checked against the reference.

use super::*;
use bytes::Bytes;
use zoolet_model::{AddWatchMode, Create, CreateKind, CreateMode, EventKind, OpResult, RequestedAcl, Stat};

const WALL_MS: i64 = 1_700_000_000_000;

struct Driver {
    server: Reference,
    zxid: i64,
}

impl Driver {
    /// Creates a server with sessions 1 and 2 on connections 1 and 2.
    fn new() -> Self {
        let mut driver = Self { server: Reference::new(Some(acl::digest_of("root:secret"))), zxid: 0 };
        for n in 1..=2 {
            driver.zxid += 1;
            driver.server.create_session(driver.zxid);
            driver.server.attach(ConnId(n), driver.zxid, Some([127, 0, 0, 1].into()));
        }
        driver
    }

    fn all(&mut self, conn: u64, request: Request) -> Vec<RefOutput> {
        if Reference::is_ordered(&request) {
            self.zxid += 1;
        }
        self.server.apply(ConnId(conn), 7, &request, self.zxid, WALL_MS)
    }

    fn ask(&mut self, conn: u64, request: Request) -> Result<Reply, ErrorCode> {
        let outputs = self.all(conn, request);
        let replies = outputs.into_iter().filter_map(|output| match output {
            RefOutput::Reply { result, .. } => Some(result),
            RefOutput::Notify { .. } | RefOutput::Close { .. } => None,
        });
        replies.last().expect("every request is answered")
    }

    fn create(&mut self, conn: u64, path: &str) -> Result<Reply, ErrorCode> {
        self.ask(conn, Request::Write(create(path, CreateKind::Persistent, false)))
    }

    fn delete(&mut self, conn: u64, path: &str, version: i32) -> Result<Reply, ErrorCode> {
        self.ask(conn, Request::Write(WriteOp::Delete { path: path.into(), version }))
    }

    fn set(&mut self, conn: u64, path: &str, version: i32) -> Result<Reply, ErrorCode> {
        self.ask(conn, Request::Write(set(path, version)))
    }

    fn exists(&mut self, conn: u64, path: &str) -> Result<Reply, ErrorCode> {
        self.ask(conn, Request::Exists { path: path.into(), watch: false })
    }

    fn stat(&mut self, path: &str) -> Stat {
        match self.exists(1, path) {
            Ok(Reply::Stat(stat)) => stat,
            other => panic!("{path}: {other:?}"),
        }
    }
}

fn requested(perms: Perms, scheme: &str, id: &str) -> RequestedAcl {
    RequestedAcl { perms, scheme: Some(scheme.into()), id: Some(id.into()) }
}

fn create_with(path: &str, kind: CreateKind, sequential: bool, acl: Vec<RequestedAcl>) -> WriteOp {
    let mode = CreateMode::Valid { kind, sequential };
    WriteOp::Create(Create {
        path: path.into(),
        data: Some(Bytes::from_static(b"x")),
        acl: Some(acl.into()),
        mode,
        with_stat: false,
    })
}

fn create(path: &str, kind: CreateKind, sequential: bool) -> WriteOp {
    create_with(path, kind, sequential, vec![requested(Perms::ALL, "world", "anyone")])
}

fn set(path: &str, version: i32) -> WriteOp {
    WriteOp::SetData { path: path.into(), data: None, version }
}

fn path_of(reply: Result<Reply, ErrorCode>) -> String {
    match reply {
        Ok(Reply::Path(path)) => path.to_string(),
        other => panic!("{other:?}"),
    }
}

#[test]
fn built_in_znodes_have_the_stats_of_a_fresh_zookeeper() {
    let mut driver = Driver::new();
    assert_eq!((driver.stat("/").cversion, driver.stat("/").num_children), (-1, 1));
    assert_eq!((driver.stat("/zookeeper").cversion, driver.stat("/zookeeper").num_children), (-2, 2));
    assert_eq!(driver.stat("/zookeeper/config").aversion, -1);
    assert_eq!(driver.ask(1, Request::GetAllChildrenNumber { path: "/".into() }), Ok(Reply::Count(3)));
    assert_eq!(
        driver.ask(1, Request::GetAllChildrenNumber { path: "".into() }),
        Ok(Reply::Count(4)),
        "the root itself too"
    );
    assert_eq!(driver.exists(1, ""), driver.exists(1, "/"));
}

#[test]
fn error_precedence_equals_zookeepers() {
    let mut driver = Driver::new();
    // InvalidACL > NoNode(parent) > NoAuth > bad path > NodeExists > NoChildrenForEphemerals
    let bad = |path: &str| Request::Write(create_with(path, CreateKind::Persistent, false, vec![]));
    assert_eq!(driver.ask(1, bad("/no/where")), Err(ErrorCode::InvalidAcl));
    assert_eq!(driver.create(1, "/no/where"), Err(ErrorCode::NoNode));
    assert_eq!(driver.create(1, "foo/bar"), Err(ErrorCode::NoNode));
    assert_eq!(driver.create(1, "/x//b"), Err(ErrorCode::NoNode));
    assert_eq!(driver.create(1, "foo"), Err(ErrorCode::BadArguments));
    assert_eq!(driver.create(1, "/"), Err(ErrorCode::NodeExists));
    assert_eq!(driver.create(1, "/a/"), Err(ErrorCode::NoNode));
    driver.create(1, "/a").unwrap();
    assert_eq!(driver.create(1, "/a/"), Err(ErrorCode::BadArguments));
    let read_only = vec![requested(Perms::READ, "world", "anyone")];
    driver.ask(1, Request::Write(create_with("/r", CreateKind::Persistent, false, read_only))).unwrap();
    assert_eq!(driver.create(1, "/r/x"), Err(ErrorCode::NoAuth));
    assert_eq!(driver.delete(1, "/r/x", -1), Err(ErrorCode::NoAuth));
    assert_eq!(driver.delete(1, "/r", -1), Ok(Reply::Empty), "the parent's permission counts");
    driver.ask(1, Request::Write(create("/e", CreateKind::Ephemeral, false))).unwrap();
    assert_eq!(driver.create(1, "/e/x"), Err(ErrorCode::NoChildrenForEphemerals));
    assert_eq!(driver.delete(1, "/", -1), Err(ErrorCode::BadArguments));
    assert_eq!(driver.delete(1, "/zookeeper/config", -1), Err(ErrorCode::BadArguments));
    driver.create(1, "/a/b").unwrap();
    assert_eq!(driver.delete(1, "/a", 5), Err(ErrorCode::BadVersion));
    assert_eq!(driver.delete(1, "/a", 0), Err(ErrorCode::NotEmpty));
    assert_eq!(driver.create(1, "/zookeeper/config/x"), Err(ErrorCode::NoAuth));
    assert_eq!(driver.set(1, "/zookeeper/config", -1), Err(ErrorCode::NoAuth));
}

#[test]
fn sequence_numbers_count_all_creates_and_stop_at_i32_max() {
    let mut driver = Driver::new();
    driver.create(1, "/q").unwrap();
    let next = |driver: &mut Driver| driver.ask(1, Request::Write(create("/q/n-", CreateKind::Persistent, true)));
    assert_eq!(path_of(next(&mut driver)), "/q/n-0000000000");
    driver.create(1, "/q/plain").unwrap();
    driver.delete(1, "/q/plain", -1).unwrap();
    assert_eq!(path_of(next(&mut driver)), "/q/n-0000000002");
    assert_eq!((driver.stat("/q").cversion, driver.stat("/q").num_children), (4, 2));
    let alone = driver.ask(1, Request::Write(create("/q/", CreateKind::Persistent, true)));
    assert_eq!(path_of(alone), "/q/0000000003");
    driver.server.tree.set_creates("/q", i32::MAX);
    let before = driver.stat("/q").pzxid;
    assert_eq!(path_of(next(&mut driver)), "/q/n-2147483647");
    assert_eq!(next(&mut driver), Err(ErrorCode::NodeExists));
    assert_eq!(driver.stat("/q").pzxid, before);
}

#[test]
fn mismatched_create_fails_the_whole_multi_unless_an_earlier_op_failed() {
    let mut driver = Driver::new();
    let mismatched = |path: &str| {
        let WriteOp::Create(create) = create(path, CreateKind::Persistent, false) else { panic!("create") };
        WriteOp::Create(Create { mode: CreateMode::Mismatched, ..create })
    };
    let good = || create("/m", CreateKind::Persistent, false);
    assert_eq!(driver.ask(1, Request::Multi(vec![good(), mismatched("/m/n")])), Err(ErrorCode::MarshallingError));
    let failed = OpResult::Failed;
    assert_eq!(
        driver.ask(1, Request::Multi(vec![set("/m", -1), mismatched("/n")])),
        Ok(Reply::Multi(vec![failed(Some(ErrorCode::NoNode)), failed(Some(ErrorCode::RuntimeInconsistency))]))
    );
}

#[test]
fn failed_multi_names_the_failed_op_and_changes_only_the_zxid() {
    let mut driver = Driver::new();
    let before = driver.server.tree.clone();
    let ops = vec![
        create("/m", CreateKind::Persistent, false),
        create("/m/n-", CreateKind::Persistent, true),
        set("/m", 4),
        WriteOp::Delete { path: "/m".into(), version: -1 },
    ];
    let failed = OpResult::Failed;
    assert_eq!(
        driver.ask(1, Request::Multi(ops)),
        Ok(Reply::Multi(vec![
            failed(None),
            failed(None),
            failed(Some(ErrorCode::BadVersion)),
            failed(Some(ErrorCode::RuntimeInconsistency)),
        ]))
    );
    assert_eq!(driver.server.tree, before);
    assert_eq!(driver.server.last_zxid(), driver.zxid);
}

#[test]
fn a_multi_sees_its_own_effects_and_its_events_precede_its_reply() {
    let mut driver = Driver::new();
    driver.ask(1, Request::AddWatch { path: "/".into(), mode: AddWatchMode::PersistentRecursive }).unwrap();
    driver.ask(1, Request::GetChildren { path: "/".into(), watch: true, with_stat: false }).unwrap();
    let ops = vec![
        create("/m", CreateKind::Persistent, false),
        create("/m/n-", CreateKind::Persistent, true),
        create("/m/n-", CreateKind::Persistent, true),
        set("/m", 0),
    ];
    let outputs = driver.all(1, Request::Multi(ops));
    let seen: Vec<_> = outputs
        .iter()
        .map(|output| match output {
            RefOutput::Notify { event, .. } => format!("{:?} {} {}", event.kind, event.path, event.zxid),
            RefOutput::Reply { zxid, .. } => format!("reply {zxid}"),
            RefOutput::Close { .. } => "close".to_owned(),
        })
        .collect();
    assert_eq!(
        seen,
        [
            "NodeCreated /m 3",
            "NodeChildrenChanged / 3",
            "NodeCreated /m/n-0000000000 3",
            "NodeCreated /m/n-0000000001 3",
            "NodeDataChanged /m 3",
            "reply 3"
        ]
    );
}

#[test]
fn exists_arms_a_watch_on_an_absent_znode_and_get_data_does_not() {
    let mut driver = Driver::new();
    driver.ask(1, Request::GetData { path: "/a".into(), watch: true }).unwrap_err();
    assert_eq!(driver.server.watches(), 0);
    driver.ask(1, Request::Exists { path: "/a".into(), watch: true }).unwrap_err();
    assert_eq!(driver.server.watches(), 1);
    let outputs = driver.all(2, Request::Write(create("/a", CreateKind::Persistent, false)));
    assert!(
        matches!(&outputs[0], RefOutput::Notify { conn: ConnId(1), event } if event.kind == EventKind::NodeCreated)
    );
    assert_eq!(driver.server.watches(), 0);
}

#[test]
fn event_without_read_permission_is_dropped_and_consumes_the_watch() {
    let mut driver = Driver::new();
    driver.ask(1, Request::Exists { path: "/secret".into(), watch: true }).unwrap_err();
    let acl = vec![requested(Perms::ALL, "digest", "somebody:else")];
    let outputs = driver.all(2, Request::Write(create_with("/secret", CreateKind::Persistent, false, acl)));
    assert_eq!(outputs.len(), 1, "only the reply: {outputs:?}");
    assert_eq!(driver.server.watches(), 0);
    assert_eq!(driver.exists(1, "/secret"), Err(ErrorCode::NoAuth));
}

#[test]
fn session_close_sends_all_events_before_its_reply_and_the_close() {
    let mut driver = Driver::new();
    driver.ask(1, Request::Write(create("/e", CreateKind::Ephemeral, false))).unwrap();
    driver.ask(1, Request::Exists { path: "/e".into(), watch: true }).unwrap();
    driver.ask(2, Request::GetChildren { path: "/".into(), watch: true, with_stat: false }).unwrap();
    let outputs = driver.all(1, Request::CloseSession);
    let order: Vec<_> =
        outputs.iter().map(|output| (output.conn().0, matches!(output, RefOutput::Notify { .. }))).collect();
    assert_eq!(order, [(1, true), (2, true), (1, false), (1, false)]);
    assert_eq!(driver.server.sessions().collect::<Vec<_>>(), [2]);
    assert_eq!(driver.server.tree.get("/e"), None);
}

#[test]
fn set_watches_replays_missed_events() {
    let mut driver = Driver::new();
    driver.create(1, "/a").unwrap();
    let since = driver.zxid;
    driver.create(1, "/a/b").unwrap();
    let watches = SetWatches {
        relative_zxid: since,
        data: vec!["/a".into(), "/gone".into(), "/a/b".into()],
        exist: vec!["/a".into(), "/later".into()],
        child: vec!["/a".into(), "/gone".into(), "/a/b".into()],
        persistent: vec!["/p".into()],
        persistent_recursive: vec!["/p".into()],
    };
    let outputs = driver.all(2, Request::SetWatches(watches));
    let events: Vec<_> = outputs
        .iter()
        .filter_map(|output| match output {
            RefOutput::Notify { event, .. } => Some((event.kind, event.path.as_str(), event.zxid)),
            RefOutput::Reply { .. } | RefOutput::Close { .. } => None,
        })
        .collect();
    assert_eq!(
        events,
        [
            (EventKind::NodeDeleted, "/gone", -1),
            (EventKind::NodeDataChanged, "/a/b", -1),
            (EventKind::NodeCreated, "/a", -1),
            (EventKind::NodeChildrenChanged, "/a", -1),
            (EventKind::NodeDeleted, "/gone", -1),
            (EventKind::NodeChildrenChanged, "/a/b", -1),
        ]
    );
    assert_eq!(driver.server.watches(), 4, "data /a, exist /later, and two on /p");
}

#[test]
fn ephemerals_are_listed_by_textual_prefix() {
    let mut driver = Driver::new();
    for path in ["/a", "/ab", "/b"] {
        driver.ask(1, Request::Write(create(path, CreateKind::Ephemeral, false))).unwrap();
    }
    let mut names =
        |prefix: Option<&str>| match driver.ask(1, Request::GetEphemerals { prefix: prefix.map(Into::into) }) {
            Ok(Reply::Names(names)) => names.iter().map(|name| name.to_string()).collect::<Vec<_>>(),
            other => panic!("{other:?}"),
        };
    assert_eq!(names(Some("/a")), ["/a", "/ab"]);
    assert_eq!(names(Some("/ab")), ["/ab"]);
    for all in [None, Some(""), Some(" "), Some("/"), Some("/ "), Some("\u{1}")] {
        assert_eq!(names(all), ["/a", "/ab", "/b"]);
    }
    assert_eq!(names(Some("\u{3000}")), [""; 0]);
}

#[test]
fn auth_acls_resolve_to_digest_identities_and_super_reads_everything() {
    let mut driver = Driver::new();
    let auth = |text: &'static str| Request::Auth {
        scheme: Some("digest".into()),
        auth: Some(Bytes::from_static(text.as_bytes())),
    };
    let own = vec![RequestedAcl { perms: Perms::ALL, scheme: Some("auth".into()), id: None }];
    let secret = Request::Write(create_with("/s", CreateKind::Persistent, false, own));
    assert_eq!(driver.ask(1, secret.clone()), Err(ErrorCode::InvalidAcl), "an ip identity is not proven");
    driver.ask(1, auth("u:pw")).unwrap();
    driver.ask(1, secret).unwrap();
    assert_eq!(driver.ask(2, Request::GetData { path: "/s".into(), watch: false }), Err(ErrorCode::NoAuth));
    driver.ask(2, auth("root:secret")).unwrap();
    driver.ask(2, Request::GetData { path: "/s".into(), watch: false }).unwrap();
    let ids = vec![("digest", "root"), ("ip", "127.0.0.1"), ("super", "")];
    let expected = ids.into_iter().map(|(scheme, id)| AuthId { scheme: scheme.into(), id: id.into() }).collect();
    assert_eq!(driver.ask(2, Request::WhoAmI), Ok(Reply::Ids(expected)));
    // The example in ZooKeeper's own documentation.
    assert_eq!(acl::digest_of("super:admin"), "super:xQJmxLMiHGwaqBvst5y6rkB6HQs=");
}

#[test]
fn reader_of_an_acl_sees_no_password_hashes() {
    let mut driver = Driver::new();
    let acl = vec![requested(Perms::ALL, "digest", "u:hash"), requested(Perms::READ, "world", "anyone")];
    driver.ask(1, Request::Write(create_with("/s", CreateKind::Persistent, false, acl))).unwrap();
    let Ok(Reply::Acl(shown, _)) = driver.ask(1, Request::GetAcl { path: "/s".into() }) else {
        panic!("READ suffices")
    };
    assert_eq!(shown[0].id, "u:x");
    assert_eq!(shown[1].id, "anyone");
}

#[test]
fn container_is_reaped_only_after_losing_its_last_child() {
    let mut driver = Driver::new();
    driver.ask(1, Request::Write(create("/c", CreateKind::Container, false))).unwrap();
    assert_eq!(driver.stat("/c").ephemeral_owner, 0);
    let reap = |driver: &mut Driver| {
        driver.zxid += 1;
        driver.server.reap("/c", driver.zxid);
        driver.server.tree.get("/c").is_some()
    };
    assert!(reap(&mut driver), "never used");
    driver.create(1, "/c/x").unwrap();
    assert!(reap(&mut driver), "in use");
    driver.delete(1, "/c/x", -1).unwrap();
    assert!(!reap(&mut driver));
}
