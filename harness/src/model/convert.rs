//! Turns a GGUF file of the llama architecture into what a Hugging Face folder holds: configuration, tokenizer and
//! weights in f32. Decides everything before a byte is written, and refuses what it does not know.

use std::borrow::Cow;
use std::collections::{BTreeSet, HashMap};

use safetensors::{Dtype, View};
use serde_json::{Value, json};

use super::{
    ModelError,
    gguf::{Gguf, GgufTensor, MetaValue},
};

/// Raised when equal GGUF files start to give other folders.
pub const CONVERTER_VERSION: u32 = 1;

/// Ids with these texts end a reply, whatever the metadata names as the one end.
const ENDS_OF_REPLY: [&str; 2] = ["<|im_end|>", "<|endoftext|>"];

/// Token types of GGUF: special tokens, and ordinary tokens that are matched before all merges.
const TYPE_CONTROL: i64 = 3;
const TYPE_USER_DEFINED: i64 = 4;

/// Everything that a Hugging Face folder holds.
#[derive(Debug)]
pub struct Conversion<'a> {
    /// `config.json`.
    pub config: Value,
    /// `generation_config.json`.
    pub generation_config: Value,
    /// `tokenizer.json`.
    pub tokenizer: Value,
    /// `tokenizer_config.json`, with the chat template where the file has one.
    pub tokenizer_config: Value,
    /// The weights, unpacked when they are asked for.
    pub tensors: Vec<ConvertedTensor<'a>>,
    /// What a person wants to know about the model in one line.
    pub summary: String,
    /// The length of a logits row.
    pub vocab_size: usize,
    /// The ids that end a reply.
    pub eos_ids: Vec<u32>,
}

/// One tensor under its new name.
#[derive(Debug, Clone, PartialEq)]
pub struct ConvertedTensor<'a> {
    /// The Hugging Face name.
    pub name: String,
    shape: Vec<usize>,
    source: GgufTensor<'a>,
    rows: RowOrder,
}

/// In which order a tensor's rows are taken.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum RowOrder {
    AsStored,
    /// llama.cpp turns neighbouring rows of a head by RoPE, Hugging Face rows that are half a head apart; its
    /// converter interleaves the two halves of every head, and this takes them apart again.
    HalvesOfHeads {
        head_dim: usize,
    },
}

impl RowOrder {
    /// Which stored row becomes row `row`.
    fn source_row(self, row: usize) -> usize {
        match self {
            Self::AsStored => row,
            Self::HalvesOfHeads { head_dim } => {
                let (head, place) = (row / head_dim, row % head_dim);
                let (half, pair) = (place / (head_dim / 2), place % (head_dim / 2));
                head * head_dim + 2 * pair + half
            }
        }
    }
}

impl View for ConvertedTensor<'_> {
    fn dtype(&self) -> Dtype {
        Dtype::F32
    }

    fn shape(&self) -> &[usize] {
        &self.shape
    }

    fn data(&self) -> Cow<'_, [u8]> {
        let mut out = Vec::with_capacity(self.data_len());
        for row in 0..self.source.rows {
            self.source.append_row_f32_le(self.rows.source_row(row), &mut out);
        }
        Cow::Owned(out)
    }

    fn data_len(&self) -> usize {
        self.source.rows * self.source.columns * 4
    }
}

/// Works out the folder for a GGUF file.
///
/// # Errors
/// [`ModelError::Gguf`] when something is missing or contradicts itself, [`ModelError::Unsupported`] when the model
/// is of a kind that is not known here.
pub fn convert<'a>(gguf: &Gguf<'a>) -> Result<Conversion<'a>, ModelError> {
    let meta = Meta { gguf };
    let shape = Shape::read(meta)?;
    let vocabulary = Vocabulary::read(meta)?;
    let tensors = convert_tensors(gguf, &shape, vocabulary.tokens.len())?;
    let eos_ids = vocabulary.eos_ids();
    let tied = if gguf.tensor("output.weight").is_some() { Head::Own } else { Head::Tied };
    Ok(Conversion {
        config: config(&shape, &vocabulary, &eos_ids, tied),
        generation_config: json!({
            "bos_token_id": vocabulary.bos,
            "eos_token_id": eos_ids,
            "pad_token_id": vocabulary.pad,
        }),
        tokenizer: tokenizer(&vocabulary),
        tokenizer_config: tokenizer_config(&shape, &vocabulary),
        tensors,
        summary: format!(
            "{}: llama, {} layers of {}, {} heads of {} ({} for keys and values), vocabulary {}",
            meta.text("general.name")?.unwrap_or("unnamed"),
            shape.layers,
            shape.hidden,
            shape.heads,
            shape.head_dim,
            shape.kv_heads,
            vocabulary.tokens.len(),
        ),
        vocab_size: vocabulary.tokens.len(),
        eos_ids,
    })
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Head {
    Tied,
    Own,
}

