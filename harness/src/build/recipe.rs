//! Decides what a build is made of: crates with hashes and patches, the runner's feature, the canonical inputs and their
//! digest, the manifests and the CMake file of its scratch copy. Plain functions of values; `compile` acts.

use std::path::PathBuf;

use serde_json::{Value, json};

use crate::{
    build::{
        compile::BuildError,
        digest::{digest_of, sha256_hex},
        mlx::Mlx,
    },
    config::spec::BuildSpec,
    tools::cargo::LockedPackage,
};

/// A patch file of a stack.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PatchFile {
    /// Its file name.
    pub name: String,
    /// The SHA-256 of its bytes, in hexadecimal.
    pub sha256: String,
    /// Where it lies.
    pub path: PathBuf,
}

/// A crate that a build replaces or keeps.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CratePlan {
    /// Its name.
    pub name: String,
    /// Its version.
    pub version: String,
    /// The SHA-256 of its `.crate` file, in hexadecimal, as the runner's lock has it; empty for a crate of a git revision,
    /// which its commit identifies.
    pub sha256: String,
    /// The folder of the build's git revision that holds it.
    pub folder: Option<String>,
    /// The patches on it, in order; without any it comes from the registry as it is.
    pub patches: Vec<PatchFile>,
}

impl CratePlan {
    /// Where its patched copy lies below `target/regraft/sources`: one folder for one content.
    pub fn folder_name(&self) -> String {
        let mut identity = self.sha256.clone();
        for patch in &self.patches {
            identity.push_str(&format!("\n{} {}", patch.name, patch.sha256));
        }
        format!("{}-{}-{}", self.name, self.version, &sha256_hex(identity.as_bytes())[..12])
    }
}

/// Programs and settings that shape what the compiler makes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Toolchain {
    /// First line of `rustc -vV`.
    pub rustc: String,
    /// First line of `cargo --version`.
    pub cargo: String,
    /// First line of `cc --version`.
    pub cc: String,
    /// First line of `c++ --version`.
    pub cxx: String,
    /// Version of the provisioned CMake.
    pub cmake: String,
    /// Version of the provisioned ninja.
    pub ninja: String,
    /// The target triple.
    pub target: String,
    /// Inherited compiler variables that are set, by name.
    pub flags: Vec<(String, String)>,
}

/// Digests of our own code that goes into a runner.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OwnSources {
    /// The runner's sources and the dialect's package, less build outputs and tests.
    pub runner_sha256: String,
    /// The engine protocol.
    pub protocol_sha256: String,
    /// The lock that goes with the build's git revision.
    pub lock_sha256: Option<String>,
}

/// The crates of `spec`, checked against the runner's lock; `patches` gives the files of a stack by its folder's name.
pub fn crate_plans(
    spec: &BuildSpec,
    locked: &[LockedPackage],
    patches: impl Fn(&str) -> Result<Vec<PatchFile>, BuildError>,
) -> Result<Vec<CratePlan>, BuildError> {
    let plan = |(name, source): (&String, &crate::config::spec::CrateSource)| {
        if source.folder.is_some() {
            let (name, version, folder) = (name.clone(), source.version.clone(), source.folder.clone());
            return Ok(CratePlan { name, version, sha256: String::new(), folder, patches: Vec::new() });
        }
        let of_name = || locked.iter().filter(|p| p.name == *name);
        let package =
            of_name().find(|p| p.version == source.version).ok_or_else(|| BuildError::NotLocked {
                build: spec.name.clone(),
                package: name.clone(),
                version: source.version.clone(),
                locked: of_name().map(|p| p.version.clone()).collect(),
            })?;
        let sha256 = package.checksum.clone().ok_or_else(|| BuildError::NotLocked {
            build: spec.name.clone(),
            package: name.clone(),
            version: source.version.clone(),
            locked: vec!["a path".to_owned()],
        })?;
        let mut patches = source.patches.as_deref().map_or_else(|| Ok(Vec::new()), &patches)?;
        patches.retain(|patch| !source.leave_out.contains(&patch.name));
        let (name, version) = (name.clone(), source.version.clone());
        Ok(CratePlan { name, version, sha256, folder: None, patches })
    };
    spec.crates.iter().map(plan).collect()
}

/// The runner's cargo feature for a dialect: `safemlx-lm-0.4` → `safemlx-lm-04`, since features cannot hold dots.
pub fn feature(dialect: &str) -> String {
    dialect.replace('.', "")
}

