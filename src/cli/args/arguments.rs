//! The arguments of one command, read by the table of commands.

use super::{Exit, help, unknown};
use lexopt::prelude::{Long, Short, Value};
use std::cell::RefCell;
use std::ffi::OsString;
use zoolet_profiles::nearest;

/// Options that may be repeated.
const REPEATABLE: [&str; 1] = ["peer"];

/// Options of other servers and tools, with their names here; a command's first match counts.
const OF_OTHERS: [(&str, &str); 10] = [
    ("port", "listen"),
    ("address", "listen"),
    ("bind", "listen"),
    ("myid", "id"),
    ("dir", "data"),
    ("host", "server"),
    ("server", "servers"),
    ("server", "peer"),
    ("server", "listen"),
    ("server", "data"),
];

/// What the arguments after a command's first word say.
pub(super) enum Read {
    Command(Box<Arguments>),
    /// Show the help of the commands that begin with these words.
    Help(String),
}

/// The arguments of a command: every option is in the table, has its value, and is not repeated.
pub(super) struct Arguments {
    command: help::Command,
    argument: String,
    /// The second argument; `None` if it is not given.
    second: Option<String>,
    /// The arguments after `--`: the command to run; empty without `--`.
    run: Vec<OsString>,
    /// Options with their values, in their order; a flag has an empty value.
    options: Vec<(&'static str, String)>,
    /// Options for which the command's parser asked.
    asked: RefCell<Vec<&'static str>>,
}

impl Arguments {
    /// Reads the arguments that follow the word `first`.
    ///
    /// # Errors
    /// A word, an option or a value is unknown, missing, repeated or too many.
    pub(super) fn read(first: &str, parser: &mut lexopt::Parser) -> Result<Read, Exit> {
        // A wrong argument beside it does not matter to someone who asks for help.
        let asks_for_help = asks_for_help(first, parser.clone());
        let command = match command(first, parser) {
            Ok(command) => command,
            Err(_) if asks_for_help && !help::commands_of(first).is_empty() => return Ok(Read::Help(first.to_owned())),
            Err(exit) => return Err(exit),
        };
        if asks_for_help {
            return Ok(Read::Help(command.words));
        }
        let mut arguments = Self {
            command,
            argument: String::new(),
            second: None,
            run: Vec::new(),
            options: Vec::new(),
            asked: RefCell::new(Vec::new()),
        };
        loop {
            if arguments.command.runs && is_at_dashes(parser) {
                arguments.run = parser.raw_args().map_err(Exit::usage)?.skip(1).collect();
                break;
            }
            let Some(argument) = parser.next().map_err(Exit::usage)? else { break };
            match argument {
                Value(text) if arguments.argument.is_empty() && !arguments.command.argument.is_empty() => {
                    arguments.argument = self::text(text)?;
                }
                Value(text) if arguments.second.is_none() && !arguments.command.second.is_empty() => {
                    arguments.second = Some(self::text(text)?);
                }
                Value(text) if arguments.command.runs => {
                    let (words, usage) = (&arguments.command.words, arguments.command.usage);
                    let text = text.display();
                    return Err(Exit::usage(format!(
                        "{words}: unexpected argument '{text}'; write -- before the command: zoolet {usage}"
                    )));
                }
                Value(text) => return Err(arguments.wrong(&format!("unexpected argument '{}'", text.display()))),
                Short(letter) => return Err(arguments.wrong(&format!("invalid option '-{letter}'"))),
                Long(name) => {
                    let option = arguments.option(name)?;
                    arguments.take(option, parser)?;
                }
            }
        }
        if arguments.argument.is_empty() && !arguments.command.argument.is_empty() {
            let help::Command { words, usage, says, .. } = &arguments.command;
            let noun = arguments.command.argument;
            return Err(Exit::usage(format!("{words}: {noun} is missing; write zoolet {usage}: {says}")));
        }
        Ok(Read::Command(Box::new(arguments)))
    }

    /// Returns the command's option of this name.
    fn option(&self, name: &str) -> Result<help::Choice, Exit> {
        let options = &self.command.options;
        let find = |name: &str| options.iter().find(|option| option.name == name).copied();
        find(name).ok_or_else(|| {
            let of_others = OF_OTHERS.iter().filter(|(other, _)| *other == name).find_map(|(_, here)| find(here));
            let near = of_others.map(|option| option.name);
            match near.or_else(|| nearest(name, options.iter().map(|option| option.name))) {
                Some(near) => {
                    Exit::usage(format!("{}: invalid option '--{name}'; did you mean --{near}?", self.command.words))
                }
                None => self.wrong(&format!("invalid option '--{name}'")),
            }
        })
    }

    /// Adds an option, with the value that follows.
    fn take(&mut self, option: help::Choice, parser: &mut lexopt::Parser) -> Result<(), Exit> {
        let (words, name) = (&self.command.words, option.name);
        let value = if option.value.is_empty() {
            match parser.optional_value() {
                None => String::new(),
                Some(_) => return Err(self.wrong(&format!("--{name} takes no value"))),
            }
        } else {
            let value = parser.value().unwrap_or_default();
            if value.is_empty() {
                let (usage, says) = (option.usage(), option.says);
                return Err(Exit::usage(format!("{words}: --{name}: its value is missing; write {usage}: {says}")));
            }
            text(value)?
        };
        let is_repeated = self.options.iter().any(|(known, _)| *known == name);
        // Of a repeated option only the last value would count.
        if is_repeated && !option.value.is_empty() && !REPEATABLE.contains(&name) {
            let several = if option.value.ends_with(",..") { ", with values separated by commas" } else { "" };
            return Err(Exit::usage(format!("{words}: --{name} is given twice: give it once{several}")));
        }
        self.options.push((name, value));
        Ok(())
    }

