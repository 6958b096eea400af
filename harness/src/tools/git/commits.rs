//! Commits byte by byte: author line, encoding and message are kept as they were read, whatever bytes they hold. Signed
//! ones are written by git itself.

use std::{
    ffi::{OsStr, OsString},
    os::unix::ffi::{OsStrExt as _, OsStringExt as _},
    time::Duration,
};

use git2::ObjectType;

use super::{
    command::with_user_settings,
    ids::{CommitId, TreeId},
    store::{Person, Store, StoreError, failed},
};
use crate::tools::process::ProcessError;

/// How long signing one commit may take: a person may have to enter a passphrase or touch a key.
const SIGNING: Duration = Duration::from_secs(300);

/// What a commit says about its change.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CommitBytes {
    /// Name, address, seconds since 1970 and zone, as in the commit object: `A Person <a@example.org> 1700000000 +0100`.
    pub author: Vec<u8>,
    /// The name of the encoding of author and message, where it is not UTF-8.
    pub encoding: Option<Vec<u8>>,
    /// The message.
    pub message: Vec<u8>,
}

impl CommitBytes {
    /// The text of a commit that `author` makes.
    pub fn new(author: &Person, message: &str) -> Self {
        Self { author: identity(author), encoding: None, message: message.as_bytes().to_vec() }
    }

    /// When the author made the change, in seconds since 1970; 0 where the line does not tell.
    pub fn time_s(&self) -> i64 {
        let mut words = self.author.rsplit(|&byte| byte == b' ');
        words.nth(1).and_then(|word| std::str::from_utf8(word).ok()?.parse().ok()).unwrap_or(0)
    }

    /// The author's name and address, as `Name <address>`.
    pub fn name_and_address(&self) -> &[u8] {
        let end = self.author.iter().rposition(|&byte| byte == b'>').map_or(self.author.len(), |at| at + 1);
        &self.author[..end]
    }
}

/// Whether commits are signed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Signing {
    /// They are not.
    No,
    /// They are, by this committer (`Name <address>`).
    As(String),
}

