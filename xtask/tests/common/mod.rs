//! Small real repositories for the tests of commands: fixed author and dates, no configuration of a user.

use std::{fs, path::Path, process::Command};

/// Runs git in a folder, which must work; what it printed, without white space around it.
#[expect(clippy::disallowed_methods, reason = "a test may make repositories with git itself")]
pub(crate) fn git(folder: &Path, args: &[&str]) -> String {
    let output = Command::new("git")
        .args(["-c", "user.name=A", "-c", "user.email=a@example.org", "-c", "protocol.file.allow=always"])
        .args(args)
        .current_dir(folder)
        .env("GIT_CONFIG_GLOBAL", "/dev/null")
        .env("GIT_AUTHOR_DATE", "1700000000 +0000")
        .env("GIT_COMMITTER_DATE", "1700000000 +0000")
        .output()
        .expect("git starts");
    assert!(output.status.success(), "git {args:?}: {}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap().trim().to_owned()
}

/// Writes files and commits everything.
pub(crate) fn commit(folder: &Path, subject: &str, files: &[(&str, &str)]) {
    for (path, text) in files {
        fs::write(folder.join(path), text).unwrap();
    }
    git(folder, &["add", "."]);
    git(folder, &["commit", "-q", "-m", subject]);
}
