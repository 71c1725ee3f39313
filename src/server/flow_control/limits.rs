//! The limits of the API servers: what they answer, and what the queue of forwarded requests may
//! send them.
//!
//! Each API server has its seats, less what its [`Refusals`] say, and a [`WideLimit`]. The seats of
//! the queue are their sum over the servers that are usable. A [`flight`] follows a request, and
//! notes its server and its refusals. A task evaluates them twice a second ([`run`]), and logs
//! limits that last ([`Episode`]). Others learn what a server can do at once
//! ([`learning`](super::learning)).
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
use crate::api::keyed_hash::BuildKeyedHash;
use crate::config::{FlowControlConfig, FlowControlMode, SEATS_PER_SERVER};
use crate::flow::refusals::Refusals;
use crate::flow::schedule::request::WideLoad;
use crate::flow::wide::WideLimit;
use crate::server::flow_control::queue::{Allotment, Queue};
use crate::upstream::Upstream;
use crate::upstream::credentials::Endpoint;
use crate::upstream::endpoints::{ApiServer, Keys};

#[derive(Debug)]
pub(super) struct ServerLimits {
    inner: Mutex<Inner>,
    began: Instant,
    /// Whether refusals are heeded.
    heeds_refusals: bool,
    /// Whether wide requests are limited.
    pub(super) limits_wide: bool,
    /// The seats of one API server, as configured.
    pub(super) seats: Option<u64>,
    families: LimitFamilies,
}

#[derive(Debug)]
struct Inner {
    /// The servers, by their keys.
    servers: HashMap<u64, Limited, BuildKeyedHash>,
    used: Keys,
    /// The most seats of one server that its connections carry.
    places: u64,
    is_warned: bool,
}

#[derive(Debug)]
struct Limited {
    refusals: Refusals,
    /// The seats of forwarded requests there.
    in_use: u64,
    wide: WideLimit,
    /// The seats that its metrics name.
    nominal: Option<u64>,
    /// `None` unless the server is in the set; requests may reach it before that, and after.
    published: Option<Published>,
}

#[derive(Debug)]
struct Published {
    metrics: LimitMetrics,
    episode: Episode,
}

