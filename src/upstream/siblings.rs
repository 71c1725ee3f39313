//! The other Weirs from which a new cache may be filled, and the connections to them.
//!
//! Static addresses are always there. The EndpointSlices of a service are listed when a cache
//! starts, at most once in [`SLICES_INTERVAL`], and not watched: a Weir looks for siblings when it
//! starts, and hardly ever later. The own address may be among them: it refuses its own requests
//! ([`Hop`](crate::upstream::hops::Hop)).
//!
//! Nothing here may fail a start: whatever goes wrong leaves fewer siblings.
//!
//! Locks: `found` is held while the slices are listed, so that caches which start together share
//! them; `connections` and `left` for a look-up. Never two of them.

pub(crate) mod failure;

use std::collections::HashMap;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::OnceCell;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use crate::config::UpstreamConfig;
use crate::config::endpoints::EndpointsConfig;
use crate::config::siblings::{SIBLINGS_MAX, ServiceName, SiblingsConfig};
use crate::tasks::single_permit::SinglePermit;
use crate::telemetry::log_throttle::LogThrottle;
use crate::upstream::availability::Availability;
use crate::upstream::bounded::with_timeout;
use crate::upstream::credentials::{Credentials, SiblingServer};
use crate::upstream::endpoints::Endpoints;
use crate::upstream::error::UpstreamError;
use crate::upstream::metrics::UpstreamMetrics;
use crate::upstream::pools::Pools;
use crate::upstream::proxy::host_and_port;
use crate::upstream::retry_budget::RetryBudget;
use crate::upstream::siblings::failure::{SiblingFailure, message_of};
use crate::upstream::{Upstream, endpoint_slices};

/// The siblings of this Weir.
pub(crate) struct Siblings {
    own: Upstream,
    config: SiblingsConfig,
    /// The EndpointSlices are listed once at a time.
    lists: SinglePermit,
    found: parking_lot::Mutex<ListedSlices>,
    /// The connections to each sibling, by its URL.
    connections: parking_lot::Mutex<HashMap<String, Connections>>,
    /// When siblings were unreachable or late, by their URL.
    left: parking_lot::Mutex<HashMap<String, Instant>>,
    /// Failures that an operator must end.
    failures: LogThrottle,
}

/// The connections to a sibling, once its credentials are read.
type Connections = Arc<OnceCell<Upstream>>;

/// The siblings that the EndpointSlices name.
#[derive(Default)]
struct ListedSlices {
    urls: Vec<String>,
    listed: Option<Instant>,
    is_failure_logged: bool,
}

impl ListedSlices {
    /// Returns the URLs, if they were listed a short time ago.
    fn recent(&self) -> Option<Vec<String>> {
        let is_recent = self.listed.is_some_and(|listed| listed.elapsed() < SLICES_INTERVAL);
        is_recent.then(|| self.urls.clone())
    }
}

impl Siblings {
    /// Knows the siblings that `config` names, beside the Weir whose upstream is `own`. Warns if
    /// the files that it names cannot be used.
    pub(crate) fn new(own: Upstream, config: SiblingsConfig) -> Self {
        if let Err(error) = SiblingServer::check_files(&config) {
            let error = message_of(&error);
            tracing::warn!(error, "no cache can be filled from a sibling as long as this is so");
        }
        Self {
            own,
            config,
            lists: SinglePermit::default(),
            found: parking_lot::Mutex::default(),
            connections: parking_lot::Mutex::default(),
            left: parking_lot::Mutex::default(),
            failures: LogThrottle::new(FAILURE_LOG_INTERVAL),
        }
    }

    /// Returns how long a cache waits for a sibling, its list and the proof.
    pub(super) fn timeout(&self) -> Duration {
        self.config.timeout
    }

    /// Lets a sibling not be asked for a while: it is unreachable or late.
    pub(super) fn leave(&self, url: &str) {
        let mut left = self.left.lock();
        left.retain(|_, since| since.elapsed() < LEFT_DURATION);
        if left.len() < SIBLINGS_MAX {
            left.insert(url.to_owned(), Instant::now());
        }
    }

    /// Notes that a sibling sent no list. If it would send none for other caches either, it is not
    /// asked again for a while.
    pub(super) fn note_failure(&self, url: &str, error: &UpstreamError) {
        let failure = SiblingFailure::of(error);
        if failure.concerns_all() {
            self.leave(url);
        }
        if matches!(failure, SiblingFailure::Denied | SiblingFailure::Credentials)
            && let Some(suppressed) = self.failures.try_acquire()
        {
            let error = message_of(error);
            tracing::warn!(sibling = url, error, suppressed, "a sibling cannot be asked for lists");
        }
    }

    /// Whether a sibling was unreachable or late a short time ago.
    pub(super) fn is_left(&self, url: &str) -> bool {
        self.left.lock().get(url).is_some_and(|since| since.elapsed() < LEFT_DURATION)
    }

