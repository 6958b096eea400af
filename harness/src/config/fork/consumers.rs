//! `[[consumers]]` and `builds-on`: who names a commit of this fork, in which files, and which forks it builds on itself.

use toml::Spanned;

use super::{
    super::reader::{Keys, Table},
    probes::{CommandLine, command_line},
    upstream::repository,
};
use crate::tools::git::tree_path::TreePath;

/// One place that names a commit of the fork, or of its upstream.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ConsumerSpec {
    /// Where the files lie.
    pub home: ConsumerHome,
    /// Which commit is named there.
    pub names: Named,
    /// How it is named.
    pub pin: PinKind,
    /// What builds and tests the consumer: run in a clone of it, once its pin has moved.
    pub check: Vec<CommandLine>,
}

/// Where a consumer's files lie.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ConsumerHome {
    /// In another fork known here, by its name.
    Fork(String),
    /// In a branch of a remote repository.
    Repository {
        /// Its address.
        address: String,
        /// The branch that the edit goes on top of.
        branch: String,
    },
    /// In a checkout on this machine; a relative path starts at the repository root.
    Checkout {
        /// The folder.
        path: String,
        /// The branch that the edit goes on top of; what is checked out when absent.
        branch: Option<String>,
    },
}

/// Which commit a consumer names.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Named {
    /// The fork's own newest commit.
    Fork,
    /// The upstream commit that the stack sits on; the consumer applies the patches itself.
    Upstream,
}

/// How a consumer names a commit. Paths are relative to the consumer's root.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum PinKind {
    /// `rev` of a git dependency in `Cargo.toml`, and the source in `Cargo.lock`.
    CargoGit {
        /// Manifests and lock files.
        files: Vec<TreePath>,
    },
    /// The version of a crate from a registry in `Cargo.toml`, and version and checksum in `Cargo.lock`.
    CargoVersion {
        /// Manifests and lock files.
        files: Vec<TreePath>,
        /// The crate.
        name: String,
    },
    /// A submodule: the tree's entry and its address in `.gitmodules`.
    Submodule {
        /// Where it is mounted.
        path: TreePath,
    },
    /// `GIT_TAG` of a dependency in CMake files.
    CmakeTag {
        /// The files.
        files: Vec<TreePath>,
        /// The dependency's name.
        name: String,
    },
    /// An archive that CMake files name with its SHA-256.
    CmakeArchive {
        /// All files that repeat it.
        files: Vec<TreePath>,
        /// The dependency's name.
        name: String,
        /// Where the new archive is: an address, or a path of the consumer that carries it. `{tag}`, `{version}` and
        /// `{commit}` stand for those of the pin.
        archive: String,
    },
    /// `Package.swift` and `Package.resolved`.
    Swift {
        /// The files.
        files: Vec<TreePath>,
    },
    /// A copy of the whole tree.
    Vendored {
        /// The folder that holds it.
        path: TreePath,
    },
    /// A text file that holds the commit.
    Text {
        /// The files.
        files: Vec<TreePath>,
    },
}

impl PinKind {
    /// The word for it in `fork.toml`.
    pub fn word(&self) -> &'static str {
        match self {
            Self::CargoGit { .. } => "cargo-git",
            Self::CargoVersion { .. } => "cargo-version",
            Self::Submodule { .. } => "submodule",
            Self::CmakeTag { .. } => "cmake-tag",
            Self::CmakeArchive { .. } => "cmake-archive",
            Self::Swift { .. } => "swift",
            Self::Vendored { .. } => "vendored",
            Self::Text { .. } => "text",
        }
    }
}

const KEY: &str = "consumers";
const COMMON: Keys = Keys::new(&["kind", "fork", "repository", "checkout", "branch", "names", "check"]);

#[derive(Clone, Copy)]
enum Kind {
    CargoGit,
    CargoVersion,
    Submodule,
    CmakeTag,
    CmakeArchive,
    Swift,
    Vendored,
    Text,
}

const FILES: Keys = Keys::new(&["files"]);
const FILES_AND_NAME: Keys = Keys::new(&["files", "name"]);
const PATH: Keys = Keys::new(&["path"]);
const KINDS: [(&str, Kind, Keys); 8] = [
    ("cargo-git", Kind::CargoGit, FILES),
    ("cargo-version", Kind::CargoVersion, FILES_AND_NAME),
    ("submodule", Kind::Submodule, PATH),
    ("cmake-tag", Kind::CmakeTag, FILES_AND_NAME),
    ("cmake-archive", Kind::CmakeArchive, Keys::new(&["files", "name", "archive"])),
    ("swift", Kind::Swift, FILES),
    ("vendored", Kind::Vendored, PATH),
    ("text", Kind::Text, FILES),
];

