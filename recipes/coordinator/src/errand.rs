//! Cleanups that a session runs for a caller that no longer waits.
//!
//! A dropped lock is released, and a cancelled attempt leaves no znode behind. In both cases no
//! caller is left to wait for the answer or to retry, so the session does both. It sends
//! [`Errand::request`], passes the answer to [`Errand::answered`], and sends again any request that
//! a lost connection left unanswered.

use crate::Guid;
use zoolet_model::path::child;
use zoolet_model::{ErrorCode, Reply, Request, SessionId, Text, WriteOp, first_failure};

/// The remaining work of an errand.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Left {
    /// The errand is done, or cannot be done.
    Nothing,
    /// Send this errand's request at once.
    Now(Errand),
    /// Send this errand's request after a pause: the server could not carry out the last one.
    Later(Errand),
}

/// A cleanup, as a state machine without IO.
///
/// Its requests may be carried out any number of times.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Errand(Step);

#[derive(Clone, PartialEq, Eq, Debug)]
enum Step {
    /// Delete this znode, which no participant can have created again.
    Delete(Text),
    /// Delete this znode and its companion. Once the znode is gone, others may use the companion's
    /// path.
    DeleteBoth { path: Text, companion: Text },
    /// Send a write and await its answer. Any request still in flight on an old connection is
    /// carried out before that write, or never.
    Drain(Sought),
    /// Look whether the znode exists.
    Look(Sought),
    /// The znode exists: delete it.
    DeleteFound(Sought, Text),
    /// As [`Step::Drain`].
    DrainClaim(Claim),
    /// Read how often the path was claimed. This precedes the look at the claim: every claim made
    /// from here on changes that number.
    LookAtTurn(Claim),
    /// Look whether the claim is this errand's.
    LookAtClaim(Claim, Turn),
    /// The claim is this errand's: delete it, unless the path was claimed again since.
    DeleteClaim(Claim, Turn),
}

/// A znode that others may create too once it is gone.
///
/// Each claimant sets the data of `turns` in the same transaction, so the version of `turns` tells
/// one claim from the next. The claims' own versions are all alike.
#[derive(Clone, PartialEq, Eq, Debug)]
struct Claim {
    path: Text,
    turns: Text,
    /// The data of the claim.
    guid: Guid,
}

/// The version of a claim's `turns`; `None` if that znode does not exist, so that no claim can be
/// made.
type Turn = Option<i32>;

impl Claim {
    fn is_own(&self, answer: &Result<Reply, ErrorCode>) -> bool {
        matches!(answer, Ok(Reply::Data(Some(data), _)) if says(data, self.guid))
    }
}

/// A request that is the same for many errands.
///
/// Its answer serves every errand that had begun before the request was sent.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct Shared {
    parent: Text,
    is_list: bool,
}

/// The znodes that an errand looks for before it deletes them.
#[derive(Clone, PartialEq, Eq, Debug)]
enum Sought {
    /// Every child whose name begins with this GUID.
    Named { parent: Text, guid: Guid },
    /// This znode, if its data is this GUID.
    Saying { path: Text, guid: Guid },
    /// This znode, if this session owns it and it was created with this zxid, where that is known.
    Owned { path: Text, owner: SessionId, czxid: Option<i64> },
}

impl Sought {
    const fn path(&self) -> &Text {
        match self {
            Self::Named { parent: path, .. } | Self::Saying { path, .. } | Self::Owned { path, .. } => path,
        }
    }

    fn look(&self) -> Request {
        let (path, watch) = (self.path().clone(), false);
        match self {
            Self::Named { .. } => Request::GetChildren { path, watch, with_stat: false },
            Self::Saying { .. } => Request::GetData { path, watch },
            Self::Owned { .. } => Request::Exists { path, watch },
        }
    }

