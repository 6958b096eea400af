//! Compiles MLX's Metal library on a Mac: finds the compiler as Xcode keeps it, compiles for a deployment target that was
//! chosen and not for the host's, and takes only a library that the audit passes. Tested through recorded answers of `xcrun`;
//! it has not been run on a Mac.

use std::{
    fs, io,
    path::{Path, PathBuf},
    time::Duration,
};

use rayon::prelude::*;
use serde::Serialize;

use super::metallib::{
    LibraryFile, MetallibError,
    audit::{AuditSeverity, Wanted, audit},
    parse::Version,
    sources::{Kernels, Setting, SourcesError, compiled_kernels, expected_kernels, kernel_file},
};
use crate::tools::process::{Invocation, ProcessError};

/// How long one kernel file may take to compile.
const TIMEOUT: Duration = Duration::from_secs(1800);

/// Flags that MLX's own build gives to the compiler. No `-std=`: the language version follows the target.
const FLAGS: [&str; 7] =
    ["-x", "metal", "-Wall", "-Wextra", "-fno-fast-math", "-Wno-c++17-extensions", "-Wno-c++20-extensions"];

/// The Metal compiler of this Mac.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct MetalTools {
    /// The compiler.
    pub compiler: PathBuf,
    /// What it says that it is.
    pub version: String,
    /// The macOS SDK.
    pub sdk: Version,
}

/// A compiled library.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct CompiledLibrary {
    /// Where it lies.
    pub path: PathBuf,
    /// What compiled it.
    pub tools: MetalTools,
    /// The oldest macOS that it is for.
    pub target: Version,
    /// How many kernels it holds, all that the sources instantiate.
    pub kernels: usize,
}

