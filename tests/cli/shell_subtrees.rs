//! The commands of `zoolet shell` that zkCli does not have, against a real server.

#![allow(clippy::unwrap_used, reason = "tests stop at the first surprise")]

use crate::json::Json;
use crate::support::*;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::os::unix::process::ExitStatusExt;
use std::path::Path;
use std::process::Stdio;
use zoolet_model::CreateKind;

/// The exit code, the output and the failures of a shell.
type Outcome = (i32, String, String);

fn outcome(mut command: std::process::Command) -> Outcome {
    let output = command.output().unwrap();
    let text = |bytes: Vec<u8>| String::from_utf8(bytes).unwrap();
    (output.status.code().unwrap(), text(output.stdout), text(output.stderr))
}

/// Runs one command in the scratch directory.
fn shell(scratch: &Scratch, server: &Server, words: &str) -> Outcome {
    let address = server.address.to_string();
    let mut command = zoolet(&["shell", "--server", &address]);
    command.args(words.split_whitespace()).current_dir(scratch.path());
    outcome(command)
}

/// Runs one command that succeeds; returns its output.
fn well(scratch: &Scratch, server: &Server, words: &str) -> String {
    let (code, out, err) = shell(scratch, server, words);
    assert_eq!(code, 0, "{words}: {out}{err}");
    out
}

/// Runs one command that fails with 1; returns its failure.
fn badly(scratch: &Scratch, server: &Server, words: &str) -> String {
    let (code, out, err) = shell(scratch, server, words);
    assert_eq!(code, 1, "{words}: {out}{err}");
    err
}

/// Runs the lines of a script in one session.
fn script(scratch: &Scratch, server: &Server, lines: &str) -> Outcome {
    let address = server.address.to_string();
    let mut command = zoolet(&["shell", "--server", &address]);
    command.current_dir(scratch.path()).stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().unwrap();
    child.stdin.take().unwrap().write_all(lines.as_bytes()).unwrap();
    let output = child.wait_with_output().unwrap();
    let text = |bytes: Vec<u8>| String::from_utf8(bytes).unwrap();
    (output.status.code().unwrap(), text(output.stdout), text(output.stderr))
}

/// A server with a small tree below `/app`; returns the client that owns its ephemeral.
fn planted(scratch: &Scratch) -> (Server, Client) {
    let server = Server::start(scratch);
    let mut client = server.client();
    for (path, data) in [("/app", "top"), ("/app/a", "one"), ("/app/a/x", ""), ("/app/b", "two words"), ("/app/b!", "")]
    {
        client.create(path, data.as_bytes()).unwrap();
    }
    client.create("/app/a/bytes", b"\xff\x00").unwrap();
    client.ask(&create("/app/b/live", b"", CreateKind::Ephemeral)).unwrap();
    (server, client)
}

fn names(path: &Path) -> Vec<String> {
    let mut names: Vec<_> =
        path.read_dir().unwrap().map(|file| file.unwrap().file_name().into_string().unwrap()).collect();
    names.sort();
    names
}

