//! Reads `matrices/builds.toml`: the builds that a gate can compare, as data.

use std::collections::BTreeMap;

use toml::Spanned;

use super::{
    near::suggestion,
    reader::{Document, Keys, Problems, Table},
    spec::{BuildSpec, CrateSource, GitSource, MlxRevision, MlxSource},
};
use crate::tools::git::{mirror::is_acceptable, tree_path::TreePath};

/// An API dialect that the runner can be compiled for.
#[derive(Clone, Copy)]
struct Dialect {
    name: &'static str,
    /// The crates that a build must name for it.
    crates: Keys,
    /// Whether its crates carry MLX, patched, and take no other; those of before fetch a version that the official library fits.
    carries_mlx: bool,
}

const DIALECTS: &[Dialect] = &[
    Dialect {
        name: "safemlx-lm-0.4",
        crates: Keys::called("crate", "crates", &["safemlx-lm", "safemlx", "safemlx-sys"]),
        carries_mlx: false,
    },
    Dialect {
        name: "eredu-0.5",
        crates: Keys::called("crate", "crates", &["eredu", "eredu-backend-mlx", "safemlx", "safemlx-sys"]),
        carries_mlx: true,
    },
];

const ROOT: Keys = Keys::new(&["build"]);
const BUILD: Keys = Keys::new(&["name", "summary", "dialect", "mlx", "git", "crates"]);
const GIT: Keys = Keys::new(&["repository", "commit"]);
const MLX: Keys = Keys::new(&["wheel", "repository", "commit", "patches", "metal-jit"]);
const CRATE: Keys = Keys::new(&["version", "folder", "patches"]);

/// Reads the text of a builds file; `stacks` are the folders of patch stacks that it may name.
///
/// # Errors
/// Every mistake of the file.
pub fn parse_builds(file: &str, text: &str, stacks: &[&str]) -> Result<Vec<BuildSpec>, Problems> {
    let document = Document::parse(file, text);
    let root = document.root(ROOT);
    let tables = root.tables("build", BUILD);
    if tables.is_empty() && document.is_sound() {
        root.problem(root.span(), "the file holds no `[[build]]`");
    }
    let mut seen = BTreeMap::new();
    let builds: Vec<Option<BuildSpec>> = tables.iter().map(|table| build(table, stacks, &mut seen)).collect();
    document.finish(builds.into_iter().collect())
}

/// Takes a name that must be unique in the file and fit into a cell's name or a folder's name.
pub(super) fn unique_name(
    table: &Table<'_, '_>,
    things: &str,
    seen: &mut BTreeMap<String, usize>,
) -> Option<Spanned<String>> {
    let name = table.required::<String>("name")?;
    let text = name.get_ref();
    let fits = !text.is_empty()
        && text.chars().all(|c| c.is_ascii_lowercase() || c.is_ascii_digit() || "-._".contains(c))
        && text.starts_with(|c: char| c.is_ascii_alphanumeric());
    if !fits {
        table.problem(
            name.span(),
            format!(
                "{} is no name: use lower-case letters, digits, `-`, `.` and `_`, a letter or digit first",
                quoted(text)
            ),
        );
        return None;
    }
    let count = seen.entry(text.clone()).or_default();
    *count += 1;
    if *count > 1 {
        table.problem(name.span(), format!("there are two {things} named `{text}`"));
    }
    Some(name)
}

/// The text in quotes, with control characters escaped.
pub(super) fn quoted(text: &str) -> String {
    format!("{text:?}")
}

fn build(table: &Table<'_, '_>, stacks: &[&str], seen: &mut BTreeMap<String, usize>) -> Option<BuildSpec> {
    let name = unique_name(table, "builds", seen);
    let summary = table.required::<String>("summary");
    let dialects: Vec<(&str, Dialect)> = DIALECTS.iter().map(|&dialect| (dialect.name, dialect)).collect();
    let dialect = table.required_word("dialect", &dialects).map(Spanned::into_inner);
    let mlx = mlx_source(table, dialect, stacks);
    let git = match table.optional_table("git", GIT) {
        Some(git) => git_source(&git).map(Some),
        None => (!table.has("git")).then_some(None),
    };
    // Which crates belong to a build is only known with its dialect.
    let crates = dialect.and_then(|Dialect { crates: keys, .. }| {
        let crates = table.required_table("crates", keys)?;
        let sources: Vec<Option<(String, CrateSource)>> = keys
            .names()
            .iter()
            .map(|krate| {
                let table = crates.required_table(krate, CRATE)?;
                let version = version(&table, "version");
                let patches = patch_stack(&table, stacks);
                let folder = folder(&table, patches.as_deref(), matches!(git, Some(None)))?;
                Some((
                    (*krate).to_owned(),
                    CrateSource { version: version?, folder, patches, leave_out: Vec::new() },
                ))
            })
            .collect();
        sources.into_iter().collect::<Option<BTreeMap<_, _>>>()
    });
    if let (Some(Some(_)), Some(crates)) = (&git, &crates)
        && crates.values().all(|source| source.folder.is_none())
    {
        table.problem(
            table.span(),
            "no crate of this build is in its `git` revision: give each one that is a `folder`",
        );
    }
    Some(BuildSpec {
        name: name?.into_inner(),
        summary: summary?.into_inner(),
        dialect: dialect?.name.to_owned(),
        mlx: mlx?,
        git: git?,
        crates: crates?,
    })
}

