//! Validates `upstream`.

use crate::config::UpstreamConfig;
use crate::config::endpoints::{EndpointsConfig, SERVERS_MAX};
use crate::config::file::{EndpointsSection, UpstreamSection};
use crate::config::parse::upstream_url;
use crate::config::resolve::problems::Collector;

/// Validates `upstream`.
pub(super) fn upstream(section: UpstreamSection, problems: &mut Collector) -> UpstreamConfig {
    let mut config = UpstreamConfig {
        kubeconfig: section.kubeconfig,
        context: section.context,
        ..UpstreamConfig::default()
    };
    config.endpoints = endpoints(section.endpoints, problems);
    problems.duration(
        "upstream.connectTimeout",
        section.connect_timeout,
        &mut config.connect_timeout,
    );
    config.http2 = section.http2.unwrap_or(config.http2);
    config
}

fn endpoints(section: EndpointsSection, problems: &mut Collector) -> EndpointsConfig {
    let mut config = EndpointsConfig::default();
    let path = "upstream.endpoints.static";
    if let Some(urls) = section.static_urls {
        config.static_urls = problems.list(path, urls, upstream_url);
    }
    if config.static_urls.len() > SERVERS_MAX {
        problems.add(path, format!("at most {SERVERS_MAX} API servers are supported"));
    }
    for (index, url) in config.static_urls.iter().enumerate() {
        let is_same = |other: &String| other.trim_end_matches('/') == url.trim_end_matches('/');
        if config.static_urls.iter().take(index).any(is_same) {
            problems.add(format!("{path}[{index}]"), format!("{url} is listed twice"));
        }
    }
    problems.take(
        "upstream.endpoints.dns",
        section.dns,
        |text| text.parse(),
        |name| config.dns = Some(name),
    );
    config.endpoint_slice = section.endpoint_slice.unwrap_or(config.endpoint_slice);
    config
}
