//! The `Audit-ID` of an answer: what the request itself gave, else a random UUID, as upstream.
//!
//! The UUIDs must be unique in an audit log, and nobody may foresee them: a client may name its own, and would otherwise put its requests under the
//! one that somebody else's is about to get. So they are made of what the provider of TLS's keys draws, and a general purpose generator won't do; but
//! a draw costs as much for one as for many, so that each thread draws many at once.
//!
//! The header is marked as sensitive, which here means only that HPACK never puts it into its table of recent values: no two are alike, each would
//! push out a header that does come again, and the table would be searched for it in vain.

use std::cell::RefCell;

use http::{HeaderMap, HeaderName, HeaderValue};

/// The header of an identity that the upstream gives each request.
pub(crate) const AUDIT_ID: HeaderName = HeaderName::from_static("audit-id");

/// The request's own, verbatim, else a random UUID.
pub(crate) fn audit_id(request: &HeaderMap) -> HeaderValue {
    let given = request.get(AUDIT_ID).filter(|given| !given.is_empty());
    let mut id = given.cloned().unwrap_or_else(random);
    id.set_sensitive(true);
    id
}

fn random() -> HeaderValue {
    let mut buffer = uuid::Uuid::encode_buffer();
    let text = uuid().hyphenated().encode_lower(&mut buffer);
    HeaderValue::from_str(text).unwrap_or_else(|_| HeaderValue::from_static(""))
}

fn uuid() -> uuid::Uuid {
    let bytes = DRAWN.with_borrow_mut(|drawn| {
        if drawn.is_empty() {
            let mut fresh = [[0; UUID_BYTES]; DRAWN_AT_ONCE];
            if aws_lc_rs::rand::fill(fresh.as_flattened_mut()).is_ok() {
                drawn.extend(fresh);
            }
        }
        drawn.pop()
    });
    match bytes {
        Some(bytes) => uuid::Builder::from_random_bytes(bytes).into_uuid(),
        None => uuid::Uuid::new_v4(),
    }
}

thread_local! {
    /// Drawn and not used yet; each is handed out once.
    static DRAWN: RefCell<Vec<[u8; UUID_BYTES]>> = const { RefCell::new(Vec::new()) };
}

const UUID_BYTES: usize = 16;
/// 1 KB a thread; the draw is a hundredth of what it is for one then.
const DRAWN_AT_ONCE: usize = 64;

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;

    #[test]
    fn each_is_another_uuid_of_version_4() {
        let all: HashSet<_> = (0..DRAWN_AT_ONCE * 3)
            .map(|_| {
                let id = audit_id(&HeaderMap::new());
                let id = uuid::Uuid::parse_str(id.to_str().unwrap()).unwrap();
                assert_eq!(id.get_version(), Some(uuid::Version::Random));
                id
            })
            .collect();
        assert_eq!(all.len(), DRAWN_AT_ONCE * 3);
    }

    #[test]
    fn a_given_one_is_kept_and_none_is_for_hpack_to_remember() {
        let mut request = HeaderMap::new();
        assert!(audit_id(&request).is_sensitive());
        request.insert(AUDIT_ID, HeaderValue::from_static("given"));
        assert_eq!(audit_id(&request), "given");
        assert!(audit_id(&request).is_sensitive());
        request.insert(AUDIT_ID, HeaderValue::from_static(""));
        assert_ne!(audit_id(&request), "");
    }
}
