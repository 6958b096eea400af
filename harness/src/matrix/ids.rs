//! The prompts of seeded ids, and what a model folder says about ids. Every engine at a cell gets the same ids, because
//! they depend on the folder and never on what an engine believes about it.

use std::{
    collections::BTreeSet,
    path::{Path, PathBuf},
};

use serde::Deserialize;
use serde_json::Value;
use sha2::{Digest, Sha256};

use crate::tools::file::{self, Most};

/// Begins every seeded prompt; changing it changes every recorded figure.
const PROMPT_SEED: u64 = 0x5eed_0f1d_5a11_0001;

/// What a model folder says about ids.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct FolderIds {
    /// The length of a logits row.
    pub vocab_size: usize,
    /// Ids that end a text.
    pub eos: BTreeSet<u32>,
    /// Ids that the tokenizer marks as special; empty when the folder has no `tokenizer.json`.
    pub special: BTreeSet<u32>,
}

/// Why a model folder's ids cannot be read.
#[derive(Debug, thiserror::Error)]
pub enum FolderError {
    /// A file cannot be read.
    #[error("cannot read `{path}`")]
    Unreadable {
        /// The file.
        path: PathBuf,
        /// What the system said.
        #[source]
        source: std::io::Error,
    },
    /// A file is not the JSON that it should be.
    #[error("cannot understand `{path}`")]
    Malformed {
        /// The file.
        path: PathBuf,
        /// What is wrong with it.
        #[source]
        source: serde_json::Error,
    },
    /// The configuration gives no vocabulary.
    #[error("`{path}` gives no vocab_size above 0 and below 2^32")]
    NoVocabulary {
        /// The file.
        path: PathBuf,
    },
}

impl FolderError {
    /// What a person may try.
    pub fn hint(&self) -> &'static str {
        "the model folder is broken: remove it from the cache and run again to make it anew"
    }
}

impl FolderIds {
    /// Reads `config.json`, and `generation_config.json` and `tokenizer.json` where there are such files.
    pub fn read(model_dir: &Path) -> Result<Self, FolderError> {
        let config_path = model_dir.join("config.json");
        let config: Config = read_json(&config_path)?;
        let vocab_size = config.vocab_size.or_else(|| config.text_config.as_ref()?.vocab_size);
        let vocab_size = match vocab_size {
            Some(size) if size > 0 && u32::try_from(size).is_ok() => size,
            _ => return Err(FolderError::NoVocabulary { path: config_path }),
        };
        let mut eos = ids_of(&config.eos_token_id);
        if let Some(generation) = read_json_if_there::<Generation>(&model_dir.join("generation_config.json"))?
        {
            eos.extend(ids_of(&generation.eos_token_id));
        }
        let tokenizer =
            read_json_if_there::<Tokenizer>(&model_dir.join("tokenizer.json"))?.unwrap_or_default();
        let special =
            tokenizer.added_tokens.iter().filter(|token| token.special).map(|token| token.id).collect();
        Ok(Self { vocab_size, eos, special })
    }
}

/// `count` ids for a model and a context, none of which ends a text or is special unless every id does.
///
/// The same arguments give the same ids for ever, and a larger count continues a smaller one.
pub fn seeded_ids(model: &str, context: usize, count: usize, folder: &FolderIds) -> Vec<u32> {
    let size = u32::try_from(folder.vocab_size).unwrap_or(u32::MAX);
    let mut allowed: Vec<u32> =
        (0..size).filter(|id| !folder.eos.contains(id) && !folder.special.contains(id)).collect();
    if allowed.is_empty() {
        allowed = (0..size).collect();
    }
    if allowed.is_empty() {
        return Vec::new();
    }
    let mut state = PROMPT_SEED ^ digest_of(model, context);
    (0..count)
        .map(|_| {
            // The high half of a 64 by 64 bit product is uniform enough: the bias is below 2^-32.
            let at = (u128::from(splitmix64(&mut state)) * allowed.len() as u128) >> 64;
            allowed[at as usize]
        })
        .collect()
}

/// One step of the SplitMix64 generator (Steele, Lea, Flood 2014).
fn splitmix64(state: &mut u64) -> u64 {
    *state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let mut z = *state;
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}

fn digest_of(model: &str, context: usize) -> u64 {
    let hash =
        Sha256::new().chain_update(model).chain_update([0]).chain_update((context as u64).to_le_bytes());
    let hash = hash.finalize();
    u64::from_le_bytes(hash[..8].try_into().expect("a SHA-256 has 32 bytes"))
}

#[derive(Deserialize)]
struct Config {
    vocab_size: Option<usize>,
    text_config: Option<TextConfig>,
    #[serde(default)]
    eos_token_id: Value,
}

#[derive(Deserialize)]
struct TextConfig {
    vocab_size: Option<usize>,
}

