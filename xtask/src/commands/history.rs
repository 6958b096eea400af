//! `history`: at which nights did a figure change its level? Advice, so the exit code says nothing about it.

use std::path::{Path, PathBuf};

use harness::report::history;

use crate::{
    exit::{Exit, Failure},
    output::print_text,
};

/// Reads the history below the reports and prints its change points.
pub(crate) fn run(root: &Path, report_dir: Option<PathBuf>) -> Result<Exit, Failure> {
    let reports = report_dir.unwrap_or_else(|| root.join("reports"));
    let lines = history::read(&reports)?;
    if lines.is_empty() {
        return Err(Failure::new(
            Exit::Usage,
            format!("there is no history below `{}`", reports.display()),
            Some("a gate with throughput cells begins one: `cargo xtask gate`".to_owned()),
        ));
    }
    print_text(&history::advice(&lines))?;
    Ok(Exit::Pass)
}
