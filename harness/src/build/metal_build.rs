//! A build for Apple's GPUs whose Metal library is compiled here instead of taken from the official wheel: which deployment
//! target, beside which program, signed how. Decisions are functions of recorded answers; it has not been run on a Mac.

use std::{
    fs,
    path::{Path, PathBuf},
    time::{Duration, Instant},
};

use serde::Serialize;
use serde_json::{Value, json};

use crate::{
    build::{
        artifact::{Artifact, Provenance},
        compile::{PROGRAM, RECORD},
        digest::digest_of,
        git,
        layout::Layout,
        metal::{CompiledLibrary, MetalError, MetalTools, ask_here, compile_library, find_tools},
        metallib::{LibraryFile, parse::Version, sources::Kernels},
        steps::{Phase, step},
        store::{self, StoreError},
    },
    event::EventSink,
    tools::{
        archive, clock,
        file::{self, Most},
        process::Invocation,
    },
};

/// The library's file name, which MLX looks for beside its own code.
const LIBRARY: &str = "mlx.metallib";

/// How long signing and its like may take.
const TIMEOUT: Duration = Duration::from_secs(300);

/// What a person asked for.
#[derive(Debug, Clone, Copy)]
pub struct MetalRequest<'a> {
    /// MLX's sources; those of the release that the build links to when absent.
    pub sources: Option<&'a Path>,
    /// The oldest macOS that the library is for.
    pub target: Option<Version>,
}

/// The oldest macOS that a library is compiled for, and who says so.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Target {
    /// The version.
    pub version: Version,
    /// Where it comes from.
    pub why: &'static str,
}

/// Apple's name for a chip, and what follows from it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Gpu {
    /// As the system says it.
    pub chip: String,
    /// The number behind the M.
    pub generation: Option<u32>,
    /// Metal's GPU family, by Apple's feature tables.
    pub family: Option<&'static str>,
    /// Whether its GPU has the neural accelerators that NAX kernels are for.
    pub neural_accelerators: Option<bool>,
}

/// Chooses the deployment target: what was asked for, else the floor of the official library that the new one replaces.
/// Never the host's own version, which is what the compiler would take.
///
/// # Errors
/// When neither is known, or this Mac could not load the result.
pub fn choose_target(
    asked: Option<Version>,
    official: Option<Version>,
    host: Option<Version>,
) -> Result<Target, MetalError> {
    let target = match (asked, official) {
        (Some(version), _) => Target { version, why: "--deployment-target" },
        (None, Some(version)) => Target { version, why: "the official library's floor" },
        (None, None) => return Err(MetalError::NoTarget),
    };
    match host {
        Some(host) if host < target.version => Err(MetalError::TooNew { target: target.version, host }),
        _ => Ok(target),
    }
}

/// What a chip's name tells of its GPU.
pub fn gpu_of(chip: &str) -> Gpu {
    let generation = chip.split_whitespace().find_map(|word| word.strip_prefix('M')?.parse().ok());
    let family = match generation {
        Some(1) => Some("apple7"),
        Some(2) => Some("apple8"),
        Some(3 | 4) => Some("apple9"),
        Some(5) => Some("apple10"),
        _ => None,
    };
    let neural_accelerators = generation.map(|generation: u32| generation >= 5);
    Gpu { chip: chip.trim().to_owned(), generation, family, neural_accelerators }
}

/// This Mac's chip and macOS version; `ask` runs a program.
pub fn host_of(ask: &impl Fn(&Invocation) -> Result<String, String>) -> (Option<Gpu>, Option<Version>) {
    let chip = ask(&Invocation::new("sysctl").args(["-n", "machdep.cpu.brand_string"]).timeout(TIMEOUT));
    let version = ask(&Invocation::new("sw_vers").arg("-productVersion").timeout(TIMEOUT));
    let gpu = chip.ok().filter(|chip| !chip.trim().is_empty()).map(|chip| gpu_of(&chip));
    (gpu, version.ok().and_then(|version| version.trim().parse().ok()))
}

