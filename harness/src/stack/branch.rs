//! The stack that a branch carries over its base: its commits one after the other, merges flattened. A merge's side
//! branch comes before it; what only the merge commit held becomes a patch of its own.

use std::collections::BTreeSet;

use super::{Change, Patch, PatchStack};
use crate::tools::git::{
    ids::CommitId,
    store::{Store, StoreError},
};

/// The commits of `head` that neither `base` nor `upstream` reaches, as a stack over `base`.
///
/// # Errors
/// When history is missing.
pub fn read_branch(
    store: &Store,
    base: CommitId,
    head: CommitId,
    upstream: &[CommitId],
) -> Result<PatchStack, StoreError> {
    let hidden: Vec<CommitId> = upstream.iter().copied().chain([base]).collect();
    let mut order = Flattened {
        store,
        own: store.commits_between(&hidden, head)?.into_iter().collect(),
        placed: BTreeSet::new(),
        changes: Vec::new(),
    };
    order.place(head)?;
    let mut patches = Vec::new();
    for (number, change) in (1..).zip(order.changes) {
        let (Change::Commit(id) | Change::MergeRest(id)) = change else { continue };
        let subject = store.commit(id)?.subject;
        let message = format!("{subject}\n");
        patches.push(Patch { number, subject, file: None, author: None, message, change });
    }
    Ok(PatchStack { patches })
}

struct Flattened<'s> {
    store: &'s Store,
    own: BTreeSet<CommitId>,
    placed: BTreeSet<CommitId>,
    changes: Vec<Change>,
}

impl Flattened<'_> {
    /// Places whatever leads to `head`: along the first parents up to it, each merge's other parents just before it.
    /// Side branches are followed with an own list, as histories may be deeper than the stack.
    fn place(&mut self, head: CommitId) -> Result<(), StoreError> {
        let mut todo = vec![Todo::Reach(head)];
        while let Some(next) = todo.pop() {
            match next {
                Todo::Reach(id) if self.own.contains(&id) && self.placed.insert(id) => {
                    let parents = self.store.commit(id)?.parents;
                    todo.push(Todo::Emit(id, parents.len()));
                    todo.extend(parents.into_iter().rev().map(Todo::Reach));
                }
                Todo::Reach(_) => {}
                Todo::Emit(id, 0 | 1) => self.changes.push(Change::Commit(id)),
                Todo::Emit(id, _) => self.changes.push(Change::MergeRest(id)),
            }
        }
        Ok(())
    }
}

enum Todo {
    Reach(CommitId),
    Emit(CommitId, usize),
}
