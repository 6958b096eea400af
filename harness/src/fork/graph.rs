//! In which order forks are worked on: what a fork builds on comes first. It reads no repository.

use std::{
    collections::{BTreeMap, BTreeSet},
    path::Path,
};

use crate::config::{
    ConfigError,
    fork::{ConsumerHome, ForkSpec},
    fork_names, load_fork,
    near::suggestion,
};

/// What every known fork builds on, by name.
pub type BuildsOn = BTreeMap<String, Vec<String>>;

/// Why there is no order.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum GraphError {
    /// Forks build on each other in a circle.
    #[error("forks build on each other in a circle: {}", .0.join(" builds on "))]
    Cycle(Vec<String>),
    /// A fork builds on one that is not there.
    #[error("fork `{fork}` builds on `{name}`, which is no fork here")]
    Unknown {
        /// The fork whose file says so.
        fork: String,
        /// The name in its `builds-on`.
        name: String,
        /// What was perhaps meant.
        suggestion: String,
    },
}

/// Why the forks that were asked for cannot be had.
#[derive(Debug, thiserror::Error)]
pub enum ForksError {
    /// A fork's file.
    #[error(transparent)]
    Config(#[from] ConfigError),
    /// The order of the forks.
    #[error(transparent)]
    Graph(#[from] GraphError),
}

impl ForksError {
    /// What to try.
    pub fn hint(&self) -> Option<String> {
        match self {
            Self::Config(error) => error.hint(),
            Self::Graph(error) => Some(error.hint()),
        }
    }
}

/// The specs of the forks `asked` below the repository root, or of all when none is named, in the order in which they are
/// worked on. Mistakes in the file of a fork that was not asked for do not matter.
///
/// # Errors
/// When a fork that was asked for cannot be read, or there is no order.
pub fn forks_in_order(root: &Path, asked: &[String]) -> Result<Vec<ForkSpec>, ForksError> {
    let names = fork_names(root);
    let asked = if asked.is_empty() { &names[..] } else { asked };
    let mut specs: Vec<ForkSpec> =
        asked.iter().map(|name| load_fork(root, name)).collect::<Result<_, ConfigError>>()?;
    let others = names.iter().filter(|name| !asked.contains(name));
    let others: Vec<ForkSpec> = others.filter_map(|name| load_fork(root, name).ok()).collect();
    let mut edges = builds_on(&[&specs[..], &others].concat());
    // A fork whose own file is broken is still a fork.
    names.iter().for_each(|name| _ = edges.entry(name.clone()).or_default());
    let order = in_order(asked, &edges)?;
    specs.sort_by_key(|spec| order.iter().position(|name| *name == spec.name));
    specs.dedup_by(|one, other| one.name == other.name);
    Ok(specs)
}

impl GraphError {
    /// What to try.
    pub fn hint(&self) -> String {
        match self {
            Self::Cycle(names) => {
                format!("take one of them out of `builds-on` in patches/{}/fork.toml", names[0])
            }
            Self::Unknown { suggestion, .. } => suggestion.clone(),
        }
    }
}

/// What every fork builds on: what its own file says, and every fork that names it as a consumer.
pub fn builds_on(specs: &[ForkSpec]) -> BuildsOn {
    let mut edges: BuildsOn = BTreeMap::new();
    for spec in specs {
        edges.entry(spec.name.clone()).or_default().extend(spec.builds_on.iter().cloned());
    }
    for spec in specs {
        for consumer in &spec.consumers {
            if let ConsumerHome::Fork(name) = &consumer.home
                && let Some(below) = edges.get_mut(name)
                && !below.contains(&spec.name)
            {
                below.push(spec.name.clone());
            }
        }
    }
    edges
}

/// The forks of `asked`, each once, what it builds on before it and otherwise as they were asked for. A fork that was not
/// asked for is not added, but still orders those on both sides of it.
///
/// # Errors
/// When a fork on the way builds on one that is not there, or on itself.
pub fn in_order(asked: &[String], known: &BuildsOn) -> Result<Vec<String>, GraphError> {
    let mut walk = Walk { known, done: BTreeSet::new(), way: Vec::new(), order: Vec::new() };
    for name in asked {
        walk.visit(name)?;
    }
    Ok(walk.order.into_iter().filter(|name| asked.contains(name)).collect())
}

struct Walk<'k> {
    known: &'k BuildsOn,
    done: BTreeSet<String>,
    way: Vec<String>,
    order: Vec<String>,
}

impl Walk<'_> {
    // As deep as the longest chain of forks, which a person wrote by hand.
    fn visit(&mut self, name: &str) -> Result<(), GraphError> {
        if self.done.contains(name) {
            return Ok(());
        }
        if let Some(at) = self.way.iter().position(|passed| passed == name) {
            let mut cycle = self.way[at..].to_vec();
            cycle.push(name.to_owned());
            return Err(GraphError::Cycle(cycle));
        }
        self.way.push(name.to_owned());
        for below in self.known.get(name).into_iter().flatten() {
            if !self.known.contains_key(below) {
                let names: Vec<&str> = self.known.keys().map(String::as_str).collect();
                return Err(GraphError::Unknown {
                    fork: name.to_owned(),
                    name: below.clone(),
                    suggestion: suggestion(below, "forks", &names),
                });
            }
            self.visit(below)?;
        }
        self.way.pop();
        self.done.insert(name.to_owned());
        self.order.push(name.to_owned());
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn known(edges: &[(&str, &[&str])]) -> BuildsOn {
        edges
            .iter()
            .map(|(name, below)| ((*name).to_owned(), below.iter().map(|b| (*b).to_owned()).collect()))
            .collect()
    }

    fn order(asked: &[&str], known: &BuildsOn) -> Result<Vec<String>, GraphError> {
        in_order(&asked.iter().map(|&name| name.to_owned()).collect::<Vec<_>>(), known)
    }

    #[test]
    fn what_a_fork_builds_on_comes_before_it() {
        let known =
            known(&[("swift", &["c", "mlx"]), ("c", &["mlx"]), ("mlx", &[]), ("lm", &["swift"]), ("z", &[])]);
        assert_eq!(order(&["lm", "swift", "c", "mlx"], &known).unwrap(), ["mlx", "c", "swift", "lm"]);
        assert_eq!(order(&["z", "mlx"], &known).unwrap(), ["z", "mlx"]);
        // `c` and `swift` were not asked for, and yet order the two.
        assert_eq!(order(&["lm", "mlx", "lm"], &known).unwrap(), ["mlx", "lm"]);
    }

    #[test]
    fn the_shipped_forks_are_whole_and_have_an_order() {
        let root = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
        let names = crate::config::fork_names(&root);
        let specs: Vec<ForkSpec> = names
            .iter()
            .map(|name| crate::config::load_fork(&root, name).unwrap_or_else(|e| panic!("{name}: {:?}", e)))
            .collect();
        for fixed in
            ["mlx", "sharpai-mlx", "sharpai-mlx-c", "sharpai-mlx-swift", "sharpai-mlx-swift-lm", "safemlx"]
        {
            assert!(names.iter().any(|name| name == fixed), "{fixed}");
        }
        let homes =
            specs.iter().flat_map(|spec| &spec.consumers).filter_map(|consumer| match &consumer.home {
                ConsumerHome::Fork(name) => Some(name),
                _ => None,
            });
        homes.for_each(|home| assert!(names.contains(home), "consumer {home} is no fork"));
        let order = in_order(&names, &builds_on(&specs)).unwrap();
        let at = |name: &str| order.iter().position(|known| known == name).unwrap();
        assert_eq!(order.len(), names.len());
        assert!(at("sharpai-mlx") < at("sharpai-mlx-c") && at("sharpai-mlx-c") < at("sharpai-mlx-swift"));
        assert!(at("sharpai-mlx-swift") < at("sharpai-mlx-swift-lm") && at("mlx") < at("safemlx"));
    }

    #[test]
    fn a_circle_is_shown_as_it_goes_round() {
        let known = known(&[("a", &["b"]), ("b", &["c"]), ("c", &["b"]), ("d", &["d"])]);
        let told = |name: &str| order(&[name], &known).unwrap_err().to_string();
        assert!(told("a").ends_with("b builds on c builds on b"), "{}", told("a"));
        assert!(told("d").ends_with("d builds on d"));
    }

    #[test]
    fn a_fork_that_is_not_there_is_named_with_the_near_one() {
        let error = order(&["a"], &known(&[("a", &["mxl"]), ("mlx", &[])])).unwrap_err();
        assert_eq!(error.to_string(), "fork `a` builds on `mxl`, which is no fork here");
        assert_eq!(error.hint(), "did you mean `mlx`?");
    }
}
