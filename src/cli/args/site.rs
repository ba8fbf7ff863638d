//! The flags of what is about several servers: `status`, `keygen`.

use super::{Command, Exit, next, servers, value};
use crate::cli::{keygen::Keygen, status};
use lexopt::prelude::{Long, Short};

pub(super) fn status(parser: &mut lexopt::Parser) -> Result<Command, Exit> {
    let mut options = status::Options::default();
    while let Some(argument) = next(parser, "status")? {
        match argument {
            Long("server") => options.servers = servers(&value(parser)?)?,
            Long("json") => options.json = true,
            Long("help") | Short('h') => return Ok(Command::Help),
            other => return Err(Exit::usage(format!("status: {}; see zoolet --help", other.unexpected()))),
        }
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
        let Ok(Command::Status(options)) = parse_words("status --server a:1,b:2 --json") else { panic!("not status") };
        assert!(options.json && options.servers == ["a:1", "b:2"]);
        assert!(matches!(parse_words("keygen"), Ok(Command::Keygen(Keygen::Print))));
        assert!(matches!(parse_words("keygen --out k"), Ok(Command::Keygen(Keygen::Write(_)))));
        assert!(matches!(parse_words("keygen --server d"), Ok(Command::Keygen(Keygen::OfServer(_)))));
    }

    #[test]
    fn bad_usage_names_the_option_the_value_and_what_is_allowed() {
        for (words, expected) in [
            ("status --frob", "2 status: invalid option '--frob'"),
            ("status --server x", "2 --server = x: allowed is HOST:PORT"),
            ("status x", "2 status: unexpected argument \"x\""),
            ("keygen --out a --server b", "2 keygen: allowed is --out FILE, --server DATA, or neither"),
        ] {
            let Err(error) = parse_words(words) else { panic!("{words:?} was accepted") };
            assert!(error.starts_with(expected), "{words:?} gave {error:?}");
        }
    }
}
