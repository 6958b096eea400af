//! Commits as patches in mail format: what `git format-patch` writes, free of whatever differs from run to run.

use std::{fs, io, path::PathBuf, time::Duration};

use super::{command::git_command, ids::CommitId, store::Store};
use crate::tools::process::ProcessError;

/// How long writing all mails may take.
const TIMEOUT: Duration = Duration::from_secs(600);

/// Why commits could not be written as mails.
#[derive(Debug, thiserror::Error)]
pub enum MailsError {
    /// Git said no.
    #[error("git cannot write commits as patches")]
    Git(#[source] Box<ProcessError>),
    /// A mail could not be kept or read.
    #[error("cannot keep patches in `{}`", .path.display())]
    Disk {
        /// The file or folder.
        path: PathBuf,
        /// What the system said.
        #[source]
        source: io::Error,
    },
}

impl Store {
    /// Each of `commits` against its parent as a mail, in order; paths relative to `folder` where there is one. The mail
    /// has no signature, no statistics and no commit id. A commit that changes nothing gives an empty mail.
    ///
    /// # Errors
    /// When git says no.
    pub fn mails(&self, commits: &[CommitId], folder: Option<&str>) -> Result<Vec<Vec<u8>>, MailsError> {
        let disk = |path: PathBuf| |source| MailsError::Disk { path, source };
        let kept = tempfile::tempdir().map_err(disk(PathBuf::from("a temporary folder")))?;
        let mut mails = Vec::new();
        for commit in commits {
            let mut command =
                git_command(self.path()).args(["format-patch", "--quiet", "-1", "--no-numbered"]);
            command =
                command.args(["--no-signature", "--zero-commit", "--no-stat", "--full-index", "--binary"]);
            command = command.args(["--find-renames", "--no-attach", "--numbered-files", "--no-thread"]);
            // The settings of a repository must not reach what is committed.
            command =
                command.args(["--src-prefix=a/", "--dst-prefix=b/", "--unified=3", "--diff-algorithm=myers"]);
            if let Some(folder) = folder {
                command = command.arg(format!("--relative={folder}"));
            }
            command = command.arg("--output-directory").arg(kept.path()).arg(commit.to_string());
            command.timeout(TIMEOUT).run_ok().map_err(|source| MailsError::Git(Box::new(source)))?;
            let path = kept.path().join("1");
            let mail = match fs::read(&path) {
                Ok(mail) => mail,
                Err(error) if error.kind() == io::ErrorKind::NotFound => Vec::new(),
                Err(source) => return Err(MailsError::Disk { path, source }),
            };
            let _ = fs::remove_file(&path);
            mails.push(mail);
        }
        Ok(mails)
    }
}
