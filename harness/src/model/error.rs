//! Why a model folder could not be made or trusted, and what to try.

use std::{io, path::PathBuf};

use crate::tools::lock::LockError;

/// Why a model folder could not be made or trusted.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ModelError {
    /// A file or folder could not be read, written or moved.
    #[error("cannot {doing} {path}", path = path.display())]
    Io {
        /// What was being done, as a verb: `read`, `write`, `move`.
        doing: &'static str,
        /// On what.
        path: PathBuf,
        /// What the system said.
        #[source]
        source: io::Error,
    },
    /// The lock that keeps two processes from making one model could not be had.
    #[error(transparent)]
    Lock(#[from] LockError),
    /// A synthetic model's shape cannot exist.
    #[error("synthetic model `{model}` cannot be made: {problem}")]
    Shape {
        /// The model's name.
        model: String,
        /// What is wrong with the shape.
        problem: String,
    },
    /// Weights could not be written as safetensors.
    #[error("cannot write weights to {path}", path = path.display())]
    Weights {
        /// The weights file.
        path: PathBuf,
        /// What the writer said.
        #[source]
        source: safetensors::SafeTensorError,
    },
    /// A model that comes from a package was asked for without saying where the package lies.
    #[error("model `{model}` comes from package `{package}`, and no file of it was given")]
    NoPackageFile {
        /// The model's name.
        model: String,
        /// The package's name.
        package: String,
    },
    /// A package does not hold exactly one readable GGUF file.
    #[error("cannot find a GGUF file in {path}: {problem}", path = path.display())]
    Package {
        /// The package file.
        path: PathBuf,
        /// What was wrong with it.
        problem: String,
    },
    /// A GGUF file is truncated, damaged, or says something impossible.
    #[error("cannot read GGUF {origin}: {problem}")]
    Gguf {
        /// The file, or the package that holds it.
        origin: String,
        /// What was wrong, and at which byte where that is known.
        problem: String,
    },
    /// A GGUF file is sound, and holds a model that cannot be converted.
    #[error("cannot convert GGUF {origin}: {problem}")]
    Unsupported {
        /// The file, or the package that holds it.
        origin: String,
        /// What is not supported.
        problem: String,
    },
    /// A finished folder is not what its manifest says.
    #[error("model folder {path} is damaged: {problem}", path = path.display())]
    Damaged {
        /// The folder.
        path: PathBuf,
        /// Which file differs, and how.
        problem: String,
    },
}

impl ModelError {
    /// What a person may try, where there is something.
    #[must_use]
    pub fn hint(&self) -> Option<String> {
        let hint = match self {
            Self::Io { source, .. } if source.kind() == io::ErrorKind::StorageFull => {
                "the disk is full: free some space (a converted model takes about 4 bytes a weight), then run again"
                    .to_owned()
            }
            Self::Weights { source: safetensors::SafeTensorError::IoError(io), .. }
                if io.kind() == io::ErrorKind::StorageFull =>
            {
                "the disk is full: free some space (a converted model takes about 4 bytes a weight), then run again"
                    .to_owned()
            }
            Self::Io { source, .. } if source.kind() == io::ErrorKind::PermissionDenied => {
                "check who owns the folder; everything below target/regraft may be deleted".to_owned()
            }
            Self::Io { .. } | Self::Weights { .. } | Self::Lock(_) => return None,
            Self::Shape { .. } => {
                "change the `[[model]]` entry of the matrix that names this model".to_owned()
            }
            Self::NoPackageFile { package, .. } => {
                format!("provision `{package}` first, or give the path of its wheel or of a .gguf file")
            }
            Self::Package { .. } | Self::Gguf { .. } => {
                "the download may be incomplete: delete the file and run again to fetch it anew".to_owned()
            }
            Self::Unsupported { .. } => {
                "convertible are GGUF v2 and v3 files of the llama architecture with a gpt2 tokenizer, in F32, F16, \
                 BF16, Q4_0, Q4_1, Q5_0, Q5_1, Q8_0 or Q6_K"
                    .to_owned()
            }
            Self::Damaged { path, .. } => {
                format!("delete {} and run again: it is made anew", path.display())
            }
        };
        Some(hint)
    }
}
