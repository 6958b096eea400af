//! The one way to start the `git` program here: on a given repository, out of reach of the user's configuration and of
//! a surrounding git process.

use std::path::Path;

use super::apply::FOREIGN;
use crate::tools::process::Invocation;

/// `git` on the bare repository `repository`, reading no configuration but the repository's own.
pub(super) fn git_command(repository: &Path) -> Invocation {
    with_user_settings(repository)
        .env_remove(FOREIGN)
        .env("GIT_CONFIG_NOSYSTEM", "1")
        .env("GIT_CONFIG_GLOBAL", "/dev/null")
}

/// `git` on the bare repository `repository` with the user's settings, which hold credentials and `insteadOf`, whether they
/// stand in files or in variables.
pub(super) fn with_user_settings(repository: &Path) -> Invocation {
    Invocation::new("git")
        .arg("--git-dir")
        .arg(repository)
        .env_remove(FOREIGN.iter().filter(|name| !name.starts_with("GIT_CONFIG_")))
        .env("GIT_TERMINAL_PROMPT", "0")
        .env("LC_ALL", "C")
}