/// What makes a program use the libraries beside it: it looks there instead of in the wheel, and both are signed anew, because
/// changing a program breaks its signature and macOS on Apple silicon runs none without. Libraries first: a signature covers
/// what is linked.
pub fn dressing(program: &Path, libraries: &[PathBuf], wheel_lib: &Path) -> Vec<Invocation> {
    let looks = Invocation::new("install_name_tool")
        .arg("-rpath")
        .arg(wheel_lib)
        .arg("@loader_path")
        .arg(program)
        .timeout(TIMEOUT);
    let sign =
        |path: &Path| Invocation::new("codesign").args(["--force", "--sign", "-"]).arg(path).timeout(TIMEOUT);
    let mut commands = vec![looks];
    commands.extend(libraries.iter().map(|library| sign(library)));
    commands.push(sign(program));
    commands
}

/// What identifies such a build, beside what identifies the build that it is made from.
pub fn inputs(base: &Value, tools: &MetalTools, target: &Target, sources: &str) -> Value {
    let mut inputs = base.clone();
    inputs["metallib"] = json!({
        "compiler": tools.version,
        "sdk": tools.sdk,
        "deployment_target": target.version,
        "kernels": "ahead-of-time",
        "sources": sources,
    });
    inputs
}

/// Gives a finished build a Metal library of its own: compiled from MLX's sources for a chosen target, kept only when the audit
/// passes, in a folder with program and libraries, signed ad hoc.
///
/// # Errors
/// See [`MetalError`].
pub fn with_own_library(
    artifact: &Artifact,
    request: &MetalRequest<'_>,
    layout: &Layout,
    sink: &dyn EventSink,
) -> Result<Artifact, MetalError> {
    let started = Instant::now();
    let phase = Phase::start(sink, format!("Metal library of {}", artifact.name), 3);
    let tools = find_tools(ask_here)?;
    let (gpu, host) = host_of(&ask_here);
    let wheel_lib =
        wheel_lib(artifact).ok_or_else(|| MetalError::NoWheel { build: artifact.name.clone() })?;
    let floor = LibraryFile::open(&wheel_lib.join(LIBRARY))
        .ok()
        .and_then(|file| Some(file.parse().ok()?.header.os_floor));
    let target = choose_target(request.target, floor, host)?;
    let version = artifact.provenance.inputs["mlx"]["version"].as_str().unwrap_or_default().to_owned();
    let (root, sources) = match request.sources {
        Some(folder) => (folder.to_owned(), folder_digest(folder)?),
        None => step(
            sink,
            "MLX's sources",
            |(_, sources): &(PathBuf, String)| sources.clone(),
            || release_sources(&version, layout, sink),
        )?,
    };
    let inputs = inputs(&artifact.provenance.inputs, &tools, &target, &sources);
    let digest = digest_of(&inputs);
    let folder = layout.work.join("builds").join(&digest[..16]);
    let program = folder.join(PROGRAM);
    let finished = |log| Artifact {
        program: program.clone(),
        provenance: Provenance { digest: digest.clone(), inputs: inputs.clone(), log },
        ..artifact.clone()
    };
    if let Some(mut log) = finished_log(&folder, &digest) {
        log["reused"] = json!(true);
        phase.finish();
        return Ok(finished(log));
    }
    let library = folder.join(LIBRARY);
    let compiled = step(
        sink,
        "Metal library",
        |compiled: &CompiledLibrary| format!("{} kernels for macOS {}", compiled.kernels, compiled.target),
        || compile_library(&root, &tools, target.version, Kernels::AheadOfTime, &library),
    )?;
    let libraries = step(
        sink,
        "signed",
        |libraries: &Vec<PathBuf>| format!("{} files", libraries.len() + 1),
        || dress(artifact, &program, &wheel_lib, &folder),
    )?;
    let sha256 = |path: &Path| archive::file_sha256(path).map_err(StoreError::at("read", path));
    let log = json!({
        "reused": false,
        "finished": clock::now_utc(),
        "took_s": started.elapsed().as_secs_f64(),
        "compile_s": artifact.provenance.log["compile_s"],
        "program": program.display().to_string(),
        "program_sha256": sha256(&program)?,
        "built_from": artifact.provenance.log["program"],
        "mlx": wheel_lib.display().to_string(),
        "metal": {
            "library": library.display().to_string(),
            "library_sha256": sha256(&library)?,
            "kernels": compiled.kernels,
            "compiler": tools.compiler.display().to_string(),
            "compiler_version": tools.version,
            "sdk": tools.sdk,
            "deployment_target": target.version,
            "deployment_target_from": target.why,
            "macos": host,
            "gpu": gpu,
            "sources": sources,
            "signed": "ad hoc",
            "libraries": libraries.iter().map(|path| path.display().to_string()).collect::<Vec<_>>(),
        },
    });
    let record = json!({"digest": digest, "inputs": inputs, "log": log});
    store::write_whole(&folder.join(RECORD), format!("{record:#}\n").as_bytes())?;
    phase.finish();
    Ok(finished(log))
}

