//! Which exported symbols of static archives collide: a program that links both takes whichever comes first, or does not link
//! at all. Reads archives of ELF, Mach-O and COFF objects; runs no tool.

use std::{
    collections::{BTreeMap, BTreeSet},
    io,
    path::{Path, PathBuf},
};

use object::{
    Object, ObjectSection as _, ObjectSymbol, SectionKind, SymbolFlags, SymbolKind, elf,
    read::{SymbolSection, archive::ArchiveFile},
};
use serde::Serialize;

use super::metallib::file::map;
use crate::tools::file;

/// What archives begin with.
const MAGIC: &[u8] = b"!<arch>\n";

/// The only name in an object that GCC left to be compiled at link time; what it exports is not in its symbol table.
const LEFT_TO_THE_LINKER: &str = "__gnu_lto_slim";

/// A symbol that an archive exports.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Strength {
    /// May be defined once: two of them do not link, or one silently serves both callers.
    Strong,
    /// Meant to be defined many times, as inline functions and templates of C++ are.
    Weak,
}

/// The exported symbols of one archive.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Exports {
    /// Each symbol with the members that define it, and how.
    pub symbols: BTreeMap<String, Definition>,
    /// How many members the archive has.
    pub members: usize,
    /// Members that are no sound objects, such as LLVM bitcode or damaged ones, and the archive's own index where it names what
    /// no member shows: what they export is not, or not all, known.
    pub unread: Vec<String>,
}

/// Where a symbol is defined.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Definition {
    /// Whether any of the definitions is strong.
    pub strength: Strength,
    /// The members.
    pub members: BTreeSet<String>,
}

/// A symbol that both archives export.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Collision {
    /// The symbol, as the linker sees it.
    pub symbol: String,
    /// Strong where both define it strongly; a weak definition gives way.
    pub strength: Strength,
    /// The first archive's members that define it.
    pub first: Vec<String>,
    /// The second archive's.
    pub second: Vec<String>,
}

/// Why an archive cannot be read.
#[derive(Debug, thiserror::Error)]
pub enum SymbolsError {
    /// The file cannot be read.
    #[error("cannot read `{}`", .path.display())]
    Io {
        /// The file.
        path: PathBuf,
        /// What the system said.
        #[source]
        source: io::Error,
    },
    /// It is no archive.
    #[error("`{}` is not a static archive", .path.display())]
    NoArchive {
        /// The file.
        path: PathBuf,
        /// What is wrong.
        #[source]
        source: object::Error,
    },
    /// It begins as an archive does and goes on otherwise.
    #[error("static archive `{}` is damaged", .path.display())]
    Damaged {
        /// The file.
        path: PathBuf,
        /// What is wrong.
        #[source]
        source: object::Error,
    },
    /// A thin archive, which only names the files that its members are.
    #[error("static archive `{}` is a thin one: its members are other files", .path.display())]
    Thin {
        /// The file.
        path: PathBuf,
    },
    /// An archive without members: that nothing in it collides says nothing.
    #[error("static archive `{}` has no members", .path.display())]
    NoMembers {
        /// The file.
        path: PathBuf,
    },
}

impl SymbolsError {
    /// What to try.
    pub fn hint(&self) -> &'static str {
        match self {
            Self::Io { source, .. } => match file::refusal(source) {
                Some(refused) => refused.hint(),
                None => "name an archive such as `libmlx.a`",
            },
            Self::NoArchive { .. } => {
                "an archive begins with `!<arch>`; for a shared library there is nothing to check, and of a universal one \
                 `lipo -thin` takes an architecture out"
            }
            Self::Thin { .. } => "make a whole one: `ar rcs WHOLE.a` with the files that `ar t` names",
            Self::Damaged { .. } | Self::NoMembers { .. } => {
                "was it copied whole, or its build interrupted? make it anew; `ar t FILE` lists what is in it"
            }
        }
    }
}

