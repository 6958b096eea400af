//! The tables of throughput cells in `summary.md`: every figure of both builds with its uncertainty.

use std::fmt::Write as _;

use super::{
    Report,
    markdown::{inline, sentence},
};
use crate::judge::throughput::{
    EnergyOfRuns, Metric, MetricComparison,
    rule::{Limit, Look, Outcome},
};

/// A table a throughput cell; nothing where there is none.
pub(super) fn section(out: &mut String, report: &Report) {
    let cells: Vec<_> =
        report.cells.iter().filter_map(|cell| Some((cell, cell.throughput.as_ref()?))).collect();
    if cells.is_empty() {
        return;
    }
    let mut text = String::from("## Throughput\n\n");
    text += &rates(report);
    text += "Ratios are the candidate's goodness over the baseline's: below 1 is slower, or hungrier.\n\n";
    for (cell, judged) in cells {
        let _ =
            writeln!(text, "### {}\n\n{}.\n", inline(cell.id.as_str()), capital(&sentence(&judged.reason)));
        text += "| figure | candidate | baseline | reference | ratio | CV | runs | p | smallest loss visible | limit | says |\n";
        text += "|---|---|---|---|---|---|---|---|---|---|---|\n";
        for m in &judged.metrics {
            text += &row(m);
        }
        let growth = judged.growth_bytes.map(|bytes| bytes / 1024.0);
        let _ = writeln!(
            text,
            "\nHeld memory grows by {:.1} KiB a request in the candidate, {:.1} KiB in the baseline; {} blocks of runs did \
             not count.\n",
            growth[0], growth[1], judged.discarded_blocks
        );
        let _ = match &judged.energy {
            EnergyOfRuns::Joules { candidate, baseline } => writeln!(
                text,
                "A run costs {candidate:.1} J with the candidate and {baseline:.1} J with the baseline, by the processors' \
                 counters; told only.\n"
            ),
            EnergyOfRuns::Unknown { reason } => writeln!(text, "Energy is unknown: {}.\n", inline(reason)),
        };
    }
    out.push_str(&text);
}

/// What a user asks first: the medians of both rates in all engines, and how the candidate stands beside the reference.
fn rates(report: &Report) -> String {
    let [candidate, baseline, reference] =
        [&report.candidate, &report.baseline, &report.reference].map(|name| inline(name));
    let mut text = format!(
        "| cell | tok/s | {candidate} | {baseline} | {reference} | {candidate} over {reference} |\n|---|---|---|---|---|---|\n"
    );
    for cell in &report.cells {
        let rates = cell.throughput.iter().flat_map(|judged| &judged.metrics);
        for m in rates.filter(|m| matches!(m.metric, Metric::Prefill | Metric::Decode)) {
            let (rate, beside) = m.reference.map_or_else(
                || ("–".to_owned(), "–".to_owned()),
                |arm| (format!("{:.1}", arm.median), format!("{:.2}", m.candidate.median / arm.median)),
            );
            let _ = writeln!(
                text,
                "| {} | {} | {:.1} | {:.1} | {rate} | {beside} |",
                inline(cell.id.as_str()),
                m.metric.name().trim_end_matches(", tok/s"),
                m.candidate.median,
                m.baseline.median
            );
        }
    }
    text.push('\n');
    text
}

fn row(m: &MetricComparison) -> String {
    let shown = |value: f64| format!("{:.2}", m.metric.shown(value));
    let percent = |share: f64| format!("{:.1} %", share * 100.0);
    let told = |look: &Look, limit: &Limit| {
        let upper = look.upper.map_or_else(|| "∞".to_owned(), |upper| format!("{upper:.3}"));
        format!(
            "{:.3} ({:.3} to {upper}) | {} / {} | {} | {:.1e} | {} | {}",
            look.ratio,
            look.lower,
            percent(m.candidate.cv),
            percent(m.baseline.cv),
            m.candidate.runs,
            m.p.unwrap_or(1.0),
            percent(look.detectable),
            percent(limit.max_regression)
        )
    };
    let middle = match (m.confirmation.as_ref().or(m.first.as_ref()), &m.limit) {
        (Some(look), Some(limit)) => told(look, limit),
        _ => format!(
            "{:.3} | {} / {} | {} | – | – | –",
            m.candidate.median / m.baseline.median,
            percent(m.candidate.cv),
            percent(m.baseline.cv),
            m.candidate.runs
        )
        .replace("NaN", "–"),
    };
    let says = match m.outcome {
        Some(Outcome::Pass) => "sound",
        Some(Outcome::Worse) => "**worse**",
        Some(Outcome::Inconclusive) => "open",
        None => "told only",
    };
    let reference = m.reference.map_or_else(|| "–".to_owned(), |arm| shown(arm.median));
    format!(
        "| {} | {} | {} | {reference} | {middle} | {says} |\n",
        m.metric.name(),
        shown(m.candidate.median),
        shown(m.baseline.median)
    )
}

fn capital(text: &str) -> String {
    let mut characters = text.chars();
    characters.next().map_or_else(String::new, |c| c.to_uppercase().chain(characters).collect())
}

#[cfg(test)]
mod tests {
    use crate::{
        judge::{
            CellObservations, judge_cell,
            throughput::tests::{SOUND, cell_of, session, spec},
            toy::{Fault, greedy_cell, seen, thresholds},
        },
        matrix::{Role, throughput::ThroughputRuns},
        report::{Report, summary::summary, tests::input},
        verdict::{CellRun, PlannedCell, decide},
    };

    #[test]
    fn rates_stand_side_by_side_with_the_reference_where_it_ran() {
        let planned = |with_reference: usize| {
            let first = session(SOUND, SOUND, 8, 0.0);
            let mut reference: Vec<_> = first.of(Role::Baseline).take(with_reference).cloned().collect();
            for run in &mut reference {
                run.requests.iter_mut().for_each(|request| request.token_times_s = vec![0.002; 3]);
            }
            let runs = ThroughputRuns { sessions: vec![first], reference };
            let sound = Some(Fault::None);
            let base = seen(&greedy_cell("m"), sound, sound, sound);
            let seen = CellObservations { throughput: Some(runs), ..base };
            let cell = cell_of("m", &spec());
            let judgement = Box::new(judge_cell(&cell, &seen, &thresholds()));
            let cells = [PlannedCell { cell, run: CellRun::Ran { seen: Box::new(seen), judgement } }];
            summary(&Report::new(input("patched"), &cells, &decide(&cells)))
        };
        let told = planned(2);
        let table = told.split("## Throughput").nth(1).unwrap().split("Ratios").next().unwrap();
        insta::assert_snapshot!(table.trim(), @"
        | cell | tok/s | patched | published | mlx-lm | patched over mlx-lm |
        |---|---|---|---|---|---|
        | m/source/8/speed/cpu | decode | 1000.0 | 1000.0 | 500.0 | 2.00 |
        | m/source/8/speed/cpu | prefill | 800.0 | 800.0 | 800.0 | 1.00 |
        ");
        assert!(planned(0).contains("| m/source/8/speed/cpu | decode | 1000.0 | 1000.0 | – | – |"));
    }
}
