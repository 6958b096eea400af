//! `[[patch]]` and `[retirement]`: under which conditions a patch or a whole fork can go, and what proves that a
//! patch's feature still works. Conditions are combined with `any` and `all`.

use super::super::reader::{Keys, Table};
use crate::tools::git::{ids::CommitId, tree_path::TreePath};

/// What is declared about one patch.
#[derive(Debug, Clone, PartialEq)]
pub struct PatchSpec {
    /// Its subject, its file's name with or without `.patch`, or the full id of its commit.
    pub patch: String,
    /// What proves that its feature still works.
    pub probe: Option<Probe>,
    /// When it can go.
    pub retirement: Option<Condition>,
    /// Why it may go although it is needed, where somebody has accepted that.
    pub accepted_loss: Option<String>,
}

/// What proves that a feature still works.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Probe {
    /// A program and its arguments.
    Command(Vec<String>),
    /// A cell of a matrix, by its name.
    Cell(String),
}

/// A condition under which something can go. All but the last two are told from upstream's commits and files.
#[derive(Debug, Clone, PartialEq)]
pub enum Condition {
    /// One of these holds.
    Any(Vec<Condition>),
    /// All of these hold.
    All(Vec<Condition>),
    /// A file or folder is there.
    Path(TreePath),
    /// A name stands in the code, comments aside.
    Symbol {
        /// The name.
        name: String,
        /// The file or folder to look in; everywhere when absent.
        within: Option<TreePath>,
    },
    /// A text stands in a file.
    Text {
        /// The text.
        text: String,
        /// The file.
        within: TreePath,
    },
    /// A header declares a function.
    CFunction(String),
    /// History holds a commit.
    Commit(CommitId),
    /// A release of this version or a later one is reached.
    Version(String),
    /// The message of a commit since the base, or a line that release notes have had since, mentions a word.
    Log(String),
    /// A pull request of upstream's is merged, as the recorded file says.
    PullRequest(u64),
    /// A command passes without the patch.
    PassesWithout(Vec<String>),
    /// A benchmark without the patch reaches a figure.
    Benchmark {
        /// The benchmark.
        name: String,
        /// The figure.
        at_least: f64,
    },
}

const PATCH: Keys = Keys::new(&["patch", "probe", "probe-cell", "any", "all", "accept-loss"]);
const RETIREMENT: Keys = Keys::new(&["any", "all"]);
const CONDITION: Keys = Keys::new(&[
    "any",
    "all",
    "path",
    "symbol",
    "text",
    "in",
    "c-function",
    "commit",
    "version",
    "log",
    "pull-request",
    "passes-without",
    "benchmark",
    "at-least",
]);
/// The keys of which a condition has exactly one.
const KINDS: [&str; 11] = [
    "any",
    "all",
    "path",
    "symbol",
    "text",
    "c-function",
    "commit",
    "version",
    "log",
    "pull-request",
    "passes-without",
];

/// The `[[patch]]` tables; `None` when one of them is wrong.
pub(super) fn read_patches(root: &Table<'_, '_>) -> Option<Vec<PatchSpec>> {
    let tables = root.tables("patch", PATCH);
    let specs: Vec<Option<PatchSpec>> = tables.iter().map(patch).collect();
    specs.into_iter().collect()
}

/// The `[retirement]` table; the outer `None` when it is wrong.
pub(super) fn read_retirement(root: &Table<'_, '_>) -> Option<Option<Condition>> {
    match root.optional_table("retirement", RETIREMENT) {
        Some(table) => combination(&table),
        None => (!root.has("retirement")).then_some(None),
    }
}

