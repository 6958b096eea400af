//! `.package(…)` entries of `Package.swift`.

use std::ops::Range;

use super::{EditProblem, NewPin, Replacing, TextEdit, agreeing, line_of, same_repository};

/// Moves the package of the pin's repository. A `revision` becomes the commit; an `exact` version becomes the new version
/// when the commit has one, and the commit otherwise.
///
/// # Errors
/// When no package comes from there, or when the entry follows a branch, a range or a folder.
pub fn edit(text: &str, pin: &NewPin) -> Result<TextEdit, EditProblem> {
    let packages: Vec<Package> = packages(text);
    let from_there: Vec<&Package> = packages
        .iter()
        .filter(|package| {
            let url = package.labelled(text, "url");
            url.is_some_and(|url| same_repository(&text[url], &pin.repository))
        })
        .collect();
    if from_there.is_empty() {
        let name = pin
            .repository
            .trim_end_matches('/')
            .trim_end_matches(".git")
            .rsplit('/')
            .next()
            .unwrap_or_default();
        let by_path = packages.iter().find_map(|package| {
            package.labelled(text, "path").filter(|path| text[path.clone()].rsplit('/').next() == Some(name))
        });
        return Err(match by_path {
            Some(path) => EditProblem::OtherKind {
                found: format!(
                    "line {} takes the package from the folder `{}`: a submodule or vendored tree is the pin",
                    line_of(text, path.start),
                    &text[path]
                ),
            },
            None => EditProblem::NotFound { what: format!("package from {}", pin.repository) },
        });
    }
    let mut places = Vec::new();
    for package in from_there {
        let named =
            ["revision", "exact"].iter().find_map(|label| Some((*label, package.requirement(text, label)?)));
        let Some((label, place)) = named else {
            let line = line_of(text, package.whole.start);
            return Err(EditProblem::Floating { line, follows: package.follows(text) });
        };
        places.push((label, place));
    }
    let what = format!("the revision of {}", pin.repository);
    agreeing(&what, text, places.iter().map(|(_, place)| (place.value.start, &text[place.value.clone()])))?;
    let mut replacing = Replacing::new(text);
    for (label, place) in places {
        match (label, &pin.version) {
            ("exact", Some(version)) => replacing.put(place.value, version.clone()),
            ("exact", None) => {
                replacing.put(place.label, "revision");
                replacing.put(place.value, pin.commit.to_string());
            }
            _ => replacing.put(place.value, pin.commit.to_string()),
        }
    }
    Ok(replacing.finish())
}

struct Package {
    /// Everything between the brackets.
    whole: Range<usize>,
    /// The contents of every text in it.
    texts: Vec<Range<usize>>,
}

struct Requirement {
    label: Range<usize>,
    value: Range<usize>,
}

impl Package {
    /// The text after `label:`.
    fn labelled(&self, text: &str, label: &str) -> Option<Range<usize>> {
        self.requirement(text, label).map(|found| found.value)
    }

    /// The text after `label:` or inside `.label(…)`.
    fn requirement(&self, text: &str, label: &str) -> Option<Requirement> {
        self.texts.iter().find_map(|value| {
            let before = text[self.whole.start..value.start - 1].trim_end();
            let (named, short) = match before.strip_suffix(':') {
                Some(named) => (named.trim_end(), false),
                None => (before.strip_suffix('(')?.trim_end(), true),
            };
            let rest = named.strip_suffix(label)?;
            let whole = !rest.ends_with(|c: char| c.is_alphanumeric() || c == '_');
            (whole && (!short || rest.ends_with('.'))).then(|| {
                let end = self.whole.start + named.len();
                Requirement { label: end - label.len()..end, value: value.clone() }
            })
        })
    }

    /// What an entry without an exact requirement follows.
    fn follows(&self, text: &str) -> String {
        if let Some(branch) = self.labelled(text, "branch") {
            return format!("branch `{}`", &text[branch]);
        }
        if let Some(from) = self.labelled(text, "from") {
            return format!("every version from `{}` on, within limits", &text[from]);
        }
        "a range of versions".to_owned()
    }
}

