//! Texts of the self-test, all from a seed: clean outputs of many awkward kinds, and ways in which a broken engine's text
//! looks. Each kind is given as a pair, because the judge always has another engine's text on the same prompt.

use rand_pcg::{
    Pcg64,
    rand_core::{Rng, SeedableRng as _},
};

use super::score::Strength;

/// Random choices for texts.
pub(crate) struct Dice(Pcg64);

/// A kind of clean output.
#[derive(Debug, Clone, Copy)]
pub(crate) struct CleanKind {
    pub(crate) name: &'static str,
    pub(crate) prompt: &'static str,
    /// Signals that a right answer to this prompt may set off.
    pub(crate) allow: &'static [&'static str],
    pub(crate) make: fn(&mut Dice) -> String,
}

/// A kind of broken text.
#[derive(Debug, Clone, Copy)]
pub(crate) struct TextFault {
    pub(crate) name: &'static str,
    pub(crate) root_cause: &'static str,
    pub(crate) tier: &'static str,
    pub(crate) tuned: bool,
    /// The broken text, from a sound one.
    pub(crate) spoil: fn(&mut Dice, &str, Strength) -> String,
}

pub(crate) const CLEAN: [CleanKind; 15] = [
    CleanKind { name: "prose", prompt: "Tell me about a town by a river.", allow: &[], make: prose },
    CleanKind {
        name: "python",
        prompt: "Write a Python function that sums a list.",
        allow: &["period"],
        make: python,
    },
    CleanKind { name: "rust", prompt: "Write a Rust function with a test.", allow: &["period"], make: rust },
    CleanKind {
        name: "markdown-table",
        prompt: "Make a table of towns.",
        allow: &["period", "symbols"],
        make: table,
    },
    CleanKind {
        name: "csv",
        prompt: "Give me the readings as CSV.",
        allow: &["period", "one-word"],
        make: csv,
    },
    CleanKind { name: "json", prompt: "Reply with JSON.", allow: &["period", "symbols"], make: json },
    CleanKind {
        name: "html",
        prompt: "Write an HTML list of links.",
        allow: &["period", "symbols"],
        make: html,
    },
    CleanKind {
        name: "lyrics",
        prompt: "Write a song with a refrain.",
        allow: &["period", "compression", "run", "one-word"],
        make: lyrics,
    },
    CleanKind { name: "chinese", prompt: "请介绍一座河边的城市。", allow: &[], make: chinese },
    CleanKind {
        name: "japanese",
        prompt: "川のほとりの町について書いてください。",
        allow: &[],
        make: japanese,
    },
    CleanKind { name: "list", prompt: "List things to pack.", allow: &["period"], make: list },
    CleanKind { name: "refusal", prompt: "Tell me something that you must not.", allow: &[], make: refusal },
    CleanKind { name: "short", prompt: "Hi", allow: &[], make: short },
    CleanKind {
        name: "hexdump",
        prompt: "Show the bytes of the file.",
        allow: &["period", "run", "one-word", "compression"],
        make: hexdump,
    },
    CleanKind {
        name: "russian", prompt: "Расскажи о городе у реки.", allow: &[], make: russian
    },
];

pub(crate) const FAULTS: [TextFault; 10] = [
    TextFault {
        name: "loop-to-20",
        root_cause: "loop",
        tier: "text",
        tuned: true,
        spoil: |d, t, s| looped(d, t, s, 1, 20),
    },
    TextFault {
        name: "loop-to-80",
        root_cause: "loop",
        tier: "text",
        tuned: false,
        spoil: |d, t, s| looped(d, t, s, 21, 80),
    },
    TextFault {
        name: "loop-to-400",
        root_cause: "loop",
        tier: "text",
        tuned: false,
        spoil: |d, t, s| looped(d, t, s, 81, 400),
    },
    TextFault { name: "wrong-script", root_cause: "script", tier: "text", tuned: true, spoil: wrong_script },
    TextFault {
        name: "mixed-scripts",
        root_cause: "script",
        tier: "text",
        tuned: false,
        spoil: mixed_scripts,
    },
    TextFault { name: "nan-marks", root_cause: "nan", tier: "hard", tuned: true, spoil: nan_marks },
    TextFault {
        name: "template-leak",
        root_cause: "template",
        tier: "text",
        tuned: false,
        spoil: template_leak,
    },
    TextFault { name: "symbol-noise", root_cause: "noise", tier: "text", tuned: true, spoil: symbol_noise },
    TextFault {
        name: "wrong-answer",
        root_cause: "lost context",
        tier: "tasks",
        tuned: false,
        spoil: wrong_answer,
    },
    TextFault { name: "broken-bytes", root_cause: "bytes", tier: "hard", tuned: false, spoil: broken_bytes },
];

