//! Where everything that is provisioned and built lies. Nothing is looked at here: paths only.

use std::path::{Path, PathBuf};

use crate::{build::recipe, tools::host};

/// The three folders that provisioning and building work in.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Layout {
    /// The repository: `patches/`, `harness/runner`, `harness/provision`.
    pub root: PathBuf,
    /// What is made here and may be deleted at any time: `target/regraft`.
    pub work: PathBuf,
    /// Downloads, shared by all checkouts of a user.
    pub cache: PathBuf,
    /// Where repositories are read from instead of the network, for builds of git revisions.
    pub mirrors: Option<PathBuf>,
}

impl Layout {
    /// The usual layout of the repository at `root` (an absolute path): work below `target/regraft`, downloads in the
    /// user's cache folder unless `REGRAFT_CACHE_DIR` names another.
    pub fn of_repository(root: &Path) -> Self {
        let work = root.join("target/regraft");
        let cache = host::cache_dir(&work.join("cache"));
        Self { root: root.to_owned(), work, cache, mirrors: None }
    }

    /// The hashed locks and the sources of the BLAS forwarder.
    pub fn provision(&self) -> PathBuf {
        self.root.join("harness/provision")
    }

    /// The model runner: its sources, and the package of the first dialect.
    pub fn runner(&self) -> PathBuf {
        self.root.join("harness/runner")
    }

    /// The package of the runner that has a feature: manifest and lock. See [`crate::build::recipe::package_folder`].
    pub fn runner_package(&self, dialect: &str) -> PathBuf {
        self.runner().join(recipe::package_folder(dialect)).components().collect()
    }

    /// The engine protocol's only source, which the runner includes.
    pub fn protocol(&self) -> PathBuf {
        self.root.join("harness/src/engine/protocol.rs")
    }

    /// The reference engine's program.
    pub fn reference(&self) -> PathBuf {
        self.root.join("harness/reference/mlx_lm_engine.py")
    }

    /// The patch stacks.
    pub fn patches(&self) -> PathBuf {
        self.root.join("patches")
    }

    /// The log of one step.
    pub fn log(&self, step: &str) -> PathBuf {
        self.work.join("logs").join(format!("{step}.log"))
    }
}
