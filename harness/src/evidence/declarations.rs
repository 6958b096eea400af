//! Do headers and sources say the same? Compares the functions with C linkage that a tree's headers declare with those
//! that its sources define. C++ functions, which may be overloaded, are left alone.

use std::collections::{BTreeMap, BTreeSet, HashMap, hash_map::Entry};

use rayon::prelude::*;
use serde::Serialize;

use crate::tools::git::{
    ids::{EntryId, TreeId},
    store::{MODE_EXECUTABLE, MODE_FILE, Store, StoreError},
    tree_path::TreePath,
};

/// A header and a source that do not agree about a function.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize)]
pub struct Mismatch {
    /// The function.
    pub function: String,
    /// What is wrong.
    pub kind: MismatchKind,
    /// Where it is declared, if it is.
    pub declared: Option<Place>,
    /// Where it is defined, if it is.
    pub defined: Option<Place>,
    /// The first patch of the stack since which it has been so; absent when it was so before.
    pub since_patch: Option<usize>,
}

/// How header and source differ.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum MismatchKind {
    /// Both know the function, with other parameters or another result.
    Signature,
    /// A header declares what no source defines, though its other functions are defined.
    Undefined,
    /// A source exports what no header declares, though its other functions are declared.
    Undeclared,
}

/// One side of a disagreement.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize)]
pub struct Place {
    /// The file.
    pub path: String,
    /// The line on which the declaration or definition begins, counted from 1.
    pub line: usize,
    /// Result and parameter types, without names.
    pub signature: String,
}

/// A function as a file states it.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Stated {
    name: String,
    signature: String,
    line: usize,
    defined: bool,
}

/// The disagreements in a tree, by function.
///
/// # Errors
/// When objects are missing.
pub fn mismatches(store: &Store, tree: TreeId) -> Result<Vec<Mismatch>, StoreError> {
    let mut texts = Vec::new();
    let mut sources = Vec::new();
    for change in store.changes(store.empty_tree()?, tree)? {
        if let Some(entry) = change.new.filter(|entry| matches!(entry.mode, MODE_FILE | MODE_EXECUTABLE))
            && let Some(side) = side_of(&change.path)
        {
            if side != Side::Header {
                sources.push(entry.id);
            }
            let text = store.blob(entry.id)?;
            if may_state(&text, side) {
                texts.push((change.path, text, side));
            }
        }
    }
    let stated = texts.into_par_iter().map(|(path, text, side)| (path, stated_by(&text, side))).collect();
    let mut found = disagreements(&stated);
    // Macros define functions, too, and C++ sources need not repeat the linkage of a header.
    let undefined = |mismatch: &Mismatch| mismatch.kind == MismatchKind::Undefined;
    let mut open: BTreeSet<String> = found
        .iter()
        .filter(|mismatch| undefined(mismatch))
        .map(|mismatch| mismatch.function.clone())
        .collect();
    for source in sources {
        if open.is_empty() {
            break;
        }
        let bytes = store.blob(source)?;
        let text = String::from_utf8_lossy(&bytes);
        open.retain(|name| !mentions(&text, name));
    }
    found.retain(|mismatch| !undefined(mismatch) || open.contains(&mismatch.function));
    Ok(found)
}

