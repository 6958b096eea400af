//! Writes small Metal libraries for tests, benches and fuzzing seeds. Their kernels are LLVM modules with a real header,
//! module flags and compiler name, and noise where code would be. Nothing here is used by a command.

use sha2::{Digest, Sha256};

use super::parse::Version;

/// A library to write.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SyntheticLibrary {
    /// Format version.
    pub format: Version,
    /// OS floor.
    pub os_floor: Version,
    /// Its kernels.
    pub kernels: Vec<SyntheticKernel>,
    /// Extension tags beyond `RLST` and `UUID`, as code and data.
    pub extra_tags: Vec<([u8; 4], Vec<u8>)>,
}

/// A kernel to write.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SyntheticKernel {
    /// Its name.
    pub name: String,
    /// AIR version.
    pub air: Version,
    /// MSL version.
    pub msl: Version,
    /// Its bitcode.
    pub bitcode: Vec<u8>,
    /// Public metadata tags, encoded (without size and end mark).
    pub public_metadata: Vec<u8>,
    /// Tags that a reader need not know, as code and data.
    pub unknown: Vec<([u8; 4], Vec<u8>)>,
}

impl SyntheticLibrary {
    /// A library for macOS 14 with kernels of these names, all by [`SyntheticKernel::named`].
    #[must_use]
    pub fn of(names: &[&str]) -> Self {
        Self {
            format: Version::new(2, 7),
            os_floor: Version::new(14, 0),
            kernels: names.iter().map(|name| SyntheticKernel::named(name)).collect(),
            extra_tags: Vec::new(),
        }
    }

    /// The library's bytes.
    #[must_use]
    pub fn build(&self) -> Vec<u8> {
        let mut list = (self.kernels.len() as u32).to_le_bytes().to_vec();
        let (mut public, mut private, mut bitcode, mut reflection) = (vec![], vec![], vec![], vec![]);
        reflection.extend((self.kernels.len() as u32).to_le_bytes());
        for kernel in &self.kernels {
            let offsets = [public.len() as u64, private.len() as u64, bitcode.len() as u64];
            let mut tags = Vec::new();
            push_tag(&mut tags, b"NAME", &[kernel.name.as_bytes(), &[0]].concat());
            push_tag(&mut tags, b"TYPE", &[2]);
            push_tag(&mut tags, b"HASH", &Sha256::digest(&kernel.bitcode));
            push_tag(&mut tags, b"OFFT", &offsets.map(u64::to_le_bytes).concat());
            let versions = [kernel.air.major, kernel.air.minor, kernel.msl.major, kernel.msl.minor];
            push_tag(&mut tags, b"VERS", &versions.map(u16::to_le_bytes).concat());
            push_tag(&mut tags, b"MDSZ", &(kernel.bitcode.len() as u64).to_le_bytes());
            push_tag(&mut tags, b"RFLT", &(reflection.len() as u64).to_le_bytes());
            for (code, data) in &kernel.unknown {
                push_tag(&mut tags, code, data);
            }
            push_group(&mut list, &tags);
            push_group(&mut public, &kernel.public_metadata);
            push_group(&mut private, &[]);
            push_group(&mut reflection, &[]);
            bitcode.extend(&kernel.bitcode);
        }
        // The extension's own size has to be known before the offsets in it: tags have fixed sizes, so that a first
        // round with zeros measures it.
        let extension = |reflection_at: u64| {
            let mut tags = Vec::new();
            let place = [reflection_at, reflection.len() as u64];
            push_tag(&mut tags, b"RLST", &place.map(u64::to_le_bytes).concat());
            push_tag(&mut tags, b"UUID", &[0x5A; 16]);
            for (code, data) in &self.extra_tags {
                push_tag(&mut tags, code, data);
            }
            tags.extend(b"ENDT");
            tags
        };
        let public_at = 88 + list.len() + extension(0).len();
        let private_at = public_at + public.len();
        let bitcode_at = private_at + private.len();
        let reflection_at = bitcode_at + bitcode.len();
        let size = reflection_at + reflection.len();

        let mut out = b"MTLB".to_vec();
        for word in [0x8001, self.format.major, self.format.minor] {
            out.extend(word.to_le_bytes());
        }
        out.extend([0, 0x81]);
        out.extend(self.os_floor.major.to_le_bytes());
        out.extend(self.os_floor.minor.to_le_bytes());
        out.extend((size as u64).to_le_bytes());
        let sections = [
            (88, list.len() - 4),
            (public_at, public.len()),
            (private_at, private.len()),
            (bitcode_at, bitcode.len()),
        ];
        for (offset, length) in sections {
            out.extend((offset as u64).to_le_bytes());
            out.extend((length as u64).to_le_bytes());
        }
        out.extend(list);
        out.extend(extension(reflection_at as u64));
        for part in [public, private, bitcode, reflection] {
            out.extend(part);
        }
        out
    }
}

