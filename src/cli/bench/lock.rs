//! Lock cycles by ZooKeeper's published recipe.
//!
//! A contender creates an ephemeral sequential znode, lists the children of the lock, and watches
//! the znode just before its own. Without such a znode it holds the lock. It releases the lock by
//! deleting its znode.

use super::course::Course;
use super::ground::Places;
use super::link::Link;
use super::load::come_back;
use super::measured::Sort;
use super::requests::{NUMBER_DIGITS, children, create, delete};
use bytes::Bytes;
use std::io;
use std::rc::Rc;
use zoolet_model::path::parent_and_name;
use zoolet_model::{CreateKind, ErrorCode, Names, Reply, Request};

/// Takes and releases its lock until the end of the course.
///
/// # Errors
/// No server is reachable any more, or a server does not speak the protocol.
pub(super) async fn contend(course: Rc<Course>, link: Link, number: usize) -> Result<(), String> {
    let lock = Places::of(&course.options).lock(number % course.options.locks);
    let mut contender = Contender { link, prefix: format!("{lock}/{number}-"), lock };
    loop {
        let began = course.now();
        if !course.admit(began) {
            break;
        }
        let cycle = contender.cycle(&course).await;
        let now = course.now();
        let counts = course.counts(began);
        match cycle {
            Ok(held) if counts => {
                let mut measured = course.measured.borrow_mut();
                measured.answered(Sort::Write, held.err().unwrap_or(0), began, now);
                if let Ok(held) = held {
                    measured.parts.record(held.saturating_sub(began));
                }
            }
            Ok(_) => {}
            Err(broken) => {
                course.measured.borrow_mut().lost += u64::from(counts);
                contender.come_back(&course, broken).await?;
            }
        }
    }
    contender.link.close().await;
    Ok(())
}

struct Contender {
    link: Link,
    lock: String,
    /// Path prefix of this contender's znodes; other contenders have different ones.
    prefix: String,
}

/// The error code of a refused request.
type Refused = i32;

impl Contender {
    /// Takes and releases the lock; returns when it was held, or the error code.
    async fn cycle(&mut self, course: &Course) -> io::Result<Result<u64, Refused>> {
        let request = create(&self.prefix, &Bytes::new(), CreateKind::Ephemeral, true);
        let own = match self.link.ask(&Request::Write(request)).await? {
            Ok(Reply::Path(path)) => path,
            Ok(_) => return Ok(Err(ErrorCode::MarshallingError.code())),
            Err(error) => return Ok(Err(error)),
        };
        let held = self.wait_for_turn(own.as_str()).await?.map(|()| course.now());
        let deleted = self.link.ask(&Request::Write(delete(own.as_str()))).await?;
        Ok(held.and_then(|held| deleted.map(|_| held)))
    }

    async fn wait_for_turn(&mut self, own: &str) -> io::Result<Result<(), Refused>> {
        loop {
            let names = match self.link.ask(&children(&self.lock)).await? {
                Ok(Reply::Names(names)) => names,
                Ok(_) => return Ok(Err(ErrorCode::MarshallingError.code())),
                Err(error) => return Ok(Err(error)),
            };
            let Some(before) = just_before(&names, own) else { return Ok(Ok(())) };
            // The recipe uses exists. A read is equivalent, and leaves no watch if that znode is
            // already gone.
            let read = Request::GetData { path: format!("{}/{before}", self.lock).as_str().into(), watch: true };
            match self.link.ask(&read).await? {
                Ok(_) => drop(self.link.event().await?),
                Err(error) if error == ErrorCode::NoNode.code() => {}
                Err(error) => return Ok(Err(error)),
            }
        }
    }

    /// Recovers, and deletes a znode that the session may still own.
    ///
    /// That znode would block the lock for ever.
    async fn come_back(&mut self, course: &Course, mut broken: io::Error) -> Result<(), String> {
        loop {
            come_back(course, &mut self.link, broken).await?;
            match self.delete_own().await {
                Ok(()) => return Ok(()),
                Err(again) => broken = again,
            }
        }
    }

    async fn delete_own(&mut self) -> io::Result<()> {
        let Ok(Reply::Names(names)) = self.link.ask(&children(&self.lock)).await? else { return Ok(()) };
        for path in names.iter().map(|name| format!("{}/{name}", self.lock)) {
            if path.starts_with(&self.prefix) {
                // It may have expired with its session meanwhile.
                let _ = self.link.ask(&Request::Write(delete(&path))).await?;
            }
        }
        Ok(())
    }
}

/// Returns the child with the highest sequence number below that of `own`.
fn just_before<'a>(names: &'a Names, own: &str) -> Option<&'a str> {
    let own = sequence(parent_and_name(own).map_or(own, |(_, name)| name));
    names.iter().filter(|name| sequence(name) < own).max_by_key(|name| sequence(name))
}

/// Returns the sequence digits of a name; equal lengths make text order numeric.
fn sequence(name: &str) -> &str {
    name.len().checked_sub(NUMBER_DIGITS).and_then(|start| name.get(start..)).unwrap_or(name)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(names: &[&str]) -> Names {
        names.iter().map(|name| zoolet_model::Text::from(*name)).collect::<Vec<_>>().into()
    }

    #[test]
    fn contender_with_the_lowest_sequence_number_holds_the_lock() {
        let names = names(&["7-0000000012", "12-0000000003", "3-0000000011", "1-0000000010"]);
        assert_eq!(just_before(&names, "/l/12-0000000003"), None);
        assert_eq!(just_before(&names, "/l/1-0000000010"), Some("12-0000000003"));
        assert_eq!(just_before(&names, "/l/7-0000000012"), Some("3-0000000011"));
    }
}
