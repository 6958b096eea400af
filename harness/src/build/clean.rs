//! Builds a runner in a new folder in which nothing is reused: every crate is unpacked anew from a file whose hash the lock
//! names, cargo sees only those and a home of its own, and no network. Two such builds of one recipe give the same
//! program; earlier ones are compared with.

use std::{
    env,
    ffi::OsString,
    fs,
    path::{Path, PathBuf},
    time::Instant,
};

use serde_json::{Value, json};

use crate::{
    build::{
        artifact::{Artifact, Provenance},
        cache,
        compile::{self, BuildError, Ingredients, PROGRAM, Purpose, RECORD},
        git,
        layout::Layout,
        mlx::{Mlx, StaticBlas, Vendored},
        provision::Toolbox,
        recipe::CratePlan,
        steps::{Phase, step},
        store::{self, StoreError},
    },
    config::spec::BuildSpec,
    event::EventSink,
    tools::{
        archive, cargo, clock,
        file::{self, Most},
        process::Invocation,
    },
};

/// What the folder of a clean build is called in the program, whatever it is called on the disk.
const CALLED: &str = "/regraft";

/// The folder of the scratch package that holds the files of a git revision.
const REVISION: &str = "revision";

/// A proxy that nothing answers at (the discard port): whatever asks for the network in spite of all fails at once.
const NO_PROXY_ANSWERS: &str = "http://127.0.0.1:9";

/// What a clean build leaves behind.
#[derive(Debug, Clone)]
pub struct CleanBuild {
    /// The engine.
    pub artifact: Artifact,
    /// The folder that holds its program, library, logs and record.
    pub folder: PathBuf,
    /// The SHA-256 of its program, in hexadecimal.
    pub program_sha256: String,
    /// Earlier clean builds of the same recipe, by folder name.
    pub twins: Vec<Twin>,
}

impl CleanBuild {
    /// The earlier builds whose program is another one, although everything that went in is equal.
    pub fn unlike(&self) -> impl Iterator<Item = &Twin> {
        self.twins.iter().filter(|twin| twin.program_sha256 != self.program_sha256)
    }
}

/// An earlier clean build of the same recipe.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Twin {
    /// Its folder.
    pub folder: PathBuf,
    /// The SHA-256 of its program, in hexadecimal.
    pub program_sha256: String,
}

/// Builds `spec` in a new folder below `target/regraft/clean`.
///
/// # Errors
/// As for [`compile::build`]. What was made so far stays in the folder, for a look.
pub fn build_clean(
    spec: &BuildSpec,
    layout: &Layout,
    toolbox: &Toolbox,
    sink: &dyn EventSink,
) -> Result<CleanBuild, BuildError> {
    let started = Instant::now();
    let phase = Phase::start(sink, format!("clean build {}", spec.name), 4);
    let home = layout.work.join("clean");
    let folder = new_folder(&home, &spec.name, &clock::now_utc())?;
    // The library is unpacked into this folder, too.
    let inside = Layout { work: folder.clone(), ..layout.clone() };
    let made_of = compile::ingredients(spec, &inside, toolbox, sink)?;
    let (inputs, digest) = made_of.identity(spec, layout)?;
    let Ingredients { mlx, crates, toolchain } = made_of;

    let room = Room { folder: &folder };
    let mlx = room.with_own_blas(mlx)?;
    let unpacked = step(
        sink,
        "crates",
        |count: &usize| format!("{count} unpacked, all as the lock says"),
        || unpack_all(spec, &crates, layout, &inside, &room.vendor()),
    )?;
    let package = step(
        sink,
        "scratch copy",
        |_: &PathBuf| "made".to_owned(),
        || scratch_copy(spec, &folder, &crates, (layout, &inside), sink),
    )?;
    let sources: Vec<(CratePlan, PathBuf)> = crates
        .iter()
        .map(|plan| match &plan.folder {
            Some(inner) => (plan.clone(), package.join(REVISION).join(inner)),
            None => (plan.clone(), room.vendor().join(vendored_name(plan))),
        })
        .collect();
    compile::check_mlx_version(spec, &mlx, &sources)?;
    store::write_whole(&room.config(), room.config_text().as_bytes())?;
    let mut command = compile::cargo_on(spec, &package, &mlx, &inside, toolbox, &toolchain, Purpose::Build)?;
    command.invocation = room.shut(command.invocation, &mlx, |name| env::var(name).ok());
    command.output = room.target().join("release").join(PROGRAM);
    let compiled = compile::run_cargo(spec, &command, format!("compile {}", spec.name), sink)?;

    let program = folder.join(PROGRAM);
    store::copy_whole(&command.output, &program)?;
    let program_sha256 = archive::file_sha256(&program).map_err(StoreError::at("read", &program))?;
    let log = json!({
        "root": folder.display().to_string(),
        "clean": true,
        "reused": false,
        "crates_unpacked": unpacked,
        "finished": clock::now_utc(),
        "took_s": started.elapsed().as_secs_f64(),
        "compile_s": compiled.as_secs_f64(),
        "command": command.invocation.shell_line(),
        "log": command.invocation.log.as_ref().map(|p| p.display().to_string()),
        "program": program.display().to_string(),
        "program_sha256": program_sha256,
        "mlx": mlx.library_dir().map(|dir| dir.display().to_string()),
    });
    let record = json!({"digest": digest, "inputs": inputs, "log": log});
    let twins = twins(&home, &folder, &digest);
    store::write_whole(&folder.join(RECORD), format!("{record:#}\n").as_bytes())?;
    room.clear()?;
    phase.finish();
    let artifact = compile::artifact(spec, &folder, toolbox, Provenance { digest, inputs, log });
    Ok(CleanBuild { artifact, folder, program_sha256, twins })
}