impl SyntheticKernel {
    /// A kernel whose code follows from its name, compiled by `synthetic metal 1` with SDK 26.4 for macOS 14.0.
    #[must_use]
    pub fn named(name: &str) -> Self {
        Self {
            name: name.to_owned(),
            air: Version::new(2, 6),
            msl: Version::new(3, 1),
            bitcode: SyntheticModule::default().with_code_of(name).build(),
            public_metadata: Vec::new(),
            unknown: Vec::new(),
        }
    }
}

/// An LLVM module to write.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SyntheticModule {
    /// The compiler's name in `!llvm.ident`.
    pub compiler: String,
    /// The target triple.
    pub triple: String,
    /// The SDK version in the module flags.
    pub sdk: Vec<u64>,
    /// Stands for the code: put into a function block as it is.
    pub code: Vec<u8>,
}

impl Default for SyntheticModule {
    fn default() -> Self {
        Self {
            compiler: "synthetic metal 1".into(),
            triple: "air64-apple-macosx14.0.0".into(),
            sdk: vec![26, 4],
            code: Vec::new(),
        }
    }
}

impl SyntheticModule {
    /// Fills the code with bytes that follow from `seed`.
    #[must_use]
    pub fn with_code_of(mut self, seed: &str) -> Self {
        self.code = Sha256::digest(seed).repeat(4);
        self
    }

    /// The module's bytes, in LLVM's wrapper.
    #[must_use]
    pub fn build(&self) -> Vec<u8> {
        let mut out = BitWriter::default();
        out.bits(u64::from(u32::from_le_bytes(*b"BC\xC0\xDE")), 32);
        // A block that a reader skips comes first, as with LLVM (13: who wrote the file).
        out.block(2, 13, 3, |out| out.record(3, 1, &[76, 76]));
        out.block(2, 8, 3, |out| {
            let triple: Vec<u64> = self.triple.bytes().map(u64::from).collect();
            out.record(3, 2, &triple);
            out.record(3, 8, &[0, 0, 0]);
            out.block(3, 0, 3, |out| {
                out.record(3, 1, &[11]);
                // For constants: a data record as code, then an array of 6-bit groups.
                out.abbreviation(3, &[Field::Literal(22), Field::Array, Field::Vbr(6)]);
            });
            out.block(3, 11, 4, |out| {
                out.record(4, 1, &[0]);
                out.record(4, 4, &[2]);
                out.bits(4, 4);
                out.vbr(self.sdk.len() as u64, 6);
                for part in &self.sdk {
                    out.vbr(*part, 6);
                }
            });
            out.block(3, 15, 4, |out| {
                out.abbreviation(4, &[Field::Literal(35), Field::Vbr(6), Field::Vbr(6), Field::Blob]);
                let strings = ["SDK Version", self.compiler.as_str()];
                let mut blob = BitWriter::default();
                for string in strings {
                    blob.vbr(string.len() as u64, 6);
                }
                blob.align();
                let text_at = blob.bytes.len();
                blob.bytes.extend(strings.concat().as_bytes());
                out.bits(4, 4);
                out.vbr(strings.len() as u64, 6);
                out.vbr(text_at as u64, 6);
                out.vbr(blob.bytes.len() as u64, 6);
                out.align();
                out.bytes.extend(&blob.bytes);
                out.fill = out.bytes.len() * 8;
                out.align();
                // Metadata 2 and 3: the values 2 (behaviour) and the version. One global comes before the constants.
                out.record(4, 2, &[0, 1]);
                out.record(4, 2, &[0, 2]);
                // Metadata 4: {behaviour, "SDK Version", version}; 5: {compiler}. Operands count from one.
                out.record(4, 3, &[3, 1, 4]);
                out.record(4, 3, &[2]);
                let named = |out: &mut BitWriter, name: &str, node: u64| {
                    out.record(4, 4, &name.bytes().map(u64::from).collect::<Vec<_>>());
                    out.record(4, 10, &[node]);
                };
                named(out, "llvm.module.flags", 4);
                named(out, "llvm.ident", 5);
            });
            out.block(3, 12, 4, |out| {
                for byte in &self.code {
                    out.bits(u64::from(*byte), 8);
                }
            });
        });
        let mut wrapped = vec![0xDE, 0xC0, 0x17, 0x0B, 0, 0, 0, 0, 20, 0, 0, 0];
        wrapped.extend((out.bytes.len() as u32).to_le_bytes());
        wrapped.extend([0xFF; 4]);
        wrapped.extend(out.bytes);
        wrapped
    }
}

