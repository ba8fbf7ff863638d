//! A JSON writer that keeps the order of fields, for status reports.

use std::fmt::{Display, Write};

/// A JSON object under construction.
#[derive(Clone, Debug)]
pub struct Object(String);

impl Default for Object {
    fn default() -> Self {
        Self::new()
    }
}

impl Object {
    /// Begins an empty object.
    pub fn new() -> Self {
        Self("{".to_owned())
    }

    /// Adds a field whose value is already JSON.
    ///
    /// Numbers, booleans and `null` are.
    #[must_use]
    pub fn raw(mut self, name: &str, value: impl Display) -> Self {
        if self.0.len() > 1 {
            self.0.push(',');
        }
        quote(name, &mut self.0);
        let _ = write!(self.0, ":{value}");
        self
    }

    /// Adds a string field; quotes and escapes `value`.
    #[must_use]
    pub fn text(self, name: &str, value: &str) -> Self {
        self.raw(name, string(value))
    }

    /// Adds `value` as [`Object::raw`] does, or `null` for `None`.
    #[must_use]
    pub fn optional<T: Display>(self, name: &str, value: Option<T>) -> Self {
        match value {
            Some(value) => self.raw(name, value),
            None => self.raw(name, "null"),
        }
    }

    /// Closes the object and returns its text.
    #[must_use]
    pub fn end(mut self) -> String {
        self.0.push('}');
        self.0
    }
}

/// Returns a JSON array of items that are already JSON.
pub fn list(items: impl IntoIterator<Item = String>) -> String {
    format!("[{}]", items.into_iter().collect::<Vec<_>>().join(","))
}

/// Returns `text` as a quoted JSON string.
pub fn string(text: &str) -> String {
    let mut quoted = String::new();
    quote(text, &mut quoted);
    quoted
}

fn quote(text: &str, out: &mut String) {
    out.push('"');
    for character in text.chars() {
        match character {
            '"' | '\\' => out.extend(['\\', character]),
            '\0'..='\x1f' => {
                let _ = write!(out, "\\u{:04x}", u32::from(character));
            }
            _ => out.push(character),
        }
    }
    out.push('"');
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fields_keep_their_order_and_text_is_escaped() {
        let inner = Object::new().raw("n", 1).end();
        let object = Object::new().text("a\"b", "x\\y\n\u{e9}").raw("inner", inner).optional::<u8>("none", None);
        assert_eq!(object.end(), "{\"a\\\"b\":\"x\\\\y\\u000a\u{e9}\",\"inner\":{\"n\":1},\"none\":null}");
        assert_eq!(Object::new().end(), "{}");
        assert_eq!(list(["1".to_owned(), string("\"")]), r#"[1,"\""]"#);
        assert_eq!(list([]), "[]");
    }
}