/// The runner's package, with the files of the build's git revision inside it: cargo names local packages by where they lie
/// from there, which is the same in every clean build.
fn scratch_copy(
    spec: &BuildSpec,
    folder: &Path,
    crates: &[CratePlan],
    (layout, inside): (&Layout, &Layout),
    sink: &dyn EventSink,
) -> Result<PathBuf, BuildError> {
    let copies: Vec<(CratePlan, PathBuf)> = match &spec.git {
        Some(_) => compile::of_revision(crates, Path::new(REVISION)).collect(),
        None => Vec::new(),
    };
    let package = compile::scratch_copy(spec, folder, &copies, layout)?;
    if let Some(source) = &spec.git {
        let files = package.join(REVISION);
        fs::create_dir_all(&files).map_err(StoreError::at("make", &files))?;
        git::unpack(source, inside, &files, sink)?;
    }
    Ok(package)
}

/// A folder that was not there before: the build's name, the time, and a number where that is taken.
fn new_folder(home: &Path, build: &str, now: &str) -> Result<PathBuf, StoreError> {
    fs::create_dir_all(home).map_err(StoreError::at("make", home))?;
    let stamp: String = now.chars().filter(char::is_ascii_alphanumeric).collect();
    for number in 1_u32.. {
        let folder = home.join(match number {
            1 => format!("{build}-{stamp}"),
            _ => format!("{build}-{stamp}-{number}"),
        });
        match fs::create_dir(&folder) {
            Err(error) if error.kind() == std::io::ErrorKind::AlreadyExists => {}
            made => return made.map(|()| folder.clone()).map_err(StoreError::at("make", &folder)),
        }
    }
    unreachable!("some number is free")
}

/// The clean builds beside `folder` that were made of the same.
fn twins(home: &Path, folder: &Path, digest: &str) -> Vec<Twin> {
    let Ok(entries) = fs::read_dir(home) else { return Vec::new() };
    let twin = |place: PathBuf| {
        let record: Value =
            serde_json::from_slice(&file::bytes(&place.join(RECORD), Most::Record).ok()?).ok()?;
        let program_sha256 = record["log"]["program_sha256"].as_str()?.to_owned();
        (record["digest"] == digest && place != folder).then_some(Twin { folder: place, program_sha256 })
    };
    let mut twins: Vec<Twin> = entries.flatten().filter_map(|entry| twin(entry.path())).collect();
    twins.sort_by(|a, b| a.folder.cmp(&b.folder));
    twins
}

