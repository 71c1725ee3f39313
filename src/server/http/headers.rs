//! Request and response headers: which of them cross Weir, and those that Weir itself reads.
//!
//! Hop-by-hop headers end at Weir, and so does a client's credential where another identity is
//! forwarded ([`crate::server::forward::identity`]).
//!
//! Invariant: hop-by-hop headers are removed first, and `Connection` may not name an identity
//! header, so that no client can have the impersonation headers of a request removed on the way.

use std::net::IpAddr;

use std::time::Duration;

use http::header::{
    ACCEPT, ACCEPT_ENCODING, AUTHORIZATION, CONNECTION, CONTENT_LENGTH, EXPECT, HOST, ORIGIN,
    PROXY_AUTHENTICATE, PROXY_AUTHORIZATION, TE, TRANSFER_ENCODING, UPGRADE, USER_AGENT,
};
use http::{HeaderMap, HeaderName, HeaderValue};

pub(crate) use crate::auth::bearer::PROTOCOL_TOKEN_PREFIX;
pub(crate) use crate::upstream::fetch::FILTER_HEADER;

/// The error for a `Connection` header that names this identity header. Such a request is refused.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct IdentityNamed(pub(crate) String);

/// Names how a response was made and why. As a request header with the value `bypass` it asks for
/// the upstream's response.
pub(crate) const CACHE_HEADER: HeaderName = HeaderName::from_static("x-weir-cache");
/// Names what a response lacks that the upstream's has.
pub(crate) const DROPPED_HEADER: HeaderName = HeaderName::from_static("x-weir-dropped");
/// Says that a response has only the objects that its user may see, and by what they were chosen.
pub(crate) const FILTERED_HEADER: HeaderName = HeaderName::from_static("x-weir-filtered");
/// A browser's word on where a request comes from.
const SEC_FETCH_SITE: HeaderName = HeaderName::from_static("sec-fetch-site");
const SAME_ORIGIN: &str = "same-origin";
/// The uid of the FlowSchema of a request; kube-apiserver's.
pub(crate) const FLOW_SCHEMA_UID: HeaderName =
    HeaderName::from_static("x-kubernetes-pf-flowschema-uid");
/// The uid of the priority level of a request; kube-apiserver's.
pub(crate) const PRIORITY_LEVEL_UID: HeaderName =
    HeaderName::from_static("x-kubernetes-pf-prioritylevel-uid");
/// The header with the reason why flow control refused a request.
pub(crate) const SHED_HEADER: HeaderName = HeaderName::from_static("x-weir-shed");

/// Headers that no check of Weir reads but those of the host, the credential and the form of the
/// answer. Most requests have no others, so that one look at their head replaces many look-ups.
pub(crate) static PLAIN: [HeaderName; 5] =
    [ACCEPT, ACCEPT_ENCODING, AUTHORIZATION, HOST, USER_AGENT];

/// Whether all headers of a request are [`PLAIN`].
pub(crate) fn are_plain(headers: &HeaderMap) -> bool {
    headers.keys().all(|name| PLAIN.contains(name))
}

/// Whether a request asks for the upstream's response.
pub(crate) fn bypasses_cache(headers: &HeaderMap) -> bool {
    headers.get(CACHE_HEADER).is_some_and(|value| value.as_bytes() == b"bypass")
}

/// Removes the clauses of `Accept` that ask for a Table, if others are left.
pub(crate) fn remove_tables(headers: &mut HeaderMap) {
    let Some(accept) = headers.get(ACCEPT).and_then(|accept| accept.to_str().ok()) else { return };
    let is_table =
        |clause: &&str| clause.split(';').any(|part| part.trim().eq_ignore_ascii_case("as=table"));
    let kept: Vec<&str> = accept.split(',').filter(|clause| !is_table(clause)).collect();
    // Parts of a valid value make a valid one.
    if let Ok(kept) = HeaderValue::from_str(&kept.join(","))
        && !kept.is_empty()
    {
        headers.insert(ACCEPT, kept);
    }
}

