//! The configuration as a whole: accepted values, rejected values with their messages, and that a
//! printed configuration parses to the same one.

mod identity;
mod tracing;
mod warnings;

use proptest::prelude::*;

use super::file::{ConfigFile, FileError};
use super::resolve::{Overrides, Problem, Problems};
use super::schema::settings;
use super::*;
use crate::api::resource::GroupVersionResource;

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
    let read = |name: &str| {
        let text = std::fs::read_to_string(format!("config/{name}")).unwrap();
        let file = ConfigFile::parse(name, &text).unwrap();
        Config::resolve(file, Overrides::default()).unwrap()
    };
    assert_eq!(read("weir.yaml"), Config::default());
    assert_eq!(read("sidecar.yaml").cache.warm, [GroupVersionResource::new("", "v1", "pods")]);
    assert_eq!(read("shedding.yaml").cache.consistent_lists, ConsistentLists::Auto);
    let gateway = read("gateway.yaml");
    assert_eq!(gateway.authentication.mode, Mode::Gateway);
    assert_eq!(gateway.audit.policy.rules.last(), Some(&AuditRule::default()));
}

/// `WEIR_WRITE=1 cargo test --lib config::tests` writes it.
#[test]
fn the_example_of_every_setting_is_fresh() {
    let fresh = schema::example();
    if std::env::var_os("WEIR_WRITE").is_some() {
        std::fs::write("config/weir.yaml", &fresh).unwrap();
    }
    let text = std::fs::read_to_string("config/weir.yaml").unwrap();
    assert!(text == fresh, "config/weir.yaml is stale: see this test");
    assert!(fresh.lines().all(|line| line.len() <= 100));
}

/// No setting of a sidecar has its default here.
const EACH_SETTING: &str = r"
server:
  listeners:
    - listen: https://[::1]:7000
      certificate: { certificateFile: /tls.crt, privateKeyFile: /tls.key }
      proxyProtocol: { trustedNetworks: [10.0.0.0/8, 'fd00::1'] }
    - { listen: 'https://127.0.0.1:0', certificate: { generatedNames: [weir.local] } }
    - listen: 'unix:///run/weir: odd #name.sock'
  allowedHosts: ['yes', '10', '::1']
  shutdownDelay: 7s
  shutdownTimeout: 90m
  connectionsPerAddressMax: 7
admin: { listen: none, socket: /run/weir/admin.sock, detail: none }
upstream:
  kubeconfig: 'true'
  endpoints: { static: ['https://[::1]:6443/prefix'], dns: 'no:443', endpointSlice: true }
  http2: false
