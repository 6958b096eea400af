//! Answers who compiled a kernel: the compiler, target triple and SDK version that its LLVM module records, and where
//! exactly the SDK version stands. Reads module-level records only and leaves function bodies alone.
//!
//! The stream is LLVM's: blocks with a length, records with abbreviations. The chain followed is
//! `!llvm.module.flags` → the flag named `SDK Version` → its value → the constant array in the module's constants;
//! and `!llvm.ident` → its string. Work and memory are bounded by the module's size.

use std::ops::Range;

/// What the LLVM module of one kernel says about its making. Each part is absent where the module does not record it.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct ModuleFacts {
    /// The compiler's name for itself, from `!llvm.ident`.
    pub compiler: Option<String>,
    /// The target triple, which carries the OS floor that this one kernel was compiled for.
    pub triple: Option<String>,
    /// The SDK version, from the module flags.
    pub sdk: Option<SdkVersion>,
}

/// An SDK version and the place where the module keeps it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SdkVersion {
    /// Its parts: `[26, 4]`.
    pub parts: Vec<u64>,
    /// The bits of the record that holds the parts, counted from the start of the bitcode.
    pub bits: Range<usize>,
}

impl std::fmt::Display for SdkVersion {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        for (index, part) in self.parts.iter().enumerate() {
            write!(f, "{}{part}", if index == 0 { "" } else { "." })?;
        }
        Ok(())
    }
}

/// Why a module could not be read.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("at bit {bit} of the bitcode: {why}")]
pub struct BitcodeError {
    /// Where reading stopped, in bits from the start of the bitcode.
    pub bit: usize,
    /// What was wrong there.
    pub why: &'static str,
}

/// Buffers that a scan fills, kept between scans so that thousands of kernels cost no allocation each.
#[derive(Debug, Default)]
pub struct Scratch {
    abbreviation_ops: Vec<Op>,
    abbreviations: Vec<Range<usize>>,
    block_info: Vec<(u64, usize)>,
    module_local: Vec<usize>,
    local: Vec<usize>,
    ops: Vec<u64>,
    constants: Vec<Constant>,
    string_bounds: Vec<usize>,
    nodes: Vec<Node>,
    node_ops: Vec<u64>,
}

/// Reads what the module in `bitcode` (with or without its wrapper) records about its making.
///
/// # Errors
/// [`BitcodeError`] where the stream breaks LLVM's rules before the metadata has been read.
pub fn scan(bitcode: &[u8], scratch: &mut Scratch) -> Result<ModuleFacts, BitcodeError> {
    if bitcode.len() > MAX_MODULE_BYTES {
        return Err(BitcodeError { bit: 0, why: "the module is too large to look into" });
    }
    let inner = unwrap_module(bitcode)?;
    let skipped_bits = inner.start * 8;
    let mut facts = Scan { bits: Bits::new(&bitcode[inner]), scratch, budget: 0 }
        .top_level()
        .map_err(|e| BitcodeError { bit: e.bit + skipped_bits, why: e.why })?;
    if let Some(sdk) = &mut facts.sdk {
        sdk.bits = sdk.bits.start + skipped_bits..sdk.bits.end + skipped_bits;
    }
    Ok(facts)
}

/// Kernels take tens of kilobytes. A hostile module can make a scan use some ten times its size in memory.
const MAX_MODULE_BYTES: usize = 8 << 20;
const WRAPPER_MAGIC: [u8; 4] = [0xDE, 0xC0, 0x17, 0x0B];
const STREAM_MAGIC: [u8; 4] = [b'B', b'C', 0xC0, 0xDE];

