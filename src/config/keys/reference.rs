//! Compares the registry with the example and with the reference page.

use super::super::bound::Numbers;
use super::super::{DEFAULT_PROFILE, Overrides, load, profile_defaults};
use super::*;
use zoolet_profiles::Key;
use zoolet_transport::client_port::Word;

const EXAMPLE: &str = include_str!("../../cli/example.toml");
const PAGE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/docs/reference/configuration.md");

/// A key with all that a reader of the example or of the page sees.
struct Row {
    key: &'static str,
    /// Unit of a plain number; `None`: not a number.
    unit: Option<Unit>,
    allowed: String,
    /// As in a file; empty: none.
    default: String,
    /// The default as the page shows it.
    shown: String,
    reader: &'static str,
    help: &'static str,
}

fn numbers<T: Numbers>(bounds: &[Bound<T>]) -> Vec<Row> {
    bounds
        .iter()
        .map(|bound| {
            let (default, show) = (bound.get(&mut T::usual()), |number| bound.unit.show(number));
            // The number of segments follows from two numbers of a profile.
            let name = if bound.key == "log_segments" { "log_bytes" } else { bound.key };
            let source = Key::named(name).map_or("zoolet", |key| key.axis().name());
            Row {
                key: bound.key,
                unit: Some(bound.unit),
                allowed: format!("{} to {}", show(*bound.allowed.start()), show(*bound.allowed.end())),
                default: default.to_string(),
                shown: format!("{} ({source})", show(default)),
                reader: bound.about.reader,
                help: bound.about.help,
            }
        })
        .collect()
}

fn texts(texts: &[Text]) -> Vec<Row> {
    let keys = texts.iter().filter(|text| !text.about.help.is_empty());
    let row = |text: &Text| Row {
        key: text.key,
        unit: None,
        allowed: text.allowed.to_owned(),
        default: text.about.default.to_owned(),
        shown: match text.about.default {
            "" => "none".to_owned(),
            default => format!("`{default}`"),
        },
        reader: text.about.reader,
        help: text.about.help,
    };
    keys.map(row).collect()
}

/// Every key, by the section of the page.
fn sections() -> Vec<(&'static str, Vec<Row>)> {
    let settings = numbers(SETTINGS).into_iter().chain(texts(OfSettings::ABOUT)).collect();
    vec![
        ("server", texts(General::ABOUT)),
        ("last_known_good", texts(OfKept::ABOUT)),
        ("ensemble", texts(OfEnsemble::ABOUT)),
        ("[[server]]", texts(OfServer::ABOUT)),
        ("[limits]", numbers(LIMITS)),
        ("[settings]", settings),
        ("[timing]", numbers(TIMING)),
    ]
}

/// Formats the table of one section.
fn table(rows: &[Row]) -> String {
    let has_numbers = rows.iter().any(|row| row.unit.is_some());
    let mut text = match has_numbers {
        true => "| key | unit | allowed | default | read by | meaning |\n|---|---|---|---|---|---|\n".to_owned(),
        false => "| key | allowed | default | read by | meaning |\n|---|---|---|---|---|\n".to_owned(),
    };
    for Row { key, unit, allowed, shown, reader, help, .. } in rows {
        let unit = match unit {
            _ if !has_numbers => String::new(),
            Some(Unit::Bytes) => "bytes | ".to_owned(),
            Some(Unit::Millis) => "ms | ".to_owned(),
            Some(Unit::Count) => "a count | ".to_owned(),
            Some(other) => panic!("{key}: the page has no name for {other:?}"),
            None => "none | ".to_owned(),
        };
        text += &format!("| `{key}` | {unit}{allowed} | {shown} | {reader} | {help} |\n");
    }
    text
}

/// Returns the page with each table written anew between its marks.
fn written(page: &str) -> String {
    sections().into_iter().fold(page.to_owned(), |page, (section, rows)| {
        let begin = format!("<!-- table of {section} -->\n");
        let (before, rest) = page.split_once(&begin).unwrap_or_else(|| panic!("{PAGE} has no line {begin}"));
        let (_, after) = rest.split_once("<!-- end of the table -->").unwrap();
        format!("{before}{begin}{}<!-- end of the table -->{after}", table(&rows))
    })
}

/// After a change of a key: `ZOOLET_WRITE=1 cargo test -p zoolet --lib reference`.
#[test]
fn the_page_has_the_tables_of_the_registry() {
    let page = std::fs::read_to_string(PAGE).unwrap();
    let expected = written(&page);
    if std::env::var_os("ZOOLET_WRITE").is_some() {
        std::fs::write(PAGE, &expected).unwrap();
    }
    let differ = page.lines().zip(expected.lines()).find(|(old, new)| old != new);
    let page = std::fs::read_to_string(PAGE).unwrap();
    assert!(page == expected, "{differ:#?}\nrun ZOOLET_WRITE=1 cargo test -p zoolet --lib reference");
}

