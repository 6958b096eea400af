//! Reads GGUF: metadata, tensor list, and the blocks of the common number formats as f32. Takes every length and
//! offset in the file for a claim to be checked, so that damaged or hostile input gives an error and never a panic.
//!
//! The format is described in the `ggml` repository (`docs/gguf.md`), the blocks in its `ggml-common.h`.

use std::collections::BTreeMap;

use half::{bf16, f16};

use super::ModelError;

/// Tensors have at most this many dimensions.
const MAX_DIMENSIONS: u32 = 4;

/// The place of tensor data is rounded up to this, unless the metadata says otherwise.
const DEFAULT_ALIGNMENT: u64 = 32;

/// A GGUF file in memory, taken apart.
#[derive(Debug)]
pub struct Gguf<'a> {
    /// Where the bytes came from, for messages.
    pub origin: String,
    metadata: BTreeMap<String, MetaValue>,
    tensors: BTreeMap<String, GgufTensor<'a>>,
}

/// One metadata value. Integers and floats of all widths are kept in the widest.
#[derive(Debug, Clone, PartialEq)]
pub enum MetaValue {
    /// Any unsigned integer.
    Unsigned(u64),
    /// Any signed integer.
    Signed(i64),
    /// A 32-bit float, kept as such because its shortest decimal form is what its author wrote.
    Float32(f32),
    /// A 64-bit float.
    Float64(f64),
    /// A truth value.
    Bool(bool),
    /// A text.
    Text(String),
    /// A list of one type; lists of lists are refused, since no model has them.
    List(Vec<MetaValue>),
}

/// One tensor: its bytes are known to fit its shape.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct GgufTensor<'a> {
    /// Number of rows; 1 for a vector.
    pub rows: usize,
    /// Length of a row.
    pub columns: usize,
    /// Number of dimensions in the file.
    pub dimensions: u32,
    /// How the numbers are packed.
    pub format: BlockFormat,
    bytes: &'a [u8],
}

/// How numbers are packed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum BlockFormat {
    /// Plain f32.
    F32,
    /// Plain IEEE half.
    F16,
    /// Plain bfloat16.
    Bf16,
    /// 32 numbers: a scale and 4 bits each.
    Q4_0,
    /// 32 numbers: a scale, a minimum and 4 bits each.
    Q4_1,
    /// 32 numbers: a scale and 5 bits each.
    Q5_0,
    /// 32 numbers: a scale, a minimum and 5 bits each.
    Q5_1,
    /// 32 numbers: a scale and 8 bits each.
    Q8_0,
    /// 256 numbers: a scale, 16 block scales and 6 bits each.
    Q6K,
}

impl<'a> Gguf<'a> {
    /// Takes `bytes` apart; `origin` names them in messages.
    ///
    /// # Errors
    /// [`ModelError::Gguf`] when the bytes are not a sound GGUF file, [`ModelError::Unsupported`] when a tensor's
    /// number format is not one of [`BlockFormat`].
    pub fn parse(origin: &str, bytes: &'a [u8]) -> Result<Self, ModelError> {
        let damaged = |problem: String| ModelError::Gguf { origin: origin.to_owned(), problem };
        let mut reader = Reader { bytes, at: 0 };
        if reader.take(4).map_err(damaged)? != b"GGUF" {
            return Err(damaged("it does not begin with `GGUF`".to_owned()));
        }
        let version = reader.u32().map_err(damaged)?;
        if !(2..=3).contains(&version) {
            return Err(ModelError::Unsupported {
                origin: origin.to_owned(),
                problem: format!("it has version {version} of the format"),
            });
        }
        let tensor_count = reader.u64().map_err(damaged)?;
        let metadata_count = reader.u64().map_err(damaged)?;

        // Counts are never used to reserve memory: a wrong one runs into the end of the file.
        let mut metadata = BTreeMap::new();
        for _ in 0..metadata_count {
            let (key, value) = reader.entry().map_err(damaged)?;
            if metadata.contains_key(&key) {
                return Err(damaged(format!("metadata key `{key}` occurs twice")));
            }
            metadata.insert(key, value);
        }
        let mut headers = Vec::new();
        for _ in 0..tensor_count {
            headers.push(reader.tensor_header().map_err(damaged)?);
        }
        let alignment = match metadata.get("general.alignment") {
            None => DEFAULT_ALIGNMENT,
            Some(MetaValue::Unsigned(n)) if n.is_power_of_two() && *n <= 1 << 20 => *n,
            Some(other) => return Err(damaged(format!("general.alignment is {other:?}"))),
        };
        let data_start = (reader.at as u64).next_multiple_of(alignment);

        let mut tensors = BTreeMap::new();
        for header in headers {
            let name = header.name.clone();
            let tensor = header.locate(bytes, data_start).map_err(|e| e.into_model_error(origin, &name))?;
            if tensors.insert(name.clone(), tensor).is_some() {
                return Err(damaged(format!("tensor `{name}` occurs twice")));
            }
        }
        Ok(Self { origin: origin.to_owned(), metadata, tensors })
    }

