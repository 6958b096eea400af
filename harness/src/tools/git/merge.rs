//! Picks a change onto another tree the way `git rebase` would, without a work tree. What touches nothing that changed
//! in between is done here; everything else is handed to a `git merge-tree` that stays, so that the result is that of
//! git's own `ort` merge: files that both sides changed in place by themselves, the rest as whole trees.

use std::{
    collections::{BTreeMap, BTreeSet},
    path::Path,
    rc::Rc,
    time::Duration,
};

use super::{
    command::git_command,
    ids::TreeId,
    store::{Entry, MODE_FILE, PathChange, Store, StoreError},
    tree_path::TreePath,
};
use crate::tools::{
    process::{Invocation, ProcessError},
    talk::Conversation,
};

/// How long git may think about one merge.
const TIMEOUT: Duration = Duration::from_secs(600);
/// The length of a name that comes five times in an answer, which has to be longer than the buffer before a pipe: that
/// is 4 KiB where git is built with glibc, and a pipe holds 64 KiB at most.
const PADDING_BYTES: usize = 14_000;
/// How many processes merge side by side.
const LANES: usize = 2;
/// From how many files on it pays to merge half of them in another process.
const WORTH_SHARING: usize = 8;
/// Git learned to merge bare trees in this version.
const OLDEST_GIT: &str = "2.45";

/// One change to pick: `base..theirs`, onto `ours`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Pick {
    /// The tree before the change.
    pub base: TreeId,
    /// The tree to pick it onto.
    pub ours: TreeId,
    /// The tree after the change.
    pub theirs: TreeId,
}

/// What becomes of hunks that both sides changed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Favour {
    /// They conflict.
    Neither,
    /// The picked change's own version is kept.
    Theirs,
}

/// The outcome of a [`Pick`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Picked {
    /// The resulting tree. Where a file conflicts, it holds conflict markers or one side's version.
    pub tree: TreeId,
    /// The paths in conflict, in byte order; empty when the pick is clean.
    pub conflicts: Vec<PathConflict>,
    /// Whether the target holds, at every path of the change, just what the change starts from.
    pub untouched: bool,
}

/// One path that could not be merged.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PathConflict {
    /// The path.
    pub path: TreePath,
    /// The name under which the merged tree holds it: another one where its place is taken by a folder.
    pub merged_as: TreePath,
    /// Git's words for it, such as `contents` or `modify/delete`.
    pub kind: String,
    /// What the tree before the change holds there.
    pub base: Option<Entry>,
    /// What the tree picked onto holds there.
    pub ours: Option<Entry>,
    /// What the tree after the change holds there.
    pub theirs: Option<Entry>,
}

/// Why merging could not be done.
#[derive(Debug, thiserror::Error)]
pub enum MergeError {
    /// Objects could not be read or written.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// Git itself failed.
    #[error("git could not merge trees in `{}`", .store.display())]
    Git {
        /// The object store.
        store: std::path::PathBuf,
        /// What git said.
        #[source]
        source: ProcessError,
    },
    /// Git answered in another form than expected.
    #[error("git's answer to a merge of trees cannot be read: {0}")]
    Answer(&'static str),
}

impl MergeError {
    /// What to try.
    pub fn hint(&self) -> Option<String> {
        match self {
            Self::Store(error) => error.hint(),
            Self::Git { source, .. } if source.stderr_tail().contains("unable to read") => Some(
                "the repository is a partial copy: fetch its files (`git fetch --refetch --no-filter`), or drop --mirror-root"
                    .to_owned(),
            ),
            _ => Some(format!(
                "git {OLDEST_GIT} or later is needed, and every file that both sides changed must be in the repository"
            )),
        }
    }
}

impl Store {
    /// Picks several changes, independently of each other. Outcomes come in the order of `picks`.
    ///
    /// # Errors
    /// See [`MergeError`]; a conflict is no error.
    pub fn pick_all(&self, picks: &[Pick], favour: Favour) -> Result<Vec<Picked>, MergeError> {
        let settled: Vec<Settled> =
            picks.iter().map(|pick| self.settle(pick)).collect::<Result<_, StoreError>>()?;
        let contests = self.open_contests(&settled, favour);
        let whole: BTreeSet<Pick> = picks
            .iter()
            .zip(&settled)
            .filter(|(_, settled)| matches!(settled, Settled::Whole))
            .map(|(pick, _)| *pick)
            .collect();
        let merged = self.merged(&contests, &whole, favour)?;
        let outcome = |(pick, settled): (&Pick, Settled)| match settled {
            Settled::Same(tree) => Ok(Picked { tree, conflicts: Vec::new(), untouched: true }),
            Settled::Whole => Ok(merged[pick].clone()),
            Settled::WithDrivers => self.merge_once(*pick, favour, &[&attributes_of(pick)]),
            Settled::Files { edits, contested } => self.with_contests(pick, edits, contested, favour),
        };
        picks.iter().zip(settled).map(outcome).collect()
    }

