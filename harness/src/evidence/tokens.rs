//! Splits sources into words, numbers, strings and marks, without comments, for the languages of this ecosystem: C and
//! its kin (C++, Objective-C, Metal, CUDA), Rust, Swift, Python, and files whose comments begin with `#`. It parses
//! only as far as public declarations can be told; broken sources give fewer tokens, never a failure.

use std::ops::Range;

use crate::tools::git::tree_path::TreePath;

/// A family of languages that share their lexical rules.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Language {
    /// C, C++, Objective-C, Metal, CUDA.
    C,
    /// Rust.
    Rust,
    /// Swift.
    Swift,
    /// Python.
    Python,
    /// CMake, shell, YAML, TOML: `#` begins a comment.
    Hash,
}

/// What a token is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TokenKind {
    /// An identifier or keyword.
    Word,
    /// A number.
    Number,
    /// A string or character literal, quotes included.
    Text,
    /// A single other character.
    Mark,
}

/// One token.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Token<'t> {
    /// What it is.
    pub kind: TokenKind,
    /// Its bytes.
    pub text: &'t [u8],
    /// The line that it begins on, from 0.
    pub line: usize,
}

impl Token<'_> {
    fn is(&self, text: &str) -> bool {
        self.text == text.as_bytes()
    }
}

/// A public declaration.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Symbol {
    /// Its name.
    pub name: String,
    /// The line of its name, from 0.
    pub line: usize,
    /// The lines of the declaration without its body.
    pub extent: Range<usize>,
}

impl Language {
    /// The language of a file, by its name's ending.
    pub fn of(path: &TreePath) -> Option<Self> {
        let bytes = path.as_bytes();
        let name = bytes.rsplit(|&byte| byte == b'/').next().unwrap_or(bytes);
        if name == b"CMakeLists.txt" {
            return Some(Self::Hash);
        }
        let ending = name.rsplit(|&byte| byte == b'.').next().filter(|ending| ending.len() < name.len())?;
        Some(match ending {
            b"c" | b"h" | b"cc" | b"hh" | b"cpp" | b"hpp" | b"cxx" | b"hxx" | b"m" | b"mm" | b"metal"
            | b"cu" | b"cuh" => Self::C,
            b"rs" => Self::Rust,
            b"swift" => Self::Swift,
            b"py" | b"pyi" => Self::Python,
            b"cmake" | b"sh" | b"yml" | b"yaml" | b"toml" => Self::Hash,
            _ => return None,
        })
    }
}

/// Whether declarations in a file are for its users: for C only those of headers are.
pub fn is_public_place(path: &TreePath, language: Language) -> bool {
    let bytes = path.as_bytes();
    match language {
        Language::C => {
            [".h", ".hpp", ".hh", ".hxx", ".cuh"].iter().any(|end| bytes.ends_with(end.as_bytes()))
        }
        Language::Hash => false,
        _ => true,
    }
}

/// The tokens of a source.
pub fn tokens(language: Language, source: &[u8]) -> Vec<Token<'_>> {
    let mut lexer = Lexer { language, source, at: 0, line: 0, tokens: Vec::with_capacity(source.len() / 4) };
    while lexer.at < source.len() {
        lexer.step();
    }
    lexer.tokens
}

/// Whether an identifier is made of several parts (`fromFp8`, `mlx_fft`), as names that someone coined are; plain words
/// are not.
pub fn is_coined(word: &[u8]) -> bool {
    let class = |byte: u8| match byte {
        b'A'..=b'Z' => 0,
        b'a'..=b'z' => 1,
        b'0'..=b'9' => 2,
        _ => 3,
    };
    let start = word.iter().position(|byte| *byte != b'_').unwrap_or(word.len());
    let word = &word[start..];
    let (mut parts, mut last) = (0, 3);
    for &byte in word {
        let this = class(byte);
        // A capital begins a part; small letters after a capital belong to it.
        if this != 3 && this != last && !(last == 0 && this == 1) {
            parts += 1;
        }
        last = this;
    }
    // `FFTNorm`: the last capital of a run that small letters follow begins a part of its own.
    let runs = word.windows(3).filter(|three| three.iter().map(|byte| class(*byte)).eq([0, 0, 1])).count();
    parts + runs >= 2 && word.len() >= 6
}

struct Lexer<'t> {
    language: Language,
    source: &'t [u8],
    at: usize,
    line: usize,
    tokens: Vec<Token<'t>>,
}