/// Copies program and libraries together and signs them.
fn dress(
    artifact: &Artifact,
    program: &Path,
    wheel_lib: &Path,
    folder: &Path,
) -> Result<Vec<PathBuf>, MetalError> {
    store::copy_whole(&artifact.program, program)?;
    let mut libraries = Vec::new();
    for entry in fs::read_dir(wheel_lib).map_err(StoreError::at("read", wheel_lib))?.flatten() {
        let from = entry.path();
        if from.extension().is_some_and(|extension| extension == "dylib") {
            let to = folder.join(entry.file_name());
            store::copy_whole(&from, &to)?;
            libraries.push(to);
        }
    }
    libraries.sort();
    for command in dressing(program, &libraries, wheel_lib) {
        command.run_ok()?;
    }
    Ok(libraries)
}

/// The folder with the library that the build was linked to; none where MLX was compiled into the program.
fn wheel_lib(artifact: &Artifact) -> Option<PathBuf> {
    let named = artifact.provenance.inputs["mlx"]["library"].as_str()?;
    let place = PathBuf::from(artifact.provenance.log["mlx"].as_str()?);
    [place.join("mlx/lib"), place].into_iter().find(|folder| folder.join(named).is_file())
}

/// The sources of a release, from a mirror or fetched, and what names them in a record.
fn release_sources(
    version: &str,
    layout: &Layout,
    sink: &dyn EventSink,
) -> Result<(PathBuf, String), MetalError> {
    let unreachable = |source| MetalError::Release { version: version.to_owned(), source: Box::new(source) };
    let tagged = git::tagged(git::MLX, &format!("v{version}"), layout, sink).map_err(unreachable)?;
    let folder = git::checkout(&tagged, layout, sink).map_err(unreachable)?;
    Ok((folder, format!("{} {}", git::MLX, tagged.commit)))
}

/// A name for sources in a folder of the user's: what is compiled, by content.
fn folder_digest(folder: &Path) -> Result<String, MetalError> {
    let kernels = folder.join("mlx/backend/metal/kernels");
    let digest = super::digest::folder_digest(&kernels, &[]).map_err(StoreError::at("read", &kernels))?;
    Ok(format!("sha256 {digest}"))
}

