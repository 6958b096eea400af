//! What a finished rebase left behind: the result branch in the fork's bare cache, and what every patch became. It is
//! kept in a file below `target/regraft/`, where a later push or pin edit finds it.

use std::{
    fs, io,
    path::{Path, PathBuf},
};

use serde::{Deserialize, Serialize};

use super::sync::NamedCommit;
use crate::tools::{
    file::{self, Most},
    git::ids::{CommitId, PatchId, TreeId},
};

/// The shape of the file; it rises when a key changes its meaning or goes.
const SCHEMA: u32 = 1;

/// A finished rebase of one fork.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct SyncResult {
    /// The version of this shape.
    pub schema: u32,
    /// The fork's name.
    pub fork: String,
    /// The commit that the stack sat on.
    pub base: NamedCommit,
    /// The commit that it sits on now.
    pub onto: NamedCommit,
    /// The newest commit of the fork's branch before; `None` for a stack of patch files.
    pub old_head: Option<CommitId>,
    /// The newest commit of the rebased stack; `onto` itself when nothing is left of it.
    pub new_head: CommitId,
    /// The tree of `new_head`.
    pub tree: TreeId,
    /// The bare repository that holds all of it, relative to the repository root.
    pub store: PathBuf,
    /// The full name of the ref in that store that leads to `new_head`, such as `refs/heads/regraft/mlx/v0.32.1`.
    pub branch: String,
    /// What each patch became, in the stack's order.
    pub patches: Vec<SyncedPatch>,
    /// Findings that a person has to look at and that nobody has accepted yet; nothing may be pushed before.
    pub open_findings: usize,
    /// The folder of the run's report, relative to the repository root.
    pub report: PathBuf,
}

/// What one patch became.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct SyncedPatch {
    /// Its number in the stack before the rebase.
    pub number: usize,
    /// Its subject.
    pub subject: String,
    /// The commit that it was read from.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub old_commit: Option<CommitId>,
    /// The file that it was read from.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub file: Option<String>,
    /// What was done with it.
    pub outcome: PatchOutcome,
    /// The commit that it is now; `None` for one that is left out.
    pub new_commit: Option<CommitId>,
    /// The patch-id of that commit's change.
    pub patch_id: Option<PatchId>,
    /// The patch file that holds it now, relative to the repository root; `None` until the stack is exported.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub exported: Option<PathBuf>,
}

/// What was done with a patch.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum PatchOutcome {
    /// It applied as it stood; only line numbers may differ.
    Applied,
    /// It merged by itself; the lines around it changed.
    Merged,
    /// It conflicted in generated files only, and they were made again.
    Regenerated,
    /// It conflicted, and every conflict was settled the way it had been settled before.
    Replayed,
    /// It conflicted, and a person resolved it.
    Resolved,
    /// Nothing of it was left to do, so it is left out.
    Absorbed,
    /// A person left it out.
    Skipped,
}

impl PatchOutcome {
    /// Whether the patch is still carried.
    pub fn is_carried(self) -> bool {
        !matches!(self, Self::Absorbed | Self::Skipped)
    }
}

/// A result that cannot be read or kept.
#[derive(Debug, thiserror::Error)]
pub enum OutcomeError {
    /// The disk.
    #[error("cannot read or write `{}`", .path.display())]
    Disk {
        /// The file.
        path: PathBuf,
        /// What the system said.
        #[source]
        source: io::Error,
    },
    /// The file is no result, or one of another version of Regraft.
    #[error("`{}` is not a result that this version of Regraft wrote", .path.display())]
    Shape {
        /// The file.
        path: PathBuf,
        /// What is wrong with it.
        #[source]
        source: serde_json::Error,
    },
}

impl OutcomeError {
    /// What to try.
    pub fn hint(&self) -> Option<String> {
        match self {
            Self::Disk { source, .. } => crate::tools::disk::hint(source),
            Self::Shape { path, .. } => {
                let folder = path.parent().and_then(Path::file_name).unwrap_or_default().to_string_lossy();
                Some(format!(
                    "`cargo xtask sync-upstream {folder} --abort` moves it aside and loses nothing else; then run it again"
                ))
            }
        }
    }
}

