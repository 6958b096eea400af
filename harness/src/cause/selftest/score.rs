//! The score card: how often the gate sees a fault, how often it cries wolf, each with an exact bound.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use statrs::distribution::{Beta, ContinuousCDF as _};

/// Confidence of the two-sided bounds.
pub const CONFIDENCE: f64 = 0.95;

/// How plain a fault is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Strength {
    /// It still reads well to a person, or changes a few numbers of many.
    Weak,
    /// In between; what the target is stated for.
    Middle,
    /// Nobody could miss it.
    Strong,
}

impl Strength {
    /// All, weakest first.
    pub const ALL: [Self; 3] = [Self::Weak, Self::Middle, Self::Strong];
}

/// Whether thresholds were chosen with a kind in view.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Split {
    /// They were.
    Tuned,
    /// They were not: its rate is an honest one.
    HeldOut,
}

/// How often something came out as it should.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize)]
pub struct Rate {
    /// Times that it did.
    pub caught: u64,
    /// Times that it was tried.
    pub of: u64,
    /// Lower end of the exact two-sided interval of [`CONFIDENCE`].
    pub lower_bound: f64,
}

/// One kind of fault.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct KindScore {
    /// The kind.
    pub name: String,
    /// What goes wrong underneath; kinds that share one are not independent.
    pub root_cause: String,
    /// Where it is put in: `engine`, `checkpoint` or `text`.
    pub place: String,
    /// The tier that is there to see it.
    pub tier: String,
    /// Whether thresholds were chosen with it in view.
    pub split: Split,
    /// At the middle strength.
    #[serde(flatten)]
    pub middle: Rate,
    /// At each strength.
    pub strengths: BTreeMap<Strength, Rate>,
    /// Causes that the judge named, with how often.
    pub causes: BTreeMap<String, u64>,
    /// What it named at the strongest, where it could imitate faults as a gate does.
    pub cause_at_strongest: Option<String>,
}

/// Something that is no fault.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct BenignScore {
    /// What was changed.
    pub name: String,
    /// Times that the gate passed it.
    pub passed: u64,
    /// Times that it was tried.
    pub of: u64,
    /// Largest relative L2 distance of a row that came with it, where rows were compared.
    pub largest_relative_l2: Option<f64>,
    /// Why it was not passed, the first time.
    pub first_alarm: Option<String>,
}

/// The whole.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ScoreCard {
    /// Share of faults caught, over all kinds at the middle strength.
    pub sensitivity: f64,
    /// The same with its counts, by strength.
    pub by_strength: BTreeMap<Strength, Rate>,
    /// At the middle strength, by whether thresholds were chosen with the kind in view.
    pub by_split: BTreeMap<Split, Rate>,
    /// At the middle strength, by root cause.
    pub by_root_cause: BTreeMap<String, Rate>,
    /// Share of clean outputs and benign changes that raised no alarm.
    pub specificity: f64,
    /// The same with its counts; `caught` counts those that passed.
    pub clean_rate: Rate,
    /// How many faults were put in, all strengths.
    pub faults: u64,
    /// How many clean outputs and benign changes were judged.
    pub clean: u64,
    /// Every kind of fault.
    pub kinds: Vec<KindScore>,
    /// Every kind of clean output and every benign change.
    pub benign: Vec<BenignScore>,
    /// Kinds that were not tried in this run, and why.
    pub not_tried: BTreeMap<String, String>,
    /// Tiers that were left out.
    pub without: Vec<String>,
    /// Targets that this run misses, in words.
    pub missed: Vec<String>,
}

impl Rate {
    /// A rate with its exact (Clopper-Pearson) lower bound.
    pub fn new(caught: u64, of: u64) -> Self {
        Self { caught, of, lower_bound: lower_bound(caught, of) }
    }

    /// The share; 1 where nothing was tried.
    #[expect(clippy::cast_precision_loss, reason = "counts are far below 2^52")]
    pub fn share(self) -> f64 {
        if self.of == 0 { 1.0 } else { self.caught as f64 / self.of as f64 }
    }

    fn sum(rates: impl Iterator<Item = Self>) -> Self {
        let (caught, of) = rates.fold((0, 0), |(c, n), r| (c + r.caught, n + r.of));
        Self::new(caught, of)
    }
}

/// Smallest share of faults at the middle strength.
const TARGET_SENSITIVITY: f64 = 0.99;