    /// Merges at once the files that picks will ask for, so that picking one after the other does not wait for each.
    /// Guessing wrong costs time and nothing else.
    ///
    /// # Errors
    /// See [`MergeError`].
    pub fn foresee(&self, picks: &[Pick], favour: Favour) -> Result<(), MergeError> {
        let settled: Vec<Settled> =
            picks.iter().map(|pick| self.settle(pick)).collect::<Result<_, StoreError>>()?;
        self.merged(&self.open_contests(&settled, favour), &BTreeSet::new(), favour).map(drop)
    }

    /// The files to merge that are not merged yet.
    fn open_contests(&self, settled: &[Settled], favour: Favour) -> BTreeSet<Contest> {
        let contests = settled.iter().flat_map(|settled| match settled {
            Settled::Files { contested, .. } => contested.values().copied().collect(),
            _ => Vec::new(),
        });
        contests.filter(|contest| !self.contests.borrow().contains_key(&(*contest, favour))).collect()
    }

    /// Picks one change.
    ///
    /// # Errors
    /// See [`MergeError`]; a conflict is no error.
    pub fn pick(&self, pick: Pick, favour: Favour) -> Result<Picked, MergeError> {
        let mut outcomes = self.pick_all(&[pick], favour)?;
        outcomes.pop().ok_or(MergeError::Answer("it holds no outcome"))
    }

    /// Picks one change so that something whole always comes out: where it conflicts, the change's own version of the
    /// conflicting hunks is kept, and of the whole file where files cannot be mixed.
    ///
    /// # Errors
    /// See [`MergeError`].
    pub fn carry(&self, pick: Pick) -> Result<TreeId, MergeError> {
        let mut trees = self.carry_all(&[pick])?;
        trees.pop().ok_or(MergeError::Answer("it holds no outcome"))
    }

    /// [`Store::carry`] for several changes, independently of each other.
    ///
    /// # Errors
    /// See [`MergeError`].
    pub fn carry_all(&self, picks: &[Pick]) -> Result<Vec<TreeId>, MergeError> {
        let outcomes = self.pick_all(picks, Favour::Theirs)?;
        picks.iter().zip(outcomes).map(|(pick, picked)| self.carried_tree(*pick, picked)).collect()
    }

    fn carried_tree(&self, pick: Pick, picked: Picked) -> Result<TreeId, MergeError> {
        let mut edits = BTreeMap::new();
        for conflict in &picked.conflicts {
            let own = self.entry(pick.theirs, &conflict.path)?;
            let (before, target) =
                (self.entry(pick.base, &conflict.path)?, self.entry(pick.ours, &conflict.path)?);
            if conflict.merged_as != conflict.path {
                edits.insert(conflict.merged_as.clone(), None);
            }
            // A name that only the target has stays as git left it.
            if own.is_some() || before.is_some() || target.is_none() {
                edits.insert(conflict.path.clone(), own);
            }
        }
        Ok(self.edited_tree(picked.tree, &edits)?)
    }

    /// How many places of a conflicting path need a person: the conflict markers in the merged file, or 1 where the
    /// file as a whole is in question.
    ///
    /// # Errors
    /// When the merged file cannot be read.
    pub fn conflict_hunks(&self, picked: &Picked, conflict: &PathConflict) -> Result<usize, StoreError> {
        let merged_as = &conflict.merged_as;
        let file =
            self.entry(picked.tree, merged_as)?.filter(|entry| matches!(entry.mode, 0o100_644 | 0o100_755));
        let Some(file) = file else { return Ok(1) };
        let bytes = self.blob(file.id)?;
        let markers = bytes.split(|&byte| byte == b'\n').filter(|line| line.starts_with(b"<<<<<<< ")).count();
        Ok(markers.max(1))
    }

