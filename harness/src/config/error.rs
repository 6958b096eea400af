//! Why a configuration could not be had.

use std::{io, path::PathBuf};

use thiserror::Error;

use super::reader::Problems;

/// Why a configuration could not be had.
#[derive(Debug, Error)]
pub enum ConfigError {
    /// The file holds mistakes; the source lists them all.
    #[error("cannot read {what}")]
    Invalid {
        /// What the file describes, such as ``matrix `nightly` ``.
        what: String,
        /// Every mistake.
        #[source]
        problems: Problems,
    },
    /// The file is not there or is no text.
    #[error("cannot read {what} from {}", path.display())]
    Unreadable {
        /// What the file describes.
        what: String,
        /// The file.
        path: PathBuf,
        /// What the system says.
        #[source]
        source: io::Error,
    },
    /// Matrices that do not fit together.
    #[error("cannot put matrix `{name}` together: {why}")]
    Composition {
        /// The matrix that includes others.
        name: String,
        /// What contradicts.
        why: String,
    },
    /// Matrices that include each other.
    #[error("matrix `{name}` includes itself: {chain}")]
    Circle {
        /// The matrix that comes up twice.
        name: String,
        /// Who includes whom, the outermost first.
        chain: String,
    },
    /// A fork whose folder has a name that refs and files cannot be named after.
    #[error("fork `{0}` has a name that git accepts in no branch")]
    Name(String),
    /// Nothing of this kind has this name.
    #[error("there is no {kind} `{name}`")]
    Unknown {
        /// `matrix`, `build` or another kind.
        kind: &'static str,
        /// The name that was asked for.
        name: String,
        /// The near name or the known names, as a sentence without stop.
        suggestion: String,
    },
}

impl ConfigError {
    /// What a person may try.
    pub fn hint(&self) -> Option<String> {
        match self {
            Self::Invalid { problems, .. } => Some(format!("correct {} and try again", problems.file)),
            Self::Composition { .. } => {
                Some("make what both files declare equal, or give it another name in one of them".to_owned())
            }
            Self::Circle { .. } => Some("take one of these out of the `include` before it".to_owned()),
            Self::Unreadable { source, .. } if source.kind() == io::ErrorKind::NotFound => Some(
                "check the path; a path in `include` counts from the folder where the command runs"
                    .to_owned(),
            ),
            Self::Unreadable { source, .. } => crate::tools::disk::hint(source),
            Self::Name(name) => Some(format!(
                "rename the folder `patches/{name}`: letters, digits, `-`, `_` and single dots, a letter or digit first"
            )),
            Self::Unknown { suggestion, .. } => Some(suggestion.clone()),
        }
    }
}
