//! The door to Python: finds an interpreter, makes a private environment, downloads and installs what a hashed lock
//! names. It never touches the user's own packages.

use std::{
    env,
    ffi::OsString,
    path::{Path, PathBuf},
    time::Duration,
};

use serde::{Deserialize, Serialize};

use crate::tools::process::{Invocation, ProcessError};

/// The CPython minor versions that the locks were resolved for.
pub const SUPPORTED_MINORS: std::ops::RangeInclusive<u32> = 11..=14;

/// How long a download may take, and how long everything local may.
const DOWNLOAD_TIMEOUT: Duration = Duration::from_secs(3600);
const LOCAL_TIMEOUT: Duration = Duration::from_secs(1200);

/// Inherited variables that would send an installation elsewhere or load other modules.
const FOREIGN: [&str; 8] = [
    "PIP_PREFIX",
    "PIP_REQUIRE_VIRTUALENV",
    "PIP_ROOT",
    "PIP_TARGET",
    "PIP_USER",
    "PYTHONHOME",
    "PYTHONPATH",
    "VIRTUAL_ENV",
];

const PROBE: &str = "import importlib.util as u, json, platform, sys, sysconfig
print(json.dumps(dict(program=sys.executable, version=platform.python_version(), major=sys.version_info[0],
minor=sys.version_info[1], implementation=sys.implementation.name, platform=sysconfig.get_platform(),
ensurepip=bool(u.find_spec('ensurepip')) and bool(u.find_spec('venv')), venv=bool(u.find_spec('venv')),
pip=bool(u.find_spec('pip')))))";

const DISTRIBUTIONS: &str = "import importlib.metadata as m, json, sysconfig
print(json.dumps(dict(site=sysconfig.get_path('platlib'),
distributions={d.metadata['Name'].lower(): d.version for d in m.distributions()})))";

/// An interpreter on this machine.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
pub struct Interpreter {
    /// The program itself, behind any shim.
    pub program: PathBuf,
    /// `3.11.7`.
    pub version: String,
    major: u32,
    minor: u32,
    implementation: String,
    /// `linux-x86_64`, `macosx-14.0-arm64`.
    pub platform: String,
    ensurepip: bool,
    venv: bool,
    pip: bool,
}

impl Interpreter {
    /// Whether [`create_environment`] can work with it.
    pub fn can_make_environments(&self) -> bool {
        self.ensurepip || (self.venv && self.pip)
    }
}

/// What a private environment holds.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Installed {
    /// Its folder of installed packages.
    pub site: PathBuf,
    /// Every distribution by lower-case name, with its version.
    pub distributions: std::collections::BTreeMap<String, String>,
}

/// A pip that works on one environment.
#[derive(Debug, Clone)]
pub struct Pip {
    python: PathBuf,
    leading: Vec<OsString>,
}

/// Another machine, for which something is downloaded here.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Target {
    /// Its CPython, such as `3.12`.
    pub python: String,
    /// The platform tags that it can use, such as `manylinux_2_28_x86_64`.
    pub platforms: Vec<String>,
}

/// What kind of failure pip met.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PipFailure {
    /// The package index could not be reached.
    Network,
    /// A file is not the one that the lock names.
    Hash,
    /// There is no room.
    DiskFull,
    /// No published file fits this platform and interpreter.
    NoWheel,
    /// It was ended from outside, or for want of memory.
    Killed,
    /// Something else.
    Other,
}

/// Why Python could not serve.
#[derive(Debug, thiserror::Error)]
pub enum PythonError {
    /// There is no usable interpreter.
    #[error("no CPython 3.{}-3.{} on this machine (found: {found})", SUPPORTED_MINORS.start(), SUPPORTED_MINORS.end())]
    NoInterpreter {
        /// What was found instead.
        found: String,
    },
    /// The interpreter can neither bring pip into an environment nor has one itself.
    #[error("`{}` ({version}) has neither ensurepip nor pip, so no private environment can be made", .program.display())]
    NoPip {
        /// The interpreter.
        program: PathBuf,
        /// Its version.
        version: String,
    },
    /// The environment could not be made.
    #[error("cannot make the private Python environment `{}`", .path.display())]
    Environment {
        /// Its folder.
        path: PathBuf,
        /// What the interpreter said.
        #[source]
        source: Box<ProcessError>,
    },
    /// Pip failed.
    #[error("cannot {doing}{}", pip_reason(*.failure))]
    Pip {
        /// What it was asked: `download reference.lock`.
        doing: String,
        /// What kind of failure it was.
        failure: PipFailure,
        /// What it said.
        #[source]
        source: Box<ProcessError>,
    },
    /// An environment's own report could not be read.
    #[error("`{}` does not report its packages", .program.display())]
    Report {
        /// The interpreter of the environment.
        program: PathBuf,
        /// What is wrong with its report.
        #[source]
        source: Box<dyn std::error::Error + Send + Sync>,
    },
}

