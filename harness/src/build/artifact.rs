//! What a build leaves behind: a command that starts an engine, and its provenance.

use std::{collections::BTreeMap, path::PathBuf};

use serde::{Deserialize, Serialize};
use serde_json::Value;

/// An engine that can be started.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Artifact {
    /// The build's or reference's name.
    pub name: String,
    /// The program to start.
    pub program: PathBuf,
    /// Its arguments.
    pub args: Vec<String>,
    /// Variables to set on top of the inherited environment.
    pub env: BTreeMap<String, String>,
    /// What went in.
    pub provenance: Provenance,
}

/// What identifies a build, apart from how it went.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Provenance {
    /// SHA-256 over the canonical JSON of `inputs`, in hexadecimal.
    pub digest: String,
    /// Everything that identifies the build: sources with version and hash, patches with hash, toolchain, flags, MLX
    /// library hash.
    pub inputs: Value,
    /// How it went: times, paths, what was reused.
    pub log: Value,
}
