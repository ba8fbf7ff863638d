//! Parses the command line, once.

#[cfg(feature = "tools")]
mod bench;
#[cfg(feature = "tools")]
mod ensemble;
#[cfg(feature = "tools")]
mod probe;
#[cfg(feature = "tools")]
mod profile;
mod site;
#[cfg(feature = "tools")]
mod tools;
mod unit;

use super::{Exit, help, keygen::Keygen, status};
use lexopt::prelude::{Long, Short, Value};
use std::path::PathBuf;
use std::time::Duration;
#[cfg(feature = "tools")]
pub(super) use tools::Tool;
use tracing::Level;
use zoolet::config::refuse_stray_key;
use zoolet_profiles::nearest;

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
    Help,
}

/// The flags of `serve`.
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

impl Default for ServeOptions {
    fn default() -> Self {
        Self {
            config: None,
            profile: None,
            data: None,
            create: false,
            listen: None,
            id: None,
            until_eof: false,
            keep_trying: false,
            check: false,
            log: Level::INFO,
            log_json: false,
        }
    }
}

/// Parses the arguments into a command.
///
/// # Errors
/// A wrong argument; the line lists the allowed values.
pub(super) fn parse(mut parser: lexopt::Parser) -> Result<Command, Exit> {
    // Runs first, because most error lines show the wrong argument.
    refuse_stray_keys(parser.clone())?;
    let first = parser.next().map_err(Exit::usage)?;
    let command = match first {
        None | Some(Long("help") | Short('h')) => Command::Help,
        Some(Long("version") | Short('V')) => Command::Version,
        Some(Value(name)) => return named(&name.to_string_lossy(), &mut parser),
        Some(other) => return Err(Exit::usage(format!("{}; see zoolet --help", other.unexpected()))),
    };
    Ok(command)
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

/// Options that may be repeated.
const REPEATABLE: [&str; 1] = ["peer"];

/// Refuses a repeated option of the command `name`, or one with an empty value.
///
/// Of a repeated option only the last value would count.
fn check_options(name: &str, mut parser: lexopt::Parser) -> Result<(), Exit> {
    let (options, mut seen) = (help::options(name), Vec::new());
    // The command's own parser reports malformed arguments.
    while let Ok(Some(argument)) = parser.next() {
        let Long(long) = argument else { continue };
        let known = options.iter().find(|option| option.name == long && !option.value.is_empty());
        let Some(option) = known else { continue };
        if parser.value().is_ok_and(|value| value.is_empty()) {
            return Err(Exit::usage(format!("{name}: --{}: its value is missing; see zoolet --help", option.name)));
        }
        if seen.contains(&option.name) && !REPEATABLE.contains(&option.name) {
            let several = if option.value.ends_with(",..") { ", with values separated by commas" } else { "" };
            return Err(Exit::usage(format!("{name}: --{} is given twice: give it once{several}", option.name)));
        }
        seen.push(option.name);
    }
    Ok(())
}

fn named(name: &str, parser: &mut lexopt::Parser) -> Result<Command, Exit> {
    check_options(name, parser.clone())?;
    let command = match name {
        #[cfg(feature = "tools")]
        MEASURE => return Ok(Command::Tool(Tool::Measure(value(parser)?.into()))),
        // Commands must be in the help: otherwise users cannot find them and shells cannot complete
        // them.
        _ if !OF_HELP_AND_VERSION.contains(&name) && !help::has(name) => return Err(unknown(name)),
        "serve" => return serve(parser),
        "status" => return site::status(parser),
        "keygen" => return site::keygen(parser),
        "unit" => return unit::unit(parser),
        "licences" | "licenses" => Command::Licences,
        "help" => Command::Help,
        "version" => Command::Version,
        #[cfg(feature = "tools")]
        _ => return tools::named(name, parser),
        #[cfg(not(feature = "tools"))]
        _ => return Err(unknown(name)),
    };
    alone(name, command, parser)
}

/// Accepts `command` only if no argument follows.
fn alone(name: &str, command: Command, parser: &mut lexopt::Parser) -> Result<Command, Exit> {
    match next(parser, name)? {
        None => Ok(command),
        Some(Long("help") | Short('h')) => Ok(Command::Help),
        Some(more) => Err(Exit::usage(format!("{name}: {}", more.unexpected()))),
    }
}

/// The internal command with which `probe` starts itself for a directory.
///
/// Users do not type it, so neither the help nor the completions contain it.
#[cfg(feature = "tools")]
pub(super) const MEASURE: &str = "probe-disk";

/// Commands outside the help: the options of the same name, and another spelling.
const OF_HELP_AND_VERSION: [&str; 3] = ["help", "version", "licenses"];

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

/// Options of other servers and tools, with their names here.
const OF_OTHERS: [(&str, &str); 6] = [
    ("port", "listen"),
    ("address", "listen"),
    ("bind", "listen"),
    ("myid", "id"),
    ("dir", "data"),
    ("host", "server"),
];

/// Returns the next argument of a command.
///
/// # Errors
/// A malformed argument, or an option that the help does not list for the command.
fn next<'a>(parser: &'a mut lexopt::Parser, command: &str) -> Result<Option<lexopt::Arg<'a>>, Exit> {
    let argument = parser.next().map_err(Exit::usage)?;
    match &argument {
        Some(Long(name)) if *name != "help" && !help::takes(command, name) => {
            let options = help::options(command);
            let of_others = OF_OTHERS.iter().find(|(other, here)| other == name && help::takes(command, here));
            let near = of_others.map(|(_, here)| *here);
            let hint = match near.or_else(|| nearest(name, options.iter().map(|option| option.name))) {
                Some(near) => format!("did you mean --{near}?"),
                None => "see zoolet --help".to_owned(),
            };
            Err(Exit::usage(format!("{command}: invalid option '--{name}'; {hint}")))
        }
        _ => Ok(argument),
    }
}

