//! From a matrix to the plan of a run: every cell, in the order that finds a fault soonest, and whether it runs here.

use std::collections::{BTreeMap, BTreeSet};

use serde::Serialize;
use thiserror::Error;
use wildmatch::WildMatch;

use super::cell::{Backend, Cell, CellId, Probe};
use crate::config::{
    near::suggestion,
    spec::{MatrixSpec, ModelSource},
};

/// Every cell of a matrix, in run order.
#[derive(Debug, Clone, PartialEq)]
pub struct Plan {
    /// Cells that do not run are listed too.
    pub cells: Vec<PlannedCell>,
}

/// A cell, and whether it runs.
#[derive(Debug, Clone, PartialEq)]
pub struct PlannedCell {
    /// The cell.
    pub cell: Cell,
    /// Whether it runs.
    pub disposition: Disposition,
}

/// Whether a cell runs.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Disposition {
    /// It runs.
    Run,
    /// This machine cannot; the text says why.
    NotApplicable(String),
    /// A filter left it out; the text says which.
    Deselected(String),
}

/// Which cells a person wants: those whose name one of the patterns matches, or all when there is no pattern.
///
/// A pattern with `*` or `?` must match the whole name, `*` also across slashes; any other is a part of the name.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Filter {
    patterns: Vec<String>,
}

/// A filter that asks for nothing in the matrix.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[error("no cell matches filter {}", list(unmatched))]
pub struct FilterError {
    /// The patterns that match no cell.
    pub unmatched: Vec<String>,
    /// What may have been meant.
    pub suggestion: String,
}

impl Plan {
    /// The cells that run, in order.
    pub fn runnable(&self) -> impl Iterator<Item = &Cell> {
        self.cells
            .iter()
            .filter(|planned| planned.disposition == Disposition::Run)
            .map(|planned| &planned.cell)
    }

    /// The plan with every cell deselected that would run and that the filter does not ask for.
    ///
    /// # Errors
    /// When a pattern matches no cell: a misspelt filter must not look like a small, green run.
    pub fn select(mut self, filter: &Filter) -> Result<Self, FilterError> {
        let unmatched: Vec<String> = filter
            .patterns
            .iter()
            .filter(|pattern| !self.cells.iter().any(|planned| pattern_matches(pattern, &planned.cell.id)))
            .cloned()
            .collect();
        if let Some(first) = unmatched.first() {
            let suggestion = self.suggestion(first);
            return Err(FilterError { unmatched, suggestion });
        }
        let why = format!("not matched by filter {}", list(&filter.patterns));
        for planned in &mut self.cells {
            if planned.disposition == Disposition::Run && !filter.matches(&planned.cell.id) {
                planned.disposition = Disposition::Deselected(why.clone());
            }
        }
        Ok(self)
    }

    /// Leaves out the cells that measure speed, which say nothing about what a build computes, except those named.
    #[must_use]
    pub fn without_speed(mut self, except: &BTreeSet<&str>) -> Self {
        for planned in &mut self.cells {
            if except.contains(planned.cell.id.as_str()) {
                continue;
            }
            if planned.disposition == Disposition::Run && matches!(planned.cell.probe, Probe::Throughput(_)) {
                planned.disposition =
                    Disposition::Deselected("only what a build computes is asked".to_owned());
            }
        }
        self
    }

    /// The parts of names are offered, and whole names where no part is near.
    fn suggestion(&self, pattern: &str) -> String {
        let mut parts: Vec<&str> =
            self.cells.iter().flat_map(|planned| planned.cell.id.as_str().split('/')).collect();
        parts.sort_unstable();
        parts.dedup();
        let names: Vec<&str> = self.cells.iter().map(|planned| planned.cell.id.as_str()).collect();
        let word = pattern.trim_matches(['*', '?', '/']);
        let known: Vec<&str> = if word.contains('/') { names } else { parts };
        suggestion(word, "names", &known)
    }
}

impl Filter {
    /// Takes the patterns as they were given.
    pub fn new(patterns: impl IntoIterator<Item = String>) -> Self {
        Self { patterns: patterns.into_iter().collect() }
    }

    /// Whether the filter asks for this cell.
    pub fn matches(&self, id: &CellId) -> bool {
        self.patterns.is_empty() || self.patterns.iter().any(|pattern| pattern_matches(pattern, id))
    }
}

