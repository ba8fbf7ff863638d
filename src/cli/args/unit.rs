//! The flags of `unit`.

use super::super::unit::{Init, Options, STATE};
use super::{Command, Exit, next, value};
use lexopt::prelude::{Long, Short, Value};
use zoolet::config::DEFAULT_PROFILE;

const ALLOWED: &str = "unit: allowed is unit systemd, unit procd";

pub(super) fn unit(parser: &mut lexopt::Parser) -> Result<Command, Exit> {
    let init = match parser.next().map_err(Exit::usage)? {
        Some(Value(init)) if init == "systemd" => Init::Systemd,
        Some(Value(init)) if init == "procd" => Init::Procd,
        Some(Long("help") | Short('h')) => return Ok(Command::Help),
        _ => return Err(Exit::usage(ALLOWED)),
    };
    let (config, data) = ("/etc/zoolet/zoolet.toml".to_owned(), STATE.to_owned());
    let mut options = Options { init, config, binary: None, data, profile: DEFAULT_PROFILE.to_owned() };
    while let Some(argument) = next(parser, "unit")? {
        match argument {
            Long("config") => options.config = value(parser)?,
            Long("binary") => options.binary = Some(value(parser)?),
            Long("data") => options.data = value(parser)?,
            Long("profile") => options.profile = value(parser)?,
            Long("help") | Short('h') => return Ok(Command::Help),
            other => return Err(Exit::usage(format!("unit: {}; see zoolet --help", other.unexpected()))),
        }
    }
    Ok(Command::Unit(options))
}
