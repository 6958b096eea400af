//! The report as text: a table that fits a terminal, one patch's whole case, and Markdown for a pull request. Equal
//! reports give equal bytes.

use std::fmt::Write as _;

use super::{
    recommend::{percent, shown},
    report::{
        ConditionReport, ForkReport, LandedHow, PatchReport, PatchState, Recommendation, RevertHow, Truth,
    },
};
use crate::{
    rebase::{forecast::Cause, sync::NamedCommit, text::counted},
    tools::child::printable,
};

/// The width that tables keep to, in columns.
const WIDTH: usize = 100;

/// One fork's report as a table for people.
pub fn table(fork: &ForkReport) -> String {
    let mut text = String::new();
    line(&mut text, &title(fork));
    if !fork.patches.is_empty() {
        text.push('\n');
        let rows: Vec<[String; 6]> = fork.patches.iter().map(row).collect();
        let widths = widths(&rows);
        line(&mut text, &columns(&HEADS.map(str::to_owned), &widths));
        for (patch, row) in fork.patches.iter().zip(&rows) {
            line(&mut text, &columns(row, &widths));
            line(&mut text, &format!("       {}", patch.reason));
        }
        text.push('\n');
        line(&mut text, &residue(fork));
        line(&mut text, AGE);
    }
    if let Some(frontier) = frontier(fork) {
        line(&mut text, &frontier);
    }
    for condition in &fork.retirement {
        wrapped(&mut text, "fork: ", &condition_text(condition), 2);
    }
    for unknown in &fork.unknown {
        wrapped(&mut text, "not known: ", &format!("{} ({})", unknown.what, unknown.why), 2);
    }
    for section in fork.sections.iter().filter(|section| !section.findings.is_empty()) {
        text.push('\n');
        line(&mut text, &section.title);
        for finding in &section.findings {
            wrapped(&mut text, "  ", finding, 4);
        }
    }
    text
}

/// The whole case of the patches that `query` means: a number, the begin of a commit's id, a file's name, or a part of a
/// subject. `None` when it means none.
pub fn explanation(fork: &ForkReport, query: &str) -> Option<String> {
    let meant = meant(fork, query);
    let texts: Vec<String> = meant.into_iter().map(|patch| case(fork, patch)).collect();
    (!texts.is_empty()).then(|| texts.join("\n"))
}

/// One fork's report as Markdown.
pub fn markdown(fork: &ForkReport) -> String {
    let mut text = String::new();
    let _ = writeln!(text, "## {}\n", marked(&title(fork)));
    if !fork.patches.is_empty() {
        let _ = writeln!(text, "| # | state | patch | age | size | do |\n|---:|---|---|---:|---:|---|");
        for patch in &fork.patches {
            let row = row(patch).map(|cell| marked(&cell));
            let _ = writeln!(text, "| {} |", row.join(" | "));
        }
        let _ = writeln!(text, "\n{}\n\n{AGE}", marked(&residue(fork)));
    }
    if let Some(frontier) = frontier(fork) {
        let _ = writeln!(text, "\n{}", marked(&frontier));
    }
    for condition in &fork.retirement {
        let _ = writeln!(text, "\n- {}", marked(&condition_text(condition)));
    }
    for unknown in &fork.unknown {
        let _ = writeln!(text, "\n> Not known: {} ({})", marked(&unknown.what), marked(&unknown.why));
    }
    for patch in &fork.patches {
        let PatchReport { forecast, recommendation, reason, .. } = patch;
        let (subject, word) = (marked(&forecast.subject), recommendation_word(*recommendation));
        let _ = writeln!(text, "\n### {} {subject}\n\n**{word}**: {}\n", forecast.number, marked(reason));
        for (head, facts) in facts(patch) {
            for fact in facts {
                let _ = writeln!(text, "- {head}: {}", marked(&fact));
            }
        }
    }
    for section in fork.sections.iter().filter(|section| !section.findings.is_empty()) {
        let _ = writeln!(text, "\n### {}\n", marked(&section.title));
        for finding in &section.findings {
            let _ = writeln!(text, "- {}", marked(finding));
        }
    }
    text
}

pub(super) const HEADS: [&str; 6] = ["#", "state", "patch", "age", "size", "do"];

/// What an age counts to: a report that is made again says the same.
pub(super) const AGE: &str = "age: from a patch's date to the date of the commit that it is judged against";

