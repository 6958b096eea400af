//! What the evidence about a patch amounts to, and what to do with it: one state, one recommendation, and the strongest
//! reason. Plain functions of what was found.

use super::{
    content::{Contained, LANDED_SHARE},
    edits::FileEdit,
    report::{
        AccidentalRevert, ConditionReport, FirstConflict, Fixup, LandedHow, Landing, PatchReport, PatchState,
        Recommendation, Residue, Superseding, Truth,
    },
};
use crate::rebase::{forecast::PatchFate, sync::PatchEntry};

/// From this share of the names that a patch coins on, met upstream, it counts as superseded.
const SUPERSEDED_SHARE: f64 = 0.5;
/// From this share on, with a whole run of lines, a patch counts as landed in part.
const PARTLY_SHARE: f64 = 0.15;

/// Nobody reviews more lines than this at once.
const LARGEST_UPSTREAM_LINES: usize = 3000;

/// What was found out about one patch.
pub struct Case<'c> {
    /// Its forecast.
    pub entry: &'c PatchEntry,
    /// Where upstream first meets it.
    pub first_conflict: Option<&'c FirstConflict>,
    /// The files that it changes.
    pub files: usize,
    /// The upstream commit that makes the same change.
    pub same: Option<&'c Landing>,
    /// What upstream's lines hold of it.
    pub contained: &'c Contained,
    /// Upstream commits with its names.
    pub superseded_by: &'c [Superseding],
    /// The names that it coins, and those of them that upstream coined too.
    pub names: (usize, usize),
    /// Upstream commits that it undoes.
    pub reverts: &'c [AccidentalRevert],
    /// The earlier patch that it repairs.
    pub fixup: Option<Fixup>,
    /// The earlier patch that it exactly undoes.
    pub undoes: Option<usize>,
    /// The later patch that exactly undoes it.
    pub undone_by: Option<usize>,
    /// The later patches that repair it.
    pub repaired_by: &'c [usize],
    /// The share of its added lines alive at the head.
    pub liveness: Option<f64>,
    /// Whether it takes lines away.
    pub deletes: Deletes,
    /// Why it is nothing for upstream, if so.
    pub unfit_for_upstream: Option<&'static str>,
    /// Its declared conditions.
    pub retirement: &'c [ConditionReport],
    /// Whether upstream's history since the base is at hand.
    pub history: History,
}

/// Whether upstream's history is at hand.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum History {
    /// It is.
    AtHand,
    /// Only the base's files are.
    OnlyFiles,
}

/// Whether a patch takes lines away.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Deletes {
    /// It only adds.
    Nothing,
    /// It does.
    Lines,
}

/// Whether upstream has any of the files that a patch changes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Place {
    /// It may have.
    Shared,
    /// The patch is drift of a vendored copy, and upstream has had none of its files, at the base or now: build glue and
    /// patch files that whoever made the copy put beside it.
    CopyOnly,
}

/// Why a patch is nothing for upstream as it stands, by what it changes.
pub fn unfit_for_upstream(edits: &[FileEdit], place: Place) -> Option<&'static str> {
    let lines: usize = edits.iter().map(|edit| edit.added() + edit.removed()).sum();
    let is_ci = |edit: &FileEdit| edit.path.as_bytes().starts_with(b".github/");
    match lines {
        0 => Some("it changes no line of text"),
        _ if edits.iter().all(is_ci) => Some("it is about the fork's own CI"),
        _ if place == Place::CopyOnly => {
            Some("it only adds files that upstream does not have: the copy's own")
        }
        lines if lines > LARGEST_UPSTREAM_LINES => Some("it is too large to send as it stands"),
        _ => None,
    }
}

