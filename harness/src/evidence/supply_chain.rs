//! Can those who take a crate from the registry, or from a git revision, rely on what they get? Compares a published crate
//! with the tree that carries the same version, and reads manifests for git dependencies that cannot be published and for
//! `[patch]` sections that nobody inherits.

use std::collections::{BTreeMap, BTreeSet};

use serde::Serialize;
use similar::{Algorithm, DiffTag, capture_diff_slices};
use toml::{Table, Value};

use super::public_items::{PublicItems, is_used, names_used, public_items};

/// A version string that means two codebases.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct TwoCodebases {
    /// The crate.
    #[serde(rename = "crate")]
    pub krate: String,
    /// The version that both carry.
    pub version: String,
    /// What the published crate is compared with: `fork` or `upstream`.
    pub with: &'static str,
    /// The commit that the published crate says it was packaged from.
    pub packaged_from: Option<String>,
    /// Files that differ.
    pub changed: Vec<String>,
    /// Files of the published crate alone.
    pub published_only: Vec<String>,
    /// Files of the tree alone.
    pub tree_only: Vec<String>,
    /// Lines that the tree has and the published crate has not.
    pub added_lines: usize,
    /// Lines that the published crate has and the tree has not.
    pub removed_lines: usize,
    /// Public items that differ.
    pub items: Vec<ItemChange>,
}

/// A public item that the tree and the published crate do not share.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct ItemChange {
    /// Its path.
    pub item: String,
    /// How it differs.
    pub change: Change,
    /// Whether the consumer that was looked at writes its name; absent when there is none.
    pub used: Option<bool>,
}

/// How an item differs from the published crate to the tree.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Change {
    /// Only the tree has it.
    Added,
    /// Only the published crate has it.
    Removed,
    /// Both have it, with different signatures.
    Changed,
}

/// Something in a manifest that consumers do not get.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case", tag = "is")]
pub enum ManifestFault {
    /// A crate that may be published depends on a git revision.
    GitDependency {
        /// The manifest.
        manifest: String,
        /// The crate.
        #[serde(rename = "crate")]
        krate: String,
        /// The dependency.
        dependency: String,
        /// The repository and revision.
        git: String,
        /// The version that a published crate takes instead; without one it cannot be published.
        version: Option<String>,
    },
    /// A `[patch]` section: in force for this workspace, not for those who depend on its crates.
    PatchSection {
        /// The manifest.
        manifest: String,
        /// What is patched: a registry or an address.
        of: String,
        /// The patched crates.
        crates: Vec<String>,
        /// Crates of this tree that may be published and depend on one of them.
        published: Vec<String>,
    },
}

/// A crate that a tree holds.
#[derive(Debug, Clone, PartialEq)]
pub struct CrateManifest {
    /// The folder of its manifest; empty at the root.
    pub folder: String,
    /// Its name.
    pub name: String,
    /// Its version; that of the workspace where it says so.
    pub version: Option<String>,
    /// Whether it may be published.
    pub is_publishable: bool,
    dependencies: BTreeMap<String, Value>,
}

/// The crates that the manifests (by path, with their texts) describe. Texts that are no TOML are left out.
pub fn crates(manifests: &BTreeMap<String, String>) -> Vec<CrateManifest> {
    let tables: BTreeMap<&str, Table> = manifests
        .iter()
        .filter_map(|(path, text)| Some((folder_of(path), text.parse::<Table>().ok()?)))
        .collect();
    let workspace_of = |folder: &str| {
        let holders =
            tables.iter().filter(|(holder, table)| table.contains_key("workspace") && holds(holder, folder));
        holders.max_by_key(|(holder, _)| holder.len()).and_then(|(_, table)| table["workspace"].as_table())
    };
    let mut found = Vec::new();
    for (folder, table) in &tables {
        let Some(package) = table.get("package").and_then(Value::as_table) else { continue };
        let Some(name) = package.get("name").and_then(Value::as_str) else { continue };
        let workspace = workspace_of(folder);
        let inherited = |key: &str| {
            let value = package.get(key)?;
            match value.get("workspace") {
                Some(_) => workspace?.get("package")?.get(key).cloned(),
                None => Some(value.clone()),
            }
        };
        let mut dependencies = BTreeMap::new();
        for list in dependency_tables(table) {
            for (name, value) in list {
                let inherits = value.get("workspace").and_then(Value::as_bool) == Some(true);
                let value = match inherits {
                    true => workspace.and_then(|w| w.get("dependencies")?.get(name)).unwrap_or(value),
                    false => value,
                };
                dependencies.insert(name.clone(), value.clone());
            }
        }
        found.push(CrateManifest {
            folder: (*folder).to_owned(),
            name: name.to_owned(),
            version: inherited("version").and_then(|version| Some(version.as_str()?.to_owned())),
            is_publishable: match inherited("publish") {
                Some(Value::Boolean(publish)) => publish,
                Some(Value::Array(registries)) => !registries.is_empty(),
                _ => true,
            },
            dependencies,
        });
    }
    found
}

