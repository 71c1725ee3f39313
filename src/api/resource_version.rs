//! The resourceVersion: opaque to clients, a `u64` inside.

use std::fmt;

/// A resourceVersion of the API server's store. Compare only values of one resource: two resources
/// may be in different stores.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug, Default)]
pub struct ResourceVersion(pub u64);

impl ResourceVersion {
    /// Parses the decimal form that the API server writes. Anything else (a sign, a leading zero,
    /// an empty string, more than 64 bits) gives `None`; the request is then forwarded
    /// (`docs/semantics.md` §1.6.1, rows L13 and L14).
    pub fn parse(text: &str) -> Option<Self> {
        let canonical = !text.is_empty()
            && text.bytes().all(|byte| byte.is_ascii_digit())
            && (text == "0" || !text.starts_with('0'));
        if canonical { text.parse().ok().map(Self) } else { None }
    }
}

impl fmt::Display for ResourceVersion {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_canonical_form_is_parsed() {
        let rows = [
            ("0", Some(0)),
            ("1", Some(1)),
            ("18446744073709551615", Some(u64::MAX)),
            ("18446744073709551616", None),
            ("", None),
            ("00", None),
            ("01", None),
            ("+5", None),
            ("-1", None),
            ("1.5", None),
            ("0x10", None),
            (" 1", None),
            ("abc", None),
        ];
        for (text, expected) in rows {
            assert_eq!(ResourceVersion::parse(text).map(|version| version.0), expected, "{text}");
        }
    }
}