impl<'t> Lexer<'t> {
    fn byte(&self, ahead: usize) -> u8 {
        self.source.get(self.at + ahead).copied().unwrap_or(0)
    }

    fn rest(&self) -> &'t [u8] {
        &self.source[self.at.min(self.source.len())..]
    }

    fn step(&mut self) {
        let byte = self.byte(0);
        match byte {
            b'\n' => {
                self.line += 1;
                self.at += 1;
            }
            _ if byte.is_ascii_whitespace() => self.at += 1,
            b'/' | b'#' if self.comment() => {}
            // Quotes, and the letters and marks that may stand before them.
            b'"' | b'\'' | b'#' | b'b' | b'c' | b'f' | b'r' | b'u' | b'B' | b'F' | b'L' | b'R' | b'U'
                if self.string() => {}
            b'0'..=b'9' => {
                let length =
                    self.rest().iter().take_while(|b| b.is_ascii_alphanumeric() || matches!(b, b'_' | b'.'));
                self.push(TokenKind::Number, length.count());
            }
            _ if is_word(byte) => {
                let length = self.rest().iter().take_while(|byte| is_word(**byte)).count();
                self.push(TokenKind::Word, length);
            }
            _ => self.push(TokenKind::Mark, 1),
        }
    }

    fn push(&mut self, kind: TokenKind, length: usize) {
        let end = (self.at + length.max(1)).min(self.source.len());
        let text = &self.source[self.at..end];
        self.tokens.push(Token { kind, text, line: self.line });
        self.line += text.iter().filter(|byte| **byte == b'\n').count();
        self.at = end;
    }

    fn skip(&mut self, length: usize) {
        let end = (self.at + length).min(self.source.len());
        self.line += self.source[self.at..end].iter().filter(|byte| **byte == b'\n').count();
        self.at = end;
    }

    fn comment(&mut self) -> bool {
        let slashes = matches!(self.language, Language::C | Language::Rust | Language::Swift);
        let to_line_end = |rest: &[u8]| rest.iter().position(|&byte| byte == b'\n').unwrap_or(rest.len());
        if slashes && self.rest().starts_with(b"//") {
            self.skip(to_line_end(self.rest()));
            return true;
        }
        if slashes && self.rest().starts_with(b"/*") {
            let nests = self.language != Language::C;
            let (rest, mut depth, mut end) = (self.rest(), 1, 2);
            while depth > 0 && end < rest.len() {
                match &rest[end..] {
                    [b'*', b'/', ..] => (depth, end) = (depth - 1, end + 2),
                    [b'/', b'*', ..] if nests => (depth, end) = (depth + 1, end + 2),
                    _ => end += 1,
                }
            }
            self.skip(end);
            return true;
        }
        // In shell and YAML a `#` inside a word is none.
        let begins = self.at == 0 || !is_word(self.source[self.at - 1]) && self.source[self.at - 1] != b'$';
        if matches!(self.language, Language::Python | Language::Hash) && self.byte(0) == b'#' && begins {
            self.skip(to_line_end(self.rest()));
            return true;
        }
        false
    }

    /// Takes a string or character literal, if one begins here.
    fn string(&mut self) -> bool {
        let rest = self.rest();
        let length = match self.language {
            Language::C => c_string(rest),
            Language::Rust => rust_string(rest),
            Language::Swift => swift_string(rest),
            Language::Python => python_string(rest),
            Language::Hash => hash_string(rest),
        };
        match length {
            Some(length) => {
                self.push(TokenKind::Text, length);
                true
            }
            None => false,
        }
    }
}

fn is_word(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || byte == b'_' || byte >= 0x80
}

/// The length of a literal that ends with `quote`; an unended one ends with its line.
fn quoted(text: &[u8], open: usize, quote: u8) -> usize {
    let mut at = open;
    while at < text.len() {
        match text[at] {
            b'\\' => at += 2,
            b'\n' => return at,
            byte if byte == quote => return at + 1,
            _ => at += 1,
        }
    }
    text.len()
}

/// The length up to and with `end`.
fn up_to(text: &[u8], from: usize, end: &[u8]) -> usize {
    let found = text.get(from..).and_then(|rest| rest.windows(end.len()).position(|window| window == end));
    found.map_or(text.len(), |at| from + at + end.len())
}

