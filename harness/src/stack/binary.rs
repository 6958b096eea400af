//! Decodes the `GIT binary patch` block: base-85 lines of deflated bytes, either the whole file (`literal`) or copy and
//! insert instructions over the old file (`delta`).

use std::io::Read;

/// The largest file that a block may announce; more is taken for a hostile claim.
pub const MAX_BINARY_BYTES: usize = 256 << 20;

/// Why a binary block cannot be used.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum BinaryError {
    /// The block is not in the format.
    #[error("the block is malformed")]
    Malformed,
    /// The block decodes to another number of bytes than it announces.
    #[error("the block announces {announced} bytes and holds {held}")]
    Size {
        /// Bytes announced.
        announced: usize,
        /// Bytes held.
        held: usize,
    },
    /// A delta made for a file of another size.
    #[error("the delta was made for a file of {expected} bytes, not {found}")]
    OtherFile {
        /// The size that the delta expects.
        expected: usize,
        /// The size of the file at hand.
        found: usize,
    },
}

/// The new bytes that the first (forward) block of `raw` makes of `old`.
///
/// # Errors
/// See [`BinaryError`].
pub fn forward(raw: &[u8], old: &[u8]) -> Result<Vec<u8>, BinaryError> {
    let mut lines = raw.split(|&byte| byte == b'\n').skip(1);
    let head = lines.next().and_then(|line| std::str::from_utf8(line).ok()).ok_or(BinaryError::Malformed)?;
    let (kind, size) = head.trim_end().split_once(' ').ok_or(BinaryError::Malformed)?;
    let announced: usize = size.parse().map_err(|_| BinaryError::Malformed)?;
    if announced > MAX_BINARY_BYTES {
        return Err(BinaryError::Malformed);
    }
    let mut deflated = Vec::new();
    for line in lines.take_while(|line| !line.is_empty()) {
        decode_line(line, &mut deflated).ok_or(BinaryError::Malformed)?;
    }
    let mut bytes = Vec::new();
    flate2::read::ZlibDecoder::new(&deflated[..])
        .take(announced as u64 + 1)
        .read_to_end(&mut bytes)
        .map_err(|_| BinaryError::Malformed)?;
    if bytes.len() != announced {
        return Err(BinaryError::Size { announced, held: bytes.len() });
    }
    match kind {
        "literal" => Ok(bytes),
        "delta" => patched(&bytes, old),
        _ => Err(BinaryError::Malformed),
    }
}

const ALPHABET: &[u8; 85] =
    b"0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz!#$%&()*+-;<=>?@^_`{|}~";

fn decode_line(line: &[u8], into: &mut Vec<u8>) -> Option<()> {
    let (&length, digits) = line.split_first()?;
    let length = match length {
        b'A'..=b'Z' => length - b'A' + 1,
        b'a'..=b'z' => length - b'a' + 27,
        _ => return None,
    };
    let end = into.len() + usize::from(length);
    for group in digits.chunks(5) {
        let value = group.iter().try_fold(0u32, |value, digit| {
            let digit = ALPHABET.iter().position(|letter| letter == digit)?;
            value.checked_mul(85)?.checked_add(digit as u32)
        })?;
        into.extend(value.to_be_bytes());
    }
    (group_count(usize::from(length)) * 5 == digits.len()).then_some(())?;
    into.truncate(end);
    Some(())
}

fn group_count(bytes: usize) -> usize {
    bytes.div_ceil(4)
}

fn patched(delta: &[u8], old: &[u8]) -> Result<Vec<u8>, BinaryError> {
    let mut rest = delta;
    let mut size = || -> Option<usize> {
        let (mut value, mut shift) = (0usize, 0);
        loop {
            let (&byte, tail) = rest.split_first()?;
            rest = tail;
            value |= usize::from(byte & 0x7f).checked_shl(shift)?;
            shift += 7;
            if byte & 0x80 == 0 {
                return Some(value);
            }
        }
    };
    let (expected, announced) = size().zip(size()).ok_or(BinaryError::Malformed)?;
    if expected != old.len() {
        return Err(BinaryError::OtherFile { expected, found: old.len() });
    }
    let mut new = Vec::new();
    while let Some((&op, tail)) = rest.split_first() {
        rest = tail;
        let piece = if op & 0x80 != 0 {
            let mut number = |bits: std::ops::Range<u32>| -> Option<usize> {
                let first = bits.start;
                bits.filter(|bit| op >> bit & 1 == 1).try_fold(0, |sum, bit| {
                    let (&byte, tail) = rest.split_first()?;
                    rest = tail;
                    Some(sum | usize::from(byte) << (8 * (bit - first)))
                })
            };
            let (offset, length) = number(0..4).zip(number(4..7)).ok_or(BinaryError::Malformed)?;
            let length = if length == 0 { 0x10000 } else { length };
            old.get(offset..offset + length).ok_or(BinaryError::Malformed)?
        } else {
            let (piece, tail) = rest.split_at_checked(usize::from(op)).ok_or(BinaryError::Malformed)?;
            rest = tail;
            piece
        };
        if op == 0 || new.len() + piece.len() > announced.min(MAX_BINARY_BYTES) {
            return Err(BinaryError::Malformed);
        }
        new.extend_from_slice(piece);
    }
    match new.len() == announced {
        true => Ok(new),
        false => Err(BinaryError::Size { announced, held: new.len() }),
    }
}
