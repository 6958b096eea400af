//! `summary.md` of a finished rebase, from its record alone: what became of every patch, what a person has to look at,
//! and how each change differs from what it was.

use std::fmt::Write as _;

use super::markdown::{fenced, inline};
use crate::rebase::{
    meaning::{MeaningCode, MeaningFinding, Weight},
    outcome::PatchOutcome,
    record::{Proof, RunPatch, RunRecord},
    sync::{CulpritEntry, NamedCommit},
    text::counted,
};

/// The most lines of one patch's difference that are shown; `sync.json` has them all.
const SHOWN: usize = 60;

/// Renders the record for people.
pub fn rebase_summary(record: &RunRecord) -> String {
    let mut out = String::new();
    let (base, onto) = (place(&record.base), place(&record.onto));
    line(&mut out, &format!("# {} onto {onto}\n", inline(&record.name)));
    line(&mut out, &format!("Before on {base}. Result: `{}`, {}.\n", record.head, inline(&record.branch)));
    if record.open_findings > 0 {
        line(
            &mut out,
            &format!(
                "**{} to look at: nothing was exported, and nothing may be pushed before somebody has looked.**\n",
                counted(record.open_findings, "change of meaning", "changes of meaning")
            ),
        );
    }
    line(&mut out, "| # | patch | became | commit | |\n|---:|---|---|---|---|");
    for patch in &record.patches {
        let commit =
            patch.new_commit.map_or_else(|| "–".to_owned(), |commit| format!("`{}`", commit.short()));
        let number = patch.forecast.number;
        let subject = inline(&patch.forecast.subject);
        line(
            &mut out,
            &format!("| {number} | {subject} | {} | {commit} | {} |", word(patch.outcome), remark(patch)),
        );
    }
    for path in &record.stale_generated {
        line(&mut out, &format!("\n- Generated file {} is stale.", inline(path)));
    }
    exported(&mut out, record);
    for patch in
        record.patches.iter().filter(|patch| patch.difference.is_some() || !patch.findings.is_empty())
    {
        line(&mut out, &format!("\n## {} {}\n", patch.forecast.number, inline(&patch.forecast.subject)));
        for finding in &patch.findings {
            line(&mut out, &format!("- {}", finding_text(finding)));
            if !finding.lines.is_empty() {
                out.push('\n');
                out.push_str(&fenced(&finding.lines.join("\n")));
            }
        }
        if let Some(difference) = &patch.difference {
            line(&mut out, "The old change against the new one:\n");
            let lines: Vec<&str> = difference.lines().collect();
            let mut shown = lines.iter().take(SHOWN).copied().collect::<Vec<_>>().join("\n");
            if lines.len() > SHOWN {
                shown += &format!("\n… {} more lines in sync.json", lines.len() - SHOWN);
            }
            out.push_str(&fenced(&shown));
        }
    }
    out
}

/// What a finding says, in one line.
pub fn finding_text(finding: &MeaningFinding) -> String {
    let what = match finding.code {
        MeaningCode::PathDropped => "no longer touches",
        MeaningCode::PathAdded => "now touches",
        MeaningCode::DeletesUpstreamLines => "deletes upstream's lines in",
        MeaningCode::AddedLinesMissing => "lost lines that it added to",
        MeaningCode::AddsOtherLines => "adds lines that it did not add before to",
        MeaningCode::PartlyUpstream => "is partly upstream's now in",
    };
    let look = if finding.weight == Weight::Look { "LOOK: " } else { "" };
    let count = if finding.count > 0 {
        format!(" ({})", counted(finding.count, "line", "lines"))
    } else {
        String::new()
    };
    let upstream =
        finding.upstream.as_ref().map_or(String::new(), |commit| format!(", from {}", named(commit)));
    format!("{look}{what} {}{count}{upstream}", inline(&finding.path))
}

/// A word for what was done with a patch.
pub fn word(outcome: PatchOutcome) -> &'static str {
    match outcome {
        PatchOutcome::Applied => "applied",
        PatchOutcome::Merged => "merged",
        PatchOutcome::Regenerated => "regenerated",
        PatchOutcome::Replayed => "replayed",
        PatchOutcome::Resolved => "resolved",
        PatchOutcome::Absorbed => "absorbed",
        PatchOutcome::Skipped => "skipped",
    }
}

fn remark(patch: &RunPatch) -> String {
    let mut remarks = Vec::new();
    match &patch.proof {
        Some(Proof::PatchId { commit }) => {
            remarks.push(format!("the same change is upstream: {}", named(commit)))
        }
        Some(Proof::Contained { lines, commits }) => {
            let by: Vec<String> = commits.iter().map(named).collect();
            let by = if by.is_empty() { String::new() } else { format!(", by {}", by.join(", ")) };
            remarks.push(format!("all {} that it adds are upstream{by}", counted(*lines, "line", "lines")));
        }
        Some(Proof::Resolution) => {
            remarks.push("its conflicts were resolved to what upstream has".to_owned())
        }
        None => {}
    }
    for replayed in &patch.replayed {
        let missing = match replayed.missing.len() {
            0 => String::new(),
            missing => format!(
                " ({} of the patch are not in the result)",
                counted(missing, "added line", "added lines")
            ),
        };
        remarks.push(format!(
            "{} replayed from resolutions/{}; look at it{missing}",
            inline(&replayed.path),
            inline(&replayed.resolution)
        ));
    }
    if !patch.resolved.is_empty() {
        remarks.push(inline(&patch.resolved.join(", ")));
    }
    if !patch.regenerated.is_empty() {
        remarks.push(format!("made anew: {}", inline(&patch.regenerated.join(", "))));
    }
    remarks.join("; ")
}

fn exported(out: &mut String, record: &RunRecord) {
    let Some(exported) = &record.exported else { return };
    line(out, &format!("\n## {}\n", inline(&exported.folder.display().to_string())));
    for (what, names) in
        [("written", &exported.written), ("removed", &exported.removed), ("unchanged", &exported.unchanged)]
    {
        if !names.is_empty() {
            line(out, &format!("- {what}: {}", inline(&names.join(", "))));
        }
    }
    for note in &exported.notes {
        line(out, &format!("- {}", inline(note)));
    }
}

fn named(commit: &CulpritEntry) -> String {
    format!("`{}` {}", commit.commit.short(), inline(&commit.subject))
}

fn place(commit: &NamedCommit) -> String {
    match &commit.tag {
        Some(tag) => format!("{} (`{}`)", inline(tag), commit.commit.short()),
        None => format!("`{}`", commit.commit.short()),
    }
}

fn line(out: &mut String, text: &str) {
    writeln!(out, "{}", text.trim_end_matches(' ')).expect("text grows");
}
