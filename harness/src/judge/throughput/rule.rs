//! The rule of a comparison: in which order runs go, how many, when a session is over, and what it and its confirmation
//! say. Pure; the gate and the simulation of its error rates run this very code.
//!
//! Both builds run by turns, so that a machine that gets slower within a session slows both alike. The runs go to
//! Mann-Whitney: signed ranks of neighbouring pairs cancel drift, but one outlier of 12 pairs takes their largest rank, and in
//! the simulated noise they saw a loss of 5 % in 81 of 100 sessions where Mann-Whitney saw it in 97.

use serde::{Deserialize, Serialize};

use super::stats::{
    coefficient_of_variation, gini_deviation, mann_whitney_p_less, median, runs_for_power, shift_for_runs,
    two_sample_shift,
};

/// One-sided level of the test of one session of up to [`EARLY_RUNS`] runs an arm. The confirmation's squares it.
pub const ALPHA: f64 = 0.01;

/// The level of a look at more runs than [`EARLY_RUNS`]: such a session has been looked at before, and every look is one more
/// chance to be wrong. That later looks get less is group-sequential practice (Lan and DeMets, Biometrika 70, 1983); how much
/// less comes from the simulation, whose model holds the drift and the outliers that no closed formula does.
pub const LATE_ALPHA: f64 = 0.005;

/// Up to so many runs an arm [`ALPHA`] holds: what a coefficient of variation of 3 % takes to see 5 %.
pub const EARLY_RUNS: usize = 12;

/// A change below this share of `max-regression` is none, however sure: 2 % beside a limit of 5 %. Without it every cell
/// would one day be slower by a significant tenth of a per cent.
pub const FLOOR_SHARE: f64 = 0.4;

/// Runs an arm of the pilot, which estimates the spread: three blocks, the fewest with five.
pub const PILOT_RUNS: usize = 6;

/// The fewest runs an arm that decide: what the simulation asks for at a coefficient of variation of 1 %.
pub const FEWEST_RUNS: usize = 8;

/// The most runs an arm of a session: what a coefficient of variation of 4.7 % takes to see 5 %. More noise than that is no
/// measurement.
pub const MOST_RUNS: usize = 32;

/// A session ends early when it would take this many times [`MOST_RUNS`].
const HOPELESS: f64 = 4.0;

/// Which build a run is of.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Arm {
    /// The candidate.
    Candidate,
    /// The baseline.
    Baseline,
}

/// The order of a block, so that a steady drift and whatever the first of two costs cancel.
pub const BLOCK: [Arm; 4] = [Arm::Candidate, Arm::Baseline, Arm::Baseline, Arm::Candidate];

/// What a comparison of one figure has to show.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Limit {
    /// The largest loss that may pass, as a share: .05 for 5 %.
    pub max_regression: f64,
    /// The wanted chance to see a loss of that size, and so the confidence with which a pass excludes it.
    pub power: f64,
}

impl Limit {
    /// The loss below which a change counts as none.
    pub fn floor(&self) -> f64 {
        FLOOR_SHARE * self.max_regression
    }
}

/// What the runs of one session say about one figure, ratios being candidate over baseline in goodness: below 1 is worse,
/// whether the figure is a rate, a time or a size.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Look {
    /// Runs an arm.
    pub runs: usize,
    /// The Hodges-Lehmann estimate of the ratio.
    pub ratio: f64,
    /// The ratio is above this with the limit's `power` as one-sided confidence; 0 where the runs are too few to say.
    pub lower: f64,
    /// The ratio is below this with the same confidence; absent where the runs are too few to say.
    pub upper: Option<f64>,
    /// The chance of a rank as low, were there no change.
    pub p_worse: f64,
    /// The spread of one run, as a share: Gini's deviation of the logarithms, the mean of both arms.
    pub spread: f64,
    /// The smallest loss, as a share, that so many runs of this spread would have seen with the wanted power.
    pub detectable: f64,
    /// What follows.
    pub state: State,
}

