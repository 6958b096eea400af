//! The tables of throughput cells in `summary.md`: every figure of both builds with its uncertainty.

use std::fmt::Write as _;

use super::{
    Report,
    markdown::{inline, sentence},
};
use crate::judge::throughput::{
    EnergyOfRuns, MetricComparison,
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
