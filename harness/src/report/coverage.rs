//! Which architecture families a run says something about. One build may be sound for a family and broken for the next, so a
//! verdict holds for the covered families alone.

use std::collections::{BTreeMap, BTreeSet};

use serde::{Deserialize, Serialize};

use super::CellReport;
use crate::{
    judge::CellObservations,
    model::family::{family_name, served_by},
    verdict::CellStatus,
};

/// What was run, and what the candidate's dialect serves beside.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Coverage {
    /// Families of cells that showed the candidate to be right or wrong, each with their number.
    pub covered: BTreeMap<String, usize>,
    /// Families of cells that ended at a known limit, and of no others.
    pub limited: BTreeSet<String>,
    /// The candidate's dialect, when a process of it said so.
    pub dialect: Option<String>,
    /// Families that the dialect serves, too, and that no cell decided.
    pub not_run: BTreeSet<String>,
}

impl Coverage {
    /// Whether nothing is known: no process of the candidate came as far as loading a model.
    pub fn is_empty(&self) -> bool {
        *self == Self::default()
    }

    pub(super) fn of(cells: &[CellReport]) -> Self {
        let mut coverage = Self::default();
        for cell in cells {
            let Some(seen) = &cell.observations else { continue };
            let Some(candidate) = &seen.candidate else { continue };
            if let Some(hello) = &candidate.hello {
                coverage.dialect.get_or_insert_with(|| hello.dialect.clone());
            }
            let Some(family) = family_of(seen) else { continue };
            match (cell.status, cell.basis) {
                (CellStatus::Pass, Some(_)) | (CellStatus::Fail, _) => {
                    *coverage.covered.entry(family).or_insert(0) += 1;
                }
                (CellStatus::Pass, None) => drop(coverage.limited.insert(family)),
                _ => {}
            }
        }
        let covered = &coverage.covered;
        coverage.limited.retain(|family| !covered.contains_key(family));
        if let Some(dialect) = &coverage.dialect {
            coverage.not_run = served_by(dialect)
                .map(|family| family.name.to_owned())
                .filter(|name| !coverage.covered.contains_key(name) && !coverage.limited.contains(name))
                .collect();
        }
        coverage
    }

    /// One sentence.
    pub(super) fn sentence(&self) -> Option<String> {
        if self.is_empty() {
            return None;
        }
        let names = |names: &mut dyn Iterator<Item = &String>| names.cloned().collect::<Vec<_>>().join(", ");
        let covered = match self.covered.is_empty() {
            true => "none".to_owned(),
            false => names(&mut self.covered.keys()),
        };
        let limited = match self.limited.is_empty() {
            true => String::new(),
            false => format!("; known not to work: {}", names(&mut self.limited.iter())),
        };
        let rest = match (&self.dialect, self.not_run.is_empty()) {
            (Some(dialect), false) => format!(
                "; `{dialect}` also serves {}: not run, nothing is said about them",
                names(&mut self.not_run.iter())
            ),
            (Some(dialect), true) if served_by(dialect).next().is_some() => {
                format!("; `{dialect}` serves no others")
            }
            _ => String::new(),
        };
        Some(format!("architectures covered: {covered}{limited}{rest}"))
    }
}

/// The family of a cell's model. A candidate that could not load it does not say; the others do.
fn family_of(seen: &CellObservations) -> Option<String> {
    let model_type = [&seen.candidate, &seen.reference, &seen.baseline]
        .into_iter()
        .find_map(|observation| observation.as_ref()?.model_type.as_deref())?;
    Some(family_name(model_type).to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::judge::toy::{self, Fault};

    fn coverage(covered: &[&str], dialect: &str) -> Coverage {
        let covered: BTreeMap<String, usize> = covered.iter().map(|name| ((*name).to_owned(), 1)).collect();
        let not_run = served_by(dialect)
            .map(|family| family.name.to_owned())
            .filter(|name| !covered.contains_key(name))
            .collect();
        Coverage { covered, limited: BTreeSet::new(), dialect: Some(dialect.to_owned()), not_run }
    }

    #[test]
    fn a_candidate_that_cannot_load_a_model_was_run_with_its_family() {
        let cell = toy::logits_cell("model");
        let mut seen = toy::seen(&cell, Some(Fault::None), Some(Fault::None), Some(Fault::None));
        for (observation, model_type) in [
            (&mut seen.candidate, None),
            (&mut seen.baseline, None),
            (&mut seen.reference, Some("gemma4_text".to_owned())),
        ] {
            observation.as_mut().unwrap().model_type = model_type;
        }
        assert_eq!(family_of(&seen).as_deref(), Some("gemma4"));
        seen.reference.as_mut().unwrap().model_type = None;
        assert_eq!(family_of(&seen), None);
    }

    #[test]
    fn what_was_not_run_is_named() {
        assert_eq!(
            coverage(&["llama"], "safemlx-lm-0.4").sentence().unwrap(),
            "architectures covered: llama; `safemlx-lm-0.4` also serves gemma4, nemotron_h, qwen3, qwen3_5_moe: not run, \
             nothing is said about them"
        );
        let all = ["gemma4", "llama", "nemotron_h", "qwen3", "qwen3_5_moe"];
        assert!(
            coverage(&all, "safemlx-lm-0.4")
                .sentence()
                .unwrap()
                .ends_with("; `safemlx-lm-0.4` serves no others")
        );
        assert_eq!(coverage(&["llama"], "unheard-of").sentence().unwrap(), "architectures covered: llama");
        assert!(
            coverage(&[], "safemlx-lm-0.4").sentence().unwrap().starts_with("architectures covered: none; ")
        );
        assert_eq!(Coverage::default().sentence(), None);
        let limited =
            Coverage { limited: ["gemma4".to_owned()].into(), ..coverage(&["llama"], "unheard-of") };
        assert_eq!(limited.sentence().unwrap(), "architectures covered: llama; known not to work: gemma4");
    }
}
