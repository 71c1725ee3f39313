//! The limits of the API servers: what they answer, and what the queue of forwarded requests may
//! send them.
//!
//! Each API server has an [`AdaptiveLimit`]. The seats of the queue are their sum over the servers
//! that are usable. A [`flight`] follows a request, and notes its server, its latency and its
//! refusals. A task evaluates them twice a second ([`run`]), and logs limits that last
//! ([`Episode`]).
//!
//! Locks: that of the limits and that of a flight, each taken alone. The queue is called without
//! either.

pub(super) mod flight;
pub(super) mod metrics;

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use tokio::time::Instant;

use self::metrics::{LimitFamilies, LimitMetrics};
use crate::config::{FlowControlConfig, FlowControlMode};
use crate::flow::adaptive::AdaptiveLimit;
use crate::flow::keyed_hash::BuildKeyedHash;
use crate::server::flow_control::queue::{Allotment, Queue};
use crate::upstream::Upstream;
use crate::upstream::endpoints::{ApiServer, Keys};

#[derive(Debug)]
pub(super) struct ServerLimits {
    inner: Mutex<Inner>,
    began: Instant,
    adaptive: FlowControlMode,
    /// The seats of one API server, as configured.
    seats: u64,
    families: LimitFamilies,
}

#[derive(Debug)]
struct Inner {
    /// The servers, by their keys.
    servers: HashMap<u64, Limited, BuildKeyedHash>,
    used: Keys,
    /// The most seats of one server: those configured, or what its connections carry.
    ceiling: u64,
}

#[derive(Debug)]
struct Limited {
    limit: AdaptiveLimit,
    /// `None` unless the server is in the set; requests may reach it before that, and after.
    published: Option<Published>,
}

#[derive(Debug)]
struct Published {
    metrics: LimitMetrics,
    episode: Episode,
}

impl ServerLimits {
    pub(super) fn new(config: &FlowControlConfig, families: LimitFamilies) -> Arc<Self> {
        let seats = config.seats_per_server;
        let inner = Inner { servers: HashMap::default(), used: Keys::new(), ceiling: seats };
        let (inner, began) = (Mutex::new(inner), Instant::now());
        let is_off = config.mode == FlowControlMode::Off;
        let adaptive = if is_off { FlowControlMode::Off } else { config.adaptive };
        Arc::new(Self { inner, began, adaptive, seats, families })
    }

    /// Whether answers are noted.
    fn adapts(&self) -> bool {
        self.adaptive != FlowControlMode::Off
    }

    fn now(&self) -> Duration {
        self.began.elapsed()
    }

    /// Returns what the queue may send, if these servers are others than before.
    pub(super) fn changed(&self, used: Keys) -> Option<Allotment> {
        let mut inner = self.inner.lock();
        if inner.used == used {
            return None;
        }
        inner.used = used;
        Some(self.allotment(&inner))
    }

    /// Changes what is known of a server.
    fn update<R>(&self, server: u64, change: impl FnOnce(Duration, &mut Limited) -> R) -> R {
        let mut inner = self.inner.lock();
        // Read under the lock: time may not go back.
        let now = self.now();
        change(now, inner.server(server, now))
    }

    /// Notes a refusal of a server, of this level and the parts of its nominal seats that it has in
    /// use, or of all requests. Returns what the queue may send now.
    fn refused(
        &self,
        server: u64,
        level: Option<(&Arc<str>, f64)>,
        retry_after: Option<Duration>,
    ) -> Allotment {
        self.update(server, |now, limited| {
            limited.limit.refused(now, level, retry_after);
            if let Some(published) = &limited.published {
                published.metrics.refused(level.is_some());
            }
        });
        self.allotment(&self.inner.lock())
    }

    /// Returns what the queue may send to the servers in use.
    fn allotment(&self, inner: &Inner) -> Allotment {
        let with_latency = self.adaptive == FlowControlMode::Enforce;
        let of_server = |key: &u64| {
            let limit = inner.servers.get(key).map(|server| &server.limit);
            let seats = limit.map_or(inner.ceiling, |limit| limit.limit(with_latency));
            (limit, seats as f64)
        };
        let servers: Vec<_> = inner.used.iter().map(of_server).collect();
        let seats: f64 = servers.iter().map(|(_, seats)| seats).sum();
        // A level that one server does not refuse may have what there is.
        let cap = |level: &Arc<str>| {
            let part = |limit: &AdaptiveLimit| limit.refusals().part(level);
            let parts = servers.iter().map(|(limit, seats)| Some(seats * limit.and_then(part)?));
            let parts: f64 = parts.sum::<Option<f64>>()?;
            Some((Arc::clone(level), (parts / seats.max(1.0) * 100.0) as u64))
        };
        let first = servers.first().and_then(|(limit, _)| *limit);
        let refused = first.into_iter().flat_map(|limit| limit.refusals().levels());
        let caps = refused.filter_map(|(level, _)| cap(level)).collect();
        Allotment { seats: seats as u64, caps }
    }

