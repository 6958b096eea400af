//! A folder as a compressed archive in pieces of a chosen size, each with its checksum, and a script that puts them together
//! on a machine with nothing but a shell, `tar` and `xz` or Python.

use std::{
    fs::{self, File},
    io::{self, Write},
    path::{Path, PathBuf},
};

use liblzma::{
    stream::{Check, MtStreamBuilder},
    write::XzEncoder,
};
use sha2::{Digest as _, Sha256};

use crate::build::{
    digest,
    store::{self, StoreError},
};

/// The file that names every piece with its SHA-256, as `sha256sum -c` reads it.
pub const SUMS: &str = "SHA256SUMS";

/// The script that checks and unpacks.
pub const UNPACK: &str = "unpack.sh";

/// Above this level a library of GPU code gets no smaller and takes twice as long.
const LEVEL: u32 = 6;

/// Blocks that a machine with many processors can unpack side by side.
const BLOCK_BYTES: u64 = 12 << 20;

const SCRIPT: &str = r#"#!/bin/sh
# usage: sh unpack.sh FOLDER — checks the pieces that lie beside this script and unpacks them into FOLDER
set -eu
target=${1:?usage: sh unpack.sh FOLDER}
mkdir -p "$target"
target=$(cd "$target" && pwd)
cd "$(dirname "$0")"
sha256sum -c --quiet SHA256SUMS
if command -v xz >/dev/null; then
  cat piece.* | xz -dc -T0 | tar -x -f - -C "$target"
else
  cat piece.* | python3 -c 'import lzma, shutil, sys; shutil.copyfileobj(lzma.open(sys.stdin.buffer), sys.stdout.buffer)' |
    tar -x -f - -C "$target"
fi
"#;

/// A piece that was written.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Piece {
    /// Where.
    pub path: PathBuf,
    /// How large.
    pub bytes: u64,
    /// Its SHA-256, in hexadecimal.
    pub sha256: String,
}

/// Whether nothing but older pieces stands at `out`.
pub fn may_be_replaced(out: &Path) -> bool {
    match fs::read_dir(out) {
        Ok(entries) => entries.flatten().all(|entry| {
            let name = entry.file_name();
            let is_piece =
                name.to_string_lossy().strip_prefix("piece.").is_some_and(|n| n.parse::<u32>().is_ok());
            is_piece || name == SUMS || name == UNPACK
        }),
        Err(error) => error.kind() == io::ErrorKind::NotFound,
    }
}

/// Packs everything below `folder` into pieces of at most `piece_bytes` in the folder `out`, in place of older ones: the
/// script takes all that lie there. Equal content gives equal pieces: names are sorted, and times and owners left out.
///
/// # Errors
/// Where something cannot be read or written.
pub fn write(folder: &Path, out: &Path, piece_bytes: u64) -> Result<Vec<Piece>, StoreError> {
    if !may_be_replaced(out) {
        return Err(StoreError::at("replace", out)(io::ErrorKind::AlreadyExists.into()));
    }
    if out.exists() {
        store::remove_whole(out)?;
    }
    fs::create_dir_all(out).map_err(StoreError::at("make", out))?;
    let written = || -> io::Result<Vec<Piece>> {
        let pieces = Pieces { out, piece_bytes, done: Vec::new(), open: None };
        let threads = std::thread::available_parallelism().map_or(1, |n| n.get() as u32);
        let stream = MtStreamBuilder::new()
            .preset(LEVEL)
            .threads(threads)
            .block_size(BLOCK_BYTES)
            .check(Check::Crc64)
            .encoder()?;
        let mut tar = tar::Builder::new(XzEncoder::new_stream(pieces, stream));
        tar.mode(tar::HeaderMode::Deterministic);
        for file in digest::files_below(folder, &[])? {
            tar.append_path_with_name(folder.join(&file), &file)?;
        }
        tar.into_inner()?.finish()?.finish()
    };
    let pieces = written().map_err(StoreError::at("pack", folder))?;
    let sums: String = pieces
        .iter()
        .map(|piece| {
            format!("{}  {}\n", piece.sha256, piece.path.file_name().unwrap_or_default().to_string_lossy())
        })
        .collect();
    store::write_whole(&out.join(SUMS), sums.as_bytes())?;
    store::write_whole(&out.join(UNPACK), SCRIPT.as_bytes())?;
    Ok(pieces)
}

