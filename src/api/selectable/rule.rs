//! How the value of a field is derived from an object's JSON or protobuf.

use std::borrow::Cow;

/// How the JSON at a path becomes the value of a field. JSON of another type than expected counts
/// as absent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Rule {
    /// A boolean; `false` when absent.
    Bool,
    /// Always empty, although the label is valid.
    Empty,
    /// An integer; `0` when absent.
    Number,
    /// The printed form of a scalar, for custom resources; empty when absent.
    Printed,
    /// A string; empty when absent.
    Text,
}

/// A scalar value in protobuf.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Scalar<'a> {
    /// An integer as the 64 bits of its varint, or a boolean.
    Number(u64),
    /// A string, which need not be UTF-8.
    Text(&'a [u8]),
}

impl Rule {
    /// Returns the value of the field from the JSON at its path; `raw` is `None` if there is none.
    pub fn value_of(self, raw: Option<&str>) -> Cow<'_, [u8]> {
        let raw = raw.map(str::trim).filter(|raw| *raw != "null");
        match self {
            Self::Bool => borrowed(raw.filter(|raw| *raw == "true").unwrap_or("false")),
            Self::Empty => borrowed(""),
            Self::Number => borrowed(raw.filter(|raw| is_integer(raw)).unwrap_or("0")),
            Self::Printed => match raw {
                Some(raw) if raw.starts_with('"') => text(raw),
                Some(raw) if !raw.starts_with(['{', '[']) => borrowed(raw),
                Some(_) | None => borrowed(""),
            },
            Self::Text => raw.map_or_else(|| borrowed(""), text),
        }
    }

    /// Returns the value of the field from a protobuf value. A value of another type than expected
    /// counts as absent.
    pub fn value_of_scalar(self, scalar: Option<Scalar<'_>>) -> Cow<'_, [u8]> {
        match (self, scalar) {
            (Self::Bool, Some(Scalar::Number(number))) if number != 0 => borrowed("true"),
            (Self::Bool, _) => borrowed("false"),
            // Negative numbers have 64 bits as well.
            (Self::Number, Some(Scalar::Number(number))) => {
                Cow::Owned(number.cast_signed().to_string().into_bytes())
            }
            (Self::Number, _) => borrowed("0"),
            (Self::Text, Some(Scalar::Text(text))) => Cow::Borrowed(text),
            (Self::Empty | Self::Printed | Self::Text, _) => borrowed(""),
        }
    }
}

fn borrowed(text: &str) -> Cow<'_, [u8]> {
    Cow::Borrowed(text.as_bytes())
}

fn is_integer(raw: &str) -> bool {
    let digits = raw.strip_prefix('-').unwrap_or(raw);
    !digits.is_empty() && digits.bytes().all(|byte| byte.is_ascii_digit())
}

/// Returns the content of a JSON string; empty for any other JSON.
fn text(raw: &str) -> Cow<'_, [u8]> {
    let plain = raw.strip_prefix('"').and_then(|rest| rest.strip_suffix('"'));
    match plain {
        Some(plain) if !plain.contains(['\\', '"']) => borrowed(plain),
        Some(_) => Cow::Owned(serde_json::from_str::<String>(raw).unwrap_or_default().into_bytes()),
        None => borrowed(""),
    }
}
