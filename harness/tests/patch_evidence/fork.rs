//! A fork and its upstream, made from a seed, with the truth about every patch: whether upstream took it, in which
//! commits and in which form.

use std::{collections::BTreeMap, collections::BTreeSet, fs, path::Path};

use harness::tools::git::{
    ids::{CommitId, TreeId},
    store::{Entry, MODE_FILE, Person, Store},
    tree_path::TreePath,
};

use crate::{
    sources::{File, FileId, Function, FunctionId, Op, Sources},
    words::{Language, Random},
};

/// How large the repositories become.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Size {
    pub(crate) files: usize,
    pub(crate) upstream_commits: usize,
}

/// How upstream took a patch.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Form {
    /// The same change at the same place.
    Verbatim,
    /// The same lines, after upstream had changed what stands beside them.
    Shifted,
    /// Together with other patches and other work in one commit.
    Squashed,
    /// In several commits.
    Split,
    /// Some of it.
    Partly,
    /// In files that upstream had moved.
    Moved,
    /// Written anew under names that differ in case, in another place of the file.
    Respelled,
}

/// What a patch that is the fork's own does.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Own {
    /// Adds functions and calls them.
    Feature,
    /// Changes statements of upstream's.
    Edit,
    /// Deletes statements of upstream's.
    Deletion,
    /// Changes a function that a patch added which upstream has taken.
    OnBackport,
    /// Corrects the fork's own patch before it.
    Fixup,
    /// Changes a line that upstream has changed, too, to something else.
    Collision,
    /// Adds a function of which upstream has a namesake no, but half of the statements under another name.
    NearMiss,
}

/// The truth about a patch.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Kind {
    Own(Own),
    Backport(Form),
}

/// A patch with the truth about it.
#[derive(Debug, Clone)]
pub(crate) struct Expected {
    pub(crate) subject: String,
    pub(crate) kind: Kind,
    /// The upstream commits that took it.
    pub(crate) landed_in: Vec<CommitId>,
}

impl Expected {
    pub(crate) fn told(&self) -> String {
        format!("`{}` ({:?}, in {:?})", self.subject, self.kind, self.landed_in)
    }
}

/// What was made, besides the objects.
#[derive(Debug)]
pub(crate) struct SyntheticFork {
    /// In the stack's order.
    pub(crate) patches: Vec<Expected>,
}

/// How many of the forty patches upstream took in each form; the rest is the fork's own.
const BACKPORTS: [(Form, usize); 7] = [
    (Form::Verbatim, 3),
    (Form::Shifted, 3),
    (Form::Squashed, 3),
    (Form::Split, 2),
    (Form::Partly, 1),
    (Form::Moved, 1),
    (Form::Respelled, 1),
];
const OWN: [(Own, usize); 7] = [
    (Own::Feature, 10),
    (Own::Edit, 6),
    (Own::Deletion, 2),
    (Own::OnBackport, 2),
    (Own::Fixup, 2),
    (Own::Collision, 2),
    (Own::NearMiss, 2),
];
/// The subject of the commit that takes several patches.
const SQUASHED: &str = "Several improvements to kernels and caches (#8888)";
const FOLDERS: [&str; 8] = [
    "mlx/backend/common",
    "mlx/backend/cpu",
    "mlx/backend/metal",
    "mlx/backend/cuda",
    "mlx/distributed",
    "mlx/fast",
    "mlx/io",
    "mlx/linalg",
];

struct Change {
    subject: String,
    ops: Vec<Op>,
}

/// A commit of upstream's that is more than everyday work.
struct Planned {
    subject: String,
    ops: Vec<Op>,
    /// The backports that it takes, by their places in the list of them.
    takes: Vec<usize>,
}

/// A line of history while it grows.
struct Line {
    sources: Sources,
    tree: TreeId,
    head: CommitId,
    commits: i64,
}

struct Maker<'s> {
    random: Random,
    store: &'s Store,
    /// Functions that everyday work leaves alone, with what stands beside them.
    reserved: BTreeSet<FunctionId>,
    functions: usize,
    base_files: usize,
}

