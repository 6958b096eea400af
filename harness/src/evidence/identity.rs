//! Who made a patch, when, how large it is and what it touches; and a key by which it is known again after a rebase.

use std::{
    collections::BTreeMap,
    time::{Duration, UNIX_EPOCH},
};

use sha2::{Digest, Sha256};

use super::{edits::FileEdit, report::Identity};
use crate::{
    rebase::replay::Step,
    stack::{PatchStack, mail::Author},
    tools::{
        clock,
        git::store::{Store, StoreError},
    },
};

/// How many areas are named.
const AREAS: usize = 4;
const DAY_S: i64 = 86_400;

/// The identity of one patch; `now_s` is the date of the upstream commit that it is judged against.
///
/// # Errors
/// When its commit is missing.
pub fn identity(
    store: &Store,
    stack: &PatchStack,
    step: &Step,
    edits: &[FileEdit],
    now_s: Option<i64>,
) -> Result<Identity, StoreError> {
    let (author, message) = author_and_message(store, stack, step)?;
    let date = author.as_ref().and_then(|author| u64::try_from(author.time_s).ok());
    let age_days = author.as_ref().zip(now_s).map(|(author, now)| (now - author.time_s).max(0) / DAY_S);
    Ok(Identity {
        key: key(author.as_ref(), &step.subject, step.file.as_deref()),
        author: author.map(|author| if author.name.is_empty() { author.email } else { author.name }),
        date: date.map(|seconds| clock::rfc3339(UNIX_EPOCH + Duration::from_secs(seconds))),
        age_days,
        files: edits.len(),
        added: edits.iter().map(FileEdit::added).sum(),
        removed: edits.iter().map(FileEdit::removed).sum(),
        areas: areas(edits),
        trailers: trailers(&message),
    })
}

/// The key by which a patch is known again.
///
/// # Errors
/// When its commit is missing.
pub fn key_of(store: &Store, stack: &PatchStack, step: &Step) -> Result<String, StoreError> {
    let (author, _) = author_and_message(store, stack, step)?;
    Ok(key(author.as_ref(), &step.subject, step.file.as_deref()))
}

/// Author and message of a patch, from its mail or its commit.
///
/// # Errors
/// When its commit is missing.
pub fn author_and_message(
    store: &Store,
    stack: &PatchStack,
    step: &Step,
) -> Result<(Option<Author>, String), StoreError> {
    if let Some(commit) = step.commit {
        let text = store.commit_text(commit)?;
        let person = text.author;
        let (name, email) = (person.name, person.email);
        let author = Author { name, email, time_s: person.time_s, offset_min: person.offset_min };
        return Ok((Some(author), text.message));
    }
    let patch = stack.patches.iter().find(|patch| patch.file.is_some() && patch.file == step.file);
    Ok(patch.map_or((None, String::new()), |patch| (patch.author.clone(), patch.message.clone())))
}

/// A rebase keeps author, author's date and subject. A bare diff has only its file's name, without the number that
/// moves when the queue is put in another order.
fn key(author: Option<&Author>, subject: &str, file: Option<&str>) -> String {
    let told = match author {
        Some(author) => format!("{}\0{}\0{subject}", author.email, author.time_s),
        None => file
            .unwrap_or(subject)
            .trim_start_matches(|c: char| c.is_ascii_digit())
            .trim_start_matches('-')
            .to_owned(),
    };
    Sha256::digest(told).iter().take(6).map(|byte| format!("{byte:02x}")).collect()
}

fn areas(edits: &[FileEdit]) -> Vec<String> {
    let mut files: BTreeMap<String, usize> = BTreeMap::new();
    for edit in edits {
        let parent = String::from_utf8_lossy(edit.path.parent()).into_owned();
        let area: Vec<&str> = parent.split('/').take(2).collect();
        let area = if parent.is_empty() { ".".to_owned() } else { area.join("/") };
        *files.entry(area).or_default() += 1;
    }
    let mut areas: Vec<(String, usize)> = files.into_iter().collect();
    areas.sort_by(|(one, one_files), (other, other_files)| other_files.cmp(one_files).then(one.cmp(other)));
    areas.into_iter().take(AREAS).map(|(area, _)| area).collect()
}

/// The trailers of a message: the lines of its last paragraph, if each is `Token: value`.
fn trailers(message: &str) -> Vec<String> {
    let body = message.trim_end();
    let Some((_, last)) = body.rsplit_once("\n\n") else { return Vec::new() };
    let is_trailer = |line: &str| {
        line.split_once(": ").is_some_and(|(token, value)| {
            let plain = token.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'-');
            !token.is_empty() && plain && !value.trim().is_empty()
        })
    };
    let lines: Vec<&str> = last.lines().map(str::trim_end).collect();
    match lines.iter().all(|line| is_trailer(line)) {
        true => lines.into_iter().map(str::to_owned).collect(),
        false => Vec::new(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn trailers_are_a_last_paragraph_of_nothing_else() {
        let of = |message: &str| trailers(message).join("|");
        assert_eq!(
            of("subject\n\ntext\n\nSigned-off-by: A\nChange-Id: I1\n"),
            "Signed-off-by: A|Change-Id: I1"
        );
        assert_eq!(of("subject\n\nNote: this is text,\nand goes on\n"), "");
        assert_eq!(of("fix: a subject\n"), "");
    }

    #[test]
    fn a_key_stays_over_rebases_and_renumbering() {
        let author = |offset_min| Author { name: "A".into(), email: "a@b".into(), time_s: 9, offset_min };
        assert_eq!(key(Some(&author(0)), "s", None), key(Some(&author(60)), "s", None));
        assert_ne!(key(Some(&author(0)), "s", None), key(Some(&author(0)), "t", None));
        assert_eq!(key(None, "x", Some("0003-x.patch")), key(None, "x", Some("0017-x.patch")));
    }
}