fn unwrap_module(bitcode: &[u8]) -> Result<Range<usize>, BitcodeError> {
    if !bitcode.starts_with(&WRAPPER_MAGIC) {
        return Ok(0..bitcode.len());
    }
    let word = |at: usize| {
        let bytes = bitcode.get(at..at + 4)?;
        Some(u32::from_le_bytes([bytes[0], bytes[1], bytes[2], bytes[3]]) as usize)
    };
    let broken = BitcodeError { bit: 64, why: "the wrapper's offset and size lie outside the bitcode" };
    let (start, size) = word(8).zip(word(12)).ok_or(broken)?;
    let end = start.checked_add(size).filter(|end| *end <= bitcode.len()).ok_or(broken)?;
    Ok(start..end)
}

/// One step of an abbreviation.
#[derive(Debug, Clone, Copy)]
enum Op {
    Literal(u64),
    Fixed(u32),
    Vbr(u32),
    Char6,
    Array,
    Blob,
}

/// A module-level constant: only short data arrays are of interest, the others merely take a number.
#[derive(Debug, Clone)]
enum Constant {
    Data { parts: [u64; MAX_VERSION_PARTS], len: usize, bits: Range<usize> },
    Other,
}

/// Versions have at most four parts; longer arrays are something else.
const MAX_VERSION_PARTS: usize = 4;

#[derive(Debug, Clone)]
enum Node {
    Value(u64),
    Tuple(Range<usize>),
    Other,
}

/// A record: its code, and the bytes of a blob operand if it has one. The operands are in `Scratch::ops`.
struct Record {
    code: u64,
    blob: Option<Range<usize>>,
}

// Numbers from LLVM's bitcode: block ids, then record codes within the block named.
const BLOCK_INFO: u64 = 0;
const MODULE: u64 = 8;
const CONSTANTS: u64 = 11;
const FUNCTION: u64 = 12;
const METADATA: u64 = 15;
const INFO_SET_BLOCK: u64 = 1;
const MODULE_TRIPLE: u64 = 2;
const MODULE_GLOBALS: [u64; 5] = [7, 8, 9, 14, 15];
const CONSTANT_SET_TYPE: u64 = 1;
const CONSTANT_DATA: u64 = 22;
const MD_VALUE: u64 = 2;
const MD_NODE: u64 = 3;
const MD_NAME: u64 = 4;
const MD_NAMED_NODE: u64 = 10;
const MD_STRINGS: u64 = 35;
/// Records in a metadata block that take no metadata number: kind, global attachment, index offset, index, argument list.
const MD_UNNUMBERED: [u64; 5] = [6, 36, 38, 39, 46];

struct Scan<'a, 's> {
    bits: Bits<'a>,
    scratch: &'s mut Scratch,
    /// Operands read so far. Literals take no bits, so a hostile abbreviation could ask for endless work without it.
    budget: usize,
}

struct SubBlock {
    id: u64,
    width: u32,
    end: usize,
}

impl Scan<'_, '_> {
    fn top_level(mut self) -> Result<ModuleFacts, BitcodeError> {
        if !self.bits.bytes.starts_with(&STREAM_MAGIC) {
            return Err(BitcodeError { bit: 0, why: "not LLVM bitcode" });
        }
        self.bits.pos = 32;
        while self.bits.end - self.bits.pos >= 64 {
            if self.bits.read(2)? != 1 {
                return Err(self.bits.error("expected a block"));
            }
            let block = self.enter()?;
            if block.id == MODULE {
                return self.module(&block);
            }
            self.bits.pos = block.end;
        }
        Err(self.bits.error("no module in the bitcode"))
    }

    fn enter(&mut self) -> Result<SubBlock, BitcodeError> {
        let id = self.bits.vbr(8)?;
        let width = self.bits.vbr(4)? as u32;
        if !(2..=32).contains(&width) {
            return Err(self.bits.error("a block's abbreviation width is out of range"));
        }
        self.bits.align32()?;
        let words = self.bits.read(32)? as usize;
        let end = words
            .checked_mul(32)
            .and_then(|bits| bits.checked_add(self.bits.pos))
            .filter(|end| *end <= self.bits.end)
            .ok_or_else(|| self.bits.error("a block is longer than what holds it"))?;
        Ok(SubBlock { id, width, end })
    }