impl PythonError {
    /// What to try.
    pub fn hint(&self) -> Option<String> {
        let hint = match self {
            Self::NoInterpreter { .. } => {
                "install python3 (Debian: python3 python3-venv), or name one by the variable REGRAFT_PYTHON"
            }
            Self::NoPip { .. } => "install python3-venv (Debian, Ubuntu) or pip for this interpreter",
            Self::Environment { source, .. } => return source.hint(),
            Self::Pip { failure, source, .. } => match failure {
                PipFailure::Network => {
                    "check the network and the package index settings (`pip config list`), then run the same command again"
                }
                PipFailure::Hash => {
                    "a mirror or a damaged cache served another file: run `pip cache purge`, then the same command again"
                }
                PipFailure::DiskFull => {
                    "make room on the disk (`cargo xtask doctor` says how much), then run the same command again"
                }
                PipFailure::NoWheel => {
                    "the locks cover CPython 3.11-3.14 on Linux (glibc 2.35 or newer, x86-64 and ARM64) and macOS on Apple silicon"
                }
                PipFailure::Killed | PipFailure::Other => return source.hint(),
            },
            Self::Report { .. } => "delete `target/regraft/venv` and run the same command again",
        };
        Some(hint.to_owned())
    }
}

/// The first supported interpreter of: `REGRAFT_PYTHON`, `python3`, `python3.14` … `python3.11`.
pub fn find_interpreter() -> Result<Interpreter, PythonError> {
    let mut names: Vec<OsString> = Vec::new();
    match env::var_os("REGRAFT_PYTHON").filter(|p| !p.is_empty()) {
        Some(named) => names.push(named),
        None => {
            names.push("python3".into());
            names.extend(SUPPORTED_MINORS.rev().map(|minor| format!("python3.{minor}").into()));
        }
    }
    let mut found = Vec::new();
    for name in names {
        match probe(&name) {
            Some(interpreter) if is_supported(&interpreter) => return Ok(interpreter),
            Some(other) => found.push(format!(
                "{} {} at {}",
                other.implementation,
                other.version,
                other.program.display()
            )),
            None => {}
        }
    }
    let found = if found.is_empty() { "none".to_owned() } else { found.join(", ") };
    Err(PythonError::NoInterpreter { found })
}

/// A CPython of this minor version, such as `3.12`: `REGRAFT_PYTHON`, the versioned name, or `python3`.
pub fn find_minor(version: &str) -> Option<PathBuf> {
    let named = env::var_os("REGRAFT_PYTHON").filter(|p| !p.is_empty());
    let names = named.into_iter().chain([format!("python{version}").into(), "python3".into()]);
    let fits = |i: &Interpreter| is_supported(i) && format!("{}.{}", i.major, i.minor) == version;
    names.filter_map(|name: OsString| probe(&name)).find(fits).map(|interpreter| interpreter.program)
}

/// Makes an environment in `path` and says how to install into it. Without ensurepip the interpreter's own pip serves.
pub fn create_environment(interpreter: &Interpreter, path: &Path, log: &Path) -> Result<Pip, PythonError> {
    let program = environment_python(path);
    let make = python(&interpreter.program).args(["-m", "venv"]).log(log).timeout(LOCAL_TIMEOUT);
    let (make, pip) = if interpreter.ensurepip {
        (make, Pip { python: program, leading: Vec::new() })
    } else if interpreter.venv && interpreter.pip {
        let leading = vec!["--python".into(), program.into_os_string()];
        (make.arg("--without-pip"), Pip { python: interpreter.program.clone(), leading })
    } else {
        return Err(PythonError::NoPip {
            program: interpreter.program.clone(),
            version: interpreter.version.clone(),
        });
    };
    make.arg(path)
        .run_ok()
        .map_err(|source| PythonError::Environment { path: path.to_owned(), source: Box::new(source) })?;
    Ok(pip)
}

/// The interpreter of the environment in `path`.
pub fn environment_python(path: &Path) -> PathBuf {
    path.join("bin/python")
}

/// A pip for downloads only, of an environment that is complete.
pub fn environment_pip(interpreter: &Interpreter, path: &Path) -> Pip {
    let program = environment_python(path);
    if interpreter.ensurepip {
        return Pip { python: program, leading: Vec::new() };
    }
    Pip { python: interpreter.program.clone(), leading: vec!["--python".into(), program.into_os_string()] }
}

