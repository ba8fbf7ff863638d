//! The servers of a command and the root of its paths: `HOST:PORT,HOST:PORT/root`.

use zoolet_model::path::is_valid;

/// Port of a server that is named without one.
const PORT: u16 = 2181;

/// Where a command connects.
#[derive(Clone, PartialEq, Eq, Debug)]
#[cfg_attr(not(feature = "tools"), allow(dead_code, reason = "status needs the servers alone"))]
pub(super) struct Address {
    /// The text as the user wrote it.
    pub(super) text: String,
    /// Each as `HOST:PORT`.
    pub(super) servers: Vec<String>,
    /// The znode that is `/` for this command; empty for the server's own root.
    pub(super) root: String,
}

impl Address {
    /// Parses the value of zkCli's option -server.
    ///
    /// # Errors
    /// A server or the root is wrong; the text names one of several servers.
    pub(super) fn parse(text: &str) -> Result<Self, String> {
        let (list, root) = text.find('/').map_or((text, ""), |slash| text.split_at(slash));
        if root.len() > 1 && !is_valid(root) {
            return Err(format!("the root {root} is not the path of a znode"));
        }
        // A znode's name may have a comma. Here it would rather be a second server, and two boxes that
        // name the servers in another order would have different roots.
        if root.contains(',') {
            return Err(format!("the root {root} has a comma; write HOST:PORT,HOST:PORT/ROOT, with the root once"));
        }
        let root = if root == "/" { "" } else { root };
        let servers: Result<Vec<String>, String> =
            list.split(',').map(str::trim).filter(|server| !server.is_empty()).map(with_port).collect();
        let servers = servers.map_err(|server| {
            let which = if server == list { String::new() } else { format!("{server}: ") };
            format!("{which}allowed is HOST:PORT, with a port from 1 to 65535")
        })?;
        if servers.is_empty() {
            return Err("allowed is HOST:PORT, or several separated by commas".to_owned());
        }
        Ok(Self { text: text.to_owned(), servers, root: root.to_owned() })
    }
}

/// Returns the server with its port, or as an error the server that has none.
fn with_port(server: &str) -> Result<String, String> {
    // An IPv6 address has its colons in brackets.
    let behind = server.rfind(']').map_or(server, |end| &server[end..]);
    match behind.rsplit_once(':') {
        None => Ok(format!("{server}:{PORT}")),
        Some((_, port)) if port.parse::<u16>().is_ok_and(|port| port > 0) && !server.starts_with(':') => {
            Ok(server.to_owned())
        }
        Some(_) => Err(server.to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn address_has_servers_with_ports_and_a_root() {
        let parsed = |text| Address::parse(text).map(|address| (address.servers.join(" "), address.root));
        for (text, servers, root) in [
            ("a:1", "a:1", ""),
            ("a", "a:2181", ""),
            ("a:1,b,[::1]:3/app/x", "a:1 b:2181 [::1]:3", "/app/x"),
            ("[::1]", "[::1]:2181", ""),
            ("a:1/", "a:1", ""),
        ] {
            assert_eq!(parsed(text), Ok((servers.to_owned(), root.to_owned())), "{text}");
        }
        for wrong in [
            "",
            "/a",
            "a:0",
            "a:x",
            ":5",
            "a:1/x/",
            "a:1//x",
            "a:65536",
            "a:1/x,b:2/x",
            "a/x,b/x",
            "a/x,b",
            "[::1]/x,[::2]/x",
        ] {
            assert!(parsed(wrong).is_err(), "{wrong}");
        }
    }
}
