//! The head of a request that waits for seats: small, and made whole again before it is used.
//!
//! A header map of a few fields takes a kilobyte, most of it room for more. A request has two, that
//! of its client and that which goes upstream, and nearly all of their fields are the same. And the
//! path of a request of HTTP/2 is a part of the buffer in which h2 has decoded the whole head, its
//! token included, and keeps all of it in memory.
//!
//! Invariants: both maps come back with the same names, the same values in the same order for each
//! name, and the same fields marked as sensitive. Values are shared, not copied.

use bytes::Bytes;
use http::request::Parts;
use http::uri::{Authority, PathAndQuery};
use http::{HeaderMap, HeaderName, HeaderValue, Uri, Version};

pub(crate) struct PackedHeaders {
    /// First those of the client alone, then those of both, then those to send alone. All values
    /// of a name from the client are in one part, and so are those to send.
    fields: Box<[(HeaderName, HeaderValue)]>,
    /// The number of fields that are of the client alone.
    of_client: usize,
    /// The number of fields that are to send alone.
    to_send: usize,
}

impl PackedHeaders {
    /// Packs the headers `of_client` and those `to_send`.
    pub(crate) fn new(of_client: &HeaderMap, to_send: &HeaderMap) -> Self {
        let mut fields = Vec::with_capacity(of_client.len() + to_send.len());
        let mut add = |headers: &HeaderMap, shared: bool| {
            let before = fields.len();
            // Once for each name, however many values it has.
            for name in headers.keys().filter(|name| has_same(of_client, to_send, name) == shared) {
                let values = headers.get_all(name).iter();
                fields.extend(values.map(|value| (name.clone(), value.clone())));
            }
            fields.len() - before
        };
        let alone = add(of_client, false);
        add(of_client, true);
        let to_send = add(to_send, false);
        Self { of_client: alone, to_send, fields: fields.into_boxed_slice() }
    }

    pub(crate) fn unpack(&self) -> [HeaderMap; 2] {
        let end = self.fields.len() - self.to_send;
        [self.fields.get(..end), self.fields.get(self.of_client..)].map(|fields| {
            let fields = fields.unwrap_or_default().iter();
            // It appends, and keeps the order.
            fields.map(|(name, value)| (name.clone(), value.clone())).collect()
        })
    }
}

/// Whether two maps have the same values of a name, in the same order and equally sensitive.
fn has_same(one: &HeaderMap, other: &HeaderMap, name: &HeaderName) -> bool {
    let values = |headers: &HeaderMap| headers.get_all(name).iter().count();
    let pairs = || one.get_all(name).iter().zip(other.get_all(name));
    values(one) == values(other)
        && pairs().all(|(one, other)| one == other && one.is_sensitive() == other.is_sensitive())
}

/// Copies the target of a request of HTTP/2, so that it keeps no buffer of its connection in
/// memory. A head of HTTP/1.1 is one buffer, and the values of its headers keep it anyway.
pub(crate) fn detach_target(head: &mut Parts) {
    if head.version == Version::HTTP_2
        && let Some(copy) = copied(&head.uri)
    {
        head.uri = copy;
    }
}

/// Returns a copy that shares no memory; `None` if it cannot be parsed again.
fn copied(uri: &Uri) -> Option<Uri> {
    let copy = |text: &str| Bytes::copy_from_slice(text.as_bytes());
    let mut parts = uri.clone().into_parts();
    if let Some(authority) = &mut parts.authority {
        *authority = Authority::from_maybe_shared(copy(authority.as_str())).ok()?;
    }
    if let Some(path) = &mut parts.path_and_query {
        *path = PathAndQuery::from_maybe_shared(copy(path.as_str())).ok()?;
    }
    Uri::from_parts(parts).ok()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const NAMES: [&str; 6] = ["accept", "authorization", "cookie", "x-mine", "x-other", "via"];

    /// Returns fields of few names, so that names are repeated.
    fn fields() -> impl Strategy<Value = HeaderMap> {
        let value = prop::sample::select(vec!["", "a", "b", "Bearer token, long enough"]);
        let field = (0..NAMES.len(), value, any::<bool>());
        prop::collection::vec(field, 0..20).prop_map(|fields| {
            let mut headers = HeaderMap::new();
            for (name, value, is_sensitive) in fields {
                let mut value = HeaderValue::from_static(value);
                value.set_sensitive(is_sensitive);
                headers.append(NAMES[name], value);
            }
            headers
        })
    }

    /// Returns all there is to know about a map: the order of different names means nothing.
    fn exact_values(headers: &HeaderMap) -> Vec<Vec<(Vec<u8>, bool)>> {
        let exact_value = |value: &HeaderValue| (value.as_bytes().to_vec(), value.is_sensitive());
        NAMES.iter().map(|name| headers.get_all(*name).iter().map(exact_value).collect()).collect()
    }

    /// Returns what goes upstream: names are removed, values are appended, and one is marked.
    fn changed(mut headers: HeaderMap, removed: &[usize], added: &HeaderMap) -> HeaderMap {
        for name in removed {
            headers.remove(NAMES[*name]);
        }
        for (name, value) in added {
            headers.append(name, value.clone());
        }
        headers.get_mut("authorization").into_iter().for_each(|value| value.set_sensitive(true));
        headers
    }

    proptest! {
        #[test]
        fn both_maps_come_back(
            of_client in fields(),
            added in fields(),
            removed in prop::collection::vec(0..NAMES.len(), 0..4),
            is_other in any::<bool>(),
        ) {
            let to_send = if is_other { added } else { changed(of_client.clone(), &removed, &added) };
            let packed = PackedHeaders::new(&of_client, &to_send);
            let [client_again, send_again] = packed.unpack();
            prop_assert_eq!(exact_values(&client_again), exact_values(&of_client));
            prop_assert_eq!(exact_values(&send_again), exact_values(&to_send));
            prop_assert_eq!(client_again, of_client);
            prop_assert_eq!(send_again, to_send);
        }

        #[test]
        fn a_copied_target_is_equal(path in "/[a-z0-9/._~-]{0,30}(\\?[a-z=&%2C]{0,20})?") {
            for text in [path.clone(), format!("https://weir.example:8443{path}")] {
                let uri: Uri = text.parse().unwrap();
                prop_assert_eq!(copied(&uri).map(|copy| copy.to_string()), Some(uri.to_string()));
                prop_assert_eq!(copied(&uri), Some(uri));
            }
        }
    }

    #[test]
    fn a_field_of_both_is_kept_once() {
        let mut of_client = HeaderMap::new();
        of_client.insert("accept", HeaderValue::from_static("application/json"));
        of_client.insert("connection", HeaderValue::from_static("close"));
        let mut to_send = of_client.clone();
        to_send.remove("connection");
        to_send.insert("via", HeaderValue::from_static("1.1 weir"));
        let packed = PackedHeaders::new(&of_client, &to_send);
        assert_eq!((packed.fields.len(), packed.of_client, packed.to_send), (3, 1, 1));
    }

    #[test]
    fn only_targets_of_http2_are_copied() {
        let text = Bytes::from_static(b"/api/v1/pods");
        for (version, is_copied) in [(Version::HTTP_2, true), (Version::HTTP_11, false)] {
            let uri = Uri::from_maybe_shared(text.clone()).unwrap();
            let request = http::Request::get(uri).version(version).body(()).unwrap();
            let (mut head, ()) = request.into_parts();
            detach_target(&mut head);
            assert_eq!(head.uri, "/api/v1/pods");
            assert_eq!(head.uri.path().as_ptr() != text.as_ptr(), is_copied);
        }
    }
}
