//! MLX compiled from a git revision and a stack of patches on it: a folder laid out as the official library's, which the
//! rest of a build takes in the same way.
//!
//! What MLX's own CMake lists fetch (json, fmt, gguflib) comes from where they say. With mirrors, git itself is sent to them
//! (`url.….insteadOf`), so that CMake clones, checks out and patches as it would from the network; an archive of a GitHub
//! release is replaced by the files of its tag, for which nothing is patched.

use std::{
    ffi::OsString,
    fs,
    path::{Path, PathBuf},
    process,
    time::Duration,
};

use serde_json::{Value, json};

use crate::{
    build::{
        compile::{self, BuildError, read_text},
        digest, git,
        layout::Layout,
        mlx::{self, StaticBlas},
        provision::{MlxWheel, Toolbox},
        recipe,
        steps::step,
        store::{self, Made, StoreError},
    },
    config::spec::{BuildSpec, MlxRevision},
    event::{Event, EventSink},
    tools::{
        archive, cargo,
        git::{apply, mirror},
        lock::FileLock,
        process::Invocation,
    },
};

/// How long configuring may take, downloads included, and how long compiling.
const CONFIGURING: Duration = Duration::from_secs(1200);
const COMPILING: Duration = Duration::from_secs(4 * 3600);

/// The library's file name.
const LIBRARY: &str = if cfg!(target_os = "macos") { "libmlx.dylib" } else { "libmlx.so" };

/// A library that was compiled here.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Compiled {
    /// The library, in a folder laid out as an official one.
    pub library: MlxWheel,
    /// What it was made of.
    pub inputs: Value,
}

/// Compiles the revision, or finds it by the digest of what it is made of.
///
/// # Errors
/// When the sources cannot be had, a patch does not apply, there is no BLAS, or CMake or the compiler refuse.
pub(super) fn provide(
    spec: &BuildSpec,
    revision: &MlxRevision,
    layout: &Layout,
    toolbox: &Toolbox,
    sink: &dyn EventSink,
) -> Result<Compiled, BuildError> {
    let patches = match &revision.patches {
        Some(stack) => compile::patch_files(&layout.patches().join(stack))?,
        None => Vec::new(),
    };
    let blas = mlx::static_blas(&spec.name, &toolbox.blas, &layout.provision())?;
    let options = options(revision);
    let toolchain = compile::toolchain(toolbox)?;
    let made_of = json!({
        "source": "git",
        "repository": revision.source.repository,
        "commit": revision.source.commit.to_string(),
        "patches": patches.iter().map(|p| json!({"name": p.name, "sha256": p.sha256})).collect::<Vec<_>>(),
        "blas": blas.as_ref().map(StaticBlas::inputs),
        "options": options,
        "cc": toolchain.cc, "cxx": toolchain.cxx, "cmake": toolchain.cmake, "ninja": toolchain.ninja,
    });
    let digest = digest::digest_of(&made_of);
    let name = format!("git-{}-{}", revision.source.commit.short(), &digest[..12]);
    let folder = layout.work.join("mlx").join(&name);
    step(
        sink,
        format!("MLX at {}", revision.source.commit.short()),
        |made: &Made| made.word().to_owned(),
        || -> Result<Made, BuildError> {
            if folder.is_dir() {
                return Ok(Made::Reused);
            }
            let _lock = FileLock::acquire(&layout.work.join("mlx.lock"), || {
                sink.emit(Event::Note("another run is compiling MLX; waiting for it".to_owned()));
            })?;
            let sources = layout.work.join("sources").join(&name);
            store::folder_once::<BuildError>(&sources, |staging| {
                git::unpack(&revision.source, layout, staging, sink)?;
                let files: Vec<PathBuf> = patches.iter().map(|p| p.path.clone()).collect();
                apply::apply_queue(staging, &files).map(drop).map_err(|source| BuildError::Patch {
                    package: "MLX".to_owned(),
                    version: revision.source.commit.short(),
                    source: Box::new(source),
                })
            })?;
            // What killed runs left, half installed or half compiled. Their compilers may still run for a while: each run has
            // a folder of its own, and without theirs they end.
            store::clear_leftovers(&layout.work.join("mlx"))?;
            let builds = layout.work.join("mlx-build");
            if builds.exists() {
                fs::remove_dir_all(&builds).map_err(StoreError::at("clear away", &builds))?;
            }
            store::folder_once(&folder, |staging| {
                let build = builds.join(format!("{name}-{}", process::id()));
                let place = Place { sources: &sources, build: &build, layout };
                place.compile(spec, &options, blas.as_ref(), toolbox, staging, sink)
            })
        },
    )?;
    let header = folder.join("mlx/include/mlx/version.h");
    let file = folder.join("mlx/lib").join(LIBRARY);
    let library = MlxWheel {
        package: "mlx".to_owned(),
        version: recipe::declared_mlx(&read_text(&header)?).unwrap_or_else(|| revision.source.commit.short()),
        wheel: format!("{} {}", revision.source.repository, revision.source.commit),
        wheel_sha256: digest,
        library: LIBRARY.to_owned(),
        library_sha256: archive::file_sha256(&file)
            .map_err(|source| BuildError::Read { path: file.clone(), source })?,
        folder,
    };
    let mut inputs = made_of;
    inputs["library"] = json!(library.library);
    inputs["library_sha256"] = json!(library.library_sha256);
    Ok(Compiled { library, inputs })
}

