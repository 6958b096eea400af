//! Which weights? Makes synthetic checkpoints from a seed and converts a package's GGUF file, both into Hugging Face
//! folders that are made once and checked at every use. Downloads nothing and runs no model.

pub mod error;
pub mod folder;
pub mod synthetic;

use std::{
    path::{Path, PathBuf},
    time::Instant,
};

use sha2::{Digest, Sha256};

pub use error::ModelError;
pub use folder::{Check, hex};

use crate::{
    config::spec::{ModelSource, ModelSpec, SyntheticSpec},
    event::{Event, EventSink},
};
use folder::{Found, MANIFEST_SCHEMA, Manifest};

/// A model folder that is ready for an engine.
#[derive(Debug, Clone, PartialEq)]
pub struct ModelDir {
    /// The model's name in the matrix.
    pub name: String,
    /// The folder, in Hugging Face layout.
    pub path: PathBuf,
    /// SHA-256 of everything that determines the weights, in hexadecimal: equal digests mean equal models.
    pub digest: String,
    /// What a person wants to know about the model in one line.
    pub summary: String,
    /// `model_type` of its `config.json`.
    pub model_type: String,
    /// The length of a logits row.
    pub vocab_size: usize,
    /// The ids that end a reply.
    pub eos_ids: Vec<u32>,
}

/// Where models are made, and from what.
#[derive(Debug, Clone, Copy)]
pub struct ModelInputs<'a> {
    /// The folder that model folders live in; made when it is missing.
    pub root: &'a Path,
    /// A wheel or a `.gguf` file, for a model that comes from a package.
    pub package_file: Option<&'a Path>,
    /// How thoroughly a model that is already there is looked at.
    pub check: Check,
}

/// Hands out the folder of `model`, and makes it first where it is missing or damaged.
///
/// # Errors
/// Any [`ModelError`] but [`ModelError::Damaged`]: a damaged folder is made anew, with a warning.
pub fn prepare(
    model: &ModelSpec,
    inputs: ModelInputs<'_>,
    events: &dyn EventSink,
) -> Result<ModelDir, ModelError> {
    let recipe = Recipe::new(model, inputs)?;
    let digest = recipe.digest()?;
    let folder_name = format!("{}-{}", model.name, &digest[..16]);
    let path = inputs.root.join(&folder_name);

    // Only makers hold the lock for long, so a process that waits here gets its folder for nothing.
    let _lock = folder::lock(inputs.root, &folder_name)?;
    match folder::inspect(&path, inputs.check)? {
        Found::Sound(manifest) => return Ok(model_dir(manifest, path)),
        Found::Nothing => {}
        Found::Damaged { problem } => {
            events.emit(Event::Warning(format!("model `{}` is made anew, because {problem}", model.name)));
        }
    }

    let step = format!("make model {}", model.name);
    events.emit(Event::StepStarted { step: step.clone() });
    let begun = Instant::now();
    let manifest =
        folder::make(inputs.root, &folder_name, |folder| recipe.fill(folder, &model.name, digest))?;
    let bytes: u64 = manifest.files.values().map(|file| file.size_bytes).sum();
    let outcome = format!("{:.1} MB", bytes as f64 / 1e6);
    events.emit(Event::StepFinished { step, outcome, took: begun.elapsed() });
    Ok(model_dir(manifest, path))
}

/// Reads a finished model folder again, and every byte of it.
///
/// # Errors
/// [`ModelError::Damaged`] when it is not what it was when it was made; [`ModelError::Io`] when it cannot be read.
pub fn verify(model: &ModelDir) -> Result<(), ModelError> {
    let damaged = |problem: String| Err(ModelError::Damaged { path: model.path.clone(), problem });
    match folder::inspect(&model.path, Check::Hashes)? {
        Found::Sound(_) => Ok(()),
        Found::Nothing => damaged("it is gone".to_owned()),
        Found::Damaged { problem } => damaged(problem),
    }
}

