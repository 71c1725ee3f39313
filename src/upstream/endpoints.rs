//! The API servers of the upstream: their state, their load, and the choice among them
//! (`docs/decisions/several-api-servers.md`).
//!
//! [`Endpoints`] is the set, which all identities share; each identity has its own connections to
//! each server ([`pools`](crate::upstream::pools)). [`health`], [`load`] and [`choice`] are pure:
//! they take the time as an argument, start no task and do no I/O, so that tests can drive them
//! through any order of events. [`sources`] and [`monitor`] are the tasks that find servers and
//! check them; [`prober`] and [`lag`] are what they ask. They run in a whole Weir only.
//!
//! Invariants: the configured server is always in the set. A server that was found is chosen only
//! after its kube-system had the uid of the configured one. A request takes no lock to choose.
//!
//! Lock order: the set's `change` or `cluster`, then the uid or the health of a server.

pub(crate) mod catch_up;
mod catch_up_checks;
pub(crate) mod choice;
mod clusters;
pub(crate) mod health;
pub(crate) mod lag;
pub(crate) mod load;
pub(crate) mod metrics;
pub mod monitor;
pub(crate) mod pin;
pub(crate) mod prober;
mod server;
mod sources;
mod sticky;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};

use arc_swap::ArcSwap;
use parking_lot::Mutex;
use smallvec::SmallVec;
use tokio::sync::Notify;
use tokio::time::Instant;

use self::choice::{Candidate, Order};
pub(crate) use self::metrics::EndpointsMetrics;
pub(crate) use self::server::{Admission, ApiServer, Origin};
use self::sticky::StickyTable;
use crate::config::endpoints::{EndpointsConfig, SERVERS_MAX};
use crate::upstream::credentials::Endpoint;
use crate::upstream::error::UpstreamError;
use crate::upstream::hops::Hop;
use crate::upstream::send_options::Choice;

/// The API servers of the upstream.
pub(crate) struct Endpoints {
    /// The server of the kubeconfig.
    pub(crate) configured: Endpoint,
    servers: ArcSwap<Vec<Arc<ApiServer>>>,
    /// Incremented when `servers` changes.
    generation: AtomicU64,
    /// Held while `servers` is replaced.
    change: Mutex<()>,
    /// Notified after `servers` changed.
    changed: Notify,
    /// The uid of the cluster, once known.
    cluster: Mutex<Option<String>>,
    unverified_logged: AtomicBool,
    /// This Weir, among the hops of a request.
    pub(crate) hop: Hop,
    sticky: StickyTable,
    /// The choices that were made while no server was usable.
    panics: AtomicUsize,
    metrics: EndpointsMetrics,
}

/// Keys of servers.
pub(crate) type Keys = SmallVec<[u64; 8]>;

/// The keys of the servers that a request could not be sent to.
pub(crate) type Tried = SmallVec<[u64; 4]>;

impl Endpoints {
    /// Creates the set of the configured server and the static ones.
    pub(crate) fn new(
        configured: &Endpoint,
        config: &EndpointsConfig,
        metrics: EndpointsMetrics,
    ) -> Result<Self, UpstreamError> {
        let refuse =
            |text: String| UpstreamError::Credentials(format!("upstream.endpoints: {text}"));
        if config.finds_servers() && !configured.path_prefix.is_empty() {
            return Err(refuse(format!(
                "{configured} has a path, so that it is a gateway to several clusters; dns and \
                 endpointSlice cannot name others of its kind"
            )));
        }
        let now = Instant::now();
        let new = |endpoint: Endpoint, origin| {
            let metrics = metrics.server(&endpoint.to_string());
            Arc::new(ApiServer::new(endpoint, origin, metrics, now))
        };
        let mut servers = Vec::with_capacity(config.static_urls.len() + 1);
        for url in &config.static_urls {
            let endpoint = Endpoint::parse(url, None).map_err(refuse)?;
            if endpoint.https != configured.https {
                return Err(refuse(format!(
                    "{endpoint} must have the scheme of {configured}, the configured server"
                )));
            }
            servers.push(new(endpoint.with_name_of(configured), Origin::Static));
        }
        if !servers.iter().any(|server| server.endpoint.is_same_address(configured)) {
            servers.push(new(configured.clone(), Origin::Configured));
        }
        Ok(Self {
            configured: configured.clone(),
            servers: ArcSwap::from_pointee(servers),
            generation: AtomicU64::new(1),
            change: Mutex::default(),
            changed: Notify::new(),
            cluster: Mutex::default(),
            unverified_logged: AtomicBool::new(false),
            hop: Hop::new(),
            sticky: StickyTable::new(now),
            panics: AtomicUsize::new(0),
            metrics,
        })
    }

