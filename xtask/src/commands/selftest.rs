//! `selftest`: how good is the gate itself?

use std::{fmt::Write as _, path::Path};

use harness::{
    build::Layout,
    cause::selftest::{self, Extent, Rate, ScoreCard, SelftestRequest, Strength},
    config::{load_builds, load_matrix},
};

use crate::{
    cli::{Format, SelftestArgs},
    console::Console,
    exit::{Exit, Failure},
    output::{Document, print_text, printable},
};

/// Measures the gate and prints the score card; exit code 1 where it misses a target.
pub(crate) fn run(root: &Path, args: SelftestArgs, console: &Console) -> Result<Exit, Failure> {
    let matrix = load_matrix(root, &args.matrix, &load_builds(root)?)?;
    let card = selftest::run(
        &SelftestRequest {
            layout: &Layout::of_repository(root),
            extent: if args.quick { Extent::Quick } else { Extent::Full },
            without: args.without,
            thresholds: matrix.thresholds,
            only: args.only,
        },
        console,
    )?;
    console.clear();
    match args.format {
        Format::Json => Document::new("selftest", 1, &card).print()?,
        Format::Text => print_text(&card_text(&card))?,
    }
    Ok(if card.missed.is_empty() { Exit::Pass } else { Exit::Found })
}

/// The card for people: faults by kind, then what is no fault, then the sums and what misses its target.
fn card_text(card: &ScoreCard) -> String {
    let mut out = String::new();
    let mut line = |text: String| writeln!(out, "{}", printable(text.trim_end())).expect("text grows");
    if !card.without.is_empty() {
        line(format!("without the tiers {}: these figures are not the gate's", card.without.join(", ")));
    }
    line(format!(
        "{:<26} {:<13} {:<10} {:<9} {:<8} {:>8} {:>8} {:>8} {:>7}  cause named at the strongest",
        "fault", "root cause", "put into", "tier", "split", "weak", "middle", "strong", "bound"
    ));
    for k in &card.kinds {
        let at = |s: Strength| k.strengths.get(&s).map_or("—".to_owned(), |r| counts(*r));
        let most = k.causes.iter().max_by_key(|(_, n)| **n).map(|(cause, _)| cause.as_str());
        let cause = k.cause_at_strongest.as_deref().or(most).unwrap_or("—");
        let split = match k.split {
            selftest::Split::Tuned => "tuned",
            selftest::Split::HeldOut => "held out",
        };
        line(format!(
            "{:<26} {:<13} {:<10} {:<9} {:<8} {:>8} {:>8} {:>8} {:>7.3}  {cause}",
            k.name,
            k.root_cause,
            k.place,
            k.tier,
            split,
            at(Strength::Weak),
            at(Strength::Middle),
            at(Strength::Strong),
            k.middle.lower_bound
        ));
    }
    line(String::new());
    line(format!("{:<36} {:>11} {:>14}", "no fault", "passed", "largest rel L2"));
    for b in &card.benign {
        let l2 = b.largest_relative_l2.map_or("—".to_owned(), |x| format!("{x:.1e}"));
        line(format!("{:<36} {:>11} {l2:>14}", b.name, format!("{}/{}", b.passed, b.of)));
        if let Some(alarm) = &b.first_alarm {
            line(format!("    first alarm: {alarm}"));
        }
    }
    line(String::new());
    for (strength, rate) in &card.by_strength {
        line(format!("sensitivity, {:<9} {}", format!("{}:", word(*strength)), rate_text(*rate)));
    }
    for (split, rate) in &card.by_split {
        let name = if *split == selftest::Split::Tuned { "tuned kinds" } else { "held-out kinds" };
        line(format!("  middle, {name}: {}", rate_text(*rate)));
    }
    for (cause, rate) in &card.by_root_cause {
        line(format!("  middle, {cause}: {}", rate_text(*rate)));
    }
    line(format!("specificity: {}", rate_text(card.clean_rate)));
    for (what, why) in &card.not_tried {
        line(format!("not tried: {what}: {why}"));
    }
    for missed in &card.missed {
        line(format!("MISSED: {missed}"));
    }
    if card.missed.is_empty() {
        line("every target is met".to_owned());
    }
    out
}

fn word(strength: Strength) -> &'static str {
    match strength {
        Strength::Weak => "weak",
        Strength::Middle => "middle",
        Strength::Strong => "strong",
    }
}

fn counts(rate: Rate) -> String {
    format!("{}/{}", rate.caught, rate.of)
}

fn rate_text(rate: Rate) -> String {
    format!("{:.4} ({} of {}, 95 % bound {:.4})", rate.share(), rate.caught, rate.of, rate.lower_bound)
}
