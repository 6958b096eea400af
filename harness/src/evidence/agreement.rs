//! Do the parts that a fork is made of fit each other? Reads what a tree says about the versions of its components
//! (copies, submodules, CMake's `FetchContent`, `Package.resolved`), and compares the statements with each other, with
//! upstream's, and with those of forks that belong together. It judges no version as such.

use std::collections::{BTreeMap, BTreeSet};

use serde::Serialize;

use crate::tools::git::{
    ids::TreeId,
    mirror::owner_and_name,
    store::{Entry, MODE_EXECUTABLE, MODE_FILE, MODE_SUBMODULE, Store, StoreError},
};

/// What a file says about a component's version.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize)]
pub struct Statement {
    /// The component, such as `mlx`: the name of its repository, in lower case.
    pub component: String,
    /// The version without a leading `v`, or a commit's id.
    pub version: String,
    /// Where it says so: the path, with the line where there is one.
    pub place: String,
    /// What kind of statement it is.
    pub how: How,
}

/// How a version is stated.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum How {
    /// The sources are there, and carry the version.
    Sources,
    /// A submodule.
    Submodule,
    /// CMake downloads it.
    FetchContent,
    /// SwiftPM resolved it.
    PackageResolved,
}

/// Statements about one component that differ.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Disagreement {
    /// The component.
    pub component: String,
    /// Whose statements are compared.
    pub between: Between,
    /// The fork's statement.
    pub fork: Statement,
    /// The other statement.
    pub other: Statement,
}

/// Whose statements are compared.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "kebab-case", tag = "kind", content = "name")]
pub enum Between {
    /// Two places of the fork's own head.
    Itself,
    /// The fork's head and the upstream commit that it is compared with.
    Upstream,
    /// The fork's head and another fork's.
    Fork(String),
}

/// Finds the sources of a component from its repository's address and a tag or commit; `None` when they are not at hand.
pub type Lookup<'l> = dyn Fn(&str, &str) -> Option<(Store, TreeId)> + 'l;

/// Everything that a tree says about versions of components. The sources that it only names are looked up; one that is
/// not at hand keeps the id or tag by which it is named.
///
/// # Errors
/// When objects are missing.
pub fn statements(store: &Store, tree: TreeId, lookup: &Lookup<'_>) -> Result<Vec<Statement>, StoreError> {
    let mut found = Vec::new();
    let changes = store.changes(store.empty_tree()?, tree)?;
    let mut addresses: BTreeMap<String, String> = BTreeMap::new();
    for (path, entry) in changes.iter().filter_map(|change| Some((&change.path, change.new?))) {
        if path.as_bytes() == b".gitmodules" {
            addresses = submodules(&text_of(store, entry)?);
        }
    }
    for (path, entry) in changes.into_iter().filter_map(|change| Some((change.path, change.new?))) {
        let name = path.to_string();
        match entry.mode {
            MODE_SUBMODULE => {
                if let Some(address) = addresses.get(&name)
                    && let Some(component) = component_of(address)
                {
                    let version = version_of(&component, address, &entry.id.to_string(), lookup)?;
                    found.push(Statement { component, version, place: name, how: How::Submodule });
                }
            }
            MODE_FILE | MODE_EXECUTABLE => {
                let file = name.rsplit('/').next().unwrap_or_default();
                match file {
                    "version.h" => found.extend(header_version(&name, &text_of(store, entry)?)),
                    "CMakeLists.txt" => found.extend(cmake(&name, &text_of(store, entry)?, lookup)?),
                    "Package.resolved" => found.extend(resolved(&name, &text_of(store, entry)?)),
                    _ => {}
                }
            }
            _ => {}
        }
    }
    found.sort();
    Ok(found)
}

/// The statements of one head that contradict each other.
pub fn within(fork: &[Statement]) -> Vec<Disagreement> {
    let mut found = Vec::new();
    for (at, one) in fork.iter().enumerate() {
        // What is there counts; of two that only ask for it, the first.
        let other =
            fork[..at].iter().filter(|other| other.component == one.component).min_by_key(|other| other.how);
        if let Some(other) = other.filter(|other| differ(&other.version, &one.version)) {
            let (fork, other) = (other.clone(), one.clone());
            found.push(Disagreement {
                component: one.component.clone(),
                between: Between::Itself,
                fork,
                other,
            });
        }
    }
    found
}

