//! Durations in Go's notation and byte sizes as Kubernetes quantities, as in the configuration of
//! Kubernetes components.
//!
//! Both are parsed and printed exactly: the parsers read the output of [`format_duration`] and
//! [`format_bytes`] as the same value, so that the output of `weir check` is itself a
//! configuration.

use std::time::Duration;

/// Parses `30s`, `5m`, `1h30m`, `1.5s`, `250ms` or `0`, as Go's `time.ParseDuration` does (without
/// a sign). The error describes the expected form.
pub fn parse_duration(text: &str) -> Result<Duration, String> {
    let expected = || format!("expected a duration such as 30s, 5m or 1h30m, not {text:?}");
    if text == "0" {
        return Ok(Duration::ZERO);
    }
    let mut rest = text;
    let mut nanos: u128 = 0;
    while !rest.is_empty() {
        let end = rest.find(|c: char| !c.is_ascii_digit() && c != '.').ok_or_else(expected)?;
        let (number, tail) = rest.split_at(end);
        let end = tail.find(|c: char| c.is_ascii_digit() || c == '.').unwrap_or(tail.len());
        let (unit, tail) = tail.split_at(end);
        let unit = DURATION_UNITS.iter().find(|(name, _)| *name == unit).ok_or_else(expected)?.1;
        let part = scale(number, unit).ok_or_else(expected)?;
        nanos = nanos.checked_add(part).ok_or_else(expected)?;
        rest = tail;
    }
    if text.is_empty() {
        return Err(expected());
    }
    u64::try_from(nanos).map(Duration::from_nanos).map_err(|_| expected())
}

/// Writes a duration with the largest whole units: `1h30m`, `250ms`, `0s`.
pub fn format_duration(duration: Duration) -> String {
    let mut rest = duration.as_nanos();
    let mut text = String::new();
    for (name, nanos) in DURATION_UNITS {
        if rest >= nanos {
            text.push_str(&format!("{}{name}", rest / nanos));
            rest %= nanos;
        }
    }
    if text.is_empty() { "0s".to_owned() } else { text }
}

/// Parses `512Mi`, `2Gi`, `1.5G` or a plain number of bytes, as a Kubernetes quantity. A fraction
/// of a byte is an error.
pub fn parse_bytes(text: &str) -> Result<usize, String> {
    let expected = || format!("expected a size such as 512Mi, 2Gi or 1000000, not {text:?}");
    let end = text.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(text.len());
    let (number, suffix) = text.split_at(end);
    let unit = match suffix {
        "" => 1,
        suffix => BYTE_UNITS.iter().find(|(name, _)| *name == suffix).ok_or_else(expected)?.1,
    };
    let bytes = scale(number, unit).ok_or_else(expected)?;
    usize::try_from(bytes).map_err(|_| expected())
}

/// Writes a size with the largest binary unit that keeps it whole: `512Mi`, `1536`.
pub fn format_bytes(bytes: usize) -> String {
    let bytes = bytes as u128;
    BINARY_UNITS
        .iter()
        .find(|(_, unit)| bytes >= *unit && bytes.is_multiple_of(*unit))
        .map_or_else(|| bytes.to_string(), |(name, unit)| format!("{}{name}", bytes / unit))
}

/// Multiplies a decimal number by a unit. Returns `None` if the text is not a number, has no
/// digits, or the product is not whole.
fn scale(number: &str, unit: u128) -> Option<u128> {
    let (whole, fraction) = number.split_once('.').unwrap_or((number, ""));
    if whole.is_empty() && fraction.is_empty() {
        return None;
    }
    if whole.len() > DIGITS_MAX || fraction.len() > DIGITS_MAX {
        return None;
    }
    let whole: u128 = if whole.is_empty() { 0 } else { whole.parse().ok()? };
    let mut value = whole.checked_mul(unit)?;
    if !fraction.is_empty() {
        let divisor = 10u128.checked_pow(u32::try_from(fraction.len()).ok()?)?;
        let part = fraction.parse::<u128>().ok()?.checked_mul(unit)?;
        if !part.is_multiple_of(divisor) {
            return None;
        }
        value = value.checked_add(part / divisor)?;
    }
    Some(value)
}

/// More digits than any sensible setting has, few enough that the product fits 128 bits.
const DIGITS_MAX: usize = 20;

/// Largest first, which is the order of printing.
const DURATION_UNITS: [(&str, u128); 6] = [
    ("h", 3_600_000_000_000),
    ("m", 60_000_000_000),
    ("s", 1_000_000_000),
    ("ms", 1_000_000),
    ("us", 1_000),
    ("ns", 1),
];

const BINARY_UNITS: [(&str, u128); 4] =
    [("Ti", 1 << 40), ("Gi", 1 << 30), ("Mi", 1 << 20), ("Ki", 1 << 10)];

const BYTE_UNITS: [(&str, u128); 8] = [
    ("Ki", 1 << 10),
    ("Mi", 1 << 20),
    ("Gi", 1 << 30),
    ("Ti", 1 << 40),
    ("k", 1_000),
    ("M", 1_000_000),
    ("G", 1_000_000_000),
    ("T", 1_000_000_000_000),
];

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn durations_are_read_as_go_reads_them() {
        for (text, millis) in
            [("30s", 30_000), ("1h30m", 5_400_000), ("1.5s", 1_500), (".5s", 500), ("0", 0)]
        {
            assert_eq!(parse_duration(text), Ok(Duration::from_millis(millis)), "{text}");
        }
        for text in ["", "30", "s", "1d", "-1s", "1 s", "1..5s", "99999999h", "1s ", "½s"] {
            assert!(parse_duration(text).is_err(), "{text}");
        }
    }

    #[test]
    fn sizes_are_read_as_quantities() {
        for (text, bytes) in
            [("512Mi", 512 << 20), ("2Gi", 2 << 30), ("1.5k", 1500), ("42", 42), ("0", 0)]
        {
            assert_eq!(parse_bytes(text), Ok(bytes), "{text}");
        }
        for text in ["", "Mi", "1.5", "-1", "2GB", "1e3", "9999999999999Ti", " 1"] {
            assert!(parse_bytes(text).is_err(), "{text}");
        }
    }

    proptest! {
        #[test]
        fn printed_durations_and_sizes_parse_to_themselves(nanos in 0..u64::MAX, bytes in 0..usize::MAX / 4) {
            let duration = Duration::from_nanos(nanos);
            prop_assert_eq!(parse_duration(&format_duration(duration)), Ok(duration));
            prop_assert_eq!(parse_bytes(&format_bytes(bytes)), Ok(bytes));
        }

        #[test]
        fn any_text_is_parsed_without_panic(text in "[0-9.hmsKMGi½]{0,12}") {
            drop((parse_duration(&text), parse_bytes(&text)));
        }
    }
}