/// What manifests promise that consumers do not get.
pub fn manifest_faults(manifests: &BTreeMap<String, String>) -> Vec<ManifestFault> {
    let crates = crates(manifests);
    let mut faults = Vec::new();
    for krate in crates.iter().filter(|krate| krate.is_publishable) {
        for (dependency, value) in &krate.dependencies {
            let text = |key: &str| value.get(key).and_then(Value::as_str);
            let Some(address) = text("git") else { continue };
            let revision = text("rev").or_else(|| text("tag")).or_else(|| text("branch"));
            faults.push(ManifestFault::GitDependency {
                manifest: manifest_of(&krate.folder),
                krate: krate.name.clone(),
                dependency: text("package").unwrap_or(dependency).to_owned(),
                git: revision
                    .map_or_else(|| address.to_owned(), |revision| format!("{address} at {revision}")),
                version: text("version").map(str::to_owned),
            });
        }
    }
    for (path, text) in manifests {
        let Ok(table) = text.parse::<Table>() else { continue };
        for (of, patched) in table.get("patch").and_then(Value::as_table).into_iter().flatten() {
            let names: Vec<String> =
                patched.as_table().into_iter().flatten().map(|(name, _)| name.clone()).collect();
            let depends = |krate: &&CrateManifest| krate.dependencies.keys().any(|name| names.contains(name));
            let published = crates.iter().filter(|krate| krate.is_publishable).filter(depends);
            faults.push(ManifestFault::PatchSection {
                manifest: path.clone(),
                of: of.clone(),
                published: published.map(|krate| krate.name.clone()).collect(),
                crates: names,
            });
        }
    }
    faults
}

/// Compares a published crate's files with those of the tree that carries the same version, and looks up which of the
/// items that differ a consumer's sources use. `None` when they are the same.
pub fn two_codebases(
    krate: &CrateManifest,
    with: &'static str,
    published: &BTreeMap<String, Vec<u8>>,
    tree: &BTreeMap<String, Vec<u8>>,
    consumer: Option<&[String]>,
) -> Option<TwoCodebases> {
    // Cargo rewrites the manifest that it packages, and keeps the original beside it.
    let original = published.get("Cargo.toml.orig");
    let of_published = |path: &str| if path == "Cargo.toml" { original } else { published.get(path) };
    let made = ["Cargo.toml.orig", ".cargo_vcs_info.json", "Cargo.lock", ".cargo-ok"];
    let paths = |files: &BTreeMap<String, Vec<u8>>| -> BTreeSet<String> {
        files.keys().filter(|path| !made.contains(&path.as_str())).cloned().collect()
    };
    let (ours, theirs) = (paths(published), paths(tree));
    let mut found = TwoCodebases {
        krate: krate.name.clone(),
        version: krate.version.clone()?,
        with,
        packaged_from: published.get(".cargo_vcs_info.json").and_then(|info| packaged_from(info)),
        changed: Vec::new(),
        published_only: ours.difference(&theirs).cloned().collect(),
        // What `include` and `exclude` leave out of a crate is no difference in its code.
        tree_only: theirs.difference(&ours).filter(|path| path.starts_with("src/")).cloned().collect(),
        added_lines: 0,
        removed_lines: 0,
        items: Vec::new(),
    };
    for path in ours.union(&theirs) {
        let (old, new) = (of_published(path), tree.get(path));
        if old == new || (new.is_some() && old.is_none() && !found.tree_only.contains(path)) {
            continue;
        }
        if old.is_some() && new.is_some() {
            found.changed.push(path.clone());
        }
        let (added, removed) = changed_lines(old, new);
        found.added_lines += added;
        found.removed_lines += removed;
    }
    let (old, new) = (items_of(published), items_of(tree));
    let used = consumer.map(|sources| names_used(&krate.name, sources.iter().map(String::as_str)));
    found.items = item_changes(&old, &new, used.as_ref());
    let is_same = found.changed.is_empty() && found.published_only.is_empty() && found.tree_only.is_empty();
    (!is_same).then_some(found)
}