/// What the environment in `path` holds.
pub fn installed(path: &Path) -> Result<Installed, PythonError> {
    let program = environment_python(path);
    let report = |source: Box<dyn std::error::Error + Send + Sync>| PythonError::Report {
        program: program.clone(),
        source,
    };
    let text = python(&program)
        .args(["-c", DISTRIBUTIONS])
        .timeout(LOCAL_TIMEOUT)
        .run_ok()
        .map_err(|e| report(Box::new(e)))?
        .stdout;
    serde_json::from_str(&text).map_err(|e| report(Box::new(e)))
}

impl Pip {
    /// Downloads exactly the files that `lock` names for this platform into `folder`.
    pub fn download(&self, lock: &Path, folder: &Path, log: &Path) -> Result<(), PythonError> {
        let command = self
            .command("download")
            .args(["--no-deps", "--require-hashes", "--only-binary", ":all:", "--retries", "3", "--dest"])
            .arg(folder)
            .arg("--requirement")
            .arg(lock)
            .log(log)
            .timeout(DOWNLOAD_TIMEOUT);
        run(&command, format!("download what `{}` names", lock.display()))
    }

    /// Downloads exactly the files that `lock` names for another machine into `folder`.
    pub fn download_for(
        &self,
        target: &Target,
        lock: &Path,
        folder: &Path,
        log: &Path,
    ) -> Result<(), PythonError> {
        let command = self
            .command("download")
            .args(["--no-deps", "--require-hashes", "--only-binary", ":all:", "--retries", "3"])
            .args(["--implementation", "cp", "--python-version", &target.python])
            .args(target.platforms.iter().flat_map(|tag| ["--platform", tag]))
            .arg("--dest")
            .arg(folder)
            .arg("--requirement")
            .arg(lock)
            .log(log)
            .timeout(DOWNLOAD_TIMEOUT);
        run(&command, format!("download what `{}` names for Python {}", lock.display(), target.python))
    }

    /// Installs exactly the files that `lock` names, from `folder` and without the network.
    pub fn install(&self, lock: &Path, folder: &Path, log: &Path) -> Result<(), PythonError> {
        let command = self
            .command("install")
            .args([
                "--no-deps",
                "--require-hashes",
                "--no-index",
                "--no-compile",
                "--no-warn-script-location",
            ])
            .args(["--only-binary", ":all:", "--find-links"])
            .arg(folder)
            .arg("--requirement")
            .arg(lock)
            .log(log)
            .timeout(LOCAL_TIMEOUT);
        run(&command, format!("install what `{}` names", lock.display()))
    }

    fn command(&self, subcommand: &str) -> Invocation {
        python(&self.python).args(["-m", "pip"]).args(&self.leading).arg(subcommand).args([
            "--disable-pip-version-check",
            "--no-input",
            "--progress-bar",
            "off",
        ])
    }
}

/// What kind of failure pip's stderr tells of.
pub fn classify(stderr: &str) -> PipFailure {
    let has = |words: &[&str]| words.iter().any(|w| stderr.contains(w));
    if has(&["No space left on device", "Disk quota exceeded"]) {
        PipFailure::DiskFull
    } else if has(&["DO NOT MATCH THE HASHES", "BadZipFile", "has an invalid wheel"]) {
        PipFailure::Hash
    } else if has(&[
        "connection broken",
        "NewConnectionError",
        "Name or service not known",
        "name resolution",
        "Max retries exceeded",
        "ReadTimeoutError",
        "ConnectTimeoutError",
        "ProxyError",
        "SSLError",
        "IncompleteRead",
    ]) {
        PipFailure::Network
    } else if has(&["No matching distribution found", "Could not find a version"]) {
        PipFailure::NoWheel
    } else {
        PipFailure::Other
    }
}

fn run(command: &Invocation, doing: String) -> Result<(), PythonError> {
    match command.run_ok() {
        Ok(_) => Ok(()),
        Err(source) => {
            let failure = match source.killed() {
                Some(_) => PipFailure::Killed,
                None => classify(source.stderr_tail()),
            };
            Err(PythonError::Pip { doing, failure, source: Box::new(source) })
        }
    }
}

fn python(program: &Path) -> Invocation {
    Invocation::new(program).arg("-I").env_remove(FOREIGN).env("PYTHONUTF8", "1")
}

fn probe(name: &OsString) -> Option<Interpreter> {
    let done = python(Path::new(name)).args(["-c", PROBE]).timeout(Duration::from_secs(60)).run_ok().ok()?;
    serde_json::from_str(&done.stdout).ok()
}

fn is_supported(interpreter: &Interpreter) -> bool {
    interpreter.implementation == "cpython"
        && interpreter.major == 3
        && SUPPORTED_MINORS.contains(&interpreter.minor)
}

