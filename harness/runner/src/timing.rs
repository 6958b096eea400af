//! Timed generation over a library's own token loop, the same loop bare, and the faults by which a gate proves itself.
//!
//! `regraft-runner bare` serves as ever, and after the answer to each timed generation makes the same one again by the bare
//! loop, by turns in one process: a [`Bare`] as one JSON line on stderr. So what the protocol costs can be measured.

use std::{
    env, mem,
    time::{Duration, Instant},
};

use serde::Serialize;

use crate::protocol::{EngineError, Timed};

/// Ids as a library's loop makes them.
pub(crate) type Ids<'a> = &'a mut dyn Iterator<Item = Result<u32, EngineError>>;

/// A generation timed as a whole.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub(crate) struct Bare {
    /// How many ids were made.
    pub(crate) ids: usize,
    /// Time to the first id.
    pub(crate) ttft_s: f64,
    /// Time of all ids after the first.
    pub(crate) decode_s: f64,
    /// Processor time of all, where the platform tells.
    pub(crate) cpu_s: Option<f64>,
}

/// What a gate that proves itself makes its runner do wrong: `REGRAFT_INJECT=slow=0.08,leak=1048576` makes every id of a
/// timed generation take 8 % longer and lose a mebibyte a generation, `abort=1` makes it abort once everything is answered. An
/// engine that was told to says so in its version.
#[derive(Debug, Clone, Default, PartialEq)]
pub(crate) struct Fault {
    slow: f64,
    leak_bytes: usize,
    abort: bool,
}

impl Fault {
    /// Reads the variable; what cannot be read is no fault, and is said on stderr.
    pub(crate) fn from_environment() -> Self {
        env::var("REGRAFT_INJECT").map_or_else(|_| Self::default(), |text| Self::parse(&text))
    }

    fn parse(text: &str) -> Self {
        let mut fault = Self::default();
        for part in text.split(',').filter(|part| !part.is_empty()) {
            match part.split_once('=').map(|(name, value)| (name, value.parse::<f64>())) {
                Some(("slow", Ok(slow))) if (0.0..100.0).contains(&slow) => fault.slow = slow,
                Some(("leak", Ok(bytes))) if (0.0..1e9).contains(&bytes) => {
                    fault.leak_bytes = bytes as usize;
                }
                Some(("abort", Ok(abort))) if [0.0, 1.0].contains(&abort) => fault.abort = abort > 0.0,
                _ => eprintln!("warning: REGRAFT_INJECT names no fault: {part}"),
            }
        }
        fault
    }

    /// The version, with a mark where a fault is injected.
    pub(crate) fn marked(&self, version: &str) -> String {
        if *self == Self::default() { version.to_owned() } else { format!("{version}+injected-fault") }
    }

    /// Ends the process as a library does that waits for a stream after its driver has gone.
    pub(crate) fn at_exit(&self) {
        if self.abort {
            eprintln!("injected: aborting at exit");
            std::process::abort();
        }
    }

    /// Waits for a share of what a step took. Sleeping overshoots by some 60 µs, so the last stretch is spun.
    fn delay(&self, took: Duration) {
        if self.slow == 0.0 {
            return;
        }
        let until = Instant::now() + took.mul_f64(self.slow);
        while let Some(left) = until.checked_duration_since(Instant::now()) {
            match left.checked_sub(Duration::from_micros(200)) {
                Some(sleep) => std::thread::sleep(sleep),
                None => std::hint::spin_loop(),
            }
        }
    }

    fn leak(&self) {
        if self.leak_bytes > 0 {
            // Written to, so that the pages are really taken.
            mem::forget(vec![1_u8; self.leak_bytes]);
        }
    }
}

/// Takes the time of every id.
pub(crate) fn timed(ids: Ids<'_>, fault: &Fault) -> Result<Timed, EngineError> {
    let mut timed = Timed { ids: Vec::new(), ttft_s: 0.0, token_times_s: Vec::new(), cpu_s: None };
    let cpu_began = cpu_s();
    let mut last = Instant::now();
    for id in ids {
        let id = id?;
        fault.delay(last.elapsed());
        let now = Instant::now();
        let took_s = (now - last).as_secs_f64();
        last = now;
        if timed.ids.is_empty() {
            timed.ttft_s = took_s;
        } else {
            timed.token_times_s.push(took_s);
        }
        timed.ids.push(id);
    }
    timed.cpu_s = cpu_began.zip(cpu_s()).map(|(began, ended)| ended - began);
    fault.leak();
    Ok(timed)
}

