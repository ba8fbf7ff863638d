//! Operator mistakes are refused at start with one line and an exit code.

use crate::support::*;

#[test]
fn invalid_usage_gives_one_line_and_exit_code_2() {
    let scratch = Scratch::new();
    std::fs::write(scratch.path().join("there.toml"), "").unwrap();
    for (arguments, expected) in [
        (&["srve"][..], "zoolet: command = srve: no such command; did you mean serve?"),
        (
            &["frobnicate"],
            "zoolet: command = frobnicate: allowed is serve, ensemble, status, shell, keygen, probe, profile, bench, lock,",
        ),
        (&["status", "--severs", "a:1"], "zoolet: status: invalid option '--severs'; did you mean --server?"),
        (&["profile"], "zoolet: profile: allowed is profile list, profile show NAME, profile check FILE"),
        (&["profile", "show"], "zoolet: profile show: NAME is missing; write zoolet profile show NAME: print every"),
        (&["profile", "show", "floppy/512m"], "zoolet: floppy/512m: media = floppy: allowed is sd-a1, emmc"),
        (
            &["profile", "show", "emmc/512m", "--network", "lora"],
            "zoolet: --network = lora: allowed is lan, wifi or metered",
        ),
        (&["profile", "check", "/nowhere/box.toml"], "zoolet: cannot read /nowhere/box.toml: there is no such file"),
        (&["unit"], "zoolet: unit: allowed is unit systemd, unit procd"),
        (
            &["unit", "systemd", "--config", "zoolet.toml"],
            "zoolet: --config = zoolet.toml: allowed is an absolute path",
        ),
        (&["probe", "--out", "box"], "zoolet: --out = box: allowed is a file that ends in .toml"),
        (&["probe", "--out", "there.toml"], "zoolet: --out = there.toml: exists and is not overwritten"),
        (&["probe", "--data", "there.toml"], "there.toml: is not a directory"),
        (&["serve", "--profile", "pi"], "zoolet: profile = pi: allowed is media/memory, such as emmc/512m, a board"),
        (&["serve", "--port", "1"], "zoolet: serve: invalid option '--port'"),
        (&["serve", "--log", "loud"], "zoolet: --log = loud: allowed is error, warn"),
        (&["serve", "--listen", "0.0.0.0:0"], "write \"plain://0.0.0.0:0\""),
        (&["serve", "--listen", "tls://127.0.0.1:0"], "not built yet"),
        (&["serve", "--listen", "nonsense"], "zoolet: --listen = \"nonsense\": allowed is a loopback address"),
        (&["serve", "--config", "absent.toml"], "zoolet: cannot read absent.toml: there is no such file"),
    ] {
        let (code, line) = refusal(&scratch, arguments);
        assert_eq!(code, 2, "{line}");
        assert!(line.contains(expected), "{line}");
    }
}

#[test]
fn invalid_config_error_names_file_line_key_value_and_allowed_values() {
    let scratch = Scratch::new();
    let made = String::from_utf8(run(&scratch, &["keygen", "--data", "."]).stdout).unwrap();
    let key = made.trim();
    for (name, text, expected) in [
        ("a.toml", "clents = \"127.0.0.1:0\"\n", "a.toml:1: clents: no such key; did you mean clients?"),
        (
            "b.toml",
            "[limits]\nwatches_max = -1\n",
            "b.toml:2: limits.watches_max = -1: allowed is a whole number from 0",
        ),
        ("c.toml", "[[server]]\nid = 1\n[[server]]\nid = 2\n", "which server is this?"),
        ("d.toml", "data = \n", "d.toml:1: "),
        (
            "pins.toml",
            "id = 1\n[[server]]\nid = 1\nhost = \"127.0.0.1:1\"\nkey = \"KEY\"\n[[server]]\nid = 2\nhost = \"127.0.0.1:2\"\nkey = \"KEY\"\n",
            "pins.toml: servers 1 and 2 have the same key, KEY: give every server its own key",
        ),
        ("e.cfg", "dataDir=x\nclientPort=x\n", "e.cfg:2: clientPort = x: allowed is a port, 1 to 65535"),
        (
            "f.cfg",
            "dataDir=x\nclientPort=1\nserver.1=a:1:2\nserver.2=b:1:2\n",
            "x/myid is missing: it holds the id of this server, one of",
        ),
        (
            "g.cfg",
            "dataDir=x\nsecureClientPort=1\n",
            "g.cfg:2: secureClientPort: TLS for clients is not built yet; remove the line",
        ),
    ] {
        std::fs::write(scratch.join(name), text.replace("KEY", key)).unwrap();
        let (code, line) = refusal(&scratch, &["serve", "--config", name]);
        assert_eq!(code, 2, "{line}");
        assert!(line.contains(&expected.replace("KEY", key)), "{line}");
    }
}

