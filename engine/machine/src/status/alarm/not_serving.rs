//! Explains why this server does not serve, from its own knowledge.

use super::list;
use crate::status::Status;
use zoolet_model::ServerId;
use zoolet_zab::{Kind, Role};

/// The voters in this server's configuration, by reachability.
struct Voters {
    count: usize,
    /// Silent voters, other than this server.
    missing: Vec<ServerId>,
    /// Reachable voters whose disks do not count.
    uncounted: Vec<ServerId>,
    /// Reachable voters whose disks count, including this server.
    counted: usize,
}

impl Voters {
    fn of(status: &Status) -> Self {
        let is_own = |id: ServerId| status.id == Some(id);
        // A member that this server's file does not name has no link here either.
        let is_linked = |id: ServerId| status.peers.iter().any(|peer| peer.id == id && status.hears(peer));
        let voters = || status.members.iter().filter(|(_, kind)| *kind == Kind::Voter).map(|(id, _)| *id);
        let missing: Vec<_> = voters().filter(|&id| !is_own(id) && !is_linked(id)).collect();
        let uncounted: Vec<_> = status.uncounted.iter().copied().filter(|&id| is_linked(id)).collect();
        let is_uncounted_here = voters().any(is_own) && !status.is_counted;
        let count = voters().count();
        let counted = count - missing.len() - uncounted.len() - usize::from(is_uncounted_here);
        Self { count, missing, uncounted, counted }
    }

    fn needed(&self) -> usize {
        self.count / 2 + 1
    }
}

/// Returns the trouble and its remedy, one line each.
pub(super) fn why(status: &Status) -> (String, &'static str) {
    let voters = Voters::of(status);
    let joins = status.leader.filter(|&leader| status.peers.iter().any(|peer| peer.id == leader));
    if let (Some(leader), Some(reason)) = (joins, &status.snapshot_not_taken) {
        return (
            format!("not serving yet: cannot take the snapshot of server {}: {reason}", leader.as_u8()),
            "free space on the disk (or raise disk_bytes_max), or see the server's log for the cause; the server retries at least every 32 s",
        );
    }
    if let Some(leader) = joins {
        return (
            format!("not serving yet: this server is catching up with server {}", leader.as_u8()),
            "wait: it serves once it has caught up; a large snapshot takes minutes",
        );
    }
    if let Some(Other { leader, shown_by }) = other_leader(status).filter(|_| status.is_born) {
        let is_reached = !voters.missing.contains(&leader);
        let shown =
            if shown_by == leader { String::new() } else { format!(", which server {} follows", shown_by.as_u8()) };
        return (
            format!("not following server {}{shown}", leader.as_u8()),
            if is_reached {
                "wait some seconds; if this persists, run zoolet status on that leader: it shows why it refuses this server. Do not empty a data directory before that"
            } else {
                "this server does not reach that leader: check that UDP between the two is open both ways"
            },
        );
    }
    match (status.is_born, status.meets_born) {
        (false, true) => (
            "no leader: the ensemble exists, and this server's disk is new: it does not count until a leader has admitted it"
                .to_owned(),
            "start the other voters with their own disks: once a majority has a leader, that leader admits this server",
        ),
        (false, false) => unborn(&voters),
        (true, _) if voters.counted < voters.needed() => no_quorum(&voters),
        (true, _) => (
            format!("no leader: {} of {} voters answer and elect one", voters.counted, voters.count),
            "wait some seconds; if this persists, disks hang or the other servers do not reach each other: run zoolet status on each",
        ),
    }
}

/// A leader of other servers.
struct Other {
    leader: ServerId,
    /// Server that leads or follows it, and reported that.
    shown_by: ServerId,
}

/// Returns the leader that a reachable server reports, unless it is this server.
fn other_leader(status: &Status) -> Option<Other> {
    let is_heard = |id: ServerId| status.peers.iter().any(|peer| peer.id == id && status.hears(peer));
    let others = status.said.iter().filter(|member| is_heard(member.id)).filter_map(|member| {
        let leader = match member.health.role {
            Role::Looking => return None,
            Role::Leading => member.id,
            Role::Following(leader) | Role::Observing(leader) => leader,
        };
        (status.id != Some(leader)).then_some(Other { leader, shown_by: member.id })
    });
    // Prefer the leader's own report.
    others.min_by_key(|other| other.leader != other.shown_by)
}

/// An ensemble is born only when all its voters have met.
fn unborn(voters: &Voters) -> (String, &'static str) {
    let count = voters.count;
    if voters.missing.is_empty() {
        return (
            format!("no leader: all {count} voters of the file answer, and the ensemble is about to begin"),
            "wait some seconds; if this persists, the other servers do not reach each other: run zoolet status on each",
        );
    }
    let missing = list(voters.missing.iter().copied());
    (
        format!("no leader: the ensemble begins when all {count} voters have met once; not reached: {missing}"),
        "start them; later a majority suffices. If they run, check the key, the file, and that UDP is open both ways",
    )
}

