//! Answers what a Metal library holds, from its bytes alone. Every size, count, offset and overlap is checked before it
//! is used; memory stays within a small multiple of the file. Whether hashes match is the audit's question.

use std::{collections::HashSet, fmt, ops::Range};

use serde::{Serialize, Serializer};

/// A library that was read from `bytes`, borrowing from them.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Library<'a> {
    /// The whole file.
    pub bytes: &'a [u8],
    /// Its fixed header.
    pub header: Header,
    /// Its functions, in file order. Names are unique.
    pub functions: Vec<Function<'a>>,
    /// The tags behind the function list: reflection (`RLST`), `UUID`, dynamic header (`HDYN`) and unknown ones.
    pub extension: Vec<Tag<'a>>,
}

/// The 88 bytes at the start.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Header {
    /// 0x8001 for macOS.
    pub platform: u16,
    /// Version of the file format: 2.7, 2.8, 2.9 for macOS 14, 15, 26.
    pub format: Version,
    /// The library's type byte; 0 for an executable library.
    pub library_type: u8,
    /// 0x81 for macOS.
    pub os: u8,
    /// The oldest OS that the library may be loaded on.
    pub os_floor: Version,
    /// The function list, its leading count included.
    pub function_list: Section,
    /// Per-function metadata that is visible outside, function constants above all.
    pub public_metadata: Section,
    /// Per-function metadata of the compiler's own.
    pub private_metadata: Section,
    /// The functions' bitcode, one after the other.
    pub bitcode: Section,
}

/// A part of the file.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub struct Section {
    /// Where it starts, in bytes from the start of the file.
    #[serde(rename = "offset_bytes")]
    pub offset: u64,
    /// How long it is.
    #[serde(rename = "size_bytes")]
    pub size: u64,
}

/// A version of two parts.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Version {
    /// The first part.
    pub major: u16,
    /// The second part.
    pub minor: u16,
}

impl Version {
    /// `major.minor`.
    #[must_use]
    pub const fn new(major: u16, minor: u16) -> Self {
        Self { major, minor }
    }
}

impl From<(u16, u16)> for Version {
    fn from((major, minor): (u16, u16)) -> Self {
        Self { major, minor }
    }
}

impl fmt::Display for Version {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}", self.major, self.minor)
    }
}

impl Serialize for Version {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl std::str::FromStr for Version {
    type Err = String;

    /// Reads `26` or `26.2`; a third part, as in `26.2.0`, must be a number and is ignored, as the format has no room for it.
    fn from_str(text: &str) -> Result<Self, String> {
        let parts: Vec<u16> = text
            .split('.')
            .map(|part| part.parse().map_err(|_| format!("`{text}` is not a version such as 14.0 or 26.2")))
            .collect::<Result<_, _>>()?;
        match parts[..] {
            [major] => Ok(Self::new(major, 0)),
            [major, minor] | [major, minor, _] => Ok(Self::new(major, minor)),
            _ => Err(format!("`{text}` has too many parts for a version")),
        }
    }
}

/// What a function is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FunctionKind(pub u8);

impl FunctionKind {
    /// A compute kernel.
    pub const KERNEL: Self = Self(2);
}

impl fmt::Display for FunctionKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            0 => f.write_str("vertex"),
            1 => f.write_str("fragment"),
            2 => f.write_str("kernel"),
            other => write!(f, "type-{other}"),
        }
    }
}

/// One function of the library.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Function<'a> {
    /// The name under which a host asks for it.
    pub name: &'a str,
    /// What it is for.
    pub kind: FunctionKind,
    /// SHA-256 of the bitcode, as the library states it.
    pub stated_hash: &'a [u8; 32],
    /// Version of Apple's intermediate representation.
    pub air: Version,
    /// Version of the Metal shading language.
    pub msl: Version,
    /// Its compiled code, wrapper included.
    pub bitcode: &'a [u8],
    /// Its public metadata: tags without the leading size.
    pub public_metadata: &'a [u8],
    /// Its private metadata: tags without the leading size.
    pub private_metadata: &'a [u8],
    /// Where its reflection record starts within the reflection list, if it has one.
    pub reflection_offset: Option<u64>,
    /// Tags that this reader does not know, in file order.
    pub unknown: Vec<Tag<'a>>,
}

/// A tag with its data, as the file has it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Tag<'a> {
    /// Four characters, such as `NAME`.
    pub code: FourCc,
    /// What follows the size.
    pub data: &'a [u8],
}

/// The four characters that name a tag.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct FourCc(pub [u8; 4]);

impl fmt::Display for FourCc {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.0.escape_ascii())
    }
}

impl fmt::Debug for FourCc {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "`{self}`")
    }
}

