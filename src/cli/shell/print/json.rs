//! The form of `--json`: one value a line.

use super::super::client::Event;
use super::super::failure::Failure;
use super::super::output::{Content, Output};
use super::text::permissions;
use super::{Printed, Stream, escaped, is_text};
use base64ct::{Base64, Encoding};
use serde_json::{Value, json};
use zoolet_model::{AclEntry, Stat};

/// Returns the lines of a result; nothing for a result without a value.
pub(super) fn lines(output: &Output) -> Printed {
    match output {
        Output::Many(outputs) => outputs.iter().flat_map(lines).collect(),
        Output::Nothing | Output::Note(_) => Printed::new(),
        Output::Complaint(left_out) => {
            vec![(Stream::Err, format!("{}\n", failure(left_out, &left_out.message())).into_bytes())]
        }
        other => vec![(Stream::Out, format!("{}\n", text(&value(other))).into_bytes())],
    }
}

fn value(output: &Output) -> Value {
    match output {
        Output::Nothing | Output::Note(_) | Output::Complaint(_) => Value::Null,
        Output::Created(path) => json!({ "created": path }),
        Output::Children { path, names, stat } => with_stat(json!({ "path": path, "children": names }), stat.as_ref()),
        Output::Path(path) => json!({ "path": path }),
        Output::Paths(paths) => json!(paths),
        Output::Data(content) => data(content),
        Output::Stat { path, stat, ttl } => {
            let mut shown = json!({ "path": path, "stat": of_stat(stat) });
            if let Some(ttl_ms) = ttl.ttl_ms {
                shown["ttlMs"] = ttl_ms.into();
                shown["ttlLeftMs"] = ttl.left_ms.into();
            }
            shown
        }
        Output::Acl { path, entries, stat } => {
            with_stat(json!({ "path": path, "acl": of_acl(entries) }), stat.as_ref())
        }
        Output::Count(count) => json!(count),
        Output::Identities(identities) => identities
            .iter()
            .map(|identity| json!({ "scheme": identity.scheme.as_str(), "id": identity.id.as_str() }))
            .collect(),
        Output::Text(_, value) | Output::Remark(_, value) => value.clone(),
        Output::Many(outputs) => outputs.iter().map(value).collect(),
        Output::Own(own) => own.json(),
    }
}

/// Data is `data` if it is text, and `base64` otherwise.
fn data(content: &Content) -> Value {
    let shown = match &content.data {
        None => json!({ "path": content.path, "data": null }),
        Some(bytes) if is_text(bytes) => json!({ "path": content.path, "data": String::from_utf8_lossy(bytes) }),
        Some(bytes) => json!({ "path": content.path, "base64": Base64::encode_string(bytes) }),
    };
    with_stat(shown, content.stat.as_ref())
}

fn with_stat(mut shown: Value, stat: Option<&Stat>) -> Value {
    if let Some(stat) = stat {
        shown["stat"] = of_stat(stat);
    }
    shown
}

/// Returns an ACL, with the letters of its permissions.
pub(in crate::cli::shell) fn of_acl(entries: &[AclEntry]) -> Value {
    let shown = |entry: &AclEntry| json!({ "scheme": entry.scheme.as_str(), "id": entry.id.as_str(), "perms": permissions(entry.perms) });
    entries.iter().map(shown).collect()
}

/// Returns a stat with zkCli's names. A zxid is a text, because it may exceed a JSON reader's numbers.
pub(in crate::cli::shell) fn of_stat(stat: &Stat) -> Value {
    json!({
        "cZxid": hex(stat.czxid), "ctime": stat.ctime, "mZxid": hex(stat.mzxid), "mtime": stat.mtime,
        "pZxid": hex(stat.pzxid), "cversion": stat.cversion, "dataVersion": stat.version, "aclVersion": stat.aversion,
        "ephemeralOwner": hex(stat.ephemeral_owner), "dataLength": stat.data_length, "numChildren": stat.num_children,
    })
}

