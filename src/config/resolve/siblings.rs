//! Validates `cache.siblings`.
//!
//! Weir's own credentials may go to a sibling, so that each one must prove by a certificate that it
//! is one. Only a loopback address may do without, and gets no credentials.

use std::net::IpAddr;

use crate::config::VerifyMode;
use crate::config::file::SiblingsSection;
use crate::config::parse::upstream_url;
use crate::config::resolve::problems::Collector;
use crate::config::siblings::{SIBLINGS_MAX, SiblingCertificate, SiblingsConfig};

/// Validates `cache.siblings`; `verify` is the mode of the comparison with the upstream.
pub(super) fn siblings(
    section: SiblingsSection,
    verify: VerifyMode,
    problems: &mut Collector,
) -> SiblingsConfig {
    let mut config = SiblingsConfig { ca: section.ca_file, ..SiblingsConfig::default() };
    if let Some(addresses) = section.addresses {
        config.addresses = problems.list("cache.siblings.addresses", addresses, address);
    }
    if config.addresses.len() > SIBLINGS_MAX {
        let message = format!("at most {SIBLINGS_MAX} siblings are supported");
        problems.add("cache.siblings.addresses", message);
    }
    let service = section.service;
    problems.take(
        "cache.siblings.service",
        service,
        |text| text.parse(),
        |name| {
            config.service = Some(name);
        },
    );
    let name = section.server_name;
    problems.take("cache.siblings.serverName", name, server_name, |name| {
        config.server_name = Some(name);
    });
    config.certificate = match (section.certificate_file, section.private_key_file) {
        (Some(certificate), Some(key)) => Some(SiblingCertificate { certificate, key }),
        (None, None) => None,
        (Some(_), None) => {
            problems.add("cache.siblings.privateKeyFile", "is missing");
            None
        }
        (None, Some(_)) => {
            problems.add("cache.siblings.certificateFile", "is missing");
            None
        }
    };
    check(&config, verify, problems);
    config
}

/// Checks what the settings need of each other.
fn check(config: &SiblingsConfig, verify: VerifyMode, problems: &mut Collector) {
    if !config.is_enabled() {
        for (field, is_set) in [
            ("serverName", config.server_name.is_some()),
            ("caFile", config.ca.is_some()),
            ("certificateFile", config.certificate.is_some()),
        ] {
            if is_set {
                let path = format!("cache.siblings.{field}");
                problems.add(path, "needs cache.siblings.addresses or cache.siblings.service");
            }
        }
        return;
    }
    let is_tls = |address: &String| address.starts_with("https://");
    if config.ca.is_none() && (config.service.is_some() || config.addresses.iter().any(is_tls)) {
        let message = "is missing: it must name the CA of the siblings' certificates, since they \
                       get Weir's credentials";
        problems.add("cache.siblings.caFile", message);
    }
    if config.service.is_some() && config.server_name.is_none() {
        let message =
            "is missing: an EndpointSlice has addresses, and the certificates have a name";
        problems.add("cache.siblings.serverName", message);
    }
    if verify == VerifyMode::Off {
        let message = "off and cache.siblings exclude each other: what a sibling sent is compared \
                       with the API server";
        problems.add("cache.verify", message);
    }
}

/// Parses the URL of a sibling: without a path, and encrypted unless it is a loopback address.
fn address(text: String) -> Result<String, String> {
    let url = upstream_url(text)?;
    let url = url.trim_end_matches('/').to_owned();
    let (scheme, authority) = url.split_once("://").unwrap_or_default();
    if authority.contains('/') {
        return Err("must have no path".to_owned());
    }
    if scheme == "http" && !is_loopback(authority) {
        return Err("must be https://, unless it is a loopback address".to_owned());
    }
    Ok(url)
}

fn is_loopback(authority: &str) -> bool {
    let host = match authority.rsplit_once(':') {
        Some((host, port)) if port.bytes().all(|byte| byte.is_ascii_digit()) => host,
        _ => authority,
    };
    let host = host.trim_start_matches('[').trim_end_matches(']');
    host.parse::<IpAddr>().is_ok_and(|address| address.is_loopback())
}

fn server_name(name: String) -> Result<String, String> {
    match rustls_pki_types::ServerName::try_from(name.clone()) {
        Ok(_) => Ok(name),
        Err(_) => Err(format!("expected a DNS name, not {name:?}")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn resolve(section: SiblingsSection) -> (SiblingsConfig, Vec<String>) {
        let mut problems = Collector::default();
        let config = siblings(section, VerifyMode::Observe, &mut problems);
        (config, problems.0.into_iter().map(|problem| problem.path).collect())
    }

    fn addresses(addresses: &[&str]) -> SiblingsSection {
        let addresses = Some(addresses.iter().map(|&it| it.to_owned()).collect());
        SiblingsSection { addresses, ..SiblingsSection::default() }
    }

    #[test]
    fn siblings_by_address_and_by_service_are_accepted() {
        let section = SiblingsSection {
            service: Some("weir/weir-replicas".to_owned()),
            server_name: Some("weir.weir.svc".to_owned()),
            ca_file: Some("/etc/weir/ca.crt".into()),
            certificate_file: Some("/etc/weir/tls.crt".into()),
            private_key_file: Some("/etc/weir/tls.key".into()),
            ..addresses(&["https://weir-1.weir:6443", "https://[fd00::1]:6443/"])
        };
        let (config, problems) = resolve(section);
        assert_eq!(problems, [""; 0]);
        assert_eq!(config.addresses, ["https://weir-1.weir:6443", "https://[fd00::1]:6443"]);
        assert_eq!(config.service.unwrap().to_string(), "weir/weir-replicas");
        assert!(config.certificate.is_some());
        for plain in ["http://127.0.0.1:8080", "http://[::1]:80", "http://127.0.0.1"] {
            assert_eq!(resolve(addresses(&[plain])).1, [""; 0], "{plain}");
        }
        assert!(!resolve(SiblingsSection::default()).0.is_enabled());
    }

    #[test]
    fn credentials_go_to_nobody_who_proves_nothing() {
        let path = "cache.siblings.addresses[0]";
        for plain in ["http://10.0.0.1", "http://localhost:1", "http://127.0.0.1.example.com"] {
            assert_eq!(resolve(addresses(&[plain])).1, [path], "{plain}");
        }
        assert_eq!(resolve(addresses(&["https://weir/path"])).1[0], path);
        assert_eq!(resolve(addresses(&["https://weir:1"])).1, ["cache.siblings.caFile"]);
        let service = || SiblingsSection { service: Some("a/b".to_owned()), ..Default::default() };
        let expected = ["cache.siblings.caFile", "cache.siblings.serverName"];
        assert_eq!(resolve(service()).1, expected);
    }

    #[test]
    fn settings_that_do_not_fit_together_are_refused() {
        let key = SiblingsSection { private_key_file: Some("k".into()), ..Default::default() };
        assert_eq!(resolve(key).1, ["cache.siblings.certificateFile"]);
        let ca = SiblingsSection { ca_file: Some("ca".into()), ..Default::default() };
        assert_eq!(resolve(ca).1, ["cache.siblings.caFile"]);
        for service in ["weir", "a/b/c", "a/", "A/b"] {
            let service = Some(service.to_owned());
            let section = SiblingsSection { service, ..Default::default() };
            assert_eq!(resolve(section).1, ["cache.siblings.service"]);
        }
        let mut problems = Collector::default();
        siblings(addresses(&["http://127.0.0.1:1"]), VerifyMode::Off, &mut problems);
        assert_eq!(problems.0[0].path, "cache.verify");
    }
}
