//! Answers which official release a library is, or is closest to, from a table of our own measurements. The table is
//! small: for each release two digests, and a sample of kernels chosen by the hash of their name.
//!
//! The table is `releases.json` beside this file. `cargo xtask metallib learn --release VERSION --macos N FILE` measures a library
//! (`mlx/lib/mlx.metallib` of an official wheel) and puts its row there.

use std::collections::{BTreeMap, BTreeSet};

use rayon::prelude::*;
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};

use super::{
    bitcode::{Scratch, scan},
    family::is_nax,
    inventory::hex,
    parse::{Function, Library},
};

/// The known releases.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ReleaseTable {
    /// What this file is, and the version of its shape.
    pub schema: String,
    /// How to make it again.
    pub made_by: String,
    /// The releases, sorted by version and system.
    pub releases: Vec<Release>,
}

/// What is known of one official release.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Release {
    /// The version of the `mlx-metal` package.
    pub version: String,
    /// The macOS version in the wheel's platform tag.
    pub wheel_macos: u16,
    /// Size of the library.
    pub size_bytes: u64,
    /// Version of the file format.
    pub format: String,
    /// The OS floor in the header.
    pub os_floor: String,
    /// Number of functions.
    pub functions: usize,
    /// How many of them are for the neural accelerators.
    pub nax: usize,
    /// The SDK of its functions, where it is one.
    pub sdk: Option<String>,
    /// SHA-256 over the sorted names.
    pub names_digest: String,
    /// SHA-256 over the sorted names with the hash of each function.
    pub contents_digest: String,
    /// The sample, sorted: [`SAMPLE`] functions at most.
    pub sample: Vec<Sampled>,
}

/// A function in a sample, written as one hexadecimal word.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct Sampled {
    /// Six bytes of the SHA-256 of its name: what orders the sample.
    name: [u8; 6],
    /// Four bytes of the SHA-256 of its bitcode.
    contents: [u8; 4],
    /// Four bytes of the SHA-256 of its bitcode with the SDK version blanked.
    meaning: [u8; 4],
}

impl From<Sampled> for String {
    fn from(s: Sampled) -> Self {
        hex(&[&s.name[..], &s.contents, &s.meaning].concat())
    }
}

impl TryFrom<String> for Sampled {
    type Error = String;

    fn try_from(text: String) -> Result<Self, String> {
        let mut bytes = [0; 14];
        match base16ct::lower::decode(&text, &mut bytes) {
            Ok(decoded) if decoded.len() == 14 => Ok(Self {
                name: bytes[..6].try_into().expect("six bytes"),
                contents: bytes[6..10].try_into().expect("four bytes"),
                meaning: bytes[10..].try_into().expect("four bytes"),
            }),
            _ => Err(format!("`{text}` is not a sampled function")),
        }
    }
}

/// Functions in a sample. With 128, a release that shares 99 of 100 kernels with a library is told from one that shares 95.
pub const SAMPLE: usize = 128;

/// What a library is.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Identity {
    /// How sure the answer is.
    pub verdict: Likeness,
    /// The release that the verdict is about; `null` when nothing is alike.
    pub release: Option<String>,
    /// The same in a sentence.
    pub message: String,
    /// Number of functions whose hash is not what the library states: such a library is no release.
    pub hash_mismatches: usize,
    /// All known releases, closest first.
    pub candidates: Vec<Candidate>,
}

/// How alike a library and a release are.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Likeness {
    /// The same functions with the same bitcode.
    Exact,
    /// The same names; the code differs, as after a build with another toolchain or from changed sources.
    SameNames,
    /// Closest of the known ones.
    Nearest,
    /// Fewer than half of the names are shared with any known release.
    Unknown,
}

/// A release, compared with the library. Shares are of the kernels that either has, estimated from the sample.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Candidate {
    /// The release.
    pub release: String,
    /// Share of kernels that both have.
    pub shared_names: f64,
    /// Share of kernels that both have with the same meaning.
    pub same_meaning: f64,
    /// Share of kernels that both have with the same bitcode.
    pub same_contents: f64,
    /// Whether all names are the same (exact, no estimate).
    pub names_equal: bool,
    /// Functions of the library minus those of the release.
    pub functions_more: i64,
    /// Whether format and OS floor are the release's.
    pub same_target: bool,
}

impl Release {
    /// The release in words: `mlx-metal 0.32.0 for macOS 14`.
    #[must_use]
    pub fn title(&self) -> String {
        format!("mlx-metal {} for macOS {}", self.version, self.wheel_macos)
    }
}

