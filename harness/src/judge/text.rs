//! T1: signals in a text that a person would notice. None decides alone: code, tables and lyrics set them off
//! legitimately, and word salad sets off none, so each counts only where the peer's text on the same prompt is clean.

use std::{collections::BTreeMap, io::Write as _};

use flate2::{Compression, write::ZlibEncoder};
use serde::{Deserialize, Serialize};
use unicode_script::{Script, UnicodeScript as _};

/// The names of all signals, as a prompt's `allow` list spells them.
pub const SIGNALS: [&str; 8] = [
    "run",
    "period",
    "replacement-character",
    "script-drift",
    "compression",
    "template",
    "symbols",
    "one-word",
];

/// One signal in a text.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct TextSignal {
    /// One of [`SIGNALS`].
    pub name: String,
    /// What a person would see.
    pub what: String,
}

/// As many equal letters in a row.
const CHARACTER_RUN: usize = 16;
/// As many equal words in a row.
const WORD_RUN: usize = 8;
/// A loop repeats at least so often at the end of a text …
const PERIOD_REPEATS: usize = 4;
/// … over at least so many characters; or twice and a half over [`LONG_PERIOD_CHARS`].
const PERIOD_CHARS: usize = 32;
/// Length from which two and a half rounds of a long loop are enough.
const LONG_PERIOD_CHARS: usize = 160;
/// Letters of a script that neither prompt nor peer uses: at least this many …
const FOREIGN_LETTERS: usize = 4;
/// … and this share of all letters, in percent.
const FOREIGN_PERCENT: usize = 10;
/// … or, among the last quarter of the letters, this share, where there are [`LATE_LETTERS`] of them.
const LATE_FOREIGN_PERCENT: usize = 20;
/// As many letters in the last quarter are enough to see a drift.
const LATE_LETTERS: usize = 24;
/// What chat templates put around turns; an answer that shows one where neither prompt nor peer does leaks its template.
/// Ids are looked at elsewhere: this sees markers that were generated as ordinary text, or cut into pieces.
const TEMPLATE_MARKERS: [&str; 19] = [
    "<|",
    "|>",
    "im_start",
    "im_end",
    "eot_id",
    "start_of_turn",
    "end_of_turn",
    "end_turn",
    "[inst]",
    "[/inst]",
    "<<sys>>",
    "<pad>",
    "<unk>",
    "<eos>",
    "<bos>",
    "</s>",
    "[end of text]",
    "### instruction",
    "<think>",
];
/// A text of symbols has at least this share of them, in percent of what is no white space …
const SYMBOL_PERCENT: usize = 45;
/// … and this many percent more than the peer's …
const SYMBOL_PERCENT_OVER_PEER: usize = 25;
/// … over at least so many characters.
const SYMBOL_CHARACTERS: usize = 24;
/// One word is this share of all words, in percent …
const ONE_WORD_PERCENT: usize = 40;
/// … where the peer's most frequent word has at most this share …
const ONE_WORD_PERCENT_OF_PEER: usize = 20;
/// … over at least so many words of each.
const ONE_WORD_WORDS: usize = 16;
/// A text compresses suspiciously well above this zlib ratio …
const COMPRESSION_RATIO: f64 = 2.4;
/// … if it is also this many times the peer's ratio at equal length …
const COMPRESSION_OVER_PEER: f64 = 1.6;
/// … and there is enough of both to compare, in bytes.
const COMPRESSION_BYTES: usize = 120;

/// The signals of `text`, given the prompt and the text of the engine taken as right. A signal that the peer's text sets
/// off too is left out, as are those of the prompt's allow-list.
pub fn signals(text: &str, prompt: &str, peer: &str, allow: &[String]) -> Vec<TextSignal> {
    let own = alone(text);
    let peers = alone(peer);
    own.into_iter()
        .filter(|s| peers.iter().all(|p| p.name != s.name))
        .chain(script_drift(text, &[prompt, peer]))
        .chain(template(text, &[prompt, peer]))
        .chain(symbols(text, peer))
        .chain(one_word(text, peer))
        .chain(compression(text, peer))
        .filter(|s| !allow.contains(&s.name))
        .collect()
}