/// Makes a fork in the bare repository `repository`, with the branches `main` and `fork`.
pub(crate) fn make(repository: &Path, seed: u64, size: Size) -> SyntheticFork {
    let store = Store::open(repository, &[]).expect("a fresh folder becomes a repository");
    let mut maker = Maker {
        random: Random::new(seed),
        store: &store,
        reserved: BTreeSet::new(),
        functions: 0,
        base_files: size.files,
    };
    let base = maker.base(size.files);
    let backports: Vec<(Form, Change)> = BACKPORTS
        .iter()
        .flat_map(|&(form, count)| std::iter::repeat_n(form, count))
        .map(|form| (form, maker.backport(&base.sources, form)))
        .collect();
    let own = maker.own_patches(&base.sources, &backports);
    let planned = maker.plan(&base.sources, &backports, &own, size.upstream_commits);
    let (upstream, landed) = maker.upstream(&base, planned, size.upstream_commits, backports.len());
    let (fork, patches) = maker.fork(&base, backports, own, &landed);
    for (name, commit) in [("heads/main", upstream.head), ("heads/fork", fork.head), ("tags/v1.0", base.head)]
    {
        fs::create_dir_all(repository.join("refs/tags")).expect("the repository can be written");
        fs::write(repository.join("refs").join(name), format!("{commit}\n"))
            .expect("the repository can be written");
    }
    SyntheticFork { patches }
}

