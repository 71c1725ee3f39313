//! The configuration as a whole: accepted values, rejected values with their messages, and that a
//! printed configuration parses to the same one.

mod identity;
mod tracing;
mod warnings;

use std::time::Duration;

use proptest::prelude::*;

use super::file::{ConfigFile, FileError};
use super::resolve::{Overrides, Problems};
use super::*;

const HEAD: &str = "apiVersion: weir.dev/v1alpha1\nkind: WeirConfiguration\n";

fn parse(body: &str) -> Result<ConfigFile, FileError> {
    ConfigFile::parse("weir.yaml", &format!("{HEAD}{body}"))
}

fn resolve(body: &str) -> Result<Config, Problems> {
    Config::resolve(parse(body).unwrap(), Overrides::default())
}

#[test]
fn an_empty_file_is_the_defaults() {
    assert_eq!(resolve("").unwrap(), Config::default());
    assert_eq!(
        Config::resolve(ConfigFile::empty(), Overrides::default()).unwrap(),
        Config::default()
    );
}

#[test]
fn the_examples_are_read_and_the_first_is_the_defaults() {
    let file =
        ConfigFile::parse("config/weir.yaml", include_str!("../../config/weir.yaml")).unwrap();
    let mut defaults = Config::default();
    let proxies = ProxyNetworks::default();
    let plain = ListenerConfig::Plain { address: defaults::PLAIN_LISTEN, proxies };
    defaults.server.listeners.push(plain);
    assert_eq!(Config::resolve(file, Overrides::default()).unwrap(), defaults);

    let sidecar = include_str!("../../config/sidecar.yaml");
    let sidecar = ConfigFile::parse("config/sidecar.yaml", sidecar).unwrap();
    let sidecar = Config::resolve(sidecar, Overrides::default()).unwrap();
    assert_eq!(sidecar.cache.warm, [GroupVersionResource::new("", "v1", "pods")]);
    assert_eq!(sidecar.logging.format, LogFormat::Json);

    let shedding = include_str!("../../config/shedding.yaml");
    let shedding = ConfigFile::parse("config/shedding.yaml", shedding).unwrap();
    let shedding = Config::resolve(shedding, Overrides::default()).unwrap();
    assert_eq!(shedding.cache.consistent_lists, ConsistentLists::Auto);
}

/// Each key is in one of the commented examples: weir.yaml or gateway.yaml.
#[test]
fn the_examples_document_every_key() {
    let general = include_str!("../../config/weir.yaml");
    let gateway = format!("{general}{}", include_str!("../../config/gateway.yaml"));
    for (full, example) in [(full_config(), general), (identity::full_config(), &*gateway)] {
        let yaml = ConfigFile::from(&full).to_yaml().unwrap();
        for line in yaml.lines() {
            if let Some((key, _)) = line.trim_start_matches([' ', '-']).split_once(':')
                && key.chars().all(char::is_alphanumeric)
            {
                assert!(example.contains(&format!("{key}:")), "no example has {key}");
            }
        }
    }
}

#[test]
fn a_printed_configuration_parses_to_itself() {
    for config in [Config::default(), full_config(), identity::full_config()] {
        let yaml = ConfigFile::from(&config).to_yaml().unwrap();
        let file = ConfigFile::parse("printed", &yaml).unwrap();
        assert_eq!(Config::resolve(file, Overrides::default()).unwrap(), config, "{yaml}");
    }
}

#[test]
fn syntax_errors_have_line_and_column() {
    for (body, place, part) in [
        ("cache:\n  includes: [pods]\n", "weir.yaml:4:3: ", "includes"),
        ("cache:\n  forwardBudget: many\n", "weir.yaml:4:18: ", "forwardBudget"),
        ("cache:\n  forwardBudget: -1\n", "weir.yaml:4:18: ", "forwardBudget"),
        ("server:\n  listeners:\n    - port: 1\n", "weir.yaml:5:7: ", "port"),
        ("cache: [\n", "weir.yaml:3:8: ", "bracket"),
        ("logging: {}\nlogging: {}\n", "weir.yaml:4:1: ", "logging"),
    ] {
        let error = parse(body).unwrap_err().to_string();
        assert!(error.starts_with(place) && error.contains(part), "{body}: {error}");
        assert!(!error.contains('\n'), "{error}");
    }
}