    /// Returns the path to delete, if the answer shows such a znode.
    fn found(&self, answer: &Result<Reply, ErrorCode>) -> Option<Text> {
        match (self, answer) {
            (Self::Named { parent, guid }, Ok(Reply::Names(names))) => {
                names.iter().find(|name| Guid::of_name(name) == Some(*guid)).map(|name| child(parent, name))
            }
            (Self::Saying { path, guid }, Ok(Reply::Data(Some(data), _))) => says(data, *guid).then(|| path.clone()),
            (Self::Owned { path, owner, czxid }, Ok(Reply::Stat(stat))) => {
                let is_it = stat.ephemeral_owner == owner.0 && czxid.is_none_or(|czxid| stat.czxid == czxid);
                is_it.then(|| path.clone())
            }
            (Self::Named { .. } | Self::Saying { .. } | Self::Owned { .. }, Ok(_) | Err(_)) => None,
        }
    }
}

impl Errand {
    /// Deletes the znode at `path`, whose name contains a GUID.
    pub const fn delete(path: Text) -> Self {
        Self(Step::Delete(path))
    }

    /// Deletes a znode whose name contains a GUID, together with its companion.
    ///
    /// The companion's path belongs to no other participant while the znode exists.
    pub const fn delete_both(path: Text, companion: Text) -> Self {
        Self(Step::DeleteBoth { path, companion })
    }

    /// Deletes the znode at `path` if its data is this GUID.
    ///
    /// Other participants may create the znode too. Use this only if the create was answered: a
    /// lagging server would not show a create in flight. The errand first looks and then deletes.
    /// If others can replace the znode in between, their znode is deleted; in that case use
    /// [`Errand::delete_claim`].
    pub const fn delete_saying(path: Text, guid: Guid) -> Self {
        Self(Step::Look(Sought::Saying { path, guid }))
    }

    /// Deletes a claim if its data is this GUID, and never another participant's claim.
    ///
    /// Every claimant must set the data of `turns` in the transaction that creates the claim.
    pub const fn delete_claim(path: Text, turns: Text, guid: Guid) -> Self {
        Self(Step::LookAtTurn(Claim { path, turns, guid }))
    }

    /// Deletes an ephemeral if this session created it with this czxid.
    ///
    /// Others may create the path too. The czxid comes from the answer to the create. The limits of
    /// [`Errand::delete_saying`] apply.
    pub const fn delete_owned(path: Text, owner: SessionId, czxid: i64) -> Self {
        Self(Step::Look(Sought::Owned { path, owner, czxid: Some(czxid) }))
    }

    /// Deletes every child of `parent` whose name begins with this GUID.
    ///
    /// `_c_` may precede the GUID. This is for a create whose reply was not seen.
    pub const fn find_and_delete(parent: Text, guid: Guid) -> Self {
        Self(Step::Drain(Sought::Named { parent, guid }))
    }

    /// Does [`Errand::delete_saying`] for a create whose reply was not seen.
    pub const fn find_and_delete_saying(path: Text, guid: Guid) -> Self {
        Self(Step::Drain(Sought::Saying { path, guid }))
    }

    /// Does [`Errand::delete_claim`] for a create whose reply was not seen.
    pub const fn find_and_delete_claim(path: Text, turns: Text, guid: Guid) -> Self {
        Self(Step::DrainClaim(Claim { path, turns, guid }))
    }

    /// Deletes an ephemeral if this session owns it.
    ///
    /// This is for a create whose reply was not seen. Others may create the same path.
    pub const fn find_and_delete_owned(path: Text, owner: SessionId) -> Self {
        Self(Step::Drain(Sought::Owned { path, owner, czxid: None }))
    }

    /// Returns the errand to send after a change of connection.
    ///
    /// The errand's last request, or the create that it cleans up, may still be in flight on the
    /// old connection. A deletion that was carried out must not be sent again, because others may
    /// have created the znode again.
    #[must_use]
    pub fn on_another_connection(self) -> Self {
        Self(match self.0 {
            Step::Look(sought) | Step::DeleteFound(sought, _) => Step::Drain(sought),
            Step::LookAtTurn(claim) | Step::LookAtClaim(claim, _) | Step::DeleteClaim(claim, _) => {
                Step::DrainClaim(claim)
            }
            step @ (Step::Delete(_) | Step::DeleteBoth { .. } | Step::Drain(_) | Step::DrainClaim(_)) => step,
        })
    }

