//! A patch file split into its parts: mail header, message, one diff a file, hunks. Every part keeps the bytes it was
//! read from, so that rendering gives back exactly the file. It does not apply anything.

use std::ops::Range;

use crate::tools::git::tree_path::{BadPath, TreePath, unquote};

/// One patch file: a mail as `git format-patch` writes it, or a bare diff.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PatchFile {
    /// Everything before the first diff: mail header, message and diffstat, or nothing.
    pub preamble: Vec<u8>,
    /// The changed files, in the order of the file.
    pub files: Vec<FileDiff>,
    /// Everything after the last hunk: the mail's signature, or nothing.
    pub trailer: Vec<u8>,
}

/// The change of one file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FileDiff {
    /// Text that stood between the previous file's last hunk and this header; usually nothing.
    pub lead: Vec<u8>,
    /// The lines from `diff --git` or `---` up to the first hunk, as they were read.
    pub header: Vec<u8>,
    /// The path before; absent for a new file.
    pub old_path: Option<TreePath>,
    /// The path after; absent for a deleted file.
    pub new_path: Option<TreePath>,
    /// The mode before, where the header tells.
    pub old_mode: Option<u32>,
    /// The mode after, where the header tells.
    pub new_mode: Option<u32>,
    /// How the file came about.
    pub origin: Origin,
    /// What changed inside.
    pub body: Body,
}

/// How a file of a diff came about.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Origin {
    /// Changed, added or deleted in place.
    InPlace,
    /// Moved from `old_path`.
    Renamed,
    /// Copied from `old_path`, which stays.
    Copied,
}

/// What changed inside a file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Body {
    /// Hunks of lines; none for a mere rename, mode change or empty file.
    Text(Vec<Hunk>),
    /// A `GIT binary patch`: the raw block.
    Binary(Vec<u8>),
    /// `Binary files … differ`: the bytes are not in the patch, so it cannot be applied.
    BinaryWithheld,
}

/// One hunk.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Hunk {
    /// The `@@` line as it was read.
    pub header: Vec<u8>,
    /// First line in the old file, counted from 1; 0 when there is no old file.
    pub old_start: usize,
    /// First line in the new file, counted from 1.
    pub new_start: usize,
    /// The lines, context included.
    pub lines: Vec<HunkLine>,
    /// Whether the counts of the header disagree with the lines. Such a patch is what `git apply --recount` is for.
    pub miscounted: bool,
}

/// One line of a hunk.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HunkLine {
    /// On which side the line is.
    pub side: Side,
    raw: Vec<u8>,
    no_newline_note: Option<Vec<u8>>,
}

/// On which side of a diff a line is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Side {
    /// On both.
    Context,
    /// Only in the old file.
    Removed,
    /// Only in the new file.
    Added,
}

/// Why bytes are not a patch file.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum PatchFileError {
    /// There is no diff in it.
    #[error("no diff found")]
    NoDiff,
    /// More than one mail in one file.
    #[error("line {line}: a second mail begins")]
    SeveralMails {
        /// Counts from 1.
        line: usize,
    },
    /// A header that cannot be understood.
    #[error("line {line}: {what}")]
    Header {
        /// Counts from 1.
        line: usize,
        /// What is wrong.
        what: &'static str,
    },
    /// A path that must not be written.
    #[error("line {line}")]
    Path {
        /// Counts from 1.
        line: usize,
        /// The path and what is wrong with it.
        #[source]
        source: BadPath,
    },
}

impl PatchFile {
    /// Reads a patch file.
    ///
    /// # Errors
    /// When there is no diff, or one whose header or paths are not acceptable.
    pub fn parse(bytes: &[u8]) -> Result<Self, PatchFileError> {
        Reader { bytes, lines: line_ranges(bytes), at: 0 }.patch_file()
    }

