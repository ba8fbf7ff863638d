//! What is left to do when the one who wanted something no longer waits.
//!
//! A lock that is dropped is released, and an attempt that is cancelled leaves no znode behind, although nobody is there to wait for an answer
//! or to try again. So the session does it: it sends [`Errand::request`], hands the answer to [`Errand::answered`], and sends again whatever a
//! lost connection left unanswered.

use crate::Guid;
use zoolet_model::path::child;
use zoolet_model::{ErrorCode, Reply, Request, SessionId, Text, WriteOp, first_failure};

/// What is left of an errand.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Left {
    /// It is done, or cannot be done.
    Nothing,
    /// This, to be sent at once.
    Now(Errand),
    /// This, to be sent some time later: the server could not.
    Later(Errand),
}

/// Something to clear away: a machine without IO. Its requests may be carried out any number of times.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Errand(Step);

#[derive(Clone, PartialEq, Eq, Debug)]
enum Step {
    /// Delete this znode, which nobody can have made again.
    Delete(Text),
    /// Delete this znode and its companion, whose path others may use once the first is gone.
    DeleteBoth { path: Text, companion: Text },
    /// A write, so that what is still under way on a left connection comes before what follows, or not at all.
    Settle(Sought),
    /// Look whether it is there.
    Look(Sought),
    /// It was there: delete it.
    DeleteFound(Sought, Text),
    /// As [`Step::Settle`].
    SettleClaim(Claim),
    /// Look how often the path was claimed. Before whose it is: whoever claims it from here on makes that another number.
    LookAtTurn(Claim),
    /// Look whose it is.
    LookAtClaim(Claim, Turn),
    /// It was the own one: delete it, unless somebody has claimed the path since.
    DeleteClaim(Claim, Turn),
}

/// A znode that others may make too once it is gone. Whoever makes it sets the data of `turns` in the same transaction, so that the version of that
/// tells one claim from the next: their own are all alike.
#[derive(Clone, PartialEq, Eq, Debug)]
struct Claim {
    path: Text,
    turns: Text,
    /// Its data.
    guid: Guid,
}

/// The version of a claim's `turns`; `None` when there is no such znode, and so nobody can claim.
type Turn = Option<i32>;

impl Claim {
    fn is_own(&self, answer: &Result<Reply, ErrorCode>) -> bool {
        matches!(answer, Ok(Reply::Data(Some(data), _)) if says(data, self.guid))
    }
}

/// A request that is the same for many errands, and whose answer serves all of them that had begun before it was sent.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct Shared {
    parent: Text,
    is_list: bool,
}

/// What is to be looked for before it is deleted.
#[derive(Clone, PartialEq, Eq, Debug)]
enum Sought {
    /// Every child whose name begins with this GUID.
    Named { parent: Text, guid: Guid },
    /// This znode, if its data is this GUID.
    Saying { path: Text, guid: Guid },
    /// This znode, if it is of this session and was created with this zxid, where that is known.
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

    /// The path of what is to be deleted.
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
    /// Deletes a znode with a GUID in its name, whose path is known.
    pub const fn delete(path: Text) -> Self {
        Self(Step::Delete(path))
    }

    /// Deletes a znode with a GUID in its name, and another one whose path is nobody else's as long as the first one is there.
    pub const fn delete_both(path: Text, companion: Text) -> Self {
        Self(Step::DeleteBoth { path, companion })
    }

    /// Deletes a znode that others may make too, if its data is this GUID. Only where the create was answered: a server that is behind would show nothing
    /// of one that is under way. Should somebody else delete it and another one make it between the look and the deletion, it is deleted all the same: where
    /// others do that, [`Errand::delete_claim`].
    pub const fn delete_saying(path: Text, guid: Guid) -> Self {
        Self(Step::Look(Sought::Saying { path, guid }))
    }

    /// The same of a znode that nobody makes without setting the data of `turns` in the same transaction: whatever others do meanwhile, nothing of theirs
    /// is deleted.
    pub const fn delete_claim(path: Text, turns: Text, guid: Guid) -> Self {
        Self(Step::LookAtTurn(Claim { path, turns, guid }))
    }

