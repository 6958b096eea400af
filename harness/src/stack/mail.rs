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
    let subject = clean_subject(&headers.get_first_value("Subject").unwrap_or_default());
    let text = parsed.get_body().map_err(|error| MailError::Header(error.to_string()))?;
    let (in_body_author, text) = in_body_from(&text);
    let time = headers.get_first_value("Date").and_then(|date| rfc2822_time(&date)).unwrap_or((0, 0));
    let author = in_body_author
        .or_else(|| headers.get_first_value("From").map(|from| name_and_email(&from)))
        .map(|(name, email)| Author { name, email, time_s: time.0, offset_min: time.1 });
    let message = join_message(&subject, message_text(text));
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
            Some(inner) => inner.split_once(']').map(|(_, tail)| tail),
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

fn message_text(text: &str) -> String {
    let ends = |line: &&str| matches!(line.trim_end(), "---");
    text.lines().take_while(|line| !ends(line)).map(|line| format!("{}\n", line.trim_end())).collect()
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
    fn text_before_a_bare_diff_is_no_mail_and_encoded_mails_are_refused() {
        assert_eq!(read_mail(b""), Ok(None));
        assert_eq!(read_mail(b"Some words.\n\nIndex: f\n"), Ok(None));
        let encoded = b"From: a <a@b>\nSubject: x\nContent-Transfer-Encoding: base64\n\nAAAA\n";
        assert_eq!(read_mail(encoded), Err(MailError::Encoded("base64".to_owned())));
    }
}
