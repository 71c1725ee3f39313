//! The facts of a moment that decide the verdict: the numbers, and what the caches and the doctor
//! of clients report.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use crate::admin::api::moment::Moment;
use crate::admin::api::reasons;
use crate::admin::api::verdict::{Facts, MissingCache, REWOUND_FOR};
use crate::admin::numbers::{Labels, Numbers};
use crate::api::resource::GroupVersionResource;
use crate::cache::metrics::WATCHING;
use crate::cache::refusal::Refusal;
use crate::cache::registry::{CacheDescription, Registry};
use crate::flow::doctor::{Finding, Weight};

/// Returns the facts of a moment.
pub(super) fn facts(moment: &Moment, registry: &Registry, findings: &[Finding]) -> Facts {
    let numbers = &moment.numbers;
    let [_, minute] = &moment.rates;
    let caches = registry.descriptions();
    let not_following: Vec<_> =
        caches.iter().filter_map(|cache| not_following(cache, moment)).collect();
    let mut missing = missing(moment, &registry.warm(), &caches);
    missing.retain(|cache| not_following.iter().all(|(name, _)| *name != cache.name));
    let away = registry.availability().away_since();
    Facts {
        failing: moment.failing.clone(),
        away: away.and_then(|since| moment.time.checked_sub(since.elapsed())),
        rewound: rewound(moment),
        quarantined: marked(numbers, "weir_cache_quarantined"),
        following: caches.iter().filter(|cache| cache.state == WATCHING).count(),
        not_following,
        missing,
        over_budget: marked(numbers, "weir_cache_over_budget"),
        overload_stage: numbers.sum("weir_overload_stage", &[("by", "acted-on")]) as u8,
        error_share: (minute.requests > 0.0).then(|| minute.errors / minute.requests),
        delay: minute.delays.quantile(0.99),
        critical_finding: findings
            .iter()
            .find(|finding| finding.weight == Weight::Critical)
            .map(describe),
        warnings: findings.iter().filter(|finding| finding.weight == Weight::Warning).count(),
        upstream_seconds: minute.upstream_latencies.quantile(0.5),
    }
}

/// Returns when the history was last rewound, if clients may still act on the lost one.
fn rewound(moment: &Moment) -> Option<SystemTime> {
    let at = moment.numbers.find("weir_history_last_rewind_timestamp_seconds", &[])?;
    let at = UNIX_EPOCH + Duration::try_from_secs_f64(at).ok()?;
    let ago = moment.time.duration_since(at).unwrap_or_default();
    (at > UNIX_EPOCH && ago < REWOUND_FOR).then_some(at)
}

/// Returns the names of the caches whose gauge is 1. Some of them may not run.
fn marked(numbers: &Numbers, gauge: &str) -> Vec<String> {
    let name = |labels: Labels<'_>| name(labels.get("resource"), labels.get("namespace"));
    let marked = numbers.each(gauge).filter(|(_, value)| *value > 0.0);
    let mut names: Vec<_> = marked.map(|(labels, _)| name(labels)).collect();
    names.sort_unstable();
    names.dedup();
    names
}

/// Returns a finding in a few words.
fn describe(finding: &Finding) -> String {
    let Finding { rule, user, agent, resource, .. } = finding;
    let client = [&**user, agent].into_iter().find(|name| !name.is_empty());
    let client = client.unwrap_or("a client without a user agent");
    format!("{client} {} ({resource})", rule.title())
}

/// Returns the name of a cache that has failed, and not followed the upstream for a while, with
/// the cause.
fn not_following(cache: &CacheDescription, moment: &Moment) -> Option<(String, String)> {
    let cause = recent_failure(cache, moment)?;
    matches!(cache.state, "backing-off" | "reviewing")
        .then(|| (name(&cache.resource, &cache.namespace), cause))
}

/// Returns the resources of `cache.warm` without a cache that follows, with the cause.
fn missing(
    moment: &Moment,
    warm: &[(GroupVersionResource, Option<Refusal>)],
    caches: &[CacheDescription],
) -> Vec<MissingCache> {
    let mut missing = Vec::new();
    for (gvr, refusal) in warm {
        let mut of_gvr = caches.iter().filter(|cache| {
            *cache.group == *gvr.group
                && *cache.version == *gvr.version
                && *cache.resource == *gvr.resource
                && cache.namespace.is_empty()
        });
        if of_gvr.clone().any(|cache| cache.state == WATCHING) {
            continue;
        }
        let (cause, page) = match (of_gvr.next(), refusal) {
            // Weir tries again and again.
            (_, Some(refusal)) => reasons::describe_refusal(*refusal),
            (Some(cache), None) => {
                let cause = recent_failure(cache, moment).or_else(|| lasting(cache, moment));
                let Some(cause) = cause else { continue };
                (cause, "runbooks/WeirCacheNotFollowing.md")
            }
            (None, None) if moment.at < STARTS_WITHIN => continue,
            (None, None) => ("it was not started".to_owned(), "runbooks/WeirCacheNotFollowing.md"),
        };
        missing.push(MissingCache { name: gvr.resource.to_string(), cause, page });
    }
    missing
}

