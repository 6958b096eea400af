//! The text of which perplexity is taken by position: a story of our own, and then the keeper's log, made of our own
//! sentences by a fixed rule, long enough for 8,192 ids. Changing a word changes every recorded figure.

use std::fmt::Write as _;

const STORY: &str = "\
The ferry at Marren had no timetable, because the river had none. When the water stood high the crossing took four \
minutes and nobody spoke; when it was low the boat scraped along the bar, the passengers moved to one side without being \
told, and the keeper, a tall woman called Ilse Tamm, pushed with a pole that had been her mother's. She kept a ledger. \
Every crossing was a line in it: the hour, the height of the water on the painted post, how many people, how many animals, \
and what had been paid. Where somebody could not pay she wrote what they had said instead. There were more promises than \
coins in some months, and she added them up in the same column.

In the spring that this is about, a man came down the road from the hills with a wooden case on his back. He set it on the \
landing and asked how wide the river was. Ilse told him that it depended. He said that it could not depend on anything, a \
river was as wide as it was, and he had been sent by the district to measure it, because there was to be a bridge. She \
looked at his shoes, which were good, and at the case, which was better, and said that he might measure as much as he \
liked, but that the bank on which he stood had been six paces further out the year before.

His name was Anders Holt. He unpacked a brass instrument, three poles painted red and white, and a chain. For nine days he \
walked up and down the bank and wrote numbers in a book of his own. In the evenings he sat on the bench in front of the \
ferry house and compared what he had with what he had had the day before, and the two were never the same. On the fourth \
evening he asked to see the ledger. Ilse brought out not one book but eleven, and put them on the bench between them. The \
oldest was in a hand that slanted to the left. It began with the sentence: today the water took the post, and I have put up \
another one, and I believe it stands where the first one stood.

He read until it was too dark. The next morning he did not go to the bank. He copied the heights of forty years into a \
table, one column for each month, and by noon he could see what no single day had shown him: that the river moved. It moved \
to the east, slowly, for about twelve years, and then in one flood it came back. It had done so three times. A bridge that \
was as long as the river was wide today would stand on dry land before its paint had worn off, and one pier of it would \
stand in the middle of the new channel, where the ice came down.

He wrote this in a letter. The answer came after three weeks, by a boy on a horse. The district thanked him for his care. It \
said that a ledger of ferry fares was not a survey, that the writer of it had not been trained, and that the bridge had been \
paid for. He was to mark the two places and come home. Anders read the letter twice and then gave it to Ilse, who read it \
once. She asked him what he would do. He said that he would mark the two places. She said nothing to that. She took the pole \
and went to bring over a farmer with four sheep, who had been calling from the other side for some time.

When she came back he was sitting with the chain in his hands, link by link, as if he were counting it. He said that he had \
thought of a third way. They had asked for two marks, and did not say what should stand between them. If the marks were set \
where the river was now, the bridge would fail. If they were set where it would be, nobody would believe that he had looked. \
But if he set one mark here, by the ferry house, on the rock, and the other on the far hill, where the ground was firm in \
every year of the ledger, then the bridge would be three times as long, and whoever had paid for it would have to come and \
see for himself why.

That is how the commissioner came to Marren. He came in a carriage, with two clerks, and was angry before it had stopped. He \
stood on the landing and saw a river that any boy could have thrown a stone across. Ilse asked whether he wished to be taken \
over. He did, if only to shout at the hill. In the middle of the stream the boat touched the bar, and everybody moved to one \
side, except the commissioner, who did not know that one did. He was wet to the knees. On the far bank she showed him a row \
of old posts in a meadow, grey and leaning, a hundred paces from the water, with the paint still to be seen on some of them. \
Cows stood between them. She told him the year of each one.

