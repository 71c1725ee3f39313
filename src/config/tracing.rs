//! The settings of tracing (`docs/decisions/tracing.md`). Their names are those of Kubernetes'
//! `TracingConfiguration`.

use std::fmt;
use std::path::PathBuf;
use std::str::FromStr;

use http::Uri;
use http::uri::Authority;
use rustls_pki_types::ServerName;

use crate::config::kinds::Maybe;
use crate::config::reader::Reader;
use crate::config::scalars::{Number, Plain, Text};
use crate::config::section::section;

section! {
    /// Tracing.
    pub struct TracingConfig {
        /// The collector, by its URL for OTLP over HTTP, such as
        /// `http://collector.monitoring:4318/v1/traces`. https:// needs caFile.
        restart endpoint: Option<TracingEndpoint> = None, Maybe(Text);

        /// The CA of the collector's certificate, in PEM. It is read again for each connection.
        restart ca_file: Option<PathBuf> = None, Maybe(Plain);

        /// The requests of a million that are sampled, among those without a parent that counts.
        /// With 0 only requests whose parent is sampled are: in a sidecar those of any client, in a
        /// gateway those of members of system:masters and system:monitoring.
        // As in kube-apiserver: an operator chooses a rate for which there is room.
        live sampling_rate_per_million: u32 = 0, Number(0, 1_000_000);
    }
}

impl TracingConfig {
    /// Refuses an endpoint and a CA that do not belong together.
    pub(super) fn check(&self, reader: &mut Reader<'_>) {
        let message = match (&self.endpoint, &self.ca_file) {
            (Some(endpoint), None) if endpoint.https => {
                "is missing: with https:// it names the CA of the collector"
            }
            (Some(endpoint), Some(_)) if !endpoint.https => "is for https:// endpoints",
            (None, Some(_)) if !reader.has("tracing.endpoint") => "needs tracing.endpoint",
            _ => return,
        };
        reader.refuse("tracing.caFile", message);
    }
}

/// A collector that speaks OTLP over HTTP.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TracingEndpoint {
    /// The host, without brackets.
    pub host: String,
    /// The port.
    pub port: u16,
    /// Host and port as the URL has them.
    pub authority: String,
    /// The path of the requests.
    pub path: String,
    /// Whether it has TLS.
    pub https: bool,
}

impl FromStr for TracingEndpoint {
    type Err = String;

    /// Parses a URL.
    fn from_str(text: &str) -> Result<Self, String> {
        // Not quoted: it may have a password or a token.
        if text.contains('@') {
            return Err("must not contain a user name or password".to_owned());
        }
        if text.contains(['?', '#']) {
            return Err("must not have a query or a fragment".to_owned());
        }
        let refuse = |why: &str| {
            format!("{why}; expected a URL such as http://collector:4318/v1/traces, not {text:?}")
        };
        let uri: Uri = text.parse().map_err(|_| refuse("cannot be parsed"))?;
        let https = match uri.scheme_str() {
            Some("https") => true,
            Some("http") => false,
            _ => return Err(refuse("is neither http:// nor https://")),
        };
        let authority = uri.authority().ok_or_else(|| refuse("has no host"))?;
        let host = authority.host().trim_start_matches('[').trim_end_matches(']').to_owned();
        if ServerName::try_from(host.as_str()).is_err() {
            return Err(refuse("has no valid host"));
        }
        if matches!(uri.path(), "" | "/") {
            return Err(refuse("has no path, which is /v1/traces for most collectors"));
        }
        Ok(Self {
            host,
            port: port(authority, if https { 443 } else { 80 })
                .ok_or_else(|| refuse("has no valid port"))?,
            authority: authority.to_string(),
            path: uri.path().to_owned(),
            https,
        })
    }
}

/// Returns the port, or `default` without one; `None` if it is not one. `Authority::port_u16` is
/// `None` in both cases.
fn port(authority: &Authority, default: u16) -> Option<u16> {
    match authority.as_str().strip_prefix(authority.host())? {
        "" => Some(default),
        port => port.strip_prefix(':')?.parse().ok().filter(|port| *port != 0),
    }
}

/// The URL.
impl fmt::Display for TracingEndpoint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let scheme = if self.https { "https" } else { "http" };
        write!(f, "{scheme}://{}{}", self.authority, self.path)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_endpoint_is_a_url_with_a_path() {
        for (text, host, port) in [
            ("http://collector:4318/v1/traces", "collector", 4318),
            ("https://otlp.example.com/v1/traces", "otlp.example.com", 443),
            ("http://[::1]/a/b", "::1", 80),
            ("http://127.0.0.1:1/x", "127.0.0.1", 1),
        ] {
            let endpoint: TracingEndpoint = text.parse().unwrap();
            assert_eq!((&*endpoint.host, endpoint.port), (host, port), "{text}");
            assert_eq!(endpoint.to_string(), text);
        }
        for (text, why) in [
            ("collector:4317", "neither http:// nor https://"),
            ("localhost", "neither http:// nor https://"),
            ("grpc://collector:4317/v1/traces", "neither http:// nor https://"),
            ("http://collector:4318", "has no path"),
            ("http://collector:4318/", "has no path"),
            ("http://collector:99999/v1/traces", "has no valid port"),
            ("http://collector:/v1/traces", "has no valid port"),
            ("http://collector:0/v1/traces", "has no valid port"),
            ("http://[::1]:x/v1/traces", ""),
            ("http://collector:4318/v1/traces#part", "a query or a fragment"),
            ("http://a_b!:4318/v1/traces", ""),
            ("http:///v1/traces", ""),
            ("", ""),
        ] {
            let error = text.parse::<TracingEndpoint>().unwrap_err();
            assert!(error.contains(why), "{text}: {error}");
        }
        for text in
            ["https://jane:secret@collector/v1/traces", "https://collector/v1/traces?key=secret"]
        {
            assert!(!text.parse::<TracingEndpoint>().unwrap_err().contains("secret"), "{text}");
        }
    }
}
