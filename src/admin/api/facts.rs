//! The facts of a moment that decide the verdict: the numbers, and what the caches and the doctor
//! of clients report.

use std::time::{Duration, SystemTime};

use crate::admin::api::moment::Moment;
use crate::admin::api::reasons;
use crate::admin::api::verdict::{Facts, MissingCache, REWOUND_FOR};
use crate::api::resource::GroupVersionResource;
use crate::cache::metrics::WATCHING;
use crate::cache::refusal::Refusal;
use crate::cache::registry::{CacheDescription, Registry, Suspended};
use crate::flow::doctor::{Finding, Weight};

/// Returns the facts of a moment.
pub(super) fn facts(moment: &Moment, registry: &Registry, findings: &[Finding]) -> Facts {
    let [_, minute] = &moment.rates;
    let caches = &moment.caches;
    let Suspended { quarantined, over_budget } = registry.suspended();
    let not_following: Vec<_> =
        caches.iter().filter_map(|cache| not_following(cache, moment)).collect();
    let mut missing = missing(moment, &registry.warm(), caches);
    missing.retain(|cache| not_following.iter().all(|(name, _)| *name != cache.name));
    let away = registry.availability().away_since();
    Facts {
        failing: moment.failing.clone(),
        away: away.and_then(|since| moment.time.checked_sub(since.elapsed())),
        rewound: rewound(moment),
        quarantined: names(&quarantined),
        following: caches.iter().filter(|cache| cache.state == WATCHING).count(),
        not_following,
        missing,
        over_budget: names(&over_budget),
        overload_stage: moment.figures.overload.stage.unwrap_or(0.0) as u8,
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
    let at = moment.all_caches.last_rewind?;
    (moment.time.duration_since(at).unwrap_or_default() < REWOUND_FOR).then_some(at)
}

fn names(caches: &[(Box<str>, Box<str>)]) -> Vec<String> {
    caches.iter().map(|(resource, namespace)| name(resource, namespace)).collect()
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
    use super::*;
    use crate::admin::api::tests::{cache, moment};
    use crate::admin::figures::Figures;
    use crate::admin::totals::Totals;
    use crate::cache::registry::LastFailure;

    fn warm(refusal: Option<Refusal>) -> [(GroupVersionResource, Option<Refusal>); 1] {
        [(GroupVersionResource::new("", "v1", "pods"), refusal)]
    }

    #[test]
    fn a_warm_cache_that_never_comes_is_named_with_its_refusal() {
        let now = moment(Figures::default(), &Totals::default());
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
        let now = moment(Figures::default(), &Totals::default());
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
    fn a_rewind_counts_for_an_hour_however_much_happens_then() {
        let mut now = moment(Figures::default(), &Totals::default());
        let mut at = |seconds| {
            now.all_caches.last_rewind =
                Some(now.time).and_then(|time| time.checked_sub(Duration::from_secs(seconds)));
            rewound(&now)
        };
        assert!(at(1).is_some() && at(3000).is_some());
        assert_eq!(at(3700), None);
        now.all_caches.last_rewind = None;
        assert_eq!(rewound(&now), None);
    }
}
