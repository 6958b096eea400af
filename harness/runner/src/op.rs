//! Products in shapes that only models reach: their inputs, and a second formulation in f64 on the host that knows nothing
//! of the library. Rows are compared where faults of indices begin: at both ends, around powers of two, and in between.

use std::collections::BTreeSet;

use crate::{
    protocol::{Device, EngineError, OpDone, Product},
    serve::bad_request,
};

/// Inputs of more values than this are refused: 2^32, 16 GiB.
const MOST_VALUES: usize = 1 << 32;

/// So many rows are compared beside those around powers of two.
const SPREAD_ROWS: usize = 24;

/// One input: values in row-major order, and their shape.
pub(crate) struct Input {
    pub(crate) values: Vec<f32>,
    pub(crate) shape: Vec<i32>,
}

/// What a library made of the inputs.
pub(crate) struct Computed {
    /// The result in row-major order.
    pub(crate) values: Vec<f32>,
    /// The quantized weights, where the product has any.
    pub(crate) quantized: Option<Quantized>,
    /// How long it took.
    pub(crate) took_s: f64,
}

/// Affinely quantized weights: words hold the smallest index in their lowest bits.
pub(crate) struct Quantized {
    pub(crate) words: Vec<u32>,
    pub(crate) scales: Vec<f32>,
    pub(crate) biases: Vec<f32>,
}

/// Refuses shapes that have no meaning, before a library sees them.
pub(crate) fn check(product: &Product) -> Result<(), EngineError> {
    let sound = match *product {
        Product::QuantizedMatmul { rows, inner, outer, group_size, bits } => {
            [32, 64, 128].contains(&group_size)
                && [4, 8].contains(&bits)
                && inner > 0
                && inner.is_multiple_of(group_size)
                && fits(&[rows, inner.max(outer)])
                && fits(&[inner, outer])
        }
        Product::Attention { queries, keys, heads, kv_heads, head_dim } => {
            kv_heads > 0
                && heads.is_multiple_of(kv_heads)
                && queries <= keys
                && fits(&[heads, queries, head_dim])
                && fits(&[kv_heads, keys, head_dim])
        }
        Product::Rope { offset, length, batch, heads, head_dim, base } => {
            head_dim.is_multiple_of(2)
                && base > 1.0
                && offset + length < i32::MAX as usize
                && fits(&[batch, heads, length, head_dim])
        }
        Product::Concatenate { pieces, rows, width } => fits(&[pieces, rows, width]),
        Product::Repeat { rows, width, times } => fits(&[rows, width, times]),
    };
    if sound { Ok(()) } else { Err(bad_request(format!("there is no product of this shape: {product:?}"))) }
}

/// A size as MLX takes it; checked sizes fit.
pub(crate) fn int(size: usize) -> i32 {
    i32::try_from(size).unwrap_or(i32::MAX)
}

/// The inputs, the same for everybody.
pub(crate) fn inputs(product: &Product) -> Vec<Input> {
    let input = |number: u32, shape: &[usize]| Input {
        values: (0..shape.iter().product::<usize>()).map(|index| value(number, index)).collect(),
        shape: shape.iter().map(|size| int(*size)).collect(),
    };
    match *product {
        Product::QuantizedMatmul { rows, inner, outer, .. } => {
            vec![input(0, &[rows, inner]), input(1, &[outer, inner])]
        }
        Product::Attention { queries, keys, heads, kv_heads, head_dim } => vec![
            input(0, &[1, heads, queries, head_dim]),
            input(1, &[1, kv_heads, keys, head_dim]),
            input(2, &[1, kv_heads, keys, head_dim]),
        ],
        Product::Rope { length, batch, heads, head_dim, .. } => {
            vec![input(0, &[batch, heads, length, head_dim])]
        }
        Product::Concatenate { pieces, rows, width } => {
            (0..pieces).map(|piece| input(piece as u32, &[rows, width])).collect()
        }
        Product::Repeat { rows, width, .. } => vec![input(0, &[rows, width])],
    }
}

