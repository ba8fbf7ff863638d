//! Four-letter words on real sockets.

use crate::fake::Server;
use zoolet_transport::client_port::*;

/// The keys of `envi` in the order of ZooKeeper 3.8 and 3.9.
const ENVIRONMENT: [&str; 18] = [
    "zookeeper.version",
    "host.name",
    "java.version",
    "java.vendor",
    "java.home",
    "java.class.path",
    "java.library.path",
    "java.io.tmpdir",
    "java.compiler",
    "os.name",
    "os.arch",
    "os.version",
    "user.name",
    "user.home",
    "user.dir",
    "os.memory.free",
    "os.memory.max",
    "os.memory.total",
];

fn with_words(words: &str) -> Server {
    with_conf(words, &[("clientPort", "2181"), ("tickTime", "2000")])
}

fn with_conf(words: &str, conf: &[(&str, &str)]) -> Server {
    let about = About {
        version: "0.1.0".into(),
        built_on: "2026-01-02 03:04 UTC".into(),
        server_id: 1,
        servers: Vec::new(),
        conf: conf.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect(),
    };
    let four_letter_words = Whitelist::parse(words);
    Server::with(PortSettings { four_letter_words, about, ..PortSettings::default() }, 30_000)
}

/// Surface 9.1 and 9.3.
#[test]
fn four_letter_words_have_zookeepers_output_format() {
    let server = with_words("*");
    let mut client = server.client();
    client.get(1, "/a");
    assert_eq!(client.xid(), 1);

    assert_eq!(server.word("ruok"), "imok");
    assert_eq!(server.word("ruok\n"), "imok");
    assert_eq!(server.word("isro"), "rw");
    let version = "3.9.5-zoolet-0.1.0, built on 2026-01-02 03:04 UTC";
    let srvr = server.word("srvr");
    let lines: Vec<&str> = srvr.lines().collect();
    assert_eq!(lines[0], format!("Zookeeper version: {version}"));
    assert!(lines[1].starts_with("Latency min/avg/max: ") && lines[1].matches('/').count() == 4, "{}", lines[1]);
    assert_eq!(lines[2..4], ["Received: 2", "Sent: 2"]);
    assert!(lines[4].starts_with("Connections: "));
    assert_eq!(lines[5..], ["Outstanding: 0", "Zxid: 0x2a", "Mode: standalone", "Node count: 5"]);

    let stat = server.word("stat");
    let lines: Vec<&str> = stat.lines().collect();
    assert_eq!(lines[1], "Clients:");
    assert_eq!(lines[2], format!(" /{}[1](queued=0,recved=2,sent=2)", client.stream.local_addr().unwrap()));
    assert_eq!((lines[3], lines[11]), ("", "Node count: 5"));

    let cons = server.word("cons");
    let start = format!(" /{}[1](queued=0,recved=2,sent=2,sid=0x", client.stream.local_addr().unwrap());
    assert!(cons.starts_with(&start) && cons.ends_with(")\n\n"), "{cons}");
    for key in ["lop=GETD,est=", "to=30000,lcxid=0x1,lzxid=0x9,lresp=", "llat=", "minlat=", "avglat=", "maxlat="] {
        assert!(cons.contains(&format!(",{key}")), "{cons}");
    }

    assert_eq!(server.word("wchs"), "0 connections watching 0 paths\nTotal watches:0\n");
    assert_eq!(server.word("conf"), "clientPort=2181\ntickTime=2000\n");
    let envi = server.word("envi");
    assert!(envi.starts_with(&format!("Environment:\nzookeeper.version={version}\nhost.name=")), "{envi}");
    let keys: Vec<&str> = envi.lines().skip(1).map(|line| line.split_once('=').unwrap().0).collect();
    assert_eq!(keys, ENVIRONMENT);
    let memory = envi.lines().find_map(|line| line.strip_prefix("os.memory.total=")?.strip_suffix("MB"));
    assert!(memory.unwrap().parse::<u64>().unwrap() > 0, "{envi}");

    let mntr = server.word("mntr");
    assert!(mntr.starts_with(&format!("zk_version\t{version}\nzk_server_state\tstandalone\n")), "{mntr}");
    assert!(mntr.lines().all(|line| line.starts_with("zk_") && line.split('\t').count() == 2), "{mntr}");
    for line in ["zk_packets_received\t2", "zk_znode_count\t5", "zk_outstanding_requests\t0", "zk_watch_count\t0"] {
        assert!(mntr.lines().any(|found| found == line), "{line} in {mntr}");
    }
    for key in ["zk_avg_latency", "zk_open_file_descriptor_count", "zk_uptime", "zk_budget_outbound_bytes_peak"] {
        assert!(mntr.contains(&format!("{key}\t")), "{key} in {mntr}");
    }
    // Words that only ZooKeeper has.
    assert_eq!(server.word("hash"), "hash is not executed because it is not in the whitelist.\n");
}

