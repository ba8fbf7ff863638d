//! How a transaction ends: which znodes are deleted, and which ones wait for a dismissed site.

use super::{DECISION, DISMISSED, DONE, FINISHED, HERE, ID, OVER, Transaction, VOTE, below};
use crate::ask::{ask, ask_watching, create};
use crate::{Coordinator, Error};
use zoolet_model::{CreateKind, ErrorCode, Names, Reply, Request, WriteOp};

impl<C: Coordinator> Transaction<C> {
    pub(super) async fn end(self, kept: Kept) -> Result<(), Error> {
        let c = &self.coordinator;
        let list = Request::GetChildren { path: self.path.text().clone(), watch: true, with_stat: false };
        loop {
            let (listed, watch) = ask_watching(c, &list).await?;
            let names = match listed {
                Some(Reply::Names(names)) => names,
                Some(_) => return Err(Error::unexpected()),
                None => return Ok(()),
            };
            if !self.is_in(&names) {
                // Another process ended this transaction, and a later one uses the path.
                return Ok(());
            }
            let is_over = |site: &String| has(&names, DONE, site) || has(&names, DISMISSED, site);
            // The write that creates `finished` deletes the znodes of the sites that had
            // acknowledged. Do not wait for those znodes to appear again.
            if !is_finished(&names) && !self.sites.iter().all(is_over) {
                crate::ask::fired(c, watch).await?;
                continue;
            }
            if self.delete(&names, kept).await? {
                return Ok(());
            }
        }
    }

    /// Deletes the transaction, whose children are `names`, except for the `kept` znodes.
    ///
    /// Returns `false` if the caller must list the children and try again.
    async fn delete(&self, names: &Names, kept: Kept) -> Result<bool, Error> {
        // A dismissed site that may still come back for the outcome. A site without a vote is not
        // awaited: it had acknowledged when the transaction was finished, and a late call has
        // dismissed it since.
        let awaited = |site: &str| {
            kept == Kept::ForDismissed
                && has(names, VOTE, site)
                && has(names, DISMISSED, site)
                && !has(names, DONE, site)
        };
        let is_awaited = self.sites.iter().any(|site| awaited(site));
        let is_theirs =
            |name: &str| [VOTE, HERE, DISMISSED].iter().any(|kind| name.strip_prefix(kind).is_some_and(awaited));
        let stays = |name: &str| is_awaited && (name == DECISION || name.starts_with(ID) || is_theirs(name));
        // Znodes of foreign clients stay, and the path with them.
        let own = names.iter().filter(|name| {
            [ID, VOTE, HERE, DONE, DISMISSED].iter().any(|own| name.starts_with(own))
                || [DECISION, FINISHED].contains(name)
        });
        let own: Vec<_> = own.collect();
        let doomed = own.iter().filter(|name| !stays(name)).map(|name| self.below(name));
        let mut ops: Vec<_> = doomed.map(|path| WriteOp::Delete { path, version: -1 }).collect();
        if is_awaited {
            if is_finished(names) {
                return Ok(true);
            }
            ops.insert(0, WriteOp::Check { path: self.id.clone(), version: -1 });
            ops.push(create(self.below(FINISHED), None, CreateKind::Persistent, false));
        } else {
            // `ops` deletes the id as well, so the multi deletes this transaction or nothing.
            ops.push(WriteOp::Delete { path: self.path.text().clone(), version: -1 });
        }
        let (last, owned) = (ops.len() - 1, own.len());
        let Reply::Multi(results) = ask(&self.coordinator, &Request::Multi(ops)).await? else {
            return Err(Error::unexpected());
        };
        match zoolet_model::first_failure(&results) {
            // The last awaited site may have acknowledged after `names` was listed and before
            // `finished` was created. That site has not seen `finished`, so only this coordinator
            // is left to end the transaction.
            None => Ok(!is_awaited),
            // Another process ended the transaction, or a site has just come or gone.
            Some((_, ErrorCode::NoNode | ErrorCode::NodeExists)) => Ok(false),
            Some((at, ErrorCode::NotEmpty)) if at == last && names.len() == owned => Ok(false),
            Some((_, code)) => Err(Error::at(code, "end the transaction", self.path.text())),
        }
    }

    pub(super) async fn acknowledge(&self, site: &str) -> Result<(), Error> {
        self.note(DONE, site).await?;
        // A finished transaction waits only for dismissed sites. The last one to acknowledge ends
        // it.
        loop {
            let names = crate::ask::children(&self.coordinator, self.path.text()).await?;
            let is_finished = self.is_in(&names) && is_finished(&names);
            if !is_finished || self.delete(&names, Kept::ForDismissed).await? {
                return Ok(());
            }
        }
    }

    /// Records that a site has acknowledged or is dismissed.
    pub(super) async fn note(&self, what: &str, site: &str) -> Result<(), Error> {
        match self.write(create(below(&self.path, what, site), None, CreateKind::Persistent, false)).await {
            // `NodeExists`: an earlier attempt wrote it. `OVER`: an ended transaction needs no
            // record.
            Ok(Ok(()) | Err(ErrorCode::NodeExists)) => Ok(()),
            Err(error) if error.kind() == OVER => Ok(()),
            Ok(Err(code)) => Err(Error::at(code, "end the transaction", self.path.text())),
            Err(error) => Err(error),
        }
    }
}

/// Znodes that outlive the end of a transaction.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Kept {
    Nothing,
    /// Znodes from which a dismissed site learns the outcome.
    ForDismissed,
}

/// Whether a coordinator has finished the transaction with these children.
///
/// Then only its dismissed sites may still need them.
fn is_finished(names: &Names) -> bool {
    names.iter().any(|name| name == FINISHED)
}

/// Whether a site has a znode of this kind.
fn has(names: &Names, kind: &str, site: &str) -> bool {
    names.iter().any(|name| name.strip_prefix(kind) == Some(site))
}
