//! `build`: makes what a `[[build]]` describes, and says what it is made of and where it lies.

use std::{
    collections::VecDeque,
    env::consts::OS,
    fmt::Write,
    path::{Path, PathBuf},
};

use harness::{
    build::{
        self, Artifact, CleanBuild, Layout, Toolbox,
        metal_build::{MetalRequest, with_own_library},
        pieces,
        suites::{Suite, SuiteStatus, upstream_tests},
    },
    config::{
        find_build, load_builds, load_matrix, matrix_path,
        spec::{BuildSpec, MatrixSpec},
    },
    event::{Event, EventSink},
    gate::{
        bundle::{self, BundleError, BundlePlan, BundleRequest},
        check_packages,
    },
    matrix::{Backend, backends_of},
};
use serde::Serialize;
use serde_json::Value;

use crate::{
    cli::{BuildArgs, BuildBackend, BundleArgs, Format},
    exit::{Exit, Failure},
    output::{Document, print_text, printable},
};

/// Provisions, builds and prints what came of it. A clean build whose program is another one than an earlier clean build's
/// of the same recipe is a finding.
pub(crate) fn run(root: &Path, args: &BuildArgs, events: &dyn EventSink) -> Result<Exit, Failure> {
    let builds = load_builds(root)?;
    let spec = find_build(&builds, &args.build)?;
    refuse_foreign(args)?;
    let layout = Layout { mirrors: args.mirrors.mirror_root.clone(), ..Layout::of_repository(root) };
    build::check_recipe(spec, &layout)?;
    let bundle = planned_bundle(root, &args.bundle, &builds, spec, &layout)?;
    let toolbox = build::provision(&layout, events)?;
    // A program that is no runner is told before the builds, not after them.
    let given = args.bundle.runner.iter();
    let given = given.map(|(name, program)| bundle::given_runner(name, Path::new(program), &toolbox));
    let given = given.collect::<Result<Vec<_>, _>>()?;
    let (artifact, mut made) = if args.clean {
        let clean = build::build_clean(spec, &layout, &toolbox, events)?;
        let made = BuildDocument::new(&clean.artifact, Some(&clean));
        (clean.artifact, made)
    } else {
        let artifact = build::build(spec, &layout, &toolbox, events)?;
        let made = BuildDocument::new(&artifact, None);
        (artifact, made)
    };
    let artifact = if args.backend == Some(BuildBackend::Metal) {
        let request = MetalRequest { sources: args.mlx_sources.as_deref(), target: args.deployment_target };
        let artifact = with_own_library(&artifact, &request, &layout, events)?;
        made = BuildDocument::new(&artifact, None);
        artifact
    } else {
        artifact
    };
    if args.upstream_tests {
        made.suites = Some(upstream_tests(spec, &artifact, &layout, &toolbox, events)?);
    }
    if let Some(planned) = bundle {
        let mut carried = vec![(spec.clone(), artifact)];
        for spec in &planned.others {
            carried.push(((*spec).clone(), build::build(spec, &layout, &toolbox, events)?));
        }
        carried.extend(given);
        bundle_up(&planned, &args.bundle, builds.clone(), &carried, &layout, &toolbox, events)?;
    }
    match args.format {
        Format::Json => Document::new("build", 1, &made).print()?,
        Format::Text => print_text(&made.text())?,
    }
    let suites = || made.suites.iter().flatten();
    Ok(if suites().any(Suite::is_bad) || made.reproduced == Some(false) {
        Exit::Found
    } else if suites().any(|suite| suite.status == SuiteStatus::Killed) {
        Exit::Tool
    } else {
        Exit::Pass
    })
}