    /// The paths that `base..theirs` changes; known ones are not compared again.
    pub(super) fn known_changes(
        &self,
        base: TreeId,
        theirs: TreeId,
    ) -> Result<Rc<Vec<PathChange>>, StoreError> {
        if let Some(known) = self.known.borrow().get(&(base, theirs)) {
            return Ok(Rc::clone(known));
        }
        let changes = Rc::new(self.changes(base, theirs)?);
        self.known.borrow_mut().insert((base, theirs), Rc::clone(&changes));
        Ok(changes)
    }

    /// What a pick needs, `.gitattributes` included.
    fn settle(&self, pick: &Pick) -> Result<Settled, StoreError> {
        let settled = self.settle_by_lines(pick)?;
        let may_have_drivers = match &settled {
            Settled::Files { contested, .. } => self.may_have_drivers(pick.ours, contested.keys())?,
            Settled::Whole if self.has_merge_rules(pick.ours)? => {
                // A file may go by its name on either side.
                let theirs = self.known_changes(pick.base, pick.theirs)?;
                let ours = self.known_changes(pick.base, pick.ours)?;
                self.may_have_drivers(pick.ours, theirs.iter().chain(ours.iter()).map(|change| &change.path))?
            }
            Settled::Same(_) | Settled::Whole | Settled::WithDrivers => false,
        };
        Ok(if may_have_drivers { Settled::WithDrivers } else { settled })
    }

    /// What a pick needs: nothing where the target left its paths alone, some files merged where both sides changed
    /// them in place, otherwise a merge of whole trees. Files that are there on all three sides take no part in
    /// renames. Whether `ort` would follow a renamed folder is what equal files do not settle, hence the looks at
    /// folders.
    fn settle_by_lines(&self, pick: &Pick) -> Result<Settled, StoreError> {
        if pick.ours == pick.base {
            return Ok(Settled::Same(pick.theirs));
        }
        let changes = self.known_changes(pick.base, pick.theirs)?;
        let mut edits = BTreeMap::new();
        let mut contested = BTreeMap::new();
        for PathChange { path, old, new } in changes.iter() {
            let ours = self.entry(pick.ours, path)?;
            if ours != *old {
                match (*old, ours, *new) {
                    (Some(base), Some(ours), Some(theirs))
                        if [base, ours, theirs].iter().all(|entry| entry.is_file()) =>
                    {
                        contested.insert(path.clone(), Contest { base, ours, theirs });
                        continue;
                    }
                    _ => return Ok(Settled::Whole),
                }
            }
            let folder_may_have_moved = match (old, new) {
                (None, Some(_)) => self.way_has_gone(pick, path)?,
                (Some(_), None) => !self.has_folder(pick.theirs, path.parent())?,
                _ => false,
            };
            if folder_may_have_moved {
                return Ok(Settled::Whole);
            }
            edits.insert(path.clone(), *new);
        }
        Ok(Settled::Files { edits, contested })
    }