fn vendored_name(plan: &CratePlan) -> String {
    format!("{}-{}", plan.name, plan.version)
}

/// Unpacks every crate that the runner's lock names, patched where the build says so, and counts them. Only here the
/// network may be asked, for files that cargo's cache lacks.
fn unpack_all(
    spec: &BuildSpec,
    crates: &[CratePlan],
    layout: &Layout,
    inside: &Layout,
    vendor: &Path,
) -> Result<usize, BuildError> {
    let package = layout.runner_package(&spec.dialect);
    cargo::fetch(&package.join("Cargo.toml"), &inside.log("fetch")).map_err(BuildError::Fetch)?;
    let lock = match &spec.git {
        Some(source) => git::lock_file(source, layout),
        None => package.join("Cargo.lock"),
    };
    let plans = every_crate(compile::locked_by(&lock)?, crates);
    for plan in &plans {
        let folder = vendor.join(vendored_name(plan));
        fs::create_dir_all(&folder).map_err(StoreError::at("make", &folder))?;
        compile::patched_copy(plan, &folder)?;
        // Cargo takes the folder for the package of the lock; it was compared with the lock before it was unpacked.
        let claim = json!({"files": {}, "package": plan.sha256}).to_string();
        store::write_whole(&folder.join(".cargo-checksum.json"), claim.as_bytes())?;
    }
    Ok(plans.len())
}

/// The plans of a build's own crates, and plain ones for all else that the lock takes from the registry.
fn every_crate(locked: Vec<cargo::LockedPackage>, crates: &[CratePlan]) -> Vec<CratePlan> {
    let plan = |package: cargo::LockedPackage| {
        let own = crates.iter().find(|plan| plan.name == package.name && plan.version == package.version);
        let plain = || {
            let cargo::LockedPackage { name, version, checksum } = package;
            checksum.map(|sha256| CratePlan { name, version, sha256, folder: None, patches: Vec::new() })
        };
        own.filter(|plan| plan.folder.is_none()).cloned().or_else(plain)
    };
    locked.into_iter().filter_map(plan).collect()
}

/// A clean build's folder, seen as the place in which cargo is shut up.
struct Room<'a> {
    folder: &'a Path,
}

