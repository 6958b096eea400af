//! A folder that runs a gate on a bare GPU machine, without Rust and without a network: engines with the CUDA library of
//! their MLX version, the reference, what models are made from, the matrices, this program and a script that starts it.

use std::{
    collections::{BTreeMap, BTreeSet},
    env, fs, io,
    path::{Path, PathBuf},
    time::Duration,
};

use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use crate::{
    build::{
        Artifact, Layout, Provenance, ProvisionError, Toolbox,
        digest::{self, digest_of},
        pieces, provision,
        requirements::{Requirement, requirements},
        steps::{Phase, step},
        store::{self, StoreError},
    },
    config::spec::{BuildSpec, MatrixSpec, MlxSource, ModelSource},
    engine::{Session, SessionOptions},
    event::EventSink,
    matrix::Backend,
    model::{ModelDir, ModelError},
    tools::{
        archive::{self, ArchiveError, file_sha256},
        disk,
        file::{self, Most},
        host::find_program,
        process::Invocation,
        python::{self, Target},
    },
};

/// The file that says what a bundle holds.
const MANIFEST: &str = "bundle.json";

/// Stands in a bundle's commands and variables for the folder that the bundle lies in.
const HERE: &str = "{bundle}";

/// The package that holds MLX's library for CUDA 13.
const CUDA_PACKAGE: &str = "mlx-cuda-13";

/// The oldest C library that the packages of a bundle are published for.
const PLATFORMS: [&str; 4] =
    ["manylinux_2_35_x86_64", "manylinux_2_28_x86_64", "manylinux_2_17_x86_64", "manylinux2014_x86_64"];

/// Packages of the reference's lock that serve the CPU or the build, and none that the reference imports.
const NOT_CARRIED: [&str; 7] =
    ["mlx", "mlx-cpu", "mlx-metal", "cmake", "ninja", "scipy-openblas32", "hf-xet"];

/// How long a runner may take to say what it is.
const PATIENCE: Duration = Duration::from_secs(60);