/// Typed access to the metadata.
#[derive(Clone, Copy)]
struct Meta<'g, 'a> {
    gguf: &'g Gguf<'a>,
}

impl<'g> Meta<'g, '_> {
    fn damaged(self, problem: String) -> ModelError {
        ModelError::Gguf { origin: self.gguf.origin.clone(), problem }
    }

    fn unsupported(self, problem: String) -> ModelError {
        ModelError::Unsupported { origin: self.gguf.origin.clone(), problem }
    }

    fn text(self, key: &str) -> Result<Option<&'g str>, ModelError> {
        match self.gguf.meta(key) {
            None => Ok(None),
            Some(MetaValue::Text(text)) => Ok(Some(text)),
            Some(other) => Err(self.damaged(format!("metadata `{key}` is {}, expected a text", kind(other)))),
        }
    }

    fn needed_text(self, key: &str) -> Result<&'g str, ModelError> {
        self.text(key)?.ok_or_else(|| self.damaged(format!("metadata `{key}` is missing")))
    }

    fn integer(self, key: &str) -> Result<Option<usize>, ModelError> {
        let number = match self.gguf.meta(key) {
            None => return Ok(None),
            Some(MetaValue::Unsigned(n)) => usize::try_from(*n).ok(),
            Some(MetaValue::Signed(n)) => usize::try_from(*n).ok(),
            Some(_) => None,
        };
        // Engines hold sizes in 32 bits.
        match number.filter(|n| *n <= i32::MAX as usize) {
            Some(n) => Ok(Some(n)),
            None => Err(self.damaged(format!("metadata `{key}` is no size"))),
        }
    }

    fn size(self, key: &str) -> Result<usize, ModelError> {
        match self.integer(key)? {
            Some(0) => Err(self.damaged(format!("metadata `{key}` is 0"))),
            Some(n) => Ok(n),
            None => Err(self.damaged(format!("metadata `{key}` is missing"))),
        }
    }

    fn float(self, key: &str) -> Result<Option<f64>, ModelError> {
        let number = match self.gguf.meta(key) {
            None => return Ok(None),
            // By way of the shortest decimal form: 1e-5, not 9.99999974e-6.
            Some(MetaValue::Float32(x)) => x.to_string().parse().ok(),
            Some(MetaValue::Float64(x)) => Some(*x),
            Some(_) => None,
        };
        match number.filter(|x: &f64| x.is_finite() && *x > 0.0) {
            Some(x) => Ok(Some(x)),
            None => Err(self.damaged(format!("metadata `{key}` is no positive number"))),
        }
    }

    fn list(self, key: &str) -> Result<&'g [MetaValue], ModelError> {
        match self.gguf.meta(key) {
            Some(MetaValue::List(list)) => Ok(list),
            Some(other) => Err(self.damaged(format!("metadata `{key}` is {}, expected a list", kind(other)))),
            None => Err(self.damaged(format!("metadata `{key}` is missing"))),
        }
    }

    fn texts(self, key: &str) -> Result<Vec<&'g str>, ModelError> {
        self.list(key)?
            .iter()
            .map(|value| match value {
                MetaValue::Text(text) => Ok(text.as_str()),
                other => Err(self.damaged(format!("metadata `{key}` holds {}, expected texts", kind(other)))),
            })
            .collect()
    }
}

fn kind(value: &MetaValue) -> &'static str {
    match value {
        MetaValue::Unsigned(_) | MetaValue::Signed(_) => "an integer",
        MetaValue::Float32(_) | MetaValue::Float64(_) => "a float",
        MetaValue::Bool(_) => "a truth value",
        MetaValue::Text(_) => "a text",
        MetaValue::List(_) => "a list",
    }
}

struct Shape {
    layers: usize,
    hidden: usize,
    intermediate: usize,
    heads: usize,
    kv_heads: usize,
    head_dim: usize,
    context: usize,
    rms_norm_eps: f64,
    rope_theta: f64,
}