    /// Returns the errand to send after a pause. Meanwhile the znode may have been deleted, and
    /// created again by others.
    fn later(self) -> Self {
        Self(match self.0 {
            Step::DeleteFound(sought, _) => Step::Look(sought),
            Step::DeleteClaim(claim, _) => Step::LookAtTurn(claim),
            step @ (Step::Delete(_)
            | Step::DeleteBoth { .. }
            | Step::Drain(_)
            | Step::Look(_)
            | Step::DrainClaim(_)
            | Step::LookAtTurn(_)
            | Step::LookAtClaim(..)) => step,
        })
    }

    /// Returns the request to send now.
    ///
    /// If it gets no answer, go on with [`Errand::on_another_connection`].
    pub fn request(&self) -> Request {
        match &self.0 {
            Step::Delete(path) | Step::DeleteFound(_, path) => Request::Write(delete(path)),
            Step::DeleteBoth { path, companion } => Request::Multi(vec![delete(path), delete(companion)]),
            Step::Drain(sought) => drain(sought.path()),
            Step::Look(sought) => sought.look(),
            Step::DrainClaim(claim) => drain(&claim.path),
            Step::LookAtTurn(claim) => Request::Exists { path: claim.turns.clone(), watch: false },
            Step::LookAtClaim(claim, _) => Request::GetData { path: claim.path.clone(), watch: false },
            Step::DeleteClaim(claim, None) => Request::Write(delete(&claim.path)),
            Step::DeleteClaim(claim, Some(version)) => {
                let check = WriteOp::Check { path: claim.turns.clone(), version: *version };
                Request::Multi(vec![check, delete(&claim.path)])
            }
        }
    }

    /// Returns the part of the [request](Errand::request) that many errands can share, if any.
    ///
    /// Without sharing, 10,000 attempts that are given up at once would list their parent 10,000
    /// times.
    pub fn shared(&self) -> Option<Shared> {
        match &self.0 {
            Step::Drain(Sought::Named { parent, .. }) => Some(Shared { parent: parent.clone(), is_list: false }),
            Step::Look(Sought::Named { parent, .. }) => Some(Shared { parent: parent.clone(), is_list: true }),
            _ => None,
        }
    }

    /// Applies one answer to all errands that [share](Errand::shared) its request.
    ///
    /// Yields what remains of each errand, in their order. A list of names is scanned once, not
    /// once per errand.
    pub fn all_answered(
        errands: impl IntoIterator<Item = Self>,
        answer: &Result<Reply, ErrorCode>,
    ) -> impl Iterator<Item = Left> {
        let mut by_guid: Vec<(Guid, &str)> = match answer {
            Ok(Reply::Names(names)) => names.iter().filter_map(|name| Some((Guid::of_name(name)?, name))).collect(),
            Ok(_) | Err(_) => Vec::new(),
        };
        by_guid.sort_unstable();
        errands.into_iter().map(move |errand| {
            let (Step::Look(Sought::Named { guid, .. }), Ok(Reply::Names(_))) = (&errand.0, answer) else {
                return errand.answered(answer);
            };
            let from = by_guid.partition_point(|(other, _)| other < guid);
            let own = by_guid[from..].iter().take_while(|(other, _)| other == guid).map(|(_, name)| name);
            let own = Ok(Reply::Names(own.collect()));
            errand.answered(&own)
        })
    }

