//! The options of `bench`.

use super::tools_args::{number, size};
use super::{Arguments, Exit, Variables, address, time};
use crate::cli::bench::{Distribution, Op, Options, Until};
use std::time::Duration;
use zoolet_model::path::is_valid;

/// Shortest run or wait, and shortest session timeout.
const TIME_MIN: Duration = Duration::from_millis(1);
const SESSION_TIMEOUT_MIN: Duration = Duration::from_millis(100);

pub(super) fn bench(arguments: &Arguments, variables: &Variables) -> Result<Options, Exit> {
    let mut options = Options::default();
    let given = arguments.value("server").map(|list| address("--server", list));
    let address = given.map_or_else(|| variables.address(), |address| address.map(Some))?;
    let root = address.map_or_else(String::new, |address| {
        options.servers = address.servers;
        address.root
    });
    arguments.set("op", &mut options.op, |name, text| one_of(name, text, &Op::ALL, Op::name))?;
    arguments.set("connections", &mut options.connections, |name, text| number(name, text, 1..=100_000))?;
    arguments.set("outstanding", &mut options.outstanding, |name, text| number(name, text, 1..=65_536))?;
    arguments.set("size", &mut options.size, |name, text| size(name, text, 0..=1_000_000, 1024))?;
    arguments.set("keys", &mut options.keys, |name, text| number(name, text, 1..=99_999_999))?;
    arguments.set("read-percent", &mut options.read_percent, |name, text| number(name, text, 0..=100))?;
    arguments.set("distribution", &mut options.distribution, |name, text| {
        one_of(name, text, &Distribution::ALL, Distribution::name)
    })?;
    arguments.set("duration", &mut options.until, |name, text| Ok(Until::Elapsed(time(name, text, TIME_MIN)?)))?;
    arguments.set("requests", &mut options.until, |name, text| {
        Ok(Until::Requests(number(name, text, 1..=1_000_000_000_000)?))
    })?;
    arguments.set("warmup", &mut options.warmup, |name, text| time(name, text, Duration::ZERO))?;
    arguments.set("rate", &mut options.rate, |name, text| Ok(Some(number(name, text, 1..=10_000_000)?)))?;
    arguments.set("locks", &mut options.locks, |name, text| number(name, text, 1..=100_000))?;
    arguments
        .set("session-timeout", &mut options.session_timeout, |name, text| time(name, text, SESSION_TIMEOUT_MIN))?;
    arguments.set("path", &mut options.path, |_, text| path(text.to_owned()))?;
    options.path.insert_str(0, &root);
    arguments.set("seed", &mut options.seed, |name, text| number(name, text, 0..=u64::MAX))?;
    options.ephemeral = arguments.has("ephemeral");
    options.sequential = arguments.has("sequential");
    options.keep = arguments.has("keep");
    options.json = arguments.has("json");
    options.progress = arguments.has("progress");
    fit_together(options.op, arguments)?;
    Ok(options)
}

/// Refuses options that would have no effect: the user misunderstands the measurement.
fn fit_together(op: Op, arguments: &Arguments) -> Result<(), Exit> {
    if let Some(name) = arguments.names().find(|name| !op.takes(name)) {
        return Err(Exit::usage(format!("--{name}: has no effect with --op {}", op.name())));
    }
    if arguments.has("duration") && arguments.has("requests") {
        return Err(Exit::usage("--requests: give --duration or --requests, not both"));
    }
    Ok(())
}

fn one_of<T: Copy>(option: &str, text: &str, all: &[T], name: fn(T) -> &'static str) -> Result<T, Exit> {
    all.iter().copied().find(|candidate| name(*candidate) == text).ok_or_else(|| {
        let names: Vec<_> = all.iter().map(|candidate| name(*candidate)).collect();
        Exit::usage(format!("--{option} = {text}: allowed is {}", names.join(", ")))
    })
}

fn path(text: String) -> Result<String, Exit> {
    let reserved = text == "/" || text == "/zookeeper" || text.starts_with("/zookeeper/");
    if is_valid(&text) && !reserved {
        Ok(text)
    } else {
        Err(Exit::usage(format!("--path = {text}: allowed is the path of a znode other than / and /zookeeper")))
    }
}

#[cfg(test)]
mod tests {
    use super::super::{Command, Tool, parse};
    use super::*;

