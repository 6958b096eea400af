//! `summary.md`, from the record alone: first what it means for the pin, then what is broken and how it looks, then
//! every cell, then what it was measured with.

use std::fmt::Write as _;

use serde_json::Value;

use super::{
    CellReport, Report,
    markdown::{inline, sentence, side_by_side},
};
use crate::{
    engine::protocol::Phase,
    judge::{Against, Finding, Severity, Subject, role_name},
    matrix::{Measured, Probe, Role},
    verdict::{CellStatus, Change, Verdict},
};

/// Renders the record for people.
pub fn summary(report: &Report) -> String {
    let mut out = String::new();
    line(&mut out, &format!("# Gate: {}\n", verdict_word(report.verdict)));
    for sentence_ in &report.headline {
        line(&mut out, &format!("- {}", capitalized(&sentence(sentence_))));
    }
    line(
        &mut out,
        &format!(
            "\nCandidate {}, baseline {}, reference {}, matrix {}.\n",
            code(&report.candidate),
            code(&report.baseline),
            code(&report.reference),
            code(&report.matrix)
        ),
    );
    section(&mut out, report, Subject::Baseline, "The baseline is broken", |c| {
        report.candidate != report.baseline && has_error(c, Subject::Baseline)
    });
    section(&mut out, report, Subject::Candidate, "Failing cells", |c| c.status == CellStatus::Fail);
    open_cells(&mut out, report);
    warnings(&mut out, report);
    all_cells(&mut out, report);
    answers(&mut out, report);
    super::throughput::section(&mut out, report);
    super::long::section(&mut out, &report.long);
    measured_with(&mut out, report);
    out
}

/// A verdict as every report spells it.
pub(super) fn verdict_word(verdict: Verdict) -> &'static str {
    match verdict {
        Verdict::Pass => "PASS",
        Verdict::Fail => "FAIL",
        Verdict::Inconclusive => "INCONCLUSIVE",
    }
}

fn line(out: &mut String, text: &str) {
    out.push_str(text);
    out.push('\n');
}

fn code(name: &str) -> String {
    sentence(&format!("`{name}`"))
}

fn capitalized(text: &str) -> String {
    let mut characters = text.chars();
    characters.next().map_or_else(String::new, |c| c.to_uppercase().chain(characters).collect())
}

fn has_error(cell: &CellReport, subject: Subject) -> bool {
    cell.findings.iter().any(|f| f.subject == subject && f.severity == Severity::Error)
}

/// A section for each subject that fails: its cells, and how each looks.
fn section(
    out: &mut String,
    report: &Report,
    subject: Subject,
    title: &str,
    wanted: impl Fn(&CellReport) -> bool,
) {
    let cells: Vec<_> = report.cells.iter().filter(|c| wanted(c)).collect();
    if cells.is_empty() {
        return;
    }
    line(out, &format!("## {title}\n"));
    for cell in cells {
        line(out, &format!("### {}\n", inline(cell.id.as_str())));
        let told: Vec<_> = cell
            .findings
            .iter()
            .filter(|f| f.subject == subject && f.severity >= Severity::Warning)
            .collect();
        if told.is_empty() {
            line(out, &format!("{}.\n", capitalized(&sentence(&cell.reason))));
        }
        for f in told {
            finding(out, report, f);
        }
        // Where nobody decides, the difference itself is all there is to see.
        for f in
            cell.findings.iter().filter(|f| f.subject == Subject::Harness && subject == Subject::Candidate)
        {
            finding(out, report, f);
        }
    }
}

fn finding(out: &mut String, report: &Report, f: &Finding) {
    line(out, &format!("**{}**: {}.\n", inline(&f.code), capitalized(&sentence(&f.message))));
    let e = &f.evidence;
    if let Some(cause) = e.get("likely_cause") {
        let of = |key: &str| inline(cause[key].as_str().unwrap_or_default());
        line(out, &format!("Likely cause: {}, as diagnosed at {}.\n", of("diagnosis"), of("seen_at")));
    }
    let (right, engine) = sides(report, f);
    if let (Some(r), Some(c)) = (e["texts"]["right"].as_str(), e["texts"]["engine"].as_str()) {
        line(out, &side_by_side((&right, r), (&engine, c)));
    }
    for (label, key) in [("ids around it", "ids"), ("most likely ids there", "top")] {
        let (r, c) = (&e[format!("right_{key}")], &e[format!("engine_{key}")]);
        if r.is_array() || c.is_array() {
            line(out, &format!("- {label}: {right} {}; {engine} {}", list(r), list(c)));
        }
    }
    if let Some(last) = e["exit"]["last_lines"].as_array().filter(|l| !l.is_empty()) {
        let text: Vec<_> = last.iter().filter_map(Value::as_str).collect();
        line(out, &super::markdown::fenced(&text.join("\n")));
    }
    if let Some(command) = e["command"].as_str() {
        line(out, &super::markdown::fenced(command));
    }
    line(out, "");
}

