//! Applies a queue of patch files to a plain folder with `git apply`, and proves that every file that a patch names did
//! change. `git apply` inside a foreign repository filters all paths out and exits 0, so the folder becomes a
//! repository of its own first and the resulting trees are compared.

use std::{
    collections::BTreeSet,
    fs, io,
    path::{Path, PathBuf},
    time::Duration,
};

use crate::tools::{
    disk,
    file::{self, Most},
    process::{Invocation, ProcessError},
};

/// How long one git command may take on a source folder.
const TIMEOUT: Duration = Duration::from_secs(300);

/// Variables by which a surrounding git process or a user would point git at something else than the folder.
pub(super) const FOREIGN: [&str; 12] = [
    "GIT_DIR",
    "GIT_WORK_TREE",
    "GIT_INDEX_FILE",
    "GIT_OBJECT_DIRECTORY",
    "GIT_ALTERNATE_OBJECT_DIRECTORIES",
    "GIT_COMMON_DIR",
    "GIT_NAMESPACE",
    "GIT_PREFIX",
    "GIT_CONFIG",
    "GIT_CONFIG_PARAMETERS",
    "GIT_CONFIG_COUNT",
    "GIT_LITERAL_PATHSPECS",
];

/// Why a patch did not apply.
#[derive(Debug, thiserror::Error)]
pub enum ApplyError {
    /// The folder or a patch could not be read or prepared.
    #[error("cannot prepare `{}` for patching", .path.display())]
    Prepare {
        /// The folder or file.
        path: PathBuf,
        /// What the system said.
        #[source]
        source: io::Error,
    },
    /// Git itself failed before any patch was tried.
    #[error("cannot make `{}` a scratch repository", .folder.display())]
    Git {
        /// The folder.
        folder: PathBuf,
        /// What git said.
        #[source]
        source: Box<ProcessError>,
    },
    /// A patch does not fit.
    #[error("patch `{}` does not apply to `{}`", .patch.display(), .folder.display())]
    DoesNotApply {
        /// The patch file.
        patch: PathBuf,
        /// The folder.
        folder: PathBuf,
        /// What git said.
        #[source]
        source: Box<ProcessError>,
    },
    /// A patch file holds no change at all.
    #[error("patch `{}` names no file", .patch.display())]
    Empty {
        /// The patch file.
        patch: PathBuf,
    },
    /// Git reported success, but the tree shows something else than the patch says.
    #[error("patch `{}` was taken, but {}", .patch.display(), mismatch_text(.unchanged, .unnamed))]
    Mismatch {
        /// The patch file.
        patch: PathBuf,
        /// Files that the patch names and that did not change.
        unchanged: Vec<String>,
        /// Files that changed though the patch does not name them.
        unnamed: Vec<String>,
    },
}

impl ApplyError {
    /// What to try.
    pub fn hint(&self) -> Option<String> {
        match self {
            Self::Git { source, .. } => source.hint(),
            Self::DoesNotApply { .. } => Some(
                "the patch was made for another version of these sources: refresh it, or name the version that it was made for"
                    .to_owned(),
            ),
            Self::Empty { .. } => Some("remove the file, or write the patch again with `git format-patch`".to_owned()),
            Self::Prepare { source, .. } => disk::hint(source),
            _ => None,
        }
    }
}

/// One applied patch.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Applied {
    /// The patch file.
    pub patch: PathBuf,
    /// The files that it changed, by path.
    pub changed: BTreeSet<String>,
}

