//! The files inside a `.tar.gz` or `.crate` archive, in memory, without the folder that holds everything. It writes
//! nothing: what is fetched is hostile until it is looked at.

use std::{collections::BTreeMap, io::Read};

use crate::tools::git::{
    ids::TreeId,
    store::{Entry, MODE_EXECUTABLE, MODE_FILE, MODE_LINK, Store, StoreError},
    tree_path::{BadPath, TreePath},
};

/// The most that an archive may unpack to, in bytes.
pub const MAX_UNPACKED_BYTES: u64 = 1 << 30;

/// One file of an archive.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ArchiveFile {
    /// Git's mode: plain file, executable or symbolic link.
    pub mode: u32,
    /// The bytes; a link's target.
    pub bytes: Vec<u8>,
}

/// Why an archive cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum ArchiveError {
    /// It is damaged.
    #[error("the archive cannot be read")]
    Read(#[source] std::io::Error),
    /// It unpacks to more than [`MAX_UNPACKED_BYTES`].
    #[error("the archive unpacks to more than {MAX_UNPACKED_BYTES} bytes")]
    TooLarge,
    /// A path in it must not be used.
    #[error("the archive holds a path that is refused")]
    Path(#[from] BadPath),
    /// It has no file of this path.
    #[error("the archive has no file `{0}`")]
    NoFile(String),
}

/// The files of a gzipped tar archive by path, without the first part of each path.
///
/// # Errors
/// See [`ArchiveError`].
pub fn unpacked(archive: &[u8]) -> Result<BTreeMap<TreePath, ArchiveFile>, ArchiveError> {
    let mut files = BTreeMap::new();
    let mut left = MAX_UNPACKED_BYTES;
    let mut tar = tar::Archive::new(flate2::read::GzDecoder::new(archive));
    for entry in tar.entries().map_err(ArchiveError::Read)? {
        let mut entry = entry.map_err(ArchiveError::Read)?;
        let kind = entry.header().entry_type();
        if !(kind.is_file() || kind.is_symlink()) {
            continue;
        }
        let full = entry.path_bytes().into_owned();
        let Some(at) = full.iter().position(|&byte| byte == b'/') else { continue };
        let path = TreePath::new(&full[at + 1..])?;
        let file = if kind.is_symlink() {
            let target = entry.link_name_bytes().map(|target| target.into_owned()).unwrap_or_default();
            ArchiveFile { mode: MODE_LINK, bytes: target }
        } else {
            let executable = entry.header().mode().map_err(ArchiveError::Read)? & 0o100 != 0;
            let mut bytes = Vec::new();
            (&mut entry).take(left + 1).read_to_end(&mut bytes).map_err(ArchiveError::Read)?;
            left = left.checked_sub(bytes.len() as u64).ok_or(ArchiveError::TooLarge)?;
            ArchiveFile { mode: if executable { MODE_EXECUTABLE } else { MODE_FILE }, bytes }
        };
        files.insert(path, file);
    }
    Ok(files)
}

/// One file of an archive.
///
/// # Errors
/// When it is not there.
pub fn file<'a>(files: &'a BTreeMap<TreePath, ArchiveFile>, path: &str) -> Result<&'a [u8], ArchiveError> {
    let found = TreePath::new(path).ok().and_then(|path| files.get(&path));
    found.map(|file| &file.bytes[..]).ok_or_else(|| ArchiveError::NoFile(path.to_owned()))
}

/// Stores the files and gives the tree that holds them.
///
/// # Errors
/// When the store cannot be written.
pub fn stored_tree(store: &Store, files: &BTreeMap<TreePath, ArchiveFile>) -> Result<TreeId, StoreError> {
    let mut edits = BTreeMap::new();
    for (path, file) in files {
        let id = store.write_blob(&file.bytes)?;
        edits.insert(path.clone(), Some(Entry { id, mode: file.mode }));
    }
    store.edited_tree(store.empty_tree()?, &edits)
}