    fn wrong(&self, what: &str) -> Exit {
        Exit::usage(format!("{}: {what}; see zoolet {} --help", self.command.words, self.command.words))
    }

    /// Returns the command's words, such as `profile show`.
    pub(super) fn words(&self) -> &str {
        &self.command.words
    }

    /// Returns the command's argument; empty for a command without one.
    #[cfg(feature = "tools")]
    pub(super) fn argument(&self) -> &str {
        &self.argument
    }

    /// Returns the second argument, if it is given.
    #[cfg(feature = "tools")]
    pub(super) fn second(&self) -> Option<&str> {
        self.second.as_deref()
    }

    /// Returns the arguments after `--`.
    #[cfg(feature = "tools")]
    pub(super) fn run(&self) -> &[OsString] {
        &self.run
    }

    /// Returns the command's line of usage.
    #[cfg(feature = "tools")]
    pub(super) fn usage(&self) -> &'static str {
        self.command.usage
    }

    /// Returns whether an option is given.
    pub(super) fn has(&self, option: &'static str) -> bool {
        self.value(option).is_some()
    }

    /// Returns the value of an option; `None` if it is not given.
    pub(super) fn value(&self, option: &'static str) -> Option<&str> {
        self.values(option).next()
    }

    /// Sets `target` to the parsed value of an option, if it is given.
    ///
    /// # Errors
    /// The error of `parse`, which takes the option's name and its value.
    #[cfg(feature = "tools")]
    pub(super) fn set<T>(
        &self,
        option: &'static str,
        target: &mut T,
        parse: impl FnOnce(&str, &str) -> Result<T, Exit>,
    ) -> Result<(), Exit> {
        if let Some(text) = self.value(option) {
            *target = parse(option, text)?;
        }
        Ok(())
    }

    /// Returns the values of a repeatable option.
    pub(super) fn values(&self, option: &'static str) -> impl Iterator<Item = &str> {
        debug_assert!(self.command.options.iter().any(|known| known.name == option), "--{option} is not in the table");
        self.asked.borrow_mut().push(option);
        self.options.iter().filter(move |(known, _)| *known == option).map(|(_, value)| value.as_str())
    }

    /// Returns the names of all given options.
    #[cfg(feature = "tools")]
    pub(super) fn names(&self) -> impl Iterator<Item = &'static str> {
        self.options.iter().map(|(name, _)| *name)
    }

    /// Returns an option of the table for which nothing asked, and which therefore has no effect.
    pub(super) fn unread(&self) -> Option<&'static str> {
        let asked = self.asked.borrow();
        self.command.options.iter().map(|option| option.name).find(|name| !asked.contains(name))
    }
}

/// Returns the command that begins with `first`, reading its other words.
fn command(first: &str, parser: &mut lexopt::Parser) -> Result<help::Command, Exit> {
    let mut candidates = help::commands_of(first);
    if let Some(alone) = candidates.iter().position(|command| command.words == first) {
        return Ok(candidates.swap_remove(alone));
    }
    if candidates.is_empty() {
        return Err(unknown(first));
    }
    let usages: Vec<String> = candidates.iter().map(with_argument).collect();
    let allowed = || format!("allowed is {}", usages.join(", "));
    let Ok(Some(Value(second))) = parser.next() else { return Err(Exit::usage(format!("{first}: {}", allowed()))) };
    let words = format!("{first} {}", second.display());
    if let Some(at) = candidates.iter().position(|command| command.words == words) {
        return Ok(candidates.swap_remove(at));
    }
    let near = nearest(&words, candidates.iter().map(|command| command.words.as_str()));
    let hint = near.map_or_else(allowed, |near| format!("did you mean {near}?"));
    Err(Exit::usage(format!("{words}: no such command; {hint}")))
}

/// Returns a command as its user writes it, without options.
fn with_argument(command: &help::Command) -> String {
    format!("{} {}", command.words, command.argument).trim_end().to_owned()
}

/// Returns whether `--help` or `-h` stands where an option may stand.
fn asks_for_help(first: &str, mut parser: lexopt::Parser) -> bool {
    let options: Vec<help::Choice> = help::commands_of(first).into_iter().flat_map(|command| command.options).collect();
    let runs = help::commands_of(first).iter().any(|command| command.runs);
    loop {
        if runs && is_at_dashes(&mut parser) {
            return false;
        }
        match parser.next() {
            Ok(Some(Long("help") | Short('h'))) => return true,
            Ok(Some(Long(name))) => {
                let takes_value = options.iter().any(|option| option.name == name && !option.value.is_empty());
                let _ = if takes_value { parser.value().ok() } else { parser.optional_value() };
            }
            Ok(Some(Short(_) | Value(_))) | Err(_) => {}
            Ok(None) => return false,
        }
    }
}

/// Returns whether the next argument is `--`.
fn is_at_dashes(parser: &mut lexopt::Parser) -> bool {
    parser.try_raw_args().is_some_and(|arguments| arguments.peek().is_some_and(|next| next == "--"))
}

/// Returns an argument as text.
pub(super) fn text(argument: OsString) -> Result<String, Exit> {
    argument.into_string().map_err(|bytes| Exit::usage(format!("{}: is not UTF-8", bytes.display())))
}
