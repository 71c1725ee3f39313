//! The findings of the client doctor, with the fix in the words of each client library.

use serde_json::{Map, Value};

use crate::admin::api::json::{items, number, object};
use crate::flow::doctor::{Finding, Library};

/// Returns the content of `/api/findings`: at most `limit` of them, the weightiest first.
pub(super) fn content(findings: &[Finding], limit: Option<usize>) -> Map<String, Value> {
    let findings = findings.iter().take(limit.unwrap_or(FINDINGS_DEFAULT));
    items(findings.map(describe).collect())
}

fn describe(finding: &Finding) -> Value {
    let Finding { rule, weight, user, agent, resource, evidence, .. } = finding;
    let named: Vec<_> = [user, agent].into_iter().filter(|name| !name.is_empty()).collect();
    let client = match *named {
        [] => "(no user agent)".to_owned(),
        [agent] => agent.to_string(),
        _ => format!("{user}, {agent}"),
    };
    let fix = |library: Library| format!("{}: {}", library.as_str(), rule.fix(library));
    let fixes =
        Library::ALL.map(|library| (library.as_str().to_owned(), Value::from(rule.fix(library))));
    let cost = Finding::cost_text(finding.upstream_cores, finding.cores, finding.bytes_per_second);
    let fix: Vec<_> = Library::guess(agent).iter().map(|library| fix(*library)).collect();
    object([
        ("rule", rule.as_str().into()),
        ("title", rule.title().into()),
        ("weight", weight.as_str().into()),
        ("client", client.into()),
        ("user", (&**user).into()),
        ("userAgent", (&**agent).into()),
        ("resource", (&**resource).into()),
        ("evidence", evidence.as_str().into()),
        ("cost", cost.into()),
        ("upstreamCores", number(finding.upstream_cores)),
        ("cpuCores", number(finding.cores)),
        ("bytesPerSecond", number(finding.bytes_per_second)),
        ("isEstimate", true.into()),
        ("fix", fix.join(" ").into()),
        ("fixes", fixes.into_iter().collect::<Map<_, _>>().into()),
    ])
}

/// The limit keeps the list short enough to read.
const FINDINGS_DEFAULT: usize = 100;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::flow::doctor::{Rule, Weight};

    #[test]
    fn a_finding_has_the_fix_of_its_library() {
        let finding = Finding {
            rule: Rule::NoGzip,
            weight: Weight::Info,
            user: "jane".into(),
            agent: "OpenAPI-Generator/37.0.2/python".into(),
            resource: "pods".into(),
            evidence: "lists".to_owned(),
            upstream_cores: 0.024,
            cores: 0.001,
            bytes_per_second: 2e6,
        };
        let content = content(&[finding], None);
        let item = &content["items"][0];
        assert_eq!(item["client"], "jane, OpenAPI-Generator/37.0.2/python");
        assert!(item["fix"].as_str().unwrap().starts_with("Python: api_client"), "{item}");
        assert!(item["fixes"]["client-go"].as_str().unwrap().contains("DisableCompression"));
        assert_eq!(item["cost"], "about 24 mCPU on the API server, 1.0 mCPU in Weir, 2.0 MB/s");
    }
}
