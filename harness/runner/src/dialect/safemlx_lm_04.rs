//! safemlx-lm 0.4: `LoadedModel` with its own caches and token iterator, as a user of the crate drives them. A custom
//! sampler sees each step's logits and decides the next id, so that scoring runs the very steps of generation.

use std::{
    cell::Cell,
    path::{Path, PathBuf},
    time::Instant,
};

use safemlx::{
    Array, ExecutionContext, Stream, error::Exception, module::ModuleParameters, random::RandomState,
};
use safemlx_lm::{
    ModelConfigSupport, check_model_config,
    error::Error,
    models::{
        LoadedModel, ModelKind,
        input::{InputPart, ModelInput},
        llama, qwen3,
    },
    sampler::Sampler,
};
use serde_json::{Value, json};

use crate::{
    checkpoint::{self, Shapes, bad_model},
    decode::{self, Next, Rows},
    dialect::{
        Dialect, Model,
        common::{self, device_for, device_of, error, exception, failed, on_host, read_config, vocab_size},
    },
    protocol::{
        EngineError, EngineErrorKind, Generate, Generated, Hello, Load, Loaded, Memory, Op, OpDone,
        Precision, Score, Scored, Time, Timed, Tokenize, Tokens,
    },
    timing::{self, Bare, Fault},
};

/// The library before a model is loaded.
pub(crate) struct SafemlxLm04 {
    /// Where weights are read.
    reader: ExecutionContext,
    fault: Fault,
}

impl SafemlxLm04 {
    /// Makes MLX ready.
    pub(crate) fn new() -> Self {
        Self { reader: ExecutionContext::new(common::reading_device()), fault: Fault::from_environment() }
    }
}

impl Dialect for SafemlxLm04 {
    type Model = LoadedSafemlxLm;

    fn hello(&self) -> Result<Hello, EngineError> {
        common::hello("safemlx-lm", "safemlx-lm-0.4", &self.fault)
    }

    fn load(&self, request: &Load) -> Result<(LoadedSafemlxLm, Loaded), EngineError> {
        let started = Instant::now();
        // Weights stay as stored: the library converts none.
        let Precision::Source = request.precision;
        let context = ExecutionContext::new(device_for(request.device)?);
        let model_dir = PathBuf::from(&request.model_dir);
        let config = read_config(&model_dir)?;
        let kind = model_kind(&config, &model_dir)?;
        let held = checkpoint::read_shapes(&model_dir)?;
        if let Some(wanted) = wanted_shapes(kind, &model_dir, self.reader.stream())?
            && let Some(mismatch) = checkpoint::mismatch(&wanted, &held)
        {
            let dir = model_dir.display();
            return Err(bad_model(format!("the checkpoint in {dir} does not fit {kind:?}: {mismatch}")));
        }

        let model = LoadedModel::load(&model_dir, context.stream(), self.reader.stream())
            .map_err(|error| load_error(&model_dir, error))?;
        let loaded = Loaded {
            model_type: model.model_type().to_owned(),
            vocab_size: vocab_size(&config)?,
            eos_ids: model.eos_token_ids().to_vec(),
            tensors: held.len(),
            device: device_of(context.stream())?,
            load_s: started.elapsed().as_secs_f64(),
        };
        let fault = self.fault.clone();
        Ok((LoadedSafemlxLm { model, context, vocab_size: loaded.vocab_size, fault }, loaded))
    }

    fn op(&self, request: &Op) -> Result<OpDone, EngineError> {
        let context = ExecutionContext::new(device_for(request.device)?);
        common::op(request, context.stream())
    }

    fn memory(&self) -> Result<Memory, EngineError> {
        common::memory()
    }
}

/// A loaded model and the stream that it runs on.
pub(crate) struct LoadedSafemlxLm {
    model: LoadedModel,
    context: ExecutionContext,
    vocab_size: usize,
    fault: Fault,
}

