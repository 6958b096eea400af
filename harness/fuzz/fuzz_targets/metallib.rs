//! Feeds hostile bytes to everything that reads a Metal library. The input is read as a library, and as edits to a
//! sound synthetic one, which gets past the outer checks without a corpus.
#![no_main]

use std::sync::LazyLock;

use harness::build::metallib::{
    Library,
    audit::audit,
    bitcode::{Scratch, scan},
    diff::diff,
    identify::{ReleaseTable, identify},
    list,
    synthetic::{SyntheticKernel, SyntheticLibrary, SyntheticModule},
};
use libfuzzer_sys::fuzz_target;

static MODULE: LazyLock<Vec<u8>> = LazyLock::new(|| SyntheticModule::default().with_code_of("seed").build());
static LIBRARY: LazyLock<Vec<u8>> = LazyLock::new(|| {
    let mut library = SyntheticLibrary::of(&["arangeint32", "affine_qmm_t_nax_float", "v_copyint8int8"]);
    library.kernels[0] = SyntheticKernel { bitcode: MODULE.clone(), ..library.kernels[0].clone() };
    library.kernels[1].unknown = vec![(*b"NEWT", vec![1, 2, 3])];
    library.kernels[2].public_metadata = b"CNST\x02\x00ab".to_vec();
    library.build()
});
static TABLE: LazyLock<ReleaseTable> = LazyLock::new(ReleaseTable::carried);

fuzz_target!(|data: &[u8]| {
    read(data);
    read(&edited(&LIBRARY, data));
    let _ = scan(data, &mut Scratch::default());
    let _ = scan(&edited(&MODULE, data), &mut Scratch::default());
});

fn read(bytes: &[u8]) {
    let Ok(library) = Library::parse(bytes) else { return };
    let _ = list(&library);
    let _ = audit(&library, &Default::default());
    let _ = identify(&library, &TABLE);
    assert_eq!(diff(&library, &library).identical, library.functions.len());
    if let Ok(sound) = Library::parse(&LIBRARY) {
        let _ = diff(&sound, &library);
    }
}

/// `sound` with bytes replaced: each three bytes of `edits` are a place and a value.
fn edited(sound: &[u8], edits: &[u8]) -> Vec<u8> {
    let mut bytes = sound.to_vec();
    for edit in edits.chunks_exact(3) {
        let at = usize::from(u16::from_le_bytes([edit[0], edit[1]])) % bytes.len();
        bytes[at] = edit[2];
    }
    bytes
}