pub(super) fn title(fork: &ForkReport) -> String {
    let place = |commit: &Option<NamedCommit>| {
        commit.as_ref().map_or_else(|| "nothing shared".to_owned(), NamedCommit::place)
    };
    let of = fork.frontier.as_ref().map_or(0, |frontier| frontier.of);
    format!(
        "{}: {} on {}, against {}, {} later",
        fork.name,
        counted(fork.patches.len(), "patch", "patches"),
        place(&fork.base),
        place(&fork.onto),
        counted(of, "commit", "commits")
    )
}

pub(super) fn residue(fork: &ForkReport) -> String {
    let residue = fork.residue;
    let now = format!(
        "{} and {}",
        counted(residue.patches, "patch", "patches"),
        counted(residue.lines, "line", "lines")
    );
    if (residue.patches, residue.lines) == (residue.patches_left, residue.lines_left) {
        return format!("{now}; none of it can go yet");
    }
    format!(
        "{now}; {} and {} remain when all this is done",
        counted(residue.patches_left, "patch", "patches"),
        counted(residue.lines_left, "line", "lines")
    )
}

pub(super) fn frontier(fork: &ForkReport) -> Option<String> {
    let frontier = fork.frontier.as_ref()?;
    let date = frontier.date.as_deref().and_then(|date| date.get(..10)).unwrap_or_default();
    let place = match frontier.index {
        index if index == frontier.of => "upstream's newest itself".to_owned(),
        0 => "the base".to_owned(),
        index => format!("commit {index} of {}, {date}", frontier.of),
    };
    Some(format!("whole stack without a conflict up to {} ({place})", frontier.commit.short()))
}

pub(super) fn row(patch: &PatchReport) -> [String; 6] {
    let identity = &patch.identity;
    [
        patch.forecast.number.to_string(),
        state_word(patch.state).to_owned(),
        patch.forecast.subject.clone(),
        identity.age_days.map_or_else(|| "-".to_owned(), age),
        format!("+{} -{}", identity.added, identity.removed),
        recommendation_word(patch.recommendation).to_owned(),
    ]
}

/// Column widths; the subject takes what the others leave.
fn widths(rows: &[[String; 6]]) -> [usize; 6] {
    let width = |column: usize| {
        let cells = rows.iter().map(|row| printable(&row[column]).chars().count());
        cells.chain([HEADS[column].chars().count()]).max().unwrap_or_default()
    };
    let mut widths = [width(0).max(3), width(1), width(2), width(3), width(4), width(5)];
    let others: usize =
        widths.iter().enumerate().filter(|(at, _)| *at != 2).map(|(_, width)| width + 2).sum();
    widths[2] = widths[2].min(WIDTH.saturating_sub(others));
    widths
}

fn columns(cells: &[String; 6], widths: &[usize; 6]) -> String {
    let mut text = String::new();
    for (at, (cell, &width)) in cells.iter().zip(widths).enumerate() {
        let cell = shortened(&printable(cell), width);
        // Numbers stand to the right.
        let _ = match at {
            0 | 3 => write!(text, "{cell:>width$}  "),
            _ => write!(text, "{cell:<width$}  "),
        };
    }
    text
}

fn meant<'f>(fork: &'f ForkReport, query: &str) -> Vec<&'f PatchReport> {
    if let Ok(number) = query.parse::<usize>() {
        let numbered: Vec<_> = fork.patches.iter().filter(|patch| patch.forecast.number == number).collect();
        if !numbered.is_empty() {
            return numbered;
        }
    }
    let hex = query.len() >= 7 && query.bytes().all(|byte| byte.is_ascii_hexdigit());
    let folded = query.to_lowercase();
    let means = |patch: &&PatchReport| {
        let forecast = &patch.forecast;
        forecast.file.as_deref() == Some(query)
            || (hex && forecast.commit.is_some_and(|commit| commit.to_string().starts_with(&folded)))
            || forecast.subject.to_lowercase().contains(&folded)
    };
    fork.patches.iter().filter(means).collect()
}

/// One patch's whole case.
fn case(fork: &ForkReport, patch: &PatchReport) -> String {
    let PatchReport { forecast, state, recommendation, reason, .. } = patch;
    let mut text = String::new();
    wrapped(&mut text, "", &format!("{} patch {}: {}", fork.name, forecast.number, forecast.subject), 2);
    let verdict = format!("{}, {}: {reason}", state_word(*state), recommendation_word(*recommendation));
    wrapped(&mut text, "  ", &verdict, 4);
    text.push('\n');
    for (head, facts) in facts(patch) {
        for (at, fact) in facts.iter().enumerate() {
            let head = if at == 0 { head } else { "" };
            wrapped(&mut text, &format!("  {head:<HEAD_WIDTH$}"), fact, HEAD_WIDTH + 2);
        }
    }
    text
}

