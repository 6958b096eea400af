//! Links the MLX library that `REGRAFT_MLX_LIB_DIR` names, and tells the program which engine version was resolved.
#![allow(clippy::print_stdout, reason = "build scripts speak to cargo over stdout")]

use std::{env, fs, path::PathBuf, process::ExitCode};

/// The folder that holds `libmlx.so` or `libmlx.dylib`.
const LIB_DIR: &str = "REGRAFT_MLX_LIB_DIR";

/// Where the program looks for the library, if not in that folder: `$ORIGIN/…` makes it independent of its place.
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
    println!("cargo:rerun-if-env-changed={LIB_DIR}");
    println!("cargo:rerun-if-env-changed={RPATH}");
    println!("cargo:rerun-if-env-changed={LINK_DIR}");
    if let Ok(dir) = env::var(LINK_DIR) {
        println!("cargo:rustc-link-search=native={dir}");
    }
    let dir = PathBuf::from(env::var_os(LIB_DIR).ok_or(format!(
        "cannot link MLX: {LIB_DIR} is not set\n  hint: set it to the folder with libmlx.so or libmlx.dylib, in a \
         wheel `mlx/lib`"
    ))?);
    let apple = env::var("CARGO_CFG_TARGET_VENDOR").is_ok_and(|vendor| vendor == "apple");
    let dir = dir
        .canonicalize()
        .map_err(|error| format!("cannot link MLX: {LIB_DIR} is {}: {error}", dir.display()))?;
    let library = dir.join(if apple { "libmlx.dylib" } else { "libmlx.so" });
    if !library.is_file() {
        return Err(format!(
            "cannot link MLX: there is no {}\n  hint: {LIB_DIR} must be the folder that holds the library itself",
            library.display()
        ));
    }
    println!("cargo:rerun-if-changed={}", library.display());
    // By its path, not as `-lmlx`: safemlx-sys puts a folder with an archive of that name before any of ours.
    println!("cargo:rustc-link-arg={}", library.display());
    let rpath = env::var(RPATH).unwrap_or_else(|_| dir.display().to_string());
    println!("cargo:rustc-link-arg=-Wl,-rpath,{rpath}");
    Ok(())
}

fn export_engine_version() -> Result<(), String> {
    println!("cargo:rerun-if-changed=Cargo.lock");
    let lock =
        fs::read_to_string("Cargo.lock").map_err(|error| format!("cannot read Cargo.lock: {error}"))?;
    let version = lock
        .split_once("name = \"safemlx-lm\"\nversion = \"")
        .and_then(|(_, rest)| rest.split_once('"'))
        .map(|(version, _)| version)
        .ok_or("Cargo.lock names no version of safemlx-lm")?;
    println!("cargo:rustc-env=REGRAFT_SAFEMLX_LM_VERSION={version}");
    Ok(())
}