    /// Whether a folder that leads to an added path was there before and is not in the target, or something else
    /// stands in its place.
    fn way_has_gone(&self, pick: &Pick, path: &TreePath) -> Result<bool, StoreError> {
        let folder = path.parent();
        if self.has_folder(pick.ours, folder)? {
            return Ok(false);
        }
        let ends = folder.iter().enumerate().filter(|(_, byte)| **byte == b'/').map(|(at, _)| at);
        for end in ends.chain([folder.len()]) {
            let way = &folder[..end];
            let Ok(path) = TreePath::new(way) else { continue };
            let there = self.has_folder(pick.ours, way)?;
            if !there && (self.has_folder(pick.base, way)? || self.entry(pick.ours, &path)?.is_some()) {
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// Puts the merged files of a pick in place.
    fn with_contests(
        &self,
        pick: &Pick,
        mut edits: BTreeMap<TreePath, Option<Entry>>,
        contested: BTreeMap<TreePath, Contest>,
        favour: Favour,
    ) -> Result<Picked, MergeError> {
        let mut conflicts = Vec::new();
        let untouched = contested.is_empty();
        for (path, contest) in contested {
            let known = self.contests.borrow().get(&(contest, favour)).cloned();
            let merged = known.ok_or(MergeError::Answer("it leaves out a file"))?;
            edits.insert(path.clone(), Some(merged.entry));
            if let Some(kind) = merged.conflict {
                let [base, ours, theirs] = [contest.base, contest.ours, contest.theirs].map(Some);
                let merged_as = path.clone();
                conflicts.push(PathConflict { path, merged_as, kind, base, ours, theirs });
            }
        }
        Ok(Picked { tree: self.edited_tree(pick.ours, &edits)?, conflicts, untouched })
    }

    /// Merges `whole` picks, and files by themselves, which [`Store::with_contests`] finds afterwards.
    fn merged(
        &self,
        contests: &BTreeSet<Contest>,
        whole: &BTreeSet<Pick>,
        favour: Favour,
    ) -> Result<BTreeMap<Pick, Picked>, MergeError> {
        if contests.is_empty() && whole.is_empty() {
            return Ok(BTreeMap::new());
        }
        let mut requests: Vec<Pick> = whole.iter().copied().collect();
        // Each file under a name of its own in one small tree a side: git merges them all at once, or half of them
        // beside the other half.
        let contests: Vec<Contest> = contests.iter().copied().collect();
        let share =
            if contests.len() < WORTH_SHARING { contests.len() } else { contests.len().div_ceil(LANES) };
        let shares: Vec<&[Contest]> = contests.chunks(share.max(1)).collect();
        for share in &shares {
            requests.push(self.gathered(share)?);
        }
        let mut outcomes = self.merge_tree(&requests, favour)?;
        let of_shares = outcomes.split_off(whole.len());
        for (share, Picked { tree, conflicts, .. }) in shares.into_iter().zip(of_shares) {
            let kinds: BTreeMap<&TreePath, &str> =
                conflicts.iter().map(|conflict| (&conflict.path, conflict.kind.as_str())).collect();
            for (at, contest) in share.iter().enumerate() {
                let name = numbered(at);
                let entry = self.entry(tree, &name)?.ok_or(MergeError::Answer("a merged file is missing"))?;
                let conflict = kinds.get(&name).map(|&kind| kind.to_owned());
                self.contests.borrow_mut().insert((*contest, favour), Merged { entry, conflict });
            }
        }
        Ok(whole.iter().copied().zip(outcomes).collect())
    }

    fn gathered(&self, contests: &[Contest]) -> Result<Pick, StoreError> {
        let side = |of: fn(&Contest) -> Entry| {
            let entries = contests.iter().enumerate().map(|(at, contest)| (numbered(at), Some(of(contest))));
            self.edited_tree(self.empty_tree()?, &entries.collect())
        };
        Ok(Pick { base: side(|c| c.base)?, ours: side(|c| c.ours)?, theirs: side(|c| c.theirs)? })
    }

    /// Picks one change so that the conflict markers also show the lines before the change (git's `zdiff3` style).
    ///
    /// # Errors
    /// See [`MergeError`]; a conflict is no error.
    pub fn pick_showing_base(&self, pick: Pick) -> Result<Picked, MergeError> {
        let attributes = attributes_of(&pick);
        let mut settings = vec!["-c", "merge.conflictStyle=zdiff3"];
        if matches!(self.settle(&pick)?, Settled::WithDrivers) {
            settings.push(&attributes);
        }
        self.merge_once(pick, Favour::Neither, &settings)
    }

    /// One merge of whole trees by a git of its own, with settings of its own.
    fn merge_once(&self, pick: Pick, favour: Favour, settings: &[&str]) -> Result<Picked, MergeError> {
        let failed = |source| MergeError::Git { store: Path::to_owned(self.path()), source };
        let command = merge_tree_command(git_command(self.path()).args(settings), favour);
        let command = command.stdin(pick.request());
        let answer = command.timeout(TIMEOUT).run_ok().map_err(failed)?.stdout_bytes;
        let mut fields = answer.split(|&byte| byte == 0);
        let next = &mut || fields.next().map(<[u8]>::to_vec).ok_or(MergeError::Answer("it ends too early"));
        read_outcome(next)
    }

    /// Hands picks to `git merge-tree`: to one process, or to several that work side by side, for all that is ever
    /// asked of this store.
    fn merge_tree(&self, picks: &[Pick], favour: Favour) -> Result<Vec<Picked>, MergeError> {
        let mut shares: Vec<(Merger, Vec<Pick>)> = Vec::new();
        for lane in 0..LANES.min(picks.len()) {
            let known = self.mergers.borrow_mut().remove(&(favour, lane));
            let merger = known.map_or_else(|| self.start_merger(favour), Ok)?;
            shares.push((merger, picks.iter().copied().skip(lane).step_by(LANES).collect()));
        }
        let failed = |source| MergeError::Git { store: Path::to_owned(self.path()), source };
        for (merger, picks) in &mut shares {
            merger.ask(picks).map_err(failed)?;
        }
        let mut answers = Vec::new();
        for (lane, (mut merger, picks)) in shares.into_iter().enumerate() {
            let next = &mut || merger.talk.hear_until(0).map_err(failed);
            if merger.padded {
                skip_outcome(next)?;
            }
            merger.padded = true;
            let picked: Vec<Picked> = picks.iter().map(|_| read_outcome(next)).collect::<Result<_, _>>()?;
            self.mergers.borrow_mut().insert((favour, lane), merger);
            answers.push(picked.into_iter());
        }
        (0..picks.len())
            .map(|at| answers[at % LANES].next().ok_or(MergeError::Answer("an outcome is missing")))
            .collect()
    }

    fn start_merger(&self, favour: Favour) -> Result<Merger, MergeError> {
        let command = merge_tree_command(git_command(self.path()), favour);
        let talk = Conversation::start(&command, TIMEOUT)
            .map_err(|source| MergeError::Git { store: Path::to_owned(self.path()), source })?;
        let name = TreePath::new("-".repeat(PADDING_BYTES)).expect("dashes are a path");
        let holding = |text: &[u8]| {
            let entry = Entry { id: self.write_blob(text)?, mode: MODE_FILE };
            self.edited_tree(self.empty_tree()?, &BTreeMap::from([(name.clone(), Some(entry))]))
        };
        let padding = Pick { base: holding(b"1")?, ours: self.empty_tree()?, theirs: holding(b"2")? };
        Ok(Merger { talk, padding, padded: false })
    }
}

impl Pick {
    fn request(&self) -> String {
        format!("{} -- {} {}\n", self.base, self.ours, self.theirs)
    }
}

/// What it takes to know a pick's outcome.
enum Settled {
    /// Nothing more: the target is what the change starts from.
    Same(TreeId),
    /// Paths that the target left alone, and files that both sides changed in place.
    Files { edits: BTreeMap<TreePath, Option<Entry>>, contested: BTreeMap<TreePath, Contest> },
    /// A merge of the whole trees.
    Whole,
    /// The same, by the drivers that `.gitattributes` may name for the files concerned.
    WithDrivers,
}

/// One file that both sides changed in place.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) struct Contest {
    base: Entry,
    ours: Entry,
    theirs: Entry,
}

/// What a [`Contest`] becomes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Merged {
    entry: Entry,
    conflict: Option<String>,
}

/// A `git merge-tree` that waits for more. Git hands its answers on when its buffer is full or its input ends, so every
/// batch ends with a merge whose answer is longer than any such buffer; what is left of it comes with the next batch.
pub(super) struct Merger {
    talk: Conversation,
    padding: Pick,
    padded: bool,
}

impl Merger {
    fn ask(&mut self, picks: &[Pick]) -> Result<(), ProcessError> {
        let mut lines: String = picks.iter().map(Pick::request).collect();
        lines.push_str(&self.padding.request());
        self.talk.say(lines.as_bytes())
    }
}

/// Git's option to read `.gitattributes` where the change is picked onto.
fn attributes_of(pick: &Pick) -> String {
    format!("--attr-source={}", pick.ours)
}

fn merge_tree_command(git: Invocation, favour: Favour) -> Invocation {
    let command = git.args(["merge-tree", "--write-tree", "--stdin", "-z"]);
    match favour {
        Favour::Neither => command,
        Favour::Theirs => command.args(["-X", "theirs"]),
    }
}

fn numbered(at: usize) -> TreePath {
    TreePath::new(format!("{at:06}")).expect("digits are a path")
}

/// Reads what `git merge-tree --stdin -z` prints for one pick, field by field: a status, a tree, and on conflicts the
/// entries by stage and the messages, each list ended by an empty field.
fn read_outcome(next: &mut dyn FnMut() -> Result<Vec<u8>, MergeError>) -> Result<Picked, MergeError> {
    let clean = match &next()?[..] {
        b"1" => true,
        b"0" => false,
        _ => return Err(MergeError::Answer("a status is neither 0 nor 1")),
    };
    let tree = std::str::from_utf8(&next()?).ok().and_then(|hex| hex.parse().ok());
    let tree = tree.ok_or(MergeError::Answer("a tree is missing"))?;
    let mut found: BTreeMap<TreePath, PathConflict> = BTreeMap::new();
    loop {
        let field = next()?;
        if field.is_empty() {
            break;
        }
        let (path, stage, entry) = read_entry(&field).ok_or(MergeError::Answer("an entry is malformed"))?;
        let conflict = conflict_at(&mut found, path);
        match stage {
            1 => conflict.base = Some(entry),
            2 => conflict.ours = Some(entry),
            _ => conflict.theirs = Some(entry),
        }
    }
    if !clean {
        read_messages(next, &mut found)?;
        if found.is_empty() {
            return Err(MergeError::Answer("it says that there is a conflict, and not where"));
        }
    }
    Ok(Picked { tree, conflicts: found.into_values().collect(), untouched: false })
}

/// Reads past the answer to one conflicting pick.
fn skip_outcome(next: &mut dyn FnMut() -> Result<Vec<u8>, MergeError>) -> Result<(), MergeError> {
    // Two lists follow on the status and the tree; nothing in them is empty.
    for _ in 0..2 {
        while !next()?.is_empty() {}
    }
    Ok(())
}

pub(super) fn read_entry(field: &[u8]) -> Option<(TreePath, u8, Entry)> {
    let tab = field.iter().position(|&byte| byte == b'\t')?;
    let mut words = std::str::from_utf8(&field[..tab]).ok()?.split(' ');
    let mode = u32::from_str_radix(words.next()?, 8).ok()?;
    let id = words.next()?.parse().ok()?;
    let stage = words.next()?.parse().ok()?;
    Some((TreePath::new(&field[tab + 1..]).ok()?, stage, Entry { id, mode }))
}

fn read_messages(
    next: &mut dyn FnMut() -> Result<Vec<u8>, MergeError>,
    found: &mut BTreeMap<TreePath, PathConflict>,
) -> Result<(), MergeError> {
    loop {
        let count = next()?;
        if count.is_empty() {
            return Ok(());
        }
        let count = std::str::from_utf8(&count).ok().and_then(|count| count.parse::<usize>().ok());
        let count = count.ok_or(MergeError::Answer("a message is malformed"))?;
        let mut paths = Vec::new();
        for _ in 0..count {
            paths.push(next()?);
        }
        let kind = String::from_utf8_lossy(&next()?).into_owned();
        let _text = next()?;
        // Git leaves the space out before some of them.
        let kind = kind.strip_prefix("CONFLICT").or_else(|| kind.strip_prefix("ERROR"));
        let kind = kind.and_then(|kind| kind.trim_start().strip_prefix('(')?.strip_suffix(')'));
        let Some(kind) = kind else { continue };
        let known: Vec<TreePath> = paths
            .into_iter()
            .filter_map(|path| TreePath::new(path).ok())
            .map(|path| own_path(&path))
            .collect();
        // Some conflicts (a folder renamed two ways) leave no entries: their first path stands for them.
        let named = known.iter().any(|path| found.contains_key(path));
        for path in known.into_iter().take(if named { count } else { 1 }) {
            if !named || found.contains_key(&path) {
                let conflict = conflict_at(found, path);
                if conflict.kind.is_empty() {
                    conflict.kind = kind.to_owned();
                }
            }
        }
    }
}

fn conflict_at(found: &mut BTreeMap<TreePath, PathConflict>, merged_as: TreePath) -> &mut PathConflict {
    let path = own_path(&merged_as);
    found.entry(path.clone()).or_insert(PathConflict {
        path,
        merged_as,
        kind: String::new(),
        base: None,
        ours: None,
        theirs: None,
    })
}

/// A path without what git adds where a folder has taken its place: `~`, the id of the tree that it came from, and a
/// number where even that name is taken.
fn own_path(merged_as: &TreePath) -> TreePath {
    let bytes = merged_as.as_bytes();
    let cut = bytes.iter().rposition(|&byte| byte == b'~').filter(|&at| {
        let tail = &bytes[at + 1..];
        let id = tail.get(..40).is_some_and(|id| id.iter().all(u8::is_ascii_hexdigit));
        id && tail[40..].iter().all(|byte| *byte == b'_' || byte.is_ascii_digit())
    });
    cut.and_then(|at| TreePath::new(&bytes[..at]).ok()).unwrap_or_else(|| merged_as.clone())
}

#[cfg(test)]
mod tests {
    use proptest::{collection::vec, prelude::*, sample::select};