struct Pieces<'a> {
    out: &'a Path,
    piece_bytes: u64,
    done: Vec<Piece>,
    open: Option<(File, Sha256, Piece)>,
}

impl Pieces<'_> {
    fn close(&mut self) {
        if let Some((_, hash, piece)) = self.open.take() {
            self.done.push(Piece { sha256: base16ct::lower::encode_string(&hash.finalize()), ..piece });
        }
    }

    fn finish(mut self) -> io::Result<Vec<Piece>> {
        self.close();
        Ok(self.done)
    }
}

impl Write for Pieces<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        if self.open.as_ref().is_some_and(|(_, _, piece)| piece.bytes >= self.piece_bytes) {
            self.close();
        }
        if self.open.is_none() {
            // As many digits as a bundle of 100 GB needs in the smallest pieces, so that a shell's `piece.*` is in order.
            let path = self.out.join(format!("piece.{:05}", self.done.len()));
            let piece = Piece { path: path.clone(), bytes: 0, sha256: String::new() };
            self.open = Some((File::create(path)?, Sha256::new(), piece));
        }
        let (file, hash, piece) = self.open.as_mut().expect("it was opened above");
        let room = usize::try_from(self.piece_bytes - piece.bytes).unwrap_or(usize::MAX);
        let taken = file.write(&bytes[..bytes.len().min(room)])?;
        hash.update(&bytes[..taken]);
        piece.bytes += taken as u64;
        Ok(taken)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.open.as_mut().map_or(Ok(()), |(file, _, _)| file.flush())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tools::archive::file_sha256;

    /// Bytes that no compressor shortens.
    fn noise(bytes: usize) -> Vec<u8> {
        let mut state = 1_u64;
        (0..bytes)
            .map(|_| {
                state = state.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
                (state >> 56) as u8
            })
            .collect()
    }

    #[test]
    fn pieces_hold_the_folder_and_their_sums_are_theirs() {
        let dir = tempfile::tempdir().unwrap();
        let folder = dir.path().join("in");
        store::write_whole(&folder.join("a/large"), &noise(50_000)).unwrap();
        store::write_whole(&folder.join("small"), b"hello\n").unwrap();
        let out = dir.path().join("out");
        let pieces = write(&folder, &out, 20_000).unwrap();
        assert_eq!(pieces.len(), 3, "{pieces:?}");
        assert!(pieces[..2].iter().all(|piece| piece.bytes == 20_000) && pieces[2].bytes < 20_000);
        for piece in &pieces {
            assert_eq!(file_sha256(&piece.path).unwrap(), piece.sha256);
        }
        let whole: Vec<u8> = pieces.iter().flat_map(|piece| fs::read(&piece.path).unwrap()).collect();
        let mut tar = tar::Archive::new(liblzma::read::XzDecoder::new(&whole[..]));
        let back = dir.path().join("back");
        tar.unpack(&back).unwrap();
        assert_eq!(fs::read(back.join("a/large")).unwrap(), noise(50_000));
        assert_eq!(fs::read(back.join("small")).unwrap(), b"hello\n");
        // Fewer pieces in place of many: none of the old ones is left for the script to take.
        assert_eq!(write(&folder, &out, 1 << 20).unwrap().len(), 1);
        assert_eq!(fs::read_dir(&out).unwrap().count(), 3, "one piece, the sums and the script");
        // What is not ours stays.
        fs::write(out.join("thesis.tex"), "").unwrap();
        assert_eq!(write(&folder, &out, 1 << 20).unwrap_err().doing, "replace");
        // The same content again, at another time.
        let again = write(&folder, &dir.path().join("again"), 20_000).unwrap();
        let sums = |pieces: &[Piece]| pieces.iter().map(|p| p.sha256.clone()).collect::<Vec<_>>();
        assert_eq!(sums(&pieces), sums(&again));
    }
}
