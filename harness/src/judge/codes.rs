//! The code of every finding that the judge can make: one list, which matrices are checked against and findings are made from.

macro_rules! codes {
    ($($(#[$doc:meta])* $name:ident = $code:literal;)*) => {
        $($(#[$doc])* pub const $name: &str = $code;)*

        /// All of them.
        pub const ALL: &[&str] = &[$($code),*];
    };
}

codes! {
    /// A process answered everything and then ended as it should not.
    ABORT_AT_EXIT = "abort-at-exit";
    /// Candidate and baseline differ where no reference says who is right.
    BUILDS_DIFFER = "builds-differ";
    /// An engine holds another size of keys and values than its model has.
    CACHE_MEMORY = "cache-memory";
    /// All logits of a row are equal.
    CONSTANT_LOGITS = "constant-logits";
    /// A process ended before it had answered.
    CRASHED = "crashed";
    /// A build's decode rows leave the right ones.
    DECODE_DIVERGES = "decode-logits-diverge";
    /// An answer holds nothing.
    EMPTY_ANSWER = "empty-answer";
    /// A build ends replies at other ids than the reference.
    EOS_IDS_DIFFER = "eos-ids-differ";
    /// A build's own text holds ids that the scoring engine would not choose.
    FREE_TEXT_OFF_GREEDY = "free-text-off-greedy";
    /// A build's own text reads as noise to the scoring engine.
    FREE_TEXT_UNLIKELY = "free-text-unlikely";
    /// A process wrote what the protocol does not have.
    GARBLED = "garbled";
    /// Greedy ids leave the right ones.
    GREEDY_DIVERGES = "greedy-diverges";
    /// Greedy ids leave the right ones at a tie that rounding decides.
    GREEDY_NEAR_TIE = "greedy-near-tie";
    /// An engine names an id that its vocabulary does not have.
    ID_BEYOND_VOCABULARY = "id-beyond-vocabulary";
    /// Rows cannot be compared.
    INCOMPARABLE = "incomparable";
    /// Less was answered than asked for.
    INCOMPLETE = "incomplete";
    /// A known fault or limit was not seen.
    KNOWN_NOT_SEEN = "known-fault-not-seen";
    /// Peak memory grows from request to request.
    MEMORY_GROWS = "memory-grows";
    /// Memory grows with every request of a throughput cell.
    MEMORY_LEAK = "memory-leak";
    /// Peak memory is larger after the first request, and stays.
    MEMORY_STEPS = "memory-steps";
    /// A process ended well without what was asked of it.
    NO_MEASUREMENT = "no-measurement";
    /// Logits hold NaN or infinite values.
    NON_FINITE_LOGITS = "non-finite-logits";
    /// A process ran out of memory.
    OUT_OF_MEMORY = "out-of-memory";
    /// A real text is more or less likely than it should be.
    PERPLEXITY_DIFFERS = "perplexity-differs";
    /// A build's prefill rows leave the right ones.
    PREFILL_DIVERGES = "prefill-logits-diverge";
    /// A product differs from the exact one.
    PRODUCT_WRONG = "product-wrong";
    /// The same prompt becomes other ids.
    PROMPT_IDS_DIFFER = "prompt-ids-differ";
    /// An engine refused what was asked of it.
    REFUSED = "refused";
    /// The same prompt, asked again, is answered with other bits.
    REPEAT_DIFFERS = "repeat-differs";
    /// One id over and over.
    REPEATED_ID = "repeated-id";
    /// An answer holds U+FFFD.
    REPLACEMENT_CHARACTER = "replacement-character";
    /// Rows have a shape that nothing can be compared with.
    ROWS_MISSHAPEN = "rows-misshapen";
    /// A model or precision does not keep up with another.
    SLOWER_THAN_PEER = "slower-than-peer";
    /// An answer holds an id that no reader should see.
    SPECIAL_ID_IN_ANSWER = "special-id-in-answer";
    /// A process lay partly in swap.
    SWAPPED = "swapped";
    /// An answer lacks what it must hold.
    TASK_FAILED = "task-failed";
    /// A text compresses suspiciously well.
    TEXT_COMPRESSION = "text-compression";
    /// A text foretells itself, as a loop does.
    TEXT_FORETOLD = "text-foretold";
    /// One word is much of a text.
    TEXT_ONE_WORD = "text-one-word";
    /// The end of a text repeats.
    TEXT_PERIOD = "text-period";
    /// A text holds U+FFFD.
    TEXT_REPLACEMENT_CHARACTER = "text-replacement-character";
    /// A letter or word many times in a row.
    TEXT_RUN = "text-run";
    /// A text drifts into a script of its own.
    TEXT_SCRIPT_DRIFT = "text-script-drift";
    /// A text is mostly symbols.
    TEXT_SYMBOLS = "text-symbols";
    /// A text shows its chat template.
    TEXT_TEMPLATE = "text-template";
    /// A figure of speed lies beyond an absolute bound of the matrix.
    THROUGHPUT_BOUND = "throughput-bound";
    /// Builds were timed on other ids.
    THROUGHPUT_OTHER_IDS = "throughput-other-ids";
    /// A rate fell, or memory grew.
    THROUGHPUT_REGRESSION = "throughput-regression";
    /// A process did not answer in time.
    TIMED_OUT = "timed-out";
    /// The system ended work on a device that took too long.
    WATCHDOG = "watchdog";
    /// An engine ran on another device than it was asked to.
    WRONG_DEVICE = "wrong-device";
    /// An engine loaded another MLX than it was built against.
    WRONG_MLX = "wrong-mlx";
}

/// What the codes of signals in a text begin with; a signal's name follows.
pub const TEXT_PREFIX: &str = "text-";

/// Fails a test in which the judge made a finding that is not in the list.
#[cfg(test)]
pub(super) fn assert_listed(findings: &[super::Finding]) {
    for finding in findings {
        assert!(ALL.contains(&finding.code.as_str()), "judge::codes lacks `{}`", finding.code);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::judge::text::SIGNALS;

    #[test]
    fn every_code_is_there_once_and_those_of_all_text_signals_are_among_them() {
        assert!(ALL.is_sorted_by(|a, b| a < b), "in order, none twice");
        for signal in SIGNALS {
            let code = format!("{TEXT_PREFIX}{signal}");
            assert!(ALL.contains(&code.as_str()), "{code}");
        }
    }
}
