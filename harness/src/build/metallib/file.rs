//! Opens a library file. The file is mapped, not copied: the audit touches every byte once and keeps none.

use std::{
    fs::File,
    path::{Path, PathBuf},
};

use memmap2::Mmap;

use super::parse::{Fault, Library, ParseError};
use crate::tools::file;

/// A library file, mapped into memory.
#[derive(Debug)]
pub struct LibraryFile {
    path: PathBuf,
    map: Mmap,
}

/// Why a library file could not be used.
#[derive(Debug, thiserror::Error)]
pub enum MetallibError {
    /// The file could not be opened or mapped.
    #[error("cannot read Metal library {path}")]
    Read {
        /// The file.
        path: PathBuf,
        /// What the system said.
        #[source]
        source: std::io::Error,
    },
    /// The file is something else, or damaged.
    #[error("cannot make sense of Metal library {path}")]
    Parse {
        /// The file.
        path: PathBuf,
        /// What is wrong, and where.
        #[source]
        source: ParseError,
    },
}

impl MetallibError {
    /// What to try.
    #[must_use]
    pub fn hint(&self) -> &'static str {
        match self {
            Self::Read { .. } => {
                "pass a readable file, such as mlx/lib/mlx.metallib of an unpacked mlx-metal wheel"
            }
            Self::Parse { source, .. } => source.hint(),
        }
    }

    /// Whether the file is a Metal library at all, only a damaged one.
    #[must_use]
    pub fn is_damage(&self) -> bool {
        match self {
            Self::Read { .. } => false,
            Self::Parse { source, .. } => {
                !matches!(source.fault, Fault::NotMetallib { .. } | Fault::UnknownFormat(_))
            }
        }
    }
}

impl LibraryFile {
    /// Maps `path`.
    ///
    /// # Errors
    /// [`MetallibError::Read`] when it is missing, no regular file, or cannot be mapped.
    pub fn open(path: &Path) -> Result<Self, MetallibError> {
        let read = |source| MetallibError::Read { path: path.to_owned(), source };
        let file = file::open(path).map_err(read)?;
        let map = map(&file).map_err(read)?;
        Ok(Self { path: path.to_owned(), map })
    }

    /// The library in the file.
    ///
    /// # Errors
    /// [`MetallibError::Parse`] when the file is no well-formed library.
    pub fn parse(&self) -> Result<Library<'_>, MetallibError> {
        Library::parse(&self.map).map_err(|source| MetallibError::Parse { path: self.path.clone(), source })
    }

    /// The file's path, as it was given.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }
}

/// Maps a file for reading.
#[allow(unsafe_code)]
pub(in crate::build) fn map(file: &File) -> std::io::Result<Mmap> {
    // SAFETY: the map is private and read-only, and all access goes through bounds-checked slices. What remains is another
    // process that changes or truncates the file meanwhile: the same as with any mapped input, such a run ends with wrong
    // hashes or is killed by the system, and writes nothing.
    unsafe { memmap2::MmapOptions::new().map(file) }
}