impl ServerLimits {
    /// `enforces` is whether requests wait.
    pub(super) fn new(
        config: &FlowControlConfig,
        enforces: bool,
        families: LimitFamilies,
    ) -> Arc<Self> {
        let inner = Inner {
            servers: HashMap::default(),
            used: Keys::new(),
            places: u64::MAX,
            is_warned: false,
        };
        let (inner, began) = (Mutex::new(inner), Instant::now());
        let is_off = [config.mode, config.adaptive].contains(&FlowControlMode::Off);
        let limits_wide = enforces && !is_off && config.adaptive == FlowControlMode::Enforce;
        let seats = config.seats_per_server;
        Arc::new(Self { inner, began, heeds_refusals: !is_off, limits_wide, seats, families })
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

    /// Returns the most seats of a server: those configured, those that it names, or those of
    /// kube-apiserver's default; at most as many as its connections carry.
    fn ceiling(&self, inner: &Inner, server: u64) -> u64 {
        let named = || inner.servers.get(&server).and_then(|limited| limited.nominal);
        self.seats.or_else(named).unwrap_or(SEATS_PER_SERVER).clamp(1, inner.places)
    }

    /// Notes the seats that the metrics of a server name.
    pub(super) fn learned(&self, server: u64, url: &Endpoint, seats: Option<u64>) {
        let seats = seats.map(|seats| seats.max(FLOOR));
        let before =
            self.update(server, |_, limited| std::mem::replace(&mut limited.nominal, seats));
        if before != seats {
            let assumed = seats.unwrap_or(SEATS_PER_SERVER);
            tracing::info!(server = %url, ?seats, assumed, "the seats of an API server are known");
        }
    }

    /// Notes how long a short request took. Returns what the queue may send now.
    pub(super) fn waited(
        &self,
        server: u64,
        latency: Option<Duration>,
        load: WideLoad,
    ) -> Allotment {
        let is_used = load.is_limited || load.seats * 2 > load.seats_max;
        self.update(server, |now, limited| {
            // Until those that run have ended, they say nothing about a lower limit.
            if load.seats <= load.seats_max || limited.wide.seats() == 1 {
                limited.wide.note(now, latency, is_used);
            }
        });
        self.allotment(&self.inner.lock())
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
            match level {
                Some((name, part)) => {
                    limited.refusals.refused_level(now, name, part, retry_after);
                }
                None => {
                    let in_use = limited.in_use as f64;
                    limited.refusals.refused_all(now, in_use, FLOOR as f64, retry_after);
                }
            }
            if let Some(published) = &limited.published {
                published.metrics.refused(level.is_some());
            }
        });
        self.allotment(&self.inner.lock())
    }

    /// Returns what the queue may send to the servers in use.
    fn allotment(&self, inner: &Inner) -> Allotment {
        let of_server = |key: &u64| {
            let refusals = inner.servers.get(key).map(|server| &server.refusals);
            let ceiling = self.ceiling(inner, *key);
            (refusals, refusals.map_or(ceiling, |refusals| seats_left(refusals, ceiling)) as f64)
        };
        let servers: Vec<_> = inner.used.iter().map(of_server).collect();
        let seats: f64 = servers.iter().map(|(_, seats)| seats).sum();
        // A level that one server does not refuse may have what there is.
        let cap = |level: &Arc<str>| {
            let part = |refusals: &Refusals| refusals.part(level);
            let parts =
                servers.iter().map(|(refusals, seats)| Some(seats * refusals.and_then(part)?));
            let parts: f64 = parts.sum::<Option<f64>>()?;
            Some((Arc::clone(level), (parts / seats.max(1.0) * 100.0) as u64))
        };
        let first = servers.first().and_then(|(refusals, _)| *refusals);
        let refused = first.into_iter().flat_map(Refusals::levels);
        let caps = refused.filter_map(|(level, _)| cap(level)).collect();
        let wide = |key: &u64| {
            let seats = inner.servers.get(key).map_or(1, |server| server.wide.seats());
            seats.min(self.ceiling(inner, *key))
        };
        let wide_seats = self.limits_wide.then(|| inner.used.iter().map(wide).sum());
        Allotment { seats: seats as u64, caps, wide_seats }
    }

    /// Evaluates all servers, and returns what the queue may send. `servers` are the set.
    fn evaluate(&self, servers: &[Arc<ApiServer>], used: Keys, places: usize) -> Allotment {
        let mut inner = self.inner.lock();
        let now = self.now();
        inner.used = used;
        let most = (places as u64).saturating_mul(PLACES_PART.0) / PLACES_PART.1;
        inner.places = most.max(1);
        if let Some(configured) = self.seats.filter(|seats| *seats > most)
            && !std::mem::replace(&mut inner.is_warned, true)
        {
            tracing::warn!(
                most,
                configured,
                "flowControl.seatsPerServer is limited by the connections to an API server"
            );
        }
        inner.servers.retain(|key, _| servers.iter().any(|server| server.key == *key));
        for server in servers {
            let ceiling = self.ceiling(&inner, server.key);
            let limited = inner.server(server.key, now);
            limited.refusals.recover(now, ceiling as f64);
            limited.show(server, now, ceiling, &self.families);
        }
        self.allotment(&inner)
    }
}

impl Inner {
    fn server(&mut self, key: u64, now: Duration) -> &mut Limited {
        self.servers.entry(key).or_insert_with(|| Limited {
            refusals: Refusals::default(),
            in_use: 0,
            wide: WideLimit::new(now),
            nominal: None,
            published: None,
        })
    }
}

impl Limited {
    fn show(&mut self, server: &ApiServer, now: Duration, ceiling: u64, families: &LimitFamilies) {
        let Self { refusals, in_use, wide, published, .. } = self;
        let actual = seats_left(refusals, ceiling);
        server.set_seats_part(actual as f32 / ceiling as f32);
        let url = server.endpoint.to_string();
        let Published { metrics, episode } = published.get_or_insert_with(|| Published {
            metrics: families.server(&url),
            episode: Episode::default(),
        });
        metrics.show([actual, wide.seats()], *in_use);
        metrics.show_levels(refusals.levels().map(|(level, part)| (&**level, part)));
        episode.note(now, &url, actual, ceiling);
    }
}

/// Returns the seats of a server that its refusals leave.
fn seats_left(refusals: &Refusals, ceiling: u64) -> u64 {
    let limit = refusals.limit().map_or(ceiling, |limit| limit as u64);
    limit.clamp(FLOOR.min(ceiling), ceiling)
}

/// The least seats of a server: fewer leave no part to the smallest priority level.
const FLOOR: u64 = 20;

/// Evaluates the API servers until it is dropped, and lets the queue send what they can do.
pub(super) async fn run(limits: &ServerLimits, queue: &Queue, upstream: &Upstream) {
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
    fn note(&mut self, now: Duration, server: &str, limit: u64, ceiling: u64) {
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
                "an API server refuses requests, so that it gets fewer"
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
