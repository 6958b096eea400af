//! Rank statistics of few, noisy figures: exact tests, shifts with confidence bounds, spread, and how many runs a wanted
//! power takes. Plain functions; every formula names its source.
//!
//! Sources: Hollander, Wolfe, Chicken, *Nonparametric Statistical Methods* (3rd ed. 2014), chapter 4, called HWC
//! below.

use statrs::distribution::{ContinuousCDF as _, Normal};

/// Asymptotic efficiency of a rank test beside the t test where errors are normal: 3/π (HWC 4.8).
pub const RANK_EFFICIENCY: f64 = 3.0 / std::f64::consts::PI;

/// Up to so many values in all, the two-sample null distribution is counted exactly; above, the normal approximation with
/// its corrections for ties and continuity is good to the third digit (HWC 4.1, comment 6).
const EXACT_VALUES: usize = 40;

/// A shift with one-sided confidence bounds; a bound that the data cannot give is infinite.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Shift {
    /// The Hodges-Lehmann estimate.
    pub estimate: f64,
    /// The true shift is above this, at the confidence asked for.
    pub lower: f64,
    /// The true shift is below this, at the confidence asked for.
    pub upper: f64,
}

/// The middle value, or the mean of the two middle ones; NaN where there are none.
pub fn median(values: &[f64]) -> f64 {
    quantile(values, 0.5)
}

/// The value below which this share of the values lies, interpolated linearly (definition 7 of Hyndman and Fan 1996); NaN
/// where there are none.
pub fn quantile(values: &[f64], share: f64) -> f64 {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    let Some(last) = sorted.len().checked_sub(1) else { return f64::NAN };
    let at = share.clamp(0.0, 1.0) * last as f64;
    let below = at.floor() as usize;
    let above = (below + 1).min(last);
    sorted[below] + (at - below as f64) * (sorted[above] - sorted[below])
}

/// Standard deviation over mean; 0 for fewer than two values.
pub fn coefficient_of_variation(values: &[f64]) -> f64 {
    if values.len() < 2 {
        return 0.0;
    }
    let n = values.len() as f64;
    let mean = values.iter().sum::<f64>() / n;
    let variance = values.iter().map(|v| (v - mean).powi(2)).sum::<f64>() / (n - 1.0);
    variance.sqrt() / mean.abs()
}

/// The standard deviation that Gini's mean difference stands for under normal errors: √π/2 times the mean absolute
/// difference of two values. Unbiased for any number of values, nearly as efficient as the classical estimate, and moved
/// less by single outliers (David, *Gini's mean difference rediscovered*, Biometrika 55, 1968). 0 for fewer than two.
pub fn gini_deviation(values: &[f64]) -> f64 {
    let n = values.len();
    if n < 2 {
        return 0.0;
    }
    let sum: f64 = (0..n)
        .flat_map(|i| values[..i].iter().map(move |v| (i, v)))
        .map(|(i, v)| (values[i] - v).abs())
        .sum();
    sum / (n * (n - 1) / 2) as f64 * std::f64::consts::PI.sqrt() / 2.0
}

/// The chance, where two samples have one distribution, of `a` ranking as low against `b` as it does, or lower:
/// Mann-Whitney (Wilcoxon rank sum), one-sided, exact with ties given (mid-ranks; HWC 4.1, comment 9) for up to 40 values
/// in all. 1 where a sample is empty.
pub fn mann_whitney_p_less(a: &[f64], b: &[f64]) -> f64 {
    let (n, m) = (a.len(), b.len());
    if n == 0 || m == 0 {
        return 1.0;
    }
    let pooled: Vec<f64> = a.iter().chain(b).copied().collect();
    let (ranks, tie_term) = doubled_ranks(&pooled);
    let observed: usize = ranks[..n].iter().sum();
    if n + m <= EXACT_VALUES {
        // Every choice of n ranks is equally likely; count those with a sum as low.
        let highest: usize = ranks.iter().sum();
        let mut ways = vec![vec![0.0_f64; highest + 1]; n + 1];
        ways[0][0] = 1.0;
        for (seen, rank) in ranks.iter().enumerate() {
            for taken in (1..=n.min(seen + 1)).rev() {
                let (fewer, more) = ways.split_at_mut(taken);
                for sum in *rank..=highest {
                    more[0][sum] += fewer[taken - 1][sum - rank];
                }
            }
        }
        let all: f64 = ways[n].iter().sum();
        return ways[n][..=observed].iter().sum::<f64>() / all;
    }
    let (n, m) = (n as f64, m as f64);
    let total = n + m;
    let mean = n * (total + 1.0) / 2.0;
    let variance = n * m / 12.0 * (total + 1.0 - tie_term / (total * (total - 1.0)));
    normal_p_less(observed as f64 / 2.0, mean, variance)
}

