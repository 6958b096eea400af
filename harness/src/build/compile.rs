//! Builds a runner: patched copies of the crates, a scratch copy of the runner's package, the official MLX library, one
//! shared cargo target folder. An equal build is found again by its digest.

use std::{
    env,
    ffi::OsString,
    fs, io,
    path::{Path, PathBuf},
    time::{Duration, Instant},
};

use serde_json::{Value, json};

use crate::{
    build::{
        artifact::{Artifact, Provenance},
        cache,
        digest::{self, sha256_hex},
        git::{self, GitSourceError},
        layout::Layout,
        mlx::{self, Mlx},
        provision::{self, ProvisionError, Toolbox},
        recipe::{self, CratePlan, OwnSources, PatchFile, Toolchain},
        steps::{Phase, step},
        store::{self, Made, StoreError},
    },
    config::spec::{BuildSpec, GitSource, MlxSource},
    event::{Event, EventSink},
    stack::order::{OrderError, by_number, is_patch_name},
    tools::{
        archive::{self, ArchiveError},
        cargo::{self, LockedPackage},
        clock, disk,
        file::{self, Most},
        git::apply::{self, ApplyError},
        host,
        lock::{FileLock, LockError},
        process::{Invocation, ProcessError},
    },
};

/// The runner's program, as its package names it.
pub(super) const PROGRAM: &str = "regraft-runner";
pub(super) const RECORD: &str = "record.json";

/// Parts of the runner that do not reach its program, or not that of the first dialect.
const NOT_BUILT: [&str; 3] = ["target", "tests", "dialects"];

/// The files that make a package.
const PACKAGE: [&str; 2] = ["Cargo.lock", "Cargo.toml"];

/// Compiler variables that change what is made; they are kept, and recorded when set.
const FLAGS: [&str; 8] =
    ["CC", "CXX", "CFLAGS", "CXXFLAGS", "CPPFLAGS", "LDFLAGS", "MACOSX_DEPLOYMENT_TARGET", "RUSTC_WRAPPER"];

