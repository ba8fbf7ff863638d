//! Completes replies off the core thread, after their outcome was decided.

use crate::budget::allocated;
use crate::record::key::end_of_prefix;
use crate::seam::action::{BaseRead, Completion, Listing, Pending, PendingRead};
use crate::seam::event::BaseFailure;
use bytes::Bytes;
use zoolet_model::{ErrorCode, Names, NamesBuilder, ReadResult, Reply, Stat};

impl Completion {
    /// Reads the remaining bytes from the generation [`Completion::generation`].
    ///
    /// The outcome was decided before, so a failing base leaves the client with an error reply.
    ///
    /// # Errors
    /// When the base fails, the reply is [`ErrorCode::SystemError`] and the failure is returned to
    /// the driver.
    pub fn run(&self, base: &dyn BaseRead) -> (Result<Reply, ErrorCode>, Option<BaseFailure>) {
        match self.pending.run(base) {
            Ok(reply) => (Ok(reply), None),
            Err(failure) => (Err(ErrorCode::SystemError), Some(failure)),
        }
    }
}

impl Pending {
    fn run(&self, base: &dyn BaseRead) -> Result<Reply, BaseFailure> {
        Ok(match self {
            Self::Data { key, stat } => Reply::Data(Some(large(base, key, stat)?), *stat),
            Self::Children { listing, stat } => match stat {
                Some(stat) => Reply::NamesStat(listing.names(base)?, *stat),
                None => Reply::Names(listing.names(base)?),
            },
            Self::Paths { listing } => Reply::Names(listing.names(base)?),
            Self::Count { listings } => {
                let mut count = 0usize;
                for listing in listings {
                    listing.visit(base, &mut |_| count += 1)?;
                }
                Reply::Count(i32::try_from(count).unwrap_or(i32::MAX))
            }
            Self::Many { reads, broken } => {
                many(reads.iter().map(|read| read.run(base)).collect::<Result<_, _>>()?, *broken)
            }
        })
    }
}

/// Builds a multiRead's reply; `broken` when it ended at an unreadable operation.
pub(crate) fn many(results: Vec<ReadResult>, broken: bool) -> Reply {
    if broken { Reply::MultiReadBroken(results) } else { Reply::MultiRead(results) }
}

/// Bytes of a completion beside its names and data.
///
/// They cover the completion, its places in the mailbox and in its connection's order, and the
/// reply. Without them, counts would be free, and any number of them could wait.
const COMPLETION_BYTES: u64 = 512;
/// Estimated bytes of one name in a reply.
const NAME_BYTES: u64 = 32;
/// Bytes of one read of a multiRead beside its data, at least as many as in the reply.
const READ_BYTES: u64 = 128;
/// Estimated bytes of one path in a reply.
const PATH_BYTES: u64 = 64;
/// Estimated bytes of one entry in [`Listing::newer`]: B-tree entry and allocation.
const NEWER_BYTES: u64 = 64;

impl Pending {
    /// Returns the estimated bytes of this completion and its reply.
    pub(crate) fn bytes(&self) -> u64 {
        let content = match self {
            Self::Data { key, stat } => allocated(key.len()) as u64 + data_bytes(stat),
            Self::Children { listing, .. } => listing.bytes(NAME_BYTES),
            Self::Paths { listing } => listing.bytes(PATH_BYTES),
            Self::Count { listings } => listings.iter().map(|listing| listing.bytes(NAME_BYTES)).sum(),
            Self::Many { reads, .. } => reads.iter().map(PendingRead::bytes).sum(),
        };
        COMPLETION_BYTES + content
    }

    /// Sets the maximum number of paths in a list of ephemerals. Other reads do not ask for it.
    pub(crate) fn expect_paths(&mut self, most: impl FnOnce() -> u32) {
        if let Self::Paths { listing } = self {
            listing.expected = most();
        }
    }

    pub(crate) fn is_many(&self) -> bool {
        matches!(self, Self::Many { .. })
    }
}

fn data_bytes(stat: &Stat) -> u64 {
    u64::try_from(stat.data_length).unwrap_or(0)
}

impl PendingRead {
    fn bytes(&self) -> u64 {
        let content = match self {
            Self::Ready(ReadResult::Data(_, stat)) => data_bytes(stat),
            Self::Data { key, stat } => allocated(key.len()) as u64 + data_bytes(stat),
            Self::Ready(ReadResult::Children(names)) => names.encoded().len() as u64,
            Self::Ready(ReadResult::Failed(_)) => 0,
            Self::Children { listing } => listing.bytes(NAME_BYTES),
        };
        READ_BYTES + content
    }

    fn run(&self, base: &dyn BaseRead) -> Result<ReadResult, BaseFailure> {
        Ok(match self {
            Self::Ready(result) => result.clone(),
            Self::Data { key, stat } => ReadResult::Data(Some(large(base, key, stat)?), *stat),
            Self::Children { listing } => ReadResult::Children(listing.names(base)?),
        })
    }
}

fn large(base: &dyn BaseRead, key: &[u8], stat: &Stat) -> Result<Bytes, BaseFailure> {
    let data = base.record(key)?.ok_or_else(|| BaseFailure::Damaged("the data of a large znode is missing".into()))?;
    if data.len() == stat.data_length as usize {
        Ok(data)
    } else {
        Err(BaseFailure::Damaged("large data is not as long as its znode says".into()))
    }
}

impl Listing {
    fn bytes(&self, each: u64) -> u64 {
        let texts = allocated(self.prefix.len()) + allocated(self.filter.len());
        texts as u64 + self.newer.len() as u64 * NEWER_BYTES + u64::from(self.expected) * each
    }

    fn names(&self, base: &dyn BaseRead) -> Result<Names, BaseFailure> {
        let mut names = NamesBuilder::default();
        self.visit(base, &mut |name| names.push(name))?;
        Ok(names.finish())
    }

    /// Merges the base's keys with newer changes in memory, in order.
    fn visit(&self, base: &dyn BaseRead, found: &mut dyn FnMut(&[u8])) -> Result<(), BaseFailure> {
        let filter = self.filter.as_bytes();
        let mut emit = |name: &[u8]| {
            if name.starts_with(filter) {
                found(name);
            }
        };
        let mut newer = self.newer.iter().peekable();
        let end = end_of_prefix(&self.prefix);
        base.keys(&self.prefix, end.as_deref(), &mut |key| {
            let name = &key[self.prefix.len()..];
            while let Some((fresh, there)) = newer.next_if(|(fresh, _)| ***fresh < *name) {
                if *there {
                    emit(fresh);
                }
            }
            match newer.next_if(|(fresh, _)| ***fresh == *name) {
                Some((_, false)) => {}
                Some((_, true)) | None => emit(name),
            }
            true
        })?;
        newer.filter(|&(_, &there)| there).for_each(|(name, _)| emit(name));
        Ok(())
    }
}
