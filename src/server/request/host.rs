//! Checks of the `Host` and `Origin` headers: a web page that rebinds its name to a loopback
//! address must not reach the API.
//!
//! `Host` alone does not suffice. A browser lets any page open a WebSocket to any address, and so
//! to `exec`, and send simple POSTs, but it names the page in `Origin`
//! (`docs/decisions/authentication.md`). A GET that a page only embeds or links to (an image, a
//! script, a frame) has no `Origin`; browsers mark it with `Sec-Fetch-Site`.
//!
//! These checks matter in sidecar mode, where clients are not authenticated. In gateway mode
//! clients are, and every name is allowed, as by kube-apiserver. Only an invalid `Host` of HTTP/1.1
//! is rejected, as by Go's server, which does not read that of HTTP/2.

use std::borrow::Cow;
use std::collections::HashSet;

use http::request::Parts;
use http::{HeaderMap, HeaderName, HeaderValue, Uri, Version, header};

use crate::api::ascii::{ByteSet, split_once};
use crate::api::status::Status;
use crate::config::network::is_loopback_host;
use crate::server::http::refusal;

/// The host names that requests may name, in lower case.
#[derive(Debug)]
pub(crate) struct HostPolicy {
    /// `None` for all names.
    allowed: Option<HashSet<String>>,
}

impl HostPolicy {
    /// Allows `names` besides `localhost` and loopback addresses.
    pub(crate) fn new<'a>(names: impl Iterator<Item = &'a str>) -> Self {
        Self { allowed: Some(names.map(str::to_ascii_lowercase).collect()) }
    }

    /// Allows all names, and web pages of all origins.
    pub(crate) fn any() -> Self {
        Self { allowed: None }
    }

    /// Checks both places where a request names its host: they may differ, and the upstream may
    /// use either. A [plain](crate::server::http::headers::are_plain) request has no other header
    /// that is checked. Errors are Weir's own responses.
    pub(crate) fn check(&self, request: &Parts, is_plain: bool) -> Result<(), Status> {
        if self.allowed.is_none() && request.version == Version::HTTP_2 {
            return Ok(());
        }
        let mut hosts = request.headers.get_all(header::HOST).iter();
        let host = hosts.next();
        if hosts.next().is_some() {
            return Err(bad_request("the request has more than one Host header"));
        }
        if let Some(authority) = request.uri.authority() {
            self.check_name(authority.host())?;
        }
        if let Some(host) = host {
            self.check_header(host)?;
        }
        if !is_plain {
            for origin in request.headers.get_all(header::ORIGIN) {
                self.check_origin(origin)?;
            }
            self.check_site(&request.headers)?;
        }
        // HTTP/1.0 has no Host header, and browsers no longer use it. HTTP/1.1 requires one, also
        // beside a target that names the host (RFC 9112 section 3.2), and so does Go's server.
        let is_named = match request.version {
            Version::HTTP_11 => host.is_some(),
            Version::HTTP_2 => host.is_some() || request.uri.authority().is_some(),
            _ => true,
        };
        if is_named { Ok(()) } else { Err(bad_request("the request has no Host header")) }
    }

    /// Refuses what Go's server refuses (`httpguts.ValidHostHeader`), such as `user@localhost`.
    /// Where all names are allowed, Weir reads no name, and is as lenient, so that an empty one
    /// passes.
    fn check_header(&self, host: &HeaderValue) -> Result<(), Status> {
        let unreadable = || bad_request("the Host header cannot be read");
        let is_valid = |host: &&str| host.bytes().all(|byte| HOST_BYTES.contains(byte));
        let host = host.to_str().ok().filter(is_valid).ok_or_else(unreadable)?;
        if self.allowed.is_none() {
            return Ok(());
        }
        self.check_name(without_port(host).ok_or_else(unreadable)?)
    }

    fn check_name(&self, host: &str) -> Result<(), Status> {
        if self.allows(host) {
            return Ok(());
        }
        Err(forbidden(&format!("for host {host:?}")))
    }

    /// Accepts pages of allowed names, with any port. An origin without a name (`null`: a sandboxed
    /// frame, a file) may be any page.
    fn check_origin(&self, origin: &HeaderValue) -> Result<(), Status> {
        if self.allowed.is_none() {
            return Ok(());
        }
        let uri = Uri::try_from(origin.as_bytes()).ok().filter(|uri| uri.scheme().is_some());
        if uri.as_ref().and_then(Uri::host).is_some_and(|host| self.allows(host)) {
            return Ok(());
        }
        Err(forbidden(&format!("web pages of {origin:?}")))
    }

    /// Refuses what a page of another site causes, unless the page itself is of a configured name:
    /// browsers let no page choose these headers.
    fn check_site(&self, headers: &HeaderMap) -> Result<(), Status> {
        let Some(configured) = &self.allowed else { return Ok(()) };
        let is_cross_site =
            |site: &HeaderValue| site.as_bytes().trim_ascii().eq_ignore_ascii_case(b"cross-site");
        if !headers.get_all(SEC_FETCH_SITE).iter().any(is_cross_site) {
            return Ok(());
        }
        let mut origins = headers.get_all(header::ORIGIN).iter().peekable();
        let is_configured = |origin| host_of(origin).is_some_and(|host| configured.contains(&host));
        if origins.peek().is_some() && origins.all(is_configured) {
            return Ok(());
        }
        Err(forbidden("web pages of other sites"))
    }

    fn allows(&self, host: &str) -> bool {
        let Some(allowed) = &self.allowed else { return true };
        let name = normalized(host);
        is_loopback_host(&name) || allowed.contains(&*name)
    }
}