    /// Deletes an ephemeral that others may make too, if it is of this session and was created with this zxid, which was in the answer to the create. As
    /// with [`Errand::delete_saying`].
    pub const fn delete_owned(path: Text, owner: SessionId, czxid: i64) -> Self {
        Self(Step::Look(Sought::Owned { path, owner, czxid: Some(czxid) }))
    }

    /// Deletes every child of `parent` whose name begins with this GUID, or with `_c_` and this GUID: for a create whose reply nobody has seen.
    pub const fn find_and_delete(parent: Text, guid: Guid) -> Self {
        Self(Step::Settle(Sought::Named { parent, guid }))
    }

    /// [`Errand::delete_saying`], for a create whose reply nobody has seen.
    pub const fn find_and_delete_saying(path: Text, guid: Guid) -> Self {
        Self(Step::Settle(Sought::Saying { path, guid }))
    }

    /// [`Errand::delete_claim`], for a create whose reply nobody has seen.
    pub const fn find_and_delete_claim(path: Text, turns: Text, guid: Guid) -> Self {
        Self(Step::SettleClaim(Claim { path, turns, guid }))
    }

    /// Deletes an ephemeral that others may make too, if it is of this session: for a create whose reply nobody has seen.
    pub const fn find_and_delete_owned(path: Text, owner: SessionId) -> Self {
        Self(Step::Settle(Sought::Owned { path, owner, czxid: None }))
    }

    /// The same on another connection than the one on which it was begun, or on which what it is to clear away was made. Both may still be under
    /// way there: a deletion that was carried out is not to be sent again, because others may have made the znode anew.
    #[must_use]
    pub fn on_another_connection(self) -> Self {
        Self(match self.0 {
            Step::Look(sought) | Step::DeleteFound(sought, _) => Step::Settle(sought),
            Step::LookAtTurn(claim) | Step::LookAtClaim(claim, _) | Step::DeleteClaim(claim, _) => {
                Step::SettleClaim(claim)
            }
            step @ (Step::Delete(_) | Step::DeleteBoth { .. } | Step::Settle(_) | Step::SettleClaim(_)) => step,
        })
    }

    /// The same after a while, in which what was found may have gone and others may have made it anew.
    fn later(self) -> Self {
        Self(match self.0 {
            Step::DeleteFound(sought, _) => Step::Look(sought),
            Step::DeleteClaim(claim, _) => Step::LookAtTurn(claim),
            step @ (Step::Delete(_)
            | Step::DeleteBoth { .. }
            | Step::Settle(_)
            | Step::Look(_)
            | Step::SettleClaim(_)
            | Step::LookAtTurn(_)
            | Step::LookAtClaim(..)) => step,
        })
    }

    /// What to send now, and [on another connection](Errand::on_another_connection) if there was no answer.
    pub fn request(&self) -> Request {
        match &self.0 {
            Step::Delete(path) | Step::DeleteFound(_, path) => Request::Write(delete(path)),
            Step::DeleteBoth { path, companion } => Request::Multi(vec![delete(path), delete(companion)]),
            Step::Settle(sought) => settle(sought.path()),
            Step::Look(sought) => sought.look(),
            Step::SettleClaim(claim) => settle(&claim.path),
            Step::LookAtTurn(claim) => Request::Exists { path: claim.turns.clone(), watch: false },
            Step::LookAtClaim(claim, _) => Request::GetData { path: claim.path.clone(), watch: false },
            Step::DeleteClaim(claim, None) => Request::Write(delete(&claim.path)),
            Step::DeleteClaim(claim, Some(version)) => {
                let check = WriteOp::Check { path: claim.turns.clone(), version: *version };
                Request::Multi(vec![check, delete(&claim.path)])
            }
        }
    }

    /// If others may have the same [request](Errand::request): what they share. Ten thousand attempts given up at once would list their parent ten thousand
    /// times.
    pub fn shared(&self) -> Option<Shared> {
        match &self.0 {
            Step::Settle(Sought::Named { parent, .. }) => Some(Shared { parent: parent.clone(), is_list: false }),
            Step::Look(Sought::Named { parent, .. }) => Some(Shared { parent: parent.clone(), is_list: true }),
            _ => None,
        }
    }

