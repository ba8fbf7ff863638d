//! The flags of commands about several servers: `status` and `keygen`.

use super::{Command, Exit, next, servers, time, value};
use crate::cli::{keygen::Keygen, status};
use lexopt::prelude::{Long, Short};
use std::time::Duration;

pub(super) fn status(parser: &mut lexopt::Parser) -> Result<Command, Exit> {
    let (mut options, mut are_named) = (status::Options::default(), false);
    while let Some(argument) = next(parser, "status")? {
        match argument {
            Long("server") => (options.servers, are_named) = (servers(&value(parser)?)?, true),
            Long("config") => options.config = Some(value(parser)?.into()),
            Long("wait") => options.wait = Some(time("wait", &value(parser)?, Duration::from_millis(1))?),
            Long("json") => options.json = true,
            Long("site") => options.site = true,
            Long("help") | Short('h') => return Ok(Command::Help),
            other => return Err(Exit::usage(format!("status: {}; see zoolet --help", other.unexpected()))),
        }
    }
    if are_named && options.config.is_some() {
        return Err(Exit::usage("status: allowed is --server HOST:PORT, --config FILE, or neither"));
    }
    Ok(Command::Status(options))
}

pub(super) fn keygen(parser: &mut lexopt::Parser) -> Result<Command, Exit> {
    let mut what = Keygen::Print;
    let mut given = 0;
    while let Some(argument) = next(parser, "keygen")? {
        what = match argument {
            Long("out") => Keygen::Write(value(parser)?.into()),
            Long("server") => Keygen::OfServer(value(parser)?.into()),
            Long("help") | Short('h') => return Ok(Command::Help),
            other => return Err(Exit::usage(format!("keygen: {}; see zoolet --help", other.unexpected()))),
        };
        given += 1;
    }
    if given > 1 {
        return Err(Exit::usage("keygen: allowed is --out FILE, --server DATA, or neither"));
    }
    Ok(Command::Keygen(what))
}

#[cfg(test)]
mod tests {
    use super::super::parse;
    use super::*;

    fn parse_words(words: &str) -> Result<Command, String> {
        let parsed = parse(lexopt::Parser::from_args(words.split(' ')));
        parsed.map_err(|exit| format!("{} {}", exit.code, exit.line))
    }

    #[test]
    fn every_flag_arrives() {
        let Ok(Command::Status(options)) = parse_words("status --server a:1,b:2 --json --site") else {
            panic!("not status")
        };
        assert!(options.json && options.site && options.servers == ["a:1", "b:2"] && options.wait.is_none());
        let Ok(Command::Status(options)) = parse_words("status --config f.toml --wait 60s") else {
            panic!("not status")
        };
        assert_eq!((options.config, options.wait), (Some("f.toml".into()), Some(Duration::from_secs(60))));
        assert!(matches!(parse_words("keygen"), Ok(Command::Keygen(Keygen::Print))));
        assert!(matches!(parse_words("keygen --out k"), Ok(Command::Keygen(Keygen::Write(_)))));
        assert!(matches!(parse_words("keygen --server d"), Ok(Command::Keygen(Keygen::OfServer(_)))));
    }

    #[test]
    fn bad_usage_names_the_option_the_value_and_what_is_allowed() {
        for (words, expected) in [
            ("status --frob", "2 status: invalid option '--frob'"),
            ("status --server x", "2 --server = x: allowed is HOST:PORT"),
            ("status --wait 60", "2 --wait = 60: allowed is a time like 500ms, 10s or 2m, from 1ms to 1440m"),
            ("status --server a:1 --config f", "2 status: allowed is --server HOST:PORT, --config FILE, or neither"),
            ("status x", "2 status: unexpected argument \"x\""),
            ("keygen --out a --server b", "2 keygen: allowed is --out FILE, --server DATA, or neither"),
        ] {
            let Err(error) = parse_words(words) else { panic!("{words:?} was accepted") };
            assert!(error.starts_with(expected), "{words:?} gave {error:?}");
        }
    }
}
