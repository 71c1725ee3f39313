//! Why requests are not answered from a cache: each reason, how often, what it means, and what
//! would change it.

mod explanations;

use serde_json::{Map, Value};

use crate::admin::api::json::{items, link, number, object};
use crate::admin::api::moment::Moment;
use crate::admin::api::reasons::explanations::{Explanation, explain};
use crate::admin::totals::Totals;
use crate::cache::refusal::Refusal;

/// Returns the content of `/api/reasons`, the most frequent first.
pub(super) fn content(moment: &Moment) -> Map<String, Value> {
    let [short, long] = &moment.rates;
    let mut reasons: Vec<_> = moment.totals.reasons.iter().collect();
    reasons.retain(|([status, _], _)| &**status != "hit");
    reasons.sort_by(|(one, one_count), (other, other_count)| {
        count_of(long, other).total_cmp(&count_of(long, one)).then(other_count.total_cmp(one_count))
    });
    let requests = long.requests.max(f64::MIN_POSITIVE);
    let describe = |(key, count): (&[Box<str>; 2], &f64)| {
        let [status, reason] = key;
        let explanation = explain(status, reason);
        object([
            ("cacheStatus", (&**status).into()),
            ("reason", (&**reason).into()),
            ("total", number(*count)),
            ("perSecond", number(count_of(short, key))),
            ("perSecondOfMinute", number(count_of(long, key))),
            ("shareOfRequests", number(count_of(long, key) / requests)),
            ("meaning", explanation.meaning.into()),
            ("change", explanation.change.into()),
            ("link", link(page(explanation))),
        ])
    };
    items(reasons.into_iter().map(describe).collect())
}

/// Returns why a cache refuses requests, and the page of the documentation about it.
pub(super) fn describe_refusal(refusal: Refusal) -> (String, &'static str) {
    let explanation = explain("forward", refusal.as_str());
    (explanation.meaning.trim_end_matches('.').to_owned(), page(explanation))
}

fn count_of(totals: &Totals, key: &[Box<str>; 2]) -> f64 {
    totals.reasons.get(key).copied().unwrap_or(0.0)
}

/// Returns the page of the documentation about a reason: a runbook, or the reference of all.
fn page(explanation: &Explanation) -> &'static str {
    if explanation.page.is_empty() { "reference/headers.md#reasons" } else { explanation.page }
}

#[cfg(test)]
mod tests;
