//! Where a build's MLX comes from, once it is at hand: the official library, or sources inside a crate and a BLAS to link
//! them to. Says what that means for identity, CMake, linker and loader; nothing is compiled here.

use std::{
    ffi::OsString,
    path::{Path, PathBuf},
};

use serde_json::{Value, json};

use crate::{
    build::{
        blas::FastBlas,
        compile::BuildError,
        digest,
        layout::Layout,
        mlx_git::{self, Compiled},
        provision::{self, MlxWheel, Toolbox},
    },
    config::spec::{BuildSpec, MlxSource},
    event::EventSink,
};

/// The crate that carries MLX's sources.
const CARRIER: &str = "safemlx-sys";

/// The headers of ours that declare what MLX calls.
const HEADERS: [&str; 2] = ["cblas.h", "lapack.h"];

/// A build's MLX.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Mlx {
    /// The official library, linked dynamically.
    Wheel(MlxWheel),
    /// Compiled from the archive inside the crates, linked statically.
    Vendored(Vendored),
    /// Compiled from a git revision, linked dynamically.
    Compiled(Compiled),
}

/// What sources of MLX need beside themselves.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Vendored {
    /// The BLAS that a static MLX is linked to; `None` where the system brings one.
    pub blas: Option<StaticBlas>,
}

/// A BLAS for a static MLX.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StaticBlas {
    /// The library, with the plain names.
    pub library: PathBuf,
    /// The folder of its headers.
    pub headers: PathBuf,
    /// The version of `scipy-openblas32` behind it.
    pub version: String,
    /// The digest of headers and forwarding library's source.
    pub sources_sha256: String,
}

impl StaticBlas {
    /// What identifies it.
    pub(super) fn inputs(&self) -> Value {
        json!({"package": "scipy-openblas32", "version": self.version, "sources_sha256": self.sources_sha256})
    }
}

/// Gets what `spec` takes as MLX.
///
/// # Errors
/// When the official library cannot be provisioned, or there is no BLAS for sources.
pub(super) fn provide(
    spec: &BuildSpec,
    layout: &Layout,
    toolbox: &Toolbox,
    sink: &dyn EventSink,
) -> Result<Mlx, BuildError> {
    match &spec.mlx {
        MlxSource::Wheel(version) => provision::mlx_wheel(version, layout, toolbox, sink)
            .map(Mlx::Wheel)
            .map_err(|source| BuildError::Provision { build: spec.name.clone(), source: Box::new(source) }),
        MlxSource::Vendored => {
            let blas = static_blas(&spec.name, &toolbox.blas, &layout.provision())?;
            Ok(Mlx::Vendored(Vendored { blas }))
        }
        MlxSource::Git(revision) => {
            mlx_git::provide(spec, revision, layout, toolbox, sink).map(Mlx::Compiled)
        }
    }
}

/// The BLAS for sources of MLX; `provision` is the folder with our headers.
pub(super) fn static_blas(
    build: &str,
    blas: &FastBlas,
    provision: &Path,
) -> Result<Option<StaticBlas>, BuildError> {
    let (library, version) = match blas {
        FastBlas::NotNeeded => return Ok(None),
        FastBlas::Missing { why } => {
            return Err(BuildError::NoBlas { build: build.to_owned(), why: why.clone() });
        }
        FastBlas::Preloaded { library, version, .. } => (library.clone(), version.clone()),
    };
    let headers = provision.join("blas_headers");
    if let Some(missing) = HEADERS.iter().find(|name| !headers.join(name).is_file()) {
        let why = format!("`{}` is missing", headers.join(missing).display());
        return Err(BuildError::NoBlas { build: build.to_owned(), why });
    }
    let files: Vec<PathBuf> = HEADERS.iter().map(|name| Path::new("blas_headers").join(name)).collect();
    let files = [files, vec![PathBuf::from("blas_forward.S")]].concat();
    let sources_sha256 = digest::files_digest(provision, &files)
        .map_err(|source| BuildError::Read { path: provision.to_owned(), source })?;
    Ok(Some(StaticBlas { library, headers, version, sources_sha256 }))
}

impl Mlx {
    /// What identifies it. The sources themselves are part of a crate, whose hash the build's inputs hold.
    pub fn inputs(&self) -> Value {
        match self {
            Self::Wheel(wheel) => json!({
                "package": wheel.package, "version": wheel.version, "wheel": wheel.wheel,
                "wheel_sha256": wheel.wheel_sha256, "library": wheel.library, "library_sha256": wheel.library_sha256,
            }),
            Self::Vendored(vendored) => json!({
                "source": "vendored",
                "crate": CARRIER,
                "blas": vendored.blas.as_ref().map(StaticBlas::inputs),
            }),
            Self::Compiled(compiled) => compiled.inputs.clone(),
        }
    }

