//! Reads one TOML file table by table and collects every problem with its line and column, where a derived
//! deserializer would stop at the first. It knows types and key names; what values mean is for its callers.

use std::{cell::RefCell, collections::BTreeSet, error::Error, fmt, ops::Range};

use toml::{
    Spanned,
    de::{DeTable, DeValue},
};

use super::near::{nearest, suggestion};

/// One thing wrong in a file.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Problem {
    /// Counts from 1.
    pub line: usize,
    /// Counts characters from 1.
    pub column: usize,
    /// What is wrong, and what was perhaps meant.
    pub message: String,
}

/// Everything wrong in one file, in the order of the file; displayed as one `file:line:column: message` a line.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Problems {
    /// The file, as people know it: relative to the repository root where it lies below.
    pub file: String,
    /// At least one problem.
    pub list: Vec<Problem>,
}

impl fmt::Display for Problems {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, Problem { line, column, message }) in self.list.iter().enumerate() {
            let end = if index == 0 { "" } else { "\n" };
            write!(f, "{end}{}:{line}:{column}: {message}", self.file)?;
        }
        Ok(())
    }
}

impl Error for Problems {}

/// So many problems of a file are told one by one, and one more with the number of those after it.
const MOST_TOLD: usize = 100;

/// The keys that a table may have.
#[derive(Debug, Clone, Copy)]
pub struct Keys {
    noun: &'static str,
    plural: &'static str,
    names: &'static [&'static str],
}

impl Keys {
    /// Keys that messages call keys.
    pub const fn new(names: &'static [&'static str]) -> Self {
        Self { noun: "key", plural: "keys", names }
    }

    /// Keys that messages call something else, such as `axis` and `axes`.
    pub const fn called(noun: &'static str, plural: &'static str, names: &'static [&'static str]) -> Self {
        Self { noun, plural, names }
    }

    /// The keys themselves.
    pub const fn names(self) -> &'static [&'static str] {
        self.names
    }
}

/// One file while it is read. Ask for [`Document::root`], read, then [`Document::finish`].
pub struct Document<'i> {
    file: String,
    text: &'i str,
    root: Spanned<DeTable<'i>>,
    syntax: Vec<(usize, String)>,
    found: RefCell<Vec<(usize, String)>>,
}

impl<'i> Document<'i> {
    /// Parses the text. Reading may go on after mistakes of syntax, but then they are all that is told: what they swallowed
    /// would come up as missing.
    pub fn parse(file: impl Into<String>, text: &'i str) -> Self {
        let (root, errors) = DeTable::parse_recoverable(text);
        let syntax: Vec<(usize, String)> = errors
            .iter()
            .map(|error| (error.span().map_or(0, |span| span.start), one_line(error.message())))
            .collect();
        Self { file: file.into(), text, root, syntax, found: RefCell::new(Vec::new()) }
    }

    /// The file's top-level table.
    pub fn root(&self, keys: Keys) -> Table<'_, 'i> {
        let table = self.open(self.root.get_ref(), 0..0, "the file".to_owned());
        table.refuse_unknown(&[keys]);
        table
    }

    /// Notes a problem at a place.
    pub fn problem(&self, at: Range<usize>, message: impl Into<String>) {
        self.found.borrow_mut().push((at.start, message.into()));
    }

    /// Whether nothing was found wrong so far. For checks that only make sense on a sound file.
    pub fn is_sound(&self) -> bool {
        self.syntax.is_empty() && self.found.borrow().is_empty()
    }

    /// Hands the value on when nothing was found wrong.
    ///
    /// # Errors
    /// Every problem, in the order of the file.
    ///
    /// # Panics
    /// When `value` is absent although no problem was noted; reading methods note one whenever they return `None`.
    pub fn finish<T>(self, value: Option<T>) -> Result<T, Problems> {
        let told = if self.syntax.is_empty() { self.found.into_inner() } else { self.syntax };
        let found: BTreeSet<(usize, String)> = told.into_iter().collect();
        if found.is_empty() {
            return Ok(value.expect("a value is only missing where a problem was noted"));
        }
        let more = found.len().saturating_sub(MOST_TOLD);
        let list = found
            .into_iter()
            .take(MOST_TOLD + 1)
            .enumerate()
            .map(|(index, (offset, message))| {
                let (line, column) = line_and_column(self.text, offset);
                let message = match index == MOST_TOLD {
                    true if more > 1 => format!("{message}; and {} more problems after this one", more - 1),
                    _ => message,
                };
                Problem { line, column, message }
            })
            .collect();
        Err(Problems { file: self.file, list })
    }