    /// The file's bytes, exactly as they were read.
    pub fn render(&self) -> Vec<u8> {
        let mut bytes = self.preamble.clone();
        for file in &self.files {
            bytes.extend(&file.lead);
            bytes.extend(&file.header);
            match &file.body {
                Body::Binary(raw) => bytes.extend(raw),
                Body::BinaryWithheld => {}
                Body::Text(hunks) => {
                    for hunk in hunks {
                        bytes.extend(&hunk.header);
                        for line in &hunk.lines {
                            bytes.extend(&line.raw);
                            bytes.extend(line.no_newline_note.iter().flatten());
                        }
                    }
                }
            }
        }
        bytes.extend(&self.trailer);
        bytes
    }

    /// How many hunks have a header that counts their lines wrong.
    pub fn miscounted_hunks(&self) -> usize {
        let hunks = |file: &FileDiff| match &file.body {
            Body::Text(hunks) => hunks.iter().filter(|hunk| hunk.miscounted).count(),
            _ => 0,
        };
        self.files.iter().map(hunks).sum()
    }
}

impl HunkLine {
    /// The line's own bytes, newline included where the file has one.
    pub fn text(&self) -> &[u8] {
        // Mail software strips a lone space, so an empty line stands for empty context.
        let text = if self.raw.first() == Some(&b'\n') { &self.raw[..] } else { &self.raw[1..] };
        match self.no_newline_note {
            Some(_) => text.strip_suffix(b"\n").unwrap_or(text),
            None => text,
        }
    }
}

struct Reader<'b> {
    bytes: &'b [u8],
    lines: Vec<Range<usize>>,
    at: usize,
}

impl<'b> Reader<'b> {
    fn patch_file(mut self) -> Result<PatchFile, PatchFileError> {
        let first = self.next_header(0).ok_or(PatchFileError::NoDiff)?;
        self.refuse_second_mail(0, first)?;
        let preamble = self.raw(0..first);
        let mut files = Vec::new();
        let mut lead_from = first;
        while let Some(start) = self.next_header(lead_from) {
            let lead = self.raw(lead_from..start);
            self.at = start;
            files.push(self.file_diff(lead)?);
            lead_from = self.at;
        }
        self.refuse_second_mail(lead_from, self.lines.len())?;
        Ok(PatchFile { preamble, files, trailer: self.raw(lead_from..self.lines.len()) })
    }

    /// The next line at or after `from` that begins a diff.
    fn next_header(&self, from: usize) -> Option<usize> {
        (from..self.lines.len()).find(|&at| self.begins_diff(at))
    }

    fn begins_diff(&self, at: usize) -> bool {
        self.line(at).starts_with(b"diff --git ")
            || (self.line(at).starts_with(b"--- ")
                && self.line(at + 1).starts_with(b"+++ ")
                && self.line(at + 2).starts_with(b"@@ -"))
    }

    fn refuse_second_mail(&self, from: usize, to: usize) -> Result<(), PatchFileError> {
        let mail = |at: usize| {
            let line = self.line(at);
            line.len() > 46 && line.starts_with(b"From ") && line[5..45].iter().all(u8::is_ascii_hexdigit)
        };
        match (from.max(1)..to).find(|&at| mail(at)) {
            Some(at) => Err(PatchFileError::SeveralMails { line: at + 1 }),
            None => Ok(()),
        }
    }

