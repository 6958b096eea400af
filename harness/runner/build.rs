//! Links the MLX library that `REGRAFT_MLX_LIB_DIR` names, or the BLAS that `REGRAFT_BLAS` names where the crates carry MLX
//! themselves, and tells the program which engine version was resolved.
#![allow(clippy::print_stdout, reason = "build scripts speak to cargo over stdout")]

use std::{env, fs, path::PathBuf, process::ExitCode};

/// The folder that holds `libmlx.so` or `libmlx.dylib`.
const LIB_DIR: &str = "REGRAFT_MLX_LIB_DIR";

/// The BLAS library that a static MLX of the crates' own wants, a path; it is set instead of the folder above, and empty
/// where the platform brings one.
const BLAS: &str = "REGRAFT_BLAS";

/// Where the program looks for the library, if not in its folder: `$ORIGIN/…` makes it independent of its place.
const RPATH: &str = "REGRAFT_MLX_RPATH";

/// A folder in which the linker looks before its own ones.
const LINK_DIR: &str = "REGRAFT_LINK_DIR";

fn main() -> ExitCode {
    match link_mlx().and_then(|()| export_engine_version()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(message) => {
            eprintln!("error: {message}");
            ExitCode::FAILURE
        }
    }
}

fn link_mlx() -> Result<(), String> {
    for variable in [LIB_DIR, BLAS, RPATH, LINK_DIR] {
        println!("cargo:rerun-if-env-changed={variable}");
    }
    if let Ok(dir) = env::var(LINK_DIR) {
        println!("cargo:rustc-link-search=native={dir}");
    }
    let library = match (env::var_os(LIB_DIR), env::var_os(BLAS)) {
        (Some(dir), None) => {
            let apple = env::var("CARGO_CFG_TARGET_VENDOR").is_ok_and(|vendor| vendor == "apple");
            PathBuf::from(dir).join(if apple { "libmlx.dylib" } else { "libmlx.so" })
        }
        (None, Some(library)) if library.is_empty() => return Ok(()),
        (None, Some(library)) => PathBuf::from(library),
        (Some(_), Some(_)) => {
            return Err(format!("cannot link MLX: {LIB_DIR} and {BLAS} exclude each other"));
        }
        (None, None) => {
            return Err(format!(
                "cannot link MLX: {LIB_DIR} is not set\n  hint: set it to the folder with libmlx.so or libmlx.dylib, \
                 in a wheel `mlx/lib`; for crates that compile MLX set {BLAS} to a BLAS library instead"
            ));
        }
    };
    let library =
        library.canonicalize().map_err(|error| format!("cannot link {}: {error}", library.display()))?;
    println!("cargo:rerun-if-changed={}", library.display());
    // By its path, not as `-lmlx`: safemlx-sys puts a folder with an archive of that name before any of ours.
    println!("cargo:rustc-link-arg={}", library.display());
    let folder = library.parent().map(|dir| dir.display().to_string()).unwrap_or_default();
    let rpath = env::var(RPATH).unwrap_or(folder);
    println!("cargo:rustc-link-arg=-Wl,-rpath,{rpath}");
    Ok(())
}

fn export_engine_version() -> Result<(), String> {
    let engine = if env::var_os("CARGO_FEATURE_EREDU_05").is_some() { "eredu" } else { "safemlx-lm" };
    println!("cargo:rerun-if-changed=Cargo.lock");
    let lock =
        fs::read_to_string("Cargo.lock").map_err(|error| format!("cannot read Cargo.lock: {error}"))?;
    let version = lock
        .split_once(&format!("name = \"{engine}\"\nversion = \""))
        .and_then(|(_, rest)| rest.split_once('"'))
        .map(|(version, _)| version)
        .ok_or(format!("Cargo.lock names no version of {engine}"))?;
    println!("cargo:rustc-env=REGRAFT_ENGINE_VERSION={version}");
    Ok(())
}
