//! The forks that a fork builds on, opened as far as they are at hand: what their own trees, or their `fork.toml`, say about
//! versions. It compares nothing.

use std::path::Path;

use super::agreement::{self, How, Lookup, Statement};
use crate::{
    config::{
        fork::{BaseSpec, ForkSpec, StackSpec},
        load_fork,
    },
    event::EventSink,
    fork::open::{Parts, Source, open_parts, vendored_tree},
    tools::git::{
        ids::{CommitId, TreeId},
        store::{Store, StoreError},
    },
};

/// A fork that another builds on.
pub struct Below {
    /// Its name.
    pub name: String,
    /// What it is pinned to, or why that is not at hand.
    at: Result<Pinned, String>,
}

/// What a fork is pinned to.
struct Pinned {
    /// The tree that it ships, where there is one: a branch's head, or a copy.
    tree: Option<(Store, CommitId, TreeId)>,
    /// What its `fork.toml` says about its base.
    stated: Option<Statement>,
}

/// The forks that `spec` names in `builds-on`.
pub fn forks_below(root: &Path, spec: &ForkSpec, source: &Source, events: &dyn EventSink) -> Vec<Below> {
    let open = |name: &String| Below { name: name.clone(), at: pinned(root, name, source, events) };
    spec.builds_on.iter().map(open).collect()
}

impl Below {
    /// Everything that decides what it says about versions.
    pub fn stamp(&self) -> String {
        match &self.at {
            Ok(Pinned { tree, stated }) => {
                format!(
                    "{} {:?} {stated:?}",
                    self.name,
                    tree.as_ref().map(|(_, commit, tree)| (commit, tree))
                )
            }
            Err(why) => format!("{} {why}", self.name),
        }
    }

    /// What it says about the versions of components, itself among them; the inner error when it is not at hand.
    ///
    /// # Errors
    /// When objects are missing.
    pub fn statements(&self, lookup: &Lookup<'_>) -> Result<Result<Vec<Statement>, String>, StoreError> {
        let Pinned { tree, stated } = match &self.at {
            Ok(pinned) => pinned,
            Err(why) => return Ok(Err(why.clone())),
        };
        let mut all = match tree {
            Some((store, _, tree)) => agreement::statements(store, *tree, lookup)?,
            None => Vec::new(),
        };
        // Sources say it better than a tag.
        if let Some(stated) = stated
            && !all.iter().any(|own| own.component == stated.component && own.how == How::Sources)
        {
            all.push(stated.clone());
        }
        Ok(Ok(all))
    }
}

fn pinned(root: &Path, name: &str, source: &Source, events: &dyn EventSink) -> Result<Pinned, String> {
    let spec = load_fork(root, name).map_err(|error| error.to_string())?;
    let stated = stated(&spec);
    let has_head = matches!(spec.stack, StackSpec::Branch { .. } | StackSpec::Vendored(_));
    if !has_head {
        return match stated {
            Some(stated) => Ok(Pinned { tree: None, stated: Some(stated) }),
            None => Err(format!("patches/{name}/fork.toml names no tag of its base: add `base.tag`")),
        };
    }
    let Parts { spec, store, head, .. } =
        open_parts(root, spec, source, events).map_err(|error| error.to_string())?;
    let commit = head.ok_or_else(|| "it has no head".to_owned())?;
    let tree = match &spec.stack {
        StackSpec::Vendored(copy) => {
            vendored_tree(&store, copy, commit).map_err(|error| error.to_string())?
        }
        _ => store.commit(commit).map_err(|error| error.to_string())?.tree,
    };
    Ok(Pinned { tree: Some((store, commit, tree)), stated })
}

/// The version that a base's tag states.
fn stated(spec: &ForkSpec) -> Option<Statement> {
    let BaseSpec { tag, .. } = spec.base.as_ref()?;
    let component = agreement::component_of(&spec.upstream.repository)?;
    let tag = tag.as_deref()?;
    let version = agreement::plain_version(tag.strip_prefix(&spec.upstream.tag_prefix).unwrap_or(tag));
    let place = format!("patches/{}/fork.toml", spec.name);
    Some(Statement { component, version, place, how: How::Sources })
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;
    use crate::{config::fork::parse_fork, event::Silent, tools::git::fixture::ForkFixture};

    const QUEUE: &str = "summary = \"\"\n[upstream]\nrepository = \"https://example.org/o/mlx\"\nbranch = \"main\"\n\
        tag-prefix = \"v\"\n[base]\ncommit = \"1111111111111111111111111111111111111111\"\ntag = \"v0.32.0\"\n\
        [stack]\nkind = \"folder\"\norder = \"number\"\n";

    fn told(below: &Below) -> Result<Vec<String>, String> {
        let said = below.statements(&|_, _| None).unwrap()?;
        Ok(said.iter().map(|said| format!("{} {} ({})", said.component, said.version, said.place)).collect())
    }

    #[test]
    fn forks_below_say_what_they_are_pinned_to() {
        let fixture = ForkFixture::new(&[("CMakeLists.txt", "set(MLX_C_VERSION 0.6.0)\n")])
            .patch("older", &[("CMakeLists.txt", Some("set(MLX_C_VERSION 0.5.0)\n"))]);
        fixture.name("refs/heads/main", fixture.onto());
        fixture.name("refs/heads/fork", fixture.head());
        let root = tempfile::tempdir().unwrap();
        let branch = "summary = \"\"\n[upstream]\nrepository = \"https://example.org/owner/name\"\nbranch = \"main\"\n\
            [stack]\nkind = \"branch\"\nrepository = \"https://example.org/owner/name\"\nbranch = \"fork\"\n";
        let absent = branch.replace("owner/name", "nobody/nothing");
        for (name, text) in [("queue", QUEUE), ("branch", branch), ("absent", absent.as_str())] {
            let folder = root.path().join("patches").join(name);
            fs::create_dir_all(&folder).unwrap();
            fs::write(folder.join("fork.toml"), text).unwrap();
        }
        let top = branch
            .replace("[upstream]", "builds-on = [\"queue\", \"branch\", \"absent\", \"lost\"]\n[upstream]");
        let spec = parse_fork("top", "fork.toml", &top).unwrap();
        let source = Source::Mirrors(fixture.mirror_root().to_owned());
        let below = forks_below(root.path(), &spec, &source, &Silent);
        assert_eq!(told(&below[0]), Ok(vec!["mlx 0.32.0 (patches/queue/fork.toml)".to_owned()]));
        assert_eq!(told(&below[1]), Ok(vec!["mlx-c 0.5.0 (CMakeLists.txt:1)".to_owned()]));
        assert!(told(&below[2]).unwrap_err().contains("no mirror of `nobody/nothing`"));
        assert!(told(&below[3]).unwrap_err().contains("lost"));
    }
}