/// `"vendored"`, or a table that names a wheel or a git revision; which of them fits is the dialect's.
fn mlx_source(table: &Table<'_, '_>, dialect: Option<Dialect>, stacks: &[&str]) -> Option<MlxSource> {
    let (source, span) = if table.is_text("mlx") {
        let word = table.required_word("mlx", &[("vendored", ())])?;
        (MlxSource::Vendored, word.span())
    } else {
        let mlx = table.required_table("mlx", MLX)?;
        (library(&mlx, stacks)?, mlx.span())
    };
    match (dialect?.carries_mlx, &source) {
        (true, MlxSource::Wheel(_) | MlxSource::Git(_)) => {
            table.problem(span, "the crates of this dialect need their own MLX: say `mlx = \"vendored\"`");
            None
        }
        (false, MlxSource::Vendored) => {
            table.problem(span, "the crates of this dialect carry no MLX: say `mlx = { wheel = \"…\" }`");
            None
        }
        _ => Some(source),
    }
}

/// The official library of a version, or a revision to compile.
fn library(table: &Table<'_, '_>, stacks: &[&str]) -> Option<MlxSource> {
    if !table.has("repository") {
        if let Some(key) = ["commit", "patches", "metal-jit"].into_iter().find(|key| table.has(key)) {
            table.problem(table.span(), format!("`{key}` belongs to a `repository` of MLX"));
        }
        return version(table, "wheel").map(MlxSource::Wheel);
    }
    if table.has("wheel") {
        table.problem(table.span(), "`wheel` and `repository` exclude each other");
    }
    let source = git_source(table);
    let patches = patch_stack(table, stacks);
    let metal_jit = table.optional::<bool>("metal-jit");
    if table.has("metal-jit") && metal_jit.is_none() {
        return None;
    }
    Some(MlxSource::Git(MlxRevision {
        source: source?,
        patches,
        metal_jit: metal_jit.is_some_and(|jit| *jit.get_ref()),
    }))
}

/// The folder of patches that a table names; a name that is not one of `stacks` is a problem.
fn patch_stack(table: &Table<'_, '_>, stacks: &[&str]) -> Option<String> {
    let patches = table.optional::<String>("patches")?;
    if !stacks.contains(&patches.get_ref().as_str()) {
        let hint = suggestion(patches.get_ref(), "stacks", stacks);
        let what = format!("unknown patch stack {}; {hint}", quoted(patches.get_ref()));
        table.problem(patches.span(), what);
    }
    Some(patches.into_inner())
}

fn git_source(table: &Table<'_, '_>) -> Option<GitSource> {
    let repository = table.required::<String>("repository")?;
    if repository.get_ref().trim().is_empty() {
        table.problem(repository.span(), "`repository` is empty");
        return None;
    }
    if !is_acceptable(repository.get_ref()) {
        table.problem(
            repository.span(),
            format!("{} is no address that git is asked for", quoted(repository.get_ref())),
        );
        return None;
    }
    let commit = table.required::<String>("commit")?;
    let Ok(id) = commit.get_ref().parse() else {
        table.problem(commit.span(), "`commit` must be a full object id of 40 hexadecimal digits");
        return None;
    };
    Some(GitSource { repository: repository.into_inner(), commit: id })
}

/// The folder of a crate in the build's revision; the outer `None` when it is wrong.
fn folder(table: &Table<'_, '_>, patches: Option<&str>, no_git: bool) -> Option<Option<String>> {
    let Some(folder) = table.optional::<String>("folder") else {
        return (!table.has("folder")).then_some(None);
    };
    let problem = if TreePath::new(folder.get_ref().as_bytes()).is_err() {
        "`folder` must be a path inside the revision"
    } else if no_git {
        "`folder` needs the build's `git = { repository = …, commit = … }`"
    } else if patches.is_some() {
        "`folder` and `patches` exclude each other: patches are applied to released crates"
    } else {
        return Some(Some(folder.into_inner()));
    };
    table.problem(folder.span(), problem);
    None
}

