//! Is each patch still needed? Statements with their proof, from the strongest (the same change is upstream) down to
//! declared conditions, and what follows from them. It reads forecasts and objects; it changes no fork.

pub mod agreement;
pub mod declarations;
pub mod edits;
pub mod fork_level;
pub mod identity;
pub mod inventory;
pub mod landed;
pub mod public_items;
pub mod render;
pub mod report;
pub mod supply_chain;
pub mod upstream_fixes;

use std::path::Path;

use crate::{
    config::fork::ForkSpec,
    event::{Event, EventSink},
    fork::{open::Source, target::Onto},
    rebase::{
        forecast::PatchFate,
        sync::{Forecasted, SyncError, forecast_whole},
    },
    tools::git::store::StoreError,
};
use edits::edits_of;
use report::{Cost, ForkReport, PatchReport, PatchState, Recommendation, Residue};

/// Reports on a fork below the repository root.
///
/// # Errors
/// See [`SyncError`]; whatever is found out is part of the report.
pub fn report_fork(
    root: &Path,
    spec: ForkSpec,
    onto: &Onto,
    source: &Source,
    events: &dyn EventSink,
) -> Result<ForkReport, SyncError> {
    let whole = forecast_whole(root, spec, onto, source, events)?;
    events.emit(Event::StepStarted { step: format!("weigh the evidence on {}", whole.spec.name) });
    let mut report = weighed(&whole)?;
    let (sections, unknown) = fork_level::sections(root, &whole, source, &report.patches)?;
    report.sections = sections;
    report.unknown.extend(unknown);
    Ok(report)
}

fn weighed(whole: &Forecasted) -> Result<ForkReport, StoreError> {
    let Forecasted { store, replayed, target, document, .. } = whole;
    let steps = &replayed.steps;
    let now_s = match store.has(target.onto.commit) {
        true => Some(store.commit(target.onto.commit)?.committed_s),
        false => None,
    };
    let touching = landed::touching(store, target.base.tree, &target.history, steps)?;
    let same = landed::by_patch_id(store, steps, &touching)?;
    let mut patches = Vec::new();
    for ((step, entry), same) in steps.iter().zip(&document.patches).zip(same) {
        let edits = edits_of(store, &step.changes)?;
        let landed: Vec<_> = same.into_iter().collect();
        let state = match entry.fate {
            _ if !landed.is_empty() => PatchState::Landed,
            PatchFate::Absorbed => PatchState::Absorbed,
            _ => PatchState::Needed,
        };
        patches.push(PatchReport {
            forecast: entry.clone(),
            identity: identity::identity(store, &whole.stack, step, &edits, now_s)?,
            state,
            recommendation: Recommendation::Keep,
            reason: String::new(),
            landed,
            left: Vec::new(),
            superseded_by: Vec::new(),
            reverts: Vec::new(),
            fixup_of: None,
            fixup: None,
            undoes: None,
            liveness: None,
            retirement: Vec::new(),
            probe: None,
            cost: Cost::default(),
            upstream_branch: None,
        });
    }
    Ok(ForkReport {
        name: document.name.clone(),
        base: Some(document.base.clone()),
        onto: Some(document.onto.clone()),
        frontier: document.frontier.clone(),
        patches,
        residue: Residue::default(),
        retirement: Vec::new(),
        unknown: Vec::new(),
        sections: Vec::new(),
    })
}