/// State, recommendation, and the reason.
pub fn decide(case: &Case<'_>) -> (PatchState, Recommendation, String) {
    use {PatchState as State, Recommendation as Do};
    let state = state(case);
    let named = |commit: &str, subject: &str| format!("{commit} \u{201c}{subject}\u{201d}");
    if let Some(same) = case.same {
        let reason = format!("upstream {} makes the same change", named(&same.commit.short(), &same.subject));
        return (state, Do::Drop, reason);
    }
    if case.entry.fate == PatchFate::Absorbed {
        return (state, Do::Drop, "merging it changes nothing: upstream has all of it".to_owned());
    }
    if let Some(number) = case.undoes {
        return (state, Do::Drop, format!("it exactly undoes patch {number}: both can go"));
    }
    if let Some(number) = case.undone_by {
        return (state, Do::Drop, format!("patch {number} exactly undoes it: both can go"));
    }
    if state == State::Landed {
        return (state, Do::Drop, landed_reason(case.contained));
    }
    if case.retirement.first().is_some_and(|whole| whole.holds == Truth::True) {
        let leaves =
            case.retirement.iter().filter(|part| part.holds == Truth::True && !part.is_combination());
        let leaves: Vec<String> = leaves.map(|part| part.condition.clone()).collect();
        return (state, Do::Drop, format!("its retirement condition holds: {}", shown(&leaves, 3)));
    }
    let standing: Vec<&AccidentalRevert> =
        case.reverts.iter().filter(|revert| revert.restored_by.is_none()).collect();
    if let Some(first) = standing.first() {
        return (state, Do::Look, revert_reason(&standing, first));
    }
    if state == State::Dead {
        return match (case.deletes, case.fixup) {
            (Deletes::Nothing, _) => {
                (state, Do::Drop, "later patches undo every line that it adds".to_owned())
            }
            (_, Some(Fixup { of, .. })) => (
                state,
                Do::Squash,
                format!("it repairs patch {of}, and later patches replace every line that it adds"),
            ),
            _ => (
                state,
                Do::Look,
                "later patches replace every line that it adds; what it deletes stays deleted".to_owned(),
            ),
        };
    }
    if state == State::PartlyLanded {
        let left: usize = case.contained.left.iter().map(|left| left.lines).sum();
        return (state, Do::Split, format!("{}; {left} lines are left", landed_reason(case.contained)));
    }
    if state == State::Superseded
        && let Some(by) = case.superseded_by.first()
    {
        let names = shown(&by.identifiers, 3);
        let (commit, files) = (named(&by.commit.short(), &by.subject), shown(&by.files, 2));
        return match by.files.len() < case.files {
            true => {
                let rest = match case.entry.depends_on.as_slice() {
                    [] => "the rest stays".to_owned(),
                    [one] => format!("the rest stays as long as patch {one} does"),
                    many => format!("the rest stays as long as the {} patches that it needs do", many.len()),
                };
                (state, Do::Split, format!("in {files} upstream {commit} brings {names}; {rest}"))
            }
            false => (state, Do::Look, format!("upstream {commit} brings {names} too")),
        };
    }
    if let Some(Fixup { of, lines, deleted }) = case.fixup {
        return (
            state,
            Do::Squash,
            format!("it repairs patch {of}: {lines} of its {deleted} deleted lines are from there"),
        );
    }
    if state == State::Unknown {
        return (state, Do::Keep, "upstream's history is not at hand".to_owned());
    }
    keep_or_upstream(case, state)
}

fn keep_or_upstream(case: &Case<'_>, state: PatchState) -> (PatchState, Recommendation, String) {
    let entry = case.entry;
    let fits = matches!(entry.alone, PatchFate::Applied | PatchFate::Merged);
    if matches!(entry.fate, PatchFate::Conflicted | PatchFate::Blocked) {
        let reason = match case.first_conflict {
            Some(culprit) => format!(
                "upstream {} \u{201c}{}\u{201d} is in its way",
                culprit.commit.short(),
                culprit.subject
            ),
            None => "it waits for a patch that conflicts".to_owned(),
        };
        return (state, Recommendation::Keep, reason);
    }
    if let (true, Some(why)) = (fits && entry.depends_on.is_empty(), case.unfit_for_upstream) {
        return (state, Recommendation::Keep, format!("nothing like it is upstream; {why}"));
    }
    if let (true, false) = (fits, case.repaired_by.is_empty()) {
        let by: Vec<String> = case.repaired_by.iter().map(ToString::to_string).collect();
        let (noun, verb) = if by.len() == 1 { ("patch", "repairs") } else { ("patches", "repair") };
        let reason = format!("nothing like it is upstream; {noun} {} {verb} it: squash first", shown(&by, 4));
        return (state, Recommendation::Keep, reason);
    }
    match (fits, entry.depends_on.is_empty()) {
        (true, true) => (
            state,
            Recommendation::Upstream,
            "alone it fits upstream's newest; nothing like it is there".to_owned(),
        ),
        (_, false) => {
            let needs: Vec<String> = entry.depends_on.iter().map(ToString::to_string).collect();
            let noun = if needs.len() == 1 { "patch" } else { "patches" };
            (
                state,
                Recommendation::Keep,
                format!("nothing like it is upstream; it needs {noun} {}", needs.join(", ")),
            )
        }
        (false, true) => (state, Recommendation::Keep, "nothing like it is upstream".to_owned()),
    }
}

