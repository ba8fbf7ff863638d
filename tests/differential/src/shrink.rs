//! Makes a script smaller as long as it still shows a difference.

use crate::compare::Difference;
use crate::script::{Action, Claim, Op, Script};
use crate::value::Value;
use std::time::{Duration, Instant};

/// Bounds of the search.
#[derive(Clone, Copy, Debug)]
pub struct Effort {
    /// Maximum number of scripts tried.
    pub attempts: usize,
    /// Maximum time spent.
    pub time: Duration,
}

/// Returns the smallest script found, and its difference.
///
/// `attempt` plays a script and returns its difference, if any.
pub fn shrink(
    script: Script,
    difference: Difference,
    effort: Effort,
    attempt: &mut dyn FnMut(&Script) -> Option<Difference>,
) -> (Script, Difference) {
    let mut shrinker =
        Shrinker { best: script, difference, left: effort.attempts, until: Instant::now() + effort.time, attempt };
    loop {
        let before = shrinker.best.clone();
        shrinker.end();
        shrinker.sessions();
        shrinker.steps();
        shrinker.ops();
        shrinker.details();
        if shrinker.best == before || shrinker.is_over() {
            return (shrinker.best, shrinker.difference);
        }
    }
}

struct Shrinker<'a> {
    best: Script,
    difference: Difference,
    left: usize,
    until: Instant,
    attempt: &'a mut dyn FnMut(&Script) -> Option<Difference>,
}

impl Shrinker<'_> {
    fn is_over(&self) -> bool {
        self.left == 0 || Instant::now() >= self.until
    }

    /// Takes this script if it still shows a difference.
    fn try_this(&mut self, script: Script) -> bool {
        if script == self.best || self.is_over() {
            return false;
        }
        self.left -= 1;
        match (self.attempt)(&script) {
            Some(difference) => {
                (self.best, self.difference) = (script, difference);
                true
            }
            None => false,
        }
    }

    /// Drops the steps behind the difference.
    fn end(&mut self) {
        let mut script = self.best.clone();
        script.steps.truncate(self.difference.step + 1);
        self.try_this(script);
    }

    fn sessions(&mut self) {
        for session in (0..self.best.sessions()).rev() {
            let mut script = self.best.clone();
            script.steps.retain(|step| step.session != session);
            self.try_this(script);
        }
    }

    fn steps(&mut self) {
        let mut span = (self.best.steps.len() / 2).max(1);
        loop {
            let mut at = self.best.steps.len();
            while at > 0 && !self.is_over() {
                let from = at.saturating_sub(span);
                let mut script = self.best.clone();
                script.steps.drain(from..at.min(script.steps.len()));
                self.try_this(script);
                at = from;
            }
            if span == 1 || self.is_over() {
                return;
            }
            span /= 2;
        }
    }

    /// Drops requests of a step, and operations of a multi.
    fn ops(&mut self) {
        for step in (0..self.best.steps.len()).rev() {
            let count = |script: &Script| script.steps[step].action.ops().len();
            let mut span = count(&self.best).div_ceil(2).max(1);
            loop {
                let mut at = count(&self.best);
                while at > 0 && !self.is_over() {
                    let from = at.saturating_sub(span);
                    self.change(|script| {
                        let ops = script.steps[step].action.ops_mut()?;
                        ops.drain(from..at.min(ops.len()));
                        Some(())
                    });
                    at = from;
                }
                if span == 1 || self.is_over() {
                    break;
                }
                span /= 2;
            }
            for op in (0..count(&self.best)).rev() {
                let subs = |script: &Script| script.steps[step].action.ops()[op].subs.as_ref().map_or(0, Vec::len);
                for sub in (0..subs(&self.best)).rev() {
                    self.change(|script| {
                        script.steps[step].action.ops_mut()?[op].subs.as_mut()?.remove(sub);
                        Some(())
                    });
                }
            }
        }
    }

    /// Simplifies arguments.
    fn details(&mut self) {
        for step in (0..self.best.steps.len()).rev() {
            self.change(|script| match &mut script.steps[step].action {
                Action::Connect(connect) => {
                    (connect.timeout_ms, connect.read_only) = (300_000, Some(0));
                    Some(())
                }
                Action::Send { pieces, .. } => {
                    *pieces = 1;
                    Some(())
                }
                action @ Action::Cut(_) => {
                    *action = Action::Cut(None);
                    Some(())
                }
                Action::Fatal(_) | Action::Vanish(_) | Action::Stranger(_) | Action::Wait(_) => None,
                Action::At(_) | Action::Alone | Action::Together => None,
            });
            self.change(|script| match &mut script.steps[step].action {
                Action::Connect(connect) => {
                    connect.zxid = Value::Long(0);
                    connect.claim = if connect.claim == Claim::NewNull { Claim::New } else { connect.claim };
                    Some(())
                }
                _ => None,
            });
            for op in 0..self.best.steps[step].action.ops().len() {
                self.op_details(step, op);
            }
        }
    }

    fn op_details(&mut self, step: usize, op: usize) {
        let of = |script: &Script| script.steps[step].action.ops()[op].clone();
        self.change_op(step, op, |op| (op.xid, op.lacks) = (None, 0));
        for value in 0..of(&self.best).values.len() {
            for simpler in simpler(&of(&self.best).values[value]) {
                self.change_op(step, op, |op| op.values[value] = simpler);
            }
        }
        let subs = of(&self.best).subs.unwrap_or_default();
        for (number, sub) in subs.iter().enumerate() {
            for value in 0..sub.values.len() {
                for simpler in simpler(&sub.values[value]) {
                    self.change_op(step, op, |op| {
                        if let Some(subs) = &mut op.subs {
                            subs[number].values[value] = simpler;
                        }
                    });
                }
            }
        }
    }

    fn change_op(&mut self, step: usize, op: usize, change: impl FnOnce(&mut Op)) {
        self.change(|script| {
            change(&mut script.steps[step].action.ops_mut()?[op]);
            Some(())
        });
    }

    fn change(&mut self, change: impl FnOnce(&mut Script) -> Option<()>) {
        let mut script = self.best.clone();
        if change(&mut script).is_some() {
            self.try_this(script);
        }
    }
}