/// The backends that MLX can have on an operating system, as `std::env::consts::OS` names it. CUDA needs another MLX
/// library than the provisioned one, so no system has it by itself.
pub fn backends_of(os: &str) -> &'static [Backend] {
    match os {
        "macos" => &[Backend::Cpu, Backend::Metal],
        _ => &[Backend::Cpu],
    }
}

/// Expands a matrix for a machine with the given backends.
///
/// The order is what decides soonest for least: synthetic models before real ones, logits before greedy generation
/// before tasks, short contexts first, and then as declared.
pub fn expand_cells(spec: &MatrixSpec, host: &[Backend]) -> Plan {
    let models: BTreeMap<&str, (usize, bool)> = spec
        .models
        .iter()
        .enumerate()
        .map(|(index, model)| {
            (model.name.as_str(), (index, matches!(model.source, ModelSource::Synthetic(_))))
        })
        .collect();
    let probes: BTreeMap<&str, (usize, &Probe)> = spec
        .probes
        .iter()
        .enumerate()
        .map(|(index, (name, probe))| (name.as_str(), (index, probe)))
        .collect();
    let mut keyed: Vec<_> = spec
        .blocks
        .iter()
        .flat_map(|block| block.points().map(move |point| (point, block.budget)))
        .filter_map(|(point, budget)| {
            let &(model_index, synthetic) = models.get(point.model)?;
            let &(probe_index, probe) = probes.get(point.probe)?;
            let key = (
                !synthetic,
                cost_rank(probe),
                point.context,
                model_index,
                probe_index,
                point.precision,
                point.backend,
            );
            let cell = Cell::new(
                point.model,
                point.precision,
                point.context,
                point.probe,
                probe.clone(),
                point.backend,
            );
            Some((key, Cell { budget, ..cell }))
        })
        .collect();
    keyed.sort_by_key(|(key, _)| *key);
    // Equal coordinates make an equal key, so a cell that two blocks name stands side by side.
    keyed.dedup_by(|(one, _), (other, _)| one == other);
    let cells = keyed
        .into_iter()
        .map(|(_, cell)| PlannedCell { disposition: disposition(cell.backend, host), cell })
        .collect();
    Plan { cells }
}

fn disposition(backend: Backend, host: &[Backend]) -> Disposition {
    if host.contains(&backend) {
        return Disposition::Run;
    }
    let has = host.iter().map(Backend::to_string).collect::<Vec<_>>().join(", ");
    Disposition::NotApplicable(format!("this machine has no {backend} backend (it has {has})"))
}

fn cost_rank(probe: &Probe) -> u8 {
    match probe {
        Probe::Op { .. } => 0,
        Probe::Logits { .. } => 1,
        Probe::Greedy { .. } => 2,
        Probe::Perplexity { .. } => 3,
        Probe::Task { .. } => 4,
        Probe::Throughput(_) => 5,
    }
}

/// Whether a pattern asks for a cell: with `*` or `?` the whole name must match, else a part of it.
pub(crate) fn pattern_matches(pattern: &str, id: &CellId) -> bool {
    if pattern.contains(['*', '?']) {
        WildMatch::new(pattern).matches(id.as_str())
    } else {
        id.as_str().contains(pattern)
    }
}

fn list(patterns: &[String]) -> String {
    patterns.iter().map(|pattern| format!("`{}`", pattern.escape_debug())).collect::<Vec<_>>().join(", ")
}

#[cfg(test)]
mod tests {
    use std::{collections::BTreeSet, time::Duration};

    use proptest::{prelude::*, sample::subsequence};

    use super::*;
    use crate::matrix::Budget;
    use crate::{
        config::spec::{Architecture, CellBlock, CellPattern, ModelSpec, SyntheticSpec, Thresholds},
        engine::protocol::Precision,
    };

    const MODELS: [&str; 3] = ["real", "qwen3", "llama"];
    const PROBES: [&str; 4] = ["capital", "greedy", "logits", "short"];

