//! What has upstream mended since the base, in files that the fork's patches change or include? Commits whose title says
//! that they fix something, without those that the fork carries already.

use std::collections::{BTreeMap, BTreeSet};

use serde::Serialize;

use crate::tools::git::{
    ids::{CommitId, TreeId},
    store::{MODE_EXECUTABLE, MODE_FILE, Store, StoreError},
    tree_path::TreePath,
};

/// An upstream commit that mends something near the fork's own code.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct UpstreamFix {
    /// The commit.
    pub commit: CommitId,
    /// Its title.
    pub subject: String,
    /// Patches that change a file that it changes.
    pub same_files: Vec<usize>,
    /// Patches of which a changed file includes one that it changes, besides those.
    pub included_files: Vec<usize>,
    /// The files that they share.
    pub paths: Vec<String>,
}

/// A patch and the files that it changes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PatchFiles {
    /// The patch's number.
    pub number: usize,
    /// The files.
    pub paths: BTreeSet<TreePath>,
}

/// The fixes among `history`, the upstream commits since the base, oldest first; without those in `contained`, which the
/// fork carries as patches. `head` is the fork's tree, whose files say what they include.
///
/// # Errors
/// When objects are missing.
pub fn upstream_fixes(
    store: &Store,
    history: &[(CommitId, TreeId)],
    base: TreeId,
    head: TreeId,
    patches: &[PatchFiles],
    contained: &BTreeSet<CommitId>,
) -> Result<Vec<UpstreamFix>, StoreError> {
    let mut changed_by: BTreeMap<&TreePath, BTreeSet<usize>> = BTreeMap::new();
    for patch in patches {
        for path in &patch.paths {
            changed_by.entry(path).or_default().insert(patch.number);
        }
    }
    let included_by = includes(store, head, &changed_by)?;
    let mut fixes = Vec::new();
    let mut before = base;
    for &(commit, tree) in history {
        let old = std::mem::replace(&mut before, tree);
        let subject = store.commit(commit)?.subject;
        if contained.contains(&commit) || !says_fix(&subject) {
            continue;
        }
        let (mut same, mut included, mut paths) = (BTreeSet::new(), BTreeSet::new(), BTreeSet::new());
        for change in store.changes(old, tree)? {
            let path = change.path.to_string();
            if let Some(patches) = changed_by.get(&change.path) {
                same.extend(patches);
                paths.insert(path.clone());
            }
            if let Some(patches) =
                ending_of(change.path.as_bytes()).and_then(|ending| included_by.get(ending))
            {
                included.extend(
                    patches.iter().filter(|(_, name)| is_inclusion(name, &path)).map(|(patch, _)| *patch),
                );
                if patches.iter().any(|(_, name)| is_inclusion(name, &path)) {
                    paths.insert(path);
                }
            }
        }
        if !paths.is_empty() {
            fixes.push(UpstreamFix {
                commit,
                subject,
                included_files: included.difference(&same).copied().collect(),
                same_files: same.into_iter().collect(),
                paths: paths.into_iter().collect(),
            });
        }
    }
    Ok(fixes)
}

/// Whether a title says that something was mended that is not mere text.
pub fn says_fix(subject: &str) -> bool {
    let words: Vec<String> = subject
        .split(|c: char| !c.is_alphanumeric())
        .filter(|word| !word.is_empty())
        .map(str::to_lowercase)
        .collect();
    let fixes =
        |word: &String| matches!(word.as_str(), "fix" | "fixes" | "fixed" | "bugfix" | "bugfixes" | "hotfix");
    // `fix typo`, `fix the docs` and `fixed-size` mend nothing that runs.
    let about_text = |word: &String| {
        matches!(
            word.as_str(),
            "typo" | "typos" | "docs" | "doc" | "comment" | "comments" | "readme" | "ci" | "lint"
        )
    };
    let is_adjective = |at: usize| {
        words[at] == "fixed"
            && words.get(at + 1).is_some_and(|next| matches!(next.as_str(), "size" | "point" | "length"))
    };
    let says = (0..words.len()).any(|at| fixes(&words[at]) && !is_adjective(at));
    says && !words.iter().any(about_text)
}

/// By the last part of an included name, the patches that change a file including it, with the name as it is spelled.
type Includes = BTreeMap<Vec<u8>, BTreeSet<(usize, String)>>;

