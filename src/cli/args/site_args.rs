//! The options of commands about several servers: `status` and `keygen`.

use super::{Arguments, Command, Exit, Variables, address, time};
use crate::cli::keygen::Keygen;
use crate::cli::status::{Asked, Options};
use std::time::Duration;

pub(super) fn status(arguments: &Arguments, variables: &Variables) -> Result<Command, Exit> {
    let wait = arguments.value("wait").map(|text| time("wait", text, Duration::from_millis(1))).transpose()?;
    let asked = asked(arguments, variables)?;
    Ok(Command::Status(Options { asked, wait, json: arguments.has("json"), site: arguments.has("site") }))
}

/// Returns the servers to ask: an option counts before a variable.
fn asked(arguments: &Arguments, variables: &Variables) -> Result<Asked, Exit> {
    match (arguments.value("server"), arguments.value("config")) {
        (Some(_), Some(_)) => {
            return Err(Exit::usage("status: allowed is --server HOST:PORT, --config FILE, or neither"));
        }
        (Some(list), None) => return Ok(Asked::Servers(address("--server", list)?.servers)),
        (None, Some(file)) => return Ok(Asked::OfFile(file.into())),
        (None, None) => {}
    }
    Ok(match (variables.address()?, variables.config()?) {
        (Some(address), _) => Asked::Servers(address.servers),
        (None, Some(file)) => Asked::OfFile(file),
        (None, None) => Asked::OfThisBox,
    })
}

pub(super) fn keygen(arguments: &Arguments) -> Result<Command, Exit> {
    Ok(Command::Keygen(match (arguments.value("out"), arguments.value("data")) {
        (None, None) => Keygen::Print,
        (Some(file), None) => Keygen::Write(file.into()),
        (None, Some(data)) => Keygen::OfServer(data.into()),
        (Some(_), Some(_)) => {
            return Err(Exit::usage("keygen: allowed is --out FILE, --data DIR, or neither"));
        }
    }))
}

#[cfg(test)]
mod tests {
    use super::super::parse_in;
    use super::*;

    fn parse_words(words: &str, server: &str, config: &str) -> Result<Command, String> {
        let variables = Variables { server: server.into(), config: config.into() };
        let parsed = parse_in(lexopt::Parser::from_args(words.split(' ')), &variables);
        parsed.map_err(|exit| format!("{} {}", exit.code, exit.line))
    }

    #[test]
    fn every_option_of_status_and_keygen_is_parsed() {
        let Ok(Command::Status(options)) = parse_words("status --server a:1,b:2 --json --site", "", "") else {
            panic!("not status")
        };
        let servers = Asked::Servers(vec!["a:1".to_owned(), "b:2".to_owned()]);
        assert!(options.json && options.site && options.asked == servers && options.wait.is_none());
        let Ok(Command::Status(options)) = parse_words("status --config f.toml --wait 60s", "", "") else {
            panic!("not status")
        };
        assert_eq!((options.asked, options.wait), (Asked::OfFile("f.toml".into()), Some(Duration::from_secs(60))));
        assert!(matches!(parse_words("keygen", "", ""), Ok(Command::Keygen(Keygen::Print))));
        assert!(matches!(parse_words("keygen --out k", "", ""), Ok(Command::Keygen(Keygen::Write(_)))));
        assert!(matches!(parse_words("keygen --data d", "", ""), Ok(Command::Keygen(Keygen::OfServer(_)))));
    }

    #[test]
    fn option_overrides_variable_and_variable_overrides_default() {
        let one = |server: &str| Asked::Servers(vec![server.to_owned()]);
        for (words, server, config, expected) in [
            ("status", "", "", Asked::OfThisBox),
            ("status", "", "e.toml", Asked::OfFile("e.toml".into())),
            ("status", "e:1", "", one("e:1")),
            // As for the shell: without a port, and with a root, which status does not need.
            ("status", "e/app", "", one("e:2181")),
            ("status", "e:1", "e.toml", one("e:1")),
            ("status --server a:1", "e:1", "e.toml", one("a:1")),
            ("status --config a.toml", "e:1", "e.toml", Asked::OfFile("a.toml".into())),
            // A variable that the options make irrelevant is not read.
            ("status --server a:1", "nonsense:", "", one("a:1")),
        ] {
            let Ok(Command::Status(options)) = parse_words(words, server, config) else { panic!("{words}") };
            assert_eq!(options.asked, expected, "{words}, {server}, {config}");
        }
    }

    #[test]
    fn invalid_usage_names_option_value_and_allowed_values() {
        for (words, server, expected) in [
            ("status --frob", "", "2 status: invalid option '--frob'; see zoolet status --help"),
            ("status --server x:", "", "2 --server = x:: allowed is HOST:PORT"),
            ("status --server a:1/x/", "", "2 --server = a:1/x/: the root /x/ is not the path of a znode"),
            (
                "status --wait 60",
                "",
                "2 --wait = 60: allowed is a time from 1 ms to 24 h, such as 10s; the unit is missing",
            ),
            (
                "status --server a:1 --config f",
                "",
                "2 status: allowed is --server HOST:PORT, --config FILE, or neither",
            ),
            ("status x", "", "2 status: unexpected argument 'x'; see zoolet status --help"),
            ("status", ",", "2 ZOOLET_SERVER = ,: allowed is HOST:PORT, or several separated by commas"),
            ("keygen --out a --data b", "", "2 keygen: allowed is --out FILE, --data DIR, or neither"),
            ("keygen --server b", "", "2 keygen: invalid option '--server'; did you mean --data?"),
        ] {
            let Err(error) = parse_words(words, server, "") else { panic!("{words:?} was accepted") };
            assert!(error.starts_with(expected), "{words:?} gave {error:?}");
        }
    }
}
