//! The form for people and scripts: zkCli's.

use super::super::client::Event;
use super::super::output::{Content, Form, Output};
use super::{Printed, Stream, dump, escaped, time};
use base64ct::{Base64, Encoding};
use std::fmt::Write;
use zoolet_model::{AclEntry, Perms, Stat, TimeToLive};

/// Returns the lines of a result.
pub(super) fn lines(output: &Output) -> Printed {
    let mut printed = Printed::new();
    add(output, &mut printed);
    printed
}

fn add(output: &Output, printed: &mut Printed) {
    let mut out = |text: String| printed.push((Stream::Out, text.into_bytes()));
    match output {
        Output::Nothing => {}
        Output::Created(path) => printed.push((Stream::Err, format!("Created {path}\n").into_bytes())),
        Output::Children { names, stat, .. } => out(format!("{}\n{}", list(names), optional(stat.as_ref()))),
        Output::Path(path) => out(format!("{path}\n")),
        Output::Paths(paths) => out(format!("{}\n", list(paths))),
        Output::Data(content) => data(content, printed),
        Output::Stat { stat, ttl, .. } => out(format!("{}{}", stat_block(stat), ttl_line(ttl))),
        Output::Acl { entries, stat, .. } => {
            let entries: String = entries.iter().map(acl_entry).collect();
            out(format!("{entries}{}", optional(stat.as_ref())));
        }
        Output::Count(count) => out(format!("{count}\n")),
        Output::Identities(identities) => {
            let mut text = "Auth scheme: User\n".to_owned();
            for identity in identities {
                _ = writeln!(text, "{}: {}", identity.scheme, identity.id);
            }
            out(text);
        }
        Output::Text(text, _) => out(format!("{text}\n")),
        Output::Complaint(failure) => printed.push((Stream::Err, format!("{}\n", failure.message()).into_bytes())),
        Output::Note(text) | Output::Remark(text, _) => printed.push((Stream::Err, format!("{text}\n").into_bytes())),
        Output::Many(outputs) => outputs.iter().for_each(|output| add(output, printed)),
        Output::Own(own) => printed.push((Stream::Out, own.text())),
    }
}

fn list(names: &[String]) -> String {
    format!("[{}]", names.join(", "))
}

fn optional(stat: Option<&Stat>) -> String {
    stat.map(stat_block).unwrap_or_default()
}

fn data(content: &Content, printed: &mut Printed) {
    let mut text = match (&content.data, content.form) {
        (None, Form::Raw | Form::Digits) => Vec::new(),
        (None, Form::Text | Form::Base64 | Form::Hex) => b"null".to_vec(),
        (Some(bytes), Form::Text) if is_text(bytes) => bytes.to_vec(),
        (Some(bytes), Form::Text) => {
            let note =
                format!("{}: {} bytes that are no text, as base64; get -x shows a table\n", content.path, bytes.len());
            printed.push((Stream::Err, note.into_bytes()));
            Base64::encode_string(bytes).into_bytes()
        }
        (Some(bytes), Form::Base64) => Base64::encode_string(bytes).into_bytes(),
        (Some(bytes), Form::Hex) => dump::table(bytes).into_bytes(),
        (Some(bytes), Form::Digits) => bytes.iter().map(|byte| format!("{byte:02x}")).collect::<String>().into_bytes(),
        (Some(bytes), Form::Raw) => bytes.to_vec(),
    };
    if content.form != Form::Raw {
        text.push(b'\n');
    }
    text.extend(optional(content.stat.as_ref()).into_bytes());
    printed.push((if content.form == Form::Raw { Stream::Raw } else { Stream::Out }, text));
}

/// Returns whether bytes are text that does nothing to a terminal but move to a new line or column.
pub(super) fn is_text(bytes: &[u8]) -> bool {
    str::from_utf8(bytes).is_ok_and(|text| text.chars().all(|c| !c.is_control() || matches!(c, '\n' | '\r' | '\t')))
}

/// Returns the line of a time to live; empty for a znode without one.
fn ttl_line(ttl: &TimeToLive) -> String {
    match (ttl.ttl_ms, ttl.left_ms) {
        (None, _) => String::new(),
        (Some(ttl_ms), None) => format!("timeToLive = {ttl_ms} ms, which begin when the last child is deleted\n"),
        (Some(ttl_ms), Some(left_ms)) => format!("timeToLive = {ttl_ms} ms, {left_ms} ms left\n"),
    }
}