    /// Applies the server's answer to [`Errand::request`]; returns what remains to be done.
    pub fn answered(self, answer: &Result<Reply, ErrorCode>) -> Left {
        if matches!(answer, Err(ErrorCode::SystemError | ErrorCode::NotReadOnly)) {
            // The disk is full, a limit of the server is reached, or the server has no ensemble.
            // That may soon be over, and no other participant would run this errand.
            return Left::Later(self.later());
        }
        match self.0 {
            Step::Delete(_) => Left::Nothing,
            Step::DeleteBoth { path, .. } => match answer {
                // The znode existed and its companion did not.
                Ok(Reply::Multi(results)) if matches!(first_failure(results), Some((1, _))) => {
                    Left::Now(Self(Step::Delete(path)))
                }
                Ok(_) | Err(_) => Left::Nothing,
            },
            Step::Drain(sought) => Left::Now(Self(Step::Look(sought))),
            Step::Look(sought) => match sought.found(answer) {
                Some(path) => Left::Now(Self(Step::DeleteFound(sought, path))),
                None => Left::Nothing,
            },
            // Several children may match.
            Step::DeleteFound(sought @ Sought::Named { .. }, _) => match answer {
                Ok(_) | Err(ErrorCode::NoNode) => Left::Now(Self(Step::Look(sought))),
                Err(_) => Left::Nothing,
            },
            Step::DeleteFound(Sought::Saying { .. } | Sought::Owned { .. }, _) => Left::Nothing,
            Step::DrainClaim(claim) => Left::Now(Self(Step::LookAtTurn(claim))),
            Step::LookAtTurn(claim) => match answer {
                Ok(Reply::Stat(stat)) => Left::Now(Self(Step::LookAtClaim(claim, Some(stat.version)))),
                Err(ErrorCode::NoNode) => Left::Now(Self(Step::LookAtClaim(claim, None))),
                Ok(_) | Err(_) => Left::Nothing,
            },
            Step::LookAtClaim(claim, turn) if claim.is_own(answer) => Left::Now(Self(Step::DeleteClaim(claim, turn))),
            Step::LookAtClaim(..) => Left::Nothing,
            Step::DeleteClaim(claim, _) => match answer {
                // Another participant has claimed the path since, or only wrote to `turns`.
                Ok(Reply::Multi(results))
                    if matches!(first_failure(results), Some((0, ErrorCode::BadVersion | ErrorCode::NoNode))) =>
                {
                    Left::Now(Self(Step::LookAtTurn(claim)))
                }
                Ok(_) | Err(_) => Left::Nothing,
            },
        }
    }
}

fn says(data: &[u8], guid: Guid) -> bool {
    std::str::from_utf8(data).is_ok_and(|data| guid.is_in(data))
}

fn drain(path: &Text) -> Request {
    Request::Multi(vec![WriteOp::Check { path: path.clone(), version: -1 }])
}

fn delete(path: &Text) -> WriteOp {
    WriteOp::Delete { path: path.clone(), version: -1 }
}

#[cfg(test)]
mod tests {
    use super::*;
    use zoolet_model::OpResult;

    const GUID: Guid = Guid::from_random_bits(7);

    #[test]
    fn errand_deletes_exactly_the_children_named_with_its_guid() {
        let mut children: Vec<String> = vec!["other-lock-0000000001".into()];
        children.extend([format!("{GUID}-lock-0000000002"), format!("{}__lock__0000000003", GUID.hex())]);
        let mut errand = Errand::find_and_delete("/locks".into(), GUID);
        let mut deleted = Vec::new();
        loop {
            let answer = match errand.request() {
                Request::Multi(_) => Ok(Reply::Multi(vec![OpResult::Check])),
                Request::GetChildren { .. } => Ok(Reply::Names(children.iter().collect())),
                Request::Write(WriteOp::Delete { path, .. }) => {
                    children.retain(|name| path != format!("/locks/{name}").as_str());
                    deleted.push(path);
                    Ok(Reply::Empty)
                }
                other => panic!("{other:?}"),
            };
            match errand.answered(&answer) {
                Left::Nothing => break,
                Left::Now(next) => errand = next,
                Left::Later(_) => panic!("no reason to wait"),
            }
        }
        assert_eq!((children.len(), deleted.len()), (1, 2));
    }