    fn open<'d>(&'d self, entries: &'d DeTable<'i>, span: Range<usize>, name: String) -> Table<'d, 'i> {
        Table { document: self, entries, span, name }
    }
}

/// One table of a [`Document`]. Each reading method notes a problem whenever it returns `None` for a reason other
/// than an absent optional key, so callers go on reading and give up at the end.
pub struct Table<'d, 'i> {
    document: &'d Document<'i>,
    entries: &'d DeTable<'i>,
    span: Range<usize>,
    name: String,
}

impl<'d, 'i> Table<'d, 'i> {
    /// Where the table stands in the file: its header, or its braces.
    pub fn span(&self) -> Range<usize> {
        self.span.clone()
    }

    /// Notes a problem at a place.
    pub fn problem(&self, at: Range<usize>, message: impl Into<String>) {
        self.document.problem(at, message);
    }

    /// Whether the key is there, whatever its value.
    pub fn has(&self, key: &str) -> bool {
        self.entries.contains_key(key)
    }

    /// Whether the key is there and its value a text.
    pub fn is_text(&self, key: &str) -> bool {
        self.entries.get(key).is_some_and(|value| matches!(value.get_ref(), DeValue::String(_)))
    }

    /// Every key of the table, in alphabetical order.
    pub fn keys(&self) -> Vec<Spanned<String>> {
        self.entries.keys().map(|key| Spanned::new(key.span(), key.get_ref().to_string())).collect()
    }

    /// A value that must be there.
    pub fn required<T: Scalar>(&self, key: &str) -> Option<Spanned<T>> {
        self.need(key).and_then(|value| self.scalar(key, value))
    }

    /// A value that may be absent.
    pub fn optional<T: Scalar>(&self, key: &str) -> Option<Spanned<T>> {
        self.get(key).and_then(|value| self.scalar(key, value))
    }

    /// A list that must be there and hold something. Entries of a wrong type are noted and left out.
    pub fn required_list<T: Scalar>(&self, key: &str) -> Option<Spanned<Vec<Spanned<T>>>> {
        let value = self.need(key)?;
        let list = self.scalars(key, value)?;
        if matches!(value.get_ref(), DeValue::Array(entries) if entries.is_empty()) {
            self.problem(value.span(), format!("`{key}` is empty"));
            return None;
        }
        Some(list)
    }

    /// A list that may be absent or empty. Entries of a wrong type are noted and left out.
    pub fn optional_list<T: Scalar>(&self, key: &str) -> Option<Spanned<Vec<Spanned<T>>>> {
        self.get(key).and_then(|value| self.scalars(key, value))
    }

    /// One of a closed set of words that must be there.
    pub fn required_word<T: Copy>(&self, key: &str, words: &[(&str, T)]) -> Option<Spanned<T>> {
        let word = self.required::<String>(key)?;
        self.word(key, &word, words)
    }

    /// One of a closed set of words that may be absent.
    pub fn optional_word<T: Copy>(&self, key: &str, words: &[(&str, T)]) -> Option<Spanned<T>> {
        let word = self.optional::<String>(key)?;
        self.word(key, &word, words)
    }

    /// A list of words of a closed set; it must be there and hold something. Unknown words are noted and left out.
    pub fn required_words<T: Copy>(
        &self,
        key: &str,
        words: &[(&str, T)],
    ) -> Option<Spanned<Vec<Spanned<T>>>> {
        let list = self.required_list::<String>(key)?;
        let span = list.span();
        let known = list.get_ref().iter().filter_map(|word| self.word(key, word, words)).collect();
        Some(Spanned::new(span, known))
    }

    /// A table that must be there.
    pub fn required_table(&self, key: &str, keys: Keys) -> Option<Table<'d, 'i>> {
        self.need(key)?;
        self.optional_table(key, keys)
    }

    /// A table that may be absent.
    pub fn optional_table(&self, key: &str, keys: Keys) -> Option<Table<'d, 'i>> {
        let table = self.open_table(key)?;
        table.refuse_unknown(&[keys]);
        Some(table)
    }

