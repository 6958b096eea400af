//! An archive that a CMake file names by address or file name and SHA-256, wherever the two are repeated.

use std::ops::Range;

use serde::Serialize;

use super::{
    EditProblem, Replacing, TextEdit,
    cmake::calls,
    plain::{hex_words, whole_words},
};

/// An archive and what identifies it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct ArchivePin {
    /// Its address, or its file name where the consumer carries it.
    pub location: String,
    /// Its SHA-256, in lower-case hexadecimal.
    pub sha256: String,
}

/// The archive that a call with `name` as its first word names; `None` when the file has no such call.
///
/// # Errors
/// When calls name different archives.
pub fn find(text: &str, name: &str) -> Result<Option<ArchivePin>, EditProblem> {
    let mut found: Vec<(usize, ArchivePin)> = Vec::new();
    for call in calls(text) {
        let word = |range: &Range<usize>| &text[range.clone()];
        if !call.words.first().is_some_and(|first| word(first).eq_ignore_ascii_case(name)) {
            continue;
        }
        let location = call.words.iter().find(|range| is_archive(word(range)));
        let hash = call.words.iter().find_map(|range| {
            let inner = hex_words(word(range), 64).into_iter().next()?;
            Some(range.start + inner.start..range.start + inner.end)
        });
        if let (Some(location), Some(hash)) = (location, hash) {
            let pin = ArchivePin { location: word(location).to_owned(), sha256: word(&hash).to_lowercase() };
            found.push((location.start, pin));
        }
    }
    let lines = found.iter().map(|(at, _)| super::line_of(text, *at)).collect();
    if found.windows(2).any(|pair| pair[0].1 != pair[1].1) {
        return Err(EditProblem::Ambiguous { what: format!("the archive of `{name}`"), lines });
    }
    Ok(found.pop().map(|(_, pin)| pin))
}

/// Replaces the old archive's location, hash and whatever else named it (`also`: pairs of old and new words, such as the
/// commit) in one file.
///
/// # Errors
/// When the file names neither location nor hash.
pub fn edit(
    text: &str,
    old: &ArchivePin,
    new: &ArchivePin,
    also: &[(String, String)],
) -> Result<TextEdit, EditProblem> {
    let mut replacing = Replacing::new(text);
    let main = [(&old.location, &new.location), (&old.sha256, &new.sha256)];
    let mut covered: Vec<Range<usize>> = Vec::new();
    for (old, new) in main {
        for range in whole_words(text, old) {
            replacing.put(range.clone(), new.clone());
            covered.push(range);
        }
    }
    if covered.is_empty() {
        return Err(EditProblem::NotFound { what: format!("mention of `{}`", old.location) });
    }
    for (old, new) in also {
        for range in whole_words(text, old) {
            // A tag inside the archive's name was replaced with the name.
            if !covered.iter().any(|known| known.start <= range.start && range.end <= known.end) {
                replacing.put(range, new.clone());
            }
        }
    }
    Ok(replacing.finish())
}

fn is_archive(word: &str) -> bool {
    [".tar.gz", ".tgz", ".tar.xz", ".tar.bz2", ".tar.zst", ".zip"].iter().any(|ending| word.ends_with(ending))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pin(location: &str, digit: &str) -> ArchivePin {
        ArchivePin { location: location.to_owned(), sha256: digit.repeat(64) }
    }

    #[test]
    fn address_and_hash_move_wherever_they_are_repeated() {
        let old = pin("https://example.org/o/n/archive/v1.tar.gz", "a");
        let new = pin("https://example.org/o/n/archive/v2.tar.gz", "b");
        let cmake = format!(
            "FetchContent_Declare(n URL \"{}\"\n  URL_HASH \"SHA256={}\")\n",
            old.location, old.sha256
        );
        assert_eq!(find(&cmake, "n").unwrap().as_ref(), Some(&old));
        assert_eq!(find(&cmake, "m").unwrap(), None);
        let edited = edit(&cmake, &old, &new, &[]).unwrap();
        assert_eq!(edited.text, cmake.replace("v1", "v2").replace(&old.sha256, &new.sha256));
        let notes = format!("Sources\n{} is `{}`, tag v1.\n", old.location, old.sha256);
        let also = [("v1".to_owned(), "v2".to_owned())];
        let edited = edit(&notes, &old, &new, &also).unwrap();
        assert_eq!(edited.text, notes.replace("v1", "v2").replace(&old.sha256, &new.sha256));
        assert_eq!(edited.places.len(), 3);
    }

    #[test]
    fn a_function_of_the_projects_own_that_names_a_carried_archive_is_understood() {
        let old = pin("n-v1.tar.gz", "a");
        let text = format!(
            "declare_vendored(\n  other o.zip\n  {})\ndeclare_vendored(\n  n {}\n  {}\n  PATCH_COMMAND x)\n",
            "c".repeat(64),
            old.location,
            old.sha256
        );
        assert_eq!(find(&text, "n").unwrap(), Some(old));
    }

    #[test]
    fn what_differs_or_is_not_there_is_told() {
        let call = |digit: &str| format!("f(n a.zip {})\n", digit.repeat(64));
        assert!(matches!(find(&(call("a") + &call("b")), "n"), Err(EditProblem::Ambiguous { .. })));
        let (old, new) = (pin("a.zip", "a"), pin("b.zip", "b"));
        assert!(matches!(edit("nothing", &old, &new, &[]), Err(EditProblem::NotFound { .. })));
    }
}