/// What a look shows.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum State {
    /// Worse, surely and by more than the floor.
    Worse,
    /// Not worse by as much as the limit, and not by luck: so many runs of this spread would have seen such a loss, and a loss
    /// of that size would pass with a chance of `1 - power` at most.
    Sound,
    /// Neither.
    Open,
}

/// What a session and, where it was red, its confirmation say about one figure.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Outcome {
    /// No worse than the limit allows.
    Pass,
    /// Worse in two sessions.
    Worse,
    /// Too noisy for this limit, or one session says this and the other that.
    Inconclusive,
}

/// What to do next in a session.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Next {
    /// Go on until each arm has this many runs.
    RunTo(usize),
    /// The session is over.
    Stop,
}

/// Looks at the logarithms of both arms' goodness.
pub fn look(candidate: &[f64], baseline: &[f64], limit: &Limit) -> Look {
    let runs = candidate.len().min(baseline.len());
    let shift = two_sample_shift(candidate, baseline, 1.0 - limit.power);
    let p_worse = mann_whitney_p_less(candidate, baseline);
    let spread = (gini_deviation(candidate) + gini_deviation(baseline)) / 2.0;
    let ratio = if runs == 0 { 1.0 } else { shift.estimate.exp() };
    let lower = if runs == 0 { 0.0 } else { shift.lower.exp() };
    // Seeing takes a small p and an estimate beyond the floor: below the floor nothing is seen, however many the runs.
    let seen = shift_for_runs(spread, runs.max(1), level(runs), limit.power);
    let detectable = (1.0 - (-seen).exp()).max(limit.floor());
    let state = if runs >= FEWEST_RUNS && p_worse < level(runs) && ratio < 1.0 - limit.floor() {
        State::Worse
    } else if runs >= FEWEST_RUNS && detectable <= limit.max_regression && lower > 1.0 - limit.max_regression
    {
        State::Sound
    } else {
        State::Open
    };
    Look {
        runs,
        ratio,
        lower,
        upper: Some(shift.upper.exp()).filter(|upper| upper.is_finite() && runs > 0),
        p_worse,
        spread,
        detectable,
        state,
    }
}

/// How many runs an arm the limit takes at this spread, as a real number.
pub fn runs_wanted(spread: f64, limit: &Limit) -> f64 {
    let at = |alpha| runs_for_power(spread, -(1.0 - limit.max_regression).ln(), alpha, limit.power);
    Some(at(ALPHA)).filter(|wanted| *wanted <= EARLY_RUNS as f64).unwrap_or_else(|| at(LATE_ALPHA))
}

/// The level of a look at so many runs an arm.
pub fn level(runs: usize) -> f64 {
    if runs > EARLY_RUNS { LATE_ALPHA } else { ALPHA }
}

/// What to do after these looks at all gated figures of a session. Every look is one more chance to be wrong, so there are
/// few: after the pilot, at the number that the pilot asks for, and then at half as many again, up to `most_runs`, which a
/// matrix may set below [`MOST_RUNS`] where time is dear: the rule then says "inconclusive" more often, and errs no more.
pub fn next(looks: &[(Look, Limit)], most_runs: usize) -> Next {
    let most_runs = most_runs.clamp(FEWEST_RUNS, MOST_RUNS);
    let runs = looks.iter().map(|(look, _)| look.runs).min().unwrap_or(0);
    if runs < PILOT_RUNS {
        return Next::RunTo(PILOT_RUNS);
    }
    let open = looks.iter().filter(|(look, _)| look.state == State::Open);
    let wanted = open.map(|(look, limit)| runs_wanted(look.spread, limit)).fold(0.0, f64::max);
    let all_decided = looks.iter().all(|(look, _)| look.state != State::Open);
    if all_decided || runs >= most_runs {
        return Next::Stop;
    }
    if runs > PILOT_RUNS && wanted > HOPELESS * MOST_RUNS as f64 {
        return Next::Stop;
    }
    let more = if runs > PILOT_RUNS { runs + runs.div_ceil(2) } else { FEWEST_RUNS };
    let target = (wanted.min(most_runs as f64).ceil() as usize).max(more).next_multiple_of(2);
    Next::RunTo(target.min(most_runs))
}

