//! The file of `export`: a subtree as JSON values, one a line.
//!
//! The first value is the header, then each znode follows in the order of a walk, and the last value
//! has their number. So both programs hold one znode at a time, and a truncated file is noticed.

use super::acl;
use super::depth_first::order;
use super::failure::Failure;
use super::input::STRUCK;
use super::print;
use super::znode_path;
use base64ct::{Base64, Encoding};
use bytes::Bytes;
use serde_json::de::IoRead;
use serde_json::{Deserializer, Map, StreamDeserializer, Value, json};
use std::cell::Cell;
use std::cmp::Ordering;
use std::io::{self, Read};
use std::rc::Rc;
use zoolet_model::{AclEntry, CreateKind, open_acl};

const FORMAT: &str = "zoolet subtree";
const VERSION: u64 = 1;
/// Bytes of one value of a file; no server stores as much in one znode.
const VALUE_BYTES_MAX: u64 = 128 << 20;

/// A znode of a file.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Entry {
    /// As seen from the top of the subtree, which is `/`.
    pub(super) path: String,
    pub(super) data: Option<Bytes>,
    pub(super) acl: Vec<AclEntry>,
    pub(super) kind: CreateKind,
}

/// Returns the first value of a file.
pub(super) fn header(top: &str) -> Value {
    json!({ "format": FORMAT, "version": VERSION, "path": top })
}

/// Returns the last value of a file; `ephemerals` were left out.
pub(super) fn end(znodes: u64, ephemerals: u64) -> Value {
    json!({ "end": true, "znodes": znodes, "ephemerals": ephemerals })
}

/// Returns the value of a znode. Data is `data` if it is UTF-8, and `base64` otherwise.
pub(super) fn znode(path: &str, data: Option<&Bytes>, acl: &[AclEntry]) -> Value {
    let mut value = json!({ "path": path });
    match data.map(|bytes| (bytes, str::from_utf8(bytes))) {
        None => value["data"] = Value::Null,
        Some((_, Ok(text))) => value["data"] = json!(text),
        Some((bytes, Err(_))) => value["base64"] = json!(Base64::encode_string(bytes)),
    }
    if acl != open_acl() {
        value["acl"] = print::acl_in_json(acl);
    }
    value
}

/// Reads a file, and checks that it is whole.
pub(super) struct Reader<R: Read> {
    file: String,
    values: StreamDeserializer<'static, IoRead<Bounded<R>>, Value>,
    /// Bytes that the next value may have.
    left: Rc<Cell<u64>>,
    /// Path of the last znode.
    last: Option<String>,
    znodes: u64,
    has_ended: bool,
}

impl<R: Read> Reader<R> {
    /// Reads the header. `source` should be buffered; `file` is its name for failures.
    ///
    /// # Errors
    /// The file is no export, or one of a newer format.
    pub(super) fn new(file: &str, source: R) -> Result<Self, Failure> {
        let left = Rc::new(Cell::new(VALUE_BYTES_MAX));
        let source = Bounded { source, left: left.clone() };
        let values = Deserializer::from_reader(source).into_iter();
        let mut reader = Self { file: file.to_owned(), values, left, last: None, znodes: 0, has_ended: false };
        let header = match reader.value() {
            Err(failure) if failure.is_interruption() => return Err(failure),
            read => read.ok().flatten().filter(|header| header["format"] == FORMAT),
        };
        match header.map(|header| header["version"].as_u64()) {
            Some(Some(VERSION)) => Ok(reader),
            Some(Some(version)) => Err(Failure::Text(format!(
                "{file} has version {version} of the format, and this zoolet reads version {VERSION}; use a newer one"
            ))),
            Some(None) | None => Err(Failure::Text(format!(
                "{file} is no export: it does not begin with {}",
                json!({ "format": FORMAT, "version": VERSION })
            ))),
        }
    }

