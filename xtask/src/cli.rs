//! The command line. The only file that names clap.

use std::{ffi::OsString, fs, num::NonZeroUsize, path::PathBuf};

use clap::{
    Args, Parser, Subcommand, ValueEnum,
    builder::{PathBufValueParser, TypedValueParser as _},
};
use harness::{
    build::metallib::parse::Version, judge::tier::Tier, matrix::Backend, tools::python::SUPPORTED_MINORS,
};

use crate::exit::Exit;

const EXIT_CODES: &str = "Exit codes:
  0  pass
  1  the gate failed, or a check found something
  2  the command line or a configuration file is wrong
  3  a conflict waits for a person
  4  inconclusive: too noisy, not comparable, or a cell was skipped
  5  a tool, the network or a disk failed
  130  interrupted; the same command goes on from what is on disk; a gate runs its cells anew";

/// Keeps pinned forks of MLX and its wrappers rebased, small, and proven before a pin moves.
#[derive(Debug, Parser)]
#[command(name = "cargo xtask", bin_name = "cargo xtask", version, after_help = EXIT_CODES, max_term_width = 110)]
pub(crate) struct Cli {
    /// The checkout to work in, instead of the one around the working directory.
    #[arg(long, global = true, hide = true, value_name = "DIR")]
    pub(crate) root: Option<PathBuf>,
    /// What to do.
    #[command(subcommand)]
    pub(crate) command: Command,
}

/// What to do.
#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Say whether a build may become the pin: build it, run models through it, compare it with the pinned build and a
    /// reference.
    Gate(GateArgs),
    /// Build what a `[[build]]` describes, and say what it is made of and where its program lies; with --bundle, put it into a
    /// folder that runs on a bare GPU machine.
    Build(BuildArgs),
    /// Run the model runner's own lints and tests against a build's crates and MLX library.
    CheckRunner {
        /// The build whose crates and library it is compiled with.
        #[arg(long, value_name = "BUILD", default_value = "patched")]
        build: String,
    },
    /// `gate` with the matrix `nightly`.
    Nightly(GateArgs),
    /// Judge a finished run again from what was seen in it, with its own thresholds or those of a matrix.
    Judge(JudgeArgs),
    /// Put faults into engines, checkpoints and texts, and say how many of them the gate sees, and how often it is wrong.
    Selftest(SelftestArgs),
    /// Run gates of a build against itself and say how much noise thresholds have to clear on this machine; exit code 1 where
    /// one of them does not pass.
    Calibrate(CalibrateArgs),
    /// List every tool that Regraft uses, with version and place, and how to get what is missing.
    Doctor {
        /// What stdout holds.
        #[arg(long, value_enum, default_value_t = Format::Text)]
        format: Format,
    },
    /// Look into Metal libraries (`mlx.metallib`), on any platform.
    #[command(subcommand)]
    Metallib(MetallibCommand),
    /// Say which exported names of two static archives collide; exit code 1 when a program that links both would have one
    /// of them twice.
    Symbols(SymbolsArgs),
    /// Rewrite a fork's consumers to plain upstream, each on a branch, once no patch is needed any more; exit code 1 and
    /// the live patches otherwise.
    DropFork(DropForkArgs),
    /// Rebase a fork's patches onto a newer upstream and export them; with --dry-run only say what becomes of every patch,
    /// and which upstream commit is in the way.
    SyncUpstream(SyncUpstreamArgs),
    /// Say of every patch of a fork whether it is still needed, with proof, and what to do with it.
    PatchReport(PatchReportArgs),
    /// Put two finished runs side by side; refused with exit code 4 where their machines or profiles differ.
    Compare(CompareArgs),
    /// Tell at which nights a figure of speed or memory changed its level; advice only, no verdict looks at it.
    History {
        /// The folder of the reports [default: `reports` in the checkout].
        #[arg(long, value_name = "DIR")]
        report_dir: Option<PathBuf>,
    },
}

