//! What is wrong with a fork as a whole: the sections of the report that are about no single patch. Each has its findings
//! as sentences and as data; a section without findings is left out, one that could not be made is told as unknown.

use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
    path::{Path, PathBuf},
};

use serde::Serialize;
use serde_json::Value;

use super::{
    agreement::{self, Between, Disagreement, Lookup, Statement},
    below::Below,
    declarations::{self, Mismatch, MismatchKind, Place},
    inventory::{self, Carried, Fault, InventoryAudit, Whereabouts},
    provenance::{self, KnownBy, Original, Provenance},
    recommend::shown,
    report::{PatchReport, Section, Unknown},
    supply_chain::{self, ManifestFault, TwoCodebases},
    upstream_fixes::{PatchFiles, UpstreamFix, upstream_fixes},
};
use crate::{
    config::fork::StackSpec,
    fork::{
        crates::crate_file,
        nearest::nearest,
        open::{Source, store_folder},
    },
    rebase::sync::Forecasted,
    stack::archive::unpacked,
    tools::{
        file::{self, Most},
        git::{
            ids::{CommitId, TreeId},
            mirror::{self, MirrorError, RemoteRefs},
            store::{MODE_EXECUTABLE, MODE_FILE, MODE_SUBMODULE, Store, StoreError},
            tree_path::TreePath,
        },
    },
};

/// The sections about a fork, and what could not be looked into.
///
/// # Errors
/// When objects are missing.
pub fn sections(
    root: &Path,
    whole: &Forecasted,
    (source, below): (&Source, &[Below]),
    patches: &[PatchReport],
) -> Result<(Vec<Section>, Vec<Unknown>), StoreError> {
    let mut unknown = Vec::new();
    let head = head_tree(whole);
    let sections = [
        versions(root, whole, (source, below), head, &mut unknown)?,
        headers(whole, head)?,
        fixes(whole, head, patches)?,
        copied(root, whole, source, head, &mut unknown)?,
        hand_kept_list(whole, head, &mut unknown)?,
        supply(root, whole, head, &mut unknown)?,
    ];
    Ok((sections.into_iter().flatten().collect(), unknown))
}

/// The tree that the fork ships: the whole stack on its own base.
pub fn head_tree(whole: &Forecasted) -> TreeId {
    whole.replayed.steps.last().map_or(whole.replayed.base, |step| step.after)
}

fn section(name: &str, title: &str, findings: Vec<String>, data: &impl Serialize) -> Option<Section> {
    let data = serde_json::to_value(data).unwrap_or(Value::Null);
    let (name, title) = (name.to_owned(), title.to_owned());
    (!findings.is_empty()).then_some(Section { name, title, findings, data })
}

fn versions(
    root: &Path,
    whole: &Forecasted,
    (source, below): (&Source, &[Below]),
    head: TreeId,
    unknown: &mut Vec<Unknown>,
) -> Result<Option<Section>, StoreError> {
    let folder = store_folder(root, &whole.spec, "parts.git");
    let lookup = |address: &str, name: &str| sources_at(source, &folder, address, name);
    let lookup: &Lookup<'_> = &lookup;
    let fork = agreement::statements(&whole.store, head, lookup)?;
    let upstream = agreement::statements(&whole.store, whole.target.onto.tree, lookup)?;
    let mut found = agreement::within(&fork);
    found.extend(agreement::between(&fork, &upstream, &Between::Upstream));
    for other in below {
        match other.statements(lookup)? {
            Ok(theirs) => {
                found.extend(agreement::between(&fork, &theirs, &Between::Fork(other.name.clone())));
            }
            Err(why) => unknown.push(Unknown {
                what: format!(
                    "whether the versions fit those of fork {}, which this one builds on",
                    other.name
                ),
                why,
            }),
        }
    }
    let unread: BTreeSet<&str> = fork
        .iter()
        .chain(&upstream)
        .filter(|said| is_commit(said))
        .map(|said| said.component.as_str())
        .collect();
    if !unread.is_empty() {
        unknown.push(Unknown {
            what: format!("the versions of {}", unread.into_iter().collect::<Vec<_>>().join(", ")),
            why: "they are pinned by commit, and their sources are not at hand: give mirrors with --mirror-root"
                .to_owned(),
        });
    }
    Ok(section("agreement", "Versions that do not fit each other", version_sentences(&found), &found))
}