fn item_changes(old: &PublicItems, new: &PublicItems, used: Option<&BTreeSet<String>>) -> Vec<ItemChange> {
    let all: BTreeSet<&String> = old.keys().chain(new.keys()).collect();
    let changes = all.into_iter().filter_map(|item| {
        let change = match (old.get(item), new.get(item)) {
            (Some(_), None) => Change::Removed,
            (None, Some(_)) => Change::Added,
            (old, new) if old != new => Change::Changed,
            _ => return None,
        };
        Some(ItemChange { item: item.clone(), change, used: used.map(|used| is_used(item, used)) })
    });
    changes.collect()
}

fn items_of(files: &BTreeMap<String, Vec<u8>>) -> PublicItems {
    let rust = files.iter().filter(|(path, _)| path.starts_with("src/") && path.ends_with(".rs"));
    let texts: Vec<(&str, String)> =
        rust.map(|(path, bytes)| (path.as_str(), String::from_utf8_lossy(bytes).into_owned())).collect();
    public_items(texts.iter().map(|(path, text)| (*path, text.as_str())))
}

fn changed_lines(old: Option<&Vec<u8>>, new: Option<&Vec<u8>>) -> (usize, usize) {
    let lines = |bytes: Option<&Vec<u8>>| -> Vec<Vec<u8>> {
        bytes
            .map(|bytes| bytes.split(|&byte| byte == b'\n').map(<[u8]>::to_vec).collect())
            .unwrap_or_default()
    };
    let (old, new) = (lines(old), lines(new));
    let changes = capture_diff_slices(Algorithm::Myers, &old, &new);
    let mut counts = (0, 0);
    for change in changes.iter().filter(|change| change.tag() != DiffTag::Equal) {
        counts.0 += change.new_range().len();
        counts.1 += change.old_range().len();
    }
    counts
}

fn packaged_from(info: &[u8]) -> Option<String> {
    let info: serde_json::Value = serde_json::from_slice(info).ok()?;
    Some(info.pointer("/git/sha1")?.as_str()?.to_owned())
}

fn dependency_tables(table: &Table) -> Vec<&Table> {
    let of = |table: &'_ Table| -> Vec<String> {
        ["dependencies", "build-dependencies"]
            .into_iter()
            .filter(|key| table.contains_key(*key))
            .map(str::to_owned)
            .collect()
    };
    let mut found: Vec<&Table> = of(table).iter().filter_map(|key| table[key.as_str()].as_table()).collect();
    for (_, target) in table.get("target").and_then(Value::as_table).into_iter().flatten() {
        if let Some(target) = target.as_table() {
            found.extend(of(target).iter().filter_map(|key| target[key.as_str()].as_table()));
        }
    }
    found
}

fn folder_of(path: &str) -> &str {
    path.rsplit_once('/').map_or("", |(folder, _)| folder)
}

fn manifest_of(folder: &str) -> String {
    if folder.is_empty() { "Cargo.toml".to_owned() } else { format!("{folder}/Cargo.toml") }
}

