//! Commands about access: ACLs and identities.

use super::super::Shell;
use super::super::acl;
use super::super::arguments::Arguments;
use super::super::client::unexpected;
use super::super::failure::{Failure, code};
use super::super::output::Output;
use super::super::table::{Choice, Command, Operands, Origin};
use super::super::walk;
use bytes::Bytes;
use zoolet_model::{Reply, Request, RequestedAcl, TimeToLive, WriteOp};

pub(in crate::cli::shell) const TABLE: &[Command] = &[
    Command {
        name: "getAcl",
        usage: "[-s] path",
        options: &[Choice::flag("s", "also print the stat")],
        says: "print the access control list of a znode",
        origin: Origin::ZooKeeper,
        operands: Operands::Path,
        better: "",
        run: get_acl,
    },
    Command {
        name: "setAcl",
        usage: "[-s] [-v version] [-R] path acl",
        options: &[
            Choice::flag("s", "print the stat"),
            Choice::value("v", "VERSION", "refuse unless the ACL has this version"),
            Choice::flag("R", "set it for the whole subtree"),
        ],
        says: "set the access control list of a znode, such as world:anyone:r,ip:10.0.0.0/8:cdrwa",
        origin: Origin::ZooKeeper,
        operands: Operands::Path,
        better: "`-R` prints each refused znode on a line of standard error, exits with 1, and stops at a lost connection; \
                 zkCli prints them on standard output without an end of line, and exits with 0",
        run: set_acl,
    },
    Command {
        name: "addauth",
        usage: "scheme auth",
        options: &[],
        says: "add an identity to this session, such as digest NAME:PASSWORD",
        origin: Origin::ZooKeeper,
        operands: Operands::Words(&["digest"]),
        better: "a refused identity is an error, and the shell goes on without it; the line is kept in no history file",
        run: add_auth,
    },
    Command {
        name: "whoami",
        usage: "",
        options: &[],
        says: "print the identities of this session",
        origin: Origin::ZooKeeper,
        operands: Operands::Nothing,
        better: "",
        run: who_am_i,
    },
];

fn get_acl(shell: &mut Shell, arguments: &Arguments) -> Result<Output, Failure> {
    let path = arguments.path(0)?;
    let Reply::Acl(entries, stat) = shell.session()?.ask(Request::GetAcl { path: path.clone() })? else {
        return Err(unexpected());
    };
    Ok(Output::Acl { path: path.to_string(), entries, stat: arguments.has("s").then_some(stat) })
}

fn set_acl(shell: &mut Shell, arguments: &Arguments) -> Result<Output, Failure> {
    let path = arguments.word(0)?;
    let entries = parsed(shell, arguments.word(1)?)?;
    let version = arguments.version()?;
    let path_checked = arguments.path(0)?;
    if arguments.has("R") {
        return set_all(shell, path, &entries, version);
    }
    let operation = WriteOp::SetAcl { path: path_checked, acl: Some(entries.into()), version };
    match shell.session()?.ask(Request::Write(operation))? {
        Reply::Stat(stat) if arguments.has("s") => {
            Ok(Output::Stat { path: path.to_owned(), stat, ttl: TimeToLive::default() })
        }
        Reply::Stat(_) => Ok(Output::Nothing),
        _ => Err(unexpected()),
    }
}

/// Sets the ACL of a subtree; goes on behind a refused znode, and stops at a lost connection.
fn set_all(shell: &Shell, top: &str, entries: &[RequestedAcl], version: i32) -> Result<Output, Failure> {
    let session = shell.session()?;
    let paths = walk::subtree(session, top)?;
    let (mut refused, mut set) = (None, 0_usize);
    // From the last to the first: a parent that is closed first would hide its children.
    for paths in paths.rchunks(walk::WINDOW) {
        let request = |path: &String| {
            let acl = Some(entries.to_vec().into());
            Request::Write(WriteOp::SetAcl { path: path.as_str().into(), acl, version })
        };
        let mut end = None;
        for answer in session.ask_all(paths.iter().rev().map(request).collect()) {
            match answer {
                Ok(_) => set += 1,
                // No later znode would be answered either.
                Err(failure) if failure.is_interruption() || failure.is(code::CONNECTION_LOSS) => {
                    end.get_or_insert(failure);
                }
                Err(failure) => {
                    if let Some(earlier) = refused.replace(failure) {
                        shell.emit(&Output::Complaint(earlier))?;
                    }
                }
            }
        }
        if let Some(end) = end {
            if let Some(refused) = refused {
                shell.emit(&Output::Complaint(refused))?;
            }
            return Err(end.because(&format!("ACLs that were set before: {set}")));
        }
    }
    refused.map_or(Ok(Output::Nothing), Err)
}

/// Parses an ACL, and complains about the entries that are left out.
pub(super) fn parsed(shell: &Shell, text: &str) -> Result<Vec<RequestedAcl>, Failure> {
    let (entries, complaints) = acl::parse(text)?;
    for complaint in complaints {
        shell.emit(&Output::Complaint(Failure::Text(complaint)))?;
    }
    if entries.is_empty() { Err(acl::empty()) } else { Ok(entries) }
}

fn add_auth(shell: &mut Shell, arguments: &Arguments) -> Result<Output, Failure> {
    let scheme = arguments.word(0)?;
    let auth = arguments.get(1).unwrap_or_default();
    shell.session()?.add_auth(scheme, Bytes::copy_from_slice(auth.as_bytes()))?;
    Ok(Output::Nothing)
}

fn who_am_i(shell: &mut Shell, _arguments: &Arguments) -> Result<Output, Failure> {
    match shell.session()?.ask(Request::WhoAmI)? {
        Reply::Ids(identities) => Ok(Output::Identities(identities)),
        _ => Err(unexpected()),
    }
}