    fn module(&mut self, module: &SubBlock) -> Result<ModuleFacts, BitcodeError> {
        let scratch = &mut *self.scratch;
        scratch.abbreviation_ops.clear();
        scratch.abbreviations.clear();
        scratch.block_info.clear();
        scratch.module_local.clear();
        scratch.constants.clear();
        self.bits.end = module.end;
        let mut facts = ModuleFacts::default();
        let mut globals = 0u64;
        loop {
            match self.bits.read(module.width)? {
                0 => return Ok(facts),
                1 => {
                    let block = self.enter()?;
                    match block.id {
                        BLOCK_INFO => self.block_info(&block)?,
                        CONSTANTS => self.constants(&block)?,
                        METADATA => {
                            self.metadata(&block, globals, &mut facts)?;
                            return Ok(facts);
                        }
                        // Module-level metadata precedes every function body: nothing more will come.
                        FUNCTION => return Ok(facts),
                        _ => {}
                    }
                    self.bits.pos = block.end;
                }
                2 => {
                    let id = self.define_abbreviation()?;
                    self.scratch.module_local.push(id);
                }
                id => {
                    let local = std::mem::take(&mut self.scratch.module_local);
                    let record = self.record(id, &local);
                    self.scratch.module_local = local;
                    let record = record?;
                    if record.code == MODULE_TRIPLE {
                        facts.triple =
                            Some(self.scratch.ops.iter().map(|c| char::from(*c as u8)).collect::<String>());
                    } else if MODULE_GLOBALS.contains(&record.code) {
                        globals += 1;
                    }
                }
            }
        }
    }

    fn block_info(&mut self, block: &SubBlock) -> Result<(), BitcodeError> {
        let mut current = None;
        loop {
            match self.bits.read(block.width)? {
                0 => return Ok(()),
                1 => {
                    let inner = self.enter()?;
                    self.bits.pos = inner.end;
                }
                2 => {
                    let id = self.define_abbreviation()?;
                    let target = current
                        .ok_or_else(|| self.bits.error("an abbreviation for no block in particular"))?;
                    self.scratch.block_info.push((target, id));
                }
                id => {
                    let record = self.record(id, &[])?;
                    if record.code == INFO_SET_BLOCK {
                        current = self.scratch.ops.first().copied();
                    }
                }
            }
        }
    }

    fn constants(&mut self, block: &SubBlock) -> Result<(), BitcodeError> {
        self.records(block, |scan, record, bits| {
            if record.code == CONSTANT_SET_TYPE {
                return Ok(());
            }
            let ops = &scan.scratch.ops;
            let constant = if record.code == CONSTANT_DATA && (1..=MAX_VERSION_PARTS).contains(&ops.len()) {
                let mut parts = [0; MAX_VERSION_PARTS];
                parts[..ops.len()].copy_from_slice(ops);
                Constant::Data { parts, len: ops.len(), bits }
            } else {
                Constant::Other
            };
            scan.scratch.constants.push(constant);
            Ok(())
        })
    }

