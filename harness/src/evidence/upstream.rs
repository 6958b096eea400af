//! What upstream did since the base, as far as it concerns a stack: the lines that came and went in the files that the
//! stack touches or could have moved to, and which commit brought them.

use std::{
    collections::{BTreeMap, BTreeSet, HashMap, HashSet, hash_map::DefaultHasher},
    hash::{Hash, Hasher},
    sync::{Arc, Mutex, OnceLock, PoisonError},
};

use super::{
    edits::{FileEdit, edit_of, lines_of},
    landed::Touching,
    tokens::{Language, TokenKind, is_coined, tokens},
};
use crate::tools::git::{
    history::LineBlock,
    ids::{CommitId, EntryId},
    store::{Entry, MODE_SUBMODULE, PathChange, Store, StoreError},
    tree_path::TreePath,
};

/// One line as code: equal for lines that differ in white space and comments only.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CodeLine {
    /// Its identity.
    pub key: u64,
    /// How much it says: words and numbers on it.
    pub weight: usize,
}

/// Values that are made once for each key, whichever thread asks first.
struct Memo<K, V>(Mutex<HashMap<K, Arc<V>>>);

impl<K, V> Default for Memo<K, V> {
    fn default() -> Self {
        Self(Mutex::default())
    }
}

impl<K: Eq + Hash + Clone, V> Memo<K, V> {
    /// Two threads may make the same value at the same time; the first one in is kept.
    fn get<E>(&self, key: &K, make: impl FnOnce() -> Result<V, E>) -> Result<Arc<V>, E> {
        let known =
            |memo: &Self| memo.0.lock().unwrap_or_else(PoisonError::into_inner).get(key).map(Arc::clone);
        if let Some(known) = known(self) {
            return Ok(known);
        }
        let made = Arc::new(make()?);
        let mut memo = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        Ok(Arc::clone(memo.entry(key.clone()).or_insert(made)))
    }
}

/// The texts of files, read and lexed once. Each caller brings its own way to the objects.
#[derive(Default)]
pub struct Texts {
    lines: Memo<(EntryId, Option<Language>), Vec<CodeLine>>,
    blobs: Memo<EntryId, Vec<u8>>,
    words: Memo<(EntryId, Language), BTreeSet<String>>,
    coined: Memo<EntryId, HashSet<u64>>,
    edits: Memo<EditKey, FileEdit>,
}

type EditKey = (TreePath, Option<EntryId>, Option<EntryId>);

impl Texts {
    /// A blob's bytes; empty for none.
    ///
    /// # Errors
    /// When the blob is missing.
    pub fn blob(&self, store: &Store, id: Option<EntryId>) -> Result<Arc<Vec<u8>>, StoreError> {
        let Some(id) = id else { return Ok(Arc::default()) };
        self.blobs.get(&id, || store.blob(id))
    }

    /// A file's lines as code.
    ///
    /// # Errors
    /// When the blob is missing.
    pub fn code(
        &self,
        store: &Store,
        path: &TreePath,
        id: Option<EntryId>,
    ) -> Result<Arc<Vec<CodeLine>>, StoreError> {
        let Some(id) = id else { return Ok(Arc::default()) };
        let language = Language::of(path);
        self.lines.get(&(id, language), || Ok(code_lines(language, &self.blob(store, Some(id))?)))
    }

    /// The words of a file, case folded.
    ///
    /// # Errors
    /// When the blob is missing.
    pub fn words(
        &self,
        store: &Store,
        language: Language,
        id: Option<EntryId>,
    ) -> Result<Arc<BTreeSet<String>>, StoreError> {
        let Some(id) = id else { return Ok(Arc::default()) };
        self.words.get(&(id, language), || Ok(words_in(language, &self.blob(store, Some(id))?)))
    }

    /// Whether a coined word (case folded) stands anywhere in a file, comments included. Much faster than lexing, so it
    /// goes first.
    ///
    /// # Errors
    /// When the blob is missing.
    pub fn mentions(&self, store: &Store, id: Option<EntryId>, folded: &str) -> Result<bool, StoreError> {
        Ok(self.coined(store, id)?.contains(&word_key(folded.as_bytes())))
    }

    fn coined(&self, store: &Store, id: Option<EntryId>) -> Result<Arc<HashSet<u64>>, StoreError> {
        let Some(id) = id else { return Ok(Arc::default()) };
        self.coined.get(&id, || Ok(coined_keys(&self.blob(store, Some(id))?)))
    }

    /// The edit that a change of one path amounts to.
    ///
    /// # Errors
    /// When a blob is missing.
    pub fn edit(&self, store: &Store, change: &PathChange) -> Result<Arc<FileEdit>, StoreError> {
        let key = (change.path.clone(), change.old.map(|entry| entry.id), change.new.map(|entry| entry.id));
        self.edits.get(&key, || edit_of(store, change))
    }
}

