//! The shell at a terminal: editing, history, completion, and events above the line being typed.

mod complete;
mod history;
mod prompt;
mod screen;

use super::client::{Asker, State};
use super::failure::Failure;
use super::{Screen, Shell, paint};
use complete::{Candidate, Candidates};
use history::History;
use rustyline::completion::{Completer, Pair};
use rustyline::config::{BellStyle, ColorMode, CompletionType};
use rustyline::error::ReadlineError;
use rustyline::highlight::{CmdKind, Highlighter};
use rustyline::hint::Hinter;
use rustyline::history::MemHistory;
use rustyline::validate::{ValidationContext, ValidationResult, Validator};
use rustyline::{Config, Context, Editor, Helper};
use screen::Line;
use std::borrow::Cow;
use std::io::{self, Write};
use std::time::Duration;
use zoolet_model::{Reply, Request};

/// Maximum wait for the first connection and for the server's role, before a prompt.
const PROMPT_WAIT: Duration = Duration::from_millis(500);
/// Maximum wait for the children of a znode, while a path is completed.
const COMPLETION_WAIT: Duration = Duration::from_millis(500);
/// Candidates of a completion that are listed without a question.
const LISTED_MAX: usize = 100;

/// Reads and carries out commands until the user leaves; returns the exit code of the last one.
pub(super) fn run(shell: &mut Shell) -> u8 {
    match converse(shell) {
        Ok(()) => shell.code,
        Err(error) => {
            shell.complain(&Failure::Text(format!("the terminal: {error}")));
            1
        }
    }
}

fn converse(shell: &mut Shell) -> rustyline::Result<()> {
    let history = History::open();
    let line = Line::default();
    let mut editor = editor(&history, &line, shell.has_colours)?;
    redirect(&shell.screen, line.clone());
    let _ = writeln!(io::stdout(), "Connecting to {}", shell.options.address.text);
    while !shell.leaves {
        let prompt = prompt_of(shell);
        if let Some(helper) = editor.helper_mut() {
            helper.asker = shell.session.as_ref().map(super::client::Session::asker);
        }
        let styled = paint(&prompt, prompt::COLOUR, shell.has_colours);
        line.begin(&prompt, &styled);
        let typed = editor.readline(&(prompt, styled));
        line.end();
        match typed {
            // A pasted text may have several lines.
            Ok(typed) => shell.carry_out_lines(&typed, |line| {
                if history.add(line) { editor.add_history_entry(line.trim()).map(|_| ()) } else { Ok(()) }
            })?,
            // The line is given up, and the shell stays.
            Err(ReadlineError::Interrupted) => {}
            Err(ReadlineError::Eof) => break,
            Err(error) => return Err(error),
        }
    }
    Ok(())
}

fn editor(history: &History, line: &Line, has_colours: bool) -> rustyline::Result<Editor<Assistant, MemHistory>> {
    let config = Config::builder()
        .max_history_size(history::LINES_MAX)?
        .history_ignore_dups(true)?
        .history_ignore_space(true)
        .completion_type(CompletionType::List)
        .completion_prompt_limit(LISTED_MAX)
        .color_mode(if has_colours { ColorMode::Enabled } else { ColorMode::Disabled })
        .bell_style(BellStyle::None)
        .auto_add_history(false)
        .build();
    let memory = MemHistory::with_config(&config);
    let mut editor = Editor::with_history(config, memory)?;
    for line in history.lines() {
        editor.add_history_entry(line)?;
    }
    editor.set_helper(Some(Assistant { asker: None, line: line.clone() }));
    Ok(editor)
}

/// Prints events above the line being typed from now on.
fn redirect(screen: &Screen, line: Line) {
    let mut screen = screen.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
    *screen = Box::new(move |text| line.print_above(text));
}

/// Returns the prompt; at first it waits a little for the connection.
fn prompt_of(shell: &Shell) -> String {
    let number = shell.lines.count();
    let host = &shell.options.address.text;
    let Some(session) = &shell.session else { return prompt::text(host, State::Closed, "", number) };
    session.wait_introduced(PROMPT_WAIT);
    let status = session.status();
    let role = status.introduction.map(|introduction| introduction.role).unwrap_or_default();
    prompt::text(host, status.state, &role, number)
}

/// Answers the editor while a line is typed.
struct Assistant {
    asker: Option<Asker>,
    line: Line,
}

impl Assistant {
    /// Returns the children of a znode; none if the server does not answer soon.
    fn children(&self, path: &str) -> Vec<String> {
        let request = Request::GetChildren { path: path.into(), watch: false, with_stat: false };
        match self.asker.as_ref().and_then(|asker| asker.ask_within(request, COMPLETION_WAIT)) {
            Some(Reply::Names(names)) => {
                let mut names: Vec<String> = names.iter().map(str::to_owned).collect();
                names.sort_unstable();
                names
            }
            _ => Vec::new(),
        }
    }
}

impl Completer for Assistant {
    type Candidate = Pair;

    fn complete(&self, line: &str, at: usize, _context: &Context<'_>) -> rustyline::Result<(usize, Vec<Pair>)> {
        let Candidates { begin, texts } = complete::candidates(&line[..at], |path| self.children(path));
        let pair = |Candidate { shown, inserted }: Candidate| Pair { display: shown, replacement: inserted };
        Ok((begin, texts.into_iter().map(pair).collect()))
    }
}

/// Notes each change of the line; it gives no hints.
impl Hinter for Assistant {
    type Hint = String;

    fn hint(&self, line: &str, at: usize, _context: &Context<'_>) -> Option<String> {
        self.line.note(line, at);
        None
    }
}

/// Notes each move of the cursor; it changes no colours.
impl Highlighter for Assistant {
    fn highlight<'l>(&self, line: &'l str, at: usize) -> Cow<'l, str> {
        self.line.note(line, at);
        Cow::Borrowed(line)
    }

    fn highlight_char(&self, line: &str, at: usize, _kind: CmdKind) -> bool {
        self.line.note(line, at);
        false
    }
}

/// Accepts every line, and ends it before the editor writes its newline.
///
/// An event between the newline and the editor's return would write the line a second time, and the
/// result of the command would follow it in the same row.
impl Validator for Assistant {
    fn validate(&self, _context: &mut ValidationContext<'_>) -> rustyline::Result<ValidationResult> {
        self.line.end();
        Ok(ValidationResult::Valid(None))
    }
}

impl Helper for Assistant {}