/// Returns the last failure of a cache, if it is recent.
fn recent_failure(cache: &CacheDescription, moment: &Moment) -> Option<String> {
    let failure = cache.failure.as_ref()?;
    let is_recent = moment.time.duration_since(failure.at).unwrap_or_default() < FAILED_FOR;
    is_recent.then(|| failure.cause.to_string())
}

/// Returns the state of a cache that has been in it for long.
fn lasting(cache: &CacheDescription, moment: &Moment) -> Option<String> {
    let age = moment.time.duration_since(cache.since).unwrap_or_default();
    (age > STARTS_WITHIN).then(|| format!("it is {} for {} s", cache.state, age.as_secs()))
}

fn name(resource: &str, namespace: &str) -> String {
    if namespace.is_empty() { resource.to_owned() } else { format!("{resource} in {namespace}") }
}

/// A failure counts while the reflector retries, which it does every minute or more often.
const FAILED_FOR: Duration = Duration::from_secs(120);
/// The first list of a large collection takes some seconds.
const STARTS_WITHIN: Duration = Duration::from_secs(60);

#[cfg(test)]
mod tests {
    use prometheus::Registry as MetricRegistry;

    use super::*;
    use crate::admin::api::tests::{cache, moment};
    use crate::admin::totals::Totals;
    use crate::cache::metrics::CacheMetrics;
    use crate::cache::registry::LastFailure;

    fn warm(refusal: Option<Refusal>) -> [(GroupVersionResource, Option<Refusal>); 1] {
        [(GroupVersionResource::new("", "v1", "pods"), refusal)]
    }

    #[test]
    fn a_warm_cache_that_never_comes_is_named_with_its_refusal() {
        let now = moment(&MetricRegistry::new(), &Totals::default());
        assert_eq!(missing(&now, &warm(None), &[cache("pods", WATCHING)]), []);
        let forbidden = missing(&now, &warm(Some(Refusal::Forbidden)), &[]);
        assert_eq!(forbidden[0].name, "pods");
        assert!(forbidden[0].cause.contains("own identity may not list"), "{forbidden:?}");
        assert_eq!(forbidden[0].page, "runbooks/WeirMissingRights.md");
        let again = CacheDescription { since: now.time, ..cache("pods", "listing") };
        assert_eq!(missing(&now, &warm(Some(Refusal::Forbidden)), &[again]), forbidden);
        assert_eq!(missing(&now, &warm(None), &[])[0].cause, "it was not started");
        // A cache of one namespace is another one.
        let other = CacheDescription { namespace: "ns".into(), ..cache("pods", WATCHING) };
        assert_eq!(missing(&now, &warm(None), &[other]).len(), 1);
    }

    #[test]
    fn a_warm_cache_may_fill_for_a_while() {
        let now = moment(&MetricRegistry::new(), &Totals::default());
        let since = |seconds| now.time - Duration::from_secs(seconds);
        let listing = |seconds| CacheDescription {
            since: since(seconds),
            failure: None,
            ..cache("pods", "listing")
        };
        assert_eq!(missing(&now, &warm(None), &[listing(5)]), []);
        let late = missing(&now, &warm(None), &[listing(90)]);
        assert_eq!(late[0].cause, "it is listing for 90 s");
        let failure = Some(LastFailure { at: since(3), cause: "503".into() });
        let failed = CacheDescription { failure, ..listing(5) };
        assert_eq!(missing(&now, &warm(None), &[failed])[0].cause, "503");
    }

    #[test]
    fn quarantined_caches_are_named() {
        let registry = MetricRegistry::new();
        let metrics = CacheMetrics::register(&registry).unwrap();
        metrics.quarantined(["", "v1", "pods", "", "json"], true);
        metrics.quarantined(["", "v1", "pods", "", "protobuf"], true);
        metrics.over_budget(["", "v1", "secrets", "ns", "json"], true);
        let numbers = Numbers::gather(&registry);
        assert_eq!(marked(&numbers, "weir_cache_quarantined"), ["pods"]);
        assert_eq!(marked(&numbers, "weir_cache_over_budget"), ["secrets in ns"]);
    }

    #[test]
    fn a_rewind_counts_for_an_hour_however_much_happens_then() {
        let registry = MetricRegistry::new();
        let metrics = CacheMetrics::register(&registry).unwrap();
        let at = |seconds| {
            let mut now = moment(&registry, &Totals::default());
            now.time = SystemTime::now() + Duration::from_secs(seconds);
            rewound(&now)
        };
        assert_eq!(at(0), None);
        metrics.rewound();
        assert!(at(1).is_some() && at(3000).is_some());
        assert_eq!(at(3700), None);
    }
}
