//! `host:port` as text. A name is resolved when it is dialled, not when it is read.

use super::ensemble::DEFAULT_PEER_PORT;
use std::net::{IpAddr, Ipv4Addr};

/// Returns the host, without brackets of an IPv6 address, and the port.
///
/// `None` if `text` is not a valid `host:port`; port 0 is not valid.
pub(super) fn split(text: &str) -> Option<(&str, u16)> {
    let (host, port) = text.rsplit_once(':')?;
    let port = port.parse().ok().filter(|&port: &u16| port != 0)?;
    Some((bare_host(host)?, port))
}

/// Returns `host:port`, with the port for links between servers if `text` has none.
///
/// `None` if `text` is malformed.
pub(super) fn with_port(text: &str) -> Option<String> {
    if split(text).is_some() {
        return Some(text.to_owned());
    }
    match text.parse::<IpAddr>() {
        Ok(IpAddr::V6(bare)) => return Some(format!("[{bare}]:{DEFAULT_PEER_PORT}")),
        Ok(IpAddr::V4(_)) => {}
        Err(_) if !text.starts_with('[') && text.contains(':') => return None,
        Err(_) => {}
    }
    bare_host(text).map(|_| format!("{text}:{DEFAULT_PEER_PORT}"))
}

/// Returns a name, an IPv4 address, or an IPv6 address without its brackets; `None` if malformed.
fn bare_host(host: &str) -> Option<&str> {
    if let Some(inner) = host.strip_prefix('[') {
        let inner = inner.strip_suffix(']')?;
        return matches!(inner.parse(), Ok(IpAddr::V6(_))).then_some(inner);
    }
    let is_name = |byte: u8| byte.is_ascii_alphanumeric() || b"-_.".contains(&byte);
    (!host.is_empty() && host.len() <= 253 && host.bytes().all(is_name)).then_some(host)
}

/// Returns whether the host of `host:port` is a loopback address or `localhost`.
pub(super) fn is_loopback(text: &str) -> bool {
    loopback(text).is_some()
}

/// Returns the loopback address that the host of `host:port` stands for.
pub(super) fn loopback(text: &str) -> Option<IpAddr> {
    let (host, _) = split(text)?;
    if host.eq_ignore_ascii_case("localhost") {
        return Some(Ipv4Addr::LOCALHOST.into());
    }
    host.parse().ok().filter(IpAddr::is_loopback)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hosts_are_names_or_addresses_and_ports_are_not_0() {
        for (text, parts) in [
            ("gw-a:2888", Some(("gw-a", 2888))),
            ("10.0.0.1:1", Some(("10.0.0.1", 1))),
            ("[fd00::1]:2", Some(("fd00::1", 2))),
            ("fd00::1:2", None),
            ("[fd00::1]", None),
            ("[gw-a]:1", None),
            ("gw-a", None),
            ("gw-a:0", None),
            ("gw-a:65536", None),
            (":2888", None),
            ("gw a:1", None),
            ("gw/a:1", None),
        ] {
            assert_eq!(split(text), parts, "{text}");
        }
    }

    #[test]
    fn address_without_a_port_gets_the_link_port() {
        for (text, whole) in [
            ("gw-a", Some("gw-a:2888")),
            ("gw-a:7", Some("gw-a:7")),
            ("10.0.0.1", Some("10.0.0.1:2888")),
            ("fd00::1", Some("[fd00::1]:2888")),
            ("[fd00::1]", Some("[fd00::1]:2888")),
            ("gw-a:0", None),
            ("gw-a:", None),
            ("", None),
        ] {
            assert_eq!(with_port(text).as_deref(), whole, "{text}");
        }
    }
}