impl ScoreCard {
    /// Adds everything up.
    pub fn new(
        mut kinds: Vec<KindScore>,
        benign: Vec<BenignScore>,
        not_tried: BTreeMap<String, String>,
        without: Vec<String>,
    ) -> Self {
        for kind in &mut kinds {
            kind.middle = kind.strengths.get(&Strength::Middle).copied().unwrap_or_default();
        }
        let by_strength: BTreeMap<_, _> = Strength::ALL
            .into_iter()
            .map(|s| (s, Rate::sum(kinds.iter().filter_map(|k| k.strengths.get(&s).copied()))))
            .collect();
        let by_split = [Split::Tuned, Split::HeldOut]
            .into_iter()
            .map(|s| (s, Rate::sum(kinds.iter().filter(|k| k.split == s).map(|k| k.middle))))
            .collect();
        let mut by_root_cause: BTreeMap<String, Rate> = BTreeMap::new();
        for kind in &kinds {
            let rate = by_root_cause.entry(kind.root_cause.clone()).or_default();
            *rate = Rate::sum([*rate, kind.middle].into_iter());
        }
        let clean_rate = Rate::sum(benign.iter().map(|b| Rate::new(b.passed, b.of)));
        let middle = by_strength[&Strength::Middle];
        let mut missed = Vec::new();
        if middle.share() < TARGET_SENSITIVITY {
            missed.push(format!(
                "sensitivity {:.4} at the middle strength is below {TARGET_SENSITIVITY}",
                middle.share()
            ));
        }
        for kind in kinds.iter().filter(|k| k.tier == "hard") {
            let rate = Rate::sum(kind.strengths.values().copied());
            if rate.caught < rate.of {
                missed.push(format!(
                    "`{}` is of tier T0 and {} of {} are seen",
                    kind.name, rate.caught, rate.of
                ));
            }
        }
        if clean_rate.caught < clean_rate.of {
            missed.push(format!(
                "{} of {} clean outputs and benign changes raise an alarm",
                clean_rate.of - clean_rate.caught,
                clean_rate.of
            ));
        }
        Self {
            sensitivity: middle.share(),
            faults: by_strength.values().map(|r: &Rate| r.of).sum(),
            by_strength,
            by_split,
            by_root_cause,
            specificity: clean_rate.share(),
            clean: clean_rate.of,
            clean_rate,
            kinds,
            benign,
            not_tried,
            without,
            missed,
        }
    }
}

/// The Clopper-Pearson bound: the share at which `caught` or more of `of` would come out in (1 − confidence) / 2 of all
/// cases.
#[expect(clippy::cast_precision_loss, reason = "counts are far below 2^52")]
fn lower_bound(caught: u64, of: u64) -> f64 {
    if caught == 0 {
        return 0.0;
    }
    Beta::new(caught as f64, (of - caught) as f64 + 1.0)
        .map_or(0.0, |beta| beta.inverse_cdf((1.0 - CONFIDENCE) / 2.0))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bounds_are_the_tabulated_ones() {
        // Known values: all of n gives (alpha / 2)^(1 / n).
        for (caught, of, expected) in [
            (10, 10, 0.025_f64.powf(0.1)),
            (1500, 1500, 0.025_f64.powf(1.0 / 1500.0)),
            (9, 10, 0.554_98),
            (0, 10, 0.0),
        ] {
            let bound = Rate::new(caught, of).lower_bound;
            assert!((bound - expected).abs() < 1e-4, "{caught} of {of}: {bound} and not {expected}");
        }
    }

    #[test]
    fn a_missed_fault_and_a_false_alarm_miss_the_targets() {
        let kind = |caught, tier: &str| KindScore {
            name: "k".into(),
            root_cause: "r".into(),
            place: "engine".into(),
            tier: tier.into(),
            split: Split::HeldOut,
            middle: Rate::default(),
            strengths: Strength::ALL.into_iter().map(|s| (s, Rate::new(caught, 4))).collect(),
            causes: BTreeMap::new(),
            cause_at_strongest: None,
        };
        let benign = |passed| BenignScore {
            name: "b".into(),
            passed,
            of: 5,
            largest_relative_l2: None,
            first_alarm: None,
        };
        let card = |kinds, benign| ScoreCard::new(kinds, vec![benign], BTreeMap::new(), vec![]);
        let good = card(vec![kind(4, "hard")], benign(5));
        assert_eq!((good.missed.len(), good.faults, good.clean), (0, 12, 5));
        assert_eq!(card(vec![kind(3, "logits")], benign(5)).missed.len(), 1);
        assert_eq!(card(vec![kind(3, "hard")], benign(4)).missed.len(), 3);
    }
}
