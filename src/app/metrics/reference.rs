//! The reference page of all metrics, which is generated from the registered families.

use std::fmt::Write as _;
use std::fs;
use std::path::Path;
use std::sync::Arc;

use super::*;
use crate::admin::health::Checks;
use crate::admin::ready_metric;
use crate::app::certificates::register_expiries;
use crate::telemetry::metrics::catalogue::{Family, families};

#[test]
fn the_reference_of_metrics_is_fresh() {
    let page = page(&every_family());
    let file = Path::new(env!("CARGO_MANIFEST_DIR")).join(PATH);
    if std::env::var_os("WEIR_WRITE_REFERENCE").is_some() {
        fs::write(&file, &page).unwrap();
    }
    let committed = fs::read_to_string(&file).unwrap_or_default();
    assert!(committed == page, "{PATH} is not fresh; write it again with {COMMAND}");
}

/// Returns all families of a Weir.
fn every_family() -> Vec<Family> {
    drop(families());
    let metrics = Metrics::new().unwrap();
    register_expiries(&metrics.registry, Vec::new()).unwrap();
    ready_metric::register_ready(&metrics.registry, Arc::new(Checks::new())).unwrap();
    // The page describes those of `/metrics/slis` in words.
    families().into_iter().filter(|family| !family.name.starts_with("kubernetes_")).collect()
}

fn page(families: &[Family]) -> String {
    let mut page = String::from(HEAD);
    for Family { name, kind, labels, help } in families {
        let (labels, help) = (label_cell(labels), help.replace('|', "\\|"));
        writeln!(page, "| `{name}` | {kind} | {labels} | {help} |").unwrap();
    }
    page.push_str(LABELS_HEAD);
    for (label, bound, values) in LABELS {
        let is_used = families.iter().any(|family| family.labels.iter().any(|used| used == label));
        assert!(is_used, "no metric has the label {label}");
        if *values != FIXED_WORDS {
            writeln!(page, "| `{label}` | {bound} | {values} |").unwrap();
        }
    }
    page
}

/// Returns the labels of a family, those of a resource or a cache as one word.
fn label_cell(labels: &[String]) -> String {
    let has = |label: &str| labels.iter().any(|name| name == label);
    let (together, word) = if has("representation") {
        (&OF_RESOURCE[..], "*cache*")
    } else if has("group") {
        (&OF_RESOURCE[..3], "*resource*")
    } else {
        (&OF_RESOURCE[..0], "")
    };
    let others = labels.iter().filter(|label| !together.contains(&label.as_str()));
    let cells: Vec<_> = std::iter::once(word.to_owned())
        .filter(|word| !word.is_empty())
        .chain(others.map(|label| format!("`{label}`")))
        .collect();
    cells.join(", ")
}

/// Returns the most series that a family can have.
pub(super) fn bound(family: &str, labels: &[String]) -> String {
    if let Some((_, bound)) = EXCEPTIONS.iter().find(|(name, _)| *name == family) {
        return (*bound).to_owned();
    }
    let has = |label: &str| labels.iter().any(|name| name == label);
    let mut factors = Vec::new();
    if has("representation") {
        factors.push("caches");
    } else if has("group") {
        factors.push("resources");
    }
    for label in labels.iter().filter(|label| !OF_RESOURCE.contains(&label.as_str())) {
        let row = LABELS.iter().find(|(name, ..)| name == label);
        let (_, bound, _) = row.unwrap_or_else(|| panic!("{family}: no row for {label}"));
        factors.push(bound);
    }
    if factors.is_empty() { "1".to_owned() } else { factors.join(" × ") }
}

const PATH: &str = "docs/reference/metrics.md";
const COMMAND: &str = "WEIR_WRITE_REFERENCE=1 cargo test --lib reference_of_metrics";
const HEAD: &str = "\
# Metrics

This page is generated from the code; `WEIR_WRITE_REFERENCE=1 cargo test --lib reference_of_metrics`
writes it again. [The metrics to look at first](first-metrics.md).

`/metrics` has all of these, and those of the process. `/metrics/slis` has `kubernetes_healthcheck` and
`kubernetes_healthchecks_total`, the results of the health checks that were asked for, as
Kubernetes' own components show them. Both are compressed for clients that accept gzip.

