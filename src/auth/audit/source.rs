//! The `sourceIPs` and `requestURI` of an event, whose format depends on Go's parsers (apimachinery
//! `util/net` SourceIPs, `net/url` RequestURI).

use std::borrow::Cow;
use std::net::IpAddr;

use http::{HeaderMap, Uri};
use smallvec::SmallVec;

use crate::api::query::percent_decode;

/// Returns the addresses of the request's path: those of `X-Forwarded-For`, then `X-Real-Ip` unless
/// it is among them, then the connection's unless it is the last. All except the last are set by
/// the client and not verified. Invalid addresses are left out.
pub(super) fn addresses(headers: &HeaderMap, peer: Option<IpAddr>) -> SmallVec<[IpAddr; 4]> {
    let mut addresses = SmallVec::new();
    if let Some(chain) = headers.get("x-forwarded-for") {
        let parts = chain.as_bytes().split(|&byte| byte == b',');
        addresses.extend(parts.filter_map(|part| parse(str::from_utf8(part).ok()?.trim())));
    }
    let real =
        headers.get("x-real-ip").and_then(|real| parse(str::from_utf8(real.as_bytes()).ok()?));
    if let Some(real) = real.filter(|real| !addresses.contains(real)) {
        addresses.push(real);
    }
    let peer = peer.map(|peer| peer.to_canonical());
    if let Some(peer) = peer.filter(|peer| addresses.last() != Some(peer)) {
        addresses.push(peer);
    }
    addresses
}

/// Parses an address like Go's older parser, which the upstream still uses: leading zeros are
/// allowed. An IPv4-mapped IPv6 address becomes the IPv4 address.
fn parse(text: &str) -> Option<IpAddr> {
    let address: IpAddr = match text.parse() {
        Ok(address) => address,
        Err(_) => without_leading_zeros(text).parse().ok()?,
    };
    Some(address.to_canonical())
}

fn without_leading_zeros(text: &str) -> String {
    let mut bare = String::with_capacity(text.len());
    let mut within_number = false;
    let mut characters = text.chars().peekable();
    while let Some(character) = characters.next() {
        let more = characters.peek().is_some_and(char::is_ascii_hexdigit);
        if character == '0' && !within_number && more {
            continue;
        }
        within_number = character.is_ascii_hexdigit();
        bare.push(character);
    }
    bare
}

/// Returns path and query as the upstream logs them: unchanged, except that characters which must
/// not occur unescaped in a path are escaped. The query is always unchanged: Kubernetes reads no
/// credential from it.
pub(super) fn request_uri(uri: &Uri, plain_path: bool) -> (Cow<'_, str>, Option<&str>) {
    let path = uri.path();
    let path = if plain_path { Cow::Borrowed(path) } else { escaped_path(path) };
    (path, uri.query())
}

/// Returns the same as Go's `URL.EscapedPath`: the path itself if it is a valid encoding, otherwise
/// its decoded bytes, escaped again.
fn escaped_path(path: &str) -> Cow<'_, str> {
    let Some(decoded) = percent_decode(path.as_bytes(), false) else {
        // Go rejects such a request before it is logged.
        return Cow::Borrowed(path);
    };
    // `OPTIONS *` applies to the whole server.
    if path == "*"
        || path
            .bytes()
            .all(|byte| byte == b'%' || is_allowed_unescaped(byte) || b"!'()*[]".contains(&byte))
    {
        return Cow::Borrowed(path);
    }
    let mut escaped = String::with_capacity(path.len() + 16);
    for byte in decoded {
        if is_allowed_unescaped(byte) {
            escaped.push(char::from(byte));
        } else {
            escaped.push_str(&format!("%{byte:02X}"));
        }
    }
    Cow::Owned(escaped)
}

fn is_allowed_unescaped(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || b"-_.~$&+,/:;=@".contains(&byte)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn chain(forwarded: &[&str], real: Option<&str>, peer: Option<&str>) -> Vec<String> {
        let mut headers = HeaderMap::new();
        for value in forwarded {
            headers.append("x-forwarded-for", value.parse().unwrap());
        }
        if let Some(real) = real {
            headers.insert("x-real-ip", real.parse().unwrap());
        }
        let addresses = addresses(&headers, peer.map(|peer| peer.parse().unwrap()));
        addresses.iter().map(IpAddr::to_string).collect()
    }

    #[test]
    fn addresses_are_those_of_the_upstream() {
        let peer = Some("127.0.0.1");
        assert_eq!(chain(&[], None, peer), ["127.0.0.1"]);
        assert_eq!(chain(&[], None, None), Vec::<String>::new());
        assert_eq!(
            chain(&["1.2.3.4, bad, 10.0.0.1 ,::1"], Some("9.9.9.9"), peer),
            ["1.2.3.4", "10.0.0.1", "::1", "9.9.9.9", "127.0.0.1"]
        );
        // Only the first header counts, and no address occurs twice in a row.
        assert_eq!(chain(&["127.0.0.1", "6.6.6.6"], Some("127.0.0.1"), peer), ["127.0.0.1"]);
        assert_eq!(chain(&["1.1.1.1,2.2.2.2"], Some("1.1.1.1"), peer).len(), 3);
        // Only the addresses of the chain are trimmed.
        assert_eq!(chain(&[], Some("1.1.1.1 2"), peer), ["127.0.0.1"]);
        assert_eq!(chain(&["::ffff:127.0.0.1"], None, Some("::ffff:127.0.0.1")), ["127.0.0.1"]);
        assert_eq!(
            chain(&["010.001.0.09,2001:0db8::00001,fe80::1%eth0,1.2.3.256,1.2.3"], None, None),
            ["10.1.0.9", "2001:db8::1"]
        );
    }

    #[test]
    fn paths_are_escaped_as_in_go() {
        let rows = [
            ("/api/v1/pods", "/api/v1/pods"),
            ("//api/v1/namespaces//default/", "//api/v1/namespaces//default/"),
            ("/api/v1/pods/%61", "/api/v1/pods/%61"),
            ("/a;b(c)", "/a;b(c)"),
            ("/a|b(c)%2f", "/a%7Cb%28c%29/"),
            ("/%zz|", "/%zz|"),
        ];
        for (path, expected) in rows {
            assert_eq!(escaped_path(path), expected, "{path}");
        }
    }
}
