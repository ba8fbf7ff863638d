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
}

/// What is to be looked for before it is deleted.
#[derive(Clone, PartialEq, Eq, Debug)]
enum Sought {
    /// Every child with this GUID in its name.
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
                names.iter().find(|name| guid.is_in(name)).map(|name| child(parent, name))
            }
            (Self::Saying { path, guid }, Ok(Reply::Data(Some(data), _))) => {
                std::str::from_utf8(data).is_ok_and(|data| guid.is_in(data)).then(|| path.clone())
            }
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

    /// Deletes a znode that others may make too, if its data is this GUID.
    pub const fn delete_if_own(path: Text, guid: Guid) -> Self {
        Self(Step::Look(Sought::Saying { path, guid }))
    }

    /// Deletes an ephemeral that others may make too, if it is of this session and was created with this zxid, where that is known.
    pub const fn delete_if_owned(path: Text, owner: SessionId, czxid: Option<i64>) -> Self {
        Self(Step::Look(Sought::Owned { path, owner, czxid }))
    }

    /// Deletes every child of `parent` with this GUID in its name: for a create whose reply nobody has seen.
    pub const fn find_and_delete(parent: Text, guid: Guid) -> Self {
        Self(Step::Settle(Sought::Named { parent, guid }))
    }

    /// The same on another connection than the one on which it was begun, or on which what it is to clear away was made. Both may still be under
    /// way there: a deletion that was carried out is not to be sent again, because others may have made the znode anew.
    #[must_use]
    pub fn on_another_connection(self) -> Self {
        Self(match self.0 {
            Step::Look(sought) | Step::DeleteFound(sought, _) => Step::Settle(sought),
            step @ (Step::Delete(_) | Step::DeleteBoth { .. } | Step::Settle(_)) => step,
        })
    }

    /// What to send now, and [on another connection](Errand::on_another_connection) if there was no answer.
    pub fn request(&self) -> Request {
        match &self.0 {
            Step::Delete(path) | Step::DeleteFound(_, path) => Request::Write(delete(path)),
            Step::DeleteBoth { path, companion } => Request::Multi(vec![delete(path), delete(companion)]),
            Step::Settle(sought) => Request::Multi(vec![WriteOp::Check { path: sought.path().clone(), version: -1 }]),
            Step::Look(sought) => sought.look(),
        }
    }

    /// The server's answer to [`Errand::request`]; what is left to do.
    pub fn answered(self, answer: &Result<Reply, ErrorCode>) -> Left {
        if matches!(answer, Err(ErrorCode::SystemError | ErrorCode::NotReadOnly)) {
            // A full disk, a bound of the server, or a server without its ensemble: it may well be over soon, and nobody else would do this.
            return Left::Later(self);
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
        }
    }
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
        let look = Errand::delete_if_own("/gate".into(), GUID);
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

    #[test]
    fn an_ephemeral_is_deleted_only_if_it_is_still_the_same_one() {
        let stat = zoolet_model::Stat { ephemeral_owner: 5, czxid: 9, ..zoolet_model::Stat::default() };
        let deletes = |owner, czxid| {
            let look = Errand::delete_if_owned("/n".into(), SessionId(owner), czxid);
            match look.answered(&Ok(Reply::Stat(stat))) {
                Left::Now(errand) => errand.request() == Errand::delete("/n".into()).request(),
                Left::Nothing => false,
                Left::Later(_) => panic!("no reason to wait"),
            }
        };
        assert!(deletes(5, Some(9)) && deletes(5, None));
        assert!(!deletes(5, Some(8)) && !deletes(4, None));
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
