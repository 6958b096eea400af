//! A compiler cache for ordinary builds, where this machine has one. It changes how long a build takes and nothing of what is
//! made, so it is no part of a build's identity; clean builds never use it.

use std::path::Path;

use crate::tools::process::Invocation;

/// The program that is looked for.
pub const PROGRAM: &str = "sccache";

/// What CMake and cargo read to start compilers through another program.
pub const VARIABLES: [&str; 3] =
    ["RUSTC_WRAPPER", "CMAKE_C_COMPILER_LAUNCHER", "CMAKE_CXX_COMPILER_LAUNCHER"];

/// Lets a cargo command compile through the cache; whatever a person has set for one of the compilers stays.
pub fn through(mut cargo: Invocation, cache: Option<&Path>, is_set: impl Fn(&str) -> bool) -> Invocation {
    let Some(cache) = cache else { return cargo };
    for name in VARIABLES.into_iter().filter(|name| !is_set(name)) {
        cargo = cargo.env(name, cache);
    }
    cargo
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rust_c_and_cpp_go_through_the_cache_unless_somebody_has_chosen_another() {
        let through = |cache: Option<&str>, set: &'static [&'static str]| {
            let cargo = through(Invocation::new("cargo"), cache.map(Path::new), |name| set.contains(&name));
            cargo.env.keys().map(|name| name.to_string_lossy().into_owned()).collect::<Vec<_>>()
        };
        assert_eq!(through(None, &[]), Vec::<String>::new());
        assert_eq!(
            through(Some("/usr/bin/sccache"), &[]),
            ["CMAKE_CXX_COMPILER_LAUNCHER", "CMAKE_C_COMPILER_LAUNCHER", "RUSTC_WRAPPER"]
        );
        assert_eq!(
            through(Some("/usr/bin/sccache"), &["RUSTC_WRAPPER"]),
            ["CMAKE_CXX_COMPILER_LAUNCHER", "CMAKE_C_COMPILER_LAUNCHER"]
        );
    }
}
