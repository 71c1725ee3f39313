//! The check of who may see details, which name users: only clients on this machine, by exact
//! addresses (`docs/decisions/operators-views.md`).
//!
//! `kubectl port-forward` arrives from the pod's own loopback, so that the cluster's RBAC on
//! `pods/portforward` is the login. Not all of 127.0.0.0/8 is accepted: a mesh's proxy delivers
//! strangers' requests from another loopback address. A web page of another site must not read
//! details through a browser on the same machine: so the Host must be a name of the loopback (DNS
//! rebinding), and a browser must say that the request is not another site's.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use http::header::{CONTENT_SECURITY_POLICY, HOST, ORIGIN, REFERRER_POLICY};
use http::{HeaderMap, HeaderName, HeaderValue, Uri};

/// Returns why a client may not see details. `peer` is `None` for the Unix socket.
pub(super) fn check(
    peer: Option<IpAddr>,
    uri: &Uri,
    headers: &HeaderMap,
) -> Result<(), &'static str> {
    let is_local = match peer.map(|peer| peer.to_canonical()) {
        None => true,
        Some(IpAddr::V4(address)) => address == Ipv4Addr::LOCALHOST,
        Some(IpAddr::V6(address)) => address == Ipv6Addr::LOCALHOST,
    };
    if !is_local {
        return Err(NOT_LOCAL);
    }
    // HTTP/2 has it in the target, HTTP/1.1 in a header, or in both.
    let mut hosts: Vec<_> =
        uri.authority().map(|authority| authority.as_str()).into_iter().collect();
    hosts.extend(headers.get_all(HOST).iter().map(|host| host.to_str().unwrap_or_default()));
    if hosts.is_empty() || !hosts.iter().all(|host| is_loopback(host)) {
        return Err(WRONG_HOST);
    }
    let is_own = |origin: &HeaderValue| {
        let origin = origin.to_str().unwrap_or_default().strip_prefix("http://");
        origin.is_some_and(|origin| hosts.contains(&origin))
    };
    let is_same_site = |site: &HeaderValue| matches!(site.as_bytes(), b"none" | b"same-origin");
    if headers.get_all(ORIGIN).iter().all(is_own)
        && headers.get_all(SEC_FETCH_SITE).iter().all(is_same_site)
    {
        Ok(())
    } else {
        Err(OTHER_SITE)
    }
}

/// Returns the value of a parameter of a query, as it is written there.
pub(super) fn parameter<'a>(query: &'a str, name: &str) -> Option<&'a str> {
    let pairs = query.split('&').filter_map(|pair| pair.split_once('='));
    pairs.filter(|(key, _)| *key == name).map(|(_, value)| value).next()
}

/// Adds the headers that keep other sites from using a response. The page needs its own script,
/// styles and data; nothing else may be loaded, and no text may become code.
pub(super) fn secure(headers: &mut HeaderMap) {
    for (name, value) in [
        (CONTENT_SECURITY_POLICY, POLICY),
        (REFERRER_POLICY, "no-referrer"),
        (HeaderName::from_static("cross-origin-resource-policy"), "same-origin"),
        (HeaderName::from_static("cross-origin-opener-policy"), "same-origin"),
    ] {
        headers.insert(name, HeaderValue::from_static(value));
    }
}

/// Whether a Host, with or without a port, is a name of the loopback.
fn is_loopback(host: &str) -> bool {
    ["localhost", "127.0.0.1", "[::1]"].iter().any(|name| match host.strip_prefix(name) {
        None => false,
        Some("") => true,
        Some(rest) => rest.strip_prefix(':').is_some_and(|port| port.parse::<u16>().is_ok()),
    })
}

const SEC_FETCH_SITE: HeaderName = HeaderName::from_static("sec-fetch-site");
const NOT_LOCAL: &str = "only for clients on this machine: kubectl port-forward POD 6441, and then http://localhost:6441/api/clients\n";
const WRONG_HOST: &str = "the Host must be localhost, 127.0.0.1 or [::1]\n";
const OTHER_SITE: &str = "not for pages of other sites\n";
const POLICY: &str = "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; img-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'; require-trusted-types-for 'script'";

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::headers;

    const LOCAL: Option<IpAddr> = Some(IpAddr::V4(Ipv4Addr::LOCALHOST));

    fn path() -> Uri {
        Uri::from_static("/api/clients")
    }

    #[test]
    fn details_are_for_clients_on_this_machine() {
        let host = headers(&[("host", "localhost")]);
        let from = |peer: &str| check(Some(peer.parse().unwrap()), &path(), &host);
        assert_eq!(check(None, &path(), &host), Ok(()), "the Unix socket");
        for peer in ["127.0.0.1", "::1", "::ffff:127.0.0.1"] {
            assert_eq!(from(peer), Ok(()), "{peer}");
        }
        for peer in ["127.0.0.6", "10.0.0.1", "::2", "::ffff:127.0.0.2", "169.254.0.1"] {
            assert_eq!(from(peer), Err(NOT_LOCAL), "{peer}");
        }
    }

    #[test]
    fn the_host_is_a_name_of_the_loopback() {
        let to = |host: &'static str| check(LOCAL, &path(), &headers(&[("host", host)]));
        for host in ["localhost", "localhost:6441", "127.0.0.1:80", "[::1]:6441", "[::1]"] {
            assert_eq!(to(host), Ok(()), "{host}");
        }
        for host in ["evil.example", "localhost.evil.example", "localhost:", "127.0.0.1.x:1", ""] {
            assert_eq!(to(host), Err(WRONG_HOST), "{host}");
        }
        let none = HeaderMap::new();
        assert_eq!(check(LOCAL, &path(), &none), Err(WRONG_HOST));
        assert_eq!(check(LOCAL, &Uri::from_static("http://[::1]:1/api/clients"), &none), Ok(()));
        let both = headers(&[("host", "localhost")]);
        let evil = Uri::from_static("http://evil.example/api/clients");
        assert_eq!(check(LOCAL, &evil, &both), Err(WRONG_HOST));
        let two = headers(&[("host", "localhost"), ("host", "evil.example")]);
        assert_eq!(check(LOCAL, &path(), &two), Err(WRONG_HOST));
    }

    #[test]
    fn a_page_of_another_site_reads_nothing() {
        let with = |name, value| {
            let header_map = headers(&[("host", "localhost:1"), (name, value)]);
            check(LOCAL, &path(), &header_map)
        };
        assert_eq!(with("origin", "http://localhost:1"), Ok(()));
        assert_eq!(with("sec-fetch-site", "none"), Ok(()));
        assert_eq!(with("sec-fetch-site", "same-origin"), Ok(()));
        for origin in ["http://evil.example", "http://localhost:2", "https://localhost:1", "null"] {
            assert_eq!(with("origin", origin), Err(OTHER_SITE), "{origin}");
        }
        assert_eq!(with("sec-fetch-site", "same-site"), Err(OTHER_SITE));
        assert_eq!(with("sec-fetch-site", "cross-site"), Err(OTHER_SITE));
    }

    #[test]
    fn parameters_are_found() {
        let limit = |query| parameter(query, "limit");
        assert_eq!(
            ["", "limit=3", "a=b&limit=7", "limit", "xlimit=3"].map(limit),
            [None, Some("3"), Some("7"), None, None]
        );
    }
}
