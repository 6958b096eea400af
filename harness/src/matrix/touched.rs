//! Which cells run kernels of a family, so that a changed Metal library can choose the cells that have to be looked at. What
//! a kernel is for is told by its family alone; an unknown family touches every cell.

use super::{
    cell::{Backend, Cell, CellId, Probe},
    expand::Plan,
};
use crate::engine::protocol::Product;

/// From so many prompt tokens on, attention over a prompt is one kernel of its own (`steel_attention`); below, the vector
/// kernel of decode steps serves (MLX takes it for up to 8 queries).
const VECTOR_QUERIES: usize = 8;

/// What changed families mean for a matrix.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Touched {
    /// Cells that run kernels of changed families, with those families, in the plan's order.
    pub cells: Vec<(CellId, Vec<String>)>,
    /// Changed families that no cell runs: what the matrix cannot see.
    pub unseen: Vec<String>,
}

/// The cells of a plan that the changed `families` touch. Only cells on Metal load the library.
pub fn touched<'f>(plan: &Plan, families: impl IntoIterator<Item = &'f str>) -> Touched {
    let families: Vec<&str> = families.into_iter().collect();
    let on_metal = || plan.cells.iter().map(|planned| &planned.cell).filter(|c| c.backend == Backend::Metal);
    let unseen = families.iter().filter(|family| !on_metal().any(|cell| touches(family, cell)));
    let cells = on_metal().filter_map(|cell| {
        let own: Vec<String> = families
            .iter()
            .filter(|family| touches(family, cell))
            .map(|family| (*family).to_owned())
            .collect();
        (!own.is_empty()).then(|| (cell.id.clone(), own))
    });
    Touched { cells: cells.collect(), unseen: unseen.map(|family| (*family).to_owned()).collect() }
}

/// Whether a cell runs kernels of a family. The models of a matrix are decoders of the Llama kind with weights as stored:
/// they normalize by RMS, turn positions by RoPE, and take no convolution, Fourier transform or random number.
fn touches(family: &str, cell: &Cell) -> bool {
    if let Probe::Op { product, .. } = &cell.probe {
        let plain = family.strip_suffix("-nax").unwrap_or(family);
        return match product {
            Product::QuantizedMatmul { .. } => plain == "quantized",
            Product::Attention { queries, .. } if *queries <= VECTOR_QUERIES => plain == "sdpa-vector",
            Product::Attention { .. } => plain == "steel-attention",
            Product::Rope { .. } => plain == "rope",
            Product::Concatenate { .. } | Product::Repeat { .. } => plain == "copy",
        };
    }
    let prompt = cell.context;
    let takes_ids = matches!(cell.probe, Probe::Greedy { .. } | Probe::Task { .. } | Probe::Throughput(_));
    let decodes = takes_ids || matches!(cell.probe, Probe::Logits { decode_steps, .. } if decode_steps > 0);
    match family.strip_suffix("-nax").unwrap_or(family) {
        // A prompt of a probe's own is some sentence.
        "steel-gemm-fused" | "steel-gemm-splitk" => prompt == 0 || prompt > 1,
        "steel-attention" => prompt == 0 || prompt > VECTOR_QUERIES,
        "sdpa-vector" => decodes || (prompt > 0 && prompt <= VECTOR_QUERIES),
        "gemv" => decodes || prompt == 1,
        "arg-reduce" => takes_ids,
        "quantized"
        | "fp-quantized"
        | "steel-gemm-gather"
        | "steel-gemm-masked"
        | "steel-gemm-segmented"
        | "gemv-masked"
        | "gemv-gather"
        | "layer-norm"
        | "conv"
        | "fft"
        | "random"
        | "gated-delta"
        | "cross-entropy"
        | "searchsorted"
        | "scan"
        | "sort" => false,
        _ => true,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        engine::protocol::Precision,
        matrix::expand::{Disposition, PlannedCell},
    };

    fn plan() -> Plan {
        let logits = Probe::Logits { decode_steps: 4, stretch: None };
        let cell = |context, name: &str, probe: &Probe, backend| PlannedCell {
            cell: Cell::new("llama", Precision::Source, context, name, probe.clone(), backend),
            disposition: Disposition::Run,
        };
        Plan {
            cells: vec![
                cell(8, "logits", &logits, Backend::Metal),
                cell(300, "prefill", &Probe::Logits { decode_steps: 0, stretch: None }, Backend::Metal),
                cell(300, "greedy", &Probe::Greedy { max_tokens: 4 }, Backend::Metal),
                cell(300, "greedy", &Probe::Greedy { max_tokens: 4 }, Backend::Cpu),
            ],
        }
    }

    fn told(family: &str) -> String {
        let touched = touched(&plan(), [family]);
        let cells: Vec<String> = touched.cells.iter().map(|(id, _)| id.to_string()).collect();
        if cells.is_empty() { "nothing".to_owned() } else { cells.join(" ") }
    }

    #[test]
    fn a_family_touches_the_cells_on_metal_that_run_its_kernels() {
        insta::assert_snapshot!(
            ["steel-attention", "sdpa-vector", "arg-reduce", "rope-nax", "never-heard-of", "fft", "quantized"]
                .map(|family| format!("{family}: {}", told(family)))
                .join("\n"),
            @"
        steel-attention: llama/source/300/prefill/metal llama/source/300/greedy/metal
        sdpa-vector: llama/source/8/logits/metal llama/source/300/greedy/metal
        arg-reduce: llama/source/300/greedy/metal
        rope-nax: llama/source/8/logits/metal llama/source/300/prefill/metal llama/source/300/greedy/metal
        never-heard-of: llama/source/8/logits/metal llama/source/300/prefill/metal llama/source/300/greedy/metal
        fft: nothing
        quantized: nothing
        "
        );
    }

    #[test]
    fn what_no_cell_sees_is_told() {
        let touched = touched(&plan(), ["fft", "rope", "conv"]);
        assert_eq!(touched.unseen, ["fft", "conv"]);
        assert!(touched.cells.iter().all(|(_, families)| families == &["rope"]));
    }
}