/// Removes the headers that belong to one connection only, including those that `Connection` names.
pub(crate) fn remove_hop_by_hop(headers: &mut HeaderMap) -> Result<(), IdentityNamed> {
    let named: Vec<HeaderName> = connection_names(headers).collect();
    for name in named {
        if is_identity(&name) {
            return Err(IdentityNamed(name.to_string()));
        }
        // hyper needs these for framing and routing: without its length, the upstream would read
        // the request differently.
        if name != CONTENT_LENGTH && name != HOST {
            headers.remove(name);
        }
    }
    if headers.contains_key(TRANSFER_ENCODING) {
        headers.remove(CONTENT_LENGTH);
    }
    for name in HOP_BY_HOP {
        headers.remove(name);
    }
    Ok(())
}

/// Returns the headers that `Connection` names.
pub(crate) fn connection_names(headers: &HeaderMap) -> impl Iterator<Item = HeaderName> {
    connection_tokens(headers).filter_map(|token| HeaderName::from_bytes(token.as_bytes()).ok())
}

/// Removes a client's credentials from all headers. `Impersonate-*` is not a credential: the
/// upstream checks it against the permissions of the forwarded identity.
pub(crate) fn remove_credentials(headers: &mut HeaderMap) {
    headers.remove(AUTHORIZATION);
    remove_proxy_credentials(headers);
    remove_protocol_token(headers);
}

/// Removes credentials for a proxy, which no API server reads.
pub(crate) fn remove_proxy_credentials(headers: &mut HeaderMap) {
    headers.remove(PROXY_AUTHORIZATION);
}

/// Whether a browser may require headers of CORS in the answer, which only the API server can write
/// (`--cors-allowed-origins`). A page of the same origin says so itself. A WebSocket needs none.
pub(crate) fn is_cross_origin(headers: &HeaderMap) -> bool {
    let is_same = |site: &HeaderValue| site == SAME_ORIGIN;
    headers.contains_key(ORIGIN)
        && !headers.get(SEC_FETCH_SITE).is_some_and(is_same)
        && upgrade(headers).is_none()
}

pub(crate) fn impersonates(headers: &HeaderMap) -> bool {
    headers.keys().any(|name| name.as_str().starts_with(IMPERSONATE_PREFIX))
}

/// An extension of responses from memory while the upstream is away, or cannot be followed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct StateAge {
    /// The time since the state of the response was last known to be current.
    pub(crate) age: Duration,
    pub(crate) is_away: bool,
}

/// Returns the protocol of an upgrade that an HTTP/1.1 request asks for. `h2c` does not count:
/// Java's client offers it on every plain connection, and it concerns that connection only.
pub(crate) fn upgrade(headers: &HeaderMap) -> Option<HeaderValue> {
    if !headers.get_all(CONNECTION).iter().any(names_upgrade) {
        return None;
    }
    headers.get(UPGRADE).filter(|value| !value.as_bytes().eq_ignore_ascii_case(b"h2c")).cloned()
}

/// Whether a `Connection` line asks for an upgrade. kube-apiserver looks for the word in all of it,
/// also within another (`httpstream.IsUpgradeRequest`).
pub(crate) fn names_upgrade(connection: &HeaderValue) -> bool {
    let word = UPGRADE.as_str().as_bytes();
    connection.as_bytes().windows(word.len()).any(|part| part.eq_ignore_ascii_case(word))
}

pub(crate) fn is_websocket(protocol: &HeaderValue) -> bool {
    protocol.as_bytes().eq_ignore_ascii_case(b"websocket")
}

/// Appends the client's address to `X-Forwarded-For`, as every proxy does.
pub(crate) fn append_forwarded_for(headers: &mut HeaderMap, client: IpAddr) {
    let mut value = Vec::new();
    for given in headers.get_all(FORWARDED_FOR) {
        value.extend_from_slice(given.as_bytes());
        value.extend_from_slice(b", ");
    }
    value.extend_from_slice(client.to_string().as_bytes());
    if let Ok(value) = HeaderValue::from_maybe_shared(bytes::Bytes::from(value)) {
        // The header is informative only: a request whose header map is full is forwarded without
        // it.
        drop(headers.try_insert(FORWARDED_FOR, value));
    }
}