/// The shortest period that the end of a text repeats with, its rounds times length covered, and the period itself.
///
/// Z-function over the reversed characters: `z[p]` characters from `p` on equal the beginning, so the last `p + z[p]`
/// characters of the text have period `p`. No period is too long.
pub fn suffix_period(text: &str) -> Option<(usize, usize)> {
    let reversed: Vec<char> = text.trim_end().chars().rev().collect();
    let z = z_function(&reversed);
    (1..reversed.len()).map(|p| (p, p + z[p])).find(|(p, covered)| {
        (*covered >= PERIOD_CHARS && *covered >= PERIOD_REPEATS * p)
            || (*covered >= LONG_PERIOD_CHARS && 2 * covered >= 5 * p)
    })
}

fn alone(text: &str) -> Vec<TextSignal> {
    let mut out = Vec::new();
    let mut add = |name: &str, what: String| out.push(TextSignal { name: name.to_owned(), what });
    let characters: Vec<char> = text.chars().collect();
    if let Some((n, c)) =
        longest_run(&characters, |c| !c.is_whitespace()).filter(|(n, _)| *n >= CHARACTER_RUN)
    {
        add("run", format!("{:?} {n} times in a row", c.to_string()));
    } else {
        let words: Vec<&str> = text.split_whitespace().collect();
        if let Some((n, w)) = longest_run(&words, |_| true).filter(|(n, _)| *n >= WORD_RUN) {
            add("run", format!("the word {w:?} {n} times in a row"));
        }
    }
    if let Some((period, covered)) = suffix_period(text) {
        add("period", format!("the last {covered} characters repeat every {period}"));
    }
    if text.contains('\u{fffd}') {
        add("replacement-character", "holds U+FFFD".to_owned());
    }
    out
}

fn longest_run<T: PartialEq>(items: &[T], counts: impl Fn(&T) -> bool) -> Option<(usize, &T)> {
    items
        .chunk_by(PartialEq::eq)
        .filter(|run| counts(&run[0]))
        .map(|run| (run.len(), &run[0]))
        .reduce(|best, run| if run.0 > best.0 { run } else { best })
}

fn z_function(s: &[char]) -> Vec<usize> {
    let mut z = vec![0; s.len()];
    let (mut l, mut r) = (0, 0);
    for i in 1..s.len() {
        let mut k = if i < r { z[i - l].min(r - i) } else { 0 };
        while i + k < s.len() && s[k] == s[i + k] {
            k += 1;
        }
        z[i] = k;
        if i + k > r {
            (l, r) = (i, i + k);
        }
    }
    z
}

/// Letters by script; Chinese and Japanese writing mix by nature and count as one.
fn scripts(text: &str) -> BTreeMap<&'static str, usize> {
    let mut counts = BTreeMap::new();
    for c in text.chars() {
        if let Some(name) = script_name(c) {
            *counts.entry(name).or_insert(0) += 1;
        }
    }
    counts
}

fn script_name(c: char) -> Option<&'static str> {
    match c.script() {
        Script::Common | Script::Inherited | Script::Unknown => None,
        Script::Han | Script::Hiragana | Script::Katakana => Some("Han and Kana"),
        other => Some(other.full_name()),
    }
}

fn template(text: &str, known: &[&str]) -> Option<TextSignal> {
    let text = text.to_lowercase();
    let known: Vec<String> = known.iter().map(|t| t.to_lowercase()).collect();
    let marker = TEMPLATE_MARKERS
        .into_iter()
        .find(|marker| text.contains(marker) && known.iter().all(|k| !k.contains(marker)))?;
    Some(TextSignal {
        name: "template".to_owned(),
        what: format!("holds {marker:?}, a mark of chat templates"),
    })
}

/// Symbols among what is no white space, in percent, and how many characters that is.
fn symbol_percent(text: &str) -> (usize, usize) {
    let visible = text.chars().filter(|c| !c.is_whitespace());
    let (symbols, n) = visible.fold((0, 0), |(s, n), c| (s + usize::from(!c.is_alphanumeric()), n + 1));
    ((symbols * 100_usize).checked_div(n).unwrap_or(0), n)
}

