//! The position of `metadata` in an object's JSON, found while the object is parsed.

use crate::codec::object::Span;

/// The position of `metadata`, derived from the keys before and after it. serde does not report the
/// position of a value that it parses, and a value that is first kept raw would be scanned twice.
/// Found only if there is no white space between, which no API server writes.
#[derive(Clone, Copy)]
pub(super) enum MetadataPosition {
    Unknown,
    /// The first byte is known, the end is not.
    Start(usize),
    Whole(Span),
}

impl MetadataPosition {
    /// Returns the position of the value of `key`, a slice of `body`.
    pub(super) fn after_key(body: &str, key: &str) -> Self {
        let begin = offset_in(body.as_bytes(), key).map(|at| at + key.len() + "\":".len());
        let begin = begin.filter(|begin| {
            body.as_bytes().get(..*begin).is_some_and(|lead| lead.ends_with(b"\":"))
                && body.as_bytes().get(*begin) == Some(&b'{')
        });
        begin.map_or(Self::Unknown, Self::Start)
    }

    /// Returns the position after the next key was parsed.
    pub(super) fn before_key(self, body: &str, key: &str) -> Self {
        let Self::Start(begin) = self else { return self };
        let end = offset_in(body.as_bytes(), key).and_then(|at| at.checked_sub(",\"".len()));
        self.ending_at(end.filter(|end| {
            let rest = body.as_bytes().get(end.saturating_sub(1)..);
            begin < *end && rest.is_some_and(|rest| rest.starts_with(b"},\""))
        }))
    }

    /// Returns the position if no key followed.
    pub(super) fn at_the_end_of(self, body: &str) -> Option<Span> {
        let Self::Start(begin) = self else {
            return if let Self::Whole(span) = self { Some(span) } else { None };
        };
        let end = body.len().checked_sub("}".len());
        let end = end.filter(|end| begin < *end && body.ends_with("}}"));
        if let Self::Whole(span) = self.ending_at(end) { Some(span) } else { None }
    }

    fn ending_at(self, end: Option<usize>) -> Self {
        match (self, end) {
            (Self::Start(begin), Some(end)) => {
                Span::new(begin, end - begin).map_or(Self::Unknown, Self::Whole)
            }
            _ => Self::Unknown,
        }
    }
}

/// Returns the offset of `part` in `whole`; `None` if it is not a slice of it.
pub(super) fn offset_in(whole: &[u8], part: &str) -> Option<usize> {
    let offset = (part.as_ptr() as usize).checked_sub(whole.as_ptr() as usize)?;
    (offset + part.len() <= whole.len()).then_some(offset)
}