/// The components of which a fork's head and another one state different versions.
pub fn between(fork: &[Statement], other: &[Statement], who: &Between) -> Vec<Disagreement> {
    let components: BTreeSet<&str> = fork.iter().map(|statement| statement.component.as_str()).collect();
    let strongest = |all: &[Statement], component: &str| {
        all.iter().filter(|statement| statement.component == component).min_by_key(|s| s.how).cloned()
    };
    components
        .into_iter()
        .filter_map(|component| {
            let (fork, other) = (strongest(fork, component)?, strongest(other, component)?);
            let component = component.to_owned();
            differ(&fork.version, &other.version).then(|| Disagreement {
                component,
                between: who.clone(),
                fork,
                other,
            })
        })
        .collect()
}

/// Whether two versions are known to differ: a commit whose version could not be looked up is not comparable to one.
fn differ(one: &str, other: &str) -> bool {
    one != other && is_commit(one) == is_commit(other)
}

fn is_commit(version: &str) -> bool {
    version.len() == 40 && version.bytes().all(|byte| byte.is_ascii_hexdigit())
}

fn text_of(store: &Store, entry: Entry) -> Result<String, StoreError> {
    Ok(String::from_utf8_lossy(&store.blob(entry.id)?).into_owned())
}

/// The version that a component's own sources carry at a tag or commit; the name of that, when they are not at hand.
fn version_of(component: &str, address: &str, name: &str, lookup: &Lookup<'_>) -> Result<String, StoreError> {
    if is_commit(name)
        && let Some((store, tree)) = lookup(address, name)
    {
        let own = statements(&store, tree, &|_, _| None)?;
        let own = own.into_iter().find(|own| own.component == component && own.how == How::Sources);
        if let Some(own) = own {
            return Ok(own.version);
        }
    }
    Ok(plain_version(name))
}

pub(super) fn plain_version(tag: &str) -> String {
    tag.strip_prefix('v')
        .filter(|rest| rest.starts_with(|c: char| c.is_ascii_digit()))
        .unwrap_or(tag)
        .to_owned()
}

pub(super) fn component_of(address: &str) -> Option<String> {
    owner_and_name(address).and_then(|name| Some(name.split_once('/')?.1.to_lowercase()))
}

/// `#define MLX_VERSION_MAJOR 0` and so on.
fn header_version(path: &str, text: &str) -> Option<Statement> {
    let mut parts: BTreeMap<&str, (&str, usize, &str)> = BTreeMap::new();
    for (line, words) in (1..).zip(text.lines().map(|line| line.split_whitespace().collect::<Vec<_>>())) {
        if let ["#define", name, value] = words[..]
            && let Some((library, part)) = name.split_once("_VERSION_")
            && value.bytes().all(|byte| byte.is_ascii_digit())
        {
            parts.insert(part, (value, line, library));
        }
    }
    let (major, line, library) = *parts.get("MAJOR")?;
    let part = |name: &str| parts.get(name).map(|(value, ..)| *value);
    let version = format!("{major}.{}.{}", part("MINOR")?, part("PATCH")?);
    let component = library.to_lowercase().replace('_', "-");
    Some(Statement { component, version, place: format!("{path}:{line}"), how: How::Sources })
}

/// `set(MLX_C_VERSION 0.6.0)` of a component's own file, and what `FetchContent_Declare` names.
fn cmake(path: &str, text: &str, lookup: &Lookup<'_>) -> Result<Vec<Statement>, StoreError> {
    let mut found = Vec::new();
    for (line, name, words) in calls(text) {
        let after =
            |key: &str| words.iter().position(|word| *word == key).and_then(|at| words.get(at + 1)).copied();
        match (name.to_lowercase().as_str(), &words[..]) {
            ("set", [variable, version, ..]) => {
                let library =
                    variable.strip_suffix("_VERSION").filter(|library| !library.starts_with("CMAKE"));
                let is_version = version.split('.').count() >= 2
                    && version
                        .split('.')
                        .all(|part| !part.is_empty() && part.bytes().all(|b| b.is_ascii_digit()));
                if let Some(library) = library.filter(|_| is_version) {
                    let component = library.to_lowercase().replace('_', "-");
                    let (version, place) = ((*version).to_owned(), format!("{path}:{line}"));
                    found.push(Statement { component, version, place, how: How::Sources });
                }
            }
            ("fetchcontent_declare", _) => {
                if let (Some(address), Some(tag)) = (after("GIT_REPOSITORY"), after("GIT_TAG"))
                    && let Some(component) = component_of(address)
                {
                    let version = version_of(&component, address, tag, lookup)?;
                    let place = format!("{path}:{}", line_of(text, tag).unwrap_or(line));
                    found.push(Statement { component, version, place, how: How::FetchContent });
                }
            }
            _ => {}
        }
    }
    Ok(found)
}

