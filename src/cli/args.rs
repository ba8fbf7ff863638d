//! Parses the command line, once, by the table of commands.

mod arguments;
#[cfg(feature = "tools")]
mod bench_args;
#[cfg(feature = "tools")]
mod ensemble_args;
#[cfg(feature = "tools")]
mod probe_args;
#[cfg(feature = "tools")]
mod profile_args;
#[cfg(feature = "tools")]
mod recipes_args;
#[cfg(feature = "tools")]
mod shell_args;
mod site_args;
#[cfg(feature = "tools")]
mod tools_args;
mod unit_args;
mod variables;

#[cfg(feature = "tools")]
use super::recipes;
use super::{Address, Exit, help, keygen::Keygen, status, unit::Init};
use arguments::Arguments;
use lexopt::prelude::{Long, Short, Value};
use std::ops::RangeInclusive;
use std::path::PathBuf;
use std::time::Duration;
#[cfg(feature = "tools")]
pub(super) use tools_args::Tool;
use tracing::Level;
use variables::Variables;
use zoolet::config::refuse_stray_key;
use zoolet_profiles::{Allowed, Place, Unit, Written, nearest};

/// Longest accepted time: long enough for a soak, and short enough for a run's counters.
const TIME_MAX: Duration = Duration::from_secs(24 * 60 * 60);

/// A parsed command.
pub(super) enum Command {
    Serve(ServeOptions),
    Status(status::Options),
    Keygen(Keygen),
    Unit(super::unit::Options),
    #[cfg(feature = "tools")]
    Tool(Tool),
    Licences,
    Version,
    /// Shows these commands, or all without their options.
    Help(Option<String>),
}

/// The options of `serve`.
#[derive(Debug)]
pub(super) struct ServeOptions {
    pub(super) config: Option<PathBuf>,
    pub(super) profile: Option<String>,
    pub(super) data: Option<PathBuf>,
    pub(super) create: bool,
    pub(super) listen: Option<String>,
    pub(super) id: Option<u8>,
    pub(super) until_eof: bool,
    /// Retries a failed start.
    pub(super) keep_trying: bool,
    /// Checks the configuration, and starts nothing.
    pub(super) check: bool,
    pub(super) log: Level,
    pub(super) log_json: bool,
}

/// Parses the arguments into a command.
///
/// # Errors
/// A wrong argument or environment variable; the line lists the allowed values.
pub(super) fn parse(parser: lexopt::Parser) -> Result<Command, Exit> {
    parse_in(parser, &Variables::of_this_process())
}

fn parse_in(mut parser: lexopt::Parser, variables: &Variables) -> Result<Command, Exit> {
    // Runs first, because most error lines show the wrong argument.
    refuse_stray_keys(parser.clone())?;
    match parser.next().map_err(Exit::usage)? {
        None => Ok(Command::Help(None)),
        Some(Long("help") | Short('h')) => help_about(&mut parser),
        Some(Long("version") | Short('V')) => Ok(Command::Version),
        Some(Value(name)) => named(&name.to_string_lossy(), &mut parser, variables),
        Some(other) => Err(Exit::usage(format!("{}; see zoolet --help", other.unexpected()))),
    }
}

/// Refuses a private key among the arguments.
fn refuse_stray_keys(mut parser: lexopt::Parser) -> Result<(), Exit> {
    let mut option = None;
    for argument in parser.raw_args().map_err(Exit::usage)? {
        let text = argument.to_string_lossy();
        let (name, value) = text.split_once('=').unwrap_or((&text, ""));
        let is_option = name.starts_with("--") && refuse_stray_key("", &format!("{name}=")).is_ok();
        let place = if is_option && !value.is_empty() { Some(name) } else { option.as_deref() };
        refuse_stray_key(place.unwrap_or("the arguments"), &text).map_err(Exit::usage)?;
        option = is_option.then(|| name.to_owned());
    }
    Ok(())
}