/// A full version: requirements such as `0.4` or `^0.4.1` would let two runs build different things.
fn version(table: &Table<'_, '_>, key: &str) -> Option<String> {
    let version = table.required::<String>(key)?;
    let text = version.get_ref();
    let numbers = text.split(['-', '+']).next().unwrap_or_default();
    let exact = numbers.split('.').count() == 3
        && numbers.split('.').all(|part| !part.is_empty() && part.chars().all(|c| c.is_ascii_digit()))
        && text.chars().all(|c| c.is_ascii_alphanumeric() || "-+.".contains(c));
    if !exact {
        table.problem(
            version.span(),
            format!("`{key}` must be one exact version such as 0.4.1, not {}", quoted(text)),
        );
        return None;
    }
    Some(version.into_inner())
}

#[cfg(test)]
mod tests {
    use super::*;

    const PUBLISHED: &str = r#"
[[build]]
name = "published"
summary = "As released."
dialect = "safemlx-lm-0.4"
mlx = { wheel = "0.31.2" }
[build.crates]
safemlx-lm = { version = "0.4.1" }
safemlx = { version = "0.1.3", patches = "safemlx" }
safemlx-sys = { version = "0.1.3", patches = "safemlx-sys" }
"#;

    const STACKS: &[&str] = &["safemlx", "safemlx-lm", "safemlx-sys"];

    #[test]
    fn a_build_is_read_with_its_sources() {
        let builds = parse_builds("builds.toml", PUBLISHED, STACKS).unwrap();
        assert_eq!(builds.len(), 1);
        assert_eq!(builds[0].mlx, MlxSource::Wheel("0.31.2".to_owned()));
        assert_eq!(
            builds[0].crates["safemlx"],
            CrateSource {
                version: "0.1.3".to_owned(),
                folder: None,
                patches: Some("safemlx".to_owned()),
                leave_out: Vec::new()
            }
        );
        assert_eq!(builds[0].crates["safemlx-lm"].patches, None);
    }

