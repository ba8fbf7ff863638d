//! ZooKeeper's primitive values: as bytes of a frame, and as text of a script.

use std::fmt::{self, Write as _};

/// One value of a record. Any sequence of values is a body, valid or not.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Value {
    /// 32 bits; also the count of a null list (-1) or a false count.
    Int(i32),
    /// 64 bits.
    Long(i64),
    /// One byte; a boolean may have any value.
    Byte(u8),
    /// A string or a buffer: a length and bytes. `None` is the length -1.
    Bytes(Option<Vec<u8>>),
    /// A count and that many elements.
    List(Vec<Vec<Value>>),
    /// The newest zxid that this session had seen that number of replies ago.
    ///
    /// It counts replies, not zxids: if one server has spent one zxid more, the same distance names
    /// different changes.
    Seen(usize),
}

/// State of the play that the encoding of a [`Value`] needs.
#[derive(Clone, Copy, Debug)]
pub struct Place<'a> {
    /// Replaces the leading `~` of a path.
    pub root: &'a str,
    /// The newest zxid that the session had seen at each of its last replies.
    pub seen: &'a [i64],
}

impl Value {
    /// Bytes from text.
    pub fn text(text: impl AsRef<[u8]>) -> Self {
        Self::Bytes(Some(text.as_ref().to_vec()))
    }

    /// A list of strings.
    pub fn texts(texts: impl IntoIterator<Item = Vec<u8>>) -> Self {
        Self::List(texts.into_iter().map(|text| vec![Self::Bytes(Some(text))]).collect())
    }

    /// Returns the bytes of a `Bytes` as the server receives them.
    pub fn placed(&self, place: Place<'_>) -> Option<Vec<u8>> {
        match self {
            Self::Bytes(Some(bytes)) => Some(placed(bytes, place.root)),
            _ => None,
        }
    }

    /// Appends its encoding.
    pub fn encode(&self, place: Place<'_>, out: &mut Vec<u8>) {
        match self {
            Self::Int(number) => out.extend(number.to_be_bytes()),
            Self::Long(number) => out.extend(number.to_be_bytes()),
            Self::Byte(byte) => out.push(*byte),
            Self::Bytes(None) => out.extend((-1_i32).to_be_bytes()),
            Self::Bytes(Some(bytes)) => {
                let bytes = placed(bytes, place.root);
                out.extend((bytes.len() as i32).to_be_bytes());
                out.extend(bytes);
            }
            Self::List(elements) => {
                out.extend((elements.len() as i32).to_be_bytes());
                elements.iter().flatten().for_each(|value| value.encode(place, out));
            }
            Self::Seen(back) => out.extend(place.seen.iter().rev().nth(*back).unwrap_or(&0).to_be_bytes()),
        }
    }
}

fn placed(bytes: &[u8], root: &str) -> Vec<u8> {
    match bytes.strip_prefix(b"~") {
        Some(rest) => [root.as_bytes(), rest].concat(),
        None => bytes.to_vec(),
    }
}

/// From this length on, equal bytes are written as a repetition.
const REPETITION_BYTES_MIN: usize = 40;

impl fmt::Display for Value {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Int(number) => write!(f, "{number}"),
            Self::Long(number) => write!(f, "{number}L"),
            Self::Byte(byte) => write!(f, "{byte}b"),
            Self::Bytes(None) => write!(f, "null"),
            Self::Bytes(Some(bytes)) => match bytes.first() {
                Some(first) if bytes.len() >= REPETITION_BYTES_MIN && bytes.iter().all(|byte| byte == first) => {
                    write!(f, "{}*{}", quoted(&[*first]), bytes.len())
                }
                _ => f.write_str(&quoted(bytes)),
            },
            Self::List(elements) => {
                f.write_char('[')?;
                for (number, element) in elements.iter().enumerate() {
                    f.write_str(if number == 0 { "(" } else { " (" })?;
                    f.write_str(&joined(element))?;
                    f.write_char(')')?;
                }
                f.write_char(']')
            }
            Self::Seen(back) => write!(f, "seen-{back}"),
        }
    }
}

/// Joins values with spaces.
pub fn joined(values: &[Value]) -> String {
    values.iter().map(Value::to_string).collect::<Vec<_>>().join(" ")
}