    /// Returns the servers, the configured one last if it is the last resort.
    pub(crate) fn servers(&self) -> Arc<Vec<Arc<ApiServer>>> {
        self.servers.load_full()
    }

    /// Returns the servers that requests are sent to: those that are usable, the last resort if no
    /// other one is, or all if none is.
    pub(crate) fn chosen_from(&self) -> Keys {
        let servers = self.servers.load();
        if let [only] = servers.as_slice() {
            return Keys::from_slice(&[only.key]);
        }
        let is_listed = |server: &&Arc<ApiServer>| server.origin != Origin::Configured;
        let listed = || servers.iter().filter(is_listed);
        let last_resort = servers.iter().filter(|server| !is_listed(server));
        let is_usable = |server: &&Arc<ApiServer>| server.is_admitted() && server.is_usable();
        let mut keys: Keys = listed().filter(is_usable).map(|server| server.key).collect();
        if keys.is_empty() {
            keys.extend(last_resort.filter(is_usable).map(|server| server.key));
        }
        if keys.is_empty() {
            keys.extend(listed().map(|server| server.key));
        }
        keys
    }

    /// Returns whether there is a choice.
    pub(crate) fn has_several(&self) -> bool {
        self.servers.load().len() > 1
    }

    /// Returns a number that changes with the set.
    pub(crate) fn generation(&self) -> u64 {
        self.generation.load(Ordering::Acquire)
    }

    /// Returns the server with this key, if there are several.
    pub(crate) fn one_of_several(&self, key: u64) -> Option<Arc<ApiServer>> {
        let servers = self.servers.load();
        let is_several = servers.len() > 1;
        servers.iter().find(|server| is_several && server.key == key).cloned()
    }

    /// Returns whether a server is known to answer.
    pub(crate) fn is_any_usable(&self) -> bool {
        let servers = self.servers.load();
        servers.iter().any(|server| server.is_admitted() && server.is_usable())
    }

    /// Returns the servers that requests go to: those that answer, or all if none does.
    pub(crate) fn in_use(&self) -> Vec<Arc<ApiServer>> {
        let admitted = |server: &&Arc<ApiServer>| server.is_admitted();
        let answers = |server: &&Arc<ApiServer>| !server.is_out();
        let servers = self.servers.load();
        let used: Vec<_> = servers.iter().filter(admitted).filter(answers).cloned().collect();
        if used.is_empty() { servers.iter().filter(admitted).cloned().collect() } else { used }
    }

    pub(crate) fn metrics(&self) -> &EndpointsMetrics {
        &self.metrics
    }

    /// Replaces the servers that were found by those at `addresses` (host and port). One that stays
    /// keeps its state.
    pub(crate) fn set_found(&self, addresses: &[(String, u16)]) {
        let _change = self.change.lock();
        let now = Instant::now();
        let before = self.servers.load_full();
        let mut after: Vec<_> =
            before.iter().filter(|server| server.origin != Origin::Discovery).cloned().collect();
        for (host, port) in addresses {
            let endpoint = self.configured.at(host, *port);
            let is_it = |server: &&Arc<ApiServer>| server.endpoint.is_same_address(&endpoint);
            if after.iter().any(|server| is_it(&server)) || after.len() >= SERVERS_MAX {
                continue;
            }
            after.insert(
                0,
                before.iter().find(is_it).cloned().unwrap_or_else(|| {
                    tracing::info!(server = %endpoint, "found an API server");
                    let metrics = self.metrics.server(&endpoint.to_string());
                    Arc::new(ApiServer::new(endpoint, Origin::Discovery, metrics, now))
                }),
            );
        }
        let is_left =
            |server: &&Arc<ApiServer>| !after.iter().any(|kept| Arc::ptr_eq(kept, server));
        for server in before.iter().filter(is_left) {
            tracing::info!(server = %server.endpoint, "an API server left the set");
            server.metrics.remove();
        }
        if after.len() != before.len() || after.iter().any(|server| !contains(&before, server)) {
            self.servers.store(Arc::new(after));
            self.generation.fetch_add(1, Ordering::Release);
            self.changed.notify_one();
        }
    }

