//! Turns named patch files into a stack: parse each, put them in order, take subject and author from mails. It works on
//! bytes; reading a folder is one function at the door.

use std::{
    collections::BTreeMap,
    fs, io,
    path::{Path, PathBuf},
};

use super::{
    Change, Patch, PatchStack,
    mail::{MailError, read_mail},
    order::{self, OrderError, PatchOrder},
    patch_file::{PatchFile, PatchFileError},
};
use crate::tools::{
    disk,
    file::{self, Most},
};

/// Why a queue of patch files cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum QueueError {
    /// The folder cannot be read.
    #[error("cannot read `{}`", .path.display())]
    Read {
        /// The folder or file.
        path: PathBuf,
        /// What the system said.
        #[source]
        source: io::Error,
    },
    /// There is no patch in it.
    #[error("no patch file lies in {0}")]
    Empty(String),
    /// The file that holds the order is not there.
    #[error("the order should stand in `{0}`, which is not there")]
    NoOrderFile(String),
    /// The order cannot be told.
    #[error("cannot put the patches in order")]
    Order(#[from] OrderError),
    /// One file is no patch.
    #[error("cannot read patch `{file}`")]
    Patch {
        /// The file's name.
        file: String,
        /// What is wrong.
        #[source]
        source: PatchFileError,
    },
    /// One file's mail part is wrong.
    #[error("cannot read patch `{file}`")]
    Mail {
        /// The file's name.
        file: String,
        /// What is wrong.
        #[source]
        source: MailError,
    },
}

impl QueueError {
    /// What to try.
    pub fn hint(&self) -> Option<String> {
        match self {
            Self::Empty(_) => Some("patch files end in .patch or .diff".to_owned()),
            Self::Order(OrderError::Unnumbered(_)) => Some(
                "number the files (`0001-…`), or name a `series` file or a list in fork.toml's [stack]"
                    .to_owned(),
            ),
            Self::Order(OrderError::Unlisted(_)) => {
                Some("list the file, or take it out of the folder".to_owned())
            }
            Self::Patch { source: PatchFileError::SeveralMails { .. }, .. } => {
                Some("split it with `git mailsplit`: one patch a file".to_owned())
            }
            Self::Patch { .. } => Some(
                "write the patch again with `git format-patch`, or take the file out of the folder"
                    .to_owned(),
            ),
            Self::Mail { source, .. } => Some(source.hint().to_owned()),
            Self::Read { source, .. } => disk::hint(source),
            _ => None,
        }
    }
}

/// The stack that `files` (name to bytes) make; `order_text` is the text of the file that [`PatchOrder`] names.
///
/// # Errors
/// See [`QueueError`].
pub fn read_queue(
    files: &BTreeMap<String, Vec<u8>>,
    order: &PatchOrder,
    order_text: Option<&str>,
) -> Result<PatchStack, QueueError> {
    let names: Vec<String> = files.keys().filter(|name| order::is_patch_name(name)).cloned().collect();
    let text = |file: &str| order_text.ok_or_else(|| QueueError::NoOrderFile(file.to_owned()));
    let ordered = match order {
        PatchOrder::Number => order::by_number(&names)?,
        PatchOrder::Series => order::by_series(text("series")?, &names)?,
        PatchOrder::ListIn { file, list } => order::by_list(text(file)?, list, &names)?,
    };
    let patches = ordered.iter().enumerate().map(|(at, name)| read_patch(at + 1, name, &files[name]));
    Ok(PatchStack { patches: patches.collect::<Result<_, _>>()? })
}

/// The patch files of a folder, by name; other files are left out.
///
/// # Errors
/// When the folder or a file cannot be read, or there is no patch in it.
pub fn patch_files_in(folder: &Path) -> Result<BTreeMap<String, Vec<u8>>, QueueError> {
    let failed = |path: &Path| {
        let path = path.to_owned();
        |source| QueueError::Read { path, source }
    };
    let mut files = BTreeMap::new();
    for entry in fs::read_dir(folder).map_err(failed(folder))? {
        let path = entry.map_err(failed(folder))?.path();
        let name = path.file_name().and_then(|name| name.to_str()).unwrap_or_default().to_owned();
        if order::is_patch_name(&name) {
            files.insert(name, file::bytes(&path, Most::Patch).map_err(failed(&path))?);
        }
    }
    match files.is_empty() {
        true => Err(QueueError::Empty(format!("`{}`", folder.display()))),
        false => Ok(files),
    }
}

fn read_patch(number: usize, name: &str, bytes: &[u8]) -> Result<Patch, QueueError> {
    let file =
        PatchFile::parse(bytes).map_err(|source| QueueError::Patch { file: name.to_owned(), source })?;
    debug_assert!(file.render() == bytes, "{name} is rendered as it was read");
    let mail =
        read_mail(&file.preamble).map_err(|source| QueueError::Mail { file: name.to_owned(), source })?;
    let stem = name.rsplit_once('.').map_or(name, |(stem, _)| stem).to_owned();
    let (subject, author, message) = match mail {
        Some(mail) if !mail.subject.is_empty() => (mail.subject, mail.author, mail.message),
        _ => (stem.clone(), None, format!("{stem}\n")),
    };
    Ok(Patch { number, subject, file: Some(name.to_owned()), author, message, change: Change::Diff(file) })
}