impl SyncResult {
    /// The version that new results carry.
    pub const fn current_schema() -> u32 {
        SCHEMA
    }

    /// The result of the fork's last finished rebase, if there is one.
    ///
    /// # Errors
    /// When the file is there and cannot be read.
    pub fn load(root: &Path, fork: &str) -> Result<Option<Self>, OutcomeError> {
        let path = Self::path(root, fork);
        let text = match file::bytes(&path, Most::Record) {
            Ok(text) => text,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            Err(source) => return Err(OutcomeError::Disk { path, source }),
        };
        serde_json::from_slice(&text).map(Some).map_err(|source| OutcomeError::Shape { path, source })
    }

    /// Keeps the result, in place of the last one.
    ///
    /// # Errors
    /// When the file cannot be written.
    pub fn save(&self, root: &Path) -> Result<(), OutcomeError> {
        let path = Self::path(root, &self.fork);
        let mut text = serde_json::to_string_pretty(self).expect("a result has text keys only");
        text.push('\n');
        replace_file(&path, text.as_bytes()).map_err(|source| OutcomeError::Disk { path, source })
    }

    /// The file of a fork's last result.
    pub fn path(root: &Path, fork: &str) -> PathBuf {
        sync_folder(root, fork).join("result.json")
    }
}

/// The folder that keeps what a fork's rebase needs between two runs.
pub fn sync_folder(root: &Path, fork: &str) -> PathBuf {
    root.join("target/regraft/sync").join(fork)
}

/// Writes a file so that it holds either its old bytes or all of the new ones, whenever the process dies. One process at
/// a time may write it.
///
/// # Errors
/// When the folder cannot be made or the file not be written.
pub fn replace_file(path: &Path, bytes: &[u8]) -> io::Result<()> {
    let folder = path.parent().unwrap_or(Path::new("."));
    fs::create_dir_all(folder)?;
    // One name for each file: what a killed process left there, the next one that writes the file replaces.
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    let beside = folder.join(format!(".{name}{HALF_WRITTEN}"));
    match fs::remove_file(&beside) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
        _ => {}
    }
    let mut file = fs::File::create_new(&beside)?;
    io::Write::write_all(&mut file, bytes)?;
    file.sync_all()?;
    fs::rename(&beside, path)?;
    Ok(())
}

const HALF_WRITTEN: &str = ".regraft-new";

/// Takes away what a killed process left half written in a folder, whichever file it was for.
pub fn sweep_half_written(folder: &Path) {
    for entry in fs::read_dir(folder).into_iter().flatten().flatten() {
        let name = entry.file_name();
        let name = name.to_string_lossy();
        if name.starts_with('.') && name.ends_with(HALF_WRITTEN) {
            // Where it cannot be removed now, the next run that writes the file says so.
            let _ = fs::remove_file(entry.path());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_result_is_found_again_as_it_was_kept() {
        let root = tempfile::tempdir().unwrap();
        let commit: CommitId = "a".repeat(40).parse().unwrap();
        let result = SyncResult {
            schema: SCHEMA,
            fork: "f".to_owned(),
            base: NamedCommit { commit, tag: Some("v1".to_owned()) },
            onto: NamedCommit { commit, tag: None },
            old_head: None,
            new_head: commit,
            tree: "b".repeat(40).parse().unwrap(),
            store: PathBuf::from("target/regraft/forks/f.git"),
            branch: "refs/heads/regraft/f/v2".to_owned(),
            patches: vec![SyncedPatch {
                number: 1,
                subject: "s".to_owned(),
                old_commit: None,
                file: Some("0001-s.patch".to_owned()),
                outcome: PatchOutcome::Absorbed,
                new_commit: None,
                patch_id: None,
                exported: None,
            }],
            open_findings: 0,
            report: PathBuf::from("reports/x"),
        };
        assert_eq!(SyncResult::load(root.path(), "f").unwrap(), None);
        result.save(root.path()).unwrap();
        assert_eq!(SyncResult::load(root.path(), "f").unwrap(), Some(result));
        fs::write(SyncResult::path(root.path(), "f"), "{}").unwrap();
        assert!(SyncResult::load(root.path(), "f").unwrap_err().hint().is_some());
    }
}