fn pip_reason(failure: PipFailure) -> &'static str {
    match failure {
        PipFailure::Network => ": the package index cannot be reached",
        PipFailure::Hash => ": a file is not the one that the lock names",
        PipFailure::DiskFull => ": the disk is full",
        PipFailure::NoWheel => ": nothing is published for this platform and interpreter",
        PipFailure::Killed => ": pip was killed",
        PipFailure::Other => "",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pip_failures_are_told_apart() {
        let cases = [
            (
                "WARNING: Retrying after connection broken by 'NewConnectionError'\nERROR: No matching distribution found for x",
                PipFailure::Network,
            ),
            ("ERROR: THESE PACKAGES DO NOT MATCH THE HASHES FROM THE REQUIREMENTS FILE.", PipFailure::Hash),
            (
                "ERROR: Could not install packages due to an OSError: [Errno 28] No space left on device",
                PipFailure::DiskFull,
            ),
            ("ERROR: No matching distribution found for mlx==0.31.2", PipFailure::NoWheel),
            ("ERROR: what?", PipFailure::Other),
        ];
        for (stderr, expected) in cases {
            assert_eq!(classify(stderr), expected, "{stderr}");
        }
    }

    #[test]
    fn a_pip_that_is_killed_has_not_refused_anything() {
        use std::os::unix::fs::PermissionsExt as _;
        let dir = tempfile::tempdir().unwrap();
        let program = dir.path().join("python");
        // Killed in the middle of a retry, whose words would tell of the network.
        std::fs::write(&program, "#!/bin/sh\necho 'Retrying after connection broken' >&2\nkill -9 $$\n")
            .unwrap();
        std::fs::set_permissions(&program, std::fs::Permissions::from_mode(0o755)).unwrap();
        let pip = Pip { python: program, leading: Vec::new() };
        let error = pip.install(Path::new("a.lock"), dir.path(), &dir.path().join("log")).unwrap_err();
        assert_eq!(error.to_string(), "cannot install what `a.lock` names: pip was killed");
        assert!(error.hint().unwrap().starts_with("end what else takes memory"));
    }

    #[test]
    fn an_unhashed_or_foreign_file_is_never_installed() {
        let Ok(interpreter) = find_interpreter() else { return };
        if !interpreter.pip {
            return;
        }
        let dir = tempfile::tempdir().unwrap();
        // The way of a machine without ensurepip, which also keeps this off the interpreter's own packages.
        let bare = Interpreter { ensurepip: false, ..interpreter };
        let pip = create_environment(&bare, &dir.path().join("env"), &dir.path().join("log")).unwrap();
        std::fs::write(dir.path().join("demo-1.0-py3-none-any.whl"), "not a wheel").unwrap();
        let lock = dir.path().join("demo.lock");
        let hash = "0".repeat(64);
        std::fs::write(&lock, format!("demo==1.0 --hash=sha256:{hash}\n")).unwrap();
        let error = pip.install(&lock, dir.path(), &dir.path().join("log")).unwrap_err();
        assert!(matches!(error, PythonError::Pip { failure: PipFailure::Hash, .. }), "{error}");
        assert!(error.to_string().ends_with("a file is not the one that the lock names"), "{error}");
        assert!(error.hint().unwrap().contains("pip cache purge"));
    }

    #[test]
    fn an_interpreter_without_any_pip_is_one_clear_error() {
        let dir = tempfile::tempdir().unwrap();
        let bare = Interpreter {
            program: "/usr/bin/python3".into(),
            version: "3.11.2".into(),
            major: 3,
            minor: 11,
            implementation: "cpython".into(),
            platform: "linux-x86_64".into(),
            ensurepip: false,
            venv: true,
            pip: false,
        };
        let error = create_environment(&bare, &dir.path().join("env"), &dir.path().join("log")).unwrap_err();
        insta::assert_snapshot!(
            format!("{error}\nhint: {}", error.hint().unwrap()),
            @r"
        `/usr/bin/python3` (3.11.2) has neither ensurepip nor pip, so no private environment can be made
        hint: install python3-venv (Debian, Ubuntu) or pip for this interpreter
        "
        );
    }

    #[test]
    fn other_interpreters_are_not_supported() {
        let interpreter = |implementation: &str, minor| Interpreter {
            program: "p".into(),
            version: "v".into(),
            major: 3,
            minor,
            implementation: implementation.into(),
            platform: "linux-x86_64".into(),
            ensurepip: true,
            venv: true,
            pip: true,
        };
        for (name, minor, supported) in
            [("cpython", 11, true), ("cpython", 14, true), ("cpython", 10, false), ("pypy", 11, false)]
        {
            assert_eq!(is_supported(&interpreter(name, minor)), supported, "{name} 3.{minor}");
        }
    }
}
