//! `metallib`: what is in a Metal library, may it be shipped, how does it differ, which release is it?

use std::{
    fmt::Write,
    fs,
    path::{Path, PathBuf},
};

use harness::{
    build::metal::{MetalError, ask_here, compile_library, find_tools},
    build::metallib::{
        LibraryFile, MetallibError,
        audit::{Audit, AuditSeverity, Wanted, audit, parse_kernel_list},
        diff::{Diff, diff},
        identify::{Identity, Likeness, ReleaseTable, identify, measure},
        list,
        sources::{Kernels, Setting, SourcesError, expected_kernels},
    },
    build::{Layout, official_metallib, provision},
    config::{load_builds, load_matrix},
    event::EventSink,
    matrix::{
        Backend, expand_cells,
        touched::{Touched, touched},
    },
    tools::{
        disk,
        file::{self, Most},
    },
};
use serde::Serialize;
use serde_json::Value;

use crate::{
    cli::{
        Format, MetallibAuditArgs, MetallibCommand, MetallibCompileArgs, MetallibDiffArgs, MetallibFetchArgs,
        MetallibFileArgs, MetallibLearnArgs,
    },
    exit::{Exit, Failure, exit_of_read},
    output::{Document, print_text, printable},
};

/// Where the table of known releases lies in the checkout.
const TABLE: &str = "harness/src/build/metallib/releases.json";

/// Runs the subcommand that was asked for.
pub(crate) fn run(root: &Path, command: MetallibCommand, events: &dyn EventSink) -> Result<Exit, Failure> {
    match command {
        MetallibCommand::List(args) => run_list(args),
        MetallibCommand::Audit(args) => run_audit(args),
        MetallibCommand::Diff(args) => run_diff(root, args),
        MetallibCommand::Compile(args) => run_compile(args),
        MetallibCommand::Identify(args) => run_identify(args),
        MetallibCommand::Fetch(args) => run_fetch(root, &args, events),
        MetallibCommand::Learn(args) => run_learn(root, args),
    }
}

fn run_list(args: MetallibFileArgs) -> Result<Exit, Failure> {
    let file = LibraryFile::open(&args.file)?;
    let content = list(&file.parse()?);
    match args.format {
        Format::Json => {
            Document::new("metallib-list", 1, OfFile { file: shown(&args.file), content }).print()?
        }
        Format::Text => print_text(&list_text(&args.file, &content))?,
    }
    Ok(Exit::Pass)
}

fn run_audit(args: MetallibAuditArgs) -> Result<Exit, Failure> {
    let file = LibraryFile::open(&args.file)?;
    let library = file.parse()?;
    let kernels = match (&args.expect, &args.sources) {
        (Some(list), _) => Some(read_kernel_list(list)?),
        (None, Some(root)) => {
            let when = if args.jit { Kernels::JustInTime } else { Kernels::AheadOfTime };
            Some(expected_kernels(root, &Setting::of(&library, when))?)
        }
        (None, None) => None,
    };
    let wanted = Wanted { deployment_target: args.deployment_target, kernels };
    let content = audit(&library, &wanted);
    let exit = if content.passes() { Exit::Pass } else { Exit::Found };
    match args.format {
        Format::Json => {
            let passes = content.passes();
            let content = AuditDocument { passes, audit: content };
            Document::new("metallib-audit", 1, OfFile { file: shown(&args.file), content }).print()?;
        }
        Format::Text => print_text(&audit_text(&args.file, &content))?,
    }
    Ok(exit)
}

fn run_compile(args: MetallibCompileArgs) -> Result<Exit, Failure> {
    let when = if args.jit { Kernels::JustInTime } else { Kernels::AheadOfTime };
    let tools = find_tools(ask_here)?;
    let compiled = compile_library(&args.sources, &tools, args.deployment_target, when, &args.out)?;
    match args.format {
        Format::Json => Document::new("metallib-compile", 1, compiled).print()?,
        Format::Text => {
            let mut text = String::new();
            let tools = &compiled.tools;
            line(&mut text, &format!("{}: {} kernels", compiled.path.display(), compiled.kernels));
            line(&mut text, &format!("  for macOS {} and later", compiled.target));
            line(
                &mut text,
                &format!("  by {}, {}, SDK {}", tools.compiler.display(), tools.version, tools.sdk),
            );
            print_text(&text)?;
        }
    }
    Ok(Exit::Pass)
}