    /// A metadata value.
    #[must_use]
    pub fn meta(&self, key: &str) -> Option<&MetaValue> {
        self.metadata.get(key)
    }

    /// A tensor by its name.
    #[must_use]
    pub fn tensor(&self, name: &str) -> Option<GgufTensor<'a>> {
        self.tensors.get(name).copied()
    }

    /// The names of all tensors.
    pub fn tensor_names(&self) -> impl Iterator<Item = &str> {
        self.tensors.keys().map(String::as_str)
    }
}

impl GgufTensor<'_> {
    /// Appends row `row` to `out` as little-endian f32.
    ///
    /// # Panics
    /// When `row` is not below [`GgufTensor::rows`].
    pub fn append_row_f32_le(&self, row: usize, out: &mut Vec<u8>) {
        let row_bytes = self.columns / self.format.block_len() * self.format.block_bytes();
        let bytes = &self.bytes[row * row_bytes..(row + 1) * row_bytes];
        let mut push = |value: f32| out.extend_from_slice(&value.to_le_bytes());
        for block in bytes.chunks_exact(self.format.block_bytes()) {
            self.format.unpack(block, &mut push);
        }
    }
}

impl BlockFormat {
    /// How many numbers a block holds.
    #[must_use]
    pub fn block_len(self) -> usize {
        match self {
            Self::F32 | Self::F16 | Self::Bf16 => 1,
            Self::Q4_0 | Self::Q4_1 | Self::Q5_0 | Self::Q5_1 | Self::Q8_0 => 32,
            Self::Q6K => 256,
        }
    }

    /// How many bytes a block takes.
    #[must_use]
    pub fn block_bytes(self) -> usize {
        match self {
            Self::F16 | Self::Bf16 => 2,
            Self::F32 => 4,
            Self::Q4_0 => 18,
            Self::Q4_1 => 20,
            Self::Q5_0 => 22,
            Self::Q5_1 => 24,
            Self::Q8_0 => 34,
            Self::Q6K => 210,
        }
    }

    fn from_code(code: u32) -> Option<Self> {
        Some(match code {
            0 => Self::F32,
            1 => Self::F16,
            2 => Self::Q4_0,
            3 => Self::Q4_1,
            6 => Self::Q5_0,
            7 => Self::Q5_1,
            8 => Self::Q8_0,
            14 => Self::Q6K,
            30 => Self::Bf16,
            _ => return None,
        })
    }

    fn unpack(self, block: &[u8], push: &mut impl FnMut(f32)) {
        let half_at = |at: usize| f16::from_le_bytes([block[at], block[at + 1]]).to_f32();
        match self {
            Self::F32 => push(f32::from_le_bytes([block[0], block[1], block[2], block[3]])),
            Self::F16 => push(half_at(0)),
            Self::Bf16 => push(bf16::from_le_bytes([block[0], block[1]]).to_f32()),
            Self::Q4_0 => {
                let scale = half_at(0);
                nibbles(&block[2..], |_, nibble| push((f32::from(nibble) - 8.0) * scale));
            }
            Self::Q4_1 => {
                let (scale, minimum) = (half_at(0), half_at(2));
                nibbles(&block[4..], |_, nibble| push(f32::from(nibble) * scale + minimum));
            }
            Self::Q5_0 => {
                let (scale, fifth) = (half_at(0), bits_at(block, 2));
                nibbles(&block[6..], |i, nibble| push((f32::from(nibble | fifth(i)) - 16.0) * scale));
            }
            Self::Q5_1 => {
                let (scale, minimum, fifth) = (half_at(0), half_at(2), bits_at(block, 4));
                nibbles(&block[8..], |i, nibble| push(f32::from(nibble | fifth(i)) * scale + minimum));
            }
            Self::Q8_0 => {
                let scale = half_at(0);
                block[2..].iter().for_each(|&byte| push(f32::from(byte.cast_signed()) * scale));
            }
            Self::Q6K => unpack_q6k(block, push),
        }
    }
}

