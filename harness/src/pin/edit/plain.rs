//! A pin that is nothing but 40 hexadecimal digits in a text file.

use std::ops::Range;

use super::{EditProblem, NewPin, Replacing, TextEdit, agreeing};

/// Replaces the one commit id that the text holds, wherever it is repeated.
///
/// # Errors
/// When there is none, or when there are different ones.
pub fn edit(text: &str, pin: &NewPin) -> Result<TextEdit, EditProblem> {
    let found = hex_words(text, 40);
    if found.is_empty() {
        return Err(EditProblem::NotFound { what: "commit id of 40 hexadecimal digits".to_owned() });
    }
    agreeing("a commit id", text, found.iter().map(|range| (range.start, &text[range.clone()])))?;
    let mut replacing = Replacing::new(text);
    found.into_iter().for_each(|range| replacing.put(range, pin.commit.to_string()));
    Ok(replacing.finish())
}

/// Where words of exactly `length` hexadecimal digits stand.
pub fn hex_words(text: &str, length: usize) -> Vec<Range<usize>> {
    let bytes = text.as_bytes();
    let mut found = Vec::new();
    let mut at = 0;
    while at < bytes.len() {
        if !bytes[at].is_ascii_alphanumeric() {
            at += 1;
            continue;
        }
        let end =
            bytes[at..].iter().position(|byte| !byte.is_ascii_alphanumeric()).map_or(bytes.len(), |n| at + n);
        if end - at == length && bytes[at..end].iter().all(u8::is_ascii_hexdigit) {
            found.push(at..end);
        }
        at = end;
    }
    found
}

/// Where `word` stands whole: with no letter, digit, `-`, `_` or `.` followed by one of these right beside it.
pub fn whole_words(text: &str, word: &str) -> Vec<Range<usize>> {
    let part = |c: char| c.is_ascii_alphanumeric() || c == '_' || c == '-';
    text.match_indices(word)
        .filter(|&(at, _)| {
            let after = &text[at + word.len()..];
            // A full stop ends a sentence, and goes on in a version.
            let goes_on = after.starts_with(part)
                || (after.starts_with('.') && after[1..].starts_with(|c: char| c.is_ascii_digit()));
            !text[..at].ends_with(part) && !goes_on
        })
        .map(|(at, _)| at..at + word.len())
        .collect()
}

#[cfg(test)]
mod tests {
    use super::{
        super::samples::{NEW, OLD, pin},
        *,
    };

    #[test]
    fn the_one_id_moves_wherever_it_is_repeated() {
        let edit = edit(&format!("# pin\n{OLD}\nsee {OLD}."), &pin()).unwrap();
        assert_eq!(edit.text, format!("# pin\n{NEW}\nsee {NEW}."));
        assert_eq!(edit.places.len(), 2);
    }

    #[test]
    fn none_and_several_are_told() {
        assert!(matches!(edit("abc", &pin()), Err(EditProblem::NotFound { .. })));
        assert!(matches!(edit(&format!("{OLD}0"), &pin()), Err(EditProblem::NotFound { .. })));
        let two = format!("{OLD}\n3333333333333333333333333333333333333333\n");
        assert!(matches!(edit(&two, &pin()), Err(EditProblem::Ambiguous { lines, .. }) if lines == [1, 2]));
    }

    #[test]
    fn a_word_inside_another_is_not_it() {
        assert_eq!(whole_words("v1.2 v1.2.3 xv1.2 v1.2-rc (v1.2), v1.2.", "v1.2").len(), 3);
    }
}
