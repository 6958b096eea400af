//! The built program on Metal libraries: documents, texts, exit codes, and what it says to bad input.

#![allow(clippy::unwrap_used, reason = "helpers of tests may unwrap as tests do")]

use std::{fs, path::Path, process::Output};

use harness::build::metallib::{
    parse::Version,
    synthetic::{SyntheticKernel, SyntheticLibrary, SyntheticModule},
};
use serde_json::{Value, json};
use tempfile::TempDir;

/// Runs `metallib` with arguments that hold no spaces, in a folder with the libraries of [`libraries`].
#[expect(clippy::disallowed_methods, reason = "a test may start the program that it tests")]
fn metallib(dir: &Path, args: &str) -> Output {
    std::process::Command::new(env!("CARGO_BIN_EXE_xtask"))
        .args([
            "--root",
            Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap().to_str().unwrap(),
            "metallib",
        ])
        .args(args.split_whitespace())
        .current_dir(dir)
        .output()
        .unwrap()
}

fn document(output: &Output) -> Value {
    serde_json::from_slice(&output.stdout).unwrap()
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8(bytes.to_vec()).unwrap()
}

/// `old`: three kernels by SDK 26.4. `new`: the same by SDK 26.5, one with other code, one gone, one more. `bad`: one bit flipped.
fn libraries() -> TempDir {
    let library = |minor, kernels: &[(&str, &str)]| {
        let kernels = kernels
            .iter()
            .map(|(name, code)| {
                let module =
                    SyntheticModule { sdk: vec![26, minor], ..Default::default() }.with_code_of(code);
                SyntheticKernel { bitcode: module.build(), ..SyntheticKernel::named(name) }
            })
            .collect();
        SyntheticLibrary { kernels, ..SyntheticLibrary::of(&[]) }
    };
    let dir = tempfile::tempdir().unwrap();
    let write = |name: &str, bytes: &[u8]| fs::write(dir.path().join(name), bytes).unwrap();
    let old = library(4, &[("arangeint32", "a"), ("rope_float16", "r"), ("v_copyint8int8", "c")]);
    write("old", &old.build());
    write(
        "new",
        &library(5, &[("arangeint32", "a"), ("rope_float16", "other"), ("rope_float32", "n")]).build(),
    );
    let mut nax = library(4, &[("affine_qmm_t_nax_float", "q")]);
    nax.os_floor = Version::new(26, 0);
    write("nax", &nax.build());
    let mut bad = old.build();
    // In the code of the last kernel: its metadata, which the audit reads too, lies before.
    let in_code = bad.len() - 100;
    bad[in_code] ^= 1;
    write("bad", &bad);
    write("cut", &old.build()[..500]);
    write("wheel", b"PK\x03\x04");
    write("kernels", b"# wanted\narangeint32\nrope_float16\nv_copyint8int8\n");
    write("more-kernels", b"arangeint32\nrope_float16\nv_copyint8int8\nmissing_one\n");
    write("no-kernels", b"two words\n");
    dir
}

#[test]
fn list_shows_header_and_functions() {
    let dir = libraries();
    let output = metallib(dir.path(), "list old --format json");
    assert_eq!((output.status.code(), text(&output.stderr).as_str()), (Some(0), ""));
    let list = document(&output);
    assert_eq!(list["schema"], json!({"name": "metallib-list", "version": 1}));
    assert_eq!((&list["header"]["format"], &list["header"]["os_floor"]), (&json!("2.7"), &json!("14.0")));
    assert_eq!(list["toolchains"][0]["sdk"], "26.4");
    let first = &list["functions"][0];
    assert_eq!(
        (&first["name"], &first["hash_ok"], &first["msl"]),
        (&json!("arangeint32"), &json!(true), &json!("3.1"))
    );
    assert_eq!(list["functions"].as_array().unwrap().len(), 3);
    let people = text(&metallib(dir.path(), "list old").stdout);
    assert!(people.starts_with("old: 3 functions, format 2.7, macos 14.0 and later, "), "{people}");
    assert!(
        people.contains("compiled by synthetic metal 1, SDK 26.4, for air64-apple-macosx14.0.0: 3 functions")
    );
}

