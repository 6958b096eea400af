//! The rebased stack as patch files: canonical mails beside `fork.toml`, a patch that did not change left as it is, what
//! is absorbed gone. First it is decided, as a list of files to write and to remove, and proved by reading it back and
//! replaying it; whoever asked carries it out.

use std::{
    collections::{BTreeMap, BTreeSet},
    fs, io,
    path::{Path, PathBuf},
};

use serde::{Deserialize, Serialize};
use sha2::{Digest as _, Sha256};

use super::{
    execute::DonePatch,
    plan::{PlannedPatch, RebasePlan},
    replay::replay_stack,
};
use crate::{
    config::fork::{ForkSpec, StackSpec, with_base},
    event::Silent,
    stack::{
        mail::{INDENTED, Indented, indented},
        order::{PatchOrder, is_patch_name},
        patch_file::{Body, PatchFile},
        queue::{QueueError, read_queue},
    },
    tools::{
        file::{self, Most},
        git::{
            ids::{CommitId, TreeId},
            mails::MailsError,
            store::{Store, StoreError},
        },
    },
};

/// The file that names what an export of a branch or crate made, so that nothing else is ever touched.
const MANIFEST: &str = "exported.toml";

/// Files to write and to remove, by name, in one folder.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Export {
    /// The folder, relative to the repository root.
    pub folder: PathBuf,
    /// New bytes by file name.
    pub write: BTreeMap<String, Vec<u8>>,
    /// Files to remove.
    pub remove: BTreeSet<String>,
    /// The SHA-256 that each file to write or to remove had when this was decided; `None` where there was no file.
    #[serde(default)]
    pub seen: BTreeMap<String, Option<String>>,
    /// The file of each patch, by number: those left as they are included.
    pub files: BTreeMap<usize, String>,
    /// Things that a person should know.
    pub notes: Vec<String>,
}

/// Why a stack cannot be exported.
#[derive(Debug, thiserror::Error)]
pub enum ExportError {
    /// Git could not write a patch.
    #[error(transparent)]
    Mails(#[from] MailsError),
    /// Objects could not be read or written.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// The disk.
    #[error("cannot read or write `{}`", .path.display())]
    Disk {
        /// The file or folder.
        path: PathBuf,
        /// What the system said.
        #[source]
        source: io::Error,
    },
    /// A file of the export is there already and is none of its own.
    #[error("`{}` is in the way of an exported patch", .0.display())]
    InTheWay(PathBuf),
    /// A file was edited after it was decided what becomes of it.
    #[error("`{}` was changed after the rebase's export had been decided, and before it was written", .0.display())]
    Edited(PathBuf),
    /// What was exported does not read back.
    #[error("the exported patches of `{fork}` do not read back")]
    Unreadable {
        /// The fork.
        fork: String,
        /// What is wrong.
        #[source]
        source: Box<dyn std::error::Error + Send + Sync>,
    },
    /// What was exported makes other files than the rebase did.
    #[error("the exported patches of `{fork}` make the tree {found}, the rebase made {expected}")]
    OtherTree {
        /// The fork.
        fork: String,
        /// The rebase's tree.
        expected: TreeId,
        /// The tree of the exported patches.
        found: TreeId,
    },
}

impl ExportError {
    /// What to try.
    pub fn hint(&self) -> Option<String> {
        match self {
            Self::InTheWay(path) => Some(format!("move `{}` away, or rename it", path.display())),
            Self::Edited(path) => Some(format!(
                "nothing was overwritten: put `{0}` back as it was or copy it elsewhere and remove it, run the command again, \
                 then bring your change into the rebased `{0}`",
                path.display()
            )),
            Self::Disk { source, .. } => crate::tools::disk::hint(source),
            Self::Unreadable { .. } | Self::OtherTree { .. } => {
                Some("nothing under patches/ was changed; the result branch in the cache is whole".to_owned())
            }
            _ => None,
        }
    }
}

#[derive(Debug, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Manifest {
    onto: String,
    tree: String,
    /// SHA-256 by file name.
    files: BTreeMap<String, String>,
}

/// What a stack goes to, by its names.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ExportTarget<'a> {
    /// The repository root.
    pub root: &'a Path,
    /// The target's tag.
    pub tag: Option<&'a str>,
    /// The target's whole tree.
    pub tree: TreeId,
}