impl Model for LoadedSafemlxLm {
    fn tokenize(&mut self, request: &Tokenize) -> Result<Tokens, EngineError> {
        let rendered = match request {
            Tokenize::Text { text } => text.clone(),
            Tokenize::Chat { user } => {
                let chat = vec![json!({"role": "user", "content": user})];
                self.model
                    .apply_chat_template_json([chat], None, true)
                    .map_err(|why| failed(format!("cannot render the chat template: {why}")))?
                    .ok_or_else(|| {
                        error(EngineErrorKind::NoTemplate, "the model folder has no chat template")
                    })?
            }
        };
        let ids = self
            .model
            .encode(&rendered, false)
            .map_err(|why| failed(format!("cannot encode {} bytes of text: {why}", rendered.len())))?;
        Ok(Tokens { ids, rendered })
    }

    fn detokenize(&self, ids: &[u32]) -> Result<String, EngineError> {
        self.model.decode(ids, false).map_err(|why| failed(format!("cannot decode {} ids: {why}", ids.len())))
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

impl LoadedSafemlxLm {
    /// Hands the library's own token loop on a fresh cache to `take`, ids as they become known.
    fn own_loop<T>(
        &mut self,
        request: &Time,
        take: impl FnOnce(&mut dyn Iterator<Item = Result<u32, EngineError>>) -> Result<T, EngineError>,
    ) -> Result<T, EngineError> {
        let prompt = prompt_array(&request.prompt_ids)?;
        let parts = [InputPart::text_token_ids(&prompt)];
        let mut cache = self.model.new_cache();
        let stream = self.context.stream();
        let tokens =
            self.model.generate_input_with_cache(&mut cache, 0.0, ModelInput::new(&parts), None, stream);
        take(&mut tokens.take(request.tokens).map(|token| {
            // Reading the id waits for the step, as printing it would.
            token.and_then(|token| token.try_item::<u32>(stream)).map_err(exception)
        }))
    }
}

/// The prompt as the library takes it.
fn prompt_array(prompt: &[u32]) -> Result<Array, EngineError> {
    let length = i32::try_from(prompt.len())
        .map_err(|_| failed(format!("a prompt of {} ids is too long for MLX", prompt.len())))?;
    Ok(Array::from_slice(prompt, &[1, length]))
}

impl Rows for LoadedSafemlxLm {
    fn run(&mut self, pieces: &[&[u32]], choose: &mut dyn FnMut(&[f32]) -> Next) -> Result<(), EngineError> {
        let (last, earlier) = pieces.split_last().ok_or_else(|| failed("a prompt has no pieces"))?;
        let mut cache = self.model.new_cache();
        for piece in earlier {
            let piece = prompt_array(piece)?;
            let parts = [InputPart::text_token_ids(&piece)];
            let stream = self.context.stream();
            let logits = self
                .model
                .prefill_input_with_cache(ModelInput::new(&parts), &mut cache, stream)
                .and_then(|logits| evaluated_row(&logits, self.vocab_size, stream))
                .map_err(exception)?;
            choose(&logits);
        }
        let prompt = prompt_array(last)?;
        let parts = [InputPart::text_token_ids(&prompt)];
        let stopped = Cell::new(false);
        let sampler = ShowRow { choose, stopped: &stopped, vocab_size: self.vocab_size };
        let tokens = self.model.generate_input_with_cache_sampler(
            &mut cache,
            0.0,
            ModelInput::new(&parts),
            None,
            self.context.stream(),
            sampler,
        );
        for token in tokens {
            token.map_err(exception)?;
            if stopped.get() {
                break;
            }
        }
        Ok(())
    }
}

/// A sampler that shows each evaluated row and feeds back whatever it is told.
struct ShowRow<'a> {
    choose: &'a mut dyn FnMut(&[f32]) -> Next,
    stopped: &'a Cell<bool>,
    vocab_size: usize,
}

impl Sampler for ShowRow<'_> {
    fn sample(
        &mut self,
        logits: &Array,
        _temperature: f32,
        _random: Option<&mut RandomState>,
        stream: &Stream,
    ) -> Result<Array, Exception> {
        let row = evaluated_row(logits, self.vocab_size, stream)?;
        let id = match (self.choose)(&row) {
            Next::Feed(id) => id,
            Next::Stop => {
                self.stopped.set(true);
                0
            }
        };
        Ok(Array::from_slice(&[id], &[1]))
    }
}