fn c_string(text: &[u8]) -> Option<usize> {
    let prefix = [&b"u8R"[..], b"uR", b"UR", b"LR", b"R"]
        .into_iter()
        .find(|prefix| text.starts_with(prefix) && text.get(prefix.len()) == Some(&b'"'));
    if let Some(prefix) = prefix {
        let open = prefix.len() + 1;
        let paren = text[open..].iter().take(17).position(|&byte| byte == b'(')?;
        let mut end = vec![b')'];
        end.extend(&text[open..open + paren]);
        end.push(b'"');
        return Some(up_to(text, open + paren + 1, &end));
    }
    match text.first()? {
        quote @ (b'"' | b'\'') => Some(quoted(text, 1, *quote)),
        _ => None,
    }
}

fn rust_string(text: &[u8]) -> Option<usize> {
    let prefix = usize::from(text.first() == Some(&b'b') || text.first() == Some(&b'c'));
    if text.get(prefix) == Some(&b'r') {
        let hashes = text[prefix + 1..].iter().take_while(|byte| **byte == b'#').count();
        if text.get(prefix + 1 + hashes) == Some(&b'"') {
            let mut end = vec![b'"'];
            end.extend(std::iter::repeat_n(b'#', hashes));
            return Some(up_to(text, prefix + hashes + 2, &end));
        }
    }
    match text.get(prefix)? {
        b'"' => Some(multi_line(text, prefix + 1)),
        // A lifetime is no character: it has no closing quote after one character.
        b'\'' => match text.get(prefix + 1..)? {
            [b'\\', ..] => Some(quoted(text, prefix + 1, b'\'')),
            [first, b'\'', ..] if *first != b'\'' => Some(prefix + 3),
            [first, rest @ ..] if *first >= 0x80 => {
                let more = rest.iter().take(3).position(|&byte| byte == b'\'')?;
                Some(prefix + 2 + more + 1)
            }
            _ => None,
        },
        _ => None,
    }
}

/// A literal in double quotes that may go over lines.
fn multi_line(text: &[u8], open: usize) -> usize {
    let mut at = open;
    while at < text.len() {
        match text[at] {
            b'\\' => at += 2,
            b'"' => return at + 1,
            _ => at += 1,
        }
    }
    text.len()
}

fn swift_string(text: &[u8]) -> Option<usize> {
    let hashes = text.iter().take_while(|byte| **byte == b'#').count();
    let body = &text[hashes..];
    if body.first() != Some(&b'"') {
        return None;
    }
    let mut end: Vec<u8> = if body.starts_with(b"\"\"\"") { b"\"\"\"".to_vec() } else { b"\"".to_vec() };
    let quotes = end.len();
    end.extend(std::iter::repeat_n(b'#', hashes));
    let mut at = hashes + quotes;
    while at < text.len() {
        match text[at] {
            _ if text[at..].starts_with(&end) => return Some(at + end.len()),
            // What is interpolated may hold quotes of its own.
            b'\\' if hashes == 0 && text.get(at + 1) == Some(&b'(') => at = balanced(text, at + 1),
            b'\\' if hashes == 0 => at += 2,
            b'\n' if quotes == 1 => return Some(at),
            _ => at += 1,
        }
    }
    Some(text.len())
}

/// The place after the parenthesis that closes the one at `open`.
fn balanced(text: &[u8], open: usize) -> usize {
    let mut depth = 0;
    for (at, byte) in text.iter().enumerate().skip(open) {
        match byte {
            b'(' => depth += 1,
            b')' if depth == 1 => return at + 1,
            b')' => depth -= 1,
            b'\n' => return at,
            _ => {}
        }
    }
    text.len()
}

fn python_string(text: &[u8]) -> Option<usize> {
    let prefix = text.iter().take(2).take_while(|byte| b"rRbBuUfF".contains(byte)).count();
    let quote = *text.get(prefix).filter(|byte| matches!(byte, b'"' | b'\''))?;
    let three = [quote; 3];
    match text[prefix..].starts_with(&three) {
        true => Some(up_to(text, prefix + 3, &three)),
        false => Some(quoted(text, prefix + 1, quote)),
    }
}

fn hash_string(text: &[u8]) -> Option<usize> {
    match text.first()? {
        b'"' => Some(multi_line(text, 1)),
        // An apostrophe inside a plain text, as YAML has, must not swallow what follows.
        b'\'' => {
            let length = quoted(text, 1, b'\'');
            (text.get(length - 1) == Some(&b'\'') && length > 1).then_some(length)
        }
        _ => None,
    }
}

