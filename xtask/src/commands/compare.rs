//! `compare`: two finished runs side by side, where their machines and profiles are the same.

use std::{
    fs,
    path::{Path, PathBuf},
};

use harness::report::{
    REPORT_FILE, Report,
    compare::{incomparable, tables},
    read,
};

use crate::{
    cli::CompareArgs,
    exit::{Exit, Failure},
    output::print_text,
};

/// Reads both runs and prints what moved, or refuses with every reason.
pub(crate) fn run(root: &Path, args: &CompareArgs) -> Result<Exit, Failure> {
    let read_run = |run| Ok::<_, Failure>(read(&report_file(root, run)?)?);
    let (one, other): (Report, Report) = (read_run(&args.first)?, read_run(&args.second)?);
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

/// A run's record: by its `report.json`, its folder, or the folder's name below `reports/`.
pub(super) fn report_file(root: &Path, run: &Path) -> Result<PathBuf, Failure> {
    let below = root.join("reports").join(run);
    let place: PathBuf = if !run.exists() && below.exists() { below } else { run.to_owned() };
    let is_folder = place.is_dir();
    let file = if is_folder { place.join(REPORT_FILE) } else { place };
    if file.exists() {
        return Ok(file);
    }
    let what = match is_folder {
        true => format!("folder `{}` holds no {REPORT_FILE}", run.display()),
        false => format!("there is no run `{}`", run.display()),
    };
    let mut hint = "name a run's folder or its report.json".to_owned();
    let known = some_runs(root);
    if !known.is_empty() {
        hint += &format!(", for example {}", known.join(", "));
    }
    Err(Failure::new(Exit::Usage, what, Some(hint)))
}

/// A few of the runs below `reports/`, those named last in the alphabet first, as run folders begin with their date.
fn some_runs(root: &Path) -> Vec<String> {
    let mut runs = Vec::new();
    for folder in ["reports", "reports/examples"] {
        let entries = fs::read_dir(root.join(folder)).into_iter().flatten().flatten();
        let mut found: Vec<String> = entries
            .filter(|entry| entry.path().join(REPORT_FILE).is_file())
            .map(|entry| format!("{folder}/{}", entry.file_name().to_string_lossy()))
            .collect();
        found.sort_unstable();
        runs.extend(found.into_iter().rev());
    }
    runs.truncate(4);
    runs
}
