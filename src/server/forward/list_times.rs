//! The durations of consistent lists that are forwarded (`docs/decisions/proofs-of-freshness.md`).
//!
//! A time is that of one request: its path, its query and the form of its response. It is measured
//! from the sending to the end of the response, without the time in which the client read nothing.
//! A time that was measured long ago is forgotten, so that the next list of its kind is forwarded
//! and measured again.
//!
//! A list that still waits for the head of its response takes at least as long as it has waited,
//! and so does one that its client gave up. Otherwise nothing would be known of an upstream that is
//! overloaded: its lists do not end, and each one would be forwarded.
//!
//! The table has a fixed number of places. Two requests that share one take it from each other.
//!
//! Locks: each place by itself.

use std::hash::{BuildHasher, RandomState};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};
use std::task::Poll;
use std::time::Duration;

use http::header::{ACCEPT, ACCEPT_ENCODING};
use http::request::Parts;
use parking_lot::Mutex;
use tokio::time::Instant;

use crate::config::ConsistentLists;

#[derive(Debug)]
pub(crate) struct ListTimes {
    hasher: RandomState,
    /// Whether lists may be answered from caches, so that their times are needed.
    enabled: AtomicBool,
    places: OnceLock<Box<[Mutex<Option<ListTime>>]>>,
}

#[derive(Clone, Copy, Debug)]
struct ListTime {
    request: u64,
    /// The duration of the last ones, and the end of the last of them.
    measured: Option<(Duration, Instant)>,
    /// The lists that wait for the head of their response.
    waiting: u32,
    all_wait_since: Instant,
}

impl ListTimes {
    /// Creates an empty table, which is used if lists may be answered from caches.
    pub(crate) fn new(consistent_lists: ConsistentLists) -> Self {
        let (enabled, places) = (AtomicBool::default(), OnceLock::new());
        let times = Self { hasher: RandomState::new(), enabled, places };
        times.set(consistent_lists);
        times
    }

    pub(crate) fn set(&self, consistent_lists: ConsistentLists) {
        let enabled = consistent_lists != ConsistentLists::Forward;
        self.enabled.store(enabled, Ordering::Relaxed);
    }

    /// Returns how long this list takes, if it was forwarded lately.
    pub(crate) fn expected(&self, parts: &Parts) -> Option<Duration> {
        let request = self.request(parts);
        let time = (*self.place(request)?.lock())?;
        (time.request == request).then(|| time.expected()).flatten()
    }

    /// Begins to measure a list that is sent now. Returns `None` if no times are needed.
    pub(crate) fn time(self: &Arc<Self>, parts: &Parts) -> Option<ListTimer> {
        let request = self.request(parts);
        let mut place = self.place(request)?.lock();
        let time = place.filter(|time| time.request == request);
        *place = Some(time.unwrap_or_else(|| ListTime::new(request)).with_waiting());
        let (times, waits_since) = (Arc::clone(self), Some(Instant::now()));
        let timer =
            ListTimer { times, request, waits_for_head: true, waits_since, waited: Duration::ZERO };
        Some(timer)
    }

    /// Changes the time of a request, unless another one has taken its place.
    fn update(&self, request: u64, update: impl FnOnce(&mut ListTime)) {
        if let Some(place) = self.place(request)
            && let Some(time) = place.lock().as_mut().filter(|time| time.request == request)
        {
            update(time);
        }
    }

    fn request(&self, parts: &Parts) -> u64 {
        let header = |name| parts.headers.get(name).map(http::HeaderValue::as_bytes);
        self.hasher.hash_one((
            parts.uri.path(),
            parts.uri.query(),
            header(ACCEPT),
            header(ACCEPT_ENCODING),
        ))
    }

    fn place(&self, request: u64) -> Option<&Mutex<Option<ListTime>>> {
        if !self.enabled.load(Ordering::Relaxed) {
            return None;
        }
        let places = self.places.get_or_init(|| (0..PLACES).map(|_| Mutex::default()).collect());
        places.get(usize::try_from(request).ok()?.checked_rem(PLACES)?)
    }
}

impl ListTime {
    fn new(request: u64) -> Self {
        Self { request, measured: None, waiting: 0, all_wait_since: Instant::now() }
    }

    /// Returns how long the next list takes: as long as the last ones, or as those that wait.
    fn expected(&self) -> Option<Duration> {
        let waiting = (self.waiting > 0).then(|| self.all_wait_since.elapsed());
        self.took().max(waiting.filter(|waited| *waited >= WAIT_MIN))
    }

    fn took(&self) -> Option<Duration> {
        let recent = self.measured.filter(|(_, ended)| ended.elapsed() <= AGE_MAX);
        recent.map(|(took, _)| took)
    }

    fn with_waiting(mut self) -> Self {
        if self.waiting == 0 {
            self.all_wait_since = Instant::now();
        }
        self.waiting = self.waiting.saturating_add(1);
        self
    }

    /// Notes that one list waits no longer. It may be the one that waited longest.
    fn end_wait(&mut self) {
        self.waiting = self.waiting.saturating_sub(1);
        self.all_wait_since = Instant::now();
    }

    fn record(&mut self, took: Duration) {
        let took = self.took().map_or(took, |before| (before + took) / 2);
        self.measured = Some((took, Instant::now()));
    }

    /// Notes that a list did not end within this time.
    fn record_at_least(&mut self, waited: Duration) {
        if waited >= WAIT_MIN && self.took() < Some(waited) {
            self.measured = Some((waited, Instant::now()));
        }
    }
}