    /// Returns the next znode; `None` after the last one of a whole file.
    ///
    /// # Errors
    /// The file is truncated, or not as `export` writes it.
    pub(super) fn next(&mut self) -> Result<Option<Entry>, Failure> {
        if self.has_ended {
            return Ok(None);
        }
        let Some(value) = self.value()? else {
            return Err(self.wrong("it is truncated: its last line, {\"end\":true,..}, is missing"));
        };
        if value.get("end").is_some() {
            self.check_end(&value)?;
            return Ok(None);
        }
        let entry = entry(&value).map_err(|mistake| self.wrong(&format!("znode {}: {mistake}", self.znodes + 1)))?;
        self.check_place(&entry.path)?;
        self.znodes += 1;
        self.last = Some(entry.path.clone());
        Ok(Some(entry))
    }

    fn value(&mut self) -> Result<Option<Value>, Failure> {
        self.left.set(VALUE_BYTES_MAX);
        match self.values.next() {
            None => Ok(None),
            Some(Ok(value)) => Ok(Some(value)),
            Some(Err(error)) if error.io_error_kind() == Some(STRUCK) => Err(Failure::interrupted()),
            Some(Err(error)) if error.is_eof() => Err(self.wrong(&format!("it is truncated: {error}"))),
            Some(Err(error)) => Err(self.wrong(&error.to_string())),
        }
    }

    fn check_end(&mut self, value: &Value) -> Result<(), Failure> {
        if value["znodes"].as_u64() != Some(self.znodes) {
            let said = &value["znodes"];
            return Err(self.wrong(&format!("its last line tells of {said} znodes, and {} were read", self.znodes)));
        }
        if self.znodes == 0 {
            return Err(self.wrong("it has no znodes"));
        }
        self.has_ended = true;
        if self.value()?.is_some() { Err(self.wrong("values follow the last line")) } else { Ok(()) }
    }

    /// Checks that the znode follows the last one in a walk, so that its parent was there.
    fn check_place(&self, path: &str) -> Result<(), Failure> {
        let Some(last) = &self.last else {
            let is_top = path == "/";
            return if is_top { Ok(()) } else { Err(self.wrong(&format!("its first znode is {path}, not /"))) };
        };
        if order(last, path) != Ordering::Less {
            return Err(self.wrong(&format!("{path} follows {last}: the znodes must be sorted, each once")));
        }
        let parent = path.rsplit_once('/').map_or("", |(parent, _)| parent);
        let is_open = parent.is_empty() || super::depth_first::is_within(last, parent);
        if is_open { Ok(()) } else { Err(self.wrong(&format!("{path} is there without its parent {parent}"))) }
    }

    fn wrong(&self, what: &str) -> Failure {
        Failure::Text(format!("{}: {what}", self.file))
    }
}

fn entry(value: &Value) -> Result<Entry, String> {
    let fields: &Map<String, Value> = value.as_object().ok_or("it is not an object")?;
    if let Some(unknown) =
        fields.keys().find(|name| !["path", "data", "base64", "acl", "kind", "ttl_ms"].contains(&&***name))
    {
        return Err(format!("unknown field {unknown}; allowed are path, data, base64, acl, kind and ttl_ms"));
    }
    let path = text(fields, "path")?.ok_or("path is missing")?.to_owned();
    znode_path::check(&path)?;
    let data = match (fields.get("data"), text(fields, "base64")?) {
        (Some(Value::String(data)), None) => Some(Bytes::copy_from_slice(data.as_bytes())),
        (Some(Value::Null) | None, None) => None,
        (None, Some(coded)) => {
            Some(Base64::decode_vec(coded).map_err(|_| format!("{path}: base64 does not decode"))?.into())
        }
        (Some(_), None) => return Err(format!("{path}: data is a text or null; other bytes are base64")),
        (Some(_), Some(_)) => return Err(format!("{path}: it has data and base64; leave out one")),
    };
    let acl = fields.get("acl").map_or_else(|| Ok(open_acl()), |acl| entries(&path, acl))?;
    let kind = kind(fields).map_err(|mistake| format!("{path}: {mistake}"))?;
    Ok(Entry { path, data, acl, kind })
}

