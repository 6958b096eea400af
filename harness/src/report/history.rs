//! The figures of throughput cells over many runs, one JSON line a cell and run, so that two branches merge line by line. For
//! charts and advice, change points among it: a stored figure is of another day and never decides.

use std::{
    collections::{BTreeMap, BTreeSet},
    fmt::Write as _,
    fs::{self, OpenOptions},
    io::Write as _,
    path::Path,
};

use serde_json::{Map, Value, json};

use super::{Report, ReportError, compare::MACHINE, markdown::inline};
use crate::{
    judge::throughput::stats::{median, pettitt},
    tools::file::{self, Most},
};

/// The folder below the reports.
pub const FOLDER: &str = "history";

/// A change point is told below this p. There are many series, and every night adds to each, so a few are of chance: the
/// table says that it is advice.
const ADVISED_P: f64 = 0.01;

/// A smaller change of level, as a share, is none.
const LEAST_CHANGE: f64 = 0.02;

/// A night at which a figure's level changed, on one machine.
#[derive(Debug, Clone, PartialEq)]
pub struct ChangePoint {
    /// The cell.
    pub cell: String,
    /// The figure, by its key in the history.
    pub figure: String,
    /// Start of the first run at the new level.
    pub since: String,
    /// The candidate of the run before, and of that run.
    pub candidates: [String; 2],
    /// Medians of the nights before and after, in the figure's unit.
    pub levels: [f64; 2],
    /// How many nights each level has.
    pub nights: [usize; 2],
    /// The chance of a change as clear, were there none.
    pub p: f64,
}

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

/// All lines of the history below `reports`, of every matrix, in the order of the runs; none where there is no history.
///
/// # Errors
/// Where a file cannot be read or a line is no JSON.
pub fn read(reports: &Path) -> Result<Vec<Value>, ReportError> {
    let folder = reports.join(FOLDER);
    let mut lines = Vec::new();
    for entry in fs::read_dir(&folder).into_iter().flatten().flatten() {
        let path = entry.path();
        if path.extension().is_none_or(|extension| extension != "jsonl") {
            continue;
        }
        let text = file::text(&path, Most::Record).map_err(|source| ReportError::Io {
            action: "read",
            path: path.clone(),
            source,
        })?;
        for line in text.lines().filter(|line| !line.trim().is_empty()) {
            let line = serde_json::from_str::<Value>(line)
                .map_err(|source| ReportError::Malformed { path: path.clone(), source })?;
            lines.push(line);
        }
    }
    lines.sort_by(|a, b| a["started"].as_str().cmp(&b["started"].as_str()));
    Ok(lines)
}

/// Where the candidate's level changed, over lines in the order of their runs: Pettitt's test on each series of one matrix,
/// cell, figure and machine, then on both halves where it found something.
pub fn change_points(lines: &[Value]) -> Vec<ChangePoint> {
    let mut series: BTreeMap<[String; 4], Vec<Night<'_>>> = BTreeMap::new();
    for line in lines {
        let text = |name: &str| line[name].as_str().unwrap_or_default();
        let machine: Vec<&Value> = MACHINE.iter().map(|name| &line["machine"][*name]).collect();
        for (figure, values) in line["figures"].as_object().into_iter().flatten() {
            let Some(level) = values["candidate"].as_f64().filter(|value| value.is_finite()) else {
                continue;
            };
            let key = [text("cell"), figure, text("matrix"), &json!(machine).to_string()].map(str::to_owned);
            let night = Night { started: text("started"), candidate: text("candidate"), level };
            series.entry(key).or_default().push(night);
        }
    }
    let mut found = Vec::new();
    for ([cell, figure, ..], nights) in &series {
        split(cell, figure, nights, &mut found);
    }
    found
}

/// The change points as Markdown, with a word on what they are worth.
pub fn advice(lines: &[Value]) -> String {
    let runs: BTreeSet<_> = lines.iter().map(|line| line["started"].as_str()).collect();
    let found = change_points(lines);
    let mut text = format!(
        "# Change points over {} runs\n\nAdvisory: a stored figure is of another day, and no verdict looks at it. To know, \
         let the builds before and after run by turns: `cargo xtask gate --baseline BEFORE --candidate AFTER`.\n\n",
        runs.len()
    );
    if found.is_empty() {
        text += "None: no level changed by 2 % or more and below p = .01.\n";
        return text;
    }
    text += "| cell | figure | since | candidate before, since | level before | since | change | runs before, since | p |\n";
    text += "|---|---|---|---|---|---|---|---|---|\n";
    for point in found {
        let [before, since] = point.levels;
        let _ = writeln!(
            text,
            "| {} | {} | {} | {}, {} | {before:.4} | {since:.4} | {:+.1} % | {}, {} | {:.1e} |",
            inline(&point.cell),
            inline(&point.figure),
            inline(&point.since),
            inline(&point.candidates[0]),
            inline(&point.candidates[1]),
            (since / before - 1.0) * 100.0,
            point.nights[0],
            point.nights[1],
            point.p
        );
    }
    text
}

