//! `Package.resolved`, versions 1 to 3.

use std::ops::Range;

use super::{EditProblem, NewPin, Replacing, TextEdit, same_repository};

/// Moves the package of the pin's repository to the commit, with its version when the commit has one.
///
/// # Errors
/// When the file is no JSON of a known version, or holds no such package.
pub fn edit(text: &str, pin: &NewPin) -> Result<TextEdit, EditProblem> {
    let unreadable = |reason: String| EditProblem::Unreadable { format: "Package.resolved", reason };
    serde_json::from_str::<serde_json::Value>(text).map_err(|error| unreadable(error.to_string()))?;
    let file = Members::of(text, 0).ok_or_else(|| unreadable("it is no object".to_owned()))?;
    let version = file.get("version").map(|range| text[range].to_owned());
    let (pins, address) = match version.as_deref() {
        Some("1") => {
            let object = file.get("object").and_then(|object| Members::of(text, object.start));
            (object.and_then(|object| object.get("pins")), "repositoryURL")
        }
        Some("2" | "3") => (file.get("pins"), "location"),
        other => return Err(unreadable(format!("version {} is not known", other.unwrap_or("?")))),
    };
    let pins = pins.ok_or_else(|| unreadable("it has no pins".to_owned()))?;
    let mut found = None;
    for entry in elements(text, pins.start) {
        let Some(members) = Members::of(text, entry.start) else { continue };
        let of_pin =
            members.text(address).is_some_and(|range| same_repository(&text[range], &pin.repository));
        if of_pin {
            found = members.get("state").and_then(|state| Members::of(text, state.start));
        }
    }
    let not_found = || EditProblem::NotFound { what: format!("package from {}", pin.repository) };
    let state = found.ok_or_else(not_found)?;
    let revision = state.text("revision").ok_or_else(not_found)?;
    let mut replacing = Replacing::new(text);
    let moved = text[revision.clone()] != pin.commit.to_string();
    replacing.put(revision, pin.commit.to_string());
    if let Some(version) = state.text("version") {
        match &pin.version {
            Some(new) => replacing.put(version, new.clone()),
            // Version 1 writes every key; later ones leave out what is absent.
            None if file.get("version").is_some_and(|range| text[range] == *"1") => {
                replacing.put(version.start - 1..version.end + 1, "null");
            }
            None => replacing.put(state.member_with_comma("version"), ""),
        }
    }
    if moved && file.get("originHash").is_some() {
        replacing.note("`originHash` belongs to the old Package.swift: `swift package resolve` renews it");
    }
    Ok(replacing.finish())
}

/// The members of one object: key, where the key's text begins, and where the value stands.
struct Members<'t> {
    text: &'t str,
    members: Vec<(Range<usize>, Range<usize>)>,
}

impl<'t> Members<'t> {
    /// The object that begins at or after `at`. The text is known to be well-formed.
    fn of(text: &'t str, at: usize) -> Option<Self> {
        let mut at = skip_space(text, at);
        (text.as_bytes().get(at) == Some(&b'{')).then_some(())?;
        at += 1;
        let mut members = Vec::new();
        loop {
            at = skip_space(text, at);
            match text.as_bytes().get(at)? {
                b'}' => return Some(Self { text, members }),
                b',' => at += 1,
                _ => {
                    let key = at..value_end(text, at)?;
                    at = skip_space(text, key.end);
                    at = skip_space(text, at + 1);
                    let value = at..value_end(text, at)?;
                    at = value.end;
                    members.push((key, value));
                }
            }
        }
    }

    fn at(&self, key: &str) -> Option<usize> {
        self.members.iter().position(|(found, _)| self.text[found.start + 1..found.end - 1] == *key)
    }

    fn get(&self, key: &str) -> Option<Range<usize>> {
        self.at(key).map(|at| self.members[at].1.clone())
    }

    /// Where the contents of a text stand; `None` for other values.
    fn text(&self, key: &str) -> Option<Range<usize>> {
        let value = self.get(key)?;
        self.text[value.clone()].starts_with('"').then(|| value.start + 1..value.end - 1)
    }

    /// Everything that has to go for the member to go: with the comma before it, or else the one after it.
    fn member_with_comma(&self, key: &str) -> Range<usize> {
        let Some(at) = self.at(key) else { return 0..0 };
        let (name, value) = &self.members[at];
        match (at.checked_sub(1), self.members.get(at + 1)) {
            (Some(before), _) => self.members[before].1.end..value.end,
            (None, Some((next, _))) => name.start..next.start,
            (None, None) => name.start..value.end,
        }
    }
}

