//! Reads the stack that a fork's `fork.toml` names, wherever it stands: a branch, the folder beside `fork.toml`, or a
//! published crate.

use std::{
    collections::BTreeMap,
    io,
    path::{Path, PathBuf},
};

use sha2::{Digest, Sha256};

use super::{
    PatchStack,
    archive::{self, ArchiveError, ArchiveFile},
    branch::read_branch,
    drift::vendored_stack,
    order::PatchOrder,
    queue::{QueueError, patch_files_in, read_queue},
};
use crate::{
    config::fork::{CrateQueue, StackSpec},
    fork::{
        ForkError,
        crates::{CrateError, crate_file},
        open::Fork,
    },
    tools::{
        disk,
        file::{self, Most},
        git::{
            ids::{CommitId, TreeId},
            store::{Store, StoreError},
            tree_path::TreePath,
        },
    },
};

/// Why a stack cannot be read.
#[derive(Debug, thiserror::Error)]
pub enum StackError {
    /// The patch files cannot be used.
    #[error(transparent)]
    Queue(#[from] QueueError),
    /// A file cannot be read.
    #[error("cannot read `{}`", .path.display())]
    Read {
        /// The file.
        path: PathBuf,
        /// What the system said.
        #[source]
        source: io::Error,
    },
    /// The crate cannot be had.
    #[error(transparent)]
    Crate(#[from] CrateError),
    /// The crate, or an archive in it, cannot be read.
    #[error("cannot read {what}")]
    Archive {
        /// The crate or the archive.
        what: String,
        /// What is wrong.
        #[source]
        source: ArchiveError,
    },
    /// An archive is not the one that `fork.toml` names.
    #[error("`{archive}` has the SHA-256 {found}, not {expected}")]
    OtherArchive {
        /// The archive.
        archive: String,
        /// The hash in `fork.toml`.
        expected: String,
        /// The hash found.
        found: String,
    },
    /// The vendored copy is not there.
    #[error(transparent)]
    Fork(#[from] ForkError),
    /// Objects could not be read or written.
    #[error(transparent)]
    Store(#[from] StoreError),
}

impl StackError {
    /// What to try.
    pub fn hint(&self) -> Option<String> {
        match self {
            Self::Queue(error) => error.hint(),
            Self::Crate(error) => error.hint(),
            Self::Store(error) => error.hint(),
            Self::Fork(error) => error.hint(),
            Self::Archive { .. } => Some("check crate, version and paths in fork.toml's [stack]".to_owned()),
            Self::OtherArchive { .. } => {
                Some("the crate carries other sources than fork.toml says".to_owned())
            }
            Self::Read { source, .. } => disk::hint(source),
        }
    }

    /// Whether what `fork.toml` says cannot be; otherwise a tool, the network or a disk failed.
    pub fn is_refusal(&self) -> bool {
        match self {
            Self::Fork(error) => error.is_refusal(),
            _ => matches!(self, Self::Queue(_) | Self::Archive { .. } | Self::OtherArchive { .. }),
        }
    }
}

/// Reads the stack of an opened fork.
///
/// # Errors
/// See [`StackError`].
pub fn read_stack(root: &Path, fork: &Fork) -> Result<PatchStack, StackError> {
    match &fork.spec.stack {
        StackSpec::Branch { .. } => {
            let upstream: Vec<CommitId> =
                fork.upstream.branches.get(&fork.spec.upstream.branch).copied().into_iter().collect();
            let head = fork.head.unwrap_or(fork.base.commit);
            Ok(read_branch(&fork.store, fork.base.commit, head, &upstream)?)
        }
        StackSpec::Folder { order } => read_folder(&root.join("patches").join(&fork.spec.name), order),
        StackSpec::CrateQueue(queue) => Ok(CrateContents::read(queue)?.stack(queue)?),
        StackSpec::Vendored(copy) => Ok(vendored_stack(fork, copy)?),
    }
}

/// The files of a published crate that carries a queue.
pub struct CrateContents(BTreeMap<TreePath, ArchiveFile>);

impl CrateContents {
    /// Reads the crate, from cargo's download cache or the registry.
    ///
    /// # Errors
    /// When it cannot be had or read.
    pub fn read(queue: &CrateQueue) -> Result<Self, StackError> {
        let bytes = crate_file(&queue.krate, &queue.version)?;
        let what = format!("crate {} {}", queue.krate, queue.version);
        archive::unpacked(&bytes).map(Self).map_err(|source| StackError::Archive { what, source })
    }

    /// The queue's stack.
    ///
    /// # Errors
    /// When the patches cannot be used.
    pub fn stack(&self, queue: &CrateQueue) -> Result<PatchStack, StackError> {
        let folder = format!("{}/", queue.folder.trim_end_matches('/'));
        let files: BTreeMap<String, Vec<u8>> = self
            .0
            .iter()
            .filter_map(|(path, file)| {
                let name = std::str::from_utf8(path.as_bytes()).ok()?.strip_prefix(&folder)?;
                (!name.contains('/')).then(|| (name.to_owned(), file.bytes.clone()))
            })
            .collect();
        if files.is_empty() {
            return Err(QueueError::Empty(format!("`{folder}` of the crate")).into());
        }
        let order_text = match &queue.order {
            PatchOrder::Number => None,
            PatchOrder::Series => Some(self.file(&format!("{folder}series"))?),
            PatchOrder::ListIn { file, .. } => Some(self.file(file)?),
        };
        let order_text = order_text.map(String::from_utf8_lossy);
        Ok(read_queue(&files, &queue.order, order_text.as_deref())?)
    }

    /// Stores the sources that the crate carries; gives their tree.
    ///
    /// # Errors
    /// When the archive is missing or another one than `fork.toml` says.
    pub fn base_tree(&self, queue: &CrateQueue, store: &Store) -> Result<TreeId, StackError> {
        let bytes = self.file(&queue.archive)?;
        let found: String = Sha256::digest(bytes).iter().map(|byte| format!("{byte:02x}")).collect();
        if found != queue.archive_sha256 {
            let (archive, expected) = (queue.archive.clone(), queue.archive_sha256.clone());
            return Err(StackError::OtherArchive { archive, expected, found });
        }
        let failed = |source| StackError::Archive { what: format!("`{}`", queue.archive), source };
        Ok(archive::stored_tree(store, &archive::unpacked(bytes).map_err(failed)?)?)
    }

    fn file(&self, path: &str) -> Result<&[u8], StackError> {
        archive::file(&self.0, path)
            .map_err(|source| StackError::Archive { what: "the crate".to_owned(), source })
    }
}

fn read_folder(folder: &Path, order: &PatchOrder) -> Result<PatchStack, StackError> {
    let files = patch_files_in(folder)?;
    let order_file = match order {
        PatchOrder::Number => None,
        PatchOrder::Series => Some(folder.join("series")),
        PatchOrder::ListIn { file, .. } => Some(folder.join(file)),
    };
    let order_text = match order_file {
        Some(path) => {
            Some(file::text(&path, Most::Configuration).map_err(|source| StackError::Read { path, source })?)
        }
        None => None,
    };
    Ok(read_queue(&files, order, order_text.as_deref())?)
}