/// The public declarations of a source, in order.
pub fn public_symbols(language: Language, source: &[u8]) -> Vec<Symbol> {
    let tokens = tokens(language, source);
    match language {
        Language::C => c_symbols(&tokens),
        Language::Rust => marked_symbols(
            &tokens,
            &["pub"],
            &["fn", "struct", "enum", "trait", "const", "static", "type", "mod", "union"],
        ),
        Language::Swift => marked_symbols(
            &tokens,
            &["public", "open"],
            &["func", "class", "struct", "enum", "protocol", "var", "let", "typealias", "actor"],
        ),
        Language::Python => python_symbols(&tokens, source),
        Language::Hash => Vec::new(),
    }
}

fn symbol(name: &Token<'_>, extent: Range<usize>) -> Symbol {
    Symbol { name: String::from_utf8_lossy(name.text).into_owned(), line: name.line, extent }
}

/// Declarations that a word makes public: the name follows one of `kinds`.
fn marked_symbols(tokens: &[Token<'_>], marks: &[&str], kinds: &[&str]) -> Vec<Symbol> {
    let mut symbols = Vec::new();
    for (at, token) in tokens.iter().enumerate() {
        if token.kind != TokenKind::Word || !marks.iter().any(|mark| token.is(mark)) {
            continue;
        }
        // `pub(crate)` and `public private(set)`: only what is not restricted as a whole counts.
        if token.is("pub") && tokens.get(at + 1).is_some_and(|next| next.is("(")) {
            continue;
        }
        let mut kind = None;
        for (ahead, next) in tokens.iter().enumerate().skip(at + 1).take(12) {
            if next.is("{") || next.is(";") || next.is("=") {
                break;
            }
            if kinds.iter().any(|word| next.is(word)) {
                kind = Some(ahead);
                // `pub const fn`, `public class func`: the last kind decides.
                let further = tokens
                    .get(ahead + 1)
                    .is_some_and(|n| kinds.iter().any(|word| n.is(word)) || n.is("unsafe"));
                if !further {
                    break;
                }
            }
        }
        let Some(name) = kind.and_then(|kind| tokens.get(kind + 1)) else { continue };
        if name.kind == TokenKind::Word {
            let end = tokens[at..].iter().take(200).find(|next| next.is("{") || next.is(";"));
            symbols.push(symbol(name, token.line..end.map_or(name.line, |end| end.line) + 1));
        }
    }
    symbols
}

fn python_symbols(tokens: &[Token<'_>], source: &[u8]) -> Vec<Symbol> {
    let lines = super::edits::lines_of(source);
    let at_margin =
        |line: usize| lines.get(line).is_some_and(|line| !line.starts_with(b" ") && !line.starts_with(b"\t"));
    let mut symbols = Vec::new();
    for pair in tokens.windows(2) {
        let (kind, name) = (&pair[0], &pair[1]);
        if (kind.is("def") || kind.is("class")) && at_margin(kind.line) && !name.text.starts_with(b"_") {
            symbols.push(symbol(name, kind.line..name.line + 1));
        }
    }
    symbols
}

/// Functions and types at the outermost level of a header, namespaces and `extern "C"` looked into.
fn c_symbols(tokens: &[Token<'_>]) -> Vec<Symbol> {
    let tokens = without_directives(tokens);
    let mut symbols = Vec::new();
    let mut hidden: Vec<bool> = Vec::new();
    let mut at = 0;
    while at < tokens.len() {
        if tokens[at].is("}") || tokens[at].is(";") {
            if tokens[at].is("}") {
                hidden.pop();
            }
            at += 1;
            continue;
        }
        let end = statement_end(&tokens, at);
        let statement = &tokens[at..end];
        let opens = tokens.get(end).is_some_and(|token| token.is("{"));
        let is_namespace =
            statement.iter().any(|token| token.is("namespace")) && !statement.iter().any(|t| t.is("using"));
        let is_linkage =
            matches!(statement, [first, second] if first.is("extern") && second.kind == TokenKind::Text);
        if opens && (is_namespace || is_linkage) {
            let private = |token: &Token<'_>| {
                ["detail", "details", "impl", "internal"].iter().any(|name| token.is(name))
            };
            let unnamed = is_namespace && statement.last().is_some_and(|token| token.is("namespace"));
            hidden.push(unnamed || statement.iter().any(private));
            at = end + 1;
            continue;
        }
        if !hidden.contains(&true)
            && let Some(name) = declared_name(statement, opens)
        {
            let first = statement.first().map_or(name.line, |token| token.line);
            let last = tokens.get(end).map_or(name.line, |token| token.line);
            symbols.push(symbol(name, first..last + 1));
        }
        at = if opens { after_block(&tokens, end) } else { end + 1 };
    }
    symbols
}

/// Drops preprocessor lines with their continuations.
fn without_directives<'t>(tokens: &[Token<'t>]) -> Vec<Token<'t>> {
    let mut kept: Vec<Token<'t>> = Vec::with_capacity(tokens.len());
    let mut directive: Option<usize> = None;
    let mut last_line = None;
    for token in tokens {
        if let Some(line) = directive {
            let continued = line == token.line;
            if continued {
                directive = if token.is("\\") { Some(line + 1) } else { Some(line) };
                last_line = Some(token.line);
                continue;
            }
            directive = None;
        }
        if token.is("#") && last_line != Some(token.line) {
            directive = Some(token.line);
        } else {
            kept.push(*token);
        }
        last_line = Some(token.line);
    }
    kept
}