/// The line of a word that is part of `text` itself.
fn line_of(text: &str, word: &str) -> Option<usize> {
    let at = (word.as_ptr() as usize).checked_sub(text.as_ptr() as usize)?;
    Some(text.get(..at)?.matches('\n').count() + 1)
}

/// The calls of a CMake file: line, name and words.
fn calls(text: &str) -> Vec<(usize, &str, Vec<&str>)> {
    let mut found = Vec::new();
    let mut words: Vec<&str> = Vec::new();
    let mut call: Option<(usize, &str)> = None;
    let mut depth = 0;
    for (line, content) in (1..).zip(text.lines()) {
        let content = content.split('#').next().unwrap_or_default();
        let mut rest = content;
        while let Some(at) = rest.find(|c: char| !c.is_whitespace()) {
            rest = &rest[at..];
            let mark = |c: char| c.is_whitespace() || matches!(c, '(' | ')' | '"');
            let length = match rest.as_bytes()[0] {
                b'"' => rest[1..].find('"').map_or(rest.len(), |end| end + 2),
                b'(' | b')' => 1,
                _ => rest.find(mark).unwrap_or(rest.len()),
            };
            let word = &rest[..length];
            rest = &rest[length..];
            match word {
                "(" => {
                    depth += 1;
                    if depth == 1 {
                        call = words.pop().map(|name| (line, name));
                        words.clear();
                    }
                }
                ")" => {
                    depth -= 1;
                    if depth == 0 {
                        found
                            .extend(call.take().map(|(line, name)| (line, name, std::mem::take(&mut words))));
                    }
                }
                word => words.push(word.trim_matches('"')),
            }
        }
    }
    found
}

/// By path, the addresses in `.gitmodules`.
pub(super) fn submodules(text: &str) -> BTreeMap<String, String> {
    let mut found = BTreeMap::new();
    let (mut path, mut url) = (None, None);
    for line in text.lines().chain(["["]) {
        if line.trim_start().starts_with('[') {
            if let (Some(path), Some(url)) = (path.take(), url.take()) {
                found.insert(path, url);
            }
        } else if let Some((key, value)) = line.split_once('=') {
            let value = Some(value.trim().to_owned());
            match key.trim() {
                "path" => path = value,
                "url" => url = value,
                _ => {}
            }
        }
    }
    found
}

