//! A strict parser for the part of JSON that zoolet writes.
#![allow(clippy::unwrap_used, reason = "tests stop at the first surprise")]

#[derive(Clone, PartialEq, Debug)]
pub(crate) enum Json {
    Null,
    Truth(bool),
    Number(f64),
    Text(String),
    Object(Vec<(String, Json)>),
}

impl Json {
    /// Parses all of `text`, which is one line.
    pub(crate) fn parse(text: &str) -> Self {
        assert_eq!(text.lines().count(), 1, "{text}");
        let mut rest = text.trim_end();
        let value = Self::value(&mut rest);
        assert!(rest.is_empty(), "{rest} is left of {text}");
        value
    }

    pub(crate) fn at(&self, name: &str) -> &Self {
        let found = self.fields().find(|(field, _)| field == name);
        &found.unwrap_or_else(|| panic!("no {name} in {self:?}")).1
    }

    pub(crate) fn number(&self, name: &str) -> f64 {
        self.at(name).as_number()
    }

    pub(crate) fn as_number(&self) -> f64 {
        if let Self::Number(number) = self { *number } else { panic!("{self:?} is no number") }
    }

    pub(crate) fn fields(&self) -> impl Iterator<Item = &(String, Self)> {
        if let Self::Object(fields) = self { fields.iter() } else { panic!("{self:?} is no object") }
    }

    fn value(rest: &mut &str) -> Self {
        for (word, value) in [("null", Self::Null), ("true", Self::Truth(true)), ("false", Self::Truth(false))] {
            if let Some(after) = rest.strip_prefix(word) {
                *rest = after;
                return value;
            }
        }
        match rest.chars().next().unwrap() {
            '"' => Self::Text(Self::text(rest)),
            '{' => Self::object(rest),
            _ => {
                let end = rest.find([',', '}']).unwrap_or(rest.len());
                let (number, after) = rest.split_at(end);
                *rest = after;
                Self::Number(number.parse().unwrap_or_else(|_| panic!("{number:?} is no number")))
            }
        }
    }

    fn object(rest: &mut &str) -> Self {
        let mut fields: Vec<(String, Self)> = Vec::new();
        let mut opening = '{';
        loop {
            *rest = rest.strip_prefix(opening).unwrap();
            if let Some(after) = rest.strip_prefix('}').filter(|_| fields.is_empty()) {
                *rest = after;
                return Self::Object(fields);
            }
            let name = Self::text(rest);
            assert!(fields.iter().all(|(other, _)| *other != name), "{name} twice");
            *rest = rest.strip_prefix(':').unwrap();
            fields.push((name, Self::value(rest)));
            if let Some(after) = rest.strip_prefix('}') {
                *rest = after;
                return Self::Object(fields);
            }
            opening = ',';
        }
    }

    /// Rejects escapes: no text that these tests read has them.
    fn text(rest: &mut &str) -> String {
        let (text, after) = rest.strip_prefix('"').unwrap().split_once('"').unwrap();
        assert!(!text.contains('\\'), "{text}");
        *rest = after;
        text.to_owned()
    }
}
