//! The opening handshake of a WebSocket as kube-apiserver reads it: `golang.org/x/net/websocket`,
//! which reads the first line of each header.
//!
//! Only a plain handshake that the upstream certainly accepts is parsed. Any other (no `Origin`,
//! one that is no URI, several sub-protocols) is forwarded, so that the upstream writes the error.
//! A sub-protocol that carries the client's bearer token (browsers cannot send it in another way)
//! is removed first, as the upstream does, and never sent back.

use std::net::Ipv6Addr;

use aws_lc_rs::digest::{SHA1_FOR_LEGACY_USE_ONLY, digest};
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use http::header::{
    CONNECTION, ORIGIN, SEC_WEBSOCKET_ACCEPT, SEC_WEBSOCKET_KEY, SEC_WEBSOCKET_PROTOCOL,
    SEC_WEBSOCKET_VERSION, UPGRADE,
};
use http::request::Parts;
use http::{HeaderMap, HeaderValue, Response, StatusCode, Version};
use hyper::upgrade::OnUpgrade;

use crate::server::http::body::Body;
use crate::server::http::headers::{PROTOCOL_TOKEN_PREFIX, is_websocket, names_upgrade};

#[derive(Debug)]
pub(crate) struct Handshake {
    accept: HeaderValue,
    protocol: Option<HeaderValue>,
    pub(super) upgrade: OnUpgrade,
}

impl Handshake {
    /// Parses the handshake. Returns `None` if it is not the plain form that the upstream accepts.
    /// `by_token` means that the client is authenticated by the token among its sub-protocols, and
    /// by nothing else.
    pub(crate) fn parse(parts: &Parts, by_token: bool) -> Option<Self> {
        let headers = &parts.headers;
        if parts.version != Version::HTTP_11
            || !is_websocket(headers.get(UPGRADE)?)
            || !names_upgrade(headers.get(CONNECTION)?)
            || headers.get(SEC_WEBSOCKET_VERSION)? != "13"
            || !is_plain_origin(headers.get(ORIGIN)?.as_bytes())
        {
            return None;
        }
        let key = headers.get(SEC_WEBSOCKET_KEY).filter(|key| !key.is_empty())?;
        let protocol = match headers.contains_key(SEC_WEBSOCKET_PROTOCOL) {
            false => None,
            true => Some(protocol(headers, by_token)?),
        };
        Some(Self {
            accept: HeaderValue::try_from(accept(key.as_bytes())).ok()?,
            protocol,
            upgrade: parts.extensions.get::<OnUpgrade>()?.clone(),
        })
    }

    /// Returns the 101. It has none of the headers of other responses.
    pub(super) fn response(&self) -> Response<Body> {
        let mut response = Response::new(Body::empty());
        *response.status_mut() = StatusCode::SWITCHING_PROTOCOLS;
        let headers = response.headers_mut();
        headers.insert(UPGRADE, HeaderValue::from_static("websocket"));
        headers.insert(CONNECTION, HeaderValue::from_static("Upgrade"));
        headers.insert(SEC_WEBSOCKET_ACCEPT, self.accept.clone());
        if let Some(protocol) = &self.protocol {
            headers.insert(SEC_WEBSOCKET_PROTOCOL, protocol.clone());
        }
        response
    }
}

/// Returns the `Sec-WebSocket-Accept` of a key (RFC 6455 section 4.2.2).
fn accept(key: &[u8]) -> String {
    let text = [key, b"258EAFA5-E914-47DA-95CA-C5AB0DC85B11"].concat();
    STANDARD.encode(digest(&SHA1_FOR_LEGACY_USE_ONLY, &text))
}

/// Returns the only sub-protocol, or `None` for none or several. The upstream reads the first line
/// alone; with `without_token` it has joined all lines without the token.
fn protocol(headers: &HeaderMap, without_token: bool) -> Option<HeaderValue> {
    let mut lines = headers.get_all(SEC_WEBSOCKET_PROTOCOL).iter();
    if !without_token {
        return lines.next().filter(|offered| is_protocol(offered.as_bytes())).cloned();
    }
    let mut protocols = lines
        .flat_map(|line| line.as_bytes().split(|byte| *byte == b','))
        .map(<[u8]>::trim_ascii)
        .filter(|offered| !offered.starts_with(PROTOCOL_TOKEN_PREFIX.as_bytes()));
    let offered = protocols.next().filter(|offered| is_protocol(offered))?;
    if protocols.next().is_some() {
        return None;
    }
    HeaderValue::from_bytes(offered).ok()
}

