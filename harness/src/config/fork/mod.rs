//! Reads `patches/<fork>/fork.toml`: the upstream, the base that the stack sits on, and where the stack comes from.

mod base;
mod generated;
mod registry;
mod stack;
mod upstream;

use std::{fs, path::Path};

use toml::Spanned;

use super::{
    ConfigError,
    near::suggestion,
    reader::{Document, Keys, Problems},
};

pub use base::BaseSpec;
pub use generated::GeneratedSpec;
pub use registry::RegistrySpec;
pub use stack::{CrateQueue, PatchOrder, StackSpec};
pub use upstream::UpstreamSpec;

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
    /// Files that a command makes.
    pub generated: Vec<GeneratedSpec>,
    /// A file of the fork's own tree in which somebody lists the patches by hand.
    pub inventory: Option<String>,
    /// Crates of the fork that are published, too.
    pub registry: Vec<RegistrySpec>,
}

const ROOT: Keys = Keys::new(&["summary", "upstream", "base", "stack", "generated", "inventory", "registry"]);

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
    let upstream = root.required_table("upstream", upstream::KEYS).and_then(|table| upstream::read(&table));
    let base = root.optional_table("base", base::KEYS).and_then(|table| base::read(&table));
    let stack = root.open_table("stack").and_then(|table| stack::read(&table));
    let generated = generated::read(&root);
    let inventory = root.optional::<String>("inventory").map(Spanned::into_inner);
    let registry = registry::read(&root);
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
        Some(ForkSpec {
            name: name.to_owned(),
            summary: summary?,
            upstream: upstream?,
            base,
            stack: stack?,
            generated: generated?,
            inventory,
            registry: registry?,
        })
    })();
    document.finish(spec)
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
                    [base]\ncommit = \"abc\"\n[stack]\nkind = \"folder\"\norder = \"nummer\"\n\
                    [[generated]]\ncommand = [\"sh\", \"make.sh\"]\npaths = [\"made\", \"../x\"]\n";
        let problems = parse_fork("n", "fork.toml", text).unwrap_err().to_string();
        for (place, word) in [
            ("1:", "summary"),
            ("3:", "repository"),
            ("4:", "branche"),
            ("6:", "40 hexadecimal"),
            ("9:", "nummer"),
            ("12:", "leaves the tree"),
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
