//! Totals of a moment, and what was added between two moments, for a second: the rates that
//! operators see are computed here, and not by each viewer.
//!
//! Pure: the numbers and their times are arguments.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use crate::admin::figures::Figures;
use crate::cache::metrics::CacheTotals;
use crate::server::RequestCount;
use crate::telemetry::metrics::buckets::Buckets;

/// Counters of a moment; or their differences between two moments, for a second.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Totals {
    /// Requests of clients.
    pub(super) requests: f64,
    /// Those of them that caches answered.
    pub(super) hits: f64,
    /// Those of them that were forwarded.
    pub(super) forwards: f64,
    /// Those of them that Weir refused: status 4xx. The client, or a limit, is the cause.
    pub(super) refusals: f64,
    /// Those of them that failed in Weir, or could not be forwarded: status 5xx.
    pub(super) errors: f64,
    /// GETs that caches answered.
    pub(super) cached_gets: f64,
    /// Events sent to watches, and their bytes.
    pub(super) watch_events: f64,
    pub(super) watch_bytes: f64,
    /// Bytes of responses of caches to GETs and lists.
    pub(super) cached_bytes: f64,
    /// Requests to the upstream, and the bytes of its responses.
    pub(super) upstream_requests: f64,
    pub(super) upstream_bytes: f64,
    /// Those of the bytes that caches asked for, with compression.
    pub(super) reflector_bytes: f64,
    /// Events of the upstream's watches, and the bytes of their objects.
    pub(super) reflector_events: f64,
    pub(super) reflector_event_bytes: f64,
    /// Requests by cache status and reason.
    pub(super) reasons: BTreeMap<[Box<str>; 2], f64>,
    /// Cached requests and watch events by group, version and resource.
    pub(super) resources: BTreeMap<[Box<str>; 3], [f64; 2]>,
    /// How late events were written to watches.
    pub(super) delays: Buckets,
    /// How long the upstream took to answer requests that are no watches.
    pub(super) upstream_latencies: Buckets,
}

/// Totals of the last minute, to compute rates from.
#[derive(Debug, Default)]
pub(super) struct Samples {
    /// The latest is last.
    kept: VecDeque<(Duration, Arc<Totals>)>,
}

impl Totals {
    /// Adds up the figures of a moment.
    pub(super) fn from_figures(figures: &Figures, caches: &CacheTotals) -> Self {
        let Figures { server, upstream, .. } = figures;
        let mut totals = Self {
            upstream_requests: upstream.requests,
            upstream_bytes: upstream.received,
            reflector_bytes: upstream.received_by_caches,
            reflector_events: caches.events,
            reflector_event_bytes: caches.event_bytes,
            delays: caches.delays.clone(),
            upstream_latencies: upstream.latencies.clone(),
            ..Self::default()
        };
        for request in &server.requests {
            let RequestCount { verb, resource, cache_status, reason, code, count } = request;
            totals.requests += count;
            match &**cache_status {
                "hit" => {
                    totals.hits += count;
                    totals.resources.entry(resource.clone()).or_default()[0] += count;
                    if &**verb == "get" {
                        totals.cached_gets += count;
                    }
                }
                "forward" => totals.forwards += count,
                _ if code.starts_with('5') => totals.errors += count,
                _ => totals.refusals += count,
            }
            let reason = [cache_status.clone(), reason.clone()];
            *totals.reasons.entry(reason).or_default() += count;
        }
        for (resource, count) in &server.watch_events {
            totals.watch_events += count;
            totals.resources.entry(resource.clone()).or_default()[1] += count;
        }
        for ([verb, status], bytes) in &server.response_bytes {
            match (&**status, &**verb) {
                ("hit", "watch") => totals.watch_bytes += bytes,
                ("hit", _) => totals.cached_bytes += bytes,
                _ => {}
            }
        }
        totals
    }

    /// Returns what was added since `before`, for each of `seconds`. The buckets are not divided.
    pub(super) fn rates(&self, before: &Self, seconds: f64) -> Self {
        let rate = |now: f64, before: f64| (now - before).max(0.0) / seconds;
        let reasons = self.reasons.iter().map(|(reason, count)| {
            let before = before.reasons.get(reason).copied().unwrap_or_default();
            (reason.clone(), rate(*count, before))
        });
        let resources = self.resources.iter().map(|(resource, counts)| {
            let [hits, events] = before.resources.get(resource).copied().unwrap_or_default();
            let [hits_now, events_now] = *counts;
            (resource.clone(), [rate(hits_now, hits), rate(events_now, events)])
        });
        Self {
            requests: rate(self.requests, before.requests),
            hits: rate(self.hits, before.hits),
            forwards: rate(self.forwards, before.forwards),
            refusals: rate(self.refusals, before.refusals),
            errors: rate(self.errors, before.errors),
            cached_gets: rate(self.cached_gets, before.cached_gets),
            watch_events: rate(self.watch_events, before.watch_events),
            watch_bytes: rate(self.watch_bytes, before.watch_bytes),
            cached_bytes: rate(self.cached_bytes, before.cached_bytes),
            upstream_requests: rate(self.upstream_requests, before.upstream_requests),
            upstream_bytes: rate(self.upstream_bytes, before.upstream_bytes),
            reflector_bytes: rate(self.reflector_bytes, before.reflector_bytes),
            reflector_events: rate(self.reflector_events, before.reflector_events),
            reflector_event_bytes: rate(self.reflector_event_bytes, before.reflector_event_bytes),
            reasons: reasons.collect(),
            resources: resources.collect(),
            delays: self.delays.since(&before.delays),
            upstream_latencies: self.upstream_latencies.since(&before.upstream_latencies),
        }
    }