/// Why there is no artifact.
#[derive(Debug, thiserror::Error)]
pub enum BuildError {
    /// A crate or version is not in the runner's lock.
    #[error(
        "build `{build}` wants {package} {version}, which the runner's lock does not hold (it holds: {})",
        if .locked.is_empty() { "none".to_owned() } else { .locked.join(", ") }
    )]
    NotLocked {
        /// The build.
        build: String,
        /// The crate.
        package: String,
        /// The version it wants.
        version: String,
        /// The versions that are locked.
        locked: Vec<String>,
    },
    /// A patch folder is missing or empty.
    #[error("`{}` holds no numbered patch", .folder.display())]
    NoPatches {
        /// The folder.
        folder: PathBuf,
    },
    /// The order of a folder's patches cannot be told.
    #[error("cannot put the patches of `{}` in order", .folder.display())]
    PatchOrder {
        /// The folder.
        folder: PathBuf,
        /// What is wrong with their names.
        #[source]
        source: OrderError,
    },
    /// The runner has no feature for a dialect.
    #[error("build `{build}` speaks `{dialect}`, and the runner has no feature `{feature}`")]
    UnknownDialect {
        /// The build.
        build: String,
        /// The dialect.
        dialect: String,
        /// The feature that it would need.
        feature: String,
    },
    /// A file of the recipe cannot be read.
    #[error("cannot read `{}`", .path.display())]
    Read {
        /// The file.
        path: PathBuf,
        /// What the system said.
        #[source]
        source: io::Error,
    },
    /// A lock file is not one.
    #[error("`{}` is not a Cargo.lock", .path.display())]
    Lock {
        /// The file.
        path: PathBuf,
        /// Where it goes wrong.
        #[source]
        source: Box<toml::de::Error>,
    },
    /// A tool does not say its version.
    #[error("cannot ask for the version of a build tool")]
    Tool(#[source] ProcessError),
    /// The crates cannot be downloaded.
    #[error("cannot download the crates that the runner's lock names")]
    Fetch(#[source] ProcessError),
    /// Cargo says that it fetched a crate, and its file is not there.
    #[error("cargo's cache holds no file of {package} {version}")]
    NoCrateFile {
        /// The crate.
        package: String,
        /// The version.
        version: String,
    },
    /// A downloaded crate is not the one that the lock names.
    #[error("`{}` is not the {package} {version} that the runner's lock names", .file.display())]
    WrongCrate {
        /// The crate.
        package: String,
        /// The version.
        version: String,
        /// The file.
        file: PathBuf,
    },
    /// A crate cannot be unpacked.
    #[error("cannot unpack {package} {version}")]
    Unpack {
        /// The crate.
        package: String,
        /// The version.
        version: String,
        /// Why.
        #[source]
        source: Box<ArchiveError>,
    },
    /// A stack does not apply.
    #[error("cannot patch {package} {version}")]
    Patch {
        /// The crate.
        package: String,
        /// The version.
        version: String,
        /// Why.
        #[source]
        source: Box<ApplyError>,
    },
    /// The files of a git revision are not at hand.
    #[error("cannot get the files of `{repository}`")]
    GitSource {
        /// The repository.
        repository: String,
        /// Why.
        #[source]
        source: Box<GitSourceError>,
    },
    /// The MLX library is another version than the sources were written for.
    #[error(
        "build `{build}` takes the MLX library {wheel}, and the mlx-c in {package} is written for MLX {expected}"
    )]
    MlxMismatch {
        /// The build.
        build: String,
        /// The library's version.
        wheel: String,
        /// The crate that holds mlx-c, with its version.
        package: String,
        /// The version that it was written for.
        expected: String,
    },
    /// A folder of a revision holds no crate.
    #[error(
        "`{repository}` at {commit} holds no `{folder}/Cargo.toml`, where build `{build}` looks for {package}"
    )]
    NoCrate {
        /// The build.
        build: String,
        /// The crate.
        package: String,
        /// Its folder.
        folder: String,
        /// The repository.
        repository: String,
        /// The commit.
        commit: String,
    },
    /// An archive that MLX's CMake lists patch would come from a mirror, unpatched.
    #[error(
        "MLX's CMake lists patch the archive of `{dependency}`, and a mirror of {repository} would be taken unpatched"
    )]
    PatchedArchive {
        /// The dependency.
        dependency: String,
        /// Its repository.
        repository: String,
    },
    /// MLX is to be compiled, and nothing is there that does its matrix products.
    #[error("build `{build}` compiles MLX, and there is no BLAS to link it to: {why}")]
    NoBlas {
        /// The build.
        build: String,
        /// What is missing.
        why: String,
    },
    /// The compiler refused, was stopped or killed; see [`BuildError::is_about_the_machine`].
    #[error("cannot compile build `{build}`")]
    Compile {
        /// The build.
        build: String,
        /// What cargo said.
        #[source]
        source: Box<ProcessError>,
    },
    /// Something that the build needs could not be provisioned.
    #[error("cannot provision for build `{build}`")]
    Provision {
        /// The build.
        build: String,
        /// Why.
        #[source]
        source: Box<ProvisionError>,
    },
    /// A folder or file could not be made.
    #[error("cannot prepare the build's folders")]
    Store(#[from] StoreError),
    /// The lock between processes failed.
    #[error("cannot keep other runs out")]
    Exclusion(#[from] LockError),
}

impl BuildError {
    /// What to try.
    pub fn hint(&self) -> Option<String> {
        let hint = match self {
            Self::NotLocked { .. } => {
                "name that version in `matrices/builds.toml`, or change the runner's `Cargo.toml` and run `cargo update` there"
            }
            Self::NoPatches { .. } | Self::PatchOrder { .. } => {
                "patches are named NNNN-what-it-does.patch; leave `patches` out of a crate that takes none"
            }
            Self::UnknownDialect { .. } => {
                "dialects are features of `harness/runner/Cargo.toml`, less their dots, or folders in `harness/runner/dialects`"
            }
            Self::Tool(e) => return e.hint(),
            Self::Fetch(e) if looks_offline(e.stderr_tail()) => {
                "the crates registry cannot be reached: check network and proxy, then run the same command again"
            }
            Self::Fetch(e) if e.killed().is_some() => return e.hint(),
            Self::Fetch(_) => "run `cargo fetch --locked` in `harness/runner` to see it alone",
            Self::NoCrateFile { .. } => {
                "a vendored or replaced registry keeps no `.crate` files: build with the plain registry"
            }
            Self::WrongCrate { file, .. } => {
                return Some(format!("delete `{}` and run the same command again", file.display()));
            }
            Self::Unpack { .. } => "delete the file from cargo's cache and run the same command again",
            Self::Patch { source, .. } => return source.hint(),
            Self::GitSource { source, .. } if matches!(**source, GitSourceError::NotHere { .. }) => {
                "a path is taken from this repository's root on; it must be a git repository, a checkout or a bare one"
            }
            Self::GitSource { .. } => {
                "check the network, or name a folder with mirrors: `--mirror-root DIR`; other builds do without"
            }
            Self::MlxMismatch { expected, .. } => {
                return Some(format!(
                    "set this build's `mlx = {{ wheel = \"{expected}\" }}` in `matrices/builds.toml`"
                ));
            }
            Self::NoBlas { .. } => {
                "`cargo xtask doctor` says what the BLAS of the private environment lacks; builds with \
                 `mlx = { wheel = … }` need none"
            }
            Self::NoCrate { .. } => "correct the crate's `folder` in `matrices/builds.toml`, or the commit",
            Self::PatchedArchive { .. } => {
                "take its mirror out of `--mirror-root`, so that CMake downloads and patches it"
            }
            Self::Compile { source, .. } if is_full(source) => {
                "make room on the disk (a cold build takes 2 GB), then run the same command again"
            }
            Self::Compile { source, .. } => return source.hint(),
            Self::Provision { source, .. } => return source.hint(),
            Self::Store(e) => return e.hint(),
            Self::Read { source, .. } => return disk::hint(source),
            Self::Lock { .. } | Self::Exclusion(_) => return None,
        };
        Some(hint.to_owned())
    }
}

impl BuildError {
    /// Whether a failed compile says nothing about the sources: the disk was full, or a compiler was killed.
    pub fn is_about_the_machine(&self) -> bool {
        matches!(self, Self::Compile { source, .. } if is_full(source) || source.killed().is_some())
    }
}

fn is_full(failed: &ProcessError) -> bool {
    failed.stderr_tail().contains("No space left")
}

/// Builds what `spec` describes, or finds it by its digest.
pub fn build(
    spec: &BuildSpec,
    layout: &Layout,
    toolbox: &Toolbox,
    sink: &dyn EventSink,
) -> Result<Artifact, BuildError> {
    let started = Instant::now();
    let phase = Phase::start(sink, format!("build {}", spec.name), 4);
    let made_of = ingredients(spec, layout, toolbox, sink)?;
    let (inputs, digest) = made_of.identity(spec, layout)?;
    let Ingredients { mlx, crates, toolchain } = made_of;
    let folder = layout.work.join("builds").join(&digest[..16]);
    let there = |folder: PathBuf, record: Value| {
        sink.emit(Event::Note(format!("build `{}` is there already: {}", spec.name, folder.display())));
        let log = with_key(record, "reused", json!(true));
        artifact(spec, &folder, toolbox, Provenance { digest: digest.clone(), inputs: inputs.clone(), log })
    };

    if let Some((folder, record)) = finished_build(layout, &folder, &digest) {
        phase.finish();
        return Ok(there(folder, record));
    }
    let _lock = wait_for_other_builds(layout, sink)?;
    if let Some((folder, record)) = finished_build(layout, &folder, &digest) {
        phase.finish();
        return Ok(there(folder, record));
    }
    let (copies, reused_sources) = step(
        sink,
        "crate sources",
        |(copies, reused): &(Vec<(CratePlan, PathBuf)>, usize)| {
            format!("{} patched, {reused} cached", copies.len() - reused)
        },
        || patched_sources(spec, &crates, layout, sink),
    )?;
    check_mlx_version(spec, &mlx, &copies)?;
    let package = step(
        sink,
        "scratch copy",
        |_: &PathBuf| "made".to_owned(),
        || scratch_copy(spec, &folder, &copies, layout),
    )?;
    let command = cargo_on(spec, &package, &mlx, layout, toolbox, &toolchain, Purpose::Build)?;
    let compiled = run_cargo(spec, &command, format!("compile {}", spec.name), sink)?;
    let program = folder.join(PROGRAM);
    store::copy_whole(&command.output, &program)?;
    let log = json!({
        "root": layout.work.display().to_string(),
        "finished": clock::now_utc(),
        "took_s": started.elapsed().as_secs_f64(),
        "compile_s": compiled.as_secs_f64(),
        "command": command.invocation.shell_line(),
        "log": command.invocation.log.as_ref().map(|p| p.display().to_string()),
        "program": program.display().to_string(),
        "program_sha256": archive::file_sha256(&program).map_err(StoreError::at("read", &program))?,
        "sources": copies.iter().map(|(_, path)| path.display().to_string()).collect::<Vec<_>>(),
        "sources_reused": reused_sources,
        "mlx": mlx.library_dir().map(|dir| dir.display().to_string()),
    });
    let record = json!({"digest": digest, "inputs": inputs, "log": log});
    store::write_whole(&folder.join(RECORD), format!("{record:#}\n").as_bytes())?;
    phase.finish();
    Ok(artifact(
        spec,
        &folder,
        toolbox,
        Provenance { digest, inputs, log: with_key(log, "reused", json!(false)) },
    ))
}

pub(super) fn artifact(
    spec: &BuildSpec,
    folder: &Path,
    toolbox: &Toolbox,
    provenance: Provenance,
) -> Artifact {
    Artifact {
        name: spec.name.clone(),
        program: folder.join(PROGRAM),
        args: Vec::new(),
        env: toolbox.engine_env(),
        provenance,
    }
}

/// A build of this digest that is whole: an ordinary one in `folder`, or the last clean one.
fn finished_build(layout: &Layout, folder: &Path, digest: &str) -> Option<(PathBuf, Value)> {
    let mut clean: Vec<PathBuf> = fs::read_dir(layout.work.join("clean"))
        .into_iter()
        .flatten()
        .filter_map(|entry| Some(entry.ok()?.path()))
        .collect();
    clean.sort();
    std::iter::once(folder.to_owned())
        .chain(clean.into_iter().rev())
        .find_map(|folder| finished_record(&folder, digest).map(|record| (folder, record)))
}

/// The log of a build that went through at this very place; the program knows its library's absolute path.
fn finished_record(folder: &Path, digest: &str) -> Option<Value> {
    let record: Value =
        serde_json::from_slice(&file::bytes(&folder.join(RECORD), Most::Record).ok()?).ok()?;
    if record.get("digest")? != digest {
        return None;
    }
    let log = record.get("log")?.clone();
    let mlx = log.get("mlx")?.as_str().map(PathBuf::from);
    let here = log.get("program")?.as_str()? == folder.join(PROGRAM).to_string_lossy();
    let whole = archive::file_sha256(&folder.join(PROGRAM)).ok()? == log.get("program_sha256")?.as_str()?;
    (here && whole && mlx.is_none_or(|dir| dir.is_dir())).then_some(log)
}

pub(super) fn with_key(mut object: Value, key: &str, value: Value) -> Value {
    object[key] = value;
    object
}

pub(super) fn read_text(path: &Path) -> Result<String, BuildError> {
    file::text(path, Most::Configuration).map_err(|source| BuildError::Read { path: path.to_owned(), source })
}

/// The packages of a lock.
pub(super) fn locked_by(path: &Path) -> Result<Vec<LockedPackage>, BuildError> {
    cargo::locked_packages(&read_text(path)?)
        .map_err(|source| BuildError::Lock { path: path.to_owned(), source: Box::new(source) })
}

fn planned_crates(spec: &BuildSpec, layout: &Layout) -> Result<Vec<CratePlan>, BuildError> {
    let locked = locked_by(&layout.runner_package(&spec.dialect).join("Cargo.lock"))?;
    recipe::crate_plans(spec, &locked, |stack| patch_files(&layout.patches().join(stack)))
}

/// The numbered patches of a folder, in order.
pub(super) fn patch_files(folder: &Path) -> Result<Vec<PatchFile>, BuildError> {
    let none = || BuildError::NoPatches { folder: folder.to_owned() };
    let entries = fs::read_dir(folder).map_err(|_| none())?.flatten();
    let names = entries.map(|entry| entry.file_name().to_string_lossy().into_owned());
    let names: Vec<String> = names.filter(|name| is_patch_name(name)).collect();
    if names.is_empty() {
        return Err(none());
    }
    let ordered =
        by_number(&names).map_err(|source| BuildError::PatchOrder { folder: folder.to_owned(), source })?;
    let patch = |name: String| {
        let path = folder.join(&name);
        let content = file::bytes(&path, Most::Patch)
            .map_err(|source| BuildError::Read { path: path.clone(), source })?;
        Ok(PatchFile { name, sha256: sha256_hex(&content), path })
    };
    ordered.into_iter().map(patch).collect()
}

fn check_feature(spec: &BuildSpec, layout: &Layout) -> Result<(), BuildError> {
    let path = layout.runner_package(&spec.dialect).join("Cargo.toml");
    let manifest: toml::Table =
        read_text(&path)?.parse().map_err(|source| BuildError::Lock { path, source: Box::new(source) })?;
    let feature = recipe::feature(&spec.dialect);
    let features = manifest.get("features").and_then(toml::Value::as_table);
    if features.is_some_and(|f| f.contains_key(&feature)) {
        return Ok(());
    }
    Err(BuildError::UnknownDialect { build: spec.name.clone(), dialect: spec.dialect.clone(), feature })
}

pub(super) fn toolchain(toolbox: &Toolbox) -> Result<Toolchain, BuildError> {
    let first_line = |program: &str| -> Result<String, BuildError> {
        let done = Invocation::new(program).arg("--version").timeout(Duration::from_secs(60)).run_ok();
        Ok(done.map_err(BuildError::Tool)?.stdout.lines().next().unwrap_or_default().to_owned())
    };
    let rustc = cargo::rustc_version().map_err(BuildError::Tool)?;
    let version = |name: &str| toolbox.version_of(name).unwrap_or("unknown").to_owned();
    Ok(Toolchain {
        rustc: rustc.version,
        cargo: cargo::cargo_version().map_err(BuildError::Tool)?,
        cc: first_line("cc")?,
        cxx: first_line("c++")?,
        cmake: version("cmake"),
        ninja: version("ninja"),
        target: rustc.host,
        flags: FLAGS.iter().filter_map(|n| env::var(n).ok().map(|v| ((*n).to_owned(), v))).collect(),
    })
}

fn own_sources(spec: &BuildSpec, layout: &Layout) -> Result<OwnSources, BuildError> {
    let (runner, protocol) = (layout.runner(), layout.protocol());
    let lock = spec.git.as_ref().map(|source| git::lock_file(source, layout));
    let unread = |path: &Path| {
        let path = path.to_owned();
        move |source| BuildError::Read { path, source }
    };
    let files = runner_files(spec, layout).map_err(unread(&runner))?;
    Ok(OwnSources {
        runner_sha256: digest::files_digest(&runner, &files).map_err(unread(&runner))?,
        protocol_sha256: archive::file_sha256(&protocol).map_err(unread(&protocol))?,
        lock_sha256: lock.map(|lock| archive::file_sha256(&lock).map_err(unread(&lock))).transpose()?,
    })
}

/// The files of the runner that a build of this dialect is made of, relative to the runner's folder.
fn runner_files(spec: &BuildSpec, layout: &Layout) -> io::Result<Vec<PathBuf>> {
    let mut files = digest::files_below(&layout.runner(), &NOT_BUILT)?;
    let package = recipe::package_folder(&spec.dialect);
    if !package.as_os_str().is_empty() {
        files.retain(|file| !PACKAGE.iter().any(|name| file.as_path() == Path::new(name)));
        files.extend(PACKAGE.map(|name| package.join(name)));
    }
    Ok(files)
}

/// The copy of every crate that has patches or comes from a git revision, with the number of those that were there already.
pub(super) fn patched_sources(
    spec: &BuildSpec,
    crates: &[CratePlan],
    layout: &Layout,
    sink: &dyn EventSink,
) -> Result<(Vec<(CratePlan, PathBuf)>, usize), BuildError> {
    let home = layout.work.join("sources");
    store::clear_leftovers(&home)?;
    let manifest = layout.runner_package(&spec.dialect).join("Cargo.toml");
    cargo::fetch(&manifest, &layout.log("fetch")).map_err(BuildError::Fetch)?;
    let mut copies = Vec::new();
    let mut reused = 0;
    if let Some(source) = &spec.git {
        copies.extend(revision(spec, source, crates, layout, sink)?);
        reused += copies.len();
    }
    for plan in crates.iter().filter(|c| !c.patches.is_empty()) {
        let folder = home.join(plan.folder_name());
        let made = store::folder_once(&folder, |staging| patched_copy(plan, staging))?;
        reused += usize::from(made == Made::Reused);
        copies.push((plan.clone(), folder));
    }
    Ok((copies, reused))
}

/// The crates of a build's revision, each where it lies.
fn revision(
    spec: &BuildSpec,
    source: &GitSource,
    crates: &[CratePlan],
    layout: &Layout,
    sink: &dyn EventSink,
) -> Result<Vec<(CratePlan, PathBuf)>, BuildError> {
    let checkout = git::checkout(source, layout, sink)?;
    let copies: Vec<(CratePlan, PathBuf)> = of_revision(crates, &checkout).collect();
    match copies.iter().find(|(_, folder)| !folder.join("Cargo.toml").is_file()) {
        None => Ok(copies),
        Some((plan, _)) => Err(BuildError::NoCrate {
            build: spec.name.clone(),
            package: plan.name.clone(),
            folder: plan.folder.clone().unwrap_or_default(),
            repository: source.repository.clone(),
            commit: source.commit.short(),
        }),
    }
}

/// The crates that a git revision's files hold.
pub(super) fn of_revision<'c>(
    crates: &'c [CratePlan],
    checkout: &'c Path,
) -> impl Iterator<Item = (CratePlan, PathBuf)> + 'c {
    crates.iter().filter_map(|plan| Some((plan.clone(), checkout.join(plan.folder.as_ref()?))))
}