#[test]
fn files_of_another_api_version_or_kind_are_rejected() {
    let deployment = "apiVersion: apps/v1\nkind: Deployment\nmetadata: {}\n";
    for (text, message) in [
        (deployment, "x: apiVersion must be \"weir.dev/v1alpha1\", not \"apps/v1\""),
        (
            "apiVersion: weir.dev/v1alpha1\nkind: Weir\n",
            "x: kind must be \"WeirConfiguration\", not \"Weir\"",
        ),
        ("cache: {}\n", "x: apiVersion must be \"weir.dev/v1alpha1\", not \"\""),
        ("", "x: apiVersion must be \"weir.dev/v1alpha1\", not \"\""),
    ] {
        assert_eq!(ConfigFile::parse("x", text).unwrap_err().to_string(), message);
    }
    assert!(ConfigFile::parse("x", "- a\n").is_err());
    assert!(ConfigFile::parse("x", &format!("{HEAD}---\n{HEAD}")).is_err(), "two documents");
}

/// A key whose settings are all commented out has no value.
#[test]
fn an_empty_section_is_its_defaults() {
    let body = "server:\nadmin:\nupstream:\ncache:\n  # warm: []\nlogging:\n";
    assert_eq!(resolve(body).unwrap(), Config::default());
    assert_eq!(resolve("cache:\n  include:\n  idleTimeout:\n").unwrap(), Config::default());
}

#[test]
fn a_missing_file_is_named() {
    let error = ConfigFile::read_text("/nonexistent/weir.yaml".as_ref()).unwrap_err().to_string();
    assert!(error.starts_with("cannot read /nonexistent/weir.yaml: "), "{error}");
}

#[test]
fn all_problems_are_reported_at_once() {
    let body = r"
server:
  listeners:
    - listen: https://0.0.0.0:6440
    - listen: http://127.0.0.1:8001
      certificate: { generatedNames: [a b] }
    - listen: http://127.0.0.1:8001
    - listen: https://127.0.0.1:1
      certificate: { certificateFile: /a }
  allowedHosts: [example.com:80]
  shutdownTimeout: 0s
  shutdownDelay: 11m
  connectionsPerAddressMax: 0
admin: { listen: 127.0.0.1:1 }
upstream: { endpoints: { static: [10.0.0.1], dns: 10.0.0.1 } }
cache:
  include: [pods, apps/v1/deployments]
  warm: [v1/pods, v1/events, v1/nodes, pods]
  totalBytesMax: 1Mi
  resourceBytesMax: 2Mi
  historyBytesMax: 0
  gzipBytesMax: 0
  forwardBudget: 0
  maxStaleness: 10ms
  consistentLists: never
logging: { format: xml, filter: 'a=b=c' }
";
    let Problems(problems) = resolve(body).unwrap_err();
    let paths: Vec<&str> = problems.iter().map(|problem| problem.path.as_str()).collect();
    assert_eq!(
        paths,
        [
            "server.listeners[0].listen",
            "server.listeners[1].certificate.generatedNames[0]",
            "server.listeners[1].certificate",
            "server.listeners[3].certificate.privateKeyFile",
            "server.allowedHosts[0]",
            "server.shutdownTimeout",
            "server.shutdownDelay",
            "server.connectionsPerAddressMax",
            "upstream.endpoints.static[0]",
            "upstream.endpoints.dns",
            "cache.include[1]",
            "cache.warm[3]",
            "cache.warm[1]",
            "cache.warm[2]",
            "cache.historyBytesMax",
            "cache.resourceBytesMax",
            "cache.gzipBytesMax",
            "cache.consistentLists",
            "cache.maxStaleness",
            "cache.forwardBudget",
            "logging.format",
            "server.listeners[1].listen",
            "admin.listen",
            "logging.filter",
        ],
        "{}",
        Problems(problems.clone())
    );
}