    fn file_diff(&mut self, lead: Vec<u8>) -> Result<FileDiff, PatchFileError> {
        let start = self.at;
        let mut header = HeaderLines::default();
        if self.line(self.at).starts_with(b"diff --git ") {
            header.git_line = Some(self.at);
            self.at += 1;
        }
        let mut body = None;
        while self.at < self.lines.len() && body.is_none() {
            let line = trim_newline(self.line(self.at));
            let rest = |prefix: &[u8]| line.strip_prefix(prefix);
            if let Some(mode) = rest(b"old mode ") {
                header.old_mode = Some(self.mode(mode)?);
            } else if let Some(mode) = rest(b"new mode ") {
                header.new_mode = Some(self.mode(mode)?);
            } else if let Some(mode) = rest(b"deleted file mode ") {
                (header.old_mode, header.deleted) = (Some(self.mode(mode)?), true);
            } else if let Some(mode) = rest(b"new file mode ") {
                (header.new_mode, header.added) = (Some(self.mode(mode)?), true);
            } else if let Some(name) = rest(b"rename from ") {
                header.moved_from = Some((Origin::Renamed, name_of(name), self.at));
            } else if let Some(name) = rest(b"copy from ") {
                header.moved_from = Some((Origin::Copied, name_of(name), self.at));
            } else if let Some(name) = rest(b"rename to ").or_else(|| rest(b"copy to ")) {
                header.moved_to = Some((name_of(name), self.at));
            } else if let Some(index) = rest(b"index ") {
                if let Some(at) = index.iter().position(|&byte| byte == b' ') {
                    let mode = self.mode(&index[at + 1..])?;
                    (header.old_mode, header.new_mode) =
                        (header.old_mode.or(Some(mode)), header.new_mode.or(Some(mode)));
                }
            } else if rest(b"similarity index ").is_some() || rest(b"dissimilarity index ").is_some() {
            } else if let Some(name) = rest(b"--- ") {
                header.minus = Some((name_of(name), self.at));
            } else if let Some(name) = rest(b"+++ ") {
                header.plus = Some((name_of(name), self.at));
            } else if line == b"GIT binary patch" {
                body = Some(Body::Binary(Vec::new()));
            } else if line.starts_with(b"Binary files ") {
                self.at += 1;
                body = Some(Body::BinaryWithheld);
            } else {
                body = Some(Body::Text(Vec::new()));
            }
            if body.is_none() {
                self.at += 1;
            }
        }
        let raw_header = self.raw(start..self.at);
        let (old_path, new_path, origin) = self.paths(start, &header)?;
        let body = match body {
            Some(Body::Binary(_)) => Body::Binary(self.binary()),
            Some(Body::BinaryWithheld) => Body::BinaryWithheld,
            _ => Body::Text(self.hunks()?),
        };
        let (old_mode, new_mode) = (header.old_mode, header.new_mode);
        let old_mode = if old_path.is_none() { None } else { old_mode };
        let new_mode = if new_path.is_none() { None } else { new_mode };
        Ok(FileDiff { lead, header: raw_header, old_path, new_path, old_mode, new_mode, origin, body })
    }

    fn mode(&self, digits: &[u8]) -> Result<u32, PatchFileError> {
        let wrong = PatchFileError::Header { line: self.at + 1, what: "this is not a file mode" };
        let mode = std::str::from_utf8(digits).ok().and_then(|text| u32::from_str_radix(text.trim(), 8).ok());
        match mode {
            Some(mode @ (0o100_644 | 0o100_755 | 0o120_000 | 0o160_000)) => Ok(mode),
            Some(0o100_664) => Ok(0o100_644),
            _ => Err(wrong),
        }
    }

    fn paths(
        &self,
        start: usize,
        header: &HeaderLines,
    ) -> Result<(Option<TreePath>, Option<TreePath>, Origin), PatchFileError> {
        let accept = |name: Vec<u8>, at: usize| {
            TreePath::new(name).map(Some).map_err(|source| PatchFileError::Path { line: at + 1, source })
        };
        if let (Some((origin, from, from_at)), Some((to, to_at))) = (&header.moved_from, &header.moved_to) {
            return Ok((accept(from.clone(), *from_at)?, accept(to.clone(), *to_at)?, *origin));
        }
        let (old, new) = match (&header.minus, &header.plus) {
            (Some((minus, minus_at)), Some((plus, plus_at))) => {
                let side = |name: &[u8], at: usize| {
                    if name == b"/dev/null" { Ok(None) } else { accept(strip_first_part(name), at) }
                };
                (side(minus, *minus_at)?, side(plus, *plus_at)?)
            }
            _ => {
                let line = header.git_line.map(|at| trim_newline(self.line(at))).unwrap_or_default();
                let name = common_name(&line[b"diff --git ".len().min(line.len())..])
                    .ok_or(PatchFileError::Header { line: start + 1, what: "the header names no path" })?;
                (accept(name.clone(), start)?, accept(name, start)?)
            }
        };
        let old = if header.added { None } else { old };
        let new = if header.deleted { None } else { new };
        match (&old, &new) {
            (None, None) => Err(PatchFileError::Header { line: start + 1, what: "the header names no path" }),
            _ => Ok((old, new, Origin::InPlace)),
        }
    }

