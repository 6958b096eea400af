//! One record of a gate run, and its renderings.
