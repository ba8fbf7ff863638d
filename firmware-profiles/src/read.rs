//! Parses the TOML files of parts and boxes.

use crate::error::ProfileError;
use crate::grammar::{Allowed, Place, Written};
use crate::key::{Axis, Key};
use crate::nearest::meant;
use std::collections::BTreeMap;
use toml::Spanned;
use toml::de::{DeTable, DeValue};

/// How a number is known.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Evidence {
    /// Measured with zoolet; the source says where.
    Measured,
    /// Published by another party; the source names it.
    Published,
    /// Derived from other figures; the source says how.
    Modelled,
    /// Unknown. No board's profile contains a guess.
    Guess,
}

impl Evidence {
    const ALL: [Self; 4] = [Self::Measured, Self::Published, Self::Modelled, Self::Guess];

    /// Returns its name in files.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Measured => "measured",
            Self::Published => "published",
            Self::Modelled => "modelled",
            Self::Guess => "guess",
        }
    }
}

/// A number with its reason and its evidence.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Number {
    /// The value, in the unit of its [key](Key::unit).
    pub value: u64,
    /// Why the value is not larger or smaller.
    pub reason: String,
    /// How the value is known.
    pub evidence: Evidence,
    /// Where it was measured or published, or its derivation; empty for a guess.
    pub source: String,
    /// The file that sets it, such as `memory/512m.toml`.
    pub file: String,
}

/// A parsed file: a part of one axis, or a box that names its parts.
#[derive(Debug, Default)]
pub(crate) struct Document {
    pub(crate) title: String,
    /// The parts that a box names, in the order of the axes.
    pub(crate) parts: [Option<String>; Axis::ALL.len()],
    pub(crate) numbers: BTreeMap<Key, Number>,
}

const BOX_KEYS: &[&str] = &["title", "media", "memory", "network", "overrides"];
const NUMBER_KEYS: &[&str] = &["value", "reason", "evidence", "source"];

/// Parses a part of this axis; `file` is its name in errors.
pub(crate) fn part(axis: Axis, file: &str, text: &str) -> Result<Document, ProfileError> {
    let reader = Reader { file, text };
    let mut document = Document::default();
    for (name, value) in reader.parse()?.get_ref() {
        match name.get_ref().as_ref() {
            "title" => document.title = reader.text_of("title", value)?.to_owned(),
            other => reader.number_into(&mut document, other, value, |key| key.axis() == axis)?,
        }
    }
    let missing = Key::ALL.iter().find(|key| key.axis() == axis && !document.numbers.contains_key(key));
    if let Some(key) = missing {
        return Err(ProfileError::new(format!("{file}: {} is missing", key.name())));
    }
    reader.titled(document)
}

/// Parses a box: its parts and its overrides.
pub(crate) fn of_box(file: &str, text: &str) -> Result<Document, ProfileError> {
    let reader = Reader { file, text };
    let mut document = Document::default();
    for (name, value) in reader.parse()?.get_ref() {
        let name = name.get_ref().as_ref();
        if let Some(place) = Axis::ALL.iter().position(|axis| axis.name() == name) {
            document.parts[place] = Some(reader.text_of(name, value)?.to_owned());
            continue;
        }
        match name {
            "title" => document.title = reader.text_of(name, value)?.to_owned(),
            "overrides" => {
                for (name, value) in reader.table_of(name, value)? {
                    reader.number_into(&mut document, name.get_ref(), value, |_| true)?;
                }
            }
            _ => return Err(reader.unknown(name, value, BOX_KEYS)),
        }
    }
    reader.titled(document)
}

type Value<'i> = Spanned<DeValue<'i>>;

struct Reader<'i> {
    file: &'i str,
    text: &'i str,
}

