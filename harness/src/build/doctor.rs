//! What this machine has and lacks: every tool with version and place, and how to get what is missing. It looks only; it
//! installs and repairs nothing.

use std::{
    path::{Path, PathBuf},
    time::Duration,
};

use serde::Serialize;

use crate::{
    build::{
        layout::Layout,
        metal::{self, MetalError},
        metal_build,
    },
    tools::{host, process::Invocation, python},
};

/// A cold run takes this much in `target/regraft` and the cache together, in bytes (measured: 3 GB).
const NEEDED_DISK_BYTES: u64 = 6 << 30;
/// The smoke matrix fits into this much, in bytes.
const NEEDED_MEMORY_BYTES: u64 = 6 << 30;

/// How much a missing tool matters.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Need {
    /// Nothing runs without it.
    Required,
    /// `cargo xtask gate` brings it by itself.
    Provisioned,
    /// It helps.
    Useful,
}

/// What is known of one tool or resource.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct ToolReport {
    /// Its name.
    pub name: String,
    /// Whether it is there, and enough.
    pub found: bool,
    /// How much it matters.
    pub need: Need,
    /// Its version or size.
    pub version: Option<String>,
    /// Where it was found.
    pub path: Option<PathBuf>,
    /// What it is for.
    pub needed_for: String,
    /// How to get it.
    pub how_to_get: String,
}

impl ToolReport {
    /// Whether it is missing and nothing runs without it.
    pub fn is_blocking(&self) -> bool {
        !self.found && self.need == Need::Required
    }

    /// Whether it is there, but less of it than is advised.
    pub fn is_low(&self) -> bool {
        !self.found && self.need == Need::Useful && self.version.is_some()
    }
}

/// Looks at every tool and resource, in the order in which a person would want them.
pub fn diagnose(layout: &Layout) -> Vec<ToolReport> {
    let mut reports = vec![
        program("rustc", "--version", Need::Required, "every build", "rustup, from rustup.rs"),
        program("cargo", "--version", Need::Required, "every build", "rustup, from rustup.rs"),
        program(
            "git",
            "--version",
            Need::Required,
            "patches and forks",
            "Debian: git; macOS: xcode-select --install",
        ),
        program("cc", "--version", Need::Required, "crates with C code", compiler_hint()),
        program("c++", "--version", Need::Required, "mlx-c", compiler_hint()),
        interpreter(),
    ];
    reports.extend(provisioned(layout));
    if cfg!(target_os = "macos") {
        reports.extend(metal_rows(&metal::ask_here));
    }
    reports.push(resource(
        "disk",
        host::free_disk_bytes(&layout.work),
        NEEDED_DISK_BYTES,
        Some(layout.work.clone()),
        "environment, crates, models",
        "free space, or move the checkout",
    ));
    reports.push(resource(
        "memory",
        host::host_facts().memory_bytes,
        NEEDED_MEMORY_BYTES,
        None,
        "three engines, one at a time",
        "a larger machine, or `--filter` small cells",
    ));
    reports
}

fn compiler_hint() -> &'static str {
    if cfg!(target_os = "macos") { "xcode-select --install" } else { "Debian: build-essential" }
}

fn program(name: &str, ask: &str, need: Need, needed_for: &str, how_to_get: &str) -> ToolReport {
    let path = host::find_program(name);
    let version = path.as_deref().and_then(|p| first_line(p, ask));
    ToolReport {
        name: name.to_owned(),
        // A file of that name that cannot say its version is no working tool.
        found: version.is_some(),
        need,
        version,
        path,
        needed_for: needed_for.to_owned(),
        how_to_get: how_to_get.to_owned(),
    }
}

fn first_line(program: &Path, ask: &str) -> Option<String> {
    let done = Invocation::new(program).arg(ask).timeout(Duration::from_secs(30)).run_ok().ok()?;
    done.stdout.lines().next().map(|l| l.trim().to_owned()).filter(|l| !l.is_empty())
}

