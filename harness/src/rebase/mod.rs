//! What becomes of a stack on another upstream: first it is replayed on its own base, then picked onto the target, patch
//! after patch, and a conflict never hides what comes after it. `sync` is the forecast, `run` the rebase itself.

pub mod culprit;
pub mod depend;
pub mod execute;
pub mod export;
pub mod forecast;
pub mod marks;
pub mod meaning;
pub mod outcome;
pub mod plan;
pub mod record;
pub mod replay;
pub mod resolution;
pub mod run;
pub mod state;
pub mod sync;
pub mod text;