impl Dice {
    pub(crate) fn new(seed: u64) -> Self {
        Self(Pcg64::seed_from_u64(seed))
    }

    /// A number from `low` up to and with `high`.
    pub(crate) fn between(&mut self, low: usize, high: usize) -> usize {
        low + ((u128::from(self.0.next_u64()) * (high - low + 1) as u128) >> 64) as usize
    }

    pub(crate) fn pick<'w, T: ?Sized>(&mut self, of: &[&'w T]) -> &'w T {
        of[self.between(0, of.len() - 1)]
    }

    fn name(&mut self) -> String {
        format!("{}{}", self.pick(&STARTS), self.pick(&ENDS))
    }

    fn many(
        &mut self,
        low: usize,
        high: usize,
        mut one: impl FnMut(&mut Self, usize) -> String,
        join: &str,
    ) -> String {
        let n = self.between(low, high);
        (0..n).map(|i| one(self, i)).collect::<Vec<_>>().join(join)
    }
}

const STARTS: [&str; 14] = [
    "Alder", "Brook", "Carl", "Dun", "Elm", "Fern", "Gren", "Hol", "Iver", "Kirk", "Lind", "Mor", "North",
    "Oster",
];
const ENDS: [&str; 10] = ["ford", "by", "ton", "wick", "holm", "stead", "field", "berg", "mouth", "dale"];
const NOUNS: [&str; 24] = [
    "bridge", "market", "harbour", "library", "garden", "tower", "school", "mill", "station", "orchard",
    "square", "ferry", "wall", "lamp", "kitchen", "letter", "winter", "boat", "road", "forest", "window",
    "stone", "morning", "river",
];
const VERBS: [&str; 16] = [
    "crosses",
    "keeps",
    "holds",
    "faces",
    "remembers",
    "follows",
    "feeds",
    "guards",
    "warms",
    "opens",
    "carries",
    "meets",
    "leaves",
    "draws",
    "mends",
    "hides",
];
const ADJECTIVES: [&str; 16] = [
    "old", "quiet", "broad", "narrow", "green", "cold", "famous", "small", "wooden", "distant", "bright",
    "heavy", "early", "patient", "empty", "red",
];
const LINKS: [&str; 8] = ["because", "while", "although", "and", "so that", "until", "where", "but"];

fn clause(d: &mut Dice) -> String {
    let (a, b) = (d.pick(&ADJECTIVES), d.pick(&ADJECTIVES));
    format!("the {a} {} {} the {b} {}", d.pick(&NOUNS), d.pick(&VERBS), d.pick(&NOUNS))
}

fn sentence(d: &mut Dice) -> String {
    let mut text = clause(d);
    if d.between(0, 2) > 0 {
        text += &format!(" {} {}", d.pick(&LINKS), clause(d));
    }
    let mut letters = text.chars();
    let first: String = letters.next().into_iter().flat_map(char::to_uppercase).collect();
    format!("{first}{}.", letters.as_str())
}

pub(crate) fn prose(d: &mut Dice) -> String {
    let name = d.name();
    let body = d.many(3, 8, |d, _| sentence(d), " ");
    format!("{name} lies in the {} of the country. {body}", d.pick(&["north", "south", "east", "west"]))
}

fn python(d: &mut Dice) -> String {
    let (noun, other) = (d.pick(&NOUNS), d.pick(&NOUNS));
    let checks = d.many(
        1,
        4,
        |d, _| {
            let key = d.pick(&NOUNS);
            format!("    if {key} is None:\n        raise ValueError(\"{key} is missing\")\n")
        },
        "",
    );
    format!(
        "```python\ndef total_{noun}({other}s):\n    \"\"\"Sum the {other}s.\"\"\"\n{checks}    total = 0\n    for {other} in \
         {other}s:\n        total += {other}\n    return total\n\n\nprint(total_{noun}([{}]))\n```",
        d.many(3, 6, |d, _| d.between(1, 99).to_string(), ", ")
    )
}

fn rust(d: &mut Dice) -> String {
    let noun = d.pick(&NOUNS);
    let asserts = d.many(
        2,
        5,
        |d, _| {
            let (a, b) = (d.between(1, 50), d.between(1, 50));
            format!("        assert_eq!({noun}_sum({a}, {b}), {});\n", a + b)
        },
        "",
    );
    format!(
        "fn {noun}_sum(a: i64, b: i64) -> i64 {{\n    a + b\n}}\n\n#[cfg(test)]\nmod tests {{\n    use super::*;\n\n    \
         #[test]\n    fn adds() {{\n{asserts}    }}\n}}\n"
    )
}