impl Shape {
    fn read(meta: Meta<'_, '_>) -> Result<Self, ModelError> {
        let architecture = meta.needed_text("general.architecture")?;
        if architecture != "llama" {
            return Err(meta.unsupported(format!("its architecture is `{architecture}`")));
        }
        if meta.integer("llama.expert_count")?.unwrap_or(0) > 0 {
            return Err(meta.unsupported("it is a mixture of experts".to_owned()));
        }
        if let Some(scaling) = meta.text("llama.rope.scaling.type")?.filter(|s| *s != "none") {
            return Err(meta.unsupported(format!("its RoPE is scaled (`{scaling}`)")));
        }
        let (hidden, heads) =
            (meta.size("llama.embedding_length")?, meta.size("llama.attention.head_count")?);
        let kv_heads = meta.integer("llama.attention.head_count_kv")?.unwrap_or(heads);
        let head_dim = meta.integer("llama.attention.key_length")?.unwrap_or(hidden / heads);
        if kv_heads == 0 || !heads.is_multiple_of(kv_heads) || head_dim == 0 || !head_dim.is_multiple_of(2) {
            return Err(
                meta.damaged(format!("{heads} heads of {head_dim} with {kv_heads} for keys are impossible"))
            );
        }
        let turned = meta.integer("llama.rope.dimension_count")?.unwrap_or(head_dim);
        if turned != head_dim {
            return Err(meta.unsupported(format!("its RoPE turns {turned} of {head_dim} dimensions")));
        }
        Ok(Self {
            layers: meta.size("llama.block_count")?,
            hidden,
            intermediate: meta.size("llama.feed_forward_length")?,
            heads,
            kv_heads,
            head_dim,
            context: meta.size("llama.context_length")?,
            rms_norm_eps: meta.float("llama.attention.layer_norm_rms_epsilon")?.ok_or_else(|| {
                meta.damaged("metadata `llama.attention.layer_norm_rms_epsilon` is missing".to_owned())
            })?,
            // What llama.cpp takes for a file that does not say.
            rope_theta: meta.float("llama.rope.freq_base")?.unwrap_or(10_000.0),
        })
    }
}

struct Vocabulary<'g> {
    tokens: Vec<&'g str>,
    /// Ids that are matched before everything else, and whether they are special.
    added: Vec<(u32, Special)>,
    merges: Vec<(&'g str, &'g str)>,
    digits: Digits,
    bos: Option<u32>,
    eos: Option<u32>,
    unknown: Option<u32>,
    pad: Option<u32>,
    chat_template: Option<&'g str>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Special {
    Yes,
    No,
}

/// How digits are split before merging.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Digits {
    /// Every digit by itself.
    Alone,
    /// As GPT-2's own expression does it.
    Grouped,
}

impl<'g> Vocabulary<'g> {
    fn read(meta: Meta<'g, '_>) -> Result<Self, ModelError> {
        let model = meta.needed_text("tokenizer.ggml.model")?;
        if model != "gpt2" {
            return Err(meta.unsupported(format!("its tokenizer is of the kind `{model}`")));
        }
        let digits = match meta.text("tokenizer.ggml.pre")?.unwrap_or("gpt-2") {
            "smollm" => Digits::Alone,
            "gpt-2" => Digits::Grouped,
            other => return Err(meta.unsupported(format!("its tokenizer splits text by the rule `{other}`"))),
        };
        let tokens = meta.texts("tokenizer.ggml.tokens")?;
        let ids: HashMap<&str, usize> = tokens.iter().enumerate().map(|(id, token)| (*token, id)).collect();
        if ids.len() != tokens.len() || tokens.is_empty() || u32::try_from(tokens.len()).is_err() {
            return Err(meta.damaged(format!(
                "its {} tokens have {} different texts",
                tokens.len(),
                ids.len()
            )));
        }
        let merges = meta
            .texts("tokenizer.ggml.merges")?
            .into_iter()
            .map(|merge| {
                merge
                    .split_once(' ')
                    .filter(|(a, b)| [*a, *b, &format!("{a}{b}")].iter().all(|part| ids.contains_key(part)))
                    .ok_or_else(|| {
                        meta.damaged(format!("merge `{merge}` does not join two tokens into a third"))
                    })
            })
            .collect::<Result<_, _>>()?;
        let id = |key: &str| match meta.integer(key)? {
            Some(id) if id < tokens.len() => Ok(Some(id as u32)),
            Some(id) => {
                Err(meta.damaged(format!("metadata `{key}` is {id}, and there are {} tokens", tokens.len())))
            }
            None => Ok(None),
        };
        Ok(Self {
            added: added_tokens(meta, tokens.len())?,
            merges,
            digits,
            bos: id("tokenizer.ggml.bos_token_id")?,
            eos: id("tokenizer.ggml.eos_token_id")?,
            unknown: id("tokenizer.ggml.unknown_token_id")?,
            pad: id("tokenizer.ggml.padding_token_id")?,
            chat_template: meta.text("tokenizer.chat_template")?,
            tokens,
        })
    }