#[test]
fn subtree_is_shown_searched_and_read() {
    let scratch = Scratch::new();
    let (server, client) = planted(&scratch);
    let well = |words: &str| well(&scratch, &server, words);
    let badly = |words: &str| badly(&scratch, &server, words);
    assert_eq!(well("tree /app"), "/app\n├── a\n│   ├── bytes\n│   └── x\n├── b\n│   └── live\n└── b!\n");
    assert_eq!(well("tree -d 1 /app"), "/app\n├── a\n├── b\n└── b!\n");
    let owner = format!("{:#x}", client.session.session.0);
    let long = well("tree -l /app");
    assert!(long.contains("├── a (3 bytes, version 0, 2 children)\n"), "{long}");
    assert!(long.contains(&format!("live (0 bytes, version 0, ephemeral of {owner})\n")), "{long}");
    let lines = well("--json tree -d 0 /app");
    let json = Json::parse(&lines);
    assert_eq!(json.at("path"), &Json::Text("/app".to_owned()));
    assert_eq!(json.at("stat").number("dataLength"), 3.0);
    assert_eq!(badly("tree /none"), "Node does not exist: /none\n");
    assert_eq!(badly("tree -d x /app"), "-d must be followed by a number of levels\n");

    assert_eq!(well("find --name b* /app"), "/app/a/bytes\n/app/b\n/app/b!\n");
    assert_eq!(well("find --larger 2 --data one /app"), "/app/a\n");
    assert_eq!(well("find --ephemeral"), "/app/b/live\n");
    assert_eq!(well(&format!("find --owner {owner} --newer 1h /app")), "/app/b/live\n");
    assert_eq!(well("find --older 1h /app"), "");
    assert_eq!(well("--json find --name x"), "{\"path\":\"/app/a/x\"}\n");
    assert!(badly("find --older soon /app").starts_with("--older soon: allowed is a time with a unit"));

    assert_eq!(well("get --hex /app/a/bytes"), "ff00\n");
    for (line, refusal) in [
        ("get --hex -o f /app/a/bytes", "-o and --hex exclude each other\n"),
        ("get --json --raw /app/a/bytes", "--json and --raw exclude each other\n"),
        ("--json get --raw /app/a/bytes", "{\"error\":\"--json and --raw exclude each other\"}\n"),
        ("--json get -b /app/a/bytes", "{\"error\":\"--json and -b exclude each other\"}\n"),
        ("get -x --hex /app/a/bytes", "--hex and -x exclude each other\n"),
        ("get -s -o f /app/a/bytes", "-o and -s exclude each other\n"),
        ("get --raw -s /app/a/bytes", "--raw and -s exclude each other\n"),
    ] {
        assert_eq!(badly(line), refusal, "{line}");
    }
    assert_eq!(well("get --raw /app/b"), "two words");
    assert_eq!(well("get --json /app/a"), "{\"data\":\"one\",\"path\":\"/app/a\"}\n");
    assert_eq!(well("get -o out /app/a/bytes"), "wrote 2 bytes to out\n");
    assert_eq!(badly("get -o out /app/a"), "out exists; --force replaces it\n");
    assert_eq!(std::fs::read(scratch.join("out")).unwrap(), b"\xff\x00");
    for words in ["get -o - /app/a", "export -o - /app"] {
        assert!(badly(words).starts_with("-o - is no file; "), "{words}");
    }
    assert!(!scratch.join("-").exists());
    well("get -o out --force /app/a");
    well("set -i out /app/b");
    assert_eq!(well("get /app/b"), "one\n");
    assert!(badly("set -i none /app/b").starts_with("cannot read none: "));
    let (code, _, err) = script(&scratch, &server, "set -i - /app/b\n");
    assert_eq!((code, err.as_str()), (1, "set -i -: standard input has the commands; name a file\n"));
}

#[test]
fn subtree_is_copied_and_moved_as_a_whole_or_not_at_all() {
    let scratch = Scratch::new();
    let (server, mut client) = planted(&scratch);
    let well = |words: &str| well(&scratch, &server, words);
    let badly = |words: &str| badly(&scratch, &server, words);
    assert_eq!(badly("cp /app/a /copy"), "/app/a has children; cp -r copies them too\n");
    assert_eq!(well("cp -r /app/a /copy"), "copied 3 znodes from /app/a to /copy\n");
    assert_eq!(well("diff /app/a /copy"), "");
    assert_eq!(badly("cp -r /app/a /copy"), "Node already exists: /copy\nnothing was copied\n");
    assert_eq!(badly("cp /app/a/x /none/x"), "Node does not exist: /none/x\nnothing was copied\n");
    assert!(badly("cp -r /app /other").starts_with("/app/b/live is an ephemeral of session 0x"));
    assert_eq!(badly("mv /app/a /app/a/x/y"), "/app/a/x/y is in the subtree of /app/a; name another place\n");
    assert_eq!(well("--json mv /copy /moved"), "{\"from\":\"/copy\",\"moved\":3,\"to\":\"/moved\"}\n");
    assert!(!client.exists("/copy") && client.exists("/moved/bytes"));

    client.create("/big", b"").unwrap();
    for number in 0..12 {
        client.create(&format!("/big/{number}"), &[7; 90_000]).unwrap();
    }
    let refused = badly("cp -r /big /bigger");
    assert!(
        refused.starts_with("/big does not fit in one request of 1048575 bytes, so nothing was copied; "),
        "{refused}"
    );
    // The server takes fewer bytes than others.
    client.create("/mid", &[7; 60_000]).unwrap();
    client.create("/mid/x", &[7; 60_000]).unwrap();
    let refused = badly("mv /mid /other");
    assert!(refused.contains("a server closes the connection if its frame_bytes_max"), "{refused}");
    assert!(client.exists("/mid/x") && !client.exists("/other"));
}

