//! `judge`: what does a finished run say, judged again?

use std::path::Path;

use harness::{
    config::{load_builds, load_matrix},
    report::{judge_again, observations_of, read, summary},
    verdict::Verdict,
};

use super::compare::report_file;
use crate::{
    cli::{Format, JudgeArgs},
    exit::{Exit, Failure},
    output::print_text,
};

/// Reads the run, judges it and prints the report that it would have had.
pub(crate) fn run(root: &Path, args: &JudgeArgs) -> Result<Exit, Failure> {
    let path = report_file(root, &args.report)?;
    let report = read(&path)?;
    let folder = path.parent().unwrap_or(Path::new("."));
    let cells = observations_of(&report, folder)?;
    let thresholds = match &args.matrix {
        Some(matrix) => load_matrix(root, matrix, &load_builds(root)?)?.thresholds,
        None => report.thresholds.clone(),
    };
    let again = judge_again(&report, cells, &thresholds);
    match args.format {
        Format::Json => print_text(&again.to_json())?,
        Format::Text => print_text(&summary(&again))?,
    }
    Ok(match again.verdict {
        Verdict::Pass => Exit::Pass,
        Verdict::Fail => Exit::Found,
        Verdict::Inconclusive => Exit::Inconclusive,
    })
}