/// Unpacks a crate whose file has the hash that the lock names, and applies its patches.
pub(super) fn patched_copy(plan: &CratePlan, staging: &Path) -> Result<(), BuildError> {
    let (package, version) = (plan.name.clone(), plan.version.clone());
    let missing = || BuildError::NoCrateFile { package: package.clone(), version: version.clone() };
    let home = cargo::cargo_home().ok_or_else(missing)?;
    let file = cargo::fetched_crate(&home, &plan.name, &plan.version)
        .map_err(|source| BuildError::Read { path: home.clone(), source })?
        .ok_or_else(missing)?;
    let sha256 =
        archive::file_sha256(&file).map_err(|source| BuildError::Read { path: file.clone(), source })?;
    if sha256 != plan.sha256 {
        return Err(BuildError::WrongCrate { package, version, file });
    }
    archive::unpack_crate(&file, staging).map_err(|source| BuildError::Unpack {
        package: package.clone(),
        version: version.clone(),
        source: Box::new(source),
    })?;
    if plan.patches.is_empty() {
        return Ok(());
    }
    let patches: Vec<PathBuf> = plan.patches.iter().map(|p| p.path.clone()).collect();
    apply::apply_queue(staging, &patches).map_err(|source| BuildError::Patch {
        package,
        version,
        source: Box::new(source),
    })?;
    Ok(())
}

