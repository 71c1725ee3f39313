//! When the clients of a herd that find no place are to come again (`docs/decisions/herds.md`).
//!
//! There are two places that a herd can fill: the forward budget of a resource whose cache is cold
//! or fails, and the access reviews that may be pending. The rate at which a cache serves clients
//! is counted from a refusal until nobody was refused for a minute, so that it costs nothing
//! otherwise. Reviews are counted as soon as some wait for others, since each costs a request in
//! any case: when a crowd comes, its first refusals fall together, and the rate must be known by
//! then.
//!
//! Lock order: a shard of the map or one of the locks, alone.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use dashmap::DashMap;
use parking_lot::Mutex;
use prometheus::{IntCounter, Registry};
use tokio::time::Instant;

use crate::api::resource::GroupVersionResource;
use crate::flow::appointments::Appointments;
use crate::telemetry::metrics::counter_vec;

/// The appointments of all places.
#[derive(Debug)]
pub(crate) struct HerdAppointments {
    began: Instant,
    /// Whether a cache refused anybody yet.
    is_used: AtomicBool,
    /// The appointments of each resource that discovery knows.
    caches: DashMap<GroupVersionResource, Appointments>,
    /// Those of all other resources together.
    unknown: Mutex<Appointments>,
    reviews: Mutex<Reviews>,
    metrics: AppointmentMetrics,
}

/// The appointments for access reviews.
#[derive(Debug)]
struct Reviews {
    book: Appointments,
    /// When a review waited for others last, or found no place.
    full_at: Option<Duration>,
}

/// Handles of the metrics. Cheap to clone.
#[derive(Clone, Debug)]
pub(crate) struct AppointmentMetrics {
    cache: IntCounter,
    review: IntCounter,
}

impl Reviews {
    /// Forgets the rate of reviews that did not wait for others.
    fn forget_if_old(&mut self, now: Duration) {
        if self.full_at.is_none_or(|at| now.saturating_sub(at) > FULL_FOR) {
            self.book.forget_served(now);
        }
    }
}

impl AppointmentMetrics {
    /// Registers the metrics. May be called once per registry.
    pub(crate) fn register(registry: &Registry) -> Result<Self, prometheus::Error> {
        let appointments = counter_vec(
            registry,
            "weir_herd_appointments_total",
            "Lists and watches that got 429 and a time to come again, by what there was no place for.",
            &["place"],
        )?;
        let [cache, review] =
            ["cache", "review"].map(|name| appointments.with_label_values(&[name]));
        Ok(Self { cache, review })
    }
}

impl HerdAppointments {
    /// Starts without appointments.
    pub(crate) fn new(metrics: AppointmentMetrics) -> Self {
        let new = || Mutex::new(Appointments::new(Duration::ZERO));
        Self {
            began: Instant::now(),
            is_used: AtomicBool::new(false),
            caches: DashMap::new(),
            unknown: new(),
            reviews: Mutex::new(Reviews { book: Appointments::new(Duration::ZERO), full_at: None }),
            metrics,
        }
    }

    /// Makes an appointment for a list or watch of a resource whose cache cannot answer, and which
    /// cannot be forwarded. `waiting` requests wait for the cache. Returns `Retry-After`.
    pub(crate) fn for_cache(&self, gvr: Option<&GroupVersionResource>, waiting: usize) -> u32 {
        self.is_used.store(true, Ordering::Relaxed);
        self.metrics.cache.inc();
        let now = self.began.elapsed();
        let book = |book: &mut Appointments| {
            if book.is_over(now) {
                book.forget_served(now);
            }
            book.book(waiting, fastrand::f64(), now)
        };
        let Some(gvr) = gvr else { return book(&mut self.unknown.lock()) };
        if self.caches.len() >= CACHES_MAX && !self.caches.contains_key(gvr) {
            self.caches.clear();
        }
        let new = || Appointments::new(now);
        book(self.caches.entry(gvr.clone()).or_insert_with(new).value_mut())
    }

