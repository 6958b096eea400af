//! Two finished runs side by side: for a look at what moved, never for a verdict, since two runs at two times saw two
//! conditions. Runs of different machines or builds of different profiles are not put side by side at all.

use std::fmt::Write as _;

use serde_json::Value;

use super::{CellReport, Report, markdown::inline, summary::verdict_word};
use crate::{
    judge::throughput::{
        METRICS,
        stats::{mann_whitney_p_less, median, two_sample_shift},
    },
    matrix::{Role, throughput::RunFigures},
};

/// Facts of a machine that a figure depends on. Its memory may differ by what a kernel keeps for itself.
pub(super) const MACHINE: [&str; 5] = ["os", "arch", "cpu", "threads", "gpus"];

/// Memories that differ by less than this share are equal.
const MEMORY_SHARE: f64 = 0.05;

/// Why the figures of two runs must not be put side by side; empty where they may.
pub fn incomparable(one: &Report, other: &Report) -> Vec<String> {
    let mut reasons = Vec::new();
    let fact = |report: &Report, name: &str| report.environment.get(name).cloned().unwrap_or(Value::Null);
    for name in MACHINE {
        let (a, b) = (fact(one, name), fact(other, name));
        if a != b {
            reasons.push(format!("different machines: {name} is {a} in the one and {b} in the other"));
        }
    }
    let memory = |report: &Report| fact(report, "memory_bytes").as_f64().unwrap_or(0.0);
    let (a, b) = (memory(one), memory(other));
    if (a - b).abs() > MEMORY_SHARE * a.max(b) {
        reasons.push(format!("different machines: memory_bytes is {a} in the one and {b} in the other"));
    }
    let profile = |report: &Report| {
        let inputs = report.builds.get(&report.candidate).map(|provenance| provenance.inputs.clone());
        inputs.map_or(Value::Null, |inputs| inputs["profile"].clone())
    };
    let (a, b) = (profile(one), profile(other));
    if a != b {
        reasons.push(format!("different build profiles: {a} in the one and {b} in the other"));
    }
    reasons
}

/// Both runs' candidates, as Markdown: statuses that differ, then every figure of every throughput cell in both.
pub fn tables(one: &Report, other: &Report) -> String {
    let mut text = format!(
        "# {} beside {}\n\n| | first | second |\n|---|---|---|\n",
        inline(&one.candidate),
        inline(&other.candidate)
    );
    let digest = |report: &Report| {
        report
            .builds
            .get(&report.candidate)
            .map_or("–", |p| p.digest.get(..16).unwrap_or(&p.digest))
            .to_owned()
    };
    for (name, a, b) in [
        ("started", one.started.clone(), other.started.clone()),
        ("matrix", one.matrix.clone(), other.matrix.clone()),
        ("candidate", one.candidate.clone(), other.candidate.clone()),
        ("its digest", digest(one), digest(other)),
        ("baseline", one.baseline.clone(), other.baseline.clone()),
        ("verdict", verdict_word(one.verdict).to_owned(), verdict_word(other.verdict).to_owned()),
    ] {
        let _ = writeln!(text, "| {name} | {} | {} |", inline(&a), inline(&b));
    }
    let pairs: Vec<(&CellReport, &CellReport)> = one
        .cells
        .iter()
        .filter_map(|cell| Some((cell, other.cells.iter().find(|peer| peer.id == cell.id)?)))
        .collect();
    let moved: Vec<_> = pairs.iter().filter(|(a, b)| a.status != b.status).collect();
    let _ = writeln!(
        text,
        "\n{} cells in both, {} only in the first, {} only in the second; {} of a different status.",
        pairs.len(),
        one.cells.len() - pairs.len(),
        other.cells.len() - pairs.len(),
        moved.len()
    );
    if !moved.is_empty() {
        text += "\n| cell | first | second |\n|---|---|---|\n";
        for (a, b) in moved {
            let _ = writeln!(text, "| {} | {:?} | {:?} |", inline(a.id.as_str()), a.status, b.status);
        }
    }
    for (a, b) in pairs {
        speed(&mut text, a, b);
    }
    text += match (&one.started, &one.finished) == (&other.started, &other.finished) {
        true => "\nBoth are one and the same run.\n",
        false => "\nFor a look only: the runs are of two times, so that a difference may be the machine's.\n",
    };
    text
}