    fn text(&self, id: Option<u32>) -> Option<&'g str> {
        id.map(|id| self.tokens[id as usize])
    }

    /// The declared end first, then the other special tokens that end a reply.
    fn eos_ids(&self) -> Vec<u32> {
        let others = self.added.iter().filter(|(id, special)| {
            *special == Special::Yes
                && Some(*id) != self.eos
                && ENDS_OF_REPLY.contains(&self.tokens[*id as usize])
        });
        self.eos.into_iter().chain(others.map(|(id, _)| *id)).collect()
    }
}

fn added_tokens(meta: Meta<'_, '_>, tokens: usize) -> Result<Vec<(u32, Special)>, ModelError> {
    let key = "tokenizer.ggml.token_type";
    let types = meta.list(key)?;
    if types.len() != tokens {
        return Err(meta.damaged(format!("there are {tokens} tokens and {} token types", types.len())));
    }
    let mut added = Vec::new();
    for (id, kind) in (0_u32..).zip(types) {
        match kind {
            MetaValue::Signed(TYPE_CONTROL) => added.push((id, Special::Yes)),
            MetaValue::Signed(TYPE_USER_DEFINED) => added.push((id, Special::No)),
            MetaValue::Signed(_) => {}
            other => return Err(meta.damaged(format!("metadata `{key}` holds {other:?}, expected integers"))),
        }
    }
    Ok(added)
}

fn convert_tensors<'a>(
    gguf: &Gguf<'a>,
    shape: &Shape,
    vocab: usize,
) -> Result<Vec<ConvertedTensor<'a>>, ModelError> {
    let meta = Meta { gguf };
    let mut used = BTreeSet::new();
    let mut converted = Vec::new();
    let mut take = |from: &str, to: String, wanted: Vec<usize>, rows: RowOrder| {
        let source = gguf.tensor(from).ok_or_else(|| meta.damaged(format!("tensor `{from}` is missing")))?;
        let found = match source.dimensions {
            1 => vec![source.columns],
            _ => vec![source.rows, source.columns],
        };
        if found != wanted {
            return Err(meta.damaged(format!("tensor `{from}` has shape {found:?}, expected {wanted:?}")));
        }
        used.insert(from.to_owned());
        converted.push(ConvertedTensor { name: to, shape: wanted, source, rows });
        Ok(())
    };

    let Shape { hidden, intermediate, head_dim, .. } = *shape;
    let (q, kv) = (shape.heads * head_dim, shape.kv_heads * head_dim);
    let turned = RowOrder::HalvesOfHeads { head_dim };
    take(
        "token_embd.weight",
        "model.embed_tokens.weight".to_owned(),
        vec![vocab, hidden],
        RowOrder::AsStored,
    )?;
    for layer in 0..shape.layers {
        let parts = [
            ("attn_norm", "input_layernorm", vec![hidden], RowOrder::AsStored),
            ("attn_q", "self_attn.q_proj", vec![q, hidden], turned),
            ("attn_k", "self_attn.k_proj", vec![kv, hidden], turned),
            ("attn_v", "self_attn.v_proj", vec![kv, hidden], RowOrder::AsStored),
            ("attn_output", "self_attn.o_proj", vec![hidden, q], RowOrder::AsStored),
            ("ffn_norm", "post_attention_layernorm", vec![hidden], RowOrder::AsStored),
            ("ffn_gate", "mlp.gate_proj", vec![intermediate, hidden], RowOrder::AsStored),
            ("ffn_up", "mlp.up_proj", vec![intermediate, hidden], RowOrder::AsStored),
            ("ffn_down", "mlp.down_proj", vec![hidden, intermediate], RowOrder::AsStored),
        ];
        for (from, to, wanted, rows) in parts {
            take(
                &format!("blk.{layer}.{from}.weight"),
                format!("model.layers.{layer}.{to}.weight"),
                wanted,
                rows,
            )?;
        }
    }
    take("output_norm.weight", "model.norm.weight".to_owned(), vec![hidden], RowOrder::AsStored)?;
    if gguf.tensor("output.weight").is_some() {
        take("output.weight", "lm_head.weight".to_owned(), vec![vocab, hidden], RowOrder::AsStored)?;
    }
    match gguf.tensor_names().find(|name| !used.contains(*name)) {
        Some(name) => Err(meta.unsupported(format!("tensor `{name}` has no place in a llama model"))),
        None => Ok(converted),
    }
}