/// What MLX's lists are told.
fn options(revision: &MlxRevision) -> Vec<String> {
    let switch = |on: bool| if on { "ON" } else { "OFF" };
    let mut options = vec![
        "CMAKE_BUILD_TYPE=Release".to_owned(),
        "BUILD_SHARED_LIBS=ON".to_owned(),
        "CMAKE_INSTALL_LIBDIR=lib".to_owned(),
        format!("MLX_BUILD_METAL={}", switch(cfg!(target_os = "macos"))),
        format!("MLX_METAL_JIT={}", switch(revision.metal_jit)),
    ];
    for unwanted in ["TESTS", "EXAMPLES", "BENCHMARKS", "PYTHON_BINDINGS"] {
        options.push(format!("MLX_BUILD_{unwanted}=OFF"));
    }
    if cfg!(target_os = "linux") {
        // The BLAS lies beside the library, wherever that is.
        options.push("CMAKE_INSTALL_RPATH=$ORIGIN".to_owned());
    }
    options
}

/// Where a library is compiled.
struct Place<'a> {
    sources: &'a Path,
    build: &'a Path,
    layout: &'a Layout,
}

impl Place<'_> {
    fn compile(
        &self,
        spec: &BuildSpec,
        options: &[String],
        blas: Option<&StaticBlas>,
        toolbox: &Toolbox,
        staging: &Path,
        sink: &dyn EventSink,
    ) -> Result<(), BuildError> {
        let failed = |source| BuildError::Compile { build: spec.name.clone(), source: Box::new(source) };
        let lib = staging.join("mlx/lib");
        // The library is linked to a copy that lies beside it.
        let beside = match blas {
            Some(blas) => {
                let library = lib.join(blas.library.file_name().unwrap_or_default());
                store::copy_whole(&blas.library, &library)?;
                Some(StaticBlas { library, ..blas.clone() })
            }
            None => None,
        };
        let settings = self.build.join("settings.cmake");
        store::write_whole(&settings, mlx::sources_file(beside.as_ref()).as_bytes())?;
        let redirects = self.redirects(&declared(self.sources)?, sink)?;
        let log = self.layout.log(&format!("mlx-{}", spec.name));
        let cmake = || redirects.apply(self.tool("cmake", toolbox)).log(&log);
        let mut configure =
            cmake().arg("-C").arg(&settings).arg("-S").arg(self.sources).arg("-B").arg(self.build);
        configure = configure.args(["-G", "Ninja"]).args(options.iter().map(|option| format!("-D{option}")));
        configure.args(redirects.folder_arguments()).timeout(CONFIGURING).run_ok().map_err(failed)?;
        let jobs = cargo::jobs().to_string();
        let build = cmake().arg("--build").arg(self.build).args(["--parallel", &jobs]);
        build.timeout(COMPILING).run_ok().map_err(failed)?;
        let install = cmake().arg("--install").arg(self.build).arg("--prefix").arg(staging.join("mlx"));
        install.timeout(CONFIGURING).run_ok().map_err(failed)?;
        fs::remove_dir_all(self.build).map_err(StoreError::at("clear away", self.build))?;
        Ok(())
    }

    /// A tool of the private environment; compilers write no paths of this machine into what they make.
    fn tool(&self, name: &str, toolbox: &Toolbox) -> Invocation {
        let mut map = OsString::from("-ffile-prefix-map=");
        map.push(self.layout.work.as_os_str());
        map.push("=/regraft -ffile-prefix-map=");
        map.push(self.build.as_os_str());
        map.push("=/regraft/mlx-build");
        Invocation::new(toolbox.bin().join(name))
            .env("PATH", compile::tools_first(toolbox))
            .env("CFLAGS", &map)
            .env("CXXFLAGS", &map)
    }

    /// What has a mirror comes from there. The rest is left to CMake: most of it is for other platforms.
    fn redirects(&self, declared: &[Declared], sink: &dyn EventSink) -> Result<Redirects, BuildError> {
        let mut redirects = Redirects::default();
        let Some(mirrors) = &self.layout.mirrors else { return Ok(redirects) };
        let mut missing = Vec::new();
        for dependency in declared {
            match &dependency.from {
                From::Git(repository) => match mirror::find_mirror(mirrors, repository) {
                    Ok(place) => redirects.repositories.push((place, repository.clone())),
                    Err(_) => missing.push(dependency.name.as_str()),
                },
                From::Release { repository, tag } if mirror::find_mirror(mirrors, repository).is_ok() => {
                    if dependency.patched {
                        return Err(BuildError::PatchedArchive {
                            dependency: dependency.name.clone(),
                            repository: repository.clone(),
                        });
                    }
                    let tagged = git::tagged(repository, tag, self.layout, sink)?;
                    let folder = git::checkout(&tagged, self.layout, sink)?;
                    redirects.folders.push((dependency.name.to_uppercase(), folder));
                }
                From::Release { .. } | From::Elsewhere => missing.push(dependency.name.as_str()),
            }
        }
        if !missing.is_empty() {
            sink.emit(Event::Note(format!(
                "no mirror of {}: what this platform needs of them, CMake fetches from the network",
                missing.join(", ")
            )));
        }
        Ok(redirects)
    }
}