fn kind(fields: &Map<String, Value>) -> Result<CreateKind, String> {
    let ttl = fields.get("ttl_ms");
    match (text(fields, "kind")?, ttl) {
        (None | Some("persistent"), None) => Ok(CreateKind::Persistent),
        (Some("container"), None) => Ok(CreateKind::Container),
        (Some("ttl"), Some(ttl)) => match ttl.as_u64().filter(|ttl| (1..1 << 40).contains(ttl)) {
            Some(ttl_ms) => Ok(CreateKind::Ttl { ttl_ms }),
            None => Err("ttl_ms is a number from 1 to 1099511627775".to_owned()),
        },
        (Some("ttl"), None) => Err("its kind is ttl, and ttl_ms is missing".to_owned()),
        (Some("persistent" | "container") | None, Some(_)) => Err("ttl_ms needs the kind ttl".to_owned()),
        (Some(unknown), _) => Err(format!("unknown kind {unknown}; allowed are persistent, container and ttl")),
    }
}

fn entries(path: &str, acl: &Value) -> Result<Vec<AclEntry>, String> {
    let list = acl.as_array().filter(|list| !list.is_empty());
    let list = list.ok_or_else(|| format!("{path}: acl is a list with at least one entry"))?;
    list.iter()
        .map(|one| {
            let fields = one.as_object().ok_or("an entry of acl is not an object")?;
            let field = |name: &str| text(fields, name)?.ok_or_else(|| format!("an entry of acl has no {name}"));
            let perms = acl::permissions(field("perms")?).map_err(|failure| failure.message())?;
            Ok(AclEntry { perms, scheme: field("scheme")?.into(), id: field("id")?.into() })
        })
        .collect::<Result<_, String>>()
        .map_err(|mistake| format!("{path}: {mistake}"))
}

fn text<'a>(fields: &'a Map<String, Value>, name: &str) -> Result<Option<&'a str>, String> {
    match fields.get(name) {
        None => Ok(None),
        Some(Value::String(text)) => Ok(Some(text)),
        Some(_) => Err(format!("{name} is not a text")),
    }
}

/// Refuses a value that does not end.
struct Bounded<R> {
    source: R,
    left: Rc<Cell<u64>>,
}

