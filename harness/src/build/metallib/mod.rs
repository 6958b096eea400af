//! Answers what a Metal library (`mlx.metallib`) holds, whether it is whole, how it differs from another, and which
//! official release it is. Works on every platform, on the file alone, or beside MLX's kernel sources; runs no Apple tool.
//!
//! # The format, as read here
//! Found by measuring the official libraries; all numbers are little endian, offsets count from the start of the file.
//!
//! | bytes | what |
//! |---|---|
//! | 0..4 | `MTLB` |
//! | 4..6 | platform: 0x8001 is macOS |
//! | 6..8, 8..10 | format version, major and minor: 2.7, 2.8, 2.9 come with macOS 14, 15, 26 |
//! | 10, 11 | library type; OS: 0x81 is macOS |
//! | 12..14, 14..16 | OS floor, major and minor |
//! | 16..24 | size of the file |
//! | 24..88 | four pairs of u64 offset and u64 size: function list, public metadata, private metadata, bitcode |
//!
//! The function list is a u32 count, then one group a function. The list's size in the header leaves the count's four
//! bytes out. A group is a u32 size that includes itself, then tags, then `ENDT`. A tag is four characters, a u16 size
//! and that many bytes. Every function has
//! - `NAME`: zero-terminated text; `TYPE`: one byte, 2 for a kernel;
//! - `HASH`: SHA-256 of the function's bitcode; `MDSZ`: u64 size of the bitcode;
//! - `OFFT`: three u64 offsets, into the public metadata, the private metadata and the bitcode section;
//! - `VERS`: four u16, the version of Apple's intermediate representation (AIR), then of the Metal language (MSL);
//!
//! and usually `RFLT`, a u64 offset into the reflection list. Unknown tags are kept.
//!
//! Behind the function list follow the header's extension tags and one more `ENDT`: `RLST` (u64 offset and u64 size of the
//! reflection list), `UUID` (16 bytes) and, in format 2.9, `HDYN` (offset and size of a dynamic header). The metadata sections hold
//! one group a function, shaped as above. The bitcode of a function is an LLVM module in LLVM's 0x0B17C0DE wrapper; `bitcode`
//! reads who compiled it.

pub mod audit;
pub mod bitcode;
pub mod diff;
pub mod family;
pub(in crate::build) mod file;
pub mod identify;
mod inventory;
pub mod parse;
pub mod sources;
#[doc(hidden)]
pub mod synthetic;

pub use file::{LibraryFile, MetallibError};
pub use inventory::{Toolchain, hash_mismatches, list, toolchains};
pub use parse::Library;