/// How one model is made.
enum Recipe<'a> {
    Synthetic(&'a SyntheticSpec),
}

impl<'a> Recipe<'a> {
    fn new(model: &'a ModelSpec, inputs: ModelInputs<'a>) -> Result<Self, ModelError> {
        match &model.source {
            ModelSource::Synthetic(spec) => match synthetic::impossible(spec) {
                Some(problem) => Err(ModelError::Shape { model: model.name.clone(), problem }),
                None => Ok(Self::Synthetic(spec)),
            },
            ModelSource::Package { package } => {
                let _ = inputs.package_file;
                Err(ModelError::NoPackageFile { model: model.name.clone(), package: package.clone() })
            }
        }
    }

    fn digest(&self) -> Result<String, ModelError> {
        let Self::Synthetic(spec) = self;
        let recipe = serde_json::json!({ "synthetic": spec, "version": synthetic::GENERATOR_VERSION });
        Ok(hex(&Sha256::digest(recipe.to_string())))
    }

    fn fill(&self, folder: &Path, name: &str, digest: String) -> Result<Manifest, ModelError> {
        let Self::Synthetic(spec) = self;
        write_synthetic(spec, folder)?;
        Ok(Manifest {
            schema: MANIFEST_SCHEMA,
            name: name.to_owned(),
            digest,
            summary: synthetic_summary(spec),
            model_type: string_of(&synthetic::config(spec), "model_type"),
            vocab_size: spec.vocab,
            eos_ids: vec![synthetic::EOS_ID],
            files: Default::default(),
        })
    }
}

fn write_synthetic(spec: &SyntheticSpec, folder: &Path) -> Result<(), ModelError> {
    let tensors = synthetic::tensors(spec).into_iter().map(|tensor| (tensor.name.clone(), tensor));
    write_weights(tensors, folder)?;
    write_json(folder, "config.json", &synthetic::config(spec))?;
    write_json(folder, "generation_config.json", &serde_json::json!({ "eos_token_id": synthetic::EOS_ID }))?;
    write_json(folder, "tokenizer.json", &synthetic::tokenizer(spec.vocab))?;
    write_json(folder, "tokenizer_config.json", &synthetic::tokenizer_config(spec))
}

/// Writes `model.safetensors`, one tensor after the other: no more than one is held in memory.
fn write_weights<V: safetensors::View>(
    tensors: impl IntoIterator<Item = (String, V)>,
    folder: &Path,
) -> Result<(), ModelError> {
    let path = folder.join("model.safetensors");
    let about = [("format".to_owned(), "pt".to_owned())].into();
    safetensors::serialize_to_file(tensors, Some(about), &path)
        .map_err(|source| ModelError::Weights { path, source })
}

fn write_json(folder: &Path, name: &str, value: &serde_json::Value) -> Result<(), ModelError> {
    let mut text = serde_json::to_vec_pretty(value).expect("a JSON value is serializable");
    text.push(b'\n');
    folder::write(&folder.join(name), &text)
}

fn synthetic_summary(spec: &SyntheticSpec) -> String {
    format!(
        "random {:?} with seed {}: {} layers of {}, {} heads of {} ({} for keys and values), vocabulary {}",
        spec.architecture,
        spec.seed,
        spec.layers,
        spec.hidden,
        spec.heads,
        spec.head_dim,
        spec.kv_heads,
        spec.vocab
    )
    .to_lowercase()
}

fn string_of(value: &serde_json::Value, key: &str) -> String {
    value[key].as_str().unwrap_or_default().to_owned()
}

fn model_dir(manifest: Manifest, path: PathBuf) -> ModelDir {
    ModelDir {
        name: manifest.name,
        path,
        digest: manifest.digest,
        summary: manifest.summary,
        model_type: manifest.model_type,
        vocab_size: manifest.vocab_size,
        eos_ids: manifest.eos_ids,
    }
}
