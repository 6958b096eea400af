//! Which tensors a model folder holds, read from safetensors headers alone, and how they differ from what a model
//! wants. Whoever loads them is not trusted to notice.

use std::{
    collections::{BTreeMap, BTreeSet},
    fmt,
    fs::File,
    io::Read,
    path::{Component, Path, PathBuf},
};

use safetensors::tensor::Metadata;
use serde::Deserialize;

use crate::protocol::{EngineError, EngineErrorKind};

/// Names with shapes, outermost dimension first.
pub(crate) type Shapes = BTreeMap<String, Vec<usize>>;

/// How many names of each kind a message spells out.
const NAMES_SHOWN: usize = 5;

/// The format's own limit on a header; a larger claim is a broken file, not a reason to allocate.
const MAX_HEADER_BYTES: u64 = 100_000_000;

/// An error that blames the model folder.
pub(crate) fn bad_model(message: impl Into<String>) -> EngineError {
    EngineError { kind: EngineErrorKind::BadModel, message: message.into() }
}

/// The names and shapes of all tensors in the folder's safetensors files: those that `model.safetensors.index.json`
/// lists, or else `model.safetensors`. Refuses files that are missing, truncated or inconsistent, and a name that two
/// files hold.
pub(crate) fn read_shapes(model_dir: &Path) -> Result<Shapes, EngineError> {
    let mut shapes = Shapes::new();
    for file in weight_files(model_dir)? {
        let metadata = read_header(&file)
            .map_err(|why| bad_model(format!("cannot read the weights in {}: {why}", file.display())))?;
        for (name, tensor) in metadata.tensors() {
            if shapes.insert(name.clone(), tensor.shape.clone()).is_some() {
                return Err(bad_model(format!("{} repeats tensor `{name}` of another file", file.display())));
            }
        }
    }
    Ok(shapes)
}

/// How a checkpoint differs from a model.
#[cfg_attr(feature = "eredu-05", allow(dead_code, reason = "eredu compares names and shapes itself"))]
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Mismatch {
    /// The model wants it, the checkpoint does not hold it.
    pub(crate) missing: Vec<String>,
    /// The checkpoint holds it, the model does not want it.
    pub(crate) extra: Vec<String>,
    /// Both have it: name, wanted shape, held shape.
    pub(crate) misshapen: Vec<(String, Vec<usize>, Vec<usize>)>,
}

/// What differs between the shapes that a model wants and those that a checkpoint holds; `None` where nothing does.
#[cfg_attr(feature = "eredu-05", allow(dead_code, reason = "eredu compares names and shapes itself"))]
pub(crate) fn mismatch(wanted: &Shapes, held: &Shapes) -> Option<Mismatch> {
    let missing = wanted.keys().filter(|name| !held.contains_key(*name)).cloned().collect::<Vec<_>>();
    let extra = held.keys().filter(|name| !wanted.contains_key(*name)).cloned().collect::<Vec<_>>();
    let misshapen = wanted
        .iter()
        .filter_map(|(name, shape)| {
            held.get(name)
                .filter(|found| *found != shape)
                .map(|found| (name.clone(), shape.clone(), found.clone()))
        })
        .collect::<Vec<_>>();
    (!missing.is_empty() || !extra.is_empty() || !misshapen.is_empty()).then_some(Mismatch {
        missing,
        extra,
        misshapen,
    })
}

impl fmt::Display for Mismatch {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let misshapen = self
            .misshapen
            .iter()
            .map(|(name, wanted, held)| format!("{name} is {held:?} instead of {wanted:?}"))
            .collect::<Vec<_>>();
        let parts = [("missing", &self.missing), ("extra", &self.extra), ("misshapen", &misshapen)]
            .into_iter()
            .filter(|(_, names)| !names.is_empty())
            .map(|(kind, names)| format!("{} {kind} ({})", names.len(), list_names(names)))
            .collect::<Vec<_>>();
        write!(formatter, "{}", parts.join(", "))
    }
}

/// The first few names, and how many more there are.
pub(crate) fn list_names(names: &[String]) -> String {
    let shown = names.iter().take(NAMES_SHOWN).map(String::as_str).collect::<Vec<_>>().join(", ");
    match names.len().saturating_sub(NAMES_SHOWN) {
        0 => shown,
        more => format!("{shown}, and {more} more"),
    }
}

#[derive(Deserialize)]
struct Index {
    weight_map: BTreeMap<String, String>,
}

fn weight_files(model_dir: &Path) -> Result<Vec<PathBuf>, EngineError> {
    let index = model_dir.join("model.safetensors.index.json");
    if !index.exists() {
        return Ok(vec![model_dir.join("model.safetensors")]);
    }
    let refuse = |why: String| bad_model(format!("cannot read the weight index {}: {why}", index.display()));
    let text = std::fs::read(&index).map_err(|error| refuse(error.to_string()))?;
    let parsed: Index = serde_json::from_slice(&text).map_err(|error| refuse(error.to_string()))?;
    let files = parsed.weight_map.into_values().collect::<BTreeSet<_>>();
    if let Some(outside) = files.iter().find(|file| !is_plain_name(file)) {
        return Err(refuse(format!("`{outside}` is not the name of a file in this folder")));
    }
    Ok(files.into_iter().map(|file| model_dir.join(file)).collect())
}

fn is_plain_name(file: &str) -> bool {
    let mut components = Path::new(file).components();
    matches!((components.next(), components.next()), (Some(Component::Normal(_)), None))
}

