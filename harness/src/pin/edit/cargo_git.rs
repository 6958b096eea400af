//! Git revisions in `Cargo.toml` and `Cargo.lock`.

use std::collections::BTreeMap;

use super::{
    EditProblem, NewPin, Replacing, TextEdit, agreeing, line_of,
    manifest::{Dependency, Text, requoted, with_dependencies},
    same_repository,
};

/// Moves every dependency on the pin's repository to its commit. A `tag` becomes a `rev`, since the commit is what was
/// proven.
///
/// # Errors
/// When no dependency comes from there, when several name different revisions, or when one follows a branch.
pub fn edit_manifest(text: &str, pin: &NewPin) -> Result<TextEdit, EditProblem> {
    with_dependencies(text, |dependencies| {
        let from_there: Vec<&Dependency<'_>> = dependencies
            .iter()
            .filter(|entry| {
                entry.text("git").is_some_and(|address| same_repository(&address.value, &pin.repository))
            })
            .collect();
        if from_there.is_empty() {
            return Err(EditProblem::NotFound { what: format!("dependency on {}", pin.repository) });
        }
        let named: Vec<Text> =
            from_there.iter().map(|entry| named_revision(text, entry)).collect::<Result<_, _>>()?;
        let what = format!("the revision of {}", pin.repository);
        agreeing(&what, text, named.iter().map(|text| (text.range.start, text.value.as_str())))?;
        let mut replacing = Replacing::new(text);
        for revision in named {
            let key = &text[revision.key.clone()];
            if key != "rev" {
                replacing.put(revision.key.clone(), "rev");
            }
            let old = &text[revision.range.clone()];
            replacing.put(revision.range.clone(), requoted(old, &pin.commit.to_string()));
        }
        Ok(replacing.finish())
    })
}

fn named_revision(text: &str, entry: &Dependency<'_>) -> Result<Text, EditProblem> {
    if let Some(found) = entry.text("rev").or_else(|| entry.text("tag")) {
        return Ok(found);
    }
    let (line, follows) = match entry.text("branch") {
        Some(branch) => (line_of(text, branch.range.start), format!("branch `{}`", branch.value)),
        None => (line_of(text, entry.at), "the default branch".to_owned()),
    };
    Err(EditProblem::Floating { line, follows })
}

/// Moves every package of the pin's repository in a lock file to its commit, and to the version that the commit gives
/// it (`versions`, by package name; a package that is not named there keeps its version).
///
/// # Errors
/// When no package comes from there.
pub fn edit_lock(
    text: &str,
    pin: &NewPin,
    versions: &BTreeMap<String, String>,
) -> Result<TextEdit, EditProblem> {
    let mut replacing = Replacing::new(text);
    let mut found = false;
    for package in packages(text) {
        let Some(source) = package.value(text, "source") else { continue };
        let Some(git) = text[source.clone()].strip_prefix("git+") else { continue };
        let (address, was) = git.rsplit_once('#').unwrap_or((git, ""));
        let (address, query) = address.split_once('?').map_or((address, None), |(a, q)| (a, Some(q)));
        if !same_repository(address, &pin.repository) {
            continue;
        }
        found = true;
        // A branch is followed under its name; what was named by revision or tag is named by the new revision.
        let query = match query {
            Some(branch) if branch.starts_with("branch=") => format!("?{branch}"),
            None => String::new(),
            Some(_) => format!("?rev={}", pin.commit),
        };
        if was != pin.commit.to_string() {
            let name = package.value(text, "name").map_or("?", |range| &text[range]);
            replacing.put(source, format!("git+{address}{query}#{}", pin.commit));
            if let (Some(version), Some(range)) = (versions.get(name), package.value(text, "version")) {
                replacing.put(range, version.clone());
            }
        }
    }
    if !found {
        return Err(EditProblem::NotFound { what: format!("package from {}", pin.repository) });
    }
    Ok(replacing.finish())
}

/// One `[[package]]` of a lock file: where its lines stand.
pub(super) struct Package {
    lines: std::ops::Range<usize>,
}

impl Package {
    /// Where the value of a `key = "value"` line stands, without quotes.
    pub(super) fn value(&self, text: &str, key: &str) -> Option<std::ops::Range<usize>> {
        let mut at = self.lines.start;
        for line in text[self.lines.clone()].split_inclusive('\n') {
            let rest = line.strip_prefix(key).and_then(|rest| rest.strip_prefix(" = \""));
            if let Some(end) = rest.and_then(|rest| rest.find('"')) {
                let start = at + key.len() + 4;
                return Some(start..start + end);
            }
            at += line.len();
        }
        None
    }
}