impl<'i> Reader<'i> {
    fn parse(&self) -> Result<Spanned<DeTable<'i>>, ProfileError> {
        DeTable::parse(self.text).map_err(|error| {
            let wrong = ProfileError::new(error.message().replace('\n', ", "));
            wrong.at(self.file, self.line(error.span().map_or(0, |span| span.start)))
        })
    }

    fn titled(&self, document: Document) -> Result<Document, ProfileError> {
        if document.title.is_empty() {
            return Err(ProfileError::new(format!("{}: title is missing: a description in a few words", self.file)));
        }
        Ok(document)
    }

    fn number_into(
        &self,
        document: &mut Document,
        name: &str,
        value: &Value<'i>,
        belongs: impl Fn(Key) -> bool,
    ) -> Result<(), ProfileError> {
        let Some(key) = Key::named(name).filter(|key| belongs(*key)) else {
            let keys = Key::ALL.iter().filter(|key| belongs(**key)).map(|key| key.name());
            return Err(self.unknown(name, value, &["title"].into_iter().chain(keys).collect::<Vec<_>>()));
        };
        document.numbers.insert(key, self.number(key, value)?);
        Ok(())
    }

    fn number(&self, key: Key, value: &Value<'i>) -> Result<Number, ProfileError> {
        let name = key.name();
        let allowed = Allowed { unit: key.unit(), range: None, example: key.unit().example(), place: Place::Key };
        let (mut found, mut reason, mut evidence, mut source) = (None, "", None, "");
        for (part, value) in self.table_of(name, value)? {
            let part = part.get_ref().as_ref();
            let whole = format!("{name}.{part}");
            match part {
                "value" => {
                    let read = allowed.read(&whole, self.shown(value), written(value));
                    found = Some(read.map_err(|refusal| self.at(value, refusal.to_string()))?);
                }
                "reason" => reason = self.text_of(&whole, value)?,
                "source" => source = self.text_of(&whole, value)?,
                "evidence" => {
                    let text = self.text_of(&whole, value)?;
                    let known = Evidence::ALL.into_iter().find(|evidence| evidence.name() == text);
                    let all = Evidence::ALL.map(|evidence| format!("\"{}\"", evidence.name())).join(", ");
                    evidence = Some(known.ok_or_else(|| self.wrong(&whole, value, &all))?);
                }
                _ => return Err(self.unknown(&whole, value, NUMBER_KEYS)),
            }
        }
        let missing = |part: &str, what: &str| {
            ProfileError::new(format!("{name}.{part} is missing: {what}")).at(self.file, self.line(value.span().start))
        };
        let evidence = evidence.ok_or_else(|| missing("evidence", "how the number is known"))?;
        if source.is_empty() && evidence != Evidence::Guess {
            return Err(missing("source", "where it was measured or published, or how it was derived"));
        }
        if reason.is_empty() {
            return Err(missing("reason", "why the value is not larger or smaller"));
        }
        Ok(Number {
            value: found.ok_or_else(|| missing("value", &allowed.to_string()))?,
            reason: reason.to_owned(),
            evidence,
            source: source.to_owned(),
            file: self.file.to_owned(),
        })
    }

    fn table_of<'v>(&self, name: &str, value: &'v Value<'i>) -> Result<&'v DeTable<'i>, ProfileError> {
        match value.get_ref() {
            DeValue::Table(table) => Ok(table),
            _ => Err(self.wrong(name, value, &format!("a table written as [{name}]"))),
        }
    }

    fn text_of<'v>(&self, name: &str, value: &'v Value<'i>) -> Result<&'v str, ProfileError> {
        match value.get_ref() {
            DeValue::String(text) => Ok(text.as_ref()),
            _ => Err(self.wrong(name, value, "text in quotes")),
        }
    }

    fn wrong(&self, name: &str, value: &Value<'i>, allowed: &str) -> ProfileError {
        self.at(value, format!("{name} = {}: allowed is {allowed}", self.shown(value)))
    }

    fn at(&self, value: &Value<'i>, line: String) -> ProfileError {
        ProfileError::new(line).at(self.file, self.line(value.span().start))
    }

    fn unknown(&self, name: &str, value: &Value<'i>, known: &[&str]) -> ProfileError {
        let own = name.rsplit('.').next().unwrap_or(name);
        self.at(value, format!("{name}: no such key; {}", meant(own, known)))
    }

    /// Returns the first line of the value, as the author wrote it.
    fn shown(&self, value: &Value<'i>) -> &'i str {
        self.text.get(value.span()).and_then(|text| text.lines().next()).unwrap_or_default()
    }

    fn line(&self, offset: usize) -> usize {
        1 + self.text.bytes().take(offset).filter(|&byte| byte == b'\n').count()
    }
}