    use super::*;
    use crate::tools::git::fixture::ForkFixture;

    #[test]
    fn an_answer_with_clean_and_conflicting_picks_is_read_in_order() {
        let id = "0123456789012345678901234567890123456789";
        let answer = format!(
            "1\0{id}\0\x000\0{id}\0100644 {id} 1\ta\0100755 {id} 3\ta\0\x001\0a\0Auto-merging\0Auto-merging a\n\0\
             1\0a\0CONFLICT (modify/delete)\0CONFLICT: a\n\0\x001\0{id}\0\0"
        );
        let mut fields = answer.split('\0').map(|field| Ok(field.as_bytes().to_vec()));
        let mut next = || fields.next().unwrap_or(Err(MergeError::Answer("it is over")));
        let picked: Vec<Picked> = (0..3).map(|_| read_outcome(&mut next).unwrap()).collect();
        let told: Vec<Vec<(String, String)>> = picked
            .iter()
            .map(|picked| picked.conflicts.iter().map(|c| (c.path.to_string(), c.kind.clone())).collect())
            .collect();
        assert_eq!(told, [vec![], vec![("a".to_owned(), "modify/delete".to_owned())], vec![]]);
        assert_eq!(picked[1].conflicts[0].theirs.map(|entry| entry.mode), Some(0o100_755));
        assert!(read_outcome(&mut || Ok(b"2".to_vec())).is_err());
    }