    /// Evaluates all servers, and returns what the queue may send. `servers` are the set.
    fn evaluate(&self, servers: &[Arc<ApiServer>], used: Keys, places: usize) -> Allotment {
        let mut inner = self.inner.lock();
        let now = self.now();
        inner.used = used;
        let most = (places as u64).saturating_mul(PLACES_PART.0) / PLACES_PART.1;
        let ceiling = self.seats.min(most).max(1);
        if ceiling < inner.ceiling {
            tracing::warn!(
                ceiling,
                configured = self.seats,
                "flowControl.seatsPerServer is limited by the connections to an API server"
            );
        }
        inner.ceiling = ceiling;
        inner.servers.retain(|key, _| servers.iter().any(|server| server.key == *key));
        for server in servers {
            let limited = inner.server(server.key, now);
            limited.limit.set_ceiling(ceiling);
            limited.limit.tick(now);
            limited.show(server, now, self.adaptive, &self.families);
        }
        self.allotment(&inner)
    }
}

impl Inner {
    fn server(&mut self, key: u64, now: Duration) -> &mut Limited {
        let limit = || AdaptiveLimit::new(now, self.ceiling);
        let limited = self.servers.entry(key);
        limited.or_insert_with(|| Limited { limit: limit(), published: None })
    }
}

impl Limited {
    fn show(
        &mut self,
        server: &ApiServer,
        now: Duration,
        adaptive: FlowControlMode,
        families: &LimitFamilies,
    ) {
        let Self { limit, published } = self;
        let with_latency = adaptive == FlowControlMode::Enforce;
        let (actual, would) = (limit.limit(with_latency), limit.limit(true));
        let ceiling = limit.ceiling();
        server.set_seats_part(actual as f32 / ceiling as f32);
        let url = server.endpoint.to_string();
        let Published { metrics, episode } = published.get_or_insert_with(|| Published {
            metrics: families.server(&url),
            episode: Episode::default(),
        });
        metrics.show(actual, would, limit.in_use());
        metrics.show_levels(limit.refusals().levels().map(|(level, part)| (&**level, part)));
        episode.note(now, &url, would, ceiling, with_latency);
    }
}

/// Evaluates the API servers until it is dropped, and lets the queue send what they can do.
pub(super) async fn run(limits: Arc<ServerLimits>, queue: Arc<Queue>, upstream: Upstream) {
    loop {
        let endpoints = upstream.endpoints();
        let (servers, used) = (endpoints.servers(), endpoints.chosen_from());
        queue.set_allotment(&limits.evaluate(&servers, used, upstream.places_of_one()));
        tokio::time::sleep(EVALUATION_INTERVAL).await;
    }
}

/// Half of the shortest window, so that one does not wait for the next turn.
const EVALUATION_INTERVAL: Duration = Duration::from_millis(500);
/// The part of the places on the connections to an API server that may be seats. With more, the
/// pool of connections would be the queue, which is not fair.
const PLACES_PART: (u64, u64) = (8, 10);

/// A time in which an API server is limited.
#[derive(Debug, Default)]
struct Episode {
    since: Option<Duration>,
    is_logged: bool,
}

impl Episode {
    /// Notes the limit. `is_enforced` is whether it is the actual one.
    fn note(&mut self, now: Duration, server: &str, limit: u64, ceiling: u64, is_enforced: bool) {
        if limit * NOTABLE_PART.1 >= ceiling * NOTABLE_PART.0 {
            if self.is_logged {
                tracing::info!(%server, limit, ceiling, "an API server is no longer limited");
            }
            *self = Self::default();
            return;
        }
        let since = *self.since.get_or_insert(now);
        if !self.is_logged && now.saturating_sub(since) >= NOTABLE_TIME {
            self.is_logged = true;
            tracing::warn!(
                %server,
                limit,
                ceiling,
                is_enforced,
                "an API server is slow or refuses requests, so that it should get fewer"
            );
        }
    }
}

/// A limit below this part of the ceiling is worth a line...
const NOTABLE_PART: (u64, u64) = (9, 10);
/// ...after this time.
const NOTABLE_TIME: Duration = Duration::from_secs(30);

#[cfg(test)]
mod tests;
