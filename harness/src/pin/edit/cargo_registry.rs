//! Registry versions in `Cargo.toml` and `Cargo.lock`.

use super::{
    EditProblem, Replacing, TextEdit, agreeing,
    cargo_git::packages,
    manifest::{Text, requoted, with_dependencies},
};

/// Moves every dependency on crate `name` to `version`, its operator (`=`, `^`, `~`) kept.
///
/// # Errors
/// When there is none, when several name different versions, or when one names a range.
pub fn edit_manifest(text: &str, name: &str, version: &str) -> Result<TextEdit, EditProblem> {
    with_dependencies(text, |dependencies| {
        let named: Vec<Text> = dependencies
            .iter()
            .filter(|entry| entry.name == name)
            .filter_map(|entry| entry.text("version"))
            .collect();
        let what = format!("version of crate {name}");
        if named.is_empty() {
            return Err(EditProblem::NotFound { what });
        }
        if let Some(range) = named.iter().find(|text| text.value.contains(['*', ',', '<', '>'])) {
            let (line, follows) =
                (super::line_of(text, range.range.start), format!("the range `{}`", range.value));
            return Err(EditProblem::Floating { line, follows });
        }
        agreeing(&what, text, named.iter().map(|text| (text.range.start, text.value.as_str())))?;
        let mut replacing = Replacing::new(text);
        for old in named {
            let operator =
                &old.value[..old.value.len() - old.value.trim_start_matches(['=', '^', '~', ' ']).len()];
            let quoted = requoted(&text[old.range.clone()], &format!("{operator}{version}"));
            replacing.put(old.range, quoted);
        }
        Ok(replacing.finish())
    })
}

/// Moves crate `name` of a lock file to `version` with the SHA-256 of its `.crate` file.
///
/// # Errors
/// When the registry's crate is not locked, or is locked in several versions.
pub fn edit_lock(text: &str, name: &str, version: &str, checksum: &str) -> Result<TextEdit, EditProblem> {
    let mut found = Vec::new();
    for package in packages(text) {
        let value = |key: &str| package.value(text, key);
        let from_registry = value("source").is_some_and(|source| !text[source].starts_with("git+"));
        if value("name").is_some_and(|range| &text[range] == name) && from_registry {
            found.extend(value("version").zip(value("checksum")));
        }
    }
    let what = format!("crate {name} from a registry");
    if found.is_empty() {
        return Err(EditProblem::NotFound { what });
    }
    agreeing(&what, text, found.iter().map(|(range, _)| (range.start, &text[range.clone()])))?;
    let mut replacing = Replacing::new(text);
    for (old, old_checksum) in found {
        if text[old.clone()] != *version {
            replacing.note(format!(
                "if crate {name} {version} has other dependencies, `cargo update -p {name}` settles the lock"
            ));
        }
        replacing.put(old, version);
        replacing.put(old_checksum, checksum);
    }
    Ok(replacing.finish())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_version_moves_and_its_operator_stays() {
        let text = "[dependencies]\n\"n-lm\" = \"=1.0.0\" # exact\nm = { package = \"n-lm\", version = \"=1.0.0\" }\nn = \"1\"\n";
        let edit = edit_manifest(text, "n-lm", "2.0.0").unwrap();
        assert_eq!(
            edit.text,
            "[dependencies]\n\"n-lm\" = \"=2.0.0\" # exact\nm = { package = \"n-lm\", version = \"=2.0.0\" }\nn = \"1\"\n"
        );
        assert!(matches!(edit_manifest(text, "other", "2"), Err(EditProblem::NotFound { .. })));
        let range = "[dependencies]\na = \">=1, <3\"\n";
        assert!(matches!(edit_manifest(range, "a", "2"), Err(EditProblem::Floating { line: 2, .. })));
    }

    #[test]
    fn the_lock_gets_version_and_checksum() {
        let package = |version: &str, checksum: &str| {
            format!(
                "[[package]]\nname = \"a\"\nversion = \"{version}\"\nsource = \"registry+https://example.org/i\"\n\
                 checksum = \"{checksum}\"\n"
            )
        };
        let edit = edit_lock(&package("1.0.0", "aa"), "a", "2.0.0", "bb").unwrap();
        assert_eq!(edit.text, package("2.0.0", "bb"));
        assert_eq!(edit.notes.len(), 1);
        let both = package("1.0.0", "aa") + &package("1.1.0", "cc");
        assert!(matches!(edit_lock(&both, "a", "2.0.0", "bb"), Err(EditProblem::Ambiguous { .. })));
        assert!(matches!(edit_lock(&both, "z", "2.0.0", "bb"), Err(EditProblem::NotFound { .. })));
    }
}
