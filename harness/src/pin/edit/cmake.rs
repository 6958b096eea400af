//! `GIT_TAG` of `FetchContent_Declare`, `ExternalProject_Add` and their like, in CMake files. The words of calls are
//! found as CMake finds them: comments, quotes and bracket arguments are known.

use std::ops::Range;

use super::{EditProblem, NewPin, Replacing, TextEdit, agreeing, plain::hex_words, same_repository};

/// A call: its name and its words, with the places of the words' contents.
pub(super) struct Call<'t> {
    pub(super) name: &'t str,
    pub(super) words: Vec<Range<usize>>,
}

/// Moves the `GIT_TAG` of the dependency `name`, where it is declared or where a `set` gives it. A tag stays a tag when the
/// new commit has one; otherwise it becomes the commit. Where the repository is another one, `GIT_REPOSITORY` follows.
///
/// # Errors
/// When nothing declares it, or when declarations differ.
pub fn edit_tag(text: &str, name: &str, pin: &NewPin) -> Result<TextEdit, EditProblem> {
    let calls = calls(text);
    let word = |range: &Range<usize>| &text[range.clone()];
    let declared: Vec<&Call<'_>> = calls
        .iter()
        .filter(|call| call.words.first().is_some_and(|first| word(first).eq_ignore_ascii_case(name)))
        .filter(|call| call.words.iter().any(|found| word(found) == "GIT_TAG"))
        .collect();
    let after = |call: &Call<'_>, key: &str| {
        let at = call.words.iter().position(|found| word(found) == key)?;
        call.words.get(at + 1).cloned()
    };
    let mut tags = Vec::new();
    for call in &declared {
        if let Some(tag) = after(call, "GIT_TAG") {
            tags.push(given_by_set(text, &calls, tag)?);
        }
    }
    if tags.is_empty() {
        return Err(EditProblem::NotFound { what: format!("GIT_TAG of `{name}`") });
    }
    agreeing(&format!("GIT_TAG of `{name}`"), text, tags.iter().map(|range| (range.start, word(range))))?;
    let mut replacing = Replacing::new(text);
    for tag in tags {
        let by_commit = hex_words(word(&tag), 40).len() == 1;
        let new = match &pin.tag {
            Some(tag) if !by_commit => tag.clone(),
            _ => pin.commit.to_string(),
        };
        replacing.put(tag, new);
    }
    for address in declared.iter().filter_map(|call| after(call, "GIT_REPOSITORY")) {
        let old = word(&address);
        if !same_repository(old, &pin.repository) && !old.contains("${") {
            let ending = if old.ends_with(".git") { ".git" } else { "" };
            let new = format!("{}{ending}", pin.repository.trim_end_matches(".git"));
            replacing.put(address, new);
        }
    }
    Ok(replacing.finish())
}

/// The word itself, or, for `${VARIABLE}`, the value in the one `set(VARIABLE value)`.
fn given_by_set(text: &str, calls: &[Call<'_>], word: Range<usize>) -> Result<Range<usize>, EditProblem> {
    let Some(variable) = text[word.clone()].strip_prefix("${").and_then(|rest| rest.strip_suffix('}')) else {
        return Ok(word);
    };
    let sets: Vec<Range<usize>> = calls
        .iter()
        .filter(|call| call.name.eq_ignore_ascii_case("set"))
        .filter(|call| call.words.first().is_some_and(|first| text[first.clone()] == *variable))
        .filter_map(|call| call.words.get(1).cloned())
        .collect();
    let what = format!("value of `{variable}`");
    agreeing(&what, text, sets.iter().map(|range| (range.start, &text[range.clone()])))?;
    sets.into_iter().next().ok_or(EditProblem::NotFound { what })
}

/// Every call of a CMake file.
pub(super) fn calls(text: &str) -> Vec<Call<'_>> {
    let bytes = text.as_bytes();
    let mut calls = Vec::new();
    let mut at = 0;
    while at < bytes.len() {
        match bytes[at] {
            b'#' => at = after_comment(text, at),
            byte if byte.is_ascii_alphabetic() || byte == b'_' => {
                let end = bytes[at..]
                    .iter()
                    .position(|b| !(b.is_ascii_alphanumeric() || *b == b'_'))
                    .map_or(bytes.len(), |length| at + length);
                let name = &text[at..end];
                let open = end + text[end..].len() - text[end..].trim_start_matches([' ', '\t']).len();
                if bytes.get(open) == Some(&b'(') {
                    let (words, next) = words(text, open + 1);
                    calls.push(Call { name, words });
                    at = next;
                } else {
                    at = end;
                }
            }
            _ => at += 1,
        }
    }
    calls
}