#[test]
fn default_budgets_adapt_to_the_configured_ones() {
    let small = resolve("cache: { totalBytesMax: 1Mi }\n").unwrap().cache;
    assert_eq!((small.resource_bytes_max, small.history_bytes_max), (1 << 20, 1 << 20));
    let large = resolve("cache: { resourceBytesMax: 8Gi }\n").unwrap().cache;
    assert_eq!(large.total_bytes_max, 8 << 30);
    let history = resolve("cache: { historyBytesMax: 4Gi, totalBytesMax: 8Gi }\n").unwrap().cache;
    assert_eq!(history.resource_bytes_max, 4 << 30);
    let history = resolve("cache: { historyBytesMax: 4Gi }\n").unwrap().cache;
    assert_eq!((history.resource_bytes_max, history.total_bytes_max), (4 << 30, 4 << 30));
}

#[test]
fn flags_override_the_file() {
    let body = "server:\n  listeners:\n    - listen: https://127.0.0.1:1\n      certificate: { generatedNames: [weir] }\n";
    let overrides = Overrides {
        kubeconfig: Some("/k".into()),
        context: Some("c".to_owned()),
        listen: vec!["https://[::1]:2".parse().unwrap(), "unix:///w".parse().unwrap()],
        admin_listen: Some("none".parse().unwrap()),
        log_format: Some(LogFormat::Json),
        log_filter: Some("debug".to_owned()),
        shadow: Some(ShadowMode::Compare),
        memory_limit: None,
    };
    let config = Config::resolve(parse(body).unwrap(), overrides).unwrap();
    let certificate = CertificateConfig::Generated { names: vec!["weir".to_owned()] };
    let proxies = ProxyNetworks::default();
    assert_eq!(
        config.server.listeners,
        [
            ListenerConfig::Tls { address: "[::1]:2".parse().unwrap(), certificate, proxies },
            ListenerConfig::Unix { path: "/w".into() },
        ]
    );
    assert_eq!(config.admin_listen, None);
    assert_eq!(config.upstream.kubeconfig.as_deref(), Some("/k".as_ref()));
    assert_eq!(config.upstream.context.as_deref(), Some("c"));
    assert_eq!((config.logging.format, &*config.logging.filter), (LogFormat::Json, "debug"));
    assert_eq!(config.shadow.mode, ShadowMode::Compare);
}

#[test]
fn patterns_name_groups_and_resources() {
    let pods = GroupVersionResource::new("", "v1", "pods");
    let deployments = GroupVersionResource::new("apps", "v1", "deployments");
    for (pattern, pods_too, deployments_too) in [
        ("pods", true, false),
        ("*", true, true),
        ("/*", true, false),
        ("apps/*", false, true),
        ("*/deployments", false, true),
        ("apps/deployments", false, true),
        ("*/*", true, true),
    ] {
        let parsed: ResourcePattern = pattern.parse().unwrap();
        assert_eq!(parsed.matches(&pods), pods_too, "{pattern}");
        assert_eq!(parsed.matches(&deployments), deployments_too, "{pattern}");
    }
    for text in ["", "/", "apps/", "apps/v1/deployments", "Pods", "pods*", "a b"] {
        assert!(text.parse::<ResourcePattern>().is_err(), "{text}");
    }
}

proptest! {
    #[test]
    fn a_printed_pattern_parses_to_itself(group in "(\\*|[a-z.]{0,4})", resource in "(\\*|[a-z]{1,4})") {
        if let Ok(pattern) = format!("{group}/{resource}").parse::<ResourcePattern>() {
            prop_assert_eq!(pattern.to_string().parse::<ResourcePattern>(), Ok(pattern));
        }
    }
}