/// By how much `a` typically exceeds `b`, with bounds of one-sided confidence `1 - alpha`: the median of all differences of
/// one value of each (Hodges-Lehmann), and the order statistics of those differences that Mann-Whitney allows (HWC 4.2, 4.3;
/// the null distribution by its normal approximation, comment 20).
pub fn two_sample_shift(a: &[f64], b: &[f64], alpha: f64) -> Shift {
    let mut differences: Vec<f64> = a.iter().flat_map(|a| b.iter().map(move |b| a - b)).collect();
    differences.sort_by(f64::total_cmp);
    let (n, m) = (a.len() as f64, b.len() as f64);
    let deviation = (n * m * (n + m + 1.0) / 12.0).sqrt();
    let outside = (n * m / 2.0 + 0.5 + normal_quantile(alpha) * deviation).floor().max(0.0) as usize;
    let bound = |at: Option<usize>| if outside == 0 { None } else { differences.get(at?).copied() };
    Shift {
        estimate: median(&differences),
        lower: bound(outside.checked_sub(1)).unwrap_or(f64::NEG_INFINITY),
        upper: bound(differences.len().checked_sub(outside)).unwrap_or(f64::INFINITY),
    }
}

/// The point below which a standard normal variable lies with this probability.
pub fn normal_quantile(probability: f64) -> f64 {
    Normal::standard().inverse_cdf(probability)
}

/// How many runs an arm Mann-Whitney takes at level `alpha` to see a shift of `shift` with probability `power`, where one
/// run has standard deviation `deviation`: the normal sample size over the rank test's efficiency (HWC 4.1, comment 12, and
/// 4.8; Noether, JASA 82, 1987). As a real number; infinite for a shift of 0.
pub fn runs_for_power(deviation: f64, shift: f64, alpha: f64, power: f64) -> f64 {
    let z = normal_quantile(1.0 - alpha) + normal_quantile(power);
    2.0 * (deviation * z / shift).powi(2) / RANK_EFFICIENCY
}

/// The smallest shift that so many runs an arm see with probability `power`: [`runs_for_power`] solved for the shift.
pub fn shift_for_runs(deviation: f64, runs: usize, alpha: f64, power: f64) -> f64 {
    let z = normal_quantile(1.0 - alpha) + normal_quantile(power);
    deviation * z * (2.0 / (RANK_EFFICIENCY * runs as f64)).sqrt()
}

/// Holm's adjusted p values, in the order given: the smallest level at which his step-down procedure, which holds the
/// chance of any false rejection, would reject (Holm, Scandinavian Journal of Statistics 6, 1979).
pub fn holm(p_values: &[f64]) -> Vec<f64> {
    let mut order: Vec<usize> = (0..p_values.len()).collect();
    order.sort_by(|a, b| p_values[*a].total_cmp(&p_values[*b]));
    let mut adjusted = vec![1.0; p_values.len()];
    let mut highest = 0.0_f64;
    for (rank, index) in order.into_iter().enumerate() {
        highest = highest.max(((p_values.len() - rank) as f64 * p_values[index]).min(1.0));
        adjusted[index] = highest;
    }
    adjusted
}

/// The slope of `values` over their index: the median of all slopes between two of them (Theil 1950, Sen 1968). 0 for
/// fewer than two.
pub fn theil_sen_slope(values: &[f64]) -> f64 {
    if values.len() < 2 {
        return 0.0;
    }
    let slopes: Vec<f64> = (0..values.len())
        .flat_map(|later| (0..later).map(move |earlier| (earlier, later)))
        .map(|(earlier, later)| (values[later] - values[earlier]) / (later - earlier) as f64)
        .collect();
    median(&slopes)
}