    #[test]
    fn a_folder_that_went_two_ways_is_a_conflict_as_it_is_for_git() {
        let file = |number: u32| (number..number + 30).map(|line| format!("{line}\n")).collect::<String>();
        let files: Vec<(String, String)> = (1..5).map(|n| (format!("d/f{n}"), file(100 * n))).collect();
        let base: Vec<(&str, &str)> = files.iter().map(|(path, text)| (&path[..], &text[..])).collect();
        let moved: Vec<(String, &str)> = base
            .iter()
            .zip(["e", "e", "g", "g"])
            .map(|((path, text), to)| (path.replace('d', to), *text))
            .collect();
        let gone = base.iter().map(|(path, _)| (*path, None));
        let split: Vec<_> = moved.iter().map(|(path, text)| (&path[..], Some(*text))).chain(gone).collect();
        let added = [("d/new", Some("new\n"))];
        for (ours, theirs) in [(&split[..], &added[..]), (&added[..], &split[..])] {
            let fixture = ForkFixture::new(&base).advance("ours", ours).patch("theirs", theirs);
            let store = &fixture.store;
            let tree = |commit| store.commit(commit).unwrap().tree;
            let pick =
                Pick { base: tree(fixture.base), ours: tree(fixture.onto()), theirs: tree(fixture.head()) };
            let picked = store.pick(pick, Favour::Neither).unwrap();
            let told: Vec<_> = picked.conflicts.iter().map(|c| (c.path.to_string(), &c.kind[..])).collect();
            assert_eq!(told, [("d".to_owned(), "directory rename unclear split")]);
        }
    }

