//! Which groups of checks the judge uses. All of them, but for showing that each is needed: a gate whose self-test does
//! not notice that a tier is missing would not notice that it is broken.

use std::{collections::BTreeSet, fmt, str::FromStr};

/// A group of checks that sees by the same means.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Tier {
    /// T0: what no sound engine does.
    Hard,
    /// T1: what a text looks like.
    Text,
    /// T2: teacher-forced logits rows.
    Logits,
    /// T2: greedy ids.
    Greedy,
    /// T2: likelihood of a free text under the engine taken as right.
    FreeText,
    /// T3: what an answer must hold.
    Tasks,
}

/// A set of tiers.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Tiers(BTreeSet<Tier>);

impl Tier {
    /// Every tier, in order.
    pub const ALL: [Self; 6] =
        [Self::Hard, Self::Text, Self::Logits, Self::Greedy, Self::FreeText, Self::Tasks];

    /// The name that a command line takes.
    pub fn name(self) -> &'static str {
        match self {
            Self::Hard => "hard",
            Self::Text => "text",
            Self::Logits => "logits",
            Self::Greedy => "greedy",
            Self::FreeText => "free-text",
            Self::Tasks => "tasks",
        }
    }
}

impl fmt::Display for Tier {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl FromStr for Tier {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        Self::ALL.into_iter().find(|tier| tier.name() == text).ok_or_else(|| {
            format!("there is no tier `{text}`; tiers are {}", Self::ALL.map(Self::name).join(", "))
        })
    }
}

impl Tiers {
    /// All of them: what a gate uses.
    pub fn all() -> Self {
        Self(Tier::ALL.into_iter().collect())
    }

    /// All but the given ones.
    pub fn without(left_out: &[Tier]) -> Self {
        Self(Tier::ALL.into_iter().filter(|tier| !left_out.contains(tier)).collect())
    }

    /// Only the given ones.
    pub fn only(kept: &[Tier]) -> Self {
        Self(kept.iter().copied().collect())
    }

    /// Whether a tier is used.
    pub fn has(&self, tier: Tier) -> bool {
        self.0.contains(&tier)
    }
}

impl Default for Tiers {
    fn default() -> Self {
        Self::all()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_read_back_and_others_are_refused() {
        for tier in Tier::ALL {
            assert_eq!(tier.name().parse(), Ok(tier));
            assert!(Tiers::all().has(tier) && !Tiers::without(&[tier]).has(tier));
        }
        assert!("logit".parse::<Tier>().unwrap_err().contains("logits"));
    }
}