fn interpreter() -> ToolReport {
    let base = ToolReport {
        name: "python3".to_owned(),
        found: false,
        need: Need::Required,
        version: None,
        path: None,
        needed_for: "reference engine, cmake, ninja, MLX libraries".to_owned(),
        how_to_get: "CPython 3.11-3.14 (Debian: python3 python3-venv); REGRAFT_PYTHON names another"
            .to_owned(),
    };
    match python::find_interpreter() {
        Ok(found) => {
            let makes = found.can_make_environments();
            let note = if makes { "" } else { ", without venv and pip" };
            ToolReport {
                found: makes,
                version: Some(format!("{}{note}", found.version)),
                path: Some(found.program),
                ..base
            }
        }
        Err(error) => ToolReport { version: Some(error.to_string()), ..base },
    }
}

/// What `gate` brings by itself, as far as it has done so.
fn provisioned(layout: &Layout) -> Vec<ToolReport> {
    let existing = python::find_interpreter()
        .ok()
        .and_then(|interpreter| super::provision::existing_environment(layout, &interpreter));
    let report = |name: &str, distribution: &str, file: &str, needed_for: &str| {
        let version = existing.as_ref().and_then(|(_, i)| i.distributions.get(distribution).cloned());
        ToolReport {
            name: name.to_owned(),
            found: version.is_some(),
            need: Need::Provisioned,
            version,
            path: existing.as_ref().map(|(path, _)| path.join(file)).filter(|p| p.exists()),
            needed_for: needed_for.to_owned(),
            how_to_get: "`cargo xtask gate` brings it".to_owned(),
        }
    };
    let mut reports = vec![
        report("cmake", "cmake", "bin/cmake", "mlx-c"),
        report("ninja", "ninja", "bin/ninja", "mlx-c"),
        report("mlx-lm", "mlx-lm", "bin/mlx_lm", "reference engine"),
    ];
    if cfg!(target_os = "linux") {
        let blas = report("OpenBLAS", "scipy-openblas32", "bin/python", "prompts in seconds, not minutes");
        let library =
            existing.as_ref().map(|(_, i)| i.site.join("scipy_openblas32/lib/libscipy_openblas.so"));
        reports.push(ToolReport { path: library.filter(|p| p.exists()), ..blas });
    }
    reports
}

/// What `build --backend metal` would use on this Mac: the compiler, and the machine that it compiles for.
fn metal_rows(ask: &impl Fn(&Invocation) -> Result<String, String>) -> Vec<ToolReport> {
    let (gpu, host) = metal_build::host_of(ask);
    let family = |gpu: &metal_build::Gpu| match (gpu.family, gpu.neural_accelerators) {
        (Some(family), Some(true)) => format!(", GPU family {family}, neural accelerators"),
        (Some(family), _) => format!(", GPU family {family}"),
        (None, _) => ", GPU family unknown".to_owned(),
    };
    let macos = host.map_or_else(|| "unknown macOS".to_owned(), |version| format!("macOS {version}"));
    let machine = ToolReport {
        name: "Metal GPU".to_owned(),
        found: gpu.as_ref().is_some_and(|gpu| gpu.generation.is_some()),
        need: Need::Useful,
        version: gpu.as_ref().map(|gpu| {
            format!(
                "{}{}, {macos}; libraries are compiled for the official library's floor",
                gpu.chip,
                family(gpu)
            )
        }),
        path: None,
        needed_for: "the Metal backend".to_owned(),
        how_to_get: "Apple silicon; cells for Metal are left out elsewhere".to_owned(),
    };
    vec![metal_compiler(ask), machine]
}

fn metal_compiler(ask: &impl Fn(&Invocation) -> Result<String, String>) -> ToolReport {
    let found = metal::find_tools(ask);
    let hint = found.as_ref().err().and_then(MetalError::hint);
    let tools = found.ok();
    ToolReport {
        name: "xcrun metal".to_owned(),
        found: tools.is_some(),
        need: Need::Useful,
        version: tools.as_ref().map(|tools| format!("{}, SDK {}", tools.version, tools.sdk)),
        path: tools.map(|tools| tools.compiler),
        needed_for: "building metallibs; not for the official library".to_owned(),
        how_to_get: hint
            .unwrap_or_else(|| "Xcode, then xcodebuild -downloadComponent MetalToolchain".to_owned()),
    }
}

