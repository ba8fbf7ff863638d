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
    /// Look whether this znode has this GUID for its data.
    Look { path: Text, guid: Guid },
    /// Look whose this znode is.
    LookOwner { path: Text, owner: SessionId, czxid: Option<i64> },
    /// A write, so that a create of a left connection that is still under way comes before what follows, or not at all.
    Settle { parent: Text, guid: Guid },
    /// Look for what has this GUID in its name.
    Find { parent: Text, guid: Guid },
    /// Delete one of them, and look again.
    DeleteFound { parent: Text, guid: Guid, path: Text },
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
        Self(Step::Look { path, guid })
    }

    /// Deletes an ephemeral that others may make too, if it is of this session and was created with this zxid, where that is known.
    pub const fn delete_if_owned(path: Text, owner: SessionId, czxid: Option<i64>) -> Self {
        Self(Step::LookOwner { path, owner, czxid })
    }

    /// Deletes every child of `parent` with this GUID in its name: for a create whose reply nobody has seen.
    pub const fn find_and_delete(parent: Text, guid: Guid) -> Self {
        Self(Step::Settle { parent, guid })
    }

    /// What to send now, and again after a reconnect if there was no answer.
    pub fn request(&self) -> Request {
        match &self.0 {
            Step::Delete(path) | Step::DeleteFound { path, .. } => Request::Write(delete(path)),
            Step::DeleteBoth { path, companion } => Request::Multi(vec![delete(path), delete(companion)]),
            Step::Look { path, .. } => Request::GetData { path: path.clone(), watch: false },
            Step::LookOwner { path, .. } => Request::Exists { path: path.clone(), watch: false },
            Step::Settle { parent, .. } => Request::Multi(vec![WriteOp::Check { path: parent.clone(), version: -1 }]),
            Step::Find { parent, .. } => Request::GetChildren { path: parent.clone(), watch: false, with_stat: false },
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
            Step::Look { path, guid } => match answer {
                Ok(Reply::Data(Some(data), _)) if std::str::from_utf8(data).is_ok_and(|data| guid.is_in(data)) => {
                    Left::Now(Self(Step::Delete(path)))
                }
                Ok(_) | Err(_) => Left::Nothing,
            },
            Step::LookOwner { path, owner, czxid } => match answer {
                Ok(Reply::Stat(stat))
                    if stat.ephemeral_owner == owner.0 && czxid.is_none_or(|czxid| stat.czxid == czxid) =>
                {
                    Left::Now(Self(Step::Delete(path)))
                }
                Ok(_) | Err(_) => Left::Nothing,
            },
            Step::Settle { parent, guid } => Left::Now(Self(Step::Find { parent, guid })),
            Step::Find { parent, guid } => {
                let Ok(Reply::Names(names)) = answer else { return Left::Nothing };
                let found = names.iter().find(|name| guid.is_in(name)).map(|name| child(&parent, name));
                found.map_or(Left::Nothing, |path| Left::Now(Self(Step::DeleteFound { parent, guid, path })))
            }
            Step::DeleteFound { parent, guid, .. } => match answer {
                Ok(_) | Err(ErrorCode::NoNode) => Left::Now(Self(Step::Find { parent, guid })),
                Err(_) => Left::Nothing,
            },
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
        assert_eq!(look.answered(&data(GUID.to_string())), Left::Now(Errand::delete("/gate".into())));
    }

    #[test]
    fn an_ephemeral_is_deleted_only_if_it_is_still_the_same_one() {
        let stat = zoolet_model::Stat { ephemeral_owner: 5, czxid: 9, ..zoolet_model::Stat::default() };
        let look = |owner, czxid| {
            Errand::delete_if_owned("/n".into(), SessionId(owner), czxid).answered(&Ok(Reply::Stat(stat)))
        };
        let delete = Left::Now(Errand::delete("/n".into()));
        assert_eq!((look(5, Some(9)), look(5, None)), (delete.clone(), delete));
        assert_eq!((look(5, Some(8)), look(4, None)), (Left::Nothing, Left::Nothing));
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