/// The pins of a `Package.resolved` of any of its formats.
fn resolved(path: &str, text: &str) -> Vec<Statement> {
    let Ok(document) = serde_json::from_str::<serde_json::Value>(text) else { return Vec::new() };
    let pins =
        document.get("pins").or_else(|| document.pointer("/object/pins")).and_then(|pins| pins.as_array());
    let pins = pins.into_iter().flatten();
    pins.filter_map(|pin| {
        let location = pin.get("location").or_else(|| pin.get("repositoryURL"))?.as_str()?;
        let state = pin.get("state")?;
        let version = state.get("version").or_else(|| state.get("revision"))?.as_str()?;
        let component = component_of(location)?;
        let version = plain_version(version);
        Some(Statement { component, version, place: path.to_owned(), how: How::PackageResolved })
    })
    .collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tools::git::{fixture::ForkFixture, tree_path::TreePath};

    fn mlx(version: [u32; 3]) -> String {
        let [major, minor, patch] = version;
        format!(
            "#pragma once\n#define MLX_VERSION_MAJOR {major}\n#define MLX_VERSION_MINOR {minor}\n\
             #define MLX_VERSION_PATCH {patch}\n#define MLX_VERSION_NUMERIC (MLX_VERSION_MAJOR * 2)\n"
        )
    }

    fn mlx_c(own: &str, mlx: &str) -> String {
        format!(
            "if(NOT MLX_C_VERSION)\n  set(MLX_C_VERSION {own})\nendif()\nset(CMAKE_CXX_VERSION 1.2)\n\
             FetchContent_Declare(\n    mlx # the library\n    GIT_REPOSITORY \"https://example.org/o/mlx.git\"\n    \
             GIT_TAG {mlx})\n"
        )
    }

    fn told(found: &[Disagreement]) -> Vec<String> {
        let told = |d: &Disagreement| {
            format!(
                "{}: {} ({}), {} ({})",
                d.component, d.fork.version, d.fork.place, d.other.version, d.other.place
            )
        };
        found.iter().map(told).collect()
    }

    #[test]
    fn a_fork_that_pairs_other_versions_than_upstream_is_told() {
        let modules = "[submodule \"mlx\"]\n\tpath = mlx\n\turl = https://example.org/o/mlx\n";
        let top =
            "FetchContent_Declare(mlx-c\n  GIT_REPOSITORY https://example.org/o/mlx-c\n  GIT_TAG v0.6.0)\n";
        let (own, upstreams) = (mlx_c("0.5.0", "v0.30.6"), mlx_c("0.6.0", "v0.31.1"));
        let header = mlx([0, 30, 6]);
        let fixture = ForkFixture::new(&[("CMakeLists.txt", top), ("x", "x")])
            .patch("copies", &[("mlx/mlx/version.h", Some(&header)), ("mlx-c/CMakeLists.txt", Some(&own))])
            .advance(
                "submodules",
                &[(".gitmodules", Some(modules)), ("mlx-c/CMakeLists.txt", Some(&upstreams))],
            );
        let tree = |commit| fixture.store.commit(commit).unwrap().tree;
        let module = Entry { id: "a".repeat(40).parse().unwrap(), mode: MODE_SUBMODULE };
        let edit = BTreeMap::from([(TreePath::new("mlx").unwrap(), Some(module))]);
        let upstream = fixture.store.edited_tree(tree(fixture.onto()), &edit).unwrap();

        // The submodule's commit is looked up in a repository of its own.
        let newer = mlx([0, 31, 1]);
        let library = ForkFixture::new(&[("mlx/version.h", &newer)]);
        let lookup = |address: &str, commit: &str| {
            let known = address.ends_with("o/mlx") && commit == "a".repeat(40);
            known.then(|| {
                (
                    Store::open(library.store.path(), &[]).unwrap(),
                    library.store.commit(library.base).unwrap().tree,
                )
            })
        };
        let fork = statements(&fixture.store, tree(fixture.head()), &lookup).unwrap();
        let upstream = statements(&fixture.store, upstream, &lookup).unwrap();
        assert_eq!(
            told(&between(&fork, &upstream, &Between::Upstream)),
            [
                "mlx: 0.30.6 (mlx/mlx/version.h:2), 0.31.1 (mlx)",
                "mlx-c: 0.5.0 (mlx-c/CMakeLists.txt:2), 0.6.0 (mlx-c/CMakeLists.txt:2)",
            ]
        );
        assert_eq!(told(&within(&fork)), ["mlx-c: 0.5.0 (mlx-c/CMakeLists.txt:2), 0.6.0 (CMakeLists.txt:3)"]);
        assert_eq!(told(&within(&upstream)), Vec::<String>::new());
    }

    #[test]
    fn a_commit_of_unknown_version_is_not_called_different() {
        let statement = |version: &str| Statement {
            component: "mlx".to_owned(),
            version: version.to_owned(),
            place: "x".to_owned(),
            how: How::Submodule,
        };
        let (commit, other) = ("a".repeat(40), "b".repeat(40));
        let differs = |one: &str, two: &str| {
            !between(&[statement(one)], &[statement(two)], &Between::Itself).is_empty()
        };
        assert!(!differs(&commit, "0.31.1") && !differs("0.31.1", "0.31.1"));
        assert!(differs(&commit, &other) && differs("0.31.1", "0.31.2"));
    }

    #[test]
    fn resolved_packages_of_both_formats_are_read() {
        let two = r#"{"pins": [{"identity": "mlx-swift", "location": "https://example.org/o/mlx-swift",
            "state": {"revision": "x", "version": "0.30.3"}}], "version": 2}"#;
        let one = r#"{"object": {"pins": [{"package": "MLX", "repositoryURL": "https://example.org/o/mlx-swift.git",
            "state": {"branch": null, "revision": "x", "version": "0.30.3"}}]}, "version": 1}"#;
        for text in [one, two] {
            let pins = resolved("Package.resolved", text);
            assert_eq!((pins[0].component.as_str(), pins[0].version.as_str()), ("mlx-swift", "0.30.3"));
        }
    }
}