/// Trees that are copies of another project: the fork itself where it is a vendored copy, and every folder that the fork
/// has where upstream has a submodule.
fn copied(
    root: &Path,
    whole: &Forecasted,
    source: &Source,
    head: TreeId,
    unknown: &mut Vec<Unknown>,
) -> Result<Option<Section>, StoreError> {
    let mut found: Vec<Provenance> = Vec::new();
    if matches!(whole.spec.stack, StackSpec::Vendored(_)) {
        let known_by = KnownBy::Nearest;
        let (of, base) = (whole.spec.upstream.repository.clone(), (whole.target.base.commit, known_by));
        let original = Original { of, base, head: whole.target.onto.commit, tags: &whole.tags };
        found.push(provenance::provenance(&whole.store, "", head, &original)?);
    }
    let upstream = whole.target.base.tree;
    for (path, address, commit) in submodules_of(&whole.store, upstream)? {
        let Some(copy) = whole.store.folder(head, &path)? else { continue };
        let folder = store_folder(root, &whole.spec, "parts.git");
        match project_at(source, &folder, &address, whole.store.path()) {
            Ok((store, refs)) => {
                let main = ["main", "master"].iter().find_map(|name| refs.branches.get(*name));
                let Some(&tip) = main.or_else(|| refs.branches.values().next()) else { continue };
                let base = match store.has(commit) {
                    true => Some((commit, KnownBy::Submodule)),
                    false => nearest(&store, copy, tip)?.map(|near| (near.commit, KnownBy::Nearest)),
                };
                let Some(base) = base else {
                    let (what, why) = (
                        format!("where the files of {path} come from"),
                        format!("{address} shares none of them"),
                    );
                    unknown.push(Unknown { what, why });
                    continue;
                };
                let original = Original { of: address, base, head: tip, tags: &refs.tags };
                found.push(provenance::provenance(&store, &path.to_string(), copy, &original)?);
            }
            Err(why) => unknown.push(Unknown { what: format!("where the files of {path} come from"), why }),
        }
    }
    let sentences = found.iter().flat_map(provenance::sentences).collect();
    Ok(section("provenance", "Where the files of copied trees come from", sentences, &found))
}

/// The submodules of a tree: path, address and commit.
fn submodules_of(store: &Store, tree: TreeId) -> Result<Vec<(TreePath, String, CommitId)>, StoreError> {
    let Ok(file) = TreePath::new(".gitmodules") else { return Ok(Vec::new()) };
    let Some(entry) = store.entry(tree, &file)? else { return Ok(Vec::new()) };
    let addresses = agreement::submodules(&String::from_utf8_lossy(&store.blob(entry.id)?));
    let mut found = Vec::new();
    for (path, address) in addresses {
        let Ok(path) = TreePath::new(path.as_bytes()) else { continue };
        let entry = store.entry(tree, &path)?.filter(|entry| entry.mode == MODE_SUBMODULE);
        if let Some(commit) = entry.and_then(|entry| entry.id.to_string().parse().ok()) {
            found.push((path, address, commit));
        }
    }
    Ok(found)
}

/// A project's objects and refs from its mirror, with those of the store `also`.
fn project_at(
    source: &Source,
    folder: &Path,
    address: &str,
    also: &Path,
) -> Result<(Store, RemoteRefs), String> {
    let Source::Mirrors(mirrors) = source else {
        return Err(format!("{address} is not at hand: give mirrors with --mirror-root"));
    };
    let open = || -> Result<(Store, RemoteRefs), MirrorError> {
        let mirror = mirror::find_mirror(mirrors, address)?;
        let name = mirror::owner_and_name(address).unwrap_or_default().replace('/', "+");
        let store = Store::open(&folder.join(format!("{name}.copies")), &[mirror.clone(), also.to_owned()])?;
        Ok((store, mirror::mirror_refs(&mirror)?))
    };
    open().map_err(|error| error.to_string())
}

fn is_commit(statement: &Statement) -> bool {
    statement.version.parse::<CommitId>().is_ok()
}

