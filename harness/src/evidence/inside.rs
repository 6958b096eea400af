//! How the patches of one stack bear on each other: which repairs an earlier one, which undoes one, and how much of each
//! is still alive at the head.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use super::{
    content::rounded,
    edits::{FileEdit, lines_of},
    origins::{DeletedLine, Origin, Origins},
    report::Fixup,
};
use crate::{
    rebase::replay::Step,
    tools::git::{
        store::{MODE_SUBMODULE, Store, StoreError},
        tree_path::TreePath,
    },
};

/// From this share of a patch's deleted lines on, that one earlier patch had added, it repairs that patch.
const FIXUP_SHARE: f64 = 0.8;
/// A repair adds at most this many lines for each that it deletes, and a few for free.
const FIXUP_GROWTH: usize = 3;
const FIXUP_FREE_LINES: usize = 5;

/// The earlier patch that a patch repairs: most of its deleted lines were added by it, and it does little else.
pub fn fixup(edits: &[FileEdit], deleted: &[DeletedLine]) -> Option<Fixup> {
    let mut by_patch: BTreeMap<usize, usize> = BTreeMap::new();
    for line in deleted {
        if let Origin::Patch(number) = line.origin {
            *by_patch.entry(number).or_default() += 1;
        }
    }
    let (of, lines) = by_patch.into_iter().max_by_key(|(number, lines)| (*lines, *number))?;
    let added: usize = edits.iter().map(FileEdit::added).sum();
    let repairs = lines as f64 >= FIXUP_SHARE * deleted.len() as f64;
    let small = added <= FIXUP_GROWTH * lines + FIXUP_FREE_LINES;
    (repairs && small).then_some(Fixup { of, lines, deleted: deleted.len() })
}

/// For each patch the share of its added lines that are alive at the stack's head; `None` when it adds none. A line that
/// a later patch deletes and another brings back, as merges do, is alive.
///
/// # Errors
/// When an object is missing.
pub fn liveness(
    store: &Store,
    steps: &[Step],
    edits: &[Vec<FileEdit>],
    origins: &Origins,
) -> Result<Vec<Option<f64>>, StoreError> {
    let mut gone: BTreeMap<usize, BTreeMap<&TreePath, BTreeSet<usize>>> = BTreeMap::new();
    for line in origins.deleted.iter().flatten() {
        if let Origin::Patch(number) = line.origin {
            gone.entry(number).or_default().entry(&line.origin_path).or_default().insert(line.origin_line);
        }
    }
    let head = steps.last().map(|step| step.after);
    let mut liveness = Vec::new();
    for (step, edits) in steps.iter().zip(edits) {
        let added: usize = edits.iter().map(FileEdit::added).sum();
        let mut dead = 0;
        for (path, lines) in gone.remove(&step.number).unwrap_or_default() {
            let now = match head.map(|head| store.entry(head, path)).transpose()?.flatten() {
                Some(entry) if entry.mode != MODE_SUBMODULE => store.blob(entry.id)?,
                _ => Vec::new(),
            };
            let then = match edits.iter().find(|edit| edit.path == *path).and_then(|edit| edit.new) {
                Some(id) => store.blob(id)?,
                None => Vec::new(),
            };
            dead += not_back(&lines_of(&then), &lines, &lines_of(&now));
        }
        liveness.push((added > 0).then(|| rounded(added.saturating_sub(dead) as f64 / added as f64)));
    }
    Ok(liveness)
}

/// How many of the lines `gone` of a text are not there again in another.
fn not_back(then: &[&[u8]], gone: &BTreeSet<usize>, now: &[&[u8]]) -> usize {
    // Only lines like those that went matter; there are few of them, and many others.
    let mut left: HashMap<&[u8], usize> = gone.iter().filter_map(|at| Some((*then.get(*at)?, 0))).collect();
    let longest = left.keys().map(|line| line.len()).max().unwrap_or_default();
    let mut lengths = vec![false; longest + 1];
    left.keys().for_each(|line| lengths[line.len()] = true);
    let may_matter = |line: &&[u8]| lengths.get(line.len()) == Some(&true);
    for line in now.iter().copied().filter(may_matter) {
        if let Some(count) = left.get_mut(line) {
            *count += 1;
        }
    }
    // Lines that nobody touched have the first claim on what stands there now.
    for (_, line) in then.iter().enumerate().filter(|(at, line)| may_matter(line) && !gone.contains(at)) {
        if let Some(count) = left.get_mut(line) {
            *count = count.saturating_sub(1);
        }
    }
    let mut is_dead = |at: usize| match then.get(at).and_then(|line| left.get_mut(line)) {
        Some(count) if *count > 0 => {
            *count -= 1;
            false
        }
        _ => true,
    };
    let tells = |at: &usize| then.get(*at).is_some_and(|line| line.iter().any(u8::is_ascii_alphanumeric));
    let (telling, dull): (Vec<usize>, Vec<usize>) = gone.iter().copied().partition(tells);
    let dead = telling.iter().filter(|at| is_dead(**at)).count();
    // Brackets and empty lines are everywhere; they go where the others go.
    if telling.is_empty() || (dead > 0 && dead < telling.len()) {
        return dead + dull.iter().filter(|at| is_dead(**at)).count();
    }
    if dead == 0 { 0 } else { dead + dull.len() }
}

/// For each patch the earlier one whose exact inverse it is.
///
/// # Errors
/// When an object is missing.
pub fn undone(store: &Store, steps: &[Step]) -> Result<Vec<Option<usize>>, StoreError> {
    let paths: Vec<BTreeSet<&TreePath>> =
        steps.iter().map(|step| step.changes.iter().map(|change| &change.path).collect()).collect();
    let mut undone = vec![None; steps.len()];
    for (at, step) in steps.iter().enumerate() {
        for earlier in (0..at).rev().filter(|earlier| paths[*earlier] == paths[at] && !paths[at].is_empty()) {
            let (before, after) = (steps[earlier].before, steps[earlier].after);
            if store.patch_id(after, before)? == store.patch_id(step.before, step.after)? {
                undone[at] = Some(steps[earlier].number);
                break;
            }
        }
    }
    Ok(undone)
}
