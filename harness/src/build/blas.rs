//! A fast BLAS for engines on Linux: the MLX wheel brings a copy that is tens of times slower than OpenBLAS. Ours is a
//! small library of jumps into `scipy-openblas32`, loaded first. Without it everything works, slowly.

use std::{
    collections::BTreeMap,
    fmt, fs,
    path::{Path, PathBuf},
    time::Duration,
};

use serde::{Deserialize, Serialize};

use crate::{
    build::{digest::sha256_hex, layout::Layout, store},
    event::{Event, EventSink},
    tools::{
        file::{self, Most},
        lock::FileLock,
        process::Invocation,
        python::{self, Installed},
    },
};

const LIBRARY: &str = "libregraft_blas.so";
const CHECK: &str = "check.json";

/// The BLAS that engines load before MLX's own.
#[derive(Debug, Clone, PartialEq)]
pub enum FastBlas {
    /// This library, loaded first.
    Preloaded {
        /// The forwarding library.
        library: PathBuf,
        /// The version of `scipy-openblas32` behind it.
        version: String,
        /// What loading it changes, measured once.
        check: BlasCheck,
    },
    /// This platform's MLX brings a fast one.
    NotNeeded,
    /// There is none; engines run slowly.
    Missing {
        /// Why.
        why: String,
    },
}

/// Whether the library is really used, and the best times of a 512 × 512 × 512 f32 matrix product on the CPU. Times are
/// for people: on a busy machine they say little (measured on a quiet one: 75 ms without, 1.9 ms with it).
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct BlasCheck {
    /// Whether a process that loads it first takes `cblas_sgemm` from it.
    pub serves: bool,
    /// With the wheel's own BLAS.
    pub without_s: f64,
    /// With ours loaded first.
    pub with_s: f64,
}

impl FastBlas {
    /// Variables that make an engine load it.
    pub fn env(&self) -> BTreeMap<String, String> {
        match self {
            Self::Preloaded { library, .. } => {
                BTreeMap::from([("LD_PRELOAD".to_owned(), library.to_string_lossy().into_owned())])
            }
            Self::NotNeeded | Self::Missing { .. } => BTreeMap::new(),
        }
    }
}

impl fmt::Display for FastBlas {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Preloaded { version, check, .. } => write!(
                f,
                "OpenBLAS {version}, 512³ product {:.1} ms instead of {:.1} ms",
                check.with_s * 1e3,
                check.without_s * 1e3
            ),
            Self::NotNeeded => f.write_str("not needed"),
            Self::Missing { why } => write!(f, "missing: {why}"),
        }
    }
}

/// Builds, or finds, the forwarding library for an environment. What goes wrong becomes a warning.
pub fn provide(layout: &Layout, environment: &Path, installed: &Installed, sink: &dyn EventSink) -> FastBlas {
    if cfg!(not(target_os = "linux")) {
        return FastBlas::NotNeeded;
    }
    let blas = build(layout, environment, installed, sink).unwrap_or_else(|why| FastBlas::Missing { why });
    match &blas {
        FastBlas::Missing { why } => {
            sink.emit(Event::Warning(format!("no fast BLAS, prompts take some 20-40 times longer: {why}")))
        }
        FastBlas::Preloaded { library, check, .. } if !check.serves => sink.emit(Event::Warning(format!(
            "`{}` is loaded first, and MLX's slow BLAS is used all the same; prompts take some 20-40 times longer",
            library.display()
        ))),
        _ => {}
    }
    blas
}

