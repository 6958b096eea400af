//! A finding: one statement about an engine at a cell, with the evidence that a person needs to believe it.

use serde::{Deserialize, Serialize};
use serde_json::Value;

/// Whom a finding is about.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Subject {
    /// The build that wants to become the pin.
    Candidate,
    /// The build that is pinned now.
    Baseline,
    /// The independent implementation.
    Reference,
    /// Regraft itself, or the machine.
    Harness,
}

/// How much a finding weighs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Severity {
    /// Worth knowing.
    Info,
    /// Suspicious alone, decisive in company.
    Warning,
    /// Decisive.
    Error,
}

/// One statement about an engine at a cell.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Finding {
    /// A stable, kebab-case code such as `decode-logits-diverge`.
    pub code: String,
    /// Whom it is about.
    pub subject: Subject,
    /// How much it weighs.
    pub severity: Severity,
    /// One sentence for a person.
    pub message: String,
    /// Numbers and texts behind the message.
    pub evidence: Value,
}