    /// Chooses a server for a request, other than the `tried` ones. Returns its index; `None` if
    /// there is none.
    pub(crate) fn choose<'a>(
        &self,
        servers: impl Iterator<Item = &'a ApiServer> + Clone,
        choice: &Choice,
        is_stream: bool,
        tried: &[u64],
    ) -> Option<usize> {
        let now = Instant::now();
        let admitted = servers
            .enumerate()
            .filter(|(_, server)| server.is_admitted() && !tried.contains(&server.key))
            .filter(|(_, server)| !matches!(choice, Choice::Only(key) if *key != server.key));
        let may_lag = !matches!(choice, Choice::Sticky(_));
        let tier = |is_last_resort: bool, may_lag: bool| {
            let admitted = admitted.clone();
            admitted.filter_map(move |(index, server)| {
                let fits = (server.origin == Origin::Configured) == is_last_resort
                    && server.is_usable()
                    && (may_lag || !server.is_lagging());
                fits.then(|| (index, candidate(server, is_stream, now)))
            })
        };
        let draining = admitted.clone().filter(|(_, server)| server.is_draining());
        let draining = draining.map(|(index, server)| (index, candidate(server, is_stream, now)));
        self.choose_of(tier(false, may_lag), choice, now)
            .or_else(|| self.choose_of(tier(false, true), choice, now))
            .or_else(|| self.choose_of(tier(true, true), choice, now))
            .or_else(|| self.choose_of(draining, choice, now))
            .or_else(|| self.choose_in_panic(admitted))
    }

    /// Returns when a client was given this server; `None` if that is not its server, or if it has
    /// lost its place meanwhile.
    pub(crate) fn stays_since(&self, client: u64, server: &ApiServer) -> Option<Instant> {
        let stay = self.sticky.get(client).filter(|stay| stay.server == server.key);
        stay.map(|stay| stay.since)
    }

    fn choose_of(
        &self,
        candidates: impl Iterator<Item = (usize, Candidate)>,
        choice: &Choice,
        now: Instant,
    ) -> Option<usize> {
        let (indexes, candidates): (Order, SmallVec<[Candidate; 8]>) = candidates.unzip();
        let chosen = match choice {
            Choice::Spread | Choice::Only(_) => choice::spread(&candidates),
            Choice::Sticky(key) => {
                let current = self.sticky.get(*key).map(|stay| stay.server);
                let chosen = choice::sticky(*key, current, &candidates);
                if let Some(server) = chosen.and_then(|chosen| candidates.get(chosen))
                    && current != Some(server.key)
                {
                    self.sticky.set(*key, server.key, now);
                }
                chosen
            }
            Choice::Pinned(pin) => pin.choose(&candidates, now),
        };
        chosen.and_then(|chosen| indexes.get(chosen).copied())
    }

    /// Chooses among servers of which none is usable: each in turn.
    fn choose_in_panic<'a>(
        &self,
        servers: impl Iterator<Item = (usize, &'a ApiServer)>,
    ) -> Option<usize> {
        let (indexes, were_reached): (Order, SmallVec<[bool; 8]>) =
            servers.map(|(index, server)| (index, server.was_reached())).unzip();
        let attempt = self.panics.fetch_add(1, Ordering::Relaxed);
        let first = *choice::panic_order(attempt, &were_reached).first()?;
        indexes.get(first).copied()
    }
}

fn candidate(server: &ApiServer, is_stream: bool, now: Instant) -> Candidate {
    let load = if is_stream { &server.streams } else { &server.requests };
    Candidate {
        key: server.key,
        in_use: load.in_use(),
        latency: server.requests.latency(now),
        is_avoided: server.requests.is_avoided(now),
        seats_part: server.seats_part(),
    }
}

fn contains(servers: &[Arc<ApiServer>], server: &Arc<ApiServer>) -> bool {
    servers.iter().any(|other| Arc::ptr_eq(other, server))
}

impl std::fmt::Debug for Endpoints {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Endpoints").field("servers", &self.servers.load()).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests;
