//! Ages as Kubernetes prints them: `HumanDuration` (`docs/semantics.md` §9.3).

/// Returns the age of a timestamp in RFC 3339; `<unknown>` for none.
pub(super) fn age(timestamp: &str) -> String {
    if timestamp.is_empty() {
        return "<unknown>".to_owned();
    }
    let Ok(then) = timestamp.parse::<jiff::Timestamp>() else { return "<invalid>".to_owned() };
    human(jiff::Timestamp::now().as_second() - then.as_second())
}

/// Formats a duration in seconds with at most two units.
pub(super) fn human(seconds: i64) -> String {
    const MINUTE: i64 = 60;
    const HOUR: i64 = 60 * MINUTE;
    const DAY: i64 = 24 * HOUR;
    const YEAR: i64 = 365 * DAY;
    let two = |big: i64, big_unit: &str, small: i64, small_unit: &str| match small {
        0 => format!("{big}{big_unit}"),
        _ => format!("{big}{big_unit}{small}{small_unit}"),
    };
    match seconds {
        ..-1 => "<invalid>".to_owned(),
        -1..0 => "0s".to_owned(),
        _ if seconds < 2 * MINUTE => format!("{seconds}s"),
        _ if seconds < 10 * MINUTE => two(seconds / MINUTE, "m", seconds % MINUTE, "s"),
        _ if seconds < 3 * HOUR => format!("{}m", seconds / MINUTE),
        _ if seconds < 8 * HOUR => two(seconds / HOUR, "h", seconds % HOUR / MINUTE, "m"),
        _ if seconds < 2 * DAY => format!("{}h", seconds / HOUR),
        _ if seconds < 8 * DAY => two(seconds / DAY, "d", seconds % DAY / HOUR, "h"),
        _ if seconds < 2 * YEAR => format!("{}d", seconds / DAY),
        _ if seconds < 8 * YEAR => two(seconds / YEAR, "y", seconds % YEAR / DAY, "d"),
        _ => format!("{}y", seconds / YEAR),
    }
}

#[cfg(test)]
mod tests {
    use super::human;

    #[test]
    fn ages_change_their_units_where_the_upstream_does() {
        let cases = [
            (119, "119s"),
            (120, "2m"),
            (125, "2m5s"),
            (600, "10m"),
            (10_800, "3h"),
            (11_100, "3h5m"),
            (86_400, "24h"),
            (200_000, "2d7h"),
            (700_000, "8d"),
            (-5, "<invalid>"),
        ];
        for (seconds, expected) in cases {
            assert_eq!(human(seconds), expected);
        }
    }
}
