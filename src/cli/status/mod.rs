//! `zoolet status`: shows the state of servers, their problems and the remedies.

mod ask;
mod readiness;
mod show;

pub(super) use ask::Unheard;

use super::{DEFAULT_FILE, DEFAULT_SERVER, Exit, complain, say};
use ask::{PATIENCE, ask};
use serde_json::{Value, json};
use std::fs::File;
use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};
use zoolet::config::{self, Overrides};

/// Version of the JSON object, raised when a field is removed or changes its meaning.
///
/// A new field does not raise it.
const VERSION: u32 = 1;

/// Interval between two questions with `--wait`.
const ASK_AGAIN: Duration = Duration::from_millis(500);

/// Minimum time that a server gets to answer, even if `--wait` ends earlier.
const ANSWER_LEAST: Duration = Duration::from_secs(1);

/// The servers to ask.
#[derive(PartialEq, Eq, Debug)]
pub(super) enum Asked {
    /// Addresses, each HOST:PORT.
    Servers(Vec<String>),
    /// The servers that run on this machine with this file.
    OfFile(PathBuf),
    /// Those of [`DEFAULT_FILE`] if it exists, otherwise one at the default address.
    OfThisBox,
}

/// The servers to ask, and the form of the output.
pub(super) struct Options {
    pub(super) asked: Asked,
    /// Maximum wait until the next server may be restarted.
    pub(super) wait: Option<Duration>,
    pub(super) json: bool,
    /// Refuses a standalone server.
    ///
    /// The output needs no change: the status of a member covers all boxes anyway.
    pub(super) site: bool,
}

/// A server's name as given, with its status or the reason for having none.
pub(super) struct Answer {
    pub(super) address: String,
    pub(super) status: Result<Value, Unheard>,
}

impl Answer {
    fn alarms(&self) -> &[Value] {
        let alarms = self.status.as_ref().ok().and_then(|status| status["alarms"].as_array());
        alarms.map_or(&[], Vec::as_slice)
    }
}

pub(super) fn status(options: &Options) -> Result<(), Exit> {
    let servers = &addresses(&options.asked, Path::new(DEFAULT_FILE))?;
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().map_err(Exit::failed)?;
    let (answers, outcome) = runtime.block_on(async {
        match options.wait {
            Some(wait) => wait_for(servers, wait).await,
            None => {
                let answers = ask_all(servers).await;
                let outcome = verdict(&answers);
                (answers, outcome)
            }
        }
    });
    say(&if options.json { to_json(&answers) } else { show::text(&answers) })?;
    if options.site { of_a_site(&answers).and(outcome) } else { outcome }
}

/// Returns the addresses to ask; `usual` is the configuration file of this box.
fn addresses(asked: &Asked, usual: &Path) -> Result<Vec<String>, Exit> {
    match asked {
        Asked::Servers(servers) => Ok(servers.clone()),
        Asked::OfFile(file) => servers_of(file),
        Asked::OfThisBox => match File::open(usual) {
            Ok(_) => servers_of(usual)
                .map_err(|exit| Exit { line: format!("{}; or name the server with --server", exit.line), ..exit }),
            Err(error) => {
                if error.kind() != io::ErrorKind::NotFound {
                    complain(&format!("{}: {error}; asking {DEFAULT_SERVER} instead", usual.display()));
                }
                Ok(vec![DEFAULT_SERVER.to_owned()])
            }
        },
    }
}

/// Checks that every server that answered belongs to a site.
///
/// # Errors
/// A server is standalone.
fn of_a_site(answers: &[Answer]) -> Result<(), Exit> {
    let is_alone = |answer: &&Answer| answer.status.as_ref().is_ok_and(|status| status["role"] == "standalone");
    match answers.iter().find(is_alone) {
        Some(answer) => Err(Exit::failed(format!("{}: this server is standalone; a site has several", answer.address))),
        None => Ok(()),
    }
}

/// Returns the client addresses of this file's servers that run on this machine.
///
/// That is usually one server. A development ensemble has more.
fn servers_of(file: &Path) -> Result<Vec<String>, Exit> {
    let config = match config::load(file, &Overrides::default()) {
        Ok(loaded) => loaded.config,
        Err(error) if !error.servers_here().is_empty() => return several(file, error.servers_here()),
        Err(error) => return Err(Exit::usage(error)),
    };
    let address = config.clients.ok_or_else(|| Exit::usage(format!("{}: it opens no client port", file.display())))?;
    Ok(vec![reached_at(address).to_string()])
}

