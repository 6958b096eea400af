//! Finds configuration files below a repository root and reads them.

use std::{
    ffi::OsStr,
    fs,
    path::{Path, PathBuf},
};

use super::{
    ConfigError,
    builds::parse_builds,
    matrix::parse_matrix,
    near::suggestion,
    reader::Problems,
    spec::{BuildSpec, MatrixSpec},
};
use crate::tools::file::{self, Most};

const MATRICES: &str = "matrices";
const BUILDS: &str = "builds";

/// Reads `matrices/builds.toml` below the repository root.
///
/// # Errors
/// When the file cannot be read or holds mistakes.
pub fn load_builds(root: &Path) -> Result<Vec<BuildSpec>, ConfigError> {
    let path = root.join(MATRICES).join(format!("{BUILDS}.toml"));
    let stacks = names_in(&root.join("patches"), |path| path.is_dir().then(|| path.file_name()).flatten());
    let stacks: Vec<&str> = stacks.iter().map(String::as_str).collect();
    read(root, &path, "the builds".to_owned(), |file, text| parse_builds(file, text, &stacks))
}

/// Reads a matrix by its name below `matrices/`, or by a path (anything with a slash or the ending `.toml`, relative
/// to the working directory).
///
/// # Errors
/// When there is no such matrix, the file cannot be read, or it holds mistakes.
pub fn load_matrix(root: &Path, name_or_path: &str, builds: &[BuildSpec]) -> Result<MatrixSpec, ConfigError> {
    load_part(root, name_or_path, builds, &[])
}

/// Loads a matrix that those of `above` include, the outermost first.
fn load_part(
    root: &Path,
    name_or_path: &str,
    builds: &[BuildSpec],
    above: &[(String, PathBuf)],
) -> Result<MatrixSpec, ConfigError> {
    let path = matrix_path(root, name_or_path);
    let (name, path) = if is_path(name_or_path) {
        let stem = path.file_stem().map_or_else(|| name_or_path.into(), |stem| stem.to_string_lossy());
        (stem.into_owned(), path)
    } else {
        let names = matrix_names(root);
        if !names.iter().any(|name| name == name_or_path) {
            let names: Vec<&str> = names.iter().map(String::as_str).collect();
            return Err(unknown("matrix", name_or_path, "matrices", &names));
        }
        (name_or_path.to_owned(), path)
    };
    let names: Vec<&str> = builds.iter().map(|build| build.name.as_str()).collect();
    let mut spec =
        read(root, &path, format!("matrix `{name}`"), |file, text| parse_matrix(&name, file, text, &names))?;
    let file = path.canonicalize().unwrap_or(path);
    let mut chain = above.to_vec();
    chain.push((name.clone(), file.clone()));
    if above.iter().any(|(_, other)| *other == file) {
        let chain = chain.into_iter().map(|(name, _)| format!("`{name}`")).collect::<Vec<_>>().join(", ");
        return Err(ConfigError::Circle { name, chain });
    }
    for part in std::mem::take(&mut spec.include) {
        let mut part_spec = load_part(root, &part, builds, &chain)?;
        let nested = std::mem::take(&mut part_spec.include);
        take_in(&mut spec, part_spec).map_err(|why| ConfigError::Composition { name: name.clone(), why })?;
        for part in std::iter::once(part).chain(nested) {
            if !spec.include.contains(&part) {
                spec.include.push(part);
            }
        }
    }
    Ok(spec)
}

/// Makes everything of another matrix a part of this one. The other's cells keep their meaning, so what both declare must be
/// equal.
fn take_in(spec: &mut MatrixSpec, part: MatrixSpec) -> Result<(), String> {
    let MatrixSpec { name, reference, models, probes, blocks, thresholds, known, cell_timeout, .. } = part;
    if reference != spec.reference {
        return Err(format!("`{name}` has another reference, `{reference}`"));
    }
    if thresholds != spec.thresholds {
        return Err(format!("`{name}` has other thresholds"));
    }
    for model in models {
        match spec.models.iter().find(|own| own.name == model.name) {
            None => spec.models.push(model),
            Some(own) if *own == model => {}
            Some(_) => return Err(format!("model `{}` of `{name}` is another one", model.name)),
        }
    }
    for (probe_name, probe) in probes {
        match spec.probes.iter().find(|(own, _)| *own == probe_name) {
            None => spec.probes.push((probe_name, probe)),
            Some((_, own)) if *own == probe => {}
            Some(_) => return Err(format!("probe `{probe_name}` of `{name}` is another one")),
        }
    }
    // Its cells had its own time.
    spec.blocks.extend(blocks.into_iter().map(|mut block| {
        block.budget.timeout_s.get_or_insert(cell_timeout.as_secs_f64());
        block
    }));
    spec.known.extend(known);
    Ok(())
}

/// The file of a matrix, named as for [`load_matrix`]; it need not exist.
pub fn matrix_path(root: &Path, name_or_path: &str) -> PathBuf {
    match is_path(name_or_path) {
        true => PathBuf::from(name_or_path),
        false => root.join(MATRICES).join(format!("{name_or_path}.toml")),
    }
}

fn is_path(name_or_path: &str) -> bool {
    name_or_path.contains(['/', '\\']) || name_or_path.ends_with(".toml")
}

/// The build of this name.
///
/// # Errors
/// When there is none.
pub fn find_build<'b>(builds: &'b [BuildSpec], name: &str) -> Result<&'b BuildSpec, ConfigError> {
    builds.iter().find(|build| build.name == name).ok_or_else(|| {
        let names: Vec<&str> = builds.iter().map(|build| build.name.as_str()).collect();
        unknown("build", name, "builds", &names)
    })
}