/// The sources of a component at a commit, from a mirror.
fn sources_at(source: &Source, folder: &Path, address: &str, commit: &str) -> Option<(Store, TreeId)> {
    let Source::Mirrors(mirrors) = source else { return None };
    let mirror: PathBuf = mirror::find_mirror(mirrors, address).ok()?;
    let name = mirror::owner_and_name(address)?.replace('/', "+");
    let store = Store::open(&folder.join(name), &[mirror]).ok()?;
    let tree = store.commit(commit.parse().ok()?).ok()?.tree;
    Some((store, tree))
}

/// One sentence for the pairing as a whole, one for each contradiction of the fork with itself.
fn version_sentences(found: &[Disagreement]) -> Vec<String> {
    let mut sentences = Vec::new();
    let mut others: Vec<&Between> =
        found.iter().map(|d| &d.between).filter(|b| **b != Between::Itself).collect();
    others.dedup();
    for other in others {
        let of: Vec<&Disagreement> = found.iter().filter(|d| d.between == *other).collect();
        let list = |side: fn(&Disagreement) -> &Statement| {
            of.iter()
                .map(|d| format!("{} {}", d.component, side(d).version))
                .collect::<Vec<_>>()
                .join(" with ")
        };
        let who = match other {
            Between::Fork(name) => format!("fork {name}"),
            _ => "upstream".to_owned(),
        };
        let places = of.iter().map(|d| d.fork.place.as_str()).collect::<Vec<_>>().join(", ");
        sentences.push(format!(
            "the fork has {} where {who} has {} ({places})",
            list(|d| &d.fork),
            list(|d| &d.other)
        ));
    }
    for Disagreement { component, fork, other, .. } in found.iter().filter(|d| d.between == Between::Itself) {
        sentences.push(format!(
            "{component} is {} in {} and {} in {}",
            fork.version, fork.place, other.version, other.place
        ));
    }
    sentences
}

fn headers(whole: &Forecasted, head: TreeId) -> Result<Option<Section>, StoreError> {
    let mut found = declarations::mismatches(&whole.store, head)?;
    if !found.is_empty() {
        let steps = &whole.replayed.steps;
        let trees: Vec<(usize, TreeId)> = steps.iter().map(|step| (step.number, step.after)).collect();
        declarations::blame(&whole.store, &mut found, whole.replayed.base, &trees)?;
    }
    let sentences = found.iter().map(mismatch_sentence).collect();
    Ok(section("declarations", "Headers and sources that disagree", sentences, &found))
}

fn mismatch_sentence(mismatch: &Mismatch) -> String {
    let at = |place: &Place| format!("{}:{}", place.path, place.line);
    let name = &mismatch.function;
    let what = match (&mismatch.kind, &mismatch.declared, &mismatch.defined) {
        (MismatchKind::Signature, Some(declared), Some(defined)) => {
            format!(
                "{name}: {} declares {}, {} defines {}",
                at(declared),
                declared.signature,
                at(defined),
                defined.signature
            )
        }
        (_, Some(declared), _) => format!("{name}: {} declares it, no source here defines it", at(declared)),
        (_, None, Some(defined)) => format!("{name}: {} exports it, no header declares it", at(defined)),
        _ => name.clone(),
    };
    match mismatch.since_patch {
        Some(number) => format!("{what} (since patch {number})"),
        None => format!("{what} (in the base, too)"),
    }
}

fn fixes(whole: &Forecasted, head: TreeId, patches: &[PatchReport]) -> Result<Option<Section>, StoreError> {
    let files: Vec<PatchFiles> = whole
        .replayed
        .steps
        .iter()
        .map(|step| {
            let paths = step.changes.iter().map(|change| change.path.clone()).collect();
            PatchFiles { number: step.number, paths }
        })
        .collect();
    let history: Vec<(CommitId, TreeId)> =
        whole.target.history.iter().map(|milestone| (milestone.commit, milestone.tree)).collect();
    let contained = patches.iter().flat_map(|patch| &patch.landed).filter(|landing| landing.share >= 1.0);
    let contained = contained.map(|landing| landing.commit).collect();
    let found = upstream_fixes(&whole.store, &history, whole.target.base.tree, head, &files, &contained)?;
    let sentences = found.iter().map(fix_sentence).collect();
    Ok(section("upstream-fixes", "What upstream has fixed near the patches", sentences, &found))
}

/// How many of the patches near a fix are named.
const NEAR_PATCHES: usize = 6;

