//! What becomes of a stack on another upstream: first it is replayed on its own base, then picked onto the target, patch
//! after patch, and a conflict never hides what comes after it.

pub mod culprit;
pub mod depend;
pub mod forecast;
pub mod outcome;
pub mod replay;
pub mod sync;