cache:
  include: [pods, apps/*]
  exclude: ['*/leases', secrets]
  warm: [apps/v1/deployments]
  resourceBytesMax: 3Mi
  totalBytesMax: 5Mi
  onRelist: endStreams
  forwardBudget: 3
  maxStaleness: 90s
  consistentLists: auto
  verify: enforce
  dropManagedFields: [exporter/*]
flowControl:
  mode: enforce
  seatsPerServer: 200
  adaptive: observe
  rules:
    - name: one
      match:
        - subjects:
            - { kind: User, user: { name: jane } }
            - { kind: Group, group: { name: '*' } }
            - { kind: ServiceAccount, serviceAccount: { namespace: a, name: '*' } }
          resourceRules:
            - { verbs: [list], apiGroups: [''], resources: [pods], namespaces: [a], clusterScope: true }
          nonResourceRules: [{ verbs: [get], nonResourceURLs: [/metrics] }]
      userAgents: [kubectl/*]
      mode: observe
      scope: upstream
      action: deny
      limits: { requestsPerSecond: 5, burst: 20, bytesPerSecond: 1Mi, watches: 0, unpagedLists: forbid }
      distinguisher: ByNamespace
shadow: { mode: compare, cpuShare: 3% }
tracing: { endpoint: 'https://collector/v1/traces', caFile: ca.pem, samplingRatePerMillion: 7 }
logging: { format: json, filter: weir=debug, slowRequest: 1.5s }
";

/// No setting of a gateway has its default here.
const EACH_OF_A_GATEWAY: &str = r"
authentication:
  mode: gateway
  clientCAFile: /ca
  requestHeader: { clientCAFile: /front-proxy-ca, allowedNames: [aggregator] }
  anonymous: authorize
  tokens: { audiences: ['https://kubernetes.default.svc'], ttl: 0 }
  frontProxy: { certificateFile: /c, privateKeyFile: /k }
authorization:
  allowTTL: 1s
  watchRecheck: never
  watchReviewsPerSecond: 7
  staleDecisionGrace: 24h
  rbac: { enabled: true, checkOneIn: 7 }
audit:
  output: /var/log/weir/audit.log
  buffer: dropping
  policy:
    rules:
      - level: None
        users: [system:kube-proxy]
        userGroups: [system:nodes]
        verbs: [watch]
        namespaces: ['', kube-system]
        resources: [{ group: '', resources: [pods, '*/status'], resourceNames: [a] }]
      - { level: Metadata, nonResourceURLs: ['*', '/openapi/*'] }
";

#[test]
fn a_printed_configuration_parses_to_itself() {
    for body in ["", EACH_SETTING, "authentication: { mode: gateway }\n", EACH_OF_A_GATEWAY] {
        let config = resolve(body).unwrap();
        let yaml = config.to_yaml();
        let file = ConfigFile::parse("printed", &yaml).unwrap();
        assert_eq!(Config::resolve(file, Overrides::default()).unwrap(), config, "{yaml}");
    }
}

/// Each setting that stands in no list is read to another value than its default, and printed.
#[test]
fn each_setting_is_read_and_printed() {
    let defaults = Config::default().flattened();
    let printed = [EACH_SETTING, EACH_OF_A_GATEWAY].map(|body| resolve(body).unwrap().flattened());
    // It excludes frontProxy.
    let not_here = "authentication.impersonate";
    let lists = ["server.listeners.", "audit.policy.rules.", "flowControl.rules."];
    for setting in settings() {
        let path = setting.path;
        let is_in_list = lists.iter().any(|list| path.starts_with(list));
        let is_printed = printed.iter().any(|printed| printed.contains_key(&path));
        if is_in_list || path == not_here || (setting.is_section && !is_printed) {
            continue;
        }
        let mut values = printed.iter().filter_map(|printed| printed.get(&path));
        assert!(values.any(|value| defaults.get(&path) != Some(value)), "{path}");
    }
}

#[test]
fn syntax_errors_have_line_and_column() {
    for (body, place, part) in [
        ("cache: [\n", "weir.yaml:3:8: ", "bracket"),
        ("logging: {}\nlogging: {}\n", "weir.yaml:4:1: ", "logging"),
    ] {
        let error = parse(body).unwrap_err().to_string();
        assert!(error.starts_with(place) && error.contains(part), "{body}: {error}");
        assert!(!error.contains('\n'), "{error}");
    }
}

/// Returns each problem with its place.
fn problems(body: &str) -> Vec<String> {
    let Problems(problems) = resolve(body).unwrap_err();
    problems.iter().map(Problem::to_string).collect()
}

fn paths(body: &str) -> Vec<String> {
    let Problems(problems) = resolve(body).unwrap_err();
    problems.into_iter().map(|problem| problem.path).collect()
}

#[test]
fn all_problems_are_found_with_their_places() {
    let body = "cache:\n  forwardBudgit: 1\n  maxStaleness: x\n  warm: v1/pods\n  http: {}\nserver: { listeners: [ { listen: \"https://127.0.0.1:1\", cert: x } ] }\nadmin: { readyWhenAway: 5, listen: nowhere }\nupstream: { http2: 5 }\nlogging: { format: xml }\nauthentication: { mode: open }\n";
    let expected = [
        "4:3: cache.forwardBudgit: there is no such field; did you mean forwardBudget?",
        "5:17: cache.maxStaleness: expected a duration such as 30s, 5m or 1h30m, not \"x\"; or never",
        "6:9: cache.warm: must be a list",
        "7:3: cache.http: there is no such field; there are ",
        "8:57: server.listeners[0].cert: there is no such field; there are certificate, ",
        "9:10: admin.readyWhenAway: is gone: Weir stays ready while a cache can answer",
        "9:36: admin.listen: expected an IP address and port",
        "10:20: upstream.http2: must be true or false",
        "11:20: logging.format: expected text, json or kubernetes, not \"xml\"",
        "12:25: authentication.mode: expected sidecar or gateway, not \"open\"",
    ];
    let problems = problems(body);
    assert_eq!(problems.len(), expected.len(), "{problems:#?}");
    for (problem, expected) in problems.iter().zip(expected) {
        assert!(problem.starts_with(expected), "{problem}\n{expected}");
    }
}

#[test]
fn no_value_and_no_strange_name_is_repeated() {
    let problems =
        problems("admin: [ SECRET ]\n\"SECRET token\": SECRET\ncache: { forwardBudget: SECRET }\n");
    assert_eq!(problems.len(), 3);
    assert!(!problems.concat().contains("SECRET"), "{problems:?}");
}

/// A text is taken as it is written, and a number is not a text.
#[test]
fn a_number_is_no_text() {
    let problems = problems("upstream: { kubeconfig: 1.10 }\n");
    assert_eq!(
        problems,
        ["3:25: upstream.kubeconfig: must be a text; put it into quotation marks"]
    );
    assert!(
        resolve("cache: { totalBytesMax: 3221225472 }\nserver: { shutdownDelay: 0 }\n").is_ok()
    );
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
    assert_eq!(resolve("cache:\n  include:\n  maxStaleness:\n").unwrap(), Config::default());
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
    - listen: http://127.0.0.1:8002
      certificate: { generatedNames: [a] }
    - listen: http://127.0.0.1:8001
    - listen: https://127.0.0.1:1
      certificate: { certificateFile: /a }
    - listen: http://127.0.0.1:8001
    - certificate: {}
  allowedHosts: [example.com:80]
  shutdownTimeout: 0s
  shutdownDelay: 11m
  connectionsPerAddressMax: 0
admin: { listen: nowhere }
upstream: { endpoints: { static: [10.0.0.1], dns: 10.0.0.1 } }
cache:
  include: [pods, apps/v1/deployments]
  warm: [v1/pods, v1/events, v1/nodes, pods]
  totalBytesMax: 1Mi
  resourceBytesMax: 2Mi
  forwardBudget: 0
  maxStaleness: 10ms
  consistentLists: never
logging: { format: xml, filter: 'a=b=c' }
";
    let expected = [
        "server.listeners[0].listen",
        "server.listeners[1].certificate.generatedNames[0]",
        "server.listeners[2].certificate",
        "server.listeners[4].certificate.privateKeyFile",
        "server.listeners[6].listen",
        "server.allowedHosts[0]",
        "server.shutdownTimeout",
        "server.shutdownDelay",
        "server.connectionsPerAddressMax",
        "admin.listen",
        "upstream.endpoints.static[0]",
        "upstream.endpoints.dns",
        "cache.include[1]",
        "cache.warm[3]",
        "cache.resourceBytesMax",
        "cache.forwardBudget",
        "cache.maxStaleness",
        "cache.consistentLists",
        "logging.format",
        "logging.filter",
    ];
    assert_eq!(paths(body), expected);
}

#[test]
fn settings_that_contradict_one_another_are_refused() {
    for (body, expected) in [
        (
            "cache: { include: [pods], warm: [v1/pods, v1/events, v1/nodes] }",
            vec!["cache.warm[1]", "cache.warm[2]"],
        ),
        (
            "server: { listeners: [{ listen: 'http://127.0.0.1:1' }, { listen: 'http://127.0.0.1:1' }] }",
            vec!["server.listeners[1].listen"],
        ),
        ("admin: { listen: 127.0.0.1:6440 }", vec!["admin.listen"]),
        ("server: { listeners: [] }", vec!["server.listeners"]),
        (
            "flowControl: { rules: [{ name: a, action: deny }, { name: a, action: deny }] }",
            vec!["flowControl.rules[1].name"],
        ),
    ] {
        assert_eq!(paths(&format!("{body}\n")), expected);
    }
}

/// The parts of one budget follow from it.
#[test]
fn budgets_adapt_to_the_configured_ones() {
    let small = resolve("cache: { totalBytesMax: 1Mi }\n").unwrap().cache;
    assert_eq!((small.resource_bytes_max, small.history_bytes_max), (1 << 20, 1 << 16));
    assert_eq!(small.gzip_bytes_max, 1 << 16);
    let large = resolve("cache: { resourceBytesMax: 8Gi }\n").unwrap().cache;
    assert_eq!((large.total_bytes_max, large.history_bytes_max), (8 << 30, 512 << 20));
    let tiny = resolve("cache: { totalBytesMax: 1 }\n").unwrap().cache;
    assert_eq!((tiny.history_bytes_max, tiny.gzip_bytes_max), (1, 1));
}

#[test]
fn limits_of_a_user_follow_from_those_of_an_address() {
    let server = resolve("server: { connectionsPerAddressMax: 10 }\n").unwrap().server;
    assert_eq!((server.connections_per_user_max, server.watches_per_user_max), (80, 320));
    let defaults = ServerConfig::default();
    let limits = (defaults.connections_per_user_max, defaults.watches_per_user_max);
    assert_eq!(limits, (16_384, 65_536));
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
    assert_eq!(config.admin.listen, None);
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

#[test]
fn a_password_in_an_address_is_not_repeated() {
    for address in ["https://me:hunter2@host:6443", "https://me:hunter2@host:x", "me:hunter2@host"]
    {
        let body = format!("upstream: {{endpoints: {{static: ['{address}']}}}}\n");
        let problems = resolve(&body).unwrap_err().to_string();
        assert!(problems.contains(" upstream.endpoints.static[0]: "), "{problems}");
        assert!(!problems.contains("hunter2"), "{problems}");
    }
}

#[test]
fn static_endpoints_are_distinct_and_few() {
    let body = "upstream: {endpoints: {static: ['https://a', 'https://b', 'https://a/']}}\n";
    let problems = resolve(body).unwrap_err().to_string();
    assert!(
        problems.ends_with(" upstream.endpoints.static[2]: https://a/ is listed twice"),
        "{problems}"
    );
    let urls: Vec<_> = (0..33).map(|index| format!("'https://{index}.example'")).collect();
    let body = format!("upstream: {{endpoints: {{static: [{}]}}}}\n", urls.join(", "));
    let problems = resolve(&body).unwrap_err().to_string();
    let message = " upstream.endpoints.static: at most 32 API servers are supported";
    assert!(problems.ends_with(message), "{problems}");
}

/// A kubeconfig given by mistake has tokens on lines that do not parse.
#[test]
fn a_mistake_is_named_by_its_field_and_never_by_its_value() {
    let text =
        "apiVersion: weir.dev/v1alpha1\nkind: WeirConfiguration\nserver:\n  token: [s3cret-token\n";
    let message = ConfigFile::parse("x.yaml", text).unwrap_err().to_string();
    assert!(message.starts_with("x.yaml:"), "{message}");
    assert!(!message.contains("s3cret"), "{message}");
}

#[test]
fn seats_leave_places_on_the_connections() {
    let seats = |yaml: &str| resolve(yaml).map(|config| config.flow_control.seats_per_server);
    let http1 = "upstream: { http2: false }\n";
    assert_eq!(seats(http1).unwrap(), None, "they are learned");
    let most = seats(&format!("{http1}flowControl: {{ seatsPerServer: 204 }}\n")).unwrap();
    assert_eq!(most, Some(204));
    let problems = seats(&format!("{http1}flowControl: {{ seatsPerServer: 205 }}\n")).unwrap_err();
    assert!(problems.to_string().contains("upstream.http2"), "{problems}");
    assert_eq!(seats("flowControl: { seatsPerServer: 1150 }\n").unwrap(), Some(1150));
    assert!(seats("flowControl: { seatsPerServer: 1151 }\n").is_err());
}

#[test]
fn managed_fields_are_dropped_for_named_clients() {
    let with_agents =
        |agent: &str| resolve(&format!("cache: {{ dropManagedFields: [{agent}] }}\n"));
    let cache = with_agents("a/*, b/1").unwrap().cache;
    assert!(cache.drops_managed_fields("a/2 (linux)") && cache.drops_managed_fields("b/1"));
    assert!(!cache.drops_managed_fields("b/2") && !cache.drops_managed_fields(""));
    for (agent, problem) in [("'*'", "may not name all clients"), ("'a b'", "\"a b\" has a space")]
    {
        let problems = with_agents(agent).unwrap_err().to_string();
        assert!(problems.contains(&format!("cache.dropManagedFields[0]: {problem}")), "{problems}");
    }
}
