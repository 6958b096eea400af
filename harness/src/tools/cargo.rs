//! The door to cargo and rustc: versions, lock files, fetched `.crate` files, release builds.

use std::{
    env, fs, io,
    path::{Path, PathBuf},
    thread,
    time::Duration,
};

use crate::tools::{
    host,
    process::{Invocation, ProcessError},
};

/// How long a fetch or a build may take; a cold build on two busy cores stays well below.
const TIMEOUT: Duration = Duration::from_secs(2 * 3600);

/// Inherited variables that would change what is compiled, or that speak of the harness' own build.
pub const FOREIGN: [&str; 9] = [
    "CARGO_BUILD_RUSTFLAGS",
    "CARGO_BUILD_TARGET",
    "CARGO_BUILD_TARGET_DIR",
    "CARGO_ENCODED_RUSTFLAGS",
    "CARGO_MANIFEST_DIR",
    "CARGO_MANIFEST_PATH",
    "CARGO_TARGET_DIR",
    "RUSTC_WORKSPACE_WRAPPER",
    "RUSTFLAGS",
];

/// A package of a `Cargo.lock`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LockedPackage {
    /// Its name.
    pub name: String,
    /// Its version.
    pub version: String,
    /// The SHA-256 of its `.crate` file; absent for path packages.
    pub checksum: Option<String>,
}

/// The packages of a `Cargo.lock`, in its order. Errors: not TOML of that shape.
pub fn locked_packages(lock: &str) -> Result<Vec<LockedPackage>, toml::de::Error> {
    #[derive(serde::Deserialize)]
    struct Lock {
        #[serde(default)]
        package: Vec<Package>,
    }
    #[derive(serde::Deserialize)]
    struct Package {
        name: String,
        version: String,
        checksum: Option<String>,
    }
    let lock: Lock = toml::from_str(lock)?;
    let package = |p: Package| LockedPackage { name: p.name, version: p.version, checksum: p.checksum };
    Ok(lock.package.into_iter().map(package).collect())
}

/// A `Cargo.lock` in which the packages `(name, version)` come from a path: without `source` and `checksum`, as cargo
/// itself writes them, so that `--locked` holds with `[patch.crates-io]` entries.
pub fn lock_with_path_packages(lock: &str, packages: &[(&str, &str)]) -> String {
    let mut out = String::with_capacity(lock.len());
    for (index, block) in lock.split("[[package]]\n").enumerate() {
        if index > 0 {
            out.push_str("[[package]]\n");
        }
        let is_path = packages.iter().any(|(name, version)| {
            block.starts_with(&format!("name = \"{name}\"\nversion = \"{version}\"\n"))
        });
        for line in block.split_inclusive('\n') {
            if !(is_path && (line.starts_with("source = ") || line.starts_with("checksum = "))) {
                out.push_str(line);
            }
        }
    }
    out
}

/// Where cargo keeps its registry: `CARGO_HOME`, or `.cargo` in the home folder.
pub fn cargo_home() -> Option<PathBuf> {
    if let Some(home) = env::var_os("CARGO_HOME").filter(|h| !h.is_empty()) {
        return Some(PathBuf::from(home));
    }
    etcetera::home_dir().ok().map(|home| home.join(".cargo"))
}

/// The `.crate` file of a package in cargo's download cache, if it was fetched.
pub fn fetched_crate(cargo_home: &Path, name: &str, version: &str) -> io::Result<Option<PathBuf>> {
    let cache = cargo_home.join("registry/cache");
    if !cache.is_dir() {
        return Ok(None);
    }
    for registry in fs::read_dir(&cache)? {
        let file = registry?.path().join(format!("{name}-{version}.crate"));
        if file.is_file() {
            return Ok(Some(file));
        }
    }
    Ok(None)
}

/// Downloads what the lock file beside `manifest` names.
pub fn fetch(manifest: &Path, log: &Path) -> Result<(), ProcessError> {
    cargo().args(["fetch", "--locked", "--manifest-path"]).arg(manifest).log(log).run_ok().map(|_| ())
}

/// A cargo command that sees none of [`FOREIGN`] and asks for nothing on a terminal.
pub fn cargo() -> Invocation {
    let program = env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    Invocation::new(program).env_remove(FOREIGN).env("CARGO_TERM_COLOR", "never").timeout(TIMEOUT)
}

/// How many compilers may run at once: what `CARGO_BUILD_JOBS` says, which cargo reads too, else one a processor.
pub fn jobs() -> usize {
    let processors = thread::available_parallelism().map_or(1, usize::from);
    host::variable("CARGO_BUILD_JOBS")
        .and_then(|jobs| jobs.parse().ok())
        .filter(|jobs| *jobs > 0)
        .unwrap_or(processors)
}

/// What `rustc -vV` says.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RustcVersion {
    /// The first line.
    pub version: String,
    /// The host's target triple.
    pub host: String,
}

/// Asks rustc for its version and host.
pub fn rustc_version() -> Result<RustcVersion, ProcessError> {
    let text = Invocation::new("rustc").arg("-vV").timeout(Duration::from_secs(60)).run_ok()?.stdout;
    Ok(parse_rustc_version(&text))
}

/// The first line of `cargo --version`.
pub fn cargo_version() -> Result<String, ProcessError> {
    let text = cargo().arg("--version").timeout(Duration::from_secs(60)).run_ok()?.stdout;
    Ok(text.lines().next().unwrap_or_default().to_owned())
}

fn parse_rustc_version(text: &str) -> RustcVersion {
    let host = text.lines().find_map(|l| l.strip_prefix("host: ")).unwrap_or("unknown");
    RustcVersion { version: text.lines().next().unwrap_or_default().to_owned(), host: host.to_owned() }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LOCK: &str = "version = 4\n\n[[package]]\nname = \"a\"\nversion = \"1.0.0\"\nsource = \"registry+r\"\nchecksum = \"aa\"\ndependencies = [\n \"b\",\n]\n\n[[package]]\nname = \"b\"\nversion = \"2.0.0\"\nsource = \"registry+r\"\nchecksum = \"bb\"\n";

    #[test]
    fn a_path_package_loses_source_and_checksum_and_nothing_else_changes() {
        let changed = lock_with_path_packages(LOCK, &[("a", "1.0.0"), ("b", "9.9.9")]);
        assert_eq!(changed, LOCK.replacen("source = \"registry+r\"\nchecksum = \"aa\"\n", "", 1));
        let packages = locked_packages(&changed).unwrap();
        assert_eq!(packages[0].checksum, None);
        assert_eq!(packages[1].checksum.as_deref(), Some("bb"));
    }

    #[test]
    fn a_fetched_crate_is_found_below_any_registry() {
        let home = tempfile::tempdir().unwrap();
        assert_eq!(fetched_crate(home.path(), "a", "1.0.0").unwrap(), None);
        let folder = home.path().join("registry/cache/mirror-123");
        fs::create_dir_all(&folder).unwrap();
        fs::write(folder.join("a-1.0.0.crate"), "").unwrap();
        assert!(fetched_crate(home.path(), "a", "1.0.0").unwrap().is_some());
        assert_eq!(fetched_crate(home.path(), "a", "1.0.1").unwrap(), None);
    }

    #[test]
    fn the_host_triple_comes_from_rustc() {
        let rustc =
            parse_rustc_version("rustc 1.90.0 (abc 2025-09-14)\nbinary: rustc\nhost: aarch64-apple-darwin\n");
        assert_eq!(
            (rustc.version.as_str(), rustc.host.as_str()),
            ("rustc 1.90.0 (abc 2025-09-14)", "aarch64-apple-darwin")
        );
    }
}