#[test]
fn exported_subtree_is_imported_compared_and_merged() {
    let scratch = Scratch::new();
    let (server, mut client) = planted(&scratch);
    let well = |words: &str| well(&scratch, &server, words);
    let badly = |words: &str| badly(&scratch, &server, words);
    well("setAcl /app/a/x world:anyone:cdra");
    assert_eq!(well("export -o app.json /app"), "exported 6 znodes to app.json; ephemerals left out: 1\n");
    assert_eq!(badly("export -o app.json /app"), "app.json exists; --force replaces it\n");
    assert_eq!(well("export /app"), std::fs::read_to_string(scratch.join("app.json")).unwrap());
    assert_eq!(well("diff /app file:app.json"), "");
    assert_eq!(well("import app.json /new"), "created 6, changed 0, deleted 0, unchanged 0\n");
    assert_eq!(well("diff /app /new"), "");
    assert!(badly("import app.json /new").starts_with("/new exists; --merge sets the znodes that differ"));

    well("set /new/a changed");
    well("create /new/a/more");
    well("delete /new/b!");
    well("setAcl /new/a/x world:anyone:cdrwa");
    let (code, out, _) = shell(&scratch, &server, "diff /new file:app.json");
    assert_eq!((code, out.as_str()), (1, "~ /a (data)\n- /a/more\n~ /a/x (ACL)\n+ /b!\n"));
    // The difference also counts for a script whose reader has seen enough.
    let address = server.address.to_string();
    let mut without_reader = zoolet(&["shell", "--server", &address, "diff", "/new", "file:app.json"]);
    let mut child = without_reader.current_dir(scratch.path()).stdout(Stdio::piped()).spawn().unwrap();
    drop(child.stdout.take());
    assert_eq!(child.wait().unwrap().code(), Some(1));
    let (code, out, _) = shell(&scratch, &server, "--json diff -d /new/a /app/a");
    assert_eq!(code, 1);
    assert!(out.starts_with("{\"acl\":false,\"data\":true,\"difference\":\"changed\",\"path\":\"/\"}\n"), "{out}");
    let dry = well("import --replace --dry-run app.json /new");
    assert_eq!(
        dry,
        "~ /a (data)\n~ /a/x (ACL)\n+ /b!\n- /a/more\nwould be created 1, changed 2, deleted 1, unchanged 3\n"
    );
    assert_eq!(well("import --merge app.json /new"), "created 1, changed 2, deleted 0, unchanged 3\n");
    assert!(client.exists("/new/a/more"));
    assert_eq!(well("import --replace app.json /new"), "created 0, changed 0, deleted 1, unchanged 6\n");
    assert_eq!(well("diff /app /new"), "");
    // A parent of an ephemeral stays with it.
    well("export -o new.json /new/a");
    assert_eq!(well("import --replace new.json /app"), "created 2, changed 1, deleted 4, unchanged 0\n".to_owned());
    assert!(client.exists("/app/b/live") && !client.exists("/app/a"));
}

/// Returns the lines of the ACLs of znodes, without their stats.
fn acls(scratch: &Scratch, server: &Server, paths: &[&str]) -> Vec<String> {
    paths.iter().map(|path| well(scratch, server, &format!("getAcl {path}")).replace('\n', "")).collect()
}