/// Quotes bytes; escapes all but printable ASCII as `\xNN`.
pub fn quoted(bytes: &[u8]) -> String {
    let mut text = String::from("\"");
    for byte in bytes {
        match byte {
            b'"' => text.push_str("\\x22"),
            b'\\' => text.push_str("\\x5c"),
            b' '..=b'~' => text.push(char::from(*byte)),
            byte => {
                let _ = write!(text, "\\x{byte:02x}");
            }
        }
    }
    text.push('"');
    text
}

/// Returns the bytes of one text that [`quoted`] wrote; `None` for other text.
pub fn unquoted(text: &str) -> Option<Vec<u8>> {
    match parse_values(text).ok()?.pop()? {
        Value::Bytes(bytes) => bytes,
        _ => None,
    }
}

/// Parses the output of [`joined`].
pub fn parse_values(text: &str) -> Result<Vec<Value>, String> {
    let mut reader = Reader { rest: text };
    let values = reader.values()?;
    if reader.rest.is_empty() { Ok(values) } else { Err(format!("not understood: {:?}", reader.rest)) }
}

struct Reader<'a> {
    rest: &'a str,
}

impl Reader<'_> {
    /// Reads up to a closing bracket or the end.
    fn values(&mut self) -> Result<Vec<Value>, String> {
        let mut values = Vec::new();
        loop {
            self.rest = self.rest.trim_start();
            if self.rest.is_empty() || self.rest.starts_with([')', ']']) {
                return Ok(values);
            }
            values.push(self.value()?);
        }
    }

    fn value(&mut self) -> Result<Value, String> {
        if self.eat("[") {
            let mut elements = Vec::new();
            loop {
                self.rest = self.rest.trim_start();
                if self.eat("]") {
                    return Ok(Value::List(elements));
                }
                if !self.eat("(") {
                    return Err(format!("an element begins with ( but here is {:?}", self.rest));
                }
                elements.push(self.values()?);
                if !self.eat(")") {
                    return Err("an element ends with )".to_owned());
                }
            }
        }
        if self.rest.starts_with('"') {
            return self.bytes();
        }
        let end = self.rest.find([' ', ')', ']']).unwrap_or(self.rest.len());
        let (word, rest) = self.rest.split_at(end);
        self.rest = rest;
        let bad = |_| format!("not a number: {word}");
        if word == "null" {
            Ok(Value::Bytes(None))
        } else if let Some(back) = word.strip_prefix("seen-") {
            Ok(Value::Seen(back.parse().map_err(bad)?))
        } else if let Some(long) = word.strip_suffix('L') {
            Ok(Value::Long(long.parse().map_err(bad)?))
        } else if let Some(byte) = word.strip_suffix('b') {
            Ok(Value::Byte(byte.parse().map_err(bad)?))
        } else {
            Ok(Value::Int(word.parse().map_err(bad)?))
        }
    }

    fn bytes(&mut self) -> Result<Value, String> {
        let end = self.rest[1..].find('"').ok_or("a quote without its end")? + 1;
        let mut inside = &self.rest[1..end];
        self.rest = &self.rest[end + 1..];
        let mut bytes = Vec::new();
        while let Some(at) = inside.find("\\x") {
            bytes.extend(inside[..at].bytes());
            let digits = inside.get(at + 2..at + 4).ok_or("\\x without two digits")?;
            bytes.push(u8::from_str_radix(digits, 16).map_err(|_| format!("not hexadecimal: {digits}"))?);
            inside = &inside[at + 4..];
        }
        bytes.extend(inside.bytes());
        if self.eat("*") {
            let end = self.rest.find([' ', ')', ']']).unwrap_or(self.rest.len());
            let count = self.rest[..end].parse().map_err(|_| "no count after *".to_owned())?;
            self.rest = &self.rest[end..];
            bytes = bytes.repeat(count);
        }
        Ok(Value::Bytes(Some(bytes)))
    }

    fn eat(&mut self, token: &str) -> bool {
        match self.rest.strip_prefix(token) {
            Some(rest) => {
                self.rest = rest;
                true
            }
            None => false,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_round_trip_through_their_text() {
        let values = vec![
            Value::Int(-1),
            Value::Long(i64::MIN),
            Value::Byte(7),
            Value::Bytes(None),
            Value::text("a b\\\"\0~é"),
            Value::Bytes(Some(vec![b'x'; 1000])),
            Value::Bytes(Some(vec![0; 50])),
            Value::List(vec![vec![Value::Int(31), Value::text("world"), Value::Bytes(None)], vec![]]),
            Value::Seen(3),
            Value::Seen(0),
        ];
        assert_eq!(parse_values(&joined(&values)), Ok(values));
    }
}