/// Reads the exported symbols of an archive.
///
/// # Errors
/// When the file cannot be read or is no archive. A member that is no object is named in the result.
pub fn exports(path: &Path) -> Result<Exports, SymbolsError> {
    let failed = |source| SymbolsError::Io { path: path.to_owned(), source };
    let file = file::open(path).map_err(failed)?;
    if file.metadata().map_err(failed)?.len() == 0 {
        return Err(failed(io::Error::new(io::ErrorKind::UnexpectedEof, "the file is empty")));
    }
    let map = map(&file).map_err(failed)?;
    let path = path.to_owned();
    if map.starts_with(b"!<thin>\n") {
        return Err(SymbolsError::Thin { path });
    }
    match exports_of(&map) {
        Ok(exports) if exports.members == 0 => Err(SymbolsError::NoMembers { path }),
        Ok(exports) => Ok(exports),
        Err(source) if map.starts_with(MAGIC) => Err(SymbolsError::Damaged { path, source }),
        Err(source) => Err(SymbolsError::NoArchive { path, source }),
    }
}

/// The exported symbols of an archive's bytes.
///
/// # Errors
/// When they are no archive.
pub fn exports_of(bytes: &[u8]) -> Result<Exports, object::Error> {
    let archive = ArchiveFile::parse(bytes)?;
    let mut exports = Exports::default();
    for member in archive.members() {
        let member = member?;
        exports.members += 1;
        let name = String::from_utf8_lossy(member.name()).into_owned();
        let Ok(object) = object::File::parse(member.data(bytes)?) else {
            exports.unread.push(name);
            continue;
        };
        let mut whole = object.symbol_table().is_some() || is_empty(&object);
        for symbol in object.symbols() {
            let Some(strength) = strength_of(&symbol) else { continue };
            match symbol.name() {
                Ok(LEFT_TO_THE_LINKER) | Err(_) => whole = false,
                Ok(text) => exports.add(text, strength, &name),
            }
        }
        if !whole {
            exports.unread.push(name);
        }
    }
    let indexed: Vec<_> = archive.symbols()?.into_iter().flatten().collect::<Result<_, _>>()?;
    let indexed = indexed.iter().map(|symbol| String::from_utf8_lossy(symbol.name()).into_owned());
    let hidden: BTreeSet<String> = indexed.filter(|name| !exports.symbols.contains_key(name)).collect();
    if let Some(first) = hidden.first() {
        let more = match hidden.len() - 1 {
            0 => String::new(),
            more => format!(" and {more} more"),
        };
        exports.unread.push(format!("index: {first}{more}, which no member shows"));
    }
    Ok(exports)
}

impl Exports {
    fn add(&mut self, symbol: &str, strength: Strength, member: &str) {
        let definition = self
            .symbols
            .entry(symbol.to_owned())
            .or_insert_with(|| Definition { strength, members: BTreeSet::new() });
        definition.strength = definition.strength.min(strength);
        definition.members.insert(member.to_owned());
    }
}

/// Whether an object has no code and no data: compilers leave such ones of sources that configure to nothing, without a symbol
/// table.
fn is_empty<'data>(object: &impl Object<'data>) -> bool {
    let mut sections = object.sections().peekable();
    let is_content = |kind| {
        !matches!(
            kind,
            SectionKind::Metadata | SectionKind::Note | SectionKind::Other | SectionKind::OtherString
        )
    };
    sections.peek().is_some() && !sections.any(|section| section.size() > 0 && is_content(section.kind()))
}

