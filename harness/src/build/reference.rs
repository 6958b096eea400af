//! The reference engine as an artifact: mlx-lm in the private Python environment, behind our own small program.

use std::io;

use serde_json::json;

use crate::{
    build::{
        artifact::{Artifact, Provenance},
        compile::BuildError,
        digest::digest_of,
        layout::Layout,
        provision::Toolbox,
    },
    tools::archive::file_sha256,
};

/// The mlx-lm reference, with the version of everything installed beside it.
pub fn reference_artifact(layout: &Layout, toolbox: &Toolbox) -> Result<Artifact, BuildError> {
    let script = layout.reference();
    let lock = layout.provision().join("reference.lock");
    let sha256 = |path: &std::path::Path| {
        file_sha256(path).map_err(|source: io::Error| BuildError::Read { path: path.to_owned(), source })
    };
    let inputs = json!({
        "schema": {"name": "regraft-reference-inputs", "version": 1},
        "dialect": "python",
        "program_sha256": sha256(&script)?,
        "products_sha256": sha256(&script.with_file_name("products.py"))?,
        "lock_sha256": sha256(&lock)?,
        "python": toolbox.interpreter.version,
        "platform": toolbox.interpreter.platform,
        "distributions": toolbox.installed.distributions,
    });
    let log = json!({
        "environment": toolbox.environment.display().to_string(),
        "blas": toolbox.blas.to_string(),
    });
    Ok(Artifact {
        name: "mlx-lm".to_owned(),
        program: toolbox.python(),
        args: vec!["-I".to_owned(), script.to_string_lossy().into_owned()],
        env: toolbox.engine_env(),
        provenance: Provenance { digest: digest_of(&inputs), inputs, log },
    })
}

/// The same engine behind the program that imitates faults on demand: never a side of a comparison that decides.
pub fn faulty_reference(reference: &Artifact, layout: &Layout) -> Artifact {
    let script = layout.root.join("harness/reference/faulty_engine.py");
    Artifact {
        name: "faulty-mlx-lm".to_owned(),
        args: vec!["-I".to_owned(), script.to_string_lossy().into_owned()],
        ..reference.clone()
    }
}