/// Where the runner's package for a dialect lies below the runner: dialects after the first have one each, because their
/// crates may claim the same native library, which cargo allows once a lock.
pub fn package_folder(dialect: &str) -> PathBuf {
    match dialect {
        "safemlx-lm-0.4" => PathBuf::new(),
        other => PathBuf::from("dialects").join(feature(other)),
    }
}

/// What identifies a build. Names of builds and paths of this machine are not part of it.
pub fn inputs(
    spec: &BuildSpec,
    crates: &[CratePlan],
    mlx: &Mlx,
    own: &OwnSources,
    toolchain: &Toolchain,
) -> Value {
    let patch = |p: &PatchFile| json!({"name": p.name, "sha256": p.sha256});
    let source = |c: &CratePlan| match &c.folder {
        Some(folder) => json!({"crate": c.name, "version": c.version, "folder": folder}),
        None => json!({
            "crate": c.name, "version": c.version, "sha256": c.sha256,
            "patches": c.patches.iter().map(patch).collect::<Vec<_>>(),
        }),
    };
    let git = spec.git.as_ref().map(|git| {
        json!({"repository": git.repository, "commit": git.commit.to_string(), "lock_sha256": own.lock_sha256})
    });
    let flags: serde_json::Map<String, Value> =
        toolchain.flags.iter().map(|(name, value)| (name.clone(), json!(value))).collect();
    json!({
        "schema": {"name": "regraft-build-inputs", "version": 1},
        "dialect": spec.dialect,
        "feature": feature(&spec.dialect),
        "profile": "release",
        "target": toolchain.target,
        "git": git,
        "sources": crates.iter().map(source).collect::<Vec<_>>(),
        "mlx": mlx.inputs(),
        "runner_sha256": own.runner_sha256,
        "protocol_sha256": own.protocol_sha256,
        "cmake_file_sha256": sha256_hex(mlx.cmake_file_anywhere().as_bytes()),
        "toolchain": {
            "rustc": toolchain.rustc, "cargo": toolchain.cargo, "cc": toolchain.cc, "cxx": toolchain.cxx,
            "cmake": toolchain.cmake, "ninja": toolchain.ninja,
        },
        "flags": flags,
    })
}

/// The digest of [`inputs`].
pub fn build_digest(inputs: &Value) -> String {
    digest_of(inputs)
}

/// The `[patch.crates-io]` table that sends each patched crate to its copy.
pub fn patch_table(copies: &[(String, PathBuf)]) -> String {
    if copies.is_empty() {
        return String::new();
    }
    let mut table = String::from("\n[patch.crates-io]\n");
    for (name, path) in copies {
        let path = toml::Value::String(path.to_string_lossy().into_owned());
        table.push_str(&format!("{name} = {{ path = {path} }}\n"));
    }
    table
}

/// The MLX version that mlx-c's own build would fetch (`GIT_TAG v0.31.2` → `0.31.2`), if its CMake file says so.
pub fn expected_mlx(cmake_lists: &str) -> Option<String> {
    let after = cmake_lists.split("ml-explore/mlx.git").nth(1)?;
    let tag = after.split_once("GIT_TAG")?.1.trim_start();
    let tag = tag.split([')', ' ', '\n', '\r']).next()?.trim_matches('"').strip_prefix('v')?;
    tag.starts_with(|c: char| c.is_ascii_digit()).then(|| tag.to_owned())
}