/// Whether `bytes` are one sub-protocol, and not a bearer token.
fn is_protocol(bytes: &[u8]) -> bool {
    let plain = |byte: &u8| byte.is_ascii_alphanumeric() || b"-._+/".contains(byte);
    !bytes.is_empty()
        && bytes.iter().all(plain)
        && !bytes.starts_with(PROTOCOL_TOKEN_PREFIX.as_bytes())
}

/// Whether an origin is a scheme, a host and perhaps a port, as browsers write it. Go's
/// `url.ParseRequestURI` accepts more, and refuses `null` and `foo`.
fn is_plain_origin(origin: &[u8]) -> bool {
    let Some((scheme, rest)) =
        std::str::from_utf8(origin).ok().and_then(|origin_text| origin_text.split_once("://"))
    else {
        return false;
    };
    let (host, port) = match rest.rsplit_once(':').filter(|(_, port)| !port.ends_with(']')) {
        Some(parts) => parts,
        None => (rest, ""),
    };
    let is_name = |host: &str| {
        host.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'-' || byte == b'.')
    };
    let address = host.strip_prefix('[').and_then(|host| host.strip_suffix(']'));
    scheme.starts_with(|letter: char| letter.is_ascii_alphabetic())
        && scheme.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"+-.".contains(&byte))
        && port.bytes().all(|digit| digit.is_ascii_digit())
        && !host.is_empty()
        && address.map_or_else(|| is_name(host), |address| address.parse::<Ipv6Addr>().is_ok())
}

#[cfg(test)]
mod tests {
    use super::*;
    use http::{HeaderName, Request};

    /// Parses the usual handshake with `changes` to its headers. An empty value removes a header.
    fn accepted(changes: &[(&str, &str)]) -> Option<Handshake> {
        accepted_with(changes, false)
    }

    fn accepted_with(changes: &[(&str, &str)], by_token: bool) -> Option<Handshake> {
        let mut headers = vec![
            ("connection", "Upgrade"),
            ("upgrade", "websocket"),
            ("origin", "http://localhost"),
            ("sec-websocket-version", "13"),
            ("sec-websocket-key", "dGhlIHNhbXBsZSBub25jZQ=="),
        ];
        headers.retain(|(name, _)| changes.iter().all(|(changed, _)| changed != name));
        headers.extend(changes.iter().filter(|(_, value)| !value.is_empty()));
        let mut request = Request::builder().uri("/api/v1/pods?watch=1");
        for (name, value) in headers {
            request = request.header(name, value);
        }
        let mut request = request.body(()).unwrap();
        let upgrade = hyper::upgrade::on(&mut request);
        let (mut parts, ()) = request.into_parts();
        parts.extensions.insert(upgrade);
        Handshake::parse(&parts, by_token)
    }

    #[test]
    fn only_a_plain_handshake_is_answered_here() {
        let answer = accepted(&[]).unwrap().response();
        assert_eq!(answer.status(), 101);
        let mut names: Vec<_> = answer.headers().keys().map(HeaderName::as_str).collect();
        names.sort_unstable();
        assert_eq!(names, ["connection", "sec-websocket-accept", "upgrade"]);
        assert_eq!(answer.headers()[SEC_WEBSOCKET_ACCEPT], "s3pPLMBiTxaQ9kYGzzhZRbK+xOo=");
        let given = [("sec-websocket-protocol", "v4.channel.k8s.io")];
        let answer = accepted(&given).unwrap().response();
        assert_eq!(answer.headers()[SEC_WEBSOCKET_PROTOCOL], "v4.channel.k8s.io");
        for changes in [
            &[("origin", "")][..],
            &[("origin", "null")],
            &[("origin", "foo")],
            &[("origin", "null"), ("origin", "http://localhost")],
            &[("upgrade", "SPDY/3.1")],
            &[("upgrade", "SPDY/3.1"), ("upgrade", "websocket")],
            &[("sec-websocket-version", "8")],
            &[("sec-websocket-version", "8"), ("sec-websocket-version", "13")],
            &[("sec-websocket-key", "")],
            &[("sec-websocket-protocol", "a, b")],
            &[("sec-websocket-protocol", "base64url.bearer.authorization.k8s.io.eA")],
            &[("connection", "keep-alive"), ("connection", "upgrade")],
        ] {
            assert!(accepted(changes).is_none(), "{changes:?}");
        }
    }

