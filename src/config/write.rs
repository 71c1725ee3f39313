//! Turns the typed [`Config`] back into a file with every default written out, which `weir check`
//! prints. The file resolves to the same configuration.

mod identity;

use crate::config::endpoints::DnsName;
use crate::config::file::{
    AdminSection, CacheSection, CertificateSection, ConfigFile, DropRuleSection, EndpointsSection,
    FlowControlSection, ListenerSection, LoggingSection, ProxyProtocolSection, ServerSection,
    ShadowSection, TracingSection, UpstreamSection,
};
use crate::config::listen::ListenAddress;
use crate::config::network::Network;
use crate::config::tracing::TracingEndpoint;
use crate::config::units::{format_bytes, format_duration};
use crate::config::{
    CacheConfig, CertificateConfig, Config, DropRule, ListenerConfig, ResourcePattern,
    ServerConfig, UpstreamConfig,
};
use crate::flow::rules::AgentPattern;

impl From<&Config> for ConfigFile {
    fn from(config: &Config) -> Self {
        let admin = config.admin_listen.map_or_else(|| "none".to_owned(), |a| a.to_string());
        Self {
            server: server(&config.server),
            admin: AdminSection {
                listen: Some(admin),
                socket: config.admin_socket.clone(),
                detail: Some(config.admin_detail.to_string()),
                ready_when_away: Some(config.ready_when_away),
            },
            upstream: upstream(&config.upstream),
            cache: cache(&config.cache),
            authentication: identity::authentication(&config.authentication),
            authorization: identity::authorization(config),
            audit: identity::audit(config),
            flow_control: FlowControlSection {
                mode: Some(config.flow_control.mode.to_string()),
                seats_per_server: Some(config.flow_control.seats_per_server),
                adaptive: Some(config.flow_control.adaptive.to_string()),
                levels: config.flow_control.overlay.written_levels.clone(),
                rules: config.flow_control.overlay.written_rules.clone(),
            },
            shadow: ShadowSection {
                mode: Some(config.shadow.mode.to_string()),
                cpu_share: Some(config.shadow.cpu_share.to_string()),
            },
            tracing: TracingSection {
                endpoint: config.tracing.endpoint.as_ref().map(TracingEndpoint::to_string),
                ca_file: config
                    .tracing
                    .endpoint
                    .as_ref()
                    .and_then(|endpoint| endpoint.ca_file.clone()),
                sampling_rate_per_million: Some(config.tracing.sampling_rate_per_million),
            },
            logging: logging(config),
            ..Self::empty()
        }
    }
}

impl ListenerConfig {
    /// Returns the address and protocol.
    pub fn address(&self) -> ListenAddress {
        match self {
            Self::Tls { address, .. } => ListenAddress::Tls(*address),
            Self::Plain { address, .. } => ListenAddress::Plain(*address),
            Self::Unix { path } => ListenAddress::Unix(path.clone()),
        }
    }
}

fn server(config: &ServerConfig) -> ServerSection {
    ServerSection {
        listeners: Some(config.listeners.iter().map(listener).collect()),
        allowed_hosts: Some(config.allowed_hosts.clone()),
        shutdown_delay: Some(format_duration(config.shutdown_delay)),
        shutdown_timeout: Some(format_duration(config.shutdown_timeout)),
        connections_per_address_max: Some(config.connections_per_address_max),
        connections_per_user_max: Some(config.connections_per_user_max),
        watches_per_user_max: Some(config.watches_per_user_max),
    }
}

fn listener(config: &ListenerConfig) -> ListenerSection {
    let certificate = match config {
        ListenerConfig::Tls { certificate, .. } => Some(match certificate {
            CertificateConfig::Files { certificate, key, ca } => CertificateSection {
                certificate_file: Some(certificate.clone()),
                private_key_file: Some(key.clone()),
                ca_file: ca.clone(),
                generated_names: None,
            },
            CertificateConfig::Generated { names } => {
                let generated_names = Some(names.clone());
                CertificateSection { generated_names, ..CertificateSection::default() }
            }
        }),
        ListenerConfig::Plain { .. } | ListenerConfig::Unix { .. } => None,
    };
    let proxies = match config {
        ListenerConfig::Tls { proxies, .. } | ListenerConfig::Plain { proxies, .. } => &proxies.0,
        ListenerConfig::Unix { .. } => &Vec::new(),
    };
    let proxy_protocol = (!proxies.is_empty()).then(|| ProxyProtocolSection {
        trusted_networks: proxies.iter().map(Network::to_string).collect(),
    });
    ListenerSection { listen: config.address().to_string(), certificate, proxy_protocol }
}

fn upstream(config: &UpstreamConfig) -> UpstreamSection {
    UpstreamSection {
        kubeconfig: config.kubeconfig.clone(),
        context: config.context.clone(),
        endpoints: EndpointsSection {
            static_urls: Some(config.endpoints.static_urls.clone()),
            dns: config.endpoints.dns.as_ref().map(DnsName::to_string),
            endpoint_slice: Some(config.endpoints.endpoint_slice),
        },
        connect_timeout: Some(format_duration(config.connect_timeout)),
        http2: Some(config.http2),
    }
}

fn cache(config: &CacheConfig) -> CacheSection {
    let patterns = |patterns: &[ResourcePattern]| {
        Some(patterns.iter().map(ResourcePattern::to_string).collect())
    };
    let warm = config.warm.iter().map(ToString::to_string);
    CacheSection {
        include: patterns(&config.include),
        exclude: patterns(&config.exclude),
        warm: Some(warm.collect()),
        idle_timeout: Some(format_duration(config.idle_timeout)),
        resource_bytes_max: Some(format_bytes(config.resource_bytes_max)),
        total_bytes_max: Some(format_bytes(config.total_bytes_max)),
        history_bytes_max: Some(format_bytes(config.history_bytes_max)),
        gzip_bytes_max: Some(format_bytes(config.gzip_bytes_max)),
        on_relist: Some(config.on_relist.to_string()),
        forward_budget: Some(config.forward_budget),
        max_staleness: Some(config.max_staleness.map_or_else(never, format_duration)),
        consistent_lists: Some(config.consistent_lists.to_string()),
        verify: Some(config.verify.to_string()),
        drop_managed_fields: Some(config.drop_managed_fields.iter().map(drop_rule).collect()),
    }
}

fn drop_rule(rule: &DropRule) -> DropRuleSection {
    DropRuleSection {
        user_agents: rule.agents.iter().map(AgentPattern::to_string).collect(),
        resources: rule.resources.iter().map(ResourcePattern::to_string).collect(),
    }
}

fn never() -> String {
    "never".to_owned()
}

fn logging(config: &Config) -> LoggingSection {
    let Config { logging, server, .. } = config;
    LoggingSection {
        format: Some(logging.format.to_string()),
        filter: Some(logging.filter.clone()),
        slow_request: Some(server.slow_request.map_or_else(never, format_duration)),
    }
}