    /// A table that may be absent and whose keys are free; see [`Table::keys`].
    pub fn open_table(&self, key: &str) -> Option<Table<'d, 'i>> {
        let value = self.get(key)?;
        match value.get_ref() {
            DeValue::Table(entries) => {
                // A table written with a header has the header's place, which is what a person wants to see.
                Some(self.document.open(entries, value.span(), format!("`{key}`")))
            }
            other => {
                self.wrong_type(key, "a table", other, value.span());
                None
            }
        }
    }

    /// Every table of an array of tables, which may be absent.
    pub fn tables(&self, key: &str, keys: Keys) -> Vec<Table<'d, 'i>> {
        let tables = self.open_tables(key);
        for table in &tables {
            table.refuse_unknown(&[keys]);
        }
        tables
    }

    /// Every table of an array of tables whose other keys depend on one word in it. Tables whose word is missing or
    /// unknown are noted and left out.
    pub fn tables_by<T: Copy>(
        &self,
        key: &str,
        tag: &str,
        common: Keys,
        kinds: &[(&str, T, Keys)],
    ) -> Vec<(T, Table<'d, 'i>)> {
        let words: Vec<(&str, (T, Keys))> =
            kinds.iter().map(|&(word, kind, keys)| (word, (kind, keys))).collect();
        self.open_tables(key)
            .into_iter()
            .filter_map(|table| {
                let (kind, keys) = table.required_word(tag, &words)?.into_inner();
                table.refuse_unknown(&[common, keys]);
                Some((kind, table))
            })
            .collect()
    }

    /// The texts under `key` in each table of an array of tables, whatever else is wrong there; notes nothing.
    pub fn texts_in(&self, tables: &str, key: &str) -> Vec<Spanned<String>> {
        let Some(DeValue::Array(entries)) = self.get(tables).map(Spanned::get_ref) else { return Vec::new() };
        entries
            .iter()
            .filter_map(|entry| match entry.get_ref() {
                DeValue::Table(table) => table.get(key),
                _ => None,
            })
            .filter_map(|value| match value.get_ref() {
                DeValue::String(text) => Some(Spanned::new(value.span(), text.to_string())),
                _ => None,
            })
            .collect()
    }

    fn open_tables(&self, key: &str) -> Vec<Table<'d, 'i>> {
        let Some(value) = self.get(key) else { return Vec::new() };
        let DeValue::Array(entries) = value.get_ref() else {
            self.wrong_type(key, &format!("an array of tables (`[[{key}]]`)"), value.get_ref(), value.span());
            return Vec::new();
        };
        entries
            .iter()
            .filter_map(|entry| match entry.get_ref() {
                DeValue::Table(table) => Some(self.document.open(table, entry.span(), format!("`{key}`"))),
                other => {
                    self.wrong_type(key, "a table", other, entry.span());
                    None
                }
            })
            .collect()
    }

    /// Notes every key that is none of `allowed`, for tables whose keys depend on a word in them.
    pub fn refuse_keys_beside(&self, allowed: Keys) {
        self.refuse_unknown(&[allowed]);
    }

    fn refuse_unknown(&self, allowed: &[Keys]) {
        let names: Vec<&str> = allowed.iter().flat_map(|keys| keys.names.iter().copied()).collect();
        let Some(Keys { noun, plural, .. }) = allowed.first() else { return };
        for key in self.entries.keys() {
            let word = key.get_ref().as_ref();
            if !names.contains(&word) {
                let hint = match nearest(word, names.iter().copied()) {
                    Some(name) => format!("did you mean `{name}`?"),
                    None => format!("the {plural} of {} are {}", self.name, names.join(", ")),
                };
                self.problem(key.span(), format!("unknown {noun} `{}`; {hint}", printable(word)));
            }
        }
    }

    fn get(&self, key: &str) -> Option<&'d Spanned<DeValue<'i>>> {
        self.entries.get(key)
    }

    fn need(&self, key: &str) -> Option<&'d Spanned<DeValue<'i>>> {
        let value = self.get(key);
        if value.is_none() {
            self.problem(self.span(), format!("{} lacks `{key}`", self.name));
        }
        value
    }

    fn scalar<T: Scalar>(&self, key: &str, value: &Spanned<DeValue<'i>>) -> Option<Spanned<T>> {
        match T::from_toml(value.get_ref()) {
            Ok(scalar) => Some(Spanned::new(value.span(), scalar)),
            Err(Refusal::Type) => {
                self.wrong_type(key, T::EXPECTED, value.get_ref(), value.span());
                None
            }
            Err(Refusal::Range(why)) => {
                self.problem(value.span(), format!("`{key}` {why}"));
                None
            }
        }
    }

