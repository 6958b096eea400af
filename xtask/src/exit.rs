//! How a command ends: its exit code, and the error that a person reads.

use std::{
    error::Error,
    io::{self, Write},
    iter,
    process::ExitCode,
};

use harness::{
    build::{BuildError, ProvisionError},
    cause::{calibrate::CalibrateError, selftest::SelftestError},
    config::ConfigError,
    gate::{GateError, bundle::BundleError},
    matrix::FilterError,
    report::ReportError,
    tools::file,
};

use crate::output::printable;

/// What the process tells its caller.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Exit {
    /// All is well.
    Pass = 0,
    /// The gate failed, or a check found something.
    Found = 1,
    /// The command line or a configuration file is wrong.
    Usage = 2,
    /// A conflict waits for a person.
    Conflict = 3,
    /// Too noisy, not comparable, or a cell was skipped. Never green.
    Inconclusive = 4,
    /// A tool, the network or a disk failed.
    Tool = 5,
}

impl From<Exit> for ExitCode {
    fn from(exit: Exit) -> Self {
        Self::from(exit as u8)
    }
}

/// An error on its way to a person.
#[derive(Debug)]
pub(crate) struct Failure {
    /// The exit code that it leads to.
    pub(crate) exit: Exit,
    error: Box<dyn Error + Send + Sync>,
    hint: Option<String>,
    /// What failed beside it.
    others: Vec<Self>,
}

/// What went wrong, with the fork that it was for.
#[derive(Debug)]
struct ForkFailure<E> {
    doing: &'static str,
    name: String,
    error: E,
}

impl<E> std::fmt::Display for ForkFailure<E> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "cannot {} fork `{}`", self.doing, self.name)
    }
}

impl<E: Error + 'static> Error for ForkFailure<E> {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        Some(&self.error)
    }
}

/// Does the same with each item, whatever becomes of the others; gives what worked and, as one, what failed.
pub(crate) fn each<I, T>(
    items: impl IntoIterator<Item = I>,
    work: impl FnMut(I) -> Result<T, Failure>,
) -> (Vec<T>, Option<Failure>) {
    let (mut worked, mut failed) = (Vec::new(), None::<Failure>);
    for outcome in items.into_iter().map(work) {
        match (outcome, &mut failed) {
            (Ok(made), _) => worked.push(made),
            (Err(failure), None) => failed = Some(failure),
            (Err(failure), Some(first)) => first.others.push(failure),
        }
    }
    (worked, failed)
}

impl Failure {
    /// An error with its exit code and what a person may try.
    pub(crate) fn new(
        exit: Exit,
        error: impl Into<Box<dyn Error + Send + Sync>>,
        hint: Option<String>,
    ) -> Self {
        let error = error.into();
        let exit = if exit == Exit::Tool && is_about_a_wrong_path(&*error) { Exit::Usage } else { exit };
        Self { exit, error, hint, others: Vec::new() }
    }

    /// What went wrong while something was done with a fork: `doing` is the verb, such as `rebase`.
    pub(crate) fn of_fork(
        exit: Exit,
        doing: &'static str,
        name: &str,
        error: impl Error + Send + Sync + 'static,
        hint: Option<String>,
    ) -> Self {
        Self::new(exit, ForkFailure { doing, name: name.to_owned(), error }, hint)
    }

    /// Writes the error, its causes and the hint, then those beside it. A cause of several lines, such as all problems of a file, keeps them.
    pub(crate) fn print(&self, out: &mut dyn Write) {
        let mut text = format!("error: {}\n", indented(&self.error.to_string(), "       "));
        let mut cause = self.error.source();
        while let Some(error) = cause {
            text += &format!("  caused by: {}\n", indented(&error.to_string(), "             "));
            cause = error.source();
        }
        if let Some(hint) = &self.hint {
            text += &format!("  hint: {}\n", indented(hint, "        "));
        }
        // Nobody is left to tell when stderr is gone.
        let _ = out.write_all(text.as_bytes());
        self.others.iter().for_each(|other| other.print(out));
    }
}