/// Compares what was computed with the second formulation.
pub(crate) fn compared(
    product: &Product,
    computed: &Computed,
    device: Device,
) -> Result<OpDone, EngineError> {
    let (rows, width) = result_shape(product);
    if computed.values.len() != rows * width {
        return Err(bad_request(format!(
            "the result has {} values where {rows} rows of {width} are right",
            computed.values.len()
        )));
    }
    let chosen = chosen_rows(rows);
    let (mut largest_gap, mut largest, mut worst_row, mut non_finite) = (0.0_f64, 0.0_f64, 0, 0);
    for &row in &chosen {
        let right = right_row(product, computed.quantized.as_ref(), row);
        for (value, right) in computed.values[row * width..][..width].iter().zip(&right) {
            largest = largest.max(right.abs());
            if !value.is_finite() {
                non_finite += 1;
                continue;
            }
            let gap = (f64::from(*value) - right).abs();
            if gap > largest_gap {
                (largest_gap, worst_row) = (gap, row);
            }
        }
    }
    Ok(OpDone {
        device,
        rows,
        checked_rows: chosen.len(),
        non_finite,
        max_error: largest_gap / largest.max(f64::MIN_POSITIVE),
        worst_row,
        took_s: computed.took_s,
    })
}

/// The value of an input at an index, in `-1..1`: a hash of both, so that no two rows are alike.
fn value(input: u32, index: usize) -> f32 {
    let index = index as u64;
    let mut x = (index as u32).wrapping_mul(0x9e37_79b1)
        ^ ((index >> 32) as u32).wrapping_mul(0x85eb_ca77)
        ^ input.wrapping_mul(0xc2b2_ae3d);
    x ^= x >> 15;
    x = x.wrapping_mul(0x2c1b_3c6d);
    x ^= x >> 12;
    x = x.wrapping_mul(0x297a_2d39);
    x ^= x >> 15;
    (x >> 8) as f32 / 8_388_608.0 - 1.0
}

fn fits(sizes: &[usize]) -> bool {
    sizes.iter().all(|size| (1..=i32::MAX as usize).contains(size))
        && sizes
            .iter()
            .try_fold(1_usize, |product, size| product.checked_mul(*size))
            .is_some_and(|n| n <= MOST_VALUES)
}

fn result_shape(product: &Product) -> (usize, usize) {
    match *product {
        Product::QuantizedMatmul { rows, outer, .. } => (rows, outer),
        Product::Attention { queries, heads, head_dim, .. } => (heads * queries, head_dim),
        Product::Rope { length, batch, heads, head_dim, .. } => (batch * heads * length, head_dim),
        Product::Concatenate { pieces, rows, width } => (pieces * rows, width),
        Product::Repeat { rows, width, times } => (rows * times, width),
    }
}

fn chosen_rows(rows: usize) -> Vec<usize> {
    let mut chosen: BTreeSet<usize> = (0..SPREAD_ROWS).map(|i| i * (rows - 1) / (SPREAD_ROWS - 1)).collect();
    for power in (8..usize::BITS).map(|bits| 1_usize << bits).take_while(|power| *power < rows) {
        chosen.extend([power - 1, power, power + 1].into_iter().filter(|row| *row < rows));
    }
    chosen.into_iter().collect()
}