fn table(d: &mut Dice) -> String {
    let rows = d.many(
        4,
        9,
        |d, _| format!("| {} | {} | {} |", d.name(), d.between(900, 90_000), d.pick(&ADJECTIVES)),
        "\n",
    );
    format!("| Town | Inhabitants | Note |\n|------|-------------|------|\n{rows}\n")
}

fn csv(d: &mut Dice) -> String {
    let rows = d.many(
        6,
        20,
        |d, i| {
            let value = if d.between(0, 3) == 0 {
                "0.0".to_owned()
            } else {
                format!("{}.{}", d.between(1, 30), d.between(0, 9))
            };
            format!("2024-03-{:02},{value},ok", i % 28 + 1)
        },
        "\n",
    );
    format!("date,value,state\n{rows}\n")
}

fn json(d: &mut Dice) -> String {
    let items = d.many(
        2,
        6,
        |d, i| {
            format!(
                "    {{\n      \"id\": {i},\n      \"name\": \"{}\",\n      \"open\": {},\n      \"size\": {}\n    }}",
                d.name(),
                d.pick(&["true", "false"]),
                d.between(1, 500)
            )
        },
        ",\n",
    );
    format!("{{\n  \"towns\": [\n{items}\n  ]\n}}")
}

fn html(d: &mut Dice) -> String {
    let items = d.many(
        3,
        9,
        |d, _| {
            let name = d.name();
            format!("  <li><a href=\"/{}\">{name}</a></li>", name.to_lowercase())
        },
        "\n",
    );
    format!("<!DOCTYPE html>\n<html>\n<body>\n<h1>{}</h1>\n<ul>\n{items}\n</ul>\n</body>\n</html>", d.name())
}

fn lyrics(d: &mut Dice) -> String {
    let refrain =
        format!("Oh {}, oh {}, take me down to {}\n", d.pick(&NOUNS), d.pick(&NOUNS), d.name()).repeat(2);
    let la = format!("{}\n", "la ".repeat(d.between(4, 12)).trim_end());
    d.many(2, 4, |d, _| format!("{}\n{}\n{refrain}{la}", sentence(d), sentence(d)), "\n")
}

fn chinese(d: &mut Dice) -> String {
    const PLACES: [&str; 8] = ["北城", "南镇", "河湾", "石桥", "青山", "长堤", "东港", "西渡"];
    const THINGS: [&str; 8] = ["市场", "图书馆", "渡口", "花园", "学校", "老街", "灯塔", "茶馆"];
    const WAYS: [&str; 6] = ["很安静", "十分热闹", "历史悠久", "靠近河边", "每天开放", "建在山坡上"];
    let place = d.pick(&PLACES);
    format!(
        "{place}是一座河边的小城。{}",
        d.many(
            3,
            8,
            |d, _| format!(
                "这里的{}{}，{}也{}。",
                d.pick(&THINGS),
                d.pick(&WAYS),
                d.pick(&THINGS),
                d.pick(&WAYS)
            ),
            ""
        )
    )
}

fn japanese(d: &mut Dice) -> String {
    const THINGS: [&str; 8] = ["市場", "図書館", "橋", "庭園", "学校", "パン屋", "灯台", "カフェ"];
    const WAYS: [&str; 6] = [
        "とても静かです",
        "人でにぎわっています",
        "川の近くにあります",
        "朝から開いています",
        "古い建物です",
        "丘の上にあります",
    ];
    format!(
        "この町は川のほとりにあります。{}",
        d.many(3, 8, |d, _| format!("{}は{}。", d.pick(&THINGS), d.pick(&WAYS)), "")
    )
}

fn russian(d: &mut Dice) -> String {
    const THINGS: [&str; 8] =
        ["Старый мост", "Рынок", "Библиотека", "Гавань", "Школа", "Мельница", "Площадь", "Башня"];
    const WAYS: [&str; 7] = [
        "стоит у самой воды",
        "видна издалека",
        "открывается рано утром",
        "помнит прошлый век",
        "окружена садом",
        "ведёт к вокзалу",
        "закрыта зимой",
    ];
    format!(
        "Этот город лежит у широкой реки. {}",
        d.many(3, 8, |d, _| format!("{} {}.", d.pick(&THINGS), d.pick(&WAYS)), " ")
    )
}

