//! The options of `profile`.

use super::{Arguments, Exit};
use crate::cli::profile_command::Chosen;
use zoolet::config::Network;

pub(super) fn chosen(arguments: &Arguments, is_json: bool) -> Result<Chosen, Exit> {
    let network = arguments.value("network").map(network).transpose()?;
    Ok(Chosen { name: arguments.argument().to_owned(), network, is_json })
}

pub(super) fn network(text: &str) -> Result<Network, Exit> {
    let known = Network::ALL.into_iter().find(|network| network.name() == text);
    known.ok_or_else(|| Exit::usage(format!("--network = {text}: allowed is lan, wifi or metered")))
}
