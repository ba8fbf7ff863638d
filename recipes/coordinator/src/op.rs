//! Operations of a multi, and their results.

use crate::CreateOptions;
use zoolet_model::{IntoData, OpResult, Path, Stat, Version, WriteOp};

/// One operation of a multi: all operations of a multi are carried out, or none.
///
/// ```
/// use zoolet::{Op, Path, Version};
///
/// let (job, result) = (Path::from_static("/jobs/7"), Path::from_static("/results/7"));
/// let ops = [Op::create(&result, "done"), Op::delete(&job, Version::Any)];
/// ```
#[derive(Clone, PartialEq, Eq, Debug)]
#[must_use = "an operation does nothing until a multi carries it out"]
pub struct Op(WriteOp);

impl Op {
    /// Creates a persistent znode that every client may use.
    pub fn create(path: &Path, data: impl IntoData) -> Self {
        Self::create_with(path, data, &CreateOptions::persistent())
    }

    /// Creates a znode.
    pub fn create_with(path: &Path, data: impl IntoData, options: &CreateOptions) -> Self {
        Self(options.request(path, data.into_data()))
    }

    /// Sets the data of a znode.
    pub fn set(path: &Path, data: impl IntoData, version: impl Into<Version>) -> Self {
        let (path, version) = (path.text().clone(), version.into().on_wire());
        Self(WriteOp::SetData { path, data: data.into_data(), version })
    }

    /// Deletes a znode.
    pub fn delete(path: &Path, version: impl Into<Version>) -> Self {
        Self(WriteOp::Delete { path: path.text().clone(), version: version.into().on_wire() })
    }

    /// Requires that a znode exists and has this version.
    pub fn check(path: &Path, version: impl Into<Version>) -> Self {
        Self(WriteOp::Check { path: path.text().clone(), version: version.into().on_wire() })
    }
}

impl From<Op> for WriteOp {
    fn from(op: Op) -> Self {
        op.0
    }
}

/// The result of one operation of a multi.
#[derive(Clone, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum Done {
    /// A znode was created.
    Created {
        /// The znode's path, including the number of a sequential znode.
        path: Path,
        /// The znode's stat; `None` from Apache ZooKeeper, up to 3.8.0 at least.
        stat: Option<Stat>,
    },
    /// Data was set; the znode has this stat.
    Set(Stat),
    /// A znode was deleted.
    Deleted,
    /// A znode exists and has the version.
    Checked,
}

impl Done {
    /// Returns what an operation of a multi did; `None` if the multi failed.
    #[doc(hidden)]
    pub fn of(result: OpResult) -> Option<Self> {
        Some(match result {
            OpResult::Create(path) => Self::Created { path: Path::new(path).ok()?, stat: None },
            OpResult::CreateStat(path, stat) => Self::Created { path: Path::new(path).ok()?, stat: Some(stat) },
            OpResult::SetData(stat) => Self::Set(stat),
            OpResult::Delete => Self::Deleted,
            OpResult::Check => Self::Checked,
            OpResult::Failed(_) => return None,
        })
    }

    /// Returns the stat of a znode that was created or set, if the server told it.
    pub fn stat(&self) -> Option<Stat> {
        match self {
            Self::Created { stat, .. } => *stat,
            Self::Set(stat) => Some(*stat),
            Self::Deleted | Self::Checked => None,
        }
    }
}
