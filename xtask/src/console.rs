//! Turns events into text on stderr: a live line on a terminal, and elsewhere only what begins, ends and warns.

use std::{
    fmt,
    io::{IsTerminal, Write, stderr},
    sync::{Mutex, PoisonError},
    time::Duration,
};

use harness::event::{Event, EventSink};
use indicatif::{MultiProgress, ProgressBar, ProgressState, ProgressStyle};

use crate::output::printable;

/// The person's window on the work.
pub(crate) struct Console {
    mode: Mode,
}

enum Mode {
    /// One live line for each open phase.
    Live { bars: MultiProgress, phases: Mutex<Vec<Phase>> },
    /// One line for each phase that begins or ends, and each warning.
    Plain,
}

struct Phase {
    name: String,
    bar: ProgressBar,
    /// Steps that began and did not end, the latest last.
    open: Vec<String>,
}

impl Console {
    /// Live when stderr is a terminal, plain when it is not.
    pub(crate) fn on_stderr() -> Self {
        let mode = if stderr().is_terminal() {
            Mode::Live { bars: MultiProgress::new(), phases: Mutex::new(Vec::new()) }
        } else {
            Mode::Plain
        };
        Self { mode }
    }

    /// Takes every live line away, so that what is printed next stands alone.
    pub(crate) fn clear(&self) {
        if let Mode::Live { bars, phases } = &self.mode {
            for phase in phases.lock().unwrap_or_else(PoisonError::into_inner).drain(..) {
                phase.bar.finish_and_clear();
            }
            // A terminal that went away is no reason to fail.
            let _ = bars.clear();
        }
    }
}

impl EventSink for Console {
    fn emit(&self, event: Event) {
        match &self.mode {
            Mode::Plain => {
                if let Some(line) = plain_line(&event) {
                    let _ = writeln!(stderr(), "{line}");
                }
            }
            Mode::Live { bars, phases } => {
                let mut phases = phases.lock().unwrap_or_else(PoisonError::into_inner);
                show(bars, &mut phases, event);
            }
        }
    }
}

/// What a log file gets; steps are left out.
fn plain_line(event: &Event) -> Option<String> {
    match event {
        Event::PhaseStarted { phase, steps: Some(steps) } => {
            Some(format!("{}: started, {steps} steps", printable(phase)))
        }
        Event::PhaseStarted { phase, steps: None } => Some(format!("{}: started", printable(phase))),
        Event::PhaseFinished { phase, took } => {
            Some(format!("{}: done in {}", printable(phase), in_words(*took)))
        }
        Event::Warning(text) => Some(format!("warning: {}", printable(text))),
        Event::Note(text) => Some(printable(text)),
        Event::StepStarted { .. } | Event::StepFinished { .. } => None,
    }
}

fn show(bars: &MultiProgress, phases: &mut Vec<Phase>, event: Event) {
    match event {
        Event::PhaseStarted { phase, steps } => {
            let bar = bars.add(match steps {
                Some(steps) => ProgressBar::new(steps).with_style(counted_style()),
                None => ProgressBar::new_spinner().with_style(open_style()),
            });
            bar.set_prefix(printable(&phase));
            bar.enable_steady_tick(Duration::from_millis(120));
            phases.push(Phase { name: phase, bar, open: Vec::new() });
        }
        Event::StepStarted { step } => {
            if let Some(phase) = phases.last_mut() {
                phase.open.push(step);
                phase.show_open();
            }
        }
        Event::StepFinished { step, outcome, took } => {
            let holder = phases.iter_mut().rev().find(|phase| phase.open.contains(&step));
            if let Some(phase) = holder {
                phase.open.retain(|open| *open != step);
                phase.bar.inc(1);
                phase.show_open();
            }
            let line = format!("  {}: {} ({})", printable(&step), printable(&outcome), in_words(took));
            let _ = bars.println(line);
        }
        Event::PhaseFinished { phase, took } => {
            if let Some(index) = phases.iter().rposition(|open| open.name == phase) {
                phases.remove(index).bar.finish_and_clear();
            }
            let _ = bars.println(format!("{}: done in {}", printable(&phase), in_words(took)));
        }
        Event::Warning(text) => {
            let _ = bars.println(format!("warning: {}", printable(&text)));
        }
        Event::Note(text) => {
            let _ = bars.println(printable(&text));
        }
    }
}