    fn scalars<T: Scalar>(
        &self,
        key: &str,
        value: &Spanned<DeValue<'i>>,
    ) -> Option<Spanned<Vec<Spanned<T>>>> {
        let DeValue::Array(entries) = value.get_ref() else {
            self.wrong_type(key, "a list", value.get_ref(), value.span());
            return None;
        };
        let list = entries.iter().filter_map(|entry| self.scalar(key, entry)).collect();
        Some(Spanned::new(value.span(), list))
    }

    fn word<T: Copy>(&self, key: &str, word: &Spanned<String>, words: &[(&str, T)]) -> Option<Spanned<T>> {
        let known = words.iter().find(|(name, _)| name == word.get_ref());
        if known.is_none() {
            let names: Vec<&str> = words.iter().map(|(name, _)| *name).collect();
            let hint = suggestion(word.get_ref(), "values", &names);
            self.problem(
                word.span(),
                format!("unknown value `{}` of `{key}`; {hint}", printable(word.get_ref())),
            );
        }
        known.map(|&(_, value)| Spanned::new(word.span(), value))
    }

    fn wrong_type(&self, key: &str, expected: &str, found: &DeValue<'_>, at: Range<usize>) {
        self.problem(at, format!("`{key}` must be {expected}, not {}", kind_of(found)));
    }
}

/// A plain value that a key can hold.
pub trait Scalar: Sized {
    /// What messages call the type, with its article.
    const EXPECTED: &'static str;

    /// Reads the value.
    ///
    /// # Errors
    /// When the type is another one, or the value lies outside the type's range.
    fn from_toml(value: &DeValue<'_>) -> Result<Self, Refusal>;
}

/// Why a value was not taken.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Refusal {
    /// It has another type.
    Type,
    /// It lies outside the type's range; the text continues the key's name.
    Range(String),
}

impl Scalar for String {
    const EXPECTED: &'static str = "text";

    fn from_toml(value: &DeValue<'_>) -> Result<Self, Refusal> {
        match value {
            DeValue::String(text) => Ok(text.to_string()),
            _ => Err(Refusal::Type),
        }
    }
}

impl Scalar for bool {
    const EXPECTED: &'static str = "true or false";

    fn from_toml(value: &DeValue<'_>) -> Result<Self, Refusal> {
        match value {
            DeValue::Boolean(truth) => Ok(*truth),
            _ => Err(Refusal::Type),
        }
    }
}

impl Scalar for u64 {
    const EXPECTED: &'static str = "a whole number";

    fn from_toml(value: &DeValue<'_>) -> Result<Self, Refusal> {
        match value {
            DeValue::Integer(number) => Self::from_str_radix(number.as_str(), number.radix())
                .map_err(|_| Refusal::Range(format!("must lie between 0 and {}", Self::MAX))),
            _ => Err(Refusal::Type),
        }
    }
}

impl Scalar for usize {
    const EXPECTED: &'static str = "a whole number";

    fn from_toml(value: &DeValue<'_>) -> Result<Self, Refusal> {
        let wide = u64::from_toml(value)?;
        Self::try_from(wide).map_err(|_| Refusal::Range(format!("must not be above {}", Self::MAX)))
    }
}

impl Scalar for f64 {
    const EXPECTED: &'static str = "a number";

    fn from_toml(value: &DeValue<'_>) -> Result<Self, Refusal> {
        let number = match value {
            DeValue::Float(number) => number.as_str().parse().ok(),
            DeValue::Integer(number) if number.radix() == 10 => number.as_str().parse().ok(),
            _ => None,
        };
        match number {
            Some(number) if Self::is_finite(number) => Ok(number),
            Some(_) => Err(Refusal::Range("must be finite".to_owned())),
            None => Err(Refusal::Type),
        }
    }
}

