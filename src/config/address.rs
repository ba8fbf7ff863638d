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

/// Returns whether two `host:port` are the same, however they are written.
///
/// Names are not resolved. Malformed text is compared as it is.
pub(super) fn is_same(one: &str, other: &str) -> bool {
    let (Some((one_host, one_port)), Some((other_host, other_port))) = (split(one), split(other)) else {
        return one == other;
    };
    let is_same_host = match (one_host.parse::<IpAddr>(), other_host.parse::<IpAddr>()) {
        (Ok(one), Ok(other)) => one.to_canonical() == other.to_canonical(),
        (Err(_), Err(_)) => {
            let bare = |name: &str| name.strip_suffix('.').unwrap_or(name).to_ascii_lowercase();
            bare(one_host) == bare(other_host)
        }
        _ => false,
    };
    is_same_host && one_port == other_port
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
    fn addresses_are_compared_as_hosts_and_not_as_text() {
        for (one, other) in [
            ("gw-b:2181", "GW-B:2181"),
            ("gw-b:2181", "gw-b.:2181"),
            ("[2001:DB8::2]:2181", "[2001:db8:0::2]:2181"),
            ("[::ffff:10.0.0.1]:2181", "10.0.0.1:2181"),
        ] {
            assert!(is_same(one, other), "{one} {other}");
        }
        for (one, other) in [("gw-b:2181", "gw-c:2181"), ("gw-b:2181", "gw-b:2182"), ("10.0.0.1:1", "gw-b:1")] {
            assert!(!is_same(one, other), "{one} {other}");
        }
    }

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
