//! Reads files that people or earlier runs wrote: regular files only, and no more of them than what they are for may have, so
//! that a pipe, a device or a mistaken path ends in an error instead of a hang or a full memory.

use std::{
    error::Error,
    fmt,
    fs::{File, FileType, OpenOptions},
    io::{self, ErrorKind, Read},
    os::unix::fs::{FileTypeExt as _, OpenOptionsExt as _},
    path::Path,
};

use rustix::fs::OFlags;

/// What a file is read for, which says how large it may be.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Most {
    /// What a person writes, and the locks of tools: 8 MiB.
    Configuration,
    /// A patch: 64 MiB, what one binary file in it may have.
    Patch,
    /// What a run leaves behind, a source archive, or a file of a model that is no weights: 1 GiB.
    Record,
}

impl Most {
    /// In bytes.
    pub const fn bytes(self) -> u64 {
        match self {
            Self::Configuration => 8 << 20,
            Self::Patch => 64 << 20,
            Self::Record => 1 << 30,
        }
    }

    fn noun(self) -> &'static str {
        match self {
            Self::Configuration => "a configuration or lock file",
            Self::Patch => "a patch",
            Self::Record => "a record or archive",
        }
    }
}

/// Why a file is not read although the system would give it; the source inside an [`io::Error`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Refused {
    /// It is something else than a regular file: this.
    NoFile(&'static str),
    /// It holds more than what it is for may have.
    TooLarge(Most),
    /// It is no UTF-8 from this byte on, counted from 0.
    NoText(usize),
}

impl Refused {
    /// What to try.
    pub fn hint(self) -> &'static str {
        match self {
            Self::NoFile("a folder") => "name a file in it",
            Self::NoFile(_) => "name a regular file; save what a pipe or device gives to one first",
            Self::TooLarge(_) => "check the path: this is hardly the file that was meant",
            Self::NoText(_) => "save it as UTF-8 text, or check the path",
        }
    }
}

impl fmt::Display for Refused {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NoFile(kind) => write!(f, "it is {kind}, not a regular file"),
            Self::TooLarge(most) => {
                write!(f, "it is larger than the {} MiB that {} may have", most.bytes() >> 20, most.noun())
            }
            Self::NoText(at) => write!(f, "it is no UTF-8 text (byte {at})"),
        }
    }
}

impl Error for Refused {}

impl From<Refused> for io::Error {
    fn from(refused: Refused) -> Self {
        let kind = match refused {
            Refused::NoFile(_) => ErrorKind::InvalidInput,
            Refused::TooLarge(_) => ErrorKind::FileTooLarge,
            Refused::NoText(_) => ErrorKind::InvalidData,
        };
        Self::new(kind, refused)
    }
}

/// Why a file is not read, where that is not the system's doing.
pub fn refusal(error: &io::Error) -> Option<Refused> {
    error.get_ref()?.downcast_ref().copied()
}

/// Opens a regular file for reading, however large, and never waits for anybody to write to it.
///
/// # Errors
/// What the system says, or [`Refused::NoFile`].
pub fn open(path: &Path) -> io::Result<File> {
    // Without the first flag a named pipe would wait here for a writer, and with the second no terminal becomes ours.
    let flags = OFlags::NONBLOCK | OFlags::NOCTTY;
    let file = OpenOptions::new().read(true).custom_flags(flags.bits().cast_signed()).open(path)?;
    match other_kind(file.metadata()?.file_type()) {
        None => Ok(file),
        Some(kind) => Err(Refused::NoFile(kind).into()),
    }
}

/// The content of a file.
///
/// # Errors
/// As for [`open`], or [`Refused::TooLarge`].
pub fn bytes(path: &Path, most: Most) -> io::Result<Vec<u8>> {
    let file = open(path)?;
    let announced = file.metadata()?.len();
    if announced > most.bytes() {
        return Err(Refused::TooLarge(most).into());
    }
    let mut bytes = Vec::with_capacity(usize::try_from(announced).unwrap_or_default());
    // A file may grow while it is read, and those of the kernel announce nothing.
    limited(file, most, &mut bytes)?;
    Ok(bytes)
}

