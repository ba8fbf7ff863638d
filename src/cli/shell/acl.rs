//! Access control lists as words: `scheme:id:perms[,scheme:id:perms..]`.

use super::client::{Session, unexpected};
use super::failure::{Failure, code};
use std::net::Ipv4Addr;
use zoolet_model::{AuthId, Perms, Reply, Request, RequestedAcl};

/// Parses an ACL; entries of another form are left out, as in zkCli.
///
/// Returns the entries and a complaint for each that was left out.
///
/// # Errors
/// A permission has an unknown letter.
pub(super) fn parse(text: &str) -> Result<(Vec<RequestedAcl>, Vec<String>), Failure> {
    let (mut entries, mut complaints) = (Vec::new(), Vec::new());
    for entry in text.split(',') {
        let Some((scheme, id, perms)) = parts(entry) else {
            complaints.push(format!("{entry} does not have the form scheme:id:perm"));
            continue;
        };
        let perms = permissions(perms)?;
        entries.push(RequestedAcl { perms, scheme: Some(scheme.into()), id: Some(id.into()) });
    }
    Ok((entries, complaints))
}

/// The scheme ends at the first colon, and the permissions begin behind the last.
fn parts(entry: &str) -> Option<(&str, &str, &str)> {
    let (scheme, rest) = entry.split_once(':')?;
    let (id, perms) = rest.rsplit_once(':')?;
    Some((scheme, id, perms))
}

/// Parses the letters of permissions.
///
/// # Errors
/// A letter is unknown.
pub(super) fn permissions(letters: &str) -> Result<Perms, Failure> {
    letters.chars().try_fold(Perms(0), |perms, letter| {
        let one = match letter {
            'r' => Perms::READ,
            'w' => Perms::WRITE,
            'c' => Perms::CREATE,
            'd' => Perms::DELETE,
            'a' => Perms::ADMIN,
            unknown => return Err(Failure::Text(format!("Unknown perm type: {unknown}"))),
        };
        Ok(perms.union(one))
    })
}

/// Returns an entry that lets this session do all with a znode, and as few other clients as possible.
///
/// # Errors
/// The request for the session's identities fails. A lost connection tells nothing about the server,
/// so it is no reason for an entry that lets in every client.
pub(super) fn own_entry(session: &Session) -> Result<RequestedAcl, Failure> {
    // These need no answer of a server, which may be too old for the request.
    if session.has_identity()? {
        return Ok(entry("auth", ""));
    }
    let answer = match session.ask(Request::WhoAmI) {
        Err(failure) if failure.is(code::CONNECTION_LOSS) => session.ask(Request::WhoAmI),
        answer => answer,
    };
    match answer {
        Ok(Reply::Ids(identities)) => Ok(entry_of(&identities)),
        Ok(_) => Err(unexpected()),
        // A server older than 3.7 does not know the request.
        Err(failure) if failure.is(code::UNIMPLEMENTED) => Ok(entry_of(&[])),
        Err(failure) => Err(failure.because("the server has not told the identities of this session")),
    }
}

/// Returns an entry with all permissions.
fn entry(scheme: &str, id: &str) -> RequestedAcl {
    RequestedAcl { perms: Perms::ALL, scheme: Some(scheme.into()), id: Some(id.into()) }
}

/// The identities that the session has proven; without one its address, and without that any client.
fn entry_of(identities: &[AuthId]) -> RequestedAcl {
    let is_proven = |identity: &AuthId| !matches!(&*identity.scheme, "ip" | "super" | "world");
    // Servers before 3.9 accept only IPv4 addresses in an ACL.
    let has_address = |identity: &&AuthId| &*identity.scheme == "ip" && identity.id.parse::<Ipv4Addr>().is_ok();
    if identities.iter().any(is_proven) {
        return entry("auth", "");
    }
    identities.iter().find(has_address).map_or_else(|| entry("world", "anyone"), |identity| entry("ip", &identity.id))
}

/// Returns the refusal of an ACL without entries, as ZooKeeper's client has it.
pub(super) fn empty() -> Failure {
    Failure::Refused { code: code::INVALID_ACL, path: None, why: String::new() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn entries_are_split_at_the_first_and_the_last_colon() {
        let (entries, complaints) = parse("world:anyone:rw,ip:::1:cda,nonsense").unwrap();
        let shown: Vec<_> = entries
            .iter()
            .map(|entry| (entry.scheme.as_deref().unwrap(), entry.id.as_deref().unwrap(), entry.perms.0))
            .collect();
        assert_eq!(shown, [("world", "anyone", 3), ("ip", "::1", 28)]);
        assert_eq!(complaints, ["nonsense does not have the form scheme:id:perm"]);
        assert_eq!(parse("a:b:q").unwrap_err().message(), "Unknown perm type: q");
        assert_eq!(parse("world:anyone:").unwrap().0[0].perms, Perms(0));
    }

    #[test]
    fn own_entry_admits_as_few_clients_as_the_identities_allow() {
        let entry = |identities: &[(&str, &str)]| {
            let identity = |(scheme, id): &(&str, &str)| AuthId { scheme: (*scheme).into(), id: (*id).into() };
            let entry = entry_of(&identities.iter().map(identity).collect::<Vec<_>>());
            format!("{}:{}", entry.scheme.unwrap(), entry.id.unwrap())
        };
        assert_eq!(entry(&[("ip", "10.0.0.1"), ("digest", "me")]), "auth:");
        assert_eq!(entry(&[("ip", "10.0.0.1")]), "ip:10.0.0.1");
        assert_eq!(entry(&[("ip", "fe80::1")]), "world:anyone");
        assert_eq!(entry(&[]), "world:anyone");
    }
}