/// A library of another version than mlx-c was written for may link and then compute nonsense.
pub(super) fn check_mlx_version(
    spec: &BuildSpec,
    mlx: &Mlx,
    copies: &[(CratePlan, PathBuf)],
) -> Result<(), BuildError> {
    // Sources that a crate carries are those that it was written for.
    let Some(mlx) = mlx.wheel() else { return Ok(()) };
    let header = mlx.folder.join("mlx/include/mlx/version.h");
    let wheel = recipe::declared_mlx(&read_text(&header)?).unwrap_or_else(|| mlx.version.clone());
    for (plan, folder) in copies {
        let lists = folder.join("src/mlx-c/CMakeLists.txt");
        let Ok(lists) = file::text(&lists, Most::Configuration) else { continue };
        if let Some(expected) = recipe::expected_mlx(&lists).filter(|e| *e != wheel) {
            return Err(BuildError::MlxMismatch {
                build: spec.name.clone(),
                wheel,
                package: format!("{} {}", plan.name, plan.version),
                expected,
            });
        }
    }
    Ok(())
}

/// Copies the runner and the protocol in their relative places, with manifest and lock changed for the patched copies.
pub(super) fn scratch_copy(
    spec: &BuildSpec,
    folder: &Path,
    copies: &[(CratePlan, PathBuf)],
    layout: &Layout,
) -> Result<PathBuf, BuildError> {
    // A revision's crates need other packages than the released ones; its lock knows them as local already.
    let lock = match &spec.git {
        Some(source) => git::lock_file(source, layout),
        None => layout.runner_package(&spec.dialect).join("Cargo.lock"),
    };
    scratch_copy_on(spec, folder, copies, layout, &lock)
}

