//! Which weights? Makes synthetic checkpoints from a seed and converts a package's GGUF file, both into Hugging Face
//! folders that are made once and checked at every use. Downloads nothing and runs no model.

pub mod convert;
pub mod error;
pub mod family;
pub mod folder;
#[cfg(test)]
mod forward;
pub mod gguf;
mod layout;
pub mod package;
pub mod quantize;
#[cfg(test)]
mod sensitivity;
pub mod synthetic;

use std::{
    collections::BTreeMap,
    path::{Path, PathBuf},
    time::Instant,
};

use serde_json::{Value, json};

pub use error::ModelError;
pub use folder::Check;

use crate::{
    config::spec::{ModelSource, ModelSpec, SyntheticSpec},
    event::{Event, EventSink},
    tools::archive::file_sha256,
};
use convert::Conversion;
use folder::{Found, MANIFEST_SCHEMA, Manifest, io_error, sha256};
use gguf::Gguf;

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
    let _lock = folder::lock(inputs.root, &folder_name, || {
        events.emit(Event::Note(format!("another process makes model `{}`: waiting for it", model.name)));
    })?;
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

/// Bytes of keys and values that a token takes in a cache of single precision, for models whose every layer sees everything;
/// `None` for others, and where the folder does not say.
pub fn cache_bytes_per_token(model_dir: &Path) -> Option<f64> {
    let config: Value = serde_json::from_slice(&std::fs::read(model_dir.join("config.json")).ok()?).ok()?;
    let number = |key: &str| config.get(key).and_then(Value::as_f64);
    let known = matches!(config["model_type"].as_str(), Some("llama" | "qwen3"));
    let single = config["torch_dtype"].as_str() == Some("float32");
    let windowed = config.get("sliding_window").is_some_and(Value::is_number);
    if !known || !single || windowed {
        return None;
    }
    Some(2.0 * 4.0 * number("num_hidden_layers")? * number("num_key_value_heads")? * number("head_dim")?)
}