const SCRIPT: &str = r#"#!/bin/sh
# usage: ./run gate [OPTIONS] — the gate on this machine, with what the bundle carries
# NVIDIA's run-time libraries are taken from REGRAFT_NVIDIA, or the Python package `nvidia` of REGRAFT_PYTHON (python3), or
# where the system's loader looks for them.
set -eu
here=$(cd "$(dirname "$0")" && pwd)
nvidia=${REGRAFT_NVIDIA:-$("${REGRAFT_PYTHON:-python3}" -c 'import nvidia; print(list(nvidia.__path__)[0])' 2>/dev/null || true)}
if [ -n "$nvidia" ]; then
  for mlx in "$here"/mlx/*/; do
    [ -e "$mlx/nvidia" ] || ln -s "$nvidia" "$mlx/nvidia"
  done
fi
export LD_LIBRARY_PATH="${LD_LIBRARY_PATH:+$LD_LIBRARY_PATH:}/usr/local/nvidia/lib64:/usr/local/cuda/lib64"
command=${1:?usage: ./run gate [OPTIONS]}
shift
exec "$here/bin/cargo-xtask" "$command" --bundle "$here" "$@"
"#;

/// What goes into a bundle.
#[derive(Debug)]
pub struct BundleRequest<'a> {
    /// Where things are.
    pub layout: &'a Layout,
    /// What was provisioned.
    pub toolbox: &'a Toolbox,
    /// The builds and what came of them; all official libraries of equal versions are one.
    pub builds: &'a [(BuildSpec, Artifact)],
    /// Every build that a matrix may name.
    pub known: &'a [BuildSpec],
    /// The reference as it runs here.
    pub reference: &'a Artifact,
    /// The matrices, each with the file that it was read from.
    pub matrices: &'a [(MatrixSpec, PathBuf)],
    /// The Python of the machine that the bundle is for, such as `3.12`.
    pub python: &'a str,
    /// The folder to make.
    pub folder: &'a Path,
}

/// What a bundle is wanted for, before anything is provisioned or built.
#[derive(Debug, Clone, Copy)]
pub struct BundlePlan<'a> {
    /// Where things are.
    pub layout: &'a Layout,
    /// The builds that it is to carry.
    pub builds: &'a [&'a BuildSpec],
    /// Runners that were built by other means, each as its name and program.
    pub runners: &'a [(String, String)],
    /// The folder to make.
    pub folder: &'a Path,
    /// Where it is to be packed into pieces, too.
    pub pieces: Option<&'a Path>,
}

/// A bundle that lies here and can be run.
#[derive(Debug, Clone)]
pub struct Bundle {
    folder: PathBuf,
    manifest: Manifest,
}

#[derive(Debug, Clone, Serialize, Deserialize)]
struct Manifest {
    schema: Schema,
    backend: Backend,
    python: String,
    builds: Vec<BuildSpec>,
    engines: Vec<Engine>,
    reference: Engine,
    packages: BTreeMap<String, String>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
struct Schema {
    name: String,
    version: u32,
}

#[derive(Debug, Clone, Serialize, Deserialize)]
struct Engine {
    mlx: String,
    artifact: Artifact,
}

/// Why a bundle cannot be made or used.
#[derive(Debug, thiserror::Error)]
pub enum BundleError {
    /// A build's MLX is part of its program, so that no library for CUDA can take its place.
    #[error(
        "build `{build}` is linked to an MLX for CPUs that its crates carry; a bundle replaces the library"
    )]
    StaticMlx {
        /// The build.
        build: String,
    },
    /// The folder holds something else.
    #[error("`{}` exists and is no {what}", .folder.display())]
    Occupied {
        /// The folder.
        folder: PathBuf,
        /// What it would be replaced by.
        what: &'static str,
    },
    /// The folder lies where things are made that may be cleared away at any time.
    #[error("`{}` lies inside `{}`, where builds are made and cleared away", .folder.display(), .work.display())]
    Inside {
        /// The folder.
        folder: PathBuf,
        /// What it lies in.
        work: PathBuf,
    },
    /// Nothing can be made there.
    #[error("cannot make a bundle at `{}`", .folder.display())]
    Place {
        /// The folder.
        folder: PathBuf,
        /// What the system said.
        #[source]
        source: io::Error,
    },
    /// Two engines would have one name, or one that no folder can have.
    #[error("a bundle cannot hold an engine `{name}`: {why}")]
    EngineName {
        /// The name.
        name: String,
        /// What is wrong with it.
        why: &'static str,
    },
    /// A runner's file is no program.
    #[error("cannot run `{}`, the runner of `{name}`", .program.display())]
    NoProgram {
        /// The name that it was given.
        name: String,
        /// The file.
        program: PathBuf,
        /// What is wrong with it.
        #[source]
        source: io::Error,
    },
    /// There is no bundle, or one of another version of this program.
    #[error("cannot read `{}`", .path.display())]
    Manifest {
        /// The manifest.
        path: PathBuf,
        /// What is wrong with it.
        #[source]
        source: Box<dyn std::error::Error + Send + Sync>,
    },
    /// A bundle has one backend, and only on Linux.
    #[error("a bundle is made on x86-64 Linux, and this is {os} on {arch}")]
    Platform {
        /// The operating system.
        os: &'static str,
        /// The processor.
        arch: &'static str,
    },
    /// A program is no runner.
    #[error("`{}` does not say what it is: {why}", .program.display())]
    NoRunner {
        /// The program.
        program: PathBuf,
        /// What it did instead.
        why: String,
    },
    /// A version of MLX has no CUDA library.
    #[error("`{}` does not lock {CUDA_PACKAGE} {version}, which build `{build}` needs (it locks {known})", .lock.display())]
    NoCudaLibrary {
        /// The build.
        build: String,
        /// Its MLX version.
        version: String,
        /// The lock.
        lock: PathBuf,
        /// What it has.
        known: String,
    },
    /// The machine has no Python of the version that the bundle was made for.
    #[error("no CPython {wanted} on this machine, which the bundle's reference was made for")]
    NoPython {
        /// The version.
        wanted: String,
    },
    /// A model did not come about.
    #[error("cannot prepare model `{name}`")]
    Model {
        /// The model.
        name: String,
        /// Why.
        #[source]
        source: Box<ModelError>,
    },
    /// The engine is not in the bundle.
    #[error("the bundle holds no build `{build}` (it holds {known})")]
    NoEngine {
        /// The build.
        build: String,
        /// What it holds.
        known: String,
    },
    /// Something could not be provisioned.
    #[error("cannot provision for the bundle")]
    Provision(#[from] ProvisionError),
    /// An archive is damaged or hostile.
    #[error("cannot unpack a wheel")]
    Archive(#[from] ArchiveError),
    /// A folder or file could not be made.
    #[error("cannot write the bundle")]
    Store(#[from] StoreError),
}

impl BundleError {
    /// What to try.
    pub fn hint(&self) -> Option<String> {
        match self {
            Self::StaticMlx { .. } => Some(
                "bundle builds with `mlx = { wheel = … }`; `--candidate` runs this one on CPUs".to_owned(),
            ),
            Self::Occupied { what, .. } => {
                Some(format!("name a folder that is empty or does not exist, or an older {what}"))
            }
            Self::Inside { .. } => Some("name a folder elsewhere".to_owned()),
            Self::Place { source, .. } => {
                Some(disk::hint(source).unwrap_or_else(|| "name a folder that this user can make".to_owned()))
            }
            Self::EngineName { .. } => Some(
                "give each `--runner NAME=FILE` a name of its own, of letters, digits, `-`, `_` and `.`"
                    .to_owned(),
            ),
            Self::NoProgram { .. } => {
                Some("name an executable file: a program built from `harness/runner`".to_owned())
            }
            Self::Manifest { .. } => Some(
                "name the folder that `cargo xtask build --bundle` made, with the program inside it"
                    .to_owned(),
            ),
            Self::Platform { .. } => Some("make it on such a machine, a container will do".to_owned()),
            Self::NoRunner { .. } => {
                Some("name a program built from `harness/runner`, and start it by hand to see".to_owned())
            }
            Self::NoCudaLibrary { lock, .. } => Some(format!(
                "take a build on one of those versions, or add this one to `{}` by the command in its first lines",
                lock.display()
            )),
            Self::NoPython { wanted } => Some(format!(
                "install it, name one by the variable REGRAFT_PYTHON, or make the bundle with `--python` other than {wanted}"
            )),
            Self::Model { source, .. } => source.hint(),
            Self::NoEngine { .. } => Some("name one of those by --candidate and --baseline".to_owned()),
            Self::Provision(source) => source.hint(),
            Self::Store(source) => source.hint(),
            Self::Archive(_) => None,
        }
    }
}

/// Refuses what no bundle can be made of or at, as far as that can be told before anything is done.
///
/// # Errors
/// See [`BundleError`].
pub fn check(plan: &BundlePlan<'_>) -> Result<(), BundleError> {
    if (env::consts::OS, env::consts::ARCH) != ("linux", "x86_64") {
        return Err(BundleError::Platform { os: env::consts::OS, arch: env::consts::ARCH });
    }
    check_names(plan)?;
    let lock = plan.layout.provision().join("cuda.lock");
    let text = read(&lock)?;
    let entries = requirements(&text);
    for spec in plan.builds {
        if let MlxSource::Wheel(version) = &spec.mlx {
            of_version(&entries, version, &spec.name, &lock)?;
        }
    }
    for (name, program) in plan.runners {
        check_program(Path::new(program)).map_err(|source| BundleError::NoProgram {
            name: name.clone(),
            program: program.into(),
            source,
        })?;
    }
    check_place(plan.folder, plan.layout)?;
    if let Some(folder) = plan.pieces
        && !pieces::may_be_replaced(folder)
    {
        return Err(BundleError::Occupied { folder: folder.to_owned(), what: "folder of pieces" });
    }
    Ok(())
}

/// Each engine lies in a folder of its name.
fn check_names(plan: &BundlePlan<'_>) -> Result<(), BundleError> {
    let mut names = BTreeSet::new();
    for spec in plan.builds {
        if spec.mlx == MlxSource::Vendored {
            return Err(BundleError::StaticMlx { build: spec.name.clone() });
        }
        names.insert(spec.name.as_str());
    }
    for (name, _) in plan.runners {
        let plain = |c: char| c.is_ascii_alphanumeric() || "-_.".contains(c);
        let error = |why| BundleError::EngineName { name: name.clone(), why };
        if !(name.starts_with(|c: char| c.is_ascii_alphanumeric()) && name.chars().all(plain)) {
            return Err(error("no folder can be named so"));
        }
        if !names.insert(name) {
            return Err(error("another one has the name"));
        }
    }
    Ok(())
}

fn check_program(program: &Path) -> io::Result<()> {
    use std::os::unix::fs::PermissionsExt as _;
    let mode = file::open(program)?.metadata()?.permissions().mode();
    match mode & 0o111 {
        0 => Err(io::Error::new(io::ErrorKind::PermissionDenied, "it is not executable")),
        _ => Ok(()),
    }
}

fn check_place(folder: &Path, layout: &Layout) -> Result<(), BundleError> {
    let failed = |source| BundleError::Place { folder: folder.to_owned(), source };
    let (standing, real) = reached(folder).map_err(failed)?;
    for own in [&layout.work, &layout.cache] {
        let own = reached(own).map_err(failed)?.1;
        if real.starts_with(&own) {
            return Err(BundleError::Inside { folder: folder.to_owned(), work: own });
        }
    }
    if !may_be_replaced(folder) {
        return Err(BundleError::Occupied { folder: folder.to_owned(), what: "bundle" });
    }
    // What is made lies beside the folder until it is whole.
    let beside = if standing == real { standing.parent().unwrap_or(&standing) } else { &standing };
    tempfile::tempdir_in(beside).map(drop).map_err(failed)
}

/// Whether nothing but an older bundle stands at `folder`.
fn may_be_replaced(folder: &Path) -> bool {
    !folder.exists() || folder.join(MANIFEST).is_file() || store::is_empty(folder)
}

/// The nearest folder around `path` that exists, and where `path` is from there, links followed.
fn reached(path: &Path) -> io::Result<(PathBuf, PathBuf)> {
    let path = std::path::absolute(path)?;
    let standing = path.ancestors().find(|path| path.exists()).unwrap_or(Path::new("/"));
    let rest = path.strip_prefix(standing).unwrap_or(Path::new(""));
    let standing = standing.canonicalize()?;
    Ok((standing.clone(), standing.join(rest).components().collect()))
}

/// The description of a runner that was built by other means and not asked yet: it has a name, which matrices may use.
pub fn unasked_runner(name: &str) -> BuildSpec {
    BuildSpec {
        name: name.to_owned(),
        summary: "A runner that was built by other means.".to_owned(),
        dialect: String::new(),
        mlx: MlxSource::Wheel(String::new()),
        crates: BTreeMap::new(),
        git: None,
    }
}

/// A runner that was built by other means, as a build that a bundle can carry: it is asked what it is.
///
/// # Errors
/// Where it does not start, or does not speak the protocol.
pub fn given_runner(
    name: &str,
    program: &Path,
    toolbox: &Toolbox,
) -> Result<(BuildSpec, Artifact), BundleError> {
    let no_runner = |why: String| BundleError::NoRunner { program: program.to_owned(), why };
    let sha256 = file_sha256(program).map_err(|why| no_runner(why.to_string()))?;
    let mut artifact = Artifact {
        name: name.to_owned(),
        program: std::path::absolute(program).unwrap_or_else(|_| program.to_owned()),
        args: Vec::new(),
        env: toolbox.engine_env(),
        provenance: Provenance { digest: String::new(), inputs: Value::Null, log: Value::Null },
    };
    let options = SessionOptions { timeout: PATIENCE, stderr_log: None, memory_limit_bytes: None };
    let mut session = Session::start(&artifact, &options).map_err(|why| no_runner(why.to_string()))?;
    let hello = session.hello();
    let ended = session.finish();
    let hello = hello.ok_or_else(|| no_runner(format!("it ended as {}", ended.label())))?;
    let inputs = json!({
        "schema": {"name": "regraft-given-runner-inputs", "version": 1},
        "program_sha256": sha256,
        "hello": hello,
        "mlx": { "version": hello.mlx_version },
    });
    artifact.provenance.digest = digest_of(&inputs);
    artifact.provenance.inputs = inputs;
    let mlx = MlxSource::Wheel(hello.mlx_version);
    let spec = BuildSpec { dialect: hello.dialect, mlx, ..unasked_runner(name) };
    Ok((spec, artifact))
}

/// Makes a bundle; an older one in its place is replaced.
///
/// # Errors
/// Where something cannot be downloaded or written, or a build's MLX has no CUDA library.
pub fn make(request: &BundleRequest<'_>, sink: &dyn EventSink) -> Result<(), BundleError> {
    let folder = request.folder;
    // Hours may have gone by since the plan was checked.
    check_place(folder, request.layout)?;
    store::clear_leftovers_of(folder)?;
    if folder.exists() {
        store::remove_whole(folder)?;
    }
    let phase = Phase::start(sink, "bundle", 5);
    store::folder_once::<BundleError>(folder, |staging| fill(request, staging, sink))?;
    phase.finish();
    Ok(())
}

fn fill(request: &BundleRequest<'_>, staging: &Path, sink: &dyn EventSink) -> Result<(), BundleError> {
    let layout = request.layout;
    let lock = layout.provision().join("cuda.lock");
    let text = read(&lock)?;
    let entries = requirements(&text);
    let target =
        Target { python: request.python.to_owned(), platforms: PLATFORMS.map(str::to_owned).to_vec() };

    let mut libraries: BTreeMap<String, Value> = BTreeMap::new();
    for (spec, artifact) in request.builds {
        let version = mlx_version(artifact);
        if libraries.contains_key(&version) {
            continue;
        }
        let wanted = of_version(&entries, &version, &spec.name, &lock)?;
        let record = step(
            sink,
            format!("{CUDA_PACKAGE} {version}"),
            |_: &Value| "unpacked".to_owned(),
            || unpack_library(&wanted, &version, &target, request, &staging.join("mlx").join(&version)),
        )?;
        libraries.insert(version, record);
    }

    let mut engines = Vec::new();
    for (_, artifact) in request.builds {
        let version = mlx_version(artifact);
        engines.push(bundled(artifact, &version, &libraries[&version], staging)?);
    }
    // All CUDA libraries serve the reference; the newest is the one that upstream would advise.
    let version = libraries.keys().next_back().cloned().unwrap_or_default();
    let carried = step(
        sink,
        format!("the reference, for Python {}", request.python),
        |carried: &BTreeMap<String, String>| format!("{} packages", carried.len()),
        || python_packages(request, &target, staging),
    )?;
    let reference = reference(request, &version, &libraries, &carried, staging)?;

    let packages = step(
        sink,
        "models",
        |packages: &BTreeMap<String, String>| format!("{} packages", packages.len()),
        || model_packages(request, staging, sink),
    )?;
    for (_, file) in request.matrices {
        store::copy_whole(file, &staging.join("matrices").join(file.file_name().unwrap_or_default()))?;
    }
    step(sink, "this program", |_: &()| "copied".to_owned(), || copy_program(staging))?;
    let run = staging.join("run");
    store::write_whole(&run, SCRIPT.as_bytes())?;
    make_executable(&run)?;

    let manifest = Manifest {
        schema: schema(),
        backend: Backend::Cuda,
        python: request.python.to_owned(),
        builds: request.known.to_vec(),
        engines,
        reference,
        packages,
    };
    let text = serde_json::to_string_pretty(&manifest).expect("plain maps and strings are JSON");
    Ok(store::write_whole(&staging.join(MANIFEST), format!("{text}\n").as_bytes())?)
}

/// Binding and library of a version of MLX, among what a lock names.
fn of_version<'e>(
    entries: &'e [Requirement],
    version: &str,
    build: &str,
    lock: &Path,
) -> Result<Vec<&'e Requirement>, BundleError> {
    let wanted: Vec<&Requirement> = entries.iter().filter(|entry| entry.version == version).collect();
    if wanted.iter().any(|entry| entry.name == CUDA_PACKAGE) {
        return Ok(wanted);
    }
    let known: BTreeSet<&str> = entries.iter().map(|entry| entry.version.as_str()).collect();
    Err(BundleError::NoCudaLibrary {
        build: build.to_owned(),
        version: version.to_owned(),
        lock: lock.to_owned(),
        known: known.into_iter().collect::<Vec<_>>().join(", "),
    })
}

fn schema() -> Schema {
    Schema { name: "regraft-bundle".to_owned(), version: 1 }
}

/// The MLX version that an artifact was linked against.
fn mlx_version(artifact: &Artifact) -> String {
    artifact.provenance.inputs["mlx"]["version"].as_str().unwrap_or_default().to_owned()
}

/// Downloads binding and library of one version and unpacks both into one folder, as an installation would.
fn unpack_library(
    wanted: &[&Requirement],
    version: &str,
    target: &Target,
    request: &BundleRequest<'_>,
    folder: &Path,
) -> Result<Value, BundleError> {
    let text: String = wanted.iter().map(|entry| entry.text.as_str()).collect();
    let wheels = wheels(&text, target, request)?;
    let mut record = json!({ "package": CUDA_PACKAGE, "version": version });
    for wheel in &wheels {
        archive::unpack_wheel(wheel, folder)?;
        let name = wheel.file_name().unwrap_or_default().to_string_lossy().into_owned();
        if name.starts_with(&CUDA_PACKAGE.replace('-', "_")) {
            record["wheel"] = json!(name);
            record["wheel_sha256"] = json!(file_sha256(wheel).map_err(StoreError::at("read", wheel))?);
        }
    }
    let library = folder.join("mlx/lib/libmlx.so");
    record["library"] = json!("libmlx.so");
    record["library_sha256"] = json!(file_sha256(&library).map_err(StoreError::at("read", &library))?);
    // What only a build would read. The headers stay: the library compiles kernels with them when it runs.
    let spare = folder.join("mlx/share");
    if spare.is_dir() {
        fs::remove_dir_all(&spare).map_err(StoreError::at("clear away", &spare))?;
    }
    Ok(record)
}

/// The wheels that a lock's text names for the bundle's machine, downloaded once.
fn wheels(
    lock_text: &str,
    target: &Target,
    request: &BundleRequest<'_>,
) -> Result<Vec<PathBuf>, BundleError> {
    Ok(provision::wheels_for(target, lock_text, request.layout, request.toolbox)?)
}

/// The engine as it runs in the bundle: other places, another library, and so another build.
fn bundled(
    artifact: &Artifact,
    version: &str,
    library: &Value,
    staging: &Path,
) -> Result<Engine, BundleError> {
    let place = Path::new("builds").join(&artifact.name).join("regraft-runner");
    store::copy_whole(&artifact.program, &staging.join(&place))?;
    let mut inputs = artifact.provenance.inputs.clone();
    inputs["linked_against"] = inputs["mlx"].take();
    inputs["mlx"] = library.clone();
    Ok(Engine {
        mlx: version.to_owned(),
        artifact: Artifact {
            name: artifact.name.clone(),
            program: format!("{HERE}/{}", place.display()).into(),
            args: Vec::new(),
            env: engine_env(version),
            provenance: Provenance {
                digest: digest_of(&inputs),
                inputs,
                log: json!({ "built": artifact.provenance.log }),
            },
        },
    })
}

fn engine_env(version: &str) -> BTreeMap<String, String> {
    BTreeMap::from([
        ("LD_LIBRARY_PATH".to_owned(), format!("{HERE}/mlx/{version}/mlx/lib")),
        // Kernels that are compiled at first use are kept with the bundle, so that no other run's are taken.
        ("MLX_PTX_CACHE_DIR".to_owned(), format!("{HERE}/kernels/{version}")),
    ])
}

/// Unpacks what the reference imports beside MLX, and gives names with versions.
fn python_packages(
    request: &BundleRequest<'_>,
    target: &Target,
    staging: &Path,
) -> Result<BTreeMap<String, String>, BundleError> {
    let lock = read(&request.layout.provision().join("reference.lock"))?;
    let entries: Vec<Requirement> =
        requirements(&lock).into_iter().filter(|entry| !NOT_CARRIED.contains(&entry.name.as_str())).collect();
    let text: String = entries.iter().map(|entry| entry.text.as_str()).collect();
    let mut carried = BTreeMap::new();
    let site = staging.join("python");
    for wheel in wheels(&text, target, request)? {
        archive::unpack_wheel(&wheel, &site)?;
        let name = wheel.file_name().unwrap_or_default().to_string_lossy().into_owned();
        if let Some((name, version)) =
            name.split_once('-').and_then(|(n, rest)| Some((n, rest.split_once('-')?.0)))
        {
            carried.insert(name.to_owned(), version.to_owned());
        }
    }
    Ok(carried)
}

fn reference(
    request: &BundleRequest<'_>,
    version: &str,
    libraries: &BTreeMap<String, Value>,
    carried: &BTreeMap<String, String>,
    staging: &Path,
) -> Result<Engine, BundleError> {
    let script = request.layout.reference();
    let programs = script.parent().unwrap_or(Path::new("."));
    for file in digest::files_below(programs, &["__pycache__"]).map_err(StoreError::at("read", programs))? {
        store::copy_whole(&programs.join(&file), &staging.join("reference").join(&file))?;
    }
    let mut inputs = request.reference.provenance.inputs.clone();
    inputs["python"] = json!(request.python);
    inputs["distributions"] = json!(carried);
    inputs["mlx"] = libraries.get(version).cloned().unwrap_or_default();
    let mut env = engine_env(version);
    env.insert("PYTHONPATH".to_owned(), format!("{HERE}/mlx/{version}:{HERE}/python"));
    // Wheels bring no compiled modules, and each process would compile some thousand of them: 6 to 13 s, seen on a GPU machine.
    env.insert("PYTHONPYCACHEPREFIX".to_owned(), format!("{HERE}/pycache"));
    let name = script.file_name().unwrap_or_default().to_string_lossy();
    Ok(Engine {
        mlx: version.to_owned(),
        artifact: Artifact {
            name: request.reference.name.clone(),
            program: "python3".into(),
            args: vec!["-s".to_owned(), "-P".to_owned(), format!("{HERE}/reference/{name}")],
            env,
            provenance: Provenance { digest: digest_of(&inputs), inputs, log: Value::Null },
        },
    })
}

fn model_packages(
    request: &BundleRequest<'_>,
    staging: &Path,
    sink: &dyn EventSink,
) -> Result<BTreeMap<String, String>, BundleError> {
    let models = request.matrices.iter().flat_map(|(matrix, _)| &matrix.models);
    let wanted: BTreeSet<&String> = models
        .filter_map(|model| match &model.source {
            ModelSource::Package { package } => Some(package),
            _ => None,
        })
        .collect();
    wanted
        .into_iter()
        .map(|package| {
            let file = provision::package_file(package, request.layout, request.toolbox, sink)?;
            let name = file.file_name().unwrap_or_default().to_string_lossy().into_owned();
            store::copy_whole(&file, &staging.join("packages").join(&name))?;
            Ok((package.clone(), format!("packages/{name}")))
        })
        .collect()
}

/// This very program, without what only a debugger reads.
fn copy_program(staging: &Path) -> Result<(), BundleError> {
    let own = env::current_exe().map_err(StoreError::at("find", Path::new("this program")))?;
    let place = staging.join("bin/cargo-xtask");
    store::copy_whole(&own, &place)?;
    if find_program("strip").is_some() {
        // A larger program runs as well.
        let _ = Invocation::new("strip").arg(&place).run_ok();
    }
    Ok(())
}

fn make_executable(path: &Path) -> Result<(), StoreError> {
    #[cfg(unix)]
    {
        use std::os::unix::fs::PermissionsExt as _;
        fs::set_permissions(path, fs::Permissions::from_mode(0o755))
            .map_err(StoreError::at("make executable", path))?;
    }
    Ok(())
}

fn read(path: &Path) -> Result<String, ProvisionError> {
    file::text(path, Most::Configuration)
        .map_err(|source| ProvisionError::Read { path: path.to_owned(), source })
}

impl Bundle {
    /// Reads the bundle in `folder`.
    ///
    /// # Errors
    /// Where there is none, or one that this program did not make.
    pub fn open(folder: &Path) -> Result<Self, BundleError> {
        let path = folder.join(MANIFEST);
        let fail = |source: Box<dyn std::error::Error + Send + Sync>| BundleError::Manifest {
            path: path.clone(),
            source,
        };
        let text = file::bytes(&path, Most::Configuration).map_err(|e| fail(Box::new(e)))?;
        let manifest: Manifest = serde_json::from_slice(&text).map_err(|e| fail(Box::new(e)))?;
        if manifest.schema != schema() {
            let other = format!("it is {} {}", manifest.schema.name, manifest.schema.version);
            return Err(fail(other.into()));
        }
        let folder = std::path::absolute(folder).unwrap_or_else(|_| folder.to_owned());
        Ok(Self { folder, manifest })
    }

    /// Where it lies; `matrices/` is below it.
    pub fn folder(&self) -> &Path {
        &self.folder
    }

    /// Every build that its matrices may name; it holds the engines of some.
    pub fn builds(&self) -> &[BuildSpec] {
        &self.manifest.builds
    }

    /// The backends that its library has.
    pub fn backends(&self) -> [Backend; 2] {
        [Backend::Cpu, self.manifest.backend]
    }

    /// The engine of a build, with its MLX version.
    ///
    /// # Errors
    /// Where the bundle holds no such build.
    pub fn engine(&self, build: &str) -> Result<(Artifact, String), BundleError> {
        let found = self.manifest.engines.iter().find(|engine| engine.artifact.name == build);
        let found = found.ok_or_else(|| BundleError::NoEngine {
            build: build.to_owned(),
            known: self
                .manifest
                .engines
                .iter()
                .map(|engine| engine.artifact.name.clone())
                .collect::<Vec<_>>()
                .join(", "),
        })?;
        Ok((self.placed(&found.artifact), found.mlx.clone()))
    }

    /// The reference, with its MLX version.
    ///
    /// # Errors
    /// Where this machine has no Python for it.
    pub fn reference(&self) -> Result<(Artifact, String), BundleError> {
        let wanted = &self.manifest.python;
        let program =
            python::find_minor(wanted).ok_or_else(|| BundleError::NoPython { wanted: wanted.clone() })?;
        let engine = &self.manifest.reference;
        Ok((Artifact { program, ..self.placed(&engine.artifact) }, engine.mlx.clone()))
    }

    /// The program that imitates faults, beside the reference's own.
    pub fn faulty(&self, reference: &Artifact) -> Artifact {
        let script = self.folder.join("reference/faulty_engine.py").to_string_lossy().into_owned();
        let args = vec!["-s".to_owned(), "-P".to_owned(), script];
        Artifact { name: "faulty-mlx-lm".to_owned(), args, ..reference.clone() }
    }

    /// Makes, or finds, the models of a matrix that `needed` names.
    ///
    /// # Errors
    /// Where one cannot be made.
    pub fn models(
        &self,
        matrix: &MatrixSpec,
        needed: &BTreeSet<&str>,
        sink: &dyn EventSink,
    ) -> Result<BTreeMap<String, ModelDir>, BundleError> {
        let package_file =
            |package: &str| Ok(self.manifest.packages.get(package).map(|file| self.folder.join(file)));
        let failed = |name: &str, source| BundleError::Model { name: name.to_owned(), source };
        let root = self.folder.join("models");
        super::prepare_models((matrix, needed), &root, package_file, failed, sink)
    }

    fn placed(&self, artifact: &Artifact) -> Artifact {
        let here = self.folder.to_string_lossy();
        let placed = |text: &str| text.replace(HERE, &here);
        let mut env: BTreeMap<String, String> =
            artifact.env.iter().map(|(name, value)| (name.clone(), placed(value))).collect();
        if let (Some(path), Some(inherited)) =
            (env.get_mut("LD_LIBRARY_PATH"), crate::tools::host::variable("LD_LIBRARY_PATH"))
        {
            path.push(':');
            path.push_str(&inherited);
        }
        Artifact {
            program: placed(&artifact.program.to_string_lossy()).into(),
            args: artifact.args.iter().map(|arg| placed(arg)).collect(),
            env,
            ..artifact.clone()
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn bundle(folder: &Path) -> Bundle {
        let artifact = Artifact {
            name: "patched".into(),
            program: format!("{HERE}/builds/patched/regraft-runner").into(),
            args: vec![],
            env: engine_env("0.32.0"),
            provenance: Provenance { digest: "d".into(), inputs: Value::Null, log: Value::Null },
        };
        let engine = Engine { mlx: "0.32.0".into(), artifact };
        let manifest = Manifest {
            schema: schema(),
            backend: Backend::Cuda,
            python: "3.12".into(),
            builds: vec![],
            engines: vec![engine.clone()],
            reference: engine,
            packages: BTreeMap::new(),
        };
        store::write_whole(&folder.join(MANIFEST), &serde_json::to_vec(&manifest).unwrap()).unwrap();
        Bundle::open(folder).unwrap()
    }

    #[test]
    fn a_bundle_runs_where_it_lies() {
        let dir = tempfile::tempdir().unwrap();
        let bundle = bundle(dir.path());
        let (engine, mlx) = bundle.engine("patched").unwrap();
        assert_eq!(engine.program, dir.path().join("builds/patched/regraft-runner"));
        assert_eq!(mlx, "0.32.0");
        let library = dir.path().join("mlx/0.32.0/mlx/lib").to_string_lossy().into_owned();
        assert!(engine.env["LD_LIBRARY_PATH"].starts_with(&library), "{:?}", engine.env);
        assert_eq!(bundle.backends(), [Backend::Cpu, Backend::Cuda]);
        let error = bundle.engine("other").unwrap_err();
        assert_eq!(error.to_string(), "the bundle holds no build `other` (it holds patched)");
    }

    #[test]
    fn a_folder_that_is_no_bundle_is_neither_used_nor_replaced() {
        let dir = tempfile::tempdir().unwrap();
        assert!(matches!(Bundle::open(dir.path()), Err(BundleError::Manifest { .. })));
        fs::write(dir.path().join(MANIFEST), r#"{"schema": {"name": "regraft-bundle", "version": 99}}"#)
            .unwrap();
        assert!(Bundle::open(dir.path()).unwrap_err().hint().unwrap().contains("build --bundle"));
    }

    #[cfg(all(target_os = "linux", target_arch = "x86_64"))]
    #[test]
    fn what_cannot_become_a_bundle_is_refused_before_anything_is_made() {
        let dir = tempfile::tempdir().unwrap();
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap();
        let layout = Layout {
            work: dir.path().join("target/regraft"),
            cache: dir.path().join("cache"),
            ..Layout::of_repository(root)
        };
        let write = |name: &str, mode: u32| {
            use std::os::unix::fs::PermissionsExt as _;
            let path = dir.path().join(name);
            store::write_whole(&path, b"#!/bin/sh\n").unwrap();
            fs::set_permissions(&path, fs::Permissions::from_mode(mode)).unwrap();
            path.to_string_lossy().into_owned()
        };
        let (program, plain) = (write("runner", 0o755), write("notes", 0o644));
        fs::create_dir_all(dir.path().join("empty")).unwrap();
        write("used/thesis.tex", 0o644);
        write("fresh.pieces/thesis.tex", 0o644);
        fs::create_dir_all(&layout.work).unwrap();
        std::os::unix::fs::symlink(dir.path().join("target"), dir.path().join("link")).unwrap();
        let published = BuildSpec { mlx: MlxSource::Wheel("0.32.0".into()), ..unasked_runner("published") };
        let old = BuildSpec { mlx: MlxSource::Wheel("0.1.0".into()), ..unasked_runner("old") };
        let carried = BuildSpec { mlx: MlxSource::Vendored, ..unasked_runner("eredu") };
        let checked = |builds: &[&BuildSpec], runners: &[(&str, &str)], folder: &str| {
            let runners: Vec<(String, String)> =
                runners.iter().map(|(name, file)| ((*name).to_owned(), (*file).to_owned())).collect();
            let folder = dir.path().join(folder);
            let pieces = PathBuf::from(format!("{}.pieces", folder.display()));
            let plan = BundlePlan {
                layout: &layout,
                builds,
                runners: &runners,
                folder: &folder,
                pieces: Some(&pieces),
            };
            check(&plan).map_err(|error| {
                assert!(error.hint().is_some(), "{error}");
                format!("{error}")
                    .replace(&*dir.path().canonicalize().unwrap().to_string_lossy(), "DIR")
                    .replace(&*dir.path().to_string_lossy(), "DIR")
                    .replace(&*root.to_string_lossy(), "ROOT")
            })
        };
        let fine: &[&BuildSpec] = &[&published];
        for folder in ["new/deep", "empty"] {
            assert_eq!(checked(fine, &[("b", &program)], folder), Ok(()), "{folder}");
        }
        let missing = dir.path().join("gone").to_string_lossy().into_owned();
        let whole = dir.path().to_string_lossy().into_owned();
        let refused: Vec<String> = [
            checked(fine, &[], "used"),
            checked(fine, &[], "fresh"),
            checked(fine, &[], "notes"),
            checked(fine, &[], "notes/below"),
            checked(fine, &[], "target/regraft/bundle"),
            checked(fine, &[], "link/regraft/bundle"),
            checked(fine, &[("published", &program)], "new"),
            checked(fine, &[("../b", &program)], "new"),
            checked(fine, &[("", &program)], "new"),
            checked(fine, &[("b", &plain)], "new"),
            checked(fine, &[("b", &missing)], "new"),
            checked(fine, &[("b", &whole)], "new"),
            checked(&[&carried], &[], "new"),
            checked(&[&old], &[], "new"),
        ]
        .map(Result::unwrap_err)
        .into();
        insta::assert_snapshot!(refused.join("\n"), @"
        `DIR/used` exists and is no bundle
        `DIR/fresh.pieces` exists and is no folder of pieces
        `DIR/notes` exists and is no bundle
        cannot make a bundle at `DIR/notes/below`
        `DIR/target/regraft/bundle` lies inside `DIR/target/regraft`, where builds are made and cleared away
        `DIR/link/regraft/bundle` lies inside `DIR/target/regraft`, where builds are made and cleared away
        a bundle cannot hold an engine `published`: another one has the name
        a bundle cannot hold an engine `../b`: no folder can be named so
        a bundle cannot hold an engine ``: no folder can be named so
        cannot run `DIR/notes`, the runner of `b`
        cannot run `DIR/gone`, the runner of `b`
        cannot run `DIR`, the runner of `b`
        build `eredu` is linked to an MLX for CPUs that its crates carry; a bundle replaces the library
        `ROOT/harness/provision/cuda.lock` does not lock mlx-cuda-13 0.1.0, which build `old` needs (it locks 0.32.0)
        ");
        assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 7, "nothing was made");
    }

    #[test]
    fn another_library_makes_another_build() {
        let dir = tempfile::tempdir().unwrap();
        let program = dir.path().join("runner");
        fs::write(&program, "program").unwrap();
        let inputs = json!({ "mlx": { "package": "mlx-cpu", "version": "0.32.0" }, "target": "t" });
        let artifact = Artifact {
            name: "b".into(),
            program,
            args: vec![],
            env: BTreeMap::from([("LD_PRELOAD".to_owned(), "/here/blas".to_owned())]),
            provenance: Provenance { digest: digest_of(&inputs), inputs, log: Value::Null },
        };
        let library = json!({ "package": CUDA_PACKAGE, "version": "0.32.0" });
        let staging = dir.path().join("staging");
        let engine = bundled(&artifact, &mlx_version(&artifact), &library, &staging).unwrap();
        assert_eq!(fs::read(staging.join("builds/b/regraft-runner")).unwrap(), b"program");
        let provenance = &engine.artifact.provenance;
        assert_ne!(provenance.digest, artifact.provenance.digest);
        assert_eq!(provenance.inputs["linked_against"]["package"], "mlx-cpu");
        assert_eq!(provenance.inputs["mlx"]["package"], CUDA_PACKAGE);
        assert!(!engine.artifact.env.contains_key("LD_PRELOAD"), "what lies here only is not carried");
    }
}