fn push_tag(out: &mut Vec<u8>, code: &[u8; 4], data: &[u8]) {
    out.extend(code);
    out.extend((data.len() as u16).to_le_bytes());
    out.extend(data);
}

fn push_group(out: &mut Vec<u8>, tags: &[u8]) {
    out.extend((tags.len() as u32 + 8).to_le_bytes());
    out.extend(tags);
    out.extend(b"ENDT");
}

enum Field {
    Literal(u64),
    Vbr(u64),
    Array,
    Blob,
}

#[derive(Default)]
struct BitWriter {
    bytes: Vec<u8>,
    /// Bits written.
    fill: usize,
}

impl BitWriter {
    fn bits(&mut self, value: u64, width: u32) {
        for bit in 0..width {
            if self.fill.is_multiple_of(8) {
                self.bytes.push(0);
            }
            self.bytes[self.fill / 8] |= (((value >> bit) & 1) as u8) << (self.fill % 8);
            self.fill += 1;
        }
    }

    fn vbr(&mut self, mut value: u64, width: u32) {
        let high = 1 << (width - 1);
        while value >= high {
            self.bits((value & (high - 1)) | high, width);
            value >>= width - 1;
        }
        self.bits(value, width);
    }

    fn align(&mut self) {
        while !self.bytes.len().is_multiple_of(4) {
            self.bytes.push(0);
        }
        self.fill = self.bytes.len() * 8;
    }

    /// Writes a block: `outer` is the width of abbreviation ids around it, `inner` that within.
    fn block(&mut self, outer: u32, id: u64, inner: u32, fill: impl FnOnce(&mut Self)) {
        self.bits(1, outer);
        self.vbr(id, 8);
        self.vbr(u64::from(inner), 4);
        self.align();
        let length_at = self.bytes.len();
        self.bits(0, 32);
        fill(self);
        self.bits(0, inner);
        self.align();
        let words = ((self.bytes.len() - length_at - 4) / 4) as u32;
        self.bytes[length_at..length_at + 4].copy_from_slice(&words.to_le_bytes());
    }

    /// Writes a record without abbreviation; `width` is that of the block's abbreviation ids.
    fn record(&mut self, width: u32, code: u64, ops: &[u64]) {
        self.bits(3, width);
        self.vbr(code, 6);
        self.vbr(ops.len() as u64, 6);
        for op in ops {
            self.vbr(*op, 6);
        }
    }

    fn abbreviation(&mut self, width: u32, fields: &[Field]) {
        self.bits(2, width);
        self.vbr(fields.len() as u64, 5);
        for field in fields {
            match field {
                Field::Literal(value) => {
                    self.bits(1, 1);
                    self.vbr(*value, 8);
                }
                Field::Vbr(bits) => {
                    self.bits(0, 1);
                    self.bits(2, 3);
                    self.vbr(*bits, 5);
                }
                Field::Array => self.bits(3 << 1, 4),
                Field::Blob => self.bits(5 << 1, 4),
            }
        }
    }
}