fn finished_log(folder: &Path, digest: &str) -> Option<Value> {
    let record: Value =
        serde_json::from_slice(&file::bytes(&folder.join(RECORD), Most::Record).ok()?).ok()?;
    let whole =
        |path: PathBuf, sha256: &Value| archive::file_sha256(&path).is_ok_and(|found| *sha256 == found);
    let log = record.get("log")?.clone();
    let same = record["digest"] == digest
        && whole(folder.join(PROGRAM), &log["program_sha256"])
        && whole(folder.join(LIBRARY), &log["metal"]["library_sha256"]);
    same.then_some(log)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn version(text: &str) -> Option<Version> {
        Some(text.parse().unwrap())
    }

    #[test]
    fn the_target_is_named_or_the_official_librarys_and_never_the_hosts() {
        let chosen = |asked, official, host| {
            choose_target(asked, official, host).map(|t| (t.version.to_string(), t.why))
        };
        assert_eq!(
            chosen(version("15.0"), version("14.0"), version("26.1")).unwrap(),
            ("15.0".to_owned(), "--deployment-target")
        );
        assert_eq!(
            chosen(None, version("14.0"), version("26.1")).unwrap(),
            ("14.0".to_owned(), "the official library's floor")
        );
        let unknown = chosen(None, None, version("26.1")).unwrap_err();
        assert!(unknown.hint().unwrap().contains("--deployment-target"), "{unknown}");
        let newer = chosen(version("26.2"), version("14.0"), version("15.5")).unwrap_err();
        assert_eq!(
            newer.to_string(),
            "a library for macOS 26.2 cannot be loaded on this Mac, which runs 15.5"
        );
        assert!(chosen(version("26.2"), None, None).is_ok(), "an unknown host rules nothing out");
    }

    #[test]
    fn a_chips_name_tells_its_gpu() {
        let told = |chip: &str| {
            let gpu = gpu_of(chip);
            (gpu.generation, gpu.family, gpu.neural_accelerators)
        };
        assert_eq!(told("Apple M1\n"), (Some(1), Some("apple7"), Some(false)));
        assert_eq!(told("Apple M3 Max"), (Some(3), Some("apple9"), Some(false)));
        assert_eq!(told("Apple M5 Pro"), (Some(5), Some("apple10"), Some(true)));
        assert_eq!(told("Apple M9"), (Some(9), None, Some(true)));
        assert_eq!(told("Intel(R) Core(TM) i7"), (None, None, None));
    }

    #[test]
    fn a_mac_is_asked_for_its_chip_and_system() {
        let answers = |invocation: &Invocation| match invocation.program.to_str().unwrap() {
            "sysctl" => Ok("Apple M2 Ultra\n".to_owned()),
            "sw_vers" => Ok("26.1\n".to_owned()),
            other => panic!("nothing is recorded for `{other}`"),
        };
        let (gpu, host) = host_of(&answers);
        assert_eq!((gpu.unwrap().family, host), (Some("apple8"), version("26.1")));
        assert_eq!(host_of(&|_: &Invocation| Err("no".to_owned())), (None, None));
    }

    #[test]
    fn program_and_libraries_are_told_where_to_look_and_signed_last() {
        let commands = dressing(
            Path::new("/b/regraft-runner"),
            &["/b/libjaccl.dylib".into(), "/b/libmlx.dylib".into()],
            Path::new("/w/mlx/lib"),
        );
        let lines: Vec<String> = commands.iter().map(Invocation::shell_line).collect();
        insta::assert_snapshot!(lines.join("\n"), @"
        install_name_tool -rpath /w/mlx/lib @loader_path /b/regraft-runner
        codesign --force --sign - /b/libjaccl.dylib
        codesign --force --sign - /b/libmlx.dylib
        codesign --force --sign - /b/regraft-runner
        ");
    }

    #[test]
    fn another_compiler_sdk_target_or_source_is_another_build() {
        let tools = |version: &str, sdk| MetalTools { compiler: "/m".into(), version: version.into(), sdk };
        let target = |version| Target { version, why: "x" };
        let base = json!({"mlx": {"version": "0.31.2"}});
        let (v14, v15, v26) = (Version::new(14, 0), Version::new(15, 0), Version::new(26, 4));
        let digests = [
            digest_of(&inputs(&base, &tools("a", v26), &target(v14), "s")),
            digest_of(&inputs(&base, &tools("b", v26), &target(v14), "s")),
            digest_of(&inputs(&base, &tools("a", v15), &target(v14), "s")),
            digest_of(&inputs(&base, &tools("a", v26), &target(v15), "s")),
            digest_of(&inputs(&base, &tools("a", v26), &target(v14), "t")),
            digest_of(&base),
        ];
        let distinct: std::collections::BTreeSet<_> = digests.iter().collect();
        assert_eq!(distinct.len(), digests.len());
    }

    #[test]
    fn the_librarys_folder_is_found_by_the_record_and_a_compiled_mlx_has_none() {
        let dir = tempfile::tempdir().unwrap();
        store::write_whole(&dir.path().join("mlx/lib/libmlx.dylib"), b"").unwrap();
        let artifact = |mlx: Value| Artifact {
            name: "x".into(),
            program: "/p".into(),
            args: vec![],
            env: Default::default(),
            provenance: Provenance {
                digest: String::new(),
                inputs: json!({ "mlx": mlx }),
                log: json!({"mlx": dir.path().display().to_string()}),
            },
        };
        assert_eq!(
            wheel_lib(&artifact(json!({"library": "libmlx.dylib"}))),
            Some(dir.path().join("mlx/lib"))
        );
        assert_eq!(wheel_lib(&artifact(json!({"source": "vendored"}))), None);
    }
}