    fn metadata(
        &mut self,
        block: &SubBlock,
        globals: u64,
        facts: &mut ModuleFacts,
    ) -> Result<(), BitcodeError> {
        self.scratch.string_bounds.clear();
        self.scratch.nodes.clear();
        self.scratch.node_ops.clear();
        let mut name = None;
        let (mut flags, mut ident) = (None, None);
        self.records(block, |scan, record, _| {
            match record.code {
                MD_STRINGS => scan.metadata_strings(&record)?,
                MD_NAME => {
                    let is = |wanted: &str| {
                        scan.scratch.ops.len() == wanted.len()
                            && scan
                                .scratch
                                .ops
                                .iter()
                                .zip(wanted.bytes())
                                .all(|(op, byte)| *op == u64::from(byte))
                    };
                    name = ["llvm.module.flags", "llvm.ident"].into_iter().find(|wanted| is(wanted));
                }
                MD_NAMED_NODE => match name.take() {
                    Some("llvm.module.flags") => flags = Some(scan.keep_ops()),
                    Some(_) => ident = Some(scan.keep_ops()),
                    None => {}
                },
                code if MD_UNNUMBERED.contains(&code) => {}
                code => {
                    let node = match (code, &scan.scratch.ops[..]) {
                        (MD_VALUE, [_, value]) => Node::Value(*value),
                        (MD_NODE, _) => Node::Tuple(scan.keep_ops()),
                        _ => Node::Other,
                    };
                    scan.scratch.nodes.push(node);
                }
            }
            Ok(())
        })?;
        let scratch = &*self.scratch;
        facts.compiler = ident.and_then(|ops| {
            let first = *scratch.node_ops.get(ops)?.first()?;
            let operand = scratch.tuple(first)?.first()?.checked_sub(1)?;
            Some(String::from_utf8_lossy(scratch.string(self.bits.bytes, operand)?).into_owned())
        });
        facts.sdk = flags.and_then(|ops| {
            scratch.node_ops.get(ops)?.iter().find_map(|flag| {
                let [_, key, value] = scratch.tuple(*flag)? else { return None };
                if scratch.string(self.bits.bytes, key.checked_sub(1)?)? != b"SDK Version" {
                    return None;
                }
                scratch.sdk_version(value.checked_sub(1)?, globals)
            })
        });
        Ok(())
    }

    /// Notes where each metadata string lies: the blob holds their lengths as a stream of 6-bit groups, then their text.
    fn metadata_strings(&mut self, record: &Record) -> Result<(), BitcodeError> {
        let blob = record.blob.clone().ok_or_else(|| self.bits.error("metadata strings without text"))?;
        let (count, text) = match self.scratch.ops[..] {
            [count, text] => (count as usize, text as usize),
            _ => return Err(self.bits.error("metadata strings without count and offset")),
        };
        let mut next = blob
            .start
            .checked_add(text)
            .filter(|start| *start <= blob.end && count <= blob.len() * 8)
            .ok_or_else(|| self.bits.error("metadata strings reach beyond their blob"))?;
        let mut lengths = Bits { bytes: self.bits.bytes, pos: blob.start * 8, end: next * 8 };
        self.scratch.string_bounds.push(next);
        for _ in 0..count {
            let length = lengths.vbr(6)? as usize;
            next = next
                .checked_add(length)
                .filter(|end| *end <= blob.end)
                .ok_or_else(|| lengths.error("a metadata string reaches beyond its blob"))?;
            self.scratch.string_bounds.push(next);
        }
        Ok(())
    }

    fn keep_ops(&mut self) -> Range<usize> {
        let scratch = &mut *self.scratch;
        let start = scratch.node_ops.len();
        scratch.node_ops.extend_from_slice(&scratch.ops);
        start..scratch.node_ops.len()
    }

    /// Calls `visit` with every record of a block and the bits it takes; nested blocks are skipped.
    fn records(
        &mut self,
        block: &SubBlock,
        mut visit: impl FnMut(&mut Self, Record, Range<usize>) -> Result<(), BitcodeError>,
    ) -> Result<(), BitcodeError> {
        let mut local = std::mem::take(&mut self.scratch.local);
        local.clear();
        local.extend(self.scratch.block_info.iter().filter(|(id, _)| *id == block.id).map(|(_, abbr)| *abbr));
        let outer_end = std::mem::replace(&mut self.bits.end, block.end);
        let result = loop {
            let step = match self.bits.read(block.width) {
                Err(e) => Err(e),
                Ok(0) => break Ok(()),
                Ok(1) => self.enter().map(|inner| self.bits.pos = inner.end),
                Ok(2) => self.define_abbreviation().map(|id| local.push(id)),
                Ok(id) => {
                    let start = self.bits.pos;
                    self.record(id, &local).and_then(|record| {
                        let end = self.bits.pos;
                        visit(self, record, start..end)
                    })
                }
            };
            if let Err(e) = step {
                break Err(e);
            }
        };
        self.bits.end = outer_end;
        self.scratch.local = local;
        result
    }

