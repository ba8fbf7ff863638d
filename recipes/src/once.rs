//! Transactions that are done once, although the reply of one may be lost.
//!
//! A write whose reply was lost may have been done or not, and what it did may have been changed by others since. So each of these transactions
//! also creates an ephemeral znode of its own name, the receipt: if that is there, it was done. The next transaction takes the last receipt away.

use crate::ask::{UNEXPECTED, connected, create, is_disconnection, make_container};
use crate::mutation::{Mutation, is_on};
use crate::{Coordinator, Errand, Error, Guid};
use std::sync::{Mutex, PoisonError};
use zoolet_model::{CreateKind, ErrorCode, Path, Reply, Request, Text, WriteOp};

/// Makes transactions that are done once.
#[derive(Debug)]
pub(crate) struct Once<C: Coordinator> {
    coordinator: C,
    /// Where the receipts are: beside the recipe's own znode, because others read the children of that.
    receipts: Path,
    /// The receipt of the last transaction.
    last: Mutex<Option<Text>>,
}

/// What came of a transaction: it was done, or this operation failed and nothing was done.
pub(crate) type Outcome = Result<(), (usize, ErrorCode)>;

impl<C: Coordinator> Once<C> {
    /// For the recipe at `path`, with the receipts below `path-receipts`.
    pub(crate) fn new(coordinator: C, path: &Path) -> Self {
        let receipts = if path.as_str() == "/" { "/receipts".to_owned() } else { format!("{path}-receipts") };
        let receipts = Path::new(receipts.into()).unwrap_or_else(|_| path.clone());
        Self { coordinator, receipts, last: Mutex::new(None) }
    }

    /// Does all operations or none, once.
    pub(crate) async fn transact(&self, ops: &[WriteOp]) -> Result<Outcome, Error> {
        self.transact_or_undo(ops, None).await
    }

    /// The same; when the future is dropped and they were done, this znode, which they have created, goes again.
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
                Ok(_) => return Err(UNEXPECTED),
                Err(error) if is_disconnection(error) => {
                    connected(c).await?;
                    is_doubtful |= error == zoolet_model::Error::ConnectionLoss;
                    if is_on(Mutation::ReceiptIgnored) {
                        let guid = Guid::from_random_bits(c.random_bits());
                        path = zoolet_model::path::child(self.receipts.as_str(), &guid.to_string());
                    }
                    continue;
                }
                Err(error) => return Err(error.into()),
            };
            return Ok(match zoolet_model::first_failure(&results) {
                None => {
                    self.keep(under_way.done());
                    Ok(())
                }
                Some((0, ErrorCode::NodeExists)) if is_doubtful => {
                    self.keep(under_way.done());
                    Ok(())
                }
                Some((0, ErrorCode::NoNode)) => {
                    make_container(c, &self.receipts).await?;
                    continue;
                }
                // Somebody tidied up.
                Some((1, ErrorCode::NoNode)) if before == 2 => {
                    under_way.former = None;
                    continue;
                }
                Some((at, code)) => {
                    self.keep(under_way.failed());
                    Err((at.saturating_sub(before), code))
                }
            });
        }
    }

    fn take_last(&self) -> Option<Text> {
        self.last.lock().unwrap_or_else(PoisonError::into_inner).take()
    }

    /// For the next one to take away. Two at once leave two: one of them goes now.
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

/// A transaction that is under way. Dropped, its receipt goes if it is there, and the one before, which stays if it was not done.
struct UnderWay<'a, C: Coordinator> {
    coordinator: &'a C,
    /// `None` when nothing is left to be cleared away.
    receipt: Option<Text>,
    former: Option<Text>,
    created: Option<Text>,
}

impl<C: Coordinator> UnderWay<'_, C> {
    /// Its receipt, for the next one to take away.
    fn done(mut self) -> Option<Text> {
        self.former = None;
        self.receipt.take()
    }

    /// The receipt before, which is still there.
    fn failed(mut self) -> Option<Text> {
        self.receipt = None;
        self.former.take()
    }
}

impl<C: Coordinator> Drop for UnderWay<'_, C> {
    fn drop(&mut self) {
        if let Some(receipt) = self.receipt.take() {
            // As long as there is a receipt, what it is for was created by it and by nobody else.
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
