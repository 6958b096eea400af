//! Which files `.gitattributes` gives another way to merge than line by line. Only a tree's own files are asked, as they
//! stand in `git rebase`'s work tree before a patch; what a user has set up elsewhere is not known here.

use std::{
    collections::{BTreeMap, BTreeSet},
    path::Path,
    rc::Rc,
    time::Duration,
};

use git2::ObjectType;

use super::{
    command::git_command,
    ids::{EntryId, TreeId},
    merge::MergeError,
    store::{Store, StoreError, failed},
    tree_path::TreePath,
};

const TIMEOUT: Duration = Duration::from_secs(60);
/// The file's name.
const ATTRIBUTES: &[u8] = b".gitattributes";

/// How a file is merged that is not merged line by line.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Driver {
    /// The lines of both sides are kept.
    Union,
    /// A file that both sides changed conflicts as a whole.
    Binary,
    /// A program of the user's, by its name; without it git merges line by line.
    Own(String),
}

impl Store {
    /// Whether a rule of `tree` may name a driver for one of `paths`; `false` is certain.
    pub(super) fn may_have_drivers<'p>(
        &self,
        tree: TreeId,
        paths: impl IntoIterator<Item = &'p TreePath>,
    ) -> Result<bool, StoreError> {
        if !self.has_merge_rules(tree)? {
            return Ok(false);
        }
        let mut rules_of: BTreeMap<Vec<u8>, Rc<Vec<Vec<u8>>>> = BTreeMap::new();
        for path in paths {
            let bytes = path.as_bytes();
            let ends = bytes.iter().enumerate().filter(|(_, byte)| **byte == b'/').map(|(at, _)| at + 1);
            for folder in [0].into_iter().chain(ends).map(|end| &bytes[..end]) {
                if !rules_of.contains_key(folder) {
                    rules_of.insert(folder.to_vec(), self.merge_rules(tree, folder)?);
                }
                if rules_of[folder].iter().any(|pattern| may_match(pattern, bytes)) {
                    return Ok(true);
                }
            }
        }
        Ok(false)
    }

    /// The drivers that `tree` names for `paths`; files that are merged line by line are left out.
    ///
    /// # Errors
    /// When objects are missing or git fails.
    pub fn merge_drivers(
        &self,
        tree: TreeId,
        paths: &BTreeSet<TreePath>,
    ) -> Result<BTreeMap<TreePath, Driver>, MergeError> {
        if !self.may_have_drivers(tree, paths)? {
            return Ok(BTreeMap::new());
        }
        let asked: Vec<u8> =
            paths.iter().flat_map(|path| path.as_bytes().iter().copied().chain([0])).collect();
        let answer = git_command(self.path())
            .args(["check-attr", "-z", "--stdin", "--source", &tree.to_string(), "merge"])
            .stdin(asked)
            .timeout(TIMEOUT)
            .run_ok()
            .map_err(|source| MergeError::Git { store: Path::to_owned(self.path()), source })?;
        let mut fields = answer.stdout_bytes.split(|&byte| byte == 0);
        let mut drivers = BTreeMap::new();
        while let (Some(path), Some(_), Some(value)) = (fields.next(), fields.next(), fields.next()) {
            let driver = match value {
                b"unspecified" | b"set" | b"text" => continue,
                b"unset" | b"binary" => Driver::Binary,
                b"union" => Driver::Union,
                name => Driver::Own(String::from_utf8_lossy(name).into_owned()),
            };
            if let Ok(path) = TreePath::new(path) {
                drivers.insert(path, driver);
            }
        }
        Ok(drivers)
    }

    /// Whether any `.gitattributes` of a tree says how to merge. Most folders are those of the last tree that was asked.
    pub(super) fn has_merge_rules(&self, tree: TreeId) -> Result<bool, StoreError> {
        let mut open = vec![tree.oid()];
        let mut seen = Vec::new();
        let mut found = false;
        while let Some(folder) = open.pop() {
            if self.without_rules.borrow().contains(&folder) {
                continue;
            }
            seen.push(folder);
            let entries = self.repo.find_tree(folder);
            let entries = entries.map_err(|error| failed(format!("read tree {folder}"), error))?;
            for entry in &entries {
                match entry.kind() {
                    Some(ObjectType::Tree) => open.push(entry.id()),
                    Some(ObjectType::Blob) if entry.name_bytes() == ATTRIBUTES => {
                        let text = self.rules_text(EntryId::of(entry.id()));
                        let rules = !merge_patterns(&text).is_empty();
                        found = found || rules;
                    }
                    _ => {}
                }
            }
            if found {
                return Ok(true);
            }
        }
        self.without_rules.borrow_mut().extend(seen);
        Ok(false)
    }

    /// The text of a `.gitattributes`; nothing where a partial copy lacks it, as git has it then.
    fn rules_text(&self, id: EntryId) -> Vec<u8> {
        self.blob(id).unwrap_or_default()
    }

    /// The patterns of a folder's rules that say how to merge. The folder is empty or ends with a slash.
    fn merge_rules(&self, tree: TreeId, folder: &[u8]) -> Result<Rc<Vec<Vec<u8>>>, StoreError> {
        let Ok(path) = TreePath::new([folder, ATTRIBUTES].concat()) else { return Ok(Rc::default()) };
        let Some(file) = self.entry(tree, &path)?.filter(|entry| entry.is_file()) else {
            return Ok(Rc::default());
        };
        let known: Option<Rc<Vec<Vec<u8>>>> = self.merge_rules.borrow().get(&file.id).cloned();
        if let Some(known) = known {
            return Ok(known);
        }
        let rules = Rc::new(merge_patterns(&self.rules_text(file.id)));
        self.merge_rules.borrow_mut().insert(file.id, Rc::clone(&rules));
        Ok(rules)
    }
}

