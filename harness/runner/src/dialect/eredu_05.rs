//! eredu 0.5: the session of its MLX backend, which the crate's own model type wraps and does not show. Prefill and decode
//! of a session give logits, so that scoring runs the very steps of generation; the library's own token loop is timed.

use std::{
    collections::BTreeSet,
    fs,
    path::{Path, PathBuf},
    time::Instant,
};

use eredu::api::load_tokenizer;
use eredu_backend_mlx::{
    MlxLoadRequest,
    backend::{MlxBackend, error::Error},
    native::{self, ExecutionContext, MlxModelOutput},
};
use eredu_core::{
    MODEL_LOGITS_OBSERVATION_PATH, ModelLoadError, ModelRuntime, ObservationValue, TensorObservationData,
    TextGeneration, TextGenerationConfig, TokenFilter, TokenOutput as _,
    artifact::ArtifactError,
    backend::TextGenerationBackend as _,
    generation::{GenerationConfigOverrides, resolve_generation_config},
};
use eredu_text::tokenizer::{
    ModelChatTemplate, Tokenizer, load_model_chat_template_from_file, token_id_vocabulary,
};
use serde_json::{Map, Value, json};

use crate::{
    checkpoint::{self, bad_model},
    decode::{self, Next, Rows},
    dialect::{
        Dialect, Model,
        common::{
            self, device_for, device_of, error, exception, exception_kind, failed, read_config, vocab_size,
        },
    },
    protocol::{
        EngineError, EngineErrorKind, Generate, Generated, Hello, Load, Loaded, Memory, Op, OpDone,
        Precision, Score, Scored, Time, Timed, Tokenize, Tokens,
    },
    timing::{self, Bare, Fault},
};

/// The library before a model is loaded.
pub(crate) struct Eredu05 {
    /// Where weights are read.
    reader: ExecutionContext,
    fault: Fault,
}

impl Eredu05 {
    /// Makes MLX ready.
    pub(crate) fn new() -> Self {
        Self { reader: ExecutionContext::new(common::reading_device()), fault: Fault::from_environment() }
    }
}

impl Dialect for Eredu05 {
    type Model = LoadedEredu;

    fn hello(&self) -> Result<Hello, EngineError> {
        common::hello("eredu", "eredu-0.5", &self.fault)
    }

    fn load(&self, request: &Load) -> Result<(LoadedEredu, Loaded), EngineError> {
        let started = Instant::now();
        // Weights stay as stored: no quantization is asked for.
        let Precision::Source = request.precision;
        let context = ExecutionContext::new(device_for(request.device)?);
        let model_dir = PathBuf::from(&request.model_dir);
        let config = read_config(&model_dir)?;
        let held = checkpoint::read_shapes(&model_dir)?;
        let text = Text::load(&model_dir)?;

        let backend = native::backend(context.stream(), self.reader.stream());
        let runtime = ModelRuntime::load(backend, &model_dir, MlxLoadRequest::default())
            .map_err(|why| load_error(&model_dir, why))?;
        let loaded = Loaded {
            model_type: config["model_type"].as_str().unwrap_or_default().to_owned(),
            vocab_size: vocab_size(&config)?,
            eos_ids: eos_ids(&config, &json_file(&model_dir.join("generation_config.json"))?),
            tensors: held.len(),
            device: device_of(context.stream())?,
            load_s: started.elapsed().as_secs_f64(),
        };
        let model = LoadedEredu { runtime, text, vocab_size: loaded.vocab_size, fault: self.fault.clone() };
        Ok((model, loaded))
    }

    fn op(&self, request: &Op) -> Result<OpDone, EngineError> {
        common::op(request, ExecutionContext::new(device_for(request.device)?).stream())
    }

    fn memory(&self) -> Result<Memory, EngineError> {
        common::memory()
    }
}

/// A loaded model with its session, which owns the cache.
pub(crate) struct LoadedEredu {
    runtime: ModelRuntime<MlxBackend<'static>>,
    text: Text,
    vocab_size: usize,
    fault: Fault,
}

