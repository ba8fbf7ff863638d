//! The flags of `ensemble`.

use super::tools::number;
use super::{Command, Exit, Tool, next, value};
use crate::cli::ensemble;
use lexopt::prelude::{Long, Short};

pub(super) fn ensemble(parser: &mut lexopt::Parser) -> Result<Command, Exit> {
    let mut options = ensemble::Options::default();
    while let Some(argument) = next(parser, "ensemble")? {
        match argument {
            Long("servers") => options.voters = Some(number("servers", &value(parser)?, 1..=16)?),
            Long("observers") => options.observers = Some(number("observers", &value(parser)?, 0..=15)?),
            Long("base-port") => {
                let port = number("base-port", &value(parser)?, 1..=ensemble::BASE_PORT_MAX.into())?;
                options.base_port = Some(port);
            }
            Long("data") => options.data = value(parser)?.into(),
            Long("help") | Short('h') => return Ok(Command::Help),
            other => return Err(Exit::usage(format!("ensemble: {}; see zoolet --help", other.unexpected()))),
        }
    }
    Ok(Command::Tool(Tool::Ensemble(options)))
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
        let words = "ensemble --servers 5 --observers 1 --base-port 3000 --data d";
        let Ok(Command::Tool(Tool::Ensemble(options))) = parse_words(words) else { panic!("not ensemble") };
        assert_eq!((options.voters, options.observers, options.base_port), (Some(5), Some(1), Some(3000)));
        assert_eq!(options.data, std::path::Path::new("d"));
    }

    #[test]
    fn bad_usage_names_the_option_the_value_and_what_is_allowed() {
        for (words, expected) in [
            ("ensemble --servers 0", "2 --servers = 0: allowed is a whole number from 1 to 16"),
            ("ensemble --base-port 65000", "2 --base-port = 65000: allowed is a whole number from 1 to 64812"),
            ("ensemble --frob", "2 ensemble: invalid option '--frob'"),
        ] {
            let Err(error) = parse_words(words) else { panic!("{words:?} was accepted") };
            assert!(error.starts_with(expected), "{words:?} gave {error:?}");
        }
    }
}