/// Options of `gate` and `nightly`.
#[derive(Debug, Args)]
pub(crate) struct GateArgs {
    /// A matrix by its name below `matrices/`, or the path of a matrix file [default: smoke; for `nightly`: nightly].
    #[arg(long, value_name = "NAME|PATH")]
    pub(crate) matrix: Option<String>,
    /// The build that wants to become the pin, instead of the matrix's.
    #[arg(long, value_name = "BUILD")]
    pub(crate) candidate: Option<String>,
    /// The build that is pinned now, instead of the matrix's.
    #[arg(long, value_name = "BUILD")]
    pub(crate) baseline: Option<String>,
    /// Run only cells whose name contains this or, with `*` or `?`, matches it as a whole; repeat for more.
    #[arg(long, value_name = "PATTERN", value_parser = clap::builder::NonEmptyStringValueParser::new())]
    pub(crate) filter: Vec<String>,
    /// List the cells and whether each would run; run nothing.
    #[arg(long)]
    pub(crate) plan: bool,
    /// Where repositories come from.
    #[command(flatten)]
    pub(crate) mirrors: MirrorArgs,
    /// Run nothing more after the first cell that fails; the report says what was skipped.
    #[arg(long, conflicts_with = "plan")]
    pub(crate) fail_fast: bool,
    /// What stdout holds.
    #[arg(long, value_enum, default_value_t = Format::Text)]
    pub(crate) format: Format,
    /// Where the run's folder is made [default: reports/ in the checkout].
    #[arg(long, value_name = "DIR", conflicts_with = "plan")]
    pub(crate) report_dir: Option<PathBuf>,
    /// Take engines, models and matrices from this bundle, and build nothing; its script `run` says this.
    #[arg(long, value_name = "DIR")]
    pub(crate) bundle: Option<PathBuf>,
    /// A variable of the candidate's processes alone, by which the gate is tried: REGRAFT_INJECT=slow=0.1 slows a runner down;
    /// repeat for more.
    #[arg(long, value_name = "NAME=VALUE", hide = true, value_parser = name_and_value)]
    pub(crate) candidate_env: Vec<(String, String)>,
}

fn name_and_value(text: &str) -> Result<(String, String), String> {
    let (name, value) = text.split_once('=').ok_or("it is not of the form NAME=VALUE")?;
    Ok((name.to_owned(), value.to_owned()))
}

/// Where repositories come from.
#[derive(Debug, Args)]
pub(crate) struct MirrorArgs {
    /// Read repositories from local mirrors below DIR (`owner+name/repo`, `owner+name` or `owner/name.git`) instead of
    /// fetching them.
    #[arg(long, value_name = "DIR", value_parser = PathBufValueParser::new().try_map(folder))]
    pub(crate) mirror_root: Option<PathBuf>,
}

/// A folder that is there: a mistyped one would be found out only where a repository is first read.
fn folder(path: PathBuf) -> Result<PathBuf, String> {
    match fs::metadata(&path) {
        Ok(it) if it.is_dir() => Ok(path),
        Ok(_) => Err("it is not a folder".to_owned()),
        Err(error) => Err(error.to_string()),
    }
}

fn python_minor(text: &str) -> Result<String, String> {
    let minor = text.strip_prefix("3.").filter(|minor| minor.chars().all(|c| c.is_ascii_digit()));
    match minor.and_then(|minor| minor.parse().ok()).filter(|minor| SUPPORTED_MINORS.contains(minor)) {
        Some(minor) => Ok(format!("3.{minor}")),
        None => Err(format!(
            "the reference runs in CPython 3.{} to 3.{}",
            SUPPORTED_MINORS.start(),
            SUPPORTED_MINORS.end()
        )),
    }
}

