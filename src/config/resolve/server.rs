//! Validates `server`: listeners, their certificates, time-outs and limits.

use std::ops::RangeInclusive;
use std::time::Duration;

use crate::config::file::{
    CertificateSection, ListenerSection, ProxyProtocolSection, ServerSection,
};
use crate::config::listen::ListenAddress;
use crate::config::memory::fit_server;
use crate::config::network::Network;
use crate::config::parse::host_name;
use crate::config::resolve::problems::Collector;
use crate::config::{
    CertificateConfig, ListenerConfig, Mode, ProxyNetworks, ServerConfig, defaults,
};

/// Validates `server`. `mode` decides which addresses are allowed.
pub(super) fn server(
    section: ServerSection,
    mode: Mode,
    memory_limit: Option<u64>,
    problems: &mut Collector,
) -> ServerConfig {
    let mut config = ServerConfig::default();
    if let Some(limit) = memory_limit {
        fit_server(&mut config, limit);
    }
    if mode == Mode::Gateway {
        config.shutdown_delay = defaults::GATEWAY_SHUTDOWN_DELAY;
        config.shutdown_timeout = defaults::GATEWAY_SHUTDOWN_TIMEOUT;
    }
    if let Some(listeners) = section.listeners {
        if listeners.is_empty() {
            problems.add("server.listeners", "needs at least one listener");
        }
        config.listeners.clear();
        for (index, section) in listeners.into_iter().enumerate() {
            let path = format!("server.listeners[{index}]");
            config.listeners.extend(listener(&path, section, mode, problems));
        }
    }
    if let Some(hosts) = section.allowed_hosts {
        if mode == Mode::Gateway && !hosts.is_empty() {
            problems.add(
                "server.allowedHosts",
                "is for sidecar mode; in gateway mode every Host is accepted",
            );
        }
        config.allowed_hosts = problems.list("server.allowedHosts", hosts, host_name);
    }
    let (timeout, set) = (section.shutdown_timeout, &mut config.shutdown_timeout);
    problems.duration("server.shutdownTimeout", timeout, set);
    problems.duration_between(
        "server.shutdownDelay",
        section.shutdown_delay,
        SHUTDOWN_DELAY,
        &mut config.shutdown_delay,
    );
    for (path, value, set) in [
        (
            "server.connectionsPerAddressMax",
            section.connections_per_address_max,
            &mut config.connections_per_address_max,
        ),
        (
            "server.connectionsPerUserMax",
            section.connections_per_user_max,
            &mut config.connections_per_user_max,
        ),
        (
            "server.watchesPerUserMax",
            section.watches_per_user_max,
            &mut config.watches_per_user_max,
        ),
    ] {
        let Some(most) = value else { continue };
        if most == 0 {
            problems.add(path, "must be more than zero");
        }
        *set = most;
    }
    config
}

fn listener(
    path: &str,
    section: ListenerSection,
    mode: Mode,
    problems: &mut Collector,
) -> Option<ListenerConfig> {
    let certificate_path = format!("{path}.certificate");
    let certificate =
        section.certificate.map(|section| certificate(&certificate_path, section, problems));
    let proxies_path = format!("{path}.proxyProtocol");
    let proxies = section.proxy_protocol.map(|section| proxies(&proxies_path, section, problems));
    let address = section.listen.parse::<ListenAddress>();
    match address.and_then(|address| address.check(mode)) {
        Ok(address) => {
            if certificate.is_some() && !matches!(address, ListenAddress::Tls(_)) {
                problems.add(certificate_path, "only an https:// listener has a certificate");
            }
            if proxies.is_some() && matches!(address, ListenAddress::Unix(_)) {
                problems.add(proxies_path, "is for https:// and http:// listeners");
            }
            let certificate = certificate.unwrap_or_else(generated);
            Some(listener_of(address, certificate, proxies.unwrap_or_default()))
        }
        Err(message) => {
            problems.add(format!("{path}.listen"), message);
            None
        }
    }
}

pub(super) fn listener_of(
    address: ListenAddress,
    certificate: CertificateConfig,
    proxies: ProxyNetworks,
) -> ListenerConfig {
    match address {
        ListenAddress::Tls(address) => ListenerConfig::Tls { address, certificate, proxies },
        ListenAddress::Plain(address) => ListenerConfig::Plain { address, proxies },
        ListenAddress::Unix(path) => ListenerConfig::Unix { path },
    }
}

fn proxies(path: &str, section: ProxyProtocolSection, problems: &mut Collector) -> ProxyNetworks {
    let path = format!("{path}.trustedNetworks");
    if section.trusted_networks.is_empty() {
        problems.add(&path, "needs at least one network of a load balancer or proxy");
    }
    let parse = |text: String| {
        let network: Network = text.parse()?;
        if network.is_everything() {
            return Err(format!(
                "{network} trusts everybody to name any address; name the networks of the proxies"
            ));
        }
        Ok(network)
    };
    ProxyNetworks(problems.list(&path, section.trusted_networks, parse))
}

fn certificate(
    path: &str,
    section: CertificateSection,
    problems: &mut Collector,
) -> CertificateConfig {
    let CertificateSection { certificate_file, private_key_file, ca_file, generated_names } =
        section;
    match (certificate_file, private_key_file) {
        (Some(certificate), Some(key)) => {
            if generated_names.is_some() {
                problems.add(
                    format!("{path}.generatedNames"),
                    "belongs to a generated certificate; this one comes from files",
                );
            }
            CertificateConfig::Files { certificate, key, ca: ca_file }
        }
        (None, None) => {
            if ca_file.is_some() {
                problems.add(
                    format!("{path}.caFile"),
                    "needs certificateFile and privateKeyFile; a generated certificate has its own CA",
                );
            }
            let names = generated_names.unwrap_or_default();
            let names = problems.list(&format!("{path}.generatedNames"), names, host_name);
            CertificateConfig::Generated { names }
        }
        (Some(_), None) => {
            problems.add(format!("{path}.privateKeyFile"), "is missing beside certificateFile");
            generated()
        }
        (None, Some(_)) => {
            problems.add(format!("{path}.certificateFile"), "is missing beside privateKeyFile");
            generated()
        }
    }
}

pub(super) fn generated() -> CertificateConfig {
    CertificateConfig::Generated { names: Vec::new() }
}

/// Endpoints and load balancers follow within minutes, or never.
const SHUTDOWN_DELAY: RangeInclusive<Duration> = Duration::ZERO..=Duration::from_secs(600);