/// No setting in it has its default.
fn full_server_config() -> ServerConfig {
    ServerConfig {
        listeners: vec![
            ListenerConfig::Tls {
                address: "[::1]:7000".parse().unwrap(),
                certificate: CertificateConfig::Files {
                    certificate: "/tls.crt".into(),
                    key: "/tls.key".into(),
                    ca: Some("/ca.crt".into()),
                },
                proxies: ProxyNetworks(vec![
                    "10.0.0.0/8".parse().unwrap(),
                    "fd00::1".parse().unwrap(),
                ]),
            },
            ListenerConfig::Tls {
                address: "127.0.0.1:0".parse().unwrap(),
                certificate: CertificateConfig::Generated { names: vec!["weir.local".into()] },
                proxies: ProxyNetworks::default(),
            },
            ListenerConfig::Unix { path: "/run/weir: odd #name.sock".into() },
        ],
        allowed_hosts: vec!["yes".to_owned(), "10".to_owned(), "::1".to_owned()],
        slow_request: Some(Duration::from_millis(1500)),
        shutdown_delay: Duration::from_secs(7),
        shutdown_timeout: Duration::from_secs(5400),
        connections_per_address_max: 7,
        connections_per_user_max: 8,
        watches_per_user_max: 9,
        ..ServerConfig::default()
    }
}

/// No setting in it has its default.
fn full_config() -> Config {
    Config {
        server: full_server_config(),
        admin_listen: None,
        admin_socket: Some("/run/weir/admin.sock".into()),
        admin_detail: AdminDetail::None,
        ready_when_away: false,
        upstream: UpstreamConfig {
            kubeconfig: Some("/etc/kubeconfig".into()),
            context: Some("true".to_owned()),
            endpoints: EndpointsConfig {
                static_urls: vec!["https://[::1]:6443/prefix".to_owned()],
                dns: Some("no:443".parse().unwrap()),
                endpoint_slice: true,
                resolver: None,
            },
            connect_timeout: Duration::from_secs(1),
            http2: false,
            dial: None,
        },
        cache: CacheConfig {
            include: vec!["pods".parse().unwrap(), "apps/*".parse().unwrap()],
            exclude: vec!["*/leases".parse().unwrap(), "secrets".parse().unwrap()],
            warm: vec![GroupVersionResource::new("apps", "v1", "deployments")],
            idle_timeout: Duration::from_secs(1),
            resource_bytes_max: 3 << 20,
            total_bytes_max: 5 << 20,
            history_bytes_max: 1500,
            gzip_bytes_max: 7 << 10,
            on_relist: OnRelist::EndStreams,
            forward_budget: 3,
            over_budget_forwards: defaults::OVER_BUDGET_FORWARDS,
            page_size: defaults::PAGE_SIZE,
            max_staleness: Some(Duration::from_secs(90)),
            consistent_lists: ConsistentLists::Auto,
            verify: VerifyMode::Enforce,
            verify_round: defaults::VERIFY_ROUND,
            verify_whole_bytes: defaults::VERIFY_WHOLE_BYTES,
            drop_managed_fields: vec![DropRule {
                agents: vec![AgentPattern::parse("exporter/*").unwrap()],
                resources: vec!["pods".parse().unwrap()],
            }],
        },
        flow_control: FlowControlConfig {
            mode: FlowControlMode::Enforce,
            seats_per_server: 200,
            adaptive: FlowControlMode::Enforce,
            overlay: FlowOverlay::default(),
        },
        shadow: ShadowConfig { mode: ShadowMode::Compare, cpu_share: Fraction::percent(3) },
        logging: LoggingConfig { format: LogFormat::Json, filter: "weir=debug".to_owned() },
        ..Config::default()
    }
}

