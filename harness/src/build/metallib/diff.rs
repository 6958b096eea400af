//! Answers how two libraries differ: functions added, removed, changed in meaning, changed in metadata only, bit-equal.
//! By family too. Which matrix cells a family touches is left to the matrix.

use std::{
    collections::{BTreeMap, HashMap},
    ops::Range,
};

use rayon::prelude::*;
use serde::Serialize;

use super::{
    bitcode::{Scratch, scan},
    family::family,
    parse::{Function, Library},
};

/// How two libraries differ. Names are sorted.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Diff {
    /// Functions that only the second library has.
    pub added: Vec<String>,
    /// Functions that only the first library has.
    pub removed: Vec<String>,
    /// Functions that both have and that do not do the same, as far as [`RULE`] can tell.
    pub changed: Vec<String>,
    /// Functions that differ in normalised metadata only.
    pub metadata_only: usize,
    /// Functions that are equal bit for bit.
    pub identical: usize,
    /// The same by family.
    pub families: BTreeMap<String, FamilyDiff>,
    /// The rule that decided what is a change in meaning.
    pub rule: Rule,
}

/// The counts of one family.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize)]
pub struct FamilyDiff {
    /// Functions added.
    pub added: usize,
    /// Functions removed.
    pub removed: usize,
    /// Functions changed in meaning.
    pub changed: usize,
    /// Functions that differ in metadata only.
    pub metadata_only: usize,
    /// Functions that are bit-equal.
    pub identical: usize,
}

impl FamilyDiff {
    /// Whether anything in the family was added, removed or changed in meaning.
    #[must_use]
    pub fn is_touched(&self) -> bool {
        self.added + self.removed + self.changed > 0
    }
}

/// A rule for what counts as a change in meaning.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub struct Rule {
    /// Its name, stable across versions of this program.
    pub name: &'static str,
    /// What it says.
    pub text: &'static str,
}

/// The rule in use. It errs to the safe side: what it cannot prove to be metadata counts as a change.
pub const RULE: Rule = Rule {
    name: "sdk-version-normalised",
    text: "two functions mean the same when kind, language versions, public and private metadata are equal and the \
           bitcode is equal but for the bits of the module flag `SDK Version`; reflection and file layout are not compared",
};

/// What became of one function.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Change {
    Identical,
    MetadataOnly,
    Changed,
}

/// Compares `from` with `to`.
#[must_use]
pub fn diff(from: &Library<'_>, to: &Library<'_>) -> Diff {
    let before: HashMap<&str, &Function<'_>> = from.functions.iter().map(|f| (f.name, f)).collect();
    let fates: Vec<Option<Change>> = to
        .functions
        .par_iter()
        .with_min_len(64)
        .map_init(Default::default, |scratch: &mut (Scratch, Scratch), after| {
            before.get(after.name).map(|before| compare(before, after, scratch))
        })
        .collect();
    let mut diff = Diff {
        added: Vec::new(),
        removed: Vec::new(),
        changed: Vec::new(),
        metadata_only: 0,
        identical: 0,
        families: BTreeMap::new(),
        rule: RULE,
    };
    for (function, fate) in to.functions.iter().zip(fates) {
        let counts = diff.families.entry(family(function.name)).or_default();
        match fate {
            None => {
                diff.added.push(function.name.to_owned());
                counts.added += 1;
            }
            Some(Change::Changed) => {
                diff.changed.push(function.name.to_owned());
                counts.changed += 1;
            }
            Some(Change::MetadataOnly) => {
                diff.metadata_only += 1;
                counts.metadata_only += 1;
            }
            Some(Change::Identical) => {
                diff.identical += 1;
                counts.identical += 1;
            }
        }
    }
    let after: HashMap<&str, ()> = to.functions.iter().map(|f| (f.name, ())).collect();
    for function in from.functions.iter().filter(|f| !after.contains_key(f.name)) {
        diff.removed.push(function.name.to_owned());
        diff.families.entry(family(function.name)).or_default().removed += 1;
    }
    diff.added.sort_unstable();
    diff.removed.sort_unstable();
    diff.changed.sort_unstable();
    diff
}

fn compare(before: &Function<'_>, after: &Function<'_>, scratch: &mut (Scratch, Scratch)) -> Change {
    let same_frame = before.kind == after.kind
        && (before.air, before.msl) == (after.air, after.msl)
        && before.public_metadata == after.public_metadata
        && before.private_metadata == after.private_metadata;
    if !same_frame {
        return Change::Changed;
    }
    if before.bitcode == after.bitcode {
        return Change::Identical;
    }
    let Some(differing) = differing_bits(before.bitcode, after.bitcode) else {
        return Change::Changed;
    };
    // A version takes a few bytes: whatever differs over a longer stretch cannot be explained by it.
    if differing.len() > MAX_VERSION_BITS {
        return Change::Changed;
    }
    let (Ok(old), Ok(new)) = (scan(before.bitcode, &mut scratch.0), scan(after.bitcode, &mut scratch.1))
    else {
        return Change::Changed;
    };
    match (old.sdk, new.sdk) {
        // Both modules keep the version in the same bits, and nothing else differs.
        (Some(old), Some(new))
            if old.bits == new.bits && old.bits.start <= differing.start && differing.end <= old.bits.end =>
        {
            Change::MetadataOnly
        }
        _ => Change::Changed,
    }
}

/// The longest record that a version of four parts can take: code, count and parts in 6-bit groups of up to 64 bits each.
const MAX_VERSION_BITS: usize = 6 * 13 * 6;