/// One run's figure.
#[derive(Debug, Clone, Copy)]
struct Night<'a> {
    started: &'a str,
    candidate: &'a str,
    level: f64,
}

fn split(cell: &str, figure: &str, nights: &[Night<'_>], found: &mut Vec<ChangePoint>) {
    let levels: Vec<f64> = nights.iter().map(|night| night.level).collect();
    let Some((at, p)) = pettitt(&levels).filter(|(_, p)| *p < ADVISED_P) else { return };
    let (before, since) = nights.split_at(at);
    let middles = [median(&levels[..at]), median(&levels[at..])];
    split(cell, figure, before, found);
    if (middles[1] / middles[0] - 1.0).abs() >= LEAST_CHANGE {
        found.push(ChangePoint {
            cell: cell.to_owned(),
            figure: figure.to_owned(),
            since: since[0].started.to_owned(),
            candidates: [before[at - 1].candidate, since[0].candidate].map(str::to_owned),
            levels: middles,
            nights: [before.len(), since.len()],
            p,
        });
    }
    split(cell, figure, since, found);
}

#[cfg(test)]
mod tests {
    use super::*;

    fn nights(cpu: &str, levels: impl IntoIterator<Item = f64>) -> Vec<Value> {
        let line = |(night, level): (usize, f64)| {
            json!({
                "started": format!("2026-02-{:02}T01:00:00Z", night + 1), "matrix": "m", "cell": "a/speed/cpu",
                "candidate": if night < 8 { "old" } else { "new" }, "machine": { "cpu": cpu },
                "figures": { "decode": { "candidate": level } },
            })
        };
        levels.into_iter().enumerate().map(line).collect()
    }

    /// Eight nights at the one level and twelve at the other, a little uneven.
    fn step(from: f64, to: f64) -> impl Iterator<Item = f64> {
        (0..20).map(move |i| {
            let level = if i < 8 { from } else { to };
            level * (1.0 + 0.001 * f64::from((i * 7) % 5))
        })
    }

    #[test]
    fn a_step_is_found_on_its_night() {
        let found = change_points(&nights("x", step(100.0, 90.0)));
        assert_eq!(found.len(), 1, "{found:?}");
        assert_eq!((found[0].since.as_str(), found[0].nights), ("2026-02-09T01:00:00Z", [8, 12]));
        assert_eq!(found[0].candidates, ["old", "new"]);
        let text = advice(&nights("x", step(100.0, 90.0)));
        assert!(text.contains("Advisory") && text.contains("| -10.0 % | 8, 12 |"), "{text}");
    }

    #[test]
    fn neither_noise_nor_a_small_step_nor_another_machine_is_a_change() {
        assert!(change_points(&nights("x", step(100.0, 100.0))).is_empty());
        assert!(change_points(&nights("x", step(100.0, 99.0))).is_empty());
        assert!(change_points(&nights("x", [1.0, 2.0])).is_empty());
        let mut moved = nights("x", step(100.0, 100.0));
        moved.truncate(8);
        moved.extend(nights("y", step(90.0, 90.0)).split_off(8));
        assert!(change_points(&moved).is_empty());
        assert!(advice(&moved).contains("None"));
    }

    #[test]
    fn lines_come_back_in_the_order_of_their_runs() {
        let folder = tempfile::tempdir().unwrap();
        assert!(read(folder.path()).unwrap().is_empty());
        let below = folder.path().join(FOLDER);
        fs::create_dir(&below).unwrap();
        fs::write(below.join("a.jsonl"), "{\"started\":\"2\"}\n\n{\"started\":\"3\"}\n").unwrap();
        fs::write(below.join("b.jsonl"), "{\"started\":\"1\"}\n").unwrap();
        let order: Vec<_> = read(folder.path()).unwrap().iter().map(|l| l["started"].clone()).collect();
        assert_eq!(order, ["1", "2", "3"]);
        fs::write(below.join("b.jsonl"), "{").unwrap();
        assert!(read(folder.path()).unwrap_err().to_string().contains("b.jsonl"));
    }
}
