//! What upstream did since the base, as far as it concerns a stack: the lines that came and went in the files that the
//! stack touches or could have moved to, and which commit brought them.

use std::{
    cell::{OnceCell, RefCell},
    collections::{BTreeMap, BTreeSet, HashMap, HashSet, hash_map::DefaultHasher},
    hash::{Hash, Hasher},
    rc::Rc,
};

use super::{
    edits::{FileEdit, edit_of, lines_of},
    landed::Touching,
    tokens::{Language, TokenKind, is_coined, tokens},
};
use crate::tools::git::{
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

/// Values that are made once for each key.
type Memo<K, V> = RefCell<HashMap<K, Rc<V>>>;

/// The texts of files, read and lexed once.
pub struct Texts<'s> {
    store: &'s Store,
    lines: Memo<(EntryId, Option<Language>), Vec<CodeLine>>,
    blobs: Memo<EntryId, Vec<u8>>,
    words: Memo<(EntryId, Language), BTreeSet<String>>,
    coined: Memo<EntryId, HashSet<u64>>,
    edits: Memo<(Option<EntryId>, Option<EntryId>), FileEdit>,
}

impl<'s> Texts<'s> {
    /// Nothing read yet.
    pub fn new(store: &'s Store) -> Self {
        Self {
            store,
            lines: RefCell::default(),
            blobs: RefCell::default(),
            words: RefCell::default(),
            coined: RefCell::default(),
            edits: RefCell::default(),
        }
    }

    /// A blob's bytes; empty for none.
    ///
    /// # Errors
    /// When the blob is missing.
    pub fn blob(&self, id: Option<EntryId>) -> Result<Rc<Vec<u8>>, StoreError> {
        let Some(id) = id else { return Ok(Rc::default()) };
        if let Some(known) = self.blobs.borrow().get(&id) {
            return Ok(Rc::clone(known));
        }
        let bytes = Rc::new(self.store.blob(id)?);
        self.blobs.borrow_mut().insert(id, Rc::clone(&bytes));
        Ok(bytes)
    }

    /// A file's lines as code.
    ///
    /// # Errors
    /// When the blob is missing.
    pub fn code(&self, path: &TreePath, id: Option<EntryId>) -> Result<Rc<Vec<CodeLine>>, StoreError> {
        let Some(id) = id else { return Ok(Rc::default()) };
        let key = (id, Language::of(path));
        if let Some(known) = self.lines.borrow().get(&key) {
            return Ok(Rc::clone(known));
        }
        let lines = Rc::new(code_lines(key.1, &self.blob(Some(id))?));
        self.lines.borrow_mut().insert(key, Rc::clone(&lines));
        Ok(lines)
    }

    /// The words of a file, case folded.
    ///
    /// # Errors
    /// When the blob is missing.
    pub fn words(&self, language: Language, id: Option<EntryId>) -> Result<Rc<BTreeSet<String>>, StoreError> {
        let Some(id) = id else { return Ok(Rc::default()) };
        if let Some(known) = self.words.borrow().get(&(id, language)) {
            return Ok(Rc::clone(known));
        }
        let words = Rc::new(words_in(language, &self.blob(Some(id))?));
        self.words.borrow_mut().insert((id, language), Rc::clone(&words));
        Ok(words)
    }

    /// Whether a coined word (case folded) stands anywhere in a file, comments included. Much faster than lexing, so it
    /// goes first.
    ///
    /// # Errors
    /// When the blob is missing.
    pub fn mentions(&self, id: Option<EntryId>, folded: &str) -> Result<bool, StoreError> {
        Ok(self.coined(id)?.contains(&word_key(folded.as_bytes())))
    }

    fn coined(&self, id: Option<EntryId>) -> Result<Rc<HashSet<u64>>, StoreError> {
        let Some(id) = id else { return Ok(Rc::default()) };
        if let Some(known) = self.coined.borrow().get(&id) {
            return Ok(Rc::clone(known));
        }
        let keys = Rc::new(coined_keys(&self.blob(Some(id))?));
        self.coined.borrow_mut().insert(id, Rc::clone(&keys));
        Ok(keys)
    }

    /// The edit that a change of one path amounts to.
    ///
    /// # Errors
    /// When a blob is missing.
    pub fn edit(&self, change: &PathChange) -> Result<Rc<FileEdit>, StoreError> {
        let key = (change.old.map(|entry| entry.id), change.new.map(|entry| entry.id));
        if let Some(known) = self.edits.borrow().get(&key).filter(|known| known.path == change.path) {
            return Ok(Rc::clone(known));
        }
        let edit = Rc::new(edit_of(self.store, change)?);
        self.edits.borrow_mut().insert(key, Rc::clone(&edit));
        Ok(edit)
    }
}

/// What one path went through from the base to the new upstream.
#[derive(Debug, Clone)]
pub struct Drift {
    /// The edit as a whole.
    pub edit: Rc<FileEdit>,
    /// The code lines that came, in their order.
    pub added: Vec<CodeLine>,
    /// How often each code line went.
    pub removed: HashMap<u64, usize>,
    /// How often each code line stood there at the base.
    pub at_base: HashMap<u64, usize>,
}