#[derive(Deserialize)]
struct Generation {
    #[serde(default)]
    eos_token_id: Value,
}

#[derive(Default, Deserialize)]
struct Tokenizer {
    #[serde(default)]
    added_tokens: Vec<AddedToken>,
}

#[derive(Deserialize)]
struct AddedToken {
    id: u32,
    #[serde(default)]
    special: bool,
}

/// A number, a list of numbers or nothing, as configurations write it.
fn ids_of(value: &Value) -> BTreeSet<u32> {
    let one = |value: &Value| value.as_u64().and_then(|id| u32::try_from(id).ok());
    match value {
        Value::Array(values) => values.iter().filter_map(one).collect(),
        value => one(value).into_iter().collect(),
    }
}

fn read_json<T: for<'de> Deserialize<'de>>(path: &Path) -> Result<T, FolderError> {
    let bytes = file::bytes(path, Most::Record)
        .map_err(|source| FolderError::Unreadable { path: path.to_owned(), source })?;
    serde_json::from_slice(&bytes).map_err(|source| FolderError::Malformed { path: path.to_owned(), source })
}

fn read_json_if_there<T: for<'de> Deserialize<'de>>(path: &Path) -> Result<Option<T>, FolderError> {
    match read_json(path) {
        Err(FolderError::Unreadable { source, .. }) if source.kind() == std::io::ErrorKind::NotFound => {
            Ok(None)
        }
        other => other.map(Some),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn folder(files: &[(&str, &str)]) -> tempfile::TempDir {
        let folder = tempfile::tempdir().unwrap();
        for (name, text) in files {
            std::fs::write(folder.path().join(name), text).unwrap();
        }
        folder
    }

    fn ids(vocab_size: usize, eos: &[u32], special: &[u32]) -> FolderIds {
        FolderIds {
            vocab_size,
            eos: eos.iter().copied().collect(),
            special: special.iter().copied().collect(),
        }
    }

    #[test]
    fn a_folder_tells_its_ids() {
        for (files, expected) in [
            (vec![("config.json", r#"{"vocab_size": 9}"#)], ids(9, &[], &[])),
            (vec![("config.json", r#"{"vocab_size": 9, "eos_token_id": null}"#)], ids(9, &[], &[])),
            (
                vec![
                    ("config.json", r#"{"text_config": {"vocab_size": 7}, "eos_token_id": 3}"#),
                    ("generation_config.json", r#"{"eos_token_id": [3, 5]}"#),
                    (
                        "tokenizer.json",
                        r#"{"added_tokens": [{"id": 1, "special": true}, {"id": 2, "special": false}]}"#,
                    ),
                ],
                ids(7, &[3, 5], &[1]),
            ),
        ] {
            assert_eq!(FolderIds::read(folder(&files).path()).unwrap(), expected);
        }
    }

    #[test]
    fn a_broken_folder_is_an_error_that_names_the_file() {
        for (files, expected) in [
            (vec![], "cannot read `config.json`"),
            (vec![("config.json", "{")], "cannot understand `config.json`"),
            (
                vec![("config.json", r#"{"vocab_size": 0}"#)],
                "`config.json` gives no vocab_size above 0 and below 2^32",
            ),
            (
                vec![("config.json", r#"{"vocab_size": 9}"#), ("tokenizer.json", "{\"added")],
                "cannot understand `tokenizer.json`",
            ),
        ] {
            let folder = folder(&files);
            let message = FolderIds::read(folder.path()).unwrap_err().to_string();
            assert_eq!(message.replace(&format!("{}/", folder.path().display()), ""), expected);
        }
    }

    #[test]
    fn ids_are_the_same_for_ever() {
        // Recorded reports are compared over years: these numbers must not change.
        let recorded = [3_125, 15_369, 28_998, 25_510, 11_499, 40_168];
        assert_eq!(seeded_ids("qwen3-tiny", 128, 6, &ids(49_152, &[0], &[])), recorded);
    }

    #[test]
    fn ids_differ_by_model_and_context_and_continue() {
        let folder = ids(1_000, &[], &[]);
        let short = seeded_ids("a", 8, 8, &folder);
        assert_eq!(seeded_ids("a", 8, 12, &folder)[..8], short);
        assert_ne!(seeded_ids("b", 8, 8, &folder), short);
        assert_ne!(seeded_ids("a", 9, 8, &folder), short);
    }

    #[test]
    fn ids_spread_over_the_vocabulary_and_avoid_what_ends_a_text() {
        let seen: BTreeSet<u32> = seeded_ids("a", 8, 2_000, &ids(20, &[0, 19], &[7])).into_iter().collect();
        assert_eq!(seen, (1..19).filter(|&id| id != 7).collect());
        // Where every id ends a text, ids are still given.
        assert_eq!(seeded_ids("a", 8, 3, &ids(1, &[0], &[])), [0, 0, 0]);
    }
}
