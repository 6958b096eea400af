//! The `.crate` file of a published crate: from cargo's own download cache, else fetched by cargo, which checks its hash
//! against the registry's index.

use std::{fs, io, path::PathBuf};

use crate::tools::{
    cargo::{cargo, cargo_home, fetched_crate},
    disk,
    file::{self, Most},
    process::ProcessError,
};

/// Why a published crate cannot be had.
#[derive(Debug, thiserror::Error)]
pub enum CrateError {
    /// A file could not be read or written.
    #[error("cannot read or write `{}` for crate {krate}", .path.display())]
    Disk {
        /// Name and version.
        krate: String,
        /// The file.
        path: PathBuf,
        /// What the system said.
        #[source]
        source: io::Error,
    },
    /// Cargo could not fetch it.
    #[error("cannot fetch crate {krate}")]
    Fetch {
        /// Name and version.
        krate: String,
        /// What cargo said.
        #[source]
        source: ProcessError,
    },
    /// Cargo fetched it, but it is in no cache that is known here.
    #[error("crate {krate} is in no download cache of cargo")]
    NotCached {
        /// Name and version.
        krate: String,
    },
}

impl CrateError {
    /// What to try.
    pub fn hint(&self) -> Option<String> {
        match self {
            Self::Fetch { krate, .. } => {
                Some(format!("check that {krate} is published and the registry can be reached"))
            }
            Self::NotCached { .. } => Some("set CARGO_HOME to where cargo keeps its registry".to_owned()),
            Self::Disk { source, .. } => disk::hint(source),
        }
    }
}

/// The bytes of the `.crate` file of a published crate.
///
/// # Errors
/// See [`CrateError`].
pub fn crate_file(name: &str, version: &str) -> Result<Vec<u8>, CrateError> {
    let krate = format!("{name} {version}");
    let disk = |path: PathBuf| {
        let krate = krate.clone();
        |source| CrateError::Disk { krate, path, source }
    };
    let cached = || -> Result<Option<PathBuf>, CrateError> {
        let Some(home) = cargo_home() else { return Ok(None) };
        fetched_crate(&home, name, version).map_err(disk(home))
    };
    let path = match cached()? {
        Some(path) => path,
        None => {
            let folder = tempfile::tempdir().map_err(disk(PathBuf::from("a temporary folder")))?;
            let manifest = folder.path().join("Cargo.toml");
            let text = format!(
                "[package]\nname = \"fetch\"\nversion = \"0.0.0\"\nedition = \"2024\"\n[lib]\npath = \"lib.rs\"\n\
                 [dependencies]\n{name} = \"={version}\"\n[workspace]\n"
            );
            fs::write(&manifest, text).map_err(disk(manifest.clone()))?;
            fs::write(folder.path().join("lib.rs"), "").map_err(disk(folder.path().to_owned()))?;
            cargo()
                .args(["fetch", "--manifest-path"])
                .arg(&manifest)
                .run_ok()
                .map_err(|source| CrateError::Fetch { krate: krate.clone(), source })?;
            cached()?.ok_or_else(|| CrateError::NotCached { krate: krate.clone() })?
        }
    };
    file::bytes(&path, Most::Record).map_err(disk(path))
}