/// Options of a bundle.
#[derive(Debug, Args)]
pub(crate) struct BundleArgs {
    /// Make this folder: engines with the CUDA library of their MLX, the reference, models, matrices and a start script.
    #[arg(long, value_name = "DIR")]
    pub(crate) bundle: Option<PathBuf>,
    /// Another build to carry; repeat for more.
    #[arg(long, value_name = "BUILD", requires = "bundle")]
    pub(crate) with: Vec<String>,
    /// A runner that was built by other means, to be bundled under a name; repeat for more.
    #[arg(long, value_name = "NAME=FILE", requires = "bundle", value_parser = name_and_value)]
    pub(crate) runner: Vec<(String, String)>,
    /// Carry this matrix and what its models are made from; repeat for more.
    #[arg(long, value_name = "NAME|PATH", requires = "bundle", default_value = "smoke")]
    pub(crate) matrix: Vec<String>,
    /// The CPython of the machine that the bundle is for; the reference runs in it.
    #[arg(long, value_name = "3.N", requires = "bundle", default_value = "3.12", value_parser = python_minor)]
    pub(crate) python: String,
    /// Also pack the bundle into checksummed pieces of at most this many MiB, in the folder DIR.pieces.
    #[arg(long, value_name = "MIB", requires = "bundle", value_parser = clap::value_parser!(u64).range(1..=1 << 20))]
    pub(crate) piece_size: Option<u64>,
}

/// Options of `build`.
#[derive(Debug, Args)]
pub(crate) struct BuildArgs {
    /// The build, by its name in `matrices/builds.toml`.
    #[arg(long, value_name = "BUILD")]
    pub(crate) build: String,
    /// Build in a new folder and reuse nothing; exit code 1 when an earlier clean build of the same recipe made another
    /// program.
    #[arg(long)]
    pub(crate) clean: bool,
    /// What it is to run on [default: whatever this system's official MLX library runs on].
    #[arg(long, value_enum)]
    pub(crate) backend: Option<BuildBackend>,
    /// With `--backend metal`: MLX's sources, whose Metal library is compiled [default: those of the MLX release that the
    /// build links to].
    #[arg(long, value_name = "DIR", requires = "backend")]
    pub(crate) mlx_sources: Option<PathBuf>,
    /// With `--backend metal`: the oldest macOS that the Metal library is for [default: that of the official library].
    #[arg(long, value_name = "VERSION", requires = "backend")]
    pub(crate) deployment_target: Option<Version>,
    /// Also run the test suites of the build's crates, from the same sources against the same MLX; exit code 1 when one
    /// fails.
    #[arg(long)]
    pub(crate) upstream_tests: bool,
    /// Where repositories come from.
    #[command(flatten)]
    pub(crate) mirrors: MirrorArgs,
    /// What stdout holds.
    #[arg(long, value_enum, default_value_t = Format::Text)]
    pub(crate) format: Format,
    /// What goes into a bundle, where one is wanted.
    #[command(flatten)]
    pub(crate) bundle: BundleArgs,
}

/// What a build is to run on.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum BuildBackend {
    /// The CPU, on every system.
    Cpu,
    /// Apple's GPUs, on macOS.
    Metal,
    /// NVIDIA's GPUs: a bundle for another machine.
    Cuda,
}

impl From<BuildBackend> for Backend {
    fn from(backend: BuildBackend) -> Self {
        match backend {
            BuildBackend::Cpu => Self::Cpu,
            BuildBackend::Metal => Self::Metal,
            BuildBackend::Cuda => Self::Cuda,
        }
    }
}

/// Options of `judge`.
#[derive(Debug, Args)]
pub(crate) struct JudgeArgs {
    /// The run's folder, or its report.json.
    #[arg(value_name = "REPORT")]
    pub(crate) report: PathBuf,
    /// Take the thresholds of this matrix instead of those of the run.
    #[arg(long, value_name = "NAME|PATH")]
    pub(crate) matrix: Option<String>,
    /// What stdout holds.
    #[arg(long, value_enum, default_value_t = Format::Text)]
    pub(crate) format: Format,
}