/// Decides the export of a finished rebase.
///
/// # Errors
/// See [`ExportError`]; nothing is changed here.
pub fn plan_export(
    store: &Store,
    spec: &ForkSpec,
    plan: &RebasePlan,
    done: &[DonePatch],
    target: &ExportTarget<'_>,
) -> Result<Export, ExportError> {
    let relative = Path::new("patches").join(&spec.name);
    let folder = target.root.join(&relative);
    let mut export = Export { folder: relative, ..Export::default() };
    let carried: Vec<(&DonePatch, &PlannedPatch, CommitId)> =
        done.iter().filter_map(|made| Some((made, plan.patch(made.number)?, made.commit?))).collect();
    let commits: Vec<CommitId> = carried.iter().map(|(_, _, commit)| *commit).collect();
    let below = plan.folder.as_ref().map(ToString::to_string);
    let mut mails = store.mails(&commits, below.as_deref())?;
    for ((_, patch, commit), mail) in carried.iter().zip(&mut mails) {
        if let Some(Indented { text, lines }) = indented_mail(store, *commit, below.as_deref())? {
            *mail = text;
            let lines: Vec<String> = lines.iter().map(ToString::to_string).collect();
            export.notes.push(format!(
                "patch {} `{}`: line {} of its message would end the message in a mail and is indented by a space; \
                 reading it here takes the space away, `git am` keeps it",
                patch.step.number,
                patch.step.subject,
                lines.join(", ")
            ));
        }
    }
    let own_files = matches!(spec.stack, StackSpec::Folder { .. });
    let before = files_of(&folder)?;
    let manifest = if own_files { Manifest::default() } else { read_manifest(&before) };
    let mut all: BTreeMap<String, Vec<u8>> = BTreeMap::new();
    let mut names: Vec<String> = Vec::new();
    for ((made, patch, _), mail) in carried.iter().zip(mails) {
        if mail.is_empty() || made.tip == made.tree {
            export.notes.push(format!(
                "patch {} `{}` changes nothing and has no file",
                made.number, patch.step.subject
            ));
            continue;
        }
        let bytes = canonical(&mail);
        let name = match (&patch.step.file, own_files) {
            (Some(file), true) => file.clone(),
            _ => format!("{:04}-{}.patch", made.number, slug(&patch.step.subject)),
        };
        let kept = before.get(&name).filter(|old| {
            says_the_same(old, &bytes, own_files) || (own_files && still_fits(store, plan, made, &name, old))
        });
        if kept.is_none() {
            let foreign =
                before.contains_key(&name) && !own_files && !is_ours(&manifest, &name, &before[&name]);
            if foreign {
                return Err(ExportError::InTheWay(folder.join(&name)));
            }
            export.write.insert(name.clone(), bytes.clone());
        }
        all.insert(name.clone(), kept.cloned().unwrap_or(bytes));
        export.files.insert(made.number, name.clone());
        names.push(name);
    }
    match &spec.stack {
        StackSpec::Folder { order } => {
            let gone = plan.patches.iter().filter_map(|patch| patch.step.file.clone());
            export.remove = gone.filter(|file| !all.contains_key(file)).collect();
            own_order(&mut export, order, &before);
            let toml = before.get("fork.toml").map(|bytes| String::from_utf8_lossy(bytes).into_owned());
            if let Some(text) = toml {
                let new = with_base(&text, plan.onto.commit, target.tree, target.tag);
                if new != text {
                    export.write.insert("fork.toml".to_owned(), new.into_bytes());
                    export.notes.push(format!("fork.toml's [base] is now {}", plan.onto.commit.short()));
                }
            }
        }
        _ => {
            let stale = manifest.files.keys().filter(|name| !all.contains_key(*name));
            for name in stale {
                match before.get(name) {
                    Some(bytes) if is_ours(&manifest, name, bytes) => _ = export.remove.insert(name.clone()),
                    Some(_) => export
                        .notes
                        .push(format!("{name} was edited since it was exported, and is left alone")),
                    None => {}
                }
            }
            let files = all.iter().map(|(name, bytes)| (name.clone(), sha256(bytes))).collect();
            let manifest =
                Manifest { onto: plan.onto.commit.to_string(), tree: target.tree.to_string(), files };
            let text = toml::to_string(&manifest).expect("a manifest has text keys only");
            if before.get(MANIFEST).map(Vec::as_slice) != Some(text.as_bytes()) {
                export.write.insert(MANIFEST.to_owned(), text.into_bytes());
            }
            export.notes.push(format!(
                "the stack itself stands elsewhere; {} is a copy of it on {}",
                export.folder.display(),
                plan.onto.commit.short()
            ));
        }
    }
    prove(store, spec, plan, &all, &names, done)?;
    let touched = export.write.keys().chain(&export.remove);
    export.seen = touched.map(|name| (name.clone(), before.get(name).map(|bytes| sha256(bytes)))).collect();
    Ok(export)
}