#[test]
fn a_password_in_an_address_is_not_repeated() {
    for address in ["https://me:hunter2@host:6443", "https://me:hunter2@host:x", "me:hunter2@host"]
    {
        let body = format!("upstream: {{endpoints: {{static: ['{address}']}}}}\n");
        let problems = resolve(&body).unwrap_err().to_string();
        assert!(problems.starts_with("upstream.endpoints.static[0]: "), "{problems}");
        assert!(!problems.contains("hunter2"), "{problems}");
    }
}

#[test]
fn static_endpoints_are_distinct_and_few() {
    let body = "upstream: {endpoints: {static: ['https://a', 'https://b', 'https://a/']}}\n";
    let problems = resolve(body).unwrap_err().to_string();
    assert_eq!(problems, "upstream.endpoints.static[2]: https://a/ is listed twice");
    let urls: Vec<_> = (0..33).map(|index| format!("'https://{index}.example'")).collect();
    let body = format!("upstream: {{endpoints: {{static: [{}]}}}}\n", urls.join(", "));
    let problems = resolve(&body).unwrap_err().to_string();
    assert_eq!(problems, "upstream.endpoints.static: at most 32 API servers are supported");
}

/// A kubeconfig given by mistake has tokens on lines that do not parse.
#[test]
fn a_mistake_is_named_by_its_field_and_never_by_its_value() {
    let text =
        "apiVersion: weir.dev/v1alpha1\nkind: WeirConfiguration\nserver:\n  token: [s3cret-token\n";
    let message = ConfigFile::parse("x.yaml", text).unwrap_err().to_string();
    assert!(message.starts_with("x.yaml:"), "{message}");
    assert!(!message.contains("s3cret"), "{message}");
    let text =
        "apiVersion: weir.dev/v1alpha1\nkind: WeirConfiguration\nserver:\n  tokn: s3cret-token\n";
    let message = ConfigFile::parse("x.yaml", text).unwrap_err().to_string();
    assert!(message.starts_with("x.yaml:4:") && message.contains("tokn"), "{message}");
    assert!(!message.contains("s3cret"), "{message}");
}

#[test]
fn seats_leave_places_on_the_connections() {
    let seats = |yaml: &str| resolve(yaml).map(|config| config.flow_control.seats_per_server);
    let http1 = "upstream: { http2: false }\n";
    assert_eq!(seats(http1).unwrap(), 204, "the default is less for HTTP/1.1");
    assert_eq!(seats(&format!("{http1}flowControl: {{ seatsPerServer: 204 }}\n")).unwrap(), 204);
    let problems = seats(&format!("{http1}flowControl: {{ seatsPerServer: 205 }}\n")).unwrap_err();
    assert!(problems.to_string().contains("upstream.http2"), "{problems}");
    assert_eq!(seats("flowControl: { seatsPerServer: 1150 }\n").unwrap(), 1150);
    assert!(seats("flowControl: { seatsPerServer: 1151 }\n").is_err());
}

#[test]
fn a_rule_about_managed_fields_names_its_clients() {
    let rules = |rule: &str| resolve(&format!("cache: {{ dropManagedFields: [{rule}] }}\n"));
    let config = rules("{ userAgents: [a/*, b/1] }").unwrap();
    let rule = &config.cache.drop_managed_fields[0];
    let pods = GroupVersionResource::new("", "v1", "pods");
    assert!(rule.matches("a/2 (linux)", &pods) && rule.matches("b/1", &pods));
    assert!(!rule.matches("b/2", &pods) && !rule.matches("", &pods));
    for (rule, problem) in [
        ("{ userAgents: [] }", "userAgents names no client"),
        ("{ userAgents: ['*'] }", "userAgents may not name all clients"),
        ("{ userAgents: ['a b'] }", "userAgents: \"a b\" has a space"),
        ("{ userAgents: [a/*], resources: ['x y'] }", "expected RESOURCE"),
    ] {
        let problems = rules(rule).unwrap_err().to_string();
        assert!(
            problems.starts_with(&format!("cache.dropManagedFields[0]: {problem}")),
            "{problems}"
        );
    }
}