/// Options of `selftest`.
#[derive(Debug, Args)]
pub(crate) struct SelftestArgs {
    /// One checkpoint a kind of fault, and a tenth of the texts.
    #[arg(long)]
    pub(crate) quick: bool,
    /// Leave a tier of the judge out, to see what it is needed for: hard, text, logits, greedy, free-text or tasks; repeat
    /// for more.
    #[arg(long, value_name = "TIER")]
    pub(crate) without: Vec<Tier>,
    /// Only kinds of faults and changes whose name contains this.
    #[arg(long, value_name = "PART")]
    pub(crate) only: Option<String>,
    /// Take the thresholds of this matrix.
    #[arg(long, value_name = "NAME|PATH", default_value = "smoke")]
    pub(crate) matrix: String,
    /// What stdout holds.
    #[arg(long, value_enum, default_value_t = Format::Text)]
    pub(crate) format: Format,
}

/// Options of `calibrate`.
#[derive(Debug, Args)]
pub(crate) struct CalibrateArgs {
    /// The build [default: the matrix's candidate].
    #[arg(long, value_name = "BUILD")]
    pub(crate) build: Option<String>,
    /// The matrix whose cells are run.
    #[arg(long, value_name = "NAME|PATH", default_value = "smoke")]
    pub(crate) matrix: String,
    /// Only cells whose name contains this or, with `*` or `?`, matches it as a whole; repeat for more.
    #[arg(long, value_name = "PATTERN", default_value = "logits")]
    pub(crate) filter: Vec<String>,
    /// How many gates.
    #[arg(long, value_name = "N", default_value = "1")]
    pub(crate) gates: NonZeroUsize,
    /// What stdout holds.
    #[arg(long, value_enum, default_value_t = Format::Text)]
    pub(crate) format: Format,
}

/// What to do with Metal libraries.
#[derive(Debug, Subcommand)]
pub(crate) enum MetallibCommand {
    /// Show header, compiler and SDK, and every function with its versions and a check of its hash.
    List(MetallibFileArgs),
    /// Say whether a library is whole, complete and loads where it should; exit code 1 when it must not be shipped.
    Audit(MetallibAuditArgs),
    /// Show what was added, removed and changed in meaning from one library to another, by kernel family.
    Diff(MetallibDiffArgs),
    /// Compile the library of MLX's sources, on a Mac, and audit it.
    Compile(MetallibCompileArgs),
    /// Say which official release a library is, or is closest to; exit code 1 when it is like none.
    Identify(MetallibFileArgs),
    /// Download the library of an official release, checked against the lock, and print where it lies.
    Fetch(MetallibFetchArgs),
    /// Measure the library of an official wheel and put it into the table that `identify` reads.
    Learn(MetallibLearnArgs),
}

/// Options of `metallib fetch`.
#[derive(Debug, Args)]
pub(crate) struct MetallibFetchArgs {
    /// The version of the `mlx-metal` package, one that `harness/provision/wheels.lock` names.
    #[arg(value_name = "RELEASE")]
    pub(crate) release: String,
    /// The macOS version in the wheel's platform tag.
    #[arg(long, value_name = "N", default_value_t = 14)]
    pub(crate) macos: u16,
    /// What stdout holds.
    #[arg(long, value_enum, default_value_t = Format::Text)]
    pub(crate) format: Format,
}

/// Options of `symbols`.
#[derive(Debug, Args)]
pub(crate) struct SymbolsArgs {
    /// An archive, such as `libmlx.a` or `libgguflib.a`.
    #[arg(value_name = "A.a")]
    pub(crate) first: PathBuf,
    /// The archive that is linked into the same program.
    #[arg(value_name = "B.a")]
    pub(crate) second: PathBuf,
    /// What stdout holds.
    #[arg(long, value_enum, default_value_t = Format::Text)]
    pub(crate) format: Format,
}