fn patch(table: &Table<'_, '_>) -> Option<PatchSpec> {
    let patch = table.required::<String>("patch")?.into_inner();
    let command = texts(table, "probe");
    let cell = table.optional::<String>("probe-cell").map(|cell| cell.into_inner());
    if command.is_some() && cell.is_some() {
        table.problem(table.span(), "`probe` and `probe-cell` exclude each other");
        return None;
    }
    let probe = command.map(Probe::Command).or(cell.map(Probe::Cell));
    let accepted_loss = match table.optional::<String>("accept-loss") {
        Some(reason) if reason.get_ref().trim().is_empty() => {
            table.problem(
                reason.span(),
                "`accept-loss` is empty: it is the reason, which the commits then tell",
            );
            return None;
        }
        reason => reason.map(|reason| reason.into_inner()),
    };
    Some(PatchSpec { patch, probe, retirement: combination(table)?, accepted_loss })
}

/// The combination that a table holds under `any` or `all`, if it does; the outer `None` when it is wrong.
fn combination(table: &Table<'_, '_>) -> Option<Option<Condition>> {
    match (table.has("any"), table.has("all")) {
        (false, false) => Some(None),
        (true, true) => {
            table.problem(table.span(), "`any` and `all` stand side by side: put one into the other");
            None
        }
        (true, false) => Some(Some(Condition::Any(conditions(table, "any")?))),
        (false, true) => Some(Some(Condition::All(conditions(table, "all")?))),
    }
}

fn conditions(table: &Table<'_, '_>, key: &str) -> Option<Vec<Condition>> {
    let tables = table.tables(key, CONDITION);
    if tables.is_empty() {
        table.problem(table.span(), format!("`{key}` holds no condition"));
        return None;
    }
    let conditions: Vec<Option<Condition>> = tables.iter().map(condition).collect();
    conditions.into_iter().collect()
}

fn condition(table: &Table<'_, '_>) -> Option<Condition> {
    let kinds: Vec<&str> = KINDS.into_iter().chain(["benchmark"]).filter(|key| table.has(key)).collect();
    let [kind] = kinds.as_slice() else {
        let message = "a condition has exactly one of `any`, `all`, `path`, `symbol`, `text`, `c-function`, `commit`, \
            `version`, `log`, `pull-request`, `passes-without` and `benchmark`";
        table.problem(table.span(), message);
        return None;
    };
    for (key, owners) in [("in", &["symbol", "text"][..]), ("at-least", &["benchmark"])] {
        if table.has(key) && !owners.contains(kind) {
            table.problem(table.span(), format!("`{key}` does not go with `{kind}`"));
            return None;
        }
    }
    let text = |key: &str| table.required::<String>(key).map(|text| text.into_inner());
    match *kind {
        "any" | "all" => combination(table)?,
        "path" => Some(Condition::Path(path(table, "path")?)),
        "symbol" => {
            let within = if table.has("in") { Some(path(table, "in")?) } else { None };
            Some(Condition::Symbol { name: text("symbol")?, within })
        }
        "text" => Some(Condition::Text { text: text("text")?, within: path(table, "in")? }),
        "c-function" => Some(Condition::CFunction(text("c-function")?)),
        "commit" => {
            let commit = table.required::<String>("commit")?;
            let id = commit.get_ref().parse().ok();
            if id.is_none() {
                table.problem(commit.span(), "`commit` must be a full object id of 40 hexadecimal digits");
            }
            id.map(Condition::Commit)
        }
        "version" => {
            let version = table.required::<String>("version")?;
            let plain = version.get_ref().split('.').all(|part| part.parse::<u64>().is_ok());
            if !plain {
                table.problem(
                    version.span(),
                    "`version` must be numbers with dots between them, such as `0.33.0`",
                );
            }
            plain.then(|| Condition::Version(version.into_inner()))
        }
        "log" => Some(Condition::Log(text("log")?)),
        "pull-request" => Some(Condition::PullRequest(table.required::<u64>("pull-request")?.into_inner())),
        "passes-without" => Some(Condition::PassesWithout(texts(table, "passes-without")?)),
        _ => Some(Condition::Benchmark {
            name: text("benchmark")?,
            at_least: table.required::<f64>("at-least")?.into_inner(),
        }),
    }
}