/// Returns the addresses of several servers: the key `clients` is the address of only one.
fn several(file: &Path, here: &[u8]) -> Result<Vec<String>, Exit> {
    let as_one = Overrides { server_id: here.first().copied(), ..Overrides::default() };
    let ensemble = config::load(file, &as_one).map_err(Exit::usage)?.config.ensemble;
    let client = |id: &u8| ensemble.as_ref()?.member(*id)?.client.clone();
    let (said, silent): (Vec<u8>, Vec<u8>) = here.iter().partition(|id| client(id).is_some());
    if silent.is_empty() {
        return Ok(said.iter().filter_map(client).collect());
    }
    let listed = |ids: &[u8]| ids.iter().map(u8::to_string).collect::<Vec<_>>().join(", ");
    let who = if silent.len() == 1 { "server" } else { "servers" };
    Err(Exit::usage(format!(
        "{}: servers {} are on this machine, but `client` is missing for {who} {}: add it under [[server]], or \
         name the servers with --server",
        file.display(),
        listed(here),
        listed(&silent)
    )))
}

fn reached_at(address: SocketAddr) -> SocketAddr {
    let ip = match address.ip() {
        IpAddr::V4(Ipv4Addr::UNSPECIFIED) => Ipv4Addr::LOCALHOST.into(),
        IpAddr::V6(Ipv6Addr::UNSPECIFIED) => Ipv6Addr::LOCALHOST.into(),
        ip => ip,
    };
    SocketAddr::new(ip, address.port())
}

/// Asks until all servers are ready or the time is over.
async fn wait_for(servers: &[String], wait: Duration) -> (Vec<Answer>, Result<(), Exit>) {
    let begun = Instant::now();
    let until = begun + wait;
    loop {
        // A link outlives its peer by 5 s, so only a peer heard since the start of the wait counts.
        let waited = begun.elapsed();
        let answers = ask_all_within(servers, wait.saturating_sub(waited).clamp(ANSWER_LEAST, PATIENCE)).await;
        let Some(missing) = readiness::missing(&answers, waited) else { return (answers, Ok(())) };
        if Instant::now() >= until {
            return (answers, Err(Exit::failed(format!("not ready after {wait:?}: {missing}"))));
        }
        tokio::time::sleep(ASK_AGAIN.min(until.saturating_duration_since(Instant::now()))).await;
    }
}

/// Asks all servers in parallel: silent ones delay the result by one timeout.
pub(super) async fn ask_all(servers: &[String]) -> Vec<Answer> {
    ask_all_within(servers, PATIENCE).await
}

async fn ask_all_within(servers: &[String], patience: Duration) -> Vec<Answer> {
    let asked: Vec<_> = servers
        .iter()
        .map(|server| {
            let server = server.clone();
            tokio::spawn(async move { ask(&server, patience).await })
        })
        .collect();
    let mut answers = Vec::new();
    for (address, asked) in servers.iter().zip(asked) {
        let status = asked.await.unwrap_or_else(|error| Err(Unheard::Silent(error.to_string())));
        answers.push(Answer { address: address.clone(), status });
    }
    answers
}

fn to_json(answers: &[Answer]) -> String {
    let server = |answer: &Answer| {
        json!({
            "address": answer.address,
            "error": answer.status.as_ref().err().map(Unheard::to_string),
            "status": answer.status.as_ref().ok(),
        })
    };
    let servers: Vec<Value> = answers.iter().map(server).collect();
    format!("{}\n", json!({ "version": VERSION, "servers": servers }))
}

/// Singular and plural for servers without a status.
const UNTOLD: (&str, &str) = ("server did not report its status", "servers did not report their status");