/// Why bytes are not a Metal library, and where.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("at byte {at}: {fault}")]
pub struct ParseError {
    /// Where the trouble is, in bytes from the start of the file.
    pub at: u64,
    /// What it is.
    pub fault: Fault,
}

/// The ways in which a file can be no Metal library, or a broken one.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Fault {
    /// Shorter than a header.
    #[error("the file has {have} bytes, a Metal library has a header of {HEADER_BYTES}")]
    NoHeader {
        /// The file's size.
        have: u64,
    },
    /// It starts with something else than `MTLB`.
    #[error("not a Metal library but {what}")]
    NotMetallib {
        /// What it looks like instead.
        what: &'static str,
    },
    /// A major version of the format that this reader was not written for.
    #[error("format version {0} is unknown (known: 2.x)")]
    UnknownFormat(Version),
    /// The header's size is not the file's.
    #[error("the header states {stated} bytes, the file has {have}")]
    SizeMismatch {
        /// The size in the header.
        stated: u64,
        /// The file's size.
        have: u64,
    },
    /// A part that reaches beyond what holds it.
    #[error("{what} ({offset} + {size} bytes) reaches beyond {within}")]
    OutOfBounds {
        /// The part.
        what: &'static str,
        /// Its offset.
        offset: u64,
        /// Its size.
        size: u64,
        /// What it should lie in.
        within: &'static str,
    },
    /// Two parts share bytes.
    #[error("{second} overlaps {first}")]
    Overlap {
        /// The part that starts first.
        first: &'static str,
        /// The part that starts inside it.
        second: &'static str,
    },
    /// A count that cannot be true.
    #[error("{count} functions are stated, the list has room for {room}")]
    TooManyFunctions {
        /// The count in the file.
        count: u64,
        /// What fits, at most.
        room: u64,
    },
    /// A tag of the wrong length.
    #[error("tag {tag} has {have} bytes, {want} expected")]
    TagSize {
        /// The tag.
        tag: FourCc,
        /// Its size in the file.
        have: usize,
        /// The size that it must have.
        want: usize,
    },
    /// A function without a tag that every function has.
    #[error("a function has no {tag} tag")]
    MissingTag {
        /// The tag.
        tag: FourCc,
    },
    /// A tag that stands twice in one group.
    #[error("tag {tag} stands twice in one group")]
    RepeatedTag {
        /// The tag.
        tag: FourCc,
    },
    /// Tags that do not end where their group ends.
    #[error("{what} does not close with ENDT at its end")]
    Unclosed {
        /// The group.
        what: &'static str,
    },
    /// A name that is not UTF-8 text with one zero byte at its end, or that is empty.
    #[error("a function's name is not zero-terminated UTF-8 text")]
    BadName,
    /// Two functions with one name.
    #[error("the function name `{}` stands twice", .0.escape_debug())]
    DuplicateName(String),
}

impl ParseError {
    fn new(at: u64, fault: Fault) -> Self {
        Self { at, fault }
    }

    /// What to try.
    #[must_use]
    pub fn hint(&self) -> &'static str {
        match &self.fault {
            Fault::NotMetallib { what } if *what == ZIP => {
                "a wheel is a zip archive: unpack mlx/lib/mlx.metallib from it and pass that"
            }
            Fault::NotMetallib { what } if *what == AIR => {
                "this is compiled but not linked: link it with `xcrun metallib` first"
            }
            Fault::NotMetallib { what } if *what == LFS => {
                "fetch the real file (`git lfs pull`), this one only points to it"
            }
            Fault::NotMetallib { .. } => {
                "pass the mlx.metallib file of a build or of an unpacked mlx-metal wheel"
            }
            Fault::UnknownFormat(_) => {
                "a newer Metal toolchain may have made it; check it with the toolchain's own `metal-objdump`"
            }
            Fault::NoHeader { .. } | Fault::SizeMismatch { .. } => {
                "the file was cut short or appended to: build or download it again"
            }
            _ => "the file is damaged: build or download it again, and compare its SHA-256 with the source's",
        }
    }
}

/// Bytes in the fixed header.
pub const HEADER_BYTES: u64 = 88;

/// The fewest bytes that a function's group can have: its size, the six required tags with a one-character name, and
/// the end. It bounds how many functions a list of a given size can hold.
const LEAST_GROUP_BYTES: u64 = 4 + (6 + 2) + (6 + 1) + (6 + 32) + (6 + 24) + (6 + 8) + (6 + 8) + 4;

const NAME: FourCc = FourCc(*b"NAME");
const TYPE: FourCc = FourCc(*b"TYPE");
const HASH: FourCc = FourCc(*b"HASH");
const OFFT: FourCc = FourCc(*b"OFFT");
const VERS: FourCc = FourCc(*b"VERS");
const MDSZ: FourCc = FourCc(*b"MDSZ");
const RFLT: FourCc = FourCc(*b"RFLT");
const RLST: FourCc = FourCc(*b"RLST");
const HDYN: FourCc = FourCc(*b"HDYN");
const UUID: FourCc = FourCc(*b"UUID");
const ENDT: [u8; 4] = *b"ENDT";