fn fix_sentence(fix: &UpstreamFix) -> String {
    let patches = |numbers: &[usize], word: &str| {
        let list: Vec<String> = numbers.iter().map(usize::to_string).collect();
        let noun = if list.len() == 1 { "patch" } else { "patches" };
        (!list.is_empty()).then(|| format!("{word} {noun} {}", shown(&list, NEAR_PATCHES)))
    };
    let near = [patches(&fix.same_files, "files of"), patches(&fix.included_files, "headers used by")];
    let near: Vec<String> = near.into_iter().flatten().collect();
    format!("{} {} ({})", fix.commit.short(), fix.subject, near.join("; "))
}

/// Compares the list that `fork.toml` names; it stands in the fork's own tree.
fn hand_kept_list(
    whole: &Forecasted,
    head: TreeId,
    unknown: &mut Vec<Unknown>,
) -> Result<Option<Section>, StoreError> {
    let Some(file) = &whole.spec.inventory else { return Ok(None) };
    let entry = match TreePath::new(file.as_bytes()) {
        Ok(path) => whole.store.entry(head, &path)?,
        Err(_) => None,
    };
    let Some(entry) = entry else {
        let why = "the fork's head has no such file: correct `inventory` in fork.toml".to_owned();
        unknown.push(Unknown { what: format!("whether `{file}` lists what is carried"), why });
        return Ok(None);
    };
    let bytes = whole.store.blob(entry.id)?;
    let carried: Vec<Carried> = whole
        .replayed
        .steps
        .iter()
        .map(|step| Carried {
            number: step.number,
            subject: step.subject.clone(),
            commit: step.commit,
            file: step.file.clone(),
        })
        .collect();
    let whereabouts = |name: &str| match whole.store.find_commit(name) {
        None => Whereabouts::Nowhere,
        Some(commit) => match whole.store.is_ancestor(commit, whole.target.onto.commit) {
            Ok(true) => Whereabouts::Upstream,
            _ => Whereabouts::Elsewhere,
        },
    };
    let audit = inventory::audit(file, &String::from_utf8_lossy(&bytes), &carried, &whereabouts);
    let sentences = inventory_sentences(&audit);
    Ok(section("inventory", "The list kept by hand", sentences, &audit))
}

fn inventory_sentences(audit: &InventoryAudit) -> Vec<String> {
    let wrong = audit.wrong.iter().map(|wrong| {
        let at = format!("{}:{} lists {}", audit.file, wrong.line, wrong.names);
        match (&wrong.fault, wrong.patch) {
            (Fault::Upstream, _) => format!("{at}, which upstream has"),
            (Fault::NotCarried, _) => format!("{at}, which is no longer carried"),
            (Fault::Unknown, _) => format!("{at}, which is no commit or patch here"),
            (Fault::OtherId, patch) => format!("{at}, which is patch {} now", patch.unwrap_or_default()),
            (Fault::OtherSubject { really }, patch) => {
                format!("{at} with other words than those of patch {}: {really}", patch.unwrap_or_default())
            }
        }
    });
    let unlisted = audit.not_listed.iter();
    wrong
        .chain(unlisted.map(|patch| format!("patch {} is not listed: {}", patch.patch, patch.subject)))
        .collect()
}

/// What the supply chain's section holds for programs.
#[derive(Serialize)]
struct Supply {
    manifests: Vec<ManifestFault>,
    two_codebases: Vec<TwoCodebases>,
}