fn resource(
    name: &str,
    have_bytes: Option<u64>,
    needed_bytes: u64,
    path: Option<PathBuf>,
    needed_for: &str,
    how_to_get: &str,
) -> ToolReport {
    let gib = |bytes: u64| bytes as f64 / f64::from(1 << 30);
    ToolReport {
        name: name.to_owned(),
        // What cannot be found out does not stop anybody.
        found: have_bytes.is_none_or(|have| have >= needed_bytes),
        need: Need::Useful,
        version: Some(have_bytes.map_or_else(
            || "unknown".to_owned(),
            |have| format!("{:.0} GiB of {:.0} advised", gib(have), gib(needed_bytes)),
        )),
        path,
        needed_for: needed_for.to_owned(),
        how_to_get: how_to_get.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_missing_program_blocks_and_says_how_to_get_it() {
        let report = program("regraft-no-such-program", "--version", Need::Required, "x", "install it");
        assert!(report.is_blocking());
        assert_eq!((report.path, report.how_to_get.as_str()), (None, "install it"));
    }

    #[test]
    fn a_program_that_fails_is_not_found() {
        let report = program("false", "--version", Need::Required, "x", "y");
        // GNU `false` does print a version, and still exits 1.
        assert!(report.is_blocking(), "{report:?}");
    }

    #[test]
    fn too_little_disk_is_reported_and_does_not_block() {
        let report = resource("disk", Some(1 << 30), 6 << 30, None, "x", "y");
        assert!(!report.found && !report.is_blocking());
        assert_eq!(report.version.as_deref(), Some("1 GiB of 6 advised"));
        assert!(resource("disk", None, 6 << 30, None, "x", "y").found);
    }

    #[test]
    fn a_mac_is_told_what_a_build_for_metal_would_use() {
        let answers = |line: &Invocation| {
            let words: Vec<_> = line.args.iter().map(|arg| arg.to_string_lossy().into_owned()).collect();
            match (line.program.to_str().unwrap(), words.join(" ").as_str()) {
                ("xcrun", "--toolchain Metal -find metal") => Ok("/toolchain/metal\n".to_owned()),
                ("/toolchain/metal", "--version") => {
                    Ok("Apple metal version 32023.883\nTarget: air64\n".to_owned())
                }
                ("xcrun", "--sdk macosx --show-sdk-version") => Ok("26.4\n".to_owned()),
                ("sysctl", _) => Ok("Apple M3 Max\n".to_owned()),
                ("sw_vers", _) => Ok("15.5\n".to_owned()),
                other => panic!("nothing is recorded for {other:?}"),
            }
        };
        let rows = metal_rows(&answers);
        let told: Vec<String> = rows
            .iter()
            .map(|row| format!("{} {} {}", row.found, row.name, row.version.as_deref().unwrap_or_default()))
            .collect();
        insta::assert_snapshot!(told.join("\n"), @"
        true xcrun metal Apple metal version 32023.883, SDK 26.4
        true Metal GPU Apple M3 Max, GPU family apple9, macOS 15.5; libraries are compiled for the official library's floor
        ");
        let intel =
            metal_rows(&|_: &Invocation| Err("xcrun: error: unable to find utility \"metal\"".to_owned()));
        assert!(intel.iter().all(|row| !row.found && !row.is_blocking()), "{intel:?}");
    }

    #[test]
    fn an_empty_machine_lacks_only_what_the_gate_brings() {
        let dir = tempfile::tempdir().unwrap();
        let layout = Layout {
            root: dir.path().to_owned(),
            work: dir.path().join("target/regraft"),
            cache: dir.path().join("cache"),
            mirrors: None,
        };
        let reports = diagnose(&layout);
        let cmake = reports.iter().find(|r| r.name == "cmake").unwrap();
        assert!(!cmake.found && !cmake.is_blocking());
        assert!(reports.iter().any(|r| r.name == "git" && r.found));
    }
}