#[test]
fn parents_with_narrow_acls_are_imported_copied_and_moved_with_their_children() {
    let scratch = Scratch::new();
    let (server, mut client) = planted(&scratch);
    let well = |words: &str| well(&scratch, &server, words);
    let acls = |paths: &[&str]| acls(&scratch, &server, paths);
    // No client may create children here any more.
    well("setAcl /app/a/x world:anyone:r");
    well("create /app/a/deep");
    well("create /app/a/deep/er");
    well("create /app/a/deep/er/est leaf world:anyone:rwa");
    well("setAcl /app/a/deep/er world:anyone:rd");
    well("setAcl /app/a/deep world:anyone:rd");
    well("setAcl /app/a world:anyone:rd,digest:other:hash=:cdrwa");
    let paths = ["/app/a", "/app/a/deep", "/app/a/deep/er", "/app/a/deep/er/est", "/app/a/x"];
    let narrow = acls(&paths);
    assert_eq!(narrow[1], "'world,'anyone: dr");
    let at = |top: &str| acls(&paths.map(|path| path.replace("/app/a", top)).each_ref().map(String::as_str));

    // The session may not read the hash itself, so the file is made of what getAcl hides from none.
    well("export -d -o plain.json /app/a");
    let znode = |path: &str, acl: &str| format!("{{\"acl\":[{acl}],\"data\":\"\",\"path\":\"{path}\"}}\n");
    let (read, other) = (
        "{\"id\":\"anyone\",\"perms\":\"rd\",\"scheme\":\"world\"}",
        "{\"id\":\"other:hash=\",\"perms\":\"cdrwa\",\"scheme\":\"digest\"}",
    );
    let last = |znodes| format!("{{\"end\":true,\"ephemerals\":0,\"znodes\":{znodes}}}\n");
    let head = "{\"format\":\"zoolet subtree\",\"path\":\"/app/a\",\"version\":1}\n";
    let small = [
        head.to_owned(),
        znode("/", &format!("{read},{other}")),
        znode("/deep", read),
        znode("/deep/er", read),
        znode("/deep/er/est", "{\"id\":\"anyone\",\"perms\":\"rwa\",\"scheme\":\"world\"}"),
        znode("/x", "{\"id\":\"anyone\",\"perms\":\"r\",\"scheme\":\"world\"}"),
        last(5),
    ];
    std::fs::write(scratch.join("small.json"), small.concat()).unwrap();
    assert_eq!(well("import small.json /new"), "created 5, changed 0, deleted 0, unchanged 0\n");
    assert_eq!(at("/new"), narrow);

    // A part that is sent before the children are known.
    let many: String = (0..1500).map(|number| znode(&format!("/{number:04}"), read)).collect();
    let large = [head.to_owned(), znode("/", read), many, znode("/z", read), znode("/z/z", read), last(1503)];
    std::fs::write(scratch.join("large.json"), large.concat()).unwrap();
    assert_eq!(well("import large.json /large"), "created 1503, changed 0, deleted 0, unchanged 0\n");
    assert_eq!(acls(&["/large", "/large/z"]), ["'world,'anyone: dr", "'world,'anyone: dr"]);
    assert_eq!(well("diff /large file:large.json"), "");

    assert_eq!(well("cp -r /app/a/deep /copy"), "copied 3 znodes from /app/a/deep to /copy\n");
    assert_eq!(acls(&["/copy", "/copy/er", "/copy/er/est"]), narrow[1..4]);
    assert_eq!(well("mv /copy /moved"), "moved 3 znodes from /copy to /moved\n");
    assert_eq!(acls(&["/moved", "/moved/er", "/moved/er/est"]), narrow[1..4]);
    assert!(!client.exists("/copy"));

    // The owner of an ACL needs no wider one: one multi does all.
    let lines = "addauth digest me:secret\ncreate /mine x auth::cdrwa\ncreate /mine/child x auth::cdrwa\n\
                 cp -r /mine /yours\ngetAcl -s /yours\n";
    let (code, out, err) = script(&scratch, &server, lines);
    assert!(code == 0 && out.contains("'digest,'me:") && out.contains("\naclVersion = 0\n"), "{out}{err}");
}

/// Forwards one connection, and calls `change` before the second request of an opcode is forwarded.
fn forward_until(server: &Server, opcode: i32, change: impl FnOnce() + Send + 'static) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let (address, server) = (listener.local_addr().unwrap().to_string(), server.address);
    std::thread::spawn(move || {
        let (mut client, mut server) = (listener.accept().unwrap().0, TcpStream::connect(server).unwrap());
        let (mut answers, mut back) = (server.try_clone().unwrap(), client.try_clone().unwrap());
        std::thread::spawn(move || std::io::copy(&mut answers, &mut back));
        let (mut change, mut seen) = (Some(change), 0);
        loop {
            let mut length = [0; 4];
            if client.read_exact(&mut length).is_err() {
                return;
            }
            let mut frame = vec![0; usize::try_from(i32::from_be_bytes(length)).unwrap()];
            client.read_exact(&mut frame).unwrap();
            let is_wanted = frame[4..8] == opcode.to_be_bytes();
            seen += usize::from(is_wanted);
            if is_wanted
                && seen == 2
                && let Some(change) = change.take()
            {
                change();
            }
            server.write_all(&[&length, &frame[..]].concat()).unwrap();
        }
    });
    address
}