fn includes(
    store: &Store,
    head: TreeId,
    changed_by: &BTreeMap<&TreePath, BTreeSet<usize>>,
) -> Result<Includes, StoreError> {
    let mut includes = Includes::new();
    for (path, patches) in changed_by {
        let Some(entry) =
            store.entry(head, path)?.filter(|entry| matches!(entry.mode, MODE_FILE | MODE_EXECUTABLE))
        else {
            continue;
        };
        let bytes = store.blob(entry.id)?;
        for name in String::from_utf8_lossy(&bytes).lines().filter_map(included_name) {
            if let Some(ending) = ending_of(name.as_bytes()) {
                let known = includes.entry(ending.to_vec()).or_default();
                known.extend(patches.iter().map(|patch| (*patch, name.to_owned())));
            }
        }
    }
    Ok(includes)
}

/// The name in `#include "name"`.
fn included_name(line: &str) -> Option<&str> {
    let rest = line.trim_start().strip_prefix('#')?.trim_start();
    let name = rest.strip_prefix("include").or_else(|| rest.strip_prefix("import"))?.trim_start();
    let close = match name.chars().next()? {
        '"' => '"',
        '<' => '>',
        _ => return None,
    };
    name[1..].split(close).next().map(|name| name.trim_start_matches("./").trim_start_matches("../"))
}

/// Whether an included name is that of a path: as a whole, or as its end.
fn is_inclusion(name: &str, path: &str) -> bool {
    path.strip_suffix(name).is_some_and(|rest| rest.is_empty() || rest.ends_with('/'))
}

fn ending_of(path: &[u8]) -> Option<&[u8]> {
    path.rsplit(|&byte| byte == b'/').next()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tools::git::fixture::ForkFixture;

    #[test]
    fn titles_that_fix_something_that_runs() {
        for (title, expected) in [
            ("Fix the barrier of the fence (#12)", true),
            ("[CUDA] fixes a race", true),
            ("hotfix: leak", true),
            ("Bugfix in scan", true),
            ("Fix typo in the docs", false),
            ("Fix comment", false),
            ("Add a fixed-size pool", false),
            ("Use the prefix", false),
            ("Add fixtures", false),
        ] {
            assert_eq!(says_fix(title), expected, "{title}");
        }
    }

    #[test]
    fn fixes_near_the_patches_are_found_and_carried_ones_left_out() {
        let fixture = ForkFixture::new(&[
            ("mlx/a.cpp", "#include \"mlx/a.h\"\n#include \"utils.h\"\n"),
            ("mlx/a.h", "1\n"),
            ("mlx/utils.h", "1\n"),
            ("other/b.cpp", "1\n"),
        ])
        .patch("ours", &[("mlx/a.cpp", Some("#include \"mlx/a.h\"\n#include \"utils.h\"\nours\n"))])
        .advance("Fix elsewhere", &[("other/b.cpp", Some("2\n"))])
        .advance("Fix the header", &[("mlx/a.h", Some("2\n"))])
        .advance("Improve the header", &[("mlx/a.h", Some("3\n"))])
        .advance("Fix both", &[("mlx/a.cpp", Some("2\n")), ("mlx/utils.h", Some("2\n"))])
        .advance("Fix what is carried", &[("mlx/a.cpp", Some("3\n"))]);
        let tree = |commit| fixture.store.commit(commit).unwrap().tree;
        let history: Vec<_> = fixture.upstream[1..].iter().map(|&commit| (commit, tree(commit))).collect();
        let paths = BTreeSet::from([TreePath::new("mlx/a.cpp").unwrap()]);
        let patches = [PatchFiles { number: 1, paths }];
        let contained = BTreeSet::from([fixture.onto()]);
        let (base, head) = (tree(fixture.base), tree(fixture.head()));
        let fixes = upstream_fixes(&fixture.store, &history, base, head, &patches, &contained).unwrap();
        let told: Vec<_> = fixes
            .iter()
            .map(|fix| {
                (fix.subject.as_str(), &fix.same_files[..], &fix.included_files[..], fix.paths.join(" "))
            })
            .collect();
        assert_eq!(
            told,
            [
                ("Fix the header", &[][..], &[1][..], "mlx/a.h".to_owned()),
                ("Fix both", &[1][..], &[][..], "mlx/a.cpp mlx/utils.h".to_owned()),
            ]
        );
    }
}