/// Returns the eleven lines of a stat.
fn stat_block(stat: &Stat) -> String {
    let rows: [(&str, String); 11] = [
        ("cZxid", format!("{:#x}", stat.czxid)),
        ("ctime", time::text(stat.ctime)),
        ("mZxid", format!("{:#x}", stat.mzxid)),
        ("mtime", time::text(stat.mtime)),
        ("pZxid", format!("{:#x}", stat.pzxid)),
        ("cversion", stat.cversion.to_string()),
        ("dataVersion", stat.version.to_string()),
        ("aclVersion", stat.aversion.to_string()),
        ("ephemeralOwner", format!("{:#x}", stat.ephemeral_owner)),
        ("dataLength", stat.data_length.to_string()),
        ("numChildren", stat.num_children.to_string()),
    ];
    rows.into_iter().fold(String::new(), |text, (name, value)| text + name + " = " + &value + "\n")
}

fn acl_entry(entry: &AclEntry) -> String {
    format!("'{},'{}\n: {}\n", entry.scheme, entry.id, permissions(entry.perms))
}

/// Returns the letters of permissions.
pub(super) fn permissions(perms: Perms) -> String {
    let letters =
        [(Perms::CREATE, 'c'), (Perms::DELETE, 'd'), (Perms::READ, 'r'), (Perms::WRITE, 'w'), (Perms::ADMIN, 'a')];
    letters.into_iter().filter(|(perm, _)| perms.intersects(*perm)).map(|(_, letter)| letter).collect()
}

/// Returns an event as zkCli prints it.
pub(in crate::cli::shell) fn event(event: &Event) -> String {
    let path = escaped(event.path.as_deref().unwrap_or("null"));
    format!("\nWATCHER::\n\nWatchedEvent state:{} type:{} path:{path} zxid: {}\n", event.state, event.kind, event.zxid)
}

#[cfg(test)]
mod tests {
    use super::*;
    use bytes::Bytes;

    fn printed(output: &Output) -> (String, String) {
        let of = |wanted: Stream| {
            let bytes: Vec<u8> =
                lines(output).into_iter().filter(|(stream, _)| *stream == wanted).flat_map(|(_, text)| text).collect();
            String::from_utf8(bytes).unwrap()
        };
        (of(Stream::Out), of(Stream::Err))
    }

    fn content(data: Option<&'static [u8]>, form: Form) -> Output {
        let data = data.map(Bytes::from_static);
        Output::Data(Content { path: "/a".to_owned(), data, form, stat: None })
    }

    #[test]
    fn results_have_zkclis_form() {
        let names = vec!["a".to_owned(), "b".to_owned()];
        let children = Output::Children { path: "/".to_owned(), names, stat: None };
        assert_eq!(printed(&children).0, "[a, b]\n");
        assert_eq!(printed(&Output::Created("/a".to_owned())), (String::new(), "Created /a\n".to_owned()));
        let entries = vec![AclEntry { perms: Perms(31), scheme: "world".into(), id: "anyone".into() }];
        let acl = Output::Acl { path: "/".to_owned(), entries, stat: None };
        assert_eq!(printed(&acl).0, "'world,'anyone\n: cdrwa\n");
        assert_eq!(permissions(Perms(1 | 16)), "ra");
        let stat = Stat { czxid: 16, ephemeral_owner: -1, ..Stat::default() };
        let lives = |ttl_ms, left_ms| ttl_line(&TimeToLive { ttl_ms, left_ms });
        assert_eq!(lives(None, None), "");
        assert_eq!(lives(Some(9), Some(4)), "timeToLive = 9 ms, 4 ms left\n");
        assert_eq!(lives(Some(9), None), "timeToLive = 9 ms, which begin when the last child is deleted\n");
        let block = stat_block(&stat);
        assert!(block.starts_with("cZxid = 0x10\nctime = Thu Jan 01 00:00:00 UTC 1970\n"), "{block}");
        assert!(block.contains("ephemeralOwner = 0xffffffffffffffff\n") && block.lines().count() == 11, "{block}");
        let fired = Event { state: "SyncConnected", kind: "NodeCreated", path: Some("/a".to_owned()), zxid: 7 };
        assert!(event(&fired).ends_with("\nWatchedEvent state:SyncConnected type:NodeCreated path:/a zxid: 7\n"));
    }

    #[test]
    fn data_that_is_no_text_is_shown_as_base64_with_a_note() {
        assert_eq!(printed(&content(None, Form::Text)).0, "null\n");
        assert_eq!(printed(&content(Some(b"two\nlines"), Form::Text)).0, "two\nlines\n");
        assert_eq!(printed(&content(Some(b"hi"), Form::Base64)).0, "aGk=\n");
        for bytes in [&b"\x1b[2J"[..], b"\xff\x00", b"a\x00"] {
            let (out, note) = printed(&content(Some(bytes), Form::Text));
            assert_eq!(out, format!("{}\n", Base64::encode_string(bytes)));
            assert!(note.starts_with("/a: "), "{note}");
        }
    }
}