/// What one path went through from the base to the new upstream.
#[derive(Debug, Clone)]
pub struct Drift {
    /// The edit as a whole.
    pub edit: Arc<FileEdit>,
    /// Where each code line that came stands among those that came, in their order.
    pub added: HashMap<u64, Vec<usize>>,
    /// How often each code line went.
    pub removed: HashMap<u64, usize>,
    /// How often each code line stood there at the base.
    pub at_base: HashMap<u64, usize>,
}

/// Upstream's drift in the files that matter to a stack.
pub struct Upstream<'t> {
    /// Texts read so far.
    pub texts: &'t Texts,
    changes: BTreeMap<TreePath, PathChange>,
    new_endings: HashSet<Vec<u8>>,
    touching: &'t [Touching],
    drift: Memo<TreePath, Drift>,
    newcomers: Memo<Vec<u8>, Newcomers>,
    new_words: OnceLock<BTreeMap<TreePath, HashSet<u64>>>,
}

/// The files of one kind that upstream made since the base, and which of them each of their code lines stands in.
#[derive(Debug, Default)]
pub struct Newcomers {
    /// The files, in byte order.
    pub paths: Vec<TreePath>,
    /// By code line, places in `paths`.
    pub holders: HashMap<u64, Vec<usize>>,
}

impl<'t> Upstream<'t> {
    /// `changes` are those from the base to the new upstream that matter, `touching` the commits on the way.
    pub fn new(texts: &'t Texts, changes: Vec<PathChange>, touching: &'t [Touching]) -> Self {
        let changes: BTreeMap<_, _> =
            changes.into_iter().map(|change| (change.path.clone(), change)).collect();
        let made = changes.values().filter(|change| change.old.is_none());
        let new_endings = made.map(|change| ending(&change.path).to_vec()).collect();
        Self {
            texts,
            changes,
            new_endings,
            touching,
            drift: Memo::default(),
            newcomers: Memo::default(),
            new_words: OnceLock::new(),
        }
    }

    /// What a path went through; `None` where upstream left it alone.
    ///
    /// # Errors
    /// When a blob is missing.
    pub fn drift(&self, store: &Store, path: &TreePath) -> Result<Option<Arc<Drift>>, StoreError> {
        let Some(change) = self.changes.get(path) else { return Ok(None) };
        self.drift.get(path, || self.drift_of(store, path, change)).map(Some)
    }

    fn drift_of(&self, store: &Store, path: &TreePath, change: &PathChange) -> Result<Drift, StoreError> {
        let edit = self.texts.edit(store, change)?;
        let (old, new) = (self.texts.code(store, path, edit.old)?, self.texts.code(store, path, edit.new)?);
        let mut removed = HashMap::new();
        for line in edit.blocks.iter().flat_map(|block| block.old.clone()).filter_map(|at| old.get(at)) {
            *removed.entry(line.key).or_default() += 1;
        }
        let mut at_base = HashMap::new();
        for line in old.iter() {
            *at_base.entry(line.key).or_default() += 1;
        }
        let mut added: HashMap<u64, Vec<usize>> = HashMap::new();
        let came = edit.blocks.iter().flat_map(|block| block.new.clone()).filter_map(|at| new.get(at));
        for (place, line) in came.enumerate() {
            added.entry(line.key).or_default().push(place);
        }
        Ok(Drift { edit, added, removed, at_base })
    }

    /// The files with the ending of `path` that upstream made since the base.
    ///
    /// # Errors
    /// When a blob is missing.
    pub fn newcomers(&self, store: &Store, path: &TreePath) -> Result<Arc<Newcomers>, StoreError> {
        let kind = ending(path).to_vec();
        self.newcomers.get(&kind, || {
            let mut found = Newcomers::default();
            let made = self.changes.values().filter(|change| change.old.is_none());
            for change in made.filter(|change| ending(&change.path) == kind) {
                let Some(drift) = self.drift(store, &change.path)? else { continue };
                for key in drift.added.keys() {
                    found.holders.entry(*key).or_default().push(found.paths.len());
                }
                found.paths.push(change.path.clone());
            }
            Ok(found)
        })
    }

    /// Whether upstream touched a path.
    pub fn touches(&self, path: &TreePath) -> bool {
        self.changes.contains_key(path)
    }

    /// The paths that upstream touched and that could matter.
    pub fn paths(&self) -> impl Iterator<Item = &TreePath> {
        self.changes.keys()
    }

    /// Whether upstream made a file with the ending of `path` since the base.
    pub fn has_newcomers(&self, path: &TreePath) -> bool {
        self.new_endings.contains(ending(path))
    }