#[test]
fn znode_that_was_created_anew_or_has_another_acl_is_neither_copied_nor_moved() {
    const EXISTS: i32 = 3;
    let scratch = Scratch::new();
    let (server, mut client) = planted(&scratch);
    let address = server.address.to_string();
    let others = |line: &'static str| {
        let address = address.clone();
        move || assert!(zoolet(&["shell", "--server", &address]).args(line.split(' ')).status().unwrap().success())
    };
    let narrower = others("setAcl /app/b! world:anyone:cdra");
    let mut proxied = zoolet(&["shell", "--server", &forward_until(&server, EXISTS, narrower), "mv", "/app/b!", "/c"]);
    let refused = |path: &str, verb: &str| {
        format!("version No is not valid : {path}\nit was changed meanwhile, so nothing was {verb}; try again\n")
    };
    assert_eq!(outcome(proxied), (1, String::new(), refused("/app/b!", "moved")));
    // The new znode has the same version of its data and its ACL.
    let delete = others("delete /app/a/x");
    let create = others("create /app/a/x other");
    let anew = forward_until(&server, EXISTS, move || {
        delete();
        create();
    });
    proxied = zoolet(&["shell", "--server", &anew, "cp", "/app/a/x", "/c"]);
    assert_eq!(outcome(proxied), (1, String::new(), refused("/app/a/x", "copied")));
    assert!(!client.exists("/c") && client.exists("/app/b!"));
    assert_eq!(well(&scratch, &server, "mv /app/a /c"), "moved 3 znodes from /app/a to /c\n");
}

/// The small znodes fill nearly a multi, and the large one nearly a frame of this server.
#[test]
fn znode_of_nearly_the_largest_size_is_imported_after_small_ones() {
    let scratch = Scratch::new();
    let server = Server::start(&scratch);
    let mut client = server.client();
    client.create("/app", b"").unwrap();
    for number in 0..60 {
        client.create(&format!("/app/{number:02}"), &[b'x'; 900]).unwrap();
    }
    client.create("/app/large", &[b'x'; 99_500]).unwrap();
    well(&scratch, &server, "export -o app.json /app");
    let imported = well(&scratch, &server, "import app.json /new");
    assert_eq!(imported, "created 62, changed 0, deleted 0, unchanged 0\n");
    for path in ["/new/58", "/new/large"] {
        client.ask(&set(path, b"small")).unwrap();
    }
    let merged = well(&scratch, &server, "import --merge app.json /new");
    assert_eq!(merged, "created 0, changed 2, deleted 0, unchanged 60\n");
    assert_eq!(well(&scratch, &server, "diff /app /new"), "");
}

/// The walk fails after a multi was sent.
#[test]
fn import_tells_how_far_it_came_before_a_znode_that_it_may_not_read() {
    let scratch = Scratch::new();
    let server = Server::start(&scratch);
    let save = |name: &str, data: &str| {
        let many: String = (0..1500).map(|it| format!("{{\"data\":\"{data}\",\"path\":\"/{it:04}\"}}\n")).collect();
        let head = "{\"format\":\"zoolet subtree\",\"path\":\"/app\",\"version\":1}\n{\"data\":\"\",\"path\":\"/\"}\n";
        let text = format!("{head}{many}{{\"end\":true,\"ephemerals\":0,\"znodes\":1501}}\n");
        std::fs::write(scratch.join(name), text).unwrap();
    };
    save("old.json", "old");
    save("new.json", "new");
    well(&scratch, &server, "import old.json /app");
    well(&scratch, &server, "setAcl /app/1490 digest:other:hash=:cdrwa");
    let failure = badly(&scratch, &server, "import --merge new.json /app");
    let expected = "Insufficient permission : /app/1490\noperations carried out before: 1000; import --merge or \
                    --replace continues\n";
    assert_eq!(failure, expected);
}