/// Measures `library` as the release `version` for macOS `wheel_macos`.
#[must_use]
pub fn measure(version: &str, wheel_macos: u16, library: &Library<'_>) -> Release {
    let hashes = computed_hashes(library);
    let order = by_name_hash(library);
    let sample = sample(library, &hashes, order.iter().take(SAMPLE));
    let made_by = super::toolchains(library);
    let sdks: BTreeSet<Option<String>> = made_by.into_keys().map(|toolchain| toolchain.sdk).collect();
    let mut sdks = sdks.into_iter();
    Release {
        version: version.to_owned(),
        wheel_macos,
        size_bytes: library.bytes.len() as u64,
        format: library.header.format.to_string(),
        os_floor: library.header.os_floor.to_string(),
        functions: library.functions.len(),
        nax: library.functions.iter().filter(|f| is_nax(f.name)).count(),
        sdk: match (sdks.next(), sdks.next()) {
            (Some(only), None) => only,
            _ => None,
        },
        names_digest: names_digest(library),
        contents_digest: contents_digest(library, &hashes),
        sample,
    }
}

/// Compares `library` with every release in `table`.
#[must_use]
pub fn identify(library: &Library<'_>, table: &ReleaseTable) -> Identity {
    let hashes = computed_hashes(library);
    let hash_mismatches =
        library.functions.iter().zip(&hashes).filter(|(f, hash)| *f.stated_hash != **hash).count();
    let order = by_name_hash(library);
    // Every name that hashes below the last of a release's sample is either in the sample or not in the release.
    let furthest = table.releases.iter().map(reach).max().unwrap_or([0; 6]);
    let own: BTreeMap<[u8; 6], Sampled> =
        sample(library, &hashes, order.iter().take_while(|(name, _)| *name <= furthest))
            .into_iter()
            .map(|sampled| (sampled.name, sampled))
            .collect();
    let (names, contents) = (names_digest(library), contents_digest(library, &hashes));
    let mut ranked: Vec<(bool, Candidate)> = table
        .releases
        .iter()
        .map(|release| {
            let exact = hash_mismatches == 0
                && release.contents_digest == contents
                && release.format == library.header.format.to_string()
                && release.os_floor == library.header.os_floor.to_string();
            (exact, compare(library, &own, release, &names))
        })
        .collect();
    let closeness = |c: &Candidate| {
        (c.same_meaning + c.same_contents + c.shared_names, c.same_target, -c.functions_more.abs())
    };
    ranked.sort_by(|(exact_a, a), (exact_b, b)| {
        exact_b
            .cmp(exact_a)
            .then_with(|| closeness(b).partial_cmp(&closeness(a)).expect("shares are numbers"))
    });
    let (verdict, release, message) = match ranked.first() {
        None => (Likeness::Unknown, None, "no release is known".to_owned()),
        Some((true, c)) => (Likeness::Exact, Some(c.release.clone()), format!("this is {}", c.release)),
        Some((_, c)) if c.shared_names < 0.5 => {
            let message = format!("no known release shares half of its kernels (closest: {})", c.release);
            (Likeness::Unknown, None, message)
        }
        Some((_, c)) => {
            let verdict = if c.names_equal { Likeness::SameNames } else { Likeness::Nearest };
            (verdict, Some(c.release.clone()), describe(c, hash_mismatches))
        }
    };
    let candidates = ranked.into_iter().map(|(_, candidate)| candidate).collect();
    Identity { verdict, release, message, hash_mismatches, candidates }
}

fn describe(c: &Candidate, hash_mismatches: usize) -> String {
    let percent = |share: f64| (share * 1000.0).round() / 10.0;
    let count = match c.functions_more {
        0 => "as many kernels".to_owned(),
        more if more > 0 => format!("{more} kernels more"),
        fewer => format!("{} kernels fewer", -fewer),
    };
    let names = if c.names_equal {
        "all names equal".to_owned()
    } else {
        format!("about {} % of names shared", percent(c.shared_names))
    };
    let damage = match hash_mismatches {
        0 => String::new(),
        n => format!("; {n} functions do not have their stated hash"),
    };
    format!(
        "closest to {}: {count}, {names}, about {} % equal in meaning, {} % bit-equal{damage}",
        c.release,
        percent(c.same_meaning),
        percent(c.same_contents),
    )
}

fn reach(release: &Release) -> [u8; 6] {
    // A sample that is not full holds every function, so that it tells about all names.
    if release.sample.len() < SAMPLE { [0xFF; 6] } else { release.sample.last().map_or([0; 6], |s| s.name) }
}