fn texts(table: &Table<'_, '_>, key: &str) -> Option<Vec<String>> {
    if !table.has(key) {
        return None;
    }
    let list = table.required_list::<String>(key)?.into_inner();
    Some(list.into_iter().map(|text| text.into_inner()).collect())
}

fn path(table: &Table<'_, '_>, key: &str) -> Option<TreePath> {
    let path = table.required::<String>(key)?;
    TreePath::new(path.get_ref().as_bytes())
        .map_err(|error| table.problem(path.span(), error.to_string()))
        .ok()
}

#[cfg(test)]
mod tests {
    use super::super::{ForkSpec, parse_fork};
    use super::*;

    fn parsed(rest: &str) -> Result<ForkSpec, String> {
        let text = format!(
            "summary = \"\"\n[upstream]\nrepository = \"https://example.org/o/n\"\nbranch = \"main\"\n[stack]\n\
             kind = \"branch\"\nrepository = \"https://example.org/o/m\"\nbranch = \"main\"\n{rest}"
        );
        parse_fork("fork", "fork.toml", &text).map_err(|problems| problems.to_string())
    }

    #[test]
    fn conditions_nest_and_patches_have_probes() {
        let spec = parsed(
            "[[patch]]\npatch = \"one\"\nprobe = [\"cargo\", \"test\"]\n\
             any = [{ path = \"a/b\" }, { all = [{ version = \"1.2\" }, { symbol = \"s\", in = \"a\" }] }]\n\
             [[patch]]\npatch = \"two\"\nprobe-cell = \"cell\"\naccept-loss = \"nobody uses it\"\n\
             [retirement]\nall = [{ pull-request = 7 }, { benchmark = \"b\", at-least = 1.5 }]\n",
        )
        .unwrap();
        let path = |path: &str| TreePath::new(path).unwrap();
        let nested = Condition::All(vec![
            Condition::Version("1.2".to_owned()),
            Condition::Symbol { name: "s".to_owned(), within: Some(path("a")) },
        ]);
        assert_eq!(
            spec.patches[0].retirement,
            Some(Condition::Any(vec![Condition::Path(path("a/b")), nested]))
        );
        assert_eq!(spec.patches[1].probe, Some(Probe::Cell("cell".to_owned())));
        let losses = [&spec.patches[0].accepted_loss, &spec.patches[1].accepted_loss];
        assert_eq!(losses.map(Option::as_deref), [None, Some("nobody uses it")]);
        let benchmark = Condition::Benchmark { name: "b".to_owned(), at_least: 1.5 };
        assert_eq!(spec.retirement, Some(Condition::All(vec![Condition::PullRequest(7), benchmark])));
    }

    #[test]
    fn mistakes_name_what_is_wrong() {
        for (rest, expected) in [
            ("[retirement]\nany = []\n", "`any` holds no condition"),
            ("[retirement]\nany = [{ path = \"a\" }]\nall = [{ path = \"a\" }]\n", "side by side"),
            ("[retirement]\nany = [{ path = \"a\", log = \"b\" }]\n", "exactly one of"),
            ("[retirement]\nany = [{ path = \"../a\" }]\n", "leaves the tree"),
            ("[retirement]\nany = [{ path = \"a\", in = \"b\" }]\n", "`in` does not go with `path`"),
            ("[retirement]\nany = [{ version = \"v1\" }]\n", "must be numbers with dots"),
            ("[retirement]\nany = [{ commit = \"12\" }]\n", "full object id"),
            ("[retirement]\nany = [{ paht = \"a\" }]\n", "unknown key `paht`"),
            ("[[patch]]\npatch = \"p\"\nprobe = [\"a\"]\nprobe-cell = \"b\"\n", "exclude each other"),
            ("[[patch]]\npatch = \"p\"\naccept-loss = \" \"\n", "it is the reason"),
        ] {
            let message = parsed(rest).unwrap_err();
            assert!(message.contains(expected), "{message}");
        }
    }
}
