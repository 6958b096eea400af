//! The report as text: a table that fits a terminal, one patch's whole case, and Markdown for a pull request. Equal
//! reports give equal bytes.

use std::fmt::Write as _;

use super::report::{ForkReport, PatchReport, PatchState, Recommendation};
use crate::{rebase::sync::NamedCommit, tools::child::printable};

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
            if !patch.reason.is_empty() {
                line(&mut text, &format!("       {}", patch.reason));
            }
        }
    }
    text
}

const HEADS: [&str; 6] = ["#", "state", "patch", "age", "size", "do"];

fn title(fork: &ForkReport) -> String {
    let place =
        |commit: &Option<NamedCommit>| commit.as_ref().map_or_else(|| "nothing shared".to_owned(), named);
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

fn row(patch: &PatchReport) -> [String; 6] {
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

/// A state in one word.
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

fn named(commit: &NamedCommit) -> String {
    match &commit.tag {
        Some(tag) => format!("{} ({})", tag, commit.commit.short()),
        None => commit.commit.short(),
    }
}

fn counted(count: usize, one: &str, many: &str) -> String {
    format!("{count} {}", if count == 1 { one } else { many })
}

fn line(text: &mut String, content: &str) {
    text.push_str(&shortened(printable(content).trim_end(), WIDTH));
    text.push('\n');
}

fn shortened(text: &str, width: usize) -> String {
    match text.chars().count() > width {
        true => text.chars().take(width.saturating_sub(1)).chain(['…']).collect(),
        false => text.to_owned(),
    }
}