/// The content of a text file.
///
/// # Errors
/// As for [`bytes`], or [`Refused::NoText`].
pub fn text(path: &Path, most: Most) -> io::Result<String> {
    into_text(bytes(path, most)?)
}

/// Everything that a reader gives, such as what is unpacked from an archive, as text.
///
/// # Errors
/// As for [`text`].
pub fn text_from(reader: impl Read, most: Most) -> io::Result<String> {
    let mut bytes = Vec::new();
    limited(reader, most, &mut bytes)?;
    into_text(bytes)
}

fn limited(reader: impl Read, most: Most, into: &mut Vec<u8>) -> io::Result<()> {
    match reader.take(most.bytes() + 1).read_to_end(into)? as u64 > most.bytes() {
        true => Err(Refused::TooLarge(most).into()),
        false => Ok(()),
    }
}

fn into_text(bytes: Vec<u8>) -> io::Result<String> {
    String::from_utf8(bytes).map_err(|error| Refused::NoText(error.utf8_error().valid_up_to()).into())
}

fn other_kind(kind: FileType) -> Option<&'static str> {
    match kind {
        _ if kind.is_file() => None,
        _ if kind.is_dir() => Some("a folder"),
        _ if kind.is_fifo() => Some("a pipe"),
        _ if kind.is_char_device() || kind.is_block_device() => Some("a device"),
        _ => Some("something else"),
    }
}

#[cfg(test)]
mod tests {
    use std::{fs, sync::mpsc, thread, time::Duration};

    use super::*;
    use crate::tools::{disk, process::Invocation};

    /// What reading comes to, which must be soon.
    fn soon<T: Send + 'static>(read: impl FnOnce() -> T + Send + 'static) -> T {
        let (done, wait) = mpsc::channel();
        thread::spawn(move || done.send(read()));
        wait.recv_timeout(Duration::from_secs(10)).expect("reading must not wait")
    }

    #[test]
    fn whatever_is_no_regular_file_is_refused_at_once() {
        let dir = tempfile::tempdir().unwrap();
        let pipe = dir.path().join("pipe");
        Invocation::new("mkfifo").arg(&pipe).run_ok().unwrap();
        for (path, kind) in [
            (pipe.as_path(), "a pipe"),
            (dir.path(), "a folder"),
            (Path::new("/dev/zero"), "a device"),
            (Path::new("/dev/null"), "a device"),
        ] {
            let path = path.to_owned();
            let error = soon(move || text(&path, Most::Record)).unwrap_err();
            assert_eq!(error.to_string(), format!("it is {kind}, not a regular file"));
            assert!(disk::hint(&error).unwrap().starts_with("name a "), "{kind}");
        }
    }

    #[test]
    fn a_file_is_read_whole_up_to_its_limit_and_not_beyond() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("f");
        let most = Most::Configuration;
        // Sparse: the size is announced, and nothing is on the disk.
        let file = File::create(&path).unwrap();
        file.set_len(most.bytes()).unwrap();
        assert_eq!(bytes(&path, most).unwrap().len() as u64, most.bytes());
        file.set_len(1 << 40).unwrap();
        let error = bytes(&path, most).unwrap_err();
        assert_eq!(
            error.to_string(),
            "it is larger than the 8 MiB that a configuration or lock file may have"
        );
        assert!(disk::hint(&error).unwrap().contains("check the path"));
        let error = text_from(io::repeat(b'x'), most).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::FileTooLarge, "what announces no size is limited too");
    }

    #[test]
    fn what_is_missing_or_no_text_is_told_as_such() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("f");
        assert_eq!(text(&path, Most::Record).unwrap_err().kind(), ErrorKind::NotFound);
        fs::write(&path, b"ab\xff").unwrap();
        let error = text(&path, Most::Record).unwrap_err();
        assert_eq!(error.to_string(), "it is no UTF-8 text (byte 2)");
        fs::write(&path, "é").unwrap();
        assert_eq!(text(&path, Most::Record).unwrap(), "é");
    }
}