    /// Returns the URLs of the siblings, each once.
    pub(super) async fn urls(&self) -> Vec<String> {
        let mut urls = self.config.addresses.clone();
        if let Some(service) = &self.config.service {
            urls.extend(self.of_service(service).await);
        }
        urls.sort_unstable();
        urls.dedup();
        urls.truncate(SIBLINGS_MAX);
        urls
    }

    async fn of_service(&self, service: &ServiceName) -> Vec<String> {
        let _permit = self.lists.acquire().await;
        if let Some(urls) = self.found.lock().recent() {
            return urls;
        }
        let slices = endpoint_slices::list(&self.own, &service.namespace, &service.name);
        let listed = with_timeout(SLICES_TIMEOUT, slices).await;
        let mut found = self.found.lock();
        match listed {
            Ok(addresses) => {
                found.urls = addresses
                    .iter()
                    .map(|(host, port)| format!("https://{}", host_and_port(host, *port)))
                    .collect();
                found.is_failure_logged = false;
            }
            Err(error) if !found.is_failure_logged => {
                found.is_failure_logged = true;
                tracing::warn!(%service, %error, "cannot list the EndpointSlices of cache.siblings.service");
            }
            Err(_) => {}
        }
        found.listed = Some(Instant::now());
        found.urls.clone()
    }

    /// Returns the place of the sibling that is asked first for the list at `path`: each Weir and
    /// each resource has another one, so that Weirs which start together do not all ask the same.
    pub(super) fn first_for(&self, path: &str, siblings: usize) -> usize {
        let mut hasher = DefaultHasher::new();
        (self.own.endpoints().hop(), path).hash(&mut hasher);
        hasher.finish() as usize % siblings.max(1)
    }

    /// Returns the connections to a sibling. Caches that start together share the reading of its
    /// credentials, for which an exec plugin may run. One that takes longer than the caller waits
    /// goes on for those who ask later.
    pub(super) async fn connect(&self, url: &str) -> Result<Upstream, UpstreamError> {
        let connections = self.connections_to(url);
        if let Some(known) = connections.get() {
            return Ok(known.clone());
        }
        let (own, config, url) = (self.own.clone(), self.config.clone(), url.to_owned());
        let connecting = tokio::spawn(async move {
            connections.get_or_try_init(|| own.to_sibling(&url, &config)).await.cloned()
        });
        connecting.await.unwrap_or_else(|_| {
            Err(UpstreamError::Credentials("the task that reads them failed".to_owned()))
        })
    }

    fn connections_to(&self, url: &str) -> Connections {
        let mut connections = self.connections.lock();
        if connections.len() >= SIBLINGS_MAX && !connections.contains_key(url) {
            // Replicas come and go, and each has a new address.
            connections.clear();
        }
        Arc::clone(connections.entry(url.to_owned()).or_default())
    }
}

impl Upstream {
    /// Creates the connections to another Weir. Their requests have this Weir among their hops, and
    /// do not count as requests to the upstream.
    async fn to_sibling(&self, url: &str, config: &SiblingsConfig) -> Result<Self, UpstreamError> {
        let SiblingsConfig { server_name, ca, certificate, .. } = config.clone();
        let server = SiblingServer { url: url.to_owned(), server_name, ca, certificate };
        let credentials = Credentials::load_sibling(&self.inner.credentials, server).await?;
        let metrics = UpstreamMetrics::register(&prometheus::Registry::new())
            .map_err(|error| UpstreamError::Request(error.to_string()))?;
        let endpoint = credentials.current().endpoint.clone();
        let endpoints = metrics.endpoints().clone();
        let endpoints = Endpoints::new(&endpoint, &EndpointsConfig::default(), endpoints)?
            .with_hop(self.endpoints().hop().clone());
        let config = UpstreamConfig {
            endpoints: EndpointsConfig::default(),
            connect_timeout: CONNECT_TIMEOUT,
            // One list at a time, and no flow-control window to fill.
            http2: false,
            ..self.inner.pools.config().clone()
        };
        let pools = Pools::new(endpoints.into(), &config, credentials.clone(), metrics.clone());
        let availability = Availability::new(metrics.availability().clone());
        // Repetitions at siblings take none of those at the API server.
        let retries = Arc::new(RetryBudget::new(Instant::now()));
        let cancel = CancellationToken::new();
        Ok(Self::start(credentials, pools, metrics, availability, retries, cancel))
    }
}

/// How long a sibling is not asked after it was unreachable or late: the caches of a start do not
/// wait for it one after another.
const LEFT_DURATION: Duration = Duration::from_secs(10);
/// Failures that an operator must end are logged once in this interval.
const FAILURE_LOG_INTERVAL: Duration = Duration::from_secs(60);
/// How long listed EndpointSlices are used.
const SLICES_INTERVAL: Duration = Duration::from_secs(10);
/// A start must not wait for them for long.
const SLICES_TIMEOUT: Duration = Duration::from_millis(500);
/// A replica that has gone may leave an address that answers nothing.
const CONNECT_TIMEOUT: Duration = Duration::from_millis(500);