/// Takes the time of the first id and of all the others together.
pub(crate) fn bare_loop(ids: Ids<'_>) -> Result<Bare, EngineError> {
    let cpu_began = cpu_s();
    let began = Instant::now();
    let first = ids.next().transpose()?;
    let ttft = began.elapsed();
    let mut count = usize::from(first.is_some());
    for id in ids {
        id?;
        count += 1;
    }
    let decode = began.elapsed() - ttft;
    let cpu_s = cpu_began.zip(cpu_s()).map(|(began, ended)| ended - began);
    Ok(Bare { ids: count, ttft_s: ttft.as_secs_f64(), decode_s: decode.as_secs_f64(), cpu_s })
}

/// A pause before each of the two loops that are compared: a processor that comes from a pause is slower at first, so both
/// must, and what a harness does with an answer is over when the bare loop begins.
pub(crate) fn rest() {
    std::thread::sleep(Duration::from_millis(5));
}

/// Tells what a bare generation took on stderr.
pub(crate) fn tell(bare: &Result<Bare, EngineError>) {
    match bare {
        Ok(bare) => eprintln!("{}", serde_json::to_string(bare).expect("numbers are always text")),
        Err(error) => eprintln!("error: the bare loop failed: {}", error.message),
    }
}

/// Processor time that the process has had.
fn cpu_s() -> Option<f64> {
    use nix::sys::{
        resource::{UsageWho, getrusage},
        time::TimeValLike as _,
    };
    let usage = getrusage(UsageWho::RUSAGE_SELF).ok()?;
    Some((usage.user_time().num_microseconds() + usage.system_time().num_microseconds()) as f64 / 1e6)
}

/// A size in `/proc/self/status`; `None` where there is no such file.
pub(crate) fn status_bytes(name: &str) -> Option<u64> {
    let text = std::fs::read_to_string("/proc/self/status").ok()?;
    let value = text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':'))?;
    value.split_whitespace().next()?.parse::<u64>().ok()?.checked_mul(1024)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::serve::bad_request;

    fn ids(count: u32) -> impl Iterator<Item = Result<u32, EngineError>> {
        (0..count).map(|id| {
            std::thread::sleep(Duration::from_millis(2));
            Ok(id)
        })
    }

    #[test]
    fn every_id_has_its_time_and_the_first_is_the_prefills() {
        let timed = timed(&mut ids(4), &Fault::default()).unwrap();
        assert_eq!((timed.ids, timed.token_times_s.len()), (vec![0, 1, 2, 3], 3));
        assert!(
            timed.cpu_s.is_some_and(|s| s < 1.0)
                && timed.ttft_s >= 0.002
                && timed.token_times_s.iter().all(|s| *s >= 0.002)
        );
        let bare = bare_loop(&mut ids(4)).unwrap();
        assert!(bare.ids == 4 && bare.ttft_s >= 0.002 && bare.decode_s >= 0.006, "{bare:?}");
    }

    #[test]
    fn an_error_ends_the_loop() {
        let error = || bad_request("no");
        let mut failing = [Ok(1), Err(error()), Ok(2)].into_iter();
        assert_eq!(timed(&mut failing, &Fault::default()), Err(error()));
        assert_eq!(bare_loop(&mut [Err(error())].into_iter()), Err(error()));
    }

    #[test]
    fn faults_are_read_marked_and_slow() {
        assert_eq!(Fault::parse("").marked("1.2"), "1.2");
        assert_eq!(Fault::parse("fast=1,slow=much,abort=2"), Fault::default());
        assert_eq!(Fault::parse("abort=1").marked("1.2"), "1.2+injected-fault");
        let fault = Fault::parse("slow=1.5,leak=7");
        assert_eq!(
            (fault.clone(), fault.marked("1.2").as_str()),
            (Fault { slow: 1.5, leak_bytes: 7, abort: false }, "1.2+injected-fault")
        );
        let slowed = timed(&mut ids(2), &fault).unwrap();
        assert!(slowed.token_times_s[0] >= 0.005, "{slowed:?}");
    }
}
