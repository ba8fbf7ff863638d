//! `zoolet shell`: reads and changes znodes of any ZooKeeper server, as zkCli does.
//!
//! # The parts
//! A line becomes words ([`words`]), its first word a row of the [`table`], and the others
//! [`arguments`]. The row's function asks the session ([`client`]) and returns an [`output`]
//! without a form, or a [`failure`]. [`print`] writes it as zkCli does, or as JSON.
//!
//! # How to add a command
//! 1. Write `fn NAME(&mut Shell, &Arguments) -> Result<Output, Failure>` in a file of `commands`.
//!    `arguments.path(0)?` is its first operand, `shell.session()?.ask(request)?` an answer.
//!    A missing operand is `arguments.usage()`. A function that prints while it runs, such as one
//!    over a large subtree, uses `shell.printer()`. Every wait for the session or for a file ends
//!    with Ctrl-C as `Failure::Interrupted`, and later requests are not sent.
//! 2. Add a row to the `TABLE` of the file, and a new file's `TABLE` to `TABLES` in [`table`].
//!    Help, completion and docs/reference/shell.md come from the row.
//! 3. Return a variant of [`Output`], or `Output::Own` with an implementation of `output::Show`.
//! 4. Test parsing and printing in the file; add the command to tests/foreign/zkcli if zkCli has it.

mod acl;
mod arguments;
mod client;
mod commands;
mod config_text;
mod depth_first;
mod ending;
mod events;
mod exported;
mod failure;
mod files;
mod glob;
mod help;
mod input;
mod interactive;
mod lines;
mod multi;
mod output;
#[cfg(test)]
mod page;
mod print;
mod quota;
mod sources;
mod table;
mod walk;
mod words;
mod znode_path;

use super::{Address, Exit};
use arguments::Arguments;
use client::{Connect, Event, ImageFile, Interrupts, Session, Sink};
use ending::{Ending, Scene, die_of};
use events::{Batch, Followed, Queue};
use failure::Failure;
use lines::Lines;
use output::Output;
use std::io::{self, BufRead, IsTerminal, Write};
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use std::time::Duration;
use tokio::runtime::{Builder, Handle};

/// Colours of a terminal: dim events, red failures.
const EVENT_COLOUR: &str = "2";
const FAILURE_COLOUR: &str = "31";

/// The line for a script whose session the server has ended.
const EXPIRED: &str = "the session has expired, so its ephemerals are gone; the shell goes on with a new session";

/// Exit code of a process that Ctrl-C ended.
const INTERRUPTED: u8 = 130;

/// The options of `shell`.
#[derive(Debug)]
pub(super) struct Options {
    pub(super) address: Address,
    /// The image that is read in place of a server.
    pub(super) image: Option<PathBuf>,
    pub(super) timeout: Duration,
    pub(super) read_only: bool,
    pub(super) wait_for_connection: bool,
    pub(super) json: bool,
    /// The words of one command; empty for commands from the terminal or standard input.
    pub(super) command: Vec<String>,
}

/// Runs the shell.
pub(super) fn shell(options: Options) -> Result<(), Exit> {
    let handle = runtime()?;
    let mut shell = Shell::new(options, handle);
    shell.print_events()?;
    shell.listen_to_signals()?;
    let command = std::mem::take(&mut shell.options.command);
    match shell.options.image.take() {
        Some(file) => shell.open_image(&file)?,
        None => shell.open(shell.options.address.clone()),
    }
    if shell.options.wait_for_connection
        && let Err(failure) = shell.wait_connected()
    {
        shell.complain(&failure);
        return Err(Exit { code: 1, line: String::new() });
    }
    let code = match command.as_slice() {
        [] if shell.is_interactive => interactive::run(&mut shell),
        [] => shell.read_commands(io::stdin().lock()),
        words => shell.carry_out(words),
    };
    if shell.is_interactive {
        // An event that reports the end of the session would tell its user nothing.
        shell.prints_events.store(false, Ordering::Relaxed);
    }
    shell.close();
    shell.events.settle(&shell.interrupts);
    if let Some(signal) = shell.ending.signal() {
        die_of(signal);
    }
    if code == 0 { Ok(()) } else { Err(Exit { code, line: String::new() }) }
}

/// Starts the thread that drives all connections, so that callers may block.
fn runtime() -> Result<Handle, Exit> {
    let runtime = Builder::new_current_thread().enable_all().build().map_err(Exit::failed)?;
    let handle = runtime.handle().clone();
    let drive = move || runtime.block_on(std::future::pending::<()>());
    thread::Builder::new().name("session".to_owned()).spawn(drive).map_err(Exit::failed)?;
    Ok(handle)
}

/// Writes results in the form that the user chose.
#[derive(Clone, Copy, Debug)]
struct Printer {
    is_json: bool,
}