    /// The CMake toolchain file that makes mlx-c's own build take it.
    pub fn cmake_file(&self) -> String {
        match self {
            Self::Wheel(library) | Self::Compiled(Compiled { library, .. }) => {
                wheel_file(&library.cmake_dir().to_string_lossy())
            }
            Self::Vendored(vendored) => sources_file(vendored.blas.as_ref()),
        }
    }

    /// [`Mlx::cmake_file`] without paths of this machine.
    pub fn cmake_file_anywhere(&self) -> String {
        match self {
            Self::Wheel(_) | Self::Compiled(_) => wheel_file("<mlx>"),
            Self::Vendored(vendored) => {
                let blas = vendored.blas.clone();
                let placeless = blas.map(|blas| StaticBlas {
                    library: "<blas>".into(),
                    headers: "<headers>".into(),
                    ..blas
                });
                sources_file(placeless.as_ref())
            }
        }
    }

    /// The variable that tells the runner's build script what to link.
    pub fn link_variable(&self) -> (&'static str, OsString) {
        match self {
            Self::Wheel(library) | Self::Compiled(Compiled { library, .. }) => {
                ("REGRAFT_MLX_LIB_DIR", library.lib_dir().into_os_string())
            }
            Self::Vendored(vendored) => {
                let library = vendored.blas.as_ref().map(|blas| blas.library.clone().into_os_string());
                ("REGRAFT_BLAS", library.unwrap_or_default())
            }
        }
    }

    /// The folder of the library that the program looks for when it starts, if there is one.
    pub fn library_dir(&self) -> Option<PathBuf> {
        match self {
            Self::Wheel(library) | Self::Compiled(Compiled { library, .. }) => Some(library.lib_dir()),
            Self::Vendored(vendored) => {
                vendored.blas.as_ref().and_then(|blas| blas.library.parent()).map(Path::to_path_buf)
            }
        }
    }

    /// What a program on these crates is linked to beside them: the official library, or the BLAS of a static one.
    pub fn linked_library(&self) -> Option<PathBuf> {
        match self {
            Self::Wheel(library) | Self::Compiled(Compiled { library, .. }) => {
                Some(library.lib_dir().join(&library.library))
            }
            Self::Vendored(vendored) => vendored.blas.as_ref().map(|blas| blas.library.clone()),
        }
    }

    /// The official library.
    pub fn wheel(&self) -> Option<&MlxWheel> {
        match self {
            Self::Wheel(wheel) => Some(wheel),
            Self::Vendored(_) | Self::Compiled(_) => None,
        }
    }
}

/// A path as a quoted argument of CMake.
fn quoted(path: &str) -> String {
    format!("\"{}\"", path.replace('\\', "\\\\").replace('"', "\\\"").replace('$', "\\$"))
}

/// Makes mlx-c use the official library in `cmake_dir`. The crates name static archives of a source build to the linker;
/// empty ones stand in for them, and the runner's build script links the library itself.
fn wheel_file(cmake_dir: &str) -> String {
    format!(
        r#"set(MLX_C_USE_SYSTEM_MLX ON CACHE BOOL "" FORCE)
set(MLX_C_BUILD_EXAMPLES OFF CACHE BOOL "" FORCE)
set(MLX_DIR {} CACHE PATH "" FORCE)
foreach(archive IN ITEMS lib/libmlx.a lib/libgguflib.a _deps/mlx-build/libmlx.a _deps/mlx-build/mlx/io/libgguflib.a)
  if(NOT EXISTS "${{CMAKE_BINARY_DIR}}/${{archive}}")
    file(WRITE "${{CMAKE_BINARY_DIR}}/${{archive}}" "!<arch>\n")
  endif()
endforeach()
"#,
        quoted(cmake_dir)
    )
}

