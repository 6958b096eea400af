//! `[push]`: where a rebased stack is pushed to, and which branches are never touched.

use toml::Spanned;
use wildmatch::WildMatch;

use super::{
    super::reader::{Keys, Table},
    upstream::repository,
};

/// Where a rebased stack is pushed to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PushSpec {
    /// The repository.
    pub repository: String,
    /// The branch that moves.
    pub branch: String,
    /// Names of branches, `*` and `?` allowed, that a push never moves.
    pub protected: Vec<String>,
}

impl PushSpec {
    /// The entry of `protected` that covers a branch. Upper and lower case are one, as they are for some hosts.
    pub fn protection_of(&self, branch: &str) -> Option<&str> {
        let covers = |pattern: &&str| WildMatch::new_case_insensitive(pattern).matches(branch);
        self.protected.iter().map(String::as_str).find(covers)
    }
}

pub(super) const KEYS: Keys = Keys::new(&["repository", "branch", "protected"]);

pub(super) fn read(table: &Table<'_, '_>) -> Option<PushSpec> {
    let repository = repository(table);
    let branch = table.required::<String>("branch")?;
    if !is_branch_name(branch.get_ref()) {
        table.problem(branch.span(), "`branch` is no name that git accepts");
        return None;
    }
    let protected = table.optional_list::<String>("protected");
    let protected = protected.map(Spanned::into_inner).unwrap_or_default();
    let protected = protected.into_iter().map(Spanned::into_inner).collect();
    Some(PushSpec { repository: repository?, branch: branch.into_inner(), protected })
}

/// Whether git accepts a name for a branch, and no program reads it as an option (`git check-ref-format`'s rules).
pub fn is_branch_name(name: &str) -> bool {
    let part = |part: &str| !part.is_empty() && !part.starts_with('.') && !part.ends_with(".lock");
    !name.starts_with('-')
        && name != "@"
        && !name.ends_with('.')
        && !name.contains("..")
        && !name.contains("@{")
        && !name.chars().any(|c| c.is_control() || " ~^:?*[\\".contains(c))
        && name.split('/').all(part)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_that_git_refuses_or_reads_as_options_are_none() {
        for bad in [
            "", "-f", "--force", "a..b", "a b", "a~1", "a:b", ".a", "a/.b", "a.lock", "a/", "@", "a@{1}", "*",
        ] {
            assert!(!is_branch_name(bad), "{bad}");
        }
        for good in ["main", "release/1.0", "a-b", "jbg/x"] {
            assert!(is_branch_name(good), "{good}");
        }
    }

    #[test]
    fn protection_knows_patterns() {
        let spec = PushSpec {
            repository: "https://example.org/o/n".to_owned(),
            branch: "regraft".to_owned(),
            protected: vec!["main".to_owned(), "release/*".to_owned()],
        };
        assert_eq!(spec.protection_of("release/1"), Some("release/*"));
        assert_eq!((spec.protection_of("main"), spec.protection_of("maint")), (Some("main"), None));
        assert_eq!(spec.protection_of("Main"), Some("main"), "a host may take both for one branch");
    }
}
