//! Requests with very many header fields.
//!
//! A field takes some two hundred bytes in memory, and over HTTP/2 as little as one on the wire. A
//! connection has hundreds of streams, and a request may wait for its turn or for its body. So only
//! a few such requests of a connection are answered at once, which bounds what they take to about
//! what all its others may take.

use std::sync::Arc;

use http::{HeaderMap, Request};

use crate::server::connection::wire::aside::{HEADERS_MAX, RefusedHead};
use crate::server::http::refusal;

/// The requests of a connection that have very many fields and wait for their responses.
#[derive(Debug, Default)]
pub(super) struct LargeHeads(Arc<()>);

/// Counts one of them until it is dropped.
#[derive(Debug)]
pub(crate) struct LargeHead(#[expect(dead_code, reason = "counted")] Arc<()>);

impl LargeHeads {
    /// Counts a request that has very many fields. One with too many of them, or beside too many
    /// other such requests, loses them and is refused.
    pub(super) fn enter<B>(&self, request: &mut Request<B>) -> Option<LargeHead> {
        let fields = request.headers().len();
        if fields <= FIELDS_USUAL_MAX {
            return None;
        }
        let refused = if fields > HEADERS_MAX {
            RefusedHead::too_many_fields()
        } else if Arc::strong_count(&self.0) > AT_ONCE_MAX {
            RefusedHead(refusal::too_many_requests(TOO_MANY))
        } else {
            return Some(LargeHead(Arc::clone(&self.0)));
        };
        *request.headers_mut() = HeaderMap::new();
        request.extensions_mut().insert(refused);
        None
    }
}

/// Fields that any request may have.
const FIELDS_USUAL_MAX: usize = 1024;
const AT_ONCE_MAX: usize = 4;
const TOO_MANY: &str = "weir answers at most 4 requests of a connection at once that have more than 1,024 header fields";

#[cfg(test)]
mod tests {
    use super::*;

    fn request(fields: usize) -> Request<()> {
        let mut request = Request::new(());
        for number in 0..fields {
            let name = http::HeaderName::try_from(format!("x-{}", number % 2000)).unwrap();
            request.headers_mut().append(name, http::HeaderValue::from_static(""));
        }
        request
    }

    fn code(request: &Request<()>) -> Option<u16> {
        request.extensions().get::<RefusedHead>().map(|RefusedHead(status)| status.code.as_u16())
    }

    #[test]
    fn few_requests_with_very_many_fields_are_answered_at_once() {
        let heads = LargeHeads::default();
        let enter = |fields| {
            let mut request = request(fields);
            let counted = heads.enter(&mut request);
            (counted, code(&request), request.headers().len())
        };
        let mut open: Vec<_> = (0..4).map(|_| enter(16_384)).collect();
        for (counted, code, fields) in &open {
            assert_eq!((counted.is_some(), *code, *fields), (true, None, 16_384));
        }
        assert!(matches!(enter(1024), (None, None, 1024)));
        assert!(matches!(enter(1025), (None, Some(429), 0)));
        open.pop();
        assert!(matches!(enter(1025), (Some(_), None, 1025)));
        assert!(matches!(enter(16_385), (None, Some(431), 0)));
    }
}
