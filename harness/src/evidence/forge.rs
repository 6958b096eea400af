//! The state of upstream's pull requests, asked of its forge when a token is set. Without one nothing is asked, and what
//! was recorded beside `fork.toml` counts.

use std::collections::{BTreeMap, BTreeSet};

use serde::Deserialize;

use super::report::Truth;
use crate::{
    config::fork::{Condition, ForkSpec},
    tools::{
        child::printable,
        git::mirror::owner_and_name,
        host,
        http::{self, Answer},
    },
};

/// The environment variables that may hold a token, the first that is set counts.
pub const TOKENS: [&str; 2] = ["REGRAFT_FORGE_TOKEN", "GITHUB_TOKEN"];

/// What a forge said about pull requests, by number: whether each is merged, and why that is known or not.
pub type Asked = BTreeMap<u64, (Truth, String)>;

/// Where a repository's pull requests can be asked for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Forge {
    /// The address that pull requests are below, without a slash at its end.
    pulls: String,
}

impl Forge {
    /// The forge of a repository; `None` at a host whose interface is not known here.
    pub fn of(repository: &str) -> Option<Self> {
        let name = owner_and_name(repository)?;
        let rest = repository.split_once("://").map_or(repository, |(_, rest)| rest);
        let host = rest.split(['/', ':']).next()?.rsplit('@').next()?;
        // The token is meant for this host and goes to no other.
        (host == "github.com").then(|| Self { pulls: format!("https://api.github.com/repos/{name}/pulls") })
    }

    /// Whether a pull request is merged.
    pub fn ask(&self, number: u64, token: &str) -> (Truth, String) {
        let bearer = format!("Bearer {token}");
        let headers =
            [("Authorization", bearer.as_str()), ("Accept", "application/json"), ("User-Agent", "regraft")];
        match http::get(&format!("{}/{number}", self.pulls), &headers) {
            Ok(answer) => state(number, &answer),
            Err(error) => {
                (Truth::Unknown, format!("the forge was not reached: {}", printable(&error.to_string())))
            }
        }
    }
}

/// Asks for every pull request that a fork's conditions name; nothing without a token.
pub fn asked(spec: &ForkSpec) -> Asked {
    let numbers = pull_requests(spec);
    let token = TOKENS.iter().find_map(|name| host::variable(name)).filter(|token| !token.trim().is_empty());
    let (Some(token), false) = (token, numbers.is_empty()) else { return Asked::new() };
    let Some(forge) = Forge::of(&spec.upstream.repository) else { return Asked::new() };
    numbers.into_iter().map(|number| (number, forge.ask(number, token.trim()))).collect()
}

/// The pull requests that conditions name.
fn pull_requests(spec: &ForkSpec) -> BTreeSet<u64> {
    let mut open: Vec<&Condition> =
        spec.patches.iter().filter_map(|patch| patch.retirement.as_ref()).collect();
    open.extend(&spec.retirement);
    let mut numbers = BTreeSet::new();
    while let Some(condition) = open.pop() {
        match condition {
            Condition::Any(parts) | Condition::All(parts) => open.extend(parts),
            Condition::PullRequest(number) => _ = numbers.insert(*number),
            _ => {}
        }
    }
    numbers
}

/// What a forge tells about a pull request; other keys do not matter.
#[derive(Deserialize)]
struct Pull {
    state: String,
    #[serde(default)]
    merged: bool,
    merged_at: Option<String>,
    closed_at: Option<String>,
    #[serde(default)]
    draft: bool,
}