/// How a symbol is exported; `None` where it is not, or not defined here. Thread-local, indirect and absolute ones are as any
/// other; those that are merged where there are several (C's tentative definitions, GNU's unique ones) count as weak.
fn strength_of<'data>(symbol: &impl ObjectSymbol<'data>) -> Option<Strength> {
    let is_defined = symbol.is_common()
        || matches!(
            symbol.section(),
            SymbolSection::Section(_) | SymbolSection::Absolute | SymbolSection::Common
        );
    if !symbol.is_global() || !is_defined || matches!(symbol.kind(), SymbolKind::File | SymbolKind::Section) {
        return None;
    }
    let is_unique = match symbol.flags() {
        SymbolFlags::Elf { st_info, .. } => st_info.st_bind() == elf::STB_GNU_UNIQUE,
        _ => false,
    };
    let is_merged = symbol.is_weak() || symbol.is_common() || is_unique;
    Some(if is_merged { Strength::Weak } else { Strength::Strong })
}

/// The symbols that both export, strong ones first, then by name.
pub fn collisions(first: &Exports, second: &Exports) -> Vec<Collision> {
    let list = |definition: &Definition| definition.members.iter().cloned().collect();
    let mut found: Vec<Collision> = first
        .symbols
        .iter()
        .filter_map(|(symbol, one)| {
            let other = second.symbols.get(symbol)?;
            Some(Collision {
                symbol: symbol.clone(),
                strength: one.strength.max(other.strength),
                first: list(one),
                second: list(other),
            })
        })
        .collect();
    found.sort_by(|a, b| a.strength.cmp(&b.strength).then_with(|| a.symbol.cmp(&b.symbol)));
    found
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;
    use crate::tools::process::Invocation;

    /// Compiles a C file into an archive with one member.
    fn archive(dir: &Path, name: &str, code: &str) -> PathBuf {
        let (source, member) = (dir.join(format!("{name}.c")), dir.join(format!("{name}.o")));
        let library = dir.join(format!("lib{name}.a"));
        fs::write(&source, code).unwrap();
        Invocation::new("cc").args(["-c", "-o"]).arg(&member).arg(&source).run_ok().unwrap();
        Invocation::new("ar").arg("rcs").arg(&library).arg(&member).run_ok().unwrap();
        library
    }

    #[test]
    fn a_planted_collision_is_found_and_static_and_undefined_names_are_none() {
        let dir = tempfile::tempdir().unwrap();
        let one = archive(
            dir.path(),
            "one",
            "int elsewhere(void); static int hidden(void) { return 1; }\n\
             __attribute__((weak)) int shared_inline(void) { return 0; }\n\
             int get_key(void) { return hidden() + elsewhere(); }\nint only_one(void) { return 2; }\n",
        );
        let other = archive(
            dir.path(),
            "other",
            "static int hidden(void) { return 1; }\n\
             __attribute__((weak)) int shared_inline(void) { return 0; }\n\
             int get_key(int x) { return x + hidden(); }\nint elsewhere(void) { return 3; }\n",
        );
        let (one, other) = (exports(&one).unwrap(), exports(&other).unwrap());
        let found = collisions(&one, &other);
        let told: Vec<_> = found
            .iter()
            .map(|c| (c.symbol.trim_start_matches('_'), c.strength, c.second[0].as_str()))
            .collect();
        assert_eq!(
            told,
            [("get_key", Strength::Strong, "other.o"), ("shared_inline", Strength::Weak, "other.o")]
        );
        let swapped = collisions(&other, &one);
        assert_eq!(
            swapped.iter().map(|c| &c.symbol).collect::<Vec<_>>(),
            found.iter().map(|c| &c.symbol).collect::<Vec<_>>()
        );
        assert!(collisions(&one, &Exports::default()).is_empty());
    }

    #[cfg(target_os = "linux")]
    #[test]
    fn every_kind_of_definition_counts() {
        let dir = tempfile::tempdir().unwrap();
        let code = "__thread int per_thread = 1;\n\
             static int chosen(void) { return 1; }\n\
             static void *choose(void) { return (void *)chosen; }\n\
             int indirect(void) __attribute__((ifunc(\"choose\")));\n\
             __asm__(\".globl fixed\\n.set fixed, 42\\n.comm tentative,4,4\\n\");\n";
        let (one, other) = (archive(dir.path(), "one", code), archive(dir.path(), "other", code));
        let (one, other) = (exports(&one).unwrap(), exports(&other).unwrap());
        let found: Vec<_> = collisions(&one, &other).into_iter().map(|c| (c.symbol, c.strength)).collect();
        let told: Vec<_> = found.iter().map(|(symbol, strength)| (symbol.as_str(), *strength)).collect();
        assert_eq!(
            told,
            [
                ("fixed", Strength::Strong),
                ("indirect", Strength::Strong),
                ("per_thread", Strength::Strong),
                ("tentative", Strength::Weak)
            ]
        );
        assert!(one.unread.is_empty(), "{:?}", one.unread);
    }

    #[cfg(target_os = "linux")]
    #[test]
    fn a_member_whose_symbols_cannot_be_read_is_told() {
        let dir = tempfile::tempdir().unwrap();
        let library = archive(dir.path(), "one", "int f(void) { return 1; }\nint g(void) { return 2; }\n");
        let whole = fs::read(&library).unwrap();
        assert!(exports_of(&whole).unwrap().unread.is_empty());
        let object = whole.windows(4).position(|w| w == b"\x7fELF").unwrap();
        let mut without_sections = whole.clone();
        without_sections[object + 0x28..object + 0x30].fill(0);
        without_sections[object + 0x3c..object + 0x40].fill(0);
        let unread = exports_of(&without_sections).unwrap().unread;
        assert_eq!(unread, ["one.o", "index: f and 1 more, which no member shows"]);
        let nothing = dir.path().join("nothing.o");
        Invocation::new("as").args(["-o"]).arg(&nothing).arg("/dev/null").run_ok().unwrap();
        Invocation::new("ar").arg("rs").arg(&library).arg(&nothing).run_ok().unwrap();
        assert!(exports(&library).unwrap().unread.is_empty(), "an object of nothing hides nothing");
        let left = archive(dir.path(), "left", "char __gnu_lto_slim;\n");
        assert_eq!(exports(&left).unwrap().unread[0], "left.o");
        let mut thin = whole;
        thin[..8].copy_from_slice(b"!<thin>\n");
        fs::write(&library, thin).unwrap();
        assert!(matches!(exports(&library).unwrap_err(), SymbolsError::Thin { .. }));
    }

    #[test]
    fn bad_files_are_named_and_foreign_members_are_told() {
        let dir = tempfile::tempdir().unwrap();
        let write = |name: &str, bytes: &[u8]| {
            let path = dir.path().join(name);
            fs::write(&path, bytes).unwrap();
            path
        };
        let error = exports(&write("empty.a", b"")).unwrap_err();
        assert!(error.to_string().contains("empty.a"), "{error}");
        let error = exports(&write("text.a", b"int main(void);\n")).unwrap_err();
        assert!(matches!(error, SymbolsError::NoArchive { .. }), "{error}");
        let error = exports(&write("none.a", b"!<arch>\n")).unwrap_err();
        assert!(
            matches!(error, SymbolsError::NoMembers { .. }),
            "that nothing collides would say nothing: {error}"
        );
        let mut foreign = b"!<arch>\n".to_vec();
        foreign
            .extend(format!("{:<16}{:<12}{:<6}{:<6}{:<8}{:<10}`\n", "notes.txt/", 0, 0, 0, 644, 6).bytes());
        foreign.extend(b"hello\n");
        assert_eq!(exports_of(&foreign).unwrap().unread, ["notes.txt"]);
        let whole = fs::read(archive(dir.path(), "cut", "int f(void) { return 1; }\n")).unwrap();
        for length in 0..whole.len() {
            // Any answer will do, as long as there is one.
            let _ = exports_of(&whole[..length]);
        }
        let cut = write("half.a", &whole[..whole.len() / 2]);
        let error = exports(&cut).unwrap_err();
        assert!(matches!(error, SymbolsError::Damaged { .. }), "{error}");
        assert!(error.hint().contains("copied whole"), "{error}");
    }
}