    fn spec(blocks: Vec<CellBlock>) -> MatrixSpec {
        let synthetic = ModelSource::Synthetic(SyntheticSpec {
            architecture: Architecture::Llama,
            seed: 1,
            layers: 1,
            hidden: 8,
            intermediate: 8,
            heads: 2,
            kv_heads: 1,
            head_dim: 4,
            vocab: 32,
            rope_theta: 1e6,
            weight_std: 0.15,
            max_positions: 64,
            shards: 1,
            head: crate::config::spec::Head::Own,
            window: None,
            quantization: None,
        });
        let source = |name: &str| match name {
            "real" => ModelSource::Package { package: "p".to_owned() },
            _ => synthetic.clone(),
        };
        let probe = |name: &str| match name {
            "capital" => Probe::Task {
                prompt: "?".into(),
                expect: vec!["!".into()],
                shape: Default::default(),
                max_tokens: 4,
                allow: vec![],
            },
            "greedy" => Probe::Greedy { max_tokens: 4 },
            _ => Probe::Logits { decode_steps: 4, stretch: None },
        };
        MatrixSpec {
            name: "m".to_owned(),
            baseline: "a".to_owned(),
            candidate: "b".to_owned(),
            reference: "mlx-lm".to_owned(),
            models: MODELS
                .iter()
                .map(|name| ModelSpec { name: (*name).into(), source: source(name) })
                .collect(),
            probes: PROBES.iter().map(|name| ((*name).to_owned(), probe(name))).collect(),
            blocks,
            thresholds: Thresholds::default(),
            cell_timeout: Duration::from_secs(1),
            include: Vec::new(),
            known: Vec::new(),
            budget: None,
        }
    }

    fn block(models: &[&str], contexts: &[usize], probes: &[&str], backends: &[Backend]) -> CellBlock {
        CellBlock {
            models: models.iter().map(|name| (*name).to_owned()).collect(),
            precisions: vec![Precision::Source],
            contexts: contexts.to_vec(),
            probes: probes.iter().map(|name| (*name).to_owned()).collect(),
            backends: backends.to_vec(),
            exclude: Vec::new(),
            budget: Budget::default(),
        }
    }

    fn small() -> MatrixSpec {
        spec(vec![
            block(&["real"], &[0], &["capital"], &[Backend::Cpu]),
            block(&["qwen3", "llama"], &[300, 8], &["greedy", "logits"], &[Backend::Metal, Backend::Cpu]),
            block(&["real"], &[64], &["logits"], &[Backend::Cpu]),
        ])
    }