impl Model for LoadedEredu {
    fn tokenize(&mut self, request: &Tokenize) -> Result<Tokens, EngineError> {
        let rendered = match request {
            Tokenize::Text { text } => text.clone(),
            Tokenize::Chat { user } => self.text.render(user)?,
        };
        let encoding = self
            .text
            .tokenizer
            .encode(rendered.as_str(), false)
            .map_err(|why| failed(format!("cannot encode {} bytes of text: {why}", rendered.len())))?;
        Ok(Tokens { ids: encoding.get_ids().to_vec(), rendered })
    }

    fn detokenize(&self, ids: &[u32]) -> Result<String, EngineError> {
        let decoded = self.text.tokenizer.decode(ids, false);
        decoded.map_err(|why| failed(format!("cannot decode {} ids: {why}", ids.len())))
    }

    fn generate(&mut self, request: &Generate) -> Result<Generated, EngineError> {
        let steps = decode::generate(self, request)?;
        Ok(Generated {
            text: self.detokenize(&steps.ids)?,
            ids: steps.ids,
            finish: steps.finish,
            ttft_s: steps.ttft_s,
            token_times_s: steps.token_times_s,
            top: steps.top,
        })
    }

    fn score(&mut self, request: &Score) -> Result<Scored, EngineError> {
        decode::score(self, request)
    }

    fn time(&mut self, request: &Time) -> Result<Timed, EngineError> {
        let fault = self.fault.clone();
        self.own_loop(request, |ids| timing::timed(ids, &fault))
    }

    fn bare(&mut self, request: &Time) -> Result<Bare, EngineError> {
        self.own_loop(request, timing::bare_loop)
    }
}

impl LoadedEredu {
    /// Empties the cache.
    fn reset(&mut self) -> Result<(), EngineError> {
        self.runtime.session_mut().reset().map_err(run_error)
    }

    /// Hands the library's own token loop on a fresh cache to `take`, restricted to ids of the tokenizer as the library's
    /// model type restricts it.
    fn own_loop<T>(
        &mut self,
        request: &Time,
        take: impl FnOnce(&mut dyn Iterator<Item = Result<u32, EngineError>>) -> Result<T, EngineError>,
    ) -> Result<T, EngineError> {
        self.reset()?;
        // Without a checkpoint's settings the defaults sort every row for its most likely ids, though the first is taken.
        let greedy = GenerationConfigOverrides {
            temperature: Some(0.0),
            top_k: Some(0),
            top_p: Some(1.0),
            min_p: Some(0.0),
            max_new_tokens: Some(request.tokens),
            ..Default::default()
        };
        let greedy = resolve_generation_config(None, greedy)
            .map_err(|why| failed(format!("the library takes no greedy generation: {why}")))?;
        let tokens = TextGeneration::with_token_filter(
            &mut self.runtime,
            request.prompt_ids.clone(),
            TextGenerationConfig::new(greedy),
            self.text.valid.clone(),
        )
        .map_err(run_error)?;
        // Reading the id waits for the step, as printing it would.
        take(&mut tokens.map(|token| token.and_then(|token| token.token_id()).map_err(run_error)))
    }

    /// Runs ids as a prefill behind what the cache holds, and gives the last row.
    fn prefill(&mut self, ids: &[u32]) -> Result<Vec<f32>, EngineError> {
        let input =
            MlxBackend::prepare_text_prompt(self.runtime.backend(), ids.to_vec()).map_err(run_error)?;
        let output = self.runtime.prefill(input).and_then(|submitted| submitted.wait()).map_err(run_error)?;
        self.row(&output)
    }

    /// Runs one decode step, and gives its row.
    fn decode(&mut self, id: u32) -> Result<Vec<f32>, EngineError> {
        let (backend, session) = self.runtime.parts_mut();
        let submitted = session.submit_token_decode(backend, id);
        let output = submitted.and_then(|submitted| submitted.wait()).map_err(run_error)?;
        self.row(&output)
    }