/// How wide the names of facts are.
const HEAD_WIDTH: usize = 15;

/// Everything that is known about a patch, by name; names without facts are left out.
pub(super) fn facts(patch: &PatchReport) -> Vec<(&'static str, Vec<String>)> {
    let PatchReport { forecast, identity, cost, .. } = patch;
    let mut facts: Vec<(&'static str, Vec<String>)> = Vec::new();
    let origin = forecast.commit.map(|commit| format!("commit {}", commit.short()));
    let mut who = Vec::new();
    who.extend(origin.or_else(|| forecast.file.clone()));
    who.extend(identity.author.clone());
    who.extend(identity.date.as_deref().and_then(|date| date.get(..10)).map(str::to_owned));
    who.extend(identity.age_days.filter(|days| *days > 0).map(|days| {
        let noun = if days == 1 { "day" } else { "days" };
        format!("{days} {noun} before the target's commit")
    }));
    who.push(format!("key {}", identity.key));
    facts.push(("from", vec![who.join(", ")]));
    let size = format!(
        "+{} -{} in {}: {}",
        identity.added,
        identity.removed,
        counted(identity.files, "file", "files"),
        identity.areas.join(", ")
    );
    facts.push(("size", vec![size]));
    facts.push(("trailers", identity.trailers.clone()));
    let fate = format!("{} in the stack, {} alone", forecast.fate.word(), forecast.alone.word());
    facts.push(("fate", vec![fate]));
    let conflicts = forecast.conflicts.iter().map(|conflict| {
        let why = match (&conflict.cause, &conflict.culprit) {
            (Cause::Dependency, _) => "only without the rest of the stack".to_owned(),
            (Cause::Upstream, None) => "upstream".to_owned(),
            (Cause::Upstream, Some(culprit)) => {
                format!("{} {}", culprit.commit.short(), quoted(&culprit.subject))
            }
        };
        format!("{} ({}, {}): {why}", conflict.path, conflict.kind, conflict.hunks)
    });
    facts.push(("conflicts", conflicts.collect()));
    let first = patch.first_conflict.iter().map(|first| {
        let of =
            format!("commit {} after the base, {}", first.index, first.date.get(..10).unwrap_or_default());
        format!("{} {} ({of})", first.commit.short(), quoted(&first.subject))
    });
    facts.push(("first culprit", first.collect()));
    let needs: Vec<String> = forecast.depends_on.iter().map(ToString::to_string).collect();
    if !needs.is_empty() {
        let noun = if needs.len() == 1 { "patch" } else { "patches" };
        facts.push(("needs", vec![format!("{noun} {}", needs.join(", "))]));
    }
    let landed = patch.landed.iter().map(|landing| {
        let how = match landing.how {
            LandedHow::PatchId => "the same change".to_owned(),
            LandedHow::Content => format!("{} of its lines", percent(landing.share)),
            LandedHow::Split => format!("{} of its lines, in part", percent(landing.share)),
        };
        format!("{} {}: {how}", landing.commit.short(), quoted(&landing.subject))
    });
    facts.push(("landed", landed.collect()));
    let left =
        patch.left.iter().map(|left| format!("{}: {}", left.path, counted(left.lines, "line", "lines")));
    facts.push(("not upstream", left.collect()));
    let superseded = patch.superseded_by.iter().map(|by| {
        let (names, files) = (shown(&by.identifiers, 8), shown(&by.files, 4));
        format!("{} {}: {names} (here in {files})", by.commit.short(), quoted(&by.subject))
    });
    facts.push(("superseded by", superseded.collect()));
    let reverts = patch.reverts.iter().map(|revert| {
        let how = match revert.how {
            RevertHow::InverseHunk => "turned back",
            RevertHow::RemovedSymbol => "taken out with a public symbol",
        };
        let symbols = match revert.symbols.is_empty() {
            true => String::new(),
            false => format!("; gone: {}", shown(&revert.symbols, 12)),
        };
        let lines = counted(revert.lines, "line", "lines");
        let places = shown(&revert.places, 6);
        let restored = match revert.restored_by {
            Some(number) => format!("; patch {number} puts them back"),
            None => String::new(),
        };
        let subject = quoted(&revert.subject);
        format!("{} {subject}: {lines} {how} at {places}{symbols}{restored}", revert.commit.short())
    });
    let reverts: Vec<String> = reverts.collect();
    let undoes = !reverts.is_empty();
    facts.push(("undoes", reverts));
    if undoes {
        facts.push(("intent", vec![format!("as its subject says: {}", quoted(&forecast.subject))]));
    }
    if let Some(fixup) = patch.fixup {
        let why =
            format!("patch {}: {} of {} deleted lines are from there", fixup.of, fixup.lines, fixup.deleted);
        facts.push(("repairs", vec![why]));
    }
    if let Some(number) = patch.undoes {
        facts.push(("inverse of", vec![format!("patch {number}")]));
    }
    if let Some(liveness) = patch.liveness {
        facts.push(("alive", vec![format!("{} of its added lines at the stack's head", percent(liveness))]));
    }
    let past = match cost.past_syncs {
        0 => "no sync is recorded".to_owned(),
        syncs => format!(
            "conflicted in {} of {}",
            cost.past_conflicts,
            counted(syncs, "recorded sync", "recorded syncs")
        ),
    };
    let churn = counted(cost.churn_lines, "line", "lines");
    facts.push(("cost", vec![format!("upstream changed {churn} in its files since the base; {past}")]));
    facts.push(("can go when", patch.retirement.iter().map(condition_text).collect()));
    if let Some(probe) = &patch.probe {
        facts.push(("probe", vec![format!("{}: {}", probe.what, probe.last)]));
    }
    if let Some(trial) = &patch.trial {
        let day = trial.at.get(..10).unwrap_or(&trial.at);
        let about = if trial.current { "" } else { ", of the patch as it was then" };
        let mut told = vec![format!("{} ({day}{about}): {}", trial.verdict.sentence(), trial.why)];
        told.extend(trial.report.as_ref().map(|report| format!("the gate's report: {report}")));
        facts.push(("trial", told));
    }
    if let Some(branch) = &patch.upstream_branch {
        facts.push(("for upstream", vec![format!("branch {}, {}", branch.branch, branch.commit.short())]));
    }
    facts.retain(|(_, facts)| !facts.is_empty());
    facts
}

pub(super) fn condition_text(condition: &ConditionReport) -> String {
    let holds = match condition.holds {
        Truth::True => "true",
        Truth::False => "false",
        Truth::Unknown => "unknown",
    };
    let indent = "\u{b7} ".repeat(condition.depth);
    format!("{indent}{}: {holds} ({})", condition.condition, condition.why)
}

fn quoted(text: &str) -> String {
    format!("\u{201c}{text}\u{201d}")
}

/// A state in words.
pub fn state_word(state: PatchState) -> &'static str {
    match state {
        PatchState::Needed => "needed",
        PatchState::Landed => "landed",
        PatchState::PartlyLanded => "partly landed",
        PatchState::Superseded => "superseded",
        PatchState::Absorbed => "absorbed",
        PatchState::Dead => "dead",
        PatchState::Unknown => "unknown",
    }
}