/// How one model is made.
enum Recipe<'a> {
    Synthetic(&'a SyntheticSpec),
    Package(&'a Path),
}

impl<'a> Recipe<'a> {
    fn new(model: &'a ModelSpec, inputs: ModelInputs<'a>) -> Result<Self, ModelError> {
        match (&model.source, inputs.package_file) {
            (ModelSource::Synthetic(spec), _) => match synthetic::impossible(spec) {
                Some(problem) => Err(ModelError::Shape { model: model.name.clone(), problem }),
                None => Ok(Self::Synthetic(spec)),
            },
            (ModelSource::Package { .. }, Some(file)) => Ok(Self::Package(file)),
            (ModelSource::Package { package }, None) => {
                Err(ModelError::NoPackageFile { model: model.name.clone(), package: package.clone() })
            }
        }
    }

    /// SHA-256 of everything that determines the weights.
    fn digest(&self) -> Result<String, ModelError> {
        let recipe = match self {
            Self::Synthetic(spec) => json!({ "synthetic": spec, "version": synthetic::GENERATOR_VERSION }),
            Self::Package(file) => json!({
                "package_sha256": file_sha256(file).map_err(io_error("read", file))?,
                "version": convert::CONVERTER_VERSION,
            }),
        };
        Ok(sha256(recipe.to_string()))
    }

    fn fill(&self, folder: &Path, name: &str, digest: String) -> Result<Manifest, ModelError> {
        let manifest = |summary, config: &Value, vocab_size, eos_ids| Manifest {
            schema: MANIFEST_SCHEMA,
            name: name.to_owned(),
            digest,
            summary,
            model_type: config["model_type"].as_str().unwrap_or_default().to_owned(),
            vocab_size,
            eos_ids,
            files: BTreeMap::new(),
        };
        match self {
            Self::Synthetic(spec) => {
                write_synthetic(spec, folder)?;
                let config = synthetic::config(spec);
                Ok(manifest(synthetic_summary(spec), &config, spec.vocab, vec![synthetic::EOS_ID]))
            }
            Self::Package(file) => {
                let (origin, bytes) = package::read_gguf(file)?;
                let gguf = Gguf::parse(&origin, &bytes)?;
                let made = convert::convert(&gguf)?;
                write_conversion(&made, folder)?;
                Ok(manifest(made.summary, &made.config, made.vocab_size, made.eos_ids))
            }
        }
    }
}

fn write_synthetic(spec: &SyntheticSpec, folder: &Path) -> Result<(), ModelError> {
    let tensors = quantize::stored(synthetic::tensors(spec), spec.quantization.as_ref());
    if spec.shards == 1 {
        write_weights(tensors.iter().map(|tensor| (tensor.name.clone(), tensor)), folder)?;
    } else {
        write_shards(&tensors, spec.shards, folder)?;
    }
    write_json(folder, "config.json", &synthetic::config(spec))?;
    write_json(folder, "generation_config.json", &json!({ "eos_token_id": synthetic::EOS_ID }))?;
    write_json(folder, "tokenizer.json", &synthetic::tokenizer(spec.vocab))?;
    write_json(folder, "tokenizer_config.json", &synthetic::tokenizer_config(spec))
}

fn write_conversion(made: &Conversion<'_>, folder: &Path) -> Result<(), ModelError> {
    write_weights(made.tensors.iter().map(|tensor| (tensor.name.clone(), tensor.clone())), folder)?;
    write_json(folder, "config.json", &made.config)?;
    write_json(folder, "generation_config.json", &made.generation_config)?;
    write_json(folder, "tokenizer.json", &made.tokenizer)?;
    write_json(folder, "tokenizer_config.json", &made.tokenizer_config)
}

/// Writes the weights into several files with an index.
fn write_shards(tensors: &[quantize::StoredTensor], shards: usize, folder: &Path) -> Result<(), ModelError> {
    let file = |shard: usize| format!("model-{:05}-of-{shards:05}.safetensors", shard + 1);
    // By turns, so that the tensors of a layer lie in different files.
    for shard in 0..shards {
        let own = tensors.iter().skip(shard).step_by(shards);
        write_weights_as(&file(shard), own.map(|tensor| (tensor.name.clone(), tensor)), folder)?;
    }
    let map: serde_json::Map<String, Value> = tensors
        .iter()
        .enumerate()
        .map(|(i, tensor)| (tensor.name.clone(), json!(file(i % shards))))
        .collect();
    let bytes: usize = tensors.iter().map(|tensor| safetensors::View::data_len(&tensor)).sum();
    let index = json!({ "metadata": { "total_size": bytes }, "weight_map": map });
    write_json(folder, "model.safetensors.index.json", &index)
}

/// Writes `model.safetensors`, one tensor after the other: no more than one is held in memory.
fn write_weights<V: safetensors::View>(
    tensors: impl IntoIterator<Item = (String, V)>,
    folder: &Path,
) -> Result<(), ModelError> {
    write_weights_as("model.safetensors", tensors, folder)
}

fn write_weights_as<V: safetensors::View>(
    file: &str,
    tensors: impl IntoIterator<Item = (String, V)>,
    folder: &Path,
) -> Result<(), ModelError> {
    let path = folder.join(file);
    let about = [("format".to_owned(), "pt".to_owned())].into();
    safetensors::serialize_to_file(tensors, Some(about), &path)
        .map_err(|source| ModelError::Weights { path, source })
}

fn write_json(folder: &Path, name: &str, value: &Value) -> Result<(), ModelError> {
    let mut text = serde_json::to_vec_pretty(value).expect("a JSON value is serializable");
    text.push(b'\n');
    folder::write(&folder.join(name), &text)
}

fn synthetic_summary(spec: &SyntheticSpec) -> String {
    let stored = spec
        .quantization
        .as_ref()
        .map_or_else(String::new, |how| format!(", {} bits in groups of {}", how.bits, how.group_size));
    format!(
        "random {} with seed {}: {} layers of {}, {} heads of {} ({} for keys and values), vocabulary {}{stored}",
        spec.architecture.name(),
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

#[cfg(test)]
mod tests {
    use std::{fs, sync::Mutex};

    use safetensors::SafeTensors;

    use super::*;
    use crate::{config::spec::Architecture, event::Silent};

    #[derive(Default)]
    struct Recorded(Mutex<Vec<Event>>);

    impl EventSink for Recorded {
        fn emit(&self, event: Event) {
            self.0.lock().unwrap().push(event);
        }
    }

    impl Recorded {
        /// How many models were made since the last call, and the warnings.
        fn taken(&self) -> (usize, Vec<String>) {
            let events = std::mem::take(&mut *self.0.lock().unwrap());
            let made = events.iter().filter(|e| matches!(e, Event::StepFinished { .. })).count();
            let warnings = events.into_iter().filter_map(|e| match e {
                Event::Warning(text) => Some(text),
                _ => None,
            });
            (made, warnings.collect())
        }
    }

    fn synthetic_model() -> ModelSpec {
        let spec = SyntheticSpec {
            architecture: Architecture::Qwen3,
            seed: 1,
            layers: 1,
            hidden: 8,
            intermediate: 8,
            heads: 2,
            kv_heads: 1,
            head_dim: 4,
            vocab: 16,
            rope_theta: 1e6,
            weight_std: 0.15,
            max_positions: 64,
            shards: 1,
            head: crate::config::spec::Head::Own,
            window: None,
            quantization: None,
        };
        ModelSpec { name: "tiny".to_owned(), source: ModelSource::Synthetic(spec) }
    }

    fn package_model() -> ModelSpec {
        ModelSpec {
            name: "small".to_owned(),
            source: ModelSource::Package { package: "some-package".to_owned() },
        }
    }

    fn inputs<'a>(root: &'a Path, package_file: Option<&'a Path>, check: Check) -> ModelInputs<'a> {
        ModelInputs { root, package_file, check }
    }

    #[test]
    fn a_synthetic_folder_is_whole_and_a_second_run_makes_nothing() {
        let root = tempfile::tempdir().unwrap();
        let events = Recorded::default();
        let first = prepare(&synthetic_model(), inputs(root.path(), None, Check::Sizes), &events).unwrap();
        assert_eq!(events.taken(), (1, vec![]));
        let second = prepare(&synthetic_model(), inputs(root.path(), None, Check::Hashes), &events).unwrap();
        assert_eq!(events.taken(), (0, vec![]));
        assert_eq!(first, second);
        verify(&first).unwrap();

        let bytes = fs::read(first.path.join("model.safetensors")).unwrap();
        let weights = SafeTensors::deserialize(&bytes).unwrap();
        let names: Vec<&str> = weights.names();
        assert_eq!(names.len(), 14, "{names:?}");
        assert_eq!(weights.tensor("model.layers.0.self_attn.k_proj.weight").unwrap().shape(), [4, 8]);
        let config: Value =
            serde_json::from_slice(&fs::read(first.path.join("config.json")).unwrap()).unwrap();
        assert_eq!((&config["model_type"], &config["tie_word_embeddings"]), (&json!("qwen3"), &json!(false)));
        assert!(first.path.join("tokenizer.json").exists());
    }

    #[test]
    fn shards_hold_every_tensor_once_and_the_same_weights() {
        let root = tempfile::tempdir().unwrap();
        let whole = prepare(&synthetic_model(), inputs(root.path(), None, Check::Sizes), &Silent).unwrap();
        let mut model = synthetic_model();
        let ModelSource::Synthetic(spec) = &mut model.source else { unreachable!() };
        spec.shards = 3;
        let cut = prepare(&model, inputs(root.path(), None, Check::Sizes), &Silent).unwrap();
        assert_ne!(whole.path, cut.path);
        let index: Value =
            serde_json::from_slice(&fs::read(cut.path.join("model.safetensors.index.json")).unwrap())
                .unwrap();
        let bytes = fs::read(whole.path.join("model.safetensors")).unwrap();
        let right = SafeTensors::deserialize(&bytes).unwrap();
        let map = index["weight_map"].as_object().unwrap();
        assert_eq!(map.len(), right.names().len());
        for (name, file) in map {
            let bytes = fs::read(cut.path.join(file.as_str().unwrap())).unwrap();
            let shard = SafeTensors::deserialize(&bytes).unwrap();
            assert_eq!(shard.tensor(name).unwrap().data(), right.tensor(name).unwrap().data(), "{name}");
        }
    }

    #[test]
    fn a_damaged_folder_is_made_anew_with_a_warning() {
        let root = tempfile::tempdir().unwrap();
        let events = Recorded::default();
        let made = prepare(&synthetic_model(), inputs(root.path(), None, Check::Sizes), &events).unwrap();
        events.taken();
        let weights = made.path.join("model.safetensors");
        let sound = fs::read(&weights).unwrap();

        fs::write(&weights, &sound[..sound.len() - 4]).unwrap();
        let error = verify(&made).unwrap_err();
        assert!(error.to_string().contains("model.safetensors has"), "{error}");
        prepare(&synthetic_model(), inputs(root.path(), None, Check::Sizes), &events).unwrap();
        let (made_again, warnings) = events.taken();
        assert_eq!(made_again, 1);
        assert!(warnings[0].contains("model.safetensors has"), "{warnings:?}");
        assert_eq!(fs::read(&weights).unwrap(), sound);

        // Equal sizes need the thorough look.
        let mut flipped = sound.clone();
        *flipped.last_mut().unwrap() ^= 1;
        fs::write(&weights, flipped).unwrap();
        prepare(&synthetic_model(), inputs(root.path(), None, Check::Sizes), &events).unwrap();
        assert_eq!(events.taken().0, 0);
        prepare(&synthetic_model(), inputs(root.path(), None, Check::Hashes), &events).unwrap();
        assert_eq!(events.taken().0, 1);
        assert_eq!(fs::read(&weights).unwrap(), sound);
    }

    #[test]
    fn another_spec_gets_another_folder() {
        let root = tempfile::tempdir().unwrap();
        let mut other = synthetic_model();
        let ModelSource::Synthetic(spec) = &mut other.source else { unreachable!() };
        spec.seed += 1;
        let [a, b] = [synthetic_model(), other]
            .map(|m| prepare(&m, inputs(root.path(), None, Check::Sizes), &crate::event::Silent).unwrap());
        assert_ne!((a.digest, a.path), (b.digest, b.path));
    }

    #[test]
    fn a_package_is_converted_and_a_cut_one_leaves_the_cache_usable() {
        let dir = tempfile::tempdir().unwrap();
        let root = dir.path().join("models");
        let file = dir.path().join("little.gguf");
        let sound = convert::little_gguf();
        let events = Recorded::default();

        fs::write(&file, &sound[..sound.len() / 2]).unwrap();
        let error = prepare(&package_model(), inputs(&root, Some(&file), Check::Sizes), &events).unwrap_err();
        assert!(matches!(error, ModelError::Gguf { .. }), "{error}");
        assert!(error.hint().unwrap().contains("incomplete"));

        fs::write(&file, &sound).unwrap();
        let made = prepare(&package_model(), inputs(&root, Some(&file), Check::Sizes), &events).unwrap();
        verify(&made).unwrap();
        assert_eq!(
            (made.model_type.as_str(), made.vocab_size, made.eos_ids.as_slice()),
            ("llama", 5, &[1, 0][..])
        );
        assert_eq!(events.taken().0, 1);
        prepare(&package_model(), inputs(&root, Some(&file), Check::Sizes), &events).unwrap();
        assert_eq!(events.taken().0, 0);
    }

    #[test]
    fn a_package_model_without_its_file_says_which_package() {
        let root = tempfile::tempdir().unwrap();
        let asked = inputs(root.path(), None, Check::Sizes);
        let error = prepare(&package_model(), asked, &crate::event::Silent).unwrap_err();
        assert!(error.to_string().contains("package `some-package`"), "{error}");
    }

    #[test]
    fn an_impossible_shape_makes_no_folder() {
        let root = tempfile::tempdir().unwrap();
        let mut model = synthetic_model();
        let ModelSource::Synthetic(spec) = &mut model.source else { unreachable!() };
        spec.kv_heads = 3;
        let error =
            prepare(&model, inputs(root.path(), None, Check::Sizes), &crate::event::Silent).unwrap_err();
        assert!(error.to_string().contains("model `tiny` cannot be made: kv-heads 3"), "{error}");
        assert_eq!(fs::read_dir(root.path()).unwrap().count(), 0);
    }
}