/// A backend that no build can have on this system is a mistake on the command line; only a bundle is for another machine.
fn refuse_foreign(args: &BuildArgs) -> Result<(), Failure> {
    let of_metal = args.mlx_sources.is_some() || args.deployment_target.is_some();
    if of_metal && args.backend != Some(BuildBackend::Metal) {
        let wrong = "--mlx-sources and --deployment-target go with --backend metal";
        return Err(Failure::new(Exit::Usage, wrong, None));
    }
    if args.backend == Some(BuildBackend::Metal) && args.clean {
        let hint =
            "make the clean build first: `--clean` alone compares programs, which signing changes".to_owned();
        return Err(Failure::new(Exit::Usage, "--clean and --backend metal exclude each other", Some(hint)));
    }
    let Some(backend) = args.backend.map(Backend::from) else { return Ok(()) };
    let here = backends_of(OS);
    let wrong = match (backend, &args.bundle.bundle) {
        (Backend::Cuda, Some(_)) => return Ok(()),
        (_, Some(_)) => format!("a bundle is for cuda, not for {backend}"),
        _ if here.contains(&backend) => return Ok(()),
        _ => format!("a build for {backend} cannot be made on {OS}"),
    };
    let names: Vec<String> = here.iter().map(ToString::to_string).collect();
    let hint = format!("this system builds for {}, and with --bundle for cuda", names.join(" and "));
    Err(Failure::new(Exit::Usage, wrong, Some(hint)))
}

/// A bundle whose every argument has been looked at.
struct PlannedBundle<'b> {
    folder: &'b Path,
    pieces: Option<PathBuf>,
    /// The builds beside the one that the command is about.
    others: Vec<&'b BuildSpec>,
    matrices: Vec<(MatrixSpec, PathBuf)>,
}

/// Looks at everything that is said of a bundle before minutes are spent on what goes into it.
fn planned_bundle<'b>(
    root: &Path,
    args: &'b BundleArgs,
    known: &'b [BuildSpec],
    spec: &'b BuildSpec,
    layout: &Layout,
) -> Result<Option<PlannedBundle<'b>>, Failure> {
    let Some(folder) = args.bundle.as_deref() else { return Ok(None) };
    let mut others: Vec<&BuildSpec> = Vec::new();
    for name in &args.with {
        let other = find_build(known, name)?;
        if other.name != spec.name && !others.contains(&other) {
            build::check_recipe(other, layout)?;
            others.push(other);
        }
    }
    let builds: Vec<&BuildSpec> = std::iter::once(spec).chain(others.iter().copied()).collect();
    let pieces = args.piece_size.map(|_| pieces_folder(folder));
    let (runners, pieces_folder) = (&args.runner, pieces.as_deref());
    bundle::check(&BundlePlan { layout, builds: &builds, runners, folder, pieces: pieces_folder })?;
    let mut named = known.to_vec();
    named.extend(runners.iter().map(|(name, _)| bundle::unasked_runner(name)));
    let matrices = carried_matrices(root, &args.matrix, &named)?;
    matrices.iter().try_for_each(|(matrix, _)| check_packages(matrix, layout))?;
    Ok(Some(PlannedBundle { folder, pieces, others, matrices }))
}

/// The folder of a bundle's pieces: beside the bundle, whether or not its name was given with a slash at the end.
fn pieces_folder(bundle: &Path) -> PathBuf {
    let mut name = bundle.components().collect::<PathBuf>().into_os_string();
    name.push(".pieces");
    name.into()
}

/// The named matrices and those that they include, each once; in a bundle they lie in one folder.
fn carried_matrices(
    root: &Path,
    names: &[String],
    builds: &[BuildSpec],
) -> Result<Vec<(MatrixSpec, PathBuf)>, Failure> {
    let mut matrices: Vec<(MatrixSpec, PathBuf)> = Vec::new();
    let mut wanted: VecDeque<String> = names.iter().cloned().collect();
    while let Some(name) = wanted.pop_front() {
        let path = matrix_path(root, &name);
        if matrices.iter().any(|(_, known)| *known == path) {
            continue;
        }
        if let Some((_, other)) = matrices.iter().find(|(_, known)| known.file_name() == path.file_name()) {
            return Err(Failure::new(
                Exit::Usage,
                format!("cannot carry matrix `{}` and `{}` in one bundle", other.display(), path.display()),
                Some(
                    "their files have one name, and a bundle keeps all in one folder: rename one".to_owned(),
                ),
            ));
        }
        let spec = load_matrix(root, &name, builds)?;
        wanted.extend(spec.include.iter().cloned());
        matrices.push((spec, path));
    }
    Ok(matrices)
}