    /// A step's logits on the host, as f32.
    fn row(&self, output: &MlxModelOutput) -> Result<Vec<f32>, EngineError> {
        let observed = self.runtime.observe_output(output).map_err(run_error)?;
        let Some(ObservationValue::Tensor(logits)) = observed.get(MODEL_LOGITS_OBSERVATION_PATH) else {
            return Err(failed("a step gave no logits"));
        };
        match logits.data() {
            TensorObservationData::F32(row) if row.len() == self.vocab_size => Ok(row.clone()),
            _ => Err(failed(format!(
                "a step made logits of the shape {:?} for a vocabulary of {}",
                logits.shape(),
                self.vocab_size
            ))),
        }
    }
}

impl Rows for LoadedEredu {
    fn run(&mut self, pieces: &[&[u32]], choose: &mut dyn FnMut(&[f32]) -> Next) -> Result<(), EngineError> {
        let (last, earlier) = pieces.split_last().ok_or_else(|| failed("a prompt has no pieces"))?;
        self.reset()?;
        for piece in earlier {
            choose(&self.prefill(piece)?);
        }
        let mut row = self.prefill(last)?;
        while let Next::Feed(id) = choose(&row) {
            row = self.decode(id)?;
        }
        Ok(())
    }
}

/// What a model folder says about text, read as the library's model type reads it.
struct Text {
    tokenizer: Tokenizer,
    template: Option<ModelChatTemplate>,
    /// The template's name in the tokenizer's store of compiled templates.
    model_id: String,
    /// The ids that the tokenizer knows.
    valid: TokenFilter,
}

impl Text {
    fn load(model_dir: &Path) -> Result<Self, EngineError> {
        let unusable = |what: &str, why: &dyn std::fmt::Display| {
            bad_model(format!("cannot load the {what} in {}: {why}", model_dir.display()))
        };
        let tokenizer = load_tokenizer(model_dir).map_err(|why| unusable("tokenizer", &why))?;
        let known: BTreeSet<u32> = token_id_vocabulary(&tokenizer).into_keys().collect();
        let width = known.last().map_or(0, |id| *id + 1);
        let valid = TokenFilter::Allowed((0..width).map(|id| known.contains(&id)).collect());
        let mut tokenizer = Tokenizer::from_tokenizer(tokenizer);
        let settings = model_dir.join("tokenizer_config.json");
        tokenizer.set_template_kwargs(token_texts(&json_file(&settings)?));
        let jinja = model_dir.join("chat_template.jinja");
        let mut template = None;
        if settings.exists() {
            template = load_model_chat_template_from_file(&settings)
                .map_err(|why| unusable("chat template", &why))?;
        }
        if template.is_none() && jinja.exists() {
            let text = fs::read_to_string(&jinja).map_err(|why| unusable("chat template", &why))?;
            template = Some(ModelChatTemplate::Single(text));
        }
        Ok(Self { tokenizer, template, model_id: model_dir.display().to_string(), valid })
    }

    /// One user message by the model's template, the generation prompt added.
    fn render(&mut self, user: &str) -> Result<String, EngineError> {
        let template = self
            .template
            .clone()
            .ok_or_else(|| error(EngineErrorKind::NoTemplate, "the model folder has no chat template"))?;
        let chat = vec![json!({"role": "user", "content": user})];
        self.tokenizer
            .apply_chat_template_json(template, [chat], None, &self.model_id, true, None)
            .map_err(|why| failed(format!("cannot render the chat template: {why}")))?
            .into_iter()
            .next()
            .ok_or_else(|| failed("the chat template rendered nothing"))
    }
}

/// A JSON file; null where there is none.
fn json_file(path: &Path) -> Result<Value, EngineError> {
    if !path.exists() {
        return Ok(Value::Null);
    }
    let refuse = |why: String| bad_model(format!("cannot read {}: {why}", path.display()));
    let text = fs::read(path).map_err(|why| refuse(why.to_string()))?;
    serde_json::from_slice(&text).map_err(|why| refuse(why.to_string()))
}