/// Says for each disagreement since which patch it has been there: `trees` are those after each patch, in order, with
/// the patch's number, and before them the stack's base.
///
/// # Errors
/// When objects are missing.
pub fn blame(
    store: &Store,
    found: &mut [Mismatch],
    base: TreeId,
    trees: &[(usize, TreeId)],
) -> Result<(), StoreError> {
    let mut known: HashMap<(EntryId, Side), Vec<Stated>> = HashMap::new();
    for mismatch in found {
        let places = [&mismatch.declared, &mismatch.defined];
        let paths: BTreeSet<TreePath> = places
            .into_iter()
            .flatten()
            .filter_map(|place| TreePath::new(place.path.as_bytes()).ok())
            .collect();
        let mut since = None;
        // Most patches leave both files alone: what was found at the one before holds.
        let mut last: Option<(Vec<Option<EntryId>>, bool)> = None;
        for &(number, tree) in [(0, base)].iter().chain(trees) {
            let mut entries = Vec::new();
            for path in &paths {
                entries.push(store.entry(tree, path)?.map(|entry| entry.id));
            }
            let there = match &last {
                Some((same, there)) if *same == entries => *there,
                _ => {
                    let mut stated = BTreeMap::new();
                    for (path, id) in paths.iter().zip(&entries) {
                        let (Some(id), Some(side)) = (*id, side_of(path)) else { continue };
                        let functions = match known.entry((id, side)) {
                            Entry::Occupied(known) => known.get().clone(),
                            Entry::Vacant(unknown) => {
                                let text = store.blob(id)?;
                                let functions =
                                    if may_state(&text, side) { stated_by(&text, side) } else { Vec::new() };
                                unknown.insert(functions).clone()
                            }
                        };
                        stated.insert(path.clone(), functions);
                    }
                    match mismatch.kind {
                        MismatchKind::Signature => {
                            disagreements(&stated).iter().any(|other| other.function == mismatch.function)
                        }
                        _ => stated.values().flatten().any(|function| function.name == mismatch.function),
                    }
                }
            };
            last = Some((entries, there));
            match there {
                true => since = since.or(Some(number)),
                false => since = None,
            }
        }
        mismatch.since_patch = since.filter(|number| *number > 0);
    }
    Ok(())
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
enum Side {
    Header,
    CSource,
    CppSource,
}

fn side_of(path: &TreePath) -> Option<Side> {
    let name = path.as_bytes().rsplit(|&byte| byte == b'.').next()?;
    Some(match name {
        b"h" | b"hpp" | b"hh" => Side::Header,
        b"c" | b"m" => Side::CSource,
        b"cc" | b"cpp" | b"cxx" | b"mm" => Side::CppSource,
        _ => return None,
    })
}

/// Whether a text can hold functions of C linkage: most files of a C++ tree export nothing to C.
fn may_state(text: &[u8], side: Side) -> bool {
    side == Side::CSource || memchr::memmem::find(text, b"extern \"C\"").is_some()
}

fn stated_by(text: &[u8], side: Side) -> Vec<Stated> {
    let linkage = if side == Side::CSource { Linkage::C } else { Linkage::Cpp };
    functions(&String::from_utf8_lossy(text), linkage)
}

fn disagreements(files: &BTreeMap<TreePath, Vec<Stated>>) -> Vec<Mismatch> {
    let mut declared: BTreeMap<&str, Vec<(&TreePath, &Stated)>> = BTreeMap::new();
    let mut defined: BTreeMap<&str, Vec<(&TreePath, &Stated)>> = BTreeMap::new();
    for (path, functions) in files {
        for function in functions {
            let side = match (function.defined, side_of(path)) {
                (true, _) => &mut defined,
                (false, Some(Side::Header)) => &mut declared,
                _ => continue,
            };
            side.entry(&function.name).or_default().push((path, function));
        }
    }
    let place = |(path, function): &(&TreePath, &Stated)| Place {
        path: path.to_string(),
        line: function.line,
        signature: function.signature.clone(),
    };
    let mut found = Vec::new();
    for (name, headers) in &declared {
        let Some(sources) = defined.get(name) else {
            let (path, _) = headers[0];
            // A header whose functions are defined nowhere here belongs to some other library.
            let is_ours =
                files[path].iter().any(|other| !other.defined && defined.contains_key(other.name.as_str()));
            if is_ours {
                found.push(mismatch(name, MismatchKind::Undefined, Some(place(&headers[0])), None));
            }
            continue;
        };
        for header in headers {
            if sources.iter().all(|source| source.1.signature != header.1.signature) {
                let (header, source) = (Some(place(header)), Some(place(&sources[0])));
                found.push(mismatch(name, MismatchKind::Signature, header, source));
            }
        }
    }
    for (name, sources) in &defined {
        let (path, _) = sources[0];
        let is_ours =
            files[path].iter().any(|other| other.defined && declared.contains_key(other.name.as_str()));
        let in_header = side_of(path) == Some(Side::Header);
        if !declared.contains_key(name) && is_ours && !in_header {
            found.push(mismatch(name, MismatchKind::Undeclared, None, Some(place(&sources[0]))));
        }
    }
    found.sort();
    found
}

/// Whether a text holds a name as a word, or makes such a name by pasting in a macro.
fn mentions(text: &str, name: &str) -> bool {
    let inside = |c: char| c.is_alphanumeric() || c == '_';
    let is_word_at =
        |at: usize| !text[..at].ends_with(inside) && !text[at + name.len()..].starts_with(inside);
    let pasted = || {
        text.match_indices("##").any(|(at, _)| {
            let before = text[..at].trim_end();
            let start = before.rfind(|c| !inside(c)).map_or(0, |last| last + 1);
            before.len() - start >= PASTED_PREFIX && name.starts_with(&before[start..])
        })
    };
    text.match_indices(name).any(|(at, _)| is_word_at(at)) || pasted()
}

/// A shorter beginning that a macro pastes to could be that of any name.
const PASTED_PREFIX: usize = 6;

fn mismatch(name: &str, kind: MismatchKind, declared: Option<Place>, defined: Option<Place>) -> Mismatch {
    Mismatch { function: name.to_owned(), kind, declared, defined, since_patch: None }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Linkage {
    C,
    Cpp,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Token<'t> {
    text: &'t str,
    line: usize,
}

/// What a brace opens.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Scope {
    ExternC,
    Namespace,
}

/// The functions of C linkage that a text declares or defines outside of bodies and classes.
fn functions(text: &str, linkage: Linkage) -> Vec<Stated> {
    let tokens = tokens(text);
    let mut found = Vec::new();
    let mut scopes: Vec<Scope> = Vec::new();
    let mut statement: Vec<Token<'_>> = Vec::new();
    let mut at = 0;
    while let Some(&token) = tokens.get(at) {
        at += 1;
        let is_c = linkage == Linkage::C || scopes.contains(&Scope::ExternC);
        match token.text {
            ";" => {
                found.extend(function(&statement, is_c, IsDefined::No));
                statement.clear();
            }
            "}" => {
                scopes.pop();
                statement.clear();
            }
            "{" => match &statement.iter().map(|token| token.text).collect::<Vec<_>>()[..] {
                ["extern", "\"C\""] => {
                    scopes.push(Scope::ExternC);
                    statement.clear();
                }
                ["namespace", ..] | ["inline", "namespace", ..] => {
                    scopes.push(Scope::Namespace);
                    statement.clear();
                }
                words => {
                    let is_type =
                        words.iter().any(|word| matches!(*word, "struct" | "union" | "enum" | "class"))
                            && !words.contains(&")");
                    at = behind_braces(&tokens, at);
                    if !is_type && !words.contains(&"=") {
                        found.extend(function(&statement, is_c, IsDefined::Yes));
                        statement.clear();
                    }
                }
            },
            _ => statement.push(token),
        }
    }
    found
}

/// The place behind the brace that closes the one before `at`.
fn behind_braces(tokens: &[Token<'_>], mut at: usize) -> usize {
    let mut depth = 1;
    while depth > 0 && at < tokens.len() {
        depth += match tokens[at].text {
            "{" => 1,
            "}" => -1,
            _ => 0,
        };
        at += 1;
    }
    at
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum IsDefined {
    Yes,
    No,
}

const NOT_EXPORTED: [&str; 6] = ["static", "typedef", "template", "using", "friend", "inline"];
const TYPE_WORDS: [&str; 12] = [
    "void", "int", "char", "short", "long", "float", "double", "unsigned", "signed", "bool", "auto", "_Bool",
];
const QUALIFIERS: [&str; 6] = ["const", "volatile", "struct", "enum", "union", "restrict"];
const TAGS: [&str; 3] = ["struct", "enum", "union"];

/// Reads `extern "C" int name(parameters)`; `None` for anything but a function of C linkage that others can call.
fn function(statement: &[Token<'_>], is_c: bool, defined: IsDefined) -> Option<Stated> {
    let (statement, is_c) = match statement {
        [first, second, rest @ ..] if first.text == "extern" && second.text == "\"C\"" => (rest, true),
        [first, rest @ ..] if first.text == "extern" => (rest, is_c),
        other => (other, is_c),
    };
    if !is_c || statement.iter().any(|token| NOT_EXPORTED.contains(&token.text)) {
        return None;
    }
    let statement = without_attributes(statement);
    let open = statement.iter().position(|token| token.text == "(")?;
    let (name, result) = statement[..open].split_last()?;
    let is_plain = is_word(name.text) && !TYPE_WORDS.contains(&name.text) && !result.is_empty();
    if !is_plain || result.iter().any(|token| matches!(token.text, "=" | "::" | "operator" | "<")) {
        return None;
    }
    let close = open + matching(&statement[open..])?;
    let parameters = parameters(&statement[open + 1..close]);
    let signature = format!("{} ({})", result_type(result), parameters.join(", "));
    let (name, line) = (name.text.to_owned(), statement[0].line);
    Some(Stated { name, signature, line, defined: defined == IsDefined::Yes })
}

/// Without `__attribute__((…))` and `[[…]]`.
fn without_attributes<'t>(statement: &[Token<'t>]) -> Vec<Token<'t>> {
    let mut kept = Vec::new();
    let mut at = 0;
    while at < statement.len() {
        let text = statement[at].text;
        if matches!(text, "__attribute__" | "__declspec" | "_Alignas") {
            at += 1 + matching(&statement[at + 1..]).map_or(0, |close| close + 1);
        } else if text == "[" && statement.get(at + 1).is_some_and(|next| next.text == "[") {
            at += statement[at..].iter().position(|token| token.text == "]").unwrap_or(0) + 2;
        } else {
            kept.push(statement[at]);
            at += 1;
        }
    }
    kept
}

/// The place of the parenthesis that closes the one at the start.
fn matching(tokens: &[Token<'_>]) -> Option<usize> {
    let mut depth = 0;
    tokens.iter().position(|token| {
        depth += match token.text {
            "(" => 1,
            ")" => -1,
            _ => 0,
        };
        depth == 0
    })
}

/// A result's type without macros that only mark an export.
fn result_type(tokens: &[Token<'_>]) -> String {
    let is_macro = |text: &str| {
        text.len() > 1 && text.chars().all(|c| c.is_ascii_uppercase() || matches!(c, '_' | '0'..='9'))
    };
    let named = |text: &str| is_word(text) && !QUALIFIERS.contains(&text);
    let others = tokens.iter().filter(|token| named(token.text) && !is_macro(token.text)).count();
    let kept = tokens.iter().filter(|token| others == 0 || !is_macro(token.text));
    joined(&kept.map(|token| token.text).filter(|text| !TAGS.contains(text)).collect::<Vec<_>>())
}

/// The types of parameters.
fn parameters(tokens: &[Token<'_>]) -> Vec<String> {
    let mut lists: Vec<Vec<&str>> = vec![Vec::new()];
    let mut depth = 0;
    for token in tokens {
        match token.text {
            "(" | "[" | "{" => depth += 1,
            ")" | "]" | "}" => depth -= 1,
            "," if depth == 0 => {
                lists.push(Vec::new());
                continue;
            }
            _ => {}
        }
        if let Some(list) = lists.last_mut() {
            list.push(token.text);
        }
    }
    let types: Vec<String> =
        lists.iter().filter(|list| !list.is_empty()).map(|list| parameter_type(list)).collect();
    if types == ["void"] { Vec::new() } else { types }
}

/// A parameter's type: without its name, without a `const` that only the body can see, arrays as pointers.
fn parameter_type(words: &[&str]) -> String {
    let mut words: Vec<&str> = match words.iter().position(|word| *word == "=") {
        Some(default) => words[..default].to_vec(),
        None => words.to_vec(),
    };
    let mut arrays = 0;
    while let Some(open) = words.iter().position(|word| *word == "[") {
        let close =
            words[open..].iter().position(|word| *word == "]").map_or(words.len(), |close| open + close + 1);
        words.drain(open..close);
        arrays += 1;
    }
    if let Some(inner) = words.windows(2).position(|pair| pair[0] == "(" && pair[1] == "*") {
        // A pointer to a function: its name stands inside the parentheses.
        if words.get(inner + 2).is_some_and(|word| is_word(word)) {
            words.remove(inner + 2);
        }
        return joined(&words);
    }
    let named = words.iter().filter(|word| is_word(word) && !QUALIFIERS.contains(word)).count();
    let last = words.last().copied().unwrap_or_default();
    if named > 1 && is_word(last) && !TYPE_WORDS.contains(&last) && !QUALIFIERS.contains(&last) {
        words.pop();
    }
    words.extend(std::iter::repeat_n("*", arrays));
    if !words.contains(&"*") && !words.contains(&"&") {
        words.retain(|word| *word != "const");
    }
    // A type that has a tag and an alias is the same by either.
    words.retain(|word| !TAGS.contains(word));
    joined(&words)
}

fn joined(words: &[&str]) -> String {
    let mut text = String::new();
    for word in words {
        let tight = matches!(*word, "*" | "&" | "(" | ")" | "," | "::" | "<" | ">")
            || text.ends_with(['(', '<', ':']);
        if !text.is_empty() && !tight {
            text.push(' ');
        }
        text += word;
    }
    text
}

fn is_word(text: &str) -> bool {
    text.starts_with(|c: char| c.is_alphabetic() || c == '_')
}

/// Words, numbers, literals and marks; without comments and lines for the preprocessor.
fn tokens(text: &str) -> Vec<Token<'_>> {
    let bytes = text.as_bytes();
    let mut found = Vec::new();
    let (mut at, mut line, mut line_has_token) = (0, 1, false);
    while at < bytes.len() {
        let rest = &text[at..];
        let length = match bytes[at] {
            b'\n' => {
                (line, line_has_token) = (line + 1, false);
                at += 1;
                continue;
            }
            byte if byte.is_ascii_whitespace() => 1,
            b'/' if rest.starts_with("//") => rest.find('\n').unwrap_or(rest.len()),
            b'/' if rest.starts_with("/*") => rest[2..].find("*/").map_or(rest.len(), |end| end + 4),
            b'#' if !line_has_token => directive(rest),
            _ => {
                let length = token_length(rest);
                found.push(Token { text: &rest[..length], line });
                line_has_token = true;
                length
            }
        };
        line += rest[..length].matches('\n').count();
        at += length;
    }
    found
}

/// The length of a preprocessor's line with its continuations.
fn directive(rest: &str) -> usize {
    let mut end = 0;
    for line in rest.split_inclusive('\n') {
        end += line.len();
        if !line.trim_end().ends_with('\\') {
            break;
        }
    }
    end - usize::from(rest[..end].ends_with('\n'))
}

fn token_length(rest: &str) -> usize {
    let first = rest.chars().next().expect("there is a character");
    if let Some(raw) = rest.strip_prefix("R\"")
        && let Some(open) = raw.find('(')
    {
        let end = format!("){}\"", &raw[..open]);
        return raw.find(&end).map_or(rest.len(), |at| 2 + at + end.len());
    }
    if is_word(rest) || first.is_ascii_digit() {
        let inside =
            |c: char| c.is_alphanumeric() || c == '_' || (first.is_ascii_digit() && matches!(c, '.' | '\''));
        return rest.find(|c| !inside(c)).unwrap_or(rest.len());
    }
    if matches!(first, '"' | '\'') {
        let mut escaped = false;
        for (at, c) in rest.char_indices().skip(1) {
            match c {
                _ if escaped => escaped = false,
                '\\' => escaped = true,
                // A quote that is never closed is a slip, or a mark in text that no compiler reads.
                '\n' => return at,
                c if c == first => return at + 1,
                _ => {}
            }
        }
        return rest.len();
    }
    if rest.starts_with("::") { 2 } else { first.len_utf8() }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tools::git::fixture::ForkFixture;

    const HEADER: &str = r#"
/* int commented(int); */
#ifdef __cplusplus
extern "C" {
#endif
typedef struct box_ { void* ctx; } box;
LIB_API int first(box* res, const box a, const int* axes /* may be null */, size_t axes_num);
int second(void (*callback)(void*, int), float scale);
const char* third(void);
#define MACRO(x) \
  int hidden(x);
#ifdef __cplusplus
}
#endif
"#;
    const SOURCE: &str = r#"
#include "lib.h"
namespace { void helper(int x) { first(x); } }
extern "C" int first(box* result, box a, const int* axes, size_t n) {
  const char* text = "extern \"C\" int not_this(int) {";
  return 0;
}
static int local(int a) { return a; }
extern "C" int second(void (*f)(void*, int), float s) { auto g = R"x(int fourth( { )x"; return 1; }
extern "C" const char* third() { return ""; }
"#;

    fn found(header: &str, source: &str) -> Vec<(String, MismatchKind)> {
        let fixture = ForkFixture::new(&[("lib.h", header), ("lib.cpp", source)]);
        let tree = fixture.store.commit(fixture.base).unwrap().tree;
        let found = mismatches(&fixture.store, tree).unwrap();
        found.into_iter().map(|mismatch| (mismatch.function, mismatch.kind)).collect()
    }

    #[test]
    fn names_of_parameters_macros_and_const_values_are_no_disagreement() {
        assert_eq!(found(HEADER, SOURCE), []);
    }

    #[test]
    fn every_kind_of_disagreement_is_found() {
        use MismatchKind::{Signature, Undeclared, Undefined};
        for (from, to, expected) in [
            ("box a, const", "box a, float scale, const", ("first", Signature)),
            ("const int* axes, size_t n", "int* axes, size_t n", ("first", Signature)),
            ("int second(void (*f)(void*, int)", "int second(void (*f)(void*)", ("second", Signature)),
            ("const char* third() {", "char* third() {", ("third", Signature)),
            ("extern \"C\" const char* third() { return \"\"; }", "", ("third", Undefined)),
            ("static int local", "extern \"C\" int local", ("local", Undeclared)),
        ] {
            let source = SOURCE.replace(from, to);
            assert_ne!(source, SOURCE, "{from}");
            assert_eq!(found(HEADER, &source), [(expected.0.to_owned(), expected.1)], "{to}");
        }
    }

    #[test]
    fn functions_made_by_macros_or_without_repeated_linkage_are_defined() {
        let third = "extern \"C\" const char* third() { return \"\"; }";
        let header = HEADER.replace("third", "get_last_third");
        for defined in [
            "DEFINE(get_last_third, const char*)",
            "const char* get_last_third() { return \"\"; }",
            "#define DEFINE(X) const char* get_last_##X() { return \"\"; }\n",
        ] {
            assert_eq!(found(&header, &SOURCE.replace(third, defined)), [], "{defined}");
        }
        assert_ne!(
            found(&header, &SOURCE.replace(third, "#define DEFINE(X) get_##X\nint get_last_thirds;")),
            []
        );
    }

    #[test]
    fn functions_of_other_languages_and_libraries_are_left_alone() {
        let other = "extern \"C\" {\nint elsewhere(int);\n}\n";
        assert_eq!(found(other, "int first(int) { return 1; }\nint first(float) { return 2; }\n"), []);
    }

    #[test]
    fn the_patch_since_which_they_disagree_is_named() {
        let broken = SOURCE.replace("box a, const", "box a, float scale, const");
        let mended = format!("{broken}\n// more\n");
        let fixture = ForkFixture::new(&[("lib.h", HEADER), ("lib.cpp", SOURCE)])
            .patch("elsewhere", &[("x", Some("x\n"))])
            .patch("breaks it", &[("lib.cpp", Some(&broken))])
            .patch("touches it", &[("lib.cpp", Some(&mended))]);
        let tree = |at: usize| fixture.store.commit(fixture.fork[at]).unwrap().tree;
        let mut found = mismatches(&fixture.store, tree(3)).unwrap();
        blame(&fixture.store, &mut found, tree(0), &[(1, tree(1)), (2, tree(2)), (3, tree(3))]).unwrap();
        let [mismatch] = &found[..] else { panic!("{found:?}") };
        assert_eq!(mismatch.since_patch, Some(2));
        let (header, source) = (mismatch.declared.as_ref().unwrap(), mismatch.defined.as_ref().unwrap());
        assert_eq!(
            (header.path.as_str(), header.line, source.path.as_str(), source.line),
            ("lib.h", 7, "lib.cpp", 4)
        );
        assert_eq!(header.signature, "int (box*, box, const int*, size_t)");
        assert_eq!(source.signature, "int (box*, box, float, const int*, size_t)");
    }
}
