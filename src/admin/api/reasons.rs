//! Why requests are not answered from a cache: each reason, how often, what it means, and what
//! would change it.

use serde_json::{Map, Value};

use crate::admin::api::json::{items, link, number, object};
use crate::admin::api::moment::Moment;
use crate::admin::totals::Totals;

/// Returns the content of `/api/reasons`, the most frequent first.
pub(super) fn content(moment: &Moment) -> Map<String, Value> {
    let [short, long] = &moment.rates;
    let mut reasons: Vec<_> = moment.totals.reasons.iter().collect();
    reasons.retain(|([status, _], _)| &**status != "hit");
    reasons.sort_by(|(one, one_count), (other, other_count)| {
        of(long, other).total_cmp(&of(long, one)).then(other_count.total_cmp(one_count))
    });
    let all = long.requests.max(f64::MIN_POSITIVE);
    let describe = |(key, count): (&[Box<str>; 2], &f64)| {
        let [status, reason] = key;
        let Explanation { meaning, change } = explain(reason);
        object([
            ("cacheStatus", (&**status).into()),
            ("reason", (&**reason).into()),
            ("total", number(*count)),
            ("perSecond", number(of(short, key))),
            ("perSecondOfMinute", number(of(long, key))),
            ("shareOfRequests", number(of(long, key) / all)),
            ("meaning", meaning.into()),
            ("change", change.into()),
            ("link", link(page(reason))),
        ])
    };
    items(reasons.into_iter().map(describe).collect())
}

fn of(totals: &Totals, key: &[Box<str>; 2]) -> f64 {
    totals.reasons.get(key).copied().unwrap_or(0.0)
}

/// Returns the page of the documentation that says what to do about a reason: a runbook, or the
/// reference of all reasons.
fn page(reason: &str) -> &'static str {
    match reason {
        "authorization" | "identity" => "runbooks/WeirReviewsFailing.md",
        "forbidden" => "runbooks/WeirMissingRights.md",
        "not-fresh" | "unproved" => "runbooks/WeirCacheNotFollowing.md",
        "over-budget" => "runbooks/WeirCacheOverBudget.md",
        "overload" => "runbooks/WeirOverloaded.md",
        _ => "reference/headers.md#reasons",
    }
}

/// The meaning of a reason, and a way to avoid it; empty if there is none.
#[derive(Debug, PartialEq, Eq)]
struct Explanation {
    meaning: &'static str,
    change: &'static str,
}

