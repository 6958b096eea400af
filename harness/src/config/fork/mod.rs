//! Reads `patches/<fork>/fork.toml`: the upstream, the base that the stack sits on, and where the stack comes from.

mod base;
mod consumers;
mod edit;
mod generated;
mod probes;
mod push;
mod registry;
mod retirement;
mod stack;
mod upstream;

use std::{fs, path::Path};

use toml::Spanned;

use super::{
    ConfigError,
    near::suggestion,
    reader::{Document, Keys, Problems},
};
use crate::tools::file::{self, Most};

pub use base::BaseSpec;
pub use consumers::{ConsumerHome, ConsumerSpec, Named, PinKind};
pub use edit::with_base;
pub use generated::GeneratedSpec;
pub use probes::{CommandLine, ProbeSpec};
pub use push::{PushSpec, is_branch_name};
pub use registry::RegistrySpec;
pub use retirement::{Condition, PatchSpec, Probe};
pub use stack::{CrateQueue, PatchOrder, StackSpec, VendoredCopy, VendoredPatches};
pub use upstream::UpstreamSpec;

const PATCHES: &str = "patches";
const FILE: &str = "fork.toml";

/// One fork, as `fork.toml` describes it.
#[derive(Debug, Clone, PartialEq)]
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
    /// The forks that it builds on, by name.
    pub builds_on: Vec<String>,
    /// Who names a commit of it.
    pub consumers: Vec<ConsumerSpec>,
    /// What downstreams measure.
    pub probes: Vec<ProbeSpec>,
    /// Where its result is pushed to; nowhere when absent.
    pub push: Option<PushSpec>,
    /// What is declared about single patches.
    pub patches: Vec<PatchSpec>,
    /// When the whole fork can go.
    pub retirement: Option<Condition>,
}

const ROOT: Keys = Keys::new(&[
    "summary",
    "upstream",
    "base",
    "stack",
    "generated",
    "inventory",
    "registry",
    "builds-on",
    "consumers",
    "probes",
    "push",
    "patch",
    "retirement",
]);

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
    if !is_branch_name(name) {
        return Err(ConfigError::Name(name.to_owned()));
    }
    let what = format!("fork `{name}`");
    let path = root.join(PATCHES).join(name).join(FILE);
    let text = file::text(&path, Most::Configuration).map_err(|source| ConfigError::Unreadable {
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
        .filter(|entry| entry.path().join(FILE).exists())
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
    // A branch and a copied tree are pinned by their own commits; patch files are applied by whoever pins upstream.
    let by_default = match &stack {
        Some(StackSpec::Folder { .. } | StackSpec::CrateQueue(_)) => Named::Upstream,
        _ => Named::Fork,
    };
    let (builds_on, consumers) = (consumers::read_builds_on(&root), consumers::read(&root, by_default));
    let probes = probes::read(&root);
    let push = root.optional_table("push", push::KEYS);
    let push = match push {
        Some(table) => push::read(&table).map(Some),
        None => Some(None),
    };
    let (patches, retirement) = (retirement::read_patches(&root), retirement::read_retirement(&root));
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
    let finds_base = matches!(stack, None | Some(StackSpec::Branch { .. } | StackSpec::Vendored(_)));
    if !finds_base && !root.has("base") {
        root.problem(
            root.span(),
            "the file lacks `base`, which only a branch or a vendored copy can do without",
        );
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
            builds_on,
            consumers: consumers?,
            probes: probes?,
            push: push?,
            patches: patches?,
            retirement: retirement?,
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
    fn a_fork_whose_name_makes_no_branch_is_refused_before_anything_is_done() {
        let root = tempfile::tempdir().unwrap();
        for name in ["a b", "-x", ".hidden", "a.lock", "x~y"] {
            let folder = root.path().join("patches").join(name);
            fs::create_dir_all(&folder).unwrap();
            fs::write(folder.join(FILE), QUEUE).unwrap();
            let error = load_fork(root.path(), name).unwrap_err();
            assert!(error.to_string().contains("git accepts in no branch"), "{error}");
            assert!(error.hint().unwrap().contains(&format!("`patches/{name}`")));
        }
    }

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
    fn consumers_and_push_are_read() {
        let text = QUEUE.replace("[upstream]", "builds-on = [\"b\"]\n[upstream]")
            + "[[consumers]]\nkind = \"cmake-tag\"\nfork = \"c\"\nfiles = [\"CMakeLists.txt\"]\nname = \"n\"\n\
               [[consumers]]\nkind = \"submodule\"\nrepository = \"https://example.org/o/c\"\nbranch = \"main\"\n\
               names = \"fork\"\npath = \"deps/n\"\n\
               [push]\nrepository = \"https://example.org/o/f\"\nbranch = \"carried\"\nprotected = [\"main\"]\n";
        let fork = parse_fork("n", "fork.toml", &text).unwrap();
        assert_eq!(fork.builds_on, ["b"]);
        assert_eq!((fork.consumers[0].names, fork.consumers[1].names), (Named::Upstream, Named::Fork));
        assert_eq!(fork.consumers[0].home, ConsumerHome::Fork("c".to_owned()));
        assert_eq!(
            fork.push.and_then(|push| push.protection_of("main").map(str::to_owned)).as_deref(),
            Some("main")
        );
        let wrong = QUEUE.to_owned()
            + "[[consumers]]\nkind = \"text\"\nfork = \"c\"\ncheckout = \"x\"\nfiles = [\"../x\"]\n\
               [[consumers]]\nkind = \"txt\"\n[push]\nrepository = \"https://example.org/o/f\"\nbranch = \"--all\"\n";
        let problems = parse_fork("n", "fork.toml", &wrong).unwrap_err().to_string();
        for told in [
            "one of `fork`, `repository` and `checkout`",
            "leaves the tree",
            "unknown value `txt`",
            "no name that git",
        ] {
            assert!(problems.contains(told), "{told} is missing in\n{problems}");
        }
    }

    #[test]
    fn checks_and_probes_are_read_and_their_mistakes_told() {
        let consumer = "[[consumers]]\nkind = \"text\"\ncheckout = \"x\"\nfiles = [\"pin\"]\n";
        let text = format!(
            "{QUEUE}{consumer}check = [\"cargo test --features 'a b'\", \"cargo publish --dry-run\"]\n\
             [[probes]]\nname = \"bench\"\ncheckout = \"x\"\ncommand = \"sh bench.sh\"\n\
             [probes.numbers]\ndecode_tok_s = 'decode: ([0-9.]+) tok/s'\n"
        );
        let fork = parse_fork("n", "fork.toml", &text).unwrap();
        assert_eq!(fork.consumers[0].check[0].words, ["cargo", "test", "--features", "a b"]);
        assert_eq!(fork.consumers[0].check[1].text, "cargo publish --dry-run");
        let probe = &fork.probes[0];
        assert_eq!((probe.name.as_str(), &probe.home), ("bench", &fork.consumers[0].home));
        assert_eq!(probe.numbers["decode_tok_s"], "decode: ([0-9.]+) tok/s");

        let wrong = format!(
            "{QUEUE}{consumer}check = [\"cargo 'test\", \"\"]\n[[probes]]\nname = \"bench\"\n\
             [probes.numbers]\na = \"(\"\nb = \"[0-9]+\"\n"
        );
        let problems = parse_fork("n", "fork.toml", &wrong).unwrap_err().to_string();
        for told in [
            "not closed",
            "the command is empty",
            "a probe has one of",
            "lacks `command`",
            "the pattern is none: unclosed group",
            "the pattern has no group",
        ] {
            assert!(problems.contains(told), "{told} is missing in\n{problems}");
        }
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
