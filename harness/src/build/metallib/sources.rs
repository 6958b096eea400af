//! Which kernels a library must hold, told from MLX's kernel sources: the files that its CMake list compiles for a deployment
//! target, run through the C preprocessor, which unfolds the macros that instantiate kernels. Needs no Apple tool.

use std::{
    collections::BTreeSet,
    fs, io,
    path::{Path, PathBuf},
    time::Duration,
};

use rayon::prelude::*;

use super::{
    inventory::toolchains,
    parse::{Library, Version},
};
use crate::{
    evidence::tokens::{Language, Token, TokenKind, tokens},
    tools::{
        file::{self, Most},
        process::{Invocation, ProcessError},
    },
};

/// Where kernels lie below MLX's root.
const KERNELS: &str = "mlx/backend/metal/kernels";

/// How long one file may take; the largest takes a quarter of a second.
const TIMEOUT: Duration = Duration::from_secs(120);

/// When kernels are compiled.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kernels {
    /// All of them ahead of time.
    AheadOfTime,
    /// Most of them at run time (`MLX_METAL_JIT`): the library holds the others only.
    JustInTime,
}

/// What decides which kernels are compiled.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Setting {
    /// The oldest macOS that the library is for.
    pub target: Version,
    /// The SDK that it is compiled with.
    pub sdk: Version,
    /// When kernels are compiled.
    pub kernels: Kernels,
}

impl Setting {
    /// How a library was made, as it says itself: its OS floor, and the newest SDK of its functions.
    pub fn of(library: &Library<'_>, kernels: Kernels) -> Self {
        let target = library.header.os_floor;
        let sdks = toolchains(library).into_keys().filter_map(|toolchain| toolchain.sdk?.parse().ok());
        Self { target, sdk: sdks.max().unwrap_or(target), kernels }
    }
}

/// Why the kernels cannot be told.
#[derive(Debug, thiserror::Error)]
pub enum SourcesError {
    /// A file is missing or unreadable.
    #[error("cannot read `{}`", .path.display())]
    Read {
        /// The file.
        path: PathBuf,
        /// What the system said.
        #[source]
        source: io::Error,
    },
    /// The CMake list names no kernel.
    #[error("`{}` names no kernel", .path.display())]
    NoKernels {
        /// The list.
        path: PathBuf,
    },
    /// The preprocessor failed.
    #[error("cannot unfold the kernel file `{file}`")]
    Preprocess {
        /// The kernel file, below the kernels' folder.
        file: String,
        /// Why.
        #[source]
        source: Box<ProcessError>,
    },
}

impl SourcesError {
    /// What to try.
    pub fn hint(&self) -> Option<String> {
        match self {
            Self::Read { .. } | Self::NoKernels { .. } => {
                Some(format!("name the root of MLX's sources, which holds `{KERNELS}`"))
            }
            Self::Preprocess { source, .. } => source.hint(),
        }
    }
}

/// The names of all kernels that MLX's sources at `root` instantiate.
///
/// # Errors
/// See [`SourcesError`].
pub fn expected_kernels(root: &Path, setting: &Setting) -> Result<BTreeSet<String>, SourcesError> {
    let files = compiled_kernels(root, setting)?;
    let stubs = system_headers(root, &root.join(KERNELS))?;
    let unfolded: Vec<BTreeSet<String>> = files
        .par_iter()
        .map(|file| {
            let done = Invocation::new("cc")
                .args(["-E", "-P", "-x", "c++", "-nostdinc", "-D__METAL__"])
                .arg(format!("-D__METAL_VERSION__={}", language_version(setting.target)))
                .arg("-I")
                .arg(root)
                .arg("-I")
                .arg(stubs.path())
                .arg(kernel_file(root, file))
                .timeout(TIMEOUT)
                .run_ok()
                .map_err(|source| SourcesError::Preprocess {
                    file: file.clone(),
                    source: Box::new(source),
                })?;
            Ok(kernel_names(&done.stdout_bytes))
        })
        .collect::<Result<_, SourcesError>>()?;
    Ok(unfolded.into_iter().flatten().collect())
}