/// Where dependencies come from instead.
#[derive(Debug, Default, PartialEq, Eq)]
struct Redirects {
    /// Mirrors, each with the address that it stands for.
    repositories: Vec<(PathBuf, String)>,
    /// Folders with the files of a dependency, under its name in capitals.
    folders: Vec<(String, PathBuf)>,
}

impl Redirects {
    /// Lets git, as CMake runs it, take the mirrors.
    fn apply(&self, mut command: Invocation) -> Invocation {
        command = command.env("GIT_CONFIG_COUNT", self.repositories.len().to_string());
        for (at, (mirror, address)) in self.repositories.iter().enumerate() {
            command = command
                .env(format!("GIT_CONFIG_KEY_{at}"), format!("url.{}.insteadOf", mirror.display()))
                .env(format!("GIT_CONFIG_VALUE_{at}"), address);
        }
        command
    }

    fn folder_arguments(&self) -> impl Iterator<Item = OsString> {
        self.folders.iter().map(|(name, folder)| {
            let mut argument = OsString::from(format!("-DFETCHCONTENT_SOURCE_DIR_{name}="));
            argument.push(folder);
            argument
        })
    }
}

/// Something that CMake lists fetch.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Declared {
    name: String,
    from: From,
    /// Whether it has a `PATCH_COMMAND`.
    patched: bool,
}

