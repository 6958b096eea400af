//! In which order the patch files of a folder apply: by number, by a quilt `series` file, or by a list that stands in
//! some build file. It works on names and text; reading folders is for its callers.

use std::collections::{BTreeMap, BTreeSet};

pub use crate::config::fork::PatchOrder;

/// Why an order cannot be told.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum OrderError {
    /// File names without a number.
    #[error("no number begins the name of {}", .0.join(", "))]
    Unnumbered(Vec<String>),
    /// Two files with one number.
    #[error("{first} and {second} have the same number")]
    SameNumber {
        /// One of them.
        first: String,
        /// The other.
        second: String,
    },
    /// The list is not in the text.
    #[error("no list `{0}` of patch files stands there")]
    NoList(String),
    /// The list names a file that is not there.
    #[error("{} listed but not in the folder", named(.0, "is", "are"))]
    Missing(Vec<String>),
    /// The folder holds a patch that the list leaves out.
    #[error("{} in the folder but not listed", named(.0, "is", "are"))]
    Unlisted(Vec<String>),
    /// The list names a file twice.
    #[error("{0} is listed twice")]
    Twice(String),
}

/// The names sorted by the number that each begins with.
///
/// # Errors
/// When a name has no number or two have the same.
pub fn by_number(names: &[String]) -> Result<Vec<String>, OrderError> {
    let number = |name: &String| {
        let digits = name.len() - name.trim_start_matches(|c: char| c.is_ascii_digit()).len();
        name[..digits].parse::<u64>().ok()
    };
    let unnumbered: Vec<String> = names.iter().filter(|name| number(name).is_none()).cloned().collect();
    if !unnumbered.is_empty() {
        return Err(OrderError::Unnumbered(unnumbered));
    }
    let mut sorted = BTreeMap::new();
    for name in names {
        if let Some(first) = sorted.insert(number(name), name.clone()) {
            return Err(OrderError::SameNumber { first, second: name.clone() });
        }
    }
    Ok(sorted.into_values().collect())
}

/// The names in the order of a `series` file: one a line, `#` begins a comment, words after the name are options.
///
/// # Errors
/// When list and folder disagree.
pub fn by_series(series: &str, names: &[String]) -> Result<Vec<String>, OrderError> {
    let listed = series
        .lines()
        .filter_map(|line| line.split('#').next().unwrap_or_default().split_whitespace().next())
        .map(str::to_owned);
    agreed(listed.collect(), names)
}

/// The names in the order of the list `list` in `text`: whatever ends in `.patch` or `.diff` between the list's name
/// and the next closing bracket of any kind.
///
/// # Errors
/// When there is no such list, or when list and folder disagree.
pub fn by_list(text: &str, list: &str, names: &[String]) -> Result<Vec<String>, OrderError> {
    let is_word = |c: char| c.is_alphanumeric() || matches!(c, '_' | '-');
    let listed = text
        .match_indices(list)
        .filter(|(at, _)| {
            let after = &text[at + list.len()..];
            !text[..*at].ends_with(is_word) && !after.starts_with(is_word)
        })
        .map(|(at, _)| {
            // The list's own opening bracket may come before its name (`set(NAME`) or after it (`NAME = [`).
            let after = &text[at + list.len()..];
            let end = after.find([')', ']', '}']).unwrap_or(after.len());
            after[..end]
                .lines()
                .flat_map(|line| {
                    line.split('#')
                        .next()
                        .unwrap_or_default()
                        .split(|c: char| c.is_whitespace() || ",;\"'([{=".contains(c))
                })
                .filter(|word| is_patch_name(word))
                .map(|word| word.rsplit('/').next().unwrap_or(word).to_owned())
                .collect::<Vec<String>>()
        })
        .find(|listed| !listed.is_empty())
        .ok_or_else(|| OrderError::NoList(list.to_owned()))?;
    agreed(listed, names)
}

/// Whether a file name is that of a patch.
pub fn is_patch_name(name: &str) -> bool {
    name.ends_with(".patch") || name.ends_with(".diff")
}

fn agreed(listed: Vec<String>, names: &[String]) -> Result<Vec<String>, OrderError> {
    let mut seen = BTreeSet::new();
    if let Some(twice) = listed.iter().find(|name| !seen.insert(*name)) {
        return Err(OrderError::Twice(twice.clone()));
    }
    let missing: Vec<String> = listed.iter().filter(|name| !names.contains(name)).cloned().collect();
    if !missing.is_empty() {
        return Err(OrderError::Missing(missing));
    }
    let unlisted: Vec<String> = names.iter().filter(|name| !listed.contains(name)).cloned().collect();
    if !unlisted.is_empty() {
        return Err(OrderError::Unlisted(unlisted));
    }
    Ok(listed)
}

fn named(names: &[String], one: &str, many: &str) -> String {
    format!("{} {}", names.join(", "), if names.len() == 1 { one } else { many })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(names: &[&str]) -> Vec<String> {
        names.iter().map(|&name| name.to_owned()).collect()
    }

    #[test]
    fn numbers_sort_by_value_and_must_be_there_and_differ() {
        assert_eq!(
            by_number(&names(&["10-a.patch", "0002-b.patch"])).unwrap(),
            ["0002-b.patch", "10-a.patch"]
        );
        assert_eq!(by_number(&names(&["a.patch"])), Err(OrderError::Unnumbered(names(&["a.patch"]))));
        assert!(matches!(
            by_number(&names(&["1-a.patch", "01-b.patch"])),
            Err(OrderError::SameNumber { .. })
        ));
    }

    #[test]
    fn a_list_in_a_build_file_gives_the_order() {
        let text = "# my_patch_files\nset(other_my_patches z.patch)\nset(my_patches\n  b.patch # c.patch\n  \"a.patch\")\n\
                    foreach(p IN LISTS my_patches)";
        assert_eq!(
            by_list(text, "my_patches", &names(&["a.patch", "b.patch"])).unwrap(),
            ["b.patch", "a.patch"]
        );
        assert_eq!(
            by_list("P = [ 'x/2.diff', \"x/1.diff\" ]", "P", &names(&["1.diff", "2.diff"])).unwrap(),
            ["2.diff", "1.diff"]
        );
        assert_eq!(by_list(text, "gone", &[]), Err(OrderError::NoList("gone".to_owned())));
    }

    #[test]
    fn list_and_folder_must_agree() {
        let there = names(&["a.patch", "b.patch"]);
        assert_eq!(by_series("b.patch -p1\n# no\na.patch\n", &there).unwrap(), ["b.patch", "a.patch"]);
        assert_eq!(by_series("b.patch\n", &there), Err(OrderError::Unlisted(names(&["a.patch"]))));
        assert_eq!(
            by_series("a.patch\nb.patch\nc.patch\n", &there),
            Err(OrderError::Missing(names(&["c.patch"])))
        );
        assert_eq!(by_series("a.patch\na.patch\n", &there), Err(OrderError::Twice("a.patch".to_owned())));
    }
}
