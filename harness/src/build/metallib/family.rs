//! Answers which family a kernel belongs to, by its name alone. Families follow the kernel files of MLX, so that "the
//! family changed" reads as "that file's kernels changed"; what a family means for the matrix is decided elsewhere.

/// The family of kernels that `name` belongs to. The first rule that fits decides:
///
/// 1. a shape prefix of the elementwise kernels (`s`, `v`, `ss`, `sv`, `vs`, `vv`, `g1`…, each with `n`, `2` or `large` where MLX has
///    them), an underscore, and an operation: `copy`, `ternary` (`Select`), `binary` (an operation of two operands) or `unary`;
/// 2. a prefix in [`PREFIXES`], and for matrix-vector kernels what stands inside the name;
/// 3. otherwise the letters up to the first underscore or digit.
///
/// Kernels for the neural accelerators (`_nax`) form families of their own: the family above with `-nax`.
#[must_use]
pub fn family(name: &str) -> String {
    let family = elementwise(name).or_else(|| by_prefix(name)).unwrap_or_else(|| {
        let end = name.find(|c: char| c == '_' || c.is_ascii_digit()).unwrap_or(name.len());
        if end == 0 { "other" } else { &name[..end] }
    });
    if is_nax(name) { format!("{family}-nax") } else { family.to_owned() }
}

/// Whether a kernel is written for the neural accelerators, which need an OS of 26.2 or later.
#[must_use]
pub fn is_nax(name: &str) -> bool {
    name.contains("_nax")
}

/// Prefix of a kernel's name, and its family; the first match counts.
pub const PREFIXES: [(&str, &str); 46] = [
    ("affine_", "quantized"),
    ("mxfp4_", "fp-quantized"),
    ("mxfp8_", "fp-quantized"),
    ("nvfp4_", "fp-quantized"),
    ("steel_attention", "steel-attention"),
    ("steel_gemm_block", "steel-gemm-masked"),
    ("steel_gemm_splitk", "steel-gemm-splitk"),
    ("steel_gemm", "steel-gemm-fused"),
    ("steel_gather", "steel-gemm-gather"),
    ("steel_segmented", "steel-gemm-segmented"),
    ("gather_mm", "steel-gemm-gather"),
    ("sdpa_vector", "sdpa-vector"),
    ("gemv_", "gemv"),
    ("dot_product", "gemv"),
    ("rope_", "rope"),
    ("rms", "rms-norm"),
    ("vjp_rms", "rms-norm"),
    ("layer_norm", "layer-norm"),
    ("vjp_layer_norm", "layer-norm"),
    ("block_softmax", "softmax"),
    ("looped_softmax", "softmax"),
    ("block_logsumexp", "logsumexp"),
    ("looped_logsumexp", "logsumexp"),
    ("cross_entropy", "cross-entropy"),
    ("gated_delta", "gated-delta"),
    ("seq_gated_delta", "gated-delta"),
    ("searchsorted", "searchsorted"),
    ("arange", "arange"),
    ("argmax_", "arg-reduce"),
    ("argmin_", "arg-reduce"),
    ("all_reduce", "reduce"),
    ("col_reduce", "reduce"),
    ("row_reduce", "reduce"),
    ("init_reduce", "reduce"),
    ("contig_scan", "scan"),
    ("strided_scan", "scan"),
    ("c_block", "sort"),
    ("nc_block", "sort"),
    ("carg_block", "sort"),
    ("ncarg_block", "sort"),
    ("rbits", "random"),
    ("implicit_gemm", "conv"),
    ("naive_unfold", "conv"),
    ("winograd_conv", "conv"),
    ("depthwise_conv", "conv"),
    ("fence_", "fence"),
];

/// Operations of two operands. A name's operation is followed by its types, so that these are prefixes.
const BINARY: [&str; 25] = [
    "Add",
    "ArcTan2",
    "BitwiseAnd",
    "BitwiseOr",
    "BitwiseXor",
    "DivMod",
    "Divide",
    "Equal",
    "FloorDivide",
    "Greater",
    "LeftShift",
    "Less",
    "LogAddExp",
    "LogicalAnd",
    "LogicalOr",
    "Maximum",
    "Minimum",
    "Multiply",
    "NaNEqual",
    "NotEqual",
    "Power",
    "Remainder",
    "RightShift",
    "Subtract",
    "Xor",
];

fn elementwise(name: &str) -> Option<&'static str> {
    let (shape, operation) = name.split_once('_')?;
    let letters = shape.strip_suffix("large").unwrap_or(shape).trim_end_matches(|c: char| c.is_ascii_digit());
    const SHAPES: [&str; 14] =
        ["s", "v", "g", "ss", "sv", "vs", "vv", "gg", "sn", "vn", "gn", "svn", "vsn", "vvn"];
    if !SHAPES.contains(&letters) && letters != "ggn" {
        return None;
    }
    if operation.starts_with("copy") || operation.starts_with("dynamic_copy") {
        Some("copy")
    } else if operation.starts_with("Select") {
        Some("ternary")
    } else if BINARY.iter().any(|op| operation.starts_with(op)) {
        Some("binary")
    } else if operation.starts_with(|c: char| c.is_ascii_uppercase()) {
        Some("unary")
    } else {
        None
    }
}

fn by_prefix(name: &str) -> Option<&'static str> {
    if name.contains("_mbsort") {
        return Some("sort");
    }
    if name.contains("fft") || name.starts_with("four_step") || name.starts_with("generate_bluestein") {
        return Some("fft");
    }
    if name == "input_coherent" {
        return Some("fence");
    }
    let family = PREFIXES.iter().find(|(prefix, _)| name.starts_with(prefix)).map(|(_, family)| *family)?;
    Some(match family {
        "gemv" if name.contains("mask") => "gemv-masked",
        "gemv" if name.contains("_gather") => "gemv-gather",
        other => other,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_sorted_into_the_family_of_their_kernel_file() {
        let cases = [
            ("gg1_copybool_bool_", "copy"),
            ("ggn4large_dynamic_copyint64int64", "copy"),
            ("v2_copycomplex64int8", "copy"),
            ("g1large_Selectint16", "ternary"),
            ("vv2_LogAddExpfloat32", "binary"),
            ("gn2_ArcTan2float16", "binary"),
            ("v_ArcTanfloat16float16", "unary"),
            ("v_LogicalNotbool_bool_", "unary"),
            ("gn1_Log10float32float32", "unary"),
            ("affine_qmv_fast_float_gs_64_b_6_batch_1", "quantized"),
            ("affine_gather_qmm_rhs_nax_nt_float16_t_gs_64_b_6", "quantized-nax"),
            ("mxfp8_qmm_t_splitk_float_gs_32_b_8", "fp-quantized"),
            ("steel_attention_float16_bq32_bk32_bd256", "steel-attention"),
            ("steel_gemm_fused_nax_nt_float16", "steel-gemm-fused-nax"),
            ("gemv_t_outmask_float32_opmask_bool__float32", "gemv-masked"),
            ("gemv_wide_gather_float16_nv3_kl16", "gemv-gather"),
            ("gemv_t_float16_bm1_bn4", "gemv"),
            ("rms_loopedfloat32", "rms-norm"),
            ("carg_block_sort_uint32_uint32_bn64_tn4", "sort"),
            ("merge_mbsort_float32_uint32_bn512_tn4", "sort"),
            ("four_step_mem_512_float_float2_0_true", "fft"),
            ("input_coherent", "fence"),
            ("svd_step_float32", "svd"),
            ("_odd", "other"),
        ];
        for (name, wanted) in cases {
            assert_eq!(family(name), wanted, "{name}");
        }
    }
}
