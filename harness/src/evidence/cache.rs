//! Keeps finished reports below `target/regraft/`, by everything that they were made from, so that the same question is
//! answered at once.

use std::{
    collections::BTreeSet,
    fs,
    path::{Path, PathBuf},
};

use sha2::{Digest, Sha256};

use super::{Records, below::Below, report::ForkReport};
use crate::{
    fork::{
        open::{Fork, Source},
        target::Onto,
    },
    stack::{Change, PatchStack},
    tools::{
        file::{self, Most},
        git::ids::CommitId,
        host,
    },
};

/// How many reports of one fork are kept.
const KEPT: usize = 12;

/// The file that holds the report made from these; `None` when this program cannot be told from another version of it.
pub fn file(
    root: &Path,
    fork: &Fork,
    stack: &PatchStack,
    (asked, onto): (&Onto, CommitId),
    (source, records, below): (&Source, &Records, &[Below]),
) -> Option<PathBuf> {
    let mut hasher = Sha256::new();
    let mut add = |part: &[u8]| {
        hasher.update((part.len() as u64).to_le_bytes());
        hasher.update(part);
    };
    add(host::program_stamp()?.as_bytes());
    let Fork { spec, upstream, head, base, store } = fork;
    add(format!("{spec:?} {head:?} {base:?} {asked:?} {onto} {records:?} {}", store.is_shallow()).as_bytes());
    add(format!("{:?}", upstream.tags).as_bytes());
    add(format!("{:?}", mirrors(source)).as_bytes());
    for fork in below {
        add(fork.stamp().as_bytes());
    }
    for patch in &stack.patches {
        add(format!("{} {} {:?} {:?}", patch.number, patch.subject, patch.author, patch.message).as_bytes());
        match &patch.change {
            Change::Diff(file) => add(&file.render()),
            Change::Commit(id) | Change::MergeRest(id) => add(id.to_string().as_bytes()),
        }
    }
    let digest: String = hasher.finalize().iter().take(12).map(|byte| format!("{byte:02x}")).collect();
    Some(folder(root, &spec.name).join(format!("{digest}.json")))
}

/// The mirrors that parts of a fork may be looked up in.
fn mirrors(source: &Source) -> BTreeSet<PathBuf> {
    match source {
        Source::Mirrors(root) => {
            fs::read_dir(root).into_iter().flatten().flatten().map(|entry| entry.path()).collect()
        }
        Source::Remotes => BTreeSet::new(),
    }
}

/// The report in a file, if it holds one.
pub fn read(file: &Path) -> Option<ForkReport> {
    serde_json::from_slice(&file::bytes(file, Most::Record).ok()?).ok()
}

/// Keeps a report. A disk that is full or read-only only makes the next run slower.
pub fn keep(file: &Path, report: &ForkReport) {
    let Some(folder) = file.parent() else { return };
    let written = || -> std::io::Result<()> {
        fs::create_dir_all(folder)?;
        let beside = file.with_extension(format!("new-{}", std::process::id()));
        fs::write(&beside, serde_json::to_vec(report)?)?;
        fs::rename(&beside, file)?;
        let mut kept: Vec<_> = fs::read_dir(folder)?
            .flatten()
            .filter_map(|entry| Some((entry.metadata().ok()?.modified().ok()?, entry.path())))
            .collect();
        kept.sort();
        let old = kept.len().saturating_sub(KEPT);
        kept.iter().take(old).try_for_each(|(_, path)| fs::remove_file(path))
    };
    let _ = written();
}

fn folder(root: &Path, fork: &str) -> PathBuf {
    root.join("target/regraft/evidence").join(fork)
}
