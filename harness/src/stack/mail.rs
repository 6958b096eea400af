//! The mail part of a patch file: who wrote the change, when, and the message that becomes the commit's. It leaves the
//! diff alone. The rules are those of `git mailinfo`: `[PATCH n/m]` prefixes and `Re:` go, a `---` line ends the message.

use mailparse::MailHeaderMap;

/// Who made something, and when.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Author {
    /// The person's name.
    pub name: String,
    /// The person's address; may be empty.
    pub email: String,
    /// Seconds since 1970-01-01 00:00 UTC.
    pub time_s: i64,
    /// Minutes that the person's clock was ahead of UTC.
    pub offset_min: i32,
}

/// What a mail's header and text say about a change.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Mail {
    /// The author, where the mail has a `From:`.
    pub author: Option<Author>,
    /// The subject without its `[PATCH …]` prefix, on one line.
    pub subject: String,
    /// The commit message: subject, empty line, text and trailers, ended by a newline.
    pub message: String,
}

/// Why a mail cannot be read.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum MailError {
    /// The header is malformed.
    #[error("the mail header cannot be read: {0}")]
    Header(String),
    /// The body is wrapped in an encoding that changes the diff's bytes.
    #[error("the mail's body is encoded as {0}, so its diff is not readable as it stands")]
    Encoded(String),
}

impl MailError {
    /// What to try.
    pub fn hint(&self) -> &'static str {
        match self {
            MailError::Header(_) => "write the patch again with `git format-patch`",
            MailError::Encoded(_) => {
                "pass the mail through `git mailsplit` and `git am`, then `git format-patch`"
            }
        }
    }
}

/// The header of a mail whose text has a space more before each line that would otherwise not be read as text. It goes
/// when the mail is read here; `git am`, which knows no such header, leaves it.
pub const INDENTED: &str = "X-Regraft-Indented";

/// Reads the text before the first diff; `None` when it is no mail.
///
/// # Errors
/// See [`MailError`].
pub fn read_mail(preamble: &[u8]) -> Result<Option<Mail>, MailError> {
    let mail = match preamble.strip_prefix(b"From ") {
        Some(rest) => rest.iter().position(|&byte| byte == b'\n').map_or(&rest[..0], |at| &rest[at + 1..]),
        None => preamble,
    };
    if !["From:", "Subject:", "Date:"].iter().any(|name| starts_line(mail, name.as_bytes())) {
        return Ok(None);
    }
    let parsed = mailparse::parse_mail(mail).map_err(|error| MailError::Header(error.to_string()))?;
    let headers = &parsed.headers;
    let encoding = headers.get_first_value("Content-Transfer-Encoding").unwrap_or_default().to_lowercase();
    if matches!(encoding.trim(), "base64" | "quoted-printable") {
        return Err(MailError::Encoded(encoding.trim().to_owned()));
    }
    let indented = headers.get_first_value(INDENTED).is_some();
    let subject = clean_subject(&headers.get_first_value("Subject").unwrap_or_default());
    let text = parsed.get_body().map_err(|error| MailError::Header(error.to_string()))?;
    let (in_body_author, text) = in_body_from(&text);
    let time = headers.get_first_value("Date").and_then(|date| rfc2822_time(&date)).unwrap_or((0, 0));
    let author = in_body_author
        .or_else(|| headers.get_first_value("From").map(|from| name_and_email(&from)))
        .map(|(name, email)| Author { name, email, time_s: time.0, offset_min: time.1 });
    let message = join_message(&subject, message_text(text, indented));
    Ok(Some(Mail { author, subject, message }))
}

fn starts_line(text: &[u8], start: &[u8]) -> bool {
    text.starts_with(start)
        || text.windows(start.len() + 1).any(|window| window[0] == b'\n' && &window[1..] == start)
}

fn clean_subject(subject: &str) -> String {
    let mut rest = subject.trim();
    loop {
        let shorter = match rest.strip_prefix('[') {
            // Only what `git format-patch` puts there: `[metal]` is the subject's own.
            Some(inner) => inner
                .split_once(']')
                .filter(|(tag, _)| tag.to_ascii_uppercase().contains("PATCH"))
                .map(|(_, tail)| tail),
            None => rest.get(..3).filter(|re| re.eq_ignore_ascii_case("re:")).map(|_| &rest[3..]),
        };
        match shorter {
            Some(tail) => rest = tail.trim_start(),
            None => return rest.split_whitespace().collect::<Vec<_>>().join(" "),
        }
    }
}

