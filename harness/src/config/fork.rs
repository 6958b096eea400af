//! Reads `patches/<fork>/fork.toml`: the upstream, the base that the stack sits on, and where the stack comes from.

use std::{fs, path::Path, str::FromStr};

use toml::Spanned;

use super::{
    ConfigError,
    near::suggestion,
    reader::{Document, Keys, Problems, Table},
};
use crate::tools::git::{
    ids::{CommitId, TreeId},
    mirror,
};

const PATCHES: &str = "patches";
const FILE: &str = "fork.toml";

/// One fork, as `fork.toml` describes it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ForkSpec {
    /// The fork's name: the name of its folder below `patches/`.
    pub name: String,
    /// One sentence for people: what is carried, and why.
    pub summary: String,
    /// Whose code it is.
    pub upstream: UpstreamSpec,
    /// What the stack sits on; for a branch it may be left open, and is then the newest commit that the branch shares
    /// with upstream.
    pub base: Option<BaseSpec>,
    /// Where the stack comes from.
    pub stack: StackSpec,
}

/// Whose code a fork carries changes to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct UpstreamSpec {
    /// Where it is fetched from.
    pub repository: String,
    /// The branch that `latest` means.
    pub branch: String,
    /// What the names of releases begin with; `latest-tag` is the highest of them.
    pub tag_prefix: String,
    /// The folder inside the repository that the stack changes; the whole repository when absent.
    pub folder: Option<String>,
}

/// The upstream commit that a stack sits on.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BaseSpec {
    /// The commit.
    pub commit: CommitId,
    /// Its tree, for checking.
    pub tree: Option<TreeId>,
    /// The tag that names it, for checking and for people.
    pub tag: Option<String>,
}

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

const ROOT: Keys = Keys::new(&["summary", "upstream", "base", "stack"]);
const UPSTREAM: Keys = Keys::new(&["repository", "branch", "tag-prefix", "folder"]);
const BASE: Keys = Keys::new(&["commit", "tree", "tag"]);
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

/// Reads the spec of the fork `name` below the repository root.
///
/// # Errors
/// When there is no such fork, or its file cannot be read or holds mistakes.
pub fn load_fork(root: &Path, name: &str) -> Result<ForkSpec, ConfigError> {
    let names = fork_names(root);
    if !names.iter().any(|known| known == name) {
        let names: Vec<&str> = names.iter().map(String::as_str).collect();
        let suggestion = suggestion(name, "forks", &names);
        return Err(ConfigError::Unknown { kind: "fork", name: name.to_owned(), suggestion });
    }
    let what = format!("fork `{name}`");
    let path = root.join(PATCHES).join(name).join(FILE);
    let text = fs::read_to_string(&path).map_err(|source| ConfigError::Unreadable {
        what: what.clone(),
        path,
        source,
    })?;
    parse_fork(name, &format!("{PATCHES}/{name}/{FILE}"), &text)
        .map_err(|problems| ConfigError::Invalid { what, problems })
}

/// The names of all forks below the repository root, in alphabetical order.
pub fn fork_names(root: &Path) -> Vec<String> {
    let Ok(entries) = fs::read_dir(root.join(PATCHES)) else { return Vec::new() };
    let mut names: Vec<String> = entries
        .flatten()
        .filter(|entry| entry.path().join(FILE).is_file())
        .filter_map(|entry| entry.file_name().into_string().ok())
        .collect();
    names.sort();
    names
}

/// Reads the text of a `fork.toml`.
///
/// # Errors
/// Every mistake of the file.
pub fn parse_fork(name: &str, file: &str, text: &str) -> Result<ForkSpec, Problems> {
    let document = Document::parse(file, text);
    let root = document.root(ROOT);
    let summary = root.required::<String>("summary").map(Spanned::into_inner);
    let upstream = root.required_table("upstream", UPSTREAM).and_then(|table| upstream(&table));
    let base = root.optional_table("base", BASE).and_then(|table| base(&table));
    let stack = root.open_table("stack").and_then(|table| stack(&table));
    if !root.has("stack") {
        root.problem(root.span(), "the file lacks `stack`");
    }
    if let (Some(UpstreamSpec { folder: Some(_), .. }), Some(StackSpec::Branch { .. })) = (&upstream, &stack)
    {
        root.problem(
            root.span(),
            "`upstream.folder` goes with patch files only: a branch changes the whole repository",
        );
    }
    if !matches!(stack, None | Some(StackSpec::Branch { .. })) && !root.has("base") {
        root.problem(root.span(), "the file lacks `base`, which only a branch can do without");
    }
    if root.has("base") && base.is_none() {
        return document.finish(None);
    }
    let spec = (|| {
        Some(ForkSpec { name: name.to_owned(), summary: summary?, upstream: upstream?, base, stack: stack? })
    })();
    document.finish(spec)
}

