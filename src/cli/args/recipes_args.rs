//! The options of the commands that coordinate programs: `lock`, `elect` and the others.

use super::tools_args::number;
use super::{Arguments, Exit, Variables, address, time};
use crate::cli::recipes::{Again, GRACE_ONE_IN, NAMINGS, Options, Signal, Wait, What, Work};
use std::time::Duration;
use zoolet_model::Path;

/// Shortest wait and shortest session timeout.
const TIME_MIN: Duration = Duration::from_millis(1);
const SESSION_TIMEOUT_MIN: Duration = Duration::from_millis(100);

pub(super) fn named(arguments: &Arguments, variables: &Variables) -> Result<Options, Exit> {
    let mut options = Options::default();
    let given = arguments.value("server").map(|list| address("--server", list));
    let address = given.map_or_else(|| variables.address(), |address| address.map(Some))?;
    if let Some(address) = address {
        options.servers = address.servers;
        options.root = address.root;
    }
    arguments
        .set("session-timeout", &mut options.session_timeout, |name, text| time(name, text, SESSION_TIMEOUT_MIN))?;
    let what = match arguments.words() {
        "lock" => {
            waiting(arguments, &mut options, true)?;
            naming(arguments, &mut options)?;
            let work = work(arguments, &options)?;
            path(arguments, &mut options)?;
            What::Lock(required(arguments, work)?)
        }
        "elect" => {
            waiting(arguments, &mut options, false)?;
            naming(arguments, &mut options)?;
            let work = work(arguments, &options)?;
            let again = Again { restart: arguments.has("restart"), forever: arguments.has("forever") };
            if again.forever && options.wait != Wait::Forever {
                return Err(Exit::usage("elect: give --wait or --forever, not both"));
            }
            path(arguments, &mut options)?;
            What::Elect(required(arguments, work)?, again)
        }
        "semaphore" => {
            waiting(arguments, &mut options, true)?;
            naming(arguments, &mut options)?;
            let work = work(arguments, &options)?;
            let permits = counted(arguments, "permits")?;
            let resize = arguments.has("resize");
            if resize && permits.is_none() {
                return Err(Exit::usage("semaphore: --resize needs --permits N, the new number"));
            }
            path(arguments, &mut options)?;
            What::Semaphore(required(arguments, work)?, permits, resize)
        }
        "queue put" => {
            path(arguments, &mut options)?;
            What::Put(arguments.second().filter(|data| *data != "-").map(str::to_owned))
        }
        "queue take" => {
            waiting(arguments, &mut options, false)?;
            let work = work(arguments, &options)?;
            let attempts = counted(arguments, "attempts")?;
            path(arguments, &mut options)?;
            let work = (!work.command.is_empty()).then_some(work);
            let given = ["attempts", "grace", "lost-signal", "doubt-signal"];
            if let (None, Some(name)) = (&work, arguments.names().find(|name| given.contains(name))) {
                return Err(Exit::usage(format!("queue take: --{name} has no effect without -- COMMAND")));
            }
            What::Take(work, attempts)
        }
        "barrier meet" => {
            waiting(arguments, &mut options, false)?;
            let parties = counted(arguments, "parties")?;
            path(arguments, &mut options)?;
            let parties = parties.ok_or_else(|| Exit::usage("barrier meet: --parties N is missing"))?;
            What::Meet(usize::try_from(parties).unwrap_or(usize::MAX), arguments.run().to_vec())
        }
        "barrier wait" => {
            waiting(arguments, &mut options, false)?;
            path(arguments, &mut options)?;
            What::WaitOpen
        }
        words => {
            path(arguments, &mut options)?;
            if words == "barrier close" { What::Close } else { What::Open }
        }
    };
    options.what = what;
    options.path = rooted(&options.root, options.path)?;
    Ok(options)
}

/// Puts the root of the address in front of a path.
fn rooted(root: &str, path: Path) -> Result<Path, Exit> {
    if root.is_empty() {
        return Ok(path);
    }
    let wrong = || Exit::usage(format!("the root {root}: allowed is the path of a znode other than /zookeeper"));
    if is_zookeepers(root) {
        return Err(wrong());
    }
    Path::new(format!("{root}{path}")).map_err(|_| wrong())
}