    /// Notes that a list or watch of a resource was answered from a cache, or is forwarded within
    /// the budget.
    pub(crate) fn served(&self, gvr: Option<&GroupVersionResource>) {
        if !self.is_used.load(Ordering::Relaxed) {
            return;
        }
        let now = self.began.elapsed();
        let Some(gvr) = gvr else { return self.unknown.lock().served(now) };
        let Some(mut book) = self.caches.get_mut(gvr) else { return };
        if book.is_over(now) {
            drop(book);
            self.caches.remove_if(gvr, |_, book| book.is_over(now));
        } else {
            book.served(now);
        }
    }

    /// Makes an appointment for a list or watch whose access review found no place behind `waiting`
    /// others. Returns `Retry-After`.
    pub(crate) fn for_review(&self, waiting: usize) -> u32 {
        self.metrics.review.inc();
        let now = self.began.elapsed();
        let mut reviews = self.reviews.lock();
        reviews.forget_if_old(now);
        reviews.full_at = Some(now);
        reviews.book.book(waiting, fastrand::f64(), now)
    }

    /// Notes that a request was decided by an access review, and whether other reviews wait for a
    /// place. While none does, the rate is that of those who come, and means nothing.
    pub(crate) fn served_by_review(&self, others_wait: bool) {
        let now = self.began.elapsed();
        let mut reviews = self.reviews.lock();
        reviews.forget_if_old(now);
        if others_wait {
            reviews.full_at = Some(now);
        }
        reviews.book.served(now);
    }
}

/// The rate of reviews is remembered for this time after the last one that waited, since the
/// refused ones leave all at once.
const FULL_FOR: Duration = Duration::from_secs(2);
/// Resources that have appointments; more than a cluster serves. Beyond it all are forgotten, which
/// costs their rates only.
const CACHES_MAX: usize = 4_096;

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn each_resource_has_its_own_rate() {
        let metrics = AppointmentMetrics::register(&Registry::new()).unwrap();
        let herd = HerdAppointments::new(metrics);
        let [pods, nodes] = ["pods", "nodes"].map(|name| GroupVersionResource::new("", "v1", name));
        assert_eq!(herd.for_cache(Some(&pods), 500), 1);
        for _ in 0..80 {
            tokio::time::advance(Duration::from_millis(100)).await;
            herd.served(Some(&pods));
            herd.served(Some(&nodes));
        }
        // 200 wait, and ten are served in a second.
        assert!((10..=15).contains(&herd.for_cache(Some(&pods), 200)));
        // Nothing was counted before the first refusal.
        assert_eq!(herd.for_cache(Some(&nodes), 200), 1);
        assert_eq!((herd.for_cache(None, 200), herd.for_review(200)), (1, 1));
        assert_eq!((herd.metrics.cache.get(), herd.metrics.review.get()), (4, 1));
        // Nobody is refused any more.
        tokio::time::advance(Duration::from_secs(70)).await;
        herd.served(Some(&pods));
        assert_eq!(herd.caches.iter().map(|book| book.key().clone()).collect::<Vec<_>>(), [nodes]);
    }

    #[tokio::test(start_paused = true)]
    async fn reviews_are_counted_before_the_first_refusal() {
        let metrics = AppointmentMetrics::register(&Registry::new()).unwrap();
        let herd = HerdAppointments::new(metrics);
        for _ in 0..2_000 {
            tokio::time::advance(Duration::from_millis(1)).await;
            herd.served_by_review(true);
        }
        herd.served_by_review(false);
        // A thousand a second: 3,000 wait, and 400 find no place all at once.
        let longest = (0..400).map(|_| herd.for_review(3_000)).max();
        assert!((2..=3).contains(&longest.unwrap()), "{longest:?}");
    }

    /// One review a second, for which there was room. Then a crowd comes, and most of it finds no
    /// place at once.
    #[tokio::test(start_paused = true)]
    async fn reviews_that_found_room_say_nothing_of_the_rate() {
        let metrics = AppointmentMetrics::register(&Registry::new()).unwrap();
        let herd = HerdAppointments::new(metrics);
        for _ in 0..10 {
            tokio::time::advance(Duration::from_secs(1)).await;
            herd.served_by_review(false);
        }
        assert_eq!(herd.for_review(256), 1);
        herd.served_by_review(true);
        assert!((0..100).all(|_| herd.for_review(256) == 1));
    }
}