#[test]
fn data_directory_with_foreign_files_is_refused_and_unchanged() {
    let scratch = Scratch::new();
    std::fs::create_dir_all(scratch.join("zookeeper/version-2")).unwrap();
    std::fs::create_dir(scratch.join("photos")).unwrap();
    std::fs::write(scratch.join("photos/a.jpg"), "").unwrap();
    std::fs::write(scratch.join("a-file"), "").unwrap();
    for (data, expected) in [
        ("zookeeper", "holds the data of an Apache ZooKeeper (version-2)"),
        ("photos", "is not empty and not zoolet's (it holds \"a.jpg\")"),
        ("a-file", "is not a directory"),
        ("mnt/sd/zoolet", "does not exist; create it first, or mount its file system"),
    ] {
        let (code, line) = refusal(&scratch, &["serve", "--listen", "127.0.0.1:0", "--data", data]);
        assert_eq!(code, 2, "{line}");
        assert!(line.contains(expected), "{line}");
    }
    let left: Vec<_> = std::fs::read_dir(scratch.join("photos")).unwrap().collect();
    assert_eq!(left.len(), 1);
}

#[test]
fn configured_empty_data_directory_is_populated_only_with_create() {
    let scratch = Scratch::new();
    std::fs::create_dir(scratch.join("mount-point")).unwrap();
    std::fs::write(scratch.join("zoolet.toml"), "data = \"mount-point\"\nclients = \"127.0.0.1:0\"\n").unwrap();
    let (code, line) = refusal(&scratch, &["serve", "--config", "zoolet.toml"]);
    assert_eq!(code, 2, "{line}");
    assert!(line.contains("is empty; is its file system mounted? For a first start, add --create once"), "{line}");
}

#[test]
fn second_process_on_a_data_directory_is_refused() {
    let scratch = Scratch::new();
    let server = Server::start(&scratch);
    let data = scratch.join("data");
    let (code, line) = refusal(&scratch, &["serve", "--listen", "127.0.0.1:0", "--data", data.to_str().unwrap()]);
    assert_eq!(code, 1, "{line}");
    assert!(line.contains("is in use by process "), "{line}");
    server.client().create("/a", b"").unwrap();
}

#[test]
fn a_port_in_use_is_refused() {
    let scratch = Scratch::new();
    let taken = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let address = taken.local_addr().unwrap().to_string();
    let (code, line) = refusal(&scratch, &["serve", "--listen", &address]);
    assert_eq!(code, 1, "{line}");
    assert!(line.contains(&format!("clients = {address}: another process has this port: ")), "{line}");
}

#[test]
fn a_damaged_log_is_refused() {
    let scratch = Scratch::new();
    let mut server = Server::start(&scratch);
    let mut client = server.client();
    for number in 0..10 {
        client.create(&format!("/n-{number}"), b"x").unwrap();
    }
    server.kill();
    let segment = scratch.join("data/seg-00.log");
    let mut bytes = std::fs::read(&segment).unwrap();
    // Damage within acknowledged entries: a later batch is intact.
    bytes[4096 * 5 + 100] ^= 1;
    std::fs::write(&segment, bytes).unwrap();
    let data = scratch.join("data");
    let config = scratch.join("zoolet.toml");
    let arguments = ["serve", "--config", config.to_str().unwrap(), "--data", data.to_str().unwrap(), "--listen"];
    let (code, line) = refusal(&scratch, &[&arguments[..], &["127.0.0.1:0"]].concat());
    assert_eq!(code, 1, "{line}");
    assert!(line.contains("/data: the log is damaged: seg-00.log at byte "), "{line}");
    assert!(line.contains("; no other server has this data: restore a copy of the directory"), "{line}");

    std::fs::remove_file(data.join("ZOOLET")).unwrap();
    let (code, line) = refusal(&scratch, &[&arguments[..], &["127.0.0.1:0"]].concat());
    assert_eq!(code, 2, "{line}");
    assert!(line.contains("but not \"ZOOLET\", which zoolet writes first"), "{line}");
}

/// Starts a server and waits for its first checkpoint.
fn with_a_base(scratch: &Scratch) -> Server {
    let small = "memtable_bytes = 131072\nrecord_cache_bytes = 65536\n[settings]";
    let server = Server::start_with(scratch, &SMALL.replace("[settings]", small));
    let mut client = server.client();
    let mut number = 0;
    while server.figure("checkpoints") == 0 {
        assert_eq!(client.create(&format!("/n-{number}"), &[b'x'; 20_000]).err(), None);
        number += 1;
        assert!(number < 1000, "no checkpoint");
    }
    server
}