/// The kernel files that MLX's CMake list compiles, without `.metal`, below the kernels' folder.
///
/// # Errors
/// When the list is missing or names none.
pub fn compiled_kernels(root: &Path, setting: &Setting) -> Result<Vec<String>, SourcesError> {
    let list = root.join(KERNELS).join("CMakeLists.txt");
    let files = compiled_files(&read(&list)?, setting);
    if files.is_empty() { Err(SourcesError::NoKernels { path: list }) } else { Ok(files) }
}

/// Where a kernel file lies.
pub fn kernel_file(root: &Path, file: &str) -> PathBuf {
    root.join(KERNELS).join(format!("{file}.metal"))
}

/// The Metal language version that a deployment target brings, as `__METAL_VERSION__` and MLX's CMake have it.
fn language_version(target: Version) -> u32 {
    match target.major {
        ..=14 => 310,
        15 => 320,
        _ => 400,
    }
}

/// The kernel files that MLX's CMake list compiles, without `.metal`: every `build_kernel(NAME …)` whose enclosing `if`s
/// hold. A condition that is not known is taken to hold: a kernel too many is told as missing, and looked at.
fn compiled_files(list: &str, setting: &Setting) -> Vec<String> {
    let mut enclosing: Vec<bool> = Vec::new();
    let mut files = Vec::new();
    for call in calls(list) {
        match call.command.as_str() {
            "if" => enclosing.push(holds(&call.arguments, setting)),
            "else" | "elseif" => {
                if let Some(last) = enclosing.last_mut() {
                    *last = !*last;
                }
            }
            "endif" => {
                enclosing.pop();
            }
            "build_kernel" if enclosing.iter().all(|holds| *holds) => {
                files.extend(call.arguments.split_whitespace().next().map(str::to_owned));
            }
            _ => {}
        }
    }
    files
}

fn holds(condition: &str, setting: &Setting) -> bool {
    let words: Vec<&str> =
        condition.split(|c: char| c.is_whitespace() || "()".contains(c)).filter(|w| !w.is_empty()).collect();
    let parts = words.split(|word| *word == "AND");
    parts.into_iter().all(|part| match part {
        ["NOT", "MLX_METAL_JIT"] => setting.kernels == Kernels::AheadOfTime,
        ["MLX_METAL_JIT"] => setting.kernels == Kernels::JustInTime,
        ["MLX_METAL_VERSION", "GREATER_EQUAL", version] => {
            version.parse().is_ok_and(|version| language_version(setting.target) >= version)
        }
        ["MACOS_SDK_VERSION", "GREATER_EQUAL", version] => {
            version.parse().is_ok_and(|version: Version| setting.sdk >= version)
        }
        ["CMAKE_OSX_DEPLOYMENT_TARGET", "GREATER_EQUAL", version] => {
            version.parse().is_ok_and(|version: Version| setting.target >= version)
        }
        _ => true,
    })
}

struct Call {
    command: String,
    arguments: String,
}

/// The command calls of a CMake file, comments left out.
fn calls(text: &str) -> Vec<Call> {
    let plain: String =
        text.lines().map(|line| line.split('#').next().unwrap_or_default().to_owned() + "\n").collect();
    let mut calls = Vec::new();
    let mut rest = plain.as_str();
    while let Some(open) = rest.find('(') {
        let command = rest[..open].split_whitespace().next_back().unwrap_or_default().to_lowercase();
        let mut depth = 0_usize;
        let close = rest[open..].char_indices().find_map(|(at, c)| {
            match c {
                '(' => depth += 1,
                ')' => depth -= 1,
                _ => {}
            }
            (depth == 0).then_some(open + at)
        });
        let Some(close) = close else { break };
        calls.push(Call { command, arguments: rest[open + 1..close].to_owned() });
        rest = &rest[close + 1..];
    }
    calls
}

