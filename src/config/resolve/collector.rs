//! Gathers what is wrong while sections are judged, so that everything is told at once.

use std::ops::RangeInclusive;
use std::str::FromStr;
use std::time::Duration;

use crate::config::resolve::Problem;
use crate::config::units::{format_duration, parse_bytes, parse_duration};

/// What is wrong so far.
#[derive(Default)]
pub(super) struct Collector(pub(super) Vec<Problem>);

impl Collector {
    /// Notes one more.
    pub(super) fn add(&mut self, path: impl Into<String>, message: impl Into<String>) {
        self.0.push(Problem { path: path.into(), message: message.into() });
    }

    /// Parses a value that is there and hands it on, or notes why it can't be.
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

    /// A duration that is not zero.
    pub(super) fn duration(&mut self, path: &str, value: Option<String>, set: &mut Duration) {
        let parse = |text: String| match parse_duration(&text)? {
            Duration::ZERO => Err("must be more than zero".to_owned()),
            duration if duration > DURATION_MAX => Err("must be at most 168h".to_owned()),
            duration => Ok(duration),
        };
        self.take(path, value, parse, |duration| *set = duration);
    }

    /// A duration within these bounds, both allowed.
    pub(super) fn duration_between(
        &mut self,
        path: &str,
        value: Option<String>,
        bounds: RangeInclusive<Duration>,
        set: &mut Duration,
    ) {
        self.take(path, value, |text| between(&text, &bounds), |duration| *set = duration);
    }

    /// Parses what a single word or phrase says.
    pub(super) fn word<T: FromStr<Err = String>>(
        &mut self,
        path: &str,
        value: Option<String>,
        set: &mut T,
    ) {
        self.take(path, value, |text| text.parse(), |value| *set = value);
    }

    /// A size that is not zero.
    pub(super) fn bytes(&mut self, path: &str, value: Option<String>) -> Option<usize> {
        let parse = |text: String| match parse_bytes(&text)? {
            0 => Err("must be more than zero".to_owned()),
            bytes => Ok(bytes),
        };
        let mut taken = None;
        self.take(path, value, parse, |bytes| taken = Some(bytes));
        taken
    }

    /// Parses every element of a list; what can't be parsed is noted and left out.
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

/// A duration within these bounds, both allowed.
pub(super) fn between(text: &str, bounds: &RangeInclusive<Duration>) -> Result<Duration, String> {
    let duration = parse_duration(text)?;
    if bounds.contains(&duration) {
        return Ok(duration);
    }
    let (least, most) = (format_duration(*bounds.start()), format_duration(*bounds.end()));
    Err(format!("must be between {least} and {most}"))
}

/// A week: what is longer is a slip of the pen, and would overflow sums of times.
const DURATION_MAX: Duration = Duration::from_secs(7 * 24 * 3600);
