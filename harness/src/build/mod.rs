//! From an empty directory to an engine that can be started, with a record of everything that went in.

pub mod artifact;

pub use artifact::{Artifact, Provenance};