/// What the two sides of a comparison are called.
fn sides(report: &Report, f: &Finding) -> (String, String) {
    let peer = f.evidence["against"].as_str().or(f.evidence["peer"].as_str()).unwrap_or("reference");
    let name = |role: &str| match role {
        "candidate" => format!("candidate ({})", report.candidate),
        "baseline" => format!("baseline ({})", report.baseline),
        _ => format!("reference ({})", report.reference),
    };
    let own = match f.subject {
        Subject::Baseline => "baseline",
        Subject::Reference => "reference",
        Subject::Candidate | Subject::Harness => "candidate",
    };
    (inline(&name(peer)), inline(&name(own)))
}

/// `12, 7` for ids, `12 (-0.31), 7 (-2.10)` for likely ids.
fn list(value: &Value) -> String {
    let Some(items) = value.as_array().filter(|a| !a.is_empty()) else { return "none".to_owned() };
    let item = |v: &Value| match (v.get("id"), v.get("logprob").and_then(Value::as_f64)) {
        (Some(id), Some(logprob)) => format!("{id} ({logprob:.2})"),
        _ => v.to_string(),
    };
    items.iter().map(item).collect::<Vec<_>>().join(", ")
}

fn open_cells(out: &mut String, report: &Report) {
    let open: Vec<_> = report
        .cells
        .iter()
        .filter(|c| matches!(c.status, CellStatus::Inconclusive | CellStatus::Skipped))
        .collect();
    if open.is_empty() {
        return;
    }
    line(out, "## Not decided\n");
    for cell in open {
        let status = status_word(cell.status);
        line(out, &format!("- {} ({status}): {}", inline(cell.id.as_str()), sentence(&cell.reason)));
        for f in cell.findings.iter().filter(|f| f.severity >= Severity::Warning) {
            line(out, &format!("  - {}: {}", inline(&f.code), sentence(&f.message)));
        }
    }
    line(out, "");
}

fn warnings(out: &mut String, report: &Report) {
    let mut lines = Vec::new();
    for cell in report.cells.iter().filter(|c| matches!(c.status, CellStatus::Pass | CellStatus::ModelWeak)) {
        for f in cell.findings.iter().filter(|f| f.severity == Severity::Warning) {
            lines.push(format!(
                "- {}, {}: {}",
                inline(cell.id.as_str()),
                inline(&f.code),
                sentence(&f.message)
            ));
        }
    }
    if !lines.is_empty() {
        line(out, "## Warnings\n");
        line(out, &lines.join("\n"));
        line(out, "");
    }
}

fn all_cells(out: &mut String, report: &Report) {
    let counts: Vec<_> = report.counts.iter().map(|(s, n)| format!("{n} {}", status_word(*s))).collect();
    line(
        out,
        &format!("## All cells\n\n{}.\n", if counts.is_empty() { "None".into() } else { counts.join(", ") }),
    );
    if report.cells.is_empty() {
        return;
    }
    line(out, "| cell | status | beside the baseline | candidate, measured | baseline, measured |");
    line(out, "|---|---|---|---|---|");
    let ran = |c: &&CellReport| !matches!(c.status, CellStatus::NotApplicable | CellStatus::Deselected);
    for cell in report.cells.iter().filter(ran) {
        line(
            out,
            &format!(
                "| {} | {} | {} | {} | {} |",
                inline(cell.id.as_str()),
                status_word(cell.status),
                change_word(cell.change),
                figures(cell, Role::Candidate),
                figures(cell, Role::Baseline)
            ),
        );
    }
    line(out, "");
    for status in [CellStatus::NotApplicable, CellStatus::Deselected] {
        let cells: Vec<_> = report.cells.iter().filter(|c| c.status == status).collect();
        if let Some(first) = cells.first() {
            let ids: Vec<_> = cells.iter().map(|c| inline(c.id.as_str())).collect();
            let reason = sentence(&first.reason);
            line(out, &format!("{} ({reason}): {}.\n", capitalized(status_word(status)), ids.join(", ")));
        }
    }
}

/// What each engine answered to the prompts of tasks: once where all say the same.
fn answers(out: &mut String, report: &Report) {
    let cells: Vec<_> = report.cells.iter().filter(|c| !c.tasks.is_empty()).collect();
    if cells.is_empty() {
        return;
    }
    line(out, "## Answers\n");
    line(out, "| model | prompt | answer |");
    line(out, "|---|---|---|");
    for cell in cells {
        let Probe::Task { prompt, .. } = &cell.probe_spec else { continue };
        let mut said: Vec<(&str, Vec<&str>)> = Vec::new();
        for (role, task) in &cell.tasks {
            match said.iter_mut().find(|(answer, _)| *answer == task.answer) {
                Some((_, roles)) => roles.push(role_name(*role)),
                None => said.push((&task.answer, vec![role_name(*role)])),
            }
        }
        let said: Vec<_> =
            said.iter().map(|(answer, roles)| format!("{}: {}", roles.join(", "), inline(answer))).collect();
        line(out, &format!("| {} | {} | {} |", inline(&cell.model), inline(prompt), said.join("; ")));
    }
    line(out, "");
}