/// What is known of `.gitattributes` files: the patterns of the rules that say how to merge.
pub(super) type KnownRules = std::collections::HashMap<EntryId, Rc<Vec<Vec<u8>>>>;

fn merge_patterns(text: &[u8]) -> Vec<Vec<u8>> {
    let mut patterns = Vec::new();
    for line in text.split(|&byte| byte == b'\n').map(<[u8]>::trim_ascii) {
        let mut words = line.split(u8::is_ascii_whitespace).filter(|word| !word.is_empty());
        let Some(pattern) = words.next().filter(|word| !word.starts_with(b"#")) else { continue };
        let mut merges = words.map(|word| word.strip_prefix(b"-").unwrap_or(word)).map(|word| {
            let word = word.strip_prefix(b"!").unwrap_or(word);
            word == b"merge" || word == b"binary" || word.starts_with(b"merge=")
        });
        // A quoted pattern may hold spaces, and a macro may be used by any later rule.
        let anywhere = pattern.starts_with(b"\"") || pattern.starts_with(b"[attr]");
        if merges.any(|merges| merges) {
            patterns.push(if anywhere { b"**".to_vec() } else { pattern.to_vec() });
        }
    }
    patterns
}

/// Whether a pattern may mean a path; exact for plain names and endings.
fn may_match(pattern: &[u8], path: &[u8]) -> bool {
    let special = |bytes: &[u8]| bytes.iter().any(|byte| b"*?[\\/".contains(byte));
    let name = path.rsplit(|&byte| byte == b'/').next().unwrap_or(path);
    match pattern.strip_prefix(b"*") {
        Some(ending) if !special(ending) => name.ends_with(ending),
        None if !special(pattern) => name == pattern,
        _ => true,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tools::git::{
        fixture::ForkFixture,
        merge::{Favour, Pick},
    };

    #[test]
    fn only_rules_about_merging_are_taken_and_plain_ones_exactly() {
        let text = b"# *.c merge=x\n*.png binary\n*.txt text eol=lf\nCHANGES -merge\n[attr]own merge=z\nsrc/* !merge\n";
        let expected: [&[u8]; 4] = [b"*.png", b"CHANGES", b"**", b"src/*"];
        assert_eq!(merge_patterns(text), expected);
        assert!(may_match(b"*.png", b"a/b.png") && !may_match(b"*.png", b"a.png/b"));
        assert!(may_match(b"CHANGES", b"d/CHANGES") && !may_match(b"CHANGES", b"d/CHANGES.md"));
        assert!(may_match(b"src/*", b"whatever"));
    }

    #[test]
    fn files_are_merged_as_gitattributes_says_like_in_a_work_tree() {
        let text = |middle: &str| format!("1\n{middle}\n3\n");
        let files = ["log", "d/log", "whole", "own", "plain"];
        let mut base: Vec<(&str, String)> = files.iter().map(|file| (*file, text("2"))).collect();
        base.push((".gitattributes", "log merge=union\nwhole -merge\nown merge=mine\n".to_owned()));
        base.push(("d/.gitattributes", "log merge=text\n".to_owned()));
        let base: Vec<(&str, &str)> = base.iter().map(|(path, text)| (*path, &text[..])).collect();
        let (up, mine) = (text("up"), text("mine"));
        let edits = |text| files.map(|file| (file, Some(text)));
        let fixture = ForkFixture::new(&base).advance("up", &edits(&up[..])).patch("mine", &edits(&mine[..]));
        let store = &fixture.store;
        let tree = |commit| store.commit(commit).unwrap().tree;
        let pick =
            Pick { base: tree(fixture.base), ours: tree(fixture.onto()), theirs: tree(fixture.head()) };
        for picked in [store.pick(pick, Favour::Neither).unwrap(), store.pick_showing_base(pick).unwrap()] {
            let kinds: Vec<String> =
                picked.conflicts.iter().map(|found| format!("{} {}", found.path, found.kind)).collect();
            assert_eq!(kinds, ["d/log contents", "own contents", "plain contents", "whole binary"]);
            assert_eq!(fixture.text(picked.tree, "log").unwrap(), "1\nup\nmine\n3\n");
            assert_eq!(fixture.text(picked.tree, "whole").unwrap(), up, "no marker in it");
        }
        let paths = files.iter().map(|path| TreePath::new(*path).unwrap()).collect();
        let drivers = store.merge_drivers(pick.ours, &paths).unwrap();
        let drivers: Vec<(String, Driver)> =
            drivers.into_iter().map(|(path, driver)| (path.to_string(), driver)).collect();
        let expected =
            [("log", Driver::Union), ("own", Driver::Own("mine".to_owned())), ("whole", Driver::Binary)];
        assert_eq!(drivers, expected.map(|(path, driver)| (path.to_owned(), driver)));
    }
}