fn compare(
    library: &Library<'_>,
    own: &BTreeMap<[u8; 6], Sampled>,
    release: &Release,
    names_digest: &str,
) -> Candidate {
    let within = own.range(..=reach(release)).count();
    let both: Vec<(&Sampled, &Sampled)> =
        release.sample.iter().filter_map(|theirs| Some((own.get(&theirs.name)?, theirs))).collect();
    let either = within + release.sample.len() - both.len();
    let share = |count: usize| if either == 0 { 0.0 } else { count as f64 / either as f64 };
    Candidate {
        release: release.title(),
        shared_names: share(both.len()),
        same_meaning: share(both.iter().filter(|(a, b)| a.meaning == b.meaning).count()),
        same_contents: share(both.iter().filter(|(a, b)| a.contents == b.contents).count()),
        names_equal: names_digest == release.names_digest,
        functions_more: library.functions.len() as i64 - release.functions as i64,
        same_target: release.format == library.header.format.to_string()
            && release.os_floor == library.header.os_floor.to_string(),
    }
}

fn computed_hashes(library: &Library<'_>) -> Vec<[u8; 32]> {
    library.functions.par_iter().with_min_len(64).map(Function::computed_hash).collect()
}

/// The functions by the hash of their name, as indices.
fn by_name_hash(library: &Library<'_>) -> Vec<([u8; 6], usize)> {
    let mut order: Vec<([u8; 6], usize)> = library
        .functions
        .iter()
        .enumerate()
        .map(|(index, f)| (first_bytes(&Sha256::digest(f.name.as_bytes())), index))
        .collect();
    order.sort_unstable();
    order
}

fn sample<'o>(
    library: &Library<'_>,
    hashes: &[[u8; 32]],
    chosen: impl Iterator<Item = &'o ([u8; 6], usize)>,
) -> Vec<Sampled> {
    let mut scratch = Scratch::default();
    chosen
        .map(|(name, index)| Sampled {
            name: *name,
            contents: first_bytes(&hashes[*index]),
            meaning: first_bytes(&meaning_hash(&library.functions[*index], &mut scratch)),
        })
        .collect()
}

/// SHA-256 of the bitcode with the bits of the SDK version set to zero.
fn meaning_hash(function: &Function<'_>, scratch: &mut Scratch) -> [u8; 32] {
    let Some(sdk) = scan(function.bitcode, scratch).ok().and_then(|facts| facts.sdk) else {
        return function.computed_hash();
    };
    let mut blanked = function.bitcode.to_vec();
    for bit in sdk.bits {
        blanked[bit / 8] &= !(1 << (bit % 8));
    }
    Sha256::digest(&blanked).into()
}

fn names_digest(library: &Library<'_>) -> String {
    let mut names: Vec<&str> = library.functions.iter().map(|f| f.name).collect();
    names.sort_unstable();
    let mut digest = Sha256::new();
    for name in names {
        digest.update(name);
        digest.update([0]);
    }
    hex(&digest.finalize())
}

fn contents_digest(library: &Library<'_>, hashes: &[[u8; 32]]) -> String {
    let mut functions: Vec<(&str, &[u8; 32])> =
        library.functions.iter().map(|f| f.name).zip(hashes).collect();
    functions.sort_unstable();
    let mut digest = Sha256::new();
    for (name, hash) in functions {
        digest.update(name);
        digest.update([0]);
        digest.update(hash);
    }
    hex(&digest.finalize())
}

fn first_bytes<const N: usize>(hash: &[u8]) -> [u8; N] {
    hash[..N].try_into().expect("a SHA-256 has 32 bytes")
}

impl ReleaseTable {
    /// The table that this program carries.
    #[must_use]
    pub fn carried() -> Self {
        Self::from_json(include_str!("releases.json")).expect("a test reads the carried table")
    }

    /// Reads a table.
    ///
    /// # Errors
    /// What is wrong with the JSON, and where.
    pub fn from_json(text: &str) -> Result<Self, serde_json::Error> {
        serde_json::from_str(text)
    }

    /// Puts `release` into the table, in the place of an older row of the same version and system.
    pub fn learn(&mut self, release: Release) {
        let key = |r: &Release| (version_key(&r.version), r.version.clone(), r.wheel_macos);
        self.releases.retain(|other| key(other) != key(&release));
        self.releases.push(release);
        self.releases.sort_by_key(key);
    }

    /// The table as its file holds it: equal tables give equal bytes.
    #[must_use]
    pub fn to_json(&self) -> String {
        let mut text = serde_json::to_string_pretty(self).expect("the table has string keys only");
        text.push('\n');
        text
    }
}

