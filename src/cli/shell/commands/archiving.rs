//! Commands that write a subtree to a file, and read it back.

use super::super::arguments::Arguments;
use super::super::client::{Interrupts, Session};
use super::super::depth_first::{below, under};
use super::super::exported;
use super::super::failure::{Failure, code};
use super::super::files::{self, Saved};
use super::super::multi::{self, COUNT_MAX, LastAcl, Multi, creation, requested};
use super::super::output::{Output, Show};
use super::super::print;
use super::super::sources::{self, Item, Pair, Pairs, Source, Subtree};
use super::super::table::{Choice, Command, Operands, Origin};
use super::super::{Printer, Shell};
use super::comparing::Difference;
use serde_json::{Value, json};
use std::sync::Arc;
use zoolet_model::{Request, WriteOp};

pub(in crate::cli::shell) const TABLE: &[Command] = &[
    Command {
        name: "export",
        usage: "[-o FILE] [--force] [-d] path",
        options: &[
            Choice::value("o", "FILE", "write to FILE instead of standard output"),
            Choice::flag("force", "replace FILE if it exists"),
            Choice::flag("d", "leave out ACLs"),
        ],
        says: "write a subtree as JSON, without its ephemerals",
        origin: Origin::Zoolet,
        operands: Operands::Path,
        better: "",
        run: export,
    },
    Command {
        name: "import",
        usage: "[--merge|--replace] [--dry-run] [-d] FILE path",
        options: &[
            Choice::flag("merge", "the subtree may exist: set the znodes that differ, and keep the others"),
            Choice::flag("replace", "as --merge, and delete znodes that are not in the file"),
            Choice::flag("dry-run", "print the differences and change nothing"),
            Choice::flag("d", "leave ACLs alone; new znodes have the open ACL"),
        ],
        says: "make a subtree of an exported file",
        origin: Origin::Zoolet,
        operands: Operands::FileAndPath,
        better: "",
        run: import,
    },
];

/// A line of an exported file.
struct Line(Value);

impl Show for Line {
    fn text(&self) -> Vec<u8> {
        format!("{}\n", print::json_text(&self.0)).into_bytes()
    }

    fn json(&self) -> Value {
        self.0.clone()
    }
}

/// Where an export goes.
enum Target {
    Screen(Printer),
    File(Saved),
}

impl Target {
    fn write(&mut self, value: Value) -> Result<(), Failure> {
        match self {
            Self::Screen(printer) => printer.print(&Output::Own(Box::new(Line(value)))),
            Self::File(saved) => saved.write(&Line(value).text()),
        }
    }
}

fn export(shell: &mut Shell, arguments: &Arguments) -> Result<Output, Failure> {
    let (path, with_acls) = (arguments.path(0)?, !arguments.has("d"));
    let mut subtree = Subtree::new(shell.session()?, &path, with_acls);
    // The first znode is read before a file is made for it.
    let mut next = subtree.next()?;
    if next.is_none() {
        return Err(Failure::Text(format!("{path} is an ephemeral, which lives as long as its session: not exported")));
    }
    let name = arguments.value("o");
    let mut target = match name {
        Some(name) => Target::File(Saved::create(name, arguments.has("force"))?),
        None => Target::Screen(shell.printer()),
    };
    target.write(exported::header(&path))?;
    let mut znodes = 0;
    while let Some(Item { entry, .. }) = next {
        let acl = if with_acls { entry.acl } else { zoolet_model::open_acl() };
        target.write(exported::znode(&entry.path, entry.data.as_ref(), &acl))?;
        znodes += 1;
        next = subtree.next()?;
    }
    target.write(exported::end(znodes, subtree.ephemerals))?;
    let left_out = subtree.ephemerals;
    let ephemerals = if left_out == 0 { String::new() } else { format!("; ephemerals left out: {left_out}") };
    match (target, name) {
        (Target::File(saved), Some(name)) => {
            saved.finish()?;
            let text = format!("exported {znodes} znodes to {name}{ephemerals}");
            Ok(Output::Text(text, json!({ "exported": znodes, "ephemerals": left_out, "file": name })))
        }
        _ if left_out > 0 => Ok(Output::Note(ephemerals.trim_start_matches("; ").to_owned())),
        _ => Ok(Output::Nothing),
    }
}

/// What happens to znodes that are there.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Existing {
    Refuse,
    Merge,
    Replace,
}