/// Every `.package(` call outside comments.
fn packages(text: &str) -> Vec<Package> {
    let bytes = text.as_bytes();
    let (mut packages, mut at) = (Vec::new(), 0);
    while at < bytes.len() {
        if let Some(next) = after_comment(text, at) {
            at = next;
        } else if bytes[at] == b'"' {
            at = text_end(text, at) + 1;
        } else if text[at..].starts_with(".package(") {
            let start = at + ".package(".len();
            let (mut depth, mut texts) = (1, Vec::new());
            at = start;
            while at < bytes.len() && depth > 0 {
                if let Some(next) = after_comment(text, at) {
                    at = next;
                    continue;
                }
                match bytes[at] {
                    b'(' => depth += 1,
                    b')' => depth -= 1,
                    b'"' => {
                        let end = text_end(text, at);
                        texts.push(at + 1..end);
                        at = end;
                    }
                    _ => {}
                }
                at += 1;
            }
            packages.push(Package { whole: start..at.min(bytes.len()), texts });
        } else {
            at += text[at..].chars().next().map_or(1, char::len_utf8);
        }
    }
    packages
}

fn text_end(text: &str, open: usize) -> usize {
    let bytes = text.as_bytes();
    let mut at = open + 1;
    while at < bytes.len() && bytes[at] != b'"' {
        at += if bytes[at] == b'\\' { 2 } else { 1 };
    }
    at.min(bytes.len())
}

fn after_comment(text: &str, at: usize) -> Option<usize> {
    let rest = text.as_bytes().get(at..)?;
    let end = |close: &str| text[at..].find(close).map_or(text.len(), |length| at + length + close.len());
    match rest {
        [b'/', b'/', ..] => Some(end("\n")),
        [b'/', b'*', ..] => Some(end("*/")),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::{
        super::samples::{NEW, OLD, pin, released},
        *,
    };

    fn manifest(requirement: &str) -> String {
        format!(
            "// .package(url: \"https://example.org/o/n\", revision: \"x\")\nlet p = Package(dependencies: [\n  \
             .package(url: \"https://example.org/o/n.git\", {requirement}),  // é\n  \
             .package(url: \"https://example.org/o/m\", exact: \"1.0.0\"),\n])\n"
        )
    }

    #[test]
    fn revisions_and_exact_versions_move() {
        for (old, new, pin) in [
            (format!("revision: \"{OLD}\""), format!("revision: \"{NEW}\""), pin()),
            (format!(".revision(\"{OLD}\")"), format!(".revision(\"{NEW}\")"), released()),
            ("exact: \"1.0.0\"".to_owned(), "exact: \"2.0.0\"".to_owned(), released()),
            (".exact(\"1.0.0\")".to_owned(), format!(".revision(\"{NEW}\")"), pin()),
            ("exact : \"1.0.0\"".to_owned(), format!("revision : \"{NEW}\""), pin()),
        ] {
            assert_eq!(edit(&manifest(&old), &pin).unwrap().text, manifest(&new), "{old}");
        }
    }

    #[test]
    fn what_pins_nothing_is_told_with_what_it_follows() {
        for (requirement, told) in [
            ("branch: \"main\"", "line 3 follows branch `main`"),
            (".upToNextMinor(from: \"0.31.6\")", "from `0.31.6`"),
            ("\"1.0.0\" ..< \"2.0.0\"", "a range of versions"),
        ] {
            let problem = edit(&manifest(requirement), &pin()).unwrap_err().to_string();
            assert!(problem.contains(told), "{problem}");
        }
        let folder = edit(".package(path: \"../n\")", &pin()).unwrap_err();
        assert!(matches!(folder, EditProblem::OtherKind { .. }), "{folder}");
        assert!(matches!(edit("let x = 1", &pin()), Err(EditProblem::NotFound { .. })));
        for odd in [".package(", ".package(url: \"", "/*", "\"\\"] {
            assert!(edit(odd, &pin()).is_err());
        }
    }
}