/// Regression: the merge used to read the whole destination.
#[test]
fn merge_reads_no_znode_that_is_not_in_the_file() {
    let scratch = Scratch::new();
    let (server, mut client) = planted(&scratch);
    let well = |words: &str| well(&scratch, &server, words);
    well("export -o app.json /app");
    well("set /app/a changed");
    well("delete /app/b!");
    well("create /app/a/hidden secret digest:other:hash=:cdrwa");
    assert_eq!(well("import --merge app.json /app"), "created 1, changed 1, deleted 0, unchanged 4\n");
    assert!(client.exists("/app/b!") && client.children("/app/a").contains(&"hidden".into()));
    let failure = badly(&scratch, &server, "import --replace app.json /app");
    assert_eq!(failure, "Insufficient permission : /app/a/hidden\nnothing was imported\n");
}

#[test]
fn import_over_an_ephemeral_changes_nothing() {
    let scratch = Scratch::new();
    let (server, mut client) = planted(&scratch);
    let well = |words: &str| well(&scratch, &server, words);
    well("create /kept");
    well("create /kept/a new");
    well("create /kept/live");
    well("export -o kept.json /kept");
    for option in ["--merge", "--replace", "--merge --dry-run"] {
        let refused = badly(&scratch, &server, &format!("import {option} kept.json /app/b"));
        let expected = "kept.json has a znode at /live, and there is an ephemeral of a session; nothing was imported\n";
        assert_eq!(refused, expected);
    }
    assert!(client.exists("/app/b/live") && !client.exists("/app/b/a"));
}

#[test]
fn subtree_with_long_paths_is_deleted_in_requests_that_the_server_takes() {
    let scratch = Scratch::new();
    let server = Server::start(&scratch);
    let mut client = server.client();
    let top = format!("/{}", "long".repeat(30));
    client.create(&top, b"").unwrap();
    // The paths have more bytes than the server's frame_bytes_max.
    for number in 0..900 {
        client.create(&format!("{top}/{number}"), b"").unwrap();
    }
    assert_eq!(well(&scratch, &server, &format!("deleteall {top}")), "");
    assert!(!client.exists(&top));
}

#[test]
fn damaged_file_changes_nothing() {
    let scratch = Scratch::new();
    let (server, mut client) = planted(&scratch);
    let badly = |words: &str| badly(&scratch, &server, words);
    well(&scratch, &server, "export -o app.json /app/a");
    let whole = std::fs::read_to_string(scratch.join("app.json")).unwrap();
    let cut = whole.lines().take(3).collect::<Vec<_>>().join("\n");
    std::fs::write(scratch.join("cut.json"), cut).unwrap();
    assert!(badly("import cut.json /new").starts_with("cut.json: it is truncated: "));
    std::fs::write(scratch.join("wrong.json"), whole.replace("/bytes", "/../bytes")).unwrap();
    assert!(badly("import wrong.json /new").contains("relative paths not allowed"));
    std::fs::write(scratch.join("other.json"), "{}").unwrap();
    assert!(badly("import other.json /new").starts_with("other.json is no export: it does not begin with {"));
    assert!(badly("import none.json /new").starts_with("cannot read none.json: "));
    assert!(!client.exists("/new"));
    assert_eq!(badly("import app.json /no/parent"), "Node does not exist: /no/parent\nnothing was imported\n");
}

#[test]
fn part_without_permission_is_named() {
    let scratch = Scratch::new();
    let (server, _client) = planted(&scratch);
    let lines = "addauth digest me:secret\ncreate /app/hidden data auth::cdrwa\ncreate /app/hidden/child\n";
    let (code, out, err) = script(&scratch, &server, lines);
    assert_eq!(code, 0, "{out}{err}");
    let (code, out, err) = shell(&scratch, &server, "tree /app");
    assert!(out.contains("hidden (children not readable)\n") && out.contains("live"), "{out}");
    assert!(code == 1 && err.starts_with("Insufficient permission : /app/hidden\nznodes not read: 1;"), "{err}");
    let (code, out, _) = shell(&scratch, &server, "find --data one /app");
    assert_eq!((code, out.as_str()), (1, "/app/a\n"));
    for words in ["export -o f /app", "diff /app /app/a", "cp -r /app/hidden /copy", "mv /app/hidden /copy"] {
        let refused = badly(&scratch, &server, words);
        assert!(refused.starts_with("Insufficient permission : /app/hidden"), "{words}: {refused}");
    }
    // An export that fails leaves no file.
    assert!(!names(scratch.path()).iter().any(|name| name.contains('f') && name.contains("zoolet-")));
    assert!(!scratch.join("f").exists());
    let (code, out, err) =
        script(&scratch, &server, "addauth digest me:secret\nmv /app/hidden /copy\nget /copy/child\n");
    assert!(code == 0 && out.contains("moved 2 znodes"), "{out}{err}");
}