const ZIP: &str = "a zip archive (a wheel?)";
const AIR: &str = "LLVM bitcode (an .air file?)";
const LFS: &str = "text (a pointer to large-file storage?)";

impl<'a> Library<'a> {
    /// Reads a library.
    ///
    /// # Errors
    /// [`ParseError`], with the place, for anything that is no well-formed library of format 2.x.
    pub fn parse(bytes: &'a [u8]) -> Result<Self, ParseError> {
        let header = parse_header(bytes)?;
        let (extension, extension_end) = parse_extension(bytes, &header)?;
        let layout = Layout::new(bytes.len() as u64, &header, &extension, extension_end)?;
        let functions = parse_functions(bytes, &header, layout.reflection)?;
        check_bitcode_overlaps(&header, &functions, bytes)?;
        Ok(Self { bytes, header, functions, extension })
    }

    /// The library's UUID, if it states one.
    #[must_use]
    pub fn uuid(&self) -> Option<[u8; 16]> {
        self.extension.iter().find(|tag| tag.code == UUID).and_then(|tag| tag.data.try_into().ok())
    }
}

fn parse_header(bytes: &[u8]) -> Result<Header, ParseError> {
    let have = bytes.len() as u64;
    if !bytes.starts_with(b"MTLB") {
        return Err(ParseError::new(
            0,
            match what_else(bytes) {
                Some(what) => Fault::NotMetallib { what },
                None => Fault::NoHeader { have },
            },
        ));
    }
    if have < HEADER_BYTES {
        return Err(ParseError::new(have, Fault::NoHeader { have }));
    }
    let u16_at = |at| u16::from_le_bytes(array(bytes, at));
    let u64_at = |at| u64::from_le_bytes(array(bytes, at));
    let section = |at| Section { offset: u64_at(at), size: u64_at(at + 8) };
    let header = Header {
        platform: u16_at(4),
        format: Version::new(u16_at(6), u16_at(8)),
        library_type: bytes[10],
        os: bytes[11],
        os_floor: Version::new(u16_at(12), u16_at(14)),
        function_list: section(24),
        public_metadata: section(40),
        private_metadata: section(56),
        bitcode: section(72),
    };
    if header.format.major != 2 {
        return Err(ParseError::new(6, Fault::UnknownFormat(header.format)));
    }
    let stated = u64_at(16);
    if stated != have {
        return Err(ParseError::new(16, Fault::SizeMismatch { stated, have }));
    }
    // The stated size of the list leaves out its count, so that everything after it lies four bytes further.
    let size = header.function_list.size.checked_add(4).ok_or_else(|| {
        let Section { offset, size } = header.function_list;
        ParseError::new(
            32,
            Fault::OutOfBounds { what: "the function list", offset, size, within: "the file" },
        )
    })?;
    Ok(Header { function_list: Section { size, ..header.function_list }, ..header })
}

/// Names what the first bytes look like, for the message; `None` when there are too few to say.
fn what_else(bytes: &[u8]) -> Option<&'static str> {
    const KNOWN: [(&[u8], &str); 10] = [
        (b"PK\x03\x04", ZIP),
        (b"\xDE\xC0\x17\x0B", AIR),
        (b"BC\xC0\xDE", AIR),
        (b"version https", LFS),
        (b"!<arch>\n", "a static library"),
        (b"\xCA\xFE\xBA\xBE", "a universal Mach-O file"),
        (b"\xCF\xFA\xED\xFE", "a Mach-O file"),
        (b"\x7FELF", "an ELF file"),
        (b"<", "a web page or XML"),
        (b"\x1F\x8B", "a gzip file"),
    ];
    match KNOWN.iter().find(|(magic, _)| bytes.starts_with(magic)) {
        Some((_, what)) => Some(what),
        None if bytes.len() < 4 => None,
        None => Some("something else (it does not start with MTLB)"),
    }
}

/// Takes `N` bytes that the caller knows to be there.
fn array<const N: usize>(bytes: &[u8], at: usize) -> [u8; N] {
    bytes[at..at + N].try_into().expect("the slice has N bytes")
}

impl Section {
    fn end(self) -> Option<u64> {
        self.offset.checked_add(self.size)
    }

