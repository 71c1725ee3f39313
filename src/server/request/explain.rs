//! The explanation of a response for a client that asks for it: `X-Weir-Explain: 1`
//! (`docs/reference/headers.md`), and for the log, if slow requests are logged.
//!
//! It has the stages through which the request went, and the state of its cache. It names nothing
//! but the client's own request, and the cache only after the client was found to be allowed to
//! read it.

use std::fmt::Write as _;
use std::time::Duration;

use http::{HeaderMap, HeaderName, HeaderValue};
use parking_lot::Mutex;
use smallvec::SmallVec;
use tokio::time::Instant;

use crate::cache::handle::CacheHandle;
use crate::server::metrics::CacheStatus;

#[derive(Debug)]
pub(crate) struct Explanation {
    steps: Mutex<Steps>,
    is_asked: bool,
}

#[derive(Debug)]
struct Steps {
    last: Instant,
    stages: SmallVec<[(&'static str, Duration); STAGES_MAX]>,
    cache: Option<CacheFacts>,
}

#[derive(Debug)]
struct CacheFacts {
    resource_version: Option<u64>,
    /// For how long the cache may lack events; `None` while it follows the upstream.
    behind: Option<Duration>,
    namespaced: bool,
    form: &'static str,
}

impl Explanation {
    /// Takes the header off a request. Returns an explanation if the client asks for one, or if the
    /// request is `timed` for the log.
    pub(crate) fn take(
        headers: &mut HeaderMap,
        started: Instant,
        is_timed: bool,
    ) -> Option<Box<Self>> {
        let is_asked = headers.remove(EXPLAIN_HEADER).is_some_and(|value| value.as_bytes() == b"1");
        (is_asked || is_timed).then(|| {
            let steps = Steps { last: started, stages: SmallVec::new(), cache: None };
            Box::new(Self { steps: Mutex::new(steps), is_asked })
        })
    }

    pub(crate) fn ended(&self, stage: &'static str) {
        let mut steps = self.steps.lock();
        let now = Instant::now();
        let took = now.saturating_duration_since(steps.last);
        steps.last = now;
        if steps.stages.len() < STAGES_MAX {
            steps.stages.push((stage, took));
        }
    }

    pub(crate) fn note_cache(&self, handle: &CacheHandle, namespaced: bool, form: &'static str) {
        let state = handle.cache().state();
        self.steps.lock().cache = Some(CacheFacts {
            resource_version: state.map(|state| state.resource_version().0),
            behind: handle.age(),
            namespaced,
            form,
        });
    }

    /// Returns the stages with their milliseconds: `identify;dur=0.120, wait;dur=3.000`.
    pub(crate) fn timing(&self, ending: &Ending) -> String {
        let mut timing = String::new();
        let stages = self.steps.lock().stages.clone();
        let upstream = ending.upstream.map(|took| ("upstream", took));
        for (stage, took) in stages.into_iter().chain(upstream) {
            let comma = if timing.is_empty() { "" } else { ", " };
            // Writing to a string cannot fail.
            let _infallible = write!(timing, "{comma}{stage};dur={:.3}", 1e3 * took.as_secs_f64());
        }
        timing
    }

    /// Adds the headers to those of the response, if the client asked for them.
    pub(crate) fn add_to(&self, headers: &mut HeaderMap, ending: &Ending) {
        if !self.is_asked {
            return;
        }
        let timing = self.timing(ending);
        let steps = self.steps.lock();
        for (name, text) in [(EXPLAIN_HEADER, describe(&steps, ending)), (SERVER_TIMING, timing)] {
            if let Ok(value) = HeaderValue::from_str(&text) {
                headers.insert(name, value);
            }
        }
    }
}

#[derive(Clone, Copy, Debug)]
pub(crate) struct Ending {
    pub(crate) status: CacheStatus,
    /// The reason why the request was forwarded or refused.
    pub(crate) reason: &'static str,
    /// The time for which the API server had it.
    pub(crate) upstream: Option<Duration>,
    /// Whether an access decision was used beyond its time.
    pub(crate) is_stale: bool,
}

fn describe(steps: &Steps, ending: &Ending) -> String {
    let mut text = format!("answer={}", ending.status.as_str());
    let mut add = |name: &str, value: &str| {
        let _infallible = write!(text, "; {name}={value}");
    };
    match ending.status {
        CacheStatus::Hit => {}
        CacheStatus::Forward | CacheStatus::Error => add("reason", ending.reason),
    }
    if let Some(cache) = steps.cache.as_ref().filter(|_| ending.status == CacheStatus::Hit) {
        add("cache", if cache.namespaced { "namespace" } else { "cluster" });
        add("form", cache.form);
        if let Some(version) = cache.resource_version {
            add("resource-version", &version.to_string());
        }
        match cache.behind {
            None => add("state", "current"),
            Some(behind) => {
                add("state", "behind");
                add("behind-ms", &behind.as_millis().to_string());
            }
        }
    }
    if ending.is_stale {
        add("decision", "stale");
    }
    text
}

/// The header that asks for an explanation, and has it in the response. It is never forwarded.
pub(crate) const EXPLAIN_HEADER: HeaderName = HeaderName::from_static("x-weir-explain");
/// A header of the W3C; browsers' developer tools show it.
const SERVER_TIMING: HeaderName = HeaderName::from_static("server-timing");
const STAGES_MAX: usize = 12;

#[cfg(test)]
mod tests {
    use super::*;

    fn ending(status: CacheStatus, upstream: Option<Duration>) -> Ending {
        Ending { status, reason: "consistent", upstream, is_stale: false }
    }

    #[tokio::test(start_paused = true)]
    async fn the_stages_are_timed_and_bounded() {
        let mut headers = HeaderMap::new();
        assert!(Explanation::take(&mut headers, Instant::now(), false).is_none());
        headers.insert(EXPLAIN_HEADER, HeaderValue::from_static("yes"));
        assert!(Explanation::take(&mut headers, Instant::now(), false).is_none());
        assert!(headers.is_empty(), "it never goes to the API server");
        // One that is timed for the log shows its client nothing.
        let timed = Explanation::take(&mut headers, Instant::now(), true).unwrap();
        timed.add_to(&mut headers, &ending(CacheStatus::Hit, None));
        assert!(headers.is_empty());
        headers.insert(EXPLAIN_HEADER, HeaderValue::from_static("1"));
        let explanation = Explanation::take(&mut headers, Instant::now(), false).unwrap();
        for _ in 0..100 {
            tokio::time::advance(Duration::from_millis(2)).await;
            explanation.ended("wait");
        }
        let mut answer = HeaderMap::new();
        explanation.add_to(&mut answer, &ending(CacheStatus::Forward, Some(Duration::ZERO)));
        let timing = answer["server-timing"].to_str().unwrap();
        assert!(timing.starts_with("wait;dur=2.000, wait;dur=2.000, "), "{timing}");
        assert!(timing.ends_with(", upstream;dur=0.000"), "{timing}");
        assert_eq!(timing.matches("dur").count(), STAGES_MAX + 1);
        assert_eq!(answer["x-weir-explain"], "answer=forward; reason=consistent");
    }

    #[test]
    fn a_cache_is_named_for_a_hit_alone() {
        let cache = CacheFacts {
            resource_version: Some(7),
            behind: Some(Duration::from_millis(1500)),
            namespaced: true,
            form: "json",
        };
        let stages = SmallVec::new();
        let steps = Steps { last: Instant::now(), stages, cache: Some(cache) };
        let hit = ending(CacheStatus::Hit, None);
        assert_eq!(
            describe(&steps, &hit),
            "answer=hit; cache=namespace; form=json; resource-version=7; state=behind; behind-ms=1500"
        );
        let refused = Ending { is_stale: true, ..ending(CacheStatus::Error, None) };
        assert_eq!(describe(&steps, &refused), "answer=error; reason=consistent; decision=stale");
    }
}