    /// Returns the part of the requests that caches answered, from 0 to 1; `None` without requests.
    pub(super) fn hit_share(&self) -> Option<f64> {
        (self.requests > 0.0).then(|| self.hits / self.requests)
    }
}

impl Samples {
    /// Adds the totals of a moment, which is not before the last one.
    pub(super) fn add(&mut self, at: Duration, totals: &Arc<Totals>) {
        while self.kept.get(1).is_some_and(|(second, _)| at.saturating_sub(*second) >= KEPT_FOR) {
            self.kept.pop_front();
        }
        if self.kept.back().is_none_or(|(last, _)| at.saturating_sub(*last) >= SPACING) {
            self.kept.push_back((at, Arc::clone(totals)));
        }
    }

    /// Returns the rates from about `length` before `at` until `at`, or since the first sample if
    /// that is later. All are 0 while there is no earlier sample.
    pub(super) fn rates(&self, at: Duration, totals: &Totals, length: Duration) -> Totals {
        let age = |sample: &&(Duration, Arc<Totals>)| at.saturating_sub(sample.0);
        let old_enough = self.kept.iter().rev().find(|sample| age(sample) >= length);
        let Some(from) = old_enough.or(self.kept.front()).filter(|sample| !age(sample).is_zero())
        else {
            return totals.rates(totals, 1.0);
        };
        totals.rates(&from.1, age(&from).as_secs_f64())
    }
}

/// The longest window of rates.
const KEPT_FOR: Duration = Duration::from_secs(60);
/// Closer samples would take memory, and a window of ten seconds needs none.
const SPACING: Duration = Duration::from_secs(4);

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn totals(requests: f64, hits: f64) -> Totals {
        let reasons = [(["hit".into(), "".into()], hits)].into();
        Totals { requests, hits, reasons, ..Totals::default() }
    }

    #[test]
    fn rates_are_those_of_the_window() {
        let mut samples = Samples::default();
        let second = Duration::from_secs;
        assert_eq!(samples.rates(second(3), &totals(9.0, 3.0), second(10)).requests, 0.0);
        for at in (0..=300).step_by(5) {
            // 100 requests a second in the last 10 s, 10 before.
            let requests = 10.0 * at as f64 + if at > 290 { 90.0 * (at - 290) as f64 } else { 0.0 };
            samples.add(second(at), &Arc::new(totals(requests, 0.0)));
        }
        let now = totals(3900.0, 0.0);
        assert_eq!(samples.rates(second(300), &now, second(10)).requests, 100.0);
        assert_eq!(samples.rates(second(300), &now, second(60)).requests, 25.0);
        assert!(samples.kept.len() <= 14, "{}", samples.kept.len());
    }

    #[test]
    fn only_a_status_of_500_and_above_is_an_error() {
        let request = |(status, code, count): (&str, &str, f64)| RequestCount {
            cache_status: status.into(),
            code: code.into(),
            count,
            ..RequestCount::default()
        };
        let requests = [
            ("error", "403", 9.0),
            ("error", "429", 5.0),
            ("error", "503", 2.0),
            ("forward", "500", 4.0),
        ];
        let mut figures = Figures::default();
        figures.server.requests = requests.map(request).into();
        let totals = Totals::from_figures(&figures, &CacheTotals::default());
        assert_eq!((totals.requests, totals.forwards), (20.0, 4.0));
        assert_eq!((totals.refusals, totals.errors), (14.0, 2.0));
    }

    proptest! {
        #[test]
        fn rates_and_shares_stay_within_bounds(
            steps in proptest::collection::vec((1_u64..30_000, 0_u32..1000, 0_u32..1000), 1..60),
        ) {
            let (mut samples, mut at) = (Samples::default(), Duration::ZERO);
            let (mut hits, mut misses) = (0.0, 0.0);
            for (wait, more_hits, more_others) in steps {
                at += Duration::from_millis(wait);
                hits += f64::from(more_hits);
                misses += f64::from(more_others);
                let now = totals(hits + misses, hits);
                for length in [10, 60] {
                    let rates = samples.rates(at, &now, Duration::from_secs(length));
                    prop_assert!(rates.requests >= 0.0 && rates.requests.is_finite());
                    prop_assert!(rates.hits <= rates.requests + 1e-6);
                    prop_assert!(rates.hit_share().is_none_or(|share| (0.0..=1.000_001).contains(&share)));
                    prop_assert!((rates.reasons.values().sum::<f64>() - rates.hits).abs() < 1e-6);
                }
                samples.add(at, &Arc::new(now));
                prop_assert!(samples.kept.len() <= 18);
            }
        }
    }
}
