//! Text from models and machines, made harmless in Markdown: no control characters, no markup, no way out of a fence.

/// Characters in a column of a side-by-side view.
const COLUMN: usize = 46;
/// Characters of a text that are shown; the rest is in the observations.
const SHOWN: usize = 1200;

/// For a line of prose or a table cell: one line, and every character stands for itself.
pub(crate) fn inline(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for c in visible(text).chars() {
        match c {
            '\n' => out.push_str("\\n"),
            '&' => out.push_str("&amp;"),
            '<' => out.push_str("&lt;"),
            '>' => out.push_str("&gt;"),
            '\\' | '*' | '_' | '[' | ']' | '|' | '#' | '~' | '!' => {
                out.push('\\');
                out.push(c);
            }
            // A code span cannot be escaped from inside, so no backtick may open one.
            '`' => out.push_str("&#96;"),
            _ => out.push(c),
        }
    }
    out
}

/// As [`inline`] for a sentence that this program wrote, where backticks mark names: balanced ones stay.
pub(super) fn sentence(text: &str) -> String {
    let pieces: Vec<&str> = text.split('`').collect();
    if pieces.len().is_multiple_of(2) {
        return inline(text);
    }
    pieces
        .iter()
        .enumerate()
        .map(|(i, piece)| match i % 2 {
            1 if is_plain_name(piece) => format!("`{piece}`"),
            1 => format!("&#96;{}&#96;", inline(piece)),
            _ => inline(piece),
        })
        .collect()
}

/// A fenced block whose fence is longer than any run of backticks inside.
pub(super) fn fenced(text: &str) -> String {
    let text = visible(text);
    let longest = text.split(|c| c != '`').map(str::len).max().unwrap_or(0);
    let fence = "`".repeat(longest.max(2) + 1);
    format!("{fence}text\n{}\n{fence}\n", text.trim_end_matches('\n'))
}

/// Two texts in two columns; lines that differ have `≠` between them.
pub(super) fn side_by_side(left: (&str, &str), right: (&str, &str)) -> String {
    let (l, r) = (wrapped(left.1), wrapped(right.1));
    let mut out = format!("{:<COLUMN$} | {}\n{:-<COLUMN$}-+-{:-<COLUMN$}\n", left.0, right.0, "", "");
    for i in 0..l.len().max(r.len()) {
        let (a, b) = (l.get(i).map_or("", String::as_str), r.get(i).map_or("", String::as_str));
        let line = format!("{a:<COLUMN$} {} {b}", if a == b { '|' } else { '≠' });
        out.push_str(line.trim_end());
        out.push('\n');
    }
    fenced(&out)
}

fn is_plain_name(text: &str) -> bool {
    !text.is_empty() && text.chars().all(|c| c.is_ascii_alphanumeric() || "-_./+: =".contains(c))
}

/// Control characters, and those that change the direction or width of a line, as `\u{…}`; newlines stay.
fn visible(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for c in text.chars() {
        let hidden = matches!(
            c,
            '\u{ad}' | '\u{61c}' | '\u{180e}' | '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}'
                | '\u{2060}'..='\u{206f}' | '\u{feff}' | '\u{fff9}'..='\u{fffb}' | '\u{e0000}'..='\u{e007f}'
        );
        if c != '\n' && (c.is_control() || hidden) {
            out.extend(c.escape_unicode());
        } else {
            out.push(c);
        }
    }
    out
}

fn wrapped(text: &str) -> Vec<String> {
    let shown: String = text.chars().take(SHOWN).collect();
    let cut = text.chars().count() > SHOWN;
    let mut lines = Vec::new();
    for line in visible(&shown).split('\n') {
        let characters: Vec<char> = line.chars().collect();
        if characters.is_empty() {
            lines.push(String::new());
        }
        lines.extend(characters.chunks(COLUMN).map(|c| c.iter().collect::<String>()));
    }
    if cut {
        lines.push("[cut]".to_owned());
    }
    lines
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn model_output_cannot_leave_its_place() {
        let hostile = "a `b` <script>x</script>\u{1b}[31m | [l](u) ![i](u)\n# h\u{202e}\r";
        let line = inline(hostile);
        assert!(!line.contains(['\n', '\u{1b}', '\u{202e}', '\r', '<', '`']), "{line}");
        assert!(
            line.contains("&lt;script&gt;") && line.contains("\\|") && line.contains("\\u{1b}"),
            "{line}"
        );

        let block = fenced("before\n````\nafter\u{7}");
        let fence = block.lines().next().unwrap().trim_end_matches("text");
        assert_eq!(fence, "`````");
        assert_eq!(block.lines().filter(|l| l.starts_with(fence)).count(), 2);
        assert!(block.contains("\\u{7}"));
    }

    #[test]
    fn a_sentence_keeps_its_names_and_nothing_else() {
        assert_eq!(sentence("build `patched` has <b>"), "build `patched` has &lt;b&gt;");
        assert_eq!(sentence("odd ` one"), "odd &#96; one");
        assert_eq!(sentence("`<b>`"), "&#96;&lt;b&gt;&#96;");
    }

    #[test]
    fn columns_show_where_lines_differ() {
        let view = side_by_side(("reference", "Paris.\nsame"), ("candidate", "Par\u{1b}is\nsame"));
        assert!(view.contains('≠') && view.contains("same") && !view.contains('\u{1b}'), "{view}");
    }
}
