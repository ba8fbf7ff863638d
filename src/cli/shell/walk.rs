//! Walks over subtrees, with many requests in flight.

use super::client::{Session, unexpected};
use super::failure::{Failure, code};
use super::znode_path::child;
use zoolet_model::{Reply, Request};

/// Requests in flight at most; a server reads no more from a connection by default.
pub(super) const WINDOW: usize = 256;

/// One znode whose children are visited.
struct Level {
    path: String,
    names: std::vec::IntoIter<String>,
    /// The children with their own lists of children, fetched ahead.
    ahead: std::vec::IntoIter<(String, Vec<String>)>,
}

/// Visits a subtree in zkCli's order: a znode, all its children, then the subtree of each child.
///
/// A znode that vanishes meanwhile is skipped.
///
/// # Errors
/// The top does not exist, a request is refused, or `visit` fails.
pub(super) fn siblings_first(
    session: &Session,
    top: &str,
    watch: bool,
    mut visit: impl FnMut(&str) -> Result<(), Failure>,
) -> Result<(), Failure> {
    let names = children(session, top, watch)?;
    visit(top)?;
    let mut levels = vec![enter(top.to_owned(), names, &mut visit)?];
    while let Some(level) = levels.last_mut() {
        match level.ahead.next() {
            Some((_, names)) if names.is_empty() => {}
            Some((path, names)) => levels.push(enter(path, names, &mut visit)?),
            None => {
                let paths: Vec<String> =
                    level.names.by_ref().take(WINDOW).map(|name| child(&level.path, &name)).collect();
                if paths.is_empty() {
                    levels.pop();
                } else {
                    level.ahead = lists(session, paths, watch)?.into_iter();
                }
            }
        }
    }
    Ok(())
}

fn enter(
    path: String,
    names: Vec<String>,
    visit: &mut impl FnMut(&str) -> Result<(), Failure>,
) -> Result<Level, Failure> {
    for name in &names {
        visit(&child(&path, name))?;
    }
    Ok(Level { path, names: names.into_iter(), ahead: Vec::new().into_iter() })
}

/// Returns all paths of a subtree, each parent before its children.
///
/// # Errors
/// As [`siblings_first`].
pub(super) fn subtree(session: &Session, top: &str) -> Result<Vec<String>, Failure> {
    let mut paths = Vec::new();
    siblings_first(session, top, false, |path| {
        paths.push(path.to_owned());
        Ok(())
    })?;
    Ok(paths)
}

/// Returns the children of a znode, sorted.
///
/// # Errors
/// The request is refused.
pub(super) fn children(session: &Session, path: &str, watch: bool) -> Result<Vec<String>, Failure> {
    session.ask(Request::GetChildren { path: path.into(), watch, with_stat: false }).and_then(sorted)
}

/// Returns the children of each path that still exists.
fn lists(session: &Session, paths: Vec<String>, watch: bool) -> Result<Vec<(String, Vec<String>)>, Failure> {
    let request = |path: &String| Request::GetChildren { path: path.as_str().into(), watch, with_stat: false };
    let answers = session.ask_all(paths.iter().map(request).collect());
    let mut lists = Vec::with_capacity(paths.len());
    for (path, answer) in paths.into_iter().zip(answers) {
        match answer.and_then(sorted) {
            Ok(names) => lists.push((path, names)),
            Err(failure) if failure.is(code::NO_NODE) => {}
            Err(failure) => return Err(failure),
        }
    }
    Ok(lists)
}

fn sorted(reply: Reply) -> Result<Vec<String>, Failure> {
    let Reply::Names(names) = reply else { return Err(unexpected()) };
    let mut names: Vec<String> = names.iter().map(str::to_owned).collect();
    names.sort_unstable();
    Ok(names)
}
