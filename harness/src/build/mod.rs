//! From an empty directory to an engine that can be started, with a record of everything that went in.

pub mod artifact;
pub mod blas;
pub mod cache;
pub mod clean;
pub mod compile;
pub mod digest;
mod doctests;
pub mod doctor;
pub mod git;
pub mod layout;
pub mod metal;
pub mod metal_build;
pub mod metallib;
pub mod mlx;
pub mod mlx_git;
pub mod pieces;
pub mod provision;
pub mod recipe;
pub mod reference;
pub mod requirements;
pub(crate) mod steps;
pub mod store;
pub mod suites;
pub mod symbols;

pub use artifact::{Artifact, Provenance};
pub use clean::{CleanBuild, Twin, build_clean};
pub use compile::{BuildError, build, check_recipe, check_runner};
pub use layout::Layout;
pub use provision::{
    MlxWheel, ProvisionError, Toolbox, check_package, mlx_binding, mlx_wheel, official_metallib,
    package_file, provision,
};
pub use reference::{faulty_reference, reference_artifact};