fn import(shell: &mut Shell, arguments: &Arguments) -> Result<Output, Failure> {
    let (file, path) = (arguments.word(0)?.to_owned(), arguments.path(1)?);
    let existing = match (arguments.has("merge"), arguments.has("replace")) {
        (true, true) => return Err(Failure::text("--merge and --replace exclude each other")),
        (true, false) => Existing::Merge,
        (false, true) => Existing::Replace,
        (false, false) => Existing::Refuse,
    };
    let session = shell.session()?;
    let with_acls = !arguments.has("d");
    let there = match session.ask(Request::Exists { path: path.clone(), watch: false }) {
        Ok(_) if existing == Existing::Refuse => {
            return Err(Failure::Text(format!(
                "{path} exists; --merge sets the znodes that differ, --replace also deletes those that are not in \
                 {file}; --dry-run shows the differences"
            )));
        }
        Ok(_) => {
            check(&file, Some(session), &path, &shell.interrupts)?;
            if existing == Existing::Replace {
                Source::server(session, &path, with_acls)
            } else {
                // The destination may be larger than the file, and an ACL may hide parts of it.
                Source::listed(session, &path, with_acls, &file, &shell.interrupts)?
            }
        }
        Err(failure) if failure.is(code::NO_NODE) => {
            check(&file, None, &path, &shell.interrupts)?;
            Source::Nothing
        }
        Err(failure) => return Err(failure),
    };
    let printer = shell.printer();
    let is_dry = arguments.has("dry-run");
    let report = |difference: &Difference| {
        if is_dry { printer.print(&Output::Own(Box::new(difference.clone()))) } else { Ok(()) }
    };
    let mut import = Import {
        session,
        top: &path,
        is_dry,
        with_acls,
        deletes: existing == Existing::Replace,
        multi: Multi::default(),
        wide: Vec::new(),
        acls: Vec::new(),
        surplus: Vec::new(),
        counts: Counts::default(),
    };
    Source::file(&file, &shell.interrupts)
        .and_then(|file| import.run(Pairs::new(there, file), report))
        .map_err(|failure| import.given_up(failure))?;
    let counts = import.counts;
    Ok(Output::Text(counts.text(is_dry), counts.json(is_dry)))
}

/// Checks the whole file before the import changes anything. With a session, it also refuses a file
/// that lists the path of an ephemeral; `None` if the destination does not exist.
fn check(file: &str, session: Option<&Session>, top: &str, interrupts: &Arc<Interrupts>) -> Result<(), Failure> {
    if !files::open(file, interrupts)?.can_be_read_again() {
        return Err(Failure::Text(format!("{file} is no regular file; import reads it more than once")));
    }
    if let Some(session) = session {
        let Some(ephemeral) = sources::listed_ephemeral(session, top, file, interrupts)? else { return Ok(()) };
        return Err(Failure::Text(format!(
            "{file} has a znode at {}, and there is an ephemeral of a session; nothing was imported",
            below(top, &ephemeral)
        )));
    }
    let Source::File(mut reader) = Source::file(file, interrupts)? else { return Ok(()) };
    while reader.next()?.is_some() {}
    Ok(())
}

/// The changes of an import.
#[derive(Clone, Copy, Default, Debug)]
struct Counts {
    created: u64,
    changed: u64,
    deleted: u64,
    unchanged: u64,
    /// Operations that the server has carried out.
    done: u64,
}

impl Counts {
    fn text(&self, is_dry: bool) -> String {
        let Self { created, changed, deleted, unchanged, .. } = self;
        let would = if is_dry { "would be " } else { "" };
        format!("{would}created {created}, changed {changed}, deleted {deleted}, unchanged {unchanged}")
    }

    fn json(&self, is_dry: bool) -> Value {
        let Self { created, changed, deleted, unchanged, .. } = self;
        json!({ "created": created, "changed": changed, "deleted": deleted, "unchanged": unchanged, "dry_run": is_dry })
    }
}

struct Import<'a> {
    session: &'a Session,
    top: &'a str,
    is_dry: bool,
    with_acls: bool,
    deletes: bool,
    multi: Multi,
    /// ACLs of parents that this import has created with an entry more, parents before children.
    wide: Vec<LastAcl>,
    /// ACLs of existing znodes to set, which no multi can.
    acls: Vec<LastAcl>,
    /// Znodes to delete, parents before children.
    surplus: Vec<Read>,
    counts: Counts,
}

/// A znode as the import has read it, without its data and ACL: a subtree may have a million.
struct Read {
    /// As seen from the top.
    path: String,
    version: i32,
    acl_version: i32,
    czxid: i64,
}

impl From<Item> for Read {
    fn from(Item { entry, version, acl_version, czxid }: Item) -> Self {
        Self { path: entry.path, version, acl_version, czxid }
    }
}