/// Returns simpler values of the same kind, the simplest first.
///
/// Flags stay as they are, because other flags could stop ZooKeeper.
fn simpler(value: &Value) -> Vec<Value> {
    match value {
        Value::Bytes(Some(bytes)) if bytes.starts_with(b"~") => match bytes.iter().rposition(|byte| *byte == b'/') {
            Some(at) if at > 1 => vec![Value::text(&bytes[..at])],
            _ => Vec::new(),
        },
        Value::Bytes(Some(bytes)) if !bytes.is_empty() && !bytes.starts_with(b"/") => {
            vec![Value::Bytes(None), Value::text(""), Value::Bytes(Some(bytes[..bytes.len() / 2].to_vec()))]
        }
        Value::Byte(byte) if *byte != 0 => vec![Value::Byte(0), Value::Byte(1)],
        Value::List(elements) if elements.first().is_some_and(|element| element.len() == 3) => {
            let open = vec![vec![Value::Int(31), Value::text("world"), Value::text("anyone")]];
            if *elements == open { Vec::new() } else { vec![Value::List(open), Value::List(elements[..1].to_vec())] }
        }
        Value::List(elements) if !elements.is_empty() => {
            let without =
                |at: usize| elements.iter().enumerate().filter(move |(n, _)| *n != at).map(|(_, e)| e.clone());
            let shorter = (0..elements.len()).map(|at| Value::List(without(at).collect()));
            std::iter::once(Value::List(Vec::new())).chain(shorter).collect()
        }
        Value::Seen(back) if *back != 0 => vec![Value::Seen(0)],
        _ => Vec::new(),
    }
}
