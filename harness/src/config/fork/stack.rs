//! `[stack]`: where the changes come from, and in which order they apply.

use toml::Spanned;

use super::{
    super::reader::{Keys, Table},
    base::id,
    consumers::tree_path,
    upstream::repository,
};
use crate::tools::git::{ids::CommitId, tree_path::TreePath};

/// Where a stack comes from.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum StackSpec {
    /// The commits of a branch over the base.
    Branch {
        /// Where the fork is fetched from.
        repository: String,
        /// Its branch.
        branch: String,
        /// The commit to read, where it is not simply the branch's newest.
        head: Option<CommitId>,
    },
    /// The patch files beside `fork.toml`.
    Folder {
        /// Their order.
        order: PatchOrder,
    },
    /// A folder of patch files inside a published crate that also carries the sources they are made for.
    CrateQueue(CrateQueue),
    /// What a copy of upstream's tree inside another repository holds beyond the upstream commit nearest to it.
    Vendored(VendoredCopy),
}

impl StackSpec {
    /// The repository that holds the stack itself; none where it stands in patch files.
    pub fn repository(&self) -> Option<&str> {
        match self {
            Self::Branch { repository, .. } => Some(repository),
            Self::Vendored(copy) => Some(&copy.repository),
            Self::Folder { .. } | Self::CrateQueue(_) => None,
        }
    }
}

/// A copy of upstream's tree inside another repository.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct VendoredCopy {
    /// Where the other repository is fetched from.
    pub repository: String,
    /// Its branch.
    pub branch: String,
    /// The commit to read, where it is not simply the branch's newest.
    pub head: Option<CommitId>,
    /// The folder that holds the copy.
    pub folder: TreePath,
    /// How the difference is cut into patches.
    pub patches: VendoredPatches,
}

/// How a vendored copy's difference is cut into patches.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum VendoredPatches {
    /// One patch holds all of it.
    One,
    /// One patch a file.
    PerFile,
}

/// A folder of patch files inside a published crate.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CrateQueue {
    /// The crate's name.
    pub krate: String,
    /// Its exact version.
    pub version: String,
    /// The folder of patch files inside it.
    pub folder: String,
    /// Their order; a file named there is relative to the crate.
    pub order: PatchOrder,
    /// The archive inside the crate whose tree is the base's.
    pub archive: String,
    /// The archive's SHA-256, in lower-case hexadecimal.
    pub archive_sha256: String,
}

/// Where the order of a queue of patch files stands.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum PatchOrder {
    /// In the number that every file name begins with.
    Number,
    /// In a `series` file of the folder.
    Series,
    /// In a list of file names inside a text file, such as a CMake `set(NAME a.patch b.patch)`.
    ListIn {
        /// The text file, relative to the queue's root.
        file: String,
        /// The list's name.
        list: String,
    },
}

const BRANCH: Keys = Keys::new(&["kind", "repository", "branch", "head"]);
const FOLDER: Keys = Keys::new(&["kind", "order", "order-file", "order-list"]);
const CRATE: Keys = Keys::new(&[
    "kind",
    "crate",
    "version",
    "folder",
    "order",
    "order-file",
    "order-list",
    "archive",
    "archive-sha256",
]);

const VENDORED: Keys = Keys::new(&["kind", "repository", "branch", "head", "folder", "patches"]);

#[derive(Clone, Copy)]
enum Kind {
    Branch,
    Folder,
    Crate,
    Vendored,
}

#[derive(Clone, Copy)]
enum OrderWord {
    Number,
    Series,
    List,
}

pub(super) fn read(table: &Table<'_, '_>) -> Option<StackSpec> {
    let kinds = [
        ("branch", Kind::Branch),
        ("folder", Kind::Folder),
        ("crate-queue", Kind::Crate),
        ("vendored", Kind::Vendored),
    ];
    let text = |key: &str| table.required::<String>(key).map(Spanned::into_inner);
    match table.required_word("kind", &kinds)?.into_inner() {
        Kind::Branch => {
            table.refuse_keys_beside(BRANCH);
            let (repository, branch) = (repository(table), text("branch"));
            let head = head(table)?;
            Some(StackSpec::Branch { repository: repository?, branch: branch?, head })
        }
        Kind::Folder => {
            table.refuse_keys_beside(FOLDER);
            Some(StackSpec::Folder { order: order(table)? })
        }
        Kind::Crate => {
            table.refuse_keys_beside(CRATE);
            let (krate, version, folder) = (text("crate"), text("version"), text("folder"));
            let (order, archive, sha256) = (order(table), text("archive"), text("archive-sha256"));
            Some(StackSpec::CrateQueue(CrateQueue {
                krate: krate?,
                version: version?,
                folder: folder?,
                order: order?,
                archive: archive?,
                archive_sha256: sha256?,
            }))
        }
        Kind::Vendored => {
            table.refuse_keys_beside(VENDORED);
            let (repository, branch, head) = (repository(table), text("branch"), head(table));
            let folder = table.required::<String>("folder").and_then(|folder| tree_path(table, &folder));
            let words = [("one", VendoredPatches::One), ("per-file", VendoredPatches::PerFile)];
            let patches =
                table.optional_word("patches", &words).map_or(VendoredPatches::One, Spanned::into_inner);
            let (repository, branch, head, folder) = (repository?, branch?, head?, folder?);
            Some(StackSpec::Vendored(VendoredCopy { repository, branch, head, folder, patches }))
        }
    }
}

fn head(table: &Table<'_, '_>) -> Option<Option<CommitId>> {
    match table.optional::<String>("head") {
        Some(head) => id::<CommitId>(table, "head", head).map(Some),
        None => Some(None),
    }
}

fn order(table: &Table<'_, '_>) -> Option<PatchOrder> {
    let words = [("number", OrderWord::Number), ("series", OrderWord::Series), ("list", OrderWord::List)];
    match table.required_word("order", &words)?.into_inner() {
        OrderWord::Number => Some(PatchOrder::Number),
        OrderWord::Series => Some(PatchOrder::Series),
        OrderWord::List => {
            let file = table.required::<String>("order-file").map(Spanned::into_inner);
            let list = table.required::<String>("order-list").map(Spanned::into_inner);
            Some(PatchOrder::ListIn { file: file?, list: list? })
        }
    }
}
