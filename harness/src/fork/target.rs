//! Which upstream commit a stack is to go to, and the history on the way there.

use std::{cmp::Ordering, collections::BTreeMap};

use super::{ForkError, Milestone, open::Fork};
use crate::{config::near::suggestion, tools::git::ids::CommitId};

/// What `--onto` asks for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Onto {
    /// The newest commit of upstream's branch.
    Latest,
    /// The release with the highest version.
    LatestTag,
    /// The newest commit of upstream's branch that takes the whole stack without a conflict.
    Frontier,
    /// `base` for the stack's own base, a tag, a branch, or a full or abbreviated commit id.
    Named(String),
}

impl From<&str> for Onto {
    fn from(text: &str) -> Self {
        match text {
            "latest" => Self::Latest,
            "latest-tag" => Self::LatestTag,
            "frontier" => Self::Frontier,
            name => Self::Named(name.to_owned()),
        }
    }
}

/// Where a stack is to go.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Target {
    /// The stack's base.
    pub base: Milestone,
    /// The new upstream commit.
    pub onto: Milestone,
    /// The commits after the base up to and including `onto`, oldest first.
    pub history: Vec<Milestone>,
}

/// The commit that `onto` means; for [`Onto::Frontier`] the branch's newest, from which the frontier is looked for.
///
/// # Errors
/// When nothing has that name.
pub fn resolve(fork: &Fork, onto: &Onto) -> Result<CommitId, ForkError> {
    let spec = &fork.spec.upstream;
    let repository = spec.repository.clone();
    match onto {
        Onto::Latest | Onto::Frontier => fork
            .upstream
            .branches
            .get(&spec.branch)
            .copied()
            .ok_or(ForkError::NoBranch { repository, branch: spec.branch.clone() }),
        Onto::LatestTag => latest_release(&fork.upstream.tags, &spec.tag_prefix).ok_or_else(|| {
            let suggestion = format!("no tag is `{}` and a version", spec.tag_prefix);
            ForkError::NoTarget { repository, name: "latest-tag".to_owned(), suggestion }
        }),
        Onto::Named(name) if name == "base" => Ok(fork.base.commit),
        Onto::Named(name) => {
            let refs = &fork.upstream;
            let named = refs.tags.get(name).or_else(|| refs.branches.get(name)).copied();
            named.or_else(|| fork.store.find_commit(name)).ok_or_else(|| {
                let tags = newest_first(&refs.tags, &spec.tag_prefix).into_iter().take(8);
                let known: Vec<&str> = ["latest", "latest-tag", "frontier"].into_iter().chain(tags).collect();
                let suggestion = suggestion(name, "targets", &known);
                ForkError::NoTarget { repository, name: name.clone(), suggestion }
            })
        }
    }
}

/// The way from the base to a commit.
///
/// # Errors
/// When the base is not an ancestor of it.
pub fn target(fork: &Fork, onto: CommitId) -> Result<Target, ForkError> {
    let (store, base) = (&fork.store, fork.base);
    if !store.is_ancestor(base.commit, onto)? {
        let (merge_base, shallow) = (store.merge_base(base.commit, onto)?, store.is_shallow());
        return Err(ForkError::NotAncestor { base: base.commit, onto, merge_base, shallow });
    }
    let history = store.mainline(base.commit, onto)?;
    let history = history.into_iter().map(|commit| fork.milestone(commit)).collect::<Result<_, _>>()?;
    Ok(Target { base, onto: fork.milestone(onto)?, history })
}

/// The tag of the highest version; pre-releases are left out.
fn latest_release(tags: &BTreeMap<String, CommitId>, prefix: &str) -> Option<CommitId> {
    let versions =
        tags.iter().filter_map(|(tag, &commit)| Some((version(tag.strip_prefix(prefix)?)?, commit)));
    versions.max_by(|(one, _), (other, _)| by_parts(one, other)).map(|(_, commit)| commit)
}

/// The tags by version, the highest first; those that are no version come last.
fn newest_first<'t>(tags: &'t BTreeMap<String, CommitId>, prefix: &str) -> Vec<&'t str> {
    let mut named: Vec<(Option<Vec<u64>>, &str)> =
        tags.keys().rev().map(|tag| (tag.strip_prefix(prefix).and_then(version), tag.as_str())).collect();
    named.sort_by(|(one, _), (other, _)| match (one, other) {
        (Some(one), Some(other)) => by_parts(other, one),
        (one, other) => other.is_some().cmp(&one.is_some()),
    });
    named.into_iter().map(|(_, tag)| tag).collect()
}

/// The numbers of `1.20.3`; `None` for anything else.
fn version(text: &str) -> Option<Vec<u64>> {
    text.split('.').map(|part| part.parse().ok()).collect()
}

fn by_parts(one: &[u64], other: &[u64]) -> Ordering {
    let part = |version: &[u64], at: usize| version.get(at).copied().unwrap_or_default();
    let orders = (0..one.len().max(other.len())).map(|at| part(one, at).cmp(&part(other, at)));
    orders.into_iter().find(|order| order.is_ne()).unwrap_or(Ordering::Equal)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_latest_release_has_the_highest_version_and_no_suffix() {
        let id = |digit: char| digit.to_string().repeat(40).parse::<CommitId>().unwrap();
        let tags = [
            ("v0.9.1", '1'),
            ("v0.31.2", '2'),
            ("v0.32.0-rc1", '3'),
            ("v0.4", '4'),
            ("x1.0", '5'),
            ("v", '6'),
        ];
        let tags = tags.into_iter().map(|(tag, digit)| (tag.to_owned(), id(digit))).collect();
        assert_eq!(latest_release(&tags, "v"), Some(id('2')));
        assert_eq!(latest_release(&tags, "x"), Some(id('5')));
        assert_eq!(latest_release(&tags, "y"), None);
        assert_eq!(newest_first(&tags, "v"), ["v0.31.2", "v0.9.1", "v0.4", "x1.0", "v0.32.0-rc1", "v"]);
    }
}