/// Options of `metallib list` and `metallib identify`.
#[derive(Debug, Args)]
pub(crate) struct MetallibFileArgs {
    /// The library.
    #[arg(value_name = "FILE")]
    pub(crate) file: PathBuf,
    /// What stdout holds.
    #[arg(long, value_enum, default_value_t = Format::Text)]
    pub(crate) format: Format,
}

/// Options of `metallib audit`.
#[derive(Debug, Args)]
pub(crate) struct MetallibAuditArgs {
    /// The library.
    #[arg(value_name = "FILE")]
    pub(crate) file: PathBuf,
    /// The oldest macOS that the library must load on, such as 14.0.
    #[arg(long, value_name = "VERSION")]
    pub(crate) deployment_target: Option<Version>,
    /// A file that names the kernels that the library must hold, one a line.
    #[arg(long, value_name = "FILE")]
    pub(crate) expect: Option<PathBuf>,
    /// The root of MLX's sources: the library must hold every kernel that they instantiate for its target and SDK.
    #[arg(long, value_name = "DIR", conflicts_with = "expect")]
    pub(crate) sources: Option<PathBuf>,
    /// The library is of a build that compiles most kernels at run time (`MLX_METAL_JIT`).
    #[arg(long, requires = "sources")]
    pub(crate) jit: bool,
    /// What stdout holds.
    #[arg(long, value_enum, default_value_t = Format::Text)]
    pub(crate) format: Format,
}

/// Options of `metallib compile`.
#[derive(Debug, Args)]
pub(crate) struct MetallibCompileArgs {
    /// The root of MLX's sources.
    #[arg(long, value_name = "DIR")]
    pub(crate) sources: PathBuf,
    /// The oldest macOS that the library must load on; never taken from this machine.
    #[arg(long, value_name = "VERSION")]
    pub(crate) deployment_target: Version,
    /// Leave to run time what MLX compiles then (`MLX_METAL_JIT`).
    #[arg(long)]
    pub(crate) jit: bool,
    /// Where the library goes: beside the program that loads it.
    #[arg(long, value_name = "FILE")]
    pub(crate) out: PathBuf,
    /// What stdout holds.
    #[arg(long, value_enum, default_value_t = Format::Text)]
    pub(crate) format: Format,
}

/// Options of `metallib diff`.
#[derive(Debug, Args)]
pub(crate) struct MetallibDiffArgs {
    /// The library to start from.
    #[arg(value_name = "FROM")]
    pub(crate) from: PathBuf,
    /// The library to compare it with.
    #[arg(value_name = "TO")]
    pub(crate) to: PathBuf,
    /// Also say which cells of this matrix run what changed, and what it cannot see.
    #[arg(long, value_name = "NAME|PATH")]
    pub(crate) matrix: Option<String>,
    /// What stdout holds.
    #[arg(long, value_enum, default_value_t = Format::Text)]
    pub(crate) format: Format,
}

/// Options of `metallib learn`.
#[derive(Debug, Args)]
pub(crate) struct MetallibLearnArgs {
    /// The library: `mlx/lib/mlx.metallib` of the wheel.
    #[arg(value_name = "FILE")]
    pub(crate) file: PathBuf,
    /// The version of the `mlx-metal` package.
    #[arg(long, value_name = "VERSION")]
    pub(crate) release: String,
    /// The macOS version in the wheel's platform tag, such as 14.
    #[arg(long, value_name = "N")]
    pub(crate) macos: u16,
    /// The table to write, instead of the one that the checkout carries.
    #[arg(long, value_name = "FILE")]
    pub(crate) table: Option<PathBuf>,
}

