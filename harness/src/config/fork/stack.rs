//! `[stack]`: where the changes come from, and in which order they apply.

use toml::Spanned;

use super::{
    super::reader::{Keys, Table},
    base::id,
    upstream::repository,
};
use crate::tools::git::ids::CommitId;

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

#[derive(Clone, Copy)]
enum Kind {
    Branch,
    Folder,
    Crate,
}

#[derive(Clone, Copy)]
enum OrderWord {
    Number,
    Series,
    List,
}

pub(super) fn read(table: &Table<'_, '_>) -> Option<StackSpec> {
    let kinds = [("branch", Kind::Branch), ("folder", Kind::Folder), ("crate-queue", Kind::Crate)];
    let text = |key: &str| table.required::<String>(key).map(Spanned::into_inner);
    match table.required_word("kind", &kinds)?.into_inner() {
        Kind::Branch => {
            table.refuse_keys_beside(BRANCH);
            let (repository, branch) = (repository(table), text("branch"));
            let head = match table.optional::<String>("head") {
                Some(head) => Some(id::<CommitId>(table, "head", head)?),
                None => None,
            };
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
