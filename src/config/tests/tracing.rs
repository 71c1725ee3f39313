//! The section of tracing: what is accepted, what is refused and why, what is warned of.

use super::resolve;

const ENDPOINT: &str = "endpoint: 'http://collector:4318/v1/traces'";

/// Returns the problems of a section.
fn problems(section: &str) -> Vec<String> {
    let resolved = resolve(&format!("tracing: {{ {section} }}\n"));
    let list = resolved.err().map_or_else(Vec::new, |problems| problems.0);
    list.into_iter().map(|problem| format!("{}: {}", problem.path, problem.message)).collect()
}

fn warnings(section: &str) -> Vec<String> {
    let config = resolve(&format!("tracing: {{ {section} }}\n")).unwrap();
    let list = config.warnings(None).map_or_else(Vec::new, |problems| problems.0);
    list.into_iter().map(|problem| format!("{}: {}", problem.path, problem.message)).collect()
}

#[test]
fn a_ca_and_an_https_endpoint_need_each_other() {
    for (section, problem) in [
        ("caFile: ca.pem".to_owned(), "tracing.caFile: needs tracing.endpoint"),
        (format!("{ENDPOINT}, caFile: ca.pem"), "tracing.caFile: is for https:// endpoints"),
        (
            "endpoint: 'https://collector/v1/traces'".to_owned(),
            "tracing.caFile: is missing: with https:// it names the CA of the collector",
        ),
    ] {
        assert_eq!(problems(&section), [problem]);
    }
    // One mistake is one problem.
    let [problem] = &problems("endpoint: 'collector:4317', caFile: ca.pem")[..] else { panic!() };
    assert!(problem.starts_with("tracing.endpoint: is neither http:// nor https://"), "{problem}");
}

#[test]
fn a_rate_is_at_most_a_million() {
    let problem = "tracing.samplingRatePerMillion: must be between 0 and 1000000";
    assert_eq!(problems("samplingRatePerMillion: 1000001"), [problem]);
}

#[test]
fn what_does_nothing_is_warned_of() {
    assert_eq!(warnings(&format!("{ENDPOINT}, samplingRatePerMillion: 1")), [""; 0]);
    let warned = warnings("samplingRatePerMillion: 1");
    assert_eq!(warned, ["tracing.samplingRatePerMillion: does nothing without tracing.endpoint"]);
    let warned = warnings("endpoint: 'http://collector:4317/v1/traces'");
    assert!(
        warned[0].starts_with("tracing.endpoint: has the port of OTLP over gRPC"),
        "{warned:?}"
    );
}