fn version_key(version: &str) -> Vec<u64> {
    version.split('.').map(|part| part.parse().unwrap_or(0)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::build::metallib::{
        parse::Version,
        synthetic::{SyntheticKernel, SyntheticLibrary, SyntheticModule},
    };

    /// A library of `count` kernels, compiled with SDK 26.`sdk`; the first `edited` kernels have other code.
    fn spec(count: usize, sdk: u64, edited: usize) -> SyntheticLibrary {
        let kernels = (0..count)
            .map(|index| {
                let name = format!("kernel_{index}");
                let seed = if index < edited { format!("edited {name}") } else { name.clone() };
                let module = SyntheticModule { sdk: vec![26, sdk], ..Default::default() }.with_code_of(&seed);
                SyntheticKernel { bitcode: module.build(), ..SyntheticKernel::named(&name) }
            })
            .collect();
        SyntheticLibrary { kernels, ..SyntheticLibrary::of(&[]) }
    }

    fn table() -> ReleaseTable {
        let mut table = ReleaseTable { schema: "s".into(), made_by: "m".into(), releases: vec![] };
        for (version, macos, spec) in [
            ("1.10.0", 14, spec(700, 5, 100)),
            ("1.9.0", 14, spec(600, 4, 0)),
            ("1.9.0", 26, SyntheticLibrary { os_floor: Version::new(26, 0), ..spec(600, 4, 0) }),
        ] {
            let bytes = spec.build();
            table.learn(measure(version, macos, &Library::parse(&bytes).unwrap()));
        }
        table
    }

    fn identity(spec: &SyntheticLibrary) -> Identity {
        let bytes = spec.build();
        identify(&Library::parse(&bytes).unwrap(), &table())
    }

    #[test]
    fn a_known_release_is_named() {
        for (library, wanted) in [
            (spec(600, 4, 0), "mlx-metal 1.9.0 for macOS 14"),
            (
                SyntheticLibrary { os_floor: Version::new(26, 0), ..spec(600, 4, 0) },
                "mlx-metal 1.9.0 for macOS 26",
            ),
            (spec(700, 5, 100), "mlx-metal 1.10.0 for macOS 14"),
        ] {
            let identity = identity(&library);
            assert_eq!((identity.verdict, identity.release.as_deref()), (Likeness::Exact, Some(wanted)));
            assert_eq!(identity.candidates[0].same_contents, 1.0);
        }
    }

    #[test]
    fn a_release_with_kernels_removed_is_closest_to_itself() {
        let mut library = spec(700, 5, 100);
        library.kernels.drain(200..230);
        let identity = identity(&library);
        assert_eq!(identity.verdict, Likeness::Nearest);
        assert_eq!(identity.release.as_deref(), Some("mlx-metal 1.10.0 for macOS 14"));
        assert_eq!(identity.candidates[0].functions_more, -30);
        assert!(identity.message.contains("30 kernels fewer"), "{}", identity.message);
    }

    #[test]
    fn a_rebuild_with_another_sdk_keeps_names_and_meaning() {
        let identity = identity(&spec(600, 7, 0));
        assert_eq!(identity.verdict, Likeness::SameNames);
        assert_eq!(identity.release.as_deref(), Some("mlx-metal 1.9.0 for macOS 14"));
        let closest = &identity.candidates[0];
        assert_eq!((closest.same_meaning, closest.same_contents, closest.names_equal), (1.0, 0.0, true));
    }

    #[test]
    fn something_else_is_like_no_release() {
        let identity = identity(&SyntheticLibrary::of(&["x", "y"]));
        assert_eq!((identity.verdict, identity.release), (Likeness::Unknown, None));
    }

    #[test]
    fn a_release_with_a_flipped_bit_is_no_release() {
        let mut bytes = spec(600, 4, 0).build();
        let middle = bytes.len() / 2;
        bytes[middle] ^= 1;
        let identity = identify(&Library::parse(&bytes).unwrap(), &table());
        assert_eq!((identity.verdict, identity.hash_mismatches), (Likeness::SameNames, 1));
        assert!(
            identity.message.contains("1 functions do not have their stated hash"),
            "{}",
            identity.message
        );
    }

    #[test]
    fn learning_is_stable_and_replaces() {
        let mut again = table();
        let order: Vec<String> = again.releases.iter().map(Release::title).collect();
        assert_eq!(
            order,
            ["mlx-metal 1.9.0 for macOS 14", "mlx-metal 1.9.0 for macOS 26", "mlx-metal 1.10.0 for macOS 14"]
        );
        let row = again.releases[1].clone();
        again.learn(row);
        assert_eq!(again.to_json(), table().to_json());
        assert_eq!(ReleaseTable::from_json(&again.to_json()).unwrap(), again);
    }

    #[test]
    fn the_carried_table_is_as_this_program_would_write_it() {
        let table = ReleaseTable::carried();
        assert!(!table.releases.is_empty());
        for release in &table.releases {
            assert!(release.sample.len() == SAMPLE && release.sample.is_sorted(), "{}", release.title());
        }
        assert_eq!(table.to_json(), include_str!("releases.json"));
    }
}