fn build(
    layout: &Layout,
    environment: &Path,
    installed: &Installed,
    sink: &dyn EventSink,
) -> Result<FastBlas, String> {
    let version =
        installed.distributions.get("scipy-openblas32").ok_or("scipy-openblas32 is not installed")?.clone();
    let lib_dir = installed.site.join("scipy_openblas32/lib");
    if !lib_dir.join("libscipy_openblas.so").is_file() {
        return Err(format!("there is no libscipy_openblas.so in {}", lib_dir.display()));
    }
    let source = layout.provision().join("blas_forward.S");
    let text = file::text(&source, Most::Configuration)
        .map_err(|e| format!("cannot read {}: {e}", source.display()))?;
    let check = layout.provision().join("blas_check.py");
    let check = file::text(&check, Most::Configuration).map_err(|e| e.to_string())?;
    let identity = format!("{text}\n{check}\n{version}\n{}", lib_dir.display());
    let folder = layout.work.join("blas").join(&sha256_hex(identity.as_bytes())[..16]);
    if is_unloadable(&folder) {
        return Err(format!("LD_PRELOAD cannot name a path with spaces or colons ({})", folder.display()));
    }
    if !folder.is_dir() {
        let lock = layout.work.join("provision.lock");
        let _lock = FileLock::acquire(&lock, || {
            sink.emit(Event::Note("another run is provisioning or building; waiting for it".to_owned()));
        })
        .map_err(|e| e.to_string())?;
        store::clear_leftovers(&layout.work.join("blas")).map_err(|e| BlasError::from(e).0)?;
        store::folder_once::<BlasError>(&folder, |staging| {
            let library = staging.join(LIBRARY);
            compile(&source, &lib_dir, &library, &layout.log("blas"))
                .map_err(|e| BlasError(e.to_string()))?;
            let check = measure(layout, environment, &library).map_err(BlasError)?;
            let json = serde_json::to_vec(&check).expect("numbers are JSON");
            fs::write(staging.join(CHECK), json).map_err(|e| BlasError(e.to_string()))
        })
        .map_err(|e| e.0)?;
    }
    let check = file::bytes(&folder.join(CHECK), Most::Configuration).map_err(|e| e.to_string())?;
    let check = serde_json::from_slice(&check).map_err(|e| e.to_string())?;
    Ok(FastBlas::Preloaded { library: folder.join(LIBRARY), version, check })
}

/// The loader splits `LD_PRELOAD` at spaces and colons and knows no quotes.
fn is_unloadable(path: &Path) -> bool {
    path.to_string_lossy().contains([' ', ':'])
}

struct BlasError(String);

impl From<store::StoreError> for BlasError {
    fn from(error: store::StoreError) -> Self {
        Self(format!("{error}: {}", error.source))
    }
}

fn compile(
    source: &Path,
    lib_dir: &Path,
    library: &Path,
    log: &Path,
) -> Result<(), crate::tools::process::ProcessError> {
    Invocation::new("cc")
        .args(["-shared", "-fPIC", "-Wl,-z,now", "-Wl,-soname,libregraft_blas.so", "-o"])
        .arg(library)
        .arg(source)
        .arg(format!("-L{}", lib_dir.display()))
        .arg("-lscipy_openblas")
        .arg(format!("-Wl,-rpath,{}", lib_dir.display()))
        .log(log)
        .timeout(Duration::from_secs(120))
        .run_ok()
        .map(|_| ())
}

fn measure(layout: &Layout, environment: &Path, library: &Path) -> Result<BlasCheck, String> {
    #[derive(Deserialize)]
    struct Report {
        best_s: f64,
        server: Option<String>,
    }
    let ask = |preload: Option<&Path>| -> Result<Report, String> {
        let mut ask = Invocation::new(python::environment_python(environment))
            .arg("-I")
            .arg(layout.provision().join("blas_check.py"))
            .env_remove(["LD_PRELOAD"])
            .log(layout.log("blas"))
            .timeout(Duration::from_secs(300));
        if let Some(library) = preload {
            ask = ask.env("LD_PRELOAD", library);
        }
        let stdout = ask.run_ok().map_err(|e| e.to_string())?.stdout;
        serde_json::from_str(&stdout).map_err(|e| format!("the check printed no report: {e}"))
    };
    let (without, with) = (ask(None)?, ask(Some(library))?);
    let serves = with.server.as_deref().is_some_and(|file| Path::new(file).ends_with(LIBRARY));
    Ok(BlasCheck { serves, without_s: without.best_s, with_s: with.best_s })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_loader_cannot_take_every_path() {
        assert!(is_unloadable(Path::new("/home/a b/x")) && is_unloadable(Path::new("/a:b/x")));
        assert!(!is_unloadable(Path::new("/home/ab/x")));
    }

    #[test]
    fn only_a_preloaded_blas_sets_variables() {
        assert!(FastBlas::NotNeeded.env().is_empty());
        assert!(FastBlas::Missing { why: "gone".into() }.env().is_empty());
        let check = BlasCheck { serves: true, without_s: 0.0746, with_s: 0.00188 };
        let blas =
            FastBlas::Preloaded { library: "/w/libregraft_blas.so".into(), version: "0.3.34".into(), check };
        assert_eq!(blas.env()["LD_PRELOAD"], "/w/libregraft_blas.so");
        insta::assert_snapshot!(blas, @"OpenBLAS 0.3.34, 512³ product 1.9 ms instead of 74.6 ms");
    }
}
