//! The prompt: zkCli's, with the role of the server.

use super::super::client::State;

/// The colour of the prompt: bold.
pub(super) const COLOUR: &str = "1";

/// Returns the prompt. `host` has the root of the paths, as the user wrote it.
pub(super) fn text(host: &str, state: State, role: &str, number: usize) -> String {
    let role = if role.is_empty() { String::new() } else { format!(" {role}") };
    format!("[zk: {host}({}){role} {number}] ", state.name())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn prompt_is_zkclis_with_the_role() {
        assert_eq!(text("a:1/app", State::Connected, "", 3), "[zk: a:1/app(CONNECTED) 3] ");
        assert_eq!(text("a:1", State::ConnectedReadOnly, "follower", 0), "[zk: a:1(CONNECTEDREADONLY) follower 0] ");
    }
}