fn no_quorum(voters: &Voters) -> (String, &'static str) {
    let Voters { count, counted, .. } = voters;
    let mut what = format!("no leader: {counted} of {count} voters answer and count, {} are needed", voters.needed());
    if !voters.missing.is_empty() {
        what += &format!("; not reached: {}", list(voters.missing.iter().copied()));
    }
    if !voters.uncounted.is_empty() {
        what += &format!("; emptied or replaced: {}", list(voters.uncounted.iter().copied()));
    }
    let remedy = if voters.missing.is_empty() {
        "start the emptied servers with their former disks: a new disk counts only once a leader with a majority has admitted it"
    } else {
        "start the servers that are not reached, with their own disks; if they run, check the key, the file, and that UDP is open both ways"
    };
    (what, remedy)
}

#[cfg(test)]
mod tests {
    use super::super::tests::healthy;
    use super::*;
    use crate::seam::health::Health;
    use crate::status::{MemberStatus, PeerStatus};

    fn id(id: u8) -> ServerId {
        ServerId::new(id).unwrap()
    }

    /// Server 1 of three voters and an observer; peers in `linked` are reachable.
    fn said(linked: &[u8], change: impl FnOnce(&mut Status)) -> String {
        let mut status = healthy();
        status.role = "";
        let peer =
            |peer: u8| PeerStatus { id: id(peer), is_linked: linked.contains(&peer), ..healthy().peers[0].clone() };
        status.peers = [2, 3, 4].map(peer).to_vec();
        change(&mut status);
        let (what, remedy) = why(&status);
        assert!(!remedy.is_empty());
        what
    }

    #[test]
    fn each_reason_for_not_serving_has_its_own_message() {
        let unborn = |status: &mut Status| status.is_born = false;
        for (said, expected) in [
            (said(&[2], unborn), "no leader: the ensemble begins when all 3 voters have met once; not reached: 3"),
            (said(&[2, 3], unborn), "no leader: all 3 voters of the file answer, and the ensemble is about to begin"),
            (
                said(&[2], |s| (s.is_born, s.meets_born) = (false, true)),
                "no leader: the ensemble exists, and this server's disk is new: it does not count until a leader has admitted it",
            ),
            (said(&[4], |_| ()), "no leader: 1 of 3 voters answer and count, 2 are needed; not reached: 2, 3"),
            (
                said(&[2], |s| s.uncounted = vec![id(2)]),
                "no leader: 1 of 3 voters answer and count, 2 are needed; not reached: 3; emptied or replaced: 2",
            ),
            (
                said(&[2, 3], |s| (s.is_counted, s.uncounted) = (false, vec![id(2)])),
                "no leader: 1 of 3 voters answer and count, 2 are needed; emptied or replaced: 2",
            ),
            (said(&[3], |_| ()), "no leader: 2 of 3 voters answer and elect one"),
            // The network failed a moment ago; links end only after 1 to 4 s.
            (
                said(&[2, 3], |s| s.peers.iter_mut().for_each(|peer| peer.heard_ms = Some(2_100))),
                "no leader: 1 of 3 voters answer and count, 2 are needed; not reached: 2, 3",
            ),
            (said(&[3], |s| s.leader = Some(id(1))), "no leader: 2 of 3 voters answer and elect one"),
            (said(&[3], |s| s.leader = Some(id(3))), "not serving yet: this server is catching up with server 3"),
            (
                said(&[3], |s| (s.leader, s.snapshot_not_taken) = (Some(id(3)), Some("no space left".to_owned()))),
                "not serving yet: cannot take the snapshot of server 3: no space left",
            ),
        ] {
            assert_eq!(said, expected);
        }
    }

    /// A leader refuses this server, while the others follow that leader.
    #[test]
    fn left_out_server_names_the_leader_it_does_not_follow() {
        let said_by =
            |peer: u8, role| MemberStatus { id: id(peer), health: Health { role, ..Health::default() }, said_ms: 0 };
        let says = |linked: &[u8], said_so: &[(u8, Role)]| {
            said(linked, |s| s.said = said_so.iter().map(|&(peer, role)| said_by(peer, role)).collect())
        };
        let elects = "no leader: 2 of 3 voters answer and elect one";
        let follows = |leader: u8| Role::Following(id(leader));
        for (linked, said_so, expected) in [
            (&[2, 3][..], &[(2, follows(3))][..], "not following server 3, which server 2 follows"),
            (&[2, 3], &[(2, follows(3)), (3, Role::Leading)], "not following server 3"),
            // Only this server's link to the leader is cut.
            (&[2], &[(2, follows(3))], "not following server 3, which server 2 follows"),
            (&[3], &[(3, Role::Looking)], elects),
            // This server is elected, but does not yet have everything that a leader needs.
            (&[2], &[(2, follows(1))], elects),
            // A report from before the link broke may be outdated.
            (&[3], &[(2, follows(3))], elects),
        ] {
            assert_eq!(says(linked, said_so), expected, "{said_so:?}");
        }
    }

    #[test]
    fn unlinked_peer_is_not_reported_as_emptied_or_replaced() {
        let said = said(&[2], |s| s.uncounted = vec![id(3)]);
        assert_eq!(said, "no leader: 2 of 3 voters answer and elect one");
    }
}
