//! The options of `unit`.

use super::{Arguments, Command};
use crate::cli::DEFAULT_FILE;
use crate::cli::unit::{Init, Options, STATE};
use zoolet::config::DEFAULT_PROFILE;

pub(super) fn unit(arguments: &Arguments, init: Init) -> Command {
    let text = |option, default: &str| arguments.value(option).unwrap_or(default).to_owned();
    Command::Unit(Options {
        init,
        config: text("config", DEFAULT_FILE),
        binary: arguments.value("binary").map(str::to_owned),
        data: text("data", STATE),
        profile: text("profile", DEFAULT_PROFILE),
    })
}