/// Returns a number of 64 bits, as ZooKeeper shows it. A JSON number would lose digits beyond 53 bits.
pub(in crate::cli::shell) fn hex(number: i64) -> String {
    format!("{number:#x}")
}

/// Returns the line of an event; its zxid is null if the server does not tell it.
pub(in crate::cli::shell) fn event(event: &Event) -> String {
    let zxid = (event.zxid >= 0).then(|| hex(event.zxid));
    let shown = json!({ "event": event.kind, "state": event.state, "path": event.path, "zxid": zxid });
    format!("{}\n", text(&shown))
}

/// Returns the line of a failed command.
pub(in crate::cli::shell) fn failure(failure: &Failure, message: &str) -> String {
    let mut shown = json!({ "error": message });
    if let Failure::Refused { code, path, .. } = failure {
        shown["code"] = json!(code);
        shown["path"] = json!(path);
    }
    text(&shown)
}

/// Returns the text of a value, in which all control characters are escaped.
///
/// The codec escapes those below U+0020 alone. The text of a value has no others than these.
pub(in crate::cli::shell) fn text(value: &Value) -> String {
    escaped(&value.to_string()).into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cli::shell::output::Form;
    use bytes::Bytes;

    fn line(output: &Output) -> String {
        lines(output).into_iter().map(|(_, bytes)| String::from_utf8(bytes).unwrap()).collect()
    }

    #[test]
    fn each_result_is_one_value_a_line() {
        let children = Output::Children { path: "/".to_owned(), names: vec!["a".to_owned()], stat: None };
        assert_eq!(line(&children), "{\"children\":[\"a\"],\"path\":\"/\"}\n");
        let stat = Some(Stat { czxid: 255, ..Stat::default() });
        let shown = |bytes: &'static [u8], stat| {
            let data = Some(Bytes::from_static(bytes));
            line(&Output::Data(Content { path: "/a".to_owned(), data, form: Form::Hex, stat }))
        };
        assert_eq!(shown(b"x", None), "{\"data\":\"x\",\"path\":\"/a\"}\n");
        assert_eq!(shown("\u{9b}2J".as_bytes(), None), "{\"base64\":\"wpsySg==\",\"path\":\"/a\"}\n");
        let path = Output::Path("/\u{9b}\u{1b}".to_owned());
        assert_eq!(line(&path), "{\"path\":\"/\\u009b\\u001b\"}\n");
        assert_eq!(shown(b"\xff", None), "{\"base64\":\"/w==\",\"path\":\"/a\"}\n");
        assert!(shown(b"x", stat).contains("\"cZxid\":\"0xff\""));
        let many = Output::Many(vec![Output::Path("/a".to_owned()), Output::Note("n".to_owned()), Output::Count(2)]);
        assert_eq!(line(&many), "{\"path\":\"/a\"}\n2\n");
        assert_eq!(line(&Output::Nothing), "");
        let remark = Output::Remark("no quota".to_owned(), json!({ "quota": null }));
        assert_eq!(line(&remark), "{\"quota\":null}\n");
        let left_out =
            Output::Complaint(Failure::Refused { code: -102, path: Some("/a".to_owned()), why: String::new() });
        let [(Stream::Err, bytes)] = &lines(&left_out)[..] else { panic!("not a line of standard error") };
        let expected = "{\"code\":-102,\"error\":\"Insufficient permission : /a\",\"path\":\"/a\"}\n";
        assert_eq!(str::from_utf8(bytes).unwrap(), expected);
    }

    #[test]
    fn zxid_is_hexadecimal_text_everywhere() {
        let fired = |zxid| event(&Event { state: "SyncConnected", kind: "NodeCreated", path: None, zxid });
        assert!(fired((1 << 53) + 1).contains("\"zxid\":\"0x20000000000001\""));
        assert!(fired(-1).contains("\"zxid\":null"));
    }
}