#[test]
fn diff_tells_meaning_from_metadata() {
    let dir = libraries();
    let output = metallib(dir.path(), "diff old new --format json");
    assert_eq!(output.status.code(), Some(0));
    let diff = document(&output);
    assert_eq!(diff["schema"], json!({"name": "metallib-diff", "version": 1}));
    assert_eq!(diff["added"], json!(["rope_float32"]));
    assert_eq!(diff["removed"], json!(["v_copyint8int8"]));
    assert_eq!(diff["changed"], json!(["rope_float16"]));
    assert_eq!((&diff["metadata_only"], &diff["identical"]), (&json!(1), &json!(0)));
    assert_eq!(diff["rule"]["name"], "sdk-version-normalised");
    assert_eq!(
        diff["families"]["rope"],
        json!({"added": 1, "removed": 0, "changed": 1, "metadata_only": 0, "identical": 0})
    );
    let people = text(&metallib(dir.path(), "diff old new").stdout);
    assert!(people.contains("       1      0      1 of      2  rope\n"), "{people}");
}

#[test]
fn audit_passes_warns_and_fails_with_its_exit_code() {
    let dir = libraries();
    let cases = [
        ("old", 0, true, ""),
        ("old --expect kernels --deployment-target 14.0", 0, true, ""),
        ("nax", 0, true, "nax-floor"),
        ("old --expect more-kernels", 1, false, "missing-kernel"),
        ("old --deployment-target 13", 1, false, "floor-too-high"),
        ("bad", 1, false, "hash-mismatch"),
    ];
    for (args, code, passes, finding) in cases {
        let output = metallib(dir.path(), &format!("audit --format json {args}"));
        assert_eq!(output.status.code(), Some(code), "{args}");
        let audit = document(&output);
        assert_eq!(audit["passes"], passes, "{args}");
        let findings: Vec<&Value> =
            audit["findings"].as_array().unwrap().iter().map(|f| &f["code"]).collect();
        assert_eq!(findings, if finding.is_empty() { vec![] } else { vec![finding] }, "{args}");
    }
    let people = text(&metallib(dir.path(), "audit old --expect more-kernels").stdout);
    assert!(people.ends_with(
        "error: 1 of 4 wanted kernels are not in the library [missing-kernel]\n  missing_one\nfail\n"
    ));
}

#[test]
fn a_measured_library_enters_the_table_that_was_named() {
    let dir = libraries();
    let table = dir.path().join("table.json");
    fs::write(&table, r#"{"schema": "s", "made_by": "m", "releases": []}"#).unwrap();
    for _ in 0..2 {
        let output = metallib(dir.path(), "learn old --release 9.9.9 --macos 14 --table table.json");
        assert_eq!(text(&output.stdout), "mlx-metal 9.9.9 for macOS 14: measured, 1 releases known\n");
    }
    let table: Value = serde_json::from_slice(&fs::read(table).unwrap()).unwrap();
    assert_eq!(
        (&table["releases"][0]["functions"], &table["releases"][0]["sdk"]),
        (&json!(3), &json!("26.4"))
    );
}

#[test]
fn a_library_like_no_release_is_a_finding() {
    let dir = libraries();
    let output = metallib(dir.path(), "identify old --format json");
    assert_eq!(output.status.code(), Some(1));
    let identity = document(&output);
    assert_eq!((&identity["verdict"], &identity["release"]), (&json!("unknown"), &Value::Null));
}

#[test]
fn bad_input_gets_one_error_with_a_hint() {
    let dir = libraries();
    let cases = [
        ("list absent", 2, "cannot read Metal library absent", "pass a readable file"),
        ("list .", 2, "not a regular file", "pass a readable file"),
        ("audit cut", 1, "at byte 16: the header states", "build or download it again"),
        ("diff old cut", 1, "cannot make sense of Metal library cut", "build or download it again"),
        ("identify wheel", 2, "not a Metal library but a zip archive", "unpack mlx/lib/mlx.metallib"),
        ("audit old --expect absent", 2, "cannot read kernel list absent", "check the path"),
        ("audit old --expect .", 2, "it is a folder, not a regular file", "name a file in it"),
        ("audit old --expect no-kernels", 2, "line 1: expected one kernel name", "one kernel name a line"),
        (
            "learn old --release 1 --macos 14 --table kernels",
            2,
            "cannot read release table kernels",
            "restore",
        ),
    ];
    for (args, code, wanted, hint) in cases {
        let output = metallib(dir.path(), args);
        let stderr = text(&output.stderr);
        assert_eq!(output.status.code(), Some(code), "{args}: {stderr}");
        assert!(stderr.contains(wanted), "{args}: {stderr}");
        assert!(
            stderr.lines().last().unwrap().starts_with("  hint: ") && stderr.contains(hint),
            "{args}: {stderr}"
        );
        assert_eq!(text(&output.stdout), "", "{args}");
    }
    let output = metallib(dir.path(), "audit old --deployment-target new");
    assert_eq!(output.status.code(), Some(2));
    assert!(text(&output.stderr).contains("`new` is not a version such as 14.0 or 26.2"));
}
