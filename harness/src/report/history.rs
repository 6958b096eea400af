//! The figures of throughput cells over many runs, one JSON line a cell and run, so that two branches merge line by line. For
//! charts: a stored figure is of another day and never decides.

use std::{
    fs::{self, OpenOptions},
    io::Write as _,
    path::Path,
};

use serde_json::{Map, Value, json};

use super::{Report, ReportError};

/// The folder below the reports.
pub const FOLDER: &str = "history";

/// Appends the run's throughput cells to the matrix's file below `reports`; writes nothing where there are none.
///
/// # Errors
/// Where the file cannot be written.
pub fn append(reports: &Path, report: &Report) -> Result<(), ReportError> {
    let text = lines(report);
    if text.is_empty() {
        return Ok(());
    }
    let folder = reports.join(FOLDER);
    let path = folder.join(format!("{}.jsonl", report.matrix));
    let io = |action| {
        let path = path.clone();
        move |source| ReportError::Io { action, path, source }
    };
    fs::create_dir_all(&folder).map_err(io("create the folder of"))?;
    let mut file = OpenOptions::new().create(true).append(true).open(&path).map_err(io("open"))?;
    // One write, so that two runs that end together do not share a line.
    file.write_all(text.as_bytes()).map_err(io("append to"))
}

/// One line a throughput cell, keys sorted.
pub fn lines(report: &Report) -> String {
    let digest = |name: &str| report.builds.get(name).map(|provenance| provenance.digest.clone());
    let mut text = String::new();
    for cell in &report.cells {
        let Some(speed) = &cell.throughput else { continue };
        let figures: Map<String, Value> = speed
            .metrics
            .iter()
            .map(|m| {
                let key = serde_json::to_value(m.metric).expect("a unit variant is a JSON string");
                let look = m.confirmation.or(m.first);
                let figure = json!({
                    "candidate": m.candidate.median,
                    "baseline": m.baseline.median,
                    "cv": m.candidate.cv,
                    "runs": m.candidate.runs,
                    "ratio": look.map(|look| look.ratio),
                    "detectable": look.map(|look| look.detectable),
                });
                (key.as_str().unwrap_or_default().to_owned(), figure)
            })
            .collect();
        let mut line = json!({
            "started": report.started,
            "matrix": report.matrix,
            "cell": cell.id,
            "status": cell.status,
            "candidate": report.candidate,
            "candidate_digest": digest(&report.candidate),
            "baseline": report.baseline,
            "baseline_digest": digest(&report.baseline),
            "machine": report.environment,
            "figures": figures,
        });
        line.sort_all_objects();
        text += &line.to_string();
        text.push('\n');
    }
    text
}