/// Reads a file's header and checks that the file is exactly as long as the header says.
fn read_header(path: &Path) -> Result<Metadata, String> {
    let mut file = File::open(path).map_err(|error| error.to_string())?;
    let file_bytes = file.metadata().map_err(|error| error.to_string())?.len();
    let mut length = [0; 8];
    file.read_exact(&mut length).map_err(|_| format!("{file_bytes} bytes cannot hold a header"))?;
    let header_bytes = u64::from_le_bytes(length);
    if header_bytes > MAX_HEADER_BYTES.min(file_bytes.saturating_sub(8)) {
        return Err(format!("a header of {header_bytes} bytes does not fit in {file_bytes} bytes"));
    }
    let mut header = vec![0; header_bytes as usize];
    file.read_exact(&mut header).map_err(|error| error.to_string())?;
    let metadata: Metadata = serde_json::from_slice(&header).map_err(|error| error.to_string())?;
    let expected_bytes = 8 + header_bytes + metadata.data_len() as u64;
    if expected_bytes != file_bytes {
        return Err(format!("the header describes {expected_bytes} bytes, the file has {file_bytes}"));
    }
    Ok(metadata)
}

#[cfg(test)]
mod tests {
    use super::*;
    use safetensors::{Dtype, tensor::TensorView};

    fn shapes(list: &[(&str, &[usize])]) -> Shapes {
        list.iter().map(|(name, shape)| ((*name).to_owned(), shape.to_vec())).collect()
    }

    fn write(path: &Path, list: &[(&str, &[usize])]) {
        let data = vec![0u8; 4096];
        let views = list.iter().map(|(name, shape)| {
            let bytes = 4 * shape.iter().product::<usize>();
            (*name, TensorView::new(Dtype::F32, shape.to_vec(), &data[..bytes]).unwrap())
        });
        safetensors::serialize_to_file(views, None, path).unwrap();
    }

    #[test]
    fn equal_names_and_shapes_fit() {
        let same = shapes(&[("a", &[2, 3]), ("b", &[])]);
        assert_eq!(mismatch(&same, &same.clone()), None);
    }

    #[test]
    fn every_difference_is_named() {
        let wanted = shapes(&[("a", &[2, 3]), ("b", &[4]), ("c", &[1])]);
        let held = shapes(&[("a", &[3, 2]), ("c", &[1]), ("d", &[9])]);
        let found = mismatch(&wanted, &held).unwrap();
        assert_eq!(
            found.to_string(),
            "1 missing (b), 1 extra (d), 1 misshapen (a is [3, 2] instead of [2, 3])"
        );
    }

    #[test]
    fn long_lists_show_five_names_and_a_count() {
        let wanted = ["a", "b", "c", "d", "e", "f", "g"].map(|name| (name, &[1][..]));
        let found = mismatch(&shapes(&wanted), &Shapes::new()).unwrap();
        assert_eq!(found.to_string(), "7 missing (a, b, c, d, e, and 2 more)");
    }

    #[test]
    fn shapes_come_from_all_indexed_files_and_no_others() {
        let dir = tempfile::tempdir().unwrap();
        write(&dir.path().join("one.safetensors"), &[("a", &[2, 3])]);
        write(&dir.path().join("two.safetensors"), &[("b", &[4])]);
        write(&dir.path().join("model.safetensors"), &[("ignored", &[1])]);
        let index = r#"{"metadata":{},"weight_map":{"a":"one.safetensors","b":"two.safetensors"}}"#;
        std::fs::write(dir.path().join("model.safetensors.index.json"), index).unwrap();
        assert_eq!(read_shapes(dir.path()), Ok(shapes(&[("a", &[2, 3]), ("b", &[4])])));
    }

    #[test]
    fn a_name_in_two_files_is_refused() {
        let dir = tempfile::tempdir().unwrap();
        write(&dir.path().join("one.safetensors"), &[("a", &[2])]);
        write(&dir.path().join("two.safetensors"), &[("a", &[2]), ("b", &[1])]);
        let index = r#"{"weight_map":{"a":"one.safetensors","b":"two.safetensors"}}"#;
        std::fs::write(dir.path().join("model.safetensors.index.json"), index).unwrap();
        assert!(read_shapes(dir.path()).unwrap_err().message.contains("repeats tensor `a`"));
    }

    #[test]
    fn broken_files_are_refused_with_the_reason() {
        let whole = tempfile::tempdir().unwrap();
        let file = whole.path().join("model.safetensors");
        write(&file, &[("a", &[2, 3])]);
        let bytes = std::fs::read(&file).unwrap();
        let longer = [&bytes[..], &[0]].concat();
        let cases: [(&[u8], &str); 6] = [
            (b"", "0 bytes cannot hold a header"),
            (&bytes[..20], "does not fit in 20 bytes"),
            (&bytes[..bytes.len() - 1], "the header describes"),
            (&longer, "the header describes"),
            (b"\x02\0\0\0\0\0\0\0xx", "expected value"),
            (&[0xff; 64], "does not fit in 64 bytes"),
        ];
        for (content, why) in cases {
            std::fs::write(&file, content).unwrap();
            let error = read_shapes(whole.path()).unwrap_err();
            assert_eq!(error.kind, EngineErrorKind::BadModel);
            assert!(error.message.contains(why), "{} lacks {why}", error.message);
        }
        std::fs::remove_file(&file).unwrap();
        assert!(read_shapes(whole.path()).is_err());
    }

    #[test]
    fn an_index_cannot_name_files_outside_the_folder() {
        for file in ["../x.safetensors", "/x.safetensors", "a/b.safetensors", "..", ""] {
            assert!(!is_plain_name(file), "{file}");
        }
        assert!(is_plain_name("model-00001-of-00002.safetensors"));
    }
}