impl<R: Read> Read for Bounded<R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let read = self.source.read(buffer)?;
        match self.left.get().checked_sub(read as u64) {
            Some(left) => self.left.set(left),
            None => return Err(io::Error::other("a value is longer than 128 MiB")),
        }
        Ok(read)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use zoolet_model::Perms;

    fn read(text: &str) -> Result<Vec<Entry>, String> {
        let mut reader = Reader::new("f", text.as_bytes()).map_err(|failure| failure.message())?;
        let mut entries = Vec::new();
        while let Some(entry) = reader.next().map_err(|failure| failure.message())? {
            entries.push(entry);
        }
        Ok(entries)
    }

    fn file(znodes: &[Value]) -> String {
        let count = znodes.len() as u64;
        let lines = [header("/app")].into_iter().chain(znodes.iter().cloned()).chain([end(count, 2)]);
        lines.map(|value| format!("{value}\n")).collect()
    }

    #[test]
    fn znodes_are_read_as_they_were_written() {
        let acl = vec![AclEntry { perms: Perms(3), scheme: "digest".into(), id: "a:b=".into() }];
        let znodes = [
            znode("/", Some(&Bytes::from_static("tëxt\n\u{1}".as_bytes())), &acl),
            znode("/a", None, &open_acl()),
            znode("/a/b", Some(&Bytes::from_static(b"\xff\x00")), &open_acl()),
            znode("/a!", Some(&Bytes::new()), &open_acl()),
        ];
        let text = file(&znodes);
        assert!(text.starts_with("{\"format\":\"zoolet subtree\",\"path\":\"/app\",\"version\":1}\n"), "{text}");
        assert!(text.contains("{\"base64\":\"/wA=\",\"path\":\"/a/b\"}\n"), "{text}");
        let entries = read(&text).unwrap();
        let data: Vec<_> = entries.iter().map(|entry| entry.data.as_deref()).collect();
        assert_eq!(data, [Some("tëxt\n\u{1}".as_bytes()), None, Some(b"\xff\x00"), Some(b"")]);
        assert_eq!((&entries[0].acl, &entries[1].acl, entries[1].kind), (&acl, &open_acl(), CreateKind::Persistent));
        // A program that formats JSON anew keeps the values.
        assert_eq!(read(&text.replace(',', " ,\n ").replace("}\n", "}")).unwrap(), entries);
    }

    #[test]
    fn hostile_and_truncated_files_are_refused_with_a_reason() {
        let whole = file(&[json!({"path": "/"}), json!({"path": "/a"}), json!({"path": "/a/b"})]);
        for end in 0..whole.len() - 1 {
            assert!(read(&whole[..end]).is_err(), "{}", &whole[..end]);
        }
        assert_eq!(read(&whole).unwrap().len(), 3);
        for (znodes, reason) in [
            (vec![json!({"path": "/a"})], "f: its first znode is /a, not /"),
            (vec![], "f: it has no znodes"),
            (vec![json!({"path": "/"}), json!({"path": "/"})], "f: / follows /: the znodes must be sorted, each once"),
            (vec![json!({"path": "/"}), json!({"path": "/a/b"})], "f: /a/b is there without its parent /a"),
            (vec![json!({"path": "/"}), json!({"path": "/a/../b"})], "f: znode 2: Invalid path string"),
            (vec![json!([])], "f: znode 1: it is not an object"),
            (vec![json!({"path": "/", "data": 5})], "f: znode 1: /: data is a text or null"),
            (vec![json!({"path": "/", "data": "", "base64": ""})], "f: znode 1: /: it has data and base64"),
            (vec![json!({"path": "/", "base64": "?"})], "f: znode 1: /: base64 does not decode"),
            (vec![json!({"path": "/", "acl": []})], "f: znode 1: /: acl is a list"),
            (
                vec![json!({"path": "/", "acl": [{"scheme": "world", "id": "anyone", "perms": "q"}]})],
                "f: znode 1: /: Unknown perm",
            ),
            (vec![json!({"path": "/", "acls": []})], "f: znode 1: unknown field acls"),
            (vec![json!({"path": "/", "kind": "ephemeral"})], "f: znode 1: /: unknown kind ephemeral"),
            (vec![json!({"path": "/", "kind": "ttl"})], "f: znode 1: /: its kind is ttl"),
        ] {
            let refused = read(&file(&znodes)).unwrap_err();
            assert!(refused.starts_with(reason), "{refused}");
        }
        assert!(read(&whole.replace("\"znodes\":3", "\"znodes\":4")).unwrap_err().contains("tells of 4 znodes, and 3"));
        assert!(read(&(whole.clone() + "{}")).unwrap_err().contains("values follow"));
        assert!(read(&whole.replace("\"version\":1", "\"version\":2")).unwrap_err().contains("version 2"));
        for text in ["", "[]", "hello", "\u{0}", "{\"format\":\"other\"}"] {
            assert!(read(text).unwrap_err().starts_with("f is no export"), "{text}");
        }
        let deep = "[".repeat(100_000);
        assert!(read(&deep).is_err());
        assert!(read(&(header("/").to_string() + &deep)).is_err());
    }

    #[test]
    fn containers_and_ttls_are_accepted() {
        let znodes = [
            json!({"path": "/"}),
            json!({"path": "/c", "kind": "container"}),
            json!({"path": "/t", "kind": "ttl", "ttl_ms": 5}),
        ];
        let kinds: Vec<_> = read(&file(&znodes)).unwrap().into_iter().map(|entry| entry.kind).collect();
        assert_eq!(kinds, [CreateKind::Persistent, CreateKind::Container, CreateKind::Ttl { ttl_ms: 5 }]);
    }
}