/// Whether every file of an export still is what it was when the export was decided, or is what it is to become.
///
/// # Errors
/// [`ExportError::Edited`] names one that is neither.
pub fn refuse_edited(root: &Path, export: &Export) -> Result<(), ExportError> {
    for (name, seen) in &export.seen {
        let path = root.join(&export.folder).join(name);
        let found = match file::bytes(&path, Most::Record) {
            Ok(bytes) => bytes,
            // Nothing is lost where nothing stands.
            Err(error) if error.kind() == io::ErrorKind::NotFound => continue,
            Err(source) => return Err(ExportError::Disk { path, source }),
        };
        if export.write.get(name) != Some(&found) && *seen != Some(sha256(&found)) {
            return Err(ExportError::Edited(path));
        }
    }
    Ok(())
}

/// Carries an export out. Doing it twice is the same as doing it once.
///
/// # Errors
/// When the disk says no.
pub fn carry_out(root: &Path, export: &Export) -> Result<(), ExportError> {
    let folder = root.join(&export.folder);
    for (name, bytes) in &export.write {
        let path = folder.join(name);
        super::outcome::replace_file(&path, bytes).map_err(|source| ExportError::Disk { path, source })?;
    }
    for name in &export.remove {
        let path = folder.join(name);
        match fs::remove_file(&path) {
            Err(source) if source.kind() != io::ErrorKind::NotFound => {
                return Err(ExportError::Disk { path, source });
            }
            _ => {}
        }
    }
    Ok(())
}

/// The mail of a commit whose message cannot be told as it is, and the lines that had to be indented.
fn indented_mail(
    store: &Store,
    commit: CommitId,
    below: Option<&str>,
) -> Result<Option<Indented>, ExportError> {
    let mut text = store.commit_bytes(commit)?;
    let Some(Indented { text: message, lines }) = indented(&text.message) else { return Ok(None) };
    text.message = message;
    let info = store.commit(commit)?;
    let Some(parent) = info.parents.first() else { return Ok(None) };
    let stand_in =
        store.write_commit_bytes(info.tree, *parent, &text, b"Regraft <regraft@localhost> 0 +0000")?;
    let Some(mail) = store.mails(&[stand_in], below)?.pop() else { return Ok(None) };
    let ends = mail.iter().position(|&byte| byte == b'\n').map_or(0, |at| at + 1);
    let header = format!("{INDENTED}: lines that a mail program would take for a diff or another mail\n");
    Ok(Some(Indented { text: [&mail[..ends], header.as_bytes(), &mail[ends..]].concat(), lines }))
}

/// A mail without what differs from run to run: `index` lines go, except where a binary block needs them.
fn canonical(mail: &[u8]) -> Vec<u8> {
    let Ok(mut file) = PatchFile::parse(mail) else { return mail.to_vec() };
    for diff in &mut file.files {
        if matches!(diff.body, Body::Text(_)) {
            let lines = diff.header.split_inclusive(|&byte| byte == b'\n');
            diff.header = lines.filter(|line| !line.starts_with(b"index ")).flatten().copied().collect();
        }
    }
    file.render()
}

/// Whether an existing file holds the same patch as a new one: the same lines, wherever its hunks are. The mail's words
/// count only for a file that is not the stack itself.
fn says_the_same(old: &[u8], new: &[u8], own_files: bool) -> bool {
    let (Ok(old), Ok(new)) = (PatchFile::parse(old), PatchFile::parse(new)) else { return false };
    let words = own_files || old.preamble == new.preamble;
    words
        && old.files.len() == new.files.len()
        && old.files.iter().zip(&new.files).all(|(old, new)| {
            let about = |diff: &crate::stack::patch_file::FileDiff| {
                (diff.old_path.clone(), diff.new_path.clone(), diff.origin)
            };
            let modes = |diff: &crate::stack::patch_file::FileDiff| match (diff.old_mode, diff.new_mode) {
                (Some(old), Some(new)) if old != new => (Some(old), Some(new)),
                (None, new) if diff.old_path.is_none() => (None, new),
                _ => (None, None),
            };
            about(old) == about(new)
                && modes(old) == modes(new)
                && match (&old.body, &new.body) {
                    (Body::Text(old), Body::Text(new)) => {
                        let lines = |hunks: &[crate::stack::patch_file::Hunk]| {
                            let lines = hunks.iter().map(|hunk| {
                                hunk.lines.iter().map(|line| (line.side, line.text().to_vec())).collect()
                            });
                            lines.collect::<Vec<Vec<_>>>()
                        };
                        lines(old) == lines(new)
                    }
                    (Body::Binary(old), Body::Binary(new)) => old == new,
                    _ => false,
                }
        })
}

