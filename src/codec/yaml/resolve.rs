//! Whether a plain YAML scalar is a text, by the rules of YAML 1.1 as yaml.v2 has them
//! (`resolve.go`, and `isBase60Float` of `encode.go`): not a boolean, a null, a number or a time.

/// Whether `text` without quotes reads back as a text.
pub(super) fn is_text(text: &str) -> bool {
    if WORDS.contains(&text) {
        return false;
    }
    match text.bytes().next() {
        Some(b'.') => !is_decimal(text),
        Some(b'+' | b'-' | b'0'..=b'9') => {
            let plain = text.replace('_', "");
            !(is_time(text) || is_integer(&plain) || is_decimal(&plain) || is_base_60(text))
        }
        _ => true,
    }
}

/// An integer in Go's notation: decimal, or with a prefix for its base. A leading zero is octal.
fn is_integer(text: &str) -> bool {
    let unsigned = text.strip_prefix(['+', '-']).unwrap_or(text);
    let lower = unsigned.to_ascii_lowercase();
    let (digits, radix) = match (lower.strip_prefix("0x"), lower.strip_prefix("0b")) {
        (Some(digits), _) => (digits, 16),
        (_, Some(digits)) => (digits, 2),
        _ => match lower.strip_prefix("0o") {
            Some(digits) => (digits, 8),
            None if lower.len() > 1 && lower.starts_with('0') => (lower.as_str(), 8),
            None => (lower.as_str(), 10),
        },
    };
    !digits.starts_with(['+', '-']) && u64::from_str_radix(digits, radix).is_ok()
}

/// `[-+]?(\.[0-9]+|[0-9]+(\.[0-9]*)?)([eE][-+]?[0-9]+)?`
fn is_decimal(text: &str) -> bool {
    let rest = text.strip_prefix(['+', '-']).unwrap_or(text);
    let (number, exponent) = match rest.split_once(['e', 'E']) {
        Some((number, exponent)) => (number, Some(exponent)),
        None => (rest, None),
    };
    let digits = |text: &str| text.bytes().all(|byte| byte.is_ascii_digit());
    let is_number = match number.split_once('.') {
        Some(("", fraction)) => !fraction.is_empty() && digits(fraction),
        Some((whole, fraction)) => digits(whole) && digits(fraction),
        None => !number.is_empty() && digits(number),
    };
    let is_exponent = exponent.is_none_or(|exponent| {
        let exponent = exponent.strip_prefix(['+', '-']).unwrap_or(exponent);
        !exponent.is_empty() && digits(exponent)
    });
    // Go reports an error for one that is too large, which leaves a text.
    is_number && is_exponent && text.parse::<f64>().is_ok_and(f64::is_finite)
}

/// `[-+]?[0-9][0-9_]*(:[0-5]?[0-9])+(\.[0-9_]*)?`, which YAML 1.1 reads as a number.
fn is_base_60(text: &str) -> bool {
    let rest = text.strip_prefix(['+', '-']).unwrap_or(text);
    let (whole, fraction) = rest.split_once('.').unwrap_or((rest, ""));
    let digits = |text: &str| text.bytes().all(|byte| byte.is_ascii_digit() || byte == b'_');
    let mut parts = whole.split(':');
    let first = parts.next().unwrap_or_default();
    let is_part =
        |part: &str| matches!(part.as_bytes(), [b'0'..=b'9'] | [b'0'..=b'5', b'0'..=b'9']);
    let count = whole.split(':').count();
    count > 1
        && first.starts_with(|first: char| first.is_ascii_digit())
        && digits(first)
        && parts.all(is_part)
        && digits(fraction)
}

/// A date `2006-1-2`, alone or followed by a time of day. The time is not checked further: nothing
/// that a Status names looks like one.
fn is_time(text: &str) -> bool {
    let (date, time) = match text.find(['T', 't', ' ']) {
        Some(at) => text.split_at(at),
        None => (text, ""),
    };
    let mut parts = date.split('-');
    let mut number = |lengths: std::ops::RangeInclusive<usize>| {
        let part = parts.next()?;
        let is_number =
            lengths.contains(&part.len()) && part.bytes().all(|byte| byte.is_ascii_digit());
        is_number.then(|| part.parse::<u32>().ok()).flatten()
    };
    let (Some(year), Some(month), Some(day)) = (number(4..=4), number(1..=2), number(1..=2)) else {
        return false;
    };
    let leap = year.is_multiple_of(4) && (!year.is_multiple_of(100) || year.is_multiple_of(400));
    let days = match month {
        1 | 3 | 5 | 7 | 8 | 10 | 12 => 31,
        4 | 6 | 9 | 11 => 30,
        2 if leap => 29,
        2 => 28,
        _ => 0,
    };
    parts.next().is_none() && (1..=days).contains(&day) && (time.is_empty() || is_clock(time))
}

/// Whether a text after a date begins as a time of day: a separator, hours, minutes and seconds.
fn is_clock(time: &str) -> bool {
    let mut parts = time.get(1..).unwrap_or_default().split(':');
    let digit = |part: Option<&str>| {
        part.is_some_and(|part| part.starts_with(|first: char| first.is_ascii_digit()))
    };
    digit(parts.next()) && digit(parts.next()) && digit(parts.next())
}

/// The words with another meaning than a text.
const WORDS: [&str; 39] = [
    "", "~", "null", "Null", "NULL", "y", "Y", "yes", "Yes", "YES", "true", "True", "TRUE", "on",
    "On", "ON", "n", "N", "no", "No", "NO", "false", "False", "FALSE", "off", "Off", "OFF", ".nan",
    ".NaN", ".NAN", ".inf", ".Inf", ".INF", "+.inf", "+.Inf", "+.INF", "-.inf", "-.Inf", "-.INF",
];
