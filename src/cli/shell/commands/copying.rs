//! Commands that copy and move subtrees, each in one multi.

use super::super::Shell;
use super::super::arguments::Arguments;
use super::super::client::Session;
use super::super::depth_first::{DepthFirst, Wants, below, under};
use super::super::failure::{Failure, code};
use super::super::multi::{self, FRAME_BYTES, LastAcl, Multi, creation};
use super::super::output::Output;
use super::super::sources::{check_acl, refuse_inside};
use super::super::table::{Choice, Command, Operands, Origin};
use serde_json::json;
use zoolet_model::{CreateKind, WriteOp};

pub(in crate::cli::shell) const TABLE: &[Command] = &[
    Command {
        name: "cp",
        usage: "[-r] source destination",
        options: &[Choice::flag("r", "copy the whole subtree")],
        says: "copy a znode with its data and ACL in one multi",
        origin: Origin::Zoolet,
        operands: Operands::Paths,
        better: "",
        run: copy,
    },
    Command {
        name: "mv",
        usage: "source destination",
        options: &[],
        says: "move a subtree to another path in one multi",
        origin: Origin::Zoolet,
        operands: Operands::Paths,
        better: "",
        run: rename,
    },
];

#[derive(Clone, Copy, PartialEq, Eq)]
enum Way {
    Copy,
    Move,
}

impl Way {
    fn verb(self) -> &'static str {
        if self == Self::Copy { "copied" } else { "moved" }
    }
}

fn copy(shell: &mut Shell, arguments: &Arguments) -> Result<Output, Failure> {
    carry(shell, arguments, Way::Copy, arguments.has("r"))
}

fn rename(shell: &mut Shell, arguments: &Arguments) -> Result<Output, Failure> {
    carry(shell, arguments, Way::Move, true)
}

fn carry(shell: &mut Shell, arguments: &Arguments, way: Way, is_whole: bool) -> Result<Output, Failure> {
    let (source, destination) = (arguments.path(0)?, arguments.path(1)?);
    refuse_inside(&source, &destination)?;
    let session = shell.session()?;
    let wants = Wants { data: true, acl: true, depth: (!is_whole).then_some(0) };
    let mut walk = DepthFirst::new(session, &source, wants);
    let (mut multi, mut deletions, mut znodes) = (Multi::default(), Multi::default(), 0_u64);
    let mut sources = Vec::new();
    while let Some(found) = walk.next()? {
        if let Some(refusal) = found.refusal {
            return Err(refusal);
        }
        if found.stat.ephemeral_owner != 0 {
            return Err(Failure::Text(format!(
                "{} is an ephemeral of session {:#x}; only its owner can create another, so nothing was {}",
                found.path,
                found.stat.ephemeral_owner,
                way.verb()
            )));
        }
        if !is_whole && found.stat.num_children > 0 {
            return Err(Failure::Text(format!("{} has children; cp -r copies them too", found.path)));
        }
        check_acl(&found)?;
        znodes += 1;
        multi.expect(&found.path, found.stat.czxid, found.stat.aversion);
        let (path, version) = (found.path.as_str().into(), found.stat.version);
        match way {
            // A write in between fails the multi: the copy is one state of each znode.
            Way::Copy => multi.add(WriteOp::Check { path, version }),
            Way::Move => {
                let deletion = WriteOp::Delete { path, version };
                deletions.add(deletion.clone());
                sources.push(deletion);
            }
        }
        let copied = under(&destination, below(&source, &found.path));
        let creation = creation(&copied, found.data, &found.acl, CreateKind::Persistent);
        multi.add_creation(creation, found.stat.num_children > 0);
        if multi.bytes() + deletions.bytes() > FRAME_BYTES {
            return Err(Failure::Text(format!(
                "{source} does not fit in one request of {FRAME_BYTES} bytes, so nothing was {}; export it, import the \
                 file at {destination}{}",
                way.verb(),
                if way == Way::Move { ", and delete it with deleteall" } else { "" }
            )));
        }
    }
    // Children are deleted before their parents.
    sources.into_iter().rev().for_each(|deletion| multi.add(deletion));
    let mut wide = Vec::new();
    let ran = multi.run(session, &mut wide).map_err(|failure| explained(failure, way));
    ran.and_then(|()| set_acls(session, &mut wide, way)).map_err(|failure| {
        let wide = multi::narrow(session, std::mem::take(&mut wide));
        multi::still_wide(&wide, &source).map_or(failure.clone(), |wide| failure.because(&wide))
    })?;
    let text = format!("{} {znodes} znodes from {source} to {destination}", way.verb());
    Ok(Output::Text(text, json!({ way.verb(): znodes, "from": source.as_str(), "to": destination.as_str() })))
}

/// Sets the ACLs of parents, the last first, so that they are children before parents.
///
/// Those that it does not set stay in the list.
fn set_acls(session: &Session, wide: &mut Vec<LastAcl>, way: Way) -> Result<(), Failure> {
    while let Some(acl) = wide.last() {
        acl.set(session).map_err(|failure| failure.because(&format!("the subtree was {}", way.verb())))?;
        wide.pop();
    }
    Ok(())
}

/// Says that nothing was changed.
fn explained(failure: Failure, way: Way) -> Failure {
    match failure {
        Failure::Refused { code: refused @ (code::BAD_VERSION | code::NOT_EMPTY), path, .. } => {
            let why = format!("it was changed meanwhile, so nothing was {}; try again", way.verb());
            Failure::Refused { code: refused, path, why }
        }
        Failure::Refused { code, path, why } if why.is_empty() => {
            Failure::Refused { code, path, why: format!("nothing was {}", way.verb()) }
        }
        other => other,
    }
}