fn config(shape: &Shape, vocabulary: &Vocabulary<'_>, eos_ids: &[u32], head: Head) -> Value {
    json!({
        "architectures": ["LlamaForCausalLM"],
        "model_type": "llama",
        "hidden_size": shape.hidden,
        "intermediate_size": shape.intermediate,
        "num_hidden_layers": shape.layers,
        "num_attention_heads": shape.heads,
        "num_key_value_heads": shape.kv_heads,
        "head_dim": shape.head_dim,
        "vocab_size": vocabulary.tokens.len(),
        "max_position_embeddings": shape.context,
        "rms_norm_eps": shape.rms_norm_eps,
        "rope_theta": shape.rope_theta,
        "rope_scaling": null,
        "tie_word_embeddings": head == Head::Tied,
        "attention_bias": false,
        "mlp_bias": false,
        "hidden_act": "silu",
        "torch_dtype": "float32",
        "bos_token_id": vocabulary.bos,
        "eos_token_id": eos_ids,
        "pad_token_id": vocabulary.pad,
    })
}

fn tokenizer(vocabulary: &Vocabulary<'_>) -> Value {
    let byte_level = json!({
        "type": "ByteLevel", "add_prefix_space": false, "trim_offsets": true, "use_regex": true,
    });
    let pre_tokenizer = match vocabulary.digits {
        Digits::Grouped => byte_level.clone(),
        Digits::Alone => json!({
            "type": "Sequence",
            "pretokenizers": [{ "type": "Digits", "individual_digits": true }, byte_level],
        }),
    };
    let added: Vec<Value> = vocabulary
        .added
        .iter()
        .map(|(id, special)| {
            json!({
                "id": id, "content": vocabulary.tokens[*id as usize], "single_word": false, "lstrip": false,
                "rstrip": false, "normalized": false, "special": *special == Special::Yes,
            })
        })
        .collect();
    let ids: serde_json::Map<String, Value> =
        vocabulary.tokens.iter().enumerate().map(|(id, token)| ((*token).to_owned(), json!(id))).collect();
    json!({
        "version": "1.0",
        "truncation": null,
        "padding": null,
        "added_tokens": added,
        "normalizer": null,
        "pre_tokenizer": pre_tokenizer,
        "post_processor": null,
        "decoder": byte_level,
        "model": {
            "type": "BPE",
            "dropout": null,
            "unk_token": null,
            "continuing_subword_prefix": null,
            "end_of_word_suffix": null,
            "fuse_unk": false,
            "byte_fallback": false,
            "ignore_merges": false,
            "vocab": ids,
            "merges": vocabulary.merges,
        },
    })
}

fn tokenizer_config(shape: &Shape, vocabulary: &Vocabulary<'_>) -> Value {
    let mut config = json!({
        // The general class takes tokenizer.json as it is; a model's own class may rebuild it by rules of its own.
        "tokenizer_class": "PreTrainedTokenizerFast",
        "model_max_length": shape.context,
        "add_prefix_space": false,
        "clean_up_tokenization_spaces": false,
        "bos_token": vocabulary.text(vocabulary.bos),
        "eos_token": vocabulary.text(vocabulary.eos),
        "unk_token": vocabulary.text(vocabulary.unknown),
        "pad_token": vocabulary.text(vocabulary.pad),
    });
    if let Some(template) = vocabulary.chat_template {
        config["chat_template"] = json!(template);
    }
    config
}

