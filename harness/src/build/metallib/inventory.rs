//! Answers what every function of a library is: hashes checked against the code, and who compiled it. The work of
//! hundreds of megabytes, done on all cores.

use std::collections::BTreeMap;

use rayon::prelude::*;
use serde::Serialize;
use serde_json::{Value, json};
use sha2::{Digest, Sha256};

use super::{
    bitcode::{ModuleFacts, Scratch, scan},
    family::family,
    parse::{Function, Library},
};

/// Who compiled some of a library's functions. A library has one of these unless it was put together from several builds.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize)]
pub struct Toolchain {
    /// The compiler's name for itself.
    pub compiler: Option<String>,
    /// The SDK version.
    pub sdk: Option<String>,
    /// The target triple, OS floor included.
    pub target: Option<String>,
}

impl Function<'_> {
    /// SHA-256 of the bitcode, computed now.
    #[must_use]
    pub fn computed_hash(&self) -> [u8; 32] {
        Sha256::digest(self.bitcode).into()
    }
}

/// The names of the functions whose bitcode does not have the hash that the library states, in file order.
#[must_use]
pub fn hash_mismatches<'a>(library: &Library<'a>) -> Vec<&'a str> {
    library
        .functions
        .par_iter()
        .with_min_len(64)
        .filter(|function| function.computed_hash() != *function.stated_hash)
        .map(|function| function.name)
        .collect()
}

/// The toolchains that made a library, each with its number of functions. Functions whose bitcode cannot be read count
/// under a toolchain with nothing known.
#[must_use]
pub fn toolchains(library: &Library<'_>) -> BTreeMap<Toolchain, usize> {
    // Nearly all functions share one toolchain: each thread compares with the one before and rarely builds a key.
    library
        .functions
        .par_iter()
        .with_min_len(64)
        .fold(
            || (Scratch::default(), Vec::<(ModuleFacts, usize)>::new()),
            |(mut scratch, mut seen), function| {
                let facts = scan(function.bitcode, &mut scratch).unwrap_or_default();
                let same = |other: &ModuleFacts| {
                    other.compiler == facts.compiler
                        && other.triple == facts.triple
                        && other.sdk.as_ref().map(|s| &s.parts) == facts.sdk.as_ref().map(|s| &s.parts)
                };
                match seen.iter_mut().find(|(other, _)| same(other)) {
                    Some((_, count)) => *count += 1,
                    None => seen.push((facts, 1)),
                }
                (scratch, seen)
            },
        )
        .map(|(_, seen)| {
            let mut counts = BTreeMap::new();
            for (facts, count) in seen {
                *counts.entry(Toolchain::from(&facts)).or_insert(0) += count;
            }
            counts
        })
        .reduce(BTreeMap::new, |mut all, some| {
            for (toolchain, count) in some {
                *all.entry(toolchain).or_insert(0) += count;
            }
            all
        })
}

impl From<&ModuleFacts> for Toolchain {
    fn from(facts: &ModuleFacts) -> Self {
        Self {
            compiler: facts.compiler.clone(),
            sdk: facts.sdk.as_ref().map(ToString::to_string),
            target: facts.triple.clone(),
        }
    }
}

/// The document of `metallib list`: header, toolchains, families and functions.
#[must_use]
pub fn list(library: &Library<'_>) -> Value {
    let functions: Vec<Value> = library
        .functions
        .par_iter()
        .with_min_len(64)
        .map(|function| {
            let computed = function.computed_hash();
            let mut entry = json!({
                "name": function.name,
                "kind": function.kind.to_string(),
                "family": family(function.name),
                "air": function.air.to_string(),
                "msl": function.msl.to_string(),
                "bitcode_bytes": function.bitcode.len(),
                "hash": hex(function.stated_hash),
                "hash_ok": computed == *function.stated_hash,
            });
            if !function.unknown.is_empty() {
                let tags: Vec<String> = function.unknown.iter().map(|tag| tag.code.to_string()).collect();
                entry["unknown_tags"] = json!(tags);
            }
            entry
        })
        .collect();
    let mut families: BTreeMap<String, usize> = BTreeMap::new();
    for function in &library.functions {
        *families.entry(family(function.name)).or_insert(0) += 1;
    }
    json!({
        "header": header_document(library),
        "toolchains": toolchain_documents(&toolchains(library)),
        "hash_mismatches": functions.iter().filter(|f| f["hash_ok"] == false).count(),
        "families": families,
        "functions": functions,
    })
}

/// The header as `list` shows it.
pub(super) fn header_document(library: &Library<'_>) -> Value {
    let header = &library.header;
    json!({
        "platform": if header.platform == MACOS_PLATFORM { "macos".to_owned() } else { format!("{:#06x}", header.platform) },
        "format": header.format,
        "library_type": header.library_type,
        "os_floor": header.os_floor,
        "size_bytes": library.bytes.len(),
        "functions": library.functions.len(),
        "uuid": library.uuid().map(|uuid| hex(&uuid)),
        "sections": {
            "function_list": header.function_list,
            "public_metadata": header.public_metadata,
            "private_metadata": header.private_metadata,
            "bitcode": header.bitcode,
        },
        "extension_tags": library.extension.iter().map(|tag| tag.code.to_string()).collect::<Vec<_>>(),
    })
}

pub(super) fn toolchain_documents(toolchains: &BTreeMap<Toolchain, usize>) -> Vec<Value> {
    let mut documents: Vec<(usize, Value)> = toolchains
        .iter()
        .map(|(toolchain, count)| {
            let mut document = serde_json::to_value(toolchain).expect("strings serialise");
            document["functions"] = json!(count);
            (*count, document)
        })
        .collect();
    documents.sort_by_key(|(count, _)| std::cmp::Reverse(*count));
    documents.into_iter().map(|(_, document)| document).collect()
}

/// The platform number of macOS in a library's header.
pub(super) const MACOS_PLATFORM: u16 = 0x8001;

pub(super) fn hex(bytes: &[u8]) -> String {
    use std::fmt::Write;
    bytes.iter().fold(String::with_capacity(bytes.len() * 2), |mut text, byte| {
        write!(text, "{byte:02x}").expect("writing to a string cannot fail");
        text
    })
}