/// The `bos_token`s and their like that a template may name.
fn token_texts(settings: &Value) -> Map<String, Value> {
    let texts = settings.as_object().into_iter().flatten();
    texts
        .filter(|(key, value)| key.ends_with("_token") && (value.is_string() || value.is_null()))
        .map(|(key, value)| (key.clone(), value.clone()))
        .collect()
}

/// The ids that end a reply: those of the configuration and of its text model, then those of the generation's.
fn eos_ids(config: &Value, generation: &Value) -> Vec<u32> {
    let mut ids = Vec::new();
    for named in [config, &config["text_config"], generation, &generation["text_config"]] {
        let named = &named["eos_token_id"];
        for id in named.as_array().into_iter().flatten().chain([named]) {
            if let Some(id) = id.as_u64().and_then(|id| u32::try_from(id).ok())
                && !ids.contains(&id)
            {
                ids.push(id);
            }
        }
    }
    ids
}

fn load_error(model_dir: &Path, why: ModelLoadError<Error>) -> EngineError {
    let dir = model_dir.display();
    match why {
        ModelLoadError::Artifact(
            why @ (ArtifactError::UnsupportedModelType(_)
            | ArtifactError::UnsupportedLoadingProtocol(_)
            | ArtifactError::UnsupportedContainer(_)),
        ) => error(EngineErrorKind::UnsupportedModel, format!("cannot load {dir}: {why}")),
        ModelLoadError::Artifact(why) => bad_model(format!("cannot load {dir}: {why}")),
        ModelLoadError::Backend(Error::StrictLoadValidation { missing, unused }) => bad_model(format!(
            "the checkpoint in {dir} does not fit the model: {} missing ({}), {} extra or misshapen ({})",
            missing.len(),
            checkpoint::list_names(&missing),
            unused.len(),
            checkpoint::list_names(&unused)
        )),
        ModelLoadError::Backend(
            why @ (Error::Artifact(_)
            | Error::CheckpointStore(_)
            | Error::CheckpointShards(_)
            | Error::CheckpointMaterialization(_)
            | Error::WeightRecipe(_)
            | Error::ModuleBinding(_)),
        ) => bad_model(format!("cannot load {dir}: {why}")),
        ModelLoadError::Backend(why) => {
            let EngineError { kind, message } = run_error(why);
            error(kind, format!("cannot load {dir}: {message}"))
        }
        why => failed(format!("cannot load {dir}: {why}")),
    }
}

/// Most of the library's errors carry MLX's words only as text.
fn run_error(why: Error) -> EngineError {
    match why {
        Error::Exception(why) => exception(why),
        why => {
            let what = why.to_string();
            error(exception_kind(&what), what)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_ids_that_end_a_reply_come_from_both_files_and_once() {
        let config = json!({"eos_token_id": 2, "text_config": {"eos_token_id": [3, 2]}});
        assert_eq!(eos_ids(&config, &json!({"eos_token_id": [7, 3]})), [2, 3, 7]);
        assert_eq!(eos_ids(&json!({}), &Value::Null), [0; 0]);
    }

    #[test]
    fn templates_see_the_texts_of_tokens_only() {
        let settings = json!({"bos_token": "<s>", "pad_token": null, "eos_token": {"content": "x"}, "model_max_length": 1});
        let texts = token_texts(&settings);
        assert_eq!(texts.keys().collect::<Vec<_>>(), ["bos_token", "pad_token"]);
    }

    #[test]
    fn an_allocation_that_failed_inside_the_library_is_told_from_other_failures() {
        let wrapped = |text: &str| run_error(Error::ArchitectureModel(text.into())).kind;
        assert_eq!(wrapped("backend: [malloc] Unable to allocate 8 bytes."), EngineErrorKind::OutOfMemory);
        assert_eq!(wrapped("native session is fenced"), EngineErrorKind::Failed);
    }
}
