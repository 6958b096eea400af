//! Conflict markers in a merged file: their labels, the places between them, and what is left of them in a file that
//! somebody says is resolved. It knows bytes only.

use crate::tools::git::merge::Pick;

use super::text::lines;

/// What stands before upstream's lines.
pub const UPSTREAM: &[u8] = b"<<<<<<< upstream";
/// What stands before the lines that the patch was made for.
pub const BEFORE: &[u8] = b"||||||| before the patch";
/// What stands between the sides.
pub const MIDDLE: &[u8] = b"=======";
/// What stands after the patch's lines.
pub const PATCH: &[u8] = b">>>>>>> the patch";

/// One place that needs a person.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Block {
    /// Upstream's lines.
    pub upstream: Vec<u8>,
    /// The lines that the patch was made for.
    pub before: Vec<u8>,
    /// The patch's lines.
    pub patch: Vec<u8>,
}

/// The merged file with labels that say what each side is, where git wrote the ids of trees.
pub fn relabelled(merged: &[u8], pick: &Pick) -> Vec<u8> {
    let labels = [
        (format!("<<<<<<< {}", pick.ours), UPSTREAM),
        (format!("||||||| {}", pick.base), BEFORE),
        (format!(">>>>>>> {}", pick.theirs), PATCH),
    ];
    let mut out = Vec::with_capacity(merged.len());
    for line in lines(merged) {
        match labels.iter().find(|(git, _)| line.starts_with(git.as_bytes())) {
            Some((_, label)) => {
                out.extend(*label);
                out.extend(line_end(line));
            }
            None => out.extend(line),
        }
    }
    out
}

/// The places between markers, in order; `None` when the markers do not fit together.
pub fn blocks(marked: &[u8]) -> Option<Vec<Block>> {
    #[derive(PartialEq)]
    enum In {
        Nothing,
        Upstream,
        Before,
        Patch,
    }
    let mut blocks = Vec::new();
    let (mut place, mut block) = (In::Nothing, Block::default());
    for line in lines(marked) {
        let bare = without_end(line);
        place = match (place, bare) {
            (In::Nothing, UPSTREAM) => In::Upstream,
            (In::Upstream, BEFORE) => In::Before,
            (In::Upstream | In::Before, MIDDLE) => In::Patch,
            (In::Patch, PATCH) => {
                blocks.push(std::mem::take(&mut block));
                In::Nothing
            }
            (_, UPSTREAM | BEFORE | PATCH) => return None,
            (place, _) => {
                match place {
                    In::Nothing => {}
                    In::Upstream => block.upstream.extend(line),
                    In::Before => block.before.extend(line),
                    In::Patch => block.patch.extend(line),
                }
                place
            }
        };
    }
    (place == In::Nothing).then_some(blocks)
}

/// The numbers of lines that are conflict markers, counted from 1; lines that `known` files hold as well do not count.
pub fn leftover(resolved: &[u8], known: &[&[u8]]) -> Vec<usize> {
    let marker = |line: &[u8]| {
        [&b"<<<<<<< "[..], b"||||||| ", b">>>>>>> "].iter().any(|start| line.starts_with(start))
            || matches!(line, b"<<<<<<<" | b"|||||||" | b">>>>>>>")
    };
    let known: Vec<&[u8]> =
        known.iter().flat_map(|file| lines(file)).map(without_end).filter(|l| marker(l)).collect();
    let numbered = (1..).zip(lines(resolved).into_iter().map(without_end));
    numbered.filter(|(_, line)| marker(line) && !known.contains(line)).map(|(number, _)| number).collect()
}

/// A file with markers the way `git rerere` keeps it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RerereForm {
    /// The file.
    pub file: Vec<u8>,
    /// Its places, upstream's side not told from the patch's.
    pub places: Vec<[Vec<u8>; 2]>,
}

