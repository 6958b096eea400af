//! The address of a submodule in `.gitmodules`. The commit itself is an entry of the tree, which the plan edits.

use std::ops::Range;

use super::{EditProblem, NewPin, Replacing, TextEdit, same_repository};

/// Points the submodule at `path` to the pin's repository, where it names another one.
///
/// # Errors
/// When no submodule of that path is declared.
pub fn edit(text: &str, path: &str, pin: &NewPin) -> Result<TextEdit, EditProblem> {
    let sections = sections(text);
    let of_path =
        |section: &&Section| section.path.as_ref().is_some_and(|range| text[range.clone()] == *path);
    let matching: Vec<&Section> = sections.iter().filter(of_path).collect();
    let url = match &matching[..] {
        [Section { url: Some(url), .. }] => url.clone(),
        [] | [_] => {
            return Err(EditProblem::NotFound {
                what: format!("submodule with the path `{path}` and an address"),
            });
        }
        several => {
            let lines = several.iter().filter_map(|s| s.path.as_ref()).map(|p| super::line_of(text, p.start));
            return Err(EditProblem::Ambiguous {
                what: format!("submodule `{path}`"),
                lines: lines.collect(),
            });
        }
    };
    let mut replacing = Replacing::new(text);
    let old = &text[url.clone()];
    // A relative address follows the consumer's own host, which the pin cannot know.
    if old.starts_with("./") || old.starts_with("../") {
        replacing.note(format!(
            "submodule `{path}` has the relative address `{old}`: check that it serves the commit"
        ));
    } else if !same_repository(old, &pin.repository) {
        replacing.put(url, pin.repository.clone());
    }
    Ok(replacing.finish())
}

#[derive(Default)]
struct Section {
    path: Option<Range<usize>>,
    url: Option<Range<usize>>,
}

fn sections(text: &str) -> Vec<Section> {
    let mut sections: Vec<Section> = Vec::new();
    let mut at = 0;
    for line in text.split_inclusive('\n') {
        let trimmed = line.trim();
        if trimmed.starts_with('[') {
            sections.push(Section::default());
        } else if let (Some((key, value)), Some(section)) = (line.split_once('='), sections.last_mut()) {
            let trimmed = value.trim().trim_matches('"');
            if !trimmed.is_empty() {
                let start = at + key.len() + 1 + value.find(trimmed).unwrap_or_default();
                let range = start..start + trimmed.len();
                match key.trim().to_ascii_lowercase().as_str() {
                    "path" => section.path = Some(range),
                    "url" => section.url = Some(range),
                    _ => {}
                }
            }
        }
        at += line.len();
    }
    sections
}

#[cfg(test)]
mod tests {
    use super::{super::samples::pin, *};

    const TEXT: &str = "[submodule \"n\"]\n\tpath = deps/n\n\turl = https://example.org/other/n # ours\n\
        [submodule \"m\"]\n\tpath = deps/m\n\turl = https://example.org/o/m\n";

    #[test]
    fn the_address_moves_only_to_another_repository() {
        let text = TEXT.replace(" # ours", "");
        let edit_of = |text: &str, path| edit(text, path, &pin());
        let edited = edit_of(&text, "deps/n").unwrap();
        assert_eq!(edited.text, text.replace("https://example.org/other/n", "https://example.org/o/n"));
        assert_eq!(edit_of(&edited.text, "deps/n").unwrap().places, []);
        assert!(matches!(edit_of(&text, "deps"), Err(EditProblem::NotFound { .. })));
        let relative = "[submodule \"n\"]\n path = n\n url = ../n.git\n";
        assert_eq!(edit_of(relative, "n").unwrap().notes.len(), 1);
        let twice = format!("{relative}{relative}");
        assert!(matches!(edit_of(&twice, "n"), Err(EditProblem::Ambiguous { lines, .. }) if lines == [2, 5]));
    }
}
