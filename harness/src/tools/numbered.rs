//! Maps by number in JSON, whose keys are always text. Serde turns them back into numbers by itself, except below an enum that
//! is tagged inside: there it buffers the value first and then finds text where it wants a number. Maps by number that may lie
//! below such an enum are read by this.

use std::{collections::BTreeMap, fmt, str::FromStr};

use serde::{Deserialize, Deserializer, de};

/// For `#[serde(deserialize_with = "…")]`.
///
/// # Errors
/// When a key is no such number.
pub fn map<'de, D, K, V>(deserializer: D) -> Result<BTreeMap<K, V>, D::Error>
where
    D: Deserializer<'de>,
    K: FromStr<Err: fmt::Display> + Ord,
    V: Deserialize<'de>,
{
    BTreeMap::<String, V>::deserialize(deserializer)?
        .into_iter()
        .map(|(key, value)| match key.parse() {
            Ok(number) => Ok((number, value)),
            Err(why) => Err(de::Error::custom(format_args!("key `{key}`: {why}"))),
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use serde::Serialize;

    use super::*;

    #[derive(Debug, PartialEq, Serialize, Deserialize)]
    #[serde(tag = "kind")]
    enum Tagged {
        Of {
            #[serde(deserialize_with = "map")]
            numbers: BTreeMap<u32, String>,
        },
    }

    #[test]
    fn numbers_come_back_below_an_enum_that_is_tagged_inside() {
        let tagged = Tagged::Of { numbers: BTreeMap::from([(7, "a".to_owned()), (511, "b".to_owned())]) };
        let text = serde_json::to_string(&tagged).unwrap();
        assert_eq!(serde_json::from_str::<Tagged>(&text).unwrap(), tagged);
        let error = serde_json::from_str::<Tagged>(&text.replace("511", "-1")).unwrap_err();
        assert!(error.to_string().contains("key `-1`"), "{error}");
    }
}