#[test]
fn watch_follows_a_subtree_until_ctrl_c() {
    let scratch = Scratch::new();
    let (server, mut client) = planted(&scratch);
    let address = server.address.to_string();
    let mut command = zoolet(&["shell", "--server", &address, "watch", "/app"]);
    let mut child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let mut lines = BufReader::new(child.stdout.take().unwrap()).lines().map(Result::unwrap);
    // The watch is set a moment after the start.
    while server.figure("watch_count") == 0 {
        std::thread::sleep(std::time::Duration::from_millis(10));
    }
    client.create("/app/a/new", b"12345").unwrap();
    let line = lines.find(|line| line.contains("created")).unwrap();
    let (time, rest) = line.split_once(' ').unwrap();
    assert!(time.len() == 24 && time.ends_with('Z'), "{line}");
    assert!(
        rest.starts_with("created /app/a/new version 0 cversion 0 mzxid 0x") && rest.ends_with(" 5 bytes"),
        "{line}"
    );
    well(&scratch, &server, "set /app/a/new x");
    assert!(lines.next().unwrap().contains(" changed /app/a/new version 1 "));
    well(&scratch, &server, "delete /app/a/new");
    assert!(lines.next().unwrap().contains(" deleted /app/a/new"));
    let killed = std::process::Command::new("kill").args(["-INT", &child.id().to_string()]).status().unwrap();
    assert!(killed.success());
    assert_eq!(child.wait().unwrap().signal(), Some(2));
    assert!(lines.next().is_none());
}

#[test]
fn image_is_read_without_a_server() {
    let scratch = Scratch::new();
    let (mut server, _client) = planted(&scratch);
    let image = scratch.join("app.image");
    let kept =
        format!("last_known_good = {{ subtree = \"/app\", path = \"{}\", min_interval = \"1s\" }}\n", image.display());
    server.restart_with(&format!("{kept}{SMALL}"));
    let begin = std::time::Instant::now();
    while !image.exists() {
        assert!(begin.elapsed() < PATIENCE, "no image");
        std::thread::sleep(std::time::Duration::from_millis(20));
    }
    well(&scratch, &server, "export -o app.json /app");
    server.kill();
    let shell = |words: &str| {
        let mut command = zoolet(&["shell", "--image", "app.image"]);
        command.args(words.split_whitespace()).current_dir(scratch.path());
        outcome(command)
    };
    for (words, expected) in [
        ("ls /", "[app]\n"),
        ("get /app/b", "two words\n"),
        ("tree -d 1 /", "/\n└── app\n"),
        ("find --name x", "/app/a/x\n"),
        ("getAcl /app", "'world,'anyone\n: cdrwa\n"),
        ("getAllChildrenNumber /", "6\n"),
        ("diff /app file:app.json", ""),
    ] {
        assert_eq!(shell(words), (0, expected.to_owned(), String::new()), "{words}");
    }
    assert!(shell("stat /app/a").1.contains("dataLength = 3\n"));
    let exported = shell("export /app").1;
    let live = std::fs::read_to_string(scratch.join("app.json")).unwrap();
    // The last line counts ephemerals, which the image does not have.
    assert_eq!((exported.lines().count(), live.lines().count()), (8, 8));
    assert!(exported.lines().zip(live.lines()).take(7).all(|(one, other)| one == other), "{exported}{live}");
    for words in ["set /app x", "create /app/new", "watch /app", "cp /app/b /c", "import app.json /new", "rmr /app/a"] {
        let (code, _, err) = shell(words);
        assert!(code == 1 && err.contains("app.image is an image, which can only be read"), "{words}: {err}");
    }
    assert!(shell("get -w /app").2.contains("leave out the watch"));
    std::fs::write(scratch.join("app.image"), b"nothing").unwrap();
    let (code, _, err) = shell("ls /");
    assert!(code == 1 && err.contains("app.image: the image is damaged"), "{err}");
}