*resource* stands for the labels `group`, `version` and `resource`, of which there are at most 4,096 and one for all others, *cache* for
these and `namespace` and `representation`, at most 2,048. The number of a metric's series is at most the product of [its
labels](#labels); a histogram has one more for each bucket.

| metric | type | labels | meaning |
|---|---|---|---|
";
const LABELS_HEAD: &str = "
## Labels

No label has a value that a client chooses freely. A namespace is a value only while it has a cache of its own. Labels that are not
here have at most 20 fixed words.

| label | at most | values |
|---|---|---|
";

/// The values of labels that need no row of their own.
const FIXED_WORDS: &str = "fixed words of the metric";

/// The labels that name a resource or a cache.
const OF_RESOURCE: [&str; 5] = ["group", "version", "resource", "namespace", "representation"];

/// Labels that mean something else in one family.
const EXCEPTIONS: [(&str, &str); 19] = [
    ("weir_access_reviews_total", "9"),
    ("weir_reflector_state", "caches × 2"),
    ("weir_cache_checks_total", "caches × 4 × 7"),
    ("weir_config_reloads_total", "2"),
    ("weir_connections_refused_total", "6"),
    ("weir_overload_refused_requests_total", "4 × 2"),
    ("weir_tls_handshakes_total", "3"),
    ("weir_upstream_requests_total", "3 × 3 × 501"),
    ("weir_build_info", "1"),
    ("weir_tracing_spans_failed_total", "4"),
    ("weir_upstream_info", "8"),
    ("weir_config_info", "1"),
    ("weir_overload_used_ratio", "3"),
    ("weir_flowcontrol_invalid_objects", "2"),
    ("weir_rbac_objects", "4"),
    ("weir_rbac_unreadable_objects", "4"),
    ("weir_rbac_current", "4"),
    ("weir_authentication_ca_state", "2 × 3"),
    ("weir_authentication_ca_failures_total", "2"),
];

/// The labels, how many values each has at most, and which.
const LABELS: &[(&str, &str, &str)] = &[
    ("arch", "1", "the processor's architecture"),
    (
        "budget",
        "3",
        "the limit: of one cache or of all, in bytes or in number, or a forward budget",
    ),
    ("by", "2", "`measured`, `acted-on`"),
    ("ca", "2", "the client CA, or that of front proxies"),
    ("cache_status", "3", "`hit` (a cache), `forward` (the API server), `error` (Weir's own)"),
    ("cause", "20", FIXED_WORDS),
    ("check", "8", "the checks of `/readyz`, or those of a cache"),
    (
        "code",
        "64",
        "HTTP status codes; `other` for those that no standard has, in metrics of the API server only above 599",
    ),
    ("credential", "8", "kinds of credentials"),
    ("decision", "2", "`allow`, `deny`"),
    ("effect", "8", "what a rule did"),
    ("enforced", "2", "`true`, or `false` for what is only counted"),
    ("flow_schema", "schemas", "FlowSchemas of the cluster"),
    ("group", "", "the resource's API group; empty for the core"),
    ("hash", "1", "the beginning of a SHA-256"),
    ("identity", "3", "`own` (Weir), `bare` (the client's credential), `front-proxy`"),
    ("index", "4", "`name`, `field`, `namespace`, `none`"),
    ("kind", "17", "the kind of event, or of refused request"),
    ("limit", "4", FIXED_WORDS),
    ("listener", "3", "`tls`, `plain`, `unix`"),
    ("namespace", "", "the namespace of a cache; empty for the whole cluster"),
    ("of", "2", "`level`, `server`"),
    ("os", "1", "the operating system"),
    ("outcome", "5", FIXED_WORDS),
    ("permission", "20", "permissions that the configuration needs"),
    ("place", "2", "`cache`, `review`"),
    ("priority_level", "levels", "priority levels of the cluster"),
    ("profile", "1", "the profile of the build"),
    ("protocol", "2", "`http1`, `http2`"),
    ("purpose", "4", "`forward`, `cache`, `review`, `other`"),
    (
        "reason",
        "60",
        "why a request was forwarded or refused ([headers](headers.md)); empty for a hit",
    ),
    ("representation", "", "`json`, `protobuf`"),
    ("resource", "", "the resource's plural name; `other` for those that discovery does not know"),
    ("result", "13", FIXED_WORDS),
    ("rule", "rules", "names of `flowControl.rules`, or of the rules of `weir doctor`"),
    ("scope", "4", "`resource` (one object), `namespace`, `cluster`; empty without a resource"),
    ("server", "servers", "the API server's address"),
    ("source", "4", "where a decision or a configuration comes from"),
    ("stage", "2", "`applied`, `written`"),
    ("start", "5", "`state`, `consistent-state`, `after`, `now`, `consistent-now`"),
    ("state", "6", FIXED_WORDS),
    ("step", "5", "the step that proved a state fresh"),
    ("traffic_class", "3", "`request`, `stream`, `upgrade`"),
    ("type", "4", "`upsert`, `delete`, `bookmark`, `error`"),
    ("use", "4", "`serving`, `client`, `front-proxy`, `ca`"),
    (
        "verb",
        "12",
        "the verbs of Kubernetes, `connect` (exec, attach, port-forward and proxy), `log` (reads of logs) and `other`",
    ),
    ("version", "", "the resource's API version; that of Weir, or of an API server"),
    ("weight", "3", "`info`, `warning`, `critical`"),
];