/// Returns the tokens of `Connection`. One that is not ASCII names no header, and hides no other.
fn connection_tokens(headers: &HeaderMap) -> impl Iterator<Item = &str> {
    elements(headers, &CONNECTION)
        .filter_map(|token| std::str::from_utf8(token).ok())
        .filter(|token| !token.is_empty())
}

/// Returns the elements of all lines of a header that is a list.
fn elements<'a>(headers: &'a HeaderMap, name: &HeaderName) -> impl Iterator<Item = &'a [u8]> {
    let lines = headers.get_all(name).into_iter().map(HeaderValue::as_bytes);
    lines.flat_map(|line| line.split(|byte| *byte == b',')).map(<[u8]>::trim_ascii)
}

fn is_identity(name: &HeaderName) -> bool {
    let name = name.as_str();
    name == "authorization"
        || name == FORWARDED_FOR.as_str()
        // The header may hold a token.
        || name == PROTOCOL.as_str()
        || name.starts_with(REMOTE_PREFIX)
        || name.starts_with(IMPERSONATE_PREFIX)
}

/// Removes the bearer token that a browser's WebSocket carries as a sub-protocol. It is a
/// credential like `Authorization`. As in kube-apiserver
/// (`apiserver/pkg/authentication/request/websocket/protocol.go`), what is left becomes one line;
/// lines without a token stay as they are, since only the first of them counts.
fn remove_protocol_token(headers: &mut HeaderMap) {
    let is_token = |protocol: &&[u8]| protocol.starts_with(PROTOCOL_TOKEN_PREFIX.as_bytes());
    if !elements(headers, &PROTOCOL).any(|protocol| is_token(&protocol)) {
        return;
    }
    // An empty one counts as well.
    let kept: Vec<&[u8]> =
        elements(headers, &PROTOCOL).filter(|element| !is_token(element)).collect();
    let kept = HeaderValue::from_bytes(&kept.join(&b","[..]));
    headers.remove(PROTOCOL);
    // Parts of valid values make a valid one.
    if let Some(value) = kept.ok().filter(|value| !value.is_empty()) {
        headers.insert(PROTOCOL, value);
    }
}

/// The headers of RFC 9110 section 7.6.1, and those that Go's reverse proxy removes. `Trailer`
/// stays, since trailers are relayed. `Expect` is removed, since Weir itself sends the 100 when it
/// begins to read the body.
const HOP_BY_HOP: [HeaderName; 9] = [
    CONNECTION,
    HeaderName::from_static("keep-alive"),
    PROXY_AUTHENTICATE,
    HeaderName::from_static("proxy-connection"),
    HeaderName::from_static("http2-settings"),
    TE,
    TRANSFER_ENCODING,
    UPGRADE,
    EXPECT,
];