/// Every package of a lock file. Cargo writes these files itself, one key a line.
pub(super) fn packages(text: &str) -> Vec<Package> {
    let mut starts: Vec<usize> = text.match_indices("[[package]]").map(|(at, _)| at).collect();
    starts.push(text.len());
    starts.windows(2).map(|pair| Package { lines: pair[0]..pair[1] }).collect()
}

#[cfg(test)]
mod tests {
    use super::{
        super::samples::{NEW, OLD, pin},
        *,
    };

    #[test]
    fn every_dependency_on_the_repository_moves_and_the_rest_stays() {
        let text = format!(
            "# top\n[dependencies]\na = {{ git = \"https://example.org/o/n\", rev = \"{OLD}\" }} # why\n\
             b = {{ git = 'https://example.org/o/n.git', rev = '{OLD}', features = [\"x\"] }}\n\
             c = {{ git = \"https://example.org/o/other\", rev = \"{OLD}\" }}\n\
             [target.'cfg(unix)'.dev-dependencies.d]\nrev = \"{OLD}\"\ngit = \"https://example.org/o/n\"\n\
             [workspace.dependencies]\ne={{git=\"https://example.org/o/n\",rev=\"{OLD}\"}}\n\
             [patch.crates-io]\nf = {{ git = \"https://example.org/o/n\", rev = \"{OLD}\" }}\n"
        );
        let edit = edit_manifest(&text, &pin()).unwrap();
        let mut expected = text.replace(OLD, NEW);
        let other = format!("o/other\", rev = \"{OLD}\"");
        expected = expected.replace(&format!("o/other\", rev = \"{NEW}\""), &other);
        assert_eq!(edit.text, expected);
        assert_eq!(edit.places.iter().map(|place| place.line).collect::<Vec<_>>(), [3, 4, 7, 10, 12]);
        assert_eq!(edit_manifest(&edit.text, &pin()).unwrap().places, []);
    }

    #[test]
    fn a_tag_becomes_the_revision_that_was_proven() {
        let text = "[dependencies]\na = { git = \"https://example.org/o/n\", tag = \"v1\" }\n";
        let edit = edit_manifest(text, &pin()).unwrap();
        assert_eq!(
            edit.text,
            format!("[dependencies]\na = {{ git = \"https://example.org/o/n\", rev = \"{NEW}\" }}\n")
        );
    }

    #[test]
    fn what_is_no_pin_or_not_one_is_told() {
        let problem = |text: &str| edit_manifest(text, &pin()).unwrap_err().to_string();
        let git = "git = \"https://example.org/o/n\"";
        for (text, told) in [
            ("[dependencies]\n".to_owned(), "no dependency on https://example.org/o/n is there"),
            (format!("[dependencies]\na = {{ {git}, branch = \"main\" }}\n"), "line 2 follows branch `main`"),
            (format!("[dependencies]\na = {{ {git} }}\n"), "line 2 follows the default branch"),
            (
                format!(
                    "[dependencies]\na = {{ {git}, rev = \"{OLD}\" }}\nb = {{ {git}, rev = \"abc1234\" }}\n"
                ),
                "different values, on lines 2, 3",
            ),
            ("[dependencies\n".to_owned(), "cannot be read as TOML"),
        ] {
            assert!(problem(&text).contains(told), "{text}: {}", problem(&text));
        }
    }

    #[test]
    fn the_lock_follows_with_the_version_of_the_new_commit() {
        let package = |name: &str, version: &str, source: &str| {
            format!("[[package]]\nname = \"{name}\"\nversion = \"{version}\"\nsource = \"{source}\"\n\n")
        };
        let at = |commit: &str| format!("git+https://example.org/o/n?rev={commit}#{commit}");
        let other = package("c", "1.0.0", "registry+https://example.org/index");
        let text = format!(
            "version = 4\n\n{}{}{other}",
            package("a", "0.1.0", &at(OLD)),
            package("b", "0.1.0", &at(OLD))
        );
        let versions = BTreeMap::from([("a".to_owned(), "0.2.0".to_owned())]);
        let edit = edit_lock(&text, &pin(), &versions).unwrap();
        let expected = format!(
            "version = 4\n\n{}{}{other}",
            package("a", "0.2.0", &at(NEW)),
            package("b", "0.1.0", &at(NEW))
        );
        assert_eq!(edit.text, expected);
        let branch = package("a", "0.1.0", &format!("git+https://example.org/o/n.git?branch=main#{OLD}"));
        let edit = edit_lock(&branch, &pin(), &versions).unwrap();
        assert!(edit.text.contains(&format!("n.git?branch=main#{NEW}")), "{}", edit.text);
        assert!(matches!(edit_lock(&other, &pin(), &versions), Err(EditProblem::NotFound { .. })));
    }
}