/// What an answer says.
fn state(number: u64, answer: &Answer) -> (Truth, String) {
    let day = |at: &Option<String>| {
        at.as_deref().and_then(|at| at.get(..10)).unwrap_or("a day not told").to_owned()
    };
    match answer.status {
        200 => match serde_json::from_slice::<Pull>(&answer.body) {
            Ok(pull) if pull.merged || pull.merged_at.is_some() => {
                (Truth::True, format!("merged on {}, says the forge", day(&pull.merged_at)))
            }
            Ok(pull) if pull.state == "closed" => {
                (Truth::False, format!("closed unmerged on {}, says the forge", day(&pull.closed_at)))
            }
            Ok(pull) if pull.state == "open" => {
                let draft = if pull.draft { ", a draft" } else { "" };
                (Truth::False, format!("open{draft}, says the forge"))
            }
            Ok(pull) => (Truth::Unknown, format!("the forge calls it `{}`", printable(&pull.state))),
            Err(error) => (Truth::Unknown, format!("the forge's answer is not understood: {error}")),
        },
        401 => (Truth::Unknown, "the forge refuses the token".to_owned()),
        403 | 429 => (
            Truth::Unknown,
            "the forge answers no more: too many questions, or a token without the right".to_owned(),
        ),
        404 => (Truth::Unknown, format!("the forge knows no pull request {number} that the token may see")),
        301 | 302 | 307 | 308 => {
            (Truth::Unknown, "the repository has moved: correct upstream's address in fork.toml".to_owned())
        }
        other => (Truth::Unknown, format!("the forge answers with status {other}")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::fork::parse_fork;

    #[test]
    fn answers_are_true_false_or_unknown_with_their_reason() {
        let answer = |status: u16, body: &str| Answer { status, body: body.as_bytes().to_vec() };
        let merged = r#"{"number": 7, "state": "closed", "merged": true, "merged_at": "2026-01-31T10:00:00Z",
            "closed_at": "2026-01-31T10:00:00Z", "draft": false, "title": "x"}"#;
        let closed =
            r#"{"state": "closed", "merged": false, "merged_at": null, "closed_at": "2026-02-01T10:00:00Z"}"#;
        let told: Vec<String> = [
            answer(200, merged),
            answer(200, closed),
            answer(200, r#"{"state": "open", "merged": false, "merged_at": null, "draft": true}"#),
            answer(200, r#"{"state": "locked"}"#),
            answer(200, "<html>"),
            answer(401, r#"{"message": "Bad credentials"}"#),
            answer(403, ""),
            answer(404, r#"{"message": "Not Found"}"#),
            answer(301, ""),
            answer(503, ""),
        ]
        .iter()
        .map(|answer| {
            let (truth, why) = state(7, answer);
            format!("{truth:?}: {why}")
        })
        .collect();
        insta::assert_snapshot!(told.join("\n"), @r"
        True: merged on 2026-01-31, says the forge
        False: closed unmerged on 2026-02-01, says the forge
        False: open, a draft, says the forge
        Unknown: the forge calls it `locked`
        Unknown: the forge's answer is not understood: expected value at line 1 column 1
        Unknown: the forge refuses the token
        Unknown: the forge answers no more: too many questions, or a token without the right
        Unknown: the forge knows no pull request 7 that the token may see
        Unknown: the repository has moved: correct upstream's address in fork.toml
        Unknown: the forge answers with status 503
        ");
    }

    #[test]
    fn a_token_goes_to_the_known_host_only() {
        let pulls = |address: &str| Forge::of(address).map(|forge| forge.pulls);
        let ours = Some("https://api.github.com/repos/o/n/pulls".to_owned());
        assert_eq!(pulls("https://github.com/o/n.git"), ours);
        assert_eq!(pulls("git@github.com:o/n"), ours);
        assert_eq!(pulls("https://example.org/o/n"), None);
        assert_eq!(pulls("https://github.com.example.org/o/n"), None);
    }

    #[test]
    fn nested_pull_requests_are_found_once() {
        let text = "summary = \"\"\n[upstream]\nrepository = \"https://example.org/o/n\"\nbranch = \"main\"\n\
            [stack]\nkind = \"branch\"\nrepository = \"https://example.org/f/n\"\nbranch = \"main\"\n\
            [[patch]]\npatch = \"p\"\nany = [{ all = [{ pull-request = 3 }, { path = \"a\" }] }, { pull-request = 9 }]\n\
            [retirement]\nall = [{ pull-request = 3 }]\n";
        let spec = parse_fork("f", "fork.toml", text).unwrap();
        assert_eq!(pull_requests(&spec), BTreeSet::from([3, 9]));
    }
}
