//! The kinds of values that are one text, number or boolean in the file.

use std::fmt::Display;
use std::str::FromStr;
use std::time::Duration;

use serde_json::Value;

use crate::config::kinds::{Kind, Shape, wrong_type};
use crate::config::units::{format_bytes, format_duration, parse_bytes, parse_duration};

fn text<'a>(scalar: &'a Value, shape: &Shape) -> Result<&'a str, String> {
    scalar.as_str().ok_or_else(|| wrong_type(shape))
}

/// A text that is taken as it is.
pub(super) struct Plain;

impl<T: Clone + From<String> + AsRef<std::ffi::OsStr>> Kind<T> for Plain {
    fn shape(&self) -> Option<Shape> {
        Some(Shape::Text)
    }

    fn parse(&self, scalar: &Value) -> Result<T, String> {
        text(scalar, &Shape::Text).map(|text| text.to_owned().into())
    }

    fn write(&self, value: &T) -> Value {
        value.as_ref().to_string_lossy().into_owned().into()
    }
}

/// A text that a function reads.
pub(super) struct Parsed<T>(pub(super) fn(&str) -> Result<T, String>);

impl<T: Clone + Display> Kind<T> for Parsed<T> {
    fn shape(&self) -> Option<Shape> {
        Some(Shape::Text)
    }

    fn parse(&self, scalar: &Value) -> Result<T, String> {
        self.0(text(scalar, &Shape::Text)?)
    }

    fn write(&self, value: &T) -> Value {
        value.to_string().into()
    }
}

/// A text that the type itself reads.
pub(super) struct Text;

impl<T: Clone + FromStr<Err = String> + Display> Kind<T> for Text {
    fn shape(&self) -> Option<Shape> {
        Some(Shape::Text)
    }

    fn parse(&self, scalar: &Value) -> Result<T, String> {
        text(scalar, &Shape::Text)?.parse()
    }

    fn write(&self, value: &T) -> Value {
        value.to_string().into()
    }
}

/// The same, or `none`.
pub(super) struct OrNone;

impl<T: Clone + FromStr<Err = String> + Display> Kind<Option<T>> for OrNone {
    fn shape(&self) -> Option<Shape> {
        Some(Shape::Text)
    }

    fn parse(&self, scalar: &Value) -> Result<Option<T>, String> {
        match text(scalar, &Shape::Text)? {
            "none" => Ok(None),
            text => text.parse().map(Some),
        }
    }

    fn write(&self, value: &Option<T>) -> Value {
        value.as_ref().map_or_else(|| "none".to_owned(), T::to_string).into()
    }
}

/// The values of an enum by their words in the file.
pub(super) trait Words: Copy {
    const WORDS: &'static [&'static str];

    /// Returns the value of a word, which may be one for tests.
    fn from_word(word: &str) -> Option<Self>;

    fn word(self) -> &'static str;
}

/// One of some words.
pub(super) struct Word;

impl<T: Words> Kind<T> for Word {
    fn shape(&self) -> Option<Shape> {
        Some(Shape::Words(T::WORDS))
    }

    fn parse(&self, scalar: &Value) -> Result<T, String> {
        let word = text(scalar, &Shape::Words(T::WORDS))?;
        T::from_word(word).ok_or_else(|| expected(T::WORDS, word))
    }

    fn write(&self, value: &T) -> Value {
        value.word().into()
    }
}

/// Makes an enum the values of a setting. A value after `hidden` is for tests: it is read, and
/// nowhere offered.
macro_rules! words {
    ($type:ident { $($value:ident: $word:literal),+ $(; hidden $hidden:ident: $text:literal)? }) => {
        impl $crate::config::scalars::Words for $type {
            const WORDS: &'static [&'static str] = &[$($word),+];

            fn from_word(word: &str) -> Option<Self> {
                match word {
                    $($word => Some(Self::$value),)+
                    $($text => Some(Self::$hidden),)?
                    _ => None,
                }
            }

            fn word(self) -> &'static str {
                match self {
                    $(Self::$value => $word,)+
                    $(Self::$hidden => $text,)?
                }
            }
        }
    };
}

pub(super) use words;