fn named(name: &str, parser: &mut lexopt::Parser, variables: &Variables) -> Result<Command, Exit> {
    match name {
        #[cfg(feature = "tools")]
        MEASURE => {
            return Ok(Command::Tool(Tool::Measure(arguments::text(parser.value().map_err(Exit::usage)?)?.into())));
        }
        // Its options are zkCli's, with one dash, and the words behind them belong to its own commands.
        #[cfg(feature = "tools")]
        "shell" => return shell_args::shell(parser, variables),
        #[cfg(feature = "tools")]
        recipes::START | recipes::WATCH => {
            let rest = parser.raw_args().map_err(Exit::usage)?.collect();
            let tool = if name == recipes::START { Tool::StartCommand(rest) } else { Tool::WatchCommand(rest) };
            return Ok(Command::Tool(tool));
        }
        "help" => return help_about(parser),
        "version" => return Ok(Command::Version),
        _ => {}
    }
    let name = if name == "licenses" { "licences" } else { name };
    let arguments = match Arguments::read(name, parser)? {
        arguments::Read::Command(arguments) => arguments,
        arguments::Read::Help(words) => return Ok(Command::Help(Some(words))),
    };
    let command = match arguments.words() {
        "serve" => serve(&arguments, variables),
        "status" => site_args::status(&arguments, variables),
        "keygen" => site_args::keygen(&arguments),
        "unit systemd" => Ok(unit_args::unit(&arguments, Init::Systemd)),
        "unit procd" => Ok(unit_args::unit(&arguments, Init::Procd)),
        "licences" => Ok(Command::Licences),
        #[cfg(feature = "tools")]
        _ => tools_args::named(&arguments, variables).map(Command::Tool),
        #[cfg(not(feature = "tools"))]
        _ => Err(unknown(name)),
    }?;
    debug_assert_eq!(arguments.unread(), None, "{name}: the table has an option that nothing reads");
    Ok(command)
}

/// Returns the help about the commands that begin with the remaining words.
fn help_about(parser: &mut lexopt::Parser) -> Result<Command, Exit> {
    let words = parser.raw_args().map_err(Exit::usage)?.map(|word| word.to_string_lossy().into_owned());
    let words: Vec<String> = words.filter(|word| word != "--help" && word != "-h").collect();
    let words = words.join(" ");
    match words.as_str() {
        "" => Ok(Command::Help(None)),
        _ if !help::commands_of(&words).is_empty() => Ok(Command::Help(Some(words))),
        words => Err(unknown(words.split(' ').next().filter(|first| help::is_left_out(first)).unwrap_or(words))),
    }
}

/// The internal command with which `probe` starts itself for a directory.
///
/// Users do not type it, so the table of commands does not contain it.
#[cfg(feature = "tools")]
pub(super) const MEASURE: &str = "probe-disk";

fn unknown(name: &str) -> Exit {
    if help::is_left_out(name) {
        return Exit::usage(format!("this minimal build has no {name}: use the full build"));
    }
    let known = help::names();
    let all = known.iter().map(String::as_str).chain(["help", "version"]);
    Exit::usage(match nearest(name, all) {
        Some(near) => format!("command = {name}: no such command; did you mean {near}?"),
        None => format!("command = {name}: allowed is {}, help, version", known.join(", ")),
    })
}

fn serve(arguments: &Arguments, variables: &Variables) -> Result<Command, Exit> {
    Ok(Command::Serve(ServeOptions {
        config: arguments.value("config").map_or_else(|| variables.config(), |file| Ok(Some(file.into())))?,
        profile: arguments.value("profile").map(str::to_owned),
        data: arguments.value("data").map(PathBuf::from),
        create: arguments.has("create"),
        listen: arguments.value("listen").map(str::to_owned),
        id: arguments.value("id").map(server_id).transpose()?,
        until_eof: arguments.has("until-eof"),
        keep_trying: arguments.has("keep-trying"),
        check: arguments.has("check"),
        log: arguments.value("log").map_or(Ok(Level::INFO), level)?,
        log_json: arguments.value("log-format").map_or(Ok(false), is_json)?,
    }))
}

/// Parses a time with its unit, from `least` to [`TIME_MAX`].
fn time(option: &str, text: &str, least: Duration) -> Result<Duration, Exit> {
    let range = [least, TIME_MAX].map(|time| u64::try_from(time.as_millis()).unwrap_or(u64::MAX));
    quantity(option, text, Unit::Millis, range[0]..=range[1], 10_000).map(Duration::from_millis)
}

/// Parses the quantity that an option takes.
fn quantity(option: &str, text: &str, unit: Unit, range: RangeInclusive<u64>, example: u64) -> Result<u64, Exit> {
    let allowed = Allowed { unit, range: Some(range), example, place: Place::Option };
    allowed.read(&format!("--{option}"), text, Written::Text(text)).map_err(Exit::usage)
}

/// Parses addresses of servers; `source` is the option or variable that lists them.
fn address(source: &str, text: &str) -> Result<Address, Exit> {
    Address::parse(text).map_err(|mistake| Exit::usage(format!("{source} = {text}: {mistake}")))
}

fn server_id(text: &str) -> Result<u8, Exit> {
    let id = text.parse().ok().filter(|&id| id > 0);
    id.ok_or_else(|| Exit::usage(format!("--id = {text}: allowed is a whole number from 1 to 255")))
}

fn level(text: &str) -> Result<Level, Exit> {
    match text {
        "error" => Ok(Level::ERROR),
        "warn" => Ok(Level::WARN),
        "info" => Ok(Level::INFO),
        "debug" => Ok(Level::DEBUG),
        "trace" => Ok(Level::TRACE),
        _ => Err(Exit::usage(format!("--log = {text}: allowed is error, warn, info, debug or trace"))),
    }
}

