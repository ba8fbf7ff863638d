//! Servers with certificates of an operator's authority, set up as docs/how-to/trust.md says.

#![allow(
    clippy::unwrap_used,
    clippy::print_stderr,
    reason = "a test stops at the first surprise, and says what it left out"
)]

use crate::support::certificates::certificates;
use crate::support::manual::executed_by;
use crate::support::*;
use std::io::ErrorKind;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

/// A server that ends with the test.
struct Process(Child);

impl Drop for Process {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Server `id` of three on this machine, which shows the certificate of server `shown`.
fn serve(scratch: &Scratch, links: [u16; 3], id: u8, shown: u8) -> Command {
    let trust = format!(
        "ca_file = \"authority.pem\"\ncertificate_file = \"server-{shown}.pem\"\nkey_file = \"server-{shown}.key\"\n"
    );
    let server = |(id, port): (u8, u16)| format!("[[server]]\nid = {id}\nhost = \"127.0.0.1:{port}\"\n");
    let servers: String = (1..).zip(links).map(server).collect();
    let (config, data) = (format!("{id}.toml"), format!("data-{id}"));
    let clients = links[usize::from(id) - 1];
    std::fs::write(scratch.join(&config), format!("clients = \"127.0.0.1:{clients}\"\n{trust}{servers}")).unwrap();
    let mut command = zoolet(&["serve", "--create", "--config", &config, "--data", &data, "--id", &id.to_string()]);
    command.current_dir(scratch.path()).stdout(Stdio::null()).stderr(Stdio::null());
    command
}

/// Makes certificates with the commands of docs/how-to/trust.md; false where openssl is missing.
///
/// The commands make `authority.pem`, and `server-N.pem` and `server-N.key` for servers 1 to 3.
fn make_certificates(scratch: &Scratch) -> bool {
    if Command::new("openssl").arg("version").output().is_err_and(|error| error.kind() == ErrorKind::NotFound) {
        zoolet_powercut::not_checked("the manual's commands, because there is no openssl here");
        return false;
    }
    let (_, commands) = executed_by("certificates").into_iter().find(|block| block.0 == "with openssl").unwrap();
    let made = Command::new("sh").args(["-ec", &commands]).current_dir(scratch.path()).output().unwrap();
    assert!(made.status.success(), "{}", String::from_utf8_lossy(&made.stderr));
    true
}

#[test]
fn certificates_made_by_the_manuals_commands_form_an_ensemble() {
    let (scratch, ports) = (Scratch::new(), free_ports());
    if !make_certificates(&scratch) {
        return;
    }
    let _servers = [1, 2, 3].map(|id| Process(serve(&scratch, ports, id, id).spawn().unwrap()));
    let all = ports.map(|port| format!("127.0.0.1:{port}")).join(",");
    let until = Instant::now() + PATIENCE;
    loop {
        let status = run(&scratch, &["status", "--server", &all]);
        let text = String::from_utf8_lossy(&status.stdout);
        // A fresh machine may have an alarm about its disk. Only the roles matter here.
        if text.matches("follower of server").count() == 2 && text.contains("leader") {
            return;
        }
        assert!(Instant::now() < until, "{text}");
        std::thread::sleep(Duration::from_millis(50));
    }
}

#[test]
fn refused_certificate_of_another_server_points_to_a_manual_heading() {
    let (scratch, ports) = (Scratch::new(), free_ports());
    certificates(&scratch);
    let refused = serve(&scratch, ports, 1, 3).stderr(Stdio::piped()).output().unwrap();
    let line = String::from_utf8_lossy(&refused.stderr).into_owned();
    assert!(line.contains("server-3.pem: other servers would refuse this certificate"), "{line}");
    let (_, named) = line.split_once("see docs/").unwrap();
    let (page, heading) = named.split_once(", \"").unwrap();
    let (heading, _) = heading.split_once('"').unwrap();
    assert!(manual::page(page).contains(&format!("\n## {heading}\n")), "{page}, {heading}");
}

#[test]
fn manuals_configuration_is_valid_with_the_certificates_it_makes() {
    let blocks = executed_by("certificates");
    let names: Vec<_> = blocks.iter().map(|block| block.0).collect();
    assert_eq!(names, ["with openssl", "zoolet.toml"]);
    let scratch = Scratch::new();
    if !make_certificates(&scratch) {
        return;
    }
    for end in ["pem", "key"] {
        std::fs::rename(scratch.join(&format!("server-2.{end}")), scratch.join(&format!("server.{end}"))).unwrap();
    }
    let servers = "id = 2\n[[server]]\nid = 1\nhost = \"gw-a\"\n[[server]]\nid = 2\nhost = \"gw-b\"\n[[server]]\nid = 3\nhost = \"gw-c\"\n";
    let here = format!("{}/", scratch.path().display());
    std::fs::write(scratch.join("zoolet.toml"), blocks[1].1.replace("/etc/zoolet/", &here) + servers).unwrap();
    let check = || run(&scratch, &["serve", "--check", "--config", "zoolet.toml"]);
    assert!(check().status.success(), "{}", String::from_utf8_lossy(&check().stderr));
    std::fs::remove_file(scratch.join("server.key")).unwrap();
    assert!(String::from_utf8_lossy(&check().stderr).contains("server.key"));
}