fn elements(text: &str, at: usize) -> Vec<Range<usize>> {
    let mut found = Vec::new();
    let mut at = skip_space(text, at) + 1;
    loop {
        at = skip_space(text, at);
        match text.as_bytes().get(at) {
            None | Some(b']') => return found,
            Some(b',') => at += 1,
            Some(_) => {
                let Some(end) = value_end(text, at) else { return found };
                found.push(at..end);
                at = end;
            }
        }
    }
}

fn skip_space(text: &str, at: usize) -> usize {
    let rest = text.get(at..).unwrap_or_default();
    at + rest.len() - rest.trim_start().len()
}

/// Where the value that begins at `at` ends.
fn value_end(text: &str, at: usize) -> Option<usize> {
    let bytes = text.as_bytes();
    let (mut at, mut depth) = (at, 0_usize);
    loop {
        match bytes.get(at)? {
            b'"' => {
                at += 1;
                while *bytes.get(at)? != b'"' {
                    at += if bytes[at] == b'\\' { 2 } else { 1 };
                }
                at += 1;
            }
            b'{' | b'[' => (depth, at) = (depth + 1, at + 1),
            b'}' | b']' if depth > 0 => (depth, at) = (depth - 1, at + 1),
            b',' | b'}' | b']' if depth == 0 => return Some(at),
            byte if depth == 0 && byte.is_ascii_whitespace() => return Some(at),
            _ => {
                at += 1;
                continue;
            }
        }
        if depth == 0 {
            return Some(at);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{
        super::samples::{NEW, OLD, pin, released},
        *,
    };

    fn second(state: &str) -> String {
        format!(
            "{{\n  \"originHash\" : \"abc\",\n  \"pins\" : [\n    {{\n      \"identity\" : \"m\",\n      \
             \"location\" : \"https://example.org/o/m\",\n      \"state\" : {{\n        \"revision\" : \"{OLD}\"\n      }}\n    }},\n    {{\n      \
             \"identity\" : \"n\",\n      \"location\" : \"https://example.org/o/n.git\",\n      \"state\" : {{{state}}}\n    }}\n  ],\n  \
             \"version\" : 3\n}}\n"
        )
    }

    #[test]
    fn the_state_of_the_one_package_moves_and_the_layout_stays() {
        let lines = |revision: &str, version: &str| {
            format!("\n        \"revision\" : \"{revision}\",\n        \"version\" : \"{version}\"\n      ")
        };
        let text = second(&lines(OLD, "1.0.0"));
        let edited = edit(&text, &released()).unwrap();
        assert_eq!(edited.text, second(&lines(NEW, "2.0.0")));
        assert_eq!(edited.notes.len(), 1);
        // Without a version, its line goes with its comma.
        let bare = second(&format!("\n        \"revision\" : \"{NEW}\"\n      "));
        assert_eq!(edit(&text, &pin()).unwrap().text, bare);
        let first = second(&format!("\"version\" : \"1.0.0\", \"revision\" : \"{OLD}\""));
        assert_eq!(edit(&first, &pin()).unwrap().text, second(&format!("\"revision\" : \"{NEW}\"")));
    }

    #[test]
    fn the_first_version_writes_null() {
        let text = |revision: &str, version: &str| {
            format!(
                "{{\"object\": {{\"pins\": [{{\"package\": \"n\", \"repositoryURL\": \"https://example.org/o/n\", \
                 \"state\": {{\"branch\": null, \"revision\": \"{revision}\", \"version\": {version}}}}}]}}, \"version\": 1}}"
            )
        };
        assert_eq!(edit(&text(OLD, "\"1.0.0\""), &pin()).unwrap().text, text(NEW, "null"));
    }

    #[test]
    fn what_cannot_be_read_or_found_is_told() {
        for (text, told) in [
            ("[", "cannot be read"),
            ("{\"version\": 9, \"pins\": []}", "version 9 is not known"),
            ("{\"version\": 2, \"pins\": []}", "no package from"),
        ] {
            let problem = edit(text, &pin()).unwrap_err().to_string();
            assert!(problem.contains(told), "{problem}");
        }
    }
}