fn written<'v>(value: &'v Value<'_>) -> Written<'v> {
    match value.get_ref() {
        DeValue::String(text) => Written::Text(text),
        DeValue::Integer(integer) => {
            i128::from_str_radix(integer.as_str(), integer.radix()).map_or(Written::Other, Written::Number)
        }
        _ => Written::Other,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NUMBER: &str = "value = \"8\"\nreason = \"r\"\nevidence = \"measured\"\nsource = \"s\"\n";

    #[test]
    fn each_error_is_one_line_with_place_key_value_and_allowed_values() {
        let without = |line: &str| {
            let left: Vec<&str> = NUMBER.lines().filter(|kept| !kept.starts_with(line)).collect();
            format!("title = \"t\"\n[overrides.servers_max]\n{}\n", left.join("\n"))
        };
        for (text, expected) in [
            ("title = 1".to_owned(), "box.toml:1: title = 1: allowed is text in quotes"),
            ("media = \"emmc\"".to_owned(), "box.toml: title is missing: a description"),
            ("title = \"t\"\nmedium = \"emmc\"".to_owned(), "box.toml:2: medium: no such key; did you mean media?"),
            ("overrides = 7".to_owned(), "overrides = 7: allowed is a table written as [overrides]"),
            ("[overrides.servers_ma]".to_owned(), "box.toml:1: servers_ma: no such key; did you mean servers_max?"),
            ("colour = 1".to_owned(), "colour: no such key; allowed are title, media, memory, network, overrides"),
            ("[overrides]\nservers_max = 8".to_owned(), "box.toml:2: servers_max = 8: allowed is a table written as"),
            (
                "[overrides.servers_max]\nvalue = 8.5".to_owned(),
                "servers_max.value = 8.5: allowed is a whole number, such as \"16\" or 16",
            ),
            (
                "[overrides.servers_max]\nvalue = \"8 B\"".to_owned(),
                "servers_max.value = \"8 B\": allowed is a whole number, such as \"16\" or 16; a count has no unit",
            ),
            (
                "[overrides.hang_ms]\nvalue = \"8\"".to_owned(),
                "hang_ms.value = \"8\": allowed is a time, such as \"350 ms\" or 350; the unit is missing",
            ),
            (
                "[overrides.hang_ms]\nevidence = \"none\"".to_owned(),
                "allowed is \"measured\", \"published\", \"modelled\", \"guess\"",
            ),
            ("[overrides.hang_ms]\nunit = \"ms\"".to_owned(), "hang_ms.unit: no such key; allowed are value, reason"),
            (without("value"), "box.toml:2: servers_max.value is missing: a whole number"),
            (without("reason"), "servers_max.reason is missing: why the value"),
            (without("evidence"), "servers_max.evidence is missing: how the number is known"),
            (without("source"), "servers_max.source is missing: where it was measured"),
            ("title = ".to_owned(), "box.toml:1: "),
        ] {
            let error = of_box("box.toml", &text).unwrap_err().to_string();
            assert!(error.contains(expected), "{text:?} gave {error:?}");
            assert_eq!(error.lines().count(), 1, "{error:?}");
        }
    }

    #[test]
    fn a_profile_reads_quantities_as_the_table_says() {
        let read = |key: &str, value: &str| {
            let text = NUMBER.replace("\"8\"", value);
            let document = of_box("box.toml", &format!("title = \"t\"\n[overrides.{key}]\n{text}"));
            document.map(|document| document.numbers[&Key::named(key).unwrap()].value)
        };
        for line in include_str!("quantities.tsv").lines().filter(|line| !line.starts_with('#')) {
            let [kind, text, number, hint]: [&str; 4] = line.splitn(4, '\t').collect::<Vec<_>>().try_into().unwrap();
            let key = if kind == "time" { "hang_ms" } else { "log_bytes" };
            match (read(key, &format!("{text:?}")), number.parse::<u64>()) {
                (Ok(read), Ok(number)) => assert_eq!(read, number, "{text:?}"),
                (Err(error), Err(_)) => {
                    let line = error.to_string().replace("\\\"", "").replace('"', "");
                    assert!(line.ends_with(hint) && line.contains(": allowed is a "), "{text:?}: {line}");
                    assert_eq!(line.contains("; "), !hint.is_empty(), "{text:?}: {line}");
                }
                (read, _) => panic!("{text:?} gave {read:?}"),
            }
        }
        assert_eq!((read("hang_ms", "350"), read("servers_max", "0x8")), (Ok(350), Ok(8)));
    }

    #[test]
    fn part_with_a_missing_or_foreign_number_is_refused() {
        let error = part(Axis::Media, "media/x.toml", "title = \"t\"").unwrap_err().to_string();
        assert_eq!(error, "media/x.toml: sync_p50_us is missing");
        let error = part(Axis::Media, "media/x.toml", &format!("[quorum_ms]\n{NUMBER}")).unwrap_err().to_string();
        assert!(error.starts_with("media/x.toml:1: quorum_ms: no such key; "), "{error}");
    }
}
