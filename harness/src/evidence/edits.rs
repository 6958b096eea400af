//! Patches and commits as runs of changed lines, file by file: what every rung of the evidence works on.

use crate::tools::git::{
    history::LineBlock,
    ids::EntryId,
    store::{Entry, MODE_EXECUTABLE, MODE_FILE, PathChange, Store, StoreError},
    tree_path::TreePath,
};

/// What a patch or commit does to one file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FileEdit {
    /// The path.
    pub path: TreePath,
    /// The text before; `None` for a new file, and for what is no plain file.
    pub old: Option<EntryId>,
    /// The text after; `None` for a deleted file, and for what is no plain file.
    pub new: Option<EntryId>,
    /// Whether the file is there before and after.
    pub kind: EditKind,
    /// The changed lines.
    pub blocks: Vec<LineBlock>,
}

/// What happens to a file as a whole.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum EditKind {
    /// It is changed.
    Changed,
    /// It is new.
    Added,
    /// It goes.
    Deleted,
}

impl FileEdit {
    /// How many lines come.
    pub fn added(&self) -> usize {
        self.blocks.iter().map(|block| block.new.len()).sum()
    }

    /// How many lines go.
    pub fn removed(&self) -> usize {
        self.blocks.iter().map(|block| block.old.len()).sum()
    }
}

/// The edits that tree changes amount to.
///
/// # Errors
/// When a blob is missing.
pub fn edits_of(store: &Store, changes: &[PathChange]) -> Result<Vec<FileEdit>, StoreError> {
    changes.iter().map(|change| edit_of(store, change)).collect()
}

/// The edit of one file.
///
/// # Errors
/// When a blob is missing.
pub fn edit_of(store: &Store, change: &PathChange) -> Result<FileEdit, StoreError> {
    let kind = match (change.old, change.new) {
        (None, _) => EditKind::Added,
        (_, None) => EditKind::Deleted,
        _ => EditKind::Changed,
    };
    let (old, new) = (text_id(change.old), text_id(change.new));
    let blocks = match (old, new) {
        (None, None) => Vec::new(),
        (old, new) if old == new => Vec::new(),
        (Some(old), Some(new)) => store.line_blocks(Some(old), Some(new))?,
        (Some(old), None) => vec![LineBlock { old: 0..line_count(&store.blob(old)?), new: 0..0 }],
        (None, Some(new)) => vec![LineBlock { old: 0..0, new: 0..line_count(&store.blob(new)?) }],
    };
    Ok(FileEdit { path: change.path.clone(), old, new, kind, blocks })
}

/// The lines of a text, without their ends.
pub fn lines_of(bytes: &[u8]) -> Vec<&[u8]> {
    let bytes = bytes.strip_suffix(b"\n").unwrap_or(bytes);
    if bytes.is_empty() {
        return Vec::new();
    }
    let (mut lines, mut start) = (Vec::new(), 0);
    for end in memchr::memchr_iter(b'\n', bytes) {
        lines.push(&bytes[start..end]);
        start = end + 1;
    }
    lines.push(&bytes[start..]);
    lines
}

/// How many bytes of a file git looks at to tell whether it is binary.
const LOOKED_AT_BYTES: usize = 8000;

fn line_count(bytes: &[u8]) -> usize {
    if memchr::memchr(0, &bytes[..bytes.len().min(LOOKED_AT_BYTES)]).is_some() {
        return 0;
    }
    let ends = memchr::memchr_iter(b'\n', bytes).count();
    ends + usize::from(bytes.last().is_some_and(|last| *last != b'\n'))
}

fn text_id(entry: Option<Entry>) -> Option<EntryId> {
    entry.filter(|entry| matches!(entry.mode, MODE_FILE | MODE_EXECUTABLE)).map(|entry| entry.id)
}