fn holds(holder: &str, folder: &str) -> bool {
    holder.is_empty()
        || folder == holder
        || folder.strip_prefix(holder).is_some_and(|rest| rest.starts_with('/'))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn manifests() -> BTreeMap<String, String> {
        let root = "[workspace]\nmembers = [\"a\", \"b\"]\n[workspace.package]\nversion = \"0.4.1\"\npublish = true\n\
                    [workspace.dependencies]\nsys = { git = \"https://example.org/o/sys\", rev = \"abc\" }\n\
                    [patch.crates-io]\nbase = { path = \"base\" }\n";
        let a = "[package]\nname = \"a\"\nversion.workspace = true\npublish.workspace = true\n\
                 [dependencies]\nsys.workspace = true\nbase = \"1\"\n\
                 [target.'cfg(unix)'.dependencies]\nextra = { git = \"https://example.org/o/x\", version = \"2\" }\n\
                 [dev-dependencies]\nonly = { git = \"https://example.org/o/only\" }\n";
        let b = "[package]\nname = \"b\"\nversion = \"1.0.0\"\npublish = false\n[dependencies]\nsys.workspace = true\n";
        [("Cargo.toml", root), ("a/Cargo.toml", a), ("b/Cargo.toml", b), ("c/Cargo.toml", "not toml [")]
            .into_iter()
            .map(|(path, text)| (path.to_owned(), text.to_owned()))
            .collect()
    }

    #[test]
    fn git_dependencies_and_patches_that_consumers_do_not_get() {
        let fault = |dependency: &str, git: &str, version: Option<&str>| ManifestFault::GitDependency {
            manifest: "a/Cargo.toml".to_owned(),
            krate: "a".to_owned(),
            dependency: dependency.to_owned(),
            git: git.to_owned(),
            version: version.map(str::to_owned),
        };
        assert_eq!(
            manifest_faults(&manifests()),
            [
                fault("extra", "https://example.org/o/x", Some("2")),
                fault("sys", "https://example.org/o/sys at abc", None),
                ManifestFault::PatchSection {
                    manifest: "Cargo.toml".to_owned(),
                    of: "crates-io".to_owned(),
                    crates: vec!["base".to_owned()],
                    published: vec!["a".to_owned()],
                },
            ]
        );
    }

    #[test]
    fn one_version_with_other_code_is_told_with_what_a_consumer_uses() {
        let files = |list: &[(&str, &str)]| -> BTreeMap<String, Vec<u8>> {
            list.iter().map(|(path, text)| ((*path).to_owned(), text.as_bytes().to_vec())).collect()
        };
        let krate = crates(&manifests()).into_iter().find(|krate| krate.name == "a").unwrap();
        let published = files(&[
            ("Cargo.toml", "rewritten"),
            ("Cargo.toml.orig", "as written"),
            (".cargo_vcs_info.json", "{\"git\":{\"sha1\":\"abc\"}}"),
            ("src/lib.rs", "pub fn load(path: &str) {}\npub fn gone() {}\nfn own() {}\n"),
        ]);
        let tree = files(&[
            ("Cargo.toml", "as written"),
            ("src/lib.rs", "pub fn load(path: &str, cache: bool) {}\nfn own() {}\n"),
            ("src/new.rs", "pub fn fresh() {}\n"),
            ("tests/all.rs", "left out of the crate"),
        ]);
        let consumer = ["use a::load;\nfn main() { load(\"x\") }".to_owned()];
        let found = two_codebases(&krate, "fork", &published, &tree, Some(&consumer)).unwrap();
        let items: Vec<(&str, Change, Option<bool>)> =
            found.items.iter().map(|item| (item.item.as_str(), item.change, item.used)).collect();
        assert_eq!(
            items,
            [
                ("gone", Change::Removed, Some(false)),
                ("load", Change::Changed, Some(true)),
                ("new::fresh", Change::Added, Some(false)),
            ]
        );
        assert_eq!((found.version.as_str(), found.packaged_from.as_deref()), ("0.4.1", Some("abc")));
        assert_eq!(
            (&found.changed[..], &found.tree_only[..]),
            (&["src/lib.rs".to_owned()][..], &["src/new.rs".to_owned()][..])
        );
        assert_eq!((found.added_lines, found.removed_lines), (3, 2));
        assert_eq!(two_codebases(&krate, "fork", &tree, &tree, None), None);
    }
}
