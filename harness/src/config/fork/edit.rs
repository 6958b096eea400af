//! `[base]` of a `fork.toml` rewritten in place: values are replaced where they stand, comments and order stay.

use std::ops::Range;

use toml::de::{DeTable, DeValue};

use crate::tools::git::ids::{CommitId, TreeId};

/// The text of a `fork.toml` with another base. `tree` is only written where the file names one; a tag that the file
/// names is replaced, or taken out when the new base has none. A file without `[base]` comes back unchanged.
pub fn with_base(text: &str, commit: CommitId, tree: TreeId, tag: Option<&str>) -> String {
    let Ok(root) = DeTable::parse(text) else { return text.to_owned() };
    let Some(DeValue::Table(base)) = root.get_ref().get("base").map(|base| base.get_ref()) else {
        return text.to_owned();
    };
    let span = |key: &str| base.get(key).map(|value| value.span());
    let mut edits: Vec<(Range<usize>, String)> = Vec::new();
    let quoted = |value: &str| format!("\"{value}\"");
    edits.extend(span("commit").map(|at| (at, quoted(&commit.to_string()))));
    edits.extend(span("tree").map(|at| (at, quoted(&tree.to_string()))));
    let plain = tag.filter(|tag| !tag.contains(['"', '\\']) && !tag.chars().any(char::is_control));
    match (span("tag"), plain) {
        (Some(at), Some(tag)) => edits.push((at, quoted(tag))),
        (Some(at), None) => edits.push((line_around(text, &at), String::new())),
        (None, Some(tag)) => {
            if let Some(commit) = span("commit") {
                let end = line_around(text, &commit).end;
                edits.push((end..end, format!("tag = {}\n", quoted(tag))));
            }
        }
        (None, None) => {}
    }
    edits.sort_by_key(|(at, _)| std::cmp::Reverse(at.start));
    let mut out = text.to_owned();
    for (at, new) in edits {
        out.replace_range(at, &new);
    }
    out
}

fn line_around(text: &str, at: &Range<usize>) -> Range<usize> {
    let start = text[..at.start].rfind('\n').map_or(0, |newline| newline + 1);
    let end = text[at.end..].find('\n').map_or(text.len(), |newline| at.end + newline + 1);
    start..end
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_values_change() {
        let (commit, tree) = ("b".repeat(40).parse().unwrap(), "c".repeat(40).parse().unwrap());
        let old = "a".repeat(40);
        let text = format!(
            "# top\n[base]\n# why\ncommit = \"{old}\" # here\ntree = '{old}'\ntag = \"v1\"\n\n[stack]\nkind = \"x\"\n"
        );
        insta::assert_snapshot!(with_base(&text, commit, tree, Some("v2")), @r#"
        # top
        [base]
        # why
        commit = "bbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbb" # here
        tree = "cccccccccccccccccccccccccccccccccccccccc"
        tag = "v2"

        [stack]
        kind = "x"
        "#);
        assert!(!with_base(&text, commit, tree, None).contains("tag"));
        let untagged = format!("[base]\ncommit = \"{old}\"\n");
        let expected = format!("[base]\ncommit = \"{commit}\"\ntag = \"v2\"\n");
        assert_eq!(with_base(&untagged, commit, tree, Some("v2")), expected);
        assert_eq!(with_base("[stack]\n", commit, tree, None), "[stack]\n");
    }
}
