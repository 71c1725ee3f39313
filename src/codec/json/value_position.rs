//! The position of the value of a key in an object's JSON, found while the object is parsed.

use crate::object::Span;

/// The position of an object or array, derived from the keys before and after it. serde does not
/// report the position of a value that it parses, a value that is first kept raw would be scanned
/// twice, and a raw value must be UTF-8. Found only if there is no white space between, which no
/// API server writes.
#[derive(Clone, Copy, Debug)]
pub(crate) enum ValuePosition {
    Unknown,
    /// The first byte is known, the end is not. The last byte of the value is `close`.
    Start {
        begin: usize,
        close: u8,
    },
    Whole(Span),
}

impl ValuePosition {
    /// Returns the position of the value of `key`, a slice of `body`.
    pub(crate) fn after_key(body: &[u8], key: &str) -> Self {
        let begin = offset_in(body, key).map(|at| at + key.len() + "\":".len());
        let begin =
            begin.filter(|begin| body.get(..*begin).is_some_and(|lead| lead.ends_with(b"\":")));
        match begin.map(|begin| (begin, body.get(begin))) {
            Some((begin, Some(b'{'))) => Self::Start { begin, close: b'}' },
            Some((begin, Some(b'['))) => Self::Start { begin, close: b']' },
            _ => Self::Unknown,
        }
    }

    /// Returns the position after the next key was parsed.
    pub(crate) fn before_key(self, body: &[u8], key: &str) -> Self {
        let Self::Start { begin, close } = self else { return self };
        let end = offset_in(body, key).and_then(|at| at.checked_sub(",\"".len()));
        Self::between(
            begin,
            end.filter(|end| {
                let rest = body.get(end.saturating_sub(1)..);
                begin < *end && rest.is_some_and(|rest| rest.starts_with(&[close, b',', b'"']))
            }),
        )
    }

    /// Returns the position if no key followed.
    pub(crate) fn at_the_end_of(self, body: &[u8]) -> Option<Span> {
        let whole = match self {
            Self::Start { begin, close } => {
                let end = body.len().checked_sub("}".len());
                let ends = |end: &usize| begin < *end && body.ends_with(&[close, b'}']);
                Self::between(begin, end.filter(ends))
            }
            whole => whole,
        };
        if let Self::Whole(span) = whole { Some(span) } else { None }
    }

    fn between(begin: usize, end: Option<usize>) -> Self {
        let span = end.and_then(|end| Span::new(begin, end - begin));
        span.map_or(Self::Unknown, Self::Whole)
    }
}

/// Returns the offset of `part` in `whole`; `None` if it is not a slice of it.
pub(super) fn offset_in(whole: &[u8], part: &str) -> Option<usize> {
    let offset = (part.as_ptr() as usize).checked_sub(whole.as_ptr() as usize)?;
    (offset + part.len() <= whole.len()).then_some(offset)
}