#[cfg(test)]
pub(crate) use tests::little as little_gguf;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::gguf::fixture::{self, Tensor};

    type Metadata = Vec<(&'static str, MetaValue)>;

    fn text(text: &str) -> MetaValue {
        MetaValue::Text(text.to_owned())
    }

    fn texts(texts: &[&str]) -> MetaValue {
        MetaValue::List(texts.iter().map(|t| text(t)).collect())
    }

    // One layer of 4, two heads of 4 (so queries are wider than the layer), one for keys, MLP of 6, five tokens.
    fn metadata() -> Metadata {
        vec![
            ("general.architecture", text("llama")),
            ("general.name", text("Little")),
            ("llama.block_count", MetaValue::Unsigned(1)),
            ("llama.context_length", MetaValue::Unsigned(64)),
            ("llama.embedding_length", MetaValue::Unsigned(4)),
            ("llama.feed_forward_length", MetaValue::Unsigned(6)),
            ("llama.attention.head_count", MetaValue::Unsigned(2)),
            ("llama.attention.head_count_kv", MetaValue::Unsigned(1)),
            ("llama.attention.key_length", MetaValue::Unsigned(4)),
            ("llama.attention.layer_norm_rms_epsilon", MetaValue::Float32(1e-5)),
            ("llama.rope.freq_base", MetaValue::Float32(100_000.0)),
            ("tokenizer.ggml.model", text("gpt2")),
            ("tokenizer.ggml.pre", text("smollm")),
            ("tokenizer.ggml.tokens", texts(&["<|endoftext|>", "<|im_end|>", "a", "b", "ab"])),
            ("tokenizer.ggml.token_type", MetaValue::List([3, 3, 1, 1, 1].map(MetaValue::Signed).to_vec())),
            ("tokenizer.ggml.merges", texts(&["a b"])),
            ("tokenizer.ggml.eos_token_id", MetaValue::Unsigned(1)),
            ("tokenizer.chat_template", text("{{ messages }}")),
        ]
    }

    fn tensors() -> Vec<Tensor> {
        let tensor = |name: &str, columns: usize, rows: usize| Tensor {
            name: name.to_owned(),
            shape: if rows == 1 { vec![columns as u64] } else { vec![columns as u64, rows as u64] },
            code: 0,
            // Every number says its row.
            bytes: (0..rows * columns).flat_map(|i| ((i / columns) as f32).to_le_bytes()).collect(),
        };
        vec![
            tensor("token_embd.weight", 4, 5),
            tensor("blk.0.attn_norm.weight", 4, 1),
            tensor("blk.0.attn_q.weight", 4, 8),
            tensor("blk.0.attn_k.weight", 4, 4),
            tensor("blk.0.attn_v.weight", 4, 4),
            tensor("blk.0.attn_output.weight", 8, 4),
            tensor("blk.0.ffn_norm.weight", 4, 1),
            tensor("blk.0.ffn_gate.weight", 4, 6),
            tensor("blk.0.ffn_up.weight", 4, 6),
            tensor("blk.0.ffn_down.weight", 6, 4),
            tensor("output_norm.weight", 4, 1),
        ]
    }

    /// The bytes of a whole, tiny model.
    pub(crate) fn little() -> Vec<u8> {
        changed(|_, _| {})
    }

    fn changed(change: impl FnOnce(&mut Metadata, &mut Vec<Tensor>)) -> Vec<u8> {
        let (mut metadata, mut tensors) = (metadata(), tensors());
        change(&mut metadata, &mut tensors);
        fixture::gguf(&metadata, &tensors)
    }

    fn set(metadata: &mut Metadata, key: &str, value: MetaValue) {
        metadata.iter_mut().find(|(k, _)| *k == key).unwrap().1 = value;
    }

    #[test]
    fn a_small_file_becomes_a_whole_folder() {
        let bytes = little();
        let gguf = Gguf::parse("little", &bytes).unwrap();
        let made = convert(&gguf).unwrap();
        assert_eq!(made.config["rms_norm_eps"], json!(1e-5));
        assert_eq!(made.config["rope_theta"], json!(100_000.0));
        assert_eq!(made.config["tie_word_embeddings"], json!(true));
        assert_eq!(made.eos_ids, [1, 0]);
        assert_eq!(made.tokenizer["model"]["merges"], json!([["a", "b"]]));
        assert_eq!(made.tokenizer["pre_tokenizer"]["pretokenizers"][0]["type"], "Digits");
        assert_eq!(made.tokenizer["added_tokens"].as_array().unwrap().len(), 2);
        assert_eq!(made.tokenizer_config["chat_template"], "{{ messages }}");
        assert_eq!(made.tokenizer_config["eos_token"], "<|im_end|>");
        assert_eq!(made.tensors.len(), 11);
    }

    #[test]
    fn halves_of_query_and_key_heads_are_taken_apart_and_nothing_else_moves() {
        let bytes = little();
        let gguf = Gguf::parse("little", &bytes).unwrap();
        let rows = |name: &str| {
            let made = convert(&gguf).unwrap();
            let tensor = made.tensors.iter().find(|t| t.name.contains(name)).unwrap();
            let data = tensor.data();
            data.chunks_exact(4 * tensor.source.columns)
                .map(|row| f32::from_le_bytes(row[..4].try_into().unwrap()) as usize)
                .collect::<Vec<_>>()
        };
        assert_eq!(rows("q_proj"), [0, 2, 1, 3, 4, 6, 5, 7]);
        assert_eq!(rows("k_proj"), [0, 2, 1, 3]);
        assert_eq!(rows("v_proj"), [0, 1, 2, 3]);
    }

    #[test]
    fn an_own_head_is_kept() {
        let bytes = changed(|_, tensors| {
            let bytes = vec![0; 80];
            tensors.push(Tensor { name: "output.weight".to_owned(), shape: vec![4, 5], code: 0, bytes });
        });
        let gguf = Gguf::parse("little", &bytes).unwrap();
        let made = convert(&gguf).unwrap();
        assert_eq!(made.config["tie_word_embeddings"], json!(false));
        assert!(made.tensors.iter().any(|t| t.name == "lm_head.weight"));
    }

    #[test]
    fn what_is_wrong_or_unknown_is_named() {
        type Change = fn(&mut Metadata, &mut Vec<Tensor>);
        let cases: [(Change, &str); 12] = [
            (|m, _| set(m, "general.architecture", text("mamba")), "its architecture is `mamba`"),
            (|m, _| m.retain(|(k, _)| *k != "llama.block_count"), "metadata `llama.block_count` is missing"),
            (
                |m, _| set(m, "llama.block_count", MetaValue::Unsigned(2)),
                "tensor `blk.1.attn_norm.weight` is missing",
            ),
            (
                |m, _| set(m, "llama.block_count", MetaValue::Unsigned(u64::MAX)),
                "`llama.block_count` is no size",
            ),
            (|m, _| set(m, "llama.attention.head_count_kv", MetaValue::Unsigned(0)), "are impossible"),
            (|m, _| set(m, "tokenizer.ggml.pre", text("qwen2")), "by the rule `qwen2`"),
            (|m, _| set(m, "tokenizer.ggml.merges", texts(&["a z"])), "merge `a z` does not join"),
            (
                |m, _| set(m, "tokenizer.ggml.eos_token_id", MetaValue::Unsigned(9)),
                "is 9, and there are 5 tokens",
            ),
            (|m, _| set(m, "tokenizer.ggml.tokens", texts(&["a", "a", "b", "c", "d"])), "4 different texts"),
            (|_, t| drop(t.remove(4)), "tensor `blk.0.attn_v.weight` is missing"),
            (
                |_, t| t[2].shape = vec![8, 4],
                "tensor `blk.0.attn_q.weight` has shape [4, 8], expected [8, 4]",
            ),
            (|_, t| t[0].name = "rope_freqs.weight".to_owned(), "tensor `token_embd.weight` is missing"),
        ];
        for (change, expected) in cases {
            let bytes = changed(change);
            let gguf = Gguf::parse("little", &bytes).unwrap();
            let error = convert(&gguf).unwrap_err();
            assert!(error.to_string().contains(expected), "{error}");
            assert!(error.hint().is_some());
        }
    }

    #[test]
    fn a_tensor_without_a_place_is_refused() {
        let bytes = changed(|_, tensors| {
            tensors.push(Tensor {
                name: "rope_freqs.weight".to_owned(),
                shape: vec![2],
                code: 0,
                bytes: vec![0; 8],
            });
        });
        let gguf = Gguf::parse("little", &bytes).unwrap();
        assert!(convert(&gguf).unwrap_err().to_string().contains("`rope_freqs.weight` has no place"));
    }
}