fn scratch_copy_on(
    spec: &BuildSpec,
    folder: &Path,
    copies: &[(CratePlan, PathBuf)],
    layout: &Layout,
    lock: &Path,
) -> Result<PathBuf, BuildError> {
    let scratch = folder.join("scratch");
    if scratch.exists() {
        // Left by a run that was killed before it could write its record.
        fs::remove_dir_all(&scratch).map_err(StoreError::at("clear away", &scratch))?;
    }
    let runner = layout.runner();
    let copy = scratch.join("harness/runner");
    let files =
        runner_files(spec, layout).map_err(|source| BuildError::Read { path: runner.clone(), source })?;
    for file in files {
        store::copy_whole(&runner.join(&file), &copy.join(&file))?;
    }
    let package: PathBuf = copy.join(recipe::package_folder(&spec.dialect)).components().collect();
    store::copy_whole(&layout.protocol(), &scratch.join("harness/src/engine/protocol.rs"))?;

    let paths: Vec<(String, PathBuf)> =
        copies.iter().map(|(p, path)| (p.name.clone(), path.clone())).collect();
    let manifest = package.join("Cargo.toml");
    let text = read_text(&manifest)? + &recipe::patch_table(&paths);
    store::write_whole(&manifest, text.as_bytes())?;
    let replaced: Vec<(&str, &str)> =
        copies.iter().map(|(p, _)| (p.name.as_str(), p.version.as_str())).collect();
    let text = cargo::lock_with_path_packages(&read_text(lock)?, &replaced);
    store::write_whole(&package.join("Cargo.lock"), text.as_bytes())?;
    Ok(package)
}