/// Applies `patches`, in order, to the files of `folder`, which may lie inside any repository and is left without one.
/// Errors: see [`ApplyError`]; after one the folder is in no known state and has to be thrown away.
pub fn apply_queue(folder: &Path, patches: &[PathBuf]) -> Result<Vec<Applied>, ApplyError> {
    let prepare = |path: &Path, source| ApplyError::Prepare { path: path.to_owned(), source };
    let folder = folder.canonicalize().map_err(|e| prepare(folder, e))?;
    let git_dir = folder.join(".git");
    let git_failed = |source| ApplyError::Git { folder: folder.clone(), source: Box::new(source) };
    let run = |args: &[&str]| git(&folder, true).args(args).run_ok();

    git(&folder, false).args(["init", "--quiet", "--template="]).run_ok().map_err(git_failed)?;
    run(&["add", "--all", "--force"]).map_err(git_failed)?;
    let mut before = tree(&folder).map_err(git_failed)?;
    let mut applied = Vec::new();
    for patch in patches {
        let patch = patch.canonicalize().map_err(|e| prepare(patch, e))?;
        let text = file::bytes(&patch, Most::Patch).map_err(|e| prepare(&patch, e))?;
        let named = named_paths(&String::from_utf8_lossy(&text));
        if named.is_empty() {
            return Err(ApplyError::Empty { patch });
        }
        git(&folder, true)
            .args(["apply", "--index", "--whitespace=nowarn", "--"])
            .arg(&patch)
            .run_ok()
            .map_err(|source| ApplyError::DoesNotApply {
                patch: patch.clone(),
                folder: folder.clone(),
                source: Box::new(source),
            })?;
        let after = tree(&folder).map_err(git_failed)?;
        let listed = run(&["diff-tree", "-r", "-z", "--name-only", "--no-renames", &before, &after]);
        let changed: BTreeSet<String> = listed
            .map_err(git_failed)?
            .stdout
            .split('\0')
            .filter(|p| !p.is_empty())
            .map(str::to_owned)
            .collect();
        check(&patch, &named, &changed)?;
        before = after;
        applied.push(Applied { patch, changed });
    }
    fs::remove_dir_all(&git_dir).map_err(|e| prepare(&git_dir, e))?;
    Ok(applied)
}

/// The paths that a patch says it changes: both sides of each `diff --git` or `---`/`+++` pair, less `/dev/null`,
/// without their first component. Lines inside hunks are skipped by the hunks' own counts.
pub fn named_paths(patch: &str) -> BTreeSet<String> {
    let mut paths = BTreeSet::new();
    let (mut old_left, mut new_left) = (0usize, 0usize);
    for line in patch.lines() {
        if old_left > 0 || new_left > 0 {
            match line.as_bytes().first() {
                Some(b'-') => old_left = old_left.saturating_sub(1),
                Some(b'+') => new_left = new_left.saturating_sub(1),
                Some(b'\\') => {}
                _ => {
                    old_left = old_left.saturating_sub(1);
                    new_left = new_left.saturating_sub(1);
                }
            }
            continue;
        }
        if let Some(counts) = line.strip_prefix("@@ ").and_then(hunk_counts) {
            (old_left, new_left) = counts;
        } else if let Some(path) = line.strip_prefix("--- ").or_else(|| line.strip_prefix("+++ ")) {
            paths.extend(stripped(path.split('\t').next().unwrap_or(path)));
        } else if let Some(path) =
            ["rename from ", "rename to ", "copy to "].iter().find_map(|p| line.strip_prefix(p))
        {
            paths.insert(path.to_owned());
        } else if let Some(pair) = line.strip_prefix("diff --git ") {
            // Mode changes and binary patches have no `---` line. Both names are equal there, so the line's halves are.
            let half = pair.len() / 2;
            if let (Some(a), Some(b)) = (pair.get(..half), pair.get(half + 1..))
                && stripped(a).is_some()
                && stripped(a) == stripped(b)
            {
                paths.extend(stripped(a));
            }
        }
    }
    paths
}

fn stripped(path: &str) -> Option<String> {
    if path == "/dev/null" {
        return None;
    }
    path.trim_matches('"').split_once('/').map(|(_, rest)| rest.to_owned())
}