fn is_zookeepers(path: &str) -> bool {
    path == "/zookeeper" || path.starts_with("/zookeeper/")
}

/// Reads `--wait`, `--no-wait` and `--conflict-exit-code`.
fn waiting(arguments: &Arguments, options: &mut Options, has_no_wait: bool) -> Result<(), Exit> {
    arguments.set("wait", &mut options.wait, |name, text| time(name, text, TIME_MIN).map(Wait::AtMost))?;
    if has_no_wait && arguments.has("no-wait") {
        if options.wait != Wait::Forever {
            let words = arguments.words();
            return Err(Exit::usage(format!("{words}: give --wait or --no-wait, not both")));
        }
        options.wait = Wait::NotAtAll;
    }
    arguments.set("conflict-exit-code", &mut options.conflict, |name, text| number(name, text, 0..=255))
}

fn naming(arguments: &Arguments, options: &mut Options) -> Result<(), Exit> {
    arguments.set("naming", &mut options.naming, |name, text| {
        NAMINGS.iter().find(|(known, _)| *known == text).map(|(_, naming)| *naming).ok_or_else(|| {
            let names = NAMINGS.map(|(known, _)| known);
            Exit::usage(format!("--{name} = {text}: allowed is {}", names.join(", ")))
        })
    })
}

fn work(arguments: &Arguments, options: &Options) -> Result<Work, Exit> {
    let mut work = Work { command: arguments.run().to_vec(), grace: options.session_timeout / 10, ..Work::default() };
    arguments.set("grace", &mut work.grace, |name, text| time(name, text, Duration::ZERO))?;
    if work.grace > options.session_timeout / GRACE_ONE_IN {
        return Err(Exit::usage(format!(
            "--grace = {}: allowed is at most a fifth of --session-timeout, {} ms; give a longer --session-timeout",
            arguments.value("grace").unwrap_or_default(),
            (options.session_timeout / GRACE_ONE_IN).as_millis()
        )));
    }
    arguments.set("lost-signal", &mut work.lost, signal)?;
    arguments.set("doubt-signal", &mut work.doubt, |name, text| signal(name, text).map(Some))?;
    Ok(work)
}

fn signal(option: &str, text: &str) -> Result<Signal, Exit> {
    let name = text.strip_prefix("SIG").unwrap_or(text);
    Signal::ALL.into_iter().find(|signal| signal.name() == name).ok_or_else(|| {
        let names = Signal::ALL.map(Signal::name);
        Exit::usage(format!("--{option} = {text}: allowed is {}", names.join(", ")))
    })
}

fn counted(arguments: &Arguments, option: &'static str) -> Result<Option<u32>, Exit> {
    arguments.value(option).map(|text| number(option, text, 1..=1_000_000)).transpose()
}

/// Reads the path. Its parent and what the recipe creates beside it must be possible paths too.
fn path(arguments: &Arguments, options: &mut Options) -> Result<(), Exit> {
    let text = arguments.argument();
    let is_reserved = text == "/" || is_zookeepers(text);
    match Path::new(text) {
        Ok(path) if !is_reserved => options.path = path,
        _ => {
            let words = arguments.words();
            let hint = if text.starts_with('/') { "" } else { "; it begins with /" };
            return Err(Exit::usage(format!(
                "{words}: PATH = {text}: allowed is the path of a znode other than / and /zookeeper{hint}"
            )));
        }
    }
    Ok(())
}

fn required(arguments: &Arguments, work: Work) -> Result<Work, Exit> {
    if work.command.is_empty() {
        let (words, usage) = (arguments.words(), arguments.usage());
        return Err(Exit::usage(format!("{words}: COMMAND is missing; write zoolet {usage}")));
    }
    Ok(work)
}

#[cfg(test)]
mod tests {
    use super::super::{Command, Tool, parse};
    use super::*;
    use zoolet_recipes::Naming;

    fn parse_words(words: &str) -> Result<Options, String> {
        match parse(lexopt::Parser::from_args(words.split(' '))) {
            Ok(Command::Tool(Tool::Recipe(options))) => Ok(options),
            Ok(_) => panic!("not a recipe"),
            Err(exit) => Err(format!("{} {}", exit.code, exit.line)),
        }
    }