/// Makes MLX's own build take our BLAS instead of looking for one in the system.
pub(super) fn sources_file(blas: Option<&StaticBlas>) -> String {
    let mut text = String::from("set(MLX_C_BUILD_EXAMPLES OFF CACHE BOOL \"\" FORCE)\n");
    if let Some(blas) = blas {
        let library = quoted(&blas.library.to_string_lossy());
        let headers = quoted(&blas.headers.to_string_lossy());
        for part in ["LAPACK", "BLAS"] {
            text.push_str(&format!("set({part}_LIBRARIES {library} CACHE STRING \"\" FORCE)\n"));
            text.push_str(&format!("set({part}_INCLUDE_DIRS {headers} CACHE PATH \"\" FORCE)\n"));
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;
    use crate::build::blas::BlasCheck;

    fn blas(library: &str) -> StaticBlas {
        StaticBlas {
            library: library.into(),
            headers: "/r/blas_headers".into(),
            version: "0.3.34".into(),
            sources_sha256: "ss".into(),
        }
    }

    fn preloaded() -> FastBlas {
        let check = BlasCheck { serves: true, without_s: 1.0, with_s: 0.1 };
        FastBlas::Preloaded { library: "/w/libregraft_blas.so".into(), version: "0.3.34".into(), check }
    }

    #[test]
    fn the_cmake_file_names_the_official_library_and_stands_in_for_the_archives_of_a_source_build() {
        insta::assert_snapshot!(wheel_file("/a b/\"$x\"/MLX"), @r#"
        set(MLX_C_USE_SYSTEM_MLX ON CACHE BOOL "" FORCE)
        set(MLX_C_BUILD_EXAMPLES OFF CACHE BOOL "" FORCE)
        set(MLX_DIR "/a b/\"\$x\"/MLX" CACHE PATH "" FORCE)
        foreach(archive IN ITEMS lib/libmlx.a lib/libgguflib.a _deps/mlx-build/libmlx.a _deps/mlx-build/mlx/io/libgguflib.a)
          if(NOT EXISTS "${CMAKE_BINARY_DIR}/${archive}")
            file(WRITE "${CMAKE_BINARY_DIR}/${archive}" "!<arch>\n")
          endif()
        endforeach()
        "#);
    }

    #[test]
    fn sources_of_mlx_get_our_blas_instead_of_the_systems_and_none_where_the_system_has_a_good_one() {
        let mlx = Mlx::Vendored(Vendored { blas: Some(blas("/a b/libregraft_blas.so")) });
        insta::assert_snapshot!(mlx.cmake_file(), @r#"
        set(MLX_C_BUILD_EXAMPLES OFF CACHE BOOL "" FORCE)
        set(LAPACK_LIBRARIES "/a b/libregraft_blas.so" CACHE STRING "" FORCE)
        set(LAPACK_INCLUDE_DIRS "/r/blas_headers" CACHE PATH "" FORCE)
        set(BLAS_LIBRARIES "/a b/libregraft_blas.so" CACHE STRING "" FORCE)
        set(BLAS_INCLUDE_DIRS "/r/blas_headers" CACHE PATH "" FORCE)
        "#);
        assert!(!mlx.cmake_file_anywhere().contains("/a b") && !mlx.cmake_file_anywhere().contains("/r/"));
        assert_eq!(mlx.link_variable(), ("REGRAFT_BLAS", "/a b/libregraft_blas.so".into()));
        let plain = Mlx::Vendored(Vendored { blas: None });
        assert!(!plain.cmake_file().contains("BLAS"));
        assert_eq!((plain.link_variable().1, plain.library_dir()), (OsString::new(), None));
    }

    #[test]
    fn the_blas_and_our_headers_identify_a_build_of_the_crates_own_sources_and_paths_do_not() {
        let inputs = |blas| Mlx::Vendored(Vendored { blas: Some(blas) }).inputs();
        let first = inputs(blas("/one/lib.so"));
        assert_eq!(first, inputs(blas("/two/lib.so")));
        assert_ne!(first, inputs(StaticBlas { version: "0.3.35".into(), ..blas("/one/lib.so") }));
        assert_ne!(first, inputs(StaticBlas { sources_sha256: "tt".into(), ..blas("/one/lib.so") }));
        assert_ne!(first, Mlx::Vendored(Vendored { blas: None }).inputs());
    }

    #[test]
    fn without_a_blas_or_its_headers_the_build_is_refused_before_anything_is_compiled() {
        let dir = tempfile::tempdir().unwrap();
        let missing = FastBlas::Missing { why: "scipy-openblas32 is not installed".into() };
        let error = static_blas("eredu", &missing, dir.path()).unwrap_err();
        insta::assert_snapshot!(
            format!("{error}\nhint: {}", error.hint().unwrap()),
            @r"
        build `eredu` compiles MLX, and there is no BLAS to link it to: scipy-openblas32 is not installed
        hint: `cargo xtask doctor` says what the BLAS of the private environment lacks; builds with `mlx = { wheel = … }` need none
        "
        );
        let write = |name: &str, text: &str| {
            let path = dir.path().join(name);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        };
        write("blas_headers/cblas.h", "c");
        let error = static_blas("eredu", &preloaded(), dir.path()).unwrap_err().to_string();
        assert!(error.ends_with("blas_headers/lapack.h` is missing"), "{error}");
        write("blas_headers/lapack.h", "l");
        write("blas_forward.S", "s");
        let first = static_blas("eredu", &preloaded(), dir.path()).unwrap().unwrap();
        write("blas_headers/lapack.h", "changed");
        let second = static_blas("eredu", &preloaded(), dir.path()).unwrap().unwrap();
        assert_ne!(first.sources_sha256, second.sources_sha256);
        assert_eq!(static_blas("eredu", &FastBlas::NotNeeded, dir.path()).unwrap(), None);
    }
}