/// Whether a build could be made at all, as far as its files tell: crates and wheel are locked, its dialect and patch
/// stacks are there. Costs no compile, so that a mistake is told before minutes are spent on the other build.
///
/// # Errors
/// As for [`build`].
pub fn check_recipe(spec: &BuildSpec, layout: &Layout) -> Result<(), BuildError> {
    if let MlxSource::Wheel(version) = &spec.mlx {
        provision::check_wheel_is_locked(version, layout)
            .map_err(|source| BuildError::Provision { build: spec.name.clone(), source: Box::new(source) })?;
    }
    planned_crates(spec, layout)?;
    check_feature(spec, layout)
}

/// Runs the runner's own lints and tests against a build's crates and MLX library, in a scratch copy of its own.
///
/// # Errors
/// [`BuildError::Compile`] when lints or tests fail, with the log's path; else as for [`build`].
pub fn check_runner(
    spec: &BuildSpec,
    layout: &Layout,
    toolbox: &Toolbox,
    sink: &dyn EventSink,
) -> Result<(), BuildError> {
    let phase = Phase::start(sink, format!("check the runner of {}", spec.name), 3);
    let Ingredients { mlx, crates, toolchain } = ingredients(spec, layout, toolbox, sink)?;
    let _lock = wait_for_other_builds(layout, sink)?;
    let (copies, _) = patched_sources(spec, &crates, layout, sink)?;
    check_mlx_version(spec, &mlx, &copies)?;
    let package = scratch_copy(spec, &layout.work.join("checks").join(&spec.name), &copies, layout)?;
    for (name, purpose) in [("lints", Purpose::Lint), ("tests", Purpose::Test)] {
        let command = cargo_on(spec, &package, &mlx, layout, toolbox, &toolchain, purpose)?;
        run_cargo(spec, &command, format!("{name} of the runner"), sink)?;
    }
    phase.finish();
    Ok(())
}

/// What cargo is wanted for.
#[derive(Debug, Clone, Copy)]
pub(super) enum Purpose {
    Build,
    Lint,
    Test,
}

impl Purpose {
    /// Subcommand, options before the features, and what follows them. All use the release profile, so that one compile
    /// of the dependencies serves.
    fn words(self) -> (&'static [&'static str], &'static [&'static str]) {
        match self {
            Self::Build => (&["build"], &[]),
            Self::Lint => (&["clippy", "--all-targets"], &["--", "-D", "warnings"]),
            Self::Test => (&["test"], &[]),
        }
    }

    fn name(self) -> &'static str {
        match self {
            Self::Build => "build",
            Self::Lint => "lint",
            Self::Test => "test",
        }
    }
}

pub(super) struct CargoCommand {
    pub(super) invocation: Invocation,
    /// The program that it leaves behind.
    pub(super) output: PathBuf,
}

/// What a build is made of, before anything is copied or compiled.
pub(super) struct Ingredients {
    pub(super) mlx: Mlx,
    pub(super) crates: Vec<CratePlan>,
    pub(super) toolchain: Toolchain,
}

impl Ingredients {
    /// Everything that goes into a build of this, and its digest.
    pub(super) fn identity(&self, spec: &BuildSpec, layout: &Layout) -> Result<(Value, String), BuildError> {
        let own = own_sources(spec, layout)?;
        let inputs = recipe::inputs(spec, &self.crates, &self.mlx, &own, &self.toolchain);
        let digest = recipe::build_digest(&inputs);
        Ok((inputs, digest))
    }
}

pub(super) fn ingredients(
    spec: &BuildSpec,
    layout: &Layout,
    toolbox: &Toolbox,
    sink: &dyn EventSink,
) -> Result<Ingredients, BuildError> {
    let mlx = mlx::provide(spec, layout, toolbox, sink)?;
    let crates = planned_crates(spec, layout)?;
    check_feature(spec, layout)?;
    if let Some(source) = &spec.git
        && !git::lock_file(source, layout).is_file()
    {
        resolve_lock(spec, source, &crates, layout, sink)?;
    }
    Ok(Ingredients { mlx, crates, toolchain: toolchain(toolbox)? })
}

/// Lets cargo resolve what the crates of a revision need, from the runner's lock on: a revision that was built before has a
/// lock of its own, and keeps it.
fn resolve_lock(
    spec: &BuildSpec,
    source: &GitSource,
    crates: &[CratePlan],
    layout: &Layout,
    sink: &dyn EventSink,
) -> Result<(), BuildError> {
    let lock = git::lock_file(source, layout);
    let copies = revision(spec, source, crates, layout, sink)?;
    let folder = layout.work.join("locks").join(&spec.name);
    let base = layout.runner_package(&spec.dialect).join("Cargo.lock");
    let package = scratch_copy_on(spec, &folder, &copies, layout, &base)?;
    let resolve = cargo::cargo().args(["metadata", "--format-version", "1"]).cwd(&package);
    resolve.log(layout.log("resolve")).run_ok().map_err(BuildError::Fetch)?;
    store::copy_whole(&package.join("Cargo.lock"), &lock)?;
    fs::remove_dir_all(&folder).map_err(StoreError::at("clear away", &folder))?;
    sink.emit(Event::Note(format!(
        "cargo resolved what build `{}` needs: keep `{}` with the build, so that it stays the same",
        spec.name,
        lock.display()
    )));
    Ok(())
}

