//! Metrics of each API server, and of the addresses that may not be used. The label `server` is its
//! URL: there are at most [`SERVERS_MAX`](crate::config::endpoints::SERVERS_MAX) and those that
//! left the set are removed.

use prometheus::{IntCounter, IntCounterVec, IntGauge, IntGaugeVec};

use super::health::State;
use crate::telemetry::metrics::families;

families! {
    /// The metrics of all API servers. Cheap to clone.
    #[derive(Clone, Debug)]
    pub(crate) struct EndpointsMetrics {
        /// Whether an API server is in a state: usable, draining, ejected, half-open, unreachable.
        states: IntGaugeVec = gauge_vec("weir_upstream_server_state", &["server", "state"]),
        /// Whether an API server may be used: 0 for one of another cluster, or not known to be of
        /// this one.
        admitted: IntGaugeVec = gauge_vec("weir_upstream_server_admitted", &["server"]),
        /// Requests that were sent to an API server.
        requests: IntCounterVec = counter_vec("weir_upstream_server_requests_total", &["server"]),
        /// Requests to an API server without a response: there was no connection, or it broke.
        errors: IntCounterVec = counter_vec("weir_upstream_server_errors_total", &["server"]),
        /// How often an API server was ejected because requests failed.
        ejections: IntCounterVec = counter_vec("weir_upstream_server_ejections_total", &["server"]),
        /// Addresses of API servers that were found and are not used, since Weir may not read the
        /// namespace kube-system.
        pub(crate) unverified: IntGauge = gauge("weir_upstream_servers_unverified"),
        /// Requests that were sent again, because the API server surely did not process them, or
        /// was overloaded.
        retries: IntCounter = counter("weir_upstream_retries_total"),
        /// Requests that were not sent again, because too many others were.
        retries_refused: IntCounter = counter("weir_upstream_retries_refused_total"),
        /// Reads that may show an older state than their client was shown: its API server changed,
        /// and no other was found to be as far.
        pub(crate) uncertain_reads: IntCounter = counter("weir_upstream_uncertain_reads_total"),
    }
}

impl EndpointsMetrics {
    /// Counts a request that is sent again, or is not because too many others were.
    pub(crate) fn retried(&self, may: bool) {
        if may { &self.retries } else { &self.retries_refused }.inc();
    }

    /// Returns the metrics of one API server. They are looked up once: a request that still runs
    /// after the server has left the set then cannot bring a series back.
    pub(super) fn server(&self, url: &str) -> ServerMetrics {
        ServerMetrics {
            families: self.clone(),
            states: State::ALL.map(|state| self.states.with_label_values(&[url, state.as_str()])),
            admitted: self.admitted.with_label_values(&[url]),
            requests: self.requests.with_label_values(&[url]),
            errors: self.errors.with_label_values(&[url]),
            ejections: self.ejections.with_label_values(&[url]),
            url: url.to_owned(),
        }
    }
}

/// The metrics of one API server.
#[derive(Debug)]
pub(crate) struct ServerMetrics {
    families: EndpointsMetrics,
    url: String,
    /// One for each of [`State::ALL`].
    states: [IntGauge; State::ALL.len()],
    admitted: IntGauge,
    requests: IntCounter,
    errors: IntCounter,
    ejections: IntCounter,
}

impl ServerMetrics {
    /// Counts a request.
    pub(crate) fn sent(&self) {
        self.requests.inc();
    }

    pub(super) fn failed(&self) {
        self.errors.inc();
    }

    pub(super) fn ejected(&self, times: u64) {
        self.ejections.inc_by(times);
    }

    pub(super) fn admitted(&self, is_admitted: bool) {
        self.admitted.set(i64::from(is_admitted));
    }

    pub(super) fn state(&self, state: State) {
        for (each, gauge) in State::ALL.into_iter().zip(&self.states) {
            gauge.set(i64::from(each == state));
        }
    }

    /// Removes the series of a server that left the set.
    pub(super) fn remove(&self) {
        for state in State::ALL {
            drop(self.families.states.remove_label_values(&[self.url.as_str(), state.as_str()]));
        }
        drop(self.families.admitted.remove_label_values(&[&self.url]));
        for family in [&self.families.requests, &self.families.errors, &self.families.ejections] {
            drop(family.remove_label_values(&[&self.url]));
        }
    }
}