/// The low halves of all bytes, then the high halves, each with its index.
fn nibbles(bytes: &[u8], mut each: impl FnMut(usize, u8)) {
    bytes.iter().enumerate().for_each(|(i, byte)| each(i, byte & 15));
    bytes.iter().enumerate().for_each(|(i, byte)| each(i + bytes.len(), byte >> 4));
}

/// Bit `i` of the 32 bits at `at`, moved to the place of a fifth bit.
fn bits_at(block: &[u8], at: usize) -> impl Fn(usize) -> u8 + use<> {
    let bits = u32::from_le_bytes([block[at], block[at + 1], block[at + 2], block[at + 3]]);
    move |i| ((bits >> i & 1) as u8) << 4
}

fn unpack_q6k(block: &[u8], push: &mut impl FnMut(f32)) {
    let (low, rest) = block.split_at(128);
    let (high, rest) = rest.split_at(64);
    let (scales, scale) = rest.split_at(16);
    let scale = f16::from_le_bytes([scale[0], scale[1]]).to_f32();
    for half in 0..2 {
        let (low, high) = (&low[half * 64..][..64], &high[half * 32..][..32]);
        for quarter in 0..4 {
            for i in 0..32 {
                let byte = low[i + 32 * (quarter % 2)];
                let four = if quarter < 2 { byte & 15 } else { byte >> 4 };
                let six = four | (high[i] >> (2 * quarter) & 3) << 4;
                let block_scale = scales[half * 8 + quarter * 2 + i / 16].cast_signed();
                push(scale * f32::from(block_scale) * (f32::from(six) - 32.0));
            }
        }
    }
}

struct Reader<'a> {
    bytes: &'a [u8],
    at: usize,
}

impl<'a> Reader<'a> {
    fn take(&mut self, count: u64) -> Result<&'a [u8], String> {
        let left = &self.bytes[self.at..];
        let taken = usize::try_from(count).ok().and_then(|count| left.get(..count)).ok_or_else(|| {
            format!(
                "it ends too early: {count} bytes are wanted at byte {}, and {} are left",
                self.at,
                left.len()
            )
        })?;
        self.at += taken.len();
        Ok(taken)
    }

    fn array<const N: usize>(&mut self) -> Result<[u8; N], String> {
        let taken = self.take(N as u64)?;
        Ok(taken.try_into().expect("as many bytes as were asked for"))
    }

    fn u32(&mut self) -> Result<u32, String> {
        self.array().map(u32::from_le_bytes)
    }

    fn u64(&mut self) -> Result<u64, String> {
        self.array().map(u64::from_le_bytes)
    }

    fn text(&mut self) -> Result<String, String> {
        let length = self.u64()?;
        let at = self.at;
        let bytes = self.take(length)?;
        String::from_utf8(bytes.to_owned()).map_err(|_| format!("the text at byte {at} is not UTF-8"))
    }

    fn entry(&mut self) -> Result<(String, MetaValue), String> {
        let key = self.text()?;
        let code = self.u32()?;
        let value = if code == 9 {
            let element = self.u32()?;
            let length = self.u64()?;
            let mut list = Vec::new();
            for _ in 0..length {
                list.push(self.value(element)?);
            }
            MetaValue::List(list)
        } else {
            self.value(code)?
        };
        Ok((key, value))
    }

    fn value(&mut self, code: u32) -> Result<MetaValue, String> {
        Ok(match code {
            0 => MetaValue::Unsigned(self.array::<1>()?[0].into()),
            1 => MetaValue::Signed(i8::from_le_bytes(self.array()?).into()),
            2 => MetaValue::Unsigned(u16::from_le_bytes(self.array()?).into()),
            3 => MetaValue::Signed(i16::from_le_bytes(self.array()?).into()),
            4 => MetaValue::Unsigned(self.u32()?.into()),
            5 => MetaValue::Signed(i32::from_le_bytes(self.array()?).into()),
            6 => MetaValue::Float32(f32::from_le_bytes(self.array()?)),
            7 => MetaValue::Bool(self.array::<1>()?[0] != 0),
            8 => MetaValue::Text(self.text()?),
            10 => MetaValue::Unsigned(self.u64()?),
            11 => MetaValue::Signed(i64::from_le_bytes(self.array()?)),
            12 => MetaValue::Float64(f64::from_le_bytes(self.array()?)),
            other => return Err(format!("metadata type {other} before byte {} is unknown", self.at)),
        })
    }

    fn tensor_header(&mut self) -> Result<TensorHeader, String> {
        let name = self.text()?;
        let count = self.u32()?;
        if count == 0 || count > MAX_DIMENSIONS {
            return Err(format!("tensor `{name}` has {count} dimensions"));
        }
        let shape = (0..count).map(|_| self.u64()).collect::<Result<Vec<u64>, String>>()?;
        Ok(TensorHeader { name, shape, code: self.u32()?, offset: self.u64()? })
    }
}