/// Options of `sync-upstream`.
#[derive(Debug, Args)]
pub(crate) struct SyncUpstreamArgs {
    /// Forks by their names below `patches/`; what a fork builds on comes first, whatever the order here.
    #[arg(required_unless_present = "all", value_name = "FORK")]
    pub(crate) forks: Vec<String>,
    /// Every fork below `patches/`.
    #[arg(long, conflicts_with = "forks")]
    pub(crate) all: bool,
    /// The upstream commit to go to: a tag, a branch, a commit, `base`, `latest` (the branch's newest commit),
    /// `latest-tag`, or `frontier` (the newest commit that takes the whole stack without a conflict) [default: where the
    /// unfinished rebase goes, else latest].
    #[arg(long, value_name = "TARGET")]
    pub(crate) onto: Option<String>,
    /// Forecast only; change nothing.
    #[arg(long)]
    pub(crate) dry_run: bool,
    /// Take the files in the work tree as resolved and go on with the rebase that waits.
    #[arg(long, group = "next", conflicts_with = "dry_run")]
    pub(crate) r#continue: bool,
    /// Leave out the patch that waits and go on.
    #[arg(long, group = "next", conflicts_with = "dry_run")]
    pub(crate) skip: bool,
    /// Give the rebase that waits up; what stands in its work tree is kept under a ref of the cache.
    #[arg(long, group = "next", conflicts_with = "dry_run")]
    pub(crate) abort: bool,
    /// Export the stack although patches that merged by themselves changed in meaning: somebody has looked.
    #[arg(long, conflicts_with_all = ["dry_run", "abort"])]
    pub(crate) accept_meaning: bool,
    /// Take over the resolutions that `git rerere` recorded (`.git/rr-cache`) before anything else.
    #[arg(long, value_name = "DIR", conflicts_with_all = ["dry_run", "abort"])]
    pub(crate) import_rr_cache: Option<PathBuf>,
    /// Push each result to the branch in fork.toml's [push], with a lease; the old head is kept on the remote.
    #[arg(long, conflicts_with_all = ["dry_run", "abort"])]
    pub(crate) push: bool,
    /// Push what no gate has passed; the report says so.
    #[arg(long, requires = "push")]
    pub(crate) unvalidated: bool,
    /// Move the pins of every consumer in fork.toml, each on a branch `regraft/pins` of the consumer.
    #[arg(long, conflicts_with_all = ["dry_run", "abort"])]
    pub(crate) update_pins: bool,
    /// Do not run what fork.toml declares about consumers, their `check` commands and [[probes]], once their pins have moved.
    #[arg(long, requires = "update_pins")]
    pub(crate) no_checks: bool,
    /// Where the run's folder is made [default: reports/ in the checkout].
    #[arg(long, value_name = "DIR", conflicts_with = "dry_run")]
    pub(crate) report_dir: Option<PathBuf>,
    /// Where repositories come from.
    #[command(flatten)]
    pub(crate) mirrors: MirrorArgs,
    /// What stdout holds.
    #[arg(long, value_enum, default_value_t = Format::Text)]
    pub(crate) format: Format,
}

/// Options of `drop-fork`.
#[derive(Debug, Args)]
pub(crate) struct DropForkArgs {
    /// The fork, by its name below `patches/`.
    #[arg(value_name = "FORK")]
    pub(crate) fork: String,
    /// Give up this patch although it is needed; repeat for more.
    #[arg(long, value_name = "N")]
    pub(crate) accept_loss: Vec<usize>,
    /// The upstream commit that consumers name from then on: a tag, a branch, a commit, `latest` or `latest-tag`.
    #[arg(long, value_name = "TARGET", default_value = "latest")]
    pub(crate) onto: String,
    /// Go on although no gate has passed that upstream commit; the commits say so.
    #[arg(long)]
    pub(crate) unvalidated: bool,
    /// Where repositories come from.
    #[command(flatten)]
    pub(crate) mirrors: MirrorArgs,
    /// What stdout holds.
    #[arg(long, value_enum, default_value_t = Format::Text)]
    pub(crate) format: Format,
}