    #[test]
    fn companion_is_deleted_only_together_with_its_znode() {
        let errand = Errand::delete_both("/e/a-n_0000000001".into(), "/e/leader".into());
        let failed = |codes: [Option<ErrorCode>; 2]| Ok(Reply::Multi(codes.map(OpResult::Failed).to_vec()));
        let gone = failed([Some(ErrorCode::NoNode), Some(ErrorCode::RuntimeInconsistency)]);
        assert_eq!(errand.clone().answered(&gone), Left::Nothing);
        let alone = failed([None, Some(ErrorCode::NoNode)]);
        assert_eq!(errand.answered(&alone), Left::Now(Errand::delete("/e/a-n_0000000001".into())));
    }

    #[test]
    fn shared_znode_is_deleted_only_if_it_holds_the_errands_guid() {
        let look = Errand::delete_saying("/gate".into(), GUID);
        let data = |text: String| Ok(Reply::Data(Some(text.into()), zoolet_model::Stat::default()));
        let other = Guid::from_random_bits(u128::MAX);
        assert_eq!(look.clone().answered(&data(other.to_string())), Left::Nothing);
        let Left::Now(errand) = look.answered(&data(GUID.to_string())) else { panic!("it is the own one") };
        assert_eq!(errand.request(), Errand::delete("/gate".into()).request());
    }

    #[test]
    fn unanswered_deletion_checks_the_owner_again_before_deleting() {
        // The deletion was carried out, and another participant has passed the gate since.
        let found = Sought::Saying { path: "/gate".into(), guid: GUID };
        let errand = Errand(Step::DeleteFound(found, "/gate".into())).on_another_connection();
        assert!(matches!(errand.request(), Request::Multi(_)), "{errand:?}");
        let Left::Now(errand) = errand.answered(&Ok(Reply::Multi(vec![OpResult::Check]))) else { panic!("it looks") };
        let others = Guid::from_random_bits(u128::MAX).to_string();
        let answer = Ok(Reply::Data(Some(others.into()), zoolet_model::Stat::default()));
        assert_eq!(errand.answered(&answer), Left::Nothing);
    }

    /// Regression: between the look and the deletion an operator broke the claim and another
    /// consumer claimed the item. The errand then deleted the other consumer's claim.
    #[test]
    fn claim_deletion_checks_for_newer_claims_in_the_same_multi() {
        let step = |errand: Errand, answer: Result<Reply, ErrorCode>| match errand.answered(&answer) {
            Left::Now(next) => next,
            left => panic!("{left:?}"),
        };
        let turn = |version| Ok(Reply::Stat(zoolet_model::Stat { version, ..zoolet_model::Stat::default() }));
        let claimed = |guid: Guid| Ok(Reply::Data(Some(guid.to_string().into()), zoolet_model::Stat::default()));
        let is_at = |errand: &Errand, path: &str| match errand.request() {
            Request::Exists { path: asked, .. } | Request::GetData { path: asked, .. } => asked == path,
            _ => false,
        };
        let errand = Errand::delete_claim("/claims/a".into(), "/jobs/a".into(), GUID);
        assert!(is_at(&errand, "/jobs/a"), "first how often it was claimed");
        let errand = step(errand, turn(4));
        assert!(is_at(&errand, "/claims/a"), "then whose it is");
        let deletes = step(errand, claimed(GUID));
        let check = WriteOp::Check { path: "/jobs/a".into(), version: 4 };
        assert_eq!(deletes.request(), Request::Multi(vec![check, delete(&"/claims/a".into())]));
        let results = [Some(ErrorCode::BadVersion), Some(ErrorCode::RuntimeInconsistency)];
        let refused = Ok(Reply::Multi(results.map(OpResult::Failed).to_vec()));
        let looks = step(deletes.clone(), refused);
        assert!(is_at(&looks, "/jobs/a"), "it may have been something else that was written");
        let other = Guid::from_random_bits(u128::MAX);
        assert_eq!(step(looks, turn(5)).answered(&claimed(other)), Left::Nothing);
        let done = Ok(Reply::Multi(vec![OpResult::Check, OpResult::Delete]));
        assert_eq!(deletes.clone().answered(&done), Left::Nothing);
        // On another connection the errand starts again, with a write first.
        let drains = deletes.on_another_connection();
        assert!(matches!(drains.request(), Request::Multi(ops) if ops.len() == 1));
        assert!(is_at(&step(drains, Ok(Reply::Multi(vec![OpResult::Check]))), "/jobs/a"));
    }

