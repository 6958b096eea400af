//! Random words, names and statements of C++ and Rust, the same for the same seed.

use std::collections::BTreeSet;

use rand_pcg::{
    Pcg64,
    rand_core::{Rng as _, SeedableRng as _},
};

/// A language of generated sources.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Language {
    /// A C++ source file.
    Cpp,
    /// A C++ header, which only declares.
    Header,
    /// A Rust source file.
    Rust,
}

const VERBS: [&str; 32] = [
    "apply", "bind", "build", "cast", "check", "clear", "copy", "encode", "expand", "fetch", "find", "flush",
    "fold", "gather", "infer", "join", "load", "make", "map", "merge", "pack", "pad", "parse", "quantize",
    "reduce", "resolve", "scan", "schedule", "split", "submit", "trace", "wrap",
];
const NOUNS: [&str; 48] = [
    "array", "axis", "barrier", "batch", "block", "buffer", "cache", "channel", "chunk", "cursor", "device",
    "encoder", "event", "fence", "frame", "graph", "group", "handle", "head", "index", "kernel", "key",
    "lane", "layout", "limit", "mask", "matrix", "module", "node", "offset", "option", "page", "plan",
    "pool", "queue", "range", "scale", "segment", "shape", "slot", "stream", "stride", "table", "tensor",
    "tile", "token", "vector", "window",
];
const TRAITS: [&str; 32] = [
    "active",
    "aligned",
    "contiguous",
    "default",
    "dense",
    "donated",
    "empty",
    "even",
    "exact",
    "external",
    "fast",
    "final",
    "fixed",
    "flat",
    "global",
    "inner",
    "last",
    "lazy",
    "local",
    "masked",
    "nested",
    "next",
    "outer",
    "packed",
    "partial",
    "pending",
    "ragged",
    "shared",
    "sparse",
    "stable",
    "strided",
    "tiled",
];

/// Numbers, words and names from one seed. No two names of functions are equal, whatever their case.
pub(crate) struct Random {
    rng: Pcg64,
    taken: BTreeSet<String>,
}

impl Random {
    pub(crate) fn new(seed: u64) -> Self {
        Self { rng: Pcg64::seed_from_u64(seed), taken: BTreeSet::new() }
    }

    /// A number below `limit`, which is not 0.
    pub(crate) fn below(&mut self, limit: usize) -> usize {
        usize::try_from(self.rng.next_u64() % limit as u64).expect("below a usize")
    }

    pub(crate) fn between(&mut self, low: usize, high: usize) -> usize {
        low + self.below(high - low + 1)
    }

    pub(crate) fn chance(&mut self, percent: usize) -> bool {
        self.below(100) < percent
    }

    pub(crate) fn pick<T: Copy>(&mut self, from: &[T]) -> T {
        from[self.below(from.len())]
    }

    /// A name that nothing else has, such as `fold_ragged_key_tile`.
    pub(crate) fn name(&mut self) -> String {
        loop {
            let words = [self.pick(&VERBS), self.pick(&TRAITS), self.pick(&NOUNS), self.pick(&NOUNS)];
            let name = words[..if self.chance(30) { 3 } else { 4 }].join("_");
            if self.taken.insert(name.clone()) {
                return name;
            }
        }
    }

    /// A name of a local variable; others have it, too.
    pub(crate) fn local(&mut self) -> String {
        match self.below(4) {
            0 => self.pick(&NOUNS).to_owned(),
            1 => format!("{}_{}", self.pick(&TRAITS), self.pick(&NOUNS)),
            2 => format!("{}_{}", self.pick(&NOUNS), self.pick(&NOUNS)),
            _ => self.pick(&["out", "result", "size", "n", "count", "i", "data", "x"]).to_owned(),
        }
    }

    /// A few words for a comment or a subject.
    pub(crate) fn phrase(&mut self) -> String {
        let (verb, kind, noun) = (self.pick(&VERBS), self.pick(&TRAITS), self.pick(&NOUNS));
        match self.below(3) {
            0 => format!("{verb} the {kind} {noun}"),
            1 => format!("{verb} each {noun} of a {kind} {}", self.pick(&NOUNS)),
            _ => format!("{verb} a {kind} {noun} before its {}", self.pick(&NOUNS)),
        }
    }