#[test]
fn damaged_base_file_is_refused_by_name() {
    let scratch = Scratch::new();
    let mut server = with_a_base(&scratch);
    server.kill();
    let data = scratch.join("data");
    let config = scratch.join("zoolet.toml");
    let arguments = ["serve", "--config", config.to_str().unwrap(), "--data", data.to_str().unwrap(), "--listen"];
    let names: Vec<_> = std::fs::read_dir(&data).unwrap().map(|file| file.unwrap().file_name()).collect();
    // A merge cut short by the kill leaves one more run, and the names do not show which run
    // belongs to the base. So all runs are damaged.
    let runs: Vec<_> = names.iter().map(|name| name.to_str().unwrap()).filter(|name| name.ends_with(".run")).collect();
    assert!(!runs.is_empty(), "{names:?}");
    for damaged in [&runs[..], &["base-0.crc"]] {
        let whole: Vec<_> = damaged.iter().map(|name| std::fs::read(data.join(name)).unwrap()).collect();
        for bytes in [0, 100] {
            damaged
                .iter()
                .zip(&whole)
                .for_each(|(name, whole)| std::fs::write(data.join(name), &whole[..bytes]).unwrap());
            let (code, line) = refusal(&scratch, &[&arguments[..], &["127.0.0.1:0"]].concat());
            assert_eq!(code, 1, "{line}");
            assert!(damaged.iter().any(|name| line.contains(&format!("the base is damaged: {name}: "))), "{line}");
        }
        damaged.iter().zip(whole).for_each(|(name, whole)| std::fs::write(data.join(name), whole).unwrap());
    }
}

#[test]
fn server_accepts_writes_although_its_reserve_cannot_be_created() {
    let scratch = Scratch::new();
    let mut server = Server::start(&scratch);
    let reserve = scratch.join("data/reserve");
    let _ = std::fs::remove_file(&reserve);
    std::fs::create_dir(&reserve).unwrap();
    server.restart_with(SMALL);
    server.client().create("/a", b"x").unwrap();
    assert_eq!(server.figure("refusing_writes"), 0);
}

/// The base alone is an old state: serving it would undo acknowledged writes.
#[test]
fn base_without_its_log_is_refused_and_unchanged() {
    let scratch = Scratch::new();
    let mut server = with_a_base(&scratch);
    assert!(server.terminate().success());
    let data = scratch.join("data");
    let files: Vec<_> = std::fs::read_dir(&data).unwrap().map(|file| file.unwrap().path()).collect();
    for file in files.iter().filter(|file| file.extension().is_some_and(|extension| extension == "log")) {
        std::fs::remove_file(file).unwrap();
    }
    let base = std::fs::read(data.join("base-0.manifest")).unwrap();
    let config = scratch.join("zoolet.toml");
    let arguments = ["serve", "--config", config.to_str().unwrap(), "--data", data.to_str().unwrap(), "--listen"];
    let (code, line) = refusal(&scratch, &[&arguments[..], &["127.0.0.1:0"]].concat());
    assert_eq!(code, 1, "{line}");
    assert!(line.contains(&format!("data = {}: the log is gone: ZOOLET records a log", data.display())), "{line}");
    assert!(std::fs::read(data.join("base-0.manifest")).unwrap() == base, "the base was written to");
}

#[test]
fn logs_are_text_or_json_lines_on_stderr() {
    let scratch = Scratch::new();
    for (format, expected) in [("text", " INFO "), ("json", "\"level\":\"INFO\"")] {
        let mut child = zoolet(&["serve", "--listen", "127.0.0.1:0", "--log-format", format])
            .current_dir(scratch.path())
            .stderr(std::process::Stdio::piped())
            .stdout(std::process::Stdio::null())
            .spawn()
            .unwrap();
        let mut line = String::new();
        std::io::BufRead::read_line(&mut std::io::BufReader::new(child.stderr.take().unwrap()), &mut line).unwrap();
        child.kill().unwrap();
        child.wait().unwrap();
        assert!(line.contains(expected) && line.contains("started"), "{line}");
    }
}

#[test]
fn commands_without_a_server_print_and_exit() {
    let scratch = Scratch::new();
    for (arguments, expected) in [
        (&["--version"][..], concat!("zoolet ", env!("CARGO_PKG_VERSION"))),
        (&["--help"], "zoolet serve [OPTIONS]"),
        (&["config", "example"], "[limits]"),
        (&["licences"], "rkyv"),
    ] {
        let output = run(&scratch, arguments);
        let text = String::from_utf8(output.stdout).unwrap();
        assert!(output.status.success() && text.contains(expected), "{arguments:?} gave {text}");
    }
}