/// A folder with an empty file for every header that the kernels include and that MLX does not hold: Apple's own. Kernels are
/// instantiated by MLX's macros alone.
fn system_headers(root: &Path, kernels: &Path) -> Result<tempfile::TempDir, SourcesError> {
    let failed = |path: &Path| {
        let path = path.to_owned();
        move |source| SourcesError::Read { path, source }
    };
    let folder = tempfile::tempdir().map_err(failed(Path::new("a temporary folder")))?;
    let mut open = vec![kernels.to_owned()];
    while let Some(inner) = open.pop() {
        for entry in fs::read_dir(&inner).map_err(failed(&inner))? {
            let path = entry.map_err(failed(&inner))?.path();
            if path.is_dir() {
                open.push(path);
                continue;
            }
            let Ok(text) = file::text(&path, Most::Configuration) else { continue };
            let included = text.lines().filter_map(|line| {
                line.trim().strip_prefix("#include")?.trim().strip_prefix('<')?.split('>').next()
            });
            for header in included.filter(|header| !header.split('/').any(|part| part == "..")) {
                let stub = folder.path().join(header.trim_start_matches('/'));
                if root.join(header).is_file() || stub.is_file() {
                    continue;
                }
                let parent = stub.parent().unwrap_or(folder.path());
                fs::create_dir_all(parent).and_then(|()| fs::write(&stub, "")).map_err(failed(&stub))?;
            }
        }
    }
    Ok(folder)
}

/// The kernels of an unfolded source: every `host_name("…")`, and every `[[kernel]] void name(` or `kernel void name(` that is
/// neither a template nor an instantiation of one.
fn kernel_names(unfolded: &[u8]) -> BTreeSet<String> {
    let tokens = tokens(Language::C, unfolded);
    let is = |at: usize, text: &str| tokens.get(at).is_some_and(|token| token.text == text.as_bytes());
    let mut names = BTreeSet::new();
    for (at, token) in tokens.iter().enumerate().filter(|(_, token)| token.kind == TokenKind::Word) {
        if token.text == b"host_name" && is(at + 1, "(") {
            let literals = tokens[at + 2..].iter().take_while(|token| token.kind == TokenKind::Text);
            let name: String = literals.map(unquoted).collect();
            names.extend(Some(name).filter(|name| !name.is_empty()));
        }
        if token.text == b"kernel" {
            let mut after = at + 1;
            while is(after, "]") {
                after += 1;
            }
            let named = tokens.get(after + 1).filter(|name| name.kind == TokenKind::Word);
            let Some(named) = named.filter(|_| is(after, "void") && is(after + 2, "(")) else { continue };
            if !is_template(&tokens[..at]) {
                names.insert(String::from_utf8_lossy(named.text).into_owned());
            }
        }
    }
    names
}