#[test]
fn conf_shows_the_sizes_of_its_directories_as_zookeeper_does() {
    let directory = std::env::temp_dir().join(format!("zoolet-conf-{}", std::process::id()));
    std::fs::create_dir_all(&directory).unwrap();
    for (name, bytes) in [("base-0", 3), ("seg-00.log", 5), ("reserve", 7)] {
        std::fs::write(directory.join(name), vec![0; bytes]).unwrap();
    }
    let shown = directory.to_str().unwrap();
    let server = with_conf("*", &[("dataDir", shown), ("dataLogDir", shown), ("serverId", "1")]);
    let expected = format!("dataDir={shown}\ndataDirSize=3\ndataLogDir={shown}\ndataLogSize=5\nserverId=1\n");
    assert_eq!(server.word("conf"), expected);
    std::fs::remove_dir_all(directory).unwrap();
}

#[test]
fn srst_and_crst_reset_the_statistics() {
    let server = with_words("*");
    let mut client = server.client();
    client.get(1, "/a");
    assert_eq!(client.xid(), 1);
    assert!(server.word("srvr").contains("Received: 2\n") && server.word("cons").contains("recved=2,sent=2"));
    assert_eq!(server.word("srst"), "Server stats reset.\n");
    assert!(server.word("srvr").contains("Received: 0\n"));
    assert_eq!(server.word("crst"), "Connection stats reset.\n");
    assert!(server.word("cons").contains("recved=0,sent=0"));
    assert_eq!(server.word("dirs"), "datadir_size: 0\nlogdir_size: 0\n", "this server has no directory");
}

#[test]
fn words_missing_from_the_whitelist_are_refused() {
    let server = with_words("srvr");
    for word in ["ruok", "stat", "mntr", "isro", "envi", "conf", "cons", "wchs", "wchc", "wchp", "dump", "crst"] {
        assert_eq!(server.word(word), format!("{word} is not executed because it is not in the whitelist.\n"));
    }
    assert!(server.word("srvr").starts_with("Zookeeper version: "));
}

#[test]
fn words_report_that_the_server_does_not_serve() {
    let server = with_words("*");
    server.machine.become_role("");
    assert_eq!(server.word("ruok"), "imok");
    assert_eq!(server.word("isro"), "null");
    for word in ["srvr", "stat", "mntr", "cons"] {
        assert_eq!(server.word(word), "This ZooKeeper instance is not currently serving requests\n");
    }
}

/// An incomplete list must not be counted. A monitor would take the sum of one page for the total.
#[test]
fn wchs_shows_no_count_for_an_incomplete_watch_list() {
    let server = with_words("*");
    server.machine.break_off_lists();
    assert_eq!(server.word("wchs"), "This ZooKeeper instance is not currently serving requests\n");
    // The list shows that it is incomplete: the empty line at its end is missing.
    assert_eq!(server.word("wchp"), "/a\n\t0x1\n");
}

#[test]
fn four_letter_word_after_the_handshake_is_a_frame_length() {
    let server = with_words("*");
    let mut client = server.client();
    client.write(b"ruok");
    assert!(client.is_closed());
}