fn unknown(kind: &'static str, name: &str, things: &str, known: &[&str]) -> ConfigError {
    ConfigError::Unknown { kind, name: name.to_owned(), suggestion: suggestion(name, things, known) }
}

fn matrix_names(root: &Path) -> Vec<String> {
    let mut names = names_in(&root.join(MATRICES), |path| match path.extension() {
        Some(ending) if ending == "toml" => path.file_stem(),
        _ => None,
    });
    names.retain(|name| name != BUILDS);
    names
}

/// The sorted names that `name_of` finds in a folder; none when the folder cannot be read, which then is what the
/// person is told: that nothing of the name is known.
fn names_in(folder: &Path, name_of: impl Fn(&Path) -> Option<&OsStr>) -> Vec<String> {
    let Ok(entries) = fs::read_dir(folder) else { return Vec::new() };
    let mut names: Vec<String> =
        entries.flatten().filter_map(|entry| Some(name_of(&entry.path())?.to_str()?.to_owned())).collect();
    names.sort();
    names
}

fn read<T>(
    root: &Path,
    path: &Path,
    what: String,
    parse: impl FnOnce(&str, &str) -> Result<T, Problems>,
) -> Result<T, ConfigError> {
    let text = match file::text(path, Most::Configuration) {
        Ok(text) => text,
        Err(source) => return Err(ConfigError::Unreadable { what, path: path.to_owned(), source }),
    };
    let file = path.strip_prefix(root).unwrap_or(path).to_string_lossy();
    parse(&file, &text).map_err(|problems| ConfigError::Invalid { what, problems })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::matrix::{Backend, expand_cells};

    fn repository() -> PathBuf {
        Path::new(env!("CARGO_MANIFEST_DIR")).join("..")
    }

    #[test]
    fn every_matrix_of_the_repository_is_sound() {
        let builds = load_builds(&repository()).unwrap();
        let names = matrix_names(&repository());
        assert!(names.contains(&"smoke".to_owned()), "{names:?}");
        for name in names {
            let spec = load_matrix(&repository(), &name, &builds).unwrap_or_else(|error| match error {
                ConfigError::Invalid { problems, .. } => panic!("{problems}"),
                other => panic!("{other:?}"),
            });
            find_build(&builds, &spec.baseline).unwrap();
            assert!(expand_cells(&spec, &[Backend::Cpu]).cells.len() > 1);
        }
    }

    #[test]
    fn the_smoke_matrix_stays_small_on_a_cpu() {
        let builds = load_builds(&repository()).unwrap();
        let spec = load_matrix(&repository(), "smoke", &builds).unwrap();
        let cells = expand_cells(&spec, &[Backend::Cpu]).runnable().count();
        // Three engines at about five seconds a cell have to fit into four minutes.
        assert!(cells <= 16, "{cells} cells");
    }

    #[test]
    fn the_nightly_matrix_holds_the_cells_of_its_parts_and_refuses_what_contradicts() {
        let builds = load_builds(&repository()).unwrap();
        let load = |name: &str| load_matrix(&repository(), name, &builds).unwrap();
        let nightly = load("nightly");
        let ids = |spec: &MatrixSpec| -> Vec<String> {
            expand_cells(spec, &[Backend::Cpu]).cells.iter().map(|p| p.cell.id.to_string()).collect()
        };
        let whole = ids(&nightly);
        for part in &nightly.include {
            assert!(ids(&load(part)).iter().all(|id| whole.contains(id)), "{part}");
        }
        let mut other = load("smoke");
        other.thresholds.mean_kl *= 2.0;
        assert_eq!(take_in(&mut load("tasks"), other).unwrap_err(), "`smoke` has other thresholds");
        let mut other = load("smoke");
        other.models[0].source = other.models[2].source.clone();
        assert!(take_in(&mut load("smoke"), other).unwrap_err().contains("`qwen3`"));
    }

    #[test]
    fn matrices_that_include_each_other_are_told_as_a_chain() {
        let root = tempfile::tempdir().unwrap();
        let folder = root.path().join(MATRICES);
        std::fs::create_dir_all(&folder).unwrap();
        let smoke = std::fs::read_to_string(repository().join("matrices/smoke.toml")).unwrap();
        for (name, includes) in [("a", "b"), ("b", "c"), ("c", "b"), ("itself", "itself")] {
            std::fs::write(
                folder.join(format!("{name}.toml")),
                format!("include = [\"{includes}\"]\n{smoke}"),
            )
            .unwrap();
        }
        let builds = load_builds(&repository()).unwrap();
        let told = |name: &str| load_matrix(root.path(), name, &builds).unwrap_err().to_string();
        assert_eq!(told("a"), "matrix `b` includes itself: `a`, `b`, `c`, `b`");
        assert_eq!(told("itself"), "matrix `itself` includes itself: `itself`, `itself`");
    }

    #[test]
    fn an_unknown_name_is_answered_with_the_near_one() {
        let builds = load_builds(&repository()).unwrap();
        let error = load_matrix(&repository(), "smok", &builds).unwrap_err();
        assert_eq!(error.to_string(), "there is no matrix `smok`");
        assert_eq!(error.hint().unwrap(), "did you mean `smoke`?");
        let error = find_build(&builds, "publishd").unwrap_err();
        assert_eq!(error.to_string(), "there is no build `publishd`");
        assert_eq!(error.hint().unwrap(), "did you mean `published`?");
        // The builds file lies beside the matrices and is none of them.
        assert!(matches!(load_matrix(&repository(), "builds", &builds), Err(ConfigError::Unknown { .. })));
    }

    #[test]
    fn a_path_that_is_not_there_is_named() {
        let error = load_matrix(&repository(), "none/such.toml", &[]).unwrap_err();
        assert_eq!(error.to_string(), "cannot read matrix `such` from none/such.toml");
    }
}