    #[test]
    fn claim_on_a_deleted_item_is_deleted_too() {
        let errand = Errand::delete_claim("/claims/a".into(), "/jobs/a".into(), GUID);
        let Left::Now(errand) = errand.answered(&Err(ErrorCode::NoNode)) else { panic!("it looks at the claim") };
        let answer = Ok(Reply::Data(Some(GUID.to_string().into()), zoolet_model::Stat::default()));
        let Left::Now(errand) = errand.answered(&answer) else { panic!("it is the own one") };
        assert_eq!(errand.request(), Request::Write(delete(&"/claims/a".into())));
    }

    #[test]
    fn ephemeral_is_deleted_only_if_owner_and_czxid_are_unchanged() {
        let stat = zoolet_model::Stat { ephemeral_owner: 5, czxid: 9, ..zoolet_model::Stat::default() };
        let deletes = |owner, czxid| {
            let owner = SessionId(owner);
            let look = match czxid {
                Some(czxid) => Errand::delete_owned("/n".into(), owner, czxid),
                None => drained(Errand::find_and_delete_owned("/n".into(), owner)),
            };
            match look.answered(&Ok(Reply::Stat(stat))) {
                Left::Now(errand) => errand.request() == Errand::delete("/n".into()).request(),
                Left::Nothing => false,
                Left::Later(_) => panic!("no reason to wait"),
            }
        };
        assert!(deletes(5, Some(9)) && deletes(5, None));
        assert!(!deletes(5, Some(8)) && !deletes(4, None));
    }

    /// A lagging server does not show a create that is in flight or whose reply was lost. Without
    /// the write first, the znode would stay until the session ends.
    #[test]
    fn errand_for_an_unanswered_create_begins_with_a_write() {
        let guid = Errand::find_and_delete_saying("/gate".into(), GUID);
        let owner = Errand::find_and_delete_owned("/n".into(), SessionId(5));
        let claim = Errand::find_and_delete_claim("/claims/a".into(), "/jobs/a".into(), GUID);
        for errand in [guid, owner, claim, Errand::find_and_delete("/locks".into(), GUID)] {
            let Request::Multi(ops) = errand.request() else { panic!("{errand:?}") };
            assert!(matches!(ops[..], [WriteOp::Check { version: -1, .. }]), "{ops:?}");
            assert!(!matches!(drained(errand).request(), Request::Multi(_) | Request::Write(_)));
        }
    }

    fn drained(errand: Errand) -> Errand {
        match errand.answered(&Ok(Reply::Multi(vec![OpResult::Check]))) {
            Left::Now(errand) => errand,
            left => panic!("{left:?}"),
        }
    }

    /// Others may have created the znode again meanwhile.
    #[test]
    fn failed_deletion_checks_the_owner_again_later() {
        let found = Sought::Owned { path: "/n".into(), owner: SessionId(5), czxid: Some(9) };
        let errand = Errand(Step::DeleteFound(found.clone(), "/n".into()));
        assert_eq!(errand.answered(&Err(ErrorCode::SystemError)), Left::Later(Errand(Step::Look(found))));
    }

    #[test]
    fn errand_is_retried_later_on_a_temporary_server_error() {
        let errand = Errand::delete("/locks/a".into());
        for code in [ErrorCode::SystemError, ErrorCode::NotReadOnly] {
            assert_eq!(errand.clone().answered(&Err(code)), Left::Later(errand.clone()));
        }
        assert_eq!(errand.answered(&Err(ErrorCode::NoNode)), Left::Nothing);
    }
}
