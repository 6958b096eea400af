//! Which upstream commit is a copied folder nearest to? Found from blob ids alone: how many paths of the folder hold
//! exactly what a commit holds there, counted along the history from one commit to the next by what changed between them.

use std::collections::{BTreeMap, HashMap};

use crate::tools::git::{
    ids::{CommitId, TreeId},
    store::{Entry, Store, StoreError},
    tree_path::TreePath,
};

/// The upstream commit nearest to a folder.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Nearest {
    /// The commit.
    pub commit: CommitId,
    /// Its tree.
    pub tree: TreeId,
    /// How many paths hold the same in both.
    pub equal: usize,
    /// How many paths the folder has.
    pub of: usize,
    /// How many upstream commits were compared.
    pub compared: usize,
}

/// Finds the commit of `head`'s history whose tree shares most paths with `folder`. Among equals it is the one with
/// fewest paths that differ, then the one whose differing files share most lines, then the newest. `None` when nothing
/// is shared.
///
/// # Errors
/// When objects are missing.
pub fn nearest(store: &Store, folder: TreeId, head: CommitId) -> Result<Option<Nearest>, StoreError> {
    let empty = store.empty_tree()?;
    let files: BTreeMap<TreePath, Entry> = store
        .changes(empty, folder)?
        .into_iter()
        .filter_map(|change| Some((change.path, change.new?)))
        .collect();
    let mut scores: HashMap<CommitId, Score> = HashMap::new();
    let mut best: Vec<(CommitId, TreeId, Score)> = Vec::new();
    let commits = store.commits_between(&[], head)?;
    for &commit in &commits {
        let info = store.commit(commit)?;
        // Counting goes on from the first parent; a commit without one is counted from nothing.
        let (parent, mut score) = match info.parents.first().and_then(|p| Some((*p, *scores.get(p)?))) {
            Some((parent, score)) => (store.commit(parent)?.tree, score),
            None => (empty, Score { equal: 0, others: 0 }),
        };
        for change in store.changes(parent, info.tree)? {
            let kept = files.get(&change.path).copied();
            score.take(change.old, kept, -1);
            score.take(change.new, kept, 1);
        }
        scores.insert(commit, score);
        match best.first().map(|(_, _, known)| score.rank().cmp(&known.rank())) {
            Some(std::cmp::Ordering::Less) => {}
            Some(std::cmp::Ordering::Equal) => best.push((commit, info.tree, score)),
            _ => best = vec![(commit, info.tree, score)],
        }
    }
    let compared = commits.len();
    best.retain(|(_, _, score)| score.equal > 0);
    let mut chosen: Option<(usize, CommitId, TreeId, Score)> = None;
    let mut known: HashMap<TreeId, usize> = HashMap::new();
    for (commit, tree, score) in best {
        let lines = match known.get(&tree) {
            Some(&lines) => lines,
            None => {
                let lines = store.changed_lines(tree, folder)?;
                known.insert(tree, lines);
                lines
            }
        };
        if chosen.as_ref().is_none_or(|(fewest, ..)| lines <= *fewest) {
            chosen = Some((lines, commit, tree, score));
        }
    }
    Ok(chosen.map(|(_, commit, tree, score)| Nearest {
        commit,
        tree,
        equal: usize::try_from(score.equal).unwrap_or_default(),
        of: files.len(),
        compared,
    }))
}

#[derive(Clone, Copy)]
struct Score {
    /// Paths that hold the same.
    equal: i64,
    /// Paths of the commit that hold something else, or that the folder lacks.
    others: i64,
}

impl Score {
    fn take(&mut self, there: Option<Entry>, kept: Option<Entry>, times: i64) {
        match there {
            Some(there) if Some(there) == kept => self.equal += times,
            Some(_) => self.others += times,
            None => {}
        }
    }

    fn rank(self) -> (i64, i64) {
        (self.equal, -self.others)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tools::git::fixture::ForkFixture;

    fn tree_of(fixture: &ForkFixture, commit: CommitId) -> TreeId {
        fixture.store.commit(commit).unwrap().tree
    }

    #[test]
    fn the_commit_that_shares_most_files_is_found_among_many() {
        let mut fixture = ForkFixture::new(&[("a", "a0\n"), ("b", "b0\n"), ("c", "c0\n")])
            .advance("a", &[("a", Some("a1\n"))])
            .advance("b", &[("b", Some("b1\n"))])
            .advance("c", &[("c", Some("c1\n")), ("b", Some("b2\n"))])
            .advance("a again", &[("a", Some("a2\n"))]);
        let (copied, head) = (fixture.upstream[2], fixture.onto());
        let vendored = fixture.commit(&[copied], "own", &[("c", Some("own\n")), ("d", Some("own\n"))]);
        let nearest = nearest(&fixture.store, tree_of(&fixture, vendored), head).unwrap().unwrap();
        assert_eq!((nearest.commit, nearest.equal, nearest.of, nearest.compared), (copied, 2, 4, 5));
    }

    #[test]
    fn lines_decide_where_files_cannot() {
        let long = |last: &str| format!("1\n2\n3\n4\n{last}\n");
        let mut fixture = ForkFixture::new(&[("a", "a\n"), ("f", &long("old"))])
            .advance("f", &[("f", Some("x\ny\nz\n"))])
            .advance("f", &[("f", Some(&long("new")))])
            .advance("f", &[("f", Some("q\n"))]);
        let (copied, head) = (fixture.upstream[2], fixture.onto());
        let vendored = fixture.commit(&[copied], "own", &[("f", Some(&long("new\nown")))]);
        let found = nearest(&fixture.store, tree_of(&fixture, vendored), head).unwrap().unwrap();
        assert_eq!(found.commit, copied);
        let foreign = ForkFixture::new(&[("z", "z\n")]);
        let stranger = tree_of(&foreign, foreign.base);
        let own = fixture.store.write_blob(b"z\n").unwrap();
        let edits = BTreeMap::from([(TreePath::new("z").unwrap(), Some(Entry { id: own, mode: 0o100_644 }))]);
        let tree = fixture.store.edited_tree(fixture.store.empty_tree().unwrap(), &edits).unwrap();
        assert_eq!(tree, stranger);
        assert_eq!(nearest(&fixture.store, tree, head).unwrap(), None);
    }
}