    /// Files by name; contents are told by a number.
    type Files = BTreeMap<&'static str, u8>;

    /// A text of its own for every tenth of the numbers, with another line changed for every number.
    fn text(number: u8) -> String {
        let line = |at: u8| match at == 3 * (number % 10) {
            true => format!("changed {number}\n"),
            false => format!("line {at} of {}\n", number / 10),
        };
        (0..30).map(line).collect()
    }

    fn stored(store: &Store, files: &Files) -> TreeId {
        let file =
            |number: &u8| Entry { id: store.write_blob(text(*number).as_bytes()).unwrap(), mode: MODE_FILE };
        let edits =
            files.iter().map(|(name, number)| (TreePath::new(*name).unwrap(), Some(file(number)))).collect();
        store.edited_tree(store.empty_tree().unwrap(), &edits).unwrap()
    }

    const NAMES: [&str; 10] = ["a", "b", "d/a", "d/b", "d/e/a", "d/e/b", "f/a", "f/b", "f/g/a", "g"];

    #[derive(Debug, Clone)]
    enum Deed {
        Edit(usize, u8),
        Delete(usize),
        Move(usize, usize),
        MoveFolder(&'static str, &'static str),
    }

    fn done(mut files: Files, deeds: &[Deed]) -> Files {
        for deed in deeds {
            match *deed {
                Deed::Edit(at, number) => {
                    files
                        .entry(NAMES[at])
                        .and_modify(|old| *old = *old / 10 * 10 + number % 10)
                        .or_insert(number);
                }
                Deed::Delete(at) => _ = files.remove(NAMES[at]),
                Deed::Move(from, to) => {
                    if let Some(number) = files.remove(NAMES[from]) {
                        files.insert(NAMES[to], number);
                    }
                }
                Deed::MoveFolder(from, to) => {
                    for old in NAMES {
                        let new = old.strip_prefix(from).map(|rest| format!("{to}{rest}"));
                        let new = new.and_then(|new| NAMES.iter().find(|name| **name == new));
                        if let Some(new) = new
                            && let Some(number) = files.remove(old)
                        {
                            files.insert(new, number);
                        }
                    }
                }
            }
        }
        files
    }