impl From<ConfigError> for Failure {
    fn from(error: ConfigError) -> Self {
        let hint = error.hint();
        Self::new(Exit::Usage, error, hint)
    }
}

impl From<FilterError> for Failure {
    fn from(error: FilterError) -> Self {
        let hint = format!("{} (`--plan` lists all cells)", error.suggestion);
        Self::new(Exit::Usage, error, Some(hint))
    }
}

impl From<GateError> for Failure {
    fn from(error: GateError) -> Self {
        let hint = error.hint();
        Self::new(exit_of(&error), error, hint)
    }
}

impl From<CalibrateError> for Failure {
    fn from(error: CalibrateError) -> Self {
        let hint = error.hint();
        let exit = match &error {
            CalibrateError::NoRows => Exit::Usage,
            CalibrateError::Gate { source, .. } => exit_of(source),
            _ => Exit::Tool,
        };
        Self::new(exit, error, hint)
    }
}

impl From<SelftestError> for Failure {
    fn from(error: SelftestError) -> Self {
        let hint = error.hint();
        let exit = if matches!(error, SelftestError::NoKind { .. }) { Exit::Usage } else { Exit::Tool };
        Self::new(exit, error, hint)
    }
}

impl From<ReportError> for Failure {
    fn from(error: ReportError) -> Self {
        let exit = match &error {
            ReportError::Io { .. } => Exit::Tool,
            _ => Exit::Usage,
        };
        let hint = error.hint().to_owned();
        Self::new(exit, error, Some(hint))
    }
}

impl From<ProvisionError> for Failure {
    fn from(error: ProvisionError) -> Self {
        let hint = error.hint();
        Self::new(exit_of_provision(&error), error, hint)
    }
}

impl From<BundleError> for Failure {
    fn from(error: BundleError) -> Self {
        let hint = error.hint();
        Self::new(exit_of_bundle(&error), error, hint)
    }
}

impl From<BuildError> for Failure {
    fn from(error: BuildError) -> Self {
        let hint = error.hint();
        Self::new(exit_of_build(&error), error, hint)
    }
}

/// What a file that a person named and that cannot be read leads to.
pub(crate) fn exit_of_read(error: &io::Error) -> Exit {
    match error.kind() {
        _ if file::refusal(error).is_some() => Exit::Usage,
        io::ErrorKind::NotFound | io::ErrorKind::NotADirectory | io::ErrorKind::UnexpectedEof => Exit::Usage,
        _ => Exit::Tool,
    }
}