    /// The section's bytes, or an error that points at `said_at`, where its offset was read.
    fn slice<'a>(self, bytes: &'a [u8], what: &'static str, said_at: u64) -> Result<&'a [u8], ParseError> {
        self.end()
            .filter(|end| *end <= bytes.len() as u64)
            .map(|end| &bytes[self.offset as usize..end as usize])
            .ok_or_else(|| {
                let Self { offset, size } = self;
                ParseError::new(said_at, Fault::OutOfBounds { what, offset, size, within: "the file" })
            })
    }
}

/// Reads the tags from the end of the function list up to their end mark, and says where that lies.
fn parse_extension<'a>(bytes: &'a [u8], header: &Header) -> Result<(Vec<Tag<'a>>, u64), ParseError> {
    header.function_list.slice(bytes, "the function list", 24)?;
    let start = header.function_list.offset + header.function_list.size;
    let mut tags = Tags { bytes, at: start as usize, end: bytes.len(), what: "the header's extension" };
    let mut found: Vec<Tag<'a>> = Vec::new();
    while let Some((at, tag)) = tags.next_tag()? {
        if found.iter().any(|other| other.code == tag.code) {
            return Err(ParseError::new(at, Fault::RepeatedTag { tag: tag.code }));
        }
        // Each tag has its own code, and a file has a handful: the search above must not become quadratic work.
        if found.len() >= 64 {
            return Err(ParseError::new(at, Fault::Unclosed { what: "the header's extension" }));
        }
        found.push(tag);
    }
    Ok((found, tags.at as u64))
}

/// The large parts of the file, checked against its size and each other.
struct Layout {
    reflection: Option<Section>,
}

impl Layout {
    fn new(
        file_bytes: u64,
        header: &Header,
        extension: &[Tag<'_>],
        extension_end: u64,
    ) -> Result<Self, ParseError> {
        let list_end = header.function_list.offset + header.function_list.size;
        let mut parts = vec![
            ("the header", 0, Section { offset: 0, size: HEADER_BYTES }),
            ("the function list", 24, header.function_list),
            (
                "the header's extension",
                list_end,
                Section { offset: list_end, size: extension_end - list_end },
            ),
            ("the public metadata", 40, header.public_metadata),
            ("the private metadata", 56, header.private_metadata),
            ("the bitcode", 72, header.bitcode),
        ];
        let mut reflection = None;
        for tag in extension {
            let what = match tag.code {
                RLST => "the reflection list",
                HDYN => "the dynamic header",
                UUID if tag.data.len() != 16 => {
                    let fault = Fault::TagSize { tag: UUID, have: tag.data.len(), want: 16 };
                    return Err(ParseError::new(list_end, fault));
                }
                _ => continue,
            };
            if tag.data.len() != 16 {
                let fault = Fault::TagSize { tag: tag.code, have: tag.data.len(), want: 16 };
                return Err(ParseError::new(list_end, fault));
            }
            let section = Section {
                offset: u64::from_le_bytes(array(tag.data, 0)),
                size: u64::from_le_bytes(array(tag.data, 8)),
            };
            parts.push((what, list_end, section));
            if tag.code == RLST {
                reflection = Some(section);
            }
        }
        for (what, said_at, section) in &parts {
            if section.end().is_none_or(|end| end > file_bytes) {
                let Section { offset, size } = *section;
                let fault = Fault::OutOfBounds { what, offset, size, within: "the file" };
                return Err(ParseError::new(*said_at, fault));
            }
        }
        parts.retain(|(_, _, section)| section.size > 0);
        parts.sort_by_key(|(_, _, section)| section.offset);
        for pair in parts.windows(2) {
            let (first, _, before) = pair[0];
            let (second, said_at, after) = pair[1];
            if before.offset + before.size > after.offset {
                return Err(ParseError::new(said_at, Fault::Overlap { first, second }));
            }
        }
        Ok(Self { reflection })
    }
}

fn parse_functions<'a>(
    bytes: &'a [u8],
    header: &Header,
    reflection: Option<Section>,
) -> Result<Vec<Function<'a>>, ParseError> {
    let list = header.function_list.slice(bytes, "the function list", 24)?;
    let start = header.function_list.offset as usize;
    let count = u64::from(u32::from_le_bytes(array(list, 0)));
    let room = (list.len() as u64 - 4) / LEAST_GROUP_BYTES;
    if count > room {
        return Err(ParseError::new(start as u64, Fault::TooManyFunctions { count, room }));
    }
    let sections = FunctionSections {
        public: header.public_metadata.slice(bytes, "the public metadata", 40)?,
        private: header.private_metadata.slice(bytes, "the private metadata", 56)?,
        bitcode: header.bitcode.slice(bytes, "the bitcode", 72)?,
        reflection,
    };
    let mut functions = Vec::with_capacity(count as usize);
    let mut names = HashSet::with_capacity(count as usize);
    let (mut at, end) = (start + 4, start + list.len());
    for _ in 0..count {
        let what = "a function's group";
        let group = group_at(bytes, at, end, what, "the function list")?;
        let function = parse_function(bytes, group.clone(), &sections)?;
        if !names.insert(function.name) {
            return Err(ParseError::new(at as u64, Fault::DuplicateName(function.name.to_owned())));
        }
        functions.push(function);
        at = group.end;
    }
    if at != end {
        // Bytes that no group accounts for would be functions that nobody sees.
        return Err(ParseError::new(at as u64, Fault::Unclosed { what: "the function list" }));
    }
    Ok(functions)
}