/// Returns the name or the address of a `Host`, with its brackets; `None` if there is none, or if
/// the port is not a number.
fn without_port(host: &str) -> Option<&str> {
    let name = if host.starts_with('[') {
        host.get(..=host.bytes().position(|byte| byte == b']')?)?
    } else {
        split_once(host, b':').map_or(host, |(name, _)| name)
    };
    let port = host.get(name.len()..).filter(|_| !name.is_empty())?;
    let is_port = |text: &str| text.bytes().all(|byte| byte.is_ascii_digit());
    (port.is_empty() || port.strip_prefix(':').is_some_and(is_port)).then_some(name)
}

/// Returns the host of an origin as [`HostPolicy`] holds names.
fn host_of(origin: &HeaderValue) -> Option<String> {
    Some(normalized(Uri::try_from(origin.as_bytes()).ok()?.host()?).into_owned())
}

/// Returns a host without brackets, in lower case, as it is in most requests.
fn normalized(host: &str) -> Cow<'_, str> {
    let name = host.strip_prefix('[').and_then(|host| host.strip_suffix(']')).unwrap_or(host);
    let is_lower = !name.bytes().any(|byte| byte.is_ascii_uppercase());
    if is_lower { name.into() } else { name.to_ascii_lowercase().into() }
}

fn forbidden(whom: &str) -> Status {
    let message = format!(
        "weir does not answer {whom}; if that is intended, add the name to server.allowedHosts in weir's configuration"
    );
    refusal::forbidden(message)
}

fn bad_request(message: &str) -> Status {
    refusal::bad_request(message.to_owned())
}

/// The bytes that Go's server accepts in a `Host`.
static HOST_BYTES: ByteSet = ByteSet::alphanumeric_and(b"!$%&()*+,-.:;=[]'_~");

/// How the site of the page that caused a request relates to that of its target, as the browser
/// sees it (Fetch Metadata).
const SEC_FETCH_SITE: HeaderName = HeaderName::from_static("sec-fetch-site");

#[cfg(test)]
mod tests {
    use super::*;
    use crate::server::http::headers::are_plain;
    use http::Request;

    fn code(uri: &str, hosts: &[&str]) -> u16 {
        let mut request = Request::builder().uri(uri);
        for host in hosts {
            request = request.header("host", *host);
        }
        status_of(&HostPolicy::new(["Weir.Example", "192.0.2.7"].into_iter()), request)
    }

    fn status_of(policy: &HostPolicy, request: http::request::Builder) -> u16 {
        let (parts, ()) = request.body(()).unwrap().into_parts();
        policy
            .check(&parts, are_plain(&parts.headers))
            .map_or_else(|status| status.code.as_u16(), |()| 200)
    }