/// What the first session and, where it was red, a fresh one say.
pub fn outcome(first: State, confirmation: Option<State>) -> Outcome {
    match (first, confirmation) {
        (State::Sound, _) => Outcome::Pass,
        (State::Worse, Some(State::Worse)) => Outcome::Worse,
        // The second session alone shows that the loss is within the limit: the first was the one in a hundred.
        (State::Worse, Some(State::Sound)) => Outcome::Pass,
        (State::Open, _) | (State::Worse, _) => Outcome::Inconclusive,
    }
}

/// The p value of the whole procedure. A second session is run only where the first says less than [`ALPHA`], which happens
/// by chance that rarely with all looks together as long as later ones are stricter (the simulation counts it). So under no
/// change the chance of `ALPHA · p₂ ≤ t` is at most t (the product rule for two stages; Bauer and Köhne,
/// Biometrics 50, 1994).
pub fn two_stage_p(first: &Look, confirmation: Option<&Look>) -> f64 {
    match confirmation {
        Some(second) => ALPHA * second.p_worse,
        None => first.p_worse,
    }
}

/// The middle and the classical coefficient of variation of an arm's runs, for people.
pub fn summary_of(values: &[f64]) -> (f64, f64) {
    (median(values), coefficient_of_variation(values))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const FIVE: Limit = Limit { max_regression: 0.05, power: 0.95 };

    /// As many values with this middle and spread, evenly laid out.
    fn around(middle: f64, spread: f64, runs: usize) -> Vec<f64> {
        (0..runs).map(|i| middle + spread * (((i * 5) % 8) as f64 / 3.5 - 1.0)).collect()
    }

    fn looked(middle: f64, spread: f64, runs: usize) -> Look {
        look(&around(middle, spread, runs), &around(0.0, spread, runs), &FIVE)
    }

    #[test]
    fn a_loss_is_worse_only_when_sure_and_beyond_the_floor() {
        for (middle, spread, runs, state) in [
            (-0.06, 0.01, 8, State::Worse),
            (-0.03, 0.005, 8, State::Worse),
            // Sure, and below 2 %.
            (-0.01, 0.001, 8, State::Sound),
            (0.0, 0.01, 8, State::Sound),
            (0.2, 0.01, 8, State::Sound),
            // A loss that nobody could have seen.
            (0.0, 0.2, 8, State::Open),
            (-0.06, 0.2, 16, State::Open),
            // Too few to say anything.
            (-0.06, 0.0, 6, State::Open),
            (0.0, 0.0, 6, State::Open),
        ] {
            assert_eq!(looked(middle, spread, runs).state, state, "{middle} {spread} {runs}");
        }
    }

    #[test]
    fn equal_figures_are_sound() {
        let look = looked(0.0, 0.0, 8);
        assert_eq!((look.state, look.ratio), (State::Sound, 1.0));
        assert_eq!(look.detectable, FIVE.floor());
        assert!(look.p_worse >= 0.5);
    }

    #[test]
    fn a_session_starts_with_a_pilot_and_ends_when_decided_or_at_the_cap() {
        let step =
            |middle: f64, spread: f64, runs: usize| next(&[(looked(middle, spread, runs), FIVE)], MOST_RUNS);
        assert_eq!(next(&[], MOST_RUNS), Next::RunTo(PILOT_RUNS));
        assert_eq!(step(0.0, 0.01, 4), Next::RunTo(6));
        assert_eq!(step(0.0, 0.01, 6), Next::RunTo(8));
        assert_eq!(step(0.0, 0.01, 8), Next::Stop);
        assert_eq!(step(-0.2, 0.01, 8), Next::Stop);
        let Next::RunTo(wanted) = step(0.0, 0.05, 6) else { panic!("it goes on") };
        assert!(wanted > 12 && wanted <= MOST_RUNS && wanted.is_multiple_of(2), "{wanted}");
        assert_eq!(step(0.0, 0.2, 32), Next::Stop);
        assert_eq!(step(0.0, 3.0, 8), Next::Stop);
        // Where a matrix allows no more than the fewest.
        let dear = |runs: usize| next(&[(looked(0.0, 0.05, runs), FIVE)], FEWEST_RUNS);
        assert_eq!((dear(6), dear(8)), (Next::RunTo(8), Next::Stop));
    }

    #[test]
    fn the_cap_is_what_nearly_five_per_cent_of_noise_takes_to_see_five() {
        let wanted = runs_wanted(0.047, &FIVE);
        assert!(wanted < MOST_RUNS as f64 && wanted > 0.9 * MOST_RUNS as f64, "{wanted}");
    }

    #[test]
    fn a_look_at_more_runs_must_be_surer() {
        assert_eq!((level(8), level(12), level(13), level(32)), (ALPHA, ALPHA, LATE_ALPHA, LATE_ALPHA));
        // Candidate values low enough for one level and not for the other, at 16 runs an arm.
        let baseline: Vec<f64> = (0..16).map(f64::from).map(|i| 0.01 * i).collect();
        let candidate: Vec<f64> = baseline.iter().map(|v| v - 0.0405).collect();
        let looked = look(&candidate, &baseline, &FIVE);
        assert!(looked.p_worse < ALPHA && looked.p_worse > LATE_ALPHA, "{looked:?}");
        assert_eq!(looked.state, State::Open);
        // As many runs as a look takes are planned at the level that will hold.
        let plain = |spread| runs_for_power(spread, -0.95_f64.ln(), ALPHA, FIVE.power);
        assert_eq!(runs_wanted(0.03, &FIVE), plain(0.03));
        assert!(runs_wanted(0.04, &FIVE) > 1.1 * plain(0.04));
    }

    #[test]
    fn one_red_session_is_not_enough() {
        for (first, second, expected) in [
            (State::Sound, None, Outcome::Pass),
            (State::Open, None, Outcome::Inconclusive),
            (State::Worse, None, Outcome::Inconclusive),
            (State::Worse, Some(State::Worse), Outcome::Worse),
            (State::Worse, Some(State::Sound), Outcome::Pass),
            (State::Worse, Some(State::Open), Outcome::Inconclusive),
        ] {
            assert_eq!(outcome(first, second), expected);
        }
    }

    fn figures() -> impl Strategy<Value = (Vec<f64>, Vec<f64>)> {
        prop::collection::vec((-0.3_f64..0.3, -0.3_f64..0.3), 0..17).prop_map(|runs| runs.into_iter().unzip())
    }

    proptest! {
        #[test]
        fn no_figure_is_worse_both_ways((a, b) in figures(), limit in 0.01_f64..0.5) {
            let limit = Limit { max_regression: limit, power: 0.9 };
            let (one, other) = (look(&a, &b, &limit), look(&b, &a, &limit));
            prop_assert!(one.state != State::Worse || other.state != State::Worse);
            prop_assert!((one.ratio * other.ratio - 1.0).abs() < 1e-9);
            prop_assert!((one.spread - other.spread).abs() < 1e-12);
        }

        #[test]
        fn a_build_against_itself_is_never_worse((a, _) in figures(), limit in 0.01_f64..0.5) {
            let looked = look(&a, &a, &Limit { max_regression: limit, power: 0.9 });
            prop_assert!(looked.state != State::Worse);
        }

        #[test]
        fn sessions_end(
            a in prop::collection::vec(-0.3_f64..0.3, 32), b in prop::collection::vec(-0.3_f64..0.3, 32),
            limit in 0.01_f64..0.5
        ) {
            let limit = Limit { max_regression: limit, power: 0.9 };
            let (mut runs, mut looks) = (0, 0);
            while let Next::RunTo(target) = next(&[(look(&a[..runs], &b[..runs], &limit), limit)], MOST_RUNS) {
                prop_assert!(target > runs && target <= MOST_RUNS && target.is_multiple_of(2));
                runs = target;
                looks += 1;
            }
            prop_assert!(looks <= 7);
        }
    }
}