/// The words up to the closing bracket of a call, and where the text goes on after it.
fn words(text: &str, mut at: usize) -> (Vec<Range<usize>>, usize) {
    let bytes = text.as_bytes();
    let (mut words, mut depth) = (Vec::new(), 1);
    while at < bytes.len() {
        match bytes[at] {
            b'(' => (depth, at) = (depth + 1, at + 1),
            b')' => {
                (depth, at) = (depth - 1, at + 1);
                if depth == 0 {
                    break;
                }
            }
            b'#' => at = after_comment(text, at),
            b'"' => {
                let start = at + 1;
                at = start;
                while at < bytes.len() && bytes[at] != b'"' {
                    at += if bytes[at] == b'\\' { 2 } else { 1 };
                }
                let end = at.min(bytes.len());
                words.push(start..end);
                at = end + 1;
            }
            b'[' if bracket_end(text, at).is_some() => {
                let (inner, next) = bracket_end(text, at).unwrap_or((at..at, at + 1));
                words.push(inner);
                at = next;
            }
            byte if byte.is_ascii_whitespace() => at += 1,
            _ => {
                let length = bytes[at..]
                    .iter()
                    .position(|b| b.is_ascii_whitespace() || matches!(b, b'(' | b')' | b'"' | b'#'));
                let end = length.map_or(bytes.len(), |length| at + length);
                words.push(at..end);
                at = end;
            }
        }
    }
    (words, at.min(bytes.len()))
}

fn after_comment(text: &str, at: usize) -> usize {
    match bracket_end(text, at + 1) {
        Some((_, next)) => next,
        None => text[at..].find('\n').map_or(text.len(), |length| at + length),
    }
}

/// The contents of a bracket argument `[==[ … ]==]` that begins at `at`, and where the text goes on.
fn bracket_end(text: &str, at: usize) -> Option<(Range<usize>, usize)> {
    let rest = text.get(at..)?.strip_prefix('[')?;
    let equals = rest.len() - rest.trim_start_matches('=').len();
    let start = at + equals + 2;
    rest[equals..].strip_prefix('[')?;
    let close = format!("]{}]", "=".repeat(equals));
    let end = start + text[start..].find(&close)?;
    Some((start..end, end + close.len()))
}

#[cfg(test)]
mod tests {
    use super::{
        super::samples::{NEW, OLD, pin, released},
        *,
    };

    const DECLARED: &str = "include(FetchContent) # FetchContent_Declare(n GIT_TAG v0)\n#[[ GIT_TAG v0 ]]\n\
        FetchContent_Declare(\n  n\n  GIT_REPOSITORY \"https://example.org/o/n.git\"\n  GIT_TAG v1.0.0)\n\
        FetchContent_Declare(other GIT_REPOSITORY https://example.org/o/other GIT_TAG v1.0.0)\n";

    #[test]
    fn a_tag_stays_a_tag_when_there_is_one_and_becomes_the_commit_otherwise() {
        let edit = edit_tag(DECLARED, "n", &released()).unwrap();
        assert_eq!(edit.text, DECLARED.replacen("v1.0.0", "v2.0.0", 1));
        assert_eq!(edit.places[0].line, 6);
        let edit = edit_tag(DECLARED, "N", &pin()).unwrap();
        assert_eq!(edit.text, DECLARED.replacen("v1.0.0", NEW, 1));
        let by_commit = DECLARED.replacen("v1.0.0", OLD, 1);
        assert_eq!(edit_tag(&by_commit, "n", &released()).unwrap().text, DECLARED.replacen("v1.0.0", NEW, 1));
    }

    #[test]
    fn a_pin_that_moves_to_another_repository_takes_the_address_along() {
        let moved = NewPin { repository: "https://example.org/fork/n".to_owned(), ..pin() };
        let edit = edit_tag(DECLARED, "n", &moved).unwrap();
        assert!(edit.text.contains("GIT_REPOSITORY \"https://example.org/fork/n.git\"\n"), "{}", edit.text);
        assert_eq!(edit.places.len(), 2);
    }

    #[test]
    fn a_variable_leads_to_the_set_that_gives_it() {
        let text = "set(N_TAG \"v1\" CACHE STRING \"which\")\nExternalProject_Add(n GIT_TAG ${N_TAG})\n";
        assert_eq!(edit_tag(text, "n", &pin()).unwrap().text, text.replacen("v1", NEW, 1));
        let gone = "FetchContent_Declare(n GIT_TAG ${N_TAG})";
        assert!(matches!(edit_tag(gone, "n", &pin()), Err(EditProblem::NotFound { .. })));
    }

    #[test]
    fn what_is_not_there_or_differs_is_told() {
        assert!(matches!(edit_tag(DECLARED, "m", &pin()), Err(EditProblem::NotFound { .. })));
        let two = format!("{DECLARED}FetchContent_Declare(n GIT_TAG v9)\n");
        assert!(
            matches!(edit_tag(&two, "n", &pin()), Err(EditProblem::Ambiguous { lines, .. }) if lines == [6, 8])
        );
    }

    #[test]
    fn odd_files_are_read_without_harm() {
        for text in ["f(", "f(\"", "f(\"\\", "f([=[", "#[[", "f([==[ a ]=] ]==] b)", "é(ü \"ö\" # ä"] {
            let _ = calls(text);
        }
        assert_eq!(calls("f([==[ a ]=] ]==] b)")[0].words.len(), 2);
    }
}