    /// How many lines upstream changed in a path.
    ///
    /// # Errors
    /// When a blob is missing.
    pub fn churn(&self, store: &Store, path: &TreePath) -> Result<usize, StoreError> {
        let Some(change) = self.changes.get(path) else { return Ok(0) };
        let edit = self.texts.edit(store, change)?;
        Ok(edit.added() + edit.removed())
    }

    /// How many lines upstream changed where an edit stands, or so near that git cannot tell the two apart.
    ///
    /// # Errors
    /// When a blob is missing.
    pub fn churn_beside(&self, store: &Store, edit: &FileEdit) -> Result<usize, StoreError> {
        let Some(change) = self.changes.get(&edit.path) else { return Ok(0) };
        let drift = self.texts.edit(store, change)?;
        let way = if drift.old == edit.old { Vec::new() } else { store.line_blocks(drift.old, edit.old)? };
        Ok(lines_beside(&drift.blocks, &way, &edit.blocks))
    }

    /// The paths of one language into which upstream brought a coined name (case folded) since the base.
    ///
    /// # Errors
    /// When a blob is missing.
    pub fn paths_with_new(
        &self,
        store: &Store,
        folded: &str,
        language: Language,
    ) -> Result<Vec<&TreePath>, StoreError> {
        let (key, mut paths) = (word_key(folded.as_bytes()), Vec::new());
        for (path, words) in self.new_words(store)? {
            // Words stand in comments too; only what the lexer says counts.
            if Language::of(path) == Some(language)
                && words.contains(&key)
                && self.brings(store, path, folded)?
            {
                paths.push(path);
            }
        }
        Ok(paths)
    }

    fn brings(&self, store: &Store, path: &TreePath, folded: &str) -> Result<bool, StoreError> {
        let (Some(language), Some(change)) = (Language::of(path), self.changes.get(path)) else {
            return Ok(false);
        };
        let id = |entry: Option<Entry>| entry.map(|entry| entry.id);
        let new = self.texts.words(store, language, id(change.new))?;
        Ok(new.contains(folded) && !self.texts.words(store, language, id(change.old))?.contains(folded))
    }

    fn new_words(&self, store: &Store) -> Result<&BTreeMap<TreePath, HashSet<u64>>, StoreError> {
        if let Some(known) = self.new_words.get() {
            return Ok(known);
        }
        let mut all = BTreeMap::new();
        for (path, change) in &self.changes {
            let file = |entry: Option<Entry>| {
                entry.filter(|entry| entry.mode != MODE_SUBMODULE).map(|entry| entry.id)
            };
            if Language::of(path).is_none() || file(change.new).is_none() {
                continue;
            }
            let (new, old) =
                (self.texts.coined(store, file(change.new))?, self.texts.coined(store, file(change.old))?);
            all.insert(path.clone(), new.difference(&old).copied().collect());
        }
        Ok(self.new_words.get_or_init(|| all))
    }

    /// Which commits brought lines (`added`) into a path or took them (`removed`) out of it: for each commit how many.
    ///
    /// # Errors
    /// When an object is missing.
    pub fn bringers(
        &self,
        store: &Store,
        path: &TreePath,
        added: &[u64],
        removed: &[u64],
    ) -> Result<BTreeMap<CommitId, usize>, StoreError> {
        let mut wanted: [HashMap<u64, usize>; 2] = Default::default();
        for (wanted, keys) in wanted.iter_mut().zip([added, removed]) {
            for key in keys {
                *wanted.entry(*key).or_default() += 1;
            }
        }
        let mut found = BTreeMap::new();
        for commit in self.touching {
            let Some(change) = commit.changes.iter().find(|change| change.path == *path) else { continue };
            let edit = self.texts.edit(store, change)?;
            let (old, new) =
                (self.texts.code(store, path, edit.old)?, self.texts.code(store, path, edit.new)?);
            let came = edit.blocks.iter().flat_map(|block| block.new.clone()).filter_map(|at| new.get(at));
            let went = edit.blocks.iter().flat_map(|block| block.old.clone()).filter_map(|at| old.get(at));
            let mut count = 0;
            count += came.filter(|line| take(&mut wanted[0], line.key)).count();
            count += went.filter(|line| take(&mut wanted[1], line.key)).count();
            if count > 0 {
                *found.entry(commit.commit).or_default() += count;
            }
        }
        Ok(found)
    }

    /// The first commit after which a path's new text holds a word, case folded.
    ///
    /// # Errors
    /// When an object is missing.
    pub fn introducer(
        &self,
        store: &Store,
        path: &TreePath,
        folded: &str,
    ) -> Result<Option<CommitId>, StoreError> {
        let Some(language) = Language::of(path) else { return Ok(None) };
        for commit in self.touching {
            let Some(change) = commit.changes.iter().find(|change| change.path == *path) else { continue };
            let edit = self.texts.edit(store, change)?;
            if self.texts.mentions(store, edit.new, folded)?
                && self.texts.words(store, language, edit.new)?.contains(folded)
            {
                return Ok(Some(commit.commit));
            }
        }
        Ok(None)
    }
}

