//! Affine quantization of a weight matrix in groups, as MLX stores it: whole numbers packed into 32-bit words from the lowest
//! bits up, and for each group a scale and a bias with `weight = scale × number + bias`.

use std::borrow::Cow;

use safetensors::{Dtype, View};

use super::synthetic::SyntheticTensor;
use crate::config::spec::Quantization;

/// Smaller scales are taken for this, so that a group of equal weights has one.
const SMALLEST_SCALE: f32 = 1e-7;

/// A quantized matrix.
#[derive(Debug, Clone, PartialEq)]
pub struct Quantized {
    /// The packed numbers, row by row.
    pub words: Vec<u32>,
    /// One a group, row by row.
    pub scales: Vec<f32>,
    /// One a group, row by row.
    pub biases: Vec<f32>,
}

/// Quantizes a matrix whose rows are whole groups. The weight of a group that is farthest from zero keeps its value, and zero
/// stays zero.
#[must_use]
pub fn quantize(weights: &[f32], how: &Quantization) -> Quantized {
    let most = ((1_u32 << how.bits) - 1) as f32;
    let a_word = 32 / how.bits as usize;
    let mut out = Quantized { words: Vec::new(), scales: Vec::new(), biases: Vec::new() };
    for group in weights.chunks_exact(how.group_size) {
        let least = group.iter().copied().fold(f32::INFINITY, f32::min);
        let largest = group.iter().copied().fold(f32::NEG_INFINITY, f32::max);
        let width = ((largest - least) / most).max(SMALLEST_SCALE);
        let (edge, scale) = if least.abs() > largest.abs() { (least, width) } else { (largest, -width) };
        let steps = (edge / scale).round_ties_even();
        let (scale, bias) = if steps == 0.0 { (scale, 0.0) } else { (edge / steps, edge) };
        out.scales.push(scale);
        out.biases.push(bias);
        let number = |w: &f32| ((w - bias) / scale).round_ties_even().clamp(0.0, most) as u32;
        out.words.extend(group.chunks_exact(a_word).map(|part| {
            part.iter().enumerate().fold(0, |word, (at, w)| word | number(w) << (at as u32 * how.bits))
        }));
    }
    out
}

/// What an engine computes with.
#[must_use]
pub fn dequantize(quantized: &Quantized, how: &Quantization) -> Vec<f32> {
    let a_word = 32 / how.bits as usize;
    let mask = u32::MAX >> (32 - how.bits);
    let words_a_group = how.group_size / a_word;
    quantized
        .words
        .iter()
        .enumerate()
        .flat_map(|(index, word)| {
            let group = index / words_a_group;
            let (scale, bias) = (quantized.scales[group], quantized.biases[group]);
            (0..a_word).map(move |at| {
                let number = word >> (at as u32 * how.bits) & mask;
                scale * number as f32 + bias
            })
        })
        .collect()
}

/// Whether a tensor is quantized: a matrix of whole groups, as MLX's own layers and embeddings are.
#[must_use]
pub fn applies_to(tensor: &SyntheticTensor, how: &Quantization) -> bool {
    matches!(tensor.shape[..], [_, columns] if columns.is_multiple_of(how.group_size))
}

/// Which part of a quantized matrix a tensor of the file holds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Part {
    Words,
    Scales,
    Biases,
}

/// A tensor of a quantized checkpoint; its numbers are made when they are asked for.
#[derive(Debug, Clone, PartialEq)]
pub struct StoredTensor {
    /// Its name in the file.
    pub name: String,
    shape: Vec<usize>,
    of: SyntheticTensor,
    part: Option<(Part, Quantization)>,
}

