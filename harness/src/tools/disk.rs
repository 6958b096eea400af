//! What a person may try when a file or folder cannot be read or written. It looks at nothing but the error.

use std::io::{self, ErrorKind};

use super::file;

/// What to try about `source`, where that can be told from its kind.
pub fn hint(source: &io::Error) -> Option<String> {
    if let Some(refused) = file::refusal(source) {
        return Some(refused.hint().to_owned());
    }
    let text = match source.kind() {
        ErrorKind::PermissionDenied | ErrorKind::ReadOnlyFilesystem => {
            "make it readable and writable for this user, then run the same command again"
        }
        ErrorKind::NotADirectory | ErrorKind::AlreadyExists | ErrorKind::IsADirectory => {
            "something else stands in its place: move that away, then run the same command again"
        }
        ErrorKind::StorageFull | ErrorKind::QuotaExceeded => {
            "make room on the disk, then run the same command again: it goes on from where it was"
        }
        _ => return None,
    };
    Some(text.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_person_can_mend_is_told() {
        for (kind, word) in [
            (ErrorKind::PermissionDenied, "writable"),
            (ErrorKind::NotADirectory, "move that away"),
            (ErrorKind::StorageFull, "make room"),
        ] {
            assert!(hint(&kind.into()).unwrap().contains(word), "{kind}");
        }
        assert_eq!(hint(&ErrorKind::NotFound.into()), None);
    }
}
