//! What every dialect over safemlx does alike: devices, values on the host, products, errors, what a model folder's
//! configuration says. The calls are the same in safemlx 0.1 and 0.3.

use std::{path::Path, time::Instant};

use safemlx::{Array, DeviceType, Dtype, Stream, error::Exception, fast, ops};
use serde_json::Value;

use crate::{
    checkpoint::bad_model,
    mlx,
    op::{self, Computed},
    protocol::{Device, EngineError, EngineErrorKind, Hello, Memory, Op, OpDone, PROTOCOL_VERSION, Product},
    timing::{self, Fault},
};

/// The CPU, with MLX made ready: weights are read there wherever the model runs, since MLX has no other reader.
pub(crate) fn reading_device() -> safemlx::Device {
    let device = safemlx::Device::new(DeviceType::Cpu, 0);
    // The first checked call replaces MLX's own error handler, which prints and ends the process.
    let _ = device.get_type();
    device
}

/// Who an engine is.
pub(crate) fn hello(engine: &str, dialect: &str, fault: &Fault) -> Result<Hello, EngineError> {
    Ok(Hello {
        protocol: PROTOCOL_VERSION,
        engine: engine.into(),
        version: fault.marked(env!("REGRAFT_ENGINE_VERSION")),
        mlx_version: mlx::version().ok_or_else(|| failed("MLX does not tell its version"))?,
        dialect: dialect.into(),
    })
}

/// A device that is there.
pub(crate) fn device_for(device: Device) -> Result<safemlx::Device, EngineError> {
    let device_type = match device {
        Device::Cpu => DeviceType::Cpu,
        Device::Gpu if mlx::gpu_count() == 0 => {
            return Err(error(EngineErrorKind::NoDevice, "the loaded MLX library finds no GPU"));
        }
        Device::Gpu => DeviceType::Gpu,
    };
    Ok(safemlx::Device::new(device_type, 0))
}

/// The device that a stream really runs on.
pub(crate) fn device_of(stream: &Stream) -> Result<Device, EngineError> {
    let used = stream.get_device().and_then(|device| device.get_type()).map_err(exception)?;
    Ok(match used {
        DeviceType::Cpu => Device::Cpu,
        DeviceType::Gpu => Device::Gpu,
    })
}

/// Computes a product and compares it with its second formulation.
pub(crate) fn op(request: &Op, stream: &Stream) -> Result<OpDone, EngineError> {
    let computed = compute(&request.product, stream).map_err(exception)?;
    op::compared(&request.product, &computed, device_of(stream)?)
}

/// What MLX and the system say about this process's memory.
pub(crate) fn memory() -> Result<Memory, EngineError> {
    let usage = nix::sys::resource::getrusage(nix::sys::resource::UsageWho::RUSAGE_SELF)
        .map_err(|why| failed(format!("cannot read the process's resource usage: {why}")))?;
    // The unit is kibibytes everywhere but on Apple's systems.
    let unit_bytes = if cfg!(target_vendor = "apple") { 1 } else { 1024 };
    Ok(Memory {
        device_peak_bytes: mlx::peak_memory_bytes()
            .ok_or_else(|| failed("MLX does not tell its peak memory"))?,
        process_peak_bytes: u64::try_from(usage.max_rss()).unwrap_or(0) * unit_bytes,
        device_now_bytes: mlx::active_memory_bytes(),
        process_now_bytes: timing::status_bytes("VmRSS"),
        swapped_bytes: timing::status_bytes("VmSwap"),
    })
}

/// An array's values in row-major order, as f32.
pub(crate) fn on_host(array: &Array, stream: &Stream) -> Result<Vec<f32>, Exception> {
    let array = array.as_dtype(Dtype::Float32, stream)?;
    // Only a flat array is sure to lie in memory in its logical order, and a dimension of MLX has 31 bits.
    let parts = array.size().div_ceil(MOST_AT_ONCE);
    let rows = array.shape().first().map_or(1, |rows| *rows as usize);
    let cuts: Vec<i32> = (1..parts).map(|part| op::int(rows * part / parts)).collect();
    let pieces = if cuts.is_empty() { vec![array] } else { ops::split_sections(&array, &cuts, 0, stream)? };
    let mut values = Vec::new();
    for piece in pieces {
        let flat = piece.reshape(&[-1], stream)?.into_evaluated()?;
        let own = flat.try_as_slice::<f32>().map_err(|why| Exception::custom(why.to_string()))?;
        values.extend_from_slice(own);
    }
    Ok(values)
}

/// Elements that are copied from the device in one piece.
const MOST_AT_ONCE: usize = 1 << 30;