/// Whether a file of the stack itself, as it stands, makes the patch's tree of the tree below it: fewer lines of context
/// than git writes are no reason to write it anew.
fn still_fits(store: &Store, plan: &RebasePlan, made: &DonePatch, name: &str, bytes: &[u8]) -> bool {
    let files = BTreeMap::from([(name.to_owned(), bytes.to_vec())]);
    let Ok(stack) = read_queue(&files, &PatchOrder::Series, Some(name)) else { return false };
    let replayed = replay_stack(store, plan.onto.commit, made.tip, &stack, &Silent);
    replayed.is_ok_and(|replayed| replayed.steps.last().is_some_and(|step| step.after == made.tree))
}

/// The order of a folder's own stack, with what is gone taken out of its list.
fn own_order(export: &mut Export, order: &PatchOrder, before: &BTreeMap<String, Vec<u8>>) {
    let list = match order {
        PatchOrder::Number => return,
        PatchOrder::Series => "series",
        PatchOrder::ListIn { file, .. } => file,
    };
    let Some(text) = before.get(list) else { return };
    let names_gone = |line: &[u8]| {
        let line = String::from_utf8_lossy(line);
        let words = line
            .split(|c: char| c.is_whitespace() || ",;\"'()[]{}=".contains(c))
            .filter(|word| !word.is_empty());
        words.take(1).any(|word| export.remove.contains(word.rsplit('/').next().unwrap_or(word)))
    };
    let kept: Vec<u8> = text
        .split_inclusive(|&byte| byte == b'\n')
        .filter(|line| !names_gone(line))
        .flatten()
        .copied()
        .collect();
    if kept != *text {
        export.write.insert(list.to_owned(), kept);
    }
}

/// Reads the exported patches back and replays them on the target: they must make the tree that the rebase made.
fn prove(
    store: &Store,
    spec: &ForkSpec,
    plan: &RebasePlan,
    all: &BTreeMap<String, Vec<u8>>,
    names: &[String],
    done: &[DonePatch],
) -> Result<(), ExportError> {
    let expected =
        done.iter().rev().find(|made| made.outcome.is_carried()).map_or(plan.onto.tree, |made| made.tree);
    if names.is_empty() {
        return Ok(());
    }
    let unreadable = |source: Box<dyn std::error::Error + Send + Sync>| ExportError::Unreadable {
        fork: spec.name.clone(),
        source,
    };
    let series = names.iter().map(|name| format!("{name}\n")).collect::<String>();
    let stack =
        read_queue(all, &PatchOrder::Series, Some(&series)).map_err(|e: QueueError| unreadable(e.into()))?;
    let replayed = replay_stack(store, plan.onto.commit, plan.onto.tree, &stack, &Silent)
        .map_err(|e| unreadable(e.into()))?;
    let found = replayed.steps.last().map_or(plan.onto.tree, |step| step.after);
    match found == expected {
        true => Ok(()),
        false => Err(ExportError::OtherTree { fork: spec.name.clone(), expected, found }),
    }
}

fn files_of(folder: &Path) -> Result<BTreeMap<String, Vec<u8>>, ExportError> {
    let disk = |path: &Path| {
        let path = path.to_owned();
        move |source| ExportError::Disk { path, source }
    };
    let mut files = BTreeMap::new();
    for entry in fs::read_dir(folder).map_err(disk(folder))? {
        let path = entry.map_err(disk(folder))?.path();
        if path.is_file() {
            let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
            files.insert(name, file::bytes(&path, Most::Record).map_err(disk(&path))?);
        }
    }
    Ok(files)
}

fn read_manifest(files: &BTreeMap<String, Vec<u8>>) -> Manifest {
    let text = files.get(MANIFEST).map(|bytes| String::from_utf8_lossy(bytes).into_owned());
    text.and_then(|text| toml::from_str(&text).ok()).unwrap_or_default()
}

fn is_ours(manifest: &Manifest, name: &str, bytes: &[u8]) -> bool {
    is_patch_name(name) && manifest.files.get(name).is_some_and(|hash| *hash == sha256(bytes))
}

fn sha256(bytes: &[u8]) -> String {
    base16ct::lower::encode_string(&Sha256::digest(bytes))
}

/// A subject as part of a file name: letters, digits and single dashes.
fn slug(subject: &str) -> String {
    let words = subject.split(|c: char| !c.is_ascii_alphanumeric()).filter(|word| !word.is_empty());
    let slug = words.collect::<Vec<_>>().join("-");
    let slug: String = slug.chars().take(52).collect();
    let slug = slug.trim_matches('-').to_owned();
    if slug.is_empty() { "patch".to_owned() } else { slug }
}