    #[test]
    fn the_first_line_of_each_header_counts() {
        for changes in [
            &[("upgrade", "WebSocket"), ("connection", "keep-alive, upgrade")][..],
            &[("upgrade", "websocket"), ("upgrade", "SPDY/3.1")],
            &[("connection", "x-upgrade-x")],
            &[("connection", "upgrade"), ("connection", "keep-alive")],
            &[("origin", "http://localhost"), ("origin", "null")],
            &[("sec-websocket-version", "13"), ("sec-websocket-version", "8")],
            &[("sec-websocket-key", "dGhlIHNhbXBsZSBub25jZQ=="), ("sec-websocket-key", "x")],
        ] {
            let answer = accepted(changes).expect("a handshake").response();
            assert_eq!(answer.headers()[SEC_WEBSOCKET_ACCEPT], "s3pPLMBiTxaQ9kYGzzhZRbK+xOo=");
        }
        let two = [("sec-websocket-protocol", "a"), ("sec-websocket-protocol", "b, c")];
        let answer = accepted(&two).unwrap().response();
        assert_eq!(answer.headers()[SEC_WEBSOCKET_PROTOCOL], "a");
    }

    #[test]
    fn plain_origins() {
        for plain in [
            "http://localhost",
            "HTTPS://a.example:8443",
            "chrome-extension://abcdefgh",
            "http://127.0.0.1:",
            "http://[::1]",
            "http://[::1]:80",
        ] {
            assert!(is_plain_origin(plain.as_bytes()), "{plain}");
        }
        for other in [
            "null",
            "foo",
            "",
            "http://",
            "file://",
            "http:/a",
            "http://a/b",
            "http://a:b",
            "http://a b",
            "1http://a",
            "://a",
            "http://[::1",
            "http://::1",
            "http://u@a",
            "http://[127.0.0.1]",
            "http://a%41",
            "http://a?b",
            "http://\u{e9}",
        ] {
            assert!(!is_plain_origin(other.as_bytes()), "{other}");
        }
    }

    #[test]
    fn a_token_among_the_sub_protocols_is_never_sent_back() {
        let token = "base64url.bearer.authorization.k8s.io.eA";
        let answered = |offered: &[&str]| {
            let lines: Vec<_> =
                offered.iter().map(|line| ("sec-websocket-protocol", *line)).collect();
            let handshake = accepted_with(&lines, true)?;
            handshake.response().headers().get(SEC_WEBSOCKET_PROTOCOL).cloned()
        };
        let (before, after) =
            (format!("{token}, v4.channel.k8s.io"), format!("v4.channel.k8s.io,{token}"));
        for offered in [
            &[&*before][..],
            &[&*after],
            &[token, "v4.channel.k8s.io"],
            &["v4.channel.k8s.io", token],
        ] {
            assert_eq!(answered(offered).unwrap(), "v4.channel.k8s.io", "{offered:?}");
        }
        for offered in [before, after] {
            let without_token = accepted(&[("sec-websocket-protocol", &offered)]);
            assert!(
                without_token.is_none(),
                "two sub-protocols are left, which the upstream may refuse"
            );
        }
        let several = format!("{token}, a, b");
        let (empty, spaced) = (format!("{token}, "), format!("{token}, a b"));
        for offered in [&[token][..], &[&several], &[&empty], &[&spaced], &[token, "a", "b"]] {
            assert_eq!(answered(offered), None, "{offered:?}");
        }
    }
}