/// From the first bit that differs to just after the last; `None` when the lengths differ.
fn differing_bits(a: &[u8], b: &[u8]) -> Option<Range<usize>> {
    if a.len() != b.len() {
        return None;
    }
    let differs = |(x, y): (&u8, &u8)| x != y;
    // Whole blocks first: comparing slices runs at memory speed.
    const BLOCK: usize = 256;
    let block = a.chunks(BLOCK).zip(b.chunks(BLOCK)).position(|(x, y)| x != y)? * BLOCK;
    let first = block + a[block..].iter().zip(&b[block..]).position(differs)?;
    let tail = a.rchunks(BLOCK).zip(b.rchunks(BLOCK)).position(|(x, y)| x != y)? * BLOCK;
    let end = a.len() - tail;
    let last = a[..end].iter().zip(&b[..end]).rposition(differs)?;
    let bits = |at: usize| a[at] ^ b[at];
    Some(
        first * 8 + bits(first).trailing_zeros() as usize..last * 8 + 8 - bits(last).leading_zeros() as usize,
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::build::metallib::synthetic::{SyntheticKernel, SyntheticLibrary, SyntheticModule};

    fn kernel(name: &str, module: SyntheticModule) -> SyntheticKernel {
        SyntheticKernel { bitcode: module.build(), ..SyntheticKernel::named(name) }
    }

    fn diff_of(from: &SyntheticLibrary, to: &SyntheticLibrary) -> Diff {
        let (from, to) = (from.build(), to.build());
        diff(&Library::parse(&from).unwrap(), &Library::parse(&to).unwrap())
    }

    #[test]
    fn a_newer_sdk_alone_is_no_change_in_meaning() {
        let library = |minor| {
            let module = |seed: &str| {
                SyntheticModule { sdk: vec![26, minor], ..Default::default() }.with_code_of(seed)
            };
            let kernels = ["rope_float16", "arangeint32"].map(|name| kernel(name, module(name))).to_vec();
            SyntheticLibrary { kernels, ..SyntheticLibrary::of(&[]) }
        };
        let diff = diff_of(&library(4), &library(5));
        assert_eq!((diff.metadata_only, diff.identical, diff.changed.len()), (2, 0, 0));
        assert_eq!(diff_of(&library(4), &library(4)).identical, 2);
    }

    #[test]
    fn anything_beside_the_sdk_version_is_a_change_in_meaning() {
        let base = || SyntheticModule::default().with_code_of("k");
        let mut code = base();
        code.sdk = vec![26, 5];
        code.code[0] ^= 1;
        let cases = [
            ("one bit of code, newer SDK", kernel("k", code)),
            ("other code", kernel("k", base().with_code_of("other"))),
            ("longer code", kernel("k", SyntheticModule { code: vec![0; 500], ..base() })),
            (
                "other compiler of equal length",
                kernel("k", SyntheticModule { compiler: "synthetic metal 2".into(), ..base() }),
            ),
            (
                "other target",
                kernel("k", SyntheticModule { triple: "air64-apple-macosx15.0.0".into(), ..base() }),
            ),
            ("an SDK version of three parts", kernel("k", SyntheticModule { sdk: vec![26, 4, 1], ..base() })),
            ("newer language", SyntheticKernel { msl: (4, 0).into(), ..kernel("k", base()) }),
            (
                "public metadata",
                SyntheticKernel { public_metadata: b"CNST\x00\x00".to_vec(), ..kernel("k", base()) },
            ),
        ];
        let of = |kernel| SyntheticLibrary { kernels: vec![kernel], ..SyntheticLibrary::of(&[]) };
        let from = of(kernel("k", base()));
        for (what, changed) in cases {
            let to = of(changed);
            for diff in [diff_of(&from, &to), diff_of(&to, &from)] {
                assert_eq!(diff.changed, ["k"], "{what}");
                assert_eq!(diff.metadata_only + diff.identical, 0, "{what}");
            }
        }
    }

    #[test]
    fn swapping_the_libraries_swaps_added_and_removed() {
        let from = SyntheticLibrary::of(&["v_copyint8int8", "rope_float16", "gone"]);
        let to = SyntheticLibrary::of(&["rope_float16", "v_copyint8int8", "new_b", "new_a"]);
        let (there, back) = (diff_of(&from, &to), diff_of(&to, &from));
        assert_eq!(there.added, ["new_a", "new_b"]);
        assert_eq!(there.removed, ["gone"]);
        assert_eq!((&there.added, &there.removed), (&back.removed, &back.added));
        assert_eq!(there.identical, 2);
        let touched: Vec<&str> =
            there.families.iter().filter(|(_, f)| f.is_touched()).map(|(name, _)| name.as_str()).collect();
        assert_eq!(touched, ["gone", "new"]);
    }

    #[test]
    fn the_differing_bits_are_found_to_the_bit() {
        let mut a = vec![0u8; 1000];
        let b = a.clone();
        assert_eq!(differing_bits(&a, &b), None);
        a[300] = 0b0001_0000;
        assert_eq!(differing_bits(&a, &b), Some(2404..2405));
        a[999] = 0b1000_0001;
        assert_eq!(differing_bits(&a, &b), Some(2404..8000));
        a[0] = 1;
        assert_eq!(differing_bits(&a, &b), Some(0..8000));
        assert_eq!(differing_bits(&a, &b[..999]), None);
    }
}