/// Why the user's git settings could not be read or a commit not be signed.
#[derive(Debug, thiserror::Error)]
pub enum SignError {
    /// Git does not say.
    #[error("cannot ask git whether commits are to be signed")]
    Settings(#[source] Box<ProcessError>),
    /// Git could not sign.
    #[error("cannot sign a commit, though git is configured to (`commit.gpgSign`)")]
    Sign(#[source] Box<ProcessError>),
    /// Git answered with something else than a commit's id.
    #[error("git's answer to a signed commit is no id: `{0}`")]
    Answer(String),
}

impl Store {
    /// The text of a commit.
    ///
    /// # Errors
    /// When the commit is not there.
    pub fn commit_bytes(&self, id: CommitId) -> Result<CommitBytes, StoreError> {
        let commit = self.repo.find_commit(id.oid()).map_err(|e| failed(format!("read commit {id}"), e))?;
        let header = commit.raw_header_bytes();
        let field = |name: &[u8]| {
            let mut lines = header.split(|&byte| byte == b'\n');
            lines.find_map(|line| line.strip_prefix(name)).map(<[u8]>::to_vec)
        };
        Ok(CommitBytes {
            author: field(b"author ").unwrap_or_default(),
            encoding: field(b"encoding "),
            message: commit.message_raw_bytes().to_vec(),
        })
    }

    /// Writes a commit over `parent`; equal input gives an equal id.
    ///
    /// # Errors
    /// When the disk says no.
    pub fn write_commit_bytes(
        &self,
        tree: TreeId,
        parent: CommitId,
        text: &CommitBytes,
        committer: &[u8],
    ) -> Result<CommitId, StoreError> {
        let mut bytes = format!("tree {tree}\nparent {parent}\n").into_bytes();
        for (name, value) in [("author", Some(&text.author[..])), ("committer", Some(committer))]
            .into_iter()
            .chain([("encoding", text.encoding.as_deref())])
        {
            if let Some(value) = value {
                bytes.extend(name.bytes().chain([b' ']).chain(value.iter().copied()).chain([b'\n']));
            }
        }
        bytes.push(b'\n');
        bytes.extend(&text.message);
        let write = || self.repo.odb()?.write(ObjectType::Commit, &bytes);
        write().map(CommitId::of).map_err(|e| failed("write a commit".to_owned(), e))
    }

    /// Whether the user's git settings ask for signed commits, and by whom.
    ///
    /// # Errors
    /// When git cannot be run or knows no committer.
    pub fn signing(&self) -> Result<Signing, SignError> {
        let ask = |args: &[&str]| {
            let answer = with_user_settings(self.path()).args(args).run_ok();
            answer.map_err(|source| SignError::Settings(Box::new(source)))
        };
        let sign = ask(&["config", "--type=bool", "--default=false", "--get", "commit.gpgSign"])?;
        if sign.stdout.trim() != "true" {
            return Ok(Signing::No);
        }
        let ident = ask(&["var", "GIT_COMMITTER_IDENT"])?.stdout;
        let end = ident.rfind('>').map_or(ident.len(), |at| at + 1);
        Ok(Signing::As(ident[..end].to_owned()))
    }

    /// Writes a commit like [`Store::write_commit_bytes`] and lets git sign it the way the user has configured.
    ///
    /// # Errors
    /// When git cannot sign.
    pub fn write_signed(
        &self,
        tree: TreeId,
        parent: CommitId,
        text: &CommitBytes,
        committer: &[u8],
    ) -> Result<CommitId, SignError> {
        let mut command = with_user_settings(self.path());
        if let Some(encoding) = &text.encoding {
            let mut setting = OsString::from("i18n.commitEncoding=");
            setting.push(OsStr::from_bytes(encoding));
            command = command.arg("-c").arg(setting);
        }
        for (role, line) in [("AUTHOR", &text.author[..]), ("COMMITTER", committer)] {
            let [name, address, date] = parts_of(line);
            command = command
                .env(format!("GIT_{role}_NAME"), OsString::from_vec(name))
                .env(format!("GIT_{role}_EMAIL"), OsString::from_vec(address))
                .env(format!("GIT_{role}_DATE"), OsString::from_vec([b"@", &date[..]].concat()));
        }
        let answer = command
            .args(["commit-tree", "-S", "-p"])
            .args([parent.to_string(), tree.to_string()])
            .stdin(text.message.clone())
            .timeout(SIGNING)
            .run_ok()
            .map_err(|source| SignError::Sign(Box::new(source)))?
            .stdout;
        answer.trim().parse().map_err(|_| SignError::Answer(answer))
    }
}

/// A person as a commit object names them.
pub fn identity(person: &Person) -> Vec<u8> {
    let Person { name, email, time_s, offset_min } = person;
    // Git leaves these out as well: they would end the line or the address.
    let plain = |text: &str| text.replace(['<', '>', '\n', '\0'], "").trim().to_owned();
    let (sign, offset) = (if *offset_min < 0 { '-' } else { '+' }, offset_min.unsigned_abs());
    let zone = format!("{sign}{:02}{:02}", offset / 60, offset % 60);
    format!("{} <{}> {time_s} {zone}", plain(name), plain(email)).into_bytes()
}

fn parts_of(line: &[u8]) -> [Vec<u8>; 3] {
    let open = line.iter().rposition(|&byte| byte == b'<').unwrap_or(line.len());
    let close = line.iter().rposition(|&byte| byte == b'>').unwrap_or(line.len());
    let part = |from: usize, to: usize| line.get(from..to).unwrap_or_default().trim_ascii().to_vec();
    [part(0, open), part(open + 1, close), part(close + 1, line.len())]
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tools::git::fixture::ForkFixture;

    #[test]
    fn a_commit_in_another_encoding_is_written_again_bit_by_bit() {
        let fixture = ForkFixture::new(&[("f", "a\n")]);
        let store = &fixture.store;
        let tree = store.commit(fixture.base).unwrap().tree;
        let text = CommitBytes {
            author: b"J\xfcrgen <j@example.org> 1700000000 -0130".to_vec(),
            encoding: Some(b"ISO-8859-1".to_vec()),
            message: b"caf\xe9\n\nText.\n\nReviewed-by: \xfc\n".to_vec(),
        };
        let committer = b"C <c@example.org> 1700000060 +0000";
        let commit = store.write_commit_bytes(tree, fixture.base, &text, committer).unwrap();
        assert_eq!(store.commit_bytes(commit).unwrap(), text);
        assert_eq!(
            (text.time_s(), text.name_and_address()),
            (1_700_000_000, &b"J\xfcrgen <j@example.org>"[..])
        );
        let again = store.write_commit_bytes(tree, fixture.base, &text, committer).unwrap();
        assert_eq!(again, commit);
    }

    #[test]
    fn persons_are_written_as_git_writes_them() {
        let person =
            Person { name: "A <b>\n".to_owned(), email: "a@b".to_owned(), time_s: 5, offset_min: -90 };
        assert_eq!(identity(&person), b"A b <a@b> 5 -0130");
        assert_eq!(parts_of(b"A b <a@b> 5 -0130"), [b"A b".to_vec(), b"a@b".to_vec(), b"5 -0130".to_vec()]);
    }
}