    /// The head of a function.
    pub(crate) fn signature(&mut self, language: Language, name: &str) -> String {
        let (one, other) = (self.pick(&NOUNS), self.pick(&TRAITS));
        match language {
            Language::Cpp | Language::Header => {
                let result = self.pick(&["array", "void", "std::vector<array>", "int", "Dtype"]);
                format!("{result} {name}(const array& {one}, int {other}_{one}, StreamOrDevice s)")
            }
            Language::Rust => {
                let result = self.pick(&["Result<Array>", "Vec<Array>", "usize", "Option<Array>"]);
                format!("pub fn {name}({one}: &Array, {other}_{one}: i32) -> {result}")
            }
        }
    }

    /// The body of a function, with a statement that only this function has in nearly every place.
    pub(crate) fn body(&mut self, language: Language, name: &str, statements: usize) -> Vec<String> {
        let mut lines: Vec<String> = (0..statements).flat_map(|_| self.statement(language, name)).collect();
        let last = self.local();
        lines.push(match language {
            Language::Rust => format!("    Ok({last})"),
            _ => format!("  return {last};"),
        });
        lines
    }

    /// One statement of one to three lines.
    pub(crate) fn statement(&mut self, language: Language, function: &str) -> Vec<String> {
        let (v, a, b) = (self.local(), self.local(), self.local());
        let (verb, noun, number) = (self.pick(&VERBS), self.pick(&NOUNS), self.below(64));
        let kind = self.below(10);
        let lines = match language {
            Language::Rust => match kind {
                0 => vec![format!("let {v} = {verb}_{noun}(&{a}, {b})?;")],
                1 => vec![format!("let {v} = {a}.shape()[{number}] as i32;")],
                2 => vec![
                    format!("if {a}.ndim() < {number} {{"),
                    format!("    return Err(Exception::custom(\"{function}: {a} needs {number} {noun}s\"));"),
                    "}".to_owned(),
                ],
                3 => vec![
                    format!("for {v} in 0..{a}.ndim() {{"),
                    format!("    {b}.push({a}.strides()[{v}] * {number});"),
                    "}".to_owned(),
                ],
                4 => vec![format!("{v}.{verb}({a}.{noun}())?;")],
                5 => vec![format!("// {}.", self.phrase())],
                6 => vec![format!("let {v} = {a}.is_{}() && {b} > {number};", self.pick(&TRAITS))],
                7 => vec![format!("let mut {v} = Vec::with_capacity({number});")],
                8 => vec![
                    format!("let Some({v}) = {a}.get({number}) else {{"),
                    "    return Ok(Default::default());".to_owned(),
                    "};".to_owned(),
                ],
                _ => vec![format!("{v} += {a} * {number} + {b};")],
            },
            _ => match kind {
                0 => vec![format!("auto {v} = {verb}_{noun}({a}, {b}, s);")],
                1 => vec![format!("int {v} = {a}.shape({number});")],
                2 => vec![
                    format!("if ({a}.ndim() < {number}) {{"),
                    format!("  throw std::invalid_argument(\"[{function}] {a} needs {number} {noun}s.\");"),
                    "}".to_owned(),
                ],
                3 => vec![
                    format!("for (int i = 0; i < {a}.ndim(); ++i) {{"),
                    format!("  {b}.push_back({a}.strides(i) * {number});"),
                    "}".to_owned(),
                ],
                4 => vec![format!("{v}.{verb}({a}.{noun}());")],
                5 => vec![format!("// {}.", self.phrase())],
                6 => vec![format!("const bool {v} = {a}.flags().{} && {b} > {number};", self.pick(&TRAITS))],
                7 => vec![format!("std::vector<int> {v}({number}, 0);")],
                8 => vec![format!("if (!{a}) {{"), "  return nullptr;".to_owned(), "}".to_owned()],
                _ => vec![format!("{v} += {a} * {number} + {b};")],
            },
        };
        let indent = if language == Language::Rust { "    " } else { "  " };
        lines.into_iter().map(|line| format!("{indent}{line}")).collect()
    }
}
