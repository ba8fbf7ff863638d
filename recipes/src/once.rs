//! Transactions that are done once, even if a reply is lost.
//!
//! A write whose reply was lost may have been done or not, and others may have changed its result
//! since. So each of these transactions also creates an ephemeral znode with a unique name, the
//! receipt. If the receipt exists, the transaction was done. The next transaction deletes the last
//! receipt. A refusal of the receipt is an error of the session: it says nothing about the recipe's
//! own operations. It says nothing about an earlier attempt whose reply was lost, either: then the
//! receipt is looked up.

use crate::ask::{ask, beside, connected, create, is_disconnection, make_container};
use crate::barrier::make_parent;
use crate::mutation::{Mutation, is_on};
use crate::{Coordinator, Errand, Error, ErrorKind, Guid};
use std::sync::{Mutex, PoisonError};
use zoolet_model::{CreateKind, ErrorCode, Path, Reply, Request, RequestError, Text, WriteOp};

/// Runs transactions that are done once.
#[derive(Debug)]
pub(crate) struct Once<C: Coordinator> {
    coordinator: C,
    /// The parent of the receipts. It stands beside the recipe's znode, because others read that
    /// znode's children.
    receipts: Path,
    /// The receipt of the last transaction.
    last: Mutex<Option<Text>>,
}

/// The outcome of a transaction: done, or the index and error of the operation that failed. Then
/// nothing was done.
pub(crate) type Outcome = Result<(), (usize, ErrorCode)>;

impl<C: Coordinator> Once<C> {
    /// Returns the transactions of the recipe at `path`, with receipts below `path-receipts`.
    pub(crate) fn new(coordinator: C, path: &Path) -> Self {
        Self { coordinator, receipts: beside(path, "receipts"), last: Mutex::new(None) }
    }

    /// Does all operations or none, once.
    pub(crate) async fn transact(&self, ops: &[WriteOp]) -> Result<Outcome, Error> {
        self.transact_or_undo(ops, None).await
    }

    /// Creates the recipe's znode and the znodes above it; returns whether it was missing.
    pub(crate) async fn create(&self, path: &Path) -> Result<bool, Error> {
        let op = create(path.text().clone(), None, CreateKind::Persistent, false);
        loop {
            match self.transact(std::slice::from_ref(&op)).await? {
                Ok(()) => return Ok(true),
                Err((_, ErrorCode::NodeExists)) => return Ok(false),
                Err((_, ErrorCode::NoNode)) => make_parent(&self.coordinator, path).await?,
                Err((_, code)) => return Err(Error::at(code, "create", path.text())),
            }
        }
    }

    /// Does [`Once::transact`], and undoes it if the future is dropped.
    ///
    /// Undoing deletes the znode `created`, which the operations have created.
    pub(crate) async fn transact_or_undo(&self, ops: &[WriteOp], created: Option<Text>) -> Result<Outcome, Error> {
        let c = &self.coordinator;
        let guid = Guid::from_random_bits(c.random_bits());
        let mut path = zoolet_model::path::child(self.receipts.as_str(), &guid.to_string());
        let mut under_way = UnderWay { coordinator: c, receipt: Some(path.clone()), former: self.take_last(), created };
        let mut is_doubtful = false;
        loop {
            let mut all = Vec::with_capacity(ops.len() + 2);
            all.push(create(path.clone(), None, CreateKind::Ephemeral, false));
            all.extend(under_way.former.iter().map(|path| WriteOp::Delete { path: path.clone(), version: -1 }));
            let before = all.len();
            all.extend_from_slice(ops);
            let results = match c.submit(Request::Multi(all)).await {
                Ok(Reply::Multi(results)) => results,
                Ok(_) => return Err(Error::unexpected()),
                Err(error) if is_disconnection(error) => {
                    connected(c).await?;
                    is_doubtful |= error == RequestError::ConnectionLoss;
                    if is_on(Mutation::ReceiptIgnored) {
                        let guid = Guid::from_random_bits(c.random_bits());
                        path = zoolet_model::path::child(self.receipts.as_str(), &guid.to_string());
                    }
                    continue;
                }
                Err(RequestError::Refused(_)) if is_doubtful && self.has_receipt(&path).await? => {
                    self.keep(under_way.done());
                    return Ok(Ok(()));
                }
                Err(error) => return Err(Error::at(error, "write the receipt", &path)),
            };
            return Ok(match zoolet_model::first_failure(&results) {
                None => {
                    self.keep(under_way.done());
                    Ok(())
                }
                Some((0, ErrorCode::NoNode)) => {
                    make_container(c, &self.receipts).await?;
                    continue;
                }
                // A refusal that precedes the look for the path, such as by an ACL, tells nothing.
                Some((0, code))
                    if is_doubtful && (code == ErrorCode::NodeExists || self.has_receipt(&path).await?) =>
                {
                    self.keep(under_way.done());
                    Ok(())
                }
                // Another client deleted the last receipt.
                Some((1, ErrorCode::NoNode)) if before == 2 => {
                    under_way.former = None;
                    continue;
                }
                Some((at, code)) => {
                    self.keep(under_way.failed());
                    let at = at.checked_sub(before);
                    Err((at.ok_or_else(|| Error::at(code, "write the receipt", &path))?, code))
                }
            });
        }
    }

