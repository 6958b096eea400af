//! Generated source files as values that can be changed by name, so that one change can be made in several places of
//! history, whatever stands around it.

use std::{collections::BTreeMap, rc::Rc};

use crate::words::{Language, Random};

/// A file's number, which a move does not change.
pub(crate) type FileId = usize;
/// A function's number, unique over all files.
pub(crate) type FunctionId = usize;

/// A function or, in a header, a declaration.
#[derive(Debug, Clone)]
pub(crate) struct Function {
    pub(crate) id: FunctionId,
    pub(crate) name: String,
    /// One line above the head.
    pub(crate) doc: String,
    pub(crate) signature: String,
    /// Empty in a header.
    pub(crate) body: Vec<String>,
}

/// A file.
#[derive(Debug, Clone)]
pub(crate) struct File {
    pub(crate) path: String,
    pub(crate) language: Language,
    pub(crate) functions: Vec<Function>,
}

/// One change to one place.
#[derive(Debug, Clone)]
pub(crate) enum Op {
    /// Adds a function after another, or at the file's end.
    Add { file: FileId, after: FunctionId, function: Function },
    /// Puts lines into a function, behind a line.
    Insert { file: FileId, function: FunctionId, after: String, lines: Vec<String> },
    /// Replaces a line of a function; by nothing, to delete it.
    Replace { file: FileId, function: FunctionId, old: String, new: Vec<String> },
    /// Gives a function another line above it.
    Document { file: FileId, function: FunctionId, doc: String },
    /// Removes a function.
    Remove { file: FileId, function: FunctionId },
    /// Adds a file, whose number is the next.
    AddFile(File),
    /// Moves a file.
    Move { file: FileId, path: String },
}

/// All files of a state of history.
#[derive(Debug, Clone, Default)]
pub(crate) struct Sources {
    pub(crate) files: BTreeMap<FileId, Rc<File>>,
}

impl Function {
    pub(crate) fn random(random: &mut Random, language: Language, id: FunctionId, statements: usize) -> Self {
        let name = random.name();
        let signature = random.signature(language, &name);
        let body = match language {
            Language::Header => Vec::new(),
            _ => random.body(language, &name, statements),
        };
        let doc = format!("{} {}.", if language == Language::Rust { "///" } else { "//" }, random.phrase());
        Self { id, name, doc, signature, body }
    }

    /// Lines that stand only once in the body and say something.
    pub(crate) fn handles(&self) -> Vec<&String> {
        let once = |line: &String| self.body.iter().filter(|other| *other == line).count() == 1;
        let last = self.body.len().saturating_sub(1);
        self.body[..last].iter().filter(|line| line.trim().len() > 12 && once(line)).collect()
    }
}

impl File {
    pub(crate) fn text(&self) -> String {
        let mut text = match self.language {
            Language::Cpp => {
                "#include <vector>\n\n#include \"mlx/array.h\"\n\nnamespace mlx::core {\n\n".to_owned()
            }
            Language::Header => {
                "#pragma once\n\n#include \"mlx/array.h\"\n\nnamespace mlx::core {\n\n".to_owned()
            }
            Language::Rust => "use crate::{Array, error::Exception};\n\n".to_owned(),
        };
        for function in &self.functions {
            text += &format!("{}\n{}", function.doc, function.signature);
            match self.language {
                Language::Header => text += ";\n\n",
                _ => text += &format!(" {{\n{}\n}}\n\n", function.body.join("\n")),
            }
        }
        if self.language != Language::Rust {
            text += "} // namespace mlx::core\n";
        }
        text
    }
}

impl Sources {
    /// Makes changes; gives the paths that they touch, old ones of moved files included.
    pub(crate) fn apply(&mut self, ops: &[Op]) -> Vec<String> {
        let mut touched = Vec::new();
        for op in ops {
            let id = match op {
                Op::AddFile(file) => {
                    let id = self.files.keys().next_back().map_or(0, |last| last + 1);
                    self.files.insert(id, Rc::new(file.clone()));
                    id
                }
                Op::Add { file, .. }
                | Op::Insert { file, .. }
                | Op::Replace { file, .. }
                | Op::Document { file, .. }
                | Op::Remove { file, .. }
                | Op::Move { file, .. } => *file,
            };
            let file = Rc::make_mut(self.files.get_mut(&id).expect("files stay"));
            touched.push(file.path.clone());
            file.apply(op);
            touched.push(file.path.clone());
        }
        touched.sort();
        touched.dedup();
        touched
    }

    /// The text at a path.
    pub(crate) fn text(&self, path: &str) -> Option<String> {
        self.files.values().find(|file| file.path == path).map(|file| file.text())
    }
}

impl File {
    fn apply(&mut self, op: &Op) {
        let place = |functions: &[Function], id: FunctionId| functions.iter().position(|f| f.id == id);
        match op {
            Op::AddFile(_) => {}
            Op::Move { path, .. } => self.path.clone_from(path),
            Op::Add { after, function, .. } => {
                let at = place(&self.functions, *after).map_or(self.functions.len(), |at| at + 1);
                self.functions.insert(at, function.clone());
            }
            Op::Remove { function, .. } => self.functions.retain(|f| f.id != *function),
            Op::Document { function, doc, .. } => {
                let at = place(&self.functions, *function).expect("the function is there");
                self.functions[at].doc.clone_from(doc);
            }
            Op::Insert { function, after, lines, .. } => {
                let at = place(&self.functions, *function).expect("the function is there");
                let body = &mut self.functions[at].body;
                let line = body.iter().position(|line| line == after).expect("the line is there");
                body.splice(line + 1..line + 1, lines.iter().cloned());
            }
            Op::Replace { function, old, new, .. } => {
                let at = place(&self.functions, *function).expect("the function is there");
                let body = &mut self.functions[at].body;
                let line = body.iter().position(|line| line == old).expect("the line is there");
                body.splice(line..=line, new.iter().cloned());
            }
        }
    }
}
