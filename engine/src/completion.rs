//! Putting together replies whose outcome already stands, off the core.

use crate::action::{BaseRead, Completion, Listing, Pending, PendingRead};
use crate::event::BaseFailure;
use crate::store::key::end_of_prefix;
use bytes::Bytes;
use zoolet_model::{ErrorCode, Names, NamesBuilder, ReadResult, Reply, Stat};

impl Completion {
    /// Reads what is left from the generation that [`Completion::generation`] names. What it finds was decided before: a base that
    /// cannot answer gives SYSTEMERROR, and the failure goes to whoever drives the machine.
    ///
    /// # Errors
    /// What the base could not do. The client is answered all the same, with [`ErrorCode::SystemError`].
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

/// What a multiRead has read, and whether it came to what cannot be read.
pub(crate) fn many(results: Vec<ReadResult>, broken: bool) -> Reply {
    if broken { Reply::MultiReadBroken(results) } else { Reply::MultiRead(results) }
}

/// What a name takes in an answer, about.
const NAME_BYTES: u64 = 32;
/// What a name takes in a listing's newer part, about: a B-tree entry and an allocation.
const NEWER_BYTES: u64 = 64;

impl Pending {
    /// What it holds and what its answer will take, about.
    pub(crate) fn bytes(&self) -> u64 {
        match self {
            Self::Data { stat, .. } => data_bytes(stat),
            Self::Children { listing, .. } | Self::Paths { listing } => listing.bytes(),
            Self::Count { listings } => listings.iter().map(Listing::bytes).sum(),
            Self::Many { reads, .. } => reads.iter().map(PendingRead::bytes).sum(),
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
        match self {
            Self::Ready(ReadResult::Data(_, stat)) | Self::Data { stat, .. } => data_bytes(stat),
            Self::Ready(ReadResult::Children(names)) => names.encoded().len() as u64,
            Self::Ready(ReadResult::Failed(_)) => 0,
            Self::Children { listing } => listing.bytes(),
        }
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
    let data = base.record(key)?.ok_or_else(|| BaseFailure::Damaged("large data is not there".into()))?;
    if data.len() == stat.data_length as usize {
        Ok(data)
    } else {
        Err(BaseFailure::Damaged("large data has another length than its znode says".into()))
    }
}

impl Listing {
    fn bytes(&self) -> u64 {
        self.newer.len() as u64 * NEWER_BYTES + u64::from(self.expected) * NAME_BYTES
    }

    fn names(&self, base: &dyn BaseRead) -> Result<Names, BaseFailure> {
        let mut names = NamesBuilder::default();
        self.visit(base, &mut |name| names.push(name))?;
        Ok(names.finish())
    }

    /// Merges the base's keys with what memory knows better, in order.
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