/// What a checkpoint's file holds of these tensors: each quantized one in three parts.
#[must_use]
pub fn stored(tensors: Vec<SyntheticTensor>, how: Option<&Quantization>) -> Vec<StoredTensor> {
    let mut out = Vec::new();
    for tensor in tensors {
        let Some(how) = how.filter(|how| applies_to(&tensor, how)) else {
            out.push(StoredTensor {
                name: tensor.name.clone(),
                shape: tensor.shape.clone(),
                of: tensor,
                part: None,
            });
            continue;
        };
        let [rows, columns] = tensor.shape[..] else { continue };
        let stem = tensor.name.trim_end_matches("weight").to_owned();
        for (part, name, columns) in [
            (Part::Words, "weight", columns * how.bits as usize / 32),
            (Part::Scales, "scales", columns / how.group_size),
            (Part::Biases, "biases", columns / how.group_size),
        ] {
            out.push(StoredTensor {
                name: format!("{stem}{name}"),
                shape: vec![rows, columns],
                of: tensor.clone(),
                part: Some((part, how.clone())),
            });
        }
    }
    out
}

impl View for &StoredTensor {
    fn dtype(&self) -> Dtype {
        match self.part {
            Some((Part::Words, _)) => Dtype::U32,
            Some((Part::Scales | Part::Biases, _)) => Dtype::F32,
            None => self.of.dtype(),
        }
    }

    fn shape(&self) -> &[usize] {
        &self.shape
    }

    fn data(&self) -> Cow<'_, [u8]> {
        let Some((part, how)) = &self.part else { return Cow::Owned(self.of.data().into_owned()) };
        let whole = quantize(&self.of.values(), how);
        Cow::Owned(match part {
            Part::Words => whole.words.iter().flat_map(|word| word.to_le_bytes()).collect(),
            Part::Scales => whole.scales.iter().flat_map(|scale| scale.to_le_bytes()).collect(),
            Part::Biases => whole.biases.iter().flat_map(|bias| bias.to_le_bytes()).collect(),
        })
    }

    fn data_len(&self) -> usize {
        match self.part {
            Some(_) => self.shape.iter().product::<usize>() * 4,
            None => self.of.data_len(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::spec::ModeKey;

    fn how(bits: u32, group_size: usize) -> Quantization {
        Quantization { bits, group_size, mode_key: ModeKey::Stated }
    }

    fn weights(count: usize) -> Vec<f32> {
        (0..count).map(|i| ((i * 7919 + 13) % 1009) as f32 / 1009.0 - 0.4).collect()
    }

    #[test]
    fn what_comes_back_is_within_half_a_step_and_extremes_are_exact() {
        for (bits, group_size) in [(4, 32), (4, 64), (4, 128), (8, 32), (8, 64), (8, 128)] {
            let (how, weights) = (how(bits, group_size), weights(512));
            let quantized = quantize(&weights, &how);
            assert_eq!(quantized.words.len(), 512 * bits as usize / 32);
            assert_eq!(quantized.scales.len(), 512 / group_size);
            for (group, (own, back)) in
                weights.chunks(group_size).zip(dequantize(&quantized, &how).chunks(group_size)).enumerate()
            {
                let step = quantized.scales[group].abs();
                // Moving zero onto a whole number stretches the range by up to half a step.
                for (w, b) in own.iter().zip(back) {
                    assert!(
                        (w - b).abs() <= step * 1.01,
                        "{bits} bits: {w} came back as {b}, a step is {step}"
                    );
                }
                let far = own.iter().copied().max_by(|a, b| a.abs().total_cmp(&b.abs())).unwrap();
                assert!(back.contains(&far), "{far} is not among what came back");
            }
        }
    }

    #[test]
    fn numbers_lie_in_a_word_from_the_lowest_bits_up() {
        // With a scale of 1 and a bias of 0 the numbers are the weights: -15 is the farthest and becomes the bias.
        let mut group: Vec<f32> = (0..32).map(|i| (i % 16) as f32 - 15.0).collect();
        group[15] = 0.0;
        let quantized = quantize(&group, &how(4, 32));
        assert_eq!((quantized.scales[0], quantized.biases[0]), (1.0, -15.0));
        assert_eq!(quantized.words[..2], [0x7654_3210, 0xfedc_ba98]);
    }

    #[test]
    fn equal_weights_have_a_scale() {
        let how = how(8, 32);
        assert_eq!(dequantize(&quantize(&[0.0; 32], &how), &how), [0.0; 32]);
        let back = dequantize(&quantize(&[0.25; 32], &how), &how);
        assert!(back.iter().all(|w| (w - 0.25).abs() < 1e-6), "{back:?}");
    }
}