fn in_body_from(text: &str) -> (Option<(String, String)>, &str) {
    let text = text.trim_start_matches(['\r', '\n']);
    match text.strip_prefix("From: ").and_then(|rest| rest.split_once('\n')) {
        Some((from, rest)) => (Some(name_and_email(from)), rest),
        None => (None, text),
    }
}

fn message_text(text: &str, indented: bool) -> String {
    let ends = |line: &&str| matches!(line.trim_end(), "---");
    let own = |line| match line {
        line if indented && is_misread(without_spaces(str::as_bytes(line))) => {
            line.strip_prefix(' ').unwrap_or(line)
        }
        line => line,
    };
    text.lines().take_while(|line| !ends(line)).map(|line| format!("{}\n", own(line).trim_end())).collect()
}

/// A text in which some lines had to be indented.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Indented {
    /// The text.
    pub text: Vec<u8>,
    /// The numbers of those lines in the message, from 1.
    pub lines: Vec<usize>,
}

/// A message in which no line is taken for the begin of a diff or of another mail; `None` where none has to be indented. The first paragraph becomes the subject and is left alone.
pub fn indented(message: &[u8]) -> Option<Indented> {
    let blank = |line: &[u8]| line.trim_ascii().is_empty();
    let lines: Vec<&[u8]> = message.split_inclusive(|&byte| byte == b'\n').collect();
    let first = lines.iter().position(|line| !blank(line))?;
    let subject_ends = first + lines[first..].iter().position(|line| blank(line))?;
    let body = subject_ends + lines[subject_ends..].iter().position(|line| !blank(line))?;
    if !is_read_as_header(lines[body]) && !lines[body..].iter().any(|line| is_read_as_other(line)) {
        return None;
    }
    // Indented is also what would be taken for such a line when it is read back.
    let (mut text, mut numbers) = (Vec::new(), Vec::new());
    for (at, line) in lines.iter().enumerate() {
        if at >= body && is_misread(without_spaces(line)) {
            text.push(b' ');
            numbers.push(at + 1);
        }
        text.extend(*line);
    }
    Some(Indented { text, lines: numbers })
}

fn without_spaces(line: &[u8]) -> &[u8] {
    &line[line.iter().take_while(|&&byte| byte == b' ').count()..]
}

fn is_misread(line: &[u8]) -> bool {
    is_read_as_other(line) || is_read_as_header(line)
}

/// Whether a line of a message reads as something else in a mail: `git mailinfo` ends the message at it, or `git mailsplit`
/// or the reader of patch files begins another mail.
fn is_read_as_other(line: &[u8]) -> bool {
    let ends_message = line.starts_with(b"diff -")
        || line.starts_with(b"Index: ")
        || line.strip_prefix(b"---").is_some_and(|rest| match rest {
            [b' ', next, ..] if !next.is_ascii_whitespace() => true,
            rest => rest.trim_ascii().is_empty(),
        });
    ends_message || begins_mail(line)
}

fn begins_mail(line: &[u8]) -> bool {
    let Some(rest) = line.strip_prefix(b"From ") else { return false };
    let by_commit = rest.len() > 40 && rest[..40].iter().all(u8::is_ascii_hexdigit);
    // As in an mbox: a time of day somewhere.
    let at_a_time = rest
        .windows(5)
        .any(|five| five[2] == b':' && [five[0], five[1], five[3], five[4]].iter().all(u8::is_ascii_digit));
    by_commit || at_a_time
}

/// Whether a line is taken for a header where it begins the text.
fn is_read_as_header(line: &[u8]) -> bool {
    let starts = |name: &[u8]| line.get(..name.len()).is_some_and(|start| start.eq_ignore_ascii_case(name));
    [&b"From:"[..], b"Date:", b"Subject:"].into_iter().any(starts)
        || [&b">From "[..], b"[PATCH] "].iter().any(|start| line.starts_with(start))
}

fn join_message(subject: &str, text: String) -> String {
    match text.trim_matches('\n') {
        "" => format!("{subject}\n"),
        text => format!("{subject}\n\n{text}\n"),
    }
}