/// Options of `patch-report`.
#[derive(Debug, Args)]
pub(crate) struct PatchReportArgs {
    /// Forks by their names below `patches/` [default: all].
    #[arg(value_name = "FORK")]
    pub(crate) forks: Vec<String>,
    /// The upstream commit to judge against: a tag, a branch, a commit, `base`, `latest` (the branch's newest commit),
    /// `latest-tag`, or `frontier` (the newest commit that takes the whole stack without a conflict).
    #[arg(long, value_name = "TARGET", default_value = "latest")]
    pub(crate) onto: String,
    /// Where repositories come from.
    #[command(flatten)]
    pub(crate) mirrors: MirrorArgs,
    /// Show the whole case of the patch with this number, commit, file name or part of a subject.
    #[arg(long, value_name = "PATCH", value_parser = clap::builder::NonEmptyStringValueParser::new())]
    pub(crate) explain: Option<String>,
    /// Build and gate the stack without these patches [default: without each of them], one at a time and with what needs
    /// it; the outcomes are recorded in patches/FORK/results.json and become part of every later report.
    #[arg(long, value_name = "PATCH", num_args = 0..)]
    pub(crate) trial: Option<Vec<String>>,
    /// Run the probes that fork.toml declares for patches, and record what they show; exit code 1 when one fails.
    #[arg(long)]
    pub(crate) probes: bool,
    /// The matrix that trials and probes take their cells from; a trial leaves out those that measure speed.
    #[arg(long, value_name = "NAME|PATH", default_value = "smoke")]
    pub(crate) matrix: String,
    /// Of the matrix, only cells whose name contains this or, with `*` or `?`, matches it as a whole; repeat for more.
    #[arg(long, value_name = "PATTERN", value_parser = clap::builder::NonEmptyStringValueParser::new())]
    pub(crate) filter: Vec<String>,
    /// Where a trial's gate puts its report [default: reports/trials/ in the checkout].
    #[arg(long, value_name = "DIR")]
    pub(crate) report_dir: Option<PathBuf>,
    /// What stdout holds.
    #[arg(long, value_enum, default_value_t = ReportFormat::Text)]
    pub(crate) format: ReportFormat,
}

/// Options of `compare`.
#[derive(Debug, Args)]
pub(crate) struct CompareArgs {
    /// A run: its folder, its report.json, or the folder's name below `reports/`.
    #[arg(value_name = "RUN")]
    pub(crate) first: PathBuf,
    /// The run to put beside it.
    #[arg(value_name = "RUN")]
    pub(crate) second: PathBuf,
}

/// What stdout holds.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum ReportFormat {
    /// Text for people.
    Text,
    /// One JSON document with a versioned schema, and nothing else.
    Json,
    /// Markdown, as for a pull request.
    Markdown,
    /// One page that needs no network and no script, with the dependency graph and the frontier chart.
    Html,
}

/// What stdout holds.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum Format {
    /// Text for people.
    Text,
    /// One JSON document with a versioned schema, and nothing else.
    Json,
}