/// Where a series most likely changed its level, as the index of the first value of the new one, and the chance of a change
/// as clear were there none: Pettitt's rank test with his approximation of p, which is on the safe side for few values
/// (*A non-parametric approach to the change-point problem*, Applied Statistics 28, 1979). `None` for fewer than two.
pub fn pettitt(values: &[f64]) -> Option<(usize, f64)> {
    let n = values.len() as f64;
    let (ranks, _) = doubled_ranks(values);
    let mut sum = 0.0;
    let statistics = (1..values.len()).map(|split| {
        sum += ranks[split - 1] as f64;
        (split, (sum - split as f64 * (n + 1.0)).abs())
    });
    // The earliest of equally clear ones.
    let (at, most) = statistics.max_by(|a, b| a.1.total_cmp(&b.1).then_with(|| b.0.cmp(&a.0)))?;
    Some((at, (2.0 * (-6.0 * most * most / (n.powi(3) + n.powi(2))).exp()).min(1.0)))
}

/// Twice the mid-rank of each value, and the sum of t³ − t over groups of t equal values.
fn doubled_ranks(values: &[f64]) -> (Vec<usize>, f64) {
    let mut order: Vec<usize> = (0..values.len()).collect();
    order.sort_by(|a, b| values[*a].total_cmp(&values[*b]));
    let mut ranks = vec![0; values.len()];
    let mut tie_term = 0.0;
    let mut start = 0;
    while start < order.len() {
        let end = start + order[start..].iter().take_while(|i| values[**i] == values[order[start]]).count();
        // Ranks start + 1 to end share their mean, (start + 1 + end) / 2.
        order[start..end].iter().for_each(|i| ranks[*i] = start + 1 + end);
        let t = (end - start) as f64;
        tie_term += t * t * t - t;
        start = end;
    }
    (ranks, tie_term)
}