/// Computes a product of the library; everything about inputs and the second formulation is in [`op`].
fn compute(product: &Product, stream: &Stream) -> Result<Computed, Exception> {
    let inputs = op::inputs(product);
    let array = |at: usize| Array::from_slice(&inputs[at].values, &inputs[at].shape);
    let started = Instant::now();
    let mut quantized = None;
    let result = match *product {
        Product::QuantizedMatmul { group_size, bits, .. } => {
            let (group_size, bits) = (op::int(group_size), op::int(bits));
            let (words, scales, biases) = ops::quantize(array(1), group_size, bits, stream)?;
            quantized = Some(op::Quantized {
                words: {
                    let words = words.reshape(&[-1], stream)?.into_evaluated()?;
                    words.try_as_slice::<u32>().map_err(|why| Exception::custom(why.to_string()))?.to_vec()
                },
                scales: on_host(&scales, stream)?,
                biases: on_host(&biases, stream)?,
            });
            ops::quantized_matmul(array(0), &words, &scales, &biases, true, group_size, bits, stream)?
        }
        Product::Attention { head_dim, queries, .. } => {
            let scale = 1.0 / (head_dim as f32).sqrt();
            let (q, k, v) = (array(0), array(1), array(2));
            if queries == 1 {
                fast::scaled_dot_product_attention(&q, &k, &v, scale, None, None, stream)?
            } else {
                let mask = fast::ScaledDotProductAttentionMask::Causal;
                fast::scaled_dot_product_attention(&q, &k, &v, scale, mask, None, stream)?
            }
        }
        Product::Rope { offset, head_dim, base, .. } => {
            fast::rope(array(0), op::int(head_dim), false, base as f32, 1.0, op::int(offset), None, stream)?
        }
        Product::Concatenate { .. } => {
            let pieces: Vec<Array> = (0..inputs.len()).map(array).collect();
            let mut joined = pieces[0].clone();
            for piece in &pieces[1..] {
                joined = ops::concatenate_axis(&[&joined, piece], 0, stream)?;
            }
            joined
        }
        Product::Repeat { times, .. } => Array::repeat_axis::<f32>(array(0), op::int(times), 0, stream)?,
    };
    let values = on_host(&result, stream)?;
    Ok(Computed { values, quantized, took_s: started.elapsed().as_secs_f64() })
}

/// The parsed `config.json`, without numbers that a library would divide by or size tensors with.
pub(crate) fn read_config(model_dir: &Path) -> Result<Value, EngineError> {
    let path = model_dir.join("config.json");
    let text = std::fs::read(&path)
        .map_err(|why| bad_model(format!("cannot read the model configuration {}: {why}", path.display())))?;
    let config: Value = serde_json::from_slice(&text).map_err(|why| {
        bad_model(format!("cannot parse the model configuration {}: {why}", path.display()))
    })?;
    // The library asserts, divides by and sizes tensors with these. Llama reads 0 in the last two as "derive it".
    for (key, least) in [
        ("vocab_size", 1),
        ("hidden_size", 1),
        ("intermediate_size", 1),
        ("num_hidden_layers", 1),
        ("num_attention_heads", 1),
        ("num_key_value_heads", 0),
        ("head_dim", 0),
    ] {
        if let Some(number) = config.get(key).and_then(Value::as_i64)
            && !(least..=i64::from(i32::MAX)).contains(&number)
        {
            return Err(bad_model(format!("{}: {key} cannot be {number}", path.display())));
        }
    }
    Ok(config)
}

/// The length of a logits row, as configured.
pub(crate) fn vocab_size(config: &Value) -> Result<usize, EngineError> {
    let configured = config.get("vocab_size").or_else(|| config.get("text_config")?.get("vocab_size"));
    configured
        .and_then(Value::as_u64)
        .and_then(|size| usize::try_from(size).ok())
        .ok_or_else(|| bad_model("the model configuration names no vocab_size"))
}

/// What MLX reported, with its kind.
pub(crate) fn exception(why: Exception) -> EngineError {
    error(exception_kind(why.what()), why.what())
}

/// MLX reports a failed allocation as text only; the backends word it differently.
pub(crate) fn exception_kind(what: &str) -> EngineErrorKind {
    let what = what.to_lowercase();
    let signs = ["out of memory", "unable to allocate", "attempting to allocate", "bad_alloc"];
    if signs.iter().any(|sign| what.contains(sign)) {
        EngineErrorKind::OutOfMemory
    } else {
        EngineErrorKind::Failed
    }
}

/// Anything else that went wrong.
pub(crate) fn failed(message: impl Into<String>) -> EngineError {
    error(EngineErrorKind::Failed, message)
}

/// An error of a kind.
pub(crate) fn error(kind: EngineErrorKind, message: impl Into<String>) -> EngineError {
    EngineError { kind, message: message.into() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn failed_allocations_are_told_from_other_failures() {
        for (what, kind) in [
            ("[malloc] Unable to allocate 8 bytes.", EngineErrorKind::OutOfMemory),
            (
                "[metal::malloc] Attempting to allocate 9 bytes which is too much",
                EngineErrorKind::OutOfMemory,
            ),
            ("cudaMallocAsync(&data, size) failed: out of memory", EngineErrorKind::OutOfMemory),
            ("std::bad_alloc", EngineErrorKind::OutOfMemory),
            ("[matmul] Last dimension of first input must match", EngineErrorKind::Failed),
        ] {
            assert_eq!(exception_kind(what), kind, "{what}");
        }
    }
}