/// Lines of context that git wants around a change.
const CONTEXT_LINES: usize = 3;

/// How many lines the blocks of `drift` change beside those of `own`. Both start from the base's file, `own` after `way`.
fn lines_beside(drift: &[LineBlock], way: &[LineBlock], own: &[LineBlock]) -> usize {
    let at_base = |line: usize| {
        let next = way.partition_point(|block| block.new.start <= line);
        match next.checked_sub(1).map(|at| &way[at]) {
            None => line,
            Some(block) if block.new.contains(&line) => block.old.start,
            Some(block) => line - block.new.end + block.old.end,
        }
    };
    let places: Vec<_> = own.iter().map(|block| (at_base(block.old.start), at_base(block.old.end))).collect();
    let is_beside = |block: &&LineBlock| {
        places.iter().any(|(start, end)| {
            block.old.start <= end + CONTEXT_LINES && *start <= block.old.end + CONTEXT_LINES
        })
    };
    drift.iter().filter(is_beside).map(|block| block.old.len() + block.new.len()).sum()
}

/// What a file's name ends with, from its last dot on; the whole path where there is none.
fn ending(path: &TreePath) -> &[u8] {
    path.as_bytes().rsplit(|&byte| byte == b'.').next().unwrap_or_default()
}

/// The coined words of a text, comments included, case folded, as keys.
fn coined_keys(text: &[u8]) -> HashSet<u64> {
    let is_word = |byte: &u8| byte.is_ascii_alphanumeric() || *byte == b'_';
    let words = text.split(|byte| !is_word(byte)).filter(|word| word.len() >= 6 && is_coined(word));
    words.map(|word| word_key(&word.to_ascii_lowercase())).collect()
}

fn word_key(folded: &[u8]) -> u64 {
    let mut hasher = DefaultHasher::new();
    hasher.write(folded);
    hasher.finish()
}

/// The words of a source, case folded.
fn words_in(language: Language, source: &[u8]) -> BTreeSet<String> {
    let words = tokens(language, source).into_iter().filter(|token| token.kind == TokenKind::Word);
    words.map(|token| String::from_utf8_lossy(token.text).to_lowercase()).collect()
}

/// Takes one of what is wanted; says whether there was one.
pub fn take(wanted: &mut HashMap<u64, usize>, key: u64) -> bool {
    match wanted.get_mut(&key) {
        Some(count) if *count > 0 => {
            *count -= 1;
            true
        }
        _ => false,
    }
}

/// The lines of a source as code. A file in no known language counts as words and marks.
fn code_lines(language: Option<Language>, source: &[u8]) -> Vec<CodeLine> {
    let count = lines_of(source).len();
    let Some(language) = language else {
        return lines_of(source).into_iter().map(plain_line).collect();
    };
    let mut hashers: Vec<(DefaultHasher, usize)> = vec![(DefaultHasher::new(), 0); count];
    for token in tokens(language, source) {
        let Some((hasher, weight)) = hashers.get_mut(token.line) else { continue };
        token.text.hash(hasher);
        let telling = match token.kind {
            TokenKind::Word => token.text.len() >= 2,
            TokenKind::Number | TokenKind::Text => true,
            TokenKind::Mark => false,
        };
        *weight += usize::from(telling);
    }
    hashers.into_iter().map(|(hasher, weight)| CodeLine { key: hasher.finish(), weight }).collect()
}

fn plain_line(line: &[u8]) -> CodeLine {
    let mut hasher = DefaultHasher::new();
    let words = line.split(u8::is_ascii_whitespace).filter(|word| !word.is_empty());
    let mut weight = 0;
    for word in words {
        word.hash(&mut hasher);
        weight += usize::from(word.iter().filter(|byte| byte.is_ascii_alphanumeric()).count() >= 2);
    }
    CodeLine { key: hasher.finish(), weight }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_are_beside_a_change_within_gits_context() {
        let block = |old: std::ops::Range<usize>, new| LineBlock { old, new };
        let drift = [block(10..11, 10..12), block(50..50, 51..55)];
        let beside = |way: &[LineBlock], at: usize| lines_beside(&drift, way, &[block(at..at + 1, at..at)]);
        assert_eq!([6, 7, 14, 15, 40].map(|at| beside(&[], at)), [3, 3, 3, 0, 0]);
        // Twenty lines that an earlier patch put on top shift everything.
        let way = [block(0..0, 0..20)];
        assert_eq!([10, 30, 68].map(|at| beside(&way, at)), [0, 3, 4]);
    }
}