#[derive(Debug)]
pub(crate) struct ListTimer {
    times: Arc<ListTimes>,
    request: u64,
    /// Whether no part of the response has been asked for yet.
    waits_for_head: bool,
    /// The time since which the upstream is waited for, if it is.
    waits_since: Option<Instant>,
    /// The time for which it was waited for before.
    waited: Duration,
}

impl ListTimer {
    /// Notes what the body of the response returned. While the client reads nothing, the body is
    /// not polled, and its next frame is there at once.
    pub(crate) fn observe<T, E>(
        &mut self,
        polled: &Poll<Option<Result<T, E>>>,
        is_end_stream: bool,
    ) {
        self.end_wait();
        match polled {
            Poll::Pending => {
                self.waits_since.get_or_insert_with(Instant::now);
            }
            Poll::Ready(frame) => {
                if let Some(since) = self.waits_since.take() {
                    self.waited += since.elapsed();
                }
                if frame.is_none() || (is_end_stream && !matches!(frame, Some(Err(_)))) {
                    self.times.update(self.request, |time| time.record(self.waited));
                }
            }
        }
    }

    fn end_wait(&mut self) {
        if std::mem::take(&mut self.waits_for_head) {
            self.times.update(self.request, ListTime::end_wait);
        }
    }
}

impl Drop for ListTimer {
    fn drop(&mut self) {
        self.end_wait();
        if let Some(since) = self.waits_since {
            let waited = self.waited + since.elapsed();
            self.times.update(self.request, |time| time.record_at_least(waited));
        }
    }
}

/// Enough for the different lists of some hundred clients.
const PLACES: usize = 4096;
/// A shorter wait says nothing about how long a list takes.
const WAIT_MIN: Duration = Duration::from_millis(20);
/// The API server's speed may have changed since then.
const AGE_MAX: Duration = Duration::from_secs(600);

#[cfg(test)]
mod tests {
    use http::{HeaderValue, Request};
    use tokio::time::advance;

    use super::*;

    const MS: Duration = Duration::from_millis(1);

    fn list(uri: &str, accept: &'static str) -> Parts {
        let mut request = Request::get(uri).body(()).unwrap();
        request.headers_mut().insert(ACCEPT, HeaderValue::from_static(accept));
        request.into_parts().0
    }

    fn frame() -> Poll<Option<Result<(), ()>>> {
        Poll::Ready(Some(Ok(())))
    }

    fn times() -> Arc<ListTimes> {
        Arc::new(ListTimes::new(ConsistentLists::Auto))
    }

    #[tokio::test(start_paused = true)]
    async fn the_time_is_that_of_the_upstream_alone() {
        let (times, pods) = (times(), list("/api/v1/pods", "application/json"));
        assert_eq!(times.expected(&pods), None);
        let mut timer = times.time(&pods).unwrap();
        advance(10 * MS).await;
        timer.observe(&frame(), false);
        // The client reads nothing.
        advance(500 * MS).await;
        timer.observe(&frame(), false);
        timer.observe(&Poll::<Option<Result<(), ()>>>::Pending, false);
        advance(5 * MS).await;
        timer.observe(&Poll::<Option<Result<(), ()>>>::Pending, false);
        advance(5 * MS).await;
        assert_eq!(times.expected(&pods), None);
        timer.observe(&frame(), true);
        assert_eq!(times.expected(&pods), Some(20 * MS));
        assert_eq!(times.expected(&list("/api/v1/pods", "application/yaml")), None);
        assert_eq!(times.expected(&list("/api/v1/pods?limit=1", "application/json")), None);
    }

    #[tokio::test(start_paused = true)]
    async fn times_are_averaged_and_forgotten() {
        let (times, pods) = (times(), list("/api/v1/pods", "application/json"));
        for took in [100, 50] {
            let mut timer = times.time(&pods).unwrap();
            advance(MS * took).await;
            timer.observe(&Poll::<Option<Result<(), ()>>>::Ready(None), false);
        }
        assert_eq!(times.expected(&pods), Some(75 * MS));
        advance(AGE_MAX + MS).await;
        assert_eq!(times.expected(&pods), None);
    }

    #[tokio::test(start_paused = true)]
    async fn a_response_that_breaks_off_is_not_measured() {
        let (times, pods) = (times(), list("/api/v1/pods", "application/json"));
        let mut timer = times.time(&pods).unwrap();
        timer.observe(&frame(), false);
        timer.observe(&Poll::<Option<Result<(), _>>>::Ready(Some(Err(()))), true);
        drop(timer);
        assert_eq!(times.expected(&pods), None);
    }

    #[tokio::test(start_paused = true)]
    async fn a_list_takes_at_least_as_long_as_those_that_wait() {
        let (times, pods) = (times(), list("/api/v1/pods", "application/json"));
        let mut timers = Vec::new();
        for _ in 0..3 {
            timers.push(times.time(&pods).unwrap());
            advance(100 * MS).await;
        }
        assert_eq!(times.expected(&pods), Some(300 * MS));
        // The first one got its head. The others have waited since then at least.
        timers[0].observe(&frame(), false);
        advance(50 * MS).await;
        assert_eq!(times.expected(&pods), Some(50 * MS));
        // A client gave up.
        drop(timers.pop());
        assert_eq!(times.expected(&pods), Some(150 * MS));
        drop(timers);
        assert_eq!(times.expected(&pods), Some(250 * MS));
    }

    #[test]
    fn nothing_is_measured_where_all_lists_are_forwarded() {
        let times = Arc::new(ListTimes::new(ConsistentLists::Forward));
        assert!(times.time(&list("/api/v1/pods", "application/json")).is_none());
    }
}
