//! What several integration tests need.

use std::{collections::BTreeMap, path::Path};

use harness::build::{Artifact, Provenance};
use serde_json::Value;

/// One of the programs of `harness/reference` under the reference's interpreter; `None`, with the reason printed, where there
/// is none on this machine.
#[allow(clippy::print_stderr, reason = "a test that does not run has to say so")]
pub(crate) fn reference_program(name: &str, script: &str) -> Option<Artifact> {
    let Some(python) = std::env::var_os("REGRAFT_REFERENCE_PYTHON") else {
        eprintln!("skipped: REGRAFT_REFERENCE_PYTHON names no interpreter with mlx-lm");
        return None;
    };
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("reference").join(script);
    Some(Artifact {
        name: name.into(),
        program: python.into(),
        args: vec![script.to_string_lossy().into_owned()],
        env: BTreeMap::new(),
        provenance: Provenance { digest: String::new(), inputs: Value::Null, log: Value::Null },
    })
}