fn kind_of(value: &DeValue<'_>) -> &'static str {
    match value {
        DeValue::String(_) => "text",
        DeValue::Integer(_) => "a whole number",
        DeValue::Float(_) => "a number with a fraction",
        DeValue::Boolean(_) => "true or false",
        DeValue::Datetime(_) => "a date",
        DeValue::Array(_) => "a list",
        DeValue::Table(_) => "a table",
    }
}

/// Line and column, both from 1, columns in characters.
fn line_and_column(text: &str, offset: usize) -> (usize, usize) {
    let before = text.get(..offset.min(text.len())).unwrap_or(text);
    let line_start = before.rfind('\n').map_or(0, |newline| newline + 1);
    (before.matches('\n').count() + 1, before[line_start..].chars().count() + 1)
}

/// Keys and words come from a file that may be hostile: control characters do not reach a terminal.
fn printable(word: &str) -> String {
    word.chars().flat_map(|c| if c.is_control() { c.escape_default().collect() } else { vec![c] }).collect()
}

fn one_line(message: &str) -> String {
    printable(&message.trim().replace('\n', "; "))
}

#[cfg(test)]
mod tests {
    use super::*;

    const ITEM: Keys = Keys::new(&["name", "kind"]);

    fn read(text: &str) -> Result<(String, Vec<u64>), Problems> {
        let document = Document::parse("x.toml", text);
        let root = document.root(Keys::new(&["title", "sizes", "ratio", "item"]));
        let title = root.required::<String>("title");
        let sizes = root.required_list::<u64>("sizes");
        root.optional::<f64>("ratio");
        root.tables_by(
            "item",
            "kind",
            ITEM,
            &[("round", 0, Keys::new(&["radius"])), ("square", 1, Keys::new(&["side"]))],
        );
        let value = title.zip(sizes).map(|(title, sizes)| {
            (title.into_inner(), sizes.into_inner().into_iter().map(Spanned::into_inner).collect())
        });
        document.finish(value)
    }

    #[test]
    fn a_sound_file_gives_its_values() {
        let text = "title = 'é'\nsizes = [1, 0x10, 1_000]\nratio = 2\n[[item]]\nkind = 'round'\nradius = 3\n";
        assert_eq!(read(text).unwrap(), ("é".to_owned(), vec![1, 16, 1000]));
    }

    #[test]
    fn a_file_with_very_many_problems_is_told_in_a_hundred_lines() {
        for (keys, lines, end) in [
            (100, 100, "key99`"),
            (101, 101, "key100`"),
            (102, 101, "; and 1 more problems after this one"),
            (50_000, 101, "; and 49899 more problems after this one"),
        ] {
            let text: String = (0..keys).map(|i| format!("key{i} = 1\n")).collect();
            let document = Document::parse("m.toml", &text);
            document.root(ITEM);
            let problems = document.finish::<()>(None).unwrap_err();
            assert_eq!(problems.list.len(), lines, "{keys}");
            let last = &problems.list.last().unwrap().message;
            assert!(last.contains(end) || last.ends_with(end), "{keys}: {last}");
        }
    }

    #[test]
    fn every_problem_is_reported_in_file_order_with_line_and_column() {
        let text = "titel = 'a'\nsizes = [1, 'é', -2, 2.5]\nratio = inf\n\n[[item]]\nkind = 'round'\nside = 1\n\
                    [[item]]\nkind = 'sqare'\n  [[item]]\nname = 'n'\n";
        insta::assert_snapshot!(read(text).unwrap_err(), @"
        x.toml:1:1: the file lacks `title`
        x.toml:1:1: unknown key `titel`; did you mean `title`?
        x.toml:2:13: `sizes` must be a whole number, not text
        x.toml:2:18: `sizes` must lie between 0 and 18446744073709551615
        x.toml:2:22: `sizes` must be a whole number, not a number with a fraction
        x.toml:3:9: `ratio` must be finite
        x.toml:7:1: unknown key `side`; the keys of `item` are name, kind, radius
        x.toml:9:8: unknown value `sqare` of `kind`; did you mean `square`?
        x.toml:10:3: `item` lacks `kind`
        ");
    }

    #[test]
    fn mistakes_of_syntax_are_told_together_and_not_what_follows_from_them() {
        insta::assert_snapshot!(read("title = \nsizes = []\ncolour = 'red'\nsizes = [1]\n").unwrap_err(), @"
        x.toml:1:9: string values must be quoted, expected literal string
        x.toml:4:1: duplicate key
        ");
    }

    #[test]
    fn a_list_where_a_table_belongs_is_named_as_such() {
        insta::assert_snapshot!(read("title = ['a']\nsizes = 3\nitem = [1]\n").unwrap_err(), @"
        x.toml:1:9: `title` must be text, not a list
        x.toml:2:9: `sizes` must be a list, not a whole number
        x.toml:3:9: `item` must be a table, not a whole number
        ");
    }
}
