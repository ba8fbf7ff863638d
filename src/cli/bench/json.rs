//! One JSON object, written in the order of its fields.

use std::fmt::{Display, Write};

pub(super) struct Object(String);

impl Object {
    pub(super) fn new() -> Self {
        Self("{".to_owned())
    }

    /// A number, a truth, `null`, or anything else that is JSON already.
    pub(super) fn raw(mut self, name: &str, value: impl Display) -> Self {
        if self.0.len() > 1 {
            self.0.push(',');
        }
        quote(name, &mut self.0);
        let _ = write!(self.0, ":{value}");
        self
    }

    pub(super) fn text(self, name: &str, value: &str) -> Self {
        let mut quoted = String::new();
        quote(value, &mut quoted);
        self.raw(name, quoted)
    }

    pub(super) fn optional<T: Display>(self, name: &str, value: Option<T>) -> Self {
        match value {
            Some(value) => self.raw(name, value),
            None => self.raw(name, "null"),
        }
    }

    pub(super) fn end(mut self) -> String {
        self.0.push('}');
        self.0
    }
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
    }
}