fn symbols(text: &str, peer: &str) -> Option<TextSignal> {
    let ((own, n), (peers, _)) = (symbol_percent(text), symbol_percent(peer));
    (n >= SYMBOL_CHARACTERS && own >= SYMBOL_PERCENT && own >= peers + SYMBOL_PERCENT_OVER_PEER).then(|| {
        TextSignal {
            name: "symbols".to_owned(),
            what: format!("{own} % of it are symbols, of the peer's text {peers} %"),
        }
    })
}

/// The most frequent word, its share in percent, and how many words there are.
fn frequent_word(text: &str) -> Option<(String, usize, usize)> {
    let mut counts: BTreeMap<String, usize> = BTreeMap::new();
    for word in text.split(|c: char| !c.is_alphanumeric()).filter(|w| !w.is_empty()) {
        *counts.entry(word.to_lowercase()).or_insert(0) += 1;
    }
    let words: usize = counts.values().sum();
    let (word, n) = counts.into_iter().max_by_key(|(_, n)| *n)?;
    Some((word, n * 100 / words, words))
}

fn one_word(text: &str, peer: &str) -> Option<TextSignal> {
    let (word, own, words) = frequent_word(text)?;
    let (_, peers, peer_words) = frequent_word(peer)?;
    (words >= ONE_WORD_WORDS
        && peer_words >= ONE_WORD_WORDS
        && own >= ONE_WORD_PERCENT
        && peers <= ONE_WORD_PERCENT_OF_PEER)
        .then(|| TextSignal {
            name: "one-word".to_owned(),
            what: format!("{own} % of its words are {word:?}"),
        })
}

fn script_drift(text: &str, known: &[&str]) -> Option<TextSignal> {
    let own = scripts(text);
    let letters: usize = own.values().sum();
    let known: Vec<_> = known.iter().map(|t| scripts(t)).collect();
    let foreign = |script: &&str| known.iter().all(|k| !k.contains_key(*script));
    let anywhere = own
        .iter()
        .filter(|(script, n)| {
            **n >= FOREIGN_LETTERS && **n * 100 >= letters * FOREIGN_PERCENT && foreign(script)
        })
        .max_by_key(|(_, n)| **n);
    if anywhere.is_none() {
        // A long sound beginning must not hide that the end has drifted away.
        let all: Vec<char> = text.chars().filter(|c| script_name(*c).is_some()).collect();
        let late = scripts(&all[all.len() - all.len() / 4..].iter().collect::<String>());
        let total: usize = late.values().sum();
        return late
            .iter()
            .filter(|(script, n)| {
                total >= LATE_LETTERS && **n * 100 >= total * LATE_FOREIGN_PERCENT && foreign(script)
            })
            .max_by_key(|(_, n)| **n)
            .map(|(script, n)| TextSignal {
                name: "script-drift".to_owned(),
                what: format!(
                    "{n} of its last {total} letters are {script}, which neither prompt nor peer uses"
                ),
            });
    }
    anywhere.map(|(script, n)| TextSignal {
        name: "script-drift".to_owned(),
        what: format!("{n} of {letters} letters are {script}, which neither prompt nor peer uses"),
    })
}

#[expect(clippy::cast_precision_loss, reason = "texts are far below 2^52 bytes")]
fn zlib_ratio(bytes: &[u8]) -> f64 {
    let mut encoder = ZlibEncoder::new(Vec::new(), Compression::new(6));
    encoder.write_all(bytes).expect("writing to a vector cannot fail");
    let packed = encoder.finish().expect("writing to a vector cannot fail");
    bytes.len() as f64 / packed.len() as f64
}