impl Import<'_> {
    fn run(
        &mut self,
        mut pairs: Pairs<'_>,
        report: impl Fn(&Difference) -> Result<(), Failure>,
    ) -> Result<(), Failure> {
        while let Some(pair) = pairs.next()? {
            match pair {
                Pair::Left(item) if self.deletes => self.surplus.push(item.into()),
                Pair::Left(_) => {}
                Pair::Right(item) => {
                    report(&Difference::Added(item.entry.path.clone()))?;
                    let has_children = pairs.right_has_children(&item.entry.path);
                    self.create(item, has_children)?;
                }
                Pair::Both(there, mut wanted) => {
                    if !self.with_acls {
                        wanted.entry.acl.clone_from(&there.entry.acl);
                    }
                    match Difference::between(&there.entry, &wanted.entry) {
                        None => self.counts.unchanged += 1,
                        Some(difference) => {
                            report(&difference)?;
                            self.change(there, wanted)?;
                        }
                    }
                }
            }
        }
        // Parents of ephemerals stay with them.
        self.surplus.retain(|read| !pairs.left.is_occupied(&read.path));
        for read in &self.surplus {
            report(&Difference::Removed(read.path.clone()))?;
        }
        self.delete()?;
        if self.counts.done == 0 {
            // This is the only multi, so it may work with the ACLs of the file, all or nothing.
            self.flush_with(Multi::run)?;
        } else {
            self.flush()?;
        }
        self.set_acls()
    }

    fn create(&mut self, item: Item, has_children: bool) -> Result<(), Failure> {
        self.counts.created += 1;
        if self.is_dry {
            return Ok(());
        }
        let acl = if self.with_acls { item.entry.acl } else { zoolet_model::open_acl() };
        let path = under(self.top, &item.entry.path);
        let creation = creation(&path, item.entry.data, &acl, item.entry.kind);
        self.make_room(&creation)?;
        self.multi.add_creation(creation, has_children);
        Ok(())
    }

    fn change(&mut self, there: Item, wanted: Item) -> Result<(), Failure> {
        self.counts.changed += 1;
        let path = under(self.top, &wanted.entry.path);
        if there.entry.acl != wanted.entry.acl {
            // At the end, so that a narrower ACL does not hinder this import.
            let acl = requested(&wanted.entry.acl);
            self.acls.push(LastAcl { path: path.clone(), acl, version: there.acl_version });
        }
        if there.entry.data == wanted.entry.data {
            return Ok(());
        }
        let change = WriteOp::SetData { path: path.into(), data: wanted.entry.data, version: there.version };
        self.add(change, &there.into())
    }

    fn delete(&mut self) -> Result<(), Failure> {
        while let Some(read) = self.surplus.pop() {
            self.counts.deleted += 1;
            let path = under(self.top, &read.path);
            self.add(WriteOp::Delete { path: path.into(), version: read.version }, &read)?;
        }
        Ok(())
    }

    fn set_acls(&mut self) -> Result<(), Failure> {
        if self.is_dry {
            return Ok(());
        }
        // Children first: a parent's ACL does not matter to its children's own. Each stays in its
        // list until it is set, for the end of an import that fails.
        while let Some(acl) = self.wide.last() {
            acl.set(self.session)?;
            self.wide.pop();
            self.counts.done += 1;
        }
        while let Some(acl) = self.acls.last() {
            let left = format!("ACLs that are not set yet: {}, next that of {}", self.acls.len(), acl.path);
            acl.set(self.session).map_err(|failure| failure.because(&left))?;
            self.acls.pop();
            self.counts.done += 1;
        }
        Ok(())
    }

    /// Adds a change of a znode, which has to be the one that was read.
    fn add(&mut self, operation: WriteOp, read: &Read) -> Result<(), Failure> {
        if self.is_dry {
            return Ok(());
        }
        self.make_room(&operation)?;
        self.multi.expect(&under(self.top, &read.path), read.czxid, read.acl_version);
        self.multi.add(operation);
        Ok(())
    }

    /// Sends the waiting operations if this one does not fit any more.
    fn make_room(&mut self, operation: &WriteOp) -> Result<(), Failure> {
        if self.multi.has_room(operation, COUNT_MAX) { Ok(()) } else { self.flush() }
    }

    /// Sends the operations; later ones may create more children of the same parents.
    fn flush(&mut self) -> Result<(), Failure> {
        self.flush_with(Multi::run_wide)
    }

    fn flush_with(
        &mut self,
        run: fn(Multi, &Session, &mut Vec<LastAcl>) -> Result<(), Failure>,
    ) -> Result<(), Failure> {
        if self.multi.is_empty() {
            return Ok(());
        }
        let multi = std::mem::take(&mut self.multi);
        let count = multi.count() as u64;
        run(multi, self.session, &mut self.wide)?;
        self.counts.done += count;
        Ok(())
    }

    /// Narrows the ACLs that are too wide, and says how far the import came.
    fn given_up(&mut self, failure: Failure) -> Failure {
        let done = self.counts.done;
        let mut state = if done == 0 && !failure.may_have_changed() {
            "nothing was imported".to_owned()
        } else {
            format!("operations carried out before: {done}; import --merge or --replace continues")
        };
        let wide = multi::narrow(self.session, std::mem::take(&mut self.wide));
        if let Some(wide) = multi::still_wide(&wide, "the file") {
            state = format!("{wide}\n{state}");
        }
        match failure {
            // Before the first change, the text says enough.
            Failure::Text(text) if done > 0 => Failure::Text(format!("{text}\n{state}")),
            other => other.because(&state),
        }
    }
}
