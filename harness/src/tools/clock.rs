//! The only place that reads the wall clock.

use std::time::SystemTime;

use jiff::Timestamp;

/// Now, in UTC, to the second, as RFC 3339 (`2026-01-31T12:00:00Z`).
pub fn now_utc() -> String {
    #[expect(clippy::disallowed_methods, reason = "this is the one door")]
    let now = SystemTime::now();
    rfc3339(now)
}

/// A time as RFC 3339, in UTC, to the second.
pub fn rfc3339(time: SystemTime) -> String {
    // Beyond the years that a timestamp can hold there is nothing sensible to print.
    let timestamp = Timestamp::try_from(time).unwrap_or(Timestamp::UNIX_EPOCH);
    Timestamp::from_second(timestamp.as_second()).unwrap_or(Timestamp::UNIX_EPOCH).to_string()
}

#[cfg(test)]
mod tests {
    use std::time::{Duration, UNIX_EPOCH};

    use super::*;

    #[test]
    fn times_are_utc_and_whole_seconds() {
        assert_eq!(rfc3339(UNIX_EPOCH + Duration::from_millis(1_769_860_800_999)), "2026-01-31T12:00:00Z");
    }
}
