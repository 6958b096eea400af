//! What a rebase is going to do, as a value: each patch with its trees, its commit's text, and the committer and date
//! that its new commit gets. Equal plans give equal commits. It reads nothing.

use std::collections::BTreeMap;

use sha2::{Digest as _, Sha256};

use super::replay::{Replayed, Step, person};
use crate::{
    fork::Milestone,
    stack::PatchStack,
    tools::git::{
        commits::{CommitBytes, Signing},
        ids::{CommitId, TreeId},
        tree_path::TreePath,
    },
};

/// A rebase, decided.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RebasePlan {
    /// The fork's name.
    pub fork: String,
    /// What the stack sits on.
    pub base: Milestone,
    /// What it goes to.
    pub onto: Milestone,
    /// The whole tree of the target, of which `onto` names the part that the stack is about.
    pub onto_whole: TreeId,
    /// The folder of that part; `None` for all of it.
    pub folder: Option<TreePath>,
    /// The patches, in the stack's order.
    pub patches: Vec<PlannedPatch>,
    /// Whether and by whom the new commits are signed.
    pub signing: Signing,
}

/// One patch of a plan.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PlannedPatch {
    /// What it is on its own base.
    pub step: Step,
    /// Author, encoding and message.
    pub text: CommitBytes,
    /// The committer's line of the new commit: the author, or who signs; the date is the author's, but never before
    /// that of the commit below.
    pub committer: Vec<u8>,
}

/// What a plan is made from, beside the stack.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PlanInput<'a> {
    /// The fork's name.
    pub fork: &'a str,
    /// What the stack sits on.
    pub base: Milestone,
    /// What it goes to.
    pub onto: Milestone,
    /// The whole tree of the target.
    pub onto_whole: TreeId,
    /// When the target was committed, in seconds since 1970.
    pub onto_committed_s: i64,
    /// The folder that the stack is about.
    pub folder: Option<TreePath>,
    /// The texts of the commits that patches were read from.
    pub texts: &'a BTreeMap<CommitId, CommitBytes>,
    /// Whether and by whom commits are signed.
    pub signing: Signing,
}

/// Decides the rebase of a replayed stack.
pub fn plan(stack: &PatchStack, replayed: &Replayed, input: PlanInput<'_>) -> RebasePlan {
    let by_file: BTreeMap<&str, _> =
        stack.patches.iter().filter_map(|patch| Some((patch.file.as_deref()?, patch))).collect();
    let mut newest_s = input.onto_committed_s;
    let mut patches = Vec::new();
    for step in &replayed.steps {
        let of_commit = step.commit.and_then(|commit| input.texts.get(&commit));
        let of_file = step.file.as_deref().and_then(|file| by_file.get(file));
        let text = match (of_commit, of_file) {
            (Some(text), _) => text.clone(),
            (None, Some(patch)) => CommitBytes::new(&person(patch.author.as_ref()), &patch.message),
            (None, None) => CommitBytes::new(&person(None), &format!("{}\n", step.subject)),
        };
        newest_s = newest_s.max(text.time_s());
        let who = match &input.signing {
            Signing::No => text.name_and_address().to_vec(),
            Signing::As(who) => who.clone().into_bytes(),
        };
        let committer = [&who[..], format!(" {newest_s} +0000").as_bytes()].concat();
        patches.push(PlannedPatch { step: step.clone(), text, committer });
    }
    let PlanInput { fork, base, onto, onto_whole, folder, signing, .. } = input;
    RebasePlan { fork: fork.to_owned(), base, onto, onto_whole, folder, patches, signing }
}

impl RebasePlan {
    /// A hash of everything that decides the outcome, people's decisions apart.
    pub fn digest(&self) -> String {
        let mut hasher = Sha256::new();
        let mut take = |bytes: &[u8]| {
            hasher.update((bytes.len() as u64).to_be_bytes());
            hasher.update(bytes);
        };
        take(self.fork.as_bytes());
        for id in [self.base.commit, self.onto.commit] {
            take(id.to_string().as_bytes());
        }
        take(self.folder.as_ref().map_or(&[], |folder| folder.as_bytes()));
        for patch in &self.patches {
            take(format!("{} {} {}", patch.step.number, patch.step.before, patch.step.after).as_bytes());
            take(&patch.text.author);
            take(patch.text.encoding.as_deref().unwrap_or_default());
            take(&patch.text.message);
            take(&patch.committer);
        }
        base16ct::lower::encode_string(&hasher.finalize())
    }

    /// The patch of this number.
    pub fn patch(&self, number: usize) -> Option<&PlannedPatch> {
        self.patches.iter().find(|patch| patch.step.number == number)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        event::Silent, rebase::replay::replay_stack, stack::branch::read_branch,
        tools::git::fixture::ForkFixture,
    };

    #[test]
    fn dates_never_go_back_and_equal_input_gives_equal_plans() {
        let fixture = ForkFixture::new(&[("f", "a\n")])
            .patch("early", &[("f", Some("b\n"))])
            .advance("upstream", &[("g", Some("g\n"))])
            .patch("late", &[("f", Some("c\n"))]);
        let store = &fixture.store;
        let stack = read_branch(store, fixture.base, fixture.head(), &[]).unwrap();
        let base = Milestone { commit: fixture.base, tree: store.commit(fixture.base).unwrap().tree };
        let replayed = replay_stack(store, base.commit, base.tree, &stack, &Silent).unwrap();
        let texts = fixture.fork[1..].iter().map(|&id| (id, store.commit_bytes(id).unwrap())).collect();
        let onto = store.commit(fixture.onto()).unwrap();
        let made = |signing| {
            let (onto_committed_s, onto_whole) = (onto.committed_s, onto.tree);
            let onto = Milestone { commit: onto.id, tree: onto.tree };
            let input = PlanInput {
                fork: "f",
                base,
                onto,
                onto_whole,
                onto_committed_s,
                folder: None,
                texts: &texts,
                signing,
            };
            plan(&stack, &replayed, input)
        };
        let plan = made(Signing::No);
        let committers: Vec<&str> =
            plan.patches.iter().map(|patch| std::str::from_utf8(&patch.committer).unwrap()).collect();
        assert_eq!(
            committers,
            ["A Person <a@example.org> 1700000120 +0000", "A Person <a@example.org> 1700000180 +0000"]
        );
        assert_eq!(plan.digest(), made(Signing::No).digest());
        assert_ne!(plan.digest(), made(Signing::As("B <b@example.org>".to_owned())).digest());
    }
}