fn list(d: &mut Dice) -> String {
    let start = d.pick(&["Here is what you need:", "You should pack:", "A short list:"]);
    format!(
        "{start}\n\n{}",
        d.many(5, 12, |d, i| format!("{}. A {} {}", i + 1, d.pick(&ADJECTIVES), d.pick(&NOUNS)), "\n")
    )
}

fn refusal(d: &mut Dice) -> String {
    let start = d.pick(&[
        "I'm sorry, but I can't help with that.",
        "I can't assist with this request.",
        "Sorry, I am not able to do that.",
    ]);
    let end = d.pick(&["If you like, I can", "Instead I could", "What I can do is"]);
    format!("{start} {end} tell you about the {} {} of {}.", d.pick(&ADJECTIVES), d.pick(&NOUNS), d.name())
}

fn short(d: &mut Dice) -> String {
    d.pick(&[
        "Hi!",
        "Hello! How can I help you today?",
        "Hey there.",
        "Hi, what's up?",
        "Good day to you.",
        "391",
        "Yes.",
    ])
    .to_owned()
}

fn hexdump(d: &mut Dice) -> String {
    d.many(
        4,
        12,
        |d, i| {
            let zero = d.between(0, 2) == 0;
            let bytes: Vec<String> =
                (0..16).map(|_| format!("{:02x}", if zero { 0 } else { d.between(0, 255) })).collect();
            format!("{:08x}  {}", i * 16, bytes.join(" "))
        },
        "\n",
    )
}

/// The sound text, then a piece of it over and over: the last two and a half rounds that the rule asks for or hardly more,
/// four, or many.
fn looped(d: &mut Dice, sound: &str, strength: Strength, low: usize, high: usize) -> String {
    let period = d.between(low, high);
    let mut unit = String::new();
    while unit.chars().count() < period {
        unit += &sentence(d);
        unit.push(' ');
    }
    let unit: String = unit.chars().take(period).collect();
    let rounds = match strength {
        Strength::Weak => 3.max(170_usize.div_ceil(period).min(5)),
        Strength::Middle => 5.max(200_usize.div_ceil(period)),
        Strength::Strong => 10.max(400_usize.div_ceil(period)),
    };
    let head: String = sound.chars().take(120).collect();
    // The last round is cut wherever the limit of tokens falls.
    let cut = d.between(0, period - 1);
    format!("{head} {}{}", unit.repeat(rounds), unit.chars().take(cut).collect::<String>())
}

const FOREIGN: [&str; 4] = [
    "Город стоит на берегу реки и помнит",
    "शहर नदी के किनारे बसा हुआ है और",
    "المدينة تقع على ضفة النهر وهي",
    "เมืองนี้ตั้งอยู่ริมแม่น้ำและมี",
];

/// Words of another script take the place of the text's own: a few, half of it, nearly all.
fn wrong_script(d: &mut Dice, sound: &str, strength: Strength) -> String {
    let own = FOREIGN;
    let foreign =
        if sound.chars().any(|c| ('а'..='я').contains(&c)) { own[1] } else { own[d.between(0, 3)] };
    let words: Vec<&str> = foreign.split(' ').collect();
    let head: Vec<char> = sound.chars().take(200).collect();
    let (keep, put) = match strength {
        Strength::Weak => (head.len(), 8),
        Strength::Middle => (head.len() / 2, 16),
        Strength::Strong => (8, 40),
    };
    let tail: Vec<&str> = (0..put).map(|_| words[d.between(0, words.len() - 1)]).collect();
    format!("{} {}", head[..keep.min(head.len())].iter().collect::<String>(), tail.join(" "))
}

/// Pieces of many scripts, thrown together.
fn mixed_scripts(d: &mut Dice, sound: &str, strength: Strength) -> String {
    const PIECES: [&str; 12] =
        ["断断", "Петер", "ofisch", "ที่", "नदी", "ahlic", "النهر", "городе", "ischof", "강변", "ließen", "ไม่"];
    let n = match strength {
        Strength::Weak => 12,
        Strength::Middle => 30,
        Strength::Strong => 80,
    };
    let keep: String = sound.chars().take(if strength == Strength::Weak { 120 } else { 20 }).collect();
    let noise: String = (0..n).map(|_| d.pick(&PIECES)).collect::<Vec<_>>().join(d.pick(&["", " "]));
    format!("{keep} {noise}")
}