fn supply(
    root: &Path,
    whole: &Forecasted,
    head: TreeId,
    unknown: &mut Vec<Unknown>,
) -> Result<Option<Section>, StoreError> {
    let store = &whole.store;
    let ours = manifests(store, head)?;
    let mut found = Supply { manifests: supply_chain::manifest_faults(&ours), two_codebases: Vec::new() };
    let theirs = manifests(store, whole.target.onto.tree)?;
    for spec in &whole.spec.registry {
        let consumer = spec.used_by.as_ref().map(|folder| rust_sources(&root.join(folder)));
        for (with, tree, manifests) in [("fork", head, &ours), ("upstream", whole.target.onto.tree, &theirs)]
        {
            let Some(krate) =
                supply_chain::crates(manifests).into_iter().find(|krate| krate.name == spec.krate)
            else {
                continue;
            };
            let Some(version) = &krate.version else { continue };
            // Every commit of a branch carries some version; that it is not published yet is nothing to tell.
            let published = match crate_file(&krate.name, version) {
                Ok(bytes) => unpacked(&bytes).map_err(|error| error.to_string()),
                Err(error) => Err(error.to_string()),
            };
            match published {
                Ok(files) => {
                    let published =
                        files.into_iter().map(|(path, file)| (path.to_string(), file.bytes)).collect();
                    let tree = folder_files(store, tree, &krate.folder)?;
                    let compared =
                        supply_chain::two_codebases(&krate, with, &published, &tree, consumer.as_deref());
                    found.two_codebases.extend(compared);
                }
                Err(why) => unknown.push(Unknown {
                    what: format!("whether {} {version} of the registry is {with}'s", krate.name),
                    why,
                }),
            }
        }
    }
    let sentences = found.manifests.iter().map(manifest_sentence);
    let sentences = sentences.chain(found.two_codebases.iter().map(codebases_sentence)).collect();
    Ok(section("supply-chain", "What those who depend on it get", sentences, &found))
}

fn manifest_sentence(fault: &ManifestFault) -> String {
    match fault {
        ManifestFault::GitDependency { krate, dependency, git, version, .. } => match version {
            Some(version) => {
                format!(
                    "{krate} takes {dependency} from {git}; once published it takes {version} of the registry instead"
                )
            }
            None => format!("{krate} takes {dependency} from {git}, so that it cannot be published"),
        },
        ManifestFault::PatchSection { manifest, of, crates, published } => {
            let whom = match published.is_empty() {
                true => "whoever depends on this workspace".to_owned(),
                false => format!("whoever depends on {}", published.join(", ")),
            };
            format!("{manifest} patches {} of {of}: {whom} gets the unpatched code", crates.join(", "))
        }
    }
}

fn codebases_sentence(found: &TwoCodebases) -> String {
    let files = found.changed.len() + found.published_only.len() + found.tree_only.len();
    let used: Vec<&str> =
        found.items.iter().filter(|item| item.used == Some(true)).map(|item| item.item.as_str()).collect();
    let used = match (found.items.iter().any(|item| item.used.is_some()), &used[..]) {
        (false, _) => String::new(),
        (true, []) => "; the consumer names none of them".to_owned(),
        (true, used) if used.len() > MOST_NAMED => {
            let (first, rest) = used.split_at(MOST_NAMED);
            format!("; the consumer names {} and {} more", first.join(", "), rest.len())
        }
        (true, used) => format!("; the consumer names {}", used.join(", ")),
    };
    format!(
        "{} {} is two codebases: the registry's and that of the {}, which differ in {files} file{} (+{} -{}) and {} public items{used}",
        found.krate,
        found.version,
        if found.with == "fork" { "fork's head" } else { "upstream commit" },
        if files == 1 { "" } else { "s" },
        found.added_lines,
        found.removed_lines,
        found.items.len(),
    )
}

/// A sentence names no more items than this.
const MOST_NAMED: usize = 8;

fn manifests(store: &Store, tree: TreeId) -> Result<BTreeMap<String, String>, StoreError> {
    let mut found = BTreeMap::new();
    for change in store.changes(store.empty_tree()?, tree)? {
        let name = change.path.to_string();
        let is_manifest = name == "Cargo.toml" || name.ends_with("/Cargo.toml");
        if let Some(entry) = change.new.filter(|entry| is_manifest && is_file(entry.mode)) {
            found.insert(name, String::from_utf8_lossy(&store.blob(entry.id)?).into_owned());
        }
    }
    Ok(found)
}

/// The files below a folder of a tree, by their paths in it.
fn folder_files(store: &Store, tree: TreeId, folder: &str) -> Result<BTreeMap<String, Vec<u8>>, StoreError> {
    let tree = match TreePath::new(folder.as_bytes()) {
        Ok(path) => store.folder(tree, &path)?,
        Err(_) => Some(tree),
    };
    let Some(tree) = tree else { return Ok(BTreeMap::new()) };
    let mut files = BTreeMap::new();
    for change in store.changes(store.empty_tree()?, tree)? {
        if let Some(entry) = change.new.filter(|entry| is_file(entry.mode)) {
            files.insert(change.path.to_string(), store.blob(entry.id)?);
        }
    }
    Ok(files)
}