/// The message about a word that is none of these.
pub(super) fn expected(words: &[&str], text: &str) -> String {
    let (last, first) = words.split_last().unwrap_or((&"", &[]));
    let first = first.join(", ");
    let separator = if first.is_empty() { "" } else { " or " };
    format!("expected {first}{separator}{last}, not {text:?}")
}

/// `true` or `false`.
pub(super) struct Flag;

impl Kind<bool> for Flag {
    fn shape(&self) -> Option<Shape> {
        Some(Shape::Boolean)
    }

    fn parse(&self, scalar: &Value) -> Result<bool, String> {
        scalar.as_bool().ok_or_else(|| wrong_type(&Shape::Boolean))
    }

    fn write(&self, value: &bool) -> Value {
        (*value).into()
    }
}

/// An integer between these, which are inclusive.
pub(super) struct Number(pub(super) u64, pub(super) u64);

impl<T: Copy + TryFrom<u64> + TryInto<u64>> Kind<T> for Number {
    fn shape(&self) -> Option<Shape> {
        Some(Shape::Integer)
    }

    fn parse(&self, scalar: &Value) -> Result<T, String> {
        let number = match scalar {
            Value::String(text) => text.parse().ok(),
            scalar => scalar.as_u64(),
        };
        let number = number.ok_or_else(|| wrong_type(&Shape::Integer))?;
        let value = T::try_from(number).ok().filter(|_| (self.0..=self.1).contains(&number));
        value.ok_or_else(|| match self {
            Self(1, u64::MAX) => "must be more than zero".to_owned(),
            Self(least, most) => format!("must be between {least} and {most}"),
        })
    }

    fn write(&self, value: &T) -> Value {
        (*value).try_into().unwrap_or(u64::MAX).into()
    }
}

/// A number of anything but zero.
pub(super) const COUNT: Number = Number(1, u64::MAX);

/// A duration between these, which are inclusive.
pub(super) struct Time(pub(super) Duration, pub(super) Duration);

impl Kind<Duration> for Time {
    fn shape(&self) -> Option<Shape> {
        Some(Shape::Duration)
    }

    fn parse(&self, scalar: &Value) -> Result<Duration, String> {
        let duration = match scalar {
            Value::String(text) => parse_duration(text)?,
            Value::Number(number) => parse_duration(&number.to_string())?,
            _ => return Err(wrong_type(&Shape::Duration)),
        };
        if (self.0..=self.1).contains(&duration) {
            return Ok(duration);
        }
        let [least, most] = [self.0, self.1].map(format_duration);
        Err(format!("must be between {least} and {most}"))
    }

    fn write(&self, value: &Duration) -> Value {
        format_duration(*value).into()
    }
}

/// The same, or `never`.
pub(super) struct TimeOrNever(pub(super) Duration, pub(super) Duration);

impl Kind<Option<Duration>> for TimeOrNever {
    fn shape(&self) -> Option<Shape> {
        Some(Shape::DurationOrNever)
    }

    fn parse(&self, scalar: &Value) -> Result<Option<Duration>, String> {
        if scalar == "never" {
            return Ok(None);
        }
        let time = Time(self.0, self.1).parse(scalar);
        time.map(Some).map_err(|error| format!("{error}; or never"))
    }

    fn write(&self, value: &Option<Duration>) -> Value {
        value.map_or_else(|| "never".to_owned(), format_duration).into()
    }
}

/// A number of bytes that is not zero.
pub(super) struct Size;

impl Kind<usize> for Size {
    fn shape(&self) -> Option<Shape> {
        Some(Shape::Bytes)
    }

    fn parse(&self, scalar: &Value) -> Result<usize, String> {
        let bytes = match scalar {
            Value::String(text) => parse_bytes(text)?,
            Value::Number(number) => parse_bytes(&number.to_string())?,
            _ => return Err(wrong_type(&Shape::Bytes)),
        };
        if bytes == 0 { Err("must be more than zero".to_owned()) } else { Ok(bytes) }
    }

    fn write(&self, value: &usize) -> Value {
        format_bytes(*value).into()
    }
}

/// A day, which is longer than most durations should be.
pub(super) const DAY: Duration = Duration::from_secs(24 * 3600);
/// Longer durations are typing errors, and could overflow sums of times.
pub(super) const WEEK: Duration = Duration::from_secs(7 * 24 * 3600);