fn is_json(text: &str) -> Result<bool, Exit> {
    match text {
        "text" => Ok(false),
        "json" => Ok(true),
        _ => Err(Exit::usage(format!("--log-format = {text}: allowed is text or json"))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::quantity_table::{Row, rows};

    fn parse_words(words: &[&str]) -> Result<Command, String> {
        parse(lexopt::Parser::from_args(words)).map_err(|exit| format!("{} {}", exit.code, exit.line))
    }

    pub(super) fn parse_line(line: &str) -> Result<Command, String> {
        parse_words(&line.split(' ').collect::<Vec<_>>())
    }

    #[test]
    fn every_option_of_serve_is_parsed() {
        let words = ["serve", "--config", "f.toml", "--data=d", "--listen", "plain://0.0.0.0:1", "--log", "debug"];
        let Ok(Command::Serve(options)) = parse_words(&words) else { panic!("not serve") };
        assert_eq!((options.config, options.data), (Some("f.toml".into()), Some("d".into())));
        assert_eq!((options.listen.as_deref(), options.log), (Some("plain://0.0.0.0:1"), Level::DEBUG));
    }

    #[test]
    fn invalid_usage_gives_one_line_and_exit_code_2() {
        for (words, expected) in [
            (&["start"][..], "2 command = start: allowed is serve, "),
            (&["server"], "2 command = server: no such command; did you mean serve?"),
            (&["serve", "--log", "loud"], "2 --log = loud: allowed is error, warn, info, debug or trace"),
            (&["serve", "--log-format", "xml"], "2 --log-format = xml: allowed is text or json"),
            (&["serve", "--id", "0"], "2 --id = 0: allowed is a whole number from 1 to 255"),
            (&["serve", "--dat", "x"], "2 serve: invalid option '--dat'; did you mean --data?"),
            (&["serve", "--conf", "x"], "2 serve: invalid option '--conf'; did you mean --config?"),
            (&["serve", "--port", "1"], "2 serve: invalid option '--port'; did you mean --listen?"),
            (&["status", "--host", "a"], "2 status: invalid option '--host'; did you mean --server?"),
            (&["serve", "--server", "a:1"], "2 serve: invalid option '--server'; did you mean --listen?"),
            (&["serve", "--frobnicate"], "2 serve: invalid option '--frobnicate'; see zoolet serve --help"),
            (&["serve", "-x"], "2 serve: invalid option '-x'; see zoolet serve --help"),
            (&["serve", "now"], "2 serve: unexpected argument 'now'; see zoolet serve --help"),
            (&["serve", "--create=yes"], "2 serve: --create takes no value; see zoolet serve --help"),
            (&["serve", "--data"], "2 serve: --data: its value is missing; write --data DIR: keep the log and"),
            (&["serve", "--log"], "2 serve: --log: its value is missing; write --log LEVEL: log error, warn, info"),
            (&["licences", "x"], "2 licences: unexpected argument 'x'; see zoolet licences --help"),
            (&["help", "srve"], "2 command = srve: no such command; did you mean serve?"),
            (&["--frob"], "2 invalid option '--frob'"),
        ] {
            let Err(error) = parse_words(words) else { panic!("{words:?} was accepted") };
            assert!(error.starts_with(expected), "{words:?} gave {error:?}");
        }
    }

    #[test]
    fn help_is_shown_for_the_named_command_or_the_overview() {
        for (words, about) in [
            (&[][..], None),
            (&["--help"], None),
            (&["help"], None),
            (&["serve", "--help"], Some("serve")),
            (&["serve", "-h"], Some("serve")),
            (&["serve", "--data", "d", "--frob", "--help"], Some("serve")),
            (&["help", "serve"], Some("serve")),
            (&["help", "serve", "--help"], Some("serve")),
            (&["--help", "--help"], None),
            (&["--help", "serve"], Some("serve")),
            (&["unit", "--help"], Some("unit")),
            (&["unit", "procd", "--help"], Some("unit procd")),
            #[cfg(feature = "tools")]
            (&["help", "profile", "show"], Some("profile show")),
            #[cfg(feature = "tools")]
            (&["profile", "--help"], Some("profile")),
        ] {
            let Ok(Command::Help(words_of_help)) = parse_words(words) else { panic!("{words:?}") };
            assert_eq!(words_of_help.as_deref(), about, "{words:?}");
        }
        // The word is the value of the option.
        assert!(matches!(parse_words(&["serve", "--data", "--help"]), Ok(Command::Serve(_))));
    }

    #[test]
    fn config_variable_names_the_file_of_serve_without_an_option() {
        let parse = |words: &[&str], config: &str| {
            let variables = Variables { config: config.into(), server: "not an address".into() };
            match parse_in(lexopt::Parser::from_args(words), &variables) {
                Ok(Command::Serve(options)) => Ok(options.config),
                Ok(_) => panic!("not serve"),
                Err(exit) => Err(exit.line),
            }
        };
        assert_eq!(parse(&["serve"], "").unwrap(), None);
        assert_eq!(parse(&["serve"], "e.toml").unwrap(), Some("e.toml".into()));
        assert_eq!(parse(&["serve", "--config", "a.toml"], "e.toml").unwrap(), Some("a.toml".into()));
        let line = parse(&["serve"], "zoolet-site-key-1:c2VjcmV0").unwrap_err();
        assert!(line.starts_with("ZOOLET_CONFIG: found a site key where no key belongs. "), "{line}");
    }

    #[test]
    fn an_option_reads_quantities_as_the_table_says() {
        for Row { is_time, text, number, hint } in rows() {
            let read = if is_time {
                time("option", &text, Duration::ZERO).map(|time| u64::try_from(time.as_millis()).unwrap())
            } else {
                quantity("option", &text, Unit::Bytes, 0..=u64::MAX, 100)
            };
            match (read, number) {
                (Ok(read), Some(number)) => assert_eq!(read, number, "{text:?}"),
                (Err(exit), None) => {
                    assert!(exit.line.starts_with(&format!("--option = {text}: allowed is a ")), "{}", exit.line);
                    assert!(exit.line.ends_with(&hint) && exit.code == 2, "{text:?}: {}", exit.line);
                    assert_eq!(exit.line.contains("; "), !hint.is_empty(), "{text:?}: {}", exit.line);
                }
                (Ok(read), None) => panic!("{text:?} gave {read}"),
                (Err(exit), Some(_)) => panic!("{text:?} gave {}", exit.line),
            }
        }
    }

    #[test]
    fn a_private_key_among_the_arguments_is_refused_and_not_shown() {
        const SECRET: &str = "OgVibmV2ZXItc2hvd24tdG8tYW55Ym9keS0wMTIzNDU2Nzg5";
        for key in ["site", "server"].map(|kind| format!("zoolet-{kind}-key-1:{SECRET}")) {
            let mut lines =
                vec![vec![key.clone()], vec![format!("--{key}")], vec![format!("--zoolet-site-key-1={SECRET}")]];
            for command in help::commands() {
                let words: Vec<String> = command.words.split(' ').map(str::to_owned).collect();
                lines.push([words.clone(), vec![key.clone()]].concat());
                for option in command.options {
                    let option = format!("--{}", option.name);
                    lines.push([words.clone(), vec![option.clone(), key.clone()]].concat());
                    lines.push([words.clone(), vec![format!("{option}=a:1,{key}")]].concat());
                }
            }
            for words in lines {
                let Err(exit) = parse(lexopt::Parser::from_args(&words)) else { panic!("{words:?} was accepted") };
                assert!(exit.code == 2 && exit.line.contains("where no key belongs. "), "{}", exit.line);
                assert!(!exit.line.contains(SECRET), "{words:?} gave {}", exit.line);
            }
            let Err(exit) = parse_words(&["serve", "--data", &key]) else { panic!("accepted") };
            assert!(exit.starts_with("2 --data: found a s"), "{exit}");
            assert!(!Exit::failed(&key).line.contains(SECRET), "whatever made the line");
        }
    }

    #[test]
    fn repeated_or_empty_single_value_option_is_refused() {
        for (words, expected) in [
            (
                &["status", "--server", "a:1", "--server=b:1"][..],
                "2 status: --server is given twice: give it once, with values separated by commas",
            ),
            (&["serve", "--data", "a", "--create", "--data", "b"], "2 serve: --data is given twice: give it once"),
            (&["serve", "--id", "1", "--id", "1"], "2 serve: --id is given twice: give it once"),
            (
                &["unit", "systemd", "--config", "a", "--config", "b"],
                "2 unit systemd: --config is given twice: give it once",
            ),
            (
                &["serve", "--data="],
                "2 serve: --data: its value is missing; write --data DIR: keep the log and the base in DIR",
            ),
            (
                &["keygen", "--out", ""],
                "2 keygen: --out: its value is missing; write --out FILE: write the key to a new FILE instead, mode 0600",
            ),
        ] {
            assert_eq!(parse_words(words).err().as_deref(), Some(expected), "{words:?}");
        }
        for words in [
            &["serve", "--data", "--id", "--id", "1"][..],
            &["serve", "--create", "--create"],
            #[cfg(feature = "tools")]
            &["probe", "--peer", "a", "--peer", "b"],
        ] {
            assert!(parse_words(words).is_ok(), "{words:?}: {:?}", parse_words(words).err());
        }
    }
}