/// The place of the `;` or `{` that ends the statement beginning at `at`; parentheses are passed over.
fn statement_end(tokens: &[Token<'_>], at: usize) -> usize {
    let mut depth = 0_usize;
    for (end, token) in tokens.iter().enumerate().skip(at) {
        if token.kind != TokenKind::Mark {
            continue;
        }
        match token.text {
            b"(" => depth += 1,
            b")" => depth = depth.saturating_sub(1),
            b";" | b"{" | b"}" if depth == 0 => return end,
            _ => {}
        }
    }
    tokens.len()
}

/// The place after the block that opens at `open`.
fn after_block(tokens: &[Token<'_>], open: usize) -> usize {
    let mut depth = 0_usize;
    for (at, token) in tokens.iter().enumerate().skip(open) {
        if token.is("{") {
            depth += 1;
        } else if token.is("}") {
            depth -= 1;
            if depth == 0 {
                return at + 1;
            }
        }
    }
    tokens.len()
}

fn declared_name<'s, 't>(statement: &'s [Token<'t>], opens: bool) -> Option<&'s Token<'t>> {
    let statement = without_template(statement);
    let first = statement.first()?;
    if ["using", "friend", "static_assert", "return", "typedef"].iter().any(|word| first.is(word)) && !opens {
        // `using Name = …;`
        let named = first.is("using") && statement.get(2).is_some_and(|token| token.is("="));
        return named.then(|| &statement[1]);
    }
    let kind = statement
        .iter()
        .position(|token| ["class", "struct", "enum", "union"].iter().any(|word| token.is(word)));
    let call = statement.iter().position(|token| token.is("("));
    if let Some(kind) = kind
        && opens
        && call.is_none_or(|call| kind < call && statement[..kind].len() <= 1)
    {
        let end = statement.iter().position(|token| token.is(":")).unwrap_or(statement.len());
        return statement[kind + 1..end.max(kind + 1)]
            .iter()
            .rev()
            .find(|token| is_name(token) && !token.is("final"));
    }
    let name = &statement[call?.checked_sub(1)?];
    let plain = is_name(name) && !statement.iter().any(|token| token.is("operator"));
    // A bare `name(…)` is a macro's use; a declaration has its type before it.
    (plain && call? >= 2).then_some(name)
}

fn without_template<'s, 't>(statement: &'s [Token<'t>]) -> &'s [Token<'t>] {
    if !statement.first().is_some_and(|token| token.is("template")) {
        return statement;
    }
    let mut depth = 0_usize;
    for (at, token) in statement.iter().enumerate() {
        if token.is("<") {
            depth += 1;
        } else if token.is(">") {
            depth = depth.saturating_sub(1);
            if depth == 0 {
                return without_template(&statement[at + 1..]);
            }
        }
    }
    &statement[statement.len()..]
}

