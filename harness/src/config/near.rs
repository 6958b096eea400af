//! Which known name did a person mean? Used wherever a name from a file or from the command line is not known.

/// So many names fit on a screen; whoever needs them all asks for a plan or a list.
const MOST_LISTED: usize = 20;

/// The known name closest to `word`, when one is close enough to be worth offering.
pub fn nearest<'n>(word: &str, known: impl IntoIterator<Item = &'n str>) -> Option<&'n str> {
    let word = word.to_lowercase();
    known
        .into_iter()
        .filter_map(|name| {
            let lowered = name.to_lowercase();
            let distance = strsim::damerau_levenshtein(&word, &lowered);
            let longest = word.chars().count().max(lowered.chars().count());
            // A third of the letters may differ; a name that the word begins (`qwen` for `qwen3-moe`) is close too.
            let close = distance * 3 <= longest || (word.len() >= 3 && lowered.starts_with(&word));
            close.then_some((distance, name))
        })
        .min()
        .map(|(_, name)| name)
}

/// What to say after ``unknown thing `word` ``: the near name when there is one, else every known name.
///
/// `things` is the plural that the list begins with, such as `builds`.
pub fn suggestion(word: &str, things: &str, known: &[&str]) -> String {
    match nearest(word, known.iter().copied()) {
        Some(name) => format!("did you mean `{name}`?"),
        None if known.is_empty() => format!("there are no {things}"),
        None => {
            let mut names = known.to_vec();
            names.dedup();
            let listed = names.iter().take(MOST_LISTED).copied().collect::<Vec<_>>().join(", ");
            match names.len().checked_sub(MOST_LISTED) {
                None | Some(0) => format!("known {things} are {listed}"),
                Some(more) => format!("known {things} are {listed} and {more} more"),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_slip_of_the_keyboard_finds_the_name_and_a_foreign_word_does_not() {
        let known = ["published", "patched", "qwen3-moe"];
        for (word, meant) in [
            ("publishd", Some("published")),
            ("Patched", Some("patched")),
            ("pathced", Some("patched")),
            ("qwen3", Some("qwen3-moe")),
            ("upstream", None),
            ("", None),
        ] {
            assert_eq!(nearest(word, known), meant, "{word}");
        }
    }

    #[test]
    fn without_a_near_name_all_names_are_listed() {
        assert_eq!(
            suggestion("x", "builds", &["published", "patched"]),
            "known builds are published, patched"
        );
        assert_eq!(suggestion("x", "builds", &[]), "there are no builds");
        let many: Vec<String> = (0..22).map(|n| format!("cell-{n:02}")).collect();
        let many: Vec<&str> = many.iter().map(String::as_str).collect();
        assert!(suggestion("x", "names", &many).ends_with("cell-18, cell-19 and 2 more"));
        assert!(suggestion("x", "names", &many[..20]).ends_with("cell-18, cell-19"));
    }
}
