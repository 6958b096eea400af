//! `compare`: two finished runs side by side, where their machines and profiles are the same.

use std::path::{Path, PathBuf};

use harness::report::{
    self, REPORT_FILE, Report,
    compare::{incomparable, tables},
};

use crate::{
    cli::CompareArgs,
    exit::{Exit, Failure},
    output::print_text,
};

/// Reads both runs and prints what moved, or refuses with every reason.
pub(crate) fn run(root: &Path, args: &CompareArgs) -> Result<Exit, Failure> {
    let (one, other) = (read(root, &args.first)?, read(root, &args.second)?);
    let reasons = incomparable(&one, &other);
    if !reasons.is_empty() {
        let hint = "run both on one machine, with builds of one profile".to_owned();
        return Err(Failure::new(
            Exit::Inconclusive,
            format!("the runs cannot be compared\n{}", reasons.join("\n")),
            Some(hint),
        ));
    }
    print_text(&tables(&one, &other))?;
    Ok(Exit::Pass)
}

/// A run by its `report.json`, its folder, or the folder's name below `reports/`.
fn read(root: &Path, run: &Path) -> Result<Report, Failure> {
    let below = root.join("reports").join(run);
    let place: PathBuf = if !run.exists() && below.exists() { below } else { run.to_owned() };
    let file = if place.is_dir() { place.join(REPORT_FILE) } else { place };
    report::read(&file).map_err(|error| {
        let hint = error.hint().to_owned();
        Failure::new(Exit::Usage, error, Some(hint))
    })
}