fn run_fetch(root: &Path, args: &MetallibFetchArgs, events: &dyn EventSink) -> Result<Exit, Failure> {
    let layout = Layout::of_repository(root);
    let toolbox = provision(&layout, events)?;
    let file = official_metallib(&args.release, args.macos, &layout, &toolbox, events)?;
    match args.format {
        Format::Json => {
            let content = Fetched { release: &args.release, macos: args.macos };
            Document::new("metallib-fetch", 1, OfFile { file: shown(&file), content }).print()?;
        }
        Format::Text => print_text(&format!("{}\n", file.display()))?,
    }
    Ok(Exit::Pass)
}

#[derive(Serialize)]
struct Fetched<'a> {
    release: &'a str,
    macos: u16,
}

impl From<MetalError> for Failure {
    fn from(error: MetalError) -> Self {
        let exit = match error {
            MetalError::Refused { .. } => Exit::Found,
            MetalError::NoTarget | MetalError::TooNew { .. } | MetalError::NoWheel { .. } => Exit::Usage,
            MetalError::Sources(SourcesError::Read { .. } | SourcesError::NoKernels { .. }) => Exit::Usage,
            _ => Exit::Tool,
        };
        let hint = error.hint();
        Self::new(exit, error, hint)
    }
}

fn run_diff(root: &Path, args: MetallibDiffArgs) -> Result<Exit, Failure> {
    let (from, to) = (LibraryFile::open(&args.from)?, LibraryFile::open(&args.to)?);
    let content = diff(&from.parse()?, &to.parse()?);
    let touched = match &args.matrix {
        Some(name) => {
            let matrix = load_matrix(root, name, &load_builds(root)?)?;
            // Whatever this machine can run: the question is what a Mac has to look at.
            let plan = expand_cells(&matrix, &[Backend::Metal]);
            let changed = content.families.iter().filter(|(_, counts)| counts.is_touched());
            Some(TouchedDocument::new(&matrix.name, touched(&plan, changed.map(|(name, _)| name.as_str()))))
        }
        None => None,
    };
    match args.format {
        Format::Json => {
            let document =
                DiffDocument { from: shown(&args.from), to: shown(&args.to), content: &content, touched };
            Document::new("metallib-diff", 1, document).print()?;
        }
        Format::Text => {
            let cells = touched.map_or_else(String::new, |touched| touched.text());
            print_text(&(diff_text(&args.from, &args.to, &content) + &cells))?;
        }
    }
    Ok(Exit::Pass)
}

fn run_identify(args: MetallibFileArgs) -> Result<Exit, Failure> {
    let file = LibraryFile::open(&args.file)?;
    let content = identify(&file.parse()?, &ReleaseTable::carried());
    match args.format {
        Format::Json => {
            Document::new("metallib-identify", 1, OfFile { file: shown(&args.file), content: &content })
                .print()?;
        }
        Format::Text => print_text(&identity_text(&args.file, &content))?,
    }
    Ok(if content.verdict == Likeness::Unknown { Exit::Found } else { Exit::Pass })
}

fn run_learn(root: &Path, args: MetallibLearnArgs) -> Result<Exit, Failure> {
    let path = args.table.unwrap_or_else(|| root.join(TABLE));
    let file = LibraryFile::open(&args.file)?;
    let release = measure(&args.release, args.macos, &file.parse()?);
    let text =
        file::text(&path, Most::Configuration).map_err(|error| unreadable("release table", &path, &error))?;
    let mut table = ReleaseTable::from_json(&text).map_err(|error| {
        let hint = "restore the file from the repository's history".to_owned();
        Failure::new(
            Exit::Usage,
            format!("cannot read release table {}: {error}", path.display()),
            Some(hint),
        )
    })?;
    let title = release.title();
    table.learn(release);
    replace(&path, &table.to_json())?;
    print_text(&format!("{title}: measured, {} releases known\n", table.releases.len()))?;
    Ok(Exit::Pass)
}

impl From<MetallibError> for Failure {
    fn from(error: MetallibError) -> Self {
        let exit = match &error {
            MetallibError::Read { source, .. } => exit_of_read(source),
            // A damaged library is what an audit is there to find; any other file is a mistake on the command line.
            error if error.is_damage() => Exit::Found,
            MetallibError::Parse { .. } => Exit::Usage,
        };
        let hint = error.hint().to_owned();
        Self::new(exit, error, Some(hint))
    }
}

#[derive(Serialize)]
struct OfFile<T> {
    file: String,
    #[serde(flatten)]
    content: T,
}

#[derive(Serialize)]
struct AuditDocument {
    passes: bool,
    #[serde(flatten)]
    audit: Audit,
}