/// What the first id prints as, over and over: argmax of NaN.
fn nan_marks(d: &mut Dice, sound: &str, strength: Strength) -> String {
    let n = match strength {
        Strength::Weak => 20,
        Strength::Middle => 40,
        Strength::Strong => 128,
    };
    let keep = match strength {
        Strength::Weak => d.between(20, 100),
        _ => 0,
    };
    format!("{}{}", sound.chars().take(keep).collect::<String>(), "!".repeat(n))
}

/// Marks of the chat template in the answer: one at the end, a turn that begins anew, marks cut to pieces everywhere.
fn template_leak(d: &mut Dice, sound: &str, strength: Strength) -> String {
    let end = d.pick(&["<|im_end|>", "<end_of_turn>", "</s>", "<|eot_id|>", "[/INST]"]);
    match strength {
        Strength::Weak => format!("{sound}{end}"),
        Strength::Middle => format!("{sound}{end}\n<|im_start|>user\n{}", sentence(d)),
        Strength::Strong => sound
            .split(' ')
            .map(|w| format!("{w} {}", d.pick(&["end_turn", "im_end", "<|"])))
            .collect::<Vec<_>>()
            .join(" "),
    }
}

/// Symbols instead of words.
fn symbol_noise(d: &mut Dice, sound: &str, strength: Strength) -> String {
    const SYMBOLS: &[u8] = b".,;:!?\"'#$%&()*+-/<=>@[]^_{|}~5F9CB6";
    let (keep, n) = match strength {
        Strength::Weak => (30, 80),
        Strength::Middle => (8, 120),
        Strength::Strong => (0, 300),
    };
    let noise: String = (0..n).map(|_| char::from(SYMBOLS[d.between(0, SYMBOLS.len() - 1)])).collect();
    format!("{}{noise}", sound.chars().take(keep).collect::<String>())
}

/// What an answer of the kind `wrong-answer` must hold.
pub(crate) const ANSWER: &str = "48213";

/// A text that reads well and says something else than what was asked for.
fn wrong_answer(d: &mut Dice, sound: &str, strength: Strength) -> String {
    let other = match strength {
        Strength::Weak => "48218".to_owned(),
        Strength::Middle => d.between(10_000, 48_000).to_string(),
        Strength::Strong => "not in the text".to_owned(),
    };
    sound.replace(ANSWER, &other)
}

/// Pieces of characters.
fn broken_bytes(d: &mut Dice, sound: &str, strength: Strength) -> String {
    let every = match strength {
        Strength::Weak => 40,
        Strength::Middle => 12,
        Strength::Strong => 3,
    };
    let at = d.between(0, 2);
    sound.chars().enumerate().map(|(i, c)| if i % every == at { '\u{fffd}' } else { c }).collect::<String>()
        + "."
}

/// Word salad with sound grammar nowhere: some words changed, the words shuffled, words of a dictionary.
pub(crate) fn word_salad(d: &mut Dice, sound: &str, strength: Strength) -> String {
    let mut words: Vec<String> = sound.split_whitespace().map(str::to_owned).collect();
    let any = |d: &mut Dice| {
        let lists: [&[&str]; 4] = [&NOUNS, &VERBS, &ADJECTIVES, &LINKS];
        let list = lists[d.between(0, 3)];
        list[d.between(0, list.len() - 1)].to_owned()
    };
    match strength {
        Strength::Weak => {
            for word in words.iter_mut().skip(1).step_by(2) {
                *word = any(d);
            }
        }
        Strength::Middle => {
            for i in (1..words.len()).rev() {
                words.swap(i, d.between(0, i));
            }
            for word in words.iter_mut().step_by(3) {
                *word = any(d);
            }
        }
        Strength::Strong => words.iter_mut().for_each(|word| *word = any(d)),
    }
    words.join(" ")
}

/// Salad of pieces of words.
pub(crate) fn piece_salad(d: &mut Dice, sound: &str, strength: Strength) -> String {
    const PIECES: [&str; 20] = [
        "ofisch", "ahl", "ical", "tre", "unding", "ope", "sk", "ver", "ania", "plo", "quet", "dor", "izz",
        "ment", "ullo", "rag", "eth", "osc", "pha", "lyn",
    ];
    let share = match strength {
        Strength::Weak => 2,
        Strength::Middle | Strength::Strong => 1,
    };
    let glue = if strength == Strength::Strong { 4 } else { 2 };
    sound
        .split_whitespace()
        .enumerate()
        .map(|(i, word)| match i % share {
            0 => (0..glue).map(|_| d.pick(&PIECES)).collect(),
            _ => word.to_owned(),
        })
        .collect::<Vec<String>>()
        .join(" ")
}
