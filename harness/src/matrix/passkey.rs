//! The passkey task: a number hidden at a depth of a text that says nothing, and asked for at its end. An engine that lost
//! a part of its context cannot know it.

use crate::matrix::cell::{AnswerShape, Probe};

/// What the text around the key says, sentence by sentence.
const FILLER: [&str; 8] = [
    "The river is wide here and the ferry is slow.",
    "Bread is baked at four and sold by seven.",
    "Nobody remembers who planted the lime trees.",
    "In October the swallows are long gone.",
    "A dog sleeps in front of the post office.",
    "The clock of the town hall is two minutes late.",
    "On market days the square smells of herbs.",
    "Rain from the west takes an hour to cross the valley.",
];

/// The task to find `key`, hidden at `depth_percent` of a text of about `words` words.
pub fn probe(key: &str, words: usize, depth_percent: usize, max_tokens: usize) -> Probe {
    let mut sentences = Vec::new();
    let mut count = 0;
    for filler in FILLER.iter().cycle() {
        if count >= words {
            break;
        }
        count += filler.split(' ').count();
        sentences.push((*filler).to_owned());
    }
    let at = sentences.len() * depth_percent.min(100) / 100;
    sentences.insert(at, format!("The pass key is {key}. Remember it, {key} is the pass key."));
    Probe::Task {
        prompt: format!(
            "A pass key is hidden in this text. {}\n\nWhat is the pass key? Reply with the pass key only.",
            sentences.join(" ")
        ),
        expect: vec![key.to_owned()],
        shape: AnswerShape::Text,
        max_tokens,
        allow: Vec::new(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_key_lies_at_its_depth_and_the_text_has_its_length() {
        for (depth, expected) in [(0, 0.0), (25, 0.25), (50, 0.5), (75, 0.75), (100, 1.0)] {
            let Probe::Task { prompt, expect, .. } = probe("48213", 400, depth, 8) else { panic!("no task") };
            let at = prompt.find("48213").unwrap() as f64 / prompt.len() as f64;
            assert!((at - expected).abs() < 0.08, "depth {depth} lies at {at}");
            let words = prompt.split_whitespace().count();
            assert!((400..450).contains(&words), "{words} words");
            assert_eq!(expect, ["48213"]);
        }
    }
}