impl From<SourcesError> for Failure {
    fn from(error: SourcesError) -> Self {
        let exit = match error {
            SourcesError::Preprocess { .. } => Exit::Tool,
            SourcesError::Read { .. } | SourcesError::NoKernels { .. } => Exit::Usage,
        };
        let hint = error.hint();
        Self::new(exit, error, hint)
    }
}

#[derive(Serialize)]
struct DiffDocument<'d> {
    from: String,
    to: String,
    #[serde(flatten)]
    content: &'d Diff,
    #[serde(skip_serializing_if = "Option::is_none")]
    touched: Option<TouchedDocument>,
}

fn shown(path: &Path) -> String {
    path.display().to_string()
}

fn read_kernel_list(path: &Path) -> Result<std::collections::BTreeSet<String>, Failure> {
    let text =
        file::text(path, Most::Configuration).map_err(|error| unreadable("kernel list", path, &error))?;
    parse_kernel_list(&text).map_err(|why| {
        let hint =
            "give one kernel name a line, as `metallib list` shows them; `#` begins a comment".to_owned();
        Failure::new(Exit::Usage, format!("cannot read kernel list {}: {why}", path.display()), Some(hint))
    })
}

fn unreadable(what: &str, path: &Path, error: &std::io::Error) -> Failure {
    let hint = disk::hint(error)
        .unwrap_or_else(|| "check the path and that the file is readable UTF-8 text".to_owned());
    Failure::new(exit_of_read(error), format!("cannot read {what} {}: {error}", path.display()), Some(hint))
}

/// Replaces a file by rename, so that a run killed half-way leaves the old one.
fn replace(path: &Path, text: &str) -> Result<(), Failure> {
    let beside: PathBuf = path.with_extension("json.new");
    fs::write(&beside, text).and_then(|()| fs::rename(&beside, path)).map_err(|error| {
        let hint = "check the folder's permissions and the free space".to_owned();
        Failure::new(Exit::Tool, format!("cannot write {}: {error}", path.display()), Some(hint))
    })
}

fn list_text(file: &Path, list: &Value) -> String {
    let mut text = header_lines(file, &list["header"], &list["toolchains"]);
    match list["hash_mismatches"].as_u64() {
        Some(0) => line(&mut text, "  every function has the hash that the library states"),
        wrong => line(
            &mut text,
            &format!("  {} functions do not have their stated hash", wrong.unwrap_or_default()),
        ),
    }
    line(&mut text, "\nfunctions by family:");
    for (family, count) in list["families"].as_object().into_iter().flatten() {
        line(&mut text, &format!("  {count:>6}  {family}"));
    }
    line(&mut text, "\nkind, AIR, MSL, bytes of bitcode, hash, name:");
    for function in list["functions"].as_array().into_iter().flatten() {
        let word = |key: &str| function[key].as_str().unwrap_or_default();
        let hash = if function["hash_ok"] == true { &word("hash")[..16] } else { "WRONG HASH      " };
        line(
            &mut text,
            &format!(
                "  {}  {}  {}  {:>6}  {hash}  {}",
                word("kind"),
                word("air"),
                word("msl"),
                function["bitcode_bytes"].as_u64().unwrap_or_default(),
                word("name")
            ),
        );
    }
    text
}

fn header_lines(file: &Path, header: &Value, toolchains: &Value) -> String {
    let word = |key: &str| header[key].as_str().unwrap_or_default();
    let mut text = String::new();
    line(
        &mut text,
        &format!(
            "{}: {} functions, format {}, {} {} and later, {} bytes",
            file.display(),
            header["functions"],
            word("format"),
            word("platform"),
            word("os_floor"),
            header["size_bytes"]
        ),
    );
    for toolchain in toolchains.as_array().into_iter().flatten() {
        let word = |key: &str| toolchain[key].as_str().unwrap_or("unknown");
        line(
            &mut text,
            &format!(
                "  compiled by {}, SDK {}, for {}: {} functions",
                word("compiler"),
                word("sdk"),
                word("target"),
                toolchain["functions"]
            ),
        );
    }
    text
}

