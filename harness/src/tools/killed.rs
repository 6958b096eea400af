//! Whether a program that failed was ended from outside, or for want of memory. Its failure then says nothing about what it
//! worked on: sources that a killed compiler did not get through may well compile.

use std::fmt;

/// What ended a program, or one that it had started.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Killed {
    /// A signal that programs do not send themselves.
    Signal(&'static str),
    /// There was no memory left, and it said so.
    NoMemory,
}

/// Signals from outside, by number. Others, such as SIGSEGV and SIGABRT, are a program's own doing.
const SIGNALS: [(&str, &str); 4] = [("1", "SIGHUP"), ("2", "SIGINT"), ("9", "SIGKILL"), ("15", "SIGTERM")];

/// How compilers, linkers and shells tell of a SIGKILL that met a program which they ran.
const KILLS: [&str; 6] = [
    "fatal error: Killed signal terminated program",
    "internal compiler error: Killed (program",
    "unable to execute command: Killed",
    "terminated with signal 9 [Killed]",
    "FAILED: [code=137]",
    "Killed: 9",
];

/// How they tell that they got no memory.
const NO_MEMORY: [&str; 5] = [
    "LLVM ERROR: out of memory",
    ": out of memory allocating ",
    "virtual memory exhausted",
    "terminate called after throwing an instance of 'std::bad_alloc'",
    ": Cannot allocate memory",
];

impl Killed {
    /// What to try.
    pub fn hint(self) -> &'static str {
        match self {
            Self::NoMemory | Self::Signal("SIGKILL") => {
                "end what else takes memory, or let fewer compilers run at once (CARGO_BUILD_JOBS=1), then run the same \
                 command again"
            }
            Self::Signal(_) => "somebody or something ended it: run the same command again",
        }
    }
}

impl fmt::Display for Killed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NoMemory => f.write_str("memory ran out"),
            Self::Signal("SIGKILL") => f.write_str("ended by SIGKILL, most likely because memory ran out"),
            Self::Signal(name) => write!(f, "ended by {name} from outside"),
        }
    }
}

/// What ended a program of which the system says `status`, such as `signal: 9 (SIGKILL)`, and which wrote `stderr` last.
pub fn killed(status: &str, stderr: &str) -> Option<Killed> {
    if let Some(signal) = numbered_signal(status, "signal: ") {
        return Some(signal);
    }
    // A shell in between adds 128 to the number.
    if status == "exit status: 137" {
        return Some(Killed::Signal("SIGKILL"));
    }
    let lines = || stderr.lines().map(str::trim).filter(|line| !is_quoted_source(line));
    // Beside a real complaint about the sources a killed compiler decides nothing.
    match lines().any(is_complaint) {
        true => None,
        false => lines().find_map(sign),
    }
}

fn sign(line: &str) -> Option<Killed> {
    let told = ["process didn't exit successfully: ", "did not execute successfully, got: "];
    if told.iter().any(|words| line.contains(words))
        && let Some(signal) = numbered_signal(line, "signal: ")
    {
        return Some(signal);
    }
    if line == "Killed" || KILLS.iter().any(|words| line.contains(words)) {
        return Some(Killed::Signal("SIGKILL"));
    }
    let of_rust = line.starts_with("memory allocation of ") && line.ends_with(" bytes failed");
    let of_python = line == "MemoryError" || line.starts_with("MemoryError: ");
    (of_rust || of_python || NO_MEMORY.iter().any(|words| line.contains(words))).then_some(Killed::NoMemory)
}

/// The signal whose number follows the last `word`.
fn numbered_signal(text: &str, word: &str) -> Option<Killed> {
    let (_, after) = text.rsplit_once(word)?;
    let digits = after.split(|c: char| !c.is_ascii_digit()).next()?;
    SIGNALS.iter().find(|(number, _)| *number == digits).map(|(_, name)| Killed::Signal(name))
}

/// An error of a compiler about a place in the sources: `error[E0432]: …`, `a.cpp:3:5: error: …`.
fn is_complaint(line: &str) -> bool {
    let place = line.split_once(": error: ").map(|(place, _)| place);
    line.starts_with("error[E") || place.is_some_and(|place| place.ends_with(|c: char| c.is_ascii_digit()))
}

/// A line of source beneath a compiler's message: `12 | let x = …`.
fn is_quoted_source(line: &str) -> bool {
    line.trim_start_matches(|c: char| c.is_ascii_digit()).trim_start().starts_with('|')
}

#[cfg(test)]
mod tests {
    use super::*;

    const KILL: Option<Killed> = Some(Killed::Signal("SIGKILL"));

    #[test]
    fn a_killed_program_is_told_from_one_that_found_fault() {
        for (status, stderr, expected) in [
            ("signal: 9 (SIGKILL)", "", KILL),
            ("signal: 15 (SIGTERM)", "", Some(Killed::Signal("SIGTERM"))),
            ("signal: 11 (SIGSEGV) (core dumped)", "", None),
            ("signal: 6 (SIGABRT)", "", None),
            ("exit status: 137", "", KILL),
            ("exit status: 101", "error[E0432]: unresolved import `x`", None),
            (
                "exit status: 101",
                "error: could not compile `syn`\n\nCaused by:\n  process didn't exit successfully: `rustc --crate-name syn` \
                 (signal: 9, SIGKILL: kill)",
                KILL,
            ),
            (
                "exit status: 101",
                "error: could not compile `syn`\n\nCaused by:\n  process didn't exit successfully: `rustc --crate-name syn` \
                 (signal: 11, SIGSEGV: invalid memory reference)",
                None,
            ),
            (
                "exit status: 101",
                "  thread 'main' panicked at cmake:\n  command did not execute successfully, got: signal: 9 (SIGKILL)",
                KILL,
            ),
            ("exit status: 1", "c++: fatal error: Killed signal terminated program cc1plus", KILL),
            (
                "exit status: 1",
                "clang++: error: unable to execute command: Killed\nclang++: error: clang frontend command failed due to \
                 signal",
                KILL,
            ),
            ("exit status: 1", "FAILED: [code=137] CMakeFiles/mlx.dir/ops.cpp.o", KILL),
            ("exit status: 1", "collect2: fatal error: ld terminated with signal 9 [Killed]", KILL),
            (
                "exit status: 1",
                "cc1plus: out of memory allocating 65536 bytes after a total of 1",
                Some(Killed::NoMemory),
            ),
            ("exit status: 101", "memory allocation of 65536 bytes failed", Some(Killed::NoMemory)),
            ("exit status: 1", "Traceback (most recent call last):\nMemoryError", Some(Killed::NoMemory)),
            // A complaint about the sources stays one, whatever happened beside it or is quoted from them.
            (
                "exit status: 1",
                "a.cpp:3:5: error: no member\nc++: fatal error: Killed signal terminated program cc1plus",
                None,
            ),
            ("exit status: 101", "error: expected `;`\n12 | \"LLVM ERROR: out of memory\"", None),
        ] {
            assert_eq!(killed(status, stderr), expected, "{status} {stderr}");
        }
    }

    #[test]
    fn what_ended_for_want_of_memory_is_told_with_what_helps() {
        for killed in [Killed::NoMemory, Killed::Signal("SIGKILL")] {
            assert!(killed.to_string().ends_with("memory ran out"));
            assert!(killed.hint().contains("CARGO_BUILD_JOBS=1"));
        }
        let stopped = Killed::Signal("SIGTERM");
        assert_eq!(stopped.to_string(), "ended by SIGTERM from outside");
        assert!(!stopped.hint().contains("memory"));
    }
}
