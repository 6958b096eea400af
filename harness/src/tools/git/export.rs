//! Archives of a commit's tree.

use std::time::Duration;

use super::{
    command::git_command,
    ids::{CommitId, TreeId},
    store::Store,
};
use crate::tools::process::ProcessError;

/// A `.tar.gz` of a commit's tree, every path below `prefix`. Equal commits give equal bytes with one version of git: times
/// are the commit's own.
///
/// # Errors
/// When objects are missing.
pub fn tar_gz(store: &Store, commit: CommitId, prefix: &str) -> Result<Vec<u8>, ProcessError> {
    archived(store, &commit.to_string(), prefix)
}

/// The same of a tree alone; its times are those of the call.
///
/// # Errors
/// When objects are missing.
pub fn tree_tar_gz(store: &Store, tree: TreeId, prefix: &str) -> Result<Vec<u8>, ProcessError> {
    archived(store, &tree.to_string(), prefix)
}

fn archived(store: &Store, treeish: &str, prefix: &str) -> Result<Vec<u8>, ProcessError> {
    let completed = git_command(store.path())
        .args(["archive", "--format=tar.gz"])
        .arg(format!("--prefix={prefix}/"))
        .arg(treeish)
        .timeout(Duration::from_secs(600))
        .run_ok()?;
    Ok(completed.stdout_bytes)
}