impl Printer {
    /// Prints a result now.
    ///
    /// # Errors
    /// Nothing reads the output any more, or it cannot be written.
    fn print(self, output: &Output) -> Result<(), Failure> {
        match print::write(&print::form(output, self.is_json)) {
            Ok(true) => Ok(()),
            Ok(false) => Err(Failure::ReaderGone),
            Err(error) => Err(Failure::Text(format!("standard output: {error}"))),
        }
    }
}

/// Prints text that no command asked for; at a terminal, above the line being typed.
type Screen = Arc<Mutex<Box<dyn FnMut(&str) + Send>>>;

/// The command that takes its events in place of the screen.
type Follower = Arc<Mutex<Option<(Followed, Arc<Queue>)>>>;

/// The state of the shell between commands.
struct Shell {
    options: Options,
    handle: Handle,
    interrupts: Arc<Interrupts>,
    session: Option<Session>,
    ending: Arc<Ending>,
    lines: Lines,
    /// Whether watch events are printed.
    prints_events: Arc<AtomicBool>,
    /// Whether a command runs.
    is_busy: Arc<AtomicBool>,
    is_interactive: bool,
    /// Whether standard input has the commands.
    reads_commands: bool,
    has_colours: bool,
    /// Where events are printed.
    screen: Screen,
    /// Events that wait to be printed.
    events: Arc<Queue>,
    follower: Follower,
    /// Whether the command that runs ends the shell.
    leaves: bool,
    /// Exit code of the last command.
    code: u8,
}

impl Shell {
    fn new(options: Options, handle: Handle) -> Self {
        let reads_commands = options.command.is_empty();
        let is_interactive = reads_commands && io::stdin().is_terminal() && io::stdout().is_terminal();
        Self {
            options,
            handle,
            interrupts: Interrupts::new(),
            session: None,
            ending: Arc::default(),
            lines: Lines::default(),
            prints_events: Arc::new(AtomicBool::new(true)),
            is_busy: Arc::default(),
            is_interactive,
            reads_commands,
            has_colours: is_interactive && std::env::var_os("NO_COLOR").is_none_or(|value| value.is_empty()),
            screen: Arc::new(Mutex::new(Box::new(|text| {
                let _ = io::stdout().lock().write_all(text.as_bytes());
            }))),
            events: Arc::default(),
            follower: Arc::default(),
            leaves: false,
            code: 0,
        }
    }

    /// Lets signals end the command that runs, and the shell.
    fn listen_to_signals(&self) -> Result<(), Exit> {
        let (ending, interrupts, is_busy) = (self.ending.clone(), self.interrupts.clone(), self.is_busy.clone());
        let scene = Scene { ending, interrupts, is_busy, is_interactive: self.is_interactive };
        scene.listen(&self.handle).map_err(Exit::failed)
    }

    /// Opens a session in place of the present one.
    fn open(&mut self, address: Address) {
        self.close();
        let connect = Connect {
            address,
            timeout: self.options.timeout,
            read_only: self.options.read_only,
            asks_role: self.is_interactive,
        };
        self.options.address = connect.address.clone();
        let session = Session::open(connect, self.sink(), &self.handle, &self.interrupts);
        self.ending.keep(&session);
        self.session = Some(session);
    }

    /// Opens an image in place of a server.
    fn open_image(&mut self, file: &std::path::Path) -> Result<(), Exit> {
        let image = ImageFile::open(file).map_err(Exit::failed)?;
        let session = Session::open_image(image, &self.handle, &self.interrupts);
        self.ending.keep(&session);
        self.session = Some(session);
        Ok(())
    }

    /// Ends the session, if there is one.
    fn close(&mut self) {
        if let Some(session) = self.session.take() {
            self.ending.close(session);
        }
    }

    /// Hands events on. A script gets no events of the connection itself except the end of its session.
    ///
    /// It runs on the session's thread, so it does not write: a terminal held by Ctrl-S would stop
    /// the pings of the session.
    fn sink(&self) -> Sink {
        let (prints, is_interactive) = (self.prints_events.clone(), self.is_interactive);
        let (events, follower) = (self.events.clone(), self.follower.clone());
        Arc::new(move |event: Event| {
            // A script hears of it even if its command takes the event.
            if !is_interactive && event.is_expiry() {
                events.push(event.clone());
            }
            match &*follower.lock().unwrap_or_else(PoisonError::into_inner) {
                Some((followed, queue)) if followed.covers(&event) => return queue.push(event),
                _ => {}
            }
            if prints.load(Ordering::Relaxed) && (is_interactive || event.path.is_some()) {
                events.push(event);
            }
        })
    }