/// The version that MLX's header declares.
pub fn declared_mlx(version_h: &str) -> Option<String> {
    let number = |part: &str| {
        let line = version_h.lines().find(|l| l.contains(&format!("define MLX_VERSION_{part} ")))?;
        line.split_whitespace().last().map(str::to_owned)
    };
    Some(format!("{}.{}.{}", number("MAJOR")?, number("MINOR")?, number("PATCH")?))
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;
    use crate::{
        build::{mlx::Vendored, provision::MlxWheel},
        config::spec::{CrateSource, GitSource, MlxSource},
    };

    fn spec() -> BuildSpec {
        let source = |version: &str, patches: Option<&str>| CrateSource {
            version: version.into(),
            folder: None,
            patches: patches.map(str::to_owned),
            leave_out: Vec::new(),
        };
        BuildSpec {
            name: "demo".into(),
            summary: "a build".into(),
            dialect: "safemlx-lm-0.4".into(),
            mlx: MlxSource::Wheel("0.31.2".into()),
            git: None,
            crates: BTreeMap::from([
                ("safemlx".to_owned(), source("0.1.3", Some("safemlx"))),
                ("safemlx-lm".to_owned(), source("0.4.1", None)),
            ]),
        }
    }

    fn locked() -> Vec<LockedPackage> {
        let package = |name: &str, version: &str| LockedPackage {
            name: name.into(),
            version: version.into(),
            checksum: Some(format!("{name}-hash")),
        };
        vec![package("safemlx", "0.1.3"), package("safemlx-lm", "0.4.1")]
    }

    fn patch_file(sha256: &str) -> PatchFile {
        PatchFile { name: "0001-a.patch".into(), sha256: sha256.into(), path: "/p/0001-a.patch".into() }
    }

    fn mlx() -> Mlx {
        Mlx::Wheel(wheel())
    }

    fn wheel() -> MlxWheel {
        MlxWheel {
            package: "mlx-cpu".into(),
            version: "0.31.2".into(),
            wheel: "w.whl".into(),
            wheel_sha256: "ww".into(),
            library: "libmlx.so".into(),
            library_sha256: "ll".into(),
            folder: "/somewhere".into(),
        }
    }

    fn own() -> OwnSources {
        OwnSources { runner_sha256: "r".into(), protocol_sha256: "p".into(), lock_sha256: None }
    }

    fn toolchain() -> Toolchain {
        Toolchain {
            rustc: "rustc 1".into(),
            cargo: "cargo 1".into(),
            cc: "cc 1".into(),
            cxx: "c++ 1".into(),
            cmake: "4".into(),
            ninja: "1".into(),
            target: "x86_64-unknown-linux-gnu".into(),
            flags: vec![],
        }
    }

    fn plans() -> Vec<CratePlan> {
        crate_plans(&spec(), &locked(), |_| Ok(vec![patch_file("one")])).unwrap()
    }

    #[test]
    fn equal_inputs_give_equal_digests_whatever_the_build_is_called_and_wherever_it_lies() {
        let first = inputs(&spec(), &plans(), &mlx(), &own(), &toolchain());
        let named = BuildSpec { name: "other".into(), summary: "words".into(), ..spec() };
        let moved = Mlx::Wheel(MlxWheel { folder: "/elsewhere".into(), ..wheel() });
        let second = inputs(&named, &plans(), &moved, &own(), &toolchain());
        assert_eq!(build_digest(&first), build_digest(&second));
    }

    #[test]
    fn any_changed_input_gives_another_digest() {
        let digest = |s: &BuildSpec, c: &[CratePlan], m: &Mlx, o: &OwnSources, t: &Toolchain| {
            build_digest(&inputs(s, c, m, o, t))
        };
        let (s, c, m, o, t) = (spec(), plans(), mlx(), own(), toolchain());
        let mut renamed = plans();
        renamed[0].patches[0].name = "0002-a.patch".into();
        let mut repatched = plans();
        repatched[0].patches[0].sha256 = "two".into();
        let mut unpatched = plans();
        unpatched[0].patches.clear();
        let mut republished = plans();
        republished[1].sha256 = "other".into();
        let digests = [
            digest(&s, &c, &m, &o, &t),
            digest(&BuildSpec { dialect: "safemlx-lm-0.5".into(), ..spec() }, &c, &m, &o, &t),
            digest(&s, &renamed, &m, &o, &t),
            digest(&s, &repatched, &m, &o, &t),
            digest(&s, &unpatched, &m, &o, &t),
            digest(&s, &republished, &m, &o, &t),
            digest(&s, &c, &Mlx::Wheel(MlxWheel { library_sha256: "x".into(), ..wheel() }), &o, &t),
            digest(&s, &c, &Mlx::Wheel(MlxWheel { wheel_sha256: "x".into(), ..wheel() }), &o, &t),
            digest(&s, &c, &Mlx::Vendored(Vendored { blas: None }), &o, &t),
            digest(&s, &c, &m, &OwnSources { runner_sha256: "x".into(), ..own() }, &t),
            digest(&s, &c, &m, &OwnSources { protocol_sha256: "x".into(), ..own() }, &t),
            digest(&s, &c, &m, &o, &Toolchain { rustc: "rustc 2".into(), ..toolchain() }),
            digest(&s, &c, &m, &o, &Toolchain { cxx: "c++ 2".into(), ..toolchain() }),
            digest(&s, &c, &m, &o, &Toolchain { cmake: "5".into(), ..toolchain() }),
            digest(&s, &c, &m, &o, &Toolchain { target: "t".into(), ..toolchain() }),
            digest(
                &s,
                &c,
                &m,
                &o,
                &Toolchain { flags: vec![("CFLAGS".into(), "-O0".into())], ..toolchain() },
            ),
        ];
        let distinct: std::collections::BTreeSet<_> = digests.iter().collect();
        assert_eq!(distinct.len(), digests.len());
    }

    #[test]
    fn a_trial_leaves_out_files_of_a_stack_and_is_another_build() {
        let mut spec = spec();
        spec.crates.get_mut("safemlx").unwrap().leave_out = vec!["0001-a.patch".into()];
        let stack = |_: &str| {
            Ok(vec![patch_file("one"), PatchFile { name: "0002-b.patch".into(), ..patch_file("two") }])
        };
        let trial = crate_plans(&spec, &locked(), stack).unwrap();
        let names: Vec<&str> = trial[0].patches.iter().map(|patch| patch.name.as_str()).collect();
        assert_eq!(names, ["0002-b.patch"]);
        let digest = |plans: &[CratePlan]| build_digest(&inputs(&spec, plans, &mlx(), &own(), &toolchain()));
        assert_ne!(digest(&trial), digest(&crate_plans(&self::spec(), &locked(), stack).unwrap()));
    }

    #[test]
    fn every_dialect_after_the_first_has_a_package_of_its_own() {
        assert_eq!(package_folder("safemlx-lm-0.4"), PathBuf::new());
        assert_eq!(package_folder("eredu-0.5"), PathBuf::from("dialects/eredu-05"));
    }

    #[test]
    fn builds_that_patch_a_crate_alike_share_its_copy() {
        let (a, b) = (&plans()[0], &plans()[0]);
        assert_eq!(a.folder_name(), b.folder_name());
        assert!(a.folder_name().starts_with("safemlx-0.1.3-"));
        let other = CratePlan { patches: vec![patch_file("two")], ..a.clone() };
        assert_ne!(a.folder_name(), other.folder_name());
    }

    #[test]
    fn a_crate_of_a_revision_is_identified_by_the_commit_and_not_by_the_lock() {
        let commit = |digit: &str| digit.repeat(40).parse().unwrap();
        let git = |digit: &str| GitSource { repository: "https://e.org/o/n".into(), commit: commit(digit) };
        let mut spec = BuildSpec { git: Some(git("1")), ..spec() };
        let source = spec.crates.get_mut("safemlx-lm").unwrap();
        (source.version, source.folder) = ("9.9.9".into(), Some("lm".into()));
        let plans = crate_plans(&spec, &locked(), |_| Ok(vec![])).unwrap();
        assert_eq!((plans[1].version.as_str(), plans[1].folder.as_deref()), ("9.9.9", Some("lm")));
        let digest = |spec: &BuildSpec| build_digest(&inputs(spec, &plans, &mlx(), &own(), &toolchain()));
        assert_ne!(digest(&spec), digest(&BuildSpec { git: Some(git("2")), ..spec.clone() }));
    }

    #[test]
    fn a_version_that_the_runner_does_not_lock_is_named_with_the_one_it_does() {
        let mut spec = spec();
        spec.crates.get_mut("safemlx-lm").unwrap().version = "0.4.2".into();
        let error = crate_plans(&spec, &locked(), |_| Ok(vec![])).unwrap_err();
        insta::assert_snapshot!(
            format!("{error}\nhint: {}", error.hint().unwrap()),
            @r"
        build `demo` wants safemlx-lm 0.4.2, which the runner's lock does not hold (it holds: 0.4.1)
        hint: name that version in `matrices/builds.toml`, or change the runner's `Cargo.toml` and run `cargo update` there
        "
        );
    }

    #[test]
    fn the_wheel_that_fits_is_read_from_the_sources() {
        let lists = "FetchContent_Declare(\n  mlx\n  GIT_REPOSITORY \"https://github.com/ml-explore/mlx.git\"\n  GIT_TAG v0.31.2)\n";
        assert_eq!(expected_mlx(lists).as_deref(), Some("0.31.2"));
        assert_eq!(expected_mlx("project(x)"), None);
        assert_eq!(expected_mlx(&lists.replace("v0.31.2", "main")), None);
        let header =
            "#define MLX_VERSION_MAJOR 0\n#define MLX_VERSION_MINOR 31\n#define MLX_VERSION_PATCH 2\n";
        assert_eq!(declared_mlx(header).as_deref(), Some("0.31.2"));
    }

    #[test]
    fn the_patch_table_quotes_paths_and_is_absent_without_copies() {
        assert_eq!(patch_table(&[]), "");
        let table = patch_table(&[("safemlx".into(), "/a \"b\"/safemlx".into())]);
        let parsed: toml::Table = table.parse().unwrap();
        assert_eq!(parsed["patch"]["crates-io"]["safemlx"]["path"].as_str(), Some("/a \"b\"/safemlx"));
    }
}