fn audit_text(file: &Path, audit: &Audit) -> String {
    let toolchains = Value::from(audit.toolchains.clone());
    let mut text = header_lines(file, &audit.header, &toolchains);
    line(&mut text, &format!("  {} hashes checked", audit.hashes_checked));
    match audit.kernels_wanted {
        Some(count) => line(&mut text, &format!("  {count} wanted kernels looked for")),
        None => line(&mut text, "  completeness not checked (--expect names the kernels wanted)"),
    }
    for finding in &audit.findings {
        let severity = match finding.severity {
            AuditSeverity::Error => "error",
            AuditSeverity::Warning => "warning",
        };
        line(&mut text, &format!("{severity}: {} [{}]", finding.message, finding.code));
        name_lines(&mut text, &finding.functions, SHOWN_PER_FINDING);
    }
    line(&mut text, if audit.passes() { "pass" } else { "fail" });
    text
}

fn diff_text(from: &Path, to: &Path, diff: &Diff) -> String {
    let mut text = String::new();
    line(&mut text, &format!("{} → {}", from.display(), to.display()));
    for (count, what) in [
        (diff.added.len(), "added"),
        (diff.removed.len(), "removed"),
        (diff.changed.len(), "changed in meaning"),
        (diff.metadata_only, "changed in metadata only"),
        (diff.identical, "bit-equal"),
    ] {
        line(&mut text, &format!("  {count:>6}  {what}"));
    }
    line(&mut text, &format!("rule {}: {}", diff.rule.name, diff.rule.text));
    let touched: Vec<_> = diff.families.iter().filter(|(_, counts)| counts.is_touched()).collect();
    if touched.is_empty() {
        line(&mut text, "no family changed");
    } else {
        line(&mut text, "families that changed (added, removed, changed of all):");
        for (family, c) in touched {
            let all = c.added + c.removed + c.changed + c.metadata_only + c.identical;
            line(
                &mut text,
                &format!("  {:>6} {:>6} {:>6} of {all:>6}  {family}", c.added, c.removed, c.changed),
            );
        }
    }
    for (names, what) in [(&diff.added, "added"), (&diff.removed, "removed"), (&diff.changed, "changed")] {
        if !names.is_empty() {
            line(&mut text, &format!("{what}:"));
            name_lines(&mut text, names, usize::MAX);
        }
    }
    text
}

/// What a diff means for a matrix.
#[derive(Serialize)]
struct TouchedDocument {
    matrix: String,
    cells: Vec<TouchedCell>,
    /// Changed families that no cell runs.
    unseen: Vec<String>,
}

#[derive(Serialize)]
struct TouchedCell {
    id: String,
    families: Vec<String>,
}

impl TouchedDocument {
    fn new(matrix: &str, touched: Touched) -> Self {
        let cell = |(id, families): (harness::matrix::CellId, Vec<String>)| TouchedCell {
            id: id.to_string(),
            families,
        };
        Self {
            matrix: matrix.to_owned(),
            cells: touched.cells.into_iter().map(cell).collect(),
            unseen: touched.unseen,
        }
    }

    fn text(&self) -> String {
        let mut text = String::new();
        line(
            &mut text,
            &format!("cells of matrix {} that run what changed: {}", self.matrix, self.cells.len()),
        );
        for cell in &self.cells {
            line(&mut text, &format!("  {}: {}", cell.id, cell.families.join(", ")));
        }
        if !self.unseen.is_empty() {
            line(&mut text, &format!("changed, and run by no cell of it: {}", self.unseen.join(", ")));
        }
        text
    }
}

fn identity_text(file: &Path, identity: &Identity) -> String {
    let mut text = String::new();
    line(&mut text, &format!("{}: {}", file.display(), identity.message));
    line(&mut text, "known releases, closest first (shares of names, meaning, bits; kernels more):");
    for c in &identity.candidates {
        line(
            &mut text,
            &format!(
                "  {:>5.1} %  {:>5.1} %  {:>5.1} %  {:>+6}  {}",
                c.shared_names * 100.0,
                c.same_meaning * 100.0,
                c.same_contents * 100.0,
                c.functions_more,
                c.release
            ),
        );
    }
    text
}

/// How many functions of one finding a person gets to see; `--format json` has them all.
const SHOWN_PER_FINDING: usize = 10;

fn name_lines(text: &mut String, names: &[String], at_most: usize) {
    for name in names.iter().take(at_most) {
        line(text, &format!("  {name}"));
    }
    if names.len() > at_most {
        line(text, &format!("  … and {} more (`--format json` has them all)", names.len() - at_most));
    }
}

/// Adds a line. Names come from a file that anyone may have made: they are shown without control characters.
fn line(text: &mut String, content: &str) {
    let content: Vec<String> = content.split('\n').map(printable).collect();
    writeln!(text, "{}", content.join("\n")).expect("writing to a string cannot fail");
}
