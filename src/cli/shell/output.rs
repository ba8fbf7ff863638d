//! What commands return: values without their form. `print` gives them a form.

use super::failure::Failure;
use bytes::Bytes;
use serde_json::Value;
use zoolet_model::{AclEntry, AuthId, Stat, TimeToLive};

/// The result of a command.
pub(super) enum Output {
    Nothing,
    /// A znode was created.
    Created(String),
    /// The children of a znode, sorted.
    Children {
        path: String,
        names: Vec<String>,
        stat: Option<Stat>,
    },
    /// One path of several, each on its line.
    Path(String),
    /// Several paths in one list.
    Paths(Vec<String>),
    Data(Content),
    Stat {
        path: String,
        stat: Stat,
        /// Empty at a server that cannot tell.
        ttl: TimeToLive,
    },
    Acl {
        path: String,
        entries: Vec<AclEntry>,
        stat: Option<Stat>,
    },
    Count(i32),
    Identities(Vec<AuthId>),
    /// A text for people, with the value that stands for it in JSON.
    Text(String, Value),
    /// A remark beside the result, on standard error. JSON has none.
    Note(String),
    /// A text on standard error, with the value that stands for it in JSON.
    Remark(String, Value),
    /// A part that is left out while the command goes on: a line of standard error, also in JSON.
    Complaint(Failure),
    /// Several results, in their order.
    Many(Vec<Self>),
    /// A result that brings its own text and JSON.
    Own(Box<dyn Show>),
}

/// The data of a znode.
pub(super) struct Content {
    pub(super) path: String,
    /// `None` is null data, which differs from empty data.
    pub(super) data: Option<Bytes>,
    pub(super) form: Form,
    pub(super) stat: Option<Stat>,
}

/// How data is shown.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Form {
    /// As text; as base64 with a note if it is no text.
    Text,
    Base64,
    /// As a table of bytes, with their characters.
    Hex,
    /// As hexadecimal digits.
    Digits,
    /// As they are, without an end of line.
    Raw,
}

/// A result with a form of its own.
pub(super) trait Show {
    /// Returns the lines for people, with their ends.
    fn text(&self) -> Vec<u8>;
    /// Returns the value of `--json`.
    fn json(&self) -> Value;
}

impl Output {
    /// Returns a text that is itself in JSON.
    pub(super) fn said(text: impl Into<String>) -> Self {
        let text = text.into();
        let value = Value::String(text.clone());
        Self::Text(text, value)
    }
}
