//! The text of `/zookeeper/config`.

/// Returns the version and the addresses for clients, as `config -c` prints them.
///
/// A member without an address for clients is an empty item, as in zkCli.
pub(super) fn clients(text: &str) -> String {
    let version = text.lines().find_map(|line| line.strip_prefix("version=")).unwrap_or_default();
    let members = text.lines().filter(|line| line.starts_with("server."));
    let clients: Vec<&str> = members.map(|line| line.split_once(';').map_or("", |(_, client)| client)).collect();
    if version.is_empty() && clients.is_empty() { String::new() } else { format!("{version} {}", clients.join(",")) }
}

#[cfg(test)]
mod tests {
    #[test]
    fn clients_of_a_configuration_are_listed_behind_its_version() {
        let text = "server.1=a:1:2:participant;0.0.0.0:3\nserver.2=b:1:2:observer\nversion=1f";
        assert_eq!(super::clients(text), "1f 0.0.0.0:3,");
        assert_eq!(super::clients(""), "");
    }
}