fn is_file(mode: u32) -> bool {
    matches!(mode, MODE_FILE | MODE_EXECUTABLE)
}

/// The Rust sources below a folder on disk, in the order of their paths.
fn rust_sources(folder: &Path) -> Vec<String> {
    let mut texts = Vec::new();
    let mut entries: Vec<PathBuf> =
        fs::read_dir(folder).into_iter().flatten().flatten().map(|entry| entry.path()).collect();
    entries.sort();
    for path in entries {
        if path.is_dir() {
            texts.extend(rust_sources(&path));
        } else if path.extension().is_some_and(|ending| ending == "rs") {
            texts.extend(file::text(&path, Most::Configuration));
        }
    }
    texts
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        config::fork::parse_fork, event::Silent, evidence::report_fork, fork::target::Onto,
        tools::git::fixture::ForkFixture,
    };

    #[test]
    fn a_fix_near_many_patches_names_a_few() {
        let sentence = |same_files: Vec<usize>| {
            let commit: CommitId = "1".repeat(40).parse().unwrap();
            let subject = "Fix".to_owned();
            fix_sentence(&UpstreamFix { commit, subject, same_files, included_files: vec![], paths: vec![] })
        };
        assert!(sentence(vec![2, 3]).ends_with("Fix (files of patches 2, 3)"));
        assert!(sentence((1..=9).collect()).ends_with("(files of patches 1, 2, 3, 4, 5, 6 and 3 more)"));
    }

    #[test]
    fn a_fork_with_every_fault_gets_every_section() {
        let header = "extern \"C\" {\nint one(int a);\nint two(int a);\n}\n";
        let source = "#include \"c/api.h\"\nextern \"C\" int one(int a) { return a; }\nextern \"C\" int two(int a) { return a; }\n";
        let cmake = |version: &str| format!("set(LIB_VERSION {version})\n");
        let fixture = ForkFixture::new(&[
            ("c/api.h", header),
            ("c/api.cpp", source),
            ("lib/CMakeLists.txt", &cmake("1.0.0")),
        ])
        .patch(
            "Give two a scale",
            &[("c/api.cpp", Some(&source.replace("two(int a)", "two(int a, float b)")))],
        )
        .patch("List the patches", &[("PATCHES.md", Some("- abcdef0 something lost\n"))])
        .advance("Fix the reading of headers", &[("c/api.h", Some(&format!("{header}// mended\n")))])
        .advance("New version", &[("lib/CMakeLists.txt", Some(&cmake("1.1.0")))]);
        fixture.name("refs/heads/main", fixture.onto());
        fixture.name("refs/heads/fork", fixture.head());
        let text = "summary = \"\"\ninventory = \"PATCHES.md\"\n\
                    [upstream]\nrepository = \"https://example.org/owner/name\"\nbranch = \"main\"\n\
                    [stack]\nkind = \"branch\"\nrepository = \"https://example.org/owner/name\"\nbranch = \"fork\"\n";
        let spec = parse_fork("fork", "fork.toml", text).unwrap();
        let source = Source::Mirrors(fixture.mirror_root().to_owned());
        let report = report_fork(fixture.mirror_root(), spec, &Onto::Latest, &source, &Silent).unwrap();
        let told: Vec<String> = report
            .sections
            .iter()
            .flat_map(|section| section.findings.iter().map(|finding| format!("{}: {finding}", section.name)))
            .collect();
        let fix = fixture.upstream[1].short();
        assert_eq!(
            told,
            [
                "agreement: the fork has lib 1.0.0 where upstream has lib 1.1.0 (lib/CMakeLists.txt:1)".to_owned(),
                "declarations: two: c/api.h:3 declares int (int), c/api.cpp:3 defines int (int, float) (since patch 1)"
                    .to_owned(),
                format!("upstream-fixes: {fix} Fix the reading of headers (headers used by patch 1)"),
                "inventory: PATCHES.md:1 lists abcdef0, which is no commit or patch here".to_owned(),
                "inventory: patch 1 is not listed: Give two a scale".to_owned(),
                "inventory: patch 2 is not listed: List the patches".to_owned(),
            ]
        );
        assert_eq!(report.sections[1].data[0]["function"], "two");
    }
}