/// Whether what stands before `kernel`, attributes aside, makes it a template or an instantiation of one.
fn is_template(before: &[Token<'_>]) -> bool {
    let mut end = before.len();
    while end > 0 && before[end - 1].text == b"[" {
        end -= 1;
    }
    // Whole attributes that stand before this one.
    while end > 0 && before[end - 1].text == b"]" {
        while end > 0 && before[end - 1].text != b"[" {
            end -= 1;
        }
        while end > 0 && before[end - 1].text == b"[" {
            end -= 1;
        }
    }
    end > 0 && matches!(before[end - 1].text, b">" | b"template")
}

fn unquoted(token: &Token<'_>) -> String {
    let text = String::from_utf8_lossy(token.text);
    text.trim_matches('"').to_owned()
}

fn read(path: &Path) -> Result<String, SourcesError> {
    file::text(path, Most::Configuration)
        .map_err(|source| SourcesError::Read { path: path.to_owned(), source })
}

#[cfg(test)]
mod tests {
    use super::*;

    const LIST: &str = "function(build_kernel KERNEL)\n  foo()\nendfunction()\n# build_kernel(gone)\nbuild_kernel(rope)\n\
        if(MLX_METAL_VERSION GREATER_EQUAL 320)\n  build_kernel(fence)\nendif()\nif(NOT MLX_METAL_JIT)\n  build_kernel(\n    \
        reduce\n    atomic.h)\n  if((MLX_METAL_VERSION GREATER_EQUAL 400) AND (MACOS_SDK_VERSION GREATER_EQUAL\n 26.2))\n    \
        build_kernel(steel/a_nax ${H})\n  else()\n    target(x)\n  endif()\nendif()\n";

    #[test]
    fn a_target_and_the_way_of_compiling_choose_the_files() {
        let files = |major, sdk_minor, kernels| {
            let (target, sdk) = (Version::new(major, 0), Version::new(26, sdk_minor));
            compiled_files(LIST, &Setting { target, sdk, kernels }).join(" ")
        };
        assert_eq!(files(14, 4, Kernels::AheadOfTime), "rope reduce");
        assert_eq!(files(15, 4, Kernels::AheadOfTime), "rope fence reduce");
        assert_eq!(files(26, 0, Kernels::AheadOfTime), "rope fence reduce");
        assert_eq!(files(26, 2, Kernels::AheadOfTime), "rope fence reduce steel/a_nax");
        assert_eq!(files(26, 2, Kernels::JustInTime), "rope fence");
    }

    #[test]
    fn kernels_are_told_from_templates_and_their_instantiations() {
        let unfolded = br#"
            template <typename T, int N> [[kernel]] void unfold(T x) {}
            template [[host_name("unfold_" "float" "_1")]] [[kernel]] void unfold(float x);
            template [[host_name("rope_" "f")]] [[kernel]] decltype(rope<f>) rope<f>;
            struct S {}; [[kernel]] void rbits(int x) {}
            kernel void plain(int x) {} // kernel void comment(
        "#;
        let names: Vec<String> = kernel_names(unfolded).into_iter().collect();
        assert_eq!(names, ["plain", "rbits", "rope_f", "unfold_float_1"]);
    }

    #[test]
    fn sources_are_unfolded_with_macros_and_apples_headers_left_out() {
        let dir = tempfile::tempdir().unwrap();
        let kernels = dir.path().join(KERNELS);
        let write = |name: &str, text: &str| {
            fs::create_dir_all(&kernels).unwrap();
            fs::write(kernels.join(name), text).unwrap();
        };
        write("CMakeLists.txt", "build_kernel(one two.h)\n");
        write(
            "two.h",
            "#include <metal_stdlib>\n#define make(t) template [[host_name(\"k_\" #t)]] [[kernel]] void k(t);\n",
        );
        write(
            "one.metal",
            "#include <apple/nowhere.h>\n#include \"mlx/backend/metal/kernels/two.h\"\nmake(half)\n#if __METAL_VERSION__ >= 400\n\
             make(wide)\n#endif\n",
        );
        let setting = |major| {
            let version = Version::new(major, 0);
            Setting { target: version, sdk: version, kernels: Kernels::AheadOfTime }
        };
        let names = |major| -> Vec<String> {
            expected_kernels(dir.path(), &setting(major)).unwrap().into_iter().collect()
        };
        assert_eq!(names(14), ["k_half"]);
        assert_eq!(names(26), ["k_half", "k_wide"]);
        let error = expected_kernels(&kernels, &setting(14)).unwrap_err();
        assert!(error.hint().unwrap().contains("root of MLX's sources"), "{error}");
        write("CMakeLists.txt", "build_kernel(absent)\n");
        let error = expected_kernels(dir.path(), &setting(14)).unwrap_err();
        assert_eq!(error.to_string(), "cannot unfold the kernel file `absent`");
    }
}