    #[test]
    fn all_mistakes_of_all_builds_are_reported_together() {
        let second = PUBLISHED
            .replace("safemlx-lm = { version = \"0.4.1\" }\n", "")
            .replace("0.1.3\", patches = \"safemlx\" ", "^0.1\", patch = \"safemlx\" ")
            .replace("wheel =", "whel =");
        let fourth =
            PUBLISHED.replace("\"published\"", "\"fourth\"").replace("= \"safemlx-sys\"", "= \"safemlx-sy\"");
        let third = PUBLISHED.replace("\"published\"", "\"a/b\"").replace("lm-0.4\"", "lm-0.5\"");
        insta::assert_snapshot!(parse_builds("builds.toml", &format!("{PUBLISHED}{second}{third}{fourth}"), STACKS).unwrap_err(), @r#"
        builds.toml:13:8: there are two builds named `published`
        builds.toml:16:7: `mlx` lacks `wheel`
        builds.toml:16:9: unknown key `whel`; did you mean `wheel`?
        builds.toml:17:1: `crates` lacks `safemlx-lm`
        builds.toml:18:23: `version` must be one exact version such as 0.4.1, not "^0.1"
        builds.toml:18:31: unknown key `patch`; did you mean `patches`?
        builds.toml:22:8: "a/b" is no name: use lower-case letters, digits, `-`, `.` and `_`, a letter or digit first
        builds.toml:24:11: unknown value `safemlx-lm-0.5` of `dialect`; did you mean `safemlx-lm-0.4`?
        builds.toml:39:46: unknown patch stack "safemlx-sy"; did you mean `safemlx-sys`?
        "#);
    }

    #[test]
    fn mlx_may_be_a_revision_with_patches() {
        let commit = "1234567890123456789012345678901234567890";
        let with = |mlx: &str| {
            let text = PUBLISHED.replace("{ wheel = \"0.31.2\" }", mlx);
            parse_builds("builds.toml", &text, STACKS).map(|builds| builds[0].mlx.clone())
        };
        let revision =
            |rest: &str| format!("{{ repository = \"https://e.org/o/mlx\", commit = \"{commit}\"{rest} }}");
        let expected = |patches: Option<&str>, metal_jit| {
            let source =
                GitSource { repository: "https://e.org/o/mlx".into(), commit: commit.parse().unwrap() };
            MlxSource::Git(MlxRevision { source, patches: patches.map(str::to_owned), metal_jit })
        };
        assert_eq!(with(&revision("")).unwrap(), expected(None, false));
        let both = revision(", patches = \"safemlx\", metal-jit = true");
        assert_eq!(with(&both).unwrap(), expected(Some("safemlx"), true));
        for (mlx, told) in [
            (revision(", wheel = \"0.31.2\""), "`wheel` and `repository` exclude each other"),
            (revision(", patches = \"safemlx-sy\""), "did you mean `safemlx-sys`?"),
            (revision(", metal-jit = 1"), "must be"),
            (
                "{ wheel = \"0.31.2\", metal-jit = true }".to_owned(),
                "`metal-jit` belongs to a `repository` of MLX",
            ),
            (revision("").replace("1234567890123", "12"), "40 hexadecimal digits"),
        ] {
            let error = with(&mlx).unwrap_err().to_string();
            assert!(error.contains(told), "{error}");
        }
    }

    #[test]
    fn a_revision_that_no_crate_comes_from_is_a_mistake() {
        let commit = "1234567890123456789012345678901234567890";
        let with = |repository: &str| {
            let git = format!("git = {{ repository = \"{repository}\", commit = \"{commit}\" }}\nmlx = ");
            let error = parse_builds("builds.toml", &PUBLISHED.replacen("mlx = ", &git, 1), STACKS);
            error.unwrap_err().to_string()
        };
        assert!(with("../mine").contains("no crate of this build is in its `git` revision"));
        assert!(with(" ").contains("`repository` is empty"));
    }

    #[test]
    fn mlx_comes_from_the_crates_where_they_carry_it_and_only_there() {
        let eredu = r#"
[[build]]
name = "eredu"
summary = "As released."
dialect = "eredu-0.5"
mlx = "vendored"
[build.crates]
eredu = { version = "0.5.0" }
eredu-backend-mlx = { version = "0.5.0" }
safemlx = { version = "0.3.1" }
safemlx-sys = { version = "0.2.3" }
"#;
        let builds = parse_builds("builds.toml", eredu, STACKS).unwrap();
        assert_eq!((builds[0].mlx.clone(), builds[0].mlx.version()), (MlxSource::Vendored, None));
        let json = serde_json::to_value(&builds[0]).unwrap();
        assert_eq!(serde_json::from_value::<BuildSpec>(json).unwrap(), builds[0]);
        let refused = |text: &str| parse_builds("builds.toml", text, STACKS).unwrap_err().to_string();
        insta::assert_snapshot!(
            [
                refused(&eredu.replace("\"vendored\"", "\"vendord\"")),
                refused(&eredu.replace("\"vendored\"", "{ wheel = \"0.32.0\" }")),
                refused(&eredu.replace("mlx = \"vendored\"", "mlx = 3")),
                refused(&PUBLISHED.replace("{ wheel = \"0.31.2\" }", "\"vendored\"")),
            ]
            .join("\n"),
            @r#"
        builds.toml:6:7: unknown value `vendord` of `mlx`; did you mean `vendored`?
        builds.toml:6:7: the crates of this dialect need their own MLX: say `mlx = "vendored"`
        builds.toml:6:7: `mlx` must be a table, not a whole number
        builds.toml:6:7: the crates of this dialect carry no MLX: say `mlx = { wheel = "…" }`
        "#
        );
    }

    #[test]
    fn crates_come_from_a_revision_where_the_build_names_one() {
        let commit = "4e53c5ecd7cbd91c0dfd0992a3c731ca2c36e9c7";
        let from_git = |rest: &str| {
            let git =
                format!("git = {{ repository = \"https://example.org/o/n\", commit = \"{commit}\" }}\n");
            PUBLISHED.replace("[build.crates]\n", &(git + "[build.crates]\n")).replace(
                "{ version = \"0.4.1\" }",
                &format!("{{ version = \"0.4.1\", folder = \"lm\"{rest} }}"),
            )
        };
        let builds = parse_builds("builds.toml", &from_git(""), STACKS).unwrap();
        assert_eq!(builds[0].git.as_ref().unwrap().commit.to_string(), commit);
        assert_eq!(builds[0].crates["safemlx-lm"].folder.as_deref(), Some("lm"));
        let refused = |text: &str| parse_builds("builds.toml", text, STACKS).unwrap_err().to_string();
        for (text, expected) in [
            (from_git(", patches = \"safemlx-lm\""), "exclude each other"),
            (from_git("").replace("\"lm\"", "\"../lm\""), "inside the revision"),
            (from_git("").replace(commit, "4e53c5e"), "40 hexadecimal"),
            (from_git("").replace("https://example.org/o/n", "ext::sh -c x"), "no address"),
            (PUBLISHED.replace("\"0.4.1\"", "\"0.4.1\", folder = \"lm\""), "needs the build's `git"),
        ] {
            let problems = refused(&text);
            assert!(problems.contains(expected), "{expected} is missing in\n{problems}");
        }
    }

    #[test]
    fn a_file_without_builds_is_a_mistake() {
        insta::assert_snapshot!(parse_builds("builds.toml", "", STACKS).unwrap_err(), @"builds.toml:1:1: the file holds no `[[build]]`");
    }
}
