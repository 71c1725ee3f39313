//! The problems of a configuration, collected while its sections are validated.

use std::fmt;
use std::ops::RangeInclusive;
use std::str::FromStr;
use std::time::Duration;

use crate::config::units::{format_duration, parse_bytes, parse_duration};

/// All problems of a configuration; never empty.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Problems(pub Vec<Problem>);

/// One problem.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Problem {
    /// The field, such as `server.listeners[0].listen`.
    pub path: String,
    /// The description.
    pub message: String,
}

impl std::error::Error for Problems {}

impl fmt::Display for Problems {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, problem) in self.0.iter().enumerate() {
            let separator = if index == 0 { "" } else { "; " };
            write!(f, "{separator}{}: {}", problem.path, problem.message)?;
        }
        Ok(())
    }
}

/// The problems that were found.
#[derive(Default)]
pub(super) struct Collector(pub(super) Vec<Problem>);

impl Collector {
    /// Adds a problem.
    pub(super) fn add(&mut self, path: impl Into<String>, message: impl Into<String>) {
        self.0.push(Problem { path: path.into(), message: message.into() });
    }

    /// Parses a value, if there is one, and passes it to `set`, or adds a problem.
    pub(super) fn take<A, B>(
        &mut self,
        path: &str,
        value: Option<A>,
        parse: impl FnOnce(A) -> Result<B, String>,
        set: impl FnOnce(B),
    ) {
        match value.map(parse) {
            Some(Ok(value)) => set(value),
            Some(Err(message)) => self.add(path, message),
            None => {}
        }
    }

    /// Parses a duration that is not zero.
    pub(super) fn duration(&mut self, path: &str, value: Option<String>, set: &mut Duration) {
        let parse = |text: String| match parse_duration(&text)? {
            Duration::ZERO => Err("must be more than zero".to_owned()),
            duration if duration > DURATION_MAX => Err("must be at most 168h".to_owned()),
            duration => Ok(duration),
        };
        self.take(path, value, parse, |duration| *set = duration);
    }

    /// Parses a duration within `bounds`, which are inclusive.
    pub(super) fn duration_between(
        &mut self,
        path: &str,
        value: Option<String>,
        bounds: RangeInclusive<Duration>,
        set: &mut Duration,
    ) {
        self.take(path, value, |text| between(&text, &bounds), |duration| *set = duration);
    }

    /// Parses a duration within `bounds`, which are inclusive, or `never`, which is `None`.
    pub(super) fn duration_or_never(
        &mut self,
        path: &str,
        value: Option<String>,
        bounds: RangeInclusive<Duration>,
        set: &mut Option<Duration>,
    ) {
        let parse = |text: String| match text.as_str() {
            "never" => Ok(None),
            text => between(text, &bounds).map(Some).map_err(|error| format!("{error}; or never")),
        };
        self.take(path, value, parse, |duration| *set = duration);
    }

    /// Parses a value of a type with its own parser.
    pub(super) fn parsed<T: FromStr<Err = String>>(
        &mut self,
        path: &str,
        value: Option<String>,
        set: &mut T,
    ) {
        self.take(path, value, |text| text.parse(), |value| *set = value);
    }

    /// Parses a size that is not zero.
    pub(super) fn bytes(&mut self, path: &str, value: Option<String>) -> Option<usize> {
        let parse = |text: String| match parse_bytes(&text)? {
            0 => Err("must be more than zero".to_owned()),
            bytes => Ok(bytes),
        };
        let mut parsed = None;
        self.take(path, value, parse, |bytes| parsed = Some(bytes));
        parsed
    }

    /// Parses every element of a list; an element that cannot be parsed adds a problem and is
    /// omitted.
    pub(super) fn list<A, B>(
        &mut self,
        path: &str,
        values: Vec<A>,
        parse: impl Fn(A) -> Result<B, String>,
    ) -> Vec<B> {
        let mut parsed = Vec::with_capacity(values.len());
        for (index, value) in values.into_iter().enumerate() {
            match parse(value) {
                Ok(value) => parsed.push(value),
                Err(message) => self.add(format!("{path}[{index}]"), message),
            }
        }
        parsed
    }
}

/// Parses a duration within `bounds`, which are inclusive.
pub(super) fn between(text: &str, bounds: &RangeInclusive<Duration>) -> Result<Duration, String> {
    let duration = parse_duration(text)?;
    if bounds.contains(&duration) {
        return Ok(duration);
    }
    let (least, most) = (format_duration(*bounds.start()), format_duration(*bounds.end()));
    Err(format!("must be between {least} and {most}"))
}

/// A week. Longer values are typing errors, and could overflow sums of times.
const DURATION_MAX: Duration = Duration::from_secs(7 * 24 * 3600);