/// A line `KEY = VALUE   # HELP` of the example.
struct Line<'a> {
    is_comment: bool,
    key: &'a str,
    value: &'a str,
    help: &'a str,
}

fn lines(text: &str) -> Vec<Line<'_>> {
    let parse = |whole| {
        let (is_comment, line) = match str::strip_prefix(whole, "# ") {
            Some(line) => (true, line),
            None => (false, whole),
        };
        let (key, rest) = line.split_once(" = ")?;
        let is_key = key.bytes().all(|byte| byte.is_ascii_lowercase() || b"_4".contains(&byte));
        let (value, help) = rest.split_once(" # ").unwrap_or((rest, ""));
        is_key.then_some(Line { is_comment, key, value: value.trim_end(), help })
    };
    text.lines().filter_map(parse).collect()
}

/// Returns the text of the example that shows a section.
fn part(section: &str) -> &'static str {
    let (top, rest) = EXAMPLE.split_once("[limits]").unwrap();
    let (limits, rest) = rest.split_once("[settings]").unwrap();
    let (settings, rest) = rest.split_once("[timing]").unwrap();
    let (timing, servers) = rest.split_once("# [[server]]").unwrap();
    match section {
        "[limits]" => limits,
        "[settings]" => settings,
        "[timing]" => timing,
        "[[server]]" => servers,
        _ => top,
    }
}

#[test]
fn the_example_has_every_key_once_with_its_default_and_its_meaning() {
    let mut known = Vec::new();
    for (section, rows) in sections() {
        if section == "last_known_good" {
            let shown = lines(part(section)).into_iter().find(|line| line.key == section).unwrap().value;
            assert!(rows.iter().all(|row| shown.contains(&format!("{} = ", row.key))), "{shown}");
            continue;
        }
        let lines = lines(part(section));
        for row in &rows {
            known.push(row.key);
            let found: Vec<&Line<'_>> = lines.iter().filter(|line| line.key == row.key).collect();
            let is_shown_more = section == "[[server]]" && found.len() > 1;
            let value = if row.default.is_empty() { "VALUE" } else { &row.default };
            let expected = format!("{section}: {} = {value} # {}", row.key, row.help);
            assert!(found.len() == 1 || is_shown_more, "{} lines of the example, not 1, are {expected}", found.len());
            let first = found[0];
            assert_eq!(first.help, row.help, "{expected}");
            // Of an entry of a server, the example shows values that stand for others.
            if section != "[[server]]" {
                let is_default = row.default.is_empty() || first.value == row.default;
                assert!(is_default, "{} = {}: {expected}", first.key, first.value);
                assert_eq!(first.is_comment, row.default.is_empty() || row.unit.is_some(), "{expected}");
            }
        }
    }
    let unknown = lines(EXAMPLE).into_iter().map(|line| line.key).find(|key| !known.contains(key));
    assert_eq!(unknown, None, "the registry does not have this key of the example");
}

/// Uncommenting every number of the example must change nothing: each shows the profile's value.
#[test]
fn example_config_shows_the_default_values() {
    let numbers: Vec<&str> =
        sections().iter().flat_map(|(_, rows)| rows).filter(|row| row.unit.is_some()).map(|row| row.key).collect();
    let is_number = |line: &&str| lines(line).first().is_some_and(|line| numbers.contains(&line.key));
    let (before, _) = EXAMPLE.split_once("# The servers").unwrap();
    let shown: Vec<&str> =
        before.lines().map(|line| line.strip_prefix("# ").filter(is_number).unwrap_or(line)).collect();
    assert_eq!(shown.iter().filter(|line| is_number(line)).count(), numbers.len());
    let loaded = |name: &str, text: &str| {
        let file = std::env::temp_dir().join(format!("zoolet-{name}-{}.toml", std::process::id()));
        std::fs::write(&file, text).unwrap();
        let loaded = load(&file, &Overrides::default());
        std::fs::remove_file(&file).unwrap();
        loaded.unwrap().config
    };
    let (mut of_example, of_nothing) = (loaded("example", &shown.join("\n")), loaded("nothing", ""));
    // A file that names its data directory may have a disk to mount.
    of_example.populate = of_nothing.populate;
    assert_eq!(of_example, of_nothing);
}

#[test]
fn the_registry_shows_the_numbers_of_the_default_profile() {
    let (config, timing) = profile_defaults::numbers(&profile_defaults::find(DEFAULT_PROFILE, None).unwrap()).unwrap();
    assert_eq!((config.limits, config.settings), (Config::usual().limits, Config::usual().settings));
    assert_eq!(timing, Timing::usual());
}

#[test]
fn the_registry_names_every_four_letter_word() {
    let row = General::ABOUT.iter().find(|row| row.key == "four_letter_words").unwrap();
    let named = row.about.help.split_once(", of ").and_then(|(_, rest)| rest.split_once("; ")).unwrap().0;
    assert_eq!(named, Word::ALL.map(Word::text).join(" "));
}