#[expect(clippy::too_many_lines, reason = "a table")]
fn explain(reason: &str) -> Explanation {
    let (meaning, change) = match reason {
        "bypass" => ("The client sent X-Weir-Cache: bypass.", "Remove the header."),
        "shadow" => ("Weir runs in shadow mode.", "End it: shadow.mode."),
        "write" => ("The request is not a read.", ""),
        "non-resource" => ("The path is not a resource's.", ""),
        "subresource" => ("The path is a subresource's, such as logs or status.", ""),
        "path" => ("The path is ambiguous, or does not fit the scope of the resource.", ""),
        "request" => (
            "A HEAD, or a request with a body, a byte range, a condition or a parameter that Weir does not handle.",
            "Leave those out.",
        ),
        "upgrade" => ("The request asks for another protocol, such as exec or port-forward.", ""),
        "impersonation" => ("The client acts as another user.", ""),
        "options" => ("The API server refuses the options, or has its own answer to them.", ""),
        "consistent" => (
            "A GET or list without a resourceVersion asks for the latest state, which only the API server proves.",
            "Clients: resourceVersion \"0\", or an informer. Lists here: cache.consistentLists: auto.",
        ),
        "unproved" => (
            "A list without a resourceVersion, for which no proof of freshness came in time.",
            "Look at the caches and the latency of the upstream; server.freshnessTimeout.",
        ),
        "exact" => (
            "The state at this exact resourceVersion is no longer in the history.",
            "Raise cache.historyBytesMax, or list at the latest state.",
        ),
        "continue" => (
            "The state of the next page is no longer in the history.",
            "Raise cache.historyBytesMax, or read pages faster.",
        ),
        "token" => {
            ("The continue token is not one that Weir or the API server's cache writes.", "")
        }
        "latest" => {
            ("A list of a single object with a limit, which the API server reads from etcd.", "")
        }
        "form" => (
            "Only the API server writes this form: Table (kubectl get), YAML, CBOR.",
            "kubectl: -o json, or -o name.",
        ),
        "selector" => {
            ("The API server has its own answer to this selector, or it is very long.", "")
        }
        "not-found" => {
            ("The object does not exist, and only the API server writes this error.", "")
        }
        "before-cache" => (
            "The resourceVersion of a watch is older than the history of the cache.",
            "It ends by itself; if it does not, clients resume very late: raise cache.historyBytesMax.",
        ),
        "no-bookmark" => ("The form of the bookmark of initial events is not known yet.", ""),
        "identity" => ("Weir could not find out who the client is.", "Look at the token reviews."),
        "authorization" => {
            ("Weir could not find out what the client may do.", "Look at the access reviews.")
        }
        "excluded" => ("The configuration excludes the resource.", "cache.exclude."),
        "unknown" => ("The API server does not serve the resource.", ""),
        "aggregated" => ("An aggregated API server serves the resource.", ""),
        "not-watchable" => ("The resource cannot be listed and watched.", ""),
        "forbidden" => (
            "Weir's own identity may not list the resource.",
            "Grant it get, list and watch, or exclude the resource.",
        ),
        "unreadable" => ("The objects of the resource cannot be parsed.", "Look at the log."),
        "over-budget" => (
            "The cache would exceed a byte budget.",
            "Raise cache.resourceBytesMax or cache.totalBytesMax, or exclude the resource.",
        ),
        "not-ready" => (
            "The cache was not filled in time.",
            "cache.warm fills it before clients ask; server.warmupTimeout.",
        ),
        "not-fresh" => (
            "The cache was not proved to be as fresh as requested in time.",
            "Look at the lag of the cache; server.freshnessTimeout.",
        ),
        "quarantined" => (
            "Etcd has proved the cache wrong, and its successor is not checked yet.",
            "Report it as a bug, with the log; cache.verify.",
        ),
        "stopping" => ("Weir stops.", ""),
        "rule" => ("A rule of the operators limits the request.", "flowControl.rules."),
        "overload" => ("Weir itself is overloaded.", "Give it more memory or CPU."),
        _ => ("", ""),
    };
    Explanation { meaning, change }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::admin::api::json::DOCUMENTATION;

    #[test]
    fn the_usual_reasons_to_forward_are_explained() {
        for reason in [
            "bypass",
            "consistent",
            "exact",
            "form",
            "not-found",
            "over-budget",
            "not-watchable",
            "not-fresh",
            "non-resource",
            "subresource",
            "before-cache",
            "no-bookmark",
            "authorization",
            "unproved",
            "quarantined",
        ] {
            assert!(explain(reason).meaning.ends_with('.'), "{reason:?}");
        }
        assert_eq!(explain("x").meaning, "");
    }

    #[test]
    fn the_pages_exist_and_their_address_is_that_of_the_rules() {
        let root = env!("CARGO_MANIFEST_DIR");
        for reason in ["authorization", "forbidden", "unproved", "over-budget", "overload", "x"] {
            let page = page(reason).split('#').next().unwrap();
            assert!(std::path::Path::new(&format!("{root}/docs/{page}")).exists(), "{page}");
        }
        let rules = std::fs::read_to_string(format!("{root}/deploy/prometheus/rules.yaml"));
        assert!(rules.unwrap().contains(&format!("{DOCUMENTATION}runbooks/WeirDown.md")));
    }
}