/// The tags of the group at `at`, which starts with a size that includes itself.
fn group_at(
    bytes: &[u8],
    at: usize,
    end: usize,
    what: &'static str,
    within: &'static str,
) -> Result<Range<usize>, ParseError> {
    let fault =
        |size| ParseError::new(at as u64, Fault::OutOfBounds { what, offset: at as u64, size, within });
    if at > end || end - at < 8 {
        return Err(fault(8));
    }
    let size = u32::from_le_bytes(array(bytes, at)) as usize;
    if size < 8 || size > end - at {
        return Err(fault(size as u64));
    }
    Ok(at + 4..at + size)
}

struct FunctionSections<'a> {
    public: &'a [u8],
    private: &'a [u8],
    bitcode: &'a [u8],
    reflection: Option<Section>,
}

fn parse_function<'a>(
    bytes: &'a [u8],
    group: Range<usize>,
    sections: &FunctionSections<'a>,
) -> Result<Function<'a>, ParseError> {
    let start = group.start as u64;
    let mut known: [Option<(u64, &'a [u8])>; 7] = [None; 7];
    const KNOWN: [(FourCc, Option<usize>); 7] = [
        (NAME, None),
        (TYPE, Some(1)),
        (HASH, Some(32)),
        (OFFT, Some(24)),
        (VERS, Some(8)),
        (MDSZ, Some(8)),
        (RFLT, Some(8)),
    ];
    let mut unknown = Vec::new();
    let mut tags = Tags { bytes, at: group.start, end: group.end, what: "a function's group" };
    while let Some((at, tag)) = tags.next_tag()? {
        let Some(index) = KNOWN.iter().position(|(code, _)| *code == tag.code) else {
            unknown.push(tag);
            continue;
        };
        if let Some(want) = KNOWN[index].1.filter(|want| *want != tag.data.len()) {
            return Err(ParseError::new(at, Fault::TagSize { tag: tag.code, have: tag.data.len(), want }));
        }
        if known[index].replace((at, tag.data)).is_some() {
            return Err(ParseError::new(at, Fault::RepeatedTag { tag: tag.code }));
        }
    }
    if tags.at != group.end {
        return Err(ParseError::new(tags.at as u64, Fault::Unclosed { what: "a function's group" }));
    }
    let required = |index: usize| {
        known[index].ok_or_else(|| ParseError::new(start, Fault::MissingTag { tag: KNOWN[index].0 }))
    };
    let (name_at, name) = required(0)?;
    let name = name
        .split_last()
        .filter(|(zero, text)| **zero == 0 && !text.is_empty() && !text.contains(&0))
        .and_then(|(_, text)| std::str::from_utf8(text).ok())
        .ok_or_else(|| ParseError::new(name_at, Fault::BadName))?;
    let (_, kind) = required(1)?;
    let (_, hash) = required(2)?;
    let (offsets_at, offsets) = required(3)?;
    let (_, versions) = required(4)?;
    let (_, size) = required(5)?;
    let offset = |index: usize| u64::from_le_bytes(array(offsets, index * 8));
    let size = u64::from_le_bytes(array(size, 0));
    let bitcode = slice_in(sections.bitcode, offset(2), size).ok_or_else(|| {
        let (what, within) = ("a function's bitcode", "the bitcode");
        ParseError::new(offsets_at, Fault::OutOfBounds { what, offset: offset(2), size, within })
    })?;
    let public_metadata = metadata_group(sections.public, offset(0), offsets_at, "the public metadata")?;
    let private_metadata = metadata_group(sections.private, offset(1), offsets_at, "the private metadata")?;
    let reflection_offset = match (known[6], sections.reflection) {
        (None, _) => None,
        (Some((at, data)), Some(list)) => {
            let offset = u64::from_le_bytes(array(data, 0));
            if offset >= list.size {
                let (what, within) = ("a function's reflection", "the reflection list");
                return Err(ParseError::new(at, Fault::OutOfBounds { what, offset, size: 0, within }));
            }
            Some(offset)
        }
        (Some((_, data)), None) => Some(u64::from_le_bytes(array(data, 0))),
    };
    let version = |index: usize| u16::from_le_bytes(array(versions, index * 2));
    Ok(Function {
        name,
        kind: FunctionKind(kind[0]),
        stated_hash: hash.try_into().expect("the tag's size was checked"),
        air: Version::new(version(0), version(1)),
        msl: Version::new(version(2), version(3)),
        bitcode,
        public_metadata,
        private_metadata,
        reflection_offset,
        unknown,
    })
}

fn slice_in(section: &[u8], offset: u64, size: u64) -> Option<&[u8]> {
    let end = offset.checked_add(size).filter(|end| *end <= section.len() as u64)?;
    Some(&section[offset as usize..end as usize])
}

/// The tags of a function in a metadata section; `said_at` is where the offset was read.
fn metadata_group<'a>(
    section: &'a [u8],
    offset: u64,
    said_at: u64,
    within: &'static str,
) -> Result<&'a [u8], ParseError> {
    let what = "a function's metadata";
    let out = |size| ParseError::new(said_at, Fault::OutOfBounds { what, offset, size, within });
    let at = usize::try_from(offset).ok().filter(|at| *at <= section.len()).ok_or_else(|| out(8))?;
    let group =
        group_at(section, at, section.len(), what, within).map_err(|e| ParseError { at: said_at, ..e })?;
    Ok(&section[group])
}

