//! Prepares a patch for upstream: alone on upstream's head, with its author and message, as a branch of the fork's own
//! store below `target/regraft/`. Nothing leaves the machine.

use super::{identity::author_and_message, report::UpstreamBranch};
use crate::{
    rebase::{replay::Step, sync::Forecasted},
    tools::git::{
        merge::{Favour, MergeError, Pick},
        store::Person,
        tree_path::TreePath,
    },
};

/// How long a branch's name may get.
const NAME_CHARS: usize = 40;

/// The branch on which a patch stands alone; `None` where it does not fit there, or upstream's head is not at hand.
///
/// # Errors
/// When an object is missing or cannot be written.
pub fn upstream_branch(whole: &Forecasted, step: &Step) -> Result<Option<UpstreamBranch>, MergeError> {
    let (store, onto) = (&whole.store, whole.target.onto);
    let picked =
        store.pick(Pick { base: step.before, ours: onto.tree, theirs: step.after }, Favour::Neither)?;
    if !picked.conflicts.is_empty() || !store.has(onto.commit) {
        return Ok(None);
    }
    let head = store.commit(onto.commit)?;
    let tree = match whole.spec.upstream.folder.as_deref().map(TreePath::new) {
        Some(Ok(folder)) => store.with_folder(head.tree, &folder, picked.tree)?,
        Some(Err(_)) => return Ok(None),
        None => picked.tree,
    };
    let (author, message) = author_and_message(store, &whole.stack, step)?;
    let author = author.map_or_else(
        || Person { name: "unknown".to_owned(), email: "unknown".to_owned(), time_s: 0, offset_min: 0 },
        |author| Person {
            name: if author.name.is_empty() { author.email.clone() } else { author.name },
            email: author.email,
            time_s: author.time_s,
            offset_min: author.offset_min,
        },
    );
    let commit = store.write_commit(tree, &[onto.commit], &author, &message)?;
    let branch = format!("upstream/{:04}-{}", step.number, slug(&step.subject));
    let name = format!("refs/heads/{branch}");
    let old = store.reference(&name)?;
    if old != Some(commit) {
        store.lead_ref(&name, old, commit)?;
    }
    Ok(Some(UpstreamBranch { branch, commit }))
}

/// Letters and digits of a subject, in small letters, with hyphens between words.
fn slug(subject: &str) -> String {
    let words = subject.split(|c: char| !c.is_ascii_alphanumeric()).filter(|word| !word.is_empty());
    let mut slug = String::new();
    for word in words.map(str::to_ascii_lowercase) {
        if slug.len() + word.len() >= NAME_CHARS {
            break;
        }
        if !slug.is_empty() {
            slug.push('-');
        }
        slug += &word;
    }
    if slug.is_empty() { "patch".to_owned() } else { slug }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_branches_hold_nothing_that_git_refuses() {
        assert_eq!(slug("fix(fft): remove ..~^: [norm]"), "fix-fft-remove-norm");
        assert_eq!(slug("äöü"), "patch");
        assert!(slug(&"word ".repeat(40)).len() <= NAME_CHARS);
    }
}
