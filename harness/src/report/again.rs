//! Judging a finished run again from what was seen: with the same thresholds it says the same, byte for byte; with others
//! it says what they would have said.

use super::{Report, ReportInput};
use crate::{
    config::spec::Thresholds,
    judge,
    verdict::{self, CellRun, PlannedCell},
};

/// The report that a run would have had with these thresholds; `cells` are those of its observations file.
pub fn judge_again(report: &Report, cells: Vec<PlannedCell>, thresholds: &Thresholds) -> Report {
    let cells: Vec<PlannedCell> = cells
        .into_iter()
        .map(|planned| match planned.run {
            CellRun::Ran { seen, .. } => {
                let judgement = Box::new(judge::judge_cell(&planned.cell, &seen, thresholds));
                PlannedCell { cell: planned.cell, run: CellRun::Ran { seen, judgement } }
            }
            _ => planned,
        })
        .collect();
    let input = ReportInput {
        generated_by: report.generated_by.clone(),
        command: report.command.clone(),
        matrix: report.matrix.clone(),
        candidate: report.candidate.clone(),
        baseline: report.baseline.clone(),
        reference: report.reference.clone(),
        builds: report.builds.clone(),
        thresholds: thresholds.clone(),
        environment: report.environment.clone(),
        started: report.started.clone(),
        finished: report.finished.clone(),
    };
    Report::new(input, &cells, &verdict::decide(&cells))
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;
    use crate::{
        judge::{
            judge_cell,
            toy::{Fault, greedy_cell, logits_cell, seen, task_cell, thresholds},
        },
        matrix::{Again, Measured, observation::row_digests},
        report::{ReportError, observations_of, read, write},
        verdict::Verdict,
    };

    fn finished(candidate: Fault) -> (tempfile::TempDir, Report) {
        let cells: Vec<PlannedCell> =
            [logits_cell("qwen3"), greedy_cell("qwen3"), task_cell("smollm2", "capital")]
                .into_iter()
                .map(|cell| {
                    let mut seen = seen(&cell, Some(candidate), Some(Fault::NoHistory), Some(Fault::None));
                    if let Some(Measured::Logits { scored, again, .. }) =
                        &mut seen.candidate.as_mut().unwrap().measured
                    {
                        let row_digests = row_digests(scored);
                        again.push(Again { row_digests, held_bytes: Some(1), peak_bytes: None });
                    }
                    let judgement = Box::new(judge_cell(&cell, &seen, &thresholds()));
                    PlannedCell { cell, run: CellRun::Ran { seen: Box::new(seen), judgement } }
                })
                .collect();
        let input = ReportInput {
            generated_by: "xtask 0".into(),
            command: "cargo xtask gate".into(),
            matrix: "smoke".into(),
            candidate: "patched".into(),
            baseline: "published".into(),
            reference: "mlx-lm".into(),
            builds: BTreeMap::new(),
            thresholds: thresholds(),
            environment: BTreeMap::new(),
            started: "2026-01-01T00:00:00Z".into(),
            finished: "2026-01-01T00:01:00Z".into(),
        };
        let folder = tempfile::tempdir().unwrap();
        let report = Report::new(input, &cells, &verdict::decide(&cells));
        write(folder.path(), &report, &cells).unwrap();
        (folder, report)
    }

    #[test]
    fn the_same_thresholds_say_the_same_byte_for_byte() {
        for fault in [Fault::None, Fault::Rounding, Fault::NoHistory, Fault::OffByOne] {
            let (folder, _) = finished(fault);
            let report = read(&folder.path().join("report.json")).unwrap();
            let cells = observations_of(&report, folder.path()).unwrap();
            let again = judge_again(&report, cells, &report.thresholds);
            let recorded = std::fs::read_to_string(folder.path().join("report.json")).unwrap();
            assert_eq!(again.to_json(), recorded, "{fault:?}");
        }
    }

    #[test]
    fn other_thresholds_may_say_something_else() {
        let (folder, report) = finished(Fault::Rounding);
        assert_eq!(report.verdict, Verdict::Pass);
        let cells = observations_of(&report, folder.path()).unwrap();
        let strict = Thresholds { max_logit_gap: 0.0, ..report.thresholds.clone() };
        let again = judge_again(&report, cells, &strict);
        assert_eq!((again.verdict, again.thresholds), (Verdict::Fail, strict));
    }

    #[test]
    fn observations_of_fewer_more_or_other_cells_are_refused() {
        let (folder, report) = finished(Fault::None);
        let cells = observations_of(&report, folder.path()).unwrap();
        let twice = [cells.clone(), cells.clone()].concat();
        let turned = cells.iter().rev().cloned().collect();
        for (other, why) in [
            (cells[..1].to_vec(), "1 cells, and the report has 3"),
            (twice, "6 cells, and the report has 3"),
            (turned, "smollm2/source/0/capital/cpu stands where the report has qwen3"),
        ] {
            write(folder.path(), &report, &other).unwrap();
            let error = observations_of(&report, folder.path()).unwrap_err();
            assert!(
                matches!(&error, ReportError::Foreign { why: told, .. } if told.starts_with(why)),
                "{error}"
            );
        }
    }
}
