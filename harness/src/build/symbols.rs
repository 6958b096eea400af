//! Which exported symbols of static archives collide: a program that links both takes whichever comes first, or does not link
//! at all. Reads archives of ELF, Mach-O and COFF objects; runs no tool.

use std::{
    collections::{BTreeMap, BTreeSet},
    io,
    path::{Path, PathBuf},
};

use object::{Object as _, ObjectSymbol as _, SymbolKind, read::archive::ArchiveFile};
use serde::Serialize;

use super::metallib::file::map;
use crate::tools::file;

/// What archives begin with: those with members inside, and thin ones, which only name files.
const MAGIC: [&[u8]; 2] = [b"!<arch>\n", b"!<thin>\n"];

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
    /// Members that are no sound objects, such as LLVM bitcode or damaged ones: what they export is not, or not all, known.
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
                "an archive begins with `!<arch>`; for a shared library there is nothing to check"
            }
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
    match exports_of(&map) {
        Ok(exports) if exports.members == 0 => Err(SymbolsError::NoMembers { path }),
        Ok(exports) => Ok(exports),
        Err(source) if MAGIC.iter().any(|magic| map.starts_with(magic)) => {
            Err(SymbolsError::Damaged { path, source })
        }
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
        let mut nameless = false;
        for symbol in object.symbols().filter(|symbol| symbol.is_global() && symbol.is_definition()) {
            if matches!(symbol.kind(), SymbolKind::File | SymbolKind::Section) {
                continue;
            }
            let Ok(text) = symbol.name() else {
                nameless = true;
                continue;
            };
            let strength = if symbol.is_weak() { Strength::Weak } else { Strength::Strong };
            let definition = exports
                .symbols
                .entry(text.to_owned())
                .or_insert_with(|| Definition { strength, members: BTreeSet::new() });
            definition.strength = definition.strength.min(strength);
            definition.members.insert(name.clone());
        }
        if nameless {
            exports.unread.push(name);
        }
    }
    Ok(exports)
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