fn state(case: &Case<'_>) -> PatchState {
    let share = case.contained.share.unwrap_or(0.0);
    if case.same.is_some() || (share >= LANDED_SHARE && case.contained.brings && case.contained.whole_run) {
        return PatchState::Landed;
    }
    if case.entry.fate == PatchFate::Absorbed {
        return PatchState::Absorbed;
    }
    if case.undone_by.is_some() || case.undoes.is_some() || case.liveness == Some(0.0) {
        return PatchState::Dead;
    }
    if share >= PARTLY_SHARE && case.contained.whole_run && case.contained.brings {
        return PatchState::PartlyLanded;
    }
    let (coined, met) = case.names;
    if met > 0 && met as f64 >= SUPERSEDED_SHARE * coined as f64 {
        return PatchState::Superseded;
    }
    match case.history {
        History::AtHand => PatchState::Needed,
        History::OnlyFiles => PatchState::Unknown,
    }
}

fn landed_reason(contained: &Contained) -> String {
    let share = percent(contained.share.unwrap_or(0.0));
    match contained.landed.as_slice() {
        [] => format!("upstream holds {share} of its lines"),
        [one] if one.how != LandedHow::Split => {
            format!(
                "upstream {} \u{201c}{}\u{201d} holds {share} of its lines",
                one.commit.short(),
                one.subject
            )
        }
        [first, rest @ ..] => {
            format!("upstream {} and {} more hold {share} of its lines", first.commit.short(), rest.len())
        }
    }
}

fn revert_reason(reverts: &[&AccidentalRevert], first: &AccidentalRevert) -> String {
    let lines: usize = reverts.iter().map(|revert| revert.lines).sum();
    let symbols: usize = reverts.iter().map(|revert| revert.symbols.len()).sum();
    let more = match reverts.len() {
        1 => String::new(),
        count => format!(" and {} more", count - 1),
    };
    let gone = match symbols {
        0 => String::new(),
        1 => "; 1 public symbol is gone".to_owned(),
        count => format!("; {count} public symbols are gone"),
    };
    let noun = if lines == 1 { "line" } else { "lines" };
    format!(
        "it undoes {lines} {noun} of upstream {}{more} \u{201c}{}\u{201d}{gone}",
        first.commit.short(),
        first.subject
    )
}

/// The first few of a list.
pub fn shown(items: &[String], count: usize) -> String {
    let rest = items.len().saturating_sub(count);
    let first = items.iter().take(count).cloned().collect::<Vec<_>>().join(", ");
    if rest == 0 { first } else { format!("{first} and {rest} more") }
}

/// A share as people read it.
pub fn percent(share: f64) -> String {
    format!("{:.0} %", share * 100.0)
}

/// What remains when the recommendations are followed.
pub fn residue(patches: &[PatchReport]) -> Residue {
    let mut residue = Residue { patches: patches.len(), ..Residue::default() };
    for patch in patches {
        let lines = patch.identity.added + patch.identity.removed;
        residue.lines += lines;
        match patch.recommendation {
            Recommendation::Drop => {}
            // What a repair adds stays, in another patch; what it deletes was that patch's own.
            Recommendation::Squash => residue.lines_left += patch.identity.added,
            Recommendation::Split if patch.state == PatchState::PartlyLanded => {
                residue.patches_left += 1;
                residue.lines_left += patch.left.iter().map(|left| left.lines).sum::<usize>();
            }
            _ => {
                residue.patches_left += 1;
                residue.lines_left += lines;
            }
        }
    }
    residue
}