    fn define_abbreviation(&mut self) -> Result<usize, BitcodeError> {
        let count = self.bits.vbr(5)?;
        let start = self.scratch.abbreviation_ops.len();
        for _ in 0..count {
            let op = if self.bits.read(1)? == 1 {
                Op::Literal(self.bits.vbr(8)?)
            } else {
                match self.bits.read(3)? {
                    1 => match self.bits.vbr(5)? {
                        0 => Op::Literal(0),
                        width @ 1..=64 => Op::Fixed(width as u32),
                        _ => return Err(self.bits.error("an abbreviation's field is wider than 64 bits")),
                    },
                    2 => match self.bits.vbr(5)? {
                        0 => Op::Literal(0),
                        width @ 2..=32 => Op::Vbr(width as u32),
                        _ => return Err(self.bits.error("an abbreviation's variable field is out of range")),
                    },
                    3 => Op::Array,
                    4 => Op::Char6,
                    5 => Op::Blob,
                    _ => return Err(self.bits.error("an abbreviation uses an unknown encoding")),
                }
            };
            self.scratch.abbreviation_ops.push(op);
        }
        if start == self.scratch.abbreviation_ops.len() {
            return Err(self.bits.error("an abbreviation without operands"));
        }
        self.scratch.abbreviations.push(start..self.scratch.abbreviation_ops.len());
        Ok(self.scratch.abbreviations.len() - 1)
    }

    /// Reads one record into `Scratch::ops` (without its code).
    fn record(&mut self, id: u64, local: &[usize]) -> Result<Record, BitcodeError> {
        self.scratch.ops.clear();
        if id == 3 {
            let code = self.bits.vbr(6)?;
            let count = self.bits.vbr(6)?;
            for _ in 0..count {
                let op = self.bits.vbr(6)?;
                self.scratch.ops.push(op);
            }
            return Ok(Record { code, blob: None });
        }
        let abbreviation = local
            .get(id as usize - 4)
            .and_then(|index| self.scratch.abbreviations.get(*index))
            .cloned()
            .ok_or_else(|| self.bits.error("a record uses an abbreviation that was never defined"))?;
        self.budget += abbreviation.len();
        if self.budget > self.bits.bytes.len() * 8 {
            return Err(self.bits.error("the records claim more operands than the module has bits"));
        }
        let mut blob = None;
        let mut at = abbreviation.start;
        while at < abbreviation.end {
            match self.scratch.abbreviation_ops[at] {
                Op::Array => {
                    let count = self.bits.vbr(6)?;
                    at += 1;
                    let element = (at < abbreviation.end).then(|| self.scratch.abbreviation_ops[at]);
                    let element = match element {
                        Some(op @ (Op::Fixed(_) | Op::Vbr(_) | Op::Char6)) => op,
                        // A literal element takes no bits: the count alone would set the memory used.
                        _ => return Err(self.bits.error("an array of elements without a size")),
                    };
                    for _ in 0..count {
                        let value = self.bits.scalar(element)?;
                        self.scratch.ops.push(value);
                    }
                }
                Op::Blob => {
                    let length = self.bits.vbr(6)? as usize;
                    self.bits.align32()?;
                    let start = self.bits.pos / 8;
                    let end = start
                        .checked_add(length)
                        .filter(|end| *end <= self.bits.end / 8)
                        .ok_or_else(|| self.bits.error("a blob is longer than its block"))?;
                    self.bits.pos = end * 8;
                    self.bits.align32()?;
                    blob = Some(start..end);
                }
                op => {
                    let value = self.bits.scalar(op)?;
                    self.scratch.ops.push(value);
                }
            }
            at += 1;
        }
        if self.scratch.ops.is_empty() {
            return Err(self.bits.error("a record without a code"));
        }
        // The code is the first operand. Shifting the rest is cheap: records are short.
        let code = self.scratch.ops.remove(0);
        Ok(Record { code, blob })
    }
}

