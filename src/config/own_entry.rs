//! Finds this server among those of a file that is the same on every box.

use super::{ConfigError, Server, address};
use std::net::{IpAddr, UdpSocket};
use std::path::Path;
use zoolet_transport::peer::trust::Identity;

/// Returns the member with this data directory's key, or else the one on this machine.
///
/// A member is on this machine if one of its hosts is the machine's name or one of its addresses.
///
/// # Errors
/// No member matches, or several do. The message says how to decide.
pub(super) fn find(members: &[Server], data: &Path) -> Result<u8, ConfigError> {
    match by_key(members, data)? {
        Some(id) => Ok(id),
        None => by_host(members),
    }
}

/// Returns the member with a pinned key that is the key of this data directory.
///
/// Creates no key: a key that does not exist yet cannot be pinned in a file.
fn by_key(members: &[Server], data: &Path) -> Result<Option<u8>, ConfigError> {
    if members.iter().all(|member| member.key.is_none()) || !data.join("server.key").exists() {
        return Ok(None);
    }
    let identity = Identity::open(data).map_err(|error| ConfigError::new(error.to_string()))?;
    let own = identity.public_key().to_string();
    Ok(members.iter().find(|member| member.key.as_ref() == Some(&own)).map(|member| member.id))
}

fn by_host(members: &[Server]) -> Result<u8, ConfigError> {
    let name = host_name();
    let is_here = |member: &&Server| member.addresses.iter().any(|text| is_here(text, &name));
    let here: Vec<u8> = members.iter().filter(is_here).map(|member| member.id).collect();
    match here.as_slice() {
        [one] => Ok(*one),
        [] => Err(ConfigError::new(format!(
            "which server is this? No host in the file is this machine's name, {name:?}, or address; give --id N, one of {}",
            listed(members.iter().map(|member| member.id))
        ))),
        several => {
            let several = listed(several.iter().copied());
            let words = format!("which server is this? Servers {several} are all on this machine; give --id N");
            Err(ConfigError { servers_here: here, ..ConfigError::new(words) })
        }
    }
}

fn listed(ids: impl Iterator<Item = u8>) -> String {
    ids.map(|id| id.to_string()).collect::<Vec<_>>().join(", ")
}

/// Returns the name that this machine has for itself.
pub(super) fn host_name() -> String {
    rustix::system::uname().nodename().to_string_lossy().into_owned()
}

fn is_here(text: &str, name: &str) -> bool {
    let Some((host, _)) = address::split(text) else { return false };
    match host.parse::<IpAddr>() {
        // Only an address of this machine can be bound. Any port will do: the one for links may be
        // in use.
        Ok(ip) => !ip.is_unspecified() && UdpSocket::bind((ip, 0)).is_ok(),
        Err(_) => is_named(host, name),
    }
}

/// Returns whether a file's host is the machine with this name.
///
/// A file may omit the domain, and a machine may not know its domain.
fn is_named(host: &str, name: &str) -> bool {
    let short = |name: &str| name.split('.').next().unwrap_or_default().to_ascii_lowercase();
    let is_short = |name: &str| !name.contains('.');
    host.eq_ignore_ascii_case(name)
        || host.eq_ignore_ascii_case("localhost")
        || ((is_short(host) || is_short(name)) && short(host) == short(name))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(hosts: &[&str]) -> Result<u8, String> {
        let members: Vec<_> = (1..).zip(hosts).map(|(id, host)| Server::new(id, host)).collect();
        find(&members, Path::new("/nowhere")).map_err(|error| error.to_string())
    }

    #[test]
    fn server_finds_its_own_entry_by_its_pinned_key() {
        let data = std::env::temp_dir().join(format!("zoolet-own-entry-{}", std::process::id()));
        std::fs::create_dir_all(&data).unwrap();
        let key = |directory: &Path| Identity::open(directory).unwrap().public_key().to_string();
        let mut members: Vec<_> = (1..=3).map(|id| Server::new(id, "127.0.0.1")).collect();
        members[0].key = Some("zk1somebody".to_owned());
        // Without a key in the directory, hosts decide, and no key is created.
        assert!(find(&members, &data).is_err() && !data.join("server.key").exists());
        members[2].key = Some(key(&data));
        assert_eq!(find(&members, &data).unwrap(), 3);
        std::fs::remove_dir_all(&data).unwrap();
    }

    #[test]
    fn host_names_match_if_a_missing_domain_is_the_only_difference() {
        for (host, name, same) in [
            ("gw-a", "gw-a", true),
            ("GW-A", "gw-a", true),
            ("gw-a.plant", "gw-a", true),
            ("gw-a", "gw-a.plant", true),
            ("gw-a.plant", "gw-a.yard", false),
            ("gw-a", "gw-ab", false),
            ("gw-a", "", false),
        ] {
            assert_eq!(is_named(host, name), same, "{host} {name}");
        }
    }

    #[test]
    fn server_finds_its_own_entry_by_host_name_or_address() {
        // No machine has an address in 203.0.113.0/24 (RFC 5737) or a name in .invalid (RFC 2606).
        assert_eq!(found(&["a.invalid", &host_name(), "b.invalid"]), Ok(2));
        assert_eq!(found(&["203.0.113.1", "203.0.113.2", "127.0.0.1:2890"]), Ok(3));
    }

    #[test]
    fn no_or_several_matching_entries_ask_for_the_id_option() {
        let nobody = found(&["a.invalid", "203.0.113.2"]).unwrap_err();
        assert!(nobody.contains("give --id N, one of 1, 2"), "{nobody}");
        let members = [Server::new(1, "127.0.0.1:1"), Server::new(2, "a.invalid"), Server::new(3, "127.0.0.1:2")];
        assert_eq!(find(&members, Path::new("/nowhere")).unwrap_err().servers_here(), [1, 3]);
        let all = found(&["127.0.0.1:1", "127.0.0.1:2"]).unwrap_err();
        assert!(all.contains("Servers 1, 2 are all on this machine; give --id N"), "{all}");
    }
}