struct TensorHeader {
    name: String,
    /// Fastest-moving dimension first.
    shape: Vec<u64>,
    code: u32,
    offset: u64,
}

enum TensorProblem {
    Format(u32),
    Shape,
    OutOfFile,
}

impl TensorProblem {
    fn into_model_error(self, origin: &str, tensor: &str) -> ModelError {
        let origin = origin.to_owned();
        match self {
            Self::Format(code) => ModelError::Unsupported {
                origin,
                problem: format!("tensor `{tensor}` has number format {code}"),
            },
            Self::Shape => {
                ModelError::Gguf { origin, problem: format!("tensor `{tensor}` has an impossible shape") }
            }
            Self::OutOfFile => ModelError::Gguf {
                origin,
                problem: format!("tensor `{tensor}` reaches beyond the end of the file"),
            },
        }
    }
}

impl TensorHeader {
    fn locate<'a>(&self, bytes: &'a [u8], data_start: u64) -> Result<GgufTensor<'a>, TensorProblem> {
        let format = BlockFormat::from_code(self.code).ok_or(TensorProblem::Format(self.code))?;
        let columns = usize::try_from(self.shape[0]).map_err(|_| TensorProblem::Shape)?;
        let rows = self.shape[1..]
            .iter()
            .try_fold(1_usize, |rows, &size| rows.checked_mul(usize::try_from(size).ok()?))
            .ok_or(TensorProblem::Shape)?;
        if rows == 0 || columns == 0 || !columns.is_multiple_of(format.block_len()) {
            return Err(TensorProblem::Shape);
        }
        let length = (columns / format.block_len())
            .checked_mul(format.block_bytes())
            .and_then(|row| row.checked_mul(rows))
            .ok_or(TensorProblem::Shape)?;
        let start = data_start
            .checked_add(self.offset)
            .and_then(|start| usize::try_from(start).ok())
            .ok_or(TensorProblem::OutOfFile)?;
        let bytes = bytes.get(start..).and_then(|rest| rest.get(..length)).ok_or(TensorProblem::OutOfFile)?;
        Ok(GgufTensor { rows, columns, dimensions: self.shape.len() as u32, format, bytes })
    }
}

/// Writes small GGUF files for tests.
#[cfg(test)]
pub(crate) mod fixture {
    use super::MetaValue;

    pub(crate) struct Tensor {
        pub(crate) name: String,
        pub(crate) shape: Vec<u64>,
        pub(crate) code: u32,
        pub(crate) bytes: Vec<u8>,
    }

    pub(crate) fn gguf(metadata: &[(&str, MetaValue)], tensors: &[Tensor]) -> Vec<u8> {
        let mut out = b"GGUF".to_vec();
        out.extend(3_u32.to_le_bytes());
        out.extend((tensors.len() as u64).to_le_bytes());
        out.extend((metadata.len() as u64).to_le_bytes());
        for (key, value) in metadata {
            text(&mut out, key);
            out.extend(code(value).to_le_bytes());
            write_value(&mut out, value);
        }
        let mut data = Vec::new();
        for tensor in tensors {
            text(&mut out, &tensor.name);
            out.extend((tensor.shape.len() as u32).to_le_bytes());
            tensor.shape.iter().for_each(|size| out.extend(size.to_le_bytes()));
            out.extend(tensor.code.to_le_bytes());
            out.extend((data.len() as u64).to_le_bytes());
            data.extend(&tensor.bytes);
            data.resize(data.len().next_multiple_of(32), 0);
        }
        out.resize(out.len().next_multiple_of(32), 0);
        out.extend(data);
        out
    }