/// Whether something else than a readable file stood where the person named one: no tool failed then.
fn is_about_a_wrong_path(error: &(dyn Error + 'static)) -> bool {
    iter::successors(Some(error), |&error| error.source())
        .filter_map(|error| error.downcast_ref::<io::Error>())
        .any(|error| file::refusal(error).is_some())
}

/// A build that cannot be configured is a mistake in a file; one whose patches or sources are at fault is what a gate is
/// there to find; all else is the machine's.
fn exit_of(error: &GateError) -> Exit {
    match error {
        GateError::NoModel { .. } => Exit::Usage,
        GateError::Provision(source) => exit_of_provision(source),
        GateError::Build { source, .. } => exit_of_build(source),
        GateError::Bundle(source) => exit_of_bundle(source),
        _ => Exit::Tool,
    }
}

fn exit_of_bundle(error: &BundleError) -> Exit {
    match error {
        BundleError::Occupied { .. }
        | BundleError::Inside { .. }
        | BundleError::Place { .. }
        | BundleError::EngineName { .. }
        | BundleError::NoProgram { .. }
        | BundleError::StaticMlx { .. }
        | BundleError::Platform { .. }
        | BundleError::Manifest { .. }
        | BundleError::NoEngine { .. }
        | BundleError::NoCudaLibrary { .. } => Exit::Usage,
        BundleError::Provision(source) => exit_of_provision(source),
        _ => Exit::Tool,
    }
}

fn exit_of_provision(error: &ProvisionError) -> Exit {
    match error {
        ProvisionError::NotLocked { .. } | ProvisionError::NotPinned { .. } => Exit::Usage,
        ProvisionError::Read { source, .. } => exit_of_read(source),
        _ => Exit::Tool,
    }
}

fn exit_of_build(error: &BuildError) -> Exit {
    match error {
        BuildError::NotLocked { .. }
        | BuildError::NoPatches { .. }
        | BuildError::PatchOrder { .. }
        | BuildError::UnknownDialect { .. }
        | BuildError::MlxMismatch { .. } => Exit::Usage,
        BuildError::Provision { source, .. } => exit_of_provision(source),
        BuildError::Compile { .. } if error.is_about_the_machine() => Exit::Tool,
        BuildError::Patch { .. } | BuildError::Compile { .. } => Exit::Found,
        _ => Exit::Tool,
    }
}

fn indented(text: &str, indent: &str) -> String {
    text.lines().map(printable).collect::<Vec<_>>().join(&format!("\n{indent}"))
}

#[cfg(test)]
mod tests {
    use harness::config::{Problem, Problems};

    use super::*;

    fn printed(failure: &Failure) -> String {
        let mut out = Vec::new();
        failure.print(&mut out);
        String::from_utf8(out).unwrap()
    }

    #[test]
    fn an_error_is_printed_with_its_causes_and_a_hint() {
        let problem = |line, message: &str| Problem { line, column: 1, message: message.to_owned() };
        let problems = Problems {
            file: "matrices/nightly.toml".to_owned(),
            list: vec![
                problem(14, "unknown axis `quantisation`"),
                problem(20, "unknown model \u{1b}[31mred"),
            ],
        };
        let error = ConfigError::Invalid { what: "matrix `nightly`".to_owned(), problems };
        insta::assert_snapshot!(printed(&error.into()), @r"
        error: cannot read matrix `nightly`
          caused by: matrices/nightly.toml:14:1: unknown axis `quantisation`
                     matrices/nightly.toml:20:1: unknown model \u{1b}[31mred
          hint: correct matrices/nightly.toml and try again
        ");
    }

    #[test]
    fn one_failure_does_not_keep_the_rest_from_being_done() {
        let work = |number: u32| match number {
            2 => Err(Failure::new(Exit::Tool, "second", Some("look".to_owned()))),
            4 => Err(Failure::new(Exit::Usage, "fourth", None)),
            _ => Ok(number),
        };
        let (worked, failed) = each(1..=5, work);
        let failed = failed.unwrap();
        assert_eq!((worked, failed.exit), (vec![1, 3, 5], Exit::Tool));
        assert_eq!(printed(&failed), "error: second\n  hint: look\nerror: fourth\n");
        assert!(each(1..2, work).1.is_none());
    }

    #[test]
    fn a_path_to_no_readable_file_is_a_mistake_of_the_command_line_however_deep_it_is_told() {
        let of = |source: io::Error| {
            let error = harness::build::ProvisionError::Read { path: "l".into(), source };
            Failure::from(GateError::Provision(Box::new(error))).exit
        };
        assert_eq!(of(file::Refused::NoFile("a pipe").into()), Exit::Usage);
        assert_eq!(of(io::ErrorKind::PermissionDenied.into()), Exit::Tool);
    }

    #[test]
    fn exit_codes_are_those_of_the_design() {
        let codes = [
            (Exit::Pass, 0),
            (Exit::Found, 1),
            (Exit::Usage, 2),
            (Exit::Conflict, 3),
            (Exit::Inconclusive, 4),
            (Exit::Tool, 5),
        ];
        for (exit, code) in codes {
            assert_eq!(exit as u8, code);
        }
    }
}