/// Why there is no library.
#[derive(Debug, thiserror::Error)]
pub enum MetalError {
    /// There is no compiler.
    #[error("there is no Metal compiler: {said}")]
    NoCompiler {
        /// What `xcrun` said last.
        said: String,
    },
    /// Nobody says which macOS the library is for.
    #[error("nothing says which macOS the Metal library is for")]
    NoTarget,
    /// This Mac is older than what the library is for.
    #[error("a library for macOS {target} cannot be loaded on this Mac, which runs {host}")]
    TooNew {
        /// What it would be for.
        target: Version,
        /// What this Mac runs.
        host: Version,
    },
    /// The build brings its own MLX.
    #[error("build `{build}` is not linked to an official MLX library, so that there is none to replace")]
    NoWheel {
        /// The build.
        build: String,
    },
    /// The sources of a release cannot be had.
    #[error("cannot get the sources of MLX {version}")]
    Release {
        /// The version.
        version: String,
        /// Why.
        #[source]
        source: Box<super::compile::BuildError>,
    },
    /// A folder or file of the build could not be made.
    #[error("cannot put the build with its Metal library together")]
    Store(#[from] super::store::StoreError),
    /// The SDK does not tell its version.
    #[error("cannot tell the version of the macOS SDK: {said}")]
    NoSdk {
        /// What `xcrun` said.
        said: String,
    },
    /// The kernels cannot be told from the sources.
    #[error(transparent)]
    Sources(#[from] SourcesError),
    /// A tool failed.
    #[error("cannot compile the Metal library")]
    Tool(#[from] ProcessError),
    /// A file could not be made.
    #[error("cannot write `{}`", .path.display())]
    Write {
        /// The file.
        path: PathBuf,
        /// What the system said.
        #[source]
        source: io::Error,
    },
    /// What was compiled is no library.
    #[error(transparent)]
    Library(#[from] MetallibError),
    /// The compiled library lacks kernels or is for another OS.
    #[error("the compiled library must not be used: {}", .findings.join("; "))]
    Refused {
        /// What the audit found.
        findings: Vec<String>,
    },
}

impl MetalError {
    /// What to try.
    pub fn hint(&self) -> Option<String> {
        match self {
            Self::NoCompiler { said } if said.contains("not a developer tool") || said.contains("xcode-select") => {
                Some(
                    "install Xcode (the command line tools alone bring no Metal compiler), then `sudo xcode-select -s \
                     /Applications/Xcode.app`"
                        .to_owned(),
                )
            }
            Self::NoCompiler { .. } => Some("xcodebuild -downloadComponent MetalToolchain".to_owned()),
            Self::NoSdk { .. } => Some("open Xcode once, so that it installs its SDKs".to_owned()),
            Self::Sources(source) => source.hint(),
            Self::Tool(source) => source.hint(),
            Self::Refused { .. } => {
                Some("compare with the official library: `cargo xtask metallib diff`".to_owned())
            }
            Self::NoTarget => Some("name it: `--deployment-target 14.0`".to_owned()),
            Self::TooNew { host, .. } => Some(format!(
                "compile for this Mac (`--deployment-target {host}`), or build and test where the library is to run"
            )),
            Self::NoWheel { .. } => Some(
                "a crate that compiles MLX compiles its Metal library, too: `cargo xtask metallib audit` looks at that one"
                    .to_owned(),
            ),
            Self::Release { source, .. } => source.hint(),
            Self::Store(source) => source.hint(),
            Self::Write { .. } | Self::Library(_) => None,
        }
    }
}

/// Finds the compiler and SDK; `ask` runs a program and gives what it printed, or what it said instead. Since Xcode 26 the
/// compiler is a toolchain of its own, which has to be downloaded; `-find` names a placeholder where it was not.
///
/// # Errors
/// When there is none, with what `xcrun` said.
pub fn find_tools(ask: impl Fn(&Invocation) -> Result<String, String>) -> Result<MetalTools, MetalError> {
    let xcrun = |args: &[&str]| Invocation::new("xcrun").args(args).env_remove(["SDKROOT"]).timeout(TIMEOUT);
    let mut said = "xcrun found nothing".to_owned();
    for find in [&["--toolchain", "Metal", "-find", "metal"][..], &["-find", "metal"]] {
        let compiler = match ask(&xcrun(find)) {
            Ok(path) if !path.trim().is_empty() => PathBuf::from(path.trim()),
            Ok(_) => continue,
            Err(error) => {
                said = error;
                continue;
            }
        };
        // The placeholder answers every call with an error that says how to get the real one.
        match ask(&Invocation::new(&compiler).arg("--version").timeout(TIMEOUT)) {
            Ok(version) => {
                let version = version.lines().next().unwrap_or_default().trim().to_owned();
                let text = ask(&xcrun(&["--sdk", "macosx", "--show-sdk-version"]))
                    .map_err(|said| MetalError::NoSdk { said })?;
                let sdk = text.trim().parse().map_err(|said| MetalError::NoSdk { said })?;
                return Ok(MetalTools { compiler, version, sdk });
            }
            Err(error) => said = error,
        }
    }
    Err(MetalError::NoCompiler { said })
}

/// Asks the programs of this machine.
///
/// # Errors
/// What the program said instead of an answer.
pub fn ask_here(invocation: &Invocation) -> Result<String, String> {
    invocation.run_ok().map(|done| done.stdout).map_err(|error| match error.stderr_tail().trim() {
        "" => error.to_string(),
        tail => tail.lines().next().unwrap_or(tail).to_owned(),
    })
}

/// One compile for every kernel file, then one link of them all.
pub fn commands(
    root: &Path,
    files: &[String],
    tools: &MetalTools,
    target: Version,
    work: &Path,
    library: &Path,
) -> (Vec<Invocation>, Invocation) {
    let object = |file: &str| work.join(format!("{}.air", file.rsplit('/').next().unwrap_or(file)));
    let compile = |file: &String| {
        Invocation::new(&tools.compiler)
            .args(FLAGS)
            // Without it the target is the host's own OS.
            .arg(format!("-mmacosx-version-min={target}"))
            .arg("-c")
            .arg(kernel_file(root, file))
            .arg("-I")
            .arg(root)
            .arg("-o")
            .arg(object(file))
            .timeout(TIMEOUT)
    };
    let link = Invocation::new(&tools.compiler)
        .args(files.iter().map(|file| object(file)))
        .arg("-o")
        .arg(library)
        .timeout(TIMEOUT);
    (files.iter().map(compile).collect(), link)
}

/// Compiles the library of MLX's sources at `root` into `library`, once the audit has passed it. A Metal library is data: what
/// is signed is the program that loads it.
///
/// # Errors
/// See [`MetalError`]; a library that the audit refuses is removed.
pub fn compile_library(
    root: &Path,
    tools: &MetalTools,
    target: Version,
    kernels: Kernels,
    library: &Path,
) -> Result<CompiledLibrary, MetalError> {
    let setting = Setting { target, sdk: tools.sdk, kernels };
    let files = compiled_kernels(root, &setting)?;
    let written = |path: &Path| {
        let path = path.to_owned();
        move |source| MetalError::Write { path, source }
    };
    let work = tempfile::tempdir().map_err(written(Path::new("a temporary folder")))?;
    let unaudited = work.path().join("mlx.metallib");
    let (compiles, link) = commands(root, &files, tools, target, work.path(), &unaudited);
    compiles.par_iter().map(|compile| compile.run_ok().map(|_| ())).collect::<Result<(), _>>()?;
    link.run_ok()?;

    let wanted = Wanted { deployment_target: Some(target), kernels: Some(expected_kernels(root, &setting)?) };
    let file = LibraryFile::open(&unaudited)?;
    let found = audit(&file.parse()?, &wanted);
    if !found.passes() {
        let errors = found.findings.iter().filter(|finding| finding.severity == AuditSeverity::Error);
        return Err(MetalError::Refused {
            findings: errors.map(|finding| finding.message.clone()).collect(),
        });
    }
    if let Some(parent) = library.parent() {
        fs::create_dir_all(parent).map_err(written(parent))?;
    }
    fs::copy(&unaudited, library).map_err(written(library))?;
    Ok(CompiledLibrary {
        path: library.to_owned(),
        tools: tools.clone(),
        target,
        kernels: wanted.kernels.map_or(0, |kernels| kernels.len()),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Answers by the command's words.
    fn recorded<'r>(
        answers: &'r [(&'r str, Result<&'r str, &'r str>)],
    ) -> impl Fn(&Invocation) -> Result<String, String> + 'r {
        move |invocation| {
            let mut words = vec![invocation.program.to_string_lossy().into_owned()];
            words.extend(invocation.args.iter().map(|arg| arg.to_string_lossy().into_owned()));
            let line = words.join(" ");
            let answer = answers.iter().find(|(asked, _)| *asked == line);
            let (_, answer) = answer.unwrap_or_else(|| panic!("nothing is recorded for `{line}`"));
            answer.map(str::to_owned).map_err(str::to_owned)
        }
    }

    const TOOLCHAIN: &str = "/var/toolchains/Metal.xctoolchain/usr/bin/metal";
    const PLACEHOLDER: &str = "/Applications/Xcode.app/Toolchains/XcodeDefault.xctoolchain/usr/bin/metal";

    #[test]
    fn the_downloaded_toolchain_is_taken_before_xcodes_own() {
        let found = find_tools(recorded(&[
            ("xcrun --toolchain Metal -find metal", Ok("/var/toolchains/Metal.xctoolchain/usr/bin/metal\n")),
            (
                "/var/toolchains/Metal.xctoolchain/usr/bin/metal --version",
                Ok("Apple metal version 32023.883 (metalfe-32023.883)\nTarget: air64\n"),
            ),
            ("xcrun --sdk macosx --show-sdk-version", Ok("26.4\n")),
        ]));
        assert_eq!(
            found.unwrap(),
            MetalTools {
                compiler: TOOLCHAIN.into(),
                version: "Apple metal version 32023.883 (metalfe-32023.883)".into(),
                sdk: Version::new(26, 4),
            }
        );
    }

    #[test]
    fn an_older_xcode_has_the_compiler_in_its_own_toolchain() {
        let version = format!("{PLACEHOLDER} --version");
        let found = find_tools(recorded(&[
            ("xcrun --toolchain Metal -find metal", Err("xcrun: error: unable to find toolchain \"Metal\"")),
            ("xcrun -find metal", Ok(PLACEHOLDER)),
            (&version, Ok("Apple metal version 31001.732\n")),
            ("xcrun --sdk macosx --show-sdk-version", Ok("15.2\n")),
        ]));
        assert_eq!(found.unwrap().sdk, Version::new(15, 2));
    }

    #[test]
    fn what_is_missing_is_told_with_the_way_to_get_it() {
        let version = format!("{PLACEHOLDER} --version");
        let missing = "error: cannot execute tool 'metal' due to missing Metal Toolchain";
        let no_toolchain = find_tools(recorded(&[
            ("xcrun --toolchain Metal -find metal", Ok(PLACEHOLDER)),
            ("xcrun -find metal", Ok(PLACEHOLDER)),
            (&version, Err(missing)),
        ]))
        .unwrap_err();
        assert_eq!(no_toolchain.to_string(), format!("there is no Metal compiler: {missing}"));
        assert_eq!(no_toolchain.hint().unwrap(), "xcodebuild -downloadComponent MetalToolchain");

        let tools_only = "xcrun: error: unable to find utility \"metal\", not a developer tool or in PATH";
        let no_xcode = find_tools(recorded(&[
            ("xcrun --toolchain Metal -find metal", Err(tools_only)),
            ("xcrun -find metal", Err(tools_only)),
        ]))
        .unwrap_err();
        assert!(no_xcode.hint().unwrap().contains("install Xcode"), "{no_xcode}");
    }

    #[test]
    fn every_file_is_compiled_for_the_target_that_was_chosen_and_all_are_linked_once() {
        let tools =
            MetalTools { compiler: TOOLCHAIN.into(), version: String::new(), sdk: Version::new(26, 4) };
        let files = ["rope".to_owned(), "steel/attn/kernels/steel_attention".to_owned()];
        let (compiles, link) = commands(
            Path::new("/mlx"),
            &files,
            &tools,
            Version::new(14, 0),
            Path::new("/w"),
            Path::new("/out/mlx.metallib"),
        );
        insta::assert_snapshot!(compiles[1].shell_line(), @"/var/toolchains/Metal.xctoolchain/usr/bin/metal -x metal -Wall -Wextra -fno-fast-math -Wno-c++17-extensions -Wno-c++20-extensions '-mmacosx-version-min=14.0' -c /mlx/mlx/backend/metal/kernels/steel/attn/kernels/steel_attention.metal -I /mlx -o /w/steel_attention.air");
        insta::assert_snapshot!(link.shell_line(), @"/var/toolchains/Metal.xctoolchain/usr/bin/metal /w/rope.air /w/steel_attention.air -o /out/mlx.metallib");
    }
}