/// Held while sources, scratch copies and the shared target folder are written.
pub(super) fn wait_for_other_builds(layout: &Layout, sink: &dyn EventSink) -> Result<FileLock, LockError> {
    FileLock::acquire(&layout.work.join("build.lock"), || {
        sink.emit(Event::Note("another run is building; waiting for it".to_owned()));
    })
}

/// Runs cargo as one step, and says how long it took.
pub(super) fn run_cargo(
    spec: &BuildSpec,
    command: &CargoCommand,
    name: String,
    sink: &dyn EventSink,
) -> Result<Duration, BuildError> {
    step(
        sink,
        name,
        |took: &Duration| format!("{:.0} s", took.as_secs_f64()),
        || {
            command
                .invocation
                .run_ok()
                .map(|done| done.took)
                .map_err(|source| BuildError::Compile { build: spec.name.clone(), source: Box::new(source) })
        },
    )
}

pub(super) fn cargo_on(
    spec: &BuildSpec,
    package: &Path,
    mlx: &Mlx,
    layout: &Layout,
    toolbox: &Toolbox,
    toolchain: &Toolchain,
    purpose: Purpose,
) -> Result<CargoCommand, BuildError> {
    let cmake_text = mlx.cmake_file();
    let cmake_file =
        layout.work.join("cmake").join(format!("{}.cmake", &sha256_hex(cmake_text.as_bytes())[..16]));
    if !cmake_file.is_file() {
        store::write_whole(&cmake_file, cmake_text.as_bytes())?;
    }
    // Build scripts do not notice another CMake file or compiler, so each set of them has a target folder of its own;
    // all builds with one set share it.
    let set = format!("{cmake_text}\n{}\n{toolchain:?}", toolbox.bin().display());
    let target = layout.work.join("cargo").join(&sha256_hex(set.as_bytes())[..16]);
    let empty = empty_libraries(layout)?;
    let (words, tail) = purpose.words();
    let (link, library) = mlx.link_variable();
    let invocation = cargo::cargo()
        .args(words)
        .args(["--release", "--locked", "--no-default-features", "--features"])
        .arg(recipe::feature(&spec.dialect))
        .args(tail)
        .cwd(package)
        .env("PATH", tools_first(toolbox))
        .env("CARGO_TARGET_DIR", &target)
        .env("CMAKE_TOOLCHAIN_FILE", &cmake_file)
        .env("CMAKE_GENERATOR", "Ninja")
        .env(link, library)
        .env("REGRAFT_LINK_DIR", empty)
        .log(layout.log(&format!("{}-{}", purpose.name(), spec.name)));
    let found = host::find_program(cache::PROGRAM);
    let invocation = cache::through(invocation, found.as_deref(), |name| env::var_os(name).is_some());
    Ok(CargoCommand { invocation, output: target.join("release").join(PROGRAM) })
}

/// The `PATH` with the tools of the private environment in front.
pub(super) fn tools_first(toolbox: &Toolbox) -> OsString {
    let inherited = env::var_os("PATH").unwrap_or_default();
    env::join_paths(std::iter::once(toolbox.bin()).chain(env::split_paths(&inherited))).unwrap_or(inherited)
}

/// A folder with empty archives for libraries that crates of a git revision name to the linker on Linux, and whose functions
/// only MLX calls: the official library brings its own.
fn empty_libraries(layout: &Layout) -> Result<PathBuf, StoreError> {
    let folder = layout.work.join("empty-libraries");
    for name in ["liblapack.a", "libblas.a"] {
        let path = folder.join(name);
        if !path.is_file() {
            store::write_whole(&path, b"!<arch>\n")?;
        }
    }
    Ok(folder)
}