    fn binary(&mut self) -> Vec<u8> {
        let start = self.at;
        self.at += 1;
        // Two blocks (forward and reverse), each ended by an empty line; the reverse one may be missing.
        while self.line(self.at).starts_with(b"literal ") || self.line(self.at).starts_with(b"delta ") {
            while self.at < self.lines.len() && self.line(self.at) != b"\n" {
                self.at += 1;
            }
            self.at += usize::from(self.at < self.lines.len());
        }
        self.raw(start..self.at)
    }

    fn hunks(&mut self) -> Result<Vec<Hunk>, PatchFileError> {
        let mut hunks = Vec::new();
        while self.line(self.at).starts_with(b"@@ -") {
            let numbers = hunk_numbers(self.line(self.at))
                .ok_or(PatchFileError::Header { line: self.at + 1, what: "this is not a hunk header" })?;
            let header = self.raw(self.at..self.at + 1);
            self.at += 1;
            let body_at = self.at;
            let (mut lines, mut miscounted) = (self.counted_lines(numbers), false);
            if lines.is_none() {
                self.at = body_at;
                (lines, miscounted) = (Some(self.all_lines()), true);
            }
            let lines = lines.unwrap_or_default();
            hunks.push(Hunk {
                header,
                old_start: numbers.old_start,
                new_start: numbers.new_start,
                lines,
                miscounted,
            });
        }
        Ok(hunks)
    }

    /// The lines that the header's counts announce; nothing when they end too early, or when more follow.
    fn counted_lines(&mut self, numbers: HunkNumbers) -> Option<Vec<HunkLine>> {
        let (mut old, mut new) = (numbers.old_lines, numbers.new_lines);
        let mut lines = Vec::new();
        while old > 0 || new > 0 {
            let line = self.hunk_line()?;
            match line.side {
                Side::Context => (old, new) = (old.checked_sub(1)?, new.checked_sub(1)?),
                Side::Removed => old = old.checked_sub(1)?,
                Side::Added => new = new.checked_sub(1)?,
            }
            lines.push(line);
        }
        self.at_boundary().then_some(lines)
    }

    /// Lines up to whatever cannot belong to a hunk: the way of `git apply --recount`.
    fn all_lines(&mut self) -> Vec<HunkLine> {
        let mut lines = Vec::new();
        while !self.begins_diff(self.at) && self.line(self.at) != b"-- \n" {
            match self.hunk_line() {
                Some(line) => lines.push(line),
                None => break,
            }
        }
        lines
    }

    fn at_boundary(&self) -> bool {
        let line = self.line(self.at);
        self.begins_diff(self.at)
            || line == b"-- \n"
            || !matches!(line.first(), Some(b' ' | b'+' | b'-' | b'\\'))
    }

    fn hunk_line(&mut self) -> Option<HunkLine> {
        let line = self.line(self.at);
        let side = match line.first()? {
            b' ' | b'\n' => Side::Context,
            b'-' => Side::Removed,
            b'+' => Side::Added,
            _ => return None,
        };
        let raw = line.to_vec();
        self.at += 1;
        let note = self.line(self.at).starts_with(b"\\ ").then(|| self.raw(self.at..self.at + 1));
        self.at += usize::from(note.is_some());
        Some(HunkLine { side, raw, no_newline_note: note })
    }

    fn line(&self, at: usize) -> &'b [u8] {
        self.lines.get(at).map_or(&[], |range| &self.bytes[range.clone()])
    }

    fn raw(&self, lines: Range<usize>) -> Vec<u8> {
        match (self.lines.get(lines.start), lines.is_empty()) {
            (Some(first), false) => self.bytes[first.start..self.lines[lines.end - 1].end].to_vec(),
            _ => Vec::new(),
        }
    }
}

#[derive(Default)]
struct HeaderLines {
    git_line: Option<usize>,
    old_mode: Option<u32>,
    new_mode: Option<u32>,
    added: bool,
    deleted: bool,
    moved_from: Option<(Origin, Vec<u8>, usize)>,
    moved_to: Option<(Vec<u8>, usize)>,
    minus: Option<(Vec<u8>, usize)>,
    plus: Option<(Vec<u8>, usize)>,
}

