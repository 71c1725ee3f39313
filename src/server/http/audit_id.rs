//! The `Audit-ID` of a response: that of the request if it has one, else a random UUID, as in the
//! API server.
//!
//! The UUIDs must be unique in an audit log and unpredictable: a client may choose the id of its
//! own requests, and could otherwise log them under the id that another request is about to get.
//! They are therefore drawn from the cryptographic generator that also makes TLS keys. A draw of
//! many costs as much as one, so each thread draws many at once.
//!
//! With the feature `simulation` they follow the run's seed: as text of HTTP/2 a UUID's length
//! varies (`docs/decisions/deterministic-simulation.md`).
//!
//! The header is marked as sensitive, which here only keeps it out of HPACK's table of recent
//! values: no two are alike, so each would evict a header that is sent again, and the table would
//! be searched for it without a match.

use std::cell::RefCell;

use http::{HeaderMap, HeaderName, HeaderValue};

pub(crate) const AUDIT_ID: HeaderName = HeaderName::from_static("audit-id");

/// Returns the id in the request's headers unchanged, or a random UUID.
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
    if cfg!(feature = "simulation") {
        return uuid::Uuid::new_v4();
    }
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
    /// Random bytes that were drawn and not used yet. Each element is used once.
    static DRAWN: RefCell<Vec<[u8; UUID_BYTES]>> = const { RefCell::new(Vec::new()) };
}

const UUID_BYTES: usize = 16;
/// 1 KB per thread. A UUID then costs a hundredth of a single draw.
const DRAWN_AT_ONCE: usize = 64;

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;

    #[test]
    fn each_id_is_a_new_uuid_of_version_4() {
        let ids: HashSet<_> = (0..DRAWN_AT_ONCE * 3)
            .map(|_| {
                let id = audit_id(&HeaderMap::new());
                let id = uuid::Uuid::parse_str(id.to_str().unwrap()).unwrap();
                assert_eq!(id.get_version(), Some(uuid::Version::Random));
                id
            })
            .collect();
        assert_eq!(ids.len(), DRAWN_AT_ONCE * 3);
    }

    #[test]
    fn the_id_of_a_request_is_kept_and_all_ids_are_sensitive() {
        let mut request = HeaderMap::new();
        assert!(audit_id(&request).is_sensitive());
        request.insert(AUDIT_ID, HeaderValue::from_static("given"));
        assert_eq!(audit_id(&request), "given");
        assert!(audit_id(&request).is_sensitive());
        request.insert(AUDIT_ID, HeaderValue::from_static(""));
        assert_ne!(audit_id(&request), "");
    }
}