    /// Starts the thread that prints events.
    fn print_events(&self) -> Result<(), Exit> {
        let (events, screen, handle) = (self.events.clone(), self.screen.clone(), self.handle.clone());
        let (has_colours, is_json, is_interactive) = (self.has_colours, self.options.json, self.is_interactive);
        let print = move || {
            loop {
                let Batch { seen, missed } = handle.block_on(events.take());
                let event = |event: &Event| if is_json { print::event_in_json(event) } else { print::event(event) };
                let (ends, seen): (Vec<_>, Vec<_>) =
                    seen.into_iter().partition(|seen| !is_interactive && seen.event.is_expiry());
                for _ in ends {
                    let json = || print::failure_in_json(&Failure::text(EXPIRED), EXPIRED);
                    let line = if is_json { json() } else { EXPIRED.to_owned() };
                    let _ = writeln!(io::stderr(), "{line}");
                }
                let lost = match missed {
                    0 => None,
                    _ if is_json => Some(format!("{{\"missed\":{missed}}}\n")),
                    _ => Some(format!("missed {missed} events, because this terminal did not take them in time\n")),
                };
                for text in seen.iter().map(|seen| event(&seen.event)).chain(lost) {
                    let text = paint(&text, EVENT_COLOUR, has_colours);
                    screen.lock().unwrap_or_else(PoisonError::into_inner)(&text);
                }
            }
        };
        thread::Builder::new().name("events".to_owned()).spawn(print).map_err(Exit::failed)?;
        Ok(())
    }

    /// Takes the events of a subtree, until [`Shell::unfollow`].
    fn follow(&self, followed: Followed) -> Arc<Queue> {
        let queue = Arc::<Queue>::default();
        *self.follower.lock().unwrap_or_else(PoisonError::into_inner) = Some((followed, queue.clone()));
        queue
    }

    /// Lets the events go to the screen again.
    fn unfollow(&self) {
        *self.follower.lock().unwrap_or_else(PoisonError::into_inner) = None;
    }

    fn wait_connected(&self) -> Result<(), Failure> {
        self.session()?.wait_connected(self.options.timeout)
    }

    /// Returns the session.
    ///
    /// # Errors
    /// `close` has ended it.
    fn session(&self) -> Result<&Session, Failure> {
        self.session.as_ref().ok_or_else(|| Failure::text("Not connected"))
    }

    /// Returns the printer, for a command that prints while it runs.
    fn printer(&self) -> Printer {
        Printer { is_json: self.options.json }
    }

    /// Prints a part of a command's result.
    ///
    /// # Errors
    /// As [`Printer::print`].
    fn emit(&self, output: &Output) -> Result<(), Failure> {
        self.printer().print(output)
    }

    /// Carries out the commands of standard input; returns the exit code of the last one.
    ///
    /// It ends after a command during which Ctrl-C was struck, even if the command succeeded.
    fn read_commands(&mut self, mut input: impl BufRead) -> u8 {
        let mut line = Vec::new();
        for number in 1_u64.. {
            line.clear();
            match input.read_until(b'\n', &mut line) {
                Ok(0) => break,
                Ok(_) => {
                    let line = line.strip_suffix(b"\n").unwrap_or(&line);
                    self.carry_out_bytes(number, line.strip_suffix(b"\r").unwrap_or(line));
                }
                Err(error) => {
                    self.complain(&Failure::Text(format!("standard input: {error}")));
                    return 1;
                }
            }
            if self.leaves {
                break;
            }
            if self.interrupts.is_struck() {
                self.complain(&Failure::interrupted());
                return INTERRUPTED;
            }
        }
        self.code
    }

    /// Carries out the lines of a text that a user has typed or pasted, each after `note`.
    ///
    /// After Ctrl-C the other lines are left out.
    fn carry_out_lines<E>(&mut self, text: &str, mut note: impl FnMut(&str) -> Result<(), E>) -> Result<(), E> {
        self.interrupts.begin();
        let mut lines = text.lines();
        while !self.leaves
            && !self.interrupts.is_struck()
            && let Some(line) = lines.next()
        {
            note(line)?;
            self.carry_out_line(line);
        }
        let left = lines.count();
        if left > 0 && !self.leaves {
            self.complain(&Failure::Text(format!("Ctrl-C: lines that are not carried out: {left}")));
        }
        Ok(())
    }

    /// Carries out a line of standard input. A line that is no text fails alone, unless it is a comment.
    fn carry_out_bytes(&mut self, number: u64, line: &[u8]) {
        match str::from_utf8(line) {
            Ok(line) => self.carry_out_line(line),
            Err(_) if line.trim_ascii_start().starts_with(b"#") => {}
            Err(_) => {
                let mistake = format!("standard input, line {number}: it is not UTF-8; it was not carried out");
                self.complain(&Failure::Text(mistake));
                self.code = 1;
            }
        }
    }