fn looks_offline(stderr: &str) -> bool {
    [
        "Could not resolve host",
        "Couldn't connect",
        "Connection refused",
        "network",
        "Timeout was reached",
        "SSL",
    ]
    .iter()
    .any(|words| stderr.contains(words))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::build::provision::MlxWheel;

    #[test]
    fn patches_are_taken_in_the_order_of_their_numbers() {
        let dir = tempfile::tempdir().unwrap();
        let write = |name: &str| fs::write(dir.path().join(name), name).unwrap();
        for name in ["10-c.patch", "2-b.patch", "0001-a.patch", "fork.toml", "0003-x.patch.orig"] {
            write(name);
        }
        let names: Vec<String> = patch_files(dir.path()).unwrap().into_iter().map(|p| p.name).collect();
        assert_eq!(names, ["0001-a.patch", "2-b.patch", "10-c.patch"]);
        let empty = dir.path().join("nothing");
        let error = patch_files(&empty).unwrap_err();
        assert!(error.to_string().ends_with("nothing` holds no numbered patch"), "{error}");
        write("02-again.patch");
        let error = patch_files(dir.path()).unwrap_err();
        assert!(
            matches!(error, BuildError::PatchOrder { source: OrderError::SameNumber { .. }, .. }),
            "{error}"
        );
    }

    #[test]
    fn a_record_counts_only_with_its_program_at_its_place() {
        let dir = tempfile::tempdir().unwrap();
        let folder = dir.path().join("builds/abc");
        let program = folder.join(PROGRAM);
        let record = |digest: &str, program: &Path| {
            let log = json!({
                "program": program.display().to_string(),
                "program_sha256": sha256_hex(b"whole"),
                "mlx": dir.path().display().to_string(),
            });
            let record = json!({"digest": digest, "inputs": {}, "log": log}).to_string();
            store::write_whole(&folder.join(RECORD), record.as_bytes()).unwrap();
        };
        assert!(finished_record(&folder, "d").is_none());
        record("d", &program);
        assert!(finished_record(&folder, "d").is_none(), "no program yet");
        fs::write(&program, "cut").unwrap();
        assert!(finished_record(&folder, "d").is_none(), "a damaged program is built again");
        fs::write(&program, "whole").unwrap();
        assert!(finished_record(&folder, "d").is_some());
        assert!(finished_record(&folder, "e").is_none(), "another build");
        record("d", Path::new("/moved/regraft-runner"));
        assert!(finished_record(&folder, "d").is_none(), "the whole folder was moved");
    }

    #[test]
    fn a_clean_build_serves_as_a_build_the_last_one_first() {
        let dir = tempfile::tempdir().unwrap();
        let layout = Layout::of_repository(dir.path());
        let ordinary = layout.work.join("builds/abc");
        let clean = |name: &str| layout.work.join("clean").join(name);
        let make = |folder: &Path, digest: &str| {
            let program = folder.join(PROGRAM);
            store::write_whole(&program, b"whole").unwrap();
            let log =
                json!({"program": program.display().to_string(), "program_sha256": sha256_hex(b"whole")});
            let log = with_key(log, "mlx", Value::Null);
            let record = json!({"digest": digest, "inputs": {}, "log": log}).to_string();
            store::write_whole(&folder.join(RECORD), record.as_bytes()).unwrap();
        };
        let found = || finished_build(&layout, &ordinary, "d").map(|(folder, _)| folder);
        assert_eq!(found(), None);
        make(&clean("demo-1"), "d");
        make(&clean("demo-2"), "d");
        make(&clean("demo-3"), "other");
        assert_eq!(found(), Some(clean("demo-2")));
        make(&ordinary, "d");
        assert_eq!(found(), Some(ordinary.clone()));
    }

    #[test]
    fn a_killed_compiler_says_nothing_about_the_sources() {
        let failed = |script: &str| BuildError::Compile {
            build: "demo".into(),
            source: Box::new(Invocation::new("sh").args(["-c", script]).run_ok().unwrap_err()),
        };
        let rustc = "echo \"  process didn't exit successfully: \\`rustc\\` (signal: 9, SIGKILL: kill)\" >&2; exit 101";
        for (script, hint) in [
            ("kill -9 $$", Some("CARGO_BUILD_JOBS=1")),
            (rustc, Some("CARGO_BUILD_JOBS=1")),
            ("echo 'error: No space left on device (os error 28)' >&2; exit 101", Some("make room")),
            ("echo 'error[E0432]: unresolved import' >&2; exit 101", None),
        ] {
            let error = failed(script);
            assert_eq!(error.is_about_the_machine(), hint.is_some(), "{script}");
            assert_eq!(
                error.hint().is_some_and(|said| hint.is_some_and(|hint| said.contains(hint))),
                hint.is_some()
            );
        }
    }

    #[test]
    fn a_library_for_other_sources_is_refused_with_the_one_that_fits() {
        let dir = tempfile::tempdir().unwrap();
        let write =
            |path: &str, text: &str| store::write_whole(&dir.path().join(path), text.as_bytes()).unwrap();
        write(
            "wheel/mlx/include/mlx/version.h",
            "#define MLX_VERSION_MAJOR 0\n#define MLX_VERSION_MINOR 32\n#define MLX_VERSION_PATCH 0\n",
        );
        write("sys/src/mlx-c/CMakeLists.txt", "GIT_REPOSITORY \"x/ml-explore/mlx.git\"\n GIT_TAG v0.31.2)");
        let mlx = Mlx::Wheel(MlxWheel {
            package: "mlx-cpu".into(),
            version: "0.32.0".into(),
            wheel: String::new(),
            wheel_sha256: String::new(),
            library: String::new(),
            library_sha256: String::new(),
            folder: dir.path().join("wheel"),
        });
        let spec = BuildSpec {
            name: "demo".into(),
            summary: String::new(),
            dialect: "safemlx-lm-0.4".into(),
            mlx: MlxSource::Wheel("0.32.0".into()),
            git: None,
            crates: std::collections::BTreeMap::new(),
        };
        let plan = CratePlan {
            name: "safemlx-sys".into(),
            version: "0.1.3".into(),
            sha256: String::new(),
            folder: None,
            patches: vec![],
        };
        let error = check_mlx_version(&spec, &mlx, &[(plan, dir.path().join("sys"))]).unwrap_err();
        insta::assert_snapshot!(
            format!("{error}\nhint: {}", error.hint().unwrap()),
            @r#"
        build `demo` takes the MLX library 0.32.0, and the mlx-c in safemlx-sys 0.1.3 is written for MLX 0.31.2
        hint: set this build's `mlx = { wheel = "0.31.2" }` in `matrices/builds.toml`
        "#
        );
    }
}