/// `-1,7 +1,8 @@ …` → the numbers of old and new lines that follow.
fn hunk_counts(rest: &str) -> Option<(usize, usize)> {
    let mut parts = rest.split(' ');
    let count = |part: &str, sign: char| {
        let numbers = part.strip_prefix(sign)?;
        numbers.split_once(',').map_or(Some(1), |(_, n)| n.parse().ok())
    };
    Some((count(parts.next()?, '-')?, count(parts.next()?, '+')?))
}

fn check(patch: &Path, named: &BTreeSet<String>, changed: &BTreeSet<String>) -> Result<(), ApplyError> {
    let unchanged: Vec<String> = named.difference(changed).cloned().collect();
    let unnamed: Vec<String> = changed.difference(named).cloned().collect();
    if unchanged.is_empty() && unnamed.is_empty() {
        return Ok(());
    }
    Err(ApplyError::Mismatch { patch: patch.to_owned(), unchanged, unnamed })
}

fn mismatch_text(unchanged: &[String], unnamed: &[String]) -> String {
    let mut parts = Vec::new();
    if !unchanged.is_empty() {
        parts.push(format!("left `{}` as it was", unchanged.join("`, `")));
    }
    if !unnamed.is_empty() {
        parts.push(format!("changed `{}`, which it does not name", unnamed.join("`, `")));
    }
    parts.join(" and ")
}

fn tree(folder: &Path) -> Result<String, ProcessError> {
    Ok(git(folder, true).arg("write-tree").run_ok()?.stdout.trim().to_owned())
}

fn git(folder: &Path, named_repository: bool) -> Invocation {
    let mut git = Invocation::new("git")
        .args(["-c", "core.autocrlf=false", "-c", "core.safecrlf=false", "-c", "core.fsmonitor=false"])
        .args([
            "-c",
            "core.hooksPath=/dev/null",
            "-c",
            "core.quotePath=false",
            "-c",
            "apply.ignoreWhitespace=no",
        ])
        .cwd(folder)
        .env_remove(FOREIGN)
        .env("GIT_CONFIG_NOSYSTEM", "1")
        .env("GIT_CONFIG_GLOBAL", "/dev/null")
        .env("GIT_ATTR_NOSYSTEM", "1")
        .env("GIT_TERMINAL_PROMPT", "0")
        .env("LC_ALL", "C")
        .timeout(TIMEOUT);
    if let Some(parent) = folder.parent() {
        git = git.env("GIT_CEILING_DIRECTORIES", parent);
    }
    if named_repository {
        git = git.env("GIT_DIR", folder.join(".git")).env("GIT_WORK_TREE", folder);
    }
    git
}

#[cfg(test)]
mod tests {
    use super::*;

    const ONE_TO_TWO: &str = "Subject: two\n\ndiff --git a/src/a.txt b/src/a.txt\n--- a/src/a.txt\n+++ b/src/a.txt\n@@ -1,1 +1,2 @@\n one\n+two\n";
    const TWO_TO_THREE: &str = "--- a/src/a.txt\n+++ b/src/a.txt\n@@ -1,2 +1,3 @@\n one\n two\n+three\n";
    const NEW_FILE: &str =
        "diff --git a/b.txt b/b.txt\nnew file mode 100644\n--- /dev/null\n+++ b/b.txt\n@@ -0,0 +1 @@\n+b\n";

    /// A source folder inside somebody else's repository, with an ignore file that hides everything.
    fn folder_in_foreign_repository() -> (tempfile::TempDir, PathBuf) {
        let dir = tempfile::tempdir().unwrap();
        Invocation::new("git").args(["init", "--quiet"]).cwd(dir.path()).run_ok().unwrap();
        fs::write(dir.path().join(".gitignore"), "target/\n").unwrap();
        let folder = dir.path().join("target/sources/x");
        fs::create_dir_all(folder.join("src")).unwrap();
        fs::write(folder.join("src/a.txt"), "one\n").unwrap();
        (dir, folder)
    }

    fn patch_files(dir: &Path, texts: &[&str]) -> Vec<PathBuf> {
        let write = |(i, text): (usize, &&str)| {
            let path = dir.join(format!("000{}-p.patch", i + 1));
            fs::write(&path, text).unwrap();
            path
        };
        texts.iter().enumerate().map(write).collect()
    }