fn bundle_up(
    planned: &PlannedBundle<'_>,
    args: &BundleArgs,
    mut known: Vec<BuildSpec>,
    carried: &[(BuildSpec, Artifact)],
    layout: &Layout,
    toolbox: &Toolbox,
    events: &dyn EventSink,
) -> Result<(), Failure> {
    for (spec, _) in carried {
        if !known.iter().any(|other| other.name == spec.name) {
            known.push(spec.clone());
        }
    }
    let PlannedBundle { folder, matrices, .. } = planned;
    let reference = build::reference_artifact(layout, toolbox)?;
    let request = BundleRequest {
        layout,
        toolbox,
        builds: carried,
        known: &known,
        reference: &reference,
        matrices,
        python: &args.python,
        folder,
    };
    bundle::make(&request, events)?;
    events.emit(Event::Note(format!("bundle: {}", folder.display())));
    if let (Some(mib), Some(out)) = (args.piece_size, &planned.pieces) {
        let pieces = pieces::write(folder, out, mib << 20).map_err(BundleError::Store)?;
        let bytes: u64 = pieces.iter().map(|piece| piece.bytes).sum();
        events.emit(Event::Note(format!(
            "{} pieces, {} MiB in all: {}",
            pieces.len(),
            bytes >> 20,
            out.display()
        )));
    }
    Ok(())
}

/// How many failing tests of a suite a person gets to see.
const SHOWN_PER_SUITE: usize = 20;

/// How many patches a source of a build has; `None` for none.
fn patches_of(source: &Value) -> Option<String> {
    match source["patches"].as_array().map_or(0, Vec::len) {
        0 => None,
        1 => Some("one patch".to_owned()),
        n => Some(format!("{n} patches")),
    }
}

#[derive(Serialize)]
struct BuildDocument {
    build: String,
    digest: String,
    program: String,
    program_sha256: String,
    clean: bool,
    reused: bool,
    /// Whether earlier clean builds of the same recipe made the same program; absent without any.
    reproduced: Option<bool>,
    twins: Vec<TwinEntry>,
    /// The test suites of its crates, where they were asked for.
    #[serde(skip_serializing_if = "Option::is_none")]
    suites: Option<Vec<Suite>>,
    inputs: Value,
    log: Value,
}

#[derive(Serialize)]
struct TwinEntry {
    folder: String,
    program_sha256: String,
}

impl BuildDocument {
    fn new(artifact: &Artifact, clean: Option<&CleanBuild>) -> Self {
        let log = &artifact.provenance.log;
        let twins: Vec<TwinEntry> = clean
            .map_or(&[][..], |clean| &clean.twins)
            .iter()
            .map(|twin| TwinEntry {
                folder: twin.folder.display().to_string(),
                program_sha256: twin.program_sha256.clone(),
            })
            .collect();
        let reproduced =
            clean.filter(|clean| !clean.twins.is_empty()).map(|clean| clean.unlike().next().is_none());
        Self {
            build: artifact.name.clone(),
            digest: artifact.provenance.digest.clone(),
            program: artifact.program.display().to_string(),
            program_sha256: log["program_sha256"].as_str().unwrap_or_default().to_owned(),
            clean: clean.is_some(),
            reused: log["reused"].as_bool().unwrap_or_default(),
            reproduced,
            twins,
            suites: None,
            inputs: artifact.provenance.inputs.clone(),
            log: log.clone(),
        }
    }