/// One row of the result by plain arithmetic.
fn right_row(product: &Product, quantized: Option<&Quantized>, row: usize) -> Vec<f64> {
    let at = |input: u32, index: usize| f64::from(value(input, index));
    match *product {
        Product::QuantizedMatmul { inner, outer, group_size, bits, .. } => {
            let Some(w) = quantized else { return Vec::new() };
            let x: Vec<f64> = (0..inner).map(|i| at(0, row * inner + i)).collect();
            let in_word = 32 / bits;
            let mask = (1_u32 << bits) - 1;
            (0..outer)
                .map(|column| {
                    let weight = |i: usize| {
                        let index = column * inner + i;
                        let word = w.words[index / in_word] >> (index % in_word * bits);
                        let group = index / group_size;
                        f64::from(word & mask) * f64::from(w.scales[group]) + f64::from(w.biases[group])
                    };
                    x.iter().enumerate().map(|(i, x)| x * weight(i)).sum()
                })
                .collect()
        }
        Product::Attention { queries, keys, heads, kv_heads, head_dim } => {
            let (head, query) = (row / queries, row % queries);
            let shared = head / (heads / kv_heads);
            let seen = keys - queries + query + 1;
            let of = |input: u32, key: usize, d: usize| at(input, (shared * keys + key) * head_dim + d);
            let scores: Vec<f64> = (0..seen)
                .map(|key| {
                    let dot: f64 = (0..head_dim).map(|d| at(0, row * head_dim + d) * of(1, key, d)).sum();
                    dot / (head_dim as f64).sqrt()
                })
                .collect();
            let largest = scores.iter().copied().fold(f64::NEG_INFINITY, f64::max);
            let shares: Vec<f64> = scores.iter().map(|score| (score - largest).exp()).collect();
            let sum: f64 = shares.iter().sum();
            (0..head_dim)
                .map(|d| shares.iter().enumerate().map(|(key, share)| share / sum * of(2, key, d)).sum())
                .collect()
        }
        Product::Rope { offset, length, head_dim, base, .. } => {
            let (position, half) = ((offset + row % length) as f64, head_dim / 2);
            let turned = |i: usize| {
                let angle = position * base.powf(-(i as f64) / half as f64);
                let (a, b) = (at(0, row * head_dim + i), at(0, row * head_dim + i + half));
                (a * angle.cos() - b * angle.sin(), a * angle.sin() + b * angle.cos())
            };
            (0..half).map(|i| turned(i).0).chain((0..half).map(|i| turned(i).1)).collect()
        }
        Product::Concatenate { rows, width, .. } => {
            let (piece, row) = (row / rows, row % rows);
            (0..width).map(|i| at(piece as u32, row * width + i)).collect()
        }
        Product::Repeat { width, times, .. } => (0..width).map(|i| at(0, row / times * width + i)).collect(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn small() -> [Product; 4] {
        [
            Product::Attention { queries: 3, keys: 300, heads: 4, kv_heads: 2, head_dim: 8 },
            Product::Rope { offset: 40_000, length: 5, batch: 2, heads: 3, head_dim: 8, base: 1e6 },
            Product::Concatenate { pieces: 3, rows: 100, width: 4 },
            Product::Repeat { rows: 100, width: 4, times: 3 },
        ]
    }

    fn right(product: &Product) -> Computed {
        let rows = result_shape(product).0;
        let values =
            (0..rows).flat_map(|row| right_row(product, None, row)).map(|value| value as f32).collect();
        Computed { values, quantized: None, took_s: 0.0 }
    }

    #[test]
    fn the_second_formulation_agrees_with_itself_and_sees_one_wrong_row() {
        for product in small() {
            check(&product).unwrap();
            let mut computed = right(&product);
            let sound = compared(&product, &computed, Device::Cpu).unwrap();
            assert!(sound.max_error < 1e-6 && sound.non_finite == 0, "{product:?}: {sound:?}");
            let (rows, width) = result_shape(&product);
            computed.values[(rows - 1) * width] += 0.1;
            let wrong = compared(&product, &computed, Device::Cpu).unwrap();
            assert!(wrong.max_error > 0.05 && wrong.worst_row == rows - 1, "{product:?}: {wrong:?}");
            computed.values[0] = f32::NAN;
            assert_eq!(compared(&product, &computed, Device::Cpu).unwrap().non_finite, 1);
        }
    }

    #[test]
    fn packed_weights_are_read_from_the_lowest_bits_up() {
        let product = Product::QuantizedMatmul { rows: 1, inner: 32, outer: 1, group_size: 32, bits: 4 };
        let words: Vec<u32> = (0..4).map(|_| 0x7654_3210).collect();
        let quantized = Quantized { words, scales: vec![0.5], biases: vec![-1.0] };
        let expected: f64 = (0..32).map(|i| f64::from(value(0, i)) * ((i % 8) as f64 * 0.5 - 1.0)).sum();
        assert!((right_row(&product, Some(&quantized), 0)[0] - expected).abs() < 1e-12);
    }

    #[test]
    fn rows_around_powers_of_two_are_among_the_chosen() {
        let chosen = chosen_rows(34_992);
        for row in [0, 255, 256, 32_767, 32_768, 32_769, 34_991] {
            assert!(chosen.contains(&row), "{row}");
        }
        assert!(chosen.len() < 80, "{}", chosen.len());
        assert_eq!(chosen_rows(1), [0]);
    }

    #[test]
    fn shapes_without_meaning_are_refused() {
        for product in [
            Product::Attention { queries: 4, keys: 3, heads: 2, kv_heads: 1, head_dim: 8 },
            Product::Attention { queries: 1, keys: 3, heads: 2, kv_heads: 0, head_dim: 8 },
            Product::QuantizedMatmul { rows: 1, inner: 33, outer: 1, group_size: 32, bits: 4 },
            Product::Rope { offset: 0, length: 1, batch: 1, heads: 1, head_dim: 7, base: 1e4 },
            Product::Repeat { rows: 1 << 20, width: 1 << 20, times: 2 },
            Product::Concatenate { pieces: 0, rows: 1, width: 1 },
        ] {
            assert!(check(&product).is_err(), "{product:?}");
        }
    }
}
