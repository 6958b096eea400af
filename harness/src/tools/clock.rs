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

/// The seconds since 1970 of a time in RFC 3339; `None` for anything else.
pub fn seconds_of(time: &str) -> Option<i64> {
    time.parse::<Timestamp>().ok().map(Timestamp::as_second)
}

#[cfg(test)]
mod tests {
    use std::time::{Duration, UNIX_EPOCH};

    use super::*;

    #[test]
    fn times_are_utc_and_whole_seconds() {
        assert_eq!(rfc3339(UNIX_EPOCH + Duration::from_millis(1_769_860_800_999)), "2026-01-31T12:00:00Z");
        assert_eq!(seconds_of("2026-01-31T12:00:00Z"), Some(1_769_860_800));
        assert_eq!(seconds_of("yesterday"), None);
    }
}