/// Upstream's drift in the files that matter to a stack.
pub struct Upstream<'s, 't> {
    /// Texts read so far.
    pub texts: &'t Texts<'s>,
    changes: BTreeMap<TreePath, PathChange>,
    touching: &'t [Touching],
    drift: RefCell<HashMap<TreePath, Rc<Drift>>>,
    new_words: OnceCell<BTreeMap<TreePath, HashSet<u64>>>,
}

impl<'s, 't> Upstream<'s, 't> {
    /// `changes` are those from the base to the new upstream that matter, `touching` the commits on the way.
    pub fn new(texts: &'t Texts<'s>, changes: Vec<PathChange>, touching: &'t [Touching]) -> Self {
        let changes = changes.into_iter().map(|change| (change.path.clone(), change)).collect();
        Self { texts, changes, touching, drift: RefCell::default(), new_words: OnceCell::new() }
    }

    /// What a path went through; `None` where upstream left it alone.
    ///
    /// # Errors
    /// When a blob is missing.
    pub fn drift(&self, path: &TreePath) -> Result<Option<Rc<Drift>>, StoreError> {
        let Some(change) = self.changes.get(path) else { return Ok(None) };
        if let Some(known) = self.drift.borrow().get(path) {
            return Ok(Some(Rc::clone(known)));
        }
        let edit = self.texts.edit(change)?;
        let (old, new) = (self.texts.code(path, edit.old)?, self.texts.code(path, edit.new)?);
        let mut removed = HashMap::new();
        for line in edit.blocks.iter().flat_map(|block| block.old.clone()).filter_map(|at| old.get(at)) {
            *removed.entry(line.key).or_default() += 1;
        }
        let mut at_base = HashMap::new();
        for line in old.iter() {
            *at_base.entry(line.key).or_default() += 1;
        }
        let added = edit.blocks.iter().flat_map(|block| block.new.clone());
        let added = added.filter_map(|at| new.get(at)).copied().collect();
        let drift = Rc::new(Drift { edit, added, removed, at_base });
        self.drift.borrow_mut().insert(path.clone(), Rc::clone(&drift));
        Ok(Some(drift))
    }

    /// Whether upstream touched a path.
    pub fn touches(&self, path: &TreePath) -> bool {
        self.changes.contains_key(path)
    }

    /// The paths that upstream touched and that could matter.
    pub fn paths(&self) -> impl Iterator<Item = &TreePath> {
        self.changes.keys()
    }

    /// The files that upstream made since the base.
    pub fn new_files(&self) -> impl Iterator<Item = &TreePath> {
        self.changes.values().filter(|change| change.old.is_none()).map(|change| &change.path)
    }

    /// How many lines upstream changed in a path.
    ///
    /// # Errors
    /// When a blob is missing.
    pub fn churn(&self, path: &TreePath) -> Result<usize, StoreError> {
        let Some(change) = self.changes.get(path) else { return Ok(0) };
        let edit = self.texts.edit(change)?;
        Ok(edit.added() + edit.removed())
    }

    /// The paths of one language into which upstream brought a coined name (case folded) since the base.
    ///
    /// # Errors
    /// When a blob is missing.
    pub fn paths_with_new(&self, folded: &str, language: Language) -> Result<Vec<&TreePath>, StoreError> {
        let (key, mut paths) = (word_key(folded.as_bytes()), Vec::new());
        for (path, words) in self.new_words()? {
            // Words stand in comments too; only what the lexer says counts.
            if Language::of(path) == Some(language) && words.contains(&key) && self.brings(path, folded)? {
                paths.push(path);
            }
        }
        Ok(paths)
    }

    fn brings(&self, path: &TreePath, folded: &str) -> Result<bool, StoreError> {
        let (Some(language), Some(change)) = (Language::of(path), self.changes.get(path)) else {
            return Ok(false);
        };
        let id = |entry: Option<Entry>| entry.map(|entry| entry.id);
        let new = self.texts.words(language, id(change.new))?;
        Ok(new.contains(folded) && !self.texts.words(language, id(change.old))?.contains(folded))
    }

    fn new_words(&self) -> Result<&BTreeMap<TreePath, HashSet<u64>>, StoreError> {
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
            let (new, old) = (self.texts.coined(file(change.new))?, self.texts.coined(file(change.old))?);
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
            let edit = self.texts.edit(change)?;
            let (old, new) = (self.texts.code(path, edit.old)?, self.texts.code(path, edit.new)?);
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
    pub fn introducer(&self, path: &TreePath, folded: &str) -> Result<Option<CommitId>, StoreError> {
        let Some(language) = Language::of(path) else { return Ok(None) };
        for commit in self.touching {
            let Some(change) = commit.changes.iter().find(|change| change.path == *path) else { continue };
            let edit = self.texts.edit(change)?;
            if self.texts.mentions(edit.new, folded)?
                && self.texts.words(language, edit.new)?.contains(folded)
            {
                return Ok(Some(commit.commit));
            }
        }
        Ok(None)
    }
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
