//! Which changes are carried, in which order: from a fork's branch, a folder of patch files, such a folder inside a
//! published crate, or the drift of a vendored copy. What happens to them on another upstream is the next stage's question.

pub mod apply;
pub mod archive;
pub mod binary;
pub mod branch;
pub mod drift;
pub mod mail;
pub mod order;
pub mod patch_file;
pub mod queue;
pub mod source;

use crate::tools::git::ids::CommitId;
use mail::Author;
use patch_file::PatchFile;

/// The changes carried on top of a base, in the order in which they apply.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct PatchStack {
    /// The changes, numbered from 1.
    pub patches: Vec<Patch>,
}

/// One change of a stack.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Patch {
    /// Its place in the stack, counted from 1.
    pub number: usize,
    /// The mail's or commit's subject; for a bare diff the file's name without `.patch`.
    pub subject: String,
    /// The file's name, for a change read from a file.
    pub file: Option<String>,
    /// Who made it, where that is known.
    pub author: Option<Author>,
    /// The message of the commit that it becomes.
    pub message: String,
    /// The change itself.
    pub change: Change,
}

/// Where a patch's content stands.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Change {
    /// In a diff.
    Diff(PatchFile),
    /// Between a commit and its first parent.
    Commit(CommitId),
    /// In what a merge commit holds beyond all the changes before it: conflict resolutions, and edits made while merging.
    /// There is often nothing.
    MergeRest(CommitId),
}