    #[test]
    fn every_option_of_lock_is_parsed_and_the_rest_is_the_commands() {
        let options = parse_words(
            "lock --server a:1,b:2 /l/a --wait 5s --conflict-exit-code 7 --naming curator --session-timeout 20s \
             --grace 1s --lost-signal INT --doubt-signal SIGSTOP -- ls --help --wait -- x",
        );
        let options = options.unwrap();
        assert_eq!((options.servers.join(","), options.path.as_str()), ("a:1,b:2".to_owned(), "/l/a"));
        assert_eq!((options.wait, options.conflict), (Wait::AtMost(Duration::from_secs(5)), 7));
        assert_eq!((options.naming, options.session_timeout), (Naming::Curator, Duration::from_secs(20)));
        let What::Lock(work) = options.what else { panic!("not a lock") };
        assert_eq!(work.command, ["ls", "--help", "--wait", "--", "x"]);
        assert_eq!((work.grace, work.lost, work.doubt), (Duration::from_secs(1), Signal::Int, Some(Signal::Stop)));
    }

    #[test]
    fn address_has_the_form_of_the_shells() {
        let options = parse_words("lock --server a,b:2/app/x /l/a -- ls").unwrap();
        assert_eq!((options.servers.join(","), options.path.as_str()), ("a:2181,b:2".to_owned(), "/app/x/l/a"));
        let refused = parse_words("lock --server a/zookeeper /quota -- ls").err().unwrap();
        assert!(refused.starts_with("2 the root /zookeeper: allowed is the path of a znode"), "{refused}");
    }

    #[test]
    fn queue_put_takes_data_or_standard_input() {
        let put = |words: &str| match parse_words(words).unwrap().what {
            What::Put(data) => data,
            _ => panic!("not put"),
        };
        assert_eq!(put("queue put /q weld"), Some("weld".to_owned()));
        assert_eq!(put("queue put /q -- -1"), Some("-1".to_owned()));
        assert_eq!((put("queue put /q"), put("queue put /q -")), (None, None));
    }

    #[test]
    fn invalid_usage_names_the_remedy() {
        for (words, expected) in [
            ("lock", "2 lock: PATH is missing; write zoolet lock PATH [OPTIONS] -- COMMAND: run COMMAND"),
            ("lock /a", "2 lock: COMMAND is missing; write zoolet lock PATH [OPTIONS] -- COMMAND"),
            ("lock /a --", "2 lock: COMMAND is missing"),
            ("lock /a ls", "2 lock: unexpected argument 'ls'; write -- before the command: zoolet lock PATH"),
            ("lock a -- ls", "2 lock: PATH = a: allowed is the path of a znode other than / and /zookeeper; it begins"),
            ("lock / -- ls", "2 lock: PATH = /: allowed is the path of a znode other than / and /zookeeper"),
            ("lock /a --wait 5s --no-wait -- ls", "2 lock: give --wait or --no-wait, not both"),
            ("lock /a --grace 3s -- ls", "2 --grace = 3s: allowed is at most a fifth of --session-timeout, 2000 ms"),
            ("lock /a --lost-signal FOO -- ls", "2 --lost-signal = FOO: allowed is HUP, INT"),
            ("lock /a --naming java -- ls", "2 --naming = java: allowed is documented, curator, kazoo"),
            ("lock /a --conflict-exit-code 256 -- ls", "2 --conflict-exit-code = 256: allowed is a whole number"),
            ("elect /a --forever --wait 1s -- ls", "2 elect: give --wait or --forever, not both"),
            ("semaphore /a --resize -- ls", "2 semaphore: --resize needs --permits N"),
            ("semaphore /a --permits 0 -- ls", "2 --permits = 0: allowed is a whole number from 1 to 1000000"),
            ("barrier", "2 barrier: allowed is barrier close PATH, barrier open PATH, barrier wait PATH, barrier meet"),
            ("barrier meet /a", "2 barrier meet: --parties N is missing"),
            ("queue take /a --attempts 3", "2 queue take: --attempts has no effect without -- COMMAND"),
            ("queue push /a", "2 queue push: no such command; did you mean queue put?"),
        ] {
            let Err(error) = parse_words(words) else { panic!("{words:?} was accepted") };
            assert!(error.starts_with(expected), "{words:?} gave {error:?}");
        }
    }
}