/// `by_default` is what a consumer names when it does not say.
pub(super) fn read(root: &Table<'_, '_>, by_default: Named) -> Option<Vec<ConsumerSpec>> {
    if !root.has(KEY) {
        return Some(Vec::new());
    }
    let tables = root.tables_by(KEY, "kind", COMMON, &KINDS);
    let consumers: Vec<Option<ConsumerSpec>> =
        tables.iter().map(|(kind, table)| consumer(*kind, table, by_default)).collect();
    consumers.into_iter().collect()
}

/// The names in `builds-on`; whether such forks are there is the graph's question.
pub(super) fn read_builds_on(root: &Table<'_, '_>) -> Vec<String> {
    let names = root.optional_list::<String>("builds-on");
    names.map(|list| list.into_inner().into_iter().map(Spanned::into_inner).collect()).unwrap_or_default()
}

fn consumer(kind: Kind, table: &Table<'_, '_>, by_default: Named) -> Option<ConsumerSpec> {
    let words = [("fork", Named::Fork), ("upstream", Named::Upstream)];
    let names = table.optional_word("names", &words).map_or(by_default, Spanned::into_inner);
    let (home, pin, check) = (home(table, "a consumer"), pin(kind, table), checks(table));
    Some(ConsumerSpec { home: home?, names, pin: pin?, check: check? })
}

fn checks(table: &Table<'_, '_>) -> Option<Vec<CommandLine>> {
    let Some(lines) = table.optional_list::<String>("check") else {
        return (!table.has("check")).then(Vec::new);
    };
    let lines: Vec<Option<CommandLine>> =
        lines.into_inner().iter().map(|line| command_line(table, line)).collect();
    lines.into_iter().collect()
}

pub(super) fn home(table: &Table<'_, '_>, who: &str) -> Option<ConsumerHome> {
    let text = |key: &str| table.optional::<String>(key).map(Spanned::into_inner);
    let given = ["fork", "repository", "checkout"].into_iter().filter(|key| table.has(key)).count();
    if given != 1 {
        table.problem(table.span(), format!("{who} has one of `fork`, `repository` and `checkout`"));
        return None;
    }
    if table.has("fork") {
        if table.has("branch") {
            table.problem(table.span(), "`branch` goes with `repository` and `checkout` only");
        }
        return Some(ConsumerHome::Fork(text("fork")?));
    }
    if table.has("checkout") {
        return Some(ConsumerHome::Checkout { path: text("checkout")?, branch: text("branch") });
    }
    let branch = table.required::<String>("branch").map(Spanned::into_inner);
    Some(ConsumerHome::Repository { address: repository(table)?, branch: branch? })
}

fn pin(kind: Kind, table: &Table<'_, '_>) -> Option<PinKind> {
    let name = || table.required::<String>("name").map(Spanned::into_inner);
    let path = || table.required::<String>("path").and_then(|path| tree_path(table, &path));
    Some(match kind {
        Kind::CargoGit => PinKind::CargoGit { files: files(table)? },
        Kind::CargoVersion => {
            let (files, name) = (files(table), name());
            PinKind::CargoVersion { files: files?, name: name? }
        }
        Kind::Submodule => PinKind::Submodule { path: path()? },
        Kind::CmakeTag => {
            let (files, name) = (files(table), name());
            PinKind::CmakeTag { files: files?, name: name? }
        }
        Kind::CmakeArchive => {
            let (files, name) = (files(table), name());
            let archive = table.required::<String>("archive")?;
            PinKind::CmakeArchive { files: files?, name: name?, archive: archive.into_inner() }
        }
        Kind::Swift => PinKind::Swift { files: files(table)? },
        Kind::Vendored => PinKind::Vendored { path: path()? },
        Kind::Text => PinKind::Text { files: files(table)? },
    })
}

fn files(table: &Table<'_, '_>) -> Option<Vec<TreePath>> {
    let list = table.required_list::<String>("files")?.into_inner();
    let paths: Vec<Option<TreePath>> = list.iter().map(|path| tree_path(table, path)).collect();
    paths.into_iter().collect()
}

pub(super) fn tree_path(table: &Table<'_, '_>, text: &Spanned<String>) -> Option<TreePath> {
    let read = TreePath::new(text.get_ref().as_bytes());
    read.map_err(|error| table.problem(text.span(), error.to_string())).ok()
}