/// A recommendation in one word.
pub fn recommendation_word(recommendation: Recommendation) -> &'static str {
    match recommendation {
        Recommendation::Drop => "drop",
        Recommendation::Squash => "squash",
        Recommendation::Split => "split",
        Recommendation::Upstream => "upstream",
        Recommendation::Keep => "keep",
        Recommendation::Look => "look",
    }
}

fn age(days: i64) -> String {
    match days {
        0..=99 => format!("{days} d"),
        100..=729 => format!("{} mo", days / 30),
        _ => format!("{} y", days / 365),
    }
}

fn line(text: &mut String, content: &str) {
    text.push_str(&shortened(printable(content).trim_end(), WIDTH));
    text.push('\n');
}

/// Breaks a text at words so that its lines fit: the first begins with `lead`, the others are indented. A word that is
/// too long by itself is cut.
fn wrapped(text: &mut String, lead: &str, content: &str, indent: usize) {
    let mut row = lead.to_owned();
    let mut fresh = true;
    for word in printable(content).split_whitespace() {
        if !fresh && row.chars().count() + 1 + word.chars().count() > WIDTH {
            line(text, &row);
            row = " ".repeat(indent);
            fresh = true;
        }
        if !fresh {
            row.push(' ');
        }
        row += word;
        fresh = false;
    }
    line(text, &row);
}

/// Text in which Markdown and HTML see nothing of their own.
fn marked(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for c in printable(text).chars() {
        match c {
            '<' => out.push_str("&lt;"),
            '>' => out.push_str("&gt;"),
            '&' => out.push_str("&amp;"),
            '\\' | '`' | '*' | '_' | '[' | ']' | '|' | '#' | '@' | '~' => {
                out.push('\\');
                out.push(c);
            }
            _ => out.push(c),
        }
    }
    out
}

fn shortened(text: &str, width: usize) -> String {
    match text.chars().count() > width {
        true => text.chars().take(width.saturating_sub(1)).chain(['…']).collect(),
        false => text.to_owned(),
    }
}