#[derive(Debug, Clone, PartialEq, Eq)]
enum From {
    /// A git repository, by its address as it is written.
    Git(String),
    /// The archive of a GitHub release.
    Release { repository: String, tag: String },
    /// Another archive.
    Elsewhere,
}

/// What the lists of MLX's sources fetch.
fn declared(sources: &Path) -> Result<Vec<Declared>, BuildError> {
    let mut all = Vec::new();
    for list in ["CMakeLists.txt", "mlx/io/CMakeLists.txt"] {
        let path = sources.join(list);
        if path.is_file() {
            all.extend(declared_in(&read_text(&path)?));
        }
    }
    Ok(all)
}

/// The `FetchContent_Declare`s of a CMake list.
fn declared_in(list: &str) -> Vec<Declared> {
    let plain: String =
        list.lines().map(|line| line.split('#').next().unwrap_or_default()).collect::<Vec<_>>().join("\n");
    plain.split("FetchContent_Declare(").skip(1).filter_map(|rest| one(rest.split(')').next()?)).collect()
}

fn one(arguments: &str) -> Option<Declared> {
    let words: Vec<&str> = arguments.split_whitespace().map(|word| word.trim_matches('"')).collect();
    let after =
        |key: &str| words.iter().position(|word| *word == key).and_then(|at| words.get(at + 1)).copied();
    let from = match (after("GIT_REPOSITORY"), after("URL")) {
        (Some(repository), _) => From::Git(repository.to_owned()),
        (None, Some(url)) => release(url).unwrap_or(From::Elsewhere),
        (None, None) => From::Elsewhere,
    };
    let name = (*words.first()?).to_owned();
    Some(Declared { name, from, patched: words.contains(&"PATCH_COMMAND") })
}

/// `…/owner/name/releases/download/TAG/file`.
fn release(url: &str) -> Option<From> {
    let (repository, rest) = url.split_once("/releases/download/")?;
    let tag = rest.split('/').next()?.to_owned();
    Some(From::Release { repository: repository.to_owned(), tag })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dependencies_are_read_as_the_lists_declare_them() {
        let list = "\
# FetchContent_Declare(old GIT_REPOSITORY https://e/x/old)
include(FetchContent)
FetchContent_Declare(
  one
  GIT_REPOSITORY https://example.org/a/one.git
  GIT_TAG 1.2 # the newest
  EXCLUDE_FROM_ALL)
FetchContent_Declare(two URL \"https://example.org/b/two/releases/download/v3/two.tar.xz\" PATCH_COMMAND sed -i s/a/b/ x)
FetchContent_Declare(three URL ${THREE_URL})
";
        let declared = |name: &str, from: From, patched| Declared { name: name.to_owned(), from, patched };
        let release =
            From::Release { repository: "https://example.org/b/two".to_owned(), tag: "v3".to_owned() };
        assert_eq!(
            declared_in(list),
            [
                declared("one", From::Git("https://example.org/a/one.git".to_owned()), false),
                declared("two", release, true),
                declared("three", From::Elsewhere, false),
            ]
        );
        assert_eq!(declared_in("project(x)"), []);
    }

    #[test]
    fn mirrors_stand_for_addresses_as_they_are_written() {
        let redirects = Redirects {
            repositories: vec![("/m/a+one/repo".into(), "https://example.org/a/one.git".to_owned())],
            folders: vec![("TWO".to_owned(), "/w/two".into())],
        };
        let command = redirects.apply(Invocation::new("cmake")).args(redirects.folder_arguments());
        let line = command.shell_line();
        for part in [
            "GIT_CONFIG_COUNT=1",
            "GIT_CONFIG_KEY_0=url./m/a+one/repo.insteadOf",
            "GIT_CONFIG_VALUE_0=https://example.org/a/one.git",
            "-DFETCHCONTENT_SOURCE_DIR_TWO=/w/two",
        ] {
            assert!(line.contains(part), "{part} in {line}");
        }
    }
}