    #[test]
    fn patches_apply_in_order_inside_a_foreign_repository() {
        let (dir, folder) = folder_in_foreign_repository();
        let patches = patch_files(dir.path(), &[ONE_TO_TWO, TWO_TO_THREE, NEW_FILE]);
        let applied = apply_queue(&folder, &patches).unwrap();
        assert_eq!(fs::read_to_string(folder.join("src/a.txt")).unwrap(), "one\ntwo\nthree\n");
        assert_eq!(applied[2].changed, BTreeSet::from(["b.txt".to_owned()]));
        assert!(!folder.join(".git").exists(), "no repository is left behind");
    }

    #[test]
    fn the_trap_is_real_and_the_check_sees_it() {
        let (dir, folder) = folder_in_foreign_repository();
        let patch = &patch_files(dir.path(), &[ONE_TO_TWO])[0];
        // Without a repository of its own the same command succeeds and does nothing.
        let naive = Invocation::new("git").arg("apply").arg(patch).cwd(&folder).run().unwrap();
        assert!(naive.status.success());
        assert_eq!(
            fs::read_to_string(folder.join("src/a.txt")).unwrap(),
            "one\n",
            "git has changed its ways"
        );
        let error = check(patch, &named_paths(ONE_TO_TWO), &BTreeSet::new()).unwrap_err();
        assert!(error.to_string().ends_with("was taken, but left `src/a.txt` as it was"), "{error}");
    }

    #[test]
    fn a_patch_that_does_not_fit_is_named_with_what_git_said() {
        let (dir, folder) = folder_in_foreign_repository();
        let error = apply_queue(&folder, &patch_files(dir.path(), &[TWO_TO_THREE])).unwrap_err();
        let ApplyError::DoesNotApply { source, patch, .. } = &error else { panic!("{error}") };
        assert!(patch.ends_with("0001-p.patch"));
        assert!(source.to_string().contains("patch does not apply"), "{source}");
        assert!(error.hint().unwrap().contains("another version"));
    }

    #[test]
    fn a_patch_cannot_reach_outside_its_folder() {
        let (dir, folder) = folder_in_foreign_repository();
        fs::write(folder.parent().unwrap().join("victim"), "one\n").unwrap();
        let evil = "--- a/../victim\n+++ b/../victim\n@@ -1,1 +1,1 @@\n-one\n+gone\n";
        assert!(apply_queue(&folder, &patch_files(dir.path(), &[evil])).is_err());
        assert_eq!(fs::read_to_string(folder.parent().unwrap().join("victim")).unwrap(), "one\n");
    }

    #[test]
    fn a_file_without_changes_is_no_patch() {
        let (dir, folder) = folder_in_foreign_repository();
        let error = apply_queue(&folder, &patch_files(dir.path(), &["Subject: words only\n"])).unwrap_err();
        assert!(matches!(error, ApplyError::Empty { .. }), "{error}");
    }

    #[test]
    fn paths_come_from_headers_and_never_from_hunk_lines() {
        let cases: [(&str, &[&str]); 4] = [
            ("--- a/x\n+++ b/x\n@@ -1,2 +1,2 @@\n--- a/fake\n+++ b/fake\n ctx\n", &["x"]),
            ("diff --git a/run.sh b/run.sh\nold mode 100644\nnew mode 100755\n", &["run.sh"]),
            ("diff --git a/o b/n\nsimilarity index 100%\nrename from o\nrename to n\n", &["n", "o"]),
            (
                "diff --git a/gone b/gone\ndeleted file mode 100644\n--- a/gone\n+++ /dev/null\n@@ -1 +0,0 @@\n-x\n",
                &["gone"],
            ),
        ];
        for (patch, expected) in cases {
            assert_eq!(named_paths(patch).into_iter().collect::<Vec<_>>(), expected, "{patch}");
        }
    }
}