const FORWARDED_FOR: HeaderName = HeaderName::from_static("x-forwarded-for");
const REMOTE_PREFIX: &str = "x-remote-";
const IMPERSONATE_PREFIX: &str = "impersonate-";
const PROTOCOL: HeaderName = HeaderName::from_static("sec-websocket-protocol");

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::headers;

    #[test]
    fn hop_by_hop_headers_are_removed() {
        let mut given = headers(&[
            ("connection", "keep-alive, X-Mine"),
            ("connection", "close"),
            ("x-mine", "1"),
            ("keep-alive", "timeout=5"),
            ("te", "trailers"),
            ("transfer-encoding", "chunked"),
            ("content-length", "5"),
            ("upgrade", "websocket"),
            ("accept", "application/json"),
            ("trailer", "x-sum"),
        ]);
        remove_hop_by_hop(&mut given).unwrap();
        assert_eq!(given, headers(&[("accept", "application/json"), ("trailer", "x-sum")]));
    }

    #[test]
    fn connection_may_not_name_an_identity_header() {
        for name in [
            "Impersonate-User",
            "x-remote-user",
            "Authorization",
            "X-Forwarded-For",
            "Sec-WebSocket-Protocol",
        ] {
            let mut given = HeaderMap::new();
            given.insert(CONNECTION, HeaderValue::from_str(name).unwrap());
            assert_eq!(
                remove_hop_by_hop(&mut given),
                Err(IdentityNamed(name.to_ascii_lowercase()))
            );
        }
        let mut given = headers(&[("connection", "content-length, host"), ("content-length", "5")]);
        remove_hop_by_hop(&mut given).unwrap();
        assert_eq!(given, headers(&[("content-length", "5")]));
    }

    #[test]
    fn a_clients_credentials_are_dropped_but_impersonation_stays() {
        let mut given = headers(&[
            ("authorization", "Bearer x"),
            ("proxy-authorization", "Basic x"),
            ("impersonate-user", "jane"),
            (
                "sec-websocket-protocol",
                "base64url.bearer.authorization.k8s.io.eA, v5.channel.k8s.io",
            ),
        ]);
        remove_credentials(&mut given);
        assert!(impersonates(&given));
        assert_eq!(
            given,
            headers(&[
                ("impersonate-user", "jane"),
                ("sec-websocket-protocol", "v5.channel.k8s.io")
            ])
        );
    }

    /// Only the first line counts for the API server, and bytes that are not ASCII hide nothing.
    #[test]
    fn lines_without_a_credential_stay_as_they_are() {
        let mut given = HeaderMap::new();
        for line in [&b"v1.example"[..], b"v2.example", b"\xff"] {
            given.append(PROTOCOL, HeaderValue::from_bytes(line).unwrap());
        }
        let before = given.clone();
        remove_credentials(&mut given);
        assert_eq!(given, before);
        let token = b"v3.example, \xfe, base64url.bearer.authorization.k8s.io.eA";
        given.append(PROTOCOL, HeaderValue::from_bytes(token).unwrap());
        remove_credentials(&mut given);
        let left: Vec<_> = given.get_all(PROTOCOL).iter().map(HeaderValue::as_bytes).collect();
        assert_eq!(left, [&b"v1.example,v2.example,\xff,v3.example,\xfe"[..]]);
        // An empty sub-protocol is one more, with which the API server refuses the handshake.
        let mut given = HeaderMap::new();
        let token = b"base64url.bearer.authorization.k8s.io.eA";
        given.append(PROTOCOL, HeaderValue::from_bytes(token).unwrap());
        given.append(PROTOCOL, HeaderValue::from_static("a,"));
        remove_credentials(&mut given);
        assert_eq!(given[PROTOCOL], "a,");
        let mut given = HeaderMap::new();
        given.append(CONNECTION, HeaderValue::from_bytes(b"\xff, x-mine").unwrap());
        given.append("x-mine", HeaderValue::from_static("1"));
        remove_hop_by_hop(&mut given).unwrap();
        assert_eq!(given, HeaderMap::new());
    }

    #[test]
    fn an_upgrade_needs_both_headers_and_h2c_does_not_count() {
        let websocket = headers(&[("connection", "keep-alive, Upgrade"), ("upgrade", "websocket")]);
        assert_eq!(upgrade(&websocket), Some(HeaderValue::from_static("websocket")));
        assert_eq!(upgrade(&headers(&[("upgrade", "websocket")])), None);
        let within = headers(&[
            ("connection", "keep-alive"),
            ("connection", "x-UPGRADE-x"),
            ("upgrade", "websocket"),
        ]);
        assert!(upgrade(&within).is_some());
        let h2c = headers(&[("connection", "Upgrade, HTTP2-Settings"), ("upgrade", "h2c")]);
        assert_eq!(upgrade(&h2c), None);
    }

    #[test]
    fn the_client_is_appended_to_the_addresses_before_it() {
        let mut given =
            headers(&[("x-forwarded-for", "10.0.0.1"), ("x-forwarded-for", "10.0.0.2")]);
        append_forwarded_for(&mut given, IpAddr::from([127, 0, 0, 1]));
        assert_eq!(given, headers(&[("x-forwarded-for", "10.0.0.1, 10.0.0.2, 127.0.0.1")]));
    }
}