/// Walks `code, u16 size, data` up to `ENDT`.
struct Tags<'a> {
    bytes: &'a [u8],
    at: usize,
    end: usize,
    what: &'static str,
}

impl<'a> Tags<'a> {
    /// The next tag with the place where it starts; `None` at the end mark, which is consumed.
    fn next_tag(&mut self) -> Result<Option<(u64, Tag<'a>)>, ParseError> {
        let at = self.at;
        let unclosed = || ParseError::new(at as u64, Fault::Unclosed { what: self.what });
        let left = self.bytes.get(at..self.end).ok_or_else(unclosed)?;
        let code: [u8; 4] = left.get(..4).ok_or_else(unclosed)?.try_into().expect("four bytes were taken");
        if code == ENDT {
            self.at += 4;
            return Ok(None);
        }
        let size = left.get(4..6).ok_or_else(unclosed)?;
        let size = usize::from(u16::from_le_bytes([size[0], size[1]]));
        let data = left.get(6..6 + size).ok_or_else(unclosed)?;
        self.at += 6 + size;
        Ok(Some((at as u64, Tag { code: FourCc(code), data })))
    }
}

/// Two functions may share one piece of bitcode; pieces that overlap in part are no compiler's work.
fn check_bitcode_overlaps(
    header: &Header,
    functions: &[Function<'_>],
    bytes: &[u8],
) -> Result<(), ParseError> {
    let offset = |code: &[u8]| code.as_ptr() as usize - bytes.as_ptr() as usize;
    let mut pieces: Vec<(usize, usize)> = functions
        .iter()
        .map(|f| (offset(f.bitcode), f.bitcode.len()))
        .filter(|(_, size)| *size > 0)
        .collect();
    if !pieces.is_sorted() {
        pieces.sort_unstable();
    }
    pieces.dedup();
    match pieces.windows(2).find(|pair| pair[0].0 + pair[0].1 > pair[1].0) {
        None => Ok(()),
        Some(pair) => {
            debug_assert!(pair[1].0 as u64 >= header.bitcode.offset);
            let fault = Fault::Overlap { first: "a function's bitcode", second: "another's" };
            Err(ParseError::new(pair[1].0 as u64, fault))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::build::metallib::{
        audit::audit,
        diff::diff,
        hash_mismatches,
        synthetic::{SyntheticKernel, SyntheticLibrary, SyntheticModule},
    };

    fn two_kernels() -> Vec<u8> {
        SyntheticLibrary::of(&["v_Absfloat32float32", "arangeint32"]).build()
    }

    #[test]
    fn parsing_undoes_building() {
        let mut spec = SyntheticLibrary::of(&["a", "größe_α", "affine_qmm_t_nax_float"]);
        spec.format = Version::new(2, 9);
        spec.os_floor = Version::new(26, 2);
        spec.extra_tags = vec![(*b"ZZZZ", vec![1, 2, 3]), (*b"EMTY", vec![])];
        spec.kernels[1].unknown = vec![(*b"NEWT", b"kept".to_vec()), (*b"NEWT", b"twice".to_vec())];
        spec.kernels[1].public_metadata = b"CNST\x02\x00ab".to_vec();
        spec.kernels[2].air = Version::new(2, 8);
        spec.kernels[2].msl = Version::new(4, 0);
        spec.kernels[2].bitcode = Vec::new();
        let bytes = spec.build();
        let library = Library::parse(&bytes).unwrap();
        let owned = |tags: &[Tag<'_>]| -> Vec<([u8; 4], Vec<u8>)> {
            tags.iter().map(|tag| (tag.code.0, tag.data.to_vec())).collect()
        };
        let back = SyntheticLibrary {
            format: library.header.format,
            os_floor: library.header.os_floor,
            kernels: library
                .functions
                .iter()
                .map(|f| SyntheticKernel {
                    name: f.name.to_owned(),
                    air: f.air,
                    msl: f.msl,
                    bitcode: f.bitcode.to_vec(),
                    public_metadata: f.public_metadata[..f.public_metadata.len() - 4].to_vec(),
                    unknown: owned(&f.unknown),
                })
                .collect(),
            extra_tags: owned(&library.extension[2..]),
        };
        assert_eq!(back, spec);
        assert!(library.functions.iter().all(|f| f.kind == FunctionKind::KERNEL));
        assert_eq!(library.uuid(), Some([0x5A; 16]));
        assert_eq!(hash_mismatches(&library), Vec::<&str>::new());
    }

    #[test]
    fn a_library_cut_at_any_byte_is_an_error() {
        let bytes = two_kernels();
        for length in 0..bytes.len() {
            let error = Library::parse(&bytes[..length]).expect_err("the file is cut short");
            assert!(error.at <= bytes.len() as u64, "{error}");
        }
        let mut longer = bytes.clone();
        longer.push(0);
        assert!(matches!(Library::parse(&longer).unwrap_err().fault, Fault::SizeMismatch { .. }));
    }

    #[test]
    fn a_cut_library_whose_header_was_corrected_is_an_error_or_loses_no_function() {
        let bytes = two_kernels();
        let whole = Library::parse(&bytes).unwrap();
        for length in HEADER_BYTES as usize..bytes.len() {
            let mut cut = bytes[..length].to_vec();
            cut[16..24].copy_from_slice(&(length as u64).to_le_bytes());
            if let Ok(library) = Library::parse(&cut) {
                assert_eq!(library.functions, whole.functions, "cut at {length}");
            }
        }
    }

    #[test]
    fn a_flipped_bit_never_panics_and_never_goes_unnoticed_in_code() {
        let bytes = two_kernels();
        let whole = Library::parse(&bytes).unwrap();
        let code = whole.header.bitcode;
        let code = code.offset as usize..(code.offset + code.size) as usize;
        for at in 0..bytes.len() {
            for bit in 0..8 {
                let mut flipped = bytes.clone();
                flipped[at] ^= 1 << bit;
                let Ok(library) = Library::parse(&flipped) else { continue };
                let wrong = hash_mismatches(&library);
                if code.contains(&at) {
                    assert_eq!(wrong.len(), 1, "bit {bit} of byte {at}");
                } else if wrong.is_empty() {
                    // Whatever else the bit meant, every function still has its own code.
                    let codes =
                        |l: &Library<'_>| l.functions.iter().map(|f| f.bitcode.to_vec()).collect::<Vec<_>>();
                    assert_eq!(codes(&library), codes(&whole), "bit {bit} of byte {at}");
                }
                if at % 31 == 0 {
                    let _ = audit(&library, &Default::default());
                    let _ = diff(&whole, &library);
                }
            }
        }
    }

    /// Where a tag's data starts, the `nth` time that it stands in the file.
    fn data_of(bytes: &[u8], code: &[u8; 4], nth: usize) -> usize {
        bytes.windows(4).enumerate().filter(|(_, w)| w == code).nth(nth).unwrap().0 + 6
    }

    #[test]
    fn hostile_values_are_named_with_their_place() {
        let bytes = two_kernels();
        let name = data_of(&bytes, b"NAME", 0);
        let offsets = data_of(&bytes, b"OFFT", 1);
        let size = data_of(&bytes, b"MDSZ", 0);
        let reflection = data_of(&bytes, b"RFLT", 0);
        let list = data_of(&bytes, b"RLST", 0);
        let max = u64::MAX.to_le_bytes();
        let cases: &[(&str, usize, &[u8], &str)] = &[
            (
                "count",
                88,
                &u32::MAX.to_le_bytes(),
                "at byte 88: 4294967295 functions are stated, the list has room for 2",
            ),
            ("fewer than there are", 88, &[1], "does not close with ENDT at its end"),
            ("major version", 6, &[3], "at byte 6: format version 3.7 is unknown (known: 2.x)"),
            ("file size", 16, &max, "the header states 18446744073709551615 bytes, the file has"),
            ("list offset", 24, &max, "the function list (18446744073709551615 + "),
            ("list size", 32, &max, "reaches beyond the file"),
            ("list size by one", 32, &[bytes[32].wrapping_add(1)], "at byte"),
            ("public offset", 40, &max, "at byte 40: the public metadata (18446744073709551615 + "),
            ("private size", 64, &max, "at byte 56: the private metadata"),
            ("bitcode on the header", 72, &0u64.to_le_bytes(), "overlaps the header"),
            ("bitcode on the list", 72, &90u64.to_le_bytes(), "overlaps the function list"),
            (
                "group size zero",
                92,
                &[0, 0, 0, 0],
                "at byte 92: a function's group (92 + 0 bytes) reaches beyond the function list",
            ),
            ("group size huge", 92, &[0xFF; 4], "(92 + 4294967295 bytes) reaches beyond the function list"),
            ("name without zero", name + 19, b"x", "a function's name is not zero-terminated UTF-8 text"),
            ("name with zero inside", name + 3, &[0], "a function's name is not zero-terminated UTF-8 text"),
            ("name not UTF-8", name + 3, &[0xFF], "a function's name is not zero-terminated UTF-8 text"),
            ("hash renamed", data_of(&bytes, b"HASH", 0) - 6, b"HUSH", "a function has no HASH tag"),
            ("tag twice", data_of(&bytes, b"RFLT", 0) - 6, b"MDSZ", "tag MDSZ stands twice in one group"),
            ("kind longer", data_of(&bytes, b"TYPE", 0) - 2, &[2], "tag TYPE has 2 bytes, 1 expected"),
            (
                "bitcode size",
                size,
                &max,
                "a function's bitcode (0 + 18446744073709551615 bytes) reaches beyond the bitcode",
            ),
            ("bitcode offset", offsets + 16, &max, "a function's bitcode (18446744073709551615 + "),
            ("bitcode shifted", offsets + 16, &1u64.to_le_bytes(), "another's overlaps a function's bitcode"),
            (
                "metadata offset",
                offsets,
                &max,
                "a function's metadata (18446744073709551615 + 8 bytes) reaches beyond the public metadata",
            ),
            (
                "reflection offset",
                reflection,
                &max,
                "a function's reflection (18446744073709551615 + 0 bytes) reaches beyond the reflection list",
            ),
            ("reflection list", list, &max, "the reflection list (18446744073709551615 + "),
            ("reflection in the code", list, &(bytes.len() as u64 / 2).to_le_bytes(), "overlaps"),
        ];
        for (what, at, patch, wanted) in cases {
            let mut hostile = bytes.clone();
            hostile[*at..at + patch.len()].copy_from_slice(patch);
            let error = Library::parse(&hostile).expect_err(what);
            assert!(error.to_string().contains(wanted), "{what}: {error}");
            assert!(!error.hint().is_empty());
        }
    }

    #[test]
    fn two_functions_with_one_name_are_an_error() {
        let bytes = SyntheticLibrary::of(&["same", "same"]).build();
        assert!(
            matches!(Library::parse(&bytes).unwrap_err().fault, Fault::DuplicateName(name) if name == "same")
        );
    }

    #[test]
    fn functions_may_share_one_piece_of_code() {
        let mut bytes = two_kernels();
        for code in [b"OFFT", b"MDSZ", b"HASH"] {
            let (from, to) = (data_of(&bytes, code, 0), data_of(&bytes, code, 1));
            let length = usize::from(u16::from_le_bytes([bytes[from - 2], bytes[from - 1]]));
            bytes.copy_within(from..from + length, to);
        }
        let library = Library::parse(&bytes).unwrap();
        assert_eq!(library.functions[0].bitcode, library.functions[1].bitcode);
    }

    #[test]
    fn other_kinds_of_file_are_named() {
        let cases: &[(&[u8], &str, &str)] = &[
            (b"PK\x03\x04rest", "zip archive", "wheel"),
            (b"!<arch>\nrest", "static library", "mlx.metallib"),
            (b"version https://example.org/spec", "pointer", "git lfs"),
            (&SyntheticModule::default().build(), "LLVM bitcode", "xcrun metallib"),
            (b"<!DOCTYPE html>", "web page", "mlx.metallib"),
            (b"nonsense", "does not start with MTLB", "mlx.metallib"),
            (b"", "has 0 bytes", "again"),
            (b"MTLB", "has 4 bytes", "again"),
        ];
        for (bytes, wanted, hint) in cases {
            let error = Library::parse(bytes).unwrap_err();
            assert!(error.to_string().contains(wanted), "{error}");
            assert!(error.hint().contains(hint), "{}", error.hint());
        }
    }

    #[test]
    fn versions_are_read_as_people_write_them() {
        assert_eq!("26".parse(), Ok(Version::new(26, 0)));
        assert_eq!("26.2.1".parse(), Ok(Version::new(26, 2)));
        for wrong in ["", "26.x", "1.2.3.4", "-1", "99999.0"] {
            assert!(wrong.parse::<Version>().is_err(), "{wrong}");
        }
    }
}
