//! Which checkout is meant: the folder that holds `Cargo.toml`, `harness/` and `matrices/`.

use std::{
    env,
    path::{Path, PathBuf},
};

use crate::exit::{Exit, Failure};

/// The repository root: the given one, else the nearest at or above the working directory, else the one that cargo
/// runs this package from.
pub(crate) fn repository_root(given: Option<PathBuf>) -> Result<PathBuf, Failure> {
    if let Some(root) = given {
        return match is_root(&root) {
            true => Ok(root),
            false => Err(no_root(&root)),
        };
    }
    let here = env::current_dir().map_err(|error| {
        Failure::new(Exit::Tool, format!("cannot read the working directory: {error}"), None)
    })?;
    let package = env::var_os("CARGO_MANIFEST_DIR").map(PathBuf::from);
    here.ancestors()
        .chain(package.iter().flat_map(|package| package.ancestors()))
        .find(|folder| is_root(folder))
        .map(Path::to_owned)
        .ok_or_else(|| no_root(&here))
}

fn is_root(folder: &Path) -> bool {
    ["Cargo.toml", "harness/Cargo.toml", "matrices"].iter().all(|part| folder.join(part).exists())
}

fn no_root(folder: &Path) -> Failure {
    let error = format!("there is no Regraft checkout at or above {}", folder.display());
    Failure::new(Exit::Usage, error, Some("change into the checkout and try again".to_owned()))
}