/// Both texts are cut to the shorter one's length, because the ratio grows with length.
fn compression(text: &str, peer: &str) -> Option<TextSignal> {
    let n = text.len().min(peer.len());
    if n < COMPRESSION_BYTES {
        return None;
    }
    let (own, peers) = (zlib_ratio(&text.as_bytes()[..n]), zlib_ratio(&peer.as_bytes()[..n]));
    (own > COMPRESSION_RATIO && own > COMPRESSION_OVER_PEER * peers).then(|| TextSignal {
        name: "compression".to_owned(),
        what: format!(
            "compresses {own:.1} times where the peer's text of equal length compresses {peers:.1} times"
        ),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(text: &str, prompt: &str, peer: &str) -> Vec<String> {
        signals(text, prompt, peer, &[]).into_iter().map(|s| s.name).collect()
    }

    const PROSE: &str = "The capital of France is Paris. It lies on the river Seine, and it has been the seat of its \
                         kings, emperors and presidents for most of a thousand years, with few breaks.";

    #[test]
    fn a_loop_of_any_period_is_seen() {
        for period in [1, 2, 7, 40, 113, 400_usize] {
            let letter = |i: u64| char::from(b'a' + (i.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 59) as u8 % 26);
            let unit: String = (0..period as u64).map(|i| letter(i * i + 1)).collect();
            let text = format!("{PROSE} {}", unit.repeat(400_usize.div_ceil(period).max(4)));
            let (found, covered) = suffix_period(&text).unwrap();
            assert!(
                period % found == 0 && covered >= 3 * period,
                "period {period}: found {found} over {covered}"
            );
            assert!(names(&text, "", PROSE).contains(&"period".to_owned()), "period {period}");
        }
    }

    #[test]
    fn prose_and_awkward_texts_are_clean_beside_their_like() {
        let table = "| a | b |\n|---|---|\n| 1 | 2 |\n| 3 | 4 |\n| 5 | 6 |\n| 7 | 8 |\n";
        let code = "for i in 0..4 {\n    println!(\"{i}\");\n}\nfor j in 0..4 {\n    println!(\"{j}\");\n}\n";
        for text in [PROSE, table, code, "391", "Hi", "東京は日本の首都です。カタカナもある。", ""]
        {
            assert_eq!(names(text, "", text), Vec::<String>::new(), "{text}");
        }
        assert_eq!(names(PROSE, "What is the capital of France?", "Paris."), Vec::<String>::new());
    }

    #[test]
    fn what_a_person_would_notice_is_named() {
        let cases = [
            ("!!!!!!!!!!!!!!!!!!!!", "run"),
            ("no no no no no no no no no no", "run"),
            ("The capital is Пари́ж и Москва", "script-drift"),
            ("The capital is P\u{fffd}ris", "replacement-character"),
            ("The capital is Paris.<|im_end|> <|im_start|>user", "template"),
            (".5\"5.F9(CB;6@FC9!DC:$%&/(=?*#+;:!\"5.)=%&$(", "symbols"),
            (
                "the the capital the of the the is the Paris the the and the the of the the river the",
                "one-word",
            ),
        ];
        for (text, signal) in cases {
            assert!(
                names(text, "What is the capital of France?", PROSE).contains(&signal.to_owned()),
                "{text}"
            );
        }
        let stuttered = "The capital of France is Paris, and the capital of France is Paris. ".repeat(3);
        assert!(names(&stuttered, "", PROSE).contains(&"compression".to_owned()));
    }

    #[test]
    fn a_drift_at_the_end_of_a_long_text_is_seen() {
        let text = format!("{} и потом всё пошло", PROSE.repeat(2));
        assert!(names(&text, "What is the capital of France?", PROSE).contains(&"script-drift".to_owned()));
        // One name in another script is no drift.
        let named = format!("{} In Russian it is written Париж. {}", PROSE, PROSE);
        assert_eq!(names(&named, "What is the capital of France?", &named.replace("Париж", "x")), [""; 0]);
    }

    #[test]
    fn a_signal_that_the_peer_shares_or_the_prompt_allows_does_not_count() {
        let loud = "ha ha ha ha ha ha ha ha ha ha ha ha ha ha ha ha ha ha ha ha";
        assert!(names(loud, "", loud).is_empty());
        let allow: Vec<String> = SIGNALS.iter().map(|s| (*s).to_owned()).collect();
        assert!(signals(loud, "", PROSE, &allow).is_empty());
    }
}
