//! Scratch clones: a commit's files with a git folder of their own, for commands that build and test them.

use std::{path::Path, time::Duration};

use super::{apply::FOREIGN, ids::CommitId};
use crate::tools::process::{Invocation, ProcessError};

/// How long one git command may take.
const TIMEOUT: Duration = Duration::from_secs(1800);

/// Clones `repository` into `folder`, which is not there yet, borrowing its objects, and checks `commit` out. No hook runs.
///
/// # Errors
/// When git says no.
pub fn scratch_clone(repository: &Path, commit: CommitId, folder: &Path) -> Result<(), ProcessError> {
    let git = || {
        Invocation::new("git")
            .args(["-c", "core.hooksPath=/dev/null"])
            .env_remove(FOREIGN)
            .env("GIT_TERMINAL_PROMPT", "0")
            .timeout(TIMEOUT)
    };
    let clone = git().args(["clone", "--quiet", "--shared", "--no-checkout", "--"]);
    clone.arg(repository).arg(folder).run_ok()?;
    git().args(["checkout", "--quiet", "--detach"]).arg(commit.to_string()).cwd(folder).run_ok()?;
    Ok(())
}

/// Settings, as variables, by which every git process reads `address` from the local repository beside it; `inherited` is how
/// many settings such variables hold already.
pub fn redirections(local: &[(String, std::path::PathBuf)], inherited: usize) -> Vec<(String, String)> {
    if local.is_empty() {
        return Vec::new();
    }
    let mut settings = vec![("protocol.file.allow".to_owned(), "always".to_owned())];
    settings.extend(
        local.iter().map(|(address, path)| (format!("url.{}.insteadOf", path.display()), address.clone())),
    );
    let mut variables = vec![("GIT_CONFIG_COUNT".to_owned(), (inherited + settings.len()).to_string())];
    for (number, (key, value)) in (inherited..).zip(settings) {
        variables.push((format!("GIT_CONFIG_KEY_{number}"), key));
        variables.push((format!("GIT_CONFIG_VALUE_{number}"), value));
    }
    variables
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tools::git::fixture::ForkFixture;

    #[test]
    fn a_commit_is_checked_out_beside_a_repository_that_stays_as_it_is() {
        let fixture = ForkFixture::new(&[("a/b", "one\n")]).advance("up", &[("a/b", Some("two\n"))]);
        let folder = tempfile::tempdir().unwrap();
        let clone = folder.path().join("c");
        scratch_clone(fixture.store.path(), fixture.base, &clone).unwrap();
        assert_eq!(std::fs::read_to_string(clone.join("a/b")).unwrap(), "one\n");
        let error =
            scratch_clone(fixture.store.path(), "1".repeat(40).parse().unwrap(), &folder.path().join("d"));
        assert!(error.is_err(), "a commit that is not there");
    }

    #[test]
    fn redirections_come_after_what_is_set_already() {
        assert!(redirections(&[], 2).is_empty());
        let variables = redirections(&[("https://e.org/o/n".to_owned(), "/m/o+n".into())], 1);
        let line: Vec<String> = variables.iter().map(|(name, value)| format!("{name}={value}")).collect();
        insta::assert_snapshot!(line.join("\n"), @r"
        GIT_CONFIG_COUNT=3
        GIT_CONFIG_KEY_1=protocol.file.allow
        GIT_CONFIG_VALUE_1=always
        GIT_CONFIG_KEY_2=url./m/o+n.insteadOf
        GIT_CONFIG_VALUE_2=https://e.org/o/n
        ");
    }
}