impl Room<'_> {
    fn vendor(&self) -> PathBuf {
        self.folder.join("vendor")
    }

    /// Named alike in every clean build: C++ code may name its own files, and a name by a hash of paths would differ.
    fn target(&self) -> PathBuf {
        self.folder.join("cargo/target")
    }

    /// The BLAS of a static MLX, copied into the folder, where the program finds it from its own place on.
    fn with_own_blas(&self, mlx: Mlx) -> Result<Mlx, StoreError> {
        let Mlx::Vendored(Vendored { blas: Some(blas) }) = mlx else { return Ok(mlx) };
        let library = self.folder.join("blas").join(blas.library.file_name().unwrap_or_default());
        store::copy_whole(&blas.library, &library)?;
        Ok(Mlx::Vendored(Vendored { blas: Some(StaticBlas { library, ..blas }) }))
    }

    fn config(&self) -> PathBuf {
        self.folder.join("cargo.toml")
    }

    /// Sends cargo to the unpacked crates instead of the registry. Named on the command line, it overrides every
    /// configuration of the user's.
    fn config_text(&self) -> String {
        let vendor = toml::Value::String(self.vendor().to_string_lossy().into_owned());
        format!(
            "[source.crates-io]\nreplace-with = \"regraft-clean\"\n\n[source.regraft-clean]\ndirectory = {vendor}\n\n\
             [net]\noffline = true\n"
        )
    }

    /// Gives a cargo command a home and outputs of its own, no cache of compilers, no network, and paths that do not
    /// tell where it ran.
    fn shut(&self, cargo: Invocation, mlx: &Mlx, variable: impl Fn(&str) -> Option<String>) -> Invocation {
        let mut cargo = cargo
            .arg("--config")
            .arg(self.config())
            .env("CARGO_HOME", self.folder.join("cargo-home"))
            .env("CARGO_TARGET_DIR", self.target())
            .env("CARGO_NET_OFFLINE", "true")
            .env("CCACHE_DISABLE", "1")
            .env("SCCACHE_RECACHE", "1")
            .env("GIT_ALLOW_PROTOCOL", "file")
            .env("REGRAFT_MLX_RPATH", self.rpath(mlx));
        // Empty, they also override a wrapper in the user's configuration.
        for name in cache::VARIABLES {
            cargo = cargo.env(name, "");
        }
        for name in ["http_proxy", "https_proxy", "HTTPS_PROXY", "ALL_PROXY", "all_proxy"] {
            cargo = cargo.env(name, NO_PROXY_ANSWERS);
        }
        let mut remap = OsString::from("--remap-path-prefix=");
        remap.push(self.folder);
        remap.push(format!("={CALLED}"));
        cargo = cargo.env_remove(["RUSTFLAGS"]).env("CARGO_ENCODED_RUSTFLAGS", remap);
        let folder = self.folder.to_string_lossy();
        // Such flags are split at spaces and know no quotes; with them only the names in assertions of C code differ.
        if !folder.contains(char::is_whitespace) {
            for name in ["CFLAGS", "CXXFLAGS"] {
                let inherited = variable(name).unwrap_or_default();
                let flags = format!("{inherited} -ffile-prefix-map={folder}={CALLED}");
                cargo = cargo.env(name, flags.trim_start());
            }
        }
        cargo
    }

    /// Where the program finds its library, from its own place on.
    fn rpath(&self, mlx: &Mlx) -> OsString {
        let origin = if cfg!(target_os = "macos") { "@loader_path" } else { "$ORIGIN" };
        let Some(lib) = mlx.library_dir() else { return origin.into() };
        match lib.strip_prefix(self.folder) {
            Ok(inner) => Path::new(origin).join(inner).into_os_string(),
            Err(_) => lib.into_os_string(),
        }
    }

    /// Removes what the program does not need any more: half a gigabyte of sources and intermediate outputs.
    fn clear(&self) -> Result<(), StoreError> {
        for name in ["cargo", "cargo-home", "vendor", "scratch"] {
            let path = self.folder.join(name);
            if path.is_dir() {
                fs::remove_dir_all(&path).map_err(StoreError::at("clear away", &path))?;
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        build::{provision::MlxWheel, recipe},
        tools::cargo::LockedPackage,
    };

    fn wheel(folder: &str) -> Mlx {
        Mlx::Wheel(MlxWheel {
            package: "mlx-cpu".into(),
            version: "0.31.2".into(),
            wheel: String::new(),
            wheel_sha256: String::new(),
            library: "libmlx.so".into(),
            library_sha256: String::new(),
            folder: folder.into(),
        })
    }

    #[test]
    fn a_folder_is_always_a_new_one() {
        let dir = tempfile::tempdir().unwrap();
        let names: Vec<String> = (0..3)
            .map(|_| new_folder(dir.path(), "patched", "2026-11-30T10:00:00Z").unwrap())
            .map(|folder| folder.file_name().unwrap().to_string_lossy().into_owned())
            .collect();
        assert_eq!(
            names,
            ["patched-20261130T100000Z", "patched-20261130T100000Z-2", "patched-20261130T100000Z-3"]
        );
    }

    #[test]
    fn cargo_sees_nothing_of_the_user_and_no_network() {
        let room = Room { folder: Path::new("/w/clean/a") };
        let inherited = |name: &str| (name == "CFLAGS").then(|| "-O1".to_owned());
        let shut = room.shut(cargo::cargo().arg("build"), &wheel("/w/clean/a/mlx/0.31.2-x"), inherited);
        let variable = |name: &str| shut.env[std::ffi::OsStr::new(name)].to_string_lossy().into_owned();
        assert_eq!(variable("CARGO_HOME"), "/w/clean/a/cargo-home");
        assert_eq!(variable("CARGO_TARGET_DIR"), "/w/clean/a/cargo/target");
        assert_eq!(variable("CARGO_ENCODED_RUSTFLAGS"), "--remap-path-prefix=/w/clean/a=/regraft");
        assert_eq!(variable("CFLAGS"), "-O1 -ffile-prefix-map=/w/clean/a=/regraft");
        assert_eq!(variable("CXXFLAGS"), "-ffile-prefix-map=/w/clean/a=/regraft");
        assert_eq!(
            (variable("CARGO_NET_OFFLINE").as_str(), variable("RUSTC_WRAPPER").as_str()),
            ("true", "")
        );
        let cached = cache::through(Invocation::new("cargo"), Some(Path::new("/bin/sccache")), |_| false);
        let shut = room.shut(cached, &wheel("/w/clean/a/mlx/0.31.2-x"), |_: &str| None);
        assert!(cache::VARIABLES.iter().all(|name| shut.env[std::ffi::OsStr::new(name)].is_empty()));
        assert_eq!(variable("https_proxy"), NO_PROXY_ANSWERS);
        if cfg!(target_os = "linux") {
            assert_eq!(variable("REGRAFT_MLX_RPATH"), "$ORIGIN/mlx/0.31.2-x/mlx/lib");
        }
        let config: toml::Table = room.config_text().parse().unwrap();
        assert_eq!(config["source"]["regraft-clean"]["directory"].as_str(), Some("/w/clean/a/vendor"));
        assert_eq!(config["source"]["crates-io"]["replace-with"].as_str(), Some("regraft-clean"));
    }

    #[test]
    fn the_blas_of_a_static_mlx_lies_beside_the_program() {
        let dir = tempfile::tempdir().unwrap();
        let shared = dir.path().join("shared/libregraft_blas.so");
        store::write_whole(&shared, b"elf").unwrap();
        let room = Room { folder: &dir.path().join("clean") };
        let blas = StaticBlas {
            library: shared,
            headers: "/r/blas_headers".into(),
            version: "1".into(),
            sources_sha256: String::new(),
        };
        let mlx = room.with_own_blas(Mlx::Vendored(Vendored { blas: Some(blas) })).unwrap();
        let (variable, library) = mlx.link_variable();
        assert_eq!(
            (variable, Path::new(&library)),
            ("REGRAFT_BLAS", &*room.folder.join("blas/libregraft_blas.so"))
        );
        assert_eq!(fs::read(library).unwrap(), b"elf");
        if cfg!(target_os = "linux") {
            assert_eq!(room.rpath(&mlx), "$ORIGIN/blas");
        }
    }

    #[test]
    fn every_crate_of_the_lock_is_unpacked_and_the_builds_own_are_patched() {
        let package = |name: &str, checksum: Option<&str>| LockedPackage {
            name: name.into(),
            version: "1.0.0".into(),
            checksum: checksum.map(str::to_owned),
        };
        let patch = recipe::PatchFile { name: "0001-a.patch".into(), sha256: "p".into(), path: "/p".into() };
        let own = CratePlan {
            name: "b".into(),
            version: "1.0.0".into(),
            sha256: "bb".into(),
            folder: None,
            patches: vec![patch],
        };
        let locked = vec![package("a", Some("aa")), package("b", Some("bb")), package("runner", None)];
        let plans = every_crate(locked, std::slice::from_ref(&own));
        let names: Vec<_> = plans.iter().map(|p| (p.name.as_str(), p.patches.len())).collect();
        assert_eq!(names, [("a", 0), ("b", 1)]);
    }

    #[test]
    fn only_finished_builds_of_the_same_recipe_are_twins() {
        let dir = tempfile::tempdir().unwrap();
        let record = |name: &str, digest: &str, sha256: &str| {
            let record = json!({"digest": digest, "log": {"program_sha256": sha256}}).to_string();
            store::write_whole(&dir.path().join(name).join(RECORD), record.as_bytes()).unwrap();
        };
        record("1", "d", "same");
        record("2", "d", "other");
        record("3", "e", "same");
        fs::create_dir(dir.path().join("4")).unwrap();
        let found = twins(dir.path(), &dir.path().join("5"), "d");
        let found: Vec<_> = found.iter().map(|t| t.program_sha256.as_str()).collect();
        assert_eq!(found, ["same", "other"]);
        assert_eq!(twins(dir.path(), &dir.path().join("1"), "d").len(), 1, "not its own twin");
    }
}