    /// Whether the receipt at `path` exists, so that a transaction in doubt was done.
    ///
    /// It asks by a write: an attempt that was still in flight is then done, or never will be. A
    /// full disk accepts this write, because it only checks.
    ///
    /// # Errors
    /// [`ErrorKind::ConnectionLoss`] if this is refused too: the transaction may have been done or
    /// not. Fails if the session is over.
    async fn has_receipt(&self, path: &Text) -> Result<bool, Error> {
        if is_on(Mutation::RefusalBelieved) {
            return Ok(false);
        }
        let in_doubt = || Error::at(ErrorKind::ConnectionLoss, "look for the receipt", path);
        let check = Request::Multi(vec![WriteOp::Check { path: path.clone(), version: -1 }]);
        match ask(&self.coordinator, &check).await {
            Ok(Reply::Multi(results)) => match zoolet_model::first_failure(&results) {
                None => Ok(true),
                Some((_, ErrorCode::NoNode)) => Ok(false),
                Some(_) => Err(in_doubt()),
            },
            Err(error) if error.is_session_over() => Err(error),
            Ok(_) | Err(_) => Err(in_doubt()),
        }
    }

    fn take_last(&self) -> Option<Text> {
        self.last.lock().unwrap_or_else(PoisonError::into_inner).take()
    }

    /// Keeps a receipt for the next transaction to delete.
    ///
    /// Two transactions at the same time leave two receipts: one of them is deleted now.
    fn keep(&self, receipt: Option<Text>) {
        let Some(receipt) = receipt else { return };
        if let Some(other) = self.last.lock().unwrap_or_else(PoisonError::into_inner).replace(receipt) {
            self.coordinator.run_errand(Errand::delete(other));
        }
    }
}

impl<C: Coordinator> Drop for Once<C> {
    fn drop(&mut self) {
        if let Some(receipt) = self.take_last() {
            self.coordinator.run_errand(Errand::delete(receipt));
        }
    }
}

/// A transaction in flight.
///
/// Dropping it deletes its receipt, if that exists, and the one before, which still exists if the
/// transaction was not done.
struct UnderWay<'a, C: Coordinator> {
    coordinator: &'a C,
    /// `None` once nothing is left to clear away.
    receipt: Option<Text>,
    former: Option<Text>,
    created: Option<Text>,
}

impl<C: Coordinator> UnderWay<'_, C> {
    /// Ends a transaction that was done; returns its receipt.
    fn done(mut self) -> Option<Text> {
        self.former = None;
        self.receipt.take()
    }

    /// Ends a transaction that was not done; returns the receipt before it, which still exists.
    fn failed(mut self) -> Option<Text> {
        self.receipt = None;
        self.former.take()
    }
}

impl<C: Coordinator> Drop for UnderWay<'_, C> {
    fn drop(&mut self) {
        if let Some(receipt) = self.receipt.take() {
            // While the receipt exists, the znode `created` is this transaction's and no other's.
            self.coordinator.run_errand(match self.created.take() {
                Some(created) => Errand::delete_both(receipt, created),
                None => Errand::delete(receipt),
            });
        }
        if let Some(former) = self.former.take() {
            self.coordinator.run_errand(Errand::delete(former));
        }
    }
}