#[derive(Clone, Copy)]
struct HunkNumbers {
    old_start: usize,
    old_lines: usize,
    new_start: usize,
    new_lines: usize,
}

fn line_ranges(bytes: &[u8]) -> Vec<Range<usize>> {
    let mut start = 0;
    bytes
        .split_inclusive(|&byte| byte == b'\n')
        .map(|line| {
            let range = start..start + line.len();
            start = range.end;
            range
        })
        .collect()
}

fn trim_newline(line: &[u8]) -> &[u8] {
    let line = line.strip_suffix(b"\n").unwrap_or(line);
    line.strip_suffix(b"\r").unwrap_or(line)
}

/// A name in a header line: quoted, or up to the tab before a time stamp.
fn name_of(field: &[u8]) -> Vec<u8> {
    match unquote(field) {
        Some((name, _)) => name,
        None => field.split(|&byte| byte == b'\t').next().unwrap_or_default().to_vec(),
    }
}

fn strip_first_part(name: &[u8]) -> Vec<u8> {
    match name.iter().position(|&byte| byte == b'/') {
        Some(at) => name[at + 1..].to_vec(),
        None => name.to_vec(),
    }
}

/// The path of `a/path b/path`, which is unambiguous because both halves are equal but for their first part.
fn common_name(names: &[u8]) -> Option<Vec<u8>> {
    if let Some((old, used)) = unquote(names) {
        let rest = names.get(used + 1..)?;
        let new = unquote(rest).map_or_else(|| rest.to_vec(), |(name, _)| name);
        let (old, new) = (strip_first_part(&old), strip_first_part(&new));
        return (old == new).then_some(old);
    }
    names.iter().enumerate().filter(|(_, byte)| **byte == b' ').find_map(|(at, _)| {
        let old = strip_first_part(&names[..at]);
        let new = unquote(&names[at + 1..]).map_or_else(|| names[at + 1..].to_vec(), |(name, _)| name);
        (old == strip_first_part(&new)).then_some(old)
    })
}