impl Phase {
    fn show_open(&self) {
        let message = match self.open.as_slice() {
            [] => String::new(),
            [step] => printable(step),
            [others @ .., step] => format!("{} and {} more", printable(step), others.len()),
        };
        self.bar.set_message(message);
    }
}

fn counted_style() -> ProgressStyle {
    ProgressStyle::with_template("{spinner} {prefix} [{bar:20}] {pos}/{len}, {elapsed}, {left}  {wide_msg}")
        .expect("the template is constant")
        .with_key("left", |state: &ProgressState, out: &mut dyn fmt::Write| {
            // Before the first step has ended there is nothing to extrapolate.
            let _ = match state.pos() {
                0 => write!(out, "time left unknown"),
                _ => write!(out, "{} left", in_words(state.eta())),
            };
        })
        .progress_chars("=> ")
}

fn open_style() -> ProgressStyle {
    ProgressStyle::with_template("{spinner} {prefix}, {elapsed}  {wide_msg}")
        .expect("the template is constant")
}

/// A duration as one says it: `0.4 s`, `12 s`, `3 min 05 s`, `1 h 02 min`.
fn in_words(took: Duration) -> String {
    let seconds = took.as_secs_f64();
    if seconds < 9.95 {
        return format!("{seconds:.1} s");
    }
    let whole = seconds.round() as u64;
    match whole {
        0..60 => format!("{whole} s"),
        60..3600 => format!("{} min {:02} s", whole / 60, whole % 60),
        _ => format!("{} h {:02} min", whole / 3600, whole % 3600 / 60),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_read_as_one_says_them() {
        for (seconds, words) in [
            (0.04, "0.0 s"),
            (9.94, "9.9 s"),
            (9.96, "10 s"),
            (59.6, "1 min 00 s"),
            (185.0, "3 min 05 s"),
            (3725.0, "1 h 02 min"),
        ] {
            assert_eq!(in_words(Duration::from_secs_f64(seconds)), words);
        }
    }

    #[test]
    fn a_log_file_gets_phases_notes_and_warnings_and_no_steps() {
        let events = [
            Event::PhaseStarted { phase: "run".into(), steps: Some(14) },
            Event::StepStarted { step: "qwen3".into() },
            Event::StepFinished {
                step: "qwen3".into(),
                outcome: "pass".into(),
                took: Duration::from_secs(1),
            },
            Event::Note("a path".into()),
            Event::Warning("slow \u{1b}[2J disk".into()),
            Event::PhaseFinished { phase: "run".into(), took: Duration::from_secs(61) },
        ];
        let lines: Vec<String> = events.iter().filter_map(plain_line).collect();
        insta::assert_snapshot!(lines.join("\n"), @r"
        run: started, 14 steps
        a path
        warning: slow \u{1b}[2J disk
        run: done in 1 min 01 s
        ");
    }

    #[test]
    fn live_phases_follow_their_steps() {
        let bars = MultiProgress::with_draw_target(indicatif::ProgressDrawTarget::hidden());
        let mut phases = Vec::new();
        let started = |step: &str| Event::StepStarted { step: step.into() };
        show(&bars, &mut phases, Event::PhaseStarted { phase: "run".into(), steps: Some(2) });
        show(&bars, &mut phases, started("one"));
        show(&bars, &mut phases, started("two"));
        assert_eq!(phases[0].bar.message(), "two and 1 more");
        let ended = Event::StepFinished { step: "two".into(), outcome: "pass".into(), took: Duration::ZERO };
        show(&bars, &mut phases, ended);
        assert_eq!((phases[0].bar.position(), phases[0].bar.message().as_str()), (1, "one"));
        show(&bars, &mut phases, Event::PhaseFinished { phase: "run".into(), took: Duration::ZERO });
        assert!(phases.is_empty());
    }
}