/// Reads the command line. Help, version and usage errors are printed here, and the exit to end with comes back.
pub(crate) fn parse(args: impl IntoIterator<Item = OsString>) -> Result<Cli, Exit> {
    Cli::try_parse_from(args).map_err(|error| {
        let asked_for = !error.use_stderr();
        // Nobody is left to tell when the stream is gone.
        let _ = error.print();
        if asked_for { Exit::Pass } else { Exit::Usage }
    })
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory;

    use super::*;

    fn help(path: &[&str]) -> String {
        let mut command = Cli::command().term_width(100);
        command.build();
        let mut command = &mut command;
        for name in path {
            command = command.find_subcommand_mut(name).unwrap();
        }
        command.render_help().to_string()
    }

    #[test]
    fn the_definition_is_consistent() {
        Cli::command().debug_assert();
    }

    #[test]
    fn help_shows_the_commands_and_the_exit_codes() {
        insta::assert_snapshot!(help(&[]), @"
        Keeps pinned forks of MLX and its wrappers rebased, small, and proven before a pin moves

        Usage: cargo xtask <COMMAND>

        Commands:
          gate           Say whether a build may become the pin: build it, run models through it, compare it
                         with the pinned build and a reference
          build          Build what a `[[build]]` describes, and say what it is made of and where its
                         program lies; with --bundle, put it into a folder that runs on a bare GPU machine
          check-runner   Run the model runner's own lints and tests against a build's crates and MLX library
          nightly        `gate` with the matrix `nightly`
          judge          Judge a finished run again from what was seen in it, with its own thresholds or
                         those of a matrix
          selftest       Put faults into engines, checkpoints and texts, and say how many of them the gate
                         sees, and how often it is wrong
          calibrate      Run gates of a build against itself and say how much noise thresholds have to clear
                         on this machine; exit code 1 where one of them does not pass
          doctor         List every tool that Regraft uses, with version and place, and how to get what is
                         missing
          metallib       Look into Metal libraries (`mlx.metallib`), on any platform
          symbols        Say which exported names of two static archives collide; exit code 1 when a program
                         that links both would have one of them twice
          drop-fork      Rewrite a fork's consumers to plain upstream, each on a branch, once no patch is
                         needed any more; exit code 1 and the live patches otherwise
          sync-upstream  Rebase a fork's patches onto a newer upstream and export them; with --dry-run only
                         say what becomes of every patch, and which upstream commit is in the way
          patch-report   Say of every patch of a fork whether it is still needed, with proof, and what to do
                         with it
          compare        Put two finished runs side by side; refused with exit code 4 where their machines
                         or profiles differ
          history        Tell at which nights a figure of speed or memory changed its level; advice only, no
                         verdict looks at it
          help           Print this message or the help of the given subcommand(s)

        Options:
          -h, --help     Print help
          -V, --version  Print version

        Exit codes:
          0  pass
          1  the gate failed, or a check found something
          2  the command line or a configuration file is wrong
          3  a conflict waits for a person
          4  inconclusive: too noisy, not comparable, or a cell was skipped
          5  a tool, the network or a disk failed
          130  interrupted; the same command goes on from what is on disk; a gate runs its cells anew
        ");
    }

    #[test]
    fn help_of_gate_shows_its_options() {
        insta::assert_snapshot!(help(&["gate"]), @"
        Say whether a build may become the pin: build it, run models through it, compare it with the pinned
        build and a reference

        Usage: cargo xtask gate [OPTIONS]

        Options:
              --matrix <NAME|PATH>  A matrix by its name below `matrices/`, or the path of a matrix file
                                    [default: smoke; for `nightly`: nightly]
              --candidate <BUILD>   The build that wants to become the pin, instead of the matrix's
              --baseline <BUILD>    The build that is pinned now, instead of the matrix's
              --filter <PATTERN>    Run only cells whose name contains this or, with `*` or `?`, matches it
                                    as a whole; repeat for more
              --plan                List the cells and whether each would run; run nothing
              --mirror-root <DIR>   Read repositories from local mirrors below DIR (`owner+name/repo`,
                                    `owner+name` or `owner/name.git`) instead of fetching them
              --fail-fast           Run nothing more after the first cell that fails; the report says what
                                    was skipped
              --format <FORMAT>     What stdout holds [default: text] [possible values: text, json]
              --report-dir <DIR>    Where the run's folder is made [default: reports/ in the checkout]
              --bundle <DIR>        Take engines, models and matrices from this bundle, and build nothing;
                                    its script `run` says this
          -h, --help                Print help (see more with '--help')
        ");
    }

    #[test]
    fn nightly_takes_the_options_of_gate() {
        let args =
            "cargo-xtask nightly --plan --format json --filter a --filter b".split(' ').map(OsString::from);
        let Command::Nightly(args) = parse(args).unwrap().command else { panic!("not nightly") };
        assert_eq!((args.plan, args.format, args.filter.len()), (true, Format::Json, 2));
    }
}