    fn parse_words(words: &[&str]) -> Result<Options, String> {
        match parse(lexopt::Parser::from_args(["bench"].iter().chain(words))) {
            Ok(Command::Tool(Tool::Bench(options))) => Ok(options),
            Ok(_) => panic!("not bench"),
            Err(exit) => Err(format!("{} {}", exit.code, exit.line)),
        }
    }

    #[test]
    fn every_option_of_bench_is_parsed() {
        let words = "--server a:1,[::1]:2 --op mix --connections 3 --outstanding 4 --size 5 --keys 6 --read-percent 7 \
                     --distribution zipf --requests 8 --warmup 9ms --rate 10 --session-timeout 11s --path /a/b --keep \
                     --json --progress --seed 12";
        let options = parse_words(&words.split_whitespace().collect::<Vec<_>>()).unwrap();
        assert_eq!(options.servers, ["a:1", "[::1]:2"]);
        assert_eq!((options.op, options.connections, options.outstanding), (Op::Mix, 3, 4));
        assert_eq!((options.size, options.keys, options.read_percent), (5, 6, 7));
        assert_eq!((options.distribution, options.until), (Distribution::Zipf, Until::Requests(8)));
        assert_eq!((options.warmup, options.rate), (Duration::from_millis(9), Some(10)));
        assert_eq!((options.session_timeout, options.path.as_str()), (Duration::from_secs(11), "/a/b"));
        assert_eq!((options.keep, options.json, options.progress, options.seed), (true, true, true, 12));
        let options = parse_words(&["--op", "create", "--ephemeral", "--sequential", "--duration", "2m"]).unwrap();
        assert_eq!((options.ephemeral, options.sequential), (true, true));
        assert_eq!(options.until, Until::Elapsed(Duration::from_secs(120)));
        assert_eq!(parse_words(&["--size", "64 KiB", "--session-timeout=1.5s"]).unwrap().size, 65_536);
        assert_eq!(parse_words(&["--op=lock", "--locks=3"]).unwrap().locks, 3);
    }

    #[test]
    fn invalid_usage_names_option_value_and_allowed_values() {
        for (words, expected) in [
            (
                "--op frob",
                "2 --op = frob: allowed is set, get, exists, children, mix, create, create-delete, watch, lock",
            ),
            ("--connections 0", "2 --connections = 0: allowed is a whole number from 1 to 100000"),
            ("--keys many", "2 --keys = many: allowed is a whole number from 1 to 99999999"),
            ("--size -1", "2 --size = -1: allowed is a size from 0 B to 1 MB, such as 1024 or 1KiB"),
            ("--size 2MiB", "2 --size = 2MiB: allowed is a size from 0 B to 1 MB, such as 1024 or 1KiB"),
            (
                "--duration 10",
                "2 --duration = 10: allowed is a time from 1 ms to 24 h, such as 10s; the unit is missing",
            ),
            ("--duration 0s", "2 --duration = 0s: allowed is a time"),
            ("--warmup 99999999999999999999m", "2 --warmup = 99999999999999999999m: allowed is a time"),
            ("--server localhost:", "2 --server = localhost:: allowed is HOST:PORT"),
            ("--server ,", "2 --server = ,: allowed is HOST:PORT, or several separated by commas"),
            ("--server a:1,b:x", "2 --server = a:1,b:x: b:x: allowed is HOST:PORT"),
            ("--server a:0", "2 --server = a:0: allowed is HOST:PORT"),
            ("--path bench", "2 --path = bench: allowed is the path of a znode other than / and /zookeeper"),
            ("--path /zookeeper/x", "2 --path = /zookeeper/x: allowed is"),
            ("--distribution normal", "2 --distribution = normal: allowed is uniform, sequential, zipf"),
            ("--op set --locks 3", "2 --locks: has no effect with --op set"),
            ("--rate 5 --op lock", "2 --rate: has no effect with --op lock"),
            ("--requests 5 --duration 1s", "2 --requests: give --duration or --requests, not both"),
            ("--frob", "2 bench: invalid option '--frob'"),
            ("frob", "2 bench: unexpected argument 'frob'"),
            ("--keys", "2 bench: --keys: its value is missing; write --keys N: use N keys"),
        ] {
            let words: Vec<_> = words.split_whitespace().collect();
            let Err(error) = parse_words(&words) else { panic!("{words:?} was accepted") };
            assert!(error.starts_with(expected), "{words:?} gave {error:?}");
        }
    }
}
