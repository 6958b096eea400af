//! How an engine process ended, as a value: no way of ending is an error of the harness.

use serde::{Deserialize, Serialize};

/// How an engine process ended, worst first in meaning, not in order.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "class", rename_all = "kebab-case")]
pub enum ProcessOutcome {
    /// Everything was answered and the process ended with code 0.
    Clean,
    /// Everything was answered, and then the process ended badly.
    AbortAtExit {
        /// The exit code, when it ended by itself.
        code: Option<i32>,
        /// The signal that ended it.
        signal: Option<i32>,
        /// Its last lines on stderr.
        last_lines: Vec<String>,
    },
    /// It refused a request with a message (a bad model, an unsupported architecture).
    Refused {
        /// The refusal's kind, in the protocol's words.
        kind: String,
        /// The refusal's text.
        message: String,
    },
    /// It ended before it had answered.
    Crashed {
        /// The exit code, when it ended by itself.
        code: Option<i32>,
        /// The signal that ended it.
        signal: Option<i32>,
        /// Its last lines on stderr.
        last_lines: Vec<String>,
    },
    /// Memory ran out: its own report, or the kernel's SIGKILL with the machine's memory exhausted.
    OutOfMemory {
        /// Its own report or the reason for the conclusion.
        message: String,
    },
    /// The system ended its work on a device because it took too long.
    Watchdog {
        /// Its own report.
        message: String,
    },
    /// It did not answer in time, and its process group was ended.
    TimedOut {
        /// The limit.
        after_s: f64,
        /// Its last lines on stderr.
        last_lines: Vec<String>,
    },
    /// A line on stdout was not the protocol's.
    Garbled {
        /// The line, cut to 200 characters, control characters escaped.
        line: String,
    },
}

impl ProcessOutcome {
    /// The class in one word or two, for a person who waits.
    pub fn label(&self) -> &'static str {
        match self {
            Self::Clean => "ok",
            Self::AbortAtExit { .. } => "abort at exit",
            Self::Refused { .. } => "refused",
            Self::Crashed { .. } => "crashed",
            Self::OutOfMemory { .. } => "out of memory",
            Self::Watchdog { .. } => "ended by a watchdog",
            Self::TimedOut { .. } => "timed out",
            Self::Garbled { .. } => "garbled",
        }
    }
}