    /// Carries out a line; empty lines and those that begin with # do nothing.
    fn carry_out_line(&mut self, line: &str) {
        let words = words::split(line);
        if words.first().is_some_and(|first| !first.starts_with('#')) {
            self.lines.add(line.trim());
            // Completion closes a quote, and the user may type on: the command must not take the parent.
            if self.is_interactive
                && let Some(word) = words::joined(line)
            {
                let mistake = format!("the quotes end at {word}, and letters follow; move the quote, as Tab does");
                self.complain(&Failure::Text(mistake));
                self.code = 1;
                return;
            }
            self.carry_out(&words);
        }
    }

    /// Carries out a command, prints its result, and returns its exit code.
    fn carry_out(&mut self, words: &[String]) -> u8 {
        self.is_busy.store(true, Ordering::Relaxed);
        let outcome = self.run(words);
        self.is_busy.store(false, Ordering::Relaxed);
        // A shell that a signal ends has no next prompt.
        self.leaves |= self.is_interactive && self.ending.signal().is_some();
        self.code = match outcome {
            // `quit` leaves with the code of the command before, as in zkCli.
            Ok(()) if self.leaves => self.code,
            Ok(()) => 0,
            Err(failure) => {
                self.complain(&failure);
                // A script goes on without a reader of its output, as with zkCli: it may have writes.
                self.leaves |= match failure {
                    Failure::ReaderGone => self.is_interactive,
                    Failure::Interrupted { .. } => !self.is_interactive,
                    _ => false,
                };
                failure.exit_code()
            }
        };
        self.code
    }

    fn run(&mut self, words: &[String]) -> Result<(), Failure> {
        let Some((name, rest)) = words.split_first() else { return Ok(()) };
        let command = table::find(name).ok_or_else(|| Failure::UnknownCommand(name.clone()))?;
        let output = (command.run)(self, &Arguments::read(command, rest)?)?;
        // The events of a change stand before the result of the command that waited for it.
        if !self.events.settle(&self.interrupts) && !matches!(output, Output::Nothing) {
            let why = "the command was carried out; its result is not shown".to_owned();
            return Err(Failure::Interrupted { why });
        }
        self.emit(&output)
    }

    /// Prints the failure of a command, with a remedy for a reader at a terminal.
    fn complain(&self, failure: &Failure) {
        let message = failure.message();
        if message.is_empty() {
            return;
        }
        let is_terminal = io::stderr().is_terminal();
        let message = if is_terminal { print::escaped(&message).into_owned() } else { message };
        let has_colours = self.has_colours && is_terminal;
        let message = paint(&message, FAILURE_COLOUR, has_colours);
        let lines = match hint(failure) {
            _ if self.options.json => print::failure_in_json(failure, &failure.message()),
            Some(hint) if io::stderr().is_terminal() => format!("{message}\n({hint})"),
            Some(_) | None => message,
        };
        let _ = writeln!(io::stderr(), "{lines}");
    }
}

/// Returns a remedy, for a reader at a terminal.
fn hint(failure: &Failure) -> Option<String> {
    match failure {
        Failure::UnknownCommand(name) => {
            Some(table::near(name).map_or("help lists the commands".to_owned(), |near| format!("did you mean {near}?")))
        }
        failure => failure.hint().map(str::to_owned),
    }
}

/// Returns text in a colour, if colours are wanted.
fn paint(text: &str, colour: &str, has_colours: bool) -> String {
    if has_colours { format!("\x1b[{colour}m{text}\x1b[0m") } else { text.to_owned() }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::convert::Infallible;

    fn shell() -> Shell {
        let address = Address { text: String::new(), servers: Vec::new(), root: String::new() };
        let (timeout, command) = (Duration::from_secs(1), Vec::new());
        let options = Options {
            address,
            image: None,
            timeout,
            read_only: false,
            wait_for_connection: false,
            json: false,
            command,
        };
        Shell::new(options, runtime().ok().unwrap())
    }

    /// Commands during which Ctrl-C is struck; they do not notice.
    struct Struck(Arc<Interrupts>, &'static [u8]);

    impl io::Read for Struck {
        fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
            self.0.strike();
            self.1.read(buffer)
        }
    }

    #[test]
    fn ctrl_c_ends_a_script_after_a_command_that_did_not_notice() {
        let mut shell = shell();
        let input = Struck(shell.interrupts.clone(), b"unknown\nunknown\nunknown\n");
        assert_eq!((shell.read_commands(io::BufReader::new(input)), shell.lines.count()), (INTERRUPTED, 1));
    }

    #[test]
    fn ctrl_c_leaves_out_the_other_lines_of_a_pasted_text() {
        let mut shell = shell();
        let interrupts = shell.interrupts.clone();
        for expected in [1, 2] {
            let strike = |_: &str| {
                interrupts.strike();
                Ok::<_, Infallible>(())
            };
            shell.carry_out_lines("unknown\nunknown\n", strike).unwrap();
            assert_eq!(shell.lines.count(), expected);
        }
    }
}
