//! What one row of logits says: the greedy choice, log-probabilities, the most likely ids, and the row on the wire.

use std::cmp::Ordering;

use base64::{Engine as _, engine::general_purpose::STANDARD};

use crate::protocol::TopToken;

/// How many logits are NaN or infinite.
pub(crate) fn non_finite(row: &[f32]) -> usize {
    row.iter().filter(|logit| !logit.is_finite()).count()
}

/// The id with the largest logit, the smallest id among equals. NaN never wins; id 0 where nothing else is there.
pub(crate) fn argmax(row: &[f32]) -> u32 {
    let mut best = (0, f32::NEG_INFINITY);
    for (id, logit) in (0..).zip(row) {
        if *logit > best.1 {
            best = (id, *logit);
        }
    }
    best.0
}

/// The logarithm of the sum of exponentials in f64: `logit - log_sum_exp(row)` is a log-probability. The row must be
/// finite and not empty.
pub(crate) fn log_sum_exp(row: &[f32]) -> f64 {
    let max = row.iter().copied().fold(f32::NEG_INFINITY, f32::max) as f64;
    max + row.iter().map(|logit| (*logit as f64 - max).exp()).sum::<f64>().ln()
}

/// The `k` most likely ids, most likely first, smallest id first among equals; all of them where the row is shorter,
/// none where the row is not finite.
pub(crate) fn top_k(row: &[f32], k: usize) -> Vec<TopToken> {
    let k = k.min(row.len());
    if k == 0 || non_finite(row) > 0 {
        return Vec::new();
    }
    let by_likelihood = |left: &u32, right: &u32| {
        row[*right as usize]
            .partial_cmp(&row[*left as usize])
            .unwrap_or(Ordering::Equal)
            .then_with(|| left.cmp(right))
    };
    let mut ids = (0..).take(row.len()).collect::<Vec<u32>>();
    if k < ids.len() {
        ids.select_nth_unstable_by(k, by_likelihood);
        ids.truncate(k);
    }
    ids.sort_unstable_by(by_likelihood);
    let normalizer = log_sum_exp(row);
    ids.into_iter().map(|id| TopToken { id, logprob: row[id as usize] as f64 - normalizer }).collect()
}

/// The row as the protocol sends it: little-endian f32 values in base64.
pub(crate) fn encode_row(row: &[f32]) -> String {
    STANDARD.encode(row.iter().flat_map(|logit| logit.to_le_bytes()).collect::<Vec<u8>>())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_smallest_id_wins_among_equals_and_nan_never_does() {
        for (row, expected) in [
            (&[1.0, 3.0, 3.0][..], 1),
            (&[-0.0, 0.0], 0),
            (&[f32::NAN, -5.0, f32::NAN], 1),
            (&[f32::NAN, f32::NAN], 0),
            (&[f32::NEG_INFINITY, -1e30], 1),
            (&[0.0, f32::INFINITY], 1),
        ] {
            assert_eq!(argmax(row), expected, "{row:?}");
        }
    }

    #[test]
    fn top_k_is_ordered_by_likelihood_then_id() {
        let ids = |row: &[f32], k| top_k(row, k).iter().map(|top| top.id).collect::<Vec<_>>();
        let row = [0.0, 2.0, 1.0, 2.0, -1.0];
        assert_eq!(ids(&row, 3), [1, 3, 2]);
        assert_eq!(ids(&row, 1), [1]);
        assert_eq!(ids(&row, 9), [1, 3, 2, 0, 4]);
        assert_eq!(ids(&row, 0), [0; 0]);
        assert_eq!(ids(&[1.0, f32::NAN], 2), [0; 0]);
        assert_eq!(ids(&[1.0, f32::INFINITY], 2), [0; 0]);
    }

    #[test]
    fn log_probabilities_sum_to_one_even_for_large_logits() {
        let row = [1000.0, 999.0, -1000.0, 1000.0];
        let total: f64 = top_k(&row, 4).iter().map(|top| top.logprob.exp()).sum();
        assert!((total - 1.0).abs() < 1e-12, "{total}");
        let even = top_k(&[-7.0; 8], 1)[0].logprob;
        assert!((even + 8f64.ln()).abs() < 1e-12, "{even}");
    }

    #[test]
    fn a_row_travels_bit_for_bit() {
        let row = [1.5f32, -0.0, f32::MIN_POSITIVE, f32::NAN];
        let bytes = STANDARD.decode(encode_row(&row)).unwrap();
        let back = bytes.chunks_exact(4).map(|b| f32::from_le_bytes([b[0], b[1], b[2], b[3]]));
        assert!(back.zip(row).all(|(left, right)| left.to_bits() == right.to_bits()));
        assert_eq!(encode_row(&[1.0]), "AACAPw==");
    }
}
