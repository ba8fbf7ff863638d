//! Commands that create, change and delete znodes.

use super::super::Shell;
use super::super::arguments::Arguments;
use super::super::client::unexpected;
use super::super::failure::{Failure, code};
use super::super::files;
use super::super::multi;
use super::super::output::Output;
use super::super::table::{Choice, Command, Operands, Origin};
use super::super::znode_path;
use super::access;
use base64ct::{Base64, Encoding};
use bytes::Bytes;
use zoolet_model::{Create, CreateKind, CreateMode, Reply, Request, RequestedAcl, TimeToLive, WriteOp};

/// Longest time to live, in milliseconds.
const TTL_MAX_MS: i64 = (1 << 40) - 1;
const VERSION: Choice = Choice::value("v", "VERSION", "refuse unless the znode has this version");

pub(in crate::cli::shell) const TABLE: &[Command] = &[
    Command {
        name: "create",
        usage: "[-s] [-e] [-c] [-t ttl] path [data] [acl]",
        options: &[
            Choice::flag("s", "append a number to the name (sequential)"),
            Choice::flag("e", "delete it with this session (ephemeral)"),
            Choice::flag("c", "delete it when its last child is gone (container)"),
            Choice::value(
                "t",
                "MS",
                "if it has no child, the server deletes it MS milliseconds after its creation or the last change of its \
                 data; zoolet also counts from the deletion of its last child",
            ),
        ],
        says: "create a znode",
        origin: Origin::ZooKeeper,
        operands: Operands::Path,
        better: "",
        run: create,
    },
    Command {
        name: "set",
        usage: "[-s] [-v version] [-b] path data",
        options: &[
            Choice::flag("s", "print the stat"),
            VERSION,
            Choice::flag("b", "the data is base64"),
            Choice::value("i", "FILE", "take the data from FILE instead of a word; - is standard input"),
        ],
        says: "set the data of a znode",
        origin: Origin::ZooKeeper,
        operands: Operands::Path,
        better: "the version of `set path data version` (3.4) counts, zkCli ignores it; `-i FILE`",
        run: set,
    },
    Command {
        name: "delete",
        usage: "[-v version] path",
        options: &[VERSION],
        says: "delete a znode without children",
        origin: Origin::ZooKeeper,
        operands: Operands::Path,
        better: "the version of `delete path version` (3.4) counts; zkCli ignores it and deletes",
        run: delete,
    },
];

fn create(shell: &mut Shell, arguments: &Arguments) -> Result<Output, Failure> {
    let path = arguments.word(0)?;
    let mode = mode(arguments)?;
    let sequential = matches!(mode, CreateMode::Valid { sequential: true, .. });
    znode_path::check_new(path, sequential).map_err(Failure::Text)?;
    let data = arguments.get(1).map(|data| Bytes::copy_from_slice(data.as_bytes()));
    let acl = match arguments.get(2) {
        None => Ok(RequestedAcl::open()),
        Some(text) => access::parsed(shell, text).map(Into::into),
    };
    let request = |acl| Create { path: path.into(), data, acl: Some(acl), mode, with_stat: false };
    match acl.and_then(|acl| write(shell, WriteOp::Create(request(acl)))) {
        Ok(Reply::Path(path) | Reply::PathStat(path, _)) => Ok(Output::Created(path.to_string())),
        Ok(_) => Err(unexpected()),
        Err(failure) => {
            if let Some(line) = line_before(&failure) {
                shell.emit(&Output::Note(line))?;
            }
            Err(failure)
        }
    }
}

/// Returns the line that zkCli's create prints before the message of a refusal; most have none.
fn line_before(failure: &Failure) -> Option<String> {
    match failure {
        Failure::Refused { code: code::INVALID_ACL, path, .. } => {
            let path = path.as_ref().map_or_else(String::new, |path| format!(" for {path}"));
            Some(format!("KeeperErrorCode = InvalidACL{path}"))
        }
        Failure::Refused { code: code::EPHEMERAL_ON_LOCAL_SESSION, .. } => {
            Some("Unable to create ephemeral node on a local session".to_owned())
        }
        _ => None,
    }
}

fn mode(arguments: &Arguments) -> Result<CreateMode, Failure> {
    let (sequential, ephemeral, container) = (arguments.has("s"), arguments.has("e"), arguments.has("c"));
    if container && (sequential || ephemeral) {
        return Err(Failure::text(
            "-c cannot be combined with -s or -e. Containers cannot be ephemeral or sequential.",
        ));
    }
    let ttl: Option<i64> = arguments.parsed("t", "-t argument must be a long value")?;
    let kind = match ttl {
        Some(_) if ephemeral => return Err(Failure::text("TTLs cannot be used with Ephemeral znodes")),
        Some(_) if container => return Err(Failure::text("TTLs cannot be used with Container znodes")),
        Some(ttl) => match u64::try_from(ttl) {
            Ok(ttl_ms) if (1..=TTL_MAX_MS).contains(&ttl) => CreateKind::Ttl { ttl_ms },
            _ => return Err(Failure::Text(format!("ttl must be positive and cannot be larger than: {TTL_MAX_MS}"))),
        },
        None if container => CreateKind::Container,
        None if ephemeral => CreateKind::Ephemeral,
        None => CreateKind::Persistent,
    };
    Ok(CreateMode::Valid { kind, sequential })
}

fn set(shell: &mut Shell, arguments: &Arguments) -> Result<Output, Failure> {
    let path = arguments.path(0)?;
    let (given, at) = match arguments.value("i") {
        Some("-") if shell.reads_commands => {
            return Err(Failure::text("set -i -: standard input has the commands; name a file"));
        }
        Some(file) => (files::read(file, &shell.interrupts)?, 1),
        None => (arguments.word(1)?.as_bytes().to_vec(), 2),
    };
    let data = if arguments.has("b") {
        let text = str::from_utf8(&given).unwrap_or_default().trim_end();
        Base64::decode_vec(text).map_err(|_| Failure::text("the data is not base64"))?
    } else {
        given
    };
    let version = positional_version(arguments, at)?;
    let operation = WriteOp::SetData { path: path.clone(), data: Some(data.into()), version };
    match write(shell, operation)? {
        Reply::Stat(stat) if arguments.has("s") => {
            Ok(Output::Stat { path: path.to_string(), stat, ttl: TimeToLive::default() })
        }
        Reply::Stat(_) => Ok(Output::Nothing),
        _ => Err(unexpected()),
    }
}

fn delete(shell: &mut Shell, arguments: &Arguments) -> Result<Output, Failure> {
    let path = arguments.path(0)?;
    if arguments.count() > 1 {
        let deprecated = "'delete path [version]' has been deprecated. Please use 'delete [-v version] path' instead.";
        shell.emit(&Output::Note(deprecated.to_owned()))?;
    }
    let version = positional_version(arguments, 1)?;
    write(shell, WriteOp::Delete { path, version })?;
    Ok(Output::Nothing)
}

/// Asks for a change, and explains a lost connection if the request was too large.
fn write(shell: &Shell, operation: WriteOp) -> Result<Reply, Failure> {
    let request = Request::Write(operation.clone());
    shell.session()?.ask(request).map_err(|failure| multi::explain_size(failure, &operation))
}

/// Returns the version of -v, or that of the operand which ZooKeeper 3.4 took.
fn positional_version(arguments: &Arguments, at: usize) -> Result<i32, Failure> {
    match arguments.get(at) {
        Some(text) if !arguments.has("v") => text
            .parse()
            .map_err(|_| Failure::Text(format!("version = {text}: allowed is a whole number; quote data with spaces"))),
        _ => arguments.version(),
    }
}