/// A step's logits on the host.
fn evaluated_row(logits: &Array, vocab_size: usize, stream: &Stream) -> Result<Vec<f32>, Exception> {
    let row = on_host(logits, stream)?;
    if row.len() != vocab_size {
        let made = row.len();
        return Err(Exception::custom(format!("a step made {made} logits for a vocabulary of {vocab_size}")));
    }
    Ok(row)
}

fn model_kind(config: &Value, model_dir: &Path) -> Result<ModelKind, EngineError> {
    match check_model_config(config) {
        ModelConfigSupport::Supported(supported) => Ok(supported.kind),
        ModelConfigSupport::Unsupported { reason } => {
            // For an architecture that the library knows, what it cannot take is this configuration.
            let known = matches!(config["model_type"].as_str(), None | Some("llama" | "qwen3"));
            let kind = if known { EngineErrorKind::BadModel } else { EngineErrorKind::UnsupportedModel };
            Err(error(kind, format!("cannot load {}: {reason}", model_dir.display())))
        }
    }
}

/// The tensors that a model of the configured size wants; `None` for the architectures whose loader in the library is
/// strict itself. The loaders of the others skip what they do not find, and keep whatever shape a file has.
fn wanted_shapes(kind: ModelKind, model_dir: &Path, stream: &Stream) -> Result<Option<Shapes>, EngineError> {
    let refuse = |error| load_error(model_dir, error);
    let lay_out = |why: Exception| {
        let message = format!("cannot make the model configured in {}: {}", model_dir.display(), why.what());
        error(EngineErrorKind::UnsupportedModel, message)
    };
    match kind {
        ModelKind::Llama => {
            let args = llama::get_llama_model_args(model_dir).map_err(refuse)?;
            let model = llama::Model::new(args, stream).map_err(lay_out)?;
            Ok(Some(parameter_shapes(&model)))
        }
        ModelKind::Qwen3 => {
            let args = qwen3::get_qwen3_model_args(model_dir).map_err(refuse)?;
            let model = qwen3::Model::new(args, stream).map_err(lay_out)?;
            Ok(Some(parameter_shapes(&model)))
        }
        // Newer revisions of the crate know more kinds under the same version, so that they cannot be listed.
        _ => Ok(None),
    }
}

/// The shapes of an unloaded model's parameters, which occupy no memory yet.
fn parameter_shapes(model: &impl ModuleParameters) -> Shapes {
    let parameters = model.parameters().flatten();
    parameters
        .into_iter()
        .map(|(name, array)| {
            let shape = array.shape().iter().map(|size| usize::try_from(*size).unwrap_or(0)).collect();
            // A quantized layer keeps its packed weights one level deeper than files do.
            (name.replace(".inner.", "."), shape)
        })
        .collect()
}

fn load_error(model_dir: &Path, why: Error) -> EngineError {
    let dir = model_dir.display();
    match why {
        Error::UnsupportedModelType(_) | Error::UnsupportedArchitecture(_) => {
            error(EngineErrorKind::UnsupportedModel, format!("cannot load {dir}: {why}"))
        }
        Error::StrictLoadValidation { missing, unused } => bad_model(format!(
            "the checkpoint in {dir} does not fit the model: {} missing ({}), {} extra or misshapen ({})",
            missing.len(),
            checkpoint::list_names(&missing),
            unused.len(),
            checkpoint::list_names(&unused)
        )),
        Error::Exception(why) | Error::LoadWeights(safemlx::error::IoError::Exception(why)) => {
            let EngineError { kind, message } = exception(why);
            error(kind, format!("cannot load {dir}: {message}"))
        }
        Error::Io(_) | Error::Deserialize(_) | Error::LoadWeights(_) | Error::Template(_) => {
            bad_model(format!("cannot load {dir}: {why}"))
        }
        // What is boxed comes from reading tokenizer.json.
        Error::Other(why) => bad_model(format!("cannot load the tokenizer in {dir}: {why}")),
        _ => failed(format!("cannot load {dir}: {why}")),
    }
}
