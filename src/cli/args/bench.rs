//! The flags of `bench`.

use super::tools::number;
use super::{Command, Exit, Tool, next, servers, time, value};
use crate::cli::bench::{Distribution, Op, Options, Until};
use lexopt::prelude::{Long, Short};
use std::time::Duration;
use zoolet_model::path::is_valid;

pub(super) fn bench(parser: &mut lexopt::Parser) -> Result<Command, Exit> {
    let mut options = Options::default();
    let mut given = Vec::new();
    while let Some(argument) = next(parser, "bench")? {
        let name = match argument {
            Long(name) => name.to_owned(),
            Short('h') => return Ok(Command::Help),
            other => return Err(Exit::usage(format!("bench: {}; see zoolet --help", other.unexpected()))),
        };
        match name.as_str() {
            "server" => options.servers = servers(&value(parser)?)?,
            "op" => options.op = one_of(&name, &value(parser)?, &Op::ALL, Op::name)?,
            "connections" => options.connections = number(&name, &value(parser)?, 1..=100_000)?,
            "outstanding" => options.outstanding = number(&name, &value(parser)?, 1..=65_536)?,
            "size" => options.size = number(&name, &value(parser)?, 0..=1_000_000)?,
            "keys" => options.keys = number(&name, &value(parser)?, 1..=99_999_999)?,
            "read-percent" => options.read_percent = number(&name, &value(parser)?, 0..=100)?,
            "distribution" => {
                options.distribution = one_of(&name, &value(parser)?, &Distribution::ALL, Distribution::name)?;
            }
            "duration" => options.until = Until::Elapsed(time(&name, &value(parser)?, Duration::from_millis(1))?),
            "requests" => options.until = Until::Requests(number(&name, &value(parser)?, 1..=1_000_000_000_000)?),
            "warmup" => options.warmup = time(&name, &value(parser)?, Duration::ZERO)?,
            "rate" => options.rate = Some(number(&name, &value(parser)?, 1..=10_000_000)?),
            "locks" => options.locks = number(&name, &value(parser)?, 1..=100_000)?,
            "session-timeout" => {
                options.session_timeout = time(&name, &value(parser)?, Duration::from_millis(100))?;
            }
            "path" => options.path = path(value(parser)?)?,
            "seed" => options.seed = number(&name, &value(parser)?, 0..=u64::MAX)?,
            "ephemeral" => options.ephemeral = true,
            "sequential" => options.sequential = true,
            "keep" => options.keep = true,
            "json" => options.json = true,
            "progress" => options.progress = true,
            "help" => return Ok(Command::Help),
            _ => return Err(Exit::usage(format!("bench: invalid option '--{name}'; see zoolet --help"))),
        }
        given.push(name);
    }
    fit_together(&options, &given)?;
    Ok(Command::Tool(Tool::Bench(options)))
}

/// Refuses options that would have no effect: the user misunderstands the measurement.
fn fit_together(options: &Options, given: &[String]) -> Result<(), Exit> {
    let op = options.op;
    if let Some(name) = given.iter().find(|name| !op.takes(name)) {
        return Err(Exit::usage(format!("--{name}: has no effect with --op {}", op.name())));
    }
    if ["duration", "requests"].iter().all(|end| given.iter().any(|name| name == end)) {
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
    use super::*;

    fn parse_words(words: &[&str]) -> Result<Options, String> {
        let mut parser = lexopt::Parser::from_args(words);
        match bench(&mut parser).map_err(|exit| format!("{} {}", exit.code, exit.line))? {
            Command::Tool(Tool::Bench(options)) => Ok(options),
            _ => panic!("not bench"),
        }
    }

    #[test]
    fn bench_takes_every_flag() {
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
        assert_eq!(parse_words(&["--op=lock", "--locks=3"]).unwrap().locks, 3);
    }

    #[test]
    fn bad_usage_names_the_option_the_value_and_what_is_allowed() {
        for (words, expected) in [
            (
                "--op frob",
                "2 --op = frob: allowed is set, get, exists, children, mix, create, create-delete, watch, lock",
            ),
            ("--connections 0", "2 --connections = 0: allowed is a whole number from 1 to 100000"),
            ("--keys many", "2 --keys = many: allowed is a whole number from 1 to 99999999"),
            ("--size -1", "2 --size = -1: allowed is a whole number from 0 to 1000000"),
            ("--duration 10", "2 --duration = 10: allowed is a time like 500ms, 10s or 2m, from 1ms to 1440m"),
            ("--duration 0s", "2 --duration = 0s: allowed is a time"),
            ("--warmup 99999999999999999999m", "2 --warmup = 99999999999999999999m: allowed is a time"),
            ("--server localhost", "2 --server = localhost: allowed is HOST:PORT, or several separated by commas"),
            ("--server a:1,", "2 --server = a:1,: allowed is HOST:PORT"),
            ("--server a:0", "2 --server = a:0: allowed is HOST:PORT"),
            ("--path bench", "2 --path = bench: allowed is the path of a znode other than / and /zookeeper"),
            ("--path /zookeeper/x", "2 --path = /zookeeper/x: allowed is"),
            ("--distribution normal", "2 --distribution = normal: allowed is uniform, sequential, zipf"),
            ("--op set --locks 3", "2 --locks: has no effect with --op set"),
            ("--rate 5 --op lock", "2 --rate: has no effect with --op lock"),
            ("--requests 5 --duration 1s", "2 --requests: give --duration or --requests, not both"),
            ("--frob", "2 bench: invalid option '--frob'"),
            ("frob", "2 bench: unexpected argument \"frob\""),
            ("--keys", "2 missing argument for option '--keys'"),
        ] {
            let words: Vec<_> = words.split_whitespace().collect();
            let Err(error) = parse_words(&words) else { panic!("{words:?} was accepted") };
            assert!(error.starts_with(expected), "{words:?} gave {error:?}");
        }
    }
}
