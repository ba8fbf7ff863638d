//! Draws values of requests: paths, versions, data and ACLs, most of them valid.

use super::{Generator, Kind};
use crate::value::Value;

pub(super) const NAMES: &[&str] = &["a", "b", "c", "d", "e", "x", "yy", "a b", "\u{e9}", "..."];

pub(super) const PREFIXES: &[&str] = &["s-", "q", "lock-", ""];

/// Paths for every rule of surface 7.4, and paths that servers reserve.
const ODD_PATHS: &[&str] = &[
    "",
    "/",
    "//",
    "~",
    "~/",
    "relative",
    "rel/ative",
    "/zookeeper",
    "/zookeeper/config",
    "/zookeeper/quota",
    "/zookeeper/config/x",
    "/zookeeper/nothing/x",
    ".",
    "/.",
];

const ODD_ENDS: &[&str] = &[
    "/",
    "//x",
    "/.",
    "/..",
    "/./x",
    "/../x",
    "/...",
    "/a.",
    "/ ",
    "/\u{1}",
    "/\u{1f}",
    "/\u{7f}",
    "/\u{80}",
    "/\u{9f}",
    "/\u{a0}",
    "/\u{d7ff}",
    "/\u{e000}",
    "/\u{f8ff}",
    "/\u{f900}",
    "/\u{ffef}",
    "/\u{fff0}",
    "/\u{fffd}",
    "/\u{1f600}",
    "/\0",
    "/x\0y",
    "/\u{65e5}\u{672c}",
    "/nnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnn",
    "/1/2/3/4/5/6/7/8/9",
];

impl Generator {
    /// Returns a path that mostly exists, sometimes could exist and is rarely invalid.
    pub(super) fn path(&mut self) -> String {
        match self.random.below(100) {
            0..72 => self.existing(),
            72..92 => format!("{}/{}", self.existing(), self.random.of(NAMES)),
            92..97 => match *self.random.of(ODD_PATHS) {
                // In an ensemble its data names the servers' ports.
                "/zookeeper/config" if self.kind != Kind::Standalone => "/zookeeper".to_owned(),
                odd => odd.to_owned(),
            },
            _ => {
                let existing = self.existing();
                format!("{existing}{}", self.random.of(ODD_ENDS))
            }
        }
    }

    /// Returns the path as bytes, sometimes with invalid UTF-8.
    pub(super) fn path_value(&mut self, path: String) -> Value {
        if !self.random.percent(1) {
            return Value::text(path);
        }
        let bad = self.random.of::<&[u8]>(&[
            b"/\xff",
            b"/\xc0\x80",
            b"/\xe2\x82",
            b"/\xed\xa0\x80",
            b"/\xed\xa0\xbd\xed\xb8\x80",
            b"/\xf0\x9f\x98\x80",
            b"/\xf0\x9f\x98",
            b"/\xf8\x88\x80\x80\x80",
            b"/\xe2\x28\xa1",
            b"/a\0b",
        ]);
        if self.random.percent(30) { Value::Bytes(None) } else { Value::text([path.as_bytes(), bad].concat()) }
    }

    pub(super) fn version(&mut self, path: &str, of_acl: bool) -> Value {
        let znode = self.tree.get(path).cloned().unwrap_or_default();
        let right = if of_acl { znode.aversion } else { znode.version };
        Value::Int(match self.random.below(10) {
            0..5 => -1,
            5..8 => right,
            8 => self.random.below(4) as i32,
            _ => *self.random.of(&[-2, i32::MIN, i32::MAX, right + 1]),
        })
    }

    pub(super) fn data(&mut self) -> Value {
        match self.random.below(20) {
            0..3 => Value::Bytes(None),
            3..5 => Value::text(""),
            5..18 => Value::text(format!("v{}", self.random.below(1000))),
            18 => Value::Bytes(Some(vec![0xff, 0, 0xfe])),
            _ => Value::Bytes(Some(vec![b'd'; *self.random.of(&[100, 1023, 1024, 1025, 5000])])),
        }
    }

    pub(super) fn acl(&mut self) -> Value {
        if self.random.percent(80) {
            return open_acl();
        }
        match self.random.below(24) {
            0 => Value::Int(-1),
            1 => Value::List(vec![]),
            2 => Value::Int(-5),
            3 => acl(&[(31, "world", "somebody")]),
            4 => acl(&[(31, "nobody", "x")]),
            5 => acl(&[(31, "digest", "nocolon")]),
            6 => acl(&[(31, "digest", "a:b:c")]),
            7 => acl(&[(31, "ip", *self.random.of(&["300.1.1.1", "127.0.0.1/33", "localhost", "1.2.3", ""]))]),
            8 => Value::List(vec![vec![Value::Int(31), Value::Bytes(None), Value::text("anyone")]]),
            9 => Value::List(vec![vec![
                Value::Int(31),
                Value::text(*self.random.of(&["digest", "auth", "world", "ip"])),
                Value::Bytes(None),
            ]]),
            10 => acl(&[(31, *self.random.of(&["sasl", "x509", "super", "World", ""]), "x")]),
            11 => acl(&[(*self.random.of(&[0, 64, -1, 1 << 30]), "world", "anyone")]),
            12 => acl(&[(31, "world", "anyone"), (31, "world", "anyone"), (1, "world", "anyone")]),
            13..16 => acl(&[(31, "auth", *self.random.of(&["", "x"]))]),
            16..18 => acl(&[(31, "digest", "u1:fpT/y03U+EjItKZOSLGvjnJlyng="), (1, "world", "anyone")]),
            18 => acl(&[(31, "digest", "u2:o9NxcCGDPOlcV7JVhmKHOf5ctVE=")]),
            19 => acl(&[(31, "ip", *self.random.of(&["127.0.0.1", "127.0.0.0/8", "10.0.0.0/8", "127.0.0.1/32"]))]),
            20..22 => acl(&[(*self.random.of(&[1, 2, 4, 8, 16, 5, 30, 15]), "world", "anyone")]),
            _ => acl(&[(1, "digest", "u1:fpT/y03U+EjItKZOSLGvjnJlyng="), (31, "auth", ""), (16, "world", "anyone")]),
        }
    }
}

pub(super) fn acl(entries: &[(i32, &str, &str)]) -> Value {
    Value::List(
        entries
            .iter()
            .map(|(perms, scheme, id)| vec![Value::Int(*perms), Value::text(scheme), Value::text(id)])
            .collect(),
    )
}

pub(super) fn open_acl() -> Value {
    acl(&[(31, "world", "anyone")])
}