    /// The same answer to many errands that [share](Errand::shared) their request: what is left of each, in their order. The names of a list are gone through
    /// once, and not once for each of them.
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

    /// The server's answer to [`Errand::request`]; what is left to do.
    pub fn answered(self, answer: &Result<Reply, ErrorCode>) -> Left {
        if matches!(answer, Err(ErrorCode::SystemError | ErrorCode::NotReadOnly)) {
            // A full disk, a bound of the server, or a server without its ensemble: it may well be over soon, and nobody else would do this.
            return Left::Later(self.later());
        }
        match self.0 {
            Step::Delete(_) => Left::Nothing,
            Step::DeleteBoth { path, .. } => match answer {
                // The first was there and the companion was not.
                Ok(Reply::Multi(results)) if matches!(first_failure(results), Some((1, _))) => {
                    Left::Now(Self(Step::Delete(path)))
                }
                Ok(_) | Err(_) => Left::Nothing,
            },
            Step::Settle(sought) => Left::Now(Self(Step::Look(sought))),
            Step::Look(sought) => match sought.found(answer) {
                Some(path) => Left::Now(Self(Step::DeleteFound(sought, path))),
                None => Left::Nothing,
            },
            // There may be several.
            Step::DeleteFound(sought @ Sought::Named { .. }, _) => match answer {
                Ok(_) | Err(ErrorCode::NoNode) => Left::Now(Self(Step::Look(sought))),
                Err(_) => Left::Nothing,
            },
            Step::DeleteFound(Sought::Saying { .. } | Sought::Owned { .. }, _) => Left::Nothing,
            Step::SettleClaim(claim) => Left::Now(Self(Step::LookAtTurn(claim))),
            Step::LookAtTurn(claim) => match answer {
                Ok(Reply::Stat(stat)) => Left::Now(Self(Step::LookAtClaim(claim, Some(stat.version)))),
                Err(ErrorCode::NoNode) => Left::Now(Self(Step::LookAtClaim(claim, None))),
                Ok(_) | Err(_) => Left::Nothing,
            },
            Step::LookAtClaim(claim, turn) if claim.is_own(answer) => Left::Now(Self(Step::DeleteClaim(claim, turn))),
            Step::LookAtClaim(..) => Left::Nothing,
            Step::DeleteClaim(claim, _) => match answer {
                // Somebody else has claimed the path since, or only written to the other znode.
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

fn settle(path: &Text) -> Request {
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
    fn whatever_has_the_guid_in_its_name_is_deleted_and_nothing_else() {
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
    fn a_companion_goes_with_its_znode_and_stays_when_that_is_gone() {
        let errand = Errand::delete_both("/e/a-n_0000000001".into(), "/e/leader".into());
        let failed = |codes: [Option<ErrorCode>; 2]| Ok(Reply::Multi(codes.map(OpResult::Failed).to_vec()));
        let gone = failed([Some(ErrorCode::NoNode), Some(ErrorCode::RuntimeInconsistency)]);
        assert_eq!(errand.clone().answered(&gone), Left::Nothing);
        let alone = failed([None, Some(ErrorCode::NoNode)]);
        assert_eq!(errand.answered(&alone), Left::Now(Errand::delete("/e/a-n_0000000001".into())));
    }

    #[test]
    fn what_anybody_may_make_is_deleted_only_by_who_made_it() {
        let look = Errand::delete_saying("/gate".into(), GUID);
        let data = |text: String| Ok(Reply::Data(Some(text.into()), zoolet_model::Stat::default()));
        let other = Guid::from_random_bits(u128::MAX);
        assert_eq!(look.clone().answered(&data(other.to_string())), Left::Nothing);
        let Left::Now(errand) = look.answered(&data(GUID.to_string())) else { panic!("it is the own one") };
        assert_eq!(errand.request(), Errand::delete("/gate".into()).request());
    }

    #[test]
    fn a_deletion_without_an_answer_looks_again_whose_it_is_before_it_deletes() {
        // It was carried out, and somebody else has passed the gate since.
        let found = Sought::Saying { path: "/gate".into(), guid: GUID };
        let errand = Errand(Step::DeleteFound(found, "/gate".into())).on_another_connection();
        assert!(matches!(errand.request(), Request::Multi(_)), "{errand:?}");
        let Left::Now(errand) = errand.answered(&Ok(Reply::Multi(vec![OpResult::Check]))) else { panic!("it looks") };
        let others = Guid::from_random_bits(u128::MAX).to_string();
        let answer = Ok(Reply::Data(Some(others.into()), zoolet_model::Stat::default()));
        assert_eq!(errand.answered(&answer), Left::Nothing);
    }

    /// Between the look and the deletion an operator broke the claim and another consumer claimed the item: his claim was deleted.
    #[test]
    fn a_claim_is_deleted_in_one_transaction_with_the_check_that_nobody_has_claimed_since() {
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
        // On another connection it begins again, behind a write.
        let settles = deletes.on_another_connection();
        assert!(matches!(settles.request(), Request::Multi(ops) if ops.len() == 1));
        assert!(is_at(&step(settles, Ok(Reply::Multi(vec![OpResult::Check]))), "/jobs/a"));
    }

    #[test]
    fn a_claim_on_what_is_gone_goes_as_well() {
        let errand = Errand::delete_claim("/claims/a".into(), "/jobs/a".into(), GUID);
        let Left::Now(errand) = errand.answered(&Err(ErrorCode::NoNode)) else { panic!("it looks at the claim") };
        let answer = Ok(Reply::Data(Some(GUID.to_string().into()), zoolet_model::Stat::default()));
        let Left::Now(errand) = errand.answered(&answer) else { panic!("it is the own one") };
        assert_eq!(errand.request(), Request::Write(delete(&"/claims/a".into())));
    }

    #[test]
    fn an_ephemeral_is_deleted_only_if_it_is_still_the_same_one() {
        let stat = zoolet_model::Stat { ephemeral_owner: 5, czxid: 9, ..zoolet_model::Stat::default() };
        let deletes = |owner, czxid| {
            let owner = SessionId(owner);
            let look = match czxid {
                Some(czxid) => Errand::delete_owned("/n".into(), owner, czxid),
                None => settled(Errand::find_and_delete_owned("/n".into(), owner)),
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

    /// A server that is behind shows nothing of a create that is under way or whose reply was lost, and the znode would stay for as long as the session.
    #[test]
    fn whoever_has_not_seen_its_create_answered_settles_it_before_it_looks() {
        let guid = Errand::find_and_delete_saying("/gate".into(), GUID);
        let owner = Errand::find_and_delete_owned("/n".into(), SessionId(5));
        let claim = Errand::find_and_delete_claim("/claims/a".into(), "/jobs/a".into(), GUID);
        for errand in [guid, owner, claim, Errand::find_and_delete("/locks".into(), GUID)] {
            let Request::Multi(ops) = errand.request() else { panic!("{errand:?}") };
            assert!(matches!(ops[..], [WriteOp::Check { version: -1, .. }]), "{ops:?}");
            assert!(!matches!(settled(errand).request(), Request::Multi(_) | Request::Write(_)));
        }
    }

    fn settled(errand: Errand) -> Errand {
        match errand.answered(&Ok(Reply::Multi(vec![OpResult::Check]))) {
            Left::Now(errand) => errand,
            left => panic!("{left:?}"),
        }
    }

    /// Others may have made it anew in the meantime.
    #[test]
    fn a_deletion_that_the_server_could_not_do_looks_again_whose_it_is() {
        let found = Sought::Owned { path: "/n".into(), owner: SessionId(5), czxid: Some(9) };
        let errand = Errand(Step::DeleteFound(found.clone(), "/n".into()));
        assert_eq!(errand.answered(&Err(ErrorCode::SystemError)), Left::Later(Errand(Step::Look(found))));
    }

    #[test]
    fn a_server_that_cannot_now_is_asked_again_later() {
        let errand = Errand::delete("/locks/a".into());
        for code in [ErrorCode::SystemError, ErrorCode::NotReadOnly] {
            assert_eq!(errand.clone().answered(&Err(code)), Left::Later(errand.clone()));
        }
        assert_eq!(errand.answered(&Err(ErrorCode::NoNode)), Left::Nothing);
    }
}