fn upstream(table: &Table<'_, '_>) -> Option<UpstreamSpec> {
    let repository = repository(table);
    let branch = table.required::<String>("branch").map(Spanned::into_inner);
    let tag_prefix = table.optional::<String>("tag-prefix").map(Spanned::into_inner).unwrap_or_default();
    let folder = table.optional::<String>("folder").map(Spanned::into_inner);
    Some(UpstreamSpec { repository: repository?, branch: branch?, tag_prefix, folder })
}

fn repository(table: &Table<'_, '_>) -> Option<String> {
    let address = table.required::<String>("repository")?;
    let text = address.get_ref();
    if !mirror::is_acceptable(text) || mirror::owner_and_name(text).is_none() {
        table.problem(
            address.span(),
            "`repository` must be an https, ssh, git or file address, or a path, that ends in owner/name",
        );
        return None;
    }
    Some(address.into_inner())
}

fn base(table: &Table<'_, '_>) -> Option<BaseSpec> {
    let commit = id::<CommitId>(table, "commit", table.required::<String>("commit")?);
    let tree = match table.optional::<String>("tree") {
        Some(tree) => Some(id::<TreeId>(table, "tree", tree)?),
        None => None,
    };
    let tag = table.optional::<String>("tag").map(Spanned::into_inner);
    Some(BaseSpec { commit: commit?, tree, tag })
}

fn id<T: FromStr>(table: &Table<'_, '_>, key: &str, text: Spanned<String>) -> Option<T> {
    let id = text.get_ref().parse().ok();
    if id.is_none() {
        table.problem(text.span(), format!("`{key}` must be a full object id of 40 hexadecimal digits"));
    }
    id
}

fn stack(table: &Table<'_, '_>) -> Option<StackSpec> {
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

#[cfg(test)]
mod tests {
    use super::*;

    const QUEUE: &str = r#"
summary = "What the crate carries."
[upstream]
repository = "https://example.org/o/n"
branch = "main"
tag-prefix = "v"
[base]
commit = "0123456789012345678901234567890123456789"
tag = "v1.0"
[stack]
kind = "crate-queue"
crate = "c"
version = "1.2.3"
folder = "patches"
order = "list"
order-file = "CMakeLists.txt"
order-list = "patch_files"
archive = "vendor/n.tar.gz"
archive-sha256 = "00"
"#;

    #[test]
    fn a_queue_inside_a_crate_is_read() {
        let fork = parse_fork("n", "fork.toml", QUEUE).unwrap();
        let StackSpec::CrateQueue(queue) = fork.stack else { panic!("not a queue") };
        assert_eq!((queue.krate.as_str(), queue.version.as_str()), ("c", "1.2.3"));
        let order = PatchOrder::ListIn { file: "CMakeLists.txt".to_owned(), list: "patch_files".to_owned() };
        assert_eq!(queue.order, order);
        assert_eq!(
            (fork.base.and_then(|base| base.tag).as_deref(), fork.upstream.folder),
            (Some("v1.0"), None)
        );
    }

    #[test]
    fn all_mistakes_are_told_together() {
        let text = "summary = 1\n[upstream]\nrepository = \"ext::sh -c x\"\nbranche = \"main\"\n\
                    [base]\ncommit = \"abc\"\n[stack]\nkind = \"folder\"\norder = \"nummer\"\n";
        let problems = parse_fork("n", "fork.toml", text).unwrap_err().to_string();
        for (place, word) in [
            ("1:", "summary"),
            ("3:", "repository"),
            ("4:", "branche"),
            ("6:", "40 hexadecimal"),
            ("9:", "nummer"),
        ] {
            assert!(
                problems
                    .lines()
                    .any(|line| line.contains(&format!("fork.toml:{place}")) && line.contains(word)),
                "{word} is missing in\n{problems}"
            );
        }
    }
}