/// Turns the answers into the outcome of the command.
///
/// # Errors
/// A server has an alarm or did not answer. Or, as bad usage, an answer is in a version that this
/// release does not understand.
fn verdict(answers: &[Answer]) -> Result<(), Exit> {
    for Answer { address, status } in answers {
        if let Err(Unheard::NotUnderstood(why)) = status {
            return Err(Exit::usage(format!("{address} {why}")));
        }
    }
    let silent = answers.iter().filter(|answer| answer.status.is_err()).count();
    let alarms: usize = answers.iter().map(|answer| answer.alarms().len()).sum();
    let count = |number: usize, one: &str, more: &str| match number {
        1 => format!("1 {one}"),
        _ => format!("{number} {more}"),
    };
    match (silent, alarms) {
        (0, 0) => Ok(()),
        (0, _) => Err(Exit::failed(count(alarms, "alarm", "alarms"))),
        (_, 0) => Err(Exit::failed(count(silent, UNTOLD.0, UNTOLD.1))),
        _ => Err(Exit::failed(format!("{}, {}", count(silent, UNTOLD.0, UNTOLD.1), count(alarms, "alarm", "alarms")))),
    }
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;

    /// The status of a healthy leader, with the fields that this module reads.
    pub(in crate::cli) fn leader() -> Value {
        json!({
            "version": 1, "server": 2, "role": "leader", "leader": 2, "epoch": 3, "zxid": "0x30000000010", "behind": 0, "znodes": 5,
            "sessions": 1, "connections": 2, "disk": {"fdatasync_p50_us": 210, "fdatasync_p99_us": 900, "fdatasync_max_us": 12_000},
            "members": [{"id": 1, "role": "voter"}, {"id": 2, "role": "voter"}],
            "learners": [{"id": 1, "votes": true, "synced": true, "behind": 7}],
            "peers": [{"id": 1, "address": "127.0.0.1:2888", "linked": true, "missing_ms": 0, "heard_ms": 310, "round_trip_us": 130, "refusal": null}],
            "site": [{"id": 1, "role": "follower", "leader": 2, "zxid": "0x3000000000f", "behind": 0, "refusal": "the disk is full", "disk": ["its disk is slow"], "said_ms": 9000}],
            "alarms": [],
        })
    }

    pub(in crate::cli) fn answer(status: Result<Value, &str>) -> Answer {
        let status = status.map_err(|why| Unheard::Silent(why.to_owned()));
        Answer { address: "127.0.0.1:2181".to_owned(), status }
    }

    #[test]
    fn healthy_servers_give_exit_code_0_and_failures_1_or_2() {
        let mut alarmed = leader();
        alarmed["alarms"] = json!([{"what": "w", "remedy": "r"}]);
        assert!(verdict(&[answer(Ok(leader()))]).is_ok());
        let code = |answers: &[Answer]| verdict(answers).err().map(|exit| (exit.code, exit.line));
        assert_eq!(code(&[answer(Ok(alarmed.clone()))]), Some((1, "1 alarm".to_owned())));
        let silent = answer(Err("refused"));
        assert_eq!(code(&[silent, answer(Ok(leader()))]), Some((1, "1 server did not report its status".to_owned())));
        let mut both = [answer(Err("")), answer(Err("")), answer(Ok(alarmed))];
        assert_eq!(code(&both), Some((1, "2 servers did not report their status, 1 alarm".to_owned())));
        both[1].status = Err(Unheard::NotUnderstood("answers with version 2".to_owned()));
        assert_eq!(code(&both), Some((2, "127.0.0.1:2181 answers with version 2".to_owned())));
    }

    #[test]
    fn wildcard_client_address_is_queried_on_loopback() {
        for (clients, asked) in
            [("0.0.0.0:2181", "127.0.0.1:2181"), ("[::]:2182", "[::1]:2182"), ("10.0.0.5:2181", "10.0.0.5:2181")]
        {
            assert_eq!(reached_at(clients.parse().unwrap()).to_string(), asked);
        }
    }

    #[test]
    fn default_config_file_gives_the_address_if_it_exists() {
        let usual = std::env::temp_dir().join(format!("zoolet-status-{}.toml", std::process::id()));
        let asked = |asked| addresses(&asked, &usual).map_err(|exit| (exit.code, exit.line));
        assert_eq!(asked(Asked::OfThisBox).unwrap(), ["127.0.0.1:2181"]);
        std::fs::write(&usual, "clients = \"127.0.0.1:2200\"\n").unwrap();
        assert_eq!(asked(Asked::OfThisBox).unwrap(), ["127.0.0.1:2200"]);
        assert_eq!(asked(Asked::Servers(vec!["a:1".to_owned()])).unwrap(), ["a:1"]);
        // Asking another server instead would hide the mistake.
        std::fs::write(&usual, "nonsense\n").unwrap();
        let (code, line) = asked(Asked::OfThisBox).unwrap_err();
        assert!(code == 2 && line.ends_with("; or name the server with --server"), "{line}");
        // A file that this user may not read does not hinder the question.
        assert_eq!(addresses(&Asked::OfThisBox, &usual.join("hidden")).ok().unwrap(), ["127.0.0.1:2181"]);
        std::fs::remove_file(&usual).unwrap();
    }

    #[test]
    fn site_status_of_a_standalone_server_is_refused() {
        let mut alone = leader();
        alone["role"] = json!("standalone");
        let error = of_a_site(&[answer(Ok(leader())), answer(Ok(alone))]).unwrap_err();
        assert_eq!(
            (error.code, error.line.as_str()),
            (1, "127.0.0.1:2181: this server is standalone; a site has several")
        );
        assert!(of_a_site(&[answer(Ok(leader())), answer(Err("refused"))]).is_ok(), "who is silent is told otherwise");
    }

    #[test]
    fn status_json_has_the_answer_or_error_of_each_server() {
        let text = to_json(&[answer(Ok(leader())), answer(Err("refused"))]);
        let object: Value = serde_json::from_str(&text).unwrap();
        assert_eq!((&object["version"], object["servers"].as_array().unwrap().len()), (&json!(1), 2));
        assert_eq!(object["servers"][0]["status"], leader());
        assert_eq!(object["servers"][0]["error"], Value::Null);
        assert_eq!(object["servers"][1], json!({"address": "127.0.0.1:2181", "error": "refused", "status": null}));
    }
}
