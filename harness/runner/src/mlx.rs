//! The few calls of mlx-c that not every safemlx wraps, the same in all of them. The only module with unsafe code.
#![allow(unsafe_code, reason = "plain foreign calls; every pointer is to a live local")]

use std::{
    ffi::{CStr, c_int},
    thread,
    time::Duration,
};

/// The version that the loaded MLX library reports; `None` where it reports none.
pub(crate) fn version() -> Option<String> {
    // SAFETY: the string is made here, filled by the call, read while alive and freed once.
    unsafe {
        let mut text = safemlx_sys::mlx_string_new();
        let filled = safemlx_sys::mlx_version(&mut text) == 0;
        let data = safemlx_sys::mlx_string_data(text);
        let version =
            (filled && !data.is_null()).then(|| CStr::from_ptr(data).to_string_lossy().into_owned());
        safemlx_sys::mlx_string_free(text);
        version
    }
}

/// The most bytes that MLX had allocated at once since the process started; `None` where MLX cannot tell.
pub(crate) fn peak_memory_bytes() -> Option<u64> {
    let mut bytes = 0usize;
    // SAFETY: the call writes one `size_t` to a live local.
    let status = unsafe { safemlx_sys::mlx_get_peak_memory(&mut bytes) };
    (status == 0).then_some(bytes as u64)
}

/// The bytes that MLX holds in arrays now; `None` where MLX cannot tell.
pub(crate) fn active_memory_bytes() -> Option<u64> {
    let mut bytes = 0usize;
    // SAFETY: the call writes one `size_t` to a live local.
    let status = unsafe { safemlx_sys::mlx_get_active_memory(&mut bytes) };
    (status == 0).then_some(bytes as u64)
}

/// How often [`settled_memory_bytes`] must read the same figure, and how often it reads at most, a millisecond apart.
const STILL_READS: usize = 5;
const MOST_READS: usize = 200;

/// The bytes that MLX holds in arrays once what the last evaluation used has been given back. On CUDA a thread of MLX's own
/// does that after the result is there, and now and then a figure that is read at once is twice as large.
pub(crate) fn settled_memory_bytes() -> Option<u64> {
    let mut last = active_memory_bytes()?;
    let mut same = 1;
    for _ in 1..MOST_READS {
        if same == STILL_READS {
            break;
        }
        thread::sleep(Duration::from_millis(1));
        let now = active_memory_bytes()?;
        same = if now == last { same + 1 } else { 1 };
        last = now;
    }
    Some(last)
}

/// Begins the account of [`peak_memory_bytes`] anew, and gives what is kept for later back to the system.
pub(crate) fn restart_peak() {
    // SAFETY: neither call takes a pointer; a failure leaves the account as it was.
    unsafe {
        safemlx_sys::mlx_clear_cache();
        safemlx_sys::mlx_reset_peak_memory();
    }
}

/// How many GPUs the loaded MLX library can use.
pub(crate) fn gpu_count() -> usize {
    let mut count: c_int = 0;
    // SAFETY: the call writes one `int` to a live local.
    let status = unsafe { safemlx_sys::mlx_device_count(&mut count, safemlx_sys::mlx_device_type__MLX_GPU) };
    if status == 0 { usize::try_from(count).unwrap_or(0) } else { 0 }
}