fn name_and_email(from: &str) -> (String, String) {
    match from.trim().rsplit_once('<') {
        Some((name, email)) => {
            (name.trim().trim_matches('"').to_owned(), email.trim_end().trim_end_matches('>').to_owned())
        }
        None => (String::new(), from.trim().to_owned()),
    }
}

/// Seconds and zone of `Mon, 2 Jan 2006 15:04:05 -0700`.
fn rfc2822_time(date: &str) -> Option<(i64, i32)> {
    let time_s = mailparse::dateparse(date).ok()?;
    let zone = date.split_whitespace().rev().find(|word| word.starts_with(['+', '-']) && word.len() == 5);
    let offset_min = zone.map_or(Some(0), |zone| {
        let (hours, minutes) = (zone[1..3].parse::<i32>().ok()?, zone[3..5].parse::<i32>().ok()?);
        let sign = if zone.starts_with('-') { -1 } else { 1 };
        Some(sign * (hours * 60 + minutes))
    })?;
    Some((time_s, offset_min))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_format_patch_mail_gives_author_date_and_message() {
        let mail = "From 0123456789012345678901234567890123456789 Mon Sep 17 00:00:00 2001\n\
            From: =?UTF-8?q?J=C3=BCrgen=20M?= <j@example.org>\nDate: Tue, 2 Jan 2024 10:00:00 +0130\n\
            Subject: [PATCH v2 03/14] metal: keep the\n event alive\nMIME-Version: 1.0\n\n\
            It died too early.\n\nSigned-off-by: J <j@example.org>\n---\n f | 2 +-\n\n";
        let mail = read_mail(mail.as_bytes()).unwrap().unwrap();
        let author = mail.author.unwrap();
        assert_eq!((author.name.as_str(), author.email.as_str()), ("J\u{fc}rgen M", "j@example.org"));
        assert_eq!((author.time_s, author.offset_min), (1_704_184_200, 90));
        assert_eq!(mail.subject, "metal: keep the event alive");
        assert_eq!(
            mail.message,
            "metal: keep the event alive\n\nIt died too early.\n\nSigned-off-by: J <j@example.org>\n"
        );
    }

    #[test]
    fn lines_that_read_as_a_diff_or_a_mail_are_indented_and_come_back_as_they_were() {
        let hex = "0123456789".repeat(4);
        let message = format!(
            "sub\n\nDate: x\ndiff --git a/x b/x\n--- a/x\n+++ b/x\n---\n  ---\nIndex: f\n---- no\n-- \nFrom {hex} Mon\n\
             From here on\nFrom a Mon Sep 17 00:00:00 2001\n"
        );
        let Indented { text, lines } = indented(message.as_bytes()).unwrap();
        assert_eq!(lines, [3, 4, 5, 7, 8, 9, 12, 14]);
        let text = String::from_utf8(text).unwrap();
        let mail = format!("From: a <a@b>\n{INDENTED}: yes\nSubject: [PATCH] {text}---\n");
        let expected = message.replace("-- \n", "--\n");
        assert_eq!(read_mail(mail.as_bytes()).unwrap().unwrap().message, expected);
        for plain in ["diff --git a/x b/x\n", "s\n", "", "\n", "s\n\ntext\nSubject: no\n ---\n", "s\n\n"] {
            assert_eq!(indented(plain.as_bytes()), None, "{plain:?}");
        }
    }

    #[test]
    fn a_tag_of_the_subjects_own_stays() {
        for (subject, expected) in [
            ("[PATCH 1/2] [metal] fix", "[metal] fix"),
            ("Re: [rfc patch] x", "x"),
            ("[metal] fix", "[metal] fix"),
        ] {
            assert_eq!(clean_subject(subject), expected);
        }
    }

    #[test]
    fn text_before_a_bare_diff_is_no_mail_and_encoded_mails_are_refused() {
        assert_eq!(read_mail(b""), Ok(None));
        assert_eq!(read_mail(b"Some words.\n\nIndex: f\n"), Ok(None));
        let encoded = b"From: a <a@b>\nSubject: x\nContent-Transfer-Encoding: base64\n\nAAAA\n";
        assert_eq!(read_mail(encoded), Err(MailError::Encoded("base64".to_owned())));
    }
}