impl Scratch {
    fn string_count(&self) -> usize {
        self.string_bounds.len().saturating_sub(1)
    }

    fn string<'b>(&self, bytes: &'b [u8], id: u64) -> Option<&'b [u8]> {
        let id = usize::try_from(id).ok()?;
        bytes.get(*self.string_bounds.get(id)?..*self.string_bounds.get(id.checked_add(1)?)?)
    }

    fn node(&self, id: u64) -> Option<&Node> {
        self.nodes.get(usize::try_from(id).ok()?.checked_sub(self.string_count())?)
    }

    fn tuple(&self, id: u64) -> Option<&[u64]> {
        match self.node(id)? {
            Node::Tuple(ops) => self.node_ops.get(ops.clone()),
            _ => None,
        }
    }

    fn sdk_version(&self, id: u64, globals: u64) -> Option<SdkVersion> {
        let Node::Value(value) = self.node(id)? else { return None };
        // Values are numbered through: the module's globals first, then its constants.
        match self.constants.get(usize::try_from(value.checked_sub(globals)?).ok()?)? {
            Constant::Data { parts, len, bits } => {
                Some(SdkVersion { parts: parts[..*len].to_vec(), bits: bits.clone() })
            }
            Constant::Other => None,
        }
    }
}

struct Bits<'a> {
    bytes: &'a [u8],
    pos: usize,
    end: usize,
}

impl<'a> Bits<'a> {
    fn new(bytes: &'a [u8]) -> Self {
        Self { bytes, pos: 0, end: bytes.len() * 8 }
    }

    #[cold]
    fn error(&self, why: &'static str) -> BitcodeError {
        BitcodeError { bit: self.pos, why }
    }

    #[inline]
    fn read(&mut self, width: u32) -> Result<u64, BitcodeError> {
        let next = self.pos + width as usize;
        if next > self.end {
            return Err(self.error("the stream ends inside a field"));
        }
        let (byte, shift) = (self.pos / 8, (self.pos % 8) as u32);
        let word = match self.bytes.get(byte..byte + 8) {
            Some(eight) => u64::from_le_bytes(eight.try_into().expect("eight bytes were taken")),
            None => {
                let mut eight = [0; 8];
                let rest = &self.bytes[byte.min(self.bytes.len())..];
                eight[..rest.len()].copy_from_slice(rest);
                u64::from_le_bytes(eight)
            }
        };
        let mut value = word >> shift;
        if shift + width > 64 {
            value |= u64::from(self.bytes[byte + 8]) << (64 - shift);
        }
        self.pos = next;
        Ok(if width == 64 { value } else { value & ((1 << width) - 1) })
    }

    #[inline]
    fn vbr(&mut self, width: u32) -> Result<u64, BitcodeError> {
        let high = 1u64 << (width - 1);
        let mut value = 0u64;
        let mut shift = 0;
        loop {
            let chunk = self.read(width)?;
            if shift >= 64 {
                return Err(self.error("a number is longer than 64 bits"));
            }
            value |= (chunk & (high - 1)) << shift;
            if chunk & high == 0 {
                return Ok(value);
            }
            shift += width - 1;
        }
    }

    #[inline]
    fn scalar(&mut self, op: Op) -> Result<u64, BitcodeError> {
        match op {
            Op::Literal(value) => Ok(value),
            Op::Fixed(width) => self.read(width),
            Op::Vbr(width) => self.vbr(width),
            Op::Char6 => {
                let index = self.read(6)? as usize;
                Ok(u64::from(b"abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789._"[index]))
            }
            Op::Array | Op::Blob => Err(self.error("an array inside an array")),
        }
    }

