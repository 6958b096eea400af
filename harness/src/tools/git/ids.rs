//! Ids of git objects as values of their own kinds, so that a tree cannot be passed where a commit belongs.

use std::{fmt, str::FromStr};

use serde::{Deserialize, Deserializer, Serialize, Serializer};

/// Text that is not a full object id.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("`{0}` is not a full object id of 40 hexadecimal digits")]
pub struct BadId(pub String);

macro_rules! object_id {
    ($(#[$doc:meta])* $name:ident) => {
        $(#[$doc])*
        #[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub struct $name([u8; 20]);

        impl $name {
            pub(super) fn of(oid: git2::Oid) -> Self {
                let mut bytes = [0; 20];
                bytes.copy_from_slice(oid.as_bytes());
                Self(bytes)
            }

            #[allow(dead_code)]
            pub(super) fn oid(self) -> git2::Oid {
                git2::Oid::from_bytes(&self.0).expect("an object id has 20 bytes")
            }

            /// The first nine digits, for people.
            pub fn short(self) -> String {
                self.to_string()[..9].to_owned()
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                self.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
            }
        }

        impl fmt::Debug for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                write!(f, "{}({self})", stringify!($name))
            }
        }

        impl FromStr for $name {
            type Err = BadId;

            fn from_str(text: &str) -> Result<Self, BadId> {
                let full = text.len() == 40 && text.bytes().all(|byte| byte.is_ascii_hexdigit());
                git2::Oid::from_str(text).ok().filter(|_| full).map(Self::of).ok_or_else(|| BadId(text.to_owned()))
            }
        }

        impl Serialize for $name {
            fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
                serializer.collect_str(self)
            }
        }

        impl<'de> Deserialize<'de> for $name {
            fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
                String::deserialize(deserializer)?.parse().map_err(serde::de::Error::custom)
            }
        }
    };
}

object_id!(
    /// A commit's id.
    CommitId
);
object_id!(
    /// A tree's id.
    TreeId
);
object_id!(
    /// The id of whatever a tree's entry names: a blob, or the commit of a submodule.
    EntryId
);
object_id!(
    /// Equal for two changes that differ in nothing but line numbers and white space: `git patch-id --stable`.
    PatchId
);

impl TreeId {
    /// The id as an entry of a tree names it.
    pub fn as_entry(self) -> EntryId {
        EntryId(self.0)
    }
}