    fn text(&self) -> String {
        let mut text = String::new();
        let mut row = |name: &str, value: &str| writeln!(text, "{name:<9} {value}").expect("text grows");
        row("build", &self.build);
        row("digest", &self.digest);
        row("program", &self.program);
        row("sha-256", &self.program_sha256);
        let mlx = &self.inputs["mlx"];
        let word = |key: &str| mlx[key].as_str().unwrap_or_default();
        row(
            "mlx",
            &match word("source") {
                "vendored" => format!("what {} carries, compiled and linked statically", word("crate")),
                "git" => format!(
                    "{} at {}, compiled here with {}, library {}",
                    word("repository"),
                    word("commit").get(..9).unwrap_or_default(),
                    patches_of(mlx).unwrap_or_else(|| "no patches".to_owned()),
                    word("library_sha256")
                ),
                _ => format!("{} {}, library {}", word("package"), word("version"), word("library_sha256")),
            },
        );
        for source in self.inputs["sources"].as_array().into_iter().flatten() {
            let word = |key: &str| source[key].as_str().unwrap_or_default();
            let patches = if source["folder"].is_string() {
                let commit: String =
                    self.inputs["git"]["commit"].as_str().unwrap_or("unknown").chars().take(9).collect();
                format!("of the git revision {commit}")
            } else {
                patches_of(source).unwrap_or_else(|| "as released".to_owned())
            };
            row("crate", &format!("{} {}, {patches}", word("crate"), word("version")));
        }
        row("how", &self.how());
        if let Some(metal) = self.log["metal"].as_object() {
            let word = |key: &str| metal.get(key).and_then(Value::as_str).unwrap_or("unknown");
            row("metallib", word("library"));
            row(
                "",
                &format!(
                    "  {} kernels for macOS {} and later ({})",
                    metal["kernels"],
                    word("deployment_target"),
                    word("deployment_target_from")
                ),
            );
            row(
                "",
                &format!("  by {}, SDK {}, signed {}", word("compiler_version"), word("sdk"), word("signed")),
            );
            row("", &format!("  on {}", metal["gpu"]["chip"].as_str().unwrap_or("an unknown chip")));
        }
        for suite in self.suites.iter().flatten() {
            row("tests", &printable(&format!("{}: {}", suite.name, suite.summary())));
            for name in suite.failing.iter().take(SHOWN_PER_SUITE) {
                row("", &printable(&format!("  failed: {name}")));
            }
            if let Some(more) = suite.failing.len().checked_sub(SHOWN_PER_SUITE).filter(|more| *more > 0) {
                row("", &format!("  … and {more} more (`--format json` has them all)"));
            }
            if let (true, Some(log)) = (suite.is_bad() || suite.status == SuiteStatus::Killed, &suite.log) {
                row("", &format!("  log: {}", log.display()));
            }
        }
        for twin in &self.twins {
            let same = if twin.program_sha256 == self.program_sha256 { "the same" } else { "ANOTHER" };
            row("compared", &format!("{same} program as in {}", twin.folder));
        }
        text
    }

    fn how(&self) -> String {
        match (self.clean, self.reused) {
            (_, true) => "found by its digest; nothing was compiled".to_owned(),
            (false, false) => format!("compiled in {}, dependencies shared with other builds", self.took()),
            (true, false) => format!(
                "compiled in {}, nothing reused: {} crates unpacked, checked against the lock, no network",
                self.took(),
                self.log["crates_unpacked"]
            ),
        }
    }

    fn took(&self) -> String {
        format!("{:.0} s", self.log["compile_s"].as_f64().unwrap_or_default())
    }
}

#[cfg(test)]
mod tests {
    use harness::build::{Provenance, Twin};
    use serde_json::json;

    use super::*;

    #[test]
    fn pieces_lie_beside_their_bundle() {
        for name in ["out", "out/", "out//", "./out"] {
            let folder = pieces_folder(Path::new(name));
            assert_eq!(folder.components().next_back().unwrap().as_os_str(), "out.pieces", "{name}");
        }
    }

    #[test]
    fn a_bundle_carries_what_its_matrices_include() {
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
        let builds = load_builds(&root).unwrap();
        let carried = carried_matrices(&root, &["nightly".to_owned(), "smoke".to_owned()], &builds).unwrap();
        let mut names: Vec<_> = carried.iter().map(|(spec, _)| spec.name.as_str()).collect();
        names.sort_unstable();
        assert_eq!(names, ["families", "long-context", "nightly", "smoke", "tasks"]);

        let other = tempfile::tempdir().unwrap();
        let copy = other.path().join("smoke.toml");
        std::fs::copy(root.join("matrices/smoke.toml"), &copy).unwrap();
        let both = ["smoke".to_owned(), copy.to_string_lossy().into_owned()];
        let refused = carried_matrices(&root, &both, &builds).map(|_| ()).unwrap_err();
        assert_eq!(refused.exit, Exit::Usage);
    }