impl Maker<'_> {
    fn base(&mut self, files: usize) -> Line {
        let mut sources = Sources::default();
        let ops: Vec<Op> = (0..files).map(|number| Op::AddFile(self.file(number))).collect();
        let touched = sources.apply(&ops);
        let tree = self.store.empty_tree().expect("objects can be written");
        let nothing = "0".repeat(40).parse().expect("an id");
        let mut line = Line { sources, tree, head: nothing, commits: 0 };
        line.tree = self.written(&line, &touched);
        line.head =
            self.store.write_commit(line.tree, &[], &person(0), "base\n").expect("objects can be written");
        line
    }

    fn file(&mut self, number: usize) -> File {
        let language = [Language::Cpp, Language::Cpp, Language::Header, Language::Rust][number % 4];
        let (name, folder) = (self.random.name(), self.random.pick(&FOLDERS));
        let path = match language {
            Language::Cpp => format!("{folder}/{name}.cpp"),
            Language::Header => format!("{folder}/{name}.h"),
            Language::Rust => format!("src/{}/{name}.rs", folder.rsplit('/').next().expect("a part")),
        };
        let count = self.random.between(8, 20);
        let functions = (0..count).map(|_| self.function(language)).collect();
        File { path, language, functions }
    }

    fn function(&mut self, language: Language) -> Function {
        self.functions += 1;
        let statements = self.random.between(4, 14);
        Function::random(&mut self.random, language, self.functions, statements)
    }

    /// A function of a language in `sources` that nobody else has a claim on, nor on what stands beside it.
    fn site(&mut self, sources: &Sources, language: impl Fn(Language) -> bool) -> (FileId, usize) {
        loop {
            let id = self.random.below(self.base_files);
            let file = &sources.files[&id];
            if !language(file.language) || file.functions.len() < 4 {
                continue;
            }
            let at = self.random.below(file.functions.len() - 2) + 1;
            let beside = &file.functions[at - 1..=at + 1];
            if beside.iter().all(|function| !self.reserved.contains(&function.id)) {
                return (id, at);
            }
        }
    }

    /// A site that is from now on left alone.
    fn claimed(&mut self, sources: &Sources, language: impl Fn(Language) -> bool) -> (FileId, Function) {
        let (id, at) = self.site(sources, language);
        let beside = &sources.files[&id].functions[at - 1..=at + 1];
        self.reserved.extend(beside.iter().map(|function| function.id));
        (id, beside[1].clone())
    }

    /// A claimed function with a line that can be told from all others, and so can the line after it.
    fn claimed_line(&mut self, sources: &Sources) -> (FileId, Function, String) {
        loop {
            let (file, function) = self.claimed(sources, |language| language != Language::Header);
            let handles = function.handles();
            let fit: Vec<&String> = handles
                .windows(2)
                .filter(|pair| follows(&function, pair[0], pair[1]))
                .map(|pair| pair[0])
                .collect();
            if !fit.is_empty() {
                let line = self.random.pick(&fit).clone();
                return (file, function, line);
            }
        }
    }

    /// A new function, its declaration where it needs one, and calls of it.
    fn feature(&mut self, sources: &Sources) -> Vec<Op> {
        let (file, beside) = self.claimed(sources, |language| language != Language::Header);
        let language = sources.files[&file].language;
        let function = self.function(language);
        let mut ops = vec![Op::Add { file, after: beside.id, function: function.clone() }];
        if language == Language::Cpp {
            let (header, beside) = self.claimed(sources, |language| language == Language::Header);
            let mut declaration = self.function(Language::Header);
            declaration.name.clone_from(&function.name);
            declaration.signature.clone_from(&function.signature);
            ops.push(Op::Add { file: header, after: beside.id, function: declaration });
        }
        for _ in 0..self.random.between(1, 2) {
            let (file, caller, after) = self.claimed_line(sources);
            let (out, argument) = (self.random.local(), self.random.local());
            let name = &function.name;
            let mut lines = match sources.files[&file].language {
                Language::Rust => {
                    vec![format!("    let {out} = {name}(&{argument}, {})?;", self.random.below(32))]
                }
                _ => vec![format!("  auto {out} = {name}({argument}, {}, s);", self.random.below(32))],
            };
            lines.extend(self.random.statement(sources.files[&file].language, &caller.name));
            ops.push(Op::Insert { file, function: caller.id, after, lines });
        }
        ops
    }

    /// Other statements in place of upstream's.
    fn edit(&mut self, sources: &Sources) -> Vec<Op> {
        let count = self.random.between(2, 4);
        (0..count)
            .map(|_| {
                let (file, function, old) = self.claimed_line(sources);
                let language = sources.files[&file].language;
                let mut new = self.random.statement(language, &function.name);
                if self.random.chance(50) {
                    new.extend(self.random.statement(language, &function.name));
                }
                Op::Replace { file, function: function.id, old, new }
            })
            .collect()
    }

    fn backport(&mut self, sources: &Sources, form: Form) -> Change {
        let subject = sentence(&self.random.phrase());
        let mut ops = self.feature(sources);
        match form {
            Form::Respelled => {
                for op in &mut ops {
                    spell(op, Spelling::Camel);
                }
            }
            Form::Verbatim | Form::Shifted if self.random.chance(40) => ops = self.edit(sources),
            _ => ops.extend(self.edit(sources)),
        }
        Change { subject, ops }
    }

    fn own_patches(&mut self, sources: &Sources, backports: &[(Form, Change)]) -> Vec<(Own, Change)> {
        let mut own: Vec<(Own, Change)> = Vec::new();
        for (kind, count) in OWN {
            for nth in 0..count {
                let ops = match kind {
                    Own::Feature | Own::NearMiss => self.feature(sources),
                    Own::Edit => self.edit(sources),
                    Own::Collision => self.edit(sources)[..1].to_vec(),
                    Own::Deletion => (0..6)
                        .map(|_| {
                            let (file, function, old) = self.claimed_line(sources);
                            Op::Replace { file, function: function.id, old, new: Vec::new() }
                        })
                        .collect(),
                    Own::OnBackport => {
                        self.correction(sources, &backports[nth].1.ops, &backports[3 + nth].1.ops)
                    }
                    Own::Fixup => self.correction(sources, &own[nth].1.ops, &own[nth].1.ops),
                };
                own.push((kind, Change { subject: sentence(&self.random.phrase()), ops }));
            }
        }
        own
    }

    /// Changes lines that one of two changes adds, the first of them that adds a function.
    fn correction(&mut self, sources: &Sources, first: &[Op], second: &[Op]) -> Vec<Op> {
        let added = first.iter().chain(second).find_map(|op| match op {
            Op::Add { file, function, .. } if function.handles().len() > 1 => Some((*file, function)),
            _ => None,
        });
        let Some((file, function)) = added else {
            // Both only edit: put lines behind one that the first added.
            let edited = first.iter().find_map(|op| match op {
                Op::Replace { file, function, new, .. } => Some((*file, *function, new.last()?.clone())),
                _ => None,
            });
            let (file, function, after) = edited.expect("a change adds or replaces something");
            let lines = self.random.statement(sources.files[&file].language, "correction");
            return vec![Op::Insert { file, function, after, lines }];
        };
        let old = function.handles()[0].clone();
        let new = self.random.statement(sources.files[&file].language, &function.name);
        vec![Op::Replace { file, function: function.id, old, new }]
    }

    /// Upstream's commits that take patches, prepare for them, or come close to one, by their places in history.
    fn plan(
        &mut self,
        sources: &Sources,
        backports: &[(Form, Change)],
        own: &[(Own, Change)],
        commits: usize,
    ) -> BTreeMap<usize, Vec<Planned>> {
        let mut plan: BTreeMap<usize, Vec<Planned>> = BTreeMap::new();
        let squash_at = self.random.between(commits / 3, commits - 20);
        for (index, (form, change)) in backports.iter().enumerate() {
            let at = self.random.between(commits / 10, commits - commits / 5);
            let number = self.random.between(1000, 9999);
            let subject = format!("{} (#{number})", change.subject);
            let ops = change.ops.clone();
            let mut add = |at: usize, subject: &str, ops: Vec<Op>, takes: Vec<usize>| {
                plan.entry(at).or_default().push(Planned { subject: subject.to_owned(), ops, takes });
            };
            match form {
                Form::Verbatim => add(at, &subject, ops, vec![index]),
                Form::Shifted => {
                    let before = ops.iter().filter_map(|op| self.beside(sources, op)).collect();
                    add(at - commits / 20, "Tidy up comments and checks", before, Vec::new());
                    add(at, &subject, ops, vec![index]);
                }
                Form::Squashed => add(squash_at, SQUASHED, ops, vec![index]),
                Form::Split => {
                    let parts = if ops.len() > 4 { 3 } else { 2 };
                    for (part, ops) in ops.chunks(ops.len().div_ceil(parts)).enumerate() {
                        let subject = format!("{subject}, part {}", part + 1);
                        add(at + part * commits / 25, &subject, ops.to_vec(), vec![index]);
                    }
                }
                Form::Partly => {
                    let half = ops[..ops.len().div_ceil(2)].to_vec();
                    add(at, &subject, half, vec![index]);
                }
                Form::Moved => {
                    let files: BTreeSet<FileId> = ops.iter().filter_map(file_of).collect();
                    let moves = files.into_iter().map(|file| {
                        let path = &sources.files[&file].path;
                        let (folder, name) = path.rsplit_once('/').expect("files lie in folders");
                        Op::Move { file, path: format!("{folder}/detail/{name}") }
                    });
                    // After all others, which would else land in files that have moved.
                    add(commits - 8, "Move sources into detail folders", moves.collect(), Vec::new());
                    add(commits - 5, &subject, ops, vec![index]);
                }
                Form::Respelled => {
                    let mut ops = ops;
                    for op in &mut ops {
                        spell(op, Spelling::CamelCapitals);
                        self.rewrite(op);
                    }
                    add(at, "Add another way to do it (#7777)", ops, vec![index]);
                }
            }
        }
        for (kind, change) in own {
            let at = self.random.between(commits / 10, commits - 10);
            let ops: Vec<Op> = match kind {
                Own::Collision => change.ops.iter().map(|op| self.otherwise(op)).collect(),
                Own::NearMiss => change.ops.iter().filter_map(|op| self.nearly(op)).collect(),
                _ => continue,
            };
            let subject = sentence(&self.random.phrase());
            plan.entry(at).or_default().push(Planned { subject, ops, takes: Vec::new() });
        }
        plan
    }

    /// A change just beside the place of another.
    fn beside(&mut self, sources: &Sources, op: &Op) -> Option<Op> {
        match op {
            Op::Add { file, after, .. } => {
                let functions = &sources.files[file].functions;
                let at = functions.iter().position(|function| function.id == *after)?;
                let mark = if sources.files[file].language == Language::Rust { "///" } else { "//" };
                let doc = format!("{mark} {}.", self.random.phrase());
                Some(Op::Document { file: *file, function: functions.get(at + 1)?.id, doc })
            }
            Op::Insert { file, function, after, .. } | Op::Replace { file, function, old: after, .. } => {
                let found = sources.files[file].functions.iter().find(|f| f.id == *function)?;
                let at = found.body.iter().position(|line| line == after)?;
                let old = found.body.get(at + 1)?.clone();
                let new = self.random.statement(sources.files[file].language, &found.name);
                Some(Op::Replace { file: *file, function: *function, old, new })
            }
            _ => None,
        }
    }

    /// The same place, changed to something else.
    fn otherwise(&mut self, op: &Op) -> Op {
        let mut op = op.clone();
        if let Op::Replace { new, .. } = &mut op {
            *new = self.random.statement(Language::Cpp, "otherwise");
        }
        op
    }

    /// An added function under another name with about half of its statements; nothing for other changes.
    fn nearly(&mut self, op: &Op) -> Option<Op> {
        let Op::Add { file, after, function } = op else { return None };
        let mut function = function.clone();
        self.functions += 1;
        let name = self.random.name();
        function.signature = function.signature.replace(&function.name, &name);
        (function.id, function.name) = (self.functions, name);
        self.replace_lines(&mut function, 50);
        Some(Op::Add { file: *file, after: *after, function })
    }

    /// Most statements of an added function, or an inserted line, written anew; the names stay.
    fn rewrite(&mut self, op: &mut Op) {
        match op {
            Op::Add { function, .. } => self.replace_lines(function, 85),
            Op::Insert { lines, .. } => lines.truncate(1),
            _ => {}
        }
    }

    fn replace_lines(&mut self, function: &mut Function, percent: usize) {
        let rust = function.signature.starts_with("pub fn");
        let language = if rust { Language::Rust } else { Language::Cpp };
        let last = function.body.len().saturating_sub(1);
        for line in function.body.iter_mut().take(last) {
            if self.random.chance(percent) {
                *line = self.random.statement(language, &function.name).swap_remove(0);
            }
        }
    }

    fn upstream(
        &mut self,
        base: &Line,
        mut plan: BTreeMap<usize, Vec<Planned>>,
        commits: usize,
        backports: usize,
    ) -> (Line, Vec<Vec<CommitId>>) {
        let mut line = Line { sources: base.sources.clone(), ..*base };
        let mut landed = vec![Vec::new(); backports];
        for at in 0..commits {
            let planned = plan.remove(&at).unwrap_or_default();
            // A commit that squashes several patches was planned one by one.
            let (squashed, mut planned): (Vec<_>, Vec<_>) =
                planned.into_iter().partition(|planned| planned.subject == SQUASHED);
            if !squashed.is_empty() {
                let mut whole = Planned { subject: SQUASHED.to_owned(), ops: Vec::new(), takes: Vec::new() };
                for part in squashed {
                    whole.ops.extend(part.ops);
                    whole.takes.extend(part.takes);
                }
                whole.ops.extend(self.everyday(&line.sources));
                planned.push(whole);
            }
            if planned.is_empty() {
                let ops = self.everyday(&line.sources);
                let fix = if self.random.chance(20) { "Fix: " } else { "" };
                let subject = format!("{fix}{} (#{})", sentence(&self.random.phrase()), 1000 + at);
                self.commit(&mut line, &subject, &ops);
            }
            for Planned { subject, ops, takes } in planned {
                let commit = self.commit(&mut line, &subject, &ops);
                for index in takes {
                    landed[index].push(commit);
                }
            }
        }
        (line, landed)
    }

    /// Work of an ordinary day, somewhere that nobody has a claim on.
    fn everyday(&mut self, sources: &Sources) -> Vec<Op> {
        match self.random.below(10) {
            0..=4 => (0..self.random.between(1, 4)).filter_map(|_| self.everyday_edit(sources)).collect(),
            5 | 6 => {
                let (file, at) = self.site(sources, |_| true);
                let function = self.function(sources.files[&file].language);
                vec![Op::Add { file, after: sources.files[&file].functions[at].id, function }]
            }
            7 => (0..12).filter_map(|_| self.everyday_edit(sources)).collect(),
            8 => {
                let (file, at) = self.site(sources, |_| true);
                vec![Op::Remove { file, function: sources.files[&file].functions[at].id }]
            }
            _ => {
                let number = self.random.below(4);
                vec![Op::AddFile(self.file(number))]
            }
        }
    }

    fn everyday_edit(&mut self, sources: &Sources) -> Option<Op> {
        let (file, at) = self.site(sources, |language| language != Language::Header);
        let function = &sources.files[&file].functions[at];
        let handles = function.handles();
        if handles.is_empty() {
            return None;
        }
        let line = self.random.pick(&handles).clone();
        let lines = self.random.statement(sources.files[&file].language, &function.name);
        let function = function.id;
        Some(match self.random.chance(60) {
            true => Op::Insert { file, function, after: line, lines },
            false => Op::Document {
                file,
                function,
                doc: lines[0].trim().replace(['{', '"'], "").replacen("", "// ", 1),
            },
        })
    }

    fn fork(
        &mut self,
        base: &Line,
        backports: Vec<(Form, Change)>,
        own: Vec<(Own, Change)>,
        landed: &[Vec<CommitId>],
    ) -> (Line, Vec<Expected>) {
        let mut line = Line { sources: base.sources.clone(), ..*base };
        let mut queue: Vec<(Kind, Change, Vec<CommitId>)> = Vec::new();
        for ((form, change), landed) in backports.into_iter().zip(landed) {
            queue.push((Kind::Backport(form), change, landed.clone()));
        }
        // Own patches keep their order, and those that build on a backport come after all of them.
        let mut patches = Vec::new();
        let mut own = own.into_iter().map(|(own, change)| (Kind::Own(own), change, Vec::new())).peekable();
        let mut backports = queue.into_iter().peekable();
        while backports.peek().is_some() || own.peek().is_some() {
            let builds_on = matches!(own.peek(), Some((Kind::Own(Own::OnBackport), ..)));
            let takes_backport =
                backports.peek().is_some() && (own.peek().is_none() || builds_on || self.random.chance(45));
            let next = if takes_backport { backports.next() } else { own.next() };
            let (kind, change, landed_in) = next.expect("one of both has a next");
            self.commit(&mut line, &change.subject, &change.ops);
            patches.push(Expected { subject: change.subject, kind, landed_in });
        }
        (line, patches)
    }

    fn commit(&mut self, line: &mut Line, subject: &str, ops: &[Op]) -> CommitId {
        let touched = line.sources.apply(ops);
        line.tree = self.written(line, &touched);
        line.commits += 1;
        let who = person(line.commits * 7200);
        line.head = self
            .store
            .write_commit(line.tree, &[line.head], &who, &format!("{subject}\n"))
            .expect("objects can be written");
        line.head
    }

    fn written(&self, line: &Line, touched: &[String]) -> TreeId {
        let edits: BTreeMap<TreePath, Option<Entry>> = touched
            .iter()
            .map(|path| {
                let blob =
                    |text: String| self.store.write_blob(text.as_bytes()).expect("objects can be written");
                let entry = line.sources.text(path).map(|text| Entry { id: blob(text), mode: MODE_FILE });
                (TreePath::new(path.as_bytes()).expect("a plain path"), entry)
            })
            .collect();
        self.store.edited_tree(line.tree, &edits).expect("objects can be written")
    }
}