    fn align32(&mut self) -> Result<(), BitcodeError> {
        let aligned = self.pos.next_multiple_of(32);
        if aligned > self.end {
            return Err(self.error("the stream ends before a 32-bit boundary"));
        }
        self.pos = aligned;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::build::metallib::synthetic::SyntheticModule;

    fn facts(bitcode: &[u8]) -> Result<ModuleFacts, BitcodeError> {
        scan(bitcode, &mut Scratch::default())
    }

    #[test]
    fn a_module_tells_who_compiled_it() {
        let bitcode = SyntheticModule { sdk: vec![26, 4], ..Default::default() }.build();
        let facts = facts(&bitcode).unwrap();
        assert_eq!(facts.compiler.as_deref(), Some("synthetic metal 1"));
        assert_eq!(facts.triple.as_deref(), Some("air64-apple-macosx14.0.0"));
        assert_eq!(facts.sdk.unwrap().to_string(), "26.4");
    }

    #[test]
    fn only_the_bits_of_the_version_differ_between_sdks() {
        let module = |minor| SyntheticModule { sdk: vec![26, minor], ..Default::default() }.build();
        let (old, new) = (module(4), module(5));
        let bits = facts(&old).unwrap().sdk.unwrap().bits;
        assert_eq!(bits, facts(&new).unwrap().sdk.unwrap().bits);
        let bit = |bytes: &[u8], at: usize| bytes[at / 8] >> (at % 8) & 1;
        let differing: Vec<usize> =
            (0..old.len() * 8).filter(|at| bit(&old, *at) != bit(&new, *at)).collect();
        assert!(
            !differing.is_empty() && differing.iter().all(|at| bits.contains(at)),
            "{differing:?} {bits:?}"
        );
    }

    #[test]
    fn a_scratch_used_before_changes_nothing() {
        let mut scratch = Scratch::default();
        let first =
            SyntheticModule { sdk: vec![15, 5, 1], compiler: "other".into(), ..Default::default() }.build();
        let second = SyntheticModule::default().build();
        let alone = facts(&second);
        scan(&first, &mut scratch).unwrap();
        let _ = scan(&first[..first.len() / 2], &mut scratch);
        assert_eq!(scan(&second, &mut scratch), alone);
    }

    #[test]
    fn a_cut_or_flipped_module_is_an_error_or_another_module_and_never_a_panic() {
        let bitcode = SyntheticModule::default().with_code_of("x").build();
        let mut scratch = Scratch::default();
        for length in 0..bitcode.len() {
            assert!(scan(&bitcode[..length], &mut scratch).is_err(), "cut at {length}");
        }
        for bit in 0..bitcode.len() * 8 {
            let mut flipped = bitcode.clone();
            flipped[bit / 8] ^= 1 << (bit % 8);
            let _ = scan(&flipped, &mut scratch);
        }
    }

    #[test]
    fn operands_that_take_no_bits_cannot_ask_for_endless_work() {
        // One abbreviation of thousands of literals, used in every three bits that follow.
        let mut bits = Vec::new();
        let mut put = |value: u64, width: usize| bits.extend((0..width).map(|bit| value >> bit & 1 == 1));
        put(u64::from(u32::from_le_bytes(*b"BC\xC0\xDE")), 32);
        put(1, 2); // enter a sub-block
        put(8, 8); // the module
        put(3, 4); // ids of three bits
        put(0, 18); // up to the next word
        put(40_000, 32); // its length in words
        put(2, 3); // define an abbreviation
        let literals = 20_000u64;
        for shift in [0, 4, 8] {
            put(literals >> shift & 15 | 16, 5);
        }
        put(literals >> 12, 5);
        for _ in 0..literals {
            put(1, 1);
            put(7, 8);
        }
        while bits.len() < 64 + 32 + 40_000 * 32 {
            bits.extend([false, false, true]); // id 4: the abbreviation
        }
        let bytes: Vec<u8> = bits
            .chunks(8)
            .map(|c| c.iter().enumerate().fold(0, |b, (i, on)| b | u8::from(*on) << i))
            .collect();
        let error = facts(&bytes).unwrap_err();
        assert_eq!(error.why, "the records claim more operands than the module has bits");
    }
}