    fn deeds() -> impl Strategy<Value = Vec<Deed>> {
        let deed = prop_oneof![
            6 => (0..NAMES.len(), 0u8..100).prop_map(|(at, number)| Deed::Edit(at, number)),
            1 => (0..NAMES.len()).prop_map(Deed::Delete),
            1 => (0..NAMES.len(), 0..NAMES.len()).prop_map(|(from, to)| Deed::Move(from, to)),
            1 => select(vec![("d/", "f/"), ("d/e/", "f/"), ("f/g/", "d/e/")])
                .prop_map(|(from, to)| Deed::MoveFolder(from, to)),
        ];
        vec(deed, 0..5)
    }

    proptest! {
        #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(80) })]

        #[test]
        fn a_pick_gives_what_git_gives_for_whole_trees(
            numbers in vec(proptest::option::of(0u8..100), NAMES.len()),
            ours in deeds(),
            theirs in deeds(),
        ) {
            let base: Files = NAMES.into_iter().zip(numbers).filter_map(|(name, n)| Some((name, n?))).collect();
            let fixture = ForkFixture::new(&[]);
            let store = &fixture.store;
            let (ours, theirs) = (done(base.clone(), &ours), done(base.clone(), &theirs));
            let pick =
                Pick { base: stored(store, &base), ours: stored(store, &ours), theirs: stored(store, &theirs) };
            for favour in [Favour::Neither, Favour::Theirs] {
                let told = |picked: &Picked| -> Vec<(TreePath, String)> {
                    picked.conflicts.iter().map(|c| (c.path.clone(), c.kind.clone())).collect()
                };
                let (quick, whole) = (store.pick(pick, favour).unwrap(), store.merge_tree(&[pick], favour).unwrap());
                prop_assert_eq!(told(&quick), told(&whole[0]));
                if quick.conflicts.is_empty() {
                    prop_assert_eq!(quick.tree, whole[0].tree);
                }
            }
        }
    }
}
