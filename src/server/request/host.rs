//! Checks of the `Host` and `Origin` headers: a web page that rebinds its name to a loopback
//! address must not reach the API.
//!
//! `Host` alone does not suffice. A browser lets any page open a WebSocket to any address, and so
//! to `exec`, and send simple POSTs, but it names the page in `Origin`
//! (`docs/decisions/origin-check.md`).
//!
//! Both checks matter in sidecar mode, where clients are not authenticated. In gateway mode clients
//! are, and every name is allowed, as by kube-apiserver. Only an invalid `Host` is rejected, as by
//! Go's server.

use std::collections::HashSet;
use std::net::IpAddr;

use http::request::Parts;
use http::uri::Authority;
use http::{HeaderValue, Uri, Version, header};

use crate::api::status::Status;
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
    /// use either. Errors are Weir's own responses.
    pub(crate) fn check(&self, request: &Parts) -> Result<(), Status> {
        let mut hosts = request.headers.get_all(header::HOST).iter();
        let host = hosts.next();
        if hosts.next().is_some() {
            return Err(bad_request("the request has more than one Host header"));
        }
        let mut named = false;
        if let Some(authority) = request.uri.authority() {
            named = true;
            self.check_name(authority.host())?;
        }
        if let Some(host) = host {
            named = true;
            let authority = Authority::try_from(host.as_bytes())
                .map_err(|_| bad_request("the Host header cannot be read"))?;
            self.check_name(authority.host())?;
        }
        for origin in request.headers.get_all(header::ORIGIN) {
            self.check_origin(origin)?;
        }
        // HTTP/1.0 has no Host header, and browsers no longer use it.
        if named || request.version < Version::HTTP_11 {
            Ok(())
        } else {
            Err(bad_request("the request has no Host header"))
        }
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

    fn allows(&self, host: &str) -> bool {
        let Some(allowed) = &self.allowed else { return true };
        let name = host.trim_start_matches('[').trim_end_matches(']').to_ascii_lowercase();
        let loopback =
            name.parse::<IpAddr>().is_ok_and(|address| address.to_canonical().is_loopback());
        loopback || name == "localhost" || allowed.contains(&name)
    }
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

#[cfg(test)]
mod tests {
    use super::*;
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
        policy.check(&parts).map_or_else(|status| status.code.as_u16(), |()| 200)
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
        assert_eq!(code("http://localhost/api", &[]), 200);
        assert_eq!(code("http://evil.example/api", &["localhost"]), 403);
        assert_eq!(code("http://localhost/api", &["evil.example"]), 403);
    }

    #[test]
    fn a_missing_or_repeated_host_is_a_bad_request() {
        assert_eq!(code("/api", &[]), 400);
        assert_eq!(code("/api", &["localhost", "localhost"]), 400);
        assert_eq!(code("/api", &[""]), 400);
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
        assert_eq!(code(&["kubernetes.default.svc"]), 200);
        for hosts in [&[][..], &["a", "a"], &[""], &["a b"]] {
            assert_eq!(code(hosts), 400, "{hosts:?}");
        }
    }
}