enum Spelling {
    /// `foldRaggedKeyTile`
    Camel,
    /// `foldRaggedKeyTILE`
    CamelCapitals,
}

/// Spells names of added functions, and calls of them, in another way.
fn spell(op: &mut Op, spelling: Spelling) {
    let respelled = |name: &str| match spelling {
        Spelling::Camel => camel(name),
        Spelling::CamelCapitals => {
            let at = name.rfind(char::is_uppercase).unwrap_or_default();
            format!("{}{}", &name[..at], name[at..].to_uppercase())
        }
    };
    match op {
        Op::Add { function, .. } => {
            let name = respelled(&function.name);
            function.signature = function.signature.replace(&function.name, &name);
            function.name = name;
        }
        Op::Insert { lines, .. } => {
            let call = lines[0].clone();
            let Some((before, after)) = call.split_once(" = ") else { return };
            let Some((name, arguments)) = after.split_once('(') else { return };
            lines[0] = format!("{before} = {}({arguments}", respelled(name));
        }
        _ => {}
    }
}

fn camel(name: &str) -> String {
    let mut words = name.split('_');
    let mut out = words.next().unwrap_or_default().to_owned();
    for word in words {
        out += &word[..1].to_uppercase();
        out += &word[1..];
    }
    out
}

fn follows(function: &Function, line: &str, next: &str) -> bool {
    function.body.windows(2).any(|pair| pair[0] == line && pair[1] == next)
}

fn file_of(op: &Op) -> Option<FileId> {
    match op {
        Op::Add { file, .. }
        | Op::Insert { file, .. }
        | Op::Replace { file, .. }
        | Op::Document { file, .. }
        | Op::Remove { file, .. }
        | Op::Move { file, .. } => Some(*file),
        Op::AddFile(_) => None,
    }
}

fn sentence(text: &str) -> String {
    text[..1].to_uppercase() + &text[1..]
}

fn person(later_s: i64) -> Person {
    let names = ["Ada Moss", "Ben Ortiz", "Chidi Rao", "Dana Lind", "Emre Sol"];
    let name = names[usize::try_from(later_s / 7200).unwrap_or_default() % names.len()];
    let email = format!("{}@example.org", name.replace(' ', ".").to_lowercase());
    Person { name: name.to_owned(), email, time_s: 1_700_000_000 + later_s, offset_min: 60 }
}