fn speed(text: &mut String, one: &CellReport, other: &CellReport) {
    let (a, b) = (runs(one), runs(other));
    if a.is_empty() || b.is_empty() {
        return;
    }
    let _ = writeln!(text, "\n## {}\n", inline(one.id.as_str()));
    if one.probe_spec != other.probe_spec {
        *text += "The probes differ, so the figures are not put side by side.\n";
        return;
    }
    *text += "| figure | first | second | second over first, 90 % | runs | p, two-sided |\n|---|---|---|---|---|---|\n";
    for metric in METRICS {
        let of = |runs: &[&RunFigures]| -> Vec<f64> { runs.iter().map(|run| metric.of(run)).collect() };
        let (x, y) = (of(&a), of(&b));
        let logs = |values: &[f64]| values.iter().map(|v| v.ln()).collect::<Vec<_>>();
        let shift = two_sample_shift(&logs(&y), &logs(&x), 0.05);
        let p = (2.0 * mann_whitney_p_less(&x, &y).min(mann_whitney_p_less(&y, &x))).min(1.0);
        let ratio = match shift.estimate.is_finite() {
            true => {
                format!("{:.3} ({:.3} to {:.3})", shift.estimate.exp(), shift.lower.exp(), shift.upper.exp())
            }
            false => "–".to_owned(),
        };
        let _ = writeln!(
            text,
            "| {} | {:.2} | {:.2} | {ratio} | {} / {} | {p:.1e} |",
            metric.name(),
            metric.shown(median(&x)),
            metric.shown(median(&y)),
            x.len(),
            y.len()
        );
    }
}

/// The candidate's runs of the first session: a confirmation is run only where something was red, and would weigh twice.
fn runs(cell: &CellReport) -> Vec<&RunFigures> {
    let runs = cell.observations.as_ref().and_then(|seen| seen.throughput.as_ref());
    runs.and_then(|runs| runs.sessions.first())
        .map(|session| session.of(Role::Candidate).collect())
        .unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use serde_json::json;

    use super::*;
    use crate::{
        build::Provenance,
        config::spec::Thresholds,
        report::{Schema, history},
        verdict::Verdict,
    };

    fn report(cpu: &str, memory_bytes: u64, profile: &str) -> Report {
        let provenance =
            Provenance { digest: "ab".repeat(32), inputs: json!({ "profile": profile }), log: Value::Null };
        Report {
            coverage: crate::report::Coverage::default(),
            long: crate::report::Long::default(),
            schema: Schema { name: "s".into(), version: 1 },
            generated_by: "regraft".into(),
            verdict: Verdict::Pass,
            reason: String::new(),
            headline: vec![],
            command: String::new(),
            matrix: "smoke".into(),
            candidate: "patched".into(),
            baseline: "published".into(),
            reference: "mlx-lm".into(),
            builds: [("patched".to_owned(), provenance)].into(),
            thresholds: Thresholds::default(),
            counts: BTreeMap::new(),
            cells: vec![],
            environment: [("cpu", json!(cpu)), ("memory_bytes", json!(memory_bytes))]
                .map(|(key, value)| (key.to_owned(), value))
                .into(),
            started: "2026-01-02T03:04:05Z".into(),
            finished: "2026-01-02T03:04:06Z".into(),
            observations_file: String::new(),
        }
    }

    #[test]
    fn other_machines_and_profiles_are_refused_with_every_reason() {
        let here = report("x", 1000, "release");
        assert!(incomparable(&here, &report("x", 1010, "release")).is_empty());
        insta::assert_snapshot!(incomparable(&here, &report("y", 2000, "dev")).join("\n"), @r#"
        different machines: cpu is "x" in the one and "y" in the other
        different machines: memory_bytes is 1000 in the one and 2000 in the other
        different build profiles: "release" in the one and "dev" in the other
        "#);
    }

    #[test]
    fn two_runs_stand_side_by_side() {
        let here = report("x", 1000, "release");
        let text = tables(&here, &here);
        assert!(
            text.contains("| verdict | PASS | PASS |") && text.ends_with("one and the same run.\n"),
            "{text}"
        );
        let later = Report { started: "2026-01-03T03:04:05Z".into(), ..report("x", 1000, "release") };
        assert!(tables(&here, &later).contains("the runs are of two times"));
        assert!(text.contains("| candidate | patched | patched |"), "{text}");
        assert!(
            text.contains(
                "0 cells in both, 0 only in the first, 0 only in the second; 0 of a different status"
            )
        );
    }

    #[test]
    fn a_run_without_throughput_leaves_no_history() {
        let folder = tempfile::tempdir().unwrap();
        history::append(folder.path(), &report("x", 1000, "release")).unwrap();
        assert!(!folder.path().join(history::FOLDER).exists());
    }
}