He was not a stupid man, only a hurried one. He walked from the first post to the last and back again. Then he asked for the \
ledgers, and sat with them on the bench until the clerks had eaten everything that there was to eat in the house. When he \
got up he said that the numbers agreed with each other better than any that he had been given in that year, and asked who \
had checked them. Ilse said that nobody had, but that each of them had been written down by somebody who was about to step \
into a boat.

The bridge at Marren has eleven arches. In most years nine of them stand over grass, and people from elsewhere laugh at it. \
Under the first arch, on the rock, there is a small house with a painted post beside it, and whoever lives there still \
writes down how high the water is, in the morning and at night, though nobody has paid to cross for a very long time. The \
book is the thirty-fourth. What follows is from the one that was kept in the year of the great ice.
";

const WEATHER: [&str; 9] = [
    "fog until noon",
    "clear and cold",
    "rain from the west",
    "a thin sun",
    "snow that did not lie",
    "wind all night",
    "still and grey",
    "thunder behind the hills",
    "frost on the planks",
];

const EVENTS: [&str; 14] = [
    "A barge with timber waited below the third arch until the current slackened.",
    "The miller's children counted the arches aloud and came to twelve.",
    "Two surveyors asked for the old books and were given tea instead of answers.",
    "A heron stood on the post and would not be moved, so the height was read from the mark below it.",
    "The smith brought back the lamp that he had borrowed in the autumn, and it was cleaner than before.",
    "Ice came down in plates as large as tables and broke on the fourth pier.",
    "Somebody had painted a face on the second post, and the rain will take it off.",
    "A letter came for a keeper who has been dead for twenty years; it was about a debt of four coins.",
    "The bell rang by itself at the turn of the tide, as it does when the rope is wet.",
    "Nobody came, and the page would have stayed empty but for the height of the water.",
    "The school walked over in a long line, and the teacher asked what happens to the numbers.",
    "A calf fell in near the bar and climbed out by itself on the other side.",
    "The commissioner's grandson looked for a name in the first book and found it.",
    "A new board was nailed to the landing, the old one having gone to the kitchen stove.",
];

const ENDINGS: [&str; 11] = [
    "The light was put out early.",
    "It will rise tomorrow.",
    "The pole is still dry.",
    "I have read this back and it is right.",
    "The post stands where it stood.",
    "There is oil for nine nights.",
    "No promise was made today.",
    "The far bank could not be seen.",
    "This is in a borrowed pen.",
    "The dog disagrees with the thermometer.",
    "Nothing else.",
];

/// So many days of the log are enough for 8,192 ids of any tokenizer that makes fewer than 2 characters an id.
const DAYS: usize = 320;

/// The whole text.
pub fn text() -> String {
    let mut out = STORY.to_owned();
    for day in 0..DAYS {
        // Steps that share no factor with the lists' lengths, so that days repeat only in their parts.
        let (weather, event, ending) =
            (WEATHER[day * 4 % 9], EVENTS[(day * 5 + day / 14) % 14], ENDINGS[(day * 3 + day / 9) % 11]);
        let level = 31 + (day * day / 7 + day * 3) % 58;
        let people = (day * 11 + day / 5) % 23;
        let _ = write!(
            out,
            "\nDay {}. {}; the water at {level}. {people} over in the morning, {} at night. {event} {ending}",
            day + 1,
            capital(weather),
            (people * 3 + level) % 17
        );
    }
    out
}

fn capital(text: &str) -> String {
    let (first, rest) = text.split_at(1);
    first.to_uppercase() + rest
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;

    #[test]
    fn the_text_is_long_enough_and_no_day_is_told_twice() {
        let text = text();
        assert!(text.split_whitespace().count() > 8_192, "{}", text.split_whitespace().count());
        let days: HashSet<&str> = text
            .lines()
            .filter_map(|line| line.strip_prefix("Day ")?.split_once(". "))
            .map(|d| d.1)
            .collect();
        assert_eq!(days.len(), DAYS);
        assert!(!text.contains("  "));
    }
}