/// The file the way `git rerere` keeps it: markers without labels, no lines from before, the sides of each place in
/// byte order. `None` when the markers do not fit together.
pub fn rerere_form(marked: &[u8]) -> Option<RerereForm> {
    let (mut out, mut places) = (Vec::new(), Vec::new());
    let mut open: Option<([Vec<u8>; 2], usize)> = None;
    for line in lines(marked) {
        let starts = |mark: u8| {
            let run = line.iter().take_while(|&&byte| byte == mark).count();
            run == 7 && line.get(7).is_none_or(|byte| byte.is_ascii_whitespace())
        };
        match &mut open {
            None if starts(b'<') => open = Some(Default::default()),
            None => out.extend(line),
            Some((_, side @ 0)) if starts(b'|') => *side = 2,
            Some((_, side @ (0 | 2))) if starts(b'=') => *side = 1,
            Some((sides, 1)) if starts(b'>') => {
                sides.sort();
                let [one, two] = sides.clone();
                out.extend([b"<<<<<<<\n", &one[..], b"=======\n", &two, b">>>>>>>\n"].concat());
                places.push([one, two]);
                open = None;
            }
            Some(_) if starts(b'<') || starts(b'>') => return None,
            Some((sides, side @ (0 | 1))) => sides[*side].extend(line),
            Some(_) => {}
        }
    }
    open.is_none().then_some(RerereForm { file: out, places })
}

/// By how much brackets of each kind are open at the end of a file.
pub fn open_brackets(text: &[u8]) -> [i64; 3] {
    let count =
        |byte: u8| i64::try_from(text.iter().filter(|&&found| found == byte).count()).unwrap_or(i64::MAX);
    [count(b'(') - count(b')'), count(b'[') - count(b']'), count(b'{') - count(b'}')]
}

fn without_end(line: &[u8]) -> &[u8] {
    &line[..line.len() - line_end(line).len()]
}

fn line_end(line: &[u8]) -> &[u8] {
    let end = [&b"\r\n"[..], b"\n"].into_iter().find(|end| line.ends_with(end)).unwrap_or_default();
    &line[line.len() - end.len()..]
}

#[cfg(test)]
mod tests {
    use super::*;

    const MARKED: &str =
        "a\n<<<<<<< upstream\nu\n||||||| before the patch\nb\n=======\np\nq\n>>>>>>> the patch\nz\n";

    #[test]
    fn labels_of_git_become_words_and_line_ends_stay() {
        let id = |digit: &str| digit.repeat(40).parse().unwrap();
        let pick = Pick { base: id("1"), ours: id("2"), theirs: id("3") };
        let git = format!(
            "a\r\n<<<<<<< {}:old/name\r\nu\r\n||||||| {}\nb\n=======\r\np\n>>>>>>> {}\r\n",
            pick.ours, pick.base, pick.theirs
        );
        let expected =
            "a\r\n<<<<<<< upstream\r\nu\r\n||||||| before the patch\nb\n=======\r\np\n>>>>>>> the patch\r\n";
        assert_eq!(String::from_utf8(relabelled(git.as_bytes(), &pick)).unwrap(), expected);
        assert_eq!(blocks(expected.as_bytes()).unwrap()[0].before, b"b\n");
    }

    #[test]
    fn places_have_three_sides_and_torn_markers_are_refused() {
        let found = blocks(MARKED.as_bytes()).unwrap();
        let (upstream, before, patch) = (b"u\n".to_vec(), b"b\n".to_vec(), b"p\nq\n".to_vec());
        assert_eq!(found, [Block { upstream, before, patch }]);
        assert_eq!(blocks(&MARKED.as_bytes()[..MARKED.len() - 20]), None);
        assert_eq!(blocks(b"a\n"), Some(vec![]));
    }

    #[test]
    fn markers_that_were_there_before_are_not_left_over() {
        assert_eq!(leftover(MARKED.as_bytes(), &[]), [2, 4, 9]);
        let manual = b"text\n<<<<<<< HEAD\n======\n";
        assert_eq!(leftover(manual, &[]), [2]);
        assert_eq!(leftover(manual, &[manual]), [] as [usize; 0]);
    }

    #[test]
    fn the_form_of_rerere_forgets_labels_base_and_sides() {
        let other = "a\n<<<<<<< HEAD\np\nq\n=======\nu\n>>>>>>> x\nz\n";
        let form = rerere_form(MARKED.as_bytes()).unwrap();
        assert_eq!(rerere_form(other.as_bytes()).unwrap(), form);
        assert_eq!(form.places, [[b"p\nq\n".to_vec(), b"u\n".to_vec()]]);
        assert_eq!(rerere_form(b"<<<<<<< x\na\n"), None);
    }

    #[test]
    fn brackets_are_counted_by_kind() {
        assert_eq!(open_brackets(b"f(a[1]) {"), [0, 0, 1]);
    }
}