/// The figures of a role against whatever it was compared with, short.
fn figures(cell: &CellReport, role: Role) -> String {
    let mut parts = Vec::new();
    for c in cell.logits.iter().filter(|c| c.of == role && c.against != Against::ReferenceWithoutHistory) {
        for (name, phase) in [("prefill", Phase::Prefill), ("decode", Phase::Decode)] {
            if let Some(m) = c.of_phase(phase) {
                parts.push(format!("{name} KL {:.1e}", m.mean_kl));
            }
        }
    }
    let seen = cell.observations.as_ref().and_then(|seen| seen.of(role)).and_then(|o| o.measured.as_ref());
    match seen {
        Some(Measured::Op { done }) => parts.push(format!("off by {:.1e}", done.max_error)),
        Some(Measured::Perplexity { points, .. }) if !points.is_empty() => {
            let mean = -points.iter().map(|point| point.1).sum::<f64>() / points.len() as f64;
            parts.push(format!("perplexity {:.2}", mean.exp()));
        }
        _ => {}
    }
    for c in cell.greedy.iter().filter(|c| c.of == role) {
        parts.push(format!("{} of {} ids", c.agreed, c.right_len));
    }
    if let Some(task) = cell.tasks.get(&role) {
        parts.push(if task.passed() { "task done".to_owned() } else { "task failed".to_owned() });
    }
    if let Some(speed) = &cell.throughput {
        for m in speed.metrics.iter().take(2) {
            let arm = if role == Role::Candidate { m.candidate } else { m.baseline };
            parts.push(format!(
                "{} {:.1}",
                m.metric.name().replace(", tok/s", ""),
                m.metric.shown(arm.median)
            ));
        }
        parts.push("tok/s".to_owned());
    }
    if parts.is_empty() {
        let errors: Vec<_> = cell
            .findings
            .iter()
            .filter(|f| f.subject == Subject::from(role) && f.severity == Severity::Error)
            .map(|f| inline(&f.code))
            .collect();
        return if errors.is_empty() { "—".to_owned() } else { errors.join(", ") };
    }
    parts.join(", ")
}

fn measured_with(out: &mut String, report: &Report) {
    line(out, "## Measured with\n");
    line(out, "| engine | role | provenance digest |");
    line(out, "|---|---|---|");
    for (name, provenance) in &report.builds {
        let roles: Vec<_> = [
            (Role::Candidate, &report.candidate),
            (Role::Baseline, &report.baseline),
            (Role::Reference, &report.reference),
        ]
        .iter()
        .filter(|(_, engine)| *engine == name)
        .map(|(role, _)| role_name(*role))
        .collect();
        let roles = if roles.is_empty() { "—".to_owned() } else { roles.join(", ") };
        line(out, &format!("| {} | {roles} | {} |", inline(name), code(&provenance.digest)));
    }
    line(out, "");
    for (key, value) in &report.environment {
        let text = value.as_str().map_or_else(|| value.to_string(), str::to_owned);
        line(out, &format!("- {}: {}", inline(key), inline(&text)));
    }
    let t = &report.thresholds;
    line(
        out,
        &format!(
            "- thresholds: mean KL {}, 99th-percentile KL {}, top-1 agreement {} above a margin of {} nats, relative L2 {}, \
             cosine {}, one logit {} standard deviations",
            t.mean_kl, t.p99_kl, t.top1_agreement, t.margin, t.relative_l2, t.cosine, t.max_logit_gap
        ),
    );
    line(out, &format!("- started {}, finished {}", inline(&report.started), inline(&report.finished)));
    line(out, &format!("- by {}", inline(&report.generated_by)));
    let _ = write!(out, "\n{}", super::markdown::fenced(&report.command));
}

fn status_word(status: CellStatus) -> &'static str {
    match status {
        CellStatus::Pass => "pass",
        CellStatus::Fail => "**fail**",
        CellStatus::Inconclusive => "inconclusive",
        CellStatus::ModelWeak => "model weak",
        CellStatus::NotApplicable => "not applicable",
        CellStatus::Deselected => "deselected",
        CellStatus::Skipped => "skipped",
    }
}

fn change_word(change: Change) -> &'static str {
    match change {
        Change::None => "same",
        Change::Regression => "**regression**",
        Change::Fix => "fix",
        Change::BothBroken => "both broken",
        Change::Differs => "differs",
        Change::Unknown => "—",
    }
}