/// Reads `@@ -a,b +c,d @@`, where a missing count stands for 1. No file has more lines than 32 bits count.
fn hunk_numbers(line: &[u8]) -> Option<HunkNumbers> {
    let inner = line.strip_prefix(b"@@ -")?;
    let end = inner.windows(3).position(|window| window == b" @@")?;
    let text = std::str::from_utf8(&inner[..end]).ok()?;
    let (old, new) = text.split_once(" +")?;
    let number = |text: &str| text.parse::<u32>().ok().map(|number| number as usize);
    let range = |text: &str| match text.split_once(',') {
        Some((start, count)) => Some((number(start)?, number(count)?)),
        None => Some((number(text)?, 1)),
    };
    let ((old_start, old_lines), (new_start, new_lines)) = (range(old)?, range(new)?);
    Some(HunkNumbers { old_start, old_lines, new_start, new_lines })
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::tools::git::tree_path::quote;

    fn parsed(bytes: &[u8]) -> PatchFile {
        let file = PatchFile::parse(bytes).unwrap();
        assert_eq!(
            file.render(),
            bytes,
            "parse and render must give back {:?}",
            String::from_utf8_lossy(bytes)
        );
        file
    }

    fn paths(file: &FileDiff) -> (Option<String>, Option<String>) {
        let text = |path: &Option<TreePath>| path.as_ref().map(ToString::to_string);
        (text(&file.old_path), text(&file.new_path))
    }

    #[test]
    fn headers_of_every_kind_give_paths_and_modes() {
        let both = |path: &str| (Some(path.to_owned()), Some(path.to_owned()));
        for (header, expected, modes) in [
            (
                "diff --git a/x y b/x y\nold mode 100644\nnew mode 100755\n",
                both("x y"),
                (Some(0o100644), Some(0o100755)),
            ),
            (
                "diff --git a/e b/e\nnew file mode 100644\nindex 000000000..e69de29bb\n",
                (None, Some("e".into())),
                (None, Some(0o100644)),
            ),
            (
                "diff --git a/o/f b/n/f\nsimilarity index 100%\nrename from o/f\nrename to n/f\n",
                (Some("o/f".into()), Some("n/f".into())),
                (None, None),
            ),
            (
                "diff --git \"a/\\303\\251\" \"b/\\303\\251\"\nold mode 100755\nnew mode 100644\n",
                both("\u{e9}"),
                (Some(0o100755), Some(0o100644)),
            ),
            (
                "diff --git a/l b/l\ndeleted file mode 120000\nindex 1..0\n--- a/l\n+++ /dev/null\n@@ -1 +0,0 @@\n-t\n\\ No newline at end of file\n",
                (Some("l".into()), None),
                (Some(0o120000), None),
            ),
            (
                "--- a/f\t2020-01-01 00:00:00\n+++ b/f\t2020-01-02 00:00:00\n@@ -1 +1 @@\n-a\n+b\n",
                both("f"),
                (None, None),
            ),
            (
                "diff --git a/b b/b\nindex 1..2 100644\nGIT binary patch\nliteral 1\nIcmZPo\n\nliteral 0\nHcmV?d00001\n\n",
                both("b"),
                (Some(0o100644), Some(0o100644)),
            ),
            (
                "diff --git a/b b/b\nindex 1..2 100644\nBinary files a/b and b/b differ\n",
                both("b"),
                (Some(0o100644), Some(0o100644)),
            ),
        ] {
            let file = parsed(header.as_bytes());
            assert_eq!(file.files.len(), 1, "{header}");
            assert_eq!(paths(&file.files[0]), expected, "{header}");
            assert_eq!((file.files[0].old_mode, file.files[0].new_mode), modes, "{header}");
        }
    }

    #[test]
    fn a_mail_keeps_preamble_and_signature_apart_from_the_diff() {
        let mail = b"From 0123456789012345678901234567890123456789 Mon Sep 17 00:00:00 2001\nSubject: x\n\ntext\n---\n f | 2 +-\n\n\
            diff --git a/f b/f\nindex 1..2 100644\n--- a/f\n+++ b/f\n@@ -1,2 +1,2 @@ fn\n-- \n+--\n c\n-- \n2.47.3\n\n";
        let file = parsed(mail);
        assert_eq!(file.trailer, b"-- \n2.47.3\n\n");
        let Body::Text(hunks) = &file.files[0].body else { panic!("hunks expected") };
        assert_eq!(
            hunks[0].lines.iter().map(|line| line.text()).collect::<Vec<_>>(),
            [&b"- \n"[..], b"--\n", b"c\n"]
        );
        assert!(!hunks[0].miscounted);
    }

    #[test]
    fn hostile_and_foreign_files_are_refused() {
        for (bytes, message) in [
            ("", "no diff found"),
            ("--- a/../x\n+++ b/../x\n@@ -1 +1 @@\n-a\n+b\n", "line 1"),
            ("diff --git a/.git/hooks/x b/.git/hooks/x\nnew file mode 100755\n", "line 1"),
            ("diff --git a/f b/f\nnew file mode 040000\n", "line 2: this is not a file mode"),
            ("diff --git a/f b/f\nrename from f\nrename to /etc/x\n", "line 3"),
        ] {
            assert_eq!(PatchFile::parse(bytes.as_bytes()).unwrap_err().to_string(), message, "{bytes}");
        }
    }

    fn line() -> impl Strategy<Value = Vec<u8>> {
        prop_oneof![
            proptest::collection::vec(any::<u8>().prop_filter("one line", |&byte| byte != b'\n'), 0..12),
            Just(b"-- ".to_vec()),
            Just(b"@@ -1 +1 @@".to_vec()),
            Just(b"diff --git a/x b/x".to_vec()),
            Just(b"crlf\r".to_vec()),
        ]
    }

    fn name() -> impl Strategy<Value = Vec<u8>> {
        let part = proptest::collection::vec(any::<u8>(), 1..6);
        proptest::collection::vec(part, 1..3)
            .prop_map(|parts| parts.join(&b'/'))
            .prop_filter("acceptable", |name| TreePath::new(name.clone()).is_ok())
    }

    #[derive(Debug, Clone)]
    struct Made {
        name: Vec<u8>,
        sides: Vec<(Side, Vec<u8>)>,
        ends_open: bool,
        other_counts: bool,
        header: usize,
    }

    impl Made {
        fn bytes(&self) -> Vec<u8> {
            let with = |prefix: &str| quote(&[prefix.as_bytes(), &self.name].concat());
            let (old, new) = (with("a/"), with("b/"));
            let mut bytes = [b"diff --git ", &old[..], b" ", &new, b"\n"].concat();
            match self.header {
                0 => bytes.extend(b"old mode 100644\nnew mode 100755\n"),
                1 => {
                    let (from, to) = (quote(&self.name), quote(&[&self.name[..], b"2"].concat()));
                    return [
                        &bytes[..],
                        b"similarity index 100%\nrename from ",
                        &from,
                        b"\nrename to ",
                        &to,
                        b"\n",
                    ]
                    .concat();
                }
                2 => return [
                    &bytes[..],
                    b"index 1..2 100644\nGIT binary patch\nliteral 1\nIcmZPo\n\nliteral 0\nHcmV?d00001\n\n",
                ]
                .concat(),
                _ => bytes.extend(b"index 1..2 100644\n"),
            }
            let count = |unwanted: Side| self.sides.iter().filter(|(side, _)| *side != unwanted).count();
            let more = usize::from(self.other_counts);
            let (old_lines, new_lines) = (count(Side::Added) + more, count(Side::Removed) + more);
            bytes.extend([b"--- ", &old[..], b"\n+++ ", &new, b"\n"].concat());
            bytes.extend(format!("@@ -1,{old_lines} +1,{new_lines} @@ fn\n").into_bytes());
            for (side, line) in &self.sides {
                bytes.push(match side {
                    Side::Context => b' ',
                    Side::Removed => b'-',
                    Side::Added => b'+',
                });
                bytes.extend(line);
                bytes.push(b'\n');
            }
            if self.ends_open {
                bytes.extend(b"\\ No newline at end of file\n");
            }
            bytes
        }
    }

    fn made() -> impl Strategy<Value = Made> {
        let side = prop_oneof![Just(Side::Context), Just(Side::Removed), Just(Side::Added)];
        let sides = proptest::collection::vec((side, line()), 1..8);
        (name(), sides, any::<bool>(), any::<bool>(), 0usize..5).prop_map(
            |(name, sides, ends_open, other_counts, header)| Made {
                name,
                sides,
                ends_open,
                other_counts,
                header,
            },
        )
    }

    proptest! {
        #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(300) })]

        #[test]
        fn parse_then_render_is_identity(files in proptest::collection::vec(made(), 1..4), mail in any::<bool>()) {
            let preamble: &[u8] = if mail { b"From: a <a@b>\nSubject: s\n\n---\n f | 1 +\n\n" } else { b"" };
            let trailer: &[u8] = if mail { b"-- \n2.47.3\n\n" } else { b"" };
            let diffs: Vec<u8> = files.iter().flat_map(Made::bytes).collect();
            let bytes = [preamble, &diffs, trailer].concat();
            let parsed = PatchFile::parse(&bytes).unwrap();
            prop_assert_eq!(parsed.render(), bytes);
            if files.iter().all(|file| !file.other_counts) {
                prop_assert_eq!(parsed.files.len(), files.len());
                for (read, made) in parsed.files.iter().zip(&files) {
                    prop_assert_eq!(read.old_path.as_ref().map(TreePath::as_bytes), Some(&made.name[..]));
                    if let Body::Text(hunks) = &read.body && let Some(hunk) = hunks.first() {
                        let lines: Vec<Side> = hunk.lines.iter().map(|line| line.side).collect();
                        prop_assert_eq!(lines, made.sides.iter().map(|(side, _)| *side).collect::<Vec<_>>());
                        prop_assert!(!hunk.miscounted);
                    }
                }
            }
        }
    }
}