fn is_name(token: &Token<'_>) -> bool {
    let keywords = [
        "__attribute__",
        "alignas",
        "decltype",
        "noexcept",
        "if",
        "while",
        "for",
        "switch",
        "sizeof",
        "void",
        "int",
        "bool",
        "float",
        "double",
        "char",
        "auto",
    ];
    token.kind == TokenKind::Word
        && !keywords.iter().any(|word| token.is(word))
        && !token.text.starts_with(b"_")
        && !token.text.ends_with(b"_")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn words(language: Language, source: &str) -> String {
        let tokens = tokens(language, source.as_bytes());
        let words = tokens.iter().filter(|token| token.kind == TokenKind::Word);
        words.map(|token| format!("{}:{} ", String::from_utf8_lossy(token.text), token.line)).collect()
    }

    #[test]
    fn comments_and_strings_hold_no_words() {
        for (language, source, expected) in [
            (Language::C, "a /* b\n c */ d // e\nf \"g \\\" h\" R\"x(i)\" j)x\" 'k' l", "a:0 d:1 f:2 l:2 "),
            (Language::C, "/* a /* b */ c */", "c:0 "),
            (
                Language::Rust,
                "/* a /* b */ c */ d 'e' '\\'' &'g h r#\"i\"j\"# k \"l\nm\" n",
                "d:0 g:0 h:0 k:0 n:1 ",
            ),
            (
                Language::Swift,
                "a \"b \\(c(\"d\")) e\" f #\"g\"h\"# i \"\"\"\nj \"k\" l\n\"\"\" m",
                "a:0 f:0 i:0 m:2 ",
            ),
            (Language::Python, "a # b\n'''c\nd''' e f\"g\" r'h' i", "a:0 e:2 i:2 "),
            (Language::Hash, "a # b\nc \"d\" e'f g # h\n", "a:0 c:1 e:1 f:1 g:1 "),
            (Language::C, "\"never ended\nword", "word:1 "),
            (Language::C, "/* never ended", ""),
        ] {
            assert_eq!(words(language, source), expected, "{source}");
        }
    }

    #[test]
    fn coined_names_are_told_from_words() {
        for word in ["fromFp8", "fromFP8", "FFTNorm", "mlx_fft", "host_transfer", "Float8Kind"] {
            assert!(is_coined(word.as_bytes()), "{word}");
        }
        for word in ["encode", "Backward", "cursor", "CUDA", "_private", "MLX", "a_b", "index"] {
            assert!(!is_coined(word.as_bytes()), "{word}");
        }
    }

    fn symbols(language: Language, source: &str) -> String {
        let symbols = public_symbols(language, source.as_bytes());
        symbols.iter().map(|symbol| format!("{}:{} ", symbol.name, symbol.line)).collect()
    }

    #[test]
    fn public_declarations_are_found_by_language() {
        let header = "#pragma once\n#define NOT_ONE(a) \\\n  a(b)\nextern \"C\" {\nint lib_one(\n    int a);\n\
            typedef struct lib_two_ {\n  int x;\n} lib_two;\n}\nnamespace lib::core {\nAPI void three(int a = f(1));\n\
            template <typename T, int N>\nclass API Four final : public Base {\n  void hidden();\n};\n\
            inline int five() { return six(); }\nusing Seven = int;\nclass Forward;\nnamespace detail {\nint eight();\n}\n}\n";
        assert_eq!(symbols(Language::C, header), "lib_one:4 three:11 Four:13 five:16 Seven:17 ");
        let rust = "pub fn one() {}\npub(crate) fn two() {}\nfn three() {}\npub const unsafe fn four() {}\n\
            pub struct Five<T>(T);\n// pub fn six()\npub const SEVEN: usize = 7;\n";
        assert_eq!(symbols(Language::Rust, rust), "one:0 four:3 Five:4 SEVEN:6 ");
        let swift = "public func one() {}\nfunc two() {}\npublic static func three() {}\nopen class Four {}\n\
            public private(set) var five: Int\n@inlinable public init() {}\n";
        assert_eq!(symbols(Language::Swift, swift), "one:0 three:2 Four:3 five:4 ");
        let python =
            "def one():\n    def two(): pass\nclass Three:\n    def four(self): pass\ndef _five(): pass\n";
        assert_eq!(symbols(Language::Python, python), "one:0 Three:2 ");
    }

    #[test]
    fn any_bytes_give_tokens_inside_them() {
        let mut seed = 1_u32;
        let alphabet = b"\"'/*#\\\nrR(){}b8a_ ";
        for _ in 0..300 {
            let mut bytes = Vec::new();
            for _ in 0..40 {
                seed = seed.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
                bytes.push(alphabet[(seed >> 16) as usize % alphabet.len()]);
            }
            let lines = bytes.iter().filter(|byte| **byte == b'\n').count();
            for language in [Language::C, Language::Rust, Language::Swift, Language::Python, Language::Hash] {
                let tokens = tokens(language, &bytes);
                assert!(tokens.iter().all(|token| token.line <= lines));
                public_symbols(language, &bytes);
            }
        }
    }
}