fn serve(parser: &mut lexopt::Parser) -> Result<Command, Exit> {
    let mut options = ServeOptions::default();
    while let Some(argument) = next(parser, "serve")? {
        match argument {
            Long("config") => options.config = Some(value(parser)?.into()),
            Long("profile") => options.profile = Some(value(parser)?),
            Long("data") => options.data = Some(value(parser)?.into()),
            Long("until-eof") => options.until_eof = true,
            Long("keep-trying") => options.keep_trying = true,
            Long("check") => options.check = true,
            Long("create") => options.create = true,
            Long("listen") => options.listen = Some(value(parser)?),
            Long("id") => options.id = Some(server_id(&value(parser)?)?),
            Long("log") => options.log = level(&value(parser)?)?,
            Long("log-format") => options.log_json = is_json(&value(parser)?)?,
            Long("help") | Short('h') => return Ok(Command::Help),
            other => return Err(Exit::usage(format!("serve: {}; see zoolet --help", other.unexpected()))),
        }
    }
    Ok(Command::Serve(options))
}

fn value(parser: &mut lexopt::Parser) -> Result<String, Exit> {
    let value = parser.value().map_err(Exit::usage)?;
    match value.into_string() {
        Ok(text) if !text.is_empty() => Ok(text),
        Ok(_) => Err(Exit::usage("an option without its value; see zoolet --help")),
        Err(bytes) => Err(Exit::usage(format!("{}: is not UTF-8", bytes.display()))),
    }
}

/// Parses a time with its unit, from `least` to [`TIME_MAX`].
fn time(option: &str, text: &str, least: Duration) -> Result<Duration, Exit> {
    let unit = text.find(|character: char| !character.is_ascii_digit()).unwrap_or(text.len());
    let (count, unit) = text.split_at(unit);
    let unit_ms = match unit {
        "ms" => Some(1),
        "s" => Some(1000),
        "m" => Some(60_000),
        _ => None,
    };
    let time = unit_ms.and_then(|unit_ms| count.parse::<u64>().ok()?.checked_mul(unit_ms)).map(Duration::from_millis);
    time.filter(|time| (least..=TIME_MAX).contains(time)).ok_or_else(|| {
        Exit::usage(format!("--{option} = {text}: allowed is a time like 500ms, 10s or 2m, from {least:?} to 1440m"))
    })
}

fn servers(text: &str) -> Result<Vec<String>, Exit> {
    let wrong = || Exit::usage(format!("--server = {text}: allowed is HOST:PORT, or several separated by commas"));
    text.split(',')
        .map(|server| match server.rsplit_once(':') {
            Some((host, port)) if !host.is_empty() && port.parse::<u16>().is_ok_and(|port| port > 0) => {
                Ok(server.to_owned())
            }
            _ => Err(wrong()),
        })
        .collect()
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

    fn parse_words(words: &[&str]) -> Result<Command, String> {
        parse(lexopt::Parser::from_args(words)).map_err(|exit| format!("{} {}", exit.code, exit.line))
    }

    #[test]
    fn serve_takes_every_flag() {
        let words = ["serve", "--config", "f.toml", "--data=d", "--listen", "plain://0.0.0.0:1", "--log", "debug"];
        let Ok(Command::Serve(options)) = parse_words(&words) else { panic!("not serve") };
        assert_eq!((options.config, options.data), (Some("f.toml".into()), Some("d".into())));
        assert_eq!((options.listen.as_deref(), options.log), (Some("plain://0.0.0.0:1"), Level::DEBUG));
    }

    #[test]
    fn bad_usage_is_one_line_and_exit_code_2() {
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
            (&["serve", "--frobnicate"], "2 serve: invalid option '--frobnicate'; see zoolet --help"),
            (&["serve", "--data"], "2 missing argument for option '--data'"),
            (&["--frob"], "2 invalid option '--frob'"),
        ] {
            let Err(error) = parse_words(words) else { panic!("{words:?} was accepted") };
            assert!(error.starts_with(expected), "{words:?} gave {error:?}");
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
    fn an_option_that_takes_one_value_is_said_once_and_with_one() {
        for (words, expected) in [
            (
                &["status", "--server", "a:1", "--server=b:1"][..],
                "2 status: --server is given twice: give it once, with values separated by commas",
            ),
            (&["serve", "--data", "a", "--create", "--data", "b"], "2 serve: --data is given twice: give it once"),
            (&["serve", "--id", "1", "--id", "1"], "2 serve: --id is given twice: give it once"),
            (&["unit", "systemd", "--config", "a", "--config", "b"], "2 unit: --config is given twice: give it once"),
            (&["serve", "--data="], "2 serve: --data: its value is missing; see zoolet --help"),
            (&["keygen", "--out", ""], "2 keygen: --out: its value is missing; see zoolet --help"),
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