    fn ids<'p>(cells: impl IntoIterator<Item = &'p Cell>) -> String {
        cells.into_iter().map(|cell| cell.id.as_str()).collect::<Vec<_>>().join("\n")
    }

    #[test]
    fn the_cheapest_decisive_cells_come_first() {
        insta::assert_snapshot!(ids(expand_cells(&small(), &[Backend::Cpu]).runnable()), @"
        qwen3/source/8/logits/cpu
        llama/source/8/logits/cpu
        qwen3/source/300/logits/cpu
        llama/source/300/logits/cpu
        qwen3/source/8/greedy/cpu
        llama/source/8/greedy/cpu
        qwen3/source/300/greedy/cpu
        llama/source/300/greedy/cpu
        real/source/64/logits/cpu
        real/source/0/capital/cpu
        ");
    }

    #[test]
    fn a_cell_that_this_machine_cannot_run_is_planned_as_not_applicable() {
        let plan = expand_cells(&small(), &[Backend::Cpu]);
        assert_eq!(plan.cells.len(), 18);
        for planned in &plan.cells {
            match (&planned.disposition, planned.cell.backend) {
                (Disposition::Run, Backend::Cpu) => {}
                (Disposition::NotApplicable(why), Backend::Metal) => {
                    assert_eq!(why, "this machine has no metal backend (it has cpu)");
                }
                other => panic!("{other:?}"),
            }
        }
        assert_eq!(expand_cells(&small(), backends_of("macos")).runnable().count(), 18);
    }

    #[test]
    fn a_filter_deselects_by_part_of_the_name_or_by_glob() {
        for (patterns, left) in [
            (vec![], 10),
            (vec!["qwen3"], 4),
            (vec!["qwen3", "capital"], 5),
            (vec!["*/8/*"], 4),
            (vec!["qwen3/source/?/logits/cpu"], 1),
            (vec!["/64/"], 1),
        ] {
            let filter = Filter::new(patterns.iter().map(|pattern| (*pattern).to_owned()));
            let plan = expand_cells(&small(), &[Backend::Cpu]).select(&filter).unwrap();
            assert_eq!(plan.runnable().count(), left, "{patterns:?}");
            assert_eq!(plan.cells.len(), 18, "deselected cells stay in the plan");
        }
    }

    #[test]
    fn a_filter_that_matches_nothing_is_an_error_with_near_names() {
        let select = |patterns: &[&str]| {
            let filter = Filter::new(patterns.iter().map(|pattern| (*pattern).to_owned()));
            let error = expand_cells(&small(), &[Backend::Cpu]).select(&filter).unwrap_err();
            format!("{error}; {}", error.suggestion)
        };
        insta::assert_snapshot!(select(&["qwne3", "capital", "gemma"]), @"no cell matches filter `qwne3`, `gemma`; did you mean `qwen3`?");
        insta::assert_snapshot!(select(&["*/gredy/*"]), @"no cell matches filter `*/gredy/*`; did you mean `greedy`?");
        insta::assert_snapshot!(select(&["qwen/source/8/logits/cpu"]), @"no cell matches filter `qwen/source/8/logits/cpu`; did you mean `qwen3/source/8/logits/cpu`?");
    }

    fn any_block() -> impl Strategy<Value = CellBlock> {
        let axes = (
            subsequence(MODELS.to_vec(), 1..=3),
            subsequence(vec![0_usize, 8, 64, 300], 1..=4),
            subsequence(PROBES.to_vec(), 1..=4),
            subsequence(vec![Backend::Cpu, Backend::Metal, Backend::Cuda], 1..=3),
        );
        let pattern = (
            prop::option::of(prop::sample::select(MODELS.to_vec())),
            prop::option::of(prop::sample::select(vec![0_usize, 8, 64, 300])),
            prop::option::of(prop::sample::select(PROBES.to_vec())),
        );
        (axes, prop::collection::vec(pattern, 0..3)).prop_map(
            |((models, contexts, probes, backends), excludes)| {
                let mut block = block(&models, &contexts, &probes, &backends);
                block.exclude = excludes
                    .into_iter()
                    .map(|(model, context, probe)| CellPattern {
                        model: model.map(str::to_owned),
                        context,
                        probe: probe.map(str::to_owned),
                        ..CellPattern::default()
                    })
                    .collect();
                block
            },
        )
    }

    proptest! {
        #[test]
        fn expansion_never_repeats_a_cell_and_loses_none(blocks in prop::collection::vec(any_block(), 1..4)) {
            let spec = spec(blocks);
            let plan = expand_cells(&spec, &[Backend::Cpu]);
            let planned: Vec<&CellId> = plan.cells.iter().map(|planned| &planned.cell.id).collect();
            let once: BTreeSet<&CellId> = planned.iter().copied().collect();
            prop_assert_eq!(once.len(), planned.len());
            let wanted: BTreeSet<CellId> =
                spec.blocks.iter().flat_map(|block| block.points()).map(|point| point.cell_id()).collect();
            prop_assert_eq!(once, wanted.iter().collect::<BTreeSet<_>>());
        }

        #[test]
        fn an_excluded_point_is_in_no_plan_of_its_block(block in any_block()) {
            let plan = expand_cells(&spec(vec![block.clone()]), &[Backend::Cpu]);
            for planned in &plan.cells {
                let cell = &planned.cell;
                let excluded = block.exclude.iter().any(|pattern| {
                    pattern.model.as_ref().is_none_or(|model| *model == cell.model)
                        && pattern.context.is_none_or(|context| context == cell.context)
                        && pattern.probe.as_ref().is_none_or(|probe| *probe == cell.probe_name)
                });
                prop_assert!(!excluded, "{}", cell.id);
            }
        }

        #[test]
        fn the_plan_does_not_depend_on_the_order_of_the_blocks(mut blocks in prop::collection::vec(any_block(), 1..4)) {
            let plan = expand_cells(&spec(blocks.clone()), &[Backend::Cpu]);
            blocks.reverse();
            prop_assert_eq!(plan, expand_cells(&spec(blocks), &[Backend::Cpu]));
        }
    }
}
