"""Products of MLX in shapes that only models reach, against plain arithmetic in float64: what `harness/runner/src/op.rs`
does in Rust, on the same inputs.
"""

import time

import mlx.core as mx
import numpy as np

SPREAD_ROWS = 24


def SPOIL(result):  # noqa: N802 - replaced by the engine that imitates faults.
    return result


def values(number, shape):
    """Pseudo-random values in -1..1, the same in every language: a hash of input and index."""
    index = np.arange(int(np.prod(shape)), dtype=np.uint64)
    with np.errstate(over="ignore"):
        x = index.astype(np.uint32) * np.uint32(0x9E3779B1)
        x ^= (index >> np.uint64(32)).astype(np.uint32) * np.uint32(0x85EBCA77)
        x ^= np.uint32((number * 0xC2B2AE3D) & 0xFFFFFFFF)
        x ^= x >> np.uint32(15)
        x *= np.uint32(0x2C1B3C6D)
        x ^= x >> np.uint32(12)
        x *= np.uint32(0x297A2D39)
        x ^= x >> np.uint32(15)
    return ((x >> np.uint32(8)).astype(np.float32) / np.float32(8388608.0) - np.float32(1.0)).reshape(shape)


def chosen_rows(rows):
    chosen = {i * (rows - 1) // (SPREAD_ROWS - 1) for i in range(SPREAD_ROWS)}
    power = 256
    while power < rows:
        chosen |= {row for row in (power - 1, power, power + 1) if row < rows}
        power *= 2
    return sorted(chosen)


def done(spec):
    product, right_row = globals()["make_" + spec["product"].replace("-", "_")](spec)
    began = time.perf_counter()
    result = product()
    mx.eval(result)
    took_s = time.perf_counter() - began
    result = np.array(result)
    result = SPOIL(result.reshape(-1, result.shape[-1]))
    chosen = chosen_rows(len(result))
    largest = largest_gap = 0.0
    worst_row = non_finite = 0
    for row in chosen:
        right, got = right_row(row), result[row].astype(np.float64)
        finite = np.isfinite(got)
        non_finite += int(got.size - finite.sum())
        largest = max(largest, float(np.abs(right).max()))
        gap = float(np.abs(got - right)[finite].max(initial=0.0))
        if gap > largest_gap:
            largest_gap, worst_row = gap, row
    return {
        "rows": len(result),
        "checked_rows": len(chosen),
        "non_finite": non_finite,
        "max_error": largest_gap / max(largest, 1e-300),
        "worst_row": worst_row,
        "took_s": took_s,
    }


def make_quantized_matmul(spec):
    rows, inner, outer = spec["rows"], spec["inner"], spec["outer"]
    how = {"group_size": spec["group_size"], "bits": spec["bits"]}
    x, w = values(0, (rows, inner)), values(1, (outer, inner))
    words, scales, biases = mx.quantize(mx.array(w), **how)
    packed = np.array(words)
    in_word = 32 // spec["bits"]
    shifts = np.arange(in_word, dtype=np.uint32) * np.uint32(spec["bits"])
    levels = ((packed[..., None] >> shifts) & np.uint32((1 << spec["bits"]) - 1)).reshape(outer, inner)
    spread = lambda part: np.repeat(np.array(part).astype(np.float64), spec["group_size"], axis=1)  # noqa: E731
    weights = levels * spread(scales) + spread(biases)
    left = mx.array(x)
    return (
        lambda: mx.quantized_matmul(left, words, scales, biases, transpose=True, **how),
        lambda row: weights @ x[row].astype(np.float64),
    )


def make_attention(spec):
    queries, keys, heads, dim = spec["queries"], spec["keys"], spec["heads"], spec["head_dim"]
    q = values(0, (1, heads, queries, dim))
    k, v = (values(number, (1, spec["kv_heads"], keys, dim)) for number in (1, 2))
    arrays = [mx.array(x) for x in (q, k, v)]
    mask = "causal" if queries > 1 else None

    def right_row(row):
        head, query = divmod(row, queries)
        shared = head // (heads // spec["kv_heads"])
        seen = keys - queries + query + 1
        scores = k[0, shared, :seen].astype(np.float64) @ q[0, head, query].astype(np.float64) / np.sqrt(dim)
        shares = np.exp(scores - scores.max())
        return (shares / shares.sum()) @ v[0, shared, :seen].astype(np.float64)

    return lambda: mx.fast.scaled_dot_product_attention(*arrays, scale=dim**-0.5, mask=mask), right_row


def make_rope(spec):
    length, dim = spec["length"], spec["head_dim"]
    x = values(0, (spec["batch"], spec["heads"], length, dim))
    array, half = mx.array(x), dim // 2
    frequencies = spec["base"] ** (-np.arange(half) / half)

    def right_row(row):
        angles = (spec["offset"] + row % length) * frequencies
        flat = x.reshape(-1, dim)[row].astype(np.float64)
        a, b = flat[:half], flat[half:]
        return np.concatenate([a * np.cos(angles) - b * np.sin(angles), a * np.sin(angles) + b * np.cos(angles)])

    return (
        lambda: mx.fast.rope(
            array, dim, traditional=False, base=spec["base"], scale=1.0, offset=spec["offset"]
        ),
        right_row,
    )


def make_concatenate(spec):
    pieces = [values(number, (spec["rows"], spec["width"])) for number in range(spec["pieces"])]
    arrays = [mx.array(piece) for piece in pieces]

    def product():
        joined = arrays[0]
        for piece in arrays[1:]:
            joined = mx.concatenate([joined, piece], axis=0)
        return joined

    return product, lambda row: pieces[row // spec["rows"]][row % spec["rows"]].astype(np.float64)


def make_repeat(spec):
    x = values(0, (spec["rows"], spec["width"]))
    array = mx.array(x)
    return lambda: mx.repeat(array, spec["times"], axis=0), lambda row: x[row // spec["times"]].astype(np.float64)
