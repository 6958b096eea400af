//! Times the audit and the diff on libraries of the official ones' size: 15,147 kernels, 107 MB of bitcode.
//! Targets on two cores: audit 0.25 s, diff 0.6 s.
//!
//! Official libraries are measured, too, where `REGRAFT_METALLIB` and `REGRAFT_METALLIB_NEWER` name two: opened, mapped and
//! parsed anew each time, as the commands do.

use std::{env, hint::black_box, path::Path};

use criterion::{Criterion, criterion_group, criterion_main};
use harness::build::metallib::{
    Library, LibraryFile,
    audit::{Wanted, audit},
    diff::diff,
    parse::Version,
    synthetic::{SyntheticKernel, SyntheticLibrary, SyntheticModule},
};

const KERNELS: usize = 15_147;
const CODE_BYTES: usize = 6_600;

fn library(sdk_minor: u64) -> Vec<u8> {
    // One module is written and its code then varied: writing bits is slow, and every kernel needs its own hash.
    let module =
        SyntheticModule { sdk: vec![26, sdk_minor], code: vec![0; CODE_BYTES], ..Default::default() }.build();
    let kernels = (0..KERNELS)
        .map(|index| {
            let name = format!("affine_qmm_t_float16_t_gs_64_b_4_alN_true_batch_{index}");
            let mut bitcode = module.clone();
            let middle = bitcode.len() - CODE_BYTES / 2;
            bitcode[middle..middle + 8].copy_from_slice(&(index as u64).to_le_bytes());
            SyntheticKernel { bitcode, ..SyntheticKernel::named(&name) }
        })
        .collect();
    SyntheticLibrary { kernels, ..SyntheticLibrary::of(&[]) }.build()
}

fn benches(c: &mut Criterion) {
    let (old, new) = (library(4), library(5));
    let mut group = c.benchmark_group("metallib");
    group.sample_size(10);
    group.bench_function("audit", |b| {
        b.iter(|| {
            let parsed = Library::parse(black_box(&old)).expect("the library is well-formed");
            let wanted = Wanted { deployment_target: Some(Version::new(14, 0)), kernels: None };
            assert!(audit(&parsed, &wanted).passes());
        });
    });
    group.bench_function("diff", |b| {
        b.iter(|| {
            let from = Library::parse(black_box(&old)).expect("the library is well-formed");
            let to = Library::parse(black_box(&new)).expect("the library is well-formed");
            assert_eq!(diff(&from, &to).metadata_only, KERNELS);
        });
    });
    let named = |name: &str| env::var_os(name).map(std::path::PathBuf::from);
    if let (Some(old), Some(new)) = (named("REGRAFT_METALLIB"), named("REGRAFT_METALLIB_NEWER")) {
        let open = |path: &Path| LibraryFile::open(path).expect("the library can be read");
        group.bench_function("audit of an official library", |b| {
            b.iter(|| {
                let file = open(&old);
                let parsed = file.parse().expect("the library is well-formed");
                assert!(audit(&parsed, &Wanted::default()).passes());
            });
        });
        group.bench_function("diff of official libraries", |b| {
            b.iter(|| {
                let (old, new) = (open(&old), open(&new));
                let from = old.parse().expect("the library is well-formed");
                let to = new.parse().expect("the library is well-formed");
                black_box(diff(&from, &to));
            });
        });
    }
    group.finish();
}

criterion_group!(metallib, benches);
criterion_main!(metallib);