    #[test]
    fn only_loopback_and_configured_names_are_answered() {
        for host in [
            "localhost",
            "LOCALHOST:8001",
            "127.0.0.1:1",
            "127.9.9.9",
            "[::1]:8001",
            "[::ffff:127.0.0.1]:8001",
            "weir.example:443",
            "192.0.2.7",
        ] {
            assert_eq!(code("/api", &[host]), 200, "{host}");
        }
        for host in
            ["evil.example", "localhost.evil.example", "10.0.0.1", "127.0.0.1.nip.io:80", "[::2]"]
        {
            assert_eq!(code("/api", &[host]), 403, "{host}");
        }
    }

    #[test]
    fn the_target_and_the_host_header_are_both_checked() {
        assert_eq!(code("http://localhost/api", &["localhost"]), 200);
        assert_eq!(code("http://evil.example/api", &["localhost"]), 403);
        assert_eq!(code("http://localhost/api", &["evil.example"]), 403);
    }

    #[test]
    fn a_missing_or_repeated_host_is_a_bad_request() {
        assert_eq!(code("/api", &[]), 400);
        assert_eq!(code("http://localhost/api", &[]), 400);
        assert_eq!(code("/api", &["localhost", "localhost"]), 400);
        assert_eq!(code("/api", &[""]), 400);
        // Go's server refuses it, and so Weir must not send it a write for such a client.
        assert_eq!(code("/api", &["user@localhost"]), 400);
        assert_eq!(code("/api", &["localhost:"]), 200);
        for host in ["localhost:1:2", "localhost:a", ":80", "[::1", "[::1]80", "::1"] {
            assert_eq!(code("/api", &[host]), 400, "{host}");
        }
    }

    /// A browser sends no `Origin` with an image, a frame or a link.
    #[test]
    fn a_page_of_another_site_is_refused_in_a_sidecar_also_without_an_origin() {
        let code = |site: &str, origin: Option<&str>| {
            let request = Request::builder().uri("/api").header("host", "localhost:8001");
            let request = request.header("sec-fetch-site", site);
            let request =
                origin.into_iter().fold(request, |builder, value| builder.header("origin", value));
            status_of(&HostPolicy::new(["Weir.Example"].into_iter()), request)
        };
        for site in ["none", "same-origin", "same-site"] {
            assert_eq!(code(site, None), 200, "{site}");
            assert_eq!(code(site, Some("http://localhost:8001")), 200, "{site}");
        }
        for site in ["cross-site", "Cross-Site", " cross-site"] {
            assert_eq!(code(site, None), 403, "{site}");
        }
        assert_eq!(code("cross-site", Some("http://127.0.0.1:9")), 403);
        assert_eq!(code("cross-site", Some("null")), 403);
        let dashboard = Some("https://weir.example");
        assert_eq!(code("cross-site", dashboard), 200, "a name that the operator allows");
        let page = Request::builder().uri("/api").header("host", "weir");
        assert_eq!(status_of(&HostPolicy::any(), page.header("sec-fetch-site", "cross-site")), 200);
    }

    #[test]
    fn in_gateway_mode_any_one_valid_name_is_allowed() {
        let code = |hosts: &[&str]| {
            let mut request =
                Request::builder().uri("/api").header("origin", "https://evil.example");
            for host in hosts {
                request = request.header("host", *host);
            }
            status_of(&HostPolicy::any(), request)
        };
        for host in ["kubernetes.default.svc", "my_svc:443", "[fe80::1%eth0]:443", ""] {
            assert_eq!(code(&[host]), 200, "{host:?}");
        }
        for hosts in [&[][..], &["a", "a"], &["a b"], &["a/b"], &["a@b"]] {
            assert_eq!(code(hosts), 400, "{hosts:?}");
        }
        let h2 = Request::builder().version(Version::HTTP_2).uri("/api").header("host", "a b");
        assert_eq!(status_of(&HostPolicy::any(), h2), 200);
        let h2 = Request::builder().version(Version::HTTP_2).uri("/api").header("host", "a b");
        let a = HostPolicy::new(["a"].into_iter());
        assert_eq!(status_of(&a, h2), 400);
        let h2 = Request::builder().version(Version::HTTP_2);
        assert_eq!(status_of(&a, h2.uri("https://a/api")), 200, "its :authority names the host");
    }
}