    fn clean(twins: &[&str]) -> CleanBuild {
        let inputs = json!({
            "mlx": {"package": "mlx-cpu", "version": "0.31.2", "library_sha256": "1b"},
            "sources": [
                {"crate": "safemlx", "version": "0.1.3", "patches": [{}]},
                {"crate": "safemlx-lm", "version": "0.4.1", "patches": []},
            ],
        });
        let log = json!({"program_sha256": "aa", "compile_s": 300.4, "reused": false, "crates_unpacked": 90});
        let provenance = Provenance { digest: "d1".into(), inputs, log };
        let artifact = Artifact {
            name: "patched".into(),
            program: "/w/regraft-runner".into(),
            args: vec![],
            env: std::collections::BTreeMap::new(),
            provenance,
        };
        let twin = |sha256: &&str| Twin { folder: "/w/before".into(), program_sha256: (*sha256).to_owned() };
        CleanBuild {
            artifact,
            folder: "/w".into(),
            program_sha256: "aa".into(),
            twins: twins.iter().map(twin).collect(),
        }
    }

    #[test]
    fn a_clean_build_says_what_it_is_made_of_and_whether_it_repeats_an_earlier_one() {
        let clean = clean(&["aa", "bb"]);
        let document = BuildDocument::new(&clean.artifact, Some(&clean));
        assert_eq!(document.reproduced, Some(false));
        insta::assert_snapshot!(document.text(), @"
        build     patched
        digest    d1
        program   /w/regraft-runner
        sha-256   aa
        mlx       mlx-cpu 0.31.2, library 1b
        crate     safemlx 0.1.3, one patch
        crate     safemlx-lm 0.4.1, as released
        how       compiled in 300 s, nothing reused: 90 crates unpacked, checked against the lock, no network
        compared  the same program as in /w/before
        compared  ANOTHER program as in /w/before
        ");
    }

    #[test]
    fn suites_are_told_with_their_figures_and_the_names_of_what_fails() {
        let clean = clean(&[]);
        let mut document = BuildDocument::new(&clean.artifact, Some(&clean));
        document.inputs["git"] = json!({"commit": "4e53c5ecd7cbd91c0dfd0992a3c731ca2c36e9c7"});
        document.inputs["sources"] = json!([{"crate": "safemlx", "version": "0.1.3", "folder": "safemlx"}]);
        let suite = |value| serde_json::from_value::<Suite>(value).unwrap();
        document.suites = Some(vec![
            suite(json!({
                "name": "safemlx 0.1.3", "kind": "cargo", "status": "failed", "passed": 210, "failed": 1, "ignored": 2,
                "failing": ["ops::tests::qqmm"], "why": "", "took_s": 61.2, "log": "/w/safemlx.log",
            })),
            suite(json!({
                "name": "MLX", "kind": "doctest", "status": "not-applicable", "passed": 0, "failed": 0, "ignored": 0,
                "failing": [], "why": "not compiled here", "took_s": 0.0, "log": null,
            })),
        ]);
        insta::assert_snapshot!(document.text(), @"
        build     patched
        digest    d1
        program   /w/regraft-runner
        sha-256   aa
        mlx       mlx-cpu 0.31.2, library 1b
        crate     safemlx 0.1.3, of the git revision 4e53c5ecd
        how       compiled in 300 s, nothing reused: 90 crates unpacked, checked against the lock, no network
        tests     safemlx 0.1.3: 210 passed, 1 failed, 2 ignored, 61 s
                    failed: ops::tests::qqmm
                    log: /w/safemlx.log
        tests     MLX: not run: not compiled here
        ");
    }

    #[test]
    fn without_an_earlier_build_nothing_is_said_about_repeating() {
        let first = clean(&[]);
        assert_eq!(BuildDocument::new(&first.artifact, Some(&first)).reproduced, None);
        let second = clean(&["aa"]);
        assert_eq!(BuildDocument::new(&second.artifact, Some(&second)).reproduced, Some(true));
    }
}