    fn text(out: &mut Vec<u8>, text: &str) {
        out.extend((text.len() as u64).to_le_bytes());
        out.extend(text.as_bytes());
    }

    fn code(value: &MetaValue) -> u32 {
        match value {
            MetaValue::Unsigned(_) => 10,
            MetaValue::Signed(_) => 11,
            MetaValue::Float32(_) => 6,
            MetaValue::Float64(_) => 12,
            MetaValue::Bool(_) => 7,
            MetaValue::Text(_) => 8,
            MetaValue::List(_) => 9,
        }
    }

    fn write_value(out: &mut Vec<u8>, value: &MetaValue) {
        match value {
            MetaValue::Unsigned(n) => out.extend(n.to_le_bytes()),
            MetaValue::Signed(n) => out.extend(n.to_le_bytes()),
            MetaValue::Float32(x) => out.extend(x.to_le_bytes()),
            MetaValue::Float64(x) => out.extend(x.to_le_bytes()),
            MetaValue::Bool(b) => out.push(u8::from(*b)),
            MetaValue::Text(t) => text(out, t),
            MetaValue::List(list) => {
                out.extend(list.first().map_or(8, code).to_le_bytes());
                out.extend((list.len() as u64).to_le_bytes());
                list.iter().for_each(|value| write_value(out, value));
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{fixture::Tensor, *};

    fn unpacked(format: BlockFormat, block: &[u8]) -> Vec<f32> {
        assert_eq!(block.len(), format.block_bytes());
        let mut out = Vec::new();
        format.unpack(block, &mut |value| out.push(value));
        assert_eq!(out.len(), format.block_len());
        out
    }

    fn half(value: f32) -> [u8; 2] {
        f16::from_f32(value).to_le_bytes()
    }

    #[test]
    fn four_bit_blocks_hold_low_halves_first() {
        let mut packed = [0_u8; 16];
        packed[0] = 0xf3;
        packed[15] = 0x08;
        let q4_0 = unpacked(BlockFormat::Q4_0, &[&half(0.5)[..], &packed].concat());
        assert_eq!((q4_0[0], q4_0[16], q4_0[15], q4_0[31]), (-2.5, 3.5, 0.0, -4.0));
        let q4_1 = unpacked(BlockFormat::Q4_1, &[&half(0.5)[..], &half(-1.0), &packed].concat());
        assert_eq!((q4_1[0], q4_1[16], q4_1[15], q4_1[31]), (0.5, 6.5, 3.0, -1.0));
    }

    #[test]
    fn five_bit_blocks_take_their_fifth_bit_from_the_mask() {
        let mut packed = [0_u8; 16];
        packed[0] = 0x21;
        let mask = (1_u32 << 16 | 1 << 1).to_le_bytes();
        let q5_0 = unpacked(BlockFormat::Q5_0, &[&half(2.0)[..], &mask, &packed].concat());
        assert_eq!((q5_0[0], q5_0[16], q5_0[1], q5_0[17]), (-30.0, 4.0, 0.0, -32.0));
        let q5_1 = unpacked(BlockFormat::Q5_1, &[&half(2.0)[..], &half(1.0), &mask, &packed].concat());
        assert_eq!((q5_1[0], q5_1[16], q5_1[1], q5_1[17]), (3.0, 37.0, 33.0, 1.0));
    }

    #[test]
    fn eight_bit_and_plain_numbers_are_read() {
        let mut packed = [0_u8; 32];
        packed[1] = 0x80;
        let q8_0 = unpacked(BlockFormat::Q8_0, &[&half(0.25)[..], &packed].concat());
        assert_eq!((q8_0[0], q8_0[1]), (0.0, -32.0));
        assert_eq!(unpacked(BlockFormat::F32, &1.5_f32.to_le_bytes()), [1.5]);
        assert_eq!(unpacked(BlockFormat::F16, &half(-0.75)), [-0.75]);
        assert_eq!(unpacked(BlockFormat::Bf16, &[0xc0, 0x3f]), [1.5]);
    }

    #[test]
    fn six_bit_blocks_place_every_number() {
        let mut block = [0_u8; 210];
        // Number 100 lies in the first half, last quarter, place 4: the high four bits of low byte 36, the top two
        // bits of high byte 4, and block scale 6.
        block[36] = 0x50;
        block[128 + 4] = 0x80;
        block[192 + 6] = 0xfe;
        // Number 128 begins the second half: low byte 64, high byte 32, block scale 8.
        block[64] = 0x01;
        block[192 + 8] = 3;
        block[208..].copy_from_slice(&half(0.5));
        let numbers = unpacked(BlockFormat::Q6K, &block);
        assert_eq!(numbers[100], 0.5 * -2.0 * (0x25 as f32 - 32.0));
        assert_eq!(numbers[128], 0.5 * 3.0 * (1.0 - 32.0));
        assert_eq!(numbers[0], 0.0);
    }

    fn sample() -> Vec<u8> {
        fixture::gguf(
            &[
                ("general.architecture", MetaValue::Text("llama".to_owned())),
                (
                    "tokens",
                    MetaValue::List(vec![MetaValue::Text("a".to_owned()), MetaValue::Text("b".to_owned())]),
                ),
                ("n", MetaValue::Unsigned(5)),
            ],
            &[
                Tensor { name: "v".to_owned(), shape: vec![2], code: 0, bytes: vec![0; 8] },
                Tensor {
                    name: "m".to_owned(),
                    shape: vec![2, 3],
                    code: 1,
                    bytes: [half(1.0), half(2.0)].concat().repeat(3),
                },
            ],
        )
    }

    #[test]
    fn a_sound_file_is_taken_apart() {
        let bytes = sample();
        let gguf = Gguf::parse("sample", &bytes).unwrap();
        assert_eq!(gguf.meta("n"), Some(&MetaValue::Unsigned(5)));
        assert_eq!(gguf.tensor_names().collect::<Vec<_>>(), ["m", "v"]);
        let tensor = gguf.tensor("m").unwrap();
        assert_eq!((tensor.rows, tensor.columns, tensor.dimensions), (3, 2, 2));
        let mut row = Vec::new();
        tensor.append_row_f32_le(2, &mut row);
        assert_eq!(row, [1.0_f32.to_le_bytes(), 2.0_f32.to_le_bytes()].concat());
    }

    #[test]
    fn every_truncation_is_an_error() {
        let bytes = sample();
        // The last tensor is padded to 32 bytes, so cutting only padding leaves a sound file.
        for length in 0..bytes.len() - 20 {
            let error = Gguf::parse("cut", &bytes[..length]).unwrap_err();
            assert!(matches!(error, ModelError::Gguf { .. }), "{length}: {error}");
            assert!(error.hint().is_some());
        }
    }

    #[test]
    fn no_single_changed_byte_makes_it_panic() {
        let bytes = sample();
        for at in 0..bytes.len() {
            for value in [0, 1, 0x7f, 0x80, 0xff] {
                let mut changed = bytes.clone();
                changed[at] = value;
                // Either outcome is right; arriving here is the point.
                let _ = Gguf::parse("changed", &changed);
            }
        }
    }

    #[test]
    fn claimed_sizes_are_not_believed() {
        let with_tensor = |shape: Vec<u64>, code| {
            fixture::gguf(&[], &[Tensor { name: "t".to_owned(), shape, code, bytes: vec![0; 64] }])
        };
        let cases = [
            (with_tensor(vec![u64::MAX, u64::MAX], 0), "tensor `t` has an impossible shape"),
            (with_tensor(vec![1 << 40], 0), "tensor `t` reaches beyond the end of the file"),
            (with_tensor(vec![0, 4], 0), "tensor `t` has an impossible shape"),
            (with_tensor(vec![33], 3), "tensor `t` has an impossible shape"),
            (with_tensor(vec![1; 5], 0), "tensor `t` has 5 dimensions"),
            (with_tensor(vec![32], 99), "tensor `t` has number format 99"),
            ([&b"GGUF"[..], &3_u32.to_le_bytes(), &[0xff; 16]].concat(), "it ends too early"),
            (b"PK\x03\x04 is a zip file".to_vec(), "it does not begin with `GGUF`"),
            ([&b"GGUF"[..], &9_u32.to_le_bytes()].concat(), "it has version 9 of the format"),
        ];
        for (bytes, expected) in cases {
            let error = Gguf::parse("hostile", &bytes).unwrap_err().to_string();
            assert!(error.contains(expected), "{error}");
        }
    }
}