fn normal_p_less(observed: f64, mean: f64, variance: f64) -> f64 {
    if variance <= 0.0 {
        return 1.0;
    }
    Normal::standard().cdf((observed + 0.5 - mean) / variance.sqrt())
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn near(a: f64, b: f64) -> bool {
        (a - b).abs() < 1e-9
    }

    #[test]
    fn exact_chances_are_those_of_counting() {
        // All of 2 below all of 2: one of the 6 choices.
        assert!(near(mann_whitney_p_less(&[1.0, 2.0], &[3.0, 4.0]), 1.0 / 6.0));
        assert!(near(mann_whitney_p_less(&[3.0, 4.0], &[1.0, 2.0]), 1.0));
        // Ranks 1, 2.5 | 2.5, 4: of the 6 sums 3.5, 3.5, 5, 5, 6.5, 6.5 two are as low.
        assert!(near(mann_whitney_p_less(&[1.0, 2.0], &[2.0, 4.0]), 2.0 / 6.0));
        assert!(near(mann_whitney_p_less(&[], &[1.0]), 1.0));
    }

    #[test]
    fn approximations_take_over_smoothly() {
        let sample = |n: usize, shift: f64| -> Vec<f64> {
            (0..n).map(|i| ((i * 7919) % 1009) as f64 / 100.0 + shift).collect()
        };
        let (a, b) = (sample(20, -0.9), sample(20, 0.0));
        let exact = mann_whitney_p_less(&a, &b);
        let pooled: Vec<f64> = a.iter().chain(&b).copied().collect();
        let (ranks, _) = doubled_ranks(&pooled);
        let sum = ranks[..20].iter().sum::<usize>() as f64 / 2.0;
        let approximate = normal_p_less(sum, 20.0 * 41.0 / 2.0, 20.0 * 20.0 * 41.0 / 12.0);
        assert!((exact - approximate).abs() < 3e-3, "{exact} {approximate}");
    }

    #[test]
    fn bounds_are_the_order_statistics_of_the_tables() {
        // Eight each: P(U ≤ 15) = .0415 < .05 ≤ P(U ≤ 16), so the sixteenth smallest difference is the bound.
        let (a, b): (Vec<f64>, Vec<f64>) =
            ((0..8).map(|i| 100.0 + f64::from(i)).collect(), (0..8).map(|i| 8.0 * f64::from(i)).collect());
        let shift = two_sample_shift(&a, &b, 0.05);
        assert!(
            near(shift.lower, 59.0) && near(shift.upper, 92.0) && near(shift.estimate, 75.5),
            "{shift:?}"
        );
        // Two of each cannot give 99 %.
        let few = two_sample_shift(&a[..2], &b[..2], 0.01);
        assert_eq!((few.lower, few.upper), (f64::NEG_INFINITY, f64::INFINITY));
        let equal = two_sample_shift(&[2.0; 20], &[1.0; 20], 0.01);
        assert!(near(equal.estimate, 1.0) && near(equal.lower, 1.0) && near(equal.upper, 1.0), "{equal:?}");
        assert!(two_sample_shift(&[], &[], 0.01).estimate.is_nan());
    }

    #[test]
    fn spread_and_power_have_their_textbook_values() {
        assert!(near(median(&[3.0, 1.0, 2.0, 10.0]), 2.5));
        assert!(near(quantile(&[0.0, 1.0, 2.0, 3.0, 4.0], 0.95), 3.8));
        assert!(near(coefficient_of_variation(&[9.0, 10.0, 11.0]), 0.1));
        assert!(near(gini_deviation(&[0.0, 1.0]), std::f64::consts::PI.sqrt() / 2.0));
        assert!((normal_quantile(0.99) - 2.326_347_9).abs() < 1e-6);
        // (2.326 + 1.282)² · 2 · 1 / (3/π) = 27.26
        assert!((runs_for_power(0.05, 0.05, 0.01, 0.9) - 27.26).abs() < 0.01);
        let shift = shift_for_runs(0.02, 12, 0.01, 0.9);
        assert!((runs_for_power(0.02, shift, 0.01, 0.9) - 12.0).abs() < 1e-9);
        assert!(near(theil_sen_slope(&[1.0, 3.0, 5.0, 100.0, 9.0]), 2.0));
    }

    #[test]
    fn holm_steps_down_and_never_falls() {
        let adjusted = holm(&[0.01, 0.04, 0.03, 0.005]);
        assert!(adjusted.iter().zip([0.03, 0.06, 0.06, 0.02]).all(|(a, b)| near(*a, b)), "{adjusted:?}");
        assert_eq!(holm(&[0.9, 0.8]), [1.0, 1.0]);
        assert!(holm(&[]).is_empty());
    }

    proptest! {
        #[test]
        fn swapped_samples_share_the_whole_of_the_chance(
            a in prop::collection::vec(0_u8..12, 1..7), b in prop::collection::vec(0_u8..12, 1..7)
        ) {
            let (a, b): (Vec<f64>, Vec<f64>) =
                (a.into_iter().map(f64::from).collect(), b.into_iter().map(f64::from).collect());
            // Both tails hold the observed outcome, so together they exceed 1.
            let (one, other) = (mann_whitney_p_less(&a, &b), mann_whitney_p_less(&b, &a));
            prop_assert!(one + other > 1.0 - 1e-9 && one <= 1.0 + 1e-9 && one > 0.0);
            let (shift, back) = (two_sample_shift(&a, &b, 0.05), two_sample_shift(&b, &a, 0.05));
            prop_assert!(near(shift.estimate, -back.estimate));
            prop_assert!(shift.lower == -back.upper || near(shift.lower, -back.upper));
        }
    }

    #[test]
    fn a_change_of_level_is_found_where_it_is() {
        let values: Vec<f64> = (0..16).map(|i| f64::from(i % 3) + if i < 6 { 0.0 } else { 9.0 }).collect();
        let (at, p) = pettitt(&values).unwrap();
        // K = 6 · 10, all of the one side below all of the other.
        assert_eq!(at, 6);
        assert!((p - 2.0 * (-6.0 * 3600.0 / (4096.0 + 256.0_f64)).exp()).abs() < 1e-12, "{p}");
        let (_, p) = pettitt(&[1.0, 2.0, 1.0, 2.0, 1.0, 2.0]).unwrap();
        assert!(p > 0.5, "{p}");
        assert_eq!(pettitt(&[1.0]), None);
    }
}
